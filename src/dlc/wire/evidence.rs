//! What DLC says about how a job went: lines of events and logs, metrics, machine checks.

use super::answer::{Row, rows};
use super::{LINES_LIMIT, WireError, field};
use crate::model::time::WallTime;
use serde_json::Value;

/// `Events` of GetJobEvents, line by line. Free text: an event line begins with a local time
/// without a zone, and nothing is read out of it here.
pub fn job_events(value: &Value) -> Result<Vec<String>, WireError> {
    lines_of("GetJobEvents", "Events", value)
}

/// `Events` of GetPodEvents.
pub fn pod_events(value: &Value) -> Result<Vec<String>, WireError> {
    lines_of("GetPodEvents", "Events", value)
}

/// `Logs` of GetPodLogs.
pub fn pod_logs(value: &Value) -> Result<Vec<String>, WireError> {
    lines_of("GetPodLogs", "Logs", value)
}

/// The lines in `name`, a list of texts or one text; at most [`LINES_LIMIT`], the newest.
pub(super) fn lines_of(
    what: &'static str,
    name: &'static str,
    value: &Value,
) -> Result<Vec<String>, WireError> {
    let mut lines: Vec<String> = match field::get(value, name) {
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

/// The series of one pod out of GetJobMetrics.
#[derive(Debug, Clone, PartialEq)]
pub struct PodMetrics {
    /// `PodId`.
    pub pod: String,
    /// Its points, in the order they came.
    pub points: Vec<Point>,
}

/// One point of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// `Time`, which comes as milliseconds.
    pub at: Option<WallTime>,
    /// `Value`: percent, or bytes, or bytes a second, by what was asked for.
    pub value: Option<f64>,
}

/// `PodMetrics` of GetJobMetrics.
pub fn job_metrics(value: &Value) -> Result<Vec<Row<PodMetrics>>, WireError> {
    rows("GetJobMetrics", value, "PodMetrics", |row| {
        let pod = field::needed("GetJobMetrics row", row, "PodId")?;
        let points = field::list(row, "Metrics").iter().map(point).collect();
        Ok(PodMetrics { pod, points })
    })
}

fn point(value: &Value) -> Point {
    let at = field::number(value, "Time").and_then(|ms| i64::try_from(ms).ok()).map(WallTime);
    Point { at, value: field::get(value, "Value").and_then(field::as_float) }
}

/// One check of the machines, out of GetJobSanityCheckResult.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SanityCheck {
    /// `CheckNumber`: the how-manieth check of the job.
    pub number: Option<u64>,
    /// `Phase`: `CheckInit`, `DeviceCheck` and others.
    pub phase: Option<String>,
    /// `Status`.
    pub status: String,
    /// `Message`.
    pub message: Option<String>,
    /// `StartedAt`.
    pub started: Option<WallTime>,
    /// `FinishedAt`.
    pub finished: Option<WallTime>,
}

/// `SanityCheckResult` of GetJobSanityCheckResult.
pub fn sanity_checks(value: &Value) -> Result<Vec<Row<SanityCheck>>, WireError> {
    rows("GetJobSanityCheckResult", value, "SanityCheckResult", |row| {
        Ok(SanityCheck {
            number: field::number(row, "CheckNumber"),
            phase: field::text(row, "Phase"),
            status: field::needed("GetJobSanityCheckResult row", row, "Status")?,
            message: field::text(row, "Message"),
            started: field::time(row, "StartedAt"),
            finished: field::time(row, "FinishedAt"),
        })
    })
}
