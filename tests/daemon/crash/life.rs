//! A life of one emulator and of one daemon after the other, each of which is killed.

use super::{At, Hit, Kill, State};
use crate::harness::{JobFile, World};
use crate::ledger::job_of;
use crate::tracker;
use serde_json::json;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// Steps of one job. A job that is done before all kills are made is followed by another one.
const STEPS: u64 = 60;
/// Time of one step.
const STEP_MS: u64 = 40;
/// How long a CreateJob is held back: shorter than the acceptance less the second that a date in
/// whole seconds may be early.
const HOLD: Duration = Duration::from_millis(1_500);
/// Kills that have to come at the right moment from outside are tried this often.
const TRIES: u32 = 5;
/// A point may be hit only once the present job is done and another one is under way.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a job is there for besides being trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Its fence is written before each CreateJob.
    Fenced,
    /// Its trainer goes by a tracker, which names a checkpoint that was cut.
    ByTracker,
}

/// A job of a life.
struct Put {
    file: JobFile,
    /// How often it was created when its cancel was taken.
    cancelled_after: Option<usize>,
}

/// One emulator, one daemon after the other.
pub(super) struct Life {
    dialect: &'static str,
    world: World,
    jobs: Vec<Put>,
    next_kind: Kind,
    saves_on_term: bool,
    /// Starts of the job's trainer at the last release: each is released once at most.
    released_at: usize,
    hits: Vec<Hit>,
}

impl Life {
    pub(super) fn new(dialect: &'static str) -> Self {
        let on_term = dialect == "succeeded-after-term";
        let grace = if on_term { "2s" } else { "0s" };
        let world = World::new(&["--dialect", dialect, "--grace", grace]);
        let mut life = Self {
            dialect,
            world,
            jobs: Vec::new(),
            next_kind: Kind::Fenced,
            saves_on_term: on_term,
            released_at: 0,
            hits: Vec::new(),
        };
        life.next_job();
        life
    }

    fn next_job(&mut self) {
        let name = format!("job{}", self.jobs.len() + 1);
        let saves_on_term = self.saves_on_term;
        let file = JobFile { saves_on_term, step_ms: STEP_MS, ..JobFile::new(&name, STEPS) };
        match self.next_kind {
            Kind::Fenced => self.world.put_fenced(&file),
            Kind::ByTracker => {
                tracker::cut_newest(&self.world, &file);
                tracker::put(&self.world, &file, true);
            }
        }
        self.jobs.push(Put { file, cancelled_after: None });
        self.next_kind = Kind::Fenced;
        self.released_at = 0;
    }

    fn job(&self) -> String {
        self.jobs.last().expect("a job").file.name.clone()
    }

    /// Makes something happen: a release once the running attempt has saved something new, the
    /// next job once the last one is done.
    fn stir(&mut self) {
        let job = self.job();
        let trainer = self.world.trainer(&job);
        if trainer.is_done() {
            if self.world.ledger().open().is_empty() {
                self.next_job();
            }
        } else if trainer.saved_since_start() {
            let starts = trainer.starts().len();
            if starts > self.released_at && self.world.release_all() > 0 {
                self.released_at = starts;
            }
        }
    }

    pub(super) fn kill(&mut self, Kill { at, state }: Kill) {
        match at {
            At::Point { name, pass } => self.kill_at_point(name, pass),
            At::Stop(name) => self.kill_at_stop(name),
            At::Sent => self.kill_when_sent(),
            At::InFlight => self.kill_in_flight(),
            At::Random(after) => self.kill_after(after),
        }
        if state == State::Wiped && at != At::InFlight {
            self.world.wipe();
        }
        let hit = Hit { dialect: self.dialect, at, state };
        println!("{hit}");
        self.hits.push(hit);
    }

    fn start_to_die_at(&mut self, name: &str, pass: u64) {
        if name.contains("tracker") {
            self.next_kind = Kind::ByTracker;
        }
        self.world.start(&[("SPOTKEEPER_CRASH_AT", &format!("{name}:{pass}"))]);
    }

    /// Goes on with `act` until the daemon has died of its crash point.
    fn until_dead(&mut self, name: &str, mut act: impl FnMut(&mut Self)) {
        let start = Instant::now();
        let ended = loop {
            if let Some(ended) = self.world.ended() {
                break ended;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "{}: `{name}` was not hit:\n{}",
                self.dialect,
                self.world.log()
            );
            act(self);
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.signal(), Some(9), "{name}: {ended}\n{}", self.world.log());
    }

