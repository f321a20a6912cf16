//! Values that every room shares: ids, times, money, specs, what the cloud and the bucket show.
//!
//! Nothing here reads a clock, a file or a socket, and nothing here decides anything. The room
//! imports no other room.

pub mod alert;
pub mod checkpoint;
pub mod cloud;
pub mod command_words;
pub mod error;
pub mod fence;
pub mod handle;
pub mod hang;
pub mod ids;
pub mod metrics;
pub mod money;
pub mod placement;
pub mod resume_text;
pub mod secret;
pub mod service_manager;
mod shell_text;
pub mod spec;
pub mod step_pattern;
pub mod time;
pub mod tracker_mend;
pub mod view;
pub mod waiting;
