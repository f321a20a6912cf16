//! `spotkeeper import`: what goes in comes out as a job file that `check` accepts, and what that
//! file leads to differs from the source only in what is named here.

use serde_json::{Map, Value, json};
use spotkeeper::cli::import::{Import, JobText, Plain, job_text};
use spotkeeper::config::daemon::{DaemonConfig, Surroundings, read_daemon};
use spotkeeper::config::diagnostic::{Source, accepted};
use spotkeeper::config::job::{Rules, read_job};
use spotkeeper::dlc::launcher;
use spotkeeper::dlc::wire::{Submission, stamp_body};
use spotkeeper::model::ids::{JobKey, JobName, Mark, Owner};
use spotkeeper::model::resume_text;
use spotkeeper::model::spec::JobSpec;
use std::collections::BTreeSet;
use std::path::Path;

const DAEMON: &str = r#"
owner = "k3f9qz"
job_secrets = "secrets"
[targets.hz]
region = "cn-hangzhou"
workspace = "12345"
[targets.sh]
region = "cn-shanghai"
workspace = "999"
"#;

fn daemon() -> DaemonConfig {
    let file =
        read_daemon(&Source::new(Path::new("/x/d.toml"), DAEMON.into()), &Surroundings::default());
    file.accepted().expect("a daemon file").clone()
}

fn import(source: &Value, plain: Plain) -> JobText {
    let daemon = daemon();
    let import = Import {
        source: source.as_object().expect("an object").clone(),
        from: "body.json".into(),
        stem: "body".into(),
        name: None,
        target: Some("hz".into()),
        daemon: Some(&daemon),
        plain,
    };
    job_text(import).expect("a job file")
}

fn spec(job: &JobText) -> JobSpec {
    // Without the folder of secrets: their files are made later.
    let daemon = daemon();
    let rules = Rules { job_secrets: None, ..Rules::of(&daemon) };
    let file = read_job(&Source::new(Path::new("/x/job.toml"), job.text.clone()), rules);
    file.spec.unwrap_or_else(|| panic!("{:?}\n{}", file.diagnostics, job.text))
}

/// The body of the first attempt, as it is sent.
fn sent(spec: &JobSpec) -> Map<String, Value> {
    let (owner, mark) = (Owner::new("k3f9qz").expect("id"), Mark::new("abcdefgh27").expect("id"));
    let command = spec.body["UserCommand"].as_str().expect("a text");
    let command = launcher::wrap(&resume_text::insert(command, ""), 1);
    let mut body = spec.body.clone();
    let ours = Submission {
        owner: &owner,
        mark: &mark,
        job: &spec.key,
        attempt: 1,
        workspace: "12345",
        user_command: &command,
        bid: spec.spot,
        resume_path: None,
        resume_step: None,
    };
    stamp_body(&mut body, &ours).expect("a body");
    body
}

/// Pointers at which two values differ.
fn differences(a: &Value, b: &Value, at: &str, found: &mut BTreeSet<String>) {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let (null, at) = (Value::Null, format!("{at}/{name}"));
                differences(a.get(name).unwrap_or(&null), b.get(name).unwrap_or(&null), &at, found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{at}/{index}"), found);
            }
        }
        _ if a == b => {}
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// What spotkeeper adds to every body, and nothing else.
const OURS: [&str; 8] = [
    "/DisplayName",
    "/Envs/SPOTKEEPER_ATTEMPT",
    "/Envs/SPOTKEEPER_JOB",
    "/Envs/SPOTKEEPER_MARK",
    "/Envs/SPOTKEEPER_OWNER",
    "/Envs/SPOTKEEPER_RUN",
    "/Settings/Tags/spotkeeper",
    "/UserCommand",
];

fn different(source: &Value, body: &Map<String, Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    differences(source, &Value::Object(body.clone()), "", &mut found);
    found
}

fn golden(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dlc-golden");
    let text = std::fs::read_to_string(folder.join(name)).expect(name);
    serde_json::from_str(&text).expect(name)
}

