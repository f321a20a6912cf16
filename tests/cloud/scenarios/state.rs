//! State, disk, memory, logs, credentials.

use super::outpost::{Outpost, SEVERAL_PASSES, job_text, plain};
use crate::emulator_client::World;
use serde_json::{Value, json};
use spotkeeper::emulator::RunAs;
use spotkeeper::model::handle::ActVerb;
use std::collections::BTreeSet;
use std::time::Duration;

const ALWAYS: u64 = 1_000_000;

/// Row 51: "500 jobs submitted at once. -> bounded concurrency, all done, RSS limit held". The
/// bound is the target's own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_51_a_burst_of_jobs_is_submitted_within_its_bound_and_all_are_done() {
    const JOBS: usize = 60;
    const AT_ONE_TIME: usize = 7;
    let names: Vec<String> = (0..JOBS).map(|n| format!("job-{n}")).collect();
    let text = job_text("", "Envs = { EMULATOR_RUN_SECONDS = \"0.1\" }", "");
    let jobs: Vec<(&str, String)> = names.iter().map(|n| (n.as_str(), text.clone())).collect();
    let bound = format!("max_parallel = {AT_ONE_TIME}\n");
    let mut post = Outpost::with(|_| (), &bound, &jobs).await;
    for name in &names {
        post.until(name, "is done", |row| row["phase"] == "SUCCEEDED").await;
        assert_eq!(post.creates(name), 1, "{name}");
    }
    let (mut open, mut most) = (BTreeSet::new(), 0);
    for line in post.cloud.ledger() {
        if line["event"] == "create" {
            open.insert(line["job_id"].to_string());
        } else if line["event"] == "end" {
            open.remove(&line["job_id"].to_string());
        }
        most = most.max(open.len());
    }
    assert!((2..=AT_ONE_TIME).contains(&most), "{most} at one time");
    assert!(open.is_empty());
    post.end().await;
}

/// Row 53: "Pod removed within 5 s of failure. -> last N KB was already kept from the last poll, or
/// the text says logs were gone at what time".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_53_logs_that_are_gone_are_said_to_be_gone() {
    let mut post = Outpost::start(&[]).await;
    post.put("train", &post.saving("train"));
    post.until_runs("train", 1).await;
    post.save("train", 10);
    let gone = json!({ "call": "GetPodLogs", "code": "NotFound", "message": "no such pod" });
    post.faults(&json!([gone])).await;
    post.release("train").await;
    post.until_runs("train", 2).await;
    let mut kept = Value::Null;
    for _ in 0..1_000 {
        kept = post.evidence("train", 1).await;
        if kept["files"]["get_job.json"].is_object() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(kept["files"]["get_job.json"]["Status"], "Failed", "{kept:#}");
    let missing = kept["missing"].as_array().expect("a list");
    let logs = missing.iter().find(|one| one["file"].to_string().contains("get_pod_logs"));
    let logs = logs.unwrap_or_else(|| panic!("{kept:#}"));
    assert!(logs["why"].as_str().is_some_and(|why| !why.is_empty()), "{logs}");
    assert!(kept["taken"].as_str().is_some_and(|taken| taken.ends_with('Z')), "{kept:#}");
    post.end().await;
}

