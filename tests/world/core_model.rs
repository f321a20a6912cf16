//! Lives of one job: the pure core against a small model of the cloud, the bucket and crashes.
//!
//! One seed drives everything. The model knows what the core cannot: whether a request that had no
//! answer was accepted. After every event the promises are checked on the model's own books.

use spotkeeper::core::event::Word;
use spotkeeper::core::identity::mark_of;
use spotkeeper::core::job::{
    AttemptState, BlockKind, EndedAttempt, Job, OutcomeKind, Start, StopWhy,
};
use spotkeeper::core::step::{Act, Effect, EndedRef, Given, Input, Pass, Past, Step, step};
use spotkeeper::core::submit::Gate;
use spotkeeper::core::suspects::Suspicion;
use spotkeeper::model::checkpoint::{
    Candidate, Findings, Location, Look, PassedOver, Pin, Position, ResumeFrom, ResumePoint,
    Scheme, Tracker, TrackerRewrite, TrackerText, TrackerWrite, Unfinished, Wholeness,
};
use spotkeeper::model::cloud::{CloudJob, ExitReport, SendOutcome, Stamp, Status};
use spotkeeper::model::ids::{CloudId, Digest, JobKey, JobName, Mark, Owner, TargetName};
use spotkeeper::model::spec::{
    CheckpointSpec, CredentialsRef, FirstStart, JobSpec, OnStopped, Place, Retry,
};
use spotkeeper::model::time::{BootTime, Now, WallTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const LIVES: u64 = 800;
const ACCEPTANCE_MS: u64 = 60_000;
const SWEEP_MS: u64 = 15_000;
const TOTAL_STEPS: u64 = 100;
const EPOCH: i64 = 1_800_000_000_000;

/// Small deterministic generator (splitmix64).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A job in the model's cloud.
struct Remote {
    cloud: CloudJob,
    visible_from: u64,
    /// The step it has reached and the time it takes for the next.
    step: u64,
    stop_at: Option<u64>,
    /// The step that its argument names: each run under its id begins there.
    from: u64,
    /// Its restarts in place, and how its answers show them.
    restarts: u32,
    counter: Counter,
    /// What it becomes when its machine is not held any more.
    decided: Status,
    /// Accepted long after anybody could expect it: the promise of one attempt is not for it.
    late: bool,
}

/// How the answers show restarts in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counter {
    /// At once.
    Shown,
    /// Once it runs again, or ends.
    Late,
    /// Never: only status and times tell.
    Hidden,
}

impl Remote {
    fn count(&mut self) {
        if self.counter != Counter::Hidden {
            self.cloud.restarts = self.restarts;
        }
    }
}

/// A checkpoint in the model's bucket.
#[derive(Debug, Clone)]
struct Saved {
    step: u64,
    whole: bool,
    written: WallTime,
    /// The code with which every attempt that begins here ends at once, if the trainer cannot load it.
    bad: Option<i32>,
    /// The late twin that ran when it was written, if one did.
    beside: Option<CloudId>,
    /// Attempts that died on it.
    deaths: u32,
}

/// Things that will happen to the cloud or to the daemon.
enum Coming {
    /// A CreateJob reaches the gateway.
    Request {
        mark: Mark,
        no: u32,
        start: Box<Start>,
        reply: Option<u64>,
    },
    /// Something reaches the daemon process of this generation.
    Input {
        process: u64,
        input: Box<Input>,
    },
    Sweep {
        process: u64,
        again: bool,
    },
    Wake {
        process: u64,
    },
    Remote,
    Crash,
    Operator(Act),
}

/// How a life went.
struct Lived {
    kind: OutcomeKind,
    attempts: u32,
    /// Whether an attempt was stopped for a newer checkpoint.
    outdated: bool,
    /// Whether a checkpoint was suspect, and whether one was written beside a twin.
    suspected: bool,
    overlapped: bool,
}

