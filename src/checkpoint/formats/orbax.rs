//! `orbax`: folders named by a bare number, or by a prefix and a number, of Orbax' CheckpointManager.
//!
//! ```text
//! 1000/_CHECKPOINT_METADATA          JSON: commit_timestamp_nsecs is null until the commit
//! 1000/commit_success.txt            in newer releases; with renames it may arrive before the data
//! 1000/default/_METADATA, manifest.ocdbt, _sharding, d/…, ocdbt.process_<i>/…     one folder an item
//! 1000/meta/metadata                 an item of JSON
//! 1000/state/_METADATA, <name>/.zarray, <name>/0.0 …     an item without OCDBT: one folder an array
//! 1000.orbax-checkpoint-tmp/         staging; on a bucket a rename copies object by object
//! ```
//!
//! Earlier releases write no `_CHECKPOINT_METADATA`: a name without `.orbax-checkpoint-tmp` is then the
//! only sign of a commit. Which data files there have to be stands in manifests and nodes that are
//! compressed (zstd), and is not read. Facts: orbax-checkpoint 0.12.8.

use super::{Case, Checkpoint, Format, Judgement, ResumeWay, parts};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, Read, StoreError};
use crate::model::checkpoint::{Pin, Wholeness};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use std::collections::BTreeSet;

const METADATA: &str = "_CHECKPOINT_METADATA";
const SUCCESS: &str = "commit_success.txt";
const STAGING: &str = ".orbax-checkpoint-tmp";
const ITEM: &str = "_METADATA";
const MANIFEST: &str = "manifest.ocdbt";
const PROCESS: &str = "ocdbt.process_";
/// The file of an item of JSON.
const JSON_ITEM: &str = "metadata";
/// Magic and length, with which a manifest and a node begin.
const HEAD_BYTES: u64 = 12;
const MANIFEST_MAGIC: [u8; 4] = [0x0c, 0xdb, 0x3a, 0x2a];
const NODE_MAGIC: [u8; 4] = [0x0c, 0xdb, 0x20, 0xde];

/// Orbax' CheckpointManager.
#[derive(Debug)]
pub(super) struct Orbax;

#[derive(Deserialize)]
struct Metadata {
    commit_timestamp_nsecs: Option<u64>,
}

/// The items of a checkpoint: folders with something of Orbax in them.
fn items(checkpoint: &Checkpoint) -> BTreeSet<&str> {
    checkpoint.objects.iter().filter_map(|o| Some(o.key.split_once('/')?.0)).collect()
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    let torn = |why: String| Ok(Some(Judgement::torn(why)));
    if let Some(folder) = &case.root.folder {
        let staged = folder.folders.iter().find(|name| {
            name.strip_prefix(checkpoint.name.as_str())
                .is_some_and(|rest| rest.starts_with(STAGING))
        });
        if let Some(staged) = staged {
            return torn(format!("{staged} is still there: its rename is not done"));
        }
    }
    if writes_time(checkpoint) || case.siblings.iter().any(|sibling| writes_time(sibling)) {
        let metadata: Metadata = match parts::json(case, METADATA).await? {
            Ok(metadata) => metadata,
            Err(judgement) => return Ok(Some(judgement)),
        };
        if metadata.commit_timestamp_nsecs.is_none() {
            return torn(format!("{METADATA} has no time of a commit"));
        }
    }
    let items = items(checkpoint);
    if items.is_empty() {
        return torn("it has no items".to_owned());
    }
    for item in &items {
        if let Some(why) = lacks_part(checkpoint, item) {
            return torn(why);
        }
    }
    // Written for the whole and for each item, or (older releases) for neither.
    let mut marks = items.iter().map(|item| format!("{item}/{SUCCESS}")).collect::<Vec<_>>();
    marks.push(SUCCESS.to_owned());
    if marks.iter().any(|mark| checkpoint.has(mark)) {
        if let Some(missing) = marks.iter().find(|mark| !checkpoint.has(mark)) {
            return torn(format!("{missing} is missing"));
        }
        for mark in &marks {
            let text = match parts::text(case, mark).await? {
                Ok(text) => text,
                Err(judgement) => return Ok(Some(judgement)),
            };
            let of = mark.rsplit_once('/').map_or(checkpoint.name.as_str(), |(item, _)| item);
            if !names(&text, of) {
                return torn(format!("{mark} does not name {of}"));
            }
        }
    }
    for object in &checkpoint.objects {
        if let found @ Some(_) = settle_file(case, object).await? {
            return Ok(found);
        }
    }
    if let Some(kind) = parts::lacks(case, |key| Some(kind(key))) {
        return torn(format!("{kind} is missing, which others here have"));
    }
    let uncounted =
        items.iter().find(|item| !is_ocdbt(checkpoint, item) && has_arrays(checkpoint, item));
    Ok(uncounted.map(|item| {
        let why = format!("{item} is written without OCDBT: its parts cannot be counted");
        Judgement { wholeness: Wholeness::Unknown, why }
    }))
}

/// Whether it is of a release that writes the time of a commit: one that writes the other mark does.
fn writes_time(checkpoint: &Checkpoint) -> bool {
    checkpoint.has(METADATA) || checkpoint.has(SUCCESS)
}

/// Whether anything of an item is as OCDBT writes it.
fn is_ocdbt(checkpoint: &Checkpoint, item: &str) -> bool {
    let parts = [MANIFEST, "d/", "array_metadatas/"];
    parts.iter().any(|part| checkpoint.has(&format!("{item}/{part}")))
        || checkpoint.objects.iter().any(|o| o.key.starts_with(&format!("{item}/{PROCESS}")))
}

