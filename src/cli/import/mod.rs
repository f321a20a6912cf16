//! `spotkeeper import`: from a CreateJob body (a file, or standard input) or a live job to a
//! commented job file.
//!
//! Always holds: what comes out says what was left out and why; every other field is there, key for
//! key; no secret of the source is in it, unless that was asked for. Must not: submit, stop, or
//! write any file but the one that was named.

mod clean;
mod guess;
mod references;
mod toml_text;

use super::Console;
use super::exit::Exit;
use super::failure::Failure;
use crate::config::codes;
use crate::config::diagnostic::{Diagnostic, Source, accepted};
use crate::config::job::{Rules, read_job};
use crate::config::{DAEMON_FILE, DaemonConfig, Surroundings, json_object, load_daemon, read};
use crate::dlc::client::Dlc;
use crate::model::ids::{CloudId, JobName, Owner, TargetName};
use crate::model::spec::Target;
use crate::openapi::client::PlainHttp;
use crate::openapi::credentials::Keychain;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Bytes that are read from standard input.
const INPUT_BYTES: u64 = 1 << 20;
/// The target's name where no daemon file says one.
const TARGET: &str = "main";
/// Letters of a job's name.
const NAME_LETTERS: usize = 100;

/// Arguments of `import`.
#[derive(Debug, Clone, clap::Args)]
pub struct ImportArgs {
    /// A CreateJob body as JSON, or a saved answer of GetJob; `-` is standard input
    #[arg(value_name = "FILE|-", required_unless_present = "job", conflicts_with = "job")]
    pub source: Option<String>,
    /// A job on DLC, by its JobId
    #[arg(long, value_name = "DLC-ID")]
    pub job: Option<String>,
    /// Target of the daemon file [default: the one of the job's workspace, or the only one]
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Name of the job [default: its DisplayName, else the file's name]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Write the job file here, if there is none yet [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Write secrets as they are, instead of references to files
    #[arg(long)]
    pub plain_secrets: bool,
}

/// How secrets of the source are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// As references; no value is written.
    References,
    /// As they are.
    Values,
}

/// What is imported.
#[derive(Debug, Clone)]
pub struct Import<'a> {
    /// The body, or the answer.
    pub source: Map<String, Value>,
    /// Where it came from, in words.
    pub from: String,
    /// The name for want of a better one.
    pub stem: String,
    /// `--name`.
    pub name: Option<String>,
    /// `--target`.
    pub target: Option<String>,
    /// What the daemon file says, if there is one.
    pub daemon: Option<&'a DaemonConfig>,
    /// How secrets are written.
    pub plain: Plain,
}

/// A job file, and what a person should know of it.
#[derive(Debug, Clone)]
pub struct JobText {
    /// The job's name.
    pub name: JobName,
    /// The file.
    pub text: String,
    /// What `check` says of it, absent secrets aside.
    pub diagnostics: Vec<Diagnostic>,
    /// What is still to be done.
    pub remarks: Vec<String>,
}

/// Does what the verb says.
pub(super) async fn import(args: &ImportArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let config = console.global.config.as_deref().unwrap_or(Path::new(DAEMON_FILE));
    let named = console.global.config.is_some();
    let daemon = (named || config.exists())
        .then(|| load_daemon(config, &Surroundings::of_this_process()))
        .and_then(|file| file.draft);
    if named && daemon.is_none() {
        let why = "it is not TOML, or is not there".to_owned();
        return Err(Failure::DaemonFile { path: config.to_owned(), why });
    }
    let read = match (&args.job, args.source.as_deref().unwrap_or("-")) {
        (Some(id), _) => {
            Ok((live(id, args, daemon.as_ref(), console).await?, format!("job {id}"), id.clone()))
        }
        (None, "-") => from_text(&standard_input()?)
            .map(|map| (map, "standard input".to_owned(), "imported".to_owned())),
        (None, path) => from_file(Path::new(path)),
    };
    let (source, from, stem) = match read {
        Ok(read) => read,
        Err(found) => {
            for diagnostic in found {
                writeln!(console.err, "{diagnostic}")?;
            }
            return Ok(Exit::ConfigNotValid);
        }
    };
    let plain = if args.plain_secrets { Plain::Values } else { Plain::References };
    let (name, target) = (args.name.clone(), args.target.clone());
    let done =
        job_text(Import { source, from, stem, name, target, daemon: daemon.as_ref(), plain })?;
    match &args.write {
        None => write!(console.out, "{}", done.text)?,
        Some(path) => write_file(path, &done.text, plain)?,
    }
    for remark in &done.remarks {
        console.remark(remark)?;
    }
    for diagnostic in &done.diagnostics {
        console.remark(&diagnostic.to_string())?;
    }
    Ok(if accepted(&done.diagnostics) { Exit::Done } else { Exit::ConfigNotValid })
}

