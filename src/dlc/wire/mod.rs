//! The JSON of PAI-DLC: lenient reading, and our stamps on a body.
//!
//! Shared by the client and the emulator. What always holds: a missing, null, empty or wrongly
//! typed field of an answer is "not there", never a guess and never a panic; the few that are needed
//! (of a job `JobId` and `Status`) are named by the error when they lack. Bodies are changed in the fields
//! that carry our stamps and in no other. No IO, no clock, no randomness.

mod answer;
mod dataset;
mod evidence;
mod field;
mod history;
mod job;
mod market;
mod page;
mod stamp;

pub use answer::{Acknowledged, Reader, Row, Whole, acknowledged, request_id};
pub use dataset::{Dataset, Version, dataset};
pub use evidence::{
    LINES_LIMIT, PodMetrics, Point, SanityCheck, job_events, job_metrics, pod_events, pod_logs,
    sanity_checks,
};
pub use job::{Source, every_pod, job, whole_job};
pub use market::{EcsSpec, EcsSpecs, SpotPrice, SpotPrices, SpotStock, ecs_specs, spot_prices};
pub use page::{Page, page, whole_page};
pub use stamp::{
    DISPLAY_NAME_LIMIT, Submission, TAG, add_secret_envs, display_name, parse_display_name,
    stamp_body,
};

use crate::model::error::Class;
use serde_json::Value;

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

#[cfg(test)]
mod tests {
    use super::*;

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
