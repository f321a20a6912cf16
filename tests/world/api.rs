//! The API over its socket, and the verbs that speak to it, with a driver that is made up.

use crate::cli_output::row;
use crate::schema::check;
use clap::Parser as _;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use spotkeeper::api::routes::{Waits, router};
use spotkeeper::api::{bind, serve};
use spotkeeper::cli::act::{ActArgs, act};
use spotkeeper::cli::adopt::{AdoptArgs, adopt};
use spotkeeper::cli::cancel::{CancelArgs, cancel};
use spotkeeper::cli::client::Client;
use spotkeeper::cli::events::{EventsArgs, events};
use spotkeeper::cli::exit::Exit;
use spotkeeper::cli::failure::Failure;
use spotkeeper::cli::output::{Format, Moment, Style};
use spotkeeper::cli::ps::ps;
use spotkeeper::cli::wait::{Goal, WaitArgs, wait};
use spotkeeper::cli::{Answers, Cli, Console};
use spotkeeper::model::handle::{ActVerb, Refusal, Request, WAITING_LIMIT};
use spotkeeper::model::ids::CloudId;
use spotkeeper::model::metrics::{self, Page};
use spotkeeper::model::time::WallTime;
use spotkeeper::model::view::{
    ActReport, BodyView, CheckView, DaemonView, EventPage, EventView, EvidenceView, JobPage,
    JobRow, LogView, MissingView, ReadyView, WhyView,
};
use spotkeeper::store::asked::{self, Wish};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// A daemon that is all door: three jobs, 2,500 events, and acts that are done at once.
pub(crate) struct Daemon {
    _folder: tempfile::TempDir,
    pub(crate) socket: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

const EVENTS: u64 = 2_500;

fn rows() -> Vec<JobRow> {
    vec![row("vit-large", "RUNNING"), row("vit-small", "PENDING"), row("old", "SUCCEEDED")]
}

fn known(name: &str) -> Result<JobRow, Refusal> {
    let found = rows().into_iter().find(|row| row.name == name);
    found.ok_or_else(|| Refusal::NoSuchJob(name.into()))
}

fn event(sequence: u64) -> EventView {
    EventView {
        sequence,
        at: WallTime(i64::try_from(sequence).expect("small") * 1_000).to_string(),
        job: "vit-large".into(),
        run: 1,
        attempt: None,
        word: "ALARM".into(),
        text: format!("number {sequence}"),
        data: Value::Null,
    }
}

fn log_of(row: JobRow, attempt: Option<u32>, rank: u32) -> LogView {
    LogView {
        job: row.name,
        run: 1,
        attempt: attempt.unwrap_or(3),
        id: "dlc1".into(),
        rank,
        from_step: Some(900),
        is_open: true,
        is_cut: false,
        lines: vec!["step 901".into()],
    }
}

fn respond(request: Request) {
    match request {
        Request::Jobs(reply) => drop(reply.send(rows())),
        Request::Job { name, reply } => drop(reply.send(known(&name).map(|row| JobPage {
            row,
            holds: Vec::new(),
            checkpoints: None,
            progress: spotkeeper::model::view::ProgressView::default(),
            waiting: None,
            spec: "00".into(),
            attempts: Vec::new(),
            events: Vec::new(),
        }))),
        Request::Why { name, attempt: Some(no), reply } => {
            drop(reply.send(Err(Refusal::NoSuchAttempt(name, no))));
        }
        Request::Why { name, attempt: None, reply } => {
            drop(reply.send(known(&name).map(|row| WhyView {
                row,
                attempt: None,
                checkpoint: Value::Null,
                holds: Vec::new(),
                next: String::new(),
                waiting: None,
                ends_without_progress: 0,
                suspects: Vec::new(),
                others: Vec::new(),
            })));
        }
        Request::Events { after, limit, reply, .. } => {
            let last = EVENTS.min(after + limit as u64);
            let events: Vec<EventView> = (after + 1..=last).map(event).collect();
            drop(reply.send(Ok(EventPage { events, next_after: last.max(after), gap: false })));
        }
        Request::Act { names, verb, reply } => drop(reply.send(acted(names, verb))),
        Request::Adopt { id, name, reply } => {
            drop(reply.send(known(&name).map(|row| ActReport {
                job: row.name,
                phase: "RUNNING".into(),
                text: format!("adopted {id}"),
                awaited: vec![format!("the end of attempt 1 ({id})")],
            })));
        }
        Request::Evidence { name, attempt, reply } => {
            drop(reply.send(known(&name).map(|row| EvidenceView {
                job: row.name,
                run: 1,
                attempt: attempt.unwrap_or(3),
                id: "dlc1".into(),
                taken: "2026-11-30T00:10:00Z".into(),
                files: [("get_job.json".to_owned(), json!({ "JobId": "dlc1" }))].into(),
                missing: vec![MissingView { file: "get_job_events.json".into(), why: "x".into() }],
            })));
        }
        Request::Logs { name, attempt, rank, reply } => {
            drop(reply.send(known(&name).map(|row| log_of(row, attempt, rank))));
        }
        Request::Body { name, reply } => {
            drop(
                reply.send(
                    known(&name).map(|_| BodyView {
                        body: json!({ "DisplayName": name }),
                        spec: json!({}),
                    }),
                ),
            );
        }
        Request::Checkpoints { name, reply } => drop(reply.send(
            known(&name).map(|_| json!({ "format": null, "chosen": null, "candidates": [] })),
        )),
        Request::Ready(reply) => drop(reply.send(not_ready())),
        Request::Metrics(reply) => {
            let mut page = Page::default();
            page.put(metrics::JOBS, &["RUNNING"], 1.0);
            drop(reply.send(page));
        }
        Request::Daemon(reply) => drop(reply.send(DaemonView {
            version: "0.1.0".into(),
            owner: "k3f9qz".into(),
            pid: 1,
            uptime_s: 1,
            targets: Vec::new(),
            refused_files: Vec::new(),
        })),
    }
}

fn acted(names: Vec<String>, verb: ActVerb) -> Result<Vec<ActReport>, Refusal> {
    match verb {
        ActVerb::Retry => Err(Refusal::NotNow("it runs".into())),
        ActVerb::Pause => Err(Refusal::StoreDown("no space".into())),
        ActVerb::RetryFrom(from) => Ok(vec![ActReport {
            job: names.join(","),
            phase: "PENDING".into(),
            text: format!("from {from}"),
            awaited: Vec::new(),
        }]),
        ActVerb::Cancel | ActVerb::Resume | ActVerb::Forget => Ok(names
            .into_iter()
            .map(|job| ActReport {
                job,
                phase: "STOPPING".into(),
                text: verb.word().into(),
                awaited: Vec::new(),
            })
            .collect()),
    }
}

fn not_ready() -> ReadyView {
    ReadyView {
        status: "not_ready".into(),
        checks: ["ok", "degraded", "failed"]
            .map(|status| CheckView {
                name: format!("target/{status}"),
                status: status.into(),
                age_s: Some(3),
                text: "x".into(),
            })
            .into(),
    }
}

impl Daemon {
    pub(crate) async fn start() -> Self {
        let (handle, mut door) = mpsc::channel(WAITING_LIMIT);
        tokio::spawn(async move {
            while let Some(request) = door.recv().await {
                respond(request);
            }
        });
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("api.sock");
        let listener = bind(&socket).await.expect("a socket");
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, handle, async {
            let _ = stopped.await;
        }));
        Self { _folder: folder, socket, stop: Some(stop), serving }
    }

    fn client(&self) -> Client {
        Client::new(&self.socket).expect("a client")
    }

    pub(crate) async fn raw(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(&self.socket).await.expect("the socket");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        // A body that is too long is not read to its end: the answer counts, not the rest.
        drop(stream.write_all(request.as_bytes()).await);
        let (mut answer, mut part) = (Vec::new(), [0; 4096]);
        while let Ok(read @ 1..) = stream.read(&mut part).await {
            answer.extend_from_slice(&part[..read]);
        }
        let answer = String::from_utf8(answer).expect("UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}")))
    }

    /// What a verb writes: its result, standard output, standard error.
    async fn run<F>(&self, flags: &[&str], verb: F) -> (Result<Exit, Failure>, String, String)
    where
        F: AsyncFnOnce(&mut Console<'_>) -> Result<Exit, Failure>,
    {
        run_on(&self.socket, flags, verb).await
    }
}

