//! `spotkeeper doctor` against the emulator, and against targets that are wrong in one way each.

use crate::emulator_client::World;
use crate::schema::check;
use crate::server::{Reply, Server};
use clap::Parser as _;
use jiff::tz::TimeZone;
use serde_json::Value;
use spotkeeper::cli::exit::Exit;
use spotkeeper::cli::failure::Failure;
use spotkeeper::cli::output::{Moment, Style};
use spotkeeper::cli::{Answers, Cli, Console, doctor};
use spotkeeper::model::time::WallTime;
use spotkeeper::service::clock::Clock;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const DATE: &str = "2026-11-30T08:10:18Z";
const LISTING: &str = "<?xml version=\"1.0\"?><ListBucketResult><Name>bucket</Name><KeyCount>0\
    </KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>";

/// The stand-ins' time.
fn date() -> WallTime {
    WallTime::parse(DATE).expect("a time")
}

struct Installation {
    folder: tempfile::TempDir,
}

impl Installation {
    fn new(endpoint: &str, storage: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            std::fs::write(folder.path().join(name), text).expect("written");
        };
        write("keys.toml", "access_key_id = \"id\"\naccess_key_secret = \"secret\"\n");
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.path().join("keys.toml"), mode).expect("its mode");
        let daemon = format!(
            "owner = \"doctrs\"\njobs_directory = \"jobs.d\"\n[targets.here]\n\
             region = \"cn-hangzhou\"\nworkspace = \"12345\"\nendpoint = \"{endpoint}\"\n\
             credentials = {{ file = \"keys.toml\" }}\nstorage = {{ endpoint = \"{storage}\" }}\n"
        );
        write("spotkeeper.toml", &daemon);
        std::fs::create_dir(folder.path().join("jobs.d")).expect("a folder");
        // Two jobs in one bucket: it is looked at once.
        for name in ["a", "b"] {
            let job = format!(
                "target = \"here\"\n[submit]\nJobType = \"PyTorchJob\"\n\
                 UserCommand = \"python train.py {{resume}}\"\n[[submit.JobSpecs]]\n\
                 Type = \"Worker\"\nImage = \"image\"\nPodCount = 1\n\
                 EcsSpec = \"ecs.gn7e-c16g1.4xlarge\"\n[[submit.DataSources]]\n\
                 Uri = \"oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com/team/\"\n\
                 MountPath = \"/mnt/ckpt\"\n[checkpoint]\npath = \"/mnt/ckpt/{name}\"\n"
            );
            write(&format!("jobs.d/{name}.toml"), &job);
        }
        Self { folder }
    }

    async fn doctor(&self, now: WallTime, flags: &[&str]) -> (Result<Exit, Failure>, String) {
        let file = self.folder.path().join("spotkeeper.toml");
        run(&file, now, flags).await
    }
}

async fn run(file: &Path, now: WallTime, flags: &[&str]) -> (Result<Exit, Failure>, String) {
    let line = ["spotkeeper", "doctor", "--config", file.to_str().expect("a text")];
    let global = Cli::try_parse_from(line.iter().chain(flags)).expect("a command line").global;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut console = Console {
        out: &mut out,
        err: &mut err,
        answers: Answers::Nobody,
        format: global.output,
        width: None,
        style: Style::Plain,
        moment: Moment { now, zone: TimeZone::UTC },
        global: &global,
    };
    let done = doctor::doctor(&mut console).await;
    let text = String::from_utf8([out, err].concat()).expect("UTF-8");
    assert!(!text.contains("secret"), "{text}");
    (done, text)
}

async fn report(endpoint: &str, storage: &str, now: WallTime) -> (Exit, Value) {
    let installation = Installation::new(endpoint, storage);
    let (done, text) = installation.doctor(now, &["-o", "json"]).await;
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    check("doctor", &json);
    (done.expect("it looked"), json["targets"][0].clone())
}

/// The checks of a kind: verdict and text.
fn of<'r>(report: &'r Value, kind: &str) -> Vec<(&'r str, &'r str)> {
    let checks = report["checks"].as_array().expect("checks").iter();
    checks
        .filter(|check| check["check"] == kind)
        .map(|c| (c["verdict"].as_str().expect("a word"), c["text"].as_str().expect("a text")))
        .collect()
}

fn missing(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().expect("checks").iter();
    checks.filter_map(|check| check["missing_action"].as_str()).collect()
}

