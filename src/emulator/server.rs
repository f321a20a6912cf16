//! The emulator's HTTP side: signed calls, the routes of whoever runs the test, and the clockwork
//! that moves jobs on.
//!
//! A call that has come in is done even when its caller goes away meanwhile: the real service does
//! not take a request back either.

use super::calls::query::Query;
use super::calls::{Call, Product, Reply, Request, answer};
use super::dialect::Dialect;
use super::faults::{Answer, Denied, Faults, Says, Turn, usual_denial};
use super::gateway::{Gateway, Received, parse_query};
use super::job::Moment;
use super::job::uuid;
use super::ledger::Ledger;
use super::market::Market;
use super::mounts::Mounts;
use super::process::{PodEnd, Pods};
use super::spoil::Spoil;
use super::views;
use super::wire::{Cut, Listener};
use super::world::{CallError, Pace, Runner, World};
use super::{AsRoot, EmulatorError, Options, RunAs};
use crate::model::time::BootTime;
use crate::service::clock::Clock;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderValue, StatusCode, header, request::Parts};
use axum::response::Response;
use axum::routing::{any, get, post};
use axum::{Json, Router};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Time between two looks at clock and market.
const TICK: Duration = Duration::from_millis(20);
/// Ends of pods that wait to be noted.
const ENDS_LIMIT: usize = 1024;
/// Size of a request's body before it is read; larger ones do not reach the call.
const BODY_LIMIT_BYTES: usize = 4 * 1024 * 1024;
/// How long the processes of pods may take to be gone at a shutdown.
const SHUTDOWN_WAIT: Duration = Duration::from_secs(5);

/// What all requests share.
#[derive(Debug)]
struct Shared {
    world: Mutex<World>,
    gateway: Mutex<Gateway>,
    faults: Mutex<Faults>,
    clock: Clock,
    started: BootTime,
    list_lag: Duration,
}

impl Shared {
    fn now(&self) -> Moment {
        let now = self.clock.now();
        Moment { at: now.boot.since(self.started), wall: now.wall }
    }

    fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }
}

/// What a panicking request left behind is still what the ledger says.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An emulator that answers.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
    clockwork: JoinHandle<()>,
}

impl Running {
    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends it: no more answers, and no process of a pod is left.
    pub async fn shutdown(self) {
        self.server.abort();
        self.shared.world().kill_all();
        let gone = async {
            while self.shared.world().has_processes() {
                tokio::time::sleep(TICK).await;
                // A pod that was just being started is killed by the next round.
                self.shared.world().kill_all();
            }
        };
        if tokio::time::timeout(SHUTDOWN_WAIT, gone).await.is_err() {
            tracing::warn!("some pods are still there; the watcher kills them");
        }
        // Dropping it closes the world.
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.server.abort();
        self.clockwork.abort();
        let mut world = self.shared.world();
        world.kill_all();
        world.close();
    }
}

