//! An attempt whose argument names one checkpoint, restarted in place while a newer one is there.

use super::desk::{Desk, HOUR, MINUTE, as_in, candidate, id, none, point, torn_above, whole};
use super::restarts::{counted, restart, shows};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{BlockKind, OutcomeKind, StopWhy};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::checkpoint::{Findings, Look, Pin, ResumePoint, Wholeness};
use spotkeeper::model::cloud::Status;
use spotkeeper::model::ids::Digest;
use spotkeeper::model::spec::OnStopped;
use spotkeeper::model::time::WallTime;

/// An attempt that runs from step 100, its argument naming that step.
fn pinned() -> Desk {
    from(whole(&[100]))
}

fn from(findings: Findings) -> Desk {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(findings).live();
    desk
}

fn looks(desk: &Desk) -> bool {
    desk.effects.contains(&Effect::Look)
}

fn could_not() -> Input {
    Input::Looked(Look::CouldNotLook { why: "503".to_owned(), needs_person: true })
}

#[test]
fn a_pinned_attempt_restarted_in_place_is_stopped_and_goes_on_from_the_newest() {
    let mut desk = pinned();
    restart(&mut desk, 1);
    assert!(looks(&desk) && desk.stops() == 0);
    desk.look(whole(&[140, 100]));
    assert_eq!((desk.stops(), desk.count(Word::StopAsked)), (1, 1));
    assert_eq!(desk.job.open[0].stop, Some(StopWhy::Outdated));
    assert_eq!(desk.phase(), Phase::Stopping);
    // Asking is not an end: nothing is sent, however long it takes.
    desk.wait(100 * HOUR).pass(true);
    assert!(!desk.sends() && desk.stops() == 1, "asked again, since it was not seen to begin");
    shows(&mut desk, "Stopping", |cloud| cloud.restarts = 1);
    desk.pass(true);
    assert_eq!((desk.stops(), desk.sends()), (0, false));
    desk.end(MINUTE, as_in("stopped_by_user"));
    assert_eq!(desk.causes, [Cause::StoppedByUs]);
    desk.submit(whole(&[140, 100]));
    assert_eq!((desk.from(), desk.job.open.len()), (Some(140), 1));
    let progress = &desk.job.progress;
    assert_eq!((progress.ends, progress.alike_halves, desk.block()), (0, 0, None));
    assert_eq!((desk.job.tally.errors, desk.job.tally.releases), (0, 0));
}

#[test]
fn our_stop_of_an_outdated_attempt_survives_a_crash_before_it_was_asked() {
    let mut desk = pinned();
    restart(&mut desk, 1);
    desk.look(whole(&[140, 100]));
    // Committed; the process dies before StopJob is sent.
    desk.effects.clear();
    desk.feed(Input::Started);
    assert_eq!(desk.stops(), 1, "it is asked by the next process");
    // It was sent after all, and the answer of the platform names a person.
    desk.end(MINUTE, as_in("stopped_by_user"));
    assert_eq!((desk.block(), desk.causes.as_slice()), (None, &[Cause::StoppedByUs][..]));
    desk.submit(whole(&[140]));
    assert_eq!(desk.from(), Some(140));
    // It dies while the bucket is looked into: the look is asked for anew.
    let mut desk = pinned();
    restart(&mut desk, 1);
    desk.effects.clear();
    desk.feed(Input::Started);
    desk.look(whole(&[140]));
    assert_eq!(desk.stops(), 1);
}

#[test]
fn only_a_whole_checkpoint_newer_than_its_own_stops_a_restarted_attempt() {
    let mut epoch = whole(&[5, 100]);
    let newest = epoch.chosen.as_mut().expect("one");
    newest.position.epoch = 1;
    let mut ambiguous = whole(&[140]);
    ambiguous.ambiguous = vec!["a".to_owned(), "b".to_owned()];
    let mut rewrite = whole(&[140]);
    rewrite.chosen = Some(ResumePoint { pin: Pin::TrackerRewrite, ..point(140) });
    let mut torn = whole(&[100]);
    torn.candidates.insert(0, candidate(140, Wholeness::Torn));
    let mut weights = whole(&[100]);
    weights.candidates.insert(0, candidate(140, Wholeness::WeightsOnly));
    for (what, findings, stops) in [
        ("newer", whole(&[101, 100]), true),
        ("newer by the format's order, not by the step", epoch, true),
        ("the same", whole(&[100]), false),
        ("older", whole(&[90]), false),
        ("none", none(), false),
        ("torn", torn, false),
        ("weights", weights, false),
        ("ambiguous", ambiguous, false),
        ("nothing would load it", rewrite, false),
    ] {
        let mut desk = pinned();
        restart(&mut desk, 1);
        desk.look(findings);
        assert_eq!(desk.stops() > 0, stops, "{what}");
        desk.wait(10 * HOUR);
        assert!(!looks(&desk), "{what}: one look a restart");
        assert_eq!(desk.block(), None, "{what}");
    }
}

