//! What must hold after every step. Kept on the model's own books, which know what the program
//! cannot: whether a request that had no answer was accepted, and why a job really ended.

use super::clock::MINUTE;
use super::cloud::{Origin, Remote, Truth};
use super::table::{Situation, Table};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{Attempt, AttemptState, Job, OutcomeKind, Recovery, Start, Wanted};
use spotkeeper::core::step::{Act, Given, Input, Step};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::ids::{CloudId, JobKey};
use spotkeeper::model::time::BootTime;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Which.
    pub(crate) invariant: &'static str,
    pub(crate) what: String,
}

pub(crate) const TWICE: &str = "at most one attempt not ended";
pub(crate) const TWIN: &str = "a late twin is ended within two sweeps";
pub(crate) const FOUND: &str = "every accepted submission is known or found again";
pub(crate) const INTENT: &str = "no submission without a durable intent";
pub(crate) const PREFIX: &str = "at most one writer per checkpoint prefix";
pub(crate) const CANCEL: &str = "cancel wins";
pub(crate) const FINAL: &str = "success is final";
pub(crate) const BUDGET: &str = "budgets are kept";
pub(crate) const ONE_NODE: &str = "one released node of many is no user error";
pub(crate) const WAKE: &str = "a job that can go on has a next wake-up";
pub(crate) const RESUME: &str = "no resume from a refused checkpoint, none from an older one";
pub(crate) const RELOAD: &str = "state after reload = state before";
pub(crate) const COPY: &str = "a person's copy is left alone";
pub(crate) const RESTARTS: &str = "each restart in place is told once";
pub(crate) const LOST: &str = "lost only after long, and over a prefix that stands still";
pub(crate) const OVERLAP: &str = "no resume from a checkpoint written while two attempts ran";
pub(crate) const HANG: &str = "nothing that goes on is stopped for a hang";
pub(crate) const POSSIBLE: &str = "no impossible pair, no panic, no record too large";

/// Below the 15 minutes of the core by what one transient answer before may add.
const LOST_AFTER: u64 = 12 * MINUTE;

/// A run of this length is progress where there are no checkpoints.
const LONG_RUN: Duration = Duration::from_secs(30 * 60);

/// Whether the later of two was sent when nothing told where the earlier one writes.
fn in_ignorance(one: &Remote, other: &Remote) -> bool {
    one.sent.in_ignorance_of(other) || other.sent.in_ignorance_of(one)
}

/// What a person says of a job that was over.
fn is_persons(input: &Input) -> bool {
    is_retry(input) || matches!(input, Input::Adopt { .. })
}

fn is_retry(input: &Input) -> bool {
    matches!(input, Input::Operator(Act::Retry | Act::RetryFrom(_)))
}

/// The model's own books.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    pub(crate) broken: Option<Broken>,
    pub(crate) table: Table,
    pub(crate) inputs: u64,
    /// Jobs whose cancel is durable.
    pub(crate) cancelled: BTreeSet<JobKey>,
    /// The newest whole checkpoint when the last look of a job was made.
    pub(crate) shown: BTreeMap<JobKey, Option<u64>>,
    /// Attempts that were seen to save something new while they ran.
    pub(crate) gained: BTreeSet<(JobKey, u32)>,
    /// Why each cloud job ended.
    pub(crate) truths: BTreeMap<CloudId, Truth>,
    /// Restarts in place that were told.
    pub(crate) told: BTreeMap<CloudId, u32>,
    /// Cloud jobs that once were not known: one that comes back begins a record of its own.
    pub(crate) vanished: BTreeSet<CloudId>,
    /// Twins that were followed.
    pub(crate) returned: BTreeSet<CloudId>,
    /// Cloud jobs that were noted as copies or strangers.
    pub(crate) noted: BTreeSet<CloudId>,
    /// When a person last let a job start again, and from where they alone say.
    pub(crate) retried: BTreeMap<JobKey, BootTime>,
    pub(crate) asked_from: BTreeSet<JobKey>,
    /// Looks and sends under way in this process.
    pub(crate) looking: BTreeSet<JobKey>,
    pub(crate) sending: BTreeSet<(JobKey, u32)>,
    /// Whether a state folder was lost: what it alone knew is not asked for.
    pub(crate) wiped: bool,
    pub(crate) outdated: bool,
    /// Whether an attempt was stopped because it hung.
    pub(crate) hung: bool,
    /// Whether an attempt was stopped because it waited for too long.
    pub(crate) waited: bool,
}

impl Judge {
    pub(crate) fn broke(&mut self, invariant: &'static str, what: impl Into<String>) {
        self.broken.get_or_insert(Broken { invariant, what: what.into() });
    }

