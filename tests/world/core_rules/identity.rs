//! Whose a job is, and when an attempt is over.

use super::desk::{ACCEPTANCE, Desk, HOUR, as_in, cloud, id, mark, none, refused, unknown, whole};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{AttemptState, BlockKind, OutcomeKind, StopWhy};
use spotkeeper::core::step::{Act, Input, Past, step};
use spotkeeper::core::submit::Hold;
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::cloud::{CloudJob, ExitReport, SendOutcome, Status};
use spotkeeper::model::ids::Mark;
use spotkeeper::model::spec::FirstStart;
use spotkeeper::model::time::WallTime;

fn intended() -> Desk {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    desk
}

fn searching() -> Desk {
    let mut desk = intended();
    desk.sent(unknown());
    desk
}

/// Nothing is open, and attempt 1 was proved never created.
fn absent() -> Desk {
    let mut desk = searching();
    desk.wait(ACCEPTANCE);
    desk.pass(true).pass(true).pass(true);
    desk
}

fn stranger(no: u32, status: Status) -> CloudJob {
    let mut cloud = cloud(no, &mark(100 + u8::try_from(no).expect("small")), status);
    cloud.created = Some(WallTime(1_790_000_000_000 + i64::from(no)));
    cloud
}

#[test]
fn a_createjob_that_created_nothing_is_tried_again_later() {
    for outcome in [
        SendOutcome::NotSent { why: "no route".to_owned() },
        refused("Throttling.User", true),
        refused("InvalidParameter", false),
    ] {
        let mut desk = intended();
        let mut delays = Vec::new();
        for _ in 0..2 {
            desk.sent(outcome.clone());
            assert!(desk.job.open.is_empty() && !desk.sends(), "{outcome:?}");
            assert_eq!(
                desk.past.values().filter(|p| matches!(p, Past::NeverCreated { .. })).count(),
                delays.len() + 1
            );
            delays.push(desk.wait_out().as_secs());
            desk.submit(none());
        }
        assert_eq!(delays, [2, 4], "{outcome:?}");
        assert_eq!((desk.job.created, desk.job.progress.ends), (0, 0));
        assert_eq!(desk.job.open[0].no, 3, "a number is never used again");
    }
}

#[test]
fn a_lasting_refusal_blocks_after_three_and_a_passing_one_never() {
    let mut desk = intended();
    for n in 1..=3 {
        desk.sent(refused("InvalidParameter", false));
        assert_eq!(desk.block(), (n == 3).then_some(BlockKind::NeverStarts));
        desk.wait_out();
        if n < 3 {
            desk.submit(none());
        }
    }
    assert!(!desk.sends());
    let mut desk = intended();
    for _ in 0..30 {
        desk.sent(refused("Throttling", true));
        desk.wait_out();
        desk.submit(none());
    }
    assert_eq!(desk.block(), None);
    assert!(desk.job.progress.unsent > 20);
}

#[test]
fn trap_01_a_create_job_that_timed_out_is_searched_before_another_is_sent() {
    let mut desk = searching();
    assert!(matches!(desk.job.open[0].state, AttemptState::Unknown { passes: 0, .. }));
    assert!(matches!(desk.holds()[..], [Hold::OpenAttempt { unknown: true, .. }, ..]));
    let cloud = desk.cloud(Status::Queuing);
    desk.see(cloud);
    assert_eq!(desk.job.open[0].id(), Some(&id(1)));
    assert_eq!((desk.job.created, desk.count(Word::Found)), (1, 1));
    // Its reply, read late, says the same; another id would be impossible.
    desk.sent(SendOutcome::Accepted { id: id(1) });
    let other = Input::Sent { no: 1, outcome: SendOutcome::Accepted { id: id(2) } };
    assert!(step(&desk.job, &desk.given(), other).is_err());
}

#[test]
fn absent_is_proved_by_three_complete_passes_that_began_after_the_window() {
    let mut desk = searching();
    // Before the window is over none counts, however many.
    for _ in 0..10 {
        desk.wait(ACCEPTANCE / 20);
        desk.pass(true);
    }
    desk.wait(ACCEPTANCE / 2);
    for _ in 0..10 {
        desk.pass(false);
    }
    assert_eq!(desk.job.open.len(), 1, "incomplete passes never count");
    desk.pass(true).pass(false).pass(true);
    assert_eq!(desk.job.open.len(), 1);
    desk.pass(true);
    assert!(desk.job.open.is_empty());
    assert_eq!((desk.count(Word::Absent), desk.causes.last()), (1, Some(&Cause::NeverCreated)));
    desk.submit(none());
    assert_ne!(desk.job.open[0].mark, mark(0));
}

