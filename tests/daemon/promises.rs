//! What the daemon promises about job files, first starts, signals and panics.

use crate::harness::{ACCEPTANCE_TIME, JobFile, PATIENCE, World};
use crate::ledger::job_of;
use crate::slow_bucket::SlowBucket;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// Time in which a daemon that could do something wrong has had its chances: some passes over
/// ListJobs and the calm that job files are given.
const CHANCES: Duration = Duration::from_secs(2);

fn chances() {
    std::thread::sleep(CHANCES);
}

/// All jobs of a world are one writer.
fn anyone(_: &str) -> String {
    String::new()
}

#[test]
fn scenario_81_a_renamed_job_file_changes_nothing() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 60);
    world.put_job("first", &job);
    world.start(&[]);
    world.wait_saved("train");
    std::fs::rename(world.path("jobs.d/first.toml"), world.path("jobs.d/second.toml"))
        .expect("renamed");
    chances();
    world.release_all();
    world.wait_done("train");
    world.ledger().assert_never_two(anyone);
    world.trainer("train").assert_nothing_lost(60);
}

/// A name that comes from the file's own: renaming it makes another job on the same prefix.
#[test]
fn scenario_82_a_job_that_is_renamed_with_its_file_waits_for_the_old_one() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 60);
    world.put_job("train", &job);
    world.start(&[]);
    world.wait_saved("train");
    let text = world.job_text(&job).replace("name = \"train\"\n", "");
    std::fs::write(world.path("jobs.d/other.toml"), text).expect("written");
    std::fs::remove_file(world.path("jobs.d/train.toml")).expect("removed");
    world.wait_log("the job file is gone");
    world.release_all();
    world.wait("the old job has reached its last step", |world| world.trainer("train").is_done());
    chances();
    world.ledger().assert_never_two(anyone);
}

#[test]
fn a_copied_job_file_is_an_error_in_both_and_nothing_is_submitted() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 20);
    let same_prefix = JobFile { name: "copy".to_owned(), ..job.clone() };
    for copy in [&job, &same_prefix] {
        world.put_job("a", &job);
        world.put_job("b", copy);
        world.start(&[]);
        world.wait("both files are named", |world| {
            let log = world.log();
            let errors = log.lines().filter(|line| line.contains("job file not taken"));
            let errors: Vec<&str> = errors.collect();
            ["a.toml", "b.toml"].iter().all(|file| errors.iter().any(|line| line.contains(file)))
        });
        chances();
        assert_eq!(world.ledger().count("create"), 0, "{}", world.log());
        world.kill();
        std::fs::remove_file(world.path("daemon.log")).expect("removed");
    }
    world.start(&[]);
    world.wait_log("job file not taken");
    std::fs::remove_file(world.path("jobs.d/b.toml")).expect("removed");
    world.wait_done("train");
    assert_eq!(world.ledger().count("create"), 1);
}

#[test]
fn a_copy_beside_a_running_job_never_makes_a_second_writer() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 60);
    world.put_job("train", &job);
    world.start(&[]);
    world.wait_saved("train");
    world.put_job("copy", &JobFile { name: "copy".to_owned(), ..job.clone() });
    world.wait_log("job file not taken");
    world.release_all();
    world.wait_done("train");
    chances();
    world.ledger().assert_never_two(anyone);
    assert_eq!(world.ledger().created("copy"), 0);
    world.trainer("train").assert_nothing_lost(60);
}

/// A running job whose file comes only after its state was lost and the cloud was looked through:
/// it is taken up, not made again.
#[test]
fn a_job_file_that_comes_late_finds_its_running_attempt() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 400);
    world.put_job("train", &job);
    world.start(&[]);
    world.wait_saved("train");
    world.kill();
    world.wipe();
    std::fs::remove_file(world.path("jobs.d/train.toml")).expect("removed");
    world.start(&[]);
    world.wait_log("belongs to no job on record");
    // Long enough for the new store to owe nothing any more.
    std::thread::sleep(ACCEPTANCE_TIME + CHANCES);
    world.put_job("train", &job);
    world.wait_log("is ours and was not on record");
    chances();
    assert_eq!(world.ledger().count("create"), 1, "{}", world.log());
    world.release_all();
    world.wait_done("train");
    world.ledger().assert_never_two(anyone);
    world.trainer("train").assert_nothing_lost(400);
}

