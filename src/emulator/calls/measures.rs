//! The calls on what jobs use. Nothing is measured: the figures are made up from the pod's id and
//! the time, so that two calls agree; their times and shapes are those of real ones.

use super::query::{Window, wrong};
use super::{Answered, Request, job, object};
use crate::emulator::job::{Job, Pod};
use crate::emulator::random::Random;
use crate::emulator::world::{CallError, World};
use crate::model::time::WallTime;
use serde_json::{Value, json};
use std::time::Duration;

const METRICS: [&str; 8] = [
    "GpuCoreUsage",
    "GpuMemoryUsage",
    "CpuCoreUsage",
    "MemoryUsage",
    "NetworkInputRate",
    "NetworkOutputRate",
    "DiskReadRate",
    "DiskWriteRate",
];
/// How far back is looked when nothing is asked for.
const WINDOW: Duration = Duration::from_hours(1);
/// Time between two figures when nothing is asked for.
const STEP: Duration = Duration::from_mins(5);
/// Figures of one pod in one answer.
const POINTS_LIMIT: usize = 1_440;
/// Figures of one page of GetMetrics.
const LENGTH_DEFAULT: usize = 1_000;

/// The figures of a pod's life within a window: time in milliseconds, and value.
fn points(pod: &Pod, window: Window, now: WallTime, step: Duration, salt: &str) -> Vec<(i64, f64)> {
    let Some(started) = pod.started else { return Vec::new() };
    let from = started.max(window.from);
    let until = pod.finished.unwrap_or(now).min(window.until).min(now);
    let mut found = Vec::new();
    let mut at = from;
    while at <= until && found.len() < POINTS_LIMIT {
        let seed = pod.uid.bytes().chain(salt.bytes()).fold(at.0.unsigned_abs(), |seed, byte| {
            seed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        found.push((at.0, (Random::new(seed).fraction() * 10_000.0).round() / 100.0));
        at = at.plus(step);
    }
    found
}

/// `TimeStep`: seconds, or a number with its unit.
fn step(text: Option<&str>) -> Result<Duration, CallError> {
    let Some(text) = text else { return Ok(STEP) };
    let read = match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => crate::emulator::args::duration(text),
    };
    read.ok()
        .filter(|step| *step >= Duration::from_secs(1))
        .ok_or_else(|| wrong(format!("TimeStep: {text} is no time such as 60, 30s or 5m")))
}

pub(super) fn of_job(world: &mut World, request: &Request<'_>) -> Answered {
    let metric = request.query.required("MetricType")?;
    request.query.word("MetricType", &METRICS)?;
    let window = request.query.window(request.now, WINDOW)?;
    let step = step(request.query.text("TimeStep"))?;
    let shown = job(world, request)?.pods.iter().filter(|pod| pod.created.is_some());
    let pods: Vec<Value> = shown
        .map(|pod| {
            let metrics: Vec<Value> = points(pod, window, request.now.wall, step, metric)
                .into_iter()
                .map(|(time, value)| json!({"Time": time, "Value": value}))
                .collect();
            json!({"PodId": pod.id, "Metrics": metrics})
        })
        .collect();
    Ok(object(json!({"JobId": request.id(0), "PodMetrics": pods})))
}

/// GetMetrics, which asks CloudMonitor: its figures are a JSON text, page by page.
pub(super) fn of_monitor(world: &mut World, request: &Request<'_>) -> Answered {
    let query = &request.query;
    query.required("Dimensions")?;
    let period = query.word("Period", &["15", "60", "900", "3600"])?.unwrap_or("60");
    let seconds = period.parse().unwrap_or(60);
    let length = query.number("Length", 1)?.unwrap_or(LENGTH_DEFAULT).min(POINTS_LIMIT);
    let first = query.number("NextToken", 0)?.unwrap_or(0);
    let window = query.window(request.now, WINDOW)?;
    let jobs: Vec<&Job> = match query.text("JobId") {
        Some(id) => vec![world.job(id)?],
        None => world.jobs().collect(),
    };
    let metric = query.text("MetricName").unwrap_or_default();
    let all: Vec<Value> = jobs
        .into_iter()
        .flat_map(|job| job.pods.iter().map(move |pod| (job, pod)))
        .flat_map(|(job, pod)| {
            points(pod, window, request.now.wall, Duration::from_secs(seconds), metric)
                .into_iter()
                .map(move |(time, value)| {
                    json!({
                        "timestamp": time, "jobId": job.id, "podId": pod.id,
                        "Average": value, "Minimum": value, "Maximum": value,
                    })
                })
        })
        .skip(first)
        .take(length + 1)
        .collect();
    let more = all.len() > length;
    let points = Value::Array(all.into_iter().take(length).collect());
    let mut answer = object(json!({
        "Code": "200", "Success": true, "Message": "", "Period": period,
        "DataPoints": points.to_string(),
    }));
    if more {
        answer.insert("NextToken".to_owned(), (first + length).to_string().into());
    }
    Ok(answer)
}
