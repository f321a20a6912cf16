//! One input, one step.

use super::event::{Event, Word};
use super::job::{
    Attempt, AttemptState, BlockKind, EndedAttempt, Job, Missing, Outcome, OutcomeKind, Recheck,
    Recovery, Source, Start, Wanted, kept,
};
use super::stops::Asked;
use super::submit::{Gate, may_submit};
use super::terms::Terms;
use super::verdict::{Cause, LogEnd};
use super::{
    acts, adopt, hang, lost, recheck, scan, seen, sighting, stops, tracker, waiting, watch,
};
use crate::model::checkpoint::{Look, ResumeFrom, TrackerRewrite, TrackerWrite};
use crate::model::cloud::{CloudJob, Pod, SendOutcome};
use crate::model::hang::PodsLook;
use crate::model::ids::{AttemptNo, CloudId, Digest, Mark};
use crate::model::spec::{JobSpec, Place};
use crate::model::time::{BootTime, Now, WallTime};
use std::time::Duration;

/// What a step is given besides job and input.
#[derive(Debug, Clone)]
pub struct Given<'a> {
    /// Both clocks.
    pub now: Now,
    /// The accepted spec under `job.spec`, as the placement of the next attempt asks.
    pub spec: &'a JobSpec,
    /// What holds back or allows every submission.
    pub gate: Gate,
    /// A fresh mark, used if this step decides to submit.
    pub mark: Mark,
}

/// What a person can ask of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Stop it for good.
    Cancel,
    /// Let run what runs, submit nothing.
    Pause,
    /// Go on after a pause.
    Resume,
    /// Start again after a block, an end, or beside a copy that will never be seen ended.
    Retry,
    /// Start again from here, whatever is newer or suspect.
    RetryFrom(ResumeFrom),
}

/// One complete or incomplete pass of ListJobs over the place of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pass {
    /// Where.
    pub place: Place,
    /// When its first request was sent.
    pub started: BootTime,
    /// Whether every page was read and they fit together.
    pub complete: bool,
    /// Whether the same keys listed as in the pass before: others may not see the same jobs.
    pub same_caller: bool,
    /// The server's own time in its first answer.
    pub server: Option<WallTime>,
}

/// What the store remembers of a mark whose attempt is not open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// Its attempt was seen ended under this id.
    Ended(EndedRef),
    /// Its attempt was proved never created.
    NeverCreated {
        /// The attempt.
        no: AttemptNo,
        /// When it was decided.
        intended: WallTime,
    },
    /// No record knows it.
    Stranger,
}

/// An ended attempt, by number, id and age, and what it was counted as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRef {
    /// Its number.
    pub no: AttemptNo,
    /// Its id.
    pub id: CloudId,
    /// When it was decided.
    pub intended: WallTime,
    /// Why it ended; a lost one was not seen to end.
    pub cause: Cause,
    /// How long UserCommand ran.
    pub ran: Duration,
    /// When it ended, or was given up.
    pub ended: WallTime,
}

impl EndedRef {
    /// What is remembered of an end; `None` if nothing was ever created.
    pub fn of(ended: &EndedAttempt) -> Option<Self> {
        let (no, intended) = (ended.attempt.no, ended.attempt.intended);
        let (id, cause) = (ended.id.clone()?, ended.verdict.cause);
        Some(Self { no, id, intended, cause, ran: ended.ran, ended: ended.ended })
    }
}