#[test]
fn a_first_start_goes_on_from_the_newest_whole_checkpoint() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 30);
    world.train_by_hand(&job, 15);
    // The newest one is torn, although marker and tracker say that it is done.
    let torn = world.path("bucket/train/iter_0000015/mp_rank_01/model_optim_rng.pt");
    std::fs::File::options()
        .write(true)
        .open(torn)
        .and_then(|file| file.set_len(1_000))
        .expect("cut");
    world.put_job("train", &job);
    world.start(&[]);
    world.wait_done("train");
    assert_eq!(world.trainer("train").starts(), [10]);
    assert_eq!(world.ledger().count("create"), 1);
}

#[test]
fn a_wrong_prefix_never_starts_from_zero_in_silence() {
    let mut world = World::new(&[]);
    let wrong = |name: &str, expect_within| JobFile {
        looks: format!("bucket/elsewhere-{name}"),
        expect_within,
        ..JobFile::new(name, 1_000)
    };
    world.put_job("patient", &wrong("patient", "2h"));
    world.put_job("strict", &wrong("strict", "1s"));
    world.start(&[]);
    world.wait_saved("patient");
    world.wait_saved("strict");
    // The server tells times in whole seconds: run long enough to count.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(world.release_all(), 2);
    world.wait_log("there is no whole checkpoint under");
    world.wait_log("BLOCKED");
    world
        .wait("the patient one starts again", |world| world.trainer("patient").starts().len() == 2);
    let log = world.log();
    let alarm = |job: &str, text: &str| {
        log.lines().any(|line| {
            ["ERROR", "ALARM", text].iter().all(|part| line.contains(part)) && line.contains(job)
        })
    };
    assert!(alarm("patient", "starts at zero again"), "{log}");
    assert!(alarm("strict", "is `checkpoint.path` right?"), "{log}");
    chances();
    assert_eq!(world.ledger().created("strict"), 1, "a blocked job is not submitted");
    world.ledger().assert_never_two(job_of);
}

#[test]
fn why_tells_the_refusal_of_a_job_of_which_nothing_was_ever_created() {
    let mut world = World::new(&[]);
    let refused = r#"{"Code":"InvalidParameter","Message":"no such image"}"#;
    world.put_faults(&json!([{ "call": "CreateJob", "status": 400, "body": refused }]));
    world.put_job("train", &JobFile::new("train", 1_000));
    world.start(&[]);
    world.wait_log("REFUSED");
    world.wait("it is told", |world| {
        let why = String::from_utf8(world.cli(&["why", "train"]).stdout).expect("UTF-8");
        why.contains("NEVER_CREATED") && why.contains("no such image")
    });
}

#[test]
fn term_ends_the_daemon_and_stops_no_job() {
    let mut world = World::new(&[]);
    world.put_job("train", &JobFile::new("train", 1_000));
    world.start(&[]);
    world.wait_saved("train");
    let start = Instant::now();
    world.signal(Signal::TERM);
    let status = wait_end(&mut world);
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(status.code(), Some(0), "{}", world.log());
    chances();
    let ledger = world.ledger();
    assert_eq!((ledger.count("stop_asked"), ledger.count("end")), (0, 0));
    assert_eq!(ledger.running().len(), 1);
}

/// A CreateJob without an answer holds up a clean end; the first signal waits for it, within
/// limits, and the second one does not.
#[test]
fn scenario_59_a_second_signal_ends_it_at_once_and_the_first_within_ten_seconds() {
    for second in [None, Some(Signal::INT)] {
        let mut world = World::new(&[]);
        world.put_faults(&json!([{ "call": "CreateJob", "delay": "60s", "times": 1 }]));
        world.put_job("train", &JobFile::new("train", 1_000));
        world.start(&[]);
        world.wait("the job is created", |world| world.ledger().count("create") == 1);
        let start = Instant::now();
        world.signal(Signal::TERM);
        world.wait_log("asked to stop");
        if let Some(second) = second {
            assert!(world.ended().is_none(), "it waits for its call: {}", world.log());
            // Until it is gone the state is its own: no other one ticks beside it.
            assert_eq!(world.command().status().expect("it runs").code(), Some(8));
            world.signal(second);
        }
        let status = wait_end(&mut world);
        let took = start.elapsed();
        let (limit, code) = if second.is_some() { (5, 130) } else { (10, 0) };
        assert!(took < Duration::from_secs(limit), "{took:?}");
        assert_eq!(status.code(), Some(code), "{status}");
        assert_eq!(world.ledger().count("stop_asked"), 0);
        // What it could not hear of is found by the next one, and is not made twice.
        world.start(&[]);
        world.wait_log("was created");
        chances();
        assert_eq!(world.ledger().count("create"), 1);
    }
}

