//! The JSON of the API, which is the JSON of `-o json` as well.

use crate::model::error::Code;
use crate::model::handle::{ActVerb, Refusal};
use crate::model::view::{ActReport, JobRow};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What `apiVersion` says. Fields are added under one version, never changed or taken away.
pub const API_VERSION: &str = "v1";

/// Codes of what the daemon answers and of its socket; each has a page in docs/errors.
pub mod codes {
    use crate::model::error::Code;

    /// No job has this name.
    pub const NO_SUCH_JOB: Code = Code(101);
    /// The job has no such attempt on record.
    pub const NO_SUCH_ATTEMPT: Code = Code(102);
    /// It cannot be done in this situation.
    pub const NOT_NOW: Code = Code(103);
    /// The store cannot write.
    pub const STORE_DOWN: Code = Code(104);
    /// The daemon is alive, but its loop does not answer.
    pub const NO_ANSWER: Code = Code(105);
    /// The request cannot be read.
    pub const BAD_REQUEST: Code = Code(106);
    /// No such address.
    pub const NO_SUCH_ADDRESS: Code = Code(107);
    /// Another daemon answers on the socket.
    pub const SOCKET_TAKEN: Code = Code(108);
    /// The socket cannot be made.
    pub const SOCKET_FAILED: Code = Code(109);
    /// No daemon answers on the socket.
    pub const NOT_REACHABLE: Code = Code(110);
    /// The answer cannot be read: another program, or another version.
    pub const BAD_ANSWER: Code = Code(111);
    /// What was asked for over TCP needs the token.
    pub const NO_TOKEN: Code = Code(112);
    /// A request over TCP names another host.
    pub const OTHER_HOST: Code = Code(113);

    /// All of them, in order.
    pub const ALL: &[Code] = &[
        NO_SUCH_JOB,
        NO_SUCH_ATTEMPT,
        NOT_NOW,
        STORE_DOWN,
        NO_ANSWER,
        BAD_REQUEST,
        NO_SUCH_ADDRESS,
        SOCKET_TAKEN,
        SOCKET_FAILED,
        NOT_REACHABLE,
        BAD_ANSWER,
        NO_TOKEN,
        OTHER_HOST,
    ];
}

/// `GET /api/v1/jobs`, `ps -o json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobList {
    /// The jobs, by name.
    pub jobs: Vec<JobRow>,
}

/// `GET /api/v1/jobs/{name}/body`, `describe --body -o json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BodyDocument {
    /// The CreateJob body of the next attempt, secrets left out.
    pub body: Value,
    /// The accepted content of the job file, secrets left out.
    #[serde(default)]
    pub spec: Value,
}

/// What `POST /api/v1/act` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActRequest {
    /// The jobs, at least one.
    pub names: Vec<String>,
    /// What to do with them.
    pub verb: ActVerb,
    /// With `retry`: the step to go on from, or `fresh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

impl ActRequest {
    /// What asks for `verb` on the jobs `names`.
    pub fn of(names: Vec<String>, verb: ActVerb) -> Self {
        match verb {
            ActVerb::RetryFrom(from) => {
                Self { names, verb: ActVerb::Retry, from: Some(from.to_string()) }
            }
            ActVerb::Cancel
            | ActVerb::Pause
            | ActVerb::Resume
            | ActVerb::Retry
            | ActVerb::Forget => Self { names, verb, from: None },
        }
    }
}

/// The act that `verb` and `from` ask for together.
///
/// # Errors
/// `from` with another verb than `retry`, or one that is neither a step nor `fresh`.
pub fn verb_of(verb: ActVerb, from: Option<&str>) -> Result<ActVerb, String> {
    match (verb, from) {
        (verb, None) => Ok(verb),
        (ActVerb::Retry, Some(from)) => from.parse().map(ActVerb::RetryFrom),
        (verb, Some(_)) => Err(format!("`from` goes with `retry`, not with `{}`", verb.word())),
    }
}

/// What an act answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActDocument {
    /// Job by job.
    pub done: Vec<ActReport>,
}

