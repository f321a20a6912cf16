//! How long an attempt waits before it runs, and what is done about it: `[waiting]`.
//!
//! What always holds: an attempt is stopped only in the step that takes a whole answer which shows it
//! waiting; never by a timer, never for what an older look said. It is stopped only where the gate
//! would let the next attempt through, and what follows is decided durably with the stop: whoever
//! comes back after a crash finds the new bid or placement on record. StopJob is repeated only behind
//! an answer of the same pass that shows it waiting; one that came to run all the same is left to. The bid is raised at most once
//! in [`RAISE_PAUSE`], and never above the job file's most.
//!
//! What it must not do: submit. The stopped attempt is waited for as any other, and its end counts
//! for nothing. The wall clock, as servers have corrected it, is the right one here: a wait that is
//! taken for longer than it was costs a place in a queue, and never a second attempt.

use super::event::Word;
use super::job::{
    Attempt, AttemptState, EndedAttempt, Job, Missing, Recovery, Start, StopWhy, Wanted, kept,
};
use super::offer::Offer;
use super::permanent;
use super::step::{Draft, Pass};
use super::stops;
use super::submit::may_submit;
use super::verdict::Cause;
use crate::model::cloud::{CloudJob, Status};
use crate::model::placement::PlacementNo;
use crate::model::spec::{Bid, JobSpec};
use crate::model::time::{WallTime, human};
use crate::model::waiting::{WaitAct, WaitPhase};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time between two raises of a job's bid: each gives up a place in the queue.
pub const RAISE_PAUSE: Duration = Duration::from_secs(15 * 60);
/// Bytes of the reason why it can never run that are kept.
const NEVER_LIMIT_BYTES: usize = 160;

/// How long an attempt has waited, and what was said of it. It begins anew when it runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wait {
    /// Where it waits now, and since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    spell: Option<Spell>,
    /// How long it waited before that, each phase once: it may go back to one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    before: Vec<(WaitPhase, Duration)>,
    /// The phases in which a person was told of the limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    told: Vec<WaitPhase>,
    /// Why it can never run, if the cloud says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    never: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Spell {
    phase: WaitPhase,
    since: WallTime,
}

/// What a status says of the wait.
enum Says {
    Waits(WaitPhase),
    Runs,
    Nothing,
}

fn says(status: &Status) -> Says {
    match status {
        Status::Creating | Status::Queuing => Says::Waits(WaitPhase::Queuing),
        Status::Bidding => Says::Waits(WaitPhase::Bidding),
        Status::EnvPreparing | Status::SanityChecking | Status::Restarting => {
            Says::Waits(WaitPhase::Preparing)
        }
        Status::Running => Says::Runs,
        Status::Stopping
        | Status::SucceededReserving
        | Status::FailedReserving
        | Status::Succeeded
        | Status::Failed
        | Status::Stopped
        | Status::Other(_) => Says::Nothing,
    }
}

impl Wait {
    /// The wait of an attempt that was accepted just now.
    pub(crate) fn begun(now: WallTime) -> Self {
        let spell = Some(Spell { phase: WaitPhase::Queuing, since: now });
        Self { spell, ..Self::default() }
    }

    pub(super) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// Why it can never run, if the cloud says so.
    pub fn never(&self) -> Option<&str> {
        self.never.as_deref()
    }

    fn follow(&mut self, status: &Status, now: WallTime) {
        let phase = match says(status) {
            Says::Waits(phase) => phase,
            Says::Runs => return *self = Self::default(),
            Says::Nothing => return,
        };
        match &mut self.spell {
            // A clock that was set back must not make the wait longer than it is.
            Some(spell) if spell.phase == phase => spell.since = spell.since.min(now),
            Some(spell) => {
                let (old, time) = (spell.phase, now.since(spell.since));
                match self.before.iter_mut().find(|(phase, _)| *phase == old) {
                    Some((_, sum)) => *sum = sum.saturating_add(time),
                    None => self.before.push((old, time)),
                }
                *spell = Spell { phase, since: now };
                self.never = None;
            }
            None => self.spell = Some(Spell { phase, since: now }),
        }
    }

    /// Since when it waits in this phase, as if it had not left it in between.
    pub fn since(&self) -> Option<(WaitPhase, WallTime)> {
        let Spell { phase, since } = self.spell?;
        let earlier = self.before.iter().find(|(other, _)| *other == phase);
        Some((phase, since.minus(earlier.map_or(Duration::ZERO, |(_, time)| *time))))
    }
}

