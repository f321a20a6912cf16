//! `[hang]`: what counts as a hang, what is done about it and when, and what never is.

use super::desk::{Desk, HOUR, MINUTE, torn_above, whole};
use super::restarts::restart;
use super::watch::{from_100, saves, written};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{Job, OutcomeKind, StopWhy};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::core::verdict::Cause;
use spotkeeper::model::checkpoint::{Findings, Look};
use spotkeeper::model::cloud::Status;
use spotkeeper::model::hang::{HangAct, HangPolicy, PodsLook, PodsSeen, Times};
use std::time::Duration;

const NOTIFY: &[HangAct] = &[HangAct::Notify];
const BOTH: &[HangAct] = &[HangAct::Notify, HangAct::Restart];

fn silence(limit: Duration, then: &[HangAct]) -> HangPolicy {
    HangPolicy { log_silence: Some(limit), no_checkpoint: None, then: then.to_vec() }
}

/// Runs from step 100, and half an hour of silence is a hang.
fn silent(then: &[HangAct]) -> Desk {
    let mut desk = from_100();
    desk.spec.hang = Some(silence(30 * MINUTE, then));
    desk.feed(Input::Tick);
    desk
}

fn looks(desk: &Desk) -> bool {
    desk.effects.iter().any(|effect| matches!(effect, Effect::LookAtPods { .. }))
}

fn watches(desk: &Desk) -> bool {
    desk.effects.iter().any(|effect| matches!(effect, Effect::Watch(_)))
}

fn no(desk: &Desk) -> u32 {
    desk.job.open[0].no
}

fn tails(tails: &[u64]) -> PodsSeen {
    PodsSeen { all: 1, asked: 1, tails: tails.to_vec(), ..PodsSeen::default() }
}

/// The next look at the pods comes out so.
fn comes_out(desk: &mut Desk, look: PodsLook) {
    let mut waited = Duration::ZERO;
    while !looks(desk) {
        assert!(waited <= HOUR, "no look in an hour");
        waited += desk.wait_out();
    }
    desk.feed(Input::PodsLooked { no: no(desk), look });
}

fn shown(desk: &mut Desk, seen: PodsSeen) {
    comes_out(desk, PodsLook::Done(seen));
}

/// The logs end so for this long.
fn stays(desk: &mut Desk, end: &[u64], time: Duration) {
    shown(desk, tails(end));
    let until = desk.now.boot.plus(time);
    while desk.now.boot < until {
        shown(desk, tails(end));
    }
}

/// The look into the bucket that a stop waits for.
fn bucket(desk: &mut Desk, look: Look) {
    answered(desk, look.clone());
    // Where one was under way before the sign, another one follows it.
    if watches(desk) {
        answered(desk, look);
    }
}

fn answered(desk: &mut Desk, look: Look) {
    desk.feed(Input::Watched { no: no(desk), look });
}

/// The attempt that was asked to stop is seen ended.
fn stopped(desk: &mut Desk) {
    assert_eq!(desk.job.open[0].stop, Some(StopWhy::Hang));
    desk.end(MINUTE, |cloud| cloud.status = Status::Stopped);
}

/// Hangs, and is stopped for it.
fn hangs(desk: &mut Desk, end: &[u64], findings: Findings) {
    stays(desk, end, 30 * MINUTE);
    shown(desk, tails(end));
    bucket(desk, Look::Done(findings));
}

