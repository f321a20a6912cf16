//! What a look into the bucket means: wait, judge the last end ([`super::progress`]), and what the next
//! attempt starts from.

use super::event::Word;
use super::job::{Block, BlockKind, Recovery, Start, kept};
use super::pass_over::{cannot_load, is_passed_over, only_passed_over};
use super::progress::{judge, note_best};
use super::recheck;
use super::retry;
use super::step::{ANSWER_DUE, Draft};
use super::tracker;
use crate::model::checkpoint::{Findings, Look, ResumePoint, Unfinished, Wholeness};
use crate::model::spec::{CheckpointSpec, FirstStart};
use crate::model::time::{WallTime, human};
use std::time::Duration;

/// Looks in a row that only a person can mend, until the job says so.
const BLIND_LOOKS_LIMIT: u32 = 3;
/// Refused checkpoints that an event's sentence names; its data names all.
const REFUSED_IN_TEXT: usize = 3;
/// Bytes of a resume point that a record has room for, beside all else that it may hold.
const POINT_LIMIT_BYTES: usize = 4_608;

pub(super) fn on_looked(draft: &mut Draft<'_>, look: Look) {
    if !draft.next.open.is_empty() {
        return recheck::on_looked(draft, &look);
    }
    if draft.next.result.is_some() {
        return;
    }
    let Some(checkpoint) = &draft.given.spec.checkpoint else { return };
    // A second answer must not cut a wait short that the first one led to.
    let awaited = match draft.next.recovery {
        Recovery::Look { asked } => asked,
        Recovery::Settling { next, .. } => next == ANSWER_DUE,
        Recovery::Waiting { .. }
        | Recovery::Ready { .. }
        | Recovery::Repairing { .. }
        | Recovery::NotRepaired { .. } => false,
    };
    if !awaited {
        return;
    }
    match look {
        Look::CouldNotLook { why, needs_person } => on_blind(draft, &why, needs_person),
        Look::Done(findings) => {
            if let Some(point) = &findings.chosen
                && is_passed_over(draft, &findings, point)
            {
                let why = format!("the look began before {} was passed over", kept(&point.path));
                return on_blind(draft, &why, false);
            }
            if let Some(bytes) = findings.chosen.as_ref().and_then(too_large) {
                let why = format!(
                    "the paths of the newest whole checkpoint take {bytes} bytes, and a record has \
                     room for {POINT_LIMIT_BYTES}: point `checkpoint.path` at a folder nearer to it"
                );
                return on_blind(draft, &why, true);
            }
            draft.next.progress.blind = 0;
            if draft.next.block.take_if(|block| block.kind == BlockKind::CannotLook).is_some() {
                draft.say(None, Word::Checkpoint, "the checkpoint prefix can be looked into again");
            }
            on_found(draft, checkpoint, findings);
        }
    }
}

/// "Could not look" never leads to a start from zero: it is tried again for as long as it takes.
fn on_blind(draft: &mut Draft<'_>, why: &str, needs_person: bool) {
    draft.next.progress.blind += 1;
    let blind = draft.next.progress.blind;
    if needs_person && blind >= BLIND_LOOKS_LIMIT {
        block(draft, BlockKind::CannotLook, &format!("the checkpoint prefix: {why}"));
    }
    if blind.is_power_of_two() {
        draft.say(
            None,
            Word::Held,
            format!("could not look for checkpoints ({blind} in a row): {}", kept(why)),
        );
    }
    let delay = retry::after_fault(blind);
    let until = draft.given.now.boot.plus(delay);
    draft.next.recovery = Recovery::Waiting { delay, until };
}

