//! What people ask of jobs: adopt, forget, several at one time, and what they asked for while no
//! daemon ran.

use super::{ACCEPTANCE, Job, SEVERAL_PASSES, Stage, put_over};
use crate::emulator_client::body;
use serde_json::{Value, json};
use spotkeeper::model::handle::{ActVerb, Refusal, Request};
use spotkeeper::model::ids::CloudId;
use spotkeeper::model::time::WallTime;
use spotkeeper::store::asked::{self, Asked, Names, Wish};

impl Stage {
    /// A DLC job that a person made by hand, with these fields besides.
    async fn by_hand(&self, fields: Value) -> String {
        let mut made = body("by-hand", "python train.py");
        put_over(&mut made, &json!({ "WorkspaceId": "12345" }));
        put_over(&mut made, &fields);
        let id = self.cloud.create(&made).await;
        self.cloud.until(&id, "Running").await;
        id
    }

    async fn adopt(&self, id: &str, name: &str) -> Result<Value, Refusal> {
        let (id, name) = (CloudId::new(id).expect("an id"), name.to_owned());
        let done = self.ask(|reply| Request::Adopt { id, name, reply }).await?;
        Ok(serde_json::to_value(done).expect("JSON"))
    }

    /// What somebody writes down while no daemon runs.
    fn write_down(&self, wish: Wish, names: &[&str]) {
        let state = self.path("state");
        std::fs::create_dir_all(&state).expect("a folder");
        let names = match names {
            [] => Names::All,
            names => Names::These(names.iter().map(|name| (*name).to_owned()).collect()),
        };
        let asked = Asked::new(wish, names, WallTime(0).to_string());
        asked::write(&state, &asked).expect("written");
    }

    fn waits(&self) -> usize {
        asked::read(&self.path("state")).expect("a folder").len()
    }
}

fn text_of(refused: Result<Value, Refusal>) -> String {
    refused.expect_err("it is refused").to_string()
}

/// A job that a person made by hand becomes the running attempt: known again after a restart though
/// it carries no mark, its end is judged, and the next attempt is sent as the job file says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_made_by_hand_is_adopted_followed_and_resubmitted() {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job { saves: "train", ..Job::default() });
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    stage.act(&["train"], ActVerb::Cancel).await.expect("it is on record");
    stage.until_phase("train", "CANCELLED").await;
    let id = stage.by_hand(json!({})).await;
    let done = stage.adopt(&id, "train").await.expect("it is adopted");
    assert_eq!(done["phase"], "RUNNING", "{done}");
    assert_eq!(done["awaited"], json!([format!("the end of attempt 2 ({id})")]));
    for _ in 0..2 {
        stage.stop().await;
        stage.start().await;
        stage.until("it is seen", "train", |row| row["stale"] == false).await;
        tokio::time::sleep(SEVERAL_PASSES).await;
        let row = stage.row("train").await;
        assert_eq!((&row["phase"], &row["attempts"]), (&json!("RUNNING"), &json!(2)), "{row}");
    }
    assert_eq!(stage.ids("train").len(), 1, "nothing was submitted beside it");
    stage.save("train", 100);
    stage.release(&id, "evicted").await;
    stage.until("it is resubmitted", "train", |row| row["attempts"] == 3).await;
    stage.until_phase("train", "RUNNING").await;
    let page = stage.page("train").await;
    assert_eq!(page["attempts"][0]["from_step"], 100, "{page}");
    assert_eq!(page["attempts"][1]["id"], json!(id));
    assert_eq!(page["attempts"][1]["verdict"]["cause"], "released");
    assert_eq!(stage.ids("train").len(), 2);
    stage.end().await;
}

/// A cancel stops an adopted one as any other, and it takes its job's prefix.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_job_is_stopped_by_a_cancel_and_holds_its_prefix() {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job { saves: "shared", ..Job::default() });
    stage.write_down(Wish::Pause, &[]);
    stage.start().await;
    stage.until_phase("train", "PAUSED").await;
    let id = stage.by_hand(json!({})).await;
    stage.adopt(&id, "train").await.expect("it is adopted");
    stage.act(&["train"], ActVerb::Cancel).await.expect("it is on record");
    stage.until_phase("train", "CANCELLED").await;
    assert_eq!(stage.count("create"), 1, "the one made by hand");
    assert_eq!(stage.lines("end")[0]["job_id"], json!(id));
    stage.end().await;
}

