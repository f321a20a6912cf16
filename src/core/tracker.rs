//! Trainers that find their checkpoint by a tracker object: before an attempt goes out, the tracker
//! leads to the chosen one, or nothing goes out.
//!
//! What always holds: a rewrite is decided only where the next thing would be the intent of an
//! attempt, so nothing of the job runs and nobody else holds its prefix; it is durable before the
//! write; the bucket is looked into again after it, and only a tracker that was seen to fit lets an
//! attempt go out. What it must not do: rewrite anything that a person did not allow.

use super::event::Word;
use super::job::{Recovery, Start, kept};
use super::retry;
use super::step::{Draft, Effect};
use crate::model::checkpoint::{Findings, Pin, ResumePoint, Tracker, TrackerRewrite, TrackerWrite};
use crate::model::command_words::{is_option, words};
use crate::model::resume_text::{has_resume, names_main};
use crate::model::spec::{CheckpointSpec, JobSpec};
use crate::model::tracker_mend::{mending_command, says as found};
use std::path::Path;
use std::time::Duration;

/// Rewrites in a row, none of which led to an attempt, at which a person is told.
const ALARM_AT_REPAIR: u32 = 3;
/// Rewrites in a row after which each further one waits: something else writes the tracker too.
const REPAIRS_AT_ONCE: u32 = 2;
/// How long a write without an answer may still arrive.
pub(super) const LATE_WRITE: Duration = Duration::from_secs(20);
/// Options by which a command itself makes its trainer read the tracker.
const READS_TRACKER: [&str; 2] = ["--load", "trainer.resume_mode"];

/// How a resumed attempt is told which checkpoint to load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// An argument of the person's own names it.
    ByOwnArgument,
    /// The format's argument names it.
    ByFormat,
    /// Not at all: the trainer goes by its tracker.
    ByTracker,
    /// By no argument that we see: the trainer may read `SPOTKEEPER_RESUME_PATH`.
    Perhaps,
}

fn told(spec: &JobSpec, checkpoint: &CheckpointSpec, point: &ResumePoint) -> Told {
    let own = checkpoint.resume.as_deref();
    let template = own.unwrap_or(&point.argument);
    let is_used = checkpoint.resume_command.as_deref().is_none_or(has_resume);
    if is_used && names_main(template) {
        return if own.is_some() { Told::ByOwnArgument } else { Told::ByFormat };
    }
    if is_used && !template.trim().is_empty() {
        return Told::ByTracker;
    }
    let written = spec.body.get("UserCommand").and_then(|text| text.as_str());
    let command = checkpoint.resume_command.as_deref().or(written).unwrap_or_default();
    let reads = words(command).iter().any(|w| READS_TRACKER.iter().any(|name| is_option(w, name)));
    if reads && !command.contains("SPOTKEEPER_RESUME") { Told::ByTracker } else { Told::Perhaps }
}

/// The rewrite that has to come before an attempt from `point`, where it is allowed.
fn due<'p>(
    spec: &JobSpec,
    checkpoint: &CheckpointSpec,
    point: &'p ResumePoint,
) -> Option<&'p TrackerRewrite> {
    let Tracker::Differs(rewrite) = &point.tracker else { return None };
    let is_told = told(spec, checkpoint, point) == Told::ByOwnArgument;
    let is_needed = point.pin == Pin::TrackerRewrite || !is_told;
    (checkpoint.repair_tracker && is_needed).then_some(&**rewrite)
}

/// Whether the tracker is brought to lead to `point` before an attempt goes out.
pub(super) fn is_rewritten(
    spec: &JobSpec,
    checkpoint: &CheckpointSpec,
    point: &ResumePoint,
) -> bool {
    due(spec, checkpoint, point).is_some()
}

/// Why no attempt may start from `point` before a person has seen to the tracker, if so. `from` is
/// the step that a retry has to name.
pub(super) fn needs_person(
    draft: &Draft<'_>,
    checkpoint: &CheckpointSpec,
    point: &ResumePoint,
    from: Option<u64>,
) -> Option<String> {
    let spec = draft.given.spec;
    let goes_by_it = point.pin == Pin::TrackerRewrite
        || (point.pin == Pin::Argument && told(spec, checkpoint, point) == Told::ByTracker);
    if !goes_by_it || is_rewritten(spec, checkpoint, point) {
        return None;
    }
    let rewrite = match &point.tracker {
        Tracker::Differs(rewrite) => rewrite,
        Tracker::Fits if point.pin == Pin::TrackerRewrite => {
            return Some(format!(
                "the newest whole checkpoint is {}, which no argument and no tracker leads to",
                point.path
            ));
        }
        Tracker::Fits => return None,
        Tracker::Unseen => {
            return Some(format!(
                "the trainer finds its checkpoint by a tracker beside {}, which cannot be read \
                 from {}: let `checkpoint.path` name the folder of the tracker",
                point.path, checkpoint.location
            ));
        }
    };
    let storage = draft.given.gate.place.as_ref().and_then(|place| place.storage.as_deref());
    let command = mending_command(&checkpoint.location, rewrite, storage);
    let from = from.map_or_else(String::new, |step| format!(" --from {step}"));
    let retry = format!("spotkeeper retry {}{from}", spec.key.name);
    let said = found(rewrite.found.as_ref());
    // A command that is cut short would do something else.
    let texts = [
        format!(
            "the trainer goes by {}, which {said}; chosen is {}. Set repair_tracker = true, or run: \
             {command} && {retry}",
            rewrite.key, point.path
        ),
        format!("{} {said}; run: {command} && {retry}", rewrite.key),
    ];
    let whole = texts.into_iter().find(|text| kept(text) == *text);
    Some(whole.unwrap_or_else(|| {
        let wanted = &rewrite.wanted;
        format!("the tracker must say {wanted}: set repair_tracker = true. It is {}", rewrite.key)
    }))
}

