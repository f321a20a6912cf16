//! Every answer that the client reads: kept whole, read field by field, and never a panic.

use crate::dlc_golden::{folder, json_files};
use serde_json::{Map, Value, json};
use spotkeeper::dlc::wire::{self, Reader, Row, Whole, WireError};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Mutated bodies that are read.
const MUTATIONS: u64 = 100_000;
/// Threads that share them.
const THREADS: u64 = 4;
/// Bytes of the longest text that is mutated: longer ones find nothing more, and take longer.
const SMALL: usize = 360;
/// Every how-manieth body that could be read is compared with what is written again.
const COMPARED: u64 = 8;

/// How one call's answers are read: of a value, what is wrong with its rows; of a text, the text that
/// is written again.
struct Call {
    of_value: Box<Reads<Value, Vec<WireError>>>,
    of_text: Box<Reads<[u8], String>>,
}

type Reads<From, To> = dyn Fn(&From) -> Result<To, WireError> + Sync;

impl Call {
    fn new<T: 'static>(
        what: &'static str,
        read: Reader<T>,
        wrong: fn(&T) -> Vec<WireError>,
    ) -> Self {
        Self {
            of_value: Box::new(move |value| read(value).map(|found| wrong(&found))),
            of_text: Box::new(move |body| {
                Whole::decode(what, body, read).map(|whole| {
                    let _rows = wrong(&whole.read);
                    whole.encode()
                })
            }),
        }
    }
}

fn wrong<T>(rows: &[Row<T>]) -> Vec<WireError> {
    rows.iter().filter_map(|row| row.as_ref().err().cloned()).collect()
}

/// All calls, by the first part of the names of their bodies.
fn calls() -> BTreeMap<&'static str, Call> {
    let none = |_: &Vec<String>| Vec::new();
    let taken = || Call::new("an answer", wire::acknowledged, |_| Vec::new());
    BTreeMap::from([
        ("get_job", Call::new("GetJob", wire::whole_job, |_| Vec::new())),
        ("list_jobs", Call::new("ListJobs", wire::whole_page, |page| wrong(&page.rows))),
        ("create_job", Call::new("CreateJob", |v| wire::job_id("CreateJob", v), |_| Vec::new())),
        ("stop_job", taken()),
        ("update_job", taken()),
        ("delete_job", taken()),
        ("get_job_events", Call::new("GetJobEvents", wire::job_events, none)),
        ("get_pod_events", Call::new("GetPodEvents", wire::pod_events, none)),
        ("get_pod_logs", Call::new("GetPodLogs", wire::pod_logs, none)),
        ("get_job_metrics", Call::new("GetJobMetrics", wire::job_metrics, |rows| wrong(rows))),
        (
            "get_job_sanity_check_result",
            Call::new("GetJobSanityCheckResult", wire::sanity_checks, |rows| wrong(rows)),
        ),
        ("list_ecs_specs", Call::new("ListEcsSpecs", wire::ecs_specs, |page| wrong(&page.rows))),
        (
            "get_spot_price_history",
            Call::new("GetSpotPriceHistory", wire::spot_prices, |page| wrong(&page.rows)),
        ),
        ("get_dataset", Call::new("GetDataset", wire::dataset, |_| Vec::new())),
        // Answers to calls that are not made here, and refusals: kept whole as well.
        ("error", taken()),
        ("create_signal", taken()),
        ("tag_resources", taken()),
        ("get_web_terminal", taken()),
        ("list_job_sanity_check_results", taken()),
    ])
}

fn call_of(name: &str) -> &str {
    name.strip_prefix("paistudio.").unwrap_or(name).split('.').next().unwrap_or(name)
}

fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/wire-corpus")
}

fn bodies() -> Vec<(String, Value)> {
    let mut all = json_files(&folder().join("responses"));
    assert!(all.len() >= 38, "{}", all.len());
    all.extend(json_files(&corpus()));
    all
}

/// The pointer of every value below `value`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    let step = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                found.push(step(key));
                pointers(value, &step(key), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                found.push(step(&index.to_string()));
                pointers(value, &step(&index.to_string()), found);
            }
        }
        _ => {}
    }
}

fn all_pointers(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    pointers(value, "", &mut found);
    found
}

