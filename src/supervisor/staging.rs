//! What one turn of the driver decides: work is taken until the turn is full or something has to
//! wait for its commit; then the batch is committed; then the book follows.
//!
//! What always holds: nothing here reads a clock, waits, or reaches outside; a job has at most one
//! step in a turn; the book changes only in [`Turn::settle`], which the driver calls once the batch
//! is durable.

use super::book::Book;
use super::driver::chain;
use super::evidence;
use super::stored::{self, Log, StateError};
use super::work::Work;
use crate::core::event::{Event, Word};
use crate::core::job::{EndedAttempt, Job, Source};
use crate::core::step::{Effect, Given, Impossible, Input, Step};
use crate::core::submit::Gate;
use crate::model::ids::{AttemptNo, JobKey, Mark};
use crate::model::time::{BootTime, Now};
use crate::service::crash;
use crate::store::records::{self, StoredEvent, StoredEvidence};
use crate::store::{BATCH_LIMIT_BYTES, Batch};
use std::collections::{BTreeMap, VecDeque};
use std::panic::AssertUnwindSafe;

/// Jobs that share one commit at most.
pub(super) const TURN_LIMIT: usize = 64;
/// Bytes of a batch to which no further job is added: what one step adds has to find room.
const TURN_LIMIT_BYTES: usize = BATCH_LIMIT_BYTES / 2;