#[test]
fn passes_by_other_keys_prove_nothing_together() {
    let mut desk = searching();
    desk.wait(ACCEPTANCE);
    desk.pass(true).pass(true).pass_by(true, false);
    assert_eq!(desk.job.open.len(), 1, "other keys may not see the same jobs");
    desk.pass(true).pass(true);
    assert!(desk.job.open.is_empty());
}

#[test]
fn the_wait_for_absence_starts_anew_with_the_process_and_with_the_last_word_of_a_send() {
    let mut desk = searching();
    desk.wait(ACCEPTANCE);
    desk.pass(true).pass(true);
    desk.feed(Input::Started);
    desk.pass(true).pass(true).pass(true);
    assert_eq!(desk.job.open.len(), 1, "boot times of another process are void");
    // The store was opened again while the request was on its way.
    let mut desk = intended();
    desk.feed(Input::Started);
    desk.wait(ACCEPTANCE);
    desk.sent(unknown());
    desk.pass(true).pass(true).pass(true);
    assert_eq!(desk.job.open.len(), 1, "until now it was on its way");
    desk.wait(ACCEPTANCE);
    desk.pass(true).pass(true).pass(true);
    assert!(desk.job.open.is_empty());
}

#[test]
fn a_server_whose_clock_is_behind_may_accept_for_longer() {
    let mut desk = searching();
    desk.now.boot = desk.now.boot.plus(ACCEPTANCE);
    desk.pass(true).pass(true).pass(true);
    assert_eq!(desk.job.open.len(), 1);
}

#[test]
fn a_crash_around_the_send_is_looked_up_and_nothing_is_sent_again() {
    let mut desk = intended();
    desk.feed(Input::Started);
    assert!(matches!(desk.job.open[0].state, AttemptState::Unknown { .. }));
    assert!(!desk.sends());
    let cloud = desk.cloud(Status::Running);
    desk.see(cloud);
    assert_eq!((desk.job.open.len(), desk.job.created), (1, 1));
}

#[test]
fn a_late_twin_is_stopped_and_the_attempt_on_record_survives() {
    let mut desk = absent();
    desk.submit(none()).live();
    let mut late = cloud(1, &first_mark(&desk), Status::Running);
    late.created = Some(desk.now.wall);
    desk.see(late.clone());
    assert_eq!(desk.stops(), 1);
    let stops: Vec<_> = desk.job.open.iter().map(|a| (a.no, a.stop)).collect();
    assert_eq!(stops, [(2, None), (1, Some(StopWhy::Twin))]);
    assert_eq!((desk.count(Word::Twin), desk.count(Word::Alarm)), (1, 1));
    // Its end decides nothing.
    late.status = Status::Stopped;
    desk.see(late);
    assert_eq!((desk.job.open.len(), desk.job.unjudged.is_none()), (1, true));
    let end = desk.cloud(Status::Failed);
    desk.see(end).look(none());
    assert_eq!(desk.backoff(), Some(10));
}

fn first_mark(desk: &Desk) -> Mark {
    let never = |past: &Past| matches!(past, Past::NeverCreated { no: 1, .. });
    desk.past.iter().find(|(_, past)| never(past)).expect("attempt 1").0.clone()
}

#[test]
fn a_late_one_is_taken_up_where_nothing_else_is_open() {
    let mut desk = absent();
    let mut late = cloud(1, &first_mark(&desk), Status::Running);
    late.created = Some(desk.now.wall);
    desk.see(late);
    assert_eq!((desk.job.open.len(), desk.stops(), desk.count(Word::Returned)), (1, 0, 1));
    // The look that was under way is not for it.
    desk.feed(Input::Looked(Look::Done(none())));
    assert!(!desk.sends());
}

#[test]
fn a_job_of_ours_that_nobody_awaits_is_stopped_where_another_job_writes() {
    let late = |desk: &mut Desk| {
        let mut late = cloud(1, &first_mark(desk), Status::Running);
        late.created = Some(desk.now.wall);
        late
    };
    let mut came_late = absent();
    let late = late(&mut came_late);
    let mut came_back = Desk::running();
    let back = came_back.cloud(Status::Running);
    came_back.end(HOUR, as_in("failed_exit137"));
    let unknown = (Desk::new(), stranger(7, Status::Running));
    for (mut desk, shown) in [(came_late, late), (came_back, back), unknown] {
        desk.gate.writer = Some(desk.job.key.clone());
        desk.see(shown.clone());
        assert_eq!(desk.job.open[0].stop, Some(StopWhy::Twin), "{}", shown.id);
        assert_eq!((desk.stops(), desk.count(Word::Twin)), (1, 1), "{}", shown.id);
        assert!(desk.count(Word::Alarm) > 0, "{}", shown.id);
        // Its end decides nothing; the job waits for the other one.
        desk.gate.lease = desk.gate.writer.take();
        desk.see(CloudJob { status: Status::Stopped, ..shown });
        assert!(desk.job.open.is_empty() && desk.job.block.is_none());
        assert!(!desk.sends());
    }
    // What has ended writes no more.
    let mut desk = Desk::new();
    desk.gate.writer = Some(desk.job.key.clone());
    desk.see(stranger(7, Status::Failed));
    assert_eq!((desk.stops(), desk.count(Word::Twin)), (0, 0));
}

