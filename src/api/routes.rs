//! Addresses, and what each one asks of the driver.

use super::gate::{Gate, guard};
use super::patience::{Limited, Turn};
use super::wire::{self, ActDocument, ActRequest, ErrorDocument, JobList, VersionDocument, codes};
use crate::model::error::Code;
use crate::model::handle::{ActVerb, Handle, Refusal, Request};
use crate::model::ids::CloudId;
use axum::Router;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;

/// How long the driver may take to answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How long a look into a bucket may take.
pub const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// How long a whole request may take, its body included.
pub const REQUEST_LIMIT: Duration = Duration::from_secs(70);
/// How long open requests may go on after the stop.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of a request's body.
pub const BODY_LIMIT_BYTES: usize = 1024 * 1024;
/// Jobs that one act may name.
pub const ACT_NAMES_LIMIT: usize = 10_000;
/// Events on one page.
pub const EVENTS_LIMIT: usize = 1_000;

/// How long each kind of question may take.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    /// For what the driver knows.
    pub answer: Duration,
    /// For a look into a bucket.
    pub look: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self { answer: ANSWER_LIMIT, look: LOOK_LIMIT }
    }
}

#[derive(Debug, Clone)]
struct Door {
    handle: Handle,
    waits: Waits,
}

/// Serves the API on `listener` until `stop`; then open requests have [`DRAIN_LIMIT`] to end. The
/// socket's file stays: the next daemon may already have replaced it.
pub async fn serve(
    listener: UnixListener,
    handle: Handle,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_on(Limited::new(listener), router(handle, Waits::default()), stop).await
}

/// The same on TCP, with what `gate` asks of callers.
pub async fn serve_tcp(
    listener: TcpListener,
    gate: Gate,
    handle: Handle,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let guarded =
        router(handle, Waits::default()).layer(middleware::from_fn_with_state(gate, guard));
    serve_on(Limited::new(listener), guarded, stop).await
}

async fn serve_on<L>(
    listener: Limited<L>,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()>
where
    L: Listener,
    L::Io: Unpin,
    L::Addr: std::fmt::Debug,
{
    let (stopped, stopping) = oneshot::channel();
    let service = router.into_make_service_with_connect_info::<Turn>();
    let serving = axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            stop.await;
            // Nobody waits for it once the serving has ended by itself.
            let _ = stopped.send(());
        })
        .into_future();
    let drained = async {
        // The sender is dropped only together with the serving.
        let _ = stopping.await;
        tokio::time::sleep(DRAIN_LIMIT).await;
    };
    tokio::select! {
        ended = serving => ended,
        () = drained => Ok(()),
    }
}

/// All addresses, over one door.
pub fn router(handle: Handle, waits: Waits) -> Router {
    let act_on = |verb: ActVerb| {
        post(
            move |State(door): State<Door>,
                  Path(name): Path<String>,
                  query: Result<Query<ActQuery>, QueryRejection>| async move {
                let from = query?.0.from;
                let verb = wire::verb_of(verb, from.as_deref()).map_err(Fault::bad)?;
                act(&door, vec![name], verb).await
            },
        )
    };
    Router::new()
        .route("/api/v1/jobs", get(jobs))
        .route("/api/v1/jobs/{name}", get(job))
        .route("/api/v1/jobs/{name}/why", get(why))
        .route("/api/v1/jobs/{name}/evidence", get(evidence))
        .route("/api/v1/jobs/{name}/body", get(body))
        .route("/api/v1/jobs/{name}/logs", get(logs))
        .route("/api/v1/jobs/{name}/checkpoints", get(checkpoints))
        .route("/api/v1/jobs/{name}/cancel", act_on(ActVerb::Cancel))
        .route("/api/v1/jobs/{name}/pause", act_on(ActVerb::Pause))
        .route("/api/v1/jobs/{name}/resume", act_on(ActVerb::Resume))
        .route("/api/v1/jobs/{name}/retry", act_on(ActVerb::Retry))
        .route("/api/v1/jobs/{name}/forget", act_on(ActVerb::Forget))
        .route("/api/v1/jobs/{name}/adopt", post(adopt))
        .route("/api/v1/act", post(act_on_several))
        .route("/api/v1/events", get(events))
        .route("/api/v1/daemon", get(daemon))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/version", get(async || answer(&VersionDocument::own())))
        .fallback(async || Fault::NoSuchAddress)
        .method_not_allowed_fallback(async || Fault::WrongMethod)
        .layer(DefaultBodyLimit::max(BODY_LIMIT_BYTES))
        .layer(middleware::from_fn(limit_time))
        .with_state(Door { handle, waits })
}

