//! The raw answers of an attempt's end, kept before the platform lets go of them.
//!
//! DLC keeps events and logs for seven days and a deleted job not at all, and nobody has published
//! what a spot release looks like. So soon after each end GetJob, GetJobEvents and the last events
//! and log lines of every pod are fetched, redacted and kept as one blob; a record names it.
//!
//! What always holds: nothing waits for it and nothing is decided by it; secrets are masked before
//! anything is written; what one attempt and all attempts may take is limited, the oldest goes
//! first. Whatever was not fetched when the process ended is fetched by the next one, if it is not
//! too late.

mod logs;

use super::body;
use super::book::Book;
use super::driver::{Driver, chain};
use super::effects::{Effects, Task};
use super::stored::StateError;
use super::turns::{GET_JOB, GET_JOB_EVENTS, GET_POD_EVENTS, GET_POD_LOGS};
use super::work::{Message, Work};
use crate::core::job::{Attempt, EndedAttempt, Job};
use crate::core::retry;
use crate::core::verdict::Cause;
use crate::dlc::client::{ApiError, Dlc};
use crate::dlc::evidence::{EventQuery, LogQuery, RawCall};
use crate::dlc::redact::{Known, redact};
use crate::model::error::Class;
use crate::model::handle::Refusal;
use crate::model::ids::{AttemptNo, CloudId, Digest, JobKey};
use crate::model::spec::{JobSpec, Place};
use crate::model::time::BootTime;
use crate::model::view::{EvidenceView, MissingView};
use crate::service::crash;
use crate::store::records::{self, StoredEvidence};
use crate::store::{Batch, Handle};
use futures_util::FutureExt as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Bytes that the answers of one attempt may take, redacted.
const ATTEMPT_LIMIT_BYTES: usize = 1024 * 1024;
/// Bytes that those of all attempts may take.
const ALL_LIMIT_BYTES: u64 = 128 * 1024 * 1024;
/// Bytes put between two sweeps of blobs: evidence must not take the room that specs need.
const BETWEEN_SWEEPS_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// Pods of an attempt that are asked about, replaced ones included.
const PODS_LIMIT: usize = 16;
/// Events asked for of a job or a pod, and lines of a log.
const LINES_LIMIT: u32 = 500;
/// Bytes of one line that are kept.
const LINE_LIMIT_BYTES: usize = 2 * 1024;
/// Attempts that are asked about at one time.
const GATHERERS_LIMIT: usize = 2;
/// Ends that wait for their turn; more are left to the next start.
const DUE_LIMIT: usize = 10_000;
/// The last log lines and events come a moment after the end.
const AFTER_END: Duration = Duration::from_secs(3);
/// Tries until what could be fetched has to do.
const TRIES_LIMIT: u32 = 6;
/// How long DLC keeps events.
const KEPT_BY_DLC: Duration = Duration::from_secs(7 * 24 * 3600);
/// How much earlier than the intent events are asked for.
const SLACK: Duration = Duration::from_secs(3600);

/// An end whose answers are still to be fetched.
#[derive(Debug)]
struct Due {
    key: JobKey,
    no: AttemptNo,
    tries: u32,
    at: BootTime,
}

/// What is to be fetched, and what is being fetched.
#[derive(Debug, Default)]
pub(super) struct Desk {
    due: VecDeque<Due>,
    pub(super) tasks: JoinSet<()>,
    put_since_sweep: u64,
}

impl Desk {
    /// Notes an end.
    pub(super) fn note(&mut self, key: &JobKey, no: AttemptNo, now: BootTime) {
        let known = self.due.iter().any(|due| due.key == *key && due.no == no);
        if !known && self.due.len() < DUE_LIMIT {
            self.due.push_back(Due { key: key.clone(), no, tries: 0, at: now.plus(AFTER_END) });
        }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<BootTime> {
        let has_room = self.tasks.len() < GATHERERS_LIMIT && !self.is_full();
        self.due.iter().map(|due| due.at).min().filter(|_| has_room)
    }

    /// Whether no more is put before the next sweep.
    fn is_full(&self) -> bool {
        self.put_since_sweep >= BETWEEN_SWEEPS_LIMIT_BYTES
    }

    /// Blobs that nobody names were swept.
    pub(super) fn swept(&mut self) {
        self.put_since_sweep = 0;
    }
}

/// How fetching came out.
#[derive(Debug)]
pub(super) struct Gathered {
    key: JobKey,
    no: AttemptNo,
    tries: u32,
    outcome: Result<StoredEvidence, String>,
}

/// Whose answers are fetched.
struct Subject {
    key: JobKey,
    attempt: Attempt,
    id: CloudId,
    spec: Option<Arc<JobSpec>>,
}

impl Driver {
    /// Notes every end on record whose answers are not kept and may still be there.
    pub(super) fn note_evidence_of_the_past(&mut self) {
        let now = self.clock.now();
        let oldest = now.wall.minus(KEPT_BY_DLC);
        for (key, ended) in &self.book.ended {
            for one in ended.iter().filter(|one| one.ended >= oldest) {
                if self.book.lacks_evidence(key, one) {
                    self.evidence.note(key, one.attempt.no, now.boot);
                }
            }
        }
    }

