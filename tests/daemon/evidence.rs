//! The raw answers of an end: fetched soon, kept, and shown when the cloud has let go of them.

use crate::fence::{block_on, keys_of};
use crate::harness::{JobFile, World};
use serde_json::{Value, json};
use spotkeeper::openapi::client::{Client, ClientConfig, Lane, Limits, PlainHttp};
use spotkeeper::openapi::request::{Method, Request, Stamp, path};
use spotkeeper::service::clock::Clock;

/// Whether answers of an ended attempt are on the disk.
fn is_kept(world: &World) -> bool {
    let blobs = std::fs::read_dir(world.path("state/blobs")).into_iter().flatten().flatten();
    let mut texts = blobs.filter_map(|blob| std::fs::read_to_string(blob.path()).ok());
    texts.any(|text| text.contains("get_job_events.json"))
}

fn evidence(world: &World, words: &[&str]) -> Value {
    let all: Vec<&str> =
        ["evidence", "train", "--into", "-"].iter().chain(words).copied().collect();
    let output = world.cli(&all);
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}{}", world.log()))
}

#[test]
fn scenario_53_trap_17_answers_are_fetched_soon_after_the_end_and_hold_up_nothing() {
    let mut world = World::new(&["--dialect", "evicted"]);
    let job = JobFile::new("train", 120);
    world.put_job("train", &job);
    world.put_faults(&json!([
        { "call": "GetJobEvents", "status": 503, "body": "<html>busy</html>" },
        { "call": "GetPodEvents", "hold_before": "20s" },
    ]));
    world.start(&[]);
    world.wait_saved("train");
    assert_eq!(world.cli(&["evidence", "train"]).status.code(), Some(1), "nothing has ended");
    world.release_all();
    world.wait("it goes on", |world| world.trainer("train").starts().len() == 2);
    assert!(!is_kept(&world), "events could not be fetched yet");
    world.put_faults(&json!([]));
    world.wait("they are fetched without being asked for", |world| is_kept(world));
    // From now on the cloud has nothing to tell.
    let gone = json!({ "Code": "NotFound", "Message": "x" }).to_string();
    world.put_faults(&json!([
        { "call": "GetJobEvents", "status": 404, "body": gone },
        { "call": "GetPodEvents", "status": 404, "body": gone },
        { "call": "GetPodLogs", "status": 404, "body": gone },
    ]));
    world.wait("the record is committed", |world| {
        evidence(world, &["--attempt", "1"])["missing"] == json!([])
    });
    let shown = evidence(&world, &["--attempt", "1"]);
    assert_eq!((&shown["attempt"], &shown["run"]), (&json!(1), &json!(1)));
    let files = &shown["files"];
    assert_eq!(files["get_job.json"]["Status"], "Failed");
    assert_eq!(files["get_job.json"]["JobId"], shown["id"]);
    assert_eq!(files["get_job.json"]["Pods"][0]["SubStatus"], "Evicted");
    assert_eq!(files["get_job.json"]["UserId"], "account-1");
    assert!(files["get_job_events.json"]["Events"].as_array().is_some_and(|e| !e.is_empty()));
    assert!(files["get_pod_events.0.json"]["Events"].as_array().is_some_and(|e| !e.is_empty()));
    assert!(files["get_pod_logs.0.json"]["Logs"].is_array());
    // As files: each in the shape of an answer.
    let output = world.cli(&["evidence", "train", "--attempt", "1"]);
    assert!(output.status.success());
    let written = world.path("train.run1.attempt1");
    let text = std::fs::read_to_string(written.join("get_job.json")).expect("a file");
    assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), files["get_job.json"]);
    assert_eq!(std::fs::read_dir(written).expect("a folder").count(), 4);
    assert_eq!(world.cli(&["evidence", "train", "--attempt", "9"]).status.code(), Some(1));
    assert_eq!(world.cli(&["evidence", "none"]).status.code(), Some(4));
    world.wait_done("train");
    world.trainer("train").assert_nothing_lost(120);
}

#[test]
fn scenario_53_trap_18_a_job_that_somebody_deletes_after_its_end_can_still_be_explained() {
    let mut world = World::new(&[]);
    let job = JobFile::new("train", 10);
    world.put_job("train", &job);
    world.start(&[]);
    world.wait_done("train");
    world.wait("its answers are kept", |world| is_kept(world));
    let id = evidence(&world, &[])["id"].as_str().expect("an id").to_owned();
    block_on(async {
        let config = ClientConfig {
            endpoint: world.url(),
            version: "2020-12-03",
            plain_http: PlainHttp::Loopback,
            limits: Limits::default(),
        };
        let request = Request {
            action: "DeleteJob",
            method: Method::Delete,
            path: path(&["api", "v1", "jobs", &id]),
            query: Vec::new(),
            body: None,
            headers: Vec::new(),
        };
        let stamp = Stamp::new(Clock::new().now().wall).expect("random bytes");
        let client = Client::new(&config).expect("a client");
        client.send(Lane::Alone, &request, &keys_of(&world).await, &stamp).await.expect("deleted");
    });
    let shown = evidence(&world, &[]);
    assert_eq!(shown["files"]["get_job.json"]["Status"], "Succeeded");
    // The next daemon has them, too.
    world.kill();
    world.start(&[]);
    world.wait("the next daemon answers", |world| {
        world.cli(&["evidence", "train", "--into", "-"]).status.success()
    });
    assert_eq!(evidence(&world, &[]), shown);
    assert_eq!(world.ledger().count("create"), 1);
}
