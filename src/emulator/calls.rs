//! The calls that the emulator answers: one row of [`ACTIONS`] each, by product, method and path.
//!
//! A call's deed is in the file of its noun below `calls/`; it reads its parameters, changes the
//! world at most once, and answers in the shape of the real one.

pub mod body;
mod checks;
mod datasets;
mod jobs;
mod links;
mod measures;
mod pods;
pub mod query;
mod services;
mod shelves;
mod signals;
mod specs;
mod spots;
mod tags;
mod templates;

use super::gateway::{Refusal, percent_decode};
use super::job::{Job, Moment, uuid};
use super::world::{CallError, World};
use body::Body;
use query::Query;
use serde_json::{Map, Value};
use std::time::Duration;

/// A product of PAI, as `x-acs-version` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Product {
    /// PAI-DLC.
    Dlc,
    /// PaiStudio.
    PaiStudio,
    /// AIWorkSpace.
    AiWorkSpace,
}

impl Product {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Dlc, Self::PaiStudio, Self::AiWorkSpace];

    /// The version of its API.
    pub fn version(self) -> &'static str {
        match self {
            Self::Dlc => "2020-12-03",
            Self::PaiStudio => "2022-01-12",
            Self::AiWorkSpace => "2021-02-04",
        }
    }

    /// Its name in endpoints and in fault rules.
    pub fn word(self) -> &'static str {
        match self {
            Self::Dlc => "pai-dlc",
            Self::PaiStudio => "paistudio",
            Self::AiWorkSpace => "aiworkspace",
        }
    }

    /// The product that has this version.
    pub fn of_version(version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|product| product.version() == version)
    }

    /// The RAM action that lets a caller do a call.
    pub fn ram_action(self, call: &str) -> String {
        let prefix = match self {
            Self::Dlc => "pai",
            Self::PaiStudio => "paistudio",
            Self::AiWorkSpace => "paidataset",
        };
        format!("{prefix}:{call}")
    }
}

