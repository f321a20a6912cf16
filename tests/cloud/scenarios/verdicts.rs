//! Why an attempt ended, and what counts.

use super::{Job, SEVERAL_PASSES, Stage, put_over};
use crate::supervisor_no_space::until;
use serde_json::{Value, json};
use spotkeeper::emulator::market::MarketSpec;
use spotkeeper::service::clock::Clock;
use std::process::Command;
use std::time::Duration;

/// A market over every bid of these tests: their jobs wait in Queuing.
const OVER_THE_BID: MarketSpec = MarketSpec::Constant(0.9);
/// The verdicts that blame nobody.
const OPEN: [&str; 3] = ["released", "unexplained", "stopped_unexplained"];

/// The verdict on the last attempt that ended, once there is one.
async fn verdict(stage: &Stage, name: &str) -> Value {
    until(&format!("{name} has a verdict"), || async {
        !stage.events(name, "VERDICT").await.is_empty()
            || !stage.page(name).await["attempts"][0]["verdict"].is_null()
    })
    .await;
    stage.why(name).await["attempt"]["verdict"].clone()
}

/// `check -o json` of the stage's files.
fn check(stage: &Stage) -> String {
    let check = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
        .args(["check", "-o", "json", "--config"])
        .arg(stage.path("spotkeeper.toml"))
        .current_dir(stage.folder.path())
        .output();
    String::from_utf8(check.expect("it runs").stdout).expect("UTF-8")
}

/// "50 reclaims with a new valid checkpoint before each. max_error_restarts=3. -> still running;
/// error budget untouched". Every fifth release looks like nothing at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_09_fifty_releases_after_progress_leave_every_budget_whole() {
    const RELEASES: u32 = 50;
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job { saves: "train", tables: "[retry]\nalike = 3", ..Job::default() });
    stage.start().await;
    for number in 1..=RELEASES {
        stage
            .until(&format!("attempt {number} runs"), "train", |row| {
                row["attempts"] == number && row["phase"] == "RUNNING"
            })
            .await;
        stage.save("train", u64::from(number) * 10);
        let dialect = if number % 5 == 0 { "plain" } else { "evicted" };
        stage.release(&stage.id("train"), dialect).await;
    }
    stage
        .until("it still runs", "train", |row| {
            row["attempts"] == RELEASES + 1 && row["phase"] == "RUNNING"
        })
        .await;
    let why = stage.why("train").await;
    assert_eq!(why["ends_without_progress"], 0, "{why}");
    let released = RELEASES - RELEASES / 5;
    assert_eq!((&why["row"]["releases"], &why["row"]["errors"]), (&json!(released), &json!(10)));
    assert_eq!(stage.page("train").await["attempts"][0]["from_step"], 500);
    assert!(stage.events("train", "BACKOFF").await.is_empty(), "each was resubmitted at once");
    assert!(stage.events("train", "ALARM").await.is_empty());
    stage.assert_never_two();
    assert_eq!(stage.count("create"), 51);
    stage.end().await;
}

/// "Job exits 1 after 40 s every time, no new checkpoint. -> stops after the budget, state
/// `FAILED (crash loop)`, one notification, total spend shown"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_10_a_bug_is_not_restarted_for_ever() {
    let mut stage = Stage::new().await;
    let envs = "EMULATOR_RUN_SECONDS = \"1\", EMULATOR_EXIT = \"1\"";
    let bug = Job { envs, tables: "[retry]\nalike = 2", ..Job::default() };
    stage.put_job("bug", &bug);
    // With checkpoints, of which it writes none.
    stage.put_job("saving", &Job { saves: "saving", ..bug.clone() });
    // A release has the same wait, and is not counted with them.
    stage.put_job("released", &Job { envs: "", tables: "[retry]\nalike = 1", ..bug });
    stage.start().await;
    stage.until_phase("released", "RUNNING").await;
    stage.release(&stage.id("released"), "evicted").await;
    for name in ["bug", "saving"] {
        stage.until_phase(name, "FAILED").await;
        let row = stage.row(name).await;
        assert!(row["why"].as_str().is_some_and(|why| why.contains("alike")), "{row}");
        assert_eq!((&row["attempts"], &row["errors"]), (&json!(2), &json!(2)), "{row}");
        assert!(row["ran_s"].as_u64().is_some_and(|ran| ran >= 2), "what it has run: {row}");
        assert_eq!(stage.events(name, "FAILED").await.len(), 1, "told once");
        assert_eq!(verdict(&stage, name).await["cause"], "user_error");
    }
    stage.until("it runs again", "released", |row| row["attempts"] == 2).await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    stage.assert_never_two();
    assert_eq!((stage.count("create"), stage.count("end")), (6, 5));
    stage.end().await;
}

