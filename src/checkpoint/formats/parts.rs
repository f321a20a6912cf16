//! What several formats ask of a checkpoint's files: small texts, index files, whole files.
//!
//! Each question answers with the judgement that it settles, or with nothing: the first one that
//! finds something wrong decides.

use super::{Case, Checkpoint, Judgement, Pickles, shown};
use crate::checkpoint::dcp::{self, Shards};
use crate::checkpoint::objects::{Object, Read, StoreError, join};
use crate::checkpoint::python_json::{self, NumberSkim};
use crate::checkpoint::safetensors::{self, TensorFile};
use crate::checkpoint::torch_zip::{self, TorchFile};
use crate::model::checkpoint::Wholeness;
use futures_util::StreamExt;
use std::collections::BTreeSet;

/// Reads of one checkpoint's files that are on their way at one time.
const READS_AT_ONCE: usize = 16;
/// Bytes of an index, a state or a marker that is read whole.
const TEXT_LIMIT_BYTES: u64 = 16 * 1024 * 1024;

/// Bytes of a state of which one number is asked, and of each piece in which it is read.
const STATE_LIMIT_BYTES: u64 = 512 * 1024 * 1024;
const STATE_PIECE_BYTES: u64 = 1024 * 1024;

/// Bytes of a JSON file that is read whole to see whether it is one.
const JSON_LIMIT_BYTES: u64 = 256 * 1024;
/// Bytes of the end of a larger one.
const JSON_TAIL_BYTES: u64 = 64;

/// What was settled, if anything.
pub(super) type Settled = Option<Judgement>;

impl Checkpoint {
    /// Its object of that key.
    pub(super) fn object(&self, key: &str) -> Option<&Object> {
        self.objects.iter().find(|object| object.key == key)
    }

    /// Whether it has an object of that key, or below it if it ends in `/`.
    pub(super) fn has(&self, key: &str) -> bool {
        self.objects.iter().any(|object| {
            if key.ends_with('/') { object.key.starts_with(key) } else { object.key == key }
        })
    }

    /// Its objects that lie directly in `folder` (empty, or ending in `/`), with their names.
    pub(super) fn directly_in<'a>(
        &'a self,
        folder: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Object)> {
        self.objects.iter().filter_map(move |object| {
            let name = object.key.strip_prefix(folder)?;
            (!name.is_empty() && !name.contains('/')).then_some((name, object))
        })
    }
}

fn unreadable(name: &str, why: &str) -> Judgement {
    Judgement::unreadable(format!("{name}: may not be read ({why})"))
}

/// A small text of the checkpoint; what speaks against it where it cannot be had.
pub(super) async fn text(
    case: Case<'_>,
    key: &str,
) -> Result<Result<String, Judgement>, StoreError> {
    let Some(object) = case.checkpoint.object(key) else {
        return Ok(Err(Judgement::torn(format!("{key} is missing"))));
    };
    if object.size == 0 {
        return Ok(Err(Judgement::torn(format!("{key} is empty"))));
    }
    if object.size > TEXT_LIMIT_BYTES {
        return Ok(Err(unreadable(key, "it is larger than is read")));
    }
    Ok(match case.objects.read(&case.checkpoint.key(object), 0..object.size).await? {
        Read::Bytes(bytes) => {
            String::from_utf8(bytes).map_err(|_| Judgement::torn(format!("{key} is no text")))
        }
        Read::Changed => Err(Judgement::torn(format!("{key} changed while it was looked at"))),
        Read::Refused(why) => Err(unreadable(key, &why)),
    })
}

/// A small JSON object of the checkpoint.
pub(super) async fn json<T: serde::de::DeserializeOwned>(
    case: Case<'_>,
    key: &str,
) -> Result<Result<T, Judgement>, StoreError> {
    Ok(text(case, key).await?.and_then(|text| {
        serde_json::from_slice(&python_json::plain(text.as_bytes())).map_err(|error| {
            let what = if error.is_eof() { "is cut" } else { "is not the JSON expected" };
            Judgement::torn(format!("{key} {what}"))
        })
    }))
}

