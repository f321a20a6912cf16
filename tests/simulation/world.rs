//! One life: the daemon's loop over the true core, the true rules of a turn and the true store, and
//! around it the models.

mod acts;
mod check;
mod people;
mod plan;
mod process;
mod sending;
mod turns;

use super::bucket::Bucket;
use super::bugs::Bug;
use super::clock::{Clock, DAY, HOUR, MINUTE, Rng};
use super::cloud::{self, Nature, Remote, Sky, Weather};
use super::disk::Disk;
use super::faults::{self, ACCEPTED_FOR, Fault, Opportunity};
use super::invariants::{Broken, Judge, WAKE};
use plan::{Plan, place, plans};
use sending::Request;
use spotkeeper::core::job::OutcomeKind;
use spotkeeper::core::step::Input;
use spotkeeper::model::cloud::Status;
use spotkeeper::model::ids::{CloudId, Digest, JobKey, Owner, TargetName};
use spotkeeper::model::spec::{JobSpec, Place, Target};
use spotkeeper::model::time::WallTime;
use spotkeeper::supervisor::{Book, Log, Lookback, Swept, Work};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// A life that goes on for longer after its last fault goes nowhere.
const LONGEST_CALM: u64 = 3 * DAY;
/// How often a person looks, once the storm is over.
const PERSON_EVERY: u64 = 10 * MINUTE;

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

/// The jobs of some life: keys, and specs by their digests.
pub(crate) fn jobs_of_a_life() -> Vec<(JobKey, Digest, Arc<JobSpec>)> {
    let jobs = plans(&mut Rng(0)).into_iter().map(|plan| {
        let [(digest, spec), _] = plan.specs;
        (plan.key, digest, spec)
    });
    jobs.collect()
}

/// How a life went.
pub(crate) struct Lived {
    pub(crate) kinds: Vec<OutcomeKind>,
    pub(crate) attempts: u32,
    pub(crate) outdated: bool,
    /// Whether an attempt was stopped because it waited for too long.
    pub(crate) waited: bool,
    /// Whether one was stopped because it hung.
    pub(crate) hung: bool,
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
    opportunities: Vec<Opportunity>,
    /// The driver waits for its disk until then.
    busy_until: u64,
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
            opportunities: faults::opportunities(&mut rng),
            busy_until: 0,
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

    fn remote(&mut self, n: usize) {
        let stands_until = self.remotes[n].stands_until;
        if self.clock.ms < stands_until {
            return self.at(stands_until, Coming::Remote(n));
        }
        let (job, ours) = (self.remotes[n].job, self.remotes[n].origin.writes());
        let others = self
            .remotes
            .iter()
            .enumerate()
            .filter(|(other, r)| ours && *other != n && r.job == job && r.origin.writes());
        let mut running = others.filter(|(_, r)| r.cloud.status == Status::Running);
        let beside = running.next().map(|(_, r)| r.cloud.id.clone());
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
            beside,
        };
        let next = remote.advance(self.clock.ms, &mut sky);
        if remote.truth != cloud::Truth::GoesOn {
            self.judge.truths.insert(remote.cloud.id.clone(), remote.truth);
        }
        if let Some(next) = next {
            self.at(next, Coming::Remote(n));
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
                    if let Some(n) = self
                        .remotes
                        .iter()
                        .position(|r| r.cloud.id == id && r.is_known(self.clock.ms))
                    {
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
            waited: self.judge.waited,
            hung: self.judge.hung,
            judge: std::mem::take(&mut self.judge),
        }
    }

    /// Everything that happened, one line each.
    pub(crate) fn history(&self) -> String {
        self.history.as_deref().unwrap_or_default().join("\n")
    }
}
