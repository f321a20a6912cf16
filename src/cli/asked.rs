//! Acts while no daemon runs: written down beside its state, and taken at its next start before
//! anything is submitted.

use super::output::{Format, as_json};
use super::text::plain;
use super::{Console, Exit, Failure};
use crate::api::wire::{WrittenDocument, WrittenDown, document};
use crate::config::{DAEMON_FILE, Surroundings, load_daemon};
use crate::model::ids::JobName;
use crate::store::StoreError;
use crate::store::asked::{self, Asked, Names, Wish};
use std::io;
use std::path::{Path, PathBuf};

/// What is said of each job.
const TAKEN_AT_START: &str =
    "written down; applied when the daemon starts, before anything is submitted";

/// Writes `wish` down, where `failure` says that no daemon runs. Any other failure stays what it is.
pub(super) fn write_down(
    failure: Failure,
    wish: Wish,
    names: Names,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let state = state_of_the_stopped(&failure, console).ok_or(failure)?;
    if let Names::These(names) = &names
        && let Some(name) = names.iter().find(|name| JobName::new(name.as_str()).is_err())
    {
        return Err(Failure::NoSuchJob { name: name.clone(), near: Vec::new() });
    }
    let asked = Asked::new(wish, names, console.moment.now.to_string());
    let file = asked::write(&state, &asked).map_err(|cause| not_written(&state, cause))?;
    show(&asked, &file, console)?;
    Ok(Exit::Done)
}

/// Whether nobody runs who could do it now, so that it would be written down.
pub(super) fn is_stopped(failure: &Failure, console: &Console<'_>) -> bool {
    state_of_the_stopped(failure, console).is_some()
}

/// The state folder of the daemon that does not run; `None` where that cannot be said: another
/// socket was named than that of the daemon file, or there is no state.
fn state_of_the_stopped(failure: &Failure, console: &Console<'_>) -> Option<PathBuf> {
    let Failure::NotReachable { socket, .. } = failure else { return None };
    let path = console.global.config.as_deref().unwrap_or(Path::new(DAEMON_FILE));
    let draft = load_daemon(path, &Surroundings::of_this_process()).draft?;
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let is_its = absolute(&draft.socket) == absolute(socket);
    (is_its && draft.state_directory.is_dir()).then_some(draft.state_directory)
}

fn not_written(state: &Path, cause: StoreError) -> Failure {
    let is_denied = matches!(&cause, StoreError::Folder { source, .. }
        if source.kind() == io::ErrorKind::PermissionDenied);
    let why = if matches!(cause, StoreError::Locked { .. }) {
        "a daemon holds the state and does not answer: it starts or stops, try again in a moment"
    } else if is_denied {
        "this user may not write there: ask as the user of the daemon, or as root"
    } else {
        "it cannot be written"
    };
    Failure::NotWrittenDown { state: state.to_owned(), why, cause }
}

fn show(asked: &Asked, file: &Path, console: &mut Console<'_>) -> Result<(), Failure> {
    let (jobs, all) = match &asked.names {
        Names::All => (Vec::new(), true),
        Names::These(names) => (names.clone(), false),
    };
    let verb = match asked.wish {
        Wish::Cancel => "cancel",
        Wish::Pause => "pause",
        Wish::Resume => "resume",
        Wish::Retry | Wish::RetryFrom(_) => "retry",
        Wish::Adopt(_) => "adopt",
        Wish::Forget => "forget",
    };
    let text = format!("{verb}: {TAKEN_AT_START}");
    let (file, awaited) = (file.display().to_string(), vec!["the start of the daemon".to_owned()]);
    let written_down = WrittenDown {
        verb: verb.to_owned(),
        jobs: jobs.clone(),
        all,
        file,
        text: text.clone(),
        awaited,
    };
    let whole = document(&WrittenDocument { done: Vec::new(), written_down });
    match (console.format, as_json(&whole, console.format)) {
        (_, Some(json)) => write!(console.out, "{json}")?,
        (Format::Name, None) => {
            for job in jobs {
                writeln!(console.out, "{}", plain(&job))?;
            }
        }
        (_, None) if all => writeln!(console.out, "all jobs that are not over  {text}")?,
        (_, None) => {
            for job in jobs {
                writeln!(console.out, "{}  {text}", plain(&job))?;
            }
        }
    }
    Ok(())
}
