//! The client of the daemon's socket.

use super::failure::Failure;
use crate::api::routes::{EVENTS_LIMIT, LOOK_LIMIT};
use crate::api::wire::{API_VERSION, ActDocument, ActRequest, ErrorDocument, JobList, codes};
use crate::model::handle::ActVerb;
use crate::model::ids::{CloudId, JobName};
use crate::model::view::{DaemonView, EventPage, JobRow};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long an answer may take: longer than the daemon gives its own loop.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of an answer.
const ANSWER_LIMIT_BYTES: usize = 256 * 1024 * 1024;
/// Names that are offered for one that no job has.
const NEAR_NAMES: usize = 3;

/// An answer, as a value and as the JSON that came.
#[derive(Debug, Clone)]
pub struct Answer<T> {
    /// For people.
    pub view: T,
    /// For `-o json`.
    pub json: Value,
}

/// One daemon, reached through its socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    http: reqwest::Client,
}

impl Client {
    /// A client of the daemon on `socket`.
    pub fn new(socket: &Path) -> Result<Self, Failure> {
        // A client knows its provider of TLS even where nothing is encrypted.
        crate::openapi::tls::choose_provider();
        let http = reqwest::Client::builder()
            .unix_socket(socket.to_owned())
            .no_proxy()
            // Nothing here is encrypted: a machine without CA files can ask its daemon, too.
            .tls_certs_only([])
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .timeout(ANSWER_LIMIT)
            .build()
            .map_err(Failure::Client)?;
        Ok(Self { socket: socket.to_owned(), http })
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// All jobs.
    pub async fn jobs(&self) -> Result<Answer<JobList>, Failure> {
        self.get(&["jobs"], &[], ANSWER_LIMIT).await
    }

    /// The daemon itself.
    pub async fn daemon(&self) -> Result<Answer<DaemonView>, Failure> {
        self.get(&["daemon"], &[], ANSWER_LIMIT).await
    }

    /// One page of events after a place in the log.
    pub async fn events(
        &self,
        job: Option<&str>,
        after: u64,
    ) -> Result<Answer<EventPage>, Failure> {
        let mut query = vec![("after", after.to_string()), ("limit", EVENTS_LIMIT.to_string())];
        query.extend(job.map(|job| ("job", job.to_owned())));
        let page = self.get(&["events"], &query, ANSWER_LIMIT).await;
        match job {
            Some(job) => self.with_near_names(job, page).await,
            None => page,
        }
    }

    /// What stands at `jobs/NAME/…`.
    pub async fn of_job<T: DeserializeOwned>(
        &self,
        name: &str,
        rest: &[&str],
        query: &[(&str, String)],
    ) -> Result<Answer<T>, Failure> {
        // What no job can be called never becomes part of an address.
        let asked = match JobName::new(name) {
            Ok(_) => {
                let path: Vec<&str> = ["jobs", name].iter().chain(rest).copied().collect();
                self.get(&path, query, LOOK_LIMIT + ANSWER_LIMIT).await
            }
            Err(_) => Err(Failure::NoSuchJob { name: name.into(), near: Vec::new() }),
        };
        self.with_near_names(name, asked).await
    }

    /// A person's act on jobs.
    pub async fn act(
        &self,
        names: Vec<String>,
        verb: ActVerb,
    ) -> Result<Answer<ActDocument>, Failure> {
        let body = serde_json::json!(ActRequest::of(names, verb)).to_string();
        let request = self
            .http
            .request(Method::POST, address(&["act"], &[]))
            .header(reqwest::header::CONTENT_TYPE, "application/json")
            .body(body);
        self.send(request).await
    }

    /// A DLC job that is to be the running attempt of a job.
    pub async fn adopt(&self, id: &CloudId, job: &str) -> Result<Answer<ActDocument>, Failure> {
        let asked = match JobName::new(job) {
            Ok(_) => {
                let path = address(&["jobs", job, "adopt"], &[("id", id.to_string())]);
                let limit = LOOK_LIMIT + ANSWER_LIMIT;
                self.send(self.http.request(Method::POST, path).timeout(limit)).await
            }
            Err(_) => Err(Failure::NoSuchJob { name: job.into(), near: Vec::new() }),
        };
        self.with_near_names(job, asked).await
    }

    /// The rows of `names`, or the failure that names the first one that no job has.
    pub async fn rows(&self, names: &[String]) -> Result<Vec<JobRow>, Failure> {
        let rows = self.jobs().await?.view.jobs;
        match names.iter().find(|name| rows.iter().all(|row| row.name != **name)) {
            Some(missing) => {
                Err(Failure::NoSuchJob { name: missing.clone(), near: near(missing, &rows) })
            }
            None => Ok(rows.into_iter().filter(|row| names.contains(&row.name)).collect()),
        }
    }

    async fn with_near_names<T>(
        &self,
        name: &str,
        asked: Result<T, Failure>,
    ) -> Result<T, Failure> {
        match asked {
            Err(failure) if failure.code() == Some(codes::NO_SUCH_JOB.to_string()) => {
                let rows = self.jobs().await?.view.jobs;
                Err(Failure::NoSuchJob { name: name.into(), near: near(name, &rows) })
            }
            asked => asked,
        }
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        limit: Duration,
    ) -> Result<Answer<T>, Failure> {
        self.send(self.http.request(Method::GET, address(path, query)).timeout(limit)).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        request: reqwest::RequestBuilder,
    ) -> Result<Answer<T>, Failure> {
        let mut response = request.send().await.map_err(|cause| self.unreachable(cause))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|cause| self.unreachable(cause))? {
            if body.len() + part.len() > ANSWER_LIMIT_BYTES {
                return Err(self.bad(format!("more than {ANSWER_LIMIT_BYTES} bytes")));
            }
            body.extend_from_slice(&part);
        }
        let json: Value = serde_json::from_slice(&body)
            .map_err(|cause| self.bad(format!("{status}, {cause}")))?;
        if json.get("apiVersion").and_then(Value::as_str) != Some(API_VERSION) {
            return Err(self.bad(format!("{status}, `apiVersion` is not {API_VERSION}")));
        }
        if !status.is_success() {
            let ErrorDocument { code, message } = serde_json::from_value(json)
                .map_err(|cause| self.bad(format!("{status}, {cause}")))?;
            return Err(Failure::Refused { code, message });
        }
        match serde_json::from_value(json.clone()) {
            Ok(view) => Ok(Answer { view, json }),
            Err(cause) => Err(self.bad(cause.to_string())),
        }
    }

