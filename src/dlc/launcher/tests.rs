//! The launcher in real shells: `/bin/sh` (dash on most systems) and, where there is one, bash.

use super::*;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(super) fn shells() -> Vec<&'static str> {
    ["/bin/sh", "/bin/bash"].into_iter().filter(|shell| Path::new(shell).exists()).collect()
}

/// A launcher in a process group of its own, killed with all of it if a test fails.
pub(super) struct Run {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    log: String,
}

impl Run {
    fn start(shell: &str, user: &str, envs: &[(&str, &str)]) -> Self {
        Self::start_with("-c", shell, user, envs)
    }

    fn start_with(flags: &str, shell: &str, user: &str, envs: &[(&str, &str)]) -> Self {
        Self::start_text(flags, shell, &text(user, 3, 30), envs)
    }

    /// Starts a whole text.
    pub(super) fn start_text(flags: &str, shell: &str, whole: &str, envs: &[(&str, &str)]) -> Self {
        let mut child = Command::new(shell)
            .arg(flags)
            .arg(whole)
            .env_remove("RANK")
            .env_remove("SPOTKEEPER_RANK")
            .envs(envs.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a shell");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, output, log: String::new() }
    }

    fn group(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Reads until a line is `wanted`.
    pub(super) fn until(&mut self, wanted: &str) {
        loop {
            let start = self.log.len();
            let read = self.output.read_line(&mut self.log).expect("UTF-8");
            assert!(read > 0, "ended before {wanted:?}: {}", self.log);
            if self.log[start..].trim_end() == wanted {
                return;
            }
        }
    }

    /// Reads until each of `wanted` was a line, in any order.
    pub(super) fn until_all(&mut self, wanted: &[&str]) {
        while !wanted.iter().all(|line| self.log.lines().any(|found| found == *line)) {
            let read = self.output.read_line(&mut self.log).expect("UTF-8");
            assert!(read > 0, "ended before {wanted:?}: {}", self.log);
        }
    }

    /// TERM to the launcher alone, as a container runtime sends it.
    pub(super) fn term(&self) {
        rustix::process::kill_process(self.group(), rustix::process::Signal::TERM).expect("TERM");
    }

    /// Exit code and whole log.
    pub(super) fn end(mut self) -> (i32, String) {
        self.output.read_to_string(&mut self.log).expect("UTF-8");
        let status = self.child.wait().expect("an end");
        (status.code().expect("no signal"), std::mem::take(&mut self.log))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ =
                rustix::process::kill_process_group(self.group(), rustix::process::Signal::KILL);
            drop(self.child.wait());
        }
    }
}

/// The log less its last line, which has to be the end line with `rc`.
pub(super) fn ended(shell: &str, user: &str, (code, log): (i32, String), rc: i32) -> String {
    let (before, last) = log.trim_end_matches('\n').rsplit_once('\n').unwrap_or(("", log.trim()));
    let line = parse_end_line(last).unwrap_or_else(|| panic!("{shell}: {user}: {log}"));
    assert_eq!((line.attempt, line.rc, code), (3, rc, rc), "{shell}: {user}: {log}");
    before.to_owned()
}

/// A trainer that needs a moment to save, and says each step of it.
pub(super) const TRAINER: &str =
    r#"sh -c 'trap "sleep 1;echo saved;exit 7" TERM;echo ready;while :;do sleep 0.1;done'"#;

#[test]
fn the_own_text_stays_small_and_the_users_text_is_in_it_as_written() {
    assert!(text("", 4_000_000_000, 4_000_000_000).len() <= OWN_LIMIT);
    assert!(wrap("python a.py --x=\"$Y\"", 1).contains("eval 'python a.py --x=\"$Y\"'"));
}

#[test]
fn every_end_of_a_command_leaves_its_own_code_and_an_end_line() {
    for shell in shells() {
        for (user, rc, log) in [
            ("echo hi", 0, "hi"),
            ("exit 9", 9, ""),
            ("false", 1, ""),
            ("echo a;exit 3;echo b", 3, "a"),
            ("set -e;false;echo no", 1, ""),
            ("exec sh -c 'exit 5'", 5, ""),
            ("no-such-program-here", 127, ""),
            ("sh -c 'kill -9 $$'", 137, ""),
            ("trap 'echo bye' EXIT;exit 4", 4, "bye"),
            ("echo \"a'b\" 'c\"d' \\\\ \\$x '$y' `echo z`", 0, "a'b c\"d \\ $x $y z"),
            ("echo 再開 é", 0, "再開 é"),
            ("cat <<E\nx 'y' $((1+1))\nE", 0, "x 'y' 2"),
            ("cat <<'E'\n$n 'q'\nE\n# a comment at the end", 0, "$n 'q'"),
            ("# only a comment", 0, ""),
            ("", 0, ""),
            ("a=1 \\\n&& echo $a", 0, "1"),
            ("set -- q r;echo $# ${sk_t-unset} ${sk_o-unset}", 0, "2 unset unset"),
        ] {
            let before = ended(shell, user, Run::start(shell, user, &[]).end(), rc);
            assert_eq!(before, log, "{shell}: {user}");
        }
    }
}

#[test]
fn a_syntax_error_an_open_quote_and_an_unset_name_cannot_hide_the_end() {
    for shell in shells() {
        for user in ["if", "echo 'open", "echo )", "cat <<E", "set -u;echo $no_such_name"] {
            let (code, log) = Run::start(shell, user, &[]).end();
            let last = log.lines().last().and_then(parse_end_line);
            assert_eq!(last.map(|l| l.rc), Some(code), "{shell}: {user}: {log}");
        }
    }
}

#[test]
fn the_rank_is_the_trainers_else_ours_else_zero() {
    for shell in shells() {
        for (envs, want) in [
            (&[("RANK", "5"), ("SPOTKEEPER_RANK", "2")][..], 5),
            (&[("SPOTKEEPER_RANK", "2")], 2),
            (&[], 0),
        ] {
            let (_, log) = Run::start(shell, "printf unfinished", envs).end();
            let line = parse_end_line(log.trim_end()).expect("an end line");
            assert_eq!(line.rank, Some(want), "{shell}");
        }
    }
}

#[test]
fn on_term_the_trainer_saves_and_the_launcher_waits_for_it() {
    for shell in shells() {
        for (user, rc) in [
            (TRAINER.to_owned(), 7),
            (format!("exec {TRAINER}"), 7),
            (format!("{TRAINER}\necho after"), 0),
            (format!("set -e;{TRAINER}"), 7),
            // An inner shell that dies of TERM at once, long before the trainer has saved.
            (format!("sh -c '{}; echo never'", TRAINER.replace('\'', r"'\''")), 143),
        ] {
            let mut run = Run::start(shell, &user, &[]);
            run.until("ready");
            run.term();
            let before = ended(shell, &user, run.end(), rc);
            assert!(before.contains("saved"), "{shell}: {user}: {before}");
            assert!(!before.contains("never"), "{shell}: {user}: {before}");
        }
    }
}

#[test]
fn a_log_pipe_outlives_the_trainer_that_writes_to_it() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in shells() {
        let log = folder.path().join("log");
        let user = format!("{TRAINER} | tee {}", log.display());
        let mut run = Run::start(shell, &user, &[]);
        run.until("ready");
        run.term();
        let before = ended(shell, &user, run.end(), 0);
        assert!(before.ends_with("saved"), "{shell}: {before}");
        assert_eq!(std::fs::read_to_string(&log).expect("a log"), "ready\nsaved\n", "{shell}");
    }
}

