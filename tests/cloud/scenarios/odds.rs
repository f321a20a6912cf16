//! Lists, clocks, files, buckets and words that are odder than one expects.

use super::outpost::{Outpost, SEVERAL_PASSES, checkpoints, job_text, plain};
use axum::extract::Query;
use serde_json::{Value, json};
use spotkeeper::emulator::RunAs;
use spotkeeper::model::handle::ActVerb;
use spotkeeper::model::time::WallTime;
use spotkeeper::service::clock::Clock;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Row 77: "250 jobs, page size 100, a new job is inserted between pages so the orphan moves across
/// the border. -> found". The orphan is on the border of the first two pages of a new store's sweep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_77_an_orphan_that_moves_across_a_pages_border_is_found() {
    let mut post = Outpost::start(&[("train", plain(""))]).await;
    post.until_runs("train", 1).await;
    post.end().await;
    let before = post.sent("train");
    let other = |n: usize| {
        let mut body = before.clone();
        // Of the sweep's filter, and nobody's: without a mark that could be read.
        body["DisplayName"] = json!(format!("other-{n}.skoutpst"));
        body["Settings"]["Tags"] = json!({});
        body["Envs"] = json!({});
        body
    };
    for n in 0..99 {
        post.cloud.create(&other(n)).await;
    }
    // From now on the orphan is the hundredth; each page comes a while after it was cut.
    post.faults(&json!([{ "call": "ListJobs", "delay": "150ms", "times": 12 }])).await;
    post.forget();
    post.begin().await;
    for n in 99..150 {
        post.cloud.create(&other(n)).await;
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    post.until_runs("train", 1).await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(post.creates("train"), 1, "it was taken up");
    assert_eq!(post.page("train").await["attempts"][0]["id"], json!(post.id("train")));
    post.end().await;
}

/// Row 78: "A created job appears in ListJobs only after 45 s. -> no second submit inside the
/// settle time". Its reply is lost, so that the list is all there is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_78_a_list_that_lags_leads_to_no_second_submission() {
    for lag in [300_u64, 700, 1_000] {
        let change = |options: &mut spotkeeper::emulator::Options| {
            options.list_lag = Duration::from_millis(lag);
        };
        let mut post = Outpost::with(change, "", &[]).await;
        let lost = json!({ "call": "CreateJob", "drop_reply_after": true, "times": 1 });
        post.faults(&json!([lost])).await;
        post.put("train", &plain(""));
        post.until_runs("train", 1).await;
        tokio::time::sleep(SEVERAL_PASSES).await;
        assert_eq!(post.creates("train"), 1, "{lag} ms");
        let page = post.page("train").await;
        assert_eq!(page["attempts"][0]["id"], json!(post.id("train")), "{lag} ms");
        post.end().await;
    }
}

/// What becomes of a job file while its job runs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Removed,
    Renamed,
    /// A name that cannot be read as a file.
    Unreadable,
    NotUtf8,
    Broken,
    Emptied,
}

/// Row 81: "File removed, or renamed, or made unreadable. -> job goes on under the last good spec,
/// marked `UNMANAGED CONFIG`; nothing is stopped".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_81_a_job_goes_on_whatever_becomes_of_its_file() {
    let fates = [
        Fate::Removed,
        Fate::Renamed,
        Fate::Unreadable,
        Fate::NotUtf8,
        Fate::Broken,
        Fate::Emptied,
    ];
    let mut post = Outpost::start(&[]).await;
    for fate in fates {
        let name = format!("{fate:?}").to_lowercase();
        post.put(&name, &format!("name = \"{name}\"\n{}", post.saving(&name)));
        post.until_runs(&name, 1).await;
        let before = post.sent(&name);
        let file = post.file(&name);
        match fate {
            Fate::Removed => std::fs::remove_file(&file),
            Fate::Renamed => std::fs::rename(&file, post.file("moved")),
            Fate::Unreadable => {
                std::fs::remove_file(&file).and_then(|()| std::os::unix::fs::symlink(&file, &file))
            }
            Fate::NotUtf8 => std::fs::write(&file, [0xff, 0xfe, 0x00]),
            Fate::Broken => std::fs::write(&file, "name = \"broken\ntarget ="),
            Fate::Emptied => std::fs::write(&file, ""),
        }
        .expect("done");
        let managed = fate == Fate::Renamed;
        if fate == Fate::Removed {
            post.until(&name, "is unmanaged", |row| row["managed"] == false).await;
        }
        tokio::time::sleep(SEVERAL_PASSES).await;
        post.save(&name, 10);
        post.release(&name).await;
        post.until_runs(&name, 2).await;
        let row = post.row(&name).await;
        if [Fate::Removed, Fate::Renamed].contains(&fate) {
            assert_eq!(row["managed"], managed, "{fate:?}: {row}");
        } else {
            // Still there and not to be read: the error is shown, with the file's name.
            let daemon = post.daemon().await;
            assert!(daemon["refused_files"].to_string().contains(&name), "{fate:?}: {daemon:#}");
        }
        assert_eq!(post.ledger(&name, "stop_asked").len(), 0, "{fate:?}");
        let sent = post.sent(&name);
        assert_eq!(sent["JobSpecs"], before["JobSpecs"], "{fate:?}");
        assert!(sent["UserCommand"].as_str().is_some_and(|c| c.contains("step-10")), "{sent}");
        post.act(&name, ActVerb::Cancel).await.expect("it is done");
    }
    post.assert_never_two();
    post.end().await;
}

