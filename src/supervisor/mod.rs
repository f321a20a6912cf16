//! The shell around the pure core: one driver that owns every job, and tasks that look and act.
//!
//! **One owner.** The driver holds all jobs in memory, takes one piece of work after the other off a
//! bounded queue, lets [`crate::core::step::step`] decide, commits what came of it in one batch and
//! only then replaces the job in memory and starts effects. A job has at most one uncommitted step.
//!
//! **Commit before act.** If the commit fails, nothing happened: memory is dropped, the store is
//! opened again and everything is loaded anew. What runs in the cloud is left alone meanwhile.
//!
//! **Wake-ups carry no facts.** A timer, a changed file or a person's act only makes the driver
//! look. Facts come from a pass over ListJobs, a look into the bucket, or the store. Effects have
//! no memory of their own: what is due follows from the record, so a crash between commit and act
//! loses nothing (an intent without an outcome is searched for, a look or a stop is asked again).
//!
//! **Passes.** One task a place (region, workspace, credentials) lists our jobs every interval and
//! fetches in full only those that changed. A place opens for submissions after its first complete
//! pass was compared with the store; with a new store also after what an earlier one may have
//! sent can no longer be accepted.
//!
//! **Turns.** Every call of the API waits for its turn before it is signed ([`turns`]), so that all
//! jobs together keep to the rates of an account.
//!
//! **Alerts.** What people outside are to be told is committed with its event ([`outbox`]) and
//! delivered by a task a channel ([`courier`]), which nothing waits for.
//!
//! **Panics.** A step that panics parks its job with an alarm; the others go on.
//!
//! It must not: decide anything about a job (that is the core's), read a clock other than through
//! [`crate::service::clock::Clock`], or start an effect of a step that is not durable.

mod acts;
mod adopting;
mod adoptions;
mod answers;
mod asked;
mod body;
mod book;
mod bucket;
mod control;
mod courier;
mod driver;
mod effects;
mod evidence;
mod files;
mod holding;
mod measures;
mod outages;
mod outbox;
mod passes;
mod place;
mod readiness;
mod run;
mod staging;
mod stops;
mod stored;
mod summary;
mod sweep;
mod troubles;
mod turns;
mod views;
mod work;

// What the driver decides with, without its clock, its tasks and the network: the driver and
// tests/simulation run the same.
pub use book::{Book, Jobs};
pub use staging::{Moment, Turn};
pub use stored::{Log, StateError};
pub use summary::Summary;
pub use sweep::{Lookback, has_news};
pub use work::{Known, OnRecord, Swept, Waits, Work};

pub use control::{Control, ControlError};
pub use run::{RunError, Settings, Supervisor};
