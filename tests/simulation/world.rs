//! One life: the daemon's loop over the true core, the true rules of a turn and the true store, and
//! around it the models.

use super::bucket::Bucket;
use super::bugs::{Bug, wall_as_boot};
use super::clock::{Clock, DAY, HOUR, MINUTE, Rng, SECOND};
use super::cloud::{self, Counter, Nature, Origin, Remote, Sky, TOTAL_STEPS, Weather};
use super::disk::{Disk, Wrong};
use super::faults::{self, ACCEPTED_FOR, Edit, Fate, Fault, SKEW_LIMIT};
use super::invariants::{
    BUDGET, Broken, COPY, FOUND, INTENT, Judge, RELOAD, RESTARTS, TWICE, WAKE,
};
use spotkeeper::core::identity::mark_of;
use spotkeeper::core::job::{
    Attempt, BlockKind, EndedAttempt, Job, OutcomeKind, Source, Start, StopWhy, Wanted,
};
use spotkeeper::core::step::{Act, Effect, Given, Impossible, Input, Pass, Past, Step, step};
use spotkeeper::core::verdict::LogEnd;
use spotkeeper::model::checkpoint::{Location, Look, Scheme};
use spotkeeper::model::cloud::{CloudJob, SendOutcome, Stamp, Status};
use spotkeeper::model::ids::{CloudId, Digest, JobKey, JobName, Mark, Owner, TargetName};
use spotkeeper::model::spec::{
    CheckpointSpec, CredentialsRef, FirstStart, JobSpec, OnStopped, Place, Retry, Target,
};
use spotkeeper::model::time::{Now, WallTime};
use spotkeeper::openapi::kind::Kind;
use spotkeeper::store::Fresh;
use spotkeeper::supervisor::{Book, Log, Lookback, Moment, Swept, Turn, Work, has_news};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

const SWEEP: u64 = 40 * SECOND;
/// A life that goes on for longer after its last fault goes nowhere.
const LONGEST_CALM: u64 = 3 * DAY;
/// How often a person looks, once the storm is over.
const PERSON_EVERY: u64 = 10 * MINUTE;

/// A job file, and what becomes of its work.
pub(crate) struct Plan {
    key: JobKey,
    prefix: &'static str,
    nature: Nature,
    pods: u32,
    specs: [(Digest, Arc<JobSpec>); 2],
    current: usize,
    has_file: bool,
}

/// A CreateJob on its way.
struct Request {
    job: usize,
    attempt: Attempt,
    origin: Origin,
    /// The process that gets the answer, and how often and how late.
    reply: Option<(u64, bool, u64)>,
}

enum ToDaemon {
    Begin,
    Input(JobKey, Input),
    Look(JobKey, u64),
    Sweep(u64),
    Passed(Box<Swept>, WallTime),
    Wake,
}

enum Coming {
    Request(Box<Request>),
    Daemon(u64, ToDaemon),
    Remote(usize),
    StopArrives(CloudId),
    Fault(Fault),
    Files(usize),
    Person,
}

/// How a life went.
pub(crate) struct Lived {
    pub(crate) kinds: Vec<OutcomeKind>,
    pub(crate) attempts: u32,
    pub(crate) outdated: bool,
    pub(crate) judge: Judge,
}

pub(crate) struct World {
    rng: Rng,
    bug: Option<Bug>,
    clock: Clock,
    queue: BTreeMap<(u64, u64), Coming>,
    serial: u64,
    plans: Vec<Plan>,
    targets: BTreeMap<TargetName, Target>,
    owner: Owner,
    place: Place,
    remotes: Vec<Remote>,
    bucket: Bucket,
    market_opens: u64,
    no_date_until: u64,
    spell: (u64, Weather),
    disk: Disk,
    book: Book,
    log: Log,
    pending: VecDeque<Work>,
    lookback: Lookback,
    looks: BTreeMap<JobKey, u64>,
    last_look: u64,
    wake_set: u64,
    sweeping: bool,
    rung: bool,
    next_sweep: u64,
    pass_wall: WallTime,
    process: u64,
    down: bool,
    calm_from: u64,
    wipes: u32,
    ever_cancelled: bool,
    attempts: u32,
    judge: Judge,
    history: Option<Vec<String>>,
}

struct Present<'a> {
    now: Now,
    pass_wall: WallTime,
    rng: &'a mut Rng,
    judge: &'a mut Judge,
    bug: Option<Bug>,
    history: &'a mut Option<Vec<String>>,
}

impl Moment for Present<'_> {
    fn now(&self) -> Now {
        self.now
    }

    fn fresh_mark(&mut self) -> Option<Mark> {
        let (one, two) = (self.rng.next().to_le_bytes(), self.rng.next().to_le_bytes());
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&one);
        bytes[8..].copy_from_slice(&two[..2]);
        Some(Mark::from_random(bytes))
    }

    fn decide(
        &mut self,
        job: &Job,
        given: &Given<'_>,
        mut input: Input,
    ) -> Result<Step, Impossible> {
        self.judge.inputs += 1;
        self.judge.table.note(job, &input);
        if let Some(history) = self.history {
            history.push(format!("{:>10} {}: {}", self.now.boot.0, job.key, short(&input)));
        }
        let told = input.clone();
        let Some(bug) = self.bug else {
            let step = step(job, given, input)?;
            self.judge.decided(job, given, &told, &step);
            return Ok(step);
        };
        let mut given = given.clone();
        let wall = given.now.wall;
        bug.bend_given(&mut given, wall_as_boot(wall));
        bug.bend_input(&mut input, wall_as_boot(self.pass_wall));
        let mut step = step(job, &given, input)?;
        bug.bend_step(job, &told, &mut step);
        self.judge.decided(job, &given, &told, &step);
        Ok(step)
    }
}

