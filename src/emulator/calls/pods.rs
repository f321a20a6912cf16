//! The calls on one pod: its events and its log.

use super::jobs::{lines, newest};
use super::query::DEFAULT_WINDOW;
use super::{Answered, Request, job, object};
use crate::emulator::job::{Pod, local_time};
use crate::emulator::process::Pods;
use crate::emulator::world::{CallError, World};
use crate::model::time::WallTime;
use serde_json::{Value, json};
use std::time::Duration;

/// The pod that the path names, or with `PodUid` that one, which may be an earlier one.
pub(super) fn pod<'a>(world: &'a World, request: &Request<'_>) -> Result<&'a Pod, CallError> {
    let (id, uid) = (request.id(1), request.query.text("PodUid"));
    let missing = || match uid {
        None => CallError::NotFound(id.to_owned()),
        Some(uid) => CallError::NotFound(format!("{id} with uid {uid}")),
    };
    job(world, request)?.pod(id, uid).ok_or_else(missing)
}

pub(super) fn events(world: &mut World, request: &Request<'_>) -> Answered {
    let pod = pod(world, request)?;
    let events = newest(request, &event_lines(pod))?;
    Ok(object(json!({
        "JobId": request.id(0), "PodId": pod.id, "PodUid": pod.uid, "Events": events,
    })))
}

/// What a pod went through, in the words of Kubernetes.
fn event_lines(pod: &Pod) -> Vec<String> {
    let line = |wall: WallTime, text: String| format!("{} {text}", local_time(wall));
    let created = pod.created.into_iter().flat_map(|wall| {
        [
            line(wall, format!("Normal Scheduled Successfully assigned {} to emulator", pod.id)),
            line(wall, "Normal SubStatusChanged Scheduling -> ImagePulling".to_owned()),
        ]
    });
    let started = pod.started.into_iter().flat_map(|wall| {
        [
            line(wall, "Normal SubStatusChanged ImagePulling -> WaitingForRun".to_owned()),
            line(wall, "Normal Started Started container".to_owned()),
        ]
    });
    created.chain(started).collect()
}

/// GetPodLogs. Lines carry no times: a window that the pod's life touches shows them all.
pub(super) fn logs(world: &mut World, request: &Request<'_>) -> Answered {
    let pod = pod(world, request)?;
    let window = request.query.window(request.now, DEFAULT_WINDOW)?;
    let most = lines(request, "MaxLines")?;
    request.query.flag("DownloadToFile")?;
    let lived = pod.started.is_some_and(|started| {
        started <= window.until && pod.finished.unwrap_or(request.now.wall) >= window.from
    });
    let logs = match world.pods() {
        // A pod that never ran has no log: that is an empty one.
        Some(pods) if lived => {
            Pods::tail(&pods.log_path(request.id(0), &pod.place()), most).unwrap_or_default()
        }
        None if lived => {
            let job = job(world, request)?;
            let ends = pod.finished.into_iter().chain(job.hangs);
            let until = ends.fold(request.now.wall, WallTime::min);
            let ran = pod.started.map_or(Duration::ZERO, |started| until.since(started));
            job.submission.virtual_run().log.tail(ran, most)
        }
        Some(_) | None => Vec::new(),
    };
    let mut answer = object(json!({
        "JobId": request.id(0), "PodId": pod.id, "PodUid": pod.uid, "Logs": logs,
        "ContainerInfo": {"MainContainer": "main", "SidecarContainers": []},
    }));
    if let Some(containers) = request.query.text("Containers") {
        answer.insert("Containers".to_owned(), Value::from(containers));
    }
    Ok(answer)
}
