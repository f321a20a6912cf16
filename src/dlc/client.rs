//! The calls of PAI-DLC that supervision needs.
//!
//! What always holds: keys are resolved anew for each call; the server's `Date` comes back with
//! every answer; nothing is repeated here. [`Dlc::create_job`] sorts its outcome by what is certain
//! ([`SendOutcome`]), and an error text never shows a secret.

use super::list::{Gathered, ListFilter, ListPass, More, PAGE_SIZE, PAGES_LIMIT};
use super::wire::{self, Source, WireError};
use crate::model::cloud::{CloudJob, SendOutcome};
use crate::model::error::Class;
use crate::model::ids::{CloudId, Owner};
use crate::model::secret::Secret;
use crate::model::spec::Place;
use crate::model::time::WallTime;
use crate::openapi::client::{Client, ClientConfig, ClientError, Lane, Limits, PlainHttp, mask};
use crate::openapi::credentials::{Credentials, CredentialsError, Keychain};
use crate::openapi::error::{CallError, Told, whole};
use crate::openapi::request::{Method, Request, Stamp, path};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The API's version.
pub const VERSION: &str = "2020-12-03";
/// Bytes of a CreateJob body that DLC takes, what it adds itself included.
pub const BODY_LIMIT: usize = 65_536;
/// Events asked for in one call: the API's own default.
pub const EVENTS_LIMIT: u32 = 2_000;

/// PAI-DLC at one place, for one owner. Clones share connections.
#[derive(Debug, Clone)]
pub struct Dlc {
    client: Client,
    place: Place,
    owner: Owner,
    keychain: Keychain,
}

/// An answer, and what the server said about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// What was asked for.
    pub value: T,
    /// The server's `Date`.
    pub date: Option<WallTime>,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
}

impl<T> Answer<T> {
    fn new(value: T, told: &Told) -> Self {
        Self { value, date: told.date, retry_after: told.retry_after }
    }
}

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    /// There are no keys.
    #[error("{action}: no credentials")]
    Credentials {
        /// The call.
        action: &'static str,
        /// Why.
        #[source]
        source: CredentialsError,
    },
    /// There is no randomness for a nonce.
    #[error("{action}: no random bytes for a nonce")]
    Nonce {
        /// The call.
        action: &'static str,
        /// What the system said.
        #[source]
        source: getrandom::Error,
    },
    /// The gateway or the way to it.
    #[error(transparent)]
    Call(#[from] CallError),
    /// An answer came, and says nothing.
    #[error("the answer cannot be read")]
    Wire {
        /// What is wrong with it.
        #[source]
        source: WireError,
        /// The server's `Date`.
        date: Option<WallTime>,
    },
}

impl ApiError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Credentials { source, .. } => source.class(),
            Self::Nonce { .. } => Class::Retry,
            Self::Call(error) => error.class(),
            Self::Wire { source, .. } => source.class(),
        }
    }

    /// The server's `Date`, if it answered.
    pub fn date(&self) -> Option<WallTime> {
        match self {
            Self::Call(error) => error.date(),
            Self::Wire { date, .. } => *date,
            Self::Credentials { .. } | Self::Nonce { .. } => None,
        }
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Call(error) => error.retry_after(),
            Self::Credentials { .. } | Self::Nonce { .. } | Self::Wire { .. } => None,
        }
    }

    /// Whether DLC says in its own code that it knows no such job. The status alone says nothing:
    /// an unknown key is a 404 too. One such answer proves nothing either.
    pub fn says_no_such_job(&self) -> bool {
        match self {
            Self::Call(CallError::Refused(refusal)) => {
                matches!(refusal.code.as_str(), "NotFound" | "JobNotFound" | "NotFound.Job")
            }
            Self::Call(_) | Self::Credentials { .. } | Self::Nonce { .. } | Self::Wire { .. } => {
                false
            }
        }
    }
}

impl Dlc {
    /// A client for `place`, listing the jobs of `owner`, with keys from `keychain`.
    pub fn new(
        place: &Place,
        owner: Owner,
        keychain: &Keychain,
        plain_http: PlainHttp,
    ) -> Result<Self, ClientError> {
        Self::with_limits(place, owner, keychain, plain_http, Limits::default())
    }

    /// The same with other time-outs and sizes.
    pub fn with_limits(
        place: &Place,
        owner: Owner,
        keychain: &Keychain,
        plain_http: PlainHttp,
        limits: Limits,
    ) -> Result<Self, ClientError> {
        let endpoint = place.endpoint.clone();
        let client = Client::new(&ClientConfig { endpoint, version: VERSION, plain_http, limits })?;
        Ok(Self { client, place: place.clone(), owner, keychain: keychain.clone() })
    }

