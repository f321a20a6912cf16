//! One run: the folders that hold its checkpoints, and the names in them, newest first.

use super::formats::{Checkpoint, Root};
use super::names::{Kind, NameShape, launches, rank_of};
use super::objects::{Object, Objects, StoreError, join};
use super::walk::is_loose;
use crate::model::checkpoint::Position;
use crate::model::time::WallTime;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Why a checkpoint of too many objects cannot be judged.
pub(super) const TOO_LARGE: &str = "it holds more than 20,000 objects, more than are looked at";

/// A name that a listing showed.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its root's place among those of the run.
    pub(super) root: usize,
    /// Its name within the root.
    pub(super) name: String,
    /// Its path relative to the location.
    pub(super) path: String,
    pub(super) kind: Kind,
    /// Where it stands in the order, as far as its name or a look into it said.
    pub(super) position: Option<Position>,
    /// When a file was written; of a folder a listing does not say.
    pub(super) modified: Option<WallTime>,
    /// Whether its name shows a step.
    is_named: bool,
}

/// The roots of one run, and the checkpoints in them, newest first.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) shape: NameShape,
    pub(super) roots: Vec<Root>,
    pub(super) entries: Vec<Entry>,
    /// What was listed of the entries so far.
    pub(super) listed: BTreeMap<usize, Checkpoint>,
}

impl Run {
    /// Roots that are one run; else the paths of all of them, and whose names are in each.
    pub(super) fn of_roots(
        found: Vec<(Root, NameShape)>,
    ) -> Result<Option<Self>, BTreeMap<String, BTreeSet<&'static str>>> {
        let Some((_, shape)) = found.first() else { return Ok(None) };
        let shape = shape.clone();
        if !is_one_run(&found) {
            let mut paths: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
            for (root, shape) in found {
                paths.entry(root.path).or_default().insert(shape.whose());
            }
            return Err(paths);
        }
        let roots: Vec<Root> = found.into_iter().map(|(root, _)| root).collect();
        let entries = roots.iter().enumerate().flat_map(|(at, root)| entries_of(at, root, &shape));
        let entries = entries.collect();
        let mut run = Self { shape, roots, entries, listed: BTreeMap::new() };
        run.sort();
        Ok(Some(run))
    }

    /// The location itself, whose name is `name`.
    pub(super) fn of_itself(shape: NameShape, name: &str) -> Self {
        let position = shape.read(name, Kind::Folder);
        let entry = Entry {
            root: 0,
            name: name.to_owned(),
            path: ".".into(),
            kind: Kind::Folder,
            position,
            modified: None,
            is_named: position.is_some(),
        };
        let root = Root { path: "..".into(), folder: None };
        Self { shape, roots: vec![root], entries: vec![entry], listed: BTreeMap::new() }
    }

    /// Adds a checkpoint that stands in a folder of the root at `root`.
    pub(super) fn add(&mut self, root: usize, name: String) {
        let last = name.rsplit('/').next().unwrap_or_default();
        let position = self.shape.read(last, Kind::Folder);
        let path = join(&self.roots[root].path, &name);
        let is_named = position.is_some();
        let kind = Kind::Folder;
        self.entries.push(Entry { root, name, path, kind, position, modified: None, is_named });
    }

    /// Puts another folder in the place of a root; its entries go with it.
    pub(super) fn replace(&mut self, at: usize, root: Root) {
        self.entries.retain(|entry| entry.root != at);
        self.roots[at] = root;
    }

    /// Puts the newest first. Files of one step are copies, or of several launches (`-v1`): those
    /// whose names show the step before `last.ckpt`, then the youngest. Listings made before are dropped.
    pub(super) fn sort(&mut self) {
        let roots = &self.roots;
        let launch = |e: &Entry| launches(&roots[e.root].path).1;
        self.entries.sort_by_cached_key(|e| {
            Reverse((e.position, launch(e), e.is_named, e.modified, e.name.clone()))
        });
        self.listed.clear();
    }

    /// Entries whose names show no step, the youngest first; folders, of which no time is known,
    /// before them.
    pub(super) fn youngest_without_step(&self, limit: usize) -> Vec<usize> {
        let without = self.entries.iter().enumerate().filter(|(_, e)| e.position.is_none());
        let mut found: Vec<usize> = without.map(|(at, _)| at).collect();
        found.sort_by_key(|at| {
            let modified = self.entries[*at].modified;
            Reverse((modified.is_none(), modified))
        });
        found.truncate(limit);
        found
    }
}