/// Row 54: "Final failure. -> no DeleteJob ever by default; job ids kept in history".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_54_a_final_failure_deletes_nothing_and_keeps_every_id() {
    let body = "Envs = { EMULATOR_RUN_SECONDS = \"0.3\", EMULATOR_EXIT = \"1\" }";
    let text = job_text("", body, "[retry]\nalike = 2\n");
    let mut post = Outpost::start(&[("train", text)]).await;
    post.until("train", "has failed", |row| row["phase"] == "FAILED").await;
    let created: BTreeSet<String> = post
        .ledger("train", "create")
        .iter()
        .map(|line| line["job_id"].as_str().expect("an id").to_owned())
        .collect();
    assert_eq!(created.len(), 2);
    let page = post.page("train").await;
    let attempts = page["attempts"].as_array().expect("a list");
    let kept: BTreeSet<String> =
        attempts.iter().map(|attempt| attempt["id"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(kept, created, "{page:#}");
    // Each is still there for whoever asks.
    for id in &created {
        assert_eq!(post.cloud.get(id).await["Status"], "Failed");
    }
    post.end().await;
    post.begin().await;
    post.until("train", "has failed", |row| row["phase"] == "FAILED").await;
    assert_eq!(post.page("train").await["attempts"].as_array().map(Vec::len), Some(2));
    post.end().await;
}

/// Rows 55 and 56 ask for two targets: the second one's keys are those that fail.
async fn beside_another(jobs: &[(&str, String)]) -> (Outpost, World) {
    let other = World::with(|options| options.run_as = RunAs::Virtual).await;
    let target = format!(
        "[targets.there]\nregion = \"cn-beijing\"\nworkspace = \"77\"\nendpoint = \"{}\"\n\
         credentials = {{ file = \"keys.toml\" }}\nacceptance = \"1s\"\n",
        other.running.url()
    );
    let post = Outpost::with(|_| (), &target, jobs).await;
    (post, other)
}

async fn spoil(cloud: &World, rules: &Value) {
    let (status, told) = cloud.admin("PUT", "/emulator/faults", rules).await;
    assert_eq!(status, 200, "{told}");
}

async fn target(post: &Outpost, name: &str) -> Value {
    let daemon = post.daemon().await;
    let targets = daemon["targets"].as_array().expect("targets");
    targets.iter().find(|target| target["name"] == name).expect("the target").clone()
}

/// Row 55: "STS token dies at 03:00; also AK disabled (403), also clock-skewed signature. ->
/// refresh; 403 never ends a job; alarm once". Row 56: "403 for 2 h. -> slow retry, other
/// workspaces not blocked".
async fn keys_that_fail(code: &str, status: u16) {
    let there = plain("").replace("\"here\"", "\"there\"");
    let (mut post, other) = beside_another(&[("there", there)]).await;
    post.put("train", &post.saving("train"));
    post.until_runs("train", 1).await;
    post.until_runs("there", 1).await;
    spoil(&other, &json!([{ "call": "*", "code": code, "status": status, "times": ALWAYS }])).await;
    post.until("there", "is not seen", |row| row["stale"] == true).await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    let row = post.row("there").await;
    assert_eq!((&row["phase"], &row["attempts"]), (&json!("RUNNING"), &json!(1)), "{code}");
    let fault = target(&post, "there").await["fault"].clone();
    assert!(fault.as_str().is_some_and(|fault| fault.contains(code)), "{code}: {fault}");
    // The other workspace goes on as if nothing were.
    assert_eq!(target(&post, "here").await["fault"], Value::Null, "{code}");
    post.save("train", 10);
    post.release("train").await;
    post.until_runs("train", 2).await;
    let (_, rules) = other.admin("GET", "/emulator/faults", &json!([])).await;
    let rules: Value = serde_json::from_str(&rules).expect("JSON");
    let calls = ALWAYS - rules[0]["times"].as_u64().expect("times");
    assert!((1..60).contains(&calls), "{code}: {calls} calls");
    assert_eq!(post.told("ENDED").await.len(), 1, "{code}: the released one alone");
    // Keys that work again need nobody.
    spoil(&other, &json!([])).await;
    post.until_runs("there", 1).await;
    assert_eq!(target(&post, "there").await["fault"], Value::Null, "{code}");
    let ends = other.ledger().iter().filter(|line| line["event"] == "stop_asked").count();
    assert_eq!(ends, 0, "{code}");
    post.end().await;
    other.running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_55_keys_that_die_or_are_disabled_end_no_job() {
    for (code, status) in [
        ("InvalidSecurityToken.Expired", 400),
        ("InvalidAccessKeyId.Inactive", 400),
        ("IllegalTimestamp", 400),
    ] {
        keys_that_fail(code, status).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_56_a_403_is_retried_slowly_and_blocks_no_other_workspace() {
    for code in ["Forbidden.RAM", "NoPermission", "SomethingNew"] {
        keys_that_fail(code, 403).await;
    }
}

/// Row 58: "Two workspaces' daemons with overlapping tags. -> only own owner-id is adopted". The
/// second one's owner begins as the first one's name does, and its jobs are called the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_58_only_jobs_of_the_own_owner_are_taken_up() {
    let mut first = Outpost::start(&[("train", plain("")), ("outpst", plain(""))]).await;
    first.until_runs("train", 1).await;
    first.until_runs("outpst", 1).await;
    let Outpost { cloud, .. } = &first;
    let url = cloud.running.url();
    for owner in ["outps2", "utpstt"] {
        let own = World::with(|options| options.run_as = RunAs::Virtual).await;
        let mut second = Outpost::before(own, owner, "");
        second.look_at(&url);
        second.put("train", &plain(""));
        second.begin().await;
        second.until_runs("train", 1).await;
        tokio::time::sleep(SEVERAL_PASSES).await;
        assert_eq!(second.rows().await.len(), 1, "{owner}");
        let id = second.page("train").await["attempts"][0]["id"].clone();
        second.act("train", ActVerb::Cancel).await.expect("it is done");
        second.until("train", "is cancelled", |row| row["phase"] == "CANCELLED").await;
        let asked = first.ledger("train", "stop_asked");
        assert_eq!(asked.last().expect("a stop")["job_id"], id, "{owner}");
        assert!(id.as_str() != first.page("train").await["attempts"][0]["id"].as_str(), "{owner}");
        second.end().await;
    }
    let rows = first.rows().await;
    assert!(rows.iter().all(|row| row["phase"] == "RUNNING" && row["attempts"] == 1), "{rows:?}");
    first.end().await;
}

/// Row 60: "`Throttling.User` on 60 % of calls. -> token bucket per API, GetJob batched through
/// ListJobs, recovery has priority over polling".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_60_throttling_of_most_calls_slows_and_breaks_nothing() {
    let mut post = Outpost::start(&[]).await;
    let names = ["a", "b", "c"];
    for name in names {
        post.put(name, &post.saving(name));
    }
    for name in names {
        post.until_runs(name, 1).await;
        post.save(name, 10);
    }
    post.faults(&json!([{ "call": "*", "throttle": 0.6, "times": 12 }])).await;
    for name in names {
        post.release(name).await;
    }
    for name in names {
        // Looks come less often by now.
        post.until(name, "goes on", |row| row["attempts"] == 2).await;
        post.until(name, "runs", |row| row["phase"] == "RUNNING").await;
        assert_eq!(post.creates(name), 2);
    }
    post.assert_never_two();
    post.end().await;
}

/// Row 61: "API answer with extra or missing fields, log lines with odd bytes. -> tolerant
/// decoder". Field by field, at the supervisor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_61_fields_of_another_type_end_nothing() {
    let mut post = Outpost::start(&[]).await;
    post.put("train", &post.saving("train"));
    post.until_runs("train", 1).await;
    let mut attempt = 1;
    for field in ["Status", "ReasonCode", "Pods", "Duration", "GmtRunningTime", "RestartTimes"] {
        for becomes in ["absent", "null", "list"] {
            let spoilt = |call: &str, path: &str| json!({ "call": call, "wrong_type": path, "becomes": becomes });
            post.faults(&json!([spoilt("GetJob", field), spoilt("ListJobs", field)])).await;
            tokio::time::sleep(Duration::from_millis(450)).await;
            assert_eq!(post.creates("train"), attempt as usize, "{field} {becomes}");
            assert_eq!(post.ledger("train", "stop_asked").len(), 0, "{field} {becomes}");
            post.faults(&json!([])).await;
            post.until_runs("train", attempt).await;
        }
        post.save("train", u64::from(attempt) * 10);
        post.release("train").await;
        attempt += 1;
        post.until_runs("train", attempt).await;
    }
    post.assert_never_two();
    post.end().await;
}

/// Row 49, its second half: "no CreateJob unless the intent is on disk": recoveries that fall into
/// the time of a full disk come after it, each once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_49_recoveries_on_a_full_disk_wait_for_room() {
    let mut post = Outpost::start(&[]).await;
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        post.put(name, &post.saving(name));
    }
    for name in names {
        post.until_runs(name, 1).await;
        post.save(name, 10);
    }
    post.disk_bytes(Some(0));
    for name in names {
        post.release(name).await;
    }
    tokio::time::sleep(SEVERAL_PASSES).await;
    for name in names {
        assert_eq!(post.creates(name), 1, "{name}: without its intent on the disk");
    }
    post.disk_bytes(None);
    for name in names {
        post.until_runs(name, 2).await;
        assert_eq!(post.creates(name), 2);
        assert_eq!(post.page(name).await["attempts"][0]["from_step"], 10);
    }
    post.assert_never_two();
    post.end().await;
}
