//! After a restart in place: an attempt whose resume argument names one checkpoint begins there
//! again, whatever it has saved since. Where a newer whole one exists it is stopped, and submitted
//! again from the newest once it is seen ended.
//!
//! What always holds: only a complete look that shows a whole checkpoint newer than the resume point
//! stops anything; a person's pause or cancel, a result and a submission that would be held come
//! first. Each restart leads to a bounded number of looks and at most one stop.
//!
//! What it must not do: submit. The stopped attempt ends as any other does.

use super::event::Word;
use super::job::{Attempt, AttemptState, Job, Recheck, Recovery, Start, StopWhy, Wanted, kept};
use super::pass_over::cannot_load;
use super::retry;
use super::step::{Draft, Effect};
use super::stops;
use super::submit::may_submit;
use crate::model::checkpoint::{Findings, Look, ResumePoint};
use crate::model::cloud::Status;
use crate::model::time::BootTime;
use std::time::Duration;

/// Looks that one restart leads to, until the attempt is left to itself.
const LOOKS_LIMIT: u32 = 20;

/// Asks for the look that is due after a restart in place, if nothing else comes first.
pub(super) fn ask_if_due(draft: &mut Draft<'_>) {
    let now = draft.given.now.boot;
    if !may_ask(&draft.next) || draft.given.gate.stopping {
        return;
    }
    let in_question = draft.given.spec.checkpoint.is_some() && is_in_question(&draft.next);
    let Some((_, recheck)) = restarted(&mut draft.next) else { return };
    let Recheck::Due { tries, at } = *recheck else { return };
    if !in_question {
        *recheck = Recheck::NotDue;
    } else if at <= now {
        *recheck = Recheck::Asked { tries };
        draft.effects.push(Effect::Look);
    }
}

/// When the next look after a restart in place is due.
pub(super) fn due_at(job: &Job) -> Option<BootTime> {
    let [Attempt { state: AttemptState::Live { recheck: Recheck::Due { at, .. }, .. }, .. }] =
        &job.open[..]
    else {
        return None;
    };
    may_ask(job).then_some(*at)
}

/// Takes the answer of a look while an attempt is open.
pub(super) fn on_looked(draft: &mut Draft<'_>, look: &Look) {
    let now = draft.given.now.boot;
    let comes_first = !may_ask(&draft.next) || draft.given.gate.stopping;
    let in_question = is_in_question(&draft.next);
    let Some((no, recheck)) = restarted(&mut draft.next) else {
        return ask_again_when_alone(&mut draft.next, now);
    };
    let Recheck::Asked { tries } = *recheck else { return };
    *recheck = Recheck::NotDue;
    if !in_question {
        return;
    }
    let again = |after: Duration| Recheck::Due { tries: tries + 1, at: now.plus(after) };
    let next = match look {
        // A pause may end.
        _ if comes_first => Recheck::Due { tries, at: now },
        Look::CouldNotLook { why, .. } => {
            if tries.is_power_of_two() {
                let why = kept(why);
                let text = format!("could not look for a checkpoint newer than its own: {why}");
                draft.say(Some(no), Word::Held, text);
            }
            again(retry::after_fault(tries + 1))
        }
        Look::Done(findings) => match newer(draft, findings) {
            Newer::None => return,
            Newer::PerhapsSoon(after) => again(after),
            Newer::Whole(point) if resubmission_is_held(draft, &Start::From(point.clone())) => {
                again(retry::after_fault(tries + 1))
            }
            Newer::Whole(point) => return stop(draft, &point),
        },
    };
    if tries + 1 >= LOOKS_LIMIT {
        let text = format!("after {LOOKS_LIMIT} looks it is left to go on from its own checkpoint");
        draft.say(Some(no), Word::Held, text);
    } else if let Some((_, recheck)) = restarted(&mut draft.next) {
        *recheck = next;
    }
}

/// Beside a twin nothing is decided, and the answer may be old by the time that it has ended.
fn ask_again_when_alone(job: &mut Job, now: BootTime) {
    for attempt in &mut job.open {
        if let AttemptState::Live { recheck, .. } = &mut attempt.state
            && let Recheck::Asked { tries } = *recheck
        {
            *recheck = Recheck::Due { tries, at: now };
        }
    }
}

/// Whether a person or a result leaves room for a look.
fn may_ask(job: &Job) -> bool {
    job.wanted == Wanted::Run && job.result.is_none() && job.block.is_none()
}

