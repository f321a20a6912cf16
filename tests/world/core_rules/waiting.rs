//! `[waiting]`: how long an attempt may wait, and what follows.

use super::desk::{Desk, HOUR, MINUTE, id, none, unknown, whole};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{AttemptState, BlockKind, Job, OutcomeKind, StopWhy};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Input};
use spotkeeper::core::submit::Hold;
use spotkeeper::core::verdict::Cause;
use spotkeeper::core::waiting::{Due, RAISE_PAUSE, look_at, outlook};
use spotkeeper::model::checkpoint::ResumeFrom;
use spotkeeper::model::cloud::{CloudJob, SendOutcome, Status};
use spotkeeper::model::ids::{Digest, JobKey, TargetName};
use spotkeeper::model::money::Money;
use spotkeeper::model::placement::{Machines, Placement};
use spotkeeper::model::spec::Bid;
use spotkeeper::model::time::WallTime;
use spotkeeper::model::waiting::WaitAct::{self, Fail, NextPlacement, Notify, RaiseBid};
use spotkeeper::model::waiting::{WaitLimit, Waiting};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30 * 60);
/// A minute before it.
const ALMOST: Duration = Duration::from_secs(29 * 60);

fn bid(text: &str) -> Bid {
    Bid::Discount(Money::parse(text).expect(text))
}

/// A job on spot for 0.4, at most 0.6, with these acts in every phase.
fn desk(after: Duration, then: &[WaitAct]) -> Desk {
    let mut desk = Desk::without_checkpoints();
    let limit = || Some(WaitLimit { after, then: then.to_vec() });
    desk.spec.spot = Some(bid("0.4"));
    desk.spec.waiting.queuing = limit();
    desk.spec.waiting.bidding = limit();
    desk.spec.waiting.preparing = limit();
    desk.spec.waiting.max_discount = Money::parse("0.6");
    desk
}

/// Its first attempt, queuing.
fn queuing(then: &[WaitAct]) -> Desk {
    let mut desk = desk(LIMIT, then);
    desk.feed(Input::Tick);
    accepted(&mut desk);
    desk
}

/// CreateJob answers, and the attempt is in the queue.
fn accepted(desk: &mut Desk) {
    assert!(desk.sends(), "nothing is sent: {:?}", desk.holds());
    let no = desk.job.open[0].no;
    desk.sent(SendOutcome::Accepted { id: id(no) });
    show(desk, Status::Queuing);
}

/// GetJob shows this, with nothing else changed.
fn show(desk: &mut Desk, status: Status) {
    show_with(desk, status, |_| {});
}

fn show_with(desk: &mut Desk, status: Status, change: impl FnOnce(&mut CloudJob)) {
    let mut cloud = desk.cloud(status);
    change(&mut cloud);
    desk.see(cloud);
}

/// So much later GetJob shows it queuing as before.
fn still_queuing(desk: &mut Desk, time: Duration) {
    desk.wait(time);
    show(desk, Status::Queuing);
}

/// What was asked to stop is seen stopped.
fn stopped(desk: &mut Desk) {
    desk.end(MINUTE, |cloud| cloud.status = Status::Stopped);
}

fn stop_of(desk: &Desk) -> Option<StopWhy> {
    desk.job.open[0].stop
}

