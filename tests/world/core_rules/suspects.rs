//! Checkpoints that attempts die on, and checkpoints that two attempts may have written.

use super::desk::{Desk, HOUR, MINUTE, as_in, candidate, cloud, id, mark, none, point, refused};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{BlockKind, Job, OutcomeKind, Start};
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::verdict::{Cause, LogEnd};
use spotkeeper::model::checkpoint::{
    Candidate, Findings, Look, PartPoint, Passed, PassedOver, Pin, ResumeFrom, ResumePoint,
    Wholeness,
};
use spotkeeper::model::cloud::{CloudJob, ExitReport, Pod, Status};
use spotkeeper::model::time::WallTime;
use std::time::Duration;

/// What is in the bucket: steps and when they were written, each whole.
#[derive(Clone)]
struct Bucket(Vec<(u64, WallTime)>);

impl Bucket {
    /// Steps written ten minutes apart, the last one an hour ago.
    fn of(desk: &Desk, steps: &[u64]) -> Self {
        let last = desk.now.wall.minus(HOUR);
        let at =
            |n: usize| last.minus(10 * MINUTE * u32::try_from(steps.len() - 1 - n).expect("few"));
        Self(steps.iter().enumerate().map(|(n, step)| (*step, at(n))).collect())
    }

    fn write(&mut self, desk: &Desk, step: u64) {
        self.0.retain(|(other, _)| *other != step);
        self.0.push((step, desk.now.wall));
        self.0.sort_unstable();
    }

    /// What the scan answers to a look of `job`: the newest one that is not passed over.
    fn look(&self, job: &Job) -> Findings {
        let over = job.pass_over();
        let mut findings = none();
        for (step, written) in self.0.iter().rev() {
            let path = format!("step-{step}");
            let passed = over.reason(&path, Some(*step), &[*written]);
            if let (None, Some(why)) = (&findings.chosen, passed) {
                findings.passed_over.push(PassedOver { path, step: Some(*step), why });
            } else if findings.chosen.is_none() {
                findings.chosen = Some(point(*step));
            }
            findings.candidates.push(Candidate {
                newest_object: Some(*written),
                ..candidate(*step, Wholeness::Whole)
            });
        }
        findings
    }
}

fn exits(code: i32) -> impl Fn(&mut CloudJob) {
    move |cloud| cloud.exits = vec![ExitReport { code, pods: 1 }]
}

/// A job that goes on from the newest of `steps`.
fn resumed(steps: &[u64]) -> (Desk, Bucket) {
    let mut desk = Desk::new();
    desk.spec.retry.alike = 100;
    let bucket = Bucket::of(&desk, steps);
    desk.feed(Input::Tick);
    submit(&mut desk, &bucket);
    (desk, bucket)
}

fn submit(desk: &mut Desk, bucket: &Bucket) {
    let findings = bucket.look(&desk.job);
    desk.submit(findings);
}

/// The open attempt runs for `ran`, ends, and the next one is sent; answers where it begins.
fn dies(
    desk: &mut Desk,
    bucket: &Bucket,
    ran: Duration,
    how: impl FnOnce(&mut CloudJob),
) -> Option<u64> {
    desk.live().end(ran, how);
    let findings = bucket.look(&desk.job);
    desk.look(findings);
    if desk.result().is_some() || desk.block().is_some() {
        return None;
    }
    if !desk.sends() {
        desk.wait_out();
        // One that is tried again although suspect is looked for once more.
        for _ in 0..2 {
            if !desk.sends() && desk.block().is_none() {
                let findings = bucket.look(&desk.job);
                desk.look(findings);
            }
        }
    }
    desk.from()
}

fn suspects(desk: &Desk) -> Vec<u64> {
    desk.job.progress.suspicion.marked().iter().filter_map(|suspect| suspect.step).collect()
}

#[test]
fn two_early_deaths_on_one_checkpoint_make_the_next_attempt_take_the_one_before() {
    let (mut desk, bucket) = resumed(&[800, 900, 1000]);
    assert_eq!(desk.from(), Some(1000));
    assert_eq!(dies(&mut desk, &bucket, 2 * MINUTE, exits(1)), Some(1000));
    assert!(suspects(&desk).is_empty());
    assert_eq!(dies(&mut desk, &bucket, 2 * MINUTE, exits(1)), Some(900));
    assert_eq!(suspects(&desk), [1000]);
    let told = desk.told.iter().find(|e| e.text.contains("step 1000 is suspect")).expect("told");
    assert_eq!(told.word, Word::Checkpoint);
    assert_eq!(told.data["suspects"][0]["attempts"], serde_json::json!([1, 2]));
    let chosen = desk.told.iter().rfind(|e| e.text.starts_with("chose step 900")).expect("told");
    assert_eq!(chosen.data["refused"][0]["passed_over"], "suspect");
}

