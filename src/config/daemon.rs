//! The daemon file.
//!
//! It is taken as a whole: one error, and nothing of it is used. Keys never stand in it, only where
//! they come from.

use super::alerts::channels;
use super::codes;
use super::credentials::credentials;
use super::diagnostic::{Anchor, Diagnostic, Notes, Source, accepted, sort};
use super::files;
use super::reader::{Found, Table, parse};
use super::schema::DAEMON;
use super::tcp::{Tcp, tcp};
use crate::model::alert::Channel;
use crate::model::ids::{Owner, TargetName};
use crate::model::spec::{Commands, CredentialsRef, Place, Target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the daemon file is, unless `--config` says otherwise.
pub const DAEMON_FILE: &str = "/etc/spotkeeper/spotkeeper.toml";

const STATE_DIRECTORY: &str = "/var/lib/spotkeeper";
const RUNTIME_DIRECTORY: &str = "/run/spotkeeper";
const JOBS_DIRECTORY: &str = "/etc/spotkeeper/jobs.d";
const JOB_SECRETS: &str = "/etc/spotkeeper/secrets";
const SWEEP_INTERVAL: Duration = Duration::from_secs(15);
const SWEEP_SHORTEST: Duration = Duration::from_millis(100);
const SWEEP_LONGEST: Duration = Duration::from_hours(1);
const ACCEPTANCE: Duration = Duration::from_mins(15);
const ACCEPTANCE_SHORTEST: Duration = Duration::from_millis(100);
const ACCEPTANCE_LONGEST: Duration = Duration::from_hours(24);
const LOG_LEVEL: &str = "info";
const LOG_LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];
const MAX_PARALLEL: u32 = 50;
const MAX_PARALLEL_MOST: u64 = 10_000;

/// What the environment says about folders: under systemd, these are the ones that it made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `$STATE_DIRECTORY`.
    pub state_directory: Option<PathBuf>,
    /// `$RUNTIME_DIRECTORY`.
    pub runtime_directory: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn of_this_process() -> Self {
        // systemd joins several folders with `:`; the first one is the service's own.
        let first = |name: &str| {
            let text = std::env::var(name).ok()?;
            let first = text.split(':').next().unwrap_or_default();
            (!first.is_empty()).then(|| PathBuf::from(first))
        };
        Self {
            state_directory: first("STATE_DIRECTORY"),
            runtime_directory: first("RUNTIME_DIRECTORY"),
        }
    }
}

/// The accepted content of the daemon file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonConfig {
    /// This installation; `run` refuses without it and names `spotkeeper init`.
    pub owner: Option<Owner>,
    /// Folder of the store.
    pub state_directory: PathBuf,
    /// Folder of the job files.
    pub jobs_directory: PathBuf,
    /// Folder of the secrets that jobs name.
    pub job_secrets: PathBuf,
    /// Time between two sweeps over a target.
    pub sweep_interval: Duration,
    /// The socket that the CLI talks to.
    pub socket: PathBuf,
    /// From which level on lines are logged.
    pub log_level: &'static str,
    /// Where the API listens beside it, if anywhere.
    pub tcp: Option<Tcp>,
    /// Whether keys may come from a command that a profile names.
    pub credential_commands: Commands,
    /// Where jobs may be sent.
    pub targets: BTreeMap<TargetName, Target>,
    /// Who is told of what.
    pub alerts: Vec<Channel>,
}

impl DaemonConfig {
    /// The owner, or what to tell the person who starts the daemon; `file` is the daemon file.
    pub fn require_owner(&self, file: &Path) -> Result<&Owner, Box<Diagnostic>> {
        self.owner.as_ref().ok_or_else(|| {
            let message = "there is no `owner`: the daemon would not know its own jobs again";
            let mend = "run `spotkeeper init`, which adds one";
            Box::new(Diagnostic::error(Anchor::whole(file), codes::NO_OWNER, message, mend))
        })
    }

    /// This file as a daemon that runs by `running` can take it over, and the keys whose change
    /// waits for a restart: what is open or held by their values.
    pub fn taken_over_from(mut self, running: &Self) -> (Self, Vec<&'static str>) {
        let mut waiting = Vec::new();
        let mut keep = |key, differs: bool| {
            if differs {
                waiting.push(key);
            }
        };
        keep("owner", self.owner != running.owner);
        keep("state_directory", self.state_directory != running.state_directory);
        keep("api.socket", self.socket != running.socket);
        let commands = self.credential_commands != running.credential_commands;
        keep("credentials.allow_commands", commands);
        keep("api.listen", self.tcp != running.tcp);
        keep("alerts", self.alerts != running.alerts);
        self.owner.clone_from(&running.owner);
        self.state_directory.clone_from(&running.state_directory);
        self.socket.clone_from(&running.socket);
        self.credential_commands = running.credential_commands;
        self.tcp.clone_from(&running.tcp);
        self.alerts.clone_from(&running.alerts);
        (self, waiting)
    }
}