/// Everything that can happen to a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// The process has just loaded it: what it knew of the boot clock is void.
    Started,
    /// Look whether something is due; carries no facts.
    Tick,
    /// Another spec was accepted.
    Spec(Digest),
    /// Its file is gone, or back.
    File(Source),
    /// A person's act.
    Operator(Act),
    /// A person says that this cloud job is the running attempt of the job.
    Adopt {
        /// What GetJob shows of it.
        cloud: Box<CloudJob>,
        /// Where.
        place: Place,
        /// Its mark, if it carries one of ours that no record knows; else it is matched by its id.
        mark: Option<Mark>,
    },
    /// A cloud job that a person wanted adopted was looked up, and is not taken.
    NotAdopted {
        /// What the person named.
        id: CloudId,
        /// Why not.
        why: String,
        /// Whether the person is still there to be told.
        told: bool,
    },
    /// A CreateJob came out.
    Sent {
        /// Whose.
        no: AttemptNo,
        /// How.
        outcome: SendOutcome,
    },
    /// The cloud shows a job that carries a mark of this job.
    Seen {
        /// The mark.
        mark: Mark,
        /// What is shown.
        cloud: Box<CloudJob>,
        /// What is known of the mark if no attempt with it is open.
        past: Past,
        /// Where it was seen.
        place: Place,
    },
    /// A complete pass did not show an attempt that was there, and GetJob says that there is none.
    Missing {
        /// Its id.
        id: CloudId,
        /// Whether the same keys asked as in the pass before.
        same_caller: bool,
    },
    /// A pass over ListJobs is through; what it showed came before as `Seen`.
    Swept(Pass),
    /// The bucket was looked into, for what follows an end or a restart.
    Looked(Look),
    /// The bucket was looked into to see how far a running attempt is.
    Watched {
        /// The attempt.
        no: AttemptNo,
        /// What came of it.
        look: Look,
    },
    /// The pods of a running attempt and their logs were looked at.
    PodsLooked {
        /// The attempt.
        no: AttemptNo,
        /// What came of it.
        look: PodsLook,
    },
    /// The tracker was to be rewritten.
    TrackerWritten(TrackerWrite),
    /// The logs of an ended attempt were read.
    Logs {
        /// The attempt as recorded.
        ended: Box<EndedAttempt>,
        /// What each pod's log says.
        pods: Vec<LogEnd>,
    },
}

/// What to do once the step is durable. Each is either harmless twice or looked up first.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send the CreateJob of an attempt in state `Intended`.
    Create(AttemptNo),
    /// Send StopJob.
    Stop {
        /// The attempt.
        no: AttemptNo,
        /// Its id.
        id: CloudId,
    },
    /// Look into the bucket, for what follows an end or a restart.
    Look,
    /// Look into the bucket to see how far this running attempt is, or whether a missing one still
    /// writes. No submission waits for it.
    Watch(AttemptNo),
    /// Look whether pods of a running attempt are lost, and whether their logs go on.
    LookAtPods {
        /// The attempt.
        no: AttemptNo,
        /// Its id.
        id: CloudId,
    },
    /// Rewrite the trainer's tracker: harmless twice while nothing of the job runs.
    RewriteTracker(TrackerRewrite),
    /// Read the logs of an ended attempt.
    Logs {
        /// The attempt as recorded.
        ended: Box<EndedAttempt>,
        /// Its pods.
        pods: Vec<Pod>,
    },
    /// Make the next pass over ListJobs soon.
    SweepSoon(Place),
}

/// The outcome of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The job from now on.
    pub next: Job,
    /// What there is to tell.
    pub events: Vec<Event>,
    /// What to start, after the commit.
    pub effects: Vec<Effect>,
    /// Attempts whose record is new or amended.
    pub ended: Vec<EndedAttempt>,
    /// When to send `Tick` at the latest.
    pub wake_at: Option<BootTime>,
}

/// A pair of situation and input that cannot be. Recorded and alarmed, never a panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("attempt {no} of {job}: {what}")]
pub struct Impossible {
    /// The job.
    pub job: String,
    /// The attempt.
    pub no: AttemptNo,
    /// What cannot be.
    pub what: String,
}

/// A resume point older than this is chosen anew before it is used.
const RESUME_POINT_GOOD_FOR: Duration = Duration::from_secs(60);
/// The time of the next look while one is under way.
pub(super) const ANSWER_DUE: BootTime = BootTime(u64::MAX);

/// The step under construction.
pub(super) struct Draft<'a> {
    pub(super) given: &'a Given<'a>,
    pub(super) next: Job,
    pub(super) events: Vec<Event>,
    pub(super) effects: Vec<Effect>,
    pub(super) ended: Vec<EndedAttempt>,
}