#[test]
fn an_end_says_something_of_a_checkpoint_only_if_it_is_early_and_the_jobs_own() {
    type Change = Box<dyn Fn(&mut CloudJob)>;
    let stopped = |cloud: &mut CloudJob| cloud.status = Status::Stopped;
    let never_ran = |cloud: &mut CloudJob| {
        cloud.running = None;
        cloud.exits = Vec::new();
    };
    let mut ends: Vec<(&str, Duration, Change, bool)> = vec![
        ("an error of its own", MINUTE, Box::new(exits(1)), true),
        ("killed, and nothing says by what", MINUTE, Box::new(exits(137)), true),
        ("nothing at all", MINUTE, Box::new(|_| {}), true),
        ("nine minutes", 9 * MINUTE, Box::new(exits(1)), true),
        ("longer than a usual interval", 11 * MINUTE, Box::new(exits(1)), false),
        ("a release", MINUTE, Box::new(|cloud| as_in("failed_evicted.INFERRED")(cloud)), false),
        ("a stop that nobody explains", MINUTE, Box::new(stopped), false),
    ];
    ends.push(("it never ran", MINUTE, Box::new(never_ran), false));
    for (name, ran, how, counts) in ends {
        let (mut desk, bucket) = resumed(&[900, 1000]);
        desk.spec.retry.on_stopped = spotkeeper::model::spec::OnStopped::Resume;
        for _ in 0..2 {
            desk.live();
            if name == "it never ran" {
                // The trainer was not seen running either.
                let attempt = desk.job.open.last_mut().expect("an attempt");
                if let spotkeeper::core::job::AttemptState::Live { running, .. } =
                    &mut attempt.state
                {
                    *running = None;
                }
            }
            desk.end(ran, &how);
            let findings = bucket.look(&desk.job);
            desk.look(findings);
            if !desk.sends() {
                desk.wait_out();
                submit(&mut desk, &bucket);
            }
        }
        assert_eq!(desk.from(), Some(if counts { 900 } else { 1000 }), "{name}: {:?}", desk.causes);
    }
}

#[test]
fn a_long_run_from_a_checkpoint_clears_it_and_a_release_does_not_count() {
    let (mut desk, bucket) = resumed(&[900, 1000]);
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(1000));
    assert_eq!(dies(&mut desk, &bucket, HOUR, as_in("failed_evicted.INFERRED")), Some(1000));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(1000), "it had loaded in between");
    let evicted = as_in("failed_evicted.INFERRED");
    assert_eq!(dies(&mut desk, &bucket, MINUTE, evicted), Some(1000));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(900), "two, and a release between");
}

#[test]
fn logs_that_show_a_release_take_the_end_back() {
    let (mut desk, bucket) = resumed(&[900, 1000]);
    dies(&mut desk, &bucket, MINUTE, exits(137));
    desk.live().end(MINUTE, |cloud| {
        exits(137)(cloud);
        cloud.pods = vec![Pod::default()];
    });
    let logs = desk.effects.iter().find_map(|effect| match effect {
        spotkeeper::core::step::Effect::Logs { ended, .. } => Some(ended.clone()),
        _ => None,
    });
    let findings = bucket.look(&desk.job);
    desk.look(findings);
    assert_eq!(suspects(&desk), [1000]);
    let ended = logs.expect("logs are read");
    desk.feed(Input::Logs { ended, pods: vec![LogEnd::FromOutside] });
    assert!(suspects(&desk).is_empty());
    desk.wait_out();
    submit(&mut desk, &bucket);
    assert_eq!(desk.from(), Some(1000));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(900), "the first one still counts");
}