#[test]
fn a_person_is_told_first_and_the_stop_rests_on_a_look_after_that() {
    let mut desk = silent(BOTH);
    stays(&mut desk, &[7], 29 * MINUTE);
    assert_eq!((desk.count(Word::Alarm), desk.phase()), (1, Phase::Stalled));
    let told = desk.told.last().expect("an alarm").text.clone();
    assert!(told.contains("no new log line for 30m; the limit is 30m; next: restart"), "{told}");
    assert_eq!((desk.stops(), desk.count(Word::StopAsked)), (0, 0));
    desk.feed(Input::Tick);
    assert!(!watches(&desk), "nothing comes between two looks");
    shown(&mut desk, tails(&[7]));
    assert_eq!(desk.stops(), 0, "is a checkpoint being written?");
    bucket(&mut desk, Look::Done(whole(&[100])));
    assert_eq!((desk.stops(), desk.phase()), (1, Phase::Stopping));
    let stop = desk.told.last().expect("a stop").clone();
    assert_eq!((stop.word, &stop.data["sign"]), (Word::StopAsked, &"log_silence".into()));
    // Having asked is not an end.
    assert!(!desk.sends());
    desk.wait(HOUR);
    assert!(!desk.sends());
    stopped(&mut desk);
    assert_eq!(desk.causes, [Cause::StoppedByUs]);
    let evidence = &desk.job.unjudged.as_ref().expect("an end").verdict.evidence;
    assert!(evidence.iter().any(|one| one.starts_with("stopped for a hang=")), "{evidence:?}");
    desk.look(whole(&[100]));
    assert_eq!((desk.backoff(), desk.job.progress.hangs), (Some(10), 1));
    desk.wait_out();
    desk.submit(whole(&[100]));
    assert_eq!(desk.from(), Some(100));
    assert_eq!(desk.count(Word::Alarm), 1, "told once");
}

#[test]
fn told_once_until_something_moves_and_never_stopped_where_nobody_asked_for_it() {
    let mut desk = silent(NOTIFY);
    stays(&mut desk, &[7], 5 * HOUR);
    assert_eq!((desk.count(Word::Alarm), desk.phase()), (1, Phase::Stalled));
    shown(&mut desk, tails(&[8]));
    assert_eq!(desk.phase(), Phase::Running);
    stays(&mut desk, &[8], 20 * MINUTE);
    assert_eq!(desk.count(Word::Alarm), 1);
    stays(&mut desk, &[8], 30 * MINUTE);
    assert_eq!((desk.count(Word::Alarm), desk.count(Word::StopAsked)), (2, 0));
}

#[test]
fn a_log_that_goes_on_is_no_hang_and_one_rank_is_enough() {
    let mut desk = silent(BOTH);
    for n in 0..50 {
        shown(&mut desk, PodsSeen { all: 2, asked: 2, ..tails(&[1, 100 + n]) });
        assert_eq!(desk.count(Word::Alarm), 0, "{n}");
    }
}

#[test]
fn what_cannot_be_read_says_nothing() {
    let unread =
        |tails: &[u64]| PodsSeen { unread: Some("worker-1: 503".to_owned()), ..self::tails(tails) };
    let could_not = || PodsLook::CouldNotLook { why: "GetJob: time-out".to_owned() };
    for (what, look) in [
        ("a call that failed", could_not()),
        ("a job that does not run", PodsLook::NotRunning),
        ("a log that could not be read", PodsLook::Done(unread(&[7]))),
        ("none that could be read", PodsLook::Done(unread(&[]))),
        ("a log that is gone", PodsLook::Done(tails(&[]))),
    ] {
        let mut desk = silent(BOTH);
        shown(&mut desk, tails(&[7]));
        for _ in 0..60 {
            comes_out(&mut desk, look.clone());
        }
        assert_eq!((desk.count(Word::Alarm), desk.stops()), (0, 0), "{what}");
        let told = usize::from(look != PodsLook::NotRunning);
        assert_eq!(desk.count(Word::Held), told, "{what}: told once");
        // What was the same before and after it stood still.
        shown(&mut desk, tails(&[7]));
        assert_eq!(desk.count(Word::Alarm), 1, "{what}");
        // And nothing is done on a look that failed, however long it has been told.
        for _ in 0..60 {
            comes_out(&mut desk, look.clone());
        }
        assert_eq!((desk.stops(), desk.count(Word::StopAsked)), (0, 0), "{what}");
    }
}

#[test]
fn a_job_that_never_printed_a_line_is_silent() {
    let mut desk = silent(BOTH);
    hangs(&mut desk, &[], whole(&[100]));
    assert_eq!(desk.stops(), 1);
    let text = &desk.told.last().expect("a stop").text;
    assert!(text.contains("no log line at all for 3"), "{text}");
}

