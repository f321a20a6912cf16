//! What an attempt was sent under, frozen with its intent: what the daemon file or the job file says
//! later changes nothing about a request that is out.

use super::job::Start;
use crate::model::checkpoint::Pin;
use crate::model::placement::PlacementNo;
use crate::model::resume_text;
use crate::model::spec::JobSpec;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The terms of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// How long its CreateJob can be accepted.
    pub acceptance: Duration,
    /// The running time limit in its body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Duration>,
    /// What its resume argument says.
    pub resume: ResumeTerms,
    /// The placement that it was sent as.
    #[serde(default, skip_serializing_if = "is_first")]
    pub placement: PlacementNo,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_first(placement: &PlacementNo) -> bool {
    *placement == 0
}

/// What the resume argument of an attempt says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResumeTerms {
    /// No argument, or one that leaves the choice to the trainer.
    TrainersChoice,
    /// It names one checkpoint: each run under the same id begins there.
    Pinned,
}

impl Terms {
    /// The terms of an attempt from `start` that is sent now. `spec` is the one of its placement.
    pub fn of(spec: &JobSpec, placement: PlacementNo, start: &Start, acceptance: Duration) -> Self {
        let resume = resume_terms(spec, start);
        Self { acceptance, time_limit: time_limit(spec), resume, placement }
    }

    /// The terms of an attempt that was found and not sent by what is on record.
    pub fn found(spec: &JobSpec, acceptance: Duration) -> Self {
        let resume = ResumeTerms::TrainersChoice;
        Self { acceptance, time_limit: time_limit(spec), resume, placement: 0 }
    }
}

/// The running time limit in a body, if it has one.
pub(super) fn time_limit(spec: &JobSpec) -> Option<Duration> {
    let minutes = spec.body.get("JobMaxRunningTimeMinutes")?.as_u64()?;
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}

/// What the resume argument of an attempt from `start` says.
pub(super) fn resume_terms(spec: &JobSpec, start: &Start) -> ResumeTerms {
    let (Start::From(point), Some(checkpoint)) = (start, &spec.checkpoint) else {
        return ResumeTerms::TrainersChoice;
    };
    let names_one = match &checkpoint.resume {
        Some(template) => resume_text::names_one(template),
        // A format's own argument may name it without a placeholder.
        None => point.pin == Pin::Argument || resume_text::names_one(&point.argument),
    };
    let is_read = checkpoint.resume_command.as_ref().is_none_or(|c| resume_text::has_resume(c));
    if is_read && names_one { ResumeTerms::Pinned } else { ResumeTerms::TrainersChoice }
}