#[test]
fn a_late_one_of_another_user_is_left_alone() {
    let mut desk = absent();
    desk.submit(none()).live();
    let mut late = cloud(1, &first_mark(&desk), Status::Running);
    late.created = Some(desk.now.wall);
    late.user_id = Some("somebody".to_owned());
    desk.see(late);
    assert_eq!((desk.stops(), desk.job.copies.len()), (0, 1));
}

#[test]
fn a_dead_one_that_comes_back_is_taken_up_or_stopped() {
    for other_open in [false, true] {
        let mut desk = Desk::running();
        let back = desk.cloud(Status::Running);
        desk.end(HOUR, as_in("failed_exit137"));
        if other_open {
            desk.submit(whole(&[10])).live();
        }
        desk.see(back);
        assert_eq!(desk.job.open.len(), 1 + usize::from(other_open));
        let stop = desk.job.open.last().and_then(|a| a.stop);
        assert_eq!(stop, other_open.then_some(StopWhy::Twin));
        assert_eq!(desk.stops(), usize::from(other_open));
    }
}

#[test]
fn a_copy_of_a_person_is_left_alone_holds_and_alarms() {
    type Change = fn(&mut CloudJob);
    let changes: [(&str, Change); 5] = [
        ("another name", |c| {
            c.stamp.name = None;
            c.display_name = "my copy".to_owned();
        }),
        ("no tag, no environment", |c| {
            c.stamp.tag = None;
            c.stamp.env = None;
        }),
        ("another user", |c| c.user_id = Some("u2".to_owned())),
        ("made later", |c| c.created = c.created.map(|t| t.plus(2 * HOUR))),
        ("made before", |c| c.created = c.created.map(|t| t.minus(HOUR))),
    ];
    for (what, change) in changes {
        let mut desk = searching();
        let mut copy = desk.cloud(Status::Running);
        change(&mut copy);
        desk.see(copy.clone());
        assert!(matches!(desk.job.open[0].state, AttemptState::Unknown { .. }), "{what}");
        assert_eq!((desk.job.copies.len(), desk.stops()), (1, 0), "{what}");
        assert_eq!((desk.count(Word::Copy), desk.count(Word::Alarm)), (1, 1), "{what}");
        // Told once; not stopped by a cancel either; gone when it ends.
        desk.see(copy.clone()).act(Act::Cancel);
        assert_eq!((desk.count(Word::Copy), desk.stops()), (1, 0), "{what}");
        copy.status = Status::Stopped;
        desk.see(copy);
        assert!(desk.job.copies.is_empty(), "{what}");
    }
}

#[test]
fn a_copy_of_a_live_or_ended_attempt_holds_the_next_submission() {
    for ended in [false, true] {
        let mut desk = Desk::running();
        let mut copy = desk.cloud(Status::Running);
        copy.id = id(77);
        if ended {
            desk.end(HOUR, as_in("failed_exit137"));
        }
        desk.see(copy.clone());
        if !ended {
            desk.end(HOUR, as_in("failed_exit137"));
        }
        desk.feed(Input::Started);
        desk.look(whole(&[10]));
        assert!(!desk.sends() && desk.holds().contains(&Hold::Copy(id(77))), "{ended}");
        copy.status = Status::Failed;
        desk.see(copy);
        assert!(desk.sends(), "{ended}");
    }
}

#[test]
fn a_stranger_that_fits_is_adopted_with_its_number() {
    let mut desk = Desk::new();
    desk.see(stranger(7, Status::Running));
    assert_eq!((desk.job.open[0].no, desk.job.next_attempt, desk.job.created), (7, 8, 1));
    assert_eq!((desk.stops(), desk.count(Word::Found)), (0, 1));
    // One that does not fit is left alone and holds.
    for change in [
        (|c: &mut CloudJob| c.stamp.run = Some(2)) as fn(&mut CloudJob),
        |c| c.stamp.name = None,
        |c| {
            c.stamp.tag = None;
            c.stamp.env = None;
        },
        |c| c.user_id = Some("u2".to_owned()),
    ] {
        let mut desk = Desk::new();
        let mut cloud = stranger(7, Status::Running);
        change(&mut cloud);
        desk.see(cloud);
        assert!(desk.job.open.is_empty() && desk.job.copies.len() == 1);
        assert!(!desk.sends());
    }
}

