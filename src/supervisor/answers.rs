//! Answers to people: records turned into views, and acts that are answered once they are durable.

use super::body;
use super::driver::Driver;
use super::work::Work;
use crate::checkpoint::report;
use crate::core::event::Word;
use crate::core::job::{
    Attempt, AttemptState, EndedAttempt, Job, Recovery, Start, StopWhy, Wanted,
};
use crate::core::phase::{Phase, phase};
use crate::core::step::{Act, Given, Input};
use crate::core::submit::{Hold, may_submit};
use crate::core::terms::Terms;
use crate::core::verdict::{Cause, Verdict};
use crate::dlc::redact::hide_secrets;
use crate::model::checkpoint::Look;
use crate::model::cloud::Status;
use crate::model::handle::{ActVerb, Refusal, Request};
use crate::model::ids::{JobKey, Mark};
use crate::model::time::human;
use crate::model::view::{
    ActReport, AttemptView, DaemonView, EventPage, EventView, JobPage, JobRow, TargetView,
    VerdictView, WhyView,
};
use crate::store::records::StoredEvent;
use std::collections::BTreeMap;

/// Events on a job's page.
const PAGE_EVENTS: usize = 20;
/// Events in one answer.
const EVENTS_LIMIT: usize = 1_000;
/// Passes missed until what is shown is marked stale.
const STALE_AFTER_PASSES: u32 = 3;

impl Driver {
    /// Answers a request; acts go through the store first.
    pub(super) async fn answer(&mut self, request: Request) {
        match request {
            Request::Act { names, verb, reply } => {
                let answer = self.act(&names, verb).await;
                drop(reply.send(answer));
            }
            Request::Checkpoints { name, reply } => match self.checkpoints_of(&name) {
                Ok(look) => {
                    // A look may take a minute: the driver does not wait for it.
                    self.spawn(Box::pin(async move {
                        drop(reply.send(look.await));
                    }));
                }
                Err(refusal) => {
                    drop(reply.send(Err(refusal)));
                }
            },
            Request::Evidence { name, attempt, reply } => {
                match self.find(&name).and_then(|job| self.evidence_of(job, attempt)) {
                    Ok(answers) => self.spawn(Box::pin(async move {
                        drop(reply.send(answers.await));
                    })),
                    Err(refusal) => drop(reply.send(Err(refusal))),
                }
            }
            other @ (Request::Jobs(_)
            | Request::Job { .. }
            | Request::Why { .. }
            | Request::Events { .. }
            | Request::Body { .. }
            | Request::Daemon(_)) => self.answer_from_memory(other),
        }
    }

    /// Answers what needs no store. A reader that went away needs no answer.
    pub(super) fn answer_from_memory(&self, request: Request) {
        match request {
            Request::Jobs(reply) => {
                let rows = self.book.jobs.values().map(|job| self.row(job)).collect();
                drop(reply.send(rows));
            }
            Request::Job { name, reply } => {
                drop(reply.send(self.find(&name).map(|job| self.page(job))));
            }
            Request::Why { name, attempt, reply } => {
                drop(reply.send(self.find(&name).and_then(|job| self.why(job, attempt))));
            }
            Request::Events { job, after, limit, reply } => {
                drop(reply.send(self.events(job.as_deref(), after, limit)));
            }
            Request::Body { name, reply } => {
                drop(reply.send(self.find(&name).and_then(|job| self.next_body(job))));
            }
            Request::Daemon(reply) => {
                drop(reply.send(self.daemon()));
            }
            Request::Act { reply, .. } => {
                let why = self.store_fault.clone().unwrap_or_default();
                drop(reply.send(Err(Refusal::StoreDown(why))));
            }
            Request::Evidence { reply, .. } => {
                let why = self.store_fault.clone().unwrap_or_default();
                drop(reply.send(Err(Refusal::StoreDown(why))));
            }
            Request::Checkpoints { reply, .. } => {
                let why = self.store_fault.clone().unwrap_or_default();
                drop(reply.send(Err(Refusal::StoreDown(why))));
            }
        }
    }