impl World {
    pub(crate) fn new(seed: u64, bug: Option<Bug>, recording: bool) -> Self {
        let mut rng = Rng(seed);
        let owner = Owner::new("k3f9qz").expect("an owner");
        let place = place();
        let plans = plans(&mut rng);
        let name = TargetName::new("hangzhou").expect("a name");
        let target = Target {
            name: name.clone(),
            place: place.clone(),
            acceptance: Duration::from_millis(ACCEPTED_FOR),
            max_parallel: 1 + u32::try_from(rng.below(3)).expect("small"),
            plain_http: false,
        };
        let clock = Clock { ms: 1_000, ..Clock::default() };
        let calm_from = HOUR / 2 * (1 + rng.below(3));
        let now = clock.now();
        let (disk, _) = Disk::new();
        let targets = BTreeMap::from([(name, target)]);
        let mut world = Self {
            bug,
            clock,
            queue: BTreeMap::new(),
            serial: 0,
            remotes: Vec::new(),
            bucket: Bucket::default(),
            market_opens: 0,
            no_date_until: 0,
            spell: (0, Weather::Fair),
            disk,
            book: Book::new(owner.clone(), now, targets.clone()),
            targets,
            log: Log::default(),
            pending: VecDeque::new(),
            lookback: Lookback::since(now),
            looks: BTreeMap::new(),
            last_look: 0,
            wake_set: 0,
            sweeping: false,
            rung: false,
            next_sweep: 0,
            pass_wall: now.wall,
            process: 0,
            down: false,
            calm_from,
            wipes: 0,
            ever_cancelled: false,
            attempts: 0,
            judge: Judge::default(),
            history: recording.then(Vec::new),
            owner,
            place,
            plans,
            rng,
        };
        for (when, fault) in faults::drawn(&mut world.rng, world.plans.len(), calm_from) {
            world.at(when, Coming::Fault(fault));
        }
        world.disk.note_new();
        world.at(calm_from, Coming::Person);
        world.start(now, None);
        world
    }

    /// Each process reads the job files soon after it began.
    fn read_files(&mut self) {
        for job in 0..self.plans.len() {
            let after = if self.rng.chance(60) { 0 } else { self.rng.below(MINUTE) };
            self.at(self.clock.ms + after, Coming::Files(job));
        }
    }

    fn at(&mut self, when: u64, what: Coming) {
        self.serial += 1;
        self.queue.insert((when.max(self.clock.ms), self.serial), what);
    }

    fn tell(&mut self, after: u64, what: ToDaemon) {
        self.at(self.clock.ms + after, Coming::Daemon(self.process, what));
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(history) = &mut self.history {
            history.push(format!("{:>10} ({})", self.clock.ms, text()));
        }
    }

    fn stormy(&self) -> bool {
        self.clock.ms < self.calm_from
    }

    /// A process that has opened the store begins.
    fn start(&mut self, started: Now, shadow: Option<Book>) {
        self.process += 1;
        self.down = false;
        self.judge.looking.clear();
        self.judge.sending.clear();
        self.looks.clear();
        self.pending.clear();
        self.wake_set = 0;
        self.lookback = Lookback::since(started);
        let mut book = Book::new(self.owner.clone(), started, self.targets.clone());
        for plan in &self.plans {
            book.specs.extend(plan.specs.iter().cloned());
        }
        book.new_store = self.disk.is_new_store();
        for job in self.disk.jobs() {
            book.jobs.insert(job.key.clone(), job);
        }
        if let Some(shadow) = shadow {
            self.compare(&mut book, shadow);
        } else {
            for (key, ended) in self.disk.ended() {
                book.record_ended(&key, ended);
            }
        }
        self.book = book;
        let keys: Vec<JobKey> = self.book.jobs.keys().cloned().collect();
        self.pending.extend(keys.into_iter().map(|key| Work::Input(key, Input::Started)));
        self.read_files();
        self.tell(0, ToDaemon::Wake);
        self.sweep_in(100);
    }

    /// What was loaded is what was acknowledged.
    fn compare(&mut self, book: &mut Book, shadow: Book) {
        if book.jobs != shadow.jobs || book.new_store != shadow.new_store {
            let differs = shadow.jobs.iter().find(|(key, job)| book.jobs.get(key) != Some(job));
            let what = differs.map_or_else(String::new, |(key, job)| {
                format!("{key} was {job:?} and is {:?}", book.jobs.get(key))
            });
            self.judge.broke(RELOAD, what);
        }
        if self.rng.chance(25) {
            for (key, ended) in self.disk.ended() {
                book.record_ended(&key, ended);
            }
            if book.ended != shadow.ended {
                self.judge.broke(RELOAD, "ended attempts differ");
            }
        } else {
            book.past = shadow.past;
            book.ended = shadow.ended;
        }
    }

    /// The process ends here, or reloads everything after a fault of the store.
    fn ends(&mut self, undurable: Option<Turn>, wrong: Option<Wrong>) {
        let power_cut = wrong.is_none_or(|wrong| wrong == Wrong::PowerCut);
        self.note(|| format!("the process ends: {wrong:?}"));
        let before = self.disk.sequence;
        let report = self.disk.reopen(power_cut, &mut self.rng, self.bug);
        let empty = Book::new(self.owner.clone(), self.book.started, BTreeMap::new());
        let mut shadow = std::mem::replace(&mut self.book, empty);
        let is_there = self.disk.sequence > before;
        if let Some(turn) = undurable
            && is_there
        {
            self.judge.told(&turn.events);
            drop(turn.settle(&mut shadow));
        }
        if report.fresh != Fresh::Complete && self.bug.is_none() {
            self.judge.broke(RELOAD, format!("{report:?}"));
        }
        if power_cut {
            self.shadow_until_begin(shadow);
        } else {
            let started = shadow.started;
            self.start(started, Some(shadow));
        }
    }