/// A stop of a hang is on record, and the process that decided it is gone.
fn stop_of_an_earlier_process() -> Desk {
    let mut desk = silent(BOTH);
    hangs(&mut desk, &[7], whole(&[100]));
    desk.effects.clear();
    desk.wait(2 * HOUR).feed(Input::Started);
    assert_eq!((desk.stops(), desk.job.open[0].stop), (0, Some(StopWhy::Hang)));
    assert_eq!(desk.pass(true).stops(), 0, "nobody has looked");
    desk
}

#[test]
fn a_new_process_asks_again_only_behind_a_look_that_shows_the_hang() {
    let mut desk = stop_of_an_earlier_process();
    shown(&mut desk, tails(&[7]));
    assert_eq!(desk.pass(true).stops(), 1);
    assert_eq!(desk.pass(true).stops(), 0, "once a look");
    comes_out(&mut desk, PodsLook::CouldNotLook { why: "503".to_owned() });
    assert_eq!(desk.pass(true).stops(), 0, "it says nothing");
    shown(&mut desk, tails(&[7]));
    assert_eq!(desk.pass(true).stops(), 1);
    stopped(&mut desk);
    desk.look(whole(&[100]));
    assert_eq!(desk.job.progress.hangs, 1);
    // A cancel needs no such look.
    let mut desk = stop_of_an_earlier_process();
    desk.act(Act::Cancel);
    assert_eq!((desk.stops(), desk.job.open[0].stop), (1, Some(StopWhy::Cancel)));
    assert_eq!(desk.feed(Input::Started).stops(), 1);
}

#[test]
fn a_stop_is_taken_back_where_the_job_shows_life_again_and_stays_ours() {
    let alive: [fn(&mut Desk); 4] = [
        |desk| shown(desk, tails(&[8])),
        |desk| {
            while !watches(desk) {
                desk.wait_out();
            }
            let at = desk.now.wall;
            bucket(desk, Look::Done(written(&[200, 100], at)));
        },
        |desk| {
            restart(desk, 1);
        },
        |desk| {
            desk.spec.hang = None;
            desk.feed(Input::Tick);
        },
    ];
    for (number, show_life) in alive.into_iter().enumerate() {
        let mut desk = stop_of_an_earlier_process();
        show_life(&mut desk);
        assert_eq!((desk.job.open[0].stop, desk.stops()), (None, 0), "{number}");
        assert_ne!(desk.phase(), Phase::Stopping);
        assert_eq!(desk.pass(true).stops(), 0);
        // It was sent all the same, and takes effect late.
        desk.end(MINUTE, |cloud| cloud.status = Status::Stopped);
        assert_eq!((desk.causes[0], desk.block()), (Cause::StoppedByUs, None), "{number}");
        desk.look(whole(&[100]));
        assert_eq!(desk.result(), None);
    }
    // Its last words while it is being stopped are no life.
    let mut desk = silent(BOTH);
    hangs(&mut desk, &[7], whole(&[100]));
    let cloud = desk.cloud(Status::Stopping);
    desk.see(cloud);
    desk.feed(Input::PodsLooked { no: no(&desk), look: PodsLook::Done(tails(&[9])) });
    desk.wait(HOUR);
    stopped(&mut desk);
}

#[test]
fn a_look_that_was_under_way_before_the_sign_does_not_confirm_it() {
    let mut desk = silent(BOTH);
    stays(&mut desk, &[7], 30 * MINUTE);
    // The first look of the run was asked for long ago, and its answer is slow.
    shown(&mut desk, tails(&[7]));
    assert!(!watches(&desk), "one is under way");
    answered(&mut desk, Look::Done(whole(&[100])));
    assert_eq!((desk.stops(), watches(&desk)), (0, true), "once more");
    answered(&mut desk, Look::Done(torn_above(whole(&[100]), 200, 1)));
    assert_eq!(desk.stops(), 0, "a save began in between");
    shown(&mut desk, tails(&[7]));
    bucket(&mut desk, Look::Done(whole(&[100])));
    assert_eq!(desk.stops(), 1);
}

