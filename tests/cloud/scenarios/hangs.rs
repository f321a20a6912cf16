//! Jobs that run and do nothing any more, stops of our own beside a save, and jobs that print much.

use super::{Job, SEVERAL_PASSES, Stage};
use serde_json::{Value, json};
use spotkeeper::model::handle::Request;
use std::fs::File;
use std::time::{Duration, UNIX_EPOCH};

const HANG: &str = "[hang]\nlog_silence = \"1500ms\"\nthen = [\"notify\", \"restart\"]\n";
const PRINTS: &str = "EMULATOR_LOG_EVERY = \"0.05\"";
/// The year 2001; four times that lies in the future.
const LONG_AGO: Duration = Duration::from_secs(1_000_000_000);
/// Time in which a stop would come: `log_silence`, and a few looks.
const A_STOP: Duration = Duration::from_secs(5);

impl Stage {
    async fn switch(&self, path: &str) {
        let (status, body) = self.cloud.admin("POST", path, &json!({})).await;
        assert_eq!(status, 200, "{path}: {body}");
    }

    /// Lets the newest attempt of a job hang.
    async fn hang(&self, name: &str) {
        self.switch(&format!("/emulator/hang/{}", self.id(name))).await;
    }

    /// Writes a whole checkpoint that is older than any attempt, whose times are whole seconds.
    fn save_long_ago(&self, saves: &str, step: u64) {
        self.save(saves, step);
        let path = self.path(&format!("bucket/{saves}/step-{step}/model.bin"));
        let file = File::options().write(true).open(path).expect("a file");
        file.set_modified(UNIX_EPOCH + LONG_AGO).expect("a time");
    }

    async fn evidence(&self, name: &str, attempt: u32) -> Option<Value> {
        let (name, attempt) = (name.to_owned(), Some(attempt));
        let found = self.ask(|reply| Request::Evidence { name, attempt, reply }).await;
        Some(serde_json::to_value(found.ok()?).expect("JSON"))
    }
}

/// Whether an event's text holds this.
fn says(event: &Value, part: &str) -> bool {
    event["text"].as_str().is_some_and(|text| text.contains(part))
}

/// "Pods: 7 Running, 1 Failed, job Running for 2 h, log silent. -> hang policy fires once, stop then
/// resubmit". While the others print, and while their logs cannot be read, nothing is stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_29_one_lost_pod_of_eight_and_silence_is_one_stop_and_one_resubmission() {
    let mut stage = Stage::new().await;
    let job = Job { envs: PRINTS, tables: HANG, more_pods: 7, saves: "train", ..Job::default() };
    stage.save_long_ago("train", 100);
    stage.put_job("train", &job);
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let first = stage.id("train");
    stage.switch(&format!("/emulator/lose/{first}?pod=3")).await;
    let shown = stage.cloud.get(&first).await;
    assert_eq!(
        (&shown["Status"], &shown["Pods"][3]["Status"]),
        (&json!("Running"), &json!("Failed"))
    );
    tokio::time::sleep(A_STOP).await;
    assert_eq!(stage.count("stop_asked"), 0, "the others go on");
    // They hang, and nobody can read that.
    stage.faults(json!([{ "call": "GetPodLogs", "status": 503 }])).await;
    stage.hang("train").await;
    tokio::time::sleep(A_STOP).await;
    assert_eq!(stage.count("stop_asked"), 0, "a log that cannot be read says nothing");
    assert!(stage.events("train", "ALARM").await.is_empty());
    let note = stage.page("train").await["progress"]["note"].clone();
    assert!(note.as_str().is_some_and(|note| note.contains("its logs do not say")), "{note}");
    stage.faults(json!([])).await;
    stage.until("it is told", "train", |row| row["phase"] == "STALLED").await;
    let row = stage.row("train").await;
    assert!(row["why"].as_str().expect("words").contains("1 of 8 pods failed"), "{row}");
    stage.until_count("create", 2).await;
    stage.until_phase("train", "RUNNING").await;
    // Once, and what was silent in the attempt before is not held against this one.
    tokio::time::sleep(A_STOP).await;
    let asked = stage.lines("stop_asked");
    assert!(asked.iter().all(|line| line["job_id"] == first.as_str()), "{asked:?}");
    assert_eq!((stage.count("create"), stage.count("end")), (2, 1));
    stage.assert_never_two();
    let alarms = stage.events("train", "ALARM").await;
    assert_eq!(alarms.len(), 1, "{alarms:?}");
    assert!(says(&alarms[0], "the limit is") && says(&alarms[0], "next: restart"), "{alarms:?}");
    let stops = stage.events("train", "STOP_ASKED").await;
    assert_eq!((stops.len(), &stops[0]["data"]["sign"]), (1, &json!("pods_lost")), "{stops:?}");
    let why = stage.why("train").await;
    assert_eq!(why["attempt"]["verdict"]["cause"], "stopped_by_us", "{why}");
    let evidence = why["attempt"]["verdict"]["evidence"].to_string();
    assert!(evidence.contains("stopped for a hang="), "{evidence}");
    assert_eq!(stage.page("train").await["attempts"][0]["from_step"], 100);
    stage.end().await;
}

