//! What can go wrong with the store.

use std::io;
use std::path::PathBuf;

use super::batch::{BATCH_LIMIT_BYTES, KEY_LIMIT_BYTES, VALUE_LIMIT_BYTES};
use super::blobs::{BLOB_LIMIT_BYTES, BLOBS_LIMIT_BYTES};
use super::engine::EngineError;
use super::{GROUP_LIMIT_BATCHES, GROUP_LIMIT_BYTES};
use crate::model::error::Class;
use crate::model::ids::Digest;

/// An error of the store. Each says which operation failed on what.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process (or another open store of this one) holds the folder: exit code 8.
    #[error("state folder {} is held by another instance{}", path.display(), by(*pid))]
    Locked {
        /// The real folder.
        path: PathBuf,
        /// The holder, where its lock file could be read.
        pid: Option<u32>,
    },
    /// Something about the state folder itself failed.
    #[error("state folder {}: could not {operation}", path.display())]
    Folder {
        /// What was tried.
        operation: &'static str,
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The folder is one that many share (sticky bit), so it cannot be made private.
    #[error(
        "state folder {} is shared by everybody (sticky bit): name a folder of its own",
        path.display()
    )]
    SharedFolder {
        /// The folder.
        path: PathBuf,
    },
    /// Root would leave files there that the folder's own user cannot open.
    #[error(
        "state folder {} belongs to the user with uid {uid}: root does not write into it; \
         use `systemctl start spotkeeper`, or `sudo -u '#{uid}' spotkeeper …`",
        path.display()
    )]
    OthersFolder {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// A snapshot is to be written where something is already.
    #[error("{} is not empty: name a folder that does not exist", path.display())]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// A file of a snapshot is not what was written.
    #[error("{} is damaged: {why}; nothing was changed", path.display())]
    SnapshotDamaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A newer version of the program wrote the state.
    #[error(
        "{file} has store format {found}, this program knows formats up to {known}: \
         use the newer program, or restore a backup of the state folder made before the update"
    )]
    NewerFormat {
        /// The file or engine that says so.
        file: String,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The table of migrations has no step away from a format.
    #[error("there is no migration from store format {from}")]
    NoMigration {
        /// The format.
        from: u32,
    },
    /// A migration made a record that the store does not take.
    #[error("migration from store format {from} made a record that is refused")]
    Migration {
        /// The format.
        from: u32,
        /// The refusal.
        source: Box<StoreError>,
    },
    /// A file of the store could not be read or written.
    #[error("could not {operation} {name}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file, below the state folder.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The engine failed.
    #[error("engine: could not {operation}")]
    Engine {
        /// What was tried.
        operation: &'static str,
        /// The cause.
        source: EngineError,
    },
    /// No copy of the state could be brought into the engine.
    #[error("the state could not be rebuilt from {from}")]
    Rebuild {
        /// The backup that passed its tests a moment ago.
        from: String,
    },
    /// A key outside 1 to 256 bytes.
    #[error("a key has {bytes} bytes; 1 to {KEY_LIMIT_BYTES} are allowed")]
    KeyLength {
        /// Its bytes.
        bytes: usize,
    },
    /// A value over the limit.
    #[error("the value of {key} has {bytes} bytes; {VALUE_LIMIT_BYTES} are allowed")]
    ValueTooLarge {
        /// The key.
        key: String,
        /// The value's bytes.
        bytes: usize,
    },
    /// A batch over the limit.
    #[error("a batch would have {bytes} bytes; {BATCH_LIMIT_BYTES} are allowed")]
    BatchTooLarge {
        /// Its bytes with the refused change.
        bytes: usize,
    },
    /// A group over the limit.
    #[error(
        "a group has {batches} batches of {bytes} bytes; \
         {GROUP_LIMIT_BATCHES} of {GROUP_LIMIT_BYTES} are allowed"
    )]
    GroupTooLarge {
        /// Batches in it.
        batches: usize,
        /// Their bytes.
        bytes: usize,
    },
    /// Somebody else committed since the caller looked: nothing was written.
    #[error("fenced: the caller expected sequence {expected}, the store is at {found}")]
    Fenced {
        /// What the caller believed.
        expected: u64,
        /// Where the store is.
        found: u64,
    },
    /// An earlier write failed; the store has to be opened again.
    #[error("the store takes no calls until it is opened again, because {why}")]
    Poisoned {
        /// The failure.
        why: String,
    },
    /// The store was closed, or its thread ended.
    #[error("the store is closed")]
    Closed,
    /// The thread that owns the store could not be started.
    #[error("could not start the store's thread")]
    Thread {
        /// The cause.
        source: io::Error,
    },
    /// A blob over the limit.
    #[error("a blob has {bytes} bytes; {BLOB_LIMIT_BYTES} are allowed")]
    BlobTooLarge {
        /// Its bytes.
        bytes: u64,
    },
    /// All blobs together are at their limit: sweep, then try again.
    #[error("the blobs have {bytes} bytes; {BLOBS_LIMIT_BYTES} are allowed in all")]
    BlobsFull {
        /// Bytes of all blobs, the refused one included.
        bytes: u64,
    },
    /// No blob of this name.
    #[error("there is no blob {}", digest.0)]
    BlobMissing {
        /// The name.
        digest: Digest,
    },
    /// The file's content is not what its name says.
    #[error("blob {} is damaged", digest.0)]
    BlobDamaged {
        /// The name.
        digest: Digest,
    },
    /// A text that is no SHA-256 in lower-case hex.
    #[error("`{text}` is not the name of a blob")]
    BadDigest {
        /// The text.
        text: String,
    },
}