/// What is done about a wait that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The bid is raised to this.
    Raise(Bid),
    /// It goes on to this placement.
    Place(PlacementNo),
    /// The job has failed.
    Fail,
}

/// A wait, and what comes next by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    /// Where it waits.
    pub phase: WaitPhase,
    /// Since when.
    pub since: WallTime,
    /// How long it may, if the job file says so.
    pub limit: Option<Duration>,
    /// Whether a person is told at the limit.
    pub tells: bool,
    /// What is done, and not before when.
    pub next: Option<(Due, WallTime)>,
}

impl Outlook {
    /// When something is due, if anything ever is.
    pub fn due_at(&self) -> Option<WallTime> {
        let told_at = self.limit.filter(|_| self.tells).map(|limit| self.since.plus(limit));
        told_at.or(self.next.map(|(_, at)| at))
    }

    /// What comes next, in words with its time; empty if nothing does. Where a person is told at the
    /// same time, that goes without saying.
    pub fn next_in_words(&self, now: WallTime) -> String {
        let Some(at) = self.due_at() else { return String::new() };
        let what = match &self.next {
            Some((due, when)) if *when == at => due.to_string(),
            Some(_) | None => "tell a person".to_owned(),
        };
        let left = Duration::from_millis(u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0));
        let when = if left.is_zero() { "now".to_owned() } else { format!("in {}", human(left)) };
        format!("{what} {when}")
    }
}

impl std::fmt::Display for Due {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Raise(bid) => write!(f, "raise bid to {bid}"),
            Self::Place(no) => write!(f, "go on to placement {no}"),
            Self::Fail => f.write_str("give the job up"),
        }
    }
}

/// Whether the status of an attempt that was last known is one of waiting.
pub fn is_waiting(attempt: &Attempt) -> bool {
    match &attempt.state {
        AttemptState::Live { status, .. } => matches!(says(status), Says::Waits(_)),
        AttemptState::Intended | AttemptState::Unknown { .. } => false,
    }
}

/// How the one open attempt of a job waits; `None` if it does not. `spec` is the one of the placement
/// of the job's next attempt.
pub fn outlook(job: &Job, spec: &JobSpec) -> Option<Outlook> {
    let [attempt] = &job.open[..] else { return None };
    let AttemptState::Live { wait, odd: None, missing: Missing::No, .. } = &attempt.state else {
        return None;
    };
    let is_over = job.result.is_some() || job.wanted == Wanted::Cancel;
    if attempt.stop.is_some() || is_over || !is_waiting(attempt) {
        return None;
    }
    let (phase, since) = wait.since()?;
    let limit = spec.waiting.limit(phase);
    let mut outlook =
        Outlook { phase, since, limit: limit.map(|limit| limit.after), tells: false, next: None };
    for act in limit.into_iter().flat_map(|limit| &limit.then) {
        let at = limit.map_or(since, |limit| since.plus(limit.after));
        outlook.next = match act {
            WaitAct::Notify => {
                outlook.tells = !wait.told.contains(&phase);
                continue;
            }
            // No bid helps one that can never run.
            WaitAct::RaiseBid if wait.never.is_some() => continue,
            WaitAct::RaiseBid => higher_bid(job, spec, attempt).map(|bid| {
                let pause_over = job.offer.raised_at.map(|raised| raised.plus(RAISE_PAUSE));
                (Due::Raise(bid), at.max(pause_over.unwrap_or(at)))
            }),
            WaitAct::NextPlacement => {
                let next = job.offer.placement + 1;
                (next <= spec.last_placement()).then_some((Due::Place(next), at))
            }
            WaitAct::Fail => Some((Due::Fail, at)),
        };
        if outlook.next.is_some() {
            break;
        }
    }
    // While a person wants it held, it is left where it is.
    if job.wanted == Wanted::Hold || job.block.is_some() {
        outlook.next = None;
    }
    Some(outlook)
}

/// The next bid of an attempt: one step above its own or, where the job file changed after it was
/// sent, the file's.
fn higher_bid(job: &Job, spec: &JobSpec, attempt: &Attempt) -> Option<Bid> {
    let (sent, own) = (attempt.bid?, spec.spot?);
    let is_better = match (own, sent) {
        (Bid::Discount(own), Bid::Discount(sent))
        | (Bid::PricePerMinute(own), Bid::PricePerMinute(sent)) => own > sent,
        (Bid::Discount(_) | Bid::PricePerMinute(_), _) => true,
    };
    if attempt.spec != job.spec && is_better {
        return Some(own);
    }
    spec.waiting.raised(sent, Some(own), spec.list_price_per_hour)
}

