//! Effects as tasks: each does one thing outside and tells the driver how it came out.

mod looks;
mod pods;

use super::body;
use super::book::Book;
use super::driver::chain;
use super::measures::Calls;
use super::outages::{Fault, Outages};
use super::stops::Stops;
use super::sweep::{Lookback, Sweeper};
use super::turns::{CREATE_JOB, GET_POD_LOGS, STOP_JOB, Turn, Turns};
use super::work::{Known, Message};
use crate::config::DaemonConfig;
use crate::core::identity::SEND_WITHIN;
use crate::core::job::{Attempt, EndedAttempt, Job};
use crate::core::step::{Effect, Input};
use crate::core::verdict::LogEnd;
use crate::dlc::client::{Answer, ApiError, Dlc, Stop};
use crate::dlc::launcher::fence::parse_fenced_line;
use crate::dlc::launcher::parse_end_line;
use crate::model::cloud::{Pod, SendOutcome};
use crate::model::error::Class;
use crate::model::ids::{AttemptNo, CloudId, JobKey, Owner};
use crate::model::spec::{JobSpec, Place};
use crate::model::time::{BootTime, Now};
use crate::openapi::client::PlainHttp;
use crate::openapi::credentials::Keychain;
use crate::openapi::kind::Kind;
use crate::service::clock::Clock;
use crate::service::crash;
use futures_util::FutureExt as _;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

/// A fault of a call that was not met again for so long, or for three passes, is over.
const OUTAGE_LASTS: Duration = Duration::from_mins(15);
/// Looks into buckets under way at one time.
const LOOKS_LIMIT: usize = 8;
/// Looks at running attempts under way at one time, beside those: no end waits for one of them.
const WATCHES_LIMIT: usize = 4;
/// Looks at pods of running attempts under way at one time.
const POD_LOOKS_LIMIT: usize = 4;
/// Pods of an ended attempt whose logs are read.
const LOG_PODS_LIMIT: usize = 64;
/// Lines asked for of one pod's log.
const LOG_LINES: u32 = 2_000;

/// After how long a fault of a call that was not met again is over.
fn lasts(interval: Duration) -> Duration {
    OUTAGE_LASTS.max(interval * 3)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(super) use looks::Looking;

pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// When an effect was decided, and the number of the look that it is, if it is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    pub(super) at: BootTime,
    pub(super) look: u64,
}

/// What effects are done with. Clones share everything.
#[derive(Debug, Clone)]
pub(super) struct Effects {
    pub(super) clock: Clock,
    owner: Owner,
    pub(super) job_secrets: PathBuf,
    pub(super) keychain: Keychain,
    interval: Arc<AtomicU64>,
    pub(super) driver: mpsc::Sender<Message>,
    looks: Arc<Semaphore>,
    watches: Arc<Semaphore>,
    pods: Arc<Semaphore>,
    pub(super) turns: Turns,
    pub(super) outages: Outages,
    pub(super) calls: Calls,
    stops: Stops,
    bells: Arc<Mutex<BTreeMap<Place, Arc<Notify>>>>,
    clients: Arc<Mutex<BTreeMap<Place, Dlc>>>,
    sweeping: watch::Sender<bool>,
    /// Wakes what waits until a place was compared with the store.
    pub(super) passed: Arc<Notify>,
    /// Goes up when the store fails: what was decided before and is not sent yet is not sent.
    generation: Arc<AtomicU64>,
}

impl Effects {
    pub(super) fn new(
        clock: Clock,
        owner: Owner,
        job_secrets: PathBuf,
        keychain: Keychain,
        interval: Duration,
        driver: mpsc::Sender<Message>,
    ) -> Self {
        let turns = Turns::new(clock.clone());
        Self {
            clock,
            owner,
            job_secrets,
            keychain,
            interval: Arc::new(AtomicU64::new(millis(interval))),
            driver,
            looks: Arc::new(Semaphore::new(LOOKS_LIMIT)),
            watches: Arc::new(Semaphore::new(WATCHES_LIMIT)),
            pods: Arc::new(Semaphore::new(POD_LOOKS_LIMIT)),
            turns,
            outages: Outages::lasting(lasts(interval)),
            calls: Calls::default(),
            stops: Stops::default(),
            bells: Arc::default(),
            clients: Arc::default(),
            sweeping: watch::Sender::new(true),
            passed: Arc::default(),
            generation: Arc::default(),
        }
    }

