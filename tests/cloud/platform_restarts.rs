//! The supervisor against a cloud that restarts a job itself, holds its machine after the result and
//! uses words that nobody knows: nothing is created beside it, and a pinned attempt goes on from the
//! newest whole checkpoint.

use axum::extract::{Path as At, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use spotkeeper::config::{Surroundings, load_daemon};
use spotkeeper::model::handle::{Handle, Request};
use spotkeeper::model::view::JobRow;
use spotkeeper::service::clock::Clock;
use spotkeeper::store::memory::MemoryHome;
use spotkeeper::store::{self, MemoryDisk, Options, Store};
use spotkeeper::supervisor::{Settings, Supervisor};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

/// Time in which a CreateJob that must not come would come: several passes.
const SEVERAL_PASSES: Duration = Duration::from_secs(1);

/// The jobs of a cloud that does what the test says.
#[derive(Debug, Clone, Default)]
struct Cloud(Arc<Mutex<Vec<Value>>>);

impl Cloud {
    fn create(&self, mut body: Value) -> Value {
        let mut jobs = self.0.lock().expect("a lock");
        for job in jobs.iter() {
            let ended = ["Succeeded", "Failed", "Stopped"].contains(&word(job, "Status"));
            assert!(ended, "a CreateJob while {} is {}", word(job, "JobId"), word(job, "Status"));
        }
        let id = format!("dlc{}", jobs.len() + 1);
        let now = Clock::new().now().wall.to_string();
        let shown = json!({
            "JobId": id, "Status": "Running", "UserId": "1", "RestartTimes": "0/3",
            "GmtCreateTime": now, "GmtRunningTime": now,
        });
        body.as_object_mut().expect("a body").extend(shown.as_object().expect("fields").clone());
        jobs.push(body);
        json!({ "JobId": id, "RequestId": "r" })
    }

    /// The last job as the cloud shows it.
    fn last(&self) -> Value {
        self.0.lock().expect("a lock").last().expect("a job").clone()
    }

    fn count(&self) -> usize {
        self.0.lock().expect("a lock").len()
    }

    fn show(&self, change: &Value) {
        let mut jobs = self.0.lock().expect("a lock");
        let job = jobs.last_mut().and_then(Value::as_object_mut).expect("a job");
        job.extend(change.as_object().expect("fields").clone());
    }

    async fn serve(self) -> String {
        let list = |State(cloud): State<Cloud>| async move {
            let jobs = cloud.0.lock().expect("a lock").clone();
            Json(json!({ "TotalCount": jobs.len(), "Jobs": jobs, "RequestId": "r" }))
        };
        let create = |State(cloud): State<Cloud>, body: String| async move {
            Json(cloud.create(serde_json::from_str(&body).expect("JSON")))
        };
        let one = |State(cloud): State<Cloud>, At(id): At<String>| async move {
            let jobs = cloud.0.lock().expect("a lock");
            Json(jobs.iter().find(|job| word(job, "JobId") == id).expect("a job").clone())
        };
        let stop = |State(cloud): State<Cloud>, At(id): At<String>| async move {
            assert_eq!(word(&cloud.last(), "JobId"), id);
            cloud.show(&json!({ "Status": "Stopping" }));
            Json(json!({ "JobId": id, "RequestId": "r" }))
        };
        let app = Router::new()
            .route("/api/v1/jobs", get(list).post(create))
            .route("/api/v1/jobs/{id}", get(one))
            .route("/api/v1/jobs/{id}/stop", post(stop))
            .with_state(self);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }
}

fn word<'v>(job: &'v Value, field: &str) -> &'v str {
    job[field].as_str().unwrap_or_default()
}

fn save(folder: &Path, step: u64) {
    let checkpoint = folder.join(format!("ck/step-{step}"));
    std::fs::create_dir_all(&checkpoint).expect("a folder");
    std::fs::write(checkpoint.join("model.bin"), "weights").expect("written");
}

fn write_files(folder: &Path, url: &str) {
    let keys = folder.join("keys.toml");
    std::fs::write(&keys, "access_key_id = \"id\"\naccess_key_secret = \"secret\"\n")
        .expect("written");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    std::fs::create_dir(folder.join("jobs.d")).expect("a folder");
    let daemon = format!(
        r#"owner = "restrt"
state_directory = "state"
jobs_directory = "jobs.d"
[sweep]
interval = "200ms"
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "{url}"
credentials = {{ file = "keys.toml" }}
acceptance = "1s"
"#
    );
    std::fs::write(folder.join("spotkeeper.toml"), daemon).expect("written");
    let job = format!(
        r#"target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = "python train.py --load {{resume}}"
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[checkpoint]
url = "file://{}/ck"
format = "custom"
settle = "400ms"
settle_interval = "200ms"
[checkpoint.custom]
pattern = "step-{{step}}"
required = ["model.bin"]
"#,
        folder.display()
    );
    std::fs::write(folder.join("jobs.d/train.toml"), job).expect("written");
}

