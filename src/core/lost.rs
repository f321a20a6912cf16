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
use super::job::{
    Attempt, AttemptState, EndedAttempt, Job, Missing, Still, StillLook, StopWhy, Wanted,
};
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
            *missing = Missing::Long { since, look: StillLook::Due { at: now, seen: None } };
            let text =
                format!("{id} is gone from DLC; if it does not run any more, `retry` goes on");
            draft.say(Some(no), Word::Alarm, text);
            lose_where_nothing_follows(draft, at);
        }
        Missing::Long { .. } => lose_where_nothing_follows(draft, at),
    }
}

/// Nobody waits for the end of an attempt after which nothing is submitted. After a twin something
/// is, once the other one ends.
fn lose_where_nothing_follows(draft: &mut Draft<'_>, at: usize) {
    if draft.next.wanted == Wanted::Cancel || draft.next.result.is_some() {
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
            && let StillLook::Due { at, seen } = *look
            && at <= now
        {
            *look = StillLook::Asked { seen };
            draft.effects.push(Effect::Watch(attempt.no));
        }
    }
}

/// When the next of these looks is due.
pub(super) fn due_at(job: &Job) -> Option<BootTime> {
    let due = job.open.iter().filter_map(|attempt| match attempt.state {
        AttemptState::Live {
            missing: Missing::Long { look: StillLook::Due { at, .. }, .. },
            ..
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

/// Takes a look at attempt `no`, if it was asked for here. Two looks with nothing newer between them
/// show that it stands still: the times in a bucket may be by another clock.
pub(super) fn takes_look(draft: &mut Draft<'_>, no: AttemptNo, look: &Look) -> bool {
    let (now, wall) = (draft.given.now.boot, draft.given.now.wall);
    let still_for = still_for(draft, no);
    let Some(at) = draft.next.open.iter().position(|attempt| attempt.no == no) else {
        return false;
    };
    let Some(look_state) = still_look(&mut draft.next.open[at]) else { return false };
    let StillLook::Asked { seen } = *look_state else { return false };
    let newest = match look {
        Look::Done(findings) => newest_object(findings, wall),
        Look::CouldNotLook { .. } => None,
    };
    let Some(newest) = newest else {
        // Where nothing was ever written nothing can be seen to stand still.
        *look_state = StillLook::Due { at: now.plus(LOOK_AGAIN), seen: None };
        return true;
    };
    let since = seen.filter(|seen| seen.newest == newest).map_or(now, |seen| seen.since);
    let (seen_for, age) = (now.since(since), wall.since(newest));
    if seen_for >= LOST_AFTER && age >= still_for {
        let why = format!("its newest checkpoint was written {} ago", human(age));
        lose(draft, at, &why);
        return true;
    }
    let left = LOST_AFTER.saturating_sub(seen_for).max(still_for.saturating_sub(age));
    let seen = Some(Still { newest, since });
    *look_state = StillLook::Due { at: now.plus(left), seen };
    true
}

/// How old the newest object of a prefix is that stands still: older than the trainer's rhythm, or
/// than the time in which a checkpoint is to be expected at all.
fn still_for(draft: &Draft<'_>, no: AttemptNo) -> Duration {
    let attempt = draft.next.open.iter().find(|attempt| attempt.no == no);
    let rhythm = attempt.and_then(Attempt::watch).and_then(Watch::rhythm);
    let expected = draft.given.spec.checkpoint.as_ref().map(|c| c.expect_within);
    let usual = rhythm.map(|rhythm| rhythm.every * STILL_INTERVALS).or(expected);
    usual.unwrap_or_default().max(LOST_AFTER)
}

/// When the newest object was written; `None` where something may be written unseen.
fn newest_object(findings: &Findings, now: WallTime) -> Option<WallTime> {
    if findings.closed().next().is_some() {
        return None;
    }
    let uploading = findings.unfinished.as_ref().map(|one| now.minus(one.youngest_age));
    findings.candidates.iter().filter_map(|one| one.newest_object).chain(uploading).max()
}

/// A person says `retry`: what has been missing for long is lost.
pub(super) fn lose_all_missing(draft: &mut Draft<'_>) {
    while let Some(at) = draft.next.open.iter().position(is_long_missing) {
        lose(draft, at, "a person said so");
    }
}

pub(super) fn is_long_missing(attempt: &Attempt) -> bool {
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
    draft.next.progress.zero_asked = false;
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
