//! A trainer that goes by its tracker: rewritten first where a person allowed it, else a person is
//! told what to run.

use super::desk::{Desk, HOUR, as_in, cloud, none, point, whole};
use spotkeeper::core::event::Word;
use spotkeeper::core::job::{BlockKind, Recovery};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Act, Effect, Input};
use spotkeeper::model::checkpoint::{
    Findings, Location, Look, Passed, PassedOver, Pin, ResumeFrom, Scheme, Tracker, TrackerRewrite,
    TrackerText, TrackerWrite,
};
use spotkeeper::model::cloud::Status;
use spotkeeper::model::ids::JobKey;
use spotkeeper::model::spec::{CheckpointSpec, FirstStart};
use std::time::Duration;

const KEY: &str = "latest_checkpointed_iteration.txt";

fn rewrite(found: Option<&str>) -> TrackerRewrite {
    let found = found.map(|text| TrackerText { size: text.len() as u64, text: text.into() });
    TrackerRewrite { key: KEY.into(), found, wanted: "100".into() }
}

/// Step 100 is whole, and the tracker says something else.
fn led_astray(pin: Pin, found: Option<&str>) -> Findings {
    let mut findings = whole(&[100]);
    let tracker = Tracker::Differs(Box::new(rewrite(found)));
    let argument = "--load {root} --ckpt-step {step}".to_owned();
    findings.chosen =
        Some(spotkeeper::model::checkpoint::ResumePoint { pin, tracker, argument, ..point(100) });
    findings
}

fn led_there() -> Findings {
    let mut findings = whole(&[100]);
    findings.chosen.as_mut().expect("one").pin = Pin::OwnChoice;
    findings
}

fn checkpoint(desk: &mut Desk) -> &mut CheckpointSpec {
    desk.spec.checkpoint.as_mut().expect("checkpoints")
}

/// An attempt ended; a look is under way, and its trainer is told the folder alone.
fn ended(repair: bool) -> Desk {
    let mut desk = Desk::running();
    checkpoint(&mut desk).resume = Some("--load {root}".to_owned());
    checkpoint(&mut desk).repair_tracker = repair;
    desk.end(HOUR, as_in("failed_exit137"));
    desk
}

fn rewrites(desk: &Desk) -> usize {
    let is_one = |effect: &&Effect| matches!(effect, Effect::RewriteTracker(_));
    desk.effects.iter().filter(is_one).count()
}

fn looked(findings: Findings) -> Input {
    Input::Looked(Look::Done(findings))
}

fn failed(needs_person: bool) -> Input {
    Input::TrackerWritten(TrackerWrite::Failed { why: "403 AccessDenied".into(), needs_person })
}

#[test]
fn the_tracker_is_rewritten_and_looked_at_before_anything_is_sent() {
    for (pin, found) in [
        (Pin::Argument, Some("120")),
        (Pin::Argument, None),
        (Pin::TrackerRewrite, Some("release")),
        (Pin::TrackerRewrite, Some("")),
    ] {
        let mut desk = ended(true);
        desk.look(led_astray(pin, found));
        assert_eq!((rewrites(&desk), desk.sends()), (1, false), "{pin:?} {found:?}");
        assert!(desk.effects.contains(&Effect::RewriteTracker(rewrite(found))));
        assert_eq!(desk.phase(), Phase::Recovering);
        assert!(desk.holds().iter().any(|hold| hold.to_string().contains(KEY)));
        let old = desk.told.iter().rev().find(|event| event.word == Word::Checkpoint);
        let old = &old.expect("it is told").data;
        assert_eq!(old["old"].as_str(), found, "{old}");
        assert_eq!((old["new"].as_str(), old["tracker"].as_str()), (Some("100"), Some(KEY)));
        // Nothing else is decided while it is written.
        desk.wait(HOUR);
        assert!(desk.effects.is_empty(), "{:?}", desk.effects);
        desk.feed(Input::TrackerWritten(TrackerWrite::Done));
        assert_eq!((desk.effects.clone(), desk.sends()), (vec![Effect::Look], false));
        desk.submit(led_there());
        assert_eq!((desk.from(), desk.job.progress.repairs), (Some(100), 0));
    }
}