/// Starts the emulator.
///
/// # Errors
/// [`EmulatorError`]: an address that is not loopback, root without leave, a folder in use.
pub async fn serve(options: Options) -> Result<Running, EmulatorError> {
    if !options.listen.ip().is_loopback() {
        return Err(EmulatorError::NotLoopback(options.listen));
    }
    let (ends, ended) = mpsc::channel(ENDS_LIMIT);
    let runner = match &options.run_as {
        RunAs::Virtual => Runner::Virtual,
        RunAs::Processes { data_mount } => {
            if rustix::process::geteuid().is_root() && options.as_root == AsRoot::Refused {
                return Err(EmulatorError::Root);
            }
            let oss_root = options.oss_root.clone();
            let mounts = Mounts::new(&options.folder, data_mount.clone(), oss_root);
            let folder = options.folder.join("jobs");
            Runner::Processes(Pods::open(folder, mounts, ends).map_err(EmulatorError::Process)?)
        }
    };
    let failed = |source| EmulatorError::Listen { address: options.listen, source };
    let listener = tokio::net::TcpListener::bind(options.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;

    let clock = Clock::new();
    let now = clock.now();
    let world = World::open(
        Ledger::open(&options.folder).map_err(EmulatorError::Ledger)?,
        Market::open(&options.market).map_err(EmulatorError::Market)?,
        options.dialects,
        runner,
        Pace {
            phase_delay: options.phase_delay,
            grace: options.grace,
            list_price_per_minute: options.list_price_per_minute,
            minute: options.minute,
        },
        Moment { at: Duration::ZERO, wall: now.wall },
    )
    .map_err(EmulatorError::Ledger)?;
    let shared = Arc::new(Shared {
        world: Mutex::new(world),
        gateway: Mutex::new(Gateway::new(options.key, options.acceptance)),
        faults: Mutex::new(Faults::new(0)),
        clock,
        started: now.boot,
        list_lag: options.list_lag,
    });
    let clockwork = tokio::spawn(clockwork(Arc::clone(&shared), ended));
    let service = routes(Arc::clone(&shared)).into_make_service_with_connect_info::<Cut>();
    let server = tokio::spawn(async move {
        if let Err(error) = axum::serve(Listener(listener), service).await {
            tracing::error!(error = %error, "the emulator no longer listens");
        }
    });
    Ok(Running { address, shared, server, clockwork })
}

async fn clockwork(shared: Arc<Shared>, mut ended: mpsc::Receiver<PodEnd>) {
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut ends_are_open = true;
    loop {
        let end = tokio::select! {
            _ = tick.tick() => None,
            end = ended.recv(), if ends_are_open => {
                ends_are_open = end.is_some();
                end
            }
        };
        let now = shared.now();
        let mut world = shared.world();
        let done = match &end {
            None => world.advance(now),
            Some(end) => world.pod_ended(end, now),
        };
        if let Err(error @ CallError::Ledger(_)) = &done {
            tracing::error!(error = %error, "the emulator stops: its ledger cannot be written");
        }
    }
}

fn routes(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/emulator/jobs", get(list_all))
        .route("/emulator/release/{id}", post(release))
        .route("/emulator/hang/{id}", post(hang))
        .route("/emulator/lose/{id}", post(lose))
        .route("/emulator/faults", get(get_faults).put(put_faults).delete(end_faults))
        .route("/emulator/market", get(get_market).post(set_market))
        .route("/emulator/{*rest}", any(no_such_switch))
        .fallback(signed_call)
        .with_state(shared)
}

/// A switch that is not there: the signature that it lacks would be a wrong lead.
async fn no_such_switch() -> Response {
    plain(
        404,
        "no such switch: jobs, release/JOBID, hang/JOBID, lose/JOBID, market, faults".to_owned(),
    )
}

/// Everything but the admin routes.
async fn signed_call(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    request: axum::extract::Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, BODY_LIMIT_BYTES).await else {
        return plain(413, "the body is too large".to_owned());
    };
    // A task of its own goes on when the caller hangs up.
    match tokio::spawn(suffer(shared, cut, parts, body)).await {
        Ok(response) => response,
        Err(_) => plain(500, "InternalError".to_owned()),
    }
}

/// What is known of a request before it is checked.
struct Aim {
    call: Option<Call>,
    product: Product,
    host: String,
}

impl Aim {
    fn of(parts: &Parts) -> Self {
        let version = header_of(parts, "x-acs-version");
        Self {
            call: Call::route(version, parts.method.as_str(), parts.uri.path()),
            product: Product::of_version(version).unwrap_or(Product::Dlc),
            host: header_of(parts, "host").to_owned(),
        }
    }

    fn name(&self) -> &'static str {
        self.call.as_ref().map_or("", Call::name)
    }
}

fn header_of<'a>(parts: &'a Parts, name: &str) -> &'a str {
    parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// Does a call with whatever fault it meets.
