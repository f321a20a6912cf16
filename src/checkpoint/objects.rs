//! The few things that a look asks of a store: list a folder, list all below a folder, read a
//! range of one object.
//!
//! Always holds: every listing, read and number of requests has a limit; "gone" and "could not
//! look" are different answers; a key that no checkpoint can be under never hides the others.
//! Must not do: write (see [`super::fence`]), or keep bytes of checkpoints beyond the few that are looked at.

use super::location::is_odd;
use crate::model::error::Class;
use crate::model::time::WallTime;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Objects and folders that one listing may have.
pub const LISTING_LIMIT: usize = 20_000;
/// Requests that one look may make.
pub const REQUESTS_LIMIT: u64 = 20_000;
/// Bytes of a small file that is read whole.
pub const SMALL_FILE_LIMIT: u64 = 4 * 1024;
/// Odd keys that are told apart; more are not counted.
const ODD_KEYS_LIMIT: usize = 1_000;

/// One object (or file).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Key relative to the listed folder.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// When it was last written.
    pub modified: WallTime,
}

/// What lies directly in a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folder {
    /// Names of folders in it, in byte order.
    pub folders: Vec<String>,
    /// Objects in it, in byte order of their names.
    pub objects: Vec<Object>,
}

impl Folder {
    /// The object of that name.
    pub fn object(&self, name: &str) -> Option<&Object> {
        self.objects.iter().find(|o| o.key == name)
    }
}

/// How deep a listing goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What lies directly in the folder; folders in it by name only.
    Direct,
    /// Everything below.
    All,
}

/// One page of a listing, as the store has it: keys from the location on, folders with a `/` at
/// their end, markers and odd keys included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Common prefixes.
    pub folders: Vec<String>,
    /// Objects.
    pub objects: Vec<Object>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<String>,
}

/// A place with objects. Keys are relative to the location.
pub trait Store: fmt::Debug + Send + Sync {
    /// One page of the listing of what begins with `prefix` (empty, or ending in `/`).
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        depth: Depth,
        from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>>;

    /// The bytes `range` of an object.
    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>>;

    /// What the location is, where nothing is below it and it is a single object: an error in words.
    fn single_object(&self) -> BoxFuture<'_, Option<StoreError>> {
        std::future::ready(None).boxed()
    }
}

/// What came of reading an object that a listing had shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The bytes asked for.
    Bytes(Vec<u8>),
    /// It is not there any more, or shorter than the range.
    Changed,
    /// It is there and may not be read: no permission for it, or archived.
    Refused(String),
}

/// Why the store gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The place itself does not exist.
    #[error("{place} does not exist; make it, or name the right one")]
    NoSuchPlace {
        /// Bucket or folder.
        place: String,
    },
    /// The place is there and is no folder.
    #[error("{place} is {what}, not a folder: name the folder that holds it, {holder}")]
    NoFolder {
        /// What was named.
        place: String,
        /// What it is.
        what: &'static str,
        /// The URL to give in its place.
        holder: String,
    },
    /// The keys may not do it.
    #[error("{operation} `{key}`: refused")]
    Refused {
        /// `list`, `read` or `write`.
        operation: &'static str,
        /// What was asked for.
        key: String,
        /// The store's words.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// No answer, or one that cannot be used.
    #[error("{operation} `{key}`: no usable answer")]
    NoAnswer {
        /// `list`, `read` or `write`.
        operation: &'static str,
        /// What was asked for.
        key: String,
        /// The store's words.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// More than [`LISTING_LIMIT`].
    #[error(
        "`{key}` holds more than {LISTING_LIMIT} objects and folders, more than are looked at: name the folder that holds the checkpoints, or move what else lies there away"
    )]
    TooMany {
        /// The folder.
        key: String,
    },
    /// A folder below the location that cannot be looked into, though the location can: what is in it
    /// cannot be judged, the rest can.
    #[error("{folder} cannot be looked into: {why}")]
    Closed {
        /// Its path relative to the location.
        folder: String,
        /// Why, and what mends it.
        why: String,
    },
    /// More than [`REQUESTS_LIMIT`].
    #[error(
        "more than {REQUESTS_LIMIT} requests for one look: name the folder that holds the checkpoints, or move old ones away"
    )]
    TooManyRequests,
}

impl StoreError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::NoSuchPlace { .. }
            | Self::NoFolder { .. }
            | Self::Refused { .. }
            | Self::Closed { .. }
            | Self::TooMany { .. }
            | Self::TooManyRequests => Class::Operator,
            Self::NoAnswer { .. } => Class::Retry,
        }
    }
}

/// Odd keys seen so far, each once.
#[derive(Debug, Default)]
pub struct OddKeys(Mutex<BTreeSet<String>>);

