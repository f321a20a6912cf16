//! Versions of what the store writes, and how an older one becomes the present one.
//!
//! The format's number stands in the marker file, in the head of each journal and backup, and in
//! the engine's mark. A newer number anywhere is refused before anything is changed. An older
//! state is backed up as it is and then written anew, record by record, as a new backup; that
//! file's rename is the moment of the migration.

use super::error::StoreError;

/// The format that this program writes.
const PRESENT: u32 = 1;

/// What becomes of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rewritten {
    /// It stays as it is.
    Same,
    /// It is replaced.
    Changed {
        /// New key.
        key: Vec<u8>,
        /// New value.
        value: Vec<u8>,
    },
    /// It goes.
    Dropped,
}

/// The step from one format to the next.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// The format it reads; it writes the next one.
    pub from: u32,
    /// Rewrites one record, given as key and value.
    pub rewrite: fn(&[u8], &[u8]) -> Rewritten,
}

/// A format and the way to it.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// Its number.
    pub version: u32,
    /// Steps from older formats.
    pub migrations: &'static [Migration],
}

impl Format {
    /// What this program reads and writes. Format 1 is the first: there is nothing to come from.
    pub const PRESENT: Self = Self { version: PRESENT, migrations: &[] };

    /// Refuses what a newer program wrote.
    pub(super) fn check(self, file: &str, found: u32) -> Result<(), StoreError> {
        if found > self.version {
            let file = file.to_owned();
            return Err(StoreError::NewerFormat { file, found, known: self.version });
        }
        Ok(())
    }

    /// The steps from format `from` to this one, in order.
    pub(super) fn migrate(self, from: u32) -> Result<Vec<Migration>, StoreError> {
        (from..self.version)
            .map(|from| {
                self.migrations
                    .iter()
                    .find(|step| step.from == from)
                    .copied()
                    .ok_or(StoreError::NoMigration { from })
            })
            .collect()
    }
}

/// What becomes of a record after all steps; `None` if it goes.
pub(super) fn rewrite(steps: &[Migration], key: &[u8], value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut record = (key.to_vec(), value.to_vec());
    for step in steps {
        match (step.rewrite)(&record.0, &record.1) {
            Rewritten::Same => {}
            Rewritten::Changed { key, value } => record = (key, value),
            Rewritten::Dropped => return None,
        }
    }
    Some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_present_format_has_a_way_from_every_older_one() {
        for from in 1..=Format::PRESENT.version {
            assert!(Format::PRESENT.migrate(from).is_ok(), "{from}");
        }
    }

    #[test]
    fn a_missing_step_is_an_error_and_a_newer_format_is_refused_in_words() {
        let format = Format { version: 2, migrations: &[] };
        assert!(matches!(format.migrate(1), Err(StoreError::NoMigration { from: 1 })));
        let refused = format.check("store.version", 3).unwrap_err().to_string();
        assert!(refused.contains("format 3") && refused.contains("newer program"), "{refused}");
    }
}
