//! The store on a simulated disk and engine: the world ends at every step, disks fill and fail,
//! every byte of the journal is torn or flipped, the engine forgets or goes back in time.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use spotkeeper::model::error::Class;
use spotkeeper::store::memory::{Contents, Health, MemoryHome};
use spotkeeper::store::{
    Act, Batch, Format, Fresh, GROUP_LIMIT_BATCHES, JOURNAL_CUT_BYTES, MemoryDisk, Migration,
    OpenReport, Options, Record, Rewritten, Store, StoreError,
};

#[derive(Default, Clone)]
struct World {
    disk: MemoryDisk,
    home: MemoryHome,
}

type Opened = Result<(Store, OpenReport), StoreError>;

impl World {
    fn try_open(&self, options: Options) -> Opened {
        Store::open_on(Box::new(self.disk.clone()), &mut self.home.clone(), options)
    }

    fn open(&self) -> (Store, OpenReport) {
        self.try_open(Options::default()).unwrap()
    }

    /// The names of files that begin with `prefix`, in order.
    fn files(&self, prefix: &str) -> Vec<String> {
        use spotkeeper::store::Disk as _;
        let names = self.disk.list("").unwrap().into_iter().map(|file| file.name);
        names.filter(|name| name.starts_with(prefix)).collect()
    }

    /// A world apart with the same files and an engine of the given contents.
    fn with_engine(&self, contents: Contents) -> Self {
        let other = Self::default();
        for name in self.files("") {
            other.disk.replace(&name, self.disk.content(&name));
        }
        other.home.replace(contents);
        other
    }
}

/// The n-th change: a record of its own, one that all share, and the record of three before goes.
fn change(n: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(format!("r/{n:03}"), format!("value {n}")).unwrap();
    batch.put("hot", n.to_string()).unwrap();
    batch.delete(format!("r/{:03}", n.saturating_sub(3))).unwrap();
    batch
}

/// What is there after `last` changes.
fn after(last: u64) -> Vec<Record> {
    let mut records: Vec<Record> = (last.saturating_sub(2).max(1)..=last)
        .map(|n| (format!("r/{n:03}").into_bytes(), format!("value {n}").into_bytes()))
        .collect();
    if last > 0 {
        records.insert(0, (b"hot".to_vec(), last.to_string().into_bytes()));
    }
    records
}

fn all(store: &mut Store) -> Vec<Record> {
    store.range(b"", None, 1000).unwrap()
}

fn commit_to(store: &mut Store, last: u64) {
    for n in store.sequence() + 1..=last {
        store.commit(n - 1, &[change(n)]).unwrap();
    }
}

/// Commits, groups, backups, blobs. Tells of each acknowledged sequence; stops at an error.
fn workload(world: &World, acknowledged: &mut u64) -> Result<(), StoreError> {
    let (mut store, _) = world.try_open(Options::default())?;
    for round in 0..4 {
        for size in [1, 3, 1] {
            let start = store.sequence();
            let group: Vec<Batch> = (start + 1..=start + size).map(change).collect();
            *acknowledged = store.commit(start, &group)?.sequence;
        }
        store.put_blob(format!("blob {round}").as_bytes())?;
        store.backup()?;
    }
    let start = store.sequence();
    *acknowledged = store.commit(start, &[change(start + 1)])?.sequence;
    Ok(())
}

#[test]
fn scenario_48_the_world_may_end_at_any_step_and_again_while_it_is_opened() {
    let whole = World::default();
    workload(&whole, &mut 0).unwrap();
    let steps = whole.disk.steps();
    assert!(steps > 80, "the workload is too small to tell: {steps}");
    let keeps: [&dyn Fn(usize) -> usize; 3] = [&|_| 0, &|bytes| bytes / 2, &|bytes| bytes];
    for end in 1..=steps {
        for keep in keeps {
            // The second end comes ever later in the second life, until that one succeeds.
            for second_end in 1.. {
                let world = World::default();
                let mut acknowledged = 0;
                world.disk.end_at(end);
                workload(&world, &mut acknowledged).unwrap_err();
                world.disk.restart(keep);
                world.home.crash();
                world.disk.end_at(world.disk.steps() + second_end);
                let second = world.try_open(Options::default()).map(drop);
                world.disk.restart(keep);
                world.home.crash();
                let (mut store, report) = world.open();
                let what = format!("end {end}, then {second_end}: {report:?}");
                assert!(report.sequence >= acknowledged, "{what}");
                assert_eq!(all(&mut store), after(report.sequence), "{what}");
                assert!(!report.is_alarm(), "{what}");
                let told = report.fresh == Fresh::New || acknowledged > 0 || report.sequence > 0;
                assert!(told && report.fresh != Fresh::DataMissing, "{what}");
                commit_to(&mut store, report.sequence + 2);
                drop(store);
                let (mut store, again) = world.open();
                assert_eq!(again.fresh, Fresh::Complete, "{what}");
                assert_eq!(all(&mut store), after(report.sequence + 2), "{what}");
                if second.is_ok() {
                    break;
                }
            }
        }
    }
}

