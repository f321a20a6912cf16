//! `spotkeeper init`: gives this installation its owner id, and its daemon file and jobs folder if
//! they are absent.
//!
//! An existing daemon file keeps every byte; only the owner line is added. Its owner is never
//! replaced: with another owner, the daemon would not know its own jobs in the cloud.

use crate::config::daemon::{DAEMON_FILE, Surroundings, load_daemon};
use crate::config::diagnostic::accepted;
use crate::model::ids::Owner;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// Exit code: done.
const DONE: u8 = 0;
/// Exit code: it could not be done.
const FAILED: u8 = 1;
/// Exit code: the daemon file is not valid.
const NOT_VALID: u8 = 5;

/// What a fresh daemon file says.
const TEMPLATE: &str = include_str!("../../config/spotkeeper.toml");
/// The commented line below which the owner goes, if the file has it.
const OWNER_COMMENT: &str = "# owner";
/// Where a daemon file that is not at the usual place keeps its things: beside itself, so that no
/// root is needed. The first text is how the template has the key, commented out.
const BESIDE: [(&str, &str); 4] = [
    ("# state_directory = \"/var/lib/spotkeeper\"", "state_directory = \"state\""),
    ("# jobs_directory = \"/etc/spotkeeper/jobs.d\"", "jobs_directory = \"jobs.d\""),
    ("# job_secrets = \"/etc/spotkeeper/secrets\"", "job_secrets = \"secrets\""),
    ("# socket = \"/run/spotkeeper/api.sock\"", "socket = \"api.sock\""),
];
/// Mode of a fresh daemon file: it names places, no keys.
const FILE_MODE: u32 = 0o644;

/// Writes the owner; says what it did on `out`. Returns the exit code.
pub fn init(
    config: Option<&Path>,
    around: &Surroundings,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let path = config.unwrap_or(Path::new(DAEMON_FILE));
    let mut random = [0; 6];
    if let Err(cause) = getrandom::fill(&mut random) {
        writeln!(err, "no randomness for an owner id: {cause}")?;
        return Ok(FAILED);
    }
    let owner = Owner::from_random(random);
    let done = match fs::symlink_metadata(path) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => create(path, &owner),
        _ => match add_owner(path, &owner, around, err)? {
            Some(code) => return Ok(code),
            None => Ok(()),
        },
    };
    if let Err(cause) = done {
        writeln!(err, "{}: cannot be written: {cause}", path.display())?;
        return Ok(FAILED);
    }
    writeln!(out, "{}: owner {owner}", path.display())?;
    jobs_folder(path, around, out, err)
}

fn create(path: &Path, owner: &Owner) -> io::Result<()> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder)?;
    }
    let mut text = TEMPLATE.to_owned();
    if path != Path::new(DAEMON_FILE) {
        for (usual, beside) in BESIDE {
            text = text.replacen(usual, beside, 1);
        }
    }
    replace(path, &with_owner(&text, owner), None)
}

/// Adds the owner line to an existing file. An exit code is a refusal, already explained.
fn add_owner(
    path: &Path,
    owner: &Owner,
    around: &Surroundings,
    err: &mut dyn Write,
) -> io::Result<Option<u8>> {
    let shown = path.display();
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(cause) => {
            writeln!(err, "{shown}: cannot be read: {cause}")?;
            return Ok(Some(FAILED));
        }
    };
    let file = load_daemon(path, around);
    let has_one = toml::from_str::<toml::Table>(&before).is_ok_and(|t| t.contains_key("owner"));
    if has_one {
        let why = "keep it, or the daemon no longer knows its own jobs";
        writeln!(err, "{shown}: there is an owner already; {why}")?;
        return Ok(Some(FAILED));
    }
    if !accepted(&file.diagnostics) {
        for diagnostic in &file.diagnostics {
            writeln!(err, "{diagnostic}")?;
        }
        writeln!(err, "{shown}: mend it first; nothing was changed")?;
        return Ok(Some(NOT_VALID));
    }
    // The file itself, not a symbolic link to it, is what gets replaced.
    let written = path.canonicalize().and_then(|real| {
        let meta = fs::metadata(&real)?;
        replace(&real, &with_owner(&before, owner), Some(&meta))
    });
    if let Err(cause) = written {
        writeln!(err, "{shown}: cannot be written: {cause}")?;
        return Ok(Some(FAILED));
    }
    Ok(None)
}

