//! A world of child processes in a temporary folder: one emulator, one daemon at a time.

use crate::ledger::{Ledger, TrainerLog};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const BIN: &str = env!("CARGO_BIN_EXE_spotkeeper");
pub(crate) const KEY: (&str, &str) = ("test-key", "test-secret");
/// Time between two looks at what a test waits for.
const POLL: Duration = Duration::from_millis(20);
/// A wait that takes longer has failed: far more than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);
/// How long the server accepts a signed CreateJob.
const ACCEPTANCE: &str = "3s";
/// The same.
pub(crate) const ACCEPTANCE_TIME: Duration = Duration::from_secs(3);

/// Steps from one save of a job's trainer to the next.
pub(crate) const SAVE_EVERY: u64 = 5;

/// A job of a test: the demo's trainer and its checkpoints.
#[derive(Debug, Clone)]
pub(crate) struct JobFile {
    pub(crate) name: String,
    pub(crate) steps: u64,
    /// Where the trainer saves, below the world's folder.
    pub(crate) saves: String,
    /// Where the daemon looks, below the world's folder.
    pub(crate) looks: String,
    /// Time of one step, ms.
    pub(crate) step_ms: u64,
    /// Whether the trainer saves on TERM and then ends with 0.
    pub(crate) saves_on_term: bool,
    pub(crate) expect_within: &'static str,
    /// More lines at the end of `[submit]`.
    pub(crate) more: String,
}

impl JobFile {
    pub(crate) fn new(name: &str, steps: u64) -> Self {
        Self {
            name: name.to_owned(),
            steps,
            saves: format!("bucket/{name}"),
            looks: format!("bucket/{name}"),
            step_ms: 30,
            saves_on_term: false,
            expect_within: "2h",
            more: String::new(),
        }
    }
}

pub(crate) struct World {
    folder: TempDir,
    emulator: Child,
    address: String,
    daemon: Option<Child>,
    key: (&'static str, &'static str),
}

impl World {
    /// Starts an emulator with `flags` and writes the daemon file.
    pub(crate) fn new(flags: &[&str]) -> Self {
        Self::with_key(KEY, flags)
    }

