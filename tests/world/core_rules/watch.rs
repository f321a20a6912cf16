//! Looks at an attempt that runs: what they show, what they warn of, and that an end is judged with
//! them as it would be without.

use super::desk::{Desk, HOUR, MINUTE, as_in, candidate, none, torn_above, whole};
use super::restarts::{restart, shows};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{Attempt, AttemptState, BlockKind, OutcomeKind};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::watch::{LOOK_LONGEST, LOOK_SHORTEST, Watch, at_risk};
use spotkeeper::model::checkpoint::{Findings, Look, Wholeness};
use spotkeeper::model::cloud::Status;
use spotkeeper::model::ids::Digest;
use spotkeeper::model::spec::FirstStart;
use spotkeeper::model::time::WallTime;
use std::time::Duration;

/// An attempt that runs from step 100.
pub(super) fn from_100() -> Desk {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(whole(&[100])).live();
    desk
}

fn is_asked(desk: &Desk) -> bool {
    desk.effects.iter().any(|effect| matches!(effect, Effect::Watch(_)))
}

fn watched(no: u32, findings: Findings) -> Input {
    Input::Watched { no, look: Look::Done(findings) }
}

fn could_not() -> Look {
    Look::CouldNotLook { why: "503".to_owned(), needs_person: true }
}

/// Waits until a look at the running attempt is asked for. Answers how long that was.
fn until_asked(desk: &mut Desk) -> Duration {
    let mut waited = Duration::ZERO;
    while !is_asked(desk) {
        assert!(waited <= HOUR, "no look in an hour");
        waited += desk.wait_out();
    }
    waited
}

/// The next look shows this.
fn shown(desk: &mut Desk, findings: Findings) {
    until_asked(desk);
    let no = desk.job.open[0].no;
    desk.feed(watched(no, findings));
}

/// Whole checkpoints of these steps, the newest written at `at`.
pub(super) fn written(steps: &[u64], at: WallTime) -> Findings {
    let mut findings = whole(steps);
    findings.candidates[0].newest_object = Some(at);
    findings.candidates[0].oldest_object = Some(at.minus(Duration::from_secs(30)));
    findings
}

/// It saves `count` times, `every` so often and 10 steps apart, and is looked at as often as it wants.
/// Answers the step and the time of the newest.
pub(super) fn saves(desk: &mut Desk, first: u64, count: u32, every: Duration) -> (u64, WallTime) {
    let began = desk.now.wall;
    loop {
        until_asked(desk);
        let no = desk.job.open[0].no;
        let all = desk.now.wall.since(began).as_millis() / every.as_millis();
        let nth = u32::try_from(all).expect("few").min(count);
        let (step, at) = (first + 10 * u64::from(nth) - 10, began.plus(every * nth));
        if nth == 0 {
            desk.feed(watched(no, whole(&[step])));
            continue;
        }
        desk.feed(watched(no, written(&[step, step - 10], at)));
        if nth == count {
            return (step, at);
        }
    }
}

fn watch(desk: &Desk) -> &Watch {
    let AttemptState::Live { watch, .. } = &desk.job.open[0].state else { panic!("not live") };
    watch
}

fn attempt(desk: &Desk) -> &Attempt {
    &desk.job.open[0]
}

#[test]
fn a_new_checkpoint_seen_while_it_ran_is_progress_of_that_attempt_at_its_end() {
    for (what, at_the_end) in [
        ("the same one", whole(&[140, 100])),
        ("a newer one", whole(&[150, 140])),
        ("it is torn or gone by then", whole(&[100])),
    ] {
        let mut desk = from_100();
        shown(&mut desk, whole(&[140, 100]));
        assert_eq!(desk.job.progress.best_step, Some(140), "{what}");
        // The daemon may be another one by the time it ends.
        desk.feed(Input::Started);
        desk.end(HOUR, as_in("failed_exit137"));
        let from = at_the_end.chosen.as_ref().and_then(|point| point.step);
        desk.submit(at_the_end);
        assert_eq!((desk.from(), desk.job.progress.ends), (from, 0), "{what}: at once");
        assert_eq!(desk.job.progress.ran_since, Duration::ZERO, "{what}");
    }
}

