//! The checks that stand before every call, as strict as the real gateway's: signature over the
//! true bytes, date near our clock, each nonce once.
//!
//! A request that fails a check has done nothing, and a nonce counts as used only once its
//! signature was found right, so that nobody without the key can use up another's nonces. No
//! server is needed to call [`Gateway::verify`].

use crate::model::secret::Secret;
use crate::model::time::WallTime;
use crate::openapi::signature::{ALGORITHM, Signable, sha256_hex, signature};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Nonces remembered at one time; when they are all fresh, further requests are throttled.
pub const NONCES_LIMIT: usize = 1_000_000;

/// A request as it came over the wire.
#[derive(Debug, Clone, Copy)]
pub struct Received<'a> {
    /// Upper-case HTTP method.
    pub method: &'a str,
    /// Path and query exactly as sent.
    pub target: &'a str,
    /// Header names (any case) and values, in the order sent.
    pub headers: &'a [(String, String)],
    /// The body's bytes.
    pub body: &'a [u8],
}

/// Why the gateway does not let a request in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Something that the signature needs is not there or cannot be read.
    #[error("The request signature does not conform to Aliyun standards: {0}.")]
    Incomplete(String),
    /// The access key is not ours.
    #[error("Specified access key is not found: {0}.")]
    UnknownKey(String),
    /// The security token is not the one that was issued.
    #[error("Specified SecurityToken is not valid.")]
    BadToken,
    /// The date is too far from our clock.
    #[error("Specified time stamp or date value is expired: {sent}, server time {now}.")]
    Expired {
        /// `x-acs-date` as sent.
        sent: String,
        /// Our clock.
        now: WallTime,
    },
    /// Signature or payload hash do not fit the request.
    #[error("Specified signature does not match our calculation: {0}.")]
    Mismatch(&'static str),
    /// The nonce came before.
    #[error("Specified signature nonce was used already: {0}.")]
    NonceUsed(String),
    /// More fresh nonces than can be remembered.
    #[error("Request was denied due to user flow control.")]
    Throttled,
}

impl Refusal {
    /// The gateway's `Code`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Incomplete(_) => "IncompleteSignature",
            Self::UnknownKey(_) => "InvalidAccessKeyId.NotFound",
            Self::BadToken => "InvalidSecurityToken.Malformed",
            Self::Expired { .. } => "InvalidTimeStamp.Expired",
            Self::Mismatch(_) => "SignatureDoesNotMatch",
            Self::NonceUsed(_) => "SignatureNonceUsed",
            Self::Throttled => "Throttling.User",
        }
    }

    /// The HTTP status that goes with the code.
    pub fn status(&self) -> u16 {
        match self {
            Self::UnknownKey(_) => 404,
            Self::Throttled => 429,
            Self::Incomplete(_)
            | Self::BadToken
            | Self::Expired { .. }
            | Self::Mismatch(_)
            | Self::NonceUsed(_) => 400,
        }
    }
}

/// The one access key that the gateway knows.
#[derive(Debug, Clone)]
pub struct AccessKey {
    /// `AccessKeyId`.
    pub id: String,
    /// `AccessKeySecret`.
    pub secret: Secret,
    /// The only security token that is let in; `None` lets any in, and none.
    pub token: Option<Secret>,
}

/// The gateway: its key, its tolerance, and the nonces it has seen.
#[derive(Debug)]
pub struct Gateway {
    key: AccessKey,
    acceptance: Duration,
    nonces: Nonces,
}

impl Gateway {
    /// A gateway that has seen nothing yet.
    pub fn new(key: AccessKey, acceptance: Duration) -> Self {
        Self { key, acceptance, nonces: Nonces::default() }
    }

    /// Lets a request in or says why not.
    ///
    /// # Errors
    /// [`Refusal`] with the gateway's code and status.
    pub fn verify(&mut self, request: &Received<'_>, now: WallTime) -> Result<(), Refusal> {
        let headers = single_headers(request.headers)?;
        let header = |name: &str| {
            headers
                .get(name)
                .copied()
                .ok_or_else(|| Refusal::Incomplete(format!("header {name} is missing")))
        };
        let authorization = Authorization::parse(header("authorization")?)?;
        let date = header("x-acs-date")?;
        let nonce = header("x-acs-signature-nonce")?;
        let payload = header("x-acs-content-sha256")?;
        for name in ["host", "x-acs-action", "x-acs-version"] {
            header(name)?;
        }
        let signed = authorization.signed(&headers)?;

        if authorization.key_id != self.key.id {
            return Err(Refusal::UnknownKey(authorization.key_id.to_owned()));
        }
        if let Some(token) = &self.key.token
            && headers.get("x-acs-security-token") != Some(&token.expose())
        {
            return Err(Refusal::BadToken);
        }
        let sent = WallTime::parse(date)
            .filter(|_| date.len() == "2026-01-02T03:04:05Z".len())
            .ok_or_else(|| Refusal::Incomplete(format!("x-acs-date `{date}` is not a time")))?;
        if now.since(sent).max(sent.since(now)) > self.acceptance {
            return Err(Refusal::Expired { sent: date.to_owned(), now });
        }
        if payload != sha256_hex(request.body) {
            return Err(Refusal::Mismatch("x-acs-content-sha256 is not the hash of the body"));
        }
        let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
        let query = parse_query(query);
        let signable = Signable { method: request.method, path, query: &query, headers: &signed };
        if signature(&signable, payload, &self.key.secret) != authorization.signature {
            return Err(Refusal::Mismatch("the HMAC of the canonical request differs"));
        }
        self.nonces.take(nonce, now, self.acceptance.saturating_mul(2))
    }
}