impl Draft<'_> {
    pub(super) fn say(&mut self, attempt: Option<AttemptNo>, word: Word, text: impl Into<String>) {
        self.say_with(attempt, word, text, serde_json::Value::Null);
    }

    pub(super) fn say_with(
        &mut self,
        attempt: Option<AttemptNo>,
        word: Word,
        text: impl Into<String>,
        data: serde_json::Value,
    ) {
        let at = self.given.now.wall;
        self.events.push(Event { at, attempt, word, text: text.into(), data });
    }

    pub(super) fn finish(&mut self, kind: OutcomeKind, why: impl Into<String>) {
        let why = kept(&why.into());
        let word = match kind {
            OutcomeKind::Succeeded => Word::Succeeded,
            OutcomeKind::Failed => Word::Failed,
            OutcomeKind::Cancelled => Word::Cancelled,
        };
        self.say(None, word, why.clone());
        self.next.result = Some(Outcome { kind, why, at: self.given.now.wall });
    }

    /// Waits `delay`, then looks and submits.
    pub(super) fn wait(&mut self, delay: Duration, why: &str) {
        let until = self.given.now.boot.plus(delay);
        self.say(
            None,
            Word::Backoff,
            format!("next submission in {}: {why}", crate::model::time::human(delay)),
        );
        self.next.recovery = Recovery::Waiting { delay, until };
    }
}

/// Takes one input. Pure: the same arguments give the same step.
///
/// # Errors
/// [`Impossible`] for a pair that cannot be; the job is then left as it was.
pub fn step(job: &Job, given: &Given<'_>, input: Input) -> Result<Step, Impossible> {
    let mut draft = Draft {
        given,
        next: job.clone(),
        events: Vec::new(),
        effects: Vec::new(),
        ended: Vec::new(),
    };
    match input {
        Input::Started => on_started(&mut draft),
        Input::Tick => {}
        Input::Spec(digest) => on_spec(&mut draft, digest),
        Input::File(source) => on_file(&mut draft, source),
        Input::Operator(act) => acts::on_act(&mut draft, act),
        Input::NotAdopted { id, why, told } => adopt::on_refused(&mut draft, &id, &why, told),
        Input::Adopt { cloud, place, mark } => adopt::on_adopt(&mut draft, *cloud, place, mark),
        Input::Sent { no, outcome } => seen::on_sent(&mut draft, no, outcome)?,
        Input::Seen { mark, cloud, past, place } => {
            let sighting = sighting::Sighting { mark, cloud: *cloud, place };
            sighting::on_seen(&mut draft, &sighting, &past);
        }
        Input::Missing { id, same_caller } => lost::on_missing(&mut draft, &id, same_caller),
        Input::Swept(pass) => seen::on_swept(&mut draft, &pass),
        Input::Looked(look) => scan::on_looked(&mut draft, look),
        Input::Watched { no, look } => {
            if !lost::takes_look(&mut draft, no, &look) {
                let taken = watch::on_watched(&mut draft, no, &look);
                hang::on_watched(&mut draft, no, &look, taken);
            }
        }
        Input::PodsLooked { no, look } => hang::on_pods_looked(&mut draft, no, &look),
        Input::TrackerWritten(outcome) => tracker::on_written(&mut draft, outcome),
        Input::Logs { ended, pods } => seen::on_logs(&mut draft, *ended, &pods),
    }
    let is_as_given =
        draft.next.spec == job.spec && draft.next.offer.placement == job.offer.placement;
    let wake_at = if is_as_given {
        advance(&mut draft);
        wake_at(&draft.next, given)
    } else {
        // `given` has the old spec or placement: what is due is decided at once, but under the new one.
        Some(given.now.boot)
    };
    Ok(Step {
        next: draft.next,
        events: draft.events,
        effects: draft.effects,
        ended: draft.ended,
        wake_at,
    })
}

