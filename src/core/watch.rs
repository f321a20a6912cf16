//! While an attempt runs: a cheap look at its checkpoints from time to time. It says how far the
//! trainer is, how much work an end would lose, and when nothing moves any more.
//!
//! What always holds: a new whole checkpoint is progress, once, whether it is seen while the attempt
//! runs or after its end. Nothing is said to stall but after a complete look, and only by checkpoints
//! that the present run of this very attempt wrote: what an earlier attempt or run did says nothing.
//!
//! What it must not do: stop, submit or block anything, or be taken for the look that follows an end
//! or a restart.

use super::event::Word;
use super::job::{Attempt, AttemptState, Job, Missing, StopWhy, kept};
use super::progress;
use super::step::{Draft, Effect};
use crate::model::checkpoint::{Findings, Look, Position, ResumePoint};
use crate::model::cloud::Status;
use crate::model::hang::Times;
use crate::model::ids::AttemptNo;
use crate::model::time::{BootTime, WallTime, human};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time between two looks at one attempt, at least.
pub const LOOK_SHORTEST: Duration = Duration::from_secs(60);
/// And at most.
pub const LOOK_LONGEST: Duration = Duration::from_secs(10 * 60);
/// The same while nobody knows how often it saves.
const LOOK_AT_FIRST: Duration = Duration::from_secs(5 * 60);
/// Checkpoints of one run that are kept.
const SIGHTINGS_LIMIT: usize = 6;
/// Times between two checkpoints that make one of them the usual one.
const GAPS_ENOUGH: usize = 2;
/// Usual intervals without a new checkpoint after which an attempt has stalled, unless `[hang]` says
/// how many.
const STALLED_AFTER: Times = Times::whole(3);

/// What was seen of the checkpoints of an attempt while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Watch {
    next: NextLook,
    last: LastLook,
    /// The run that the sightings are of: restarts in place before it.
    run: u32,
    /// Oldest first.
    sightings: Vec<Sighting>,
    /// The newest whole checkpoint that was new when it was seen: this attempt made progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    gained: Option<Position>,
    warning: Warning,
}

/// When the next look comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum NextLook {
    /// There is nothing to look at, or nobody has thought of it yet.
    #[default]
    NotDue,
    /// Not before this.
    Due {
        /// By this process's clock.
        at: BootTime,
    },
    /// This process has asked for it.
    Asked,
}

/// How the last look came out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
enum LastLook {
    /// There was none yet.
    #[default]
    None,
    /// It showed whether this run saves.
    Clear {
        /// When it was answered.
        at: WallTime,
    },
    /// It was complete, and does not tell whose the checkpoints are.
    Unclear {
        /// When it was answered.
        at: WallTime,
        /// Why.
        why: String,
    },
    /// It could not be made.
    CouldNot {
        /// Such looks in a row.
        times: u32,
        /// Why.
        why: String,
    },
}

/// What a person was told and what still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum Warning {
    /// Nothing.
    #[default]
    None,
    /// It ran for long and there never was a whole checkpoint.
    Overdue,
    /// It saved as usual and does not any more.
    Stalled,
}

/// A whole checkpoint that a run was seen to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Sighting {
    /// When its newest object was written.
    at: WallTime,
    position: Position,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    step: Option<u64>,
    /// From its oldest object to its newest one, where both are known and differ.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    took: Option<Duration>,
}

/// How a run saves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// Time from one checkpoint to the next, usually. What is saved oftener than it is looked at
    /// shows as longer than it is.
    pub every: Duration,
    /// Steps from one checkpoint to the next, where they are known.
    pub steps: Option<u64>,
    /// What writing one took at most, where it has several objects.
    pub took: Option<Duration>,
}

impl Watch {
    pub(super) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// A new process: the answer to a look that an earlier one asked for never comes.
    pub(super) fn forget_clock(&mut self) {
        self.next = NextLook::NotDue;
    }

    /// Whether this attempt was seen to save something new.
    pub(super) fn made_progress(&self) -> bool {
        self.gained.is_some()
    }