/// "Two ended jobs: reclaim reason + exit 137; no reclaim reason + exit 1. -> retry / user error".
/// The neighbour: one machine of two is taken back, and the other pod ends with 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_11_a_release_is_tried_again_and_an_error_of_the_job_is_not() {
    let mut stage = Stage::new().await;
    let once = Job { tables: "[retry]\nalike = 1", ..Job::default() };
    stage.put_job("released", &once);
    let envs = "EMULATOR_RUN_SECONDS = \"1\", EMULATOR_EXIT = \"1\"";
    stage.put_job("bug", &Job { envs, ..once });
    let envs = "EMULATOR_TERM_EXIT = \"1\"";
    stage.put_job("peers", &Job { envs, more_pods: 1, ..Job::default() });
    stage.start().await;
    for (name, dialect) in [("released", "json-message"), ("peers", "one-pod-gone")] {
        stage.until_phase(name, "RUNNING").await;
        stage.release(&stage.id(name), dialect).await;
        stage.until_phase(name, "BACKOFF").await;
        let next = stage.row(name).await["next"].clone();
        assert!(next.as_str().is_some_and(|next| next.contains("submit in")), "{next}");
    }
    stage.until_phase("bug", "FAILED").await;
    assert_eq!(verdict(&stage, "released").await["cause"], "released");
    assert_eq!(verdict(&stage, "bug").await["cause"], "user_error");
    let peers = verdict(&stage, "peers").await;
    assert!(OPEN.contains(&peers["cause"].as_str().expect("a word")), "{peers}");
    let counts = async |name| {
        let row = stage.row(name).await;
        (row["releases"].clone(), row["errors"].clone())
    };
    assert_eq!(counts("released").await, (json!(1), json!(0)));
    assert_eq!(counts("bug").await, (json!(0), json!(1)));
    assert_eq!(stage.ids("bug").len(), 1, "it is not submitted again");
    stage.assert_never_two();
    stage.end().await;
}

/// "Fake: EnvPreparing -> Failed with reclaim reason, never Running. -> retry, no user-error count".
/// In every status before Running.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_12_a_machine_that_is_lost_before_running_is_no_error_of_the_job() {
    let mut stage = Stage::with(|options| options.market = OVER_THE_BID).await;
    let once = Job { tables: "[retry]\nalike = 1", ..Job::default() };
    stage.start().await;
    for status in ["Creating", "Queuing", "Bidding", "EnvPreparing", "SanityChecking"] {
        let name = status.to_lowercase();
        stage.faults(json!([])).await;
        stage.put_job(&name, &once);
        stage.until("it is live", &name, |row| row["vendor_status"] == "Queuing").await;
        let id = stage.id(&name);
        let mut job = stage.cloud.get(&id).await;
        put_over(&mut job, &json!({ "Status": status }));
        stage.show(&[job]).await;
        stage.until("it is shown", &name, |row| row["vendor_status"] == status).await;
        let end = json!({
            "Status": "Failed", "ReasonCode": "JobEvicted",
            "ReasonMessage": "the spot instance was preempted",
        });
        stage.end_as(&[(&id, end)]).await;
        assert_eq!(verdict(&stage, &name).await["cause"], "released", "{status}");
        stage.until_phase(&name, "BACKOFF").await;
        let row = stage.row(&name).await;
        assert_eq!((&row["releases"], &row["errors"]), (&json!(1), &json!(0)), "{row}");
        assert!(row["next"].as_str().is_some_and(|next| next.contains("submit in")), "{row}");
    }
    stage.assert_never_two();
    stage.end().await;
}

