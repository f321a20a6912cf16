//! What people ask of jobs: committed first, then answered with what was done and what is still
//! awaited.

use super::driver::Driver;
use super::work::Work;
use crate::core::acts::{cannot_retry, cannot_retry_from};
use crate::core::job::{AttemptState, Job, Wanted};
use crate::core::step::{Act, Input};
use crate::model::checkpoint::ResumeFrom;
use crate::model::handle::{ActVerb, Refusal};
use crate::model::ids::JobKey;
use crate::model::view::ActReport;
use std::collections::BTreeSet;

impl Driver {
    /// Does `verb` to the newest runs of the named jobs, to all that are not over if there is no
    /// name. If one cannot be, nothing is done to any.
    pub(super) async fn act(
        &mut self,
        names: &[String],
        verb: ActVerb,
    ) -> Result<Vec<ActReport>, Refusal> {
        let act = match verb {
            ActVerb::Cancel => Act::Cancel,
            ActVerb::Pause => Act::Pause,
            ActVerb::Resume => Act::Resume,
            ActVerb::Retry => Act::Retry,
            ActVerb::RetryFrom(from) => Act::RetryFrom(from),
            ActVerb::Forget => return self.forget(names).await,
        };
        let keys: Vec<JobKey> = if names.is_empty() {
            self.all_that_may_go_on()
        } else {
            let found: Result<_, _> =
                names.iter().map(|name| self.find(name).map(|job| job.key.clone())).collect();
            found?
        };
        self.act_on(keys, verb, act).await
    }

    /// The jobs that are not over, or are about to go on with one that is adopted.
    pub(super) fn all_that_may_go_on(&self) -> Vec<JobKey> {
        let jobs = self.book.jobs.values();
        let jobs = jobs.filter(|job| !job.is_over() || self.book.adopting.contains(&job.key));
        jobs.map(|job| job.key.clone()).collect()
    }

    /// Does it to these.
    async fn act_on(
        &mut self,
        mut keys: Vec<JobKey>,
        verb: ActVerb,
        act: Act,
    ) -> Result<Vec<ActReport>, Refusal> {
        // Each once, in the order of the names.
        let mut seen = BTreeSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        if act == Act::Retry {
            let jobs = keys.iter().filter_map(|key| self.book.jobs.get(key));
            if let Some(why) = jobs.into_iter().find_map(cannot_retry) {
                return Err(Refusal::NotNow(why));
            }
        }
        if let Act::RetryFrom(_) = act {
            let jobs = keys.iter().filter_map(|key| self.book.jobs.get(key));
            let why = |job| cannot_retry_from(job, self.book.spec_of(job)?.as_ref());
            if let Some(why) = jobs.into_iter().find_map(why) {
                return Err(Refusal::NotNow(why));
            }
        }
        let ends_adoptions = matches!(act, Act::Cancel | Act::Pause);
        if ends_adoptions {
            keys.iter().try_for_each(|key| self.unwrite_adoption(key))?;
        }
        for key in &keys {
            self.push(Work::Input(key.clone(), Input::Operator(act)));
        }
        self.durably().await?;
        if ends_adoptions {
            // Not sooner: until then it is what keeps the job from being submitted.
            for key in &keys {
                self.book.adopting.end(key);
            }
        }
        Ok(keys.iter().filter_map(|key| self.act_report(key, verb)).collect())
    }

    /// Takes jobs off the record, every run of their names.
    async fn forget(&mut self, names: &[String]) -> Result<Vec<ActReport>, Refusal> {
        let now = self.clock.now().wall;
        let mut rows = Vec::new();
        let mut whys = Vec::new();
        for name in names {
            let row = self.row(self.find(name)?);
            let adopting = self.book.adopting.keys().any(|key| key.name.as_str() == name);
            let adopting = adopting.then(|| format!("an adoption for `{name}` is under way"));
            whys.extend(self.book.cannot_forget(name, now).or(adopting));
            rows.push(row);
        }
        if !whys.is_empty() {
            return Err(Refusal::NotNow(format!("nothing is forgotten: {}", whys.join("; "))));
        }
        let keys = self.book.jobs.keys().filter(|key| names.iter().any(|n| n == key.name.as_str()));
        let keys: Vec<JobKey> = keys.cloned().collect();
        for key in &keys {
            self.push(Work::Forget(key.clone()));
        }
        self.durably().await?;
        if let Some(key) = keys.iter().find(|key| self.book.jobs.contains_key(key)) {
            let why = self.book.cannot_forget(key.name.as_str(), now).unwrap_or_default();
            return Err(Refusal::NotNow(format!("something of {key} began meanwhile: {why}")));
        }
        let report = |row: crate::model::view::JobRow| ActReport {
            text:
                "forgotten, with its history; its job file, if there is one, begins it again only \
                   with a higher `run`"
                    .to_owned(),
            job: row.name,
            phase: row.phase,
            awaited: Vec::new(),
        };
        Ok(rows.into_iter().map(report).collect())
    }