/// Puts `other` (or, with `None`, nothing) where `pointer` points, and gives back what was there.
fn put(body: &mut Value, pointer: &str, other: Option<Value>) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let key = key.replace("~1", "/").replace("~0", "~");
    match (body.pointer_mut(parent).expect("a parent"), other) {
        (Value::Object(map), Some(other)) => map.insert(key, other).unwrap_or(Value::Null),
        (Value::Object(map), None) => map.remove(&key).expect("a field"),
        (Value::Array(items), Some(other)) => {
            std::mem::replace(&mut items[key.parse::<usize>().expect("an index")], other)
        }
        (Value::Array(items), None) => items.remove(key.parse().expect("an index")),
        (plain, _) => panic!("{plain}"),
    }
}

#[test]
fn every_body_is_written_again_with_nothing_lost() {
    let calls = calls();
    for (name, body) in bodies() {
        let call = &calls[call_of(&name)];
        let text = body.to_string();
        assert_eq!((call.of_text)(text.as_bytes()).as_ref(), Ok(&text), "{name}");
        // The file itself: other blanks and order, the same fields, numbers in their own text.
        let file =
            [folder().join("responses"), corpus()].map(|dir| dir.join(format!("{name}.json")));
        let file = file.iter().find_map(|path| std::fs::read(path).ok()).expect("a file");
        assert_eq!((call.of_text)(&file).as_ref(), Ok(&text), "{name}");
    }
}

#[test]
fn unknown_fields_and_the_text_of_numbers_survive_at_every_level() {
    let calls = calls();
    let numbers =
        ["0.4", "0.011", "1e-5", "0.50", "12345678901234567890", "-0", "0.1000000000000000055"];
    let numbers = numbers.map(|text| serde_json::from_str::<Value>(text).expect("a number"));
    for (name, mut body) in bodies() {
        let mut at = all_pointers(&body);
        at.retain(|pointer| body.pointer(pointer).is_some_and(Value::is_object));
        at.push(String::new());
        for (n, pointer) in at.iter().enumerate() {
            let map = body.pointer_mut(pointer).and_then(Value::as_object_mut).expect("an object");
            map.insert(format!("Invented{n}"), json!([numbers[n % numbers.len()], null, {"": ""}]));
        }
        for (n, pointer) in all_pointers(&body).iter().enumerate() {
            if body.pointer(pointer).is_some_and(Value::is_number) {
                put(&mut body, pointer, Some(numbers[n % numbers.len()].clone()));
            }
        }
        let text = body.to_string();
        assert!(text.contains("Invented"), "{name}");
        assert_eq!((calls[call_of(&name)].of_text)(text.as_bytes()).as_ref(), Ok(&text), "{name}");
    }
    let text = r#"{"SpotPriceHistory":[{"SpotDiscount":0.50},{"SpotDiscount":1e-5}]}"#;
    let prices = Whole::decode("x", text.as_bytes(), wire::spot_prices).expect("prices");
    assert_eq!(prices.encode(), text);
    let read: Vec<_> = prices.read.rows.iter().flatten().map(|p| p.discount.to_string()).collect();
    assert_eq!(read, ["0.5", "0.00001"]);
}

/// What stands where a field should: nothing, and a value of every kind.
fn others() -> Vec<Option<Value>> {
    vec![
        None,
        Some(json!(null)),
        Some(json!("")),
        Some(json!([])),
        Some(json!({})),
        Some(json!(true)),
        Some(json!(-7.5)),
        Some(json!(u64::MAX)),
        Some(json!("odd \u{0} text")),
        Some(json!([null, 1, "x", [], {"Key": 1}])),
        Some(json!({"Tags": 1, "Key": []})),
    ]
}

/// The fields that answers cannot be read without.
fn needed() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    BTreeMap::from([
        ("get_job", BTreeSet::from(["JobId", "Status"])),
        ("list_jobs", BTreeSet::from(["JobId", "Status"])),
        ("create_job", BTreeSet::from(["JobId"])),
        ("get_job_events", BTreeSet::from(["Events"])),
        ("get_pod_events", BTreeSet::from(["Events"])),
        ("get_pod_logs", BTreeSet::from(["Logs"])),
        ("get_job_metrics", BTreeSet::from(["PodId", "PodMetrics"])),
        ("get_job_sanity_check_result", BTreeSet::from(["SanityCheckResult", "Status"])),
        ("list_ecs_specs", BTreeSet::from(["EcsSpecs", "InstanceType"])),
        ("get_spot_price_history", BTreeSet::from(["SpotDiscount", "SpotPriceHistory"])),
        ("get_dataset", BTreeSet::from(["Uri"])),
    ])
}