    /// A step was decided; it is not durable yet.
    pub(crate) fn decided(&mut self, job: &Job, given: &Given<'_>, input: &Input, step: &Step) {
        self.is_final(job, input, step);
        self.counts_are_kept(job, given, input, step);
        for ended in &step.ended {
            let truth = ended.id.as_ref().and_then(|id| self.truths.get(id));
            if ended.verdict.cause == Cause::UserError
                && let Some(truth) = truth
                && *truth != Truth::UserError
            {
                self.broke(ONE_NODE, format!("{:?} was {truth:?}", ended.id));
            }
        }
        if is_persons(input) && step.next.wanted == Wanted::Run {
            self.cancelled.remove(&job.key);
        }
        if is_retry(input) {
            self.retried.insert(job.key.clone(), given.now.boot);
            if matches!(input, Input::Operator(Act::RetryFrom(_))) {
                self.asked_from.insert(job.key.clone());
            }
        }
        for copy in step.next.copies.iter().filter(|copy| !job.copies.contains(copy)) {
            self.noted.insert(copy.clone());
        }
    }

    fn is_final(&mut self, job: &Job, input: &Input, step: &Step) {
        let Some(result) = &job.result else { return };
        let persons = is_persons(input);
        // A new store learns of history in the order of the list.
        let history = self.wiped && matches!(input, Input::Seen { .. });
        if result.kind == OutcomeKind::Succeeded
            && step.next.result.as_ref() != Some(result)
            && !persons
            && !history
        {
            self.broke(FINAL, format!("{} went on after success", job.key));
        }
    }

    /// Ends without progress are counted until there is progress, or a person says otherwise.
    fn counts_are_kept(&mut self, job: &Job, given: &Given<'_>, input: &Input, step: &Step) {
        let (before, after) = (&job.progress, &step.next.progress);
        let chosen = match input {
            Input::Looked(Look::Done(findings))
            | Input::Watched { look: Look::Done(findings), .. } => {
                findings.chosen.as_ref().map(|p| p.position)
            }
            _ => None,
        };
        let attempt = match input {
            Input::Watched { no, .. } => job.open.iter().find(|attempt| attempt.no == *no),
            _ => job.unjudged.as_ref().map(|ended| &ended.attempt),
        };
        let start = attempt.and_then(|attempt| attempt.start.position());
        // After a step back what was best is not chosen again.
        let stepped_back = !before.suspicion.marked().is_empty();
        let best = if stepped_back { start } else { before.best.max(start) };
        // An answer says nothing that comes after the end of its attempt, beside a twin, or while
        // nobody knows whether it runs.
        let is_alone = job.open.len() == 1 && Situation::of(job) != Situation::Missing;
        let is_late = matches!(input, Input::Watched { .. }) && (attempt.is_none() || !is_alone);
        let is_new = !is_late && chosen.is_some_and(|position| Some(position) > best);
        if let Input::Watched { no, .. } = input
            && is_new
        {
            self.gained.insert((job.key.clone(), *no));
        }
        let ended = job.unjudged.as_ref().map(|ended| (job.key.clone(), ended.attempt.no));
        // Without checkpoints a long run is progress.
        let mut ends = job.unjudged.iter().chain(&step.ended);
        let ran_long = given.spec.checkpoint.is_none() && ends.any(|end| end.ran >= LONG_RUN);
        let gained =
            is_new || ran_long || ended.is_some_and(|attempt| self.gained.contains(&attempt));
        if after.ends < before.ends && !gained && !is_retry(input) {
            self.broke(BUDGET, format!("{} ends became {}", before.ends, after.ends));
        }
        let counted = job.unjudged.as_ref().is_some_and(|ended| {
            matches!(ended.verdict.cause, Cause::Released | Cause::UserError | Cause::Unexplained)
        });
        let judged = counted && step.next.unjudged.is_none() && job.open.is_empty();
        if judged && gained && after.ends != 0 && !is_persons(input) {
            self.broke(BUDGET, format!("{} ends after a new whole checkpoint", after.ends));
        }
        let no_gain = given.spec.checkpoint.is_some()
            && !gained
            && chosen.is_none_or(|p| Some(p) <= before.best);
        let looked = matches!(input, Input::Looked(Look::Done(_)));
        if judged && looked && no_gain && step.next.block.is_none() && after.ends != before.ends + 1
        {
            self.broke(
                BUDGET,
                format!("an end without progress: {} became {}", before.ends, after.ends),
            );
        }
    }

