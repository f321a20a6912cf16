//! `spotkeeper check [FILE..]`: reads daemon file and job files, and reports everything that is
//! wrong. Sends nothing and needs no daemon.

use super::{Console, Exit, Failure};
use crate::config::codes;
use crate::config::daemon::{DAEMON_FILE, DaemonFile, Surroundings, load_daemon};
use crate::config::diagnostic::{Anchor, Diagnostic, Severity, accepted, sort};
use crate::config::job::Rules;
use crate::config::set::{Claim, JobSet, load_files, load_folder};
use crate::model::checkpoint::Scheme;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Exit code: nothing but warnings.
const GOOD: u8 = 0;
/// Exit code: a file is not valid.
const NOT_VALID: u8 = 5;

/// How findings are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people: place, message, source line, mend.
    Text,
    /// One JSON document.
    Json,
}

/// What is to be checked.
#[derive(Debug, Clone)]
pub struct Request {
    /// `--config`; `None` is the usual place, which may be empty if files are named.
    pub config: Option<PathBuf>,
    /// Job files, or folders of them; none is the daemon file's `jobs_directory`.
    pub files: Vec<PathBuf>,
    /// How findings are shown.
    pub form: Form,
}

/// Checks, writes the findings to `out`, and returns the exit code.
pub fn check(request: &Request, around: &Surroundings, out: &mut dyn Write) -> io::Result<u8> {
    let (diagnostics, set) = findings(request, around);
    let files = 1 + set.accepted.len() + set.rejected.len();
    let count = |severity| diagnostics.iter().filter(|d| d.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    match request.form {
        Form::Text => {
            for diagnostic in &diagnostics {
                writeln!(out, "{diagnostic}")?;
            }
            let (e, w, f) = (plural(errors), plural(warnings), plural(files));
            writeln!(out, "{errors} error{e}, {warnings} warning{w} in {files} file{f}")?;
        }
        Form::Json => {
            let found: Vec<serde_json::Value> = diagnostics.iter().map(Diagnostic::json).collect();
            let document = serde_json::json!({
                "apiVersion": "v1",
                "errors": errors,
                "warnings": warnings,
                "files": files,
                "diagnostics": found,
            });
            writeln!(out, "{document:#}")?;
        }
    }
    Ok(if accepted(&diagnostics) { GOOD } else { NOT_VALID })
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The job files of a command that needs them right.
pub(super) fn read(
    files: &[PathBuf],
    console: &mut Console<'_>,
) -> Result<(JobSet, Option<Exit>), Failure> {
    let config = console.global.config.clone();
    let request = Request { config, files: files.to_vec(), form: Form::Text };
    let (diagnostics, set) = findings(&request, &Surroundings::of_this_process());
    for error in diagnostics.iter().filter(|one| one.severity == Severity::Error) {
        console.out.flush()?;
        writeln!(console.err, "{error}")?;
    }
    Ok((set, (!accepted(&diagnostics)).then_some(Exit::ConfigNotValid)))
}

/// Everything that was found, and what the job files ask for.
fn findings(request: &Request, around: &Surroundings) -> (Vec<Diagnostic>, JobSet) {
    let config = request.config.clone().unwrap_or_else(|| DAEMON_FILE.into());
    let usual = request.config.is_none() && !request.files.is_empty();
    let daemon = if usual && !config.exists() {
        let message = "there is no daemon file: targets and secrets were not checked";
        let at = Anchor::whole(&config);
        let mend = "name one with --config";
        let warning = Diagnostic::warning(at, codes::UNREADABLE, message, mend);
        DaemonFile { draft: None, diagnostics: vec![warning] }
    } else {
        load_daemon(&config, around)
    };
    let rules = daemon.draft.as_ref().map_or(Rules::unknown(), Rules::of);
    let set = if request.files.is_empty() {
        let folder = daemon.draft.as_ref().map(|draft| &draft.jobs_directory);
        folder.map_or_else(JobSet::default, |folder| load_folder(folder, rules))
    } else {
        let jobs = request.files.iter().filter(|path| !same_file(path, &config));
        load_files(&jobs.cloned().collect::<Vec<_>>(), rules)
    };
    let mut diagnostics = daemon.diagnostics;
    // Not wrong before the first start, so that a fresh file can be checked.
    if let Some(Err(mut missing)) = daemon.draft.as_ref().map(|draft| draft.require_owner(&config))
    {
        missing.severity = Severity::Warning;
        diagnostics.push(*missing);
    }
    diagnostics.extend(set.diagnostics.iter().cloned());
    diagnostics.extend(set.claims.iter().filter_map(no_folder));
    sort(&mut diagnostics);
    (diagnostics, set)
}

/// A folder of checkpoints that is not there on this machine: the daemon could not look into it.
fn no_folder(claim: &Claim) -> Option<Diagnostic> {
    let folder = match claim.location.scheme {
        Scheme::File => Path::new("/").join(&claim.location.prefix),
        Scheme::S3 | Scheme::Oss => return None,
    };
    if folder.is_dir() {
        return None;
    }
    let message = format!("{} is no folder of this machine: is it mounted?", folder.display());
    let mend = "mount it or make it, where the daemon runs; a job that cannot be looked at waits";
    Some(Diagnostic::warning(claim.at.clone(), codes::NO_FOLDER, message, mend))
}

fn same_file(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