#[test]
fn a_bid_is_raised_by_a_step_once_the_limit_is_over_and_sent_after_the_end() {
    let mut desk = queuing(&[RaiseBid]);
    still_queuing(&mut desk, ALMOST);
    assert_eq!((desk.stops(), stop_of(&desk)), (0, None), "before its time");
    still_queuing(&mut desk, MINUTE);
    assert_eq!((desk.stops(), stop_of(&desk)), (1, Some(StopWhy::Waited)));
    assert_eq!((desk.phase(), desk.count(Word::StopAsked)), (Phase::Stopping, 1));
    // Asking is not an end, and the bid goes up once.
    for _ in 0..5 {
        still_queuing(&mut desk, HOUR);
        desk.pass(true);
        assert!(!desk.sends() && desk.stops() == 1, "asked again, and nothing is sent");
    }
    stopped(&mut desk);
    assert_eq!(desk.causes, [Cause::StoppedByUs]);
    assert_eq!((desk.job.open[0].bid, desk.job.open.len()), (Some(bid("0.5")), 1));
    let (progress, tally) = (&desk.job.progress, &desk.job.tally);
    assert_eq!((progress.ends, progress.alike_halves, progress.hopeless), (0, 0, 0));
    assert_eq!((tally.errors, tally.releases, desk.backoff()), (0, 0, None));
    // Once more, to the most, and then it is left to wait.
    accepted(&mut desk);
    still_queuing(&mut desk, LIMIT);
    stopped(&mut desk);
    assert_eq!(desk.job.open[0].bid, Some(bid("0.6")));
    accepted(&mut desk);
    still_queuing(&mut desk, 100 * HOUR);
    assert_eq!((desk.stops(), stop_of(&desk)), (0, None), "never above the most");
    assert_eq!(desk.count(Word::StopAsked), 2);
}

#[test]
fn a_bid_is_raised_at_most_once_in_a_quarter_of_an_hour() {
    let mut desk = desk(MINUTE, &[RaiseBid, Fail]);
    desk.feed(Input::Tick);
    accepted(&mut desk);
    still_queuing(&mut desk, MINUTE);
    assert_eq!(desk.stops(), 1);
    stopped(&mut desk);
    accepted(&mut desk);
    let next = outlook(&desk.job, &desk.spec).and_then(|outlook| outlook.next);
    assert!(matches!(next, Some((Due::Raise(to), _)) if to == bid("0.6")), "{next:?}");
    // One minute went by until it was seen stopped. What comes after a raise does not come before it.
    still_queuing(&mut desk, 13 * MINUTE);
    assert_eq!((desk.stops(), desk.result()), (0, None));
    still_queuing(&mut desk, MINUTE);
    assert_eq!((desk.stops(), stop_of(&desk)), (1, Some(StopWhy::Waited)));
}

#[test]
fn only_a_whole_answer_that_shows_it_waiting_stops_it() {
    let later = || {
        let mut desk = queuing(&[RaiseBid, Fail]);
        desk.wait(10 * LIMIT);
        desk
    };
    // Time alone, a pass, a new process.
    let mut desk = later();
    desk.pass(true);
    desk.feed(Input::Started);
    assert_eq!((desk.stops(), stop_of(&desk)), (0, None));
    // A list row may lag behind.
    show_with(&mut desk, Status::Queuing, |cloud| cloud.whole = false);
    assert_eq!(stop_of(&desk), None);
    assert!(look_at(&desk.job, &desk.spec).is_some_and(|at| at <= desk.now.wall), "looked at");
    // It runs, its end is decided, or nobody knows.
    for status in [
        Status::Running,
        Status::Stopping,
        Status::SucceededReserving,
        Status::FailedReserving,
        Status::Other("Preempting".to_owned()),
    ] {
        let mut desk = later();
        show(&mut desk, status.clone());
        assert_eq!((desk.stops(), stop_of(&desk)), (0, None), "{status:?}");
        desk.wait(10 * LIMIT);
        show(&mut desk, status);
        assert_eq!(stop_of(&desk), None);
    }
    // It is said to be gone, or may not exist.
    let mut desk = later();
    desk.feed(Input::Missing { id: id(1), same_caller: true });
    assert_eq!((outlook(&desk.job, &desk.spec), stop_of(&desk)), (None, None));
    let mut desk = self::desk(LIMIT, &[RaiseBid, Fail]);
    desk.feed(Input::Tick).sent(unknown());
    desk.wait(100 * HOUR);
    assert_eq!((desk.stops(), stop_of(&desk)), (0, None));
}

