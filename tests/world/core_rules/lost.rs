//! An attempt that the cloud does not know any more.

use super::desk::{Desk, HOUR, MINUTE, as_in, id, none, whole};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::Tally;
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::checkpoint::{Look, Wholeness};
use spotkeeper::model::cloud::Status;
use spotkeeper::model::time::WallTime;
use std::time::Duration;

fn missed(desk: &mut Desk, same_caller: bool) {
    desk.feed(Input::Missing { id: id(1), same_caller });
}

/// Missed in a pass each minute.
fn missed_for(desk: &mut Desk, minutes: u32) {
    for _ in 0..minutes {
        desk.wait(MINUTE);
        missed(desk, true);
    }
}

/// Without checkpoints there is nothing that could show that it stands still.
fn without_checkpoints() -> Desk {
    let mut desk = Desk::without_checkpoints();
    desk.feed(Input::Tick);
    desk.live();
    desk
}

#[test]
fn one_that_is_missing_runs_on_for_the_record_until_a_person_says_that_it_does_not() {
    let mut desk = without_checkpoints();
    missed_for(&mut desk, 15);
    assert_eq!((desk.phase(), desk.count(Word::Alarm)), (Phase::Running, 0));
    desk.act(Act::Retry);
    assert_eq!(desk.job.open.len(), 1, "too early to say");
    missed_for(&mut desk, 60);
    assert_eq!((desk.job.open.len(), desk.count(Word::Alarm)), (1, 1), "told once");
    assert!(!desk.sends());
    desk.act(Act::Retry);
    assert_eq!(desk.causes, [Cause::Lost]);
    assert_eq!(desk.count(Word::Lost), 1);
    assert!(desk.sends() || desk.backoff().is_some(), "it goes on");
}

#[test]
fn an_answer_that_knows_it_begins_the_count_anew_and_so_do_other_keys_and_another_process() {
    type Change = fn(&mut Desk);
    let shown: Change = |desk| {
        let cloud = desk.cloud(Status::Running);
        desk.see(cloud);
    };
    let other_keys: Change = |desk| missed(desk, false);
    let restarted: Change = |desk| {
        desk.feed(Input::Started);
    };
    for (what, change) in [("shown", shown), ("keys", other_keys), ("start", restarted)] {
        let mut desk = without_checkpoints();
        missed_for(&mut desk, 14);
        change(&mut desk);
        missed_for(&mut desk, 14);
        desk.act(Act::Retry);
        assert_eq!(desk.job.open.len(), 1, "{what}");
        missed_for(&mut desk, 3);
        desk.act(Act::Retry);
        assert_eq!(desk.causes, [Cause::Lost], "{what}");
    }
}

#[test]
fn long_is_both_passes_and_time() {
    let mut desk = without_checkpoints();
    for _ in 0..100 {
        missed(&mut desk, true);
    }
    desk.act(Act::Retry);
    assert_eq!(desk.job.open.len(), 1, "many passes in no time");
    let mut desk = without_checkpoints();
    missed(&mut desk, true);
    desk.wait(HOUR);
    missed(&mut desk, true);
    desk.act(Act::Retry);
    assert_eq!(desk.job.open.len(), 1, "two passes in an hour");
}

#[test]
fn a_cancelled_job_ends_without_one_that_was_deleted() {
    let mut desk = Desk::running();
    desk.act(Act::Cancel);
    missed_for(&mut desk, 15);
    assert_eq!(desk.phase(), Phase::Stopping);
    missed_for(&mut desk, 3);
    desk.feed(Input::Tick);
    assert_eq!(desk.phase(), Phase::Cancelled);
    // The same where the wish comes later.
    let mut desk = Desk::running();
    missed_for(&mut desk, 20);
    desk.act(Act::Cancel);
    missed_for(&mut desk, 1);
    desk.feed(Input::Tick);
    assert_eq!(desk.phase(), Phase::Cancelled);
}

