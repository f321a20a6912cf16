//! `composer`: files `epE-baB-rankR.pt` of MosaicML Composer, or a folder `epE-baB` of DCP shards.
//!
//! ```text
//! ep0-ba1000-rank0.pt, ep0-ba1000-rank1.pt …     one file a rank
//! latest-rank0.pt.symlink                        text: the key of the newest, written after all uploads
//! ep0-ba200/.metadata, __<rank>_0.distcp         sharded; .metadata may be uploaded before the shards
//! ```
//!
//! A checkpoint is shown by its file of rank 0; the names of the others beside it are counted.
//! Facts: Composer 0.32.1.

use super::dcp::is_dcp;
use super::{Case, Checkpoint, Format, Judgement, Pickles, ResumeWay, parts, weights};
use crate::checkpoint::dcp::METADATA;
use crate::checkpoint::names::{Kind, NameShape};
use crate::checkpoint::objects::{Folder, Object, StoreError, join};
use crate::model::checkpoint::Pin;
use crate::model::step_pattern::digits;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};

/// MosaicML Composer.
#[derive(Debug)]
pub(super) struct Composer;

/// Stem and rank of `ep0-ba1000-rank1.pt`.
fn rank_of(name: &str) -> Option<(&str, u64)> {
    let (stem, rank) = name.strip_suffix(".pt")?.rsplit_once("-rank")?;
    Some((stem, digits(rank)?))
}

/// The ranks of every stem in a folder.
fn ranks(folder: &Folder) -> BTreeMap<&str, BTreeMap<u64, &Object>> {
    let mut ranks: BTreeMap<&str, BTreeMap<u64, &Object>> = BTreeMap::new();
    for object in &folder.objects {
        if let Some((stem, rank)) = rank_of(&object.key) {
            ranks.entry(stem).or_default().insert(rank, object);
        }
    }
    ranks
}

async fn settle(case: Case<'_>) -> Result<parts::Settled, StoreError> {
    let checkpoint = case.checkpoint;
    let (Some(folder), Some((stem, _))) = (&case.root.folder, rank_of(&checkpoint.name)) else {
        return match checkpoint.objects.as_slice() {
            [file] if file.key.is_empty() => whole_with_optimizer(case, &[file]).await,
            _ => parts::dcp_with_optimizer(case, "").await,
        };
    };
    let all = ranks(folder);
    let mine = all.get(stem).cloned().unwrap_or_default();
    let last = |ranks: &BTreeMap<u64, &Object>| {
        ranks.last_key_value().map_or(0, |(last, _)| last.saturating_add(1))
    };
    // The symlinks and the other steps say how many ranks there are. Not all ranks of a job write.
    let named: BTreeSet<u64> = folder
        .objects
        .iter()
        .filter_map(|object| digits(object.key.strip_prefix("latest-rank")?.split('.').next()?))
        .collect();
    let expected = all
        .values()
        .map(last)
        .chain(named.last().map(|last| last.saturating_add(1)))
        .max()
        .unwrap_or(0);
    let missing = (0..expected).take(mine.len() + 1).find(|rank| !mine.contains_key(rank));
    if let Some(rank) = missing {
        return Ok(Some(Judgement::torn(format!("{stem}-rank{rank}.pt is missing"))));
    }
    // The other ranks stand beside it: their keys are those of the location already.
    let beside = Checkpoint {
        name: stem.to_owned(),
        path: ".".to_owned(),
        position: checkpoint.position,
        objects: mine
            .values()
            .map(|object| Object { key: join(&case.root.path, &object.key), ..(*object).clone() })
            .collect(),
        closed: None,
    };
    let files: Vec<&Object> = beside.objects.iter().collect();
    whole_with_optimizer(Case { checkpoint: &beside, ..case }, &files).await
}

/// The files of all ranks, which have to be whole and to hold more than weights.
async fn whole_with_optimizer(
    case: Case<'_>,
    files: &[&Object],
) -> Result<parts::Settled, StoreError> {
    match (parts::files(case, files, Pickles::Undecided).await?, files.first()) {
        (None, Some(first)) => weights::composer(case, first).await,
        (found, _) => Ok(found),
    }
}

impl Format for Composer {
    fn word(&self) -> &'static str {
        "composer"
    }

    fn shape(&self) -> NameShape {
        NameShape::EpochBatch
    }

    fn claims(&self, newest: &[&Checkpoint]) -> bool {
        newest.iter().any(|checkpoint| rank_of(&checkpoint.name).is_some() || is_dcp(checkpoint))
    }

    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool {
        self.shape().read(name, Kind::Folder).is_some() && folder.object(METADATA).is_some()
    }

    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>> {
        async move {
            let whole = || Judgement::whole("the files of all ranks whole");
            Ok(settle(case).await?.unwrap_or_else(whole))
        }
        .boxed()
    }

    fn resume<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>> {
        let argument = match rank_of(&case.checkpoint.name) {
            Some((stem, _)) => {
                format!("load_path={{root}}/{stem}-rank{{{{rank}}}}.pt autoresume=false")
            }
            None => "load_path={path} autoresume=false".to_owned(),
        };
        let way = ResumeWay { argument, pin: Pin::Argument, note: None };
        async move { Ok(way) }.boxed()
    }
}
