//! Tests that need no process of their own: the core, the store, the client, the bucket.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    clippy::struct_excessive_bools,
    reason = "a test's failure is for people to read; its worlds are not interfaces"
)]

mod api;
mod call_errors;
mod checkpoints;
mod cli_output;
mod config;
mod core_model;
mod core_rules;
mod credentials;
mod dlc_answers;
mod dlc_calls;
mod dlc_differential;
mod dlc_golden;
mod doctor;
mod emulator;
mod emulator_calls;
mod emulator_client;
mod emulator_gateway;
mod emulator_platform;
mod fence;
mod import;
mod platform_restarts;
mod server;
mod store;
mod store_simulated;
mod supervisor_no_space;
mod traps_client;
mod user_document;