#[test]
fn what_holds_the_next_attempt_keeps_this_one_in_its_queue() {
    type Change = fn(&mut Desk);
    let holds: [Change; 6] = [
        |desk| {
            desk.act(Act::Pause);
        },
        |desk| desk.gate.stopping = true,
        |desk| desk.gate.other_writer = Some("another".to_owned()),
        |desk| desk.gate.verified = false,
        |desk| desk.gate.slot = false,
        |desk| desk.gate.lease = Some(JobKey { run: 2, ..desk.job.key.clone() }),
    ];
    for (number, hold) in holds.into_iter().enumerate() {
        let mut desk = queuing(&[Notify, RaiseBid]);
        hold(&mut desk);
        still_queuing(&mut desk, LIMIT);
        assert_eq!((desk.stops(), stop_of(&desk)), (0, None), "{number}");
        let told = usize::from(!desk.gate.stopping);
        assert_eq!(desk.count(Word::Alarm), told, "a person is told: {number}");
        // It may pass.
        desk.act(Act::Resume);
        desk.gate = super::desk::gate();
        still_queuing(&mut desk, MINUTE);
        assert_eq!((desk.stops(), desk.count(Word::Alarm)), (1, 1), "{number}");
    }
}

#[test]
fn a_person_goes_before_what_a_stop_was_asked_for() {
    // Cancelled between stop and end: nothing is sent any more.
    let mut desk = queuing(&[RaiseBid]);
    still_queuing(&mut desk, LIMIT);
    desk.act(Act::Cancel);
    stopped(&mut desk);
    assert_eq!((desk.result(), desk.sends()), (Some(OutcomeKind::Cancelled), false));
    // Given up and cancelled at one time: the person's word stands.
    let mut desk = queuing(&[Fail]);
    still_queuing(&mut desk, LIMIT);
    desk.act(Act::Cancel);
    stopped(&mut desk);
    assert_eq!(desk.result(), Some(OutcomeKind::Cancelled));
    // Paused: it is sent with the higher bid after the pause.
    let mut desk = queuing(&[RaiseBid]);
    still_queuing(&mut desk, LIMIT);
    desk.act(Act::Pause);
    stopped(&mut desk);
    assert_eq!((desk.phase(), desk.sends()), (Phase::Paused, false));
    desk.act(Act::Resume);
    assert!(desk.sends());
    assert_eq!(desk.job.open[0].bid, Some(bid("0.5")));
}

#[test]
fn a_crash_between_stop_and_submission_keeps_both() {
    let mut desk = queuing(&[RaiseBid]);
    still_queuing(&mut desk, LIMIT);
    // Committed; the process dies before StopJob is sent.
    desk.effects.clear();
    desk.feed(Input::Started);
    assert_eq!((desk.stops(), desk.sends()), (0, false), "it may run by now");
    show(&mut desk, Status::Queuing);
    desk.pass(true);
    assert_eq!(
        (desk.stops(), desk.sends()),
        (1, false),
        "the next process asks once it has looked"
    );
    let record = serde_json::to_vec(&desk.job).expect("a record");
    desk.job = serde_json::from_slice(&record).expect("the same");
    stopped(&mut desk);
    assert_eq!(desk.job.open[0].bid, Some(bid("0.5")));
    // The intent is durable, and its CreateJob without an answer: it is searched for, never repeated.
    desk.feed(Input::Started);
    assert!(!desk.sends());
    assert!(matches!(desk.job.open[0].state, AttemptState::Unknown { .. }));
    show(&mut desk, Status::Queuing);
    assert_eq!((desk.job.open.len(), desk.job.open[0].no), (1, 2));
}

#[test]
fn what_became_of_it_before_it_stopped_counts() {
    // It ended well in between.
    let mut desk = queuing(&[RaiseBid]);
    still_queuing(&mut desk, LIMIT);
    show(&mut desk, Status::Running);
    assert!(!desk.sends());
    desk.end(HOUR, |cloud| cloud.status = Status::Succeeded);
    assert_eq!((desk.result(), desk.sends()), (Some(OutcomeKind::Succeeded), false));
    // It ran for a moment: neither an error nor a failed end, and a job to be given up goes on.
    for act in [RaiseBid, Fail] {
        let mut desk = queuing(&[act]);
        still_queuing(&mut desk, LIMIT);
        show(&mut desk, Status::Running);
        desk.end(MINUTE, |_| {});
        assert_eq!((desk.result(), desk.sends()), (None, true), "{act:?}");
        assert_eq!((desk.job.progress.ends, desk.job.tally.errors), (0, 0), "{act:?}");
    }
}

