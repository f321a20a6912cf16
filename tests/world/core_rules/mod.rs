//! The rules of the core, one test a sentence: what an end means, whose a job is, what is looked
//! for before a submission, what a person sees.

mod adopted;
mod clocks;
mod desk;
mod ends;
mod fenced;
mod forgotten;
mod frozen;
mod hang;
mod identity;
mod looks;
mod lost;
mod outdated;
mod persons;
mod restarts;
mod suspects;
mod trackers;
mod verdicts;
mod waiting;
mod watch;