type Answered = Result<Map<String, Value>, CallError>;
type Deed = fn(&mut World, &Request<'_>) -> Answered;

/// One kind of call.
#[derive(Debug)]
pub struct Action {
    /// Whose call it is.
    pub product: Product,
    /// Its name, as `x-acs-action` gives it.
    pub name: &'static str,
    method: &'static str,
    /// Below `/api/v1/`; a part in braces stands for an id.
    path: &'static str,
    deed: Deed,
}

const fn dlc(name: &'static str, method: &'static str, path: &'static str, deed: Deed) -> Action {
    Action { product: Product::Dlc, name, method, path, deed }
}

const fn workspace(
    name: &'static str,
    method: &'static str,
    path: &'static str,
    deed: Deed,
) -> Action {
    Action { product: Product::AiWorkSpace, name, method, path, deed }
}

/// Every call.
pub const ACTIONS: &[Action] = &[
    dlc("CreateJob", "POST", "jobs", jobs::create),
    dlc("ListJobs", "GET", "jobs", jobs::list),
    dlc("GetJob", "GET", "jobs/{JobId}", jobs::get),
    dlc("UpdateJob", "PUT", "jobs/{JobId}", jobs::update),
    dlc("DeleteJob", "DELETE", "jobs/{JobId}", jobs::delete),
    dlc("StopJob", "POST", "jobs/{JobId}/stop", jobs::stop),
    dlc("GetJobEvents", "GET", "jobs/{JobId}/events", jobs::events),
    dlc("GetJobMetrics", "GET", "jobs/{JobId}/metrics", measures::of_job),
    dlc("GetMetrics", "GET", "cms/metrics", measures::of_monitor),
    dlc("GetJobSanityCheckResult", "GET", "jobs/{JobId}/sanitycheckresult", checks::get),
    dlc("ListJobSanityCheckResults", "GET", "jobs/{JobId}/sanitycheckresults", checks::list),
    dlc("GetPodEvents", "GET", "jobs/{JobId}/pods/{PodId}/events", pods::events),
    dlc("GetPodLogs", "GET", "jobs/{JobId}/pods/{PodId}/logs", pods::logs),
    dlc("GetWebTerminal", "GET", "jobs/{JobId}/pods/{PodId}/webterminal", links::web_terminal),
    dlc("GetDashboard", "GET", "jobs/{JobId}/dashboard", links::dashboard),
    dlc("GetRayDashboard", "GET", "jobs/{JobId}/rayDashboard", links::ray_dashboard),
    dlc("GetToken", "GET", "tokens", links::token),
    dlc("CreateSignal", "POST", "jobs/{JobId}/signals", signals::create),
    dlc("ListSignals", "GET", "jobs/{JobId}/signals", signals::list),
    dlc("GetSignal", "GET", "jobs/{JobId}/signals/{SignalId}", signals::get),
    dlc("TagResources", "POST", "tags", tags::tag),
    dlc("UntagResources", "DELETE", "tags", tags::untag),
    dlc("ListEcsSpecs", "GET", "ecsspecs", specs::list),
    dlc("CreateTensorboard", "POST", "tensorboards", services::create_tensorboard),
    dlc("ListTensorboards", "GET", "tensorboards", services::list_tensorboards),
    dlc("GetTensorboard", "GET", "tensorboards/{Id}", services::get_tensorboard),
    dlc("UpdateTensorboard", "PUT", "tensorboards/{Id}", services::update_tensorboard),
    dlc("DeleteTensorboard", "DELETE", "tensorboards/{Id}", services::delete_tensorboard),
    dlc("StartTensorboard", "PUT", "tensorboards/{Id}/start", services::start_tensorboard),
    dlc("StopTensorboard", "PUT", "tensorboards/{Id}/stop", services::stop_tensorboard),
    dlc("GetTensorboardSharedUrl", "GET", "tensorboards/{Id}/sharedurl", links::tensorboard),
    dlc("CreateRayHistoryServer", "POST", "rayhistoryservers", services::create_ray),
    dlc("ListRayHistoryServers", "GET", "rayhistoryservers", services::list_ray),
    dlc("GetRayHistoryServer", "GET", "rayhistoryservers/{Id}", services::get_ray),
    dlc("DeleteRayHistoryServer", "DELETE", "rayhistoryservers/{Id}", services::delete_ray),
    dlc("StartRayHistoryServer", "POST", "rayhistoryservers/{Id}/start", services::start_ray),
    dlc("StopRayHistoryServer", "POST", "rayhistoryservers/{Id}/stop", services::stop_ray),
    dlc("CreateJobTemplate", "POST", "jobtemplates", templates::create),
    dlc("ListJobTemplates", "GET", "jobtemplates", templates::list),
    dlc("GetJobTemplate", "GET", "jobtemplates/{Id}", templates::get),
    dlc("UpdateJobTemplate", "PUT", "jobtemplates/{Id}", templates::update),
    dlc("DeleteJobTemplate", "DELETE", "jobtemplates/{Id}", templates::delete),
    dlc(
        "SetJobTemplateDefaultVersion",
        "PUT",
        "jobtemplates/{Id}/defaultversion",
        templates::set_default,
    ),
    Action {
        product: Product::PaiStudio,
        name: "GetSpotPriceHistory",
        method: "GET",
        path: "spots/{InstanceType}/pricehistory",
        deed: spots::price_history,
    },
    workspace("CreateDataset", "POST", "datasets", datasets::create),
    workspace("ListDatasets", "GET", "datasets", datasets::list),
    workspace("GetDataset", "GET", "datasets/{Id}", datasets::get),
    workspace("UpdateDataset", "PUT", "datasets/{Id}", datasets::update),
    workspace("DeleteDataset", "DELETE", "datasets/{Id}", datasets::delete),
    workspace("GetDatasetVersion", "GET", "datasets/{Id}/versions/{Name}", datasets::version),
];

/// One call: what is asked for, of what.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its kind.
    pub action: &'static Action,
    /// The ids in its path, in order.
    ids: Vec<String>,
}

impl Call {
    /// The call that method and path (encoded, without the query) name in the product of
    /// `version`; a version that nobody has is taken for that of PAI-DLC.
    pub fn route(version: &str, method: &str, path: &str) -> Option<Self> {
        let product = Product::of_version(version).unwrap_or(Product::Dlc);
        let parts: Vec<String> =
            path.strip_prefix("/api/v1/")?.split('/').map(percent_decode).collect();
        ACTIONS
            .iter()
            .filter(|action| action.product == product && action.method == method)
            .find_map(|action| Some(Self { action, ids: fit(action.path, &parts)? }))
    }

    /// The name of the action.
    pub fn name(&self) -> &'static str {
        self.action.name
    }

    /// How its answer spells `RequestId`: two of them differ.
    fn request_id_key(&self) -> &'static str {
        match self.name() {
            "GetJobSanityCheckResult" | "ListJobSanityCheckResults" => "RequestID",
            _ => "RequestId",
        }
    }
}

