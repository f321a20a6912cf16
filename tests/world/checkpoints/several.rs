//! A checkpoint of several parts: the newest step that is whole in every one of them.

use super::found;
use spotkeeper::checkpoint::common_step::look_at_parts;
use spotkeeper::checkpoint::location;
use spotkeeper::model::checkpoint::{Findings, Look, PassOver, Unchanged, Wholeness};
use spotkeeper::model::resume_text::render_parts;
use spotkeeper::model::spec::{CheckpointPart, CheckpointSpec, CustomLayout, FirstStart};
use spotkeeper::model::time::WallTime;
use std::path::Path;
use std::time::Duration;

fn layout() -> CustomLayout {
    let required = vec!["data.bin".to_owned()];
    CustomLayout { pattern: "step_{step}".into(), required, marker: None }
}

/// A job whose trainer saves below `trainer/`, and others below folders of these names.
fn spec(folder: &Path, parts: &[&str]) -> CheckpointSpec {
    let place = |name: &str| {
        location::parse(&format!("file://{}/{name}", folder.display())).expect("a place")
    };
    let parts = parts.iter().map(|name| CheckpointPart {
        name: (*name).to_owned(),
        location: place(name),
        mount: format!("/mnt/{name}"),
        format: "custom".into(),
        custom: Some(layout()),
    });
    CheckpointSpec {
        location: place("trainer"),
        mount: "/mnt/trainer".into(),
        format: "custom".into(),
        custom: Some(layout()),
        resume: None,
        resume_command: None,
        first_start: FirstStart::Resume,
        expect_within: Duration::from_secs(3_600),
        settle: Duration::ZERO,
        settle_interval: Duration::ZERO,
        ranks: None,
        fence: false,
        repair_tracker: false,
        parts: parts.collect(),
    }
}

/// Whole ones of `whole`, torn ones of `torn`.
fn save(folder: &Path, part: &str, whole: &[u64], torn: &[u64]) {
    std::fs::create_dir_all(folder.join(part)).expect("a folder");
    for (steps, name) in [(whole, "data.bin"), (torn, "other.bin")] {
        for step in steps {
            let checkpoint = folder.join(part).join(format!("step_{step}"));
            std::fs::create_dir_all(&checkpoint).expect("a folder");
            std::fs::write(checkpoint.join(name), b"x").expect("a file");
        }
    }
}

fn look(folder: &Path, parts: &[&str]) -> Findings {
    let spec = spec(folder, parts);
    found(super::run(look_at_parts(&spec, PassOver::default(), None, WallTime(1_900_000_000_000))))
}

fn chosen(findings: &Findings) -> Option<u64> {
    findings.chosen.as_ref().and_then(|point| point.step)
}

#[test]
fn scenario_42_the_newest_step_that_all_parts_have_is_chosen() {
    for (trainer, orchestrator, wanted) in [
        // The trainer is ahead, behind, and whole only where the other is torn.
        ((&[900, 950, 1000][..], &[][..]), (&[900, 950][..], &[][..]), Some(950)),
        ((&[900, 950], &[]), (&[900, 950, 1000], &[]), Some(950)),
        ((&[900, 950, 1000], &[]), (&[900], &[950, 1000]), Some(900)),
        ((&[900, 1000], &[950]), (&[900, 950], &[1000]), Some(900)),
        ((&[1000], &[]), (&[1000], &[]), Some(1000)),
        // Steps that take turns meet only far below.
        ((&[10, 30, 50, 70], &[]), (&[10, 20, 40, 60], &[]), Some(10)),
        ((&[10, 30], &[]), (&[20, 40], &[]), None),
        ((&[10], &[]), (&[], &[]), None),
        ((&[], &[10]), (&[10], &[]), None),
        ((&[], &[]), (&[], &[]), None),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        save(folder.path(), "trainer", trainer.0, trainer.1);
        save(folder.path(), "orchestrator", orchestrator.0, orchestrator.1);
        let findings = look(folder.path(), &["orchestrator"]);
        assert_eq!(chosen(&findings), wanted, "{trainer:?} {orchestrator:?}");
        let some_whole = !trainer.0.is_empty() || !orchestrator.0.is_empty();
        assert_eq!(findings.unmatched.is_some(), some_whole && wanted.is_none(), "{findings:?}");
        let Some(point) = &findings.chosen else { continue };
        let spec = spec(folder.path(), &["orchestrator"]);
        let template = "--a {path} --b {orchestrator.path} {orchestrator.root} {orchestrator.name}";
        let (step, argument) = (wanted.expect("a step"), render_parts(template, &spec, point));
        let expected = format!(
            "--a '/mnt/trainer/step_{step}' --b '/mnt/orchestrator/step_{step}' \
             '/mnt/orchestrator' 'step_{step}'"
        );
        assert_eq!(argument.expect("an argument"), expected);
        let own = findings.candidates.iter().find(|candidate| candidate.step == wanted);
        assert_eq!(own.map(|candidate| candidate.wholeness), Some(Wholeness::Whole));
        let written = findings.chosen_candidate().and_then(|candidate| candidate.newest_object);
        assert!(written.is_some(), "whose it is, is told by its time");
    }
}

