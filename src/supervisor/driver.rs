//! The owner of every job: take work, step, commit, then act.

use super::book::Book;
use super::courier::{Courier, Deliveries};
use super::effects::{Asked, Effects};
use super::evidence;
use super::measures::Measures;
use super::staging::{Moment, TURN_LIMIT, Turn};
use super::stored::{self, Log, StateError};
use super::troubles::Troubles;
use super::work::{Known, Message, QUEUE_LIMIT, Work};
use crate::config::DaemonConfig;
use crate::core::event::Word;
use crate::core::job::Job;
use crate::core::retry;
use crate::core::step::{Effect, Given, Impossible, Input, Step, step};
use crate::model::handle::Request;
use crate::model::ids::{JobKey, Mark};
use crate::model::spec::Place;
use crate::model::time::{BootTime, Now};
use crate::service::clock::Clock;
use crate::service::crash;
use crate::service::notify::Pulse;
use crate::service::starts::Starts;
use crate::store::Handle;
use crate::store::records::StoredEvent;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// The driver looks at its timers at least this often: the boot clock goes on in a suspend, the
/// runtime's does not.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// How long a stop waits for calls that are under way.
const STOP_GRACE: Duration = Duration::from_secs(7);

/// The way in for tasks, and out to them.
pub(super) struct Lines {
    pub(super) messages: mpsc::Receiver<Message>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// Turns true when the process has to end.
    pub(super) stop: watch::Receiver<bool>,
}

/// A backup is due this long after the last one ...
const BACKUP_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// ... or after this many commits, and in a new process.
const BACKUP_COMMITS: u64 = 10_000;
/// One that failed is tried again after this long: it must not keep the store from its commits.
const BACKUP_RETRY: Duration = Duration::from_secs(600);

/// Records of alerts for nobody that go in one turn.
const HOMELESS_ALERTS_AT_ONCE: usize = 500;
/// Crash points behind the commit of an event, before the effects of its step.
const POINTS_BEHIND: [(Word, &str); 4] = [
    (Word::Intent, "intent durable"),
    (Word::Submitted, "committed"),
    (Word::StopAsked, "stop durable"),
    (Word::Succeeded, "result durable"),
];

/// When the next backup is due, whichever comes first.
#[derive(Debug, Clone, Copy)]
struct BackupDue {
    at: BootTime,
    sequence: u64,
}

pub(super) struct Driver {
    pub(super) book: Book,
    pub(super) log: Log,
    pub(super) store: Handle,
    pub(super) clock: Clock,
    pub(super) effects: Effects,
    pub(super) lines: Lines,
    pub(super) pending: VecDeque<Work>,
    sequence: u64,
    backup_due: BackupDue,
    pub(super) known: BTreeMap<Place, watch::Sender<Known>>,
    pub(super) tasks: JoinSet<()>,
    pub(super) evidence: evidence::Desk,
    /// The number of the look that each job waits for, and of the last one of all.
    looks: BTreeMap<JobKey, u64>,
    last_look: u64,
    /// Why the store cannot write now.
    pub(super) store_fault: Option<String>,
    /// How often everything was loaded anew after a fault of the store.
    pub(super) reloads: u64,
    /// Whether what people wrote down is to be read again: a fault of the store may have kept it
    /// from being done.
    asks_again: bool,
    /// What was wrong with the job files at the last reading: each fault is logged once.
    pub(super) file_errors: Vec<String>,
    /// The daemon file, for the task that reads the job files.
    pub(super) config: watch::Sender<Arc<DaemonConfig>>,
    /// Signs of life for the service manager.
    pub(super) pulse: Pulse,
    /// The count of starts without proof, where it is kept.
    pub(super) starts: Option<Starts>,
    /// Whether the last reload found a daemon file that is not valid.
    pub(super) is_file_refused: bool,
    /// Why this start only answers questions.
    pub(super) held: Option<String>,
    /// Why the API does not listen where the daemon file says it does besides its socket.
    pub(super) deaf: Option<String>,
    pub(super) measures: Measures,
    pub(super) deliveries: Deliveries,
    pub(super) troubles: Troubles,
    /// Those that deliver alerts: nothing waits for them.
    couriers: JoinSet<()>,
}