#[test]
fn what_the_present_run_saved_itself_does_not_stop_it() {
    // By minutes after the present run began.
    for (written, stops) in [(-1, 1), (0, 0), (1, 0)] {
        let mut desk = pinned();
        restart(&mut desk, 1);
        desk.now.wall = desk.now.wall.plus(HOUR);
        let began = desk.now.wall;
        shows(&mut desk, "Running", |cloud| {
            cloud.restarts = 1;
            cloud.running = Some(began);
        });
        let mut findings = whole(&[140, 100]);
        findings.candidates[0].newest_object = Some(WallTime(began.0 + written * 60_000));
        desk.feed(Input::Looked(Look::Done(findings)));
        assert_eq!(desk.stops(), stops, "{written}");
    }
}

#[test]
fn a_trainer_that_finds_the_newest_itself_is_left_alone() {
    type Change = fn(&mut Desk, &mut ResumePoint);
    let free: Change = |_, p| (p.argument, p.pin) = ("--load {root}".into(), Pin::OwnChoice);
    let cases: [(&str, Change, bool); 7] = [
        (
            "the format's own, named",
            |_, p| p.argument = "--load {root} --ckpt-step {step}".into(),
            true,
        ),
        ("the format's own, free", free, false),
        (
            "the format's own, named in plain text",
            |_, p| p.argument = "load_path={root}/ep0-ba100-rank{{rank}}.pt".into(),
            true,
        ),
        (
            "a person's, free",
            |d, _| d.spec.checkpoint.as_mut().expect("one").resume = Some("--load {root}".into()),
            false,
        ),
        (
            "a person's, named",
            |d, p| {
                p.argument = "--load {root}".into();
                d.spec.checkpoint.as_mut().expect("one").resume = Some("--at {name}".into());
            },
            true,
        ),
        (
            "a command without a place for it",
            |d, _| {
                let own = Some("train --resume auto {{resume}}".into());
                d.spec.checkpoint.as_mut().expect("one").resume_command = own;
            },
            false,
        ),
        (
            "a command with one",
            |d, _| {
                let own = Some("train {resume} --more".into());
                d.spec.checkpoint.as_mut().expect("one").resume_command = own;
            },
            true,
        ),
    ];
    for (what, change, is_pinned) in cases {
        let mut desk = Desk::new();
        let mut findings = whole(&[100]);
        change(&mut desk, findings.chosen.as_mut().expect("one"));
        desk.feed(Input::Tick).submit(findings).live();
        restart(&mut desk, 1);
        assert_eq!(looks(&desk), is_pinned, "{what}");
        assert_eq!(counted(&desk).0, 1, "{what}");
    }
    // From zero there is no argument at all.
    let mut desk = Desk::running();
    restart(&mut desk, 1);
    assert!(!looks(&desk));
}

#[test]
fn could_not_look_stops_nothing_and_is_tried_again_not_for_ever() {
    let mut desk = pinned();
    restart(&mut desk, 1);
    desk.feed(could_not());
    assert_eq!((desk.stops(), desk.block(), desk.job.progress.blind), (0, None, 0));
    assert_eq!(desk.wait_out().as_secs(), 2);
    desk.look(whole(&[140]));
    assert_eq!(desk.stops(), 1);
    let mut desk = pinned();
    restart(&mut desk, 1);
    let mut tried = 0;
    while looks(&desk) {
        tried += 1;
        assert!(tried <= 100, "for ever");
        desk.feed(could_not());
        if desk.wake_at.is_some() {
            desk.wait_out();
        }
    }
    assert!(tried >= 10 && desk.stops() == 0 && desk.job.open.len() == 1);
    // The next restart asks anew.
    shows(&mut desk, "Running", |cloud| cloud.restarts = 1);
    restart(&mut desk, 2);
    assert!(looks(&desk));
}

#[test]
fn a_newer_one_that_is_still_uploading_is_looked_at_again() {
    let mut desk = pinned();
    restart(&mut desk, 1);
    desk.look(torn_above(whole(&[100]), 140, 1));
    assert_eq!((desk.stops(), desk.wait_out().as_secs()), (0, 20));
    desk.look(whole(&[140, 100]));
    assert_eq!(desk.stops(), 1);
}

