//! Telling people outside: what is sent when, in which words, and how each kind of receiver wants it.
//!
//! Always holds: an alert has an id that is never used twice; alerts of one job keep their order; an
//! address or key is read when it is needed, and shown nowhere; each delivery has a time limit, and
//! an answer a size limit.
//!
//! Must not: decide anything about a job, keep anything, read a clock, or wait for more than one
//! delivery. The queue is the supervisor's, in the store.

pub mod deliver;
pub mod dingtalk;
pub mod feishu;
pub mod fold;
pub mod mail;
pub mod message;
pub mod secrets;
pub mod sign;
pub mod slack;
pub mod webhook;
pub mod wecom;

pub use deliver::{DeliveryError, client, deliver};
pub use fold::{Next, Sent, next};
pub use message::Message;