/// "Reclaim reason in English, in Chinese, with a new code, with empty message and only SubStatus
/// set. -> all give reclaim or `UNKNOWN`, never user error by default"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_13_a_release_in_any_words_is_never_an_error_of_the_job() {
    let dialects = [
        "plain",
        "exit-143",
        "empty-reason",
        "json-message",
        "evicted",
        "stopped-without-code",
        "one-pod-gone",
        "chinese",
    ];
    let failed = |code: &str, message: &str, sub: &str| json!({ "Status": "Failed", "ReasonCode": code, "ReasonMessage": message, "SubStatus": sub });
    let words = [
        ("english", failed("", "Instance was preempted by the platform", ""), "released"),
        ("capitals", failed("", "THE INSTANCE WAS RECLAIMED.", ""), "released"),
        ("chinese-words", failed("", "抢占式实例已被回收", ""), "released"),
        ("sub-status", failed("", "", "Preempted"), "released"),
        ("code", failed("SpotToBeReleased", "", ""), "released"),
        ("new-code", failed("SpotCapacityWithdrawnV2", "", ""), "unexplained"),
        ("new-text", failed("JobFailed", "la machine a été reprise", ""), "unexplained"),
    ];
    let mut stage = Stage::new().await;
    let pair = Job { more_pods: 1, ..Job::default() };
    for name in dialects.into_iter().chain(words.iter().map(|(name, ..)| *name)) {
        stage.put_job(&format!("as-{name}"), &pair);
    }
    stage.start().await;
    for name in dialects.into_iter().chain(words.iter().map(|(name, ..)| *name)) {
        stage.until_phase(&format!("as-{name}"), "RUNNING").await;
    }
    for dialect in dialects {
        stage.release(&stage.id(&format!("as-{dialect}")), dialect).await;
    }
    for dialect in dialects {
        let verdict = verdict(&stage, &format!("as-{dialect}")).await;
        let cause = verdict["cause"].as_str().expect("a word");
        assert!(OPEN.contains(&cause), "{dialect}: {verdict}");
        if ["json-message", "evicted", "chinese"].contains(&dialect) {
            assert_eq!(cause, "released", "{dialect}: {verdict}");
        }
    }
    let ids = words.each_ref().map(|(name, ..)| stage.id(&format!("as-{name}")));
    let ends: Vec<_> =
        ids.iter().zip(&words).map(|(id, (_, end, _))| (id.as_str(), end.clone())).collect();
    stage.end_as(&ends).await;
    for (name, _, cause) in &words {
        let verdict = verdict(&stage, &format!("as-{name}")).await;
        assert_eq!(verdict["cause"], *cause, "{name}: {verdict}");
    }
    stage.assert_never_two();
    stage.end().await;
}

/// "Unknown Status `Preempting` and unknown ReasonCode appear mid-run. -> treated as non-terminal,
/// warned once". Words near to those of an end are no ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_14_a_word_that_nobody_knows_ends_nothing_and_is_told_once() {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job { tables: "[retry]\nalike = 1", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let running = stage.cloud.get(&stage.id("train")).await;
    for word in ["Preempting", "Evicted", "FAILED", "Terminated", "SucceededLater", "抢占中"] {
        let mut job = running.clone();
        let reason = "SpotPreemptionNotice";
        put_over(&mut job, &json!({ "Status": word, "ReasonCode": reason, "SubStatus": word }));
        stage.show(&[job]).await;
        stage.until("the word is shown", "train", |row| row["vendor_status"] == word).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        let row = stage.row("train").await;
        assert_eq!((&row["phase"], &row["stale"]), (&json!("RUNNING"), &json!(true)), "{row}");
        assert!(row["why"].as_str().is_some_and(|why| why.contains("does not know")), "{row}");
        let told = stage.events("train", "PHASE").await;
        let told = told.iter().filter(|event| event["text"].to_string().contains(word)).count();
        assert_eq!(told, 1, "{word} is told once");
        stage.show(std::slice::from_ref(&running)).await;
        stage.until("it runs", "train", |row| row["vendor_status"] == "Running").await;
        // The way back names the word as well.
    }
    assert!(stage.events("train", "VERDICT").await.is_empty());
    assert_eq!((stage.count("create"), stage.count("stop_asked")), (1, 0));
    stage.end().await;
}

