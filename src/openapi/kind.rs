//! What a failed call means, read from its code: one table.
//!
//! What always holds: where an answer has a code, the code alone decides, never the HTTP status:
//! throttling comes with 400, 429 and 503, and an unknown key is a 404 like a job that is gone.
//! Each kind has one class, one page in docs/errors and one mend. What a kind proves about a
//! request that was sent is not said here but in [`super::error`].

use super::error::{CallError, Refusal};
use crate::model::error::{Class, Code};

/// What went wrong, whatever the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Too many calls.
    Throttled,
    /// The signature does not fit: mostly the wrong secret.
    Signature,
    /// The time in the request is too far from the server's.
    Clock,
    /// The server had a request with this nonce before.
    NonceUsed,
    /// The AccessKey does not exist, or is disabled.
    KeyUnknown,
    /// The security token of temporary keys has expired or is not valid.
    Token,
    /// The caller lacks a RAM permission.
    Permission,
    /// What was named does not exist. Says nothing of an end.
    NotFound,
    /// A parameter is wrong, missing, or not taken in this state.
    Parameter,
    /// The gateway does not understand the request: this program, or the endpoint, is wrong.
    Misspoken,
    /// The service is in trouble.
    Service,
    /// A code that is in no row.
    UnknownCode,
    /// An answer without a code: HTML of a proxy, cut or odd JSON.
    Unreadable,
    /// No connection could be made.
    NoConnection,
    /// Time-out, reset, or an answer that broke off.
    Broken,
    /// There are no keys to sign with.
    NoKeys,
    /// The request cannot be put together.
    Unsendable,
}

/// One row of the table.
#[derive(Debug)]
pub struct Row {
    /// What it is about.
    pub kind: Kind,
    /// Codes that mean it; one that ends in `*` means all that begin so.
    pub codes: &'static [&'static str],
    /// What the caller should do about it.
    pub class: Class,
    /// The page in docs/errors.
    pub page: Code,
    /// What a person does about it, in a few words; empty where there is nothing to do.
    pub mend: &'static str,
}

const fn row(
    kind: Kind,
    codes: &'static [&'static str],
    class: Class,
    page: u16,
    mend: &'static str,
) -> Row {
    Row { kind, codes, class, page: Code(page), mend }
}

/// Everything that can go wrong with a call. The first row with a fitting code counts, so that
/// `InvalidAccessKeyId` stands before `Invalid*`.
#[rustfmt::skip]
pub static TABLE: &[Row] = &[
    row(Kind::Throttled, &["Throttling*", "ServiceThrottling*", "FlowControl*"], Class::Wait, 120, ""),
    row(Kind::Signature, &["SignatureDoesNotMatch*", "InvalidSignature*"], Class::Operator, 121,
        "check the AccessKey secret, and that no proxy changes the request"),
    row(Kind::Clock, &["InvalidTimeStamp*", "InvalidTimestamp*"], Class::Retry, 122,
        "set this machine's clock (NTP)"),
    row(Kind::NonceUsed, &["SignatureNonceUsed*"], Class::Retry, 123, ""),
    row(Kind::KeyUnknown, &["InvalidAccessKeyId*", "InvalidAccessKey.*", "InactiveAccessKey*"], Class::Operator, 124,
        "give an AccessKey that exists and is enabled"),
    row(Kind::Token, &["InvalidSecurityToken*", "MissingSecurityToken*", "SecurityTokenExpired*"], Class::Wait, 125,
        "give fresh temporary keys, or a provider that renews them"),
    row(Kind::Permission, &["Forbidden*", "NoPermission*", "Unauthorized*", "AccessDenied*"], Class::Operator, 126,
        "grant it to the RAM user or role of these keys"),
    row(Kind::Misspoken, &["IncompleteSignature*", "InvalidAction*", "InvalidVersion*", "InvalidProtocol*",
        "UnsupportedHTTPMethod*", "InvalidApi.*", "UnsupportedSignatureMethod*"], Class::Bug, 127,
        "check the endpoint of the target; else report it"),
    row(Kind::NotFound, &["NotFound*", "JobNotFound*", "*.NotFound"], Class::Operator, 128,
        "check what the call names: job, workspace, resource"),
    row(Kind::Service, &["ServiceUnavailable*", "InternalError*", "InternalServerError*", "ServerBusy*",
        "*Timeout*", "*TimedOut*", "*InternalError*", "*ServiceUnavailable*"], Class::Wait, 129, ""),
    row(Kind::Parameter, &["Invalid*", "Missing*", "BadRequest*", "Unsupported*"], Class::Operator, 130,
        "correct what the message names"),
    row(Kind::UnknownCode, &[], Class::Wait, 131, ""),
    row(Kind::Unreadable, &[], Class::Retry, 132, "check the endpoint of the target if it lasts"),
    row(Kind::NoConnection, &[], Class::Retry, 133, "check the endpoint, name resolution and the network if it lasts"),
    row(Kind::Broken, &[], Class::Retry, 134, ""),
    row(Kind::NoKeys, &[], Class::Operator, 135, "mend that source, or name another in `credentials` of the target"),
    row(Kind::Unsendable, &[], Class::Bug, 136, "report it"),
];

/// Whether `code` is what a row means by `pattern`: a text, with `*` for anything at either end.
fn fits(pattern: &str, code: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => code.contains(pattern.trim_matches('*')),
        (Some(end), None) => code.ends_with(end),
        (None, Some(begin)) => code.starts_with(begin),
        (None, None) => code == pattern,
    }
}

