//! Daemon file and job files: loading with line and column, validation.
//!
//! Always holds: one run finds everything that is wrong with all files; each finding has file,
//! line, column, a code of docs/errors and a mend; a key or value of which nobody made anything is
//! an error, except below `[submit]`, where every field passes through. No value of a secret is
//! read here, and none that stands in a file is shown.
//!
//! Must not: send anything, read a clock, or change a file.

pub mod codes;
pub mod daemon;
pub mod diagnostic;
pub mod duration;
pub mod format_words;
pub mod job;
pub mod mapping;
pub mod nearest;
mod parts;
pub mod plan;
pub mod schema;
pub mod secret_shape;
pub mod secrets;
pub mod set;

mod alerts;
mod body;
mod checkpoint;
mod credentials;
mod fields;
mod files;
mod hang;
mod json_places;
mod mask;
mod placements;
mod platform;
mod reader;
mod secret_ref;
mod size;
mod spot;
mod submit;
mod targets;
mod tcp;
mod trainer;
mod waiting;

pub use alerts::{DEFAULT_EVENTS, EVENTS};
pub use body::json_object;
pub use daemon::{DAEMON_FILE, DaemonConfig, DaemonFile, Surroundings, load_daemon};
pub use diagnostic::{Diagnostic, Severity};
pub use fields::{ANSWER_ONLY, NEWER_THAN_1_4_17};
pub use files::{is_job_file, read};
pub use job::{Rules, load_job};
pub use set::{JobSet, load_files, load_folder, load_jobs};
pub use tcp::Tcp;
