//! Alerts from the event to the receiver: a receiver that is down gets everything later, in order
//! and once; one that hangs delays nothing; the summary comes once a day.

use crate::scenarios::{Job, Stage};
use crate::schema::check;
use crate::server::{Reply, Server};
use crate::supervisor_no_space::until;
use clap::Parser as _;
use jiff::tz::TimeZone;
use serde_json::Value;
use spotkeeper::cli::exit::Exit;
use spotkeeper::cli::output::{Moment, Style};
use spotkeeper::cli::{Answers, Cli, Console, Verb, alert};
use spotkeeper::model::handle::ActVerb;
use spotkeeper::model::time::WallTime;
use std::os::unix::fs::PermissionsExt as _;

/// An address where nobody listens.
const NOBODY: &str = "http://127.0.0.1:1/";
const LONG: &str = "EMULATOR_RUN_SECONDS = \"600\"";

/// A stage with one channel, whose address stands in the file `hook`.
async fn stage(channel: &str) -> Stage {
    let stage = Stage::new().await;
    put_address(&stage, NOBODY);
    put_channel(&stage, channel);
    stage
}

fn put_address(stage: &Stage, url: &str) {
    let path = stage.path("hook");
    std::fs::write(&path, url).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
}

fn put_channel(stage: &Stage, channel: &str) {
    let tables = format!(
        "[alerts.hook]\nkind = \"webhook\"\nurl = {{ file = \"hook\" }}\nsecret = {{ file = \"keys.toml\" }}\n{channel}\n"
    );
    stage.put_daemon_file(crate::scenarios::ACCEPTANCE, &tables);
}

/// Every alert that came, in the order of arrival.
fn came(server: &Server) -> Vec<Value> {
    let bodies = server.seen().into_iter().map(|seen| {
        let body: Value = serde_json::from_slice(&seen.body).expect("JSON");
        assert_eq!(seen.header("webhook-id"), body["id"].as_str());
        assert!(seen.header("webhook-signature").is_some_and(|s| s.starts_with("v1,")));
        body["alerts"].as_array().expect("a list").clone()
    });
    bodies.flatten().collect()
}

/// The places in the log of what came: the second part of an id.
fn places(alerts: &[Value]) -> Vec<u64> {
    let place = |alert: &Value| alert["id"].as_str()?.split('-').nth(1)?.parse().ok();
    alerts.iter().map(|alert| place(alert).expect("a place")).collect()
}

