//! What the cloud's answers mean for an attempt.

use super::event::Word;
use super::identity::{Proof, prove};
use super::job::{
    Attempt, AttemptState, BlockKind, EndedAttempt, OutcomeKind, Recovery, Start, StopWhy,
};
use super::retry;
use super::scan::{HOPELESS_LIMIT, block};
use super::step::{Draft, Effect, Impossible, Pass, Past, ask_stops};
use super::verdict::{self, Cause, LogEnd, Told, Verdict};
use crate::model::checkpoint::{Pin, Position, ResumePoint};
use crate::model::cloud::{CloudJob, SendOutcome, Status};
use crate::model::ids::{AttemptNo, CloudId, Mark};
use crate::model::spec::Place;
use crate::model::time::human;
use std::time::Duration;

/// Complete passes, each begun after the request could no longer be accepted, that prove an
/// attempt absent.
pub const ABSENT_PASSES: u8 = 3;

pub(super) fn on_sent(
    draft: &mut Draft<'_>,
    no: AttemptNo,
    outcome: SendOutcome,
) -> Result<(), Impossible> {
    let Some(at) = draft.next.open.iter().position(|a| a.no == no) else {
        // A pass saw it created and ended before the reply was read.
        return Ok(());
    };
    match (&draft.next.open[at].state, outcome) {
        (AttemptState::Live { id, .. }, SendOutcome::Accepted { id: answered }) => {
            // A pass found it first; the reply says the same.
            if *id == answered {
                return Ok(());
            }
            return Err(Impossible {
                job: draft.next.key.to_string(),
                no,
                what: format!("one mark, two ids: {id} and {answered}"),
            });
        }
        (AttemptState::Live { .. }, SendOutcome::Unknown { .. }) => {}
        (
            AttemptState::Live { id, .. },
            SendOutcome::NotSent { why } | SendOutcome::Refused { message: why, .. },
        ) => {
            return Err(Impossible {
                job: draft.next.key.to_string(),
                no,
                what: format!("{id} exists although its CreateJob was not accepted: {why}"),
            });
        }
        (_, SendOutcome::Accepted { id }) => {
            draft.say_with(
                Some(no),
                Word::Submitted,
                id.to_string(),
                serde_json::json!({ "id": id }),
            );
            go_live(draft, at, id, Status::Creating);
        }
        (_, SendOutcome::NotSent { why }) => {
            draft.say(Some(no), Word::Absent, format!("not sent: {why}"));
            drop_uncreated(draft, at, &why);
            wait_unsent(draft, &why);
        }
        (_, SendOutcome::Refused { code, message, passing }) => {
            let why = format!("{code}: {message}");
            draft.say(Some(no), Word::Refused, why.clone());
            drop_uncreated(draft, at, &why);
            if !passing {
                draft.next.progress.hopeless += 1;
                if draft.next.progress.hopeless >= HOPELESS_LIMIT {
                    block(draft, BlockKind::NeverStarts, format!("refused three times: {why}"));
                }
            }
            wait_unsent(draft, &why);
        }
        (AttemptState::Unknown { .. }, SendOutcome::Unknown { .. }) => {}
        (AttemptState::Intended, SendOutcome::Unknown { why }) => {
            draft.say(Some(no), Word::Unknown, format!("no readable answer: {why}; searching"));
            let attempt = &mut draft.next.open[at];
            attempt.state = AttemptState::Unknown { since: draft.given.now.boot, passes: 0 };
            draft.effects.push(Effect::SweepSoon(attempt.place.clone()));
        }
    }
    Ok(())
}

fn wait_unsent(draft: &mut Draft<'_>, why: &str) {
    draft.next.progress.unsent += 1;
    draft.wait(retry::after_fault(draft.next.progress.unsent), why);
}

/// Takes an attempt that created nothing out of the open ones.
fn drop_uncreated(draft: &mut Draft<'_>, at: usize, why: &str) {
    let attempt = draft.next.open.remove(at);
    draft.ended.push(EndedAttempt {
        attempt,
        id: None,
        ended: draft.given.now.wall,
        ran: Duration::ZERO,
        verdict: verdict::never_created(why),
    });
    draft.next.recovery = Recovery::look();
}

fn go_live(draft: &mut Draft<'_>, at: usize, id: CloudId, status: Status) {
    draft.next.created += 1;
    draft.next.progress.unsent = 0;
    draft.next.open[at].state = AttemptState::Live { id, status, running: None, restarts: 0 };
    ask_stops(draft);
}

/// A cloud job that carries one of our marks, and where it was seen.
pub(super) struct Sighting {
    pub(super) mark: Mark,
    pub(super) cloud: CloudJob,
    pub(super) place: Place,
}

