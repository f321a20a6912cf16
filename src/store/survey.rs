//! What is on the disk before anything is changed. What a newer program wrote is refused here.

use super::backup::{self, Head, Unusable};
use super::disk::{ASIDE, Disk, read_whole};
use super::engine::Applied;
use super::error::StoreError;
use super::format::Format;
use super::generations::{MARKER, Marker, backup_sequence, journal_base, names};
use super::journal::{self, Header, Reading};
use super::{GROUP_LIMIT_BYTES, JOURNAL_CUT_BYTES};

/// Bytes of the largest journal: it is cut before a commit that finds it over its own limit.
const JOURNAL_LIMIT_BYTES: u64 = JOURNAL_CUT_BYTES + 2 * GROUP_LIMIT_BYTES as u64;
const MARKER_LIMIT_BYTES: u64 = 4096;

/// A journal file.
pub(super) struct JournalFile {
    pub(super) name: String,
    pub(super) base: u64,
    pub(super) reading: Reading,
}

impl JournalFile {
    /// Its format; `None` if its head cannot be read.
    pub(super) fn format(&self) -> Option<u32> {
        match self.reading.header {
            Header::Good { format, .. } => Some(format),
            Header::Bad => None,
        }
    }

    /// Its last sequence.
    pub(super) fn end(&self) -> u64 {
        self.reading.entries.last().map_or(self.base, |(sequence, _)| *sequence)
    }
}

/// A backup file.
pub(super) struct BackupFile {
    pub(super) name: String,
    pub(super) sequence: u64,
    /// Its first line, or why there is none.
    pub(super) head: Result<Head, String>,
}

/// The files of a store.
pub(super) struct Survey {
    /// `None` if it is missing or damaged.
    pub(super) marker: Option<Marker>,
    marker_file: bool,
    /// In order of their sequence.
    pub(super) backups: Vec<BackupFile>,
    /// In order of their base.
    pub(super) journals: Vec<JournalFile>,
    /// Files that were never finished.
    pub(super) leftovers: Vec<String>,
}

impl Survey {
    pub(super) fn take(disk: &dyn Disk, format: Format) -> Result<Self, StoreError> {
        let names = names(disk)?;
        let mut survey = Self {
            marker: None,
            marker_file: false,
            backups: Vec::new(),
            journals: Vec::new(),
            leftovers: Vec::new(),
        };
        for name in names {
            if name == MARKER {
                survey.marker_file = true;
                survey.marker = read_marker(disk, format)?;
            } else if name.ends_with(ASIDE) {
                survey.leftovers.push(name);
            } else if let Some(sequence) = backup_sequence(&name) {
                let head = match backup::head(disk, &name) {
                    Ok(head) => {
                        format.check(&name, head.format)?;
                        if head.sequence == sequence {
                            Ok(head)
                        } else {
                            Err(format!("its head says sequence {}", head.sequence))
                        }
                    }
                    Err(Unusable::Damaged(why)) => Err(why),
                    Err(Unusable::Stopped(error)) => Err(error.to_string()),
                };
                survey.backups.push(BackupFile { name, sequence, head });
            } else if let Some(base) = journal_base(&name) {
                let bytes = read_whole(disk, &name, JOURNAL_LIMIT_BYTES)
                    .map_err(StoreError::file("read", &name))?;
                let mut reading = journal::read(&bytes, base);
                match reading.header {
                    Header::Good { base: said, .. } if said != base => reading.header = Header::Bad,
                    Header::Good { format: found, .. } => format.check(&name, found)?,
                    Header::Bad => {}
                }
                survey.journals.push(JournalFile { name, base, reading });
            }
        }
        #[cfg(test_hooks)]
        assert!(survey.journals.iter().all(|file| !file.name.contains(super::aside::BAD)));
        Ok(survey)
    }

    /// The journal that the last process appended to.
    pub(super) fn active(&self) -> Option<&JournalFile> {
        self.journals.last()
    }

    /// The format of the newest data; `None` if nothing says one.
    pub(super) fn data_format(&self, engine: Option<Applied>) -> Option<u32> {
        let journals = self.journals.iter().filter_map(JournalFile::format);
        let backups = self.backups.iter().filter_map(|file| file.head.as_ref().ok());
        journals.chain(backups.map(|head| head.format)).chain(engine.map(|a| a.format)).max()
    }

    /// The highest sequence that anything names.
    pub(super) fn highest(&self, engine: Option<Applied>) -> u64 {
        let journals = self.journals.iter().map(JournalFile::end);
        let bases = self.journals.iter().map(|file| file.base);
        let engine = engine.map(|applied| applied.sequence);
        journals.chain(bases).chain([self.newest_backup()]).chain(engine).max().unwrap_or(0)
    }

    /// The sequence of the newest backup; 0 without one.
    pub(super) fn newest_backup(&self) -> u64 {
        self.backups.last().map_or(0, |file| file.sequence)
    }

    /// Whether there was never a store here.
    pub(super) fn is_nothing(&self, sequence: u64) -> bool {
        !self.marker_file && self.journals.is_empty() && self.backups.is_empty() && sequence == 0
    }
}

/// Read first: a newer marker may say more than this program knows.
#[derive(serde::Deserialize)]
struct FormatAlone {
    format: u32,
}

fn read_marker(disk: &dyn Disk, format: Format) -> Result<Option<Marker>, StoreError> {
    let bytes =
        read_whole(disk, MARKER, MARKER_LIMIT_BYTES).map_err(StoreError::file("read", MARKER))?;
    if let Ok(FormatAlone { format: found }) = serde_json::from_slice(&bytes) {
        format.check(MARKER, found)?;
    }
    Ok(serde_json::from_slice(&bytes).ok())
}
