//! `hf-trainer`, `llama-factory` and `ms-swift`: folders `checkpoint-N` of the Hugging Face Trainer,
//! and of what is built on it (TRL, Axolotl, PEFT).
//!
//! ```text
//! config.json, generation_config.json, tokenizer files
//! model.safetensors | model-00001-of-00003.safetensors …, then model.safetensors.index.json
//!   | adapter_model.safetensors (PEFT) | pytorch_model.bin | those of `fsdp`
//! training_args.bin
//! optimizer.pt | optimizer.bin | optimizer_0/ (DCP) | global_stepN/ with `latest` (DeepSpeed)
//! scheduler.pt
//! rng_state.pth | rng_state_<rank>.pth       ranks above 0 without a barrier; a load does without
//! trainer_state.json                         last: global_step is the N of the name
//! ```
//!
//! The trainer's own choice is the largest N, whole or not, so that the path is always given. With
//! `save_only_model` there is no optimizer, and the Trainer goes on with a fresh one in silence:
//! such checkpoints are weights only. Facts: transformers 5.24.0.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, deepspeed, fsdp, parts};
use crate::checkpoint::names::NameShape;
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::model::checkpoint::{Pin, Position, Wholeness};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

const STATE: &str = "trainer_state.json";
/// What it says of the step.
const STEP: &str = "global_step";
const SCHEDULER: &str = "scheduler.pt";
/// Model states of DeepSpeed's rank 0 up to ZeRO 2.
const GATHERED: &str = "mp_rank_00_model_states.pt";
const OPTIMIZERS: [&str; 3] = ["optimizer.pt", "optimizer.bin", "optimizer_0/"];
const WEIGHTS: [&str; 6] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// The Trainer, under the word of what was built on it.
#[derive(Debug)]
pub(super) enum HfTrainer {
    /// The Trainer itself.
    Plain,
    /// LLaMA-Factory: the same files.
    LlamaFactory,
    /// ms-swift: the same files and `args.json`, in a new folder `vN-<time>` each launch.
    MsSwift,
}

fn has_any(checkpoint: &Checkpoint, keys: &[&str]) -> bool {
    keys.iter().any(|key| checkpoint.has(key))
}

/// Whether there is anything in it that the Trainer writes.
fn is_trainers(checkpoint: &Checkpoint) -> bool {
    let marks = [STATE, SCHEDULER, "training_args.bin", "config.json", "adapter_config.json"];
    has_any(checkpoint, &marks) || has_weights(checkpoint) || has_optimizer(checkpoint)
}

/// Whether there is an optimizer of any kind.
fn has_optimizer(checkpoint: &Checkpoint) -> bool {
    has_any(checkpoint, &OPTIMIZERS)
        || fsdp::has_optimizer(checkpoint)
        || deepspeed::inner(checkpoint).is_some()
}

/// Whether there are weights outside of DeepSpeed's states.
fn has_weights(checkpoint: &Checkpoint) -> bool {
    has_any(checkpoint, &WEIGHTS) || has_parts(checkpoint) || fsdp::has_weights(checkpoint)
}

fn weights_only(why: &str) -> Judgement {
    Judgement { wholeness: Wholeness::WeightsOnly, why: why.to_owned() }
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    let inner = deepspeed::inner(checkpoint);
    let torn = |why: &str| Ok(Some(Judgement::torn(why)));
    // With ZeRO 3 the weights may be in the shards alone.
    if !has_weights(checkpoint) && inner.is_none() {
        return torn("no weights");
    }
    let anywhere = |has: fn(&Checkpoint) -> bool| {
        has(checkpoint) || case.siblings.iter().any(|sibling| has(sibling))
    };
    if !checkpoint.has(STATE) {
        return if anywhere(|c| c.has(STATE)) || has_optimizer(checkpoint) {
            torn("trainer_state.json, which is written last, is missing")
        } else {
            Ok(Some(weights_only(
                "neither trainer_state.json nor an optimizer, as in its siblings",
            )))
        };
    }
    let step = match parts::number(case, STATE, STEP).await? {
        Ok(step) => step,
        Err(judgement) => return Ok(Some(judgement)),
    };
    if let Some(position) = checkpoint.position
        && position.step != step
    {
        let why = format!("{STATE} says step {step}, its name {}", position.step);
        return torn(&why);
    }
    if !has_optimizer(checkpoint) {
        return if anywhere(has_optimizer) {
            torn("the optimizer is missing")
        } else {
            Ok(Some(weights_only("no optimizer: the trainer would go on with a fresh one")))
        };
    }
    if let Some(kind) = parts::lacks(case, kind) {
        return torn(&format!("{kind} is missing, which others here have"));
    }
    // Up to ZeRO 2 one rank has all weights, and the trainer writes them as well.
    let gathered =
        inner.as_ref().is_some_and(|inner| checkpoint.has(&format!("{inner}{GATHERED}")));
    if gathered && !has_weights(checkpoint) {
        return torn("no weights");
    }
    let scheduled = |c: &Checkpoint| c.has(SCHEDULER);
    // DeepSpeed can keep the schedule in its own states.
    if !scheduled(checkpoint) && (inner.is_none() || anywhere(scheduled)) {
        return torn("scheduler.pt is missing");
    }
    settle_files(case, inner).await
}

