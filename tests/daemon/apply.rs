//! `plan` shows what job files change, `apply` sees that they are taken, and only `apply --prune`
//! ends a job whose file is gone.

use crate::harness::{JobFile, World};
use crate::schema::check;
use serde_json::Value;

fn shown(world: &World, words: &[&str]) -> (i32, Value) {
    let out = world.cli(&[words, &["-o", "json"]].concat());
    let read = serde_json::from_slice(&out.stdout);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    let read = read.unwrap_or_else(|e| panic!("{e}: {told}"));
    check(words[0], &read);
    (out.status.code().expect("a code"), read)
}

/// `job change` of every change.
fn changes(plan: &Value) -> Vec<String> {
    let list = plan["changes"].as_array().expect("a list").iter();
    list.map(|one| format!("{} {}", one["job"], one["change"]).replace('"', "")).collect()
}

#[test]
fn a_plan_names_what_files_change_and_only_prune_ends_a_job_without_a_file() {
    let mut world = World::new(&["--virtual"]);
    let job = |name: &str| JobFile { step_ms: 1_000, ..JobFile::new(name, 1_000) };
    for name in ["keep", "drop"] {
        world.put_job(name, &job(name));
    }
    world.start(&[]);
    world.wait("both run", |world| world.ledger().open().len() == 2);
    world.wait("nothing differs", |world| shown(world, &["plan"]).0 == 0);
    assert_eq!(shown(&world, &["plan"]).1["unchanged"], 2);

    // A file that is not in the folder yet: what it would do.
    let draft = world.path("draft");
    std::fs::create_dir(&draft).expect("a folder");
    let edited = world.job_text(&job("keep")).replace("PodCount = 1", "PodCount = 2");
    std::fs::write(draft.join("keep.toml"), &edited).expect("written");
    let (code, plan) = shown(&world, &["plan", draft.to_str().expect("a text")]);
    assert_eq!((code, changes(&plan)), (6, vec!["keep edited".to_owned()]), "{plan:#}");
    assert_eq!(plan["changes"][0]["fields"], serde_json::json!(["body.JobSpecs.0.PodCount"]));
    let text = plan["changes"][0]["text"].as_str().expect("a text");
    assert!(text.contains("attempt 1 goes on as it is"), "{text}");

    // Taken, and nothing is stopped by it.
    std::fs::rename(draft.join("keep.toml"), world.path("jobs.d/keep.toml")).expect("in its place");
    world.remove_job("drop");
    let (code, applied) = shown(&world, &["apply"]);
    assert_eq!(code, 0, "{applied:#}");
    assert_eq!(applied["done"], serde_json::json!([]));
    world.wait("it is known", |world| changes(&shown(world, &["plan"]).1) == ["drop gone"]);
    assert_eq!(world.ledger().open().len(), 2, "nothing was stopped");

    // Nobody can be asked here.
    let refused = world.cli(&["apply", "--prune"]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(world.ledger().open().len(), 2);
    // A file that cannot be read may be that of any job: nothing counts as gone meanwhile.
    std::fs::write(world.path("jobs.d/odd.toml"), "name = \n").expect("written");
    let (code, pruned) = shown(&world, &["apply", "--prune", "-y"]);
    assert_eq!((code, &pruned["done"]), (5, &serde_json::json!([])), "{pruned:#}");
    std::fs::remove_file(world.path("jobs.d/odd.toml")).expect("removed");
    world.wait("its daemon says so, too", |world| {
        let (_, pruned) = shown(world, &["apply", "--prune", "-y"]);
        pruned["done"][0]["job"] == "drop"
    });
    world.wait("one is left", |world| world.ledger().open().len() == 1);
    assert_eq!(shown(&world, &["plan"]).1["unchanged"], 1);
}
