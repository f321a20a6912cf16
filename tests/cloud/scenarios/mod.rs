//! Public complaints about supervised jobs, one test a row: docs/scenarios.md lists them. A row's
//! number stands in the test's name, its demand in the test's comment.
//!
//! Each test has a stage of its own: an emulator whose jobs are records alone, and the supervisor
//! in this process on a store in memory that outlives a restart. The emulator's ledger judges what
//! happened; what a person would see is read as the JSON that the API gives.

mod acts;
mod blindness;
mod cancels;
mod hangs;
mod late;
mod odds;
mod outpost;
mod readiness;
mod state;
mod submission;
mod verdicts;
mod waiting;

use crate::emulator_client::World;
use crate::supervisor_no_space::until;
use serde_json::{Value, json};
use spotkeeper::config::{Surroundings, load_daemon};
use spotkeeper::emulator::{Options, RunAs};
use spotkeeper::model::handle::{ActVerb, Handle, Refusal, Request};
use spotkeeper::service::clock::Clock;
use spotkeeper::store::memory::MemoryHome;
use spotkeeper::store::{self, MemoryDisk, Store};
use spotkeeper::supervisor::{Settings, Supervisor};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// How long the daemon believes that a signed CreateJob can be accepted. A new store waits it out.
pub(crate) const ACCEPTANCE: Duration = Duration::from_millis(300);
/// Time in which a second CreateJob would come: several passes, and the acceptance.
pub(crate) const SEVERAL_PASSES: Duration = Duration::from_millis(900);

/// Time between two looks at what a test waits for, and how many there are: far more than anything
/// takes on a busy machine.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS: u32 = 1_500;

/// A job file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Job {
    /// `Envs` of the body, such as `EMULATOR_RUN_SECONDS = "1"`.
    pub(crate) envs: &'static str,
    /// More lines before the first table.
    pub(crate) top: String,
    /// More lines of `[submit]`.
    pub(crate) submit: &'static str,
    /// More tables at the end.
    pub(crate) tables: &'static str,
    /// Pods besides the first.
    pub(crate) more_pods: u32,
    /// Folder of checkpoints below the stage's `bucket`; none if empty.
    pub(crate) saves: &'static str,
}

pub(crate) struct Stage {
    pub(crate) cloud: World,
    pub(crate) folder: TempDir,
    disk: MemoryDisk,
    home: MemoryHome,
    daemon: Option<Daemon>,
}

struct Daemon {
    door: Handle,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
}

impl Stage {
    /// An emulator with the default options and a daemon file; the daemon is not started.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// The same with other options of the emulator.
    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let cloud = World::with(|options| {
            options.run_as = RunAs::Virtual;
            change(options);
        });
        let cloud = cloud.await;
        let folder = tempfile::tempdir().expect("a folder");
        let keys = folder.path().join("keys.toml");
        std::fs::write(&keys, "access_key_id = \"id\"\naccess_key_secret = \"secret\"\n")
            .expect("written");
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        for name in ["jobs.d", "bucket"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let (disk, home) = (MemoryDisk::default(), MemoryHome::default());
        let stage = Self { cloud, folder, disk, home, daemon: None };
        stage.put_daemon_file(ACCEPTANCE, "");
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes the daemon file, with more lines in its target.
    pub(crate) fn put_daemon_file(&self, acceptance: Duration, target: &str) {
        let text = format!(
            r#"owner = "scenes"
state_directory = "state"
jobs_directory = "jobs.d"
[sweep]
interval = "100ms"
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "{}"
credentials = {{ file = "keys.toml" }}
acceptance = "{}ms"
{target}
"#,
            self.cloud.running.url(),
            acceptance.as_millis()
        );
        std::fs::write(self.path("spotkeeper.toml"), text).expect("written");
    }

    /// Writes `jobs.d/NAME.toml`.
    pub(crate) fn put_job(&self, name: &str, job: &Job) {
        let Job { envs, top, submit, tables, more_pods, saves } = job;
        let pods = more_pods + 1;
        let mut text = format!(
            r#"target = "here"
{top}
[submit]
JobType = "PyTorchJob"
UserCommand = "python train.py"
Envs = {{ {envs} }}
{submit}
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = {pods}
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.4
{tables}
"#
        );
        if !saves.is_empty() {
            let url = self.path(&format!("bucket/{saves}"));
            std::fs::create_dir_all(&url).expect("a folder");
            let url = url.display();
            let table = format!(
                r#"[checkpoint]
url = "file://{url}"
format = "custom"
settle = "200ms"
settle_interval = "100ms"
[checkpoint.custom]
pattern = "step-{{step}}"
required = ["model.bin"]
"#
            );
            text.push_str(&table);
        }
        let hidden = self.path(&format!("jobs.d/.{name}.new"));
        std::fs::write(&hidden, text).expect("written");
        std::fs::rename(hidden, self.path(&format!("jobs.d/{name}.toml"))).expect("renamed");
    }

    /// Writes a whole checkpoint of a job with `saves`.
    pub(crate) fn save(&self, saves: &str, step: u64) {
        let checkpoint = self.path(&format!("bucket/{saves}/step-{step}"));
        std::fs::create_dir_all(&checkpoint).expect("a folder");
        std::fs::write(checkpoint.join("model.bin"), "weights").expect("written");
    }

    /// Starts a daemon on the store as it is.
    pub(crate) async fn start(&mut self) {
        assert!(self.daemon.is_none(), "one daemon at a time");
        let file = load_daemon(&self.path("spotkeeper.toml"), &Surroundings::default());
        let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).clone();
        let owner = config.owner.clone().expect("an owner");
        let (disk, mut home) = (self.disk.clone(), self.home.clone());
        let open =
            move || Store::open_on(Box::new(disk.clone()), &mut home, store::Options::default());
        let opened = store::Handle::start(open).await.expect("a store");
        let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
        let (stop, stopped) = watch::channel(false);
        let mut supervisor =
            Supervisor::on_store(settings, opened, stopped).await.expect("it loads");
        if self.path("state/starts").exists() {
            supervisor.count_start();
        }
        let door = supervisor.handle();
        let running = tokio::spawn(supervisor.run());
        self.daemon = Some(Daemon { door, stop, running });
    }

