//! The JSON of PAI-DLC: lenient reading, and our stamps on a body.
//!
//! Shared by the client and the emulator. What always holds: a missing, null, empty or wrongly
//! typed field of an answer is "not there", never a guess and never a panic; only `JobId` and
//! `Status` are needed, and an error names the one that lacks. Bodies are changed in the fields
//! that carry our stamps and in no other. No IO, no clock, no randomness.

mod field;
mod job;
mod page;
mod stamp;

pub use job::{Source, job};
pub use page::{Page, page};
pub use stamp::{
    DISPLAY_NAME_LIMIT, Submission, TAG, add_secret_envs, display_name, parse_display_name,
    stamp_body,
};

use crate::model::error::Class;
use serde_json::Value;

/// Lines of events or of a log that one answer may bring.
pub const LINES_LIMIT: usize = 100_000;

/// What is wrong with a JSON text of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The text is no JSON object.
    #[error("{what}: not a JSON object")]
    NotObject {
        /// Which text.
        what: &'static str,
    },
    /// A field that has to be there is not, or cannot be read.
    #[error("{what}: `{field}` is {found}")]
    Field {
        /// Which text.
        what: &'static str,
        /// The field.
        field: &'static str,
        /// What stands there instead.
        found: String,
    },
    /// A field of a body that we have to add to is no object.
    #[error("CreateJob body: `{field}` must be a table to take our stamp")]
    Shape {
        /// The field.
        field: &'static str,
    },
}

impl WireError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::NotObject { .. } | Self::Field { .. } => Class::Retry,
            Self::Shape { .. } => Class::Operator,
        }
    }
}

/// The object in `body`, for further reading.
pub fn object(what: &'static str, body: &[u8]) -> Result<Value, WireError> {
    match serde_json::from_slice(body) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) | Err(_) => Err(WireError::NotObject { what }),
    }
}

/// `JobId` of an answer.
pub fn job_id(what: &'static str, value: &Value) -> Result<crate::model::ids::CloudId, WireError> {
    let text = field::needed(what, value, "JobId")?;
    crate::model::ids::CloudId::new(text).map_err(|e| WireError::Field {
        what,
        field: "JobId",
        found: format!("no id: {e}"),
    })
}

/// `Events` or `Logs` of an answer, line by line; at most [`LINES_LIMIT`], the newest.
pub fn lines(
    what: &'static str,
    name: &'static str,
    body: &[u8],
) -> Result<Vec<String>, WireError> {
    let value = object(what, body)?;
    let mut lines: Vec<String> = match field::get(&value, name) {
        Some(Value::String(text)) => text.lines().map(str::to_owned).collect(),
        Some(Value::Array(items)) => items.iter().filter_map(field::as_text).collect(),
        Some(Value::Null) | None => Vec::new(),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Object(_))) => {
            let found = field::kind(Some(other)).to_owned();
            return Err(WireError::Field { what, field: name, found });
        }
    };
    let surplus = lines.len().saturating_sub(LINES_LIMIT);
    lines.drain(..surplus);
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_take_what_is_there() {
        let read = |body: &str| lines("GetPodLogs", "Logs", body.as_bytes());
        assert_eq!(read(r#"{"Logs":["a",null,"b"]}"#), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(read(r#"{"Logs":"a\nb"}"#), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(read("{}"), Ok(Vec::new()));
        assert!(read(r#"{"Logs":7}"#).is_err());
    }

    #[test]
    fn a_job_id_that_is_none_is_named() {
        let id = |text: &str| job_id("CreateJob", &serde_json::from_str(text).expect("JSON"));
        assert_eq!(id(r#"{"JobId":"dlc1"}"#).expect("an id").as_str(), "dlc1");
        for text in ["{}", r#"{"JobId":null}"#, r#"{"JobId":""}"#, r#"{"JobId":7}"#] {
            assert!(matches!(id(text), Err(WireError::Field { field: "JobId", .. })), "{text}");
        }
        assert!(id(r#"{"JobId":"../x"}"#).is_err());
    }
}
