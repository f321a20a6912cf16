//! PAI-DLC on the gateway, with the two products beside it that know prices and data sets: the calls,
//! the wire types, and what an answer proves.
//!
//! What always holds: CreateJob is sent once for each call of [`client::Dlc::create_job`] and its
//! outcome is never guessed; a list counts as complete only if it proves that it is. Decides
//! nothing and remembers nothing.

pub mod client;
pub mod datasets;
pub mod evidence;
pub mod fault;
pub mod jobs;
pub mod launcher;
pub mod list;
pub mod prices;
pub mod probe;
mod products;
mod query;
pub mod redact;
pub mod specs;
pub mod wire;
