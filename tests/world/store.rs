//! The store on a real folder with sled: whatever happens to the engine's files, the journal or
//! the backups, what was acknowledged is there, and what may be missing is said.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use spotkeeper::model::error::Class;
use spotkeeper::model::ids::Digest;
use spotkeeper::store::snapshot::claim;
use spotkeeper::store::{
    Act, Batch, Fresh, Handle, MemoryDisk, OpenReport, Options, Store, StoreError, memory,
};

const RECORDS: u64 = 300;

fn numbered(n: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(format!("record/{n:06}"), value(n)).unwrap();
    batch.put("hot", n.to_string()).unwrap();
    batch
}

fn value(n: u64) -> String {
    format!("{n}:{}", "x".repeat(700))
}

fn open(dir: &Path) -> (Store, OpenReport) {
    Store::open(dir, Options::default()).unwrap()
}

/// Commits the next `count` numbered batches.
fn go_on(store: &mut Store, count: u64) {
    for _ in 0..count {
        let n = store.sequence() + 1;
        store.commit(n - 1, &[numbered(n)]).unwrap();
    }
}

/// Every record up to `last` and nothing else, byte for byte.
fn assert_all(store: &mut Store, last: u64, what: &str) {
    let mut found = Vec::new();
    while let page @ [.., (key, _)] =
        store.range(b"record/", found.last().map(Vec::as_slice), 100).unwrap().as_slice()
    {
        let _ = key;
        for (key, data) in page {
            let n = found.len() as u64 + 1;
            assert_eq!(*key, format!("record/{n:06}").into_bytes(), "{what}");
            assert_eq!(*data, value(n).into_bytes(), "{what}");
            found.push(key.clone());
        }
    }
    assert_eq!(found.len() as u64, last, "{what}");
    assert_eq!(store.get(b"hot").unwrap(), Some(last.to_string().into_bytes()), "{what}");
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Files of the top folder whose name begins with `prefix`, in order.
fn files(dir: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(prefix))
        .collect();
    found.sort();
    found
}

fn cut(path: &Path, length: u64) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(length).unwrap();
}

/// A state folder as `kill -9` leaves it (the store is still open when it is copied), and what
/// the same folder is after an orderly close.
struct Example {
    _root: tempfile::TempDir,
    killed: PathBuf,
    closed: PathBuf,
}

impl Example {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (state, killed) = (root.path().join("state"), root.path().join("killed"));
        let (mut store, report) = open(&state);
        assert_eq!(report.fresh, Fresh::New);
        go_on(&mut store, RECORDS / 2);
        store.backup().unwrap();
        go_on(&mut store, RECORDS / 2);
        copy(&state, &killed);
        drop(store);
        Self { killed, closed: state, _root: root }
    }

    /// Opens a damaged copy: everything has to be there, and commits have to work and last.
    fn survives(&self, what: &str, damage: impl Fn(&Path)) -> OpenReport {
        let mut last = None;
        for source in [&self.killed, &self.closed] {
            let root = tempfile::tempdir().unwrap();
            let dir = root.path().join("state");
            copy(source, &dir);
            claim(&dir).unwrap();
            damage(&dir);
            let (mut store, report) = open(&dir);
            let what = format!("{what}: {report:?}");
            assert_all(&mut store, RECORDS, &what);
            let mut batch = Batch::new();
            batch.put("after", what.as_bytes().get(..80).unwrap_or(b"")).unwrap();
            store.commit(store.sequence(), &[batch]).unwrap();
            drop(store);
            let (mut store, again) = open(&dir);
            assert_all(&mut store, RECORDS, &what);
            assert!(store.get(b"after").unwrap().is_some(), "{what}");
            assert!(!again.is_alarm(), "{what}; again: {again:?}");
            last = Some(report);
        }
        last.unwrap()
    }
}

