//! Why an attempt ended, and what follows.

use super::desk::{Desk, HOUR, MINUTE, as_in, candidate, golden, id, none, whole};
use spotkeeper::core::event::{Event, Word};
use spotkeeper::core::job::{AttemptState, BlockKind, OutcomeKind};
use spotkeeper::core::runs::Ran;
use spotkeeper::core::step::Input;
use spotkeeper::core::verdict::{Cause, LogEnd, Told, Verdict, amend, judge};
use spotkeeper::model::checkpoint::Wholeness;
use spotkeeper::model::cloud::{CloudJob, ExitReport, Pod, SendOutcome, Status};
use spotkeeper::model::spec::OnStopped;
use std::time::Duration;

fn verdict(cloud: &CloudJob, limit: Option<Duration>) -> Verdict {
    let desk = Desk::running();
    let ran =
        cloud.finished.zip(cloud.running).map_or(Duration::ZERO, |(end, start)| end.since(start));
    judge(cloud, &desk.job.open[0], Ran::once(ran), limit)
}

fn exits(code: i32) -> impl FnOnce(&mut CloudJob) {
    move |cloud| cloud.exits = vec![ExitReport { code, pods: 1 }]
}

fn released(cloud: &mut CloudJob) {
    cloud.pods = vec![Pod { sub_status: "Evicted".to_owned(), ..Pod::default() }];
}

fn succeeded(cloud: &mut CloudJob) {
    cloud.status = Status::Succeeded;
    cloud.reason_code = "JobSucceeded".to_owned();
}

#[test]
fn recorded_ends_have_these_causes() {
    for (name, cause, told) in [
        ("failed_evicted.INFERRED", Cause::Released, Told::FromOutside),
        ("failed_exit137", Cause::Unexplained, Told::Something),
        ("failed_plain_137.INFERRED", Cause::Unexplained, Told::Something),
        ("failed_no_resources.INFERRED", Cause::NeverStarted, Told::FromOutside),
        ("failed_user_exit1", Cause::UserError, Told::Something),
        ("one_pod_of_eight_gone.INFERRED", Cause::Unexplained, Told::Something),
        ("stopped_by_user", Cause::StoppedByPerson, Told::Something),
        ("stopped_without_code.INFERRED", Cause::StoppedUnexplained, Told::Nothing),
        ("succeeded", Cause::Succeeded, Told::Something),
        ("succeeded_after_term.INFERRED", Cause::Succeeded, Told::Something),
        ("sparse", Cause::Succeeded, Told::Nothing),
    ] {
        let found = verdict(&golden(name), None);
        assert_eq!((found.cause, found.look.told), (cause, told), "{name}: {found:?}");
        assert!(!found.rule.is_empty() && !found.evidence.is_empty(), "{name}");
    }
}

#[test]
fn words_of_a_release_are_whole_words_of_a_field_and_never_the_jobs_own() {
    for (name, message, cause) in [
        ("job", "pod was preempted", Cause::Released),
        ("job", "Node Evicted.", Cause::Released),
        ("job", "实例被抢占", Cause::Released),
        ("job", "机器已回收", Cause::Released),
        ("job", "the preemptedness of unevicted pods", Cause::Unexplained),
        ("evicted-test", "PyTorchJob evicted-test failed", Cause::Unexplained),
        ("evicted-test", "PyTorchJob evicted-test was evicted", Cause::Released),
        ("pre", "pod was preempted", Cause::Released),
        ("e", "pod was evicted", Cause::Released),
    ] {
        let mut cloud = golden("failed_exit137");
        cloud.stamp.job = Some(name.to_owned());
        cloud.display_name = format!("{name}.skk3f9qz-aaaaaaaaaa");
        cloud.reason_message = message.to_owned();
        assert_eq!(verdict(&cloud, None).cause, cause, "{name}: {message}");
    }
    // The display name as a whole, and a state's name, say nothing.
    let mut cloud = golden("failed_exit137");
    cloud.display_name = "preempted".to_owned();
    cloud.reason_message = "PyTorchJob preempted failed".to_owned();
    assert_eq!(verdict(&cloud, None).cause, Cause::Unexplained);
    let mut cloud = golden("failed_no_resources.INFERRED");
    cloud.stamp.job = Some("unauthorized".to_owned());
    cloud.reason_message = "job unauthorized failed".to_owned();
    assert!(!verdict(&cloud, None).look.hopeless, "its own name");
}

