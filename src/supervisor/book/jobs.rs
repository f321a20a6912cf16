//! All jobs, and where their open attempts are found by mark, by id and by place.
//!
//! Every row of a list is looked up, and every step asks how long a CreateJob can be accepted at its
//! place: neither may go through all jobs. Always holds: what is found is what a walk over the jobs
//! would find. A job is only put in or taken out whole, so that nothing can be changed behind that.

use crate::core::job::Job;
use crate::model::ids::{CloudId, JobKey, Mark};
use crate::model::spec::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::time::Duration;

/// All jobs by name and run. Reads as a map.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Jobs {
    all: BTreeMap<JobKey, Job>,
    by_mark: BTreeMap<Mark, BTreeSet<JobKey>>,
    by_id: BTreeMap<CloudId, BTreeSet<JobKey>>,
    /// Of each place, how many open attempts were sent under which acceptance; some do not say.
    by_place: BTreeMap<Place, BTreeMap<Option<Duration>, usize>>,
}

impl Jobs {
    /// Puts in a job in place of the one with its name and run, and answers that.
    pub fn insert(&mut self, key: JobKey, job: Job) -> Option<Job> {
        let before = self.remove(&key);
        for attempt in &job.open {
            self.by_mark.entry(attempt.mark.clone()).or_default().insert(key.clone());
            if let Some(id) = attempt.id() {
                self.by_id.entry(id.clone()).or_default().insert(key.clone());
            }
            let said = attempt.terms.as_ref().map(|terms| terms.acceptance);
            *self.by_place.entry(attempt.place.clone()).or_default().entry(said).or_default() += 1;
        }
        self.all.insert(key, job);
        before
    }

    /// Takes a job out.
    pub fn remove(&mut self, key: &JobKey) -> Option<Job> {
        let job = self.all.remove(key)?;
        for attempt in &job.open {
            take_out(&mut self.by_mark, &attempt.mark, key);
            if let Some(id) = attempt.id() {
                take_out(&mut self.by_id, id, key);
            }
            let said = attempt.terms.as_ref().map(|terms| terms.acceptance);
            if let Some(at_place) = self.by_place.get_mut(&attempt.place) {
                if let Some(count) = at_place.get_mut(&said) {
                    *count -= 1;
                    if *count == 0 {
                        at_place.remove(&said);
                    }
                }
                if at_place.is_empty() {
                    self.by_place.remove(&attempt.place);
                }
            }
        }
        Some(job)
    }

    /// The job of which an attempt with this mark is open.
    pub(in crate::supervisor) fn open_with(&self, mark: &Mark) -> Option<&Job> {
        self.all.get(self.by_mark.get(mark)?.first()?)
    }

    /// The job of which an attempt with this id is open.
    pub(in crate::supervisor) fn open_as(&self, id: &CloudId) -> Option<&Job> {
        self.all.get(self.by_id.get(id)?.first()?)
    }

    /// The places of open attempts.
    pub(in crate::supervisor) fn open_places(&self) -> impl Iterator<Item = &Place> {
        self.by_place.keys()
    }

    /// The longest acceptance that an open attempt at a place was sent under.
    pub(in crate::supervisor) fn longest_acceptance(&self, place: &Place) -> Option<Duration> {
        self.by_place.get(place)?.keys().next_back().copied().flatten()
    }
}

fn take_out<K: Ord>(from: &mut BTreeMap<K, BTreeSet<JobKey>>, at: &K, key: &JobKey) {
    if let Some(keys) = from.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            from.remove(at);
        }
    }
}

impl Deref for Jobs {
    type Target = BTreeMap<JobKey, Job>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Extend<(JobKey, Job)> for Jobs {
    fn extend<T: IntoIterator<Item = (JobKey, Job)>>(&mut self, jobs: T) {
        for (key, job) in jobs {
            self.insert(key, job);
        }
    }
}

impl<'a> IntoIterator for &'a Jobs {
    type Item = (&'a JobKey, &'a Job);
    type IntoIter = std::collections::btree_map::Iter<'a, JobKey, Job>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}