    fn find(&self, name: &str) -> Result<&Job, Refusal> {
        self.book.newest(name).ok_or_else(|| Refusal::NoSuchJob(name.to_owned()))
    }

    async fn act(&mut self, names: &[String], verb: ActVerb) -> Result<Vec<ActReport>, Refusal> {
        let keys: Vec<JobKey> = if names.is_empty() {
            self.book.jobs.values().filter(|j| !j.is_over()).map(|j| j.key.clone()).collect()
        } else {
            let found: Result<_, _> =
                names.iter().map(|name| self.find(name).map(|job| job.key.clone())).collect();
            found?
        };
        let act = match verb {
            ActVerb::Cancel => Act::Cancel,
            ActVerb::Pause => Act::Pause,
            ActVerb::Resume => Act::Resume,
            ActVerb::Retry => Act::Retry,
        };
        for key in &keys {
            self.push(Work::Input(key.clone(), Input::Operator(act)));
        }
        let reloads = self.reloads;
        self.turns().await;
        if self.store_fault.is_some() || self.reloads != reloads {
            let why = self.store_fault.clone().unwrap_or_else(|| "it failed a moment ago".into());
            return Err(Refusal::StoreDown(why));
        }
        Ok(keys.iter().filter_map(|key| self.act_report(key, verb)).collect())
    }

    fn act_report(&self, key: &JobKey, verb: ActVerb) -> Option<ActReport> {
        let job = self.book.jobs.get(key)?;
        let row = self.row(job);
        let done = match (verb, job.wanted) {
            (ActVerb::Cancel, Wanted::Cancel) if job.is_over() => {
                "cancelled; nothing of it runs".to_owned()
            }
            (ActVerb::Cancel, Wanted::Cancel) if job.open.is_empty() => {
                "cancelled; nothing more is submitted, and the cloud is searched for what an \
                 earlier store may have sent"
                    .to_owned()
            }
            (ActVerb::Cancel, Wanted::Cancel) => format!(
                "cancelled; nothing more is submitted, the end of attempt {} is awaited",
                job.open.iter().map(|a| a.no.to_string()).collect::<Vec<_>>().join(", ")
            ),
            (ActVerb::Pause | ActVerb::Resume, Wanted::Run | Wanted::Hold) if job.is_over() => {
                format!("nothing to do: it is {}; `spotkeeper retry` starts it again", row.phase)
            }
            (ActVerb::Pause, Wanted::Hold) => {
                "paused; what runs goes on, nothing is submitted".to_owned()
            }
            (ActVerb::Resume | ActVerb::Retry, Wanted::Run) => "goes on".to_owned(),
            (ActVerb::Cancel | ActVerb::Pause | ActVerb::Resume | ActVerb::Retry, _) => {
                format!("nothing to do: it is {}", row.phase)
            }
        };
        Some(ActReport { job: key.name.to_string(), phase: row.phase, text: done })
    }

    /// Every reason why nothing is submitted for a job now.
    fn holds(&self, job: &Job) -> Vec<Hold> {
        if let Some(why) = self.book.parked.get(&job.key) {
            return vec![Hold::Blocked(format!("a step panicked, it is parked: {why}"))];
        }
        let Some(spec) = self.book.spec_of(job) else {
            return vec![Hold::Blocked("its accepted spec cannot be read".to_owned())];
        };
        let given = Given {
            now: self.clock.now(),
            spec: &spec,
            gate: self.book.gate(job, &spec, &BTreeMap::new()),
            mark: Mark::from_random([0; 10]),
        };
        may_submit(job, &given).err().unwrap_or_default()
    }

    /// The holds as a person reads them. While an attempt is open, or when all is over, nobody looks
    /// for a resume point, and that there is none says nothing.
    fn shown_holds(&self, job: &Job) -> Vec<String> {
        let looks = job.open.is_empty() && job.result.is_none();
        let holds = self.holds(job).into_iter();
        holds
            .filter(|hold| looks || !matches!(hold, Hold::NoResumePoint(_) | Hold::Backoff { .. }))
            .map(|hold| hold.to_string())
            .collect()
    }