#[test]
fn rule_1_any_end_after_a_new_whole_checkpoint_is_resubmitted_at_once() {
    for change in ["failed_user_exit1", "failed_exit137", "failed_evicted.INFERRED"] {
        let mut desk = Desk::running();
        desk.end(HOUR, as_in(change)).submit(whole(&[100]));
        assert_eq!((desk.from(), desk.job.progress.ends), (Some(100), 0), "{change}");
    }
}

#[test]
fn rule_1_without_checkpoints_thirty_minutes_of_running_are_progress() {
    for (ran, at_once) in [(30 * MINUTE, true), (29 * MINUTE, false)] {
        let mut desk = Desk::without_checkpoints();
        desk.feed(Input::Tick).submit(none()).live().end(ran, exits(1));
        assert_eq!(desk.sends(), at_once, "{ran:?}");
        assert_eq!(desk.backoff(), (!at_once).then_some(10), "{ran:?}");
        // Nobody can know that it would repeat work: it goes on all the same.
        if !at_once {
            desk.wait_out();
            assert!(desk.sends());
        }
    }
    // An answer without a time of its end does not make it short.
    let mut desk = Desk::without_checkpoints();
    desk.feed(Input::Tick).submit(none()).live().end(HOUR, |cloud| {
        cloud.finished = None;
        cloud.running = None;
    });
    assert!(desk.sends(), "{:?}", desk.causes);
}

#[test]
fn rule_2_five_ends_alike_in_a_row_are_a_crash_loop() {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    for end in 1..=5u32 {
        // Within 10 % of each other.
        desk.round(Duration::from_secs(600 + u64::from(end)), exits(1));
        assert_eq!(desk.result().is_some(), end == 5, "end {end}");
        if end < 5 {
            assert_eq!(desk.backoff(), Some([10, 20, 40, 80][end as usize - 1]));
            desk.wait_out();
            desk.submit(none());
        }
    }
    assert_eq!(desk.result(), Some(OutcomeKind::Failed));
    assert!(desk.job.result.as_ref().is_some_and(|r| r.why.contains("crash loop: 5 ends")));
}

#[test]
fn rule_2_ends_that_differ_are_no_crash_loop() {
    type Change = fn(u32, &mut CloudJob) -> u64;
    let cases: [(&str, Change, bool); 6] = [
        (
            "other durations",
            |n, c| {
                exits(1)(c);
                100 * u64::from(n)
            },
            false,
        ),
        (
            "other codes",
            |n, c| {
                exits(if n % 2 == 0 { 1 } else { 2 })(c);
                100
            },
            false,
        ),
        (
            "released",
            |_, c| {
                released(c);
                100
            },
            false,
        ),
        (
            "no machine",
            |_, c| {
                as_in("failed_no_resources.INFERRED")(c);
                0
            },
            false,
        ),
        (
            "very short, by the second",
            |n, c| {
                exits(1)(c);
                1 + u64::from(n % 3)
            },
            true,
        ),
        (
            "every second one released",
            |n, c| {
                if n % 2 == 0 {
                    released(c);
                } else {
                    exits(1)(c);
                }
                100
            },
            false,
        ),
    ];
    for (what, change, crash_loop) in cases {
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(none());
        for n in 1..=8 {
            if desk.result().is_some() {
                break;
            }
            let mut probe = desk.cloud(Status::Running);
            let ran = Duration::from_secs(change(n, &mut probe));
            if probe.running.is_some() {
                desk.live();
            } else {
                desk.sent(SendOutcome::Accepted { id: id(n) });
            }
            desk.end(ran, |cloud| {
                change(n, cloud);
            });
            desk.look(none());
            if desk.result().is_none() {
                desk.wait_out();
                desk.submit(none());
            }
        }
        assert_eq!(desk.result().is_some(), crash_loop, "{what}");
    }
}

