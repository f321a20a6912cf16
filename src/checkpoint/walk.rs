//! From a URL down to the folders that hold checkpoints.
//!
//! A folder whose children have the shape of checkpoints' names is a root, and nothing below it is
//! looked at: the outermost match wins. Folders whose names begin with `.` are not entered.

use super::formats::Root;
use super::names::{Kind, NameShape};
use super::objects::{Folder, Objects, StoreError, join};
use futures_util::StreamExt;
use std::collections::BTreeMap;

/// Levels below the URL that are looked at.
pub(super) const LEVELS_LIMIT: usize = 4;
/// Folders that are looked at.
pub(super) const FOLDERS_LIMIT: usize = 500;
/// Numbered folders, newest first, that are opened to see whether they are checkpoints.
const PROBED: usize = 3;
/// Listings that are on their way at one time.
const LISTINGS_AT_ONCE: usize = 16;

/// What a walk came across.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Folders of checkpoints and the shape of the names in each.
    pub(super) roots: Vec<(Root, NameShape)>,
    /// Whether folders were left out because of [`FOLDERS_LIMIT`] or their number of entries.
    pub(super) is_cut: bool,
    /// Whether a root stands among folders of which some were left out: a newer one may be there.
    pub(super) is_root_among_cut: bool,
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
        let among_cut = walk.is_cut;
        for (path, folder) in level {
            let mut found: Vec<_> =
                shapes.iter().filter(|s| has_shape(&folder, s)).cloned().collect();
            if found == [NameShape::Number] && !holds_numbered(objects, &path, &folder).await? {
                found.clear();
            }
            // Numbered folders beside named checkpoints are something else.
            if found.len() > 1 {
                found.retain(|shape| *shape != NameShape::Number);
            }
            if found.is_empty() {
                let names = folder.folders.iter().filter(|name| !name.starts_with('.'));
                below.extend(names.map(|name| join(&path, name)));
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
            walk.is_cut = true;
            below.truncate(FOLDERS_LIMIT - listed);
        }
        listed += below.len();
        level = list(objects, below, &mut walk.is_cut).await?;
    }
    Ok(walk)
}

async fn list(
    objects: &Objects,
    paths: Vec<String>,
    is_cut: &mut bool,
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
            Err(StoreError::TooMany { .. }) => *is_cut = true,
            Err(error) => return Err(error),
        }
    }
    Ok(listed)
}

/// Whether the newest of the numbered folders in `folder` have something of a checkpoint in them.
async fn holds_numbered(
    objects: &Objects,
    path: &str,
    folder: &Folder,
) -> Result<bool, StoreError> {
    let mut names: Vec<_> = folder
        .folders
        .iter()
        .filter_map(|name| Some((NameShape::Number.read(name, Kind::Folder)?, name)))
        .collect();
    names.sort();
    let newest: Vec<String> =
        names.into_iter().rev().take(PROBED).map(|(_, name)| join(path, name)).collect();
    let mut is_cut = false;
    let probed = list(objects, newest, &mut is_cut).await?;
    Ok(probed.values().any(is_numbered_checkpoint))
}

fn is_numbered_checkpoint(folder: &Folder) -> bool {
    folder.objects.iter().any(|object| {
        let is_shard = object.key.rsplit_once('.').is_some_and(|(_, e)| e == "distcp");
        let marker = ["_CHECKPOINT_METADATA", "commit_success.txt", ".metadata"];
        is_shard || marker.contains(&object.key.as_str())
    })
}

fn has_shape(folder: &Folder, shape: &NameShape) -> bool {
    folder.folders.iter().any(|name| shape.read(name, Kind::Folder).is_some())
        || folder.objects.iter().any(|object| shape.read(&object.key, Kind::File).is_some())
}
