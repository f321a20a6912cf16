//! All jobs of the emulator, and the calls that change them.
//!
//! Every change goes to the ledger, synced, before any answer can show it: all of this runs under
//! one lock, and each public call ends with that sync. A ledger that cannot be written stops the
//! emulator for good. Nothing here reads a clock; moments are passed in.

use super::dialect::{Dialect, DialectChoice};
use super::job::{End, Job, Leaving, Moment, PodLife, Stage};
use super::ledger::{Entry, Event, Ledger, LedgerError, mark_of};
use super::lifecycle::{kill, terminate};
use super::market::{Market, Quote};
use super::mounts::Plan;
use super::process::Pods;
use super::random::unguessable_hex;
use super::records::Records;
use super::submission::{Submission, display_name_of};
use crate::model::time::WallTime;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Jobs, ended ones included, that one emulator keeps.
const JOBS_LIMIT: usize = 200_000;

/// How jobs are run.
#[derive(Debug)]
pub enum Runner {
    /// As real processes.
    Processes(Pods),
    /// As records alone, by the ten thousand.
    Virtual,
}

/// What the phases of a job's life are like.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Shortest time in each status before Running, and in Stopping.
    pub phase_delay: Duration,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// CNY per minute at list price, for jobs that bid in money.
    pub list_price_per_minute: f64,
    /// How long a minute of `JobReservedMinutes` lasts.
    pub minute: Duration,
}

