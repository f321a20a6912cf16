//! The one door to the running daemon: what may be asked of it, and what it answers. The API and
//! the tests speak through it; the driver is behind it.

use super::checkpoint::ResumeFrom;
use super::ids::CloudId;
use super::metrics::Page;
use super::view::{
    ActReport, BodyView, DaemonView, EventPage, EvidenceView, JobPage, JobRow, LogView, ReadyView,
    WhyView,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

/// A question or an act, each with the way back for its answer.
#[derive(Debug)]
pub enum Request {
    /// All jobs, by name.
    Jobs(oneshot::Sender<Vec<JobRow>>),
    /// One job; the newest run where `run` is not given.
    Job {
        /// Its name.
        name: String,
        /// The answer.
        reply: oneshot::Sender<Result<JobPage, Refusal>>,
    },
    /// Why the last or the named attempt ended.
    Why {
        /// The job.
        name: String,
        /// The attempt; `None` is the last one that ended.
        attempt: Option<u32>,
        /// The answer.
        reply: oneshot::Sender<Result<WhyView, Refusal>>,
    },
    /// Events after a place in the log.
    Events {
        /// One job, or all.
        job: Option<String>,
        /// Those after this sequence.
        after: u64,
        /// At most this many.
        limit: usize,
        /// The answer.
        reply: oneshot::Sender<Result<EventPage, Refusal>>,
    },
    /// A person's act on jobs; an empty list with `all` means every job that is not over.
    Act {
        /// The jobs.
        names: Vec<String>,
        /// What to do.
        verb: ActVerb,
        /// The answer, after the act is durable.
        reply: oneshot::Sender<Result<Vec<ActReport>, Refusal>>,
    },
    /// A cloud job is to become the running attempt of a job.
    Adopt {
        /// The id that the person names.
        id: CloudId,
        /// The job.
        name: String,
        /// The answer, after it is durable.
        reply: oneshot::Sender<Result<ActReport, Refusal>>,
    },
    /// The body that the next attempt would be sent with, secrets left out.
    Body {
        /// The job.
        name: String,
        /// The answer.
        reply: oneshot::Sender<Result<BodyView, Refusal>>,
    },
    /// A look into the bucket of a job, now.
    Checkpoints {
        /// The job.
        name: String,
        /// The answer: the JSON of `spotkeeper checkpoints`.
        reply: oneshot::Sender<Result<serde_json::Value, Refusal>>,
    },
    /// The raw answers of an attempt's end, redacted.
    Evidence {
        /// The job.
        name: String,
        /// The attempt; `None` is the last one that ended.
        attempt: Option<u32>,
        /// The answer: what is kept, else what the cloud shows now.
        reply: oneshot::Sender<Result<EvidenceView, Refusal>>,
    },
    /// The log of a node of an attempt.
    Logs {
        /// The job.
        name: String,
        /// The attempt; `None` is the newest that was created.
        attempt: Option<u32>,
        /// The node: its place among the pods that DLC names.
        rank: u32,
        /// The answer: what the cloud shows now, else what is kept.
        reply: oneshot::Sender<Result<LogView, Refusal>>,
    },
    /// The daemon itself.
    Daemon(oneshot::Sender<DaemonView>),
    /// Whether it can do its work, and what is in the way.
    Ready(oneshot::Sender<ReadyView>),
    /// Its figures.
    Metrics(oneshot::Sender<Page>),
}

/// What a person can ask of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActVerb {
    /// Stop for good.
    Cancel,
    /// Submit nothing more.
    Pause,
    /// Go on after a pause.
    Resume,
    /// Start again after a block or an end.
    Retry,
    /// Take off the record, history and all.
    Forget,
    /// Start again from a checkpoint that the person names, or from zero. On the wire it is `retry`
    /// with `from`.
    #[serde(skip)]
    RetryFrom(ResumeFrom),
}

impl ActVerb {
    /// The word in the API and on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Retry | Self::RetryFrom(_) => "retry",
            Self::Forget => "forget",
        }
    }
}

/// Why a request was not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No job has this name.
    #[error("there is no job `{0}`")]
    NoSuchJob(String),
    /// The job has no such attempt on record.
    #[error("job `{0}` has no attempt {1} on record")]
    NoSuchAttempt(String, u32),
    /// The store cannot write now: nothing was done.
    #[error("the store cannot write now, nothing was done: {0}")]
    StoreDown(String),
    /// It cannot be done in this situation.
    #[error("{0}")]
    NotNow(String),
}

/// The sending side of the door.
pub type Handle = mpsc::Sender<Request>;

/// Requests that may wait at the door.
pub const WAITING_LIMIT: usize = 256;