    /// Starts fetching what is due, as far as there is room.
    pub(super) fn gather_evidence(&mut self) {
        while self.evidence.tasks.try_join_next().is_some() {}
        let now = self.clock.now().boot;
        while self.evidence.tasks.len() < GATHERERS_LIMIT && !self.evidence.is_full() {
            let Some(at) = self.evidence.due.iter().position(|due| due.at <= now) else { return };
            let Some(due) = self.evidence.due.remove(at) else { return };
            if let Some(task) = self.keep(due) {
                self.evidence.tasks.spawn(task);
            }
        }
    }

    /// The task that fetches, redacts and keeps the answers of one end.
    fn keep(&self, due: Due) -> Option<Task> {
        let Due { key, no, tries, .. } = due;
        let ended = self.book.ended.get(&key)?.iter().find(|one| one.attempt.no == no)?;
        if !self.book.lacks_evidence(&key, ended) {
            return None;
        }
        let subject = self.subject(&key, &ended.attempt, ended.id.clone()?);
        let (effects, store) = (self.effects.clone(), self.store.clone());
        Some(Box::pin(async move {
            let last_try = tries + 1 >= TRIES_LIMIT;
            let kept = effects.keep_evidence(&subject, &store, last_try);
            // An end without an outcome would be forgotten until the next start.
            let kept = AssertUnwindSafe(kept).catch_unwind().await;
            let outcome = kept.unwrap_or_else(|_| Err("it panicked; see the log".to_owned()));
            let gathered = Gathered { key, no, tries, outcome };
            effects.tell_gathered(gathered).await;
        }))
    }

    fn subject(&self, key: &JobKey, attempt: &Attempt, id: CloudId) -> Subject {
        let now = self.book.jobs.get(key).and_then(|job| self.book.spec_of(job));
        let spec = self.book.specs.get(&attempt.spec).cloned().or(now);
        Subject { key: key.clone(), attempt: attempt.clone(), id, spec }
    }

    /// Takes what came of fetching: a record to commit, or another try later.
    pub(super) fn take_gathered(&mut self, gathered: Gathered) {
        let Gathered { key, no, tries, outcome } = gathered;
        match outcome {
            Ok(kept) => {
                self.evidence.put_since_sweep += kept.bytes;
                self.push(Work::Keep(kept));
                if self.evidence.is_full() {
                    // What talks much must not leave the ends after it without evidence for a day.
                    self.back_up_soon();
                }
            }
            Err(why) if tries + 1 < TRIES_LIMIT => {
                tracing::debug!(job = %key, attempt = no, %why, "evidence is fetched again");
                let at = self.clock.now().boot.plus(retry::after_fault(tries + 1));
                self.evidence.due.push_back(Due { key, no, tries: tries + 1, at });
            }
            Err(why) => tracing::warn!(job = %key, attempt = no, %why, "no evidence is kept"),
        }
    }

    /// The answers of an attempt: those that are kept, else those of now.
    pub(super) fn evidence_of(
        &self,
        job: &Job,
        no: Option<AttemptNo>,
    ) -> Result<impl Future<Output = Result<EvidenceView, Refusal>> + Send + use<>, Refusal> {
        let (attempt, id) = self.shown_attempt(job, no)?;
        let kept = self.book.evidence.get(&(job.key.clone(), attempt.no)).cloned();
        let subject = self.subject(&job.key, attempt, id);
        let (effects, store) = (self.effects.clone(), self.store.clone());
        Ok(async move {
            match kept {
                Some(kept) => read(&store, &kept).await.map_err(Refusal::NotNow),
                None => effects.gather(&subject).await.map(|found| found.view).map_err(|why| {
                    Refusal::NotNow(format!("nothing is kept, and the cloud does not say: {why}"))
                }),
            }
        })
    }

