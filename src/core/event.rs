//! History for people and scripts. Events tell what was decided; no decision reads them.

use crate::model::ids::AttemptNo;
use crate::model::time::WallTime;
use serde::{Deserialize, Serialize};

/// The words of the event log: an interface, never renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Word {
    /// A job file was taken.
    Accepted,
    /// A job file changed, came back or went away.
    SpecChanged,
    /// A submission was decided and is durable.
    Intent,
    /// CreateJob answered with an id.
    Submitted,
    /// CreateJob was refused: nothing was created.
    Refused,
    /// CreateJob had no readable answer: a job may exist.
    Unknown,
    /// A job whose creation was unknown was found.
    Found,
    /// A submission is proved never created.
    Absent,
    /// The cloud shows another status.
    Phase,
    /// The machine was taken back.
    Released,
    /// An attempt was seen ended.
    Ended,
    /// Why it ended, as far as is known now.
    Verdict,
    /// What a look into the bucket chose and refused.
    Checkpoint,
    /// The next submission waits.
    Backoff,
    /// Nothing is submitted, for a reason that will pass.
    Held,
    /// Nothing is submitted until a person acts.
    Blocked,
    /// A stop was asked for.
    StopAsked,
    /// An attempt that we stopped was seen ended.
    Stopped,
    /// A second job of ours for the same work.
    Twin,
    /// A job that a person copied from ours.
    Copy,
    /// Gone for long, everywhere.
    Lost,
    /// An attempt believed gone or never created shows up.
    Returned,
    /// The platform restarted it under the same id.
    RestartedInPlace,
    /// A person should look.
    Alarm,
    /// The job is done.
    Succeeded,
    /// The job is given up.
    Failed,
    /// The job was cancelled and nothing of it runs.
    Cancelled,
    /// A person's act.
    Operator,
    /// The daemon file was read again.
    Reloaded,
}

/// One line of history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When it was decided.
    pub at: WallTime,
    /// The attempt it is about, if one.
    pub attempt: Option<AttemptNo>,
    /// Its word.
    pub word: Word,
    /// A sentence a person can read.
    pub text: String,
    /// The same for scripts; `null` where the text says all.
    #[serde(default)]
    pub data: serde_json::Value,
}