#[test]
fn a_raised_bid_holds_until_the_file_changes_or_a_person_says_retry() {
    let raised = || {
        let mut desk = queuing(&[RaiseBid]);
        still_queuing(&mut desk, LIMIT);
        stopped(&mut desk);
        desk.live();
        desk
    };
    // A release from Running, after which it starts at once.
    let mut desk = raised();
    desk.end(HOUR, |cloud| cloud.reason_code = "JobEvicted".to_owned());
    assert!(desk.sends());
    assert_eq!((desk.causes[1], desk.job.open[0].bid), (Cause::Released, Some(bid("0.5"))));
    // Another spec.
    let mut desk = raised();
    desk.feed(Input::Spec(Digest("1".repeat(64))));
    desk.end(HOUR, |_| {});
    assert_eq!(desk.job.open[0].bid, Some(bid("0.4")));
    // A person.
    for act in [Act::Retry, Act::Pause] {
        let mut desk = raised();
        desk.act(act).act(Act::Resume).end(HOUR, |_| {});
        let wanted = if act == Act::Retry { "0.4" } else { "0.5" };
        assert_eq!(desk.job.open[0].bid, Some(bid(wanted)), "{act:?}");
    }
}

#[test]
fn an_attempt_of_an_older_file_is_raised_to_what_the_file_says_now() {
    let mut desk = queuing(&[Notify]);
    desk.feed(Input::Spec(Digest("1".repeat(64))));
    desk.spec.waiting.queuing = Some(WaitLimit { after: LIMIT, then: vec![RaiseBid] });
    desk.spec.spot = Some(bid("0.6"));
    still_queuing(&mut desk, LIMIT);
    stopped(&mut desk);
    assert_eq!(desk.job.open[0].bid, Some(bid("0.6")));
    // The same bid as before: one step.
    let mut desk = queuing(&[RaiseBid]);
    desk.feed(Input::Spec(Digest("1".repeat(64))));
    still_queuing(&mut desk, LIMIT);
    stopped(&mut desk);
    assert_eq!(desk.job.open[0].bid, Some(bid("0.5")));
}

#[test]
fn the_end_of_a_raise_is_followed_by_a_look_where_there_are_checkpoints() {
    let mut desk = Desk::new();
    desk.spec.spot = Some(bid("0.4"));
    desk.spec.waiting.queuing = Some(WaitLimit { after: LIMIT, then: vec![RaiseBid] });
    desk.feed(Input::Tick).submit(whole(&[100]));
    accepted(&mut desk);
    still_queuing(&mut desk, LIMIT);
    stopped(&mut desk);
    desk.submit(whole(&[100]));
    assert_eq!((desk.from(), desk.job.open[0].bid), (Some(100), Some(bid("0.5"))));
    assert_eq!(desk.job.progress.ends, 0);
}

#[test]
fn one_that_runs_although_it_was_to_stop_is_left_to_run() {
    for act in [RaiseBid, Fail] {
        let mut desk = queuing(&[act]);
        still_queuing(&mut desk, LIMIT);
        // StopJob did nothing, or was never sent: nobody knows which.
        desk.feed(Input::Started);
        show(&mut desk, Status::Running);
        desk.pass(true);
        assert_eq!((desk.stops(), desk.phase()), (0, Phase::Stopping), "it may still take effect");
        desk.wait(10 * MINUTE).pass(true);
        assert_eq!((stop_of(&desk), desk.phase()), (None, Phase::Running));
        desk.end(HOUR, |_| {});
        assert_ne!(desk.causes, [Cause::StoppedByUs], "its end is its own");
        assert_eq!(desk.result(), None);
    }
    // A person's cancel stops it whatever it does.
    let mut desk = queuing(&[RaiseBid]);
    still_queuing(&mut desk, LIMIT);
    show(&mut desk, Status::Running);
    desk.act(Act::Cancel);
    assert_eq!((desk.stops(), stop_of(&desk)), (1, Some(StopWhy::Cancel)));
    desk.wait(HOUR).pass(true);
    assert_eq!(desk.stops(), 1);
}