    fn shown_attempt<'a>(
        &'a self,
        job: &'a Job,
        no: Option<AttemptNo>,
    ) -> Result<(&'a Attempt, CloudId), Refusal> {
        let mut ended = self.book.ended.get(&job.key).into_iter().flatten();
        let created = |one: &&EndedAttempt| one.verdict.cause != Cause::NeverCreated;
        let Some(no) = no else {
            let last = ended.rfind(created);
            let shown = last.and_then(|one| Some((&one.attempt, one.id.clone()?)));
            return shown.ok_or_else(|| {
                Refusal::NotNow("no attempt has ended yet; `--attempt N` shows one".to_owned())
            });
        };
        let ended = ended.map(|one| (&one.attempt, one.id.as_ref()));
        let open = job.open.iter().map(|attempt| (attempt, attempt.id()));
        let (attempt, id) = ended
            .chain(open)
            .find(|(attempt, _)| attempt.no == no)
            .ok_or_else(|| Refusal::NoSuchAttempt(job.key.name.to_string(), no))?;
        let none = || Refusal::NotNow(format!("attempt {no} is not known to have been created"));
        Ok((attempt, id.cloned().ok_or_else(none)?))
    }
}

/// Adds the record of kept answers to the batch. Answers which older ones have to go for it.
pub(super) fn put(
    batch: &mut Batch,
    book: &Book,
    kept: &StoredEvidence,
) -> Result<Vec<(JobKey, AttemptNo)>, StateError> {
    let key = records::evidence_key(&kept.job, kept.attempt);
    let value = records::encode(&key, kept)?;
    batch.put(key, value)?;
    let gone = book.evidence_over(ALL_LIMIT_BYTES.saturating_sub(kept.bytes));
    for (job, no) in &gone {
        batch.delete(records::evidence_key(job, *no))?;
    }
    Ok(gone)
}

async fn read(store: &Handle, kept: &StoredEvidence) -> Result<EvidenceView, String> {
    let bytes = store.get_blob(kept.digest.clone()).await.map_err(|error| chain(&error))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", kept.digest.0))
}

/// The answers, and whether some that lack may come at another try.
struct Found {
    view: EvidenceView,
    may_come: bool,
}

impl Effects {
    async fn keep_evidence(
        &self,
        subject: &Subject,
        store: &Handle,
        last_try: bool,
    ) -> Result<StoredEvidence, String> {
        crash::point("before evidence");
        let Found { view, may_come } = self.gather(subject).await?;
        if may_come && !last_try {
            let whys = view.missing.iter().map(|missing| missing.why.as_str());
            return Err(whys.collect::<Vec<_>>().join("; "));
        }
        let bytes = serde_json::to_vec(&view).map_err(|error| error.to_string())?;
        let size = bytes.len() as u64;
        let digest: Digest = store.put_blob(bytes).await.map_err(|error| chain(&error))?;
        crash::point("evidence kept");
        Ok(StoredEvidence {
            job: subject.key.clone(),
            attempt: subject.attempt.no,
            taken: self.clock.now().wall,
            digest,
            bytes: size,
        })
    }

    /// Fetches and redacts. An error says that not even the job itself could be fetched.
    async fn gather(&self, subject: &Subject) -> Result<Found, String> {
        let client = self.client(&subject.attempt.place)?;
        let (known, names) = self.known_secrets(subject).await;
        let place = &subject.attempt.place;
        let mut raw = Raw { client, effects: self, place, id: &subject.id, found: BTreeMap::new() };
        let now = self.clock.now().wall;
        let oldest = now.minus(KEPT_BY_DLC).max(subject.attempt.intended.minus(SLACK));
        let job = raw.fetch(RawCall::Job).await.map_err(|error| known.scrub(&chain(&error)))?;
        let pods = pods(&job);
        raw.found.insert("get_job.json".to_owned(), Ok(job));
        let (start, limit) = (Some(oldest), Some(LINES_LIMIT));
        let events = EventQuery { start, limit, ..EventQuery::default() };
        raw.add("get_job_events.json", RawCall::JobEvents(&events)).await;
        for Pod { label, id, uid } in pods {
            let pod_uid = Some(uid).filter(|uid| !uid.is_empty());
            let events = EventQuery { pod_uid: pod_uid.clone(), ..events.clone() };
            let call = RawCall::PodEvents(&id, &events);
            raw.add(&format!("get_pod_events.{label}.json"), call).await;
            let lines = LogQuery { pod_uid, limit, ..LogQuery::default() };
            raw.add(&format!("get_pod_logs.{label}.json"), RawCall::PodLogs(&id, &lines)).await;
        }
        let (mut answers, mut missing, mut may_come) = (BTreeMap::new(), Vec::new(), false);
        for (file, answer) in raw.found {
            match answer {
                Ok(answer) => {
                    answers.insert(file, answer);
                }
                Err(error) => {
                    may_come |= matches!(error.class(), Class::Retry | Class::Wait);
                    missing.push(MissingView { file, why: known.scrub(&chain(&error)) });
                }
            }
        }
        // Large answers take long: what waits beside this task, a pass say, must not wait for it.
        let (files, over) =
            tokio::task::spawn_blocking(move || kept_part(&answers, &known, &names))
                .await
                .map_err(|error| error.to_string())?;
        missing.extend(over);
        let view = EvidenceView {
            job: subject.key.name.to_string(),
            run: subject.key.run,
            attempt: subject.attempt.no,
            id: subject.id.to_string(),
            taken: now.to_string(),
            files,
            missing,
        };
        Ok(Found { view, may_come })
    }

