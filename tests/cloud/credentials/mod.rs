//! Every way of giving keys, against servers of this machine that play STS, the metadata service
//! and a credentials URI. Every secret has `CANARY` in it, and no text may.

use crate::server::{Reply, Seen, Server};
use serde_json::json;
use spotkeeper::model::spec::{Commands, CredentialsRef};
use spotkeeper::model::time::WallTime;
use spotkeeper::openapi::credentials::{CredentialsError, Held, Keychain, Surroundings};
use spotkeeper::openapi::error::whole;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

mod chain;
mod keychain;
mod profiles;
mod servers;

/// An address where nothing listens.
const NOBODY: &str = "http://127.0.0.1:1";
const HOUR: u64 = 60;

fn at(minute: u64) -> WallTime {
    let start = WallTime::parse("2026-11-30T08:00:00Z").expect("a time");
    start.plus(Duration::from_mins(minute))
}

/// A home folder, variables and servers.
struct World {
    home: tempfile::TempDir,
    variables: BTreeMap<String, String>,
    metadata: String,
    sts: String,
    commands: Commands,
}

fn world(variables: &[(&str, &str)]) -> World {
    World {
        home: tempfile::tempdir().expect("a folder"),
        variables: variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        metadata: NOBODY.to_owned(),
        sts: NOBODY.to_owned(),
        commands: Commands::Refused,
    }
}

impl World {
    fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), value.to_owned());
    }

    /// Writes a file below home; its path.
    fn write(&self, name: &str, content: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        std::fs::write(&path, content).expect("a write");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, mode).expect("chmod");
        path.display().to_string()
    }

    fn cli(&self, profiles: &serde_json::Value) -> String {
        let content = json!({ "current": "default", "profiles": profiles }).to_string();
        self.write(".aliyun/config.json", &content)
    }

    fn ini(&self, content: &str) -> String {
        self.write(".alibabacloud/credentials.ini", content)
    }

    fn keychain(&self) -> Keychain {
        let variables = self.variables.clone();
        Keychain::with(Surroundings {
            variables: Arc::new(move |name| variables.get(name).cloned()),
            home: Some(self.home.path().to_owned()),
            metadata: self.metadata.clone(),
            sts: Some(self.sts.clone()),
            commands: self.commands,
        })
    }

    async fn keys(&self, reference: &CredentialsRef) -> Result<Held, CredentialsError> {
        let keychain = self.keychain();
        let held = keychain.keys(reference, at(0)).await;
        assert_quiet(&format!("{keychain:?} {held:?}"));
        held
    }

    async fn chain(&self) -> Result<Held, CredentialsError> {
        self.keys(&CredentialsRef::Chain).await
    }

    async fn profile(&self, name: &str) -> Result<Held, CredentialsError> {
        self.keys(&CredentialsRef::Profile(name.to_owned())).await
    }

    /// What a person reads when there are no keys.
    async fn refused(&self, reference: &CredentialsRef) -> String {
        told(&self.keys(reference).await.expect_err("no keys"))
            .replace(&self.home.path().display().to_string(), "~")
    }
}

fn told(error: &CredentialsError) -> String {
    let text = whole(error);
    assert_quiet(&format!("{text} {error:?}"));
    text
}

#[track_caller]
fn assert_quiet(text: &str) {
    assert!(!text.contains("CANARY"), "a secret is shown: {text}");
}

/// The triple as text, for comparison: `id-1 secret-CANARY-1 token-CANARY-1`.
fn triple(held: &Held) -> String {
    let token = held.keys.token.as_ref().map_or("-", |token| token.expose());
    format!("{} {} {token}", held.keys.key_id.expose(), held.keys.secret.expose())
}

fn fields(number: u32, expires: WallTime) -> serde_json::Value {
    json!({
        "AccessKeyId": format!("id-CANARY-{number}"),
        "AccessKeySecret": format!("secret-CANARY-{number}"),
        "SecurityToken": format!("token-CANARY-{number}"),
        "Expiration": expires.to_string(),
    })
}

fn numbered(number: u32) -> String {
    format!("id-CANARY-{number} secret-CANARY-{number} token-CANARY-{number}")
}

/// STS's answer with keys that end at `minute`.
fn sts(number: u32, minute: u64) -> Reply {
    let body = json!({ "RequestId": "r", "Credentials": fields(number, at(minute)) });
    Reply::http(200, &body.to_string())
}

/// The answer of the metadata service, and of a credentials URI.
fn metadata(number: u32, minute: u64) -> Reply {
    let mut body = fields(number, at(minute));
    body["Code"] = "Success".into();
    Reply::http(200, &body.to_string())
}

/// The pairs of a query or form.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let url = reqwest::Url::parse(&format!("http://h/?{text}")).expect("a query");
    url.query_pairs().map(|(n, v)| (n.into_owned(), v.into_owned())).collect()
}

fn paths(seen: &[Seen]) -> Vec<String> {
    seen.iter().map(|s| format!("{} {}", s.target().0, s.target().1)).collect()
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}