#[test]
fn each_new_checkpoint_is_progress_once() {
    // 140 is seen while it runs, lost, and written again by the attempts after it.
    let mut desk = from_100();
    shown(&mut desk, whole(&[140, 100]));
    desk.end(HOUR, as_in("failed_exit137")).submit(whole(&[100])).live();
    for ends in 1..=2 {
        shown(&mut desk, whole(&[140, 100]));
        desk.end(HOUR, as_in("failed_exit137")).look(whole(&[100]));
        assert_eq!(desk.job.progress.ends, ends, "the same as before is nothing new");
        desk.wait_out();
        desk.submit(whole(&[100])).live();
    }
    // What it started from, and what is older, is not new either.
    let mut desk = from_100();
    shown(&mut desk, whole(&[100]));
    shown(&mut desk, whole(&[90]));
    desk.end(HOUR, as_in("failed_exit137")).look(whole(&[100]));
    assert_eq!((desk.job.progress.ends, desk.sends()), (1, false));
}

#[test]
fn a_checkpoint_seen_while_it_ran_and_gone_at_the_end_never_leads_to_zero() {
    let mut desk = Desk::running();
    shown(&mut desk, whole(&[140]));
    desk.end(HOUR, as_in("failed_exit137")).look(none());
    assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::CheckpointsGone), false));
}

#[test]
fn counts_begin_anew_as_soon_as_progress_is_seen() {
    let mut desk = Desk::running();
    for _ in 0..3 {
        desk.end(MINUTE, as_in("failed_exit137")).look(none());
        desk.wait_out();
        desk.submit(none()).live();
    }
    assert_eq!(desk.job.progress.ends, 3);
    shown(&mut desk, whole(&[10]));
    let progress = &desk.job.progress;
    assert_eq!((progress.ends, progress.since, progress.alike_halves), (0, None, 0));
}

#[test]
fn a_look_at_a_running_attempt_is_never_taken_for_another_one() {
    // Asked for while it ran, answered after its end: the look that follows the end is awaited.
    let mut desk = from_100();
    until_asked(&mut desk);
    desk.end(HOUR, as_in("failed_exit137"));
    assert!(desk.effects.contains(&Effect::Look));
    let before = desk.job.clone();
    desk.feed(watched(1, whole(&[140])));
    assert_eq!((desk.sends(), &desk.job), (false, &before));
    desk.feed(Input::Looked(Look::Done(whole(&[140, 100]))));
    assert_eq!((desk.from(), desk.job.progress.ends), (Some(140), 0));
    // Nor for one of the attempt after it.
    desk.live();
    let before = desk.job.clone();
    desk.feed(watched(1, whole(&[160])));
    assert_eq!(desk.job, before);
    // Nor for the look after a restart in place, nor the other way round.
    let mut desk = from_100();
    until_asked(&mut desk);
    restart(&mut desk, 1);
    assert!(desk.effects.contains(&Effect::Look));
    desk.feed(watched(1, whole(&[140, 100])));
    assert_eq!(desk.stops(), 0);
    desk.feed(Input::Looked(Look::Done(whole(&[140, 100]))));
    assert_eq!(desk.stops(), 1);
    let mut desk = from_100();
    until_asked(&mut desk);
    desk.feed(Input::Looked(Look::Done(whole(&[140, 100]))));
    assert_eq!((desk.stops(), desk.job.progress.best_step), (0, Some(100)));
}

#[test]
fn only_an_attempt_that_runs_is_looked_at() {
    type Change = fn(&mut Desk);
    let cases: [(&str, Change, bool); 9] = [
        ("it runs", |_| {}, true),
        ("paused: what runs goes on", |d| _ = d.act(Act::Pause), true),
        ("a word that nobody knows", |d| shows(d, "Preempting", |_| {}), true),
        ("it waits again", |d| shows(d, "Queuing", |_| {}), false),
        ("its result is decided", |d| shows(d, "SucceededReserving", |_| {}), false),
        ("it is being stopped", |d| _ = d.act(Act::Cancel), false),
        (
            "the job file is another one",
            |d| _ = d.feed(Input::Spec(Digest("1".repeat(64)))).feed(Input::Tick),
            false,
        ),
        ("the cloud was not compared", |d| d.gate.verified = false, false),
        ("the process has to end", |d| d.gate.stopping = true, false),
    ];
    for (what, change, looks) in cases {
        let mut desk = Desk::running();
        change(&mut desk);
        let mut asked = false;
        for _ in 0..3 {
            desk.wait(LOOK_LONGEST);
            asked |= is_asked(&desk);
        }
        assert_eq!(asked, looks, "{what}");
    }
    let mut desk = Desk::without_checkpoints();
    desk.feed(Input::Tick).live().wait(HOUR);
    assert!(!is_asked(&desk) && desk.wake_at.is_none(), "there is nothing to look at");
}

