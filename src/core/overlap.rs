//! Times in which two attempts of one job ran: what was written then may be of both.
//!
//! What always holds: a window covers, by the server's clock, all of the time that both ran as far as
//! the cloud's answers tell it; windows are merged and never forgotten. What it must not do: judge an
//! attempt, or stop one.

use super::event::Word;
use super::job::{Attempt, AttemptState, EndedAttempt};
use super::step::{Draft, EndedRef};
use super::verdict::Cause;
use crate::model::ids::AttemptNo;
use crate::model::time::{WallTime, human};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// By how much the clocks of cloud and bucket, and the end of an upload, may lie apart.
const MARGIN: Duration = Duration::from_secs(120);
/// By how much this machine's calendar may lag behind the servers'. What they say of a later time
/// than this is made up.
const CALENDAR_LAG: Duration = Duration::from_secs(24 * 3600);
/// Windows of one job; the oldest two become one beyond it.
const WINDOWS_LIMIT: usize = 8;

/// A time in which two attempts ran, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overlap {
    /// When the second one began.
    pub from: WallTime,
    /// When the first of them ended.
    pub until: WallTime,
}

impl Overlap {
    /// The times of objects that may be of both.
    pub fn with_margin(self) -> (WallTime, WallTime) {
        (self.from.minus(MARGIN), self.until.plus(MARGIN))
    }

    fn of(a: &Span, b: &Span) -> Option<Self> {
        let (from, until) = (a.from.max(b.from), a.until.min(b.until));
        (a.no != b.no && from < until).then_some(Self { from, until })
    }

    fn touches(&self, other: &Self) -> bool {
        self.from <= other.until && other.from <= self.until
    }

    fn holds(&self, other: &Self) -> bool {
        self.from <= other.from && other.until <= self.until
    }

    fn joined(self, other: Self) -> Self {
        Self { from: self.from.min(other.from), until: self.until.max(other.until) }
    }
}

/// When an attempt ran, from its first beginning to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// The attempt.
    pub no: AttemptNo,
    /// Its beginning.
    pub from: WallTime,
    /// Its end.
    pub until: WallTime,
}

/// Takes an end. `began` is when its command first ran, as far as that is known.
pub(super) fn note_end(draft: &mut Draft<'_>, ended: &EndedAttempt, began: Option<WallTime>) {
    // One that the fence turned away never ran its command.
    if ended.verdict.cause == Cause::Fenced {
        return;
    }
    let Some(from) = began.map(|began| beginning(&ended.attempt, began)) else { return };
    let until = credible(draft, ended.ended);
    let span = Span { no: ended.attempt.no, from, until };
    note(draft, span);
    if draft.next.last_run.is_none_or(|last| span.until >= last.until) {
        draft.next.last_run = Some(span);
    }
}

/// A time that a server tells of something past, as far as it can be one.
pub(super) fn credible(draft: &Draft<'_>, told: WallTime) -> WallTime {
    told.min(draft.given.now.wall.plus(CALENDAR_LAG))
}

/// When an attempt may first have written. No time that a server makes up may cover more than its
/// own life; after a restart in place, what is known may be the beginning of a later run.
fn beginning(attempt: &Attempt, began: WallTime) -> WallTime {
    if attempt.restarts() > 0 { attempt.intended } else { began.max(attempt.intended) }
}