/// One whole number of a JSON object that may be long: a trainer's state has all that was ever logged.
pub(super) async fn number(
    case: Case<'_>,
    key: &str,
    name: &str,
) -> Result<Result<u64, Judgement>, StoreError> {
    let object = match case.checkpoint.object(key) {
        // Its tree would take many times the room.
        Some(object) if object.size > JSON_LIMIT_BYTES => object,
        Some(_) | None => {
            let read = json::<serde_json::Map<String, serde_json::Value>>(case, key).await?;
            return Ok(read.and_then(|state| {
                let number = state.get(name).and_then(serde_json::Value::as_u64);
                number.ok_or_else(|| Judgement::torn(format!("{key} is not the JSON expected")))
            }));
        }
    };
    if object.size > STATE_LIMIT_BYTES {
        return Ok(Err(unreadable(key, "it is larger than is read")));
    }
    let mut skim = NumberSkim::new(name);
    let mut begin = 0;
    while begin < object.size {
        let end = object.size.min(begin + STATE_PIECE_BYTES);
        match case.objects.read(&case.checkpoint.key(object), begin..end).await? {
            Read::Bytes(bytes) => skim.take(&bytes),
            Read::Changed => {
                let why = format!("{key} changed while it was looked at");
                return Ok(Err(Judgement::torn(why)));
            }
            Read::Refused(why) => return Ok(Err(unreadable(key, &why))),
        }
        begin = end;
    }
    Ok(match skim.end() {
        Ok(Some(number)) => Ok(number),
        Ok(None) => Err(Judgement::torn(format!("{key} is not the JSON expected"))),
        Err(python_json::Cut) => Err(Judgement::torn(format!("{key} is cut"))),
    })
}

#[derive(serde::Deserialize)]
struct Index {
    weight_map: Values,
}

/// The different values of a map of texts: an index names each of some hundred thousand tensors, and
/// few files.
struct Values(BTreeSet<String>);

impl<'de> serde::Deserialize<'de> for Values {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ValuesVisitor)
    }
}

struct ValuesVisitor;

impl<'de> serde::de::Visitor<'de> for ValuesVisitor {
    type Value = Values;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("names of tensors, and the file of each")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Values, A::Error> {
        let mut values = BTreeSet::new();
        while let Some((serde::de::IgnoredAny, file)) = map.next_entry::<_, String>()? {
            values.insert(file);
        }
        Ok(Values(values))
    }
}

/// Whether every file that an index names is there. `key` is the index.
pub(super) async fn index(case: Case<'_>, key: &str) -> Result<Settled, StoreError> {
    let names = match json::<Index>(case, key).await? {
        Ok(index) => index.weight_map.0,
        Err(judgement) => return Ok(Some(judgement)),
    };
    let folder = key.rfind('/').map_or("", |at| &key[..=at]);
    if names.is_empty() {
        return Ok(Some(Judgement::torn(format!("{key} names no file"))));
    }
    let missing = names.into_iter().find(|name| !case.checkpoint.has(&format!("{folder}{name}")));
    Ok(missing
        .map(|name| Judgement::torn(format!("{folder}{name}, which {key} names, is missing"))))
}

/// Every index in a folder, and no numbered part without one: `…-00001-of-00003.…`.
pub(super) async fn indexes(case: Case<'_>, folder: &str) -> Result<Settled, StoreError> {
    let names: Vec<&str> = case.checkpoint.directly_in(folder).map(|(name, _)| name).collect();
    for name in &names {
        if name.ends_with(".index.json")
            && let found @ Some(_) = index(case, &format!("{folder}{name}")).await?
        {
            return Ok(found);
        }
    }
    for name in &names {
        let Some((stem, extension)) = part_of(name) else { continue };
        let index = format!("{stem}.{extension}.index.json");
        if !names.contains(&index.as_str()) {
            return Ok(Some(Judgement::torn(format!("{folder}{index} is missing"))));
        }
    }
    Ok(None)
}

/// Stem and extension of a numbered part, `model-00001-of-00003.safetensors`.
fn part_of(name: &str) -> Option<(&str, &str)> {
    let (rest, extension) = name.rsplit_once('.')?;
    let (rest, of) = rest.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(of) && is_number(number)).then_some((stem, extension))
}

/// Where dlrover keeps what it has not committed: `<step>.done/<rank>`, or `<step>/` with the shards.
const DLROVER_STAGE: &str = "._dlrover_ckpt_stage";

/// Whether dlrover's save of this step is still going on, or was cut.
pub(super) async fn dlrover_stage(case: Case<'_>) -> Result<Settled, StoreError> {
    let (Some(root), Some(position)) = (&case.root.folder, case.checkpoint.position) else {
        return Ok(None);
    };
    if !root.folders.iter().any(|name| name == DLROVER_STAGE) {
        return Ok(None);
    }
    let stage = case.objects.folder(&join(&case.root.path, DLROVER_STAGE)).await?;
    let step = position.step.to_string();
    let left = stage.folders.iter().find(|name| name.strip_suffix(".done").unwrap_or(name) == step);
    Ok(left.map(|name| Judgement::torn(format!("{DLROVER_STAGE}/{name} is left: not committed"))))
}

