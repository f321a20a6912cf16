//! A cloud job that carries one of our marks: which attempt it is, or whose else.
//!
//! What always holds: a job that is not proved ours is never stopped and never taken for an
//! attempt; while it is not seen ended, it holds the next submission. An attempt on record
//! survives; a second one of ours beside it, or beside one of another job that writes to the same
//! prefix, is stopped.

use super::event::Word;
use super::identity::{Proof, prove};
use super::job::{Attempt, AttemptState, Start, StopWhy, Wanted, kept};
use super::overlap::{self, Span};
use super::seen::{go_live, on_seen_open};
use super::step::{Draft, Effect, EndedRef, Past};
use super::stops::Asked;
use super::terms::Terms;
use super::verdict::Cause;
use crate::model::checkpoint::{Pin, Position, ResumePoint, Tracker};
use crate::model::cloud::{CloudJob, Status};
use crate::model::ids::{AttemptNo, Mark};
use crate::model::spec::{FirstStart, Place};
use crate::model::time::WallTime;
use std::time::Duration;

/// A job that was created when nobody expected it any more: its time says nothing.
const ANY_TIME: Duration = Duration::from_secs(u32::MAX as u64);
/// Attempts of one job that are followed at one time; more than one is an accident already.
const OPEN_LIMIT: usize = 4;
/// Copies of one job that are kept by id; one is enough to hold the next submission.
const COPIES_LIMIT: usize = 16;
/// A number above this in a stamp is not one of ours.
const ATTEMPT_NO_LIMIT: AttemptNo = 1_000_000_000;

/// A cloud job that carries one of our marks, and where it was seen.
pub(super) struct Sighting {
    pub(super) mark: Mark,
    pub(super) cloud: CloudJob,
    pub(super) place: Place,
}

/// The number of the attempt as which it was sent.
pub(super) fn stamped_no(cloud: &CloudJob) -> Option<AttemptNo> {
    cloud.stamp.attempt.filter(|no| *no < ATTEMPT_NO_LIMIT)
}

pub(super) fn on_seen(draft: &mut Draft<'_>, sighting: &Sighting, past: &Past) {
    let Sighting { mark, cloud, .. } = sighting;
    if let Some(at) = draft.next.open.iter().position(|a| a.mark == *mark) {
        on_seen_open(draft, at, cloud);
        return;
    }
    match past {
        // A list row may lag behind; only the job itself can say that it runs again, and a word
        // that nobody knows does not say so.
        Past::Ended(ended) if ended.id == cloud.id => {
            if cloud.whole && is_active(&cloud.status) {
                overlap::note_unseen(draft, ended, draft.given.now.wall);
                uncount(draft, ended);
                take_back(draft, sighting, ended.no, "runs again");
            } else if cloud.whole && cloud.status.is_end() && ended.cause == Cause::Lost {
                let until = cloud.finished.unwrap_or(draft.given.now.wall);
                overlap::note_unseen(draft, ended, until);
                see_end_of_lost(draft, sighting, ended);
            }
        }
        Past::Ended(ended) => note_copy(draft, cloud, ended.no, "its mark belongs to another job"),
        Past::NeverCreated { no, intended } => match proof(draft, sighting, *intended) {
            Proof::NotProved { why } => note_copy(draft, cloud, *no, &why),
            // It decides nothing any more, but it may have written beside another one, and it may
            // have been noted as a copy before its attempt was proved absent.
            Proof::Ours if cloud.status.is_end() => {
                note_copy(draft, cloud, *no, "it came late");
                note_late(draft, cloud, *no);
            }
            Proof::Ours => take_back(draft, sighting, *no, "came late"),
        },
        Past::Stranger => on_stranger(draft, sighting),
    }
}

/// Whether a job is ours, whenever it was created after `earliest`.
fn proof(draft: &Draft<'_>, sighting: &Sighting, earliest: WallTime) -> Proof {
    let gate = &draft.given.gate;
    let own_user = gate.own_user.as_deref();
    prove(&sighting.cloud, &gate.owner, &sighting.mark, earliest, ANY_TIME, own_user)
}

