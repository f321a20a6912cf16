//! Public complaints that only a process shows: docs/scenarios.md lists them. The others are in
//! tests/cloud/scenarios.

use crate::harness::{JobFile, PATIENCE, World};
use crate::ledger::job_of;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// Time in which a second CreateJob would come: several passes, and the acceptance.
const CHANCES: Duration = Duration::from_secs(4);

/// The row of a job in `ps -o json`; `null` where there is no answer.
fn row(world: &World, name: &str) -> Value {
    let shown = world.cli(&["ps", "-o", "json"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap_or_default();
    let rows = shown["jobs"].as_array().cloned().unwrap_or_default();
    rows.into_iter().find(|row| row["name"] == name).unwrap_or_default()
}

fn wait_phase(world: &mut World, name: &str, phase: &str) {
    world.wait(&format!("{name} is {phase}"), |world| row(world, name)["phase"] == phase);
}

fn wait_killed(world: &mut World) {
    world.wait("the daemon is killed", |world| {
        world.ended().is_some_and(|ended| {
            assert_eq!(ended.signal(), Some(9), "{ended}: {}", world.log());
            true
        })
    });
}

/// "Fake accepts CreateJob then the test kills the daemon with SIGKILL before the response is read.
/// Restart. -> exactly one job exists at the fake; it is adopted; attempt count is 1". With its state
/// and without.
#[test]
fn scenario_01_what_was_accepted_before_a_kill_is_adopted() {
    let mut world = World::new(&["--virtual"]);
    for (number, name) in ["kept", "wiped"].into_iter().enumerate() {
        world.put_faults(&json!([{ "call": "CreateJob", "delay": "30s", "times": 1 }]));
        world.put_job(name, &JobFile::new(name, 1_000));
        world.start(&[]);
        world.wait("it is created", |world| world.ledger().count("create") == number + 1);
        world.kill();
        world.put_faults(&json!([]));
        if name == "wiped" {
            world.wipe();
        }
        world.start(&[]);
        wait_phase(&mut world, name, "RUNNING");
        if name == "kept" {
            world.kill();
        }
    }
    wait_phase(&mut world, "kept", "RUNNING");
    std::thread::sleep(CHANCES);
    for name in ["kept", "wiped"] {
        assert_eq!(row(&world, name)["attempts"], 1, "{name}");
        assert_eq!(world.ledger().created(name), 1, "{name}");
    }
    world.ledger().assert_never_two(job_of);
    assert_eq!((world.ledger().count("create"), world.ledger().count("stop_asked")), (2, 0));
}

/// "Kill at each of: before call, during call, after response, after fsync, after first poll. -> one
/// job for each point". Random times and more points: tests/daemon/crash.rs.
#[test]
fn scenario_02_a_kill_at_any_point_of_a_submission_leaves_one_job() {
    let mut world = World::new(&["--virtual"]);
    let points =
        ["intent durable", "committed", "before send", "replied", "journal synced", "applied"];
    let mut names: Vec<String> = Vec::new();
    for (number, point) in points.into_iter().enumerate() {
        let name = format!("job{number}");
        world.put_job(&name, &JobFile::new(&name, 1_000));
        world.start(&[("SPOTKEEPER_CRASH_AT", &format!("{point}:1"))]);
        wait_killed(&mut world);
        names.push(name);
    }
    // During the call.
    world.put_faults(&json!([{ "call": "CreateJob", "delay": "30s" }]));
    world.put_job("during", &JobFile::new("during", 1_000));
    world.start(&[]);
    world.wait("it is created", |world| world.ledger().created("during") == 1);
    world.kill();
    world.put_faults(&json!([]));
    names.push("during".to_owned());
    // After the first poll.
    world.put_job("after", &JobFile::new("after", 1_000));
    world.start(&[]);
    names.push("after".to_owned());
    for name in &names {
        wait_phase(&mut world, name, "RUNNING");
    }
    world.kill();
    world.start(&[]);
    for name in &names {
        wait_phase(&mut world, name, "RUNNING");
    }
    std::thread::sleep(CHANCES);
    for name in &names {
        assert_eq!(world.ledger().created(name), 1, "{name}");
        assert_eq!(row(&world, name)["attempts"], 1, "{name}");
    }
    world.ledger().assert_never_two(job_of);
    assert_eq!(world.ledger().count("stop_asked"), 0);
}

/// "(a) kill -9 while healthy -> job untouched. (b) kill after the terminal write -> stays.
/// (c) cancel while the daemon is down -> applied at start": written down while it is down, and once it
/// was taken but the cloud had not heard of it.
#[test]
fn scenario_24_a_kill_touches_no_job_and_loses_no_result_and_no_cancel() {
    let mut world = World::new(&["--virtual"]);
    for name in ["healthy", "cancelled", "early"] {
        world.put_job(name, &JobFile::new(name, 1_000));
    }
    // Nobody has ever run here: there is no state that it could be written beside.
    assert_eq!(world.cli(&["cancel", "-y", "healthy"]).status.code(), Some(7));
    world.start(&[]);
    for name in ["healthy", "cancelled", "early"] {
        wait_phase(&mut world, name, "RUNNING");
    }
    world.kill();
    world.put_job("new", &JobFile::new("new", 1_000));
    for name in ["early", "new"] {
        let down = world.cli(&["cancel", "-y", name, "-o", "json"]);
        assert_eq!(down.status.code(), Some(0), "{}", String::from_utf8_lossy(&down.stderr));
        let told: Value = serde_json::from_slice(&down.stdout).expect("JSON");
        assert_eq!((&told["done"], &told["written_down"]["jobs"]), (&json!([]), &json!([name])));
        let text = told["written_down"]["text"].as_str().expect("a text");
        assert!(text.contains("written down; applied when the daemon starts"), "{text}");
    }
    // Without a terminal nobody is asked, and without a name nothing is cancelled.
    assert_eq!(world.cli(&["cancel", "healthy"]).status.code(), Some(2));
    // Another socket is another daemon's: nobody knows its state.
    let other = world.cli(&["cancel", "-y", "healthy", "--socket", "elsewhere.sock"]);
    assert_eq!(other.status.code(), Some(7));
    std::thread::sleep(CHANCES / 4);
    assert_eq!((world.ledger().count("create"), world.ledger().count("end")), (3, 0));
    world.start(&[]);
    for name in ["early", "new"] {
        wait_phase(&mut world, name, "CANCELLED");
    }
    wait_phase(&mut world, "healthy", "RUNNING");
    std::thread::sleep(CHANCES / 4);
    assert_eq!((world.ledger().count("create"), world.ledger().count("end")), (3, 1));
    // While it holds the state and does not answer, nothing is written that nobody would take.
    std::fs::remove_file(world.path("api.sock")).expect("its socket");
    let held = world.cli(&["cancel", "-y", "healthy"]);
    assert_eq!(held.status.code(), Some(7));
    let said = String::from_utf8_lossy(&held.stderr).into_owned();
    assert!(said.contains("a daemon holds the state"), "{said}");
    world.kill();

    // Taken, and killed before the cloud heard of it.
    world.put_faults(&json!([{ "call": "StopJob", "status": 503 }]));
    world.start(&[]);
    wait_phase(&mut world, "cancelled", "RUNNING");
    let taken = world.cli(&["cancel", "-y", "cancelled"]);
    assert_eq!(taken.status.code(), Some(0), "{}", String::from_utf8_lossy(&taken.stderr));
    world.kill();
    assert_eq!(world.ledger().count("end"), 1);
    world.put_faults(&json!([]));
    // Applied at the start; after the terminal write it stays.
    for _ in 0..2 {
        world.start(&[]);
        wait_phase(&mut world, "cancelled", "CANCELLED");
        wait_phase(&mut world, "healthy", "RUNNING");
        std::thread::sleep(CHANCES / 4);
        assert_eq!((world.ledger().count("create"), world.ledger().count("end")), (3, 2));
        world.kill();
    }
    assert_eq!(world.ledger().running().len(), 1);
}

/// "SIGTERM the daemon with 20 jobs. -> it exits within the systemd stop time, stops **no** job, and
/// says so; `cancel` on the other hand polls until gone". The daemon awaits the ends of what was
/// cancelled; until then it is STOPPING.
#[test]
fn scenario_25_a_signal_stops_no_job_and_a_cancel_waits_until_it_is_gone() {
    const JOBS: usize = 20;
    let mut world = World::new(&["--virtual", "--phase-delay", "1s"]);
    for number in 0..JOBS {
        let name = format!("job{number}");
        world.put_job(&name, &JobFile::new(&name, 1_000));
    }
    world.start(&[]);
    world.wait("all run", |world| world.ledger().running().len() == JOBS);
    let start = Instant::now();
    world.signal(Signal::TERM);
    let mut status = None;
    world.wait("it ends", |world| {
        status = world.ended();
        status.is_some()
    });
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    assert_eq!(status.and_then(|status| status.code()), Some(0), "{}", world.log());
    let log = world.log();
    assert!(log.contains("no job is stopped"), "{log}");
    std::thread::sleep(CHANCES / 4);
    let ledger = world.ledger();
    assert_eq!((ledger.count("stop_asked"), ledger.count("end")), (0, 0));
    assert_eq!(ledger.running().len(), JOBS);

    world.start(&[]);
    wait_phase(&mut world, "job0", "RUNNING");
    let taken = world.cli(&["cancel", "-y", "job0"]);
    assert_eq!(taken.status.code(), Some(0), "{}", String::from_utf8_lossy(&taken.stderr));
    let start = Instant::now();
    loop {
        let phase = row(&world, "job0")["phase"].clone();
        let ended = world.ledger().count("end");
        match phase.as_str() {
            Some("CANCELLED") => {
                assert_eq!(ended, 1, "only once it is gone");
                break;
            }
            phase => assert_eq!(phase, Some("STOPPING")),
        }
        assert!(start.elapsed() < PATIENCE, "{}", world.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(world.ledger().running().len(), JOBS - 1);
}
