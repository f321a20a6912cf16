//! What the daemon itself costs: memory while nothing happens, and time between the answer that
//! shows a release and the CreateJob of the next attempt.
//!
//! The program is the real one; the cloud is a stand-in on loopback that plays jobs without
//! processes and keeps the times. Prints a table, and ends with 1 if an aim is missed by more than
//! [`PATIENCE`] times. What the figures mean: docs/performance.md.

#![allow(clippy::disallowed_methods, reason = "a measurement needs the monotonic clock itself")]
#![allow(clippy::print_stdout, reason = "the table is the product of a bench")]

use anyhow::{Context as _, Result, bail, ensure};
use axum::Router;
use axum::extract::{Path as UrlPath, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use serde_json::{Value, json};
use spotkeeper::model::time::WallTime;
use spotkeeper::service::clock::Clock;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Jobs that the daemon supervises.
const JOBS: usize = 10;
/// How many of them are released between two sweeps, again and again.
const TOGETHER: [usize; 6] = [1, 1, 1, 2, 5, JOBS];
/// Times that [`TOGETHER`] is gone through: 220 releases.
const CYCLES: usize = 11;
/// Sweeps without news, one a second, before memory is read.
const QUIET: Duration = Duration::from_secs(20);
/// Resident memory while nothing happens, in KiB.
const MEMORY_AIM_KIB: u64 = 25 * 1024;
/// Own share of a recovery, at the 99th percentile.
const RECOVERY_AIM: Duration = Duration::from_millis(250);
/// An aim that is missed by more than this fails the bench.
const PATIENCE: u32 = 2;
/// The longest that any one thing is waited for.
const DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of the largest CreateJob that is taken.
const BODY_LIMIT_BYTES: usize = 1024 * 1024;
/// Appends that are synced to learn how fast the disk is.
const SYNCS: usize = 200;

/// Recorded answers of GetJob. A job is shown with one of them, its own fields put in.
const RUNNING: &str = include_str!("../tests/data/dlc-golden/responses/get_job.running.json");
const FAILED: &str =
    include_str!("../tests/data/dlc-golden/responses/get_job.failed_plain_137.INFERRED.json");

/// What the stand-in plays one attempt as.
#[derive(Debug, Clone, Copy)]
enum Played {
    Running,
    /// The machine was taken back, that of `together` jobs at one time.
    Released {
        at: WallTime,
        together: usize,
    },
}

/// One attempt, as the stand-in has it.
#[derive(Debug)]
struct Virtual {
    id: String,
    job: String,
    body: Value,
    created: WallTime,
    played: Played,
    /// When an answer of ListJobs first showed it as it is played now.
    listed: Option<Instant>,
    /// When GetJob was first asked about it as it is played now.
    asked: Option<Instant>,
}

/// One recovery.
#[derive(Debug, Clone, Copy)]
struct Sample {
    together: usize,
    until_get_job: Duration,
    until_create_job: Duration,
}

#[derive(Debug, Default)]
struct World {
    attempts: Vec<Virtual>,
    /// Step of the newest checkpoint of each job.
    steps: BTreeMap<String, u64>,
    samples: Vec<Sample>,
    /// What should not have happened: such figures would be worth nothing.
    faults: Vec<String>,
}

/// The stand-in. Clones are the same one.
#[derive(Debug, Clone, Default)]
struct Cloud {
    world: Arc<Mutex<World>>,
    /// Rung after each call.
    bell: Arc<Notify>,
}

impl Cloud {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves on a free port of loopback; gives the base URL.
    async fn serve(&self) -> Result<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new()
            .route("/api/v1/jobs", get(list_jobs).post(create_job))
            .route("/api/v1/jobs/{id}", get(get_job))
            .route("/api/v1/jobs/{id}/stop", post(stop_job))
            .route("/api/v1/jobs/{id}/pods/{pod}/logs", get(get_pod_logs))
            .with_state(self.clone());
        // A last packet that waits for an acknowledgement would count as the daemon's time.
        let listener = listener.tap_io(|stream| {
            stream.set_nodelay(true).ok();
        });
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(url)
    }

    /// Waits until `holds`.
    async fn until(&self, what: &str, holds: impl Fn(&World) -> bool) -> Result<()> {
        let rung = async {
            while !holds(&self.world()) {
                self.bell.notified().await;
            }
        };
        tokio::time::timeout(DEADLINE, rung)
            .await
            .with_context(|| format!("waiting for {what}"))?;
        let world = self.world();
        ensure!(world.faults.is_empty(), "{}", world.faults.join("\n"));
        Ok(())
    }
}

impl World {
    fn newest(&self, job: &str) -> Option<&Virtual> {
        self.attempts.iter().rev().find(|attempt| attempt.job == job)
    }

