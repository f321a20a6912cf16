//! `ms-swift-megatron`: folders `checkpoint-N`, each with a distributed Megatron checkpoint and a
//! tracker of its own inside.
//!
//! ```text
//! v0-20260301-080000/checkpoint-100/args.json
//!                                  /iter_0000100/…                        see `megatron_torch_dist`
//!                                  /latest_checkpointed_iteration.txt     at once, also when the save is
//!                                                                         still going on
//! ```
//!
//! `finetune` is on by default: without `--finetune false` optimizer and iteration are dropped.
//! Copies named `…-merged` have no optimizer and no such name. Facts: ms-swift 4.6.0.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, megatron_torch_dist, parts};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::model::checkpoint::Pin;
use crate::model::step_pattern::digits;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

const TRACKER: &str = "latest_checkpointed_iteration.txt";

/// Megatron behind ms-swift.
#[derive(Debug)]
pub(super) struct MsSwiftMegatron;

/// The folder `iter_…/` inside.
fn inner(checkpoint: &Checkpoint) -> Option<(u64, String)> {
    let folders = checkpoint.objects.iter().filter_map(|object| object.key.split_once('/'));
    let steps = folders.filter_map(|(folder, _)| {
        Some((NameShape::Iteration.read(folder, Kind::Folder)?.step, format!("{folder}/")))
    });
    steps.max()
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let Some((step, folder)) = inner(case.checkpoint) else {
        return Ok(Some(Judgement::torn("no iter_ folder in it")));
    };
    // A missing one is read as iteration 0.
    let tracker = match parts::text(case, TRACKER).await? {
        Ok(text) => digits(text.trim()),
        Err(judgement) => return Ok(Some(judgement)),
    };
    if tracker != Some(step) {
        let why = format!("its {TRACKER} does not name {}", folder.trim_end_matches('/'));
        return Ok(Some(Judgement::torn(why)));
    }
    if let found @ Some(_) = megatron_torch_dist::settle(case, &folder).await? {
        return Ok(found);
    }
    if let Some(kind) = parts::lacks(case, |key| (key == "args.json").then(|| key.to_owned())) {
        let why = format!("{kind} is missing, which others here have");
        return Ok(Some(Judgement::torn(why)));
    }
    let files: Vec<&Object> = case.checkpoint.directly_in("").map(|(_, object)| object).collect();
    parts::files(case, &files, Pickles::Undecided).await
}

impl Format for MsSwiftMegatron {
    fn word(&self) -> &'static str {
        "ms-swift-megatron"
    }

    fn shape(&self) -> NameShape {
        NameShape::CheckpointDash
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| inner(checkpoint).is_some())
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.shape().read(name, Kind::Folder).is_some() && folder.object(TRACKER).is_some()
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("each shard is as long as .metadata says");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let way = ResumeWay {
            argument: "--mcore_model {path} --finetune false".into(),
            pin: Pin::Argument,
            note: Some("with LoRA: --mcore_adapter in place of --mcore_model".into()),
        };
        async move { Ok(way) }.boxed()
    }
}
