//! From a URL down to the folders that hold checkpoints.
//!
//! A folder whose children have the shape of checkpoints' names is a root, and nothing below it is
//! looked at: the outermost match wins. Folders whose names begin with `.` are not entered.

use super::formats::Root;
use super::names::{Kind, NameShape, prefixed, rank_of};
use super::numbered::Numbered;
use super::objects::{Folder, Object, Objects, StoreError, join};
use futures_util::StreamExt;
use std::collections::{BTreeMap, BTreeSet};

/// Levels below the URL that are looked at.
pub(super) const LEVELS_LIMIT: usize = 4;
/// Folders that are looked at.
pub(super) const FOLDERS_LIMIT: usize = 500;
/// Numbered folders, newest first, that are opened to see whether they are checkpoints.
const PROBED: usize = 3;
/// What every file system of its own has at its top, for nobody but root.
const FOUND: &str = "lost+found";
/// Prefixes of numbered folders that are looked at in one folder.
const PREFIXES: usize = 4;
/// Listings that are on their way at one time.
const LISTINGS_AT_ONCE: usize = 16;

/// What a walk came across.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Folders of checkpoints and the shape of the names in each.
    pub(super) roots: Vec<(Root, NameShape)>,
    /// What was not looked into.
    pub(super) left: Left,
    /// Whether a root stands among folders of which some were left out: a newer one may be there.
    pub(super) is_root_among_cut: bool,
    /// Names with a number in folders that hold no checkpoint.
    pub(super) numbered: Numbered,
}

/// What a walk left out.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Whether folders were left out because of [`FOLDERS_LIMIT`] or their number of entries.
    pub(super) is_cut: bool,
    /// Folders that cannot be looked into.
    pub(super) closed: Vec<ClosedFolder>,
}

/// A folder that cannot be looked into.
#[derive(Debug, Clone)]
pub(super) struct ClosedFolder {
    /// Its path relative to the location.
    pub(super) path: String,
    /// Why, and what mends it.
    pub(super) why: String,
}

/// Walks down from the location, whose own listing is `top`.
pub(super) async fn walk(
    objects: &Objects,
    top: Folder,
    shapes: &[NameShape],
) -> Result<Walk, StoreError> {
    let mut walk = Walk::default();
    let mut level = BTreeMap::from([(".".to_owned(), top)]);
    let mut listed = 1;
    for depth in 0..=LEVELS_LIMIT {
        let mut below = Vec::new();
        let among_cut = walk.left.is_cut;
        for (path, mut folder) in level {
            let mut found = shapes_of(objects, &path, &folder, shapes).await?;
            if found.is_empty()
                && shapes.contains(&NameShape::StepEquals)
                && let Some(folded) = fold_ranks(objects, &path, &folder, &mut walk.left).await?
            {
                folder = folded;
                found.push(NameShape::StepEquals);
            }
            // Files without a step say nothing of what lies below.
            if found.is_empty() || (found == [NameShape::StepEquals] && is_loose(&folder)) {
                let enters = |name: &&String| {
                    !name.starts_with('.')
                        && *name != FOUND
                        && !NameShape::StepEquals.fits(name, Kind::Folder)
                };
                walk.numbered.note(&path, &folder);
                below.extend(folder.folders.iter().filter(enters).map(|name| join(&path, name)));
            }
            walk.is_root_among_cut |= among_cut && !found.is_empty();
            for shape in found {
                let root = Root { path: path.clone(), folder: Some(folder.clone()) };
                walk.roots.push((root, shape));
            }
        }
        if depth == LEVELS_LIMIT || below.is_empty() {
            break;
        }
        if listed + below.len() > FOLDERS_LIMIT {
            walk.left.is_cut = true;
            below.truncate(FOLDERS_LIMIT - listed);
        }
        listed += below.len();
        level = list(objects, below, &mut walk.left).await?;
    }
    Ok(walk)
}