/// The ids of a path, if it has the shape of `pattern`.
fn fit(pattern: &str, parts: &[String]) -> Option<Vec<String>> {
    let wanted: Vec<&str> = pattern.split('/').collect();
    if wanted.len() != parts.len() {
        return None;
    }
    let mut ids = Vec::new();
    for (wanted, part) in wanted.into_iter().zip(parts) {
        if wanted.starts_with('{') {
            ids.push(part.clone());
        } else if wanted != part {
            return None;
        }
    }
    Some(ids)
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// JSON object.
    pub body: Map<String, Value>,
    request_id_key: &'static str,
}

impl Reply {
    /// An error in the gateway's shape.
    pub fn error(status: u16, code: &str, message: &str, host: &str) -> Self {
        let mut body = Map::new();
        body.insert("Code".into(), code.into());
        body.insert("Message".into(), message.into());
        body.insert("HostId".into(), host.into());
        body.insert("Recommend".into(), "".into());
        Self { status, body, request_id_key: "RequestId" }
    }

    /// What the gateway says when it lets nothing in.
    pub fn refusal(refusal: &Refusal, host: &str) -> Self {
        Self::error(refusal.status(), refusal.code(), &refusal.to_string(), host)
    }

    /// Gives the answer its `RequestId`.
    pub fn with_request_id(mut self) -> (Self, String) {
        let id = uuid().to_ascii_uppercase();
        self.body.insert(self.request_id_key.into(), id.clone().into());
        (self, id)
    }
}

/// A call that was let in, with its moment.
#[derive(Debug)]
pub struct Request<'a> {
    /// What is called.
    pub call: &'a Call,
    /// The query.
    pub query: Query,
    /// The body.
    pub body: &'a [u8],
    /// `Host`.
    pub host: &'a str,
    /// How long a new job stays out of ListJobs.
    pub list_lag: Duration,
    /// When it was let in.
    pub now: Moment,
}

impl Request<'_> {
    /// The id at a place of the path; a deed asks only for those that its row has.
    fn id(&self, place: usize) -> &str {
        self.call.ids.get(place).map_or("", String::as_str)
    }

    fn fields(&self) -> Result<Body, CallError> {
        Body::read(self.body)
    }
}

/// Does a call and answers it.
pub fn answer(world: &mut World, request: &Request<'_>) -> Reply {
    match (request.call.action.deed)(world, request) {
        Ok(body) => Reply { status: 200, body, request_id_key: request.call.request_id_key() },
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

/// The job that the path names first.
fn job<'a>(world: &'a World, request: &Request<'_>) -> Result<&'a Job, CallError> {
    world.job(request.id(0))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(version: &str, method: &str, path: &str) -> Option<(&'static str, Vec<String>)> {
        Call::route(version, method, path).map(|call| (call.name(), call.ids))
    }

    #[test]
    fn paths_are_decoded_after_they_are_split() {
        let id = "dlc a/b+c~d*é".to_owned();
        let path = "/api/v1/jobs/dlc%20a%2Fb%2Bc~d%2A%C3%A9";
        let dlc = Product::Dlc.version();
        assert_eq!(route(dlc, "GET", path), Some(("GetJob", vec![id])));
        assert_eq!(
            route(dlc, "POST", "/api/v1/jobs/x/stop"),
            Some(("StopJob", vec!["x".to_owned()]))
        );
        assert_eq!(route(dlc, "PATCH", "/api/v1/jobs/x"), None);
        assert_eq!(route(dlc, "GET", "/api/v2/jobs"), None);
    }

    #[test]
    fn the_version_tells_products_apart() {
        let path = "/api/v1/datasets/d-1";
        let dataset = ("GetDataset", vec!["d-1".to_owned()]);
        assert_eq!(route(Product::AiWorkSpace.version(), "GET", path), Some(dataset));
        assert_eq!(route(Product::Dlc.version(), "GET", path), None);
        assert_eq!(route(Product::PaiStudio.version(), "GET", "/api/v1/tokens"), None);
    }

    #[test]
    fn no_two_rows_answer_the_same_request() {
        let shape = |action: &Action| {
            let parts: Vec<&str> = action
                .path
                .split('/')
                .map(|part| if part.starts_with('{') { "{}" } else { part })
                .collect();
            format!("{:?} {} {}", action.product, action.method, parts.join("/"))
        };
        let mut shapes: Vec<String> = ACTIONS.iter().map(shape).collect();
        shapes.sort_unstable();
        let all = shapes.len();
        shapes.dedup();
        assert_eq!(shapes.len(), all);
    }
}
