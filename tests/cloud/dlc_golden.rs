//! The client against recorded requests of the official SDK: same method, same path, same
//! signature over the same headers; and the recorded answers decode.

use crate::server::{Reply, Server};
use serde_json::Value;
use spotkeeper::dlc::client::VERSION;
use spotkeeper::dlc::wire::{self, Source};
use spotkeeper::model::cloud::Status;
use spotkeeper::model::secret::Secret;
use spotkeeper::model::time::WallTime;
use spotkeeper::openapi::client::{Client, ClientConfig, Lane, Limits, PlainHttp};
use spotkeeper::openapi::credentials::Credentials;
use spotkeeper::openapi::request::{Method, Request, Stamp};
use std::path::{Path, PathBuf};

/// Recordings that are signed with ACS3-HMAC-SHA256.
const RECORDINGS: usize = 53;

/// Headers that the SDK words in its own way; the client is given them. All others it must build.
const GIVEN: [&str; 3] = ["host", "user-agent", "x-acs-credentials-provider"];

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dlc-golden")
}

pub(crate) fn json_files(folder: &Path) -> Vec<(String, Value)> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            (name, serde_json::from_str(&text).expect("JSON"))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Pairs of a query, decoded as a server does it: `+` is a space.
pub(crate) fn decoded(query: &str) -> Vec<(String, String)> {
    let decode = |text: &str| {
        let mut out = Vec::new();
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'+' => out.push(b' '),
                b'%' => {
                    let digits: Vec<u8> = bytes.by_ref().take(2).collect();
                    let digits = String::from_utf8(digits).expect("hex");
                    out.push(u8::from_str_radix(&digits, 16).expect("hex"));
                }
                plain => out.push(plain),
            }
        }
        String::from_utf8(out).expect("UTF-8")
    };
    let mut pairs: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect();
    pairs.sort();
    pairs
}

pub(crate) struct Recording<'a> {
    pub(crate) name: &'a str,
    pub(crate) value: &'a Value,
}

impl Recording<'_> {
    pub(crate) fn text(&self, field: &str) -> &str {
        self.value[field].as_str().expect("a text")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let headers = self.value["headers"].as_array()?;
        let named = |h: &&Value| h[0].as_str().is_some_and(|n| n.eq_ignore_ascii_case(name));
        headers.iter().find(named)?[1].as_str()
    }

    pub(crate) fn path_and_query(&self) -> (&str, &str) {
        self.text("path").split_once('?').unwrap_or((self.text("path"), ""))
    }

    fn request(&self) -> Request {
        let (path, query) = self.path_and_query();
        // The client takes action names that are part of the program.
        let action = self.header("x-acs-action").expect("an action").to_owned();
        Request {
            action: Box::leak(action.into_boxed_str()),
            method: match self.text("method") {
                "GET" => Method::Get,
                "POST" => Method::Post,
                "PUT" => Method::Put,
                "DELETE" => Method::Delete,
                other => panic!("{}: {other}", self.name),
            },
            path: path.to_owned(),
            query: decoded(query),
            body: self.value["body"].as_str().map(|body| body.as_bytes().to_vec()),
            headers: GIVEN
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), self.header(name)?.to_owned())))
                .collect(),
        }
    }

    fn stamp(&self) -> Stamp {
        let date = self.header("x-acs-date").and_then(WallTime::parse).expect("a date");
        Stamp { date, nonce: self.header("x-acs-signature-nonce").expect("a nonce").to_owned() }
    }
}