#[test]
fn nothing_counts_that_an_earlier_attempt_run_or_process_showed() {
    // Another attempt.
    let mut desk = silent(BOTH);
    stays(&mut desk, &[7], 20 * MINUTE);
    desk.end(MINUTE, |_| {}).look(whole(&[100]));
    desk.wait_out();
    desk.submit(whole(&[100])).live();
    stays(&mut desk, &[7], 20 * MINUTE);
    assert_eq!(desk.count(Word::Alarm), 0, "another attempt");
    stays(&mut desk, &[7], 30 * MINUTE);
    assert_eq!(desk.count(Word::Alarm), 1);
    // Another run of the same attempt.
    let mut desk = silent(BOTH);
    stays(&mut desk, &[7], 30 * MINUTE);
    restart(&mut desk, 1);
    assert_ne!(desk.phase(), Phase::Stalled);
    desk.wait(HOUR);
    assert!(!looks(&desk), "it does not run");
    let cloud = desk.cloud(Status::Running);
    desk.see(cloud);
    stays(&mut desk, &[7], 20 * MINUTE);
    assert_eq!((desk.count(Word::Alarm), desk.count(Word::StopAsked)), (1, 0), "another run");
    // Another process.
    let mut desk = silent(BOTH);
    stays(&mut desk, &[7], 20 * MINUTE);
    desk.feed(Input::Started);
    stays(&mut desk, &[7], 20 * MINUTE);
    assert_eq!(desk.count(Word::Alarm), 0, "another process");
    stays(&mut desk, &[7], 10 * MINUTE);
    assert_eq!(desk.count(Word::Alarm), 1);
    desk.feed(Input::Started);
    assert_eq!(desk.phase(), Phase::Stalled, "what was told stays told");
    hangs(&mut desk, &[7], whole(&[100]));
    assert_eq!((desk.count(Word::Alarm), desk.count(Word::StopAsked)), (1, 1));
}

#[test]
fn a_late_answer_and_a_wall_clock_that_jumps_stop_nothing() {
    let mut desk = silent(BOTH);
    shown(&mut desk, tails(&[7]));
    desk.feed(Input::PodsLooked { no: 1, look: PodsLook::Done(tails(&[7])) });
    desk.feed(Input::PodsLooked { no: 9, look: PodsLook::Done(tails(&[7])) });
    desk.now.wall = desk.now.wall.plus(1_000 * HOUR);
    shown(&mut desk, tails(&[7]));
    assert_eq!((desk.count(Word::Alarm), desk.stops()), (0, 0));
}

#[test]
fn the_stop_waits_while_a_checkpoint_is_written_or_nobody_can_see_that() {
    let mut desk = silent(BOTH);
    stays(&mut desk, &[7], 30 * MINUTE);
    for look in [
        Look::Done(torn_above(whole(&[100]), 200, 1)),
        Look::CouldNotLook { why: "503".to_owned(), needs_person: false },
        Look::Done(Findings { ambiguous: vec!["a".to_owned(), "b".to_owned()], ..whole(&[100]) }),
    ] {
        let held = desk.count(Word::Held);
        shown(&mut desk, tails(&[7]));
        bucket(&mut desk, look);
        assert_eq!(desk.stops(), 0);
        assert!(desk.count(Word::Held) > held);
    }
    // It was written to its end: it works, however little it says.
    shown(&mut desk, tails(&[7]));
    let at = desk.now.wall;
    bucket(&mut desk, Look::Done(written(&[200, 100], at)));
    assert_eq!((desk.stops(), desk.phase()), (0, Phase::Running));
    stays(&mut desk, &[7], 20 * MINUTE);
    assert_eq!((desk.count(Word::Alarm), desk.stops()), (1, 0));
}

#[test]
fn a_save_that_the_stop_cut_is_refused_and_the_whole_one_before_it_chosen() {
    let mut desk = silent(BOTH);
    let mut torn = torn_above(whole(&[100]), 200, 1);
    torn.unfinished.as_mut().expect("one").youngest_age = HOUR;
    hangs(&mut desk, &[7], torn.clone());
    assert_eq!(desk.stops(), 1, "what was begun an hour ago is not being written");
    stopped(&mut desk);
    desk.look(torn.clone());
    desk.wait_out();
    desk.submit(torn);
    assert_eq!(desk.from(), Some(100));
}

