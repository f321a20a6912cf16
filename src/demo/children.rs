//! The demo's child processes: the emulator and the daemon.
//!
//! Always holds: no child outlives the demo. At a good end each is told by TERM and, if that is
//! not enough, killed; should the demo itself be killed, a small shell that holds the reading end
//! of a pipe sees the pipe end and tells them. Each child is the first of its own process group,
//! so that Ctrl-C on the terminal reaches the demo alone.

use super::stage::{ACCEPTANCE, Stage};
use crate::model::error::Class;
use crate::model::service_manager::VARIABLES;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// How long the emulator may take until it listens.
const LISTEN_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of its first line.
const FIRST_LINE_LIMIT_BYTES: u64 = 4096;
/// How long a child may take to end after TERM: longer than the daemon gives its calls.
const TERM_LIMIT: Duration = Duration::from_secs(10);
/// Shortest time in each status before Running.
const PHASE_DELAY: &str = "200ms";
/// What would lead a child away from the demo's own files.
const NOT_FOR_CHILDREN: [&str; 3] = ["SPOTKEEPER_SOCKET", "STATE_DIRECTORY", "RUNTIME_DIRECTORY"];
/// Reads pids, and tells those processes to end when its input ends.
const GUARD: &str = r#"trap '' HUP INT TERM
pids=
while read -r pid; do pids="$pids $pid"; done
for pid in $pids; do kill -TERM "$pid"; done
"#;

/// Why a child does not run.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program itself is not to be found.
    #[error("find this program")]
    Program(#[source] io::Error),
    /// The file for its output cannot be opened.
    #[error("open {path}")]
    Log {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be started.
    #[error("start the {what}")]
    Start {
        /// Which.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The emulator does not say where it listens.
    #[error("the emulator does not listen: see {}", log.display())]
    NotListening {
        /// Its output.
        log: PathBuf,
    },
}

impl ChildError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Program(_)
            | Self::Log { .. }
            | Self::Start { .. }
            | Self::NotListening { .. } => Class::Operator,
        }
    }
}

/// A running child.
#[derive(Debug)]
pub struct Running {
    child: Child,
    pid: u32,
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// TERM, then KILL; comes back when it is gone.
    pub async fn end(mut self) {
        // A child that was waited for has no pid to signal, and nobody else can have taken it.
        if let Some(pid) = self.child.id().and_then(|id| i32::try_from(id).ok()) {
            let pid = Pid::from_raw(pid);
            // It may have ended by itself a moment ago.
            pid.map(|pid| kill_process(pid, Signal::TERM).ok());
        }
        if tokio::time::timeout(TERM_LIMIT, self.child.wait()).await.is_err() {
            self.child.kill().await.ok();
        }
    }
}

/// The emulator, and where it listens.
#[derive(Debug)]
pub struct Emulator {
    /// The process.
    pub running: Running,
    /// Its address.
    pub endpoint: String,
    /// Open for as long as it runs: it must not find its output closed.
    _output: BufReader<ChildStdout>,
}

/// Starts children of one stage.
#[derive(Debug)]
pub struct Starter {
    program: PathBuf,
    guard: Guard,
}

impl Starter {
    /// # Errors
    /// [`ChildError`].
    pub fn new() -> Result<Self, ChildError> {
        let program = std::env::current_exe().map_err(ChildError::Program)?;
        Ok(Self { program, guard: Guard::start()? })
    }

    /// This program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    fn start(&mut self, what: &'static str, mut command: Command) -> Result<Running, ChildError> {
        for name in NOT_FOR_CHILDREN.into_iter().chain(VARIABLES) {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        let start = |source| ChildError::Start { what, source };
        let child = command.spawn().map_err(start)?;
        let pid = child.id().ok_or_else(|| start(io::ErrorKind::NotFound.into()))?;
        self.guard.add(pid).map_err(start)?;
        Ok(Running { child, pid })
    }