struct World {
    rng: Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Coming>,
    serial: u64,
    spec: JobSpec,
    owner: Owner,
    place: Place,
    remotes: Vec<Remote>,
    /// In the order of writing.
    bucket: Vec<Saved>,
    /// What the tracker says, where the trainer goes by it and it may be rewritten.
    tracker: Option<u64>,
    durable: Job,
    memory: Job,
    past: BTreeMap<Mark, Past>,
    process: u64,
    process_began: u64,
    new_store: bool,
    verified: bool,
    passes_after_wait: u8,
    calm_from: u64,
    cancelled: bool,
    wiped: bool,
    /// Whether an attempt was ever stopped for a newer checkpoint.
    outdated: bool,
    /// Restarts in place that were told, by id.
    told: BTreeMap<CloudId, u32>,
    /// Cloud jobs that were shown to the daemon.
    shown: BTreeSet<CloudId>,
    /// Late twins so far, and checkpoints that cannot be loaded.
    twins: u64,
    bad: i32,
    suspected: bool,
    overlapped: bool,
    attempts: u32,
    history: Vec<String>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let mut spec = spec();
        let tracker = seed.is_multiple_of(3).then_some(0);
        if let (Some(_), Some(checkpoint)) = (tracker, &mut spec.checkpoint) {
            checkpoint.repair_tracker = true;
            checkpoint.resume = Some("--load {root}".to_owned());
        }
        let job = Job::new(spec.key.clone(), Digest("0".repeat(64)));
        let calm_from = 1_800_000 * (1 + rng.below(4));
        let mut world = Self {
            rng,
            now: 1_000,
            queue: BTreeMap::new(),
            serial: 0,
            spec,
            owner: Owner::new("k3f9qz").expect("an owner"),
            place: place(),
            remotes: Vec::new(),
            bucket: Vec::new(),
            tracker,
            durable: job.clone(),
            memory: job,
            past: BTreeMap::new(),
            process: 0,
            process_began: 1_000,
            new_store: true,
            verified: false,
            passes_after_wait: 0,
            calm_from,
            cancelled: false,
            wiped: false,
            outdated: false,
            told: BTreeMap::new(),
            shown: BTreeSet::new(),
            twins: 0,
            bad: 0,
            suspected: false,
            overlapped: false,
            attempts: 0,
            history: Vec::new(),
        };
        world.start_process();
        for _ in 0..world.rng.below(12) {
            let at = world.rng.below(calm_from);
            world.at(at, Coming::Crash);
        }
        if world.rng.chance(20) {
            let at = world.rng.below(calm_from * 2);
            world.at(at, Coming::Operator(Act::Cancel));
        }
        if world.rng.chance(20) {
            let at = world.rng.below(calm_from);
            world.at(at, Coming::Operator(Act::Pause));
            world.at(at + 60_000, Coming::Operator(Act::Resume));
        }
        world.at(1_000, Coming::Remote);
        world
    }

    fn at(&mut self, when: u64, what: Coming) {
        self.serial += 1;
        self.queue.insert((when.max(self.now), self.serial), what);
    }

    fn calm(&self) -> bool {
        self.now >= self.calm_from
    }

    fn start_process(&mut self) {
        self.process += 1;
        self.process_began = self.now;
        self.verified = false;
        self.passes_after_wait = 0;
        self.memory = self.durable.clone();
        let process = self.process;
        self.at(self.now, Coming::Input { process, input: Box::new(Input::Started) });
        self.at(self.now + 100, Coming::Sweep { process, again: true });
    }

    fn given(&mut self) -> (Now, Gate, Mark) {
        let now = Now { wall: WallTime(EPOCH + self.now.cast_signed()), boot: BootTime(self.now) };
        let mut bytes = [0u8; 10];
        bytes.fill_with(|| self.rng.next().to_le_bytes()[0]);
        let waits = self.new_store && self.passes_after_wait < 3;
        let gate = Gate {
            place: Some(self.place.clone()),
            next_place: None,
            acceptance: Duration::from_millis(ACCEPTANCE_MS),
            verified: self.verified,
            elsewhere: None,
            new_store: waits.then(|| "the store is new".to_owned()),
            other_writer: None,
            lease: None,
            writer: None,
            slot: true,
            stopping: false,
            own_user: None,
            owner: self.owner.clone(),
        };
        (now, gate, Mark::from_random(bytes))
    }

    /// Feeds one input: step, commit, act, with a crash at any of the three borders.
    fn feed(&mut self, input: Input) {
        let spec = self.spec.clone();
        let (now, gate, mark) = self.given();
        let given = Given { now, spec: &spec, gate, mark };
        let what = input.clone();
        let Step { next, events, effects, ended, wake_at } =
            step(&self.memory, &given, input).expect("no impossible pair in this world");
        if !events.is_empty() || next != self.memory || !effects.is_empty() {
            self.history.push(format!("{:>9} {}", self.now, short(&what)));
            let record = serde_json::to_vec(&next).expect("a record");
            assert!(record.len() <= 8192, "record too large");
        }
        for event in &events {
            self.history.push(format!("            {:?} {}", event.word, event.text));
        }
        if !self.calm() && self.rng.chance(1) {
            return self.crash();
        }
        for ended in ended {
            let past = EndedRef::of(&ended);
            let EndedAttempt { attempt, .. } = ended;
            let never = Past::NeverCreated { no: attempt.no, intended: attempt.intended };
            self.past.insert(attempt.mark, past.map_or(never, Past::Ended));
        }
        for event in events.iter().filter(|event| event.word == Word::RestartedInPlace) {
            let id = event.data["id"].as_str().and_then(|id| CloudId::new(id).ok()).expect("an id");
            let told = self.told.entry(id).or_default();
            *told += 1;
            assert_eq!(event.data["restart"], *told, "each restart is told once");
        }
        self.suspected |= !next.progress.suspicion.marked().is_empty();
        self.outdated |= next.open.iter().any(|a| a.stop == Some(StopWhy::Outdated));
        self.durable = next.clone();
        self.memory = next;
        if !self.calm() && self.rng.chance(1) {
            return self.crash();
        }
        let process = self.process;
        for effect in effects {
            self.act(effect, process);
            if !self.calm() && self.rng.chance(1) {
                return self.crash();
            }
        }
        if let Some(wake) = wake_at {
            self.at(wake.0, Coming::Wake { process });
        }
    }

    fn crash(&mut self) {
        self.history.push(format!("{:>9} CRASH", self.now));
        if self.rng.chance(25) {
            self.history.push("            the state folder is wiped".to_owned());
            self.durable = Job::new(self.spec.key.clone(), Digest("0".repeat(64)));
            self.past.clear();
            self.told.clear();
            self.new_store = true;
            self.wiped = true;
        }
        self.start_process();
    }

    fn act(&mut self, effect: Effect, process: u64) {
        match effect {
            Effect::Create(no) => self.send(no, process),
            Effect::Stop { id, .. } => {
                let delay = 1_000 + self.rng.below(20_000);
                let lost = !self.calm() && self.rng.chance(30);
                let now = self.now;
                if let Some(remote) = self.remotes.iter_mut().find(|r| r.cloud.id == id)
                    && !remote.cloud.status.is_end()
                    && !remote.cloud.status.holds_machine()
                    && !lost
                {
                    remote.stop_at.get_or_insert(now + delay);
                    remote.cloud.status = Status::Stopping;
                }
            }
            Effect::Look => {
                let delay = 50 + self.rng.below(500);
                let look = if !self.calm() && self.rng.chance(15) {
                    Look::CouldNotLook { why: "503".to_owned(), needs_person: false }
                } else {
                    Look::Done(self.findings())
                };
                self.at(
                    self.now + delay,
                    Coming::Input { process, input: Box::new(Input::Looked(look)) },
                );
            }
            Effect::Watch(no) => {
                let look = if !self.calm() && self.rng.chance(15) {
                    Look::CouldNotLook { why: "503".to_owned(), needs_person: false }
                } else {
                    Look::Done(self.findings())
                };
                let input = Input::Watched { no, look };
                let delay = 50 + self.rng.below(20_000);
                self.at(self.now + delay, Coming::Input { process, input: Box::new(input) });
            }
            // No job of this model has a [hang].
            Effect::LookAtPods { .. } => {}
            Effect::RewriteTracker(rewrite) => self.rewrite(&rewrite, process),
            Effect::Logs { .. } => {}
            Effect::SweepSoon(_) => {
                self.at(self.now + 500, Coming::Sweep { process, again: false });
            }
        }
    }

    fn rewrite(&mut self, rewrite: &TrackerRewrite, process: u64) {
        assert!(self.durable.is_repairing(), "no write without a durable intent");
        let alive = self.remotes.iter().filter(|remote| !remote.cloud.status.is_end()).count();
        assert_eq!(alive, 0, "a tracker is rewritten while an attempt is not ended");
        let fate = if self.calm() { 0 } else { self.rng.below(100) };
        if fate < 70 {
            self.tracker = Some(rewrite.wanted.parse().expect("a step"));
        }
        let outcome = match fate {
            0..60 => TrackerWrite::Done,
            // Written, or not, and not answered.
            60..80 => TrackerWrite::Failed { why: "time-out".to_owned(), needs_person: false },
            80..90 => TrackerWrite::Failed { why: "403".to_owned(), needs_person: true },
            _ => TrackerWrite::Changed { now: None },
        };
        let delay = 20 + self.rng.below(5_000);
        self.at(
            self.now + delay,
            Coming::Input { process, input: Box::new(Input::TrackerWritten(outcome)) },
        );
    }

    fn send(&mut self, no: u32, process: u64) {
        let attempt =
            self.memory.open.iter().find(|a| a.no == no).expect("the attempt is open").clone();
        assert_eq!(attempt.state, AttemptState::Intended, "only an intent is sent");
        assert_eq!(
            self.durable.open.iter().find(|a| a.no == no),
            Some(&attempt),
            "no submission without a durable intent"
        );
        let alive = |remote: &&Remote| !remote.cloud.status.is_end();
        let alive = self.remotes.iter().filter(|remote| !remote.late).filter(alive).count();
        assert_eq!(alive, 0, "a CreateJob while an attempt is not ended");
        self.check_start(&attempt.start);
        if let (Some(tracker), Start::From(point)) = (self.tracker, &attempt.start) {
            assert_eq!(point.step, Some(tracker), "the trainer would load another checkpoint");
        }
        self.attempts += 1;
        let answer = |outcome| Input::Sent { no, outcome };
        let fate = if self.calm() { 100 } else { self.rng.below(100) };
        let travel = 20 + self.rng.below(200);
        let mark = attempt.mark;
        let start = attempt.start;
        match fate {
            0..10 => {
                let outcome = SendOutcome::NotSent { why: "refused".to_owned() };
                self.at(self.now + 10, Coming::Input { process, input: Box::new(answer(outcome)) });
            }
            10..20 => {
                let outcome = SendOutcome::Refused {
                    code: "Throttling.User".to_owned(),
                    message: "slow down".to_owned(),
                    passing: true,
                };
                self.at(self.now + 50, Coming::Input { process, input: Box::new(answer(outcome)) });
            }
            20..30 => {
                // Lost on the way there, seen as a time-out here.
                let outcome = SendOutcome::Unknown { why: "time-out".to_owned() };
                self.at(
                    self.now + 30_000,
                    Coming::Input { process, input: Box::new(answer(outcome)) },
                );
            }
            30..50 => {
                // Held on the way, for anything up to the acceptance window; the answer is lost.
                let held = self.rng.below(ACCEPTANCE_MS);
                self.at(
                    self.now + held,
                    Coming::Request { mark, no, start: Box::new(start), reply: None },
                );
                let outcome = SendOutcome::Unknown { why: "reset".to_owned() };
                let seen = self.rng.below(30_000);
                self.at(
                    self.now + seen,
                    Coming::Input { process, input: Box::new(answer(outcome)) },
                );
            }
            _ => {
                self.at(
                    self.now + travel,
                    Coming::Request { mark, no, start: Box::new(start), reply: Some(process) },
                );
            }
        }
    }

    /// No attempt starts from a suspect, nor from what was written beside a twin that was seen, unless
    /// a person asked for it.
    fn check_start(&self, start: &Start) {
        let Start::From(point) = start else { return };
        let saved = self.bucket.iter().find(|saved| Some(saved.step) == point.step);
        let saved = saved.expect("it is there");
        let progress = &self.memory.progress;
        let is_asked_for = progress.asked.is_some_and(|asked| Some(asked.step) == point.step);
        if is_asked_for || self.wiped {
            return;
        }
        let marked = progress.suspicion.marked();
        let suspect = marked
            .iter()
            .any(|suspect| suspect.path == point.path && suspect.written == Some(saved.written));
        assert!(!suspect, "from {}, which is suspect", point.path);
        let is_open = match &progress.suspicion {
            Suspicion::Open { marked, .. } => marked.len() < 2,
            Suspicion::Dropped => false,
        };
        assert!(saved.deaths < 2 || !is_open, "{} died on {}", saved.deaths, point.path);
        if let Some(twin) = &saved.beside {
            assert!(!self.shown.contains(twin), "{} was written beside {twin}", point.path);
        }
    }

    /// A CreateJob that was proved absent, or refused, is accepted after all.
    fn accept_late(&mut self) {
        let running = |remote: &Remote| remote.cloud.status == Status::Running;
        let used = |mark: &Mark| {
            self.remotes.iter().any(|r| r.cloud.stamp.env.as_ref().is_some_and(|e| e.1 == *mark))
        };
        let unborn = self.past.iter().find_map(|(mark, past)| match past {
            Past::NeverCreated { no, .. } if !used(mark) => Some((mark.clone(), *no)),
            Past::NeverCreated { .. } | Past::Ended(_) | Past::Stranger => None,
        });
        let Some((mark, no)) = unborn.filter(|_| self.remotes.iter().any(running)) else { return };
        self.accept(&mark, no, &Start::Fresh, None);
        self.remotes.last_mut().expect("just made").late = true;
        self.twins += 1;
    }

    fn accept(&mut self, mark: &Mark, no: u32, start: &Start, reply: Option<u64>) {
        let id = CloudId::new(format!("dlc{}", self.remotes.len())).expect("an id");
        let stamp = Some((self.owner.clone(), mark.clone()));
        let from = match start {
            Start::Fresh => 0,
            Start::From(point) => {
                let step = point.step.expect("a step");
                assert!(
                    self.bucket.iter().any(|saved| saved.step == step && saved.whole),
                    "resumed from step {step}, which is not whole"
                );
                step
            }
        };
        let lag = if self.calm() { 0 } else { self.rng.below(20_000) };
        self.remotes.push(Remote {
            cloud: CloudJob {
                id: id.clone(),
                display_name: format!("job.sk{}-{mark}", self.owner),
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
                    job: Some("job".to_owned()),
                    run: Some(1),
                    attempt: Some(no),
                    resume_path: (from > 0).then(|| format!("step-{from}")),
                    resume_step: (from > 0).then_some(from),
                },
                created: Some(WallTime(EPOCH + self.now.cast_signed())),
                running: None,
                finished: None,
                duration_s: None,
                pod_count: 1,
                pods: Vec::new(),
                restarts: 0,
                history: None,
                whole: true,
            },
            visible_from: self.now + lag,
            step: from,
            stop_at: None,
            from,
            restarts: 0,
            counter: [Counter::Shown, Counter::Late, Counter::Hidden]
                [usize::try_from(self.rng.below(3)).expect("small")],
            decided: Status::Failed,
            late: false,
        });
        if let Some(process) = reply {
            let input = Input::Sent { no, outcome: SendOutcome::Accepted { id } };
            self.at(self.now + 20, Coming::Input { process, input: Box::new(input) });
        }
        self.history.push(format!("{:>9} (cloud accepts {mark}, attempt {no})", self.now));
    }

    /// A late twin, where two run.
    fn running_twin(&self) -> Option<CloudId> {
        let runs = |remote: &&Remote| remote.cloud.status == Status::Running;
        let twin = self.remotes.iter().filter(runs).find(|remote| remote.late)?;
        (self.remotes.iter().filter(runs).count() > 1).then(|| twin.cloud.id.clone())
    }

    /// Lets the machines of the cloud work, save, end or be taken away.
    fn run_remotes(&mut self) {
        let calm = self.calm();
        let now = self.now;
        let wall = WallTime(EPOCH + now.cast_signed());
        let beside = self.running_twin();
        for remote in &mut self.remotes {
            let cloud = &mut remote.cloud;
            if cloud.status.is_end() {
                continue;
            }
            if cloud.status.holds_machine() {
                cloud.status = remote.decided.clone();
                cloud.finished = Some(wall);
                remote.count();
                continue;
            }
            if remote.stop_at.is_some_and(|at| now >= at) {
                cloud.status = Status::Stopped;
                cloud.reason_code = "JobStoppedByUser".to_owned();
                cloud.finished = Some(wall);
                remote.count();
                continue;
            }
            match cloud.status {
                Status::Creating => cloud.status = Status::Queuing,
                Status::Queuing | Status::Bidding | Status::Restarting => {
                    cloud.status = Status::EnvPreparing;
                }
                Status::EnvPreparing => {
                    cloud.status = Status::Running;
                    cloud.running = Some(wall);
                    remote.count();
                }
                Status::Running => {
                    if cannot_load(&mut self.bucket, remote, wall) {
                        continue;
                    }
                    let cloud = &mut remote.cloud;
                    remote.step += 1;
                    let saves = remote.step.is_multiple_of(5);
                    let released = !calm && self.rng.chance(6);
                    if saves {
                        // A release in the middle of a save leaves a torn one.
                        self.bucket.retain(|saved| saved.step != remote.step);
                        let whole = !released || self.rng.chance(50);
                        let bad = (!calm && self.bad < 2 && self.rng.chance(4)).then(|| {
                            self.bad += 1;
                            1 + self.bad
                        });
                        self.overlapped |= beside.is_some();
                        self.bucket.push(Saved {
                            step: remote.step,
                            whole,
                            written: wall,
                            bad,
                            beside: beside.clone(),
                            deaths: 0,
                        });
                        // Written last, and sometimes in spite of a cut save.
                        if !released || self.rng.chance(30) {
                            self.tracker = self.tracker.map(|_| remote.step);
                        }
                    }
                    let held = self.rng.chance(20);
                    if released && self.rng.chance(50) {
                        // The platform restarts it itself, from where its argument says.
                        let ways = [Status::Restarting, Status::Queuing, Status::Bidding];
                        let way = usize::try_from(self.rng.below(3)).expect("small");
                        cloud.status = ways[way].clone();
                        remote.restarts += 1;
                        remote.step = remote.from;
                        if remote.counter == Counter::Shown {
                            remote.count();
                        }
                    } else if released {
                        remote.decided = Status::Failed;
                        cloud.status = if held { Status::FailedReserving } else { Status::Failed };
                        cloud.reason_code = "JobFailed".to_owned();
                        if self.rng.chance(70) {
                            cloud.exits = vec![ExitReport { code: 137, pods: 1 }];
                        }
                        cloud.finished = Some(wall);
                        remote.count();
                    } else if remote.step >= TOTAL_STEPS {
                        remote.decided = Status::Succeeded;
                        cloud.status =
                            if held { Status::SucceededReserving } else { Status::Succeeded };
                        cloud.finished = Some(wall);
                        remote.count();
                    }
                }
                _ => {}
            }
        }
    }

    fn findings(&self) -> Findings {
        let mut all = self.bucket.clone();
        all.sort_unstable_by_key(|saved| std::cmp::Reverse(saved.step));
        let over = self.memory.pass_over();
        let candidates: Vec<Candidate> = all
            .iter()
            .map(|saved| Candidate {
                path: format!("step-{}", saved.step),
                step: Some(saved.step),
                epoch: None,
                position: Position { epoch: 0, step: saved.step },
                wholeness: if saved.whole { Wholeness::Whole } else { Wholeness::Torn },
                why: "as the model says".to_owned(),
                size: 1,
                newest_object: Some(saved.written),
                oldest_object: None,
            })
            .collect();
        let (mut chosen, mut passed_over) = (None, Vec::new());
        for c in candidates.iter().filter(|c| c.wholeness == Wholeness::Whole) {
            if let Some(why) = over.reason(&c.path, c.step, c.newest_object.as_slice()) {
                passed_over.push(PassedOver { path: c.path.clone(), step: c.step, why });
                continue;
            }
            chosen = Some(ResumePoint {
                path: c.path.clone(),
                root: ".".to_owned(),
                step: c.step,
                epoch: None,
                position: c.position,
                format: "custom".to_owned(),
                argument: "--load {path}".to_owned(),
                pin: Pin::Argument,
                tracker: Tracker::Fits,
                parts: Vec::new(),
            });
            break;
        }
        let chosen = chosen.map(|point| match self.tracker {
            Some(tracker) if Some(tracker) == point.step => {
                ResumePoint { pin: Pin::OwnChoice, ..point }
            }
            Some(tracker) => {
                let text = tracker.to_string();
                let found = Some(TrackerText { size: text.len() as u64, text });
                let wanted = point.step.unwrap_or_default().to_string();
                let rewrite = TrackerRewrite { key: "latest".to_owned(), found, wanted };
                ResumePoint { tracker: Tracker::Differs(Box::new(rewrite)), ..point }
            }
            None => point,
        });
        let unfinished =
            candidates.first().filter(|c| c.wholeness == Wholeness::Torn).map(|c| Unfinished {
                path: c.path.clone(),
                step: c.step,
                youngest_age: Duration::from_secs(1),
                fingerprint: c.position.step,
            });
        Findings {
            format: Some("custom".to_owned()),
            chosen,
            candidates: candidates.into_iter().take(20).collect(),
            unfinished,
            passed_over,
            ..Findings::default()
        }
    }

    fn sweep(&mut self, process: u64, again: bool) {
        let mut complete = true;
        let mut sent = Vec::new();
        let calm = self.calm();
        for remote in &self.remotes {
            if remote.visible_from <= self.now {
                let mut cloud = remote.cloud.clone();
                if !calm && !cloud.status.is_end() && self.rng.chance(5) {
                    cloud.status = Status::Other("Preempting".to_owned());
                }
                sent.push(cloud);
            }
        }
        let fate = if self.calm() { 100 } else { self.rng.below(100) };
        if fate < 15 {
            // No answer, an empty page, one page of several: what it shows is true, what it lacks
            // proves nothing.
            complete = false;
            sent.truncate(1);
        }
        for cloud in sent {
            if process != self.process {
                return;
            }
            let mark = mark_of(&cloud, &self.owner).expect("a mark");
            let past = self.past.get(&mark).cloned().unwrap_or(Past::Stranger);
            if cloud.status.is_end() && matches!(&past, Past::Ended(e) if e.id == cloud.id) {
                continue;
            }
            let place = self.place.clone();
            self.shown.insert(cloud.id.clone());
            self.feed(Input::Seen { mark, cloud: Box::new(cloud), past, place });
        }
        if process != self.process {
            return;
        }
        let pass = Pass {
            place: self.place.clone(),
            started: BootTime(self.now),
            complete,
            same_caller: true,
            server: Some(WallTime(EPOCH + self.now.cast_signed())),
        };
        self.feed(Input::Swept(pass));
        if process != self.process {
            return;
        }
        if complete {
            self.verified = true;
            if self.now >= self.process_began + ACCEPTANCE_MS {
                self.passes_after_wait = self.passes_after_wait.saturating_add(1);
            }
            self.feed(Input::Tick);
        }
        if again && process == self.process {
            self.at(self.now + SWEEP_MS, Coming::Sweep { process, again });
        }
    }

    fn check(&self) {
        let alive = |r: &&Remote| !r.cloud.status.is_end() && !r.late;
        let alive = self.remotes.iter().filter(alive).count();
        assert!(alive <= 1, "never twice: {alive} attempts are not ended");
        if let Some(result) = &self.durable.result
            && self.durable.open.is_empty()
        {
            let visible = self
                .remotes
                .iter()
                .filter(|r| !r.cloud.status.is_end() && r.visible_from <= self.now)
                .count();
            assert_eq!(visible, 0, "final ({}) while one of ours runs", result.why);
        }
    }

    /// Each restart of an attempt on record was told once. One that no counter shows may be missed.
    fn check_restarts(&self) {
        let known: Vec<&CloudId> = self
            .past
            .values()
            .filter_map(|past| match past {
                Past::Ended(ended) => Some(&ended.id),
                Past::NeverCreated { .. } | Past::Stranger => None,
            })
            .collect();
        for remote in self.remotes.iter().filter(|remote| known.contains(&&remote.cloud.id)) {
            let told = self.told.get(&remote.cloud.id).copied().unwrap_or(0);
            let id = &remote.cloud.id;
            match remote.counter {
                Counter::Shown | Counter::Late => assert_eq!(told, remote.restarts, "{id}"),
                Counter::Hidden => assert!(told <= remote.restarts, "{id}: {told}"),
            }
        }
    }

    fn lived(&self, kind: OutcomeKind) -> Lived {
        Lived {
            kind,
            attempts: self.attempts,
            outdated: self.outdated,
            suspected: self.suspected,
            overlapped: self.overlapped,
        }
    }

    /// Lives until the job is over; panics with the history where a promise breaks.
    fn live(mut self, seed: u64) -> Lived {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while let Some(((at, _), coming)) = self.queue.pop_first() {
                self.now = self.now.max(at);
                match coming {
                    Coming::Request { mark, no, start, reply } => {
                        self.accept(&mark, no, &start, reply);
                    }
                    Coming::Input { process, input } if process == self.process => {
                        self.feed(*input);
                    }
                    Coming::Sweep { process, again } if process == self.process => {
                        self.sweep(process, again);
                    }
                    Coming::Wake { process } if process == self.process => self.feed(Input::Tick),
                    Coming::Input { .. } | Coming::Sweep { .. } | Coming::Wake { .. } => {}
                    Coming::Remote => {
                        self.run_remotes();
                        if !self.calm() && self.twins < 6 && self.rng.chance(15) {
                            self.accept_late();
                        }
                        self.at(self.now + 20_000, Coming::Remote);
                    }
                    Coming::Crash => self.crash(),
                    Coming::Operator(act) => {
                        self.cancelled |= act == Act::Cancel;
                        let asked = self.process;
                        self.feed(Input::Operator(act));
                        if self.process != asked {
                            // A crash before the answer: the person asks again.
                            self.at(self.now, Coming::Operator(act));
                        }
                    }
                }
                self.check();
                assert!(self.now < self.calm_from * 2 + 86_400_000, "never lost: it goes nowhere");
                let settled = self.calm()
                    && self
                        .queue
                        .values()
                        .all(|c| !matches!(c, Coming::Operator(_) | Coming::Request { .. }));
                // A cancel that was wiped with the state folder: its stop is read as a person's,
                // and nothing is submitted until one says so.
                let held = self.cancelled
                    && self.wiped
                    && self.memory.open.is_empty()
                    && self
                        .memory
                        .block
                        .as_ref()
                        .is_some_and(|b| b.kind == BlockKind::StoppedByOther);
                let block = self.memory.block.as_ref().map(|block| block.kind);
                if settled
                    && self.wiped
                    && !self.cancelled
                    && block == Some(BlockKind::StoppedByOther)
                {
                    // So is our stop of an outdated attempt: a person lets it go on.
                    assert!(self.outdated, "nobody stopped anything");
                    self.at(self.now, Coming::Operator(Act::Retry));
                }
                if settled && !self.cancelled {
                    // What only a person can decide, and what a person would not let go on for long.
                    let stuck = self.memory.progress.ends > 20 && self.memory.open.is_empty();
                    if block == Some(BlockKind::OverlappedCheckpoints) || stuck {
                        self.at(self.now, Coming::Operator(Act::RetryFrom(ResumeFrom::Fresh)));
                    }
                }
                if settled && held {
                    return self.lived(OutcomeKind::Cancelled);
                }
                if settled && self.memory.is_over() {
                    self.check_restarts();
                    let kind = self.memory.result.as_ref().expect("a result").kind;
                    return self.lived(kind);
                }
            }
            panic!("the queue ran dry: nothing was awaited");
        }));
        match outcome {
            Ok(life) => {
                if life.kind == OutcomeKind::Cancelled {
                    assert!(self.cancelled, "cancelled, and nobody asked for it");
                }
                life
            }
            Err(cause) => {
                eprintln!("seed {seed}:\n{}", self.history.join("\n"));
                std::panic::resume_unwind(cause);
            }
        }
    }
}

