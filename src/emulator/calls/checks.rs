//! The calls on the health checks of a job's machines. A job with `EnableSanityCheck` passes one
//! check, in all its phases, before it runs.

use super::jobs::newest_first;
use super::query::Order;
use super::{Answered, Request, job, object};
use crate::emulator::job::Job;
use crate::emulator::world::World;
use serde_json::{Value, json};

const PHASES: [&str; 5] =
    ["CheckInit", "DeviceCheck", "SingleNodeCommCheck", "TwoNodeCommCheck", "AllNodeCommCheck"];

/// The phases of each check, checks in order.
fn checks(job: &Job) -> Vec<Vec<Value>> {
    let settings = job.submission.body.get("Settings");
    let asked = settings.and_then(|s| s.get("EnableSanityCheck")).and_then(Value::as_bool);
    let times = (job.entered("EnvPreparing"), job.entered("Running"));
    let ((Some(started), Some(finished)), Some(true)) = (times, asked) else { return Vec::new() };
    let phases = PHASES.iter().map(|phase| {
        json!({
            "CheckNumber": 1, "Phase": phase, "Status": "Succeeded", "Message": "",
            "StartedAt": started.to_string(), "FinishedAt": finished.to_string(),
        })
    });
    vec![phases.collect()]
}

pub(super) fn list(world: &mut World, request: &Request<'_>) -> Answered {
    let order = newest_first(request)?;
    let mut checks = checks(job(world, request)?);
    if order == Order::Descending {
        checks.reverse();
    }
    Ok(object(json!({"TotalCount": checks.len(), "SanityCheckResults": checks})))
}

pub(super) fn get(world: &mut World, request: &Request<'_>) -> Answered {
    request.query.required("SanityCheckNumber")?;
    let number = request.query.number("SanityCheckNumber", 1)?;
    let phase = request.query.word("SanityCheckPhase", &PHASES)?;
    let found: Vec<Value> = checks(job(world, request)?)
        .into_iter()
        .flatten()
        .filter(|item| number.is_some_and(|number| item["CheckNumber"] == number))
        .filter(|item| phase.is_none_or(|phase| item["Phase"] == phase))
        .collect();
    Ok(object(json!({"JobId": request.id(0), "SanityCheckResult": found})))
}
