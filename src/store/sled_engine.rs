//! sled behind the engine surface. Nothing outside this file knows sled.
//!
//! sled may panic on a damaged file, refuse to open over a stray snapshot, open silently older,
//! and stay unusable after a full disk. So each call is guarded, a handle that panicked is leaked
//! rather than dropped (its drop could wait for ever), and nothing here is trusted to be durable:
//! the journal is.

use std::cell::Cell;
use std::fs;
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::aside;
use super::batch::Batch;
use super::disk::private_folder;
use super::engine::{
    Applied, Cleaned, Engine, EngineError, EngineHome, Fingerprint, RANGE_LIMIT_RECORDS, Record,
};

const FOLDER: &str = "sled";
const CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// Tries to get sled's lock, and the pause between two.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// The mark's key: records never have an empty one.
const MARK_KEY: &[u8] = b"";
const MARK_BYTES: usize = 20;

/// The folder `sled` below the state folder.
#[derive(Debug)]
pub struct SledHome {
    state: PathBuf,
}

impl SledHome {
    /// sled's files go below `state`.
    pub fn new(state: PathBuf) -> Self {
        Self { state }
    }

    fn folder(&self) -> PathBuf {
        self.state.join(FOLDER)
    }
}

impl EngineHome for SledHome {
    fn open(&mut self) -> Result<(Box<dyn Engine>, Vec<Cleaned>), EngineError> {
        let folder = self.folder();
        private_folder(&folder).map_err(refused)?;
        let mut cleaned = Vec::new();
        let unfinished = |name: &str, bytes: u64| {
            let generating = name.ends_with(".generating");
            (generating || bytes == 0).then_some(if generating {
                "a snapshot that was never finished"
            } else {
                "an empty snapshot"
            })
        };
        remove_snapshots(&folder, &unfinished, &mut cleaned)?;
        match SledEngine::open(&folder) {
            Err(EngineError::Damaged { .. }) => {
                let every = |_: &str, _: u64| Some("sled called its files corrupt");
                remove_snapshots(&folder, &every, &mut cleaned)?;
                Ok((Box::new(SledEngine::open(&folder)?), cleaned))
            }
            Ok(engine) => Ok((Box::new(engine), cleaned)),
            Err(error @ (EngineError::Panicked { .. } | EngineError::Io { .. })) => Err(error),
        }
    }

    fn set_aside(&mut self) -> io::Result<String> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.state)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        let (to, too_old) = aside::place(&names, FOLDER);
        fs::rename(self.folder(), self.state.join(&to))?;
        for name in too_old {
            fs::remove_dir_all(self.state.join(name))?;
        }
        fs::File::open(&self.state)?.sync_all()?;
        Ok(to)
    }
}

impl SledHome {
    /// Moves the engine's files out of the way, if there are any.
    pub(super) fn set_aside_if_there(&mut self) -> io::Result<()> {
        if self.folder().exists() { self.set_aside().map(drop) } else { Ok(()) }
    }
}

/// Removes the snapshots for which `why` has a reason.
fn remove_snapshots(
    folder: &Path,
    why: &dyn Fn(&str, u64) -> Option<&'static str>,
    cleaned: &mut Vec<Cleaned>,
) -> Result<(), EngineError> {
    for entry in fs::read_dir(folder).map_err(refused)? {
        let entry = entry.map_err(refused)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let about = entry.metadata().map_err(refused)?;
        if !name.starts_with("snap.") || !about.is_file() {
            continue;
        }
        if let Some(why) = why(&name, about.len()) {
            fs::remove_file(entry.path()).map_err(refused)?;
            cleaned.push(Cleaned { name, why });
        }
    }
    Ok(())
}

fn refused(source: io::Error) -> EngineError {
    EngineError::Io { source }
}

#[derive(Debug)]
struct SledEngine {
    /// `None` only while it is being dropped.
    db: Option<sled::Db>,
    panicked: Cell<bool>,
}

impl SledEngine {
    fn open(folder: &Path) -> Result<Self, EngineError> {
        let config = sled::Config::new()
            .path(folder)
            .mode(sled::Mode::LowSpace)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(None);
        let db = guarded(&Cell::new(false), || open_patiently(&config))?;
        Ok(Self { db: Some(db), panicked: Cell::new(false) })
    }

