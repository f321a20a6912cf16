//! Whether a folder of PyTorch's distributed checkpoint (DCP) is whole: its `.metadata` names every
//! shard and how far each is used, and that is how long the shard has to be.
//!
//! ```text
//! __<rank>_<n>.distcp    the shards, each rank for itself
//! .metadata              pickle; the coordinator writes `.metadata.tmp` after the last shard and
//!                        renames it
//! ```
//!
//! What always holds: a shard that `.metadata` does not name harms nothing (an earlier, larger world
//! leaves some). A save into the same folder overwrites the shards first and `.metadata` last, so a
//! shard younger than `.metadata` belongs to a save that was cut, unless the whole root is a copy, whose
//! times say nothing.
//! Facts: torch 2.15.0, `Metadata` and `_StorageInfo` of `torch.distributed.checkpoint`.

use super::formats::Checkpoint;
use super::objects::{Object, Objects, Read, StoreError};
use super::pickle::{PICKLE_LIMIT_BYTES, Pickle, PickleError, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The file that is written last.
pub(super) const METADATA: &str = ".metadata";
/// By how much a shard may seem younger than `.metadata`: servers keep whole seconds.
const YOUNGER_SLACK: Duration = Duration::from_secs(5);

/// What was found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shards {
    /// All are there in full; how many.
    Whole(usize),
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
    let listed: BTreeMap<&str, &Object> = checkpoint
        .objects
        .iter()
        .filter_map(|object| Some((object.key.strip_prefix(folder)?, object)))
        .collect();
    let Some(metadata) = listed.get(METADATA) else {
        return Ok(Shards::Torn(format!("{folder}{METADATA} is missing")));
    };
    let torn = |why: &str| Ok(Shards::Torn(format!("{folder}{METADATA}: {why}")));
    if metadata.size == 0 {
        return torn("it is empty");
    }
    if metadata.size > PICKLE_LIMIT_BYTES {
        let why = format!("{folder}{METADATA}: {} bytes, larger than is read", metadata.size);
        return Ok(Shards::Unreadable(why));
    }
    let bytes = match objects.read(&checkpoint.key(metadata), 0..metadata.size).await? {
        Read::Bytes(bytes) => bytes,
        Read::Changed => return torn("it changed while it was looked at"),
        Read::Refused(why) => return Ok(Shards::Unreadable(format!("{folder}{METADATA}: {why}"))),
    };
    let sizes = match Pickle::read(&bytes) {
        Ok(pickle) => sizes(&pickle),
        Err(error @ (PickleError::Cut | PickleError::Malformed { .. })) => {
            return torn(&error.to_string());
        }
        // It may well be whole: nobody can say.
        Err(error @ PickleError::TooMuch) => {
            return Ok(Shards::Unreadable(format!("{folder}{METADATA}: {error}")));
        }
    };
    let Some(sizes) = sizes else { return torn("it is no DCP metadata") };
    if sizes.is_empty() {
        return torn("it names no shard");
    }
    Ok(compare(folder, &sizes, &listed, metadata))
}

fn compare(
    folder: &str,
    sizes: &BTreeMap<&str, u64>,
    listed: &BTreeMap<&str, &Object>,
    metadata: &Object,
) -> Shards {
    let mut younger = None;
    for (name, used) in sizes {
        let Some(shard) = listed.get(name) else {
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

/// How many bytes of each shard are used; `None` if the pickle is something else.
fn sizes<'a>(pickle: &Pickle<'a>) -> Option<BTreeMap<&'a str, u64>> {
    let entries = pickle.entries(pickle.field(pickle.root(), "storage_data")?)?;
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, info) in entries {
        let info = pickle.get(*info);
        let number = |name| {
            let Some(Value::Int(number)) = pickle.field(info, name) else { return None };
            u64::try_from(*number).ok()
        };
        let Some(Value::Text(path)) = pickle.field(info, "relative_path") else { return None };
        let end = number("offset")?.checked_add(number("length")?)?;
        let used = sizes.entry(path).or_default();
        *used = end.max(*used);
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::WallTime;

    fn object(key: &str, size: u64, modified_s: i64) -> Object {
        Object { key: key.to_owned(), size, modified: WallTime(modified_s * 1_000) }
    }

    fn compared(objects: &[Object]) -> Shards {
        let sizes = BTreeMap::from([("__0_0.distcp", 10), ("__1_0.distcp", 20)]);
        let listed = objects.iter().map(|object| (object.key.as_str(), object)).collect();
        compare("", &sizes, &listed, &object(METADATA, 5, 100))
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