async fn run_on<F>(
    socket: &Path,
    flags: &[&str],
    verb: F,
) -> (Result<Exit, Failure>, String, String)
where
    F: AsyncFnOnce(&mut Console<'_>) -> Result<Exit, Failure>,
{
    let socket = socket.to_str().expect("a text");
    let line = ["spotkeeper", "ps", "--socket", socket];
    let global = Cli::try_parse_from(line.iter().chain(flags)).expect("a command line").global;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let now = WallTime(i64::try_from(EVENTS).expect("small") * 1_000);
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
    let done = verb(&mut console).await;
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (done, text(out), text(err))
}

#[tokio::test]
async fn each_address_answers_as_its_schema_says() {
    let daemon = Daemon::start().await;
    for (path, schema) in [
        ("/api/v1/jobs", "ps"),
        ("/api/v1/jobs/vit-large", "describe"),
        ("/api/v1/jobs/vit-large/why", "why"),
        ("/api/v1/jobs/vit-large/evidence?attempt=2", "evidence"),
        ("/api/v1/jobs/vit-large/body", "body"),
        ("/api/v1/jobs/vit-large/logs?rank=1", "logs"),
        ("/api/v1/jobs/vit-large/checkpoints", "checkpoints"),
        ("/api/v1/events?job=vit-large&after=3&limit=5", "events"),
        ("/api/v1/daemon", "daemon"),
        ("/version", "version"),
    ] {
        let (status, answer) = daemon.raw("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        check(schema, &answer);
    }
    assert_eq!(daemon.raw("GET", "/healthz", "").await.0, 200);
    for (path, checks) in [("/readyz", 2), ("/readyz?verbose", 3), ("/readyz?verbose=1", 3)] {
        let (status, answer) = daemon.raw("GET", path, "").await;
        assert_eq!((status, answer["checks"].as_array().map(Vec::len)), (503, Some(checks)));
        check("ready", &answer);
    }
    let (status, answer) = daemon.raw("POST", "/api/v1/jobs/vit-large/cancel", "").await;
    assert_eq!(status, 200);
    check("act", &answer);
    assert_eq!(answer["done"][0]["job"], "vit-large");
    let (_, answer) = daemon.raw("POST", "/api/v1/jobs/vit-large/retry?from=900", "").await;
    check("act", &answer);
    assert_eq!(answer["done"][0]["text"], "from 900");
    let act = r#"{"names":["vit-large"],"verb":"retry","from":"fresh"}"#;
    let (_, answer) = daemon.raw("POST", "/api/v1/act", act).await;
    assert_eq!(answer["done"][0]["text"], "from fresh");
    let act = r#"{"names":["vit-large","vit-small"],"verb":"resume"}"#;
    let (_, answer) = daemon.raw("POST", "/api/v1/act", act).await;
    assert_eq!(answer["done"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn each_refusal_has_its_status_and_code() {
    let daemon = Daemon::start().await;
    let nobody = r#"{"names":[],"verb":"cancel"}"#;
    let odd = r#"{"names":["vit-large"],"verb":"retry","from":"newest"}"#;
    let large = format!("{{\"names\":[\"{}\"],\"verb\":\"cancel\"}}", "x".repeat(2_000_000));
    for (method, path, body, status, code) in [
        ("GET", "/api/v1/jobs/none", "", 404, "E101"),
        ("GET", "/api/v1/jobs/vit-large/why?attempt=9", "", 404, "E102"),
        ("GET", "/api/v1/jobs/vit-large/why?attempt=x", "", 400, "E106"),
        ("GET", "/api/v1/jobs/vit-large/why?atempt=1", "", 400, "E106"),
        ("POST", "/api/v1/jobs/vit-large/retry", "", 409, "E103"),
        ("POST", "/api/v1/jobs/vit-large/pause", "", 503, "E104"),
        ("POST", "/api/v1/jobs/vit-large/pause?from=900", "", 400, "E106"),
        ("POST", "/api/v1/jobs/vit-large/retry?from=new", "", 400, "E106"),
        ("POST", "/api/v1/act", odd, 400, "E106"),
        ("POST", "/api/v1/act", nobody, 400, "E106"),
        ("POST", "/api/v1/act", "{", 400, "E106"),
        ("POST", "/api/v1/act", &large, 413, "E106"),
        ("GET", "/api/v1/events?after=-1", "", 400, "E106"),
        ("GET", "/api/v2/jobs", "", 404, "E107"),
        ("DELETE", "/api/v1/jobs/vit-large", "", 405, "E107"),
        ("GET", "/api/v1/jobs/vit-large/cancel", "", 405, "E107"),
    ] {
        let (found, answer) = daemon.raw(method, path, body).await;
        assert_eq!((found, answer["code"].as_str()), (status, Some(code)), "{method} {path}");
        check("error", &answer);
    }
}

#[tokio::test]
async fn a_driver_that_does_not_answer_is_told_and_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("api.sock");
    let listener = bind(&socket).await.expect("a socket");
    let (handle, mut door) = mpsc::channel(1);
    let short = Duration::from_millis(20);
    let waits = Waits { answer: short, look: short };
    tokio::spawn(axum::serve(listener, router(handle, waits)).into_future());
    let client = Client::new(&socket).expect("a client");
    // The first waits for its answer, the next ones at the full door.
    for _ in 0..3 {
        let failure = client.jobs().await.expect_err("nobody answers");
        assert_eq!(failure.code().as_deref(), Some("E105"));
        assert_eq!(failure.exit(), Exit::NotReachable);
    }
    door.close();
    while door.try_recv().is_ok() {}
    let failure = client.jobs().await.expect_err("the driver is gone");
    assert_eq!(failure.code().as_deref(), Some("E105"));
}

#[tokio::test]
async fn the_stop_ends_the_serving_and_leaves_the_next_daemons_socket_alone() {
    let mut daemon = Daemon::start().await;
    daemon.client().jobs().await.expect("it answers");
    let idle = UnixStream::connect(&daemon.socket).await.expect("a connection that says nothing");
    drop(daemon.stop.take());
    (&mut daemon.serving).await.expect("no panic").expect("no error");
    drop(idle);
    assert!(daemon.socket.exists());
    bind(&daemon.socket).await.expect("the next daemon takes its place");
}

#[tokio::test]
async fn without_a_daemon_the_message_names_socket_and_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let gone = folder.path().join("gone.sock");
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("a socket"));
    for socket in [&gone, &stale] {
        let (done, out, _) = run_on(socket, &[], ps).await;
        let failure = done.expect_err("nobody is there");
        assert_eq!(failure.exit(), Exit::NotReachable);
        let report = failure.report();
        assert!(report.contains(socket.to_str().expect("a text")), "{report}");
        assert!(report.contains("`spotkeeper run`"), "{report}");
        assert!(report.starts_with("error[E110]"), "{report}");
        assert_eq!(out, "");
    }
}

#[tokio::test]
async fn what_is_not_our_daemon_is_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("other.sock");
    let listener = bind(&socket).await.expect("a socket");
    let other = axum::Router::new()
        .route("/api/v1/jobs", axum::routing::get(async || "{\"jobs\":[]}"))
        .route("/api/v1/daemon", axum::routing::get(async || "<html>"));
    tokio::spawn(axum::serve(listener, other).into_future());
    let client = Client::new(&socket).expect("a client");
    let failure = client.jobs().await.expect_err("no apiVersion");
    assert_eq!((failure.code().as_deref(), failure.exit()), (Some("E111"), Exit::Error));
    assert_eq!(client.daemon().await.expect_err("no JSON").code().as_deref(), Some("E111"));
}

#[tokio::test]
async fn a_name_that_no_job_has_comes_back_with_near_ones() {
    let daemon = Daemon::start().await;
    let client = daemon.client();
    let failure = client.of_job::<JobPage>("vit-lage", &[], &[]).await.expect_err("no such job");
    assert_eq!(failure.exit(), Exit::NoSuchJob);
    assert!(failure.report().contains("did you mean `vit-large`"), "{}", failure.report());
    for odd in ["..", "a/b", "", "x?y", "中文"] {
        let failure = client.of_job::<JobPage>(odd, &[], &[]).await.expect_err("no such job");
        assert_eq!(failure.exit(), Exit::NoSuchJob, "{odd}");
    }
}

#[tokio::test]
async fn the_list_is_written_in_every_format() {
    let daemon = Daemon::start().await;
    let (done, out, err) = daemon.run(&[], ps).await;
    assert_eq!(done.expect("a table"), Exit::Done);
    assert!(out.starts_with("NAME") && out.lines().count() == 4, "{out}");
    assert!(err.contains("3 jobs: "), "{err}");
    let (_, _, err) = daemon.run(&["-q"], ps).await;
    assert_eq!(err, "");
    let (_, out, err) = daemon.run(&["-o", "json"], ps).await;
    check("ps", &serde_json::from_str(&out).expect("JSON"));
    assert_eq!(err, "");
    let (_, out, _) = daemon.run(&["-o", "jsonl"], ps).await;
    let names: Vec<Value> = out
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).expect("JSON")["name"].clone())
        .collect();
    assert_eq!(names, ["vit-large", "vit-small", "old"]);
    let (_, out, _) = daemon.run(&["-o", "name"], ps).await;
    assert_eq!(out, "vit-large\nvit-small\nold\n");
}

