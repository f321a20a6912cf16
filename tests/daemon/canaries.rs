//! Secrets that are looked for everywhere afterwards, and found nowhere.

use crate::harness::{JobFile, World};
use rustix::process::Signal;
use serde_json::json;
use spotkeeper::model::ids::hex;
use spotkeeper::openapi::signature::percent_encode;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const KEY_ID: &str = "LTAI5tCanaryKeyId0001";
const KEY_SECRET: &str = "CanarySecretOfTheKey0002";
const FILE_TOKEN: &str = "CanaryTokenOfTheFile0003/+=x";
const ENVIRONMENT_TOKEN: &str = "CanaryTokenOfTheEnvironment0004/+=x";
const WRONG_SECRET: &str = "CanarySecretThatIsWrong0005";
/// Of a job, with all that is escaped somewhere.
const JOB_SECRET: &str = "CanaryOf\"the'job\\0006 é&%";
/// Secrets that a person wrote into the job file itself: stored with the spec, shown nowhere.
const PLAIN_TOKEN: &str = "CanaryPlainToken0007";
const PASSWORD: &str = "CanaryImagePassword0008";

const NOWHERE: [&str; 6] =
    [KEY_ID, KEY_SECRET, FILE_TOKEN, ENVIRONMENT_TOKEN, WRONG_SECRET, JOB_SECRET];
const IN_SPECS_ALONE: [&str; 2] = [PLAIN_TOKEN, PASSWORD];

/// In all of them: a file without it in any form needs no closer look.
const COMMON: &str = "Canary";

const JOBS: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter = |n: u32| char::from(LETTERS[(n & 63) as usize]);
    let whole = bytes.chunks_exact(3);
    whole
        .flat_map(|part| {
            let n = u32::from(part[0]) << 16 | u32::from(part[1]) << 8 | u32::from(part[2]);
            [letter(n >> 18), letter(n >> 12), letter(n >> 6), letter(n)]
        })
        .collect()
}

/// Every form in which a text may stand in a file.
fn forms(secret: &str) -> Vec<String> {
    let json = serde_json::Value::from(secret).to_string();
    let json = &json[1..json.len() - 1];
    let twice = serde_json::Value::from(json).to_string();
    let ascii: String = json
        .chars()
        .map(|c| if c.is_ascii() { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) })
        .collect();
    let percent = percent_encode(secret);
    let mut forms = vec![
        secret.to_owned(),
        json.to_owned(),
        twice[1..twice.len() - 1].to_owned(),
        ascii,
        percent,
        secret.replace('\'', r"'\''"),
        hex(secret.as_bytes()),
        hex(secret.as_bytes()).to_uppercase(),
    ];
    // Whatever stands before it in the same base64.
    forms.extend((0..3).map(|skip| base64(&secret.as_bytes()[skip..])));
    // The longest part without anything that needs an escape.
    let plain = secret.split(|c: char| !c.is_ascii_alphanumeric()).max_by_key(|part| part.len());
    forms.extend(plain.filter(|part| part.len() >= 8).map(str::to_owned));
    forms.sort();
    forms.dedup();
    forms
}

