//! Names that the fixtures do not have: Lightning's without a step or with a slash, NeMo's rank
//! folders, Accelerate's of its examples, FSDP's files of single ranks.

use super::bucket::{Bucket, Entry};
use super::{fixtures, look_auto, look_named, options};
use spotkeeper::checkpoint::scan::ScanOptions;
use spotkeeper::model::checkpoint::{Findings, PassOver, Unchanged, Wholeness};
use std::time::Duration;

fn fixture(case: &str) -> Bucket {
    Bucket::of(&fixtures().join(case))
}

fn chosen(bucket: &Bucket) -> Option<String> {
    look_auto(bucket).chosen.map(|point| point.path)
}

/// A file of Lightning's that is of step 10, 20 or 30.
fn lightning(step: u64) -> Entry {
    let bucket = fixture("lightning/complete");
    let mut found = bucket.entries.into_iter();
    found.find(|(key, _)| key.ends_with(&format!("step={step}.ckpt"))).expect("a file").1
}

/// A bucket with these of Lightning's files; each is written a minute after the one before.
fn bucket(files: &[(&str, u64)]) -> Bucket {
    let mut bucket = Bucket::default();
    for (&(key, step), at) in files.iter().zip(1..) {
        let mut entry = lightning(step);
        entry.modified = entry.modified.plus(Duration::from_secs(60 * at));
        bucket.entries.insert(key.to_owned(), entry);
    }
    bucket
}

fn point(findings: &Findings) -> (String, Option<u64>) {
    let point = findings.chosen.as_ref().unwrap_or_else(|| panic!("nothing: {findings:?}"));
    (point.path.clone(), point.step)
}

#[test]
fn a_file_without_a_step_in_its_name_is_ordered_by_the_step_in_it() {
    for (name, step) in [("last.ckpt", 30), ("hpc_ckpt_2.ckpt", 20), ("epoch=2-loss=0.31.ckpt", 10)]
    {
        let findings = look_auto(&bucket(&[(&format!("ck/{name}"), step)]));
        assert_eq!(point(&findings), (format!("ck/{name}"), Some(step)));
        assert_eq!(findings.chosen.expect("a point").argument, "--ckpt_path {path}");
    }
    // The newest once more beside the others: newer, as old, older.
    let named = |last: u64| {
        bucket(&[
            ("ck/epoch=0-step=10.ckpt", 10),
            ("ck/epoch=1-step=20.ckpt", 20),
            ("ck/last.ckpt", last),
        ])
    };
    assert_eq!(chosen(&named(30)).as_deref(), Some("ck/last.ckpt"));
    assert_eq!(chosen(&named(20)).as_deref(), Some("ck/epoch=1-step=20.ckpt"));
    assert_eq!(chosen(&named(10)).as_deref(), Some("ck/epoch=1-step=20.ckpt"));
    // Of two of one step the younger one.
    let two = bucket(&[("ck/last.ckpt", 20), ("ck/last-v1.ckpt", 20)]);
    assert_eq!(chosen(&two).as_deref(), Some("ck/last-v1.ckpt"));
}

#[test]
fn a_cut_file_without_a_step_is_torn_and_one_that_says_none_is_unknown() {
    let mut cut = bucket(&[("ck/epoch=0-step=10.ckpt", 10), ("ck/last.ckpt", 30)]);
    cut.entries.get_mut("ck/last.ckpt").expect("it").bytes.pop();
    assert_eq!(chosen(&cut).as_deref(), Some("ck/epoch=0-step=10.ckpt"));
    cut.entries.remove("ck/epoch=0-step=10.ckpt");
    let findings = look_auto(&cut);
    assert_eq!((&findings.chosen, findings.candidates[0].wholeness), (&None, Wholeness::Torn));
    // A whole file of somebody else's.
    let other = fixture("megatron-legacy/tp2-pp2-complete");
    let (_, states) = other
        .entries
        .into_iter()
        .find(|(key, _)| key.ends_with("/model_optim_rng.pt"))
        .expect("a file");
    let mut unknown = Bucket::default();
    unknown.entries.insert("ck/last.ckpt".into(), states);
    let findings = look_auto(&unknown);
    assert_eq!(findings.chosen, None);
    assert_eq!(findings.undecided().expect("one to ask about").path, "ck/last.ckpt");
}

