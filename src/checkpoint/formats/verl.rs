//! `verl`: folders `global_step_N` of verl, with one file a rank and the world's size in each name.
//!
//! ```text
//! latest_checkpointed_iteration.txt      N; Megatron's name, but not its folders
//! global_step_100/data.pt
//! global_step_100/actor/{model,optim,extra_state}_world_size_<W>_rank_<R>.pt, fsdp_config.json
//! global_step_100/critic/…
//! ```

use super::megatron::Tracker;
use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, parts};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::model::checkpoint::{Pin, Tracker as Lead};
use crate::model::step_pattern::digits;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};

/// verl's trainer.
#[derive(Debug)]
pub(super) struct Verl;

/// What one file is of: folder and kind (`actor/model`), world, rank.
fn read(key: &str) -> Option<(&str, u64, u64)> {
    let (kind, rest) = key.strip_suffix(".pt")?.split_once("_world_size_")?;
    let (world, rank) = rest.split_once("_rank_")?;
    Some((kind, digits(world)?, digits(rank)?))
}

/// What is compared with siblings: parts of the trainer, whatever the number of ranks.
fn kind(key: &str) -> Option<String> {
    Some(read(key).map_or(key, |(kind, ..)| kind))
        .filter(|kind| !kind.contains("huggingface"))
        .map(str::to_owned)
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    let torn = |why: String| Ok(Some(Judgement::torn(why)));
    let mut ranks: BTreeMap<&str, (BTreeSet<u64>, BTreeSet<u64>)> = BTreeMap::new();
    for (kind, world, rank) in checkpoint.objects.iter().filter_map(|object| read(&object.key)) {
        let (worlds, found) = ranks.entry(kind).or_default();
        worlds.insert(world);
        found.insert(rank);
    }
    let Some(largest) = ranks.values().filter_map(|(worlds, _)| worlds.last()).max().copied()
    else {
        return torn("no file of a rank".to_owned());
    };
    for (kind, (worlds, found)) in &ranks {
        if worlds.len() > 1 || worlds.last() != Some(&largest) {
            return torn(format!("{kind}: files of two worlds"));
        }
        if let Some(rank) = (0..largest).take(found.len() + 1).find(|rank| !found.contains(rank)) {
            return torn(format!("{kind}_world_size_{largest}_rank_{rank}.pt is missing"));
        }
    }
    for folder in ranks.keys().filter_map(|kind| Some(kind.split_once('/')?.0)) {
        for part in ["model", "optim", "extra_state"] {
            if !ranks.contains_key(format!("{folder}/{part}").as_str()) {
                return torn(format!("{folder}: the files of {part} are missing"));
            }
        }
    }
    if !checkpoint.has("data.pt") {
        return torn("data.pt is missing: the stream of data would begin anew".to_owned());
    }
    if let Some(kind) = parts::lacks(case, kind) {
        return torn(format!("{kind} is missing, which others here have"));
    }
    let files: Vec<&Object> = checkpoint.objects.iter().collect();
    parts::files(case, &files, Pickles::Undecided).await
}

impl Format for Verl {
    fn word(&self) -> &'static str {
        "verl"
    }

    fn shape(&self) -> NameShape {
        NameShape::GlobalStepUnderscore
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|c| c.objects.iter().any(|object| read(&object.key).is_some()))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.shape().read(name, Kind::Folder).is_some()
            && folder.folders.iter().any(|inner| inner == "actor")
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("the files of all ranks whole");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn tracker<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Lead, StoreError>> {
        super::megatron::tracker_of(case).boxed()
    }

    fn resume<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        async move {
            let step = case.checkpoint.position.map(|position| position.step);
            let named = matches!(Tracker::read(case).await?, Tracker::Step(n) if Some(n) == step);
            Ok(if named {
                ResumeWay {
                    argument: "trainer.resume_mode=auto".into(),
                    pin: Pin::OwnChoice,
                    note: None,
                }
            } else {
                ResumeWay {
                    argument: "trainer.resume_mode=resume_path trainer.resume_from_path={path}"
                        .into(),
                    pin: Pin::Argument,
                    note: None,
                }
            })
        }
        .boxed()
    }
}
