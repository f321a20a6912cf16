//! The emulator over its socket: real processes, releases, faults, the ledger.

use crate::emulator_client::{World, body, client, key, ledger, send, story};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use spotkeeper::emulator::dialect::{Dialect, DialectChoice};
use spotkeeper::emulator::market::MarketSpec;
use spotkeeper::emulator::{EmulatorError, Options, RunAs, serve};
use spotkeeper::openapi::signature::sha256_hex;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

#[tokio::test]
async fn a_job_runs_as_a_process_and_every_status_is_in_the_ledger() {
    let world = World::with(|_| {}).await;
    let mut asked = body("sample", "echo hello; echo \"$A\" >&2; echo >here");
    asked["Envs"] = json!({"A": "from the job"});
    asked["Invented"] = json!({"deep": [0.4, 0.011]});
    let id = world.create(&asked).await;
    let job = world.until(&id, "Succeeded").await;
    assert_eq!(job["ReasonCode"], "JobSucceeded");
    assert_eq!(job["Invented"], asked["Invented"]);
    assert_eq!(job["UserCommand"], asked["UserCommand"]);
    assert_ne!(job["GmtRunningTime"], "");
    let words: Vec<&str> = job["StatusHistory"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|step| step["Status"].as_str().expect("a word"))
        .collect();
    assert_eq!(words, ["Creating", "Queuing", "EnvPreparing", "Running", "Succeeded"]);
    let pod = job["Pods"][0]["PodId"].as_str().expect("a pod").to_owned();
    assert_eq!(pod, format!("{id}-master-0"));
    let path = format!("/api/v1/jobs/{id}/pods/{pod}/logs?MaxLines=500");
    let (_, logs) = world.call("GetPodLogs", "GET", &path, "").await;
    assert_eq!(logs["Logs"], json!(["hello", "from the job"]));
    let (_, events) =
        world.call("GetJobEvents", "GET", &format!("/api/v1/jobs/{id}/events"), "").await;
    assert!(events["Events"].as_array().is_some_and(|events| events.len() >= 3), "{events}");

    let ledger = world.ledger();
    assert_eq!(
        story(&ledger, &id),
        ["create", "status Queuing", "status EnvPreparing", "status Running", "end Succeeded"]
    );
    let request = ledger[0]["request"].as_str().expect("a path");
    let kept = std::fs::read_to_string(world.folder.path().join(request)).expect("kept");
    assert_eq!(kept, asked.to_string());
    assert_eq!(ledger[0]["request_sha256"], sha256_hex(kept.as_bytes()));
    assert_eq!(ledger[4]["exit"], 0);
    world.running.shutdown().await;
}

