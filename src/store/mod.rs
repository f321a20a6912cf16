//! Durable state: what was acknowledged is there after any crash, torn file or full disk.
//!
//! A commit is appended to a **journal** and synced, then applied to the **engine** (sled). At
//! open the engine is brought forward by the journal; one that is damaged is set aside and built
//! anew from a **backup** and the journal. Larger things are **blobs**, files named by their hash.
//!
//! What always holds:
//! - A commit is acknowledged only after its sync; a batch is there whole or not at all.
//! - Sequences only go forward, and none is ever used for two contents.
//! - After a write error every call is refused until the store is opened again.
//! - A state that may lack something is never given out in silence: [`OpenReport::fresh`].
//!
//! It must not interpret records, read clocks or log; nothing outside `sled_engine` knows sled.
//! Tests: `tests/world/store.rs`, and beside the code.

mod aside;
pub mod asked;
mod backup;
mod batch;
mod blobs;
mod disk;
mod engine;
mod error;
mod format;
mod generations;
mod handle;
mod journal;
mod lock;
pub mod memory;
mod memory_disk;
mod origin;
pub mod records;
mod recover;
mod report;
mod sled_engine;
pub mod snapshot;
mod survey;

use std::collections::BTreeSet;
use std::path::Path;

pub use batch::{BATCH_LIMIT_BYTES, Batch, KEY_LIMIT_BYTES, VALUE_LIMIT_BYTES};
pub use blobs::{BLOB_LIMIT_BYTES, BLOBS_LIMIT_BYTES, BLOBS_SWEPT_BYTES, Swept};
pub use disk::{Disk, Fill, Folder, Listed};
pub use engine::{
    Applied, Cleaned, Engine, EngineError, EngineHome, Fingerprint, RANGE_LIMIT_RECORDS, Record,
};
pub use error::StoreError;
pub use format::{Format, Migration, Rewritten};
pub use handle::Handle;
pub use memory_disk::MemoryDisk;
pub use origin::Moved;
pub use report::{Act, Fresh, OpenReport};
pub use sled_engine::SledHome;

use crate::model::ids::Digest;
use backup::Head;
use blobs::Blobs;
use engine::fingerprint_after;
use generations::{Journal, Marker, retire, write_backup, write_journal, write_marker};
use lock::Lock;

/// Batches that share one sync at most.
pub const GROUP_LIMIT_BATCHES: usize = 256;
/// Bytes of such a group in the journal.
pub const GROUP_LIMIT_BYTES: usize = 4 * 1024 * 1024;
/// A journal of this size is cut by a backup before the next commit.
pub const JOURNAL_CUT_BYTES: u64 = 8 * 1024 * 1024;

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Called at named points of a commit and a backup, so that a test can end the process there:
    /// "journal appended", "journal synced", "applied", "journal begun", "backup written",
    /// "journal cut".
    pub probe: fn(&'static str),
    /// The format to write, and the way to it from older ones.
    pub format: Format,
}

impl Default for Options {
    fn default() -> Self {
        Self { probe: |_| {}, format: Format::PRESENT }
    }
}

/// The receipt of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Sequence of its last batch.
    pub sequence: u64,
}

enum Health {
    Well,
    Poisoned { why: String },
}

/// The opened store. One thread owns it; nothing of it is async.
pub struct Store {
    // The engine goes before the lock: fields are dropped in this order.
    engine: Box<dyn Engine>,
    disk: Box<dyn Disk>,
    applied: Applied,
    journal: Journal,
    blobs: Blobs,
    health: Health,
    fresh: Fresh,
    options: Options,
    _lock: Option<Lock>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sequence = self.applied.sequence;
        f.debug_struct("Store").field("sequence", &sequence).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in `dir`, which is made if it is missing: takes the lock, cleans up, brings
    /// the engine forward. The report says how complete the state is and what had to be done.
    pub fn open(dir: &Path, options: Options) -> Result<(Self, OpenReport), StoreError> {
        let (lock, real, tightened) = lock::take(dir)?;
        let acts = tightened.map(|mode| Act::FolderTightened { mode }).into_iter().collect();
        let disk = Box::new(Folder::new(real.clone()));
        let moved = origin::check(disk.as_ref(), &real)?;
        let mut home = SledHome::new(real);
        let (store, report) = Self::open_locked(disk, &mut home, options, acts, Some(lock))?;
        Ok((store, OpenReport { moved, ..report }))
    }

    /// Opens a store on any disk and engine; the caller sees to it that nobody else does.
    pub fn open_on(
        disk: Box<dyn Disk>,
        home: &mut dyn EngineHome,
        options: Options,
    ) -> Result<(Self, OpenReport), StoreError> {
        Self::open_locked(disk, home, options, Vec::new(), None)
    }

    fn open_locked(
        mut disk: Box<dyn Disk>,
        home: &mut dyn EngineHome,
        options: Options,
        acts: Vec<Act>,
        lock: Option<Lock>,
    ) -> Result<(Self, OpenReport), StoreError> {
        let recovered = recover::recover(disk.as_mut(), home, options.format, acts)?;
        let blobs = Blobs::open(disk.as_mut())?;
        let recover::Recovered { engine, applied, journal, report } = recovered;
        let (health, fresh) = (Health::Well, report.fresh);
        let store =
            Self { engine, disk, applied, journal, blobs, health, fresh, options, _lock: lock };
        Ok((store, report))
    }

    /// Sequence of the last batch. It goes up with every batch, and when opening had to mend.
    pub fn sequence(&self) -> u64 {
        self.applied.sequence
    }

