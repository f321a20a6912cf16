//! `s3://` and `oss://`: a bucket behind an S3 endpoint, through object_store.
//!
//! Always holds: never built without keys (object_store would then ask a metadata address that is
//! not this cloud's), virtual-hosted style (OSS refuses path style), at most 2 retries, no
//! conditional writes. Keys that object_store cannot hold (`a//b`, `..`, control characters) are
//! taken out of a listing before it reads it: one of them would fail the whole page.

use super::objects::{Depth, Object, OddKeys, Page, Read, Store, StoreError};
use super::store_folder::{no_answer, read_object};
use crate::model::checkpoint::Location;
use crate::model::error::Class;
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as StorePath;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Retries of one request.
const RETRIES: usize = 2;
/// Time that one request may take, its retries included.
const RETRY_TIMEOUT: Duration = Duration::from_secs(40);
/// Time that one request may take, its body included.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an idle connection is kept: less than servers keep theirs.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Codes of a 403 that say something of the one object: no right to it, or archived. Any other (keys
/// that are over, a clock that is wrong, an account that owes money) would refuse the next one too,
/// and may be gone with the next look: nothing is known of the object then.
const OBJECT_CODES: [&str; 2] = ["AccessDenied", "InvalidObjectState"];
/// Bytes of one page of a listing (1,000 keys of at most 1,023 bytes, and their XML).
const PAGE_LIMIT_BYTES: usize = 8 * 1024 * 1024;

/// How names end that mean this machine (RFC 6761), whatever a resolver makes of them: there an S3
/// server on the desk has host names for its buckets.
const BELOW_LOCALHOST: &str = ".localhost";

/// Characters shown of an answer that is no listing.
const BEGINNING_SHOWN: usize = 60;

/// Bytes of the words with which a listing was refused.
const REFUSAL_LIMIT_BYTES: usize = 4 * 1024;

/// Keys for a bucket.
#[derive(Debug, Clone)]
pub struct StorageKeys {
    /// AccessKey id.
    pub key_id: String,
    /// AccessKey secret.
    pub secret: Secret,
    /// Security token of temporary keys.
    pub token: Option<Secret>,
}

/// How the buckets of a target are reached.
#[derive(Debug, Clone)]
pub struct StorageAccess {
    /// Base URL of the S3 side, without the bucket: `https://s3.oss-cn-hangzhou.aliyuncs.com`.
    pub endpoint: String,
    /// Region for the signature.
    pub region: String,
    /// The keys.
    pub keys: StorageKeys,
    /// Whether `http://` is allowed elsewhere than on loopback.
    pub plain_http: bool,
}

/// Why a bucket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// There are no keys, or an empty one.
    #[error("no keys for {place}: reading a bucket needs an AccessKey id and secret")]
    NoKeys {
        /// The location.
        place: String,
    },
    /// The endpoint is not a base URL.
    #[error("storage endpoint `{endpoint}` is not of the form https://HOST[:PORT]")]
    Endpoint {
        /// What was given.
        endpoint: String,
    },
    /// Plain HTTP to another machine.
    #[error(
        "storage endpoint `{endpoint}` is plain http: allowed on loopback or with plain_http = true"
    )]
    PlainHttp {
        /// What was given.
        endpoint: String,
    },
    /// The HTTP client could not be built.
    #[error("no client for {place}")]
    Client {
        /// The location.
        place: String,
        /// object_store's words.
        #[source]
        source: object_store::Error,
    },
}

impl AccessError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        Class::Operator
    }
}

/// A prefix of a bucket.
#[derive(Debug)]
pub struct S3Store {
    place: String,
    /// Empty, or ending in `/`.
    prefix: String,
    bucket: AmazonS3,
}