#[test]
fn it_looks_from_time_to_time_and_not_while_an_answer_is_awaited() {
    let mut desk = Desk::running();
    until_asked(&mut desk);
    for _ in 0..10 {
        desk.wait(HOUR);
        assert!(!is_asked(&desk), "one at a time");
    }
    // A new process asks anew, and not at once: all jobs would.
    desk.feed(Input::Started);
    assert!(!is_asked(&desk));
    assert!(until_asked(&mut desk) >= LOOK_SHORTEST);
    // As often as it saves, within limits.
    for (every, count, least, most) in [
        (Duration::from_secs(5), 400, LOOK_SHORTEST, LOOK_SHORTEST),
        (8 * MINUTE, 8, 4 * MINUTE, 8 * MINUTE),
        (3 * HOUR, 3, LOOK_LONGEST, LOOK_LONGEST),
    ] {
        let mut desk = from_100();
        saves(&mut desk, 110, count, every);
        let pause = until_asked(&mut desk);
        assert!((least..=most).contains(&pause), "{every:?}: {pause:?}");
    }
}

#[test]
fn it_knows_the_pace_and_what_is_at_risk() {
    let mut desk = from_100();
    assert_eq!(at_risk(attempt(&desk), desk.now.wall), Some(Duration::ZERO));
    desk.wait(3 * MINUTE);
    assert_eq!(at_risk(attempt(&desk), desk.now.wall), Some(3 * MINUTE), "since it began");
    assert_eq!((watch(&desk).rhythm(), watch(&desk).steps_per_hour()), (None, None));
    let (_, at) = saves(&mut desk, 110, 6, 15 * MINUTE);
    let rhythm = watch(&desk).rhythm().expect("a rhythm");
    assert_eq!((rhythm.every, rhythm.steps), (15 * MINUTE, Some(10)));
    assert_eq!(rhythm.took, Some(Duration::from_secs(30)));
    assert_eq!(watch(&desk).steps_per_hour(), Some(40));
    let risk = desk.now.wall.since(at);
    assert_eq!(at_risk(attempt(&desk), desk.now.wall), Some(risk), "since it saved");
    assert_eq!(desk.job.progress.best_at, Some(at));
    // Each epoch counts its steps anew: no pace is made up over the border.
    let mut desk = from_100();
    for (n, (epoch, step)) in [(0, 110), (0, 120), (1, 10)].into_iter().enumerate() {
        let mut findings = written(&[step], desk.now.wall);
        findings.chosen.as_mut().expect("one").position.epoch = epoch;
        shown(&mut desk, findings);
        assert_eq!(watch(&desk).steps_per_hour().is_some(), n == 1, "{epoch} {step}");
    }
}

#[test]
fn three_usual_intervals_without_a_new_one_are_a_stall_told_once() {
    let mut desk = from_100();
    let (step, at) = saves(&mut desk, 110, 5, 10 * MINUTE);
    let same = || written(&[step], at);
    while desk.now.wall.since(at) + LOOK_LONGEST <= 30 * MINUTE {
        shown(&mut desk, same());
        assert_eq!((desk.phase(), desk.count(Word::Alarm)), (Phase::Running, 0));
    }
    // Time alone says nothing: only a complete look does.
    desk.wait(HOUR);
    assert_eq!(desk.phase(), Phase::Running);
    shown(&mut desk, same());
    assert_eq!((desk.phase(), desk.count(Word::Alarm)), (Phase::Stalled, 1));
    assert!(
        watch(&desk).warning(desk.now.wall).is_some_and(|w| w.contains("usually one every 10m"))
    );
    // Once, also across a crash of the daemon; and nothing is done about it.
    desk.feed(Input::Started);
    for _ in 0..5 {
        shown(&mut desk, same());
    }
    assert_eq!((desk.phase(), desk.count(Word::Alarm)), (Phase::Stalled, 1));
    assert_eq!((desk.stops(), desk.job.open.len(), desk.block()), (0, 1, None));
    // A look that could not be made changes nothing.
    until_asked(&mut desk);
    desk.feed(Input::Watched { no: 1, look: could_not() });
    assert_eq!(desk.phase(), Phase::Stalled);
    // The next new one clears it, and it may stall anew.
    let now = desk.now.wall;
    shown(&mut desk, written(&[step + 10, step], now));
    assert_eq!((desk.phase(), watch(&desk).warning(now)), (Phase::Running, None));
    desk.wait(10 * HOUR);
    shown(&mut desk, written(&[step + 10], now));
    assert_eq!((desk.phase(), desk.count(Word::Alarm)), (Phase::Stalled, 2));
}

