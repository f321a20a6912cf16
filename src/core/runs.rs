//! The runs of one attempt: the platform may restart it in place, under the same id, as often as it
//! likes. Each restart is counted once, whatever shows it.
//!
//! What always holds: the count never falls, and one restart that shows in several ways, in several
//! answers or again after a crash is one. A restart in place is not an end: nothing here ends an
//! attempt or leads to a CreateJob.
//!
//! Two things show restarts. *Counters* (`RestartTimes`, `RestartRecord`, `StatusHistory`) say how
//! many there were in all; they may be missing, lag behind, or leave out a round of bidding. *Sight*
//! is a change between two answers: it ran and waits again, or its run began later than the one
//! before. Sight may miss restarts between two looks. The larger of both is the count.

use super::event::Word;
use super::job::{AttemptState, Recheck};
use super::step::Draft;
use crate::model::cloud::{CloudJob, Status};
use crate::model::time::WallTime;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Restarts of one attempt that are believed: an answer that says more is odd.
const RESTARTS_LIMIT: u32 = 100_000;
/// Restarts of one answer that get an event each; a last event tells the others' number.
const TOLD_APART: u32 = 16;
/// A beginning that moved by less is the same one: the API counts whole seconds.
const TIME_GRAIN: Duration = Duration::from_secs(2);

/// What was seen of the runs of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Runs {
    /// Restarts that were seen happening.
    seen: u32,
    /// Where it stands.
    course: Course,
    /// The latest beginning of a run that the server has shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    began: Option<WallTime>,
    /// When the present or last run began, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<WallTime>,
    /// Running time of the runs before that one.
    #[serde(skip_serializing_if = "Duration::is_zero")]
    before: Duration,
    /// Running time of the last run that is over.
    #[serde(skip_serializing_if = "Duration::is_zero")]
    last: Duration,
}

/// Where an attempt stands between its restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
enum Course {
    /// It has not run yet.
    #[default]
    Ahead,
    /// It runs.
    Running,
    /// It ran, and is being brought to run again.
    Again,
}

/// What a status says of the course.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    Runs,
    Restarts,
    Waits,
    Nothing,
}

fn says(status: &Status) -> Says {
    match status {
        Status::Running => Says::Runs,
        Status::Restarting => Says::Restarts,
        Status::Creating
        | Status::Queuing
        | Status::Bidding
        | Status::EnvPreparing
        | Status::SanityChecking => Says::Waits,
        Status::Stopping
        | Status::SucceededReserving
        | Status::FailedReserving
        | Status::Succeeded
        | Status::Failed
        | Status::Stopped
        | Status::Other(_) => Says::Nothing,
    }
}

/// How long UserCommand ran in one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ran {
    /// All its runs together, without the waits between them as far as these are known.
    pub total: Duration,
    /// The last one: how the end looked.
    pub last: Duration,
    /// From the first beginning to the end, waits included.
    pub span: Duration,
}

impl Ran {
    /// One run, never restarted.
    pub fn once(ran: Duration) -> Self {
        Self { total: ran, last: ran, span: ran }
    }

    /// The same, each at most `limit`: a time that a server made up must not become progress.
    #[must_use]
    pub fn at_most(self, limit: Duration) -> Self {
        let Self { total, last, span } = self;
        Self { total: total.min(limit), last: last.min(limit), span: span.min(limit) }
    }
}

impl Runs {
    /// The first run of an attempt on record as running, of which nothing more is known: only list
    /// rows showed it, or a program kept it that did not follow runs.
    fn going_on(since: Option<WallTime>) -> Self {
        Self { course: Course::Running, since, ..Self::default() }
    }

    /// Takes an answer about an attempt of which `told` restarts are counted. Answers how many are
    /// new.
    fn take(&mut self, told: u32, cloud: &CloudJob, now: WallTime) -> u32 {
        let sighted = if cloud.whole { self.sight(cloud, now) } else { 0 };
        let count = told.max(cloud.restarts.min(RESTARTS_LIMIT)).max(self.seen);
        if sighted > 0 && says(&cloud.status) != Says::Nothing {
            // Those of the counters that nobody saw lie before what was seen now. Under a word that
            // does not say where it stands one of them may still be going on, and be seen next.
            self.seen = count;
        }
        count - told
    }

