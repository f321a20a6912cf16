//! A folder that was used again: a higher step in it may be of the run before.
//!
//! Only times tell, and a copy has none of its own: they count where the file that its format writes
//! last is the youngest. docs/decisions/0006 says why.

use super::formats::{Case, Checkpoint, Format};
use super::objects::StoreError;
use crate::model::checkpoint::Wholeness;
use crate::model::time::WallTime;
use std::time::Duration;

/// How long after a higher step a lower one begins that is of a later run.
const EARLIER_RUN: Duration = Duration::from_secs(60);
/// By how much other ranks' files may be younger than the file that is written last.
const LATE_RANK: Duration = Duration::from_secs(5);

/// The name of a whole one of a lower step, listed beside it or the `lowest` of all, that was written
/// after all of this one.
pub(super) async fn later_whole(
    case: Case<'_>,
    format: &dyn Format,
    last: &str,
    lowest: Option<&Checkpoint>,
) -> Result<Option<String>, StoreError> {
    let Some((_, end)) = times(case.checkpoint, last) else { return Ok(None) };
    for sibling in case.siblings.iter().copied().chain(lowest) {
        let Some((begin, _)) = times(sibling, last) else { continue };
        if sibling.position >= case.checkpoint.position || begin.since(end) <= EARLIER_RUN {
            continue;
        }
        let others: Vec<&Checkpoint> = std::iter::once(case.checkpoint)
            .chain(case.siblings.iter().copied().filter(|other| other.path != sibling.path))
            .collect();
        let case = Case { checkpoint: sibling, siblings: &others, ..case };
        if format.judge(case).await?.wholeness == Wholeness::Whole {
            return Ok(Some(sibling.name.clone()));
        }
    }
    Ok(None)
}

/// When the oldest and the youngest object of a checkpoint were written; `None` if the file `last`
/// is not among the youngest ones.
fn times(checkpoint: &Checkpoint, last: &str) -> Option<(WallTime, WallTime)> {
    let begin = checkpoint.objects.iter().map(|object| object.modified).min()?;
    let end = checkpoint.objects.iter().map(|object| object.modified).max()?;
    let last = checkpoint.objects.iter().find(|object| object.key == last)?.modified;
    (last > begin && end.since(last) <= LATE_RANK).then_some((begin, end))
}
