//! Many jobs for many days on virtual time: the true core, turns and store; a small model of the
//! cloud and of the buckets. Shared by the bench `long_lives` and by a test of the same name.
//!
//! Time goes by the minute. Whatever is asked outside is answered within the same minute: what takes
//! long or goes wrong there is the business of tests/simulation.

use spotkeeper::core::job::{Attempt, Job, Start};
use spotkeeper::core::step::{Effect, Given, Impossible, Input, Pass, Step, step};
use spotkeeper::core::verdict::LogEnd;
use spotkeeper::model::checkpoint::{
    Candidate, Findings, Location, Look, Pin, Position, ResumePoint, Scheme, Tracker, Wholeness,
};
use spotkeeper::model::cloud::{CloudJob, ExitReport, SendOutcome, Stamp, Status};
use spotkeeper::model::ids::{CloudId, Digest, JobKey, JobName, Mark, Owner, TargetName};
use spotkeeper::model::spec::{
    CheckpointSpec, CredentialsRef, FirstStart, JobSpec, OnStopped, Place, Retry, Target,
};
use spotkeeper::model::time::{BootTime, Now, WallTime};
use spotkeeper::store::records::{self, StoredEvidence};
use spotkeeper::store::{Batch, Store};
use spotkeeper::supervisor::{Book, Log, Lookback, Moment, Swept, Turn, Work, has_news};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// The calendar at the beginning.
const EPOCH: i64 = 1_800_000_000_000;
pub const MINUTE: u64 = 60_000;
pub const HOUR: u64 = 60;
pub const DAY: u64 = 24 * HOUR;
/// Minutes from a CreateJob to Running.
const WAITS: u64 = 3;
/// Minutes for which a list shows an attempt that has ended, where a test does not say otherwise.
const ENDED_SHOWN: u64 = 12 * HOUR;
/// Records read at one time.
const PAGE: usize = 500;
/// Bytes of the raw answers of an end.
const EVIDENCE_BYTES: usize = 4 * 1024;

/// Numbers from a seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Seeded(pub u64);

impl Seeded {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

/// A job, its bucket, and what the cloud has of it.
struct Plan {
    key: JobKey,
    /// Minutes of Running from one save to the next.
    saves_every: u64,
    /// The newest step in its bucket, if there is one.
    saved: Option<u64>,
    /// The attempt that has not ended.
    alive: Option<Remote>,
    /// Attempts that have ended, and when.
    ended: VecDeque<(u64, CloudJob)>,
    /// Its machine is taken back as soon as it runs.
    release: bool,
}

struct Remote {
    cloud: CloudJob,
    created: u64,
    ran: u64,
    step: u64,
}

/// What a world has come to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    pub inputs: u64,
    pub commits: u64,
    pub creates: u64,
    pub releases: u64,
}

pub struct World {
    pub minute: u64,
    pub counts: Counts,
    /// Minutes for which a list shows an attempt that has ended.
    pub ended_shown: u64,
    /// Rows of the last list that were fetched in full.
    pub fetched: usize,
    /// The effects in their order, as text, if they are written down.
    pub effects: Option<Vec<String>>,
    rng: Seeded,
    owner: Owner,
    place: Place,
    targets: BTreeMap<TargetName, Target>,
    plans: Vec<Plan>,
    by_key: BTreeMap<JobKey, usize>,
    book: Book,
    log: Log,
    pending: VecDeque<Work>,
    lookback: Lookback,
    store: Option<Store>,
}

/// The moment of a turn.
struct Present<'a> {
    now: Now,
    rng: &'a mut Seeded,
    inputs: &'a mut u64,
}

impl Moment for Present<'_> {
    fn now(&self) -> Now {
        self.now
    }

    fn fresh_mark(&mut self) -> Option<Mark> {
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&self.rng.next().to_le_bytes());
        bytes[8..].copy_from_slice(&self.rng.next().to_le_bytes()[..2]);
        Some(Mark::from_random(bytes))
    }

    fn decide(&mut self, job: &Job, given: &Given<'_>, input: Input) -> Result<Step, Impossible> {
        *self.inputs += 1;
        step(job, given, input)
    }
}

