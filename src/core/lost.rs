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
use super::job::{Attempt, AttemptState, EndedAttempt, Missing, Recovery, StopWhy, Wanted};
use super::step::Draft;
use super::verdict;
use crate::model::ids::CloudId;
use crate::model::time::human;
use std::time::Duration;

/// For so long it is in neither list nor GetJob, and its checkpoint prefix stands still.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(15 * 60);
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
            *missing = Missing::Long { since };
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
    let verdict = verdict::lost(&text, ran);
    let ended = EndedAttempt { attempt, id, ended: draft.given.now.wall, ran, verdict };
    draft.next.tally.count(ended.verdict.cause, 1);
    draft.next.progress.ran += ran;
    draft.next.progress.ran_since += ran;
    draft.ended.push(ended.clone());
    draft.next.recovery = Recovery::look();
    if !twin && draft.next.result.is_none() {
        draft.next.unjudged = Some(ended);
    }
}

/// How long it was seen to run.
fn ran_at_least(draft: &Draft<'_>, attempt: &Attempt) -> Duration {
    let now = draft.given.now;
    match &attempt.state {
        AttemptState::Live {
            running: Some(running),
            missing: Missing::Since { since, .. },
            ..
        } => now.wall.minus(now.boot.since(*since)).since(*running),
        AttemptState::Live { .. } | AttemptState::Intended | AttemptState::Unknown { .. } => {
            Duration::ZERO
        }
    }
}