#[test]
fn a_person_and_the_gate_come_before_a_restart() {
    let mut desk = silent(BOTH);
    stays(&mut desk, &[7], 30 * MINUTE);
    desk.act(Act::Pause);
    stays(&mut desk, &[7], HOUR);
    assert_eq!((desk.count(Word::Alarm), desk.stops()), (1, 0), "paused: what runs goes on");
    desk.act(Act::Resume);
    shown(&mut desk, tails(&[7]));
    desk.act(Act::Pause);
    bucket(&mut desk, Look::Done(whole(&[100])));
    assert_eq!(desk.count(Word::StopAsked), 0, "paused while the bucket was looked into");
    desk.act(Act::Resume);
    let key = desk.job.key.clone();
    let holds: [&dyn Fn(&mut Desk); 3] =
        [&|desk| desk.gate.place = None, &|desk| desk.gate.slot = false, &|desk| {
            desk.gate.lease = Some(key.clone());
        }];
    for hold in holds {
        hold(&mut desk);
        shown(&mut desk, tails(&[7]));
        assert!(!watches(&desk), "nothing would follow");
        desk.gate = super::desk::gate();
    }
    shown(&mut desk, tails(&[7]));
    bucket(&mut desk, Look::Done(whole(&[100])));
    assert_eq!(desk.job.open[0].stop, Some(StopWhy::Hang));
    // A cancel while the stop is under way stays a cancel.
    desk.act(Act::Cancel);
    desk.end(MINUTE, |cloud| cloud.status = Status::Stopped);
    assert_eq!(desk.result(), Some(OutcomeKind::Cancelled));
}

#[test]
fn a_job_that_hangs_each_time_is_a_crash_loop() {
    let mut desk = silent(&[HangAct::Restart]);
    let mut delays = Vec::new();
    for _ in 1..5 {
        stays(&mut desk, &[7], 30 * MINUTE);
        bucket(&mut desk, Look::Done(whole(&[100])));
        stopped(&mut desk);
        desk.look(whole(&[100]));
        delays.push(desk.backoff().expect("a wait"));
        desk.wait_out();
        desk.submit(whole(&[100])).live();
    }
    assert_eq!(delays, [10, 20, 40, 80]);
    stays(&mut desk, &[7], 30 * MINUTE);
    bucket(&mut desk, Look::Done(whole(&[100])));
    stopped(&mut desk);
    desk.look(whole(&[100]));
    assert_eq!((desk.result(), desk.sends()), (Some(OutcomeKind::Failed), false));
    let why = &desk.job.result.as_ref().expect("a result").why;
    assert!(why.contains("crash loop: 5 attempts hung"), "{why}");
}

#[test]
fn a_new_checkpoint_before_each_hang_is_progress_and_never_a_crash_loop() {
    let mut desk = silent(&[HangAct::Restart]);
    for step in 2..20 {
        let step = step * 100;
        stays(&mut desk, &[7], 30 * MINUTE);
        bucket(&mut desk, Look::Done(whole(&[step - 100])));
        stopped(&mut desk);
        desk.submit(whole(&[step])).live();
        assert_eq!((desk.from(), desk.job.progress.hangs), (Some(step), 0), "at once");
    }
}

#[test]
fn without_checkpoints_it_is_stopped_by_the_look_itself_and_silence_is_no_progress() {
    let mut desk = Desk::without_checkpoints();
    desk.spec.hang = Some(silence(HOUR, BOTH));
    desk.feed(Input::Tick).live();
    for round in 1..=5 {
        stays(&mut desk, &[round], HOUR);
        shown(&mut desk, tails(&[round]));
        assert_eq!(desk.stops(), 1, "{round}");
        stopped(&mut desk);
        if round < 5 {
            assert!(desk.backoff().is_some(), "{round}");
            desk.wait_out();
            desk.live();
        }
    }
    assert_eq!(desk.result(), Some(OutcomeKind::Failed));
}