    fn row(&self, job: &Job) -> JobRow {
        let now = self.clock.now();
        let holds = self.holds(job);
        // A parked job is left alone whatever its attempt does: a person has to know.
        let parked = self.book.parked.contains_key(&job.key);
        let phase = if parked { Phase::Blocked } else { phase(job, &holds, now) };
        let spec = self.book.spec_of(job);
        let target = spec.as_ref().map(|spec| spec.target.to_string()).unwrap_or_default();
        let open = job.open.last();
        let place = open
            .map(|attempt| attempt.place.clone())
            .or_else(|| Some(self.book.targets.get(&spec.as_ref()?.target)?.place.clone()));
        let seen = place.as_ref().and_then(|place| self.book.places.get(place));
        let last_look = seen.and_then(|s| s.last_pass).map(|at| now.boot.since(at));
        let late = self.effects.interval() * STALE_AFTER_PASSES;
        let stale = match last_look {
            Some(age) => age > late,
            None => now.boot.since(self.book.started.boot) > late,
        };
        let shown = open.and_then(|attempt| attempt.state.shown());
        let running = match open.map(|attempt| &attempt.state) {
            Some(AttemptState::Live { running, runs, .. }) => runs.goes_on_since().or(*running),
            Some(AttemptState::Intended | AttemptState::Unknown { .. }) | None => None,
        };
        let is_odd = matches!(shown, Some(Status::Other(_)));
        JobRow {
            name: job.key.name.to_string(),
            run: job.key.run,
            phase: phase.word().to_owned(),
            stale: (stale || is_odd) && !job.is_over(),
            last_look_s: last_look.map(|age| age.as_secs()),
            why: why_in_a_row(job, phase, &holds),
            vendor_status: shown.map(|status| status.word().to_owned()),
            step: job.progress.best_step,
            attempts: job.created,
            releases: job.tally.releases,
            errors: job.tally.errors,
            restarts: job.tally.restarts,
            up_s: running.map(|since| now.wall.since(since).as_secs()),
            ran_s: job.progress.ran.as_secs(),
            managed: job.source == crate::core::job::Source::File,
            target,
            next: self.next_in_words(job, phase),
        }
    }

    /// What happens next by itself.
    fn next_in_words(&self, job: &Job, phase: Phase) -> String {
        let now = self.clock.now().boot;
        let shown = job.open.last().and_then(|attempt| attempt.state.shown());
        if shown.is_some_and(|status| status.holds_machine()) && phase != Phase::Stopping {
            return "await the final word".to_owned();
        }
        match phase {
            Phase::Blocked => format!("spotkeeper why {}", job.key.name),
            Phase::Backoff | Phase::Pending | Phase::Recovering => match &job.recovery {
                Recovery::Waiting { until, .. } => {
                    format!("look and submit in {}", human(until.since(now)))
                }
                Recovery::Settling { next, .. } if next.0 != u64::MAX => {
                    format!("look again in {}", human(next.since(now)))
                }
                Recovery::Settling { .. } | Recovery::Look { .. } => "look, then submit".to_owned(),
                Recovery::Ready { .. } => "submit".to_owned(),
            },
            Phase::Submitting
            | Phase::Waiting
            | Phase::Starting
            | Phase::Running
            | Phase::Stalled
                if job.wanted == Wanted::Hold =>
            {
                "stay paused after it".to_owned()
            }
            Phase::Submitting
            | Phase::Waiting
            | Phase::Starting
            | Phase::Running
            | Phase::Stalled
            | Phase::Stopping
            | Phase::Paused
            | Phase::Succeeded
            | Phase::Failed
            | Phase::Cancelled
            | Phase::Lost => String::new(),
        }
    }

    fn page(&self, job: &Job) -> JobPage {
        let spec = self.book.spec_of(job);
        let ended = self.book.ended.get(&job.key);
        let open = job.open.iter().rev().map(open_view);
        let ended = ended.into_iter().flatten().rev().map(ended_view);
        JobPage {
            row: self.row(job),
            holds: self.shown_holds(job),
            checkpoints: spec
                .and_then(|spec| spec.checkpoint.as_ref().map(|c| c.location.to_string())),
            spec: job.spec.0.clone(),
            attempts: open.chain(ended).collect(),
            events: self.log.last_of(&job.key, PAGE_EVENTS).iter().map(event_view).collect(),
        }
    }

