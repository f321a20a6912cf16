//! What an end means: whether the attempt made progress, whether its exit 0 is believed, and how ends
//! without progress are counted.
//!
//! What always holds: a new whole checkpoint is progress once, whether it was seen while the attempt
//! ran or after its end; one end never ends a job, but a success that is believed. What it must not
//! do: choose what the next attempt starts from ([`super::scan`]), or hold anything against a
//! checkpoint ([`super::suspects`]).

use super::event::Word;
use super::hang;
use super::job::{BlockKind, EarlyEnd, EndedAttempt, OutcomeKind, Progress, Start, StopWhy};
use super::retry;
use super::scan::block;
use super::step::Draft;
use super::suspects;
use super::verdict::{Cause, Told};
use super::watch::Watch;
use crate::model::checkpoint::{Findings, Position, Wholeness};
use crate::model::spec::OnStopped;
use crate::model::time::human;
use std::time::Duration;

/// Running time that counts as progress where no checkpoint can tell.
const PROGRESS_WITHOUT_CHECKPOINTS: Duration = Duration::from_secs(30 * 60);
/// An exit 0 this soon after UserCommand began is not believed by itself.
pub(super) const TOO_SOON: Duration = Duration::from_secs(60);
/// Attempts in a row that never ran, for a reason that does not pass, until a person is asked.
pub(super) const HOPELESS_LIMIT: u32 = 3;
/// The end without progress at which a person is told. Nothing is given up before.
const ALARM_AT_END: u32 = 3;

pub(super) fn note_best(draft: &mut Draft<'_>, findings: &Findings) {
    let Some(point) = &findings.chosen else { return };
    if draft.next.progress.best.is_none_or(|best| point.position > best) {
        suspects::clear_before(draft, point);
        draft.next.progress.best = Some(point.position);
        draft.next.progress.best_step = point.step;
        draft.next.progress.best_at = findings.chosen_candidate().and_then(|c| c.newest_object);
    }
}

/// Decides what follows the last end. Answers whether the next attempt may be prepared now.
pub(super) fn judge(draft: &mut Draft<'_>, findings: Option<&Findings>) -> bool {
    let Some(ended) = draft.next.unjudged.take() else { return true };
    let chosen = findings.and_then(|f| f.chosen.as_ref());
    let progress = match findings {
        // One that was seen while it ran is known by now, and was new then.
        Some(_) if ended.attempt.watch().is_some_and(Watch::made_progress) => true,
        Some(_) => {
            let baseline = baseline(&draft.next.progress, &ended.attempt.start);
            chosen.is_some_and(|point| Some(point.position) > baseline)
        }
        // It may have done nothing for all of that time.
        None if hung(&ended) => false,
        // What the runs before a restart in place did was done anew by the last one.
        None => ended.verdict.look.duration >= PROGRESS_WITHOUT_CHECKPOINTS,
    };
    match ended.verdict.cause {
        Cause::Succeeded if !is_early(draft, &ended, findings) => {
            draft.finish(OutcomeKind::Succeeded, "it ended well");
            return false;
        }
        Cause::Succeeded if ended_early_twice(draft, &ended) => {
            draft.say(
                Some(ended.attempt.no),
                Word::Alarm,
                "exit 0 twice from one resume point, too early: taken as success",
            );
            draft.finish(OutcomeKind::Succeeded, "it ended with 0 twice from one resume point");
            return false;
        }
        Cause::Succeeded => note_early(draft, &ended),
        Cause::StoppedByPerson => {
            block(
                draft,
                BlockKind::StoppedByOther,
                &format!("a person stopped attempt {}; `retry` goes on", ended.attempt.no),
            );
            return false;
        }
        Cause::StoppedUnexplained if draft.given.spec.retry.on_stopped == OnStopped::Hold => {
            block(
                draft,
                BlockKind::StoppedByOther,
                &format!(
                    "attempt {} was stopped, not by us, and nothing says why; `retry` goes on",
                    ended.attempt.no
                ),
            );
            return false;
        }
        // Stopped for a newer checkpoint that is not there any more: it waits as any other does.
        Cause::StoppedByUs if ended.attempt.stop == Some(StopWhy::Outdated) => {}
        Cause::StoppedByUs if hung(&ended) => {}
        Cause::StoppedByUs => return true,
        Cause::Released
        | Cause::UserError
        | Cause::NeverStarted
        | Cause::EndedEarly
        | Cause::StoppedUnexplained
        | Cause::TimeLimit
        | Cause::NeverCreated
        | Cause::Fenced
        | Cause::Lost
        | Cause::Unexplained => {}
    }
    if progress {
        reset_counts(draft);
        if let Some(point) = chosen {
            suspects::clear_before(draft, point);
        }
        return true;
    }
    if let Some(findings) = findings {
        suspects::note_end(draft, &ended, findings);
    }
    count_end(draft, &ended)
}