#[test]
fn two_checkpoints_that_die_alike_clear_each_other() {
    let (mut desk, bucket) = resumed(&[800, 900, 1000]);
    desk.spec.retry.alike = 5;
    dies(&mut desk, &bucket, MINUTE, exits(1));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(900));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(1000), "the job is at fault");
    assert!(suspects(&desk).is_empty());
    dies(&mut desk, &bucket, MINUTE, exits(1));
    dies(&mut desk, &bucket, MINUTE, exits(1));
    assert_eq!(desk.result(), Some(OutcomeKind::Failed), "five ends alike are a crash loop");
    assert_eq!(desk.told.iter().filter(|e| e.text.contains("is suspect")).count(), 1);
}

#[test]
fn it_steps_back_twice_and_no_further() {
    let (mut desk, bucket) = resumed(&[700, 800, 900, 1000]);
    dies(&mut desk, &bucket, MINUTE, exits(1));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(900));
    dies(&mut desk, &bucket, MINUTE, exits(2));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(2)), Some(800));
    assert_eq!(suspects(&desk), [1000, 900]);
    for _ in 0..4 {
        assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(3)), Some(800));
    }
}

#[test]
fn a_new_whole_checkpoint_is_progress_and_clears_what_stands_before_it() {
    let (mut desk, mut bucket) = resumed(&[900, 1000]);
    dies(&mut desk, &bucket, MINUTE, exits(1));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(900));
    // Short of the suspect: gone on from, and the suspect stays one.
    desk.live();
    bucket.write(&desk, 950);
    assert_eq!(dies_live(&mut desk, &bucket, HOUR), Some(950));
    assert_eq!((suspects(&desk), desk.job.progress.ends), (vec![1000], 0));
    // The suspect written anew is another checkpoint.
    desk.live();
    desk.wait(MINUTE);
    bucket.write(&desk, 1000);
    assert_eq!(dies_live(&mut desk, &bucket, HOUR), Some(1000));
    assert_eq!((suspects(&desk), desk.job.progress.ends), (vec![], 0));
}

/// As [`dies`], of an attempt that runs already.
fn dies_live(desk: &mut Desk, bucket: &Bucket, ran: Duration) -> Option<u64> {
    desk.end(ran, exits(1));
    let findings = bucket.look(&desk.job);
    desk.look(findings);
    desk.from()
}

#[test]
fn what_is_seen_saved_after_a_step_back_is_progress_though_it_is_gone_at_the_end() {
    let (mut desk, mut bucket) = resumed(&[900, 1000]);
    dies(&mut desk, &bucket, MINUTE, exits(1));
    assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(900));
    desk.live();
    let before = bucket.clone();
    bucket.write(&desk, 950);
    while !desk.effects.iter().any(|effect| matches!(effect, Effect::Watch(_))) {
        desk.wait_out();
    }
    let look = Look::Done(bucket.look(&desk.job));
    let no = desk.job.open[0].no;
    desk.feed(Input::Watched { no, look });
    assert_eq!(desk.job.progress.ends, 0);
    assert_eq!(dies_live(&mut desk, &before, MINUTE), Some(900), "at once");
    assert_eq!((suspects(&desk), desk.job.progress.ends), (vec![1000], 0));
}

#[test]
fn the_only_whole_checkpoint_is_tried_again_and_never_zero() {
    let (mut desk, bucket) = resumed(&[1000]);
    desk.spec.retry.alike = 5;
    for _ in 0..4 {
        assert_eq!(dies(&mut desk, &bucket, MINUTE, exits(1)), Some(1000));
    }
    assert!(desk.told.iter().any(|e| e.text.contains("no other whole checkpoint")));
    dies(&mut desk, &bucket, MINUTE, exits(1));
    assert_eq!(desk.result(), Some(OutcomeKind::Failed));
}

#[test]
fn a_step_back_that_no_argument_can_make_is_a_persons() {
    // The person's argument lets the trainer choose.
    let (mut desk, bucket) = resumed(&[900, 1000]);
    desk.spec.checkpoint.as_mut().expect("one").resume = Some("--load {root}".to_owned());
    dies(&mut desk, &bucket, MINUTE, exits(1));
    dies(&mut desk, &bucket, MINUTE, exits(1));
    assert_eq!(desk.block(), Some(BlockKind::TrackerRewrite));
    let why = &desk.job.block.as_ref().expect("a block").why;
    assert!(why.contains("step-1000") && why.contains("step-900"), "{why}");
    assert!(why.contains("retry --from 900"), "{why}");
    // So does a tracker that no argument overrides; one that leads there by itself is right.
    for (pin, blocked) in [(Pin::TrackerRewrite, true), (Pin::OwnChoice, false)] {
        let (mut desk, bucket) = resumed(&[900, 1000]);
        dies(&mut desk, &bucket, MINUTE, exits(1));
        desk.live().end(MINUTE, exits(1));
        let findings = bucket.look(&desk.job);
        desk.look(findings).wait_out();
        let mut findings = bucket.look(&desk.job);
        let point = findings.chosen.as_mut().expect("a choice");
        (point.pin, point.argument) = (pin, "--load {root}".to_owned());
        desk.look(findings);
        assert_eq!(desk.block().is_some(), blocked, "{pin:?}");
    }
}

