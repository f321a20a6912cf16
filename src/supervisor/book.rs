//! All jobs in memory, as they are committed, with the indexes that a step is given.

mod jobs;
mod past;

use super::adopting::Adopting;
use super::place::PlaceState;
use crate::core::forget::{cannot_forget, cannot_forget_yet};
use crate::core::job::{EndedAttempt, Job, Source};
use crate::core::step::Past;
use crate::core::submit::{Gate, Hold};
use crate::model::cloud::CloudJob;
use crate::model::ids::{
    AttemptNo, CloudId, Digest, JobKey, JobName, Mark, Owner, Run, TargetName,
};
use crate::model::spec::{CheckpointSpec, JobSpec, Place, Target};
use crate::model::time::{BootTime, Now, WallTime};
use crate::store::records::StoredEvidence;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use jobs::Jobs;

/// How long a CreateJob can be accepted at a place of which neither the daemon file nor an attempt
/// says so.
const DEFAULT_ACCEPTANCE: Duration = Duration::from_secs(15 * 60);
/// Ended attempts of a job that are kept in full.
pub(super) const ATTEMPTS_KEPT: usize = 50;

/// A cloud job of ours whose job is not on record, or that its job knows as a copy.
#[derive(Debug)]
pub(super) struct Homeless {
    pub(super) mark: Mark,
    pub(super) cloud: Box<CloudJob>,
    pub(super) place: Place,
}

/// Everything that the driver knows.
#[derive(Debug)]
pub struct Book {
    /// This installation.
    pub owner: Owner,
    /// When this process began.
    pub started: Now,
    /// When this was loaded from the store: passes that began earlier were decided by older records.
    pub(super) loaded: BootTime,
    /// Whether an earlier store may have sent what this one does not know.
    pub new_store: bool,
    /// Whether the store was new, or lacked something, when this process began.
    pub began_new: bool,
    /// Why a daemon on the original of this state may be alive.
    pub moved: Option<String>,
    pub(super) stopping: bool,
    /// The targets of the daemon file.
    pub targets: BTreeMap<TargetName, Target>,
    /// All jobs, as they are committed.
    pub jobs: Jobs,
    /// Accepted specs.
    pub specs: BTreeMap<Digest, Arc<JobSpec>>,
    /// Ended attempts, oldest first, at most [`ATTEMPTS_KEPT`] a job.
    pub ended: BTreeMap<JobKey, Vec<EndedAttempt>>,
    /// Where the raw answers of ended attempts are kept.
    pub(super) evidence: BTreeMap<(JobKey, AttemptNo), StoredEvidence>,
    /// Marks of attempts that are not open, for as long as a list may show them.
    pub past: BTreeMap<Mark, (JobKey, Past)>,
    /// The same by their ids.
    past_ids: BTreeMap<CloudId, Mark>,
    /// Cloud jobs of ours that had ended and were on no record any more when a pass first showed them.
    pub(super) let_go: BTreeMap<CloudId, Option<WallTime>>,
    /// When the newest one was decided whose mark was forgotten.
    forgot_until: Option<WallTime>,
    /// Cloud jobs of ours that wait for their job to be on record, and copies that have not ended.
    pub(super) homeless: BTreeMap<CloudId, Homeless>,
    pub(super) places: BTreeMap<Place, PlaceState>,
    /// When each job is to be woken up.
    pub wakes: BTreeMap<JobKey, BootTime>,
    /// Jobs for which a cloud job is being looked up that a person adopts: nothing is submitted for
    /// them meanwhile.
    pub(super) adopting: Adopting,
    /// The last run of each name that a person had forgotten: its file does not begin it again.
    pub forgotten: BTreeMap<JobName, Run>,
    /// Jobs whose step panicked, and what it said: they are left alone until the next start.
    pub parked: BTreeMap<JobKey, String>,
}

impl Book {
    /// A book of a process that began at `started`, with nothing on record yet.
    pub fn new(owner: Owner, started: Now, targets: BTreeMap<TargetName, Target>) -> Self {
        Self {
            owner,
            started,
            loaded: started.boot,
            new_store: false,
            began_new: false,
            moved: None,
            stopping: false,
            targets,
            jobs: Jobs::default(),
            specs: BTreeMap::new(),
            ended: BTreeMap::new(),
            evidence: BTreeMap::new(),
            past: BTreeMap::new(),
            past_ids: BTreeMap::new(),
            let_go: BTreeMap::new(),
            forgot_until: None,
            homeless: BTreeMap::new(),
            places: BTreeMap::new(),
            wakes: BTreeMap::new(),
            adopting: Adopting::default(),
            forgotten: BTreeMap::new(),
            parked: BTreeMap::new(),
        }
    }

