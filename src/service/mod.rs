//! The process and its host: clocks, signals, the service manager, logging, crash points.

pub mod clock;
pub mod crash;
pub mod logging;
pub mod notify;
pub mod signals;
pub mod starts;