#[test]
fn scenario_48_any_damage_to_the_engines_files_costs_nothing() {
    let example = Example::new();
    let db = |dir: &Path| dir.join("sled/db");
    let complete = |report: OpenReport| assert_eq!(report.fresh, Fresh::Complete, "{report:?}");
    complete(example.survives("nothing", |_| {}));
    for tenth in 0..10 {
        complete(example.survives(&format!("sled cut to {tenth} tenths"), |dir| {
            let length = fs::metadata(db(dir)).unwrap().len();
            cut(&db(dir), length * tenth / 10);
        }));
    }
    for bytes in [1, 7, 5_000, 40_000] {
        complete(example.survives(&format!("sled cut by {bytes}"), |dir| {
            let length = fs::metadata(db(dir)).unwrap().len();
            cut(&db(dir), length.saturating_sub(bytes));
        }));
    }
    for part in 0..16 {
        complete(example.survives(&format!("a byte of sled flipped, part {part}"), |dir| {
            let mut bytes = fs::read(db(dir)).unwrap();
            let at = bytes.len() * part / 16 + 100;
            bytes[at] ^= 0x10;
            fs::write(db(dir), bytes).unwrap();
        }));
    }
    complete(example.survives("no sled folder", |dir| {
        fs::remove_dir_all(dir.join("sled")).unwrap();
    }));
    complete(example.survives("noise for sled", |dir| {
        fs::write(db(dir), vec![0xa5; 100_000]).unwrap();
    }));
    complete(example.survives("sled's configuration damaged", |dir| {
        fs::write(dir.join("sled/conf"), "?").unwrap();
    }));
}

#[test]
fn snapshots_that_keep_sled_from_opening_are_cleaned_away() {
    let example = Example::new();
    let cleaned = |report: &OpenReport| {
        report.acts.iter().filter(|act| matches!(act, Act::EngineCleaned { .. })).count()
    };
    for (name, content) in [
        ("snap.0000000000FFFFFF.generating", &b"torn"[..]),
        ("snap.0000000000FFFFFF", b""),
        ("snap.0000000000FFFFFF", b"sixteen bytes of"),
    ] {
        let report = example.survives(name, |dir| {
            fs::write(dir.join("sled").join(name), content).unwrap();
        });
        assert!(cleaned(&report) >= 1, "{report:?}");
        assert_eq!(report.fresh, Fresh::Complete);
        let aside = report.acts.iter().any(|act| matches!(act, Act::EngineSetAside { .. }));
        assert!(!aside, "sled opens without them: {report:?}");
    }
}

#[test]
fn an_engine_that_was_set_aside_is_kept_and_reported() {
    let example = Example::new();
    let dir = &example.killed;
    fs::remove_file(dir.join("sled/db")).unwrap();
    fs::create_dir(dir.join("sled/db")).unwrap();
    let (mut store, report) = open(dir);
    assert_all(&mut store, RECORDS, "set aside");
    let is_told = |act: &Act| matches!(act, Act::EngineSetAside { to, .. } if to == "sled.bad-1");
    assert!(report.acts.iter().any(is_told), "{report:?}");
    assert!(dir.join("sled.bad-1/db").exists());
    assert!(report.is_alarm());
}

#[test]
fn a_missing_journal_or_backup_is_said_and_the_rest_is_used() {
    let example = Example::new();
    let report = example.survives("no backup", |dir| {
        for path in files(dir, "backup-") {
            fs::remove_file(path).unwrap();
        }
    });
    assert_eq!(report.fresh, Fresh::Complete);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("state");
    copy(&example.closed, &dir);
    for path in files(&dir, "journal-") {
        fs::remove_file(path).unwrap();
    }
    let (mut store, report) = open(&dir);
    assert_eq!(report.fresh, Fresh::DataMissing);
    assert!(report.acts.contains(&Act::JournalMissing) && report.is_alarm());
    assert_all(&mut store, RECORDS, "sled alone");
    drop(store);
    let (mut store, report) = open(&dir);
    assert_eq!(report.fresh, Fresh::DataMissing, "nobody took note of it by a commit");
    let mut noted = Batch::new();
    noted.put("noted", "").unwrap();
    store.commit(store.sequence(), &[noted]).unwrap();
    drop(store);
    assert_eq!(open(&dir).1.fresh, Fresh::Complete);
}

