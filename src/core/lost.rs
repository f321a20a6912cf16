//! An attempt that the cloud does not know any more: somebody deleted it, or the cloud forgot it.
//!
//! What always holds: while it is missing it counts as running, for it may still be. It is given up
//! as *lost* only after it was in neither ListJobs nor GetJob for long, in passes by the same keys,
//! and either its checkpoint prefix has stood still for as long, or nothing will ever be submitted
//! after it, or a person says so. Whatever comes back later is a twin: see [`super::sighting`].
//!
//! What it must not do: believe one answer, or several attempts that vanish at one time. The
//! caller does not even pass those on: that is blindness.

use super::event::Word;
use super::job::{Attempt, AttemptState, EndedAttempt, Job, Missing, StillLook, StopWhy, Wanted};
use super::overlap;
use super::step::{Draft, Effect};
use super::verdict;
use super::watch::Watch;
use crate::model::checkpoint::{Findings, Look};
use crate::model::ids::{AttemptNo, CloudId};
use crate::model::time::{BootTime, WallTime, human};
use std::time::Duration;

/// For so long it is in neither list nor GetJob, and its checkpoint prefix stands still.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(15 * 60);
/// Usual intervals between its checkpoints for which the prefix has to stand still, where known.
const STILL_INTERVALS: u32 = 3;
/// Time to the next look where one says nothing.
const LOOK_AGAIN: Duration = Duration::from_secs(5 * 60);
/// Complete passes in a row that lack it, at least.
const LOST_PASSES: u32 = 3;

/// A complete pass did not show the attempt with this id, and GetJob says that there is none.
pub(super) fn on_missing(draft: &mut Draft<'_>, id: &CloudId, same_caller: bool) {
    let now = draft.given.now.boot;
    let Some(at) = draft.next.open.iter().position(|a| a.id() == Some(id)) else { return };
    let no = draft.next.open[at].no;
    let AttemptState::Live { missing, .. } = &mut draft.next.open[at].state else { return };
    match *missing {
        Missing::No => {
            *missing = Missing::Since { since: now, passes: 1 };
            let text = format!("neither ListJobs nor GetJob knows {id}: it counts as running");
            draft.say(Some(no), Word::Held, text);
        }
        // Other keys may not see it.
        Missing::Since { .. } | Missing::Long { .. } if !same_caller => {
            *missing = Missing::Since { since: now, passes: 1 };
        }
        Missing::Since { since, passes } => {
            let passes = passes.saturating_add(1);
            if passes < LOST_PASSES || now.since(since) < LOST_AFTER {
                *missing = Missing::Since { since, passes };
                return;
            }
            *missing = Missing::Long { since, look: StillLook::Due { at: now } };
            let text =
                format!("{id} is gone from DLC; if it does not run any more, `retry` goes on");
            draft.say(Some(no), Word::Alarm, text);
            lose_where_nothing_follows(draft, at);
        }
        Missing::Long { .. } => lose_where_nothing_follows(draft, at),
    }
}

/// Nobody waits for the end of an attempt after which nothing is submitted.
fn lose_where_nothing_follows(draft: &mut Draft<'_>, at: usize) {
    let nothing_follows = draft.next.wanted == Wanted::Cancel || draft.next.result.is_some();
    if nothing_follows || draft.next.open[at].stop == Some(StopWhy::Twin) {
        lose(draft, at, "nothing is submitted after it");
    }
}

/// Asks whether the prefix of a missing attempt stands still.
pub(super) fn ask_if_due(draft: &mut Draft<'_>) {
    let now = draft.given.now.boot;
    if draft.given.spec.checkpoint.is_none() || draft.given.gate.stopping {
        return;
    }
    for attempt in draft.next.open.iter_mut().filter(|a| a.spec == draft.next.spec) {
        if let Some(look) = still_look(attempt)
            && matches!(look, StillLook::Due { at } if *at <= now)
        {
            *look = StillLook::Asked;
            draft.effects.push(Effect::Watch(attempt.no));
        }
    }
}

/// When the next of these looks is due.
pub(super) fn due_at(job: &Job) -> Option<BootTime> {
    let due = job.open.iter().filter_map(|attempt| match attempt.state {
        AttemptState::Live {
            missing: Missing::Long { look: StillLook::Due { at }, .. }, ..
        } => Some(at),
        AttemptState::Live { .. } | AttemptState::Intended | AttemptState::Unknown { .. } => None,
    });
    due.min()
}

