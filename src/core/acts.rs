//! What a person asks of a job.
//!
//! What always holds: a cancel asks for stops and waits for the ends; nothing here sends or ends
//! anything by itself.

use super::event::Word;
use super::job::{Progress, Recovery, StopWhy, Wanted};
use super::lost;
use super::step::{Act, Draft, ask_stops};
use super::verdict::Cause;
use crate::model::ids::AttemptNo;

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
                .filter(|attempt| attempt.stop.is_none())
                .map(|attempt| {
                    attempt.stop = Some(StopWhy::Cancel);
                    attempt.no
                })
                .collect();
            for no in asked {
                draft.say(Some(no), Word::StopAsked, "stop: the job was cancelled");
            }
            ask_stops(draft);
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
    }
}

fn on_retry(draft: &mut Draft<'_>) {
    lost::lose_all_missing(draft);
    let next = &mut draft.next;
    if next.result.is_none() && next.block.is_none() {
        // A copy that was deleted is never seen ended: a person's word has to do.
        if !next.copies.is_empty() {
            next.copies.clear();
            draft.say(None, Word::Operator, "retry: copies seen so far are not waited for");
        }
        return;
    }
    next.result = None;
    next.block = None;
    // An end that went well is still to be judged; the others are forgiven.
    next.unjudged = next.unjudged.take().filter(|e| e.verdict.cause == Cause::Succeeded);
    next.wanted = Wanted::Run;
    let Progress { best, best_step, best_at, ran, fresh_since, .. } = next.progress;
    next.progress = Progress { best, best_step, best_at, ran, fresh_since, ..Default::default() };
    next.recovery = Recovery::look();
    draft.say(None, Word::Operator, "retry: counts start anew, checkpoints are kept");
}
