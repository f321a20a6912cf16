//! The calls that give tokens and links. The links lead nowhere: `.invalid` is no domain.

use super::jobs::runs;
use super::{Answered, Request, job, object, pods};
use crate::emulator::random::unguessable_hex;
use crate::emulator::world::{CallError, World};
use serde_json::json;

/// How long a token or a shared link holds when nothing is asked for, in seconds.
const EXPIRE_SECONDS: usize = 604_800;

fn link(what: &str) -> String {
    format!("https://{what}.emulator.invalid/?token={}", unguessable_hex(16))
}

pub(super) fn token(world: &mut World, request: &Request<'_>) -> Answered {
    let id = request.query.required("TargetId")?;
    let kind = request.query.word("TargetType", &["job", "tensorboard"])?;
    request.query.number("ExpireTime", 0)?;
    match kind {
        Some("tensorboard") => world.records.tensorboards.get(id).map(drop)?,
        Some(_) | None => world.job(id).map(drop)?,
    }
    Ok(object(json!({"Token": unguessable_hex(32)})))
}

pub(super) fn web_terminal(world: &mut World, request: &Request<'_>) -> Answered {
    request.query.flag("IsShared")?;
    let pod = pods::pod(world, request)?;
    if !pod.lives() {
        return Err(CallError::BadRequest(pod.id.clone(), "only a running pod has a terminal"));
    }
    Ok(object(json!({"WebTerminalUrl": link("terminal")})))
}

/// A link that is shared needs a token.
fn check_shared(request: &Request<'_>) -> Result<(), CallError> {
    if request.query.flag("isShared")? == Some(true) {
        request.query.required("token")?;
    }
    Ok(())
}

pub(super) fn dashboard(world: &mut World, request: &Request<'_>) -> Answered {
    check_shared(request)?;
    job(world, request)?;
    Ok(object(json!({"url": link("dashboard")})))
}

pub(super) fn ray_dashboard(world: &mut World, request: &Request<'_>) -> Answered {
    check_shared(request)?;
    let job = job(world, request)?;
    if job.submission.job_type != "RayJob" || !runs(job) {
        let why = "only a running RayJob has a Ray dashboard";
        return Err(CallError::BadRequest(job.id.clone(), why));
    }
    Ok(object(json!({"url": link("ray"), "metricsEnabled": false})))
}

pub(super) fn tensorboard(world: &mut World, request: &Request<'_>) -> Answered {
    let seconds = request.query.number("ExpireTimeSeconds", 0)?.unwrap_or(EXPIRE_SECONDS);
    world.records.tensorboards.get(request.id(0))?;
    let url = format!("{}&expires_in={seconds}", link("tensorboard"));
    Ok(object(json!({"TensorboardSharedUrl": url})))
}
