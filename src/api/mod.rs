//! The daemon's HTTP interface on a unix socket, and on TCP where that is asked for: reads the door [`crate::model::handle`], and
//! answers in JSON that never changes the type of a field.
//!
//! Always holds: every answer but the page of figures is a JSON object with `apiVersion`, every refusal has a code of
//! docs/errors; every body, wait and listing has a limit. Only who may open the socket may speak
//! to it: its mode is 0660. Over TCP nothing can be changed ([`gate`]).
//!
//! Must not: decide anything, or keep anything between two requests.

pub mod gate;
pub mod patience;
pub mod routes;
pub mod socket;
pub mod wire;

pub use gate::Gate;
pub use routes::{router, serve, serve_tcp};
pub use socket::bind;
