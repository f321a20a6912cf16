//! Whether a folder of PyTorch's distributed checkpoint (DCP) is whole: its `.metadata` names every
//! shard and how far each is used, and that is how long the shard has to be.
//!
//! ```text
//! __<rank>_<n>.distcp    the shards, each rank for itself
//! .metadata              pickle; the coordinator writes `.metadata.tmp` after the last shard and
//!                        renames it
//! __<rank>.metadata      in its place where ranks save without telling each other: each names its own
//! ```
//!
//! What always holds: a shard that `.metadata` does not name harms nothing (an earlier, larger world
//! leaves some). A save into the same folder overwrites the shards first and `.metadata` last, so a
//! shard younger than `.metadata` belongs to a save that was cut, unless the whole root is a copy, whose
//! times say nothing.
//! Facts: torch 2.15.0, `Metadata` and `_StorageInfo` of `torch.distributed.checkpoint`.

use super::formats::Checkpoint;
use super::objects::{Object, Objects, Read, StoreError};
use super::pickle::{PICKLE_LIMIT_BYTES, PickleError, Plain, Seen, skim};
use crate::model::step_pattern::digits;
use futures_util::StreamExt;
use std::collections::BTreeMap;
use std::time::Duration;

/// The file that is written last.
pub(super) const METADATA: &str = ".metadata";
/// The field that says where each chunk is stored, and the class of what it says.
const STORAGE: &str = "storage_data";
const STORAGE_CLASS: &str = "_StorageInfo";
/// Metadata files of single ranks that are read at one time.
const READS_AT_ONCE: usize = 16;
/// The field that names what a chunk is of.
const NAME: &str = "fqn";
/// What a name of an optimizer's state has in it, in small letters: those of torch, of torchtitan,
/// of Megatron, and what scripts call theirs.
const OPTIMIZERS: [&str; 5] = ["optim", "opt.", "opt_", "exp_avg", "moment"];
/// By how much a shard may seem younger than `.metadata`: servers keep whole seconds.
const YOUNGER_SLACK: Duration = Duration::from_secs(5);

/// What was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shards {
    /// All are there in full; how many.
    Whole(usize),
    /// The same, and none of the names in it is of an optimizer.
    WholeWeights(usize),
    /// All that this many ranks name are there in full. How many ranks there were stands nowhere.
    OfRanks(u64),
    /// One is missing or short; or `.metadata` itself is not right.
    Torn(String),
    /// All are there in full, and one is younger than `.metadata`.
    Younger(String),
    /// `.metadata` may not be read, or is larger than is read.
    Unreadable(String),
}

/// Looks at the DCP folder `folder` of a checkpoint: empty for the checkpoint itself, else a path
/// within it that ends in `/`.
pub(super) async fn check(
    objects: &Objects,
    checkpoint: &Checkpoint,
    folder: &str,
) -> Result<Shards, StoreError> {
    let files = match metadata_of(checkpoint, folder) {
        Ok(files) => files,
        Err(missing) => return Ok(Shards::Torn(format!("{folder}{missing} is missing"))),
    };
    let wanted: Vec<(String, String, u64)> =
        files.iter().map(|file| (file.key.clone(), checkpoint.key(file), file.size)).collect();
    let mut reads = futures_util::stream::iter(wanted)
        .map(|(name, key, size)| async move { read_sizes(objects, &name, &key, size).await })
        .buffered(READS_AT_ONCE);
    let mut read = Vec::new();
    while let Some(sizes) = reads.next().await {
        match sizes? {
            Ok(sizes) => read.push(sizes),
            Err(shards) => return Ok(shards),
        }
    }
    Ok(compare_all(checkpoint, folder, &files, &read))
}