impl Driver {
    pub(super) fn new(
        book: Book,
        log: Log,
        store: Handle,
        sequence: u64,
        effects: Effects,
        lines: Lines,
        config: Arc<DaemonConfig>,
    ) -> Self {
        let clock = effects.clock.clone();
        let measures = Measures::new(config.state_directory.clone());
        let mut driver = Self {
            book,
            log,
            store,
            clock,
            effects,
            lines,
            pending: VecDeque::new(),
            sequence,
            backup_due: BackupDue { at: BootTime(0), sequence },
            known: BTreeMap::new(),
            tasks: JoinSet::new(),
            evidence: evidence::Desk::default(),
            looks: BTreeMap::new(),
            last_look: 0,
            store_fault: None,
            reloads: 0,
            asks_again: false,
            file_errors: Vec::new(),
            config: watch::Sender::new(config),
            pulse: Pulse::default(),
            starts: None,
            is_file_refused: false,
            held: None,
            deaf: None,
            measures,
            deliveries: Deliveries::default(),
            troubles: Troubles::default(),
            couriers: JoinSet::new(),
        };
        driver.wake_all();
        driver
    }

    /// Every job learns that the process is new.
    fn wake_all(&mut self) {
        let keys: Vec<JobKey> = self.book.jobs.keys().cloned().collect();
        for key in keys {
            self.pending.push_back(Work::Input(key.clone(), Input::Started));
            self.book.take_homeless(&key, &mut self.pending);
        }
        self.note_evidence_of_the_past();
    }

    /// Sets out one task a channel. What waits for channels that are gone goes with the next turn.
    pub(super) fn send_couriers(&mut self, client: &reqwest::Client, homeless: &[Vec<u8>]) {
        let parts = homeless.chunks(HOMELESS_ALERTS_AT_ONCE).map(<[_]>::to_vec);
        self.pending.extend(parts.map(Work::AlertsDone));
        for channel in self.log.outbox.channels().to_vec() {
            let courier = Courier {
                channel,
                client: client.clone(),
                store: self.store.clone(),
                clock: self.clock.clone(),
                driver: self.effects.driver.clone(),
                news: self.log.outbox.bell(),
                deliveries: self.deliveries.clone(),
            };
            self.couriers.spawn(courier.run());
        }
    }

    /// The place of the last durable change.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Runs until it is told to stop, and the calls under way have come out or took too long.
    pub(super) async fn run(mut self) {
        while !*self.lines.stop.borrow() {
            self.look_at_places();
            self.make_summaries();
            self.tell_troubles();
            self.turns().await;
            self.take_asked_again().await;
            self.prove_start_if_all_is_seen();
            self.back_up_if_due().await;
            self.reap();
            self.gather_evidence();
            self.beat();
            self.wait().await;
        }
        self.wind_down().await;
    }

    async fn take_asked_again(&mut self) {
        if std::mem::take(&mut self.asks_again) {
            let folder = self.config.borrow().state_directory.clone();
            self.take_asked(&folder).await;
        }
    }

    async fn back_up_if_due(&mut self) {
        let now = self.clock.now().boot;
        if now < self.backup_due.at && self.sequence < self.backup_due.sequence {
            return;
        }
        let result = match self.store.backup().await {
            Ok(()) => self.store.sweep_blobs(self.book.digests_in_use()).await.map(drop),
            Err(error) => Err(error),
        };
        if result.is_ok() {
            self.evidence.swept();
        }
        let pause = if result.is_ok() { BACKUP_INTERVAL } else { BACKUP_RETRY };
        self.backup_due =
            BackupDue { at: now.plus(pause), sequence: self.sequence + BACKUP_COMMITS };
        if let Err(error) = result {
            self.recover(&error.into()).await;
        }
    }