#[test]
fn a_strict_shell_makes_no_difference() {
    for shell in shells() {
        let run = Run::start_with("-euc", shell, "sh -c 'exit 6'", &[]);
        ended(shell, "exit 6", run.end(), 6);
        let mut run = Run::start_with("-euc", shell, TRAINER, &[]);
        run.until("ready");
        run.term();
        assert!(ended(shell, TRAINER, run.end(), 7).contains("saved"), "{shell}");
    }
}

#[test]
fn a_second_term_changes_nothing() {
    for shell in shells() {
        let mut run = Run::start(shell, TRAINER, &[]);
        run.until("ready");
        run.term();
        run.term();
        let before = ended(shell, TRAINER, run.end(), 7);
        assert_eq!(before.matches("saved").count(), 1, "{shell}: {before}");
    }
}

#[test]
fn only_a_complete_end_line_is_one() {
    let line = |text: &str| parse_end_line(text);
    let end = EndLine { attempt: 3, rank: Some(0), rc: 137 };
    for text in [
        "spotkeeper: end attempt=3 rank=0 rc=137",
        "2026-01-12 22:35:02 spotkeeper: end attempt=3 rank=0 rc=137\r\n",
        "step 7spotkeeper: end attempt=3 rank=0 rc=137",
    ] {
        assert_eq!(line(text), Some(end), "{text}");
    }
    assert_eq!(
        line("spotkeeper: end attempt=3 rank=x rc=1"),
        Some(EndLine { attempt: 3, rank: None, rc: 1 })
    );
    for text in [
        "",
        "spotkeeper: end attempt=3 rank=0",
        "spotkeeper: end attempt=3 rank=0 rc=1 more",
        "echo \"spotkeeper: end attempt=3 rank=${RANK:-${SPOTKEEPER_RANK:-0}} rc=$sk_r\"",
        "spotkeeper: end attempt= rank=0 rc=1",
    ] {
        assert_eq!(line(text), None, "{text}");
    }
}

#[test]
fn what_was_wrapped_comes_back_and_nothing_else_does() {
    for command in
        ["", "a", "echo 'x' && b", "'''", r"\'' \ 'q", "多 \"é\"\nline 2 'z'\n", "eval 'a'"]
    {
        assert_eq!(unwrap(&wrap(command, 7)).as_deref(), Some(command), "{command:?}");
    }
    for other in ["", "eval 'a'", "sk_x; eval 'a'", "echo spotkeeper: end attempt=1; eval 'a'"] {
        assert_eq!(unwrap(other), None, "{other}");
    }
}