#[test]
fn rule_2_an_end_without_any_evidence_counts_half() {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    for end in 1..=10 {
        desk.round(MINUTE, |_| {});
        assert_eq!(desk.result().is_some(), end == 10, "end {end}");
        if end < 10 {
            desk.wait_out();
            desk.submit(none());
        }
    }
}

#[test]
fn rule_2_a_person_is_told_at_the_third_and_nothing_is_given_up_before() {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    for (end, alarms) in [(1, 0), (2, 0), (3, 1)] {
        desk.round(30 * HOUR, released);
        let told =
            |e: &&Event| e.word == Word::Alarm && e.text.contains("without a new checkpoint");
        assert_eq!(desk.told.iter().filter(told).count(), alarms, "end {end}");
        assert_eq!(desk.result(), None, "end {end}");
        desk.wait_out();
        desk.submit(none());
    }
    desk.round(30 * HOUR, released);
    assert_eq!(desk.result(), Some(OutcomeKind::Failed));
    assert!(desk.job.result.as_ref().is_some_and(|r| r.why.contains("given up: 4 ends")));
}

#[test]
fn rule_2_back_off_doubles_to_an_hour() {
    let mut desk = Desk::new();
    desk.spec.retry.give_up = 10_000 * HOUR;
    desk.feed(Input::Tick).submit(none());
    let mut delays = Vec::new();
    for _ in 0..11 {
        desk.round(MINUTE, released);
        delays.push(desk.wait_out().as_secs());
        desk.submit(none());
    }
    assert_eq!(delays, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]);
    assert_eq!(desk.result(), None);
}

#[test]
fn rule_2_a_new_whole_checkpoint_starts_every_count_anew() {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    for _ in 0..4 {
        desk.round(MINUTE, exits(1));
        desk.wait_out();
        desk.submit(none());
    }
    desk.live().end(MINUTE, exits(1)).submit(whole(&[10]));
    let progress = &desk.job.progress;
    assert_eq!((progress.ends, progress.alike_halves, progress.since), (0, 0, None));
    // The same whole one again is none.
    desk.live().end(MINUTE, exits(1)).look(whole(&[10]));
    assert_eq!((desk.job.progress.ends, desk.backoff()), (1, Some(10)));
}

#[test]
fn rule_2_time_in_which_nobody_could_look_is_not_time_without_progress() {
    // A first end that this process hears of after a weekend.
    let mut late = Desk::running();
    late.job.progress.ends = 10;
    late.end(MINUTE, |cloud| cloud.finished = cloud.finished.map(|t| t.minus(60 * HOUR)));
    late.look(none());
    assert_eq!((late.result(), late.job.progress.ends), (None, 11));
}

#[test]
fn rule_3_a_permanent_code_before_running_blocks_after_three() {
    let hopeless = |cloud: &mut CloudJob| {
        cloud.running = None;
        cloud.reason_code = "InvalidParameter".to_owned();
        cloud.reason_message = "no such image".to_owned();
    };
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    for end in 1..=3 {
        let no = desk.job.open[0].no;
        desk.sent(SendOutcome::Accepted { id: id(no) });
        desk.end(MINUTE, hopeless).look(none());
        assert_eq!(desk.block().is_some(), end == 3, "end {end}");
        if end < 3 {
            desk.wait_out();
            desk.submit(none());
        }
    }
    assert_eq!((desk.block(), desk.result()), (Some(BlockKind::NeverStarts), None));
    // Once it has run, the same words are no reason to give in.
    let mut ran = golden("failed_user_exit1");
    ran.reason_code = "InvalidParameter".to_owned();
    assert!(!verdict(&ran, None).look.hopeless);
}

