//! How a call did not come to a good answer, sorted by what is certain about it.
//!
//! What always holds: [`CallError::NotSent`] and [`CallError::Unsendable`] mean that no byte of the
//! request left this machine; [`CallError::Refused`] and [`CallError::Throttled`] that the gateway
//! or the product said no in a code of its own; all else leaves open whether it was carried out.
//! No text here shows a URL, a header or a key. What a code means for the caller: [`super::kind`].

use super::kind::Kind;
use crate::model::time::WallTime;
use std::time::Duration;

/// Bytes of an API's message that are kept.
pub const MESSAGE_LIMIT: usize = 1024;

/// What an answer said about itself in its headers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// The server's `Date`.
    pub date: Option<WallTime>,
    /// `x-acs-retry-after` (milliseconds), else `retry-after` (seconds).
    pub retry_after: Option<Duration>,
    /// `x-acs-request-id`, or the body's.
    pub request_id: Option<String>,
}

/// A "no" with a code, or an answer that is neither yes nor no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The call.
    pub action: &'static str,
    /// HTTP status.
    pub http: u16,
    /// The API's code; empty if the body had none.
    pub code: String,
    /// The API's message, or what the body was instead; at most [`MESSAGE_LIMIT`] bytes.
    pub message: String,
    /// The RAM action that the caller lacks, where the answer names it.
    pub missing: Option<String>,
    /// The answer's headers.
    pub told: Told,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: HTTP {}", self.action, self.http)?;
        if !self.code.is_empty() {
            write!(f, " {}", self.code)?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if let Some(id) = &self.told.request_id {
            write!(f, " (request {id})")?;
        }
        Ok(())
    }
}

/// Why a call has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The request could not be put together; nothing left this machine.
    #[error("{action}: the request cannot be made: {why}")]
    Unsendable {
        /// The call.
        action: &'static str,
        /// Why.
        why: String,
    },
    /// No connection could be made; nothing of the request left this machine.
    #[error("{action}: no connection")]
    NotSent {
        /// The call.
        action: &'static str,
        /// Name look-up, TCP or TLS.
        #[source]
        source: reqwest::Error,
    },
    /// Refused with a code: not carried out.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// Too many calls: not carried out.
    #[error("throttled: {0}")]
    Throttled(Box<Refusal>),
    /// Time-out, reset, or an answer that broke off.
    #[error("{action}: the connection failed after the request was on its way")]
    Broken {
        /// The call.
        action: &'static str,
        /// What happened.
        #[source]
        source: reqwest::Error,
    },
    /// An answer that says neither yes nor no: 5xx, a redirect, a body without a code.
    #[error("no clear answer: {0}")]
    Unclear(Box<Refusal>),
}

impl CallError {
    /// The answer behind the error, if there was one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(r) | Self::Throttled(r) | Self::Unclear(r) => Some(r),
            Self::Unsendable { .. } | Self::NotSent { .. } | Self::Broken { .. } => None,
        }
    }

    /// The server's `Date`, if it answered: a refused call corrects the clock as well.
    pub fn date(&self) -> Option<WallTime> {
        self.refusal().and_then(|r| r.told.date)
    }

    /// How long the server wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal().and_then(|r| r.told.retry_after)
    }
}

/// An error and all its causes in one line.
pub fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// 4xx statuses that speak of the exchange, not of the request: time-out, closed by the client.
const UNDECIDED_STATUS: [u16; 2] = [408, 499];

/// Sorts an answer that is not 2xx. A code that says that the service is in trouble does not say that
/// it decided: with one even a 4xx leaves open what became of the request.
pub(super) fn sort(refusal: Refusal) -> CallError {
    let refusal = Box::new(refusal);
    let code = refusal.code.as_str();
    let decided = !code.is_empty()
        && (400..500).contains(&refusal.http)
        && !UNDECIDED_STATUS.contains(&refusal.http)
        && Kind::of_code(code) != Kind::Service;
    if code.starts_with("Throttling") {
        CallError::Throttled(refusal)
    } else if decided {
        CallError::Refused(refusal)
    } else {
        CallError::Unclear(refusal)
    }
}

/// What an error body says, in either spelling; all empty if it says nothing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) request_id: Option<String>,
    /// `AuthAction` of `AccessDeniedDetail`.
    pub(super) missing: Option<String>,
}