    /// The process is gone; another one begins soon.
    fn shadow_until_begin(&mut self, shadow: Book) {
        self.process += 1;
        self.down = true;
        self.book = shadow;
        let after = self.rng.below(2 * MINUTE);
        self.tell(after, ToDaemon::Begin);
    }

    fn begin(&mut self) {
        let now = self.clock.now();
        let empty = Book::new(self.owner.clone(), now, BTreeMap::new());
        let shadow = std::mem::replace(&mut self.book, empty);
        self.start(now, Some(shadow));
    }

    fn crash(&mut self, wiped: bool) {
        if !wiped {
            return self.ends(None, None);
        }
        self.note(|| "the state folder is lost".to_owned());
        (self.disk, _) = Disk::new();
        self.disk.note_new();
        self.wipes += 1;
        self.judge.wiped = true;
        self.judge.cancelled.clear();
        self.judge.told.clear();
        self.judge.shown.clear();
        self.log = Log::default();
        let mut shadow = Book::new(self.owner.clone(), self.clock.now(), BTreeMap::new());
        shadow.new_store = true;
        self.shadow_until_begin(shadow);
    }

    /// Works through everything that is pending: decide, commit, act, with a crash at each border.
    fn turns(&mut self) {
        while !self.pending.is_empty() && !self.down && self.judge.broken.is_none() {
            if self.stormy() && self.rng.rarely(2) {
                return self.ends(None, None);
            }
            let mut turn = Turn::default();
            let mut present = Present {
                now: self.clock.now(),
                pass_wall: self.pass_wall,
                rng: &mut self.rng,
                judge: &mut self.judge,
                bug: self.bug,
                history: &mut self.history,
            };
            let filled = turn.fill(&mut self.book, &mut self.log, &mut self.pending, &mut present);
            filled.expect("records that fit");
            self.record(&turn);
            if self.bug == Some(Bug::EffectBeforeCommit) {
                for (key, effect) in std::mem::take(&mut turn.effects) {
                    self.act(&key, effect);
                }
            }
            if !turn.batch.is_empty() {
                let wrong = if self.stormy() { faults::commit(&mut self.rng) } else { None };
                let batch = std::mem::take(&mut turn.batch);
                if self.disk.commit(batch, wrong, &mut self.rng).is_err() {
                    return self.ends(Some(turn), wrong);
                }
                self.judge.told(&turn.events);
            }
            let effects = turn.settle(&mut self.book);
            if self.stormy() && self.rng.rarely(3) {
                return self.ends(None, None);
            }
            for (key, effect) in effects {
                self.act(&key, effect);
                if self.stormy() && self.rng.rarely(4) {
                    return self.ends(None, None);
                }
            }
            self.check();
        }
        self.set_wake();
    }

    fn record(&mut self, turn: &Turn) {
        let Some(history) = &mut self.history else { return };
        for stored in &turn.events {
            let (word, text) = (stored.event.word, &stored.event.text);
            history.push(format!("{:>10}   {} {word:?} {text}", "", stored.job));
        }
    }

    fn set_wake(&mut self) {
        if self.down {
            return;
        }
        if let Some(next) = self.book.wakes.values().map(|at| at.0).min() {
            let next = next.clamp(self.clock.ms, self.clock.ms + 30 * MINUTE);
            if self.wake_set <= self.clock.ms || next < self.wake_set {
                self.wake_set = next;
                self.at(next, Coming::Daemon(self.process, ToDaemon::Wake));
            }
        }
    }

