//! What a right file becomes: every field of the body, every number, and no secret.

use super::{JOB, daemon, read, short};
use serde::Deserialize as _;
use serde_json::{Value, json};
use spotkeeper::config::diagnostic::Source;
use spotkeeper::config::job::{Rules, read_job};
use spotkeeper::model::spec::{Bid, FirstStart, OnStopped};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

#[test]
fn a_whole_job_file_becomes_a_spec() {
    let file = read(JOB);
    assert_eq!(short(&file.diagnostics), Vec::<String>::new());
    let spec = file.spec.expect("a spec");
    assert_eq!((spec.key.to_string().as_str(), spec.launcher), ("llama", true));
    assert_eq!(spec.body["JobSpecs"][0]["PodCount"], 2);
    let Some(Bid::Discount(bid)) = spec.spot else { panic!("{:?}", spec.spot) };
    assert_eq!(bid.to_string(), "0.4");
    let checkpoint = spec.checkpoint.expect("a checkpoint");
    assert_eq!(checkpoint.location.to_string(), "oss://bucket/team/run42");
    assert_eq!(
        (checkpoint.mount.as_str(), checkpoint.format.as_str()),
        ("/mnt/ckpt/run42", "auto")
    );
    assert_eq!((checkpoint.ranks, checkpoint.first_start), (Some(2), FirstStart::Resume));
    assert_eq!(checkpoint.settle, Duration::from_mins(1));
    assert_eq!(spec.retry.on_stopped, OnStopped::Hold);
    let text = serde_json::to_string(&spec.body).expect("JSON");
    assert!(text.contains("\"PodCount\":2"), "{text}");
}

/// Thirty fields that no API has, at every level, beside the known ones.
fn invented() -> Value {
    let odd = |n: usize| match n % 6 {
        0 => json!("text 'with' \"quotes\" and 中文\n"),
        1 => json!(0.011),
        2 => json!(-7),
        3 => json!(true),
        4 => json!([1, [2.5, "x"], { "Deep": { "er": [] } }]),
        _ => json!({ "a/b": { "c~d": 0.4 }, "": 9_007_199_254_740_993_u64 }),
    };
    let mut body = json!({
        "JobType": "PyTorchJob", "UserCommand": "python t.py",
        "JobSpecs": [{ "Type": "Worker", "PodCount": 1, "SpotSpec": { "SpotDiscountLimit": 0.4 },
            "ExtraPodSpec": { "Lifecycle": { "PreStop": { "Exec": { "Command": ["a"] } } } } }],
        "DataSources": [{ "Uri": "oss://b/", "MountPath": "/m" }],
        "Settings": { "Tags": { "team": "x" }, "AdvancedSettings": {} }, "Envs": { "A": "b" },
        "UserVpc": {}, "CodeSource": {}, "CredentialConfig": { "CredentialConfigItems": [{}] }
    });
    let places = [
        "",
        "/JobSpecs/0",
        "/JobSpecs/0/SpotSpec",
        "/JobSpecs/0/ExtraPodSpec/Lifecycle/PreStop",
        "/DataSources/0",
        "/Settings",
        "/Settings/Tags",
        "/UserVpc",
        "/CodeSource",
        "/CredentialConfig/CredentialConfigItems/0",
    ];
    for (index, place) in places.iter().enumerate() {
        for more in 0..3 {
            let map = body.pointer_mut(place).and_then(Value::as_object_mut).expect("an object");
            map.insert(format!("Invented_{index}-{more}"), odd(index + more));
        }
    }
    body
}

#[test]
fn every_field_of_the_body_survives_key_for_key() {
    let body = invented();
    assert_eq!(serde_json::to_string(&body).expect("JSON").matches("Invented_").count(), 30);
    // A JSON number keeps its text in a way that only JSON's own serializer understands.
    let table = toml::Value::deserialize(json!({ "target": "hz", "submit": body })).expect("TOML");
    let toml = toml::to_string(&table).expect("TOML");
    let file = read(&toml);
    assert_eq!(short(&file.diagnostics), Vec::<String>::new());
    let from_toml = Value::Object(file.spec.expect("a spec").body);
    assert_eq!(from_toml.to_string(), body.to_string());

    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("body.json"), body.to_string()).expect("written");
    let text = "target = \"hz\"\nsubmit_file = \"body.json\"\n";
    let config = daemon(folder.path());
    let source = Source::new(&folder.path().join("job.toml"), text.into());
    let spec = read_job(&source, Rules::of(&config)).spec.expect("a spec");
    assert_eq!(spec.key.to_string(), "job");
    assert_eq!(Value::Object(spec.body).to_string(), body.to_string());
}