    /// Whether every job runs, and the daemon has asked for it in full since then.
    fn all_run(&self) -> bool {
        let runs = |a: &Virtual| matches!(a.played, Played::Running) && a.asked.is_some();
        (0..JOBS).all(|n| self.newest(&name(n)).is_some_and(runs))
    }

    fn note(&mut self, fault: String) -> Response {
        self.faults.push(fault);
        StatusCode::BAD_REQUEST.into_response()
    }
}

impl Virtual {
    /// As GetJob and ListJobs show it.
    fn view(&self) -> Result<Value> {
        let template = match self.played {
            Played::Running => RUNNING,
            Played::Released { .. } => FAILED,
        };
        let mut view: Value = serde_json::from_str(template)?;
        let created = self.created.to_string();
        for field in ["GmtCreateTime", "GmtSubmittedTime", "GmtRunningTime"] {
            view[field] = json!(created);
        }
        if let Played::Released { at, .. } = self.played {
            view["GmtFinishTime"] = json!(at.to_string());
            view["GmtFailedTime"] = json!(at.to_string());
            view["Duration"] = json!(at.since(self.created).as_secs());
        }
        view["JobId"] = json!(self.id);
        view["Pods"][0]["PodId"] = json!(format!("{}-worker-0", self.id));
        view["Settings"]["Tags"] = self.body["Settings"]["Tags"].clone();
        for field in ["DisplayName", "Envs", "JobSpecs", "UserCommand", "WorkspaceId"] {
            view[field] = self.body[field].clone();
        }
        view["CustomEnvs"] = json!([]);
        Ok(view)
    }
}

fn name(n: usize) -> String {
    format!("job-{n}")
}

fn answer(value: &Value) -> Response {
    ([("content-type", "application/json")], value.to_string()).into_response()
}

async fn list_jobs(
    State(cloud): State<Cloud>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<usize>().ok());
    let (page, size) = (number("PageNumber").unwrap_or(1), number("PageSize").unwrap_or(10));
    let part = query.get("DisplayName").map_or("", String::as_str);
    let start = query.get("StartTime").and_then(|text| WallTime::parse(text));
    let mut world = cloud.world();
    let meant = world.attempts.iter().enumerate().filter(|(_, attempt)| {
        attempt.body["DisplayName"].as_str().is_some_and(|name| name.contains(part))
            && start.is_none_or(|start| attempt.created >= start)
    });
    let meant: Vec<usize> = meant.map(|(at, _)| at).collect();
    let shown: Vec<usize> =
        meant.iter().copied().skip(page.saturating_sub(1) * size).take(size).collect();
    let rows: Result<Vec<Value>> = shown.iter().map(|at| world.attempts[*at].view()).collect();
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return world.note(format!("ListJobs: {error}")),
    };
    let response = answer(&json!({ "Jobs": rows, "RequestId": "r", "TotalCount": meant.len() }));
    let now = Instant::now();
    for at in shown {
        world.attempts[at].listed.get_or_insert(now);
    }
    cloud.bell.notify_one();
    response
}

async fn get_job(State(cloud): State<Cloud>, UrlPath(id): UrlPath<String>) -> Response {
    let arrived = Instant::now();
    let mut world = cloud.world();
    let Some(at) = world.attempts.iter().position(|attempt| attempt.id == id) else {
        return world.note(format!("GetJob of {id}, which there is not"));
    };
    world.attempts[at].asked.get_or_insert(arrived);
    cloud.bell.notify_one();
    match world.attempts[at].view() {
        Ok(view) => answer(&view),
        Err(error) => world.note(format!("GetJob: {error}")),
    }
}

async fn create_job(State(cloud): State<Cloud>, request: Request) -> Response {
    let arrived = Instant::now();
    let body = axum::body::to_bytes(request.into_body(), BODY_LIMIT_BYTES).await;
    let mut world = cloud.world();
    cloud.bell.notify_one();
    let body: Value = match body.map(|bytes| serde_json::from_slice(&bytes)) {
        Ok(Ok(body)) => body,
        Ok(Err(error)) => return world.note(format!("CreateJob: {error}")),
        Err(error) => return world.note(format!("CreateJob: {error}")),
    };
    let env = |name: &str| body["Envs"][name].as_str().unwrap_or_default().to_owned();
    let job = env("SPOTKEEPER_JOB");
    let step = world.steps.get(&job).map(u64::to_string).unwrap_or_default();
    if env("SPOTKEEPER_RESUME_STEP") != step {
        let found = env("SPOTKEEPER_RESUME_STEP");
        return world.note(format!("{job} starts from step `{found}`, its newest is `{step}`"));
    }
    match world.newest(&job).map(|before| (before.played, before.listed, before.asked)) {
        None => {}
        Some((Played::Released { together, .. }, Some(listed), Some(asked))) => {
            world.samples.push(Sample {
                together,
                until_get_job: asked.saturating_duration_since(listed),
                until_create_job: arrived.saturating_duration_since(listed),
            });
        }
        Some(_) => return world.note(format!("{job} was not yet shown as ended")),
    }
    let id = format!("dlc{:013}", world.attempts.len());
    world.attempts.push(Virtual {
        id: id.clone(),
        job,
        body,
        created: Clock::new().now().wall,
        played: Played::Running,
        listed: None,
        asked: None,
    });
    answer(&json!({ "JobId": id, "RequestId": "r" }))
}

