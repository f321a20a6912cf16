//! A request before it is signed, what makes it unique, and the headers that are signed.

use super::credentials::Credentials;
use super::signature::{EMPTY_SHA256, Signable, authorization, percent_encode, sha256_hex};
use crate::model::ids::hex;
use crate::model::time::WallTime;

/// HTTP methods of the gateway's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates, or acts.
    Post,
    /// Changes.
    Put,
    /// Removes.
    Delete,
}

impl Method {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// One call, before it is signed.
#[derive(Debug, Clone)]
pub struct Request {
    /// The API's name of the call, e.g. `GetJob`.
    pub action: &'static str,
    /// HTTP method.
    pub method: Method,
    /// Path, already percent-encoded; [`path`] builds one.
    pub path: String,
    /// Query as plain pairs.
    pub query: Vec<(String, String)>,
    /// JSON text; `None` sends no body and no `content-type`.
    pub body: Option<Vec<u8>>,
    /// Headers that stand beside, or instead of, the client's own (lower-case names). Signed too.
    pub headers: Vec<(String, String)>,
}

/// A path out of plain segments, each percent-encoded.
pub fn path(segments: &[&str]) -> String {
    segments.iter().fold(String::new(), |path, segment| path + "/" + &percent_encode(segment))
}

/// What makes a request unique: signed once, never used for a second one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// `x-acs-date`. The gateway refuses one that is 15 minutes off.
    pub date: WallTime,
    /// `x-acs-signature-nonce`.
    pub nonce: String,
}

impl Stamp {
    /// A stamp of this moment with a fresh nonce of 128 random bits.
    pub fn new(now: WallTime) -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self { date: now, nonce: hex(&bytes) })
    }
}

/// All headers of `request` but the length, `authorization` last. Every one before it is signed.
pub(super) fn signed_headers(
    request: &Request,
    host: &str,
    version: &str,
    keys: &Credentials,
    stamp: &Stamp,
) -> Vec<(String, String)> {
    let hash = request.body.as_deref().map_or_else(|| EMPTY_SHA256.to_owned(), sha256_hex);
    let agent = concat!("spotkeeper/", env!("CARGO_PKG_VERSION"));
    let date = stamp.date.to_string();
    let mut headers = Vec::new();
    let mut set = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
    set("host", host);
    set("accept", "application/json");
    set("user-agent", agent);
    set("x-acs-action", request.action);
    set("x-acs-version", version);
    set("x-acs-date", &date);
    set("x-acs-signature-nonce", &stamp.nonce);
    set("x-acs-content-sha256", &hash);
    if request.body.is_some() {
        set("content-type", "application/json; charset=utf-8");
    }
    if let Some(token) = &keys.token {
        set("x-acs-accesskey-id", keys.key_id.expose());
        set("x-acs-security-token", token.expose());
    }
    headers.retain(|(name, _)| request.headers.iter().all(|(other, _)| other != name));
    headers.extend(request.headers.iter().cloned());
    let signable = Signable {
        method: request.method.word(),
        path: &request.path,
        query: &request.query,
        headers: &headers,
    };
    let value = authorization(&signable, &hash, keys.key_id.expose(), &keys.secret);
    headers.push(("authorization".to_owned(), value));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::secret::Secret;

    #[test]
    fn segments_cannot_break_out_of_their_place() {
        assert_eq!(path(&["api", "a/b c?é"]), "/api/a%2Fb%20c%3F%C3%A9");
    }

    #[test]
    fn every_nonce_is_its_own() {
        let one = Stamp::new(WallTime(0)).expect("randomness");
        let two = Stamp::new(WallTime(0)).expect("randomness");
        assert_eq!(one.nonce.len(), 32);
        assert_ne!(one, two);
    }

    #[test]
    fn temporary_keys_bring_two_headers_and_a_given_header_replaces_ours() {
        let keys = Credentials {
            key_id: Secret::new("id"),
            secret: Secret::new("s"),
            token: Some(Secret::new("t")),
        };
        let request = Request {
            action: "GetJob",
            method: Method::Get,
            path: "/x".to_owned(),
            query: Vec::new(),
            body: None,
            headers: vec![("host".to_owned(), "other".to_owned())],
        };
        let stamp = Stamp { date: WallTime(0), nonce: "n".to_owned() };
        let headers = signed_headers(&request, "h", "v", &keys, &stamp);
        let value = |name: &str| {
            let found: Vec<_> = headers.iter().filter(|(n, _)| n == name).collect();
            assert!(found.len() <= 1, "{name} twice");
            found.first().map(|(_, v)| v.as_str())
        };
        assert_eq!(value("host"), Some("other"));
        assert_eq!(value("x-acs-security-token"), Some("t"));
        assert_eq!(value("x-acs-accesskey-id"), Some("id"));
        assert_eq!(value("content-type"), None);
    }
}