    /// The newest run of a name.
    pub(super) fn newest(&self, name: &str) -> Option<&Job> {
        self.jobs.values().filter(|job| job.key.name.as_str() == name).max_by_key(|j| j.key.run)
    }

    /// The accepted spec of a job, as the placement of its next attempt asks.
    pub(super) fn spec_of(&self, job: &Job) -> Option<Arc<JobSpec>> {
        let spec = self.specs.get(&job.spec)?;
        Some(match job.offer.placement {
            0 => Arc::clone(spec),
            placement => Arc::new(spec.at(placement)),
        })
    }

    /// How long a CreateJob can be accepted at a place: the longest that a target there or an open
    /// attempt says, since an attempt keeps what held when it was sent.
    pub(super) fn acceptance(&self, place: &Place) -> Duration {
        let targets = self.targets.values().filter(|target| target.place == *place);
        let frozen = self.jobs.longest_acceptance(place);
        targets.map(|target| target.acceptance).chain(frozen).max().unwrap_or(DEFAULT_ACCEPTANCE)
    }

    /// Every place that has to be looked at: configured ones, and those of open attempts.
    pub(super) fn wanted_places(&self) -> Vec<Place> {
        let targets = self.targets.values().map(|target| &target.place);
        let mut places: Vec<Place> = targets.chain(self.jobs.open_places()).cloned().collect();
        places.sort();
        places.dedup();
        places
    }

    /// Whether no place has to wait any more because the store is new.
    pub(super) fn places_are_settled(&self) -> bool {
        self.wanted_places().iter().all(|place| {
            let acceptance = self.acceptance(place);
            self.places.get(place).is_some_and(|s| s.new_store_wait(acceptance).is_none())
        })
    }

    /// The job of which an attempt with this mark is open.
    pub(super) fn open_with(&self, mark: &Mark) -> Option<&JobKey> {
        self.jobs.open_with(mark).map(|job| &job.key)
    }

    /// Why a cloud job is not free: it carries the mark of an attempt that is open and has no id yet.
    /// One stamp is enough: taken elsewhere, its attempt would count as absent and be sent again.
    pub(super) fn sent_for_another(&self, cloud: &CloudJob) -> Option<String> {
        let stamps = [&cloud.stamp.name, &cloud.stamp.tag, &cloud.stamp.env];
        let mut ours = stamps.into_iter().flatten().filter(|(owner, _)| *owner == self.owner);
        let key = ours.find_map(|(_, mark)| self.open_with(mark))?;
        Some(format!(
            "{id} carries the mark of an attempt of `{name}` that is not seen ended: it belongs there, \
             and is found by itself",
            id = cloud.id,
            name = key.name
        ))
    }

    /// The attempt with this id, open or ended: its job, and the mark under which it is on record.
    pub(super) fn on_record(&self, id: &CloudId) -> Option<(JobKey, Mark)> {
        let open = self.jobs.open_as(id).and_then(|job| {
            let attempt = job.open.iter().find(|attempt| attempt.id() == Some(id))?;
            Some((job.key.clone(), attempt.mark.clone()))
        });
        open.or_else(|| {
            let mark = self.past_ids.get(id)?;
            let (key, _) = self.past.get(mark)?;
            Some((key.clone(), mark.clone()))
        })
    }

    /// The blobs that a record names: specs and evidence.
    pub(super) fn digests_in_use(&self) -> BTreeSet<Digest> {
        let jobs = self.jobs.values();
        let open = jobs.clone().flat_map(|job| job.open.iter().map(|a| a.spec.clone()));
        let ended = self.ended.values().flatten().map(|e| e.attempt.spec.clone());
        let evidence = self.evidence.values().map(|kept| kept.digest.clone());
        jobs.map(|job| job.spec.clone()).chain(open).chain(ended).chain(evidence).collect()
    }

    /// What the records of a job know of a mark whose attempt is not open.
    pub(super) fn past_of(&self, key: &JobKey, mark: &Mark) -> Past {
        let own = self.past.get(mark).filter(|(of, _)| of == key);
        own.map_or(Past::Stranger, |(_, past)| past.clone())
    }

    /// Whether a cloud job is, or may yet turn out to be, the attempt that has its mark.
    pub(super) fn is_attempt(&self, mark: &Mark, id: &CloudId) -> bool {
        let open = self.jobs.open_with(mark).into_iter().flat_map(|job| &job.open);
        let mut same = open.filter(|attempt| attempt.mark == *mark);
        same.any(|attempt| attempt.id().is_none_or(|known| known == id))
            || matches!(self.past.get(mark), Some((_, Past::Ended(ended))) if ended.id == *id)
    }