#[test]
fn what_does_not_prove_a_stall_is_none() {
    let stalled_by = |findings: fn(u64, WallTime) -> Findings| {
        let mut desk = from_100();
        let (step, at) = saves(&mut desk, 110, 5, 10 * MINUTE);
        for _ in 0..9 {
            shown(&mut desk, findings(step, at));
        }
        desk.phase() == Phase::Stalled
    };
    assert!(stalled_by(|step, at| written(&[step], at)));
    assert!(!stalled_by(|step, at| torn_above(written(&[step], at), step + 10, 1)), "it writes");
    assert!(!stalled_by(|_, _| none()), "all are gone: something was done to them");
    assert!(
        !stalled_by(|step, at| {
            let mut findings = written(&[step], at);
            findings.ambiguous = vec!["a".to_owned(), "b".to_owned()];
            findings
        }),
        "nobody can tell whose they are"
    );
    // Not often enough seen to call anything usual.
    let mut desk = from_100();
    let (step, at) = saves(&mut desk, 110, 2, 10 * MINUTE);
    for _ in 0..20 {
        shown(&mut desk, written(&[step], at));
    }
    assert_eq!((desk.phase(), desk.count(Word::Alarm)), (Phase::Running, 0));
    // An old one that is still being written after long is torn, and does not move.
    let mut desk = from_100();
    let (step, at) = saves(&mut desk, 110, 5, 10 * MINUTE);
    desk.wait(2 * HOUR);
    let mut findings = torn_above(written(&[step], at), step + 10, 1);
    findings.unfinished.as_mut().expect("one").youngest_age = 90 * MINUTE;
    shown(&mut desk, findings);
    assert_eq!(desk.phase(), Phase::Stalled);
}

#[test]
fn an_earlier_attempt_or_run_says_nothing_of_this_one() {
    // Another attempt: it has to show its own pace first.
    let mut desk = from_100();
    let (step, at) = saves(&mut desk, 110, 6, 10 * MINUTE);
    desk.end(MINUTE, as_in("failed_exit137")).submit(written(&[step], at)).live();
    for _ in 0..20 {
        shown(&mut desk, written(&[step], at));
    }
    assert_eq!((desk.phase(), desk.count(Word::Alarm)), (Phase::Running, 0));
    assert_eq!(at_risk(attempt(&desk), desk.now.wall).map(|risk| risk >= 20 * MINUTE), Some(true));
    // Another run under the same id, seen to stall before it.
    let mut desk = from_100();
    let (step, at) = saves(&mut desk, 110, 6, 10 * MINUTE);
    desk.wait(5 * HOUR);
    shown(&mut desk, written(&[step], at));
    assert_eq!(desk.phase(), Phase::Stalled);
    restart(&mut desk, 1);
    assert_eq!(desk.phase(), Phase::Starting);
    desk.feed(Input::Looked(Look::Done(whole(&[100]))));
    let began = desk.now.wall;
    shows(&mut desk, "Running", |cloud| {
        cloud.restarts = 1;
        cloud.running = Some(began);
    });
    assert_eq!((desk.phase(), watch(&desk).rhythm()), (Phase::Running, None));
    for _ in 0..20 {
        shown(&mut desk, written(&[step], at));
    }
    assert_eq!(desk.phase(), Phase::Running, "what the run before wrote is not this one's");
    assert_eq!(desk.count(Word::Alarm), 1);
    // A later upload of the run before it is no pace either.
    assert_eq!(watch(&desk).saved(), None);
}

#[test]
fn running_for_long_without_any_whole_checkpoint_is_told_while_it_runs() {
    let overdue = |desk: &mut Desk| {
        desk.spec.checkpoint.as_mut().expect("checkpoints").expect_within = 2 * HOUR;
    };
    let mut desk = Desk::running();
    overdue(&mut desk);
    let mut torn = none();
    torn.candidates = vec![candidate(10, Wholeness::Torn)];
    desk.wait(110 * MINUTE);
    shown(&mut desk, torn.clone());
    assert_eq!(desk.count(Word::Alarm), 0, "not yet");
    desk.wait(30 * MINUTE);
    // Not by the clock, and not by a look that could not be made.
    until_asked(&mut desk);
    desk.feed(Input::Watched { no: 1, look: could_not() });
    assert_eq!(desk.count(Word::Alarm), 0);
    for _ in 0..5 {
        shown(&mut desk, torn.clone());
    }
    assert_eq!((desk.count(Word::Alarm), desk.phase()), (1, Phase::Running));
    assert!(watch(&desk).warning(desk.now.wall).is_some());
    assert_eq!((desk.block(), desk.stops()), (None, 0), "it may still save");
    // It does.
    shown(&mut desk, whole(&[10]));
    assert_eq!(watch(&desk).warning(desk.now.wall), None);
    desk.end(HOUR, as_in("failed_exit137")).submit(whole(&[10]));
    assert_eq!(desk.from(), Some(10));
    // The running time of the attempts before it counts, the waits between its runs do not.
    let mut desk = Desk::running();
    overdue(&mut desk);
    desk.end(100 * MINUTE, as_in("failed_exit137")).look(none());
    desk.wait_out();
    desk.submit(none()).live();
    let alarms = desk.count(Word::Alarm);
    shows(&mut desk, "Queuing", |_| {});
    desk.wait(10 * HOUR);
    shows(&mut desk, "Running", |_| {});
    shown(&mut desk, none());
    assert_eq!(desk.count(Word::Alarm), alarms, "it waited, it did not run");
    desk.wait(30 * MINUTE);
    shown(&mut desk, none());
    assert_eq!(desk.count(Word::Alarm), alarms + 1);
    // One that was seen once is no reason to doubt the path.
    let mut desk = from_100();
    overdue(&mut desk);
    desk.wait(10 * HOUR);
    shown(&mut desk, none());
    assert_eq!(desk.count(Word::Alarm), 0);
}