fn on_found(draft: &mut Draft<'_>, checkpoint: &CheckpointSpec, findings: Findings) {
    if !findings.ambiguous.is_empty() && draft.next.progress.zero_asked {
        if judge(draft, Some(&findings)) && draft.next.block.is_none() {
            choose(draft, checkpoint, &findings);
        }
        return;
    }
    if !findings.ambiguous.is_empty() {
        let roots = findings.ambiguous_words();
        block(
            draft,
            BlockKind::AmbiguousCheckpoints,
            &format!(
                "checkpoints of several runs lie under {}: {roots}; point `checkpoint.path` at one",
                checkpoint.location
            ),
        );
        draft.next.recovery = Recovery::look();
        return;
    }
    if let Some(unfinished) = &findings.unfinished
        && still_settling(draft, checkpoint, unfinished)
    {
        return;
    }
    let Some(findings) = without_foreign(draft, checkpoint, findings) else { return };
    draft.next.progress.partly |= findings.unmatched.is_some();
    let goes_on = judge(draft, Some(&findings));
    note_best(draft, &findings);
    if goes_on && draft.next.block.is_none() {
        choose(draft, checkpoint, &findings);
    }
}

/// The bytes of a resume point for which a record has no room.
fn too_large(point: &ResumePoint) -> Option<usize> {
    let bytes = serde_json::to_vec(point).map_or(usize::MAX, |record| record.len());
    (bytes > POINT_LIMIT_BYTES).then_some(bytes)
}

pub(super) fn on_no_checkpoints(draft: &mut Draft<'_>) {
    if judge(draft, None) {
        draft.next.recovery = Recovery::Ready { start: Start::Fresh, looked: draft.given.now.boot };
    }
}

/// Whether to wait for an incomplete newest checkpoint: until two listings in a row are equal, and
/// never longer than half as long again as `settle`.
fn still_settling(
    draft: &mut Draft<'_>,
    checkpoint: &CheckpointSpec,
    unfinished: &Unfinished,
) -> bool {
    let now = draft.given.now.boot;
    let since = match draft.next.recovery {
        Recovery::Settling { fingerprint, .. } if fingerprint == unfinished.fingerprint => {
            return false;
        }
        Recovery::Settling { since, .. } => since,
        Recovery::Look { .. }
        | Recovery::Waiting { .. }
        | Recovery::Ready { .. }
        | Recovery::Repairing { .. }
        | Recovery::NotRepaired { .. } => now,
    };
    let limit = checkpoint.settle + checkpoint.settle / 2;
    if unfinished.youngest_age >= checkpoint.settle || now.since(since) >= limit {
        return false;
    }
    if now == since {
        let step = unfinished.step.map_or_else(|| unfinished.path.clone(), |s| s.to_string());
        draft.say(None, Word::Held, format!("waiting for a late upload of step {step}"));
    }
    draft.next.recovery = Recovery::Settling {
        since,
        fingerprint: unfinished.fingerprint,
        next: now.plus(checkpoint.settle_interval),
        step: unfinished.step,
    };
    true
}

/// After a `first_start = "fresh"`, whole checkpoints that were there before are another run's.
/// They may hide this run's: `None`, and a person has to move them, where the job has run since.
fn without_foreign(
    draft: &mut Draft<'_>,
    checkpoint: &CheckpointSpec,
    mut findings: Findings,
) -> Option<Findings> {
    let (Some(since), Some(chosen)) = (draft.next.progress.fresh_since, &findings.chosen) else {
        return Some(findings);
    };
    let is_older = |newest: Option<WallTime>| newest.is_some_and(|written| written < since);
    let (of_chosen, others): (Vec<_>, Vec<_>) =
        findings.candidates.iter().partition(|c| c.path == chosen.path);
    if !of_chosen.iter().any(|c| is_older(c.newest_object)) {
        return Some(findings);
    }
    let hides = others.iter().any(|c| !is_older(c.newest_object));
    if hides && draft.next.progress.ran > Duration::ZERO {
        let why = format!(
            "{} under {} is of an earlier run and comes before this run's; move what is older away",
            chosen.path, checkpoint.location
        );
        block(draft, BlockKind::AmbiguousCheckpoints, &why);
        draft.next.recovery = Recovery::look();
        return None;
    }
    findings.chosen = None;
    Some(findings)
}