#[test]
fn a_step_that_all_parts_have_is_sent_only_where_the_trainer_is_told_it() {
    for (resume, blocked) in [
        ("--resume auto", true),
        ("--resume {root}", true),
        // Of the main one it says nothing.
        ("--optimizer {opt.path}", true),
        ("--resume {path} --optimizer {opt.path}", false),
        ("--step {step}", false),
        // It reads SPOTKEEPER_RESUME_STEP.
        ("", false),
    ] {
        let (mut desk, bucket) = resumed(&[900, 1000]);
        desk.spec.checkpoint.as_mut().expect("one").resume = Some(resume.to_owned());
        desk.live().end(HOUR, exits(137));
        let mut findings = bucket.look(&desk.job);
        let parts = vec![PartPoint { name: "opt".into(), path: "900".into(), root: ".".into() }];
        findings.chosen = Some(ResumePoint { parts, ..point(900) });
        desk.job.progress.best = Some(point(900).position);
        desk.look(findings.clone()).wait_out();
        desk.look(findings);
        let wanted = blocked.then_some(BlockKind::TrackerRewrite);
        assert_eq!((desk.block(), desk.sends()), (wanted, !blocked), "{resume}");
    }
}

#[test]
fn retry_forgets_suspects_and_retry_from_overrides_them() {
    let (mut desk, bucket) = resumed(&[800, 900, 1000]);
    dies(&mut desk, &bucket, MINUTE, exits(1));
    desk.live().end(MINUTE, exits(1));
    let findings = bucket.look(&desk.job);
    desk.look(findings);
    assert_eq!(suspects(&desk), [1000]);
    let mut other = Desk::new();
    other.job = desk.job.clone();
    other.now = desk.now;
    // `retry` alone: nothing is suspect any more, the wait goes on.
    desk.act(Act::Retry);
    assert_eq!((suspects(&desk), desk.backoff().is_some()), (vec![], true));
    desk.wait_out();
    submit(&mut desk, &bucket);
    assert_eq!(desk.from(), Some(1000));
    // The suspect by name: it is taken, and is not suspect again by dying.
    other.act(Act::RetryFrom(ResumeFrom::Step(1000)));
    submit(&mut other, &bucket);
    other.spec.retry.alike = 100;
    for _ in 0..4 {
        assert_eq!(other.from(), Some(1000));
        dies(&mut other, &bucket, MINUTE, exits(1));
    }
}

#[test]
fn retry_from_a_step_passes_over_what_is_newer_until_the_job_has_written_again() {
    let (mut desk, mut bucket) = resumed(&[800, 900, 1000]);
    desk.live().act(Act::RetryFrom(ResumeFrom::Step(900)));
    assert_eq!(desk.job.progress.asked, None, "an attempt is open: nothing is done");
    desk.act(Act::Cancel).end(MINUTE, |cloud| cloud.status = Status::Stopped);
    assert_eq!(desk.result(), Some(OutcomeKind::Cancelled));
    desk.wait(MINUTE).act(Act::RetryFrom(ResumeFrom::Step(900)));
    submit(&mut desk, &bucket);
    assert_eq!(desk.from(), Some(900));
    let evicted = || as_in("failed_evicted.INFERRED");
    assert_eq!(dies(&mut desk, &bucket, MINUTE, evicted()), Some(900), "not from 1000 by itself");
    desk.live();
    desk.wait(MINUTE);
    bucket.write(&desk, 950);
    assert_eq!(dies_live(&mut desk, &bucket, HOUR), Some(950));
    assert_eq!(desk.job.progress.ends, 0, "it is progress");
    // One that is not there, or not whole.
    desk.live().act(Act::Cancel).end(MINUTE, |cloud| cloud.status = Status::Stopped);
    desk.wait(MINUTE).act(Act::RetryFrom(ResumeFrom::Step(850)));
    let findings = bucket.look(&desk.job);
    desk.look(findings);
    assert_eq!(desk.block(), Some(BlockKind::AskedForMissing));
    desk.act(Act::Retry);
    submit(&mut desk, &bucket);
    assert_eq!(desk.from(), Some(1000), "`retry` alone takes the newest");
}

