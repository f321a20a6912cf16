//! The pure core: what a job is, and what happens next to it.
//!
//! [`step::step`] takes a job, what is given (clocks, spec, gate, fresh ids) and one input, and
//! answers with the next job, the events that tell it, the effects to start and the time to look
//! again. It reads no clock, draws no random number, does no IO and iterates no hash map.
//!
//! What always holds:
//! - The only way to a `CreateJob` is an [`job::Attempt`] in state `Intended` that [`submit::may_submit`]
//!   let through; the caller commits it before anything is sent.
//! - An attempt leaves [`job::Job::open`] only when it was seen ended, is proved never created, or is
//!   given up as lost ([`verdict::Cause::Lost`]).
//! - A job that can go on always has a next input to wait for: an open attempt, an effect under
//!   way, or a time in `wake_at`.
//!
//! What it must not do: believe that a stop that was asked for is an end, that an answer that did
//! not come means "no", or that a word it does not know means anything.

pub mod acts;
pub mod adopt;
pub mod advice;
pub mod event;
pub mod forget;
pub mod hang;
pub mod identity;
pub mod job;
mod lost;
pub mod offer;
pub mod overlap;
mod pass_over;
pub mod permanent;
pub mod phase;
mod progress;
mod recheck;
pub mod retry;
pub mod runs;
pub mod scan;
pub mod seen;
mod sighting;
pub mod step;
pub mod stops;
pub mod submit;
pub mod suspects;
pub mod terms;
mod tracker;
pub mod verdict;
pub mod waiting;
pub mod watch;
