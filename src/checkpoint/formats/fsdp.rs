//! What FSDP leaves in a checkpoint of Accelerate or of the Hugging Face Trainer, by its three kinds
//! of state dictionary.
//!
//! ```text
//! pytorch_model_fsdp_0/, optimizer_0/         sharded: DCP folders
//! pytorch_model_fsdp[_0]_rank<R>.bin          local: one file a rank
//! pytorch_model_fsdp[_1].bin, optimizer.bin   full: one file
//! ```
//!
//! Facts: accelerate 1.15.0.

use super::{Case, Checkpoint, Judgement, parts};
use crate::checkpoint::objects::StoreError;
use crate::model::step_pattern::digits;
use std::collections::{BTreeMap, BTreeSet};

/// What weights begin with, folders and files.
const MODEL: &str = "pytorch_model_fsdp";
/// What states of an optimizer begin with.
const OPTIMIZER: &str = "optimizer";
/// Two files of one rank that differ in size by no more than one in so many are of one world.
const SAME_WORLD_PART: u64 = 20;

/// Whether a name directly in a checkpoint is of an optimizer: `optimizer_0`, `optimizer_fsdp_rank0.bin`.
pub(super) fn is_optimizer(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(OPTIMIZER) else { return false };
    rest.starts_with("_fsdp") || rest.strip_prefix('_').and_then(digits).is_some()
}

fn folders(checkpoint: &Checkpoint) -> BTreeSet<String> {
    let folders = checkpoint.objects.iter().filter_map(|object| object.key.split_once('/'));
    let names = folders.map(|(folder, _)| folder);
    let mine = names.filter(|name| name.starts_with(MODEL) || is_optimizer(name));
    mine.map(str::to_owned).collect()
}

/// Stem and rank of a file of one rank.
pub(super) fn rank_of(name: &str) -> Option<(&str, u64)> {
    let (stem, rank) = name.strip_suffix(".bin")?.rsplit_once("_rank")?;
    let is_one = stem.starts_with(MODEL) || stem.starts_with(OPTIMIZER);
    Some((stem, digits(rank.strip_prefix('_').unwrap_or(rank))?)).filter(|_| is_one)
}

/// Whether there are weights of FSDP.
pub(super) fn has_weights(checkpoint: &Checkpoint) -> bool {
    checkpoint.objects.iter().any(|object| object.key.starts_with(MODEL))
}

/// Whether there are states of an optimizer under FSDP.
pub(super) fn has_optimizer(checkpoint: &Checkpoint) -> bool {
    let first = |key: &str| key.split('/').next().is_some_and(is_optimizer);
    checkpoint.objects.iter().any(|object| first(&object.key))
}

/// The files of single ranks and their sizes, by stem.
fn ranks(checkpoint: &Checkpoint) -> BTreeMap<&str, BTreeMap<u64, u64>> {
    let mut ranks: BTreeMap<&str, BTreeMap<u64, u64>> = BTreeMap::new();
    for (name, object) in checkpoint.directly_in("") {
        if let Some((stem, rank)) = rank_of(name) {
            ranks.entry(stem).or_default().insert(rank, object.size);
        }
    }
    ranks
}

/// How many ranks the files of all kinds show at least.
fn world(checkpoint: &Checkpoint) -> u64 {
    let random = checkpoint.directly_in("").filter_map(|(name, _)| {
        let rest =
            name.strip_prefix("rng_state_").or_else(|| name.strip_prefix("random_states_"))?;
        digits(rest.split('.').next()?)
    });
    let states = ranks(checkpoint);
    let last = states.values().filter_map(|found| found.last_key_value()).map(|(rank, _)| *rank);
    random.chain(last).max().map_or(0, |last| last.saturating_add(1))
}

/// The first file of a rank that is missing.
fn missing(case: Case<'_>) -> Option<String> {
    let mine = ranks(case.checkpoint);
    let world = world(case.checkpoint);
    for (stem, found) in &mine {
        if let Some(rank) = (0..world).take(found.len() + 1).find(|rank| !found.contains_key(rank))
        {
            return Some(format!("{stem}_rank{rank}.bin is missing"));
        }
        // Fewer ranks with larger files are another world, with files as large a hole.
        for sibling in case.siblings {
            let theirs = ranks(sibling);
            let Some(others) = theirs.get(stem).filter(|others| others.len() > found.len()) else {
                continue;
            };
            let is_same = found.iter().all(|(rank, size)| {
                let other = others.get(rank).copied().unwrap_or(0);
                *size <= other.saturating_add(other / SAME_WORLD_PART)
            });
            if is_same {
                return Some(format!("{stem}_rank{world}.bin is missing, which others here have"));
            }
        }
    }
    None
}

/// What is wrong with the parts of FSDP; the files of single ranks are looked into by the caller.
pub(super) async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    for folder in folders(case.checkpoint) {
        if let found @ Some(_) = parts::dcp(case, &format!("{folder}/")).await? {
            return Ok(found);
        }
    }
    Ok(missing(case).map(Judgement::torn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_one_rank_is_known_by_its_name() {
        for (name, stem, rank) in [
            ("pytorch_model_fsdp_rank3.bin", "pytorch_model_fsdp", 3),
            ("pytorch_model_fsdp_0_rank12.bin", "pytorch_model_fsdp_0", 12),
            ("optimizer_fsdp_rank0.bin", "optimizer_fsdp", 0),
        ] {
            assert_eq!(rank_of(name), Some((stem, rank)), "{name}");
        }
        for name in ["pytorch_model_fsdp.bin", "optimizer.bin", "x_rank0.bin", "optimizer_rank.bin"]
        {
            assert_eq!(rank_of(name), None, "{name}");
        }
        assert!(is_optimizer("optimizer_0") && is_optimizer("optimizer_fsdp_0"));
        assert!(!is_optimizer("optimizer.bin") && !is_optimizer("optimizers"));
    }
}
