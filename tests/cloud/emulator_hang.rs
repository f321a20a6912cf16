//! Jobs that the emulator lets hang, and pods that it fails without a word.

use crate::emulator_client::{World, body};
use serde_json::{Value, json};
use spotkeeper::emulator::RunAs;
use std::time::Duration;

async fn switch(world: &World, path: &str) -> u16 {
    world.admin("POST", path, &json!({})).await.0
}

async fn log(world: &World, id: &str, pod: &Value, most: u32) -> Vec<Value> {
    let pod = pod["PodId"].as_str().expect("an id");
    let target = format!("/api/v1/jobs/{id}/pods/{pod}/logs?MaxLines={most}");
    let (status, answer) = world.call("GetPodLogs", "GET", &target, "").await;
    assert_eq!(status, 200, "{answer}");
    answer["Logs"].as_array().expect("lines").clone()
}

/// Waits until the log of the first pod goes on.
async fn goes_on(world: &World, id: &str, pod: &Value) {
    let before = log(world, id, pod, 5).await;
    while log(world, id, pod, 5).await == before {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_hangs_prints_nothing_more_and_only_a_stop_ends_it() {
    let command = "trap '' TERM; n=0; while :; do n=$((n+1)); echo step $n; sleep 0.02; done";
    for run_as in [RunAs::Processes { data_mount: None }, RunAs::Virtual] {
        let world = World::with(|options| options.run_as = run_as).await;
        let mut job = body("train", command);
        job["JobSpecs"][0]["PodCount"] = json!(3);
        job["Envs"] = json!({ "EMULATOR_LOG_EVERY": "0.02", "EMULATOR_RUN_SECONDS": "3600" });
        let id = world.create(&job).await;
        assert_eq!(switch(&world, "/emulator/hang/none").await, 404);
        let pods = world.until(&id, "Running").await["Pods"].clone();
        goes_on(&world, &id, &pods[0]).await;
        // One is lost: nothing else of the job changes.
        assert_eq!(switch(&world, &format!("/emulator/lose/{id}?pod=9")).await, 409);
        assert_eq!(switch(&world, &format!("/emulator/lose/{id}?pod=1")).await, 200);
        assert_eq!(switch(&world, &format!("/emulator/lose/{id}?pod=1")).await, 409, "it is gone");
        goes_on(&world, &id, &pods[0]).await;
        let shown = world.get(&id).await;
        let words = json!((0..3).map(|n| &shown["Pods"][n]["Status"]).collect::<Vec<_>>());
        assert_eq!(shown["Status"], "Running");
        assert_eq!(words, json!(["Running", "Failed", "Running"]));
        assert_eq!(switch(&world, &format!("/emulator/hang/{id}")).await, 200);
        // What was on its way into the log when it was told comes in yet.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = log(&world, &id, &pods[0], 5).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(log(&world, &id, &pods[0], 5).await, before);
        assert_eq!(world.get(&id).await["Status"], "Running");
        assert_eq!(world.stop(&id).await.0, 200);
        world.until(&id, "Stopped").await;
        assert_eq!(switch(&world, &format!("/emulator/hang/{id}")).await, 409);
        world.running.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loud_virtual_job_shows_its_last_lines_within_the_limit_of_one_answer() {
    let world = World::with(|options| options.run_as = RunAs::Virtual).await;
    let mut job = body("loud", "python train.py");
    job["Envs"] = json!({ "EMULATOR_LOG_EVERY": "0.00001", "EMULATOR_LOG_BYTES": "4096" });
    let id = world.create(&job).await;
    let pods = world.until(&id, "Running").await["Pods"].clone();
    goes_on(&world, &id, &pods[0]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let lines = log(&world, &id, &pods[0], 2_000).await;
    assert_eq!(lines.len(), 256, "1 MiB");
    assert!(lines.iter().all(|line| line.as_str().is_some_and(|line| line.len() == 4096)));
    assert_eq!(log(&world, &id, &pods[0], 3).await.len(), 3);
    world.running.shutdown().await;
}
