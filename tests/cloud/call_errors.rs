//! What follows from calls that go wrong: by the code of the answer, not by its status. The traps
//! have the numbers of the list of facts about PAI-DLC that they come from.

use crate::emulator_client::{World, ledger};
use crate::server::{Reply, Server};
use crate::supervisor_no_space::{rows, until, write_files};
use serde_json::{Map, Value, json};
use spotkeeper::config::{Surroundings, load_daemon};
use spotkeeper::dlc::client::{ApiError, Dlc, Stop};
use spotkeeper::dlc::list::ListFilter;
use spotkeeper::emulator::RunAs;
use spotkeeper::model::cloud::SendOutcome;
use spotkeeper::model::error::Class;
use spotkeeper::model::handle::{ActVerb, Handle, Request};
use spotkeeper::model::ids::{CloudId, Owner};
use spotkeeper::model::spec::{CredentialsRef, Place};
use spotkeeper::model::time::WallTime;
use spotkeeper::model::view::DaemonView;
use spotkeeper::openapi::client::{Limits, PlainHttp};
use spotkeeper::openapi::credentials::Keychain;
use spotkeeper::openapi::kind::Kind;
use spotkeeper::service::clock::Clock;
use spotkeeper::supervisor::{Settings, Supervisor};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

fn now() -> WallTime {
    WallTime::parse("2026-11-30T08:10:18Z").expect("a time")
}

fn id() -> CloudId {
    CloudId::new("dlc1").expect("an id")
}

