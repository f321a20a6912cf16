//! `readyz` and the figures, as they follow what the cloud does.

use super::{Job, Stage};
use serde_json::json;

/// Row 55: "403 never ends a job; alarm once, `readyz` fails with reason". An outage of the service
/// is another thing: nobody should restart the daemon for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_55_readyz_fails_with_the_reason_and_comes_back() {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job { envs: "EMULATOR_RUN_SECONDS = \"600\"", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    assert_eq!(stage.ready().await["status"], "ready");
    for (code, status, part, outcome, whole) in [
        ("InvalidSecurityToken.Expired", 400, "credentials", "failed", "not_ready"),
        ("InvalidAccessKeyId.Inactive", 400, "credentials", "failed", "not_ready"),
        ("SignatureDoesNotMatch", 400, "credentials", "failed", "not_ready"),
        ("Forbidden.RAM", 403, "credentials", "failed", "not_ready"),
        ("NoPermission", 403, "credentials", "failed", "not_ready"),
        ("ServiceUnavailable", 503, "sweep", "degraded", "degraded"),
        ("InternalError", 500, "sweep", "degraded", "degraded"),
    ] {
        let body = json!({ "Code": code, "Message": "no", "RequestId": "r" }).to_string();
        stage.faults(json!([{ "call": "*", "status": status, "body": body }])).await;
        let name = format!("target/here/{part}");
        let mut check = stage.check(&name).await;
        for _ in 0..super::LOOKS {
            if check["status"] == outcome {
                break;
            }
            tokio::time::sleep(super::LOOK).await;
            check = stage.check(&name).await;
        }
        assert_eq!(check["status"], outcome, "{code}: {check}");
        assert!(check["text"].as_str().is_some_and(|text| text.contains(code)), "{code}: {check}");
        assert_eq!(stage.ready().await["status"], whole, "{code}");
        assert_eq!(stage.row("train").await["phase"], "RUNNING", "{code}");
        stage.faults(json!([])).await;
        for _ in 0..super::LOOKS {
            if stage.ready().await["status"] == "ready" {
                break;
            }
            tokio::time::sleep(super::LOOK).await;
        }
        assert_eq!(stage.ready().await["status"], "ready", "after {code}");
    }
    stage.end().await;
}

/// A target that was never seen whole is not ready, whatever keeps it from that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_55_a_daemon_that_has_seen_nothing_yet_is_not_ready() {
    let mut stage = Stage::new().await;
    let body = json!({ "Code": "ServiceUnavailable", "Message": "no", "RequestId": "r" });
    stage.faults(json!([{ "call": "*", "status": 503, "body": body.to_string() }])).await;
    stage.start().await;
    let check = stage.check("target/here/sweep").await;
    assert_eq!(check["status"], "failed", "{check}");
    assert_eq!(stage.ready().await["status"], "not_ready");
    stage.faults(json!([])).await;
    for _ in 0..super::LOOKS {
        if stage.ready().await["status"] == "ready" {
            break;
        }
        tokio::time::sleep(super::LOOK).await;
    }
    assert_eq!(stage.ready().await["status"], "ready");
    stage.end().await;
}

/// Row 30: "measured and exported".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_30_the_way_from_an_end_to_the_next_submission_is_exported() {
    let mut stage = Stage::new().await;
    let job = Job {
        envs: "EMULATOR_RUN_SECONDS = \"600\"",
        saves: "run",
        tables: "[budget]\nlist_price_per_hour = \"36\"\n",
        ..Job::default()
    };
    stage.put_job("train", &job);
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    assert_eq!(stage.figure("spotkeeper_end_to_submitted_seconds_count").await, Some(0.0));
    assert_eq!(stage.figure("spotkeeper_jobs{phase=\"RUNNING\"}").await, Some(1.0));
    stage.save("run", 100);
    stage.release(&stage.id("train"), "evicted").await;
    stage.until_count("create", 2).await;
    stage.until_phase("train", "RUNNING").await;
    let labels = "{job=\"train\",run=\"1\"}";
    for (line, figure) in [
        ("spotkeeper_end_to_submitted_seconds_count".to_owned(), 1.0),
        ("spotkeeper_detection_seconds_count".to_owned(), 1.0),
        ("spotkeeper_attempts_ended_total{cause=\"released\"}".to_owned(), 1.0),
        ("spotkeeper_events_total{event=\"SUBMITTED\"}".to_owned(), 2.0),
        ("spotkeeper_api_calls_total{call=\"CreateJob\",result=\"ok\"}".to_owned(), 2.0),
        ("spotkeeper_target_verified{target=\"here\"}".to_owned(), 1.0),
        ("spotkeeper_store_writable".to_owned(), 1.0),
        (format!("spotkeeper_job_attempts_total{labels}"), 2.0),
        (format!("spotkeeper_job_releases_total{labels}"), 1.0),
        (format!("spotkeeper_job_step{labels}"), 100.0),
        (format!("spotkeeper_job_needs_person{labels}"), 0.0),
        (format!("spotkeeper_job_looks_failing_seconds{labels}"), 0.0),
    ] {
        assert_eq!(stage.figure(&line).await, Some(figure), "{line}");
    }
    let price = stage.figure(&format!("spotkeeper_job_list_price_yuan{labels}")).await;
    assert!(price.is_some_and(|price| (0.0..36.0).contains(&price)), "{price:?}");
    stage.end().await;
}
