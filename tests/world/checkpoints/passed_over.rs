//! What a look does not choose although it is whole: suspects, what two attempts may have written,
//! and what was there before a person asked for another start.

use super::bucket::{Bucket, cases};
use super::{fixtures, look_auto, look_named, options};
use spotkeeper::checkpoint::scan::ScanOptions;
use spotkeeper::model::checkpoint::{
    Earlier, Findings, PassOver, Passed, Pin, ResumePoint, Unchanged, Wholeness,
};
use spotkeeper::model::resume_text::render;
use spotkeeper::model::time::WallTime;

fn look_past(bucket: &Bucket, pass_over: PassOver) -> Findings {
    look_named(bucket, "run42", &ScanOptions { pass_over, ..options("auto") })
}

/// The path of what was chosen, its step, and when its newest object was written.
fn chosen(findings: &Findings) -> Option<(String, Option<u64>, WallTime)> {
    let point = findings.chosen.as_ref()?;
    let candidate = findings.candidates.iter().find(|c| c.path == point.path)?;
    Some((point.path.clone(), point.step, candidate.newest_object?))
}

fn suspect(path: &str, written: WallTime) -> PassOver {
    let suspect = Unchanged { path: path.to_owned(), written: Some(written) };
    PassOver { suspects: vec![suspect], ..PassOver::default() }
}

#[test]
fn in_every_fixture_a_suspect_is_passed_over_and_the_argument_leads_to_the_one_before() {
    let mut stepped_back = 0;
    for case in cases(&fixtures()) {
        let (bucket, name) = (Bucket::of(&case), case.display());
        let first = look_auto(&bucket);
        let Some((path, step, written)) = chosen(&first) else { continue };
        let findings = look_past(&bucket, suspect(&path, written));
        let passed: Vec<_> = findings.passed_over.iter().map(|one| (&one.path, one.why)).collect();
        assert_eq!(passed, [(&path, Passed::Suspect)], "{name}");
        let shown = findings.candidates.iter().find(|c| c.path == path).expect("it is shown");
        assert_eq!(shown.wholeness, Wholeness::Whole, "{name}");
        assert!(shown.why.contains("suspect"), "{name}: {}", shown.why);
        if let Some(point) = &findings.chosen {
            stepped_back += 1;
            assert_ne!(point.path, path, "{name}");
            assert_ne!(point.step, step, "{name}: two of one step");
            // The trainer's own choice is the newest, or what a tracker names.
            let argument = |point: &ResumePoint| render(&point.argument, "/mnt", point).ok();
            if point.pin == Pin::Argument {
                let newest = first.chosen.as_ref().and_then(argument);
                assert_ne!(argument(point), newest, "{name}: one argument for two");
            }
        }
        // Written anew, it is another one.
        let findings = look_past(&bucket, suspect(&path, written.minus(MINUTE)));
        assert_eq!(chosen(&findings).map(|(path, ..)| path), Some(path), "{name}");
        assert_eq!(findings.passed_over, [], "{name}");
    }
    assert!(stepped_back > 20, "only {stepped_back} fixtures have two whole ones");
}

const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);

#[test]
fn megatron_is_pinned_to_the_older_one_although_the_tracker_names_the_suspect() {
    let bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    let first = look_auto(&bucket);
    let point = first.chosen.as_ref().expect("a choice");
    assert_eq!((point.pin, point.argument.as_str()), (Pin::OwnChoice, "--load {root}"));
    let (path, step, written) = chosen(&first).expect("a choice");
    let point = look_past(&bucket, suspect(&path, written)).chosen.expect("the one before");
    assert!(point.step < step);
    assert_eq!(point.pin, Pin::Argument);
    assert_eq!(point.argument, "--load {root} --ckpt-step {step}");
}