fn wait_end(world: &mut World) -> std::process::ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = world.ended() {
            assert_eq!(status.signal(), None, "{}", world.log());
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "{}", world.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn scenario_57_a_second_daemon_on_the_same_state_is_refused() {
    let mut world = World::new(&[]);
    world.put_job("train", &JobFile::new("train", 20));
    world.start(&[]);
    world.wait("the state is locked", |world| world.path("state/lock").exists());
    world.wait_log("ACCEPTED");
    // By whatever path, from wherever, whoever's home it is.
    std::os::unix::fs::symlink(world.path("state"), world.path("other")).expect("a link");
    let text = std::fs::read_to_string(world.path("spotkeeper.toml")).expect("a daemon file");
    let text = text.replace("\"state\"", "\"other\"").replace("api.sock", "other.sock");
    std::fs::write(world.path("other.toml"), text).expect("written");
    for file in ["spotkeeper.toml", "other.toml"] {
        for home in ["/", "/nowhere"] {
            let mut second = world.command_by(file, "second.log");
            second.env("HOME", home).env("TMPDIR", "/tmp").current_dir("/");
            let second = second.status().expect("it runs");
            assert_eq!(second.code(), Some(8), "{file} {home}: {}", world.log());
        }
    }
    world.wait_done("train");
    assert_eq!(world.ledger().count("create"), 1);
}

#[test]
fn a_job_whose_step_panics_does_not_take_the_others_down() {
    let mut world = World::new(&[]);
    for name in ["bad", "good"] {
        world.put_job(name, &JobFile::new(name, 40));
    }
    world.start(&[("SPOTKEEPER_PANIC_JOB", "bad")]);
    world.wait_saved("good");
    world.release_all();
    world.wait_done("good");
    world.trainer("good").assert_nothing_lost(40);
    let log = world.log();
    assert!(log.lines().any(|line| line.contains("ALARM") && line.contains("panicked")), "{log}");
    assert_eq!(world.ledger().created("bad"), 0);
    // The next start finds it unharmed.
    world.kill();
    world.start(&[]);
    world.wait_done("bad");
    world.trainer("bad").assert_nothing_lost(40);
}

#[test]
fn scenario_82_a_job_that_is_edited_while_it_runs_is_left_running_and_changes_at_the_next_attempt()
{
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 80);
    world.put_job("train", &job);
    world.start(&[]);
    world.wait_saved("train");
    let edited = JobFile { more: "Envs = { EDITED = \"yes\" }".to_owned(), ..job };
    world.put_job("train", &edited);
    world.wait_log("SPEC_CHANGED");
    chances();
    assert_eq!(world.ledger().count("end"), 0, "it was left running");
    assert!(!world.ledger().last_request().contains("EDITED"));
    world.release_all();
    world.wait_done("train");
    let sent: Value = serde_json::from_str(&world.ledger().last_request()).expect("JSON");
    assert_eq!(sent["Envs"]["EDITED"], "yes");
    world.ledger().assert_never_two(anyone);
    world.trainer("train").assert_nothing_lost(80);
}

/// Fields that no version of the API has, at every level: all of them are sent as written.
#[test]
fn invented_keys_and_exact_numbers_reach_the_request() {
    let mut world = World::new(&[]);
    let ten = |line: fn(usize) -> String, between: &str| {
        (0..10).map(line).collect::<Vec<_>>().join(between)
    };
    let top = ten(|n| format!("Invented{n} = {{ Deep = [{n}, {{ er = \"x\" }}] }}"), "\n");
    let settings = ten(|n| format!("Unheard{n} = {n}.5"), ", ");
    let spec = ten(|n| format!("Unknown{n} = {{ a = [[{n}]] }}"), "\n");
    let more = format!("{top}\nExact = 0.011\nSettings = {{ {settings} }}");
    let job = JobFile { more, ..JobFile::new("train", 5) };
    std::fs::create_dir_all(world.path(&job.looks)).expect("a folder");
    let text = world.job_text(&job).replace("PodCount = 1", &format!("PodCount = 1\n{spec}"));
    std::fs::write(world.path("jobs.d/train.toml"), &text).expect("written");
    world.start(&[]);
    world.wait_done("train");
    let sent = world.ledger().last_request();
    let body: Value = serde_json::from_str(&sent).expect("JSON");
    for n in 0..10 {
        assert_eq!(body[format!("Invented{n}")], json!({ "Deep": [n, { "er": "x" }] }), "{sent}");
        let unknown = &body["JobSpecs"][0][format!("Unknown{n}")];
        assert_eq!(*unknown, json!({ "a": [[n]] }), "{sent}");
        assert!(sent.contains(&format!("\"Unheard{n}\":{n}.5")), "{sent}");
    }
    assert!(sent.contains("\"Exact\":0.011"), "{sent}");
    assert!(sent.contains("\"SpotDiscountLimit\":0.4"), "{sent}");
    // The same job again, with a bid in money.
    let priced = text.replace("discount_limit = 0.4", "price_limit_per_minute = \"0.011\"");
    let priced = priced.replace("name = \"train\"", "name = \"train\"\nrun = 2");
    std::fs::write(world.path("jobs.d/train.toml"), priced).expect("written");
    world.wait("the second run is sent", |world| world.ledger().count("create") == 2);
    let sent = world.ledger().last_request();
    assert!(sent.contains("\"SpotPriceLimit\":0.011"), "{sent}");
}