    /// Sends CreateJob once, with `secrets` added to the body's `Envs`. `now` becomes
    /// `x-acs-date`: from then on, and for as long as the server takes such a date, an
    /// [`SendOutcome::Unknown`] may still turn into a job.
    pub async fn create_job(
        &self,
        body: &Map<String, Value>,
        secrets: &BTreeMap<String, Secret>,
        now: WallTime,
    ) -> Answer<SendOutcome> {
        let action = "CreateJob";
        let ours = |code: &str, message: String| SendOutcome::Refused {
            code: code.to_owned(),
            message,
            passing: false,
        };
        let mut body = body.clone();
        if let Err(error) = wire::add_secret_envs(&mut body, secrets) {
            return Answer::new(ours("InvalidParameter", error.to_string()), &Told::default());
        }
        let body = Value::Object(body).to_string().into_bytes();
        if body.len() > BODY_LIMIT {
            let message = format!("a body of {} bytes; DLC takes {BODY_LIMIT}", body.len());
            return Answer::new(ours("InvalidParameter", message), &Told::default());
        }
        let keys = match self.keys(action, now).await {
            Ok(keys) => keys,
            Err(error) => return not_sent(whole(&error)),
        };
        let request = Request {
            action,
            method: Method::Post,
            path: path(&["api", "v1", "jobs"]),
            query: Vec::new(),
            body: Some(body),
            headers: Vec::new(),
        };
        let stamp = match Stamp::new(now) {
            Ok(stamp) => stamp,
            Err(source) => return not_sent(whole(&ApiError::Nonce { action, source })),
        };
        match self.client.send(Lane::Alone, &request, &keys, &stamp).await {
            Ok(answer) => {
                let found = wire::object(action, &answer.body)
                    .and_then(|value| wire::job_id(action, &value));
                let outcome = match found {
                    Ok(id) => SendOutcome::Accepted { id },
                    Err(error) => {
                        SendOutcome::Unknown { why: format!("HTTP {}, but {error}", answer.http) }
                    }
                };
                Answer::new(outcome, &answer.told)
            }
            Err(error) => {
                let told = error.refusal().map(|r| r.told.clone()).unwrap_or_default();
                Answer::new(outcome(&error, secrets), &told)
            }
        }
    }

    /// One job, whole.
    pub async fn get_job(&self, id: &CloudId, now: WallTime) -> Result<Answer<CloudJob>, ApiError> {
        let answer = self.get_job_value(id, now).await?;
        let date = answer.date;
        let bad = |source| ApiError::Wire { source, date };
        let job = wire::job(&answer.value, Source::GetJob).map_err(bad)?;
        if job.id != *id {
            let found = format!("{}, but {id} was asked for", job.id);
            return Err(bad(WireError::Field { what: "GetJob", field: "JobId", found }));
        }
        Ok(Answer { value: job, date, retry_after: answer.retry_after })
    }

    /// One job as DLC showed it, every field, known to us or not.
    pub async fn get_job_value(
        &self,
        id: &CloudId,
        now: WallTime,
    ) -> Result<Answer<Value>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str()];
        let answer = self.call("GetJob", Method::Get, &segments, Vec::new(), now).await?;
        let value = wire::object("GetJob", &answer.body)
            .map_err(|source| ApiError::Wire { source, date: answer.told.date })?;
        Ok(Answer::new(value, &answer.told))
    }

    /// Every job that `filter` means, oldest first, over all pages. An error in any page is an
    /// error of the pass.
    pub async fn list_jobs(
        &self,
        filter: &ListFilter,
        now: WallTime,
    ) -> Result<Answer<ListPass>, ApiError> {
        let keys = self.keys("ListJobs", now).await?;
        let mut pass = Gathered::default();
        let mut told = Told::default();
        for number in 1..=PAGES_LIMIT {
            let query = self.list_query(filter, number);
            let segments = ["api", "v1", "jobs"];
            let answer = self.send("ListJobs", Method::Get, &segments, query, &keys, now).await?;
            let page = wire::page(&answer.body)
                .map_err(|source| ApiError::Wire { source, date: answer.told.date })?;
            told = answer.told;
            if pass.take(page) == More::No {
                break;
            }
        }
        let caller = crate::openapi::signature::sha256_hex(keys.key_id.expose().as_bytes());
        Ok(Answer::new(pass.finish(caller), &told))
    }

    fn list_query(&self, filter: &ListFilter, page: u64) -> Vec<(String, String)> {
        let name = filter.display_name.clone().unwrap_or_else(|| format!("sk{}", self.owner));
        pairs(&[
            ("DisplayName", name),
            ("Order", "asc".to_owned()),
            ("PageNumber", page.to_string()),
            ("PageSize", PAGE_SIZE.to_string()),
            ("SortBy", "GmtCreateTime".to_owned()),
            ("StartTime", filter.start.to_string()),
            ("WorkspaceId", self.place.workspace.clone()),
        ])
    }

    /// Asks DLC to stop a job. Having asked is not an end.
    pub async fn stop_job(&self, id: &CloudId, now: WallTime) -> Result<Answer<()>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str(), "stop"];
        let answer = self.call("StopJob", Method::Post, &segments, Vec::new(), now).await?;
        Ok(Answer::new((), &answer.told))
    }

    /// The job's events since `start`, as free text.
    pub async fn get_job_events(
        &self,
        id: &CloudId,
        start: WallTime,
        now: WallTime,
    ) -> Result<Answer<Vec<String>>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str(), "events"];
        let query =
            pairs(&[("MaxEventsNum", EVENTS_LIMIT.to_string()), ("StartTime", start.to_string())]);
        let answer = self.call("GetJobEvents", Method::Get, &segments, query, now).await?;
        lines("GetJobEvents", "Events", &answer)
    }

    /// The newest `max_lines` lines of the log of `pod` (its `PodId`; `uid` reaches one that was
    /// replaced, and may be empty). As many lines as asked for may mean that
    /// older ones were cut.
    pub async fn get_pod_logs(
        &self,
        id: &CloudId,
        pod: &str,
        uid: &str,
        max_lines: u32,
        now: WallTime,
    ) -> Result<Answer<Vec<String>>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str(), "pods", pod, "logs"];
        let mut query = pairs(&[("MaxLines", max_lines.to_string())]);
        if !uid.is_empty() {
            query.extend(pairs(&[("PodUid", uid.to_owned())]));
        }
        let answer = self.call("GetPodLogs", Method::Get, &segments, query, now).await?;
        lines("GetPodLogs", "Logs", &answer)
    }

    async fn keys(&self, action: &'static str, now: WallTime) -> Result<Credentials, ApiError> {
        let held = self.keychain.keys(&self.place.credentials, now).await;
        held.map(|held| held.keys).map_err(|source| ApiError::Credentials { action, source })
    }

    async fn call(
        &self,
        action: &'static str,
        method: Method,
        segments: &[&str],
        query: Vec<(String, String)>,
        now: WallTime,
    ) -> Result<crate::openapi::client::Answer, ApiError> {
        let keys = self.keys(action, now).await?;
        self.send(action, method, segments, query, &keys, now).await
    }

    async fn send(
        &self,
        action: &'static str,
        method: Method,
        segments: &[&str],
        query: Vec<(String, String)>,
        keys: &Credentials,
        now: WallTime,
    ) -> Result<crate::openapi::client::Answer, ApiError> {
        let stamp = Stamp::new(now).map_err(|source| ApiError::Nonce { action, source })?;
        let path = path(segments);
        let request = Request { action, method, path, query, body: None, headers: Vec::new() };
        Ok(self.client.send(Lane::Pooled, &request, keys, &stamp).await?)
    }
}

