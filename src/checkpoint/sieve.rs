//! What goes between object_store and a bucket: odd keys are taken out of listings before it reads them,
//! what is no listing is no answer, and names below `localhost` are this machine.
//!
//! Always holds: an answer that is not the whole page of a listing never reads as an empty bucket.

use super::objects::OddKeys;
use futures_util::StreamExt;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use std::sync::Arc;

/// Bytes of one page of a listing (1,000 keys of at most 1,023 bytes, and their XML).
const PAGE_LIMIT_BYTES: usize = 8 * 1024 * 1024;
/// How names end that mean this machine (RFC 6761), whatever a resolver makes of them: there an S3
/// server on the desk has host names for its buckets.
pub(super) const BELOW_LOCALHOST: &str = ".localhost";
/// Characters shown of an answer that is no listing.
const BEGINNING_SHOWN: usize = 60;
/// Bytes of the words with which a listing was refused.
const REFUSAL_LIMIT_BYTES: usize = 4 * 1024;

/// Takes odd keys out of listings on their way to object_store.
#[derive(Debug, Clone)]
pub(super) struct Sieve {
    pub(super) odd: Arc<OddKeys>,
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
pub(super) struct ListingRefused {
    pub(super) status: u16,
    pub(super) text: String,
}

impl ListingRefused {
    pub(super) fn in_chain(error: &object_store::Error) -> Option<&Self> {
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