    fn bell(&self, place: &Place) -> Arc<Notify> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(bells.entry(place.clone()).or_default())
    }

    /// Makes the next pass at a place come soon.
    pub(super) fn ring(&self, place: &Place) {
        self.bell(place).notify_one();
    }

    /// The store failed: no CreateJob that was decided before this is sent after it.
    pub(super) fn hold_back_unsent(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Time between two passes.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_millis(self.interval.load(Ordering::Relaxed))
    }

    /// Goes by another daemon file from now on.
    pub(super) fn take_config(&mut self, config: &DaemonConfig) {
        self.job_secrets = config.job_secrets.clone();
        self.interval.store(millis(config.sweep_interval), Ordering::Relaxed);
        self.outages.set_lasting(lasts(config.sweep_interval));
    }

    /// Ends the tasks that list, and those that wait to create.
    pub(super) fn stop_sweeping(&self) {
        self.sweeping.send_replace(false);
    }

    /// Comes back once the process has to end.
    pub(super) async fn stopped(&self) {
        let mut going = self.sweeping.subscribe();
        // Its sender is in `self`: it cannot be gone.
        drop(going.wait_for(|going| !going).await);
    }

    /// The task that lists our jobs at a place for as long as this process lives.
    pub(super) fn sweeper(
        &self,
        place: &Place,
        known: watch::Receiver<Known>,
        started: Now,
    ) -> Task {
        let sweeper = Sweeper {
            place: place.clone(),
            effects: self.clone(),
            owner: self.owner.clone(),
            bell: self.bell(place),
            known,
            driver: self.driver.clone(),
            going: self.sweeping.subscribe(),
            lookback: Lookback::since(started),
            caller: None,
        };
        Box::pin(sweeper.run())
    }

    /// The task that carries out an effect.
    pub(super) fn task(
        &self,
        book: &Book,
        job: &Job,
        effect: Effect,
        asked: Asked,
    ) -> Option<Task> {
        let this = self.clone();
        let key = job.key.clone();
        match effect {
            Effect::Create(no) => {
                let attempt = job.open.iter().find(|a| a.no == no)?.clone();
                let spec = book.specs.get(&attempt.spec);
                let Some(spec) = spec.map(|spec| Arc::new(spec.at(attempt.placement()))) else {
                    // Without an outcome it would be waited for until the next start.
                    let why = "its accepted spec cannot be read".to_owned();
                    let outcome = SendOutcome::NotSent { why };
                    return Some(Box::pin(async move {
                        this.tell(key, Input::Sent { no, outcome }).await;
                    }));
                };
                let generation = self.generation.load(Ordering::SeqCst);
                Some(Box::pin(this.create(key, attempt, spec, (asked.at, generation))))
            }
            Effect::Stop { no, id } => {
                let place = job.open.iter().find(|a| a.no == no)?.place.clone();
                let on_its_way = self.stops.begin(&id)?;
                Some(Box::pin(async move {
                    this.stop(key, place, id).await;
                    drop(on_its_way);
                }))
            }
            Effect::Look => {
                let spec = book.spec_of(job)?;
                let place = book.targets.get(&spec.target).map(|t| t.place.clone());
                let looking = Looking { spec, pass_over: job.pass_over(), place };
                Some(Box::pin(this.look_for(key, asked.look, looking)))
            }
            Effect::Watch(no) => {
                let attempt = job.open.iter().find(|a| a.no == no)?;
                let spec = book.specs.get(&attempt.spec).map(Arc::clone)?;
                let place = Some(attempt.place.clone());
                let looking = Looking { spec, pass_over: job.pass_over(), place };
                Some(Box::pin(this.watch(key, no, looking)))
            }
            Effect::LookAtPods { no, id } => {
                let place = job.open.iter().find(|a| a.no == no)?.place.clone();
                Some(Box::pin(this.look_at_pods(key, no, id, place)))
            }
            Effect::RewriteTracker(rewrite) => {
                let spec = book.spec_of(job);
                let place = spec.as_ref().and_then(|spec| book.targets.get(&spec.target));
                let place = place.map(|target| target.place.clone());
                Some(Box::pin(this.rewrite_tracker(key, rewrite, spec, place)))
            }
            Effect::Logs { ended, pods } => {
                let spec = book.specs.get(&ended.attempt.spec)?;
                spec.launcher.then(|| Box::pin(this.read_logs(key, *ended, pods)) as Task)
            }
            Effect::SweepSoon(place) => {
                self.ring(&place);
                None
            }
        }
    }

    async fn tell(&self, key: JobKey, input: Input) {
        // A driver that is gone has nobody left to tell.
        drop(self.driver.send(Message::Input(key, input)).await);
    }

    /// The client of a place; one for all calls, since each loads the CA certificates. Plain http
    /// was allowed or refused when the daemon file was read.
    pub(super) fn client(&self, place: &Place) -> Result<Dlc, String> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(place) {
            return Ok(client.clone());
        }
        let client = Dlc::new(place, self.owner.clone(), &self.keychain, PlainHttp::Anywhere)
            .map_err(|error| chain(&error))?;
        clients.insert(place.clone(), client.clone());
        Ok(client)
    }

    async fn create(
        self,
        key: JobKey,
        attempt: Attempt,
        spec: Arc<JobSpec>,
        decided: (BootTime, u64),
    ) {
        let no = attempt.no;
        let send = AssertUnwindSafe(self.send(&key, attempt, &spec, decided)).catch_unwind();
        // Whatever was wrong, an attempt without an outcome would be waited for for ever.
        let panicked = |_| SendOutcome::Unknown { why: "the send panicked".to_owned() };
        let outcome = send.await.unwrap_or_else(panicked);
        crash::point("replied");
        self.tell(key, Input::Sent { no, outcome }).await;
    }

    async fn send(
        &self,
        key: &JobKey,
        attempt: Attempt,
        spec: &JobSpec,
        (decided, generation): (BootTime, u64),
    ) -> SendOutcome {
        let refused = |why: String| SendOutcome::Refused {
            code: "NotSendable".to_owned(),
            message: why,
            passing: false,
        };
        let body = match body::build(&self.owner, key, &attempt, spec) {
            Ok(body) => body,
            Err(error) => return refused(chain(&error)),
        };
        let secrets = match body::secrets(&self.job_secrets, spec) {
            Ok(secrets) => secrets,
            Err(error) => return refused(chain(&error)),
        };
        let client = match self.client(&attempt.place) {
            Ok(client) => client,
            Err(why) => return SendOutcome::NotSent { why },
        };
        if let Some(checkpoint) = &spec.checkpoint {
            let fence = body::fence_of(&self.owner, key, &attempt);
            let now = self.clock.now().wall;
            let place = &attempt.place;
            let raised =
                super::bucket::raise_fence(checkpoint, place, &self.keychain, &fence, now).await;
            if let Err(why) = raised {
                return SendOutcome::NotSent { why };
            }
        }
        // Waiting is not sending: all that makes a send safe is looked at, and the date is taken,
        // after it. Sent later than this, it could not be told from a copy later on.
        let left = SEND_WITHIN.saturating_sub(self.clock.now().boot.since(decided));
        let turn = match self.turn_to_create(&attempt.place, left).await {
            Ok(turn) => turn,
            Err(why) => return SendOutcome::NotSent { why: why.to_owned() },
        };
        let now = self.clock.now();
        if now.boot.since(decided) > SEND_WITHIN {
            let why = "this machine slept between the decision and the send".to_owned();
            return SendOutcome::NotSent { why };
        }
        if self.generation.load(Ordering::SeqCst) != generation {
            let why = "the store failed between the decision and the send".to_owned();
            return SendOutcome::NotSent { why };
        }
        crash::point("before send");
        let answer = client.create_job(&body, &secrets, now.wall).await;
        self.heard(answer.date);
        let code = match &answer.value {
            SendOutcome::Refused { code, .. } => code.as_str(),
            SendOutcome::NotSent { .. }
            | SendOutcome::Unknown { .. }
            | SendOutcome::Accepted { .. } => "",
        };
        turn.heard(code, answer.retry_after);
        let result = match &answer.value {
            SendOutcome::Accepted { .. } => "ok",
            SendOutcome::Refused { .. } => "refused",
            SendOutcome::NotSent { .. } => "not_sent",
            SendOutcome::Unknown { .. } => "unknown",
        };
        self.calls.note(turn.action(), result.to_owned());
        answer.value
    }

    /// A turn for CreateJob. One that is still waited for when the process has to end is given up:
    /// what is known not to be sent need not be searched for by the next one.
    async fn turn_to_create(&self, place: &Place, left: Duration) -> Result<Turn, &'static str> {
        let mut going = self.sweeping.subscribe();
        tokio::select! {
            biased;
            _ = going.wait_for(|going| !going) => Err("spotkeeper stops before its turn came"),
            turn = tokio::time::timeout(left, self.turns.take(CREATE_JOB, place)) => {
                turn.map_err(|_| "too many calls wait: its turn did not come in time")
            }
        }
    }

    fn heard(&self, date: Option<crate::model::time::WallTime>) {
        if let Some(date) = date {
            self.clock.heard(date);
        }
    }

    /// Takes from an answer what it says of the clock, of the pace, and of what does not work.
    pub(super) fn learn<T>(&self, turn: &Turn, answer: &Result<Answer<T>, ApiError>) {
        match answer {
            Ok(answer) => {
                self.calls.note(turn.action(), "ok".to_owned());
                self.heard(answer.date);
                turn.heard("", answer.retry_after);
                self.outages.end(turn.place(), turn.action());
            }
            Err(error) => {
                self.calls.note(turn.action(), format!("{:?}", error.kind()).to_lowercase());
                self.heard(error.date());
                turn.heard(error.code(), error.retry_after());
                // What one job lacks is no fault of the place.
                if !matches!(error.kind(), Kind::NotFound | Kind::Parameter) {
                    self.fails(turn.place(), turn.action(), Fault::from(error));
                }
            }
        }
    }

    /// A call does not work.
    pub(super) fn fails(&self, place: &Place, call: &'static str, fault: Fault) {
        self.outages.begin(place, call, fault, self.clock.now().boot);
    }

    async fn stop(self, key: JobKey, place: Place, id: CloudId) {
        let client = match self.client(&place) {
            Ok(client) => client,
            Err(why) => return self.fails(&place, STOP_JOB.action, no_client(why)),
        };
        let turn = self.turns.take(STOP_JOB, &place).await;
        crash::point("before stop");
        let answer = client.stop_job(&id, turn.wall()).await;
        crash::point("stop sent");
        self.learn(&turn, &answer);
        // Whatever it said: only a look shows an end, and it is asked again after the next pass for
        // as long as the job is not seen stopping.
        match answer.map(|answer| answer.value) {
            Ok(Stop::Asked) => {}
            Ok(Stop::NothingToStop { why }) => {
                tracing::info!(job = %key, %id, %why, "nothing to stop: looking again");
            }
            Err(error) => {
                tracing::debug!(job = %key, %id, error = %chain(&error), "StopJob failed");
            }
        }
        self.ring(&place);
    }

    async fn read_logs(self, key: JobKey, ended: EndedAttempt, pods: Vec<Pod>) {
        let (Some(id), Ok(client)) = (ended.id.clone(), self.client(&ended.attempt.place)) else {
            return;
        };
        let mut ends = Vec::new();
        for pod in pods.iter().take(LOG_PODS_LIMIT) {
            let turn = self.turns.take(GET_POD_LOGS, &ended.attempt.place).await;
            let now = turn.wall();
            let lines = client.get_pod_logs(&id, &pod.id, &pod.uid, LOG_LINES, now).await;
            self.learn(&turn, &lines);
            ends.push(match lines {
                Ok(answer) => log_end(&answer.value, ended.attempt.no),
                Err(_) => LogEnd::Silent,
            });
        }
        // Pods that were not asked are pods that say nothing.
        ends.resize(pods.len(), LogEnd::Silent);
        crash::point("logs read");
        self.tell(key, Input::Logs { ended: Box::new(ended), pods: ends }).await;
    }
}