impl S3Store {
    /// The bucket and prefix of `location`.
    ///
    /// # Errors
    /// No keys, a wrong endpoint, or no HTTP client (a machine without CA certificates).
    pub fn open(
        location: &Location,
        access: &StorageAccess,
        odd: Arc<OddKeys>,
    ) -> Result<Self, AccessError> {
        let place = format!("the bucket of {location}");
        let keys = &access.keys;
        if keys.key_id.trim().is_empty() || keys.secret.expose().trim().is_empty() {
            return Err(AccessError::NoKeys { place });
        }
        crate::openapi::tls::choose_provider();
        let endpoint = Endpoint::read(&access.endpoint, access.plain_http)?;
        let options = ClientOptions::new()
            .with_timeout(REQUEST_TIMEOUT)
            .with_connect_timeout(CONNECT_TIMEOUT)
            .with_pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .with_allow_http(endpoint.scheme == "http");
        let retry = RetryConfig {
            max_retries: RETRIES,
            retry_timeout: RETRY_TIMEOUT,
            backoff: BackoffConfig::default(),
        };
        let builder = AmazonS3Builder::new()
            .with_bucket_name(&location.bucket)
            .with_region(&access.region)
            .with_endpoint(endpoint.for_bucket(&location.bucket))
            .with_virtual_hosted_style_request(!endpoint.is_path_style())
            .with_access_key_id(&keys.key_id)
            .with_secret_access_key(keys.secret.expose())
            .with_conditional_put(S3ConditionalPut::Disabled)
            .with_client_options(options)
            .with_retry(retry)
            .with_http_connector(Sieve { odd });
        let builder = match &keys.token {
            Some(token) => builder.with_token(token.expose()),
            None => builder,
        };
        let bucket = builder
            .build()
            .map_err(|source| AccessError::Client { place: place.clone(), source })?;
        let prefix = match location.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Ok(Self { place, prefix, bucket })
    }

    /// The bucket, for the fence.
    pub(super) fn bucket(&self) -> &AmazonS3 {
        &self.bucket
    }

    /// The key in the bucket of `key` below the prefix.
    pub(super) fn whole_key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn relative(&self, path: &StorePath) -> Option<String> {
        path.as_ref().strip_prefix(&self.prefix).map(str::to_owned)
    }
}

impl Store for S3Store {
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        depth: Depth,
        from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        async move {
            let whole = format!("{}{prefix}", self.prefix);
            let options = PaginatedListOptions {
                delimiter: match depth {
                    Depth::Direct => Some("/".into()),
                    Depth::All => None,
                },
                page_token: from,
                ..PaginatedListOptions::default()
            };
            let wanted = (!whole.is_empty()).then_some(whole.as_str());
            let answer = self.bucket.list_paginated(wanted, options).await;
            let answer = answer.map_err(|error| self.listing_error(prefix, error))?;
            let folders = answer.result.common_prefixes.iter();
            let objects = answer.result.objects.iter();
            Ok(Page {
                folders: folders.filter_map(|p| Some(format!("{}/", self.relative(p)?))).collect(),
                objects: objects
                    .filter_map(|meta| {
                        Some(Object {
                            key: self.relative(&meta.location)?,
                            size: meta.size,
                            modified: WallTime(meta.last_modified.timestamp_millis()),
                        })
                    })
                    .collect(),
                next: answer.page_token,
            })
        }
        .boxed()
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>> {
        async move {
            let whole = format!("{}{key}", self.prefix);
            let path = StorePath::parse(whole).map_err(|source| no_answer("read", key, source))?;
            match read_object(&self.bucket, key, &path, range).await? {
                Read::Refused(why) if !is_about_the_object(&why) => Err(StoreError::Refused {
                    operation: "read",
                    key: format!("{}{key}", self.prefix),
                    source: why.into(),
                }),
                read @ (Read::Bytes(_) | Read::Changed | Read::Refused(_)) => Ok(read),
            }
        }
        .boxed()
    }
}

fn is_about_the_object(why: &str) -> bool {
    OBJECT_CODES.iter().any(|code| why.contains(&format!("<Code>{code}</Code>")))
}

impl S3Store {
    fn listing_error(&self, key: &str, error: object_store::Error) -> StoreError {
        let key = format!("{}{key}", self.prefix);
        match ListingRefused::in_chain(&error).map(|refused| refused.status) {
            Some(404) => StoreError::NoSuchPlace { place: self.place.clone() },
            Some(401 | 403) => {
                StoreError::Refused { operation: "list", key, source: Box::new(error) }
            }
            Some(_) | None => no_answer("list", &key, error),
        }
    }
}

/// A base URL, in its parts.
struct Endpoint {
    scheme: &'static str,
    /// Host and perhaps port.
    host: String,
}

