//! Files together: a folder of jobs, the verbs `check` and `init`, the samples.

use super::{DAEMON, JOB, daemon, short};
use serde_json::{Value, json};
use spotkeeper::cli::check::{Form, Request, check};
use spotkeeper::cli::init::init;
use spotkeeper::config::daemon::{Surroundings, load_daemon};
use spotkeeper::config::set::load_jobs;
use spotkeeper::model::spec::CredentialsRef;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path
}

#[test]
fn a_bad_file_never_blocks_another_and_nobody_gets_what_two_claim() {
    let folder = tempfile::tempdir().expect("a folder");
    let jobs = folder.path().join("jobs");
    std::fs::create_dir(&jobs).expect("made");
    let config = daemon(folder.path());
    let job = |name: &str, path: &str| {
        let text = JOB.replace("\"llama\"", &format!("\"{name}\""));
        text.replace("/mnt/ckpt/run42", &format!("/mnt/ckpt/{path}"))
    };
    write(&jobs, "bad.toml", "a = \n");
    write(&jobs, "good.toml", &job("good", "good"));
    write(&jobs, "one.toml", &job("same", "p1"));
    write(&jobs, "two.toml", &job("same", "p2").replace("alike", "alikes"));
    write(&jobs, "in.toml", &job("inner", "p3/deep"));
    write(&jobs, "out.toml", &job("outer", "p3"));
    write(&jobs, "near.toml", &job("near", "p31"));
    write(&jobs, "t1.toml", &job("train-1", "t1"));
    write(&jobs, "t10.toml", &job("train-10", "t10"));
    write(&jobs, ".hidden.toml", "?");
    std::fs::create_dir(jobs.join("folder.toml")).expect("made");
    let set = load_jobs(&jobs, &config);
    let names: Vec<String> = set.accepted.iter().map(|(_, spec)| spec.key.to_string()).collect();
    assert_eq!(names, ["good", "near", "train-1", "train-10"]);
    assert!(set.whole);
    let found: Vec<String> = set
        .diagnostics
        .iter()
        .map(|d| {
            let file = d.at.file.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            format!("{file}:{}", short(std::slice::from_ref(d))[0])
        })
        .collect();
    assert_eq!(
        found,
        [
            "bad.toml:1:5 E023",
            "folder.toml:1:1 E020",
            "in.toml:18:8 E071",
            "one.toml:1:8 E070",
            "out.toml:18:8 E071",
            "t1.toml:1:8 E072 warning",
            "two.toml:1:8 E070",
            "two.toml:21:1 E021 alike",
        ]
    );
    let inner = set.diagnostics.iter().find(|d| d.at.file.ends_with("in.toml")).expect("one");
    assert!(inner.message.contains("out.toml"), "{}", inner.message);
    assert_eq!(set.rejected.len(), 6);
    assert!(!load_jobs(&folder.path().join("absent"), &config).whole);
}

fn run_check(config: &Path, files: Vec<PathBuf>, form: Form) -> (u8, String) {
    let request = Request { config: Some(config.to_owned()), files, form };
    let mut out = Vec::new();
    let code = check(&request, &Surroundings::default(), &mut out).expect("written");
    (code, String::from_utf8(out).expect("UTF-8"))
}

#[test]
fn check_shows_place_line_caret_and_sums_up() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write(folder.path(), "spotkeeper.toml", DAEMON);
    let good = write(folder.path(), "good.toml", JOB);
    let bad = write(
        folder.path(),
        "bad.toml",
        &JOB.replace("llama", "b").replace("run42", "b").replace("alike", "alik"),
    );
    let (code, text) = run_check(&config, vec![good.clone()], Form::Text);
    assert_eq!((code, text.as_str()), (0, "0 errors, 0 warnings in 2 files\n"));
    let (code, text) = run_check(&config, vec![good, bad.clone()], Form::Text);
    let expected = format!(
        "{}:21:1: error[E021]: unknown key `alik` in [retry]\n   21 | alik = 5\n      | ^^^^ did you mean `alike`?\n1 error, 0 warnings in 3 files\n",
        bad.display()
    );
    assert_eq!((code, text), (5, expected));
    // Whatever way it is named, a file is one file.
    let again = folder.path().join(".").join("bad.toml");
    let (code, text) = run_check(&config, vec![bad, again, config.clone()], Form::Json);
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &json["errors"], &json["files"]), (5, &json!(1), &json!(2)));
    assert_eq!(json["diagnostics"][0]["nearest"], "alike");
    write(folder.path(), "spotkeeper.toml", &DAEMON.replace("owner = \"k3f9qz\"", ""));
    let (code, text) = run_check(&config, vec![folder.path().join("good.toml")], Form::Text);
    assert_eq!(code, 0);
    assert!(text.contains("warning[E032]") && text.contains("spotkeeper init"), "{text}");
}

