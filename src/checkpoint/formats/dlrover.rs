//! `dlrover`: flash checkpoints of dlrover's FSDP saver, folders named by a bare number with DCP
//! inside. (Its Megatron and DeepSpeed savers write the names of these; see there.)
//!
//! ```text
//! dlrover_latest.txt      the step, as soon as node 0 is done
//! 100/.metadata           by node 0 right after its own shard, before the shards of others
//! 100/__<rank>_<n>.distcp
//! ```
//!
//! Neither `.metadata` nor the tracker proves anything; the shards' lengths do. Facts: dlrover 0.6.1.

use super::dcp::is_dcp;
use super::deepspeed::DeepSpeed;
use super::megatron_legacy::MegatronLegacy;
use super::megatron_torch_dist::MegatronTorchDist;
use super::{Case, Checkpoint, Format, Judgement, ResumeWay, parts};
use crate::checkpoint::dcp::METADATA;
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, StoreError};
use crate::checkpoint::tracker;
use crate::model::checkpoint::{Pin, Tracker};
use crate::model::step_pattern::digits;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// The step that dlrover's own load takes.
const LATEST: &str = "dlrover_latest.txt";

/// dlrover's FSDP saver.
#[derive(Debug)]
pub(super) struct Dlrover;

impl Format for Dlrover {
    fn word(&self) -> &'static str {
        "dlrover"
    }

    fn shape(&self) -> NameShape {
        NameShape::Number
    }

    /// Its Megatron and DeepSpeed savers.
    fn also(&self) -> &'static [&'static dyn Format] {
        &[&MegatronTorchDist, &MegatronLegacy, &DeepSpeed::Engine]
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| is_dcp(checkpoint))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.shape().read(name, Kind::Folder).is_some() && folder.object(METADATA).is_some()
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            if let Some(judgement) = parts::dlrover_stage(case).await? {
                return Ok(judgement);
            }
            let whole = || Judgement::whole("each shard is as long as .metadata says");
            Ok(parts::dcp_with_optimizer(case, "").await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn tracker<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Tracker, StoreError>> {
        async move {
            let Some(position) = case.checkpoint.position else { return Ok(Tracker::Unseen) };
            let named = |text: &str| digits(text) == Some(position.step);
            tracker::leads(case, LATEST, position.step.to_string(), named).await
        }
        .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let way = ResumeWay {
            argument: "--resume_path {path}".into(),
            pin: Pin::Argument,
            note: Some(
                "which argument reaches load_checkpoint(resume_path=…) is the script's own".into(),
            ),
        };
        async move { Ok(way) }.boxed()
    }
}