#[test]
fn after_a_fresh_start_older_checkpoints_are_not_taken_for_its_own() {
    let mut desk = Desk::new();
    let checkpoint = desk.spec.checkpoint.as_mut().expect("checkpoints");
    checkpoint.first_start = FirstStart::Fresh;
    checkpoint.expect_within = HOUR;
    desk.feed(Input::Tick).submit(whole(&[700])).live();
    let old = desk.now.wall.minus(1000 * HOUR);
    desk.wait(2 * HOUR);
    shown(&mut desk, written(&[700], old));
    assert_eq!((desk.job.progress.best, desk.count(Word::Alarm)), (None, 1), "none of its own");
    // They may hide its own: nothing is known.
    let mut findings = written(&[700], old);
    findings.candidates.push(candidate(100, Wholeness::NotChecked));
    shown(&mut desk, findings);
    assert!(watch(&desk).fault().contains("earlier run"));
    assert_eq!(desk.job.progress.best, None);
}

#[test]
fn a_look_that_could_not_be_made_says_so_and_is_not_repeated_at_once() {
    let mut desk = from_100();
    for times in 1..=9 {
        assert!(until_asked(&mut desk) >= LOOK_SHORTEST, "{times}");
        desk.feed(Input::Watched { no: 1, look: could_not() });
        assert!(watch(&desk).fault().contains(&format!("({times} in a row): 503")), "{times}");
    }
    assert_eq!((desk.count(Word::Held), desk.count(Word::Alarm)), (4, 0), "1, 2, 4 and 8");
    assert_eq!((desk.block(), desk.job.progress.blind), (None, 0));
    shown(&mut desk, whole(&[100]));
    assert_eq!(watch(&desk).fault(), "");
}

#[test]
fn beside_a_twin_nobody_can_tell_whose_a_checkpoint_is() {
    let mut desk = from_100();
    let twin = desk.cloud(Status::Running);
    desk.end(HOUR, |_| {}).submit(whole(&[120, 100])).live();
    until_asked(&mut desk);
    desk.see(twin);
    assert_eq!(desk.job.open.len(), 2);
    desk.feed(watched(2, whole(&[140, 120])));
    assert_eq!(desk.job.progress.best_step, Some(120));
    desk.wait(HOUR);
    assert!(!is_asked(&desk));
}

#[test]
fn a_record_with_all_there_is_to_remember_is_small_and_one_without_it_loads() {
    let mut desk = from_100();
    saves(&mut desk, 110, 40, 10 * MINUTE);
    until_asked(&mut desk);
    let why = "\u{1}\"\\".repeat(10_000);
    desk.feed(Input::Watched { no: 1, look: Look::CouldNotLook { why, needs_person: false } });
    let record = serde_json::to_value(&desk.job).expect("a record");
    let live = &record["open"][0]["state"]["Live"]["watch"];
    assert!(live.to_string().len() < 3 * 1024, "{live}");
    let back: spotkeeper::core::job::Job = serde_json::from_value(record.clone()).expect("a job");
    assert_eq!(back, desk.job);
    // As an earlier program wrote it.
    let mut old = record;
    let state = old["open"][0]["state"]["Live"].as_object_mut().expect("live");
    state.remove("watch");
    old["progress"].as_object_mut().expect("progress").remove("best_at");
    desk.job = serde_json::from_value(old).expect("a job");
    desk.feed(Input::Started);
    until_asked(&mut desk);
    // It ends well after all.
    desk.end(HOUR, as_in("succeeded")).look(whole(&[1000]));
    assert_eq!(desk.result(), Some(OutcomeKind::Succeeded));
}