fn good() -> Vec<Reply> {
    let none = Reply::http(404, r#"{"Code":"NotFound","Message":"no such job"}"#);
    vec![
        Reply::http(200, r#"{"Jobs":[],"TotalCount":0}"#),
        none.clone(),
        none.clone(),
        none,
        Reply::http(200, r#"{"EcsSpecs":[],"TotalCount":0}"#),
    ]
}

#[tokio::test]
async fn a_target_that_is_well_is_shown_so_and_nothing_but_reads_is_sent() {
    let dlc = Server::start(good()).await;
    let storage = Server::start(vec![Reply::http(200, LISTING)]).await;
    let installation = Installation::new(&dlc.url, &storage.url);
    let (done, text) = installation.doctor(date(), &[]).await;
    assert_eq!(done.expect("it looked"), Exit::Done, "{text}");
    let folder = installation.folder.path().display().to_string();
    let text = text.replace(&folder, "/etc/spotkeeper").replace(&dlc.url, "https://pai-dlc");
    let text = text.replace("https://pai-dlc", "https://pai-dlc.cn-hangzhou.aliyuncs.com");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli-golden/doctor.txt");
    if std::env::var_os("SPOTKEEPER_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &text).expect("a golden file");
    }
    assert_eq!(text, std::fs::read_to_string(&path).expect("a golden file"));
    let lines: Vec<String> = dlc.seen().iter().map(|seen| seen.line.clone()).collect();
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("GET ")), "{lines:?}");
    assert!(lines[0].contains("PageSize=1&StartTime=2026-11-30T07"), "{lines:?}");
    let listed = storage.seen();
    assert_eq!(listed.len(), 1, "one bucket, one list: {listed:?}");
    assert!(listed[0].line.starts_with("GET ") && listed[0].line.contains("prefix=team%2Fa%2F"));
}

#[tokio::test]
async fn the_emulator_is_examined_without_a_trace() {
    let world = World::with(|_| {}).await;
    let storage = Server::start(vec![Reply::http(200, LISTING)]).await;
    let now = Clock::new().now().wall;
    let (exit, report) = report(&world.running.url(), &storage.url, now).await;
    assert_eq!(exit, Exit::Done, "{report}");
    assert_eq!(of(&report, "answer"), [("ok", "ListJobs is answered")], "{report}");
    assert_eq!(of(&report, "clock")[0].0, "ok", "{report}");
    assert!(report["clock_offset_s"].as_i64().is_some_and(|s| s.abs() < 60), "{report}");
    for action in ["pai:ListJobs", "pai:GetJob", "pai:GetPodLogs", "pai:GetJobEvents"] {
        assert!(of(&report, "permission").contains(&("ok", action)), "{action}: {report}");
    }
    let touched = world.ledger();
    assert!(touched.iter().all(|l| l["event"] == "refused"), "{touched:?}");
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_missing_permission_is_named_call_by_call() {
    let denied = |action: &str| {
        let detail = format!("\"AccessDeniedDetail\":{{\"AuthAction\":\"{action}\"}}");
        Reply::http(403, &format!("{{\"Code\":\"Forbidden.RAM\",\"Message\":\"m\",{detail}}}"))
    };
    let plain = Reply::http(403, r#"{"Code":"Forbidden.RAM","Message":"m"}"#);
    let mut replies = good();
    replies[0] = denied("pai:ListJobs");
    replies[2] = plain.clone();
    replies[4] = plain;
    let dlc = Server::start(replies).await;
    let denied = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
    let storage = Server::start(vec![Reply::http(403, denied)]).await;
    let (exit, report) = report(&dlc.url, &storage.url, date()).await;
    assert_eq!(exit, Exit::Error);
    assert_eq!(
        missing(&report),
        ["pai:ListJobs", "pai:GetPodLogs", "pai:ListEcsSpecs", "oss:ListObjects"],
        "{report}"
    );
    let verdicts: Vec<&str> = of(&report, "permission").iter().map(|(v, _)| *v).collect();
    assert_eq!(verdicts, ["error", "ok", "error", "ok", "warning", "not_checked"], "{report}");
    assert!(of(&report, "permission")[0].1.contains("[E126]"), "{report}");
    assert_eq!(of(&report, "answer")[0].0, "ok", "an answer is an answer: {report}");
    let (verdict, text) = of(&report, "bucket")[0];
    assert_eq!(verdict, "error", "{report}");
    assert!(text.ends_with("give these keys oss:ListObjects on it, or other keys"), "{text}");
}

#[tokio::test]
async fn a_bucket_that_does_not_answer_is_told_once_and_with_what_to_look_at() {
    let dlc = Server::start(good()).await;
    let (_, report) = report(&dlc.url, "http://127.0.0.1:9", date()).await;
    let (verdict, text) = of(&report, "bucket")[0];
    assert_eq!(verdict, "error", "{report}");
    assert_eq!(text.matches("Error performing GET").count(), 1, "{text}");
    assert!(text.contains("check `storage` of the target"), "{text}");
}

#[tokio::test]
async fn a_folder_of_checkpoints_is_looked_at_as_a_bucket_is() {
    let dlc = Server::start(good()).await;
    let installation = Installation::new(&dlc.url, "http://127.0.0.1:9");
    let folder = installation.folder.path();
    let ckpt = folder.join("ckpt");
    std::fs::remove_file(folder.join("jobs.d/b.toml")).expect("removed");
    let job = std::fs::read_to_string(folder.join("jobs.d/a.toml")).expect("a job file");
    let uri = format!("file://{}/", ckpt.display());
    let job = job.replace("oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com/team/", &uri);
    std::fs::write(folder.join("jobs.d/a.toml"), job).expect("written");
    let (done, text) = installation.doctor(date(), &[]).await;
    assert_eq!(done.expect("it looked"), Exit::Error, "{text}");
    let told = format!("the folder {}/a does not exist; make it", ckpt.display());
    assert!(text.contains(&told), "{text}");
    std::fs::create_dir_all(ckpt.join("a")).expect("a folder");
    let dlc = Server::start(good()).await;
    let installed = std::fs::read_to_string(folder.join("spotkeeper.toml")).expect("a file");
    let port = installed.lines().find(|line| line.starts_with("endpoint")).expect("a line");
    let moved = installed.replace(port, &format!("endpoint = \"{}\"", dlc.url));
    std::fs::write(folder.join("spotkeeper.toml"), moved).expect("written");
    let (done, text) = installation.doctor(date(), &[]).await;
    assert_eq!(done.expect("it looked"), Exit::Done, "{text}");
    assert!(text.contains("/ckpt/a is there"), "{text}");
}

#[tokio::test]
async fn a_clock_that_is_off_is_told_and_hides_nothing_else() {
    let late = Reply::http(400, r#"{"Code":"InvalidTimeStamp.Expired","Message":"m"}"#);
    for (minutes, verdict, exit) in
        [(0, "ok", Exit::Done), (3, "warning", Exit::Done), (20, "error", Exit::Error)]
    {
        let mut replies = good();
        if minutes == 20 {
            replies.insert(0, late.clone());
        }
        let dlc = Server::start(replies).await;
        let storage = Server::start(vec![Reply::http(200, LISTING)]).await;
        let now = date().minus(Duration::from_mins(minutes));
        let (done, report) = report(&dlc.url, &storage.url, now).await;
        assert_eq!(done, exit, "{report}");
        assert_eq!(of(&report, "clock")[0].0, verdict, "{report}");
        let offset = report["clock_offset_s"].as_i64().expect("a number");
        let minutes = i64::try_from(minutes).expect("small");
        assert!((-minutes * 60 - 2..=-minutes * 60 + 30).contains(&offset), "{report}");
        assert_eq!(of(&report, "answer")[0].0, "ok", "{report}");
        assert!(of(&report, "permission").contains(&("ok", "pai:GetJob")), "{report}");
        if minutes == 20 {
            assert!(of(&report, "clock")[0].1.contains("[E122]"), "{report}");
            let second = dlc.seen()[1].header("x-acs-date").map(str::to_owned);
            assert!(second.is_some_and(|date| date.starts_with("2026-11-30T08:1")));
        }
    }
}

#[tokio::test]
async fn each_way_of_not_answering_has_its_page() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = format!("http://{}", free.local_addr().expect("an address"));
    drop(free);
    let html = Server::start(vec![Reply::http(502, "<html>bad gateway</html>")]).await;
    let key = r#"{"Code":"InvalidAccessKeyId.NotFound","Message":"m"}"#;
    let key = Server::start(vec![Reply::http(404, key)]).await;
    let busy = Server::start(vec![Reply::http(429, r#"{"Code":"Throttling.User"}"#)]).await;
    let cut = Server::start(vec![Reply::http(200, "{\"Jobs\":[")]).await;
    let reset = Server::start(vec![Reply::Close]).await;
    let storage = Server::start(vec![Reply::http(200, LISTING)]).await;
    for (url, page) in [
        (&nobody, "E133"),
        (&html.url, "E132"),
        (&key.url, "E124"),
        (&busy.url, "E120"),
        (&cut.url, "E132"),
        (&reset.url, "E134"),
    ] {
        let (exit, report) = report(url, &storage.url, date()).await;
        assert_eq!(exit, Exit::Error, "{report}");
        let answers = of(&report, "answer");
        assert!(answers[0].0 == "error" && answers[0].1.contains(page), "{page}: {report}");
        assert_eq!(of(&report, "permission")[0].0, "not_checked", "{report}");
        assert_eq!(of(&report, "bucket")[0].0, "ok", "a bucket is another matter: {report}");
        assert!(!report.to_string().contains("secret"), "{report}");
    }
}

#[tokio::test]
async fn without_keys_or_without_a_daemon_file_it_says_so() {
    let installation = Installation::new("http://127.0.0.1:9", "http://127.0.0.1:9");
    let keys = installation.folder.path().join("keys.toml");
    std::fs::write(&keys, "access_key_id = \"\"\n").expect("written");
    let (done, text) = installation.doctor(date(), &[]).await;
    assert_eq!(done.expect("it looked"), Exit::Error, "{text}");
    assert!(text.contains("ERROR") && text.contains("[E135] credentials file"), "{text}");
    assert!(text.contains("; mend that source, or name another in `credentials`"), "{text}");
    std::fs::remove_file(&keys).expect("removed");
    let (done, _) = installation.doctor(date(), &[]).await;
    let told = done.expect_err("no such file").report();
    assert!(told.contains("spotkeeper.toml: [E045]") && !told.contains("cannot be read"), "{told}");
    let (done, _) = run(&installation.folder.path().join("gone.toml"), date(), &[]).await;
    assert_eq!(done.expect_err("no file").exit(), Exit::ConfigNotValid);
}