#[test]
fn a_slash_in_a_measure_makes_folders_of_one_run() {
    for files in [
        // Step after the slash, before it, and none at all.
        [
            ("ck/epoch=0-val/loss=0.9-step=10.ckpt", 10),
            ("ck/epoch=1-val/loss=0.4-step=20.ckpt", 20),
        ],
        [
            ("ck/epoch=0-step=10-val/loss=0.9.ckpt", 10),
            ("ck/epoch=1-step=20-val/loss=0.4.ckpt", 20),
        ],
        [("ck/epoch=0-val/loss=0.9.ckpt", 10), ("ck/epoch=1-val/loss=0.4.ckpt", 20)],
        [
            ("ck/epoch=0-a/b/loss=0.9-step=10.ckpt", 10),
            ("ck/epoch=1-a/b/loss=0.4-step=20.ckpt", 20),
        ],
        [("ck/val/loss=0.9-step=10.ckpt", 10), ("ck/val/loss=0.4-step=20.ckpt", 20)],
    ] {
        assert_eq!(point(&look_auto(&bucket(&files))), (files[1].0.to_owned(), Some(20)));
        let mut cut = bucket(&files);
        cut.entries.get_mut(files[1].0).expect("it").bytes.pop();
        assert_eq!(point(&look_auto(&cut)), (files[0].0.to_owned(), Some(10)));
        let with_last = bucket(&[files[0], files[1], ("ck/last.ckpt", 30)]);
        assert_eq!(point(&look_auto(&with_last)), ("ck/last.ckpt".to_owned(), Some(30)));
    }
    // A metric that ends in the letters of the step.
    let files = [("ck/step=10-loss_step=0.9.ckpt", 10), ("ck/step=20-loss_step=9.ckpt", 20)];
    assert_eq!(point(&look_auto(&bucket(&files))), (files[1].0.to_owned(), Some(20)));
}

#[test]
fn a_suspect_behind_a_slash_is_known_by_the_path_that_was_chosen() {
    for files in [
        [("ck/step=10-val/loss=0.9.ckpt", 10), ("ck/step=20-val/loss=0.4.ckpt", 20)],
        [
            ("ck/epoch=0-val/loss=0.9-step=10.ckpt", 10),
            ("ck/epoch=1-val/loss=0.4-step=20.ckpt", 20),
        ],
    ] {
        let bucket = bucket(&files);
        let first = look_auto(&bucket);
        let (path, _) = point(&first);
        let written = first.chosen_candidate().expect("a candidate").newest_object;
        let suspect = Unchanged { path: path.clone(), written };
        let pass_over = PassOver { suspects: vec![suspect], ..PassOver::default() };
        let findings = look_named(&bucket, "run42", &ScanOptions { pass_over, ..options("auto") });
        assert_eq!(point(&findings), (files[0].0.to_owned(), Some(10)));
        assert_eq!(findings.passed_over[0].path, path);
    }
}

#[test]
fn a_file_of_slurm_stands_above_the_folders_of_its_run() {
    let files = [
        ("lightning_logs/version_0/checkpoints/epoch=0-step=10.ckpt", 10),
        ("lightning_logs/version_1/checkpoints/epoch=1-step=20.ckpt", 20),
        ("hpc_ckpt_1.ckpt", 30),
    ];
    assert_eq!(point(&look_auto(&bucket(&files))), ("hpc_ckpt_1.ckpt".to_owned(), Some(30)));
    let stale = bucket(&[files[1], ("hpc_ckpt_1.ckpt", 10)]);
    assert_eq!(point(&look_auto(&stale)), (files[1].0.to_owned(), Some(20)));
    // Two folders beside each other are two runs.
    assert_eq!(look_auto(&bucket(&[("a/last.ckpt", 10), ("b/last.ckpt", 20)])).ambiguous.len(), 2);
    // Beside another trainer's checkpoints a file without a step is something else.
    let mut other = fixture("hf-trainer/complete-three");
    let before = chosen(&other);
    other.entries.insert("output/last.ckpt".into(), lightning(10));
    assert_eq!(chosen(&other), before);
}

/// Two checkpoints of NeMo 1 in these rank folders.
fn nemo(ranks: &[&str]) -> Bucket {
    let mut bucket = Bucket::default();
    for (step, suffix) in [(99, ""), (199, "-last")] {
        for rank in ranks {
            let name = format!("gpt--val_loss=2.40-step={step}-consumed_samples=8.0{suffix}.ckpt");
            bucket.entries.insert(format!("exp/checkpoints/{rank}/{name}"), lightning(10));
        }
    }
    bucket
}

