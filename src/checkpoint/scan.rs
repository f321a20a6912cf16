//! A look: which checkpoints are under a location, and which one to go on from.

use super::choice::{Beside, Scan, TESTED_LIMIT};
use super::formats::{Checkpoint, Format, FormatError, Wanted};
use super::names::{Kind, NameShape, SHAPES};
use super::objects::{Objects, OddKeys, StoreError, chain};
use super::run::Run;
use super::store_folder::FolderStore;
use super::store_s3::{AccessError, S3Store, StorageAccess};
use super::walk::{FOLDERS_LIMIT, has_ranks, walk};
use crate::model::checkpoint::{Findings, Location, Look, PassOver, Position, Scheme, Wholeness};
use crate::model::error::Class;
use crate::model::spec::{CheckpointSpec, CustomLayout};
use crate::model::time::WallTime;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time that one look may take.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// With more checkpoints than these the lowest one is listed in the place of the next older one, not
/// besides it.
const FEW_ENTRIES: usize = 8;

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
        "there are more than {FOLDERS_LIMIT} folders, and the newest checkpoint may be in one that was not looked at: name a folder nearer to it"
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

/// Looks once. What is newer than `at_most` is shown and not tested.
pub(super) async fn find(
    objects: &Objects,
    location: &Location,
    options: &ScanOptions,
    now: WallTime,
    at_most: Option<Position>,
) -> Result<Findings, LookError> {
    let wanted = Wanted::read(&options.format, options.custom.as_ref())?;
    let formats = wanted.formats();
    let shapes: Vec<NameShape> = match wanted {
        Wanted::Auto => SHAPES.to_vec(),
        Wanted::Known(_) | Wanted::Custom(_) => {
            let mut shapes: Vec<NameShape> = Vec::new();
            for shape in formats.iter().flat_map(|format| format.shapes()) {
                if !shapes.contains(&shape) {
                    shapes.push(shape);
                }
            }
            shapes
        }
    };
    let top = objects.folder(".").await?;
    let name = location.prefix.rsplit('/').next().unwrap_or_default();
    let itself = formats.iter().find(|f| f.is_checkpoint(name, &top)).copied();
    let walked = match itself {
        // A folder that is a checkpoint and holds others as well is first of all a root.
        Some(format)
            if !has_children(&top, &shapes) && !has_ranks(objects, &top, &shapes).await? =>
        {
            let mut shapes = format.shapes().into_iter();
            let shape = shapes.find(|shape| shape.read(name, Kind::Folder).is_some());
            let run = Run::of_itself(shape.unwrap_or_else(|| format.shape()), name);
            let scan = Scan { objects, run, options, now, beside: Beside::Several, at_most };
            return scan.choose(format, None).await;
        }
        Some(_) | None => walk(objects, top, &shapes).await?,
    };
    if walked.is_root_among_cut || (walked.roots.is_empty() && walked.is_cut) {
        return Err(LookError::TooManyFolders);
    }
    let run = match Run::of_roots(walked.roots) {
        Ok(Some(run)) => run,
        Ok(None) => return Ok(Findings::default()),
        Err(roots) => {
            let words =
                |of: &BTreeSet<&str>| of.iter().copied().collect::<Vec<_>>().join(" and of ");
            let ambiguous_of = roots.values().map(words).collect();
            let ambiguous = roots.into_keys().collect();
            return Ok(Findings { ambiguous, ambiguous_of, ..Findings::default() });
        }
    };
    let mut scan = Scan { objects, run, options, now, beside: Beside::Next, at_most };
    let fitting = formats.iter().filter(|format| format.reads(&scan.run.shape));
    let fitting: Vec<&dyn Format> = fitting.copied().collect();
    if scan.run.entries.len() > FEW_ENTRIES
        && fitting.iter().any(|format| format.written_last().is_some())
    {
        scan.beside = Beside::Lowest;
    }
    scan.add_beside(&fitting).await?;
    scan.read_steps(&fitting).await?;
    let format_of = |newest: &[&Checkpoint]| {
        let claimed = fitting.iter().copied().find(|format| format.claims(newest));
        match wanted {
            Wanted::Auto => claimed,
            Wanted::Known(_) | Wanted::Custom(_) => claimed.or(fitting.first().copied()),
        }
    };
    scan.list_from(0).await?;
    let mut newest = None;
    if !scan.is_too_new(0)
        && scan.is_like_the_one_beside(&format_of)
        && let Some(format) = format_of(&scan.listed())
    {
        newest = scan.judge(0, format).await?.map(|judgement| (format.word(), judgement));
    }
    if !matches!(&newest, Some((_, judgement)) if judgement.wholeness == Wholeness::Whole) {
        scan.beside = Beside::Several;
        scan.list_from(0).await?;
    }
    let Some(format) = format_of(&scan.listed()) else { return Ok(scan.unknown(&fitting)) };
    // What is whole or torn beside one stays so beside more, as long as it is the same format's.
    let newest = newest.filter(|(word, judgement)| {
        *word == format.word() && matches!(judgement.wholeness, Wholeness::Whole | Wholeness::Torn)
    });
    scan.choose(format, newest.map(|(_, judgement)| judgement)).await
}

fn has_children(folder: &super::objects::Folder, shapes: &[NameShape]) -> bool {
    let reads = |name: &str, kind| shapes.iter().any(|shape| shape.fits(name, kind));
    folder.folders.iter().any(|name| reads(name, Kind::Folder))
        || folder.objects.iter().any(|object| reads(&object.key, Kind::File))
}