/// What is looked for: each secret with its forms, and what one of them is in every hit.
struct Canaries {
    secrets: Vec<(&'static str, Vec<String>)>,
    common: Vec<String>,
}

impl Canaries {
    fn new(secrets: &[&'static str]) -> Self {
        assert!(secrets.iter().all(|secret| secret.contains(COMMON)));
        let secrets = secrets.iter().map(|secret| (*secret, forms(secret))).collect();
        Self { secrets, common: forms(COMMON) }
    }

    /// The secrets that `bytes` hold in any form. All forms are text, whatever the rest is.
    fn in_bytes(&self, bytes: &[u8]) -> Vec<&'static str> {
        let text = String::from_utf8_lossy(bytes);
        let holds = |forms: &[String]| forms.iter().any(|form| text.contains(form));
        if !holds(&self.common) {
            return Vec::new();
        }
        let held = self.secrets.iter().filter(|(_, forms)| holds(forms));
        held.map(|(secret, _)| *secret).collect()
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// One answer of the daemon's socket, head and body.
fn get(world: &World, path: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(world.path("api.sock")).expect("the daemon listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    answer
}

fn write_keys(world: &World, secret: &str) {
    let file = world.path("keys.toml");
    let text = format!(
        "access_key_id = \"{KEY_ID}\"\naccess_key_secret = \"{secret}\"\nsecurity_token = \"{FILE_TOKEN}\"\n"
    );
    std::fs::write(&file, text).expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("chmod");
}

/// The daemon file with other credentials.
fn use_credentials(world: &World, old: &str, new: &str) {
    let file = world.path("spotkeeper.toml");
    let text = std::fs::read_to_string(&file).expect("a daemon file");
    assert!(text.contains(old), "{text}");
    std::fs::write(file, text.replace(old, new)).expect("written");
}

/// A job that prints all its secrets.
fn put_job(world: &World, name: &str) {
    let job = JobFile {
        more: format!(
            "Envs = {{ INNOCENT = {{ secret = \"hf\" }}, MY_API_TOKEN = \"{PLAIN_TOKEN}\" }}"
        ),
        ..JobFile::new(name, 10_000)
    };
    std::fs::create_dir_all(world.path(&job.looks)).expect("a folder");
    let image =
        format!("PodCount = 1\nImageConfig = {{ Username = \"me\", Password = \"{PASSWORD}\" }}");
    let shown = "UserCommand = \"\"\"\nenv; printf '%s\\n' \"$INNOCENT $MY_API_TOKEN\" \"api_key=$INNOCENT\"\n";
    let text = world.job_text(&job).replace("PodCount = 1", &image);
    let text = text.replace("UserCommand = \"\"\"\n", shown);
    std::fs::write(world.path(&format!("jobs.d/{name}.toml")), text).expect("written");
}

/// What a gateway and a service say that quote what they were sent.
fn quoting_faults() -> serde_json::Value {
    let canonical = format!(
        "The request signature does not conform: POST\n/api/v1/jobs\n\n\
         x-acs-accesskey-id:{KEY_ID}\nx-acs-security-token:{FILE_TOKEN}\nsecret {KEY_SECRET}"
    );
    let answer =
        |code: &str, message: &str| json!({ "Code": code, "Message": message }).to_string();
    let envs = json!({ "INNOCENT": JOB_SECRET, "MY_API_TOKEN": PLAIN_TOKEN }).to_string();
    let image = json!({ "ImageConfig": { "Password": PASSWORD } }).to_string();
    // Cut within the secret, wherever that is.
    let padded = format!("{}{JOB_SECRET}", "x".repeat(1024 - JOB_SECRET.len() / 2));
    json!([
        { "call": "CreateJob", "times": 1, "status": 400,
          "body": answer("SignatureDoesNotMatch", &canonical) },
        { "call": "CreateJob", "times": 1, "status": 400,
          "body": answer("InvalidParameter", &format!("bad body {envs}, {image}")) },
        { "call": "CreateJob", "times": 1, "status": 503,
          "body": answer("ServiceUnavailable", &format!("busy with {envs}")) },
        { "call": "CreateJob", "times": 1, "status": 429, "body": answer("Throttling.User", &padded) },
        { "call": "ListJobs", "times": 2, "status": 403,
          "body": answer("SignatureDoesNotMatch", &canonical) },
        { "call": "GetJob", "times": 2, "status": 400,
          "body": answer("SignatureDoesNotMatch", &canonical) },
    ])
}

fn search(world: &World, said: &[(String, Vec<u8>)]) {
    let (nowhere, in_specs) = (Canaries::new(&NOWHERE), Canaries::new(&IN_SPECS_ALONE));
    for (what, bytes) in said {
        let shown = [nowhere.in_bytes(bytes), in_specs.in_bytes(bytes)].concat();
        assert!(shown.is_empty(), "{what} shows {shown:?}:\n{}", String::from_utf8_lossy(bytes));
    }
    let mut found = Vec::new();
    for folder in ["state", "first.run1.attempt1"] {
        files(&world.path(folder), &mut found);
    }
    let mut specs = 0;
    for path in &found {
        let bytes = std::fs::read(path).expect("a file");
        let held = nowhere.in_bytes(&bytes);
        assert!(held.is_empty(), "{} holds {held:?}", path.display());
        if !in_specs.in_bytes(&bytes).is_empty() {
            let spec: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
            assert!(spec["secret_envs"].is_object(), "{} is no spec", path.display());
            specs += 1;
        }
    }
    assert_eq!(specs, JOBS.len(), "the search finds what is there");
}

#[test]
fn scenario_88_trap_26_secrets_are_found_nowhere_but_where_a_person_wrote_them() {
    let mut world = World::with_key((KEY_ID, KEY_SECRET), &[]);
    write_keys(&world, KEY_SECRET);
    std::fs::write(world.path("secrets/hf"), format!("{JOB_SECRET}\n")).expect("written");
    let secret = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(world.path("secrets/hf"), secret).expect("chmod");
    use_credentials(&world, "{ environment = true }", "{ file = \"keys.toml\" }");
    put_job(&world, "first");
    world.start(&[("RUST_BACKTRACE", "1")]);
    world.wait_saved("first");
    world.release_all();
    world.wait("it goes on", |world| world.trainer("first").starts().len() == 2);
    world.wait("its answers are kept", |world| {
        let mut kept = Vec::new();
        files(&world.path("state/blobs"), &mut kept);
        kept.iter().any(|path| {
            std::fs::read_to_string(path).is_ok_and(|text| text.contains("get_pod_logs.0.json"))
        })
    });

    // Answers that quote what was sent.
    world.put_faults(&quoting_faults());
    for name in &JOBS[1..] {
        put_job(&world, name);
    }
    for code in ["InvalidParameter", "Throttling.User", "ServiceUnavailable"] {
        world.wait_log(code);
    }
    for name in JOBS {
        world.wait_saved(name);
    }
    // A secret that does not fit the id.
    write_keys(&world, WRONG_SECRET);
    world.wait("the gateway refuses", |world| {
        world.log().matches("SignatureDoesNotMatch").count() >= 3
    });
    write_keys(&world, KEY_SECRET);

    let mut said = Vec::new();
    let verbs: [&[&str]; 12] = [
        &["ps", "-o", "wide"],
        &["describe", "first"],
        &["describe", "second", "-o", "json"],
        &["describe", "first", "--body"],
        &["describe", "first", "--body", "-o", "json"],
        &["why", "first", "--attempt", "1"],
        &["events"],
        &["events", "-o", "jsonl"],
        &["evidence", "first", "--attempt", "1"],
        &["evidence", "second", "--attempt", "9"],
        &["checkpoints", "first", "--all"],
        &["check"],
    ];
    for words in verbs {
        let output = world.cli(words);
        said.push((format!("{words:?}, stdout"), output.stdout));
        said.push((format!("{words:?}, stderr"), output.stderr));
    }
    for path in [
        "/api/v1/jobs",
        "/api/v1/jobs/first",
        "/api/v1/jobs/first/why",
        "/api/v1/jobs/first/body",
        "/api/v1/jobs/first/logs",
        "/api/v1/jobs/second/logs?attempt=2",
        "/api/v1/jobs/first/evidence?attempt=1",
        "/api/v1/jobs/second/evidence?attempt=2",
        "/api/v1/events?limit=1000",
        "/api/v1/daemon",
        "/api/v1/jobs/none",
    ] {
        said.push((path.to_owned(), get(&world, path)));
    }

    // A panic in a step, with the keys in the environment.
    world.signal(Signal::TERM);
    world.wait("it stops", |world| world.ended().is_some());
    use_credentials(&world, "{ file = \"keys.toml\" }", "{ environment = true }");
    world.start(&[
        ("SPOTKEEPER_PANIC_JOB", "second"),
        ("RUST_BACKTRACE", "1"),
        ("ALIBABA_CLOUD_SECURITY_TOKEN", ENVIRONMENT_TOKEN),
    ]);
    world.wait_log("panicked");
    world.release_all();
    world.wait("the other job goes on", |world| world.trainer("first").starts().len() == 3);
    said.push(("why of a parked job".to_owned(), get(&world, "/api/v1/jobs/second/why")));
    world.kill();
    said.push(("the daemon's log".to_owned(), world.log().into_bytes()));
    search(&world, &said);
}
