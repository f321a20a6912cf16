//! Bytes that go wrong: seeded mutations of pickles, zips, headers and indexes. None of them may
//! cause a panic, a hang, or take more room than the limits say.
//!
//! `SPOTKEEPER_MUTATE_MINUTES=N` runs each target for N minutes instead of a fixed number of inputs.

use super::bucket::Bucket;
use super::{fixtures, found, options};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use spotkeeper::checkpoint::objects::{Depth, Objects, Page, Read, Store, StoreError};
use spotkeeper::checkpoint::pickle::{PICKLE_LIMIT_BYTES, Pickle, Seen, skim};
use spotkeeper::checkpoint::scan::look;
use spotkeeper::checkpoint::torch_zip::TorchFile;
use spotkeeper::checkpoint::{location, safetensors, torch_zip};
use spotkeeper::service::clock::Clock;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Inputs of a short run, for each target.
const INPUTS: u64 = 1_000;
/// Bytes of the longest input.
const LONGEST: usize = 64 * 1024;
/// Inputs that are kept to be changed further.
const POOL: usize = 256;
/// The longest that one input may take, in a debug build on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).expect("small")
    }
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-corpora");
    let files = std::fs::read_dir(folder.join(target)).expect("a folder");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    assert!(paths.len() > 1, "{target} has no corpus");
    paths.iter().map(|path| std::fs::read(path).expect("a seed")).collect()
}

/// Numbers at which lengths and offsets go wrong.
fn number(dice: &mut Dice) -> Vec<u8> {
    let edges = [0, 1, 0x7f, 0xff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 100_000_000, u64::MAX >> 1];
    let edge = edges[dice.below(edges.len())].wrapping_add(dice.next() % 3).wrapping_sub(1);
    edge.to_le_bytes()[..[1, 2, 4, 8][dice.below(4)]].to_vec()
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], words: &[&[u8]], dice: &mut Dice) {
    let at = dice.below(bytes.len() + 1);
    let end = (at + 1 + dice.below(40)).min(bytes.len());
    match dice.below(9) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(at.min(end)..end)),
        4 => {
            let number = number(dice);
            let end = (at + number.len() * dice.below(2)).min(bytes.len());
            drop(bytes.splice(at..end, number));
        }
        5 => {
            let from = dice.below(other.len());
            let to = (from + 1 + dice.below(80)).min(other.len());
            drop(bytes.splice(at.min(end)..end, other[from.min(to)..to].iter().copied()));
        }
        6 => {
            let again = bytes[at.min(end)..end].repeat(1 + dice.below(200));
            drop(bytes.splice(at..at, again));
        }
        _ => {
            let word = words[dice.below(words.len())];
            let again = word.repeat(1 + dice.below(4) * dice.below(60));
            drop(bytes.splice(at..at, again));
        }
    }
    bytes.truncate(LONGEST);
}

/// Gives changed bytes to `read`, which says whether it made sense of them.
fn run(target: &str, words: &[&[u8]], mut read: impl FnMut(&[u8], u64) -> bool) {
    let minutes = std::env::var("SPOTKEEPER_MUTATE_MINUTES").ok();
    let minutes = minutes.map(|text| text.parse::<u64>().expect("whole minutes"));
    let clock = Clock::new();
    let (began, mut pool) = (clock.now().boot, seeds(target));
    let (mut inputs, mut read_well, mut slowest) = (0, 0_u64, Duration::ZERO);
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ target.len() as u64);
    loop {
        let so_far = clock.now().boot.since(began);
        let is_over = match minutes {
            Some(minutes) => so_far >= Duration::from_secs(60 * minutes),
            None => inputs >= INPUTS,
        };
        if is_over {
            break;
        }
        inputs += 1;
        let mut bytes = pool[dice.below(pool.len())].clone();
        let other = pool[dice.below(pool.len())].clone();
        for _ in 0..=dice.below(4) {
            mutate(&mut bytes, &other, words, &mut dice);
        }
        let start = clock.now().boot;
        let random = dice.next();
        let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&bytes, random)));
        let Ok(well) = well else { panic!("{target}, input {inputs}: {}", bytes.escape_ascii()) };
        let took = clock.now().boot.since(start);
        assert!(took < PATIENCE, "{target}: {took:?} for {}", bytes.escape_ascii());
        slowest = slowest.max(took);
        if well {
            read_well += 1;
            if pool.len() < POOL {
                pool.push(bytes);
            } else {
                let at = dice.below(POOL);
                pool[at] = bytes;
            }
        }
    }
    assert!(read_well > inputs / 100 && read_well < inputs, "{read_well} of {inputs}");
    if minutes.is_some() {
        let peak = peak_kib();
        println!(
            "{target}: {inputs} inputs, {read_well} made sense, slowest {slowest:?}, VmHWM {peak} KiB"
        );
    }
}