    /// Ends the daemon as a signal would.
    pub(crate) async fn stop(&mut self) {
        let daemon = self.daemon.take().expect("a daemon");
        daemon.stop.send(true).expect("it runs");
        daemon.running.await.expect("it ends");
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Request) -> T {
        let (reply, answer) = oneshot::channel();
        let daemon = self.daemon.as_ref().expect("a daemon");
        daemon.door.send(question(reply)).await.expect("the driver is there");
        answer.await.expect("an answer")
    }

    /// The JSON of `ps`.
    pub(crate) async fn rows(&self) -> Vec<Value> {
        let rows = self.ask(Request::Jobs).await;
        rows.iter().map(|row| serde_json::to_value(row).expect("JSON")).collect()
    }

    /// The row of one job; `null` before it is on record.
    pub(crate) async fn row(&self, name: &str) -> Value {
        let rows = self.rows().await;
        rows.into_iter().find(|row| row["name"] == name).unwrap_or_default()
    }

    /// The JSON of `describe`.
    pub(crate) async fn page(&self, name: &str) -> Value {
        let page = self.ask(|reply| Request::Job { name: name.to_owned(), reply }).await;
        serde_json::to_value(page.expect("a job")).expect("JSON")
    }

    /// The JSON of `why`.
    pub(crate) async fn why(&self, name: &str) -> Value {
        let name = name.to_owned();
        let why = self.ask(|reply| Request::Why { name, attempt: None, reply }).await;
        serde_json::to_value(why.expect("a job")).expect("JSON")
    }

    /// The JSON of `daemon`.
    pub(crate) async fn daemon(&self) -> Value {
        serde_json::to_value(self.ask(Request::Daemon).await).expect("JSON")
    }

    /// The JSON of `readyz?verbose`.
    pub(crate) async fn ready(&self) -> Value {
        serde_json::to_value(self.ask(Request::Ready).await).expect("JSON")
    }

    /// One of its checks.
    pub(crate) async fn check(&self, name: &str) -> Value {
        let ready = self.ready().await;
        let mut checks = ready["checks"].as_array().expect("a list").iter();
        checks.find(|check| check["name"] == name).cloned().unwrap_or_default()
    }

    /// A line of `/metrics`, by all that stands before its figure.
    pub(crate) async fn figure(&self, line: &str) -> Option<f64> {
        let page = self.ask(Request::Metrics).await.render();
        let mut found = page.lines().filter_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
        found.next().map(|figure| figure.parse().expect("a figure"))
    }

    /// The events of one job with this word, oldest first.
    pub(crate) async fn events(&self, name: &str, word: &str) -> Vec<Value> {
        let job = Some(name.to_owned());
        let page = self.ask(|reply| Request::Events { job, after: 0, limit: 1_000, reply }).await;
        let page = serde_json::to_value(page.expect("events")).expect("JSON");
        let events = page["events"].as_array().expect("a list").iter();
        events.filter(|event| event["word"] == word).cloned().collect()
    }

    /// A person's act on jobs; all that are not over if `names` is empty.
    pub(crate) async fn act(&self, names: &[&str], verb: ActVerb) -> Result<Value, Refusal> {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let reports = self.ask(|reply| Request::Act { names, verb, reply }).await?;
        Ok(serde_json::to_value(reports).expect("JSON"))
    }

