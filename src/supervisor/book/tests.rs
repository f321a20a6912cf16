mod open;
mod past;

use super::*;
use crate::core::forget::LOST_LOOKED_FOR;
use crate::core::job::{Attempt, AttemptState, Outcome, OutcomeKind, Recovery, Start};
use crate::core::step::{Input, Pass};
use crate::core::terms::{ResumeTerms, Terms};
use crate::core::verdict::{Cause, EndLook, Told, Verdict};
use crate::model::checkpoint::{Location, Scheme, TrackerRewrite};
use crate::model::hang::HangPolicy;
use crate::model::ids::JobName;
use crate::model::spec::{CredentialsRef, FirstStart, OnStopped, Retry};
use crate::model::time::WallTime;
use crate::supervisor::work::Work;
use std::collections::VecDeque;

const MINUTE: Duration = Duration::from_secs(60);

fn place() -> Place {
    Place {
        region: "cn-hangzhou".into(),
        workspace: "1".into(),
        endpoint: "https://pai-dlc.cn-hangzhou.aliyuncs.com".into(),
        storage: None,
        credentials: CredentialsRef::Environment,
    }
}

fn target(name: &str, acceptance: Duration) -> (TargetName, Target) {
    let name = TargetName::new(name).expect("a name");
    let place = place();
    (name.clone(), Target { name, place, acceptance, max_parallel: 1, plain_http: false })
}

fn open_job(acceptance: Option<Duration>) -> Job {
    let key = JobKey { name: JobName::new("job").expect("a name"), run: 1 };
    let mut job = Job::new(key, Digest("0".repeat(64)));
    let resume = ResumeTerms::TrainersChoice;
    job.open.push(Attempt {
        no: 1,
        mark: Mark::from_random([1; 10]),
        spec: job.spec.clone(),
        target: TargetName::new("gone").expect("a name"),
        place: place(),
        start: Start::Fresh,
        bid: None,
        intended: WallTime(0),
        state: AttemptState::Intended,
        stop: None,
        asked: crate::core::stops::Asked::default(),
        terms: acceptance.map(|acceptance| Terms {
            acceptance,
            time_limit: None,
            resume,
            placement: 0,
        }),
    });
    job
}

fn id(no: AttemptNo) -> CloudId {
    CloudId::new(format!("dlc{no}")).expect("an id")
}

/// An attempt of a job that ended at 0.
fn ended(job: &Job, no: AttemptNo, cause: Cause) -> EndedAttempt {
    let no_byte = u8::try_from(no).expect("few");
    // A letter of a mark has five bits of its byte.
    let mut bytes = [no_byte; 10];
    bytes[0] = no_byte / 32;
    let mark = Mark::from_random(bytes);
    let attempt = Attempt { no, mark, ..open_job(None).open[0].clone() };
    let look = EndLook {
        ran: false,
        exits: Vec::new(),
        duration: Duration::ZERO,
        told: Told::Nothing,
        hopeless: false,
    };
    let (evidence, rule) = (Vec::new(), job.key.to_string());
    let verdict = Verdict { cause, evidence, rule, look };
    EndedAttempt { attempt, id: Some(id(no)), ended: WallTime(0), ran: MINUTE, verdict }
}

#[test]
fn a_job_is_not_forgotten_while_one_that_was_lost_may_come_back() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let mut job = open_job(None);
    job.open.clear();
    let (why, at) = (String::new(), WallTime(0));
    job.result = Some(Outcome { kind: OutcomeKind::Cancelled, why, at });
    for (cause, after, is_kept) in [
        (Cause::Lost, LOST_LOOKED_FOR.saturating_sub(MINUTE), true),
        (Cause::Lost, LOST_LOOKED_FOR, false),
        (Cause::Released, MINUTE, false),
    ] {
        let mut book = Book::new(owner.clone(), started, BTreeMap::new());
        book.jobs.insert(job.key.clone(), job.clone());
        book.record_ended(&job.key, ended(&job, 1, cause));
        book.record_ended(&job.key, ended(&job, 2, Cause::Released));
        let why = book.cannot_forget("job", WallTime(0).plus(after));
        assert_eq!(why.is_some(), is_kept, "{cause:?} {after:?}: {why:?}");
    }
}

