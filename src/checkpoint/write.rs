//! Writing one small object below a location. Everything else here only reads.

use super::objects::StoreError;
use super::store_folder::{FolderStore, no_answer};
use super::store_s3::{AccessError, S3Store, StorageAccess};
use crate::model::checkpoint::{Location, Scheme};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, PutMode, PutOptions, PutPayload};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time that a write may take, its retries included: a CreateJob waits for it.
pub(super) const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// Why a location cannot be opened to write.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The bucket.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The folder.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A location that is written to.
#[derive(Debug)]
pub(super) enum Writable {
    Folder(FolderStore),
    Bucket(S3Store),
}

impl Writable {
    /// Opens `location`. `access` says how a bucket is reached; a folder needs none.
    pub(super) fn open(
        location: &Location,
        access: Option<&StorageAccess>,
    ) -> Result<Self, OpenError> {
        match (location.scheme, access) {
            (Scheme::File, _) => {
                let root = Path::new("/").join(&location.prefix);
                Ok(Self::Folder(FolderStore::open(&root, Arc::default())?))
            }
            (Scheme::S3 | Scheme::Oss, Some(access)) => {
                Ok(Self::Bucket(S3Store::open(location, access, Arc::default())?))
            }
            (Scheme::S3 | Scheme::Oss, None) => {
                Err(AccessError::NoKeys { place: location.to_string() }.into())
            }
        }
    }

    /// What the object at `key` is read with: the store, and its own spelling of the key.
    pub(super) fn at(&self, key: &str) -> object_store::Result<(&dyn ObjectStore, StorePath)> {
        let (store, whole): (&dyn ObjectStore, String) = match self {
            Self::Folder(folder) => (folder.files(), key.to_owned()),
            Self::Bucket(bucket) => (bucket.bucket(), bucket.whole_key(key)),
        };
        Ok((store, StorePath::parse(whole)?))
    }

    /// Writes `text` to `key`, whole or not at all.
    pub(super) async fn put(
        &self,
        key: &str,
        text: String,
        mode: PutMode,
    ) -> object_store::Result<()> {
        let (store, path) = self.at(key)?;
        let options = PutOptions { mode, ..PutOptions::default() };
        store.put_opts(&path, PutPayload::from(text.into_bytes()), options).await.map(drop)
    }
}

/// What a store's error means: refused, or no answer.
pub(super) fn failed(operation: &'static str, key: &str, error: object_store::Error) -> StoreError {
    let is_refused = matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    );
    if is_refused {
        StoreError::Refused { operation, key: key.to_owned(), source: Box::new(error) }
    } else {
        no_answer(operation, key, error)
    }
}