/// Each refusal says what stands in the way, and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_adopted_that_may_lead_to_two() {
    let mut stage = Stage::new().await;
    let second = format!(
        "[targets.there]\nregion = \"cn-hangzhou\"\nworkspace = \"7\"\nendpoint = \"{}\"\n\
         credentials = {{ file = \"keys.toml\" }}\nacceptance = \"300ms\"\n",
        stage.cloud.running.url()
    );
    stage.put_daemon_file(ACCEPTANCE, &second);
    stage.put_job("busy", &Job { saves: "busy", ..Job::default() });
    stage.put_job("idle", &Job { saves: "idle", ..Job::default() });
    stage.write_down(Wish::Pause, &["idle"]);
    stage.start().await;
    stage.until_phase("busy", "RUNNING").await;
    // A job under a new name, with the prefix of one that goes on without its file.
    std::fs::remove_file(stage.path("jobs.d/busy.toml")).expect("removed");
    stage.until("it has no file", "busy", |row| row["managed"] == false).await;
    stage.put_job("other", &Job { saves: "busy", ..Job::default() });
    stage.until_phase("other", "BLOCKED").await;
    stage.until_phase("idle", "PAUSED").await;
    let free = stage.by_hand(json!({})).await;
    let ended = stage.by_hand(json!({})).await;
    stage.cloud.stop(&ended).await;
    stage.cloud.until(&ended, "Stopped").await;
    let elsewhere = stage.by_hand(json!({ "WorkspaceId": "7" })).await;
    let tags = json!({ "Tags": { "spotkeeper": "abcdef.abcdefgh27" } });
    let others = stage.by_hand(json!({ "Settings": tags })).await;
    let busy = stage.id("busy");
    for (id, name, why) in [
        (&free, "busy", "attempt 1"),
        (&free, "other", "checkpoint prefix"),
        (&ended, "idle", "has ended (Stopped)"),
        (&elsewhere, "idle", "workspace 7"),
        (&others, "idle", "another installation (owner abcdef)"),
        (&busy, "idle", "a running attempt of `busy`"),
        (&"dlcnone".to_owned(), "idle", "DLC knows no job dlcnone"),
        (&free, "nobody", "there is no job `nobody`"),
    ] {
        let told = text_of(stage.adopt(id, name).await);
        assert!(told.contains(why), "{id} for {name}: {told}");
    }
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(stage.row("idle").await["phase"], "PAUSED");
    assert_eq!((stage.ids("busy").len(), stage.ids("idle").len()), (1, 0));
    assert_eq!(stage.count("stop_asked"), 1, "the one that the test stopped");
    stage.end().await;
}

/// What was created for one job and has no answer yet belongs to that job, though no list shows it:
/// taken by another, it would count as absent and be sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_for_one_job_is_not_adopted_by_another() {
    let mut stage = Stage::with(|options| options.list_lag = SEVERAL_PASSES).await;
    stage.put_daemon_file(SEVERAL_PASSES * 4, "");
    stage.faults(json!([{ "call": "CreateJob", "drop_reply_after": true, "times": 1 }])).await;
    stage.put_job("sent", &Job { saves: "sent", ..Job::default() });
    stage.put_job("other", &Job { saves: "other", ..Job::default() });
    stage.write_down(Wish::Pause, &["other"]);
    stage.start().await;
    stage.until_count("create", 1).await;
    let told = text_of(stage.adopt(&stage.id("sent"), "other").await);
    assert!(told.contains("attempt of `sent`"), "{told}");
    stage.until_phase("sent", "RUNNING").await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(stage.row("other").await["phase"], "PAUSED");
    assert_eq!(stage.count("create"), 1);
    stage.end().await;
}

/// A stop while the cloud cannot be compared is no answer: the next start goes on with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_written_down_outlives_a_stop_before_its_answer() {
    let mut stage = Stage::new().await;
    let id = stage.by_hand(json!({})).await;
    stage.put_job("train", &Job { saves: "train", ..Job::default() });
    stage.write_down(Wish::Adopt(CloudId::new(id.as_str()).expect("an id")), &["train"]);
    stage
        .faults(json!([
            { "call": "GetJob", "delay": "700ms" },
            { "call": "ListJobs", "status": 500 },
        ]))
        .await;
    stage.start().await;
    stage.until_phase("train", "PAUSED").await;
    stage.stop().await;
    assert_eq!(stage.waits(), 1, "it is still asked for");
    stage.faults(json!([])).await;
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    assert_eq!((stage.count("create"), stage.waits()), (1, 0));
    stage.end().await;
}

