//! `colossalai`: folders `epoch-E_step-S` of Colossal-LLaMA. The step starts anew in each epoch.
//!
//! ```text
//! modeling/    model-0000i.safetensors (no `-of-n`) or pytorch_model-0000i.bin, and the index
//! optimizer/   pytorch_optim_group.bin, shards, pytorch_optim.bin.index.json
//! lr_scheduler
//! running_states.json      last
//! ```
//!
//! Facts: colossalai 0.5.0.

use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, parts};
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, StoreError};
use crate::model::checkpoint::{Pin, Position};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;

const STATES: &str = "running_states.json";
const FOLDERS: [&str; 2] = ["modeling/", "optimizer/"];

/// Colossal-LLaMA's checkpoints.
#[derive(Debug)]
pub(super) struct ColossalAi;

#[derive(Deserialize)]
struct Running {
    epoch: u64,
    step: u64,
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    let torn = |why: String| Ok(Some(Judgement::torn(why)));
    let running: Running = match parts::json(case, STATES).await? {
        Ok(running) => running,
        Err(judgement) => return Ok(Some(judgement)),
    };
    let inside = Position { epoch: running.epoch, step: running.step };
    if checkpoint.position.is_some_and(|position| position != inside) {
        let (epoch, step) = (running.epoch, running.step);
        return torn(format!("{STATES} says epoch {epoch}, step {step}"));
    }
    match checkpoint.object("lr_scheduler") {
        None => return torn("lr_scheduler is missing".to_owned()),
        Some(object) => {
            if let found @ Some(_) = parts::torch(case, object).await? {
                return Ok(found);
            }
        }
    }
    // The configuration alone is named nowhere else.
    let kind = |key: &str| (key == "modeling/config.json").then(|| key.to_owned());
    if let Some(kind) = parts::lacks(case, kind) {
        return torn(format!("{kind} is missing, which others here have"));
    }
    for folder in FOLDERS {
        let files: Vec<&Object> = checkpoint.directly_in(folder).map(|(_, o)| o).collect();
        if files.is_empty() {
            return torn(format!("{folder} is missing"));
        }
        let indexed = |name: &str| name.ends_with(".index.json");
        let whole = |name: &str| {
            matches!(name, "model.safetensors" | "pytorch_model.bin" | "pytorch_optim.bin")
        };
        let names: Vec<&str> = checkpoint.directly_in(folder).map(|(name, _)| name).collect();
        if !names.iter().any(|name| indexed(name) || whole(name)) {
            return torn(format!("the index in {folder} is missing"));
        }
        if folder == "optimizer/"
            && names.iter().any(|name| indexed(name))
            && !names.contains(&"pytorch_optim_group.bin")
        {
            return torn("optimizer/pytorch_optim_group.bin is missing".to_owned());
        }
        if let found @ Some(_) = parts::indexes(case, folder).await? {
            return Ok(found);
        }
        if let found @ Some(_) = parts::files(case, &files, Pickles::Undecided).await? {
            return Ok(found);
        }
    }
    Ok(None)
}

impl Format for ColossalAi {
    fn word(&self) -> &'static str {
        "colossalai"
    }

    fn shape(&self) -> NameShape {
        NameShape::EpochStep
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        let marks = [STATES, FOLDERS[0], FOLDERS[1]];
        newest.iter().any(|checkpoint| marks.iter().any(|mark| checkpoint.has(mark)))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.shape().read(name, Kind::Folder).is_some() && folder.object(STATES).is_some()
    }

    fn written_last(&self) -> Option<&'static str> {
        Some(STATES)
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("model, optimizer and running_states.json whole");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let argument = "--load_checkpoint {path}".into();
        let way = ResumeWay { argument, pin: Pin::Argument, note: None };
        async move { Ok(way) }.boxed()
    }
}
