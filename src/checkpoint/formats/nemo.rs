//! `nemo`: checkpoints of NeMo 1 (files, or folders of ranks) and NeMo 2 (folders with `weights/`).
//!
//! ```text
//! <name>--val_loss=2.40-step=199-consumed_samples=1600.0[-last].ckpt      NeMo 1
//! mp_rank_00[_001]/<name>--….ckpt, tp_rank_00_pp_rank_001/<name>--….ckpt     with model parallelism
//! <name>--…-step=199-…[-last]/weights/   distributed, see `megatron_torch_dist`
//!                            /context/   io.json, model.yaml
//! <name>--…-step=199-…[-last]-unfinished     empty file beside it, from before the first byte until
//!                                            after a barrier, and before a deletion
//! ```
//!
//! A marker means unusable, whatever the data look like: NeMo deletes both at its next start. It takes
//! the newest finished `-last` by itself, and raises where all of them are unfinished.
//! Facts: nemo-toolkit 3.0.0.

use super::{
    Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, megatron_torch_dist, parts, weights,
};
use crate::checkpoint::names::{Kind, NameShape, rank_of};
use crate::checkpoint::objects::{Folder, Object, StoreError, join};
use crate::model::checkpoint::Pin;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;

const WEIGHTS: &str = "weights/";
const UNFINISHED: &str = "-unfinished";
/// Two files of one rank that differ in size by no more than one in so many are of one layout.
const SAME_LAYOUT_PART: u64 = 20;

/// NeMo 1 and 2.
#[derive(Debug)]
pub(super) struct Nemo;

/// The name that a marker begins with; it stands beside the rank folders.
fn marked(name: &str) -> &str {
    let name = name.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".ckpt").or_else(|| name.strip_suffix(".nemo")).unwrap_or(name);
    name.strip_suffix("-EMA").unwrap_or(name)
}

/// Rank and file of a name that begins with a rank's folder.
fn rank_and_file(name: &str) -> Option<(Vec<u64>, &str)> {
    let (folder, file) = name.split_once('/')?;
    Some((rank_of(folder)?, file))
}

/// The files of every name in the rank folders of a root.
fn ranks(folder: &Folder) -> BTreeMap<&str, BTreeMap<Vec<u64>, &Object>> {
    let mut ranks: BTreeMap<&str, BTreeMap<Vec<u64>, &Object>> = BTreeMap::new();
    for object in &folder.objects {
        if let Some((rank, file)) = rank_and_file(&object.key) {
            ranks.entry(file).or_default().insert(rank, object);
        }
    }
    ranks
}

/// Whether each combination of the indices seen is there.
fn is_full(ranks: &BTreeMap<Vec<u64>, &Object>) -> bool {
    let Some(width) = ranks.keys().map(Vec::len).max() else { return false };
    let end = |at: usize| ranks.keys().filter_map(|rank| rank.get(at)).max().copied();
    let ends = (0..width).map(|at| end(at).unwrap_or(0).saturating_add(1));
    let cells = ends.fold(1_u64, u64::saturating_mul);
    ranks.keys().all(|rank| rank.len() == width) && cells == ranks.len() as u64
}

/// The files of one rank each, in folders beside each other.
async fn settle_ranks(
    case: Case<'_>,
    folder: &Folder,
    file: &str,
) -> Result<parts::Settled, StoreError> {
    let all = ranks(folder);
    let mine = all.get(file).cloned().unwrap_or_default();
    if !is_full(&mine) {
        let why = format!("{file}: {} rank folders have it, which is no full grid", mine.len());
        return Ok(Some(Judgement::torn(why)));
    }
    // Fewer ranks with larger files are another parallel layout, with files as large a hole.
    let has_hole = |others: &BTreeMap<Vec<u64>, &Object>| {
        let is_part =
            others.len() > mine.len() && mine.keys().all(|rank| others.contains_key(rank));
        is_part
            && mine.iter().all(|(rank, object)| {
                let size = others.get(rank).map_or(0, |other| other.size);
                object.size <= size.saturating_add(size / SAME_LAYOUT_PART)
            })
    };
    if all.values().any(has_hole) {
        let why = format!("{file}: fewer rank folders have it than have others here");
        return Ok(Some(Judgement::torn(why)));
    }
    // The other ranks stand beside it: their keys are those of the location already.
    let beside = Checkpoint {
        path: ".".to_owned(),
        objects: mine
            .values()
            .map(|object| Object { key: join(&case.root.path, &object.key), ..(*object).clone() })
            .collect(),
        ..case.checkpoint.clone()
    };
    let files: Vec<&Object> = beside.objects.iter().collect();
    whole_with_optimizer(Case { checkpoint: &beside, ..case }, &files).await
}

