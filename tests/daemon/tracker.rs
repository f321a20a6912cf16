//! A job whose trainer goes by `latest_checkpointed_iteration.txt` alone, as Megatron does without
//! `--ckpt-step`, and whose tracker names a checkpoint that was cut.

use crate::harness::{JobFile, World};
use std::path::PathBuf;
use std::process::Command;

const STEPS: u64 = 20;
const TRACKER: &str = "latest_checkpointed_iteration.txt";

/// Saves steps 5 and 10, cuts 10, and leaves the tracker at it. Answers where the tracker is.
pub(crate) fn cut_newest(world: &World, job: &JobFile) -> PathBuf {
    world.train_by_hand(job, 10);
    let saves = world.path(&job.saves);
    let mut files = std::fs::read_dir(saves.join("iter_0000010")).expect("a checkpoint");
    let rank = files.find_map(|entry| Some(entry.ok()?.path()).filter(|path| path.is_dir()));
    std::fs::remove_dir_all(rank.expect("a rank")).expect("cut");
    let tracker = saves.join(TRACKER);
    assert_eq!(std::fs::read_to_string(&tracker).expect("a tracker"), "10");
    tracker
}

/// Puts the job, whose trainer goes by the tracker.
pub(crate) fn put(world: &World, job: &JobFile, repair: bool) {
    let saves = world.path(&job.saves);
    let saves = saves.display();
    let trainer = format!(
        "UserCommand = \"\"\"\nn=$(cat {saves}/{TRACKER} 2>/dev/null); set --\n\
         if test -n \"$n\"; then set -- --load {saves} --ckpt-step \"$n\"; fi\n: {{resume}}\n"
    );
    let text = world
        .job_text(job)
        .replace("{resume}", "\"$@\"")
        .replace("UserCommand = \"\"\"\n", &trainer)
        .replace("--load {root} --ckpt-step {step}", "--load {root}")
        .replace("ranks = 2", &format!("ranks = 2\nrepair_tracker = {repair}"));
    world.put_text(&job.name, job, &text);
}

fn out(world: &World, words: &[&str]) -> String {
    let out = world.cli(words);
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

#[test]
fn a_tracker_that_names_a_cut_checkpoint_is_rewritten_and_a_kill_in_between_loses_nothing() {
    for crash in [None, Some("before tracker:1"), Some("tracker written:1")] {
        let mut world = World::new(&[]);
        let job = JobFile::new("train", STEPS);
        let tracker = cut_newest(&world, &job);
        put(&world, &job, true);
        if let Some(point) = crash {
            world.start(&[("SPOTKEEPER_CRASH_AT", point)]);
            world.wait("it is killed", |world| world.ended().is_some());
            assert_eq!(world.ledger().count("create"), 0, "{point}");
            let wanted = if point.starts_with("before") { "10" } else { "5" };
            assert_eq!(std::fs::read_to_string(&tracker).expect("one"), wanted, "{point}");
        }
        world.start(&[]);
        world.wait_done("train");
        assert_eq!(world.trainer("train").starts(), [5], "{crash:?}: {}", world.log());
        assert_eq!(world.ledger().count("create"), 1, "{crash:?}");
        let events = out(&world, &["events", "train", "-o", "jsonl"]);
        let rewritten = events.lines().find(|line| line.contains("rewrites the tracker"));
        let rewritten: serde_json::Value =
            serde_json::from_str(rewritten.expect("an event")).expect("JSON");
        let data = &rewritten["data"];
        assert_eq!((data["old"].as_str(), data["new"].as_str()), (Some("10"), Some("5")));
    }
}

#[test]
fn without_the_key_why_has_the_command_that_mends_it() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", STEPS);
    let tracker = cut_newest(&world, &job);
    put(&world, &job, false);
    world.start(&[]);
    world.wait_log("the trainer goes by");
    assert_eq!(std::fs::read_to_string(&tracker).expect("one"), "10");
    let log = world.log();
    let (_, rest) = log.split_once("or run: ").expect("a command");
    let (command, _) = rest.split_once(" && spotkeeper retry train").expect("a command");
    assert!(out(&world, &["why", "train"]).contains("spotkeeper retry train"));
    assert!(Command::new("sh").args(["-c", command]).status().expect("sh").success());
    out(&world, &["retry", "train"]);
    world.wait_done("train");
    assert_eq!(world.trainer("train").starts(), [5]);
}