    fn call<T>(&self, act: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, EngineError> {
        let db = self.db.as_ref().expect("it is there until drop");
        guarded(&self.panicked, || act(db))
    }
}

impl Drop for SledEngine {
    fn drop(&mut self) {
        if let Some(db) = self.db.take() {
            if self.panicked.get() {
                std::mem::forget(db);
            } else {
                // Drop flushes, and may do to us what any other call may do.
                let dropped = guarded(&self.panicked, move || {
                    drop(db);
                    Ok(())
                });
                dropped.ok();
            }
        }
    }
}

fn guarded<T>(
    panicked: &Cell<bool>,
    act: impl FnOnce() -> sled::Result<T>,
) -> Result<T, EngineError> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => result.map_err(sort),
        Err(payload) => {
            panicked.set(true);
            let text = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no text");
            Err(EngineError::Panicked { text: text.to_owned() })
        }
    }
}

/// Opens sled. Its lock may outlive the last handle for a moment: a child process holds a copy of
/// it between fork and exec, and sled's own threads end a little later than its handle.
fn open_patiently(config: &sled::Config) -> sled::Result<sled::Db> {
    for _ in 0..LOCK_TRIES {
        match config.open() {
            // sled gives the reason as text alone.
            Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock") => {
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => return opened,
        }
    }
    config.open()
}

/// Tells damage from a disk or system that refuses. A lock that stays taken is damage: our own lock
/// is held, so only a leaked handle of this process can hold sled's, and new files are the way out.
fn sort(error: sled::Error) -> EngineError {
    match error {
        sled::Error::Io(source) if is_refusal(&source) => EngineError::Io { source },
        sled::Error::Io(source) => EngineError::Damaged { source: source.into() },
        other @ (sled::Error::CollectionNotFound(_)
        | sled::Error::Unsupported(_)
        | sled::Error::ReportableBug(_)
        | sled::Error::Corruption { .. }) => EngineError::Damaged { source: other.into() },
    }
}

fn is_refusal(error: &io::Error) -> bool {
    let refusals = [
        io::ErrorKind::StorageFull,
        io::ErrorKind::QuotaExceeded,
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::OutOfMemory,
    ];
    let too_many_files = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE];
    refusals.contains(&error.kind())
        || rustix::io::Errno::from_io_error(error).is_some_and(|e| too_many_files.contains(&e))
}

impl Engine for SledEngine {
    fn applied(&self) -> Result<Option<Applied>, EngineError> {
        let Some(bytes) = self.call(|db| db.get(MARK_KEY))? else { return Ok(None) };
        decode_mark(&bytes).map(Some).ok_or_else(|| EngineError::damaged("its mark is not one"))
    }

    fn apply(&mut self, applied: Applied, batch: &Batch) -> Result<(), EngineError> {
        let mut changes = sled::Batch::default();
        for (key, value) in batch.changes() {
            match value {
                Some(value) => changes.insert(key, value),
                None => changes.remove(key),
            }
        }
        changes.insert(MARK_KEY, &encode_mark(applied));
        self.call(|db| db.apply_batch(changes))
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.call(|db| db.get(key))?.map(|value| value.to_vec()))
    }

    fn range(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, EngineError> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None if prefix.is_empty() => Bound::Excluded(MARK_KEY),
            Some(_) | None => Bound::Included(prefix),
        };
        let range = (start, Bound::<&[u8]>::Unbounded);
        self.call(|db| {
            db.range::<&[u8], _>(range)
                .take_while(|record| record.as_ref().map_or(true, |(k, _)| k.starts_with(prefix)))
                .take(limit.min(RANGE_LIMIT_RECORDS))
                .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())))
                .collect()
        })
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        self.call(|db| db.flush()).map(|_| ())
    }
}

fn encode_mark(applied: Applied) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..4].copy_from_slice(&applied.format.to_le_bytes());
    bytes[4..12].copy_from_slice(&applied.sequence.to_le_bytes());
    bytes[12..].copy_from_slice(&applied.fingerprint.0.to_le_bytes());
    bytes
}

