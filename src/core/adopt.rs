//! A person says that a cloud job is the running attempt of a job: one that somebody made by hand, or
//! that an older state sent.
//!
//! What always holds: it is taken only where nothing else of the job may run, where nobody else
//! follows it, and while it has not ended. From then on it is an attempt like any other, but for two
//! things: where it carries no mark that is its own, its id is all that it is known by, and its log
//! lacks the launcher's lines, so that it is not read for them.

use super::event::Word;
use super::job::{Job, Wanted, kept};
use super::sighting::{self, Sighting};
use super::step::Draft;
use super::submit::Gate;
use crate::model::cloud::{CloudJob, Status};
use crate::model::ids::{CloudId, Mark};
use crate::model::spec::Place;

/// Why nothing can be adopted for the job now, whatever it is.
pub fn cannot_adopt_now(job: &Job, gate: &Gate) -> Option<String> {
    let name = &job.key.name;
    if let Some(attempt) = job.open.first() {
        let (no, id) = (attempt.no, attempt.id().map_or(String::new(), |id| format!(" ({id})")));
        return Some(format!(
            "attempt {no}{id} of `{name}` is not seen ended: wait for its end, or `cancel {name}` first"
        ));
    }
    if job.wanted == Wanted::Cancel && job.result.is_none() {
        return Some(format!("`{name}` is being cancelled: `wait {name}`, then adopt"));
    }
    if job.is_repairing() {
        return Some(format!("the tracker of `{name}` is being rewritten: try again in a minute"));
    }
    if let Some(other) = &gate.lease {
        return Some(format!(
            "job `{other}` holds the same checkpoint prefix: two writers would spoil it"
        ));
    }
    gate.other_writer.clone()
}

/// Why this cloud job cannot become the running attempt of the job.
pub fn cannot_adopt(job: &Job, gate: &Gate, cloud: &CloudJob) -> Option<String> {
    let id = &cloud.id;
    if let Some(why) = cannot_adopt_now(job, gate) {
        return Some(why);
    }
    if let Some(copy) = job.copies.iter().find(|copy| *copy != id) {
        return Some(format!("{copy} carries a mark of ours and is not seen ended: stop it first"));
    }
    if !gate.verified {
        return Some("the cloud was not yet compared with the store since the start".to_owned());
    }
    if let Some(why) = &gate.new_store {
        return Some(why.clone());
    }
    let stamps = [&cloud.stamp.name, &cloud.stamp.tag, &cloud.stamp.env];
    if let Some((owner, _)) = stamps.into_iter().flatten().find(|(owner, _)| *owner != gate.owner) {
        return Some(format!(
            "{id} carries the mark of another installation (owner {owner}), which resubmits it"
        ));
    }
    why_not_running(cloud).map(|why| format!("{id} {why}"))
}

fn why_not_running(cloud: &CloudJob) -> Option<String> {
    let word = cloud.status.word();
    match &cloud.status {
        Status::Succeeded | Status::Failed | Status::Stopped => {
            Some(format!("has ended ({word}): there is nothing to adopt"))
        }
        Status::SucceededReserving | Status::FailedReserving => {
            Some(format!("is {word}: its result is decided"))
        }
        Status::Stopping => Some("is being stopped: wait for its end".to_owned()),
        Status::Creating
        | Status::Queuing
        | Status::Bidding
        | Status::EnvPreparing
        | Status::SanityChecking
        | Status::Running
        | Status::Restarting
        | Status::Other(_) => None,
    }
}

/// Takes it as the next attempt. The job goes on with it, whatever it was before.
pub(super) fn on_adopt(draft: &mut Draft<'_>, cloud: CloudJob, place: Place, mark: Option<Mark>) {
    let id = &cloud.id;
    if let Some(why) = cannot_adopt(&draft.next, &draft.given.gate, &cloud) {
        on_refused(draft, id, &why, true);
        return;
    }
    let next = &mut draft.next;
    // Under its own number its own mark is good: its launcher prints that number. A number that is
    // taken by now would make another's lines of it.
    let own = sighting::stamped_no(&cloud).filter(|no| *no >= next.next_attempt);
    let (no, mark) = match (mark, own) {
        (Some(mark), Some(no)) => (no, mark),
        (Some(_) | None, _) => (next.next_attempt, draft.given.mark.clone()),
    };
    next.next_attempt = no + 1;
    next.result = None;
    next.block = None;
    next.unjudged = None;
    next.wanted = Wanted::Run;
    next.progress.hopeless = 0;
    // What went before is no time without progress of this one.
    next.progress.since = None;
    draft.say_with(
        Some(no),
        Word::Operator,
        format!("adopt {id}: a person says that it is the running attempt"),
        serde_json::json!({ "id": id }),
    );
    sighting::adopt(draft, &Sighting { mark, cloud, place }, no, None);
}

/// It is not taken. Where nobody is there to be told, the job waits: what the person meant may run.
pub(super) fn on_refused(draft: &mut Draft<'_>, id: &CloudId, why: &str, told: bool) {
    let why = kept(why);
    draft.say(None, Word::Operator, format!("adopt {id}: nothing is done: {why}"));
    if !told {
        let paused = if draft.next.wanted == Wanted::Hold {
            "; the job stays paused until `resume`"
        } else {
            ""
        };
        let text = format!("{id} was not adopted{paused}: {why}");
        draft.say(None, Word::Alarm, text);
    }
}
