//! `spotkeeper state`: a state that is kept, examined, brought back, and one that was copied.

use crate::schema::check;
use spotkeeper::api::wire::document;
use spotkeeper::cli::exit::Exit;
use spotkeeper::cli::failure::Failure;
use spotkeeper::model::ids::Digest;
use spotkeeper::store::snapshot::{claim, restore, snapshot, verify};
use spotkeeper::store::{Batch, Fresh, OpenReport, Options, Store, StoreError};
use std::fs;
use std::path::{Path, PathBuf};

struct Desk {
    root: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a folder") }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn open(&self, name: &str) -> (Store, OpenReport) {
        Store::open(&self.at(name), Options::default()).expect("it opens")
    }

    /// Writes `count` records and a blob into the state `name`.
    fn fill(&self, name: &str, count: u64) -> Digest {
        let (mut store, _) = self.open(name);
        for n in 0..count {
            let mut batch = Batch::new();
            batch.put(format!("k/{n}"), format!("v{n}")).expect("a record");
            let sequence = store.sequence();
            store.commit(sequence, &[batch]).expect("committed");
        }
        store.put_blob(b"a spec").expect("a blob")
    }

    fn files(&self, name: &str) -> Vec<String> {
        let folder = fs::read_dir(self.at(name)).expect("a folder");
        let names = folder.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names.map(|n| n.into_string().expect("a name")).collect();
        names.sort();
        names
    }
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a kind").is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

#[test]
fn a_snapshot_brings_back_what_it_was_made_of_and_the_start_after_it_is_careful() {
    let desk = Desk::new();
    let blob = desk.fill("state", 3);
    let made = snapshot(&desk.at("state"), &desk.at("kept")).expect("a snapshot");
    assert_eq!((made.records, made.blobs.iter().collect::<Vec<_>>()), (3, vec![&blob]));
    check("state-snapshot", &document(&made));
    assert_eq!(verify(&desk.at("kept")).expect("read").flaws, []);
    desk.fill("state", 5);
    let restored = restore(&desk.at("kept"), &desk.at("state")).expect("restored");
    assert_eq!(restored, made);
    let (mut store, report) = desk.open("state");
    assert_eq!(report.fresh, Fresh::DataMissing, "the cloud may know more than a snapshot");
    assert_eq!(report.moved, None, "a person has put it here");
    assert_eq!(store.get(b"k/2").expect("a call"), Some(b"v2".to_vec()));
    assert_eq!(store.get(b"k/3").expect("a call"), None, "it was written after the snapshot");
    assert_eq!(store.get_blob(&blob).expect("a blob"), b"a spec");
    let kept_aside = |name: &&String| name.contains(".bad-");
    assert!(desk.files("state").iter().filter(kept_aside).count() >= 2, "nothing was removed");
}

#[test]
fn a_snapshot_restored_where_there_was_nothing_opens_too() {
    let desk = Desk::new();
    let blob = desk.fill("state", 3);
    snapshot(&desk.at("state"), &desk.at("kept")).expect("a snapshot");
    restore(&desk.at("kept"), &desk.at("new")).expect("restored");
    let (mut store, report) = desk.open("new");
    assert_eq!((report.fresh, report.moved), (Fresh::DataMissing, None));
    assert_eq!(store.get(b"k/0").expect("a call"), Some(b"v0".to_vec()));
    store.get_blob(&blob).expect("a blob");
}

#[test]
fn a_restore_that_finds_no_room_leaves_what_was_there() {
    let desk = Desk::new();
    desk.fill("state", 3);
    let made = snapshot(&desk.at("state"), &desk.at("kept")).expect("a snapshot");
    for present in ["newer", "empty"] {
        if present == "newer" {
            desk.fill(present, 9);
        }
        // What is written first, and cannot be.
        let file = format!("backup-{:020}.jsonl.aside", made.sequence);
        let in_the_way = desk.at(present).join(file);
        fs::create_dir_all(&in_the_way).expect("a folder");
        let refused = restore(&desk.at("kept"), &desk.at(present));
        assert!(matches!(refused, Err(StoreError::File { .. })), "{present}: {refused:?}");
        fs::remove_dir(&in_the_way).expect("removed");
        let (mut store, report) = desk.open(present);
        assert_eq!(report.fresh, Fresh::DataMissing, "{present}");
        let last = store.get(b"k/8").expect("a call");
        assert_eq!(last.is_some(), present == "newer", "{present}: what was there is there");
        drop(store);
        restore(&desk.at("kept"), &desk.at(present)).expect("restored");
        let (mut store, _) = desk.open(present);
        assert_eq!(store.get(b"k/2").expect("a call"), Some(b"v2".to_vec()), "{present}");
        assert_eq!(store.get(b"k/8").expect("a call"), None, "{present}");
    }
}