#[test]
fn an_older_backup_and_the_journals_after_it_give_the_present() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("state");
    let (mut store, _) = open(&dir);
    for _ in 0..4 {
        go_on(&mut store, 25);
        store.backup().unwrap();
        assert!(files(&dir, "backup-").len() <= 2 && files(&dir, "journal-").len() <= 2);
    }
    go_on(&mut store, 5);
    drop(store);
    fs::remove_dir_all(dir.join("sled")).unwrap();
    let backups = files(&dir, "backup-");
    assert_eq!(backups.len(), 2);
    fs::remove_file(&backups[1]).unwrap();
    let (mut store, report) = open(&dir);
    assert_all(&mut store, 105, &format!("{report:?}"));
    assert!(report.acts.contains(&Act::Replayed { first: 76, last: 105 }), "{report:?}");
    assert_eq!(report.fresh, Fresh::Complete);
}

#[test]
fn scenario_48_a_marker_without_data_is_not_a_new_store() {
    let example = Example::new();
    let dir = &example.closed;
    fs::remove_dir_all(dir.join("sled")).unwrap();
    for path in files(dir, "journal-").iter().chain(&files(dir, "backup-")) {
        fs::remove_file(path).unwrap();
    }
    let (mut store, report) = open(dir);
    assert_eq!(report.fresh, Fresh::DataMissing);
    assert_eq!(store.range(b"", None, 9).unwrap(), []);
    drop(store);
    fs::remove_dir_all(dir).unwrap();
    assert_eq!(open(dir).1.fresh, Fresh::New);
    let (_store, report) = open(dir);
    assert_eq!(report.fresh, Fresh::New, "nothing was ever committed");
    assert!(!report.is_alarm());
}

#[test]
fn scenario_57_one_store_at_a_time_by_whatever_path() {
    let root = tempfile::tempdir().unwrap();
    let (dir, link) = (root.path().join("state"), root.path().join("link"));
    let (store, _) = open(&dir);
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    for path in [&dir, &link] {
        let refused = Store::open(path, Options::default()).unwrap_err();
        assert!(matches!(&refused, StoreError::Locked { pid: Some(_), .. }), "{refused:?}");
        assert_eq!(refused.class(), Class::Operator);
    }
    drop(store);
    open(&link);
}

#[test]
fn closing_and_opening_again_changes_nothing() {
    let root = tempfile::tempdir().unwrap();
    for round in 1..=20 {
        let (mut store, report) = open(root.path());
        assert_eq!(report.sequence, (round - 1) * 3);
        assert!(!report.is_alarm(), "{report:?}");
        go_on(&mut store, 3);
        assert_all(&mut store, round * 3, "open");
    }
}

#[test]
fn a_newer_format_is_refused_in_words_and_nothing_is_changed() {
    let example = Example::new();
    let newer = format!("journal-{:020}", 1_000_000);
    let mut head = b"spkjrnl\n".to_vec();
    head.extend(9_u32.to_le_bytes());
    head.extend(1_000_000_u64.to_le_bytes());
    head.extend(crc32fast::hash(&head).to_le_bytes());
    let backup = format!("backup-{:020}.jsonl", 1_000_000);
    let backup_head = br#"{"spotkeeper_backup":{"format":9,"sequence":1000000,"more":[]}}"#;
    for (name, content) in [
        ("store.version", &br#"{"format":9,"more":1}"#[..]),
        (&newer, &head),
        (&backup, &[&backup_head[..], b"\n"].concat()),
    ] {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("state");
        copy(&example.closed, &dir);
        fs::write(dir.join(name), content).unwrap();
        let refused = Store::open(&dir, Options::default()).unwrap_err();
        assert!(matches!(refused, StoreError::NewerFormat { found: 9, known: 2, .. }), "{name}");
        assert_eq!(refused.class(), Class::Operator);
        assert!(refused.to_string().contains("newer program"), "{refused}");
        assert_eq!(fs::read(dir.join(name)).unwrap(), content);
    }
}

#[test]
fn everything_in_the_folder_is_private() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a/state");
    let (mut store, _) = open(&dir);
    go_on(&mut store, 1);
    store.put_blob(b"spec").unwrap();
    store.backup().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for path in files(&dir, "") {
        let wanted = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), wanted, "{}", path.display());
    }
}