    /// Brings the next backup, and with it the next sweep of blobs, forward, but never one that was
    /// put off because it failed.
    pub(super) fn back_up_soon(&mut self) {
        let now = self.clock.now().boot;
        let is_put_off = self.backup_due.at <= now.plus(BACKUP_RETRY);
        if !is_put_off {
            self.backup_due.at = now;
        }
    }

    async fn wait(&mut self) {
        if !self.pending.is_empty() {
            return;
        }
        let now = self.clock.now().boot;
        let next = self.book.wakes.values().min().copied();
        let next = evidence::earliest(next, self.evidence.next());
        let longest = self.longest_sleep(LONGEST_SLEEP);
        let delay = next.map_or(longest, |at| at.since(now)).min(longest);
        tokio::select! {
            Some(message) = self.lines.messages.recv() => self.take(message).await,
            Some(request) = self.lines.requests.recv() => self.answer(request).await,
            _ = self.lines.stop.changed() => {}
            () = tokio::time::sleep(delay) => {}
        }
        for _ in 0..TURN_LIMIT {
            let Ok(message) = self.lines.messages.try_recv() else { break };
            self.take(message).await;
        }
        self.tick_due();
    }

    fn tick_due(&mut self) {
        let now = self.clock.now().boot;
        let due = self.book.wakes.iter().filter(|(_, at)| **at <= now);
        let keys: Vec<JobKey> = due.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.book.wakes.remove(&key);
            self.pending.push_back(Work::Input(key, Input::Tick));
        }
    }

    /// Works through everything that is pending.
    pub(super) async fn turns(&mut self) {
        while !self.pending.is_empty() {
            if let Err(error) = self.turn().await {
                self.recover(&error).await;
            }
            self.beat();
        }
    }

    pub(super) async fn turn(&mut self) -> Result<(), StateError> {
        let mut turn = Turn::default();
        let mut present = Present { clock: self.clock.clone() };
        turn.fill(&mut self.book, &mut self.log, &mut self.pending, &mut present)?;
        if !turn.batch.is_empty() {
            let batch = std::mem::take(&mut turn.batch);
            let began = self.clock.now().boot;
            self.sequence = self.store.commit(Some(self.sequence), batch).await?.sequence;
            self.measures.commits.observe(self.clock.now().boot.since(began).as_secs_f64());
            self.prove_start();
        }
        self.settle(turn);
        Ok(())
    }

    /// Everything of the turn is durable: memory follows, then the effects start.
    fn settle(&mut self, turn: Turn) {
        for stored in &turn.events {
            tell(stored);
            let behind = POINTS_BEHIND.iter().find(|(word, _)| *word == stored.event.word);
            if let Some((_, point)) = behind {
                crash::point(point);
            }
        }
        if !turn.ended.is_empty() {
            crash::point("end durable");
        }
        self.log.outbox.ring();
        let present = self.clock.now();
        self.measures.note_turn(&turn.events, &turn.ended, &self.book, present);
        let now = present.boot;
        for job in turn.staged.values() {
            self.measures.note_looks(job, now);
        }
        for (key, ended) in &turn.ended {
            if self.book.lacks_evidence(key, ended) {
                self.evidence.note(key, ended.attempt.no, now);
            }
        }
        for key in &turn.forgotten {
            self.measures.forget(key);
        }
        let moved = !turn.staged.is_empty();
        let effects = turn.settle(&mut self.book);
        if moved {
            self.tell_sweepers();
        }
        let decided = self.clock.now().boot;
        for (key, effect) in effects {
            if let Effect::SweepSoon(place) = &effect {
                self.effects.ring(place);
                continue;
            }
            let Some(job) = self.book.jobs.get(&key) else { continue };
            if effect == Effect::Look {
                self.last_look += 1;
                self.looks.insert(key, self.last_look);
            }
            let asked = Asked { at: decided, look: self.last_look };
            if let Some(task) = self.effects.task(&self.book, job, effect, asked) {
                self.tasks.spawn(task);
            }
        }
    }

    /// After a failed commit nothing is decided until the store is open again and everything is
    /// loaded anew. Questions are answered from what was known.
    pub(super) async fn recover(&mut self, error: &StateError) {
        let mut why = chain(error);
        let mut tries = 0;
        self.pending.clear();
        self.effects.hold_back_unsent();
        while !*self.lines.stop.borrow() {
            if tries == 0 {
                tracing::error!(error = %why, "the store cannot write: nothing is decided until it can");
            }
            self.store_fault = Some(why.clone());
            tries += 1;
            let delay = retry::after_fault(tries).min(LONGEST_SLEEP);
            let until = self.clock.now().boot.plus(delay);
            while self.clock.now().boot < until && !*self.lines.stop.borrow() {
                // A disk that is full is no reason to be killed by a watchdog.
                self.beat();
                let left = until.since(self.clock.now().boot);
                let left = left.min(self.longest_sleep(LONGEST_SLEEP));
                tokio::select! {
                    Some(request) = self.lines.requests.recv() => self.answer_from_memory(request),
                    _ = self.lines.stop.changed() => {}
                    () = tokio::time::sleep(left) => {}
                }
            }
            match self.reload().await {
                Ok(()) => {
                    tracing::warn!("the store is open again; everything was loaded anew");
                    self.store_fault = None;
                    self.reloads += 1;
                    self.asks_again = true;
                    self.wake_all();
                    return;
                }
                Err(error) => why = chain(&error),
            }
        }
    }

    async fn reload(&mut self) -> Result<(), StateError> {
        // What is under way was decided by records that may not be there any more. A CreateJob that
        // is cut off counts as sent; one that waits for its turn must not go out later on.
        self.tasks.shutdown().await;
        self.evidence = evidence::Desk::default();
        self.known.clear();
        self.looks.clear();
        // What was to be told may not have been.
        self.troubles = Troubles::default();
        let report = self.store.reopen().await?;
        let targets = self.book.targets.clone();
        let mut book = Book::new(self.book.owner.clone(), self.book.started, targets);
        book.loaded = self.clock.now().boot;
        if !stored::take_report(&self.store, &report, &mut book).await? {
            // What is not on record any more may have been sent until just now.
            book.started = self.clock.now();
        }
        let mut log = stored::load(&self.store, &mut book).await?;
        log.outbox = std::mem::take(&mut self.log.outbox);
        self.log = log;
        // What belongs to no channel was asked to go at the start.
        drop(self.log.outbox.load(&self.store).await?);
        book.stopping = self.book.stopping;
        book.remember_past_of(&mut self.book);
        book.homeless = std::mem::take(&mut self.book.homeless);
        book.adopting = std::mem::take(&mut self.book.adopting);
        book.forget_those_at_home();
        for (place, state) in &self.book.places {
            book.places.insert(place.clone(), state.after_reload());
        }
        // Places are compared anew, as far back as at a start.
        self.book = book;
        self.sequence = self.store.sequence().await?;
        Ok(())
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Input(key, input) => self.pending.push_back(Work::Input(key, input)),
            // One that was asked for earlier may have looked under another prefix.
            Message::Looked(key, number, look) => {
                if self.looks.get(&key) == Some(&number) {
                    self.looks.remove(&key);
                    self.pending.push_back(Work::Input(key, Input::Looked(look)));
                }
            }
            Message::Swept(swept) => {
                let (place, began) = (&swept.pass.place, swept.pass.started);
                self.measures.note_sweep(place, began, self.effects.interval());
                self.take_pass(swept);
                self.effects.passed.notify_waiters();
            }
            Message::Files(set) => self.take_files(set).await,
            Message::LookedUp(adoption, found) => self.take_found(adoption, found).await,
            Message::Gathered(gathered) => self.take_gathered(gathered),
            Message::Reload { config, done } => {
                self.take_config(config);
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
            Message::Dump => self.dump(),
            Message::AlertsDone(keys) => self.pending.push_back(Work::AlertsDone(keys)),
        }
    }

    /// `longest`, or less where the service manager wants signs of life more often.
    pub(super) fn longest_sleep(&self, longest: Duration) -> Duration {
        self.pulse.longest_sleep().map_or(longest, |time| time.min(longest))
    }

    pub(super) fn is_asked_to_stop(&self) -> bool {
        *self.lines.stop.borrow()
    }

    /// Runs a task beside the driver.
    pub(super) fn spawn(&mut self, task: super::effects::Task) {
        self.tasks.spawn(task);
    }

    /// Work that the file reader or a person brings.
    pub(super) fn push(&mut self, work: Work) {
        self.pending.push_back(work);
    }

    fn reap(&mut self) {
        while let Some(done) = self.tasks.try_join_next() {
            if let Err(error) = done {
                tracing::error!(%error, "a task of the supervisor panicked");
            }
        }
    }

    /// No new intents; what is under way may come out, for a while. No job is stopped.
    async fn wind_down(mut self) {
        self.book.stopping = true;
        if self.held.is_some() {
            // Nothing was looked at: the next start begins with it.
            self.pending.retain(|work| matches!(work, Work::AlertsDone(_)));
        }
        let until = self.clock.now().boot.plus(STOP_GRACE);
        self.effects.stop_sweeping();
        while !self.tasks.is_empty() && self.clock.now().boot < until {
            let left = until.since(self.clock.now().boot);
            tokio::select! {
                Some(message) = self.lines.messages.recv() => self.take(message).await,
                _ = self.tasks.join_next() => {}
                () = tokio::time::sleep(left) => {}
            }
            self.turns().await;
        }
        // The last task may have ended right behind what it had to tell.
        for _ in 0..QUEUE_LIMIT {
            let Ok(message) = self.lines.messages.try_recv() else { break };
            self.take(message).await;
        }
        self.turns().await;
        self.tasks.abort_all();
        self.evidence.tasks.abort_all();
        self.prove_start();
        self.couriers.abort_all();
        self.store.close().await;
        let open: usize = self.book.jobs.values().map(|job| job.open.len()).sum();
        tracing::info!(attempts_left_running = open, "stopped; no job was stopped");
    }
}