#[tokio::test]
async fn events_come_page_by_page_each_once() {
    let daemon = Daemon::start().await;
    let args = EventsArgs { job: None, follow: false, since: None };
    let (done, out, _) = daemon.run(&[], async |c| events(&args, c).await).await;
    assert_eq!(done.expect("a list"), Exit::Done);
    assert_eq!(out.lines().count() as u64, EVENTS);
    assert!(out.ends_with("00:41:40  ALARM         vit-large  number 2500\n"), "{out}");
    let (_, out, _) = daemon.run(&["-o", "json"], async |c| events(&args, c).await).await;
    let document: Value = serde_json::from_str(&out).expect("JSON");
    check("events", &document);
    assert_eq!(document["next_after"], EVENTS);
    let late = EventsArgs { since: Some(Duration::from_secs(9)), ..args };
    let (_, out, _) = daemon.run(&[], async |c| events(&late, c).await).await;
    assert_eq!(out.lines().count(), 10);
    let endless = EventsArgs { follow: true, ..late };
    let (done, _, _) = daemon.run(&["-o", "json"], async |c| events(&endless, c).await).await;
    assert_eq!(done.expect_err("one document never ends").exit(), Exit::Usage);
}

#[tokio::test]
async fn a_cancel_that_nobody_can_confirm_asks_for_its_flag() {
    let daemon = Daemon::start().await;
    let args = CancelArgs { jobs: vec!["vit-large".into()], all: false, yes: false };
    let (done, _, _) = daemon.run(&[], async |c| cancel(&args, c).await).await;
    let failure = done.expect_err("there is no terminal");
    assert_eq!(failure.exit(), Exit::Usage);
    assert!(failure.report().contains("add `-y`"), "{}", failure.report());
    let all = CancelArgs { jobs: Vec::new(), all: true, yes: true };
    let (done, out, _) = daemon.run(&[], async |c| cancel(&all, c).await).await;
    assert_eq!(done.expect("done"), Exit::Done);
    assert_eq!(out, "vit-large  STOPPING  cancel\nvit-small  STOPPING  cancel\n");
    let typo = CancelArgs { jobs: vec!["vit-lage".into()], all: false, yes: true };
    let (done, out, _) = daemon.run(&[], async |c| cancel(&typo, c).await).await;
    assert_eq!((done.expect_err("no such job").exit(), out.as_str()), (Exit::NoSuchJob, ""));
}

