//! Answers to people: what they ask is looked up, and acts are answered once they are durable.

use super::adoptions::Asker;
use super::body;
use super::driver::Driver;
use super::effects::Looking;
use super::views::{
    checkpoint_for, ended_view, event_view, open_view, other_attempts, progress_view,
    suspect_views, waiting_view, why_in_a_row,
};
use crate::checkpoint::report::{self, Mendable};
use crate::core::hang;
use crate::core::job::{Attempt, AttemptState, EndedAttempt, Job, Recovery, Start, Wanted};
use crate::core::phase::{Phase, phase};
use crate::core::step::Given;
use crate::core::submit::{Hold, may_submit};
use crate::core::terms::Terms;
use crate::core::verdict::Cause;
use crate::core::waiting;
use crate::core::watch::at_risk;
use crate::dlc::redact::hide_secrets;
use crate::model::checkpoint::Look;
use crate::model::cloud::Status;
use crate::model::handle::{Refusal, Request};
use crate::model::ids::Mark;
use crate::model::time::human;
use crate::model::view::{BodyView, DaemonView, EventPage, JobPage, JobRow, TargetView, WhyView};
use std::collections::BTreeMap;
use std::sync::Arc;

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
            Request::Adopt { id, name, reply } => self.adopt(&id, &name, Asker::Person(reply)),
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
            Request::Logs { name, attempt, rank, reply } => {
                match self.find(&name).and_then(|job| self.log_of(job, attempt, rank)) {
                    Ok(log) => self.spawn(Box::pin(async move {
                        drop(reply.send(log.await));
                    })),
                    Err(refusal) => drop(reply.send(Err(refusal))),
                }
            }
            other @ (Request::Jobs(_)
            | Request::Job { .. }
            | Request::Why { .. }
            | Request::Events { .. }
            | Request::Body { .. }
            | Request::Daemon(_)
            | Request::Ready(_)
            | Request::Metrics(_)) => self.answer_from_memory(other),
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
            Request::Ready(reply) => drop(reply.send(self.readiness())),
            Request::Metrics(reply) => drop(reply.send(self.metrics())),
            other @ (Request::Act { .. }
            | Request::Adopt { .. }
            | Request::Evidence { .. }
            | Request::Logs { .. }
            | Request::Checkpoints { .. }) => self.refuse(other),
        }
    }

    pub(super) fn find(&self, name: &str) -> Result<&Job, Refusal> {
        self.book.newest(name).ok_or_else(|| Refusal::NoSuchJob(name.to_owned()))
    }

    /// Every reason why nothing is submitted for a job now.
    pub(super) fn holds(&self, job: &Job) -> Vec<Hold> {
        if let Some(why) = &self.held {
            return vec![Hold::Blocked(why.clone())];
        }
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
    pub(super) fn shown_holds(&self, job: &Job) -> Vec<String> {
        let looks = job.open.is_empty() && job.result.is_none();
        let holds = self.holds(job).into_iter();
        holds
            .filter(|hold| looks || !matches!(hold, Hold::NoResumePoint(_) | Hold::Backoff { .. }))
            .map(|hold| hold.to_string())
            .collect()
    }

    pub(super) fn row(&self, job: &Job) -> JobRow {
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
            why: why_in_a_row(job, phase, &holds, now.wall),
            vendor_status: shown.map(|status| status.word().to_owned()),
            step: job.progress.best_step,
            checkpoint_age_s: job.progress.best_at.map(|at| now.wall.since(at).as_secs()),
            at_risk_s: open.and_then(|attempt| at_risk(attempt, now.wall)).map(|t| t.as_secs()),
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
                Recovery::Waiting { until, .. } | Recovery::NotRepaired { until, .. } => {
                    format!("look and submit in {}", human(until.since(now)))
                }
                Recovery::Settling { next, .. } if next.0 != u64::MAX => {
                    format!("look again in {}", human(next.since(now)))
                }
                Recovery::Settling { .. } | Recovery::Look { .. } => "look, then submit".to_owned(),
                Recovery::Ready { .. } => "submit".to_owned(),
                Recovery::Repairing { .. } => "look again, then submit".to_owned(),
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
            Phase::Running | Phase::Stalled => {
                let spec = self.book.spec_of(job);
                let policy = spec.as_ref().and_then(|spec| spec.hang.as_ref());
                let next = job.open.last().and_then(|open| hang::next_in_words(open, policy));
                next.unwrap_or_default().to_owned()
            }
            Phase::Waiting | Phase::Starting => {
                let spec = self.book.spec_of(job);
                let outlook = spec.and_then(|spec| waiting::outlook(job, &spec));
                let now = self.clock.now().wall;
                outlook.map(|outlook| outlook.next_in_words(now)).unwrap_or_default()
            }
            Phase::Submitting
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
        let ended = self.book.ended.get(&job.key).map_or(&[][..], Vec::as_slice);
        let now = self.clock.now().wall;
        let progress = progress_view(job, ended, spec.as_deref(), now);
        let open = job.open.iter().rev().map(open_view);
        let ended = ended.iter().rev().map(ended_view);
        let mut attempts: Vec<_> = open.chain(ended).collect();
        // One that came back after its end is open again, and was not the newest.
        attempts.sort_by_key(|attempt| std::cmp::Reverse(attempt.no));
        JobPage {
            row: self.row(job),
            holds: self.shown_holds(job),
            checkpoints: spec
                .and_then(|spec| spec.checkpoint.as_ref().map(|c| c.location.to_string())),
            progress,
            waiting: waiting_view(job, self.book.spec_of(job).as_deref(), now),
            spec: job.spec.0.clone(),
            attempts,
            events: self.log.last_of(&job.key, PAGE_EVENTS).iter().map(event_view).collect(),
        }
    }

    fn why(&self, job: &Job, no: Option<u32>) -> Result<WhyView, Refusal> {
        let ended = self.book.ended.get(&job.key);
        let created = |e: &&EndedAttempt| e.verdict.cause != Cause::NeverCreated;
        let attempt = match no {
            // Where nothing was ever created, the last refusal is what a person asks for.
            None => {
                let newest = || ended.into_iter().flatten().rev();
                newest().find(created).or_else(|| newest().next()).map(ended_view)
            }
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
            waiting: waiting_view(job, self.book.spec_of(job).as_deref(), self.clock.now().wall),
            ends_without_progress: job.progress.ends,
            suspects: suspect_views(job),
            others: other_attempts(&events),
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

    fn next_body(&self, job: &Job) -> Result<BodyView, Refusal> {
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
            Recovery::Look { .. }
            | Recovery::Settling { .. }
            | Recovery::Waiting { .. }
            | Recovery::Repairing { .. }
            | Recovery::NotRepaired { .. } => {
                job.open.last().map_or(Start::Fresh, |attempt| attempt.start.clone())
            }
        };
        let attempt = Attempt {
            no: job.next_attempt,
            mark: Mark::from_random([0; 10]),
            spec: job.spec.clone(),
            target: spec.target.clone(),
            place,
            terms: Some(Terms::of(&spec, job.offer.placement, &start, gate.acceptance)),
            start,
            bid: job.offer.bid(&spec),
            intended: self.clock.now().wall,
            state: AttemptState::Intended,
            stop: None,
            asked: crate::core::stops::Asked::default(),
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
        let spec = serde_json::to_value(&*spec)
            .map_err(|error| Refusal::NotNow(super::driver::chain(&error)))?;
        Ok(BodyView { body, spec: hide_secrets(&spec) })
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
        let suspects = job.progress.suspicion.marked().iter();
        let suspects: Vec<String> = suspects.map(|suspect| suspect.path.clone()).collect();
        let looking = Looking { spec: Arc::clone(&spec), pass_over: job.pass_over(), place };
        Ok(async move {
            match effects.look(&looking).await {
                Look::CouldNotLook { why, .. } => {
                    Err(Refusal::NotNow(format!("could not look: {why}")))
                }
                Look::Done(findings) => {
                    let template = spec
                        .checkpoint
                        .as_ref()
                        .and_then(|checkpoint| checkpoint.resume.as_deref());
                    let checkpoint = spec.checkpoint.as_ref().filter(|one| !one.repair_tracker);
                    let storage = looking.place.as_ref().and_then(|place| place.storage.as_deref());
                    match checkpoint {
                        Some(checkpoint) => {
                            let place = Mendable { location: &checkpoint.location, storage };
                            report::json_with_mend(&findings, template, &suspects, place)
                        }
                        None => report::json(&findings, template, &suspects),
                    }
                    .map_err(|error| Refusal::NotNow(error.to_string()))
                }
            }
        })
    }

    pub(super) fn daemon(&self) -> DaemonView {
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
                fault: self
                    .held
                    .clone()
                    .or_else(|| state.and_then(|s| s.other_writer.clone()))
                    .or_else(|| self.book.moved.clone())
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
