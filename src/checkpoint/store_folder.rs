//! `file://`: a folder of this machine.
//!
//! Reads go through object_store. Listings do not: its folder listing fails as a whole on one file
//! name that it cannot spell (a control character, bytes that are no UTF-8), and one such name must
//! not blind a look.

use super::objects::{Depth, Object, OddKeys, Page, Read, Store, StoreError};
use crate::model::resume_text::quoted;
use crate::model::time::WallTime;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{GetOptions, GetRange, ObjectStore};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

/// Levels that a listing of everything goes down.
const DEPTH_LIMIT: usize = 16;
/// Entries that a listing of everything takes, folders included.
const ENTRIES_LIMIT: usize = super::objects::LISTING_LIMIT + 1;

/// A folder and what is below it.
#[derive(Debug)]
pub struct FolderStore {
    root: PathBuf,
    files: LocalFileSystem,
    odd: Arc<OddKeys>,
}

impl FolderStore {
    /// The folder `root`.
    ///
    /// # Errors
    /// It does not exist, or is no folder: that is "could not look", never "nothing there".
    pub fn open(root: &Path, odd: Arc<OddKeys>) -> Result<Self, StoreError> {
        match std::fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(metadata) => return Err(no_folder_but(root, &metadata)),
            Err(error) if leads_nowhere(&error) => return Err(no_folder(root)),
            Err(error) => return Err(from_io(&root.display().to_string(), error)),
        }
        let files = LocalFileSystem::new_with_prefix(root)
            .map_err(|source| no_answer("open", &root.display().to_string(), source))?;
        Ok(Self { root: root.to_owned(), files, odd })
    }

    /// Its files, for the fence.
    pub(super) fn files(&self) -> &LocalFileSystem {
        &self.files
    }
}

impl Store for FolderStore {
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        depth: Depth,
        _from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        let (root, odd, prefix) = (self.root.clone(), Arc::clone(&self.odd), prefix.to_owned());
        async move {
            let listed = tokio::task::spawn_blocking(move || {
                let mut page = Page::default();
                list(&root, &prefix, depth, &odd, DEPTH_LIMIT, &mut page).map(|()| page)
            });
            listed.await.map_err(|source| no_answer("list", ".", source))?
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>> {
        async move {
            let path = StorePath::parse(key).map_err(|source| no_answer("read", key, source))?;
            read_object(&self.files, key, &path, range).await
        }
        .boxed()
    }
}

fn list(
    root: &Path,
    prefix: &str,
    depth: Depth,
    odd: &OddKeys,
    levels: usize,
    page: &mut Page,
) -> Result<(), StoreError> {
    let entries = match std::fs::read_dir(root.join(prefix)) {
        Ok(entries) => entries,
        Err(error) => return not_listed(root, prefix, depth, error),
    };
    for entry in entries {
        if page.folders.len() + page.objects.len() >= ENTRIES_LIMIT {
            return Ok(());
        }
        let entry = entry.map_err(|e| from_io(prefix, e))?;
        let name = match entry.file_name().into_string() {
            Ok(name) => name,
            Err(bytes) => {
                odd.note_unreadable(format!("{prefix}{}", bytes.display()));
                continue;
            }
        };
        if odd.note(&name) {
            continue;
        }
        let key = format!("{prefix}{name}");
        // Follows links: a run's folder may be one.
        let metadata = match std::fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            // A link to nowhere is nothing inside a checkpoint; the name may be that of a checkpoint.
            Err(e) if leads_nowhere(&e) => {
                if depth == Depth::Direct && is_link(&entry) {
                    page.folders.push(format!("{key}/"));
                }
                continue;
            }
            // It stands there as a folder into which nobody can look.
            Err(e) if is_closed(&e) && depth == Depth::Direct => {
                page.folders.push(format!("{key}/"));
                continue;
            }
            Err(e) if is_closed(&e) => {
                let folder = if is_link(&entry) { &key } else { prefix.trim_end_matches('/') };
                return Err(closed(root, folder, &e));
            }
            Err(e) => return Err(from_io(&key, e)),
        };
        if metadata.is_file() {
            page.objects.push(Object { key, size: metadata.len(), modified: modified(&metadata) });
        } else if metadata.is_dir() {
            match depth {
                Depth::Direct => page.folders.push(format!("{key}/")),
                // Inside a checkpoint a link to a folder could lead round in circles.
                Depth::All if levels == 0 || is_link(&entry) => {}
                Depth::All => list(root, &format!("{key}/"), depth, odd, levels - 1, page)?,
            }
        }
    }
    Ok(())
}

