//! The PAI-DLC stand-in on loopback.

pub mod gateway;