impl Endpoint {
    fn read(url: &str, plain_http: bool) -> Result<Self, AccessError> {
        let bad = || AccessError::Endpoint { endpoint: url.to_owned() };
        let (scheme, rest) = match url.split_once("://") {
            Some(("https", rest)) => ("https", rest),
            Some(("http", rest)) => ("http", rest),
            Some(_) | None => return Err(bad()),
        };
        let host = rest.strip_suffix('/').unwrap_or(rest);
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
        if host.is_empty() || !host.chars().all(fits) {
            return Err(bad());
        }
        let endpoint = Self { scheme, host: host.to_owned() };
        if scheme == "http" && !plain_http && !endpoint.is_loopback() {
            return Err(AccessError::PlainHttp { endpoint: url.to_owned() });
        }
        Ok(endpoint)
    }

    fn name(&self) -> &str {
        let host = &self.host;
        match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((v6, _)) => v6,
            None => host.split_once(':').map_or(host, |(name, _)| name),
        }
    }

    fn is_loopback(&self) -> bool {
        let name = self.name();
        name == "localhost"
            || name.ends_with(BELOW_LOCALHOST)
            || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    /// An address has no host names below it: there the bucket stands in the path.
    fn is_path_style(&self) -> bool {
        self.name() == "localhost" || self.name().parse::<IpAddr>().is_ok()
    }

    fn for_bucket(&self, bucket: &str) -> String {
        if self.is_path_style() || self.host.starts_with(&format!("{bucket}.")) {
            format!("{}://{}", self.scheme, self.host)
        } else {
            format!("{}://{bucket}.{}", self.scheme, self.host)
        }
    }
}

/// Takes odd keys out of listings on their way to object_store.
#[derive(Debug, Clone)]
struct Sieve {
    odd: Arc<OddKeys>,
}

impl HttpConnector for Sieve {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Sieved { inner, odd: Arc::clone(&self.odd) }))
    }
}

#[derive(Debug)]
struct Sieved {
    inner: HttpClient,
    odd: Arc<OddKeys>,
}

/// An answer of 200 that is no page of a listing.
#[derive(Debug, thiserror::Error)]
enum BadPage {
    #[error("a page of a listing is longer than {PAGE_LIMIT_BYTES} bytes, or no text")]
    TooLong,
    #[error("what was answered is no listing (a proxy's page?): it begins with `{0}`")]
    NoListing(String),
    #[error("a page of a listing says that there is more and not where it goes on")]
    NoNext,
}

impl BadPage {
    /// object_store takes any XML without rows for an empty listing: whatever is not the whole page
    /// of one would read as an empty bucket, from which a job may start at zero.
    fn in_text(page: &str) -> Option<Self> {
        let mut rest = page.trim_start_matches('\u{feff}').trim();
        while rest.starts_with("<?") || rest.starts_with("<!--") {
            rest = rest.split_once('>').map_or("", |(_, rest)| rest).trim_start();
        }
        let after = rest.strip_prefix("<ListBucketResult");
        let is_listing = after.is_some_and(|after| after.starts_with([' ', '>', '/', '\n', '\r']));
        if !is_listing || !(rest.ends_with("</ListBucketResult>") || rest.ends_with("/>")) {
            return Some(Self::NoListing(page.chars().take(BEGINNING_SHOWN).collect()));
        }
        let is_cut = text_of(rest, "IsTruncated").trim() == "true";
        (is_cut && text_of(rest, "NextContinuationToken").is_empty()).then_some(Self::NoNext)
    }
}

/// A listing that was answered with a 4xx: object_store's own error shows the status in words only.
#[derive(Debug, thiserror::Error)]
#[error("answered {status}: {text}")]
struct ListingRefused {
    status: u16,
    text: String,
}

impl ListingRefused {
    fn in_chain(error: &object_store::Error) -> Option<&Self> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref::<Self>() {
                return Some(refused);
            }
            cause = error.source();
        }
        None
    }
}

/// A body of at most `limit` bytes; `None` if it is longer or no text.
async fn text(body: HttpResponseBody, limit: usize) -> Result<Option<String>, HttpError> {
    let mut stream = body.bytes_stream();
    let mut whole = Vec::new();
    while let Some(piece) = stream.next().await {
        whole.extend_from_slice(&piece?);
        if whole.len() > limit {
            return Ok(None);
        }
    }
    Ok(String::from_utf8(whole).ok())
}

