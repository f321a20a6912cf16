//! `easyckpt-megatron`: EasyCkpt of PAI on Megatron. Megatron's names, and an empty
//! `done_<global rank>.txt` in the checkpoint as soon as that rank's files are done; the tracker
//! follows after a barrier of all ranks.
//!
//! A load without tracker counts these markers and *deletes* them on the way, so an older whole
//! checkpoint may have none. With a tracker EasyCkpt tests nothing.

use super::megatron::{self, Ranks, Tracker};
use super::{Case, Checkpoint, Format, Judgement, ResumeWay};
use crate::checkpoint::names::NameShape;
use crate::checkpoint::objects::{Folder, StoreError};
use crate::model::checkpoint::Tracker as Lead;
use crate::model::step_pattern::digits;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::BTreeSet;

/// EasyCkpt on Megatron.
#[derive(Debug)]
pub(super) struct EasyCkptMegatron;

impl Format for EasyCkptMegatron {
    fn word(&self) -> &'static str {
        "easyckpt-megatron"
    }

    fn shape(&self) -> NameShape {
        NameShape::Iteration
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        !newest.iter().any(|checkpoint| megatron::is_distributed(checkpoint))
            && newest.iter().any(|checkpoint| !done_ranks(checkpoint).is_empty())
    }

    fn is_checkpoint(&self, _name: &str, folder: &Folder) -> bool {
        megatron::is_checkpoint(folder)
            && folder.objects.iter().any(|object| done_rank(&object.key).is_some())
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let ranks = megatron::judge_ranks(case).await?;
            match (ranks, judge_markers(case, Tracker::read(case).await?)) {
                (Some(judgement), Ok(_)) => Ok(judgement),
                (Some(judgement), Err(missing)) => {
                    let why = format!("{}; {missing}", judgement.why);
                    Ok(Judgement { why, ..judgement })
                }
                (None, Err(missing)) => Ok(Judgement::torn(missing)),
                (None, Ok(more)) => {
                    Ok(Judgement::whole(megatron::praise(case, &format!(", {more}"))))
                }
            }
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

fn done_rank(file: &str) -> Option<u64> {
    digits(file.strip_prefix("done_")?.strip_suffix(".txt")?)
}

fn done_ranks(checkpoint: &Checkpoint) -> BTreeSet<u64> {
    checkpoint.objects.iter().filter_map(|object| done_rank(&object.key)).collect()
}

/// What the markers say: why they are enough, or what is missing.
fn judge_markers(case: Case<'_>, tracker: Tracker) -> Result<String, String> {
    let step = case.checkpoint.position.map(|position| position.step);
    let (named, passed) = match tracker {
        Tracker::Step(n) => (Some(n) == step, Some(n) > step),
        Tracker::Unseen | Tracker::Absent | Tracker::Release | Tracker::Garbage => (false, false),
    };
    let done = done_ranks(case.checkpoint);
    if named {
        return Ok("the tracker names it".into());
    }
    if done.is_empty() {
        return if passed {
            Ok("its markers were deleted by a load, the tracker has passed it".into())
        } else {
            Err("no done marker".into())
        };
    }
    let count = done.len() as u64;
    if let Some(gap) = (0..count).find(|rank| !done.contains(rank)) {
        return Err(format!("{count} done markers, that of rank {gap} is missing"));
    }
    // Rank 3 is one of at least four, even where rank 2 left no marker. The world may have grown
    // or shrunk with a later submission: older siblings come first.
    let largest = |older: bool| {
        let some = case.siblings.iter().filter(|sibling| case.is_older(sibling) == older);
        some.filter_map(|sibling| done_ranks(sibling).last().map(|last| last.saturating_add(1)))
            .max()
    };
    let expected = largest(true).or_else(|| largest(false));
    let ranks = Ranks::of(case.checkpoint).count().max(1) as u64;
    match (expected, case.ranks.map(u64::from)) {
        (Some(expected), _) if count < expected => {
            Err(format!("{count} of {expected} done markers"))
        }
        (None, Some(expected)) if count < expected => {
            Err(format!("{count} of {expected} done markers"))
        }
        // Nothing to compare with: the world is a multiple of the model-parallel ranks.
        (None, None) if !count.is_multiple_of(ranks) => {
            Err(format!("{count} done markers for a multiple of {ranks} ranks"))
        }
        (Some(_) | None, _) => Ok(format!("{count} done markers")),
    }
}