    /// Whether nothing moves any more, by the last complete look.
    pub fn is_stalled(&self) -> bool {
        self.warning == Warning::Stalled
    }

    /// Whether the last look showed if this run saves.
    pub(super) fn is_clear(&self) -> bool {
        matches!(self.last, LastLook::Clear { .. })
    }

    /// Brings the next look forward to now. Answers whether it is to be asked for: one may be under
    /// way.
    pub(super) fn ask_now(&mut self) -> bool {
        let was = std::mem::replace(&mut self.next, NextLook::Asked);
        was != NextLook::Asked
    }

    /// Time without a new checkpoint that is `times` usual intervals, once these are known.
    pub(super) fn stall_limit(&self, times: Times) -> Option<Duration> {
        self.rhythm().map(|rhythm| times.of(rhythm.every.max(LOOK_SHORTEST)))
    }

    /// What a person should know of a run that goes on, in one line.
    pub fn warning(&self, now: WallTime) -> Option<String> {
        match (self.warning, self.sightings.last(), self.rhythm()) {
            (Warning::Stalled, Some(last), Some(rhythm)) => Some(format!(
                "no new whole checkpoint for {}, usually one every {}",
                human(now.since(last.at)),
                human(rhythm.every),
            )),
            (Warning::Overdue, _, _) => Some("it ran for long without a whole checkpoint".into()),
            (Warning::Stalled | Warning::None, _, _) => None,
        }
    }

    /// Why the last look says nothing, in words; empty if it does.
    pub fn fault(&self) -> String {
        match &self.last {
            LastLook::None | LastLook::Clear { .. } => String::new(),
            LastLook::Unclear { why, .. } => why.clone(),
            LastLook::CouldNot { times, why } => {
                format!("could not look for checkpoints ({times} in a row): {why}")
            }
        }
    }

    /// Whether the last look could not be made.
    pub fn is_blind(&self) -> bool {
        matches!(self.last, LastLook::CouldNot { .. })
    }

    /// When the last complete look was answered.
    pub fn looked(&self) -> Option<WallTime> {
        match self.last {
            LastLook::Clear { at } | LastLook::Unclear { at, .. } => Some(at),
            LastLook::None | LastLook::CouldNot { .. } => None,
        }
    }

    /// When the present run last finished a whole checkpoint.
    pub fn saved(&self) -> Option<WallTime> {
        self.sightings.last().map(|sighting| sighting.at)
    }

    /// How the present run saves, once it was seen often enough.
    pub fn rhythm(&self) -> Option<Rhythm> {
        let pairs = || self.sightings.windows(2).map(|pair| (pair[0], pair[1]));
        let gaps: Vec<Duration> = pairs().map(|(old, new)| new.at.since(old.at)).collect();
        if gaps.len() < GAPS_ENOUGH {
            return None;
        }
        let steps = pairs().filter_map(|(old, new)| steps_between(old, new)).collect();
        let took = self.sightings.iter().filter_map(|sighting| sighting.took).collect();
        Some(Rhythm { every: middle(gaps)?, steps: middle(steps), took: middle(took) })
    }

    /// Steps an hour between the oldest and the newest checkpoint that are kept of this run.
    pub fn steps_per_hour(&self) -> Option<u64> {
        let (first, last) = (self.sightings.first()?, self.sightings.last()?);
        let steps = u128::from(steps_between(*first, *last)?);
        let hour = Duration::from_secs(3600).as_millis();
        let per_hour = (steps * hour).checked_div(last.at.since(first.at).as_millis())?;
        u64::try_from(per_hour).ok()
    }

    /// Time until the next look: two to one checkpoint, so that each is seen by itself.
    fn pause(&self) -> Duration {
        let half = self.rhythm().map_or(LOOK_AT_FIRST, |rhythm| rhythm.every / 2);
        half.clamp(LOOK_SHORTEST, LOOK_LONGEST)
    }