pub(super) fn on_seen(draft: &mut Draft<'_>, sighting: &Sighting, past: &Past) {
    let Sighting { mark, cloud, .. } = sighting;
    if let Some(at) = draft.next.open.iter().position(|a| a.mark == *mark) {
        on_seen_open(draft, at, cloud);
        return;
    }
    match past {
        Past::Ended(ended) if ended.id == cloud.id => {
            // A list row may lag behind; only the job itself can say that it runs again.
            if cloud.whole && !cloud.status.is_end() && !is_reserving(&cloud.status) {
                draft.say(Some(ended.no), Word::Returned, format!("{} runs again", cloud.id));
                adopt(draft, sighting, ended.no, None);
            }
        }
        Past::Ended(ended) => note_copy(draft, cloud, ended.no, "its mark belongs to another job"),
        Past::NeverCreated { no, intended } => {
            match prove(
                cloud,
                &draft.given.gate.owner,
                mark,
                *intended,
                draft.given.gate.acceptance,
                draft.given.gate.own_user.as_deref(),
            ) {
                // A late one is created outside the window: that is what makes it late.
                Proof::NotProved { why } if !is_late(cloud, *intended) => {
                    note_copy(draft, cloud, *no, &why);
                }
                Proof::Ours | Proof::NotProved { .. } => on_late(draft, sighting, *no),
            }
        }
        Past::Stranger => on_stranger(draft, sighting),
    }
}

fn is_late(cloud: &CloudJob, intended: crate::model::time::WallTime) -> bool {
    let stamp = &cloud.stamp;
    stamp.name.is_some()
        && (stamp.tag == stamp.name || stamp.env == stamp.name)
        && cloud.created.is_none_or(|created| created >= intended)
}

fn is_reserving(status: &Status) -> bool {
    matches!(status, Status::SucceededReserving | Status::FailedReserving)
}

/// An attempt that was proved never created was created after all. The attempt on record survives;
/// the late one is stopped, or taken up where nothing else is open.
fn on_late(draft: &mut Draft<'_>, sighting: &Sighting, no: AttemptNo) {
    let cloud = &sighting.cloud;
    if cloud.status.is_end() {
        return;
    }
    let twin = !draft.next.open.is_empty() || draft.next.result.is_some();
    if twin {
        draft.say(Some(no), Word::Twin, format!("{} came late; it is stopped", cloud.id));
        draft.say(Some(no), Word::Alarm, format!("two jobs of ours at one time: {}", cloud.id));
        adopt(draft, sighting, no, Some(StopWhy::Twin));
    } else {
        draft.say(Some(no), Word::Returned, format!("{} came late; it is taken up", cloud.id));
        adopt(draft, sighting, no, None);
    }
}

/// A job with our owner that no record knows: the store is new or older than the cloud.
fn on_stranger(draft: &mut Draft<'_>, sighting: &Sighting) {
    let cloud = &sighting.cloud;
    let stamp = &cloud.stamp;
    if stamp.name.is_none() || (stamp.tag != stamp.name && stamp.env != stamp.name) {
        note_copy(draft, cloud, draft.next.next_attempt, "its stamps do not agree");
        return;
    }
    if stamp.run.is_some_and(|run| run != draft.next.key.run) {
        note_copy(draft, cloud, draft.next.next_attempt, "it belongs to another run of this job");
        return;
    }
    let no = stamp.attempt.unwrap_or(0).max(draft.next.next_attempt);
    draft.next.next_attempt = no + 1;
    draft.say(Some(no), Word::Found, format!("{} is ours and was not on record", cloud.id));
    adopt(draft, sighting, no, None);
}

/// Puts a cloud job on record as attempt `no`.
fn adopt(draft: &mut Draft<'_>, sighting: &Sighting, no: AttemptNo, stop: Option<StopWhy>) {
    let cloud = &sighting.cloud;
    let start = match &cloud.stamp.resume_path {
        None => Start::Fresh,
        Some(path) => Start::From(ResumePoint {
            path: path.clone(),
            root: ".".to_owned(),
            step: cloud.stamp.resume_step,
            epoch: None,
            position: Position { epoch: 0, step: cloud.stamp.resume_step.unwrap_or(0) },
            format: String::new(),
            argument: String::new(),
            pin: Pin::OwnChoice,
        }),
    };
    let cancelled = draft.next.wanted == super::job::Wanted::Cancel;
    draft.next.open.push(Attempt {
        no,
        mark: sighting.mark.clone(),
        spec: draft.next.spec.clone(),
        target: draft.given.spec.target.clone(),
        place: sighting.place.clone(),
        start,
        bid: draft.given.spec.spot,
        intended: cloud.created.unwrap_or(draft.given.now.wall),
        state: AttemptState::Intended,
        stop: stop.or(cancelled.then_some(StopWhy::Cancel)),
    });
    let at = draft.next.open.len() - 1;
    go_live(draft, at, cloud.id.clone(), Status::Creating);
    on_seen_open(draft, at, cloud);
}