#[test]
fn rank_folders_of_nemo_are_one_run() {
    for ranks in [
        &["mp_rank_00", "mp_rank_01"][..],
        &["mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"],
        &["tp_rank_00_pp_rank_000", "tp_rank_00_pp_rank_001"],
    ] {
        let whole = nemo(ranks);
        let at = |step: u64, suffix: &str| {
            let name = format!("gpt--val_loss=2.40-step={step}-consumed_samples=8.0{suffix}.ckpt");
            format!("exp/checkpoints/{}/{name}", ranks[0])
        };
        let findings = look_auto(&whole);
        assert_eq!(findings.format.as_deref(), Some("nemo"));
        assert_eq!(point(&findings), (at(199, "-last"), Some(199)));
        assert_eq!(findings.candidates.len(), 2);
        for rank in ranks {
            let key = at(199, "-last").replace(ranks[0], rank);
            let mut hole = whole.clone();
            hole.entries.remove(&key);
            assert_eq!(point(&look_auto(&hole)).1, Some(99), "without {rank}");
            let mut cut = whole.clone();
            cut.entries.get_mut(&key).expect("it").bytes.pop();
            assert_eq!(point(&look_auto(&cut)).1, Some(99), "{rank} cut");
        }
        let mut begun = whole.clone();
        let marker =
            "exp/checkpoints/gpt--val_loss=2.40-step=199-consumed_samples=8.0-last-unfinished";
        begun.put(marker, b"");
        assert_eq!(point(&look_auto(&begun)).1, Some(99));
        // The URL may be the folder of the rank folders.
        let inner = whole.renamed(|key| key.replace("exp/checkpoints/", ""));
        assert_eq!(point(&look_auto(&inner)).1, Some(199));
    }
}

#[test]
fn folders_of_accelerates_examples_are_read_as_its_own() {
    let bucket = fixture("accelerate/auto-naming-lexicographic");
    for word in ["step_", "epoch_"] {
        let named = bucket.renamed(|key| key.replace("checkpoints/checkpoint_", word));
        let findings = look_auto(&named);
        assert_eq!(findings.format.as_deref(), Some("accelerate"), "{word}");
        assert_eq!(point(&findings), (format!("proj/{word}10"), Some(10)));
        for file in ["model.safetensors", "optimizer.bin", "random_states_0.pkl", "scheduler.bin"] {
            let mut torn = named.clone();
            torn.entries.remove(&format!("proj/{word}10/{file}")).expect("the file");
            assert_eq!(point(&look_auto(&torn)).1, Some(9), "{word}10 without {file}");
        }
    }
    // Data that is sorted by epochs is no checkpoint.
    let mut data = fixture("hf-trainer/complete-three");
    let before = chosen(&data);
    data.put("samples/epoch_3/0001.txt", b"x");
    assert_eq!(chosen(&data), before);
}

#[test]
fn files_of_single_ranks_under_fsdp_are_counted() {
    let whole = fixture("hf-trainer/complete-three");
    for stem in ["pytorch_model_fsdp", "pytorch_model_fsdp_0"] {
        let mut bucket = whole.clone();
        for step in [10, 20, 30] {
            let folder = format!("output/checkpoint-{step}");
            let optimizer = bucket.entries[&format!("{folder}/optimizer.pt")].clone();
            bucket.entries.remove(&format!("{folder}/model.safetensors")).expect("weights");
            for rank in 0..3 {
                bucket.entries.insert(format!("{folder}/{stem}_rank{rank}.bin"), optimizer.clone());
            }
        }
        assert_eq!(chosen(&bucket).as_deref(), Some("output/checkpoint-30"), "{stem}");
        for rank in 0..3 {
            let key = format!("output/checkpoint-30/{stem}_rank{rank}.bin");
            let mut hole = bucket.clone();
            hole.entries.remove(&key);
            assert_eq!(chosen(&hole).as_deref(), Some("output/checkpoint-20"), "{rank}");
            let mut cut = bucket.clone();
            cut.entries.get_mut(&key).expect("it").bytes.pop();
            assert_eq!(chosen(&cut).as_deref(), Some("output/checkpoint-20"), "{rank}");
        }
    }
}

#[test]
fn of_two_inner_steps_of_deepspeed_the_one_that_latest_names_counts() {
    let bucket = fixture("hf-trainer-deepspeed/complete");
    let newest = chosen(&bucket).expect("a choice");
    let (key, _) = bucket
        .entries
        .iter()
        .find(|(key, _)| key.starts_with(&newest) && key.contains("/global_step"))
        .expect("an inner folder");
    let inner = key.split('/').find(|part| part.starts_with("global_step")).expect("it").to_owned();
    for left in ["global_step1", "global_step999999"] {
        let mut two = bucket.clone();
        two.put(&format!("{newest}/{left}/zero_pp_rank_0_mp_rank_00_optim_states.pt"), b"x");
        assert_eq!(chosen(&two).as_deref(), Some(newest.as_str()), "{left}");
        two.put(&format!("{newest}/latest"), left.as_bytes());
        assert_ne!(chosen(&two).as_deref(), Some(newest.as_str()), "{left} is no whole one");
    }
    let mut none = bucket.clone();
    none.entries.retain(|key, _| !key.contains(&format!("{newest}/{inner}/")));
    assert_ne!(chosen(&none).as_deref(), Some(newest.as_str()));
}

