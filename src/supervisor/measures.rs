//! What is counted while the daemon runs, and the page of all figures. What the store knows is read
//! from it; the rest begins at zero with the process.
//!
//! Must not decide anything: no figure is ever an input.

use super::book::Book;
use super::driver::Driver;
use crate::core::event::Word;
use crate::core::job::{EndedAttempt, Job};
use crate::core::phase::Phase;
use crate::core::verdict::Cause;
use crate::core::watch::{Watch, at_risk};
use crate::model::ids::{AttemptNo, JobKey};
use crate::model::metrics::{self, Histogram, JOBS_LIMIT, Page, exact, yes};
use crate::model::spec::{JobSpec, Place};
use crate::model::time::{BootTime, Now};
use crate::model::view::JobRow;
use crate::store::records::StoredEvent;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Seconds of a durable change.
const COMMIT_BOUNDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0];
/// Seconds until an end is seen, and until the next attempt has its id.
const DELAY_BOUNDS: &[f64] =
    &[1.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 21_600.0];
const PHASES: [Phase; 15] = [
    Phase::Pending,
    Phase::Submitting,
    Phase::Waiting,
    Phase::Starting,
    Phase::Running,
    Phase::Stalled,
    Phase::Recovering,
    Phase::Backoff,
    Phase::Stopping,
    Phase::Paused,
    Phase::Blocked,
    Phase::Succeeded,
    Phase::Failed,
    Phase::Cancelled,
    Phase::Lost,
];

/// Calls of the API by what came of them. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Calls(Arc<Mutex<BTreeMap<(&'static str, String), u64>>>);

impl Calls {
    /// A call came out; `result` is a word of a closed list.
    pub(super) fn note(&self, call: &'static str, result: String) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((call, result)).or_default() += 1;
    }
}

/// What was counted since the start.
#[derive(Debug)]
pub(super) struct Measures {
    state_directory: PathBuf,
    events: BTreeMap<Word, u64>,
    ends: BTreeMap<&'static str, u64>,
    lost: BTreeMap<&'static str, f64>,
    repeated: BTreeMap<JobKey, f64>,
    repeated_steps: f64,
    detection: Histogram,
    resubmission: Histogram,
    pub(super) commits: Histogram,
    refused: BTreeMap<String, u64>,
    blind_since: BTreeMap<JobKey, BootTime>,
    /// When the last sweep of a place began, and how much later than its interval.
    sweeps: BTreeMap<Place, (BootTime, Option<Duration>)>,
}

impl Measures {
    pub(super) fn new(state_directory: PathBuf) -> Self {
        Self {
            state_directory,
            events: BTreeMap::new(),
            ends: BTreeMap::new(),
            lost: BTreeMap::new(),
            repeated: BTreeMap::new(),
            repeated_steps: 0.0,
            detection: Histogram::new(DELAY_BOUNDS),
            resubmission: Histogram::new(DELAY_BOUNDS),
            commits: Histogram::new(COMMIT_BOUNDS),
            refused: BTreeMap::new(),
            blind_since: BTreeMap::new(),
            sweeps: BTreeMap::new(),
        }
    }

    /// A turn is durable; `book` is as it was before it.
    pub(super) fn note_turn(
        &mut self,
        events: &[StoredEvent],
        ended: &[(JobKey, EndedAttempt)],
        book: &Book,
        now: Now,
    ) {
        for (key, ended) in ended {
            let known = book.ended.get(key).into_iter().flatten();
            // A verdict that is amended is no second end.
            if known.clone().all(|before| before.attempt.no != ended.attempt.no) {
                self.note_end(key, ended, now);
            }
        }
        for stored in events {
            *self.events.entry(stored.event.word).or_default() += 1;
            if stored.event.word == Word::Checkpoint {
                self.note_refused(&stored.event.data);
            }
            let submitted = stored.event.attempt.filter(|_| stored.event.word == Word::Submitted);
            if let Some(no) = submitted {
                self.note_submitted(stored, no, ended, book);
            }
        }
    }

    /// A job is off the record.
    pub(super) fn forget(&mut self, key: &JobKey) {
        self.repeated.remove(key);
        self.blind_since.remove(key);
    }

    fn note_end(&mut self, key: &JobKey, ended: &EndedAttempt, now: Now) {
        let cause = ended.verdict.cause;
        *self.ends.entry(cause.word()).or_default() += 1;
        if matches!(cause, Cause::NeverCreated | Cause::Lost) {
            return;
        }
        self.detection.observe(now.wall.since(ended.ended).as_secs_f64());
        let is_done = cause == Cause::Succeeded;
        let Some(lost) = at_risk(&ended.attempt, ended.ended).filter(|_| !is_done) else { return };
        let lost = lost.min(ended.ran).as_secs_f64();
        *self.lost.entry(cause.word()).or_default() += lost;
        *self.repeated.entry(key.clone()).or_default() += lost;
        let pace = ended.attempt.watch().and_then(Watch::steps_per_hour);
        self.repeated_steps += pace.map_or(0.0, |pace| exact(pace) * lost / 3_600.0);
    }

