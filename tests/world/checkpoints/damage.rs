//! Complete checkpoints, changed and damaged: every file of each in turn.

use super::bucket::{Bucket, cases, json};
use super::{fixtures, judge, look_auto, look_named, options};
use serde_json::Value;
use spotkeeper::model::checkpoint::{Pin, Wholeness};
use std::collections::BTreeMap;
use std::path::PathBuf;

const TRACKER: &str = "latest_checkpointed_iteration.txt";

/// Fixtures of Megatron's rank folders in which something is chosen.
fn complete() -> Vec<(PathBuf, Value, Bucket)> {
    let mut complete = complete_of_all();
    let is_megatron = |case: &PathBuf, bucket: &Bucket| {
        let of = ["easyckpt-megatron/", "megatron-legacy/", "auto/"];
        of.iter().any(|format| case.display().to_string().contains(format))
            && bucket.entries.keys().any(|key| key.contains("/mp_rank_"))
    };
    complete.retain(|(case, _, bucket)| is_megatron(case, bucket));
    assert!(complete.len() >= 10, "{}", complete.len());
    complete
}

/// Fixtures in which something is chosen.
fn complete_of_all() -> Vec<(PathBuf, Value, Bucket)> {
    let all = cases(&fixtures()).into_iter().map(|case| {
        let expected = json(&case.join("expected.json"));
        let bucket = Bucket::of(&case);
        (case, expected, bucket)
    });
    all.filter(|(_, expected, _)| expected["path"].is_string()).collect()
}

/// `text` with every step in a name or in the tracker made seven times as large.
fn times_seven(text: &str) -> String {
    let Some((before, rest)) = text.split_once("iter_") else { return text.to_owned() };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let step: u64 = rest[..end].parse().expect("a step");
    format!("{before}iter_{:07}{}", step * 7, &rest[end..])
}

fn with_steps_times_seven(bucket: &Bucket) -> Bucket {
    let mut changed = bucket.renamed(times_seven);
    for (key, entry) in &mut changed.entries {
        if key.ends_with(TRACKER) {
            let step: u64 = String::from_utf8_lossy(&entry.bytes).parse().expect("a step");
            entry.bytes = (step * 7).to_string().into_bytes();
        }
    }
    changed
}

fn expected_times_seven(expected: &Value) -> Value {
    let seven = |part: &Value| {
        let part = part.as_str().expect("text");
        let (before, step) = part.rsplit_once(' ').expect("an argument");
        Value::from(format!("{before} {}", step.parse::<u64>().expect("a step") * 7))
    };
    let mut changed = expected.clone();
    changed["path"] = times_seven(expected["path"].as_str().expect("a path")).into();
    changed["latest_valid_step"] =
        (expected["latest_valid_step"].as_u64().expect("a step") * 7).into();
    let parts = expected["resume_must_contain"].as_array().expect("a list");
    changed["resume_must_contain"] = parts.iter().map(seven).collect();
    for rejected in changed["rejected"].as_array_mut().expect("a list") {
        rejected["path"] = times_seven(rejected["path"].as_str().expect("a path")).into();
    }
    changed
}

/// One more rank in every checkpoint: another row of the grid, another marker.
fn with_one_rank_more(bucket: &Bucket) -> Bucket {
    let mut changed = bucket.clone();
    let mut folders: BTreeMap<String, u64> = BTreeMap::new();
    for key in bucket.entries.keys() {
        if let Some((folder, rest)) = key.split_once("/mp_rank_")
            && let Some(index) = rest.get(..2).and_then(|i| i.parse::<u64>().ok())
        {
            let last = folders.entry(folder.to_owned()).or_default();
            *last = (*last).max(index);
        }
    }
    for (folder, last) in folders {
        for (key, entry) in &bucket.entries {
            let row = format!("{folder}/mp_rank_{last:02}");
            if let Some(rest) = key.strip_prefix(&row) {
                changed
                    .entries
                    .insert(format!("{folder}/mp_rank_{:02}{rest}", last + 1), entry.clone());
            }
        }
        let done =
            bucket.entries.keys().filter(|k| k.starts_with(&format!("{folder}/done_"))).count();
        if done > 0 {
            changed.put(&format!("{folder}/done_{done}.txt"), b"");
        }
    }
    changed
}

#[test]
fn complete_ones_are_right_in_other_sizes_and_places() {
    for (case, expected, bucket) in complete() {
        let name = case.display().to_string();
        let seven = with_steps_times_seven(&bucket);
        judge(&format!("{name} x7"), &expected_times_seven(&expected), &look_auto(&seven));
        if expected["rejected"].as_array().is_some_and(Vec::is_empty) {
            let more = with_one_rank_more(&bucket);
            assert_ne!(more.entries.len(), bucket.entries.len());
            judge(&format!("{name} one rank more"), &expected, &look_auto(&more));
        }
        if name.contains("deep-four-levels") {
            continue;
        }
        let moves: [fn(&str) -> String; 3] = [
            |key| format!("deeper/{key}"),
            |key| format!("a b/{key}"),
            |key| format!("模型's \"x\"/{key}"),
        ];
        for moved in moves {
            let mut elsewhere = expected.clone();
            elsewhere["path"] = moved(expected["path"].as_str().expect("a path")).into();
            for rejected in elsewhere["rejected"].as_array_mut().expect("a list") {
                rejected["path"] = moved(rejected["path"].as_str().expect("a path")).into();
            }
            judge(&format!("{name} moved"), &elsewhere, &look_auto(&bucket.renamed(moved)));
        }
    }
}

