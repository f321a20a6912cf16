//! Losing sight of a job: what cannot be seen ends nothing, and what ended is not waited for.

use super::outpost::{LOOK_EVERY_S, Outpost, SEVERAL_PASSES, job_text, plain};
use super::put_over;
use serde_json::{Value, json};
use spotkeeper::emulator::dialect::{Dialect, DialectChoice};
use spotkeeper::emulator::market::MarketSpec;
use spotkeeper::model::handle::ActVerb;

/// More uses than a rule will have.
const ALWAYS: u64 = 1_000_000;

/// Answers that say nothing of any job, each with its name.
fn nonsense() -> [(&'static str, Value); 9] {
    [
        ("a 500", json!({ "status": 500, "body": "{\"Code\":\"InternalError\"}" })),
        ("a 503 in HTML", json!({ "status": 503, "body": "<html>busy</html>" })),
        ("a 502 without a body", json!({ "status": 502, "body": "" })),
        ("a proxy's page with 200", json!({ "status": 200, "body": "<html>log in</html>" })),
        ("an empty object", json!({ "status": 200, "body": "{}" })),
        ("a list where an object belongs", json!({ "status": 200, "body": "[]" })),
        ("cut JSON", json!({ "truncate": 40 })),
        ("a closed connection", json!({ "drop_before": true })),
        ("throttling", json!({ "throttle": true })),
    ]
}

/// The same fate for a call, this often.
fn rule(call: &str, fate: &Value, times: u64) -> Value {
    let mut rule = json!({ "call": call, "times": times });
    rule.as_object_mut().expect("an object").extend(fate.as_object().expect("keys").clone());
    rule
}

/// Row 27: "GetJob: error, error, then Failed(reclaim). -> one recovery".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_27_errors_at_the_moment_of_the_loss_are_one_recovery() {
    let mut post = Outpost::start(&[]).await;
    post.put("train", &post.saving("train"));
    post.until_runs("train", 1).await;
    for (n, (what, fate)) in (1_u32..).zip(nonsense()) {
        post.save("train", u64::from(n) * 10);
        post.faults(&json!([rule("GetJob", &fate, 2)])).await;
        post.release("train").await;
        post.until_runs("train", n + 1).await;
        assert_eq!(post.creates("train"), n as usize + 1, "{what}");
        let row = post.row("train").await;
        assert_eq!((&row["releases"], &row["errors"]), (&json!(0), &json!(n)), "{what}: {row}");
    }
    post.assert_never_two();
    post.end().await;
}

/// Row 28: "Running -> Queuing -> EnvPreparing -> Running with the same JobId and a new pod. ->
/// counted as a vendor restart, lost time shown, no second submit".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_28_a_silent_replacement_is_a_restart_of_the_vendor() {
    let change = |options: &mut spotkeeper::emulator::Options| {
        options.dialects = DialectChoice::Fixed(Dialect::RestartingInPlace);
        options.phase_delay = std::time::Duration::from_millis(500);
    };
    let mut post = Outpost::with(change, "", &[("train", plain(""))]).await;
    for restarts in 0..3_u32 {
        let is_so = |row: &Value| row["phase"] == "RUNNING" && row["restarts"] == restarts;
        post.until("train", "runs", is_so).await;
        post.release("train").await;
    }
    post.until("train", "is restarted", |row| row["restarts"] == 3).await;
    post.until_runs("train", 1).await;
    let id = post.id("train");
    let job = post.cloud.get(&id).await;
    assert_eq!(job["Pods"][0]["HistoryPods"].as_array().map(Vec::len), Some(3), "{job}");
    assert_eq!((post.creates("train"), post.ledger("train", "end").len()), (1, 0));
    let page = post.page("train").await;
    assert_eq!(page["attempts"][0]["restarts"], 3);
    assert_eq!((&page["row"]["releases"], &page["row"]["errors"]), (&json!(0), &json!(0)));
    let told = post.told("RESTARTED_IN_PLACE").await;
    assert_eq!(told.len(), 3, "{told:?}");
    post.end().await;
}