    /// Restarts that show between the last answer and this one. List rows may lag behind: only the
    /// job itself can say that it has stopped running.
    fn sight(&mut self, cloud: &CloudJob, now: WallTime) -> u32 {
        let says = says(&cloud.status);
        let began = cloud.run_began();
        let ran_anew = matches!((self.began, began), (Some(old), Some(new))
            if new > old.plus(TIME_GRAIN));
        let (restarts, course) = match (self.course, says) {
            (Course::Ahead, Says::Runs) => (0, Course::Running),
            (Course::Ahead, Says::Restarts) => (1, Course::Again),
            (Course::Ahead, Says::Waits) if began.is_some() => (1, Course::Again),
            (Course::Ahead, Says::Waits | Says::Nothing) => (0, Course::Ahead),
            // With a later beginning it ran once more in between.
            (Course::Running, Says::Restarts | Says::Waits) => {
                (1 + u32::from(ran_anew), Course::Again)
            }
            (Course::Running, Says::Runs | Says::Nothing) => (u32::from(ran_anew), Course::Running),
            (Course::Again, Says::Restarts | Says::Waits) => (u32::from(ran_anew), Course::Again),
            (Course::Again, Says::Runs) => (0, Course::Running),
            (Course::Again, Says::Nothing) if ran_anew => (0, Course::Running),
            (Course::Again, Says::Nothing) => (0, Course::Again),
        };
        self.clock(course, ran_anew, began, now);
        self.course = course;
        self.began = self.began.max(began);
        self.seen = self.seen.saturating_add(restarts);
        restarts
    }

    /// Keeps the times of the runs.
    fn clock(&mut self, next: Course, anew: bool, began: Option<WallTime>, now: WallTime) {
        let over_at = match (self.course, next) {
            (Course::Running, Course::Running) if anew => began,
            (Course::Running, Course::Again) => Some(now),
            (Course::Ahead | Course::Running | Course::Again, _) => None,
        };
        if let (Some(at), Some(since)) = (over_at, self.since) {
            self.last = at.since(since);
            self.before += self.last;
        }
        let starts = next == Course::Running && (self.course != Course::Running || anew);
        if starts {
            let shown = began.filter(|_| anew || self.course == Course::Ahead);
            self.since = Some(shown.unwrap_or(now));
        }
    }

    /// When the run that goes on now began; `None` while none goes on.
    pub fn goes_on_since(&self) -> Option<WallTime> {
        match self.course {
            Course::Running => self.since,
            Course::Ahead | Course::Again => None,
        }
    }

    /// Running time so far, without the waits between runs as far as these are known. `first` is
    /// when the first one began.
    pub fn so_far(&self, first: Option<WallTime>, now: WallTime) -> Duration {
        let present = match self.course {
            Course::Ahead | Course::Running => self.since.or(first),
            Course::Again => None,
        };
        self.before + present.map(|since| now.since(since)).unwrap_or_default()
    }

    /// The latest beginning that the server has shown.
    pub fn began(&self) -> Option<WallTime> {
        self.began
    }

    /// How long it ran, at its end, after restarts. `once` is what the end's own times say of one
    /// run, `first` when the first one began as far as is on record.
    pub(super) fn ran(
        &self,
        once: Duration,
        first: Option<WallTime>,
        cloud: &CloudJob,
        now: WallTime,
    ) -> Ran {
        let end = cloud.finished.unwrap_or(now);
        let told = cloud.history.as_ref().and_then(|history| history.first);
        let began = [first, told, cloud.running].into_iter().flatten().min();
        let span = began.map_or(once, |began| end.since(began));
        if let Some(history) = cloud.history.as_ref().filter(|h| h.first.is_some()) {
            let open = history.open_since.map(|since| end.since(since));
            let total = history.ran + open.unwrap_or_default();
            return Ran { total: total.min(span), last: open.unwrap_or(history.last_ran), span };
        }
        let present = self.goes_on_since().map(|since| end.since(since));
        let total = (self.before + present.unwrap_or_default()).min(span);
        Ran { total, last: present.unwrap_or(self.last).min(span), span }
    }
}

/// Counts the restarts that an answer about an open attempt shows, and tells each.
pub(super) fn note(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let (wall, boot) = (draft.given.now.wall, draft.given.now.boot);
    let attempt = &mut draft.next.open[at];
    let (no, pinned) = (attempt.no, attempt.is_pinned());
    let AttemptState::Live { id, status, running, restarts, runs, recheck, .. } =
        &mut attempt.state
    else {
        return;
    };
    if cloud.whole && *runs == Runs::default() && *status == Status::Running {
        *runs = Runs::going_on(*running);
    }
    let fresh = runs.take(*restarts, cloud, wall);
    if fresh == 0 {
        return;
    }
    let (id, before) = (id.clone(), *restarts);
    *restarts += fresh;
    if pinned {
        *recheck = Recheck::Due { tries: 0, at: boot };
    }
    draft.next.tally.restarts = draft.next.tally.restarts.saturating_add(fresh);
    for nth in 1..=fresh.min(TOLD_APART) {
        let count = before + nth;
        draft.say_with(
            Some(no),
            Word::RestartedInPlace,
            format!("the platform restarted {id} itself, restart {count} under this id"),
            serde_json::json!({ "id": id, "restart": count }),
        );
    }
    if fresh > TOLD_APART {
        draft.say_with(
            Some(no),
            Word::RestartedInPlace,
            format!("the platform restarted {id} itself, {} times so far", before + fresh),
            serde_json::json!({ "id": id, "restart": before + fresh }),
        );
    }
}
