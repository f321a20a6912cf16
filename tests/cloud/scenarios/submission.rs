//! Submissions without an answer, and two of one.

use super::{Job, SEVERAL_PASSES, Stage, put_over};
use crate::supervisor_no_space::until;
use serde_json::{Value, json};
use spotkeeper::model::cloud::Status;
use std::process::Command;
use std::time::Duration;

/// "GetJob returns 500 for 10 minutes while the job runs. -> no submit, job shown as
/// `RUNNING (stale 10m)`, one warning event, normal afterwards"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_03_a_job_that_cannot_be_seen_runs_on_and_nothing_is_sent() {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job::default());
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let fault = async |stage: &Stage| stage.daemon().await["targets"][0]["fault"].clone();
    let html = "<html>bad gateway</html>";
    for rules in [
        json!([{ "call": "GetJob", "status": 500 }, { "call": "ListJobs", "status": 500 }]),
        json!([{ "call": "*", "status": 200, "body": html }]),
        json!([{ "call": "*", "drop_before": true }]),
        json!([{ "call": "*", "truncate": 40 }]),
        json!([{ "call": "*", "code": "Forbidden.RAM" }]),
        // The last one: the passes are slower after it.
        json!([{ "call": "*", "throttle": true }]),
    ] {
        let told = |events: &[Value]| events.len();
        let before = told(&stage.events("train", "PHASE").await);
        stage.faults(rules.clone()).await;
        stage.until("it is stale", "train", |row| row["stale"] == true).await;
        let row = stage.row("train").await;
        assert_eq!((&row["phase"], &row["attempts"]), (&json!("RUNNING"), &json!(1)), "{rules}");
        assert!(row["last_look_s"].is_u64(), "how stale it is: {row}");
        let told_at_target = || async { fault(&stage).await.is_string() };
        until(&format!("the target says what is wrong: {rules}"), told_at_target).await;
        stage.faults(json!([])).await;
        stage.until("it is seen again", "train", |row| row["stale"] == false).await;
        assert_eq!(told(&stage.events("train", "PHASE").await), before, "nothing happened to it");
    }
    assert_eq!(stage.row("train").await["phase"], "RUNNING");
    for word in ["ENDED", "RELEASED", "VERDICT", "LOST"] {
        assert!(stage.events("train", word).await.is_empty(), "{word}");
    }
    assert_eq!((stage.count("create"), stage.count("stop_asked")), (1, 0));
    stage.end().await;
}

/// "CreateJob: fake creates the job, then closes the socket (no reply), three times in a row. ->
/// one job; the daemon searched by tag before each retry". The neighbours: nothing was created, and
/// the answer is lost in other ways.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_04_what_was_created_without_an_answer_is_found_and_not_made_again() {
    let mut stage = Stage::new().await;
    stage.faults(json!([{ "call": "CreateJob", "drop_reply_after": true, "times": 3 }])).await;
    for name in ["a", "b", "c"] {
        stage.put_job(name, &Job::default());
    }
    stage.start().await;
    for name in ["a", "b", "c"] {
        stage.until_phase(name, "RUNNING").await;
        assert_eq!(stage.events(name, "UNKNOWN").await.len(), 1, "{name}");
        assert_eq!(stage.events(name, "FOUND").await.len(), 1, "{name} was searched for");
    }
    // Nothing was created: proved by a search, and then sent once more.
    stage.faults(json!([{ "call": "CreateJob", "drop_before": true, "times": 1 }])).await;
    stage.put_job("d", &Job::default());
    stage.until_phase("d", "RUNNING").await;
    assert_eq!(stage.events("d", "ABSENT").await.len(), 1);
    tokio::time::sleep(SEVERAL_PASSES).await;
    for name in ["a", "b", "c", "d"] {
        assert_eq!(stage.ids(name).len(), 1, "{name}");
        assert_eq!(stage.row(name).await["attempts"], 1, "{name}");
        let open = &stage.page(name).await["attempts"][0];
        assert_eq!(open["id"], stage.id(name), "{open}");
    }
    assert_eq!((stage.count("create"), stage.count("stop_asked")), (4, 0));
    stage.end().await;
}

