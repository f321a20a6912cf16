//! Cancels, and ends of the daemon.

use super::{ACCEPTANCE, Job, SEVERAL_PASSES, Stage, put_over};
use serde_json::{Value, json};
use spotkeeper::model::handle::ActVerb;
use std::time::Duration;

/// Waits until a job is CANCELLED. At no look is it called so while one of its jobs has not ended.
async fn cancelled(stage: &Stage, name: &str) {
    let phase = stage.row(name).await["phase"].clone();
    assert!(["STOPPING", "CANCELLED"].contains(&phase.as_str().expect("a word")), "{phase}");
    let is_confirmed = |row: &Value| {
        let is_over = row["phase"] == "CANCELLED";
        let (created, ended) = (stage.count("create"), stage.count("end"));
        assert!(!is_over || created == ended, "{name}: {created} created and {ended} ended");
        is_over
    };
    stage.until("it is cancelled", name, is_confirmed).await;
}

/// "Cancel arrives while CreateJob is in flight (fake holds 60 s, then succeeds). -> the new job is
/// found and stopped; state only becomes CANCELLED after the fake confirms Stopped". At the first
/// attempt and while the job recovers; on the way there and back, and without an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_22_a_cancel_stops_what_is_being_created() {
    let mut stage = Stage::with(|options| options.phase_delay = Duration::from_millis(200)).await;
    stage.start().await;
    let ways = [
        ("first", json!({ "hold_before": "500ms" })),
        ("second", json!({ "delay": "500ms" })),
        ("third", json!({ "hold_before": "300ms", "drop_reply_after": true })),
        ("fourth", json!({ "hold_before": "300ms", "status": 504, "answer_after": true })),
    ];
    for (number, (name, way)) in ways.iter().enumerate() {
        let mut rule = json!({ "call": "CreateJob", "times": 1 });
        put_over(&mut rule, way);
        let is_first = number % 2 == 0;
        if is_first {
            stage.faults(json!([rule])).await;
            stage.put_job(name, &Job::default());
        } else {
            // The second attempt, while it recovers.
            stage.put_job(name, &Job { saves: name, ..Job::default() });
            stage.until_phase(name, "RUNNING").await;
            stage.save(name, 100);
            stage.faults(json!([rule])).await;
            stage.release(&stage.id(name), "evicted").await;
            stage.until("it is seen ended", name, |row| row["releases"] == 1).await;
        }
        stage.until_phase(name, "SUBMITTING").await;
        stage.act(&[name], ActVerb::Cancel).await.expect("it is on record");
        cancelled(&stage, name).await;
        let attempts = if is_first { 1 } else { 2 };
        assert_eq!(stage.ids(name).len(), attempts, "{way}");
        let end = stage.lines("end").pop().expect("an end");
        assert_eq!((&end["job_id"], &end["status"]), (&json!(stage.id(name)), &json!("Stopped")));
    }
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((stage.count("create"), stage.count("end")), (6, 6));
    stage.assert_never_two();
    stage.end().await;
}

/// "Cancel and Failed(reclaim) land in the same poll. -> cancel wins; no submit". The cancel comes
/// before the end is seen, with it, and while the next attempt is prepared.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_23_a_cancel_wins_over_a_release() {
    let mut stage = Stage::new().await;
    stage.start().await;
    for name in ["before", "with", "after"] {
        stage.faults(json!([])).await;
        stage.put_job(name, &Job { saves: name, ..Job::default() });
        stage.until_phase(name, "RUNNING").await;
        stage.save(name, 100);
        let id = stage.id(name);
        match name {
            "before" => {
                stage.show(&[stage.cloud.get(&id).await]).await;
                stage.release(&id, "evicted").await;
                stage.act(&[name], ActVerb::Cancel).await.expect("it is on record");
                stage.faults(json!([])).await;
            }
            "with" => {
                stage.release(&id, "evicted").await;
                stage.act(&[name], ActVerb::Cancel).await.expect("it is on record");
            }
            _ => {
                // A look that is not whole takes its time.
                std::fs::remove_file(stage.path("bucket/after/step-100/model.bin"))
                    .expect("removed");
                stage.release(&id, "evicted").await;
                stage.until("it is seen", name, |row| row["releases"] == 1).await;
                stage.act(&[name], ActVerb::Cancel).await.expect("it is on record");
            }
        }
        cancelled(&stage, name).await;
    }
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((stage.count("create"), stage.count("end")), (3, 3), "none was submitted again");
    for name in ["before", "with", "after"] {
        assert_eq!(stage.row(name).await["phase"], "CANCELLED", "{name}");
    }
    stage.end().await;
}