/// Takes the time in which something of ours ran: whatever else ran at the time is on record, open
/// or just ended.
pub(super) fn note(draft: &mut Draft<'_>, span: Span) {
    if draft.given.spec.checkpoint.is_none() {
        return;
    }
    // What is not seen ended runs, whatever this machine's calendar says.
    let now = draft.given.now.wall.max(span.until);
    let open = draft.next.open.iter().filter_map(|other| match &other.state {
        AttemptState::Live { running: Some(began), .. } => {
            Some(Span { no: other.no, from: beginning(other, *began), until: now })
        }
        AttemptState::Live { running: None, .. }
        | AttemptState::Intended
        | AttemptState::Unknown { .. } => None,
    });
    let others: Vec<Span> = open.chain(draft.next.last_run).collect();
    for other in others {
        let Some(overlap) = Overlap::of(&span, &other) else { continue };
        if draft.next.overlaps.iter().any(|window| window.holds(&overlap)) {
            continue;
        }
        add(&mut draft.next.overlaps, overlap);
        draft.say_with(
            Some(span.no),
            Word::Twin,
            format!(
                "it ran beside attempt {} for {}, until {}: checkpoints written then are passed over",
                other.no,
                human(overlap.until.since(overlap.from)),
                overlap.until,
            ),
            serde_json::json!({ "from": overlap.from.to_string(), "until": overlap.until.to_string() }),
        );
    }
}

/// One that was believed over is shown again. What the cloud tells is the beginning of its last run
/// alone, and others may have ended since that are no longer at hand: all that was written between its
/// supposed end and now may be of two.
pub(super) fn note_unseen(draft: &mut Draft<'_>, ended: &EndedRef, until: WallTime) {
    let window = Overlap { from: ended.ended, until: credible(draft, until) };
    let last = draft.next.last_run.filter(|last| last.no != ended.no);
    let is_followed =
        !draft.next.open.is_empty() || last.is_some_and(|last| last.until > window.from);
    let is_known = draft.next.overlaps.iter().any(|known| known.holds(&window));
    if draft.given.spec.checkpoint.is_none() || !is_followed || is_known {
        return;
    }
    if window.from < window.until {
        add(&mut draft.next.overlaps, window);
        let text = format!(
            "nobody saw it for {}, until {}: checkpoints written then are passed over",
            human(window.until.since(window.from)),
            window.until,
        );
        draft.say(Some(ended.no), Word::Twin, text);
    }
}

/// Adds a window; what it touches becomes one with it.
fn add(windows: &mut Vec<Overlap>, new: Overlap) {
    let (touched, mut apart): (Vec<_>, Vec<_>) =
        windows.iter().copied().partition(|window| window.touches(&new));
    apart.push(touched.into_iter().fold(new, Overlap::joined));
    apart.sort_unstable_by_key(|window| window.from);
    if apart.len() > WINDOWS_LIMIT {
        let oldest = apart.remove(0);
        apart[0] = apart[0].joined(oldest);
    }
    *windows = apart;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(from: i64, until: i64) -> Overlap {
        Overlap { from: WallTime(from), until: WallTime(until) }
    }

    #[test]
    fn windows_that_touch_are_one_and_too_many_cover_more_and_never_less() {
        let mut windows = Vec::new();
        for (from, until) in [(10, 20), (40, 50), (20, 30), (12, 14), (45, 60)] {
            add(&mut windows, window(from, until));
        }
        assert_eq!(windows, [window(10, 30), window(40, 60)]);
        for n in 1..=10 {
            add(&mut windows, window(n * 100, n * 100 + 1));
        }
        assert_eq!(windows.len(), WINDOWS_LIMIT);
        assert_eq!((windows[0], windows[7]), (window(10, 301), window(1000, 1001)));
    }

    #[test]
    fn two_attempts_overlap_only_where_both_ran() {
        let span = |no, from, until| Span { no, from: WallTime(from), until: WallTime(until) };
        assert_eq!(Overlap::of(&span(1, 0, 50), &span(2, 30, 90)), Some(window(30, 50)));
        assert_eq!(Overlap::of(&span(1, 0, 50), &span(2, 50, 90)), None);
        assert_eq!(Overlap::of(&span(1, 0, 50), &span(1, 10, 90)), None, "it was taken up again");
        let (from, until) = window(1_000_000, 2_000_000).with_margin();
        assert_eq!((from, until), (WallTime(880_000), WallTime(2_120_000)));
    }
}
