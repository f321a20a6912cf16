//! An answer with what this program reads out of it, and with all of it as it came.
//!
//! What always holds: [`Whole`] keeps every field, known or not, and every number in its own text,
//! so that what was answered can be shown, stored and compared later. Readers are lenient: a field
//! that is missing, null, empty or of another type is not there; one that is needed is named.

use super::{WireError, field, object};
use crate::model::ids::CloudId;
use serde_json::Value;
use std::fmt;

/// Rows of one answer that are read; the rest stays in [`Whole::body`].
pub(super) const ROWS_LIMIT: usize = 100_000;

/// One answer. Its `Debug` shows what was read alone: a job comes with environment values that may be
/// secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Whole<T> {
    /// What this program reads out of it.
    pub read: T,
    /// All of it.
    pub body: Value,
}

impl<T: fmt::Debug> fmt::Debug for Whole<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Whole").field("read", &self.read).finish_non_exhaustive()
    }
}

impl<T> Whole<T> {
    /// Reads the JSON object in `body` with `reader`.
    pub fn decode(what: &'static str, body: &[u8], reader: Reader<T>) -> Result<Self, WireError> {
        let body = object(what, body)?;
        Ok(Self { read: reader(&body)?, body })
    }

    /// The answer as JSON text: nothing added, nothing lost.
    pub fn encode(&self) -> String {
        self.body.to_string()
    }
}

/// Takes what is needed out of an answer.
pub type Reader<T> = fn(&Value) -> Result<T, WireError>;

/// A row of an answer, or what is wrong with it.
pub type Row<T> = Result<T, WireError>;

/// The rows in `field`; none if it is missing or null.
///
/// # Errors
/// [`WireError::Field`] if something else than a list stands there: no rows would be a guess.
pub(super) fn rows<T>(
    what: &'static str,
    value: &Value,
    field: &'static str,
    read: impl Fn(&Value) -> Row<T>,
) -> Result<Vec<Row<T>>, WireError> {
    match field::get(value, field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => Ok(items.iter().take(ROWS_LIMIT).map(read).collect()),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_))) => {
            let found = field::kind(Some(other)).to_owned();
            Err(WireError::Field { what, field, found })
        }
    }
}

/// `{JobId, RequestId}`: the call was taken. What it asked for may still have no effect: a stop is
/// on its way, and a priority changes nothing without a quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    /// `JobId`, where it is one.
    pub id: Option<CloudId>,
    /// `RequestId`.
    pub request_id: Option<String>,
}

/// What StopJob, UpdateJob and DeleteJob answer.
pub fn acknowledged(value: &Value) -> Result<Acknowledged, WireError> {
    let id = field::text(value, "JobId").and_then(|id| CloudId::new(id).ok());
    Ok(Acknowledged { id, request_id: request_id(value) })
}

/// `RequestId`, in each of its spellings.
pub fn request_id(value: &Value) -> Option<String> {
    field::text(value, "RequestId").or_else(|| field::text(value, "RequestID"))
}
