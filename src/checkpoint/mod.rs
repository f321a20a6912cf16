//! Checkpoints: layouts, integrity tests, the scan over object storage.
//!
//! A look lists by delimiter first and reads little: the newest candidates one after the other until
//! one is whole. Always holds: "could not look" and "nothing there" are different answers; every
//! listing, read and wait has a limit; nothing is written but the one object of [`fence`]. Must not do: decide what follows from a
//! look (that is the core's), unpickle anything, or send bytes of checkpoints anywhere.
//!
//! A new format is one file in `formats` and, if its names are new, one row in `names`.
//! Tests: `tests/world/checkpoints.rs` and beside the code.

mod against;
mod choice;
pub mod common_step;
mod dcp;
mod earlier_run;
pub mod fence;
mod find;
pub mod formats;
mod hints;
pub mod location;
pub mod names;
mod numbered;
pub mod objects;
pub mod pickle;
mod python_json;
pub mod report;
mod run;
pub mod safetensors;
pub mod scan;
mod sieve;
pub mod store_folder;
pub mod store_s3;
pub mod torch_zip;
pub mod tracker;
mod walk;
mod write;
