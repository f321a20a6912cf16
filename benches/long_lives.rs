//! Thirty virtual days of a thousand jobs with five thousand releases, through the true core, turns
//! and store (sled on a real folder): what memory and state come to.
//!
//! Prints a line a day and ends with 1 if memory grows by more than [`GROWTH_LIMIT_PERCENT`] after the
//! first day, or if the state or a history is larger than its limits. What the figures mean:
//! docs/performance.md. `SPOTKEEPER_BENCH_FOLDER`: where the state folder is made; by default the
//! usual place for temporary files. `SPOTKEEPER_BENCH_JOBS`: fewer jobs, each with as many releases.

#![allow(clippy::disallowed_methods, reason = "a measurement needs the monotonic clock itself")]
#![allow(clippy::print_stdout, reason = "the table is the product of a bench")]
#![allow(missing_docs, missing_debug_implementations, unreachable_pub, reason = "a model")]

#[path = "long_lives/world.rs"]
#[allow(dead_code, reason = "shared with a test")]
mod world;

use anyhow::{Context as _, Result, ensure};
use spotkeeper::core::job::EndedAttempt;
use spotkeeper::model::ids::JobKey;
use spotkeeper::store::records::{self, StoredEvent};
use spotkeeper::store::{Options, Store};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;
use world::{DAY, HOUR, Seeded, World};

const DAYS: u64 = 30;
const JOBS: usize = 1_000;
const RELEASES_A_JOB: usize = 5;
/// Every so manieth job is in a bad market: together they have half of all releases, and reach the
/// limits of their histories.
const DENSE: usize = 20;
/// Growth of resident memory after the first day.
const GROWTH_LIMIT_PERCENT: u64 = 10;
/// Bytes of the state folder at any time: 40 events and 6 attempts a job, raw answers, a journal, two
/// backups, and what sled has not let go of.
const STATE_LIMIT_BYTES: u64 = 512 * 1024 * 1024;
/// Ended attempts and events of one job that are kept: docs/reliability.md.
const ATTEMPTS_LIMIT: usize = 50;
const EVENTS_LIMIT: usize = 1_000;

fn saves_every(job: usize) -> u64 {
    if job.is_multiple_of(DENSE) { HOUR } else { 6 * HOUR }
}

fn resident_kib() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() { bytes_below(&entry.path())? } else { about.len() };
    }
    Ok(sum)
}

/// The jobs that are released in each minute.
fn releases(jobs: usize) -> BTreeMap<u64, Vec<usize>> {
    let (mut rng, mut found) = (Seeded(7), BTreeMap::<u64, Vec<usize>>::new());
    let mut one_of = |count: usize| usize::try_from(rng.below(count as u64)).unwrap_or_default();
    for n in 0..jobs * RELEASES_A_JOB {
        let job = if n % 2 == 0 { one_of(jobs / DENSE) * DENSE } else { one_of(jobs) };
        let minute = one_of(usize::try_from(DAYS * DAY).unwrap_or_default()) as u64;
        found.entry(minute).or_default().push(job);
    }
    found
}

/// The longest history of events and of attempts, and how many there are in all.
fn histories(world: &mut World) -> [usize; 4] {
    let (mut events, mut attempts) = (BTreeMap::new(), BTreeMap::new());
    let (stored, ended): (Vec<StoredEvent>, Vec<(JobKey, EndedAttempt)>) =
        (world.all(records::EVENTS), world.all(records::ATTEMPTS));
    for event in &stored {
        *events.entry(event.job.clone()).or_insert(0) += 1;
    }
    for (key, _) in &ended {
        *attempts.entry(key.clone()).or_insert(0) += 1;
    }
    let most = |of: &BTreeMap<JobKey, usize>| of.values().max().copied().unwrap_or(0);
    [most(&events), stored.len(), most(&attempts), ended.len()]
}

fn main() -> Result<()> {
    let parent = std::env::var_os("SPOTKEEPER_BENCH_FOLDER");
    let root = match parent {
        Some(parent) => tempfile::tempdir_in(parent)?,
        None => tempfile::tempdir()?,
    };
    let folder = root.path().join("state");
    let (store, _) = Store::open(&folder, Options::default())?;
    let jobs = match std::env::var("SPOTKEEPER_BENCH_JOBS") {
        Ok(text) => text.parse().context("SPOTKEEPER_BENCH_JOBS")?,
        Err(_) => JOBS,
    };
    let mut world = World::new(1, jobs, saves_every, store);
    world.begin_with_nothing();
    let releases = releases(jobs);
    let start = Instant::now();
    println!("{jobs} jobs, {RELEASES_A_JOB} releases each, {DAYS} days; a line a day");
    println!("day  VmRSS KiB  state MiB   releases    inputs   commits   seconds");
    let (mut first, mut last, mut largest) = (0, 0, 0);
    for day in 1..=DAYS {
        for _ in 0..DAY {
            for job in releases.get(&world.minute).into_iter().flatten() {
                world.release(*job);
            }
            world.live_a_minute();
        }
        world.back_up();
        (last, largest) = (resident_kib()?, largest.max(bytes_below(&folder)?));
        if day == 1 {
            first = last;
        }
        let counts = world.counts;
        println!(
            "{day:>3}{last:>11}{:>11}{:>11}{:>10}{:>10}{:>10}",
            bytes_below(&folder)? / 1024 / 1024,
            counts.releases,
            counts.inputs,
            counts.commits,
            start.elapsed().as_secs()
        );
    }
    let [events, all_events, attempts, all_attempts] = histories(&mut world);
    println!("longest history of a job: {events} events, {attempts} ended attempts");
    println!("in all: {all_events} events, {all_attempts} ended attempts");
    println!("memory from day 1 to day {DAYS}: {first} -> {last} KiB");
    ensure!(events <= EVENTS_LIMIT, "a job has {events} events");
    ensure!(attempts <= ATTEMPTS_LIMIT, "a job has {attempts} ended attempts");
    ensure!(largest <= STATE_LIMIT_BYTES, "the state had {largest} bytes");
    ensure!(last * 100 <= first * (100 + GROWTH_LIMIT_PERCENT), "memory grows");
    Ok(())
}
