//! Tests in one process that speak HTTP: the client, credentials, the emulator, and the supervisor
//! between them.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    clippy::struct_excessive_bools,
    reason = "a test's failure is for people to read; its worlds are not interfaces"
)]

mod alerts;
mod call_errors;
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
mod emulator_hang;
mod emulator_platform;
mod fence;
mod import;
mod platform_restarts;
mod scenarios;
#[path = "../world/schema.rs"]
mod schema;
mod server;
mod supervisor_no_space;
mod tracker;
mod traps_client;
mod user_document;
