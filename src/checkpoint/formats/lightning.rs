//! `lightning`: files (or, with distributed strategies, folders) named by PyTorch Lightning's
//! ModelCheckpoint, with `step=N` in the name.
//!
//! ```text
//! epoch=2-step=30.ckpt         one file of torch.save; on a mounted bucket it is copied onto its final
//!                              name, so that a kill leaves a short one
//! epoch=2-step=30.ckpt/        DCP shards, .metadata and meta.pt; or DeepSpeed's states in checkpoint/
//! last.ckpt, last-v1.ckpt      the newest once more, overwritten in place
//! hpc_ckpt_3.ckpt              on a signal of SLURM; the number counts such files
//! epoch=2-val/loss=0.31.ckpt   a measure may be called with a slash, and a template without a step
//! ```
//!
//! `global_step` stands in each: of the file, of meta.pt, or of DeepSpeed's model states.
//! With `save_weights_only` the file has no `optimizer_states`: it is weights only.
//! `ckpt_path="last"` may find an old or a cut `last.ckpt`, or none and train from zero: the path is
//! always given. Facts: pytorch-lightning 2.6.6.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, deepspeed, parts, weights};
use crate::checkpoint::dcp::METADATA;
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::checkpoint::pickle::{Pickle, Value};
use crate::checkpoint::torch_zip;
use crate::model::checkpoint::{Pin, Position};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

/// Lightning's ModelCheckpoint.
#[derive(Debug)]
pub(super) struct Lightning;

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    if let [file] = checkpoint.objects.as_slice()
        && file.key.is_empty()
    {
        return whole_with_optimizer(case, file).await;
    }
    let states = "checkpoint/";
    if checkpoint.has(states) && !checkpoint.has(METADATA) {
        if !checkpoint.has(deepspeed::LATEST) {
            return Ok(Some(Judgement::torn("`latest` is missing")));
        }
        return deepspeed::settle(case, states).await;
    }
    if let found @ Some(_) = parts::dcp_with_optimizer(case, "").await? {
        return Ok(found);
    }
    match checkpoint.object("meta.pt") {
        Some(meta) => whole_with_optimizer(case, meta).await,
        None => Ok(Some(Judgement::torn("meta.pt is missing"))),
    }
}

/// A file of `torch.save` that has to be whole and to hold more than weights.
async fn whole_with_optimizer(case: Case<'_>, file: &Object) -> Result<parts::Settled, StoreError> {
    match parts::files(case, &[file], Pickles::Undecided).await? {
        None => weights::lightning(case, file).await,
        found @ Some(_) => Ok(found),
    }
}

/// The file that says the step: the only one, or the one beside the shards.
fn state(checkpoint: &Checkpoint) -> Option<&Object> {
    if let [file] = checkpoint.objects.as_slice()
        && file.key.is_empty()
    {
        return Some(file);
    }
    let inner = || {
        checkpoint.objects.iter().find(|object| {
            object.key.starts_with("checkpoint/") && object.key.ends_with("_model_states.pt")
        })
    };
    checkpoint.object("meta.pt").or_else(inner)
}

async fn step(case: Case<'_>) -> Result<Option<u64>, StoreError> {
    let Some(state) = state(case.checkpoint) else { return Ok(None) };
    let key = case.checkpoint.key(state);
    let Some(bytes) = torch_zip::member(case.objects, &key, state.size, "/data.pkl").await? else {
        return Ok(None);
    };
    let Ok(pickle) = Pickle::read(&bytes) else { return Ok(None) };
    Ok(match pickle.field(pickle.root(), "global_step") {
        Some(Value::Int(step)) => u64::try_from(*step).ok(),
        Some(_) | None => None,
    })
}

impl Format for Lightning {
    fn word(&self) -> &'static str {
        "lightning"
    }

    fn shape(&self) -> NameShape {
        NameShape::StepEquals
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| {
            checkpoint.name.rsplit_once('.').is_some_and(|(_, extension)| extension == "ckpt")
        })
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.names(name, Kind::Folder) && folder.object("meta.pt").is_some()
    }

    fn position<'a>(
        &'a self,
        case: Case<'a>,
    ) -> BoxFuture<'a, Result<Option<Position>, StoreError>> {
        async move { Ok(step(case).await?.map(|step| Position { epoch: 0, step })) }.boxed()
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move { Ok(settle(case).await?.unwrap_or_else(|| Judgement::whole("it is whole"))) }
            .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let way =
            ResumeWay { argument: "--ckpt_path {path}".into(), pin: Pin::Argument, note: None };
        async move { Ok(way) }.boxed()
    }
}
