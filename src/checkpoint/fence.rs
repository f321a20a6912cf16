//! The fence: one of the two small objects that spotkeeper writes below a checkpoint prefix (the
//! other is a tracker that a person allowed it to rewrite).
//!
//! What always holds: its key is [`KEY`] and nothing else; it is written whole or not at all; no
//! conditional write is used, since OSS has none behind its S3 side. A write that was given up may
//! still arrive: the fence is then an older one, which lets attempts start.

use super::objects::StoreError;
use super::store_s3::{AccessError, StorageAccess};
use super::write::{OpenError, WRITE_LIMIT, Writable, failed};
use crate::model::checkpoint::Location;
use crate::model::error::Class;
use crate::model::fence::{Fence, KEY};
use object_store::PutMode;

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
        let below = Writable::open(location, access).map_err(|error| match error {
            OpenError::Access(source) => FenceError::Access { place: place.clone(), source },
            OpenError::Store(source) => FenceError::Store { place: place.clone(), source },
        })?;
        let written = below.put(KEY, fence.text(), PutMode::Overwrite).await;
        written.map_err(|error| FenceError::Store {
            place: place.clone(),
            source: failed("write", KEY, error),
        })
    };
    let done = tokio::time::timeout(WRITE_LIMIT, write).await;
    done.unwrap_or_else(|_| Err(FenceError::Slow { place: place.clone() }))
}