    /// From the end of the attempt before it until it had its id.
    fn note_submitted(
        &mut self,
        stored: &StoredEvent,
        no: AttemptNo,
        ended: &[(JobKey, EndedAttempt)],
        book: &Book,
    ) {
        let known = book.ended.get(&stored.job).into_iter().flatten();
        let new = ended.iter().filter(|(key, _)| *key == stored.job).map(|(_, ended)| ended);
        let before = known
            .chain(new)
            .filter(|ended| ended.attempt.no < no && ended.verdict.cause != Cause::NeverCreated);
        if let Some(before) = before.max_by_key(|ended| ended.attempt.no) {
            self.resubmission.observe(stored.event.at.since(before.ended).as_secs_f64());
        }
    }

    fn note_refused(&mut self, data: &serde_json::Value) {
        let refused = data.get("refused").and_then(serde_json::Value::as_array);
        for verdict in refused.into_iter().flatten().filter_map(|one| one.get("verdict")?.as_str())
        {
            *self.refused.entry(verdict.to_owned()).or_default() += 1;
        }
    }

    /// How long looks for a job have failed begins and ends here.
    pub(super) fn note_looks(&mut self, job: &Job, now: BootTime) {
        let watch = job.open.last().and_then(|attempt| attempt.watch());
        if job.result.is_none() && (job.progress.blind > 0 || watch.is_some_and(Watch::is_blind)) {
            self.blind_since.entry(job.key.clone()).or_insert(now);
        } else {
            self.blind_since.remove(&job.key);
        }
    }

    /// A sweep began then.
    pub(super) fn note_sweep(&mut self, place: &Place, began: BootTime, interval: Duration) {
        let last = self.sweeps.get(place).map(|(last, _)| began.since(*last));
        let lag = last.map(|gap| gap.saturating_sub(interval));
        self.sweeps.insert(place.clone(), (began, lag));
    }

    /// Free space where the state is.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        let stat = rustix::fs::statvfs(&self.state_directory).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn put(&self, page: &mut Page) {
        for (word, count) in &self.events {
            let word = serde_json::to_value(word).unwrap_or_default();
            page.put(metrics::EVENTS, &[word.as_str().unwrap_or_default()], exact(*count));
        }
        for (cause, count) in &self.ends {
            page.put(metrics::ENDS, &[cause], exact(*count));
        }
        for (cause, seconds) in &self.lost {
            page.put(metrics::LOST_SECONDS, &[cause], *seconds);
        }
        for (verdict, count) in &self.refused {
            page.put(metrics::REFUSED_CHECKPOINTS, &[verdict], exact(*count));
        }
        page.put(metrics::REPEATED_STEPS, &[], self.repeated_steps.round());
        page.put_histogram(metrics::DETECTION, &self.detection);
        page.put_histogram(metrics::RESUBMISSION, &self.resubmission);
        page.put_histogram(metrics::COMMIT_SECONDS, &self.commits);
        if let Some(free) = self.free_bytes() {
            page.put(metrics::STORE_FREE, &[], exact(free));
        }
    }
}

impl Driver {
    /// The page of all figures.
    pub(super) fn metrics(&self) -> Page {
        let mut page = Page::default();
        let now = self.clock.now();
        page.put(metrics::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1.0);
        let uptime = now.boot.since(self.book.started.boot);
        page.put(metrics::UPTIME, &[], uptime.as_secs_f64());
        put_process(&mut page);
        if let Some(offset) = self.clock.offset_ms() {
            let (sign, ms) = (if offset < 0 { -1.0 } else { 1.0 }, exact(offset.unsigned_abs()));
            page.put(metrics::CLOCK_OFFSET, &[], sign * ms / 1_000.0);
        }
        page.put(metrics::STORE_WRITABLE, &[], yes(self.store_fault.is_none()));
        page.put(metrics::STORE_SEQUENCE, &[], exact(self.sequence()));
        page.put(metrics::JOB_FILES_REFUSED, &[], exact(self.file_errors.len() as u64));
        self.measures.put(&mut page);
        self.put_jobs(&mut page, now);
        self.put_targets(&mut page, now);
        let calls = self.effects.calls.0.lock().unwrap_or_else(PoisonError::into_inner);
        for ((call, result), count) in &*calls {
            page.put(metrics::CALLS, &[call, result], exact(*count));
        }
        for channel in self.log.outbox.channels() {
            let (name, tally) = (&channel.name, self.deliveries.of(&channel.name));
            let no_room = self.log.outbox.dropped.get(name).copied().unwrap_or_default();
            page.put(metrics::ALERTS_WAITING, &[name], exact(self.log.outbox.waiting(name) as u64));
            page.put(metrics::ALERTS_SENT, &[name], exact(tally.messages));
            page.put(metrics::ALERTS_FAILED, &[name], exact(tally.failures));
            page.put(metrics::ALERTS_DROPPED, &[name], exact(tally.given_up + no_room));
        }
        page
    }

