//! Adoptions that wait for their answer, by job.
//!
//! What always holds: one a job; an answer that comes for one that a later act has ended counts for
//! nothing, also where another was begun for the same job meanwhile.

use crate::model::ids::JobKey;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Which one of this process.
    number: u64,
    /// Where it is written down, if it is.
    file: Option<PathBuf>,
}

/// All that wait.
#[derive(Debug, Default)]
pub(super) struct Adopting {
    waiting: BTreeMap<JobKey, Waiting>,
    last: u64,
}

impl Adopting {
    pub(super) fn contains(&self, key: &JobKey) -> bool {
        self.waiting.contains_key(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &JobKey> {
        self.waiting.keys()
    }

    /// One begins; gives its number.
    pub(super) fn begin(&mut self, key: JobKey, file: Option<PathBuf>) -> u64 {
        self.last += 1;
        self.waiting.insert(key, Waiting { number: self.last, file });
        self.last
    }

    /// Takes this one out, if it waits still.
    pub(super) fn take(&mut self, key: &JobKey, number: u64) -> Option<Waiting> {
        let is_it = self.waiting.get(key).is_some_and(|waiting| waiting.number == number);
        if is_it { self.waiting.remove(key) } else { None }
    }

    /// It waits on.
    pub(super) fn put_back(&mut self, key: JobKey, waiting: Waiting) {
        self.waiting.insert(key, waiting);
    }

    /// Where the one for this job is written down, if it is.
    pub(super) fn file(&self, key: &JobKey) -> Option<&Path> {
        self.waiting.get(key)?.file.as_deref()
    }

    /// A later act ends the one for this job.
    pub(super) fn end(&mut self, key: &JobKey) {
        self.waiting.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::JobName;

    #[test]
    fn the_answer_for_one_that_was_ended_is_none_for_the_next() {
        let key = JobKey { name: JobName::new("a").unwrap(), run: 1 };
        let mut adopting = Adopting::default();
        let first = adopting.begin(key.clone(), Some("f".into()));
        assert_eq!(adopting.file(&key), Some(Path::new("f")));
        adopting.end(&key);
        assert_eq!(adopting.take(&key, first), None);
        let second = adopting.begin(key.clone(), None);
        assert_eq!(adopting.take(&key, first), None);
        let waiting = adopting.take(&key, second).unwrap();
        assert!(!adopting.contains(&key));
        adopting.put_back(key.clone(), waiting);
        assert!(adopting.take(&key, second).is_some());
    }
}