/// What it means that the parts of so many ranks are there in full, where nothing says how many ranks
/// there were: only the job's own number, or the checkpoint before it, can tell.
fn of_ranks(case: Case<'_>, folder: &str, ranks: u64) -> Settled {
    let count = |sibling: &Checkpoint| dcp::ranks_of(sibling, folder).len() as u64;
    let older = case.siblings.iter().filter(|sibling| case.is_older(sibling));
    let before = older.max_by_key(|sibling| sibling.position).map(|sibling| count(sibling));
    let any = || case.siblings.iter().map(|sibling| count(sibling)).min();
    match (case.ranks.map(u64::from), before.or_else(any)) {
        (Some(wanted), _) if ranks < wanted => {
            Some(Judgement::torn(format!("the metadata of {ranks} ranks of {wanted}")))
        }
        (Some(_), _) => None,
        (None, Some(others)) if others > 0 && ranks >= others => None,
        (None, Some(_) | None) => {
            let why = format!(
                "the metadata of {ranks} ranks, each whole; nothing says how many there were: set \
                 `ranks` in [checkpoint]"
            );
            Some(Judgement { wholeness: Wholeness::Unknown, why })
        }
    }
}

/// Whether a DCP folder within the checkpoint (empty, or ending in `/`) is whole.
pub(super) async fn dcp(case: Case<'_>, folder: &str) -> Result<Settled, StoreError> {
    let shards = dcp::check(case.objects, case.checkpoint, folder).await?;
    Ok(if matches!(shards, Shards::WholeWeights(_)) {
        None
    } else {
        of_shards(case, folder, shards)
    })
}

/// The same of a folder that has to hold an optimizer as well.
pub(super) async fn dcp_with_optimizer(
    case: Case<'_>,
    folder: &str,
) -> Result<Settled, StoreError> {
    Ok(of_shards(case, folder, dcp::check(case.objects, case.checkpoint, folder).await?))
}

fn of_shards(case: Case<'_>, folder: &str, shards: Shards) -> Settled {
    match shards {
        Shards::Whole(_) => None,
        Shards::WholeWeights(count) => {
            let names = dcp::METADATA;
            let why = format!("{count} shards, and {folder}{names} names nothing of an optimizer");
            Some(Judgement::weights_only(why))
        }
        Shards::OfRanks(ranks) => of_ranks(case, folder, ranks),
        Shards::Torn(why) => Some(Judgement::torn(why)),
        // A save that was cut leaves one such checkpoint, a copy of the whole root leaves several.
        Shards::Younger(_) if case.siblings.iter().any(|sibling| dcp::has_younger(sibling)) => None,
        Shards::Younger(why) => Some(Judgement::torn(why)),
        Shards::Unreadable(why) => Some(Judgement::unreadable(why)),
    }
}

/// What a file's name says of how it can be tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tensors,
    Torch,
    /// torch.save or a pickle of the script's own.
    Pickle,
    Json,
    Other,
}

fn kind(name: &str) -> Kind {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("safetensors") => Kind::Tensors,
        Some("pt" | "pth" | "bin" | "ckpt") => Kind::Torch,
        Some("pkl") => Kind::Pickle,
        Some("json") => Kind::Json,
        Some(_) | None => Kind::Other,
    }
}