fn by(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

impl StoreError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Locked { .. }
            | Self::SharedFolder { .. }
            | Self::OthersFolder { .. }
            | Self::NotEmpty { .. }
            | Self::SnapshotDamaged { .. }
            | Self::NewerFormat { .. }
            | Self::BlobMissing { .. }
            | Self::BlobDamaged { .. } => Class::Operator,
            Self::Folder { source, .. }
            | Self::File { source, .. }
            | Self::Thread { source }
            | Self::Engine { source: EngineError::Io { source }, .. } => class_of_io(source),
            Self::Engine {
                source: EngineError::Damaged { .. } | EngineError::Panicked { .. },
                ..
            }
            | Self::Poisoned { .. }
            | Self::BlobsFull { .. }
            | Self::Rebuild { .. } => Class::Wait,
            Self::Fenced { .. } => Class::Retry,
            Self::NoMigration { .. }
            | Self::Migration { .. }
            | Self::KeyLength { .. }
            | Self::ValueTooLarge { .. }
            | Self::BatchTooLarge { .. }
            | Self::GroupTooLarge { .. }
            | Self::BlobTooLarge { .. }
            | Self::BadDigest { .. }
            | Self::Closed => Class::Bug,
        }
    }

    /// The error and its causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    pub(super) fn file(
        operation: &'static str,
        name: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> Self {
        let name = name.into();
        move |source| Self::File { operation, name, source }
    }

    pub(super) fn engine(operation: &'static str) -> impl FnOnce(EngineError) -> Self {
        move |source| Self::Engine { operation, source }
    }
}

/// Permissions and wrong kinds of file need a person; a full or failing disk is waited for.
fn class_of_io(error: &io::Error) -> Class {
    let needs_person = [
        io::ErrorKind::PermissionDenied,
        io::ErrorKind::NotADirectory,
        io::ErrorKind::IsADirectory,
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::Unsupported,
        io::ErrorKind::InvalidInput,
        io::ErrorKind::NotFound,
        io::ErrorKind::FileTooLarge,
    ];
    if needs_person.contains(&error.kind()) { Class::Operator } else { Class::Wait }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_waited_for_and_a_forbidden_folder_needs_a_person() {
        let folder = |kind: io::ErrorKind| StoreError::Folder {
            operation: "create it",
            path: PathBuf::from("/s"),
            source: kind.into(),
        };
        assert_eq!(folder(io::ErrorKind::StorageFull).class(), Class::Wait);
        assert_eq!(folder(io::ErrorKind::PermissionDenied).class(), Class::Operator);
        assert_eq!(folder(io::ErrorKind::PermissionDenied).chain().matches(": ").count(), 2);
    }

    #[test]
    fn the_holder_is_named() {
        let error = StoreError::Locked { path: PathBuf::from("/s"), pid: Some(71) };
        assert_eq!(error.to_string(), "state folder /s is held by another instance (process 71)");
    }
}
