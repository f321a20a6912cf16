//! The true store on a disk that forgets, tears, fills and fails.

use super::bugs::Bug;
use super::clock::Rng;
use spotkeeper::core::job::Job;
use spotkeeper::store::memory::MemoryHome;
use spotkeeper::store::{
    Batch, Fresh, MemoryDisk, OpenReport, Options, Store, StoreError, records,
};

/// Changes of the disk that one commit makes at most.
const COMMIT_STEPS: u64 = 3;
const PAGE: usize = 500;

/// How a commit goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The power goes at some step of it.
    PowerCut,
    /// A sync fails; the process lives on.
    SyncFails,
    /// The disk is full for a while; the process lives on.
    Full,
}

pub(crate) struct Disk {
    disk: MemoryDisk,
    home: MemoryHome,
    store: Option<Store>,
    pub(crate) sequence: u64,
}

impl Disk {
    /// An empty folder.
    pub(crate) fn new() -> (Self, Fresh) {
        let mut new = Self {
            disk: MemoryDisk::default(),
            home: MemoryHome::default(),
            store: None,
            sequence: 0,
        };
        let fresh = new.open(None).fresh;
        (new, fresh)
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("an open store")
    }

    fn open(&mut self, bug: Option<Bug>) -> OpenReport {
        self.store = None;
        if bug == Some(Bug::JournalNotReplayed) {
            self.forget_journal();
        }
        let opened =
            Store::open_on(Box::new(self.disk.clone()), &mut self.home.clone(), Options::default());
        let (store, report) = opened.expect("a store that opens");
        self.sequence = store.sequence();
        self.store = Some(store);
        report
    }

    /// As a store would open that trusts its engine alone.
    fn forget_journal(&self) {
        use spotkeeper::store::Disk as _;
        for file in self.disk.list("").expect("a listing") {
            if file.name.starts_with("journal-") {
                let content = self.disk.content(&file.name).expect("a file");
                // The head of a journal has 24 bytes.
                self.disk.replace(&file.name, Some(content[..24.min(content.len())].to_vec()));
            }
        }
    }

    /// Commits what a turn decided.
    pub(crate) fn commit(
        &mut self,
        batch: Batch,
        wrong: Option<Wrong>,
        rng: &mut Rng,
    ) -> Result<(), StoreError> {
        match wrong {
            None => {}
            Some(Wrong::PowerCut) => {
                self.disk.end_at(self.disk.steps() + 1 + rng.below(COMMIT_STEPS));
            }
            Some(Wrong::SyncFails) => self.disk.fail_syncs(1),
            Some(Wrong::Full) => {
                self.disk.set_free_bytes(Some(usize::try_from(rng.below(400)).unwrap_or(0)));
            }
        }
        let sequence = self.sequence;
        let committed = self.store().commit(sequence, &[batch])?;
        self.disk.set_free_bytes(None);
        if wrong == Some(Wrong::PowerCut) {
            // It went right behind the commit, and nobody was told.
            return Err(StoreError::Closed);
        }
        self.sequence = committed.sequence;
        Ok(())
    }

    /// The machine comes back after a power cut, or the process alone after a fault.
    pub(crate) fn reopen(
        &mut self,
        power_cut: bool,
        rng: &mut Rng,
        bug: Option<Bug>,
    ) -> OpenReport {
        self.store = None;
        self.disk.set_free_bytes(None);
        if power_cut {
            let kept = rng.below(3);
            self.disk.restart(&|bytes| match kept {
                0 => 0,
                1 => bytes / 2,
                _ => bytes,
            });
            self.home.crash();
        }
        self.open(bug)
    }

    pub(crate) fn backup(&mut self) {
        self.store().backup().expect("a backup");
    }

    pub(crate) fn is_new_store(&mut self) -> bool {
        self.store().get(records::NEW_STORE).expect("a read").is_some()
    }

    pub(crate) fn note_new(&mut self) {
        let mut batch = Batch::new();
        let value = records::encode(records::NEW_STORE, &true).expect("a small value");
        batch.put(records::NEW_STORE, value).expect("a small value");
        let sequence = self.sequence;
        self.sequence = self.store().commit(sequence, &[batch]).expect("a commit").sequence;
    }

    fn all<T: serde::de::DeserializeOwned>(&mut self, prefix: &[u8]) -> Vec<T> {
        let page = self.store().range(prefix, None, PAGE).expect("a range");
        page.iter().map(|(key, value)| records::decode(key, value).expect("a record")).collect()
    }

    pub(crate) fn jobs(&mut self) -> Vec<Job> {
        self.all(records::JOBS)
    }

    pub(crate) fn ended(
        &mut self,
    ) -> Vec<(spotkeeper::model::ids::JobKey, spotkeeper::core::job::EndedAttempt)> {
        self.all(records::ATTEMPTS)
    }
}
