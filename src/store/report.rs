//! What opening the store found and did, for whoever logs and alarms.

use std::fmt;

use super::origin::Moved;

use serde::{Deserialize, Serialize};

/// How far the opened state can be taken for all that was ever acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fresh {
    /// All that was acknowledged is there.
    Complete,
    /// Nothing was ever committed. Said at each open until the first commit.
    New,
    /// Something that was acknowledged is missing, or may be. What is left is there; the caller
    /// treats it like a new store and alarms. Said at each open until the next commit, so the
    /// caller's first commit has to record what it must remember of this.
    DataMissing,
}

/// One thing that opening the store had to do beyond reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The folder was open to others and is private now.
    FolderTightened {
        /// Its mode before.
        mode: u32,
    },
    /// A file that was being written when the last process ended.
    LeftoverRemoved {
        /// The file.
        name: String,
    },
    /// A file of the engine that would have kept it from opening.
    EngineCleaned {
        /// The file.
        name: String,
        /// Why it had to go.
        why: &'static str,
    },
    /// The engine's files were moved out of the way and it was built anew.
    EngineSetAside {
        /// Their new name.
        to: String,
        /// Why.
        why: String,
    },
    /// The engine was filled from a backup.
    Restored {
        /// The backup.
        name: String,
    },
    /// Journal entries newer than the engine (or the backup) were applied again.
    Replayed {
        /// First sequence.
        first: u64,
        /// Last sequence.
        last: u64,
    },
    /// The end of the journal was torn by a crash and is cut off. None of it was acknowledged.
    TornTailCut {
        /// The journal.
        name: String,
        /// Where it was cut.
        offset: usize,
        /// How much was cut.
        bytes: usize,
    },
    /// A bad stretch of a journal with good entries behind it.
    JournalDamaged {
        /// The journal.
        name: String,
        /// Where the bad stretch begins.
        offset: usize,
        /// First sequence that can be read behind it.
        next: u64,
    },
    /// The head of a journal cannot be read; its entries were used all the same.
    JournalHeadDamaged {
        /// The journal.
        name: String,
    },
    /// The newest journal is not there although there was a store.
    JournalMissing,
    /// The journal ends before what the engine holds.
    JournalShort {
        /// Its last sequence.
        last: u64,
        /// The engine's.
        engine: u64,
    },
    /// A backup cannot be used.
    BackupDamaged {
        /// The backup.
        name: String,
        /// Why.
        why: String,
    },
    /// The marker file that says that there is a store was missing or damaged.
    MarkerMissing,
    /// Acknowledged sequences that no copy holds.
    Lost {
        /// First sequence.
        first: u64,
        /// Last sequence.
        last: u64,
    },
    /// A damaged file was kept under another name for a person to look at.
    SetAside {
        /// The file.
        name: String,
        /// Its new name.
        to: String,
    },
    /// After damage a new backup and journal were begun with what there is.
    Renewed {
        /// Their sequence.
        sequence: u64,
    },
    /// Records of an older format were rewritten.
    Migrated {
        /// The old format.
        from: u32,
        /// The new format.
        to: u32,
    },
}

impl Act {
    /// Whether somebody would want to be woken: kills and crashes alone never cause these.
    pub fn is_alarm(&self) -> bool {
        match self {
            Self::EngineSetAside { .. }
            | Self::Restored { .. }
            | Self::JournalDamaged { .. }
            | Self::JournalHeadDamaged { .. }
            | Self::JournalMissing
            | Self::JournalShort { .. }
            | Self::BackupDamaged { .. }
            | Self::Lost { .. }
            | Self::SetAside { .. }
            | Self::Renewed { .. } => true,
            Self::FolderTightened { .. }
            | Self::LeftoverRemoved { .. }
            | Self::EngineCleaned { .. }
            | Self::Replayed { .. }
            | Self::TornTailCut { .. }
            | Self::MarkerMissing
            | Self::Migrated { .. } => false,
        }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FolderTightened { mode } => {
                write!(f, "the state folder had mode {mode:04o} and has 0700 now")
            }
            Self::LeftoverRemoved { name } => write!(f, "removed {name}, which was never finished"),
            Self::EngineCleaned { name, why } => write!(f, "removed {name} of the engine: {why}"),
            Self::EngineSetAside { to, why } => {
                write!(f, "moved the engine's files to {to} and built it anew, because {why}")
            }
            Self::Restored { name } => write!(f, "filled the engine from {name}"),
            Self::Replayed { first, last } => {
                write!(f, "applied journal entries {first} to {last} again")
            }
            Self::TornTailCut { name, offset, bytes } => {
                write!(f, "cut {bytes} torn bytes off {name} at byte {offset}")
            }
            Self::JournalDamaged { name, offset, next } => {
                write!(f, "{name} is damaged at byte {offset}; the next good entry is {next}")
            }
            Self::JournalHeadDamaged { name } => write!(f, "the head of {name} is damaged"),
            Self::JournalMissing => {
                write!(f, "the newest journal is not there although there was a store")
            }
            Self::JournalShort { last, engine } => {
                write!(f, "the journal ends at {last}, but the engine is at {engine}")
            }
            Self::BackupDamaged { name, why } => write!(f, "{name} cannot be used: {why}"),
            Self::MarkerMissing => write!(f, "the marker file was missing or damaged"),
            Self::Lost { first, last } => {
                write!(f, "commits {first} to {last} cannot be brought back from any copy")
            }
            Self::SetAside { name, to } => write!(f, "kept the damaged {name} as {to}"),
            Self::Renewed { sequence } => {
                write!(f, "began a new backup and journal at sequence {sequence}")
            }
            Self::Migrated { from, to } => {
                write!(f, "rewrote the records of store format {from} as format {to}")
            }
        }
    }
}

/// What opening the store found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReport {
    /// How complete the state is.
    pub fresh: Fresh,
    /// Its sequence.
    pub sequence: u64,
    /// What had to be done, in order.
    pub acts: Vec<Act>,
    /// Whether the state was made elsewhere: whoever runs there may be alive.
    pub moved: Option<Moved>,
}

impl OpenReport {
    /// Whether somebody would want to be woken.
    pub fn is_alarm(&self) -> bool {
        self.moved.is_some()
            || self.fresh == Fresh::DataMissing
            || self.acts.iter().any(Act::is_alarm)
    }
}
