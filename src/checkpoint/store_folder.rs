//! `file://`: a folder of this machine.
//!
//! Reads go through object_store. Listings do not: its folder listing fails as a whole on one file
//! name that it cannot spell (a control character, bytes that are no UTF-8), and one such name must
//! not blind a look.

use super::objects::{Depth, Object, OddKeys, Page, Read, Store, StoreError};
use crate::model::time::WallTime;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{GetOptions, GetRange, ObjectStore};
use std::fs::Metadata;
use std::io::ErrorKind;
use std::ops::Range;
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
        if !root.is_dir() {
            return Err(StoreError::NoSuchPlace {
                place: format!("the folder {}", root.display()),
            });
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
    let folder = root.join(prefix);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        // A folder below the location that went away is empty; the location itself is not.
        Err(e) if leads_nowhere(&e) && !prefix.is_empty() => return Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(StoreError::NoSuchPlace {
                place: format!("the folder {}", root.display()),
            });
        }
        Err(e) => return Err(from_io(prefix, e)),
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
        // Follows links: a run's folder may be one. A link to nowhere is nothing.
        let metadata = match std::fs::metadata(entry.path()) {
            Ok(metadata) => metadata,
            Err(e) if leads_nowhere(&e) => continue,
            Err(e) => return Err(from_io(&format!("{prefix}{name}"), e)),
        };
        let key = format!("{prefix}{name}");
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
        Err(error) if io_error(&error).is_some_and(|e| e.kind() == ErrorKind::PermissionDenied) => {
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