#[test]
fn blobs_come_back_and_leftovers_of_a_crash_go() {
    let root = tempfile::tempdir().unwrap();
    let (mut store, _) = open(root.path());
    let digest = store.put_blob(b"a spec").unwrap();
    assert_eq!(digest, Digest::of(b"a spec"));
    assert_eq!(store.put_blob(b"a spec").unwrap(), digest);
    drop(store);
    fs::write(root.path().join("blobs/x.aside"), "torn").unwrap();
    fs::write(root.path().join("backup-1.aside"), "torn").unwrap();
    let (mut store, report) = open(root.path());
    assert_eq!(report.acts, [Act::LeftoverRemoved { name: "backup-1.aside".into() }]);
    assert!(!root.path().join("blobs/x.aside").exists());
    assert_eq!(store.get_blob(&digest).unwrap(), b"a spec");
    let swept = store.sweep_blobs(&BTreeSet::new()).unwrap();
    assert_eq!((swept.removed, swept.bytes), (0, 6), "there is space enough");
    let missing = store.get_blob(&Digest::of(b"another"));
    assert!(matches!(missing, Err(StoreError::BlobMissing { .. })));
}

#[tokio::test]
async fn a_handle_serves_all_calls_and_frees_the_folder() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_owned();
    let (handle, _) = Handle::open(dir.clone(), Options::default()).await.unwrap();
    assert_eq!(handle.commit(Some(0), numbered(1)).await.unwrap().sequence, 1);
    let fenced = handle.commit(Some(0), numbered(2)).await;
    assert!(matches!(fenced, Err(StoreError::Fenced { expected: 0, found: 1 })));
    let digest = handle.put_blob(b"log".to_vec()).await.unwrap();
    assert_eq!(handle.get_blob(digest).await.unwrap(), b"log");
    handle.backup().await.unwrap();
    assert_eq!(handle.reopen().await.unwrap().sequence, 1);
    assert_eq!(handle.get("hot").await.unwrap(), Some(b"1".to_vec()));
    assert_eq!(handle.range("record/", None, 9).await.unwrap().len(), 1);
    let second = Handle::open(dir.clone(), Options::default()).await;
    assert!(matches!(second, Err(StoreError::Locked { .. })));
    let clone = handle.clone();
    handle.close().await;
    handle.close().await;
    assert!(matches!(clone.get("hot").await, Err(StoreError::Closed)));
    open(&dir);
}

#[tokio::test]
async fn waiting_commits_share_one_sync_and_keep_their_order() {
    const COMMITS: u64 = 100;
    let (disk, home) = (MemoryDisk::default(), memory::MemoryHome::default());
    let (go, wait) = mpsc::sync_channel::<()>(1);
    go.send(()).unwrap();
    let mut engine = home.clone();
    let on = disk.clone();
    let opener = move || {
        // The thread stays here until all commits wait in the queue.
        wait.recv().unwrap();
        Store::open_on(Box::new(on.clone()), &mut engine, Options::default())
    };
    let (handle, _) = Handle::start(opener).await.unwrap();
    let commits = futures_util::future::join_all((1..=COMMITS).map(|n| {
        // Every tenth expects what only the right order makes true, one expects nonsense.
        let expected = if n == 50 { Some(7) } else { n.is_multiple_of(10).then_some(n - 1) };
        let expected = expected.map(|e| if n > 50 { e - 1 } else { e });
        handle.commit(expected, numbered(n))
    }));
    let release = async {
        let steps = disk.steps();
        go.send(()).unwrap();
        steps
    };
    let (reopened, results, before) = tokio::join!(handle.reopen(), commits, release);
    reopened.unwrap();
    for (n, result) in (1..=COMMITS).zip(results) {
        match n {
            50 => assert!(matches!(result, Err(StoreError::Fenced { expected: 7, found: 49 }))),
            _ => assert_eq!(result.unwrap().sequence, if n < 50 { n } else { n - 1 }),
        }
    }
    assert_eq!(handle.get("hot").await.unwrap(), Some(b"100".to_vec()));
    // Opening again writes the journal (4 steps); the group is one append and one sync, and its
    // success is noted in the marker (4 steps).
    assert_eq!(disk.steps() - before, 4 + 2 + 4);
    handle.close().await;
}
