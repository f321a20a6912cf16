//! Tests that need no process of their own: the core, the store, the bucket, configuration, output.
//! Those of the client and the emulator are `cloud`: two binaries build and run beside each other.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    clippy::struct_excessive_bools,
    reason = "a test's failure is for people to read; its worlds are not interfaces"
)]

mod api;
mod checkpoints;
mod cli_output;
mod config;
mod core_model;
mod core_rules;
mod long_lives;
mod mutators;
mod schema;
mod state;
mod store;
mod store_simulated;
mod threat_model;