    /// The same with another access key than that of all worlds.
    pub(crate) fn with_key(key: (&'static str, &'static str), flags: &[&str]) -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder"), key, flags)
    }

    /// A world that goes on from what is in `folder`.
    pub(crate) fn in_folder(
        folder: TempDir,
        key: (&'static str, &'static str),
        flags: &[&str],
    ) -> Self {
        for name in ["jobs.d", "bucket", "secrets", "cloud"] {
            std::fs::create_dir_all(folder.path().join(name)).expect("a folder");
        }
        let log = File::create(folder.path().join("emulator.log")).expect("a log");
        let mut emulator = Command::new(BIN)
            .args(["emulator", "--allow-root", "--acceptance", ACCEPTANCE])
            .args(["--access-key", &format!("{}:{}", key.0, key.1), "--dir"])
            .arg(folder.path().join("cloud"))
            .args(flags)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the emulator starts");
        let mut line = String::new();
        let out = emulator.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("its first line");
        let url = line.trim().strip_prefix("listening on ").expect("an address").to_owned();
        let address = url.strip_prefix("http://").expect("http").to_owned();
        let daemon_file = format!(
            r#"owner = "tstown"
state_directory = "state"
jobs_directory = "jobs.d"
job_secrets = "secrets"
[sweep]
interval = "200ms"
[api]
socket = "api.sock"
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "{url}"
credentials = {{ environment = true }}
acceptance = "{ACCEPTANCE}"
"#
        );
        std::fs::write(folder.path().join("spotkeeper.toml"), daemon_file).expect("written");
        Self { folder, emulator, address, daemon: None, key }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Base URL of the emulator.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::read(&self.path("cloud"))
    }

    pub(crate) fn trainer(&self, job: &str) -> TrainerLog {
        TrainerLog::read(&self.path(&format!("{job}.jsonl")))
    }

    /// What daemons and emulator said, for a failed test.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("daemon.log")).unwrap_or_default()
    }

    /// The text of a job file.
    pub(crate) fn job_text(&self, job: &JobFile) -> String {
        let root = self.folder.path().display();
        let JobFile { name, steps, saves, looks, step_ms, expect_within, more, .. } = job;
        let (on_term, then) =
            if job.saves_on_term { ("--save-on-term", "|| test $? = 143") } else { ("", "") };
        format!(
            r#"name = "{name}"
target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = """
{BIN} demo-trainer --save {root}/{saves} --steps {steps} --save-every {SAVE_EVERY} \
  --step-time {step_ms} --write-pause 5 --log {root}/{name}.jsonl {on_term} {{resume}} {then}
"""
{more}
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.4
[checkpoint]
url = "file://{root}/{looks}"
format = "easyckpt-megatron"
resume = "--load {{root}} --ckpt-step {{step}}"
ranks = 2
settle = "400ms"
settle_interval = "200ms"
expect_within = "{expect_within}"
[progress]
total_steps = {steps}
"#
        )
    }

    /// Writes a job file as `jobs.d/FILE.toml`, whole at once.
    pub(crate) fn put_job(&self, file: &str, job: &JobFile) {
        self.put_text(file, job, &self.job_text(job));
    }

    /// The same, with a fence.
    pub(crate) fn put_fenced(&self, job: &JobFile) {
        let text = self.job_text(job).replace("ranks = 2", "ranks = 2\nfence = true");
        self.put_text(&job.name, job, &text);
    }

    /// Writes `text` as the file of a job.
    pub(crate) fn put_text(&self, file: &str, job: &JobFile, text: &str) {
        std::fs::create_dir_all(self.path(&job.looks)).expect("a folder");
        let hidden = self.path(&format!("jobs.d/.{file}.new"));
        std::fs::write(&hidden, text).expect("written");
        std::fs::rename(hidden, self.path(&format!("jobs.d/{file}.toml"))).expect("renamed");
    }

    pub(crate) fn remove_job(&self, file: &str) {
        std::fs::remove_file(self.path(&format!("jobs.d/{file}.toml"))).expect("it was there");
    }

    /// The command that starts a daemon in this world.
    pub(crate) fn command(&self) -> Command {
        self.command_by("spotkeeper.toml", "daemon.log")
    }

    /// The command that starts a daemon with another daemon file, and where it logs.
    pub(crate) fn command_by(&self, daemon_file: &str, log: &str) -> Command {
        let log = OpenOptions::new().create(true).append(true).open(self.path(log));
        let mut command = Command::new(BIN);
        command
            .args(["run", "--config"])
            .arg(self.path(daemon_file))
            .env("ALIBABA_CLOUD_ACCESS_KEY_ID", self.key.0)
            .env("ALIBABA_CLOUD_ACCESS_KEY_SECRET", self.key.1)
            .env_remove("STATE_DIRECTORY")
            .env_remove("RUNTIME_DIRECTORY")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        command
    }

    /// Runs a verb against this world's daemon, in this world's folder.
    pub(crate) fn cli(&self, words: &[&str]) -> std::process::Output {
        let mut command = Command::new(BIN);
        command.args(words).arg("--config").arg(self.path("spotkeeper.toml"));
        command.env_remove("SPOTKEEPER_SOCKET").current_dir(self.folder.path());
        command.stdin(Stdio::null()).output().expect("it runs")
    }

    /// Starts the daemon, with these environment variables besides its own.
    pub(crate) fn start(&mut self, envs: &[(&str, &str)]) {
        assert!(self.daemon.is_none(), "one daemon at a time");
        let mut command = self.command();
        self.daemon = Some(command.envs(envs.iter().copied()).spawn().expect("the daemon starts"));
    }

    /// How the daemon ended, if it did.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        let ended = self.daemon.as_mut()?.try_wait().expect("a child can be waited for");
        if ended.is_some() {
            self.daemon = None;
        }
        ended
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        let child = self.daemon.as_ref().expect("a daemon");
        kill_process(pid_of(child), signal).expect("it is there");
    }

    /// SIGKILL to the daemon, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let status = self.daemon.take().expect("a daemon").wait().expect("it ends");
        assert_eq!(status.signal(), Some(9), "the daemon had ended before: {}", self.log());
    }

    /// Removes the state; a daemon that was killed early has none.
    pub(crate) fn wipe(&self) {
        if let Err(error) = std::fs::remove_dir_all(self.path("state")) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}");
        }
    }

    /// Waits until `is_so`.
    pub(crate) fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < PATIENCE, "waited in vain until {what}:\n{}", self.log());
            std::thread::sleep(POLL);
        }
    }

    /// Waits until `what` is in the daemon's log.
    pub(crate) fn wait_log(&mut self, what: &str) {
        self.wait(&format!("the log has `{what}`"), |world| world.log().contains(what));
    }

    /// Waits until a job's trainer has finished a save since its start.
    pub(crate) fn wait_saved(&mut self, job: &str) {
        self.wait("a save is finished", |world| world.trainer(job).saved_since_start());
    }

    /// Waits until a job has reached its last step and ended.
    pub(crate) fn wait_done(&mut self, job: &str) {
        self.wait(&format!("{job} is done"), |world| {
            world.trainer(job).is_done() && world.ledger().open().is_empty()
        });
    }

    /// Takes back the machines of everything that runs. Answers how many there were.
    pub(crate) fn release_all(&self) -> usize {
        let released = self.ledger().running().into_iter().filter(|id| {
            // 409: it has ended meanwhile.
            self.http("POST", &format!("/emulator/release/{id}"), "").0 == 200
        });
        released.count()
    }

    pub(crate) fn put_faults(&self, rules: &Value) {
        let (status, body) = self.http("PUT", "/emulator/faults", &rules.to_string());
        assert_eq!(status, 200, "{body}");
    }

    /// Uses left of the first fault.
    pub(crate) fn fault_uses_left(&self) -> u64 {
        let (_, body) = self.http("GET", "/emulator/faults", "");
        let rules: Value = serde_json::from_str(&body).expect("JSON");
        rules[0]["times"].as_u64().expect("a rule with `times`")
    }

    /// One request to the emulator's own routes.
    fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the emulator listens");
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        (status.expect("a status line"), body.to_owned())
    }

    /// Runs the trainer of `job` outside the cloud until it has saved `steps`.
    pub(crate) fn train_by_hand(&self, job: &JobFile, steps: u64) {
        let status = Command::new(BIN)
            .args(["demo-trainer", "--step-time", "0", "--write-pause", "0", "--save"])
            .arg(self.path(&job.saves))
            .args(["--steps", &steps.to_string(), "--save-every", &SAVE_EVERY.to_string()])
            .arg("--log")
            .arg(self.path("by-hand.jsonl"))
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("it runs").success());
    }
}

fn pid_of(child: &Child) -> Pid {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid")
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(daemon) = &mut self.daemon {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        // TERM: it takes the processes of its pods with it. They are in the folder that goes next.
        kill_process(pid_of(&self.emulator), Signal::TERM).ok();
        self.emulator.wait().ok();
        if std::thread::panicking() {
            let kept = keep(self.folder.path());
            eprintln!("the files of this world are kept in {}", kept.display());
        }
    }
}

/// Puts the folder of a failed test beside it, where its removal does not reach.
fn keep(folder: &Path) -> PathBuf {
    let kept = folder.with_extension("failed");
    std::fs::rename(folder, &kept).ok();
    kept
}
