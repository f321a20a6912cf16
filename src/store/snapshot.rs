//! A stopped store as a folder of plain files, and back: for moving, keeping and examining a state.
//!
//! A snapshot holds one backup, which proves itself by its last line, the blobs, each of which is
//! named by its hash, and `snapshot.json`, which names them all: nothing can be missing or changed
//! unseen. A restored state counts as one that may lack something: the cloud may know more.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::backup::{self, Head, Unusable};
use super::blobs;
use super::disk::{Disk, Folder, read_whole};
use super::error::StoreError;
use super::format::Format;
use super::generations::{MARKER, Marker, backup_name, set_aside, write_marker};
use super::journal::Damage;
use super::report::Fresh;
use super::survey::Survey;
use super::{Options, Store, lock, origin};
use crate::model::ids::Digest;

/// Names the files of a snapshot; written last.
const MANIFEST: &str = "snapshot.json";
const MANIFEST_LIMIT_BYTES: u64 = 64 * 1024 * 1024;

/// What a snapshot holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Format of its records.
    pub format: u32,
    /// Sequence of the last commit in it.
    pub sequence: u64,
    /// Records in its backup.
    pub records: u64,
    /// Its blobs.
    pub blobs: BTreeSet<Digest>,
}

/// Something that is wrong in a snapshot or a state folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Flaw {
    /// The file.
    pub file: String,
    /// What is wrong with it.
    pub why: String,
}

/// What an examination found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Examined {
    /// The highest sequence that can be brought back.
    pub sequence: u64,
    /// Files that were read whole.
    pub files: u64,
    /// What is wrong.
    pub flaws: Vec<Flaw>,
}

/// Writes a snapshot of the state in `state` to `to`, which must not exist or be empty.
///
/// # Errors
/// [`StoreError::Locked`] while a daemon runs on it.
pub fn snapshot(state: &Path, to: &Path) -> Result<Snapshot, StoreError> {
    must_exist(state)?;
    must_be_empty(to)?;
    let (mut store, _) = Store::open(state, Options::default())?;
    store.backup()?;
    let sequence = store.sequence();
    let mut target = Folder::new(to.to_owned());
    let name = backup_name(sequence);
    copy(store.disk.as_ref(), &name, &mut target)?;
    let mut kept = BTreeSet::new();
    for digest in blobs::names(store.disk.as_ref())? {
        copy(store.disk.as_ref(), &blobs::path(&digest)?, &mut target)?;
        kept.insert(digest);
    }
    let (head, records) = read_backup(&target, &name).map_err(|why| damaged(to, &name, &why))?;
    let made = Snapshot { format: head.format, sequence, records, blobs: kept };
    target
        .write(MANIFEST, &mut |out| Ok(serde_json::to_writer_pretty(out, &made)?))
        .map_err(StoreError::file("write", MANIFEST))?;
    Ok(made)
}

/// Reads everything in a snapshot, or in the state folder of a stopped daemon, and changes nothing.
///
/// # Errors
/// A folder that is neither, that cannot be read, or on which a daemon runs.
pub fn verify(folder: &Path) -> Result<Examined, StoreError> {
    must_exist(folder)?;
    if folder.join(MANIFEST).exists() {
        return verify_snapshot(folder).map(|(examined, _)| examined);
    }
    if !folder.join(MARKER).exists() {
        return Err(damaged(folder, MANIFEST, "there is neither a snapshot nor a state here"));
    }
    let _lock = lock::hold(folder)?;
    verify_state(&Folder::new(folder.to_owned()))
}

fn verify_snapshot(folder: &Path) -> Result<(Examined, Snapshot), StoreError> {
    let disk = Folder::new(folder.to_owned());
    let bytes = read_whole(&disk, MANIFEST, MANIFEST_LIMIT_BYTES)
        .map_err(StoreError::file("read", MANIFEST))?;
    let said: Snapshot = serde_json::from_slice(&bytes)
        .map_err(|error| damaged(folder, MANIFEST, &error.to_string()))?;
    Format::PRESENT.check(MANIFEST, said.format)?;
    let mut examined = Examined { sequence: said.sequence, files: 2, flaws: Vec::new() };
    let name = backup_name(said.sequence);
    match read_backup(&disk, &name) {
        Ok((head, records))
            if (head.format, head.sequence, records)
                == (said.format, said.sequence, said.records) => {}
        Ok(_) => examined.note(&name, "it is not the backup that snapshot.json names"),
        Err(why) => examined.note(&name, &why),
    }
    examined.blobs(&disk, &said.blobs)?;
    Ok((examined, said))
}

