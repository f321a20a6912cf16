//! `s3://` and `oss://`: a bucket behind an S3 endpoint, through object_store.
//!
//! Always holds: never built without keys (object_store would then ask a metadata address that is
//! not this cloud's), virtual-hosted style (OSS refuses path style), at most 2 retries, no
//! conditional writes. Keys that object_store cannot hold (`a//b`, `..`, control characters) are
//! taken out of a listing before it reads it: one of them would fail the whole page.

use super::objects::{Depth, Object, OddKeys, Page, Read, Store, StoreError};
use super::sieve::{BELOW_LOCALHOST, ListingRefused, Sieve};
use super::store_folder::{no_answer, read_object};
use crate::model::checkpoint::Location;
use crate::model::error::Class;
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path as StorePath;
use object_store::{BackoffConfig, ClientOptions, ObjectStoreExt as _, RetryConfig};
use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Retries of one request.
const RETRIES: usize = 2;
/// How long is waited to hear that an empty place is a single object: a better text is all it gives.
const SINGLE_LIMIT: Duration = Duration::from_secs(3);
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
    /// The location as a person writes it.
    url: String,
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
        Ok(Self { place, url: location.to_string(), prefix, bucket })
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

    fn single_object(&self) -> BoxFuture<'_, Option<StoreError>> {
        async move {
            let key = self.prefix.strip_suffix('/')?;
            let path = StorePath::parse(key).ok()?;
            // Whatever else is answered, or nothing, says nothing: the listing did.
            let head = tokio::time::timeout(SINGLE_LIMIT, self.bucket.head(&path));
            let meta = head.await.ok()?.ok()?;
            // Some tools mark a folder by an empty object without a slash.
            (meta.size > 0).then(|| {
                let holder = self.url.rsplit_once('/').map_or("", |(holder, _)| holder);
                StoreError::NoFolder {
                    place: self.url.clone(),
                    what: "an object",
                    holder: format!("{holder}/"),
                }
            })
        }
        .boxed()
    }
}

fn is_about_the_object(why: &str) -> bool {
    OBJECT_CODES.iter().any(|code| why.contains(&format!("<Code>{code}</Code>")))
}

/// Whether a refusal says that these keys may not list the one folder. Keys that are over would be refused
/// everywhere.
fn is_about_the_folder(refused: &ListingRefused) -> bool {
    refused.status == 403
        && refused.text.contains("<Code>AccessDenied</Code>")
        && !refused.text.contains("expired")
}

impl S3Store {
    fn listing_error(&self, folder: &str, error: object_store::Error) -> StoreError {
        let key = format!("{}{folder}", self.prefix);
        let refused = ListingRefused::in_chain(&error);
        if !folder.is_empty() && refused.is_some_and(is_about_the_folder) {
            return StoreError::Closed {
                folder: folder.trim_end_matches('/').to_owned(),
                why:
                    "its listing is refused (403 AccessDenied): give these keys the right to list \
                      it (oss:ListObjects)"
                        .to_owned(),
            };
        }
        match refused.map(|refused| refused.status) {
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
}
