//! The calls of PAI-DLC 2020-12-03 that the emulator answers, by method and path, and their
//! answers in the shapes of real ones.

use super::gateway::{Refusal, parse_query, percent_decode};
use super::job::{Job, Moment, Pod, local_time, uuid};
use super::listing::ListQuery;
use super::process::Pods;
use super::views;
use super::world::{CallError, World};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The version of the API, as `x-acs-version` names it.
pub const VERSION: &str = "2020-12-03";
/// Lines of one log answer.
const LOG_LINES_LIMIT: usize = 100_000;
/// Lines of one log or events answer when nothing is asked for.
const LINES_DEFAULT: usize = 2_000;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `POST /api/v1/jobs`.
    CreateJob,
    /// `GET /api/v1/jobs`.
    ListJobs,
    /// `GET /api/v1/jobs/{JobId}`.
    GetJob(String),
    /// `POST /api/v1/jobs/{JobId}/stop`.
    StopJob(String),
    /// `DELETE /api/v1/jobs/{JobId}`.
    DeleteJob(String),
    /// `GET /api/v1/jobs/{JobId}/events`.
    GetJobEvents(String),
    /// `GET /api/v1/jobs/{JobId}/pods/{PodId}/events`.
    GetPodEvents(String, String),
    /// `GET /api/v1/jobs/{JobId}/pods/{PodId}/logs`.
    GetPodLogs(String, String),
    /// `GET /api/v1/ecsspecs`.
    ListEcsSpecs,
}

impl Call {
    /// The call that method and path (encoded, without the query) name.
    pub fn route(method: &str, path: &str) -> Option<Self> {
        let rest = path.strip_prefix("/api/v1/")?;
        let parts: Vec<String> = rest.split('/').map(percent_decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Some(match (method, parts.as_slice()) {
            ("POST", ["jobs"]) => Self::CreateJob,
            ("GET", ["jobs"]) => Self::ListJobs,
            ("GET", ["jobs", id]) => Self::GetJob((*id).to_owned()),
            ("POST", ["jobs", id, "stop"]) => Self::StopJob((*id).to_owned()),
            ("DELETE", ["jobs", id]) => Self::DeleteJob((*id).to_owned()),
            ("GET", ["jobs", id, "events"]) => Self::GetJobEvents((*id).to_owned()),
            ("GET", ["jobs", id, "pods", pod, "events"]) => {
                Self::GetPodEvents((*id).to_owned(), (*pod).to_owned())
            }
            ("GET", ["jobs", id, "pods", pod, "logs"]) => {
                Self::GetPodLogs((*id).to_owned(), (*pod).to_owned())
            }
            ("GET", ["ecsspecs"]) => Self::ListEcsSpecs,
            _ => return None,
        })
    }

    /// The name of the action.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CreateJob => "CreateJob",
            Self::ListJobs => "ListJobs",
            Self::GetJob(_) => "GetJob",
            Self::StopJob(_) => "StopJob",
            Self::DeleteJob(_) => "DeleteJob",
            Self::GetJobEvents(_) => "GetJobEvents",
            Self::GetPodEvents(..) => "GetPodEvents",
            Self::GetPodLogs(..) => "GetPodLogs",
            Self::ListEcsSpecs => "ListEcsSpecs",
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// JSON object.
    pub body: Map<String, Value>,
}

impl Reply {
    /// An error in the gateway's shape.
    pub fn error(status: u16, code: &str, message: &str, host: &str) -> Self {
        let mut body = Map::new();
        body.insert("Code".into(), code.into());
        body.insert("Message".into(), message.into());
        body.insert("HostId".into(), host.into());
        body.insert("Recommend".into(), "".into());
        Self { status, body }
    }

    /// What the gateway says when it lets nothing in.
    pub fn refusal(refusal: &Refusal, host: &str) -> Self {
        Self::error(refusal.status(), refusal.code(), &refusal.to_string(), host)
    }

