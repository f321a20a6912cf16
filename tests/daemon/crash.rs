//! Kill -9 of the daemon at every named point and at random times, with and without its state:
//! never two attempts at one time, nothing saved is lost, every job reaches its last step.
//!
//! The emulator's ledger judges the first promise, the trainer's own log the second one.
//!
//!     SPOTKEEPER_KILLS=100 cargo test --test daemon crash:: -- --nocapture     the long form
//!
//! kills so often at random times, and at least ten times at each point.

mod life;

use life::Life;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where a kill hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// At a crash point of the program, at this pass of it.
    Point { name: &'static str, pass: u64 },
    /// At a crash point that only a cancel leads to.
    Stop(&'static str),
    /// A CreateJob was done by the server, its reply is not given yet.
    Sent,
    /// A CreateJob is on its way; the server takes it after the next daemon has started.
    InFlight,
    /// This long after the start, at whatever it does then.
    Random(Duration),
}

impl At {
    /// How the table calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Point { name, .. } | Self::Stop(name) => name,
            Self::Sent => "a reply on its way",
            Self::InFlight => "a CreateJob in flight",
            Self::Random(_) => "any time",
        }
    }
}

/// What becomes of the state folder after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Kept,
    Wiped,
}

/// A kill that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kill {
    at: At,
    state: State,
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
            At::Point { name, pass } => write!(f, "killed at `{name}`, pass {pass}")?,
            At::Stop(_) | At::Sent | At::InFlight => write!(f, "killed at `{}`", self.at.name())?,
            At::Random(after) => write!(f, "killed {} ms after the start", after.as_millis())?,
        }
        write!(f, ", state {state}, dialect {}", self.dialect)
    }
}

/// Points that every daemon passes once or twice, whatever happens.
const SELDOM: [&str; 20] = [
    "store opened",
    "intent durable",
    "before fence",
    "fence written",
    "before send",
    "replied",
    "committed",
    "end seen",
    "end durable",
    "logs read",
    "before evidence",
    "evidence kept",
    "scanning",
    "looked",
    "chosen",
    "result durable",
    "before tracker",
    "tracker written",
    "journal begun",
    "backup written",
];
/// Points of every commit: one of the first passes is hit.
const OFTEN: [&str; 3] = ["journal appended", "journal synced", "applied"];
const PASSES: u64 = 8;
/// Points behind a cancel. A wiped state would not know of it.
const STOPS: [&str; 3] = ["stop durable", "before stop", "stop sent"];

/// Logs are read after a failure.
const OF_FAILURES: &str = "logs read";

/// The dialect in which a release is no failure.
const ENDS_WELL: &str = "succeeded-after-term";
const DIALECTS: [&str; 3] = ["plain", "evicted", ENDS_WELL];

/// How many lives, and what each is killed at.
#[derive(Debug, Clone, Copy)]
struct Size {
    lives: usize,
    /// Kills of one life at any time.
    random: usize,
    /// Which points each life is killed at.
    points: Share,
    /// Hits that each point has to have.
    wanted: usize,
}

/// The points of one life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// Two of three: the shortest run in which each one is hit with and without its state.
    TwoThirds,
    /// Every second one. A long life is a slow one: whoever lost the state takes up all attempts of
    /// the jobs before.
    Half,
}

impl Size {
    /// Of a plain `cargo test`.
    const SMALL: Self = Self { lives: 3, random: 4, points: Share::TwoThirds, wanted: 2 };
    /// Hits of each point in a larger one, at least.
    const WANTED: usize = 10;
    /// Random kills of one life of a larger one.
    const RANDOM: usize = 5;
    /// Worlds at one time: each has an emulator, a daemon and a trainer, and mostly waits.
    const AT_ONE_TIME: usize = 10;