/// "Client timeout 10 s, fake replies after 15 s with success. -> one job; the SDK-level retry is
/// off for CreateJob". Every answer that a gateway gives where its server is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_05_an_answer_that_comes_too_late_or_wrong_is_never_sent_again() {
    // No pass can show what was created while another one could be sent instead: what keeps that
    // from being sent is the wait for the answer's proof alone.
    let mut stage = Stage::with(|options| options.list_lag = Duration::from_secs(3)).await;
    stage.put_daemon_file(Duration::from_secs(8), "");
    stage.start().await;
    let late = |answer: &Value| {
        let mut rule = json!({ "call": "CreateJob", "times": 1, "delay": "300ms" });
        put_over(&mut rule, answer);
        rule
    };
    let answers = [
        json!({ "drop_reply_after": true }),
        json!({ "status": 500, "answer_after": true }),
        json!({ "status": 502, "body": "<html>bad gateway</html>", "answer_after": true }),
        json!({ "status": 503, "answer_after": true }),
        json!({ "status": 504, "answer_after": true }),
        json!({ "status": 200, "body": "{}", "answer_after": true }),
        json!({ "code": "SignatureNonceUsed", "answer_after": true }),
        json!({ "truncate": 10 }),
        json!({ "wrong_type": "JobId", "becomes": "number" }),
    ];
    stage.faults(answers.iter().map(late).collect()).await;
    for number in 0..answers.len() {
        stage.put_job(&format!("job{number}"), &Job::default());
    }
    for number in 0..answers.len() {
        let name = format!("job{number}");
        stage.until_phase(&name, "RUNNING").await;
        assert_eq!(stage.ids(&name).len(), 1, "{name}");
    }
    tokio::time::sleep(SEVERAL_PASSES).await;
    for number in 0..answers.len() {
        let row = stage.row(&format!("job{number}")).await;
        assert_eq!((&row["attempts"], &row["phase"]), (&json!(1), &json!("RUNNING")), "{row}");
    }
    assert_eq!((stage.count("create"), stage.count("stop_asked")), (answers.len(), 0));
    stage.end().await;
}