    /// Gives the answer its `RequestId`.
    pub fn with_request_id(mut self) -> (Self, String) {
        let id = uuid().to_ascii_uppercase();
        self.body.insert("RequestId".into(), id.clone().into());
        (self, id)
    }
}

/// A call that was let in, with its moment.
#[derive(Debug)]
pub struct Request<'a> {
    /// What is called.
    pub call: &'a Call,
    /// The query as sent, without `?`.
    pub query: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// `Host`.
    pub host: &'a str,
    /// How long a new job stays out of ListJobs.
    pub list_lag: Duration,
}

/// Does a call and answers it.
pub fn answer(world: &mut World, request: &Request<'_>, now: Moment) -> Reply {
    let done = do_call(world, request, now);
    match done {
        Ok(body) => Reply { status: 200, body },
        Err(error) => {
            let (status, code) = match &error {
                CallError::InvalidParameter(_) => (400, "InvalidParameter"),
                CallError::NotFound(_) => (404, "NotFound"),
                CallError::BadRequest(..) => (400, "BadRequest"),
                CallError::Ledger(_) | CallError::Stopped => (500, "InternalError"),
            };
            if status == 500 {
                tracing::error!(error = %error, "the emulator cannot go on");
            }
            Reply::error(status, code, &error.to_string(), request.host)
        }
    }
}

