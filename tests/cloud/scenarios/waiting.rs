//! Waits that are too long, and such as can never end.

use super::{ACCEPTANCE, Job, SEVERAL_PASSES, Stage, put_over};
use crate::supervisor_no_space::until;
use serde_json::{Value, json};
use spotkeeper::emulator::market::MarketSpec;
use spotkeeper::model::handle::ActVerb;

/// A market in which the bid of the job file, 0.4, is too low.
async fn dear() -> Stage {
    Stage::with(|options| options.market = MarketSpec::Constant(0.5)).await
}

async fn market(stage: &Stage, value: Value) {
    let (status, body) = stage.cloud.admin("POST", "/emulator/market", &value).await;
    assert_eq!(status, 200, "{body}");
}

/// What each CreateJob of a job asked for in the field of its one role.
async fn asked(stage: &Stage, name: &str, field: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for id in stage.ids(name) {
        found.push(stage.cloud.get(&id).await["JobSpecs"][0][field].clone());
    }
    found
}

async fn words(stage: &Stage, name: &str, word: &str) -> Vec<String> {
    let text = |event: &Value| event["text"].as_str().unwrap_or_default().to_owned();
    stage.events(name, word).await.iter().map(text).collect()
}

/// Shows the job as it is with these fields put over, until the faults are replaced.
async fn show_as(stage: &Stage, name: &str, change: Value) {
    let mut job = stage.cloud.get(&stage.id(name)).await;
    put_over(&mut job, &change);
    stage.show(&[job]).await;
}

/// "Queuing 6 h [...]; also bid under market. -> provisioning timeout policy: notify, raise bid,
/// [...], as configured"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_36_a_bid_under_the_market_is_raised_and_stays_raised() {
    let mut stage = dear().await;
    stage.put_job("left", &Job::default());
    let tables = "[waiting]\nqueuing = { after = \"300ms\", then = [\"notify\", \"raise_bid\"] }\n\
                  max_discount = 0.7\n";
    stage.put_job("train", &Job { tables, ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let limits = |bids: &[Value]| -> Vec<String> {
        bids.iter().map(|spot| spot["SpotDiscountLimit"].to_string()).collect()
    };
    assert_eq!(limits(&asked(&stage, "train", "SpotSpec").await), ["0.4", "0.5"]);
    let alarms = words(&stage, "train", "ALARM").await;
    assert!(alarms.len() == 1 && alarms[0].contains("raise bid to 0.5"), "{alarms:?}");
    let row = stage.row("train").await;
    assert_eq!((&row["attempts"], &row["errors"]), (&json!(2), &json!(0)), "no failed end: {row}");
    // The market may be so again: a release does not take it down.
    stage.release(&stage.id("train"), "plain").await;
    stage.until_count("create", 4).await;
    stage.until_phase("train", "RUNNING").await;
    assert_eq!(limits(&asked(&stage, "train", "SpotSpec").await), ["0.4", "0.5", "0.5"]);
    // Who asks for nothing waits for as long as it takes.
    let row = stage.row("left").await;
    assert_eq!((&row["phase"], &row["attempts"]), (&json!("WAITING"), &json!(1)), "{row}");
    assert_eq!(stage.count("stop_asked"), 1);
    stage.assert_never_two();
    stage.end().await;
}

/// "A job queued for a reason that will never clear is just reported as queuing for ever [...] with
/// \"no such quota\" in the message". Said at once, with and without `[waiting]`; no bid is raised
/// for it, and the next placement has its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_36_a_queue_for_a_reason_that_never_clears_is_said_at_once() {
    let policy = "[waiting]\nqueuing = { after = \"300ms\", then = [\"raise_bid\", \"next_placement\"] }\n\
                  [[placements]]\non_demand = true\nEcsSpec = \"ecs.gn7i-c8g1.2xlarge\"\n";
    for (reason, tables) in [
        (json!({ "ReasonMessage": "no such quota: quota1a2b" }), ""),
        (json!({ "ReasonCode": "QuotaNotFound" }), ""),
        (json!({ "ReasonMessage": "Failed to pull image: manifest unknown" }), ""),
        (json!({ "ReasonMessage": "the EcsSpec ecs.nothing does not exist" }), policy),
    ] {
        let mut stage = dear().await;
        // Long enough to be seen before the limit: the message is there from the first look on.
        stage.put_job("train", &Job::default());
        stage.start().await;
        stage.until("it queues", "train", |row| row["vendor_status"] == "Queuing").await;
        show_as(&stage, "train", reason.clone()).await;
        let alarm = || async { !words(&stage, "train", "ALARM").await.is_empty() };
        until(&format!("it is said: {reason}"), alarm).await;
        let alarms = words(&stage, "train", "ALARM").await;
        let cause = reason.as_object().expect("fields").values().next().expect("one");
        assert!(alarms[0].contains(cause.as_str().expect("a text")), "{alarms:?}");
        let row = stage.row("train").await;
        let why = row["why"].as_str().expect("a text");
        assert!(why.contains("can never run"), "{row}");
        let page = stage.page("train").await;
        assert!(page["waiting"]["never"].is_string(), "{page}");
        assert_eq!(stage.why("train").await["waiting"], page["waiting"].clone());
        assert_eq!((&row["phase"], stage.count("stop_asked")), (&json!("WAITING"), 0));
        // Once, however long it goes on.
        tokio::time::sleep(SEVERAL_PASSES).await;
        assert_eq!(words(&stage, "train", "ALARM").await.len(), 1);
        if tables.is_empty() {
            stage.end().await;
            continue;
        }
        // The limits of a changed file hold for what waits.
        stage.put_job("train", &Job { tables, ..Job::default() });
        stage.until_count("stop_asked", 1).await;
        stage.faults(json!([])).await;
        stage.until_phase("train", "RUNNING").await;
        let specs = asked(&stage, "train", "EcsSpec").await;
        assert_eq!(specs[1..], [json!("ecs.gn7i-c8g1.2xlarge")], "no bid was raised before");
        assert!(asked(&stage, "train", "SpotSpec").await[1].is_null(), "on-demand");
        stage.assert_never_two();
        stage.end().await;
    }
}