/// Where a checkpoint must stand to be progress. After a step back the newest one of all is not
/// chosen unless it is written anew.
pub(super) fn baseline(progress: &Progress, start: &Start) -> Option<Position> {
    let start = start.position();
    if progress.suspicion.marked().is_empty() { progress.best.max(start) } else { start }
}

pub(super) fn reset_counts(draft: &mut Draft<'_>) {
    let progress = &mut draft.next.progress;
    progress.ran_since = Duration::ZERO;
    progress.ends = 0;
    progress.hangs = 0;
    progress.since = None;
    progress.alike_halves = 0;
    progress.last_look = None;
    progress.hopeless = 0;
    progress.early = None;
}

/// Counts an end without progress, whatever its cause, and decides how long to wait. Answers
/// whether the next attempt may be prepared now: never.
fn count_end(draft: &mut Draft<'_>, ended: &EndedAttempt) -> bool {
    let look = &ended.verdict.look;
    let retry_spec = draft.given.spec.retry.clone();
    let progress = &mut draft.next.progress;
    progress.ends += 1;
    // Not the time of the end: this process or the bucket may have been away since.
    let since = *progress.since.get_or_insert(draft.given.now.wall);
    let weight = if look.told == Told::Nothing { 1 } else { 2 };
    progress.alike_halves = match &progress.last_look {
        _ if look.told == Told::FromOutside => 0,
        Some(last) if last.alike(look) => progress.alike_halves + weight,
        Some(_) | None => weight,
    };
    progress.last_look = Some(look.clone());
    progress.hangs = progress.hangs.saturating_add(u32::from(hung(ended)));
    progress.hopeless = if look.hopeless { progress.hopeless + 1 } else { 0 };
    let (ends, halves, hopeless) = (progress.ends, progress.alike_halves, progress.hopeless);
    let hangs = progress.hangs;
    if hopeless >= HOPELESS_LIMIT {
        let why = ended.verdict.evidence.join(", ");
        block(draft, BlockKind::NeverStarts, &format!("{hopeless} times it never ran: {why}"));
        return false;
    }
    if halves >= retry_spec.alike.saturating_mul(2) {
        let count = if look.told == Told::Nothing { halves } else { halves.div_ceil(2) };
        draft.say(None, Word::Alarm, "crash loop");
        draft.finish(
            OutcomeKind::Failed,
            format!(
                "crash loop: {count} ends in a row look alike ({}, after {}), none with a new checkpoint",
                ended.verdict.cause.word(),
                human(look.duration),
            ),
        );
        return false;
    }
    if hung(ended) && hangs >= retry_spec.alike {
        draft.say(None, Word::Alarm, "crash loop");
        let why = format!(
            "crash loop: {hangs} attempts hung and were stopped, none with a new checkpoint ({})",
            hang::warning(&ended.attempt).unwrap_or_default()
        );
        draft.finish(OutcomeKind::Failed, why);
        return false;
    }
    let without = draft.given.now.wall.since(since);
    if ends > ALARM_AT_END && without >= retry_spec.give_up {
        draft.say(None, Word::Alarm, "given up");
        draft.finish(
            OutcomeKind::Failed,
            format!("given up: {ends} ends without progress in {}", human(without)),
        );
        return false;
    }
    if ends == ALARM_AT_END {
        draft.say(None, Word::Alarm, format!("{ends} ends in a row without a new checkpoint"));
    }
    draft.wait(
        retry::after_end(ends),
        &format!("end {ends} without a new checkpoint ({})", ended.verdict.cause.word()),
    );
    false
}

