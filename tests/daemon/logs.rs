//! `logs`: what a trainer prints, over its attempts, each line once.

use crate::harness::{JobFile, World};
use crate::schema::check;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

fn log(world: &World, words: &[&str]) -> Value {
    let out = world.cli(&[&["logs", "train", "-o", "json"], words].concat());
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    let read = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {told}"));
    check("logs", &read);
    read
}

#[test]
fn a_followed_log_has_each_line_of_each_attempt_once() {
    let mut world = World::new(&["--dialect", "evicted"]);
    world.put_job("train", &JobFile::new("train", 120));
    world.start(&[]);
    world.wait_saved("train");
    let follower = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
        .args(["logs", "train", "-f", "-o", "jsonl", "--config"])
        .arg(world.path("spotkeeper.toml"))
        .env_remove("SPOTKEEPER_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    world.release_all();
    world.wait("it goes on", |world| world.trainer("train").starts().len() == 2);
    world.wait_done("train");
    let out = follower.wait_with_output().expect("it ends with the job");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{told}");
    assert!(told.contains("--- attempt 2"), "{told}");
    let text = String::from_utf8(out.stdout).expect("UTF-8");
    let shown: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for no in 1..=2_u32 {
        let whole = log(&world, &["--attempt", &no.to_string()]);
        let of_attempt = shown.iter().filter(|one| one["attempt"] == no);
        let lines: Vec<&Value> = of_attempt.map(|one| &one["line"]).collect();
        assert!(!lines.is_empty());
        assert_eq!(json!(lines), whole["lines"], "attempt {no}: {told}");
        assert_eq!(whole["is_open"], false);
    }
    assert!(log(&world, &[])["from_step"].is_u64(), "the newest is the second");
    // Kept of the end, once the cloud has nothing to tell.
    world.wait("its answers are kept", |world| {
        world.cli(&["evidence", "train", "--into", "-"]).status.success()
    });
    let tail = world.cli(&["logs", "train", "--tail", "2", "-q"]);
    assert_eq!(String::from_utf8_lossy(&tail.stdout).lines().count(), 2);
    for (words, code) in [
        (&["logs", "none"][..], 4),
        (&["logs", "train", "--rank", "9"], 1),
        (&["logs", "train", "--attempt", "9"], 1),
        (&["logs", "train", "-f", "-o", "json"], 2),
    ] {
        assert_eq!(world.cli(words).status.code(), Some(code), "{words:?}");
    }
}