/// Row 30: "Reclaim at t=0. -> new submit accepted at most poll gap + 5 s later; measured". By the
/// ledger's own times, for each dialect of a release that ends a job.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_30_a_release_is_answered_within_a_look_and_five_seconds() {
    let mut post = Outpost::start(&[]).await;
    post.put("train", &post.saving("train"));
    for attempt in 1..=3 {
        post.until_runs("train", attempt).await;
        post.save("train", u64::from(attempt) * 10);
        post.release("train").await;
    }
    post.until_runs("train", 4).await;
    assert_answered_soon(&post);
    post.end().await;
}

/// Each end of the ledger was followed by a CreateJob soon.
fn assert_answered_soon(post: &Outpost) {
    let at = |event: &str| -> Vec<f64> {
        post.ledger("train", event).iter().map(|line| line["t"].as_f64().expect("s")).collect()
    };
    let (ends, creates) = (at("end"), at("create"));
    assert_eq!(creates.len(), ends.len() + 1);
    for (end, create) in ends.iter().zip(&creates[1..]) {
        assert!(create - end <= LOOK_EVERY_S + 5.0, "ended at {end} s, submitted at {create} s");
    }
}

/// Row 31: "GetJob for the old id says Failed; pods endpoints time out. -> log fetch failure must
/// not delay recovery".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_31_logs_and_events_that_never_come_delay_nothing() {
    let mut post = Outpost::start(&[]).await;
    post.put("train", &post.saving("train"));
    let fates =
        [json!({ "delay": "60s" }), json!({ "drop_before": true }), json!({ "status": 404 })];
    for (attempt, fate) in (1..).zip(&fates) {
        let calls = ["GetPodLogs", "GetPodEvents", "GetJobEvents"];
        let rules: Vec<Value> = calls.iter().map(|call| rule(call, fate, ALWAYS)).collect();
        post.faults(&json!(rules)).await;
        post.until_runs("train", attempt).await;
        post.save("train", u64::from(attempt) * 10);
        post.release("train").await;
        post.until_runs("train", attempt + 1).await;
    }
    assert_answered_soon(&post);
    post.end().await;
}

/// Row 32: "Config with retry on reclaim, job ended by console stop. -> verdict
/// `STOPPED_BY_OTHER`, policy decides, and the reason for not retrying is printed".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_32_a_stop_in_the_console_is_held_and_says_why() {
    for policy in ["", "[retry]\non_stopped = \"hold\"\n", "[retry]\non_stopped = \"resume\"\n"] {
        let mut post = Outpost::start(&[("train", plain(policy))]).await;
        post.until_runs("train", 1).await;
        let (status, told) = post.cloud.stop(&post.id("train")).await;
        assert_eq!(status, 200, "{told}");
        post.until("train", "is held", |row| row["phase"] == "BLOCKED").await;
        tokio::time::sleep(SEVERAL_PASSES).await;
        // A person's code is a person's will, under every policy.
        assert_eq!(post.creates("train"), 1, "{policy}");
        let why = post.why("train").await;
        let verdict = &why["attempt"]["verdict"];
        assert_eq!(verdict["cause"], "stopped_by_person", "{policy}: {why:#}");
        assert!(verdict["evidence"].to_string().contains("JobStoppedByUser"), "{why:#}");
        assert!(why["holds"].to_string().contains("stopped"), "{why:#}");
        assert!(why["row"]["why"].as_str().is_some_and(|why| why.contains("stop")), "{why:#}");
        // It is the person's to go on.
        post.act("train", ActVerb::Retry).await.expect("it is done");
        post.until_runs("train", 2).await;
        post.assert_never_two();
        post.end().await;
    }
}