    /// Waits until the row of a job is so.
    pub(crate) async fn until(&self, what: &str, name: &str, is_so: impl Fn(&Value) -> bool) {
        let mut row = Value::Null;
        for _ in 0..LOOKS {
            row = self.row(name).await;
            if is_so(&row) {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
        panic!("{name}: waited in vain until {what}: {row}");
    }

    pub(crate) async fn until_phase(&self, name: &str, phase: &str) {
        self.until(phase, name, |row| row["phase"] == phase).await;
    }

    /// Waits until the ledger has so many lines of this event.
    pub(crate) async fn until_count(&self, event: &str, count: usize) {
        until(&format!("{count} {event} in the ledger"), || async { self.count(event) >= count })
            .await;
    }

    /// Lines of one event in the emulator's ledger.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.lines(event).len()
    }

    /// The same as JSON.
    pub(crate) fn lines(&self, event: &str) -> Vec<Value> {
        let path = self.cloud.folder.path().join("ledger.jsonl");
        let text = std::fs::read_to_string(path).expect("a ledger");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().map(|line| serde_json::from_str(line).expect("a JSON line"));
        lines.filter(|line: &Value| line["event"] == event).collect()
    }

    /// Ids of the jobs that were created with `name` before the mark, oldest first.
    pub(crate) fn ids(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}.sk");
        let created = self.lines("create").into_iter();
        let named = created.filter(|line| {
            line["display_name"].as_str().is_some_and(|shown| shown.starts_with(&prefix))
        });
        named.map(|line| line["job_id"].as_str().expect("an id").to_owned()).collect()
    }

    /// The last id of these.
    pub(crate) fn id(&self, name: &str) -> String {
        self.ids(name).pop().expect("a created job")
    }

    /// The first promise, by the ledger alone: no job is created while another of its name has not
    /// ended.
    pub(crate) fn assert_never_two(&self) {
        let path = self.cloud.folder.path().join("ledger.jsonl");
        let text = std::fs::read_to_string(path).expect("a ledger");
        let mut open: Vec<(String, String)> = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).expect("a JSON line");
            let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            match line["event"].as_str() {
                Some("create") => {
                    let shown = word("display_name");
                    let name = shown.rsplit_once(".sk").map_or("", |(name, _)| name).to_owned();
                    let twin = open.iter().find(|(_, other)| *other == name);
                    assert!(twin.is_none(), "{shown} was created while {twin:?} had not ended");
                    open.push((word("job_id"), name));
                }
                Some("end") => open.retain(|(id, _)| *id != word("job_id")),
                _ => {}
            }
        }
    }

    /// Replaces the rules for what calls suffer.
    pub(crate) async fn faults(&self, rules: Value) {
        let (status, body) = self.cloud.admin("PUT", "/emulator/faults", &rules).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Takes the machine of a job back, and lets it look as `dialect` does.
    pub(crate) async fn release(&self, id: &str, dialect: &str) {
        let path = format!("/emulator/release/{id}?dialect={dialect}");
        let (status, body) = self.cloud.admin("POST", &path, &json!({})).await;
        assert_eq!(status, 200, "{body}");
    }

    /// Shows these jobs alone, and as they stand here, until the faults are replaced. Of several,
    /// GetJob fails and the rows of ListJobs speak for themselves.
    pub(crate) async fn show(&self, jobs: &[Value]) {
        let list = json!({ "TotalCount": jobs.len(), "Jobs": jobs, "RequestId": "r" });
        let get = match jobs {
            [one] => json!({ "call": "GetJob", "status": 200, "body": one.to_string() }),
            _ => json!({ "call": "GetJob", "status": 500, "body": "busy" }),
        };
        let list = json!({ "call": "ListJobs", "status": 200, "body": list.to_string() });
        self.faults(json!([get, list])).await;
    }

    /// Ends these jobs by a stop that nobody sees, and shows each as its last answer with the fields
    /// beside it put over: an end in words that no release of the emulator has.
    pub(crate) async fn end_as(&self, ends: &[(&str, Value)]) {
        let mut jobs = Vec::new();
        for (id, _) in ends {
            jobs.push(self.cloud.get(id).await);
        }
        self.show(&jobs).await;
        let before = self.count("end");
        for (id, _) in ends {
            self.cloud.stop(id).await;
        }
        self.until_count("end", before + ends.len()).await;
        for (job, (_, change)) in jobs.iter_mut().zip(ends) {
            put_over(job, change);
        }
        self.show(&jobs).await;
    }

    /// Ends both.
    pub(crate) async fn end(mut self) {
        if self.daemon.is_some() {
            self.stop().await;
        }
        self.cloud.running.shutdown().await;
    }
}

/// Puts fields over those of a job.
pub(crate) fn put_over(job: &mut Value, change: &Value) {
    let fields = change.as_object().expect("fields").clone();
    job.as_object_mut().expect("a job").extend(fields);
}