#[test]
fn a_stop_is_asked_for_again_only_behind_a_whole_answer_of_this_pass() {
    for act in [RaiseBid, Fail] {
        let mut desk = queuing(&[act]);
        still_queuing(&mut desk, LIMIT);
        // StopJob was not sent; the daemon was down, and the attempt runs by now.
        desk.wait(2 * HOUR).feed(Input::Started);
        let wanted = |desk: &Desk| look_at(&desk.job, &desk.spec) == Some(WallTime(0));
        assert!(wanted(&desk), "a whole answer is wanted");
        for complete in [false, true] {
            desk.pass(complete);
            assert_eq!(desk.stops(), 0, "nobody has looked");
        }
        show_with(&mut desk, Status::Queuing, |cloud| cloud.whole = false);
        assert_eq!(desk.pass(true).stops(), 0, "a row may lag behind");
        show(&mut desk, Status::Queuing);
        assert_eq!(desk.pass(false).stops(), 0);
        assert_eq!(desk.pass(true).stops(), 1);
        // An answer is good for the pass that it came with.
        desk.wait(MINUTE);
        assert_eq!(desk.pass(true).stops(), 0);
        show(&mut desk, Status::Running);
        assert_eq!((desk.pass(true).stops(), wanted(&desk)), (0, false));
    }
    // A person's cancel needs no such thing.
    let mut desk = queuing(&[RaiseBid]);
    still_queuing(&mut desk, LIMIT);
    desk.act(Act::Cancel).feed(Input::Started);
    assert_eq!(desk.stops(), 1);
    assert_eq!(desk.pass(false).stops(), 1);
}

#[test]
fn a_stop_that_was_taken_back_and_takes_effect_late_is_ours() {
    // Restarted in place, and waits for too long: it first ran a day ago.
    let restarting = |desk: &mut Desk| {
        show(desk, Status::Running);
        desk.wait(24 * HOUR);
        show(desk, Status::Restarting);
        desk.wait(LIMIT);
        show(desk, Status::Restarting);
        assert_eq!(stop_of(desk), Some(StopWhy::Waited));
        desk.wait(MINUTE);
        show(desk, Status::Running);
        desk.pass(true);
        assert_eq!(stop_of(desk), Some(StopWhy::Waited), "StopJob was sent a minute ago");
    };
    for code in ["", "JobStoppedByUser"] {
        let mut desk = queuing(&[RaiseBid]);
        restarting(&mut desk);
        // The wall clock does not count, nor does a pass that came to nothing.
        desk.now.wall = desk.now.wall.plus(HOUR);
        desk.pass(true).wait(10 * MINUTE).pass(false);
        assert_eq!(stop_of(&desk), Some(StopWhy::Waited));
        desk.pass(true);
        assert_eq!((stop_of(&desk), desk.phase()), (None, Phase::Running));
        desk.end(5 * MINUTE, |cloud| {
            cloud.status = Status::Stopped;
            cloud.reason_code = code.to_owned();
        });
        assert_eq!((desk.causes[0], desk.block()), (Cause::StoppedByUs, None), "{code}");
        assert!(desk.sends());
    }
    // Days later it is a person's.
    let mut desk = queuing(&[RaiseBid]);
    restarting(&mut desk);
    desk.wait(10 * MINUTE).pass(true);
    desk.end(48 * HOUR, |cloud| {
        cloud.status = Status::Stopped;
        cloud.reason_code = "JobStoppedByUser".to_owned();
    });
    assert_eq!((desk.causes[0], desk.sends()), (Cause::StoppedByPerson, false));
}

#[test]
fn a_start_at_zero_that_a_person_asked_for_outlives_an_attempt_that_never_ran() {
    for act in [RaiseBid, Fail] {
        let mut desk = Desk::new();
        desk.spec.spot = Some(bid("0.4"));
        desk.spec.waiting.queuing = Some(WaitLimit { after: LIMIT, then: vec![act] });
        desk.act(Act::RetryFrom(ResumeFrom::Fresh)).submit(whole(&[100]));
        accepted(&mut desk);
        assert!(desk.job.progress.zero_asked);
        still_queuing(&mut desk, LIMIT);
        desk.end(MINUTE, |cloud| cloud.status = Status::Stopped);
        assert!(desk.job.progress.zero_asked, "{act:?}");
    }
    let mut desk = Desk::new();
    desk.act(Act::RetryFrom(ResumeFrom::Fresh)).submit(whole(&[100])).live();
    desk.end(MINUTE, |cloud| cloud.status = Status::Stopped);
    assert!(!desk.job.progress.zero_asked, "what it may have saved is not started over");
}