#[test]
fn a_new_store_takes_up_the_past_oldest_first() {
    let mut desk = Desk::new();
    desk.gate.verified = false;
    desk.see(stranger(1, Status::Failed)).see(stranger(2, Status::Failed));
    desk.see(stranger(3, Status::Running));
    assert_eq!((desk.job.open[0].no, desk.job.created), (3, 3));
    // A success that another submission followed was not the last word.
    let mut desk = Desk::new();
    desk.spec.total_steps = None;
    desk.see(stranger(1, Status::Succeeded));
    assert_eq!(desk.result(), Some(OutcomeKind::Succeeded));
    desk.see(stranger(2, Status::Running));
    assert_eq!((desk.result(), desk.job.open.len()), (None, 1));
    desk.end(HOUR, as_in("failed_exit137")).look(whole(&[10]));
    assert!(desk.sends());
}

#[test]
fn history_that_the_record_has_let_go_is_no_news() {
    let mut desk = Desk::running();
    desk.job.next_attempt = 200;
    desk.past.clear();
    let before = desk.job.clone();
    for status in [Status::Failed, Status::Stopped, Status::Succeeded] {
        let mut old = stranger(5, status);
        old.reason_code = "JobStoppedByUser".to_owned();
        desk.see(old);
        assert_eq!(desk.job, before);
    }
    // Numbers that are none of ours do not use up ours.
    let mut odd = stranger(6, Status::Running);
    odd.stamp.attempt = Some(u32::MAX);
    desk.see(odd);
    assert_eq!(desk.job.next_attempt, 201);
    assert_eq!(desk.count(Word::Alarm), 1, "two at one time");
}

#[test]
fn a_fresh_start_is_remembered_by_a_new_store() {
    let mut desk = Desk::new();
    let checkpoint = desk.spec.checkpoint.as_mut().expect("checkpoints");
    checkpoint.first_start = FirstStart::Fresh;
    desk.see(stranger(1, Status::Running));
    assert_eq!(desk.job.progress.fresh_since, stranger(1, Status::Running).created);
}

#[test]
fn an_accident_with_many_jobs_stays_within_the_record() {
    let mut desk = Desk::new();
    for no in 1..=60 {
        let mut cloud = stranger(no, Status::from_word(&"w".repeat(5000)));
        cloud.stamp.resume_path = Some("\u{1}\"é".repeat(2000));
        desk.see(cloud);
    }
    assert!(desk.job.open.len() <= 4 && !desk.job.copies.is_empty());
    let mut cloud = desk.cloud(Status::Failed);
    cloud.reason_message = "\u{2}\"漢".repeat(2000);
    cloud.reason_code = cloud.reason_message.clone();
    cloud.sub_status = cloud.reason_message.clone();
    cloud.exits = (0..5000).map(|code| ExitReport { code, pods: 1 }).collect();
    cloud.duration_s = Some(u64::MAX);
    cloud.finished = None;
    desk.see(cloud);
    let mut desk = intended();
    for _ in 0..3 {
        desk.sent(SendOutcome::Refused {
            code: "\u{3}".repeat(9000),
            message: "\"".repeat(9000),
            passing: false,
        });
        desk.wait_out();
        if desk.block().is_none() {
            desk.submit(none());
        }
    }
    assert!(desk.block().is_some());
}

#[test]
fn a_late_one_that_was_noted_as_a_copy_first_does_not_hold_the_job_for_ever() {
    let late = || {
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(none()).sent(unknown());
        let mut cloud = desk.cloud(Status::Running);
        desk.wait(HOUR);
        cloud.created = Some(desk.now.wall);
        desk.see(cloud.clone());
        assert_eq!(desk.job.copies, std::slice::from_ref(&cloud.id).to_vec());
        desk.pass(true).pass(true).pass(true);
        assert!(desk.job.open.is_empty(), "its attempt is proved absent");
        (desk, cloud)
    };
    let (mut desk, mut cloud) = late();
    cloud.status = Status::Failed;
    desk.see(cloud);
    assert!(desk.job.copies.is_empty());
    let (mut desk, cloud) = late();
    desk.see(cloud);
    assert_eq!((desk.job.open.len(), desk.job.copies.len()), (1, 0), "it is taken up");
}
