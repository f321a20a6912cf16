//! A supervisor in this process, on an emulator of virtual jobs and a store in memory: it looks
//! five times a second, and a job's checkpoints are written by the test.

use crate::emulator_client::World;
use serde_json::{Value, json};
use spotkeeper::config::{Surroundings, load_daemon};
use spotkeeper::emulator::{Options as CloudOptions, RunAs};
use spotkeeper::model::handle::{ActVerb, Handle, Refusal, Request};
use spotkeeper::service::clock::Clock;
use spotkeeper::store::memory::MemoryHome;
use spotkeeper::store::{self, MemoryDisk, Options, Store};
use spotkeeper::supervisor::{Settings, Supervisor};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Time in which a CreateJob that must not come would come: several passes.
pub(super) const SEVERAL_PASSES: Duration = Duration::from_millis(1_500);
/// Time between two looks, seconds.
pub(super) const LOOK_EVERY_S: f64 = 0.2;

/// The supervisor that runs.
struct Watch {
    door: Handle,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

pub(super) struct Outpost {
    pub(super) cloud: World,
    pub(super) folder: TempDir,
    disk: MemoryDisk,
    home: MemoryHome,
    owner: &'static str,
    /// The cloud that it looks at.
    url: String,
    targets: String,
    watch: Option<Watch>,
}

/// A job that is sent from zero and never saves.
pub(super) fn plain(more: &str) -> String {
    job_text("", "", more)
}

/// `top` before `[submit]`, `body` below it, `more` after all.
pub(super) fn job_text(top: &str, body: &str, more: &str) -> String {
    format!(
        r#"target = "here"
{top}
[submit]
JobType = "PyTorchJob"
UserCommand = "python train.py {{resume}}"
{body}
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[spot]
discount_limit = 0.4
{more}
"#
    )
    .replace(" {resume}", if more.contains("[checkpoint]") { " {resume}" } else { "" })
}

impl Outpost {
    /// With an emulator as `change` makes it, and these job files.
    pub(super) async fn start(jobs: &[(&str, String)]) -> Self {
        Self::with(|_| (), "", jobs).await
    }

    /// `targets` are more of them, `URL` in it is the emulator's.
    pub(super) async fn with(
        change: impl FnOnce(&mut CloudOptions),
        targets: &str,
        jobs: &[(&str, String)],
    ) -> Self {
        let cloud = World::with(|options| {
            options.run_as = RunAs::Virtual;
            change(options);
        });
        let mut outpost = Self::before(cloud.await, "outpst", targets);
        for (name, text) in jobs {
            outpost.put(name, text);
        }
        outpost.begin().await;
        outpost
    }

    /// An outpost whose supervisor was not started yet.
    pub(super) fn before(cloud: World, owner: &'static str, targets: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let keys = folder.path().join("keys.toml");
        std::fs::write(&keys, "access_key_id = \"id\"\naccess_key_secret = \"secret\"\n")
            .expect("written");
        std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).expect("its mode");
        std::fs::create_dir(folder.path().join("jobs.d")).expect("a folder");
        let (disk, home) = (MemoryDisk::default(), MemoryHome::default());
        let targets = targets.replace("URL", &cloud.running.url());
        let url = cloud.running.url();
        Self { cloud, folder, disk, home, owner, url, targets, watch: None }
    }

    /// Has it look at another cloud than its own.
    pub(super) fn look_at(&mut self, url: &str) {
        url.clone_into(&mut self.url);
    }

    /// Bytes left on the store's disk; `None` is enough.
    pub(super) fn disk_bytes(&self, free: Option<usize>) {
        self.disk.set_free_bytes(free);
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("jobs.d").join(format!("{name}.toml"))
    }

    /// Writes a job file, whole at once.
    pub(super) fn put(&self, name: &str, text: &str) {
        let hidden = self.folder.path().join("jobs.d/.new");
        std::fs::write(&hidden, text).expect("written");
        std::fs::rename(hidden, self.file(name)).expect("renamed");
    }

    /// The text of a job that resumes from the checkpoints that [`Self::save`] writes.
    pub(super) fn saving(&self, name: &str) -> String {
        self.saving_at(name, "")
    }