async fn until_delivered(stage: &Stage) {
    let line = "spotkeeper_alerts_waiting{channel=\"hook\"}";
    until("all is delivered", || async { stage.figure(line).await == Some(0.0) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_was_down_gets_everything_in_order_once_each() {
    let events = "events = [\"INTENT\", \"SUBMITTED\", \"RELEASED\", \"CANCELLED\"]\nfold = \"0s\"";
    let mut stage = stage(events).await;
    for name in ["one", "two"] {
        stage.put_job(name, &Job { envs: LONG, saves: name, ..Job::default() });
    }
    stage.start().await;
    for name in ["one", "two"] {
        stage.until_phase(name, "RUNNING").await;
    }
    for round in 1..=2 {
        stage.save("one", round * 100);
        stage.release(&stage.id("one"), "evicted").await;
        stage.until_count("create", 2 + usize::try_from(round).expect("small")).await;
        stage.until_phase("one", "RUNNING").await;
    }
    // What waits outlives the daemon.
    stage.stop().await;
    stage.start().await;
    stage.act(&["two"], ActVerb::Cancel).await.expect("cancelled");
    stage.until_phase("two", "CANCELLED").await;
    let mut told = Vec::new();
    for name in ["one", "two"] {
        for word in ["INTENT", "SUBMITTED", "RELEASED", "CANCELLED"] {
            let events = stage.events(name, word).await;
            told.extend(events.iter().map(|event| event["sequence"].as_u64().expect("a place")));
        }
    }
    told.sort_unstable();
    assert!(told.len() >= 9, "{told:?}");
    let waiting = stage.figure("spotkeeper_alerts_waiting{channel=\"hook\"}").await;
    assert_eq!(waiting, Some(f64::from(u32::try_from(told.len()).expect("small"))));
    // It comes back, says no once and hangs up once, then takes all.
    let no = Reply::http(503, "not yet");
    let server = Server::start(vec![no, Reply::Close, Reply::http(200, "")]).await;
    put_address(&stage, &server.url);
    until_delivered(&stage).await;
    let seen = server.seen();
    assert!(
        seen[0].body == seen[1].body && seen[0].body == seen[2].body,
        "the same is tried again"
    );
    let all = came(&server);
    let taken = &all[2 * count(&seen[0].body)..];
    let mut sorted = places(taken);
    for job in ["one", "two"] {
        let of_job: Vec<_> = taken.iter().filter(|alert| alert["job"] == job).cloned().collect();
        assert!(places(&of_job).is_sorted(), "{job}: {of_job:#?}");
    }
    sorted.sort_unstable();
    assert_eq!(sorted, told, "each once");
    // Neither a restart nor time brings any of it again.
    stage.stop().await;
    stage.start().await;
    stage.until_phase("one", "RUNNING").await;
    until_delivered(&stage).await;
    assert_eq!(came(&server).len(), all.len());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_refused_holds_up_the_alerts_of_its_own_job_only() {
    let mut stage = stage("events = [\"SUBMITTED\"]\nfold = \"0s\"").await;
    for name in ["one", "two"] {
        stage.put_job(name, &Job { envs: LONG, saves: name, ..Job::default() });
    }
    stage.start().await;
    for name in ["one", "two"] {
        stage.until_phase(name, "RUNNING").await;
    }
    let server =
        Server::start(vec![Reply::http(400, "not these words"), Reply::http(200, "")]).await;
    put_address(&stage, &server.url);
    until_delivered(&stage).await;
    let jobs: Vec<_> = came(&server).iter().map(|alert| alert["job"].clone()).collect();
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    assert!(jobs[0] != jobs[1] && jobs[0] == jobs[2], "{jobs:?}");
    stage.end().await;
}

fn count(body: &[u8]) -> usize {
    let body: Value = serde_json::from_slice(body).expect("JSON");
    body["alerts"].as_array().map_or(0, Vec::len)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_hangs_delays_no_recovery() {
    let mut stage = stage("events = [\"SUBMITTED\", \"RELEASED\"]\nfold = \"0s\"").await;
    let server = Server::start(vec![Reply::Silence]).await;
    put_address(&stage, &server.url);
    stage.put_job("train", &Job { envs: LONG, saves: "run", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    until("the receiver is asked", || async { !server.seen().is_empty() }).await;
    for round in 1..=3 {
        stage.save("run", round * 100);
        stage.release(&stage.id("train"), "evicted").await;
        stage.until_count("create", 1 + usize::try_from(round).expect("small")).await;
        stage.until_phase("train", "RUNNING").await;
    }
    // It hangs in its first delivery still.
    assert_eq!(server.seen().len(), 1);
    let waiting = stage.figure("spotkeeper_alerts_waiting{channel=\"hook\"}").await;
    assert!(waiting >= Some(7.0), "{waiting:?}");
    stage.assert_never_two();
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeats_are_folded_and_jobs_are_routed() {
    let channel = "events = [\"RELEASED\"]\njobs = [\"tr*\"]\nfold = \"1h\"";
    let mut stage = stage(channel).await;
    for name in ["train", "other"] {
        stage.put_job(name, &Job { envs: LONG, saves: name, ..Job::default() });
    }
    stage.start().await;
    for round in 1..=3 {
        for name in ["train", "other"] {
            stage.until_phase(name, "RUNNING").await;
            stage.save(name, round * 100);
            stage.release(&stage.id(name), "evicted").await;
        }
        stage.until_count("create", 2 + 2 * usize::try_from(round).expect("small")).await;
    }
    let server = Server::start(vec![Reply::http(200, "")]).await;
    put_address(&stage, &server.url);
    until_delivered(&stage).await;
    let seen = server.seen();
    assert_eq!(seen.len(), 1, "one message");
    let body: Value = serde_json::from_slice(&seen[0].body).expect("JSON");
    assert_eq!(count(&seen[0].body), 3, "{body}");
    let title = body["title"].as_str().expect("a title");
    assert!(title.contains("train: 3 releases in"), "{title}");
    // The next one is a repeat: it waits.
    stage.until_phase("train", "RUNNING").await;
    stage.save("train", 400);
    stage.release(&stage.id("train"), "evicted").await;
    stage.until_count("create", 9).await;
    stage.until_phase("train", "RUNNING").await;
    assert_eq!(server.seen().len(), 1);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_comes_once_a_day_and_a_new_channel_waits_for_its_first() {
    let minute = |back: i64| {
        let now = spotkeeper::service::clock::Clock::new().now().wall.0 / 60_000 - back;
        format!("{:02}:{:02}", now.rem_euclid(1_440) / 60, now.rem_euclid(60))
    };
    let channel =
        |at: &str| format!("events = [\"LOST\"]\ntime_zone = \"UTC\"\nsummary = \"{at}\"");
    let mut stage = stage(&channel(&minute(10))).await;
    let server = Server::start(vec![Reply::http(200, "")]).await;
    put_address(&stage, &server.url);
    stage.put_job("train", &Job { envs: LONG, saves: "run", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    stage.save("run", 700);
    stage.release(&stage.id("train"), "evicted").await;
    stage.until_count("create", 2).await;
    stage.until_phase("train", "RUNNING").await;
    stage.stop().await;
    assert_eq!(server.seen().len(), 0, "the first comes on the next day");
    // Due five minutes ago, while the daemon was away.
    put_channel(&stage, &channel(&minute(5)));
    stage.start().await;
    until("the summary", || async { !server.seen().is_empty() }).await;
    stage.until_phase("train", "RUNNING").await;
    until_delivered(&stage).await;
    stage.stop().await;
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let seen = server.seen();
    assert_eq!(seen.len(), 1, "once a day, whatever restarts");
    let body: Value = serde_json::from_slice(&seen[0].body).expect("JSON");
    let text = body["text"].as_str().expect("a text");
    for part in ["Jobs in the last 1", "Releases: 1.", "Nothing needs a person.", "step 700"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    stage.end().await;
}

/// `spotkeeper alert test` and what it writes as JSON.
async fn try_channels(stage: &Stage, name: &[&str]) -> (Exit, Value) {
    let config = stage.path("spotkeeper.toml");
    let config = config.to_str().expect("a text");
    let line = ["spotkeeper", "-o", "json", "--config", config, "alert", "test"];
    let cli = Cli::try_parse_from(line.iter().chain(name)).expect("a command line");
    let Verb::Alert(verb) = &cli.verb else { panic!("another verb") };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        answers: Answers::Nobody,
        format: cli.global.output,
        width: None,
        style: Style::Plain,
        moment: Moment { now: WallTime(1_796_000_000_000), zone: TimeZone::UTC },
        global: &cli.global,
    };
    let exit = alert::alert(verb, &mut console).await.expect("it can be tried");
    (exit, serde_json::from_slice(&out).expect("JSON"))
}

#[tokio::test]
async fn alert_test_says_of_each_channel_whether_its_receiver_took_it() {
    let stage = stage("[alerts.ding]\nkind = \"dingtalk\"\nurl = { file = \"ding\" }").await;
    let refusal = r#"{"errcode":310000,"errmsg":"keywords not in content"}"#;
    let ding = Server::start(vec![Reply::http(200, refusal)]).await;
    let hook = Server::start(vec![Reply::http(204, "")]).await;
    put_address(&stage, &hook.url);
    let secret = format!("{}/robot/send?access_token=c0ffee", ding.url);
    std::fs::write(stage.path("ding"), secret).expect("written");
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(stage.path("ding"), mode).expect("its mode");
    let (exit, told) = try_channels(&stage, &[]).await;
    check("alert-test", &told);
    assert_eq!(exit, Exit::Error, "{told}");
    let of = |name: &str| {
        let mut channels = told["channels"].as_array().expect("a list").iter();
        channels.find(|one| one["channel"] == name).cloned().unwrap_or_default()
    };
    assert_eq!(of("hook")["delivered"], true, "{told}");
    let text = of("ding")["text"].as_str().expect("a text").to_owned();
    assert!(text.contains("310000") && text.contains("keywords not in content"), "{text}");
    let came = came(&hook);
    assert_eq!((came.len(), came[0]["event"].as_str()), (1, Some("TEST")));
    // A receiver that is away: what is said of it does not show its address.
    std::fs::write(stage.path("ding"), format!("{NOBODY}?access_token=c0ffee")).expect("written");
    let (exit, told) = try_channels(&stage, &["ding"]).await;
    assert!(exit == Exit::Error && !told.to_string().contains("c0ffee"), "{told}");
    assert_eq!(try_channels(&stage, &["hook"]).await.0, Exit::Done);
    stage.end().await;
}
