//! When a job is over, and what holds a submission.

use super::desk::{
    ACCEPTANCE, Desk, HOUR, MINUTE, as_in, cloud, gate, id, mark, none, unknown, whole,
};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::OutcomeKind;
use spotkeeper::core::step::{Act, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::cloud::{SendOutcome, Status};
use std::time::Duration;

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

#[test]
fn cancel_stops_an_attempt_as_soon_as_it_can_be_named() {
    // While its CreateJob is under way.
    let mut desk = intended();
    desk.act(Act::Cancel);
    assert_eq!((desk.stops(), desk.result()), (0, None));
    desk.sent(SendOutcome::Accepted { id: id(1) });
    assert_eq!((desk.stops(), desk.result()), (1, None));
    // While it is searched for.
    let mut desk = searching();
    desk.act(Act::Cancel);
    let cloud = desk.cloud(Status::Queuing);
    desk.see(cloud);
    assert_eq!((desk.stops(), desk.result()), (1, None), "asking is not an end");
    // Asked again after each pass until it begins, and after a crash.
    desk.pass(false);
    assert_eq!(desk.stops(), 1);
    desk.feed(Input::Started);
    assert_eq!(desk.stops(), 1);
    let cloud = desk.cloud(Status::Stopping);
    desk.see(cloud).pass(true);
    assert_eq!((desk.stops(), desk.result()), (0, None));
    let cloud = desk.cloud(Status::Stopped);
    desk.see(cloud);
    assert_eq!(desk.result(), Some(OutcomeKind::Cancelled));
    assert_eq!(desk.causes, [Cause::StoppedByUs]);
    // It may never have been created.
    let mut desk = searching();
    desk.act(Act::Cancel).wait(ACCEPTANCE);
    desk.pass(true).pass(true).pass(true);
    assert_eq!(desk.result(), Some(OutcomeKind::Cancelled));
    // Nothing is open: at once, whatever is being prepared.
    let mut desk = Desk::running();
    desk.end(HOUR, as_in("failed_exit137")).act(Act::Cancel);
    assert_eq!(desk.result(), Some(OutcomeKind::Cancelled));
    desk.feed(Input::Looked(Look::Done(whole(&[10]))));
    assert!(!desk.sends());
}

#[test]
fn cancel_and_release_in_one_pass_cancel_wins() {
    for name in ["failed_evicted.INFERRED", "failed_exit137", "stopped_by_user"] {
        let mut desk = Desk::running();
        desk.act(Act::Cancel).end(MINUTE, as_in(name));
        assert_eq!(desk.result(), Some(OutcomeKind::Cancelled), "{name}");
        assert_eq!(desk.causes, [Cause::StoppedByUs], "{name}");
    }
}

#[test]
fn a_cancel_waits_for_what_an_earlier_store_may_have_sent() {
    let mut desk = Desk::new();
    desk.gate.new_store = Some("new".to_owned());
    desk.act(Act::Cancel);
    assert_eq!(desk.result(), None);
    desk.see(cloud(1, &mark(100), Status::Running));
    assert_eq!((desk.stops(), desk.count(Word::StopAsked)), (1, 1), "and that is on record");
    desk.gate.new_store = None;
    let cloud = desk.cloud(Status::Stopped);
    desk.see(cloud);
    assert_eq!(desk.result(), Some(OutcomeKind::Cancelled));
}

#[test]
fn success_is_final() {
    let mut desk = Desk::running();
    desk.spec.total_steps = None;
    desk.end(HOUR, as_in("succeeded"));
    let done = desk.job.clone();
    desk.feed(Input::Started).act(Act::Cancel).act(Act::Pause).act(Act::Resume);
    desk.wait(100 * HOUR).pass(true);
    assert_eq!(desk.job.result, done.result);
    assert!(!desk.sends() && desk.job.open.is_empty());
}

#[test]
fn nothing_but_three_words_ends_an_attempt() {
    for word in [
        "Deleted",
        "SubmitFailed",
        "Preempting",
        "failed",
        "",
        "Creating",
        "Queuing",
        "Bidding",
        "EnvPreparing",
        "SanityChecking",
        "Running",
        "Restarting",
        "Stopping",
        "SucceededReserving",
        "FailedReserving",
    ] {
        let mut desk = Desk::running();
        let mut cloud = desk.cloud(Status::from_word(word));
        cloud.reason_code = "JobFailed".to_owned();
        desk.see(cloud).pass(true).wait(100 * HOUR);
        assert_eq!((desk.job.open.len(), desk.result()), (1, None), "{word}");
        assert!(!desk.sends());
    }
    // Nor do passes that do not show it, complete or not, one or a hundred.
    let mut desk = Desk::running();
    for n in 0..100 {
        desk.wait(Duration::from_secs(15)).pass(n % 2 == 0);
    }
    assert_eq!((desk.job.open.len(), desk.sends()), (1, false));
}

#[test]
fn a_restart_in_place_is_told_and_nothing_is_sent() {
    let mut desk = Desk::running();
    let mut cloud = desk.cloud(Status::Restarting);
    cloud.restarts = 1;
    desk.see(cloud);
    assert_eq!((desk.count(Word::RestartedInPlace), desk.job.open.len()), (1, 1));
    let mut cloud = desk.cloud(Status::Running);
    cloud.restarts = 1;
    desk.see(cloud);
    assert_eq!(desk.count(Word::RestartedInPlace), 1);
}

#[test]
fn nothing_is_sent_that_the_gate_holds() {
    type Change = fn(&mut Desk);
    let changes: [(&str, Change); 7] = [
        ("no target", |d| d.gate.place = None),
        ("not verified", |d| d.gate.verified = false),
        ("new store", |d| d.gate.new_store = Some("new".to_owned())),
        ("other writer", |d| d.gate.other_writer = Some("dlc9".to_owned())),
        ("lease", |d| d.gate.lease = Some(d.job.key.clone())),
        ("no slot", |d| d.gate.slot = false),
        ("stopping", |d| d.gate.stopping = true),
    ];
    for (what, change) in changes {
        let mut desk = Desk::new();
        change(&mut desk);
        desk.feed(Input::Tick);
        // Before the cloud was compared with the record, a look would be of no use.
        let compared = desk.gate.verified && desk.gate.new_store.is_none();
        if compared {
            desk.look(none());
        }
        assert!(!desk.sends() && !desk.holds().is_empty(), "{what}");
        // Whatever held it goes away: the next tick sends.
        desk.gate = gate();
        desk.feed(Input::Tick);
        if !compared {
            desk.look(none());
        }
        assert!(desk.sends(), "{what}");
    }
}