/// Two more placements: another spec with a bid of its own, and on-demand elsewhere.
fn placed(then: &[WaitAct]) -> Desk {
    let mut desk = desk(LIMIT, then);
    desk.spec.body = serde_json::json!({ "JobSpecs": [{ "EcsSpec": "ecs.a" }] })
        .as_object()
        .expect("an object")
        .clone();
    desk.spec.placements = vec![
        Placement {
            ecs_spec: Some("ecs.b".to_owned()),
            machines: Machines::Spot(bid("0.5")),
            ..Placement::default()
        },
        Placement {
            target: Some(TargetName::new("beijing").expect("a name")),
            machines: Machines::OnDemand,
            ..Placement::default()
        },
    ];
    desk.feed(Input::Tick);
    accepted(&mut desk);
    desk
}

#[test]
fn placements_are_gone_through_in_order_and_the_last_act_comes_after_them() {
    let mut desk = placed(&[RaiseBid, NextPlacement, Fail]);
    let file = desk.spec.clone();
    let mut asked = vec![(desk.job.open[0].placement(), desk.job.open[0].bid)];
    loop {
        still_queuing(&mut desk, LIMIT);
        // What is given from now on is the spec as the next attempt's placement asks.
        desk.spec = file.at(desk.job.offer.placement);
        stopped(&mut desk);
        if desk.job.open.is_empty() {
            break;
        }
        let attempt = &desk.job.open[0];
        assert_eq!(attempt.target, desk.spec.target);
        asked.push((attempt.placement(), attempt.bid));
        accepted(&mut desk);
    }
    let wanted = [(0, "0.4"), (0, "0.5"), (0, "0.6"), (1, "0.5"), (1, "0.6")]
        .map(|(n, b)| (n, Some(bid(b))));
    assert_eq!(asked[..5], wanted);
    assert_eq!(asked[5..], [(2, None)], "on-demand has no bid to raise");
    assert_eq!(desk.result(), Some(OutcomeKind::Failed));
}

#[test]
fn a_placement_that_could_not_be_submitted_to_is_not_gone_on_to() {
    for hold in [Hold::MaxParallel, Hold::NotVerified, Hold::NoTarget("beijing".to_owned())] {
        let mut desk = placed(&[NextPlacement]);
        desk.gate.next_place = Some(hold.clone());
        still_queuing(&mut desk, LIMIT);
        assert_eq!((stop_of(&desk), desk.job.offer.placement), (None, 0), "{hold}");
        desk.gate.next_place = None;
        still_queuing(&mut desk, MINUTE);
        assert_eq!((stop_of(&desk), desk.job.offer.placement), (Some(StopWhy::Waited), 1));
    }
}

#[test]
fn a_retry_goes_back_to_the_first_placement_and_never_sends_by_the_spec_of_another() {
    let mut desk = placed(&[NextPlacement, Fail]);
    let file = desk.spec.clone();
    for _ in 0..3 {
        still_queuing(&mut desk, LIMIT);
        desk.spec = file.at(desk.job.offer.placement);
        stopped(&mut desk);
        if desk.result().is_none() {
            accepted(&mut desk);
        }
    }
    assert_eq!((desk.result(), desk.job.offer.placement), (Some(OutcomeKind::Failed), 2));
    // What is given is still the last placement: nothing is sent in this step.
    desk.act(Act::Retry);
    assert!(!desk.sends());
    assert_eq!(desk.wake_at, Some(desk.now.boot), "decided again at once");
    desk.spec = file;
    desk.feed(Input::Tick);
    assert!(desk.sends());
    assert_eq!((desk.job.open[0].placement(), desk.job.open[0].bid), (0, Some(bid("0.4"))));
}

