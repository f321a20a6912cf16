//! `torch-dcp` and `torchtitan`: folders `step-N` of PyTorch's distributed checkpoint.
//!
//! The tests are those of [`parts::dcp`]. torchtitan writes `checkpoint/step-N` and takes the step;
//! with other scripts the argument is their own. A torchtitan folder with an index of safetensors
//! and no `.metadata` is an export of the weights, and so is a last save of the model alone.

use super::{Case, Checkpoint, Format, Judgement, ResumeWay, parts};
use crate::checkpoint::dcp::{METADATA, metadata_rank};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, StoreError};
use crate::model::checkpoint::{Pin, Wholeness};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// A DCP folder of any script.
#[derive(Debug)]
pub(super) struct TorchDcp;

/// The same by torchtitan.
#[derive(Debug)]
pub(super) struct Torchtitan;

/// The folder that torchtitan keeps checkpoints in unless it is told otherwise.
const TITAN_FOLDER: &str = "checkpoint";

async fn judge(case: Case<'_>) -> Result<Judgement, StoreError> {
    let checkpoint = case.checkpoint;
    if !checkpoint.has(METADATA) && checkpoint.has("model.safetensors.index.json") {
        let why = "an export of the weights: it has no optimizer".to_owned();
        return Ok(Judgement { wholeness: Wholeness::WeightsOnly, why });
    }
    if let Some(settled) = parts::dcp_with_optimizer(case, "").await? {
        return Ok(settled);
    }
    Ok(Judgement::whole("each shard is as long as its metadata says"))
}

fn is_checkpoint(shape: &NameShape, name: &str, folder: &Folder) -> bool {
    let is_metadata = |name: &str| name == METADATA || metadata_rank(name).is_some();
    shape.read(name, Kind::Folder).is_some()
        && folder.objects.iter().any(|object| is_metadata(&object.key))
}

impl Format for TorchDcp {
    fn word(&self) -> &'static str {
        "torch-dcp"
    }

    fn shape(&self) -> NameShape {
        NameShape::Step
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| is_dcp(checkpoint))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        is_checkpoint(&self.shape(), name, folder)
    }

    /// Nothing names the newest but its number.
    fn written_last(&self) -> Option<&'static str> {
        Some(METADATA)
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        judge(case).boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let note = "which argument loads it is the script's own: set `resume` in [checkpoint]";
        let way = ResumeWay {
            argument: "--resume {path}".into(),
            pin: Pin::Argument,
            note: Some(note.into()),
        };
        async move { Ok(way) }.boxed()
    }
}

impl Format for Torchtitan {
    fn word(&self) -> &'static str {
        "torchtitan"
    }

    fn shape(&self) -> NameShape {
        NameShape::Step
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| {
            let folder = checkpoint.path.rsplit('/').nth(1);
            checkpoint.name.starts_with("step-")
                && folder == Some(TITAN_FOLDER)
                && is_dcp(checkpoint)
        })
    }

    fn is_checkpoint(&self, _name: &str, _folder: &Folder) -> bool {
        // Alone it cannot be told from any other DCP folder.
        false
    }

    /// Nothing names the newest but its number.
    fn written_last(&self) -> Option<&'static str> {
        Some(METADATA)
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        judge(case).boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let way = ResumeWay {
            argument: "--checkpoint.load_step {step}".into(),
            pin: Pin::Argument,
            note: None,
        };
        async move { Ok(way) }.boxed()
    }
}

/// Whether there is something of DCP in it.
pub(super) fn is_dcp(checkpoint: &Checkpoint) -> bool {
    let is_shard = |name: &str| name.rsplit_once('.').is_some_and(|(_, e)| e == "distcp");
    checkpoint.has(METADATA) || checkpoint.directly_in("").any(|(name, _)| is_shard(name))
}
