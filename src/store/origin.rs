//! Whether a state folder is where its state was made. A copy of it (rsync to another host, a
//! restored archive, a cloned disk) has the same owner and the same jobs, and whoever runs on the
//! original may be alive: two daemons would each submit the next attempt.
//!
//! The file `origin` says on which machine and in which folder the state is, and its own inode: a
//! copy differs in at least one. What cannot be told from outside: a snapshot of a whole machine
//! that keeps all three.

use super::disk::{Disk, read_whole};
use super::error::StoreError;
use crate::model::ids::Digest;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

const FILE: &str = "origin";
const ASIDE: &str = "origin.aside";
const FILE_LIMIT_BYTES: u64 = 4096;
/// The machine's id by machine-id(5); a container may have none.
const MACHINE_ID: &str = "/etc/machine-id";
const MACHINE_ID_LIMIT_BYTES: u64 = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    /// Hash of the machine's id, which is nobody else's business.
    machine: Option<Digest>,
    /// Inode of the folder.
    folder: u64,
    /// Inode of the file that says so.
    file: u64,
}

/// A state that was made elsewhere, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    /// In words.
    pub why: String,
}

/// Compares `origin` in `folder` with where it is now. A folder without one gets it.
pub(super) fn check(disk: &dyn Disk, folder: &Path) -> Result<Option<Moved>, StoreError> {
    let inode = |path: &Path| fs::metadata(path).map(|about| about.ino());
    let failed = StoreError::file("read", FILE);
    let bytes = match read_whole(disk, FILE, FILE_LIMIT_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A full disk must not keep the store from opening; the next open tries again.
            claim(folder, machine()).ok();
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    let moved = |why: &str| Ok(Some(Moved { why: why.to_owned() }));
    let Ok(origin) = serde_json::from_slice::<Origin>(&bytes) else {
        return moved("its file `origin` cannot be read");
    };
    let here = (inode(folder), inode(&folder.join(FILE)));
    let (Ok(this_folder), Ok(this_file)) = here else {
        return moved("its file `origin` is gone");
    };
    match (origin.machine, machine()) {
        (Some(then), Some(now)) if then != now => moved("it was made on another machine"),
        _ if origin.folder != this_folder => moved("it is a copy of another folder"),
        _ if origin.file != this_file => moved("its files were copied into this folder"),
        _ => Ok(None),
    }
}

/// Says that the state of `folder` is at home here.
pub(super) fn claim_here(folder: &Path) -> Result<(), StoreError> {
    claim(folder, machine()).map_err(StoreError::file("write", FILE))
}

fn claim(folder: &Path, machine: Option<Digest>) -> io::Result<()> {
    let aside = folder.join(ASIDE);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    let origin =
        Origin { machine, folder: fs::metadata(folder)?.ino(), file: file.metadata()?.ino() };
    let written = serde_json::to_writer(&mut file, &origin)
        .map_err(io::Error::from)
        .and_then(|()| file.write_all(b"\n"))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&aside, folder.join(FILE)));
    if written.is_err() {
        // Best effort: opening the store removes what is left.
        fs::remove_file(&aside).ok();
    }
    written
}

fn machine() -> Option<Digest> {
    let file = fs::File::open(MACHINE_ID).ok()?;
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(file, MACHINE_ID_LIMIT_BYTES), &mut text).ok()?;
    let id = text.trim();
    (!id.is_empty()).then(|| Digest::of(format!("spotkeeper {id}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::disk::Folder;
    use super::*;

    fn moved(folder: &Path) -> Option<String> {
        check(&Folder::new(folder.to_owned()), folder).unwrap().map(|moved| moved.why)
    }

    #[test]
    fn a_state_is_at_home_until_it_is_copied_and_again_once_it_is_claimed() {
        let root = tempfile::tempdir().unwrap();
        let (home, copy) = (root.path().join("home"), root.path().join("copy"));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&copy).unwrap();
        assert_eq!(moved(&home), None, "the first time");
        assert_eq!(moved(&home), None, "the second time");
        fs::copy(home.join(FILE), copy.join(FILE)).unwrap();
        assert_eq!(moved(&copy).unwrap(), "it is a copy of another folder");
        assert_eq!(moved(&copy).unwrap(), "it is a copy of another folder", "it stays so");
        claim_here(&copy).unwrap();
        assert_eq!((moved(&copy), moved(&home)), (None, None));
        let renamed = root.path().join("renamed");
        fs::rename(&home, &renamed).unwrap();
        assert_eq!(moved(&renamed), None, "a folder that was renamed is the same");
    }

    #[test]
    fn files_restored_into_the_folder_and_another_machine_are_seen() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path();
        claim_here(home).unwrap();
        let text = fs::read(home.join(FILE)).unwrap();
        // What an archiver does: a new file in the place of the old one.
        fs::write(home.join("new"), &text).unwrap();
        fs::rename(home.join("new"), home.join(FILE)).unwrap();
        assert_eq!(moved(home).unwrap(), "its files were copied into this folder");
        claim(home, Some(Digest::of(b"another"))).unwrap();
        if machine().is_some() {
            assert_eq!(moved(home).unwrap(), "it was made on another machine");
        }
        fs::write(home.join(FILE), "{").unwrap();
        assert_eq!(moved(home).unwrap(), "its file `origin` cannot be read");
    }
}
