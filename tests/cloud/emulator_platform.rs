//! What the platform does by itself, as the emulator plays it: releases in every dialect, restarts
//! under one id, bidding, reserved machines, mounts and recorded markets.
//!
//! Stories of virtual jobs are played on a world without clock and socket, so that hours pass at
//! once; those of real processes go over the socket.

use crate::emulator::mounts_are_allowed;
use crate::emulator_client::{World as Desk, body, story};
use serde_json::{Map, Value, json};
use spotkeeper::emulator::dialect::{Dialect, DialectChoice};
use spotkeeper::emulator::job::Moment;
use spotkeeper::emulator::ledger::Ledger;
use spotkeeper::emulator::market::Market;
use spotkeeper::emulator::views;
use spotkeeper::emulator::world::{Pace, Runner, World};
use spotkeeper::model::time::WallTime;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A world of virtual jobs whose clock is a number.
struct Played {
    world: World,
    now: Moment,
    folder: TempDir,
}

impl Played {
    fn new(market: &str, dialect: &str) -> Self {
        let wall = WallTime::parse("2026-01-12T14:35:01Z").expect("a time");
        let now = Moment { at: Duration::ZERO, wall };
        Self::open(tempfile::tempdir().expect("a folder"), market, dialect, now)
    }

    /// The world after the emulator was started again on its folder.
    fn again(mut self) -> Self {
        self.world.close();
        Self::open(self.folder, "constant:0.3", "plain", self.now)
    }

    fn open(folder: TempDir, market: &str, dialect: &str, now: Moment) -> Self {
        let pace = Pace {
            phase_delay: Duration::from_secs(1),
            grace: Duration::from_secs(5),
            list_price_per_minute: 0.02,
            minute: Duration::from_secs(10),
        };
        let ledger = Ledger::open(folder.path()).expect("a ledger");
        let market = Market::open(&market.parse().expect("a market")).expect("opened");
        let dialects: DialectChoice = dialect.parse().expect("a dialect");
        let world = World::open(ledger, market, dialects, Runner::Virtual, pace, now);
        Self { world: world.expect("a world"), now, folder }
    }

    fn create(&mut self, body: &Value) -> String {
        self.world.create(body.to_string().as_bytes(), self.now).expect("taken")
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            let step = Duration::from_secs(1);
            self.now = Moment { at: self.now.at + step, wall: self.now.wall.plus(step) };
            self.world.advance(self.now).expect("advanced");
        }
    }

    fn release(&mut self, id: &str, dialect: Dialect) {
        self.world.release(id, Some(dialect), self.now).expect("released");
    }

    fn market(&mut self, set: Value) {
        self.world.market.set_by_hand(set).expect("set");
    }

    fn job(&self, id: &str) -> Value {
        Value::Object(views::whole(self.world.job(id).expect("a job"), self.now.wall))
    }

    /// Looks every second until the job has this status.
    fn until(&mut self, id: &str, status: &str) -> Value {
        for _ in 0..1_000 {
            let job = self.job(id);
            if job["Status"] == status {
                return job;
            }
            self.pass(1);
        }
        panic!("never {status}: {}", self.job(id));
    }

    fn story(&self, id: &str) -> Vec<String> {
        story(&crate::emulator_client::ledger(self.folder.path()), id)
    }
}

fn words(job: &Value) -> Vec<&str> {
    let steps = job["StatusHistory"].as_array().expect("a list");
    steps.iter().map(|step| step["Status"].as_str().expect("a word")).collect()
}

fn with(mut body: Value, more: &Value) -> Value {
    let target = body.as_object_mut().expect("an object");
    target.extend(more.as_object().expect("an object").clone());
    body
}

fn aimaster(most: u32) -> Value {
    let args = format!("--enable-job-restart=True --max-num-of-job-restart={most}");
    json!({"Settings": {"EnableErrorMonitoringInAIMaster": true, "ErrorMonitoringArgs": args}})
}

fn pods(mut body: Value, count: u64) -> Value {
    body["JobSpecs"][0]["PodCount"] = json!(count);
    body
}