/// Why a call on a job comes to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// A parameter is wrong.
    #[error("{0}")]
    InvalidParameter(String),
    /// There is no such job or record.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The state of the job or record does not allow it.
    #[error("{0} cannot be changed now: {1}")]
    BadRequest(String, &'static str),
    /// The ledger failed, now or before.
    #[error("the ledger cannot be written")]
    Ledger(#[source] LedgerError),
    /// The emulator was shut down, or its ledger failed before.
    #[error("the emulator has stopped")]
    Stopped,
}

/// All jobs, the market and the ledger.
#[derive(Debug)]
pub struct World {
    pub(super) jobs: BTreeMap<String, Job>,
    pub(super) active: BTreeSet<String>,
    /// Jobs that it made.
    made: u64,
    /// The market they live in.
    pub market: Market,
    /// What lives beside jobs.
    pub records: Records,
    pub(super) dialects: DialectChoice,
    pub(super) runner: Runner,
    pub(super) pace: Pace,
    ledger: Ledger,
    pub(super) unwritten: Vec<Entry>,
    pub(super) stopped: bool,
}

impl World {
    /// A world that goes on from the lines of its ledger. Jobs that had not ended are ended as
    /// failed: their processes went down with the emulator that ran them. A virtual job that runs
    /// until it is stopped has none: it runs on.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub fn open(
        (ledger, lines): (Ledger, Vec<Entry>),
        market: Market,
        dialects: DialectChoice,
        runner: Runner,
        pace: Pace,
        now: Moment,
    ) -> Result<Self, LedgerError> {
        let jobs = super::replay::jobs(&ledger, &lines, pace.list_price_per_minute)?;
        let mut world = Self {
            active: BTreeSet::new(),
            made: 0,
            jobs: BTreeMap::new(),
            market,
            records: Records::default(),
            dialects,
            runner,
            pace,
            ledger,
            unwritten: Vec::new(),
            stopped: false,
        };
        for mut job in jobs {
            match job.stage {
                Stage::Ended(_) => {}
                Stage::Reserving { end, .. } => world.end(&mut job, end, None, now),
                Stage::Running { ends: None }
                    if matches!(world.runner, Runner::Virtual)
                        && job.submission.virtual_run().duration.is_none() =>
                {
                    world.active.insert(job.id.clone());
                }
                Stage::Waiting { .. } | Stage::Running { .. } | Stage::Leaving { .. } => {
                    for pod in &mut job.pods {
                        pod.life = PodLife::Ended { exit: 137, told: true };
                    }
                    world.end(&mut job, End::Failed, None, now);
                }
            }
            world.jobs.insert(job.id.clone(), job);
        }
        let lines = std::mem::take(&mut world.unwritten);
        world.ledger.write(&lines)?;
        Ok(world)
    }

    /// A job.
    ///
    /// # Errors
    /// [`CallError::NotFound`].
    pub fn job(&self, id: &str) -> Result<&Job, CallError> {
        self.jobs.get(id).ok_or_else(|| CallError::NotFound(id.to_owned()))
    }

    /// All jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// The pods' logs, where there are processes.
    pub fn pods(&self) -> Option<&Pods> {
        match &self.runner {
            Runner::Processes(pods) => Some(pods),
            Runner::Virtual => None,
        }
    }

    /// CreateJob. Gives back the new `JobId`.
    ///
    /// # Errors
    /// [`CallError::InvalidParameter`]; the refusal is in the ledger.
    pub fn create(&mut self, body: &[u8], now: Moment) -> Result<String, CallError> {
        let read = if self.jobs.len() >= JOBS_LIMIT {
            Err(format!("more than {JOBS_LIMIT} jobs"))
        } else {
            Submission::read(body, self.pace.list_price_per_minute)
        };
        let read = read.and_then(|submission| {
            let records = &self.records;
            let sources = submission.data_sources.iter();
            let sources = sources.map(|source| source.resolved(|id| records.dataset_uri(id)));
            let sources: Vec<_> = sources.collect::<Result<_, _>>()?;
            let mounts = match &mut self.runner {
                Runner::Processes(pods) => pods.mounts().plan(&sources)?,
                Runner::Virtual => Plan::default(),
            };
            Ok((submission, mounts))
        });
        let (submission, mounts) = match read {
            Ok(read) => read,
            Err(why) => {
                self.refused(body, "InvalidParameter", now)?;
                return Err(CallError::InvalidParameter(why));
            }
        };
        let (hash, path) = self.ledger.keep_request(body).map_err(|e| self.fail(e))?;
        let id = format!("dlc{}", unguessable_hex(8));
        let mut job = Job::new(id.clone(), submission, now);
        job.number = self.made;
        self.made += 1;
        for note in &mounts.notes {
            job.note_event(now.wall, &format!("Warning DataSourceNotMounted {note}"));
        }
        job.mounts = mounts;
        let mut entry = self.entry(Event::Create, &job, now);
        entry.request_sha256 = Some(hash);
        entry.request = Some(path);
        self.unwritten.push(entry);
        self.active.insert(id.clone());
        self.jobs.insert(id.clone(), job);
        self.commit()?;
        Ok(id)
    }

    /// Records a CreateJob that was answered with `code` and made no job.
    ///
    /// # Errors
    /// [`CallError::Ledger`].
    pub fn refused(&mut self, body: &[u8], code: &str, now: Moment) -> Result<(), CallError> {
        let mut entry = Entry::new(Event::Refused, now.at.as_secs_f64(), now.wall);
        entry.display_name = display_name_of(body);
        entry.mark = mark_of(&entry.display_name);
        entry.request_sha256 = Some(crate::openapi::signature::sha256_hex(body));
        entry.why = Some(code.to_owned());
        self.unwritten.push(entry);
        self.commit()
    }

    /// StopJob: accepted now, done later.
    ///
    /// # Errors
    /// [`CallError::NotFound`], or [`CallError::BadRequest`] once the job has ended.
    pub fn stop(&mut self, id: &str, now: Moment) -> Result<(), CallError> {
        let mut job = self.take(id)?;
        let result = match job.stage {
            Stage::Ended(_) => Err(CallError::BadRequest(
                id.to_owned(),
                "only a job that has not ended can be stopped",
            )),
            Stage::Leaving { why: Leaving::Stop, .. } => Ok(()),
            // The result stands; only the machine is given back.
            Stage::Reserving { end, .. } => {
                self.unwritten.push(self.entry(Event::StopAsked, &job, now));
                job.stage = Stage::Reserving { end, until: now.at };
                Ok(())
            }
            Stage::Waiting { .. } | Stage::Running { .. } | Stage::Leaving { .. } => {
                self.unwritten.push(self.entry(Event::StopAsked, &job, now));
                let stage = Stage::Leaving {
                    why: Leaving::Stop,
                    kill_at: now.at + self.pace.grace,
                    end_at: now.at + self.pace.phase_delay,
                };
                self.enter(&mut job, stage, now, "", "");
                if !self.pace.grace.is_zero() {
                    terminate(&mut job, now);
                }
                Ok(())
            }
        };
        self.put_back(job);
        self.commit().and(result)
    }

    /// DeleteJob.
    ///
    /// # Errors
    /// [`CallError::NotFound`], or [`CallError::BadRequest`] while the job has not ended.
    pub fn delete(&mut self, id: &str, now: Moment) -> Result<(), CallError> {
        let job = self.job(id)?;
        if !matches!(job.stage, Stage::Ended(_)) {
            return Err(CallError::BadRequest(
                id.to_owned(),
                "only a job that has ended can be deleted",
            ));
        }
        let mut entry = self.entry(Event::Status, job, now);
        entry.status = Some("Deleted".to_owned());
        self.unwritten.push(entry);
        self.jobs.remove(id);
        self.commit()
    }

    /// Takes a running job's machine back now, whatever the market says.
    ///
    /// # Errors
    /// [`CallError::NotFound`], or [`CallError::BadRequest`] when it is not Running.
    pub fn release(
        &mut self,
        id: &str,
        dialect: Option<Dialect>,
        now: Moment,
    ) -> Result<Dialect, CallError> {
        let mut job = self.take(id)?;
        let result = match job.stage {
            Stage::Running { .. } => {
                let dialect = dialect.unwrap_or_else(|| self.dialects.pick());
                self.begin_release(&mut job, dialect, "by hand", now);
                Ok(dialect)
            }
            Stage::Waiting { .. }
            | Stage::Leaving { .. }
            | Stage::Reserving { .. }
            | Stage::Ended(_) => {
                Err(CallError::BadRequest(id.to_owned(), "only a running job can be released"))
            }
        };
        self.put_back(job);
        self.commit()?;
        result
    }

    /// Kills every process. Their ends still come in through [`World::pod_ended`].
    pub fn kill_all(&mut self) {
        for job in self.jobs.values() {
            kill(job);
        }
    }

    /// Lets go of the folder. Nothing is done or written any more.
    pub fn close(&mut self) {
        self.stopped = true;
        self.ledger.release_folder();
    }

    /// Whether any pod still has processes.
    pub fn has_processes(&self) -> bool {
        self.active
            .iter()
            .filter_map(|id| self.jobs.get(id))
            .any(|job| job.pods.iter().any(|pod| matches!(pod.life, PodLife::Processes(_))))
    }

    pub(super) fn take(&mut self, id: &str) -> Result<Job, CallError> {
        if self.stopped {
            return Err(CallError::Stopped);
        }
        self.jobs.remove(id).ok_or_else(|| CallError::NotFound(id.to_owned()))
    }

    pub(super) fn put_back(&mut self, job: Job) {
        match job.stage {
            Stage::Ended(_) => self.active.remove(&job.id),
            Stage::Waiting { .. }
            | Stage::Running { .. }
            | Stage::Leaving { .. }
            | Stage::Reserving { .. } => self.active.insert(job.id.clone()),
        };
        self.jobs.insert(job.id.clone(), job);
    }

    /// Changes a job's stage, in the ledger too when its status changes.
    pub(super) fn enter(
        &mut self,
        job: &mut Job,
        stage: Stage,
        now: Moment,
        code: &str,
        message: &str,
    ) {
        let before = job.stage.word();
        job.enter(stage, now.wall, code, message);
        self.note_status(job, before, now);
    }

    /// Puts a job's status into the ledger if it was another one `before`.
    pub(super) fn note_status(&mut self, job: &Job, before: &str, now: Moment) {
        if before != job.stage.word() {
            self.unwritten.push(self.entry(Event::Status, job, now));
        }
    }

    /// The discounts from `from` to `to`, each with the time from which on it held, the oldest
    /// first; the first one may have held before.
    pub fn price_history(&self, from: WallTime, to: WallTime, now: Moment) -> Vec<(WallTime, f64)> {
        let start = now.wall.minus(now.at);
        let at = |wall: WallTime| wall.since(start);
        if to < start {
            return Vec::new();
        }
        let prices = self.market.history(at(from), at(to));
        prices.into_iter().map(|(at, discount)| (start.plus(at), discount)).collect()
    }

    pub(super) fn entry(&self, event: Event, job: &Job, now: Moment) -> Entry {
        let mut entry = Entry::new(event, now.at.as_secs_f64(), now.wall);
        entry.job_id.clone_from(&job.id);
        entry.display_name.clone_from(&job.submission.display_name);
        entry.mark = mark_of(&job.submission.display_name);
        entry.status = Some(job.stage.word().to_owned());
        entry.discount = self.market.last_quote().map(|quote: Quote| quote.discount);
        entry
    }

    pub(super) fn commit(&mut self) -> Result<(), CallError> {
        if self.stopped {
            return Err(CallError::Stopped);
        }
        let lines = std::mem::take(&mut self.unwritten);
        self.ledger.write(&lines).map_err(|e| self.fail(e))
    }

    fn fail(&mut self, error: LedgerError) -> CallError {
        self.stopped = true;
        self.kill_all();
        CallError::Ledger(error)
    }
}
