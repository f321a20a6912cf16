//! `megatron-torch-dist`: Megatron-Core's distributed checkpoints (`torch_dist`, `torch_dcp`,
//! `fsdp_dtensor`).
//!
//! ```text
//! iter_0000200/common.pt         first; only where metadata.json names a `common_backend`
//! iter_0000200/__<rank>_<n>.distcp
//! iter_0000200/.metadata         names each shard and its length
//! iter_0000200/metadata.json     the commit point of torch_dist; the other two have none
//! iter_0000200/integrity.json    last, only where asked for: SHA-256 of each file
//! latest_checkpointed_iteration.txt
//! ```
//!
//! Megatron itself looks at metadata.json alone and never whether shards are there.
//! Facts: megatron-core 0.16.1, Megatron-LM of 2026-08.

use super::megatron::Tracker;
use super::megatron_legacy::MegatronLegacy;
use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, Root, megatron, parts};
use crate::checkpoint::dcp::METADATA;
use crate::checkpoint::names::NameShape;
use crate::checkpoint::objects::{Folder, Objects, Read, StoreError};
use crate::model::checkpoint::{Tracker as Lead, Wholeness};
use crate::model::ids::hex;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

const COMMIT: &str = "metadata.json";
const COMMON: &str = "common.pt";
const INTEGRITY: &str = "integrity.json";
/// Bytes of the largest file that is read whole to compare its hash.
const HASHED_LIMIT_BYTES: u64 = 1024 * 1024;

/// Megatron-Core's distributed checkpoints.
#[derive(Debug)]
pub(super) struct MegatronTorchDist;

#[derive(Deserialize)]
struct Commit {
    sharded_backend: String,
    common_backend: Option<String>,
}

#[derive(Deserialize)]
struct Integrity {
    algorithm: Option<String>,
    files: BTreeMap<String, serde_json::Value>,
}

/// A small file that is not what its hash says. Of shards the length is known, and they are large.
async fn unlike(
    case: Case<'_>,
    folder: &str,
    integrity: &Integrity,
) -> Result<parts::Settled, StoreError> {
    if integrity.algorithm.as_deref() != Some("sha256") {
        return Ok(None);
    }
    for (name, hash) in &integrity.files {
        let key = format!("{folder}{name}");
        let (Some(hash), Some(object)) = (hash.as_str(), case.checkpoint.object(&key)) else {
            continue;
        };
        let is_shard = name.rsplit_once('.').is_some_and(|(_, extension)| extension == "distcp");
        if is_shard || object.size > HASHED_LIMIT_BYTES {
            continue;
        }
        let bytes = match case.objects.read(&case.checkpoint.key(object), 0..object.size).await? {
            Read::Bytes(bytes) => bytes,
            Read::Changed => {
                return Ok(Some(Judgement::torn(format!("{key} changed while it was looked at"))));
            }
            Read::Refused(why) => {
                let why = format!("{key}: may not be read ({why})");
                return Ok(Some(Judgement { wholeness: Wholeness::Unreadable, why }));
            }
        };
        let digest = Sha256::digest(&bytes);
        let found = hex(&digest);
        if !found.eq_ignore_ascii_case(hash) {
            let why = format!("{key} is not what its hash in {INTEGRITY} says");
            return Ok(Some(Judgement::torn(why)));
        }
    }
    Ok(None)
}

/// Whether a checkpoint that has neither a commit point nor `common.pt` is one of torch_dist that was
/// cut, by what its siblings have: torch_dcp and fsdp_dtensor have neither, and a run may change
/// over to them.
async fn needs_commit(case: Case<'_>, folder: &str) -> Result<bool, StoreError> {
    if !siblings_lack_common(case, folder) {
        return Ok(false);
    }
    let step = case.checkpoint.position.map(|position| position.step);
    Ok(match Tracker::read(case).await? {
        Tracker::Step(named) => Some(named) < step,
        Tracker::Unseen | Tracker::Absent | Tracker::Release | Tracker::Garbage => true,
    })
}

/// Whether there is a sibling with a commit point and without `common.pt`. Where torch_dist writes that
/// file, it does so before anything else: what lacks it is of another kind.
fn siblings_lack_common(case: Case<'_>, folder: &str) -> bool {
    let has = |sibling: &Checkpoint, name: &str| sibling.has(&format!("{folder}{name}"));
    case.siblings.iter().any(|sibling| has(sibling, COMMIT) && !has(sibling, COMMON))
}

/// What is wrong with the distributed checkpoint in `folder` of a checkpoint (empty, or ending in
/// `/`).
pub(super) async fn settle(case: Case<'_>, folder: &str) -> Result<parts::Settled, StoreError> {
    let key = |name: &str| format!("{folder}{name}");
    let checkpoint = case.checkpoint;
    let has_commit = checkpoint.has(&key(COMMIT));
    if has_commit || checkpoint.has(&key(COMMON)) || needs_commit(case, folder).await? {
        let commit: Commit = match parts::json(case, &key(COMMIT)).await? {
            Ok(commit) => commit,
            Err(judgement) => return Ok(Some(judgement)),
        };
        if commit.sharded_backend == "zarr" {
            let why = "a zarr checkpoint, whose parts cannot be counted".to_owned();
            return Ok(Some(Judgement { wholeness: Wholeness::Unknown, why }));
        }
        if commit.common_backend.is_some() {
            let Some(common) = checkpoint.object(&key(COMMON)) else {
                return Ok(Some(Judgement::torn(format!("{} is missing", key(COMMON)))));
            };
            if let found @ Some(_) = parts::files(case, &[common], Pickles::Undecided).await? {
                return Ok(found);
            }
        }
    }
    let weights = match parts::dcp_with_optimizer(case, folder).await? {
        Some(Judgement { wholeness: Wholeness::WeightsOnly, why }) => {
            Some(Judgement::weights_only(why))
        }
        Some(found) => return Ok(Some(found)),
        None => None,
    };
    if checkpoint.has(&key(INTEGRITY)) {
        let integrity: Integrity = match parts::json(case, &key(INTEGRITY)).await? {
            Ok(integrity) => integrity,
            Err(judgement) => return Ok(Some(judgement)),
        };
        let missing = integrity.files.keys().find(|name| !checkpoint.has(&key(name)));
        if let Some(name) = missing {
            let why = format!("{}, which {INTEGRITY} names, is missing", key(name));
            return Ok(Some(Judgement::torn(why)));
        }
        if let found @ Some(_) = unlike(case, folder, &integrity).await? {
            return Ok(found);
        }
    }
    Ok(weights)
}

impl Format for MegatronTorchDist {
    fn word(&self) -> &'static str {
        "megatron-torch-dist"
    }

    fn shape(&self) -> NameShape {
        NameShape::Iteration
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| megatron::is_distributed(checkpoint))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        folder.object(METADATA).is_some()
            && (folder.object(COMMIT).is_some() || name.starts_with("iter_"))
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
            // A run that changed its format keeps its older checkpoints.
            if !megatron::is_distributed(case.checkpoint) {
                return MegatronLegacy.judge(case).await;
            }
            if let Some(judgement) = parts::dlrover_stage(case).await? {
                return Ok(judgement);
            }
            Ok(settle(case, "")
                .await?
                .unwrap_or_else(|| Judgement::whole("each shard is as long as .metadata says")))
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