async fn suffer(shared: Arc<Shared>, cut: Cut, parts: Parts, body: Bytes) -> Response {
    let aim = Aim::of(&parts);
    let fault = lock(&shared.faults).meet(aim.product, aim.name());
    tokio::time::sleep(fault.hold_before).await;
    let reply = match &fault.turn {
        Turn::DropBefore => {
            cut.now();
            return Response::default();
        }
        Turn::AnswerInstead(answer) => {
            let code = match &answer.says {
                Says::Raw(_) => answer.status.to_string(),
                Says::Error { code, .. } => code.clone(),
            };
            note_refusal(&shared, &aim, &body, &code);
            tokio::time::sleep(fault.delay).await;
            return respond_with(answer, &aim);
        }
        Turn::Fair | Turn::DropReply | Turn::AnswerAfter(_) | Turn::Spoil(_) => {
            do_call(&shared, &aim, &parts, &body)
        }
    };
    tokio::time::sleep(fault.delay).await;
    match fault.turn {
        Turn::DropReply => {
            cut.now();
            Response::default()
        }
        Turn::AnswerAfter(answer) => respond_with(&answer, &aim),
        Turn::Spoil(spoil) => respond(reply, Some(&spoil)),
        Turn::Fair | Turn::DropBefore | Turn::AnswerInstead(_) => respond(reply, None),
    }
}

/// The gateway's checks, then the call itself.
fn do_call(shared: &Shared, aim: &Aim, parts: &Parts, body: &[u8]) -> Reply {
    let headers: Vec<(String, String)> = parts
        .headers
        .iter()
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect();
    let host = aim.host.as_str();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let received = Received { method: parts.method.as_str(), target, headers: &headers, body };
    // One moment for the check and the deed: what was let in is done at the time of the check.
    let mut world = shared.world();
    let now = shared.now();
    if let Err(refusal) = lock(&shared.gateway).verify(&received, now.wall) {
        if aim.name() == "CreateJob" {
            // A ledger that fails here stops the world: the next call says so.
            drop(world.refused(body, refusal.code(), now));
        }
        return Reply::refusal(&refusal, host);
    }
    let action = header_of(parts, "x-acs-action");
    let Some(call) = aim.call.as_ref().filter(|call| action == call.name()) else {
        let what = "Specified api is not found, please check your url and method.";
        return Reply::error(404, "InvalidAction.NotFound", what, host);
    };
    if Product::of_version(header_of(parts, "x-acs-version")).is_none() {
        return Reply::error(400, "InvalidVersion", "Specified version is not supported.", host);
    }
    let query = Query::read(parts.uri.query().unwrap_or(""));
    answer(&mut world, &Request { call, query, body, host, list_lag: shared.list_lag, now })
}

fn note_refusal(shared: &Shared, aim: &Aim, body: &[u8], code: &str) {
    if aim.name() == "CreateJob" {
        let now = shared.now();
        drop(shared.world().refused(body, code, now));
    }
}

fn respond(reply: Reply, spoil: Option<&Spoil>) -> Response {
    let (reply, request_id) = reply.with_request_id();
    let body = match spoil {
        None => Value::Object(reply.body).to_string().into_bytes(),
        Some(spoil) => spoil.body(reply.body),
    };
    signed(reply.status, body, &request_id)
}

/// The answer of a fault.
fn respond_with(answer: &Answer, aim: &Aim) -> Response {
    let mut response = match &answer.says {
        Says::Raw(body) => {
            signed(answer.status, body.clone().into_bytes(), &uuid().to_ascii_uppercase())
        }
        Says::Error { code, message, denied } => {
            let mut reply = Reply::error(answer.status, code, message, &aim.host);
            let detail = match denied {
                Denied::No => None,
                Denied::Usual => Some(usual_denial(aim.product, aim.name())),
                Denied::As(detail) => Some(Value::Object(detail.clone())),
            };
            reply.body.extend(detail.map(|detail| ("AccessDeniedDetail".to_owned(), detail)));
            respond(reply, None)
        }
    };
    if let Some(wait) = answer.retry_after {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        response.headers_mut().insert("x-acs-retry-after", HeaderValue::from(wait));
    }
    response
}