    /// Forgets the homeless whose mark is on record by now, save those that a job knows as copies.
    pub(super) fn forget_those_at_home(&mut self) {
        if self.homeless.is_empty() {
            return;
        }
        let mut homeless = std::mem::take(&mut self.homeless);
        homeless.retain(|id, one| {
            let is_there = |key: &JobKey| self.jobs.contains_key(key);
            let has_home = self.on_record(id).is_some_and(|(key, _)| is_there(&key));
            let is_marked = self.open_with(&one.mark).is_some()
                || self.past.get(&one.mark).is_some_and(|(key, _)| is_there(key));
            !has_home && !is_marked || self.jobs.values().any(|job| job.copies.contains(id))
        });
        self.homeless = homeless;
    }

    /// Takes over an ended attempt.
    pub fn record_ended(&mut self, key: &JobKey, ended: EndedAttempt) {
        self.remember(key, &ended);
        let no = ended.attempt.no;
        let list = self.ended.entry(key.clone()).or_default();
        match list.binary_search_by_key(&no, |e| e.attempt.no) {
            Ok(at) => list[at] = ended,
            Err(at) => list.insert(at, ended),
        }
        if list.len() > ATTEMPTS_KEPT {
            let gone = list.remove(0);
            self.evidence.remove(&(key.clone(), gone.attempt.no));
        }
    }

    /// Why the runs of a name cannot be forgotten, if they cannot.
    pub(super) fn cannot_forget(&self, name: &str, now: WallTime) -> Option<String> {
        let runs = self.jobs.values().filter(|job| job.key.name.as_str() == name);
        runs.into_iter().find_map(|job| {
            let new_store = self
                .spec_of(job)
                .and_then(|spec| self.gate(job, &spec, &BTreeMap::new()).new_store);
            let ended = self.ended.get(&job.key).map_or(&[][..], Vec::as_slice);
            cannot_forget(job).or_else(|| cannot_forget_yet(job, ended, now)).or(new_store)
        })
    }

    /// A job is off the record. Its marks stay known to this process: whoever shows one of them is
    /// no other daemon's.
    pub(super) fn forget(&mut self, key: &JobKey) {
        self.jobs.remove(key);
        self.wakes.remove(key);
        self.ended.remove(key);
        self.parked.remove(key);
        self.evidence.retain(|(of, _), _| of != key);
        let run = self.forgotten.entry(key.name.clone()).or_default();
        *run = (*run).max(key.run);
    }

    /// What a step of `job` is given besides clocks and mark. `staged` are jobs of the same batch.
    pub(super) fn gate(&self, job: &Job, spec: &JobSpec, staged: &BTreeMap<JobKey, Job>) -> Gate {
        let target = self.targets.get(&spec.target);
        let place = target.map(|target| target.place.clone());
        let unseen = PlaceState::default();
        let state = place.as_ref().and_then(|place| self.places.get(place)).unwrap_or(&unseen);
        let acceptance = match (job.open.first(), target) {
            (Some(attempt), _) => self.acceptance(&attempt.place),
            (None, Some(target)) => target.acceptance,
            (None, None) => DEFAULT_ACCEPTANCE,
        };
        // Without checkpoints an intent may be written in the very step that sees the last attempt
        // ended or absent, or that takes a person's `retry`; else a look comes between.
        // What a person adopts, too, may follow a result.
        // Nor is an attempt stopped for the next one's sake where that would be held.
        let may_be_stopped = !spec.waiting.is_none()
            || spec.hang.is_some()
            || job.open.iter().any(|attempt| attempt.restarts() > 0);
        let may_follow = job.open.is_empty() || spec.checkpoint.is_none() || may_be_stopped;
        Gate {
            acceptance,
            verified: state.verified() && !self.adopting.contains(&job.key),
            elsewhere: self.elsewhere_hold(job, spec),
            new_store: if self.new_store { state.new_store_wait(acceptance) } else { None },
            other_writer: self.moved.clone().or_else(|| state.other_writer.clone()),
            own_user: state.own_user.clone(),
            lease: if may_follow { self.lease_against(job, spec, staged) } else { None },
            writer: None,
            slot: !may_follow || target.is_none_or(|target| self.has_slot(job, target, staged)),
            stopping: self.stopping,
            owner: self.owner.clone(),
            next_place: self.next_place_hold(job, spec, staged),
            place,
        }
    }

    /// Why an attempt that the store does not know may be open at another target of the job file: a
    /// store that is new, or older than it seems, knows nothing of the placements that were reached.
    fn elsewhere_hold(&self, job: &Job, spec: &JobSpec) -> Option<Hold> {
        let own = self.specs.get(&job.spec).map(|own| &own.target);
        let named = spec.placements.iter().filter_map(|placement| placement.target.as_ref());
        let others = own.into_iter().chain(named).filter(|name| **name != spec.target);
        others.filter_map(|name| self.targets.get_key_value(name)).find_map(|(name, target)| {
            let state = self.places.get(&target.place).filter(|state| state.verified());
            let Some(state) = state else { return Some(Hold::NotVerifiedAt(name.to_string())) };
            let wait = state.new_store_wait(target.acceptance).filter(|_| self.new_store)?;
            Some(Hold::NewStore(format!("target `{name}`: {wait}")))
        })
    }

