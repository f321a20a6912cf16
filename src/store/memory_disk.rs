//! A disk in memory that tears, fills up, fails and forgets what was not synced. Clones share the
//! same files. Everything is counted in steps, so that a test can end the world at each of them.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{ASIDE, Disk, Fill, Listed};

#[derive(Debug, Clone, Default)]
struct Stored {
    synced: Vec<u8>,
    appended: Vec<u8>,
    age_order: u128,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, Stored>,
    steps: u64,
    ends_at: Option<u64>,
    free_bytes: Option<usize>,
    failing_syncs: u32,
}

/// The disk, and a test's hand on it.
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

impl MemoryDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.state().steps
    }

    /// From this step on nothing works any more, until [`MemoryDisk::restart`].
    pub fn end_at(&self, step: u64) {
        self.state().ends_at = Some(step);
    }

    /// A machine that lost its power comes back: of what was appended but not synced, `keep`
    /// (given the number of such bytes) says how many survived.
    pub fn restart(&self, keep: &dyn Fn(usize) -> usize) {
        let mut state = self.state();
        state.ends_at = None;
        state.failing_syncs = 0;
        for file in state.files.values_mut() {
            let kept = keep(file.appended.len()).min(file.appended.len());
            let appended = std::mem::take(&mut file.appended);
            file.synced.extend(&appended[..kept]);
        }
    }

    /// Leaves so many bytes of space; `None` is without limit.
    pub fn set_free_bytes(&self, bytes: Option<usize>) {
        self.state().free_bytes = bytes;
    }

    /// Lets the next syncs fail with EIO.
    pub fn fail_syncs(&self, count: u32) {
        self.state().failing_syncs = count;
    }

    /// A file's content, unsynced bytes included.
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.files.get(name).map(|file| [file.synced.as_slice(), &file.appended].concat())
    }

    /// Replaces a file behind the store's back; `None` removes it.
    pub fn replace(&self, name: &str, content: Option<Vec<u8>>) {
        let mut state = self.state();
        match content {
            Some(synced) => {
                let stored = Stored { synced, ..Stored::default() };
                state.files.insert(name.to_owned(), stored);
            }
            None => {
                state.files.remove(name);
            }
        }
    }
}

impl State {
    fn step(&mut self) -> io::Result<()> {
        self.steps += 1;
        if self.ends_at.is_some_and(|end| self.steps >= end) {
            return Err(io_error());
        }
        Ok(())
    }

    /// How many of `wanted` bytes fit.
    fn take_space(&mut self, wanted: usize) -> usize {
        let Some(free) = &mut self.free_bytes else { return wanted };
        let taken = wanted.min(*free);
        *free -= taken;
        taken
    }

    fn file(&mut self, name: &str) -> io::Result<&mut Stored> {
        self.files.get_mut(name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn io_error() -> io::Error {
    rustix::io::Errno::IO.into()
}

impl Disk for MemoryDisk {
    fn list(&self, folder: &str) -> io::Result<Vec<Listed>> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let state = self.state();
        let listed = state.files.iter().filter_map(|(name, file)| {
            let name = name.strip_prefix(&prefix).filter(|rest| !rest.contains('/'))?;
            let bytes = (file.synced.len() + file.appended.len()) as u64;
            Some(Listed { name: name.to_owned(), bytes, age_order: file.age_order })
        });
        Ok(listed.collect())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let content = self.content(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Cursor::new(content)))
    }

    fn write(&mut self, name: &str, fill: Fill<'_>) -> io::Result<()> {
        let aside = format!("{name}{ASIDE}");
        self.state().step()?;
        self.state().files.insert(aside.clone(), Stored::default());
        let mut content = Vec::new();
        let filled = fill(&mut content);
        let mut state = self.state();
        let fits = state.take_space(content.len()) == content.len();
        if filled.is_err() || !fits {
            state.files.remove(&aside);
            return Err(filled.err().unwrap_or_else(|| io::ErrorKind::StorageFull.into()));
        }
        state.step()?;
        state.file(&aside)?.appended.clone_from(&content);
        state.step()?;
        let age_order = u128::from(state.steps);
        let stored = Stored { synced: content, appended: Vec::new(), age_order };
        *state.file(&aside)? = stored.clone();
        state.step()?;
        state.files.remove(&aside);
        state.files.insert(name.to_owned(), stored);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let fits = state.take_space(bytes.len());
        state.file(name)?.appended.extend(&bytes[..fits]);
        if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        if state.failing_syncs > 0 {
            state.failing_syncs -= 1;
            return Err(io_error());
        }
        let file = state.file(name)?;
        let appended = std::mem::take(&mut file.appended);
        file.synced.extend(appended);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let file = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        state.files.remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restart_keeps_what_was_synced_and_as_much_more_as_it_is_told() {
        let mut disk = MemoryDisk::default();
        disk.write("a", &mut |out| out.write_all(b"1")).unwrap();
        disk.append("a", b"2").unwrap();
        disk.sync("a").unwrap();
        disk.append("a", b"345").unwrap();
        disk.restart(&|bytes| bytes - 2);
        assert_eq!(disk.content("a").unwrap(), b"123");
    }

    #[test]
    fn a_full_disk_takes_a_part_and_a_failed_write_leaves_nothing() {
        let mut disk = MemoryDisk::default();
        disk.write("a", &mut |out| out.write_all(b"1")).unwrap();
        disk.set_free_bytes(Some(2));
        let full = disk.append("a", b"2345").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.content("a").unwrap(), b"123");
        disk.write("b", &mut |out| out.write_all(b"1")).unwrap_err();
        assert_eq!(disk.list("").unwrap().len(), 1);
    }
}