async fn list(
    objects: &Objects,
    paths: Vec<String>,
    left: &mut Left,
) -> Result<BTreeMap<String, Folder>, StoreError> {
    let mut answers = futures_util::stream::iter(paths.into_iter().map(|path| async move {
        let answer = objects.folder(&path).await;
        (path, answer)
    }))
    .buffered(LISTINGS_AT_ONCE);
    let mut listed = BTreeMap::new();
    while let Some((path, answer)) = answers.next().await {
        match answer {
            Ok(folder) => {
                listed.insert(path, folder);
            }
            // Tens of thousands of files are data that lie beside the checkpoints.
            Err(StoreError::TooMany { .. }) => left.is_cut = true,
            Err(StoreError::Closed { folder, why }) => {
                left.closed.push(ClosedFolder { path: folder, why });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

/// The shapes of the names in a folder.
async fn shapes_of(
    objects: &Objects,
    path: &str,
    folder: &Folder,
    shapes: &[NameShape],
) -> Result<Vec<NameShape>, StoreError> {
    let mut found: Vec<_> = shapes.iter().filter(|s| has_shape(folder, s)).cloned().collect();
    // What is called by a number, or by no step at all, beside named checkpoints is something else.
    let is_weak = |shape: &NameShape| match shape {
        NameShape::Number | NameShape::EpochUnderscore => true,
        NameShape::StepEquals => is_loose(folder),
        NameShape::Iteration
        | NameShape::CheckpointDash
        | NameShape::CheckpointUnderscore
        | NameShape::GlobalStep
        | NameShape::GlobalStepUnderscore
        | NameShape::Step
        | NameShape::EpochStep
        | NameShape::EpochBatch
        | NameShape::Prefixed(_)
        | NameShape::Custom(_) => false,
    };
    if found.iter().any(|shape| !is_weak(shape)) {
        found.retain(|shape| !is_weak(shape));
    }
    for (shape, is_one) in [
        (NameShape::Number, is_numbered_checkpoint as fn(&Folder) -> bool),
        (NameShape::EpochUnderscore, is_accelerates),
    ] {
        if found.contains(&shape) && !holds_one(objects, path, folder, &shape, is_one).await? {
            found.retain(|other| *other != shape);
        }
    }
    // Orbax may be told any prefix: such folders count only with its files in them.
    if found.is_empty() && shapes.contains(&NameShape::Number) {
        let prefixes = folder.folders.iter().filter_map(|name| prefixed(name)).map(|(p, _)| p);
        let prefixes: BTreeSet<&str> = prefixes.collect();
        for prefix in prefixes.into_iter().take(PREFIXES) {
            let shape = NameShape::Prefixed(prefix.to_owned());
            if holds_one(objects, path, folder, &shape, is_orbax).await? {
                found.push(shape);
            }
        }
    }
    Ok(found)
}

/// Whether the newest of the folders of a shape have something of a checkpoint in them.
async fn holds_one(
    objects: &Objects,
    path: &str,
    folder: &Folder,
    shape: &NameShape,
    is_one: fn(&Folder) -> bool,
) -> Result<bool, StoreError> {
    let mut names: Vec<_> = folder
        .folders
        .iter()
        .filter_map(|name| Some((shape.read(name, Kind::Folder)?, name)))
        .collect();
    names.sort();
    let newest: Vec<String> =
        names.into_iter().rev().take(PROBED).map(|(_, name)| join(path, name)).collect();
    let mut left = Left::default();
    let first = newest.first().cloned();
    let probed = list(objects, newest, &mut left).await?;
    if probed.values().any(is_one) {
        return Ok(true);
    }
    // Earlier releases of Orbax leave nothing but items.
    let Some((path, folder)) = first.and_then(|path| probed.get_key_value(&path)) else {
        return Ok(false);
    };
    if *shape == NameShape::EpochUnderscore || !folder.objects.is_empty() {
        return Ok(false);
    }
    let items = folder.folders.iter().take(PROBED).map(|item| join(path, item)).collect();
    Ok(list(objects, items, &mut left).await?.values().any(is_item))
}

/// What Orbax writes into an item.
fn is_item(folder: &Folder) -> bool {
    ["manifest.ocdbt", "_METADATA"].iter().any(|name| folder.object(name).is_some())
}

/// What Orbax writes beside the items.
fn is_orbax(folder: &Folder) -> bool {
    ["_CHECKPOINT_METADATA", "commit_success.txt"].iter().any(|name| folder.object(name).is_some())
}

fn is_numbered_checkpoint(folder: &Folder) -> bool {
    folder.objects.iter().any(|object| {
        let is_shard = object.key.rsplit_once('.').is_some_and(|(_, e)| e == "distcp");
        let marker = ["_CHECKPOINT_METADATA", "commit_success.txt", ".metadata"];
        is_shard || marker.contains(&object.key.as_str())
    })
}

/// What Accelerate writes and no export of weights has.
fn is_accelerates(folder: &Folder) -> bool {
    let names = folder.objects.iter().map(|object| &object.key).chain(&folder.folders);
    names.into_iter().any(|name| {
        name.starts_with("random_states_")
            || name.starts_with("optimizer")
            || name == "scheduler.bin"
    })
}

/// Whether the location itself, which looks like a checkpoint of Megatron, is a root of NeMo's.
pub(super) async fn has_ranks(
    objects: &Objects,
    top: &Folder,
    shapes: &[NameShape],
) -> Result<bool, StoreError> {
    let mut left = Left::default();
    Ok(shapes.contains(&NameShape::StepEquals)
        && fold_ranks(objects, ".", top, &mut left).await?.is_some())
}

/// NeMo 1 with model parallelism has one folder a rank, and the same names in each: such folders are
/// read as one, whose names begin with the rank's.
async fn fold_ranks(
    objects: &Objects,
    path: &str,
    folder: &Folder,
    left: &mut Left,
) -> Result<Option<Folder>, StoreError> {
    let ranks = folder.folders.iter().filter(|name| rank_of(name).is_some());
    let mut paths: Vec<String> = ranks.map(|name| join(path, name)).collect();
    if paths.len() > FOLDERS_LIMIT {
        left.is_cut = true;
        paths.truncate(FOLDERS_LIMIT);
    }
    let mut whole = folder.clone();
    for (rank, listed) in list(objects, paths, left).await? {
        let rank = rank.rsplit('/').next().unwrap_or_default().to_owned();
        let objects = listed.objects.into_iter();
        whole.objects.extend(objects.map(|o| Object { key: join(&rank, &o.key), ..o }));
    }
    let is_one = has_shape(&whole, &NameShape::StepEquals);
    Ok(is_one.then_some(whole))
}

/// Whether the only checkpoints in a folder are files of Lightning whose names show no step.
pub(super) fn is_loose(folder: &Folder) -> bool {
    let shape = NameShape::StepEquals;
    let reads = |name: &str, kind| shape.read(name, kind).is_some();
    !folder.folders.iter().any(|name| reads(name, Kind::Folder))
        && !folder.objects.iter().any(|object| reads(&object.key, Kind::File))
        && has_shape(folder, &shape)
}

fn has_shape(folder: &Folder, shape: &NameShape) -> bool {
    folder.folders.iter().any(|name| shape.fits(name, Kind::Folder))
        || folder.objects.iter().any(|object| shape.fits(&object.key, Kind::File))
}