/// From when on a whole answer about the open attempt is wanted, be it as unchanged as ever: without
/// one nothing is done.
pub fn look_at(job: &Job, spec: &JobSpec) -> Option<WallTime> {
    if stops::wants_whole(job) {
        return Some(WallTime(0));
    }
    match &job.open[..] {
        // A record of a program that did not follow waits: it begins with the next answer.
        [attempt @ Attempt { state: AttemptState::Live { wait, .. }, .. }]
            if wait.spell.is_none() && !spec.waiting.is_none() && is_waiting(attempt) =>
        {
            Some(WallTime(0))
        }
        _ => outlook(job, spec)?.due_at(),
    }
}

/// The latest time on record that the wait of an attempt is counted from. One that lies ahead was read
/// from a clock that was wrong: an answer is wanted, with which it is set right.
pub fn counted_from(job: &Job, attempt: &Attempt) -> Option<WallTime> {
    let AttemptState::Live { wait, .. } = &attempt.state else { return None };
    wait.spell.map(|spell| spell.since).max(job.offer.raised_at)
}

/// Takes what an answer shows of the wait of an open attempt, and does what is due.
pub(super) fn on_shown(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let now = draft.given.now.wall;
    let attempt = &mut draft.next.open[at];
    if attempt.stops_for_a_wait() && cloud.whole {
        let waits = matches!(says(&cloud.status), Says::Waits(_));
        attempt.asked.note_waits(waits, draft.given.now.boot);
    }
    let AttemptState::Live { wait, .. } = &mut attempt.state else { return };
    wait.follow(&cloud.status, now);
    // The clock was ahead when it was raised.
    draft.next.offer.raised_at = draft.next.offer.raised_at.map(|raised| raised.min(now));
    note_never(draft, at, cloud);
    // A list row may lag behind: only the job itself can say that it still waits.
    let Some(outlook) = outlook(&draft.next, draft.given.spec).filter(|_| cloud.whole) else {
        return;
    };
    if draft.given.gate.stopping {
        return;
    }
    let Some(limit) = outlook.limit.filter(|limit| now >= outlook.since.plus(*limit)) else {
        return;
    };
    let waited = now.since(outlook.since);
    if outlook.tells {
        tell(draft, &outlook, (waited, limit));
    }
    if let Some((due, _)) = outlook.next.filter(|(due, at)| now >= *at && !is_held(draft, *due)) {
        carry_out(draft, due, (outlook.phase, waited));
    }
}

/// Says at once that a wait can never end.
fn note_never(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let attempt = &mut draft.next.open[at];
    let no = attempt.no;
    let AttemptState::Live { wait, .. } = &mut attempt.state else { return };
    let Some(why) = permanent::cause(cloud) else { return };
    if wait.spell.is_none() || wait.never.is_some() || attempt.stop.is_some() {
        return;
    }
    let why = kept(&why);
    let why = why[..why.floor_char_boundary(NEVER_LIMIT_BYTES)].to_owned();
    let word = cloud.status.word();
    let text = format!(
        "{} is {word} and can never run: {why}. Mend the job file, then `cancel` and `retry`",
        cloud.id
    );
    let data = serde_json::json!({
        "never": why, "status": word, "code": cloud.reason_code, "id": cloud.id,
    });
    wait.never = Some(why);
    draft.say_with(Some(no), Word::Alarm, text, data);
}

/// Tells a person that the limit is over, and what comes next.
fn tell(draft: &mut Draft<'_>, outlook: &Outlook, (waited, limit): (Duration, Duration)) {
    let now = draft.given.now.wall;
    let [attempt] = &mut draft.next.open[..] else { return };
    let (no, bid) = (attempt.no, attempt.bid);
    let AttemptState::Live { wait, .. } = &mut attempt.state else { return };
    wait.told.push(outlook.phase);
    let never =
        wait.never.as_ref().map_or(String::new(), |why| format!("; it can never run: {why}"));
    let bid = bid.map_or(String::new(), |bid| format!(" with bid {bid}"));
    let after = Outlook { tells: false, ..outlook.clone() }.next_in_words(now);
    let after =
        if after.is_empty() { "it is left to wait".to_owned() } else { format!("next: {after}") };
    let (phase, time, most) = (outlook.phase.word(), human(waited), human(limit));
    let text = format!("it is {phase}{bid} for {time}, and the limit is {most}{never}; {after}");
    let data = serde_json::json!({
        "phase": phase, "waited_s": waited.as_secs(), "limit_s": limit.as_secs(),
    });
    draft.say_with(Some(no), Word::Alarm, text, data);
}

