//! How a person goes on where a look leaves something to do: nothing was chosen, or the trainer would not
//! load what was.

use super::report::Mendable;
use crate::model::checkpoint::{Candidate, Findings, Pin, ResumePoint, Tracker, Wholeness};
use crate::model::resume_text::names_main;
use crate::model::tracker_mend::{mending_command, says};

/// Formats whose trainers may have no argument for a checkpoint and then go by their tracker alone.
const BY_TRACKER: [&str; 4] = ["deepspeed", "easyckpt-deepspeed", "easyckpt-megatron", "dlrover"];

/// What is said of a file that no right to read would help.
const LARGER_THAN_READ: &str = "larger than is read";

/// What brings the trainer to the chosen checkpoint where its argument may not.
pub(super) struct Mend {
    pub(super) why: String,
    /// The one command; none where moving something away is all that helps.
    pub(super) command: Option<String>,
}

/// What mends the tracker, where the argument for `point` is useless as it stands.
pub(super) fn mend(
    point: &ResumePoint,
    template: Option<&str>,
    place: Mendable<'_>,
) -> Option<Mend> {
    let is_pinned = names_main(template.unwrap_or(&point.argument));
    let path = &point.path;
    let why = match (&point.tracker, point.pin) {
        (_, Pin::OwnChoice) | (Tracker::Fits | Tracker::Unseen, Pin::Argument) => return None,
        (Tracker::Fits, Pin::TrackerRewrite) => {
            let why = format!(
                "no argument and no tracker leads to {path}: move away what the trainer loads before it"
            );
            return Some(Mend { why, command: None });
        }
        (Tracker::Unseen, Pin::TrackerRewrite) => {
            let why = format!(
                "no argument leads to {path}, and the tracker beside it cannot be read from here: look \
                 from the folder that holds it"
            );
            return Some(Mend { why, command: None });
        }
        (Tracker::Differs(rewrite), Pin::TrackerRewrite) => format!(
            "{} {}: no argument leads the trainer to {path} before that is mended",
            rewrite.key,
            says(rewrite.found.as_ref()),
        ),
        (Tracker::Differs(rewrite), Pin::Argument) => {
            let may_ignore = template.is_none() && BY_TRACKER.contains(&point.format.as_str());
            if is_pinned && !may_ignore {
                return None;
            }
            let said = says(rewrite.found.as_ref());
            if is_pinned {
                format!(
                    "{} {said}: a script without an argument for the checkpoint goes by it",
                    rewrite.key
                )
            } else {
                format!("{} {said}: the trainer goes by it, and not to {path}", rewrite.key)
            }
        }
    };
    let Tracker::Differs(rewrite) = &point.tracker else { return None };
    let command = mending_command(place.location, rewrite, place.storage);
    Some(Mend { why, command: Some(command) })
}

