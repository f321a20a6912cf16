//! Pods as real processes: each pod's UserCommand in a process group and a folder of its own, with
//! the job's own environment and nothing of ours.
//!
//! No pod outlives the emulator. Every group is first told to a watcher, a small shell in a group
//! of its own that holds the reading end of a pipe; when the emulator is gone, by whatever cause,
//! the pipe ends and the watcher kills all groups that are left. A pod does nothing before its
//! group was told. What leaves its process group on purpose (`setsid`) is out of reach.

use super::mounts::{Mounts, PATH, Plan};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

/// Size of one pod's log; what comes after it is read and thrown away.
pub const LOG_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// Part of a log, from its end, that one answer may hold.
pub const LOG_TAIL_LIMIT_BYTES: u64 = 1024 * 1024;
/// How long the output of a pod that ended is waited for.
const OUTPUT_AFTER_END: Duration = Duration::from_secs(1);

/// Reads "add GROUP" and "remove GROUP"; at the end of its input it kills what was not removed.
const WATCHER: &str = r#"trap '' HUP INT TERM
groups=' '
while read -r act group; do
  case $act in
    add) groups="$groups$group " ;;
    remove) groups="${groups%% "$group" *} ${groups#* "$group" }" ;;
  esac
done
for group in $groups; do kill -9 "-$group"; done
"#;

/// Waits until the watcher knows the group; an input that ends instead means that we are gone.
const POD: &str = r#"read -r go || exit 137; exec </dev/null; exec /bin/sh -c "$1""#;

/// Why a pod cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The watcher cannot be started or is gone.
    #[error("{0} the watcher of the pods")]
    Watcher(&'static str, #[source] std::io::Error),
    /// The pod's folder or log cannot be made.
    #[error("create {path}")]
    Folder {
        /// Folder or log.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The pod's first process cannot be started.
    #[error("start a pod's shell")]
    Start(#[source] std::io::Error),
    /// What it is to see cannot be mounted.
    #[error("mount the data sources of a pod: {0}")]
    Mount(String),
}

/// What a pod is to run.
#[derive(Debug)]
pub struct PodOrder<'a> {
    /// `JobId`.
    pub job_id: &'a str,
    /// The name of its folder and log, `Pod::place`.
    pub place: &'a str,
    /// Place in the job's list of pods.
    pub pod: usize,
    /// UserCommand.
    pub command: &'a str,
    /// Environment of the job.
    pub envs: &'a BTreeMap<String, String>,
    /// Number of pods of the job.
    pub world_size: usize,
    /// What it sees of the job's DataSources.
    pub mounts: &'a Plan,
}

/// A pod that ended: no process of its group is left and its output is in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEnd {
    /// `JobId`.
    pub job_id: String,
    /// Place in the job's list of pods.
    pub pod: usize,
    /// Exit code as a shell tells it: 128 + signal for a process that was killed.
    pub exit: i32,
}

/// The process group of a running pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(Pid);

impl Group {
    /// SIGKILL to every process of the group.
    pub fn kill(self) {
        // The group may have ended by itself a moment ago.
        let _ = kill_process_group(self.0, Signal::KILL);
    }

    /// SIGSTOP to every process of the group: only SIGKILL reaches them from then on.
    pub fn stop(self) {
        let _ = kill_process_group(self.0, Signal::STOP);
    }

    /// Any signal, to the first process alone.
    pub fn signal(self, signal: Signal) {
        let _ = kill_process(self.0, signal);
    }

    /// SIGTERM to the first process alone, as a container's runtime does; handing it on is the
    /// command's own affair.
    pub fn terminate(self) {
        let _ = kill_process(self.0, Signal::TERM);
    }
}

/// Starts pods.
#[derive(Debug)]
pub struct Pods {
    folder: PathBuf,
    watcher: Watcher,
    mounts: Mounts,
    ends: mpsc::Sender<PodEnd>,
}

impl Pods {
    /// Pods with their folders and logs below `folder`; their ends come out of the channel.
    ///
    /// # Errors
    /// [`ProcessError::Watcher`].
    pub fn open(
        folder: PathBuf,
        mounts: Mounts,
        ends: mpsc::Sender<PodEnd>,
    ) -> Result<Self, ProcessError> {
        Ok(Self { folder, watcher: Watcher::start()?, mounts, ends })
    }

    /// The log of a pod, by its `Pod::place`.
    pub fn log_path(&self, job_id: &str, place: &str) -> PathBuf {
        self.folder.join(job_id).join(format!("{place}.log"))
    }

    /// How pods may see a job's DataSources.
    pub fn mounts(&mut self) -> &mut Mounts {
        &mut self.mounts
    }

