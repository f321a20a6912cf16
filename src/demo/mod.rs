//! The demo: its stage, its processes, its small trainer, and the sum at its end.
//!
//! Always holds: the trainer and the emulator know nothing of the supervisor, and the figures come
//! from their files. It must not print: `cli::demo` does.

pub mod children;
pub mod figures;
pub mod json_lines;
pub mod stage;
pub mod torch_zip_writer;
pub mod trainer;
