//! An attempt that the cloud does not know any more.

use super::desk::{Desk, HOUR, MINUTE, id};
use spotkeeper::core::event::Word;
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::cloud::Status;

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

#[test]
fn with_checkpoints_no_time_alone_is_enough() {
    let mut desk = Desk::running();
    missed_for(&mut desk, 100);
    assert_eq!((desk.job.open.len(), desk.causes.len()), (1, 0));
}
