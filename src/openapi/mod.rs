//! Alibaba Cloud's gateway: ACS3 signature, credentials, errors by code ([`kind`]), and whose turn
//! it is to call ([`pace`]). Knows no product.
//!
//! What always holds: a request is signed once and sent at most once, no layer repeats it; an
//! error never shows a URL, a header or a key; every wait and every body has a limit. Nothing here
//! reads a clock: the caller brings the time that is signed.

pub mod client;
pub mod credentials;
pub mod error;
pub mod kind;
pub mod pace;
pub mod request;
pub mod signature;
pub mod tls;
