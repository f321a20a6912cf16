//! What a look into the bucket leads to.

use super::desk::{Desk, HOUR, MINUTE, as_in, candidate, none, point, torn_above, whole};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{BlockKind, Recovery};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::submit::Hold;
use spotkeeper::model::checkpoint::{
    Findings, Look, PartPoint, Pin, ResumePoint, Tracker, TrackerRewrite, Wholeness,
};
use spotkeeper::model::ids::Digest;
use spotkeeper::model::spec::FirstStart;
use std::time::Duration;

fn first(how: FirstStart) -> Desk {
    let mut desk = Desk::new();
    desk.spec.checkpoint.as_mut().expect("checkpoints").first_start = how;
    desk.feed(Input::Tick);
    desk
}

/// One attempt ended after an hour; a look is under way.
fn ended() -> Desk {
    let mut desk = Desk::running();
    desk.end(HOUR, as_in("failed_exit137"));
    desk
}

fn could_not(needs_person: bool) -> Input {
    Input::Looked(Look::CouldNotLook { why: "503".to_owned(), needs_person })
}

fn undecided(wholeness: Wholeness) -> Findings {
    let mut findings = none();
    findings.candidates = vec![candidate(100, wholeness)];
    findings
}

#[test]
fn a_first_start_does_what_the_job_file_says() {
    for (how, findings, from) in [
        (FirstStart::Resume, whole(&[70, 60]), Some(70)),
        (FirstStart::Resume, none(), None),
        (FirstStart::Fresh, whole(&[70]), None),
        (FirstStart::Refuse, none(), None),
    ] {
        let mut desk = first(how);
        desk.submit(findings);
        assert_eq!(desk.from(), from, "{how:?}");
    }
    let mut desk = first(FirstStart::Refuse);
    desk.look(whole(&[70]));
    assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::FirstStartRefused), false));
}

#[test]
fn after_a_fresh_start_older_checkpoints_are_another_runs() {
    let old = |desk: &Desk, mut findings: Findings| {
        for candidate in &mut findings.candidates {
            candidate.newest_object = Some(desk.now.wall.minus(1000 * HOUR));
        }
        findings
    };
    // Nothing but theirs: from zero again.
    let mut desk = first(FirstStart::Fresh);
    desk.submit(whole(&[700])).live().end(HOUR, as_in("failed_exit137"));
    let findings = old(&desk, whole(&[700]));
    desk.look(findings.clone());
    desk.wait_out();
    desk.submit(findings);
    assert_eq!(desk.from(), None);
    // Its own is chosen, and still after a retry.
    desk.live().end(HOUR, as_in("stopped_by_user"));
    let mut own = whole(&[100]);
    own.candidates[0].newest_object = Some(desk.now.wall);
    desk.look(own.clone()).act(Act::Retry).submit(own);
    assert_eq!(desk.from(), Some(100));
    desk.live().end(HOUR, as_in("stopped_by_user")).look(none()).act(Act::Retry);
    let findings = old(&desk, whole(&[700]));
    desk.look(findings);
    assert!(!desk.sends(), "a checkpoint of another run is not resumed after a retry either");
    // Theirs comes first in the order and may hide its own: never from zero in silence.
    let mut desk = first(FirstStart::Fresh);
    desk.submit(whole(&[700])).live().end(HOUR, as_in("failed_exit137"));
    let mut findings = old(&desk, whole(&[700]));
    findings.candidates.push(candidate(100, Wholeness::NotChecked));
    desk.look(findings);
    assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::AmbiguousCheckpoints), false));
}

#[test]
fn scenario_85_could_not_look_never_leads_to_zero() {
    let mut desk = ended();
    let mut delays = Vec::new();
    for _ in 0..12 {
        desk.feed(could_not(false));
        delays.push(desk.wait_out().as_secs());
        assert!(!desk.sends() && desk.effects == [Effect::Look]);
    }
    assert_eq!(delays, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300]);
    assert_eq!(desk.block(), None);
    desk.submit(whole(&[10]));
    assert_eq!(desk.from(), Some(10));
}

