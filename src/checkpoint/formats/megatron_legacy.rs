//! `megatron-legacy`: Megatron's `torch` format. Nothing inside a checkpoint marks its end; only
//! the rank folders and the files themselves can be tested (see `megatron`).

use super::megatron::{self, Tracker};
use super::{Case, Checkpoint, Format, Judgement, ResumeWay, Root, parts};
use crate::checkpoint::names::NameShape;
use crate::checkpoint::objects::{Folder, Objects, StoreError};
use crate::model::checkpoint::Tracker as Lead;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Megatron's `torch` format.
#[derive(Debug)]
pub(super) struct MegatronLegacy;

impl Format for MegatronLegacy {
    fn word(&self) -> &'static str {
        "megatron-legacy"
    }

    fn shape(&self) -> NameShape {
        NameShape::Iteration
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        // What has nothing of Megatron's inside is a layout of a person's own.
        let is_megatrons = |checkpoint: &&Checkpoint| megatron::has_rank_folder(checkpoint);
        !newest.iter().any(|checkpoint| megatron::is_distributed(checkpoint))
            && (newest.iter().any(is_megatrons)
                || newest.iter().all(|checkpoint| checkpoint.objects.is_empty()))
    }

    fn is_checkpoint(&self, _name: &str, folder: &Folder) -> bool {
        megatron::is_checkpoint(folder)
    }

    fn beside<'a>(
        &'a self,
        objects: &'a Objects,
        root: &'a Root,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        megatron::beside(objects, root).boxed()
    }

    fn owner(&self, root: &str) -> Option<String> {
        megatron::owner(root)
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            if let Some(judgement) = parts::dlrover_stage(case).await? {
                return Ok(judgement);
            }
            if let Some(judgement) = megatron::judge_ranks(case).await? {
                return Ok(judgement);
            }
            let step = case.checkpoint.position.map(|position| position.step);
            let more = match Tracker::read(case).await? {
                Tracker::Step(named) if Some(named) == step => ", the tracker names it",
                Tracker::Step(named) if Some(named) > step => ", the tracker has passed it",
                Tracker::Step(_)
                | Tracker::Unseen
                | Tracker::Absent
                | Tracker::Release
                | Tracker::Garbage => ", the tracker does not name it",
            };
            Ok(Judgement::whole(megatron::praise(case, more)))
        }
        .boxed()
    }

    fn tracker<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Lead, StoreError>> {
        megatron::tracker_of(case).boxed()
    }

    fn resume<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        megatron::resume_of(case).boxed()
    }
}