/// A job that was submitted before, with nothing open, under a spec with this prefix.
fn idle_job(book: &mut Book, name: &str, prefix: &str) -> Job {
    let key = JobKey { name: JobName::new(name).expect("a name"), run: 1 };
    let location = serde_json::json!({ "scheme": "Oss", "bucket": "b", "prefix": prefix });
    let spec = serde_json::json!({
        "key": key, "target": "t", "launcher": true, "body": {}, "secret_envs": {}, "spot": null,
        "checkpoint": {
            "location": location, "mount": "/mnt", "format": "auto", "custom": null,
            "resume": null, "resume_command": null, "first_start": "Resume",
            "expect_within": { "secs": 1, "nanos": 0 }, "settle": { "secs": 1, "nanos": 0 },
            "settle_interval": { "secs": 1, "nanos": 0 }, "ranks": null,
        },
        "total_steps": null,
        "retry": { "alike": 5, "give_up": { "secs": 1, "nanos": 0 }, "on_stopped": "Hold" },
        "list_price_per_hour": null,
    });
    let spec: JobSpec = serde_json::from_value(spec).expect("a spec of an earlier program");
    let mut job = Job::new(key, Digest::of(name.as_bytes()));
    job.next_attempt = 2;
    book.specs.insert(job.spec.clone(), std::sync::Arc::new(spec));
    book.jobs.insert(job.key.clone(), job.clone());
    job
}

#[test]
fn of_two_idle_jobs_on_one_prefix_one_goes_on_unless_the_other_writes_its_tracker() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let mut book = Book::new(owner, started, BTreeMap::new());
    let first = idle_job(&mut book, "a", "run");
    let mut second = idle_job(&mut book, "b", "run/x");
    let against = |book: &Book, job: &Job| {
        let spec = std::sync::Arc::clone(&book.specs[&job.spec]);
        book.gate(job, &spec, &BTreeMap::new()).lease
    };
    assert_eq!(against(&book, &first), None);
    assert_eq!(against(&book, &second), Some(first.key.clone()));
    let rewrite = TrackerRewrite { key: "latest".into(), found: None, wanted: "1".into() };
    second.recovery = Recovery::Repairing { rewrite };
    book.jobs.insert(second.key.clone(), second.clone());
    assert_eq!(against(&book, &first), Some(second.key));
}

#[test]
fn beside_a_job_writes_whoever_has_an_attempt_open_on_its_prefix() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let mut book = Book::new(owner, started, BTreeMap::new());
    let first = idle_job(&mut book, "a", "run");
    let mut second = idle_job(&mut book, "b", "run/x");
    let mut third = idle_job(&mut book, "c", "other");
    let writer = |book: &Book, staged: &BTreeMap<JobKey, Job>| {
        let spec = std::sync::Arc::clone(&book.specs[&first.spec]);
        book.writer_beside(&first, &spec, staged)
    };
    assert_eq!(writer(&book, &BTreeMap::new()), None, "an idle one holds, and does not write");
    for job in [&mut second, &mut third] {
        job.open = open_job(None).open;
        job.open[0].spec = job.spec.clone();
    }
    book.jobs.insert(third.key.clone(), third);
    assert_eq!(writer(&book, &BTreeMap::new()), None, "another prefix");
    let staged = BTreeMap::from([(second.key.clone(), second.clone())]);
    assert_eq!(writer(&book, &staged), Some(second.key), "of the same turn");
}

#[test]
fn a_store_that_was_loaded_anew_takes_no_mark_of_its_own_for_another_daemons() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let mut before = Book::new(owner.clone(), started, BTreeMap::new());
    let job = open_job(None);
    let end = |no: AttemptNo| ended(&job, no, Cause::Released);
    let kept = u32::try_from(ATTEMPTS_KEPT).expect("few");
    for no in 1..=kept + 2 {
        before.record_ended(&job.key, end(no));
    }
    before.let_go(id(900), None);
    // The store has the last ones, and one of the others as open again.
    let mut book = Book::new(owner, started, BTreeMap::new());
    for no in 3..=kept + 2 {
        book.record_ended(&job.key, end(no));
    }
    let mut again = job.clone();
    again.open = vec![end(2).attempt];
    book.jobs.insert(job.key.clone(), again);
    book.remember_past_of(&mut before);
    assert_eq!(book.on_record(&id(1)), Some((job.key.clone(), end(1).attempt.mark)));
    assert_ne!(book.past_of(&job.key, &end(1).attempt.mark), Past::Stranger);
    assert_eq!(book.past_of(&job.key, &end(2).attempt.mark), Past::Stranger, "it is open");
    assert!(book.let_go.contains_key(&id(900)));
}

