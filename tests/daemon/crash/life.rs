//! A life of one emulator and of one daemon after the other, each of which is killed.

use super::{At, Hit, Kill, State};
use crate::harness::{JobFile, PATIENCE, World};
use crate::ledger::job_of;
use crate::tracker;
use serde_json::json;
use std::ops::RangeInclusive;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// Steps of one job. A job that is done before all kills are made is followed by another one.
const STEPS: u64 = 40;
/// Time of one step.
const STEP_MS: u64 = 40;
/// How long a CreateJob is held back: shorter than the acceptance less the second that a date in
/// whole seconds may be early.
const HOLD: Duration = Duration::from_millis(1_500);
/// Points that come once the present job is done, or with another one: it is left in peace.
const AT_AN_END: [&str; 3] = ["result durable", "before tracker", "tracker written"];
/// Points that a job without a fence does not have.
const OF_FENCES: [&str; 2] = ["before fence", "fence written"];

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
    kind: Kind,
    /// How often it may have been created at the end, if it was cancelled.
    cancelled_after: Option<RangeInclusive<usize>>,
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
        let kind = std::mem::replace(&mut self.next_kind, Kind::Fenced);
        self.jobs.push(Put { file, kind, cancelled_after: None });
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
        if !self.go_on_to_the_next_job() && !trainer.is_done() && trainer.saved_since_start() {
            let starts = trainer.starts().len();
            if starts > self.released_at && self.world.release_all() > 0 {
                self.released_at = starts;
            }
        }
    }

    /// Puts the next job down once the last one is done.
    fn go_on_to_the_next_job(&mut self) -> bool {
        let over =
            self.world.trainer(&self.job()).is_done() && self.world.ledger().open().is_empty();
        if over {
            self.next_job();
        }
        over
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
        self.until_dead(name, |life| {
            let kind = life.jobs.last().expect("a job").kind;
            if AT_AN_END.contains(&name) || OF_FENCES.contains(&name) && kind != Kind::Fenced {
                life.go_on_to_the_next_job();
            } else {
                life.stir();
            }
        });
    }

    /// Cancels the job that runs, and lets the daemon die of the stop that follows. The next one
    /// carries the cancel out.
    fn kill_at_stop(&mut self, name: &str) {
        let mut taken = false;
        self.start_to_die_at(name, 1);
        self.until_dead(name, |life| {
            let job = life.job();
            if taken {
                // Its attempt ended before the cancel came: nothing had to be stopped.
                let over = format!("cancelled; nothing of it runs job={job} ");
                if life.world.log().contains(&over) {
                    life.leave_cancelled();
                    taken = false;
                }
            } else if !life.go_on_to_the_next_job() {
                taken = life.cancel_while_it_runs();
            }
        });
        self.world.start(&[]);
        // Where the daemon died behind the last line about the cancelled job, the next one is there
        // already, and nobody has cancelled it.
        if self.jobs.last().is_some_and(|job| job.cancelled_after.is_some()) {
            self.world
                .wait("the cancelled job has ended", |world| world.ledger().open().is_empty());
            self.leave_cancelled();
        }
        self.world.kill();
    }

    /// Cancels the present job if an attempt of it runs. Answers whether the cancel was taken.
    fn cancel_while_it_runs(&mut self) -> bool {
        let job = self.job();
        let before = self.world.ledger();
        let Some(attempt) = before.attempt_of(&job).filter(|attempt| attempt.runs) else {
            return false;
        };
        let taken = self.world.cli(&["cancel", "-y", &job]).status.success();
        // The daemon may die before it has answered: only a cancel that was taken leads to a stop.
        let created = before.created(&job);
        let after = self.world.ledger();
        // One that ended by itself just before may have been followed by a CreateJob that was on its
        // way when the cancel came. While one is open, none can be.
        let was_open = !after.has_ended(&attempt.id) || after.was_asked_to_stop(&attempt.id);
        let may_follow = usize::from(!was_open);
        self.jobs.last_mut().expect("a job").cancelled_after = Some(created..=created + may_follow);
        taken
    }

    /// The present job is cancelled and over. Its file goes too: a state that is removed later does
    /// not know of the cancel.
    fn leave_cancelled(&mut self) {
        self.world.remove_job(&self.job());
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
        self.world.put_faults(&json!([{ "call": "CreateJob", "delay": "20s", "times": 1 }]));
        let created = self.world.ledger().count("create");
        self.world.start(&[]);
        self.stir_until(|world| world.ledger().count("create") > created);
        self.world.kill();
        self.world.put_faults(&json!([]));
    }

    /// The state is wiped while a CreateJob is on its way, and the server takes it only after the
    /// next daemon has started: tried until that daemon was quick enough.
    fn kill_in_flight(&mut self) {
        let start = Instant::now();
        while !self.wipe_in_flight() {
            assert!(start.elapsed() < PATIENCE, "{}: no daemon was in time", self.dialect);
        }
    }

    fn wipe_in_flight(&mut self) -> bool {
        let hold = u64::try_from(HOLD.as_millis()).expect("short");
        let rule = json!([{ "call": "CreateJob", "hold_before": hold, "times": 1 }]);
        self.world.put_faults(&rule);
        let (created, refused) = self.creates();
        self.world.start(&[]);
        self.stir_until(|world| world.fault_uses_left() == 0);
        self.world.kill();
        self.world.wipe();
        self.world.put_faults(&json!([]));
        self.world.start(&[]);
        self.world.wait("the new daemon has its store", |w| w.path("state/lock").exists());
        let in_time = self.creates() == (created, refused);
        let mut outcome = (created, refused);
        self.world.wait("the CreateJob came out", |world| {
            let ledger = world.ledger();
            outcome = (ledger.count("create"), ledger.count("refused"));
            outcome != (created, refused)
        });
        self.world.kill();
        // A request that was too old by then is as good as none.
        in_time && outcome.1 == refused
    }

    /// CreateJobs that were taken, and those that were not.
    fn creates(&self) -> (usize, usize) {
        let ledger = self.world.ledger();
        (ledger.count("create"), ledger.count("refused"))
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
        for Put { file, cancelled_after, .. } in &self.jobs {
            let name = &file.name;
            if let Some(created) = cancelled_after {
                let count = ledger.created(name);
                assert!(
                    created.contains(&count),
                    "{name} was cancelled after {created:?}: {count}"
                );
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