#[tokio::test]
async fn every_recorded_request_is_sent_with_the_same_signature() {
    let files = json_files(&folder());
    let recordings: Vec<_> =
        files.iter().filter(|(name, _)| !name.ends_with("roa-hmac-sha1")).collect();
    assert_eq!(recordings.len(), RECORDINGS);
    let server = Server::start(vec![Reply::http(200, "{}")]).await;
    let config = ClientConfig {
        endpoint: server.url.clone(),
        version: VERSION,
        plain_http: PlainHttp::Loopback,
        limits: Limits::default(),
    };
    let client = Client::new(&config).expect("a client");
    for (number, (name, value)) in recordings.into_iter().enumerate() {
        let recording = Recording { name, value };
        let token = recording.header("x-acs-security-token").map(Secret::new);
        let (key_id, secret) = (Secret::new("testid"), Secret::new("testsecret"));
        let keys = Credentials { key_id, secret, token };
        let lane = if number % 2 == 0 { Lane::Alone } else { Lane::Pooled };
        let (request, stamp) = (recording.request(), recording.stamp());
        client.send(lane, &request, &keys, &stamp).await.expect(name);

        let seen = server.seen().pop().expect("a request");
        let (method, path, query) = seen.target();
        let (recorded_path, recorded_query) = recording.path_and_query();
        assert_eq!((method, path), (recording.text("method"), recorded_path), "{name}");
        assert_eq!(decoded(query), decoded(recorded_query), "{name}");
        assert!(!query.contains('+'), "{name}: a space is %20 on the wire");
        assert_eq!(seen.body, recording.value["body"].as_str().unwrap_or("").as_bytes(), "{name}");
        // Covers the names and values of every signed header, the path, the query and the body.
        assert_eq!(seen.header("authorization"), recording.header("authorization"), "{name}");
        for (header, value) in &seen.headers {
            if header != "authorization" && header != "content-length" {
                assert_eq!(Some(value.as_str()), recording.header(header), "{name}: {header}");
            }
        }
        if method == "POST" {
            assert!(seen.header("content-length").is_some(), "{name}");
        }
    }
    assert_eq!(server.seen().len(), RECORDINGS);
}

#[test]
fn every_recorded_job_decodes() {
    let answers = json_files(&folder().join("responses"));
    let mut jobs = 0;
    for (name, value) in answers.iter().filter(|(name, _)| name.starts_with("get_job.")) {
        let job = wire::job(value, Source::GetJob).expect(name);
        jobs += 1;
        assert_eq!(job.id.as_str(), "dlc1a2b3c4d5e6f7g8h", "{name}");
        assert!(!matches!(job.status, Status::Other(_)), "{name}: {:?}", job.status);
        assert_eq!(Some(job.status.word()), value["Status"].as_str(), "{name}");
        assert!(job.created.is_some() && job.pod_count > 0, "{name}");
        assert_eq!(job.duration_s, value["Duration"].as_u64(), "{name}");
        assert_eq!(job.ever_ran(), value["GmtRunningTime"].as_str() > Some(""), "{name}");
    }
    assert!(jobs >= 15, "{jobs}");
}

#[test]
fn the_recorded_stories_are_told_right() {
    let answers = json_files(&folder().join("responses"));
    let job = |wanted: &str| {
        let (_, value) = answers.iter().find(|(name, _)| name == wanted).expect(wanted);
        wire::job(value, Source::GetJob).expect(wanted)
    };
    let exits = |name: &str| job(name).exits.iter().map(|e| (e.code, e.pods)).collect::<Vec<_>>();
    assert_eq!(exits("get_job.failed_user_exit1"), [(1, 1)]);
    assert_eq!(exits("get_job.failed_exit137"), [(137, 1)]);
    assert_eq!(exits("get_job.one_pod_of_eight_gone.INFERRED"), [(1, 7)]);
    assert_eq!(job("get_job.one_pod_of_eight_gone.INFERRED").pod_count, 8);
    assert_eq!(exits("get_job.succeeded"), []);
    assert_eq!(job("get_job.restarting_in_place").restarts, 1);
    assert_eq!(job("get_job.restarting_in_place").status, Status::Restarting);
    let evicted = job("get_job.failed_evicted.INFERRED");
    assert!(evicted.pods.iter().any(|pod| pod.sub_status == "Evicted"));
    assert_eq!(job("get_job.stopped_without_code.INFERRED").reason_code, "");
    assert_eq!(job("get_job.stopped_by_user").reason_code, "JobStoppedByUser");
    assert!(!job("get_job.failed_no_resources.INFERRED").ever_ran());
}

#[test]
fn recorded_lists_and_lines_decode() {
    let answers = json_files(&folder().join("responses"));
    let body = |wanted: &str| {
        let (_, value) = answers.iter().find(|(name, _)| name == wanted).expect(wanted);
        value.to_string().into_bytes()
    };
    let page = wire::page(&body("list_jobs")).expect("a page");
    assert_eq!(page.total, Some(page.rows.len() as u64));
    for row in &page.rows {
        assert!(!row.as_ref().expect("a row").whole);
    }
    assert_eq!(wire::page(&body("list_jobs.empty")).expect("a page").total, Some(0));
    let value = |name: &str| serde_json::from_slice(&body(name)).expect("JSON");
    assert_eq!(wire::pod_logs(&value("get_pod_logs")).expect("a log").len(), 2);
    assert_eq!(wire::job_events(&value("get_job_events")).expect("events").len(), 4);
}