/// "Job with max_running 10 min reclaimed at minute 9. -> reclaim, not timeout, because the reason
/// says so; and the reverse"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_15_the_reason_goes_before_the_stopwatch() {
    let mut stage = Stage::new().await;
    let end = |minutes: u64, change: Value| {
        let now = Clock::new().now().wall;
        let ran = Duration::from_secs(minutes * 60);
        let mut end = json!({
            "Status": "Failed", "ReasonCode": "", "ReasonMessage": "", "Duration": minutes * 60,
            "GmtCreateTime": now.minus(ran + Duration::from_secs(60)).to_string(),
            "GmtRunningTime": now.minus(ran).to_string(), "GmtFinishTime": now.to_string(),
        });
        put_over(&mut end, &change);
        end
    };
    let preempted = json!({ "ReasonMessage": "the instance was preempted" });
    let stopped = json!({ "Status": "Stopped" });
    let ends = [
        ("nine-reason", end(9, preempted.clone()), "released"),
        ("ten-reason", end(10, preempted), "released"),
        ("ten-silent", end(10, json!({})), "time_limit"),
        ("ten-stopped", end(10, stopped.clone()), "time_limit"),
        ("five-silent", end(5, json!({})), "unexplained"),
        ("five-stopped", end(5, stopped), "stopped_unexplained"),
    ];
    for (name, ..) in &ends {
        let submit = "JobMaxRunningTimeMinutes = 10";
        stage.put_job(name, &Job { submit, ..Job::default() });
    }
    stage.start().await;
    for (name, ..) in &ends {
        stage.until_phase(name, "RUNNING").await;
    }
    let ids = ends.each_ref().map(|(name, ..)| stage.id(name));
    let shown: Vec<_> =
        ids.iter().zip(&ends).map(|(id, (_, end, _))| (id.as_str(), end.clone())).collect();
    stage.end_as(&shown).await;
    for (name, _, cause) in &ends {
        let verdict = verdict(&stage, name).await;
        assert_eq!(verdict["cause"], *cause, "{name}: {verdict}");
    }
    stage.assert_never_two();
    stage.end().await;
}

/// "Failed with no pods, no exit code, reason image pull failed. -> `START_FAILURE`, limited retries
/// with backoff, clear text". The limit is `rule_3_a_permanent_code_before_running_blocks_after_three`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_16_an_end_without_pods_and_exit_code_is_a_start_that_failed() {
    let mut stage = Stage::with(|options| options.market = OVER_THE_BID).await;
    let bare = |code: &str, message: &str| json!({ "Status": "Failed", "Pods": [], "ReasonCode": code, "ReasonMessage": message });
    let ends = [
        ("pull", bare("ImagePullFailed", "ErrImagePull: manifest unknown")),
        ("quota", bare("ResourceAllocateFailed", "no such quota")),
        ("silent", bare("", "")),
        ("no-pods", json!({ "Status": "Failed", "Pods": null, "ReasonMessage": "mount failed" })),
    ];
    for (name, _) in &ends {
        stage.put_job(name, &Job::default());
    }
    stage.start().await;
    for (name, _) in &ends {
        stage.until("it is live", name, |row| row["vendor_status"] == "Queuing").await;
    }
    let ids = ends.each_ref().map(|(name, _)| stage.id(name));
    let shown: Vec<_> =
        ids.iter().zip(&ends).map(|(id, (_, end))| (id.as_str(), end.clone())).collect();
    stage.end_as(&shown).await;
    for (name, end) in &ends {
        let verdict = verdict(&stage, name).await;
        assert_eq!(verdict["cause"], "never_started", "{name}: {verdict}");
        let message = end["ReasonMessage"].as_str().unwrap_or_default();
        assert!(verdict["evidence"].to_string().contains(message), "{name}: {verdict}");
        stage.until_phase(name, "BACKOFF").await;
        let row = stage.row(name).await;
        assert!(row["next"].as_str().is_some_and(|next| next.contains("submit in")), "{row}");
        assert_eq!(stage.events(name, "BACKOFF").await.len(), 1, "{name}");
    }
    assert_eq!(stage.count("create"), ends.len());
    stage.end().await;
}