/// What an act answers while no daemon runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WrittenDocument {
    /// Nothing yet.
    pub done: Vec<ActReport>,
    /// What is done at the next start.
    pub written_down: WrittenDown,
}

/// An act that waits for the daemon's next start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenDown {
    /// The verb.
    pub verb: String,
    /// The jobs that were named.
    pub jobs: Vec<String>,
    /// Whether all jobs are meant that are not over.
    pub all: bool,
    /// Where it stands.
    pub file: String,
    /// The same in words.
    pub text: String,
    /// What is awaited.
    pub awaited: Vec<String>,
}

/// `GET /version`, `version -o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionDocument {
    /// The version of the program.
    pub version: String,
    /// The commit that it was built from; empty where that is not known, as in builds for tests.
    pub commit: String,
}

/// What the build was told; see build.rs.
const COMMIT: &str = env!("SPOTKEEPER_COMMIT");

impl VersionDocument {
    /// This program's.
    pub fn own() -> Self {
        Self { version: env!("CARGO_PKG_VERSION").into(), commit: COMMIT.to_owned() }
    }
}

/// Every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDocument {
    /// `Ennn`.
    pub code: String,
    /// What is wrong, for people.
    pub message: String,
}

/// `body` as an object with `apiVersion`. What is no object stands under `value`.
pub fn document(body: &impl Serialize) -> Value {
    let fields = match serde_json::to_value(body) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => Map::from_iter([("value".to_owned(), other)]),
        Err(cause) => Map::from_iter([("value".to_owned(), Value::String(cause.to_string()))]),
    };
    let mut whole = Map::from_iter([("apiVersion".to_owned(), API_VERSION.into())]);
    whole.extend(fields);
    Value::Object(whole)
}

/// The code that stands for a refusal of the driver's.
pub fn code_of(refusal: &Refusal) -> Code {
    match refusal {
        Refusal::NoSuchJob(_) => codes::NO_SUCH_JOB,
        Refusal::NoSuchAttempt(..) => codes::NO_SUCH_ATTEMPT,
        Refusal::StoreDown(_) => codes::STORE_DOWN,
        Refusal::NotNow(_) => codes::NOT_NOW,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::checkpoint::ResumeFrom;

    #[test]
    fn every_document_says_its_version() {
        let document = document(&JobList { jobs: Vec::new() });
        assert_eq!(document, serde_json::json!({ "apiVersion": "v1", "jobs": [] }));
        assert_eq!(
            super::document(&serde_json::json!([1])),
            serde_json::json!({ "apiVersion": "v1", "value": [1] })
        );
    }

    #[test]
    fn an_act_is_read_as_it_is_documented_and_no_other_way() {
        let read = |text: &str| serde_json::from_str::<ActRequest>(text).ok();
        let act = read(r#"{"names":["a"],"verb":"cancel"}"#).expect("the documented form");
        assert_eq!(act, ActRequest::of(vec!["a".into()], ActVerb::Cancel));
        assert_eq!(read(r#"{"names":["a"],"verb":"Cancel"}"#), None);
        assert_eq!(read(r#"{"verb":"cancel"}"#), None);
        assert_eq!(read(r#"{"names":["a"],"verb":"cancel","all":true}"#), None);
        assert_eq!(read(r#"{"names":["a"],"verb":"retry_from"}"#), None);
        for (from, wanted) in [("900", ResumeFrom::Step(900)), ("fresh", ResumeFrom::Fresh)] {
            let sent = ActRequest::of(vec!["a".into()], ActVerb::RetryFrom(wanted));
            let text = serde_json::json!(sent).to_string();
            assert_eq!(text, format!(r#"{{"from":"{from}","names":["a"],"verb":"retry"}}"#));
            let act = read(&text).expect("what a client sends");
            let verb = verb_of(act.verb, act.from.as_deref());
            assert_eq!(verb, Ok(ActVerb::RetryFrom(wanted)));
        }
        assert!(verb_of(ActVerb::Pause, Some("900")).is_err());
        for from in ["", "-1", "9e3", "Fresh", "99999999999999999999"] {
            assert!(verb_of(ActVerb::Retry, Some(from)).is_err(), "{from}");
        }
    }
}