fn verify_state(disk: &Folder) -> Result<Examined, StoreError> {
    let survey = Survey::take(disk, Format::PRESENT)?;
    let mut examined = Examined { sequence: survey.highest(None), files: 0, flaws: Vec::new() };
    for file in &survey.backups {
        examined.files += 1;
        if let Err(why) = read_backup(disk, &file.name) {
            examined.note(&file.name, &why);
        }
    }
    for file in &survey.journals {
        examined.files += 1;
        if file.format().is_none() {
            examined.note(&file.name, "its head cannot be read");
        }
        for damage in &file.reading.damage {
            let why = match damage {
                Damage::TornTail { offset, .. } => format!("its end is torn at byte {offset}"),
                Damage::Hole { offset, .. } => format!("it is damaged at byte {offset}"),
            };
            examined.note(&file.name, &why);
        }
    }
    let names = blobs::names(disk)?.into_iter().collect();
    examined.blobs(disk, &names)?;
    Ok(examined)
}

impl Examined {
    fn note(&mut self, file: &str, why: &str) {
        self.flaws.push(Flaw { file: file.to_owned(), why: why.to_owned() });
    }

    fn blobs(&mut self, disk: &dyn Disk, names: &BTreeSet<Digest>) -> Result<(), StoreError> {
        for digest in names {
            self.files += 1;
            match blobs::get(disk, digest) {
                Ok(_) => {}
                Err(error @ (StoreError::BlobMissing { .. } | StoreError::BlobDamaged { .. })) => {
                    self.note(&blobs::path(digest)?, &error.to_string());
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }
}

/// Puts the snapshot in `from` in the place of the state in `state`. What was there is renamed
/// inside the folder, never removed. The next start compares everything with the cloud and waits
/// as a new store does.
///
/// # Errors
/// A snapshot with a flaw, or a daemon that runs on `state`.
pub fn restore(from: &Path, state: &Path) -> Result<Snapshot, StoreError> {
    must_exist(from)?;
    let (examined, said) = verify_snapshot(from)?;
    if let Some(flaw) = examined.flaws.first() {
        return Err(damaged(from, &flaw.file, &flaw.why));
    }
    let (_lock, real, _) = lock::take(state)?;
    let source = Folder::new(from.to_owned());
    let mut disk = Folder::new(real.clone());
    for digest in &said.blobs {
        copy(&source, &blobs::path(digest)?, &mut disk)?;
    }
    // From here on the old state does not open as if it were whole.
    write_marker(&mut disk, Marker { format: said.format, fresh: Fresh::DataMissing })?;
    let survey = Survey::take(&disk, Format::PRESENT)?;
    let new = backup_name(said.sequence);
    let journals = survey.journals.iter().map(|file| &file.name);
    let backups = survey.backups.iter().map(|file| &file.name);
    if let Some(same) = backups.clone().find(|name| **name == new) {
        set_aside(&mut disk, same)?;
    }
    // Before the old one goes: cut short at any point, one of the two is there whole.
    copy(&source, &new, &mut disk)?;
    for name in journals.chain(backups.filter(|name| **name != new)) {
        set_aside(&mut disk, name)?;
    }
    super::sled_engine::SledHome::new(real.clone())
        .set_aside_if_there()
        .map_err(StoreError::file("set aside", "the engine"))?;
    origin::claim_here(&real)?;
    Ok(said)
}

/// Says that the state in `state` is in use here and nowhere else.
///
/// # Errors
/// A folder without a state, or one on which a daemon runs.
pub fn claim(state: &Path) -> Result<(), StoreError> {
    must_exist(state)?;
    let (_lock, real, _) = lock::take(state)?;
    origin::claim_here(&real)
}

fn copy(from: &dyn Disk, name: &str, to: &mut Folder) -> Result<(), StoreError> {
    let copied = to.write(name, &mut |out| io::copy(&mut from.read(name)?, out).map(|_| ()));
    copied.map_err(StoreError::file("copy", name))
}

fn read_backup(disk: &dyn Disk, name: &str) -> Result<(Head, u64), String> {
    let mut records = 0;
    let read = backup::read(disk, name, &mut |_, _| {
        records += 1;
        Ok(())
    });
    match read {
        Ok((head, _)) => Ok((head, records)),
        Err(Unusable::Damaged(why)) => Err(why),
        Err(Unusable::Stopped(error)) => Err(error.to_string()),
    }
}

fn damaged(folder: &Path, file: &str, why: &str) -> StoreError {
    StoreError::SnapshotDamaged { path: folder.join(file), why: why.to_owned() }
}

fn must_exist(folder: &Path) -> Result<(), StoreError> {
    fs::read_dir(folder).map(|_| ()).map_err(|source| StoreError::Folder {
        operation: "read it",
        path: folder.to_owned(),
        source,
    })
}

fn must_be_empty(folder: &Path) -> Result<(), StoreError> {
    let failed =
        |operation| move |source| StoreError::Folder { operation, path: folder.to_owned(), source };
    super::disk::private_folder(folder).map_err(failed("create it"))?;
    match fs::read_dir(folder).map_err(failed("read it"))?.next() {
        None => Ok(()),
        Some(_) => Err(StoreError::NotEmpty { path: folder.to_owned() }),
    }
}