/// A new process: boot times mean nothing any more, nothing of ours is under way, and a CreateJob
/// without an outcome may have been sent.
fn on_started(draft: &mut Draft<'_>) {
    let boot = draft.given.now.boot;
    for attempt in &mut draft.next.open {
        match &mut attempt.state {
            AttemptState::Intended => {
                attempt.state = AttemptState::Unknown { since: boot, passes: 0 };
            }
            AttemptState::Unknown { since, passes } => {
                *since = boot;
                *passes = 0;
            }
            // The answer to a look that an earlier process asked for never comes.
            AttemptState::Live { recheck, missing, watch, hang, .. } => {
                watch.forget_clock();
                hang.forget_clock(boot);
                match missing {
                    Missing::Since { .. } | Missing::Long { .. } => {
                        *missing = Missing::Since { since: boot, passes: 0 };
                    }
                    Missing::No => {}
                }
                match *recheck {
                    Recheck::Due { tries, .. } | Recheck::Asked { tries } => {
                        *recheck = Recheck::Due { tries, at: boot };
                    }
                    Recheck::NotDue => {}
                }
            }
        }
    }
    draft.next.recovery = match draft.next.recovery {
        Recovery::Waiting { delay, .. } => Recovery::Waiting { delay, until: boot.plus(delay) },
        // Whether the tracker was written is looked up before it is written again.
        Recovery::Look { .. }
        | Recovery::Settling { .. }
        | Recovery::Ready { .. }
        | Recovery::Repairing { .. }
        | Recovery::NotRepaired { .. } => Recovery::look(),
    };
    // What waited may run by now, and what hung may go on: it is looked at first.
    stops::on_started(draft);
}

fn on_spec(draft: &mut Draft<'_>, digest: Digest) {
    if draft.next.spec == digest {
        return;
    }
    draft.next.spec = digest;
    waiting::forget(&mut draft.next);
    draft.say(None, Word::SpecChanged, "the job file changed; the next attempt uses the new spec");
    if draft.next.block.take().is_some() {
        draft.say(None, Word::Operator, "the block is lifted: the spec is another one");
    }
    draft.next.progress.hopeless = 0;
    if draft.next.open.is_empty() {
        draft.next.look_next(draft.given.now.boot);
    }
}

fn on_file(draft: &mut Draft<'_>, source: Source) {
    if draft.next.source == source {
        return;
    }
    draft.next.source = source;
    let text = match source {
        Source::File => "the job file is back",
        Source::Unmanaged => "the job file is gone; the job goes on under its last accepted spec",
    };
    draft.say(None, Word::SpecChanged, text);
}

/// Does what is due by itself.
fn advance(draft: &mut Draft<'_>) {
    recheck::ask_if_due(draft);
    watch::ask_if_due(draft);
    hang::ask_if_due(draft);
    lost::ask_if_due(draft);
    // While the tracker is being written nothing else is decided: the answer always comes.
    if !draft.next.open.is_empty() || draft.next.result.is_some() || draft.next.is_repairing() {
        return;
    }
    if draft.next.wanted == Wanted::Cancel {
        if draft.given.gate.new_store.is_some() {
            // Something that an earlier store sent may still arrive; it would have to be stopped.
            return;
        }
        draft.finish(OutcomeKind::Cancelled, "cancelled; nothing of it runs");
        return;
    }
    // A bucket that could not be looked into is tried again: somebody may have mended it.
    let blocked = draft.next.block.as_ref().is_some_and(|b| b.kind != BlockKind::CannotLook);
    // An end is judged whatever a person wants next: history must not wait for a pause to end.
    if blocked || (draft.next.wanted == Wanted::Hold && draft.next.unjudged.is_none()) {
        return;
    }
    // Before the cloud was compared with the record, a look is of no use: an attempt may show up
    // that has to be judged by what is new since.
    let gate = &draft.given.gate;
    if draft.next.unjudged.is_none() && (!gate.verified || gate.new_store.is_some()) {
        return;
    }
    let now = draft.given.now.boot;
    let look_again = match &draft.next.recovery {
        Recovery::Look { asked } => !asked,
        Recovery::Settling { next, .. } => now >= *next,
        Recovery::Waiting { until, .. } | Recovery::NotRepaired { until, .. } => now >= *until,
        Recovery::Repairing { .. } => false,
        Recovery::Ready { looked, .. } => {
            now.since(*looked) > RESUME_POINT_GOOD_FOR
                && may_submit(&draft.next, draft.given).is_ok()
        }
    };
    if look_again {
        ask_look(draft);
    }
    if may_submit(&draft.next, draft.given).is_ok() && !tracker::rewrite_first(draft) {
        intend(draft);
    }
}

