//! What the platform does by itself under one id: restarts in place, machines held after a result,
//! waiting for ever, words that nobody knows. And what was frozen when an attempt was sent.

use super::desk::{
    ACCEPTANCE, Desk, HOUR, MINUTE, as_in, candidate, cloud, golden, id, mark, none, point,
    torn_above, unknown, whole,
};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{
    Attempt, AttemptState, BlockKind, Job, OutcomeKind, Recovery, StopWhy,
};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::checkpoint::{Findings, Look, Pin, ResumePoint, Wholeness};
use spotkeeper::model::cloud::{CloudJob, ExitReport, History, SendOutcome, Status};
use spotkeeper::model::ids::Digest;
use spotkeeper::model::spec::OnStopped;
use spotkeeper::model::time::WallTime;
use std::time::Duration;

/// An attempt that runs from step 100, its argument naming that step.
fn pinned() -> Desk {
    from(whole(&[100]))
}

fn from(findings: Findings) -> Desk {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(findings).live();
    desk
}

fn shows(desk: &mut Desk, status: &str, change: impl FnOnce(&mut CloudJob)) {
    let mut cloud = desk.cloud(Status::from_word(status));
    change(&mut cloud);
    desk.see(cloud);
}

/// The platform restarts the open attempt; it is on its way to run again.
fn restart(desk: &mut Desk, count: u32) {
    desk.now.wall = desk.now.wall.plus(MINUTE);
    desk.now.boot = desk.now.boot.plus(MINUTE);
    shows(desk, "Restarting", |cloud| cloud.restarts = count);
}

fn counted(desk: &Desk) -> (usize, u32, u32) {
    let restarts = desk.job.open.first().map_or(0, Attempt::restarts);
    (desk.count(Word::RestartedInPlace), restarts, desk.job.tally.restarts)
}

fn looks(desk: &Desk) -> bool {
    desk.effects.contains(&Effect::Look)
}

fn could_not() -> Input {
    Input::Looked(Look::CouldNotLook { why: "503".to_owned(), needs_person: true })
}