/// A world after two backups with entries behind the newer one: 5, 10 and 14.
fn example() -> World {
    let world = World::default();
    let (mut store, _) = world.open();
    commit_to(&mut store, 5);
    store.backup().unwrap();
    commit_to(&mut store, 10);
    store.backup().unwrap();
    commit_to(&mut store, 14);
    world
}

#[test]
fn scenario_48_a_tail_torn_at_any_byte_costs_only_what_was_torn() {
    let example = example();
    let journal = example.files("journal-").pop().unwrap();
    let content = example.disk.content(&journal).unwrap();
    let mut seen = 0;
    for length in 24..content.len() {
        let world = example.with_engine(Contents::default());
        world.disk.replace(&journal, Some(content[..length].to_vec()));
        let (mut store, report) = world.open();
        assert!((10..14).contains(&report.sequence), "{length}: {report:?}");
        assert!(report.sequence >= seen, "{length}");
        seen = report.sequence;
        assert_eq!(all(&mut store), after(seen), "{length}");
        assert_eq!(report.fresh, Fresh::Complete, "{length}");
        commit_to(&mut store, 20);
        drop(store);
        assert_eq!(all(&mut world.open().0), after(20), "{length}");
    }
    assert_eq!(seen, 13);
}

#[test]
fn a_flipped_byte_of_the_journal_costs_nothing_while_the_engine_is_there() {
    let example = example();
    for journal in example.files("journal-") {
        let content = example.disk.content(&journal).unwrap();
        for at in 0..content.len() {
            let world = example.with_engine(example.home.contents());
            let mut damaged = content.clone();
            damaged[at] ^= 0x41;
            world.disk.replace(&journal, Some(damaged));
            let (mut store, report) = world.open();
            let what = format!("{journal} byte {at}: {report:?}");
            assert_eq!(all(&mut store), after(14), "{what}");
            assert!(report.is_alarm() && report.sequence > 14, "{what}");
            assert_eq!(world.files(&format!("{journal}.bad-1")).len(), 1, "{what}");
            drop(store);
            world.home.replace(Contents::default());
            assert_eq!(all(&mut world.open().0), after(14), "{what}");
        }
    }
}

#[test]
fn scenario_48_a_hole_in_the_journal_and_no_engine_is_a_loud_loss_and_numbers_go_on_above_it() {
    let example = example();
    let journal = example.files("journal-").pop().unwrap();
    let content = example.disk.content(&journal).unwrap();
    for at in 24..content.len() {
        let world = example.with_engine(Contents::default());
        let mut damaged = content.clone();
        damaged[at] ^= 0x41;
        world.disk.replace(&journal, Some(damaged));
        let (mut store, report) = world.open();
        let what = format!("byte {at}: {report:?}");
        let loss = report.acts.iter().find_map(|act| {
            if let Act::Lost { first, last } = act { Some((*first, *last)) } else { None }
        });
        match loss {
            Some((first, last)) => {
                assert_eq!((last, report.fresh), (14, Fresh::DataMissing), "{what}");
                assert_eq!(all(&mut store), after(first - 1), "{what}");
                assert_eq!(report.sequence, 15, "{what}");
            }
            // A bad last entry cannot be told from a torn one.
            None => assert_eq!(all(&mut store), after(13), "{what}"),
        }
        assert_eq!(loss.is_none(), at >= content.len() - (content.len() - 24) / 4, "{what}");
        drop(store);
        assert_eq!(world.open().1.fresh, report.fresh, "it is said until a commit: {what}");
    }
}