#[test]
fn a_job_is_given_up_once_its_attempt_is_seen_ended() {
    for status in [Status::Creating, Status::Queuing, Status::Bidding, Status::EnvPreparing] {
        let mut desk = queuing(&[Notify, Fail]);
        show(&mut desk, status.clone());
        desk.wait(LIMIT);
        show(&mut desk, status);
        assert_eq!((stop_of(&desk), desk.result()), (Some(StopWhy::GaveUp), None));
        assert_eq!((desk.phase(), desk.stops()), (Phase::Stopping, 1));
        stopped(&mut desk);
        assert_eq!((desk.result(), desk.phase()), (Some(OutcomeKind::Failed), Phase::Failed));
        let why = &desk.job.result.as_ref().expect("a result").why;
        assert!(why.contains("30m") || why.contains("31m"), "{why}");
        desk.wait(100 * HOUR).pass(true);
        assert!(!desk.sends());
        desk.act(Act::Retry);
        assert!(desk.sends());
    }
    // A person says `retry` before it has ended: it goes on after the end.
    let mut desk = queuing(&[Fail]);
    still_queuing(&mut desk, LIMIT);
    desk.act(Act::Retry);
    stopped(&mut desk);
    assert_eq!((desk.result(), desk.sends()), (None, true));
}

#[test]
fn a_person_is_told_once_an_attempt_and_phase() {
    let mut desk = queuing(&[Notify]);
    for _ in 0..5 {
        still_queuing(&mut desk, LIMIT);
    }
    assert_eq!((desk.count(Word::Alarm), desk.stops()), (1, 0));
    let told = desk.told.iter().find(|event| event.word == Word::Alarm).expect("an alarm");
    assert!(told.text.contains("queuing with bid 0.4 for 30m"), "{}", told.text);
    show(&mut desk, Status::EnvPreparing);
    assert_eq!(desk.count(Word::Alarm), 1, "each phase has its own limit");
    desk.wait(LIMIT);
    show(&mut desk, Status::SanityChecking);
    assert_eq!(desk.count(Word::Alarm), 2);
    // It runs, and waits again after a restart in place: another wait.
    show(&mut desk, Status::Running);
    show(&mut desk, Status::Queuing);
    still_queuing(&mut desk, ALMOST);
    assert_eq!(desk.count(Word::Alarm), 2);
    still_queuing(&mut desk, MINUTE);
    assert_eq!(desk.count(Word::Alarm), 3);
}

#[test]
fn a_wait_goes_on_where_it_left_off() {
    let mut desk = queuing(&[RaiseBid]);
    // Round after round of bidding: neither phase is ever long.
    for _ in 0..2 {
        desk.wait(10 * MINUTE);
        show(&mut desk, Status::Bidding);
        desk.wait(10 * MINUTE);
        show(&mut desk, Status::Queuing);
        assert_eq!(stop_of(&desk), None);
    }
    desk.wait(10 * MINUTE);
    show(&mut desk, Status::Queuing);
    assert_eq!(stop_of(&desk), Some(StopWhy::Waited), "30 min in the queue");
    // A new process does not begin it anew.
    let mut desk = queuing(&[RaiseBid]);
    desk.wait(ALMOST);
    desk.feed(Input::Started);
    still_queuing(&mut desk, MINUTE);
    assert_eq!(stop_of(&desk), Some(StopWhy::Waited));
    // A clock that was ahead at a raise does not put the next one off for ever.
    let mut desk = self::desk(MINUTE, &[RaiseBid]);
    desk.feed(Input::Tick);
    accepted(&mut desk);
    still_queuing(&mut desk, MINUTE);
    desk.now.wall = desk.now.wall.minus(100 * HOUR);
    show(&mut desk, Status::Queuing);
    stopped(&mut desk);
    accepted(&mut desk);
    still_queuing(&mut desk, RAISE_PAUSE);
    assert_eq!(desk.stops(), 1);
    // A clock that was set back makes it neither longer nor endless.
    let mut desk = queuing(&[RaiseBid]);
    desk.now.wall = desk.now.wall.minus(2 * HOUR);
    show(&mut desk, Status::Queuing);
    assert_eq!(stop_of(&desk), None);
    still_queuing(&mut desk, LIMIT);
    assert_eq!(stop_of(&desk), Some(StopWhy::Waited));
}