/// A start that is held and told to stop does nothing that was asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_start_that_is_stopped_leaves_everything_to_the_next() {
    let mut stage = Stage::new().await;
    stage.put_job("train", &Job::default());
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    stage.stop().await;
    stage.write_down(Wish::Cancel, &["train"]);
    stage.put_job("new", &Job::default());
    std::fs::write(stage.path("state/starts"), "3\n").expect("written");
    stage.start().await;
    let told = text_of(stage.act(&["train"], ActVerb::Pause).await);
    assert!(told.contains("held for"), "{told}");
    stage.stop().await;
    assert_eq!((stage.waits(), stage.count("stop_asked"), stage.count("create")), (1, 0, 1));
    stage.start().await;
    stage.until_phase("train", "CANCELLED").await;
    stage.until_phase("new", "RUNNING").await;
    stage.end().await;
}

/// What went wrong on the way to DLC is tried again; nothing is submitted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_written_down_waits_for_the_cloud_and_nothing_is_submitted_before() {
    let mut stage = Stage::new().await;
    let id = stage.by_hand(json!({})).await;
    stage.put_job("train", &Job { saves: "train", ..Job::default() });
    stage.put_job("wrong", &Job { saves: "wrong", ..Job::default() });
    stage.write_down(Wish::Adopt(CloudId::new(id.as_str()).expect("an id")), &["train"]);
    stage.write_down(Wish::Adopt(CloudId::new("dlcnone").expect("an id")), &["wrong"]);
    stage.start().await;
    stage.until_phase("train", "RUNNING").await;
    stage.until("it is told", "wrong", |row| row["phase"] == "PAUSED").await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(stage.count("create"), 1, "the one made by hand");
    let told = stage.events("wrong", "ALARM").await;
    assert!(told[0]["text"].as_str().is_some_and(|text| text.contains("stays paused")), "{told:?}");
    assert_eq!(stage.waits(), 0, "both are done");
    stage.end().await;
}

/// The later word holds: a cancel or a pause after an adoption ends it, and no CreateJob follows,
/// whether both were written down or the adoption is being looked up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_or_a_pause_ends_an_adoption_that_was_asked_for_before() {
    let mut stage = Stage::new().await;
    let id = stage.by_hand(json!({})).await;
    let adopted = || Wish::Adopt(CloudId::new(id.as_str()).expect("an id"));
    for name in ["over", "held", "all"] {
        stage.put_job(name, &Job { saves: name, ..Job::default() });
    }
    stage.write_down(adopted(), &["over"]);
    stage.write_down(Wish::Cancel, &["over"]);
    stage.write_down(adopted(), &["held"]);
    stage.write_down(Wish::Pause, &["held"]);
    stage.write_down(Wish::Cancel, &["all"]);
    stage.write_down(adopted(), &["all"]);
    stage.write_down(Wish::Cancel, &[]);
    stage.start().await;
    stage.until_phase("over", "CANCELLED").await;
    stage.until_phase("all", "CANCELLED").await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(stage.waits(), 0, "none is taken up by a later start");
    assert_eq!(stage.row("held").await["phase"], "CANCELLED", "`--all` came last");
    // Live, while DLC is slow to say what it is.
    for (verb, phase) in [(ActVerb::Cancel, "CANCELLED"), (ActVerb::Pause, "CANCELLED")] {
        stage.faults(json!([{ "call": "GetJob", "delay": "2s" }])).await;
        let (taken, ()) = tokio::join!(stage.adopt(&id, "over"), async {
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            stage.act(&["over"], verb).await.expect("it is on record");
        });
        assert!(text_of(taken).contains("asked for later"));
        stage.faults(json!([])).await;
        assert_eq!(stage.row("over").await["phase"], phase);
    }
    stage.release(&id, "evicted").await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(stage.count("create"), 1, "the one made by hand");
    stage.end().await;
}