#[test]
fn one_that_comes_back_is_taken_up_or_stopped() {
    let mut desk = without_checkpoints();
    let late = desk.cloud(Status::Running);
    missed_for(&mut desk, 17);
    desk.act(Act::Retry);
    if desk.backoff().is_some() {
        desk.wait_out();
    }
    assert!(desk.sends());
    desk.live();
    desk.see(late);
    assert_eq!(desk.count(Word::Twin), 1);
    assert_eq!(desk.stops(), 1, "the one on record survives");
    let open: Vec<u32> = desk.job.open.iter().filter(|a| a.stop.is_none()).map(|a| a.no).collect();
    assert_eq!(open, [2]);
}

/// One that has been missing for long, and whose prefix is looked at.
fn long_missing() -> Desk {
    let mut desk = Desk::running();
    missed_for(&mut desk, 15);
    assert!(desk.count(Word::Alarm) == 0, "too early");
    missed_for(&mut desk, 1);
    assert!(desk.effects.contains(&Effect::Watch(1)), "{:?}", desk.effects);
    desk
}

fn written(age: Duration, desk: &Desk) -> Look {
    let mut findings = whole(&[100]);
    findings.candidates[0].newest_object = Some(desk.now.wall.minus(age));
    Look::Done(findings)
}

fn watched(desk: &mut Desk, look: Look) {
    desk.feed(Input::Watched { no: 1, look });
}

#[test]
fn with_checkpoints_it_is_lost_once_they_stand_still_too() {
    let mut desk = long_missing();
    desk.spec.checkpoint.as_mut().expect("a checkpoint").expect_within = HOUR;
    let first = written(10 * MINUTE, &desk);
    watched(&mut desk, first);
    assert_eq!(desk.wait_out(), 50 * MINUTE, "a trainer may save once an hour");
    assert!(desk.effects.contains(&Effect::Watch(1)));
    let another = written(59 * MINUTE, &desk);
    watched(&mut desk, another);
    assert_eq!(desk.job.open.len(), 1, "it has written since: it runs");
    assert_eq!(desk.wait_out(), 15 * MINUTE);
    let same = written(74 * MINUTE, &desk);
    watched(&mut desk, same);
    assert_eq!(desk.causes, [Cause::Lost]);
    assert_eq!(desk.phase(), Phase::Lost);
    desk.submit(whole(&[100]));
    assert_eq!(desk.from(), Some(100));
}

#[test]
fn one_look_is_not_enough_whatever_the_times_in_the_bucket_say() {
    let mut desk = long_missing();
    let ancient = written(1000 * HOUR, &desk);
    watched(&mut desk, ancient);
    assert_eq!(desk.job.open.len(), 1);
    assert_eq!(desk.wait_out(), 15 * MINUTE);
    let same = written(1000 * HOUR + 15 * MINUTE, &desk);
    watched(&mut desk, same);
    assert_eq!(desk.causes, [Cause::Lost]);
}

#[test]
fn a_prefix_that_cannot_be_seen_to_stand_still_is_no_reason() {
    let no_look = Look::CouldNotLook { why: "403".to_owned(), needs_person: true };
    let nothing = Look::Done(none());
    let mut several = whole(&[100]);
    several.candidates.clear();
    several.ambiguous = vec!["a".to_owned(), "b".to_owned()];
    // One that stands still, beside a folder into which it may write unseen.
    let mut closed = whole(&[100]);
    closed.candidates[0].newest_object = Some(WallTime(0));
    let mut folder = closed.candidates[0].clone();
    (folder.wholeness, folder.newest_object, folder.step) = (Wholeness::Unreadable, None, None);
    closed.candidates.insert(0, folder);
    for look in [no_look, nothing, Look::Done(several), Look::Done(closed)] {
        let mut desk = long_missing();
        for _ in 0..20 {
            watched(&mut desk, look.clone());
            assert_eq!((desk.job.open.len(), desk.causes.len()), (1, 0), "{look:?}");
            desk.wait_out();
            assert!(desk.effects.contains(&Effect::Watch(1)));
        }
        desk.act(Act::Retry);
        assert_eq!(desk.causes, [Cause::Lost], "a person may say so");
    }
}