#[test]
fn what_can_never_run_is_said_at_once_and_no_bid_is_raised_for_it() {
    let no_quota = |cloud: &mut CloudJob| {
        cloud.reason_code = "JobEnqueue".to_owned();
        cloud.reason_message = "no such quota: quota1a2b".to_owned();
    };
    // Without [waiting] as well.
    for then in [&[][..], &[RaiseBid], &[RaiseBid, NextPlacement]] {
        let mut desk = if then.is_empty() { queuing(then) } else { placed(then) };
        if then.is_empty() {
            desk.spec.waiting = Waiting::default();
        }
        show_with(&mut desk, Status::Queuing, no_quota);
        show_with(&mut desk, Status::Queuing, no_quota);
        assert_eq!(desk.count(Word::Alarm), 1, "once");
        let told = desk.told.iter().find(|event| event.word == Word::Alarm).expect("an alarm");
        assert!(told.text.contains("no such quota: quota1a2b"), "{}", told.text);
        assert_eq!((desk.stops(), desk.phase()), (0, Phase::Waiting));
        desk.wait(LIMIT);
        show_with(&mut desk, Status::Queuing, no_quota);
        assert_eq!(desk.job.offer.raised, None, "{then:?}");
        let goes_on = then.contains(&NextPlacement);
        assert_eq!(
            (desk.stops(), desk.job.offer.placement),
            (usize::from(goes_on), u32::from(goes_on))
        );
    }
    // Before its machine: a bid helps again once that is past.
    let mut desk = queuing(&[RaiseBid]);
    show_with(&mut desk, Status::Queuing, no_quota);
    show(&mut desk, Status::Bidding);
    desk.wait(LIMIT);
    show(&mut desk, Status::Bidding);
    assert_eq!(desk.stops(), 1);
    // Three ends for it block the job as ever.
    let mut desk = queuing(&[Notify]);
    for _ in 0..3 {
        desk.end(MINUTE, no_quota);
        if desk.backoff().is_some() {
            desk.wait_out();
            accepted(&mut desk);
        }
    }
    assert_eq!(desk.block(), Some(BlockKind::NeverStarts));
}

#[test]
fn records_of_earlier_programs_are_read_and_their_waits_begin_now() {
    let mut desk = queuing(&[RaiseBid]);
    let mut record = serde_json::to_value(&desk.job).expect("a record");
    assert_eq!(record.get("offer"), None, "nothing is written where nothing changed");
    let live = record["open"][0]["state"]["Live"].as_object_mut().expect("a live attempt");
    live.remove("wait").expect("a wait");
    desk.job = serde_json::from_value::<Job>(record).expect("an earlier record");
    assert_eq!(look_at(&desk.job, &desk.spec), Some(WallTime(0)), "a whole answer is wanted");
    still_queuing(&mut desk, 10 * HOUR);
    assert_eq!(stop_of(&desk), None);
    still_queuing(&mut desk, LIMIT);
    assert_eq!(stop_of(&desk), Some(StopWhy::Waited));
}

#[test]
fn beside_a_twin_nothing_is_decided() {
    let mut desk = Desk::new();
    desk.spec.spot = Some(bid("0.4"));
    desk.spec.waiting.queuing = Some(WaitLimit { after: LIMIT, then: vec![RaiseBid, Fail] });
    desk.feed(Input::Tick).submit(none());
    accepted(&mut desk);
    let mut twin = super::desk::cloud(7, &super::desk::mark(30), Status::Running);
    twin.created = Some(desk.now.wall);
    desk.see(twin);
    assert_eq!(desk.job.open.len(), 2);
    desk.wait(10 * LIMIT);
    let first = desk.job.open[0].clone();
    let mut cloud = super::desk::cloud(first.no, &first.mark, Status::Queuing);
    cloud.created = Some(first.intended);
    desk.see(cloud);
    assert!(desk.job.open.iter().all(|attempt| attempt.stop.is_none()));
}