    /// Works through what is pending. Whatever was asked for is durable after this.
    pub(super) async fn durably(&mut self) -> Result<(), Refusal> {
        let reloads = self.reloads;
        self.turns().await;
        if self.store_fault.is_some() || self.reloads != reloads {
            let why = self.store_fault.clone().unwrap_or_else(|| "it failed a moment ago".into());
            return Err(Refusal::StoreDown(why));
        }
        Ok(())
    }

    fn act_report(&self, key: &JobKey, verb: ActVerb) -> Option<ActReport> {
        let job = self.book.jobs.get(key)?;
        let row = self.row(job);
        let nothing = || (format!("nothing to do: it is {}", row.phase), Vec::new());
        let (text, awaited) = match (verb, job.wanted) {
            (ActVerb::Cancel, Wanted::Cancel) => cancelled(job),
            (ActVerb::Pause | ActVerb::Resume, Wanted::Run | Wanted::Hold) if job.is_over() => {
                let text = format!(
                    "nothing to do: it is {}; `spotkeeper retry` starts it again",
                    row.phase
                );
                (text, Vec::new())
            }
            (ActVerb::Pause, Wanted::Hold) => {
                ("paused; what runs goes on, nothing is submitted".to_owned(), Vec::new())
            }
            (ActVerb::Resume | ActVerb::Retry, Wanted::Run) => self.goes_on("goes on", job),
            (ActVerb::RetryFrom(ResumeFrom::Step(step)), Wanted::Run) => {
                let done = format!("goes on from step {step}, once that is found whole");
                self.goes_on(&done, job)
            }
            (ActVerb::RetryFrom(ResumeFrom::Fresh), Wanted::Run) => {
                self.goes_on("starts at zero; checkpoints that are there are passed over", job)
            }
            (
                ActVerb::Cancel
                | ActVerb::Pause
                | ActVerb::Resume
                | ActVerb::Retry
                | ActVerb::RetryFrom(_)
                | ActVerb::Forget,
                _,
            ) => nothing(),
        };
        Some(ActReport { job: key.name.to_string(), phase: row.phase, text, awaited })
    }

    /// What is done, and what it waits for before the next submission.
    fn goes_on(&self, done: &str, job: &Job) -> (String, Vec<String>) {
        let ends = ends_awaited(job);
        let awaited = if ends.is_empty() { self.shown_holds(job) } else { ends };
        if awaited.is_empty() {
            return (done.to_owned(), awaited);
        }
        (format!("{done}; awaited: {}", awaited.join(", ")), awaited)
    }
}

/// What an act waits for of the attempts that are open.
pub(super) fn ends_awaited(job: &Job) -> Vec<String> {
    let awaited = job.open.iter().map(|attempt| match &attempt.state {
        AttemptState::Live { id, .. } => format!("the end of attempt {} ({id})", attempt.no),
        AttemptState::Intended | AttemptState::Unknown { .. } => {
            format!("whether attempt {} was created, and its end", attempt.no)
        }
    });
    awaited.collect()
}

fn cancelled(job: &Job) -> (String, Vec<String>) {
    if job.is_over() {
        return ("cancelled; nothing of it runs".to_owned(), Vec::new());
    }
    let awaited = ends_awaited(job);
    if awaited.is_empty() {
        let search = "the cloud is searched for what an earlier store may have sent".to_owned();
        return (format!("cancelled; nothing more is submitted, and {search}"), vec![search]);
    }
    let numbers: Vec<String> = job.open.iter().map(|a| a.no.to_string()).collect();
    let text = format!(
        "cancelled; nothing more is submitted, the end of attempt {} is awaited",
        numbers.join(", ")
    );
    (text, awaited)
}