impl Kind {
    /// What a code means; [`Kind::Unreadable`] for none.
    pub fn of_code(code: &str) -> Self {
        if code.is_empty() {
            return Self::Unreadable;
        }
        let row = TABLE.iter().find(|row| row.codes.iter().any(|pattern| fits(pattern, code)));
        row.map_or(Self::UnknownCode, |row| row.kind)
    }

    /// What an answer means. Only one without a code is read by its status: somebody on the way
    /// (a proxy, a load balancer) spoke in the gateway's place.
    fn of_answer(answer: &Refusal) -> Self {
        match (answer.code.as_str(), answer.http) {
            ("", 429) => Self::Throttled,
            ("", 503) => Self::Service,
            (code, _) => Self::of_code(code),
        }
    }

    /// Its row in the table.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.kind == self).expect("each kind has a row; a test sees to it")
    }

    /// What the caller should do about it.
    pub fn class(self) -> Class {
        self.row().class
    }

    /// Its page in docs/errors.
    pub fn page(self) -> Code {
        self.row().page
    }

    /// Whether the same request can be taken later, without a person who changes something.
    pub fn is_passing(self) -> bool {
        match self.class() {
            Class::Retry | Class::Wait => true,
            Class::Operator | Class::Bug => false,
        }
    }
}

impl CallError {
    /// What went wrong.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Unsendable { .. } => Kind::Unsendable,
            Self::NotSent { .. } => Kind::NoConnection,
            Self::Broken { .. } => Kind::Broken,
            Self::Refused(answer) | Self::Throttled(answer) | Self::Unclear(answer) => {
                Kind::of_answer(answer)
            }
        }
    }

    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        self.kind().class()
    }

    /// Its page in docs/errors.
    pub fn page(&self) -> Code {
        self.kind().page()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::error::Told;

    #[test]
    fn every_kind_has_one_row_and_every_row_a_page_of_its_own() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].page < pair[1].page, "{:?}", pair[1]);
        }
        for row in TABLE {
            assert!(std::ptr::eq(row.kind.row(), row), "{:?} has two rows", row.kind);
            for pattern in row.codes {
                assert_eq!(Kind::of_code(&pattern.replace('*', "X")), row.kind, "{pattern}");
            }
        }
        for kind in [
            Kind::Throttled,
            Kind::Signature,
            Kind::Clock,
            Kind::NonceUsed,
            Kind::KeyUnknown,
            Kind::Token,
            Kind::Permission,
            Kind::NotFound,
            Kind::Parameter,
            Kind::Misspoken,
            Kind::Service,
            Kind::UnknownCode,
            Kind::Unreadable,
            Kind::NoConnection,
            Kind::Broken,
            Kind::NoKeys,
            Kind::Unsendable,
        ] {
            assert_eq!(kind.row().kind, kind);
        }
        assert_eq!(TABLE.len(), 17);
    }

    #[test]
    fn the_code_decides_whatever_the_status() {
        for (code, kind, class) in [
            ("Throttling", Kind::Throttled, Class::Wait),
            ("Throttling.User", Kind::Throttled, Class::Wait),
            ("SignatureDoesNotMatch", Kind::Signature, Class::Operator),
            ("IncompleteSignature", Kind::Misspoken, Class::Bug),
            ("InvalidTimeStamp.Expired", Kind::Clock, Class::Retry),
            ("SignatureNonceUsed", Kind::NonceUsed, Class::Retry),
            ("InvalidAccessKeyId.NotFound", Kind::KeyUnknown, Class::Operator),
            ("InvalidAccessKeyId.Inactive", Kind::KeyUnknown, Class::Operator),
            ("InvalidSecurityToken.Expired", Kind::Token, Class::Wait),
            ("Forbidden.RAM", Kind::Permission, Class::Operator),
            ("NoPermission", Kind::Permission, Class::Operator),
            ("NotFound", Kind::NotFound, Class::Operator),
            ("InvalidParameter.Image", Kind::Parameter, Class::Operator),
            ("MissingParameter", Kind::Parameter, Class::Operator),
            ("ServiceUnavailable", Kind::Service, Class::Wait),
            ("InternalError", Kind::Service, Class::Wait),
            ("OutOfStock", Kind::UnknownCode, Class::Wait),
        ] {
            for http in [400, 403, 404, 429, 500, 503] {
                let (message, told) = (String::new(), Told::default());
                let (code, missing) = (code.to_owned(), None);
                let error = crate::openapi::error::sort(Refusal {
                    action: "GetJob",
                    http,
                    code,
                    message,
                    missing,
                    told,
                });
                assert_eq!((error.kind(), error.class()), (kind, class), "{http} {error}");
            }
        }
    }

    #[test]
    fn an_answer_without_a_code_is_read_by_its_status() {
        for (http, kind) in [
            (200, Kind::Unreadable),
            (302, Kind::Unreadable),
            (404, Kind::Unreadable),
            (429, Kind::Throttled),
            (502, Kind::Unreadable),
            (503, Kind::Service),
        ] {
            let answer = Refusal {
                action: "GetJob",
                http,
                code: String::new(),
                message: String::new(),
                missing: None,
                told: Told::default(),
            };
            assert_eq!(Kind::of_answer(&answer), kind, "{http}");
        }
    }
}
