//! Checkpoints: every fixture, each complete one changed and damaged in every place, and the same
//! through a folder and through an S3 server.

mod asked;
mod bucket;
mod closed;
mod custom;
mod damage;
mod mutations;
mod namings;
mod neighbours;
mod oddities;
mod own_layouts;
mod passed_over;
mod requests;
mod several;
mod stores;
#[cfg(feature = "emulator")]
mod trainer;
mod weights_only;

use bucket::{Bucket, cases, json};
use serde_json::Value;
use spotkeeper::checkpoint::scan::{ScanOptions, look};
use spotkeeper::checkpoint::{location, report};
use spotkeeper::model::checkpoint::{Findings, Look};
use std::path::{Path, PathBuf};

pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/checkpoint-fixtures")
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub(crate) fn options(format: &str) -> ScanOptions {
    ScanOptions { format: format.into(), custom: None, ranks: None, ..ScanOptions::default() }
}

pub(crate) fn found(look: Look) -> Findings {
    match look {
        Look::Done(findings) => findings,
        Look::CouldNotLook { why, .. } => panic!("could not look: {why}"),
    }
}

/// What a look at `bucket` finds, where the URL's last part is `name`.
pub(crate) fn look_named(bucket: &Bucket, name: &str, options: &ScanOptions) -> Findings {
    let place = location::parse(&format!("oss://bucket/team/{name}")).expect("a location");
    found(run(look(&bucket.objects(), &place, options, bucket.now())))
}

pub(crate) fn look_auto(bucket: &Bucket) -> Findings {
    look_named(bucket, "run42", &options("auto"))
}

/// The fixtures' README: no quotes and backslashes, `=` is a blank.
fn plain(argument: &str) -> String {
    argument.replace(['\'', '"', '\\'], "").replace('=', " ")
}

/// Whether `text` holds `part`, digits at either end being whole numbers.
fn contains(text: &str, part: &str) -> bool {
    text.match_indices(part).any(|(at, _)| {
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let cut_before = digit(part.chars().next()) && digit(text[..at].chars().next_back());
        let after = &text[at + part.len()..];
        let cut_after = digit(part.chars().next_back()) && digit(after.chars().next());
        !cut_before && !cut_after
    })
}

/// Everything that `expected.json` says of a look's findings.
fn judge(case: &str, expected: &Value, findings: &Findings) {
    let report = report::json(findings, None, &[]).expect("a report");
    let formats = expected["formats"].as_array().expect("formats");
    if !formats.is_empty() {
        assert!(formats.contains(&report["format"]), "{case}: format {}", report["format"]);
    }
    assert_eq!(report["chosen"]["step"], expected["latest_valid_step"], "{case}: {report:#}");
    assert_eq!(report["chosen"]["path"], expected["path"], "{case}: {report:#}");
    let resume = plain(report["chosen"]["resume"].as_str().unwrap_or_default());
    for part in expected["resume_must_contain"].as_array().expect("a list") {
        let part = plain(part.as_str().expect("text"));
        assert!(contains(&resume, &part), "{case}: `{resume}` lacks `{part}`");
    }
    if expected["ambiguous"] == true {
        assert_eq!(report["ambiguous"], expected["roots"], "{case}");
    }
    let candidates = report["candidates"].as_array().expect("candidates");
    for rejected in expected["rejected"].as_array().expect("a list") {
        if rejected["kind"] != "newer" {
            assert_ne!(report["chosen"]["path"], rejected["path"], "{case}");
            continue;
        }
        let found = candidates.iter().find(|c| c["path"] == rejected["path"]);
        let found = found.unwrap_or_else(|| panic!("{case}: {} is not named", rejected["path"]));
        let verdicts = rejected["verdicts"].as_array().expect("verdicts");
        assert!(verdicts.contains(&found["verdict"]), "{case}: {found}");
        assert!(found["why"].as_str().is_some_and(|why| why.len() > 5), "{case}: {found}");
    }
}

/// A folder with further fixtures may be named in `SPOTKEEPER_FIXTURES`.
#[test]
fn every_fixture_is_right() {
    let more = std::env::var("SPOTKEEPER_FIXTURES").ok().map(PathBuf::from);
    let folders = [fixtures()].into_iter().chain(more);
    let wrong: Vec<String> = folders
        .flat_map(|folder| cases(&folder))
        .filter_map(|case| {
            let name = case.display().to_string();
            let judged = std::panic::catch_unwind(|| {
                judge(&name, &json(&case.join("expected.json")), &look_auto(&Bucket::of(&case)));
            });
            judged.err().map(|_| name)
        })
        .collect();
    assert!(wrong.is_empty(), "wrong: {wrong:#?}");
}

#[test]
fn another_trainers_names_are_shown_and_not_chosen() {
    for name in ["checkpoint-30", "checkpoint_3", "global_step30", "global_step_30", "step-30"] {
        let mut bucket = Bucket::default();
        bucket.put(&format!("out/{name}/mp_rank_00/model_optim_rng.pt"), b"x");
        let findings = look_auto(&bucket);
        assert_eq!((findings.format.clone(), &findings.chosen), (None, &None), "{name}");
        let undecided = findings.undecided().expect("a candidate");
        assert_eq!(undecided.path, format!("out/{name}"));
    }
    // Megatron's names with another of its formats inside: each by its own tests.
    let mut bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    let before = look_auto(&bucket).chosen.expect("a choice");
    bucket.put("ckpt/iter_0000300/metadata.json", b"{}");
    let findings = look_auto(&bucket);
    assert_eq!(findings.format.as_deref(), Some("megatron-torch-dist"));
    assert_eq!(findings.chosen.expect("the older one").path, before.path);
    assert_eq!(findings.candidates[0].wholeness.word(), "torn");
}
