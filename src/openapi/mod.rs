//! Alibaba Cloud's gateway: ACS3 signature, credentials, errors by code. Knows no product.

pub mod signature;