#[tokio::test]
async fn what_the_documentation_refuses_is_refused_and_recorded() {
    let world = World::with(|options| options.run_as = RunAs::Virtual).await;
    let mut both = body("both", "true");
    both["JobSpecs"][0]["SpotSpec"]["SpotPriceLimit"] = json!(0.011);
    for wrong in [both.to_string(), "[]".to_owned(), "{".to_owned(), "x".repeat(65_537)] {
        let (status, answer) = world.call("CreateJob", "POST", "/api/v1/jobs", &wrong).await;
        assert_eq!((status, &answer["Code"]), (400, &json!("InvalidParameter")), "{answer}");
        assert!(answer["RequestId"].is_string());
    }
    let ledger = world.ledger();
    assert_eq!(ledger.len(), 4);
    assert!(ledger.iter().all(|line| line["event"] == "refused"));
    assert_eq!(ledger[0]["display_name"], "both");
    let (status, answer) = world.call("GetJob", "GET", "/api/v1/jobs/dlcnone", "").await;
    assert_eq!((status, &answer["Code"]), (404, &json!("NotFound")));
    let (status, answer) = world.call("GetJob", "GET", "/api/v1/jobs", "").await;
    assert_eq!((status, &answer["Code"]), (404, &json!("InvalidAction.NotFound")));
    let unsigned = world.admin("GET", "/api/v1/jobs", &json!("")).await;
    assert_eq!(unsigned.0, 400);
    assert!(unsigned.1.contains("IncompleteSignature"), "{}", unsigned.1);
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_stop_is_accepted_first_and_done_later() {
    let world = World::with(|options| options.phase_delay = Duration::from_millis(200)).await;
    let id = world.create(&body("stopped", "sleep 1000 & echo $! >child; wait")).await;
    world.until(&id, "Running").await;
    let child = world.pod_file(&id, &format!("{id}-master-0"), "child").await;
    let (status, _) = world.stop(&id).await;
    assert_eq!(status, 200);
    assert_eq!(world.get(&id).await["Status"], "Stopping");
    let (status, answer) =
        world.call("DeleteJob", "DELETE", &format!("/api/v1/jobs/{id}"), "").await;
    assert_eq!((status, &answer["Code"]), (400, &json!("BadRequest")));
    let job = world.until(&id, "Stopped").await;
    assert_eq!(job["ReasonCode"], "JobStoppedByUser");
    assert_eq!(job["Pods"][0]["Status"], "Unknown");
    assert!(is_gone(&child), "an ended job has no process left");
    let (status, answer) = world.stop(&id).await;
    assert_eq!((status, &answer["Code"]), (400, &json!("BadRequest")));
    let ledger = world.ledger();
    let story = story(&ledger, &id);
    assert_eq!(story[4..], ["stop_asked", "status Stopping", "end Stopped"]);
    let (status, _) = world.call("DeleteJob", "DELETE", &format!("/api/v1/jobs/{id}"), "").await;
    assert_eq!(status, 200);
    assert!(world.list("WorkspaceId=7").await.is_empty());
    world.running.shutdown().await;
}

fn is_gone(pid: &str) -> bool {
    let pid: i32 = pid.parse().expect("a pid");
    let dead = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    test_kill_process(Pid::from_raw(pid).expect("a pid")).is_err() || dead()
}

/// Runs one job until it is released by hand, and shows how that looks.
async fn released(dialect: Dialect, grace: Duration, command: &str) -> (Value, Vec<Value>) {
    let world = World::with(|options| {
        options.dialects = DialectChoice::Fixed(dialect);
        options.grace = grace;
    })
    .await;
    let id = world.create(&body("released", command)).await;
    world.until(&id, "Running").await;
    world.pod_file(&id, &format!("{id}-master-0"), "ready").await;
    let (status, text) =
        world.admin("POST", &format!("/emulator/release/{id}"), &json!(null)).await;
    assert_eq!(status, 200, "{text}");
    let job = loop {
        let job = world.get(&id).await;
        if job["Status"] != "Running" {
            break job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let ledger = world.ledger();
    let story = story(&ledger, &id);
    assert_eq!(story[4], "release");
    world.running.shutdown().await;
    (job, ledger)
}

#[tokio::test]
async fn the_default_dialect_tells_the_least() {
    let (job, ledger) =
        released(Dialect::Plain, Duration::ZERO, "trap '' TERM; echo >ready; sleep 1000").await;
    assert_eq!(job["Status"], "Failed");
    assert_eq!(job["ReasonCode"], "JobFailed");
    let message: Value =
        serde_json::from_str(job["ReasonMessage"].as_str().expect("a text")).expect("JSON");
    assert_eq!(message["content"][0]["reason"], "137");
    assert_eq!(message["content"][0]["pods"], json!({"Master": [0]}));
    assert_eq!(job["Pods"][0]["SubStatus"], "Normal");
    assert_eq!(ledger.last().expect("a line")["exit"], 137);
    assert_eq!(ledger.last().expect("a line")["discount"], 0.3);
}

#[tokio::test]
async fn the_evicted_dialect_says_so() {
    let (job, _) = released(Dialect::Evicted, Duration::ZERO, "echo >ready; sleep 1000").await;
    assert_eq!(job["Status"], "Failed");
    assert_eq!(job["Pods"][0]["SubStatus"], "Evicted");
    assert!(job["ReasonMessage"].as_str().is_some_and(|m| m.contains("Evicted")), "{job}");
}

#[tokio::test]
async fn a_trainer_that_ends_well_on_term_makes_the_job_succeeded() {
    let grace = Duration::from_mins(1);
    let command = "trap 'exit 0' TERM; echo >ready; while :; do sleep 0.01; done";
    let (job, _) = released(Dialect::SucceededAfterTerm, grace, command).await;
    assert_eq!((&job["Status"], &job["ReasonCode"]), (&json!("Succeeded"), &json!("JobSucceeded")));
    let short = Duration::from_millis(50);
    let (job, ledger) =
        released(Dialect::SucceededAfterTerm, short, "trap '' TERM; echo >ready; sleep 1000").await;
    assert_eq!(job["Status"], "Failed");
    assert_eq!(ledger.last().expect("a line")["exit"], 137);
}

#[tokio::test]
async fn the_market_decides_who_waits_and_who_is_released() {
    let world = World::with(|options| {
        options.run_as = RunAs::Virtual;
        options.market = MarketSpec::Constant(0.5);
    })
    .await;
    let waiting = world.create(&body("low-bid", "true")).await;
    let mut high = body("high-bid", "true");
    high["JobSpecs"][0]["SpotSpec"]["SpotDiscountLimit"] = json!(0.6);
    let running = world.create(&high).await;
    let mut on_demand = body("on-demand", "true");
    on_demand["JobSpecs"][0]["SpotSpec"] = json!(null);
    let untouched = world.create(&on_demand).await;
    world.until(&running, "Running").await;
    world.until(&untouched, "Running").await;
    assert_eq!(world.get(&waiting).await["Status"], "Queuing");

    let (_, specs) =
        world.call("ListEcsSpecs", "GET", "/api/v1/ecsspecs?ResourceType=ECS", "").await;
    assert_eq!(specs["EcsSpecs"][0]["NonProtectSpotDiscount"], 0.5);
    assert_eq!(specs["EcsSpecs"][0]["SpotStockStatus"], "WithStock");

    world.admin("POST", "/emulator/market", &json!({"discount": 0.7})).await;
    world.until(&running, "Failed").await;
    world.admin("POST", "/emulator/market", &json!({"discount": 0.4})).await;
    world.until(&waiting, "Running").await;
    world.admin("POST", "/emulator/market", &json!({"stock": false})).await;
    world.until(&waiting, "Failed").await;
    assert_eq!(world.get(&untouched).await["Status"], "Running");
    let ledger = world.ledger();
    let why = |id: &str| {
        let line = ledger.iter().find(|l| l["job_id"] == id && l["event"] == "release");
        line.expect("a release")["why"].clone()
    };
    assert_eq!(why(&running), "plain: market over bid");
    assert_eq!(why(&waiting), "plain: out of stock");
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_script_releases_between_a_file_and_its_marker() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("market.jsonl");
    let pods = folder.path().join("jobs");
    let line = json!({
        "when": {"exists": format!("{}/*/*/step_*/model", pods.display()),
                 "missing": format!("{}/*/*/step_*/done", pods.display())},
        "release": "scripted",
    });
    std::fs::write(&script, line.to_string()).expect("written");
    let world = World::on(folder, |options| options.market = MarketSpec::Script(script)).await;
    let command = "mkdir step_1; echo >step_1/done; echo >step_1/model; \
                   mkdir step_2; echo >step_2/model; sleep 1000";
    let id = world.create(&body("scripted-1", command)).await;
    let job = world.until(&id, "Failed").await;
    assert_eq!(job["ReasonCode"], "JobFailed");
    let ledger = world.ledger();
    let release = ledger.iter().find(|line| line["event"] == "release").expect("a release");
    assert!(release["why"].as_str().is_some_and(|why| why.ends_with("step_2/model")), "{release}");
    world.running.shutdown().await;
}

#[tokio::test]
async fn one_failed_pod_takes_the_others_down_and_is_the_one_named() {
    let world = World::with(|_| {}).await;
    let mut asked = body("eight", "if [ $RANK = 2 ]; then exit 7; fi; sleep 1000");
    asked["JobSpecs"][0]["PodCount"] = json!(4);
    let id = world.create(&asked).await;
    let job = world.until(&id, "Failed").await;
    let message = job["ReasonMessage"].as_str().expect("a text");
    assert!(message.contains(r#""pods":{"Worker":[1]},"reason":"7""#), "{message}");
    assert_eq!(job["Pods"].as_array().map(Vec::len), Some(4));
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_reply_can_be_lost_and_a_request_can_be_late() {
    let world = World::with(|options| {
        options.run_as = RunAs::Virtual;
        options.acceptance = Duration::from_secs(1);
    })
    .await;
    let faults = json!([
        {"call": "CreateJob", "drop_reply_after": true, "times": 1},
        {"call": "CreateJob", "drop_before": true, "times": 1},
        {"call": "CreateJob", "status": 503, "body": "<html>busy</html>", "times": 1},
        {"call": "CreateJob", "status": 200, "body": "{}", "answer_after": true, "times": 1},
        {"call": "CreateJob", "hold_before": "2500ms", "times": 1},
    ]);
    let (status, text) = world.admin("PUT", "/emulator/faults", &faults).await;
    assert_eq!(status, 200, "{text}");
    let create = |name: &str| {
        let body = body(name, "true").to_string();
        let world = &world;
        async move { world.send("CreateJob", "POST", "/api/v1/jobs", &body).await }
    };
    assert!(create("lost").await.is_err(), "the reply is lost");
    assert!(create("dropped").await.is_err(), "the request is lost");
    let (status, answer, _) = create("busy").await.expect("answered");
    assert_eq!((status, answer), (503, json!("<html>busy</html>")));
    let (status, answer, _) = create("odd").await.expect("answered");
    assert_eq!((status, answer), (200, json!({})));
    let (status, answer, _) = create("late").await.expect("answered");
    assert_eq!((status, &answer["Code"]), (400, &json!("InvalidTimeStamp.Expired")));
    let ledger = world.ledger();
    let names = |event: &str| {
        let lines = ledger.iter().filter(|line| line["event"] == event);
        lines.map(|line| line["display_name"].as_str().expect("a name")).collect::<Vec<_>>()
    };
    assert_eq!(names("create"), ["lost", "odd"]);
    assert_eq!(names("refused"), ["busy", "late"]);
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_request_that_was_sent_is_done_even_when_the_sender_is_gone() {
    let world = World::with(|options| options.run_as = RunAs::Virtual).await;
    let faults = json!([{"call": "CreateJob", "hold_before": 300}]);
    world.admin("PUT", "/emulator/faults", &faults).await;
    let text = body("orphan", "true").to_string();
    let sending = world.send("CreateJob", "POST", "/api/v1/jobs", &text);
    // Long enough to be sent, shorter than the hold.
    assert!(tokio::time::timeout(Duration::from_millis(150), sending).await.is_err());
    while world.list("DisplayName=ORPHAN").await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_new_job_stays_out_of_lists_for_the_lag() {
    let world = World::with(|options| {
        options.run_as = RunAs::Virtual;
        options.list_lag = Duration::from_hours(1);
    })
    .await;
    let id = world.create(&body("hidden", "true")).await;
    assert!(world.list("").await.is_empty());
    assert_eq!(world.get(&id).await["JobId"], id.as_str());
    let (_, all) = world.admin("GET", "/emulator/jobs", &json!(null)).await;
    assert!(all.contains(&id));
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_second_start_on_the_folder_ends_what_had_not_ended() {
    let world = World::with(|options| options.run_as = RunAs::Virtual).await;
    let mut short = body("done", "true");
    short["Envs"] = json!({"EMULATOR_RUN_SECONDS": "0", "EMULATOR_EXIT": "3"});
    let done = world.create(&short).await;
    let job = world.until(&done, "Failed").await;
    assert!(job["ReasonMessage"].as_str().is_some_and(|m| m.contains(r#""reason":"3""#)), "{job}");
    let mut long = body("open", "true");
    long["Envs"] = json!({"EMULATOR_RUN_SECONDS": "600"});
    let open = world.create(&long).await;
    world.until(&open, "Running").await;
    let endless = world.create(&body("endless", "true")).await;
    world.until(&endless, "Running").await;
    let World { folder, running, http } = world;
    drop(http);
    running.shutdown().await;
    let before = ledger(folder.path());
    assert_ne!(before.last().expect("a line")["event"], "end");

    let world = World::on(folder, |options| options.run_as = RunAs::Virtual).await;
    let after = world.ledger();
    assert_eq!(after[..before.len()], before[..]);
    assert_eq!(story(&after, &open).last().expect("a line"), "end Failed");
    assert_eq!(after.len(), before.len() + 1);
    assert_eq!(world.get(&endless).await["Status"], "Running", "it has no end to miss");
    for id in [&done, &open] {
        let job = world.get(id).await;
        assert_eq!(job["Status"], "Failed");
        assert_ne!(job["GmtRunningTime"], "");
    }
    world.running.shutdown().await;
}

#[tokio::test]
async fn no_process_outlives_a_shutdown() {
    let world = World::with(|_| {}).await;
    let command = "trap '' TERM; sh -c 'echo $$ >child; sleep 1000'";
    let id = world.create(&body("long", command)).await;
    let child = world.pod_file(&id, &format!("{id}-master-0"), "child").await;
    assert!(!is_gone(&child));
    world.running.shutdown().await;
    assert!(is_gone(&child));
}

#[test]
fn no_process_outlives_an_emulator_that_is_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut emulator = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
        .args(["emulator", "--allow-root", "--access-key", "id:secret", "--dir"])
        .arg(folder.path().join("d"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut first = String::new();
    let mut output = BufReader::new(emulator.stdout.take().expect("an output"));
    output.read_line(&mut first).expect("a line");
    let address = first.trim().strip_prefix("listening on http://").expect("an address");
    let address = address.parse().expect("an address");

    let command = "trap '' TERM; sleep 1000 & echo $! >child; wait";
    let create = send_by_hand(address, &body("left", command).to_string());
    assert!(create.contains("JobId"), "{create}");
    let child = loop {
        let found = std::fs::read_dir(folder.path().join("d/jobs")).ok().and_then(|mut jobs| {
            let job = jobs.next()?.ok()?;
            let pod = format!("{}-master-0/child", job.file_name().to_str()?);
            let text = std::fs::read_to_string(job.path().join(pod)).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        });
        match found {
            Some(child) => break child,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    assert!(!is_gone(&child));
    emulator.kill().expect("killed");
    emulator.wait().expect("ended");
    while !is_gone(&child) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn send_by_hand(address: SocketAddr, body: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let answer = send(&client(), address, "CreateJob", "POST", "/api/v1/jobs", body).await;
        answer.expect("answered").1.to_string()
    })
}

#[tokio::test]
async fn a_data_mount_is_there_or_jobs_are_refused_with_the_reason() {
    let data = tempfile::tempdir().expect("a folder");
    std::fs::write(data.path().join("mounted.txt"), "x").expect("written");
    let path = data.path().to_owned();
    let world = World::with(|options| {
        options.run_as = RunAs::Processes { data_mount: Some(path) };
    })
    .await;
    let asked = body("mounted", "ls /mnt/data/ && echo new >/mnt/data/written.txt");
    if mounts_are_allowed() {
        let id = world.create(&asked).await;
        world.until(&id, "Succeeded").await;
        assert!(data.path().join("written.txt").exists());
        assert!(!Path::new("/mnt/data/mounted.txt").exists(), "only the job sees the mount");
    } else {
        let (status, answer) =
            world.call("CreateJob", "POST", "/api/v1/jobs", &asked.to_string()).await;
        let reason = answer["Message"].as_str().expect("a text");
        assert_eq!(status, 400);
        assert!(
            reason.contains("this host does not allow") || reason.contains("unshare"),
            "{reason}"
        );
    }
    world.running.shutdown().await;
}

/// Whether this host lets a process of ours have mounts of its own.
pub(crate) fn mounts_are_allowed() -> bool {
    let script = "mount -t tmpfs none /mnt && mkdir /mnt/x && mount --rbind / /mnt/x";
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    let status = command
        .args(["--mount", "sh", "-c", script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn only_loopback_is_listened_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = Options::new(folder.path().to_owned(), key());
    options.listen = "0.0.0.0:0".parse().expect("an address");
    assert!(matches!(serve(options).await, Err(EmulatorError::NotLoopback(_))));
    if rustix::process::geteuid().is_root() {
        let options = Options::new(folder.path().to_owned(), key());
        assert!(matches!(serve(options).await, Err(EmulatorError::Root)));
    }
}
