//! Checkpoints that are whole and hold no optimizer: not a point to go on from, in any format that
//! writes them.

use super::bucket::Bucket;
use super::{fixtures, look_auto};
use spotkeeper::model::checkpoint::{Findings, Wholeness};

/// A pickle of `{name: {…} | None, …}`, each name with the names below it.
fn pickle(entries: &[(&str, &[&str])]) -> Vec<u8> {
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.push(0x8c);
        bytes.push(u8::try_from(text.len()).expect("short"));
        bytes.extend(text.bytes());
    };
    let mut bytes = b"\x80\x04}(".to_vec();
    for (name, below) in entries {
        text(&mut bytes, name);
        bytes.extend(b"}(");
        for name in *below {
            text(&mut bytes, name);
            bytes.push(b'N');
        }
        bytes.push(b'u');
    }
    bytes.extend(b"u.");
    bytes
}

/// A file of `torch.save` with that pickle, less all that is not asked for.
fn torch(pickle: &[u8]) -> Vec<u8> {
    let name = b"archive/data.pkl";
    let number = |n: usize| u32::try_from(n).expect("small").to_le_bytes();
    let mut sizes = number(pickle.len()).to_vec();
    sizes.extend(number(pickle.len()));
    sizes.extend(u16::try_from(name.len()).expect("short").to_le_bytes());
    let mut zip = b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    zip.extend(&sizes);
    zip.extend([0; 2]);
    zip.extend(name);
    zip.extend(pickle);
    let directory = zip.len();
    zip.extend(b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0\0\0\0\0");
    zip.extend(&sizes);
    zip.extend([0; 16]);
    zip.extend(name);
    let length = zip.len() - directory;
    zip.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    zip.extend(number(length));
    zip.extend(number(directory));
    zip.extend([0; 2]);
    zip
}

fn saved(entries: &[(&str, &[&str])]) -> Vec<u8> {
    torch(&pickle(entries))
}

/// What is said of the newest, and the step that is chosen.
fn newest(bucket: &Bucket) -> (Wholeness, Option<u64>) {
    let Findings { candidates, chosen, .. } = look_auto(bucket);
    (candidates.first().expect("one").wholeness, chosen.and_then(|point| point.step))
}

const LIGHTNING: &[(&str, &[&str])] = &[
    ("epoch", &[]),
    ("global_step", &[]),
    ("pytorch-lightning_version", &[]),
    ("state_dict", &["w"]),
    ("loops", &[]),
];

fn with<'a>(entries: &[(&'a str, &'a [&'a str])], more: &[&'a str]) -> Vec<u8> {
    let mut all = entries.to_vec();
    all.extend(more.iter().map(|name| (*name, &[] as &[&str])));
    saved(&all)
}

#[test]
fn a_file_of_lightning_without_optimizer_states_is_weights_only() {
    for name in ["epoch=1-step=20.ckpt", "gpt--step=20-consumed_samples=8.0-last.ckpt"] {
        let older = name.replace("20", "10");
        let mut bucket = Bucket::default();
        bucket
            .put(&format!("ck/{older}"), &with(LIGHTNING, &["optimizer_states", "lr_schedulers"]));
        bucket.put(&format!("ck/{name}"), &saved(LIGHTNING));
        assert_eq!(newest(&bucket), (Wholeness::WeightsOnly, Some(10)), "{name}");
        // An empty list of optimizers is a list: the trainer has none.
        bucket.put(&format!("ck/{name}"), &with(LIGHTNING, &["optimizer_states"]));
        assert_eq!(newest(&bucket), (Wholeness::Whole, Some(20)), "{name}");
        // Somebody else's file by that name says nothing of weights.
        bucket.put(&format!("ck/{name}"), &saved(&[("net", &["w"]), ("opt", &[])]));
        assert_eq!(newest(&bucket), (Wholeness::Whole, Some(20)), "{name}");
    }
    // One file a rank.
    let mut bucket = Bucket::default();
    for rank in ["mp_rank_00", "mp_rank_01"] {
        let name = "gpt--step=20-consumed_samples=8.0-last.ckpt";
        bucket.put(&format!("ck/{rank}/{name}"), &saved(LIGHTNING));
    }
    assert_eq!(newest(&bucket), (Wholeness::WeightsOnly, None));
}