/// What came of reading a daemon file.
#[derive(Debug, Clone)]
pub struct DaemonFile {
    /// As much as could be read, defaults in place of what is wrong; `None` if it is not TOML at
    /// all. Good for checking job files against, never for running.
    pub draft: Option<DaemonConfig>,
    /// Everything that was found, sorted.
    pub diagnostics: Vec<Diagnostic>,
}

impl DaemonFile {
    /// The content, if it is free of errors.
    pub fn accepted(&self) -> Option<&DaemonConfig> {
        self.draft.as_ref().filter(|_| accepted(&self.diagnostics))
    }
}

/// Reads and checks a daemon file.
pub fn load_daemon(path: &Path, surroundings: &Surroundings) -> DaemonFile {
    match files::read_own(path) {
        Ok(source) => read_daemon(&source, surroundings),
        Err(mut diagnostic) => {
            if matches!(path.try_exists(), Ok(false)) {
                diagnostic.mend = "`spotkeeper init` makes one; or name yours with --config".into();
            }
            DaemonFile { draft: None, diagnostics: vec![*diagnostic] }
        }
    }
}

/// Checks the text of a daemon file.
pub fn read_daemon(source: &Source, surroundings: &Surroundings) -> DaemonFile {
    let notes = Notes::new(source);
    let draft = parse(&notes, DAEMON).map(|table| daemon(&notes, table, surroundings));
    let mut diagnostics = notes.into_found();
    sort(&mut diagnostics);
    DaemonFile { draft, diagnostics }
}

fn daemon(notes: &Notes<'_>, mut top: Table<'_, '_>, around: &Surroundings) -> DaemonConfig {
    let file = notes.source.file.as_path();
    let owner = top.text("owner").and_then(|found| match Owner::new(found.value) {
        Ok(owner) => Some(owner),
        Err(bad) => {
            let message = "`owner` cannot have this value";
            notes.error(&found.span, codes::WRONG_VALUE, message, format!("wanted: {}", bad.rule));
            None
        }
    });
    let state = around.state_directory.clone().unwrap_or_else(|| STATE_DIRECTORY.into());
    let runtime = around.runtime_directory.clone().unwrap_or_else(|| RUNTIME_DIRECTORY.into());
    let state_directory = folder(notes, &mut top, "state_directory").unwrap_or(state);
    let jobs_directory =
        folder(notes, &mut top, "jobs_directory").unwrap_or_else(|| JOBS_DIRECTORY.into());
    let job_secrets = folder(notes, &mut top, "job_secrets").unwrap_or_else(|| JOB_SECRETS.into());
    let mut sweep_interval = SWEEP_INTERVAL;
    if let Some(mut sweep) = top.table("sweep") {
        if let Some(found) = sweep.duration("interval", SWEEP_SHORTEST..=SWEEP_LONGEST) {
            sweep_interval = found.value;
        }
        sweep.finish();
    }
    let (mut socket, mut listen) = (runtime.join("api.sock"), None);
    if let Some(mut api) = top.table("api") {
        if let Some(found) = folder(notes, &mut api, "socket") {
            socket = found;
        }
        listen = tcp(notes, &mut api, &job_secrets);
        api.finish();
    }
    let mut log_level = LOG_LEVEL;
    if let Some(mut log) = top.table("log") {
        if let Some(found) = log.word("level", &LOG_LEVELS) {
            log_level = LOG_LEVELS.into_iter().find(|l| *l == found.value).unwrap_or(LOG_LEVEL);
        }
        log.finish();
    }
    let mut credential_commands = Commands::Refused;
    if let Some(mut part) = top.table("credentials") {
        if part.flag("allow_commands").is_some_and(|found| found.value) {
            credential_commands = Commands::Allowed;
        }
        part.finish();
    }
    let asked = top.has("targets");
    let mut targets = BTreeMap::new();
    for (name, table) in top.named_tables("targets") {
        let target = target(notes, &name, table);
        targets.extend(target.map(|target| (target.name.clone(), target)));
    }
    if targets.is_empty() && !asked {
        let mend = "add a [targets.NAME] table with region and workspace";
        let message = "no targets: no job can be sent anywhere";
        notes.add(Diagnostic::warning(Anchor::whole(file), codes::IDLE, message, mend));
    }
    let alerts = channels(notes, &mut top, &job_secrets);
    top.finish();
    DaemonConfig {
        owner,
        state_directory,
        jobs_directory,
        job_secrets,
        sweep_interval,
        socket,
        log_level,
        tcp: listen,
        credential_commands,
        targets,
        alerts,
    }
}