impl Sieved {
    async fn sieve(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        let is_listing = query.split('&').any(|part| part == "list-type=2");
        let response = self.inner.execute(to_loopback(request)).await?;
        let status = response.status();
        if !is_listing || status.is_server_error() || status.as_u16() == 429 {
            return Ok(response);
        }
        let (mut parts, body) = response.into_parts();
        if !status.is_success() {
            let text = text(body, REFUSAL_LIMIT_BYTES).await?.unwrap_or_default();
            let refused = ListingRefused { status: status.as_u16(), text };
            return Err(HttpError::new(HttpErrorKind::Decode, refused));
        }
        let page = text(body, PAGE_LIMIT_BYTES).await?;
        let bad = |bad| HttpError::new(HttpErrorKind::Decode, bad);
        let page = page.ok_or_else(|| bad(BadPage::TooLong))?;
        if let Some(found) = BadPage::in_text(&page) {
            return Err(bad(found));
        }
        parts.headers.remove("content-length");
        Ok(HttpResponse::from_parts(parts, without_odd_keys(&page, &self.odd).into()))
    }
}

impl HttpService for Sieved {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.sieve(request))
    }
}

/// Sends what goes to a name below `localhost` to this machine, by the address: resolvers often do
/// not know these names. The name was signed, and stays in the `Host` header.
fn to_loopback(mut request: HttpRequest) -> HttpRequest {
    let uri = request.uri();
    let is_plain = uri.scheme_str() == Some("http");
    if !is_plain || !uri.host().is_some_and(|host| host.ends_with(BELOW_LOCALHOST)) {
        return request;
    }
    let name = uri.authority().map(|authority| authority.as_str().parse());
    let port = uri.port_u16().map_or_else(String::new, |port| format!(":{port}"));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if let (Some(Ok(name)), Ok(local)) = (name, format!("http://127.0.0.1{port}{path}").parse()) {
        request.headers_mut().insert("host", name);
        *request.uri_mut() = local;
    }
    request
}

