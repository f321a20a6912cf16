//! Checkpoints that attempts died on: whole by every test, and yet the trainer may not live on them.
//!
//! An attempt *dies early* on its checkpoint if it ended by itself or unexplained, without a new
//! whole checkpoint, sooner than the next one was due. [`DEATHS`] such ends make the checkpoint
//! *suspect*: the next attempt takes the whole one before it, at most [`STEPS_BACK_LIMIT`] times. Two
//! different checkpoints that attempts died on alike clear each other: then the job is at fault, and
//! the usual counting of ends without progress decides.
//!
//! What always holds: a release, a stop and an attempt whose command never ran say nothing about a
//! checkpoint; one that was written anew is another one; what a person asked for by name is never
//! suspect. What it must not do: choose, wait, or end a job.

use super::event::Word;
use super::job::{EndedAttempt, Start};
use super::step::Draft;
use super::verdict::{Cause, EndLook, Told};
use crate::model::checkpoint::{Findings, Position, ResumePoint, Unchanged, Wholeness};
use crate::model::ids::AttemptNo;
use crate::model::time::{WallTime, human};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Early ends on one checkpoint that make it suspect.
const DEATHS: usize = 2;
/// Checkpoints of one job that are suspect at one time.
const STEPS_BACK_LIMIT: usize = 2;
/// An end so soon is early however often checkpoints are written: loading one takes time.
const EARLY_IN_ANY_CASE: Duration = Duration::from_secs(10 * 60);
/// An end after so long is not early, however seldom checkpoints are written.
const NEVER_EARLY: Duration = Duration::from_secs(30 * 60);
/// Bytes of a path that a record keeps: a checkpoint with a longer one is never suspect.
const PATH_LIMIT_BYTES: usize = 256;

/// What is held against checkpoints since the last new whole one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Suspicion {
    /// They may be at fault.
    Open {
        /// Suspect ones, in the order of marking.
        marked: Vec<Suspect>,
        /// The one on which the last attempt died early, not yet often enough.
        counted: Option<Suspect>,
    },
    /// The job is at fault: nothing is held against them until there is a new whole one.
    Dropped,
}

/// A checkpoint on which attempts died early.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// Its path, relative to the location.
    pub path: String,
    /// Its step, where known.
    pub step: Option<u64>,
    /// Its place in the format's order.
    pub position: Position,
    /// Last-modified time of its newest object at the time.
    pub written: Option<WallTime>,
    /// The attempts that died on it.
    pub attempts: Vec<AttemptNo>,
    /// How the last of them ended.
    pub look: EndLook,
}

impl Suspect {
    fn name(&self) -> String {
        self.step.map_or_else(|| self.path.clone(), |step| format!("step {step}"))
    }
}

impl Default for Suspicion {
    fn default() -> Self {
        Self::Open { marked: Vec::new(), counted: None }
    }
}

impl Suspicion {
    /// The suspect ones.
    pub fn marked(&self) -> &[Suspect] {
        match self {
            Self::Open { marked, .. } => marked,
            Self::Dropped => &[],
        }
    }

    /// Whether nothing is held against any.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The suspect ones as a look passes over them.
    pub(super) fn passed_over(&self) -> Vec<Unchanged> {
        let unchanged =
            |suspect: &Suspect| Unchanged { path: suspect.path.clone(), written: suspect.written };
        self.marked().iter().map(unchanged).collect()
    }

    /// Takes an end back that was none of the checkpoint's doing.
    pub(super) fn forgive(&mut self, no: AttemptNo) {
        let Self::Open { marked, counted } = self else { return };
        let Some(at) = marked.iter().position(|suspect| suspect.attempts.contains(&no)) else {
            if let Some(suspect) = counted {
                suspect.attempts.retain(|other| *other != no);
            }
            return;
        };
        let mut suspect = marked.remove(at);
        suspect.attempts.retain(|other| *other != no);
        *counted = Some(suspect);
    }
}

/// A new whole checkpoint: nothing that stands before it in the order is suspect any more.
pub(super) fn clear_before(draft: &mut Draft<'_>, newest: &ResumePoint) {
    let kept: Vec<Suspect> = match &draft.next.progress.suspicion {
        Suspicion::Open { marked, .. } => {
            let later = marked.iter().filter(|s| s.position > newest.position);
            later.cloned().collect()
        }
        Suspicion::Dropped => Vec::new(),
    };
    draft.next.progress.suspicion = Suspicion::Open { marked: kept, counted: None };
}

/// Nothing is held against any checkpoint until there is a new whole one.
pub(super) fn drop_all(draft: &mut Draft<'_>, why: &str) {
    draft.next.progress.suspicion = Suspicion::Dropped;
    let none: [&str; 0] = [];
    draft.say_with(None, Word::Checkpoint, why, serde_json::json!({ "suspects": none }));
}

