//! An engine in memory that forgets what was not flushed when it "crashes", fills up, and breaks
//! on demand. Clones of a [`MemoryHome`] share the same contents.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::batch::Batch;
use super::engine::{
    Applied, Cleaned, Engine, EngineError, EngineHome, RANGE_LIMIT_RECORDS, Record,
};

/// What the engine holds at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    applied: Option<Applied>,
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// How the engine behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Health {
    /// As it should.
    #[default]
    Well,
    /// Writes are refused: no space.
    Full,
    /// It does not open until its files are set aside.
    Broken,
}

#[derive(Debug, Default)]
struct State {
    current: Contents,
    flushed: Contents,
    health: Health,
    set_aside: u64,
}

/// The place of the engine, and a test's hand on it.
#[derive(Debug, Clone, Default)]
pub struct MemoryHome {
    state: Arc<Mutex<State>>,
}

impl MemoryHome {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loses what was not flushed.
    pub fn crash(&self) {
        let mut state = self.state();
        state.current = state.flushed.clone();
    }

    /// Changes how it behaves from now on.
    pub fn set_health(&self, health: Health) {
        self.state().health = health;
    }

    /// What it holds now.
    pub fn contents(&self) -> Contents {
        self.state().current.clone()
    }

    /// Puts other contents in its place: older ones, or none.
    pub fn replace(&self, contents: Contents) {
        let mut state = self.state();
        state.flushed = contents.clone();
        state.current = contents;
    }

    /// Changes a value behind the engine's back; `false` if there is no such key.
    pub fn damage(&self, key: &[u8]) -> bool {
        let mut state = self.state();
        let found = state.current.records.get_mut(key).map(|value| value.push(b'?'));
        state.flushed = state.current.clone();
        found.is_some()
    }
}

impl EngineHome for MemoryHome {
    fn open(&mut self) -> Result<(Box<dyn Engine>, Vec<Cleaned>), EngineError> {
        match self.state().health {
            Health::Well => Ok((Box::new(MemoryEngine { home: self.clone() }), Vec::new())),
            Health::Full => Err(no_space()),
            Health::Broken => Err(EngineError::damaged("the test broke it")),
        }
    }

    fn set_aside(&mut self) -> io::Result<String> {
        let mut state = self.state();
        let set_aside = state.set_aside + 1;
        *state = State { set_aside, ..State::default() };
        Ok(format!("memory.bad-{set_aside}"))
    }
}

struct MemoryEngine {
    home: MemoryHome,
}

fn no_space() -> EngineError {
    EngineError::Io { source: io::ErrorKind::StorageFull.into() }
}

impl Engine for MemoryEngine {
    fn applied(&self) -> Result<Option<Applied>, EngineError> {
        Ok(self.home.state().current.applied)
    }

    fn apply(&mut self, applied: Applied, batch: &Batch) -> Result<(), EngineError> {
        let mut state = self.home.state();
        if state.health == Health::Full {
            return Err(no_space());
        }
        for (key, value) in batch.changes() {
            match value {
                Some(value) => state.current.records.insert(key.to_vec(), value.to_vec()),
                None => state.current.records.remove(key),
            };
        }
        state.current.applied = Some(applied);
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        Ok(self.home.state().current.records.get(key).cloned())
    }

    fn range(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, EngineError> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            Some(_) | None => Bound::Included(prefix),
        };
        let state = self.home.state();
        let records = state.current.records.range::<[u8], _>((start, Bound::Unbounded));
        Ok(records
            .take_while(|(key, _)| key.starts_with(prefix))
            .take(limit.min(RANGE_LIMIT_RECORDS))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect())
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        let mut state = self.home.state();
        if state.health == Health::Full {
            return Err(no_space());
        }
        state.flushed = state.current.clone();
        Ok(())
    }
}