    fn why(&self, job: &Job, no: Option<u32>) -> Result<WhyView, Refusal> {
        let ended = self.book.ended.get(&job.key);
        let created = |e: &&EndedAttempt| e.verdict.cause != Cause::NeverCreated;
        let attempt = match no {
            None => ended.into_iter().flatten().rev().find(created).map(ended_view),
            Some(no) => {
                let ended = ended.into_iter().flatten().find(|e| e.attempt.no == no);
                let open = job.open.iter().find(|a| a.no == no).map(open_view);
                Some(
                    ended
                        .map(ended_view)
                        .or(open)
                        .ok_or_else(|| Refusal::NoSuchAttempt(job.key.name.to_string(), no))?,
                )
            }
        };
        let events = self.log.last_of(&job.key, EVENTS_LIMIT);
        let checkpoint = checkpoint_for(no, &events);
        let row = self.row(job);
        Ok(WhyView {
            attempt,
            checkpoint: checkpoint.map(|e| e.event.data.clone()).unwrap_or_default(),
            holds: self.shown_holds(job),
            next: row.next.clone(),
            ends_without_progress: job.progress.ends,
            row,
        })
    }

    fn events(&self, job: Option<&str>, after: u64, limit: usize) -> Result<EventPage, Refusal> {
        if let Some(name) = job {
            self.find(name)?;
        }
        let (found, gap) = self.log.after(job, after, limit.min(EVENTS_LIMIT));
        let next_after = found.last().map_or(self.log.last().max(after), |e| e.sequence);
        Ok(EventPage { events: found.iter().map(event_view).collect(), next_after, gap })
    }

    fn next_body(&self, job: &Job) -> Result<serde_json::Value, Refusal> {
        let spec = self
            .book
            .spec_of(job)
            .ok_or_else(|| Refusal::NotNow("its accepted spec cannot be read".to_owned()))?;
        let gate = self.book.gate(job, &spec, &BTreeMap::new());
        let place = gate
            .place
            .ok_or_else(|| Refusal::NotNow(format!("there is no target `{}`", spec.target)))?;
        let start = match &job.recovery {
            Recovery::Ready { start, .. } => start.clone(),
            Recovery::Look { .. } | Recovery::Settling { .. } | Recovery::Waiting { .. } => {
                job.open.last().map_or(Start::Fresh, |attempt| attempt.start.clone())
            }
        };
        let attempt = Attempt {
            no: job.next_attempt,
            mark: Mark::from_random([0; 10]),
            spec: job.spec.clone(),
            target: spec.target.clone(),
            place,
            terms: Some(Terms::of(&spec, &start, gate.acceptance)),
            start,
            bid: spec.spot,
            intended: self.clock.now().wall,
            state: AttemptState::Intended,
            stop: None,
        };
        let body = body::build(&self.book.owner, &job.key, &attempt, &spec)
            .map_err(|error| Refusal::NotNow(super::driver::chain(&error)))?;
        // What a person wrote into the job file stays there: a body is shown to more people.
        let mut body = hide_secrets(&serde_json::Value::Object(body));
        if let Some(envs) = body.get_mut("Envs").and_then(serde_json::Value::as_object_mut) {
            for (variable, name) in &spec.secret_envs {
                envs.insert(variable.clone(), format!("(secret {name})").into());
            }
        }
        Ok(body)
    }