/// A forgotten job is gone with its history, before and after a restart, and its file does not begin
/// it again unless it names a higher run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_forgotten_once_nothing_of_it_is_open() {
    let mut stage = Stage::new().await;
    for name in ["train", "other"] {
        stage.put_job(name, &Job::default());
    }
    stage.start().await;
    for name in ["train", "other"] {
        stage.until_phase(name, "RUNNING").await;
    }
    let told = text_of(stage.act(&["other", "train"], ActVerb::Forget).await);
    assert!(told.contains("`spotkeeper cancel train`"), "{told}");
    stage.act(&["train"], ActVerb::Cancel).await.expect("it is on record");
    stage.until_phase("train", "CANCELLED").await;
    let told = text_of(stage.act(&["train", "other"], ActVerb::Forget).await);
    assert!(told.contains("cancel other"), "all or none: {told}");
    stage.act(&["train"], ActVerb::Forget).await.expect("nothing is open");
    for _ in 0..2 {
        tokio::time::sleep(SEVERAL_PASSES).await;
        assert_eq!(stage.row("train").await, Value::Null);
        assert_eq!(stage.row("other").await["phase"], "RUNNING");
        let refused = stage.daemon().await["refused_files"].clone();
        assert!(refused.to_string().contains("was forgotten"), "{refused}");
        // What DLC still shows of it is no other daemon's.
        assert_eq!(stage.daemon().await["targets"][0]["fault"], Value::Null);
        stage.stop().await;
        stage.start().await;
    }
    assert_eq!(stage.ids("train").len(), 1);
    stage.put_job("train", &Job { top: "run = 2".to_owned(), ..Job::default() });
    stage.until_phase("train", "RUNNING").await;
    assert_eq!(stage.row("train").await["run"], 2);
    stage.end().await;
}

/// What was asked for while no daemon ran is done before anything is submitted, in its order, and
/// once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_for_while_no_daemon_ran_comes_before_any_submission() {
    let mut stage = Stage::new().await;
    for name in ["cancelled", "paused", "again", "sent"] {
        stage.put_job(name, &Job::default());
    }
    stage.write_down(Wish::Cancel, &["cancelled", "nobody"]);
    stage.write_down(Wish::Pause, &["paused", "again"]);
    stage.write_down(Wish::Resume, &["again"]);
    for _ in 0..2 {
        stage.start().await;
        stage.until_phase("sent", "RUNNING").await;
        stage.until_phase("again", "RUNNING").await;
        assert_eq!(stage.row("cancelled").await["phase"], "CANCELLED");
        assert_eq!(stage.row("paused").await["phase"], "PAUSED");
        assert_eq!((stage.count("create"), stage.waits()), (2, 0));
        stage.stop().await;
    }
    // Later words go first again: what was done is not done anew.
    stage.start().await;
    stage.act(&["paused"], ActVerb::Resume).await.expect("it is on record");
    stage.until_phase("paused", "RUNNING").await;
    stage.stop().await;
    stage.write_down(Wish::Cancel, &[]);
    stage.start().await;
    for name in ["cancelled", "paused", "again", "sent"] {
        stage.until_phase(name, "CANCELLED").await;
    }
    assert_eq!((stage.count("create"), stage.count("end")), (3, 3));
    stage.end().await;
}

/// Several names at one time: all of them, or none where one does not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_resume_and_retry_take_several_names() {
    let mut stage = Stage::new().await;
    let names = ["one", "two", "three"];
    for name in names {
        stage.put_job(name, &Job::default());
    }
    stage.write_down(Wish::Pause, &names);
    stage.start().await;
    let refused = stage.act(&["one", "nobody", "two"], ActVerb::Resume).await;
    assert_eq!(refused, Err(Refusal::NoSuchJob("nobody".to_owned())));
    let told = stage.act(&["two", "one", "two"], ActVerb::Resume).await.expect("they are there");
    let told: Vec<&Value> = told.as_array().expect("a list").iter().map(|r| &r["job"]).collect();
    assert_eq!(told, ["two", "one"], "each once");
    for name in ["one", "two"] {
        stage.until_phase(name, "RUNNING").await;
    }
    assert_eq!(
        (stage.count("create"), stage.row("three").await["phase"].clone()),
        (2, json!("PAUSED"))
    );
    stage.act(&["one", "two"], ActVerb::Cancel).await.expect("they are there");
    for name in ["one", "two"] {
        stage.until_phase(name, "CANCELLED").await;
    }
    stage.act(&["one", "two"], ActVerb::Retry).await.expect("they are there");
    for name in ["one", "two"] {
        stage.until_phase(name, "RUNNING").await;
    }
    assert_eq!(stage.count("create"), 4);
    stage.end().await;
}
