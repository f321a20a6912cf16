//! `[checkpoint] fence`: no CreateJob without its fence, and a late twin that ends before it trains.

use crate::harness::{JobFile, World};
use serde_json::{Map, Value};
use spotkeeper::dlc::client::Dlc;
use spotkeeper::model::cloud::SendOutcome;
use spotkeeper::model::fence::{EXIT_CODE, KEY};
use spotkeeper::model::ids::{CloudId, Owner};
use spotkeeper::model::spec::{CredentialsRef, Place};
use spotkeeper::openapi::client::PlainHttp;
use spotkeeper::openapi::credentials::{Credentials, Keychain};
use spotkeeper::service::clock::Clock;
use std::os::unix::fs::PermissionsExt as _;

/// Where a test finds the world's keys.
fn reference(world: &World) -> CredentialsRef {
    let (id, secret) = crate::harness::KEY;
    let file = world.path("keys.toml");
    let keys = format!("access_key_id = \"{id}\"\naccess_key_secret = \"{secret}\"\n");
    std::fs::write(&file, keys).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    CredentialsRef::File(file)
}

/// The world's keys.
pub(crate) async fn keys_of(world: &World) -> Credentials {
    let held = Keychain::default().keys(&reference(world), Clock::new().now().wall).await;
    held.expect("keys").keys
}

/// A client of the world's emulator.
fn client(world: &World) -> Dlc {
    let place = Place {
        region: "cn-hangzhou".into(),
        workspace: "12345".into(),
        endpoint: world.url(),
        storage: None,
        credentials: reference(world),
    };
    let owner = Owner::new("tstown").expect("an owner");
    Dlc::new(&place, owner, &Keychain::default(), PlainHttp::Loopback).expect("a client")
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

/// Sends a body as it is once more, as a request that was on its way for long would arrive.
async fn send_again(client: Dlc, body: &Map<String, Value>) -> CloudId {
    let now = Clock::new().now().wall;
    match client.create_job(body, &std::collections::BTreeMap::new(), now).await.value {
        SendOutcome::Accepted { id } => id,
        other => panic!("{other:?}"),
    }
}

#[test]
fn trap_29_a_late_twin_ends_before_it_trains() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 150);
    world.put_fenced(&job);
    world.start(&[]);
    world.wait_saved("train");
    let first: Map<String, Value> =
        serde_json::from_str(&world.ledger().last_request()).expect("JSON");
    assert_eq!(world.release_all(), 1);
    world.wait("the second attempt trains", |world| {
        world.trainer("train").starts().len() == 2 && world.trainer("train").saved_since_start()
    });
    let fence = std::fs::read_to_string(world.path(&job.looks).join(KEY)).expect("a fence");
    assert!(fence.contains(" run=1 attempt=2 mark="), "{fence}");

    let twin = block_on(send_again(client(&world), &first));
    world.wait("the twin has ended", |world| {
        !world.ledger().open().iter().any(|id| id == twin.as_str())
    });
    let logs = std::fs::read_dir(world.path("cloud/jobs").join(twin.as_str())).expect("a folder");
    let mut logs = logs.map(|entry| entry.expect("an entry").path());
    let log = logs.find(|path| path.extension().is_some_and(|end| end == "log")).expect("a log");
    let log = std::fs::read_to_string(log).expect("a log");
    assert!(log.starts_with("spotkeeper: fenced attempt=1 rank=0 by run=1 attempt=2"), "{log}");
    assert_eq!(log.lines().count(), 1, "{log}");
    let shown = block_on(async {
        client(&world).get_job(&twin, Clock::new().now().wall).await.expect("the twin").value
    });
    assert_eq!(shown.exits.iter().map(|exit| exit.code).collect::<Vec<_>>(), [EXIT_CODE]);

    world.wait_done("train");
    assert_eq!(world.trainer("train").starts().len(), 2, "the twin never trained");
    world.trainer("train").assert_nothing_lost(150);
}

#[test]
fn without_its_fence_no_attempt_is_sent() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 10);
    world.put_fenced(&job);
    let in_the_way = world.path(&job.looks).join(".spotkeeper");
    std::fs::write(&in_the_way, "no folder").expect("written");
    world.start(&[]);
    world.wait("it was tried twice", |world| {
        world.log().lines().filter(|line| line.contains("not sent: the fence under")).count() >= 2
    });
    assert_eq!(world.ledger().count("create"), 0, "{}", world.log());
    std::fs::remove_file(in_the_way).expect("removed");
    world.wait_done("train");
    assert_eq!(world.ledger().count("create"), 1);
    // It names the attempt that was sent.
    let sent: Value = serde_json::from_str(&world.ledger().last_request()).expect("JSON");
    let fence = std::fs::read_to_string(world.path(&job.looks).join(KEY)).expect("a fence");
    let mark = sent["Envs"]["SPOTKEEPER_MARK"].as_str().expect("a mark");
    let no = sent["Envs"]["SPOTKEEPER_ATTEMPT"].as_str().expect("a number");
    assert!(fence.ends_with(&format!(" run=1 attempt={no} mark={mark}\n")), "{fence}");
    let command = sent["UserCommand"].as_str().expect("a command");
    assert!(command.starts_with("if { read -r sk_w"), "{command}");
}
