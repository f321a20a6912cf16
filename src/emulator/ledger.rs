//! The ledger: what really happened to which job, one JSON object a line, in the order in which
//! it happened. Whoever judges the promises reads this file alone.
//!
//! A line is synced before anything that follows from it can be seen: callers hold the one lock
//! around the emulator's state from [`Ledger::write`] until the state shows the change. The exact
//! bytes of each CreateJob body are kept in `requests/<sha256>.json`, synced before the line that
//! names them. Lines are never changed; a last line torn by a kill is cut off at the next start.

use crate::model::time::WallTime;
use crate::openapi::signature::sha256_hex;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Size of a ledger that is still read back at the start.
const LEDGER_LIMIT_BYTES: u64 = 4 * 1024 * 1024 * 1024;

/// What a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A job came into being.
    Create,
    /// Its status changed; ends have `end`.
    Status,
    /// Its machine is taken back.
    Release,
    /// StopJob was accepted.
    StopAsked,
    /// It ended and none of its processes is left.
    End,
    /// A CreateJob was answered without making a job.
    Refused,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Seconds since the emulator started.
    pub t: f64,
    /// Wall time, `YYYY-MM-DDTHH:MM:SSZ`.
    pub wall: String,
    /// What happened.
    pub event: Event,
    /// `JobId`; empty where none was made.
    pub job_id: String,
    /// `DisplayName`, as far as it could be read.
    pub display_name: String,
    /// Mark in the display name, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Status after the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// SHA-256 of the CreateJob body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_sha256: Option<String>,
    /// Path of the CreateJob body, relative to the ledger's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The market at that moment, as a fraction of list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discount: Option<f64>,
    /// Exit code of the job: of its first pod that did not end with 0, else 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    /// Release dialect, error code, or what set a release off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Entry {
    /// A line that tells no more than what and when.
    pub fn new(event: Event, t: f64, wall: WallTime) -> Self {
        Self {
            t: (t * 1000.0).round() / 1000.0,
            wall: wall.to_string(),
            event,
            job_id: String::new(),
            display_name: String::new(),
            mark: None,
            status: None,
            request_sha256: None,
            request: None,
            discount: None,
            exit: None,
            why: None,
        }
    }
}

/// Why the ledger cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The folder is in use by another emulator.
    #[error("{0} is in use by another emulator")]
    InUse(PathBuf),
    /// A file operation failed.
    #[error("{act} {path}")]
    File {
        /// What was tried.
        act: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: std::io::Error,
    },
    /// A line before the last is no ledger line.
    #[error("{path}:{line} is no ledger line")]
    Line {
        /// The ledger.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What the decoder says.
        #[source]
        source: serde_json::Error,
    },
    /// The ledger outgrew its limit.
    #[error("{0} is larger than {LEDGER_LIMIT_BYTES} bytes: start with a new folder")]
    TooLarge(PathBuf),
}