fn decode_mark(bytes: &[u8]) -> Option<Applied> {
    let bytes: &[u8; MARK_BYTES] = bytes.try_into().ok()?;
    Some(Applied {
        format: u32::from_le_bytes(bytes[..4].try_into().ok()?),
        sequence: u64::from_le_bytes(bytes[4..12].try_into().ok()?),
        fingerprint: Fingerprint(u64::from_le_bytes(bytes[12..].try_into().ok()?)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryHome;
    use super::*;

    fn put(pairs: &[(&str, &str)]) -> Batch {
        let mut batch = Batch::new();
        for (key, value) in pairs {
            batch.put(*key, *value).unwrap();
        }
        batch
    }

    /// What both engines have to do alike.
    fn obeys_the_surface(home: &mut dyn EngineHome) {
        let (mut engine, _) = home.open().unwrap();
        assert_eq!(engine.applied().unwrap(), None);
        let mark = |sequence| Applied { format: 1, sequence, fingerprint: Fingerprint(9) };
        engine.apply(mark(3), &put(&[("a", "1"), ("b/1", "2"), ("b/2", "3"), ("c", "4")])).unwrap();
        let mut delete = Batch::new();
        delete.delete("c").unwrap();
        engine.apply(mark(4), &delete).unwrap();
        assert_eq!(engine.applied().unwrap(), Some(mark(4)));
        assert_eq!(engine.get(b"a").unwrap(), Some(b"1".to_vec()));
        assert_eq!(engine.get(b"c").unwrap(), None);
        let keys = |prefix: &str, after: Option<&str>, limit| {
            let page = engine.range(prefix.as_bytes(), after.map(str::as_bytes), limit).unwrap();
            page.into_iter().map(|(k, _)| String::from_utf8(k).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(keys("", None, 9), ["a", "b/1", "b/2"]);
        assert_eq!(keys("", None, 2), ["a", "b/1"]);
        assert_eq!(keys("", Some("a"), 9), ["b/1", "b/2"]);
        assert_eq!(keys("b/", None, 9), ["b/1", "b/2"]);
        assert_eq!(keys("b/", Some("a"), 9), ["b/1", "b/2"]);
        assert_eq!(keys("b/", Some("b/1"), 9), ["b/2"]);
        assert_eq!(keys("b/", Some("c"), 9), [""; 0]);
        engine.flush().unwrap();
        drop(engine);
        let (engine, _) = home.open().unwrap();
        assert_eq!(engine.applied().unwrap(), Some(mark(4)));
        drop(engine);
        home.set_aside().unwrap();
        let (engine, _) = home.open().unwrap();
        assert_eq!(engine.applied().unwrap(), None);
        assert_eq!(engine.range(b"", None, 9).unwrap(), []);
    }

    #[test]
    fn sled_and_memory_obey_the_same_surface() {
        let root = tempfile::tempdir().unwrap();
        obeys_the_surface(&mut SledHome::new(root.path().to_owned()));
        obeys_the_surface(&mut MemoryHome::default());
    }

    #[test]
    fn a_lock_that_is_let_go_in_a_moment_is_no_damage() {
        let root = tempfile::tempdir().unwrap();
        let mut home = SledHome::new(root.path().to_owned());
        drop(home.open().unwrap());
        let held = std::fs::File::open(home.folder().join("db")).unwrap();
        held.lock().unwrap();
        let holder = std::thread::spawn(move || {
            std::thread::sleep(5 * LOCK_PAUSE);
            drop(held);
        });
        home.open().unwrap();
        holder.join().unwrap();
    }

    #[test]
    fn a_handle_that_panicked_is_leaked_and_its_files_can_be_set_aside() {
        let root = tempfile::tempdir().unwrap();
        let mut home = SledHome::new(root.path().to_owned());
        drop(home.open().unwrap());
        let engine = SledEngine::open(&home.folder()).unwrap();
        let panicked = engine.call(|_| -> sled::Result<()> { panic!("made by the test") });
        assert!(matches!(panicked, Err(EngineError::Panicked { text }) if text.contains("test")));
        drop(engine);
        assert!(matches!(home.open(), Err(EngineError::Damaged { .. })), "its lock is still held");
        assert_eq!(home.set_aside().unwrap(), "sled.bad-1");
        home.open().unwrap();
    }
}