    fn checkpoints_of(
        &self,
        name: &str,
    ) -> Result<impl Future<Output = Result<serde_json::Value, Refusal>> + Send + use<>, Refusal>
    {
        let job = self.find(name)?;
        let spec = self
            .book
            .spec_of(job)
            .filter(|spec| spec.checkpoint.is_some())
            .ok_or_else(|| Refusal::NotNow(format!("job `{name}` has no [checkpoint]")))?;
        let place = self.book.targets.get(&spec.target).map(|target| target.place.clone());
        let effects = self.effects.clone();
        Ok(async move {
            match effects.look(&spec, place.as_ref()).await {
                Look::CouldNotLook { why, .. } => {
                    Err(Refusal::NotNow(format!("could not look: {why}")))
                }
                Look::Done(findings) => {
                    let template = spec
                        .checkpoint
                        .as_ref()
                        .and_then(|checkpoint| checkpoint.resume.as_deref());
                    report::json(&findings, template, &[])
                        .map_err(|error| Refusal::NotNow(error.to_string()))
                }
            }
        })
    }

    fn daemon(&self) -> DaemonView {
        let now = self.clock.now();
        let troubles = self.effects.keychain.troubles();
        let targets = self.book.targets.values().map(|target| {
            let keys = troubles.iter().find(|t| t.reference == target.place.credentials);
            let state = self.book.places.get(&target.place);
            TargetView {
                name: target.name.to_string(),
                verified: state.is_some_and(super::place::PlaceState::verified),
                last_sweep_s: state
                    .and_then(|s| s.last_pass)
                    .map(|at| now.boot.since(at).as_secs()),
                fault: state
                    .and_then(|s| s.other_writer.clone())
                    .or_else(|| self.effects.outages.at(&target.place, now.boot))
                    .or_else(|| keys.map(ToString::to_string)),
            }
        });
        DaemonView {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            owner: self.book.owner.to_string(),
            pid: std::process::id(),
            uptime_s: now.boot.since(self.book.started.boot).as_secs(),
            targets: targets.collect(),
            refused_files: self.file_errors.clone(),
        }
    }
}

/// The last CHECKPOINT event; of an attempt, the last one before the next attempt was decided.
fn checkpoint_for(no: Option<u32>, events: &[StoredEvent]) -> Option<&StoredEvent> {
    let decided = |e: &StoredEvent| e.event.word == Word::Intent && e.event.attempt > no;
    let end = no.and_then(|_| events.iter().position(decided));
    let until = &events[..end.unwrap_or(events.len())];
    until.iter().rev().find(|e| e.event.word == Word::Checkpoint)
}

/// Why a job is in its phase, in one line; never empty but for RUNNING and SUCCEEDED.
fn why_in_a_row(job: &Job, phase: Phase, holds: &[Hold]) -> String {
    if let Some(why) = job.open.last().and_then(|attempt| why_of_status(attempt, phase)) {
        return why;
    }
    match phase {
        Phase::Running | Phase::Succeeded => return String::new(),
        Phase::Failed | Phase::Cancelled => {
            if let Some(result) = &job.result {
                return result.why.clone();
            }
        }
        Phase::Blocked => {
            if let Some(hold) = holds.iter().find(|hold| hold.needs_person()) {
                return hold.to_string();
            }
        }
        Phase::Waiting | Phase::Starting | Phase::Stopping | Phase::Submitting => {
            if let Some(attempt) = job.open.last() {
                return match &attempt.state {
                    AttemptState::Live { status, .. } => {
                        format!("attempt {} is {}", attempt.no, status.word())
                    }
                    AttemptState::Intended => format!("attempt {} is being sent", attempt.no),
                    AttemptState::Unknown { .. } => {
                        format!("attempt {} may exist: searching", attempt.no)
                    }
                };
            }
        }
        Phase::Pending
        | Phase::Stalled
        | Phase::Recovering
        | Phase::Backoff
        | Phase::Paused
        | Phase::Lost => {}
    }
    holds.first().map_or_else(|| "about to be submitted".to_owned(), ToString::to_string)
}