/// Whether the gate would hold the next attempt even with nothing open: a place in the queue is then
/// better than nothing.
fn is_held(draft: &Draft<'_>, due: Due) -> bool {
    if let Due::Fail = due {
        return false;
    }
    let mut after = draft.next.clone();
    after.open.clear();
    after.recovery = Recovery::Ready { start: Start::Fresh, looked: draft.given.now.boot };
    let elsewhere = match due {
        Due::Place(_) => draft.given.gate.next_place.is_some(),
        Due::Raise(_) | Due::Fail => false,
    };
    elsewhere || may_submit(&after, draft.given).is_err()
}

/// Stops the attempt, and puts on record what the next one is asked for with.
fn carry_out(draft: &mut Draft<'_>, due: Due, (phase, waited): (WaitPhase, Duration)) {
    let now = draft.given.now.wall;
    let [attempt] = &mut draft.next.open[..] else { return };
    let (no, bid) = (attempt.no, attempt.bid);
    let offer = draft.next.offer;
    let (stop, offer, why, then) = match due {
        Due::Raise(to) => {
            let offer = Offer { raised: Some(to), raised_at: Some(now), ..offer };
            let from = bid.map_or(String::new(), |bid| format!(" from {bid}"));
            let then = format!("it is submitted again with the bid raised{from} to {to}");
            (StopWhy::Waited, offer, "raise_bid", then)
        }
        Due::Place(to) => {
            let offer = Offer { placement: to, raised: None, ..offer };
            let then = format!("it is submitted again as placement {to} asks");
            (StopWhy::Waited, offer, "next_placement", then)
        }
        Due::Fail => (StopWhy::GaveUp, offer, "fail", "the job has failed".to_owned()),
    };
    attempt.stop = Some(stop);
    draft.next.offer = offer;
    let (phase, time) = (phase.word(), human(waited));
    let text = format!("stop: it is {phase} for {time}; once it is seen ended {then}");
    let data = serde_json::json!({
        "why": why, "phase": phase, "waited_s": waited.as_secs(),
        "bid": offer.raised.map(|bid| bid.to_string()), "placement": offer.placement,
    });
    draft.say_with(Some(no), Word::StopAsked, text, data);
    stops::ask(draft);
}

/// Takes a stop back where it came to nothing: the attempt runs after all, and is better left to.
pub(super) fn on_swept(draft: &mut Draft<'_>, pass: &Pass) {
    let now = draft.given.now;
    let mut gone_on = Vec::new();
    let here = draft.next.open.iter_mut().filter(|a| pass.complete && a.place == pass.place);
    for attempt in here {
        if let AttemptState::Live { status: Status::Running, odd: None, .. } = &attempt.state
            && attempt.stops_for_a_wait()
            && attempt.asked.is_without_effect(now.boot)
        {
            attempt.take_stop_back(now.wall);
            gone_on.push(attempt.no);
        }
    }
    for no in gone_on {
        let text = "the stop came to nothing: it runs by now, and is left to";
        draft.say(Some(no), Word::Phase, text);
    }
}

/// Why a wait ended the job, if it did: it was given up, and the attempt did not run after all.
pub(super) fn gave_up(ended: &EndedAttempt) -> Option<String> {
    let attempt = &ended.attempt;
    let is_ours = ended.verdict.cause == Cause::StoppedByUs && !ended.verdict.look.ran;
    if attempt.stop != Some(StopWhy::GaveUp) || !is_ours {
        return None;
    }
    let AttemptState::Live { wait, .. } = &attempt.state else { return None };
    let (phase, since) = wait.since()?;
    let (phase, time) = (phase.word(), human(ended.ended.since(since)));
    let never =
        wait.never.as_ref().map_or(String::new(), |why| format!("; it could never run: {why}"));
    Some(format!("given up: attempt {} was {phase} for {time} and never ran{never}", attempt.no))
}

/// A new spec, or a person's word: what the job file says holds again, and what was to be given up
/// goes on.
pub(super) fn forget(job: &mut Job) {
    job.offer = Offer::default();
    for attempt in job.open.iter_mut().filter(|a| a.stop == Some(StopWhy::GaveUp)) {
        attempt.stop = Some(StopWhy::Waited);
    }
}