/// Row 82: "Bid changed; image changed; name changed. -> plan says: next attempt / new job /
/// refused". All but the name reach the next attempt and never the present one; a new name is a new
/// job, which waits for the prefix that the old one holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_82_an_edit_is_for_the_next_attempt_and_a_new_name_a_new_job() {
    let mut post = Outpost::start(&[]).await;
    let text = post.saving("train");
    post.put("train", &text);
    let edits = [
        ("discount_limit = 0.4", "discount_limit = 0.7", "/JobSpecs/0/SpotSpec"),
        ("\"image\"", "\"image:2\"", "/JobSpecs/0/Image"),
        ("train.py", "train_2.py", "/UserCommand"),
        ("PodCount = 1", "PodCount = 2", "/JobSpecs/0/PodCount"),
    ];
    let mut edited = text;
    for (attempt, (old, new, place)) in (1..).zip(edits) {
        post.until_runs("train", attempt).await;
        let before = post.sent("train");
        let told = post.told("SPEC_CHANGED").await.len();
        edited = edited.replace(old, new);
        post.put("train", &edited);
        while post.told("SPEC_CHANGED").await.len() == told {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(post.creates("train"), attempt as usize, "{place}: left running");
        assert_eq!(post.ledger("train", "stop_asked").len(), 0, "{place}");
        post.save("train", u64::from(attempt) * 10);
        post.release("train").await;
        post.until_runs("train", attempt + 1).await;
        let after = post.sent("train");
        assert_ne!(before.pointer(place), after.pointer(place), "{place}: {after:#}");
    }
    post.put("train", &format!("name = \"other\"\n{edited}"));
    post.until("other", "is on record", serde_json::Value::is_object).await;
    post.until("train", "is unmanaged", |row| row["managed"] == false).await;
    tokio::time::sleep(SEVERAL_PASSES).await;
    assert_eq!(post.creates("other"), 0, "two writers");
    let page = post.page("other").await;
    assert!(page["holds"].to_string().contains("train"), "{page:#}");
    assert_eq!(post.row("train").await["phase"], "RUNNING");
    post.end().await;
}

/// Row 85: "ListObjects 503 for 1 h at recovery time. -> waits up to a limit; does not fall back to
/// a fresh start". The folder that stands for the bucket cannot be looked at for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_85_a_recovery_waits_for_its_bucket_and_never_starts_at_zero() {
    let mut post = Outpost::start(&[]).await;
    post.put("train", &post.saving("train"));
    post.until_runs("train", 1).await;
    post.save("train", 10);
    let (there, away) = (post.folder.path().join("ck-train"), post.folder.path().join("away"));
    std::fs::rename(&there, &away).expect("away");
    post.release("train").await;
    let is_so = |row: &Value| row["phase"] == "RECOVERING" || row["phase"] == "BLOCKED";
    post.until("train", "waits", is_so).await;
    tokio::time::sleep(SEVERAL_PASSES * 2).await;
    let page = post.page("train").await;
    assert_eq!(post.creates("train"), 1, "{page:#}");
    assert!(!page["holds"].as_array().expect("a list").is_empty(), "{page:#}");
    assert!(page["row"]["why"].as_str().is_some_and(|why| !why.is_empty()), "{page:#}");
    std::fs::rename(&away, &there).expect("back");
    post.until_runs("train", 2).await;
    assert_eq!(post.page("train").await["attempts"][0]["from_step"], 10);
    post.end().await;
}

