//! The files of the store and their generations: a backup and the journal that goes on from it.
//!
//! `backup-N.jsonl` is the state at sequence N, `journal-N` holds what came after N; the very
//! first journal goes on from nothing. Two backups are kept, and every journal that the older of
//! them needs, so that either can be brought to the present.

use serde::{Deserialize, Serialize};

use super::aside;
use super::backup::{self, Head};
use super::disk::Disk;
use super::engine::Engine;
use super::error::StoreError;
use super::journal;
use super::report::Fresh;

/// Says that there is a store, of which format, and whether something still has to be told.
pub(super) const MARKER: &str = "store.version";
/// Backups that are kept.
const BACKUPS_KEPT: usize = 2;
const DIGITS: usize = 20;

/// The journal that is appended to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Journal {
    pub(super) name: String,
    pub(super) base: u64,
    pub(super) bytes: u64,
}

/// The content of the marker file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Marker {
    pub(super) format: u32,
    /// What each open says until a commit was made.
    pub(super) fresh: Fresh,
}

pub(super) fn backup_name(sequence: u64) -> String {
    format!("backup-{sequence:0DIGITS$}.jsonl")
}

pub(super) fn journal_name(base: u64) -> String {
    format!("journal-{base:0DIGITS$}")
}

pub(super) fn backup_sequence(name: &str) -> Option<u64> {
    number(name.strip_prefix("backup-")?.strip_suffix(".jsonl")?)
}

pub(super) fn journal_base(name: &str) -> Option<u64> {
    number(name.strip_prefix("journal-")?)
}

fn number(digits: &str) -> Option<u64> {
    let number = digits.parse().ok()?;
    (digits.len() == DIGITS && number <= u64::MAX / 2).then_some(number)
}

pub(super) fn write_marker(disk: &mut dyn Disk, marker: Marker) -> Result<(), StoreError> {
    disk.write(MARKER, &mut |out| {
        serde_json::to_writer(&mut *out, &marker)?;
        out.write_all(b"\n")
    })
    .map_err(StoreError::file("write", MARKER))
}

/// Writes a journal that begins with `content` behind its header; it may be empty.
pub(super) fn write_journal(
    disk: &mut dyn Disk,
    head: Head,
    content: &[u8],
) -> Result<Journal, StoreError> {
    let name = journal_name(head.sequence);
    let header = journal::header(head.format, head.sequence);
    disk.write(&name, &mut |out| {
        out.write_all(&header)?;
        out.write_all(content)
    })
    .map_err(StoreError::file("write", &name))?;
    let bytes = (header.len() + content.len()) as u64;
    Ok(Journal { name, base: head.sequence, bytes })
}

/// Backs up what the engine holds, which is the state at `head.sequence`.
pub(super) fn write_backup(
    disk: &mut dyn Disk,
    head: Head,
    engine: &dyn Engine,
) -> Result<(), StoreError> {
    let name = backup_name(head.sequence);
    backup::write(disk, &name, head, engine).map_err(StoreError::file("write", name))
}

/// Removes backups and journals that no kept generation needs.
pub(super) fn retire(disk: &mut dyn Disk) -> Result<(), StoreError> {
    let names = names(disk)?;
    let backups: Vec<u64> = names.iter().filter_map(|n| backup_sequence(n)).collect();
    let Some(surplus) = backups.len().checked_sub(BACKUPS_KEPT) else { return Ok(()) };
    let oldest_kept = backups[surplus];
    let journals: Vec<u64> = names.iter().filter_map(|n| journal_base(n)).collect();
    let unneeded = journals.windows(2).filter(|pair| pair[1] <= oldest_kept);
    let gone = backups[..surplus]
        .iter()
        .map(|sequence| backup_name(*sequence))
        .chain(unneeded.map(|pair| journal_name(pair[0])));
    for name in gone {
        disk.remove(&name).map_err(StoreError::file("remove", &name))?;
    }
    Ok(())
}

/// Renames a damaged file so that nothing reads it any more; gives its new name.
pub(super) fn set_aside(disk: &mut dyn Disk, name: &str) -> Result<String, StoreError> {
    let (to, too_old) = aside::place(&names(disk)?, name);
    disk.rename(name, &to).map_err(StoreError::file("set aside", name))?;
    for name in too_old {
        disk.remove(&name).map_err(StoreError::file("remove", &name))?;
    }
    Ok(to)
}

/// Names of the plain files at the top, in order.
pub(super) fn names(disk: &dyn Disk) -> Result<Vec<String>, StoreError> {
    let listed = disk.list("").map_err(StoreError::file("list", "the state folder"))?;
    Ok(listed.into_iter().map(|file| file.name).collect())
}

#[cfg(test)]
mod tests {
    use super::super::memory_disk::MemoryDisk;
    use super::*;

    #[test]
    fn names_hold_their_number_and_sort_by_it() {
        assert_eq!(backup_sequence(&backup_name(42)), Some(42));
        assert_eq!(journal_base(&journal_name(42)), Some(42));
        assert!(journal_name(9) < journal_name(10));
        for other in ["journal-7", "journal-00000000000000000007.bad-1", "backup-x.jsonl", "lock"] {
            assert_eq!((journal_base(other), backup_sequence(other)), (None, None), "{other}");
        }
        assert_eq!(journal_base("journal-18446744073709551615"), None);
    }

    #[test]
    fn two_backups_and_what_the_older_one_needs_are_kept() {
        let kept = |backups: &[u64], journals: &[u64]| {
            let mut disk = MemoryDisk::default();
            for name in backups.iter().map(|s| backup_name(*s)) {
                disk.replace(&name, Some(vec![]));
            }
            for name in journals.iter().map(|s| journal_name(*s)) {
                disk.replace(&name, Some(vec![]));
            }
            retire(&mut disk).unwrap();
            let names = names(&disk).unwrap();
            let numbers = |of: fn(&str) -> Option<u64>| {
                names.iter().filter_map(|n| of(n)).collect::<Vec<_>>()
            };
            (numbers(backup_sequence), numbers(journal_base))
        };
        assert_eq!(kept(&[], &[0]), (vec![], vec![0]));
        assert_eq!(kept(&[5], &[0, 5]), (vec![5], vec![0, 5]));
        assert_eq!(kept(&[5, 9], &[0, 5, 9]), (vec![5, 9], vec![5, 9]));
        assert_eq!(kept(&[5, 9, 12], &[5, 9, 12]), (vec![9, 12], vec![9, 12]));
        // The journal of 9 was never begun: the one of 5 is needed to go on from 9.
        assert_eq!(kept(&[5, 9, 12], &[0, 5, 12]), (vec![9, 12], vec![5, 12]));
    }
}
