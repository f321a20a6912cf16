//! The demo keeps what it says: its figures are the sum of its files, a saved step is never lost,
//! the rule that makes it so is seen to be needed, and no process stays behind.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A demo in `folder`, with a script for its reader.
fn demo(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_spotkeeper"));
    command.args(["demo", "-o", "json", "--keep", "--dir"]).arg(folder).stdin(Stdio::null());
    command
}

fn last_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("a file of the demo");
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// The processes that the demo named are gone.
fn assert_gone(stdout: &str) {
    let mut seen = 0;
    for line in stdout.lines().filter(|line| !line.contains("ended")) {
        let mut words = line.split_whitespace();
        if words.any(|word| word == "pid")
            && let Some(pid) = words.next().and_then(|word| word.parse::<u32>().ok())
        {
            seen += 1;
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            let is_ours = command.is_ok_and(|command| command.contains("spotkeeper"));
            assert!(!is_ours, "process {pid} is still there: {line}");
        }
    }
    assert!(seen >= 2, "the demo names its processes: {stdout}");
}

/// What each run of the trainer was: the step it began from, the last one done, and the newest
/// one that was whole by then.
fn runs(log: &[Value]) -> Vec<(u64, u64, u64)> {
    let mut runs = Vec::new();
    let mut whole = 0;
    for line in log {
        let number = |key: &str| line[key].as_u64().expect("a number");
        match line["event"].as_str().expect("a word") {
            "start" => runs.push((number("from"), number("from"), whole)),
            "step" => runs.last_mut().expect("a run").1 = number("step"),
            "saved" => {
                whole = whole.max(number("step"));
                runs.last_mut().expect("a run").2 = whole;
            }
            "saving" | "done" => {}
            other => panic!("the trainer says {other}"),
        }
    }
    runs
}

#[test]
fn the_figures_are_the_sum_of_the_files_and_no_saved_step_is_lost() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("demo");
    let output = demo(&folder).output().expect("the demo runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let said = last_line(&output);
    let number = |key: &str| said[key].as_u64().unwrap_or_else(|| panic!("{key} in {said}"));

    assert!(number("releases") >= 3, "{said}");
    assert!(number("refused_checkpoints") >= 1, "{said}");
    assert_eq!(number("final_step"), number("asked_step"), "{said}");
    assert_eq!(number("saved_steps_lost"), 0, "{said}");

    let ledger = lines(&folder.join("emulator/ledger.jsonl"));
    let of = |word: &'static str| ledger.iter().filter(move |line| line["event"] == word);
    assert_eq!(number("attempts"), of("create").count() as u64);
    assert_eq!(number("releases"), of("release").count() as u64);
    assert_eq!(said["seconds"], of("end").next_back().expect("an end")["t"]);
    let why: Vec<&str> = of("release").filter_map(|line| line["why"].as_str()).collect();
    assert!(why.iter().any(|why| why.contains("market over bid")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("model_optim_rng.pt")), "{why:?}");

    // Never twice: a job is made only when the one before it has ended.
    let mut open = 0;
    for line in &ledger {
        match line["event"].as_str() {
            Some("create") => open += 1,
            Some("end") => open -= 1,
            _ => {}
        }
        assert!((0..=1).contains(&open), "{line}");
    }

    let runs = runs(&lines(&folder.join("trainer.jsonl")));
    let restarts = || runs.iter().zip(&runs[1..]);
    assert_eq!(number("final_step"), runs.last().expect("a run").1);
    assert_eq!(number("steps_repeated"), restarts().map(|(a, b)| a.1 - b.0).sum::<u64>());
    let from_zero: u64 = runs[..runs.len() - 1].iter().map(|run| run.1).sum();
    assert_eq!(number("steps_repeated_from_zero"), from_zero);
    assert!(restarts().all(|(before, after)| after.0 >= before.2), "{runs:?}");

    let refused: usize = lines(&folder.join("events.jsonl"))
        .iter()
        .filter(|event| event["word"] == "CHECKPOINT")
        .map(|event| event["data"]["refused"].as_array().map_or(0, Vec::len))
        .sum();
    assert_eq!(number("refused_checkpoints"), refused as u64);
    assert_gone(&stdout);
}

#[test]
#[cfg(test_hooks)]
fn taking_the_newest_checkpoint_instead_of_the_newest_whole_one_makes_it_fail() {
    let root = tempfile::tempdir().expect("a folder");
    let folder = root.path().join("demo");
    let mut demo = demo(&folder);
    demo.args(["--give-up", "60"]).env("SPOTKEEPER_TEST_NEWEST", "1");
    let output = demo.output().expect("the demo runs");
    let said = last_line(&output);
    assert!(!output.status.success(), "{said}");
    assert_ne!(said["final_step"], said["asked_step"], "{said}");
    // The trainer dies on the torn one, and the record refuses to begin there for ever.
    let events = lines(&folder.join("events.jsonl"));
    let died =
        events.iter().filter(|e| e["word"] == "VERDICT" && e["data"]["cause"] == "user_error");
    assert!(died.count() >= 2, "{events:?}");
    assert_gone(&String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_signal_ends_every_process_and_the_folder_goes() {
    let root = tempfile::tempdir().expect("a folder");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
        .arg("demo")
        .env("TMPDIR", root.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the demo starts");
    let mut stdout = BufReader::new(demo.stdout.take().expect("a pipe"));
    let mut said = String::new();
    // The first submission: now there are processes of every kind.
    while !said.contains("SUBMITTED") {
        assert!(stdout.read_line(&mut said).expect("a line") > 0, "{said}");
    }
    let pid = rustix::process::Pid::from_child(&demo);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    stdout.read_to_string(&mut said).expect("text");
    assert_eq!(demo.wait().expect("it ends").code(), Some(130), "{said}");
    assert_gone(&said);
    let left = std::fs::read_dir(root.path()).expect("a folder").count();
    assert_eq!(left, 0, "the demo's folder is still there");
}

#[test]
fn a_reader_that_goes_away_ends_the_demo_which_then_did_not_succeed() {
    let root = tempfile::tempdir().expect("a folder");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
        .arg("demo")
        .env("TMPDIR", root.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the demo starts");
    let mut stdout = BufReader::new(demo.stdout.take().expect("a pipe"));
    let mut said = String::new();
    while !said.contains("restart") {
        assert!(stdout.read_line(&mut said).expect("a line") > 0, "{said}");
    }
    drop(stdout);
    assert_eq!(demo.wait().expect("it ends").code(), Some(1), "{said}");
    assert_gone(&said);
    assert_eq!(std::fs::read_dir(root.path()).expect("a folder").count(), 0);
}
