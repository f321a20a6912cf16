//! What a look asks of a store: few listings, and reads of the newest checkpoint only.

use super::bucket::Bucket;
use super::{fixtures, found, options, run};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::objects::{Depth, Objects, Page, Read, Store, StoreError};
use spotkeeper::checkpoint::scan::look;
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// A bucket that writes down what it is asked, with pages that hold everything.
#[derive(Debug, Clone, Default)]
struct Noting {
    bucket: Bucket,
    listed: Arc<Mutex<Vec<String>>>,
    read: Arc<Mutex<Vec<String>>>,
}

impl Store for Noting {
    fn page<'a>(
        &'a self,
        prefix: &'a str,
        depth: Depth,
        from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        self.listed.lock().expect("the list").push(prefix.to_owned());
        let page = self.bucket.list(prefix, depth, from.as_deref(), 1_000);
        async move { Ok(page) }.boxed()
    }

    fn read<'a>(
        &'a self,
        key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>> {
        self.read.lock().expect("the list").push(key.to_owned());
        self.bucket.read(key, range)
    }
}

/// Six whole checkpoints of Megatron, 100 to 600, all alike.
fn six() -> Bucket {
    let one = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    let mut bucket = Bucket { now: one.now, ..Bucket::default() };
    for (key, entry) in &one.entries {
        if let Some((_, rest)) = key.split_once("/iter_0000200/") {
            for step in 1..=6 {
                bucket.entries.insert(format!("iter_0000{step}00/{rest}"), entry.clone());
            }
        }
    }
    assert!(bucket.entries.len() >= 24, "{:?}", one.entries.keys());
    bucket
}

/// The chosen step, the folders listed, and the folders of what was read.
fn looked(bucket: &Bucket, format: &str) -> (Option<u64>, Vec<String>, Vec<String>) {
    let store = Noting { bucket: bucket.clone(), ..Noting::default() };
    let objects = Objects::new(Box::new(store.clone()), Arc::default());
    let place = location::parse("oss://bucket/team/run42").expect("a location");
    let findings = found(run(look(&objects, &place, &options(format), bucket.now())));
    let listed = store.listed.lock().expect("the list").clone();
    let read = store.read.lock().expect("the list").clone();
    let folder = |key: String| key.split_once('/').map_or(key.clone(), |(f, _)| f.to_owned());
    let mut read: Vec<_> = read.into_iter().map(folder).collect();
    read.dedup();
    (findings.chosen.and_then(|point| point.step), listed, read)
}

#[test]
fn a_whole_newest_one_like_the_one_before_costs_three_listings_and_its_own_reads() {
    for format in ["auto", "megatron-legacy"] {
        let (step, listed, read) = looked(&six(), format);
        assert_eq!(step, Some(600));
        assert_eq!(listed, ["", "iter_0000600/", "iter_0000500/"], "{format}");
        assert_eq!(read, ["iter_0000600"], "{format}");
    }
}

#[test]
fn one_that_differs_or_is_torn_is_compared_with_four() {
    // The same file is cut in the newest two.
    let mut bucket = six();
    let keys: Vec<String> = bucket.entries.keys().cloned().collect();
    let (_, last) = keys.last().and_then(|key| key.split_once('/')).expect("a key");
    for step in ["600", "500"] {
        let cut = bucket.entries.get_mut(&format!("iter_0000{step}/{last}")).expect("a file");
        cut.bytes.pop();
    }
    let (step, listed, _) = looked(&bucket, "auto");
    assert_eq!(step, Some(400));
    assert!(listed.len() >= 6, "{listed:?}");
    // The newest one has more than the one before it, which may be the torn one of both.
    let mut bucket = six();
    bucket.entries.remove(&format!("iter_0000500/{last}"));
    let (step, listed, read) = looked(&bucket, "auto");
    assert_eq!((step, listed.len()), (Some(600), 6), "{listed:?}");
    assert_eq!(read, ["iter_0000600"], "judged once");
}

/// Row 84: "400,000 objects under the prefix, deep trees. -> bounded memory, uses delimiter". 800
/// checkpoints of 500 files, four levels deep: a look lists a few folders in pages, never the whole.
#[test]
fn scenario_84_a_look_at_400_000_objects_lists_few_of_them() {
    let small = six();
    let (_, newest) = small.entries.keys().last().and_then(|k| k.split_once('/')).expect("a key");
    let sample = small.entries[&format!("iter_0000600/{newest}")].clone();
    let filler = super::bucket::Entry { bytes: b"x".to_vec(), ..sample };
    let mut bucket = Bucket { now: small.now, ..Bucket::default() };
    for (key, entry) in &small.entries {
        if let Some(rest) = key.strip_prefix("iter_0000600/") {
            for step in 1..=800 {
                bucket.entries.insert(format!("iter_{step:07}/{rest}"), entry.clone());
            }
        }
    }
    // The rest of the 500 is below each checkpoint, where no format asks for it.
    for step in 1..=800 {
        for n in 0..495 {
            let key = format!("iter_{step:07}/extra/{}/{}/part-{n}", n % 7, n % 3);
            bucket.entries.insert(key, filler.clone());
        }
    }
    assert!(bucket.entries.len() >= 399_000, "{}", bucket.entries.len());
    for format in ["auto", "megatron-legacy"] {
        let (step, listed, read) = looked(&bucket, format);
        assert_eq!(step, Some(800), "{format}");
        assert!(listed.len() <= 20, "{format}: {} listings", listed.len());
        assert_eq!(read, ["iter_0000800"], "{format}");
    }
}