/// Whether roots hold the checkpoints of one run: they differ by a launch, or by a folder that a
/// slash in a measure's name made, or one holds nothing but files without a step (`last.ckpt`) above the
/// others.
fn is_one_run(found: &[(Root, NameShape)]) -> bool {
    let is_above = |root: &Root| {
        let below = |path: &str| root.path == "." || path.starts_with(&format!("{}/", root.path));
        let is_loose = root.folder.as_ref().is_some_and(is_loose);
        is_loose && found.iter().all(|(other, _)| other.path == root.path || below(&other.path))
    };
    let mut kinds = found
        .iter()
        .filter(|(root, shape)| *shape != NameShape::StepEquals || !is_above(root))
        .map(|(root, shape)| (run_of(&root.path, shape), shape));
    let first = kinds.next();
    kinds.all(|kind| Some(kind) == first) && found.iter().all(|(_, shape)| *shape == found[0].1)
}

/// What the roots of one run have in common.
fn run_of(path: &str, shape: &NameShape) -> String {
    let run = launches(path).0;
    if *shape != NameShape::StepEquals {
        return run;
    }
    // `epoch=0-val/loss=0.31-step=30.ckpt`: the folder is a part of a checkpoint's name.
    let kept: Vec<&str> = run.split('/').take_while(|part| !part.contains('=')).collect();
    if kept.is_empty() { ".".to_owned() } else { kept.join("/") }
}

fn entries_of(at: usize, root: &Root, shape: &NameShape) -> Vec<Entry> {
    let Some(folder) = &root.folder else { return Vec::new() };
    let folders = folder.folders.iter().map(|name| (name, Kind::Folder, None));
    let files = folder.objects.iter().map(|o| (&o.key, Kind::File, Some(o.modified)));
    let mut of_ranks = BTreeSet::new();
    let mut entries = Vec::new();
    for (name, kind, modified) in folders.chain(files) {
        if !shape.fits(name, kind) {
            continue;
        }
        // The other ranks' files are parts of what the first one's stands for.
        if let Some((_, file)) = name.split_once('/')
            && !of_ranks.insert(file.to_owned())
        {
            continue;
        }
        let position = shape.read(name, kind);
        entries.push(Entry {
            root: at,
            name: name.clone(),
            path: join(&root.path, name),
            kind,
            position,
            modified,
            is_named: position.is_some(),
        });
    }
    entries
}

/// Lists what an entry stands for.
pub(super) async fn list_entry(
    objects: &Objects,
    run: &Run,
    entry: &Entry,
) -> Result<Checkpoint, StoreError> {
    let mut closed = None;
    let listed = match entry.kind {
        Kind::Folder => match objects.below(&entry.path).await {
            Ok(listed) => listed,
            Err(error @ StoreError::Closed { .. }) => {
                closed = Some(error.to_string());
                Vec::new()
            }
            Err(StoreError::TooMany { .. }) => {
                closed = Some(TOO_LARGE.to_owned());
                Vec::new()
            }
            Err(error) => return Err(error),
        },
        Kind::File => {
            let folder = run.roots[entry.root].folder.as_ref();
            let object = folder.and_then(|folder| folder.object(&entry.name));
            object.map(|o| Object { key: String::new(), ..o.clone() }).into_iter().collect()
        }
    };
    let mut checkpoint = Checkpoint {
        name: entry.name.clone(),
        path: entry.path.clone(),
        position: entry.position,
        objects: listed,
        closed,
    };
    if run.shape == NameShape::StepEquals
        && entry.kind == Kind::Folder
        && let Some(file) = only_file(&checkpoint)
    {
        checkpoint.name = join(&checkpoint.name, &file.key);
        checkpoint.path = join(&checkpoint.path, &file.key);
        checkpoint.objects = vec![Object { key: String::new(), ..file }];
    }
    Ok(checkpoint)
}

/// The file that a folder is a part of the name of: `step=30-val/loss=0.31.ckpt`. The youngest, if
/// there are several (`-v1`).
fn only_file(checkpoint: &Checkpoint) -> Option<Object> {
    let is_file = |object: &Object| {
        let first = object.key.split('/').next().unwrap_or_default();
        is_ckpt(&object.key) && rank_of(first).is_none()
    };
    if is_ckpt(&checkpoint.name) || !checkpoint.objects.iter().all(is_file) {
        return None;
    }
    checkpoint.objects.iter().max_by_key(|object| object.modified).cloned()
}

fn is_ckpt(name: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(_, extension)| extension == "ckpt")
}