    /// A restart in place begins another run, of which nothing was seen.
    fn follow(&mut self, restarts: u32) {
        if self.run == restarts {
            return;
        }
        self.run = restarts;
        self.sightings.clear();
        match self.warning {
            Warning::Stalled => self.warning = Warning::None,
            // The sum of the runs counts, and it was told.
            Warning::Overdue | Warning::None => {}
        }
    }

    /// Takes a whole checkpoint of the present run. Answers whether it is a new one.
    fn sight(&mut self, sighting: Sighting) -> bool {
        match self.sightings.last_mut() {
            Some(last) if sighting.position < last.position => return false,
            // Written anew in place, or a file was added to it.
            Some(last) if sighting.position == last.position => {
                last.at = last.at.max(sighting.at);
                return false;
            }
            Some(_) | None => {}
        }
        if self.sightings.len() >= SIGHTINGS_LIMIT {
            self.sightings.remove(0);
        }
        self.sightings.push(sighting);
        true
    }
}

/// The middle one; of two the larger, so that nobody is alarmed too early.
fn middle<T: Ord + Copy>(mut all: Vec<T>) -> Option<T> {
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

/// Steps from one checkpoint to a later one, where they count on.
fn steps_between(old: Sighting, new: Sighting) -> Option<u64> {
    let is_one_count = old.position.epoch == new.position.epoch;
    new.step?.checked_sub(old.step?).filter(|steps| is_one_count && *steps > 0)
}

/// Work that would be lost if a running attempt ended now: since its run saved last or, where it was
/// not seen to save, since the run began.
pub fn at_risk(attempt: &Attempt, now: WallTime) -> Option<Duration> {
    let AttemptState::Live { status: Status::Running, watch, .. } = &attempt.state else {
        return None;
    };
    watch.saved().or(run_began(attempt)).map(|since| now.since(since))
}

/// How long an attempt has run so far, without the waits between its runs.
pub fn ran_so_far(attempt: &Attempt, now: WallTime) -> Duration {
    match &attempt.state {
        AttemptState::Live { running, runs, .. } => runs.so_far(*running, now),
        AttemptState::Intended | AttemptState::Unknown { .. } => Duration::ZERO,
    }
}

/// When the run that goes on began.
fn run_began(attempt: &Attempt) -> Option<WallTime> {
    match &attempt.state {
        AttemptState::Live { running, runs, .. } => runs.goes_on_since().or(*running),
        AttemptState::Intended | AttemptState::Unknown { .. } => None,
    }
}

/// Asks for the look that is due at the attempt that runs.
pub(super) fn ask_if_due(draft: &mut Draft<'_>) {
    let (now, is_watched) = (draft.given.now.boot, is_watched(draft));
    for attempt in &mut draft.next.open {
        let AttemptState::Live { restarts, watch, missing, .. } = &mut attempt.state else {
            continue;
        };
        watch.follow(*restarts);
        watch.next = match watch.next {
            _ if !is_watched || *missing != Missing::No => NextLook::NotDue,
            NextLook::NotDue => NextLook::Due { at: now.plus(watch.pause()) },
            NextLook::Due { at } if at <= now => {
                draft.effects.push(Effect::Watch(attempt.no));
                NextLook::Asked
            }
            NextLook::Due { .. } | NextLook::Asked => watch.next,
        };
    }
}

/// When the next look at a running attempt is due.
pub(super) fn due_at(job: &Job) -> Option<BootTime> {
    let due = job.open.iter().filter_map(|attempt| match &attempt.state {
        AttemptState::Live { watch: Watch { next: NextLook::Due { at }, .. }, .. } => Some(*at),
        AttemptState::Live { .. } | AttemptState::Intended | AttemptState::Unknown { .. } => None,
    });
    due.min()
}

/// Whether the one open attempt runs, and writes its checkpoints where they are looked for. Beside
/// a twin nobody can tell whose a checkpoint is.
fn is_watched(draft: &Draft<'_>) -> bool {
    let [attempt] = &draft.next.open[..] else { return false };
    let AttemptState::Live { status: Status::Running, .. } = &attempt.state else { return false };
    let gate = &draft.given.gate;
    draft.given.spec.checkpoint.is_some()
        && attempt.spec == draft.next.spec
        // What a stop for a hang rests on is still looked at.
        && matches!(attempt.stop, None | Some(StopWhy::Hang))
        && draft.next.result.is_none()
        && gate.verified
        && !gate.stopping
}

/// Takes the answer of a look at running attempt `no`. Answers whether it was awaited and says
/// something of its checkpoints.
pub(super) fn on_watched(draft: &mut Draft<'_>, no: AttemptNo, look: &Look) -> bool {
    let is_watched = is_watched(draft);
    let Some(watch) = watch_of(draft, no) else { return false };
    if watch.next != NextLook::Asked {
        return false;
    }
    watch.next = NextLook::NotDue;
    if !is_watched {
        return false;
    }
    match look {
        Look::CouldNotLook { why, .. } => {
            let times = match watch.last {
                LastLook::CouldNot { times, .. } => times.saturating_add(1),
                LastLook::None | LastLook::Clear { .. } | LastLook::Unclear { .. } => 1,
            };
            let why = kept(why);
            if times.is_power_of_two() {
                let text = format!("could not look how far it is ({times} in a row): {why}");
                draft.say(Some(no), Word::Held, text);
            }
            note_look(draft, no, LastLook::CouldNot { times, why });
            false
        }
        Look::Done(findings) => {
            on_found(draft, no, findings);
            true
        }
    }
}

fn watch_of<'d>(draft: &'d mut Draft<'_>, no: AttemptNo) -> Option<&'d mut Watch> {
    let attempt = draft.next.open.iter_mut().find(|attempt| attempt.no == no)?;
    match &mut attempt.state {
        AttemptState::Live { watch, .. } => Some(watch),
        AttemptState::Intended | AttemptState::Unknown { .. } => None,
    }
}

fn note_look(draft: &mut Draft<'_>, no: AttemptNo, last: LastLook) {
    if let Some(watch) = watch_of(draft, no) {
        watch.last = last;
    }
}

/// What a complete look shows of this job's own checkpoints.
enum Own<'f> {
    /// None is whole.
    None,
    /// This one is the newest whole one.
    Whole(&'f ResumePoint),
    /// Nobody can tell from outside which are its own.
    Unclear(&'static str),
}

fn own(findings: &Findings, fresh_since: Option<WallTime>) -> Own<'_> {
    if !findings.ambiguous.is_empty() {
        return Own::Unclear("checkpoints of several runs lie under its prefix");
    }
    let Some(point) = &findings.chosen else { return Own::None };
    if findings.closed().any(|one| one.step.is_some() && one.position > point.position) {
        return Own::Unclear("a newer one is in a folder that cannot be looked into");
    }
    let is_older = |written: Option<WallTime>| written.zip(fresh_since).is_some_and(|(w, s)| w < s);
    if !findings.chosen_candidate().is_some_and(|chosen| is_older(chosen.newest_object)) {
        return Own::Whole(point);
    }
    if findings.candidates.iter().all(|candidate| is_older(candidate.newest_object)) {
        return Own::None;
    }
    Own::Unclear("checkpoints of an earlier run hide those of this one")
}

fn on_found(draft: &mut Draft<'_>, no: AttemptNo, findings: &Findings) {
    let at = draft.given.now.wall;
    match own(findings, draft.next.progress.fresh_since) {
        Own::Unclear(why) => {
            return note_look(draft, no, LastLook::Unclear { at, why: why.to_owned() });
        }
        Own::None => warn_if_overdue(draft, no, findings),
        Own::Whole(point) => on_whole(draft, no, findings, point),
    }
    note_look(draft, no, LastLook::Clear { at });
}

/// Running time beyond `expect_within`, and never a whole checkpoint: what the end would block the
/// job for is told now, while the machine may still be saved.
fn warn_if_overdue(draft: &mut Draft<'_>, no: AttemptNo, findings: &Findings) {
    let now = draft.given.now.wall;
    let (Some(checkpoint), [attempt]) = (&draft.given.spec.checkpoint, &draft.next.open[..]) else {
        return;
    };
    let ran = draft.next.progress.ran_since + ran_so_far(attempt, now);
    let was_seen = draft.next.progress.best.is_some();
    let was_told = attempt.watch().is_some_and(|watch| watch.warning == Warning::Overdue);
    if was_seen || was_told || ran < checkpoint.expect_within {
        return;
    }
    let place = &checkpoint.location;
    let what = match findings.undecided() {
        Some(one) => format!("nobody can tell from outside whether {} is whole", kept(&one.path)),
        None => "is `checkpoint.path` right?".to_owned(),
    };
    let text = format!(
        "it ran {} and there is no whole checkpoint under {place}: {what} An end would lose all of it",
        human(ran)
    );
    draft.say(Some(no), Word::Alarm, kept(&text));
    if let Some(watch) = watch_of(draft, no) {
        watch.warning = Warning::Overdue;
    }
}

/// The newest whole checkpoint: perhaps progress, perhaps the same as ever.
fn on_whole(draft: &mut Draft<'_>, no: AttemptNo, findings: &Findings, point: &ResumePoint) {
    let now = draft.given.now.wall;
    let after = draft.given.spec.hang.as_ref().and_then(|hang| hang.no_checkpoint);
    let [attempt] = &draft.next.open[..] else { return };
    let began = run_began(attempt);
    let gained = attempt.watch().and_then(|watch| watch.gained);
    let baseline = progress::baseline(&draft.next.progress, &attempt.start).max(gained);
    let is_new = Some(point.position) > baseline;
    if is_new {
        progress::note_best(draft, findings);
        progress::reset_counts(draft);
    }
    let candidate = findings.chosen_candidate();
    let written = candidate.and_then(|candidate| candidate.newest_object);
    let of_this_run = written.zip(began).filter(|(written, began)| written >= began);
    let Some(watch) = watch_of(draft, no) else { return };
    if is_new {
        watch.gained = Some(point.position);
    }
    let moves = of_this_run.is_some_and(|(written, _)| {
        let oldest = candidate.and_then(|candidate| candidate.oldest_object);
        let took = oldest.map(|oldest| written.since(oldest)).filter(|took| !took.is_zero());
        watch.sight(Sighting {
            at: written.min(now),
            position: point.position,
            step: point.step,
            took,
        })
    });
    let had = watch.warning;
    let stalls = !moves && stalls(watch, findings, now, after.unwrap_or(STALLED_AFTER));
    watch.warning = match had {
        Warning::Stalled if !moves => Warning::Stalled,
        Warning::None | Warning::Stalled | Warning::Overdue if stalls => Warning::Stalled,
        Warning::None | Warning::Stalled | Warning::Overdue => Warning::None,
    };
    let name = point.step.map_or_else(|| kept(&point.path), |step| format!("step {step}"));
    match (had, watch.warning) {
        (Warning::Stalled, Warning::Stalled) | (Warning::None, Warning::None) => {}
        (_, Warning::Stalled) => {
            let what = watch.warning(now).unwrap_or_default();
            let text = format!("{what}: it may hang; the newest is {name}");
            draft.say(Some(no), Word::Alarm, text);
        }
        (_, Warning::None | Warning::Overdue) => {
            draft.say(
                Some(no),
                Word::Phase,
                format!("nothing to warn of any more: {name} is whole"),
            );
        }
    }
}

/// Whether a run that saved as usual has not for long, and writes nothing newer either.
fn stalls(watch: &Watch, findings: &Findings, now: WallTime, after: Times) -> bool {
    let (Some(limit), Some(saved)) = (watch.stall_limit(after), watch.saved()) else {
        return false;
    };
    let is_writing = findings.unfinished.as_ref().is_some_and(|newer| newer.youngest_age < limit);
    now.since(saved) > limit && !is_writing
}