/// Files that every save of one run writes, for the comparison with siblings.
fn kind(key: &str) -> Option<String> {
    let always =
        ["config.json", "training_args.bin", "adapter_config.json", "args.json", SCHEDULER];
    let weights = WEIGHTS.contains(&key)
        || key.starts_with("pytorch_model_fsdp")
        || key.ends_with(".index.json");
    always.contains(&key).then(|| key.to_owned()).or_else(|| weights.then(|| "weights".to_owned()))
}

/// Numbered parts whose index is not there (yet) are weights too; the index is asked for later.
fn has_parts(checkpoint: &Checkpoint) -> bool {
    checkpoint.directly_in("").any(|(name, _)| name.contains("-of-") && name.contains("model-"))
}

async fn settle_files(case: Case<'_>, inner: Option<String>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    if let found @ Some(_) = parts::indexes(case, "").await? {
        return Ok(found);
    }
    if let found @ Some(_) = fsdp::settle(case).await? {
        return Ok(found);
    }
    if inner.is_some() {
        // A save into a folder that is there already leaves the states of the step before.
        let inner = match parts::text(case, deepspeed::LATEST).await? {
            Ok(tag) => format!("{}/", tag.trim()),
            Err(judgement) => return Ok(Some(judgement)),
        };
        if inner == "/" || !checkpoint.has(&inner) {
            let why = format!("its `latest` names {inner}, which is not there");
            return Ok(Some(Judgement::torn(why)));
        }
        if let found @ Some(_) = deepspeed::settle(case, &inner).await? {
            return Ok(found);
        }
    }
    let files: Vec<&Object> =
        checkpoint.directly_in("").filter(|(name, _)| is_loaded(name)).map(|(_, o)| o).collect();
    if let found @ Some(_) = parts::files(case, &files, Pickles::Undecided).await? {
        return Ok(found);
    }
    // An adapter without its configuration cannot be loaded.
    let adapter = checkpoint.directly_in("").any(|(name, _)| name.starts_with("adapter_model."));
    if adapter && !checkpoint.has("adapter_config.json") {
        return Ok(Some(Judgement::torn("adapter_config.json is missing")));
    }
    Ok(None)
}

/// What the trainer reads: tensors, states and configurations, but no temporary names.
fn is_loaded(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    !name.starts_with('.')
        && matches!(extension, Some("safetensors" | "pt" | "pth" | "bin" | "json"))
}

impl Format for HfTrainer {
    fn word(&self) -> &'static str {
        match self {
            Self::Plain => "hf-trainer",
            Self::LlamaFactory => "llama-factory",
            Self::MsSwift => "ms-swift",
        }
    }

    fn shape(&self) -> NameShape {
        NameShape::CheckpointDash
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        match self {
            Self::Plain => newest.iter().any(|checkpoint| is_trainers(checkpoint)),
            // Beside the checkpoints, not in them, is what tells it from the plain Trainer.
            Self::LlamaFactory => false,
            Self::MsSwift => newest.iter().any(|checkpoint| checkpoint.has("args.json")),
        }
    }

    fn is_sure(&self, checkpoint: &Checkpoint) -> bool {
        checkpoint.has(STATE)
            || checkpoint.has("training_args.bin")
            || deepspeed::inner(checkpoint).is_some()
            || fsdp::has_weights(checkpoint)
            || checkpoint.directly_in("").any(|(name, _)| name.starts_with("rng_state"))
    }

    fn is_checkpoint(&self, _name: &str, folder: &Folder) -> bool {
        // Final weights in an output folder have a state too, but no optimizer.
        let optimizer = |name: &&str| match name.strip_suffix('/') {
            Some(name) => folder.folders.iter().any(|found| found == name),
            None => folder.object(name).is_some(),
        };
        let mine = match self {
            Self::Plain | Self::LlamaFactory => true,
            Self::MsSwift => folder.object("args.json").is_some(),
        };
        mine && folder.object(STATE).is_some()
            && (OPTIMIZERS.iter().any(optimizer) || folder.object(deepspeed::LATEST).is_some())
    }

    /// A folder that is used again keeps the higher steps of the run before: the Trainer deletes by
    /// number or by time, and no tracker names the newest.
    fn written_last(&self) -> Option<&'static str> {
        Some(STATE)
    }

    fn position<'a>(
        &'a self,
        case: Case<'a>,
    ) -> BoxFuture<'a, Result<Option<Position>, StoreError>> {
        async move {
            let step = parts::number(case, STATE, STEP).await?;
            Ok(step.ok().map(|step| Position { epoch: 0, step }))
        }
        .boxed()
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("weights, optimizer and trainer_state.json whole");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let way = ResumeWay {
            argument: "--resume_from_checkpoint {path}".into(),
            pin: Pin::Argument,
            note: None,
        };
        async move { Ok(way) }.boxed()
    }
}