/// Decides what the next attempt starts from.
fn choose(draft: &mut Draft<'_>, checkpoint: &CheckpointSpec, findings: &Findings) {
    // What a person asked for since goes before what the first attempt does by itself.
    let first = draft.next.created == 0 && draft.next.progress.asked.is_none();
    let start = match (&findings.chosen, first, checkpoint.first_start) {
        (Some(point), true, FirstStart::Refuse) => {
            let why = format!(
                "first_start = \"refuse\" and {} holds a whole checkpoint: {}; `retry --from STEP` or \
                 `retry --from fresh` decides",
                checkpoint.location, point.path
            );
            block(draft, BlockKind::FirstStartRefused, &why);
            return;
        }
        (None, true, FirstStart::Refuse) if unusable(findings).is_some() => {
            let what = unusable(findings).unwrap_or_default();
            let why = format!(
                "first_start = \"refuse\" and {} holds {what}; move what is there away, or \
                 `retry --from fresh`",
                checkpoint.location
            );
            block(draft, BlockKind::FirstStartRefused, &why);
            return;
        }
        (_, true, FirstStart::Fresh) => {
            if let Some(why) = tracker::leads_past_zero(draft, checkpoint, findings) {
                block(draft, BlockKind::TrackerRewrite, &why);
                return;
            }
            draft.next.progress.fresh_since = Some(draft.given.now.wall);
            draft.next.progress.best = None;
            draft.next.progress.best_step = None;
            draft.next.progress.best_at = None;
            Start::Fresh
        }
        (Some(point), _, _) => {
            if let Some(why) = cannot_load(draft, checkpoint, findings, point) {
                block(draft, BlockKind::TrackerRewrite, &why);
                return;
            }
            Start::From(point.clone())
        }
        (None, _, _) if !findings.passed_over.is_empty() && only_passed_over(draft, findings) => {
            return;
        }
        (None, _, _) => match from_zero(draft, checkpoint, findings) {
            Some(start) => start,
            None => return,
        },
    };
    tell_choice(draft, findings, &start);
    draft.next.recovery = Recovery::Ready { start, looked: draft.given.now.boot };
}

/// Zero by a person's word, whatever is there, unless the trainer would not start there.
fn zero_as_asked(
    draft: &mut Draft<'_>,
    checkpoint: &CheckpointSpec,
    findings: &Findings,
) -> Option<Start> {
    if let Some(why) = tracker::leads_past_zero(draft, checkpoint, findings) {
        block(draft, BlockKind::TrackerRewrite, &why);
        return None;
    }
    let what = match findings.undecided() {
        _ if !findings.ambiguous.is_empty() => {
            Some(format!("checkpoints of several runs ({})", findings.ambiguous_words()))
        }
        Some(candidate) => Some(format!("{} ({})", candidate.path, candidate.why)),
        None => None,
    };
    if let Some(what) = what {
        let text = format!(
            "starts at zero, as a person asked, beside {}: once this attempt has run, nobody can tell \
             its checkpoints from those; move these away, or point `checkpoint.path` at its own, before",
            kept(&what)
        );
        draft.say(None, Word::Alarm, text);
    }
    Some(Start::Fresh)
}

