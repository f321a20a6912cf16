//! A small signed client, and an emulator of its own for each test.

use serde_json::{Value, json};
use spotkeeper::emulator::gateway::{AccessKey, parse_query};
use spotkeeper::emulator::{AsRoot, Options, Running, serve};
use spotkeeper::model::secret::Secret;
use spotkeeper::openapi::signature::{Signable, authorization, sha256_hex};
use spotkeeper::service::clock::Clock;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

static NONCE: AtomicU64 = AtomicU64::new(1);

pub(crate) fn key() -> AccessKey {
    AccessKey { id: "id".into(), secret: Secret::new("secret"), token: None }
}

/// Status, body (JSON or text) and `Date`.
pub(crate) type Answer = (u16, Value, Option<String>);

pub(crate) fn client() -> reqwest::Client {
    spotkeeper::openapi::tls::choose_provider();
    reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .timeout(Duration::from_mins(1))
        .build()
        .expect("a client")
}

/// Sends one signed call of PAI-DLC; the error is a connection that ended without an answer.
pub(crate) async fn send(
    http: &reqwest::Client,
    address: SocketAddr,
    action: &str,
    method: &str,
    target: &str,
    body: &str,
) -> Result<Answer, reqwest::Error> {
    send_as("2020-12-03", http, address, action, method, target, body).await
}

/// Sends one signed call of the product that has this version.
pub(crate) async fn send_as(
    version: &str,
    http: &reqwest::Client,
    address: SocketAddr,
    action: &str,
    method: &str,
    target: &str,
    body: &str,
) -> Result<Answer, reqwest::Error> {
    let request = signed(version, http, address, action, method, target, body);
    let response = request.send().await?;
    let date = response.headers().get("date").map(|v| v.to_str().expect("text").to_owned());
    let status = response.status().as_u16();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text)), date))
}

/// One signed call, ready to be sent.
pub(crate) fn signed(
    version: &str,
    http: &reqwest::Client,
    address: SocketAddr,
    action: &str,
    method: &str,
    target: &str,
    body: &str,
) -> reqwest::RequestBuilder {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let payload = sha256_hex(body.as_bytes());
    let nonce = NONCE.fetch_add(1, Ordering::SeqCst);
    let headers: Vec<(String, String)> = [
        ("host", address.to_string()),
        ("x-acs-action", action.to_owned()),
        ("x-acs-version", version.to_owned()),
        ("x-acs-date", Clock::new().now().wall.to_string()),
        ("x-acs-signature-nonce", format!("n{nonce}")),
        ("x-acs-content-sha256", payload.clone()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec();
    let query = parse_query(query);
    let signable = Signable { method, path, query: &query, headers: &headers };
    let key = key();
    let header = authorization(&signable, &payload, &key.id, &key.secret);
    let method = method.parse().expect("a method");
    let url = format!("http://{address}{target}");
    let mut request = http.request(method, url).body(body.to_owned());
    for (name, value) in &headers {
        request = request.header(name, value);
    }
    request.header("authorization", header)
}

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) running: Running,
    pub(crate) http: reqwest::Client,
}

impl World {
    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        Self::on(tempfile::tempdir().expect("a folder"), change).await
    }

    pub(crate) async fn on(folder: TempDir, change: impl FnOnce(&mut Options)) -> Self {
        let mut options = Options::new(folder.path().to_owned(), key());
        options.as_root = AsRoot::Allowed;
        change(&mut options);
        let running = serve(options).await.expect("the emulator starts");
        Self { folder, running, http: client() }
    }

    pub(crate) async fn send(
        &self,
        action: &str,
        method: &str,
        target: &str,
        body: &str,
    ) -> Result<Answer, reqwest::Error> {
        send(&self.http, self.running.address, action, method, target, body).await
    }

    pub(crate) async fn call(
        &self,
        action: &str,
        method: &str,
        target: &str,
        body: &str,
    ) -> (u16, Value) {
        let (status, body, date) = self.send(action, method, target, body).await.expect("answered");
        assert!(date.is_some_and(|date| date.ends_with(" GMT")), "every answer has a Date");
        (status, body)
    }

    pub(crate) async fn create(&self, body: &Value) -> String {
        let (status, answer) =
            self.call("CreateJob", "POST", "/api/v1/jobs", &body.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        answer["JobId"].as_str().expect("an id").to_owned()
    }

    pub(crate) async fn get(&self, id: &str) -> Value {
        let (status, job) = self.call("GetJob", "GET", &format!("/api/v1/jobs/{id}"), "").await;
        assert_eq!(status, 200, "{job}");
        job
    }

    pub(crate) async fn stop(&self, id: &str) -> (u16, Value) {
        self.call("StopJob", "POST", &format!("/api/v1/jobs/{id}/stop"), "").await
    }

    /// Looks until the job has this status.
    pub(crate) async fn until(&self, id: &str, status: &str) -> Value {
        loop {
            let job = self.get(id).await;
            if job["Status"] == status {
                return job;
            }
            let ended = ["Succeeded", "Failed", "Stopped"].iter().any(|end| job["Status"] == *end);
            assert!(!ended, "{status} was expected: {job}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let url = format!("{}{path}", self.running.url());
        let method = method.parse().expect("a method");
        let response =
            self.http.request(method, url).body(body.to_string()).send().await.expect("answered");
        (response.status().as_u16(), response.text().await.expect("a body"))
    }

    pub(crate) async fn list(&self, query: &str) -> Vec<String> {
        let (status, answer) =
            self.call("ListJobs", "GET", &format!("/api/v1/jobs?{query}"), "").await;
        assert_eq!(status, 200, "{answer}");
        let jobs = answer["Jobs"].as_array().expect("a list");
        jobs.iter().map(|job| job["JobId"].as_str().expect("an id").to_owned()).collect()
    }

    pub(crate) fn ledger(&self) -> Vec<Value> {
        ledger(self.folder.path())
    }

    /// Waits until a file in the pod's folder is there and holds something.
    pub(crate) async fn pod_file(&self, id: &str, pod: &str, name: &str) -> String {
        let path = self.folder.path().join("jobs").join(id).join(pod).join(name);
        loop {
            match std::fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

pub(crate) fn ledger(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("ledger.jsonl")).expect("a ledger");
    text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

pub(crate) fn story(ledger: &[Value], id: &str) -> Vec<String> {
    ledger
        .iter()
        .filter(|line| line["job_id"] == id)
        .map(|line| match line["event"].as_str().expect("an event") {
            event @ ("status" | "end") => {
                format!("{event} {}", line["status"].as_str().expect("a status"))
            }
            event => event.to_owned(),
        })
        .collect()
}

pub(crate) fn body(name: &str, command: &str) -> Value {
    json!({
        "DisplayName": name, "JobType": "PyTorchJob", "UserCommand": command, "WorkspaceId": "7",
        "JobSpecs": [{"Type": "Worker", "PodCount": 1, "Image": "i", "EcsSpec": "ecs.g7.xlarge",
            "SpotSpec": {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4}}],
    })
}