    fn kill_at_point(&mut self, name: &str, pass: u64) {
        self.start_to_die_at(name, pass);
        self.until_dead(name, Self::stir);
    }

    /// Cancels the job that runs, and lets the daemon die of the stop that follows. The next one
    /// carries the cancel out.
    fn kill_at_stop(&mut self, name: &str) {
        let (mut created, mut taken) = (0, false);
        self.start_to_die_at(name, 1);
        // It may die before it has answered: only a cancel that was taken leads to such a point.
        self.until_dead(name, |life| {
            let job = life.job();
            if taken {
                // Its attempt ended before the cancel came: nothing had to be stopped.
                let over = format!("cancelled; nothing of it runs job={job} ");
                if life.world.log().contains(&over) {
                    life.jobs.last_mut().expect("a job").cancelled_after = Some(created);
                    life.next_job();
                    taken = false;
                }
            } else if life.world.trainer(&job).is_done() {
                life.stir();
            } else if life.world.ledger().running().len() == 1 {
                created = life.world.ledger().created(&job);
                taken = life.world.cli(&["cancel", "-y", &job]).status.success();
            }
        });
        self.jobs.last_mut().expect("a job").cancelled_after = Some(created);
        self.world.start(&[]);
        self.world.wait("the cancelled job has ended", |world| world.ledger().open().is_empty());
        self.world.remove_job(&self.job());
        self.world.kill();
        self.next_job();
    }

    /// Stirs until the ledger or the emulator shows what a fault waits for.
    fn stir_until(&mut self, mut is_so: impl FnMut(&World) -> bool) {
        let start = Instant::now();
        while !is_so(&self.world) {
            assert!(start.elapsed() < PATIENCE, "{}", self.world.log());
            self.stir();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn kill_when_sent(&mut self) {
        self.world.put_faults(&json!([{ "call": "CreateJob", "delay": "5s", "times": 1 }]));
        let created = self.world.ledger().count("create");
        self.world.start(&[]);
        self.stir_until(|world| world.ledger().count("create") > created);
        self.world.kill();
        self.world.put_faults(&json!([]));
    }

    /// The state is wiped while a CreateJob is on its way, and the server takes it only after the
    /// next daemon has started.
    fn kill_in_flight(&mut self) {
        for _ in 0..TRIES {
            let hold = u64::try_from(HOLD.as_millis()).expect("short");
            let rule = json!([{ "call": "CreateJob", "hold_before": hold, "times": 1 }]);
            self.world.put_faults(&rule);
            self.world.start(&[]);
            self.stir_until(|world| world.fault_uses_left() == 0);
            let created = self.world.ledger().count("create");
            self.world.kill();
            self.world.wipe();
            self.world.put_faults(&json!([]));
            self.world.start(&[]);
            self.world.wait("the new daemon has its store", |w| w.path("state/lock").exists());
            let in_time = self.world.ledger().count("create") == created;
            let refused = self.world.ledger().count("refused");
            std::thread::sleep(HOLD + Duration::from_millis(500));
            let taken = self.world.ledger().count("refused") == refused
                && self.world.ledger().count("create") > created;
            self.world.kill();
            if in_time && taken {
                return;
            }
        }
        panic!("{}: no CreateJob was taken after a wipe in {TRIES} tries", self.dialect);
    }

    fn kill_after(&mut self, after: Duration) {
        self.world.start(&[]);
        let start = Instant::now();
        while start.elapsed() < after {
            self.stir();
            std::thread::sleep(Duration::from_millis(10));
        }
        self.world.kill();
    }

    /// Lets the last daemon finish, and judges.
    pub(super) fn finish(mut self) -> Vec<Hit> {
        self.world.start(&[]);
        let job = self.job();
        self.world.wait_done(&job);
        let ledger = self.world.ledger();
        ledger.assert_never_two(job_of);
        for Put { file, cancelled_after } in &self.jobs {
            let name = &file.name;
            if let Some(created) = cancelled_after {
                assert_eq!(ledger.created(name), *created, "{name} was cancelled");
            } else {
                self.world.trainer(name).assert_nothing_lost(STEPS);
                assert_eq!(ledger.count_of("stop_asked", name), 0, "{name} had to be stopped");
                // Success is final. Where a release looks like one, there are more.
                let well = ledger.successes(name);
                assert!(
                    well == 1 || self.saves_on_term && well > 1,
                    "{name} succeeded {well} times"
                );
            }
        }
        self.hits
    }
}
