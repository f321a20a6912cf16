//! What CreateJob's outcome proves when the other side misbehaves, and what the calls send.

use crate::server::{Reply, Seen, Server};
use serde_json::{Map, Value, json};
use spotkeeper::dlc::client::{ApiError, BODY_LIMIT, Dlc};
use spotkeeper::dlc::list::ListFilter;
use spotkeeper::model::cloud::SendOutcome;
use spotkeeper::model::error::Class;
use spotkeeper::model::ids::{CloudId, Owner};
use spotkeeper::model::secret::Secret;
use spotkeeper::model::spec::{CredentialsRef, Place};
use spotkeeper::model::time::WallTime;
use spotkeeper::openapi::client::{Limits, PlainHttp};
use spotkeeper::openapi::credentials::Keychain;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

const DATE: &str = "2026-11-30T08:10:18Z";

pub(crate) struct World {
    pub(crate) dlc: Dlc,
    keys: tempfile::NamedTempFile,
}

pub(crate) fn world(url: &str) -> World {
    world_with(url, Limits::default())
}

pub(crate) fn place(url: &str) -> (Place, tempfile::NamedTempFile) {
    // Made with mode 0600.
    let mut keys = tempfile::NamedTempFile::new().expect("a file");
    keys.write_all(
        b"access_key_id = \"keyid-1\"\naccess_key_secret = \"hunter2\"\n\
          security_token = \"sts-token\"\n",
    )
    .expect("a write");
    let place = Place {
        region: "cn-hangzhou".to_owned(),
        workspace: "12345".to_owned(),
        endpoint: url.to_owned(),
        storage: None,
        credentials: CredentialsRef::File(keys.path().to_owned()),
    };
    (place, keys)
}

fn world_with(url: &str, limits: Limits) -> World {
    let (place, keys) = place(url);
    let owner = Owner::new("k3f9qz").expect("an owner");
    let dlc = Dlc::with_limits(&place, owner, &Keychain::default(), PlainHttp::Loopback, limits)
        .expect("a client");
    World { dlc, keys }
}

pub(crate) fn now() -> WallTime {
    WallTime::parse(DATE).expect("a time")
}

fn body() -> Map<String, Value> {
    let body = json!({"DisplayName": "x", "Invented": [1], "Price": 0.011});
    body.as_object().expect("an object").clone()
}

pub(crate) fn id() -> CloudId {
    CloudId::new("dlc1").expect("an id")
}

fn short() -> Limits {
    let wait = Duration::from_millis(300);
    Limits { read: wait, total: wait, ..Limits::default() }
}

async fn create(replies: Vec<Reply>, limits: Limits) -> (SendOutcome, Vec<Seen>) {
    let server = Server::start(replies).await;
    let world = world_with(&server.url, limits);
    let answer = world.dlc.create_job(&body(), &BTreeMap::new(), now()).await;
    (answer.value, server.seen())
}

fn word(outcome: &SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::NotSent { .. } => "not sent",
        SendOutcome::Refused { passing: true, .. } => "refused, passing",
        SendOutcome::Refused { passing: false, .. } => "refused",
        SendOutcome::Unknown { .. } => "unknown",
        SendOutcome::Accepted { .. } => "accepted",
    }
}

