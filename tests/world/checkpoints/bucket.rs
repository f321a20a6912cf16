//! A bucket made of a fixture: keys, sizes and times from `listing.json`, bytes from `tree/`.

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::Value;
use spotkeeper::checkpoint::objects::{Depth, Object, Objects, Page, Read, Store, StoreError};
use spotkeeper::model::time::WallTime;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Keys of one page: small, so that every listing has several.
const PAGE: usize = 7;

/// One object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) bytes: Vec<u8>,
    pub(crate) modified: WallTime,
}

/// A whole bucket, from the job's prefix on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bucket {
    pub(crate) entries: BTreeMap<String, Entry>,
    pub(crate) now: Option<WallTime>,
    /// Keys that are listed and may not be read.
    pub(crate) locked: BTreeSet<String>,
}

impl Bucket {
    pub(crate) fn of(fixture: &Path) -> Self {
        let listing = json(&fixture.join("listing.json"));
        let time = |value: &Value| WallTime::parse(value.as_str().expect("a time"));
        let mut bucket = Self { now: time(&listing["observed_at"]), ..Self::default() };
        for object in listing["objects"].as_array().expect("objects") {
            let key = object["key"].as_str().expect("a key").to_owned();
            let bytes = if key.ends_with('/') {
                Vec::new()
            } else {
                std::fs::read(fixture.join("tree").join(&key)).expect("the object's bytes")
            };
            assert_eq!(object["size"].as_u64(), Some(bytes.len() as u64), "{key}");
            let modified = time(&object["last_modified"]).expect("a time");
            bucket.entries.insert(key, Entry { bytes, modified });
        }
        bucket
    }

    pub(crate) fn put(&mut self, key: &str, bytes: &[u8]) {
        let entry = Entry { bytes: bytes.to_vec(), modified: WallTime(1_000) };
        self.entries.insert(key.to_owned(), entry);
    }

    /// The same bucket with every key changed.
    pub(crate) fn renamed(&self, name: impl Fn(&str) -> String) -> Self {
        let entries = self.entries.iter().map(|(key, entry)| (name(key), entry.clone()));
        Self { entries: entries.collect(), ..self.clone() }
    }

    pub(crate) fn now(&self) -> WallTime {
        self.now.unwrap_or(WallTime(1_000_000))
    }

    pub(crate) fn objects(&self) -> Objects {
        Objects::new(Box::new(self.clone()), Arc::default())
    }

    /// Writes it as a folder, less what no folder can hold.
    pub(crate) fn write_to(&self, folder: &Path) {
        for (key, entry) in &self.entries {
            let path = folder.join(key);
            if key.ends_with('/') {
                std::fs::create_dir_all(path).expect("a folder");
            } else {
                std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
                std::fs::write(path, &entry.bytes).expect("a file");
            }
        }
    }

    /// A page of at most `limit` keys and common prefixes, as S3 makes it.
    pub(crate) fn list(
        &self,
        prefix: &str,
        depth: Depth,
        from: Option<&str>,
        limit: usize,
    ) -> Page {
        let mut page = Page::default();
        let mut last: Option<String> = None;
        for (key, entry) in &self.entries {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            let folder = match (depth, rest.find('/')) {
                (Depth::Direct, Some(end)) => Some(format!("{prefix}{}/", &rest[..end])),
                (Depth::Direct, None) | (Depth::All, _) => None,
            };
            let shown = folder.clone().unwrap_or_else(|| key.clone());
            if last.as_ref() == Some(&shown) || from.is_some_and(|from| shown.as_str() <= from) {
                continue;
            }
            if page.folders.len() + page.objects.len() >= limit {
                page.next = last;
                break;
            }
            last = Some(shown);
            match folder {
                Some(folder) => page.folders.push(folder),
                None => page.objects.push(Object {
                    key: key.clone(),
                    size: entry.bytes.len() as u64,
                    modified: entry.modified,
                }),
            }
        }
        page
    }
}

impl Store for Bucket {
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        depth: Depth,
        from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        let page = self.list(prefix, depth, from.as_deref(), PAGE);
        async move { Ok(page) }.boxed()
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>> {
        let place = |n: u64| usize::try_from(n).expect("small");
        let found = self.entries.get(key);
        let read = match found.and_then(|e| e.bytes.get(place(range.start)..place(range.end))) {
            _ if self.locked.contains(key) => Read::Refused("archived".into()),
            Some(bytes) => Read::Bytes(bytes.to_vec()),
            None => Read::Changed,
        };
        async move { Ok(read) }.boxed()
    }
}

pub(crate) fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).expect("a readable file");
    serde_json::from_str(&text).expect("JSON")
}

/// The folders of all cases below `root`, in order.
pub(crate) fn cases(root: &Path) -> Vec<PathBuf> {
    let folders = |path: &Path| {
        let entries =
            std::fs::read_dir(path).expect("a folder").map(|e| e.expect("an entry").path());
        let mut folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    };
    let cases: Vec<_> = folders(root).iter().flat_map(|format| folders(format)).collect();
    assert!(!cases.is_empty(), "no case in {}", root.display());
    cases
}
