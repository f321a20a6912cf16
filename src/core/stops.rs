//! Stops that rest on what was seen of an attempt: it waits for too long, or it hangs.
//!
//! What always holds: such a stop is asked for again only behind an answer of this process that was made
//! after the last time and still shows the reason. Where the reason is gone the stop is taken back, and
//! that it was asked for stays on record: whatever it still does is our own doing and nobody else's.
//!
//! What it must not do: hold back a person's cancel, or the stop of a twin.

use super::hang;
use super::job::{Attempt, AttemptState, Job, StopWhy, Wanted};
use super::step::{Draft, Effect, Pass};
use super::waiting;
use crate::model::cloud::Status;
use crate::model::spec::JobSpec;
use crate::model::time::{BootTime, WallTime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How long a stop may take. One that runs for longer was not stopped.
pub(super) const STOP_TAKES: Duration = Duration::from_secs(10 * 60);
/// A stop that was taken back does not take effect later than this: then somebody else's did.
const LATE_STOP: Duration = Duration::from_secs(24 * 3600);

/// What is known of the StopJobs of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// When this process last asked; its own start where an earlier one may have done so.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<BootTime>,
    /// When a whole answer last showed it waiting, while it was to stop for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    waits: Option<BootTime>,
    /// A stop that was taken back, and may have been sent before.
    #[serde(skip_serializing_if = "Option::is_none")]
    taken_back: Option<TakenBack>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct TakenBack {
    why: StopWhy,
    at: WallTime,
}

impl Asked {
    pub(super) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// A new process: it has asked nothing and seen nothing.
    pub(super) fn forget_clock(&mut self, boot: BootTime) {
        self.at = self.at.map(|_| boot);
        self.waits = None;
    }

    /// A whole answer shows whether it still waits.
    pub(super) fn note_waits(&mut self, waits: bool, now: BootTime) {
        self.waits = waits.then_some(now);
    }

    /// Whether a stop that did not show by now came to nothing.
    pub(super) fn is_without_effect(&self, now: BootTime) -> bool {
        self.at.is_some_and(|at| now.since(at) >= STOP_TAKES)
    }
}

impl Attempt {
    /// Why it was asked to stop, be it taken back since: an end until `ended` may come of it.
    pub(super) fn was_to_stop(&self, ended: Option<WallTime>) -> Option<StopWhy> {
        let is_late = |back: &TakenBack| ended.is_some_and(|end| end.since(back.at) > LATE_STOP);
        let taken_back = self.asked.taken_back.filter(|back| !is_late(back));
        self.stop.or(taken_back.map(|back| back.why))
    }

    /// Takes back a stop whose reason is gone.
    pub(super) fn take_stop_back(&mut self, now: WallTime) {
        if let Some(why) = self.stop.take() {
            self.asked.taken_back = Some(TakenBack { why, at: now });
        }
    }
}

/// A new process: what every earlier one asked for without effect is asked for again, but for what
/// rests on what that one saw.
pub(super) fn on_started(draft: &mut Draft<'_>) {
    let boot = draft.given.now.boot;
    for attempt in &mut draft.next.open {
        attempt.asked.forget_clock(boot);
        // In a record of a program that did not keep it.
        if attempt.stop.is_some() {
            attempt.asked.at = Some(boot);
        }
    }
    ask_of(draft, |attempt| !attempt.stops_for_what_is_seen());
}

/// Asks for every stop that is wanted and can be addressed. Harmless twice.
pub(super) fn ask(draft: &mut Draft<'_>) {
    ask_of(draft, |_| true);
}

fn ask_of(draft: &mut Draft<'_>, is_asked: impl Fn(&Attempt) -> bool) {
    let boot = draft.given.now.boot;
    for attempt in draft.next.open.iter_mut().filter(|a| a.stop.is_some() && is_asked(a)) {
        if let AttemptState::Live { id, .. } = &attempt.state {
            draft.effects.push(Effect::Stop { no: attempt.no, id: id.clone() });
            if attempt.stops_for_what_is_seen() {
                attempt.asked.at = Some(boot);
            }
        }
    }
}

/// A pass is through: a stop that was asked for and did not begin is asked for again.
pub(super) fn ask_again(draft: &mut Draft<'_>, pass: &Pass) {
    let spec = draft.given.spec;
    ask_of(draft, |attempt| {
        let AttemptState::Live { status, .. } = &attempt.state else { return false };
        attempt.place == pass.place
            && *status != Status::Stopping
            && still_holds(attempt, spec, pass)
    });
}

/// Whether what a stop rests on still shows.
fn still_holds(attempt: &Attempt, spec: &JobSpec, pass: &Pass) -> bool {
    match attempt.stop {
        None => false,
        Some(StopWhy::Cancel | StopWhy::Twin | StopWhy::Outdated) => true,
        Some(StopWhy::Waited | StopWhy::GaveUp) => {
            let is_shown = attempt.asked.waits.is_some_and(|at| at >= pass.started);
            pass.complete && is_shown && waiting::is_waiting(attempt)
        }
        Some(StopWhy::Hang) => {
            attempt.asked.at.is_none_or(|at| hang::shows_after(attempt, spec, at))
        }
    }
}

/// Whether a whole answer is wanted in every pass: without one a stop is not asked for again.
pub(super) fn wants_whole(job: &Job) -> bool {
    let is_one = |attempt: &Attempt| attempt.stops_for_a_wait() && waiting::is_waiting(attempt);
    job.wanted != Wanted::Cancel && job.open.iter().any(is_one)
}
