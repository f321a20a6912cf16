//! `spotkeeper state …`: the state folder of a stopped daemon as a thing to keep, examine, bring
//! back or take over. None of them speaks to the cloud.

use super::output::as_json;
use super::text::plain;
use super::{Console, Exit, Failure};
use crate::api::wire::document;
use crate::config::{DAEMON_FILE, Surroundings, load_daemon};
use crate::store::snapshot::{self, Examined, Snapshot};
use std::path::{Path, PathBuf};

/// What to do with the state.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum StateVerb {
    /// Write all of it into a new folder of plain files
    Snapshot {
        /// A folder that does not exist yet
        folder: PathBuf,
    },
    /// Read all of it, or a snapshot, and say what is damaged
    Verify {
        /// A snapshot [default: the state folder of the daemon file]
        folder: Option<PathBuf>,
    },
    /// Put a snapshot in the place of the state; what was there is renamed, not removed
    Restore {
        /// The snapshot
        folder: PathBuf,
    },
    /// Say that this copy of a state is the one in use: no daemon runs on its original any more
    Claim,
}

/// Does it.
pub fn state(verb: &StateVerb, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match verb {
        StateVerb::Snapshot { folder } => {
            let made = snapshot::snapshot(&state_folder(console)?, folder)?;
            show_snapshot(console, &made)?;
            console.remark(&format!("Written to {}.", plain(&folder.display().to_string())))?;
            Ok(Exit::Done)
        }
        StateVerb::Verify { folder } => {
            let folder = folder.clone().map_or_else(|| state_folder(console), Ok)?;
            show_examined(console, &snapshot::verify(&folder)?)
        }
        StateVerb::Restore { folder } => {
            let restored = snapshot::restore(folder, &state_folder(console)?)?;
            show_snapshot(console, &restored)?;
            console.remark(
                "Restored. At its next start the daemon first compares everything with the cloud, \
                 and waits until nothing that was sent since the snapshot can still arrive.",
            )?;
            Ok(Exit::Done)
        }
        StateVerb::Claim => {
            let folder = state_folder(console)?;
            snapshot::claim(&folder)?;
            console.remark(&format!(
                "The state in {} is at home here. A daemon on another copy of it has to stay off.",
                plain(&folder.display().to_string())
            ))?;
            Ok(Exit::Done)
        }
    }
}

fn show_snapshot(console: &mut Console<'_>, shown: &Snapshot) -> Result<(), Failure> {
    let text = as_json(&document(shown), console.format).unwrap_or_else(|| {
        format!(
            "sequence {}, {} records, {} blobs\n",
            shown.sequence,
            shown.records,
            shown.blobs.len()
        )
    });
    Ok(write!(console.out, "{text}")?)
}

fn show_examined(console: &mut Console<'_>, found: &Examined) -> Result<Exit, Failure> {
    let text = as_json(&document(found), console.format).unwrap_or_else(|| {
        let count = found.flaws.len();
        let head =
            format!("sequence {}, {} files read, {count} flaws", found.sequence, found.files);
        let flaws = found.flaws.iter().map(|flaw| format!("{}: {}", flaw.file, flaw.why));
        let lines = std::iter::once(head).chain(flaws);
        lines.map(|line| plain(&line).into_owned() + "\n").collect()
    });
    write!(console.out, "{text}")?;
    Ok(if found.flaws.is_empty() { Exit::Done } else { Exit::Error })
}

/// The state folder of the daemon file.
fn state_folder(console: &Console<'_>) -> Result<PathBuf, Failure> {
    let path = console.global.config.as_deref().unwrap_or(Path::new(DAEMON_FILE));
    let file = load_daemon(path, &Surroundings::of_this_process());
    if let Some(draft) = file.draft {
        return Ok(draft.state_directory);
    }
    let first = file.diagnostics.first();
    let why = first.map_or(String::new(), |d| format!("{}; {}", d.message, d.mend));
    Err(Failure::DaemonFile { path: path.to_owned(), why })
}
