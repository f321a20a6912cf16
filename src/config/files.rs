//! Reading files and folders, with limits. What cannot be read becomes a diagnostic.

use super::codes;
use super::diagnostic::{Anchor, Diagnostic, Source};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Bytes of one file.
pub(super) const FILE_BYTES: u64 = 1 << 20;
/// Job files of one folder.
pub(super) const FILES_IN_FOLDER: usize = 10_000;
/// Entries of a folder that are looked at, job files or not.
const ENTRIES_IN_FOLDER: usize = 100_000;

/// Reads a regular file of UTF-8 text.
pub fn read(path: &Path) -> Result<Source, Box<Diagnostic>> {
    let unreadable = |cause: String| {
        let mend = "make it a regular file that the daemon's user may read";
        Box::new(Diagnostic::error(Anchor::whole(path), codes::UNREADABLE, cause, mend))
    };
    // Asked before opening: to open a FIFO would wait for a writer.
    let meta = std::fs::metadata(path).map_err(|e| unreadable(format!("cannot be read: {e}")))?;
    if !meta.is_file() {
        return Err(unreadable("is not a regular file".into()));
    }
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|e| unreadable(format!("cannot be read: {e}")))?;
    if bytes.len() as u64 > FILE_BYTES {
        let message = format!("is larger than {FILE_BYTES} bytes");
        let mend = "a file of this kind holds one job; keep data elsewhere";
        let error = Diagnostic::error(Anchor::whole(path), codes::FILE_LIMIT, message, mend);
        return Err(Box::new(error));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Source::new(path, text)),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let at = Source::new(path, text).at(&(good..good + 1));
            let mend = "save the file as UTF-8";
            let message = "is not UTF-8 from here on";
            Err(Box::new(Diagnostic::error(at, codes::SYNTAX, message, mend)))
        }
    }
}

/// The same of a file that the daemon acts by: everybody who can write it could act for it.
pub(super) fn read_own(path: &Path) -> Result<Source, Box<Diagnostic>> {
    match open_to_all(path) {
        Some(error) => Err(Box::new(error)),
        None => read(path),
    }
}

/// The error of a file or folder that everybody can change.
fn open_to_all(path: &Path) -> Option<Diagnostic> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    // Clusters mount configuration with all rights, on a file system that nobody can write to.
    let nobody_can = || {
        let mounted = rustix::fs::statvfs(path);
        mounted.is_ok_and(|on| on.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
    };
    (mode & 0o002 != 0 && !nobody_can()).then(|| {
        let message = format!("can be changed by everybody (mode {:03o})", mode & 0o777);
        let mend = "chmod o-w, and look at what stands in it: others could have written it";
        Diagnostic::error(Anchor::whole(path), codes::OPEN_TO_ALL, message, mend)
    })
}

/// The job files of a folder, sorted by name: `*.toml`, without hidden and backup files.
pub(super) fn job_files(folder: &Path) -> (Vec<PathBuf>, Vec<Diagnostic>) {
    let at = || Anchor::whole(folder);
    let unreadable = |e: std::io::Error| {
        let mend = "make it a folder that the daemon's user may read";
        Diagnostic::error(at(), codes::UNREADABLE, format!("cannot be listed: {e}"), mend)
    };
    if let Some(error) = open_to_all(folder) {
        return (Vec::new(), vec![error]);
    }
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) => return (Vec::new(), vec![unreadable(e)]),
    };
    let (mut files, mut diagnostics) = (Vec::new(), Vec::new());
    for entry in entries.take(ENTRIES_IN_FOLDER) {
        match entry {
            Ok(entry) if is_job_file(&entry.file_name().to_string_lossy()) => {
                files.push(entry.path());
            }
            Ok(_) => {}
            Err(e) => {
                diagnostics.push(unreadable(e));
                break;
            }
        }
    }
    files.sort();
    if files.len() > FILES_IN_FOLDER {
        let message = format!("{} job files, at most {FILES_IN_FOLDER} are read", files.len());
        let mend = "the last ones by name are left out: move finished jobs elsewhere";
        diagnostics.push(Diagnostic::error(at(), codes::FILE_LIMIT, message, mend));
        files.truncate(FILES_IN_FOLDER);
    }
    (files, diagnostics)
}

/// Whether a file of this name in the jobs folder is a job file.
pub fn is_job_file(name: &str) -> bool {
    // Editors leave `.x.toml.swp`, `#x.toml#`, `x.toml~`, `.#x.toml`, `x~.toml`.
    let stem = name.strip_suffix(".toml");
    stem.is_some_and(|stem| {
        !stem.is_empty() && !stem.starts_with(['.', '#']) && !stem.ends_with('~')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_job_files_are_listed_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.toml", "a.toml", ".h.toml", "a.toml~", "#a.toml#", ".#a.toml", "x.json"] {
            std::fs::write(folder.path().join(name), "").expect("written");
        }
        let (files, diagnostics) = job_files(folder.path());
        let names: Vec<_> = files.iter().filter_map(|f| f.file_name()?.to_str()).collect();
        assert_eq!((names, diagnostics), (vec!["a.toml", "b.toml"], vec![]));
        let (files, diagnostics) = job_files(&folder.path().join("absent"));
        assert!(files.is_empty());
        assert_eq!(diagnostics[0].code, codes::UNREADABLE);
    }

    #[test]
    fn what_everybody_can_change_is_not_acted_by() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("x.toml");
        std::fs::write(&file, "a = 1").expect("written");
        let mode = |path: &Path, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).expect("mode");
        };
        for good in [0o400, 0o640, 0o664, 0o444] {
            mode(&file, good);
            assert!(read_own(&file).is_ok(), "{good:o}");
        }
        std::os::unix::fs::symlink(&file, folder.path().join("link")).expect("linked");
        for bad in [0o666, 0o602, 0o646] {
            mode(&file, bad);
            for path in [file.clone(), folder.path().join("link")] {
                assert_eq!(read_own(&path).expect_err("open").code, codes::OPEN_TO_ALL, "{bad:o}");
            }
        }
        assert!(read(&file).is_ok(), "what is only looked at may be anybody's");
        assert_eq!(job_files(folder.path()).0, [file]);
        for bad in [0o777, 0o1777] {
            mode(folder.path(), bad);
            let (files, found) = job_files(folder.path());
            assert!(files.is_empty());
            assert_eq!(found[0].code, codes::OPEN_TO_ALL, "{bad:o}");
        }
    }

    #[test]
    fn what_is_no_small_text_file_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("x.toml");
        std::fs::write(&path, b"a = 1\nb = '\xff'\n").expect("written");
        let diagnostic = read(&path).expect_err("not UTF-8");
        assert_eq!((diagnostic.at.line, diagnostic.at.column), (2, 6));
        std::fs::write(&path, vec![b'#'; 1 + usize::try_from(FILE_BYTES).expect("small")])
            .expect("written");
        assert_eq!(read(&path).expect_err("large").code, codes::FILE_LIMIT);
        assert_eq!(read(folder.path()).expect_err("a folder").code, codes::UNREADABLE);
        assert_eq!(read(&folder.path().join("no")).expect_err("absent").code, codes::UNREADABLE);
    }
}
