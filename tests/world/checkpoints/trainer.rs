//! The demo's trainer beside the scan: what it saves is found, what it is cut in is refused.

use super::bucket::Bucket;
use super::{look_auto, options};
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::scan::look_at;
use spotkeeper::demo::trainer::{TrainerOptions, run};
use spotkeeper::model::checkpoint::Pin;
use spotkeeper::model::time::WallTime;
use std::path::Path;

fn train(root: &Path, steps: u64) {
    let options = TrainerOptions {
        save: root.join("ck"),
        steps,
        save_every: 5,
        step_time: 0,
        write_pause: 0,
        load: None,
        ckpt_step: None,
        save_on_term: false,
        log: root.join("trainer.jsonl"),
    };
    run(&options, &mut std::io::sink()).expect("it trains");
}

#[test]
fn what_the_trainer_saves_is_whole() {
    let root = tempfile::tempdir().expect("a folder");
    train(root.path(), 12);
    let place = location::parse(&format!("file://{}", root.path().display())).expect("a location");
    let look = super::run(look_at(&place, None, &options("auto"), WallTime(0)));
    let findings = super::found(look);
    assert_eq!(findings.format.as_deref(), Some("easyckpt-megatron"));
    let chosen = findings.chosen.expect("a choice");
    assert_eq!((chosen.step, chosen.pin), (Some(12), Pin::OwnChoice));
}

/// Every point at which a save can be cut: the files that are there by then, the last one at any
/// length. Only with all files and all markers is the new one chosen.
#[test]
fn a_save_that_was_cut_anywhere_is_refused() {
    let root = tempfile::tempdir().expect("a folder");
    train(root.path(), 10);
    let mut base = Bucket::default();
    let mut saves = Vec::new();
    for (name, is_new) in [
        ("iter_0000005/mp_rank_00/model_optim_rng.pt", false),
        ("iter_0000005/mp_rank_01/model_optim_rng.pt", false),
        ("iter_0000005/done_0.txt", false),
        ("iter_0000005/done_1.txt", false),
        ("iter_0000010/mp_rank_00/model_optim_rng.pt", true),
        ("iter_0000010/mp_rank_01/model_optim_rng.pt", true),
        ("iter_0000010/done_0.txt", true),
        ("iter_0000010/done_1.txt", true),
    ] {
        let bytes = std::fs::read(root.path().join("ck").join(name)).expect("a file");
        let key = format!("ck/{name}");
        if is_new {
            saves.push((key, bytes));
        } else {
            base.put(&key, &bytes);
        }
    }
    base.put("ck/latest_checkpointed_iteration.txt", b"5");
    for (key, bytes) in saves.clone() {
        for length in [0, 1, bytes.len() / 4, bytes.len() / 2, bytes.len().saturating_sub(1)] {
            if length < bytes.len() {
                let mut cut = base.clone();
                cut.put(&key, &bytes[..length]);
                let chosen = look_auto(&cut).chosen.expect("the older one");
                assert_eq!((chosen.step, chosen.pin), (Some(5), Pin::OwnChoice), "{key} {length}");
            }
        }
        let before = look_auto(&base).chosen.expect("a choice");
        assert_eq!(before.step, Some(5), "before {key}");
        base.put(&key, &bytes);
    }
    let chosen = look_auto(&base).chosen.expect("a choice");
    assert_eq!((chosen.step, chosen.pin), (Some(10), Pin::Argument));
    base.put("ck/latest_checkpointed_iteration.txt", b"");
    assert_eq!(look_auto(&base).chosen.map(|c| c.pin), Some(Pin::TrackerRewrite));
}
