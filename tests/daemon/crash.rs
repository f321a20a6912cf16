//! Kill -9 of the daemon at every named point and at random times, with and without its state:
//! never two attempts at one time, nothing saved is lost, every job reaches its last step.

use crate::harness::{JobFile, World};
use crate::ledger::job_of;
use serde_json::json;
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

/// One emulator, one daemon after the other.
struct Life {
    label: &'static str,
    world: World,
    jobs: Vec<JobFile>,
    saves_on_term: bool,
    /// The ledger's number of creates at which the last release was made.
    released_at: usize,
    hits: Vec<String>,
}

impl Life {
    fn new(dialect: &'static str) -> Self {
        let on_term = dialect == "succeeded-after-term";
        let grace = if on_term { "2s" } else { "0s" };
        let world = World::new(&["--dialect", dialect, "--grace", grace]);
        let mut life = Self {
            label: dialect,
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
            let created = self.world.ledger().count("create");
            if created > self.released_at && self.world.release_all() > 0 {
                self.released_at = created;
            }
        }
    }

    fn kill(&mut self, at: At, state: State) {
        let hit = match at {
            At::Point(name) => self.kill_at_point(name),
            At::Sent => self.kill_when_sent(),
            At::InFlight => return self.kill_in_flight(),
            At::Random(after) => self.kill_after(after),
        };
        self.note(&hit, state);
        if state == State::Wiped {
            self.world.wipe();
        }
    }

    fn note(&mut self, hit: &str, state: State) {
        let line = format!("{}: killed at {hit}, state {state:?}", self.label);
        println!("{line}");
        self.hits.push(line);
    }

    fn kill_at_point(&mut self, name: &str) -> String {
        self.world.start(&[("SPOTKEEPER_CRASH_AT", &format!("{name}:1"))]);
        let start = Instant::now();
        let ended = loop {
            if let Some(ended) = self.world.ended() {
                break ended;
            }
            assert!(
                start.elapsed() < crate::harness::PATIENCE,
                "{}: `{name}` was not hit:\n{}",
                self.label,
                self.world.log()
            );
            self.stir();
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(ended.signal(), Some(9), "{name}: {ended}\n{}", self.world.log());
        name.to_owned()
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

    fn kill_when_sent(&mut self) -> String {
        self.world.put_faults(&json!([{ "call": "CreateJob", "delay": "5s", "times": 1 }]));
        let created = self.world.ledger().count("create");
        self.world.start(&[]);
        self.stir_until(|world| world.ledger().count("create") > created);
        self.world.kill();
        self.world.put_faults(&json!([]));
        "sent".to_owned()
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
            let held = self.world.ledger().count("refused");
            std::thread::sleep(HOLD + Duration::from_millis(500));
            let taken = self.world.ledger().count("refused") == held
                && self.world.ledger().count("create") > created;
            self.world.kill();
            if in_time && taken {
                return self.note("a CreateJob in flight", State::Wiped);
            }
        }
        panic!("{}: no CreateJob was taken after a wipe in {TRIES} tries", self.label);
    }

    fn kill_after(&mut self, after: Duration) -> String {
        self.world.start(&[]);
        let start = Instant::now();
        while start.elapsed() < after {
            self.stir();
            std::thread::sleep(Duration::from_millis(10));
        }
        self.world.kill();
        format!("a random time, {} ms", after.as_millis())
    }

    /// Lets the last daemon finish, and judges.
    fn finish(mut self) -> Vec<String> {
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
fn live(dialect: &'static str, kills: &[(At, State)]) -> Vec<String> {
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

/// All kills, in an order and with random times that the seed gives; every other one loses its
/// state.
fn plan(seed: u64) -> Vec<(At, State)> {
    let points = [
        "before send",
        "replied",
        "committed",
        "end seen",
        "scanning",
        "looked",
        "chosen",
        "intent durable",
        "journal begun",
        "backup written",
        "journal cut",
        "journal appended",
        "journal synced",
        "applied",
    ];
    let mut random = Seeded(seed);
    let mut kills: Vec<At> = points.into_iter().map(At::Point).collect();
    kills.extend([At::Sent, At::Sent]);
    kills.extend((0..18).map(|_| At::Random(Duration::from_millis(100 + random.below(2_500)))));
    for at in (1..kills.len()).rev() {
        let other = usize::try_from(random.below(at as u64 + 1)).expect("small");
        kills.swap(at, other);
    }
    // Each kind meets both: a whole round of points with one state, the next with the other.
    let states = [State::Kept, State::Wiped].into_iter().cycle();
    kills.into_iter().zip(states).collect()
}

#[test]
fn thirty_kills_and_never_two_attempts() {
    let seed = std::env::var("SPOTKEEPER_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or(20_260_101);
    println!("seed {seed} (SPOTKEEPER_TEST_SEED)");
    let kills = plan(seed);
    let count = kills.len() + 1;
    assert!(count >= 30);
    let share = kills.len().div_ceil(3);
    let dialects = ["plain", "evicted", "succeeded-after-term"];
    let lives: Vec<_> = kills
        .chunks(share)
        .zip(dialects)
        .map(|(kills, dialect)| {
            let mut kills = kills.to_vec();
            if dialect == "plain" {
                kills.push((At::InFlight, State::Wiped));
            }
            std::thread::spawn(move || live(dialect, &kills))
        })
        .collect();
    assert_eq!(lives.len(), dialects.len());
    let hits: Vec<String> =
        lives.into_iter().flat_map(|life| life.join().expect("a life went wrong")).collect();
    for (at, _) in kills {
        let name = match at {
            At::Point(name) => name,
            At::Sent => "sent",
            At::InFlight => "in flight",
            At::Random(_) => "a random time",
        };
        let needle = format!("killed at {name}");
        assert!(hits.iter().any(|line| line.contains(&needle)), "{name} was not hit: {hits:#?}");
    }
    assert_eq!(hits.len(), count);
    let wiped = hits.iter().filter(|line| line.ends_with("Wiped")).count();
    assert!(wiped * 2 >= count, "{wiped} of {count} lost the state");
}