/// A path; a relative one starts at the folder of the daemon file.
fn folder(notes: &Notes<'_>, table: &mut Table<'_, '_>, key: &'static str) -> Option<PathBuf> {
    let found = table.text(key)?;
    if found.value.is_empty() || found.value.contains('\0') {
        let message = format!("`{key}` cannot have this value");
        notes.error(&found.span, codes::WRONG_VALUE, message, "wanted: a path");
        return None;
    }
    Some(notes.source.file.parent().unwrap_or(Path::new("")).join(found.value))
}

/// A target. Whatever is wrong in it is reported and filled in, so that jobs that name it are not
/// told that it does not exist.
fn target(notes: &Notes<'_>, name: &Found<String>, mut table: Table<'_, '_>) -> Option<Target> {
    for (key, example) in [("region", "cn-hangzhou"), ("workspace", "12345")] {
        if !table.has(key) {
            let message = format!("target `{}` has no `{key}`", name.value);
            notes.error(&name.key, codes::MISSING, message, format!("add {key} = \"{example}\""));
        }
    }
    let region = id(notes, &mut table, "region");
    let workspace = id(notes, &mut table, "workspace");
    let plain_http = table.flag("plain_http").is_some_and(|found| found.value);
    let endpoint = endpoint(notes, &mut table, plain_http)
        .unwrap_or_else(|| format!("https://pai-dlc.{region}.aliyuncs.com"));
    let mut storage = None;
    if let Some(mut part) = table.table("storage") {
        storage = self::endpoint(notes, &mut part, plain_http);
        part.finish();
    }
    let storage = storage.unwrap_or_else(|| format!("https://s3.oss-{region}.aliyuncs.com"));
    let credentials = match table.table("credentials") {
        Some(part) => credentials(notes, part),
        None => CredentialsRef::Chain,
    };
    let acceptance = table.duration("acceptance", ACCEPTANCE_SHORTEST..=ACCEPTANCE_LONGEST);
    let parallel = table.count("max_parallel", 1..=MAX_PARALLEL_MOST);
    table.finish();
    let name = match TargetName::new(name.value.clone()) {
        Ok(name) => name,
        Err(bad) => {
            let message = "not a name of a target";
            notes.error(&name.key, codes::WRONG_VALUE, message, format!("wanted: {}", bad.rule));
            return None;
        }
    };
    Some(Target {
        name,
        place: Place { region, workspace, endpoint, storage: Some(storage), credentials },
        acceptance: acceptance.map_or(ACCEPTANCE, |found| found.value),
        max_parallel: parallel
            .and_then(|found| u32::try_from(found.value).ok())
            .unwrap_or(MAX_PARALLEL),
        plain_http,
    })
}

/// A region or workspace id. It becomes part of host names and queries.
fn id(notes: &Notes<'_>, table: &mut Table<'_, '_>, key: &'static str) -> String {
    let Some(found) = table.text(key) else { return String::new() };
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if (1..=64).contains(&found.value.len()) && found.value.bytes().all(letter) {
        return found.value;
    }
    let message = format!("`{key}` cannot have this value");
    notes.error(&found.span, codes::WRONG_VALUE, message, "wanted: letters, digits, `-` and `_`");
    String::new()
}

fn endpoint(notes: &Notes<'_>, table: &mut Table<'_, '_>, plain_http: bool) -> Option<String> {
    let found = table.text("endpoint")?;
    match check_endpoint(&found.value, plain_http) {
        Ok(endpoint) => Some(endpoint),
        Err((message, mend)) => {
            notes.error(&found.span, codes::ENDPOINT, message, mend);
            None
        }
    }
}

