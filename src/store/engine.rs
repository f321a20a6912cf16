//! The narrow surface that a storage engine has to offer.
//!
//! An engine keeps keys, values and the mark of the last batch it took, all three changed
//! together. It need not be durable: the journal stands before it, and what an engine lost is
//! applied again. It must never mix: whatever it holds is what its mark says, which
//! [`examine`] proves.

use std::error::Error;
use std::io;

use super::batch::Batch;
use crate::model::ids::hex;

/// Records that one call of [`Engine::range`] gives at most.
pub const RANGE_LIMIT_RECORDS: usize = 1_000;

/// Records read at a time by whoever walks through all of them.
pub(super) const PAGE_RECORDS: usize = 256;

/// The mark that an engine keeps beside its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Format of the store that wrote it.
    pub format: u32,
    /// Sequence of the last batch.
    pub sequence: u64,
    /// What all records together hash to.
    pub fingerprint: Fingerprint,
}

/// A hash over all records that does not depend on their order, so that a change costs only the
/// changed records. Guards against damage, not against malice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Adds a record that is not in it, or takes out one that is.
    pub fn toggle(&mut self, key: &[u8], value: &[u8]) {
        use sha2::Digest as _;
        let mut hash = sha2::Sha256::new();
        hash.update(key.len().to_le_bytes());
        hash.update(key);
        hash.update(value);
        let digest = hash.finalize();
        let mut head = [0; 8];
        head.copy_from_slice(&digest[..8]);
        self.0 ^= u64::from_le_bytes(head);
    }

    /// As text, for the backup.
    pub(super) fn text(self) -> String {
        hex(&self.0.to_be_bytes())
    }
}

/// Why an engine failed. The type of the engine's own errors stays inside its file.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Its files are not what it wrote: it has to be set aside and built anew.
    #[error("its files are damaged")]
    Damaged {
        /// What it said.
        source: Box<dyn Error + Send + Sync>,
    },
    /// It panicked.
    #[error("it panicked: {text}")]
    Panicked {
        /// The panic's text.
        text: String,
    },
    /// The disk or the system refused; its files may be fine.
    #[error("the disk or the system refused")]
    Io {
        /// The cause.
        source: io::Error,
    },
}

impl EngineError {
    /// Damage, in words.
    pub fn damaged(why: impl Into<String>) -> Self {
        Self::Damaged { source: why.into().into() }
    }
}

/// A key and its value.
pub type Record = (Vec<u8>, Vec<u8>);

/// An opened engine.
pub trait Engine: Send {
    /// The mark of the last batch; `None` if it never took one.
    fn applied(&self) -> Result<Option<Applied>, EngineError>;
    /// Takes a batch and its mark, both or neither.
    fn apply(&mut self, applied: Applied, batch: &Batch) -> Result<(), EngineError>;
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError>;
    /// Records whose key begins with `prefix` and lies behind `after`, in order of their keys.
    fn range(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Record>, EngineError>;
    /// Hands what it holds to the system.
    fn flush(&mut self) -> Result<(), EngineError>;
}

/// The place where an engine's files are.
pub trait EngineHome: Send {
    /// Opens it, or makes an empty one; says what had to be cleaned away.
    fn open(&mut self) -> Result<(Box<dyn Engine>, Vec<Cleaned>), EngineError>;
    /// Moves the files out of the way; gives their new name.
    fn set_aside(&mut self) -> io::Result<String>;
}

/// A leftover that was removed so that the engine opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleaned {
    /// The file.
    pub name: String,
    /// Why it had to go.
    pub why: &'static str,
}

/// Reads every record and compares them with the engine's mark.
pub(super) fn examine(engine: &dyn Engine) -> Result<Option<Applied>, EngineError> {
    let applied = engine.applied()?;
    let mut found = Fingerprint::default();
    for_each_record(engine, &mut |key, value| {
        found.toggle(key, value);
        Ok::<(), EngineError>(())
    })?;
    let wanted = applied.map_or(Fingerprint::default(), |a| a.fingerprint);
    if found != wanted {
        let sequence = applied.map_or(0, |a| a.sequence);
        return Err(EngineError::damaged(format!(
            "its records are not those of sequence {sequence}"
        )));
    }
    Ok(applied)
}

/// Takes one record of many.
pub(super) type Visit<'a, E> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<(), E>;

/// Walks through all records in order.
pub(super) fn for_each_record<E: From<EngineError>>(
    engine: &dyn Engine,
    visit: Visit<'_, E>,
) -> Result<(), E> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = engine.range(b"", after.as_deref(), PAGE_RECORDS)?;
        for (key, value) in &page {
            visit(key, value)?;
        }
        if page.len() < PAGE_RECORDS {
            return Ok(());
        }
        after = page.into_iter().next_back().map(|(key, _)| key);
    }
}

/// The fingerprint after `batch`, for an engine whose records now hash to `before`.
pub(super) fn fingerprint_after(
    engine: &dyn Engine,
    before: Fingerprint,
    batch: &Batch,
) -> Result<Fingerprint, EngineError> {
    let mut fingerprint = before;
    for (key, value) in batch.changes() {
        if let Some(old) = engine.get(key)? {
            fingerprint.toggle(key, &old);
        }
        if let Some(new) = value {
            fingerprint.toggle(key, new);
        }
    }
    Ok(fingerprint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_knows_records_but_not_their_order() {
        let of = |records: &[(&str, &str)]| {
            let mut f = Fingerprint::default();
            for (k, v) in records {
                f.toggle(k.as_bytes(), v.as_bytes());
            }
            f
        };
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        assert_ne!(of(&[("a", "1")]), of(&[("a", "2")]));
        assert_ne!(of(&[("ab", "c")]), of(&[("a", "bc")]));
        assert_eq!(of(&[("a", "1"), ("a", "1")]), Fingerprint::default());
    }
}