/// Whether zero is right where no whole checkpoint was found.
fn from_zero(
    draft: &mut Draft<'_>,
    checkpoint: &CheckpointSpec,
    findings: &Findings,
) -> Option<Start> {
    if draft.next.progress.zero_asked {
        return zero_as_asked(draft, checkpoint, findings);
    }
    if let Some(candidate) = findings.undecided() {
        let why = format!(
            "nobody can tell from outside whether {} under {} is whole: {}",
            candidate.path, checkpoint.location, candidate.why
        );
        block(draft, BlockKind::UndecidedCheckpoints, &why);
        return None;
    }
    let progress = &draft.next.progress;
    let ran = progress.ran_since;
    if let Some(asked) = progress.asked {
        let why = format!(
            "step {}, which a person asked to go on from, is not whole or not there under {}: \
             `spotkeeper checkpoints` shows what is; `retry` goes on from the newest whole one",
            asked.step, checkpoint.location
        );
        block(draft, BlockKind::AskedForMissing, &why);
        return None;
    }
    if progress.partly {
        let each = findings.unmatched.as_deref().unwrap_or("none of them is there now");
        let why = format!(
            "parts of the checkpoint were whole, and no step is whole in all of them: {each}. Mend \
             the paths, or bring back what is missing, then `retry`; or raise `run` to start anew"
        );
        block(draft, BlockKind::NoCommonStep, &why);
        return None;
    }
    if let Some(step) = progress.best_step.or(progress.best.map(|best| best.step)) {
        let why = format!(
            "a whole checkpoint of step {step} was seen under {} and none is there now: bring it \
             back, then `retry`; or raise `run` to start anew",
            checkpoint.location
        );
        block(draft, BlockKind::CheckpointsGone, &why);
        return None;
    }
    if ran >= checkpoint.expect_within {
        let why = format!(
            "it ran {} and there is no whole checkpoint under {}: is `checkpoint.path` right? \
             `retry` starts at zero again",
            human(ran),
            checkpoint.location
        );
        block(draft, BlockKind::NoCheckpointInTime, &why);
        return None;
    }
    if let Some(why) = tracker::leads_past_zero(draft, checkpoint, findings) {
        block(draft, BlockKind::TrackerRewrite, &why);
        return None;
    }
    if ran > Duration::ZERO {
        draft.say(
            None,
            Word::Alarm,
            format!(
                "starts at zero again after running {}: no whole checkpoint under {}",
                human(ran),
                checkpoint.location
            ),
        );
    } else if let Some(what) = unusable(findings) {
        let text = format!("starts at zero although {} holds {what}", checkpoint.location);
        draft.say(None, Word::Alarm, text);
    }
    Some(Start::Fresh)
}

/// The checkpoints of which none can be gone on from, in words.
fn unusable(findings: &Findings) -> Option<String> {
    let mut unusable = findings.candidates.iter().filter(|one| match one.wholeness {
        Wholeness::Torn | Wholeness::WeightsOnly => true,
        Wholeness::Whole | Wholeness::Unreadable | Wholeness::NotChecked | Wholeness::Unknown => {
            false
        }
    });
    let newest = unusable.next()?;
    let (count, path, why) = (1 + unusable.count(), kept(&newest.path), kept(&newest.why));
    Some(format!("{count} checkpoints, none of them whole; the newest is {path} ({why})"))
}

fn tell_choice(draft: &mut Draft<'_>, findings: &Findings, start: &Start) {
    let chosen = match start {
        Start::Fresh => None,
        Start::From(point) => Some(point),
    };
    let refused: Vec<_> = findings
        .candidates
        .iter()
        .take_while(|c| chosen.is_none_or(|point| c.path != point.path))
        .filter(|c| c.wholeness != Wholeness::NotChecked)
        .collect();
    if chosen.is_none() && refused.is_empty() {
        return;
    }
    let label = |path: &str, step: Option<u64>| step.map_or(path.to_owned(), |s| s.to_string());
    let mut text = match chosen {
        Some(point) => format!("chose step {}", label(&point.path, point.step)),
        None => "chose nothing".to_owned(),
    };
    for candidate in refused.iter().take(REFUSED_IN_TEXT) {
        text = format!(
            "{text}; refused {} ({})",
            label(&candidate.path, candidate.step),
            candidate.why
        );
    }
    if refused.len() > REFUSED_IN_TEXT {
        text = format!("{text}; and {} more", refused.len() - REFUSED_IN_TEXT);
    }
    let passed = |path: &str| {
        findings.passed_over.iter().find(|one| one.path == path).map(|one| one.why.word())
    };
    let refused: Vec<_> = refused
        .iter()
        .map(|c| {
            serde_json::json!({
                "path": c.path, "step": c.step, "verdict": c.wholeness.word(), "why": c.why,
                "passed_over": passed(&c.path),
            })
        })
        .collect();
    let data = serde_json::json!({
        "chosen": chosen.map(|p| serde_json::json!({ "path": p.path, "step": p.step })),
        "refused": refused,
    });
    draft.say_with(None, Word::Checkpoint, text, data);
}

pub(super) fn block(draft: &mut Draft<'_>, kind: BlockKind, why: &str) {
    let block = Block { kind, why: kept(why) };
    if draft.next.block.as_ref() == Some(&block) {
        return;
    }
    draft.say(None, Word::Blocked, block.why.clone());
    draft.say(None, Word::Alarm, format!("needs a person: {}", block.why));
    draft.next.block = Some(block);
}
