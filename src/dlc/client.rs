//! The client of PAI-DLC at one place: the signed call that all others go through, and the calls
//! that supervision lives by. The rest stands in files of its own, by noun.
//!
//! What always holds: keys are resolved anew for each call; the server's `Date` comes back with
//! every answer; nothing is repeated here. [`Dlc::create_job`] sorts its outcome by what is certain
//! ([`SendOutcome`]), and an error text never shows a secret.

use super::jobs::{ListQuery, Order};
use super::list::{Gathered, ListFilter, ListPass, More, PAGE_SIZE, PAGES_LIMIT};
use super::products::Product;
use super::redact::Known;
use super::wire::{self, Acknowledged, Reader, Source, Whole, WireError};
use crate::model::cloud::{CloudJob, SendOutcome};
use crate::model::ids::{CloudId, Owner};
use crate::model::secret::Secret;
use crate::model::spec::Place;
use crate::model::time::WallTime;
use crate::openapi::client::{Client, ClientConfig, ClientError, Lane, Limits, PlainHttp};
use crate::openapi::credentials::{Credentials, CredentialsError, Keychain};
use crate::openapi::error::{CallError, MESSAGE_LIMIT, Told, whole};
use crate::openapi::kind::Kind;
use crate::openapi::request::{Method, Request, Stamp, path};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// The API's version.
pub const VERSION: &str = "2020-12-03";
/// Bytes of a CreateJob body that DLC takes, what it adds itself included.
pub const BODY_LIMIT: usize = 65_536;

/// PAI-DLC at one place, for one owner. Clones share connections.
#[derive(Debug, Clone)]
pub struct Dlc {
    client: Client,
    prices: Client,
    datasets: Client,
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
    pub(super) fn new(value: T, told: &Told) -> Self {
        Self { value, date: told.date, retry_after: told.retry_after }
    }
}

/// How DLC took a StopJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// It is going to stop the job.
    Asked,
    /// `BadRequest`, its answer for a job that has ended: look again.
    NothingToStop {
        /// Its words.
        why: String,
    },
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
        let beside = |other: Product| client.beside(&other.endpoint(place), other.version());
        Ok(Self {
            prices: beside(Product::PaiStudio)?,
            datasets: beside(Product::AiWorkSpace)?,
            client,
            place: place.clone(),
            owner,
            keychain: keychain.clone(),
        })
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
        let body = Value::Object(body);
        let mut quotable = Known::default();
        quotable.learn(&body, &secrets.keys().cloned().collect());
        let body = body.to_string().into_bytes();
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
                Answer::new(outcome(&error, &quotable), &told)
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
        let answer = self.call(Ask::get("GetJob", &segments, Vec::new()), now).await?;
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
        self.list_jobs_in_turn(filter, || std::future::ready((now, ()))).await.0
    }

    /// The same; `turn` is waited for before each page, and gives the time that is signed and what
    /// is held until the page is there. What was held for the last page comes back with the pass.
    pub async fn list_jobs_in_turn<T, F>(
        &self,
        filter: &ListFilter,
        turn: impl Fn() -> F,
    ) -> (Result<Answer<ListPass>, ApiError>, T)
    where
        F: Future<Output = (WallTime, T)>,
    {
        let mut held = turn().await;
        let pass = self.pages(filter, turn, &mut held).await;
        (pass, held.1)
    }

    async fn pages<T, F>(
        &self,
        filter: &ListFilter,
        turn: impl Fn() -> F,
        held: &mut (WallTime, T),
    ) -> Result<Answer<ListPass>, ApiError>
    where
        F: Future<Output = (WallTime, T)>,
    {
        let now = held.0;
        let keys = self.keys("ListJobs", now).await?;
        let mut pass = Gathered::default();
        let mut told = Told::default();
        for number in 1..=PAGES_LIMIT {
            let query = self.list_query(filter, number);
            let ask = Ask::get("ListJobs", &["api", "v1", "jobs"], query);
            let answer = self.send(ask, &keys, held.0).await?;
            let page = wire::page(&answer.body)
                .map_err(|source| ApiError::Wire { source, date: answer.told.date })?;
            told = answer.told;
            if pass.take(page) == More::No || number == PAGES_LIMIT {
                break;
            }
            *held = turn().await;
        }
        let caller = crate::openapi::signature::sha256_hex(keys.key_id.expose().as_bytes());
        Ok(Answer::new(pass.finish(caller), &told))
    }

    fn list_query(&self, filter: &ListFilter, page: u64) -> Pairs {
        let name = filter.display_name.clone().unwrap_or_else(|| format!("sk{}", self.owner));
        let query = ListQuery {
            display_name: Some(name),
            order: Some(Order::Ascending),
            page: Some(page),
            page_size: Some(PAGE_SIZE),
            sort_by: Some("GmtCreateTime".to_owned()),
            start: Some(filter.start),
            ..ListQuery::default()
        };
        query.pairs(&self.place.workspace)
    }

    /// Asks DLC to stop a job. Having asked is not an end, and neither is being told that there is
    /// nothing to stop.
    pub async fn stop_job(&self, id: &CloudId, now: WallTime) -> Result<Answer<Stop>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str(), "stop"];
        let ask = Ask::post("StopJob", &segments);
        match self.acknowledged(ask, id, now).await {
            Ok(answer) => Ok(Answer {
                value: Stop::Asked,
                date: answer.date,
                retry_after: answer.retry_after,
            }),
            Err(ApiError::Call(CallError::Refused(no))) if no.code.starts_with("BadRequest") => {
                Ok(Answer::new(Stop::NothingToStop { why: no.to_string() }, &no.told))
            }
            Err(error) => Err(error),
        }
    }

    /// The place that is asked.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    async fn keys(&self, action: &'static str, now: WallTime) -> Result<Credentials, ApiError> {
        let held = self.keychain.keys(&self.place.credentials, now).await;
        held.map(|held| held.keys).map_err(|source| ApiError::Credentials { action, source })
    }

    /// Sends `ask` and reads the answer, all of which is kept.
    pub(super) async fn whole<T>(
        &self,
        ask: Ask<'_>,
        reader: Reader<T>,
        now: WallTime,
    ) -> Result<Answer<Whole<T>>, ApiError> {
        let action = ask.action;
        let answer = self.call(ask, now).await?;
        let whole = Whole::decode(action, &answer.body, reader)
            .map_err(|source| ApiError::Wire { source, date: answer.told.date })?;
        Ok(Answer::new(whole, &answer.told))
    }

    /// The same where the answer is that the call on job `id` was taken.
    pub(super) async fn acknowledged(
        &self,
        ask: Ask<'_>,
        id: &CloudId,
        now: WallTime,
    ) -> Result<Answer<Whole<Acknowledged>>, ApiError> {
        let what = ask.action;
        let answer = self.whole(ask, wire::acknowledged, now).await?;
        match &answer.value.read.id {
            Some(other) if other != id => {
                let found = format!("{other}, but {id} was asked for");
                let source = WireError::Field { what, field: "JobId", found };
                Err(ApiError::Wire { source, date: answer.date })
            }
            Some(_) | None => Ok(answer),
        }
    }

    pub(super) async fn call(
        &self,
        ask: Ask<'_>,
        now: WallTime,
    ) -> Result<crate::openapi::client::Answer, ApiError> {
        let keys = self.keys(ask.action, now).await?;
        self.send(ask, &keys, now).await
    }

    async fn send(
        &self,
        ask: Ask<'_>,
        keys: &Credentials,
        now: WallTime,
    ) -> Result<crate::openapi::client::Answer, ApiError> {
        let Ask { product, action, method, segments, query, body } = ask;
        let stamp = Stamp::new(now).map_err(|source| ApiError::Nonce { action, source })?;
        let path = path(segments);
        let request = Request { action, method, path, query, body, headers: Vec::new() };
        let client = match product {
            Product::Dlc => &self.client,
            Product::PaiStudio => &self.prices,
            Product::AiWorkSpace => &self.datasets,
        };
        Ok(client.send(Lane::Pooled, &request, keys, &stamp).await?)
    }
}

