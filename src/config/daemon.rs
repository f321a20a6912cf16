//! The daemon file.
//!
//! It is taken as a whole: one error, and nothing of it is used. Keys never stand in it, only where
//! they come from.

use super::alerts::channels;
use super::codes;
use super::diagnostic::{Anchor, Diagnostic, Notes, Source, accepted, sort};
use super::files;
use super::reader::{Table, parse};
use super::schema::DAEMON;
use super::targets::targets;
use super::tcp::{Tcp, tcp};
use crate::model::alert::Channel;
use crate::model::ids::{Owner, TargetName};
use crate::model::spec::{Commands, Target};
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
const LOG_LEVEL: &str = "info";
const LOG_LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

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
    let owner = owner(notes, &mut top);
    let Folders { state_directory, jobs_directory, job_secrets, socket } =
        Folders::read(notes, &mut top, around);
    let api = top.table("api").map(|part| api(notes, part, &job_secrets)).unwrap_or_default();
    let sweep_interval = top.table("sweep").map_or(SWEEP_INTERVAL, sweep_interval);
    let log_level = top.table("log").map_or(LOG_LEVEL, log_level);
    let credential_commands = top.table("credentials").map_or(Commands::Refused, commands);
    let targets = targets(notes, &mut top);
    let alerts = channels(notes, &mut top, &job_secrets);
    top.finish();
    DaemonConfig {
        owner,
        state_directory,
        jobs_directory,
        job_secrets,
        sweep_interval,
        socket: api.socket.unwrap_or(socket),
        log_level,
        tcp: api.listen,
        credential_commands,
        targets,
        alerts,
    }
}

fn owner(notes: &Notes<'_>, top: &mut Table<'_, '_>) -> Option<Owner> {
    let found = top.text("owner")?;
    Owner::new(found.value)
        .map_err(|bad| {
            let message = "`owner` cannot have this value";
            let mend = format!("wanted: {}", bad.rule);
            notes.error(&found.span, codes::WRONG_VALUE, message, mend);
        })
        .ok()
}

/// Where things are, by the file or by default.
struct Folders {
    state_directory: PathBuf,
    jobs_directory: PathBuf,
    job_secrets: PathBuf,
    /// Where the socket is, unless the file names it.
    socket: PathBuf,
}

impl Folders {
    fn read(notes: &Notes<'_>, top: &mut Table<'_, '_>, around: &Surroundings) -> Self {
        let state = around.state_directory.clone().unwrap_or_else(|| STATE_DIRECTORY.into());
        let runtime = around.runtime_directory.clone().unwrap_or_else(|| RUNTIME_DIRECTORY.into());
        let mut named = |key, default| folder(notes, top, key).unwrap_or(default);
        Self {
            state_directory: named("state_directory", state),
            jobs_directory: named("jobs_directory", JOBS_DIRECTORY.into()),
            job_secrets: named("job_secrets", JOB_SECRETS.into()),
            socket: runtime.join("api.sock"),
        }
    }
}

/// What `[api]` says.
#[derive(Default)]
struct Api {
    socket: Option<PathBuf>,
    listen: Option<Tcp>,
}

fn api(notes: &Notes<'_>, mut part: Table<'_, '_>, job_secrets: &Path) -> Api {
    let socket = folder(notes, &mut part, "socket");
    let listen = tcp(notes, &mut part, job_secrets);
    part.finish();
    Api { socket, listen }
}

fn sweep_interval(mut part: Table<'_, '_>) -> Duration {
    let found = part.duration("interval", SWEEP_SHORTEST..=SWEEP_LONGEST);
    part.finish();
    found.map_or(SWEEP_INTERVAL, |found| found.value)
}

fn log_level(mut part: Table<'_, '_>) -> &'static str {
    let found = part.word("level", &LOG_LEVELS);
    part.finish();
    found
        .and_then(|found| LOG_LEVELS.into_iter().find(|level| *level == found.value))
        .unwrap_or(LOG_LEVEL)
}

fn commands(mut part: Table<'_, '_>) -> Commands {
    let is_allowed = part.flag("allow_commands").is_some_and(|found| found.value);
    part.finish();
    if is_allowed { Commands::Allowed } else { Commands::Refused }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::CredentialsRef;

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
}