fn keys(folder: &Path) -> CredentialsRef {
    let path = folder.join("keys.toml");
    let text = "access_key_id = \"keyid-1\"\naccess_key_secret = \"hunter2\"\n";
    std::fs::write(&path, text).expect("written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    CredentialsRef::File(path)
}

fn dlc(url: &str, folder: &Path) -> Dlc {
    let place = Place {
        region: "cn-hangzhou".to_owned(),
        workspace: "12345".to_owned(),
        endpoint: url.to_owned(),
        storage: None,
        credentials: keys(folder),
    };
    let owner = Owner::new("k3f9qz").expect("an owner");
    let wait = Duration::from_secs(5);
    let limits = Limits { read: wait, total: wait, ..Limits::default() };
    Dlc::with_limits(&place, owner, &Keychain::default(), PlainHttp::Loopback, limits)
        .expect("a client")
}

async fn error_of(reply: Reply) -> ApiError {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(vec![reply]).await;
    let answer = dlc(&server.url, folder.path()).get_job(&id(), now()).await;
    answer.expect_err("an error")
}

async fn creation(reply: Reply) -> SendOutcome {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(vec![reply]).await;
    let client = dlc(&server.url, folder.path());
    let outcome = client.create_job(&Map::new(), &BTreeMap::new(), now()).await.value;
    assert_eq!(server.seen().len(), 1, "sent once");
    outcome
}

/// An emulator and a supervisor with one job on it, which runs.
struct Watched {
    cloud: World,
    door: Handle,
    stop: watch::Sender<bool>,
    running: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Watched {
    async fn start() -> Self {
        let cloud = World::with(|options| {
            options.run_as = RunAs::Virtual;
            options.acceptance = Duration::from_secs(3);
        })
        .await;
        let folder = tempfile::tempdir().expect("a folder");
        write_files(folder.path(), &cloud.running.url());
        let file = load_daemon(&folder.path().join("spotkeeper.toml"), &Surroundings::default());
        let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).clone();
        let owner = config.owner.clone().expect("an owner");
        let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
        let (stop, stopped) = watch::channel(false);
        let supervisor = Supervisor::open(settings, stopped).await.expect("it opens");
        let door = supervisor.handle();
        let running = tokio::spawn(supervisor.run());
        Self { cloud, door, stop, running, _folder: folder }
    }

    async fn faults(&self, rules: &Value) {
        let (status, text) = self.cloud.admin("PUT", "/emulator/faults", rules).await;
        assert_eq!(status, 200, "{text}");
    }

    async fn fault(&self) -> Option<String> {
        let (reply, answer) = oneshot::channel();
        self.door.send(Request::Daemon(reply)).await.expect("the driver is there");
        let DaemonView { mut targets, .. } = answer.await.expect("an answer");
        targets.pop().expect("a target").fault
    }

    async fn until_phase(&self, phase: &str) {
        until(phase, || async { rows(&self.door).await.first().is_some_and(|r| r.phase == phase) })
            .await;
    }

    fn count(&self, event: &str) -> usize {
        ledger(self.cloud.folder.path()).iter().filter(|line| line["event"] == event).count()
    }

    async fn end(self) {
        self.stop.send(true).expect("it runs");
        self.running.await.expect("it ends");
        self.cloud.running.shutdown().await;
    }
}

#[tokio::test]
async fn each_answer_has_its_kind_class_and_page_whatever_its_status() {
    let code = |code: &str| format!("{{\"Code\":\"{code}\",\"Message\":\"m\"}}");
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"JobId\":\"dlc1\"".to_vec();
    for (reply, kind, class, page) in [
        (Reply::http(400, &code("SignatureDoesNotMatch")), Kind::Signature, Class::Operator, 121),
        (Reply::http(403, &code("SignatureDoesNotMatch")), Kind::Signature, Class::Operator, 121),
        (
            Reply::http(400, &code("InvalidAccessKeyId.Inactive")),
            Kind::KeyUnknown,
            Class::Operator,
            124,
        ),
        (Reply::http(400, &code("InvalidSecurityToken.Expired")), Kind::Token, Class::Wait, 125),
        (Reply::http(403, &code("Forbidden.RAM")), Kind::Permission, Class::Operator, 126),
        (Reply::http(404, &code("NotFound")), Kind::NotFound, Class::Operator, 128),
        (Reply::http(503, &code("ServiceUnavailable")), Kind::Service, Class::Wait, 129),
        (Reply::http(400, &code("InvalidParameter")), Kind::Parameter, Class::Operator, 130),
        (Reply::http(400, &code("OutOfStock")), Kind::UnknownCode, Class::Wait, 131),
        (Reply::http(502, "<html>bad gateway</html>"), Kind::Unreadable, Class::Retry, 132),
        (Reply::http(200, "<html>hello</html>"), Kind::Unreadable, Class::Retry, 132),
        (Reply::http(200, "{\"JobId\":\"dl"), Kind::Unreadable, Class::Retry, 132),
        (Reply::Bytes(cut), Kind::Broken, Class::Retry, 134),
        (Reply::Close, Kind::Broken, Class::Retry, 134),
    ] {
        let told = format!("{reply:?}");
        let error = error_of(reply).await;
        assert_eq!((error.kind(), error.class(), error.page().0), (kind, class, page), "{told}");
        assert!(error.in_full().starts_with(&format!("[E{page}] ")), "{}", error.in_full());
        assert!(!error.in_full().contains("hunter2"), "{}", error.in_full());
    }
}

#[tokio::test]
async fn the_stop_of_an_ended_job_is_no_failure_but_a_reason_to_look() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(vec![
        Reply::http(400, r#"{"Code":"BadRequest","Message":"the job has ended"}"#),
        Reply::http(403, r#"{"Code":"Forbidden.RAM","Message":"m"}"#),
    ])
    .await;
    let client = dlc(&server.url, folder.path());
    let answer = client.stop_job(&id(), now()).await.expect("not a failure");
    assert!(matches!(&answer.value, Stop::NothingToStop { why } if why.contains("has ended")));
    assert_eq!(answer.date, Some(now()));
    let denied = client.stop_job(&id(), now()).await.expect_err("a failure");
    assert_eq!(denied.missing_action().as_deref(), Some("pai:StopJob"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_19_an_unknown_key_is_a_404_and_no_job_is_gone_by_it() {
    let error = error_of(Reply::http(404, r#"{"Code":"InvalidAccessKeyId.NotFound"}"#)).await;
    assert_eq!((error.kind(), error.class()), (Kind::KeyUnknown, Class::Operator));
    assert!(!error.says_no_such_job());

    let world = Watched::start().await;
    world.until_phase("RUNNING").await;
    let body = r#"{"Code":"InvalidAccessKeyId.NotFound","Message":"no such key"}"#;
    world.faults(&json!([{ "call": "*", "status": 404, "body": body }])).await;
    until("the fault is shown", || async { world.fault().await.is_some() }).await;
    let fault = world.fault().await.expect("a fault");
    for part in ["[E124]", "ListJobs", "no such key", "give an AccessKey"] {
        assert!(fault.contains(part), "{fault}");
    }
    // Many passes later nothing has come of it.
    tokio::time::sleep(Duration::from_secs(2)).await;
    world.faults(&json!([])).await;
    until("it is over", || async { world.fault().await.is_none() }).await;
    world.until_phase("RUNNING").await;
    assert_eq!((world.count("create"), world.count("stop_asked")), (1, 0));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_20_throttling_comes_with_several_statuses_and_names_its_wait_in_milliseconds() {
    for status in [400, 429, 503] {
        for code in ["Throttling", "Throttling.User", "Throttling.Api"] {
            let body = format!("{{\"Code\":\"{code}\",\"Message\":\"m\"}}");
            let reply =
                || Reply::with(status, "x-acs-retry-after: 2500\r\nRetry-After: 9\r\n", &body);
            let error = error_of(reply()).await;
            assert_eq!((error.kind(), error.class()), (Kind::Throttled, Class::Wait), "{error}");
            assert_eq!(error.retry_after(), Some(Duration::from_millis(2500)), "{error}");
            let outcome = creation(reply()).await;
            assert!(
                matches!(outcome, SendOutcome::Refused { passing: true, .. }),
                "{status} {code}: {outcome:?}"
            );
        }
    }

    // A throttled supervisor says so, slows down, and goes on by itself.
    let world = Watched::start().await;
    world.until_phase("RUNNING").await;
    let body = r#"{"Code":"Throttling.User","Message":"flow control"}"#;
    world.faults(&json!([{ "call": "*", "status": 503, "body": body, "times": 3 }])).await;
    until("the fault is shown", || async { world.fault().await.is_some() }).await;
    let fault = world.fault().await.expect("a fault");
    assert!(fault.contains("[E120]") && fault.contains("flow control"), "{fault}");
    until("it is over", || async { world.fault().await.is_none() }).await;
    assert_eq!((world.count("create"), world.count("stop_asked")), (1, 0));
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trap_21_after_html_a_reset_or_a_timeout_the_outcome_is_open_and_the_job_is_found() {
    for reply in [
        Reply::http(500, "<html>oops</html>"),
        Reply::http(502, "<html>bad gateway</html>"),
        Reply::http(504, ""),
        Reply::Close,
        Reply::Silence,
    ] {
        let told = format!("{reply:?}");
        let outcome = creation(reply).await;
        assert!(matches!(outcome, SendOutcome::Unknown { .. }), "{told}: {outcome:?}");
    }
    // The job was made, and the answer is a page of a proxy.
    let world = Watched::start().await;
    let html = "<html><h1>502 Bad Gateway</h1></html>";
    let rule = json!([{ "call": "CreateJob", "status": 502, "body": html, "answer_after": true }]);
    world.faults(&rule).await;
    world.until_phase("RUNNING").await;
    assert_eq!(world.count("create"), 1);
    world.end().await;
}

#[tokio::test]
async fn scenario_55_trap_22_the_date_of_a_refusal_corrects_the_clock() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start(vec![
        Reply::http(400, r#"{"Code":"InvalidTimeStamp.Expired","Message":"expired"}"#),
        Reply::http(200, r#"{"Jobs":[],"TotalCount":0}"#),
    ])
    .await;
    let client = dlc(&server.url, folder.path());
    // The stand-in's time is one that no machine has now: this one is off by far.
    let clock = Clock::new();
    let filter = ListFilter { display_name: None, start: now() };
    let error = client.list_jobs(&filter, clock.now().wall).await.expect_err("refused");
    assert_eq!((error.kind(), error.class()), (Kind::Clock, Class::Retry));
    assert!(error.in_full().contains("[E122]") && error.in_full().contains("clock"));
    clock.heard(error.date().expect("a date"));
    client.list_jobs(&filter, clock.now().wall).await.expect("accepted");
    let second = server.seen()[1].header("x-acs-date").map(str::to_owned).expect("a date");
    let second = WallTime::parse(&second).expect("a time");
    assert!(second.since(now()).max(now().since(second)) < Duration::from_mins(1), "{second}");
    // A CreateJob that was refused for its time was not done, and is made again.
    let refused = r#"{"Code":"InvalidTimeStamp.Expired","Message":"expired"}"#;
    let outcome = creation(Reply::http(400, refused)).await;
    assert!(matches!(outcome, SendOutcome::Refused { passing: true, .. }), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scenario_56_a_missing_permission_is_named_at_the_target_and_ends_when_it_is_granted() {
    let world = Watched::start().await;
    world.until_phase("RUNNING").await;
    let denied = json!({"Code": "Forbidden.RAM", "Message": "not authorized",
        "AccessDeniedDetail": {"AuthAction": "pai:StopJob"}});
    let rule = json!([{ "call": "StopJob", "status": 403, "body": denied.to_string() }]);
    world.faults(&rule).await;
    let (reply, answer) = oneshot::channel();
    let act = Request::Act { names: vec!["train".to_owned()], verb: ActVerb::Cancel, reply };
    world.door.send(act).await.expect("the driver is there");
    answer.await.expect("an answer").expect("it is done");
    until("the fault is shown", || async { world.fault().await.is_some() }).await;
    let fault = world.fault().await.expect("a fault");
    for part in ["[E126]", "StopJob", "the RAM action pai:StopJob is missing", "grant it"] {
        assert!(fault.contains(part), "{fault}");
    }
    world.faults(&json!([])).await;
    world.until_phase("CANCELLED").await;
    assert_eq!(world.fault().await, None);
    assert_eq!(world.count("create"), 1);
    world.end().await;
}