#[test]
fn three_parts_meet_and_the_one_that_lags_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "trainer", &[100, 200, 300], &[]);
    save(folder.path(), "critic", &[100, 200], &[300]);
    save(folder.path(), "data", &[100, 300], &[]);
    let findings = look(folder.path(), &["critic", "data"]);
    assert_eq!(chosen(&findings), Some(100));
    let newest = findings.candidates.first().expect("one");
    assert!(newest.why.contains("not whole in every part"), "{}", newest.why);
    let unfinished = findings.unfinished.expect("the critic's");
    assert_eq!((unfinished.path.as_str(), unfinished.step), ("critic: step_300", Some(300)));
    save(folder.path(), "data", &[400], &[]);
    std::fs::remove_dir_all(folder.path().join("data/step_100")).expect("removed");
    let findings = look(folder.path(), &["critic", "data"]);
    let unmatched = findings.unmatched.expect("no step in common");
    assert!(unmatched.contains("`data` has step 400 whole"), "{unmatched}");
}

#[test]
fn a_part_that_cannot_be_looked_into_blinds_the_look_and_says_which() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "trainer", &[100], &[]);
    let spec = spec(folder.path(), &["critic"]);
    let look = super::run(look_at_parts(&spec, PassOver::default(), None, WallTime(0)));
    let Look::CouldNotLook { why, needs_person: true } = look else { panic!("{look:?}") };
    assert!(why.contains("part `critic`"), "{why}");
}

#[test]
fn a_part_that_nobody_can_judge_keeps_a_job_from_zero() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), "trainer", &[], &[]);
    // A name of a trainer's, with nothing of it inside.
    let inside = folder.path().join("critic/checkpoint-100");
    std::fs::create_dir_all(&inside).expect("a folder");
    std::fs::write(inside.join("notes.txt"), b"x").expect("a file");
    let mut spec = spec(folder.path(), &["critic"]);
    spec.parts[0].format = "auto".into();
    spec.parts[0].custom = None;
    let findings = found(super::run(look_at_parts(&spec, PassOver::default(), None, WallTime(0))));
    let undecided = findings.undecided().expect("one");
    assert_eq!(undecided.path, "critic: checkpoint-100");
}

#[test]
fn what_is_passed_over_in_the_main_prefix_is_gone_on_from_in_no_part() {
    let folder = tempfile::tempdir().expect("a folder");
    for part in ["trainer", "critic"] {
        save(folder.path(), part, &[100, 200, 300], &[]);
    }
    let spec = spec(folder.path(), &["critic"]);
    let suspect = Unchanged { path: "step_300".to_owned(), written: None };
    let over = PassOver { suspects: vec![suspect], ..PassOver::default() };
    let look = super::run(look_at_parts(&spec, over, None, WallTime(1_900_000_000_000)));
    let findings = found(look);
    assert_eq!(chosen(&findings), Some(200));
    assert_eq!(findings.passed_over.len(), 1, "{findings:?}");
    let point = findings.chosen.expect("chosen");
    assert_eq!(point.parts[0].path, "step_200", "the part goes with it");
}