    fn wake(&mut self) {
        let now = self.clock.now().boot;
        let due = self.book.wakes.iter().filter(|(_, at)| **at <= now);
        let keys: Vec<JobKey> = due.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.book.wakes.remove(&key);
            self.pending.push_back(Work::Input(key, Input::Tick));
        }
    }

    /// The invariants over all that is durable and all that is in the cloud.
    fn check(&mut self) {
        let jobs = self.book.jobs.values().filter(|_| !self.down);
        let beside = |remotes: &[Remote], job: usize| {
            remotes.iter().any(|r| r.job == job && r.is_alive() && r.origin == Origin::Ours)
        };
        for job in jobs {
            let ticks =
                self.pending.iter().any(|w| matches!(w, Work::Input(k, _) if *k == job.key));
            self.judge.settled(
                job,
                self.clock.now().boot,
                ticks || self.book.wakes.contains_key(&job.key),
            );
            for attempt in job.open.iter().filter(|a| a.stop.is_none()) {
                let Some(id) = attempt.id() else { continue };
                // A late one that was taken up is an attempt like any other.
                let found = self.remotes.iter().position(|remote| remote.cloud.id == *id);
                let Some(at) = found else { continue };
                match self.remotes[at].origin {
                    Origin::Ours => {}
                    // After the loss of the store nothing tells a copy with our very name from ours.
                    Origin::Copy if self.wipes > 0 && !self.remotes[at].has_copys_name() => {}
                    Origin::Copy => {
                        self.judge.broke(COPY, format!("{id} was taken for an attempt"));
                    }
                    Origin::Late => {
                        if !beside(&self.remotes, self.remotes[at].job) {
                            self.remotes[at].origin = Origin::Ours;
                        }
                    }
                }
            }
        }
        let plans = &self.plans;
        let overlaps = |a: usize, b: usize| {
            let location = |n: usize| Some(&plans[n].specs[0].1.checkpoint.as_ref()?.location);
            location(a).zip(location(b)).is_some_and(|(a, b)| a.overlaps(b))
        };
        self.judge.cloud(&self.remotes, overlaps);
    }

    fn act(&mut self, key: &JobKey, effect: Effect) {
        match effect {
            Effect::Create(no) => self.send(key, no),
            Effect::Stop { id, .. } => {
                let Some(remote) = self.remotes.iter_mut().find(|r| r.cloud.id == id) else {
                    return self.judge.broke(COPY, format!("a stop of {id}, which is not there"));
                };
                if remote.origin == Origin::Copy && (self.wipes == 0 || remote.has_copys_name()) {
                    self.judge.broke(COPY, format!("{id} was stopped"));
                }
                remote.stop_asked = true;
                let after = faults::travel(&mut self.rng);
                if !(self.stormy() && self.rng.chance(30)) {
                    self.at(self.clock.ms + after, Coming::StopArrives(id));
                }
            }
            Effect::Look => {
                self.last_look += 1;
                self.looks.insert(key.clone(), self.last_look);
                self.judge.looking.insert(key.clone());
                let after = faults::travel(&mut self.rng);
                self.tell(after, ToDaemon::Look(key.clone(), self.last_look));
            }
            Effect::Watch(no) => {
                let plan = self.plans.iter().find(|plan| plan.key == *key).expect("a plan");
                let over = self.book.jobs.get(key).map(Job::pass_over).unwrap_or_default();
                let look = if self.stormy() && self.rng.chance(12) {
                    Look::CouldNotLook { why: "503".to_owned(), needs_person: false }
                } else {
                    let (prefix, now) = (plan.prefix, self.clock.ms);
                    Look::Done(self.bucket.findings(prefix, now, &over, self.bug))
                };
                let after = faults::travel(&mut self.rng);
                self.tell(after, ToDaemon::Input(key.clone(), Input::Watched { no, look }));
            }
            Effect::LookAtPods { .. } => {
                self.judge.broke(INTENT, format!("{key}: pods are looked at without a [hang]"));
            }
            Effect::RewriteTracker(_) => {
                self.judge
                    .broke(INTENT, format!("{key}: a tracker that nobody allowed to rewrite"));
            }
            Effect::Logs { ended, pods } => {
                let pods = self.logs(&ended, pods.len());
                let input = Input::Logs { ended, pods };
                self.tell(SECOND, ToDaemon::Input(key.clone(), input));
            }
            // A pass that is under way comes to its end first.
            Effect::SweepSoon(_) if self.sweeping => self.rung = true,
            Effect::SweepSoon(_) => self.sweep_in(500),
        }
    }

    fn logs(&mut self, ended: &EndedAttempt, pods: usize) -> Vec<LogEnd> {
        let truth = ended.id.as_ref().and_then(|id| self.judge.truths.get(id)).copied();
        let silent = self.rng.chance(30);
        (0..pods)
            .map(|n| match truth {
                _ if silent => LogEnd::Silent,
                Some(cloud::Truth::Released | cloud::Truth::Stopped) if n == 0 => {
                    LogEnd::FromOutside
                }
                _ => LogEnd::ByItself(1),
            })
            .collect()
    }

    fn send(&mut self, key: &JobKey, no: u32) {
        let job = self.plans.iter().position(|plan| plan.key == *key).expect("a plan");
        let durable = self.book.jobs.get(key);
        let nothing = Job::new(key.clone(), Digest(String::new()));
        let Some(attempt) = self.judge.sends(durable.unwrap_or(&nothing), no, durable) else {
            return;
        };
        let (prefix, now) = (self.plans[job].prefix, self.clock.ms);
        self.judge.starts(key, &attempt.start, |step| self.bucket.is_whole(prefix, step, now));
        let others = self
            .book
            .jobs
            .values()
            .flat_map(|job| &job.open)
            .filter(|other| (other.mark != attempt.mark) && other.stop != Some(StopWhy::Twin));
        let most = self.book.targets.values().map(|target| target.max_parallel).max();
        let others = u32::try_from(others.count()).expect("few");
        if most.is_some_and(|most| others >= most) && !self.judge.wiped {
            self.judge.broke(BUDGET, format!("{others} other attempts are open"));
        }
        let alive = |r: &&Remote| r.job == job && r.is_alive() && r.origin == Origin::Ours;
        if let Some(remote) = self.remotes.iter().find(alive) {
            let what = format!(
                "{} is {} as attempt {no} is sent",
                remote.cloud.id,
                remote.cloud.status.word()
            );
            self.judge.broke(TWICE, what);
        }
        self.attempts += 1;
        self.judge.sending.insert((key.clone(), no));
        self.meets_its_fate(job, attempt);
    }

    fn meets_its_fate(&mut self, job: usize, attempt: Attempt) {
        let (key, no) = (self.plans[job].key.clone(), attempt.no);
        let fate = if self.stormy() {
            faults::fate(&mut self.rng)
        } else {
            Fate::Good { twice: false, slow: false }
        };
        self.note(|| format!("attempt {no} of {key} is sent, mark {}: {fate:?}", attempt.mark));
        let answer = |outcome| ToDaemon::Input(key.clone(), Input::Sent { no, outcome });
        let unknown = || SendOutcome::Unknown { why: "no answer".to_owned() };
        let travel = faults::travel(&mut self.rng);
        let skew = self.clock.skew;
        if skew.abs() > SKEW_LIMIT {
            let outcome = refused("InvalidTimeStamp.Expired", None);
            self.clock.heard();
            return self.tell(travel, answer(outcome));
        }
        // By the date that it carries, where answers tell of a date; else by when it was sent.
        let dated = if self.clock.ms < self.no_date_until { 0 } else { skew };
        let open = ACCEPTED_FOR.saturating_add_signed(dated);
        let mut request = Box::new(Request { job, attempt, origin: Origin::Ours, reply: None });
        let (after, outcome) = match fate {
            Fate::NotSent => (10, Some(SendOutcome::NotSent { why: "no route".to_owned() })),
            Fate::Refused { passing } => {
                let code = if passing { "Throttling.User" } else { "InvalidParameter" };
                (travel, Some(refused(code, None)))
            }
            Fate::LostThere => (30 * SECOND, Some(unknown())),
            Fate::Held { late } => {
                let held = if late {
                    request.origin = Origin::Late;
                    7 * MINUTE + self.rng.below(8 * MINUTE)
                } else {
                    self.rng.below(open)
                };
                if self.rng.chance(15) {
                    // The calendar goes wrong while the search waits, and no answer corrects it.
                    self.no_date_until = self.clock.ms + 20 * MINUTE;
                    let step = Fault::ClockStep(HOUR.cast_signed());
                    self.at(self.clock.ms + 31 * SECOND, Coming::Fault(step));
                }
                self.at(self.clock.ms + held, Coming::Request(request));
                (self.rng.below(30 * SECOND), Some(unknown()))
            }
            Fate::NonceUsed => {
                self.at(self.clock.ms + travel, Coming::Request(request));
                (2 * travel, Some(refused("SignatureNonceUsed", self.bug)))
            }
            Fate::BrokenAnswer => {
                self.at(self.clock.ms + travel, Coming::Request(request));
                (2 * travel, Some(unknown()))
            }
            Fate::LongAway => {
                let back = 8 * DAY + self.rng.below(2 * DAY);
                self.market_opens = self.market_opens.max(self.clock.ms + back + HOUR);
                self.at(self.clock.ms + travel, Coming::Request(request));
                self.at(self.clock.ms + travel, Coming::Fault(Fault::Crash { wiped: false }));
                self.at(self.clock.ms + travel, Coming::Fault(Fault::Suspend(back)));
                (0, None)
            }
            Fate::Good { twice, slow } => {
                let late = if slow { self.rng.below(MINUTE) } else { 20 };
                request.reply = Some((self.process, twice, late));
                self.at(self.clock.ms + travel, Coming::Request(request));
                (0, None)
            }
        };
        if let Some(outcome) = outcome {
            self.tell(after, answer(outcome));
        }
    }

    /// The cloud makes the job.
    fn accept(&mut self, request: Request) {
        let Request { job, attempt, origin, reply } = request;
        let id = CloudId::new(format!("dlc{}", self.remotes.len())).expect("an id");
        self.note(|| format!("the cloud makes {id} of attempt {}, {origin:?}", attempt.no));
        let from = match &attempt.start {
            Start::Fresh => 0,
            Start::From(point) => point.step.unwrap_or(0),
        };
        let plan = &self.plans[job];
        let cloud = shown(&id, plan, &self.owner, &attempt, from, self.clock.server());
        let lag = if self.stormy() { self.rng.below(45 * SECOND) } else { 0 };
        let counter = self.rng.one_of(&[Counter::Shown, Counter::Late, Counter::Hidden]);
        let made = (self.clock.ms, lag);
        self.remotes.push(Remote::new((job, origin, self.wipes), cloud, from, made, counter));
        let after = 5 * SECOND + self.rng.below(20 * SECOND);
        self.at(self.clock.ms + after, Coming::Remote(self.remotes.len() - 1));
        if let Some((process, twice, late)) = reply {
            let key = self.plans[job].key.clone();
            for n in 0..=u64::from(twice) {
                let outcome = SendOutcome::Accepted { id: id.clone() };
                let input = Input::Sent { no: attempt.no, outcome };
                let when = self.clock.ms + late + n * 10 * SECOND;
                self.at(when, Coming::Daemon(process, ToDaemon::Input(key.clone(), input)));
            }
        }
        self.check();
    }

    /// The next pass; one that was planned for later is not made.
    fn sweep_in(&mut self, after: u64) {
        (self.sweeping, self.rung) = (false, false);
        self.next_sweep += 1;
        self.tell(after, ToDaemon::Sweep(self.next_sweep));
    }

    fn sweep(&mut self) {
        self.sweeping = true;
        let started = self.clock.now();
        let known = self.book.known_at(&self.place, self.clock.now().wall);
        let start = self.lookback.start(started, known.oldest);
        let stormy = self.stormy();
        let weather = if stormy {
            faults::weather(&mut self.rng, &mut self.spell, self.clock.ms)
        } else {
            Weather::Fair
        };
        let (owner, bug, now) = (self.owner.clone(), self.bug, self.clock.ms);
        let with = (&mut self.rng, &owner, bug);
        let listed = cloud::list(&mut self.remotes, start, now, (weather, stormy), with);
        let mut pass = Pass {
            place: self.place.clone(),
            started: started.boot,
            complete: false,
            same_caller: true,
            server: None,
        };
        let (mut jobs, mut owner_seen) = (Vec::new(), false);
        if let Some(listed) = listed {
            pass.complete = listed.complete();
            if now >= self.no_date_until {
                pass.server = Some(self.clock.server());
                self.clock.heard();
            }
            if pass.complete {
                self.lookback.note_complete();
            }
            let ours = listed.jobs.into_iter().filter(|job| mark_of(job, &owner).is_some());
            for row in ours {
                owner_seen = true;
                if has_news(&known, &row) {
                    let with = (&mut self.rng, &owner, bug);
                    jobs.push(cloud::in_full(row, &self.remotes, stormy, with));
                }
            }
        }
        let slow = if stormy && self.rng.chance(10) { self.rng.below(MINUTE) } else { 200 };
        let swept = Box::new(Swept { pass, jobs, missing: Vec::new(), owner_seen });
        self.tell(slow, ToDaemon::Passed(swept, started.wall));
    }

    fn look(&mut self, key: JobKey, number: u64) {
        if self.looks.get(&key) != Some(&number) {
            return;
        }
        self.looks.remove(&key);
        self.judge.looking.remove(&key);
        let plan = self.plans.iter().find(|plan| plan.key == key).expect("a plan");
        let look = if self.stormy() && self.rng.chance(12) {
            Look::CouldNotLook { why: "503".to_owned(), needs_person: self.rng.chance(30) }
        } else {
            let now = self.clock.ms;
            let over = self.book.jobs.get(&key).map(Job::pass_over).unwrap_or_default();
            let newest = self.bucket.newest_whole(plan.prefix, now, &over);
            self.judge.shown.insert(key.clone(), newest);
            Look::Done(self.bucket.findings(plan.prefix, now, &over, self.bug))
        };
        self.pending.push_back(Work::Input(key, Input::Looked(look)));
    }

    fn daemon(&mut self, what: ToDaemon) {
        match what {
            ToDaemon::Begin => self.begin(),
            ToDaemon::Input(key, input) => {
                if let Input::Sent { no, .. } = &input {
                    self.judge.sending.remove(&(key.clone(), *no));
                }
                self.pending.push_back(Work::Input(key, input));
            }
            ToDaemon::Look(key, number) => self.look(key, number),
            ToDaemon::Sweep(number) if number == self.next_sweep => self.sweep(),
            ToDaemon::Sweep(_) => {}
            ToDaemon::Passed(swept, wall) => {
                self.pass_wall = wall;
                self.book.take_pass(*swept, self.clock.now(), &mut self.pending);
                self.sweep_in(if self.rung { 200 } else { SWEEP });
            }
            ToDaemon::Wake => {}
        }
        self.wake();
        self.turns();
    }

    fn remote(&mut self, n: usize) {
        let remote = &mut self.remotes[n];
        let plan = &self.plans[remote.job];
        let mut sky = Sky {
            calm: self.clock.ms >= self.calm_from,
            rng: &mut self.rng,
            bucket: &mut self.bucket,
            prefix: plan.prefix,
            nature: plan.nature,
            market_opens: self.market_opens,
            restarts_in_place: plan.nature == Nature::Trains,
        };
        let next = remote.advance(self.clock.ms, &mut sky);
        if remote.truth != cloud::Truth::GoesOn {
            self.judge.truths.insert(remote.cloud.id.clone(), remote.truth);
        }
        if let Some(next) = next {
            self.at(next, Coming::Remote(n));
        }
    }

    fn stop(&mut self, n: usize) {
        let takes = SECOND + self.rng.below(40 * SECOND);
        if let Some(when) = self.remotes[n].stop(self.clock.ms, takes) {
            self.at(when, Coming::Remote(n));
        }
    }

    fn one_of_ours(&mut self) -> Option<usize> {
        let now = self.clock.ms;
        let fits = |r: &Remote| r.is_alive() && r.origin == Origin::Ours && r.is_visible(now);
        let ours: Vec<usize> =
            (0..self.remotes.len()).filter(|n| fits(&self.remotes[*n])).collect();
        (!ours.is_empty()).then(|| self.rng.one_of(&ours))
    }

    fn fault(&mut self, fault: Fault) {
        self.note(|| format!("{fault:?}"));
        match fault {
            Fault::Crash { .. } if self.down => {}
            Fault::Crash { wiped } => self.crash(wiped),
            Fault::Suspend(long) => {
                self.clock.asleep_until = self.clock.asleep_until.max(self.clock.ms + long);
            }
            Fault::ClockStep(by) => {
                self.clock.step(by);
                if self.rng.chance(50) {
                    self.no_date_until = self.clock.ms + 20 * MINUTE;
                }
            }
            Fault::Act(..) if self.down => {
                self.at(self.clock.ms + MINUTE, Coming::Fault(fault));
            }
            Fault::Act(job, act) => self.person_asks(job, act),
            Fault::Edit(job, edit) => self.edit(job, edit),
            Fault::Targets { acceptance, max_parallel } => {
                for target in self.targets.values_mut() {
                    target.acceptance = Duration::from_millis(acceptance);
                    target.max_parallel = max_parallel;
                }
                self.book.targets.clone_from(&self.targets);
            }
            Fault::Copy => self.copy(),
            Fault::StopByOther => {
                if let Some(n) = self.one_of_ours() {
                    self.stop(n);
                }
            }
            Fault::MarketCloses(until) => self.market_opens = self.market_opens.max(until),
            Fault::Backup if self.down => {}
            Fault::Backup => self.disk.backup(),
        }
    }

    fn person_asks(&mut self, job: usize, act: Act) {
        let key = self.plans[job].key.clone();
        if !self.book.jobs.contains_key(&key) {
            return self.at(self.clock.ms + MINUTE, Coming::Fault(Fault::Act(job, act)));
        }
        self.ever_cancelled |= act == Act::Cancel;
        let asked = self.process;
        self.pending.push_back(Work::Input(key, Input::Operator(act)));
        self.turns();
        if self.process != asked {
            // A crash before the answer: the person asks again.
            self.at(self.clock.ms + MINUTE, Coming::Fault(Fault::Act(job, act)));
        }
    }

    /// A job file changes, goes or comes back.
    fn edit(&mut self, job: usize, edit: Edit) {
        let plan = &mut self.plans[job];
        match edit {
            Edit::Spec => plan.current = 1 - plan.current,
            Edit::Gone => plan.has_file = false,
            Edit::Back => plan.has_file = true,
        }
        self.at(self.clock.ms, Coming::Files(job));
    }

    /// A job file, or its absence, is compared with what is on record.
    fn file(&mut self, job: usize) {
        if self.down {
            return;
        }
        let plan = &self.plans[job];
        let (key, digest) = (plan.key.clone(), plan.specs[plan.current].0.clone());
        let input = |input| Work::Input(key.clone(), input);
        match self.book.jobs.get(&key) {
            None if plan.has_file => {
                self.pending.push_back(Work::Accept(Box::new(Job::new(key, digest))));
            }
            None => {}
            Some(_) if plan.has_file => {
                self.pending.push_back(input(Input::Spec(digest)));
                self.pending.push_back(input(Input::File(Source::File)));
            }
            Some(job) if job.goes_with_its_file() => self.pending.push_back(Work::Drop(key)),
            Some(_) => self.pending.push_back(input(Input::File(Source::Unmanaged))),
        }
        self.turns();
    }

    /// A person copies one of our jobs in the console: with its stamps, perhaps with its very name.
    fn copy(&mut self) {
        let Some(n) = self.one_of_ours() else { return };
        let original = &self.remotes[n];
        let mut cloud = original.cloud.clone();
        cloud.id = CloudId::new(format!("dlc{}", self.remotes.len())).expect("an id");
        let old = cloud.created.map_or(Duration::ZERO, |made| self.clock.server().since(made));
        if old < Duration::from_millis(10 * MINUTE) || self.rng.chance(50) {
            cloud.display_name = format!("{}_copy", cloud.display_name);
            cloud.stamp.name = None;
        }
        if self.rng.chance(50) {
            cloud.user_id = Some("u2".to_owned());
        }
        cloud.status = Status::Creating;
        cloud.created = Some(self.clock.server());
        cloud.running = None;
        cloud.restarts = 0;
        let job = original.job;
        let made = (self.clock.ms, 0);
        let remote = Remote::new((job, Origin::Copy, self.wipes), cloud, 0, made, Counter::Hidden);
        self.remotes.push(remote);
        self.at(self.clock.ms + MINUTE, Coming::Remote(self.remotes.len() - 1));
    }

    /// After the storm a person lets go on what only a person can. Answers whether all is over.
    fn person(&mut self) -> bool {
        if self.down {
            return false;
        }
        let unheard = self.queue.values().any(|coming| {
            matches!(
                coming,
                Coming::Request(_)
                    | Coming::Fault(Fault::Act(..) | Fault::Edit(..))
                    | Coming::Files(_)
            )
        });
        let keys: Vec<JobKey> = self.plans.iter().map(|plan| plan.key.clone()).collect();
        let mut over = !unheard && self.clock.ms >= self.clock.asleep_until;
        let copies = self.remotes.iter().any(|r| r.origin == Origin::Copy && r.is_alive());
        for (n, key) in keys.iter().enumerate() {
            let Some(job) = self.book.jobs.get(key) else {
                over = false;
                continue;
            };
            over &= job.is_over();
            let stopped = job.block.as_ref().is_some_and(|b| b.kind == BlockKind::StoppedByOther);
            let act = if stopped && self.ever_cancelled && self.wipes > 0 {
                // The cancel was lost with the state folder: it is said again.
                Some(Act::Cancel)
            } else if job.block.is_some() || (!job.copies.is_empty() && !copies) {
                Some(Act::Retry)
            } else if job.wanted == Wanted::Hold {
                Some(Act::Resume)
            } else {
                None
            };
            if let Some(act) = act.filter(|_| !job.is_over()) {
                over = false;
                self.person_asks(n, act);
            }
        }
        if !over && self.wipes > 0 && self.rng.chance(10) {
            // With a new store an own job may look like another writer's: a person starts it anew.
            self.ends(None, None);
            return false;
        }
        over && self.remotes.iter().all(|r| r.origin == Origin::Copy || !r.is_alive())
    }

    /// What must hold once everything is over.
    fn last_check(&mut self) {
        for remote in &self.remotes {
            let id = &remote.cloud.id;
            let past = self
                .book
                .past
                .values()
                .any(|(_, past)| matches!(past, Past::Ended(ended) if ended.id == *id));
            // A late one may be over before anybody looks.
            if remote.origin == Origin::Ours
                && remote.wipes == self.wipes
                && !past
                && !self.judge.noted.contains(id)
            {
                self.judge.broke(FOUND, format!("{id} is on no record"));
            }
            let told = self.judge.told.get(id).copied().unwrap_or(0);
            let wrong = match remote.counter {
                _ if remote.flapped.get() => false,
                Counter::Shown | Counter::Late => told != remote.restarts,
                Counter::Hidden => told > remote.restarts,
            };
            if past && wrong {
                let what = format!("{id}: {} restarts, {told} told", remote.restarts);
                self.judge.broke(RESTARTS, what);
            }
        }
    }

    /// Lives until everything is over.
    pub(crate) fn live(&mut self) -> Result<Lived, Broken> {
        while let Some(((when, serial), coming)) = self.queue.pop_first() {
            self.clock.ms = self.clock.ms.max(when);
            match coming {
                Coming::Daemon(process, _) if process != self.process => {}
                Coming::Daemon(..) | Coming::Files(_) | Coming::Fault(Fault::Act(..))
                    if self.clock.ms < self.clock.asleep_until =>
                {
                    self.queue.insert((self.clock.asleep_until, serial), coming);
                }
                Coming::Daemon(_, what) => self.daemon(what),
                Coming::Request(request) => self.accept(*request),
                Coming::Remote(n) => self.remote(n),
                Coming::StopArrives(id) => {
                    if let Some(n) = self.remotes.iter().position(|r| r.cloud.id == id) {
                        self.stop(n);
                    }
                }
                Coming::Fault(fault) => self.fault(fault),
                Coming::Files(job) => self.file(job),
                Coming::Person => {
                    if self.person() {
                        self.last_check();
                        if let Some(broken) = self.judge.broken.take() {
                            return Err(broken);
                        }
                        return Ok(self.lived());
                    }
                    self.at(self.clock.ms + PERSON_EVERY, Coming::Person);
                }
            }
            if let Some(broken) = self.judge.broken.take() {
                return Err(broken);
            }
            if self.clock.ms > self.calm_from.max(self.market_opens) + LONGEST_CALM {
                let jobs: Vec<String> =
                    self.book.jobs.values().map(|job| format!("{job:?}")).collect();
                let what = format!("it goes nowhere: {}", jobs.join("\n"));
                return Err(Broken { invariant: WAKE, what });
            }
        }
        Err(Broken { invariant: WAKE, what: "nothing was awaited".to_owned() })
    }

    fn lived(&mut self) -> Lived {
        let results = self.book.jobs.values().filter_map(|job| job.result.as_ref());
        Lived {
            kinds: results.map(|result| result.kind).collect(),
            attempts: self.attempts,
            outdated: self.judge.outdated,
            judge: std::mem::take(&mut self.judge),
        }
    }

    /// Everything that happened, one line each.
    pub(crate) fn history(&self) -> String {
        self.history.as_deref().unwrap_or_default().join("\n")
    }
}