    /// Secrets that the answers may quote, and names of variables that are secrets.
    async fn known_secrets(&self, subject: &Subject) -> (Known, BTreeSet<String>) {
        let (mut known, mut names) = (Known::default(), BTreeSet::new());
        if let Some(spec) = &subject.spec {
            names = spec.secret_envs.keys().cloned().collect();
            known.learn(&Value::Object(spec.body.clone()), &names);
            for variable in &spec.secret_envs {
                // One that is gone is masked where the answer itself shows it.
                if let Ok(secret) = body::secret(&self.job_secrets, variable) {
                    known.add(&secret);
                }
            }
        }
        let place = &subject.attempt.place;
        if let Ok(held) = self.keychain.keys(&place.credentials, self.clock.now().wall).await {
            let keys = held.keys;
            [Some(&keys.key_id), Some(&keys.secret), keys.token.as_ref()]
                .into_iter()
                .flatten()
                .for_each(|secret| known.add(secret));
        }
        (known, names)
    }

    async fn tell_gathered(&self, gathered: Gathered) {
        // A driver that is gone has nobody left to tell.
        drop(self.driver.send(Message::Gathered(gathered)).await);
    }
}

/// Answers by the name of the file that they become.
struct Raw<'a> {
    client: Dlc,
    effects: &'a Effects,
    place: &'a Place,
    id: &'a CloudId,
    found: BTreeMap<String, Result<Value, ApiError>>,
}

impl Raw<'_> {
    async fn fetch(&self, call: RawCall<'_>) -> Result<Value, ApiError> {
        let api = match call {
            RawCall::Job => GET_JOB,
            RawCall::JobEvents(_) => GET_JOB_EVENTS,
            RawCall::PodEvents(..) => GET_POD_EVENTS,
            RawCall::PodLogs(..) => GET_POD_LOGS,
        };
        let turn = self.effects.turns.take(api, self.place).await;
        let answer = self.client.raw(self.id, call, turn.wall()).await;
        self.effects.learn(&turn, &answer);
        Ok(answer?.value)
    }

    async fn add(&mut self, file: &str, call: RawCall<'_>) {
        let answer = self.fetch(call).await;
        self.found.insert(file.to_owned(), answer);
    }
}

/// A pod of the answer, and how its files are called.
struct Pod {
    label: String,
    id: String,
    uid: String,
}

/// The first pods that GetJob names, each followed by those that it replaced.
fn pods(job: &Value) -> Vec<Pod> {
    fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
        value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    let text = |pod: &Value, field: &str| {
        pod.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    for (number, pod) in list(job, "Pods").iter().enumerate() {
        let id = text(pod, "PodId");
        found.push(Pod { label: number.to_string(), id: id.clone(), uid: text(pod, "PodUid") });
        for (older, replaced) in list(pod, "HistoryPods").iter().enumerate() {
            let own = text(replaced, "PodId");
            found.push(Pod {
                label: format!("{number}.history-{older}"),
                id: if own.is_empty() { id.clone() } else { own },
                uid: text(replaced, "PodUid"),
            });
        }
    }
    found.retain(|pod| !pod.id.is_empty());
    found.truncate(PODS_LIMIT);
    found
}

/// What is kept of the answers, without secrets, and what had no room.
fn kept_part(
    answers: &BTreeMap<String, Value>,
    known: &Known,
    names: &BTreeSet<String>,
) -> (BTreeMap<String, Value>, Vec<MissingView>) {
    let (mut redacted, mut missing) = (redact(answers, known, names), Vec::new());
    // Cut only now: a secret that is cut is not found any more.
    redacted.values_mut().for_each(cut_lines);
    (within_limit(redacted, &mut missing), missing)
}

fn cut_lines(answer: &mut Value) {
    for lines in ["Events", "Logs"] {
        for line in answer.get_mut(lines).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::String(text) = line {
                text.truncate(text.floor_char_boundary(LINE_LIMIT_BYTES));
            }
        }
    }
}