#[test]
fn a_retry_after_a_step_that_is_gone_with_all_others_does_not_start_at_zero() {
    let (mut desk, _) = resumed(&[900, 1000]);
    desk.live().act(Act::Cancel).end(MINUTE, |cloud| cloud.status = Status::Stopped);
    desk.wait(MINUTE).act(Act::RetryFrom(ResumeFrom::Step(900))).look(none());
    assert_eq!(desk.block(), Some(BlockKind::AskedForMissing));
    desk.act(Act::Retry).look(none());
    assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::CheckpointsGone), false));
    // Zero by name is zero.
    desk.act(Act::RetryFrom(ResumeFrom::Fresh)).submit(none());
    assert_eq!(desk.job.open[0].start, Start::Fresh);
}

#[test]
fn retry_from_zero_never_takes_what_was_there_before() {
    let (mut desk, mut bucket) = resumed(&[900, 1000]);
    desk.live().act(Act::Cancel).end(MINUTE, |cloud| cloud.status = Status::Stopped);
    desk.wait(MINUTE).act(Act::RetryFrom(ResumeFrom::Fresh));
    submit(&mut desk, &bucket);
    assert_eq!(desk.job.open[0].start, Start::Fresh);
    desk.live();
    desk.wait(MINUTE);
    bucket.write(&desk, 100);
    assert_eq!(dies_live(&mut desk, &bucket, HOUR), Some(100));
    assert_eq!(desk.block(), None);
}

#[test]
fn a_look_that_began_before_a_suspect_was_marked_is_made_again() {
    let (mut desk, bucket) = resumed(&[900, 1000]);
    dies(&mut desk, &bucket, MINUTE, exits(1));
    desk.live().end(MINUTE, exits(1));
    let stale = bucket.look(&desk.job);
    desk.look(stale.clone()).wait_out();
    desk.feed(Input::Looked(Look::Done(stale)));
    assert!(!desk.sends());
    desk.wait_out();
    submit(&mut desk, &bucket);
    assert_eq!(desk.from(), Some(900));
}

/// The open attempt runs, and a twin of it that a crash had hidden shows up as running too.
fn with_twin(desk: &mut Desk) -> CloudJob {
    let mut twin = cloud(9, &mark(99), Status::Running);
    twin.id = id(99);
    twin.created = Some(desk.now.wall);
    twin.running = Some(desk.now.wall.plus(MINUTE));
    desk.wait(2 * MINUTE).see(twin.clone());
    assert_eq!(desk.job.open.len(), 2);
    twin
}

#[test]
fn what_was_written_while_two_attempts_ran_is_passed_over_and_told() {
    let (mut desk, mut bucket) = resumed(&[900]);
    desk.live();
    let mut twin = with_twin(&mut desk);
    desk.wait(10 * MINUTE);
    bucket.write(&desk, 1000);
    desk.wait(10 * MINUTE);
    twin.status = Status::Stopped;
    twin.finished = Some(desk.now.wall);
    desk.see(twin);
    assert_eq!(desk.job.overlaps.len(), 1);
    assert!(desk.told.iter().any(|e| e.word == Word::Twin && e.text.contains("ran beside")));
    assert_eq!(dies_live_of_first(&mut desk, &bucket), Some(900));
    let chosen = desk.told.iter().rfind(|e| e.word == Word::Checkpoint).expect("told");
    assert_eq!(chosen.data["refused"][0]["passed_over"], "overlap");
    // What is written after it counts as ever.
    desk.live();
    desk.wait(10 * MINUTE);
    bucket.write(&desk, 1100);
    assert_eq!(dies_live(&mut desk, &bucket, MINUTE), Some(1100));
}

fn dies_live_of_first(desk: &mut Desk, bucket: &Bucket) -> Option<u64> {
    desk.wait(10 * MINUTE);
    let from = dies_live(desk, bucket, MINUTE);
    if from.is_none() && desk.block().is_none() {
        desk.wait_out();
        let findings = bucket.look(&desk.job);
        desk.look(findings);
    }
    desk.from()
}

