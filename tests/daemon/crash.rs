//! Kill -9 of the daemon at every named point and at random times, with and without its state:
//! never two attempts at one time, nothing saved is lost, every job reaches its last step.

use crate::harness::{JobFile, World};
use crate::ledger::job_of;
use serde_json::json;
use std::fmt;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

/// Steps of one job. A job that is done before all kills are made is followed by another one.
const STEPS: u64 = 60;
/// How long a CreateJob is held back: shorter than the acceptance less the second that a date in
/// whole seconds may be early.
const HOLD: Duration = Duration::from_millis(1_500);
/// Kills that have to come at the right moment from outside are tried this often.
const TRIES: u32 = 5;

/// Where a kill hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// At a crash point of the program, the first time it is passed.
    Point(&'static str),
    /// A CreateJob was done by the server, its reply is not given yet.
    Sent,
    /// A CreateJob is on its way; the server takes it after the next daemon has started.
    InFlight,
    /// This long after the start, at whatever it does then.
    Random(Duration),
}

/// What becomes of the state folder after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Kept,
    Wiped,
}

/// A kill that was made.
struct Hit {
    dialect: &'static str,
    at: At,
    state: State,
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Kept => "kept",
            State::Wiped => "wiped",
        };
        match self.at {
            At::Point(name) => write!(f, "killed at `{name}`")?,
            At::Sent => write!(f, "killed at `sent`")?,
            At::InFlight => write!(f, "killed with a CreateJob in flight")?,
            At::Random(after) => write!(f, "killed {} ms after the start", after.as_millis())?,
        }
        write!(f, ", state {state}, dialect {}", self.dialect)
    }
}

/// One emulator, one daemon after the other.
struct Life {
    dialect: &'static str,
    world: World,
    jobs: Vec<JobFile>,
    saves_on_term: bool,
    /// Starts of the job's trainer at the last release: each is released once at most.
    released_at: usize,
    hits: Vec<Hit>,
}

impl Life {
    fn new(dialect: &'static str) -> Self {
        let on_term = dialect == "succeeded-after-term";
        let grace = if on_term { "2s" } else { "0s" };
        let world = World::new(&["--dialect", dialect, "--grace", grace]);
        let mut life = Self {
            dialect,
            world,
            jobs: Vec::new(),
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
        let job = JobFile { saves_on_term, step_ms: 40, ..JobFile::new(&name, STEPS) };
        self.world.put_job(&name, &job);
        self.jobs.push(job);
        self.released_at = 0;
    }

    fn job(&self) -> String {
        self.jobs.last().expect("a job").name.clone()
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

    fn kill(&mut self, at: At, state: State) {
        match at {
            At::Point(name) => self.kill_at_point(name),
            At::Sent => self.kill_when_sent(),
            At::InFlight => self.kill_in_flight(),
            At::Random(after) => self.kill_after(after),
        }
        if state == State::Wiped && at != At::InFlight {
            self.world.wipe();
        }
        self.hits.push(Hit { dialect: self.dialect, at, state });
    }

    fn kill_at_point(&mut self, name: &str) {
        self.world.start(&[("SPOTKEEPER_CRASH_AT", &format!("{name}:1"))]);
        let start = Instant::now();
        let ended = loop {
            if let Some(ended) = self.world.ended() {
                break ended;
            }
            assert!(
                start.elapsed() < crate::harness::PATIENCE,
                "{}: `{name}` was not hit:\n{}",
                self.dialect,
                self.world.log()
            );
            self.stir();
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.signal(), Some(9), "{name}: {ended}\n{}", self.world.log());
    }

    /// Stirs until the ledger or the emulator shows what a fault waits for.
    fn stir_until(&mut self, mut is_so: impl FnMut(&World) -> bool) {
        let start = Instant::now();
        while !is_so(&self.world) {
            assert!(start.elapsed() < crate::harness::PATIENCE, "{}", self.world.log());
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
    fn finish(mut self) -> Vec<Hit> {
        self.world.start(&[]);
        let job = self.job();
        self.world.wait_done(&job);
        self.world.ledger().assert_never_two(job_of);
        for job in &self.jobs {
            self.world.trainer(&job.name).assert_nothing_lost(STEPS);
        }
        assert_eq!(self.world.ledger().count("stop_asked"), 0, "nothing of ours had to be stopped");
        self.hits
    }
}

/// Lives a whole life and tells what was hit.
fn live(dialect: &'static str, kills: &[(At, State)]) -> Vec<Hit> {
    let mut life = Life::new(dialect);
    for (at, state) in kills {
        life.kill(*at, *state);
    }
    life.finish()
}

/// Numbers from a seed: xorshift.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Where every life is killed once; `RANDOM` more kills come at any time.
const POINTS: [At; 16] = [
    At::Point("before send"),
    At::Sent,
    At::Point("replied"),
    At::Point("committed"),
    At::Point("end seen"),
    At::Point("scanning"),
    At::Point("looked"),
    At::Point("chosen"),
    At::Point("intent durable"),
    At::Point("journal appended"),
    At::Point("journal synced"),
    At::Point("applied"),
    At::Point("journal begun"),
    At::Point("backup written"),
    At::Point("journal cut"),
    At::InFlight,
];
const RANDOM: usize = 4;

/// All kills of one life, in an order and with random times that the seed gives. What one life
/// loses its state at, the next one keeps it at.
fn plan(seed: u64, life: usize) -> Vec<(At, State)> {
    let mut random = Seeded(seed + life as u64 + 1);
    let times = (0..RANDOM).map(|_| At::Random(Duration::from_millis(100 + random.below(2_500))));
    let kills = POINTS.into_iter().chain(times.collect::<Vec<_>>());
    let mut kills: Vec<(At, State)> = kills
        .enumerate()
        .map(|(number, at)| match (at, (number + life) % 2) {
            (At::InFlight, _) | (_, 0) => (at, State::Wiped),
            (_, _) => (at, State::Kept),
        })
        .collect();
    for at in (1..kills.len()).rev() {
        let other = usize::try_from(random.below(at as u64 + 1)).expect("small");
        kills.swap(at, other);
    }
    kills
}

#[test]
fn killed_everywhere_and_never_two_attempts_and_nothing_lost() {
    let seed = std::env::var("SPOTKEEPER_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(20_260_101);
    println!("seed {seed} (SPOTKEEPER_TEST_SEED)");
    let lives: Vec<_> = ["plain", "evicted", "succeeded-after-term"]
        .into_iter()
        .enumerate()
        .map(|(life, dialect)| std::thread::spawn(move || live(dialect, &plan(seed, life))))
        .collect();
    // All of them come to their end, so that no process is left behind when one goes wrong.
    let lives: Vec<_> = lives.into_iter().map(std::thread::JoinHandle::join).collect();
    let hits: Vec<Hit> =
        lives.into_iter().flat_map(|life| life.expect("a life went wrong")).collect();
    for hit in &hits {
        println!("{hit}");
    }
    for point in POINTS {
        let of_point: Vec<State> =
            hits.iter().filter(|hit| hit.at == point).map(|hit| hit.state).collect();
        assert_eq!(of_point.len(), 3, "{point:?} was not hit in every dialect");
        assert!(of_point.contains(&State::Wiped), "{point:?} was never hit without its state");
        assert!(point == At::InFlight || of_point.contains(&State::Kept), "{point:?}");
    }
    let wiped = hits.iter().filter(|hit| hit.state == State::Wiped).count();
    assert!(hits.len() >= 30 && wiped * 2 >= hits.len(), "{wiped} of {}", hits.len());
}