#[test]
fn a_pass_from_before_the_records_were_loaded_is_not_believed() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let now = Now { wall: WallTime(9), boot: BootTime(9) };
    let mut book = Book::new(owner, now, BTreeMap::new());
    for (started, works) in [(8, 0), (9, 1), (10, 1)] {
        let (started, place) = (BootTime(started), place());
        let pass = Pass { place, started, complete: true, same_caller: true, server: None };
        let (jobs, missing) = (Vec::new(), Vec::new());
        let swept = crate::supervisor::work::Swept { pass, jobs, missing, owner_seen: true };
        let mut pending = std::collections::VecDeque::new();
        book.take_pass(swept, now, &mut pending);
        assert_eq!(pending.len(), works, "{started:?}");
    }
}

#[test]
fn acceptance_is_the_longest_that_anybody_was_promised() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    for (targets, open, minutes) in [
        (&[][..], None, 15),
        (&[][..], Some(None), 15),
        (&[][..], Some(Some(40)), 40),
        (&[][..], Some(Some(2)), 2),
        (&[5][..], Some(Some(40)), 40),
        (&[50][..], Some(Some(40)), 50),
        (&[5, 50][..], None, 50),
    ] {
        let targets = targets.iter().enumerate();
        let targets = targets.map(|(n, m)| target(&format!("t{n}"), *m * MINUTE)).collect();
        let mut book = Book::new(owner.clone(), started, targets);
        if let Some(promised) = open {
            let job = open_job(promised.map(|minutes: u32| minutes * MINUTE));
            book.jobs.insert(job.key.clone(), job);
        }
        assert_eq!(book.acceptance(&place()), minutes * MINUTE, "{open:?}, {minutes}");
    }
}

#[test]
fn a_job_that_may_submit_within_one_step_is_told_what_holds_it() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let targets = BTreeMap::from([target("gone", MINUTE)]);
    let mut book = Book::new(owner, started, targets);
    let open = open_job(None);
    let (target, run) = (open.open[0].target.clone(), 2);
    let mut over = Job::new(JobKey { run, ..open.key.clone() }, open.spec.clone());
    let at = WallTime(0);
    let why = String::new();
    over.result = Some(Outcome { kind: OutcomeKind::Failed, why, at });
    book.jobs.insert(open.key.clone(), open.clone());
    let spec = JobSpec {
        key: over.key.clone(),
        target,
        launcher: true,
        body: serde_json::Map::new(),
        secret_envs: BTreeMap::new(),
        spot: None,
        checkpoint: None,
        total_steps: None,
        retry: Retry { alike: 5, give_up: MINUTE, on_stopped: OnStopped::Hold },
        list_price_per_hour: None,
        hang: None,
        waiting: crate::model::waiting::Waiting::default(),
        placements: Vec::new(),
    };
    // A retry of it may write an intent in the same step.
    let gate = book.gate(&over, &spec, &BTreeMap::new());
    assert_eq!((gate.slot, gate.lease), (false, Some(open.key.clone())));
    // So may the end of an attempt of its own, whose place is not taken by itself.
    let gate = book.gate(&open, &spec, &BTreeMap::new());
    assert_eq!((gate.slot, gate.lease), (true, None));
    let mut other = open_job(None);
    other.key.name = JobName::new("other").expect("a name");
    book.jobs.insert(other.key.clone(), other);
    assert!(!book.gate(&open, &spec, &BTreeMap::new()).slot);
    // Nor is one with checkpoints stopped for the next one's sake where that would be held.
    let mut spec = JobSpec { checkpoint: Some(checkpoint()), ..spec };
    assert!(book.gate(&open, &spec, &BTreeMap::new()).slot, "nothing stops it by itself");
    spec.hang = Some(HangPolicy { log_silence: None, no_checkpoint: None, then: Vec::new() });
    assert!(!book.gate(&open, &spec, &BTreeMap::new()).slot);
}

fn checkpoint() -> CheckpointSpec {
    CheckpointSpec {
        location: Location {
            scheme: Scheme::Oss,
            bucket: "bucket".to_owned(),
            prefix: "run".to_owned(),
        },
        mount: "/mnt/run".to_owned(),
        format: "custom".to_owned(),
        custom: None,
        resume: None,
        resume_command: None,
        first_start: FirstStart::Resume,
        expect_within: MINUTE,
        settle: MINUTE,
        settle_interval: MINUTE,
        ranks: None,
        fence: false,
        repair_tracker: false,
        parts: Vec::new(),
    }
}