/// What a failed CreateJob proves.
fn outcome(error: &CallError, secrets: &BTreeMap<String, Secret>) -> SendOutcome {
    // A refused parameter may be quoted, and the body has secrets.
    let safe = |text: &str| mask(text, secrets.values().map(Some));
    match error {
        CallError::Unsendable { .. } | CallError::NotSent { .. } => {
            SendOutcome::NotSent { why: whole(error) }
        }
        // These very bytes came before: whoever sent them may have made the job.
        CallError::Refused(refusal) if refusal.code == "SignatureNonceUsed" => {
            SendOutcome::Unknown { why: safe(&whole(error)) }
        }
        CallError::Refused(refusal) | CallError::Throttled(refusal) => SendOutcome::Refused {
            code: refusal.code.clone(),
            message: safe(&refusal.message),
            passing: is_passing(&refusal.code),
        },
        CallError::Broken { .. } | CallError::Unclear(_) => {
            SendOutcome::Unknown { why: safe(&whole(error)) }
        }
    }
}

/// Beginnings of codes that no second try mends: parameters, permissions, keys.
const LASTING: [&str; 10] = [
    "Invalid",
    "Missing",
    "Forbidden",
    "NoPermission",
    "Unauthorized",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "BadRequest",
    "NotFound",
    "Unsupported",
];

/// Codes that begin like lasting ones and are mended by the right time or fresh keys.
const PASSING: [&str; 2] = ["InvalidTimeStamp", "InvalidSecurityToken"];

/// Whether trying the same again can help. A code that is not known can mean want of stock, which
/// passes: calling it lasting would hold a job for a person who has nothing to mend.
fn is_passing(code: &str) -> bool {
    let begins = |words: &[&str]| words.iter().any(|word| code.starts_with(word));
    begins(&PASSING) || !begins(&LASTING)
}

fn not_sent(why: String) -> Answer<SendOutcome> {
    Answer::new(SendOutcome::NotSent { why }, &Told::default())
}

fn pairs(list: &[(&str, String)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn lines(
    what: &'static str,
    name: &'static str,
    answer: &crate::openapi::client::Answer,
) -> Result<Answer<Vec<String>>, ApiError> {
    let lines = wire::lines(what, name, &answer.body)
        .map_err(|source| ApiError::Wire { source, date: answer.told.date })?;
    Ok(Answer::new(lines, &answer.told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_into_passing_and_lasting() {
        for code in ["Throttling.User", "InvalidTimeStamp.Expired", "NoStock", "QuotaExceeded"] {
            assert!(is_passing(code), "{code}");
        }
        for code in ["InvalidParameter.Image", "Forbidden.RAM", "InvalidAccessKeyId.NotFound"] {
            assert!(!is_passing(code), "{code}");
        }
    }
}