/// The policy's own case of row 32: a stop that nobody's code explains.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_32_a_stop_without_a_code_follows_the_policy() {
    for (policy, held) in [("hold", true), ("resume", false)] {
        let change = |options: &mut spotkeeper::emulator::Options| {
            options.dialects = DialectChoice::Fixed(Dialect::StoppedWithoutCode);
        };
        let mut post = Outpost::with(change, "", &[]).await;
        let text = post.saving("train") + &format!("[retry]\non_stopped = \"{policy}\"\n");
        post.put("train", &text);
        post.until_runs("train", 1).await;
        post.release("train").await;
        if held {
            post.until("train", "is held", |row| row["phase"] == "BLOCKED").await;
            tokio::time::sleep(SEVERAL_PASSES).await;
            let why = post.why("train").await;
            assert!(why["holds"].to_string().contains("stopped"), "{why:#}");
        } else {
            post.until("train", "goes on", |row| row["phase"] == "BACKOFF").await;
        }
        assert_eq!(post.creates("train"), 1);
        post.end().await;
    }
}

/// Row 33: "5xx, TLS error, DNS failure, proxy HTML page with status 200, truncated JSON. ->
/// daemon alive, jobs untouched, backoff with jitter".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_33_a_service_that_answers_nonsense_ends_nothing() {
    let mut post = Outpost::start(&[("train", plain(""))]).await;
    post.until_runs("train", 1).await;
    // Throttling slows the looks for minutes: row 60 is about it.
    for (what, fate) in nonsense().into_iter().filter(|(what, _)| *what != "throttling") {
        post.faults(&json!([rule("*", &fate, ALWAYS)])).await;
        post.until("train", "is not seen", |row| row["stale"] == true).await;
        let row = post.row("train").await;
        assert_eq!((&row["phase"], &row["attempts"]), (&json!("RUNNING"), &json!(1)), "{what}");
        tokio::time::sleep(SEVERAL_PASSES).await;
        let daemon = post.daemon().await;
        assert!(daemon["targets"][0]["fault"].is_string(), "{what}: {daemon:#}");
        let calls = post.acted(0).await;
        assert!((1..60).contains(&calls), "{what}: {calls} calls");
        post.faults(&json!([])).await;
        post.until_runs("train", 1).await;
    }
    let row = post.row("train").await;
    assert_eq!((&row["errors"], &row["restarts"]), (&json!(0), &json!(0)));
    for event in ["end", "stop_asked", "release"] {
        assert_eq!(post.ledger("train", event).len(), 0, "{event}");
    }
    assert_eq!((post.creates("train"), post.told("ENDED").await.len()), (1, 0));
    post.end().await;
}

/// The failures of row 33 below HTTP: a name that no server knows, one that does not speak TLS, a
/// port that is closed. Another target's jobs go on beside them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_33_neither_a_dead_name_nor_broken_tls_ends_the_daemon() {
    let target = |name: &str, endpoint: &str| {
        format!(
            "[targets.{name}]\nregion = \"cn-hangzhou\"\nworkspace = \"{name}\"\n\
             endpoint = \"{endpoint}\"\ncredentials = {{ file = \"keys.toml\" }}\n"
        )
    };
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let closed_port = silent.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = silent.accept().await {
            tokio::io::AsyncWriteExt::write_all(&mut stream, b"no TLS here\r\n").await.ok();
        }
    });
    let bad = ["noname", "notls", "closed"];
    let targets = target("noname", "https://pai-dlc.invalid")
        + &target("notls", &format!("https://127.0.0.1:{closed_port}"))
        + &target("closed", "http://127.0.0.1:9");
    let elsewhere = bad.map(|name| (name, plain("").replace("\"here\"", &format!("\"{name}\""))));
    let mut post = Outpost::with(|_| (), &targets, &elsewhere).await;
    post.put("train", &post.saving("train"));
    post.until_runs("train", 1).await;
    post.save("train", 10);
    post.release("train").await;
    post.until_runs("train", 2).await;
    let daemon = post.daemon().await;
    for name in bad {
        let targets = daemon["targets"].as_array().expect("targets");
        let shown = targets.iter().find(|target| target["name"] == name).expect("the target");
        assert_eq!(shown["verified"], false, "{shown}");
        assert!(shown["fault"].as_str().is_some_and(|fault| !fault.is_empty()), "{shown}");
        let row = post.row(name).await;
        assert_eq!((&row["attempts"], &row["errors"]), (&json!(0), &json!(0)), "{row}");
        assert_eq!(post.creates(name), 0);
    }
    assert_answered_soon(&post);
    post.end().await;
}

