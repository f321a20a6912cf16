//! `accelerate`: folders `checkpoint_N` of Accelerate's automatic naming, where N counts saves, and
//! `step_N` or `epoch_N` as its examples name them.
//!
//! ```text
//! model.safetensors | pytorch_model.bin | sharded with an index | pytorch_model_fsdp_0/ (DCP)
//! optimizer.bin | optimizer_0/ (DCP), scheduler.bin, sampler.bin, dl_state_dict.bin, scaler.pt
//! random_states_<rank>.pkl       one a rank, last, without a barrier
//! custom_checkpoint_<i>.pkl
//! ```
//!
//! Nothing marks the end: the kinds of files of older siblings are compared. Facts: accelerate 1.15.0.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, fsdp, orbax, parts};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::model::checkpoint::{Pin, Wholeness};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Accelerate's `save_state`.
#[derive(Debug)]
pub(super) struct Accelerate;

const RANDOM: &str = "random_states_";

/// What is compared with siblings: the number of ranks may change, the kinds of files do not.
fn kind(key: &str) -> Option<String> {
    let name = key.split('/').next().unwrap_or_default();
    if name.starts_with(RANDOM) {
        return Some("random_states_<rank>.pkl".to_owned());
    }
    if let Some((stem, _)) = fsdp::rank_of(name) {
        return Some(stem.to_owned());
    }
    // An index says how many parts there are.
    (!name.contains("-of-")).then(|| name.to_owned())
}

fn has_weights(checkpoint: &Checkpoint) -> bool {
    let starts = |name: &str| name.starts_with("model") || name.starts_with("pytorch_model");
    checkpoint.objects.iter().any(|object| starts(&object.key))
}

/// Whether Accelerate writes a file of that name: scripts of every kind have a `model.pt`.
fn is_written(key: &str) -> bool {
    let name = key.split('/').next().unwrap_or_default();
    let exact = ["optimizer.bin", "scheduler.bin", "sampler.bin", "dl_state_dict.bin", "scaler.pt"];
    let is_tensors = name.starts_with("model") && name.ends_with(".safetensors");
    let begins = [RANDOM, "pytorch_model", "custom_checkpoint_"];
    exact.contains(&name)
        || is_tensors
        || name == "model.safetensors.index.json"
        || fsdp::is_optimizer(name)
        || begins.iter().any(|begin| name.starts_with(begin))
}

fn has_optimizer(checkpoint: &Checkpoint) -> bool {
    checkpoint.objects.iter().any(|object| object.key.starts_with("optimizer"))
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    if !has_weights(checkpoint) {
        let is_own = checkpoint.objects.iter().any(|object| is_written(&object.key));
        let why = if is_own { "no weights" } else { "nothing that Accelerate writes is in it" };
        return Ok(Some(Judgement::torn(why)));
    }
    // A script's own layout beside it says nothing of what Accelerate writes.
    let own: Vec<&Checkpoint> =
        case.siblings.iter().copied().filter(|sibling| Accelerate.is_sure(sibling)).collect();
    if let Some(kind) = parts::lacks(Case { siblings: &own, ..case }, kind) {
        let why = format!("{kind} is missing, which others here have");
        return Ok(Some(Judgement::torn(why)));
    }
    if !has_optimizer(checkpoint) {
        let why = "no optimizer, as in its siblings".to_owned();
        return Ok(Some(Judgement { wholeness: Wholeness::WeightsOnly, why }));
    }
    // With nothing to compare: the files that each save ends with.
    if !checkpoint.directly_in("").any(|(name, _)| name.starts_with(RANDOM)) {
        return Ok(Some(Judgement::torn("random_states, which are written last, are missing")));
    }
    if let found @ Some(_) = parts::indexes(case, "").await? {
        return Ok(found);
    }
    if let found @ Some(_) = fsdp::settle(case).await? {
        return Ok(found);
    }
    let files: Vec<&Object> = checkpoint
        .directly_in("")
        .filter(|(name, _)| !name.starts_with('.'))
        .map(|(_, object)| object)
        .collect();
    parts::files(case, &files, Pickles::Undecided).await
}

impl Format for Accelerate {
    fn word(&self) -> &'static str {
        "accelerate"
    }

    fn shape(&self) -> NameShape {
        NameShape::CheckpointUnderscore
    }

    fn other_shapes(&self) -> Vec<NameShape> {
        vec![NameShape::Step, NameShape::EpochUnderscore]
    }

    fn marks_its_end(&self) -> bool {
        false
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        // `step-N` is torchtitan's, also where it holds an export of the weights, and Orbax has items
        // that are called as a person likes.
        let is_others = |checkpoint: &Checkpoint| {
            checkpoint.name.starts_with("step-") || orbax::is_orbax(checkpoint)
        };
        newest
            .iter()
            .filter(|checkpoint| !is_others(checkpoint))
            .any(|checkpoint| checkpoint.objects.iter().any(|object| is_written(&object.key)))
    }

    fn is_sure(&self, checkpoint: &Checkpoint) -> bool {
        fsdp::has_weights(checkpoint)
            || fsdp::has_optimizer(checkpoint)
            || checkpoint.directly_in("").any(|(name, _)| name.starts_with(RANDOM))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.names(name, Kind::Folder)
            && folder.objects.iter().any(|object| object.key.starts_with(RANDOM))
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("the kinds of files of its siblings, each whole");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let is_automatic = self.shape().read(&case.checkpoint.name, Kind::Folder).is_some();
        let note = "the number counts saves; a script with automatic naming has to set \
                    save_iteration to the next one";
        let way = ResumeWay {
            argument: "--resume_from_checkpoint {path}".into(),
            pin: Pin::Argument,
            note: is_automatic.then(|| note.to_owned()),
        };
        async move { Ok(way) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_parts_are_one_kind() {
        assert_eq!(kind("random_states_3.pkl").as_deref(), Some("random_states_<rank>.pkl"));
        assert_eq!(kind("optimizer_0/__0_0.distcp").as_deref(), Some("optimizer_0"));
        assert_eq!(kind("scheduler.bin").as_deref(), Some("scheduler.bin"));
    }
}
