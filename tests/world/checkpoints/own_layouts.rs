//! Names of a format without its files, and what a person is told where nothing is chosen.

use super::bucket::Bucket;
use super::{fixtures, look_auto, look_named, options};
use spotkeeper::checkpoint::report::json;
use spotkeeper::model::checkpoint::{Findings, Wholeness};

/// Three checkpoints of these files.
fn own(names: [&str; 3], files: &[&str]) -> Bucket {
    let mut bucket = Bucket::default();
    for name in names {
        for file in files {
            bucket.put(&format!("out/{name}/{file}"), b"x");
        }
    }
    bucket
}

fn hints(findings: &Findings) -> String {
    let report = json(findings, None, &[]).expect("a report");
    report["hints"].as_array().map_or(String::new(), |hints| format!("{hints:?}"))
}

#[test]
fn a_layout_of_ones_own_is_asked_about_and_not_started_over() {
    for (names, format) in [
        (["step_10", "step_20", "step_30"], "accelerate"),
        (["step-10", "step-20", "step-30"], "torch-dcp"),
        (["checkpoint_1", "checkpoint_2", "checkpoint_3"], "accelerate"),
        (["checkpoint-10", "checkpoint-20", "checkpoint-30"], "hf-trainer"),
        (["global_step10", "global_step20", "global_step30"], "deepspeed"),
        (["global_step_10", "global_step_20", "global_step_30"], "verl"),
    ] {
        let findings = look_auto(&own(names, &["model.pt", "opt.pt", "meta.bin"]));
        assert_eq!((&findings.format, &findings.chosen), (&None, &None), "{names:?}");
        assert!(findings.undecided().is_some(), "{names:?}");
        let pattern = names[2].trim_end_matches(|c: char| c.is_ascii_digit());
        for part in [
            format!("`{format}`"),
            format!("--pattern '{pattern}{{step}}'"),
            "--required 'model.pt'".to_owned(),
            "--marker".to_owned(),
            "format = \\\"custom\\\"".to_owned(),
            "any of the 3".to_owned(),
        ] {
            assert!(hints(&findings).contains(&part), "{part}: {}", hints(&findings));
        }
    }
}