/// One line in the log for one event.
fn tell(stored: &StoredEvent) {
    let StoredEvent { job, event, .. } = stored;
    let word = serde_json::to_value(event.word).unwrap_or_default();
    let word = word.as_str().unwrap_or_default();
    let attempt = event.attempt;
    let look_tomorrow =
        [Word::Blocked, Word::Unknown, Word::Twin, Word::Copy, Word::Lost, Word::Returned];
    if event.word == Word::Alarm {
        tracing::error!(%job, attempt, event = word, "{}", event.text);
    } else if look_tomorrow.contains(&event.word) {
        tracing::warn!(%job, attempt, event = word, "{}", event.text);
    } else {
        tracing::info!(%job, attempt, event = word, "{}", event.text);
    }
}

/// The moment of a turn, by this machine's clock and randomness.
struct Present {
    clock: Clock,
}

impl Moment for Present {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn fresh_mark(&mut self) -> Option<Mark> {
        let mut bytes = [0u8; 10];
        let filled = getrandom::fill(&mut bytes);
        if let Err(error) = filled {
            tracing::error!(%error, "no random bytes for a mark; the job waits");
            return None;
        }
        Some(Mark::from_random(bytes))
    }

    fn decide(&mut self, job: &Job, given: &Given<'_>, input: Input) -> Result<Step, Impossible> {
        crash::panic_for(job.key.name.as_str());
        step(job, given, input)
    }
}

/// An error with all its causes.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |e| e.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