/// "Attempt 2 starts while attempt 1's record is still `Stopping` for 20 minutes under the same
/// display name. -> names/tags differ per attempt, and the adopter never picks attempt 1 for
/// attempt 2". Before that: no attempt 2 while attempt 1 has not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_06_an_earlier_attempt_is_never_taken_for_a_later_one() {
    // The job is still not listed when this test puts a list of its own in its place.
    let acceptance = Duration::from_millis(1_500);
    let mut stage = Stage::with(|options| options.list_lag = acceptance / 2).await;
    stage.put_daemon_file(acceptance, "");
    stage.put_job("train", &Job { saves: "train", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    let first = stage.id("train");
    stage.save("train", 100);
    let mut stopping = stage.cloud.get(&first).await;
    put_over(&mut stopping, &json!({ "Status": Status::Stopping.word() }));
    stage.show(std::slice::from_ref(&stopping)).await;
    stage.release(&first, "evicted").await;
    stage.until("it is seen", "train", |row| row["vendor_status"] == "Stopping").await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(stage.count("create"), 1, "Stopping is no end");

    // Attempt 2 has no answer, and the list shows attempt 1 as it was.
    stage.faults(json!([{ "call": "CreateJob", "drop_reply_after": true, "times": 1 }])).await;
    stage.until_count("create", 2).await;
    stage.show(std::slice::from_ref(&stopping)).await;
    tokio::time::sleep(acceptance / 3).await;
    let attempts = stage.page("train").await["attempts"].clone();
    let [second, first_again] = [&attempts[0], &attempts[1]];
    assert_eq!((&second["no"], &second["id"]), (&json!(2), &Value::Null), "{attempts}");
    assert_eq!(second["state"], "unknown", "{attempts}");
    assert_eq!((&first_again["no"], &first_again["id"]), (&json!(1), &json!(first)), "{attempts}");
    stage.faults(json!([])).await;
    // The end of attempt 1 is seen a second time, and holds nothing any more.
    stage.until_phase("train", "RUNNING").await;
    let attempts = stage.page("train").await["attempts"].clone();
    assert_eq!((&attempts[0]["no"], &attempts[0]["id"]), (&json!(2), &json!(stage.id("train"))));
    assert_eq!((&attempts[1]["no"], &attempts[1]["id"]), (&json!(1), &json!(first)));
    let created = stage.lines("create");
    for key in ["display_name", "mark", "job_id"] {
        assert_ne!(created[0][key], created[1][key], "{key}");
    }
    stage.assert_never_two();
    assert_eq!(created.len(), 2);
    stage.end().await;
}

/// "Two configs with the same job name in different files; also `train-1` and `train-10` (list
/// search is a substring match). -> `check` rejects the first; exact match protects the second"
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_07_one_name_in_two_files_is_refused_and_a_part_of_a_name_is_no_name() {
    let mut stage = Stage::new().await;
    let twice = Job { top: "name = \"twice\"".to_owned(), ..Job::default() };
    stage.put_job("one", &twice);
    stage.put_job("other", &twice);
    let check = Command::new(env!("CARGO_BIN_EXE_spotkeeper"))
        .args(["check", "-o", "json", "--config"])
        .arg(stage.path("spotkeeper.toml"))
        .current_dir(stage.folder.path())
        .output()
        .expect("it runs");
    let text = String::from_utf8(check.stdout).expect("UTF-8");
    assert_ne!(check.status.code(), Some(0), "{text}");
    for file in ["one.toml", "other.toml"] {
        assert!(text.contains(file), "{file} is named: {text}");
    }

    // Each of these names is a part of the next one; none of them has an answer.
    let names = ["train", "train-1", "train-10", "train-100", "my-train-10"];
    let rule = json!([{ "call": "CreateJob", "drop_reply_after": true, "times": names.len() }]);
    stage.faults(rule).await;
    for name in names {
        stage.put_job(name, &Job::default());
    }
    stage.start().await;
    for name in names {
        stage.until_phase(name, "RUNNING").await;
    }
    tokio::time::sleep(SEVERAL_PASSES).await;
    for name in names {
        assert_eq!(stage.ids(name).len(), 1, "{name}");
        let open = &stage.page(name).await["attempts"][0];
        assert_eq!((&open["no"], &open["id"]), (&json!(1), &json!(stage.id(name))), "{name}");
    }
    assert_eq!(stage.ids("twice").len(), 0, "which of the two is meant nobody knows");
    let refused = stage.daemon().await["refused_files"].to_string();
    assert!(refused.contains("one.toml") && refused.contains("other.toml"), "{refused}");
    assert_eq!((stage.count("create"), stage.count("stop_asked")), (names.len(), 0));
    stage.end().await;
}

/// "Reconcile loop fires between intent write and CreateJob return (inject 30 s delay). -> it must
/// skip in-flight intents, not 'recover' them". On its way there, and on the way back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_08_a_submission_under_way_is_left_to_its_answer() {
    let mut stage = Stage::new().await;
    stage.start().await;
    for (name, way) in [("there", "hold_before"), ("back", "delay")] {
        let mut rule = json!({ "call": "CreateJob", "times": 1 });
        // Longer than a proof that nothing was made takes: the acceptance, a server's date in whole
        // seconds, and three passes.
        put_over(&mut rule, &json!({ way: "5s" }));
        stage.faults(json!([rule])).await;
        stage.put_job(name, &Job::default());
        stage.until_phase(name, "SUBMITTING").await;
        // Several passes come and go meanwhile.
        stage.until_phase(name, "RUNNING").await;
        for word in ["ABSENT", "REFUSED", "ALARM", "TWIN"] {
            let events = stage.events(name, word).await;
            assert!(events.is_empty(), "{name}: {events:?}");
        }
        let row = stage.row(name).await;
        assert_eq!(row["attempts"], 1, "{row}");
        assert_eq!(stage.events(name, "INTENT").await.len(), 1, "{name}");
    }
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!((stage.count("create"), stage.count("stop_asked")), (2, 0));
    stage.end().await;
}