/// Whether an item holds arrays in files of their own, or all of them in one of msgpack.
fn has_arrays(checkpoint: &Checkpoint, item: &str) -> bool {
    checkpoint.objects.iter().any(|object| {
        let Some(rest) = object.key.strip_prefix(item).and_then(|r| r.strip_prefix('/')) else {
            return false;
        };
        rest == "checkpoint" || rest.ends_with("/.zarray") || rest.ends_with("/zarr.json")
    })
}

/// Whether there is something of Orbax in it.
pub(super) fn is_orbax(checkpoint: &Checkpoint) -> bool {
    checkpoint.has(METADATA)
        || checkpoint.has(SUCCESS)
        || checkpoint.objects.iter().any(|object| {
            let inner = object.key.split_once('/').map(|(_, name)| name);
            matches!(inner, Some(ITEM | MANIFEST))
        })
}

/// The first part of an item that is missing.
fn lacks_part(checkpoint: &Checkpoint, item: &str) -> Option<String> {
    if item.contains(STAGING) {
        return Some(format!("{item} is still being written"));
    }
    let key = |part: &str| format!("{item}/{part}");
    let has = |part: &str| checkpoint.has(&key(part));
    if !is_ocdbt(checkpoint, item) && (!has(ITEM) || has_arrays(checkpoint, item)) {
        // Items of plain JSON have no manifest, and neither have arrays in files of their own.
        return None;
    }
    let prefix = key(PROCESS);
    let processes: BTreeSet<&str> = checkpoint
        .objects
        .iter()
        .filter_map(|object| object.key.strip_prefix(&prefix)?.split('/').next())
        .collect();
    let mut wanted = vec![ITEM.to_owned(), MANIFEST.to_owned(), "d/".to_owned()];
    if !processes.is_empty() {
        wanted.push("_sharding".to_owned());
    }
    for process in processes {
        wanted.push(format!("ocdbt.process_{process}/{MANIFEST}"));
        wanted.push(format!("ocdbt.process_{process}/d/"));
        wanted.push(format!("array_metadatas/process_{process}"));
    }
    wanted.iter().find(|part| !has(part)).map(|part| format!("{} is missing", key(part)))
}

/// Whether the text of a commit ends with the name of what was committed, staged or not.
fn names(text: &str, name: &str) -> bool {
    let path = text.trim_end().trim_end_matches('/');
    path.rsplit('/').next().is_some_and(|last| {
        last.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(STAGING))
    })
}

/// What one file says of itself: JSON has an end, and what OCDBT writes begins with its length.
async fn settle_file(case: Case<'_>, object: &Object) -> Result<parts::Settled, StoreError> {
    let torn = |why: &str| Ok(Some(Judgement::torn(format!("{}: {why}", object.key))));
    let key = case.checkpoint.key(object);
    let name = object.key.rsplit('/').next().unwrap_or_default();
    if object.size == 0 {
        return torn("it is empty");
    }
    if matches!(name, ITEM | JSON_ITEM | "_sharding") || object.key.contains("/array_metadatas/") {
        return parts::json_file(case, &object.key, &key, object.size).await;
    }
    let manifest = name == MANIFEST;
    if !manifest && !object.key.contains("/d/") {
        return Ok(None);
    }
    let head = match case.objects.read(&key, 0..object.size.min(HEAD_BYTES)).await? {
        Read::Bytes(bytes) => bytes,
        Read::Changed => return torn("it changed while it was looked at"),
        Read::Refused(why) => {
            let why = format!("{}: may not be read ({why})", object.key);
            return Ok(Some(Judgement { wholeness: Wholeness::Unreadable, why }));
        }
    };
    let begins = |magic: &[u8; 4]| head.starts_with(magic) || magic.starts_with(&head);
    let length =
        head.get(4..12).map(|b| b.iter().rev().fold(0, |n: u64, &x| n << 8 | u64::from(x)));
    match length {
        _ if manifest && !begins(&MANIFEST_MAGIC) => torn("it is no manifest of OCDBT"),
        Some(length) if manifest && length != object.size => torn("it is cut"),
        // Values stand in a data file as they are; a node says how long it is.
        Some(length) if begins(&NODE_MAGIC) && length > object.size => torn("it is cut"),
        None if manifest || begins(&NODE_MAGIC) => torn("it is cut"),
        Some(_) | None => Ok(None),
    }
}

/// What is compared with siblings: data files have names of their own in each checkpoint.
fn kind(key: &str) -> String {
    match key.rsplit_once('/') {
        Some((folder, _)) if folder.ends_with("/d") => folder.to_owned(),
        Some(_) | None => key.to_owned(),
    }
}

impl Format for Orbax {
    fn word(&self) -> &'static str {
        "orbax"
    }

    fn shape(&self) -> NameShape {
        NameShape::Number
    }

    fn other_shapes(&self) -> Vec<NameShape> {
        vec![NameShape::Step, NameShape::CheckpointUnderscore]
    }

    fn reads(&self, shape: &NameShape) -> bool {
        self.shapes().contains(shape) || matches!(shape, NameShape::Prefixed(_))
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| is_orbax(checkpoint))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.names(name, Kind::Folder) && folder.object(METADATA).is_some()
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("committed, and each item has its manifest");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let way = ResumeWay {
            argument: "--restore_step {step}".into(),
            pin: Pin::Argument,
            note: Some("which argument reaches restore(step=…) is the script's own".into()),
        };
        async move { Ok(way) }.boxed()
    }
}