fn short(input: &Input) -> String {
    match input {
        Input::Seen { cloud, past, .. } => {
            format!("Seen {} {} {past:?}", cloud.id, cloud.status.word())
        }
        Input::Looked(Look::Done(f)) => {
            format!("Looked, chosen {:?}", f.chosen.as_ref().and_then(|p| p.step))
        }
        Input::Swept(pass) => format!("Swept, complete {}", pass.complete),
        Input::Logs { ended, pods } => format!("Logs of {}: {pods:?}", ended.attempt.no),
        other => format!("{other:?}"),
    }
}

/// The outcome for a code, by the program's own table.
fn refused(code: &str, bug: Option<Bug>) -> SendOutcome {
    let kind = Kind::of_code(code);
    if kind == Kind::NonceUsed && bug != Some(Bug::NonceUsedIsRefused) {
        return SendOutcome::Unknown { why: code.to_owned() };
    }
    let passing = kind.is_passing();
    SendOutcome::Refused { code: code.to_owned(), message: "no".to_owned(), passing }
}

fn shown(
    id: &CloudId,
    plan: &Plan,
    owner: &Owner,
    attempt: &Attempt,
    from: u64,
    created: WallTime,
) -> CloudJob {
    let stamp = Some((owner.clone(), attempt.mark.clone()));
    CloudJob {
        id: id.clone(),
        display_name: format!("{}.sk{owner}-{}", plan.key.name, attempt.mark),
        status: Status::Creating,
        sub_status: String::new(),
        reason_code: String::new(),
        reason_message: String::new(),
        exits: Vec::new(),
        user_id: Some("u1".to_owned()),
        stamp: Stamp {
            name: stamp.clone(),
            tag: stamp.clone(),
            env: stamp,
            job: Some(plan.key.name.as_str().to_owned()),
            run: Some(1),
            attempt: Some(attempt.no),
            resume_path: (from > 0).then(|| format!("step-{from}")),
            resume_step: (from > 0).then_some(from),
        },
        created: Some(created),
        running: None,
        finished: None,
        duration_s: None,
        pod_count: plan.pods,
        pods: Vec::new(),
        restarts: 0,
        history: None,
        whole: true,
    }
}

