//! What PAI-DLC shows of one of its jobs, decoded, and how far an answer can be believed.
//!
//! Facts: the OpenAPI 2020-12-03. Nothing in an answer is certain to be there; a missing, null or
//! empty field is `None` here, never a guess.

use super::ids::{CloudId, Mark, Owner};
use super::time::WallTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The `Status` word of a DLC job. A word that is not known is *still active*: it never ends or
/// resubmits anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Accepted, not yet scheduled.
    Creating,
    /// Waits for resources or for the price.
    Queuing,
    /// Waits for the price (Lingjun spot).
    Bidding,
    /// Image pull, mounts, network.
    EnvPreparing,
    /// The platform checks its machines.
    SanityChecking,
    /// UserCommand runs.
    Running,
    /// The platform restarts it in place, under the same id.
    Restarting,
    /// A stop was asked for; not an end.
    Stopping,
    /// Result decided, machine still held.
    SucceededReserving,
    /// Result decided, machine still held.
    FailedReserving,
    /// Ended well.
    Succeeded,
    /// Ended badly, a spot release included.
    Failed,
    /// Ended by a stop.
    Stopped,
    /// A word this program does not know; one answer and the next cut it alike.
    Other(String),
}

/// Bytes of a status word that nobody knows that are kept: it goes into records as it is here.
const WORD_LIMIT_BYTES: usize = 64;

/// A word from outside, short and without control characters.
fn bounded(word: &str) -> String {
    let cut = &word[..word.floor_char_boundary(WORD_LIMIT_BYTES)];
    cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl Status {
    /// The status for the API's word.
    pub fn from_word(word: &str) -> Self {
        match word {
            "Creating" => Self::Creating,
            "Queuing" => Self::Queuing,
            "Bidding" => Self::Bidding,
            "EnvPreparing" => Self::EnvPreparing,
            "SanityChecking" => Self::SanityChecking,
            "Running" => Self::Running,
            "Restarting" => Self::Restarting,
            "Stopping" => Self::Stopping,
            "SucceededReserving" => Self::SucceededReserving,
            "FailedReserving" => Self::FailedReserving,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Stopped" => Self::Stopped,
            other => Self::Other(bounded(other)),
        }
    }

    /// The API's word for the status.
    pub fn word(&self) -> &str {
        match self {
            Self::Creating => "Creating",
            Self::Queuing => "Queuing",
            Self::Bidding => "Bidding",
            Self::EnvPreparing => "EnvPreparing",
            Self::SanityChecking => "SanityChecking",
            Self::Running => "Running",
            Self::Restarting => "Restarting",
            Self::Stopping => "Stopping",
            Self::SucceededReserving => "SucceededReserving",
            Self::FailedReserving => "FailedReserving",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Stopped => "Stopped",
            Self::Other(word) => word,
        }
    }

    /// Whether the result is decided and the machine is still held: paid for, and not an end.
    pub fn holds_machine(&self) -> bool {
        match self {
            Self::SucceededReserving | Self::FailedReserving => true,
            Self::Creating
            | Self::Queuing
            | Self::Bidding
            | Self::EnvPreparing
            | Self::SanityChecking
            | Self::Running
            | Self::Restarting
            | Self::Stopping
            | Self::Succeeded
            | Self::Failed
            | Self::Stopped
            | Self::Other(_) => false,
        }
    }

    /// Whether the job was *seen ended*: only these three words say so.
    pub fn is_end(&self) -> bool {
        match self {
            Self::Succeeded | Self::Failed | Self::Stopped => true,
            Self::Creating
            | Self::Queuing
            | Self::Bidding
            | Self::EnvPreparing
            | Self::SanityChecking
            | Self::Running
            | Self::Restarting
            | Self::Stopping
            | Self::SucceededReserving
            | Self::FailedReserving
            | Self::Other(_) => false,
        }
    }
}

/// What our own stamps on a cloud job say: display name, tag and envs, read apart from each other
/// because a person's copy in the console carries some or all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Stamp {
    /// Owner and mark at the end of `DisplayName` (`….sk<owner>-<mark>`).
    pub name: Option<(Owner, Mark)>,
    /// Owner and mark in `Settings.Tags["spotkeeper"]` (`<owner>.<mark>`).
    pub tag: Option<(Owner, Mark)>,
    /// `SPOTKEEPER_OWNER` and `SPOTKEEPER_MARK` in `Envs` or `CustomEnvs`.
    pub env: Option<(Owner, Mark)>,
    /// `SPOTKEEPER_JOB`.
    pub job: Option<String>,
    /// `SPOTKEEPER_RUN`.
    pub run: Option<u32>,
    /// `SPOTKEEPER_ATTEMPT`.
    pub attempt: Option<u32>,
    /// `SPOTKEEPER_RESUME_PATH`.
    pub resume_path: Option<String>,
    /// `SPOTKEEPER_RESUME_STEP`.
    pub resume_step: Option<u64>,
}