/// A bucket that answers with `status` and `body` to every listing and read, and holds no object.
async fn bucket(status: u16, body: &'static str) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let answer = move |method: axum::http::Method| async move {
        let asks_for_one = method == axum::http::Method::HEAD && status == 200;
        let status = if asks_for_one { 404 } else { status };
        let status = axum::http::StatusCode::from_u16(status).expect("a status");
        (status, [("content-type", "application/xml")], body)
    };
    let app = axum::Router::new().fallback(answer);
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

/// The first start of row 85, from a real S3 client: no answer that is none leads to zero.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_85_a_bucket_that_says_nothing_leads_to_no_first_start() {
    let empty = "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><Prefix></Prefix>\
        <KeyCount>0</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>";
    for (status, body, starts) in [
        (503, "<Error><Code>ServiceUnavailable</Code></Error>", 0),
        (500, "<Error><Code>InternalError</Code></Error>", 0),
        (403, "<Error><Code>AccessDenied</Code></Error>", 0),
        (404, "<Error><Code>NoSuchBucket</Code></Error>", 0),
        (200, "<html>log in</html>", 0),
        (200, "", 0),
        (200, empty, 1),
    ] {
        let url = bucket(status, body).await;
        let storage = format!("storage = {{ endpoint = \"{url}\" }}\n");
        let more = "[checkpoint]\npath = \"/mnt/run\"\nurl = \"oss://bucket/run/\"\n\
            format = \"hf-trainer\"\n";
        let mut post = Outpost::with(|_| (), &storage, &[("train", plain(more))]).await;
        if starts == 0 {
            post.until("train", "says why", |row| row["why"] != "").await;
            tokio::time::sleep(SEVERAL_PASSES * 2).await;
        } else {
            post.until_runs("train", 1).await;
        }
        let page = post.page("train").await;
        assert_eq!(post.creates("train"), starts, "{status} {body}: {page:#}");
        let is_held = !page["holds"].as_array().expect("a list").is_empty();
        assert!(is_held || starts == 1, "{page:#}");
        post.end().await;
    }
}

/// Row 87: "Resume path with spaces, `$`, quotes, newline, Chinese characters. -> reaches the
/// program unchanged, no shell injection". By real processes, within the launcher and without it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_87_any_resume_path_reaches_the_program_unchanged() {
    let folders = [
        "two words",
        "$HOME",
        "$(touch INJECTED)",
        "`touch INJECTED`",
        "it's",
        "a\"b",
        "检查点",
        "semi;touch INJECTED",
        "a\\b",
        "*",
        "-n",
        "~",
        "a&b|c>d",
        "!x",
        "#x",
        "{a,b}",
    ];
    let change = |options: &mut spotkeeper::emulator::Options| {
        options.run_as = RunAs::Processes { data_mount: None };
    };
    let mut post = Outpost::with(change, "", &[]).await;
    let mut written = Vec::new();
    for (n, folder) in folders.iter().enumerate() {
        for launcher in [true, false] {
            let place = post.folder.path().join(format!("ck-{launcher}")).join(folder);
            let checkpoint = place.join("step-10");
            std::fs::create_dir_all(&checkpoint).expect("a folder");
            std::fs::write(checkpoint.join("model.bin"), "weights").expect("written");
            let out = post.folder.path().join(format!("out-{n}-{launcher}"));
            let command =
                format!("printf '%s|' {{resume}} > {0}.new; mv {0}.new {0}", out.display());
            let command = serde_json::to_string(&command).expect("text");
            let text = job_text(&format!("launcher = {launcher}"), "", &table(&place))
                .replace("\"python train.py {resume}\"", &command);
            let name = format!("job-{n}-{launcher}");
            post.put(&name, &text);
            written.push((name, out, format!("--load|{}|", checkpoint.display())));
        }
    }
    // What no folder of a bucket can be called is refused by `check`, with its code.
    for (n, control) in ["tab\there", "line\nbreak", "nul\0"].iter().enumerate() {
        let place = post.folder.path().join("ck-control").join(control);
        let name = format!("refused-{n}");
        post.put(&name, &job_text("", "", &table(&place)));
        let refused = || async { post.daemon().await["refused_files"].to_string() };
        while !refused().await.contains(&name) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(refused().await.contains("E052"), "{control:?}");
    }
    for (name, out, wanted) in written {
        post.until(&name, "is sent or refused", |row| row["attempts"] == 1).await;
        let mut text = String::new();
        for _ in 0..500 {
            text = std::fs::read_to_string(&out).unwrap_or_default();
            if !text.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(text, wanted, "{name}");
    }
    let injected = |folder: &Path| {
        walk(folder).into_iter().any(|path| path.file_name().is_some_and(|n| n == "INJECTED"))
    };
    assert!(!injected(post.folder.path()) && !injected(post.cloud.folder.path()));
    post.end().await;
    post.cloud.running.shutdown().await;
}

