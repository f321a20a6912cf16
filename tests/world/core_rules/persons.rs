//! What a person asks for, and what a person sees.

use super::desk::{Desk, HOUR, MINUTE, as_in, golden, id, none, unknown, whole};
use spotkeeper::core::job::{BlockKind, OutcomeKind, Source, Start, Wanted};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Input};
use spotkeeper::model::checkpoint::{ResumeFrom, Wholeness};
use spotkeeper::model::cloud::{SendOutcome, Status};
use spotkeeper::model::time::Now;

fn ended() -> Desk {
    let mut desk = Desk::running();
    desk.end(HOUR, as_in("failed_exit137"));
    desk
}

#[test]
fn a_pause_lets_run_what_runs_and_submits_nothing() {
    let mut desk = Desk::running();
    desk.act(Act::Pause);
    assert_eq!((desk.phase(), desk.stops()), (Phase::Running, 0));
    desk.end(MINUTE, as_in("failed_exit137")).look(none());
    assert_eq!((desk.phase(), desk.job.progress.ends), (Phase::Paused, 1), "judged all the same");
    desk.wait(100 * HOUR);
    assert!(desk.effects.is_empty());
    desk.act(Act::Resume).submit(none());
    // Time in a pause is not time without progress.
    desk.job.progress.ends = 9;
    desk.live().end(MINUTE, as_in("failed_exit137")).look(none());
    assert_eq!(desk.result(), None);
}

#[test]
fn resume_does_not_cut_a_back_off_short() {
    let mut desk = ended();
    desk.look(none()).act(Act::Pause).act(Act::Resume);
    assert_eq!((desk.backoff(), desk.sends()), (Some(10), false));
    desk.wait_out();
    desk.submit(none());
}

#[test]
fn retry_starts_again_after_each_kind_of_end() {
    let mut cancelled = Desk::running();
    cancelled.act(Act::Cancel).end(MINUTE, as_in("stopped_by_user"));
    let mut succeeded = Desk::running();
    succeeded.spec.total_steps = None;
    succeeded.end(HOUR, as_in("succeeded"));
    let mut failed = ended();
    failed.spec.retry.alike = 1;
    failed.look(none());
    for (mut desk, kind) in [
        (cancelled, OutcomeKind::Cancelled),
        (succeeded, OutcomeKind::Succeeded),
        (failed, OutcomeKind::Failed),
    ] {
        assert_eq!(desk.result(), Some(kind));
        let no = desk.job.next_attempt;
        desk.act(Act::Retry);
        assert_eq!((desk.result(), desk.job.wanted), (None, Wanted::Run), "{kind:?}");
        desk.submit(whole(&[10]));
        assert_eq!((desk.from(), desk.job.open[0].no), (Some(10), no), "{kind:?}");
        assert!(desk.job.open[0].stop.is_none());
        assert_eq!(desk.job.progress.ends, 0);
    }
}

#[test]
fn retry_waits_for_what_is_still_being_stopped() {
    let mut desk = Desk::running();
    desk.act(Act::Cancel).act(Act::Retry);
    assert_eq!(desk.job.wanted, Wanted::Cancel, "it is not over yet");
    let mut desk = ended();
    desk.spec.retry.alike = 1;
    let back = {
        let mut cloud =
            super::desk::cloud(1, &desk.past.keys().next().expect("one").clone(), Status::Running);
        cloud.created = Some(desk.now.wall);
        cloud
    };
    desk.look(none()).see(back.clone());
    assert_eq!((desk.result(), desk.stops()), (Some(OutcomeKind::Failed), 1), "nobody awaits it");
    desk.act(Act::Retry);
    assert!(!desk.sends() && desk.job.open.len() == 1);
    let mut stopped = back;
    stopped.status = Status::Stopped;
    desk.see(stopped).submit(none());
}