/// One call, before keys and stamp.
#[derive(Debug)]
pub(super) struct Ask<'a> {
    pub(super) product: Product,
    pub(super) action: &'static str,
    pub(super) method: Method,
    /// The path, by its plain segments.
    pub(super) segments: &'a [&'a str],
    pub(super) query: Pairs,
    /// JSON text.
    pub(super) body: Option<Vec<u8>>,
}

/// A query, as plain names and values.
pub(super) type Pairs = Vec<(String, String)>;

impl<'a> Ask<'a> {
    /// A look at something of DLC.
    pub(super) fn get(action: &'static str, segments: &'a [&'a str], query: Pairs) -> Self {
        Self { product: Product::Dlc, action, method: Method::Get, segments, query, body: None }
    }

    /// An act on something of DLC.
    pub(super) fn post(action: &'static str, segments: &'a [&'a str]) -> Self {
        Self { method: Method::Post, ..Self::get(action, segments, Vec::new()) }
    }
}

/// What a failed CreateJob proves.
fn outcome(error: &CallError, secrets: &Known) -> SendOutcome {
    // A refused parameter may be quoted, and the body has secrets. The quotation may be cut.
    let safe = |text: &str| secrets.scrub_cut(text, MESSAGE_LIMIT);
    match error {
        CallError::Unsendable { .. } | CallError::NotSent { .. } => {
            SendOutcome::NotSent { why: whole(error) }
        }
        // These very bytes came before: whoever sent them may have made the job.
        CallError::Refused(refusal) if Kind::of_code(&refusal.code) == Kind::NonceUsed => {
            SendOutcome::Unknown { why: safe(&whole(error)) }
        }
        CallError::Refused(refusal) | CallError::Throttled(refusal) => SendOutcome::Refused {
            code: refusal.code.clone(),
            message: safe(&refusal.message) + &super::fault::missing_in_words(error),
            passing: Kind::of_code(&refusal.code).is_passing(),
        },
        CallError::Broken { .. } | CallError::Unclear(_) => {
            SendOutcome::Unknown { why: safe(&whole(error)) }
        }
    }
}

fn not_sent(why: String) -> Answer<SendOutcome> {
    Answer::new(SendOutcome::NotSent { why }, &Told::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_into_passing_and_lasting() {
        for code in ["Throttling.User", "InvalidTimeStamp.Expired", "NoStock", "QuotaExceeded"] {
            assert!(Kind::of_code(code).is_passing(), "{code}");
        }
        for code in ["InvalidParameter.Image", "Forbidden.RAM", "InvalidAccessKeyId.NotFound"] {
            assert!(!Kind::of_code(code).is_passing(), "{code}");
        }
    }
}