/// A job that carries our mark and is not proved ours: left alone, holds the next submission.
fn note_copy(draft: &mut Draft<'_>, cloud: &CloudJob, no: AttemptNo, why: &str) {
    let known = draft.next.copies.iter().position(|id| *id == cloud.id);
    match known {
        Some(at) if cloud.status.is_end() => {
            draft.next.copies.remove(at);
            draft.say(Some(no), Word::Copy, format!("{} ended", cloud.id));
        }
        None if !cloud.status.is_end() => {
            draft.next.copies.push(cloud.id.clone());
            draft.say(
                Some(no),
                Word::Copy,
                format!(
                    "{} carries our mark and is not proved ours: {why}; it is left alone",
                    cloud.id
                ),
            );
            draft.say(
                Some(no),
                Word::Alarm,
                format!("nothing is submitted while {} runs", cloud.id),
            );
        }
        Some(_) | None => {}
    }
}

fn on_seen_open(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let attempt = &draft.next.open[at];
    let no = attempt.no;
    match &attempt.state {
        AttemptState::Live { id, .. } if *id != cloud.id => {
            note_copy(draft, cloud, no, "its mark belongs to another job");
            return;
        }
        AttemptState::Live { .. } => {}
        AttemptState::Intended | AttemptState::Unknown { .. } => {
            let proof = prove(
                cloud,
                &draft.given.gate.owner,
                &attempt.mark,
                attempt.intended,
                draft.given.gate.acceptance,
                draft.given.gate.own_user.as_deref(),
            );
            if let Proof::NotProved { why } = proof {
                note_copy(draft, cloud, no, &why);
                return;
            }
            draft.say_with(
                Some(no),
                Word::Found,
                format!("{} was created", cloud.id),
                serde_json::json!({ "id": cloud.id }),
            );
            go_live(draft, at, cloud.id.clone(), Status::Creating);
        }
    }
    if cloud.status.is_end() {
        on_end(draft, at, cloud);
    } else {
        on_status(draft, at, cloud);
    }
}

fn on_status(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let AttemptState::Live { id, status, running, restarts } = draft.next.open[at].state.clone()
    else {
        return;
    };
    let no = draft.next.open[at].no;
    if status != cloud.status {
        let known = if matches!(cloud.status, Status::Other(_)) {
            " (a word spotkeeper does not know: still active)"
        } else {
            ""
        };
        draft.say(
            Some(no),
            Word::Phase,
            format!("{} -> {}{known}", status.word(), cloud.status.word()),
        );
    }
    if cloud.restarts > restarts {
        draft.say(
            Some(no),
            Word::RestartedInPlace,
            format!("the platform restarted {id} itself, {} times so far", cloud.restarts),
        );
    }
    draft.next.open[at].state = AttemptState::Live {
        id,
        status: cloud.status.clone(),
        running: cloud.running.or(running),
        restarts: cloud.restarts.max(restarts),
    };
}

fn on_end(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let attempt = draft.next.open.remove(at);
    let no = attempt.no;
    let ran = running_time(cloud);
    let verdict = verdict::judge(cloud, &attempt, ran, time_limit(draft));
    let twin = attempt.stop == Some(StopWhy::Twin);
    let ended = EndedAttempt {
        id: Some(cloud.id.clone()),
        ended: cloud.finished.unwrap_or(draft.given.now.wall),
        ran,
        verdict,
        attempt,
    };
    tell_end(draft, no, cloud, &ended.verdict, ran);
    draft.next.tally.count(ended.verdict.cause, 1);
    draft.next.progress.ran += ran;
    draft.next.progress.ran_since += ran;
    draft.ended.push(ended.clone());
    let succeeded = ended.verdict.cause == Cause::Succeeded;
    if !succeeded && !cloud.pods.is_empty() {
        draft
            .effects
            .push(Effect::Logs { ended: Box::new(ended.clone()), pods: cloud.pods.clone() });
    }
    if twin || draft.next.result.is_some() {
        return;
    }
    draft.next.recovery = Recovery::look();
    let believed = draft.given.spec.total_steps.is_none() || draft.given.spec.checkpoint.is_none();
    if succeeded && believed {
        draft.next.unjudged = None;
        draft.finish(OutcomeKind::Succeeded, "it ended well");
    } else {
        draft.next.unjudged = Some(ended);
    }
}