/// "Every field of GetJob set to an unexpected type or value, one at a time. -> that job is parked
/// with a reason, other jobs and the daemon go on". Parked: it ends and submits nothing meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_17_no_answer_takes_down_the_daemon_or_another_job() {
    let mut stage = Stage::new().await;
    for name in ["odd", "other"] {
        stage.put_job(name, &Job { saves: name, ..Job::default() });
    }
    stage.start().await;
    for name in ["odd", "other"] {
        stage.until_phase(name, "RUNNING").await;
    }
    let (odd, other) =
        (stage.cloud.get(&stage.id("odd")).await, stage.cloud.get(&stage.id("other")).await);
    let values = [json!(17), json!([{}]), json!({ "a": [] }), json!(true), json!("?"), Value::Null];
    let fields: Vec<String> = odd.as_object().expect("fields").keys().cloned().collect();
    assert!(fields.len() > 20, "{fields:?}");
    for (number, field) in fields.iter().enumerate() {
        let mut job = odd.clone();
        put_over(&mut job, &json!({ field: values[number % values.len()] }));
        // What the other one shows is news each time: it is followed.
        let status = if number % 2 == 0 { "Restarting" } else { "Running" };
        let mut peer = other.clone();
        put_over(&mut peer, &json!({ "Status": status }));
        stage.show(&[job, peer]).await;
        stage
            .until(&format!("it is followed beside `{field}`"), "other", |row| {
                row["vendor_status"] == status
            })
            .await;
        assert_eq!(stage.row("odd").await["attempts"], 1, "{field}");
    }
    // A status of another type in every answer: told, and nothing follows from it.
    for value in &values {
        let mut job = odd.clone();
        put_over(&mut job, &json!({ "Status": value }));
        stage.show(&[job, other.clone()]).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        let row = stage.row("odd").await;
        assert_eq!(row["phase"], "RUNNING", "{value}: {row}");
    }
    assert_eq!((stage.count("create"), stage.count("stop_asked")), (2, 0));
    // Both are still looked after.
    stage.faults(json!([])).await;
    for name in ["odd", "other"] {
        stage.until_phase(name, "RUNNING").await;
        stage.save(name, 100);
        stage.release(&stage.id(name), "evicted").await;
        stage
            .until("the next one runs", name, |row| {
                row["attempts"] == 2 && row["phase"] == "RUNNING"
            })
            .await;
    }
    stage.assert_never_two();
    stage.end().await;
}

