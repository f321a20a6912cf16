//! References to secrets: a file name below `job_secrets`. A check looks at name, kind, mode and
//! size alone; the value is read at the send, by the one who sends.

use crate::model::secret::Secret;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Bytes of one secret.
pub const SECRET_BYTES: u64 = 16 * 1024;

/// Whether `name` can only be a file directly below the folder of secrets.
pub fn check_name(name: &str) -> Result<(), &'static str> {
    if name.is_empty() || name.len() > 255 {
        return Err("a file name has 1 to 255 characters");
    }
    if name.starts_with('.') {
        return Err("a secret's name does not start with a dot");
    }
    if name.contains(['/', '\\']) || name.chars().any(char::is_control) {
        return Err("only a file name, not a path: the file lies directly below `job_secrets`");
    }
    Ok(())
}

/// Whether `folder`/`name` can be used as a secret; its size in bytes.
pub fn check_file(folder: &Path, name: &str) -> Result<u64, String> {
    let path = folder.join(name);
    let meta = std::fs::symlink_metadata(&path)
        .map_err(|e| format!("{} cannot be looked at: {e}", path.display()))?;
    check_meta(&path, &meta)?;
    Ok(meta.len())
}

/// The value behind `name`, without the line end. What was opened is what is checked, so that a
/// file that is changed for another one meanwhile gets nothing through.
pub fn read(folder: &Path, name: &str) -> Result<Secret, String> {
    check_name(name).map_err(str::to_owned)?;
    let path = folder.join(name);
    let failed = |e: std::io::Error| format!("{} cannot be read: {e}", path.display());
    let file = open(&path).map_err(failed)?;
    check_meta(&path, &file.metadata().map_err(failed)?)?;
    let mut bytes = Vec::new();
    let read = file.take(SECRET_BYTES + 1).read_to_end(&mut bytes);
    let secret = Secret::of_bytes(bytes);
    read.map_err(failed)?;
    let secret = secret.ok_or_else(|| format!("{} is no text", path.display()))?;
    if secret.expose().len() as u64 > SECRET_BYTES {
        return Err(format!("{} is larger than {SECRET_BYTES} bytes", path.display()));
    }
    let value = secret.expose().strip_suffix('\n').unwrap_or(secret.expose());
    Ok(Secret::new(value.strip_suffix('\r').unwrap_or(value)))
}

/// Opens what is no link; without waiting, should it be a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn check_meta(path: &Path, meta: &Metadata) -> Result<(), String> {
    let wrong = if meta.is_symlink() {
        "is a symbolic link".to_owned()
    } else if !meta.is_file() {
        "is not a regular file".to_owned()
    } else if is_open_to_everybody(meta) {
        "can be read by everybody".to_owned()
    } else if meta.len() > SECRET_BYTES {
        format!("is larger than {SECRET_BYTES} bytes")
    } else {
        return Ok(());
    };
    Err(format!("{} {wrong}", path.display()))
}

/// Whether the mode lets everybody read or write.
pub fn is_open_to_everybody(meta: &Metadata) -> bool {
    meta.permissions().mode() & 0o006 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_never_leaves_the_folder() {
        assert!(check_name("hf-token").is_ok() && check_name("a..b").is_ok());
        for bad in ["", ".", "..", "a/b", "../x", "/etc/shadow", ".hidden", "a\nb", "a\\b"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn only_a_private_regular_file_is_a_secret() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "abc").expect("written");
        let mode = |bits| {
            let permissions = std::fs::Permissions::from_mode(bits);
            std::fs::set_permissions(&path, permissions).expect("mode");
        };
        mode(0o640);
        assert_eq!(check_file(folder.path(), "token"), Ok(3));
        mode(0o644);
        assert!(check_file(folder.path(), "token").is_err_and(|why| why.contains("everybody")));
        std::os::unix::fs::symlink(&path, folder.path().join("link")).expect("linked");
        assert!(check_file(folder.path(), "link").is_err_and(|why| why.contains("symbolic")));
        std::fs::create_dir(folder.path().join("dir")).expect("made");
        assert!(check_file(folder.path(), "dir").is_err_and(|why| why.contains("regular")));
        assert!(check_file(folder.path(), "none").is_err());
    }

    #[test]
    fn what_is_read_is_checked_again_whatever_stands_there_by_then() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let put = |name: &str, bytes: &[u8], mode| {
            std::fs::write(at(name), bytes).expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(at(name), mode).expect("mode");
        };
        put("good", b"abc\r\n", 0o600);
        assert_eq!(read(folder.path(), "good").expect("a secret").expose(), "abc");
        put("open", b"abc", 0o644);
        put("large", &vec![b'x'; 20_000], 0o600);
        put("bytes", b"abc\xff", 0o600);
        std::os::unix::fs::symlink(at("good"), at("link")).expect("linked");
        let pipe = std::process::Command::new("mkfifo").arg("-m600").arg(at("pipe")).status();
        assert!(pipe.expect("it runs").success());
        for bad in ["open", "large", "bytes", "link", "pipe", "none", "../good", "/etc/shadow", "."]
        {
            let why = read(folder.path(), bad).expect_err(bad);
            assert!(!why.contains("abc"), "{why}");
        }
    }
}
