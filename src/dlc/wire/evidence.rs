//! What DLC says about how a job went: lines of events and logs, metrics, machine checks.

use super::answer::{Row, rows};
use super::{WireError, field};
use crate::model::time::WallTime;
use serde_json::Value;

/// Lines of events or of a log that one answer may bring.
pub const LINES_LIMIT: usize = 100_000;

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
fn lines_of(
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_take_what_is_there() {
        let read = |value: Value| pod_logs(&value);
        let both = Ok(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(read(json!({"Logs": ["a", null, "b"]})), both);
        assert_eq!(read(json!({"Logs": "a\nb"})), both);
        assert_eq!(read(json!({})), Ok(Vec::new()));
        assert!(read(json!({"Logs": 7})).is_err());
        let many = vec!["x"; LINES_LIMIT + 1];
        assert_eq!(read(json!({"Logs": many})).map(|lines| lines.len()), Ok(LINES_LIMIT));
    }

    #[test]
    fn series_keep_points_of_which_half_is_known() {
        let body = json!({"PodMetrics": [
            {"PodId": "p", "Metrics": [
                {"Time": 1_768_228_581_000_u64, "Value": 12.5},
                {"Time": "1768228581000", "Value": "1e2"}, {"Value": null}, 7]},
            {"Metrics": []},
        ]});
        let rows = job_metrics(&body).expect("series");
        let points = &rows[0].as_ref().expect("a pod").points;
        let at = Some(WallTime(1_768_228_581_000));
        let point = |at, value| Point { at, value };
        let nothing = point(None, None);
        assert_eq!(points[..], [point(at, Some(12.5)), point(at, Some(100.0)), nothing, nothing]);
        assert!(rows[1].as_ref().expect_err("no pod").to_string().contains("PodId"));
    }
}