/// The metadata files of a DCP folder: one, or one a rank; else the name of one that is missing.
fn metadata_of(checkpoint: &Checkpoint, folder: &str) -> Result<Vec<Object>, String> {
    let is_metadata = |object: &&Object| object.key.strip_prefix(folder) == Some(METADATA);
    if let Some(metadata) = checkpoint.objects.iter().find(is_metadata) {
        return Ok(vec![metadata.clone()]);
    }
    let ranks = ranks_of(checkpoint, folder);
    if ranks.is_empty() {
        return Err(METADATA.to_owned());
    }
    // A shard whose rank has not named it yet.
    let names = checkpoint.objects.iter().filter_map(|object| object.key.strip_prefix(folder));
    let last = names.filter_map(shard_rank).max().map_or(0, |last| last.saturating_add(1));
    let count = last.max(ranks.len() as u64);
    match (0..count).take(ranks.len() + 1).find(|rank| !ranks.contains_key(rank)) {
        Some(rank) => Err(format!("__{rank}{METADATA}")),
        None => Ok(ranks.into_values().cloned().collect()),
    }
}

fn compare_all(checkpoint: &Checkpoint, folder: &str, files: &[Object], read: &[Named]) -> Shards {
    let listed: BTreeMap<&str, &Object> = checkpoint
        .objects
        .iter()
        .filter_map(|object| Some((object.key.strip_prefix(folder)?, object)))
        .collect();
    let mut shards = 0;
    for (named, metadata) in read.iter().zip(files) {
        match compare(folder, &named.sizes, &listed, metadata) {
            Shards::Whole(count) => shards += count,
            found @ (Shards::WholeWeights(_)
            | Shards::OfRanks(_)
            | Shards::Torn(_)
            | Shards::Younger(_)
            | Shards::Unreadable(_)) => return found,
        }
    }
    match files {
        [one] if metadata_rank(one.key.rsplit('/').next().unwrap_or_default()).is_none() => {
            let is_weights = read.iter().all(|named| named.optimizer == Some(false));
            if is_weights { Shards::WholeWeights(shards) } else { Shards::Whole(shards) }
        }
        ranks => Shards::OfRanks(ranks.len() as u64),
    }
}

/// The metadata of single ranks in a folder of a checkpoint.
pub(super) fn ranks_of<'a>(checkpoint: &'a Checkpoint, folder: &str) -> BTreeMap<u64, &'a Object> {
    let of = |object: &'a Object| Some((metadata_rank(object.key.strip_prefix(folder)?)?, object));
    checkpoint.objects.iter().filter_map(of).collect()
}

/// The rank of `__3.metadata`.
pub(super) fn metadata_rank(name: &str) -> Option<u64> {
    digits(name.strip_prefix("__")?.strip_suffix(METADATA)?)
}

/// The rank of `__3_0.distcp`.
fn shard_rank(name: &str) -> Option<u64> {
    digits(name.strip_prefix("__")?.strip_suffix(".distcp")?.split_once('_')?.0)
}

/// What a metadata file names.
#[derive(Debug)]
struct Named {
    /// The shards, and how many bytes of each are used.
    sizes: BTreeMap<String, u64>,
    /// Whether a chunk is of an optimizer; `None` where no chunk has a name.
    optimizer: Option<bool>,
}

/// How many bytes of each shard a metadata file says are used; or what is wrong with the file.
async fn read_sizes(
    objects: &Objects,
    name: &str,
    key: &str,
    size: u64,
) -> Result<Result<Named, Shards>, StoreError> {
    let torn = |why: &str| Ok(Err(Shards::Torn(format!("{name}: {why}"))));
    let unreadable = |why: &str| Ok(Err(Shards::Unreadable(format!("{name}: {why}"))));
    if size == 0 {
        return torn("it is empty");
    }
    if size > PICKLE_LIMIT_BYTES {
        return unreadable(&format!("{size} bytes, larger than is read"));
    }
    let bytes = match objects.read(key, 0..size).await? {
        Read::Bytes(bytes) => bytes,
        Read::Changed => return torn("it changed while it was looked at"),
        Read::Refused(why) => return unreadable(&why),
    };
    let (sizes, optimizer) = match sizes(&bytes) {
        Ok(found) => found,
        Err(error @ (PickleError::Cut | PickleError::Malformed { .. })) => {
            return torn(&error.to_string());
        }
        // It may well be whole: nobody can say.
        Err(error @ PickleError::TooMuch) => return unreadable(&error.to_string()),
    };
    let Some(sizes) = sizes else { return torn("it is no DCP metadata") };
    if sizes.is_empty() {
        return torn("it names no shard");
    }
    let sizes = sizes.into_iter().map(|(name, used)| (name.to_owned(), used)).collect();
    Ok(Ok(Named { sizes, optimizer }))
}