#[test]
fn retry_keeps_a_success_that_is_not_judged_yet() {
    let mut desk = Desk::running();
    desk.end(HOUR, as_in("succeeded"));
    let mut ambiguous = none();
    ambiguous.ambiguous = vec!["a".to_owned(), "b".to_owned()];
    desk.look(ambiguous);
    assert_eq!(desk.block(), Some(BlockKind::AmbiguousCheckpoints));
    desk.act(Act::Retry).look(whole(&[1000]));
    assert_eq!(desk.result(), Some(OutcomeKind::Succeeded));
}

#[test]
fn a_retry_long_after_an_end_is_not_given_up_for_it() {
    let mut desk = ended();
    let mut ambiguous = none();
    ambiguous.ambiguous = vec!["a".to_owned(), "b".to_owned()];
    desk.look(ambiguous).wait(100 * HOUR);
    desk.act(Act::Retry).submit(none());
    assert_eq!(desk.result(), None);
}

#[test]
fn a_copy_that_was_deleted_is_waited_for_until_a_person_says_so() {
    let mut desk = Desk::running();
    let mut copy = desk.cloud(Status::Running);
    copy.id = id(77);
    desk.see(copy.clone()).end(HOUR, as_in("failed_exit137")).look(whole(&[10]));
    assert_eq!((desk.phase(), desk.sends()), (Phase::Blocked, false));
    desk.act(Act::Retry);
    assert!(desk.sends());
    desk.see(copy);
    assert_eq!(desk.job.copies, [id(77)], "one that is there after all holds the next one");
}

#[test]
fn scenario_81_a_job_file_that_is_gone_stops_nothing() {
    let mut desk = Desk::running();
    desk.feed(Input::File(Source::Unmanaged));
    desk.end(HOUR, as_in("failed_exit137")).submit(whole(&[10]));
    assert_eq!(desk.job.source, Source::Unmanaged);
}

#[test]
fn a_crash_forgets_no_back_off() {
    let mut desk = ended();
    desk.look(none());
    desk.now = Now { boot: spotkeeper::model::time::BootTime(5), wall: desk.now.wall };
    desk.feed(Input::Started);
    assert!(desk.effects.is_empty());
    assert_eq!(desk.wait_out().as_secs(), 10);
    desk.submit(none());
}

#[test]
fn whatever_is_under_way_goes_on_after_a_crash() {
    // Each record as it was committed; what the old process was doing is done again.
    let mut looking = Desk::new();
    looking.feed(Input::Tick);
    let mut ready = Desk::new();
    ready.gate.slot = false;
    ready.feed(Input::Tick).look(none());
    ready.gate.slot = true;
    for mut desk in [looking, ended(), ready] {
        desk.feed(Input::Started).submit(none_or_whole());
    }
}

fn none_or_whole() -> spotkeeper::model::checkpoint::Findings {
    whole(&[10])
}

#[test]
fn zero_by_a_persons_word_is_zero_whatever_lies_there() {
    let mut several = none();
    several.ambiguous = vec!["a".to_owned(), "b".to_owned()];
    several.ambiguous_of = vec!["Accelerate".to_owned(), "DeepSpeed".to_owned()];
    let mut unknown = whole(&[10]);
    unknown.chosen = None;
    for candidate in &mut unknown.candidates {
        candidate.wholeness = Wholeness::Unknown;
    }
    for (there, kind) in
        [(several, BlockKind::AmbiguousCheckpoints), (unknown, BlockKind::UndecidedCheckpoints)]
    {
        let mut desk = ended();
        desk.look(there.clone());
        if desk.block().is_none() {
            desk.wait_out();
            desk.look(there.clone());
        }
        assert_eq!(desk.block(), Some(kind));
        desk.act(Act::RetryFrom(ResumeFrom::Fresh)).submit(there.clone());
        assert_eq!((desk.block(), &desk.job.open[0].start), (None, &Start::Fresh), "{kind:?}");
        // It never ran: the word holds.
        let no = desk.job.open[0].no;
        desk.sent(SendOutcome::Accepted { id: id(no) });
        desk.end(MINUTE, as_in("failed_no_resources.INFERRED"));
        desk.look(there.clone());
        assert_eq!(desk.block(), None, "{kind:?}");
        desk.wait_out();
        desk.submit(there.clone());
        assert_eq!(desk.job.open[0].start, Start::Fresh);
        // It ran and may have saved: nothing is started over.
        desk.live().end(HOUR, as_in("failed_exit137")).look(there.clone());
        if desk.block().is_none() {
            desk.wait_out();
            desk.look(there);
        }
        assert_eq!(desk.block(), Some(kind));
    }
}