#[test]
fn what_was_written_in_an_overlap_is_passed_over_and_named() {
    let bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    let (path, _, written) = chosen(&look_auto(&bucket)).expect("a choice");
    let overlap = |from, until| PassOver { overlaps: vec![(from, until)], ..PassOver::default() };
    let findings = look_past(&bucket, overlap(written, written.plus(MINUTE)));
    assert_ne!(findings.chosen.as_ref().map(|point| &point.path), Some(&path));
    assert_eq!(findings.passed_over[0].why, Passed::Overlap);
    let findings = look_past(&bucket, overlap(written.plus(MINUTE), written.plus(MINUTE * 2)));
    assert_eq!(findings.chosen.map(|point| point.path), Some(path));
    let findings = look_past(&bucket, overlap(WallTime(0), written));
    assert_eq!(findings.chosen, None, "all of them: nothing is chosen, and each is named");
    assert!(findings.passed_over.iter().all(|one| one.why == Passed::Overlap));
}

#[test]
fn one_object_of_an_overlap_is_enough_however_late_the_last_one_came() {
    let mut bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    let (path, _, written) = chosen(&look_auto(&bucket)).expect("a choice");
    let began = written.minus(MINUTE * 10);
    let first = bucket.entries.iter_mut().find(|(key, _)| key.starts_with(&path)).expect("one").1;
    first.modified = began;
    let over = |from: WallTime, until| {
        let overlaps = vec![(from, until)];
        look_past(&bucket, PassOver { overlaps, ..PassOver::default() })
    };
    let findings = over(began.minus(MINUTE), began);
    assert_ne!(findings.chosen.as_ref().map(|point| &point.path), Some(&path));
    assert_eq!(
        (&findings.passed_over[0].path, findings.passed_over[0].why),
        (&path, Passed::Overlap)
    );
    // Between two of its objects nothing was written.
    let findings = over(began.plus(MINUTE), began.plus(MINUTE * 2));
    assert_eq!(findings.chosen.map(|point| point.path), Some(path));
}

#[test]
fn the_newest_that_is_not_passed_over_may_still_be_uploading() {
    let whole = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    let (newest, _, written) = chosen(&look_auto(&whole)).expect("a choice");
    let (before, step, _) =
        chosen(&look_past(&whole, suspect(&newest, written))).expect("the one before");
    let mut bucket = whole.clone();
    let part = bucket.entries.keys().rfind(|key| key.starts_with(&before)).expect("one").clone();
    bucket.entries.remove(&part);
    assert_eq!(look_auto(&bucket).unfinished, None, "the newest is whole");
    let earlier = Earlier { before: written.plus(MINUTE), but_step: step };
    for over in [
        suspect(&newest, written),
        PassOver { overlaps: vec![(written, written)], ..PassOver::default() },
        PassOver { earlier: Some(earlier), ..PassOver::default() },
    ] {
        let unfinished = look_past(&bucket, over).unfinished.expect("one");
        assert_eq!((unfinished.path, unfinished.step), (before.clone(), step));
    }
}

#[test]
fn only_the_step_that_a_person_asked_for_is_chosen_of_what_was_there() {
    let bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    let (newest, step, written) = chosen(&look_auto(&bucket)).expect("a choice");
    let (before, older, _) =
        chosen(&look_past(&bucket, suspect(&newest, written))).expect("the one before");
    let from = |but_step| PassOver {
        earlier: Some(Earlier { before: written.plus(MINUTE), but_step }),
        ..suspect(&before, written)
    };
    let findings = look_past(&bucket, from(older));
    assert_eq!(findings.chosen.as_ref().map(|point| &point.path), Some(&before), "{findings:?}");
    assert_eq!((&findings.passed_over[0].path, findings.passed_over[0].step), (&newest, step));
    assert_eq!(findings.candidates[0].wholeness, Wholeness::NotChecked, "it is not even read");
    for nothing in [None, Some(77)] {
        assert_eq!(look_past(&bucket, from(nothing)).chosen, None, "{nothing:?}");
    }
    let since = Earlier { before: written, but_step: None };
    let findings = look_past(&bucket, PassOver { earlier: Some(since), ..PassOver::default() });
    assert_eq!(findings.chosen.map(|point| point.path), Some(newest), "written since");
}