#[test]
fn a_bucket_that_only_a_person_can_mend_blocks_and_is_tried_again() {
    for open_end in [true, false] {
        let mut desk = if open_end { ended() } else { first(FirstStart::Resume) };
        for n in 1..=3 {
            desk.feed(could_not(true));
            assert_eq!(desk.block().is_some(), n == 3);
            desk.wait_out();
        }
        assert_eq!(desk.phase(), Phase::Blocked);
        // Somebody mended it: nobody has to say so.
        desk.submit(whole(&[10]));
        assert_eq!(desk.block(), None);
    }
}

#[test]
fn an_answer_that_is_not_awaited_changes_nothing() {
    // Two looks were under way; the first led to a back-off.
    let mut desk = ended();
    desk.act(Act::Pause).act(Act::Resume);
    desk.feed(Input::Looked(Look::Done(none())));
    assert_eq!(desk.backoff(), Some(10));
    desk.feed(Input::Looked(Look::Done(none())));
    assert_eq!((desk.backoff(), desk.sends()), (Some(10), false));
    desk.feed(could_not(false));
    assert_eq!((desk.backoff(), desk.job.progress.blind), (Some(10), 0));
}

#[test]
fn what_a_person_has_to_decide_blocks_and_is_not_asked_for_over_and_over() {
    let mut ambiguous = none();
    ambiguous.ambiguous = (0..500).map(|n| format!("root-{n}/\"\u{1}").repeat(9)).collect();
    let mut rewrite = whole(&[100]);
    rewrite.chosen =
        Some(spotkeeper::model::checkpoint::ResumePoint { pin: Pin::TrackerRewrite, ..point(100) });
    for (findings, kind) in [
        (ambiguous, BlockKind::AmbiguousCheckpoints),
        (undecided(Wholeness::Unknown), BlockKind::UndecidedCheckpoints),
        (undecided(Wholeness::Unreadable), BlockKind::UndecidedCheckpoints),
        (rewrite, BlockKind::TrackerRewrite),
    ] {
        for open_end in [true, false] {
            let mut desk = if open_end { ended() } else { first(FirstStart::Resume) };
            desk.look(findings.clone());
            if desk.backoff().is_some() {
                desk.wait_out();
                desk.look(findings.clone());
            }
            assert_eq!(desk.block(), Some(kind), "{open_end}");
            assert_eq!(desk.phase(), Phase::Blocked);
            desk.wait(HOUR).wait(HOUR);
            assert!(desk.effects.is_empty(), "{kind:?}: {:?}", desk.effects);
            assert_eq!(desk.count(Word::Blocked), 1);
            // A person mended it.
            desk.act(Act::Retry).submit(whole(&[50]));
            assert_eq!(desk.from(), Some(50));
        }
    }
}

#[test]
fn none_found_after_a_whole_one_was_seen_blocks() {
    let mut desk = ended();
    desk.submit(whole(&[100])).live().end(HOUR, as_in("failed_exit137")).look(none());
    desk.wait_out();
    desk.look(none());
    assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::CheckpointsGone), false));
    // A retry asks the bucket again, and takes no "none" for an answer either.
    desk.act(Act::Retry).look(none());
    assert_eq!(desk.block(), Some(BlockKind::CheckpointsGone));
}

#[test]
fn parts_without_a_step_in_common_are_never_started_at_zero() {
    let apart = || Findings { unmatched: Some("`critic` has none".to_owned()), ..none() };
    for open_end in [true, false] {
        let mut desk = if open_end { ended() } else { first(FirstStart::Resume) };
        desk.look(apart());
        if desk.backoff().is_some() {
            desk.wait_out();
            desk.look(apart());
        }
        assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::NoCommonStep), false));
        assert!(desk.job.block.as_ref().is_some_and(|block| block.why.contains("critic")));
        // Nor when those are gone that were seen.
        desk.act(Act::Retry).look(none());
        assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::NoCommonStep), false));
        desk.act(Act::Retry).submit(whole(&[50]));
        assert_eq!(desk.from(), Some(50));
    }
}