/// Reads an error body.
pub(super) fn parse(body: &[u8]) -> Parsed {
    let Ok(serde_json::Value::Object(map)) = serde_json::from_slice(body) else {
        return Parsed::default();
    };
    let text = |names: &[&str]| {
        names.iter().find_map(|n| map.get(*n)?.as_str()).unwrap_or_default().trim().to_owned()
    };
    let some =
        |text: &str| Some(cut(text.trim(), MESSAGE_LIMIT).to_owned()).filter(|t| !t.is_empty());
    let denied = ["AccessDeniedDetail", "accessDeniedDetail"].iter().find_map(|n| map.get(*n));
    let missing = denied.and_then(|d| ["AuthAction", "authAction"].iter().find_map(|n| d.get(*n)));
    Parsed {
        // Longer than any code is: what is logged and recorded of it stays small.
        code: some(&text(&["Code", "code"])).unwrap_or_default(),
        message: text(&["Message", "message"]),
        request_id: some(&text(&["RequestId", "requestId", "RequestID"])),
        missing: missing.and_then(|action| some(action.as_str()?)),
    }
}

/// `text` cut to `limit` bytes, at the end of a letter.
pub fn cut(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(http: u16, body: &str) -> &'static str {
        let Parsed { code, message, request_id, missing } = parse(body.as_bytes());
        let told = Told { request_id, ..Told::default() };
        match sort(Refusal { action: "CreateJob", http, code, message, missing, told }) {
            CallError::Refused(_) => "refused",
            CallError::Throttled(_) => "throttled",
            CallError::Unclear(_) => "unclear",
            other @ (CallError::Unsendable { .. }
            | CallError::NotSent { .. }
            | CallError::Broken { .. }) => panic!("{other}"),
        }
    }

    #[test]
    fn only_a_code_with_a_4xx_or_a_throttling_code_says_no() {
        for (http, body, want) in [
            (400, r#"{"Code":"InvalidParameter","Message":"m"}"#, "refused"),
            (404, r#"{"code":"NotFound","message":"m"}"#, "refused"),
            (400, r#"{"Code":"Throttling"}"#, "throttled"),
            (429, r#"{"Code":"Throttling.User"}"#, "throttled"),
            (503, r#"{"Code":"Throttling.Api"}"#, "throttled"),
            (503, r#"{"Code":"ServiceUnavailable"}"#, "unclear"),
            (500, r#"{"Code":"InvalidParameter"}"#, "unclear"),
            (400, r#"{"Code":"InternalError"}"#, "unclear"),
            (400, r#"{"Code":"InternalServerError"}"#, "unclear"),
            (400, r#"{"Code":"ServerBusy"}"#, "unclear"),
            (408, r#"{"Code":"Slow"}"#, "unclear"),
            (504, r#"{"Code":"Backend.Timeout"}"#, "unclear"),
            (400, "<html>bad gateway</html>", "unclear"),
            (429, "", "unclear"),
            (400, r#"{"Code":""}"#, "unclear"),
            (400, r#"{"Code":400}"#, "unclear"),
            (302, r#"{"Code":"Moved"}"#, "unclear"),
        ] {
            assert_eq!(sorted(http, body), want, "{http} {body}");
        }
    }

    #[test]
    fn both_spellings_of_an_error_are_read() {
        let upper = parse(br#"{"Code":"A","Message":"b","RequestId":"r"}"#);
        let lower = parse(br#"{"code":"A","message":"b","requestId":"r"}"#);
        assert_eq!(upper, lower);
        let (code, message, missing) = ("A".into(), "b".into(), None);
        assert_eq!(upper, Parsed { code, message, request_id: Some("r".into()), missing });
    }

    #[test]
    fn a_code_of_any_length_is_kept_short() {
        let long = format!(r#"{{"Code":"Throttling{}"}}"#, "x".repeat(1_000_000));
        assert_eq!(parse(long.as_bytes()).code.len(), MESSAGE_LIMIT);
        assert_eq!(sorted(400, &long), "throttled");
    }

    #[test]
    fn the_missing_action_is_read_from_a_denial() {
        let missing = |body: &str| parse(body.as_bytes()).missing;
        let denied = r#"{"Code":"Forbidden.RAM","AccessDeniedDetail":{"AuthAction":"pai:GetJob"}}"#;
        assert_eq!(missing(denied).as_deref(), Some("pai:GetJob"));
        for odd in
            ["null", "7", r#""x""#, "[]", "{}", r#"{"AuthAction":7}"#, r#"{"AuthAction":""}"#]
        {
            assert_eq!(missing(&format!(r#"{{"AccessDeniedDetail":{odd}}}"#)), None, "{odd}");
        }
    }

    #[test]
    fn a_cut_never_splits_a_letter() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 9), "aé");
    }
}
