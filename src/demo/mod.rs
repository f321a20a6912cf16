//! The demo: its script and its small trainer.

pub mod torch_zip_writer;
pub mod trainer;
