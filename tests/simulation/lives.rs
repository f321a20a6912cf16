//! The lives that are lived, and what they have to come to.

use super::bugs::Bug;
use super::invariants::Broken;
use super::table::Table;
use super::world::{Lived, World};
use spotkeeper::core::job::OutcomeKind;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Lives of a plain `cargo test`.
const LIVES: Range<u64> = 0..300;
/// Lives after which each meeting of the table that can be has to have come about.
const LONG: u64 = 20_000;
/// Lives that one deliberate bug gets before it has to be caught.
const LIVES_A_BUG: u64 = 1_500;
/// Lives that fail before the others are not lived any more.
const BROKEN_LIMIT: usize = 20;
/// Seeds that a thread takes at one time.
const CHUNK: u64 = 50;

/// All that many lives came to.
#[derive(Debug, Default)]
struct Sum {
    lives: u64,
    inputs: Vec<u64>,
    attempts: Vec<u64>,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
    outdated: u64,
    waited: u64,
    hung: u64,
    table: Table,
}

impl Sum {
    fn add(&mut self, lived: &Lived) {
        self.lives += 1;
        self.inputs.push(lived.judge.inputs);
        self.attempts.push(u64::from(lived.attempts));
        self.outdated += u64::from(lived.outdated);
        self.waited += u64::from(lived.waited);
        self.hung += u64::from(lived.hung);
        for kind in &lived.kinds {
            match kind {
                OutcomeKind::Succeeded => self.succeeded += 1,
                OutcomeKind::Failed => self.failed += 1,
                OutcomeKind::Cancelled => self.cancelled += 1,
            }
        }
        self.table.add(&lived.judge.table);
    }

    fn join(&mut self, mut other: Self) {
        self.lives += other.lives;
        self.inputs.append(&mut other.inputs);
        self.attempts.append(&mut other.attempts);
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.outdated += other.outdated;
        self.waited += other.waited;
        self.hung += other.hung;
        self.table.add(&other.table);
    }
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// One life; a panic of the model or of the program breaks it as an invariant does.
fn live(seed: u64, bug: Option<Bug>, recording: bool) -> (Result<Lived, Broken>, String) {
    let mut world = World::new(seed, bug, recording);
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
    let lived = lived.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned();
        let what = what.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(Broken { invariant: "no panic", what: what.unwrap_or_default() })
    });
    (lived, world.history())
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("SPOTKEEPER_LIVES") else { return LIVES };
    let (first, end) = text.split_once("..").expect("SPOTKEEPER_LIVES=FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Lives every seed of the range on all cores. Ends early once many have failed.
fn live_all(seeds: &Range<u64>) -> (Sum, BTreeMap<u64, Broken>) {
    let next = AtomicU64::new(seeds.start);
    let broken: Mutex<BTreeMap<u64, Broken>> = Mutex::default();
    let sum: Mutex<Sum> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                let mut own = Sum::default();
                loop {
                    let first = next.fetch_add(CHUNK, Ordering::Relaxed);
                    let is_enough = broken.lock().expect("unpoisoned").len() >= BROKEN_LIMIT;
                    if first >= seeds.end || is_enough {
                        break;
                    }
                    for seed in first..(first + CHUNK).min(seeds.end) {
                        match live(seed, None, false).0 {
                            Ok(lived) => own.add(&lived),
                            Err(what) => {
                                broken.lock().expect("unpoisoned").insert(seed, what);
                            }
                        }
                    }
                }
                sum.lock().expect("unpoisoned").join(own);
            });
        }
    });
    (sum.into_inner().expect("unpoisoned"), broken.into_inner().expect("unpoisoned"))
}

#[test]
fn lives_keep_both_promises() {
    let seeds = seeds();
    let (mut sum, broken) = live_all(&seeds);
    let (inputs, attempts) = (median(&mut sum.inputs), median(&mut sum.attempts));
    let all: u64 = sum.inputs.iter().sum();
    println!(
        "seeds {seeds:?}: {} lives, {all} inputs; median of a life: {inputs} inputs, {attempts} attempts; \
         jobs: {} succeeded, {} failed, {} cancelled; {} lives with an outdated attempt, {} with a raised bid, {} with one that hung\n{}",
        sum.lives,
        sum.succeeded,
        sum.failed,
        sum.cancelled,
        sum.outdated,
        sum.waited,
        sum.hung,
        sum.table.text(),
    );
    if let Some(seed) = broken.keys().next() {
        // The first of these lives again, with its history.
        let (_, history) = live(*seed, None, true);
        let line =
            |(seed, one): (&u64, &Broken)| format!("seed {seed}: {}: {}", one.invariant, one.what);
        let lines: Vec<String> = broken.iter().map(line).collect();
        panic!("{history}\n{}", lines.join("\n"));
    }
    let wrong = sum.table.wrong(sum.lives >= LONG);
    assert!(wrong.is_empty(), "the table has gaps, or what cannot be: {wrong:#?}");
    if sum.lives < LIVES.end {
        return;
    }
    assert!(inputs >= 200 && attempts >= 3, "the lives are too short to tell");
    assert!(sum.succeeded > sum.lives && sum.cancelled > sum.lives / 50);
    assert!(sum.failed > sum.lives / 50, "crash loops are given up");
    assert!(sum.outdated > sum.lives / 50, "attempts are stopped for a newer checkpoint");
    assert!(sum.waited > sum.lives / 50, "attempts are stopped for a higher bid");
    assert!(sum.hung > sum.lives / 200, "attempts are stopped because they hang");
}

/// The first life in which a bug breaks an invariant that it has to break.
fn caught(bug: Bug, lives: u64) -> Option<(u64, Broken)> {
    (0..lives).find_map(|seed| {
        let broken = live(seed, Some(bug), false).0.err()?;
        bug.breaks().contains(&broken.invariant).then_some((seed, broken))
    })
}

#[test]
fn each_deliberate_bug_is_caught_by_its_invariant() {
    let next = AtomicUsize::new(0);
    let missed: Mutex<Vec<Bug>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match caught(*bug, LIVES_A_BUG) {
                        Some((seed, Broken { invariant, what })) => {
                            let what: String = what.chars().take(100).collect();
                            println!("{bug:?}: seed {seed}: {invariant}: {what}");
                        }
                        None => missed.lock().expect("unpoisoned").push(*bug),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("unpoisoned");
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