#[test]
fn the_bodies_of_the_sdk_lead_to_the_same_create_job() {
    for (name, more) in [
        ("spot_discount", &["/WorkspaceId", "/Envs", "/Settings"][..]),
        ("spot_price", &["/WorkspaceId", "/Envs", "/Settings"][..]),
        ("supervised", &["/WorkspaceId"][..]),
    ] {
        for version in ["1.4.17", "1.11.6"] {
            let recording = golden(&format!("create_job.{name}.sdk-{version}.ak.json"));
            let source: Value =
                serde_json::from_str(recording["body"].as_str().expect("a body")).expect("JSON");
            let job = import(&source, Plain::References);
            assert!(accepted(&job.diagnostics), "{:?}\n{}", job.diagnostics, job.text);
            let body = sent(&spec(&job));
            let mut expected: BTreeSet<String> = more.iter().map(|p| (*p).to_owned()).collect();
            // Where the source has no such table, the whole table is ours.
            expected.extend(
                OURS.iter()
                    .filter(|p| !more.iter().any(|m| p.starts_with(m)))
                    .map(|p| (*p).to_owned()),
            );
            assert_eq!(different(&source, &body), expected, "{name} {version}");
            let command = launcher::unwrap(body["UserCommand"].as_str().expect("a text"));
            assert_eq!(command.as_deref(), source["UserCommand"].as_str());
            let display = source["DisplayName"].as_str().expect("a name");
            assert_eq!(body["DisplayName"], format!("{display}.skk3f9qz-abcdefgh27"));
            assert_eq!(job.name.as_str(), display);
            assert!(job.remarks[0].contains("12****"), "{:?}", job.remarks);
        }
    }
}

#[test]
fn every_answer_of_get_job_becomes_a_job_file_that_check_accepts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dlc-golden/responses");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if !name.starts_with("get_job.") {
            continue;
        }
        seen += 1;
        let source = golden(&format!("responses/{name}"));
        let job = import(&source, Plain::References);
        assert!(accepted(&job.diagnostics), "{name}: {:?}\n{}", job.diagnostics, job.text);
        let spec = spec(&job);
        for field in
            ["Status", "Pods", "JobId", "GmtCreateTime", "ReasonCode", "RequestId", "UserId"]
        {
            assert!(!spec.body.contains_key(field), "{name}: {field}");
            assert!(
                !source.as_object().expect("an object").contains_key(field)
                    || job.text.lines().any(|line| line.starts_with('#') && line.contains(field))
            );
        }
        // What is sent was in the answer, but for the spelling of one field and the bid's table.
        for pointer in different(&source, &sent(&spec)) {
            let value = Value::Object(sent(&spec)).pointer(&pointer).cloned();
            let ours = OURS.contains(&pointer.as_str())
                || ["/Envs", "/Settings", "/WorkspaceId", "/UserVpc/ExtendedCIDRs"]
                    .contains(&pointer.as_str())
                || pointer.starts_with("/Settings/Tags");
            assert!(value.is_none() || ours, "{name}: {pointer} is {value:?}");
        }
        assert_eq!(spec.body["UserCommand"], source["UserCommand"], "{name}");
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn a_submission_of_spotkeeper_comes_back_clean() {
    let source = json!({
        "JobType": "PyTorchJob", "UserCommand": "python 'a b.py' && echo \"é\"",
        "JobSpecs": [{"Type": "Worker", "PodCount": 1, "EcsSpec": "ecs.g7.xlarge", "Image": "i"}],
    });
    let first = import(&source, Plain::References);
    let text = first
        .text
        .replace("name = \"body\"", "name = \"sft\"")
        .replace("[submit]", "[spot]\ndiscount_limit = 0.4\n[submit]");
    let one = spec(&JobText { text, ..first });
    assert_eq!(one.key, JobKey { name: JobName::new("sft").expect("a name"), run: 1 });
    let mut answer = Value::Object(sent(&one));
    for (field, value) in [("JobId", "dlc1"), ("Status", "Running"), ("GmtCreateTime", "x")] {
        answer[field] = json!(value);
    }
    answer["CustomEnvs"] =
        json!([{"Key": "SPOTKEEPER_MARK", "Value": "abcdefgh27", "Visible": ""}]);
    let again = import(&answer, Plain::References);
    let text: String = again.text.lines().filter(|l| !l.starts_with('#')).collect();
    assert!(!text.contains("SPOTKEEPER") && !text.contains("abcdefgh27"), "{}", again.text);
    let two = spec(&again);
    assert_eq!((two.key, two.body, two.spot), (one.key, one.body, one.spot), "{}", again.text);
    // A resumed one has its argument taken back.
    let command = "python t.py --load '/m/it''s' --ckpt-step '700' && echo";
    answer["UserCommand"] = json!(launcher::wrap(command, 2));
    answer["Envs"]["SPOTKEEPER_RESUME_PATH"] = json!("/m/x");
    answer["Envs"]["SPOTKEEPER_RESUME_STEP"] = json!("700");
    let resumed = spec(&import(&answer, Plain::References));
    assert_eq!(resumed.body["UserCommand"], "python t.py {resume} && echo");
}

