//! Neighbours of the fixtures: what a bucket of the same trainers may look like as well.

use super::bucket::Bucket;
use super::{fixtures, look_auto, look_named, options};
use spotkeeper::model::checkpoint::Wholeness;
use spotkeeper::model::time::WallTime;
use std::time::Duration;

fn fixture(case: &str) -> Bucket {
    Bucket::of(&fixtures().join(case))
}

fn chosen(bucket: &Bucket) -> Option<String> {
    look_auto(bucket).chosen.map(|point| point.path)
}

/// Copies all below `from` to `to`, written `later` seconds after it.
fn copy(bucket: &mut Bucket, from: &str, to: &str, later: u64) {
    for (key, entry) in bucket.entries.clone() {
        if let Some(rest) = key.strip_prefix(from) {
            let modified = entry.modified.plus(Duration::from_secs(later));
            let entry = super::bucket::Entry { modified, ..entry };
            bucket.entries.insert(format!("{to}{rest}"), entry);
        }
    }
}

fn removed(bucket: &Bucket, part: &str) -> Bucket {
    let mut bucket = bucket.clone();
    let before = bucket.entries.len();
    bucket.entries.retain(|key, _| !key.contains(part));
    assert_ne!(bucket.entries.len(), before, "{part}");
    bucket
}

/// One checkpoint of DeepSpeed with two layers of four experts on two model-parallel ranks.
fn experts() -> Bucket {
    let mut bucket = fixture("deepspeed/complete-lexicographic");
    let states = bucket.entries["ds/global_step100/mp_rank_00_model_states.pt"].bytes.clone();
    bucket.entries.retain(|key, _| key.contains("/global_step100/") || key == "ds/latest");
    for (layer, expert, mp) in (0..16).map(|n| (n / 8, n / 2 % 4, n % 2)) {
        let name = format!("layer_{layer}_expert_{expert}_mp_rank_{mp:02}_model_states.pt");
        bucket.put(&format!("ds/global_step100/{name}"), &states);
    }
    for rank in 0..2 {
        let name = format!("expp_rank_{rank}_mp_rank_00_optim_states.pt");
        bucket.put(&format!("ds/global_step100/{name}"), &states);
    }
    bucket
}

#[test]
fn experts_of_all_ranks_are_tested_and_a_hole_among_them_is_seen() {
    let bucket = experts();
    assert_eq!(chosen(&bucket).as_deref(), Some("ds/global_step100"));
    for part in ["layer_1_expert_2_mp_rank_01", "layer_0_expert_0_mp_rank_00", "expp_rank_0"] {
        assert_eq!(chosen(&removed(&bucket, part)), None, "{part}");
    }
    for mp in 0..2 {
        let mut cut = bucket.clone();
        let name = format!("layer_1_expert_1_mp_rank_{mp:02}_model_states.pt");
        let entry = cut.entries.get_mut(&format!("ds/global_step100/{name}")).expect("it");
        entry.bytes.truncate(40);
        assert_eq!(chosen(&cut), None, "{name}");
    }
}

#[test]
fn model_states_without_any_optimizer_shard_are_no_checkpoint_of_zero() {
    let mut bucket = fixture("deepspeed/complete-lexicographic");
    bucket.entries.retain(|key, _| key.contains("/global_step100/") || key == "ds/latest");
    assert_eq!(chosen(&bucket).as_deref(), Some("ds/global_step100"));
    assert_eq!(chosen(&removed(&bucket, "optim_states")), None);
}

#[test]
fn a_copied_root_is_not_taken_for_one_that_is_overwritten() {
    let bucket = fixture("torch-dcp/complete-4-ranks");
    let newest = "ckpt/step-300";
    let now = WallTime::parse("2026-04-01T08:00:00Z").expect("a time");
    // In byte order `.metadata` comes first.
    let mut copied = bucket.clone();
    for (entry, at) in copied.entries.values_mut().zip(0..) {
        entry.modified = now.plus(Duration::from_secs(20 * at));
    }
    assert_eq!(chosen(&copied).as_deref(), Some(newest));
    for shards in ["__1_0.distcp", "distcp"] {
        let mut overwritten = bucket.clone();
        for (key, entry) in &mut overwritten.entries {
            if key.starts_with(newest) && key.ends_with(shards) {
                entry.modified = now;
            }
        }
        assert_eq!(chosen(&overwritten).as_deref(), Some("ckpt/step-200"), "{shards}");
    }
    // A short one is short, whatever the times.
    let key = format!("{newest}/__1_0.distcp");
    copied.entries.get_mut(&key).expect("a shard").bytes.pop();
    assert_eq!(chosen(&copied).as_deref(), Some("ckpt/step-200"));
}

