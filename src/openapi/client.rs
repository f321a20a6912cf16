//! The signed HTTP client: sends a request once, and sorts what comes back.
//!
//! There are two ways out. [`Lane::Pooled`] keeps connections; [`Lane::Alone`] makes a new one for
//! each call, so that a connection that died in the pool can never leave open whether a request
//! reached the server. Neither follows redirects, asks a proxy, or repeats anything.

use super::credentials::Credentials;
use super::error::{CallError, MESSAGE_LIMIT, Parsed, Refusal, Told, cut, parse, sort};
use super::request::{Method, Request, Stamp, signed_headers};
use super::signature::canonical_query;
use crate::model::error::Class;
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;
use std::time::Duration;

/// Seconds that the server may ask to be left alone; more is taken for this.
const RETRY_AFTER_LIMIT: Duration = Duration::from_mins(10);
/// Secrets shorter than this are not searched for in messages: they would hit common words.
const MASK_FROM: usize = 4;

/// Whether `http://` endpoints are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainHttp {
    /// Only to this machine (default): keys and secrets never travel in clear.
    Loopback,
    /// Anywhere: somebody asked for it in so many words.
    Anywhere,
}

/// How long each part of a call may take, and how large an answer may be.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Name look-up, TCP and TLS together.
    pub connect: Duration,
    /// Silence between two reads.
    pub read: Duration,
    /// The whole call.
    pub total: Duration,
    /// Bytes of an answer's body.
    pub body: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(30),
            total: Duration::from_mins(1),
            body: 16 * 1024 * 1024,
        }
    }
}

/// What a client needs to know.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// Base URL: scheme, host, perhaps a port; nothing else.
    pub endpoint: String,
    /// The product's API version, e.g. `2020-12-03`.
    pub version: &'static str,
    /// Whether plain HTTP is taken.
    pub plain_http: PlainHttp,
    /// Time-outs and sizes.
    pub limits: Limits,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The endpoint is no base URL, or not one that may be used.
    #[error("endpoint `{endpoint}`: {rule}")]
    Endpoint {
        /// As it was given.
        endpoint: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The TLS side cannot start, mostly for want of CA files.
    #[error("HTTPS client: cannot start (is the package ca-certificates installed?)")]
    Start(#[source] reqwest::Error),
}

impl ClientError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Endpoint { .. } | Self::Start(_) => Class::Operator,
        }
    }
}

/// Which connection a request takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// A kept one, or a new one.
    Pooled,
    /// A new one for this call alone.
    Alone,
}

/// A 2xx answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub http: u16,
    /// What the headers said.
    pub told: Told,
    /// The body, within [`Limits::body`].
    pub body: Vec<u8>,
}

/// A client of one endpoint. Clones share connections.
#[derive(Debug, Clone)]
pub struct Client {
    base: reqwest::Url,
    host: String,
    version: &'static str,
    body_limit: usize,
    pooled: reqwest::Client,
    alone: reqwest::Client,
}