#[test]
fn an_engine_that_went_back_in_time_or_was_changed_is_found_out() {
    let world = World::default();
    let (mut store, _) = world.open();
    let mut past = vec![Contents::default()];
    for n in 1..=14 {
        commit_to(&mut store, n);
        past.push(world.home.contents());
        if n == 5 || n == 10 {
            store.backup().unwrap();
        }
    }
    drop(store);
    for (n, contents) in past.into_iter().enumerate() {
        let older = world.with_engine(contents);
        let (mut store, report) = older.open();
        assert_eq!(all(&mut store), after(14), "back to {n}: {report:?}");
        assert_eq!((report.sequence, report.fresh), (14, Fresh::Complete), "back to {n}");
        // Entries from 5 on are there; an older engine is built anew from a backup.
        let aside = report.acts.iter().any(|a| matches!(a, Act::EngineSetAside { .. }));
        assert_eq!(aside, (1..5).contains(&n), "back to {n}: {report:?}");
    }
    assert!(world.home.damage(b"hot"));
    let (mut store, report) = world.open();
    assert_eq!(all(&mut store), after(14));
    assert!(report.acts.iter().any(|a| matches!(a, Act::EngineSetAside { .. })), "{report:?}");
    drop(store);
    world.home.set_health(Health::Broken);
    assert_eq!(all(&mut world.open().0), after(14));
}

#[test]
fn one_of_two_backups_may_be_damaged() {
    let example = example();
    for (damaged, alarm) in example.files("backup-").into_iter().zip([false, true]) {
        let world = example.with_engine(Contents::default());
        let mut content = world.disk.content(&damaged).unwrap();
        let end = content.len() - 20;
        content.truncate(end);
        world.disk.replace(&damaged, Some(content));
        let (mut store, report) = world.open();
        assert_eq!(all(&mut store), after(14), "{report:?}");
        assert_eq!(report.fresh, Fresh::Complete, "{report:?}");
        let told = report.acts.iter().any(|a| matches!(a, Act::BackupDamaged { .. }));
        assert_eq!(told, alarm, "{report:?}");
    }
}

#[test]
fn a_newest_journal_that_is_gone_is_noticed_even_if_the_rest_fits() {
    let example = example();
    let journal = example.files("journal-").pop().unwrap();
    for contents in [Contents::default(), example.home.contents()] {
        let survived = if contents == Contents::default() { 10 } else { 14 };
        let world = example.with_engine(contents);
        world.disk.replace(&journal, None);
        let (mut store, report) = world.open();
        assert_eq!(all(&mut store), after(survived), "{report:?}");
        assert_eq!(report.fresh, Fresh::DataMissing, "{report:?}");
    }
}

/// Nothing is acknowledged, every call is refused, and the next open has all that was.
fn refuses_until_opened_again(world: &World, fail: impl Fn(), mend: impl Fn()) {
    let (mut store, _) = world.open();
    commit_to(&mut store, 4);
    fail();
    let failed = store.commit(4, &[change(5)]).unwrap_err();
    assert_eq!(failed.class(), Class::Wait, "{failed:?}");
    mend();
    for refused in [
        store.commit(4, &[change(5)]).map(drop),
        store.get(b"hot").map(drop),
        store.range(b"", None, 1).map(drop),
        store.put_blob(b"x").map(drop),
        store.backup(),
    ] {
        assert!(matches!(refused, Err(StoreError::Poisoned { .. })), "{refused:?}");
    }
    drop(store);
    let (mut store, report) = world.open();
    assert!(report.sequence == 4 || report.sequence == 5, "{report:?}");
    assert_eq!(all(&mut store), after(report.sequence));
    assert!(!report.is_alarm(), "{report:?}");
    commit_to(&mut store, 8);
    drop(store);
    assert_eq!(all(&mut world.open().0), after(8));
}

#[test]
fn scenario_49_a_full_or_failing_disk_acknowledges_nothing_and_loses_nothing() {
    for free in [0, 1, 30] {
        let world = World::default();
        let disk = &world.disk;
        refuses_until_opened_again(
            &world,
            || disk.set_free_bytes(Some(free)),
            || disk.set_free_bytes(None),
        );
    }
    let world = World::default();
    refuses_until_opened_again(&world, || world.disk.fail_syncs(1), || {});
    let world = World::default();
    refuses_until_opened_again(
        &world,
        || world.home.set_health(Health::Full),
        || world.home.set_health(Health::Well),
    );
}

#[test]
fn scenario_49_a_full_disk_at_open_is_waited_for() {
    let world = example();
    world.disk.set_free_bytes(Some(0));
    let refused = world.try_open(Options::default()).unwrap_err();
    assert_eq!(refused.class(), Class::Wait, "{refused:?}");
    world.disk.set_free_bytes(None);
    assert_eq!(all(&mut world.open().0), after(14));
}

