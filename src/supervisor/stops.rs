//! Which StopJobs are on their way.
//!
//! A stop that shows no effect is asked for again after each pass. Where StopJob is slow or throttled
//! that is faster than it is sent: without this, the line of the account would fill with the same few
//! stops, and no list would find a place in it.
//!
//! What always holds: of each job at most one StopJob waits for its turn or for its answer.

use crate::model::ids::CloudId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The jobs whose stop is on its way. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Stops(Arc<Mutex<BTreeSet<CloudId>>>);

/// A stop on its way, until this is dropped.
#[derive(Debug)]
pub(super) struct OnItsWay {
    stops: Stops,
    id: CloudId,
}

impl Stops {
    fn ids(&self) -> MutexGuard<'_, BTreeSet<CloudId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stop of `id` sets out; `None` if one is on its way.
    pub(super) fn begin(&self, id: &CloudId) -> Option<OnItsWay> {
        let is_first = self.ids().insert(id.clone());
        is_first.then(|| OnItsWay { stops: self.clone(), id: id.clone() })
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.stops.ids().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_stop_of_a_job_waits_until_the_first_came_out_or_was_dropped() {
        let (stops, id) = (Stops::default(), |text| CloudId::new(text).expect("an id"));
        let first = stops.begin(&id("dlc1")).expect("none is on its way");
        assert!(stops.begin(&id("dlc1")).is_none());
        let other = stops.begin(&id("dlc2")).expect("another job is stopped beside it");
        drop(first);
        assert!(stops.begin(&id("dlc1")).is_some());
        assert!(stops.begin(&id("dlc2")).is_none());
        drop(other);
        assert!(stops.ids().is_empty());
    }
}