#[test]
fn one_that_shows_up_while_its_prefix_is_looked_at_is_not_lost() {
    let mut desk = long_missing();
    let cloud = desk.cloud(Status::Running);
    desk.see(cloud);
    let still = written(HOUR, &desk);
    watched(&mut desk, still);
    assert_eq!((desk.job.open.len(), desk.causes.len()), (1, 0));
    assert_eq!(desk.count(Word::Returned), 1);
}

/// Attempt 1 lost, attempt 2 running; and attempt 1 as the cloud last showed it.
fn lost_and_followed() -> (Desk, spotkeeper::model::cloud::CloudJob) {
    let mut desk = long_missing();
    let last = desk.cloud(Status::Running);
    desk.act(Act::Retry).submit(whole(&[100])).live();
    (desk, last)
}

#[test]
fn one_that_was_lost_and_shows_up_with_its_end_is_told_and_what_both_wrote_is_passed_over() {
    let (mut desk, mut late) = lost_and_followed();
    assert_eq!((desk.job.created, desk.job.tally.errors), (2, 1));
    desk.wait(HOUR);
    late.status = Status::Failed;
    late.finished = Some(desk.now.wall.minus(10 * MINUTE));
    desk.see(late.clone());
    assert_eq!(desk.count(Word::Returned), 1);
    assert_eq!((desk.job.open.len(), desk.stops()), (1, 0), "the one on record goes on");
    assert_eq!(desk.job.overlaps.len(), 1, "both ran");
    assert_eq!((desk.job.created, desk.job.tally.errors), (2, 1), "it is counted once");
    assert_eq!(desk.causes.last(), Some(&Cause::Unexplained), "its true end");
    let before = desk.job.clone();
    desk.see(late);
    assert_eq!(desk.job, before, "told once");
    desk.end(MINUTE, as_in("failed_exit137"));
    assert!(desk.job.unjudged.as_ref().is_some_and(|ended| ended.attempt.no == 2));
}

#[test]
fn a_twin_that_is_missing_is_lost_only_over_a_prefix_that_stands_still_too() {
    let (mut desk, late) = lost_and_followed();
    desk.spec.checkpoint.as_mut().expect("a checkpoint").expect_within = MINUTE;
    let mut survivor = desk.cloud(Status::Failed);
    desk.see(late);
    assert_eq!(desk.stops(), 1, "it is a twin");
    missed_for(&mut desk, 20);
    assert_eq!(desk.job.open.len(), 2, "to have asked it to stop is no end");
    as_in("failed_exit137")(&mut survivor);
    survivor.finished = Some(desk.now.wall);
    desk.see(survivor);
    desk.wait(HOUR);
    assert!(!desk.sends() && desk.job.open.len() == 1, "it may run on beside the next one");
    let first = written(HOUR, &desk);
    watched(&mut desk, first);
    desk.wait(15 * MINUTE);
    assert!(desk.effects.contains(&Effect::Watch(1)));
    let same = written(HOUR + 15 * MINUTE, &desk);
    watched(&mut desk, same);
    assert_eq!((desk.causes.last(), desk.job.open.len()), (Some(&Cause::Lost), 0));
    desk.submit(whole(&[200]));
    assert_eq!(desk.job.overlaps.len(), 1, "what both wrote is passed over");
}

#[test]
fn a_twin_that_is_missing_is_let_go_where_nothing_follows_it() {
    let (mut desk, late) = lost_and_followed();
    let mut survivor = desk.cloud(Status::Succeeded);
    desk.spec.total_steps = None;
    desk.see(late);
    missed_for(&mut desk, 20);
    survivor.finished = Some(desk.now.wall);
    desk.see(survivor);
    if desk.effects.contains(&Effect::Look) {
        desk.look(whole(&[100]));
    }
    missed_for(&mut desk, 1);
    assert_eq!(desk.job.open.len(), 0);
}

