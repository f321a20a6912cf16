//! Tests of the real program: daemon and emulator as child processes, judged by the emulator's
//! ledger and the trainer's log alone.

#![cfg(feature = "emulator")]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test's failure is for people to read, and its waits are real time"
)]

mod crash;
mod harness;
mod ledger;
mod promises;