fn still_look(attempt: &mut Attempt) -> Option<&mut StillLook> {
    match &mut attempt.state {
        AttemptState::Live { missing: Missing::Long { look, .. }, .. } => Some(look),
        AttemptState::Live { .. } | AttemptState::Intended | AttemptState::Unknown { .. } => None,
    }
}

/// Takes a look at attempt `no`, if it was asked for here.
pub(super) fn takes_look(draft: &mut Draft<'_>, no: AttemptNo, look: &Look) -> bool {
    let (now, wall) = (draft.given.now.boot, draft.given.now.wall);
    let Some(at) = draft.next.open.iter().position(|attempt| attempt.no == no) else {
        return false;
    };
    let attempt = &mut draft.next.open[at];
    let rhythm = attempt.watch().and_then(Watch::rhythm);
    let Some(asked) = still_look(attempt).filter(|look| **look == StillLook::Asked) else {
        return false;
    };
    let still_for = rhythm.map_or(LOST_AFTER, |r| LOST_AFTER.max(r.every * STILL_INTERVALS));
    let written = match look {
        Look::Done(findings) => newest_object(findings, wall),
        Look::CouldNotLook { .. } => None,
    };
    match written.map(|written| wall.since(written)) {
        Some(age) if age >= still_for => {
            let why = format!("its newest checkpoint was written {} ago", human(age));
            lose(draft, at, &why);
        }
        Some(age) => *asked = StillLook::Due { at: now.plus(still_for.saturating_sub(age)) },
        // Where nothing was ever written nothing can be seen to stand still.
        None => *asked = StillLook::Due { at: now.plus(LOOK_AGAIN) },
    }
    true
}

fn newest_object(findings: &Findings, now: WallTime) -> Option<WallTime> {
    let uploading = findings.unfinished.as_ref().map(|one| now.minus(one.youngest_age));
    findings.candidates.iter().filter_map(|one| one.newest_object).chain(uploading).max()
}

/// A person says `retry`: what has been missing for long is lost.
pub(super) fn lose_all_missing(draft: &mut Draft<'_>) {
    while let Some(at) = draft.next.open.iter().position(is_long_missing) {
        lose(draft, at, "a person said so");
    }
}

fn is_long_missing(attempt: &Attempt) -> bool {
    matches!(attempt.state, AttemptState::Live { missing: Missing::Long { .. }, .. })
}

/// Takes an attempt out of the open ones without having seen its end.
pub(super) fn lose(draft: &mut Draft<'_>, at: usize, why: &str) {
    let attempt = draft.next.open.remove(at);
    let (no, ran) = (attempt.no, ran_at_least(draft, &attempt));
    let id = attempt.id().cloned();
    let text = format!("in neither ListJobs nor GetJob for {}; {why}", human(LOST_AFTER));
    draft.say(Some(no), Word::Lost, text.clone());
    draft.say(Some(no), Word::Alarm, format!("attempt {no} is lost: nobody saw how it ended"));
    let twin = attempt.stop == Some(StopWhy::Twin);
    let began = match &attempt.state {
        AttemptState::Live { running, .. } => *running,
        AttemptState::Intended | AttemptState::Unknown { .. } => None,
    };
    let verdict = verdict::lost(&text, ran);
    let ended = EndedAttempt { attempt, id, ended: draft.given.now.wall, ran, verdict };
    overlap::note_end(draft, &ended, began);
    draft.next.tally.count(ended.verdict.cause, 1);
    draft.next.progress.ran += ran;
    draft.next.progress.ran_since += ran;
    draft.ended.push(ended.clone());
    draft.next.look_next(draft.given.now.boot);
    if !twin && draft.next.result.is_none() {
        draft.next.unjudged = Some(ended);
    }
}

/// How long it was seen to run.
fn ran_at_least(draft: &Draft<'_>, attempt: &Attempt) -> Duration {
    let now = draft.given.now;
    match &attempt.state {
        AttemptState::Live {
            running: Some(running), missing: Missing::Long { since, .. }, ..
        } => now.wall.minus(now.boot.since(*since)).since(*running),
        AttemptState::Live { .. } | AttemptState::Intended | AttemptState::Unknown { .. } => {
            Duration::ZERO
        }
    }
}