fn place() -> Place {
    Place {
        region: "cn-hangzhou".to_owned(),
        workspace: "1".to_owned(),
        endpoint: "https://pai-dlc.cn-hangzhou.aliyuncs.com".to_owned(),
        storage: None,
        credentials: CredentialsRef::Environment,
    }
}

/// Two or three jobs; half of the lives have two on one prefix, or one inside the other's.
fn plans(rng: &mut Rng) -> Vec<Plan> {
    let prefixes = match rng.below(4) {
        0 => ["run", "run", "other", "third"],
        1 => ["run", "run/sub", "other", "third"],
        _ => ["run", "other", "third", "fourth"],
    };
    let jobs = 3 + usize::from(rng.chance(30));
    let names = ["job", "job-b", "third", "last"];
    (0..jobs)
        .map(|n| {
            let nature = match rng.below(10) {
                0 => Nature::Crashes,
                1 => Nature::Plain,
                _ => Nature::Trains,
            };
            let pods = if rng.chance(40) { 4 } else { 1 };
            plan(names[n], prefixes[n], nature, pods)
        })
        .collect()
}

fn plan(name: &str, prefix: &'static str, nature: Nature, pods: u32) -> Plan {
    let key = JobKey { name: JobName::new(name).expect("a name"), run: 1 };
    let first = spec(&key, prefix, nature);
    let mut second = first.clone();
    second.body.insert("Priority".to_owned(), serde_json::json!(2));
    let specs = [first, second].map(|spec| {
        let number = spec.body.len();
        (Digest(format!("{name:0>32}{number:0>32}")), Arc::new(spec))
    });
    Plan { key, prefix, nature, pods, specs, current: 0, has_file: true }
}

