//! The only gate to CreateJob.

use super::job::{AttemptState, Job, Recovery, Wanted};
use super::step::Given;
use crate::model::ids::{AttemptNo, CloudId, JobKey};
use crate::model::spec::Place;
use crate::model::time::BootTime;
use std::fmt;
use std::time::Duration;

/// What the supervisor knows about the outside that concerns every submission of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Where the next attempt would go; `None` if the daemon file has no such target.
    pub place: Option<Place>,
    /// Why the placement after it could not be submitted to now, if so.
    pub next_place: Option<Hold>,
    /// How long a signed CreateJob can still be accepted there.
    pub acceptance: Duration,
    /// Whether, in this process, a complete owner sweep of the place was compared with the store.
    pub verified: bool,
    /// Why an attempt of this job that the store does not know may be open at another of its
    /// placements, if so.
    pub elsewhere: Option<Hold>,
    /// Why a new store has to wait before its first CreateJob, if it has to.
    pub new_store: Option<String>,
    /// Why another daemon may be submitting with our owner id, in words with the mend.
    pub other_writer: Option<String>,
    /// Another job that holds an equal or nested checkpoint prefix.
    pub lease: Option<JobKey>,
    /// Another job of which an attempt is open on such a prefix. Told only where the cloud shows a
    /// job of ours that is not an open attempt.
    pub writer: Option<JobKey>,
    /// Whether the target may have one more attempt open.
    pub slot: bool,
    /// Whether this process is on its way out.
    pub stopping: bool,
    /// The user that our own jobs belong to, once one was seen.
    pub own_user: Option<String>,
    /// This installation.
    pub owner: crate::model::ids::Owner,
}

/// A reason why nothing is submitted now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// It ended for good.
    Final,
    /// A person wants it cancelled.
    Cancelled,
    /// A person paused it.
    Paused,
    /// Only a person can let it go on.
    Blocked(String),
    /// An earlier attempt was not seen ended.
    OpenAttempt {
        /// Which.
        no: AttemptNo,
        /// Whether a stop was asked for.
        stopping: bool,
        /// Whether it is not known to exist.
        unknown: bool,
    },
    /// A job that carries our mark and is not proved ours may be writing.
    Copy(CloudId),
    /// The bucket was not looked into, or is still settling.
    NoResumePoint(String),
    /// It waits after an end or a fault.
    Backoff {
        /// When it is over.
        until: BootTime,
    },
    /// The daemon file does not have the target of its spec.
    NoTarget(String),
    /// The cloud was not compared with the store in this process.
    NotVerified,
    /// The same of another target that its placements name: an attempt may be open there.
    NotVerifiedAt(String),
    /// The store is new and something sent by an earlier one may still be accepted.
    NewStore(String),
    /// Somebody else submits with our owner id, or may do so.
    OtherWriter(String),
    /// Another job writes there.
    Lease(JobKey),
    /// The target has as many attempts open as it may.
    MaxParallel,
    /// This process is on its way out.
    Stopping,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Final => f.write_str("the job is over"),
            Self::Cancelled => f.write_str("it was cancelled"),
            Self::Paused => f.write_str("it is paused"),
            Self::Blocked(why)
            | Self::NoResumePoint(why)
            | Self::NewStore(why)
            | Self::OtherWriter(why) => f.write_str(why),
            Self::OpenAttempt { no, stopping: true, .. } => {
                write!(f, "attempt {no} was asked to stop and is not seen ended")
            }
            Self::OpenAttempt { no, unknown: true, .. } => {
                write!(f, "attempt {no} may exist: its CreateJob had no answer")
            }
            Self::OpenAttempt { no, .. } => write!(f, "attempt {no} is not seen ended"),
            Self::Copy(id) => write!(f, "{id} carries a mark of ours and is not proved ours"),
            Self::Backoff { .. } => f.write_str("it waits before the next submission"),
            Self::NoTarget(name) => write!(f, "the daemon file has no target `{name}`"),
            Self::NotVerified => {
                f.write_str("the cloud was not yet compared with the store since the start")
            }
            Self::NotVerifiedAt(target) => write!(
                f,
                "target `{target}`, a placement of this job, was not yet compared with the store since \
                 the start: an attempt may be open there"
            ),
            Self::Lease(key) => {
                write!(f, "{key} holds this checkpoint prefix, or is another run of this job")
            }
            Self::MaxParallel => f.write_str("the target has max_parallel attempts open"),
            Self::Stopping => f.write_str("spotkeeper is stopping"),
        }
    }
}

