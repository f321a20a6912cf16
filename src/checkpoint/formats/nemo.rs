//! `nemo`: checkpoints of NeMo 1 (files, or folders of ranks) and NeMo 2 (folders with `weights/`).
//!
//! ```text
//! <name>--val_loss=2.40-step=199-consumed_samples=1600.0[-last].ckpt      NeMo 1
//! <name>--…-step=199-…[-last]/weights/   distributed, see `megatron_torch_dist`
//!                            /context/   io.json, model.yaml
//! <name>--…-step=199-…[-last]-unfinished     empty file beside it, from before the first byte until
//!                                            after a barrier, and before a deletion
//! ```
//!
//! A marker means unusable, whatever the data look like: NeMo deletes both at its next start. It takes
//! the newest finished `-last` by itself, and raises where all of them are unfinished.
//! Facts: nemo-toolkit 3.0.0.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, megatron_torch_dist, parts};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::model::checkpoint::Pin;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

const WEIGHTS: &str = "weights/";
const UNFINISHED: &str = "-unfinished";

/// NeMo 1 and 2.
#[derive(Debug)]
pub(super) struct Nemo;

/// The name that a marker begins with.
fn marked(name: &str) -> &str {
    let name = name.strip_suffix(".ckpt").or_else(|| name.strip_suffix(".nemo")).unwrap_or(name);
    name.strip_suffix("-EMA").unwrap_or(name)
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    let marker = format!("{}{UNFINISHED}", marked(&checkpoint.name));
    if case.root.folder.as_ref().is_some_and(|folder| folder.object(&marker).is_some()) {
        return Ok(Some(Judgement::torn(format!("the marker {marker} is there"))));
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
    parts::files(case, &files, Pickles::Undecided).await
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
            checkpoint.name.contains("consumed_samples=") || checkpoint.has(WEIGHTS)
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