/// "kill after the terminal write -> stays", and a cancel that was taken while the cloud could not
/// be reached is applied at the next start. The daemon with the healthy job is
/// `scenario_24_...` of tests/daemon.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_24_results_and_cancels_outlive_the_daemon() {
    let mut stage = Stage::new().await;
    let envs = "EMULATOR_RUN_SECONDS = \"1\"";
    stage.put_job("done", &Job { envs, ..Job::default() });
    for name in ["cancelled", "running"] {
        stage.put_job(name, &Job::default());
    }
    stage.start().await;
    for name in ["cancelled", "running"] {
        stage.until_phase(name, "RUNNING").await;
    }
    stage.until_phase("done", "SUCCEEDED").await;
    stage.faults(json!([{ "call": "StopJob", "status": 503 }])).await;
    stage.act(&["cancelled"], ActVerb::Cancel).await.expect("it is on record");
    stage.stop().await;
    assert_eq!(stage.count("end"), 1);
    stage.faults(json!([])).await;
    // Whoever starts next finds what was asked for, and what was over.
    for _ in 0..2 {
        stage.start().await;
        cancelled_alone(&stage).await;
        stage.until("it is seen", "running", |row| row["stale"] == false).await;
        tokio::time::sleep(SEVERAL_PASSES / 2).await;
        assert_eq!(stage.row("done").await["phase"], "SUCCEEDED");
        assert_eq!(stage.row("running").await["phase"], "RUNNING");
        assert_eq!((stage.count("create"), stage.count("end")), (3, 2));
        stage.stop().await;
    }
    stage.end().await;
}

async fn cancelled_alone(stage: &Stage) {
    stage.until("it is cancelled", "cancelled", |row| row["phase"] == "CANCELLED").await;
}

/// "`cancel --all` with 300 jobs, fake 300 ms per call, rate limit 10/s. -> finishes in about the
/// rate-limit time; queued-only jobs vanish at once with no API call". 80 of them were sent, more than
/// the burst of the rate. What is counted: one call for each that was sent and none for the others, and
/// that calls are under way side by side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_26_many_cancels_go_side_by_side_and_what_was_never_sent_needs_no_call() {
    const JOBS: usize = 300;
    const SENT: usize = 80;
    let mut stage = Stage::new().await;
    stage.put_daemon_file(ACCEPTANCE, &format!("max_parallel = {SENT}"));
    for number in 0..JOBS {
        stage.put_job(&format!("job{number}"), &Job::default());
    }
    stage.start().await;
    stage.until_count("create", SENT).await;
    tokio::time::sleep(SEVERAL_PASSES / 3).await;
    assert_eq!(stage.count("create"), SENT, "the others wait");
    stage.faults(json!([{ "call": "StopJob", "delay": "300ms" }])).await;
    // No name is `--all`.
    let reports = stage.act(&[], ActVerb::Cancel).await.expect("they are on record");
    let phase = |wanted: &str| {
        let reports = reports.as_array().expect("a list").iter();
        reports.filter(|report| report["phase"] == wanted).count()
    };
    assert_eq!(phase("CANCELLED"), JOBS - SENT, "at once: {reports}");
    assert_eq!(phase("STOPPING"), SENT, "their ends are awaited: {reports}");
    let awaits = |report: &Value| report["awaited"].as_array().is_some_and(|list| list.len() == 1);
    let stopping = reports.as_array().expect("a list").iter().filter(|r| r["phase"] == "STOPPING");
    assert!(stopping.into_iter().all(awaits), "{reports}");
    for number in 0..JOBS {
        stage.until_phase(&format!("job{number}"), "CANCELLED").await;
    }
    assert_eq!((stage.count("create"), stage.count("end")), (SENT, SENT));
    // One by one, each would be asked for 300 ms after the one before.
    let asked = stage.lines("stop_asked");
    let times: Vec<f64> = asked.iter().map(|line| line["t"].as_f64().expect("seconds")).collect();
    let together = times.windows(2).filter(|two| two[1] - two[0] < 0.25).count();
    assert!(together >= SENT / 2, "{times:?}");
    let mut ids: Vec<&Value> = asked.iter().map(|line| &line["job_id"]).collect();
    ids.sort_by_key(ToString::to_string);
    ids.dedup();
    assert_eq!(ids.len(), SENT, "none for what was never sent");
    stage.end().await;
}