async fn stop_job(State(cloud): State<Cloud>, UrlPath(id): UrlPath<String>) -> Response {
    cloud.world().note(format!("StopJob of {id}, which nobody wants"))
}

async fn get_pod_logs() -> Response {
    answer(&json!({ "Logs": ["step 1", "step 2"], "RequestId": "r" }))
}

/// The folder of one measurement, and what is in it.
struct Site {
    folder: tempfile::TempDir,
}

impl Site {
    /// Job files and empty checkpoint folders, on the disk that the build is on: a file system in
    /// memory would make every sync free.
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let site = Self { folder };
        fs::create_dir(site.at("jobs"))?;
        for n in 0..JOBS {
            fs::create_dir_all(site.checkpoints(&name(n)))?;
            let url = site.checkpoints(&name(n)).display().to_string();
            let text = format!(
                r#"
target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = "python train.py"
[[submit.JobSpecs]]
Type = "Worker"
Image = "registry/image:1"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.4
[checkpoint]
url = "file://{url}/"
path = "/mnt/ckpt"
format = "custom"
resume = "--resume-from {{path}}"
[checkpoint.custom]
pattern = "step-{{step}}"
required = ["model.bin"]
marker = "DONE"
"#
            );
            fs::write(site.at("jobs").join(format!("{}.toml", name(n))), text)?;
        }
        Ok(site)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn checkpoints(&self, job: &str) -> PathBuf {
        self.at("checkpoints").join(job)
    }

    fn write_checkpoint(&self, job: &str, step: u64) -> Result<()> {
        let folder = self.checkpoints(job).join(format!("step-{step}"));
        fs::create_dir(&folder)?;
        fs::write(folder.join("model.bin"), [7; 1024])?;
        Ok(fs::write(folder.join("DONE"), "")?)
    }

