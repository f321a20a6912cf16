//! One instance at a time on one real folder.
//!
//! The lock is on the folder's own inode and on a file `lock` inside it, so that no other path,
//! symbolic link or bind mount to the same folder gets past it, and deleting the file does not
//! either. The system frees both when the process ends, however it ends.
//!
//! Who only writes down what is to be done takes the lock on the file alone: a daemon that starts
//! meanwhile waits a moment for it, and is not refused.

use rustix::fs::OFlags;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::disk::private_folder;
use super::error::StoreError;

const LOCK_FILE: &str = "lock";
const PID_LIMIT_BYTES: u64 = 16;
/// Looks at a lock that somebody holds who will give it back in a moment: 10 s in all.
const LOOKS: u32 = 500;
/// Time between two of them.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const STICKY: u32 = 0o1000;
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// The held lock; dropping it frees the folder.
#[derive(Debug)]
pub(super) struct Lock {
    _folder: File,
    _file: File,
}

/// Makes the folder if it is missing, private if it is not, and takes the lock. Gives the
/// folder's real path, and its mode if that had to be changed.
pub(super) fn take(path: &Path) -> Result<(Lock, PathBuf, Option<u32>), StoreError> {
    let failed = |operation: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::Folder { operation, path, source }
    };
    private_folder(path).map_err(failed("create it", path))?;
    let real = path.canonicalize().map_err(failed("find its real path", path))?;
    let folder = File::open(&real).map_err(failed("open it", &real))?;
    let uid = folder.metadata().map_err(failed("read its owner", &real))?.uid();
    if uid != 0 && rustix::process::geteuid().is_root() {
        return Err(StoreError::OthersFolder { path: real, uid });
    }
    lock(&folder, &real)?;
    let tightened = make_private(&folder, &real)?;
    let mut file = lock_file(&real).map_err(failed("open its lock file", &real))?;
    // No daemon holds it, but somebody may be writing down what is to be done.
    lock_in_time(&file, &real)?;
    // The number only helps people; a full disk must not keep the store from opening.
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).ok();
    Ok((Lock { _folder: folder, _file: file }, real, tightened))
}

/// The lock alone, on a folder that is only read: nothing in it is made or changed.
pub(super) fn hold(path: &Path) -> Result<File, StoreError> {
    let failed = |operation: &'static str| {
        move |source| StoreError::Folder { operation, path: path.to_owned(), source }
    };
    let real = path.canonicalize().map_err(failed("find its real path"))?;
    let folder = File::open(&real).map_err(failed("open it"))?;
    lock(&folder, &real)?;
    Ok(folder)
}

/// Keeps others from writing down what is to be done, and a daemon from reading half of it. Waits for
/// those who do the same. Gives the folder, and the lock.
pub(super) fn hold_for_writing(path: &Path) -> Result<(File, File), StoreError> {
    let failed = |operation: &'static str| {
        move |source| StoreError::Folder { operation, path: path.to_owned(), source }
    };
    let real = path.canonicalize().map_err(failed("find its real path"))?;
    let folder = File::open(&real).map_err(failed("open it"))?;
    let file = lock_file(&real).map_err(failed("open its lock file"))?;
    let (owner, own) = (folder.metadata(), file.metadata());
    let (owner, own) = (owner.map_err(failed("read it"))?, own.map_err(failed("read it"))?);
    if own.uid() != owner.uid() {
        // Root made it a moment ago: the daemon's user has to be able to open it.
        std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))
            .map_err(failed("give its lock file to the daemon's user"))?;
    }
    lock_in_time(&file, &real)?;
    Ok((folder, file))
}

/// No link leads elsewhere, and the file has no other name: root may open it, too, and give it away.
fn lock_file(real: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = options.custom_flags(flags).open(real.join(LOCK_FILE))?;
    let about = file.metadata()?;
    if about.is_file() && about.nlink() <= 1 {
        return Ok(file);
    }
    Err(io::Error::other("it is no plain file, or has another name"))
}

fn lock_in_time(file: &File, folder: &Path) -> Result<(), StoreError> {
    for _ in 1..LOOKS {
        match lock(file, folder) {
            Err(StoreError::Locked { .. }) => thread::sleep(LOOK_AGAIN),
            other => return other,
        }
    }
    lock(file, folder)
}

fn lock(file: &File, folder: &Path) -> Result<(), StoreError> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            StoreError::Locked { path: folder.to_owned(), pid: holder(folder) }
        }
        TryLockError::Error(source) => {
            StoreError::Folder { operation: "lock it", path: folder.to_owned(), source }
        }
    })
}

fn holder(folder: &Path) -> Option<u32> {
    let mut text = String::new();
    let file = File::open(folder.join(LOCK_FILE)).ok()?;
    file.take(PID_LIMIT_BYTES).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn make_private(folder: &File, path: &Path) -> Result<Option<u32>, StoreError> {
    let failed = |operation| {
        move |source: io::Error| StoreError::Folder { operation, path: path.to_owned(), source }
    };
    let mode = folder.metadata().map_err(failed("read its mode"))?.permissions().mode();
    if mode & STICKY != 0 {
        return Err(StoreError::SharedFolder { path: path.to_owned() });
    }
    if mode & OTHERS == 0 {
        return Ok(None);
    }
    folder
        .set_permissions(fs::Permissions::from_mode(0o700))
        .map_err(failed("set its mode to 0700"))?;
    Ok(Some(mode & 0o7777))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_by_any_path_and_names_the_holder() {
        let root = tempfile::tempdir().unwrap();
        let (path, link) = (root.path().join("state"), root.path().join("link"));
        let (held, real, _) = take(&path).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for way in [path.clone(), link, path.join("../state")] {
            let refused = take(&way);
            assert!(
                matches!(&refused, Err(StoreError::Locked { path, pid })
                    if *path == real && *pid == Some(std::process::id())),
                "{refused:?}"
            );
        }
        fs::remove_file(path.join(LOCK_FILE)).unwrap();
        assert!(matches!(take(&path), Err(StoreError::Locked { .. })));
        drop(held);
        take(&path).unwrap();
    }

    #[test]
    fn the_folder_becomes_private_but_a_shared_one_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let (held, _, tightened) = take(&path).unwrap();
        assert_eq!(tightened, Some(0o755));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(held);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(matches!(take(&path), Err(StoreError::SharedFolder { .. })));
    }
}