    /// A step is durable and is what memory holds.
    pub(crate) fn settled(&mut self, job: &Job, now: BootTime, wake: bool) {
        self.outdated |=
            job.open.iter().any(|a| a.stop == Some(spotkeeper::core::job::StopWhy::Outdated));
        self.waited |= job.open.iter().any(spotkeeper::core::job::Attempt::stops_for_a_wait);
        if job.wanted == Wanted::Cancel {
            self.cancelled.insert(job.key.clone());
        }
        for attempt in &job.open {
            let missing = match attempt.state {
                AttemptState::Intended => !self.sending.contains(&(job.key.clone(), attempt.no)),
                AttemptState::Unknown { .. } | AttemptState::Live { .. } => false,
            };
            if missing {
                self.broke(WAKE, format!("nobody sends attempt {} of {}", attempt.no, job.key));
            }
        }
        if !job.open.is_empty() || job.result.is_some() || job.wanted != Wanted::Run {
            return;
        }
        if job.block.is_some() {
            return;
        }
        let awaited = match job.recovery {
            Recovery::Look { asked: true } => self.looking.contains(&job.key),
            Recovery::Settling { next, .. } if next.0 == u64::MAX => {
                self.looking.contains(&job.key)
            }
            // Once it is due, whatever opens the gate looks at it: each pass does.
            Recovery::Settling { next: due, .. }
            | Recovery::Waiting { until: due, .. }
            | Recovery::NotRepaired { until: due, .. } => wake || due <= now,
            // Nobody allowed it here.
            Recovery::Repairing { .. } => false,
            Recovery::Look { asked: false } | Recovery::Ready { .. } => true,
        };
        if !awaited {
            self.broke(WAKE, format!("{}: {:?}, and nothing is awaited", job.key, job.recovery));
        }
    }

    /// A CreateJob goes out.
    pub(crate) fn sends(&mut self, job: &Job, no: u32, durable: Option<&Job>) -> Option<Attempt> {
        let find = |job: &Job| job.open.iter().find(|attempt| attempt.no == no).cloned();
        let attempt = durable.and_then(find);
        if attempt.as_ref().is_none_or(|a| a.state != AttemptState::Intended) {
            self.broke(INTENT, format!("attempt {no} of {} is {attempt:?}", job.key));
        }
        if self.cancelled.contains(&job.key) {
            self.broke(CANCEL, format!("attempt {no} of {} is sent after its cancel", job.key));
        }
        if let Some(result) = &job.result {
            self.broke(FINAL, format!("{} is sent after it {:?}", job.key, result.kind));
        }
        attempt.or_else(|| find(job))
    }

    /// What the attempt starts from.
    pub(crate) fn starts(&mut self, job: &JobKey, start: &Start, is_whole: impl Fn(u64) -> bool) {
        let shown = self.shown.get(job).copied().flatten();
        let from = match start {
            Start::Fresh => None,
            Start::From(point) => point.step,
        };
        if let Some(step) = from
            && !is_whole(step)
        {
            self.broke(RESUME, format!("{job} resumes from step {step}, which is not whole"));
        }
        if from < shown {
            self.broke(RESUME, format!("{job} starts from {from:?}, and {shown:?} is whole"));
        }
    }

    pub(crate) fn told(&mut self, events: &[spotkeeper::store::records::StoredEvent]) {
        for stored in events.iter().filter(|e| e.event.word == Word::RestartedInPlace) {
            let data = &stored.event.data;
            let Some(id) = data["id"].as_str().and_then(|id| CloudId::new(id).ok()) else {
                return self.broke(RESTARTS, format!("no id: {data}"));
            };
            if self.vanished.contains(&id) {
                continue;
            }
            let told = self.told.entry(id).or_default();
            *told += 1;
            if data["restart"] != *told {
                let what = format!("{data} is the {told}th");
                self.broke(RESTARTS, what);
            }
        }
        for stored in events.iter().filter(|e| e.event.word == Word::Alarm) {
            let text = &stored.event.text;
            if text.starts_with("cannot be") || text.contains("is parked") {
                self.broke(POSSIBLE, text.clone());
            }
        }
    }

    /// An attempt that still ran was given up.
    pub(crate) fn lost(&mut self, id: &CloudId, gone_for: u64, still_for: Option<u64>) {
        let is_long = |ms: u64| ms >= LOST_AFTER;
        if !is_long(gone_for) || still_for.is_some_and(|ms| !is_long(ms)) {
            let what =
                format!("{id} is gone for {gone_for} ms, its prefix still for {still_for:?}");
            self.broke(LOST, what);
        }
    }

    /// The cloud as a whole.
    pub(crate) fn cloud(&mut self, remotes: &[Remote], overlaps: impl Fn(usize, usize) -> bool) {
        let alive: Vec<&Remote> =
            remotes.iter().filter(|r| r.is_alive() && r.origin == Origin::Ours).collect();
        for (n, one) in alive.iter().enumerate() {
            for other in &alive[n + 1..] {
                let ids = || format!("{} and {}", one.cloud.id, other.cloud.id);
                if one.job == other.job {
                    self.broke(TWICE, ids());
                } else if overlaps(one.job, other.job) && !in_ignorance(one, other) {
                    self.broke(PREFIX, ids());
                }
            }
        }
        let twins = remotes.iter().filter(|r| r.origin == Origin::Late && r.is_alive());
        for twin in twins.filter(|twin| twin.passes > 3 && !twin.stop_asked && !self.wiped) {
            let beside = alive.iter().any(|o| o.job == twin.job || overlaps(o.job, twin.job));
            // One that came so late that it was not proved ours holds the job instead, until a
            // person says otherwise.
            if beside && !self.noted.contains(&twin.cloud.id) {
                let what = format!("{} was shown by {} passes", twin.cloud.id, twin.passes);
                return self.broke(TWIN, what);
            }
        }
    }
}
