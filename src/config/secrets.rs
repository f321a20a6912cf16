//! References to secrets: a file name below `job_secrets`. The value is read at the send, by the
//! one who sends; here only the name and the file's kind and mode are looked at.

use std::os::unix::fs::PermissionsExt as _;
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
    if meta.is_symlink() {
        return Err(format!("{} is a symbolic link", path.display()));
    }
    if !meta.is_file() {
        return Err(format!("{} is not a regular file", path.display()));
    }
    if is_open_to_everybody(&meta) {
        return Err(format!("{} can be read by everybody", path.display()));
    }
    if meta.len() > SECRET_BYTES {
        return Err(format!("{} is larger than {SECRET_BYTES} bytes", path.display()));
    }
    Ok(meta.len())
}

/// Whether the mode lets everybody read or write.
pub fn is_open_to_everybody(meta: &std::fs::Metadata) -> bool {
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
}