/// Sentences on how to go on, where nothing was chosen.
pub(super) fn hints(findings: &Findings) -> Vec<String> {
    if findings.chosen.is_some() {
        return Vec::new();
    }
    if !findings.ambiguous.is_empty() {
        // One folder that has the names of several formats: naming it again would not help.
        let is_mixed = findings.ambiguous_of.iter().any(|names| names.contains(" and of "));
        let hint = "one folder has names of several formats: say which is meant by `--format WORD`, and in \
                    a job file by format = \"WORD\" (the words: docs/checkpoints.md)";
        return is_mixed.then(|| hint.to_owned()).into_iter().collect();
    }
    let mut hints: Vec<String> = findings.doubt.iter().cloned().collect();
    if findings.candidates.is_empty() {
        hints.push(
            "no name here is one of a checkpoint: name the folder that holds them, or one at most 4 \
             levels above it; a layout of your own is looked at by `--pattern 'step-{step}' --required \
             FILE`, and in a job file by format = \"custom\""
                .to_owned(),
        );
        return hints;
    }
    let count = |wholeness| {
        findings.candidates.iter().filter(|candidate| candidate.wholeness == wholeness).count()
    };
    if !findings.passed_over.is_empty() {
        hints.push(
            "every whole one is passed over, WHY says for what: `spotkeeper retry JOB --from STEP` \
             takes one all the same"
                .to_owned(),
        );
    }
    if count(Wholeness::WeightsOnly) > 0 {
        hints.push(
            "weights without an optimizer are not gone on from: let the trainer save the optimizer too"
                .to_owned(),
        );
    }
    let is_too_large = |candidate: &&Candidate| candidate.why.contains(LARGER_THAN_READ);
    let unreadable = findings.candidates.iter().filter(|c| c.wholeness == Wholeness::Unreadable);
    let (too_large, refused): (Vec<_>, Vec<_>) = unreadable.partition(is_too_large);
    if !too_large.is_empty() {
        hints.push(
            "a file that is larger than is read cannot be judged (the limits: docs/checkpoints.md): see \
             for yourself whether it is whole; with `--pattern` and `--required` its name is enough"
                .to_owned(),
        );
    }
    if !refused.is_empty() {
        hints.push(
            "what may not be read cannot be judged: restore archived objects, or give these keys (of a \
             folder, this user) the right to list and read; WHY names what"
                .to_owned(),
        );
    }
    if hints.is_empty() && count(Wholeness::Unknown) > 0 {
        hints.push(
            "nobody can tell from outside whether it is whole: WHY says what would tell".to_owned(),
        );
    }
    if hints.is_empty() && count(Wholeness::Torn) > 0 {
        hints.push(
            "none is whole: WHY says what each lacks; what is still being uploaded is there in a minute"
                .to_owned(),
        );
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::{Location, Position, Scheme, TrackerRewrite, TrackerText};

    fn point(format: &str, pin: Pin, tracker: Tracker) -> ResumePoint {
        ResumePoint {
            path: "ck/global_step90".into(),
            root: "ck".into(),
            step: Some(90),
            epoch: None,
            position: Position { epoch: 0, step: 90 },
            format: format.into(),
            argument: "--load {root} --load-tag {name}".into(),
            pin,
            tracker,
            parts: Vec::new(),
        }
    }

    fn differs() -> Tracker {
        let found = Some(TrackerText::of(b"global_step100", 14));
        let (key, wanted) = ("ck/latest".to_owned(), "global_step90".to_owned());
        Tracker::Differs(Box::new(TrackerRewrite { key, found, wanted }))
    }

    fn told(point: &ResumePoint, template: Option<&str>) -> Option<(String, Option<String>)> {
        let location =
            Location { scheme: Scheme::Oss, bucket: "b".into(), prefix: "team/run".into() };
        let place = Mendable { location: &location, storage: None };
        mend(point, template, place).map(|mend| (mend.why, mend.command))
    }

    #[test]
    fn a_tracker_that_leads_elsewhere_is_mended_by_one_command() {
        for (format, pin) in [
            ("megatron-legacy", Pin::TrackerRewrite),
            ("deepspeed", Pin::Argument),
            ("dlrover", Pin::Argument),
        ] {
            let (why, command) = told(&point(format, pin, differs()), None).expect("a mend");
            assert!(why.contains("ck/latest says `global_step100`"), "{why}");
            let command = command.expect("a command");
            assert!(command.contains("'global_step90'"), "{command}");
            assert!(command.ends_with("'oss://b/team/run/ck/latest'"), "{command}");
        }
    }

    #[test]
    fn nothing_is_mended_where_the_argument_is_enough() {
        for (format, pin, tracker) in [
            ("deepspeed", Pin::OwnChoice, Tracker::Fits),
            ("megatron-legacy", Pin::Argument, differs()),
            ("verl", Pin::Argument, differs()),
            ("hf-trainer", Pin::Argument, Tracker::Fits),
        ] {
            assert_eq!(told(&point(format, pin, tracker), None), None, "{format}");
        }
        let own = point("deepspeed", Pin::Argument, differs());
        assert_eq!(told(&own, Some("--tag {name}")), None, "an argument of the person's own");
        assert!(told(&own, Some("--load {root}")).is_some(), "one that names no checkpoint");
        let (why, command) =
            told(&point("megatron-legacy", Pin::TrackerRewrite, Tracker::Fits), None).expect("one");
        assert!(why.contains("move away") && command.is_none(), "{why}");
    }
}
