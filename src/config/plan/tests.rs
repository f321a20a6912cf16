use super::*;
use crate::config::daemon::{Surroundings, read_daemon};
use crate::config::diagnostic::Source;
use crate::config::job::{Rules, read_job};
use crate::model::ids::Digest;
use std::path::Path;

const DAEMON: &str =
    "owner = \"k3f9qz\"\n[targets.hz]\nregion = \"cn-hangzhou\"\nworkspace = \"1\"\n";

fn wanted(name: &str, text: &str) -> Wanted {
    let daemon = Source::new(Path::new("/x/d.toml"), DAEMON.into());
    let file = read_daemon(&daemon, &Surroundings::default());
    let daemon = file.accepted().expect("a daemon file");
    let path = format!("/x/{name}.toml");
    let file = read_job(&Source::new(Path::new(&path), text.into()), Rules::of(daemon));
    let spec = file.spec.unwrap_or_else(|| panic!("{:#?}", file.diagnostics));
    let shown = serde_json::to_value(&spec).expect("JSON");
    let digest = Digest::of(shown.to_string().as_bytes()).0;
    Wanted { spec, shown, digest }
}

fn text(image: &str, folder: &str, top: &str) -> String {
    format!(
        "target = \"hz\"\n{top}\n[submit]\nUserCommand = \"train.py {{resume}}\"\nJobType = \"PyTorchJob\"\n\
         [[submit.JobSpecs]]\nType = \"Worker\"\nPodCount = 1\nImage = \"{image}\"\nEcsSpec = \"ecs.gn6i\"\n\
         [checkpoint]\npath = \"/mnt/ck\"\nurl = \"file:///{folder}\"\n"
    )
}

fn known(one: &Wanted) -> Known {
    Known {
        key: one.spec.key.clone(),
        spec: Some(one.shown.clone()),
        digest: one.digest.clone(),
        is_over: false,
        open: Some(3),
        is_unmanaged: false,
    }
}

fn changes(plan: &Plan) -> Vec<(&str, &Change)> {
    plan.changes.iter().map(|(key, change)| (key.name.as_str(), change)).collect()
}

#[test]
fn an_unchanged_file_asks_for_nothing_and_an_edit_names_its_fields() {
    let before = wanted("train", &text("a", "ck/train", ""));
    let same = plan(std::slice::from_ref(&before), &[], &[known(&before)], true);
    assert_eq!(same, Plan { changes: Vec::new(), unchanged: 1 });
    let after = wanted("train", &text("b", "ck/train", ""));
    let edited = |is_over| Change::Edited {
        fields: vec!["body.JobSpecs.0.Image".into()],
        open: Some(3),
        is_over,
    };
    for is_over in [false, true] {
        let known = Known { is_over, ..known(&before) };
        let plan = plan(std::slice::from_ref(&after), &[], &[known], true);
        assert_eq!(changes(&plan), [("train", &edited(is_over))]);
    }
    // Only in what is hidden: known by the digest.
    let hidden = Wanted { digest: "other".into(), ..before.clone() };
    let plan = plan(&[hidden], &[], &[known(&before)], true);
    let [(_, Change::Edited { fields, .. })] = plan.changes.as_slice() else { panic!("{plan:?}") };
    assert!(fields.is_empty());
}

#[test]
fn a_new_name_waits_for_the_job_that_holds_its_checkpoints() {
    let old = wanted("train", &text("a", "ck/train", ""));
    let renamed = wanted("other", &text("a", "ck/train", ""));
    let plan_of = |known: Known| plan(std::slice::from_ref(&renamed), &[], &[known], true);
    let first = plan_of(known(&old));
    let new = |waits_for| Change::New { waits_for };
    let train = old.spec.key.name.clone();
    let waits = new(Some(train));
    assert_eq!(changes(&first), [("other", &waits), ("train", &Change::Gone { open: Some(3) })]);
    let over = plan_of(Known { is_over: true, ..known(&old) });
    assert_eq!(changes(&over), [("other", &new(None))]);
}

#[test]
fn a_run_begins_after_the_one_before_it_is_over_and_never_goes_down() {
    let first = wanted("train", &text("a", "ck/train", ""));
    let second = wanted("train", &text("a", "ck/train", "run = 2"));
    let of =
        |wanted: &Wanted, known: Known| plan(std::slice::from_ref(wanted), &[], &[known], true);
    let open = of(&second, known(&first));
    assert!(
        matches!(changes(&open)[..], [("train", Change::Refused(why))] if why.contains("run 1"))
    );
    let over = of(&second, Known { is_over: true, ..known(&first) });
    assert_eq!(changes(&over), [("train", &Change::NewRun)]);
    let lower = of(&first, known(&second));
    assert!(matches!(changes(&lower)[..], [("train", Change::Refused(_))]));
}

#[test]
fn a_job_counts_as_without_a_file_only_if_every_file_was_read() {
    let old = wanted("train", &text("a", "ck/train", ""));
    let name = old.spec.key.name.clone();
    let gone = |rejected: &[JobName], all_files| {
        plan(&[], rejected, &[known(&old)], all_files).changes.len()
    };
    assert_eq!(gone(&[], true), 1);
    assert_eq!(gone(&[], false), 0);
    assert_eq!(gone(&[name], true), 0, "its file has an error");
    let unmanaged = Known { is_unmanaged: true, ..known(&old) };
    let back = plan(std::slice::from_ref(&old), &[], &[unmanaged], true);
    assert_eq!(changes(&back), [("train", &Change::Managed)]);
}