#[test]
fn small_files_are_compared_with_their_hashes() {
    use sha2::Digest;
    let mut bucket = fixture("megatron-torch-dist/complete");
    let folder = "gpt/iter_0000200/";
    let hash = |bytes: &[u8]| spotkeeper::model::ids::hex(&sha2::Sha256::digest(bytes));
    let files: serde_json::Map<_, _> = bucket
        .entries
        .iter()
        .filter_map(|(key, e)| Some((key.strip_prefix(folder)?.to_owned(), hash(&e.bytes).into())))
        .collect();
    let integrity = serde_json::json!({"algorithm": "sha256", "files": files});
    bucket.put(&format!("{folder}integrity.json"), integrity.to_string().as_bytes());
    assert_eq!(chosen(&bucket).as_deref(), Some("gpt/iter_0000200"));
    let common = bucket.entries.get_mut(&format!("{folder}common.pt")).expect("the file");
    common.bytes[50] ^= 1;
    assert_eq!(chosen(&bucket).as_deref(), Some("gpt/iter_0000100"));
}

#[test]
fn files_of_one_step_are_ordered_by_time() {
    let bucket = fixture("lightning/complete");
    let newest = chosen(&bucket).expect("a choice");
    let stem = newest.strip_suffix(".ckpt").expect("a file");
    let mut again = bucket.clone();
    for (version, later) in [(1, 60), (2, 30), (9, 90), (10, 120)] {
        copy(&mut again, &newest, &format!("{stem}-v{version}.ckpt"), later);
    }
    assert_eq!(chosen(&again), Some(format!("{stem}-v10.ckpt")));
    let youngest = removed(&again, "-v10");
    assert_eq!(chosen(&youngest), Some(format!("{stem}-v9.ckpt")));
}

#[test]
fn averaged_weights_of_nemo_are_no_checkpoint() {
    let file = fixture("lightning/complete");
    let bytes = file.entries.values().next().expect("a file").bytes.clone();
    let mut bucket = Bucket::default();
    for (step, suffix) in [(99, "-last"), (199, "-last"), (199, "-last-EMA"), (299, "-last-EMA")] {
        bucket.put(&format!("e/gpt--step={step}-consumed_samples=8.0{suffix}.ckpt"), &bytes);
    }
    let wanted = "e/gpt--step=199-consumed_samples=8.0-last.ckpt";
    assert_eq!(chosen(&bucket).as_deref(), Some(wanted));
}

#[test]
fn the_word_of_dlrover_stands_for_the_names_of_all_its_savers() {
    for (case, path) in [
        ("dlrover/megatron-complete", "fc/iter_0000060"),
        ("dlrover/fsdp-tracker-and-metadata-early", "fsdp/100"),
        ("deepspeed/complete-lexicographic", "ds/global_step100"),
        ("megatron-torch-dist/complete", "gpt/iter_0000200"),
    ] {
        let findings = look_named(&fixture(case), "run42", &options("dlrover"));
        let chosen = findings.chosen.unwrap_or_else(|| panic!("{case}: nothing"));
        assert_eq!(chosen.path, path, "{case}");
        let paths: std::collections::BTreeSet<_> =
            findings.candidates.iter().map(|candidate| &candidate.path).collect();
        assert_eq!(paths.len(), findings.candidates.len(), "{case}: one is named twice");
    }
}