fn table(place: &Path) -> String {
    checkpoints(&place.display().to_string())
        .replace("format =", "resume = \"--load {path}\"\nformat =")
}

fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(walk(&entry.path()));
        }
        found.push(entry.path());
    }
    found
}

/// Row 89: "`FailedReserving` for hours. -> verdict at once; optional stop to end billing". The
/// phase is decided at once and says that the machine is held; the next attempt waits for the final
/// word, and a person's stop brings it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_89_a_reserved_machine_is_told_at_once_and_given_back_by_cancel() {
    for (exit, word, phase) in
        [("1", "FailedReserving", "FAILED"), ("0", "SucceededReserving", "SUCCEEDED")]
    {
        let body = format!(
            "Settings = {{ JobReservedMinutes = 600 }}\n\
             Envs = {{ EMULATOR_RUN_SECONDS = \"0.5\", EMULATOR_EXIT = \"{exit}\" }}"
        );
        let mut post = Outpost::start(&[("train", job_text("", &body, ""))]).await;
        post.until("train", "is decided", |row| row["vendor_status"] == word).await;
        let row = post.row("train").await;
        assert_eq!(row["phase"], phase, "{row}");
        assert!(row["why"].as_str().is_some_and(|w| w.contains("machine still held")), "{row}");
        tokio::time::sleep(SEVERAL_PASSES).await;
        assert_eq!((post.creates("train"), post.ledger("train", "end").len()), (1, 0), "{word}");
        post.act("train", ActVerb::Cancel).await.expect("it is done");
        post.cloud_ends("train").await;
        post.until("train", "is over", |row| row["vendor_status"] == Value::Null).await;
        assert_eq!(post.creates("train"), 1);
        post.end().await;
    }
}

/// A cloud with one job that runs, whose lists look back seven days unless they are told otherwise.
/// Answers its address, and how many CreateJobs came.
async fn cloud_of_one(job: Value) -> (String, Arc<AtomicUsize>) {
    let created = WallTime::parse(job["GmtCreateTime"].as_str().expect("text")).expect("a time");
    let (one, count) = (job.clone(), Arc::<AtomicUsize>::default());
    let counter = Arc::clone(&count);
    let list = move |Query(query): Query<BTreeMap<String, String>>| async move {
        let asked = query.get("StartTime").and_then(|text| WallTime::parse(text));
        let week = Clock::new().now().wall.minus(Duration::from_secs(7 * 24 * 3600));
        let is_shown = created >= asked.unwrap_or(week);
        let jobs: Vec<Value> = is_shown.then_some(job).into_iter().collect();
        axum::Json(json!({ "TotalCount": jobs.len(), "Jobs": jobs, "RequestId": "r" }))
    };
    let create = move || async move {
        counter.fetch_add(1, Ordering::SeqCst);
        axum::Json(json!({ "JobId": "dlcnew", "RequestId": "r" }))
    };
    let app = axum::Router::new()
        .route("/api/v1/jobs", axum::routing::get(list).post(create))
        .route("/api/v1/jobs/{id}", axum::routing::get(move || async move { axum::Json(one) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, count)
}

/// Row 76: "Orphan created 9 days ago; ListJobs default shows 7 days. -> found". Of a state that is
/// lost: the orphan is taken up and nothing is sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_76_an_orphan_of_nine_days_is_found() {
    let mut post = Outpost::start(&[("train", plain(""))]).await;
    post.until_runs("train", 1).await;
    post.end().await;
    for days in [1_u32, 9, 29] {
        let began = Clock::new().now().wall.minus(Duration::from_secs(24 * 3600) * days);
        let mut job = post.sent("train");
        let shown = json!({
            "JobId": "dlcold", "Status": "Running", "UserId": "1", "RestartTimes": "0/3",
            "GmtCreateTime": began.to_string(), "GmtRunningTime": began.to_string(),
        });
        job.as_object_mut().expect("a body").extend(shown.as_object().expect("keys").clone());
        let (url, created) = cloud_of_one(job).await;
        post.forget();
        post.look_at(&url);
        post.begin().await;
        post.until_runs("train", 1).await;
        tokio::time::sleep(SEVERAL_PASSES).await;
        let page = post.page("train").await;
        assert_eq!(page["attempts"][0]["id"], "dlcold", "{days} days: {page:#}");
        assert_eq!(created.load(Ordering::SeqCst), 0, "{days} days");
        post.end().await;
    }
}