#[test]
fn a_url_that_is_a_checkpoint_is_that_one_only() {
    for (case, expected, bucket) in complete() {
        let path = format!("{}/", expected["path"].as_str().expect("a path"));
        let mut inside = bucket.clone();
        inside.entries.retain(|key, _| key.starts_with(&path));
        let inside = inside.renamed(|key| key[path.len()..].to_owned());
        let name = path.trim_end_matches('/').rsplit('/').next().expect("a name");
        let findings = look_named(&inside, name, &options("auto"));
        let chosen = findings.chosen.unwrap_or_else(|| panic!("{}: nothing", case.display()));
        assert_eq!((chosen.path.as_str(), chosen.root.as_str()), (".", ".."));
        assert_eq!(chosen.step, expected["latest_valid_step"].as_u64());
        assert_eq!(chosen.pin, Pin::Argument, "the tracker cannot be seen");
        // Under a name without a step Megatron cannot be told to load it.
        let findings = look_named(&inside, "release", &options("auto"));
        assert_eq!((findings.chosen, findings.candidates.len()), (None, 1), "{}", case.display());
    }
}

/// What cannot be known from outside: a part of the case's path, the end of the key, mutation, why.
/// The mutation `cut` stands for every length that is neither nothing nor all.
const UNKNOWABLE: [(&str, &str, &str, &str); 13] = [
    (
        "no-tracker-partial-done",
        "done_3.txt",
        "removed",
        "the oldest one, no tracker: nothing says that there were four ranks",
    ),
    (
        "/dlrover/stage-dir-left",
        "iter_0000060/mp_rank_01/model_optim_rng.pt",
        "removed",
        "the only finished one: nothing says that there were two ranks",
    ),
    ("/nemo/", "context/model.yaml", "cut", "a cut YAML file is a YAML file"),
    ("/orbax/", "0a00d55cebc4c5b1669899a1c03088dd", "removed", DATA_FILES),
    ("/orbax/", "262681f3fd6e627ca0ebe7d2eea39dd1", "removed", DATA_FILES),
    ("/orbax/", "6ce989b3b2600bd38440359d6e3ae8b8", "removed", DATA_FILES),
    ("/orbax/", "7215faaccf15cf28e09caa340f7016b4", "removed", DATA_FILES),
    ("/orbax/", "5c999c57b243b562b199d436adcab7f4", "removed", DATA_FILES),
    ("/orbax/", "66cad7d0496e3d5dcebee4aaea7c0d00", "removed", DATA_FILES),
    ("/orbax/", "71c9800d85d10424432fb68f287b6cfd", "removed", DATA_FILES),
    ("/orbax/", "9cabe16eae8b544f852ea03c7389022e", "removed", DATA_FILES),
    ("/accelerate/fsdp", "scheduler.bin", "removed", "the oldest one: nothing to compare with"),
    ("auto/v-time-launch", "training_args.bin", "removed", "the only one of its launch"),
];

const DATA_FILES: &str = "which data files there are stands in compressed nodes of OCDBT";

/// The same for cases of one checkpoint, which has no sibling to be compared with.
const UNKNOWABLE_ALONE: [(&str, &str); 3] = [
    ("cutoff-no-inner-latest", "scheduler.pt"),
    ("url-is-a-checkpoint", "config.json"),
    ("url-is-a-checkpoint", "training_args.bin"),
];

/// Files without which the trainer goes on from the very same state: a part of the key, mutation
/// (`any` for all), why.
const NOT_NEEDED: [(&str, &str, &str); 5] = [
    ("rng_state", "removed", "a load without it is logged, and goes on"),
    ("random_states_", "removed", "a load without it is logged, and goes on"),
    ("/zero_to_fp32.py", "any", "a script for people"),
    ("/zero_to_torch.py", "any", "a script for people"),
    ("/additional_config.json", "removed", "written for export only"),
];

/// The files of the chosen checkpoint.
fn files_of(chosen: &str, bucket: &Bucket) -> Vec<String> {
    let folder = format!("{chosen}/");
    // Composer's ranks stand beside each other.
    let stem = chosen.strip_suffix("rank0.pt");
    let mine = |key: &&String| {
        chosen == "."
            || **key == chosen
            || key.starts_with(&folder)
            || stem.is_some_and(|stem| key.starts_with(stem))
    };
    bucket.entries.keys().filter(mine).filter(|key| !key.ends_with('/')).cloned().collect()
}