/// Takes an end without progress.
pub(super) fn note_end(draft: &mut Draft<'_>, ended: &EndedAttempt, findings: &Findings) {
    let Start::From(point) = &ended.attempt.start else { return };
    let look = &ended.verdict.look;
    let is_still_chosen = findings.chosen.as_ref().is_some_and(|c| c.path == point.path);
    let is_asked_for = draft.next.progress.asked.is_some_and(|a| Some(a.step) == point.step);
    let Suspicion::Open { marked, counted } = &mut draft.next.progress.suspicion else { return };
    if !look.ran || !is_still_chosen || is_asked_for || point.path.len() > PATH_LIMIT_BYTES {
        return;
    }
    if look.duration >= early_limit(findings) {
        // It loads: whatever ends the attempts, it is not this.
        *counted = None;
        return;
    }
    if !is_by_itself(ended.verdict.cause) || look.told == Told::FromOutside {
        return;
    }
    let mut suspect = match counted.take() {
        Some(suspect) if suspect.path == point.path => suspect,
        Some(_) | None => Suspect {
            path: point.path.clone(),
            step: point.step,
            position: point.position,
            written: written(findings, &point.path),
            attempts: Vec::new(),
            look: look.clone(),
        },
    };
    suspect.attempts.push(ended.attempt.no);
    suspect.look = look.clone();
    if let Some(other) = marked.iter().find(|other| other.look.alike(look)) {
        let why = format!(
            "attempts died alike on {} and on {}: the job is at fault and not its checkpoints; it \
             goes on from the newest whole one",
            other.name(),
            suspect.name()
        );
        return drop_all(draft, &why);
    }
    if suspect.attempts.len() < DEATHS {
        *counted = Some(suspect);
    } else if marked.len() < STEPS_BACK_LIMIT {
        let text = words(&suspect, look.duration);
        marked.push(suspect);
        let data = shown(marked);
        draft.say_with(None, Word::Checkpoint, text, data);
    }
}

fn words(suspect: &Suspect, ran: Duration) -> String {
    let attempts: Vec<String> = suspect.attempts.iter().map(ToString::to_string).collect();
    let from = suspect.step.map_or_else(|| "STEP".to_owned(), |step| step.to_string());
    format!(
        "{} is suspect: attempts {} began at it and died, the last one after {}, without a new \
         checkpoint; the next one takes the whole one before it (`retry --from {from}` goes back)",
        suspect.name(),
        attempts.join(" and "),
        human(ran),
    )
}

fn shown(marked: &[Suspect]) -> serde_json::Value {
    let one = |suspect: &Suspect| {
        serde_json::json!({
            "path": suspect.path, "step": suspect.step, "attempts": suspect.attempts,
        })
    };
    serde_json::json!({ "suspects": marked.iter().map(one).collect::<Vec<_>>() })
}

/// Whether an end may be the doing of the checkpoint.
fn is_by_itself(cause: Cause) -> bool {
    match cause {
        // A success comes here only where it is not believed.
        Cause::UserError | Cause::Succeeded | Cause::EndedEarly | Cause::Unexplained => true,
        Cause::Released
        | Cause::NeverStarted
        | Cause::StoppedByUs
        | Cause::StoppedByPerson
        | Cause::StoppedUnexplained
        | Cause::TimeLimit
        | Cause::NeverCreated
        | Cause::Lost
        | Cause::Fenced => false,
    }
}

/// Running time from which an end is not early: the usual time between two checkpoints, where it is
/// known, within bounds.
fn early_limit(findings: &Findings) -> Duration {
    let usual = usual_interval(findings).unwrap_or(NEVER_EARLY);
    usual.clamp(EARLY_IN_ANY_CASE, NEVER_EARLY)
}

/// The shortest time between two whole checkpoints: waits for a machine only make it longer.
fn usual_interval(findings: &Findings) -> Option<Duration> {
    let mut times: Vec<WallTime> = findings
        .candidates
        .iter()
        .filter(|candidate| match candidate.wholeness {
            Wholeness::Whole | Wholeness::NotChecked => true,
            Wholeness::Torn
            | Wholeness::WeightsOnly
            | Wholeness::Unreadable
            | Wholeness::Unknown => false,
        })
        .filter_map(|candidate| candidate.newest_object)
        .collect();
    times.sort_unstable();
    let gaps = times.windows(2).map(|pair| pair[1].since(pair[0]));
    gaps.filter(|gap| !gap.is_zero()).min()
}

/// When a checkpoint's newest object was written, as a look saw it.
fn written(findings: &Findings, path: &str) -> Option<WallTime> {
    findings.candidates.iter().find(|candidate| candidate.path == path)?.newest_object
}