/// What the vendor's word says that the phase does not.
fn why_of_status(attempt: &Attempt, phase: Phase) -> Option<String> {
    let (no, status) = (attempt.no, attempt.state.shown()?);
    let word = status.word();
    if attempt.stop == Some(StopWhy::Outdated) {
        let why = "it was restarted in place from an older checkpoint than the newest whole one";
        return Some(format!("attempt {no} is {word} and was asked to stop: {why}"));
    }
    if matches!(status, Status::Other(_)) {
        let known = format!("attempt {no} shows `{word}`, a word spotkeeper does not know");
        return Some(format!("{known}: still active; the phase is the last that was known"));
    }
    if status.holds_machine() && phase != Phase::Stopping {
        let held = format!("attempt {no} is {word}: its result is decided, machine still held");
        return Some(format!("{held} and perhaps paid for; the final word is awaited"));
    }
    if status == Status::Restarting && phase != Phase::Stopping {
        return Some(format!("attempt {no} is Restarting: the platform restarts it in place"));
    }
    None
}

fn open_view(attempt: &Attempt) -> AttemptView {
    let state = match &attempt.state {
        AttemptState::Intended => "intended",
        AttemptState::Unknown { .. } => "unknown",
        AttemptState::Live { .. } => "live",
    };
    let status = attempt.state.shown().map(|status| status.word().to_owned());
    AttemptView { state: state.to_owned(), status, ..attempt_view(attempt) }
}

fn ended_view(ended: &EndedAttempt) -> AttemptView {
    let never = ended.verdict.cause == Cause::NeverCreated;
    AttemptView {
        id: ended.id.as_ref().map(ToString::to_string),
        state: if never { "never_created" } else { "ended" }.to_owned(),
        ended: Some(ended.ended.to_string()),
        ran_s: Some(ended.ran.as_secs()),
        verdict: Some(verdict_view(&ended.verdict)),
        ..attempt_view(&ended.attempt)
    }
}

/// What an attempt shows whether it is open or not.
fn attempt_view(attempt: &Attempt) -> AttemptView {
    let point = match &attempt.start {
        Start::Fresh => None,
        Start::From(point) => Some(point),
    };
    AttemptView {
        no: attempt.no,
        mark: attempt.mark.to_string(),
        id: attempt.id().map(ToString::to_string),
        state: String::new(),
        status: None,
        from_step: point.and_then(|point| point.step),
        from_path: point.map(|point| point.path.clone()),
        intended: attempt.intended.to_string(),
        ended: None,
        ran_s: None,
        verdict: None,
        stop_asked: attempt.stop.is_some(),
        restarts: attempt.restarts(),
    }
}

fn verdict_view(verdict: &Verdict) -> VerdictView {
    VerdictView {
        cause: verdict.cause.word().to_owned(),
        rule: verdict.rule.clone(),
        evidence: verdict.evidence.clone(),
    }
}

fn event_view(stored: &StoredEvent) -> EventView {
    let word = serde_json::to_value(stored.event.word).unwrap_or_default();
    EventView {
        sequence: stored.sequence,
        at: stored.event.at.to_string(),
        job: stored.job.name.to_string(),
        run: stored.job.run,
        attempt: stored.event.attempt,
        word: word.as_str().unwrap_or_default().to_owned(),
        text: stored.event.text.clone(),
        data: stored.event.data.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::event::Event;
    use crate::model::ids::{JobName, Run};
    use crate::model::time::WallTime;

    #[test]
    fn an_attempt_is_explained_by_the_look_after_it_and_not_by_a_later_one() {
        let key = JobKey { name: JobName::new("a").expect("a name"), run: 1 as Run };
        let event = |sequence, attempt, word| StoredEvent {
            sequence,
            job: key.clone(),
            event: Event { at: WallTime(0), attempt, word, text: String::new(), data: ().into() },
        };
        let events = [
            event(1, Some(1), Word::Intent),
            event(2, Some(1), Word::Ended),
            event(3, None, Word::Checkpoint),
            event(4, Some(2), Word::Intent),
            event(5, Some(2), Word::Ended),
            event(6, None, Word::Checkpoint),
        ];
        let found = |no| checkpoint_for(no, &events).map(|e| e.sequence);
        assert_eq!([found(Some(1)), found(Some(2)), found(None)], [Some(3), Some(6), Some(6)]);
        assert_eq!(checkpoint_for(Some(1), &events[..2]).map(|e| e.sequence), None);
    }
}