#[test]
fn rule_4_an_exit_code_is_the_users_only_if_every_pod_has_one_of_its_own() {
    for (codes, pods, cause) in [
        (&[(1, 8)][..], 8, Cause::UserError),
        (&[(1, 7)], 8, Cause::Unexplained),
        (&[(1, 7), (137, 1)], 8, Cause::Unexplained),
        (&[(143, 8)], 8, Cause::Unexplained),
        (&[(1, 4), (2, 4)], 8, Cause::UserError),
        (&[], 8, Cause::Unexplained),
        (&[(1, u32::MAX), (2, u32::MAX)], 8, Cause::UserError),
    ] {
        let mut cloud = golden("failed_user_exit1");
        cloud.exits =
            codes.iter().map(|(code, pods)| ExitReport { code: *code, pods: *pods }).collect();
        cloud.pod_count = pods;
        assert_eq!(verdict(&cloud, None).cause, cause, "{codes:?} of {pods}");
    }
}

#[test]
fn rule_5_a_stop_that_is_not_ours_is_held_unless_something_known_explains_it() {
    let stopped = |name: &'static str| as_in(name);
    for (name, limit, on_stopped, block) in [
        ("stopped_by_user", None, OnStopped::Hold, true),
        ("stopped_by_user", None, OnStopped::Resume, true),
        ("stopped_by_user", Some(60), OnStopped::Resume, true),
        ("stopped_without_code.INFERRED", None, OnStopped::Hold, true),
        ("stopped_without_code.INFERRED", None, OnStopped::Resume, false),
        ("stopped_without_code.INFERRED", Some(60), OnStopped::Hold, false),
        ("stopped_without_code.INFERRED", Some(90), OnStopped::Hold, true),
    ] {
        let mut desk = Desk::new();
        desk.spec.retry.on_stopped = on_stopped;
        if let Some(minutes) = limit {
            desk.spec.body.insert("JobMaxRunningTimeMinutes".to_owned(), minutes.into());
        }
        desk.feed(Input::Tick).submit(none()).live();
        desk.end(HOUR, stopped(name)).look(whole(&[100]));
        let held = desk.block() == Some(BlockKind::StoppedByOther);
        assert_eq!(held, block, "{name}, limit {limit:?}, {on_stopped:?}");
        assert_eq!(desk.sends(), !block, "{name}, limit {limit:?}, {on_stopped:?}");
        assert_eq!(desk.count(Word::Alarm) > 0, block);
    }
    let mut platform = golden("stopped_without_code.INFERRED");
    platform.reason_code = "JobEvicted".to_owned();
    assert_eq!(verdict(&platform, None).cause, Cause::Released);
}

#[test]
fn rule_5_the_limit_is_the_limit_and_not_any_short_run() {
    for (minutes, ran, cause) in [
        (60, 3600, Cause::TimeLimit),
        (60, 3550, Cause::TimeLimit),
        (60, 3500, Cause::StoppedUnexplained),
        (60, 3700, Cause::StoppedUnexplained),
        (1, 1, Cause::StoppedUnexplained),
        (1, 58, Cause::TimeLimit),
        (2, 70, Cause::StoppedUnexplained),
    ] {
        let cloud = golden("stopped_without_code.INFERRED");
        let desk = Desk::running();
        let ran = Duration::from_secs(ran);
        let found = judge(&cloud, &desk.job.open[0], Ran::once(ran), Some(minutes * MINUTE));
        assert_eq!(found.cause, cause, "limit {minutes} min, ran {ran:?}");
    }
    // What the job or the platform says goes before the stopwatch.
    let hour = Some(Duration::from_secs(3520));
    assert_eq!(verdict(&golden("failed_user_exit1"), hour).cause, Cause::UserError);
    assert_eq!(verdict(&golden("failed_evicted.INFERRED"), hour).cause, Cause::Released);
    assert_eq!(verdict(&golden("failed_exit137"), hour).cause, Cause::TimeLimit);
}