#[test]
fn lost_pods_beside_silent_ones_are_a_hang_sooner_than_silence_alone() {
    let lost = |end: u64| PodsSeen {
        all: 8,
        asked: 7,
        lost: vec!["dlc1-worker-3".to_owned()],
        ..tails(&[end])
    };
    let mut desk = silent(BOTH);
    for n in 0..40 {
        shown(&mut desk, lost(n));
    }
    assert_eq!(desk.count(Word::Alarm), 0, "the others go on");
    for _ in 0..3 {
        shown(&mut desk, lost(99));
    }
    assert_eq!(desk.count(Word::Alarm), 1, "silent for ten minutes");
    let text = &desk.told.last().expect("an alarm").text;
    assert!(text.contains("1 of 8 pods failed or are gone (dlc1-worker-3)"), "{text}");
    shown(&mut desk, lost(99));
    bucket(&mut desk, Look::Done(whole(&[100])));
    assert_eq!(desk.stops(), 1);
    // A pod that was replaced is none that is lost.
    let mut desk = silent(BOTH);
    shown(&mut desk, lost(99));
    shown(&mut desk, PodsSeen { all: 8, asked: 8, ..tails(&[99]) });
    shown(&mut desk, PodsSeen { all: 8, asked: 8, ..tails(&[99]) });
    shown(&mut desk, PodsSeen { all: 8, asked: 8, ..tails(&[99]) });
    assert_eq!(desk.count(Word::Alarm), 0);
}

#[test]
fn no_checkpoint_for_several_usual_intervals_is_a_hang_however_much_it_prints() {
    let mut desk = from_100();
    let then = BOTH.to_vec();
    let no_checkpoint = Some(Times::whole(4));
    desk.spec.hang = Some(HangPolicy { log_silence: None, no_checkpoint, then });
    let (step, at) = saves(&mut desk, 110, 5, 20 * MINUTE);
    let newest = || written(&[step, step - 10], at);
    let saved = desk.now.boot;
    let mut alarm = None;
    while desk.stops() == 0 {
        assert!(desk.now.boot.since(saved) < 10 * HOUR);
        assert!(!looks(&desk), "no log is read");
        if watches(&desk) {
            bucket(&mut desk, Look::Done(newest()));
        } else {
            desk.wait_out();
        }
        if desk.count(Word::Alarm) > 0 {
            alarm.get_or_insert(desk.now.boot.since(saved));
        }
    }
    let alarm = alarm.expect("told before");
    assert!(alarm > 70 * MINUTE && alarm < 2 * HOUR, "{alarm:?}");
    assert!(desk.now.boot.since(saved) > 80 * MINUTE);
    assert_eq!(desk.count(Word::Alarm), 1, "one alarm for one thing");
    assert_eq!(desk.told.last().expect("a stop").data["sign"], "no_checkpoint");
}

#[test]
fn without_the_table_no_pod_is_looked_at_and_no_record_grows() {
    let mut desk = from_100();
    desk.wait(HOUR);
    assert!(!looks(&desk));
    let record = serde_json::to_value(&desk.job).expect("JSON");
    let text = record.to_string();
    assert!(!text.contains("\"hang\"") && !text.contains("\"hangs\""), "{text}");
    // As an older program kept it.
    assert_eq!(serde_json::from_value::<Job>(record).expect("a job"), desk.job);
    // With it the record has bounds, whatever is shown; the desk checks its size.
    let mut desk = silent(BOTH);
    let many: Vec<u64> = (0..1_000).map(|n| u64::MAX - n).collect();
    let lost = vec!["x".repeat(10_000); 1_000];
    for _ in 0..20 {
        let unread = Some("y".repeat(10_000));
        shown(
            &mut desk,
            PodsSeen { all: 1_000, lost: lost.clone(), asked: 8, tails: many.clone(), unread },
        );
    }
    // The table is taken out: what was told is forgotten.
    let mut desk = silent(NOTIFY);
    stays(&mut desk, &[7], HOUR);
    assert_eq!(desk.phase(), Phase::Stalled);
    desk.spec.hang = None;
    desk.feed(Input::Tick);
    assert_eq!((desk.phase(), looks(&desk)), (Phase::Running, false));
}
