//! The two promises, simulated: seeded lives of several jobs. The core, the rules by which the
//! driver takes work and commits, and the store are the true ones; the cloud, the bucket, the clock
//! and the disk are models. One seed drives everything; a seed that fails prints itself and a
//! history.
//!
//!     SPOTKEEPER_LIVES=20000..1020000 cargo test --test simulation lives      a long run
//!     SPOTKEEPER_LIVES=4711..4712 cargo test --test simulation lives          one life

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::wildcard_enum_match_arm,
    clippy::struct_excessive_bools,
    clippy::large_enum_variant,
    clippy::struct_field_names,
    clippy::unwrap_in_result,
    reason = "a test's failure is for people to read; its worlds are not interfaces"
)]

mod bucket;
mod bugs;
mod clock;
mod cloud;
mod disk;
mod faults;
mod invariants;
mod lives;
mod table;
mod turn;
mod world;