    /// Starts the daemon with `more` behind its one target.
    fn start(&self, endpoint: &str, more: &str) -> Result<Daemon> {
        let config = self.at("spotkeeper.toml");
        let text = format!(
            r#"
owner = "k3f9qz"
state_directory = "state"
jobs_directory = "jobs"
sweep = {{ interval = "1s" }}
api = {{ socket = "api.sock" }}
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "{endpoint}"
credentials = {{ environment = true }}
acceptance = "3s"
{more}"#
        );
        fs::write(&config, text)?;
        let log = File::options().create(true).append(true).open(self.at("log"))?;
        let child = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
            .args(["run", "--config"])
            .arg(&config)
            .env("ALIBABA_CLOUD_ACCESS_KEY_ID", "bench-key")
            .env("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "bench-secret")
            .stderr(log)
            .spawn()
            .context("start the daemon")?;
        Ok(Daemon { child })
    }

    /// The time of one small append and its sync, as the journal makes them: the median.
    fn sync_time(&self) -> Result<Duration> {
        let mut file = File::create(self.at("sync"))?;
        let mut times = Vec::new();
        for _ in 0..SYNCS {
            let start = Instant::now();
            file.write_all(&[1; 4096])?;
            file.sync_data()?;
            times.push(start.elapsed());
        }
        times.sort_unstable();
        Ok(quantile(&times, 50))
    }
}

/// The daemon as a process. Dropped, it is killed.
struct Daemon {
    child: Child,
}

impl Daemon {
    /// A `Vm…` line of /proc, in KiB.
    fn memory_kib(&self, line: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let found = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':'));
        let number = found.and_then(|rest| rest.split_whitespace().next());
        number.and_then(|text| text.parse().ok()).with_context(|| format!("no {line} in /proc"))
    }

    /// Asks it to end and waits for it.
    fn stop(mut self) -> Result<()> {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What was measured. Memory: now, and the highest so far.
struct Figures {
    sync: Duration,
    /// While nothing happens, with an HTTPS client.
    https_kib: [u64; 2],
    /// The same without it.
    idle_kib: [u64; 2],
    /// The same after all releases.
    after_kib: [u64; 2],
    samples: Vec<Sample>,
}

async fn measure(cloud: &Cloud, site: &Site) -> Result<Figures> {
    let sync = site.sync_time()?;
    let url = cloud.serve().await?;
    let memory = |daemon: &Daemon| -> Result<[u64; 2]> {
        Ok([daemon.memory_kib("VmRSS")?, daemon.memory_kib("VmHWM")?])
    };
    // Nobody answers at that port; the client and its CA certificates are there all the same.
    let far = "[targets.far]\nregion = \"cn-beijing\"\nworkspace = \"1\"\n\
               endpoint = \"https://127.0.0.1:9\"\ncredentials = { environment = true }\n";
    let daemon = site.start(&url, far)?;
    cloud.until("the first attempts", World::all_run).await?;
    tokio::time::sleep(QUIET).await;
    let https_kib = memory(&daemon)?;
    daemon.stop()?;
    let daemon = site.start(&url, "")?;
    tokio::time::sleep(QUIET).await;
    let idle_kib = memory(&daemon)?;
    release_again_and_again(cloud, site).await?;
    tokio::time::sleep(QUIET).await;
    let after_kib = memory(&daemon)?;
    daemon.stop()?;
    cloud.until("no fault", |_| true).await?;
    let samples = std::mem::take(&mut cloud.world().samples);
    Ok(Figures { sync, https_kib, idle_kib, after_kib, samples })
}

async fn release_again_and_again(cloud: &Cloud, site: &Site) -> Result<()> {
    let mut next = 0;
    for together in std::iter::repeat_n(TOGETHER, CYCLES).flatten() {
        let jobs: Vec<String> = (next..next + together).map(|n| name(n % JOBS)).collect();
        next += together;
        {
            let mut world = cloud.world();
            for job in &jobs {
                let step = world.steps.entry(job.clone()).or_insert(0);
                *step += 100;
                site.write_checkpoint(job, *step)?;
            }
            let at = Clock::new().now().wall;
            for job in &jobs {
                let newest = world.attempts.iter_mut().rev().find(|a| a.job == *job);
                let attempt = newest.context("every job has an attempt")?;
                attempt.played = Played::Released { at, together };
                (attempt.listed, attempt.asked) = (None, None);
            }
        }
        cloud.until("the next attempts", World::all_run).await?;
    }
    Ok(())
}

/// The smallest of sorted times that `percent` of them do not exceed.
fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Prints one line of times and gives the 99th percentile.
fn tell_times(what: &str, times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let shown = |percent| format!("{:.1}", quantile(&times, percent).as_secs_f64() * 1000.0);
    let [least, median, most] = [shown(0), shown(50), shown(100)];
    let count = times.len();
    println!("{what:<36}{count:>5}{least:>9}{median:>9}{:>9}{most:>9}", shown(99));
    quantile(&times, 99)
}

fn tell(figures: &Figures) -> ExitCode {
    println!("\nmemory of the daemon, {JOBS} jobs Running      VmRSS KiB   VmHWM KiB");
    for (what, [now, highest]) in [
        ("after 20 s of sweeps without news", figures.idle_kib),
        ("the same, with an HTTPS client", figures.https_kib),
        ("the same, after all releases, without it", figures.after_kib),
    ] {
        println!("{what:<44}{now:>11}{highest:>12}");
    }
    println!("\nrelease -> CreateJob, own share, ms    n      min   median      p99      max");
    let all = figures.samples.iter();
    let p99 = tell_times("all", all.clone().map(|s| s.until_create_job));
    for together in [1, 2, 5, JOBS] {
        let these = all.clone().filter(|s| s.together == together);
        tell_times(&format!("  {together} at one time"), these.map(|s| s.until_create_job));
    }
    tell_times("  of it, all: until GetJob", all.map(|s| s.until_get_job));
    println!(
        "\none append and its sync on this disk: {:.1} ms",
        figures.sync.as_secs_f64() * 1000.0
    );
    let idle = figures.idle_kib[0].max(figures.https_kib[0]);
    println!("aims: {MEMORY_AIM_KIB} KiB while idle, {} ms at p99", RECOVERY_AIM.as_millis());
    let missed = idle > MEMORY_AIM_KIB * u64::from(PATIENCE) || p99 > RECOVERY_AIM * PATIENCE;
    if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run() -> Result<ExitCode> {
    let load = || fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let before = load();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (cloud, site) = (Cloud::default(), Site::new()?);
    let figures = runtime.block_on(measure(&cloud, &site)).with_context(|| {
        let log = fs::read_to_string(site.at("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(20).collect();
        format!("the daemon's last lines, newest first:\n{}", lines.join("\n"))
    })?;
    let asked = TOGETHER.iter().sum::<usize>() * CYCLES;
    let found = figures.samples.len();
    if found != asked {
        bail!("{found} recoveries were measured, {asked} were caused");
    }
    let code = tell(&figures);
    println!("load average before: {}load average after:  {}", before, load());
    Ok(code)
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