async fn row(door: &Handle) -> Option<JobRow> {
    let (reply, answer) = oneshot::channel();
    door.send(Request::Jobs(reply)).await.expect("the driver is there");
    answer.await.expect("an answer").into_iter().next()
}

async fn restarts_told(door: &Handle) -> usize {
    let (reply, answer) = oneshot::channel();
    let ask = Request::Events { job: None, after: 0, limit: 1_000, reply };
    door.send(ask).await.expect("the driver is there");
    let page = answer.await.expect("an answer").expect("events");
    page.events.iter().filter(|event| event.word == "RESTARTED_IN_PLACE").count()
}

async fn until(what: &str, door: &Handle, is_so: impl Fn(&JobRow) -> bool) -> JobRow {
    let mut seen = None;
    for _ in 0..1_500 {
        seen = row(door).await;
        if let Some(row) = seen.as_ref().filter(|row| is_so(row)) {
            return row.clone();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain until {what}: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_platform_does_by_itself_is_followed_and_never_doubled() {
    let cloud = Cloud::default();
    let url = cloud.clone().serve().await;
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), 100);
    write_files(folder.path(), &url);
    let file = load_daemon(&folder.path().join("spotkeeper.toml"), &Surroundings::default());
    let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).clone();
    let owner = config.owner.clone().expect("an owner");
    let (disk, mut home) = (MemoryDisk::default(), MemoryHome::default());
    let open = move || Store::open_on(Box::new(disk.clone()), &mut home, Options::default());
    let opened = store::Handle::start(open).await.expect("a store");
    let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
    let (stop, stopped) = watch::channel(false);
    let supervisor = Supervisor::on_store(settings, opened, stopped).await.expect("it loads");
    let door = supervisor.handle();
    let running = tokio::spawn(supervisor.run());

    until("it runs", &door, |row| row.phase == "RUNNING").await;
    assert!(word(&cloud.last(), "UserCommand").contains("step-100"), "{}", cloud.last());

    // Restarted in place, it would begin at step 100 again, and step 140 is whole.
    save(folder.path(), 140);
    cloud.show(&json!({ "Status": "Restarting", "RestartTimes": "1/3" }));
    let seen =
        until("its stop is seen", &door, |row| row.vendor_status.as_deref() == Some("Stopping"));
    let seen = seen.await;
    assert_eq!((seen.phase.as_str(), seen.restarts), ("STOPPING", 1));
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((cloud.count(), restarts_told(&door).await), (1, 1), "asking is not an end");
    cloud.show(&json!({ "Status": "Stopped", "ReasonCode": "JobStoppedByUser" }));
    until("the next one runs", &door, |row| row.attempts == 2 && row.phase == "RUNNING").await;
    assert!(word(&cloud.last(), "UserCommand").contains("step-140"), "{}", cloud.last());

    // A round of bidding that no counter shows; there is nothing newer, and it is left alone.
    cloud.show(&json!({ "Status": "Bidding", "GmtRunningTime": "" }));
    let seen = until("it bids", &door, |row| row.vendor_status.as_deref() == Some("Bidding")).await;
    assert_eq!((seen.phase.as_str(), seen.restarts), ("WAITING", 2));
    cloud.show(&json!({ "Status": "Running" }));
    until("it runs again", &door, |row| row.phase == "RUNNING").await;
    cloud.show(&json!({ "Status": "Preempting" }));
    let seen = until("the word is shown", &door, |row| row.stale).await;
    assert_eq!(seen.phase, "RUNNING", "the last phase that was known");

    // Its result is decided, its machine still held.
    cloud.show(&json!({ "Status": "SucceededReserving" }));
    let seen = until("it is decided", &door, |row| row.phase == "SUCCEEDED").await;
    assert!(seen.why.contains("machine still held"), "{}", seen.why);
    assert_eq!(seen.vendor_status.as_deref(), Some("SucceededReserving"));
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((cloud.count(), restarts_told(&door).await), (2, 2));
    cloud.show(&json!({ "Status": "Succeeded" }));
    until("it is over", &door, |row| row.vendor_status.is_none()).await;

    stop.send(true).expect("it runs");
    running.await.expect("it ends");
    assert_eq!(cloud.count(), 2);
}