/// The neighbour of row 29: a job that hangs at once, each time, does not restart for ever, and one
/// for which only `notify` was asked is never stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_29_a_job_that_hangs_each_time_is_a_crash_loop_and_one_that_is_only_told_runs_on()
{
    let mut stage = Stage::new().await;
    // Neither ever prints a line.
    let tables = "[hang]\nlog_silence = \"500ms\"\nthen = [\"restart\"]\n[retry]\nalike = 2\n";
    stage.put_job("loops", &Job { tables, saves: "loops", ..Job::default() });
    let tables = "[hang]\nlog_silence = \"500ms\"\n";
    stage.put_job("told", &Job { tables, ..Job::default() });
    stage.start().await;
    stage.until_phase("loops", "FAILED").await;
    let row = stage.row("loops").await;
    let why = row["why"].as_str().expect("words");
    assert!(
        why.contains("crash loop: 2 attempts hung") && why.contains("no log line at all"),
        "{why}"
    );
    assert_eq!(stage.ids("loops").len(), 2);
    stage.until_phase("told", "STALLED").await;
    let row = stage.row("told").await;
    assert!(row["next"].as_str().expect("words").contains("nothing by itself"), "{row}");
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((stage.ids("told").len(), stage.events("told", "ALARM").await.len()), (1, 1));
    let told = stage.id("told");
    assert!(stage.lines("stop_asked").iter().all(|line| line["job_id"] != told.as_str()));
    stage.assert_never_two();
    stage.end().await;
}

/// "Our own stop (hang policy) lands in the middle of a save. -> stop waits for `grace`, then
/// validates as usual". The save stays torn in one job and comes to its end in the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_43_a_stop_of_ours_waits_for_a_save_and_a_torn_one_is_refused() {
    let mut stage = Stage::new().await;
    let mut parts = Vec::new();
    for name in ["torn", "whole"] {
        stage.save_long_ago(name, 100);
        stage.put_job(name, &Job { tables: HANG, saves: name, ..Job::default() });
        // Being written for as long as its newest object is new; a time to come is always new.
        let folder = stage.path(&format!("bucket/{name}/step-200"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let part = File::create(folder.join("optim.bin")).expect("a file");
        part.set_modified(UNIX_EPOCH + 4 * LONG_AGO).expect("a time");
        parts.push(part);
    }
    stage.start().await;
    for name in ["torn", "whole"] {
        super::until(&format!("{name} waits"), || async {
            let held = stage.events(name, "HELD").await;
            held.iter().any(|event| says(event, "step 200 is being written"))
        })
        .await;
    }
    assert_eq!((stage.count("stop_asked"), stage.count("create")), (0, 2));
    for part in &parts {
        part.set_modified(UNIX_EPOCH + LONG_AGO).expect("a time");
    }
    stage.save("whole", 200);
    for (name, from) in [("torn", 100), ("whole", 200)] {
        stage.until("it goes on", name, |row| row["attempts"] == 2).await;
        let page = stage.page(name).await;
        assert_eq!(page["attempts"][0]["from_step"], from, "{name}: {page}");
    }
    let choice = stage.why("torn").await["checkpoint"].clone();
    let refused = &choice["refused"][0];
    assert_eq!((&refused["step"], &refused["verdict"]), (&json!(200), &json!("torn")), "{choice}");
    stage.assert_never_two();
    stage.end().await;
}

/// "Job printing 200 MB/min. -> per-job and total cap, oldest dropped, `df` stable, tail still
/// works". What all ends may take together is in the tests of src/supervisor/evidence.rs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_52_what_a_loud_job_leaves_has_a_limit_and_its_last_lines_are_there() {
    const ENDS: u32 = 4;
    /// What one attempt may leave.
    const LIMIT_BYTES: usize = 1024 * 1024;
    let mut stage = Stage::new().await;
    // 2,000 bytes a line, a thousand lines a second, four pods: 480 MB a minute.
    let envs = "EMULATOR_LOG_EVERY = \"0.001\", EMULATOR_LOG_BYTES = \"2000\"";
    let job = Job { envs, tables: HANG, more_pods: 3, saves: "loud", ..Job::default() };
    stage.put_job("loud", &job);
    stage.start().await;
    for no in 1..=ENDS {
        stage
            .until("it runs", "loud", |row| row["phase"] == "RUNNING" && row["attempts"] == no)
            .await;
        tokio::time::sleep(Duration::from_millis(700)).await;
        stage.save("loud", u64::from(no) * 100);
        stage.release(&stage.id("loud"), "evicted").await;
    }
    stage.until("it runs", "loud", |row| row["phase"] == "RUNNING").await;
    for no in 1..=ENDS + 1 {
        super::until(&format!("the answers of attempt {no}"), || async {
            let found = stage.evidence("loud", no).await.unwrap_or_default();
            !found["files"]["get_pod_logs.0.json"].is_null()
        })
        .await;
        let kept = stage.evidence("loud", no).await.expect("answers");
        let bytes = kept["files"].to_string().len();
        assert!(bytes <= LIMIT_BYTES, "attempt {no}: {bytes} bytes");
        let lines = kept["files"]["get_pod_logs.0.json"]["Logs"].as_array().expect("lines");
        let last = lines.last().and_then(Value::as_str).expect("a line");
        assert!(last.starts_with("step ") && last.len() == 2_000, "{last}");
        let missing = kept["missing"].to_string();
        assert!(missing.contains("more than 1048576 bytes for one attempt"), "{missing}");
    }
    assert_eq!(stage.count("stop_asked"), 0, "it is anything but silent");
    stage.end().await;
}
