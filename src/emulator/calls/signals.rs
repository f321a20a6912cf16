//! The calls on signals to the pods of a running job. Where pods are processes, the signal goes to
//! the first process of each.

use super::jobs::{newest_first, runs};
use super::query::wrong;
use super::{Answered, Request, job, object};
use crate::emulator::job::{Job, Pod, PodLife};
use crate::emulator::world::{CallError, World};
use rustix::process::Signal;
use serde_json::{Map, Value, json};

/// The signals that can be sent.
const SIGNALS: [(&str, Signal); 7] = [
    ("SIGHUP", Signal::HUP),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGUSR1", Signal::USR1),
    ("SIGUSR2", Signal::USR2),
    ("SIGTERM", Signal::TERM),
    ("SIGKILL", Signal::KILL),
];

pub(super) fn create(world: &mut World, request: &Request<'_>) -> Answered {
    let fields = request.fields()?;
    let wanted = fields.required("Signal")?;
    let (_, signal) = SIGNALS.iter().find(|(name, _)| *name == wanted).ok_or_else(|| {
        let names: Vec<&str> = SIGNALS.iter().map(|(name, _)| *name).collect();
        wrong(format!("Signal: {wanted} is none of {}", names.join(", ")))
    })?;
    let target = super::Body(fields.object("Target")?.cloned().unwrap_or_default());
    let scope = target.word("Scope", &["all", "pods", "roles"])?.unwrap_or("all").to_owned();
    let (names, roles) = (target.texts("PodNames")?, target.texts("Roles")?);
    match scope.as_str() {
        "pods" if names.is_empty() => return Err(wrong("Target: Scope pods needs PodNames")),
        "roles" if roles.is_empty() => return Err(wrong("Target: Scope roles needs Roles")),
        _ => {}
    }
    let job = job(world, request)?;
    if !runs(job) {
        return Err(CallError::BadRequest(job.id.clone(), "only a running job takes signals"));
    }
    let met = targets(job, &scope, &names, &roles);
    if met.is_empty() {
        return Err(wrong("Target: no pod of the job is meant"));
    }
    for pod in &met {
        if let PodLife::Processes(group) = pod.life {
            group.signal(*signal);
        }
    }
    let now = request.now.wall.to_string();
    let record = json!({
        "JobId": job.id, "Signal": wanted, "Scope": scope, "Roles": roles,
        "PodNames": met.iter().map(|pod| pod.id.as_str()).collect::<Vec<_>>(),
        "Status": "Succeeded", "Reason": "Completed",
        "Message": format!("{} of {} pods got the signal", met.len(), met.len()),
        "GmtCreated": now, "GmtModified": now,
    });
    let id = world.records.signals.add(object(record))?;
    Ok(object(json!({
        "JobId": request.id(0), "Signal": wanted, "SignalId": id, "Status": "Succeeded",
    })))
}

/// The living pods that are meant. Roles are named in any case.
fn targets<'a>(job: &'a Job, scope: &str, names: &[String], roles: &[String]) -> Vec<&'a Pod> {
    let meant = |pod: &&Pod| match scope {
        "pods" => names.contains(&pod.id),
        "roles" => roles.iter().any(|role| role.eq_ignore_ascii_case(&pod.role)),
        _ => true,
    };
    job.pods.iter().filter(|pod| pod.lives()).filter(meant).collect()
}

fn of_job<'a>(
    world: &'a World,
    request: &Request<'_>,
) -> Result<Vec<&'a Map<String, Value>>, CallError> {
    let id = job(world, request)?.id.clone();
    Ok(world.records.signals.iter().filter(|signal| signal["JobId"] == id).collect())
}

pub(super) fn get(world: &mut World, request: &Request<'_>) -> Answered {
    let wanted = request.id(1);
    let found = of_job(world, request)?.into_iter().find(|signal| signal["SignalId"] == wanted);
    found.cloned().ok_or_else(|| CallError::NotFound(wanted.to_owned()))
}

pub(super) fn list(world: &mut World, request: &Request<'_>) -> Answered {
    let (order, page) = (newest_first(request)?, request.query.page()?);
    request.query.word("SortBy", &["GmtCreated", "GmtModified", "GmtCreateTime"])?;
    let mut found = of_job(world, request)?;
    if let Some(status) = request.query.text("Status") {
        found.retain(|signal| signal["Status"] == status);
    }
    if order == super::query::Order::Descending {
        found.reverse();
    }
    let (signals, total) = page.cut(found);
    let signals: Vec<Value> = signals
        .into_iter()
        .map(|signal| {
            let mut signal = signal.clone();
            signal.remove("JobId");
            Value::Object(signal)
        })
        .collect();
    Ok(object(json!({
        "JobId": request.id(0), "Signals": signals, "TotalCount": total,
        "PageNumber": page.number, "PageSize": page.size,
    })))
}
