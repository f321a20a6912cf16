//! spotkeeper: a supervisor for preemptible training jobs on Alibaba Cloud PAI-DLC.
//!
//! ARCHITECTURE.md shows the rooms and who may import whom; `tests/layers.rs` enforces it.

pub mod alerts;
pub mod api;
pub mod checkpoint;
pub mod cli;
pub mod config;
pub mod core;
#[cfg(feature = "emulator")]
pub mod demo;
pub mod dlc;
#[cfg(feature = "emulator")]
pub mod emulator;
pub mod model;
pub mod openapi;
pub mod service;
pub mod store;
pub mod supervisor;
