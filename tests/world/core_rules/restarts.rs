//! What the platform does by itself under one id: restarts in place, machines held after a result,
//! waiting for ever, words that nobody knows.

use super::desk::{Desk, HOUR, MINUTE, as_in, cloud, golden, id, mark, none};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{Attempt, AttemptState};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::runs::Runs;
use spotkeeper::core::step::{Act, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::cloud::{CloudJob, ExitReport, History, SendOutcome, Status};
use spotkeeper::model::time::WallTime;
use std::time::Duration;

pub(super) fn shows(desk: &mut Desk, status: &str, change: impl FnOnce(&mut CloudJob)) {
    let mut cloud = desk.cloud(Status::from_word(status));
    change(&mut cloud);
    desk.see(cloud);
}

/// The platform restarts the open attempt; it is on its way to run again.
pub(super) fn restart(desk: &mut Desk, count: u32) {
    desk.now.wall = desk.now.wall.plus(MINUTE);
    desk.now.boot = desk.now.boot.plus(MINUTE);
    shows(desk, "Restarting", |cloud| cloud.restarts = count);
}

pub(super) fn counted(desk: &Desk) -> (usize, u32, u32) {
    let restarts = desk.job.open.first().map_or(0, Attempt::restarts);
    (desk.count(Word::RestartedInPlace), restarts, desk.job.tally.restarts)
}

/// One answer of GetJob: status, `RestartTimes`, minutes after which the present run began, whether
/// it is the job's own answer and not a row of a list.
type Shown = (&'static str, u32, Option<u64>, bool);

#[test]
fn trap_06_a_restart_in_place_is_counted_once_whatever_shows_it_and_nothing_is_sent() {
    let first = Some(0);
    let cases: [(&str, &[Shown], u32); 16] = [
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
            "a counter that is ahead of what a word in between lets see",
            &[("Preempting", 2, Some(9), true), ("Running", 2, Some(20), true)],
            2,
        ),
        (
            "the same, and then one more",
            &[
                ("SpotToBeReleased", 2, Some(9), true),
                ("Running", 2, Some(20), true),
                ("Restarting", 3, Some(20), true),
                ("Running", 3, Some(31), true),
            ],
            3,
        ),
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
fn a_run_that_only_list_rows_showed_counts_from_its_beginning() {
    let mut desk = Desk::running();
    let AttemptState::Live { runs, .. } = &mut desk.job.open[0].state else { panic!("live") };
    *runs = Runs::default();
    desk.wait(HOUR);
    restart(&mut desk, 1);
    shows(&mut desk, "Running", |cloud| cloud.restarts = 1);
    desk.end(10 * MINUTE, |cloud| cloud.restarts = 1);
    assert_eq!(desk.job.progress.ran, 71 * MINUTE);
    // It is told the same where it ends before anything of the restart is seen anew.
    let mut desk = Desk::running();
    let AttemptState::Live { runs, restarts, .. } = &mut desk.job.open[0].state else {
        panic!("live")
    };
    (*runs, *restarts) = (Runs::default(), 1);
    desk.end(HOUR, |cloud| cloud.restarts = 1);
    assert_eq!(desk.job.progress.ran, HOUR);
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
fn scenario_89_trap_08_reserving_and_unknown_words_hold_the_machine_and_are_never_an_end() {
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
fn an_end_in_the_year_9999_adds_ten_years_at_most_also_after_a_restart() {
    let mut desk = Desk::running();
    restart(&mut desk, 1);
    shows(&mut desk, "Running", |cloud| cloud.restarts = 1);
    let end = WallTime::parse("9999-12-31T23:59:59Z");
    shows(&mut desk, "Failed", |cloud| {
        cloud.restarts = 1;
        cloud.finished = end;
    });
    assert!(desk.job.open.is_empty());
    let ten_years = Duration::from_secs(10 * 365 * 86_400);
    assert!(desk.job.progress.ran <= ten_years, "{:?}", desk.job.progress.ran);
}