    fn bad(&self, why: String) -> Failure {
        Failure::BadAnswer { socket: self.socket.clone(), why }
    }

    fn unreachable(&self, cause: reqwest::Error) -> Failure {
        // The address is made up, only the socket tells something.
        let (socket, cause) = (self.socket.clone(), cause.without_url());
        if cause.is_timeout() {
            Failure::Silent { socket, cause }
        } else if denied(&cause) {
            Failure::NoPermission { socket, cause }
        } else if cause.is_decode() || cause.is_body() {
            Failure::BadAnswer { socket, why: cause.to_string() }
        } else {
            Failure::NotReachable { socket, cause }
        }
    }
}

fn denied(error: &reqwest::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::PermissionDenied
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// The address of an API path. The host is a word that fills the place: the socket decides.
fn address(path: &[&str], query: &[(&str, String)]) -> Url {
    let mut url = Url::parse("http://spotkeeper/api/v1").expect("a fixed address is well formed");
    url.path_segments_mut().expect("an http address has a path").extend(path);
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

/// Names of jobs that somebody may have meant, the nearest first.
fn near(name: &str, rows: &[JobRow]) -> Vec<String> {
    let mut scored: Vec<(usize, &str)> = rows
        .iter()
        .filter_map(|row| {
            Some((crate::config::nearest::distance(name, &row.name)?, row.name.as_str()))
        })
        .collect();
    scored.sort_unstable();
    scored.dedup();
    scored.into_iter().take(NEAR_NAMES).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_stay_inside_their_part_of_the_address() {
        let url = address(&["jobs", "a b/c?d"], &[("job", "x&after=9".into())]);
        assert_eq!(url.as_str(), "http://spotkeeper/api/v1/jobs/a%20b%2Fc%3Fd?job=x%26after%3D9");
    }
}