impl Client {
    /// A client for `config.endpoint`.
    pub fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        let base = bare_url(&config.endpoint, config.plain_http)
            .map_err(|rule| ClientError::Endpoint { endpoint: config.endpoint.clone(), rule })?;
        let host = host_header(&base);
        super::tls::choose_provider();
        let secure = base.scheme() == "https";
        let build = |builder: reqwest::ClientBuilder| builder.build().map_err(ClientError::Start);
        Ok(Self {
            base,
            host,
            version: config.version,
            body_limit: config.limits.body,
            pooled: build(builder(secure, &config.limits))?,
            alone: build(builder(secure, &config.limits).http1_only().pool_max_idle_per_host(0))?,
        })
    }

    /// A client of another product of the gateway, on the same connections and limits. Its scheme
    /// has to be the same too: what is ready for TLS was settled when this client was made.
    pub fn beside(&self, endpoint: &str, version: &'static str) -> Result<Self, ClientError> {
        let bad = |rule| ClientError::Endpoint { endpoint: endpoint.to_owned(), rule };
        let base = bare_url(endpoint, PlainHttp::Anywhere).map_err(bad)?;
        if base.scheme() != self.base.scheme() {
            return Err(bad("must have the scheme of the target's own endpoint"));
        }
        Ok(Self { host: host_header(&base), base, version, ..self.clone() })
    }

    /// Signs `request` with `keys` and `stamp`, sends it once, and reads the answer.
    pub async fn send(
        &self,
        lane: Lane,
        request: &Request,
        keys: &Credentials,
        stamp: &Stamp,
    ) -> Result<Answer, CallError> {
        let action = request.action;
        let built = self
            .build(request, keys, stamp)
            .map_err(|why| CallError::Unsendable { action, why })?;
        let http = match lane {
            Lane::Pooled => &self.pooled,
            Lane::Alone => &self.alone,
        };
        let hidden = [Some(&keys.key_id), Some(&keys.secret), keys.token.as_ref()];
        exchange(http, built, action, self.body_limit, hidden).await
    }

    fn build(
        &self,
        request: &Request,
        keys: &Credentials,
        stamp: &Stamp,
    ) -> Result<reqwest::Request, String> {
        let mut url = self.base.clone();
        url.set_path(&request.path);
        if url.path() != request.path {
            return Err("its path would change on the way, and with it the signature".to_owned());
        }
        if !request.query.is_empty() {
            url.set_query(Some(&canonical_query(&request.query)));
        }
        let method = match request.method {
            Method::Get => reqwest::Method::GET,
            Method::Post => reqwest::Method::POST,
            Method::Put => reqwest::Method::PUT,
            Method::Delete => reqwest::Method::DELETE,
        };
        let mut built = reqwest::Request::new(method, url);
        for (name, value) in signed_headers(request, &self.host, self.version, keys, stamp) {
            let bad = || format!("header {name} cannot be sent");
            let mut header = HeaderValue::from_str(&value).map_err(|_| bad())?;
            header.set_sensitive(true);
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
            built.headers_mut().insert(name, header);
        }
        match (&request.body, request.method) {
            (Some(body), _) => *built.body_mut() = Some(body.clone().into()),
            // Some gateways answer 411 to a POST without a length.
            (None, Method::Post | Method::Put | Method::Delete) => {
                let nothing = HeaderValue::from_static("0");
                built.headers_mut().insert(reqwest::header::CONTENT_LENGTH, nothing);
            }
            (None, Method::Get) => {}
        }
        Ok(built)
    }
}

/// Sends `request` once and sorts what comes back; no message shows any of `hidden`.
pub(super) async fn exchange<'a>(
    http: &reqwest::Client,
    request: reqwest::Request,
    action: &'static str,
    body_limit: usize,
    hidden: impl IntoIterator<Item = Option<&'a Secret>>,
) -> Result<Answer, CallError> {
    let mut response = http.execute(request).await.map_err(|error| {
        let source = error.without_url();
        // Only this kind is certain: name look-up, TCP or TLS failed, and a request is written
        // after all three.
        if source.is_connect() {
            CallError::NotSent { action, source }
        } else {
            CallError::Broken { action, source }
        }
    })?;
    let status = response.status();
    let mut told = told(response.headers());
    let mut body = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| CallError::Broken { action, source: error.without_url() })?
    {
        if body.len() + chunk.len() > body_limit {
            let message = format!("an answer of more than {body_limit} bytes");
            let http = status.as_u16();
            let (code, missing) = (String::new(), None);
            let refusal = Refusal { action, http, code, message, missing, told };
            return Err(CallError::Unclear(Box::new(refusal)));
        }
        body.extend_from_slice(&chunk);
    }
    if status.is_success() {
        return Ok(Answer { http: status.as_u16(), told, body });
    }
    let Parsed { code, message, request_id, missing } = parse(&body);
    told.request_id = told.request_id.or(request_id);
    let message = if code.is_empty() {
        format!("a body of {} bytes without a code", body.len())
    } else {
        mask(&message, hidden)
    };
    let message = cut(&message, MESSAGE_LIMIT).to_owned();
    Err(sort(Refusal { action, http: status.as_u16(), code, message, missing, told }))
}

