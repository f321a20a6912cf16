//! What cannot be looked into is named, and the rest is judged: never a start at zero beside it.

use super::bucket::Bucket;
use super::{fixtures, found, options, run};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::objects::{Depth, Objects, Page, Read, Store, StoreError};
use spotkeeper::checkpoint::scan::{look, look_at};
use spotkeeper::model::checkpoint::{Findings, Look, Wholeness};
use spotkeeper::model::time::WallTime;
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

/// A bucket with folders that may not be listed.
#[derive(Debug, Clone)]
struct Closing(Bucket, Vec<&'static str>);

impl Store for Closing {
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        depth: Depth,
        from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        let lies_below = |folder: &str| depth == Depth::All && folder.starts_with(prefix);
        let closed = self.1.iter().find(|folder| {
            prefix.trim_end_matches('/') == **folder || (!prefix.is_empty() && lies_below(folder))
        });
        match closed {
            Some(folder) => {
                let (folder, why) = ((*folder).to_owned(), "no right to it".to_owned());
                async move { Err(StoreError::Closed { folder, why }) }.boxed()
            }
            None => self.0.page(prefix, depth, from),
        }
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>> {
        self.0.read(key, range)
    }
}

fn complete() -> Bucket {
    Bucket::of(&fixtures().join("hf-trainer/complete-three"))
}

fn looked(bucket: &Bucket, closed: &[&'static str], format: &str) -> Findings {
    let store = Closing(bucket.clone(), closed.to_vec());
    let objects = Objects::new(Box::new(store), Arc::default());
    let place = location::parse("oss://bucket/team/run42").expect("a location");
    found(run(look(&objects, &place, &options(format), bucket.now())))
}

fn chosen(findings: &Findings) -> Option<u64> {
    findings.chosen.as_ref().and_then(|point| point.step)
}

fn root(bucket: &Bucket) -> String {
    let key = bucket.entries.keys().find(|key| key.contains("/checkpoint-30/")).expect("a key");
    key.split_once("/checkpoint-30/").expect("a folder").0.to_owned()
}

#[test]
fn a_newest_one_that_cannot_be_looked_into_is_stepped_back_from() {
    let bucket = complete();
    assert_eq!(root(&bucket), "output");
    for format in ["auto", "hf-trainer"] {
        for closed in ["output/checkpoint-30", "output/checkpoint-30/inner"] {
            let findings = looked(&bucket, &[closed], format);
            assert_eq!(chosen(&findings), Some(20), "{closed}");
            let newest = &findings.candidates[0];
            assert_eq!((newest.step, newest.wholeness), (Some(30), Wholeness::Unreadable));
            assert!(newest.why.contains(closed) && newest.why.contains("no right"), "{newest:?}");
            assert_eq!(findings.unfinished, None, "there is nothing to wait for");
        }
        // An older one does not matter.
        let findings = looked(&bucket, &["output/checkpoint-20"], format);
        assert_eq!(chosen(&findings), Some(30));
        let all = ["output/checkpoint-10", "output/checkpoint-20", "output/checkpoint-30"];
        let findings = looked(&bucket, &all, format);
        assert_eq!(chosen(&findings), None);
        assert!(findings.undecided().is_some(), "{findings:?}");
    }
}

#[test]
fn many_newest_ones_that_nobody_can_look_into_hide_no_older_one() {
    let mut bucket = complete();
    let empty = ["40", "50", "60", "70", "80", "90"];
    for step in empty {
        bucket.put(&format!("output/checkpoint-{step}/"), b"");
    }
    assert_eq!(chosen(&looked(&bucket, &[], "auto")), Some(30), "empty ones");
    let closed = ["output/checkpoint-90", "output/checkpoint-80", "output/checkpoint-70"];
    assert_eq!(chosen(&looked(&bucket, &closed, "auto")), Some(30));
}

#[test]
fn a_folder_beside_the_run_that_cannot_be_looked_into_blinds_nothing() {
    let mut bucket = complete();
    bucket.put("private/x", b"x");
    let findings = looked(&bucket, &["private"], "auto");
    assert_eq!(chosen(&findings), Some(30));
    let first = &findings.candidates[0];
    assert_eq!((first.path.as_str(), first.wholeness), ("private", Wholeness::Unreadable));
    assert!(first.why.contains("no right"), "{}", first.why);
    // Alone it is no reason to start at zero.
    bucket.entries.retain(|key, _| key.starts_with("private/"));
    let findings = looked(&bucket, &["private"], "auto");
    assert_eq!(findings.undecided().map(|one| one.path.as_str()), Some("private"));
    // The folder that every file system has for root alone is nobody's.
    let mut bucket = complete();
    bucket.put("lost+found/x", b"x");
    let findings = looked(&bucket, &["lost+found"], "auto");
    assert!(findings.candidates.iter().all(|one| one.path != "lost+found"));
    assert_eq!(chosen(&findings), Some(30));
}

#[test]
fn fifty_torn_ones_do_not_push_out_a_folder_that_nobody_can_look_into() {
    let mut bucket = Bucket::default();
    for step in 1..=60 {
        bucket.put(&format!("out/checkpoint-{step}/training_args.bin"), b"x");
    }
    bucket.put("private/x", b"x");
    let findings = looked(&bucket, &["private"], "auto");
    assert_eq!(findings.candidates.len(), 50);
    assert!(findings.undecided().is_some());
}

#[test]
fn what_a_trainer_keeps_beside_its_checkpoints_may_be_closed_too() {
    let mut bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    bucket.put("ckpt/non_persistent/x", b"x");
    let findings = looked(&bucket, &["ckpt/non_persistent"], "auto");
    assert!(findings.chosen.is_some(), "{findings:?}");
    assert_eq!(findings.candidates[0].path, "ckpt/non_persistent");
}

#[test]
fn the_place_itself_could_not_be_looked_at() {
    let store = Closing(complete(), vec![""]);
    let objects = Objects::new(Box::new(store), Arc::default());
    let place = location::parse("oss://bucket/team/run42").expect("a location");
    let look = run(look(&objects, &place, &options("auto"), WallTime(0)));
    assert!(matches!(look, Look::CouldNotLook { needs_person: true, .. }), "{look:?}");
}

fn look_in(folder: &Path) -> Look {
    let place = location::parse(&format!("file://{}", folder.display())).expect("a location");
    run(look_at(&place, None, &options("auto"), complete().now()))
}

#[test]
fn a_link_that_leads_nowhere_is_a_checkpoint_that_nobody_can_judge() {
    let folder = tempfile::tempdir().expect("a folder");
    complete().write_to(folder.path());
    let output = folder.path().join("output");
    symlink("checkpoint-40", output.join("checkpoint-40")).expect("a link to itself");
    symlink("/nowhere/checkpoint-50", output.join("checkpoint-50")).expect("a link to nowhere");
    symlink("nowhere", output.join("latest-run")).expect("a link that is no checkpoint");
    let findings = found(look_in(folder.path()));
    assert_eq!(chosen(&findings), Some(30));
    for (at, step) in [(0, 50), (1, 40)] {
        let one = &findings.candidates[at];
        assert_eq!((one.step, one.wholeness), (Some(step), Wholeness::Unreadable), "{one:?}");
        assert!(one.why.contains("link that leads nowhere"), "{}", one.why);
    }
    assert_eq!(findings.candidates.len(), 5);
}

#[test]
fn a_path_that_is_too_long_to_be_entered_is_one_checkpoint_that_nobody_can_judge() {
    let folder = tempfile::tempdir().expect("a folder");
    // Made from inside, a step at a time: no path may be this long.
    let deep = 4_090 - folder.path().as_os_str().len();
    let script = format!(
        "set -e; n={deep}; while [ $n -gt 100 ]; do d=$(printf 'd%.0s' $(seq 50)); mkdir $d; cd -P $d; \
         n=$((n-51)); done; d=$(printf 'e%.0s' $(seq $((n-20)))); mkdir $d; cd -P $d; mkdir run; cd run; \
         cp -r \"$FIXTURE\"/output/checkpoint-10 save_1; cp -r save_1 a; mv a save_100000000000; pwd"
    );
    let made = std::process::Command::new("bash")
        .args(["-c", &script])
        .env("FIXTURE", fixtures().join("hf-trainer/complete-three/tree"))
        .current_dir(folder.path())
        .output()
        .expect("bash");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let place = String::from_utf8(made.stdout).expect("text");
    let look = look_in(Path::new(place.trim()));
    // Whatever is too long, it is no empty place.
    let is_empty = matches!(&look, Look::Done(f) if f.chosen.is_none() && f.undecided().is_none());
    assert!(!is_empty, "{} {look:?}", place.trim().len());
}

#[test]
fn a_place_that_is_no_folder_says_what_it_is_and_which_url_to_give() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("step=3.ckpt"), b"x").expect("a file");
    let fifo = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status();
    assert!(fifo.expect("mkfifo").success());
    for (name, what) in [("step=3.ckpt", "is a file"), ("pipe", "is a FIFO")] {
        let Look::CouldNotLook { why, needs_person: true } = look_in(&folder.path().join(name))
        else {
            panic!("{name}");
        };
        let holder = format!("file://{}", folder.path().display());
        assert!(why.contains(what) && why.ends_with(&holder), "{why}");
    }
    let look = look_in(&folder.path().join("missing"));
    assert!(matches!(&look, Look::CouldNotLook { why, .. } if why.contains("does not exist")));
}
