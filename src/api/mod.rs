//! The daemon's HTTP interface on a unix socket: reads the door [`crate::model::handle`], and
//! answers in JSON that never changes the type of a field.
//!
//! Always holds: every answer is a JSON object with `apiVersion`, every refusal has a code of
//! docs/errors; every body, wait and listing has a limit. Only who may open the socket may speak
//! to it: its mode is 0660.
//!
//! Must not: decide anything, keep anything between two requests, or listen on a network.

pub mod routes;
pub mod socket;
pub mod wire;

pub use routes::{router, serve};
pub use socket::bind;