#[tokio::test]
async fn acts_pass_the_daemons_refusal_on() {
    let daemon = Daemon::start().await;
    let args = ActArgs { jobs: vec!["vit-large".into()] };
    for (verb, code) in [(ActVerb::Retry, "E103"), (ActVerb::Pause, "E104")] {
        let (done, _, _) = daemon.run(&[], async |c| act(&args, verb, c).await).await;
        let failure = done.expect_err("refused");
        assert_eq!((failure.code().as_deref(), failure.exit()), (Some(code), Exit::Error));
    }
    let resume = async |c: &mut Console<'_>| act(&args, ActVerb::Resume, c).await;
    let (done, out, _) = daemon.run(&["-o", "json"], resume).await;
    assert_eq!(done.expect("done"), Exit::Done);
    check("act", &serde_json::from_str(&out).expect("JSON"));
}

#[tokio::test]
async fn adopt_and_forget_say_what_was_done_and_what_is_awaited() {
    let daemon = Daemon::start().await;
    let args = |id: &str, job: &str| AdoptArgs { id: id.into(), job: job.into() };
    let good = args("dlc1", "vit-small");
    let (done, out, _) = daemon.run(&["-o", "json"], async |c| adopt(&good, c).await).await;
    assert_eq!(done.expect("done"), Exit::Done);
    let told: Value = serde_json::from_str(&out).expect("JSON");
    check("act", &told);
    assert_eq!(told["done"][0]["awaited"], json!(["the end of attempt 1 (dlc1)"]));
    let (_, out, _) = daemon.run(&[], async |c| adopt(&good, c).await).await;
    assert_eq!(out, "vit-small  RUNNING  adopted dlc1\n");
    for (wrong, exit) in [
        (args("dlc1", "nobody"), Exit::NoSuchJob),
        (args("dlc1", "../x"), Exit::NoSuchJob),
        (args("dlc/../1", "vit-small"), Exit::Usage),
    ] {
        let (done, _, _) = daemon.run(&[], async |c| adopt(&wrong, c).await).await;
        assert_eq!(done.expect_err("refused").exit(), exit, "{wrong:?}");
    }
    for path in ["adopt", "adopt?id=a%2Fb", "adopt?id=dlc1&force=1"] {
        let path = format!("/api/v1/jobs/vit-small/{path}");
        assert_eq!(daemon.raw("POST", &path, "").await.0, 400, "{path}");
    }
    let old = ActArgs { jobs: vec!["old".into()] };
    let (done, out, _) =
        daemon.run(&["-o", "name"], async |c| act(&old, ActVerb::Forget, c).await).await;
    assert_eq!((done.expect("done"), out.as_str()), (Exit::Done, "old\n"));
    let (status, told) = daemon.raw("POST", "/api/v1/jobs/old/forget", "").await;
    assert_eq!(status, 200, "{told}");
}