/// Files of Lightning that have to be whole and to hold more than weights.
async fn whole_with_optimizer(
    case: Case<'_>,
    files: &[&Object],
) -> Result<parts::Settled, StoreError> {
    match (parts::files(case, files, Pickles::Undecided).await?, files.first()) {
        (None, Some(first)) => weights::lightning(case, first).await,
        (found, _) => Ok(found),
    }
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    let marker = format!("{}{UNFINISHED}", marked(&checkpoint.name));
    if case.root.folder.as_ref().is_some_and(|folder| folder.object(&marker).is_some()) {
        return Ok(Some(Judgement::torn(format!("the marker {marker} is there"))));
    }
    if let (Some(folder), Some((_, file))) = (&case.root.folder, rank_and_file(&checkpoint.name)) {
        return settle_ranks(case, folder, file).await;
    }
    if checkpoint.has(WEIGHTS) {
        if let found @ Some(_) = megatron_torch_dist::settle(case, WEIGHTS).await? {
            return Ok(found);
        }
        let context = parts::lacks(case, |key| key.starts_with("context/").then(|| key.to_owned()));
        if let Some(name) = context {
            let why = format!("{name} is missing, which others here have");
            return Ok(Some(Judgement::torn(why)));
        }
        let files: Vec<&Object> = checkpoint.directly_in("context/").map(|(_, o)| o).collect();
        return parts::files(case, &files, Pickles::Undecided).await;
    }
    if checkpoint.has("metadata.json") || checkpoint.has(".metadata") {
        return megatron_torch_dist::settle(case, "").await;
    }
    let files: Vec<&Object> = checkpoint.objects.iter().filter(|o| is_torch(&o.key)).collect();
    if files.is_empty() {
        return Ok(Some(Judgement::torn("no weights")));
    }
    // NeMo 1 with model parallelism: one folder a rank.
    if let Some(rank) =
        parts::lacks(case, |key| key.split_once('/').map(|(rank, _)| rank.to_owned()))
    {
        let why = format!("{rank} is missing, which others here have");
        return Ok(Some(Judgement::torn(why)));
    }
    whole_with_optimizer(case, &files).await
}

/// A checkpoint that is one file has an empty key.
fn is_torch(key: &str) -> bool {
    key.is_empty() || key.rsplit_once('.').is_some_and(|(_, e)| matches!(e, "ckpt" | "pt"))
}

impl Format for Nemo {
    fn word(&self) -> &'static str {
        "nemo"
    }

    fn shape(&self) -> NameShape {
        NameShape::StepEquals
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| {
            checkpoint.name.contains("consumed_samples=")
                || rank_and_file(&checkpoint.name).is_some()
                || checkpoint.has(WEIGHTS)
        })
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.shape().read(name, Kind::Folder).is_some()
            && folder.folders.iter().any(|inner| inner == "weights")
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("no marker, and all its files whole");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        // Hydra reads `=` in a value as its own unless the value is quoted for it as well.
        let way = ResumeWay {
            argument:
                r"exp_manager.resume_if_exists=true exp_manager.resume_from_checkpoint=\'{path}\'"
                    .into(),
            pin: Pin::Argument,
            note: Some("NeMo 2: AutoResume(resume_from_path=…)".into()),
        };
        async move { Ok(way) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_stands_beside_the_name_without_its_extension() {
        assert_eq!(marked("a-step=1-last.ckpt"), "a-step=1-last");
        assert_eq!(marked("a-step=1-EMA.ckpt"), "a-step=1");
        assert_eq!(marked("a-step=1-last"), "a-step=1-last");
    }
}
