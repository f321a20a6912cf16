//! What OSS refuses and S3 serves, as its documents and public reports say; nothing else.

use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

/// An answer instead of the S3 server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Why OSS would refuse the request, if it would. `domain` is the host name without a bucket.
pub(crate) fn refusal(request: &Parts, domain: &str) -> Option<Refusal> {
    let headers = &request.headers;
    // "Please use virtual hosted style to access."
    if !header(headers, "host").ends_with(&format!(".{domain}")) {
        return Some(Refusal {
            status: StatusCode::FORBIDDEN,
            code: "SecondLevelDomainForbidden",
            message: "a bucket is a host name here, no path",
        });
    }
    let is_write = request.method == Method::PUT || request.method == Method::POST;
    // Create-only is `x-oss-forbid-overwrite`; the S3 headers for it are not there.
    if is_write && (headers.contains_key("if-none-match") || headers.contains_key("if-match")) {
        return Some(Refusal {
            status: StatusCode::NOT_IMPLEMENTED,
            code: "NotImplemented",
            message: "a write with a condition",
        });
    }
    // What newer SDKs send by themselves: chunks, and a checksum behind them.
    let digest = header(headers, "x-amz-content-sha256");
    let is_chunked = header(headers, "content-encoding").contains("aws-chunked");
    if digest == "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        || (is_chunked && digest != "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
    {
        return Some(Refusal {
            status: StatusCode::BAD_REQUEST,
            code: "InvalidArgument",
            message: "aws-chunked does not go with this x-amz-content-sha256",
        });
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(method: &str, host: &str, headers: &[(&str, &str)]) -> Option<&'static str> {
        let mut request = http::Request::builder().method(method).uri("/k").header("host", host);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        refusal(&parts, "s3.localhost:9").map(|refusal| refusal.code)
    }

    #[test]
    fn it_refuses_what_oss_refuses_and_nothing_else() {
        let named = "bucket.s3.localhost:9";
        let digest = "x-amz-content-sha256";
        assert_eq!(refused("GET", named, &[]), None);
        assert_eq!(refused("GET", named, &[("if-none-match", "\"e\"")]), None);
        assert_eq!(refused("PUT", named, &[(digest, "UNSIGNED-PAYLOAD")]), None);
        let signed =
            [("content-encoding", "aws-chunked"), (digest, "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")];
        assert_eq!(refused("PUT", named, &signed), None);
        for host in ["s3.localhost:9", "127.0.0.1:9", "localhost:9", "evil-s3.localhost:9"] {
            assert_eq!(refused("GET", host, &[]), Some("SecondLevelDomainForbidden"), "{host}");
        }
        for condition in [("if-none-match", "*"), ("if-match", "\"e\"")] {
            assert_eq!(refused("PUT", named, &[condition]), Some("NotImplemented"));
        }
        for digest in [(digest, "STREAMING-UNSIGNED-PAYLOAD-TRAILER"), (digest, "UNSIGNED-PAYLOAD")]
        {
            let headers = [("content-encoding", "aws-chunked"), digest];
            assert_eq!(refused("PUT", named, &headers), Some("InvalidArgument"));
        }
    }
}
