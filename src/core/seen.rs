//! What the cloud's answers mean for an attempt.

use super::event::Word;
use super::hang::Hang;
use super::identity::{Proof, mark_of, prove};
use super::job::{
    Attempt, AttemptState, BlockKind, EndedAttempt, Missing, OutcomeKind, Recheck, StopWhy, Wanted,
};
use super::overlap;
use super::progress::{HOPELESS_LIMIT, TOO_SOON};
use super::retry;
use super::runs::{self, Ran};
use super::scan::block;
use super::sighting::note_copy;
use super::step::{Draft, Effect, Impossible, Pass};
use super::stops;
use super::terms;
use super::verdict::{self, Cause, LogEnd, Told, Verdict};
use super::waiting::{self, Wait};
use super::watch::Watch;
use crate::model::cloud::{CloudJob, SendOutcome, Status};
use crate::model::ids::{AttemptNo, CloudId};
use crate::model::time::{WallTime, human};
use std::time::Duration;

/// Complete passes, each begun after the request could no longer be accepted, that prove an
/// attempt absent.
pub const ABSENT_PASSES: u8 = 3;
/// What a `*Reserving` status means for a person.
const MACHINE_HELD: &str = " (its result is decided; the machine is still held, and may be paid for, until the final word)";
/// No attempt ran longer than this, whatever an answer says.
const RAN_LIMIT: Duration = Duration::from_secs(10 * 365 * 86_400);

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
                    block(draft, BlockKind::NeverStarts, &format!("refused three times: {why}"));
                }
            }
            wait_unsent(draft, &why);
        }
        (AttemptState::Intended | AttemptState::Unknown { .. }, SendOutcome::Unknown { why }) => {
            draft.say(Some(no), Word::Unknown, format!("no readable answer: {why}; searching"));
            // Only now can no more of it be on its way: passes before this prove nothing.
            let attempt = &mut draft.next.open[at];
            attempt.state = AttemptState::Unknown { since: draft.given.now.boot, passes: 0 };
            draft.effects.push(Effect::SweepSoon(attempt.place.clone()));
        }
    }
    Ok(())
}

/// The CreateJob in a row without a job at which a person is told.
const UNSENT_ALARM: u32 = 3;

fn wait_unsent(draft: &mut Draft<'_>, why: &str) {
    draft.next.progress.unsent += 1;
    if draft.next.progress.unsent == UNSENT_ALARM {
        draft.say(
            None,
            Word::Alarm,
            format!("{UNSENT_ALARM} CreateJobs in a row created nothing: {why}"),
        );
    }
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
    draft.next.look_next(draft.given.now.boot);
}

/// The attempt has an id. What was asked of it before can be sent now.
pub(super) fn go_live(draft: &mut Draft<'_>, at: usize, id: CloudId, status: Status) {
    draft.next.created += 1;
    draft.next.progress.unsent = 0;
    draft.next.open[at].state = AttemptState::Live {
        id,
        status,
        odd: None,
        running: None,
        restarts: 0,
        runs: runs::Runs::default(),
        recheck: Recheck::NotDue,
        missing: Missing::No,
        watch: Watch::default(),
        hang: Hang::default(),
        wait: Wait::begun(draft.given.now.wall),
    };
    stops::ask(draft);
}