/// The most memory that this process has had, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Looks at everything of a pickle that the formats look at.
fn walk(bytes: &[u8]) -> bool {
    let mut texts = 0;
    let skimmed = skim(bytes, |seen| {
        if let Seen::Made(class) = seen {
            texts += usize::from(class.len() <= bytes.len());
        }
    });
    let Ok(pickle) = Pickle::read(bytes) else { return false };
    // What is a pickle to the strict reader is one to the other.
    assert_eq!(skimmed, Ok(()), "{}", bytes.escape_ascii());
    let root = pickle.root();
    for name in ["storage_data", "dp_world_size", "a"] {
        let Some(value) = pickle.field(root, name) else { continue };
        for (key, value) in pickle.entries(value).unwrap_or_default().iter().take(100) {
            let (key, value) = (pickle.get(*key), pickle.get(*value));
            assert!(pickle.class(key).is_none_or(|(module, _)| module.len() <= bytes.len()));
            let _length = pickle.field(value, "length");
        }
    }
    true
}

/// A place with one object.
#[derive(Debug)]
struct One(Vec<u8>);

impl Store for One {
    fn page<'a>(
        &'a self,
        _prefix: &'a str,
        _depth: Depth,
        _from: Option<String>,
    ) -> BoxFuture<'a, Result<Page, StoreError>> {
        async { Ok(Page::default()) }.boxed()
    }

    fn read<'a>(
        &'a self,
        _key: &'a str,
        range: Range<u64>,
    ) -> BoxFuture<'a, Result<Read, StoreError>> {
        let place = |n: u64| usize::try_from(n).expect("64 bits");
        let bytes = self.0.get(place(range.start)..place(range.end));
        let read = bytes.map_or(Read::Changed, |bytes| Read::Bytes(bytes.to_vec()));
        async move { Ok(read) }.boxed()
    }
}

/// The bytes as an object, and the size that a listing shows: now and then another one.
fn object(bytes: &[u8], random: u64) -> (Objects, u64) {
    let size = match random % 8 {
        0 => random >> 3,
        1 => bytes.len() as u64 + 1,
        _ => bytes.len() as u64,
    };
    (Objects::new(Box::new(One(bytes.to_vec())), Arc::default()), size)
}

#[test]
fn mutated_pickles() {
    let opcodes: Vec<[u8; 1]> = (0..=255).map(|byte| [byte]).collect();
    let mut words: Vec<&[u8]> = opcodes.iter().map(|opcode| &opcode[..]).collect();
    words.extend([&b"h\0"[..], b"NNs", b"Na", b")\x81", b"N\x94", b"(K\x01K\x02u", b"cm\nn\n"]);
    run("pickle", &words, |bytes, _| walk(bytes));
}

#[test]
fn mutated_zips() {
    let words = [&b"PK\x05\x06"[..], b"PK\x06\x06", b"PK\x06\x07", b"PK\x01\x02", b"PK\x03\x04"];
    run("zip", &words, |bytes, random| {
        let (objects, size) = object(bytes, random);
        let file = torch_zip::check(&objects, "k", size).now_or_never();
        let file = file.expect("no wait").expect("an answer");
        let member = torch_zip::member(&objects, "k", size, "/data.pkl").now_or_never();
        let member = member.expect("no wait").expect("an answer");
        assert!(member.as_ref().is_none_or(|member| member.len() <= bytes.len()));
        let is_pickle = member.is_some_and(|member| walk(&member));
        file == TorchFile::Whole || is_pickle
    });
}

