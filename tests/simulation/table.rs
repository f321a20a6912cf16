//! Which input met a job in which situation, and how often.

use spotkeeper::core::job::{AttemptState, Job, Recovery, Wanted};
use spotkeeper::core::step::{Act, Input};
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::cloud::{SendOutcome, Status};
use std::fmt::Write as _;

pub(crate) const SITUATIONS: [&str; 13] = [
    "over",
    "cancelling",
    "two open",
    "stop asked",
    "unknown",
    "intended",
    "live",
    "blocked",
    "paused",
    "looking",
    "settling",
    "waiting",
    "ready",
];
pub(crate) const INPUTS: [&str; 22] = [
    "started",
    "tick",
    "spec",
    "file",
    "cancel",
    "pause",
    "resume",
    "retry",
    "accepted",
    "refused",
    "not sent",
    "no answer",
    "seen",
    "odd word",
    "seen end",
    "copy",
    "pass",
    "gap",
    "looked",
    "blind",
    "logs",
    "watched",
];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    hits: [[u64; 22]; 13],
}

fn situation(job: &Job) -> usize {
    if job.is_over() {
        return 0;
    }
    if job.wanted == Wanted::Cancel {
        return 1;
    }
    if let [first, rest @ ..] = &job.open[..] {
        return match first.state {
            _ if !rest.is_empty() => 2,
            _ if first.stop.is_some() => 3,
            AttemptState::Unknown { .. } => 4,
            AttemptState::Intended => 5,
            AttemptState::Live { .. } => 6,
        };
    }
    if job.block.is_some() {
        return 7;
    }
    if job.wanted == Wanted::Hold {
        return 8;
    }
    match job.recovery {
        Recovery::Look { .. } => 9,
        Recovery::Settling { .. } => 10,
        Recovery::Waiting { .. } | Recovery::Repairing { .. } | Recovery::NotRepaired { .. } => 11,
        Recovery::Ready { .. } => 12,
    }
}

fn kind(input: &Input) -> usize {
    match input {
        Input::Started => 0,
        Input::Tick => 1,
        Input::Spec(_) => 2,
        Input::File(_) => 3,
        Input::Operator(Act::Cancel) => 4,
        Input::Operator(Act::Pause) => 5,
        Input::Operator(Act::Resume) => 6,
        Input::Operator(Act::Retry | Act::RetryFrom(_)) => 7,
        Input::Sent { outcome: SendOutcome::Accepted { .. }, .. } => 8,
        Input::Sent { outcome: SendOutcome::Refused { .. }, .. } => 9,
        Input::Sent { outcome: SendOutcome::NotSent { .. }, .. } => 10,
        Input::Sent { outcome: SendOutcome::Unknown { .. }, .. } => 11,
        Input::Seen { cloud, .. } if cloud.display_name.ends_with("_copy") => 15,
        Input::Seen { cloud, .. } if matches!(cloud.status, Status::Other(_)) => 13,
        Input::Seen { cloud, .. } if cloud.status.is_end() => 14,
        Input::Seen { .. } => 12,
        Input::Swept(pass) if pass.complete => 16,
        Input::Swept(_) => 17,
        Input::Looked(Look::Done(_)) => 18,
        Input::Looked(Look::CouldNotLook { .. }) => 19,
        Input::Logs { .. } => 20,
        Input::Watched { .. } => 21,
        // None of these is simulated.
        Input::Missing { .. }
        | Input::TrackerWritten(_)
        | Input::PodsLooked { .. }
        | Input::Adopt { .. }
        | Input::NotAdopted { .. } => 1,
    }
}

impl Table {
    pub(crate) fn note(&mut self, job: &Job, input: &Input) {
        self.hits[situation(job)][kind(input)] += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (row, more) in self.hits.iter_mut().zip(&other.hits) {
            for (cell, more) in row.iter_mut().zip(more) {
                *cell += more;
            }
        }
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{:>10}", "");
        for situation in SITUATIONS {
            let _ = write!(text, " {situation:>10}");
        }
        for (at, input) in INPUTS.iter().enumerate() {
            let _ = write!(text, "\n{input:>10}");
            for row in &self.hits {
                let _ = write!(text, " {:>10}", row[at]);
            }
        }
        text
    }
}