/// One answer of GetJob: status, `RestartTimes`, minutes after which the present run began, whether
/// it is the job's own answer and not a row of a list.
type Shown = (&'static str, u32, Option<u64>, bool);

#[test]
fn trap_06_a_restart_in_place_is_counted_once_whatever_shows_it_and_nothing_is_sent() {
    let first = Some(0);
    let cases: [(&str, &[Shown], u32); 14] = [
        ("a counter", &[("Restarting", 1, first, true), ("Running", 1, Some(9), true)], 1),
        (
            "a counter that lags",
            &[("Restarting", 0, first, true), ("Running", 1, Some(9), true)],
            1,
        ),
        ("a counter that leads", &[("Running", 1, first, true), ("Restarting", 1, first, true)], 1),
        ("three between two looks", &[("Running", 3, Some(9), true)], 3),
        (
            "two looks in one restart",
            &[("Restarting", 0, None, true), ("Queuing", 0, None, true)],
            1,
        ),
        ("bidding anew", &[("Bidding", 0, None, true), ("Running", 0, Some(9), true)], 1),
        ("queuing anew", &[("Queuing", 0, first, true), ("Running", 0, first, true)], 1),
        ("only a later beginning", &[("Running", 0, Some(9), true)], 1),
        ("a beginning a second later", &[("Running", 0, Some(0), true)], 0),
        (
            "ran again between two looks at the wait",
            &[("Queuing", 0, first, true), ("Queuing", 0, Some(9), true)],
            2,
        ),
        (
            "a round of bidding that the counter leaves out",
            &[
                ("Bidding", 0, None, true),
                ("Running", 0, Some(9), true),
                ("Restarting", 1, None, true),
            ],
            2,
        ),
        ("a word in between", &[("Preempting", 0, None, true), ("Queuing", 0, None, true)], 1),
        (
            "a row that lags behind",
            &[
                ("Restarting", 1, None, true),
                ("Running", 0, first, false),
                ("Restarting", 1, None, true),
            ],
            1,
        ),
        ("its result", &[("FailedReserving", 0, first, true)], 0),
    ];
    for (what, answers, count) in cases {
        let mut desk = Desk::running();
        let began = desk.now.wall;
        for (status, restarts, minutes, whole) in answers {
            desk.now.wall = desk.now.wall.plus(HOUR);
            // Between two answers the daemon may crash.
            desk.feed(Input::Started);
            shows(&mut desk, status, |cloud| {
                cloud.restarts = *restarts;
                cloud.running =
                    minutes.map(|n| began.plus(MINUTE * u32::try_from(n).expect("few")));
                cloud.whole = *whole;
            });
            assert!(!desk.sends() && desk.job.open.len() == 1, "{what}");
        }
        assert_eq!(counted(&desk), (count as usize, count, count), "{what}");
        // The same answer again is no news.
        let told = desk.told.len();
        let last = answers.last().expect("one");
        shows(&mut desk, last.0, |cloud| cloud.restarts = last.1);
        assert_eq!(desk.told.len(), told, "{what}, told again");
        // It ends once, and only then another is sent.
        desk.end(HOUR, as_in("failed_exit137"));
        assert_eq!((desk.causes.len(), desk.job.created), (1, 1), "{what}");
    }
}

#[test]
fn a_restart_that_only_the_last_answer_shows_is_counted_before_the_end() {
    let mut desk = Desk::running();
    desk.end(HOUR, |cloud| {
        as_in("failed_exit137")(cloud);
        cloud.restarts = 2;
    });
    let words: Vec<Word> = desk.told.iter().map(|event| event.word).collect();
    let end = words.iter().position(|word| *word == Word::Ended).expect("an end");
    assert_eq!(words[..end].iter().filter(|w| **w == Word::RestartedInPlace).count(), 2);
    assert_eq!((desk.job.tally.restarts, desk.job.tally.errors), (2, 1), "a restart is no end");
    // An absurd number does not make an absurd number of events.
    let mut desk = Desk::running();
    shows(&mut desk, "Running", |cloud| cloud.restarts = u32::MAX);
    assert!(desk.count(Word::RestartedInPlace) <= 20);
    let told = desk.told.len();
    shows(&mut desk, "Running", |cloud| cloud.restarts = u32::MAX);
    assert_eq!(desk.told.len(), told);
}

#[test]
fn a_recorded_restart_is_read_from_each_of_its_fields() {
    let recorded = golden("restarting_in_place");
    assert_eq!((recorded.restarts, recorded.status.clone()), (1, Status::Restarting));
    let history = recorded.history.as_ref().expect("a history");
    assert_eq!((history.restarts, history.ran), (1, Duration::from_secs(2019)));
    assert_eq!((history.first, history.last), (recorded.running, recorded.running));
    for name in ["running", "failed_reserving", "succeeded", "stopped_by_user", "bidding"] {
        let other = golden(name);
        assert_eq!(other.restarts, 0, "{name}");
        assert!(other.history.is_some_and(|history| history.restarts == 0), "{name}");
    }
    assert_eq!(golden("sparse").history, None);
}

#[test]
fn an_attempt_that_was_found_restarted_is_counted_from_its_own_answer() {
    for (status, restarts, running, count) in [
        ("Running", 2, true, 2),
        ("Queuing", 0, true, 1),
        ("Restarting", 0, false, 1),
        ("Queuing", 0, false, 0),
    ] {
        let mut desk = Desk::new();
        let mut found = cloud(1, &mark(100), Status::from_word(status));
        found.restarts = restarts;
        found.running = running.then_some(desk.now.wall);
        desk.see(found);
        assert_eq!(counted(&desk), (count as usize, count, count), "{status}");
    }
}

#[test]
fn a_restart_in_place_is_not_an_end_for_any_rule() {
    // Five crashes under one id are one end; how it looks is how the last run looked.
    let mut desk = Desk::new();
    desk.spec.retry.alike = 2;
    desk.feed(Input::Tick).submit(none()).live();
    for count in 1..=4 {
        restart(&mut desk, count);
        let began = desk.now.wall.plus(10 * MINUTE);
        desk.now.wall = began;
        shows(&mut desk, "Running", |cloud| {
            cloud.restarts = count;
            cloud.running = Some(began);
        });
    }
    let progress = &desk.job.progress;
    assert_eq!((progress.ends, progress.alike_halves, desk.result()), (0, 0, None));
    desk.end(MINUTE, |cloud| {
        cloud.restarts = 4;
        cloud.exits = vec![ExitReport { code: 1, pods: 1 }];
    });
    desk.look(none());
    let progress = &desk.job.progress;
    assert_eq!((progress.ends, progress.alike_halves), (1, 2));
    let look = progress.last_look.as_ref().expect("a look");
    assert_eq!(look.duration, MINUTE, "the last run");
    // Five runs of a minute; the waits between them are not running time.
    assert_eq!(progress.ran, 5 * MINUTE);
}

#[test]
fn without_checkpoints_only_the_last_run_is_progress() {
    for (last, at_once) in [(10 * MINUTE, false), (30 * MINUTE, true)] {
        let mut desk = Desk::without_checkpoints();
        desk.feed(Input::Tick).submit(none()).live();
        desk.now.wall = desk.now.wall.plus(HOUR);
        shows(&mut desk, "Queuing", |cloud| cloud.restarts = 1);
        desk.now.wall = desk.now.wall.plus(HOUR);
        let began = desk.now.wall;
        shows(&mut desk, "Running", |cloud| {
            cloud.restarts = 1;
            cloud.running = Some(began);
        });
        // What the last answer calls its beginning is that of the last run.
        desk.end(last, |cloud| {
            cloud.running = Some(began);
            cloud.exits = vec![ExitReport { code: 1, pods: 1 }];
        });
        assert_eq!(desk.sends(), at_once, "{last:?}");
        assert_eq!(desk.job.progress.ran, HOUR + last, "waits are not running time");
    }
}

#[test]
fn the_history_knows_best_how_long_it_ran() {
    let mut desk = Desk::running();
    let began = desk.now.wall;
    desk.end(10 * HOUR, |cloud| {
        as_in("failed_exit137")(cloud);
        cloud.restarts = 1;
        cloud.history = Some(History {
            restarts: 1,
            first: Some(began),
            last: Some(began.plus(9 * HOUR)),
            open_since: None,
            ran: 2 * HOUR,
            last_ran: HOUR,
        });
    });
    assert_eq!(desk.job.progress.ran, 2 * HOUR);
    assert_eq!(desk.job.unjudged.as_ref().expect("one").verdict.look.duration, HOUR);
}

#[test]
fn a_limit_may_count_any_of_the_runs_of_a_restarted_attempt() {
    // Two hours, a wait of an hour, one hour.
    for (limit, cause) in [
        (60, Cause::TimeLimit),
        (180, Cause::TimeLimit),
        (240, Cause::TimeLimit),
        (90, Cause::StoppedUnexplained),
        (120, Cause::StoppedUnexplained),
    ] {
        let mut desk = Desk::new();
        desk.spec.body.insert("JobMaxRunningTimeMinutes".to_owned(), limit.into());
        desk.feed(Input::Tick).submit(none()).live();
        let first = desk.now.wall;
        desk.end(4 * HOUR, |cloud| {
            as_in("stopped_without_code.INFERRED")(cloud);
            cloud.restarts = 1;
            cloud.history = Some(History {
                restarts: 1,
                first: Some(first),
                last: Some(first.plus(3 * HOUR)),
                open_since: None,
                ran: 3 * HOUR,
                last_ran: HOUR,
            });
        });
        assert_eq!(desk.causes, [cause], "{limit} min");
    }
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
    let cases: [(&str, Change, bool); 6] = [
        (
            "the format's own, named",
            |_, p| p.argument = "--load {root} --ckpt-step {step}".into(),
            true,
        ),
        ("the format's own, free", |_, p| p.argument = "--load {root}".into(), false),
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

#[test]
fn trap_08_reserving_and_unknown_words_hold_the_machine_and_are_never_an_end() {
    for (word, phase, end) in [
        ("SucceededReserving", Phase::Succeeded, "succeeded"),
        ("FailedReserving", Phase::Failed, "failed_exit137"),
    ] {
        let mut desk = Desk::running();
        shows(&mut desk, word, |cloud| {
            cloud.reason_code = "JobFailed".to_owned();
            cloud.finished = cloud.running;
        });
        assert_eq!(desk.phase(), phase, "{word}");
        let told = desk.told.last().expect("an event");
        assert!(told.text.contains("machine is still held"), "{told:?}");
        desk.wait(1000 * HOUR).pass(true).feed(Input::Started);
        assert_eq!((desk.job.open.len(), desk.result(), desk.sends()), (1, None, false), "{word}");
        assert!(!desk.holds().is_empty());
        // The final word.
        desk.end(MINUTE, as_in(end));
        assert!(desk.job.open.is_empty() && desk.causes.len() == 1, "{word}");
    }
    // Under a word that nobody knows, the phase is the last that was known.
    for (status, phase) in [
        ("Queuing", Phase::Waiting),
        ("EnvPreparing", Phase::Starting),
        ("Restarting", Phase::Starting),
        ("Running", Phase::Running),
        ("FailedReserving", Phase::Failed),
    ] {
        let mut desk = Desk::running();
        shows(&mut desk, status, |_| {});
        shows(&mut desk, "Preempting", |_| {});
        assert_eq!(desk.phase(), phase, "{status}");
        assert_eq!(desk.job.open[0].state.shown(), Some(Status::Other("Preempting".to_owned())));
        desk.wait(100 * HOUR).pass(true);
        assert!(!desk.sends() && desk.job.open.len() == 1);
        // A stop is asked for under it as well, and again until it begins.
        desk.act(Act::Cancel);
        assert_eq!(desk.stops(), 1, "{status}");
        desk.pass(true);
        assert_eq!(desk.stops(), 1, "{status}");
        shows(&mut desk, "Stopping", |_| {});
        assert_eq!(desk.job.open[0].state.shown(), Some(Status::Stopping));
    }
    // A job that was seen ended does not run again because of a word that nobody knows.
    let mut desk = Desk::running();
    desk.spec.total_steps = None;
    let mark = desk.job.open[0].mark.clone();
    desk.end(HOUR, as_in("succeeded"));
    for word in ["Deleted", "Archived", "SucceededReserving"] {
        desk.see(cloud(1, &mark, Status::from_word(word)));
        assert_eq!((desk.job.open.len(), desk.stops()), (0, 0), "{word}");
    }
    // One that was found under such a word is there.
    let mut desk = Desk::new();
    desk.see(cloud(1, &mark, Status::from_word("SubmitFailed")));
    assert_eq!(desk.job.open.len(), 1);
    assert!(!desk.sends());
}

#[test]
fn trap_09_waiting_for_the_price_for_ever_is_no_error_and_no_reason_to_send_another() {
    for word in ["Bidding", "Queuing"] {
        for had_run in [true, false] {
            let mut desk = Desk::new();
            desk.feed(Input::Tick).submit(none());
            if had_run {
                desk.live();
            } else {
                desk.sent(SendOutcome::Accepted { id: id(1) });
            }
            for _ in 0..50 {
                shows(&mut desk, word, |_| {});
                desk.wait(24 * HOUR).pass(true);
                assert!(!desk.sends() && desk.stops() == 0 && desk.result().is_none());
            }
            assert_eq!(desk.phase(), Phase::Waiting);
            assert_eq!(counted(&desk).0, usize::from(had_run), "{word}");
            // Waiting counts as no running time.
            desk.end(MINUTE, |cloud| {
                as_in("failed_no_resources.INFERRED")(cloud);
            });
            assert_eq!(desk.job.progress.ran_since, Duration::ZERO, "{word}, {had_run}");
        }
    }
}

#[test]
fn what_was_sent_is_judged_by_the_limit_that_was_sent() {
    for (sent, now, cause) in [
        (Some(60), None, Cause::TimeLimit),
        (Some(60), Some(600), Cause::TimeLimit),
        (None, Some(60), Cause::StoppedUnexplained),
        (Some(600), Some(60), Cause::StoppedUnexplained),
    ] {
        let key = "JobMaxRunningTimeMinutes";
        let mut desk = Desk::new();
        let set = |desk: &mut Desk, minutes: Option<u64>| {
            desk.spec.body.remove(key);
            desk.spec.body.extend(minutes.map(|minutes| (key.to_owned(), minutes.into())));
        };
        set(&mut desk, sent);
        desk.feed(Input::Tick).submit(none()).live();
        set(&mut desk, now);
        desk.end(HOUR, as_in("stopped_without_code.INFERRED"));
        assert_eq!(desk.causes, [cause], "sent {sent:?}, now {now:?}");
    }
}

#[test]
fn absence_is_proved_by_the_longest_acceptance_that_was_promised() {
    for (later, waits) in [(MINUTE, ACCEPTANCE), (2 * ACCEPTANCE, 2 * ACCEPTANCE)] {
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(none()).sent(unknown());
        desk.gate.acceptance = later;
        desk.feed(Input::Tick);
        assert_eq!(desk.wake_at.expect("a time").since(desk.now.boot), waits);
        desk.wait(waits - Duration::from_secs(1)).pass(true).pass(true).pass(true);
        assert_eq!(desk.job.open.len(), 1, "{later:?}");
        desk.wait(Duration::from_secs(1)).pass(true).pass(true).pass(true);
        assert_eq!(desk.job.open.len(), 0, "{later:?}");
    }
}

/// A job as the store of the version before this one keeps it: an attempt without terms, a tally
/// without restarts, a live state without what was seen of its runs.
const OLD_RECORD: &str = r#"{"key":{"name":"job","run":1},
"spec":"0000000000000000000000000000000000000000000000000000000000000000","source":"File",
"wanted":"Run","open":[{"no":1,"mark":"abcdefgh27","spec":
"0000000000000000000000000000000000000000000000000000000000000000","target":"hangzhou",
"place":{"region":"cn-hangzhou","workspace":"1","endpoint":
"https://pai-dlc.cn-hangzhou.aliyuncs.com","storage":null,"credentials":"Environment"},
"start":"Fresh","bid":null,"intended":1800000000000,"state":{"Live":{"id":"dlc1","status":
"Running","running":1800000000000,"restarts":1}},"stop":null}],"next_attempt":2,"created":1,
"tally":{"releases":1,"errors":2},"unjudged":null,"recovery":{"Look":{"asked":false}},
"progress":{"best":null,"best_step":null,"ran":{"secs":0,"nanos":0},"ran_since":{"secs":0,
"nanos":0},"ends":0,"since":null,"alike_halves":0,"last_look":null,"hopeless":0,"unsent":0,
"blind":0,"fresh_since":null,"early":null},"block":null,"copies":[],"result":null}"#;

#[test]
fn a_record_of_before_is_read_and_gone_on_with() {
    let mut desk = Desk::new();
    desk.job = serde_json::from_str::<Job>(OLD_RECORD).expect("an old record");
    assert!(matches!(desk.job.recovery, Recovery::Look { asked: false }));
    let attempt = &desk.job.open[0];
    assert_eq!((attempt.restarts(), attempt.is_pinned()), (1, false));
    assert_eq!(attempt.acceptance(ACCEPTANCE), ACCEPTANCE);
    // What is counted is not counted again, and the next restart is.
    shows(&mut desk, "Running", |cloud| cloud.restarts = 1);
    assert_eq!(counted(&desk).0, 0);
    shows(&mut desk, "Restarting", |cloud| cloud.restarts = 2);
    assert_eq!(counted(&desk), (1, 2, 1));
    // Without terms, the limit of the present spec has to do.
    desk.job = serde_json::from_str::<Job>(OLD_RECORD).expect("an old record");
    desk.spec.body.insert("JobMaxRunningTimeMinutes".to_owned(), 60.into());
    desk.end(HOUR, as_in("stopped_without_code.INFERRED"));
    assert_eq!(desk.causes, [Cause::TimeLimit]);
    // And the status of a round of bidding that its counter leaves out.
    desk.job = serde_json::from_str::<Job>(OLD_RECORD).expect("an old record");
    let AttemptState::Live { restarts, .. } = &mut desk.job.open[0].state else {
        panic!("it is live")
    };
    *restarts = 0;
    shows(&mut desk, "Bidding", |_| {});
    assert_eq!(counted(&desk).1, 1);
}