#[test]
fn no_damaged_checkpoint_is_chosen_where_it_can_be_known() {
    let mut tried: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (case, expected, bucket) in complete_of_all() {
        let chosen = expected["path"].as_str().expect("a path").to_owned();
        let format = case.parent().and_then(|p| p.file_name()).expect("a format");
        let case = case.display().to_string();
        let files = files_of(&chosen, &bucket);
        assert!(!files.is_empty(), "{case}");
        for key in files {
            let whole = bucket.entries[&key].bytes.len();
            let mutations = [
                ("removed", None),
                ("emptied", Some(0)),
                ("1 byte", Some(1)),
                ("half", Some(whole / 2)),
                ("size - 1", Some(whole.saturating_sub(1))),
            ];
            for (mutation, length) in mutations {
                let mut damaged = bucket.clone();
                match length {
                    None => drop(damaged.entries.remove(&key)),
                    // A done marker is empty: cutting it changes nothing.
                    Some(length) if length >= whole => continue,
                    Some(length) => {
                        damaged.entries.get_mut(&key).expect("the file").bytes.truncate(length);
                    }
                }
                // With a tracker on it, a load asks for no marker: without one it is as whole.
                let is_marker = key.contains("/done_") && is_named(&bucket, &expected);
                let needless = NOT_NEEDED
                    .iter()
                    .any(|(part, what, _)| key.contains(part) && ["any", mutation].contains(what));
                // A line break at the end is not missed.
                let blank = length.is_some_and(|length| {
                    bucket.entries[&key].bytes[length..].iter().all(u8::is_ascii_whitespace)
                });
                if is_marker || needless || blank {
                    continue;
                }
                let counts = tried.entry(format.to_string_lossy().into_owned()).or_default();
                counts.0 += 1;
                let unknowable = UNKNOWABLE.iter().any(|(in_case, end, what, _)| {
                    let cut = *what == "cut" && length.is_some_and(|length| length > 0);
                    case.contains(in_case) && key.ends_with(end) && (cut || *what == mutation)
                }) || UNKNOWABLE_ALONE.iter().any(|(in_case, end)| {
                    case.contains(in_case) && key.ends_with(end) && mutation == "removed"
                });
                let findings = look_auto(&damaged);
                let path = findings.chosen.as_ref().map(|point| point.path.clone());
                let noticed = path.as_deref() != Some(chosen.as_str());
                if unknowable {
                    counts.1 += 1;
                }
                if noticed == unknowable {
                    wrong.push(format!("{case} {key} {mutation}: noticed {noticed}"));
                } else if noticed
                    && let Some(damaged) = findings.candidates.iter().find(|c| c.path == chosen)
                    && !matches!(damaged.wholeness, Wholeness::Torn | Wholeness::WeightsOnly)
                {
                    wrong.push(format!("{case} {key} {mutation}: {}", damaged.wholeness.word()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong: {wrong:#?}", wrong.len());
    for (format, (tried, unknowable)) in tried {
        assert!(unknowable * 10 <= tried, "{format}: {unknowable} of {tried} cannot be known");
        assert!(tried >= 4, "{format}: {tried}");
    }
}

fn is_named(bucket: &Bucket, expected: &Value) -> bool {
    let tracker = bucket.entries.iter().find(|(key, _)| key.ends_with(TRACKER));
    let named = tracker.and_then(|(_, e)| String::from_utf8_lossy(&e.bytes).parse::<u64>().ok());
    named.is_some() && named == expected["latest_valid_step"].as_u64()
}

#[test]
fn a_damaged_tracker_changes_the_way_and_not_the_choice() {
    let mut seen = 0;
    for (case, expected, bucket) in complete() {
        let Some(key) = bucket.entries.keys().find(|key| key.ends_with(TRACKER)).cloned() else {
            continue;
        };
        if !is_named(&bucket, &expected) {
            continue;
        }
        let case = case.display().to_string();
        let is_easy = case.contains("easyckpt");
        for (content, pin) in [
            (Some(&b""[..]), Pin::TrackerRewrite),
            (Some(b"abc"), Pin::TrackerRewrite),
            (Some(b"release"), Pin::TrackerRewrite),
            (Some(b"9999999"), Pin::Argument),
            (None, Pin::Argument),
        ] {
            let mut damaged = bucket.clone();
            match content {
                Some(content) => damaged.put(&key, content),
                None => drop(damaged.entries.remove(&key)),
            }
            let findings = look_auto(&damaged);
            let Some(chosen) = findings.chosen else {
                // Without markers and without tracker nobody knows of it.
                assert!(case.contains("markers-deleted") && is_easy, "{case}");
                continue;
            };
            if Some(chosen.path.as_str()) == expected["path"].as_str() {
                assert_eq!(chosen.pin, pin, "{case} {content:?}");
                seen += 1;
            } else {
                assert!(case.contains("markers-deleted"), "{case} {content:?}: {}", chosen.path);
            }
        }
    }
    assert!(seen >= 15, "{seen}");
}