/// What a turn takes from outside: the time, randomness, and the core.
pub trait Moment {
    /// Both clocks.
    fn now(&self) -> Now;
    /// A mark that was never used; `None` if there is no randomness.
    fn fresh_mark(&mut self) -> Option<Mark>;
    /// [`crate::core::step::step`].
    ///
    /// # Errors
    /// [`Impossible`], as it does.
    fn decide(&mut self, job: &Job, given: &Given<'_>, input: Input) -> Result<Step, Impossible>;
}

/// What one turn decided.
#[derive(Debug, Default)]
pub struct Turn {
    /// To be committed before anything else of the turn happens.
    pub batch: Batch,
    /// What there is to tell then.
    pub events: Vec<StoredEvent>,
    /// What to start after that.
    pub effects: Vec<(JobKey, Effect)>,
    pub(super) staged: BTreeMap<JobKey, Job>,
    pub(super) ended: Vec<(JobKey, EndedAttempt)>,
    dropped: Vec<JobKey>,
    pub(super) forgotten: Vec<JobKey>,
    wakes: Vec<(JobKey, Option<BootTime>)>,
    kept: Vec<StoredEvidence>,
    evidence_gone: Vec<(JobKey, AttemptNo)>,
    store_settled: bool,
}

impl Turn {
    /// Decides on what is pending until the turn is full or something has to wait for the commit.
    ///
    /// # Errors
    /// [`StateError`] if a record cannot be written; nothing of the turn may be used then.
    pub fn fill(
        &mut self,
        book: &mut Book,
        log: &mut Log,
        pending: &mut VecDeque<Work>,
        moment: &mut dyn Moment,
    ) -> Result<(), StateError> {
        while self.staged.len() < TURN_LIMIT && self.batch.encoded_bytes() < TURN_LIMIT_BYTES {
            match pending.pop_front() {
                None => break,
                Some(Work::Passed(pass)) if self.staged.is_empty() => {
                    book.passed(&pass, moment.now().wall, pending);
                }
                Some(Work::Input(key, input)) if !self.touches(&key) => {
                    self.stage(book, log, key, input, moment)?;
                }
                Some(Work::Accept(job)) if !self.touches(&job.key) => {
                    self.stage_new(book, log, pending, *job, moment.now())?;
                }
                Some(Work::Drop(key)) if !self.touches(&key) => {
                    // It may have been submitted, or cancelled, since the files were read.
                    if book.jobs.get(&key).is_some_and(|job| !job.goes_with_its_file()) {
                        self.stage(book, log, key, Input::File(Source::Unmanaged), moment)?;
                    } else {
                        self.batch.delete(records::job_key(&key))?;
                        self.dropped.push(key);
                    }
                }
                // What else waits for this job in the turn would bring it back, or leave a record of
                // its evidence that nobody deletes.
                Some(Work::Forget(key)) if self.staged.is_empty() && self.kept.is_empty() => {
                    self.stage_forget(book, log, key, moment.now())?;
                    break;
                }
                Some(Work::Keep(kept)) if !book.jobs.contains_key(&kept.job) => {}
                Some(Work::Keep(kept)) => {
                    self.evidence_gone.extend(evidence::put(&mut self.batch, book, &kept)?);
                    self.kept.push(kept);
                }
                Some(Work::AlertsDone(keys)) => {
                    for key in &keys {
                        self.batch.delete(key.clone())?;
                    }
                    log.outbox.forget(&keys);
                }
                Some(Work::Tell(mut summary)) => {
                    summary.steps.retain(|(key, _)| book.jobs.contains_key(key));
                    log.tell(&mut self.batch, &summary)?;
                }
                Some(Work::Trouble { at, name, text }) => {
                    log.tell_trouble(&mut self.batch, at, &name, &text)?;
                }
                Some(Work::StoreSettled) => {
                    self.batch.delete(records::NEW_STORE)?;
                    self.store_settled = true;
                }
                // It has to wait for the commit of what came before.
                Some(work) => {
                    pending.push_front(work);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Whether the turn changes this job: whatever else comes for it waits for the commit.
    fn touches(&self, key: &JobKey) -> bool {
        self.staged.contains_key(key) || self.dropped.contains(key)
    }

    /// Lets the core decide on one input and adds what came of it to the turn.
    fn stage(
        &mut self,
        book: &mut Book,
        log: &mut Log,
        key: JobKey,
        mut input: Input,
        moment: &mut dyn Moment,
    ) -> Result<(), StateError> {
        let Some(job) = book.jobs.get(&key) else { return Ok(()) };
        let Some(spec) = book.spec_of(job) else { return Ok(()) };
        if book.parked.contains_key(&key) {
            return Ok(());
        }
        let mut writer = None;
        if let Input::Seen { mark, past, .. } = &mut input {
            // What came before it in the same pass may have put its mark on record.
            *past = book.past_of(&key, mark);
            if job.open.iter().all(|attempt| attempt.mark != *mark) {
                writer = book.writer_beside(job, &spec, &self.staged);
            }
        }
        let now = moment.now();
        let Some(mark) = moment.fresh_mark() else { return Ok(()) };
        let gate = Gate { writer, ..book.gate(job, &spec, &self.staged) };
        let given = Given { now, spec: &spec, gate, mark };
        let decided = AssertUnwindSafe(|| moment.decide(job, &given, input));
        match std::panic::catch_unwind(decided) {
            Ok(Ok(step)) => {
                let changed = step.next != *job;
                self.stage_step(book, log, key, step, changed, now)
            }
            Ok(Err(impossible)) => {
                self.stage_alarm(log, &key, now, format!("cannot be: {impossible}"))
            }
            Err(panic) => {
                let what = panic_text(panic.as_ref());
                book.parked.insert(key.clone(), what.clone());
                let text = format!("a step panicked, the job is parked: {what}");
                self.stage_alarm(log, &key, now, text)
            }
        }
    }

    fn stage_step(
        &mut self,
        book: &mut Book,
        log: &mut Log,
        key: JobKey,
        step: Step,
        changed: bool,
        now: Now,
    ) -> Result<(), StateError> {
        let encoded = match stored::encode(&key, &step, changed) {
            Ok(encoded) => encoded,
            // Nothing of the step is kept: one job must not stop the others' commits.
            Err(error) => {
                let what = chain(&error);
                book.parked.insert(key.clone(), what.clone());
                return self.stage_alarm(log, &key, now, format!("the job is parked: {what}"));
            }
        };
        for event in step.events {
            if event.word == Word::Checkpoint {
                crash::point("chosen");
            }
            self.events.push(log.add(
                &mut self.batch,
                &key,
                event,
                step.next.progress.best_step,
            )?);
        }
        for (ended, record) in step.ended.into_iter().zip(encoded.ended) {
            stored::put_ended(&mut self.batch, &key, ended.attempt.no, record)?;
            self.ended.push((key.clone(), ended));
        }
        self.effects.extend(step.effects.into_iter().map(|effect| (key.clone(), effect)));
        self.wakes.push((key.clone(), step.wake_at));
        if let Some(record) = encoded.job {
            self.batch.put(records::job_key(&key), record)?;
        }
        self.staged.insert(key, step.next);
        Ok(())
    }

    fn stage_alarm(
        &mut self,
        log: &mut Log,
        key: &JobKey,
        now: Now,
        text: String,
    ) -> Result<(), StateError> {
        let data = serde_json::Value::Null;
        let event = Event { at: now.wall, attempt: None, word: Word::Alarm, text, data };
        self.events.push(log.add(&mut self.batch, key, event, None)?);
        Ok(())
    }

    fn stage_new(
        &mut self,
        book: &Book,
        log: &mut Log,
        pending: &mut VecDeque<Work>,
        job: Job,
        now: Now,
    ) -> Result<(), StateError> {
        let event = Event {
            at: now.wall,
            attempt: None,
            word: Word::Accepted,
            text: format!("run {} of {}", job.key.run, job.key.name),
            data: serde_json::json!({ "spec": job.spec }),
        };
        self.events.push(log.add(&mut self.batch, &job.key, event, None)?);
        stored::put_job(&mut self.batch, &job)?;
        book.take_homeless(&job.key, pending);
        pending.push_back(Work::Input(job.key.clone(), Input::Tick));
        self.staged.insert(job.key.clone(), job);
        Ok(())
    }

    /// Takes a job off the record, unless something of it has begun meanwhile.
    fn stage_forget(
        &mut self,
        book: &Book,
        log: &mut Log,
        key: JobKey,
        now: Now,
    ) -> Result<(), StateError> {
        let why = book.cannot_forget(key.name.as_str(), now.wall);
        if !book.jobs.contains_key(&key) || why.is_some() {
            return Ok(());
        }
        stored::drop_job(&mut self.batch, book, &key)?;
        log.forget(&mut self.batch, &key)?;
        let text = "forget: the job and its history are off the record".to_owned();
        let data = serde_json::Value::Null;
        let event = Event { at: now.wall, attempt: None, word: Word::Operator, text, data };
        self.events.push(log.add(&mut self.batch, &key, event, None)?);
        self.forgotten.push(key);
        Ok(())
    }

    /// Everything of the turn is durable: the book follows. Answers the effects to start now.
    pub fn settle(self, book: &mut Book) -> Vec<(JobKey, Effect)> {
        if self.store_settled {
            book.new_store = false;
        }
        for key in &self.dropped {
            book.jobs.remove(key);
            book.wakes.remove(key);
        }
        for key in &self.forgotten {
            book.forget(key);
        }
        for (key, ended) in self.ended {
            book.record_ended(&key, ended);
        }
        for gone in &self.evidence_gone {
            book.evidence.remove(gone);
        }
        for kept in self.kept {
            book.evidence.insert((kept.job.clone(), kept.attempt), kept);
        }
        for (key, wake) in self.wakes {
            match wake {
                Some(at) => book.wakes.insert(key, at),
                None => book.wakes.remove(&key),
            };
        }
        book.jobs.extend(self.staged);
        self.effects
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}