impl OddKeys {
    /// Whether no checkpoint can be under `key`; if so it is noted.
    pub fn note(&self, key: &str) -> bool {
        let is_odd = is_odd(key.strip_suffix('/').unwrap_or(key));
        if is_odd {
            let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // A listing by folders showed the beginning of it only.
            let shown = seen.iter().find(|s| s.ends_with('/') && key.starts_with(*s)).cloned();
            if let Some(shown) = shown {
                seen.remove(&shown);
            }
            if seen.len() < ODD_KEYS_LIMIT {
                seen.insert(key.to_owned());
            }
        }
        is_odd
    }

    /// Notes a key that cannot even be shown as text.
    pub fn note_unreadable(&self, key: String) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() < ODD_KEYS_LIMIT {
            seen.insert(key);
        }
    }

    fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

/// A store as one look uses it: with limits, and a count of what was asked.
#[derive(Debug)]
pub struct Objects {
    store: Box<dyn Store>,
    odd: Arc<OddKeys>,
    requests: AtomicU64,
}

impl Objects {
    /// Looks through `store`, which may note odd keys in `odd` itself.
    pub fn new(store: Box<dyn Store>, odd: Arc<OddKeys>) -> Self {
        Self { store, odd, requests: AtomicU64::new(0) }
    }

    /// Requests made so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Odd keys seen so far.
    pub fn odd_keys(&self) -> u64 {
        self.odd.count()
    }

    /// What lies directly in `folder` (`.` is the location itself).
    pub async fn folder(&self, folder: &str) -> Result<Folder, StoreError> {
        let prefix = prefix_of(folder);
        let mut found = Folder::default();
        let mut from = None;
        loop {
            self.count_request()?;
            let page = self.store.page(&prefix, Depth::Direct, from).await?;
            for name in page.folders.iter().filter_map(|f| f.strip_prefix(&prefix)) {
                if !self.odd.note(name) {
                    found.folders.push(name.trim_end_matches('/').to_owned());
                }
            }
            self.take_objects(&prefix, page.objects, &mut found.objects);
            if found.folders.len() + found.objects.len() > LISTING_LIMIT {
                return Err(StoreError::TooMany { key: folder.to_owned() });
            }
            from = match page.next {
                Some(next) => Some(next),
                None => break,
            };
        }
        found.folders.sort();
        found.folders.dedup();
        found.objects.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// Everything below `folder`, in byte order of key.
    pub async fn below(&self, folder: &str) -> Result<Vec<Object>, StoreError> {
        let prefix = prefix_of(folder);
        let mut found = Vec::new();
        let mut from = None;
        loop {
            self.count_request()?;
            let page = self.store.page(&prefix, Depth::All, from).await?;
            self.take_objects(&prefix, page.objects, &mut found);
            if found.len() > LISTING_LIMIT {
                return Err(StoreError::TooMany { key: folder.to_owned() });
            }
            from = match page.next {
                Some(next) => Some(next),
                None => break,
            };
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    /// Takes over what is a file: no odd key, and no directory marker (a key that ends in `/`).
    fn take_objects(&self, prefix: &str, page: Vec<Object>, found: &mut Vec<Object>) {
        for object in page {
            let Some(key) = object.key.strip_prefix(prefix) else { continue };
            if key.is_empty() || self.odd.note(key) || key.ends_with('/') {
                continue;
            }
            found.push(Object { key: key.to_owned(), ..object });
        }
    }

    /// The bytes `range` of an object.
    pub async fn read(&self, key: &str, range: Range<u64>) -> Result<Read, StoreError> {
        if range.is_empty() {
            return Ok(Read::Bytes(Vec::new()));
        }
        self.count_request()?;
        let wanted = range.end - range.start;
        match self.store.read(key, range).await? {
            Read::Bytes(bytes) if bytes.len() as u64 != wanted => Ok(Read::Changed),
            read @ (Read::Bytes(_) | Read::Changed | Read::Refused(_)) => Ok(read),
        }
    }

    /// What lies directly in the location; an error where it is a single object.
    pub async fn top(&self) -> Result<Folder, StoreError> {
        let top = self.folder(".").await?;
        if top.folders.is_empty() && top.objects.is_empty() {
            self.count_request()?;
            if let Some(error) = self.store.single_object().await {
                return Err(error);
            }
        }
        Ok(top)
    }

    fn count_request(&self) -> Result<(), StoreError> {
        if self.requests.fetch_add(1, Ordering::Relaxed) >= REQUESTS_LIMIT {
            return Err(StoreError::TooManyRequests);
        }
        Ok(())
    }
}

fn prefix_of(folder: &str) -> String {
    if folder == "." { String::new() } else { format!("{folder}/") }
}

/// `name` in `folder`, where `.` is the location itself.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder == "." { name.to_owned() } else { format!("{folder}/{name}") }
}

/// An error and all its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        // Some libraries repeat their cause in their own words.
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}