#[test]
fn megatron_without_optimizer_is_weights_only() {
    let model: &[(&str, &[&str])] = &[("iteration", &[]), ("args", &[]), ("model", &["w"])];
    for marks in [&[][..], &["done_0.txt"]] {
        let mut bucket = Bucket::default();
        for (step, file) in
            [(100, with(model, &["optimizer", "opt_param_scheduler"])), (200, saved(model))]
        {
            let folder = format!("ck/iter_{step:07}");
            bucket.put(&format!("{folder}/mp_rank_00/model_optim_rng.pt"), &file);
            for mark in marks {
                bucket.put(&format!("{folder}/{mark}"), b"");
            }
        }
        bucket.put("ck/latest_checkpointed_iteration.txt", b"200");
        assert_eq!(newest(&bucket), (Wholeness::WeightsOnly, Some(100)), "{marks:?}");
        // With the distributed optimizer its states lie beside the model.
        for step in [100, 200] {
            let file = format!("ck/iter_{step:07}/mp_rank_00/distrib_optim.pt");
            bucket.put(&file, &saved(&[("exp_avg", &[])]));
        }
        assert_eq!(newest(&bucket), (Wholeness::Whole, Some(200)), "{marks:?}");
    }
}

#[test]
fn composer_without_optimizers_is_weights_only() {
    let mut bucket = Bucket::default();
    let full: &[&str] = &["model", "optimizers", "timestamp"];
    bucket.put("ck/ep0-ba10-rank0.pt", &saved(&[("state", full), ("rng", &[])]));
    bucket.put("ck/ep0-ba20-rank0.pt", &saved(&[("state", &["model"]), ("rng", &[])]));
    assert_eq!(newest(&bucket), (Wholeness::WeightsOnly, Some(10)));
}

/// `.metadata` of one shard of 8 bytes, whose chunks have these names.
fn metadata(names: &[&str]) -> Vec<u8> {
    let mut bytes = b"\x80\x04}\x8c\x0cstorage_data}".to_vec();
    for name in names {
        bytes.extend(b"(\x8c\x01m\x8c\x0dMetadataIndex\x93)\x81}\x8c\x03fqn\x8c");
        bytes.push(u8::try_from(name.len()).expect("short"));
        bytes.extend(name.bytes());
        bytes.extend(b"sb\x8c\x01m\x8c\x0c_StorageInfo\x93)\x81}(\x8c\x0drelative_path");
        bytes.extend(b"\x8c\x0c__0_0.distcp\x8c\x06offsetK\0\x8c\x06lengthK\x08ubu");
    }
    bytes.extend(b"s.");
    bytes
}

#[test]
fn shards_whose_names_are_of_no_optimizer_are_weights_only() {
    let put = |bucket: &mut Bucket, folder: &str, names: &[&str]| {
        bucket.put(&format!("{folder}/.metadata"), &metadata(names));
        bucket.put(&format!("{folder}/__0_0.distcp"), b"12345678");
    };
    for (older, newer) in [
        ("run/checkpoint/step-10", "run/checkpoint/step-20"),
        ("run/step_10", "run/step_20"),
        ("ck/iter_0000010", "ck/iter_0000020"),
        ("ck/10", "ck/20"),
        ("ck/ep0-ba10", "ck/ep0-ba20"),
    ] {
        for optimizer in ["optimizer.state.w.exp_avg", "optim.state.w.step", "app.opt.w"] {
            let mut bucket = Bucket::default();
            put(&mut bucket, older, &["model.w", optimizer]);
            put(&mut bucket, newer, &["model.w", "model.norm.b"]);
            assert_eq!(newest(&bucket), (Wholeness::WeightsOnly, Some(10)), "{newer} {optimizer}");
            put(&mut bucket, newer, &["model.w", optimizer]);
            assert_eq!(newest(&bucket), (Wholeness::Whole, Some(20)), "{newer} {optimizer}");
        }
    }
    // NeMo 2 leaves the optimizer out of its last one unless told otherwise.
    let mut bucket = Bucket::of(&fixtures().join("nemo/complete-dist"));
    let at = |key: &&String| key.contains("step=199-") && key.ends_with("weights/.metadata");
    let key = bucket.entries.keys().find(at).expect("it").clone();
    let folder = key.strip_suffix("/.metadata").expect("its end").to_owned();
    bucket.entries.retain(|key, _| !(key.starts_with(&folder) && key.ends_with(".distcp")));
    let before = newest(&Bucket::of(&fixtures().join("nemo/complete-dist")));
    let modified = bucket.entries[&key].modified;
    put(&mut bucket, &folder, &["model.w"]);
    for name in [".metadata", "__0_0.distcp"] {
        bucket.entries.get_mut(&format!("{folder}/{name}")).expect("it").modified = modified;
    }
    assert_eq!(
        (before, newest(&bucket)),
        ((Wholeness::Whole, Some(199)), (Wholeness::WeightsOnly, Some(99)),)
    );
}