/// What it means that a folder's names could not be had.
fn not_listed(
    root: &Path,
    prefix: &str,
    depth: Depth,
    error: std::io::Error,
) -> Result<(), StoreError> {
    let key = prefix.trim_end_matches('/');
    if key.is_empty() {
        let is_gone = error.kind() == ErrorKind::NotFound;
        let place = root.display().to_string();
        return Err(if is_gone { no_folder(root) } else { from_io(&place, error) });
    }
    if leads_nowhere(&error) {
        let is_link = std::fs::symlink_metadata(root.join(key)).is_ok_and(|m| m.is_symlink());
        return match depth {
            Depth::All if is_link => {
                let why = format!("it is a link that leads nowhere ({error}): mend or remove it");
                Err(StoreError::Closed { folder: key.to_owned(), why })
            }
            // A folder below the location that went away is empty; the location itself is not.
            Depth::All | Depth::Direct => Ok(()),
        };
    }
    Err(if is_closed(&error) { closed(root, key, &error) } else { from_io(prefix, error) })
}

fn no_folder(root: &Path) -> StoreError {
    StoreError::NoSuchPlace { place: format!("the folder {}", root.display()) }
}

fn no_folder_but(root: &Path, metadata: &Metadata) -> StoreError {
    let kind = metadata.file_type();
    let what = if kind.is_file() {
        "a file"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    let holder = root.parent().unwrap_or(root).display();
    StoreError::NoFolder {
        place: root.display().to_string(),
        what,
        holder: format!("file://{holder}"),
    }
}

/// Whether the system says of this one path, and for good, that nobody looks into it.
fn is_closed(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied
        || error.raw_os_error() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error())
}

fn closed(root: &Path, key: &str, error: &std::io::Error) -> StoreError {
    let path = quoted(&root.join(key).display().to_string());
    let mend = if error.kind() == ErrorKind::PermissionDenied {
        format!("let the user that looks read and enter it (`chmod -R o+rX {path}`, or `chown`)")
    } else {
        "its path is too long for this system: give it a shorter one".to_owned()
    };
    StoreError::Closed { folder: key.to_owned(), why: format!("{error}; {mend}") }
}

fn is_link(entry: &std::fs::DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_symlink())
}

fn modified(metadata: &Metadata) -> WallTime {
    let since = metadata.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    WallTime(since.and_then(|d| i64::try_from(d.as_millis()).ok()).unwrap_or(0))
}

/// Whether there is nothing at a path: it went away, or links lead round in circles or through a file.
fn leads_nowhere(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
        || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// What the system said, where object_store has only a general error around it.
fn io_error<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e std::io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<std::io::Error>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

fn from_io(key: &str, source: std::io::Error) -> StoreError {
    if source.kind() == ErrorKind::PermissionDenied {
        StoreError::Refused { operation: "list", key: key.into(), source: Box::new(source) }
    } else {
        no_answer("list", key, source)
    }
}

pub(super) fn no_answer(
    operation: &'static str,
    key: &str,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::NoAnswer { operation, key: key.to_owned(), source: source.into() }
}

/// Reads a range of an object that a listing has just shown.
pub(super) async fn read_object(
    store: &dyn ObjectStore,
    key: &str,
    path: &StorePath,
    range: Range<u64>,
) -> Result<Read, StoreError> {
    let wanted = GetRange::Bounded(range.clone());
    let options = GetOptions { range: Some(wanted), ..GetOptions::default() };
    let answer = match store.get_opts(path, options).await {
        Ok(result) if result.range != range => return Ok(Read::Changed),
        Ok(result) => result.bytes().await,
        Err(error) => Err(error),
    };
    match answer {
        Ok(bytes) => Ok(Read::Bytes(bytes.to_vec())),
        Err(object_store::Error::NotFound { .. }) => Ok(Read::Changed),
        Err(
            error @ (object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }),
        ) => Ok(Read::Refused(super::objects::chain(&error))),
        Err(error) if io_error(&error).is_some_and(leads_nowhere) => Ok(Read::Changed),
        Err(error) if io_error(&error).is_some_and(is_closed) => {
            Ok(Read::Refused(super::objects::chain(&error)))
        }
        // A range that the object no longer has comes as a general error: ask for its size.
        Err(error) => {
            let head = GetOptions { head: true, ..GetOptions::default() };
            match store.get_opts(path, head).await {
                Ok(now) if now.meta.size < range.end => Ok(Read::Changed),
                Err(object_store::Error::NotFound { .. }) => Ok(Read::Changed),
                Ok(_) | Err(_) => Err(no_answer("read", key, error)),
            }
        }
    }
}
