//! The socket that the daemon listens on.

use super::wire::codes;
use crate::model::error::{Class, Code};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use tokio::net::{UnixListener, UnixStream};

/// Mode of the socket: owner and group may speak to the daemon.
pub const SOCKET_MODE: u32 = 0o660;
/// Mode of its folder, where it has to be made.
pub const FOLDER_MODE: u32 = 0o750;

/// Why there is no socket to listen on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody answers on it.
    #[error("another daemon answers on {}", path.display())]
    Taken {
        /// The socket.
        path: PathBuf,
    },
    /// Something else stands in its place.
    #[error("{} is there and is no socket", path.display())]
    NotASocket {
        /// The place.
        path: PathBuf,
    },
    /// Its folder cannot be made.
    #[error("the folder {} cannot be made", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// Whether an old one is in use cannot be found out, or it cannot be removed.
    #[error("the old socket {} cannot be replaced", path.display())]
    Old {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It cannot be made.
    #[error("the socket {} cannot be made", path.display())]
    Make {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
}

impl BindError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        Class::Operator
    }

    /// Its page in docs/errors.
    pub fn code(&self) -> Code {
        match self {
            Self::Taken { .. } => codes::SOCKET_TAKEN,
            Self::NotASocket { .. }
            | Self::Folder { .. }
            | Self::Old { .. }
            | Self::Make { .. } => codes::SOCKET_FAILED,
        }
    }
}

/// Listens on `path`. An old socket is removed only if nobody answers on it. The store's lock, not
/// this, is what keeps two daemons apart.
pub async fn bind(path: &Path) -> Result<UnixListener, BindError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(FOLDER_MODE)
            .create(folder)
            .map_err(|cause| BindError::Folder { path: folder.to_owned(), cause })?;
    }
    remove_stale(path).await?;
    let make = |cause| BindError::Make { path: path.to_owned(), cause };
    let listener = UnixListener::bind(path).map_err(make)?;
    let mode = std::fs::Permissions::from_mode(SOCKET_MODE);
    std::fs::set_permissions(path, mode).map_err(make)?;
    Ok(listener)
}

async fn remove_stale(path: &Path) -> Result<(), BindError> {
    let old = |cause| BindError::Old { path: path.to_owned(), cause };
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) => there,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(old(cause)),
    };
    if !there.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match UnixStream::connect(path).await {
        Ok(_) => Err(BindError::Taken { path: path.to_owned() }),
        // A daemon whose queue of connections is full is alive.
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
            Err(BindError::Taken { path: path.to_owned() })
        }
        Err(cause) if cause.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(old)
        }
        Err(cause) => Err(old(cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn a_socket_is_made_with_its_folder_and_closed_to_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run/api.sock");
        let _listener = bind(&path).await.expect("a socket");
        assert_eq!(mode(&path), 0o660);
        assert_eq!(mode(&folder.path().join("run")) & 0o027, 0);
        UnixStream::connect(&path).await.expect("somebody listens");
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_one_that_answers_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("api.sock");
        let first = bind(&path).await.expect("a socket");
        let refused = bind(&path).await.expect_err("the first one answers");
        assert!(matches!(refused, BindError::Taken { .. }), "{refused}");
        assert_eq!(refused.code(), codes::SOCKET_TAKEN);
        UnixStream::connect(&path).await.expect("the first one still listens");
        drop(first);
        assert!(path.exists(), "a socket outlives its listener");
        bind(&path).await.expect("a stale socket is replaced");
    }

    #[tokio::test]
    async fn what_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("api.sock");
        std::fs::write(&path, "precious").expect("a file");
        let refused = bind(&path).await.expect_err("a file stands there");
        assert!(matches!(refused, BindError::NotASocket { .. }), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).expect("the file"), "precious");
    }
}