/// "Same job: once the vendor restarts it in place (`Restarting` then `Running`, same id), once it
/// goes to Failed. -> first: no second submit; second: resubmit"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_18_a_restart_in_place_is_followed_and_a_failure_resubmitted() {
    let mut stage = Stage::with(|options| options.phase_delay = Duration::from_millis(300)).await;
    stage.put_job("train", &Job { saves: "train", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let first = stage.id("train");
    stage.release(&first, "restarting-in-place").await;
    stage
        .until("it runs again", "train", |row| row["restarts"] == 1 && row["phase"] == "RUNNING")
        .await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((stage.count("create"), stage.count("end")), (1, 0), "no second submit");
    assert_eq!(stage.page("train").await["attempts"][0]["id"], first);
    stage.save("train", 100);
    stage.release(&first, "plain").await;
    stage
        .until("attempt 2 runs", "train", |row| row["attempts"] == 2 && row["phase"] == "RUNNING")
        .await;
    assert_eq!(stage.page("train").await["attempts"][0]["from_step"], 100);
    stage.assert_never_two();
    assert_eq!(stage.count("create"), 2);
    stage.end().await;
}

/// "AIMaster restarts enabled in the job AND our supervisor on. -> `check` warns; at run time status
/// Restarting holds our hand off until a grace time". There is no such time: the platform's restarts
/// are limited, and their end is an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_19_where_the_platform_restarts_too_our_hand_is_off() {
    let mut stage = Stage::with(|options| options.phase_delay = Duration::from_millis(300)).await;
    let submit = "Settings = { EnableErrorMonitoringInAIMaster = true, \
                  ErrorMonitoringArgs = \"--enable-job-restart --max-num-of-job-restart 2\" }";
    stage.put_job("train", &Job { submit, ..Job::default() });
    let found = check(&stage);
    assert!(found.contains("AIMaster on general-compute spot"), "{found}");
    stage.start().await;
    for restarts in 0..=2 {
        stage
            .until(&format!("restart {restarts}"), "train", |row| {
                row["restarts"] == restarts && row["phase"] == "RUNNING"
            })
            .await;
        assert_eq!((stage.count("create"), stage.count("end")), (1, 0), "one layer at a time");
        assert!(stage.events("train", "VERDICT").await.is_empty());
        stage.release(&stage.id("train"), "plain").await;
    }
    // Used up: now it is ours.
    stage.until_phase("train", "BACKOFF").await;
    assert_eq!((stage.count("create"), stage.count("end")), (1, 1));
    assert_eq!(stage.page("train").await["attempts"][0]["restarts"], 2);
    stage.end().await;
}

/// A job with two ends: one that nothing explains after a new checkpoint, and a release told in
/// Chinese without one. It waits.
async fn two_ends() -> Stage {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job { saves: "train", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    stage.save("train", 100);
    stage.release(&stage.id("train"), "plain").await;
    let runs_again = |row: &Value| row["attempts"] == 2 && row["phase"] == "RUNNING";
    stage.until("attempt 2 runs", "train", runs_again).await;
    stage.release(&stage.id("train"), "chinese").await;
    stage.until_phase("train", "BACKOFF").await;
    stage.assert_never_two();
    assert_eq!((stage.count("create"), stage.count("end")), (2, 2));
    stage
}

/// "`describe` must print both budgets, what was counted and why, for each attempt"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_20_each_end_says_what_it_counts_as_and_why() {
    let stage = two_ends().await;
    let page = stage.page("train").await;
    let row = &page["row"];
    assert_eq!((&row["releases"], &row["errors"]), (&json!(1), &json!(1)), "{row}");
    for (at, cause) in [(0, "released"), (1, "unexplained")] {
        let verdict = &page["attempts"][at]["verdict"];
        assert_eq!(verdict["cause"], cause, "{page}");
        assert!(verdict["rule"].as_str().is_some_and(|rule| !rule.is_empty()), "{verdict}");
        let evidence = verdict["evidence"].to_string();
        for field in ["Status=Failed", "ran="] {
            assert!(evidence.contains(field), "{field}: {evidence}");
        }
    }
    let why = stage.why("train").await;
    assert_eq!(why["ends_without_progress"], 1, "the first one was after a new checkpoint");
    stage.end().await;
}

/// "`why JOB` after a reclaim -> states the verdict, the evidence fields, the rule that matched, and
/// the next action with its time"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_21_why_names_verdict_evidence_rule_and_what_comes_next() {
    let stage = two_ends().await;
    let why = stage.why("train").await;
    let verdict = &why["attempt"]["verdict"];
    assert_eq!((&why["attempt"]["no"], &verdict["cause"]), (&json!(2), &json!("released")));
    assert!(verdict["rule"].to_string().contains("-zh"), "{verdict}");
    assert!(verdict["evidence"].to_string().contains("ReasonMessage="), "{verdict}");
    let next = why["next"].as_str().expect("a text");
    assert!(next.starts_with("look and submit in ") && next.ends_with('s'), "{next}");
    assert_eq!(why["checkpoint"]["chosen"]["step"], 100, "{why}");
    stage.end().await;
}