/// While no daemon runs an act is written down beside its state, and nowhere else.
#[tokio::test]
async fn acts_are_written_down_while_no_daemon_runs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, socket) = (folder.path().join("d.toml"), folder.path().join("api.sock"));
    let text = "state_directory = \"state\"\n[api]\nsocket = \"api.sock\"\n";
    std::fs::write(&config, text).expect("written");
    let flags = |format| ["--config", config.to_str().expect("text"), "-o", format];
    let pause = ActArgs { jobs: vec!["a".into(), "b".into()] };
    let act_on = async |format| {
        run_on(&socket, &flags(format), async |c| act(&pause, ActVerb::Pause, c).await).await
    };
    let (done, _, _) = act_on("table").await;
    assert_eq!(done.expect_err("there is no state").exit(), Exit::NotReachable);
    let state = folder.path().join("state");
    std::fs::create_dir(&state).expect("a folder");
    let (done, out, _) = act_on("table").await;
    assert_eq!(done.expect("written down"), Exit::Done);
    let said = "pause: written down; applied when the daemon starts, before anything is submitted";
    assert_eq!(out, format!("a  {said}\nb  {said}\n"));
    for format in ["json", "jsonl"] {
        let (_, out, _) = act_on(format).await;
        let told: Value = serde_json::from_str(&out).expect("JSON");
        check("act", &told);
        assert_eq!(told["written_down"]["jobs"], json!(["a", "b"]));
    }
    let all = CancelArgs { jobs: Vec::new(), all: true, yes: true };
    let (done, out, _) = run_on(&socket, &flags("table"), async |c| cancel(&all, c).await).await;
    assert_eq!(done.expect("written down"), Exit::Done);
    assert!(out.starts_with("all jobs that are not over  cancel: written down"), "{out}");
    let adopted = AdoptArgs { id: "dlc1".into(), job: "a".into() };
    run_on(&socket, &flags("table"), async |c| adopt(&adopted, c).await).await.0.expect("written");
    let found: Vec<Wish> = asked::read(&state)
        .expect("files")
        .into_iter()
        .map(|(_, a)| a.expect("one").wish)
        .collect();
    let id = CloudId::new("dlc1").expect("an id");
    assert_eq!(found, [Wish::Pause, Wish::Pause, Wish::Pause, Wish::Cancel, Wish::Adopt(id)]);
    // What no job can be called is not written down; nor is what is for another daemon.
    let odd = ActArgs { jobs: vec!["../a".into()] };
    let (done, _, _) =
        run_on(&socket, &flags("table"), async |c| act(&odd, ActVerb::Retry, c).await).await;
    assert_eq!(done.expect_err("no name").exit(), Exit::NoSuchJob);
    let other = folder.path().join("other.sock");
    let (done, _, _) =
        run_on(&other, &flags("table"), async |c| act(&pause, ActVerb::Retry, c).await).await;
    assert_eq!(done.expect_err("another daemon's").exit(), Exit::NotReachable);
    assert_eq!(asked::read(&state).expect("files").len(), 5);
}