/// Whether a job that was seen ended goes on after all.
fn is_active(status: &Status) -> bool {
    match status {
        Status::Creating
        | Status::Queuing
        | Status::Bidding
        | Status::EnvPreparing
        | Status::SanityChecking
        | Status::Running
        | Status::Restarting
        | Status::Stopping => true,
        Status::SucceededReserving
        | Status::FailedReserving
        | Status::Succeeded
        | Status::Failed
        | Status::Stopped
        | Status::Other(_) => false,
    }
}

/// An attempt that was believed gone or never created shows up alive. The attempt on record
/// survives; this one is stopped, or taken up where nothing else is open and no other job writes to
/// its prefix.
fn take_back(draft: &mut Draft<'_>, sighting: &Sighting, no: AttemptNo, what: &str) {
    let id = &sighting.cloud.id;
    let is_alone = draft.next.open.is_empty() && draft.given.gate.writer.is_none();
    if is_alone && draft.next.result.is_none() {
        draft.say(Some(no), Word::Returned, format!("{id} {what}; it is taken up"));
        adopt(draft, sighting, no, None);
    } else {
        draft.say(Some(no), Word::Twin, format!("{id} {what}; it is stopped"));
        draft.say(Some(no), Word::Alarm, format!("a job of ours that nobody awaits: {id}"));
        adopt(draft, sighting, no, Some(StopWhy::Twin));
    }
}

/// An end that was counted is none: it is counted again when it is seen ended again.
fn uncount(draft: &mut Draft<'_>, ended: &EndedRef) {
    let next = &mut draft.next;
    next.created = next.created.saturating_sub(1);
    next.tally.count(ended.cause, -1);
    next.progress.ran = next.progress.ran.saturating_sub(ended.ran);
    next.progress.ran_since = next.progress.ran_since.saturating_sub(ended.ran);
}

/// One that was given up as lost shows up with its end: history gets the true one, and when it ran. It
/// decides something only if nothing was decided on the loss yet, or if the work is done.
fn see_end_of_lost(draft: &mut Draft<'_>, sighting: &Sighting, ended: &EndedRef) {
    let (id, no) = (&sighting.cloud.id, ended.no);
    draft.say(Some(no), Word::Returned, format!("{id} is known to DLC again: it had ended"));
    uncount(draft, ended);
    let before = (draft.next.unjudged.clone(), draft.next.recovery.clone());
    let is_undecided = before.0.as_ref().is_some_and(|unjudged| unjudged.attempt.no == no);
    adopt(draft, sighting, no, None);
    if !is_undecided && sighting.cloud.status != Status::Succeeded {
        (draft.next.unjudged, draft.next.recovery) = before;
    }
}

/// One that was believed never created ran and ended before it was seen.
fn note_late(draft: &mut Draft<'_>, cloud: &CloudJob, no: AttemptNo) {
    let now = draft.given.now.wall;
    if let Some(from) = cloud.running {
        let from = cloud.created.map_or(from, |created| from.max(created));
        let until = cloud.finished.map_or(now, |finished| overlap::credible(draft, finished));
        overlap::note(draft, Span { no, from, until });
    }
}

/// A job with our owner that no record knows: the store is new or older than the cloud.
fn on_stranger(draft: &mut Draft<'_>, sighting: &Sighting) {
    let cloud = &sighting.cloud;
    let next = draft.next.next_attempt;
    let created = cloud.created.unwrap_or(draft.given.now.wall);
    if let Proof::NotProved { why } = proof(draft, sighting, created) {
        note_copy(draft, cloud, next, &why);
        return;
    }
    if cloud.stamp.run.is_some_and(|run| run != draft.next.key.run) {
        note_copy(draft, cloud, next, "it belongs to another run of this job");
        return;
    }
    let stamped = stamped_no(cloud);
    let later = stamped.is_some_and(|no| no >= next);
    if cloud.status.is_end() && !later {
        // It ended before what is on record: history that was let go.
        note_copy(draft, cloud, next, "it is older than the record");
        return;
    }
    let no = stamped.unwrap_or(next).max(next);
    draft.next.next_attempt = no + 1;
    draft.say(Some(no), Word::Found, format!("{} is ours and was not on record", cloud.id));
    if later {
        // It was submitted after that end: a person had asked for more.
        draft.next.result = None;
    }
    if cloud.status.is_end() {
        return adopt(draft, sighting, no, None);
    }
    if !draft.next.open.is_empty() {
        draft.say(Some(no), Word::Alarm, format!("two jobs of ours at one time: {}", cloud.id));
    }
    // An earlier store had sent it, and it may have come late: another job writes there by now.
    let writer = draft.given.gate.writer.clone();
    if let Some(writer) = &writer {
        let text = format!("{writer} writes to its checkpoint prefix: {} is stopped", cloud.id);
        draft.say(Some(no), Word::Twin, text.clone());
        draft.say(Some(no), Word::Alarm, text);
    }
    adopt(draft, sighting, no, writer.map(|_| StopWhy::Twin));
}

