//! `[hang]`: limits beyond which a job that runs counts as hanging, and what follows.

use super::codes;
use super::diagnostic::{Diagnostic, Notes};
use super::duration;
use super::nearest::nearest;
use super::reader::{Found, Table};
use crate::model::hang::{HangAct, HangPolicy, Times};
use std::ops::RangeInclusive;
use std::time::Duration;

const SILENCE_SHORTEST: Duration = Duration::from_millis(100);
/// Fewer intervals than this go by in a run that is well.
const TIMES: RangeInclusive<Times> = Times::whole(2)..=Times::whole(100);

/// Reads the table. `saves` is whether the job has `[checkpoint]`.
pub(super) fn read(notes: &Notes<'_>, top: &mut Table<'_, '_>, saves: bool) -> Option<HangPolicy> {
    let mut table = top.table("hang")?;
    let span = table.span().clone();
    let is_limited = table.has("log_silence") || table.has("no_checkpoint");
    let silence = table.duration("log_silence", SILENCE_SHORTEST..=duration::LONGEST);
    let no_checkpoint = times(notes, &mut table);
    let then = table.has("then").then(|| table.list("then"));
    table.finish();
    if !is_limited {
        let mend = "give log_silence = \"30m\", no_checkpoint = \"3x\", or both";
        notes.error(&span, codes::MISSING, "[hang] has no limit", mend);
    }
    if let Some(found) = no_checkpoint.as_ref().filter(|_| !saves) {
        let message = "`no_checkpoint` never acts: the job has no [checkpoint]";
        let mend = "add [checkpoint], or take it out; log_silence needs none";
        notes.warning(&found.span, codes::HANG_WITHOUT_CHECKPOINTS, message, mend);
    }
    let then = match then {
        None => vec![HangAct::Notify],
        Some(list) => acts(notes, list?, saves)?,
    };
    Some(HangPolicy {
        log_silence: silence.map(|found| found.value),
        no_checkpoint: no_checkpoint.map(|found| found.value),
        then,
    })
}

/// `no_checkpoint`.
fn times(notes: &Notes<'_>, table: &mut Table<'_, '_>) -> Option<Found<Times>> {
    let found = table.text("no_checkpoint")?;
    match Times::parse(&found.value) {
        Some(value) if TIMES.contains(&value) => {
            Some(Found { value, key: found.key, span: found.span })
        }
        Some(_) | None => {
            let message = format!("`no_checkpoint` cannot be `{}`", found.value);
            let (low, high) = (TIMES.start(), TIMES.end());
            let mend = format!(
                "wanted: times the usual time between two checkpoints, from \"{low}\" to \"{high}\""
            );
            notes.error(&found.span, codes::WRONG_VALUE, message, mend);
            None
        }
    }
}

/// `then`: each act once, and nothing after a restart.
fn acts(notes: &Notes<'_>, list: Found<Vec<Found<String>>>, saves: bool) -> Option<Vec<HangAct>> {
    let mut acts = Vec::new();
    let words = HangAct::WORDS;
    if list.value.is_empty() {
        let mend = format!("one or more of: {}", words.join(", "));
        notes.error(&list.span, codes::WRONG_VALUE, "`then` is empty", mend);
        return None;
    }
    for found in list.value {
        let wrong = |message: String, mend: String| {
            let at = notes.source.at(&found.span);
            let near = nearest(&found.value, words).filter(|near| *near != found.value);
            let error = Diagnostic::error(at, codes::WRONG_VALUE, message, mend);
            notes.add(error.near(near.map(str::to_owned)));
        };
        let Some(act) = HangAct::from_word(&found.value) else {
            let mend = format!("one of: {}", words.join(", "));
            wrong(format!("`then` cannot hold `{}`", found.value), mend);
            return None;
        };
        if acts.contains(&act) {
            wrong(format!("`then` holds `{}` twice", act.word()), "keep one of the two".into());
            return None;
        }
        if acts.last() == Some(&HangAct::Restart) {
            let mend = "put \"restart\" last".to_owned();
            wrong(format!("`{}` never comes after a restart", act.word()), mend);
            return None;
        }
        if act == HangAct::Restart && !saves {
            let message = "each restart begins at zero: the job has no [checkpoint]";
            let mend = "add [checkpoint], or take \"restart\" out";
            notes.warning(&found.span, codes::HANG_WITHOUT_CHECKPOINTS, message, mend);
        }
        acts.push(act);
    }
    Some(acts)
}

#[cfg(test)]
mod tests {
    use crate::config::diagnostic::{Severity, Source};
    use crate::config::job::{Rules, read_job};
    use crate::model::hang::{HangAct, HangPolicy, Times};
    use std::path::Path;
    use std::time::Duration;

    fn read(tables: &str) -> (Option<HangPolicy>, Vec<String>) {
        let text = format!(
            "target = \"here\"\n{tables}\n[submit]\nJobType = \"PyTorchJob\"\n\
             UserCommand = \"python train.py\"\n[[submit.JobSpecs]]\nType = \"Worker\"\n\
             Image = \"i\"\nPodCount = 1\nEcsSpec = \"ecs.gn7e-c16g1.4xlarge\"\n"
        );
        let file = read_job(&Source::new(Path::new("job.toml"), text), Rules::unknown());
        let found = file.diagnostics.iter().filter(|one| one.code.to_string() == "E069");
        assert!(found.clone().all(|one| one.severity == Severity::Warning));
        let found = found.map(|one| format!("{}:{}", one.at.line, one.at.column)).collect();
        (file.spec.and_then(|spec| spec.hang), found)
    }

    #[test]
    fn what_stands_there_is_what_is_done() {
        let (policy, found) = read("[hang]\nlog_silence = \"30m\"");
        let wanted = HangPolicy {
            log_silence: Some(Duration::from_secs(1_800)),
            no_checkpoint: None,
            then: vec![HangAct::Notify],
        };
        assert_eq!((policy, found), (Some(wanted), Vec::new()));
        assert_eq!(read("").0, None);
    }

    #[test]
    fn what_needs_checkpoints_is_told_in_a_job_without_them() {
        let tables = "[hang]\nno_checkpoint = \"3x\"\nthen = [\"notify\", \"restart\"]";
        let (policy, found) = read(tables);
        assert_eq!(found, ["3:17", "4:19"]);
        let policy = policy.expect("it is taken");
        assert_eq!(policy.no_checkpoint, Some(Times::whole(3)));
        assert_eq!(policy.then, [HangAct::Notify, HangAct::Restart]);
    }
}