impl World {
    /// `jobs` that were just put down, over an empty store; `saves_every` says how many minutes of
    /// Running lie between two saves of each.
    pub fn new(seed: u64, jobs: usize, saves_every: fn(usize) -> u64, store: Store) -> Self {
        let owner = Owner::new("k3f9qz").expect("an owner");
        let name = TargetName::new("hangzhou").expect("a name");
        let place = place();
        let target = Target {
            name: name.clone(),
            place: place.clone(),
            acceptance: Duration::from_secs(900),
            max_parallel: u32::MAX,
            plain_http: false,
        };
        let targets = BTreeMap::from([(name, target)]);
        let now = Now { wall: WallTime(EPOCH), boot: BootTime(1) };
        let mut world = Self {
            minute: 0,
            counts: Counts::default(),
            ended_shown: ENDED_SHOWN,
            fetched: 0,
            effects: None,
            rng: Seeded(seed),
            book: Book::new(owner.clone(), now, targets.clone()),
            owner,
            place,
            targets,
            plans: Vec::new(),
            by_key: BTreeMap::new(),
            log: Log::default(),
            pending: VecDeque::new(),
            lookback: Lookback::since(now),
            store: Some(store),
        };
        for n in 0..jobs {
            let name = JobName::new(format!("job-{n:04}")).expect("a name");
            let key = JobKey { name, run: 1 };
            let spec = spec(&key);
            let digest = Digest::of(key.name.as_str().as_bytes());
            world.book.specs.insert(digest.clone(), Arc::new(spec));
            world.pending.push_back(Work::Accept(Box::new(Job::new(key.clone(), digest))));
            world.by_key.insert(key.clone(), n);
            world.plans.push(Plan {
                key,
                saves_every: saves_every(n),
                saved: None,
                alive: None,
                ended: VecDeque::new(),
                release: false,
            });
        }
        world
    }

    fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("an open store")
    }

    fn commit(&mut self, batch: Batch) {
        let store = self.store();
        store.commit(store.sequence(), &[batch]).expect("a commit");
        self.counts.commits += 1;
    }

    fn now(&self) -> Now {
        let ms = self.minute * MINUTE + 1;
        Now { wall: WallTime(EPOCH + ms.cast_signed()), boot: BootTime(ms) }
    }

    /// The machine of a job is taken back, at once or as soon as it has one.
    pub fn release(&mut self, job: usize) {
        self.plans[job].release = true;
    }

    /// Lives one minute.
    pub fn live_a_minute(&mut self) {
        self.minute += 1;
        for n in 0..self.plans.len() {
            self.advance(n);
        }
        self.wake();
        self.turns();
        self.pass();
        self.turns();
    }

    /// What the cloud does with a job in a minute.
    fn advance(&mut self, n: usize) {
        let (minute, wall) = (self.minute, self.now().wall);
        let plan = &mut self.plans[n];
        while plan.ended.front().is_some_and(|(when, _)| when + self.ended_shown < minute) {
            plan.ended.pop_front();
        }
        let Some(remote) = &mut plan.alive else { return };
        if remote.cloud.running.is_none() {
            if minute >= remote.created + WAITS {
                remote.cloud.status = Status::Running;
                remote.cloud.running = Some(wall);
            }
            return;
        }
        remote.ran += 1;
        remote.step += 1;
        if remote.ran.is_multiple_of(plan.saves_every) {
            plan.saved = Some(remote.step);
        }
        if plan.release {
            plan.release = false;
            self.counts.releases += 1;
            let mut cloud = plan.alive.take().expect("it runs").cloud;
            cloud.status = Status::Failed;
            "JobFailed".clone_into(&mut cloud.reason_code);
            "Preempted by the platform".clone_into(&mut cloud.reason_message);
            cloud.exits = vec![ExitReport { code: 137, pods: 1 }];
            cloud.finished = Some(wall);
            plan.ended.push_back((minute, cloud));
        }
    }

    fn wake(&mut self) {
        let now = self.now().boot;
        let due = self.book.wakes.iter().filter(|(_, at)| **at <= now);
        let keys: Vec<JobKey> = due.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.book.wakes.remove(&key);
            self.pending.push_back(Work::Input(key, Input::Tick));
        }
    }

    /// Works through everything that is pending, and what comes of it.
    fn turns(&mut self) {
        while !self.pending.is_empty() {
            let mut turn = Turn::default();
            let mut present =
                Present { now: self.now(), rng: &mut self.rng, inputs: &mut self.counts.inputs };
            turn.fill(&mut self.book, &mut self.log, &mut self.pending, &mut present)
                .expect("records that fit");
            if !turn.batch.is_empty() {
                self.commit(std::mem::take(&mut turn.batch));
            }
            for (key, effect) in turn.settle(&mut self.book) {
                self.act(key, effect);
            }
        }
    }

    fn act(&mut self, key: JobKey, effect: Effect) {
        if let Some(effects) = &mut self.effects {
            effects.push(format!("{} {key} {effect:?}", self.minute));
        }
        let n = self.by_key[&key];
        let outcome = match effect {
            Effect::Create(no) => {
                let job = &self.book.jobs[&key];
                let attempt = job.open.iter().find(|a| a.no == no).expect("an intent").clone();
                let id = self.create(n, &attempt);
                Input::Sent { no, outcome: SendOutcome::Accepted { id } }
            }
            Effect::Look => Input::Looked(Look::Done(self.findings(n))),
            Effect::Watch(no) => Input::Watched { no, look: Look::Done(self.findings(n)) },
            Effect::Logs { ended, pods } => {
                self.keep_evidence(&key, ended.attempt.no);
                let pods = vec![LogEnd::FromOutside; pods.len()];
                Input::Logs { ended, pods }
            }
            Effect::SweepSoon(_) => return,
            Effect::Stop { .. } | Effect::LookAtPods { .. } | Effect::RewriteTracker(_) => {
                panic!("{key}: nobody asked for {effect:?}")
            }
        };
        self.pending.push_back(Work::Input(key, outcome));
    }

    /// The raw answers of an end: as the daemon keeps them, a blob and then a record.
    fn keep_evidence(&mut self, key: &JobKey, attempt: u32) {
        let head = format!("{key} {attempt} ");
        let text = head.repeat(EVIDENCE_BYTES / head.len());
        let digest = self.store().put_blob(text.as_bytes()).expect("a blob");
        let (taken, bytes) = (self.now().wall, text.len() as u64);
        let kept = StoredEvidence { job: key.clone(), attempt, taken, digest, bytes };
        self.pending.push_back(Work::Keep(kept));
    }

    fn create(&mut self, n: usize, attempt: &Attempt) -> CloudId {
        let wall = self.now().wall;
        let plan = &mut self.plans[n];
        assert!(plan.alive.is_none(), "two attempts of {}", plan.key);
        let from = match &attempt.start {
            Start::Fresh => 0,
            Start::From(point) => point.step.unwrap_or(0),
        };
        assert_eq!(from, plan.saved.unwrap_or(0), "{}: saved work is lost", plan.key);
        self.counts.creates += 1;
        let id = CloudId::new(format!("dlc{}", self.counts.creates)).expect("an id");
        let cloud = shown(&id, &plan.key, &self.owner, attempt, from, wall);
        plan.alive = Some(Remote { cloud, created: self.minute, ran: 0, step: from });
        id
    }

    fn findings(&self, n: usize) -> Findings {
        let steps: Vec<u64> = self.plans[n].saved.into_iter().collect();
        let candidate = |step: &u64| Candidate {
            path: format!("step-{step}"),
            step: Some(*step),
            epoch: None,
            position: Position { epoch: 0, step: *step },
            wholeness: Wholeness::Whole,
            why: String::new(),
            size: 1,
            newest_object: None,
            oldest_object: None,
        };
        Findings {
            format: Some("custom".to_owned()),
            chosen: steps.first().map(|step| point(*step)),
            candidates: steps.iter().map(candidate).collect(),
            ..Findings::default()
        }
    }

    /// One complete pass over the list.
    fn pass(&mut self) {
        let now = self.now();
        let known = self.book.known_at(&self.place, now.wall);
        let start = self.lookback.start(now, known.oldest);
        let mut jobs = Vec::new();
        for plan in &self.plans {
            let ended = plan.ended.iter().map(|(_, cloud)| cloud);
            let rows = ended.chain(plan.alive.as_ref().map(|remote| &remote.cloud));
            let shown = rows.filter(|row| row.created.is_none_or(|made| made >= start));
            jobs.extend(shown.filter(|row| has_news(&known, row)).cloned());
        }
        jobs.sort_by_key(|job| job.created);
        self.fetched = jobs.len();
        let pass = Pass {
            place: self.place.clone(),
            started: now.boot,
            complete: true,
            same_caller: true,
            server: Some(now.wall),
        };
        self.lookback.note_complete();
        let swept = Swept { pass, jobs, missing: Vec::new(), owner_seen: self.counts.creates > 0 };
        assert_eq!(self.book.take_pass(swept, now, &mut self.pending), None);
    }

    /// As the driver does each day.
    pub fn back_up(&mut self) {
        self.store().backup().expect("a backup");
    }

    /// A pass between two minutes.
    pub fn look_around(&mut self) {
        self.pass();
        self.turns();
    }

    /// Lets go of the store.
    pub fn close(&mut self) {
        self.store = None;
    }

    /// Forgets all that memory holds and loads what the store has: history that was too old is
    /// gone, and so is what is only known to a process.
    pub fn load_anew(&mut self, store: Store) {
        self.store = Some(store);
        let now = self.now();
        let mut book = Book::new(self.owner.clone(), now, self.targets.clone());
        book.specs = std::mem::take(&mut self.book.specs);
        for job in self.all::<Job>(records::JOBS) {
            book.jobs.insert(job.key.clone(), job);
        }
        for (key, ended) in self.all(records::ATTEMPTS) {
            book.record_ended(&key, ended);
        }
        book.wakes = std::mem::take(&mut self.book.wakes);
        self.book = book;
    }

    /// All records with a prefix.
    pub fn all<T: serde::de::DeserializeOwned>(&mut self, prefix: &[u8]) -> Vec<T> {
        let (mut found, mut after) = (Vec::new(), None::<Vec<u8>>);
        loop {
            let page = self.store().range(prefix, after.as_deref(), PAGE).expect("a range");
            let Some((last, _)) = page.last() else { return found };
            after = Some(last.clone());
            let decode = |(key, value): &(Vec<u8>, Vec<u8>)| records::decode(key, value);
            found.extend(page.iter().map(|record| decode(record).expect("a record")));
        }
    }

    /// The jobs, as they are committed.
    pub fn jobs(&self) -> &BTreeMap<JobKey, Job> {
        &self.book.jobs
    }

    /// Takes note that an earlier store cannot have sent anything.
    pub fn begin_with_nothing(&mut self) {
        let mut batch = Batch::new();
        batch.put("began", "").expect("it is small");
        self.commit(batch);
    }
}