    /// Adds a line to the log of a pod that runs.
    pub fn note(&self, job_id: &str, place: &str, line: &str) {
        let log = std::fs::OpenOptions::new().append(true).open(self.log_path(job_id, place));
        // A pod whose log cannot be written goes on without the line.
        drop(log.and_then(|mut log| writeln!(log, "{line}")));
    }

    /// Starts a pod. Must be called inside the runtime.
    ///
    /// # Errors
    /// [`ProcessError`]; then nothing of the pod runs.
    pub fn start(&mut self, order: &PodOrder<'_>) -> Result<Group, ProcessError> {
        let folder = self.folder.join(order.job_id).join(order.place);
        std::fs::create_dir_all(&folder)
            .map_err(|source| ProcessError::Folder { path: folder.clone(), source })?;
        let log_path = self.log_path(order.job_id, order.place);
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log_path)
            .map_err(|source| ProcessError::Folder { path: log_path, source })?;

        let (output, output_end) = std::io::pipe().map_err(ProcessError::Start)?;
        let (go_end, mut go) = std::io::pipe().map_err(ProcessError::Start)?;
        let mut command = tokio::process::Command::from(self.command(order, &folder)?);
        command
            .stdin(go_end)
            .stdout(output_end.try_clone().map_err(ProcessError::Start)?)
            .stderr(output_end);
        let mut child = command.spawn().map_err(ProcessError::Start)?;
        // It holds writing ends of the output pipe, which must end with the pod.
        drop(command);
        let pid = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw)
            .expect("a child that was not waited for has a pid");
        // Dropping `go` ends the pod's input, and with it the pod.
        self.watcher.add(pid)?;
        go.write_all(b"go\n").map_err(ProcessError::Start)?;
        let output = pipe::Receiver::from_owned_fd(output.into()).map_err(ProcessError::Start)?;

        let (ends, remover) = (self.ends.clone(), self.watcher.remover()?);
        let (job_id, pod) = (order.job_id.to_owned(), order.pod);
        let logger = tokio::spawn(keep_output(output, log));
        tokio::spawn(async move {
            let status = child.wait().await;
            // A container ends with its first process.
            Group(pid).kill();
            drop(tokio::time::timeout(OUTPUT_AFTER_END, logger).await);
            remover.remove(pid);
            let exit = status
                .map_or(128, |s| s.code().unwrap_or_else(|| 128 + s.signal().unwrap_or_default()));
            // Nobody listens any more when the emulator is on its way out.
            drop(ends.send(PodEnd { job_id, pod, exit }).await);
        });
        Ok(Group(pid))
    }

    fn command(&self, order: &PodOrder<'_>, folder: &Path) -> Result<Command, ProcessError> {
        let mut command = if order.mounts.is_empty() {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", POD, "sh", order.command]);
            command
        } else {
            self.mounts
                .pod_command(order.mounts, POD, order.command)
                .map_err(ProcessError::Mount)?
        };
        command
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", folder)
            .envs(order.envs)
            .env("RANK", order.pod.to_string())
            .env("WORLD_SIZE", order.world_size.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", "23456")
            .current_dir(folder)
            .process_group(0);
        Ok(command)
    }

    /// The last lines of a pod's log, at most `lines`.
    ///
    /// # Errors
    /// That of the file; a pod that never ran has none.
    pub fn tail(path: &Path, lines: usize) -> std::io::Result<Vec<String>> {
        let mut file = std::fs::File::open(path)?;
        let size = file.metadata()?.len();
        let from = size.saturating_sub(LOG_TAIL_LIMIT_BYTES);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_LIMIT_BYTES).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // The first line of a part is only the rest of one.
        let all: Vec<&str> = text.lines().skip(usize::from(from > 0)).collect();
        let first = all.len().saturating_sub(lines);
        Ok(all[first..].iter().map(|line| (*line).to_owned()).collect())
    }
}

async fn keep_output(mut output: pipe::Receiver, mut log: std::fs::File) {
    let mut buffer = [0_u8; 8192];
    let mut left = usize::try_from(LOG_LIMIT_BYTES).unwrap_or(usize::MAX);
    while let Ok(count @ 1..) = output.read(&mut buffer).await {
        let keep = count.min(left);
        left -= keep;
        if log.write_all(&buffer[..keep]).is_err() {
            // The disk is full: the pod goes on, as it would without a log.
            left = 0;
        }
    }
}

/// The shell that kills every group when we are gone.
#[derive(Debug)]
struct Watcher {
    shell: Child,
    input: Option<std::io::PipeWriter>,
}