/// An answer about an attempt that is open.
pub(super) fn on_seen_open(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let attempt = &draft.next.open[at];
    let no = attempt.no;
    match &attempt.state {
        AttemptState::Live { id, .. } if *id != cloud.id => {
            note_copy(draft, cloud, no, "its mark belongs to another job");
            return;
        }
        AttemptState::Live { missing, .. } => {
            if *missing != Missing::No {
                let text = format!("{} is known to DLC again", cloud.id);
                draft.say(Some(no), Word::Returned, text);
            }
        }
        AttemptState::Intended | AttemptState::Unknown { .. } => {
            let proof = prove(
                cloud,
                &draft.given.gate.owner,
                &attempt.mark,
                attempt.intended,
                attempt.acceptance(draft.given.gate.acceptance),
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
    if let AttemptState::Live { missing, .. } = &mut draft.next.open[at].state {
        *missing = Missing::No;
    }
    runs::note(draft, at, cloud);
    if cloud.status.is_end() {
        on_end(draft, at, cloud);
    } else {
        on_status(draft, at, cloud);
        waiting::on_shown(draft, at, cloud);
    }
}

fn on_status(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let now = draft.given.now.wall;
    let attempt = &mut draft.next.open[at];
    let no = attempt.no;
    let shown_before = attempt.state.shown();
    let AttemptState::Live { status, odd, running, restarts, .. } = &mut attempt.state else {
        return;
    };
    let note = if let Status::Other(word) = &cloud.status {
        *odd = Some(word.clone());
        " (a word spotkeeper does not know: still active)"
    } else {
        *odd = None;
        *status = cloud.status.clone();
        if status.holds_machine() { MACHINE_HELD } else { "" }
    };
    let now_running = (cloud.status == Status::Running).then_some(now);
    // Once it was restarted, what the server calls its beginning may be that of a later run.
    *running = if *restarts == 0 {
        cloud.running.or(*running).or(now_running)
    } else {
        running.or(cloud.running).or(now_running)
    };
    let shown = attempt.state.shown();
    if let (Some(before), Some(shown)) = (shown_before, shown)
        && before != shown
    {
        draft.say(Some(no), Word::Phase, format!("{} -> {}{note}", before.word(), shown.word()));
    }
}

fn on_end(draft: &mut Draft<'_>, at: usize, cloud: &CloudJob) {
    let attempt = draft.next.open.remove(at);
    let no = attempt.no;
    // A last answer without times does not undo what was seen before.
    let mut cloud = cloud.clone();
    // Once it was restarted, what the server calls its beginning may be that of a later run.
    let mut began = cloud.running;
    if let AttemptState::Live { running, .. } = &attempt.state {
        began = running.or(began);
        cloud.running = cloud.running.or(*running);
    }
    let cloud = &cloud;
    let ran = running_time(&attempt, cloud, draft.given.now.wall);
    let limit = match &attempt.terms {
        Some(terms) => terms.time_limit,
        None => terms::time_limit(draft.given.spec),
    };
    let mut verdict = verdict::judge(cloud, &attempt, ran, limit);
    let ran = ran.total;
    if draft.given.spec.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.fence) {
        verdict = verdict::with_fence(verdict);
    }
    // An earlier attempt that the fence turned away is a twin that came late: nothing was tried.
    let turned_away = verdict.cause == Cause::Fenced && no + 1 < draft.next.next_attempt;
    let twin = turned_away || attempt.stop == Some(StopWhy::Twin);
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
    // What it may have saved is never started over; one that never ran saved nothing.
    let never_ran = ended.verdict.cause == Cause::NeverStarted || !ended.verdict.look.ran;
    draft.next.progress.zero_asked &= never_ran;
    draft.ended.push(ended.clone());
    overlap::note_end(draft, &ended, began);
    let succeeded = ended.verdict.cause == Cause::Succeeded;
    // Only our own launcher writes the line that a log is read for.
    let owner = &draft.given.gate.owner;
    let is_launched = mark_of(cloud, owner).as_ref() == Some(&ended.attempt.mark);
    if !succeeded && is_launched && !cloud.pods.is_empty() {
        draft
            .effects
            .push(Effect::Logs { ended: Box::new(ended.clone()), pods: cloud.pods.clone() });
    }
    draft.next.look_next(draft.given.now.boot);
    // While a later attempt runs, the end of an earlier one decides nothing.
    let is_followed = draft.next.open.iter().any(|other| other.no > no && other.stop.is_none());
    if twin || is_followed || draft.next.result.is_some() {
        return;
    }
    if let Some(why) = waiting::gave_up(&ended).filter(|_| draft.next.wanted != Wanted::Cancel) {
        draft.next.unjudged = None;
        draft.say(Some(no), Word::Alarm, why.clone());
        draft.finish(OutcomeKind::Failed, why);
        return;
    }
    let look = &ended.verdict.look;
    let too_soon = look.ran && look.duration < TOO_SOON;
    let spec = draft.given.spec;
    let believed = spec.checkpoint.is_none() || (spec.total_steps.is_none() && !too_soon);
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
        | Cause::Fenced
        | Cause::Lost
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

/// How long UserCommand ran, by the server's own times as far as they are there.
fn running_time(attempt: &Attempt, cloud: &CloudJob, now: WallTime) -> Ran {
    let once =
        cloud.running.map_or(Duration::ZERO, |running| match (cloud.finished, cloud.duration_s) {
            (Some(finished), _) => finished.since(running),
            (None, Some(seconds)) => Duration::from_secs(seconds),
            (None, None) => now.since(running),
        });
    let once = once.min(RAN_LIMIT);
    match &attempt.state {
        AttemptState::Live { running, restarts: 1.., runs, .. } => {
            runs.ran(once, *running, cloud, now).at_most(RAN_LIMIT)
        }
        AttemptState::Live { .. } => Ran::once(once),
        AttemptState::Intended | AttemptState::Unknown { .. } => Ran::once(once),
    }
}

pub(super) fn on_swept(draft: &mut Draft<'_>, pass: &Pass) {
    for attempt in draft.next.open.iter_mut().filter(|a| a.place == pass.place) {
        let acceptance = attempt.acceptance(draft.given.gate.acceptance);
        let AttemptState::Unknown { since, passes } = &mut attempt.state else { continue };
        let too_late_for_us = pass.started >= since.plus(acceptance);
        let too_late_there =
            pass.server.is_none_or(|server| server >= attempt.intended.plus(acceptance));
        if !pass.same_caller {
            *passes = 0;
        }
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
    waiting::on_swept(draft, pass);
    stops::ask_again(draft, pass);
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
    if amended.look.told == Told::FromOutside {
        progress.suspicion.forgive(no);
    }
    draft.next.tally.count(ended.verdict.cause, -1);
    draft.next.tally.count(amended.cause, 1);
    ended.verdict = amended;
    draft.ended.push(ended);
}
