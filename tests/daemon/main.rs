//! Tests of the real program: daemon, emulator and demo as child processes, judged by the
//! emulator's ledger and the trainer's log alone.

#![cfg(feature = "emulator")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::wildcard_enum_match_arm,
    reason = "a test's failure is for people to read, and its waits are real time"
)]

mod apply;
mod blindness;
mod canaries;
mod copies;
mod crash;
mod demo;
mod evidence;
mod fence;
mod hardening;
mod harness;
mod ledger;
mod logs;
mod promises;
mod scenarios;
#[path = "../world/schema.rs"]
mod schema;
mod service;
mod slow_bucket;
mod tracker;
mod upgrade;
mod zones;
