//! Loading everything from the store, and writing what a turn of the driver decided.

use super::book::{ATTEMPTS_KEPT, Book};
use super::outbox::Outbox;
use super::summary::Summary;
use crate::core::event::Event;
use crate::core::job::{EndedAttempt, Job};
use crate::core::step::Step;
use crate::model::ids::{AttemptNo, Digest, JobKey, JobName, Run};
use crate::model::spec::JobSpec;
use crate::model::time::WallTime;
use crate::store::records::{self, AlertPart, RecordError, StoredEvent, StoredEvidence};
use crate::store::{Batch, Fresh, Handle, OpenReport, StoreError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Events that are kept of one job.
const EVENTS_KEPT: usize = 1_000;
/// Events that are answered from memory.
const RECENT_KEPT: usize = 5_000;
/// Records read at one time.
const PAGE: usize = 500;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The store refused.
    #[error("the store")]
    Store(#[from] StoreError),
    /// A record is not what it should be.
    #[error("a record")]
    Record(#[from] RecordError),
    /// The text of an accepted spec is not readable.
    #[error("the spec {} of {job}", digest.0)]
    Spec {
        /// Its name.
        digest: Digest,
        /// The job.
        job: JobKey,
        /// What the decoder said.
        #[source]
        source: serde_json::Error,
    },
}

/// The log of events: its last place, and which places belong to whom.
#[derive(Debug, Default)]
pub struct Log {
    last: u64,
    of_job: BTreeMap<JobKey, VecDeque<u64>>,
    recent: VecDeque<StoredEvent>,
    pub(super) outbox: Outbox,
}

impl Log {
    /// Gives an event its place and adds it, what people are to be told of it, and what it pushes
    /// out, to the batch. `step` is where the job is then.
    pub(super) fn add(
        &mut self,
        batch: &mut Batch,
        job: &JobKey,
        event: Event,
        step: Option<u64>,
    ) -> Result<StoredEvent, StateError> {
        let stored = StoredEvent { sequence: self.last + 1, job: job.clone(), event };
        batch.put(records::event_key(stored.sequence), records::encode_event(&stored)?)?;
        self.outbox.note(batch, &stored, step)?;
        self.note(&stored);
        if let Some(places) = self.of_job.get_mut(job)
            && places.len() > EVENTS_KEPT
            && let Some(oldest) = places.pop_front()
        {
            batch.delete(records::event_key(oldest))?;
        }
        Ok(stored)
    }

    /// Deletes everything that was told of a job.
    pub(super) fn forget(&mut self, batch: &mut Batch, job: &JobKey) -> Result<(), StateError> {
        for place in self.of_job.remove(job).into_iter().flatten() {
            batch.delete(records::event_key(place))?;
        }
        self.recent.retain(|event| event.job != *job);
        self.outbox.forget_job(batch, job)
    }

    fn note(&mut self, stored: &StoredEvent) {
        self.last = self.last.max(stored.sequence);
        self.of_job.entry(stored.job.clone()).or_default().push_back(stored.sequence);
        self.recent.push_back(stored.clone());
        if self.recent.len() > RECENT_KEPT {
            self.recent.pop_front();
        }
    }

    /// Events behind `after`, oldest first, of one name or of all; and whether some that were
    /// asked for are gone.
    pub(super) fn after(
        &self,
        job: Option<&str>,
        after: u64,
        limit: usize,
    ) -> (Vec<StoredEvent>, bool) {
        let found = self
            .recent
            .iter()
            .filter(|e| job.is_none_or(|name| e.job.name.as_str() == name))
            .filter(|e| e.sequence > after);
        let first = self.recent.front().map_or(0, |e| e.sequence);
        (found.take(limit).cloned().collect(), after + 1 < first)
    }

    /// Adds a summary to the batch, with where it leaves the jobs.
    pub(super) fn tell(&mut self, batch: &mut Batch, told: &Summary) -> Result<(), StateError> {
        let Summary { channel, due, alert, steps } = told;
        if let Some(alert) = alert {
            let key = records::alert_key(channel, self.last, AlertPart::Summary);
            self.outbox.put(batch, channel, key, alert)?;
        }
        let key = records::summary_key(channel);
        batch.put(key.clone(), records::encode(&key, due)?)?;
        for (job, step) in steps {
            let key = records::summary_step_key(channel, job);
            batch.put(key.clone(), records::encode(&key, &(job, step))?)?;
        }
        Ok(())
    }

    /// Adds to the batch what is wrong with the daemon as a whole.
    pub(super) fn tell_trouble(
        &mut self,
        batch: &mut Batch,
        at: WallTime,
        name: &str,
        text: &str,
    ) -> Result<(), StateError> {
        self.outbox.note_trouble(batch, (self.last, at), name, text)
    }

    /// The last place in the log.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// The last events of a job, oldest first.
    pub(super) fn last_of(&self, job: &JobKey, limit: usize) -> Vec<StoredEvent> {
        let newest_first = self.recent.iter().rev().filter(|e| e.job == *job);
        let mut found: Vec<_> = newest_first.take(limit).cloned().collect();
        found.reverse();
        found
    }
}

/// Reads every record under a prefix.
async fn all<T: serde::de::DeserializeOwned>(
    store: &Handle,
    prefix: &[u8],
) -> Result<Vec<T>, StateError> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = store.range(prefix, after.clone(), PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = Some(last.clone());
        for (key, value) in &page {
            found.push(records::decode(key, value)?);
        }
    }
}

/// Loads jobs, attempts, specs and events into `book`.
pub(super) async fn load(store: &Handle, book: &mut Book) -> Result<Log, StateError> {
    let mut log = Log::default();
    book.new_store = store.get(records::NEW_STORE).await?.is_some();
    book.began_new |= book.new_store;
    for job in all::<Job>(store, records::JOBS).await? {
        book.jobs.insert(job.key.clone(), job);
    }
    for (key, ended) in all::<(JobKey, EndedAttempt)>(store, records::ATTEMPTS).await? {
        book.record_ended(&key, ended);
    }
    for kept in all::<StoredEvidence>(store, records::EVIDENCE).await? {
        book.evidence.insert((kept.job.clone(), kept.attempt), kept);
    }
    book.forgotten = all::<(JobName, Run)>(store, records::FORGOTTEN).await?.into_iter().collect();
    for event in all::<StoredEvent>(store, records::EVENTS).await? {
        log.note(&event);
    }
    let mut wanted: BTreeSet<(Digest, JobKey)> = BTreeSet::new();
    for job in book.jobs.values() {
        wanted.insert((job.spec.clone(), job.key.clone()));
        wanted.extend(job.open.iter().map(|a| (a.spec.clone(), job.key.clone())));
    }
    for (digest, job) in wanted {
        let text = store.get_blob(digest.clone()).await?;
        let spec: JobSpec = serde_json::from_slice(&text).map_err(|source| StateError::Spec {
            digest: digest.clone(),
            job,
            source,
        })?;
        book.specs.insert(digest, Arc::new(spec));
    }
    Ok(log)
}

/// What a person does about a state that was copied.
const CLAIM: &str = "once no daemon runs on the original any more, stop this one and say so with \
    `spotkeeper state claim`";

/// Logs what opening the store had to do. Notes a state that may lack something as a new one; says
/// whether it is complete.
pub(super) async fn take_report(
    store: &Handle,
    report: &OpenReport,
    book: &mut Book,
) -> Result<bool, StateError> {
    book.moved = report.moved.as_ref().map(|moved| {
        let why = format!("this state may be in use elsewhere: {}; {CLAIM}", moved.why);
        tracing::error!(%why, "nothing is submitted");
        why
    });
    for act in &report.acts {
        if act.is_alarm() {
            tracing::error!(%act, "opening the store");
        } else {
            tracing::info!(%act, "opening the store");
        }
    }
    // The original may have sent what this copy does not know.
    match (report.fresh, &report.moved) {
        (Fresh::Complete, None) => Ok(true),
        (Fresh::Complete, Some(_)) | (Fresh::New | Fresh::DataMissing, _) => {
            note_new(store).await?;
            Ok(false)
        }
    }
}

/// Notes that the store is new, before anything else is written: it has to be known after a crash
/// as well, until what an earlier store may have sent is accounted for.
async fn note_new(store: &Handle) -> Result<(), StateError> {
    let mut batch = Batch::new();
    let value = records::encode(records::NEW_STORE, &true)?;
    batch.put(records::NEW_STORE, value)?;
    store.commit(None, batch).await?;
    Ok(())
}

/// What a step puts on record, as the store will hold it.
#[derive(Debug)]
pub(super) struct Encoded {
    /// The job; `None` if the step left it as it is on record.
    pub(super) job: Option<Vec<u8>>,
    /// Its ended attempts, in the order of the step.
    pub(super) ended: Vec<Vec<u8>>,
}

/// Encodes what a step puts on record.
///
/// # Errors
/// [`RecordError::TooLarge`] if the store cannot take it: nothing of the step may be kept then.
pub(super) fn encode(key: &JobKey, step: &Step, changed: bool) -> Result<Encoded, RecordError> {
    let job = changed.then(|| records::encode(&records::job_key(key), &step.next)).transpose()?;
    let ended = step
        .ended
        .iter()
        .map(|ended| records::encode(&records::attempt_key(key, ended.attempt.no), &(key, ended)));
    Ok(Encoded { job, ended: ended.collect::<Result<_, _>>()? })
}

/// Adds a job to the batch.
pub(super) fn put_job(batch: &mut Batch, job: &Job) -> Result<(), StateError> {
    let key = records::job_key(&job.key);
    let value = records::encode(&key, job)?;
    Ok(batch.put(key, value)?)
}

/// Deletes a job and its attempts in the batch, and notes the run that was forgotten.
pub(super) fn drop_job(batch: &mut Batch, book: &Book, key: &JobKey) -> Result<(), StateError> {
    batch.delete(records::job_key(key))?;
    for ended in book.ended.get(key).into_iter().flatten() {
        batch.delete(records::attempt_key(key, ended.attempt.no))?;
    }
    for (_, no) in book.evidence.keys().filter(|(of, _)| of == key) {
        batch.delete(records::evidence_key(key, *no))?;
    }
    let before = book.forgotten.get(&key.name).copied().unwrap_or(0);
    let at = records::forgotten_key(&key.name);
    let value = records::encode(&at, &(&key.name, key.run.max(before)))?;
    Ok(batch.put(at, value)?)
}

/// Adds the record of ended attempt `no` to the batch; the one that is too old to be kept goes.
pub(super) fn put_ended(
    batch: &mut Batch,
    key: &JobKey,
    no: AttemptNo,
    record: Vec<u8>,
) -> Result<(), StateError> {
    batch.put(records::attempt_key(key, no), record)?;
    let kept = u32::try_from(ATTEMPTS_KEPT).unwrap_or(u32::MAX);
    if let Some(old) = no.checked_sub(kept).filter(|no| *no > 0) {
        batch.delete(records::attempt_key(key, old))?;
        batch.delete(records::evidence_key(key, old))?;
    }
    Ok(())
}