#[test]
fn a_person_and_a_result_come_before_the_stop_of_an_outdated_attempt() {
    // Paused: what runs goes on, and the look waits for the pause to end.
    let mut desk = pinned();
    desk.act(Act::Pause);
    restart(&mut desk, 1);
    assert!(!looks(&desk));
    desk.act(Act::Resume).look(whole(&[140]));
    assert_eq!(desk.stops(), 1);
    // Paused while it looks.
    let mut desk = pinned();
    restart(&mut desk, 1);
    desk.act(Act::Pause).feed(Input::Looked(Look::Done(whole(&[140]))));
    assert_eq!(desk.stops(), 0);
    desk.act(Act::Resume).look(whole(&[140]));
    assert_eq!(desk.stops(), 1);
    // Paused after the stop was asked: it stops, and stays paused.
    desk.act(Act::Pause).end(MINUTE, as_in("stopped_by_user"));
    desk.feed(Input::Looked(Look::Done(whole(&[140]))));
    assert_eq!((desk.sends(), desk.phase()), (false, Phase::Paused));
    desk.act(Act::Resume);
    assert_eq!((desk.sends(), desk.from()), (true, Some(140)));
    // Cancelled while it looks, and after the stop was asked.
    for cancel_first in [true, false] {
        let mut desk = pinned();
        restart(&mut desk, 1);
        if cancel_first {
            desk.act(Act::Cancel).feed(Input::Looked(Look::Done(whole(&[140]))));
            assert_eq!(desk.job.open[0].stop, Some(StopWhy::Cancel));
        } else {
            desk.look(whole(&[140])).act(Act::Cancel);
        }
        desk.end(MINUTE, as_in("stopped_by_user"));
        assert_eq!((desk.result(), desk.sends()), (Some(OutcomeKind::Cancelled), false));
    }
    // It ended well before the stop reached it.
    let mut desk = pinned();
    desk.spec.total_steps = None;
    restart(&mut desk, 1);
    desk.look(whole(&[140])).end(HOUR, as_in("succeeded"));
    assert_eq!(desk.result(), Some(OutcomeKind::Succeeded));
    // Its result is decided while it looks.
    let mut desk = pinned();
    restart(&mut desk, 1);
    shows(&mut desk, "SucceededReserving", |cloud| cloud.restarts = 1);
    desk.feed(Input::Looked(Look::Done(whole(&[140]))));
    assert_eq!((desk.stops(), desk.job.open.len()), (0, 1));
    // The spec is another one by now: where it writes is not where one would look.
    let mut desk = pinned();
    restart(&mut desk, 1);
    desk.feed(Input::Spec(Digest("1".repeat(64))));
    desk.feed(Input::Looked(Look::Done(whole(&[140]))));
    assert_eq!(desk.stops(), 0);
}

#[test]
fn a_look_that_is_answered_beside_a_twin_is_made_again_once_the_twin_has_ended() {
    let mut desk = pinned();
    let mut twin = desk.cloud(Status::Running);
    desk.end(HOUR, |_| {}).submit(whole(&[120, 100])).live();
    restart(&mut desk, 1);
    assert!(looks(&desk));
    desk.see(twin.clone());
    assert_eq!((desk.job.open.len(), desk.stops()), (2, 1), "the dead one is back");
    desk.feed(Input::Looked(Look::Done(whole(&[140, 120]))));
    assert_eq!((looks(&desk), desk.stops()), (false, 0));
    twin.status = Status::Stopped;
    twin.finished = Some(desk.now.wall);
    desk.see(twin);
    desk.look(whole(&[140, 120]));
    assert_eq!(desk.stops(), 1);
    assert_eq!(desk.job.open[0].stop, Some(StopWhy::Outdated));
}

#[test]
fn nothing_is_stopped_that_could_not_be_submitted_again() {
    type Change = fn(&mut Desk);
    let changes: [(&str, Change); 4] = [
        ("no target", |d| d.gate.place = None),
        ("not verified", |d| d.gate.verified = false),
        ("other writer", |d| d.gate.other_writer = Some("dlc9".to_owned())),
        ("a copy runs", |d| d.job.copies = vec![id(99)]),
    ];
    for (what, change) in changes {
        let mut desk = pinned();
        restart(&mut desk, 1);
        change(&mut desk);
        desk.look(whole(&[140]));
        assert_eq!(desk.stops(), 0, "{what}");
        desk.gate = super::desk::gate();
        desk.job.copies.clear();
        desk.wait_out();
        desk.look(whole(&[140]));
        assert_eq!(desk.stops(), 1, "{what}: it went away");
    }
    let mut desk = pinned();
    desk.gate.stopping = true;
    restart(&mut desk, 1);
    assert!(!looks(&desk), "a process on its way out leaves it to the next one");
    desk.gate.stopping = false;
    desk.feed(Input::Started);
    assert!(looks(&desk));
}

#[test]
fn a_newest_that_comes_and_goes_is_no_loop() {
    let mut desk = pinned();
    let mut delays = Vec::new();
    for _ in 0..4 {
        restart(&mut desk, 1);
        desk.look(whole(&[140, 100]));
        desk.end(MINUTE, as_in("stopped_by_user"));
        // It is torn by the time that the next attempt is prepared.
        desk.look(whole(&[100]));
        assert!(!desk.sends() && desk.result().is_none());
        delays.push(desk.wait_out().as_secs());
        desk.submit(whole(&[100]));
        desk.live();
    }
    assert_eq!(delays, [10, 20, 40, 80]);
}

#[test]
fn trap_07_a_stop_that_is_not_ours_is_held_also_after_restarts_in_place() {
    for (name, on_stopped) in
        [("stopped_by_user", OnStopped::Resume), ("stopped_without_code.INFERRED", OnStopped::Hold)]
    {
        let mut desk = pinned();
        desk.spec.retry.on_stopped = on_stopped;
        restart(&mut desk, 1);
        // A look is under way and nothing was asked yet.
        desk.end(MINUTE, as_in(name));
        desk.feed(Input::Looked(Look::Done(whole(&[140]))));
        assert_eq!(
            (desk.block(), desk.sends()),
            (Some(BlockKind::StoppedByOther), false),
            "{name}"
        );
    }
}
