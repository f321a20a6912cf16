//! A cloud job that a person says is the running attempt of the job.

use super::desk::{Desk, HOUR, MINUTE, as_in, cloud, id, mark, none, place, whole};
use spotkeeper::core::adopt::cannot_adopt;
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{AttemptState, OutcomeKind, Start, Wanted};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::cloud::{CloudJob, Pod, SendOutcome, Stamp, Status};
use spotkeeper::model::ids::{JobKey, JobName, Mark, Owner};
use spotkeeper::model::money::Money;
use spotkeeper::model::spec::Bid;

/// One that a person made by hand: it carries nothing of ours.
fn by_hand(desk: &Desk, status: Status) -> CloudJob {
    let mut cloud = cloud(50, &mark(9), status);
    cloud.stamp = Stamp::default();
    cloud.display_name = "by hand".to_owned();
    cloud.user_id = Some("a person".to_owned());
    cloud.created = Some(desk.now.wall.minus(HOUR));
    cloud.running = Some(desk.now.wall.minus(HOUR));
    cloud
}

fn adopt(desk: &mut Desk, cloud: &CloudJob, mark: Option<Mark>) {
    let cloud = Box::new(cloud.clone());
    desk.feed(Input::Adopt { cloud, place: place(), mark });
}

/// What the cloud shows of the adopted one, as a pass gives it: by the mark on record.
fn shown(desk: &mut Desk, cloud: &CloudJob) {
    let mark = desk.job.open[0].mark.clone();
    let (cloud, past) = (Box::new(cloud.clone()), spotkeeper::core::step::Past::Stranger);
    desk.feed(Input::Seen { mark, cloud, past, place: place() });
}

#[test]
fn one_without_a_mark_is_the_running_attempt_and_its_end_is_judged_as_any_other() {
    let mut desk = Desk::new();
    desk.act(Act::Pause);
    let mut hand = by_hand(&desk, Status::Running);
    adopt(&mut desk, &hand, None);
    assert_eq!((desk.phase(), desk.job.wanted), (Phase::Running, Wanted::Run));
    let attempt = &desk.job.open[0];
    assert_eq!((attempt.no, attempt.id(), &attempt.start), (1, Some(&id(50)), &Start::Fresh));
    assert_eq!((desk.job.created, desk.job.next_attempt, desk.stops()), (1, 2, 0));
    assert!(desk.job.holds_lease() && !desk.sends());
    // A new process knows it as well.
    desk.feed(Input::Started);
    shown(&mut desk, &hand);
    assert_eq!(desk.phase(), Phase::Running);
    // No launcher wrote its log: that it lacks the launcher's line says nothing.
    desk.now.wall = desk.now.wall.plus(HOUR);
    as_in("failed_exit137")(&mut hand);
    hand.finished = Some(desk.now.wall);
    hand.pods = vec![Pod { id: "p".to_owned(), ..Pod::default() }];
    shown(&mut desk, &hand);
    assert!(!desk.effects.iter().any(|effect| matches!(effect, Effect::Logs { .. })));
    assert!(desk.job.open.is_empty() && desk.causes.len() == 1);
    desk.submit(whole(&[100]));
    assert_eq!((desk.from(), desk.job.open[0].no), (Some(100), 2));
}

#[test]
fn one_that_is_ours_keeps_its_number_and_mark_and_one_whose_number_is_taken_gets_others() {
    for (stamped, taken, no) in [(7, 1, 7), (1, 1, 1), (3, 9, 9)] {
        let mut desk = Desk::new();
        desk.job.next_attempt = taken;
        let ours = cloud(stamped, &mark(99), Status::Running);
        adopt(&mut desk, &ours, Some(mark(99)));
        let attempt = &desk.job.open[0];
        assert_eq!((attempt.no, desk.job.next_attempt), (no, no + 1), "{stamped}");
        assert_eq!(attempt.mark == mark(99), stamped == no, "its launcher prints its number");
    }
}

#[test]
fn whatever_is_over_or_waits_goes_on_with_the_one_that_is_adopted() {
    let mut cancelled = Desk::running();
    cancelled.act(Act::Cancel).end(MINUTE, as_in("stopped_by_user"));
    let mut succeeded = Desk::running();
    succeeded.spec.total_steps = None;
    succeeded.end(HOUR, as_in("succeeded"));
    let mut backoff = Desk::running();
    backoff.end(MINUTE, as_in("failed_exit137")).look(none());
    let mut blocked = Desk::running();
    let mut ambiguous = none();
    ambiguous.ambiguous = vec!["a".to_owned(), "b".to_owned()];
    blocked.end(MINUTE, as_in("failed_exit137")).look(ambiguous);
    let mut new = Desk::new();
    for desk in [&mut cancelled, &mut succeeded, &mut backoff, &mut blocked, &mut new] {
        desk.spec.spot = Some(Bid::Discount(Money::parse("0.4").expect("a bid")));
    }
    for desk in [&mut cancelled, &mut succeeded, &mut backoff, &mut blocked, &mut new] {
        let hand = by_hand(desk, Status::Running);
        adopt(desk, &hand, None);
        assert_eq!((desk.phase(), desk.result()), (Phase::Running, None));
        assert_eq!(desk.job.open[0].bid, None, "nobody knows what it was sent with");
        desk.act(Act::Cancel);
        assert_eq!(desk.stops(), 1, "it is stopped as any other");
    }
}