#[test]
fn trap_26_secrets_become_references_and_their_values_stand_nowhere() {
    let source = json!({
        "JobType": "PyTorchJob", "UserCommand": "HF_TOKEN=s3cr3tA run --api-key 's3cr3tBB' LTAI5tAbCdEs3cr3tIjKlMn",
        "Envs": {"DB_PASSWORD": "s3cr3tC", "MODE": "fast", "KEYED": "LTAI5tAbCdEs3cr3tIjKlMX"},
        "CustomEnvs": [{"Key": "WANDB_API_KEY", "Value": "s3cr3tDD"}, {"Key": "X", "Value": "y"}],
        "JobSpecs": [{"Type": "Worker", "PodCount": 1, "Image": "i",
                      "ImageConfig": {"Username": "me", "Password": "s3cr3tE"}}],
    });
    let job = import(&source, Plain::References);
    let shown = format!("{}{:?}{:?}", job.text, job.remarks, job.diagnostics);
    assert!(!shown.contains("s3cr3t"), "{shown}");
    assert!(accepted(&job.diagnostics), "{:?}", job.diagnostics);
    let spec = spec(&job);
    assert_eq!(spec.body["UserCommand"], "HF_TOKEN=$HF_TOKEN run --api-key '$API_KEY' $SECRET");
    let names: Vec<&str> = spec.secret_envs.keys().map(String::as_str).collect();
    assert_eq!(names, ["API_KEY", "DB_PASSWORD", "HF_TOKEN", "KEYED", "SECRET", "WANDB_API_KEY"]);
    assert_eq!(spec.secret_envs["DB_PASSWORD"], "db-password");
    assert_eq!(spec.body["Envs"], json!({"MODE": "fast"}));
    assert_eq!(spec.body["JobSpecs"][0]["ImageConfig"], json!({"Username": "me"}));
    assert!(job.text.contains("Password was a secret") && job.text.contains("/x/"), "{}", job.text);
    assert_eq!(job.remarks.len(), 6, "{:?}", job.remarks);
    // `init` makes no folder of secrets: the command has to.
    assert!(job.text.contains("install -D -m 600 /dev/stdin /x/secrets/"), "{}", job.text);
    let plain = import(&source, Plain::Values);
    assert!(plain.text.contains("s3cr3tE") && plain.text.contains("s3cr3tC"));
}

#[test]
fn trap_28_everything_is_forwarded_and_what_an_old_sdk_drops_is_told() {
    let mut source = json!({
        "JobType": "PyTorchJob", "UserCommand": "run", "Description": "d", "Invented": {"Deep": [1, {"x": 0.40}]},
        "JobSpecs": [{"Type": "Worker", "PodCount": 1, "RestartPolicy": "Never", "Odd": [[1], 2.5]}],
        "DataSources": [{"Uri": "oss://b/", "MountPath": "/m", "MountAccess": "RO"}],
        "Settings": {"TerminationGracePeriodSeconds": 30, "AdvancedSettings": {"a.b": {"c d": true}}},
        "Empty": [], "Big": 9_007_199_254_740_993_u64,
    });
    let job = import(&source, Plain::References);
    assert_eq!(Value::Object(spec(&job).body), source, "{}", job.text);
    let line = job.text.lines().find(|line| line.contains("SDK 1.4.17")).expect("a note");
    for field in ["Description", "RestartPolicy", "MountAccess", "TerminationGracePeriodSeconds"] {
        assert!(line.contains(field), "{line}");
    }
    // TOML has no null: the one thing that cannot be forwarded is named.
    source["Invented"]["Null"] = Value::Null;
    let job = import(&source, Plain::References);
    assert!(job.text.contains("Invented/Null"), "{}", job.text);
    assert!(accepted(&job.diagnostics), "{:?}", job.diagnostics);
}