#[test]
fn long_running_without_any_whole_checkpoint_blocks_and_a_retry_starts_at_zero() {
    let mut desk = Desk::running();
    desk.spec.checkpoint.as_mut().expect("checkpoints").expect_within = 2 * HOUR;
    desk.end(HOUR, as_in("failed_exit137")).look(none());
    desk.wait_out();
    // Under the limit: at zero again, and said so.
    desk.submit(none());
    assert_eq!((desk.from(), desk.count(Word::Alarm)), (None, 1));
    desk.live().end(HOUR, as_in("failed_exit137")).look(none());
    desk.wait_out();
    desk.look(none());
    assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::NoCheckpointInTime), false));
    desk.act(Act::Retry).submit(none());
    assert_eq!(desk.from(), None);
}

#[test]
fn an_incomplete_newest_checkpoint_settles_between_two_equal_listings() {
    let mut desk = ended();
    desk.look(torn_above(whole(&[90]), 100, 1));
    assert!(matches!(desk.job.recovery, Recovery::Settling { .. }));
    assert!(matches!(&desk.holds()[..], [Hold::NoResumePoint(why)] if why.contains("100")));
    // It grows.
    assert_eq!(desk.wait_out(), Duration::from_secs(20));
    desk.look(torn_above(whole(&[90]), 100, 2));
    assert!(!desk.sends());
    desk.wait_out();
    desk.submit(torn_above(whole(&[90]), 100, 2));
    assert_eq!(desk.from(), Some(90));
    // It becomes whole.
    let mut desk = ended();
    desk.look(torn_above(whole(&[90]), 100, 1));
    desk.wait_out();
    desk.submit(whole(&[100, 90]));
    assert_eq!(desk.from(), Some(100));
}

#[test]
fn settling_has_an_end_and_starts_anew_with_the_process() {
    let mut desk = ended();
    let mut waited = Duration::ZERO;
    let mut print = 0;
    loop {
        print += 1;
        desk.look(torn_above(whole(&[90]), 100, print));
        if desk.sends() {
            break;
        }
        waited += desk.wait_out();
        assert!(waited <= 2 * MINUTE, "it never ends");
    }
    assert!(waited >= MINUTE + MINUTE / 2);
    // An old one is not waited for.
    let mut desk = ended();
    let mut findings = torn_above(whole(&[90]), 100, 1);
    findings.unfinished.as_mut().expect("one").youngest_age = MINUTE;
    desk.submit(findings);
    let mut desk = ended();
    desk.look(torn_above(whole(&[90]), 100, 1)).feed(Input::Started);
    desk.look(torn_above(whole(&[90]), 100, 1));
    assert!(matches!(desk.job.recovery, Recovery::Settling { .. }));
}

#[test]
fn a_resume_point_that_waited_for_the_gate_is_chosen_anew() {
    let mut desk = ended();
    desk.gate.slot = false;
    desk.look(whole(&[10]));
    desk.wait(2 * MINUTE);
    assert!(desk.effects.is_empty(), "no look while nothing can be sent anyway");
    desk.gate.slot = true;
    desk.feed(Input::Tick);
    assert!(!desk.sends());
    desk.submit(whole(&[20]));
    assert_eq!(desk.from(), Some(20));
    // A fresh one goes at once.
    let mut desk = ended();
    desk.gate.slot = false;
    desk.look(whole(&[10])).wait(MINUTE);
    desk.gate.slot = true;
    desk.feed(Input::Tick);
    assert_eq!(desk.from(), Some(10));
}