/// Looks at the end of each file of `torch.save`, the header of each of safetensors, the text of each
/// of JSON; other files only must not be empty. The first one that is not whole decides.
pub(super) async fn files(
    case: Case<'_>,
    files: &[&Object],
    pickles: Pickles,
) -> Result<Settled, StoreError> {
    let checkpoint = case.checkpoint;
    // Listed sizes alone show the emptied ones: no read is needed.
    if let Some(empty) = files.iter().find(|object| object.size == 0) {
        return Ok(Some(Judgement::torn(format!("{} is empty", shown(checkpoint, empty)))));
    }
    let wanted: Vec<(String, String, u64)> = files
        .iter()
        .map(|file| (shown(checkpoint, file).to_owned(), checkpoint.key(file), file.size))
        .collect();
    let mut checks = futures_util::stream::iter(wanted)
        .map(|(name, key, size)| async move {
            match kind(&name) {
                Kind::Tensors => safetensors::check(case.objects, &key, size)
                    .await
                    .map(|file| tensor_file(&name, file)),
                Kind::Torch => torch_zip::check(case.objects, &key, size)
                    .await
                    .map(|file| torch_file(&name, file, pickles)),
                Kind::Pickle => torch_zip::check(case.objects, &key, size)
                    .await
                    .map(|file| torch_file(&name, file, Pickles::Accepted)),
                Kind::Json => json_file(case, &name, &key, size).await,
                Kind::Other => Ok(None),
            }
        })
        .buffered(READS_AT_ONCE);
    while let Some(settled) = checks.next().await {
        if let found @ Some(_) = settled? {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Looks at the end of a file of `torch.save` whose name does not say that it is one.
pub(super) async fn torch(case: Case<'_>, object: &Object) -> Result<Settled, StoreError> {
    let file = torch_zip::check(case.objects, &case.checkpoint.key(object), object.size).await?;
    Ok(torch_file(shown(case.checkpoint, object), file, Pickles::Accepted))
}

/// Whether a JSON file ends where its text does; of a large one only the end is looked at.
pub(super) async fn json_file(
    case: Case<'_>,
    name: &str,
    key: &str,
    size: u64,
) -> Result<Settled, StoreError> {
    let whole = size <= JSON_LIMIT_BYTES;
    let begin = if whole { 0 } else { size.saturating_sub(JSON_TAIL_BYTES) };
    let bytes = match case.objects.read(key, begin..size).await? {
        Read::Bytes(bytes) => bytes,
        Read::Changed => {
            return Ok(Some(Judgement::torn(format!("{name} changed while it was looked at"))));
        }
        Read::Refused(why) => return Ok(Some(unreadable(name, &why))),
    };
    let ends = bytes.trim_ascii_end().last().is_some_and(|byte| matches!(byte, b'}' | b']'));
    let is_json = if whole {
        let plain = python_json::plain(&bytes);
        serde_json::from_slice::<serde::de::IgnoredAny>(&plain).is_ok()
    } else {
        ends
    };
    Ok((!is_json).then(|| Judgement::torn(format!("{name} is cut, or no JSON"))))
}

fn tensor_file(name: &str, file: TensorFile) -> Settled {
    match file {
        TensorFile::Whole => None,
        TensorFile::Torn(why) => Some(Judgement::torn(format!("{name}: {why}"))),
        TensorFile::Unreadable(why) => Some(unreadable(name, &why)),
    }
}

fn torch_file(name: &str, file: TorchFile, pickles: Pickles) -> Settled {
    match file {
        TorchFile::Whole => None,
        TorchFile::Torn(why) => Some(Judgement::torn(format!("{name}: {why}"))),
        TorchFile::Pickle | TorchFile::Other if pickles == Pickles::Accepted => None,
        TorchFile::Other => {
            Some(Judgement::torn(format!("{name}: it is neither a zip of torch.save nor a pickle")))
        }
        TorchFile::Pickle => {
            let why = format!("{name}: a pickle without zip, whose end cannot be told");
            Some(Judgement { wholeness: Wholeness::Unknown, why })
        }
        TorchFile::Unreadable(why) => Some(unreadable(name, &why)),
    }
}

/// A kind of file that an older sibling has and this checkpoint lacks; `kinds` turns a key into
/// the kind that is compared, or leaves it out.
pub(super) fn lacks(case: Case<'_>, kinds: impl Fn(&str) -> Option<String>) -> Option<String> {
    let of = |checkpoint: &Checkpoint| -> BTreeSet<String> {
        checkpoint.objects.iter().filter_map(|object| kinds(&object.key)).collect()
    };
    let mine = of(case.checkpoint);
    let older: Vec<_> = case.siblings.iter().filter(|sibling| case.is_older(sibling)).collect();
    let compared = if older.is_empty() { case.siblings.iter().collect() } else { older };
    // A sibling that is itself torn has less, never more.
    compared
        .into_iter()
        .find_map(|sibling| of(sibling).into_iter().find(|kind| !mine.contains(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_from_whole_files() {
        assert_eq!(part_of("model-00001-of-00003.safetensors"), Some(("model", "safetensors")));
        for name in ["model.safetensors", "model-00001.safetensors", "a-of-b.bin", "x-1-of-.bin"] {
            assert_eq!(part_of(name), None, "{name}");
        }
    }
}