/// Whether an attempt dies on the checkpoint that it begins at.
fn cannot_load(bucket: &mut [Saved], remote: &mut Remote, wall: WallTime) -> bool {
    let start = bucket.iter_mut().find(|saved| saved.step == remote.from);
    let Some(saved) = start.filter(|_| remote.step == remote.from) else { return false };
    let Some(code) = saved.bad else { return false };
    saved.deaths += u32::from(!remote.late);
    remote.cloud.status = Status::Failed;
    remote.cloud.reason_code = "JobFailed".to_owned();
    remote.cloud.exits = vec![ExitReport { code, pods: 1 }];
    remote.cloud.finished = Some(wall);
    remote.count();
    true
}

fn short(input: &Input) -> String {
    match input {
        Input::Seen { cloud, past, .. } => {
            format!("Seen {} {} {past:?}", cloud.id, cloud.status.word())
        }
        Input::Looked(Look::Done(f)) => {
            format!("Looked, chosen {:?}", f.chosen.as_ref().and_then(|p| p.step))
        }
        other => format!("{other:?}"),
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

fn spec() -> JobSpec {
    JobSpec {
        key: JobKey { name: JobName::new("job").expect("a name"), run: 1 },
        target: TargetName::new("hangzhou").expect("a name"),
        launcher: true,
        body: serde_json::Map::new(),
        secret_envs: BTreeMap::new(),
        spot: None,
        checkpoint: Some(CheckpointSpec {
            location: Location {
                scheme: Scheme::Oss,
                bucket: "bucket".to_owned(),
                prefix: "run".to_owned(),
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
        }),
        total_steps: Some(TOTAL_STEPS),
        retry: Retry {
            alike: 1_000,
            give_up: Duration::from_secs(86_400 * 30),
            on_stopped: OnStopped::Hold,
        },
        list_price_per_hour: None,
        hang: None,
        waiting: spotkeeper::model::waiting::Waiting::default(),
        placements: Vec::new(),
    }
}

#[test]
fn thousands_of_lives_keep_both_promises() {
    let mut tally: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut attempts, mut outdated, mut suspected, mut overlapped) = (0, 0, 0, 0);
    for seed in 0..LIVES {
        let life = World::new(seed).live(seed);
        attempts += life.attempts;
        outdated += u64::from(life.outdated);
        suspected += u64::from(life.suspected);
        overlapped += u64::from(life.overlapped);
        *tally
            .entry(match life.kind {
                OutcomeKind::Succeeded => "succeeded",
                OutcomeKind::Failed => "failed",
                OutcomeKind::Cancelled => "cancelled",
            })
            .or_default() += 1;
    }
    println!("{LIVES} lives, {attempts} CreateJobs sent: {tally:?}");
    assert_eq!(tally.get("failed"), None, "every job here can go on");
    assert!(tally.get("succeeded").is_some_and(|n| *n > LIVES / 2));
    assert!(tally.get("cancelled").is_some_and(|n| *n > LIVES / 100));
    assert!(outdated > LIVES / 10, "{outdated} lives with an outdated attempt");
    println!("{suspected} lives with a suspect, {overlapped} with a checkpoint of an overlap");
    assert!(suspected > LIVES / 10, "{suspected} lives with a suspect");
    assert!(overlapped > LIVES / 50, "{overlapped} lives with a checkpoint of an overlap");
    assert!(u64::from(attempts) > LIVES * 3, "too few attempts to mean anything");
}