fn compare(
    folder: &str,
    sizes: &BTreeMap<String, u64>,
    listed: &BTreeMap<&str, &Object>,
    metadata: &Object,
) -> Shards {
    let mut younger = None;
    for (name, used) in sizes {
        let Some(shard) = listed.get(name.as_str()) else {
            return Shards::Torn(format!("{folder}{name} is missing"));
        };
        if shard.size != *used {
            let (is, says) = (shard.size, METADATA);
            return Shards::Torn(format!("{folder}{name}: {is} bytes, {says} says {used}"));
        }
        if is_younger(shard, metadata) {
            younger.get_or_insert(name);
        }
    }
    match younger {
        Some(name) => Shards::Younger(format!(
            "{folder}{name} is younger than {METADATA}: it was overwritten by a save that was cut"
        )),
        None => Shards::Whole(sizes.len()),
    }
}

fn is_younger(shard: &Object, metadata: &Object) -> bool {
    shard.modified.since(metadata.modified) > YOUNGER_SLACK
}

/// Whether a listing shows a shard that is younger than the `.metadata` beside it.
pub(super) fn has_younger(checkpoint: &Checkpoint) -> bool {
    let folder = |object: &Object| object.key.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    let is_metadata = |o: &&Object| o.key.rsplit('/').next() == Some(METADATA);
    checkpoint.objects.iter().filter(is_metadata).any(|metadata| {
        checkpoint.objects.iter().any(|object| {
            object.key.rsplit_once('.').is_some_and(|(_, extension)| extension == "distcp")
                && folder(object) == folder(metadata)
                && is_younger(object, metadata)
        })
    })
}

/// How many bytes of each shard are used.
type Sizes<'a> = BTreeMap<&'a str, u64>;

/// How many bytes of each shard are used, `None` if the pickle is something else; and whether a chunk
/// is of an optimizer. A large model has some hundred thousand entries: none of them is kept.
fn sizes(bytes: &[u8]) -> Result<(Option<Sizes<'_>>, Option<bool>), PickleError> {
    let mut sizes = Sizes::new();
    let (mut made, mut filled, mut has_storage) = (0_u64, 0_u64, false);
    let mut optimizer = None;
    skim(bytes, |seen| match seen {
        Seen::Made(class) => made += u64::from(class == STORAGE_CLASS),
        Seen::Entries(entries) => {
            has_storage |= entries.iter().any(|(key, _)| *key == Plain::Text(STORAGE));
            if let Some((path, end)) = used(entries) {
                filled += 1;
                let used = sizes.entry(path).or_default();
                *used = end.max(*used);
            }
            for (key, name) in entries {
                if let (Plain::Text(NAME), Plain::Text(name)) = (key, name) {
                    optimizer = Some(optimizer == Some(true) || is_optimizers(name));
                }
            }
        }
    })?;
    Ok(((has_storage && made == filled).then_some(sizes), optimizer))
}

fn is_optimizers(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OPTIMIZERS.iter().any(|word| name.contains(word))
}