#[test]
fn one_that_runs_is_woken_by_the_first_complete_pass_of_a_process() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let mut book = Book::new(owner, started, BTreeMap::new());
    let job = open_job(None);
    book.jobs.insert(job.key.clone(), job);
    let mut pass = |complete, at| {
        let pass = Pass {
            place: place(),
            started: BootTime(at),
            complete,
            same_caller: true,
            server: None,
        };
        let mut pending = VecDeque::new();
        book.passed(&pass, WallTime(0), &mut pending);
        pending.iter().filter(|work| matches!(work, Work::Input(_, Input::Tick))).count()
    };
    assert_eq!([pass(false, 1), pass(true, 2), pass(true, 3)], [0, 1, 0]);
}

#[test]
fn nothing_is_submitted_while_an_attempt_may_be_open_at_another_placement() {
    use crate::model::placement::Placement;
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let mut book = Book::new(owner, started, BTreeMap::from([target("there", MINUTE)]));
    let mut job = idle_job(&mut book, "a", "run");
    let mut spec = JobSpec::clone(&book.specs[&job.spec]);
    let there = TargetName::new("there").expect("a name");
    spec.placements = vec![Placement { target: Some(there), ..Placement::default() }];
    book.specs.insert(job.spec.clone(), Arc::new(spec));
    let hold = |book: &Book, job: &Job| {
        let spec = book.spec_of(job).expect("a spec");
        book.gate(job, &spec, &BTreeMap::new()).elsewhere
    };
    assert_eq!(hold(&book, &job), Some(Hold::NotVerifiedAt("there".to_owned())));
    job.offer.placement = 1;
    assert_eq!(hold(&book, &job), None, "its own target has a hold of its own");
    job.offer.placement = 0;
    let pass = Pass {
        place: place(),
        started: BootTime(1),
        complete: true,
        same_caller: true,
        server: None,
    };
    book.places.entry(place()).or_default().passed(&pass, MINUTE, started);
    assert_eq!(hold(&book, &job), None);
    book.new_store = true;
    book.places.entry(place()).or_default().note_owner_seen();
    assert!(matches!(hold(&book, &job), Some(Hold::NewStore(_))), "one may be on its way there");
}

#[test]
fn a_placement_is_gone_on_to_only_where_it_could_be_submitted_to() {
    use crate::model::placement::Placement;
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    let mut book = Book::new(owner, started, BTreeMap::new());
    let mut job = idle_job(&mut book, "a", "run");
    let placed = |name: &str| Placement {
        target: Some(TargetName::new(name).expect("a name")),
        ..Placement::default()
    };
    let mut spec = JobSpec::clone(&book.specs[&job.spec]);
    spec.placements = vec![placed("there"), placed("gone")];
    book.specs.insert(job.spec.clone(), Arc::new(spec));
    let hold = |book: &Book, job: &Job| {
        let spec = book.spec_of(job).expect("a spec");
        book.gate(job, &spec, &BTreeMap::new()).next_place
    };
    assert_eq!(hold(&book, &job), Some(Hold::NoTarget("there".to_owned())));
    book.targets.extend([target("there", MINUTE)]);
    assert_eq!(hold(&book, &job), Some(Hold::NotVerified));
    let pass = Pass {
        place: place(),
        started: BootTime(1),
        complete: true,
        same_caller: true,
        server: None,
    };
    book.places.entry(place()).or_default().passed(&pass, MINUTE, started);
    assert_eq!(hold(&book, &job), None);
    let mut other = open_job(None);
    other.open[0].target = TargetName::new("there").expect("a name");
    book.jobs.insert(other.key.clone(), other);
    assert_eq!(hold(&book, &job), Some(Hold::MaxParallel));
    // Every decision reads the spec of the placement that was reached.
    job.offer.placement = 1;
    assert_eq!(book.spec_of(&job).expect("a spec").target.as_str(), "there");
    assert_eq!(hold(&book, &job), Some(Hold::NoTarget("gone".to_owned())));
    job.offer.placement = 2;
    assert_eq!(hold(&book, &job), None, "there is no other");
}