/// A job of an earlier run, found with a new store, holds the next run; taking the job file away
/// and putting it back between two passes does not make it forgotten.
#[test]
fn a_job_file_that_goes_and_comes_back_still_waits_for_what_runs() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 10_000);
    world.put_job("train", &job);
    world.start(&[]);
    world.wait_saved("train");
    world.kill();
    world.wipe();
    let daemon_file = world.path("spotkeeper.toml");
    let slow = std::fs::read_to_string(&daemon_file).expect("a daemon file");
    std::fs::write(daemon_file, slow.replace("200ms", "4s")).expect("written");
    let text = world.job_text(&job).replace("name = ", "run = 2\nname = ");
    let file = world.path("jobs.d/train.toml");
    std::fs::write(&file, &text).expect("written");
    world.start(&[]);
    world.wait_log("it belongs to another run of this job");
    // Nothing else holds it once the new store has had its passes.
    std::thread::sleep(ACCEPTANCE_TIME + Duration::from_secs(13));
    for _ in 0..3 {
        std::fs::remove_file(&file).expect("removed");
        std::thread::sleep(Duration::from_millis(700));
        std::fs::write(&file, &text).expect("written");
        std::thread::sleep(Duration::from_millis(1_300));
    }
    assert_eq!(world.ledger().count("create"), 1, "{}", world.log());
    // It is followed to its end.
    world.release_all();
    world.wait("the next run is submitted", |world| world.ledger().count("create") == 2);
    world.ledger().assert_never_two(anyone);
}

/// A job that lost its file and one that was moved to its prefix end at one time: each holds the
/// prefix, and neither may wait for the other for ever.
#[test]
fn two_jobs_that_come_to_share_a_prefix_take_turns() {
    let mut world = World::new(&[]);
    let (first, second) = (JobFile::new("first", 200), JobFile::new("second", 200));
    world.put_job("first", &first);
    world.put_job("second", &second);
    world.start(&[]);
    world.wait_saved("first");
    world.wait_saved("second");
    std::fs::remove_file(world.path("jobs.d/first.toml")).expect("removed");
    let moved = JobFile { saves: first.saves.clone(), looks: first.looks.clone(), ..second };
    world.put_job("second", &moved);
    world.wait_log("the job file is gone");
    world.wait_log("the job file changed");
    assert_eq!(world.release_all(), 2);
    world.wait_done("second");
    world.ledger().assert_never_two(job_of);
}

/// The old prefix answers late and is empty. That says nothing about the new one.
#[test]
fn a_look_at_the_old_prefix_says_nothing_about_the_new_one() {
    let bucket = SlowBucket::new();
    let mut world = World::new(&[]);
    let daemon_file = world.path("spotkeeper.toml");
    let text = std::fs::read_to_string(&daemon_file).expect("a daemon file");
    let text = format!("{text}storage = {{ endpoint = \"{}\" }}\n", bucket.url());
    std::fs::write(daemon_file, text).expect("written");
    let job = JobFile::new("train", 30);
    let file_url = format!("url = \"file://{}\"", world.path(&job.looks).display());
    let put = |world: &World, prefix: &str| {
        let url = format!("path = \"/mnt/{prefix}\"\nurl = \"oss://bucket/{prefix}/\"");
        let text = world.job_text(&job).replace(&file_url, &url);
        std::fs::write(world.path("jobs.d/train.toml"), text).expect("written");
    };
    put(&world, "old");
    world.start(&[]);
    world.wait("the old prefix is looked into", |_| bucket.was_asked("old"));
    put(&world, "new");
    world.wait("the new prefix is looked into", |_| bucket.was_asked("new"));
    bucket.answer("old");
    chances();
    assert_eq!(world.ledger().count("create"), 0, "{}", world.log());
    bucket.answer("new");
    world.wait("the job is created", |world| world.ledger().count("create") == 1);
}