#[test]
fn orbax_may_put_a_prefix_before_the_number() {
    let bucket = fixture("orbax/complete-lexicographic");
    for prefix in ["step", "checkpoint", "epoch", "my_run"] {
        let mut named = bucket.renamed(|key| key.replacen("ck/", &format!("ck/{prefix}_"), 1));
        for step in [900, 1000] {
            // The mark of the commit names the folder.
            let mark = format!("ck/{prefix}_{step}/commit_success.txt");
            if named.entries.contains_key(&mark) {
                named.put(&mark, format!("committed to /ck/{prefix}_{step}").as_bytes());
            }
        }
        let findings = look_auto(&named);
        assert_eq!(findings.format.as_deref(), Some("orbax"), "{prefix}");
        assert_eq!(point(&findings), (format!("ck/{prefix}_1000"), Some(1000)));
        let mut staged = named.clone();
        staged.put(&format!("ck/{prefix}_1000.orbax-checkpoint-tmp-17/default/x"), b"x");
        assert_eq!(point(&look_auto(&staged)).1, Some(900), "{prefix}");
    }
    // Two prefixes are two runs.
    let mut two = bucket.renamed(|key| key.replacen("ck/", "ck/a_", 1));
    two.entries.extend(bucket.renamed(|key| key.replacen("ck/", "ck/b_", 1)).entries);
    assert_eq!(look_auto(&two).chosen, None);
    // Numbered folders of data are none.
    let mut data = fixture("hf-trainer/complete-three");
    let before = chosen(&data);
    data.put("samples/shard_3/0001.txt", b"x");
    assert_eq!(chosen(&data), before);
}

#[test]
fn orbax_without_the_time_of_a_commit_is_judged_by_its_items() {
    let bucket = fixture("orbax/complete-lexicographic");
    let mut lost = bucket.clone();
    lost.entries.remove("ck/1000/_CHECKPOINT_METADATA").expect("the file");
    assert_eq!(chosen(&lost).as_deref(), Some("ck/900"), "the others have it");
    // Earlier releases write neither file.
    let mut early = bucket.clone();
    early.entries.retain(|key, _| {
        !key.ends_with("_CHECKPOINT_METADATA") && !key.ends_with("commit_success.txt")
    });
    assert_eq!(chosen(&early).as_deref(), Some("ck/1000"));
    for part in
        ["default/manifest.ocdbt", "default/_METADATA", "default/ocdbt.process_0/manifest.ocdbt"]
    {
        let mut torn = early.clone();
        torn.entries.remove(&format!("ck/1000/{part}")).expect("the file");
        assert_eq!(chosen(&torn).as_deref(), Some("ck/900"), "{part}");
    }
}

#[test]
fn items_of_orbax_without_a_manifest_are_told_apart() {
    let mut bucket = fixture("orbax/complete-lexicographic");
    bucket.entries.retain(|key, _| key.starts_with("ck/1000/"));
    bucket.entries.retain(|key, _| !key.ends_with("commit_success.txt"));
    let wholeness = |bucket: &Bucket| look_auto(bucket).candidates[0].wholeness;
    assert_eq!(wholeness(&bucket), Wholeness::Whole);
    let mut json = bucket.clone();
    json.put("ck/1000/meta/metadata", b"{\"epoch\": 3}");
    assert_eq!(wholeness(&json), Wholeness::Whole);
    json.put("ck/1000/meta/metadata", b"{\"epoch\"");
    assert_eq!(wholeness(&json), Wholeness::Torn);
    // What OCDBT leaves with both of its files gone.
    let mut rest = bucket.clone();
    for part in ["_METADATA", "manifest.ocdbt"] {
        rest.entries.remove(&format!("ck/1000/default/{part}")).expect("the file");
    }
    assert_eq!(wholeness(&rest), Wholeness::Torn);
    // Arrays in files of their own cannot be counted.
    let mut arrays = bucket.clone();
    arrays.entries.retain(|key, _| !key.contains("/default/") || key.ends_with("/_METADATA"));
    arrays.put("ck/1000/default/w/.zarray", b"{}");
    arrays.put("ck/1000/default/w/0.0", b"x");
    let findings = look_auto(&arrays);
    assert_eq!((wholeness(&arrays), findings.chosen), (Wholeness::Unknown, None));
}