#[test]
fn a_higher_step_of_an_earlier_run_in_the_same_folder_is_passed_over() {
    let bucket = fixture("hf-trainer/complete-three");
    let stale = |seconds_before: u64| {
        let mut bucket = bucket.clone();
        copy(&mut bucket, "output/checkpoint-30/", "output/checkpoint-5000/", 0);
        for (key, entry) in &mut bucket.entries {
            if key == "output/checkpoint-5000/trainer_state.json" {
                let text = String::from_utf8(entry.bytes.clone()).expect("JSON");
                let text = text.replace("\"global_step\": 30,", "\"global_step\": 5000,");
                entry.bytes = text.into_bytes();
            }
            // The others were written later.
            if !key.starts_with("output/checkpoint-5000/") {
                entry.modified = entry.modified.plus(Duration::from_secs(seconds_before));
            }
        }
        bucket
    };
    assert_eq!(chosen(&stale(0)).as_deref(), Some("output/checkpoint-5000"));
    let again = stale(86_400);
    let findings = look_auto(&again);
    assert_eq!(findings.chosen.map(|p| p.path).as_deref(), Some("output/checkpoint-30"));
    let passed = &findings.candidates[0];
    assert_eq!((passed.step, passed.wholeness), (Some(5_000), Wholeness::Whole));
    assert!(passed.why.contains("checkpoint-30 was written after it"), "{}", passed.why);
    // A torn one of this run is no reason to pass over a whole one.
    let mut torn = again.clone();
    torn.entries.retain(|key, _| !key.starts_with("output/checkpoint-") || key.contains("-5000/"));
    torn.put("output/checkpoint-30/config.json", b"{}");
    assert_eq!(chosen(&torn).as_deref(), Some("output/checkpoint-5000"));
    // In a copy by byte order 30 comes after 200 and says nothing of when it was saved.
    let mut copied = stale(0);
    for (entry, at) in copied.entries.values_mut().zip(0..) {
        entry.modified = WallTime(1_000).plus(Duration::from_secs(100 * at));
    }
    let moved = copied.renamed(|key| key.replace("checkpoint-5000/", "checkpoint-200/"));
    let mut moved = moved;
    let inner = moved.entries.get_mut("output/checkpoint-200/trainer_state.json").expect("it");
    let text = String::from_utf8(inner.bytes.clone()).expect("JSON");
    inner.bytes = text.replace("\"global_step\": 5000,", "\"global_step\": 200,").into_bytes();
    assert_eq!(chosen(&moved).as_deref(), Some("output/checkpoint-200"));
}

/// A root of Megatron's with iterations 100 and 200, and iteration `step` in `non_persistent`.
fn with_passing(step: u64) -> Bucket {
    let mut bucket = fixture("megatron-torch-dist/complete");
    copy(&mut bucket, "gpt/iter_0000200/", &format!("gpt/non_persistent/iter_{step:07}/"), 90);
    bucket.put("gpt/non_persistent/latest_checkpointed_iteration.txt", step.to_string().as_bytes());
    bucket
}

#[test]
fn what_megatron_does_not_keep_is_the_point_where_it_would_be_loaded() {
    use spotkeeper::model::checkpoint::Pin;
    let point = |bucket: &Bucket| {
        let point = look_auto(bucket).chosen.expect("a choice");
        (point.path, point.root, point.step, point.pin)
    };
    let inner = |step: u64| format!("gpt/non_persistent/iter_{step:07}");
    let newer = with_passing(250);
    assert_eq!(point(&newer), (inner(250), "gpt".into(), Some(250), Pin::OwnChoice));
    assert_eq!(point(&with_passing(200)).0, inner(200), "it is loaded where both are of one step");
    let older = (String::from("gpt/iter_0000200"), "gpt".into(), Some(200), Pin::OwnChoice);
    assert_eq!(point(&with_passing(150)), older);
    // A tracker that is ahead leads past it.
    let mut ahead = newer.clone();
    ahead.put("gpt/latest_checkpointed_iteration.txt", b"300");
    assert_eq!(point(&ahead), (inner(250), "gpt".into(), Some(250), Pin::Argument));
    // A torn one is loaded first whatever the argument.
    let torn = removed(&newer, "non_persistent/iter_0000250/__1_0.distcp");
    let rewrite = Pin::TrackerRewrite;
    assert_eq!(point(&torn), ("gpt/iter_0000200".into(), "gpt".into(), Some(200), rewrite));
    // Without a tracker nothing of it is loaded.
    let unnamed = removed(&newer, "non_persistent/latest");
    assert_eq!(point(&unnamed), older);
    // Where nothing else was saved yet, the root is still the one that the trainer is given.
    let mut only = newer.clone();
    only.entries.retain(|key, _| key.starts_with("gpt/non_persistent/"));
    assert_eq!(point(&only), (inner(250), "gpt".into(), Some(250), Pin::OwnChoice));
}

/// The DCP fixture with `.metadata` split by ranks: each names its own shards.
fn of_ranks(ranks: u8) -> Bucket {
    let mut bucket = Bucket::default();
    for step in [100, 200, 300] {
        for rank in 0..ranks {
            let folder = format!("ckpt/step-{step}");
            bucket.put(&format!("{folder}/__{rank}_0.distcp"), &[rank; 40]);
            let mut metadata =
                b"\x80\x04}\x8c\x0cstorage_data}K\x00\x8c\x01m\x8c\x0c_StorageInfo\x93)\x81}("
                    .to_vec();
            metadata.extend(b"\x8c\x0drelative_path\x8c\x0c");
            metadata.extend(format!("__{rank}_0.distcp").bytes());
            metadata.extend(b"\x8c\x06offsetK\x08\x8c\x06lengthK\x20ubss.");
            bucket.put(&format!("{folder}/__{rank}.metadata"), &metadata);
        }
    }
    bucket
}

