//! The process and its host: clocks, signals, logging, crash points.

pub mod clock;
pub mod crash;
pub mod logging;
pub mod signals;
