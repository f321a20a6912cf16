//! Addresses and keys, read from where they stand at the moment of a send.

use crate::model::alert::SecretRef;
use crate::model::secret::Secret;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use tokio::sync::Semaphore;

/// Bytes of one of them.
const LIMIT_BYTES: u64 = 16 * 1024;
/// Reads at one time. One from a file system that does not answer keeps its place, however long
/// that takes; so those that wait for nothing never use up the threads that others need.
const READS_LIMIT: usize = 4;

static READS: Semaphore = Semaphore::const_new(READS_LIMIT);

/// Why there is none. Never says what is in it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read.
    #[error("the secret in {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// There is nothing, or too much, or no text.
    #[error("the secret in {place} is empty, longer than {LIMIT_BYTES} bytes, or no text")]
    Content {
        /// Where it stands.
        place: String,
    },
    /// The read came to no end.
    #[error("the secret could not be read: the read was broken off")]
    BrokenOff,
    /// systemd passes no credentials on.
    #[error("systemd gives this process no credentials ($CREDENTIALS_DIRECTORY is not set)")]
    NoSystemd,
}

/// Reads a secret on a thread where waiting disturbs nobody. It may wait for ever, as files do; the
/// caller says how long that is borne.
///
/// # Errors
/// There is none, or it cannot be read.
pub async fn read(reference: &SecretRef) -> Result<Secret, SecretError> {
    let place = READS.acquire().await.map_err(|_| SecretError::BrokenOff)?;
    let reference = reference.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let _place = place;
        read_now(&reference)
    });
    reading.await.map_err(|_| SecretError::BrokenOff)?
}

fn read_now(reference: &SecretRef) -> Result<Secret, SecretError> {
    match reference {
        SecretRef::File(path) => read_file(path),
        SecretRef::Systemd(name) => {
            let folder = std::env::var_os("CREDENTIALS_DIRECTORY").ok_or(SecretError::NoSystemd)?;
            read_file(&Path::new(&folder).join(name))
        }
        SecretRef::Environment(name) => {
            let place = || SecretError::Content { place: format!("the variable {name}") };
            let value = std::env::var(name).map_err(|_| place())?;
            checked(&value).ok_or_else(place)
        }
    }
}

fn read_file(path: &Path) -> Result<Secret, SecretError> {
    let failed = |cause| SecretError::File { path: path.to_owned(), cause };
    let content = || SecretError::Content { place: path.display().to_string() };
    // Asked before opening: to open a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(content());
    }
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let read = file.take(LIMIT_BYTES + 1).read_to_end(&mut bytes);
    let text = Secret::of_bytes(bytes);
    read.map_err(failed)?;
    text.and_then(|text| checked(text.expose())).ok_or_else(content)
}

fn checked(text: &str) -> Option<Secret> {
    let fits = !text.trim().is_empty() && text.len() as u64 <= LIMIT_BYTES;
    fits.then(|| Secret::new(text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_without_the_line_end_and_its_faults_name_the_place_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hook");
        let file = SecretRef::File(path.clone());
        assert!(matches!(read_now(&file), Err(SecretError::File { .. })));
        std::fs::write(&path, "https://h/?access_token=abc\n").expect("written");
        assert_eq!(read_now(&file).expect("a secret").expose(), "https://h/?access_token=abc");
        for bad in ["", "\n \n", &"x".repeat(20_000)] {
            std::fs::write(&path, bad).expect("written");
            assert!(matches!(read_now(&file), Err(SecretError::Content { .. })));
        }
        let absent = SecretRef::Environment("SPOTKEEPER_NO_SUCH_SECRET".into());
        assert!(read_now(&absent).expect_err("not set").to_string().contains("NO_SUCH_SECRET"));
    }
}