/// There is no client of a place: its endpoint cannot be used, or TLS cannot start.
pub(super) fn no_client(why: String) -> Fault {
    Fault::words(Class::Operator, why)
}

/// What a log says about the end of its pod. As many lines as were asked for may be cut, and an
/// empty log may be one that is gone: neither says anything.
fn log_end(lines: &[String], no: AttemptNo) -> LogEnd {
    let cut = lines.len() >= usize::try_from(LOG_LINES).unwrap_or(usize::MAX);
    let ends: Vec<i32> = lines
        .iter()
        .rev()
        .filter_map(|line| parse_end_line(line))
        .filter(|end| end.attempt == no)
        .map(|end| end.rc)
        .collect();
    if lines.iter().any(|line| parse_fenced_line(line) == Some(no)) {
        return LogEnd::Fenced;
    }
    match ends.first() {
        Some(rc) => LogEnd::ByItself(*rc),
        None if cut || lines.is_empty() => LogEnd::Silent,
        None => LogEnd::FromOutside,
    }
}

#[cfg(test)]
mod watched;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::CredentialsRef;
    use crate::openapi::pace::UNDER_WAY_LIMIT;

    fn lines(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    pub(super) fn place() -> Place {
        Place {
            region: "r".into(),
            workspace: "1".into(),
            endpoint: "e".into(),
            storage: None,
            credentials: CredentialsRef::Environment,
        }
    }

    #[tokio::test]
    async fn a_create_that_waits_for_its_turn_is_given_up_when_the_process_has_to_end() {
        let (driver, _messages) = mpsc::channel(1);
        let owner = Owner::new("k3f9qz").expect("an owner");
        let (clock, keys, second) = (Clock::new(), Keychain::default(), Duration::from_secs(1));
        let effects = Effects::new(clock, owner, PathBuf::new(), keys, second, driver);
        let place = place();
        let mut held = Vec::new();
        for _ in 0..UNDER_WAY_LIMIT {
            held.push(effects.turn_to_create(&place, second).await.expect("a turn"));
        }
        let late = effects.turn_to_create(&place, Duration::from_millis(1)).await;
        assert!(late.is_err_and(|why| why.contains("in time")));
        let waits = effects.turn_to_create(&place, Duration::from_secs(3_600));
        let (turn, ()) = tokio::join!(waits, async { effects.stop_sweeping() });
        assert!(turn.is_err_and(|why| why.contains("stops")));
    }

    #[test]
    fn only_an_uncut_log_without_the_end_line_says_from_outside() {
        let end = "spotkeeper: end attempt=3 rank=0 rc=1";
        assert_eq!(log_end(&lines(&["step 1", end]), 3), LogEnd::ByItself(1));
        assert_eq!(log_end(&lines(&["step 1", "step 2"]), 3), LogEnd::FromOutside);
        assert_eq!(log_end(&lines(&["step 1", end]), 4), LogEnd::FromOutside);
        let fenced = "spotkeeper: fenced attempt=3 rank=0 by run=1 attempt=4 mark=x";
        assert_eq!(log_end(&lines(&[fenced]), 3), LogEnd::Fenced);
        assert_eq!(log_end(&[], 3), LogEnd::Silent);
        assert_eq!(log_end(&vec!["x".to_owned(); 2_000], 3), LogEnd::Silent);
    }
}