#[test]
fn metadata_of_single_ranks_is_whole_where_their_number_is_known() {
    let whole = of_ranks(3);
    assert_eq!(chosen(&whole).as_deref(), Some("ckpt/step-300"));
    for part in ["__1.metadata", "__1_0.distcp", "__2.metadata"] {
        let torn = removed(&whole, &format!("step-300/{part}"));
        assert_eq!(chosen(&torn).as_deref(), Some("ckpt/step-200"), "{part}");
    }
    let mut cut = whole.clone();
    cut.entries.get_mut("ckpt/step-300/__2_0.distcp").expect("it").bytes.pop();
    assert_eq!(chosen(&cut).as_deref(), Some("ckpt/step-200"));
    // All of a rank is gone: only the number of ranks tells.
    let gone = removed(&whole, "step-300/__2");
    assert_eq!(chosen(&gone).as_deref(), Some("ckpt/step-200"));
    assert_eq!(look_auto(&gone).candidates[0].wholeness, Wholeness::Unknown);
    let mut alone = whole.clone();
    alone.entries.retain(|key, _| key.contains("step-300"));
    let findings = look_auto(&alone);
    assert_eq!((&findings.chosen, findings.undecided().is_some()), (&None, true));
    let with = |ranks| {
        let options = spotkeeper::checkpoint::scan::ScanOptions { ranks, ..options("auto") };
        look_named(&alone, "run42", &options).chosen.and_then(|point| point.step)
    };
    assert_eq!(with(Some(3)), Some(300));
    assert_eq!(with(Some(4)), None);
}

#[test]
fn a_run_of_megatron_may_change_from_torch_dist_to_torch_dcp() {
    let bucket = fixture("megatron-torch-dist/complete");
    let mut changed = bucket.clone();
    copy(&mut changed, "gpt/iter_0000200/", "gpt/iter_0000300/", 600);
    for part in ["metadata.json", "common.pt"] {
        changed.entries.remove(&format!("gpt/iter_0000300/{part}")).expect("the file");
    }
    assert_eq!(chosen(&changed).as_deref(), Some("gpt/iter_0000300"));
    let torn = removed(&changed, "iter_0000300/__1_0.distcp");
    assert_eq!(chosen(&torn).as_deref(), Some("gpt/iter_0000200"));
    // Newer releases of torch_dist have no common.pt: the tracker tells a cut save from another kind.
    let mut newer = changed.clone();
    for step in [100, 200] {
        let folder = format!("gpt/iter_0000{step}");
        newer.entries.remove(&format!("{folder}/common.pt")).expect("the file");
        let commit = br#"{"sharded_backend": "torch_dist", "sharded_backend_version": 1}"#;
        newer.put(&format!("{folder}/metadata.json"), commit);
    }
    assert_eq!(chosen(&newer).as_deref(), Some("gpt/iter_0000200"));
    newer.put("gpt/latest_checkpointed_iteration.txt", b"300");
    assert_eq!(chosen(&newer).as_deref(), Some("gpt/iter_0000300"));
}

#[test]
fn several_higher_steps_of_an_earlier_run_are_passed_over() {
    let bucket = fixture("torch-dcp/complete-4-ranks");
    let mut again = bucket.clone();
    for step in 40..=50 {
        copy(&mut again, "ckpt/step-300/", &format!("ckpt/step-{step}00/"), step);
    }
    // By number alone, as long as the times do not speak against it.
    assert_eq!(chosen(&again).as_deref(), Some("ckpt/step-5000"));
    for (key, entry) in &mut again.entries {
        if ["step-100/", "step-200/", "step-300/"].iter().any(|mine| key.contains(mine)) {
            entry.modified = entry.modified.plus(Duration::from_secs(86_400));
        }
    }
    let findings = look_auto(&again);
    assert_eq!(findings.chosen.map(|p| p.path).as_deref(), Some("ckpt/step-300"));
    assert!(
        findings.candidates[0].why.contains("step-100 was written after it"),
        "{:?}",
        findings.candidates[0]
    );
}
