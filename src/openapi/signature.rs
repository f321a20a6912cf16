//! The gateway's request signature, ACS3-HMAC-SHA256: one text from the parts of a request, and
//! the HMAC of its hash.
//!
//! Client and emulator share this file, so both sides of the wire agree or neither does. Pure:
//! no clock, no randomness, no IO. A secret goes in and only its HMAC comes out.

use crate::model::ids::hex;
use crate::model::secret::Secret;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The scheme's name, as it stands in `Authorization` and in the text that is signed.
pub const ALGORITHM: &str = "ACS3-HMAC-SHA256";

/// SHA-256 of no bytes: the payload hash of a request without a body.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The parts of a request that ACS3-HMAC-SHA256 covers.
#[derive(Debug, Clone, Copy)]
pub struct Signable<'a> {
    /// Upper-case HTTP method.
    pub method: &'a str,
    /// Path as sent on the wire, already percent-encoded, without the query.
    pub path: &'a str,
    /// Decoded name/value pairs of the query, in any order.
    pub query: &'a [(String, String)],
    /// Lower-case name and value: exactly the headers to be signed, in any order.
    pub headers: &'a [(String, String)],
}

/// Percent-encodes all but `A-Z a-z 0-9 - _ . ~`: the one set for path segments and query values.
pub fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

/// Lower-case hex of the SHA-256 of `bytes`.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The query as it is signed and sent: encoded pairs, sorted, joined by `&`.
pub fn canonical_query(query: &[(String, String)]) -> String {
    let mut pairs: Vec<_> = query.iter().collect();
    pairs.sort();
    let encoded: Vec<_> = pairs
        .into_iter()
        .map(|(name, value)| format!("{}={}", percent_encode(name), percent_encode(value)))
        .collect();
    encoded.join("&")
}

/// The canonical text of a request, line by line as the gateway builds it too.
pub fn canonical_request(s: &Signable<'_>, payload_sha256: &str) -> String {
    let mut sorted: Vec<_> = s.headers.iter().collect();
    sorted.sort();
    let mut headers = String::new();
    for (name, value) in &sorted {
        let _ = writeln!(headers, "{name}:{}", value.trim());
    }
    let (method, path, query) = (s.method, s.path, canonical_query(s.query));
    let signed = signed_headers(s);
    // `headers` ends in a newline of its own: an empty line stands before the names.
    format!("{method}\n{path}\n{query}\n{headers}\n{signed}\n{payload_sha256}")
}

/// The signature, as lower-case hex.
pub fn signature(s: &Signable<'_>, payload_sha256: &str, secret: &Secret) -> String {
    let digest = sha256_hex(canonical_request(s, payload_sha256).as_bytes());
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
        .expect("HMAC takes a key of any length");
    mac.update(format!("{ALGORITHM}\n{digest}").as_bytes());
    hex(&mac.finalize().into_bytes())
}

/// The whole value of the `Authorization` header.
pub fn authorization(
    s: &Signable<'_>,
    payload_sha256: &str,
    key_id: &str,
    secret: &Secret,
) -> String {
    let signature = signature(s, payload_sha256, secret);
    let signed = signed_headers(s);
    format!("{ALGORITHM} Credential={key_id},SignedHeaders={signed},Signature={signature}")
}

fn signed_headers(s: &Signable<'_>) -> String {
    let mut names: Vec<_> = s.headers.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn only_the_unreserved_letters_stay() {
        assert_eq!(percent_encode("aZ09-_.~"), "aZ09-_.~");
        assert_eq!(percent_encode("a b+c*d/é"), "a%20b%2Bc%2Ad%2F%C3%A9");
    }

    #[test]
    fn no_bytes_have_the_known_hash() {
        assert_eq!(sha256_hex(b""), EMPTY_SHA256);
    }

    #[test]
    fn the_canonical_text_is_sorted_and_has_its_empty_line() {
        let signable = Signable {
            method: "GET",
            path: "/api/v1/jobs",
            query: &[pair("b", "2 3"), pair("a", "")],
            headers: &[pair("x-acs-date", " d "), pair("host", "h:1")],
        };
        assert_eq!(
            canonical_request(&signable, "P"),
            "GET\n/api/v1/jobs\na=&b=2%203\nhost:h:1\nx-acs-date:d\n\nhost;x-acs-date\nP"
        );
    }

    #[test]
    fn a_recorded_request_of_the_official_sdk_signs_to_the_same_header() {
        let signable = Signable {
            method: "POST",
            path: "/api/v1/jobs/dlc1a2b3c4d5e6f7g8h/stop",
            query: &[],
            headers: &[
                pair("host", "pai-dlc.cn-hangzhou.aliyuncs.com"),
                pair("x-acs-version", "2020-12-03"),
                pair("x-acs-action", "StopJob"),
                pair(
                    "user-agent",
                    "AlibabaCloud (Linux; x86_64) Python/3.11.7 Core/0.4.3 TeaDSL/1",
                ),
                pair("x-acs-date", "2026-11-30T08:10:18Z"),
                pair("x-acs-signature-nonce", "fc9efe9b4f8929360090e69ed895778f"),
                pair("accept", "application/json"),
                pair("x-acs-content-sha256", EMPTY_SHA256),
            ],
        };
        let header = authorization(&signable, EMPTY_SHA256, "testid", &Secret::new("testsecret"));
        assert_eq!(
            header,
            "ACS3-HMAC-SHA256 Credential=testid,SignedHeaders=accept;host;user-agent;\
             x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,\
             Signature=07b4385d93dd5acc53cdb7603e56c4a80bdfc165859ae474e1f0505511029def"
        );
        assert!(!header.contains("testsecret"));
    }
}