fn spec(key: &JobKey, prefix: &str, nature: Nature) -> JobSpec {
    let checkpoint = CheckpointSpec {
        location: Location {
            scheme: Scheme::Oss,
            bucket: "bucket".to_owned(),
            prefix: prefix.to_owned(),
        },
        mount: "/mnt/run".to_owned(),
        format: "custom".to_owned(),
        custom: None,
        resume: None,
        resume_command: None,
        first_start: FirstStart::Resume,
        expect_within: Duration::from_secs(360_000),
        settle: Duration::from_secs(60),
        settle_interval: Duration::from_secs(20),
        ranks: None,
        fence: false,
        repair_tracker: false,
        parts: Vec::new(),
    };
    let trains = nature == Nature::Trains;
    JobSpec {
        key: key.clone(),
        target: TargetName::new("hangzhou").expect("a name"),
        launcher: true,
        body: serde_json::Map::new(),
        secret_envs: BTreeMap::new(),
        spot: None,
        checkpoint: (nature != Nature::Plain).then_some(checkpoint),
        total_steps: trains.then_some(TOTAL_STEPS),
        retry: Retry {
            alike: if trains { 1_000 } else { 5 },
            give_up: Duration::from_secs(86_400 * 30),
            on_stopped: OnStopped::Hold,
        },
        list_price_per_hour: None,
        hang: None,
    }
}