/// A page of `ListObjectsV2` less the rows with odd keys, and less directory markers (keys that end
/// in `/`), which object_store would show as files without their slash.
fn without_odd_keys(page: &str, odd: &OddKeys) -> String {
    const ROWS: [(&str, &str, &str); 2] =
        [("<Contents>", "</Contents>", "Key"), ("<CommonPrefixes>", "</CommonPrefixes>", "Prefix")];
    let mut rest = page;
    let mut kept = String::with_capacity(page.len());
    loop {
        let next = ROWS.iter().filter_map(|row| Some((rest.find(row.0)?, row))).min();
        let Some((start, (open, close, element))) = next else { break };
        let Some(length) = rest[start..].find(close) else { break };
        let end = start + length + close.len();
        let row = &rest[start..end];
        let key = text_of(row, element);
        let is_marker = *open == "<Contents>" && key.ends_with('/');
        kept.push_str(&rest[..start]);
        if !odd.note(&key) && !is_marker {
            kept.push_str(row);
        }
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

/// The text of the first `element` in `xml`, its entities resolved.
fn text_of(xml: &str, element: &str) -> String {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let inner = xml
        .find(&open)
        .map(|start| &xml[start + open.len()..])
        .and_then(|inner| inner.find(&close).map(|end| &inner[..end]))
        .unwrap_or_default();
    let mut text = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(start) = rest.find('&') {
        text.push_str(&rest[..start]);
        rest = &rest[start..];
        let end = rest.find(';').unwrap_or(0);
        let resolved = match rest.get(1..end.max(1)).unwrap_or_default() {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            number => number
                .strip_prefix('#')
                .and_then(|n| match n.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok(),
                    None => n.parse().ok(),
                })
                .and_then(char::from_u32),
        };
        let length = if resolved.is_some() { end + 1 } else { 1 };
        text.push(resolved.unwrap_or('&'));
        rest = &rest[length..];
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::location;

    fn access(endpoint: &str, key_id: &str, secret: &str) -> StorageAccess {
        StorageAccess {
            endpoint: endpoint.into(),
            region: "cn-hangzhou".into(),
            keys: StorageKeys { key_id: key_id.into(), secret: Secret::new(secret), token: None },
            plain_http: false,
        }
    }

    #[test]
    fn a_bucket_is_never_opened_without_keys() {
        let endpoint = "https://s3.oss-cn-hangzhou.aliyuncs.com";
        let place = location::parse("oss://bucket/ck").expect("a location");
        for (id, secret) in [("", ""), ("id", ""), ("", "secret"), (" ", " ")] {
            let refused = S3Store::open(&place, &access(endpoint, id, secret), Arc::default());
            assert!(matches!(refused, Err(AccessError::NoKeys { .. })), "{id:?} {secret:?}");
        }
    }

    #[test]
    fn the_bucket_stands_in_the_host_name_except_behind_an_address() {
        let url = |endpoint: &str| Endpoint::read(endpoint, false).map(|e| e.for_bucket("bucket"));
        let oss = "https://s3.oss-cn-hangzhou.aliyuncs.com";
        assert_eq!(url(oss).expect("a URL"), "https://bucket.s3.oss-cn-hangzhou.aliyuncs.com");
        let with_bucket = "https://bucket.s3.oss-cn-hangzhou.aliyuncs.com/";
        assert_eq!(
            url(with_bucket).expect("a URL"),
            "https://bucket.s3.oss-cn-hangzhou.aliyuncs.com"
        );
        assert_eq!(url("http://127.0.0.1:9000").expect("a URL"), "http://127.0.0.1:9000");
        assert_eq!(url("http://[::1]:9000").expect("a URL"), "http://[::1]:9000");
        assert_eq!(url("http://localhost:9000/").expect("a URL"), "http://localhost:9000");
        let below = "http://s3.localhost:9000";
        assert_eq!(url(below).expect("a URL"), "http://bucket.s3.localhost:9000");
        assert!(matches!(url("http://s3.localhost.example"), Err(AccessError::PlainHttp { .. })));
        assert!(matches!(url("http://10.0.0.1"), Err(AccessError::PlainHttp { .. })));
        assert!(Endpoint::read("http://10.0.0.1", true).is_ok());
        for bad in
            ["s3.oss-cn-hangzhou.aliyuncs.com", "ftp://x", "https://", "https://a/b", "https://a@b"]
        {
            assert!(matches!(url(bad), Err(AccessError::Endpoint { .. })), "{bad}");
        }
    }

    #[test]
    fn names_below_localhost_are_this_machine_whatever_a_resolver_says() {
        let sent = |url: &str| {
            let mut request = HttpRequest::new(Vec::new().into());
            *request.uri_mut() = url.parse().expect("a URI");
            let request = to_loopback(request);
            let host = request.headers().get("host").map(|name| name.to_str().expect("text"));
            (request.uri().to_string(), host.map(str::to_owned))
        };
        let name = Some("bucket.s3.localhost:9".to_owned());
        let local = "http://127.0.0.1:9/a%20b?list-type=2".to_owned();
        assert_eq!(sent("http://bucket.s3.localhost:9/a%20b?list-type=2"), (local, name));
        for url in ["https://bucket.s3.localhost/", "http://localhost:9/a", "http://x.example/"] {
            assert_eq!(sent(url), (url.to_owned(), None));
        }
    }

    #[test]
    fn odd_keys_and_markers_are_sieved_out_of_a_page() {
        let row = |key: &str| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
        let folder = |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        let good = [row("ck/a"), row("ck/a&amp;b"), row("ck/中 x"), folder("ck/iter_1/")].concat();
        let bad = [
            row("ck//a"),
            row("ck/../a"),
            row("ck/a&#x1;b"),
            row("ck/a&#10;"),
            folder("ck//"),
            row("ck/m/"),
        ]
        .concat();
        let odd = OddKeys::default();
        let page = format!("<R><Prefix>ck/</Prefix>{bad}{good}{bad}<Z>x</Z></R>");
        let kept = without_odd_keys(&page, &odd);
        assert_eq!(kept, format!("<R><Prefix>ck/</Prefix>{good}<Z>x</Z></R>"));
        let cut = "<R><Contents><Key>x</Key>";
        assert_eq!(without_odd_keys(cut, &odd), cut);
        assert_eq!(text_of("<Key>a&b;&#zz;&</Key>", "Key"), "a&b;&#zz;&");
    }
}