/// What of an answer is the same for every job that lived through the same.
fn shape(job: &Value) -> Value {
    let id = job["JobId"].as_str().expect("an id");
    let message = job["ReasonMessage"].as_str().expect("a text").replace(id, "ID");
    let message = serde_json::from_str::<Value>(&message).unwrap_or(json!(message));
    let is_set = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let pod = |pod: &Value| {
        json!({
            "PodId": pod["PodId"].as_str().expect("an id").replace(id, "ID"),
            "Type": pod["Type"], "Status": pod["Status"], "SubStatus": pod["SubStatus"],
            "started": is_set(&pod["GmtStartTime"]), "finished": is_set(&pod["GmtFinishTime"]),
        })
    };
    let shaped: Vec<Value> = job["Pods"]
        .as_array()
        .expect("pods")
        .iter()
        .map(|whole| {
            let past = whole["HistoryPods"].as_array().expect("pods").iter().map(pod);
            let mut shown = pod(whole);
            shown["HistoryPods"] = past.collect();
            shown
        })
        .collect();
    let times = ["Submitted", "Running", "Finish", "Successed", "Failed", "Stopped"];
    let times: Vec<bool> = times.map(|name| is_set(&job[format!("Gmt{name}Time")])).to_vec();
    let last = job["StatusHistory"].as_array().and_then(|steps| steps.last()).expect("a step");
    // While a job goes on, the recordings repeat its code there; afterwards that is the question.
    let told = ["Succeeded", "Failed", "Stopped", "FailedReserving"]
        .iter()
        .any(|word| last["Status"] == *word);
    let mut shape = json!({
        "words": words(job), "Status": job["Status"], "SubStatus": job["SubStatus"],
        "ReasonCode": job["ReasonCode"], "ReasonMessage": message, "times": times,
        "history code": told.then(|| last["ReasonCode"].clone()), "Pods": shaped,
        "RestartTimes": job["RestartTimes"], "ResourceType": job["ResourceType"],
        "RestartRecord": job["RestartRecord"],
    });
    if let Some(content) = shape.pointer_mut("/ReasonMessage/content").and_then(Value::as_array_mut)
    {
        for part in content {
            part["time"] = json!("");
        }
    }
    for record in shape["RestartRecord"].as_array_mut().expect("a list") {
        for key in ["OccurTime", "RestartDurationInSec"] {
            record[key] = json!("");
        }
        let detail = &mut record["DetailErrorInfoList"][0];
        detail["Node"] = json!("");
        detail["Pod"] = json!(detail["Pod"].as_str().expect("a pod").replace(id, "ID"));
    }
    shape
}

#[test]
fn each_story_looks_as_in_the_recorded_answer() {
    let run = |exit: &str| json!({"Envs": {"EMULATOR_RUN_SECONDS": "60", "EMULATOR_EXIT": exit}});
    let lingjun = |mut body: Value| {
        body["JobSpecs"][0]["EcsSpec"] = json!("ml.gu7ef.8xlarge-gu100");
        body["JobSpecs"][0]["SpotSpec"]["SpotDiscountLimit"] = json!(0.1);
        body
    };
    let one = || body("job", "true");
    let reserved = json!({"Settings": {"JobReservedMinutes": 30}});
    let golden: [(&str, Value, Option<Dialect>); 14] = [
        ("queuing", one(), None),
        ("env_preparing", one(), None),
        ("running", one(), None),
        ("bidding", lingjun(one()), None),
        ("succeeded", with(one(), &run("0")), None),
        ("failed_user_exit1", with(one(), &run("1")), None),
        ("failed_exit137", with(one(), &run("137")), None),
        ("failed_reserving", with(with(one(), &run("1")), &reserved), None),
        ("failed_plain_137.INFERRED", one(), Some(Dialect::Plain)),
        ("failed_evicted.INFERRED", one(), Some(Dialect::Evicted)),
        ("stopped_without_code.INFERRED", one(), Some(Dialect::StoppedWithoutCode)),
        ("succeeded_after_term.INFERRED", one(), Some(Dialect::SucceededAfterTerm)),
        ("one_pod_of_eight_gone.INFERRED", pods(one(), 8), Some(Dialect::OnePodGone)),
        ("restarting_in_place", with(one(), &aimaster(3)), Some(Dialect::Plain)),
    ];
    for (name, body, released) in golden {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/data/dlc-golden/responses/get_job.{name}.json"));
        let text = std::fs::read_to_string(path).expect(name);
        let expected: Value = serde_json::from_str(&text).expect("JSON");
        let mut played = Played::new("constant:0.3", "plain");
        let id = played.create(&body);
        if let Some(dialect) = released {
            played.until(&id, "Running");
            played.pass(10);
            played.release(&id, dialect);
        }
        let job = played.until(&id, expected["Status"].as_str().expect("a status"));
        assert_eq!(shape(&job), shape(&expected), "{name}");
    }
}