/// An endpoint without slash at its end, or what is wrong with it and the mend.
fn check_endpoint(text: &str, plain_http: bool) -> Result<String, (&'static str, &'static str)> {
    let example = "write it as https://pai-dlc.cn-hangzhou.aliyuncs.com";
    let (scheme, rest) =
        text.split_once("://").ok_or(("not an address with its scheme", example))?;
    let host = rest.trim_end_matches('/');
    if host.contains('@') {
        return Err(("an address with a user or password in it", "keys come from `credentials`"));
    }
    let letter = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if host.is_empty() || !host.chars().all(letter) {
        return Err(("not scheme, host and port alone", example));
    }
    let (name, port) = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) => (name, port.strip_prefix(':')),
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return Err(("not scheme, host and port alone", example));
    }
    let loopback = name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    match scheme {
        "https" => {}
        "http" if loopback || plain_http => {}
        "http" => {
            return Err((
                "plain http:// sends tokens and environment values in the clear",
                "use https://, or set plain_http = true in this target",
            ));
        }
        _ => return Err(("neither https:// nor http://", example)),
    }
    Ok(format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> DaemonFile {
        let source = Source::new(Path::new("/etc/spotkeeper/spotkeeper.toml"), text.into());
        read_daemon(&source, &Surroundings::default())
    }

    #[test]
    fn defaults_come_from_the_region_and_the_surroundings() {
        let text = "[targets.hz]\nregion = \"cn-hangzhou\"\nworkspace = \"12345\"\n";
        let file = read(text);
        let config = file.accepted().expect("no errors");
        let target = &config.targets[&TargetName::new("hz").expect("a name")];
        assert_eq!(target.place.endpoint, "https://pai-dlc.cn-hangzhou.aliyuncs.com");
        assert_eq!(
            target.place.storage.as_deref(),
            Some("https://s3.oss-cn-hangzhou.aliyuncs.com")
        );
        assert_eq!(target.place.credentials, CredentialsRef::Chain);
        assert_eq!((target.acceptance, target.max_parallel), (Duration::from_mins(15), 50));
        assert_eq!(config.socket, Path::new("/run/spotkeeper/api.sock"));
        assert_eq!((config.owner.is_none(), config.sweep_interval.as_secs()), (true, 15));
        let source = Source::new(Path::new("x.toml"), text.into());
        let around = Surroundings {
            state_directory: Some("/s".into()),
            runtime_directory: Some("/r".into()),
        };
        let config = read_daemon(&source, &around).draft.expect("TOML");
        assert_eq!(config.state_directory, Path::new("/s"));
        assert_eq!(config.socket, Path::new("/r/api.sock"));
    }

    #[test]
    fn a_relative_path_starts_at_the_daemon_file() {
        let config = read("jobs_directory = \"jobs\"\n").draft.expect("TOML");
        assert_eq!(config.jobs_directory, Path::new("/etc/spotkeeper/jobs"));
    }

    #[test]
    fn a_running_daemon_takes_over_all_but_what_it_holds_open() {
        let old = read("owner = \"k3f9qz\"\nstate_directory = \"/a\"\n").draft.expect("TOML");
        let text = "owner = \"k3f9qa\"\nstate_directory = \"/b\"\njobs_directory = \"/j\"\n\
            [sweep]\ninterval = \"1s\"\n[log]\nlevel = \"debug\"\n[api]\nsocket = \"/s\"\n\
            listen = \"127.0.0.1:1\"\n[alerts.ops]\nkind = \"mail\"\nto = [\"a@b\"]\n\
            [credentials]\nallow_commands = true\n[targets.hz]\nregion = \"r\"\nworkspace = \"1\"\n";
        let file = read(text);
        let new = file.accepted().expect("no errors").clone();
        let (taken, waiting) = new.clone().taken_over_from(&old);
        let keys = ["owner", "state_directory", "api.socket", "credentials.allow_commands"];
        assert_eq!(waiting, [&keys[..], &["api.listen", "alerts"]].concat());
        assert_eq!((&taken.tcp, &taken.alerts), (&old.tcp, &old.alerts));
        assert_eq!((&taken.owner, &taken.socket), (&old.owner, &old.socket));
        assert_eq!((taken.log_level, taken.sweep_interval.as_secs()), ("debug", 1));
        assert_eq!((taken.jobs_directory, taken.targets), (new.jobs_directory, new.targets));
        assert_eq!(old.clone().taken_over_from(&old), (old, Vec::new()));
        let wrong = read("[log]\nlevel = \"loud\"\n");
        assert!(wrong.accepted().is_none());
    }

    #[test]
    fn plain_http_is_for_loopback_or_by_name() {
        for good in [
            "https://h",
            "http://127.0.0.1:80/",
            "http://localhost:1",
            "http://[::1]:8080",
            "http://127.8.8.8",
        ] {
            assert!(check_endpoint(good, false).is_ok(), "{good}");
        }
        for bad in [
            "http://h",
            "http://127.0.0.1.example.com",
            "http://10.0.0.1",
            "h",
            "ftp://h",
            "https://",
            "https://h/path",
            "https://u:p@h",
            "https://h:port",
            "https://h?x",
            "https://:80",
        ] {
            assert!(check_endpoint(bad, false).is_err(), "{bad}");
        }
        assert_eq!(check_endpoint("http://h/", true), Ok("http://h".into()));
    }
}