/// "provisioning timeout policy: [...] change spec, or fail, as configured". There is no machine at
/// any price: another spec, then another target without a bid; and a job with nothing else is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_36_without_machines_other_placements_are_asked_and_then_it_fails() {
    let mut stage = Stage::new().await;
    let there = format!(
        "[targets.there]\nregion = \"cn-hangzhou\"\nworkspace = \"9\"\nendpoint = \"{}\"\n\
         credentials = {{ file = \"keys.toml\" }}\nacceptance = \"300ms\"",
        stage.cloud.running.url()
    );
    stage.put_daemon_file(ACCEPTANCE, &there);
    market(&stage, json!({ "stock": false })).await;
    let tables = "[waiting]\nqueuing = { after = \"300ms\", then = [\"next_placement\", \"fail\"] }\n\
                  [[placements]]\nEcsSpec = \"ecs.gn7i-c8g1.2xlarge\"\nPodCount = 2\n\
                  [[placements]]\ntarget = \"there\"\non_demand = true\n";
    stage.put_job("train", &Job { tables, ..Job::default() });
    let tables = "[waiting]\nqueuing = { after = \"300ms\", then = [\"notify\", \"fail\"] }\n";
    stage.put_job("poor", &Job { tables, ..Job::default() });
    stage.start().await;
    stage.until_phase("poor", "FAILED").await;
    let row = stage.row("poor").await;
    assert!(row["why"].as_str().expect("a text").contains("never ran"), "{row}");
    assert_eq!(words(&stage, "poor", "FAILED").await.len(), 1);
    stage.until_phase("train", "RUNNING").await;
    let pods = asked(&stage, "train", "PodCount").await;
    assert_eq!(pods, [1, 2, 1], "each is the job file, changed by itself alone");
    let spots = asked(&stage, "train", "SpotSpec").await;
    assert!(spots[1].is_object() && spots[2].is_null(), "{spots:?}");
    let last = stage.cloud.get(&stage.id("train")).await;
    assert_eq!(last["WorkspaceId"], "9");
    let row = stage.row("train").await;
    assert_eq!((&row["target"], &row["errors"]), (&json!("there"), &json!(0)), "{row}");
    // It is followed there by a new process as well.
    stage.stop().await;
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((stage.ids("train").len(), stage.ids("poor").len()), (3, 1));
    // A person's word takes what was given up back to the job file.
    market(&stage, json!({})).await;
    stage.act(&["poor"], ActVerb::Retry).await.expect("taken");
    stage.until_phase("poor", "RUNNING").await;
    stage.assert_never_two();
    stage.end().await;
}

/// "EnvPreparing for ever. -> per-phase timeouts". Each phase has its own limit, and one that comes
/// to run in time is left alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_37_each_phase_has_a_limit_of_its_own() {
    for (status, phase) in
        [("EnvPreparing", "preparing"), ("SanityChecking", "preparing"), ("Bidding", "bidding")]
    {
        let mut stage = dear().await;
        let tables = "[waiting]\nqueuing = { after = \"1000h\", then = [\"fail\"] }\n\
                      bidding = { after = \"300ms\", then = [\"notify\", \"fail\"] }\n\
                      preparing = { after = \"300ms\", then = [\"notify\", \"fail\"] }\n";
        stage.put_job("train", &Job { tables, ..Job::default() });
        stage.start().await;
        stage.until("it queues", "train", |row| row["vendor_status"] == "Queuing").await;
        tokio::time::sleep(SEVERAL_PASSES).await;
        assert_eq!(stage.count("stop_asked"), 0, "its limit is far away");
        let waiting = stage.page("train").await["waiting"].clone();
        assert_eq!(
            (&waiting["phase"], &waiting["limit_s"]),
            (&json!("queuing"), &json!(3_600_000))
        );
        assert!(waiting["next"].as_str().expect("a text").contains("give the job up in"));
        assert_eq!(stage.row("train").await["next"], waiting["next"], "{waiting}");
        show_as(&stage, "train", json!({ "Status": status })).await;
        stage.until_count("stop_asked", 1).await;
        let alarms = words(&stage, "train", "ALARM").await;
        assert!(alarms[0].contains(&format!("it is {phase}")), "{alarms:?}");
        assert_ne!(stage.row("train").await["phase"], "FAILED", "it is not seen ended");
        stage.faults(json!([])).await;
        stage.until_phase("train", "FAILED").await;
        tokio::time::sleep(SEVERAL_PASSES).await;
        assert_eq!((stage.count("create"), stage.count("end")), (1, 1));
        stage.end().await;
    }
    let mut stage = Stage::new().await;
    let tables = "[waiting]\nqueuing = { after = \"1h\", then = [\"fail\"] }\n\
                  preparing = { after = \"1h\", then = [\"fail\"] }\n";
    stage.put_job("train", &Job { tables, ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let page = stage.page("train").await;
    assert_eq!((&page["waiting"], stage.count("stop_asked")), (&json!(null), 0), "{page}");
    stage.end().await;
}
