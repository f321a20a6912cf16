//! The two scripts of Alibaba Cloud's document on preemptible jobs, as the official SDK sends them,
//! and the same jobs as job files (tests/sdk/*.toml): both lead to the same CreateJob. Each
//! difference is named here. tests/sdk/document.sh does the same with the SDK itself and the daemon.

use serde_json::{Map, Value};
use spotkeeper::config::daemon::{Surroundings, read_daemon};
use spotkeeper::config::diagnostic::Source;
use spotkeeper::config::job::{Rules, load_job};
use spotkeeper::dlc::launcher;
use spotkeeper::dlc::wire::{Submission, parse_display_name, stamp_body};
use spotkeeper::model::ids::{Mark, Owner};
use spotkeeper::model::resume_text;
use std::path::{Path, PathBuf};

const DAEMON: &str = r#"
owner = "k3f9qz"
[targets.hangzhou]
region = "cn-hangzhou"
workspace = "12345"
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

/// The body that the SDK sent.
fn of_sdk(sample: &str, version: &str) -> Map<String, Value> {
    let path = root().join(format!("data/dlc-golden/create_job.{sample}.sdk-{version}.ak.json"));
    let recording: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a recording")).expect("JSON");
    serde_json::from_str(recording["body"].as_str().expect("a text")).expect("JSON")
}

/// The body that spotkeeper sends for the first attempt.
fn of_job_file(sample: &str) -> Map<String, Value> {
    let daemon = Source::new(Path::new("/x/spotkeeper.toml"), DAEMON.into());
    let daemon = read_daemon(&daemon, &Surroundings::default());
    let config = daemon.accepted().expect("a daemon file");
    let file = load_job(&root().join(format!("sdk/{sample}.toml")), Rules::of(config));
    let spec = file.spec.unwrap_or_else(|| panic!("{:?}", file.diagnostics));
    assert!(file.diagnostics.is_empty(), "{:?}", file.diagnostics);
    let (owner, mark) = (Owner::new("k3f9qz").expect("id"), Mark::new("abcdefgh27").expect("id"));
    let command = spec.body["UserCommand"].as_str().expect("a text");
    let command = launcher::wrap(&resume_text::insert(command, ""), 1);
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
    let mut body = spec.body.clone();
    stamp_body(&mut body, &ours).expect("a body");
    body
}

/// A difference that is meant: its name, and how it is undone.
type Difference = (&'static str, fn(&mut Map<String, Value>, &mut Map<String, Value>));

/// All of them; the first of a pair is the SDK's body, the second spotkeeper's.
const DIFFERENCES: &[Difference] = &[
    ("empty lists of the SDK", |sdk, _| drop_empty_lists(sdk)),
    ("the mark at the end of DisplayName", |sdk, ours| {
        let name = ours["DisplayName"].as_str().expect("a name").to_owned();
        assert!(parse_display_name(&name).is_some(), "{name}");
        let (own, _) = name.rsplit_once(".sk").expect("a mark");
        assert_eq!(sdk["DisplayName"], own);
        ours.insert("DisplayName".into(), own.into());
    }),
    ("the tag spotkeeper", |sdk, ours| {
        assert!(!sdk.contains_key("Settings"));
        let settings = ours.remove("Settings").expect("settings");
        assert_eq!(settings["Tags"].as_object().map(Map::len), Some(1), "{settings}");
        assert_eq!(settings.as_object().map(Map::len), Some(1), "{settings}");
    }),
    ("the variables SPOTKEEPER_*", |sdk, ours| {
        assert!(!sdk.contains_key("Envs"));
        let envs = ours.remove("Envs").expect("variables");
        let names = envs.as_object().expect("a table").keys();
        assert!(names.clone().all(|name| name.starts_with("SPOTKEEPER_")), "{envs}");
    }),
    (
        "the launcher around UserCommand; without [checkpoint] there is no resume argument",
        |_, ours| {
            let command = launcher::unwrap(ours["UserCommand"].as_str().expect("a text"));
            ours.insert("UserCommand".into(), command.expect("a launcher").into());
        },
    ),
    ("the workspace, which the document masks", |sdk, ours| {
        assert_eq!(
            (&sdk["WorkspaceId"], &ours["WorkspaceId"]),
            (&"12****".into(), &"12345".into())
        );
        sdk.remove("WorkspaceId");
        ours.remove("WorkspaceId");
    }),
    ("the ids of the VPC, which the document masks", |sdk, ours| {
        for name in ["VpcId", "SwitchId", "SecurityGroupId"] {
            let id = ours["UserVpc"][name].as_str().expect("an id").to_owned();
            let masked = format!("{}****", &id[..id.len() - 4]);
            assert_eq!(sdk["UserVpc"][name], masked.as_str());
        }
        sdk.remove("UserVpc");
        ours.remove("UserVpc");
    }),
];

fn drop_empty_lists(map: &mut Map<String, Value>) {
    map.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
    for value in map.values_mut() {
        match value {
            Value::Object(map) => drop_empty_lists(map),
            Value::Array(items) => {
                items.iter_mut().filter_map(Value::as_object_mut).for_each(drop_empty_lists);
            }
            _ => {}
        }
    }
}

#[test]
fn the_documents_scripts_and_the_job_files_send_the_same_jobs() {
    for sample in ["spot_discount", "spot_price"] {
        for version in ["1.4.17", "1.11.6"] {
            let (mut sdk, mut ours) = (of_sdk(sample, version), of_job_file(sample));
            for (name, undo) in DIFFERENCES {
                let before = (sdk.clone(), ours.clone());
                undo(&mut sdk, &mut ours);
                let lists = name.starts_with("empty lists");
                assert!(lists || before != (sdk.clone(), ours.clone()), "no difference: {name}");
            }
            assert_eq!(Value::Object(sdk), Value::Object(ours), "{sample} {version}");
        }
    }
}
