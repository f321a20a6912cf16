//! What is said where another format was asked for than is there, where a pattern fits nothing, and
//! where the place is itself a checkpoint.

use super::bucket::Bucket;
use super::{fixtures, look_auto, look_named, options};
use spotkeeper::checkpoint::report::json;
use spotkeeper::checkpoint::scan::ScanOptions;
use spotkeeper::model::checkpoint::{Findings, Wholeness};
use spotkeeper::model::spec::CustomLayout;

fn pattern(pattern: &str, required: &[&str]) -> ScanOptions {
    let required = required.iter().map(|part| (*part).to_owned()).collect();
    let custom = CustomLayout { pattern: pattern.into(), required, marker: None };
    ScanOptions { custom: Some(custom), ..options("custom") }
}

fn hints(findings: &Findings) -> String {
    let report = json(findings, None, &[]).expect("a report");
    report["hints"].as_array().map_or(String::new(), |hints| format!("{hints:?}"))
}

#[test]
fn a_wrong_format_names_the_one_that_is_there_and_starts_nothing_at_zero() {
    for (fixture, asked, there) in [
        ("hf-trainer/complete-three", "deepspeed", "hf-trainer"),
        ("hf-trainer/complete-three", "custom", "hf-trainer"),
        ("megatron-legacy/tp2-pp2-complete", "hf-trainer", "megatron-legacy"),
        ("lightning/complete", "verl", "lightning"),
        ("torch-dcp/complete-4-ranks", "accelerate", "torch-dcp"),
    ] {
        let folder = fixtures().join(fixture);
        if !folder.exists() {
            continue;
        }
        let options = if asked == "custom" { pattern("save_{step}", &[]) } else { options(asked) };
        let findings = look_named(&Bucket::of(&folder), "run42", &options);
        assert_eq!(findings.chosen, None, "{fixture}");
        assert!(findings.undecided().is_some(), "{fixture}: {findings:?}");
        assert!(hints(&findings).contains(&format!("`{there}`")), "{}", hints(&findings));
        assert!(hints(&findings).contains(&format!("--format {there}")), "{}", hints(&findings));
    }
}

#[test]
fn a_pattern_that_fits_nothing_shows_a_name_and_one_that_would() {
    let mut bucket = Bucket::default();
    for step in ["9", "100"] {
        bucket.put(&format!("out/save-{step}/model.pt"), b"x");
    }
    for options in [pattern("save_{step}", &[]), options("auto")] {
        let findings = look_named(&bucket, "run42", &options);
        let told = hints(&findings);
        for part in ["out/save-100", "--pattern 'save-{step}'"] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    let told = hints(&look_named(&Bucket::default(), "run42", &pattern("save_{step}", &[])));
    assert!(told.contains("save_{step}"), "{told}");
}

#[test]
fn a_checkpoint_that_is_a_file_has_no_parts_to_ask_for() {
    let mut bucket = Bucket::default();
    bucket.put("ck/ckpt_10.pt", b"x");
    let findings = look_named(&bucket, "run42", &pattern("ckpt_{step}.pt", &["model.pt"]));
    assert_eq!(findings.chosen, None);
    assert_eq!(findings.candidates[0].wholeness, Wholeness::Unknown);
    let why = &findings.candidates[0].why;
    assert!(why.contains("it is a file") && why.contains("`required`"), "{why}");
}

/// What lies below one folder of a bucket, as a place of its own.
fn below(bucket: &Bucket, folder: &str) -> Bucket {
    let mut inner = Bucket { now: bucket.now, ..Bucket::default() };
    for (key, entry) in &bucket.entries {
        if let Some(rest) = key.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/')) {
            inner.entries.insert(rest.to_owned(), entry.clone());
        }
    }
    inner
}

#[test]
fn the_url_of_one_checkpoint_says_its_step_and_what_it_lacks() {
    let bucket = Bucket::of(&fixtures().join("hf-trainer/complete-three"));
    let whole = below(&bucket, "output/checkpoint-30");
    for name in ["checkpoint-30", "best"] {
        let findings = look_named(&whole, name, &options("auto"));
        assert_eq!(findings.candidates[0].step, Some(30), "{name}");
        assert_eq!(findings.chosen.and_then(|point| point.step), Some(30), "{name}");
    }
    let mut torn = whole.clone();
    torn.entries.remove("trainer_state.json");
    let findings = look_named(&torn, "checkpoint-30", &options("auto"));
    assert_eq!(findings.format.as_deref(), Some("hf-trainer"));
    let one = &findings.candidates[0];
    assert_eq!((one.step, one.path.as_str(), one.wholeness), (Some(30), ".", Wholeness::Torn));
    // A name alone makes no checkpoint: a run may be called like one.
    let mut logs = Bucket::default();
    logs.put("logs/a", b"x");
    let findings = look_named(&logs, "step_2", &options("auto"));
    assert!(findings.candidates.is_empty(), "{findings:?}");
}

#[test]
fn a_checkpoint_with_another_trainers_inside_is_its_own_ones() {
    let bucket = Bucket::of(&fixtures().join("hf-trainer-deepspeed/cutoff-no-inner-latest"));
    for (name, step) in [("checkpoint-10", Some(10)), ("checkpoint-20", None)] {
        let one = below(&bucket, &format!("output/{name}"));
        let findings = look_named(&one, name, &options("auto"));
        assert_eq!(findings.format.as_deref(), Some("hf-trainer"), "{name}");
        assert_eq!(findings.chosen.and_then(|point| point.step), step, "{name}");
    }
    // A run that is called like a checkpoint holds what it holds.
    let bucket = Bucket::of(&fixtures().join("deepspeed/latest-ahead-of-data"));
    let findings = look_named(&below(&bucket, "ds"), "step_2", &options("auto"));
    assert_eq!(findings.format.as_deref(), Some("deepspeed"));
}

#[test]
fn safetensors_without_a_tensor_are_no_weights() {
    let bucket = Bucket::of(&fixtures().join("hf-trainer/complete-three"));
    for header in [&b"{}"[..], br#"{"__metadata__":{"format":"pt"}}"#] {
        let mut emptied = bucket.clone();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header].concat();
        emptied.put("output/checkpoint-30/model.safetensors", &bytes);
        let findings = look_auto(&emptied);
        assert_eq!(findings.chosen.and_then(|point| point.step), Some(20));
        assert!(findings.candidates[0].why.contains("no tensor"), "{:?}", findings.candidates[0]);
    }
}

#[test]
fn an_opcode_that_is_not_known_makes_a_checkpoint_unreadable() {
    let bucket = Bucket::of(&fixtures().join("torch-dcp/complete-4-ranks"));
    let findings = look_auto(&bucket);
    let path = findings.chosen.expect("a choice").path;
    let mut later = bucket.clone();
    let metadata = later.entries.get_mut(&format!("{path}/.metadata")).expect("its metadata");
    let last = metadata.bytes.len() - 1;
    metadata.bytes[last] = 0xa7;
    let findings = look_auto(&later);
    assert_eq!(findings.candidates[0].wholeness, Wholeness::Unreadable);
    assert!(findings.candidates[0].why.contains("opcode"), "{}", findings.candidates[0].why);
    // A hole in the file is none.
    let metadata = later.entries.get_mut(&format!("{path}/.metadata")).expect("its metadata");
    metadata.bytes[last] = 0;
    assert_eq!(look_auto(&later).candidates[0].wholeness, Wholeness::Torn);
}
