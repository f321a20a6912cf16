//! What comes back or comes late, shown by a cloud that changes its mind.

use super::{Job, SEVERAL_PASSES, Stage, put_over};
use serde_json::{Value, json};

/// One that was seen ended is shown running again beside its successor: the one on record survives,
/// the other is stopped, `why` and the events say so, and nothing is counted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_one_that_is_shown_running_again_ends_with_one_survivor_and_a_report() {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job { saves: "train", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let first = stage.id("train");
    stage.save("train", 100);
    stage.release(&first, "evicted").await;
    stage.until("it is resubmitted", "train", |row| row["attempts"] == 2).await;
    stage.until_phase("train", "RUNNING").await;
    let mut back = stage.cloud.get(&first).await;
    let alive = json!({
        "Status": "Running", "SubStatus": "Normal", "ReasonCode": "", "ReasonMessage": "",
        "GmtFinishTime": Value::Null, "StatusHistory": [],
    });
    put_over(&mut back, &alive);
    stage.show(&[back]).await;
    stage.until("it is told to stop", "train", |row| row["phase"] == "STOPPING").await;
    stage.faults(json!([])).await;
    stage.until("the other one survives", "train", |row| row["phase"] == "RUNNING").await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    let row = stage.row("train").await;
    assert_eq!((&row["phase"], &row["attempts"]), (&json!("RUNNING"), &json!(2)), "{row}");
    // Its end counts once: as the release that it was, or as the stop that was asked for.
    assert!(row["releases"].as_u64() <= Some(1) && row["errors"] == 0, "{row}");
    assert_eq!(stage.ids("train").len(), 2);
    let why = stage.why("train").await;
    let told = why["others"].as_array().expect("a list");
    let says = |what: &str| told.iter().any(|line| line.as_str().is_some_and(|l| l.contains(what)));
    assert!(says("attempt 1") && says("runs again; it is stopped"), "{why}");
    assert!(!stage.events("train", "TWIN").await.is_empty());
    let alarm = stage.events("train", "ALARM").await;
    assert!(
        alarm.iter().any(|e| e["text"].as_str().is_some_and(|t| t.contains(&first))),
        "{alarm:?}"
    );
    stage.end().await;
}