    pub(super) fn saving_at(&self, name: &str, body: &str) -> String {
        let folder = self.folder.path().join(format!("ck-{name}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        job_text("", body, &checkpoints(&folder.display().to_string()))
    }

    /// A whole checkpoint.
    pub(super) fn save(&self, name: &str, step: u64) {
        let checkpoint = self.folder.path().join(format!("ck-{name}/step-{step}"));
        std::fs::create_dir_all(&checkpoint).expect("a folder");
        std::fs::write(checkpoint.join("model.bin"), "weights").expect("written");
    }

    /// Starts the supervisor on the state that there is.
    pub(super) async fn begin(&mut self) {
        assert!(self.watch.is_none(), "one at a time");
        let daemon = format!(
            r#"owner = "{}"
state_directory = "state"
jobs_directory = "jobs.d"
[sweep]
interval = "200ms"
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "{}"
credentials = {{ file = "keys.toml" }}
acceptance = "1s"
{}"#,
            self.owner, self.url, self.targets
        );
        let path = self.folder.path().join("spotkeeper.toml");
        std::fs::write(&path, daemon).expect("written");
        let file = load_daemon(&path, &Surroundings::default());
        let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).clone();
        let owner = config.owner.clone().expect("an owner");
        let (disk, mut home) = (self.disk.clone(), self.home.clone());
        let open = move || Store::open_on(Box::new(disk.clone()), &mut home, Options::default());
        let opened = store::Handle::start(open).await.expect("a store");
        let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
        let (stop, stopped) = watch::channel(false);
        let supervisor = Supervisor::on_store(settings, opened, stopped).await.expect("it loads");
        let door = supervisor.handle();
        let task = tokio::spawn(async move {
            supervisor.run().await;
        });
        self.watch = Some(Watch { door, stop, task });
    }

    /// Loses the state.
    pub(super) fn forget(&mut self) {
        assert!(self.watch.is_none(), "it runs");
        (self.disk, self.home) = (MemoryDisk::default(), MemoryHome::default());
    }

    /// Ends the supervisor; its state stays.
    pub(super) async fn end(&mut self) {
        let watch = self.watch.take().expect("it runs");
        watch.stop.send(true).expect("it runs");
        watch.task.await.expect("it ended well");
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> T {
        let (reply, answer) = oneshot::channel();
        let door = &self.watch.as_ref().expect("it runs").door;
        door.send(request(reply)).await.expect("the driver is there");
        answer.await.expect("an answer")
    }

    /// The rows of `ps -o json`.
    pub(super) async fn rows(&self) -> Vec<Value> {
        let rows = self.ask(Request::Jobs).await;
        rows.iter().map(|row| json!(row)).collect()
    }

    /// A job's row; `null` before it is on record.
    pub(super) async fn row(&self, name: &str) -> Value {
        self.rows().await.into_iter().find(|row| row["name"] == name).unwrap_or_default()
    }

    /// `describe -o json`.
    pub(super) async fn page(&self, name: &str) -> Value {
        let page = self.ask(|reply| Request::Job { name: name.to_owned(), reply }).await;
        json!(page.expect("a page"))
    }

    /// `why -o json`.
    pub(super) async fn why(&self, name: &str) -> Value {
        let ask = |reply| Request::Why { name: name.to_owned(), attempt: None, reply };
        json!(self.ask(ask).await.expect("a reason"))
    }

    /// `evidence -o json`; `null` if there is none.
    pub(super) async fn evidence(&self, name: &str, attempt: u32) -> Value {
        let attempt = Some(attempt);
        let ask = |reply| Request::Evidence { name: name.to_owned(), attempt, reply };
        self.ask(ask).await.map_or(Value::Null, |evidence| json!(evidence))
    }

    /// What `version -o json` says of the daemon.
    pub(super) async fn daemon(&self) -> Value {
        json!(self.ask(Request::Daemon).await)
    }

    /// Sentences of a word's events, of all jobs.
    pub(super) async fn told(&self, word: &str) -> Vec<String> {
        let ask = |reply| Request::Events { job: None, after: 0, limit: 1_000, reply };
        let page = self.ask(ask).await.expect("events");
        let events = page.events.into_iter().filter(|event| event.word == word);
        events.map(|event| event.text).collect()
    }

    pub(super) async fn act(&self, name: &str, verb: ActVerb) -> Result<(), Refusal> {
        let names = vec![name.to_owned()];
        self.ask(|reply| Request::Act { names, verb, reply }).await.map(|_| ())
    }

    /// Waits until a job's row is so.
    pub(super) async fn until(&self, name: &str, what: &str, is_so: impl Fn(&Value) -> bool) {
        let mut row = Value::Null;
        for _ in 0..4_500 {
            row = self.row(name).await;
            if is_so(&row) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let refused = self.daemon().await["refused_files"].clone();
        panic!(
            "waited in vain until {name} {what}: {row:#} {refused:#} {:#?}",
            self.cloud.ledger()
        );
    }

    /// Waits until the attempt of this number runs.
    pub(super) async fn until_runs(&self, name: &str, attempt: u32) {
        let is_so = |row: &Value| {
            row["phase"] == "RUNNING" && row["attempts"] == attempt && row["stale"] == false
        };
        self.until(name, &format!("runs as attempt {attempt}"), is_so).await;
    }

    pub(super) async fn faults(&self, rules: &Value) {
        let (status, told) = self.cloud.admin("PUT", "/emulator/faults", rules).await;
        assert_eq!(status, 200, "{told}");
    }

    /// How often the rule of this place acted, of those that may act a million times.
    pub(super) async fn acted(&self, rule: usize) -> u64 {
        let (_, told) = self.cloud.admin("GET", "/emulator/faults", &json!([])).await;
        let rules: Value = serde_json::from_str(&told).expect("JSON");
        1_000_000 - rules[rule]["times"].as_u64().expect("a rule with `times`")
    }

    /// Lines of the ledger of one kind, of a job.
    pub(super) fn ledger(&self, name: &str, event: &str) -> Vec<Value> {
        let prefix = format!("{name}.sk");
        let is_it = |line: &Value| {
            let of = line["display_name"].as_str().unwrap_or_default();
            line["event"] == event && of.starts_with(&prefix)
        };
        self.cloud.ledger().into_iter().filter(is_it).collect()
    }

    pub(super) fn creates(&self, name: &str) -> usize {
        self.ledger(name, "create").len()
    }

    /// The id of a job's newest submission.
    pub(super) fn id(&self, name: &str) -> String {
        let last = self.ledger(name, "create").pop().expect("a created job");
        last["job_id"].as_str().expect("an id").to_owned()
    }

    /// The body of a job's newest submission.
    pub(super) fn sent(&self, name: &str) -> Value {
        let last = self.ledger(name, "create").pop().expect("a created job");
        let path = self.cloud.folder.path().join(last["request"].as_str().expect("a file"));
        serde_json::from_str(&std::fs::read_to_string(path).expect("a kept request")).expect("JSON")
    }

    /// Takes the machine of a job's newest submission away.
    pub(super) async fn release(&self, name: &str) {
        let path = format!("/emulator/release/{}", self.id(name));
        let (status, told) = self.cloud.admin("POST", &path, &json!({})).await;
        assert_eq!(status, 200, "{told}");
    }

    /// Never two attempts of a job that have not ended, by the ledger alone.
    pub(super) fn assert_never_two(&self) {
        let mut open: Vec<String> = Vec::new();
        for line in self.cloud.ledger() {
            let name = line["display_name"].as_str().unwrap_or_default();
            let name = name.split(".sk").next().unwrap_or_default().to_owned();
            if line["event"] == "create" {
                assert!(!open.contains(&name), "two attempts of {name}: {line}");
                open.push(name);
            } else if line["event"] == "end" {
                open.retain(|other| *other != name);
            }
        }
    }
}

/// The table of checkpoints that are folders named by their step, below a folder.
pub(super) fn checkpoints(folder: &str) -> String {
    let url = serde_json::to_string(&format!("file://{folder}")).expect("text");
    format!(
        r#"[checkpoint]
url = {url}
format = "custom"
settle = "400ms"
settle_interval = "200ms"
[checkpoint.custom]
pattern = "step-{{step}}"
required = ["model.bin"]
"#
    )
}

impl Outpost {
    /// Waits until the cloud has ended a job's newest submission, whoever sees it.
    pub(super) async fn cloud_ends(&self, name: &str) {
        let ended = self.ledger(name, "create").len();
        while self.ledger(name, "end").len() < ended {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