/// Why an attempt that has to start at zero would go on from what is there instead, if so: its
/// command itself makes the trainer read the tracker, and no argument of ours comes with it.
pub(super) fn leads_past_zero(
    draft: &Draft<'_>,
    checkpoint: &CheckpointSpec,
    findings: &Findings,
) -> Option<String> {
    let chosen = findings.chosen.as_ref().map(|point| &point.path);
    let passed = || findings.passed_over.first().map(|one| &one.path);
    let unclear = || findings.undecided().map(|one| &one.path).or(findings.ambiguous.first());
    let there = chosen.or_else(passed).or_else(unclear)?;
    let written = draft.given.spec.body.get("UserCommand").and_then(|text| text.as_str());
    let option = reads_below(written.unwrap_or_default(), &checkpoint.mount)?;
    Some(format!(
        "it is to start at zero, and by `{option}` in UserCommand the trainer goes on from what its \
         tracker names: {} is there. Move what is there away, or take `{option}` out, then `retry`",
        kept(there)
    ))
}

/// The option by which a command makes its trainer read a tracker at or below `mount`, as far as
/// the command tells.
fn reads_below(command: &str, mount: &str) -> Option<&'static str> {
    let words = words(command);
    let is_meant = |value: &str| match value.strip_prefix('/') {
        // A variable, or a path from wherever the command stands.
        None => value != "disable",
        Some(_) => value.contains('$') || Path::new(value).starts_with(mount),
    };
    READS_TRACKER.into_iter().find(|name| {
        words.iter().enumerate().filter(|(_, word)| is_option(word, name)).any(|(at, word)| {
            let next = || words.get(at + 1).map(String::as_str);
            word.split_once('=').map(|(_, value)| value).or_else(next).is_some_and(is_meant)
        })
    })
}

/// Decides the rewrite that has to come before the next attempt. The gate was asked right before.
/// Answers whether there is one.
pub(super) fn rewrite_first(draft: &mut Draft<'_>) -> bool {
    let Recovery::Ready { start: Start::From(point), .. } = &draft.next.recovery else {
        return false;
    };
    let spec = draft.given.spec;
    let Some(checkpoint) = &spec.checkpoint else { return false };
    let Some(rewrite) = due(spec, checkpoint, point).cloned() else { return false };
    draft.next.progress.repairs = draft.next.progress.repairs.saturating_add(1);
    let step = point.step.map_or_else(|| point.path.clone(), |step| format!("step {step}"));
    let text = format!(
        "rewrites the tracker {}, which {}, to `{}`: the trainer is to load {step}",
        rewrite.key,
        found(rewrite.found.as_ref()),
        rewrite.wanted,
    );
    let data = serde_json::json!({
        "tracker": rewrite.key,
        "old": rewrite.found.as_ref().map(|old| &old.text),
        "old_size": rewrite.found.as_ref().map(|old| old.size),
        "new": rewrite.wanted,
    });
    draft.say_with(None, Word::Checkpoint, text, data);
    draft.effects.push(Effect::RewriteTracker(rewrite.clone()));
    draft.next.recovery = Recovery::Repairing { rewrite };
    true
}

/// Takes what came of a rewrite. Whatever it was, the bucket is looked into again.
pub(super) fn on_written(draft: &mut Draft<'_>, outcome: TrackerWrite) {
    let Recovery::Repairing { rewrite } = &draft.next.recovery else { return };
    let TrackerRewrite { key, wanted, .. } = rewrite.clone();
    let repairs = draft.next.progress.repairs;
    let delay = retry::after_fault(repairs);
    let (why, delay) = match outcome {
        TrackerWrite::Done => {
            draft.say(None, Word::Checkpoint, format!("the tracker {key} says `{wanted}`"));
            if repairs < REPAIRS_AT_ONCE {
                draft.next.recovery = Recovery::look();
                return;
            }
            (format!("{key} was rewritten {repairs} times: does something else write it?"), delay)
        }
        TrackerWrite::Changed { now } => {
            let now = found(now.as_ref());
            (format!("{key} was not rewritten: it {now} since the look"), delay)
        }
        TrackerWrite::Failed { why, needs_person: true } => {
            (format!("could not rewrite {key}: {why}"), delay)
        }
        TrackerWrite::Failed { why, needs_person: false } => {
            (format!("could not rewrite {key}: {why}"), delay.max(LATE_WRITE))
        }
    };
    let why = kept(&why);
    if repairs.is_power_of_two() {
        draft.say(None, Word::Held, why.clone());
    }
    if repairs == ALARM_AT_REPAIR {
        draft.say(None, Word::Alarm, format!("the tracker still leads elsewhere: {why}"));
    }
    let until = draft.given.now.boot.plus(delay);
    draft.next.recovery = Recovery::NotRepaired { why, delay, until };
}
