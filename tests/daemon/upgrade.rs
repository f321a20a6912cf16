//! Another version of the program on the same state, while attempts run.

use crate::harness::{JobFile, KEY, World};
use crate::ledger::job_of;
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the emulator of tests/data/older-state listened: it stands in the records.
const ADDRESS: &str = "127.0.83.83:18383";
/// Time in which a second CreateJob would come: several passes, and the acceptance.
const CHANCES: Duration = Duration::from_secs(4);
/// The jobs of the older state, each with one live attempt.
const JOBS: [&str; 3] = ["bert", "llama", "qwen"];

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// The world in which the older program left its jobs, under this one's emulator.
fn older_world() -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let older = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/older-state");
    for part in ["state", "cloud", "jobs.d"] {
        copy(&older.join(part), &folder.path().join(part));
    }
    // Another clone's test may have the address for a while.
    let start = Instant::now();
    while TcpListener::bind(ADDRESS).is_err() {
        assert!(start.elapsed() < crate::harness::PATIENCE, "{ADDRESS} is taken");
        std::thread::sleep(Duration::from_millis(100));
    }
    World::in_folder(folder, KEY, &["--virtual", "--listen", ADDRESS])
}

fn read(world: &World, path: &str) -> String {
    std::fs::read_to_string(world.path(path)).expect("a text")
}

fn rows(world: &World) -> Vec<(String, String, u64)> {
    let shown = world.cli(&["ps", "-o", "json"]).stdout;
    let shown: Value = serde_json::from_slice(&shown).unwrap_or_default();
    let rows = shown["jobs"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| {
        (text(&row["name"]), text(&row["phase"]), row["attempts"].as_u64().unwrap_or_default())
    };
    rows.iter().map(row).collect()
}

/// "State from version N-1, daemon N; then downgrade. -> migrates with backup; downgrade refused with
/// a clear text". The older state has format 1. That a migration comes out the same whenever the process
/// ends meanwhile is shown by tests/world/store_simulated.rs.
#[test]
fn scenario_83_an_older_state_goes_on_and_a_newer_one_is_refused() {
    let mut world = older_world();
    let before = world.ledger().count("create");
    let all_run = |world: &mut World| {
        rows(world) == JOBS.map(|name| (name.to_owned(), "RUNNING".to_owned(), 1))
    };
    assert!(read(&world, "state/store.version").contains("\"format\":1"));
    world.start(&[]);
    world.wait("the jobs of the older program run", all_run);
    // It was taken over into the present format, after a backup that the older program can read.
    assert!(world.log().contains("store format 1 as format 2"), "{}", world.log());
    assert!(read(&world, "state/store.version").contains("\"format\":2"));
    let backup = read(&world, "state/before-format-2.jsonl");
    assert!(backup.starts_with("{\"spotkeeper_backup\":{\"format\":1,"), "{backup}");
    for name in JOBS {
        let record = format!("{{\"key\":\"job/{name}/0000000001\",\"value\":\"[1,");
        assert!(backup.contains(&record), "{name}: {backup}");
    }
    std::thread::sleep(CHANCES);
    assert!(all_run(&mut world), "{:?}", rows(&world));
    for name in JOBS {
        assert_eq!(world.ledger().created(name), 1, "{name}");
    }
    assert_eq!(
        (world.ledger().count("create"), world.ledger().count("stop_asked")),
        (before, 0),
        "an upgrade submits nothing and stops nothing"
    );
    // They are in its hands: what it is asked for is done to them, and new ones come.
    assert_eq!(world.cli(&["cancel", "-y", "qwen"]).status.code(), Some(0));
    world.put_job("new", &JobFile::new("new", 1_000));
    world.wait("one is cancelled, a new one runs", |world| {
        let rows = rows(world);
        let is = |name: &str, phase: &str| rows.iter().any(|row| row.0 == name && row.1 == phase);
        is("qwen", "CANCELLED") && is("new", "RUNNING") && is("bert", "RUNNING")
    });
    world.signal(Signal::TERM);
    world.wait("it stops", |world| world.ended().is_some());

    // What a newer program has written is not touched by this one.
    let marker = world.path("state/store.version");
    let newer = read(&world, "state/store.version").replace("\"format\":2", "\"format\":3");
    assert!(newer.contains("\"format\":3"), "{newer}");
    std::fs::write(&marker, &newer).expect("written");
    let creates = world.ledger().count("create");
    world.start(&[]);
    let mut ended = None;
    world.wait("it refuses", |world| {
        ended = world.ended();
        ended.is_some()
    });
    assert!(ended.is_some_and(|ended| !ended.success()));
    let log = world.log();
    assert!(log.contains("format 3") && log.contains("use the newer program"), "{log}");
    assert_eq!(std::fs::read_to_string(&marker).expect("a marker"), newer);
    assert_eq!(world.ledger().count("create"), creates);
    world.ledger().assert_never_two(job_of);
}
