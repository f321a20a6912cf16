//! What a listing may hold besides checkpoints, and what a look must not be misled by.

use super::bucket::Bucket;
use super::{fixtures, look_auto, look_named, options, run};
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::scan::look;
use spotkeeper::model::checkpoint::{Look, Wholeness};
use spotkeeper::model::time::WallTime;
use std::time::Duration;

fn complete() -> Bucket {
    Bucket::of(&fixtures().join("easyckpt-megatron/no-tracker-all-done"))
}

fn chosen(bucket: &Bucket) -> Option<String> {
    look_auto(bucket).chosen.map(|point| point.path)
}

#[test]
fn odd_keys_are_passed_over_and_counted() {
    let mut bucket = complete();
    let odd = [
        "ck//x",
        "//",
        "ck/../x",
        "ck/iter_0000008//y",
        "ck/iter_0000008/mp_rank_00/a\u{1}b",
        "\u{7f}",
        "./z",
    ];
    for key in odd {
        bucket.put(key, b"x");
    }
    for key in [
        "ck/",
        "ck/iter_0000008/",
        "ck/iter_0000009/",
        "ck/iter_0000008/mp_rank_02/",
        "a b 中/x",
        "ck/iter_0000008/mp_rank_00/model optim 中.pt.tmp",
        " / /x",
    ] {
        bucket.put(key, b"");
    }
    let findings = look_auto(&bucket);
    assert_eq!(findings.chosen.map(|p| p.path).as_deref(), Some("ck/iter_0000008"));
    assert!(findings.odd_keys >= 5, "{}", findings.odd_keys);
    // The marker of a folder without objects is a checkpoint that holds nothing.
    let empty = findings.candidates.iter().find(|c| c.step == Some(9)).expect("it is named");
    assert_eq!(empty.wholeness, Wholeness::Torn);
    assert_eq!(findings.unfinished, None);
}

#[test]
fn seeded_odd_keys_never_change_the_choice() {
    let pieces = [
        "ck",
        "iter_0000008",
        "iter_0000099x",
        "mp_rank_00",
        "..",
        ".",
        "",
        "a\n",
        " ",
        "中",
        "done_0.txt",
        "model_optim_rng.pt",
        "%2e%2e",
        "*",
        "iter_",
        "\\",
        "'\"",
        "iter_99999999999999999999",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit as u64).expect("small")
    };
    for round in 0..300 {
        let mut bucket = complete();
        for _ in 0..8 {
            let parts: Vec<_> = (0..=random(4)).map(|_| pieces[random(pieces.len())]).collect();
            let key = format!("{}{}", parts.join("/"), ["", "/"][random(2)]);
            // A real file of the checkpoint, or another root, would be no oddity.
            let part_of_one = key.starts_with("mp_rank")
                || key.ends_with("model_optim_rng.pt")
                || key.contains("/done_")
                || (key.contains("iter_0000008") && !key.starts_with("ck/iter_0000008/"));
            let harmless = !part_of_one && !bucket.entries.contains_key(&key);
            if harmless {
                bucket.put(&key, b"x");
            }
        }
        let added: Vec<_> = bucket.entries.keys().collect();
        assert_eq!(chosen(&bucket).as_deref(), Some("ck/iter_0000008"), "round {round}: {added:?}");
    }
}

#[test]
fn an_incomplete_newest_one_tells_its_age_and_changes_its_fingerprint() {
    let mut bucket = complete();
    bucket.entries.remove("ck/iter_0000008/done_3.txt");
    let first = look_auto(&bucket).unfinished.expect("an incomplete one");
    assert_eq!((first.step, first.path.as_str()), (Some(8), "ck/iter_0000008"));
    let youngest = WallTime::parse("2026-03-01T08:01:30Z").expect("a time");
    assert_eq!(first.youngest_age, bucket.now().since(youngest));
    assert_eq!(look_auto(&bucket).unfinished.as_ref(), Some(&first));
    let changes: [fn(&mut Bucket); 4] = [
        |b| b.put("ck/iter_0000008/x", b""),
        |b| drop(b.entries.remove("ck/iter_0000008/done_2.txt")),
        |b| b.entries.get_mut("ck/iter_0000008/done_2.txt").expect("it").bytes.push(1),
        |b| {
            let entry = b.entries.get_mut("ck/iter_0000008/done_2.txt").expect("it");
            entry.modified = entry.modified.plus(Duration::from_secs(1));
        },
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut other = bucket.clone();
        change(&mut other);
        let other = look_auto(&other).unfinished.expect("an incomplete one");
        assert_ne!(other.fingerprint, first.fingerprint, "change {at}");
    }
    // A whole newest one leaves nothing to wait for, whatever is wrong with older ones.
    let mut bucket = complete();
    bucket.entries.remove("ck/iter_0000004/done_3.txt");
    assert_eq!(look_auto(&bucket).unfinished, None);
}