/// Asks for a look, or answers at once where there is nothing to look at.
fn ask_look(draft: &mut Draft<'_>) {
    if draft.given.spec.checkpoint.is_none() {
        scan::on_no_checkpoints(draft);
        return;
    }
    match &mut draft.next.recovery {
        Recovery::Look { asked } => *asked = true,
        // The settle state is kept: the next look is compared with it.
        Recovery::Settling { next, .. } => *next = ANSWER_DUE,
        Recovery::Waiting { .. }
        | Recovery::Ready { .. }
        | Recovery::Repairing { .. }
        | Recovery::NotRepaired { .. } => {
            draft.next.recovery = Recovery::Look { asked: true };
        }
    }
    draft.effects.push(Effect::Look);
}

/// Writes the intent of the next attempt. The gate was asked right before.
fn intend(draft: &mut Draft<'_>) {
    let (Recovery::Ready { start, .. }, Some(place)) =
        (draft.next.recovery.clone(), draft.given.gate.place.clone())
    else {
        return;
    };
    let no = draft.next.next_attempt;
    draft.next.next_attempt += 1;
    let from = match &start {
        Start::Fresh => "from the beginning".to_owned(),
        Start::From(point) => match point.step {
            Some(step) => format!("from step {step} ({})", point.path),
            None => format!("from {}", point.path),
        },
    };
    draft.say_with(
        Some(no),
        Word::Intent,
        format!("mark {}, {from}{}", draft.given.mark, draft.next.offer.in_words()),
        serde_json::json!({
            "mark": draft.given.mark, "start": start, "placement": draft.next.offer.placement,
            "bid": draft.next.offer.bid(draft.given.spec).map(|bid| bid.to_string()),
        }),
    );
    let offer = draft.next.offer;
    let (spec, acceptance) = (draft.given.spec, draft.given.gate.acceptance);
    let terms = Terms::of(spec, offer.placement, &start, acceptance);
    draft.next.open.push(Attempt {
        no,
        mark: draft.given.mark.clone(),
        spec: draft.next.spec.clone(),
        target: draft.given.spec.target.clone(),
        place,
        start,
        bid: offer.bid(spec),
        intended: draft.given.now.wall,
        state: AttemptState::Intended,
        stop: None,
        asked: Asked::default(),
        terms: Some(terms),
    });
    draft.next.recovery = Recovery::look();
    draft.next.progress.repairs = 0;
    draft.effects.push(Effect::Create(no));
}

fn wake_at(job: &Job, given: &Given<'_>) -> Option<BootTime> {
    let unknown = job.open.iter().filter_map(|attempt| match attempt.state {
        AttemptState::Unknown { since, .. } => {
            Some(since.plus(attempt.acceptance(given.gate.acceptance)))
        }
        AttemptState::Intended | AttemptState::Live { .. } => None,
    });
    let recovery = if job.open.is_empty() && job.result.is_none() {
        match &job.recovery {
            Recovery::Waiting { until, .. } | Recovery::NotRepaired { until, .. } => Some(*until),
            Recovery::Settling { next, .. } => Some(*next),
            Recovery::Look { .. } | Recovery::Ready { .. } | Recovery::Repairing { .. } => None,
        }
    } else {
        None
    };
    let all = unknown
        .chain(recovery)
        .chain(recheck::due_at(job))
        .chain(watch::due_at(job))
        .chain(hang::due_at(job))
        .chain(lost::due_at(job));
    all.filter(|at| *at > given.now.boot && *at != ANSWER_DUE).min()
}