/// The parts of an `Authorization` header.
struct Authorization<'a> {
    key_id: &'a str,
    signed: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    fn parse(text: &'a str) -> Result<Self, Refusal> {
        let wrong = |what: &str| Refusal::Incomplete(format!("Authorization: {what}"));
        let parts = text
            .strip_prefix(ALGORITHM)
            .and_then(|rest| rest.strip_prefix(' '))
            .ok_or_else(|| wrong("another scheme than ACS3-HMAC-SHA256"))?;
        let mut found = BTreeMap::new();
        for part in parts.split(',') {
            let (name, value) =
                part.trim().split_once('=').ok_or_else(|| wrong("a part without `=`"))?;
            found.insert(name, value);
        }
        let part = |name: &str| {
            found.get(name).copied().filter(|v| !v.is_empty()).ok_or_else(|| wrong(name))
        };
        Ok(Self {
            key_id: part("Credential")?,
            signed: part("SignedHeaders")?.split(';').collect(),
            signature: part("Signature")?,
        })
    }

    /// The signed headers with their values, once it is sure that all that must be signed are.
    fn signed(&self, headers: &BTreeMap<String, &str>) -> Result<Vec<(String, String)>, Refusal> {
        let must = |name: &str| matches!(name, "host" | "content-type") || is_acs(name);
        for name in headers.keys().filter(|name| must(name)) {
            if !self.signed.contains(&name.as_str()) {
                return Err(Refusal::Incomplete(format!("header {name} is not signed")));
            }
        }
        let mut sorted = self.signed.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted != self.signed {
            return Err(Refusal::Incomplete("SignedHeaders is not sorted".to_owned()));
        }
        self.signed
            .iter()
            .map(|name| match headers.get(*name) {
                Some(value) => Ok(((*name).to_owned(), (*value).to_owned())),
                None => Err(Refusal::Incomplete(format!("signed header {name} is missing"))),
            })
            .collect()
    }
}

fn is_acs(name: &str) -> bool {
    name.starts_with("x-acs-")
}

/// Headers by lower-case name. One that matters and comes twice could be read in two ways.
fn single_headers(headers: &[(String, String)]) -> Result<BTreeMap<String, &str>, Refusal> {
    let mut found = BTreeMap::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let matters =
            is_acs(&name) || matches!(name.as_str(), "host" | "content-type" | "authorization");
        if found.insert(name.clone(), value.trim()).is_some() && matters {
            return Err(Refusal::Incomplete(format!("header {name} is there twice")));
        }
    }
    Ok(found)
}

/// The decoded pairs of a query; `+` and `%20` are both a space.
pub fn parse_query(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (percent_decode(&name.replace('+', " ")), percent_decode(&value.replace('+', " ")))
        })
        .collect()
}

/// Undoes percent-encoding; what is no valid escape stays as it is.
pub fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        let decoded = escape.and_then(|hex| Some(digit(hex[0])? * 16 + digit(hex[1])?));
        out.push(decoded.unwrap_or(bytes[at]));
        at += if decoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Nonces by the time at which they are forgotten.
#[derive(Debug, Default)]
struct Nonces {
    known: BTreeMap<String, WallTime>,
    oldest_first: VecDeque<String>,
}

impl Nonces {
    fn take(&mut self, nonce: &str, now: WallTime, keep: Duration) -> Result<(), Refusal> {
        while let Some(oldest) = self.oldest_first.front()
            && self.known.get(oldest).is_none_or(|until| *until < now)
        {
            self.known.remove(oldest);
            self.oldest_first.pop_front();
        }
        if self.known.contains_key(nonce) {
            return Err(Refusal::NonceUsed(nonce.to_owned()));
        }
        if self.known.len() >= NONCES_LIMIT {
            return Err(Refusal::Throttled);
        }
        self.known.insert(nonce.to_owned(), now.plus(keep));
        self.oldest_first.push_back(nonce.to_owned());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plus_and_percent_20_are_both_a_space() {
        let expected = vec![("a".to_owned(), "x y+é".to_owned()), ("b".to_owned(), String::new())];
        assert_eq!(parse_query("a=x+y%2B%C3%A9&b="), expected);
        assert_eq!(parse_query("a=x%20y%2B%C3%A9&b"), expected);
        assert_eq!(percent_decode("100%"), "100%");
        assert_eq!(percent_decode("%zz%4"), "%zz%4");
    }

    #[test]
    fn a_nonce_is_forgotten_only_after_its_time() {
        let mut nonces = Nonces::default();
        let keep = Duration::from_secs(10);
        assert_eq!(nonces.take("n", WallTime(0), keep), Ok(()));
        assert_eq!(nonces.take("n", WallTime(9_000), keep), Err(Refusal::NonceUsed("n".into())));
        assert_eq!(nonces.take("n", WallTime(10_001), keep), Ok(()));
    }
}