#[test]
fn a_checkpoint_that_may_not_be_read_is_no_reason_to_start_at_zero() {
    let mut bucket = complete();
    bucket.locked.insert("ck/iter_0000008/mp_rank_00/distrib_optim.pt".into());
    let findings = look_auto(&bucket);
    assert_eq!(findings.candidates[0].wholeness, Wholeness::Unreadable);
    assert_eq!(findings.chosen.as_ref().and_then(|p| p.step), Some(4));
    assert!(findings.undecided().is_none());
    bucket.locked = bucket.entries.keys().cloned().collect();
    let findings = look_auto(&bucket);
    assert!(findings.chosen.is_none() && findings.undecided().is_some());
}

#[test]
fn ranks_tell_a_first_save_that_was_cut() {
    let mut bucket = complete();
    bucket.entries.retain(|key, _| key.contains("iter_0000008"));
    bucket.entries.remove("ck/iter_0000008/done_3.txt");
    bucket.entries.remove("ck/iter_0000008/done_2.txt");
    let with = |ranks| {
        let options = spotkeeper::checkpoint::scan::ScanOptions { ranks, ..options("auto") };
        look_named(&bucket, "run42", &options).chosen.and_then(|point| point.step)
    };
    assert_eq!(with(Some(4)), None);
    assert_eq!(with(Some(2)), Some(8));
    bucket.entries.remove("ck/iter_0000008/done_1.txt");
    assert_eq!(look_auto(&bucket).chosen, None, "one marker for two model-parallel ranks");
}

#[test]
fn older_ones_are_not_looked_at() {
    let mut bucket = complete();
    let template = bucket.clone();
    for step in 100..200 {
        for (key, entry) in &template.entries {
            if let Some(rest) = key.strip_prefix("ck/iter_0000008/") {
                bucket.entries.insert(format!("ck/iter_{step:07}/{rest}"), entry.clone());
            }
        }
    }
    let objects = bucket.objects();
    let place = location::parse("oss://bucket/team").expect("a location");
    let Look::Done(findings) = run(look(&objects, &place, &options("auto"), bucket.now())) else {
        panic!("could not look");
    };
    assert_eq!(findings.chosen.and_then(|p| p.step), Some(199));
    assert_eq!(findings.candidates.len(), 50);
    assert!(findings.candidates[1..].iter().all(|c| c.wholeness == Wholeness::NotChecked));
    // 102 names in pages of 7, five candidates of 8 objects, four files, no tracker.
    assert!(objects.requests() < 40, "{}", objects.requests());
}

#[test]
fn roots_are_one_run_only_if_they_differ_by_a_launch() {
    let one = complete();
    let two = |first: &str, second: &str| {
        let mut both = one.renamed(|key| format!("{first}/{key}"));
        let other =
            one.renamed(|key| format!("{second}/{}", key.replace("iter_0000008", "iter_0000009")));
        both.entries.extend(other.entries);
        look_auto(&both)
    };
    let launches = two("v10-20260311-101500", "v9-20260310-183000");
    assert_eq!(
        launches.chosen.map(|p| p.path).as_deref(),
        Some("v9-20260310-183000/ck/iter_0000009")
    );
    assert!(two("version_0", "version_1").chosen.is_some());
    let runs = two("alpha", "beta");
    assert_eq!((runs.chosen, runs.ambiguous), (None, vec!["alpha/ck".into(), "beta/ck".into()]));
    assert_eq!(two("v1", "v2").ambiguous.len(), 2);
    // A root hides what lies in it.
    let mut nested = one.clone();
    let inner = one.renamed(|key| format!("ck/non_persistent/{}", &key[3..]));
    nested.entries.extend(inner.entries);
    assert_eq!(chosen(&nested).as_deref(), Some("ck/iter_0000008"));
}

#[test]
fn a_walk_ends_at_four_levels_and_five_hundred_folders() {
    let one = complete();
    assert!(chosen(&one.renamed(|key| format!("1/2/3/{key}"))).is_some());
    assert_eq!(chosen(&one.renamed(|key| format!("1/2/3/4/{key}"))), None);
    let mut wide = Bucket::default();
    for n in 0..600 {
        wide.put(&format!("data/{n:03}/x"), b"");
    }
    let place = location::parse("oss://bucket/team").expect("a location");
    let blind = run(look(&wide.objects(), &place, &options("auto"), wide.now()));
    assert!(matches!(blind, Look::CouldNotLook { needs_person: true, .. }), "{blind:?}");
    wide.entries.extend(one.entries);
    assert_eq!(chosen(&wide).as_deref(), Some("ck/iter_0000008"));
}

#[test]
fn a_format_that_is_not_there_is_told_with_those_that_are() {
    let place = location::parse("oss://bucket/team").expect("a location");
    let bucket = complete();
    let told = run(look(&bucket.objects(), &place, &options("deepspeeed"), bucket.now()));
    let Look::CouldNotLook { why, needs_person: true } = told else { panic!("{told:?}") };
    assert!(why.contains("deepspeeed") && why.contains("easyckpt-megatron"), "{why}");
    // A format that is given is not asked whether the files are its own.
    let legacy = look_named(&bucket, "run42", &options("megatron-legacy"));
    assert_eq!(legacy.format.as_deref(), Some("megatron-legacy"));
    assert!(legacy.chosen.is_some());
}