#[test]
fn mutated_safetensors() {
    let words = [
        &b"{\"a\":"[..],
        b"[",
        b"\"data_offsets\":[0,4]",
        b"\"__metadata__\":",
        b"9",
        b"-",
        b"1e9",
        b",",
        b"}",
        b"\\ud800",
        b"\xff",
    ];
    run("safetensors", &words, |bytes, random| {
        let (objects, size) = object(bytes, random);
        let file = safetensors::check(&objects, "k", size).now_or_never();
        let file = file.expect("no wait").expect("an answer");
        match file {
            safetensors::TensorFile::Whole => true,
            // The header was read to its end.
            safetensors::TensorFile::Torn(why) => why.contains("its header says"),
            safetensors::TensorFile::Unreadable(_) => false,
        }
    });
}

#[test]
fn mutated_indexes() {
    let words = [
        &b"{\"weight_map\":"[..],
        b"[",
        b"\"a\":\"model-00001-of-00002.safetensors\",",
        b"\"../..\"",
        b"null",
        b"1e999",
        b"\\u0000",
        b"\xff",
        b",",
        b"}",
    ];
    let complete = Bucket::of(&fixtures().join("hf-trainer/sharded-missing-shard"));
    let key = "out/checkpoint-20/model.safetensors.index.json";
    assert!(complete.entries.contains_key(key));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let place = location::parse("oss://bucket/team/run").expect("a location");
    let options = options("hf-trainer");
    run("index", &words, |bytes, _| {
        let mut bucket = complete.clone();
        bucket.entries.get_mut(key).expect("the index").bytes = bytes.to_vec();
        let objects = bucket.objects();
        let look = runtime.block_on(look(&objects, &place, &options, bucket.now()));
        found(look).chosen.is_some()
    });
}

#[test]
fn a_header_that_would_take_much_room_is_not_read() {
    let length = 9_u64 * 1024 * 1024;
    let objects = Objects::new(Box::new(One(length.to_le_bytes().to_vec())), Arc::default());
    let file = safetensors::check(&objects, "k", u64::MAX).now_or_never();
    let file = file.expect("no wait").expect("an answer");
    assert!(matches!(file, safetensors::TensorFile::Unreadable(_)), "{file:?}");
}

/// What makes a pickle of the largest size take the most: the same opcodes again and again.
const BOMBS: [(&[u8], &[u8]); 6] = [
    (b"", b"("),
    (b"N", b"\x94"),
    (b"", b"N0"),
    (b"", b"cm\nn\n0"),
    (b"", b"NNN\x870"),
    (b"", b"N)\x81NNs0"),
];

/// In a process of its own: other tests' memory would count as well.
#[test]
fn the_largest_pickles_stay_within_128_mib() {
    const ROLE: &str = "SPOTKEEPER_TEST_READS_BOMBS";
    if std::env::var_os(ROLE).is_some() {
        let before = peak_kib();
        for (head, again) in BOMBS {
            let times = usize::try_from(PICKLE_LIMIT_BYTES).expect("small") / again.len() - 1;
            let bytes = [head, &again.repeat(times)].concat();
            assert!(Pickle::read(&bytes).is_err());
            let _end = skim(&bytes, |_| {});
            println!("{}: {} KiB so far", again.escape_ascii(), peak_kib() - before);
        }
        println!("peak {}", peak_kib() - before);
        return;
    }
    let mut itself = std::process::Command::new(std::env::current_exe().expect("this program"));
    itself.args(["checkpoints::mutations::the_largest_pickles_stay_within_128_mib", "--exact"]);
    let output = itself.args(["--nocapture"]).env(ROLE, "1").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let peak = text.lines().find_map(|line| line.strip_prefix("peak ")).expect("a figure");
    let peak: u64 = peak.parse().expect("a number");
    assert!(peak <= 128 * 1024, "{text}");
}