#[tokio::test]
async fn each_answer_to_create_job_is_sorted_by_what_it_proves_and_sent_once() {
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"JobId\":\"dlc1\"".to_vec();
    let half_head = b"HTTP/1.1 200 OK\r\nContent-Le".to_vec();
    let long = format!("{{\"JobId\":\"dlc1\",\"x\":\"{}\"}}", "y".repeat(4096));
    let code = |code: &str| format!("{{\"Code\":\"{code}\",\"Message\":\"m\"}}");
    for (reply, want) in [
        (Reply::http(200, r#"{"JobId":"dlc1","RequestId":"r"}"#), "accepted"),
        (Reply::http(200, "{}"), "unknown"),
        (Reply::http(200, r#"{"JobId":""}"#), "unknown"),
        (Reply::http(200, r#"{"JobId":null}"#), "unknown"),
        (Reply::http(200, r#"{"JobId":7}"#), "unknown"),
        (Reply::http(200, r#"{"Code":"InvalidParameter"}"#), "unknown"),
        (Reply::http(200, "<html>hello</html>"), "unknown"),
        (Reply::http(200, ""), "unknown"),
        (Reply::http(200, &long), "unknown"),
        (Reply::http(204, ""), "unknown"),
        (Reply::Bytes(cut), "unknown"),
        (Reply::Bytes(half_head), "unknown"),
        (Reply::Bytes(b"SSH-2.0-x\r\n".to_vec()), "unknown"),
        (Reply::Close, "unknown"),
        (Reply::Silence, "unknown"),
        (Reply::with(302, "Location: /elsewhere\r\n", ""), "unknown"),
        (Reply::with(307, "Location: /elsewhere\r\n", ""), "unknown"),
        (Reply::http(400, &code("InvalidParameter")), "refused"),
        (Reply::http(403, &code("Forbidden.RAM")), "refused"),
        (Reply::http(404, &code("InvalidAccessKeyId.NotFound")), "refused"),
        (Reply::http(400, r#"{"code":"MissingParameter","message":"m"}"#), "refused"),
        (Reply::http(400, &code("InvalidTimeStamp.Expired")), "refused, passing"),
        (Reply::http(400, &code("OutOfStock")), "refused, passing"),
        (Reply::http(400, &code("Throttling")), "refused, passing"),
        (Reply::http(429, &code("Throttling.User")), "refused, passing"),
        (Reply::http(503, &code("Throttling.Api")), "refused, passing"),
        (Reply::http(400, &code("SignatureNonceUsed")), "unknown"),
        (Reply::http(400, &code("SignatureNonceUsed.Replayed")), "unknown"),
        (Reply::http(400, &code("InternalServerError")), "unknown"),
        (Reply::http(409, &code("ServerBusy")), "unknown"),
        (Reply::http(400, "<html>bad</html>"), "unknown"),
        (Reply::http(429, "slow down"), "unknown"),
        (Reply::http(500, "<html>oops</html>"), "unknown"),
        (Reply::http(500, &code("InternalError")), "unknown"),
        (Reply::http(502, ""), "unknown"),
        (Reply::http(503, &code("ServiceUnavailable")), "unknown"),
        (Reply::http(504, "<html>timeout</html>"), "unknown"),
    ] {
        // Were anything sent again, it would be accepted.
        let again = Reply::http(200, r#"{"JobId":"dlc2"}"#);
        let told = format!("{reply:?}");
        // Only the silent one is waited for; a busy machine may take longer than this to answer.
        let limits = match reply {
            Reply::Silence => short(),
            Reply::Bytes(_) | Reply::Kept(_) | Reply::Close => {
                Limits { body: 1024, ..Limits::default() }
            }
        };
        let (outcome, seen) = create(vec![reply, again], limits).await;
        assert_eq!(word(&outcome), want, "{told}: {outcome:?}");
        assert_eq!(seen.len(), 1, "{told}: sent more than once");
        let shown = format!("{outcome:?}");
        for secret in ["hunter2", "sts-token", "keyid-1", "127.0.0.1", "http://"] {
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

#[tokio::test]
async fn only_a_failed_connection_is_not_sent() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let world = world_with(&format!("http://{address}"), short());
    let outcome = world.dlc.create_job(&body(), &BTreeMap::new(), now()).await.value;
    assert_eq!(word(&outcome), "not sent", "{outcome:?}");

    // A listener that speaks no TLS: the handshake fails before any of the request leaves.
    let server = Server::start(vec![Reply::http(200, r#"{"JobId":"dlc1"}"#)]).await;
    let url = server.url.replace("http://", "https://");
    let (place, _keys) = place(&url);
    let owner = Owner::new("k3f9qz").expect("an owner");
    // A machine without CA files has no HTTPS client at all, and says so.
    let limits = Limits { connect: Duration::from_millis(500), ..Limits::default() };
    if let Ok(dlc) =
        Dlc::with_limits(&place, owner, &Keychain::default(), PlainHttp::Loopback, limits)
    {
        let outcome = dlc.create_job(&body(), &BTreeMap::new(), now()).await.value;
        assert_eq!(word(&outcome), "not sent", "{outcome:?}");
        let SendOutcome::NotSent { why } = outcome else { unreachable!() };
        assert!(why.contains("no connection") && !why.contains(&url), "{why}");
    }
}

#[tokio::test]
async fn every_create_job_has_a_connection_of_its_own() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n{\"JobId\":\"dlc1\"}";
    let server = Server::start(vec![Reply::Kept(answer.as_bytes().to_vec())]).await;
    let world = world(&server.url);
    for sent in 1..=3 {
        let outcome = world.dlc.create_job(&body(), &BTreeMap::new(), now()).await.value;
        assert_eq!(word(&outcome), "accepted", "{outcome:?}");
        assert_eq!(server.seen().len(), sent);
    }
}

#[tokio::test]
async fn create_job_sends_every_field_as_written_and_secrets_only_there() {
    let server = Server::start(vec![Reply::http(400, r#"{"Code":"InvalidParameter","Message":"Envs.T hf-secret, x-acs-security-token:sts-token"}"#)]).await;
    let world = world(&server.url);
    let secrets = BTreeMap::from([("T".to_owned(), Secret::new("hf-secret"))]);
    let answer = world.dlc.create_job(&body(), &secrets, now()).await;
    assert_eq!(answer.date, Some(now()));
    let SendOutcome::Refused { message, .. } = answer.value else { panic!("{answer:?}") };
    assert_eq!(message, "Envs.T ***, x-acs-security-token:***");

    let seen = server.seen().pop().expect("a request");
    assert_eq!(seen.line, "POST /api/v1/jobs HTTP/1.1");
    let text = String::from_utf8(seen.body.clone()).expect("UTF-8");
    assert_eq!(
        text,
        r#"{"DisplayName":"x","Envs":{"T":"hf-secret"},"Invented":[1],"Price":0.011}"#
    );
    assert_eq!(seen.header("x-acs-action"), Some("CreateJob"));
    assert_eq!(seen.header("x-acs-version"), Some("2020-12-03"));
    assert_eq!(seen.header("x-acs-date"), Some(DATE));
    assert_eq!(seen.header("x-acs-security-token"), Some("sts-token"));
    assert_eq!(seen.header("x-acs-signature-nonce").map(str::len), Some(32));
}

#[tokio::test]
async fn a_body_that_dlc_cannot_take_is_refused_before_it_is_sent() {
    let server = Server::start(vec![Reply::http(200, r#"{"JobId":"dlc1"}"#)]).await;
    let world = world(&server.url);
    let mut body = body();
    body.insert("UserCommand".to_owned(), json!("x".repeat(BODY_LIMIT)));
    let outcome = world.dlc.create_job(&body, &BTreeMap::new(), now()).await.value;
    assert_eq!(word(&outcome), "refused", "{outcome:?}");
    assert!(server.seen().is_empty());
}

#[tokio::test]
async fn keys_are_read_anew_and_without_keys_nothing_is_sent() {
    let server = Server::start(vec![Reply::http(200, r#"{"JobId":"dlc1"}"#)]).await;
    let world = world(&server.url);
    let file = world.keys.path().to_owned();
    world.dlc.create_job(&body(), &BTreeMap::new(), now()).await;
    std::fs::write(&file, "access_key_id = \"keyid-2\"\naccess_key_secret = \"s\"\n")
        .expect("a write");
    world.dlc.create_job(&body(), &BTreeMap::new(), now()).await;
    std::fs::remove_file(&file).expect("a file");
    let outcome = world.dlc.create_job(&body(), &BTreeMap::new(), now()).await.value;
    assert_eq!(word(&outcome), "not sent", "{outcome:?}");
    let keys: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| seen.header("authorization").expect("signed").contains("keyid-2"))
        .collect();
    assert_eq!(keys, [false, true]);
}

#[tokio::test]
async fn get_job_gives_back_the_job_that_was_asked_for_or_says_what_is_wrong() {
    let job = |id: &str| json!({"JobId": id, "Status": "Running", "Extra": 1}).to_string();
    let server = Server::start(vec![
        Reply::http(200, &job("dlc1")),
        Reply::http(200, &job("dlc2")),
        Reply::http(200, r#"{"JobId":"dlc1"}"#),
        Reply::http(404, r#"{"Code":"NotFound","Message":"m"}"#),
        Reply::http(404, r#"{"Code":"InvalidAccessKeyId.NotFound","Message":"m"}"#),
        Reply::with(429, "x-acs-retry-after: 2500\r\n", r#"{"Code":"Throttling"}"#),
    ])
    .await;
    let world = world(&server.url);
    let good = world.dlc.get_job(&id(), now()).await.expect("a job");
    assert_eq!((good.value.id, good.value.whole, good.date), (id(), true, Some(now())));
    for field in ["JobId", "Status"] {
        let error = world.dlc.get_job(&id(), now()).await.expect_err(field);
        let ApiError::Wire { source, date } = error else { panic!("{error}") };
        assert!(source.to_string().contains(field) && date == Some(now()), "{source}");
    }
    let gone = world.dlc.get_job(&id(), now()).await.expect_err("gone");
    assert!(gone.says_no_such_job() && gone.date() == Some(now()), "{gone}");
    let no_key = world.dlc.get_job(&id(), now()).await.expect_err("no key");
    assert!(!no_key.says_no_such_job(), "{no_key}");
    assert_eq!(no_key.class(), Class::Operator);
    let slow = world.dlc.get_job(&id(), now()).await.expect_err("throttled");
    assert_eq!(slow.class(), Class::Wait);
    assert_eq!(slow.retry_after(), Some(Duration::from_millis(2500)));
    assert_eq!(server.seen()[0].line, "GET /api/v1/jobs/dlc1 HTTP/1.1");
}

fn list(ids: std::ops::Range<usize>, total: usize) -> Reply {
    let rows: Vec<_> =
        ids.map(|n| json!({"JobId": format!("dlc{n}"), "Status": "Running"})).collect();
    Reply::http(200, &json!({"Jobs": rows, "TotalCount": total}).to_string())
}

#[tokio::test]
async fn scenario_76_trap_02_each_page_names_its_start_and_all_pages_are_turned() {
    let server =
        Server::start(vec![list(0..100, 230), list(99..200, 230), list(200..230, 230)]).await;
    let world = world(&server.url);
    let filter = ListFilter { display_name: None, start: now() };
    let pass = world.dlc.list_jobs(&filter, now()).await.expect("a pass");
    assert!(pass.value.complete(), "{:?}", pass.value.gap);
    assert_eq!((pass.value.jobs.len(), pass.date), (230, Some(now())));
    let queries: Vec<_> = server.seen().iter().map(|seen| seen.target().2.to_owned()).collect();
    for (number, query) in queries.iter().enumerate() {
        assert_eq!(
            *query,
            format!(
                "DisplayName=skk3f9qz&Order=asc&PageNumber={}&PageSize=100&SortBy=GmtCreateTime\
                 &StartTime=2026-11-30T08%3A10%3A18Z&WorkspaceId=12345",
                number + 1
            )
        );
    }
    assert_eq!(queries.len(), 3);
}

#[tokio::test]
async fn a_list_with_a_hole_is_not_complete_and_an_error_in_a_page_is_one() {
    let filter = ListFilter { display_name: Some("x".to_owned()), start: now() };
    for replies in [
        vec![list(0..1, 3), list(1..1, 3)],
        vec![list(0..2, 3), list(2..4, 4)],
        vec![Reply::http(200, "{}")],
        vec![Reply::http(200, r#"{"Jobs":[],"TotalCount":null}"#)],
        vec![Reply::http(200, r#"{"Jobs":[{"JobId":"a"}],"TotalCount":1}"#)],
    ] {
        let told = format!("{replies:?}");
        let server = Server::start(replies).await;
        let pass = world(&server.url).dlc.list_jobs(&filter, now()).await.expect("a pass");
        assert!(!pass.value.complete(), "{told}");
    }
    for second in [Reply::http(200, "<html>"), Reply::http(500, "{}"), Reply::Close] {
        let server = Server::start(vec![list(0..100, 150), second]).await;
        let pass = world(&server.url).dlc.list_jobs(&filter, now()).await;
        assert!(pass.is_err(), "{pass:?}");
    }
}

#[tokio::test]
async fn stop_events_and_logs_ask_for_the_right_things() {
    let server = Server::start(vec![
        Reply::http(200, r#"{"JobId":"dlc1","RequestId":"r"}"#),
        Reply::http(200, r#"{"Events":["e1","e2"]}"#),
        Reply::http(200, r#"{"Logs":["l1"]}"#),
    ])
    .await;
    let dlc = world(&server.url);
    dlc.dlc.stop_job(&id(), now()).await.expect("a stop");
    let events = dlc.dlc.get_job_events(&id(), now(), now()).await.expect("events");
    assert_eq!(events.value, ["e1", "e2"]);
    let log = dlc.dlc.get_pod_logs(&id(), "p/0", "uid", 50, now()).await.expect("a log");
    assert_eq!(log.value, ["l1"]);
    let seen = server.seen();
    let lines: Vec<_> = seen.iter().map(|seen| seen.line.as_str()).collect();
    assert_eq!(
        lines,
        [
            "POST /api/v1/jobs/dlc1/stop HTTP/1.1",
            "GET /api/v1/jobs/dlc1/events?MaxEventsNum=2000&StartTime=2026-11-30T08%3A10%3A18Z HTTP/1.1",
            "GET /api/v1/jobs/dlc1/pods/p%2F0/logs?MaxLines=50&PodUid=uid HTTP/1.1",
        ]
    );
    assert_eq!(seen[0].header("content-length"), Some("0"));
    assert_eq!(seen[0].header("content-type"), None);
}