fn tell_end(
    draft: &mut Draft<'_>,
    no: AttemptNo,
    cloud: &CloudJob,
    verdict: &Verdict,
    ran: Duration,
) {
    let word = match verdict.cause {
        Cause::Released => Word::Released,
        Cause::StoppedByUs => Word::Stopped,
        Cause::UserError
        | Cause::NeverStarted
        | Cause::Succeeded
        | Cause::EndedEarly
        | Cause::StoppedByPerson
        | Cause::StoppedUnexplained
        | Cause::TimeLimit
        | Cause::NeverCreated
        | Cause::Unexplained => Word::Ended,
    };
    draft.say_with(
        Some(no),
        word,
        format!("{} after running {}", cloud.status.word(), human(ran)),
        serde_json::json!({ "id": cloud.id, "status": cloud.status.word() }),
    );
    draft.say_with(
        Some(no),
        Word::Verdict,
        format!("{} (rule {})", verdict.cause.word(), verdict.rule),
        serde_json::json!({
            "cause": verdict.cause, "rule": verdict.rule, "evidence": verdict.evidence,
        }),
    );
}

/// How long UserCommand ran, by the server's own times.
fn running_time(cloud: &CloudJob) -> Duration {
    match (cloud.duration_s, cloud.running, cloud.finished) {
        (_, Some(running), Some(finished)) => finished.since(running),
        (Some(seconds), _, _) => Duration::from_secs(seconds),
        (None, _, _) => Duration::ZERO,
    }
}

/// The running time limit that was sent, if one was.
fn time_limit(draft: &Draft<'_>) -> Option<Duration> {
    let minutes = draft.given.spec.body.get("JobMaxRunningTimeMinutes")?.as_u64()?;
    (minutes > 0).then(|| Duration::from_secs(minutes.saturating_mul(60)))
}

pub(super) fn on_swept(draft: &mut Draft<'_>, pass: &Pass) {
    let acceptance = draft.given.gate.acceptance;
    for attempt in draft.next.open.iter_mut().filter(|a| a.place == pass.place) {
        let AttemptState::Unknown { since, passes } = &mut attempt.state else { continue };
        let too_late_for_us = pass.started >= since.plus(acceptance);
        let too_late_there =
            pass.server.is_none_or(|server| server >= attempt.intended.plus(acceptance));
        if pass.complete && too_late_for_us && too_late_there {
            *passes = passes.saturating_add(1);
        }
    }
    while let Some(at) = draft.next.open.iter().position(|attempt| match attempt.state {
        AttemptState::Unknown { passes, .. } => passes >= ABSENT_PASSES,
        AttemptState::Intended | AttemptState::Live { .. } => false,
    }) {
        let no = draft.next.open[at].no;
        let why = "its CreateJob can no longer be accepted, and three complete passes lack it";
        draft.say(Some(no), Word::Absent, why);
        drop_uncreated(draft, at, why);
    }
    // A stop that was asked for and did not begin is asked for again.
    let again: Vec<Effect> = draft
        .next
        .open
        .iter()
        .filter(|attempt| attempt.stop.is_some() && attempt.place == pass.place)
        .filter_map(|attempt| match &attempt.state {
            AttemptState::Live { id, status, .. } if *status != Status::Stopping => {
                Some(Effect::Stop { no: attempt.no, id: id.clone() })
            }
            AttemptState::Live { .. } | AttemptState::Intended | AttemptState::Unknown { .. } => {
                None
            }
        })
        .collect();
    draft.effects.extend(again);
}

/// Logs come after the verdict that was enough to act on; they may explain what it could not.
pub(super) fn on_logs(draft: &mut Draft<'_>, mut ended: EndedAttempt, pods: &[LogEnd]) {
    let Some(amended) = verdict::amend(&ended.verdict, pods) else { return };
    let no = ended.attempt.no;
    draft.say_with(
        Some(no),
        Word::Verdict,
        format!(
            "amended by the logs: {} (rule {}), was {}",
            amended.cause.word(),
            amended.rule,
            ended.verdict.cause.word()
        ),
        serde_json::json!({
            "cause": amended.cause, "rule": amended.rule, "evidence": amended.evidence,
        }),
    );
    if amended.cause == Cause::Released {
        draft.say(Some(no), Word::Released, "its log lacks the launcher's last line");
    }
    if let Some(unjudged) = &mut draft.next.unjudged
        && unjudged.attempt.no == no
    {
        unjudged.verdict = amended.clone();
    }
    let progress = &mut draft.next.progress;
    if progress.last_look.as_ref() == Some(&ended.verdict.look)
        && amended.look.told == Told::FromOutside
    {
        progress.alike_halves = 0;
        progress.last_look = Some(amended.look.clone());
    }
    draft.next.tally.count(ended.verdict.cause, -1);
    draft.next.tally.count(amended.cause, 1);
    ended.verdict = amended;
    draft.ended.push(ended);
}