/// One pod of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pod {
    /// `PodId`; never built by us.
    pub id: String,
    /// `PodUid`; reaches the logs of a pod that was replaced.
    pub uid: String,
    /// `Status`: Pending, Running, Succeeded, Failed, Unknown.
    pub status: String,
    /// `SubStatus`: `Normal` or `Evicted`.
    pub sub_status: String,
    /// `GmtFinishTime`.
    pub finished: Option<WallTime>,
}

/// One cause out of the JSON text in `ReasonMessage`: which exit code how many pods gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// The container's exit code.
    pub code: i32,
    /// How many pods the report names.
    pub pods: u32,
}

/// One DLC job as an answer showed it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudJob {
    /// `JobId`.
    pub id: CloudId,
    /// `DisplayName`, whole.
    pub display_name: String,
    /// `Status`.
    pub status: Status,
    /// `SubStatus`.
    pub sub_status: String,
    /// `ReasonCode`.
    pub reason_code: String,
    /// `ReasonMessage`, as text, cut to [`REASON_MESSAGE_LIMIT`].
    pub reason_message: String,
    /// Exit codes found in the message when it is the known JSON.
    pub exits: Vec<ExitReport>,
    /// `UserId`: whose job it is.
    pub user_id: Option<String>,
    /// Our stamps on it.
    pub stamp: Stamp,
    /// `GmtCreateTime`.
    pub created: Option<WallTime>,
    /// `GmtRunningTime`: when UserCommand first ran; `None` if it never did.
    pub running: Option<WallTime>,
    /// `GmtFinishTime`.
    pub finished: Option<WallTime>,
    /// `Duration`, seconds.
    pub duration_s: Option<u64>,
    /// How many pods the specs ask for.
    pub pod_count: u32,
    /// The pods shown; lists show fewer than `GetJob`.
    pub pods: Vec<Pod>,
    /// In-place restarts so far: the most that `RestartTimes` ("1/3"), `RestartRecord` or
    /// `StatusHistory` says; 0 where none of them is there.
    pub restarts: u32,
    /// What `StatusHistory` tells of the runs; `None` where it is not there.
    pub history: Option<History>,
    /// Whether this came from `GetJob` (whole) rather than from a list row.
    pub whole: bool,
}

/// The runs of UserCommand as `StatusHistory` tells them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct History {
    /// Restarts in place: it ran and waited again, or was called `Restarting`.
    pub restarts: u32,
    /// When the first run began.
    pub first: Option<WallTime>,
    /// When the last run began.
    pub last: Option<WallTime>,
    /// Since when a run goes on.
    pub open_since: Option<WallTime>,
    /// Running time of all runs that are over.
    pub ran: Duration,
    /// Running time of the last run, if it is over.
    pub last_ran: Duration,
}

/// Bytes of `ReasonMessage` that are kept.
pub const REASON_MESSAGE_LIMIT: usize = 2048;

impl CloudJob {
    /// The latest time at which UserCommand is known to have begun.
    pub fn run_began(&self) -> Option<WallTime> {
        self.running.max(self.history.as_ref().and_then(|history| history.last))
    }

    /// Whether UserCommand ever ran, by the job's own times.
    pub fn ever_ran(&self) -> bool {
        self.running.is_some()
    }
}

/// How a `CreateJob` came out. Only [`SendOutcome::NotSent`] and [`SendOutcome::Refused`] say that
/// there is no job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SendOutcome {
    /// No connection could be made: nothing of the request left this machine.
    NotSent {
        /// What went wrong, for people.
        why: String,
    },
    /// The gateway or DLC answered with a parsed 4xx code, or throttled: not created.
    Refused {
        /// The API's code, e.g. `InvalidParameter`.
        code: String,
        /// The API's message.
        message: String,
        /// Whether trying the same again can ever help: false for bad parameters and the like.
        passing: bool,
    },
    /// Time-out, reset, 5xx, an answer without a JobId, `SignatureNonceUsed`: it may exist.
    Unknown {
        /// What was seen, for people.
        why: String,
    },
    /// The answer names the new job.
    Accepted {
        /// Its id.
        id: CloudId,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_nobody_knows_is_short_and_the_same_each_time() {
        let long = "é".repeat(5_000);
        let word = Status::from_word(&long);
        assert_eq!(word.word().len(), 64);
        assert_eq!(word, Status::from_word(&(long + "more")));
        assert_eq!(Status::from_word("a\u{7}b"), Status::Other("a b".to_owned()));
    }
}