#[test]
fn nothing_is_adopted_where_two_might_run_or_nothing_does() {
    type Change = fn(&mut Desk, &mut CloudJob);
    let other_owner: Change = |_, cloud| {
        cloud.stamp.env = Some((Owner::new("abcdef").expect("an owner"), mark(9)));
    };
    let changes: [(&str, Change); 13] = [
        ("not seen ended", |desk, _| {
            desk.submit(none());
        }),
        ("not seen ended", |desk, _| {
            desk.submit(none()).sent(SendOutcome::Unknown { why: "time-out".to_owned() });
        }),
        ("not seen ended", |desk, _| {
            desk.submit(none()).live();
        }),
        ("is being cancelled", |desk, _| {
            desk.gate.new_store = Some("new".to_owned());
            desk.act(Act::Cancel);
        }),
        ("not yet compared", |desk, _| desk.gate.verified = false),
        ("an earlier store", |desk, _| {
            desk.gate.new_store = Some("an earlier store may have sent one".to_owned());
        }),
        ("elsewhere", |desk, _| desk.gate.other_writer = Some("it may be elsewhere".to_owned())),
        ("holds the same checkpoint prefix", |desk, _| {
            desk.gate.lease = Some(JobKey { name: JobName::new("other").expect("a name"), run: 1 });
        }),
        ("dlc77 carries a mark", |desk, _| desk.job.copies.push(id(77))),
        ("another installation (owner abcdef)", other_owner),
        ("has ended (Stopped)", |_, cloud| cloud.status = Status::Stopped),
        ("is being stopped", |_, cloud| cloud.status = Status::Stopping),
        ("its result is decided", |_, cloud| cloud.status = Status::FailedReserving),
    ];
    for (why, change) in changes {
        let mut desk = Desk::new();
        desk.feed(Input::Tick);
        let mut hand = by_hand(&desk, Status::Running);
        change(&mut desk, &mut hand);
        let told = cannot_adopt(&desk.job, &desk.given().gate, &hand).expect("a reason");
        assert!(told.contains(why), "{why}: {told}");
        let before = desk.job.clone();
        adopt(&mut desk, &hand, None);
        assert_eq!(desk.job.open, before.open, "{why}");
        assert_eq!(desk.job.wanted, before.wanted, "{why}");
        let last = desk.told.iter().rfind(|event| event.word == Word::Operator).expect("an event");
        assert!(last.text.contains("nothing is done") && last.text.contains(why), "{}", last.text);
    }
    // A word that nobody knows is no end.
    let mut desk = Desk::new();
    let hand = by_hand(&desk, Status::from_word("Preempting"));
    adopt(&mut desk, &hand, None);
    assert_eq!(desk.job.open.len(), 1);
}

#[test]
fn a_copy_that_a_person_adopts_is_a_copy_no_more() {
    let mut desk = Desk::running();
    let mut copy = desk.cloud(Status::Running);
    copy.id = id(77);
    desk.see(copy.clone()).end(HOUR, as_in("failed_exit137")).look(whole(&[10]));
    assert_eq!(desk.phase(), Phase::Blocked);
    // Its mark is that of attempt 1: it is known by its id alone.
    adopt(&mut desk, &copy, None);
    assert_eq!((desk.job.open.len(), desk.job.copies.len()), (1, 0));
    assert_eq!((desk.job.open[0].no, desk.phase()), (2, Phase::Running));
}

#[test]
fn one_that_is_gone_or_released_is_followed_as_any_other() {
    let mut desk = Desk::without_checkpoints();
    desk.act(Act::Pause);
    let hand = by_hand(&desk, Status::Running);
    adopt(&mut desk, &hand, None);
    for _ in 0..17 {
        desk.wait(MINUTE);
        desk.feed(Input::Missing { id: id(50), same_caller: true });
    }
    assert!(matches!(desk.job.open[0].state, AttemptState::Live { .. }));
    desk.act(Act::Retry);
    assert_eq!(desk.causes, [Cause::Lost]);
    assert!(desk.sends() || desk.backoff().is_some());
}

#[test]
fn what_could_not_be_looked_up_is_told_and_the_job_waits_where_nobody_hears_it() {
    for told in [true, false] {
        let mut desk = Desk::new();
        desk.act(Act::Pause);
        desk.feed(Input::NotAdopted { id: id(50), why: "DLC knows no job".to_owned(), told });
        assert_eq!(desk.count(Word::Alarm), usize::from(!told));
        assert_eq!((desk.phase(), desk.result()), (Phase::Paused, None::<OutcomeKind>));
    }
}