    fn put_jobs(&self, page: &mut Page, now: Now) {
        let mut phases: BTreeMap<&str, u64> = PHASES.map(|phase| (phase.word(), 0)).into();
        let mut need_person = BTreeSet::new();
        for (at, job) in self.book.jobs.values().enumerate() {
            let row = self.row(job);
            if let Some(count) = phases.get_mut(row.phase.as_str()) {
                *count += 1;
            }
            if row.phase == Phase::Blocked.word() {
                need_person.insert(job.key.clone());
            }
            if at < JOBS_LIMIT {
                self.put_job(page, job, &row, now);
            }
        }
        for (phase, count) in phases {
            page.put(metrics::JOBS, &[phase], exact(count));
        }
        page.put(metrics::NEED_PERSON, &[], exact(need_person.len() as u64));
        let left_out = self.book.jobs.len().saturating_sub(JOBS_LIMIT);
        page.put(metrics::JOBS_LEFT_OUT, &[], exact(left_out as u64));
    }

    fn put_job(&self, page: &mut Page, job: &Job, row: &JobRow, now: Now) {
        let run = row.run.to_string();
        let labels: [&str; 2] = [&row.name, &run];
        let mut put = |metric, figure| page.put(metric, &labels, figure);
        put(metrics::JOB_ATTEMPTS, f64::from(row.attempts));
        put(metrics::JOB_RELEASES, f64::from(row.releases));
        put(metrics::JOB_ERRORS, f64::from(row.errors));
        put(metrics::JOB_RESTARTS, f64::from(row.restarts));
        put(metrics::JOB_RAN, exact(row.ran_s));
        put(metrics::JOB_ENDS, f64::from(job.progress.ends));
        put(metrics::JOB_PERSON, yes(row.phase == Phase::Blocked.word()));
        let blind = self.measures.blind_since.get(&job.key).map(|at| now.boot.since(*at));
        put(metrics::JOB_BLIND, blind.unwrap_or_default().as_secs_f64());
        let repeated = self.measures.repeated.get(&job.key).copied().unwrap_or_default();
        put(metrics::JOB_REPEATED, repeated);
        for (metric, figure) in [
            (metrics::JOB_STEP, row.step),
            (metrics::JOB_CHECKPOINT_AGE, row.checkpoint_age_s),
            (metrics::JOB_AT_RISK, row.at_risk_s),
        ] {
            if let Some(figure) = figure {
                put(metric, exact(figure));
            }
        }
        let ran = Duration::from_secs(row.ran_s + row.up_s.unwrap_or_default());
        if let Some(price) = self.book.spec_of(job).and_then(|spec| at_list_price(&spec, ran)) {
            put(metrics::JOB_LIST_PRICE, price);
        }
    }

    fn put_targets(&self, page: &mut Page, now: Now) {
        let troubles = self.effects.keychain.troubles();
        for target in self.book.targets.values() {
            let (name, place) = (target.name.as_str(), &target.place);
            let state = self.book.places.get(place);
            let verified = state.is_some_and(super::place::PlaceState::verified);
            page.put(metrics::TARGET_VERIFIED, &[name], yes(verified));
            if let Some(at) = state.and_then(|state| state.last_pass) {
                page.put(metrics::TARGET_AGE, &[name], now.boot.since(at).as_secs_f64());
            }
            if let Some((_, Some(lag))) = self.measures.sweeps.get(place) {
                page.put(metrics::TARGET_LAG, &[name], lag.as_secs_f64());
            }
            let faults = self.effects.outages.all_at(place, now.boot);
            let person = faults.iter().any(|fault| fault.needs_person);
            let time = faults.iter().any(|fault| !fault.needs_person);
            page.put(metrics::TARGET_FAULT, &[name, "person"], yes(person));
            page.put(metrics::TARGET_FAULT, &[name, "time"], yes(time));
            let failing = troubles.iter().any(|trouble| trouble.reference == place.credentials)
                || faults.iter().any(|fault| fault.of_identity);
            page.put(metrics::TARGET_CREDENTIALS, &[name], yes(failing));
        }
    }
}

/// Running time at the list price, for all pods.
fn at_list_price(spec: &JobSpec, ran: Duration) -> Option<f64> {
    let hourly = exact(spec.list_price_per_hour?.0.unsigned_abs()) / 1e6;
    let roles = spec.body.get("JobSpecs")?.as_array()?;
    let pods: u64 = roles.iter().map(|role| role["PodCount"].as_u64().unwrap_or(1)).sum();
    Some((hourly * exact(pods) * ran.as_secs_f64() / 3_600.0 * 100.0).round() / 100.0)
}

/// What the kernel knows of this process; absent where /proc is not to be seen.
fn put_process(page: &mut Page) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| {
        line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    if let Some(kib) = resident {
        page.put(metrics::RESIDENT, &[], exact(kib * 1_024));
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        page.put(metrics::OPEN_FILES, &[], exact(open.count() as u64));
    }
}