/// The text with an owner line below the commented one, or else at its top.
fn with_owner(text: &str, owner: &Owner) -> String {
    let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let line = format!("owner = \"{owner}\"{ending}");
    let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut end = 0;
    for part in text.split_inclusive('\n') {
        end += part.len();
        if part.starts_with(OWNER_COMMENT) && part.ends_with('\n') {
            at = end;
            break;
        }
        // Comments and blank lines alone: behind anything else, a line may belong to a table or
        // stand inside a text.
        if !(part.trim().is_empty() || part.trim_start_matches('\u{feff}').starts_with('#')) {
            break;
        }
    }
    format!("{}{line}{}", &text[..at], &text[at..])
}

/// Puts `text` in place of `path` in one step, with the owner and mode of what was there.
fn replace(path: &Path, text: &str, like: Option<&fs::Metadata>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let fresh = path.with_file_name(name);
    let written = write_fresh(&fresh, text, like).and_then(|()| fs::rename(&fresh, path));
    if let Err(cause) = written {
        // Best effort: the failure that is told is the first one.
        fs::remove_file(&fresh).unwrap_or_default();
        return Err(cause);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn write_fresh(fresh: &Path, text: &str, like: Option<&fs::Metadata>) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(fresh)?;
    file.write_all(text.as_bytes())?;
    if let Some(meta) = like {
        let ours = file.metadata()?;
        if (ours.uid(), ours.gid()) != (meta.uid(), meta.gid()) {
            fchown(&file, Some(meta.uid()), Some(meta.gid()))?;
        }
        file.set_permissions(meta.permissions())?;
    }
    file.sync_all()
}

fn jobs_folder(
    path: &Path,
    around: &Surroundings,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let folder: Option<PathBuf> = load_daemon(path, around).draft.map(|d| d.jobs_directory);
    let Some(folder) = folder else { return Ok(FAILED) };
    let shown = folder.display();
    if folder.is_dir() {
        writeln!(out, "{shown}: job files go here")?;
    } else if let Err(cause) = fs::create_dir_all(&folder) {
        writeln!(err, "{shown}: cannot be made: {cause}")?;
        return Ok(FAILED);
    } else {
        writeln!(out, "{shown}: made; job files go here")?;
    }
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner::new("k3f9qz").expect("an owner")
    }

    #[test]
    fn the_template_has_every_key_that_is_moved() {
        for (usual, _) in BESIDE {
            assert_eq!(TEMPLATE.matches(&format!("\n{usual}\n")).count(), 1, "{usual}");
        }
    }

    #[test]
    fn the_owner_line_never_lands_in_a_table_or_a_text() {
        for (before, after) in [
            ("", "owner = \"k3f9qz\"\n"),
            ("# a\n[api]\n", "owner = \"k3f9qz\"\n# a\n[api]\n"),
            ("# x\n# owner = 1\n\n[api]\n", "# x\n# owner = 1\nowner = \"k3f9qz\"\n\n[api]\n"),
            ("[api]\n# owner\n", "owner = \"k3f9qz\"\n[api]\n# owner\n"),
            ("a = \"\"\"\n# owner\n\"\"\"", "owner = \"k3f9qz\"\na = \"\"\"\n# owner\n\"\"\""),
            ("a = 1\r\n", "owner = \"k3f9qz\"\r\na = 1\r\n"),
            ("\u{feff}a = 1\n", "\u{feff}owner = \"k3f9qz\"\na = 1\n"),
            ("# owner", "owner = \"k3f9qz\"\n# owner"),
        ] {
            assert_eq!(with_owner(before, &owner()), after);
        }
    }
}