#[test]
fn scenario_48_damage_to_any_file_of_a_snapshot_is_found_and_never_restored() {
    let desk = Desk::new();
    desk.fill("state", 3);
    snapshot(&desk.at("state"), &desk.at("whole")).expect("a snapshot");
    let mut files = desk.files("whole");
    files.retain(|name| name != "blobs");
    files.extend(desk.files("whole/blobs").iter().map(|name| format!("blobs/{name}")));
    assert_eq!(files.len(), 3, "{files:?}");
    for (n, name) in files.iter().enumerate() {
        for (kind, damage) in [
            ("gone", (|_| None) as fn(Vec<u8>) -> Option<Vec<u8>>),
            ("cut", |bytes| Some(bytes[..bytes.len() - 1].to_vec())),
            ("changed", |mut bytes| {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                Some(bytes)
            }),
        ] {
            let folder = format!("{kind}{n}");
            copy_folder(&desk.at("whole"), &desk.at(&folder));
            let path = desk.at(&folder).join(name);
            match damage(fs::read(&path).expect("a file")) {
                Some(bytes) => fs::write(&path, bytes).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let found = verify(&desk.at(&folder));
            assert!(found.is_err() || !found.expect("read").flaws.is_empty(), "{name} {kind}");
            let before = desk.files("state");
            assert!(restore(&desk.at(&folder), &desk.at("state")).is_err(), "{name} {kind}");
            assert_eq!(desk.files("state"), before, "{name} {kind}: nothing was changed");
        }
    }
}

#[test]
fn a_state_is_verified_as_it_lies_there() {
    let desk = Desk::new();
    desk.fill("state", 3);
    let before = desk.files("state");
    assert_eq!(verify(&desk.at("state")).expect("read").flaws, []);
    assert_eq!(desk.files("state"), before);
    let journal = before.iter().rfind(|n| n.starts_with("journal-")).expect("a journal");
    let bytes = fs::read(desk.at("state").join(journal)).expect("a file");
    fs::write(desk.at("state").join(journal), &bytes[..bytes.len() - 3]).expect("written");
    let found = verify(&desk.at("state")).expect("read");
    assert_eq!(found.flaws.len(), 1, "{found:?}");
    assert_eq!(found.flaws[0].file, *journal);
    check("state-verify", &document(&found));
    let nowhere = verify(&desk.at("nowhere"));
    assert!(matches!(nowhere, Err(StoreError::Folder { .. })), "{nowhere:?}");
    assert!(!desk.at("nowhere").exists());
}

#[test]
fn nothing_is_done_to_the_state_of_a_running_daemon() {
    let desk = Desk::new();
    desk.fill("state", 1);
    snapshot(&desk.at("state"), &desk.at("kept")).expect("a snapshot");
    let held = desk.open("state");
    let state = desk.at("state");
    let refused = [
        snapshot(&state, &desk.at("other")).err(),
        verify(&state).err(),
        restore(&desk.at("kept"), &state).err(),
        claim(&state).err(),
    ];
    for error in refused {
        let error = error.expect("a refusal");
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        assert_eq!(Failure::from(error).exit(), Exit::Refused);
    }
    drop(held);
    let full = snapshot(&state, &desk.at("kept"));
    assert!(matches!(full, Err(StoreError::NotEmpty { .. })), "{full:?}");
}

#[test]
fn a_copied_state_says_so_until_it_is_claimed() {
    let desk = Desk::new();
    desk.fill("state", 1);
    copy_folder(&desk.at("state"), &desk.at("copy"));
    for _ in 0..2 {
        let (_, report) = desk.open("copy");
        assert!(report.moved.is_some() && report.is_alarm(), "{report:?}");
        assert_eq!(report.fresh, Fresh::Complete, "the records are all there");
    }
    assert_eq!(desk.open("state").1.moved, None, "the original is where it was");
    claim(&desk.at("copy")).expect("claimed");
    assert_eq!(desk.open("copy").1.moved, None);
    // By another path it is the same folder.
    std::os::unix::fs::symlink(desk.at("copy"), desk.at("link")).expect("a link");
    assert_eq!(desk.open("link").1.moved, None);
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for() {
    let desk = Desk::new();
    let blob = desk.fill("state", 1);
    snapshot(&desk.at("state"), &desk.at("kept")).expect("a snapshot");
    for name in ["snapshot.json".to_owned(), format!("blobs/{}", blob.0)] {
        let folder = format!("piped{}", name.len());
        copy_folder(&desk.at("kept"), &desk.at(&folder));
        let path = desk.at(&folder).join(&name);
        fs::remove_file(&path).expect("removed");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).expect("a pipe");
        let refused = verify(&desk.at(&folder)).expect_err("it is no file");
        assert!(refused.chain().contains("it is no plain file"), "{name}: {}", refused.chain());
    }
}