    fn of(random_kills: Option<usize>) -> Self {
        let Some(kills) = random_kills else { return Self::SMALL };
        let lives = kills.div_ceil(Self::RANDOM).max(2 * Self::WANTED);
        let (random, wanted) = (kills.div_ceil(lives), lives / 2);
        Self { lives, random, points: Share::Half, wanted }
    }
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

/// Every point, with the passes of this life.
fn points(random: &mut Seeded) -> Vec<At> {
    let seldom = SELDOM.into_iter().map(|name| At::Point { name, pass: 1 });
    let last = At::Point { name: "journal cut", pass: 1 };
    let often = OFTEN.map(|name| At::Point { name, pass: 1 + random.below(PASSES) });
    let stops = STOPS.into_iter().map(At::Stop);
    seldom.chain([last, At::Sent, At::InFlight]).chain(often).chain(stops).collect()
}

/// What becomes of the state when a life is killed at a point; `None` if it is not.
fn state_at(number: usize, at: At, life: usize, size: Size) -> Option<State> {
    let by_turns = [State::Kept, State::Wiped];
    let fails = DIALECTS[life % DIALECTS.len()] != ENDS_WELL;
    let state = match (at.name() == OF_FAILURES, size.points) {
        // Two dialects of three know failures: each of their lives stands in for the third.
        (true, _) => fails.then_some(by_turns[life % 2]),
        (false, Share::Half) => {
            let turn = number + life;
            turn.is_multiple_of(2).then_some(by_turns[turn / 2 % 2])
        }
        // Of three lives that share the points, each skips a third.
        (false, Share::TwoThirds) => match (number + life) % 3 {
            0 => None,
            turn => Some(by_turns[turn - 1]),
        },
    };
    let forced = match at {
        At::Stop(_) => Some(State::Kept),
        At::InFlight => Some(State::Wiped),
        At::Point { .. } | At::Sent | At::Random(_) => None,
    };
    state.map(|state| forced.unwrap_or(state))
}

/// All kills of one life, in an order and with random times that the seed gives. What one life
/// loses its state at, the next one keeps it at.
fn plan(seed: u64, life: usize, size: Size) -> Vec<Kill> {
    let mut random = Seeded(seed + life as u64 + 1);
    let mut kills: Vec<Kill> = Vec::new();
    for (number, at) in points(&mut random).into_iter().enumerate() {
        kills.extend(state_at(number, at, life, size).map(|state| Kill { at, state }));
    }
    kills.extend((0..size.random).map(|number| Kill {
        at: At::Random(Duration::from_millis(100 + random.below(2_500))),
        state: if (number + life).is_multiple_of(2) { State::Wiped } else { State::Kept },
    }));
    for at in (1..kills.len()).rev() {
        let other = usize::try_from(random.below(at as u64 + 1)).expect("small");
        kills.swap(at, other);
    }
    kills
}

/// Lives all lives, a few at one time. All of them come to their end, so that no process is left
/// behind when one goes wrong.
fn live_all(seed: u64, size: Size) -> Vec<Hit> {
    let next = AtomicUsize::new(0);
    let hits: Mutex<Vec<Hit>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..Size::AT_ONE_TIME.min(size.lives) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= size.lives {
                        break;
                    }
                    let mut life = Life::new(DIALECTS[number % DIALECTS.len()]);
                    for kill in plan(seed, number, size) {
                        life.kill(kill);
                    }
                    let made = life.finish();
                    hits.lock().expect("no life went wrong").extend(made);
                }
            });
        }
    });
    hits.into_inner().expect("no life went wrong")
}

#[test]
fn killed_everywhere_and_never_two_attempts_and_nothing_lost() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let seed = number("SPOTKEEPER_TEST_SEED").unwrap_or(20_260_101);
    let kills = number("SPOTKEEPER_KILLS").map(|kills| usize::try_from(kills).expect("few"));
    let size = Size::of(kills);
    println!("seed {seed} (SPOTKEEPER_TEST_SEED), {size:?} (SPOTKEEPER_KILLS)");
    let hits = live_all(seed, size);
    let mut table: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for hit in &hits {
        table.entry(hit.at.name()).or_default()[usize::from(hit.state == State::Wiped)] += 1;
    }
    println!("\n{:24}{:>6}{:>6}{:>6}", "killed at", "hits", "kept", "wiped");
    for (name, [kept, wiped]) in &table {
        println!("{name:24}{:>6}{kept:>6}{wiped:>6}", kept + wiped);
    }
    for at in points(&mut Seeded(1)) {
        let [kept, wiped] = table.get(at.name()).copied().unwrap_or_default();
        assert!(kept + wiped >= size.wanted, "`{}` was hit {} times", at.name(), kept + wiped);
        assert!(wiped > 0 || matches!(at, At::Stop(_)), "`{}` never lost its state", at.name());
        assert!(kept > 0 || at == At::InFlight, "`{}` never kept its state", at.name());
    }
    let random = table.get("any time").map_or(0, |[kept, wiped]| kept + wiped);
    assert!(random >= kills.unwrap_or(0) && hits.len() >= 30, "{random} of {}", hits.len());
    println!(
        "{} kills in {} lives: each point at least {} times, {random} at random times",
        hits.len(),
        size.lives,
        size.wanted
    );
}
