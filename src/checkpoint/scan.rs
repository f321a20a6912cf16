//! A look: which checkpoints are under a location, and which one to go on from.

use super::choice::TESTED_LIMIT;
use super::find::find;
use super::formats::FormatError;
use super::objects::{Objects, OddKeys, StoreError, chain};
use super::store_folder::FolderStore;
use super::store_s3::{AccessError, S3Store, StorageAccess};
use super::walk::FOLDERS_LIMIT;
use crate::model::checkpoint::{Location, Look, PassOver, Scheme};
use crate::model::error::Class;
use crate::model::spec::{CheckpointSpec, CustomLayout};
use crate::model::time::WallTime;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time that one look may take.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanOptions {
    /// `auto`, a format's word, or `custom`.
    pub format: String,
    /// The layout when `format` is `custom`.
    pub custom: Option<CustomLayout>,
    /// Ranks that write, where known.
    pub ranks: Option<u32>,
    /// What is not to be chosen, whole or not.
    pub pass_over: PassOver,
}

impl ScanOptions {
    /// What a job file asks for, and what its record holds against checkpoints.
    pub fn of(spec: &CheckpointSpec, pass_over: PassOver) -> Self {
        let CheckpointSpec { format, custom, ranks, .. } = spec;
        Self { format: format.clone(), custom: custom.clone(), ranks: *ranks, pass_over }
    }
}

/// Why a look gave no findings.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store could not be opened.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// There is no such format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// More folders than are looked at, and no checkpoint in those.
    #[error(
        "there are more than {FOLDERS_LIMIT} folders, and the newest checkpoint may be in one that was not looked at: name the folder that holds the checkpoints"
    )]
    TooManyFolders,
    /// None of many was whole.
    #[error("the newest {TESTED_LIMIT} checkpoints are all incomplete; older ones were not tested")]
    TooManyTorn,
    /// Parts whose steps do not meet.
    #[error("the parts have no step in common among the newest ones; older ones were not compared")]
    NoCommonStep,
    /// [`DEADLINE`].
    #[error("no complete answer within {} s", DEADLINE.as_secs())]
    Deadline,
}

impl LookError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Access(error) => error.class(),
            Self::Format(_) | Self::TooManyFolders | Self::TooManyTorn | Self::NoCommonStep => {
                Class::Operator
            }
            Self::Deadline => Class::Retry,
        }
    }
}

/// Opens a location. `access` is needed for buckets only.
///
/// # Errors
/// A folder that is not there; no keys, or a wrong endpoint.
pub fn open(location: &Location, access: Option<&StorageAccess>) -> Result<Objects, LookError> {
    let odd = Arc::new(OddKeys::default());
    match (location.scheme, access) {
        (Scheme::File, _) => {
            let root = Path::new("/").join(&location.prefix);
            let store = FolderStore::open(&root, Arc::clone(&odd))?;
            Ok(Objects::new(Box::new(store), odd))
        }
        (Scheme::S3 | Scheme::Oss, Some(access)) => {
            let store = S3Store::open(location, access, Arc::clone(&odd))?;
            Ok(Objects::new(Box::new(store), odd))
        }
        (Scheme::S3 | Scheme::Oss, None) => {
            Err(AccessError::NoKeys { place: location.to_string() }.into())
        }
    }
}

/// Opens a location and looks.
pub async fn look_at(
    location: &Location,
    access: Option<&StorageAccess>,
    options: &ScanOptions,
    now: WallTime,
) -> Look {
    match open(location, access) {
        Ok(objects) => look(&objects, location, options, now).await,
        Err(error) => could_not(&error, error.class()),
    }
}

/// Looks for checkpoints under a location that is open.
pub async fn look(
    objects: &Objects,
    location: &Location,
    options: &ScanOptions,
    now: WallTime,
) -> Look {
    let found = Box::pin(find(objects, location, options, now, None));
    match tokio::time::timeout(DEADLINE, found).await {
        Ok(Ok(mut findings)) => {
            findings.odd_keys = objects.odd_keys();
            Look::Done(findings)
        }
        Ok(Err(error)) => could_not(&error, error.class()),
        Err(_) => could_not(&LookError::Deadline, LookError::Deadline.class()),
    }
}

pub(super) fn could_not(error: &dyn std::error::Error, class: Class) -> Look {
    let needs_person = match class {
        Class::Operator | Class::Bug => true,
        Class::Retry | Class::Wait => false,
    };
    Look::CouldNotLook { why: chain(error), needs_person }
}