/// Puts a cloud job on record as attempt `no`.
pub(super) fn adopt(
    draft: &mut Draft<'_>,
    sighting: &Sighting,
    no: AttemptNo,
    stop: Option<StopWhy>,
) {
    let cloud = &sighting.cloud;
    if draft.next.open.len() >= OPEN_LIMIT {
        note_copy(draft, cloud, no, "more attempts are open than can be followed");
        return;
    }
    let start = match &cloud.stamp.resume_path {
        None => Start::Fresh,
        Some(path) => Start::From(ResumePoint {
            path: kept(path),
            root: ".".to_owned(),
            step: cloud.stamp.resume_step,
            epoch: None,
            position: Position { epoch: 0, step: cloud.stamp.resume_step.unwrap_or(0) },
            format: String::new(),
            argument: String::new(),
            pin: Pin::OwnChoice,
            tracker: Tracker::Fits,
            parts: Vec::new(),
        }),
    };
    let spec = draft.given.spec;
    let began_fresh = spec.checkpoint.as_ref().is_some_and(|c| c.first_start == FirstStart::Fresh);
    if began_fresh && start == Start::Fresh && draft.next.progress.fresh_since.is_none() {
        draft.next.progress.fresh_since = cloud.created;
    }
    // One that was noted as a copy before is followed as an attempt from now on.
    draft.next.copies.retain(|copy| *copy != cloud.id);
    let cancelled = draft.next.wanted == Wanted::Cancel;
    if cancelled && stop.is_none() && !cloud.status.is_end() {
        draft.say(Some(no), Word::StopAsked, "stop: the job was cancelled");
    }
    draft.next.open.push(Attempt {
        no,
        mark: sighting.mark.clone(),
        spec: draft.next.spec.clone(),
        target: spec.target.clone(),
        place: sighting.place.clone(),
        start,
        // Nobody knows what it was sent with.
        bid: None,
        intended: cloud.created.unwrap_or(draft.given.now.wall),
        state: AttemptState::Intended,
        stop: stop.or(cancelled.then_some(StopWhy::Cancel)),
        asked: Asked::default(),
        terms: Some(Terms::found(spec, draft.given.gate.acceptance)),
    });
    let at = draft.next.open.len() - 1;
    go_live(draft, at, cloud.id.clone(), Status::Creating);
    on_seen_open(draft, at, cloud);
    // What has ended already is not stopped.
    let open: Vec<AttemptNo> = draft.next.open.iter().map(|attempt| attempt.no).collect();
    draft.effects.retain(|effect| !matches!(effect, Effect::Stop { no, .. } if !open.contains(no)));
}

/// A job that carries our mark and is not proved ours: left alone, holds the next submission.
pub(super) fn note_copy(draft: &mut Draft<'_>, cloud: &CloudJob, no: AttemptNo, why: &str) {
    let id = &cloud.id;
    let known = draft.next.copies.iter().position(|copy| copy == id);
    match known {
        Some(at) if cloud.status.is_end() => {
            draft.next.copies.remove(at);
            draft.say(Some(no), Word::Copy, format!("{id} ended"));
        }
        None if !cloud.status.is_end() && draft.next.copies.len() < COPIES_LIMIT => {
            draft.next.copies.push(id.clone());
            let text = format!("{id} carries our mark and is not proved ours: {why}");
            draft.say(Some(no), Word::Copy, format!("{text}; it is left alone"));
            draft.say(Some(no), Word::Alarm, format!("nothing is submitted while {id} runs"));
        }
        Some(_) | None => {}
    }
}
