//! A supervisor whose store runs out of space: nothing is submitted until there is room again, and
//! then exactly once.

use crate::emulator_client::World;
use spotkeeper::config::{Surroundings, load_daemon};
use spotkeeper::emulator::RunAs;
use spotkeeper::model::handle::{ActVerb, Handle, Refusal, Request};
use spotkeeper::model::view::JobRow;
use spotkeeper::service::clock::Clock;
use spotkeeper::store::memory::{Health, MemoryHome};
use spotkeeper::store::records::NEW_STORE;
use spotkeeper::store::{self, MemoryDisk, Options, Store};
use spotkeeper::supervisor::{Settings, Supervisor};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Longer than the first CreateJob of a new store waits, and than the first tries to open it again.
const WHILE_FULL: Duration = Duration::from_secs(9);
/// Time in which a second CreateJob would come.
const AFTER: Duration = Duration::from_secs(2);

/// What has no space.
#[derive(Debug, Clone, Copy)]
enum Full {
    Disk,
    Engine,
}

pub(crate) fn write_files(folder: &Path, url: &str) {
    let keys = folder.join("keys.toml");
    std::fs::write(&keys, "access_key_id = \"id\"\naccess_key_secret = \"secret\"\n")
        .expect("written");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    std::fs::create_dir(folder.join("jobs.d")).expect("a folder");
    let daemon = format!(
        r#"owner = "nospce"
state_directory = "state"
jobs_directory = "jobs.d"
[sweep]
interval = "200ms"
[targets.here]
region = "cn-hangzhou"
workspace = "12345"
endpoint = "{url}"
credentials = {{ file = "keys.toml" }}
acceptance = "3s"
"#
    );
    std::fs::write(folder.join("spotkeeper.toml"), daemon).expect("written");
    let job = r#"target = "here"
[submit]
JobType = "PyTorchJob"
UserCommand = "python train.py"
[[submit.JobSpecs]]
Type = "Worker"
Image = "image"
PodCount = 1
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
"#;
    std::fs::write(folder.join("jobs.d/train.toml"), job).expect("written");
}

pub(crate) async fn rows(door: &Handle) -> Vec<JobRow> {
    let (reply, answer) = oneshot::channel();
    door.send(Request::Jobs(reply)).await.expect("the driver is there");
    answer.await.expect("an answer")
}

pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    for _ in 0..1_500 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("waited in vain until {what}");
}

async fn nothing_while_full_and_one_after_it(full: Full) {
    let cloud = World::with(|options| {
        options.run_as = RunAs::Virtual;
        options.acceptance = Duration::from_secs(3);
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path(), &cloud.running.url());
    let file = load_daemon(&folder.path().join("spotkeeper.toml"), &Surroundings::default());
    let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).clone();
    let owner = config.owner.clone().expect("an owner");

    let (disk, home) = (MemoryDisk::default(), MemoryHome::default());
    let (on_disk, mut in_home) = (disk.clone(), home.clone());
    let open = move || Store::open_on(Box::new(on_disk.clone()), &mut in_home, Options::default());
    let opened = store::Handle::start(open).await.expect("a store");
    let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
    let (stop, stopped) = watch::channel(false);
    let supervisor = Supervisor::on_store(settings, opened, stopped).await.expect("it loads");
    let door = supervisor.handle();
    let running = tokio::spawn(supervisor.run());

    let ledger = cloud.folder.path().join("ledger.jsonl");
    let creates = || {
        let text = std::fs::read_to_string(&ledger).expect("a ledger");
        text.lines().filter(|line| line.contains("\"event\":\"create\"")).count()
    };
    until("the job is on record", || async { rows(&door).await.len() == 1 }).await;
    assert_eq!(creates(), 0, "a new store waits before its first CreateJob");
    match full {
        Full::Disk => disk.set_free_bytes(Some(0)),
        Full::Engine => home.set_health(Health::Full),
    }
    tokio::time::sleep(WHILE_FULL).await;
    assert_eq!(creates(), 0, "{full:?}: a job was created while the store could not write");
    let (reply, answer) = oneshot::channel();
    let act = Request::Act { names: vec!["train".to_owned()], verb: ActVerb::Pause, reply };
    door.send(act).await.expect("the driver is there");
    let answer = answer.await.expect("an answer");
    assert!(matches!(answer, Err(Refusal::StoreDown(_))), "{full:?}: {answer:?}");

    disk.set_free_bytes(None);
    home.set_health(Health::Well);
    until("the job is created", || async { creates() == 1 }).await;
    tokio::time::sleep(AFTER).await;
    assert_eq!(creates(), 1, "{full:?}");
    until("it is seen running", || async { rows(&door).await[0].phase == "RUNNING" }).await;

    stop.send(true).expect("it runs");
    running.await.expect("it ends");
    assert_eq!(creates(), 1, "{full:?}");
    cloud.running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_49_no_job_is_created_while_the_disk_is_full_and_one_after_it() {
    nothing_while_full_and_one_after_it(Full::Disk).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_49_no_job_is_created_while_the_engine_is_full_and_one_after_it() {
    nothing_while_full_and_one_after_it(Full::Engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_comes_back_empty_is_a_new_one() {
    let folder = tempfile::tempdir().expect("a folder");
    write_files(folder.path(), "http://127.0.0.1:9");
    let file = load_daemon(&folder.path().join("spotkeeper.toml"), &Surroundings::default());
    let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).clone();
    let owner = config.owner.clone().expect("an owner");
    let disk = MemoryDisk::default();
    let mut first = Some((disk.clone(), MemoryHome::default()));
    let open = move || {
        let (disk, mut home) = first.take().unwrap_or_default();
        Store::open_on(Box::new(disk), &mut home, Options::default())
    };
    let opened = store::Handle::start(open).await.expect("a store");
    let store = opened.0.clone();
    let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
    let (stop, stopped) = watch::channel(false);
    let supervisor = Supervisor::on_store(settings, opened, stopped).await.expect("it loads");
    let door = supervisor.handle();
    let running = tokio::spawn(supervisor.run());
    until("the job is on record", || async { rows(&door).await.len() == 1 }).await;

    disk.set_free_bytes(Some(0));
    let (reply, answer) = oneshot::channel();
    let act = Request::Act { names: vec!["train".to_owned()], verb: ActVerb::Pause, reply };
    door.send(act).await.expect("the driver is there");
    assert!(answer.await.expect("an answer").is_err(), "it cannot be written");
    // The answer came after another one was opened, which had nothing on record.
    let noted = store.get(NEW_STORE).await.expect("it is open");
    assert!(noted.is_some(), "what an earlier store sent is not waited for");

    stop.send(true).expect("it runs");
    running.await.expect("it ends");
}
