//! What people ask for while no daemon runs: small files beside the state, taken at the next start.
//!
//! What always holds: a file is written only under the lock on the state's lock file, so that no daemon
//! runs meanwhile or takes half of it; it is whole and durable before anybody is told that it is
//! written down; files are taken in the order in which they were written. Must not: touch the state
//! itself, which belongs to the daemon and its user.

use super::error::StoreError;
use super::lock;
use crate::model::checkpoint::ResumeFrom;
use crate::model::ids::CloudId;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The folder of these files, in the state folder.
const FOLDER: &str = "asked";
const SUFFIX: &str = ".json";
const VERSION: u32 = 1;
/// Files that may wait.
const FILES_LIMIT: usize = 1_000;
/// Bytes of one of them: ten thousand long names.
const BYTES_LIMIT: u64 = 2 * 1024 * 1024;
/// Names in one of them.
const NAMES_LIMIT: usize = 10_000;

/// One thing that a person asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    version: u32,
    /// What.
    pub wish: Wish,
    /// Of which jobs.
    pub names: Names,
    /// When, for people.
    pub at: String,
}

impl Asked {
    /// `wish`, for these jobs.
    pub fn new(wish: Wish, names: Names, at: String) -> Self {
        Self { version: VERSION, wish, names, at }
    }

    /// The same of these jobs alone.
    #[must_use]
    pub fn of_these(self, names: Vec<String>) -> Self {
        Self { names: Names::These(names), ..self }
    }
}

/// What can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is the verb of its name")]
pub enum Wish {
    Cancel,
    Pause,
    Resume,
    Retry,
    RetryFrom(#[serde(with = "as_text")] ResumeFrom),
    Adopt(CloudId),
    Forget,
}

/// Of which jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// All that are not over when it is taken.
    All,
    /// These.
    These(Vec<String>),
}

mod as_text {
    use crate::model::checkpoint::ResumeFrom;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(from: &ResumeFrom, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&from.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ResumeFrom, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

/// Writes it down beside the state of a stopped daemon. Gives the file.
///
/// # Errors
/// [`StoreError::Locked`] while a daemon holds the state; [`StoreError::Folder`] where the folder is
/// missing or may not be written by this user.
pub fn write(state: &Path, asked: &Asked) -> Result<PathBuf, StoreError> {
    let (held, _lock) = lock::hold_for_writing(state)?;
    check_names(asked).map_err(|why| StoreError::Folder {
        operation: "write into it",
        path: state.join(FOLDER),
        source: io::Error::other(why),
    })?;
    let folder = state.join(FOLDER);
    let failed = |operation: &'static str| {
        let path = folder.clone();
        move |source| StoreError::Folder { operation, path, source }
    };
    let owner = held.metadata().map_err(failed("read its owner"))?;
    let inside = folder_in(&held, &owner).map_err(failed("open it"))?;
    let known = names(&folder).map_err(failed("list it"))?;
    if known.len() >= FILES_LIMIT {
        let full = io::Error::other(format!("{FILES_LIMIT} wait for the daemon already"));
        return Err(failed("write into it")(full));
    }
    let next = known.last().and_then(|name| number(name)).map_or(1, |last| last + 1);
    let file = format!("{next:010}{SUFFIX}");
    put(&inside, &file, &owner, asked).map_err(failed("write into it"))?;
    Ok(folder.join(file))
}

/// The folder of these files, made if it is not there.
///
/// Root may ask as well, and the daemon's user has to be able to read and remove what it asks for.
/// But whatever stands in that user's folder may be there to lead root elsewhere: no link is
/// followed from here on, and nothing changes hands that was not made here.
fn folder_in(state: &File, owner: &fs::Metadata) -> io::Result<File> {
    let is_new = match rustix::fs::mkdirat(state, FOLDER, Mode::from_raw_mode(0o700)) {
        Ok(()) => true,
        Err(Errno::EXIST) => false,
        Err(error) => return Err(error.into()),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = File::from(rustix::fs::openat(state, FOLDER, flags, Mode::empty())?);
    if is_new {
        give(&folder, owner)?;
        state.sync_all()?;
    }
    Ok(folder)
}

fn put(folder: &File, name: &str, owner: &fs::Metadata, asked: &Asked) -> io::Result<()> {
    let text = serde_json::to_vec(asked).map_err(io::Error::other)?;
    if text.len() as u64 > BYTES_LIMIT {
        return Err(io::Error::other(format!("more than {BYTES_LIMIT} bytes")));
    }
    let half = format!("{name}.new");
    match rustix::fs::unlinkat(folder, &half, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let mut out = File::from(rustix::fs::openat(folder, &half, flags, mode)?);
    out.write_all(&text)?;
    give(&out, owner)?;
    out.sync_all()?;
    rustix::fs::renameat(folder, &half, folder, name)?;
    folder.sync_all()
}

fn give(made: &File, owner: &fs::Metadata) -> io::Result<()> {
    let own = made.metadata()?;
    if (own.uid(), own.gid()) == (owner.uid(), owner.gid()) {
        return Ok(());
    }
    std::os::unix::fs::fchown(made, Some(owner.uid()), Some(owner.gid()))
}

fn number(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

/// Finished files, in order.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        names.extend(name.to_str().filter(|name| number(name).is_some()).map(str::to_owned));
    }
    names.sort_by_key(|name| number(name));
    Ok(names)
}

fn check_names(asked: &Asked) -> Result<(), String> {
    match &asked.names {
        Names::These(names) if names.len() > NAMES_LIMIT => {
            Err(format!("it names {} jobs; {NAMES_LIMIT} may stand in one", names.len()))
        }
        Names::These(_) | Names::All => Ok(()),
    }
}

/// Opens a regular file, and waits for nothing: a pipe would never answer.
fn open_regular(file: &Path) -> io::Result<File> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(file)?;
    if opened.metadata()?.is_file() {
        return Ok(opened);
    }
    Err(io::Error::other("it is no regular file"))
}

/// A file, and what it asks for or why it cannot be read.
pub type AskedFile = (PathBuf, Result<Asked, String>);

/// What was asked for, oldest first: the first files.
///
/// # Errors
/// [`StoreError::Folder`] if the folder is there and cannot be listed.
pub fn read(state: &Path) -> Result<Vec<AskedFile>, StoreError> {
    read_after(state, None).map(|(files, _)| files)
}

/// The files after this one, as many as are taken at a time, and how many more there are.
///
/// # Errors
/// [`StoreError::Folder`] if the folder is there and cannot be listed.
pub fn read_after(
    state: &Path,
    after: Option<&Path>,
) -> Result<(Vec<AskedFile>, usize), StoreError> {
    let folder = state.join(FOLDER);
    let mut names = match names(&folder) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(source) => {
            return Err(StoreError::Folder { operation: "list it", path: folder, source });
        }
    };
    let last = after.and_then(|file| number(file.file_name()?.to_str()?));
    names.retain(|name| number(name) > last);
    let more = names.len().saturating_sub(FILES_LIMIT);
    let files = names.into_iter().take(FILES_LIMIT).map(|name| folder.join(name));
    Ok((files.map(|file| (file.clone(), decode(&file))).collect(), more))
}