#[test]
fn nothing_is_decided_under_a_spec_that_is_another_one_by_now() {
    let mut desk = Desk::without_checkpoints();
    desk.gate.verified = false;
    desk.feed(Input::Tick);
    desk.gate.verified = true;
    desk.feed(Input::Spec(Digest("1".repeat(64))));
    assert!(!desk.sends(), "the old spec has no checkpoints; the new one may have some");
    assert_eq!(desk.wake_at, Some(desk.now.boot), "and it goes on at once");
    desk.spec = Desk::new().spec;
    desk.feed(Input::Tick).submit(whole(&[30]));
    assert_eq!(desk.from(), Some(30));
    // The answer of a look under the old spec is not awaited any more.
    let mut desk = ended();
    desk.feed(Input::Spec(Digest("1".repeat(64))));
    desk.feed(Input::Looked(Look::Done(none())));
    assert!(!desk.sends() && desk.backoff().is_none());
    desk.submit(whole(&[30]));
}

#[test]
fn another_spec_lifts_a_block_and_leaves_an_open_attempt_alone() {
    let mut desk = ended();
    desk.look(undecided(Wholeness::Unknown));
    desk.wait_out();
    desk.look(undecided(Wholeness::Unknown));
    assert!(desk.block().is_some());
    desk.feed(Input::Spec(Digest("1".repeat(64)))).feed(Input::Tick).submit(whole(&[5]));
    let open = desk.job.open.clone();
    desk.live().feed(Input::Spec(Digest("2".repeat(64))));
    assert_eq!((desk.job.open[0].no, &desk.job.open[0].spec), (open[0].no, &open[0].spec));
    assert!(desk.effects.is_empty());
}

/// A whole step 100 with this many bytes in each of its paths, in `parts` parts beside the main one.
fn with_paths(bytes: usize, parts: usize) -> Findings {
    let mut findings = whole(&[100]);
    let long = |n: usize| format!("{n}{}", "p".repeat(bytes - 1));
    let key = TrackerRewrite { key: long(0), found: None, wanted: "100".into() };
    let part = |n| PartPoint { name: format!("part{n}"), path: long(n), root: long(n) };
    findings.candidates[0].path = long(0);
    findings.chosen = Some(ResumePoint {
        path: long(0),
        root: long(0),
        tracker: Tracker::Differs(Box::new(key)),
        parts: (0..parts).map(part).collect(),
        ..point(100)
    });
    findings
}

#[test]
fn paths_that_no_record_has_room_for_are_a_persons_and_never_zero() {
    // As long as keys can be; and short ones of many parts.
    for (bytes, parts) in [(1_000, 0), (300, 4)] {
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(with_paths(bytes, parts));
        desk.live().end(MINUTE, as_in("failed_exit137"));
        desk.look(with_paths(bytes, parts)).wait_out();
        desk.submit(with_paths(bytes, parts));
    }
    let mut desk = Desk::new();
    desk.feed(Input::Tick);
    for look in 1..=3 {
        desk.look(with_paths(1_000, 4));
        assert!(!desk.sends(), "{look}");
        desk.wait_out();
    }
    assert_eq!(desk.block(), Some(BlockKind::CannotLook));
    // It is looked again all the same, for somebody may have moved it.
    desk.submit(whole(&[100]));
    assert_eq!((desk.block(), desk.from()), (None, Some(100)));
}

#[test]
fn a_first_start_at_zero_beside_checkpoints_that_are_not_whole_is_never_silent() {
    for wholeness in [Wholeness::Torn, Wholeness::WeightsOnly] {
        let mut there = none();
        there.candidates = vec![candidate(200, wholeness), candidate(100, wholeness)];
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(there.clone());
        assert_eq!(desk.from(), None);
        let told = desk.told.iter().find(|event| event.word == Word::Alarm).expect("an alarm");
        assert!(told.text.contains("2 checkpoints") && told.text.contains("step-200"), "{told:?}");
        let mut desk = first(FirstStart::Refuse);
        desk.look(there);
        assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::FirstStartRefused), false));
    }
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    assert_eq!(desk.count(Word::Alarm), 0, "nothing was there");
}
