//! When a job may go off the record, history and all.
//!
//! What always holds: nothing of it is open, no copy of it may be writing, none that was given up as
//! lost may yet come back, and it would not go on by itself: it is over, or its file is gone.

use super::job::{EndedAttempt, Job, Source};
use super::verdict::Cause;
use crate::model::time::{WallTime, human};
use std::time::Duration;

/// For so long after an attempt was given up as lost it may come back: lists look back to it.
pub const LOST_LOOKED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Why a job cannot be forgotten, and what helps; `None` if it can be.
pub fn cannot_forget(job: &Job) -> Option<String> {
    let name = &job.key.name;
    if let Some(attempt) = job.open.first() {
        let (no, id) = (attempt.no, attempt.id().map_or(String::new(), |id| format!(" ({id})")));
        return Some(if attempt.stop.is_some() {
            format!("attempt {no}{id} of `{name}` is being stopped: `spotkeeper wait {name}`")
        } else {
            format!("attempt {no}{id} of `{name}` is not seen ended: `spotkeeper cancel {name}`")
        });
    }
    if let Some(copy) = job.copies.first() {
        return Some(format!(
            "{copy} carries a mark of `{name}` and is not seen ended: stop it in the console, or say \
             `spotkeeper retry {name}` if it does not exist any more"
        ));
    }
    if job.is_repairing() {
        return Some(format!("the tracker of `{name}` is being rewritten: try again in a minute"));
    }
    match job.source {
        Source::File if job.result.is_none() => Some(format!(
            "`{name}` is not over, and its job file is there: `spotkeeper cancel {name}`, or take \
             the file away"
        )),
        Source::File | Source::Unmanaged => None,
    }
}

/// Why a job with these ended attempts cannot be forgotten yet: without its record, nobody would stop
/// a lost one that comes back.
pub fn cannot_forget_yet(job: &Job, ended: &[EndedAttempt], now: WallTime) -> Option<String> {
    let name = &job.key.name;
    let mut lost = ended.iter().filter(|ended| ended.verdict.cause == Cause::Lost);
    let newest = lost.rfind(|ended| now.since(ended.ended) < LOST_LOOKED_FOR)?;
    let left = LOST_LOOKED_FOR.saturating_sub(now.since(newest.ended));
    Some(format!(
        "attempt {} of `{name}` was lost and may come back: it is looked for another {}",
        newest.attempt.no,
        human(left)
    ))
}