fn failed(act: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> LedgerError {
    move |source| LedgerError::File { act, path: path.to_owned(), source }
}

/// The open ledger of one folder.
#[derive(Debug)]
pub struct Ledger {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    /// Locked as long as the ledger is written, so that two emulators never share a folder.
    lock: File,
}

impl Ledger {
    /// Opens the ledger in `folder`, made if need be, and gives back the lines that are in it.
    ///
    /// # Errors
    /// [`LedgerError`], also when another emulator has the folder.
    pub fn open(folder: &Path) -> Result<(Self, Vec<Entry>), LedgerError> {
        let requests = folder.join("requests");
        std::fs::create_dir_all(&requests).map_err(failed("create", &requests))?;
        let lock_path = folder.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(failed("open", &lock_path))?;
        lock.try_lock().map_err(|_| LedgerError::InUse(folder.to_owned()))?;

        let path = folder.join("ledger.jsonl");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed("open", &path))?;
        let size = file.metadata().map_err(failed("look at", &path))?.len();
        if size > LEDGER_LIMIT_BYTES {
            return Err(LedgerError::TooLarge(path));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed("read", &path))?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut entries = Vec::new();
        for (index, line) in bytes[..whole].split(|byte| *byte == b'\n').enumerate() {
            if !line.is_empty() {
                entries.push(serde_json::from_slice(line).map_err(|source| LedgerError::Line {
                    path: path.clone(),
                    line: index + 1,
                    source,
                })?);
            }
        }
        let end = u64::try_from(whole).unwrap_or(u64::MAX);
        file.set_len(end).map_err(failed("cut the torn last line of", &path))?;
        file.seek(SeekFrom::End(0)).map_err(failed("go to the end of", &path))?;
        Ok((Self { folder: folder.to_owned(), path, file, lock }, entries))
    }

    /// Lets another emulator have the folder; this one must not write any more.
    pub fn release_folder(&mut self) {
        // A lock that cannot be given back ends with the process.
        drop(self.lock.unlock());
    }

    /// Appends lines and syncs them, all with one sync.
    ///
    /// # Errors
    /// [`LedgerError::File`]; nothing that follows from the lines may then be shown.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), LedgerError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for entry in entries {
            serde_json::to_writer(&mut bytes, entry)
                .map_err(std::io::Error::from)
                .map_err(failed("write", &self.path))?;
            bytes.push(b'\n');
        }
        self.file.write_all(&bytes).map_err(failed("write", &self.path))?;
        self.file.sync_data().map_err(failed("sync", &self.path))
    }

    /// Keeps the exact bytes of a CreateJob body; gives back its hash and its relative path.
    ///
    /// # Errors
    /// [`LedgerError::File`].
    pub fn keep_request(&self, body: &[u8]) -> Result<(String, String), LedgerError> {
        let hash = sha256_hex(body);
        let relative = format!("requests/{hash}.json");
        let path = self.folder.join(&relative);
        if !path.exists() {
            let part = self.folder.join(format!("requests/{hash}.part"));
            let mut file = File::create(&part).map_err(failed("create", &part))?;
            file.write_all(body).map_err(failed("write", &part))?;
            file.sync_data().map_err(failed("sync", &part))?;
            std::fs::rename(&part, &path).map_err(failed("rename", &part))?;
        }
        Ok((hash, relative))
    }

    /// A body that was kept before.
    ///
    /// # Errors
    /// [`LedgerError::File`].
    pub fn read_request(&self, relative: &str) -> Result<Vec<u8>, LedgerError> {
        let path = self.folder.join(relative);
        std::fs::read(&path).map_err(failed("read", &path))
    }
}

/// The mark at the end of a display name, `….sk<owner>-<mark>`.
pub fn mark_of(display_name: &str) -> Option<String> {
    use crate::model::ids::{Mark, Owner};
    let (front, mark) = display_name.rsplit_once('-')?;
    let (_, owner) = front.rsplit_once("sk")?;
    Owner::new(owner).ok()?;
    Mark::new(mark).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(job_id: &str) -> Entry {
        let mut entry = Entry::new(Event::Create, 1.0, WallTime(0));
        job_id.clone_into(&mut entry.job_id);
        entry
    }

    #[test]
    fn lines_come_back_and_a_torn_one_is_cut_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ledger.jsonl");
        {
            let (mut ledger, old) = Ledger::open(folder.path()).expect("opens");
            assert!(old.is_empty());
            ledger.write(&[entry("a"), entry("b")]).expect("written");
        }
        let mut bytes = std::fs::read(&path).expect("readable");
        bytes.extend(b"{\"t\":2,\"wa");
        std::fs::write(&path, bytes).expect("written");
        let (mut ledger, old) = Ledger::open(folder.path()).expect("opens");
        assert_eq!(old, [entry("a"), entry("b")]);
        ledger.write(&[entry("c")]).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("readable").lines().count(), 3);
        drop(ledger);
        std::fs::write(&path, "no\n{}\n").expect("written");
        assert!(matches!(Ledger::open(folder.path()), Err(LedgerError::Line { line: 1, .. })));
    }

    #[test]
    fn two_emulators_never_share_a_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let _first = Ledger::open(folder.path()).expect("opens");
        assert!(matches!(Ledger::open(folder.path()), Err(LedgerError::InUse(_))));
    }

    #[test]
    fn a_body_is_kept_byte_for_byte() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ledger, _) = Ledger::open(folder.path()).expect("opens");
        let body = b"{ \"a\": 0.4, \"a\":0.40 }";
        let (hash, relative) = ledger.keep_request(body).expect("kept");
        assert_eq!(ledger.read_request(&relative).expect("read"), body);
        assert_eq!(relative, format!("requests/{hash}.json"));
    }

    #[test]
    fn a_mark_is_read_off_the_end_of_a_name() {
        assert_eq!(mark_of("llama-7b.skk3f9qz-abcdefgh27").as_deref(), Some("abcdefgh27"));
        assert_eq!(mark_of("sample-spot-job"), None);
        assert_eq!(mark_of("x.skk3f9qz-short"), None);
    }
}