impl Hold {
    /// Whether a person has to see to it.
    pub fn needs_person(&self) -> bool {
        match self {
            Self::Blocked(_)
            | Self::Copy(_)
            | Self::NoTarget(_)
            | Self::OtherWriter(_)
            | Self::Lease(_) => true,
            Self::Final
            | Self::Cancelled
            | Self::Paused
            | Self::OpenAttempt { .. }
            | Self::NoResumePoint(_)
            | Self::Backoff { .. }
            | Self::NotVerified
            | Self::NotVerifiedAt(_)
            | Self::NewStore(_)
            | Self::MaxParallel
            | Self::Stopping => false,
        }
    }
}

/// Whether the job's next attempt may be submitted now; else every reason why not.
pub fn may_submit(job: &Job, given: &Given<'_>) -> Result<(), Vec<Hold>> {
    let mut holds = Vec::new();
    if job.result.is_some() {
        holds.push(Hold::Final);
    }
    match job.wanted {
        Wanted::Run => {}
        Wanted::Hold => holds.push(Hold::Paused),
        Wanted::Cancel => holds.push(Hold::Cancelled),
    }
    if let Some(block) = &job.block {
        holds.push(Hold::Blocked(block.why.clone()));
    }
    holds.extend(job.open.iter().map(|attempt| Hold::OpenAttempt {
        no: attempt.no,
        stopping: attempt.stop.is_some(),
        unknown: match attempt.state {
            AttemptState::Unknown { .. } => true,
            AttemptState::Intended | AttemptState::Live { .. } => false,
        },
    }));
    holds.extend(job.copies.iter().cloned().map(Hold::Copy));
    match &job.recovery {
        Recovery::Ready { .. } => {}
        Recovery::Look { .. } => {
            holds.push(Hold::NoResumePoint("the bucket is being looked into".to_owned()));
        }
        Recovery::Settling { step, .. } => holds.push(Hold::NoResumePoint(match step {
            Some(step) => format!("waiting for a late upload of step {step}"),
            None => "waiting for a late upload".to_owned(),
        })),
        Recovery::Waiting { until, .. } => holds.push(Hold::Backoff { until: *until }),
        Recovery::Repairing { rewrite } => {
            let why = format!("{} is being rewritten for the trainer", rewrite.key);
            holds.push(Hold::NoResumePoint(why));
        }
        Recovery::NotRepaired { why, .. } => holds.push(Hold::NoResumePoint(why.clone())),
    }
    let gate = &given.gate;
    if gate.place.is_none() {
        holds.push(Hold::NoTarget(given.spec.target.to_string()));
    } else if !gate.verified {
        holds.push(Hold::NotVerified);
    }
    holds.extend(gate.elsewhere.clone());
    if let Some(why) = &gate.new_store {
        holds.push(Hold::NewStore(why.clone()));
    }
    if let Some(why) = &gate.other_writer {
        holds.push(Hold::OtherWriter(why.clone()));
    }
    // Its own open attempt writes there and has its place: these are asked once that has ended.
    if job.open.is_empty() {
        holds.extend(gate.lease.iter().cloned().map(Hold::Lease));
        if !gate.slot {
            holds.push(Hold::MaxParallel);
        }
    }
    if gate.stopping {
        holds.push(Hold::Stopping);
    }
    if holds.is_empty() { Ok(()) } else { Err(holds) }
}