#[test]
fn what_a_failed_sync_left_is_written_again_before_it_counts() {
    let world = World::default();
    let (mut store, _) = world.open();
    commit_to(&mut store, 4);
    world.disk.fail_syncs(1);
    store.commit(4, &[change(5)]).unwrap_err();
    drop(store);
    // Opened again without a restart: the unsynced entry is still to be seen, and is taken.
    let (store, report) = world.open();
    assert_eq!(report.sequence, 5);
    drop(store);
    // A power cut takes all that was never synced.
    world.disk.restart(&|_| 0);
    world.home.crash();
    let (mut store, report) = world.open();
    assert_eq!((report.sequence, all(&mut store)), (5, after(5)));
}

#[test]
fn a_commit_with_another_sequence_is_fenced_and_changes_nothing() {
    let world = World::default();
    let (mut store, _) = world.open();
    commit_to(&mut store, 2);
    for expected in [0, 1, 3] {
        let fenced = store.commit(expected, &[change(3)]);
        let Err(StoreError::Fenced { expected: told, found: 2 }) = fenced else {
            panic!("{fenced:?}");
        };
        assert_eq!(told, expected);
    }
    let crowd = vec![Batch::new(); GROUP_LIMIT_BATCHES + 1];
    assert!(matches!(store.commit(2, &crowd), Err(StoreError::GroupTooLarge { .. })));
    assert_eq!(store.commit(2, &[]).unwrap().sequence, 2);
    assert_eq!(all(&mut store), after(2));
    commit_to(&mut store, 3);
}

#[test]
fn a_long_journal_is_cut_by_itself() {
    let world = World::default();
    let (mut store, _) = world.open();
    let mut batch = Batch::new();
    for n in 0..120 {
        batch.put(format!("k{n}"), vec![b'v'; 8192]).unwrap();
    }
    for sequence in 0..25 {
        store.commit(sequence, std::slice::from_ref(&batch)).unwrap();
        for name in world.files("journal-") {
            let bytes = world.disk.content(&name).unwrap().len() as u64;
            assert!(bytes < JOURNAL_CUT_BYTES + (1 << 20), "{name}: {bytes}");
        }
        assert!(world.files("journal-").len() <= 3);
    }
    assert_eq!(world.files("backup-").len(), 2);
    drop(store);
    world.home.replace(Contents::default());
    assert_eq!(all(&mut world.open().0).len(), 120);
}

fn to_next(key: &[u8], value: &[u8]) -> Rewritten {
    match key {
        b"hot" => Rewritten::Changed { key: b"warm".to_vec(), value: value.to_vec() },
        b"r/014" => Rewritten::Dropped,
        _ => Rewritten::Same,
    }
}

const NEXT: Format = Format { version: 3, migrations: &[Migration { from: 2, rewrite: to_next }] };

#[test]
fn an_older_format_is_backed_up_and_rewritten_whatever_step_it_is_stopped_at() {
    let next = Options { format: NEXT, ..Options::default() };
    let migrated = [("r/012", "value 12"), ("r/013", "value 13"), ("warm", "14")];
    for end in 1.. {
        let world = example();
        world.disk.end_at(world.disk.steps() + end);
        let finished = world.try_open(next).is_ok();
        world.disk.restart(&|_| 0);
        world.home.crash();
        let (mut store, report) = world.try_open(next).unwrap();
        let found = all(&mut store);
        let expected = migrated.map(|(k, v)| (k.as_bytes().to_vec(), v.as_bytes().to_vec()));
        assert_eq!(found, expected, "end {end}: {report:?}");
        store.commit(store.sequence(), &[change(15)]).unwrap();
        drop(store);
        let before = world.disk.content("before-format-3.jsonl").unwrap();
        assert!(String::from_utf8(before).unwrap().contains("r/014"), "end {end}");
        let refused = world.try_open(Options::default());
        assert!(matches!(refused, Err(StoreError::NewerFormat { found: 3, known: 2, .. })));
        let (mut store, again) = world.try_open(next).unwrap();
        assert_eq!(store.get(b"hot").unwrap(), Some(b"15".to_vec()), "end {end}: {again:?}");
        if finished {
            assert!(!again.is_alarm(), "{again:?}");
            break;
        }
    }
}
