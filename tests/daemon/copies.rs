//! A state that was copied while its daemon lives: the one on the copy submits nothing.

use crate::harness::{ACCEPTANCE_TIME, JobFile, PATIENCE, World};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// Time in which a daemon that could do something wrong has had its chances.
const CHANCES: Duration = Duration::from_secs(2);

/// A daemon on a copy of a world's state.
struct OnCopy(Child);

impl Drop for OnCopy {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            // What the living daemon has removed meanwhile is not part of the copy.
            std::fs::copy(entry.path(), target).ok();
        }
    }
}

fn copy_state(world: &World) {
    copy_folder(&world.path("state"), &world.path("copied"));
    let file = std::fs::read_to_string(world.path("spotkeeper.toml")).expect("a daemon file");
    let file = file.replace("\"state\"", "\"copied\"").replace("api.sock", "copied.sock");
    std::fs::write(world.path("copied.toml"), file).expect("written");
}

fn start_on_copy(world: &World) -> OnCopy {
    let mut command = world.command_by("copied.toml", "copied.log");
    OnCopy(command.spawn().expect("it starts"))
}

fn wait_in(world: &World, log: &str, what: &str) {
    let start = Instant::now();
    let text = || std::fs::read_to_string(world.path(log)).unwrap_or_default();
    while !text().contains(what) {
        assert!(start.elapsed() < PATIENCE, "waited in vain for `{what}` in {log}:\n{}", text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn claim(world: &World) {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
        .args(["state", "claim", "--config"])
        .arg(world.path("copied.toml"))
        .output()
        .expect("it runs");
    assert!(out.status.success(), "{out:?}");
}

#[test]
fn scenario_57_a_daemon_on_a_copy_submits_nothing_until_a_person_says_that_the_original_is_off() {
    let mut world = World::new(&[]);
    world.put_job("train", &JobFile::new("train", 150));
    world.start(&[]);
    world.wait_saved("train");
    copy_state(&world);
    let copy = start_on_copy(&world);
    wait_in(&world, "copied.log", "this state may be in use elsewhere");
    // Longer than a new store waits.
    std::thread::sleep(ACCEPTANCE_TIME + CHANCES);
    world.release_all();
    world.wait("the original has gone on", |world| world.ledger().count("create") == 2);
    std::thread::sleep(CHANCES);
    world.ledger().assert_never_two(|_| String::new());
    // The original is gone for good, and the copy still holds.
    world.kill();
    world.release_all();
    std::thread::sleep(ACCEPTANCE_TIME + CHANCES);
    assert_eq!(world.ledger().count("create"), 2);
    drop(copy);
    claim(&world);
    let _copy = start_on_copy(&world);
    world.wait_done("train");
    world.ledger().assert_never_two(|_| String::new());
    world.trainer("train").assert_nothing_lost(150);
}

/// A machine that was set back to an older snapshot of its disk: the folder and its file `origin` are
/// the very same, so only the cloud knows better than the state.
#[test]
fn a_state_that_was_rolled_back_in_its_place_takes_up_what_it_forgot() {
    let mut world = World::new(&[]);
    world.put_job("train", &JobFile::new("train", 300));
    world.start(&[]);
    world.wait_saved("train");
    world.kill();
    let (state, older) = (world.path("state"), world.path("older"));
    copy_folder(&state, &older);
    world.start(&[]);
    assert_eq!(world.release_all(), 1);
    world.wait("the second attempt trains", |world| {
        let trainer = world.trainer("train");
        trainer.starts().len() == 2 && trainer.saved_since_start()
    });
    world.kill();
    std::fs::remove_file(older.join("origin")).expect("it was there");
    for entry in std::fs::read_dir(&state).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            std::fs::remove_dir_all(path).expect("removed");
        } else if !path.ends_with("origin") {
            std::fs::remove_file(path).expect("removed");
        }
    }
    copy_folder(&older, &state);
    world.start(&[]);
    world.wait_log("is ours and was not on record");
    world.release_all();
    world.wait("it goes on", |world| world.ledger().count("create") == 3);
    world.wait_done("train");
    assert_eq!(world.ledger().count("create"), 3);
    world.ledger().assert_never_two(|_| String::new());
    world.trainer("train").assert_nothing_lost(300);
    assert_eq!(world.ledger().count("stop_asked"), 0);
}

/// The word of a person was wrong: what follows cannot be undone, but it is seen and it stops.
#[test]
fn two_that_each_believe_to_be_the_only_one_stop_at_the_first_sign_of_the_other() {
    let mut world = World::new(&[]);
    world.put_job("train", &JobFile::new("train", 400));
    world.start(&[]);
    world.wait_saved("train");
    copy_state(&world);
    claim(&world);
    let copy = start_on_copy(&world);
    wait_in(&world, "copied.log", "running");
    // Either may be new for so long.
    std::thread::sleep(Duration::from_secs(11) + ACCEPTANCE_TIME);
    world.release_all();
    let sign = "another daemon uses this owner id";
    // Whichever sent first does not see a stranger.
    let is_in = |world: &World, log: &str| {
        std::fs::read_to_string(world.path(log)).unwrap_or_default().contains(sign)
    };
    world.wait("one of them sees the other", |world| {
        is_in(world, "copied.log") || is_in(world, "daemon.log")
    });
    std::thread::sleep(CHANCES);
    let sent = world.ledger().count("create");
    assert!((2..=3).contains(&sent), "{sent}");
    if is_in(&world, "copied.log") {
        world.kill();
    } else {
        drop(copy);
    }
    world.wait("everything of it is over", |world| {
        world.release_all();
        world.ledger().open().is_empty()
    });
    std::thread::sleep(CHANCES);
    assert_eq!(world.ledger().count("create"), sent, "one that knows of the other holds");
}