/// Takes a group off the watcher's list.
struct Remover(std::io::PipeWriter);

impl Remover {
    fn remove(&self, pid: Pid) {
        // A watcher that is gone has nothing to forget.
        let line = format!("remove {}\n", pid.as_raw_nonzero());
        drop((&self.0).write_all(line.as_bytes()));
    }
}

impl Watcher {
    fn start() -> Result<Self, ProcessError> {
        let (end, input) = std::io::pipe().map_err(|e| ProcessError::Watcher("start", e))?;
        let shell = Command::new("/bin/sh")
            .args(["-c", WATCHER])
            .env_clear()
            .stdin(end)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|e| ProcessError::Watcher("start", e))?;
        Ok(Self { shell, input: Some(input) })
    }

    fn input(&self) -> Result<&std::io::PipeWriter, ProcessError> {
        let gone = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        self.input.as_ref().ok_or_else(|| ProcessError::Watcher("reach", gone()))
    }

    fn add(&self, pid: Pid) -> Result<(), ProcessError> {
        // Shorter than PIPE_BUF: whole or not at all, also beside a `remove`.
        let line = format!("add {}\n", pid.as_raw_nonzero());
        self.input()?.write_all(line.as_bytes()).map_err(|e| ProcessError::Watcher("tell", e))
    }

    fn remover(&self) -> Result<Remover, ProcessError> {
        let input = self.input()?.try_clone().map_err(|e| ProcessError::Watcher("reach", e))?;
        Ok(Remover(input))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.input = None;
        // It ends once the last `Remover` is gone too; waiting here could block the runtime.
        drop(self.shell.try_wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(command: &str, envs: &[(&str, &str)]) -> (PodEnd, Vec<String>) {
        let folder = tempfile::tempdir().expect("a folder");
        let (sender, mut ended) = mpsc::channel(4);
        let mut pods =
            Pods::open(folder.path().to_owned(), Mounts::new(folder.path(), None, None), sender)
                .expect("a watcher");
        let envs = envs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let order = PodOrder {
            job_id: "j",
            place: "j-master-0",
            pod: 0,
            command,
            envs: &envs,
            world_size: 1,
            mounts: &Plan::default(),
        };
        pods.start(&order).expect("started");
        let end = ended.recv().await.expect("an end");
        (end, Pods::tail(&pods.log_path("j", "j-master-0"), 100).expect("a log"))
    }

    #[tokio::test]
    async fn a_pod_has_the_jobs_environment_and_nothing_of_ours() {
        let (end, log) = run("env; echo err >&2; exit 3", &[("A", "b c")]).await;
        assert_eq!(end.exit, 3);
        for expected in ["A=b c", "RANK=0", "WORLD_SIZE=1", "err"] {
            assert!(log.iter().any(|line| line == expected), "{expected}: {log:?}");
        }
        assert!(std::env::var("CARGO_MANIFEST_DIR").is_ok());
        assert!(!log.iter().any(|line| line.starts_with("CARGO")), "{log:?}");
    }

    #[tokio::test]
    async fn what_a_pod_leaves_in_its_group_ends_with_it() {
        let (end, log) = run("sleep 1000 & echo $!; kill -9 $$", &[]).await;
        assert_eq!(end.exit, 137);
        let left = log[0].parse().ok().and_then(Pid::from_raw).expect("a pid");
        wait_until_gone(left).await;
    }

    #[tokio::test]
    async fn the_watcher_kills_what_was_told_and_not_removed_when_its_pipe_ends() {
        let sleeper = || {
            let mut command = tokio::process::Command::new("/bin/sleep");
            command.arg("1000").process_group(0).kill_on_drop(true).spawn().expect("started")
        };
        let pid = |child: &tokio::process::Child| {
            let id = child.id().and_then(|id| i32::try_from(id).ok());
            id.and_then(Pid::from_raw).expect("a pid")
        };
        let (mut first, mut removed, mut last) = (sleeper(), sleeper(), sleeper());
        let watcher = Watcher::start().expect("a watcher");
        for child in [&first, &removed, &last] {
            watcher.add(pid(child)).expect("told");
        }
        watcher.remover().expect("an input").remove(pid(&removed));
        drop(watcher);
        assert_eq!(first.wait().await.expect("ended").signal(), Some(9));
        assert_eq!(last.wait().await.expect("ended").signal(), Some(9));
        assert!(removed.try_wait().expect("looked").is_none());
        removed.kill().await.expect("killed");
    }

    async fn wait_until_gone(pid: Pid) {
        while rustix::process::test_kill_process(pid).is_ok() {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            if stat.is_ok_and(|s| s.contains(") Z ")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
