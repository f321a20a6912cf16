//! Checkpoints that are whole and hold weights alone, told by the names in their pickles: a trainer
//! would go on from one with a fresh optimizer in silence.
//!
//! What always holds: only the first file of a checkpoint that was found whole is opened, and of it
//! only names are kept. A pickle that cannot be read says nothing: the checkpoint stays whole.

use super::{Case, Judgement, parts};
use crate::checkpoint::objects::{Object, StoreError};
use crate::checkpoint::pickle::{Pickle, Value};
use crate::checkpoint::torch_zip;
use std::collections::BTreeSet;

/// The names in the dictionary that a file of `torch.save` holds, or in the one that it has under
/// `below`.
async fn names(
    case: Case<'_>,
    file: &Object,
    below: Option<&str>,
) -> Result<Option<BTreeSet<String>>, StoreError> {
    let key = case.checkpoint.key(file);
    let Some(bytes) = torch_zip::member(case.objects, &key, file.size, "/data.pkl").await? else {
        return Ok(None);
    };
    let Ok(pickle) = Pickle::read(&bytes) else { return Ok(None) };
    let root = Some(pickle.root());
    let of = match below {
        Some(name) => root.and_then(|root| pickle.field(root, name)),
        None => root,
    };
    let Some(entries) = of.and_then(|of| pickle.entries(of)) else { return Ok(None) };
    let text = |value: &Value<'_>| {
        let Value::Text(text) = value else { return None };
        Some((*text).to_owned())
    };
    Ok(Some(entries.iter().filter_map(|(key, _)| text(pickle.get(*key))).collect()))
}

fn settled(is_weights_only: bool, why: &str) -> parts::Settled {
    is_weights_only.then(|| Judgement::weights_only(why))
}

/// A file of Lightning: with `save_weights_only` it has neither optimizers nor schedules.
pub(super) async fn lightning(case: Case<'_>, file: &Object) -> Result<parts::Settled, StoreError> {
    let Some(names) = names(case, file, None).await? else { return Ok(None) };
    let is_lightnings = names.contains("state_dict") || names.contains("pytorch-lightning_version");
    let is_trained =
        names.contains("lr_schedulers") || names.iter().any(|name| name.contains("optim"));
    let why = "it has no `optimizer_states` (save_weights_only)";
    Ok(settled(is_lightnings && !is_trained, why))
}

/// A file of one rank of Megatron: `--no-save-optim` leaves out the optimizer and its schedule.
pub(super) async fn megatron(case: Case<'_>, file: &Object) -> Result<parts::Settled, StoreError> {
    let Some(names) = names(case, file, None).await? else { return Ok(None) };
    let has_model = names.iter().any(|name| name.starts_with("model"));
    let is_trained = names.iter().any(|name| name.contains("opt"));
    Ok(settled(has_model && !is_trained, "it has no optimizer (--no-save-optim)"))
}

/// A file of one rank of Composer: with `save_weights_only` its `state` is little but the model.
pub(super) async fn composer(case: Case<'_>, file: &Object) -> Result<parts::Settled, StoreError> {
    let Some(names) = names(case, file, Some("state")).await? else { return Ok(None) };
    let is_trained = names.contains("timestamp") || names.iter().any(|name| name.contains("optim"));
    let why = "its state has no optimizer (save_weights_only)";
    Ok(settled(names.contains("model") && !is_trained, why))
}