    /// Starts the emulator and waits until it listens.
    ///
    /// # Errors
    /// [`ChildError`].
    pub async fn emulator(&mut self, stage: &Stage) -> Result<Emulator, ChildError> {
        let (id, secret) = &stage.key;
        let log = stage.emulator_log();
        let mut command = Command::new(&self.program);
        command
            .args(["emulator", "--listen", "127.0.0.1:0", "--acceptance", ACCEPTANCE])
            .args(["--phase-delay", PHASE_DELAY])
            .arg("--access-key")
            .arg(format!("{id}:{secret}"))
            .arg("--dir")
            .arg(stage.emulator())
            .arg("--market")
            .arg(format!("script:{}", stage.market().display()))
            // The only command that is ever submitted here is the demo's own trainer.
            .arg("--allow-root")
            .stdout(Stdio::piped())
            .stderr(append(&log)?);
        let mut running = self.start("emulator", command)?;
        let not_listening = || ChildError::NotListening { log: log.clone() };
        let output = running.child.stdout.take().ok_or_else(not_listening)?;
        let mut output = BufReader::new(output);
        let mut line = String::new();
        let mut first = (&mut output).take(FIRST_LINE_LIMIT_BYTES);
        let read = tokio::time::timeout(LISTEN_LIMIT, first.read_line(&mut line)).await;
        let endpoint = line.trim().strip_prefix("listening on ").map(str::to_owned);
        if let (Ok(Ok(_)), Some(endpoint)) = (read, endpoint) {
            return Ok(Emulator { running, endpoint, _output: output });
        }
        running.end().await;
        Err(not_listening())
    }

    /// Starts the daemon.
    ///
    /// # Errors
    /// [`ChildError`].
    pub fn daemon(&mut self, stage: &Stage) -> Result<Running, ChildError> {
        let log = append(&stage.daemon_log())?;
        let clone = log.try_clone();
        let clone = clone.map_err(|source| ChildError::Log { path: stage.daemon_log(), source })?;
        let mut command = Command::new(&self.program);
        command.arg("run").arg("--config").arg(stage.config()).stdout(clone).stderr(log);
        self.start("daemon", command)
    }

    /// Lets the guard go; the children are gone.
    pub async fn finish(self) {
        self.guard.finish().await;
    }
}

fn append(path: &Path) -> Result<File, ChildError> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map_err(|source| ChildError::Log { path: path.to_owned(), source })
}

/// The shell that tells the children to end when the demo is gone.
#[derive(Debug)]
struct Guard {
    shell: Child,
    input: io::PipeWriter,
}

impl Guard {
    fn start() -> Result<Self, ChildError> {
        let failed = |source| ChildError::Start { what: "guard of the children", source };
        let (end, input) = io::pipe().map_err(failed)?;
        let shell = Command::new("/bin/sh")
            .args(["-c", GUARD])
            .stdin(end)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Self { shell, input })
    }

    fn add(&mut self, pid: u32) -> io::Result<()> {
        self.input.write_all(format!("{pid}\n").as_bytes())
    }

    /// Kills the shell before its input ends: by now a pid may be somebody else's.
    async fn finish(mut self) {
        self.shell.kill().await.ok();
        drop(self.input);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;

    fn sleeper() -> Command {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000");
        command
    }

    #[tokio::test]
    async fn a_child_is_told_to_end_when_the_demo_is_gone() {
        let mut starter = Starter::new().expect("a starter");
        let mut running = starter.start("sleeper", sleeper()).expect("started");
        assert!(running.ended().is_none());
        let Starter { guard: Guard { mut shell, input }, .. } = starter;
        // What the kernel does when the process is killed.
        drop(input);
        let status = running.child.wait().await.expect("ended");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()));
        shell.wait().await.expect("ended");
    }

    #[tokio::test]
    async fn the_guard_tells_nobody_after_a_good_end() {
        let mut starter = Starter::new().expect("a starter");
        let mut running = starter.start("sleeper", sleeper()).expect("started");
        starter.finish().await;
        assert!(running.ended().is_none());
        running.end().await;
    }
}
