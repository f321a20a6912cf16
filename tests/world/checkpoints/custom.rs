//! A layout of the person's own.

use super::bucket::Bucket;
use super::{fixtures, look_named};
use spotkeeper::checkpoint::scan::ScanOptions;
use spotkeeper::model::spec::CustomLayout;

fn layout(pattern: &str, required: &[&str], marker: Option<&str>) -> ScanOptions {
    let custom = CustomLayout {
        pattern: pattern.into(),
        required: required.iter().map(|part| (*part).to_owned()).collect(),
        marker: marker.map(str::to_owned),
    };
    ScanOptions {
        format: "custom".into(),
        custom: Some(custom),
        ranks: None,
        ..ScanOptions::default()
    }
}

fn zip() -> Vec<u8> {
    let path =
        "megatron-legacy/tp2-pp2-complete/tree/ckpt/iter_0000100/mp_rank_00_000/distrib_optim.pt";
    std::fs::read(fixtures().join(path)).expect("a file of torch.save")
}

fn chosen(bucket: &Bucket, options: &ScanOptions) -> Option<String> {
    let findings = look_named(bucket, "run42", options);
    assert_eq!(findings.format.as_deref(), Some("custom"));
    findings.chosen.map(|point| point.path)
}

fn folders(steps: &[&str]) -> Bucket {
    let mut bucket = Bucket::default();
    for step in steps {
        bucket.put(&format!("out/save_{step}/model.pt"), &zip());
        bucket.put(&format!("out/save_{step}/part/data.bin"), b"x");
        bucket.put(&format!("out/save_{step}/OK"), b"");
    }
    bucket
}

#[test]
fn the_newest_by_number_is_chosen() {
    let options = layout("save_{step}", &["model.pt", "part/data.bin"], Some("OK"));
    let bucket = folders(&["9", "0090", "100", "1000"]);
    assert_eq!(chosen(&bucket, &options).as_deref(), Some("out/save_1000"));
}

#[test]
fn every_part_and_the_marker_count() {
    let options = layout("save_{step}", &["model.pt", "part/data.bin"], Some("OK"));
    let good = folders(&["10", "20"]);
    for key in ["out/save_20/model.pt", "out/save_20/part/data.bin", "out/save_20/OK"] {
        let mut bucket = good.clone();
        bucket.entries.remove(key);
        assert_eq!(chosen(&bucket, &options).as_deref(), Some("out/save_10"), "{key} removed");
    }
    let whole = zip().len();
    for length in [0, 1, whole / 2, whole - 1] {
        let mut bucket = good.clone();
        bucket.put("out/save_20/model.pt", &zip()[..length]);
        assert_eq!(chosen(&bucket, &options).as_deref(), Some("out/save_10"), "cut at {length}");
    }
    let mut bucket = good.clone();
    bucket.put("out/save_20/part/data.bin", b"");
    assert_eq!(chosen(&bucket, &options).as_deref(), Some("out/save_10"));
}

#[test]
fn a_checkpoint_may_be_one_file() {
    let options = layout("model-{step}.pt", &[], None);
    let mut bucket = Bucket::default();
    bucket.put("ck/model-90.pt", &zip());
    bucket.put("ck/model-100.pt", &zip());
    bucket.put("ck/model-1000.pt", &zip()[..50]);
    bucket.put("ck/model-last.pt", &zip());
    let findings = look_named(&bucket, "run42", &options);
    let point = findings.chosen.expect("a choice");
    assert_eq!((point.path.as_str(), point.root.as_str()), ("ck/model-100.pt", "ck"));
    assert_eq!(point.argument, "{path}");
    assert_eq!(findings.unfinished.and_then(|u| u.step), Some(1000));
}

#[test]
fn a_folder_of_the_pattern_may_be_the_url_itself() {
    let options = layout("save_{step}", &["model.pt"], None);
    let mut bucket = Bucket::default();
    bucket.put("model.pt", &zip());
    let point = look_named(&bucket, "save_7", &options).chosen.expect("a choice");
    assert_eq!((point.path.as_str(), point.step), (".", Some(7)));
}