/// What fits into the limit of one attempt; the job itself comes first, logs come last.
fn within_limit(
    files: BTreeMap<String, Value>,
    missing: &mut Vec<MissingView>,
) -> BTreeMap<String, Value> {
    let mut room = ATTEMPT_LIMIT_BYTES;
    let mut kept = BTreeMap::new();
    for (file, answer) in files {
        let size = answer.to_string().len();
        if size <= room {
            room -= size;
            kept.insert(file, answer);
        } else {
            let why = format!("more than {ATTEMPT_LIMIT_BYTES} bytes for one attempt");
            missing.push(MissingView { file, why });
        }
    }
    kept
}

impl Book {
    /// Whether an end has something to fetch that is not kept.
    pub(super) fn lacks_evidence(&self, key: &JobKey, ended: &EndedAttempt) -> bool {
        ended.id.is_some() && !self.evidence.contains_key(&(key.clone(), ended.attempt.no))
    }

    /// The oldest that have to go until all take at most `limit` bytes.
    fn evidence_over(&self, limit: u64) -> Vec<(JobKey, AttemptNo)> {
        let mut all: Vec<&StoredEvidence> = self.evidence.values().collect();
        all.sort_by_key(|kept| std::cmp::Reverse((kept.taken, kept.digest.clone())));
        let mut bytes = 0;
        let over = all.into_iter().filter(|kept| {
            bytes += kept.bytes;
            bytes > limit
        });
        over.map(|kept| (kept.job.clone(), kept.attempt)).collect()
    }
}

/// The earliest of two wake-ups.
pub(super) fn earliest(a: Option<BootTime>, b: Option<BootTime>) -> Option<BootTime> {
    a.into_iter().chain(b).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{JobName, Owner};
    use crate::model::time::WallTime;
    use serde_json::json;

    #[test]
    fn pods_and_those_they_replaced_are_named_in_order() {
        let job = json!({ "Pods": [
            { "PodId": "a", "PodUid": "1", "HistoryPods": [{ "PodId": "", "PodUid": "0" }] },
            { "PodUid": "2" },
            { "PodId": "b", "HistoryPods": null },
        ]});
        let found: Vec<String> = pods(&job)
            .into_iter()
            .map(|pod| format!("{} {} {}", pod.label, pod.id, pod.uid))
            .collect();
        assert_eq!(found, ["0 a 1", "0.history-0 a 0", "2 b "]);
        assert!(pods(&json!({ "Pods": "none" })).is_empty());
    }

    #[test]
    fn the_oldest_answers_go_for_the_newest_and_all_have_a_limit() {
        let key = JobKey { name: JobName::new("loud").expect("a name"), run: 1 };
        let kept = |no: AttemptNo| StoredEvidence {
            job: key.clone(),
            attempt: no,
            taken: WallTime(i64::from(no)),
            digest: Digest::of(&no.to_be_bytes()),
            bytes: ATTEMPT_LIMIT_BYTES as u64,
        };
        let owner = Owner::new("k3f9qz").expect("an owner");
        let started = crate::service::clock::Clock::new().now();
        let mut book = Book::new(owner, started, BTreeMap::new());
        let room = u32::try_from(ALL_LIMIT_BYTES / ATTEMPT_LIMIT_BYTES as u64).expect("few");
        let mut batch = Batch::default();
        for no in 1..=3 * room {
            let gone = put(&mut batch, &book, &kept(no)).expect("it fits");
            for one in &gone {
                book.evidence.remove(one);
            }
            book.evidence.insert((key.clone(), no), kept(no));
            let oldest: Vec<AttemptNo> = gone.iter().map(|(_, no)| *no).collect();
            assert_eq!(oldest, if no > room { vec![no - room] } else { Vec::new() });
            let bytes: u64 = book.evidence.values().map(|kept| kept.bytes).sum();
            assert!(bytes <= ALL_LIMIT_BYTES, "{bytes}");
        }
        // What no record names any more is what a sweep may take.
        assert_eq!(book.digests_in_use().len(), usize::try_from(room).expect("few"));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let large = json!("x".repeat(ATTEMPT_LIMIT_BYTES / 2 + 10));
        let files = BTreeMap::from([
            ("a".to_owned(), large.clone()),
            ("b".to_owned(), large),
            ("c".to_owned(), json!(1)),
        ]);
        let mut missing = Vec::new();
        let kept = within_limit(files, &mut missing);
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(missing[0].file, "b");
    }
}