#[test]
fn scenario_61_each_field_in_turn_may_be_missing_or_of_any_kind_and_only_needed_ones_are_named() {
    let calls = calls();
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let bodies = bodies();
    for (name, body) in &bodies {
        let call = &calls[call_of(name)];
        let mut body = body.clone();
        for pointer in all_pointers(&body.clone()) {
            for other in others() {
                let told = format!("{name} {pointer} {other:?}");
                let missing = other.is_none();
                let rows = other.as_ref().is_some_and(Value::is_array);
                let was = put(&mut body, &pointer, other);
                let errors = match (call.of_value)(&body) {
                    Ok(rows) => rows,
                    Err(error) => vec![error],
                };
                for error in errors {
                    match error {
                        // The error names what was changed, or a field that was below it, or one that
                        // the rows lack that were put there.
                        WireError::Field { field, .. } => {
                            let last = pointer.rsplit('/').next().unwrap_or_default();
                            let hit = last.eq_ignore_ascii_case(field);
                            assert!(hit || rows || holds(&was, field), "{told}: {field}");
                            named.entry(call_of(name)).or_default().insert(field);
                        }
                        // Something else than a row stands among the rows.
                        WireError::NotObject { .. } => {
                            assert!(rows || was.is_object() || was.is_array(), "{told}");
                        }
                        WireError::Shape { .. } => panic!("{told}"),
                    }
                }
                restore(&mut body, &pointer, was, missing);
            }
        }
    }
    assert_eq!(named, needed());
}

/// Whether `field` stands anywhere below `value`.
fn holds(value: &Value, field: &str) -> bool {
    all_pointers(value).iter().any(|pointer| pointer.rsplit('/').next() == Some(field))
}

fn restore(body: &mut Value, pointer: &str, was: Value, missing: bool) {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    match body.pointer_mut(parent).expect("a parent") {
        Value::Array(items) if missing => items.insert(key.parse().expect("an index"), was),
        _ => drop(put(body, pointer, Some(was))),
    }
}

#[test]
fn a_sweep_reads_a_page_as_the_whole_page_is_read() {
    for (name, mut body) in bodies().into_iter().filter(|(name, _)| call_of(name) == "list_jobs") {
        let same = |body: &Value| {
            let text = body.to_string();
            assert_eq!(wire::page(text.as_bytes()), wire::whole_page(body), "{name}: {text}");
        };
        same(&body);
        for pointer in ["/Jobs", "/TotalCount", "/Jobs/0", "/Jobs/0/JobId", "/Jobs/0/Pods"] {
            if body.pointer(pointer).is_none() {
                continue;
            }
            for other in others() {
                let missing = other.is_none();
                let was = put(&mut body, pointer, other);
                same(&body);
                restore(&mut body, pointer, was, missing);
            }
        }
    }
}

/// SplitMix64: the same numbers for one seed, for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.roll() % (end.max(1) as u64)).expect("small")
    }
}

/// A body with few of its fields, but always those that reading starts with.
fn smaller(value: &Value, dice: &mut Dice, depth: usize) -> Value {
    match value {
        Value::Object(map) => {
            let keep = 10usize.saturating_sub(3 * depth).max(2);
            let first = ["JobId", "Status", "Jobs", "EcsSpecs", "Pods", "ReasonMessage"];
            let mut out = Map::new();
            for (key, value) in map {
                let wanted = depth < 3 && first.contains(&key.as_str());
                if wanted || dice.below(map.len()) < keep {
                    out.insert(key.clone(), smaller(value, dice, depth + 1));
                }
            }
            out.into()
        }
        Value::Array(items) => items.iter().take(2).map(|i| smaller(i, dice, depth + 1)).collect(),
        Value::String(text) => {
            let letters = if text.starts_with('{') { 200 } else { 60 };
            text.chars().take(letters).collect::<String>().into()
        }
        plain => plain.clone(),
    }
}

/// Small texts out of every body, with the call that each answers.
fn seeds() -> Vec<(String, Vec<u8>)> {
    let mut dice = Dice(7);
    let mut seeds = Vec::new();
    for (name, body) in bodies() {
        let mut best = body.to_string();
        for _ in 0..40 {
            let text = smaller(&body, &mut dice, 0).to_string();
            if text.len() <= SMALL || text.len() < best.len() {
                best = text;
            }
            if best.len() <= SMALL {
                seeds.push((call_of(&name).to_owned(), best.clone().into_bytes()));
                if body.to_string().len() <= SMALL {
                    break;
                }
            }
        }
    }
    seeds
}