#[test]
fn a_part_inside_its_own_main_prefix_is_told_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write(folder.path(), "spotkeeper.toml", DAEMON);
    let part = |path: &str, more: &str| {
        let tables = format!(
            "resume = \"{{step}}\"\n[checkpoint.parts.critic]\npath = \"{path}\"\n{more}[retry]"
        );
        let job = write(folder.path(), "a.toml", &JOB.replace("[retry]", &tables));
        run_check(&config, vec![job], Form::Text)
    };
    for path in ["/mnt/ckpt/run42", "/mnt/ckpt/run42/critic", "/mnt/ckpt"] {
        let (code, text) = part(path, "");
        assert_eq!(code, 5, "{text}");
        assert!(text.contains("overlaps with the part `critic` of the same job"), "{text}");
        assert!(text.contains("overlaps with the main prefix of the same job"), "{text}");
        assert!(!text.contains("overlaps with /"), "{text}");
    }
    let data = "[checkpoint.parts.data]\npath = \"/mnt/ckpt/critic/data\"\n";
    let (_, text) = part("/mnt/ckpt/critic", data);
    assert!(text.contains("overlaps with the part `data` of the same job"), "{text}");
    assert!(!text.contains("main prefix"), "{text}");
    assert_eq!(part("/mnt/ckpt/critic", "").0, 0);
}

#[test]
fn a_folder_of_checkpoints_that_is_not_there_is_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = write(folder.path(), "spotkeeper.toml", DAEMON);
    let there = folder.path().join("ck");
    let url = format!("url = \"file://{}\"", there.display());
    let job = write(folder.path(), "a.toml", &JOB.replace("path = \"/mnt/ckpt/run42\"", &url));
    let (code, text) = run_check(&config, vec![job.clone()], Form::Text);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(":18:7: warning[E068]") && text.contains("mounted"), "{text}");
    std::fs::create_dir(&there).expect("made");
    let (code, text) = run_check(&config, vec![job], Form::Text);
    assert_eq!((code, text.as_str()), (0, "0 errors, 0 warnings in 2 files\n"));
}

#[test]
fn a_broken_daemon_file_does_not_hide_what_is_wrong_with_jobs() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = DAEMON.replace("region = \"cn-hangzhou\"", "regio = 5");
    let config = write(folder.path(), "spotkeeper.toml", &text);
    let job = write(folder.path(), "a.toml", &JOB.replace("alike", "alik"));
    let (code, text) = run_check(&config, vec![job.clone()], Form::Text);
    assert_eq!(code, 5);
    assert!(
        text.contains("did you mean `region`") && text.contains("did you mean `alike`"),
        "{text}"
    );
    assert!(!text.contains("E031"), "{text}");
    write(folder.path(), "spotkeeper.toml", "a = = 1");
    let (_, text) = run_check(&config, vec![job], Form::Text);
    assert!(text.contains("E023") && text.contains("E021") && !text.contains("E031"), "{text}");
}

#[test]
fn the_samples_are_accepted_once_init_has_been_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("etc/spotkeeper.toml");
    let sample = std::fs::read_to_string(root.join("config/spotkeeper.toml")).expect("the sample");
    let local = sample
        .replace("# jobs_directory = \"/etc/spotkeeper/jobs.d\"", "jobs_directory = \"jobs.d\"");
    std::fs::create_dir(folder.path().join("etc")).expect("made");
    write(&folder.path().join("etc"), "spotkeeper.toml", &local);
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o640)).expect("mode");
    let around = Surroundings::default();
    let run = || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let code = init(Some(&config), &around, &mut out, &mut err).expect("written");
        (code, String::from_utf8(out).expect("UTF-8"), String::from_utf8(err).expect("UTF-8"))
    };
    assert!(load_daemon(&config, &around).accepted().expect("valid").owner.is_none());
    let (code, out, err) = run();
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(folder.path().join("etc/jobs.d").is_dir());
    let written = std::fs::read_to_string(&config).expect("the file");
    let owner =
        load_daemon(&config, &around).accepted().and_then(|d| d.owner.clone()).expect("one");
    assert_eq!(written.replacen(&format!("owner = \"{owner}\"\n"), "", 1), local);
    assert_eq!(std::fs::metadata(&config).expect("there").permissions().mode() & 0o777, 0o640);
    let (code, _, err) = run();
    assert_eq!(code, 1);
    assert!(err.contains("owner already"), "{err}");
    assert_eq!(std::fs::read_to_string(&config).expect("the file"), written);

    let (code, text) = run_check(&config, vec![root.join("examples")], Form::Text);
    assert_eq!((code, text.as_str()), (0, "0 errors, 0 warnings in 4 files\n"));
}

#[test]
fn init_makes_what_is_absent_and_leaves_what_is_broken() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = write(folder.path(), "broken.toml", "a = = 1\n");
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = init(Some(&broken), &Surroundings::default(), &mut out, &mut err).expect("written");
    assert_eq!((code, std::fs::read_to_string(&broken).expect("there").as_str()), (5, "a = = 1\n"));
    let names: Vec<_> = std::fs::read_dir(folder.path()).expect("listed").flatten().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let fresh = folder.path().join("new/spotkeeper.toml");
    let code = init(Some(&fresh), &Surroundings::default(), &mut out, &mut err).expect("written");
    assert_eq!((code, String::from_utf8_lossy(&err).contains("new/")), (0, false));
    let file = load_daemon(&fresh, &Surroundings::default());
    let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics));
    assert!(config.owner.is_some() && folder.path().join("new/jobs.d").is_dir());
    assert_eq!(config.state_directory, folder.path().join("new/state"));
    let target = &daemon(folder.path()).targets;
    let credentials = target.values().next().map(|t| t.place.credentials.clone());
    assert_eq!(credentials, Some(CredentialsRef::Environment));
}
