//! The one object that spotkeeper ever writes below a checkpoint prefix: the fence.
//!
//! What always holds: its key is [`KEY`] and nothing else; it is written whole or not at all; no
//! conditional write is used, since OSS has none behind its S3 side. A write that was given up may
//! still arrive: the fence is then an older one, which lets attempts start.

use super::objects::StoreError;
use super::store_folder::{FolderStore, no_answer};
use super::store_s3::{AccessError, S3Store, StorageAccess};
use crate::model::checkpoint::{Location, Scheme};
use crate::model::error::Class;
use crate::model::fence::{Fence, KEY};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, PutPayload};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time that the write may take, its retries included: a CreateJob waits for it.
pub const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// Why the fence was not written.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// The bucket cannot be opened.
    #[error("the fence under {place}")]
    Access {
        /// The prefix.
        place: String,
        /// Why.
        #[source]
        source: AccessError,
    },
    /// The folder cannot be opened, or the write was refused or not answered.
    #[error("the fence under {place}")]
    Store {
        /// The prefix.
        place: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// It took too long.
    #[error("the fence under {place}: not written within {} s", WRITE_LIMIT.as_secs())]
    Slow {
        /// The prefix.
        place: String,
    },
}

impl FenceError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Access { source, .. } => source.class(),
            Self::Store { source, .. } => source.class(),
            Self::Slow { .. } => Class::Retry,
        }
    }
}

/// Writes the fence below `location`, over whatever stood there. `access` says how a bucket is
/// reached; a folder needs none.
///
/// # Errors
/// [`FenceError`]; then an older fence, or none, may still stand.
pub async fn write(
    location: &Location,
    access: Option<&StorageAccess>,
    fence: &Fence<'_>,
) -> Result<(), FenceError> {
    let place = location.to_string();
    let write = async {
        match (location.scheme, access) {
            (Scheme::File, _) => {
                let root = format!("/{}", location.prefix);
                let folder = FolderStore::open(Path::new(&root), Arc::default());
                let folder =
                    folder.map_err(|source| FenceError::Store { place: place.clone(), source })?;
                put(folder.files(), KEY, &place, fence).await
            }
            (Scheme::S3 | Scheme::Oss, Some(access)) => {
                let bucket = S3Store::open(location, access, Arc::default());
                let bucket =
                    bucket.map_err(|source| FenceError::Access { place: place.clone(), source })?;
                put(bucket.bucket(), &bucket.whole_key(KEY), &place, fence).await
            }
            (Scheme::S3 | Scheme::Oss, None) => {
                let source = AccessError::NoKeys { place: place.clone() };
                Err(FenceError::Access { place: place.clone(), source })
            }
        }
    };
    let done = tokio::time::timeout(WRITE_LIMIT, write).await;
    done.unwrap_or_else(|_| Err(FenceError::Slow { place: place.clone() }))
}

async fn put(
    store: &dyn ObjectStore,
    key: &str,
    place: &str,
    fence: &Fence<'_>,
) -> Result<(), FenceError> {
    let failed = |source| FenceError::Store { place: place.to_owned(), source };
    let path = StorePath::parse(key).map_err(|source| failed(no_answer("write", key, source)))?;
    let body = PutPayload::from(fence.text().into_bytes());
    match store.put_opts(&path, body, object_store::PutOptions::default()).await {
        Ok(_) => Ok(()),
        Err(
            error @ (object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }),
        ) => Err(failed(StoreError::Refused {
            operation: "write",
            key: key.to_owned(),
            source: Box::new(error),
        })),
        Err(error) => Err(failed(no_answer("write", key, error))),
    }
}
