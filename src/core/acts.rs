//! What a person asks of a job.
//!
//! What always holds: a cancel asks for stops and waits for the ends; nothing here sends or ends
//! anything by itself.

use super::event::Word;
use super::job::{AskedFrom, BlockKind, Job, Progress, Recovery, StopWhy, Wanted};
use super::lost;
use super::step::{Act, Draft};
use super::stops;
use super::suspects::Suspicion;
use super::verdict::Cause;
use super::waiting;
use crate::model::checkpoint::ResumeFrom;
use crate::model::ids::AttemptNo;
use crate::model::spec::JobSpec;

pub(super) fn on_act(draft: &mut Draft<'_>, act: Act) {
    match act {
        Act::Cancel => {
            if draft.next.wanted == Wanted::Cancel || draft.next.is_over() {
                return;
            }
            draft.next.wanted = Wanted::Cancel;
            draft.say(None, Word::Operator, "cancel: nothing is submitted any more");
            let asked: Vec<AttemptNo> = draft
                .next
                .open
                .iter_mut()
                .filter(|attempt| attempt.stop.is_none() || attempt.stops_for_what_is_seen())
                .map(|attempt| {
                    attempt.stop = Some(StopWhy::Cancel);
                    attempt.no
                })
                .collect();
            for no in asked {
                draft.say(Some(no), Word::StopAsked, "stop: the job was cancelled");
            }
            stops::ask(draft);
        }
        Act::Pause => {
            if draft.next.wanted == Wanted::Run {
                draft.next.wanted = Wanted::Hold;
                draft.say(None, Word::Operator, "pause: what runs goes on, nothing is submitted");
            }
        }
        Act::Resume => {
            if draft.next.wanted == Wanted::Hold {
                draft.next.wanted = Wanted::Run;
                draft.say(None, Word::Operator, "resume");
                // Time in a pause is not time without progress.
                draft.next.progress.since = None;
            }
        }
        Act::Retry => on_retry(draft),
        Act::RetryFrom(from) => on_retry_from(draft, from),
    }
}

/// Why `retry` changes nothing now, if it does not: a stop that was sent cannot be taken back.
pub fn cannot_retry(job: &Job) -> Option<String> {
    let is_cancelled = job.wanted == Wanted::Cancel && job.result.is_none() && job.block.is_none();
    // A person's word goes for what is missing for long, and for copies.
    let helps = !job.copies.is_empty() || job.open.iter().any(lost::is_long_missing);
    let name = &job.key.name;
    (is_cancelled && !helps).then(|| {
        format!(
            "`{name}` is being cancelled, which cannot be taken back: `wait {name}`, then retry"
        )
    })
}

/// Why `retry --from` changes nothing now, if it does not.
pub fn cannot_retry_from(job: &Job, spec: &JobSpec) -> Option<String> {
    if spec.checkpoint.is_none() {
        return Some(format!("job `{}` has no [checkpoint]", job.key.name));
    }
    let no = job.open.first()?.no;
    Some(format!(
        "attempt {no} is not seen ended, and starts where it does: `cancel` it, then `retry --from`"
    ))
}

/// From now on what was there before is passed over, but for what is asked for.
fn on_retry_from(draft: &mut Draft<'_>, from: ResumeFrom) {
    if let Some(why) = cannot_retry_from(&draft.next, draft.given.spec) {
        draft.say(None, Word::Operator, format!("retry --from {from}: nothing is done: {why}"));
        return;
    }
    let now = draft.given.now.wall;
    let next = &mut draft.next;
    let (asked, fresh_since) = match from {
        ResumeFrom::Step(step) => (Some(AskedFrom { step, at: now }), None),
        ResumeFrom::Fresh => (None, Some(now)),
    };
    next.result = None;
    next.block = None;
    waiting::forget(next);
    next.unjudged = None;
    next.wanted = Wanted::Run;
    // Where even the step that is asked for is gone, it is known that there were whole ones.
    let Progress { ran, best_step, partly, .. } = next.progress;
    let (best_step, partly) = match from {
        ResumeFrom::Step(_) => (best_step, partly),
        ResumeFrom::Fresh => (None, false),
    };
    let zero_asked = from == ResumeFrom::Fresh;
    next.progress =
        Progress { best_step, ran, partly, fresh_since, asked, zero_asked, ..Default::default() };
    next.look_next(draft.given.now.boot);
    let text = match from {
        ResumeFrom::Step(step) => format!(
            "retry from step {step}: counts start anew; other checkpoints that are there are passed over"
        ),
        ResumeFrom::Fresh => {
            "retry from zero: counts start anew; checkpoints that are there are passed over"
                .to_owned()
        }
    };
    draft.say(None, Word::Operator, text);
}

fn on_retry(draft: &mut Draft<'_>) {
    lost::lose_all_missing(draft);
    let next = &mut draft.next;
    waiting::forget(next);
    if next.result.is_none() && next.block.is_none() {
        // A copy that was deleted is never seen ended: a person's word has to do.
        if !next.copies.is_empty() {
            next.copies.clear();
            draft.say(None, Word::Operator, "retry: copies seen so far are not waited for");
        }
        forget_suspects(draft);
        return;
    }
    next.result = None;
    let block = next.block.take();
    let could_not = block.is_some_and(|block| block.kind == BlockKind::AskedForMissing);
    // An end that went well is still to be judged; the others are forgiven.
    next.unjudged = next.unjudged.take().filter(|e| e.verdict.cause == Cause::Succeeded);
    next.wanted = Wanted::Run;
    let Progress { best, best_step, best_at, ran, partly, fresh_since, zero_asked, .. } =
        next.progress;
    let asked = next.progress.asked.filter(|_| !could_not);
    next.progress = Progress {
        best,
        best_step,
        best_at,
        ran,
        partly,
        fresh_since,
        asked,
        zero_asked,
        ..Default::default()
    };
    next.look_next(draft.given.now.boot);
    draft.say(None, Word::Operator, "retry: counts start anew, checkpoints are kept");
}

/// A person holds nothing against checkpoints: the next look chooses among all.
fn forget_suspects(draft: &mut Draft<'_>) {
    if draft.next.progress.suspicion.is_none() {
        return;
    }
    draft.next.progress.suspicion = Suspicion::default();
    draft.say(None, Word::Operator, "retry: no checkpoint is suspect any more");
    match draft.next.recovery {
        // A look that is under way may pass one over.
        Recovery::Look { .. } | Recovery::Settling { .. } | Recovery::Ready { .. } => {
            draft.next.recovery = Recovery::look();
        }
        // A look comes after each of these.
        Recovery::Waiting { .. } | Recovery::Repairing { .. } | Recovery::NotRepaired { .. } => {}
    }
}