#[test]
fn each_dialect_tells_what_it_tells_and_no_more() {
    // Dialect, status, code, what the message holds, exit code in the ledger, pod sub-status.
    let table = [
        (Dialect::Plain, "Failed", "JobFailed", r#""reason":"137""#, "Normal"),
        (Dialect::Exit143, "Failed", "JobFailed", r#""reason":"143""#, "Normal"),
        (Dialect::EmptyReason, "Failed", "", "", "Normal"),
        (Dialect::JsonMessage, "Failed", "JobFailed", "Preempted", "Normal"),
        (Dialect::Evicted, "Failed", "JobFailed", r#""reason":"Evicted""#, "Evicted"),
        (Dialect::StoppedWithoutCode, "Stopped", "", "", ""),
        (Dialect::SucceededAfterTerm, "Succeeded", "JobSucceeded", "successfully", "Normal"),
        (Dialect::OnePodGone, "Failed", "JobFailed", r#""reason":"1""#, "Normal"),
        (Dialect::RestartingInPlace, "Running", "", "", ""),
        (Dialect::Chinese, "Failed", "JobFailed", "抢占式实例已被回收", "Normal"),
    ];
    assert_eq!(table.len(), Dialect::ALL.len());
    for (dialect, status, code, message, sub_status) in table {
        let mut played = Played::new("constant:0.3", dialect.word());
        let id = played.create(&pods(body("job", "true"), 2));
        played.until(&id, "Running");
        let before = played.world.job(&id).expect("a job").events.len();
        played.world.release(&id, None, played.now).expect("released");
        played.pass(10);
        let job = played.job(&id);
        let said = job["ReasonMessage"].as_str().expect("a text");
        let word = dialect.word();
        assert_eq!((&job["Status"], &job["ReasonCode"]), (&json!(status), &json!(code)), "{word}");
        assert!(
            said.contains(message) && (said.is_empty() == message.is_empty()),
            "{word}: {said}"
        );
        assert_eq!(job["Pods"][0]["SubStatus"], sub_status, "{word}");
        let events = &played.world.job(&id).expect("a job").events[before..];
        let speaks =
            matches!(dialect, Dialect::Evicted | Dialect::Chinese | Dialect::RestartingInPlace);
        assert_eq!(!events.is_empty(), speaks, "{word}: {events:?}");
        let ascii = serde_json::to_string(&job).expect("JSON").is_ascii();
        assert_eq!(ascii, dialect != Dialect::Chinese, "{word}");
    }
}

#[test]
fn aimaster_runs_the_command_again_until_its_restarts_are_used_up() {
    let mut played = Played::new("constant:0.3", "plain");
    let envs = json!({"Envs": {"EMULATOR_RUN_SECONDS": "60", "EMULATOR_EXIT": "3"}});
    let asked = pods(with(with(body("job", "train"), &aimaster(2)), &envs), 2);
    let id = played.create(&asked);
    let first = played.until(&id, "Running");
    let restarting = played.until(&id, "Restarting");
    assert_eq!(
        (&restarting["SubStatus"], &restarting["RestartTimes"]),
        (&json!("Restarting"), &json!("1/2"))
    );
    assert_eq!(restarting["RestartRecord"][0]["RestartStatus"], "Restarting");
    assert_eq!(played.until(&id, "EnvPreparing")["SubStatus"], "Restarting");
    let again = played.until(&id, "Running");
    assert_eq!(again["SubStatus"], "");
    assert_eq!(again["RestartRecord"][0]["RestartStatus"], "Succeeded");
    assert_eq!(again["RestartRecord"][0]["DetailErrorInfoList"][0]["ErrorCode"], "PodExitCode3");
    assert_eq!(again["UserCommand"], "train");
    assert_eq!(again["GmtRunningTime"], first["GmtRunningTime"]);
    for at in 0..2 {
        assert_eq!(again["Pods"][at]["PodId"], first["Pods"][at]["PodId"]);
        assert_ne!(again["Pods"][at]["PodUid"], first["Pods"][at]["PodUid"]);
        assert_eq!(again["Pods"][at]["HistoryPods"][0]["PodUid"], first["Pods"][at]["PodUid"]);
    }
    let ended = played.until(&id, "Failed");
    assert_eq!(ended["RestartTimes"], "2/2");
    assert_eq!(ended["Pods"][1]["HistoryPods"].as_array().map(Vec::len), Some(2));
    let once = ["Queuing", "EnvPreparing", "Running"];
    let lived =
        [&["Creating"][..], &once, &["Restarting"], &once, &["Restarting"], &once, &["Failed"]];
    assert_eq!(words(&ended), lived.concat());
    let ran = Duration::from_secs(ended["Duration"].as_u64().expect("seconds"));
    let parse = |key: &str| WallTime::parse(ended[key].as_str().expect("a time")).expect("a time");
    assert_eq!(parse("GmtFinishTime").since(parse("GmtRunningTime")), ran);
    let story = played.story(&id);
    let last_words = story.iter().filter(|line| line.starts_with("end")).count();
    assert_eq!(last_words, 1, "a restart is no end");
}

#[test]
fn elastic_spot_restarts_after_a_release_alone() {
    let mut played = Played::new("constant:0.3", "plain");
    let mut asked = with(
        body("job", "true"),
        &json!({"Settings": {"ElasticSpotJobMaxRestartTimes": 1},
            "Envs": {"EMULATOR_RUN_SECONDS": "60", "EMULATOR_EXIT": "1"}}),
    );
    asked["JobSpecs"][0]["SpotSpec"] = json!(null);
    // Percent of the list price, other than SpotSpec.
    asked["JobSpecs"][0]["ElasticSpotSpecs"] =
        json!([{"InstanceType": "ecs.g7.xlarge", "SpotDiscountLimit": 40}]);
    let id = played.create(&asked);
    let running = played.until(&id, "Running");
    assert_eq!(running["JobReplicaStatuses"][0]["CurrentSpotInstanceType"], "ecs.g7.xlarge");
    played.market(json!({"discount": 0.41}));
    assert_eq!(played.until(&id, "Queuing")["RestartTimes"], "1/1");
    played.pass(600);
    assert_eq!(played.job(&id)["Status"], "Queuing", "it waits for its price");
    played.market(json!({}));
    played.until(&id, "Running");
    assert_eq!(played.until(&id, "Failed")["RestartTimes"], "1/1");

    let failing = played.create(&asked);
    assert_eq!(played.until(&failing, "Failed")["RestartTimes"], "0/1");
}

#[test]
fn lingjun_bids_again_in_place_and_can_be_stopped_while_it_does() {
    let mut played = Played::new("constant:0.3", "plain");
    let mut asked = with(body("job", "true"), &aimaster(5));
    asked["JobSpecs"][0]["EcsSpec"] = json!("ml.gu7ef.8xlarge-gu100");
    let id = played.create(&asked);
    played.until(&id, "Running");
    played.market(json!({"stock": false}));
    let bidding = played.until(&id, "Bidding");
    assert_eq!(
        (&bidding["ResourceType"], &bidding["SubStatus"]),
        (&json!("Lingjun"), &json!("Restarting"))
    );
    let tail = &words(&bidding)[4..];
    assert_eq!(tail, ["Running", "Restarting", "Bidding"]);
    played.world.stop(&id, played.now).expect("accepted");
    let stopped = played.until(&id, "Stopped");
    assert_eq!(stopped["ReasonCode"], "JobStoppedByUser");
    asked["JobSpecs"][0]["SpotSpec"] =
        json!({"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": 0.01});
    let text = asked.to_string();
    let refused = played.world.create(text.as_bytes(), played.now).expect_err("refused");
    assert!(refused.to_string().contains("SpotDiscountLimit"), "{refused}");
}

#[test]
fn a_machine_is_kept_after_an_end_for_as_long_as_was_asked() {
    for (policy, exit, kept) in [
        ("", "0", Some("SucceededReserving")),
        ("OnFailure", "0", None),
        ("OnFailure", "1", Some("FailedReserving")),
        ("OnSuccess", "1", None),
    ] {
        let mut played = Played::new("constant:0.3", "plain");
        let more = json!({"Envs": {"EMULATOR_RUN_SECONDS": "5", "EMULATOR_EXIT": exit},
            "Settings": {"JobReservedMinutes": 2, "JobReservedPolicy": policy}});
        let id = played.create(&with(body("job", "true"), &more));
        let end = if exit == "0" { "Succeeded" } else { "Failed" };
        if let Some(kept) = kept {
            let before = played.until(&id, kept);
            assert_eq!(
                (&before["GmtFinishTime"], &before["Pods"][0]["Status"]),
                (&json!(""), &json!("Running"))
            );
            // A minute lasts ten seconds here.
            played.pass(19);
            assert_eq!(played.job(&id)["Status"], kept);
            let after = played.until(&id, end);
            assert_eq!(after["ReasonCode"], before["ReasonCode"]);
            assert_eq!(after["ReasonMessage"], before["ReasonMessage"]);
            assert_eq!(after["GmtFailedTime"], before["GmtFailedTime"]);
        } else {
            assert!(!words(&played.until(&id, end)).iter().any(|word| word.ends_with("Reserving")));
        }
        let again = played.create(&with(body("job", "true"), &more));
        if let Some(kept) = kept {
            played.until(&again, kept);
            played.world.stop(&again, played.now).expect("accepted");
            played.pass(1);
            assert_eq!(played.job(&again)["Status"], end, "a stop gives the machine back");
        }
    }
}

#[test]
fn a_second_start_knows_restarts_and_reserved_machines() {
    let mut played = Played::new("constant:0.3", "plain");
    let envs = json!({"Envs": {"EMULATOR_RUN_SECONDS": "60", "EMULATOR_EXIT": "0"}});
    let restarted = played.create(&with(with(body("again", "true"), &aimaster(3)), &envs));
    let reserve = json!({"Settings": {"JobReservedMinutes": 30}});
    let reserved = played.create(&with(with(body("kept", "true"), &reserve), &envs));
    played.until(&restarted, "Running");
    played.release(&restarted, Dialect::Plain);
    let before = played.until(&reserved, "SucceededReserving");
    let played = played.again();
    let after = played.job(&reserved);
    assert_eq!(
        (&after["Status"], &after["ReasonCode"]),
        (&json!("Succeeded"), &before["ReasonCode"])
    );
    let open = played.job(&restarted);
    assert_eq!((&open["Status"], &open["RestartTimes"]), (&json!("Failed"), &json!("1/3")));
    assert_eq!(open["Pods"][0]["HistoryPods"].as_array().map(Vec::len), Some(1));
    assert!(words(&open).contains(&"Restarting"), "{open}");
}

#[test]
fn a_seed_plays_the_same_lives_again() {
    let play = |seed: u64| {
        let mut played = Played::new("seed:3", &format!("seed:{seed}"));
        let ids: Vec<String> = (0..120_u64)
            .map(|at| {
                let asked = pods(body(&format!("job-{at}"), "true"), 1 + at % 3);
                let envs = json!({"Envs": {"EMULATOR_RUN_SECONDS": "600"}});
                let asked = with(asked, &envs);
                played.create(&if at % 4 == 0 { with(asked, &aimaster(2)) } else { asked })
            })
            .collect();
        played.pass(1500);
        let lives = ids.iter().map(|id| {
            let job = played.job(id);
            let keys = ["Status", "ReasonCode", "RestartTimes", "Duration", "GmtFinishTime"];
            keys.map(|key| job[key].to_string()).join(" ")
        });
        lives.collect::<Vec<String>>()
    };
    let lives = play(7);
    assert_eq!(lives, play(7));
    assert_ne!(lives, play(8));
    for word in ["Failed", "Stopped", "Succeeded", "1/10", "2/2"] {
        assert!(lives.iter().any(|life| life.contains(word)), "{word}: {lives:?}");
    }
}

#[test]
fn a_recorded_market_has_room_for_so_many_pods_and_a_price_history() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("recorded.jsonl");
    let line = json!({"id": "z", "kind": "capacity", "max_nodes": 4, "step_s": 600,
        "avail": [[4, 2], [1, 1], [4, 97]], "price": [[1.0, 1], [1.2, 99]], "od_price": 4.0});
    std::fs::write(&file, line.to_string()).expect("written");
    let market = format!("trace:{},speed=60", file.display());
    let mut played = Played::new(&market, "plain");
    let small = played.create(&body("small", "true"));
    let gang = played.create(&pods(body("gang", "true"), 4));
    let start = played.now.wall;
    played.until(&gang, "Running");
    let ended = played.until(&gang, "Failed");
    assert_eq!(played.now.at, Duration::from_secs(21), "{ended}");
    assert_eq!(played.job(&small)["Status"], "Running", "one machine is left for it");
    let history = played.world.price_history(start, played.now.wall, played.now);
    let history: Vec<(u64, String)> = history
        .iter()
        .map(|(wall, discount)| (wall.since(start).as_secs(), format!("{discount:.2}")))
        .collect();
    assert_eq!(history, [(1, "0.25".to_owned()), (10, "0.30".to_owned())]);
}

#[tokio::test]
async fn each_incarnation_of_a_pod_has_its_own_folder_and_log() {
    let desk = Desk::with(|_| {}).await;
    let command = "echo \"$SAY in $PWD\"; [ -e here ] && exit 9; echo >here; exit 4";
    let mut asked = with(body("again", command), &aimaster(1));
    asked["CustomEnvs"] = json!([{"Key": "SAY", "Value": "said", "Visible": "private"}]);
    let id = desk.create(&asked).await;
    let job = desk.until(&id, "Failed").await;
    let message = job["ReasonMessage"].as_str().expect("a text");
    assert!(message.contains(r#""reason":"4""#), "a new pod has a new folder: {message}");
    assert_eq!(job["CustomEnvs"], asked["CustomEnvs"]);
    assert_eq!(job["RestartTimes"], "1/1");
    let pod = &job["Pods"][0];
    let name = pod["PodId"].as_str().expect("an id");
    let path = format!("/api/v1/jobs/{id}/pods/{name}/logs?MaxLines=9&PodUid=");
    let mut said = Vec::new();
    for uid in [&pod["HistoryPods"][0]["PodUid"], &pod["PodUid"], &json!("")] {
        let target = format!("{path}{}", uid.as_str().expect("a uid"));
        let (_, logs) = desk.call("GetPodLogs", "GET", &target, "").await;
        assert_eq!(logs["Logs"].as_array().map(Vec::len), Some(1), "{logs}");
        said.push(logs["Logs"][0].clone());
    }
    assert_ne!(said[0], said[1], "each incarnation has its own log");
    assert_eq!(said[1], said[2], "without a PodUid it is that of the present one");
    let (status, _) = desk.call("GetPodLogs", "GET", &format!("{path}nobody"), "").await;
    assert_eq!(status, 404);
    desk.running.shutdown().await;
}

#[tokio::test]
async fn the_pods_that_lose_a_peer_say_so_in_their_logs() {
    let desk = Desk::with(|options| {
        options.dialects = DialectChoice::Fixed(Dialect::OnePodGone);
        options.grace = Duration::from_mins(1);
    })
    .await;
    let id = desk.create(&pods(body("gang", "echo >ready; sleep 1000"), 3)).await;
    desk.until(&id, "Running").await;
    let names = ["master-0", "worker-0", "worker-1"].map(|name| format!("{id}-{name}"));
    for name in &names {
        desk.pod_file(&id, name, "ready").await;
    }
    desk.admin("POST", &format!("/emulator/release/{id}"), &json!(null)).await;
    let job = desk.until(&id, "Failed").await;
    let status: Vec<&Value> = [0, 1, 2].map(|at: usize| &job["Pods"][at]["Status"]).to_vec();
    assert_eq!(status, ["Failed", "Unknown", "Failed"]);
    for (name, traceback) in names.iter().zip([true, false, true]) {
        let path = desk.folder.path().join("jobs").join(&id).join(format!("{name}.log"));
        let log = std::fs::read_to_string(path).expect("a log");
        assert_eq!(log.contains("Traceback"), traceback, "{name}: {log}");
    }
    desk.running.shutdown().await;
}

#[tokio::test]
async fn data_sources_are_mounted_for_the_job_alone_or_it_is_refused() {
    let top = tempfile::tempdir().expect("a folder");
    let at = |name: &str| top.path().join(name);
    for folder in ["in", "out", "oss"] {
        std::fs::create_dir(at(folder)).expect("made");
    }
    std::fs::write(at("in/data.txt"), "some data\n").expect("written");
    let oss_root = at("oss");
    let desk = Desk::with(|options| options.oss_root = Some(oss_root)).await;
    let sources = json!([
        {"Uri": format!("file://{}/", at("in").display()), "MountPath": "/mnt/in/", "MountAccess": "RO"},
        {"Uri": format!("file://{}", at("out").display()), "MountPath": "/mnt/deep/out"},
        {"Uri": "oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com/run/1/", "MountPath": "/mnt/oss"},
        {"DataSourceId": "d-1", "MountPath": "/mnt/set"},
    ]);
    let command = "set -e; cp /mnt/in/data.txt /mnt/deep/out/; echo x >/mnt/oss/x; \
                   echo >here; if echo >/mnt/in/new; then exit 5; fi; exit 0";
    let asked = with(body("mounted", command), &json!({"DataSources": sources}));
    if mounts_are_allowed() {
        let id = desk.create(&asked).await;
        let job = desk.until(&id, "Succeeded").await;
        assert_eq!(job["DataSources"], sources);
        assert_eq!(std::fs::read_to_string(at("out/data.txt")).expect("copied"), "some data\n");
        assert!(at("oss/bucket/run/1/x").exists());
        assert!(!at("in/new").exists() && !Path::new("/mnt/deep").exists());
        let (_, events) =
            desk.call("GetJobEvents", "GET", &format!("/api/v1/jobs/{id}/events"), "").await;
        assert!(events.to_string().contains("DataSourceNotMounted d-1"), "{events}");
    } else {
        let text = asked.to_string();
        let (status, answer) = desk.call("CreateJob", "POST", "/api/v1/jobs", &text).await;
        assert_eq!((status, &answer["Code"]), (400, &json!("InvalidParameter")), "{answer}");
    }
    let mut odd: Map<String, Value> = asked.as_object().expect("an object").clone();
    for uri in [format!("file://{}", desk.folder.path().display()), "file:///not/there".to_owned()]
    {
        odd.insert("DataSources".into(), json!([{"Uri": uri, "MountPath": "/mnt/x"}]));
        let text = Value::Object(odd.clone()).to_string();
        let (status, answer) = desk.call("CreateJob", "POST", "/api/v1/jobs", &text).await;
        assert_eq!((status, &answer["Code"]), (400, &json!("InvalidParameter")), "{answer}");
    }
    desk.running.shutdown().await;
}