fn do_call(
    world: &mut World,
    request: &Request<'_>,
    now: Moment,
) -> Result<Map<String, Value>, CallError> {
    let query = parse_query(request.query);
    let get = |name: &str| query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let lines = |name: &str| match get(name) {
        None | Some("") => Ok(LINES_DEFAULT),
        Some(text) => text
            .parse()
            .map(|count: usize| count.min(LOG_LINES_LIMIT))
            .map_err(|_| CallError::InvalidParameter(format!("{name}: {text} is no number"))),
    };
    let only_id = |id: &str| object(json!({"JobId": id}));
    match request.call {
        Call::CreateJob => world.create(request.body, now).map(|id| only_id(&id)),
        Call::StopJob(id) => world.stop(id, now).map(|()| only_id(id)),
        Call::DeleteJob(id) => world.delete(id, now).map(|()| only_id(id)),
        Call::GetJob(id) => Ok(views::whole(world.job(id)?, now.wall)),
        Call::ListJobs => {
            let query = ListQuery::read(&query, now.wall).map_err(CallError::InvalidParameter)?;
            let shown = world.jobs().filter(|job| job.created.at + request.list_lag <= now.at);
            let (page, total) = query.page(shown);
            let items: Vec<_> = page.into_iter().map(|job| views::item(job, now.wall)).collect();
            Ok(object(json!({"Jobs": items, "TotalCount": total})))
        }
        Call::GetJobEvents(id) => {
            let job = world.job(id)?;
            let from = job.events.len().saturating_sub(lines("MaxEventsNum")?);
            Ok(object(json!({"JobId": id, "Events": job.events[from..]})))
        }
        Call::GetPodEvents(id, pod_id) => {
            let pod = pod(world.job(id)?, pod_id, get("PodUid"))?;
            let body = json!({
                "JobId": id, "PodId": pod.id, "PodUid": pod.uid, "Events": pod_events(pod),
            });
            Ok(object(body))
        }
        Call::GetPodLogs(id, pod_id) => {
            let pod = pod(world.job(id)?, pod_id, get("PodUid"))?;
            let logs = match world.pods() {
                Some(pods) => Pods::tail(&pods.log_path(id, &pod.place()), lines("MaxLines")?),
                None => Ok(Vec::new()),
            };
            // A pod that never ran has no log: that is an empty one.
            let logs = logs.unwrap_or_default();
            let body = json!({"JobId": id, "PodId": pod.id, "PodUid": pod.uid, "Logs": logs});
            Ok(object(body))
        }
        Call::ListEcsSpecs => {
            list_ecs_specs(world, &query, now).map_err(CallError::InvalidParameter)
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

/// A pod; `uid` may name one that was in its place before.
fn pod<'a>(job: &'a Job, id: &str, uid: Option<&str>) -> Result<&'a Pod, CallError> {
    let uid = uid.filter(|uid| !uid.is_empty());
    job.pod(id, uid).ok_or_else(|| CallError::NotFound(id.to_owned()))
}

fn pod_events(pod: &Pod) -> Vec<String> {
    let line = |wall, text: String| format!("{} {text}", local_time(wall));
    let created = pod.created.map(|wall| {
        line(wall, format!("Normal Scheduled Successfully assigned {} to emulator", pod.id))
    });
    let started = pod.started.map(|wall| line(wall, "Normal Started Started container".into()));
    created.into_iter().chain(started).collect()
}

/// Instance types that are offered: name, CPU cores, GiB, GPUs, GPU type, GiB a GPU, resource type.
const SPECS: [(&str, u32, u32, u32, &str, u32, &str); 5] = [
    ("ecs.g7.xlarge", 4, 16, 0, "", 0, "ECS"),
    ("ecs.gn7i-c8g1.2xlarge", 8, 30, 1, "NVIDIA A10", 24, "ECS"),
    ("ecs.gn7e-c16g1.4xlarge", 16, 125, 1, "NVIDIA A100", 80, "ECS"),
    ("ecs.gn6v-c8g1.2xlarge", 8, 32, 1, "NVIDIA V100", 16, "ECS"),
    ("ml.gu7ef.8xlarge-gu100", 32, 256, 1, "GU100", 96, "Lingjun"),
];

fn list_ecs_specs(
    world: &mut World,
    query: &[(String, String)],
    now: Moment,
) -> Result<Map<String, Value>, String> {
    let get = |name: &str| {
        query.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    };
    if get("SortBy").is_some() {
        // The real one refuses every documented value.
        return Err("SortBy: cannot be used".to_owned());
    }
    let quote = world.market.quote(now.at);
    let specs: Vec<Value> = SPECS
        .iter()
        .map(|(name, cpu, memory, gpus, gpu_type, gpu_memory, resource_type)| {
            json!({
                "InstanceType": name,
                "AcceleratorType": if *gpus == 0 { "CPU" } else { "GPU" },
                "Cpu": cpu, "Memory": memory, "Gpu": gpus, "GpuType": gpu_type,
                "GpuMemory": gpu_memory, "ResourceType": resource_type, "IsAvailable": true,
                "DefaultGPUDriver": "", "SupportedGPUDrivers": [],
                "PaymentTypes": ["PostPaid", "Spot"],
                // Only WithStock is known; the other word is a guess.
                "SpotStockStatus": if quote.stock { "WithStock" } else { "NoStock" },
                "NonProtectSpotDiscount": quote.discount,
            })
        })
        .filter(|spec| {
            let is = |name: &str| get(name).is_none_or(|wanted| spec[name] == wanted);
            let named = get("InstanceTypes").is_none_or(|wanted| {
                wanted.split(',').any(|name| spec["InstanceType"] == name.trim())
            });
            is("AcceleratorType") && is("ResourceType") && named
        })
        .collect();
    let total = specs.len();
    Ok(object(json!({"EcsSpecs": specs, "TotalCount": total})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_after_they_are_split() {
        let id = "dlc a/b+c~d*é".to_owned();
        let path = "/api/v1/jobs/dlc%20a%2Fb%2Bc~d%2A%C3%A9";
        assert_eq!(Call::route("GET", path), Some(Call::GetJob(id)));
        assert_eq!(Call::route("POST", "/api/v1/jobs/x/stop"), Some(Call::StopJob("x".into())));
        assert_eq!(Call::route("PUT", "/api/v1/jobs/x"), None);
        assert_eq!(Call::route("GET", "/api/v2/jobs"), None);
    }
}
