//! The PAI-DLC stand-in on loopback.