#[test]
fn rule_6_without_progress_a_success_is_a_success() {
    for name in ["succeeded", "succeeded_after_term.INFERRED", "sparse"] {
        let mut desk = Desk::running();
        desk.spec.total_steps = None;
        desk.end(MINUTE, as_in(name));
        assert_eq!(desk.result(), Some(OutcomeKind::Succeeded), "{name}");
    }
}

#[test]
fn rule_6_an_exit_0_within_seconds_that_moved_no_step_is_not_believed_once() {
    let desk = |from: &[u64]| {
        let mut desk = Desk::new();
        desk.spec.total_steps = None;
        desk.feed(Input::Tick).submit(whole(from)).live();
        desk
    };
    let mut exported = whole(&[500]);
    exported.candidates.insert(0, candidate(600, Wholeness::WeightsOnly));
    for (what, from, ran, findings, done) in [
        ("no step moved", [500].as_slice(), MINUTE / 2, whole(&[500]), false),
        ("nothing at all", &[], MINUTE / 2, none(), false),
        ("a new checkpoint", &[500], MINUTE / 2, whole(&[600, 500]), true),
        ("a first checkpoint", &[], MINUTE / 2, whole(&[10]), true),
        ("its weights were exported", &[500], MINUTE / 2, exported, true),
    ] {
        let mut desk = desk(from);
        desk.end(ran, succeeded).look(findings);
        assert_eq!(desk.result() == Some(OutcomeKind::Succeeded), done, "{what}");
        assert_eq!(desk.causes.contains(&Cause::EndedEarly), !done, "{what}");
        assert_eq!((desk.backoff() == Some(10), desk.block()), (!done, None), "{what}");
    }
    // Nothing is looked for where it ran longer, where there is no checkpoint to tell, and where
    // nobody knows how long it ran.
    let mut longer = desk(&[500]);
    assert_eq!(longer.end(MINUTE, succeeded).result(), Some(OutcomeKind::Succeeded));
    let mut without = Desk::without_checkpoints();
    without.feed(Input::Tick).submit(none()).live().end(MINUTE / 2, succeeded);
    assert_eq!(without.result(), Some(OutcomeKind::Succeeded));
    let mut unseen = desk(&[500]);
    if let AttemptState::Live { running, .. } = &mut unseen.job.open[0].state {
        *running = None;
    }
    unseen.end(MINUTE / 2, |cloud| {
        succeeded(cloud);
        cloud.running = None;
    });
    assert_eq!(unseen.result(), Some(OutcomeKind::Succeeded));
    // A finished run that is started again says so a second time.
    let mut finished = desk(&[1000]);
    finished.end(MINUTE / 2, succeeded).look(whole(&[1000])).wait_out();
    finished.submit(whole(&[1000])).live().end(MINUTE / 3, succeeded).look(whole(&[1000]));
    assert_eq!(finished.result(), Some(OutcomeKind::Succeeded));
    assert_eq!(finished.count(Word::Alarm), 1);
}

#[test]
fn rule_6_after_a_restart_in_place_the_last_run_tells_how_soon_an_exit_0_came() {
    for (moved, done) in [(false, false), (true, true)] {
        let mut desk = Desk::new();
        desk.spec.total_steps = None;
        desk.feed(Input::Tick).submit(whole(&[500])).live().wait(HOUR);
        let mut again = desk.cloud(Status::Restarting);
        again.restarts = 1;
        desk.see(again.clone()).wait(MINUTE);
        again.status = Status::Running;
        again.running = Some(desk.now.wall);
        desk.see(again.clone());
        desk.wait(MINUTE / 2);
        succeeded(&mut again);
        again.finished = Some(desk.now.wall);
        desk.see(again).look(whole(if moved { &[600, 500] } else { &[500] }));
        assert_eq!(desk.result() == Some(OutcomeKind::Succeeded), done, "moved: {moved}");
    }
}