#[tokio::test]
async fn waiting_ends_with_the_code_for_how_it_went() {
    let daemon = Daemon::start().await;
    for (jobs, goal, timeout, exit) in [
        (vec!["old"], Goal::Ended, None, Ok(Exit::Done)),
        (vec!["old"], Goal::Phase("RUNNING"), None, Ok(Exit::JobFailed)),
        (vec!["old", "vit-large"], Goal::Phase("RUNNING"), None, Ok(Exit::JobFailed)),
        (vec!["vit-large"], Goal::Ended, Some(Duration::ZERO), Err(Exit::TimedOut)),
        (vec!["none"], Goal::Ended, None, Err(Exit::NoSuchJob)),
    ] {
        let jobs = jobs.into_iter().map(str::to_owned).collect();
        let args = WaitArgs { jobs, goal, timeout };
        let (done, _, _) = daemon.run(&[], async |c| wait(&args, c).await).await;
        assert_eq!(done.map_err(|failure| failure.exit()), exit, "{args:?}");
    }
}

#[test]
fn formats_and_flags_are_read_behind_the_verb_too() {
    let cli = Cli::try_parse_from(["spotkeeper", "ps", "-o", "wide", "-q"]).expect("flags");
    assert_eq!((cli.global.output, cli.global.quiet), (Format::Wide, true));
    for wrong in [
        vec!["spotkeeper", "cancel"],
        vec!["spotkeeper", "cancel", "a", "--all"],
        vec!["spotkeeper", "ps", "-o", "xml"],
        vec!["spotkeeper", "events", "--since", "2"],
        vec!["spotkeeper", "logs"],
    ] {
        assert!(Cli::try_parse_from(&wrong).is_err(), "{wrong:?}");
    }
}