/// `text` with every one of `secrets` covered. The gateway quotes signed headers, tokens included,
/// when a signature does not match.
pub fn mask<'a>(text: &str, secrets: impl IntoIterator<Item = Option<&'a Secret>>) -> String {
    secrets
        .into_iter()
        .flatten()
        .map(Secret::expose)
        .filter(|secret| secret.len() >= MASK_FROM)
        .fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
}

/// What `Host` says: the port stands in it if the URL has one.
fn host_header(base: &reqwest::Url) -> String {
    match (base.host_str(), base.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    }
}

fn bare_url(text: &str, plain: PlainHttp) -> Result<reqwest::Url, &'static str> {
    let url = reqwest::Url::parse(text).map_err(|_| "not a URL such as https://host")?;
    let host = url.host_str().ok_or("has no host")?;
    match url.scheme() {
        "https" => {}
        "http" if plain == PlainHttp::Anywhere || is_loopback(host) => {}
        "http" => return Err("plain http:// only to this machine, or with plain_http = true"),
        _ => return Err("must start with https://"),
    }
    let bare = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none()
        && url.path() == "/";
    if bare { Ok(url) } else { Err("must be scheme, host and perhaps a port, nothing else") }
}

pub(super) fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(super) fn builder(secure: bool, limits: &Limits) -> reqwest::ClientBuilder {
    let builder = reqwest::Client::builder()
        .connect_timeout(limits.connect)
        .read_timeout(limits.read)
        .timeout(limits.total)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .referer(false);
    if secure {
        builder.https_only(true)
    } else {
        // No TLS will be spoken: a machine without CA files can still use the stand-in.
        builder.tls_certs_only([])
    }
}

fn told(headers: &HeaderMap) -> Told {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let number = |name| text(name).and_then(|t| t.trim().parse::<u64>().ok());
    let wait = number("x-acs-retry-after")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs));
    Told {
        date: text("date").and_then(http_date),
        retry_after: wait.map(|wait| wait.min(RETRY_AFTER_LIMIT)),
        request_id: text("x-acs-request-id").map(|id| cut(id, MESSAGE_LIMIT).to_owned()),
    }
}

/// The time in an HTTP `Date` header.
fn http_date(text: &str) -> Option<WallTime> {
    let time = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text.trim()).ok()?;
    Some(WallTime(time.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_bare_and_plain_http_is_for_this_machine() {
        let ok = |text| bare_url(text, PlainHttp::Loopback).is_ok();
        assert!(ok("https://pai-dlc.cn-hangzhou.aliyuncs.com"));
        for text in
            ["http://127.0.0.1:9", "http://[::1]:9", "http://localhost", "http://127.9.9.9/"]
        {
            assert!(ok(text), "{text}");
        }
        for text in [
            "http://pai-dlc.cn-hangzhou.aliyuncs.com",
            "http://127.0.0.1.evil.example",
            "http://localhost.example",
            "https://user@host",
            "https://host/path",
            "https://host/?q=1",
            "ftp://host",
            "host",
            "",
        ] {
            assert!(!ok(text), "{text}");
        }
        assert!(bare_url("http://10.0.0.1", PlainHttp::Anywhere).is_ok());
    }

    #[test]
    fn headers_tell_the_time_and_the_wait() {
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, value: &'static str| {
            headers.insert(name, HeaderValue::from_static(value));
        };
        set("date", "Mon, 30 Nov 2026 08:10:18 GMT");
        set("x-acs-retry-after", "1500");
        set("retry-after", "7");
        let told = told(&headers);
        assert_eq!(told.date, WallTime::parse("2026-11-30T08:10:18Z"));
        assert_eq!(told.retry_after, Some(Duration::from_millis(1500)));
        assert_eq!(http_date("yesterday"), None);
    }

    #[test]
    fn a_message_that_quotes_the_token_is_masked() {
        let token = Secret::new("sts-token");
        let text = mask("canonical: x-acs-security-token:sts-token", [Some(&token), None]);
        assert_eq!(text, "canonical: x-acs-security-token:***");
    }
}