#[test]
fn a_twin_that_is_seen_only_after_the_other_one_ended_overlapped_all_the_same() {
    let (mut desk, mut bucket) = resumed(&[900]);
    desk.live();
    let began = desk.now.wall;
    desk.wait(10 * MINUTE);
    bucket.write(&desk, 1000);
    desk.end(10 * MINUTE, exits(1));
    let mut twin = cloud(9, &mark(99), Status::Failed);
    twin.id = id(99);
    twin.created = Some(began);
    twin.running = Some(began.plus(MINUTE));
    twin.finished = Some(desk.now.wall.minus(MINUTE));
    twin.exits = vec![ExitReport { code: 1, pods: 1 }];
    desk.see(twin);
    let [window] = desk.job.overlaps[..] else { panic!("{:?}", desk.job.overlaps) };
    assert_eq!(window.from, began.plus(MINUTE));
    let findings = bucket.look(&desk.job);
    assert_eq!(findings.chosen.map(|point| point.path), Some("step-900".to_owned()));
}

#[test]
fn attempts_one_after_the_other_never_overlap() {
    let (mut desk, bucket) = resumed(&[900]);
    for _ in 0..4 {
        dies(&mut desk, &bucket, HOUR, exits(1));
    }
    assert_eq!(desk.job.overlaps, []);
    // Nor does an attempt with itself that was seen ended and runs again.
    desk.live();
    let mut again = desk.cloud(Status::Running);
    desk.end(MINUTE, exits(1));
    desk.wait(MINUTE).see(again.clone());
    assert_eq!(desk.job.open.len(), 1);
    again.status = Status::Failed;
    again.finished = Some(desk.now.wall);
    desk.see(again);
    assert_eq!(desk.job.overlaps, []);
}

#[test]
fn where_all_is_of_an_overlap_a_person_decides_and_zero_is_never_taken_in_silence() {
    let mut desk = Desk::running();
    let mut twin = with_twin(&mut desk);
    desk.wait(10 * MINUTE);
    let mut bucket = Bucket(Vec::new());
    bucket.write(&desk, 100);
    desk.wait(MINUTE);
    twin.status = Status::Stopped;
    twin.finished = Some(desk.now.wall);
    desk.see(twin);
    assert_eq!(dies_live_of_first(&mut desk, &bucket), None);
    assert_eq!(desk.block(), Some(BlockKind::OverlappedCheckpoints));
    let findings = bucket.look(&desk.job);
    assert_eq!(findings.passed_over[0].why, Passed::Overlap);
    desk.act(Act::RetryFrom(ResumeFrom::Step(100)));
    submit(&mut desk, &bucket);
    assert_eq!(desk.from(), Some(100), "a person asked for it");
}

#[test]
fn a_twin_that_the_fence_turned_away_wrote_nothing() {
    let (mut desk, _) = resumed(&[900]);
    desk.spec.checkpoint.as_mut().expect("one").fence = true;
    desk.live();
    let mut twin = with_twin(&mut desk);
    twin.status = Status::Failed;
    twin.exits = vec![ExitReport { code: 194, pods: 1 }];
    twin.finished = Some(desk.now.wall);
    desk.see(twin);
    assert_eq!(desk.causes.last(), Some(&Cause::Fenced));
    assert_eq!(desk.job.overlaps, []);
}

#[test]
fn a_late_one_that_ended_before_it_was_seen_overlapped_too_and_is_told_once() {
    let mut desk = Desk::new();
    let mut bucket = Bucket::of(&desk, &[900]);
    desk.feed(Input::Tick);
    submit(&mut desk, &bucket);
    let late = desk.job.open[0].mark.clone();
    desk.sent(refused("Throttling", true)).wait_out();
    submit(&mut desk, &bucket);
    desk.live();
    let mut twin = cloud(1, &late, Status::Failed);
    twin.id = id(99);
    twin.created = Some(desk.now.wall);
    twin.running = Some(desk.now.wall.plus(MINUTE));
    desk.wait(10 * MINUTE);
    bucket.write(&desk, 1000);
    desk.wait(MINUTE);
    twin.finished = Some(desk.now.wall);
    desk.see(twin.clone()).see(twin);
    assert_eq!((desk.job.overlaps.len(), desk.count(Word::Twin)), (1, 1));
    assert_eq!(dies_live_of_first(&mut desk, &bucket), Some(900));
}