/// One of the ways in which bytes go wrong.
fn mutate(text: &mut Vec<u8>, others: &[(String, Vec<u8>)], dice: &mut Dice) {
    let at = dice.below(text.len());
    let insert = |text: &mut Vec<u8>, part: &[u8]| drop(text.splice(at..at, part.iter().copied()));
    match dice.below(10) {
        0 => {
            if let Some(byte) = text.get_mut(at) {
                *byte ^= 1 << dice.below(8);
            }
        }
        1 => text.truncate(at),
        2 => {
            let (_, other) = &others[dice.below(others.len())];
            let from = dice.below(other.len());
            let to = (from + 1 + dice.below(80)).min(other.len());
            let end = (at + dice.below(40)).min(text.len());
            drop(text.splice(at..end, other[from.min(to)..to].iter().copied()));
        }
        3 => {
            let end = (at + 1 + dice.below(20)).min(text.len());
            drop(text.drain(at..end));
        }
        4 => {
            let open = [&b"["[..], b"{\"a\":", b"[{\"Jobs\":"][dice.below(3)];
            let deep = open.repeat(1 + dice.below(160));
            insert(text, &deep);
        }
        5 => {
            let digits = [&b"9"[..], b"1e", b"0.", b"-", b"00"][dice.below(5)];
            let mut number = digits.to_vec();
            number.extend(b"9".repeat(dice.below(400)));
            insert(text, &number);
        }
        6 => {
            let bad = [
                &b"\xff"[..],
                b"\xc3",
                b"\xed\xa0\x80",
                b"\xf0\x9f",
                b"\\ud800",
                b"\\u0000",
                b"\0",
            ];
            insert(text, bad[dice.below(bad.len())]);
        }
        _ => swap_kind(text, dice),
    }
}

/// Puts a value of another kind somewhere; a text that is no JSON any more stays as it is.
fn swap_kind(text: &mut Vec<u8>, dice: &mut Dice) {
    let Ok(mut body) = serde_json::from_slice::<Value>(text) else { return };
    let at = all_pointers(&body);
    if at.is_empty() {
        return;
    }
    let (one, two) = (&at[dice.below(at.len())], &at[dice.below(at.len())]);
    let mut kinds = others();
    kinds.push(body.pointer(two).cloned());
    let other = kinds.swap_remove(dice.below(kinds.len()));
    put(&mut body, one, other);
    *text = body.to_string().into_bytes();
}

#[test]
fn scenario_61_a_hundred_thousand_mutations_cause_no_panic() {
    let calls = calls();
    let seeds = seeds();
    assert!(seeds.len() > 200, "{}", seeds.len());
    for call in needed().keys() {
        assert!(seeds.iter().any(|(of, _)| of == call), "{call}: no small body");
    }
    let run = |first: u64| {
        let mut read = 0_u64;
        for seed in (first..MUTATIONS).step_by(usize::try_from(THREADS).expect("few")) {
            let mut dice = Dice(seed);
            let (call, text) = &seeds[dice.below(seeds.len())];
            let mut text = text.clone();
            for _ in 0..=dice.below(3) {
                mutate(&mut text, &seeds, &mut dice);
            }
            let found = catch_unwind(AssertUnwindSafe(|| {
                if call == "list_jobs" {
                    let _page = wire::page(&text);
                }
                (calls[call.as_str()].of_text)(&text)
            }));
            let Ok(found) = found else {
                panic!("seed {seed}: {}", String::from_utf8_lossy(&text));
            };
            let Ok(again) = found else { continue };
            read += 1;
            if read.is_multiple_of(COMPARED) {
                let value = |text: &[u8]| serde_json::from_slice::<Value>(text).expect("JSON");
                let was = value(&text);
                let _pods = wire::every_pod(&was);
                assert_eq!(value(again.as_bytes()), was, "seed {seed}");
            }
        }
        read
    };
    let read: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || run(n))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    // Both sides are tried: bodies that are still readable, and bodies that are not.
    assert!((MUTATIONS / 10..MUTATIONS / 10 * 9).contains(&read), "{read}");
}