    /// Commits `batches` in order, each for itself whole or not at all, with one sync for all.
    /// They get the sequences after `expected`, which has to be the present one.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] and [`StoreError::GroupTooLarge`] change nothing. After any other
    /// error nothing was acknowledged and the store is poisoned; the next open shows by its
    /// sequence how many of the batches are there.
    pub fn commit(&mut self, expected: u64, batches: &[Batch]) -> Result<Committed, StoreError> {
        self.check()?;
        let found = self.applied.sequence;
        if expected != found {
            return Err(StoreError::Fenced { expected, found });
        }
        let bytes = batches.iter().map(journal::entry_bytes).sum();
        if batches.len() > GROUP_LIMIT_BATCHES || bytes > GROUP_LIMIT_BYTES {
            return Err(StoreError::GroupTooLarge { batches: batches.len(), bytes });
        }
        if batches.is_empty() {
            return Ok(Committed { sequence: found });
        }
        if self.journal.bytes > JOURNAL_CUT_BYTES {
            self.backup()?;
        }
        let written = self.write_group(batches, bytes);
        self.keep_health(written)?;
        Ok(Committed { sequence: self.applied.sequence })
    }

    fn write_group(&mut self, batches: &[Batch], bytes: usize) -> Result<(), StoreError> {
        let probe = self.options.probe;
        let mut entries = Vec::with_capacity(bytes);
        for (sequence, batch) in (self.applied.sequence + 1..).zip(batches) {
            journal::entry(sequence, batch, &mut entries);
        }
        let name = &self.journal.name;
        self.disk.append(name, &entries).map_err(StoreError::file("append to", name))?;
        probe("journal appended");
        self.disk.sync(name).map_err(StoreError::file("sync", name))?;
        self.journal.bytes += entries.len() as u64;
        probe("journal synced");
        for batch in batches {
            self.apply(batch)?;
        }
        probe("applied");
        if self.fresh != Fresh::Complete {
            let marker = Marker { format: self.options.format.version, fresh: Fresh::Complete };
            write_marker(self.disk.as_mut(), marker)?;
            self.fresh = Fresh::Complete;
        }
        Ok(())
    }

    fn apply(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let before = self.applied.fingerprint;
        let fingerprint = fingerprint_after(self.engine.as_ref(), before, batch)
            .map_err(StoreError::engine("read before a change"))?;
        let format = self.options.format.version;
        let applied = Applied { format, sequence: self.applied.sequence + 1, fingerprint };
        self.engine.apply(applied, batch).map_err(StoreError::engine("apply a batch"))?;
        self.applied = applied;
        Ok(())
    }

    /// The value of a key.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.check()?;
        batch::check_key(key)?;
        let found = self.engine.get(key).map_err(StoreError::engine("read a key"));
        self.keep_health(found)
    }

    /// Records whose key begins with `prefix` and lies behind `after`, in order of their keys; at
    /// most `limit` and [`RANGE_LIMIT_RECORDS`]. The last key is the `after` of the next page.
    pub fn range(
        &mut self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.check()?;
        let limit = limit.min(RANGE_LIMIT_RECORDS);
        let found =
            self.engine.range(prefix, after, limit).map_err(StoreError::engine("read keys"));
        self.keep_health(found)
    }

    /// Keeps `bytes` as a file and gives its name. Durable when this returns.
    pub fn put_blob(&mut self, bytes: &[u8]) -> Result<Digest, StoreError> {
        self.check()?;
        let put = self.blobs.put(self.disk.as_mut(), bytes);
        self.keep_health(put)
    }

    /// The content of a blob, checked against its name.
    pub fn get_blob(&self, digest: &Digest) -> Result<Vec<u8>, StoreError> {
        self.check()?;
        blobs::get(self.disk.as_ref(), digest)
    }

    /// Removes blobs that `keep` does not name, the oldest first, until all together are down to
    /// [`BLOBS_SWEPT_BYTES`]. Blobs put since the last sweep stay.
    pub fn sweep_blobs(&mut self, keep: &BTreeSet<Digest>) -> Result<Swept, StoreError> {
        self.check()?;
        let swept = self.blobs.sweep(self.disk.as_mut(), keep, BLOBS_SWEPT_BYTES);
        self.keep_health(swept)
    }

    /// Begins a new journal, writes a backup of the state that it goes on from, and removes the
    /// generation before the last.
    pub fn backup(&mut self) -> Result<(), StoreError> {
        self.check()?;
        let written = self.write_generation();
        self.keep_health(written)
    }

    fn write_generation(&mut self) -> Result<(), StoreError> {
        let head = Head { format: self.options.format.version, sequence: self.applied.sequence };
        self.engine.flush().map_err(StoreError::engine("flush"))?;
        // The journal first: a backup without the journal that follows it tells of a loss.
        if self.journal.base != head.sequence {
            self.journal = write_journal(self.disk.as_mut(), head, &[])?;
        }
        (self.options.probe)("journal begun");
        write_backup(self.disk.as_mut(), head, self.engine.as_ref())?;
        (self.options.probe)("backup written");
        retire(self.disk.as_mut())?;
        (self.options.probe)("journal cut");
        Ok(())
    }

    fn check(&self) -> Result<(), StoreError> {
        match &self.health {
            Health::Well => Ok(()),
            Health::Poisoned { why } => Err(StoreError::Poisoned { why: why.clone() }),
        }
    }

    /// A disk or engine that failed once is not believed again before the next open.
    fn keep_health<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error @ (StoreError::File { .. } | StoreError::Engine { .. })) = &result {
            self.health = Health::Poisoned { why: error.chain() };
        }
        result
    }
}
