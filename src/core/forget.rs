//! When a job may go off the record, history and all.
//!
//! What always holds: nothing of it is open, no copy of it may be writing, and it would not go on by
//! itself: it is over, or its file is gone.

use super::job::{Job, Source};

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