fn decode(file: &Path) -> Result<Asked, String> {
    let mut text = Vec::new();
    let read = open_regular(file).and_then(|f| f.take(BYTES_LIMIT + 1).read_to_end(&mut text));
    read.map_err(|error| error.to_string())?;
    if text.len() as u64 > BYTES_LIMIT {
        return Err(format!("more than {BYTES_LIMIT} bytes"));
    }
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(u64::from(VERSION)) {
        return Err(format!("it has version {version:?}; this program knows {VERSION}"));
    }
    let asked = serde_json::from_value(value).map_err(|error| error.to_string())?;
    check_names(&asked).map(|()| asked)
}

/// Part of it is done: `left` is what the file asks for from now on.
///
/// # Errors
/// [`StoreError::Folder`] if it cannot be written; it is as it was then.
pub fn rewrite(file: &Path, left: &Asked) -> Result<(), StoreError> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let written = File::open(file.parent().unwrap_or(Path::new("."))).and_then(|folder| {
        let owner = fs::metadata(file)?;
        put(&folder, name, &owner, left)
    });
    written.map_err(|source| StoreError::Folder {
        operation: "write it anew",
        path: file.to_owned(),
        source,
    })
}

/// It is done.
///
/// # Errors
/// [`StoreError::Folder`] if it cannot be removed.
pub fn remove(file: &Path) -> Result<(), StoreError> {
    let removed = match fs::remove_file(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    };
    removed.and_then(|()| File::open(file.parent().unwrap_or(Path::new(".")))?.sync_all()).map_err(
        |source| StoreError::Folder { operation: "remove it", path: file.to_owned(), source },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(wish: Wish, names: Names) -> Asked {
        Asked::new(wish, names, "2026-11-30T00:00:00Z".to_owned())
    }

    #[test]
    fn what_was_asked_for_is_read_in_its_order_and_gone_once_it_is_done() {
        let state = tempfile::tempdir().unwrap();
        assert!(read(state.path()).unwrap().is_empty());
        let these = Names::These(vec!["a".into(), "b".into()]);
        let wishes = [
            ask(Wish::Cancel, Names::All),
            ask(Wish::RetryFrom(ResumeFrom::Step(900)), these.clone()),
            ask(Wish::Adopt(CloudId::new("dlc1").unwrap()), these.clone()),
            ask(Wish::Pause, these),
        ];
        let files: Vec<PathBuf> =
            wishes.iter().map(|asked| write(state.path(), asked).unwrap()).collect();
        let found = read(state.path()).unwrap();
        let expected: Vec<AskedFile> =
            files.iter().cloned().zip(wishes.iter().cloned().map(Ok)).collect();
        assert_eq!(found, expected);
        let rest = ask(Wish::Pause, Names::These(vec!["b".into()]));
        rewrite(&files[3], &rest).unwrap();
        assert_eq!(read(state.path()).unwrap()[3], (files[3].clone(), Ok(rest)));
        remove(&files[0]).unwrap();
        remove(&files[0]).unwrap();
        assert_eq!(read(state.path()).unwrap().len(), 3);
        // Its number is not used for a later one while others wait.
        assert!(write(state.path(), &wishes[0]).unwrap() > files[3]);
    }

    #[test]
    fn nothing_is_written_beside_a_state_that_a_daemon_holds_or_that_is_not_there() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("state");
        let asked = ask(Wish::Cancel, Names::All);
        assert!(matches!(write(&state, &asked), Err(StoreError::Folder { .. })));
        let (held, ..) = lock::take(&state).unwrap();
        assert!(matches!(write(&state, &asked), Err(StoreError::Locked { .. })));
        assert!(!state.join(FOLDER).exists());
        drop(held);
        write(&state, &asked).unwrap();
    }

    #[test]
    fn half_a_file_is_none_and_one_that_cannot_be_read_keeps_nothing_from_the_others() {
        let state = tempfile::tempdir().unwrap();
        let file = write(state.path(), &ask(Wish::Pause, Names::All)).unwrap();
        let folder = file.parent().unwrap();
        fs::write(folder.join("0000000002.new"), "{").unwrap();
        fs::write(folder.join("0000000003.json"), "{").unwrap();
        let newer = r#"{"version":2,"wish":"explode","names":"all","at":""}"#;
        fs::write(folder.join("0000000004.json"), newer).unwrap();
        let found = read(state.path()).unwrap();
        let is_good: Vec<bool> = found.iter().map(|(_, content)| content.is_ok()).collect();
        assert_eq!(is_good, [true, false, false]);
        assert!(found[2].1.as_ref().is_err_and(|why| why.contains("version")));
    }

    #[test]
    fn only_regular_files_are_read_and_no_pipe_is_waited_for() {
        let state = tempfile::tempdir().unwrap();
        let file = write(state.path(), &ask(Wish::Pause, Names::All)).unwrap();
        let folder = file.parent().unwrap();
        let mut mkfifo = std::process::Command::new("mkfifo");
        let made = mkfifo.arg(folder.join("0000000002.json")).status().unwrap();
        assert!(made.success());
        std::os::unix::fs::symlink(&file, folder.join("0000000003.json")).unwrap();
        fs::create_dir(folder.join("0000000004.json")).unwrap();
        let found = read(state.path()).unwrap();
        let is_good: Vec<bool> = found.iter().map(|(_, content)| content.is_ok()).collect();
        assert_eq!(is_good, [true, false, false, false]);
        let (rest, more) = read_after(state.path(), Some(&found[2].0)).unwrap();
        assert_eq!((rest.len(), more), (1, 0));
        let many = Names::These(vec!["a".into(); NAMES_LIMIT + 1]);
        assert!(write(state.path(), &ask(Wish::Pause, many)).is_err());
    }

    #[test]
    fn no_link_in_the_folder_leads_elsewhere() {
        use std::os::unix::fs::symlink;
        let root = tempfile::tempdir().unwrap();
        let (state, outside) = (root.path().join("state"), root.path().join("outside"));
        let victim = outside.join("victim");
        for folder in [&state, &outside] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(&victim, "as it was").unwrap();
        let asked = ask(Wish::Pause, Names::All);
        let lock = state.join("lock");
        symlink(&victim, &lock).unwrap();
        assert!(write(&state, &asked).is_err(), "the lock is a link");
        fs::remove_file(&lock).unwrap();
        fs::hard_link(&victim, &lock).unwrap();
        assert!(write(&state, &asked).is_err(), "the lock is another file, too");
        fs::remove_file(&lock).unwrap();
        symlink(&outside, state.join(FOLDER)).unwrap();
        assert!(write(&state, &asked).is_err(), "the folder is a link");
        fs::remove_file(state.join(FOLDER)).unwrap();
        fs::create_dir(state.join(FOLDER)).unwrap();
        symlink(&victim, state.join(FOLDER).join("0000000001.json.new")).unwrap();
        let file = write(&state, &asked).unwrap();
        assert!(fs::symlink_metadata(&file).unwrap().is_file());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    }

    #[test]
    fn several_write_at_one_time_and_a_daemon_that_starts_waits_for_them() {
        let state = tempfile::tempdir().unwrap();
        let (folder, writing) = lock::hold_for_writing(state.path()).unwrap();
        std::thread::scope(|scope| {
            let start = scope.spawn(|| lock::take(state.path()).map(drop));
            let writes: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| write(state.path(), &ask(Wish::Pause, Names::All))))
                .collect();
            drop((folder, writing));
            assert!(start.join().unwrap().is_ok());
            assert!(writes.into_iter().all(|one| one.join().unwrap().is_ok()));
        });
        assert_eq!(read(state.path()).unwrap().len(), 8);
    }
}