#[test]
fn what_was_written_while_nobody_saw_a_lost_one_is_passed_over_whatever_run_it_shows() {
    for shown in [Status::Running, Status::Failed] {
        let (mut desk, mut late) = lost_and_followed();
        let lost = desk.now.wall;
        desk.end(HOUR, as_in("failed_exit137"));
        desk.submit(whole(&[200])).live();
        desk.wait(HOUR);
        // It was restarted meanwhile, and nothing tells of the run before.
        late.running = Some(desk.now.wall.minus(MINUTE));
        late.status = shown;
        late.finished = late.status.is_end().then_some(desk.now.wall);
        desk.see(late);
        let covers = |at| desk.job.overlaps.iter().any(|o| o.from <= at && at <= o.until);
        assert!(covers(lost.plus(MINUTE)) && covers(desk.now.wall), "{:?}", desk.job.overlaps);
    }
    // Nothing else ran meanwhile: what is there is its own.
    let mut desk = long_missing();
    let late = desk.cloud(Status::Running);
    desk.act(Act::Retry);
    assert_eq!(desk.causes, [Cause::Lost]);
    desk.wait(HOUR);
    desk.see(late);
    assert_eq!((desk.job.open.len(), desk.job.overlaps.len()), (1, 0));
}

#[test]
fn a_calendar_that_is_set_back_hides_no_overlap() {
    let (mut desk, late) = lost_and_followed();
    desk.see(late.clone());
    let twin = desk.job.open.iter().position(|a| a.stop.is_some()).expect("a twin");
    assert_eq!(twin, 1);
    let before = desk.job.overlaps.clone();
    let ends = desk.now.wall.plus(HOUR);
    desk.now.wall = desk.now.wall.minus(2 * HOUR);
    let mut end = late;
    end.status = Status::Stopped;
    end.finished = Some(ends);
    desk.see(end);
    let covers = desk.job.overlaps.iter().any(|o| o.until >= ends);
    assert!(covers, "{before:?} became {:?}", desk.job.overlaps);
}

#[test]
fn the_end_of_a_lost_one_is_not_judged_twice_and_a_success_is_one() {
    let lost = || {
        let mut desk = long_missing();
        let last = desk.cloud(Status::Running);
        desk.act(Act::Retry);
        assert_eq!(desk.causes, [Cause::Lost]);
        (desk, last)
    };
    // Before anything was decided on the loss its true end is decided on.
    let (mut desk, mut late) = lost();
    late.status = Status::Failed;
    late.finished = Some(desk.now.wall);
    desk.see(late).look(none());
    assert_eq!((desk.job.progress.ends, desk.job.open.len()), (1, 0));
    // After that it only corrects history.
    let (mut desk, mut late) = lost();
    desk.look(none());
    let (ends, waits) = (desk.job.progress.ends, desk.backoff());
    assert_eq!(ends, 1);
    late.status = Status::Failed;
    late.finished = Some(desk.now.wall);
    desk.see(late);
    assert_eq!((desk.job.progress.ends, desk.backoff()), (ends, waits));
    assert!(desk.job.unjudged.is_none());
    // Work that is done is not done again.
    let (mut desk, mut late) = lost();
    desk.spec.total_steps = None;
    desk.look(none());
    late.status = Status::Succeeded;
    late.finished = Some(desk.now.wall);
    desk.see(late);
    assert_eq!(desk.phase(), Phase::Succeeded);
}

#[test]
fn one_that_comes_back_counts_as_one_attempt_and_one_end() {
    for followed in [false, true] {
        let mut desk = Desk::running();
        let back = desk.cloud(Status::Running);
        desk.end(HOUR, as_in("failed_exit137"));
        let attempts = 1 + u32::from(followed);
        if followed {
            desk.submit(whole(&[10])).live();
        }
        let ran = desk.job.progress.ran;
        assert!(ran >= HOUR);
        desk.see(back.clone());
        assert_eq!(desk.job.created, attempts, "{followed}");
        assert_eq!(desk.job.tally.errors + desk.job.tally.releases, 0, "{followed}");
        let mut end = back;
        as_in("failed_exit137")(&mut end);
        end.finished = Some(desk.now.wall.plus(MINUTE));
        desk.wait(MINUTE);
        desk.see(end);
        let Tally { releases, errors, .. } = desk.job.tally;
        // One that was stopped as a twin is no error.
        assert_eq!(releases + errors, u32::from(!followed), "{followed}");
        assert!(desk.job.progress.ran < ran + HOUR, "{followed}: its time is counted once");
        assert_eq!(desk.job.open.len(), usize::from(followed), "one survivor");
    }
}