/// Path and end of one stored chunk, by the fields of its `_StorageInfo`.
fn used<'a>(entries: &[(Plain<'a>, Plain<'a>)]) -> Option<(&'a str, u64)> {
    let field = |name: &str| entries.iter().rev().find(|(key, _)| *key == Plain::Text(name));
    let number = |name: &str| match field(name)?.1 {
        Plain::Int(number) => u64::try_from(number).ok(),
        Plain::Text(_) | Plain::Other => None,
    };
    let Plain::Text(path) = field("relative_path")?.1 else { return None };
    Some((path, number("offset")?.checked_add(number("length")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::WallTime;

    fn object(key: &str, size: u64, modified_s: i64) -> Object {
        Object { key: key.to_owned(), size, modified: WallTime(modified_s * 1_000) }
    }

    fn compared(objects: &[Object]) -> Shards {
        let sizes = [("__0_0.distcp", 10), ("__1_0.distcp", 20)];
        let sizes = sizes.map(|(name, used)| (name.to_owned(), used)).into();
        let listed = objects.iter().map(|object| (object.key.as_str(), object)).collect();
        compare("", &sizes, &listed, &object(METADATA, 5, 100))
    }

    /// Metadata of `count` chunks in two shards, as Python writes them.
    fn metadata(count: u32) -> Vec<u8> {
        let mut bytes = b"\x80\x04}\x94\x8c\x0cstorage_data\x94}\x94".to_vec();
        for at in 0..count {
            bytes.push(b'(');
            // The key: an index of a name and an offset.
            bytes.extend(b"\x8c\x01m\x94\x8c\x0dMetadataIndex\x94\x93\x94)\x81\x94}\x94(\x8c\x03fqn\x94\x8c\x20");
            bytes.extend(format!("layers.{at:025}").bytes());
            bytes.extend(b"\x94\x8c\x06offset\x94K\x00K\x00\x86\x94ub");
            bytes.extend(b"\x8c\x01m\x8c\x0c_StorageInfo\x93)\x81\x94}\x94(\x8c\x0drelative_path");
            bytes.extend(b"\x8c\x0c");
            bytes.extend(format!("__{}_0.distcp", at % 2).bytes());
            bytes.extend(b"\x8c\x06offsetJ");
            bytes.extend((at * 8).to_le_bytes());
            bytes.extend(b"\x8c\x06lengthK\x08ub");
            bytes.push(b'u');
        }
        bytes.extend(b"s.");
        bytes
    }

    #[test]
    fn the_chunks_of_a_large_model_are_read_in_full() {
        for count in [2_u32, 120_000] {
            let bytes = metadata(count);
            assert!(bytes.len() as u64 <= PICKLE_LIMIT_BYTES, "{}", bytes.len());
            let (sizes, optimizer) = sizes(&bytes).expect("a pickle");
            let sizes = sizes.expect("metadata");
            assert_eq!(optimizer, Some(false), "its names are those of layers");
            let last = u64::from(count) * 8;
            let wanted = [("__0_0.distcp", last - 8), ("__1_0.distcp", last)];
            assert_eq!(sizes, BTreeMap::from(wanted), "{count}");
        }
        // One whose fields are not what they were is not passed over.
        let text = metadata(2);
        let at = text.windows(6).rposition(|window| window == b"length").expect("the field");
        let mut other = text.clone();
        other[at] = b'L';
        assert_eq!(sizes(&other).map(|found| found.0), Ok(None));
        assert_eq!(sizes(b"}."), Ok((None, None)));
    }

    #[test]
    fn each_named_shard_has_to_be_there_in_full_and_no_younger() {
        let (first, second) = (object("__0_0.distcp", 10, 90), object("__1_0.distcp", 20, 99));
        let extra = object("__7_0.distcp", 3, 900);
        assert_eq!(compared(&[first.clone(), second.clone(), extra]), Shards::Whole(2));
        for (objects, word) in [
            (vec![first.clone()], "missing"),
            (vec![first.clone(), object("__1_0.distcp", 19, 99)], "19 bytes"),
            (vec![first.clone(), object("__1_0.distcp", 21, 99)], "21 bytes"),
            (vec![first, object("__1_0.distcp", 20, 106)], "younger"),
        ] {
            let (Shards::Torn(why) | Shards::Younger(why)) = compared(&objects) else {
                panic!("{objects:?}")
            };
            assert!(why.contains(word) && why.contains("__1_0"), "{why}");
        }
        let (first, late) = (object("__0_0.distcp", 10, 90), object("__1_0.distcp", 20, 104));
        assert_eq!(compared(&[first, late]), Shards::Whole(2), "whole seconds may differ a little");
    }
}