/// Row 34: "Creating -> Failed in one poll gap. -> terminal path runs, counted as start failure".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_34_what_ends_before_it_runs_is_seen_and_counted() {
    let change = |options: &mut spotkeeper::emulator::Options| {
        options.market = MarketSpec::Constant(0.9);
    };
    let mut post = Outpost::with(change, "", &[("train", plain(""))]).await;
    post.until("train", "waits", |row| row["phase"] == "WAITING").await;
    let id = post.id("train");
    let mut job = post.cloud.get(&id).await;
    // Nothing is seen between the wait and the end.
    let blind = json!({ "status": 503, "body": "" });
    post.faults(&json!([rule("ListJobs", &blind, ALWAYS), rule("GetJob", &blind, ALWAYS)])).await;
    let (status, told) = post.cloud.stop(&id).await;
    assert_eq!(status, 200, "{told}");
    post.cloud_ends("train").await;
    put_over(
        &mut job,
        &json!({ "Status": "Failed", "ReasonCode": "JobFailed", "ReasonMessage": "no volume" }),
    );
    let list = json!({ "TotalCount": 1, "Jobs": [job], "RequestId": "r" });
    let shows = |body: &Value| json!({ "status": 200, "body": body.to_string() });
    let failed = [("ListJobs", shows(&list)), ("GetJob", shows(&job))];
    post.faults(&failed.map(|(call, fate)| rule(call, &fate, ALWAYS)).into_iter().collect()).await;
    post.until("train", "is over", |row| row["phase"] == "BACKOFF").await;
    let page = post.page("train").await;
    let attempt = &page["attempts"][0];
    assert_eq!((&attempt["state"], &attempt["ran_s"]), (&json!("ended"), &json!(0)), "{page:#}");
    assert_eq!((post.creates("train"), page["row"]["ran_s"].as_u64()), (1, Some(0)));
    let why = post.why("train").await;
    assert_eq!(why["attempt"]["verdict"]["cause"], "never_started", "{why:#}");
    assert_eq!(why["ends_without_progress"], 1, "{why:#}");
    post.end().await;
}

/// Row 35: "CreateJob returns 400. -> state `SUBMIT_FAILED`, can be edited and retried, cancel
/// works at once".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_35_a_refused_submission_is_told_edited_retried_and_cancelled() {
    let refusal = json!({ "code": "InvalidParameter", "message": "no such image: a/b" });
    let names = ["edited", "retried", "cancelled"];
    let jobs = names.map(|name| (name, plain("")));
    let mut post = Outpost::with(|_| (), "", &[]).await;
    post.faults(&json!([rule("CreateJob", &refusal, ALWAYS)])).await;
    for (name, text) in &jobs {
        post.put(name, text);
    }
    for name in names {
        let is_so = |row: &Value| row["why"].as_str().is_some_and(|w| w.contains("no such image"));
        post.until(name, "says why", is_so).await;
        let row = post.row(name).await;
        let phase = row["phase"].as_str().expect("a phase");
        assert!(["BACKOFF", "BLOCKED"].contains(&phase), "{row}");
        assert_eq!((post.creates(name), &row["vendor_status"]), (0, &Value::Null), "{row}");
        let why = post.why(name).await;
        assert_eq!(why["attempt"]["verdict"]["cause"], "never_created", "{why:#}");
    }
    post.act("cancelled", ActVerb::Cancel).await.expect("it is done");
    assert_eq!(post.row("cancelled").await["phase"], "CANCELLED", "nothing is to be waited for");
    post.faults(&json!([])).await;
    post.put("edited", &job_text("", "Envs = { EDITED = \"yes\" }", ""));
    post.act("retried", ActVerb::Retry).await.expect("it is done");
    for name in ["edited", "retried"] {
        post.until(name, "runs", |row| row["phase"] == "RUNNING").await;
        assert_eq!(post.creates(name), 1);
    }
    assert_eq!(post.sent("edited")["Envs"]["EDITED"], "yes");
    assert_eq!(
        (post.creates("cancelled"), post.row("cancelled").await["phase"].clone()),
        (0, json!("CANCELLED"))
    );
    post.end().await;
}