/// Why a request is not answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the daemon's loop did not answer in time; what was asked for may still happen")]
    NoAnswer,
    #[error("the daemon is stopping")]
    Stopping,
    #[error("the request took too long to arrive")]
    TooSlow,
    #[error("{1}")]
    Bad(StatusCode, String),
    #[error("there is nothing at this address")]
    NoSuchAddress,
    #[error("this address does not take this method")]
    WrongMethod,
}

impl Fault {
    fn status(&self) -> StatusCode {
        match self {
            Self::Refused(Refusal::NoSuchJob(_) | Refusal::NoSuchAttempt(..))
            | Self::NoSuchAddress => StatusCode::NOT_FOUND,
            Self::Refused(Refusal::NotNow(_)) => StatusCode::CONFLICT,
            Self::Refused(Refusal::StoreDown(_)) | Self::NoAnswer | Self::Stopping => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Bad(status, _) => *status,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
        }
    }

    fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => wire::code_of(refusal),
            Self::NoAnswer | Self::Stopping => codes::NO_ANSWER,
            Self::TooSlow | Self::Bad(..) => codes::BAD_REQUEST,
            Self::NoSuchAddress | Self::WrongMethod => codes::NO_SUCH_ADDRESS,
        }
    }

    fn bad(message: impl Into<String>) -> Self {
        Self::Bad(StatusCode::BAD_REQUEST, message.into())
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let body = ErrorDocument { code: self.code().to_string(), message: self.to_string() };
        (self.status(), Json(wire::document(&body))).into_response()
    }
}

impl From<QueryRejection> for Fault {
    fn from(rejection: QueryRejection) -> Self {
        Self::Bad(rejection.status(), rejection.body_text())
    }
}

impl From<JsonRejection> for Fault {
    fn from(rejection: JsonRejection) -> Self {
        Self::Bad(rejection.status(), rejection.body_text())
    }
}

type Answer = Result<Response, Fault>;

fn answer(body: &impl Serialize) -> Response {
    Json(wire::document(body)).into_response()
}

/// Puts one question through the door and waits for its answer.
async fn ask<T>(
    door: &Door,
    wait: Duration,
    question: impl FnOnce(oneshot::Sender<T>) -> Request,
) -> Result<T, Fault> {
    let (reply, answered) = oneshot::channel();
    let whole = async {
        door.handle.send(question(reply)).await.map_err(|_| Fault::Stopping)?;
        answered.await.map_err(|_| Fault::Stopping)
    };
    tokio::time::timeout(wait, whole).await.unwrap_or(Err(Fault::NoAnswer))
}

async fn limit_time(request: axum::extract::Request, next: Next) -> Response {
    // A connection that is not one of ours, in a test, has nobody who counts its time.
    let turn = request.extensions().get::<ConnectInfo<Turn>>().map(|turn| turn.0.clone());
    let _taken = turn.as_ref().map(Turn::take);
    let whole = tokio::time::timeout(REQUEST_LIMIT, next.run(request)).await;
    whole.unwrap_or_else(|_| Fault::TooSlow.into_response())
}

async fn jobs(State(door): State<Door>) -> Answer {
    let jobs = ask(&door, door.waits.answer, Request::Jobs).await?;
    Ok(answer(&JobList { jobs }))
}