#[test]
fn bids_and_checkpoints_are_recognised_only_where_nothing_else_can_be_meant() {
    let body = |command: &str, bids: &[&str]| {
        let specs: Vec<Value> = bids
            .iter()
            .zip(["Master", "Worker"])
            .map(|(bid, role)| {
                let bid: Value = serde_json::from_str(bid).expect("JSON");
                json!({"Type": role, "PodCount": 1, "SpotSpec": bid})
            })
            .collect();
        json!({
            "JobType": "PyTorchJob", "UserCommand": command, "JobSpecs": specs,
            "DataSources": [{"Uri": "oss://bucket/team/", "MountPath": "/mnt/ckpt"},
                            {"DataSourceId": "d-1", "MountPath": "/data"}],
        })
    };
    let share = r#"{"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4}"#;
    let price = r#"{"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": 0.011}"#;
    let bid = |bids: &[&str]| import(&body("run", bids), Plain::References).text;
    assert!(bid(&[share, share]).contains("[spot]\ndiscount_limit = 0.4\n"));
    assert!(bid(&[price]).contains("[spot]\nprice_limit_per_minute = \"0.011\"\n"));
    assert!(!bid(&[share, price]).contains("[spot]"));
    assert!(
        !bid(&[r#"{"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4, "X": 1}"#])
            .contains("[spot]")
    );

    let active = |command: &str| {
        let job = import(&body(command, &[share]), Plain::References);
        assert!(accepted(&job.diagnostics), "{:?}\n{}", job.diagnostics, job.text);
        spec(&job).checkpoint.map(|checkpoint| checkpoint.location.to_string())
    };
    let found = Some("oss://bucket/team/run42".to_owned());
    assert_eq!(active("torchrun pretrain.py --save /mnt/ckpt/run42 --load /mnt/ckpt/run42"), found);
    assert_eq!(active("torchrun pretrain.py --save=/mnt/ckpt/run42/ {resume} && echo"), found);
    for unclear in [
        "torchrun pretrain.py --save /mnt/ckpt/run42 && echo",
        "python hf.py --output_dir /mnt/ckpt/run42",
        "python x.py --save /mnt/ckpt/a --output-dir /mnt/ckpt/b",
        "python x.py --save /data/a",
        "python x.py --save /elsewhere",
        "python x.py --save relative",
        "python x.py",
    ] {
        assert_eq!(active(unclear), None, "{unclear}");
        let text = import(&body(unclear, &[share]), Plain::References).text;
        assert!(text.contains("# [checkpoint]\n# path = "), "{text}");
    }
}

/// Its headers would end up in the job file, and with them a signature or a token.
#[test]
fn a_whole_recorded_request_is_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dlc-golden");
    let mut refused = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|end| end != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let Ok(Value::Object(source)) = serde_json::from_str(&text) else { continue };
        let (from, stem) = (path.display().to_string(), "x".to_owned());
        let failure = job_text(Import {
            source,
            from,
            stem,
            name: None,
            target: None,
            daemon: None,
            plain: Plain::References,
        });
        let failure = failure.expect_err("a request is no body").report();
        assert!(failure.contains("give its body alone"), "{failure}");
        refused += 1;
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn the_target_is_that_of_the_workspace_or_is_asked_for() {
    let daemon = daemon();
    let text = |workspace: Value, target: Option<&str>, known: Option<&DaemonConfig>| {
        let source = json!({"JobType": "PyTorchJob", "UserCommand": "a", "JobSpecs": [{"Type": "Worker"}],
                            "WorkspaceId": workspace});
        let source = source.as_object().expect("an object").clone();
        let target = target.map(str::to_owned);
        let (from, stem) = ("x".to_owned(), "-é my job".to_owned());
        job_text(Import {
            source,
            from,
            stem,
            name: None,
            target,
            daemon: known,
            plain: Plain::References,
        })
        .map(|job| job.text)
        .map_err(|failure| failure.report())
    };
    let of = |result: Result<String, String>| result.expect("a job file");
    assert!(of(text(json!("999"), None, Some(&daemon))).contains("target = \"sh\""));
    let other = of(text(json!("7"), Some("sh"), Some(&daemon)));
    assert!(
        other.contains("target = \"sh\"") && other.contains("sends to workspace 999"),
        "{other}"
    );
    assert!(other.contains("name = \"myjob\""), "{other}");
    let unclear = text(json!("7"), None, Some(&daemon)).expect_err("which?");
    assert!(unclear.contains("hz, sh") && unclear.contains("--target"), "{unclear}");
    assert!(text(json!("7"), Some("no"), Some(&daemon)).is_err());
    let free = of(text(json!("7"), None, None));
    assert!(free.contains("WorkspaceId = \"7\"") && free.contains("No daemon file"), "{free}");
}