/// An answer with the headers that the gateway's have; the server adds `Date`.
fn signed(status: u16, body: Vec<u8>, request_id: &str) -> Response {
    let kind = match body.first() {
        Some(b'<') => "text/html;charset=utf-8",
        Some(_) | None => "application/json;charset=utf-8",
    };
    let mut response = plain(status, body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    if let Ok(value) = HeaderValue::from_str(request_id) {
        headers.insert("x-acs-request-id", value);
    }
    response
}

fn plain(status: u16, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

async fn list_all(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let now = shared.now();
    let world = shared.world();
    let jobs: Vec<Map<String, Value>> =
        world.jobs().map(|job| views::whole(job, now.wall)).collect();
    Json(json!({"Jobs": jobs, "TotalCount": jobs.len()}))
}

async fn release(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    uri: axum::http::Uri,
) -> Response {
    let query = parse_query(uri.query().unwrap_or(""));
    let wanted = query.iter().find(|(name, _)| name == "dialect").map(|(_, word)| word);
    let dialect = match wanted.map(|word| word.parse::<Dialect>()).transpose() {
        Ok(dialect) => dialect,
        Err(unknown) => return plain(400, unknown.to_string()),
    };
    let now = shared.now();
    match shared.world().release(&id, dialect, now) {
        Ok(dialect) => plain(200, json!({"JobId": id, "Dialect": dialect.word()}).to_string()),
        Err(error) => refused(&error),
    }
}

/// Why a switch did nothing.
fn refused(error: &CallError) -> Response {
    let status = match error {
        CallError::NotFound(_) => 404,
        CallError::BadRequest(..) | CallError::InvalidParameter(_) => 409,
        CallError::Ledger(_) | CallError::Stopped => 500,
    };
    plain(status, error.to_string())
}

async fn hang(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    let now = shared.now();
    match shared.world().hang(&id, now) {
        Ok(()) => plain(200, json!({"JobId": id}).to_string()),
        Err(error) => refused(&error),
    }
}

/// `?pod=N` says which, from 0; without it the last one.
async fn lose(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    uri: axum::http::Uri,
) -> Response {
    let query = parse_query(uri.query().unwrap_or(""));
    let wanted = query.iter().find(|(name, _)| name == "pod").map(|(_, text)| text.parse());
    let Ok(wanted) = wanted.transpose() else { return plain(400, "pod is a number from 0") };
    let now = shared.now();
    let mut world = shared.world();
    let pods = world.jobs().find(|job| job.id == id).map_or(0, |job| job.pods.len());
    let at: usize = wanted.unwrap_or(pods.saturating_sub(1));
    match world.lose_pod(&id, at, now) {
        Ok(()) => plain(200, json!({"JobId": id, "Pod": at}).to_string()),
        Err(error) => refused(&error),
    }
}

async fn get_faults(State(shared): State<Arc<Shared>>) -> Json<Value> {
    Json(lock(&shared.faults).list())
}

/// `?seed=N` lets the dice begin anew.
async fn put_faults(
    State(shared): State<Arc<Shared>>,
    uri: axum::http::Uri,
    body: Bytes,
) -> Response {
    let query = parse_query(uri.query().unwrap_or(""));
    let seed = query.iter().find(|(name, _)| name == "seed").map(|(_, text)| text.parse::<u64>());
    let Ok(seed) = seed.transpose() else { return plain(400, "seed is a whole number") };
    let list = serde_json::from_slice(&body).map_err(|e| e.to_string());
    let mut faults = lock(&shared.faults);
    match list.and_then(|list| faults.replace(list)) {
        Ok(()) => {
            if let Some(seed) = seed {
                faults.seed(seed);
            }
            plain(200, faults.list().to_string())
        }
        Err(why) => plain(400, why),
    }
}

async fn end_faults(State(shared): State<Arc<Shared>>) -> Response {
    let mut faults = lock(&shared.faults);
    match faults.replace(json!([])) {
        Ok(()) => plain(200, faults.list().to_string()),
        Err(why) => plain(500, why),
    }
}

async fn get_market(State(shared): State<Arc<Shared>>) -> Json<Value> {
    let now = shared.now();
    Json(json!(shared.world().market.quote(now.at)))
}

async fn set_market(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let value = serde_json::from_slice(&body).map_err(|e| e.to_string());
    let now = shared.now();
    let mut world = shared.world();
    match value.and_then(|value| world.market.set_by_hand(value)) {
        Ok(()) => plain(200, json!(world.market.quote(now.at)).to_string()),
        Err(why) => plain(400, why),
    }
}