async fn job(State(door): State<Door>, Path(name): Path<String>) -> Answer {
    let page = ask(&door, door.waits.answer, |reply| Request::Job { name, reply }).await??;
    Ok(answer(&page))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhyQuery {
    attempt: Option<u32>,
}

async fn why(
    State(door): State<Door>,
    Path(name): Path<String>,
    query: Result<Query<WhyQuery>, QueryRejection>,
) -> Answer {
    let attempt = query?.0.attempt;
    let view = ask(&door, door.waits.answer, |reply| Request::Why { name, attempt, reply });
    Ok(answer(&view.await??))
}

async fn evidence(
    State(door): State<Door>,
    Path(name): Path<String>,
    query: Result<Query<WhyQuery>, QueryRejection>,
) -> Answer {
    let attempt = query?.0.attempt;
    let view = ask(&door, door.waits.look, |reply| Request::Evidence { name, attempt, reply });
    Ok(answer(&view.await??))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LogsQuery {
    attempt: Option<u32>,
    rank: Option<u32>,
}

async fn logs(
    State(door): State<Door>,
    Path(name): Path<String>,
    query: Result<Query<LogsQuery>, QueryRejection>,
) -> Answer {
    let LogsQuery { attempt, rank } = query?.0;
    let rank = rank.unwrap_or_default();
    let view = ask(&door, door.waits.look, |reply| Request::Logs { name, attempt, rank, reply });
    Ok(answer(&view.await??))
}

async fn body(State(door): State<Door>, Path(name): Path<String>) -> Answer {
    let body = ask(&door, door.waits.answer, |reply| Request::Body { name, reply }).await??;
    Ok(answer(&wire::BodyDocument { body: body.body, spec: body.spec }))
}

async fn checkpoints(State(door): State<Door>, Path(name): Path<String>) -> Answer {
    let look = ask(&door, door.waits.look, |reply| Request::Checkpoints { name, reply });
    Ok(answer(&look.await??))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    job: Option<String>,
    #[serde(default)]
    after: u64,
    limit: Option<usize>,
}

async fn events(
    State(door): State<Door>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Answer {
    let EventsQuery { job, after, limit } = query?.0;
    let limit = limit.unwrap_or(EVENTS_LIMIT).clamp(1, EVENTS_LIMIT);
    let page = ask(&door, door.waits.answer, |reply| Request::Events { job, after, limit, reply });
    Ok(answer(&page.await??))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActQuery {
    from: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdoptQuery {
    id: String,
}

/// As long as a look may take: DLC is asked, and a new store may have to wait.
async fn adopt(
    State(door): State<Door>,
    Path(name): Path<String>,
    query: Result<Query<AdoptQuery>, QueryRejection>,
) -> Answer {
    let id = CloudId::new(query?.0.id).map_err(|error| Fault::bad(error.to_string()))?;
    let done = ask(&door, door.waits.look, |reply| Request::Adopt { id, name, reply });
    Ok(answer(&ActDocument { done: vec![done.await??] }))
}

async fn act_on_several(
    State(door): State<Door>,
    request: Result<Json<ActRequest>, JsonRejection>,
) -> Answer {
    let ActRequest { names, verb, from } = request?.0;
    let verb = wire::verb_of(verb, from.as_deref()).map_err(Fault::bad)?;
    // To the driver an empty list means every job: nobody gets there by leaving something out.
    if names.is_empty() {
        return Err(Fault::bad("`names` is empty: name the jobs"));
    }
    if names.len() > ACT_NAMES_LIMIT {
        return Err(Fault::bad(format!("more than {ACT_NAMES_LIMIT} jobs in one act")));
    }
    act(&door, names, verb).await
}

async fn act(door: &Door, names: Vec<String>, verb: ActVerb) -> Answer {
    let done = ask(door, door.waits.answer, |reply| Request::Act { names, verb, reply });
    Ok(answer(&ActDocument { done: done.await?? }))
}

async fn daemon(State(door): State<Door>) -> Answer {
    Ok(answer(&ask(&door, door.waits.answer, Request::Daemon).await?))
}

/// The process is alive and its loop turns: it answered this very question.
async fn healthz(State(door): State<Door>) -> Answer {
    ask(&door, door.waits.answer, Request::Daemon).await?;
    Ok(answer(&serde_json::json!({ "status": "ok" })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadyQuery {
    verbose: Option<String>,
}

/// Whether the daemon can do its work: 200 also where only something outside does not. `verbose`
/// shows what is well, too.
async fn readyz(
    State(door): State<Door>,
    query: Result<Query<ReadyQuery>, QueryRejection>,
) -> Answer {
    let is_verbose = query?.0.verbose.is_some_and(|value| value != "0" && value != "false");
    let mut ready = ask(&door, door.waits.answer, Request::Ready).await?;
    if !is_verbose {
        ready.checks.retain(|check| check.status != "ok");
    }
    let is_ready = ready.status != "not_ready";
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, answer(&ready)).into_response())
}

/// All figures, in Prometheus' text format.
async fn metrics(State(door): State<Door>) -> Answer {
    let page = ask(&door, door.waits.answer, Request::Metrics).await?;
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, page.render()).into_response())
}