    /// Why the placement after the present one could not be submitted to now, if there is one.
    fn next_place_hold(
        &self,
        job: &Job,
        spec: &JobSpec,
        staged: &BTreeMap<JobKey, Job>,
    ) -> Option<Hold> {
        let at = usize::try_from(job.offer.placement).ok()?;
        let next = spec.placements.get(at)?;
        let own = self.specs.get(&job.spec).map_or(&spec.target, |own| &own.target);
        let name = next.target.as_ref().unwrap_or(own);
        let Some(target) = self.targets.get(name) else {
            return Some(Hold::NoTarget(name.to_string()));
        };
        let state = self.places.get(&target.place).filter(|state| state.verified());
        let Some(state) = state else { return Some(Hold::NotVerified) };
        if let Some(why) = state.new_store_wait(target.acceptance).filter(|_| self.new_store) {
            return Some(Hold::NewStore(why));
        }
        if let Some(why) = &state.other_writer {
            return Some(Hold::OtherWriter(why.clone()));
        }
        (!self.has_slot(job, target, staged)).then_some(Hold::MaxParallel)
    }

    /// Jobs as they will be once the batch is durable.
    fn with_staged<'a>(
        &'a self,
        staged: &'a BTreeMap<JobKey, Job>,
    ) -> impl Iterator<Item = &'a Job> {
        self.jobs.values().map(|job| staged.get(&job.key).unwrap_or(job))
    }

    /// Another job that holds an equal or nested checkpoint prefix: that of its next attempt or of
    /// one that is open under an older spec.
    fn lease_against(
        &self,
        job: &Job,
        spec: &JobSpec,
        staged: &BTreeMap<JobKey, Job>,
    ) -> Option<JobKey> {
        // Another run of the same job is the same work, whatever it writes to.
        let other_run = self.with_staged(staged).find(|other| {
            let alive = !other.open.is_empty() || !other.copies.is_empty();
            other.key.name == job.key.name && other.key.run != job.key.run && alive
        });
        if let Some(other) = other_run {
            return Some(other.key.clone());
        }
        let own = spec.checkpoint.as_ref()?;
        self.with_staged(staged)
            .filter(|other| other.key != job.key && other.holds_lease())
            // Two that hold it and have nothing open would wait for each other for ever.
            .filter(|other| {
                let is_busy = !other.open.is_empty() || other.is_repairing();
                is_busy || !job.holds_lease() || is_first(other, job)
            })
            .find(|other| {
                let specs = other.open.iter().map(|a| &a.spec).chain([&other.spec]);
                self.overlaps(specs, own)
            })
            .map(|other| other.key.clone())
    }

    /// Another job of which an attempt is open on an equal or nested checkpoint prefix.
    pub(super) fn writer_beside(
        &self,
        job: &Job,
        spec: &JobSpec,
        staged: &BTreeMap<JobKey, Job>,
    ) -> Option<JobKey> {
        let own = spec.checkpoint.as_ref()?;
        self.with_staged(staged)
            .filter(|other| other.key != job.key)
            .find(|other| self.overlaps(other.open.iter().map(|a| &a.spec), own))
            .map(|other| other.key.clone())
    }

    /// Whether one of these specs has a checkpoint prefix that is equal to or nested with `own`.
    fn overlaps<'a>(
        &self,
        mut specs: impl Iterator<Item = &'a Digest>,
        own: &CheckpointSpec,
    ) -> bool {
        specs.any(|digest| {
            let checkpoint = self.specs.get(digest).and_then(|spec| spec.checkpoint.as_ref());
            checkpoint.is_some_and(|checkpoint| checkpoint.overlaps(own))
        })
    }

    /// Whether the other jobs leave room for an attempt of this one.
    fn has_slot(&self, job: &Job, target: &Target, staged: &BTreeMap<JobKey, Job>) -> bool {
        let open = self
            .with_staged(staged)
            .filter(|other| other.key != job.key)
            .flat_map(|job| &job.open)
            .filter(|attempt| attempt.target == target.name)
            .count();
        u32::try_from(open).unwrap_or(u32::MAX) < target.max_parallel
    }
}

/// Which of two jobs goes on first where both hold one prefix: one that has its file before one
/// that lost it, then by name.
fn is_first(job: &Job, other: &Job) -> bool {
    let rank = |job: &Job| (job.source == Source::Unmanaged, job.key.clone());
    rank(job) < rank(other)
}

#[cfg(test)]
mod tests;