#[test]
fn rule_6_with_progress_a_success_has_to_show_its_steps() {
    let mut weights = whole(&[900, 800, 700]);
    weights.candidates.insert(0, candidate(1000, Wholeness::WeightsOnly));
    // A last save right behind a regular one does not make the usual interval small.
    let uneven = whole(&[951, 950, 850, 750, 650]);
    for (what, ran, findings, done) in [
        ("all steps", HOUR, whole(&[1000, 900]), true),
        ("within one interval", HOUR, whole(&[900, 800]), true),
        ("short by more", HOUR, whole(&[800, 700]), false),
        ("only weights reached it", HOUR, weights, true),
        ("no checkpoint at all", HOUR, none(), false),
        ("within 60 s", MINUTE / 2, whole(&[900, 800]), false),
        ("uneven", HOUR, uneven, true),
    ] {
        let mut desk = Desk::running();
        desk.end(ran, succeeded).look(findings);
        assert_eq!(desk.result() == Some(OutcomeKind::Succeeded), done, "{what}");
        assert_eq!(desk.causes.contains(&Cause::EndedEarly), !done, "{what}");
    }
    // No step moved.
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(whole(&[950, 850])).live().end(HOUR, succeeded);
    desk.look(whole(&[950, 850]));
    assert_eq!(desk.result(), None);
}

#[test]
fn rule_6_the_same_exit_0_twice_from_one_resume_point_is_success_with_a_warning() {
    let mut desk = Desk::running();
    // The first one brought new steps: at once again.
    desk.end(HOUR, succeeded).submit(whole(&[500, 400]));
    desk.live().end(HOUR, succeeded).look(whole(&[500, 400]));
    assert_eq!((desk.result(), desk.backoff()), (None, Some(10)));
    desk.wait_out();
    desk.submit(whole(&[500, 400])).live().end(HOUR, succeeded).look(whole(&[500, 400]));
    assert_eq!(desk.result(), Some(OutcomeKind::Succeeded));
    assert_eq!(desk.count(Word::Alarm), 1);
}

#[test]
fn logs_amend_what_the_answer_could_not_explain_and_nothing_else() {
    let base = verdict(&golden("failed_user_exit1"), None);
    let cases: [(&[LogEnd], Option<Cause>); 4] = [
        (&[LogEnd::ByItself(1), LogEnd::FromOutside], Some(Cause::Released)),
        (&[LogEnd::Silent, LogEnd::ByItself(1)], None),
        (&[LogEnd::Silent], None),
        (&[], None),
    ];
    for (pods, cause) in cases {
        assert_eq!(amend(&base, pods).map(|v| v.cause), cause, "{pods:?}");
    }
    let killed = verdict(&golden("failed_exit137"), None);
    let by_itself = amend(&killed, &[LogEnd::ByItself(1); 3]).expect("explained");
    assert_eq!(by_itself.cause, Cause::UserError);
    // Logs may come before or after the judgement: ends are compared by what the answers showed.
    assert!(by_itself.look.alike(&killed.look));
    for name in ["stopped_by_user", "succeeded", "failed_evicted.INFERRED"] {
        assert_eq!(amend(&verdict(&golden(name), None), &[LogEnd::FromOutside]), None, "{name}");
    }
}

#[test]
fn logs_that_come_after_the_judgement_take_an_end_out_of_the_row() {
    let mut desk = Desk::new();
    desk.feed(Input::Tick).submit(none());
    for end in 1..=8 {
        desk.live().end(MINUTE, |cloud| {
            exits(137)(cloud);
            cloud.pods = vec![Pod { id: "p".to_owned(), ..Pod::default() }];
        });
        let logs = desk.effects.iter().find_map(|effect| match effect {
            spotkeeper::core::step::Effect::Logs { ended, .. } => Some(ended.clone()),
            _ => None,
        });
        let ended = logs.expect("logs are read");
        desk.look(none());
        let due = desk.wake_at;
        desk.feed(Input::Logs { ended, pods: vec![LogEnd::FromOutside] });
        assert_eq!((desk.result(), desk.wake_at), (None, due), "end {end}");
        desk.wait_out();
        desk.submit(none());
    }
    assert_eq!((desk.job.tally.releases, desk.job.tally.errors), (8, 0));
}