#[test]
fn what_all_of_them_lack_of_a_format_is_named() {
    let files = ["model.safetensors", "scheduler.bin", "state.bin"];
    let findings = look_auto(&own(["step_10", "step_20", "step_30"], &files));
    assert_eq!((findings.format.as_deref(), &findings.chosen), (Some("accelerate"), &None));
    let told = hints(&findings);
    for part in ["optimizer.bin", "random_states_<rank>.pkl", "--required 'scheduler.bin'"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // Asked for by its word, each is judged by it and the same is said.
    let own = own(["epoch_1", "epoch_2", "epoch_3"], &["model.pt", "opt.pt"]);
    let findings = look_named(&own, "run42", &options("accelerate"));
    assert_eq!(findings.chosen, None);
    // One alone may be a first save that was cut: it is torn, and the hint stands beside.
    let mut one = Bucket::default();
    one.put("out/checkpoint_0/model.safetensors", b"x");
    one.put("out/checkpoint_0/optimizer.bin", b"x");
    let findings = look_auto(&one);
    assert_eq!(findings.candidates[0].wholeness, Wholeness::Torn);
    assert!(hints(&findings).contains("random_states_<rank>.pkl"), "{}", hints(&findings));
}

#[test]
fn files_that_any_script_may_have_do_not_make_a_format() {
    for (names, format, files) in [
        (
            ["checkpoint-10", "checkpoint-20", "checkpoint-30"],
            "hf-trainer",
            ["model.safetensors", "optimizer.pt", "state.json"],
        ),
        (
            ["step_10", "step_20", "step_30"],
            "accelerate",
            ["model.safetensors", "optimizer.bin", "x"],
        ),
    ] {
        let findings = look_auto(&own(names, &files));
        assert_eq!((findings.format.as_deref(), &findings.chosen), (Some(format), &None));
        assert!(findings.undecided().is_some(), "{format}: {:?}", findings.candidates);
        // What the format alone writes shows that it is meant: each is torn.
        let sure = if format == "accelerate" { "random_states_0.pkl" } else { "training_args.bin" };
        let mut cut = own(names, &files);
        cut.put(&format!("out/{}/{sure}", names[0]), b"x");
        let findings = look_auto(&cut);
        assert!(findings.undecided().is_none(), "{format}: {:?}", findings.candidates);
        assert_eq!(findings.candidates[0].wholeness, Wholeness::Torn, "{format}");
    }
}

#[test]
fn torn_ones_of_a_format_that_is_there_are_torn_and_no_more() {
    let bucket = Bucket::of(&fixtures().join("hf-trainer/complete-three"));
    let mut torn = bucket.clone();
    torn.entries
        .retain(|key, _| !key.ends_with("trainer_state.json") || key.contains("checkpoint-10/"));
    let mut all = torn.clone();
    all.entries.retain(|key, _| !key.ends_with("checkpoint-10/optimizer.pt"));
    let findings = look_auto(&all);
    assert_eq!((&findings.chosen, &findings.doubt), (&None, &None));
    assert!(findings.candidates.iter().all(|one| one.wholeness == Wholeness::Torn));
    assert!(hints(&findings).contains("none is whole"), "{}", hints(&findings));
    assert_eq!(hints(&look_auto(&torn)), "", "one is chosen");
}

#[test]
fn an_empty_place_says_how_to_go_on() {
    let mut bucket = Bucket::default();
    bucket.put("logs/events.1", b"x");
    let told = hints(&look_auto(&bucket));
    assert!(told.contains("--pattern") && told.contains("4 levels"), "{told}");
}

#[test]
fn each_of_several_runs_is_named_with_whose_names_it_has() {
    let mut bucket = own(["a/checkpoint-10", "a/checkpoint-20", "b/step-3"], &["x.bin"]);
    bucket.put("out/c/checkpoint-1/x", b"x");
    bucket.put("out/c/global_step1/x", b"x");
    let findings = look_auto(&bucket);
    let words = findings.ambiguous_words();
    for part in [
        "out/a (names of the Hugging Face Trainer)",
        "out/b (names of torchtitan or another DCP trainer)",
        "out/c (names of DeepSpeed and of the Hugging Face Trainer)",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let report = json(&findings, None, &[]).expect("a report");
    assert_eq!(report["roots"][0]["path"], "out/a");
    assert_eq!(report["ambiguous"][0], "out/a");
}

#[test]
fn what_comes_behind_the_chosen_one_says_why_it_does() {
    let mut bucket = Bucket::of(&fixtures().join("lightning/complete"));
    let folder = "lightning_logs/version_0/checkpoints";
    let file = bucket.entries[&format!("{folder}/epoch=0-step=5.ckpt")].clone();
    for name in ["last.ckpt", "last-v1.ckpt"] {
        bucket.entries.insert(format!("{folder}/{name}"), file.clone());
    }
    let last = bucket.entries.get_mut(&format!("{folder}/last.ckpt")).expect("it");
    last.bytes.truncate(last.bytes.len() / 2);
    let findings = look_auto(&bucket);
    assert!(findings.chosen.is_some());
    let of = |name: &str| {
        let path = format!("{folder}/{name}");
        findings.candidates.iter().find(|one| one.path == path).expect("a row").clone()
    };
    assert_eq!(of("last.ckpt").wholeness, Wholeness::Torn);
    assert!(of("last.ckpt").why.contains("no end record"), "{}", of("last.ckpt").why);
    let older = of("last-v1.ckpt");
    assert_eq!(older.wholeness, Wholeness::NotChecked);
    assert_eq!(older.why, "older than the chosen one");
    // The newest once more.
    let chosen = findings.chosen.expect("a choice").path;
    let again = bucket.entries[&chosen].clone();
    bucket.entries.insert(format!("{folder}/last-v1.ckpt"), again);
    let findings = look_auto(&bucket);
    let row = findings.candidates.iter().find(|one| one.path.ends_with("last-v1.ckpt"));
    assert_eq!(row.expect("a row").why, "of the same step as the chosen one");
}

#[test]
fn an_iteration_with_nothing_of_megatron_is_asked_about() {
    let names = ["iter_0000001", "iter_0000002", "iter_0000003"];
    let findings = look_auto(&own(names, &["model.pt", "optim.pt"]));
    assert_eq!((&findings.format, &findings.chosen), (&None, &None));
    assert!(findings.undecided().is_some(), "{:?}", findings.candidates);
}

#[test]
fn a_number_that_python_calls_none_does_not_make_a_checkpoint_torn() {
    let whole = Bucket::of(&fixtures().join("hf-trainer/complete-three"));
    let wanted = look_auto(&whole).chosen.expect("a chosen one");
    for word in ["NaN", "Infinity", "-Infinity"] {
        let mut bucket = whole.clone();
        for name in ["trainer_state.json", "config.json"] {
            let key = format!("{}/{name}", wanted.path);
            let entry = bucket.entries.get_mut(&key).expect("a file");
            let text = String::from_utf8(entry.bytes.clone()).expect("a text");
            entry.bytes = text.replacen('{', &format!("{{\"odd\": {word}, "), 1).into_bytes();
        }
        assert_eq!(look_auto(&bucket).chosen.map(|one| one.path).as_ref(), Some(&wanted.path));
    }
    // A state longer than is kept, and the same cut.
    let mut bucket = whole.clone();
    let key = format!("{}/trainer_state.json", wanted.path);
    let entry = bucket.entries.get_mut(&key).expect("a file");
    let text = String::from_utf8(entry.bytes.clone()).expect("a text");
    let log = format!("{{\"log\": \"{}\", ", "x".repeat(17 * 1024 * 1024));
    entry.bytes = text.replacen('{', &log, 1).into_bytes();
    assert_eq!(look_auto(&bucket).chosen.map(|one| one.path).as_ref(), Some(&wanted.path));
    let entry = bucket.entries.get_mut(&key).expect("a file");
    entry.bytes.truncate(17 * 1024 * 1024);
    assert_ne!(look_auto(&bucket).chosen.map(|one| one.path).as_ref(), Some(&wanted.path));
}