/// Whether an attempt was stopped because it hung.
fn hung(ended: &EndedAttempt) -> bool {
    ended.attempt.was_to_stop(Some(ended.ended)) == Some(StopWhy::Hang)
        && ended.verdict.cause == Cause::StoppedByUs
}

/// Whether an exit 0 is too early to be believed. Where no checkpoint can tell, it never is.
fn is_early(draft: &Draft<'_>, ended: &EndedAttempt, findings: Option<&Findings>) -> bool {
    let Some(findings) = findings else { return false };
    let Some(total) = draft.given.spec.total_steps else {
        let look = &ended.verdict.look;
        return look.ran && look.duration < TOO_SOON && !has_moved(ended, findings);
    };
    let weights_only = findings
        .candidates
        .iter()
        .filter(|c| c.wholeness == Wholeness::WeightsOnly)
        .filter_map(|c| c.step);
    let whole = findings.chosen.as_ref().and_then(|point| point.step);
    let Some(newest) = weights_only.chain(whole).max() else { return true };
    if newest >= total {
        return false;
    }
    let started = match &ended.attempt.start {
        Start::Fresh => None,
        Start::From(point) => point.step,
    };
    total - newest > usual_interval(findings, newest)
        || started >= Some(newest)
        || ended.verdict.look.duration < TOO_SOON
}

/// Whether there is a checkpoint, be it weights only, that stands after an attempt's start.
fn has_moved(ended: &EndedAttempt, findings: &Findings) -> bool {
    let weights_only = findings
        .candidates
        .iter()
        .filter(|candidate| candidate.wholeness == Wholeness::WeightsOnly)
        .map(|candidate| candidate.position);
    let newest = weights_only.chain(findings.chosen.as_ref().map(|point| point.position)).max();
    newest > ended.attempt.start.position()
}

/// Steps between two checkpoints, as far as the names tell: the middle one of the gaps, since a
/// last save may follow right after a regular one. The first one counts from zero.
fn usual_interval(findings: &Findings, newest: u64) -> u64 {
    let mut steps: Vec<u64> = findings.candidates.iter().filter_map(|c| c.step).collect();
    steps.sort_unstable();
    steps.dedup();
    let mut gaps: Vec<u64> = steps.windows(2).map(|pair| pair[1] - pair[0]).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(newest)
}

fn ended_early_twice(draft: &Draft<'_>, ended: &EndedAttempt) -> bool {
    draft.next.progress.early == Some(EarlyEnd { from: ended.attempt.start.position() })
}

fn note_early(draft: &mut Draft<'_>, ended: &EndedAttempt) {
    let mut ended = ended.clone();
    ended.verdict.cause = Cause::EndedEarly;
    let (rule, text) = if draft.given.spec.total_steps.is_some() {
        ("short-of-total-steps", "ended_early: it ended with 0, short of total_steps")
    } else {
        ("no-step-moved", "ended_early: it ended with 0 within seconds, without a new checkpoint")
    };
    ended.verdict.rule = rule.to_owned();
    draft.say(Some(ended.attempt.no), Word::Verdict, text);
    draft.next.progress.early = Some(EarlyEnd { from: ended.attempt.start.position() });
    draft.ended.push(ended);
}
