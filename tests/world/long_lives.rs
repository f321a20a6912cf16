//! What compaction may not change: after the histories were cut to their limits, the journal was
//! begun anew and everything was loaded from what is left, the same inputs have the same effects as
//! they have in a process that was never cut short. The bench `long_lives` runs the same world for a
//! month.

#[path = "../../benches/long_lives/world.rs"]
#[allow(missing_debug_implementations, unreachable_pub, dead_code, reason = "shared with a bench")]
mod world;

use spotkeeper::core::job::{EndedAttempt, Job};
use spotkeeper::model::ids::{JobKey, Mark};
use spotkeeper::store::memory::MemoryHome;
use spotkeeper::store::records::{self, StoredEvent};
use spotkeeper::store::{Fresh, MemoryDisk, Options, Store};
use std::collections::BTreeMap;
use world::{DAY, Seeded, World};

const JOBS: usize = 3;
/// Enough for histories beyond their limits.
const RELEASES_A_JOB: u64 = 150;
/// Minutes from one release of a job to the next, less or more than half of it.
const RELEASED_EVERY: u64 = 24;
/// Inputs that are compared.
const INPUTS: u64 = 1_000;
/// Minutes of Running from one save to the next.
const SAVES_EVERY: u64 = 7;
const SEEDS: u64 = 2;

/// The folder of a world.
struct Disk {
    disk: MemoryDisk,
    home: MemoryHome,
}

impl Disk {
    fn open(&mut self) -> (Store, Fresh) {
        let disk = Box::new(self.disk.clone());
        let (store, report) =
            Store::open_on(disk, &mut self.home, Options::default()).expect("a store that opens");
        (store, report.fresh)
    }
}

/// A world with full histories.
fn lived(seed: u64, ended_shown: Option<u64>) -> (World, Disk) {
    let mut disk = Disk { disk: MemoryDisk::default(), home: MemoryHome::default() };
    let mut world = World::new(seed, JOBS, |_| SAVES_EVERY, disk.open().0);
    world.begin_with_nothing();
    world.ended_shown = ended_shown.unwrap_or(world.ended_shown);
    let mut rng = Seeded(seed);
    let mut due: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for job in 0..JOBS {
        for n in 0..RELEASES_A_JOB {
            let minute = n * RELEASED_EVERY + rng.below(RELEASED_EVERY / 2);
            due.entry(minute).or_default().push(job);
        }
    }
    for minute in 0..RELEASES_A_JOB * RELEASED_EVERY {
        for job in due.get(&minute).into_iter().flatten() {
            world.release(*job);
        }
        world.live_a_minute();
    }
    (world, disk)
}

/// The longest histories: events, ended attempts.
fn longest(world: &mut World) -> (usize, usize) {
    let (mut events, mut attempts) = (BTreeMap::new(), BTreeMap::new());
    for event in world.all::<StoredEvent>(records::EVENTS) {
        *events.entry(event.job).or_insert(0) += 1;
    }
    for (key, _) in world.all::<(JobKey, EndedAttempt)>(records::ATTEMPTS) {
        *attempts.entry(key).or_insert(0) += 1;
    }
    let most = |of: BTreeMap<JobKey, usize>| of.into_values().max().unwrap_or(0);
    (most(events), most(attempts))
}

/// The effects of the next minutes, in their order: of those that are given, or of as many as bring
/// [`INPUTS`]. A process that began anew wakes its jobs once more, so that inputs do not tell the time.
fn next_effects(world: &mut World, seed: u64, minutes: Option<u64>) -> (Vec<String>, u64) {
    world.look_around();
    world.effects = Some(Vec::new());
    let (mut rng, end) = (Seeded(seed), world.counts.inputs + INPUTS);
    let mut minute = 0;
    while minutes.map_or(world.counts.inputs < end, |minutes| minute < minutes) {
        for job in 0..JOBS {
            if rng.below(RELEASED_EVERY) == 0 {
                world.release(job);
            }
        }
        world.live_a_minute();
        minute += 1;
        assert!(minute < 10 * DAY, "no inputs come any more");
    }
    (world.effects.take().expect("they were written down"), minute)
}

/// Cuts a world short: a backup, a new journal, everything loaded anew.
fn cut_short(world: &mut World, disk: &mut Disk) {
    world.back_up();
    assert_eq!(longest(world), (1_000, 50), "the histories are at their limits");
    world.close();
    let (store, fresh) = disk.open();
    assert_eq!(fresh, Fresh::Complete);
    world.load_anew(store);
}

/// The jobs with one mark for all: each decision draws one, and a wake-up more takes one more.
fn without_marks(world: &World) -> BTreeMap<JobKey, Job> {
    let mut jobs = world.jobs().clone();
    for attempt in jobs.values_mut().flat_map(|job| &mut job.open) {
        attempt.mark = Mark::from_random([0; 10]);
    }
    jobs
}

#[test]
fn after_compaction_the_next_thousand_inputs_have_the_same_effects() {
    for seed in 0..SEEDS {
        let (mut whole, _disk) = lived(seed, None);
        let (mut cut, mut disk) = lived(seed, None);
        assert!(whole.counts == cut.counts && whole.jobs() == cut.jobs(), "one seed, one life");
        cut_short(&mut cut, &mut disk);
        assert_eq!(cut.jobs(), whole.jobs());
        let (wanted, minutes) = next_effects(&mut whole, seed, None);
        let (found, _) = next_effects(&mut cut, seed, Some(minutes));
        let created = wanted.iter().filter(|effect| effect.contains("Create(")).count();
        assert!(created > JOBS, "only {created} attempts in all that");
        let differs = found.iter().zip(&wanted).find(|(found, wanted)| found != wanted);
        let sizes = (found.len(), wanted.len());
        assert!(found == wanted, "seed {seed}: {differs:?}, {sizes:?} effects");
        assert_eq!(without_marks(&cut), without_marks(&whole));
    }
}

#[test]
fn what_ended_before_the_record_begins_is_fetched_once_and_not_in_each_pass() {
    let (mut world, mut disk) = lived(9, Some(DAY * 30));
    cut_short(&mut world, &mut disk);
    world.look_around();
    let older = world.fetched;
    let let_go = JOBS * (usize::try_from(RELEASES_A_JOB).expect("few") - 50);
    assert!(older > let_go / 2, "{older}: the list shows what the record has let go");
    let before = world.counts;
    world.look_around();
    assert_eq!(world.fetched, 0);
    assert_eq!(world.counts.creates, before.creates);
}