#[test]
fn numbers_survive_as_written() {
    let text =
        JOB.replace("PodCount = 2", "PodCount = 2\nA = 0.4\nB = 0.011\nC = 1.0\nD = 0x10\nE = 1e3\nF = 0.50\nG = 1e-5\nH = +0.00001\nI = 1_0.5_0\nJ = 12345678901234567890");
    let body = Value::Object(read(&text).spec.expect("a spec").body).to_string();
    for part in [
        "\"A\":0.4,",
        "\"B\":0.011,",
        "\"C\":1.0,",
        "\"D\":16,",
        "\"E\":1e+3,",
        "\"F\":0.50,",
        "\"G\":1e-5,",
        "\"H\":0.00001,",
        "\"I\":10.50,",
        "\"J\":12345678901234567890,",
    ] {
        assert!(body.contains(part), "{part} in {body}");
    }
    let bid =
        |line: &str| read(&JOB.replace("discount_limit = 0.4", line)).spec.expect("a spec").spot;
    for (line, price) in [
        ("price_limit_per_minute = \"0.011\"", "0.011"),
        ("price_limit_per_hour = \"0.66\"", "0.011"),
        ("price_limit_per_hour = \"1\"", "0.016666"),
    ] {
        let Some(Bid::PricePerMinute(found)) = bid(line) else { panic!("{line}") };
        assert_eq!(found.to_string(), price, "{line}");
    }
}

#[test]
fn mistakes_in_a_json_body_stand_in_the_json_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("body.json");
    let config = daemon(folder.path());
    let good = "{\n \"JobType\": \"PyTorchJob\",\n \"UserCommand\": \"python t.py\",\n \"JobSpecs\": [{\"PodCount\": 1}]\n}";
    for (from, to, expected) in [
        ("", "", vec![]),
        ("1}]", "1}", vec!["5:1 E033"]),
        ("\"PyTorchJob\",", "\"PyTorchJob\"", vec!["3:2 E033"]),
        (
            "\"UserCommand\": \"python t.py\"",
            "\"JobType\": 1",
            vec!["1:1 E026", "3:2 E033", "3:13 E024"],
        ),
        ("\"JobType\"", "\"jobType\"", vec!["1:1 E026", "2:2 E034 JobType"]),
        ("\"PodCount\": 1", "\"PodCount\": 0", vec!["4:28 E025"]),
        ("\"JobType\"", "\"Envs\": {\"SPOTKEEPER_A\": \"b\"}, \"JobType\"", vec!["2:11 E037"]),
        (good, "[]", vec!["1:1 E033"]),
        (good, "", vec!["1:1 E033"]),
    ] {
        std::fs::write(&path, good.replacen(from, to, 1)).expect("written");
        let text = "target = \"hz\"\nsubmit_file = \"body.json\"\n";
        let source = Source::new(&folder.path().join("job.toml"), text.into());
        let file = read_job(&source, Rules::of(&config));
        assert_eq!(short(&file.diagnostics), expected, "{to}");
        assert!(file.diagnostics.iter().all(|d| d.at.file == path), "{:?}", file.diagnostics);
    }
    let both = JOB.replace("[submit]", "submit_file = \"body.json\"\n[submit]");
    std::fs::write(&path, good).expect("written");
    let source = Source::new(&folder.path().join("job.toml"), both);
    let file = read_job(&source, Rules::of(&config));
    assert_eq!(short(&file.diagnostics), ["4:2 E028"]);
}

#[test]
fn secrets_are_taken_by_name_and_never_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let secrets = folder.path().join("secrets");
    std::fs::create_dir(&secrets).expect("made");
    std::fs::write(secrets.join("hf-token"), "s3cr3t").expect("written");
    let mode = |bits| {
        let permissions = std::fs::Permissions::from_mode(bits);
        std::fs::set_permissions(secrets.join("hf-token"), permissions).expect("mode");
    };
    let config = daemon(folder.path());
    let read = |text: &str| {
        let source = Source::new(&folder.path().join("job.toml"), text.into());
        read_job(&source, Rules::of(&config))
    };
    let text = JOB.replace("NCCL_DEBUG = \"WARN\"", "A = \"b\", TOKEN = { secret = \"hf-token\" }");
    mode(0o600);
    let spec = read(&text).spec.expect("a spec");
    assert_eq!(spec.secret_envs["TOKEN"], "hf-token");
    assert_eq!(spec.body["Envs"], json!({ "A": "b" }));
    mode(0o644);
    assert_eq!(short(&read(&text).diagnostics), ["6:38 E038"]);

    for text in [
        JOB.replace("NCCL_DEBUG = \"WARN\"", "SPOTKEEPER_TOKEN = \"s3cr3t\""),
        JOB.replace("NCCL_DEBUG = \"WARN\"", "API_KEY = \"s3cr3t\", B = 5"),
        JOB.replace("NCCL_DEBUG = \"WARN\"", "API_KEY = \"s3cr3t"),
        JOB.replace("path = \"/mnt/ckpt/run42\"", "url = \"oss://me:s3cr3t@bucket/x\""),
        JOB.replace("NCCL_DEBUG = \"WARN\"", "A = \"LTAI5tAbCdEs3cr3tIjKlMn\""),
    ] {
        let diagnostics = read(&text).diagnostics;
        assert!(!diagnostics.is_empty());
        for diagnostic in diagnostics {
            let shown = format!("{diagnostic}{}{diagnostic:?}", diagnostic.json());
            assert!(!shown.contains("s3cr3t"), "{shown}");
        }
    }
}

#[test]
fn scenario_86_a_body_that_grows_too_large_is_refused_before_it_is_sent() {
    let with = |size: usize| {
        let text = JOB.replace("WARN", &"x".repeat(size));
        short(&read(&text).diagnostics)
    };
    assert_eq!(with(50_000), Vec::<String>::new());
    assert_eq!(with(60_000), ["3:2 E043 warning"]);
    assert_eq!(with(64_000), ["3:2 E043"]);
}
