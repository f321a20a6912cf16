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
use super::pickle::{Gather, PickleError, Plain, Seen, Skim, Wish};
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
/// Bytes of the largest metadata that is read: that of some million chunks.
const METADATA_LIMIT_BYTES: u64 = 512 * 1024 * 1024;
/// Bytes of each piece in which it is read.
const PIECE_BYTES: u64 = 1024 * 1024;
/// The fields of such a thing.
const PATH: &str = "relative_path";
const OFFSET: &str = "offset";
const LENGTH: &str = "length";
/// The field that names what a chunk is of.
const NAME: &str = "fqn";
/// What is kept of a pickle's texts: these, and the names of shards.
const WORDS: [&str; 6] = [STORAGE, STORAGE_CLASS, PATH, OFFSET, LENGTH, NAME];
/// How torch begins and ends the name of a shard.
const SHARD: (&str, &str) = ("__", ".distcp");
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
    // Each reader of a long one takes much room.
    let is_long = files.iter().any(|file| file.size > PIECE_BYTES);
    let mut reads = futures_util::stream::iter(wanted)
        .map(|(name, key, size)| async move { read_sizes(objects, &name, &key, size).await })
        .buffered(if is_long { 1 } else { READS_AT_ONCE });
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
    if size > METADATA_LIMIT_BYTES {
        return unreadable(&format!("{size} bytes, larger than is read"));
    }
    let mut skim = Skim::new(Metadata::default());
    let mut begin = 0;
    let mut read = Ok(());
    while begin < size && read.is_ok() {
        let end = size.min(begin + PIECE_BYTES);
        match objects.read(key, begin..end).await? {
            Read::Bytes(bytes) => read = skim.take(&bytes),
            Read::Changed => return torn("it changed while it was looked at"),
            Read::Refused(why) => return unreadable(&why),
        }
        begin = end;
    }
    match read.and_then(|()| skim.end()?.named()) {
        Ok(Some(named)) if named.sizes.is_empty() => torn("it names no shard"),
        Ok(Some(named)) => Ok(Ok(named)),
        Ok(None) => torn("it is no DCP metadata"),
        Err(error @ (PickleError::Cut | PickleError::Malformed { .. })) => torn(&error.to_string()),
        // It may well be whole: nobody can say.
        Err(error @ (PickleError::TooMuch | PickleError::Unknown { .. })) => {
            unreadable(&error.to_string())
        }
    }
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

/// What is gathered from metadata. A large model has some million entries: none of them is kept.
#[derive(Debug, Default)]
struct Metadata {
    /// How many bytes of each shard are used.
    sizes: BTreeMap<String, u64>,
    /// Stored chunks: objects made, and of these such whose fields were read.
    made: u64,
    filled: u64,
    has_storage: bool,
    /// Whether a chunk is of a shard whose name was not kept.
    has_odd_name: bool,
    optimizer: Option<bool>,
}

impl Gather for Metadata {
    fn wish(&mut self, text: &str) -> Wish {
        let is_shard = text.starts_with(SHARD.0) || text.ends_with(SHARD.1);
        if is_shard || WORDS.contains(&text) {
            Wish::Keep
        } else if self.optimizer != Some(true) && is_optimizers(text) {
            Wish::Flag
        } else {
            Wish::Pass
        }
    }

    fn see(&mut self, seen: Seen<'_>) {
        let entries = match seen {
            Seen::Made(class) => {
                self.made += u64::from(class == STORAGE_CLASS);
                return;
            }
            Seen::Entries(entries) => entries,
        };
        match used(entries) {
            Used::Of(path, end) => {
                self.filled += 1;
                match self.sizes.get_mut(path) {
                    Some(used) => *used = end.max(*used),
                    None => drop(self.sizes.insert(path.to_owned(), end)),
                }
            }
            Used::OddName => self.has_odd_name = true,
            Used::Nothing => {}
        }
        for (key, value) in entries {
            match (key, value) {
                (Plain::Text(STORAGE), _) => self.has_storage = true,
                (Plain::Text(NAME), Plain::AskedFor) => self.optimizer = Some(true),
                (Plain::Text(NAME), Plain::Passed | Plain::Text(_)) => {
                    self.optimizer.get_or_insert(false);
                }
                (_, _) => {}
            }
        }
    }
}

impl Metadata {
    /// What it names, once it was read; `None` if it is something else.
    fn named(self) -> Result<Option<Named>, PickleError> {
        if self.has_odd_name {
            return Err(PickleError::TooMuch);
        }
        let is_metadata = self.has_storage && self.made == self.filled;
        let named = Named { sizes: self.sizes, optimizer: self.optimizer };
        Ok(is_metadata.then_some(named))
    }
}

fn is_optimizers(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    OPTIMIZERS.iter().any(|word| name.contains(word))
}

/// What a group of entries says of a stored chunk.
enum Used<'a> {
    /// Path and end.
    Of(&'a str, u64),
    /// It is in a shard of a name that was not kept.
    OddName,
    /// It is something else.
    Nothing,
}

/// A stored chunk, by the fields of its `_StorageInfo`.
fn used<'a>(entries: &[(Plain<'a>, Plain<'a>)]) -> Used<'a> {
    let field = |name: &str| {
        let found = entries.iter().rev().find(|(key, _)| *key == Plain::Text(name));
        found.map(|(_, value)| *value)
    };
    let number = |name: &str| match field(name)? {
        Plain::Int(number) => u64::try_from(number).ok(),
        Plain::Text(_) | Plain::AskedFor | Plain::Passed | Plain::Other => None,
    };
    let end = || number(OFFSET)?.checked_add(number(LENGTH)?);
    match (field(PATH), end()) {
        (Some(Plain::Text(path)), Some(end)) => Used::Of(path, end),
        (Some(Plain::AskedFor | Plain::Passed | Plain::Other), Some(_)) => Used::OddName,
        (_, _) => Used::Nothing,
    }
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

    fn gathered(bytes: &[u8], piece: usize) -> Result<Option<Named>, PickleError> {
        let mut skim = Skim::new(Metadata::default());
        for piece in bytes.chunks(piece) {
            skim.take(piece)?;
        }
        skim.end()?.named()
    }

    #[test]
    fn the_chunks_of_a_large_model_are_read_in_full() {
        for (count, piece) in [(2_u32, 1), (2, 7), (2, 1_000_000), (200_000, 1_000_000)] {
            let named = gathered(&metadata(count), piece).expect("a pickle").expect("metadata");
            assert_eq!(named.optimizer, Some(false), "its names are those of layers");
            let last = u64::from(count) * 8;
            let wanted = [("__0_0.distcp", last - 8), ("__1_0.distcp", last)];
            let wanted = wanted.map(|(name, used)| (name.to_owned(), used));
            assert_eq!(named.sizes, BTreeMap::from(wanted), "{count}");
        }
        // One whose fields are not what they were is not passed over.
        let text = metadata(2);
        let at = text.windows(6).rposition(|window| window == b"length").expect("the field");
        let mut other = text.clone();
        other[at] = b'L';
        assert!(matches!(gathered(&other, 100), Ok(None)));
        assert!(matches!(gathered(b"}.", 100), Ok(None)));
        // A later Python's opcode: nobody can say whether it is whole.
        let mut later = text;
        later[2] = 0xa7;
        let told = gathered(&later, 100).map(drop);
        assert_eq!(told, Err(PickleError::Unknown { at: 2, opcode: 0xa7 }));
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
