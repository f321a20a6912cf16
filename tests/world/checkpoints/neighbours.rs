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