#[test]
fn an_argument_of_the_persons_own_that_names_the_checkpoint_needs_no_tracker() {
    let mut desk = ended(true);
    checkpoint(&mut desk).resume = Some("--load {root} --ckpt-step {step}".to_owned());
    desk.submit(led_astray(Pin::Argument, Some("120")));
    // Unless nothing overrides the tracker.
    let mut desk = ended(true);
    checkpoint(&mut desk).resume = Some("--load {root} --ckpt-step {step}".to_owned());
    desk.look(led_astray(Pin::TrackerRewrite, Some("release")));
    assert_eq!((rewrites(&desk), desk.sends()), (1, false));
}

#[test]
fn without_the_key_a_person_is_told_the_command_and_only_where_the_tracker_decides() {
    let mut desk = ended(false);
    desk.look(led_astray(Pin::Argument, Some("120")));
    assert_eq!((desk.block(), desk.sends()), (Some(BlockKind::TrackerRewrite), false));
    let why = desk.job.block.as_ref().expect("a block").why.clone();
    for part in [
        "says `120`",
        "repair_tracker = true",
        "printf %s '100'",
        "ossutil cp -f \"$f\" 'oss://bucket/run/latest_checkpointed_iteration.txt'",
        "spotkeeper retry job",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    // The format's own argument names the step.
    let mut desk = ended(false);
    checkpoint(&mut desk).resume = None;
    desk.submit(led_astray(Pin::Argument, Some("120")));
    for (command, blocked) in [
        ("torchrun train.py --load /mnt/run", true),
        ("torchrun train.py --load=/mnt/run", true),
        ("torchrun train.py --loader x", false),
        ("torchrun train.py --load /mnt/run --ckpt-step $SPOTKEEPER_RESUME_STEP", false),
        ("bash train.sh", false),
    ] {
        let mut desk = ended(false);
        checkpoint(&mut desk).resume = Some(String::new());
        desk.spec.body.insert("UserCommand".into(), command.into());
        desk.look(led_astray(Pin::Argument, Some("120")));
        assert_eq!(desk.block().is_some(), blocked, "{command}");
        assert_eq!(desk.sends(), !blocked, "{command}");
    }
}

#[test]
fn the_command_is_quoted_and_never_cut_short() {
    let said = |scheme, bucket: &str, prefix: &str| {
        let mut desk = ended(false);
        let location = Location { scheme, bucket: bucket.into(), prefix: prefix.into() };
        checkpoint(&mut desk).location = location;
        desk.look(led_astray(Pin::TrackerRewrite, Some("x")));
        desk.job.block.expect("a block").why
    };
    let folder = said(Scheme::File, "", "srv/it's");
    let wanted = r"printf %s '100' > '/srv/it'\''s/latest_checkpointed_iteration.txt' &&";
    assert!(folder.contains(wanted), "{folder}");
    let s3 = said(Scheme::S3, "b", "");
    assert!(s3.contains("aws s3 cp - 's3://b/latest_checkpointed_iteration.txt'"), "{s3}");
    let long = said(Scheme::Oss, "b", &"p".repeat(600));
    assert!(!long.contains("ossutil") && long.contains("repair_tracker = true"), "{long}");
}

#[test]
fn a_write_that_fails_holds_the_job_shows_why_and_is_tried_again() {
    for needs_person in [true, false] {
        let mut desk = ended(true);
        let mut delays = Vec::new();
        for _ in 0..4 {
            desk.look(led_astray(Pin::Argument, Some("120")));
            assert_eq!((rewrites(&desk), desk.sends()), (1, false));
            desk.feed(failed(needs_person));
            assert!(!desk.sends());
            let holds = desk.holds();
            assert!(holds.iter().any(|h| h.to_string().contains("AccessDenied")), "{holds:?}");
            assert_eq!(desk.phase(), Phase::Backoff);
            delays.push(desk.wait_out().as_secs());
        }
        let wanted = if needs_person { [2, 4, 8, 16] } else { [20, 20, 20, 20] };
        assert_eq!(delays, wanted, "{needs_person}");
        assert_eq!((desk.count(Word::Held), desk.count(Word::Alarm)), (3, 1));
        // It was written after all.
        desk.submit(led_there());
    }
}

#[test]
fn a_tracker_that_somebody_else_writes_is_not_written_over() {
    let mut desk = ended(true);
    desk.look(led_astray(Pin::Argument, Some("120")));
    let now = Some(TrackerText { size: 3, text: "140".into() });
    desk.feed(Input::TrackerWritten(TrackerWrite::Changed { now }));
    let holds = desk.holds();
    assert!(holds.iter().any(|h| h.to_string().contains("says `140` since")), "{holds:?}");
    desk.wait_out();
    desk.look(none());
    assert_eq!(rewrites(&desk), 0);
    // One that never keeps what is written waits longer each time, and sends nothing.
    let mut desk = ended(true);
    for repair in 1..=5 {
        desk.look(led_astray(Pin::Argument, Some("120")));
        assert_eq!((rewrites(&desk), desk.sends()), (1, false), "{repair}");
        desk.feed(Input::TrackerWritten(TrackerWrite::Done));
        if repair > 1 {
            assert!(matches!(desk.job.recovery, Recovery::NotRepaired { .. }), "{repair}");
            desk.wait_out();
        }
    }
    assert_eq!(desk.count(Word::Alarm), 1);
}

#[test]
fn a_new_process_looks_before_it_writes_again() {
    let mut desk = ended(true);
    desk.look(led_astray(Pin::Argument, Some("120")));
    desk.feed(Input::Started);
    assert_eq!(desk.effects, [Effect::Look]);
    // An outcome that an earlier process asked for decides nothing.
    desk.feed(failed(true));
    assert!(matches!(desk.job.recovery, Recovery::Look { asked: true }));
    desk.feed(looked(led_astray(Pin::Argument, Some("120"))));
    assert_eq!(rewrites(&desk), 1);
    desk.feed(Input::Started);
    desk.submit(led_there());
}

#[test]
fn nothing_is_written_where_nothing_could_be_sent() {
    let other = JobKey { name: desk_name(), run: 1 };
    let holds: [fn(&mut Desk, &JobKey); 5] = [
        |desk, other| desk.gate.lease = Some(other.clone()),
        |desk, _| desk.gate.slot = false,
        |desk, _| desk.gate.verified = false,
        |desk, _| desk.gate.stopping = true,
        |desk, _| {
            desk.act(Act::Pause);
        },
    ];
    for hold in holds {
        let mut desk = ended(true);
        hold(&mut desk, &other);
        desk.feed(looked(led_astray(Pin::Argument, Some("120"))));
        assert_eq!(rewrites(&desk), 0);
        desk.wait(HOUR);
        assert_eq!((rewrites(&desk), desk.job.is_repairing()), (0, false));
    }
}

fn desk_name() -> spotkeeper::model::ids::JobName {
    spotkeeper::model::ids::JobName::new("other").expect("a name")
}

#[test]
fn a_cancel_and_a_new_spec_wait_for_a_write_under_way_and_it_holds_the_prefix() {
    let mut desk = ended(true);
    desk.look(led_astray(Pin::Argument, Some("120")));
    assert!(desk.job.holds_lease());
    desk.act(Act::Cancel);
    assert_eq!((desk.result(), desk.phase()), (None, Phase::Stopping));
    desk.feed(failed(false));
    assert!(desk.result().is_some());

    let mut desk = ended(true);
    desk.look(led_astray(Pin::Argument, Some("120")));
    desk.feed(Input::Spec(spotkeeper::model::ids::Digest("1".repeat(64))));
    assert!(desk.job.is_repairing());
    desk.feed(Input::TrackerWritten(TrackerWrite::Done));
    assert_eq!(desk.effects, [Effect::Look]);
}

/// The tracker is being written, and step 120, which it leads to now, is there as well.
fn being_written() -> Desk {
    let mut desk = ended(true);
    desk.look(led_astray(Pin::Argument, Some("120")));
    assert!(desk.job.is_repairing());
    desk
}

#[test]
fn a_start_that_a_person_asks_for_waits_for_a_write_under_way() {
    for from in [ResumeFrom::Step(120), ResumeFrom::Fresh] {
        let mut desk = being_written();
        desk.act(Act::RetryFrom(from));
        // Written behind the look, it would lead an attempt from elsewhere to step 100.
        assert!(desk.job.is_repairing() && desk.effects.is_empty(), "{from}: {:?}", desk.effects);
        desk.wait(HOUR);
        assert!(desk.effects.is_empty(), "{from}");
        desk.feed(Input::TrackerWritten(TrackerWrite::Done));
        assert_eq!(desk.effects, [Effect::Look], "{from}");
    }
}

#[test]
fn nothing_overtakes_a_write_that_may_still_arrive() {
    let acts: [fn(&mut Desk); 3] = [
        |desk| {
            desk.act(Act::RetryFrom(ResumeFrom::Step(120)));
        },
        |desk| {
            desk.act(Act::Cancel).act(Act::Retry);
        },
        |desk| {
            desk.feed(Input::Spec(spotkeeper::model::ids::Digest("1".repeat(64))));
            desk.feed(Input::Tick);
        },
    ];
    for act in acts {
        let mut desk = being_written();
        desk.feed(failed(false));
        desk.wait(Duration::from_secs(5));
        act(&mut desk);
        assert!(desk.effects.is_empty(), "{:?}", desk.effects);
        desk.wait_out();
        assert_eq!(desk.effects, [Effect::Look]);
    }
    // A person does not wait for longer than that.
    let mut desk = being_written();
    desk.job.progress.repairs = 20;
    desk.feed(failed(true)).act(Act::RetryFrom(ResumeFrom::Fresh));
    assert_eq!(desk.wait_out().as_secs(), 20);
    assert_eq!(desk.effects, [Effect::Look]);
}

#[test]
fn an_attempt_that_comes_back_during_a_write_does_not_cut_it_short() {
    let mut desk = being_written();
    let (no, mark) = (1, desk.past.keys().next().expect("an attempt that ended").clone());
    desk.see(cloud(no, &mark, Status::Running));
    assert_eq!(desk.job.open.len(), 1);
    desk.end(HOUR, as_in("failed_exit137"));
    assert!(desk.job.is_repairing() && desk.job.open.is_empty());
    assert!(!desk.effects.contains(&Effect::Look), "{:?}", desk.effects);
    desk.feed(Input::TrackerWritten(TrackerWrite::Done));
    assert_eq!(desk.effects, [Effect::Look]);
}

#[test]
fn a_start_at_zero_that_a_tracker_would_lead_elsewhere_is_a_persons() {
    let there = |path: &str| PassedOver { path: path.into(), step: None, why: Passed::Earlier };
    for (command, blocked) in [
        ("torchrun train.py --load /mnt/run --save /mnt/run", true),
        ("torchrun train.py --load=/mnt/run/x", true),
        ("torchrun train.py --load \"$CKPT\"", true),
        ("python -m verl trainer.resume_mode=auto", true),
        ("python -m verl trainer.resume_mode=disable", false),
        ("torchrun train.py --load /mnt/pretrained --save /mnt/run", false),
        ("torchrun train.py --save /mnt/run", false),
    ] {
        // A person asked for it, after an attempt ended.
        let mut desk = ended(false);
        desk.spec.body.insert("UserCommand".into(), command.into());
        desk.act(Act::RetryFrom(ResumeFrom::Fresh));
        desk.look(Findings { passed_over: vec![there("iter_0000100")], ..none() });
        let wanted = blocked.then_some(BlockKind::TrackerRewrite);
        assert_eq!((desk.block(), desk.sends()), (wanted, !blocked), "{command}");
        if blocked {
            let why = &desk.job.block.as_ref().expect("a block").why;
            assert!(why.contains("iter_0000100") && why.contains("take `"), "{why}");
            // Once it is moved away.
            desk.act(Act::Retry).submit(none());
        }
        assert_eq!(desk.from(), None);
        // Or the job file did, at the first start.
        let mut desk = Desk::new();
        checkpoint(&mut desk).first_start = FirstStart::Fresh;
        desk.spec.body.insert("UserCommand".into(), command.into());
        desk.feed(Input::Tick).look(led_there());
        assert_eq!((desk.block(), desk.sends()), (wanted, !blocked), "{command}");
    }
}