fn point(step: u64) -> ResumePoint {
    ResumePoint {
        path: format!("step-{step}"),
        root: ".".to_owned(),
        step: Some(step),
        epoch: None,
        position: Position { epoch: 0, step },
        format: "custom".to_owned(),
        argument: "--load {path}".to_owned(),
        pin: Pin::Argument,
        tracker: Tracker::Fits,
        parts: Vec::new(),
    }
}

fn shown(
    id: &CloudId,
    key: &JobKey,
    owner: &Owner,
    attempt: &Attempt,
    from: u64,
    created: WallTime,
) -> CloudJob {
    let stamp = Some((owner.clone(), attempt.mark.clone()));
    CloudJob {
        id: id.clone(),
        display_name: format!("{}.sk{owner}-{}", key.name, attempt.mark),
        status: Status::Queuing,
        sub_status: String::new(),
        reason_code: String::new(),
        reason_message: String::new(),
        exits: Vec::new(),
        user_id: Some("u1".to_owned()),
        stamp: Stamp {
            name: stamp.clone(),
            tag: stamp.clone(),
            env: stamp,
            job: Some(key.name.as_str().to_owned()),
            run: Some(1),
            attempt: Some(attempt.no),
            resume_path: (from > 0).then(|| format!("step-{from}")),
            resume_step: (from > 0).then_some(from),
        },
        created: Some(created),
        running: None,
        finished: None,
        duration_s: None,
        pod_count: 1,
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

fn spec(key: &JobKey) -> JobSpec {
    let checkpoint = CheckpointSpec {
        location: Location {
            scheme: Scheme::Oss,
            bucket: "bucket".to_owned(),
            prefix: key.name.as_str().to_owned(),
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
    JobSpec {
        key: key.clone(),
        target: TargetName::new("hangzhou").expect("a name"),
        launcher: true,
        body: serde_json::Map::new(),
        secret_envs: BTreeMap::new(),
        spot: None,
        checkpoint: Some(checkpoint),
        total_steps: Some(10_000_000),
        retry: Retry {
            alike: 1_000,
            give_up: Duration::from_secs(30 * 86_400),
            on_stopped: OnStopped::Hold,
        },
        list_price_per_hour: None,
        hang: None,
        waiting: spotkeeper::model::waiting::Waiting::default(),
        placements: Vec::new(),
    }
}