#[test]
fn phases_are_the_first_that_fits() {
    let seen = |status: &str| {
        let mut desk = Desk::running();
        let cloud = desk.cloud(Status::from_word(status));
        desk.see(cloud);
        desk
    };
    for (status, phase) in [
        ("Creating", Phase::Waiting),
        ("Queuing", Phase::Waiting),
        ("Bidding", Phase::Waiting),
        ("EnvPreparing", Phase::Starting),
        ("SanityChecking", Phase::Starting),
        ("Restarting", Phase::Starting),
        ("Running", Phase::Running),
        ("SucceededReserving", Phase::Succeeded),
        ("FailedReserving", Phase::Failed),
        ("NeverHeard", Phase::Running),
    ] {
        assert_eq!(seen(status).phase(), phase, "{status}");
        let mut desk = seen(status);
        desk.act(Act::Cancel);
        assert_eq!(desk.phase(), Phase::Stopping, "{status}, cancelled");
    }
    for name in [
        "bidding",
        "queuing",
        "env_preparing",
        "running",
        "restarting_in_place",
        "failed_reserving",
    ] {
        assert_eq!(seen(golden(name).status.word()).job.open.len(), 1, "{name}");
    }
    let mut desk = Desk::new();
    assert_eq!(desk.phase(), Phase::Pending);
    desk.feed(Input::Tick);
    assert_eq!(desk.phase(), Phase::Pending);
    desk.submit(none());
    assert_eq!(desk.phase(), Phase::Submitting);
    desk.sent(unknown());
    assert_eq!(desk.phase(), Phase::Submitting);
    desk.sent(SendOutcome::Accepted { id: id(1) });
    assert_eq!(desk.phase(), Phase::Waiting);
    desk.act(Act::Pause);
    assert_eq!(desk.phase(), Phase::Waiting, "what is open comes first");
    desk.act(Act::Resume);

    let mut desk = ended();
    assert_eq!(desk.phase(), Phase::Recovering);
    desk.look(none());
    assert_eq!(desk.phase(), Phase::Backoff);
    desk.now.boot = desk.now.boot.plus(MINUTE);
    assert_eq!(desk.phase(), Phase::Pending);
    desk.act(Act::Pause);
    assert_eq!(desk.phase(), Phase::Paused);
    desk.gate.lease = Some(desk.job.key.clone());
    assert_eq!(desk.phase(), Phase::Blocked, "a hold that needs a person comes before a pause");
    desk.gate.lease = None;
    desk.gate.new_store = Some("new".to_owned());
    desk.act(Act::Cancel);
    assert_eq!((desk.phase(), desk.result()), (Phase::Stopping, None));
    desk.gate.new_store = None;
    desk.feed(Input::Tick);
    assert_eq!(desk.phase(), Phase::Cancelled);
}

#[test]
fn a_job_goes_with_its_file_only_while_nobody_said_or_sent_anything() {
    let goes = |acts: &[Act]| {
        let mut desk = Desk::new();
        for act in acts {
            desk.act(*act);
        }
        desk.job.goes_with_its_file()
    };
    assert!(goes(&[]));
    assert!(goes(&[Act::Pause, Act::Resume]));
    // The file may come back, and the job must not run then.
    assert!(!goes(&[Act::Cancel]));
    assert!(!goes(&[Act::Pause]));
    assert!(!Desk::running().job.goes_with_its_file());
}