/// Whether a recording of a request was given for its body: no field of CreateJob has these names.
fn is_request(source: &Map<String, Value>) -> bool {
    source.keys().any(|key| {
        ["headers", "authorization"].iter().any(|header| key.eq_ignore_ascii_case(header))
    })
}

type Read = (Map<String, Value>, String, String);

fn from_file(path: &Path) -> Result<Read, Vec<Diagnostic>> {
    let source = read(path).map_err(|diagnostic| vec![*diagnostic])?;
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Ok((json_object(&source)?, path.display().to_string(), stem))
}

fn from_text(text: &str) -> Result<Map<String, Value>, Vec<Diagnostic>> {
    json_object(&Source::new(Path::new("<standard input>"), text.to_owned()))
}

fn standard_input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let input = std::io::stdin().lock().take(INPUT_BYTES + 1).read_to_end(&mut bytes);
    input.map_err(|cause| Failure::Process { doing: "standard input cannot be read", cause })?;
    if bytes.len() as u64 > INPUT_BYTES {
        return Err(Failure::Look(format!("standard input has more than {INPUT_BYTES} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| Failure::Look("standard input is not UTF-8".to_owned()))
}

/// A job as GetJob shows it.
async fn live(
    id: &str,
    args: &ImportArgs,
    daemon: Option<&DaemonConfig>,
    console: &Console<'_>,
) -> Result<Map<String, Value>, Failure> {
    let id = CloudId::new(id).map_err(|bad| Failure::Usage(bad.to_string()))?;
    let Some(daemon) = daemon else {
        let why = "a live job is asked for at a target: name the daemon file with --config";
        return Err(Failure::Usage(why.to_owned()));
    };
    let target = choose(Some(daemon), args.target.as_deref(), None)?;
    let Some(target) = daemon.targets.get(&target) else {
        return Err(Failure::Usage(format!("no target `{target}` in the daemon file")));
    };
    let allowed = if target.plain_http { PlainHttp::Anywhere } else { PlainHttp::Loopback };
    // Only listings ask for the owner.
    let owner = match &daemon.owner {
        Some(owner) => owner.clone(),
        None => Owner::new("import").map_err(|bad| Failure::Look(bad.to_string()))?,
    };
    let dlc = Dlc::new(
        &target.place,
        owner,
        &Keychain::of_this_process(daemon.credential_commands),
        allowed,
    )
    .map_err(|error| Failure::Look(format!("{:#}", anyhow::Error::from(error))))?;
    let answer = dlc.get_job_value(&id, console.moment.now).await;
    let answer = answer.map_err(|error| {
        Failure::Look(format!(
            "job {id} at target `{}`: {:#}",
            target.name,
            anyhow::Error::from(error)
        ))
    })?;
    match answer.value {
        Value::Object(map) => Ok(map),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(Failure::Look(format!("job {id}: the answer is not an object")))
        }
    }
}

fn write_file(path: &Path, text: &str, plain: Plain) -> Result<(), Failure> {
    let mode = match plain {
        Plain::References => 0o644,
        Plain::Values => 0o600,
    };
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = file.map_err(|cause| {
        let what = if cause.kind() == ErrorKind::AlreadyExists {
            "is there already and is not written over: move it away, or name another file".into()
        } else {
            format!("cannot be written: {cause}")
        };
        Failure::Look(format!("{} {what}", path.display()))
    })?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

/// The one item of a list of one.
fn only(mut fitting: Vec<&Target>) -> Option<&Target> {
    fitting.pop().filter(|_| fitting.is_empty())
}

/// The target: the named one, the one of the job's workspace, the only one.
fn choose(
    daemon: Option<&DaemonConfig>,
    asked: Option<&str>,
    workspace: Option<&str>,
) -> Result<TargetName, Failure> {
    let name = |text: &str| TargetName::new(text).map_err(|bad| Failure::Usage(bad.to_string()));
    let Some(targets) = daemon.map(|daemon| &daemon.targets) else {
        return name(asked.unwrap_or(TARGET));
    };
    let listed = || {
        let names: Vec<&str> = targets.keys().map(TargetName::as_str).collect();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    };
    if let Some(asked) = asked {
        let wanted = name(asked)?;
        let known = targets.contains_key(&wanted).then_some(wanted);
        return known.ok_or_else(|| {
            Failure::Usage(format!(
                "no target `{asked}` in the daemon file; there are: {}",
                listed()
            ))
        });
    }
    let fits = |target: &&Target| Some(target.place.workspace.as_str()) == workspace;
    let found =
        only(targets.values().filter(fits).collect()).or_else(|| only(targets.values().collect()));
    found.map(|target| target.name.clone()).ok_or_else(|| {
        Failure::Usage(format!("which target? add `--target NAME`; there are: {}", listed()))
    })
}

/// The job file of an import.
///
/// # Errors
/// No target or name can be chosen.
pub fn job_text(import: Import<'_>) -> Result<JobText, Failure> {
    if is_request(&import.source) {
        let why = "it is a whole HTTP request, with headers that may hold a signature or a token: give \
                   its body alone";
        return Err(Failure::Look(format!("{}: {why}", import.from)));
    }
    let workspace = import.source.get("WorkspaceId").and_then(Value::as_str).map(str::to_owned);
    let target_name = choose(import.daemon, import.target.as_deref(), workspace.as_deref())?;
    let target = import.daemon.and_then(|daemon| daemon.targets.get(&target_name));
    let mut draft = clean::clean(import.source, target, import.plain);
    let name = job_name(import.name.as_deref(), &draft, &import.stem)?;
    let command =
        draft.body.get("UserCommand").and_then(Value::as_str).unwrap_or_default().to_owned();
    if !command.is_empty() {
        let lines = draft.comments.entry("/UserCommand".to_owned()).or_default();
        lines.push(guess::about_command(&command).to_owned());
    }
    let mut remarks: Vec<String> =
        draft.notes.iter().filter(|note| note.starts_with("NOTE: ")).cloned().collect();
    let secrets = secret_files(&draft, import.daemon);
    let mut text = toml_text::comment(&format!("A job file, imported from {}.", import.from));
    for line in draft.notes.iter().chain(&secrets) {
        text.push_str(&toml_text::comment(line));
    }
    remarks.extend(secrets);
    if import.daemon.is_none() {
        let line = "No daemon file was found: `target` has to be one of its [targets.NAME].";
        text.push_str(&toml_text::comment(line));
    }
    let head = [String::new(), format!("name = \"{name}\""), format!("target = \"{target_name}\"")];
    text.push_str(&head.join("\n"));
    text.push_str("\n\n");
    text.push_str(&toml_text::submit(&draft.body, &draft.comments));
    text.push('\n');
    if let Some((key, bid)) = &draft.spot {
        let line = "The SpotSpec of every role; 0.4 is \"at most 40 % of the list price\".";
        text.push_str(&toml_text::comment(line));
        text.push_str(&["[spot]", &format!("{key} = {bid}"), "\n"].join("\n"));
    }
    let own = draft.body.get("DataSources").and_then(Value::as_array).cloned().unwrap_or_default();
    text.push_str(&guess::checkpoint(&command, &draft.sources, &own));
    let rules = import.daemon.map_or(Rules::unknown(), Rules::of);
    let file = read_job(&Source::new(Path::new(&format!("{name}.toml")), text.clone()), rules);
    let mut diagnostics = file.diagnostics;
    // The files of secrets are made by the person, by the remark above.
    diagnostics.retain(|found| found.code != codes::SECRET || draft.secrets.is_empty());
    Ok(JobText { name, text, diagnostics, remarks })
}

/// Which file each secret belongs into.
fn secret_files(draft: &clean::Draft, daemon: Option<&DaemonConfig>) -> Vec<String> {
    let folder = daemon.map_or(Path::new("/etc/spotkeeper/secrets"), |found| &found.job_secrets);
    let files: BTreeMap<&String, &String> =
        draft.secrets.iter().map(|(variable, file)| (file, variable)).collect();
    let lines = files.into_iter().map(|(file, variable)| {
        let path = folder.join(file);
        let path = path.display();
        format!(
            "{variable} was a secret: put its value into {path} (install -D -m 600 /dev/stdin {path})."
        )
    });
    lines.collect()
}

fn job_name(given: Option<&str>, draft: &clean::Draft, stem: &str) -> Result<JobName, Failure> {
    if let Some(given) = given {
        return JobName::new(given).map_err(|bad| Failure::Usage(bad.to_string()));
    }
    let display = draft.body.get("DisplayName").and_then(Value::as_str).map(str::to_owned);
    for text in draft.job.iter().chain(&display).map(String::as_str).chain([stem, "imported"]) {
        let letter = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let name: String = text.chars().filter(letter).take(NAME_LETTERS).collect();
        if let Ok(name) = JobName::new(name.trim_start_matches(['_', '-', '.'])) {
            return Ok(name);
        }
    }
    Err(Failure::Usage("no name can be made: add `--name NAME`".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_kept_and_what_to_do_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job.toml");
        write_file(&path, "first", Plain::References).expect("written");
        let told = write_file(&path, "second", Plain::References).expect_err("it is there");
        assert!(told.to_string().contains("is there already and is not written over"), "{told}");
        assert_eq!(std::fs::read_to_string(&path).expect("a text"), "first");
    }
}