/// One request over TCP: the status, and the text of the answer.
async fn over_tcp(address: std::net::SocketAddr, request: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(address).await.expect("it listens");
    let request = request.replace('\n', "\r\n") + "\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
    (status, answer)
}

#[tokio::test]
async fn over_tcp_figures_are_open_jobs_need_the_token_and_nothing_can_be_changed() {
    let (handle, mut door) = mpsc::channel(WAITING_LIMIT);
    tokio::spawn(async move {
        while let Some(request) = door.recv().await {
            respond(request);
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let token = Some(spotkeeper::model::secret::Secret::new("t0ken"));
    let gate = spotkeeper::api::Gate { token, is_public: false };
    tokio::spawn(spotkeeper::api::serve_tcp(listener, gate, handle, std::future::pending()));
    let bearer = "authorization: Bearer t0ken";
    for (request, status, part) in [
        (
            "GET /metrics HTTP/1.1\nhost: localhost".to_owned(),
            200,
            "spotkeeper_jobs{phase=\"RUNNING\"} 1",
        ),
        ("GET /healthz HTTP/1.1\nhost: 127.0.0.1:9477".to_owned(), 200, "\"ok\""),
        ("GET /readyz HTTP/1.1\nhost: [::1]:9477".to_owned(), 503, "not_ready"),
        ("GET /version HTTP/1.1\nhost: evil.example".to_owned(), 421, "E113"),
        ("GET /api/v1/jobs HTTP/1.1\nhost: localhost".to_owned(), 401, "E112"),
        (format!("GET /api/v1/jobs HTTP/1.1\nhost: bastion\n{bearer}"), 200, "vit-large"),
        (
            format!("POST /api/v1/jobs/vit-large/cancel HTTP/1.1\nhost: localhost\n{bearer}"),
            405,
            "E107",
        ),
    ] {
        let (found, answer) = over_tcp(address, &request).await;
        assert_eq!(found, status, "{request}: {answer}");
        assert!(answer.contains(part), "{request}: {answer}");
    }
}
