//! Versions of what the store writes, and how an older one becomes the present one.
//!
//! The format's number stands in the marker file, in the head of each journal and backup, and in
//! the engine's mark. A newer number anywhere is refused before anything is changed. An older
//! state is backed up as it is and then written anew, record by record, as a new backup; that
//! file's rename is the moment of the migration.

use super::error::StoreError;

/// The format that this program writes.
///
/// Format 2: values have version 2. They have fields that a program of format 1 does not know, and
/// would drop without a word when it writes the record again: it must not open them.
const PRESENT: u32 = 2;

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
    /// What this program reads and writes.
    pub const PRESENT: Self =
        Self { version: PRESENT, migrations: &[Migration { from: 1, rewrite: to_version_2 }] };

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

/// Values of version 1 get version 2. What they do not say has a default, which stands where each
/// field is declared.
fn to_version_2(key: &[u8], value: &[u8]) -> Rewritten {
    match value.strip_prefix(b"[1,") {
        Some(rest) => Rewritten::Changed { key: key.to_vec(), value: [&b"[2,"[..], rest].concat() },
        None => Rewritten::Same,
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
    fn values_of_the_first_format_get_the_second_version_and_all_else_stays() {
        let steps = Format::PRESENT.migrate(1).expect("steps");
        for (value, want) in [
            (&b"[1,{\"x\":[1,2]}]"[..], &b"[2,{\"x\":[1,2]}]"[..]),
            (b"[11,{}]", b"[11,{}]"),
            (b"[2,{}]", b"[2,{}]"),
            (b"", b""),
        ] {
            assert_eq!(rewrite(&steps, b"k", value), Some((b"k".to_vec(), want.to_vec())));
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
