//! The phase that a person sees: a pure function of the record and of what holds it back.

use super::job::{AttemptState, Job, OutcomeKind, Recovery, Wanted};
use super::submit::Hold;
use super::verdict::Cause;
use crate::model::cloud::Status;
use crate::model::time::Now;
use serde::{Deserialize, Serialize};

/// Phases, one closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "docs/words.md explains each word to people")]
pub enum Phase {
    Pending,
    Submitting,
    Waiting,
    Starting,
    Running,
    Stalled,
    Recovering,
    Backoff,
    Stopping,
    Paused,
    Blocked,
    Succeeded,
    Failed,
    Cancelled,
    Lost,
}

impl Phase {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Submitting => "SUBMITTING",
            Self::Waiting => "WAITING",
            Self::Starting => "STARTING",
            Self::Running => "RUNNING",
            Self::Stalled => "STALLED",
            Self::Recovering => "RECOVERING",
            Self::Backoff => "BACKOFF",
            Self::Stopping => "STOPPING",
            Self::Paused => "PAUSED",
            Self::Blocked => "BLOCKED",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Lost => "LOST",
        }
    }
}

/// The phase of a job; the first that fits. `holds` are [`super::submit::may_submit`]'s.
pub fn phase(job: &Job, holds: &[Hold], now: Now) -> Phase {
    if let (Some(result), true) = (&job.result, job.open.is_empty()) {
        return match result.kind {
            OutcomeKind::Succeeded => Phase::Succeeded,
            OutcomeKind::Failed => Phase::Failed,
            OutcomeKind::Cancelled => Phase::Cancelled,
        };
    }
    if job.wanted == Wanted::Cancel || job.open.iter().any(|a| a.stop.is_some()) {
        return Phase::Stopping;
    }
    if let Some(attempt) = job.open.last() {
        return match &attempt.state {
            AttemptState::Intended | AttemptState::Unknown { .. } => Phase::Submitting,
            AttemptState::Live { status: Status::Running, watch, hang, .. }
                if watch.is_stalled() || hang.is_told() =>
            {
                Phase::Stalled
            }
            AttemptState::Live { status, running, .. } => live(status, running.is_some()),
        };
    }
    if holds.iter().any(Hold::needs_person) {
        return Phase::Blocked;
    }
    if job.wanted == Wanted::Hold {
        return Phase::Paused;
    }
    if job.unjudged.as_ref().is_some_and(|ended| ended.verdict.cause == Cause::Lost) {
        return Phase::Lost;
    }
    match &job.recovery {
        Recovery::Waiting { until, .. } | Recovery::NotRepaired { until, .. }
            if *until > now.boot =>
        {
            Phase::Backoff
        }
        Recovery::Look { .. } | Recovery::Settling { .. } | Recovery::Repairing { .. }
            if job.created > 0 =>
        {
            Phase::Recovering
        }
        Recovery::Waiting { .. }
        | Recovery::NotRepaired { .. }
        | Recovery::Repairing { .. }
        | Recovery::Look { .. }
        | Recovery::Settling { .. }
        | Recovery::Ready { .. } => Phase::Pending,
    }
}

fn live(status: &Status, ran: bool) -> Phase {
    match status {
        Status::Creating | Status::Queuing | Status::Bidding => Phase::Waiting,
        Status::EnvPreparing | Status::SanityChecking | Status::Restarting => Phase::Starting,
        Status::Running => Phase::Running,
        Status::Stopping => Phase::Stopping,
        Status::SucceededReserving | Status::Succeeded => Phase::Succeeded,
        Status::FailedReserving | Status::Failed | Status::Stopped => Phase::Failed,
        // A word nobody knows: what was last known still holds.
        Status::Other(_) => {
            if ran {
                Phase::Running
            } else {
                Phase::Waiting
            }
        }
    }
}