/// The one open attempt, if it is live, and its look after a restart.
fn restarted(job: &mut Job) -> Option<(u32, &mut Recheck)> {
    let [Attempt { no, state: AttemptState::Live { recheck, .. }, .. }] = &mut job.open[..] else {
        return None;
    };
    Some((*no, recheck))
}

/// Whether the one open attempt may still be stopped for a newer checkpoint: it is not being
/// stopped, its result is not decided, and checkpoints are looked for where it writes them.
fn is_in_question(job: &Job) -> bool {
    let [attempt] = &job.open[..] else { return false };
    let AttemptState::Live { status, .. } = &attempt.state else { return false };
    let is_active = match status {
        Status::Creating
        | Status::Queuing
        | Status::Bidding
        | Status::EnvPreparing
        | Status::SanityChecking
        | Status::Running
        | Status::Restarting
        | Status::Other(_) => true,
        Status::Stopping
        | Status::SucceededReserving
        | Status::FailedReserving
        | Status::Succeeded
        | Status::Failed
        | Status::Stopped => false,
    };
    is_active && attempt.stop.is_none() && attempt.is_pinned() && attempt.spec == job.spec
}

/// What a look says of the resume point of the open attempt.
enum Newer {
    /// Nothing newer that its earlier runs saved.
    None,
    /// A newer one may still be uploading: look again after this time.
    PerhapsSoon(Duration),
    /// This one is newer and whole.
    Whole(ResumePoint),
}

fn newer(draft: &Draft<'_>, findings: &Findings) -> Newer {
    let ([attempt], Some(checkpoint)) = (&draft.next.open[..], &draft.given.spec.checkpoint) else {
        return Newer::None;
    };
    if !findings.ambiguous.is_empty() {
        return Newer::None;
    }
    let own = attempt.start.position();
    if let Some(chosen) = findings.chosen.as_ref().filter(|c| Some(c.position) > own) {
        let written = findings
            .candidates
            .iter()
            .find(|candidate| candidate.path == chosen.path)
            .and_then(|candidate| candidate.newest_object);
        let run = match &attempt.state {
            AttemptState::Live { runs, .. } => runs.goes_on_since(),
            AttemptState::Intended | AttemptState::Unknown { .. } => None,
        };
        // What the present run wrote itself is not lost to it.
        let is_its_own = written.zip(run).is_some_and(|(written, began)| written >= began);
        let fresh_since = draft.next.progress.fresh_since;
        let is_foreign = written.zip(fresh_since).is_some_and(|(written, since)| written < since);
        let is_loadable = cannot_load(draft, checkpoint, findings, chosen).is_none();
        return if is_its_own || is_foreign || !is_loadable {
            Newer::None
        } else {
            Newer::Whole(chosen.clone())
        };
    }
    match &findings.unfinished {
        Some(unfinished) if unfinished.youngest_age < checkpoint.settle => {
            Newer::PerhapsSoon(checkpoint.settle_interval)
        }
        Some(_) | None => Newer::None,
    }
}

/// Whether the gate would hold the next attempt even with nothing open: what runs is then better
/// than nothing.
pub(super) fn resubmission_is_held(draft: &Draft<'_>, start: &Start) -> bool {
    let mut after = draft.next.clone();
    after.open.clear();
    after.recovery = Recovery::Ready { start: start.clone(), looked: draft.given.now.boot };
    may_submit(&after, draft.given).is_err()
}

fn stop(draft: &mut Draft<'_>, point: &ResumePoint) {
    let [attempt] = &mut draft.next.open[..] else { return };
    attempt.stop = Some(StopWhy::Outdated);
    let no = attempt.no;
    let from = match &attempt.start {
        Start::Fresh => None,
        Start::From(own) => Some((own.path.clone(), own.step)),
    };
    let name = |path: &str, step: Option<u64>| step.map_or(kept(path), |s| format!("step {s}"));
    let own = from.as_ref().map_or_else(|| "zero".to_owned(), |(path, step)| name(path, *step));
    let newest = name(&point.path, point.step);
    draft.say_with(
        Some(no),
        Word::StopAsked,
        format!(
            "stop: restarted in place it begins at {own} again, and {newest} is whole; once it is \
             seen ended it is submitted from there"
        ),
        serde_json::json!({
            "why": "outdated",
            "from": from.map(|(path, step)| serde_json::json!({ "path": path, "step": step })),
            "newest": { "path": point.path, "step": point.step },
        }),
    );
    stops::ask(draft);
}
