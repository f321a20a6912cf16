//! The file operations of the store behind a narrow surface, so that the same code runs on a
//! folder and on a simulated disk that tears, fills and forgets.
//!
//! Names are relative, of at most one folder (`blobs/…`). Only [`Disk::append`] leaves something
//! that a power cut may take; every other change is durable when its call returns.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What a file that is being written is called until it is whole.
pub(super) const ASIDE: &str = ".aside";

/// Writes the content of a file.
pub type Fill<'a> = &'a mut dyn FnMut(&mut dyn Write) -> io::Result<()>;

/// A file in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name in the listed folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Orders files by when they were written; says nothing else.
    pub age_order: u128,
}

/// File operations below one folder.
pub trait Disk: Send {
    /// Plain files of a folder (`""` is the top), in order of their names; a folder that does not
    /// exist has none.
    fn list(&self, folder: &str) -> io::Result<Vec<Listed>>;
    /// Opens a file for reading from its start.
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>>;
    /// Writes a file aside, syncs it, renames it over `name` and syncs the folder.
    fn write(&mut self, name: &str, fill: Fill<'_>) -> io::Result<()>;
    /// Appends to a file that exists. Not durable before [`Disk::sync`].
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Makes all that was appended to a file durable.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Renames a file and syncs the folder.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file and syncs the folder.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// A real folder.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The file that was appended to last: there is one journal at a time.
    appending: Option<(String, File)>,
}

impl Folder {
    /// File operations below `path`, which exists.
    pub fn new(path: PathBuf) -> Self {
        Self { path, appending: None }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn sync_folder_of(&self, name: &str) -> io::Result<()> {
        let path = self.at(name);
        File::open(path.parent().unwrap_or(&self.path))?.sync_all()
    }

    fn appending(&mut self, name: &str) -> io::Result<&mut File> {
        let open = matches!(&self.appending, Some((opened, _)) if opened == name);
        if !open {
            let file = OpenOptions::new().append(true).open(self.at(name))?;
            self.appending = Some((name.to_owned(), file));
        }
        let (_, file) = self.appending.as_mut().expect("it was just opened");
        Ok(file)
    }

    /// A file object of a name that is replaced would go on writing to the old content.
    fn forget(&mut self, name: &str) {
        if matches!(&self.appending, Some((opened, _)) if opened == name) {
            self.appending = None;
        }
    }
}

impl Disk for Folder {
    fn list(&self, folder: &str) -> io::Result<Vec<Listed>> {
        let entries = match fs::read_dir(self.at(folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut listed = Vec::new();
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let about = entry.metadata()?;
            if about.is_file() {
                let age = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
                listed.push(Listed { name, bytes: about.len(), age_order: age.as_nanos() });
            }
        }
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(listed)
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        // Opening a pipe would wait for whoever writes into it.
        if !fs::metadata(self.at(name))?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "it is no plain file"));
        }
        Ok(Box::new(File::open(self.at(name))?))
    }

    fn write(&mut self, name: &str, fill: Fill<'_>) -> io::Result<()> {
        self.forget(name);
        let path = self.at(name);
        if let Some(folder) = path.parent().filter(|p| *p != self.path.as_path()) {
            private_folder(folder)?;
            File::open(&self.path)?.sync_all()?;
        }
        let aside = self.at(&format!("{name}{ASIDE}"));
        let written = write_synced(&aside, fill).and_then(|()| fs::rename(&aside, &path));
        if let Err(error) = written {
            // Best effort: a leftover is removed when the store is opened.
            fs::remove_file(&aside).ok();
            return Err(error);
        }
        self.sync_folder_of(name)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.appending(name)?.write_all(bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.appending(name)?.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.forget(from);
        fs::rename(self.at(from), self.at(to))?;
        self.sync_folder_of(to)
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.forget(name);
        fs::remove_file(self.at(name))?;
        self.sync_folder_of(name)
    }
}

fn write_synced(path: &Path, fill: Fill<'_>) -> io::Result<()> {
    let aside =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let mut writer = BufWriter::new(aside);
    fill(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Makes a folder, and those above it, that only its owner may enter.
pub(super) fn private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Reads a whole file of at most `limit` bytes; one more is an error.
pub(super) fn read_whole(disk: &dyn Disk, name: &str, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    disk.read(name)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {limit} bytes"),
        ));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_are_private_whole_and_listed_in_order() {
        let root = tempfile::tempdir().unwrap();
        let mut disk = Folder::new(root.path().to_owned());
        disk.write("b", &mut |out| out.write_all(b"1")).unwrap();
        disk.write("blobs/a", &mut |out| out.write_all(b"22")).unwrap();
        disk.append("b", b"23").unwrap();
        disk.sync("b").unwrap();
        assert_eq!(read_whole(&disk, "b", 3).unwrap(), b"123");
        assert!(read_whole(&disk, "b", 2).is_err());
        let names = |folder| disk.list(folder).unwrap().into_iter().map(|l| l.name);
        assert_eq!(names("").collect::<Vec<_>>(), ["b"]);
        assert_eq!(names("blobs").collect::<Vec<_>>(), ["a"]);
        assert_eq!(names("nothing").count(), 0);
        let mode = |name: &str| fs::metadata(root.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode("b") & 0o777, 0o600);
        assert_eq!(mode("blobs") & 0o777, 0o700);
    }

    #[test]
    fn a_failed_write_leaves_the_old_content_and_nothing_aside() {
        let root = tempfile::tempdir().unwrap();
        let mut disk = Folder::new(root.path().to_owned());
        disk.write("a", &mut |out| out.write_all(b"old")).unwrap();
        let full = || io::Error::from(io::ErrorKind::StorageFull);
        disk.write("a", &mut |_| Err(full())).unwrap_err();
        assert_eq!(read_whole(&disk, "a", 9).unwrap(), b"old");
        assert_eq!(disk.list("").unwrap().len(), 1);
    }

    #[test]
    fn an_append_after_a_replacement_goes_to_the_new_file() {
        let root = tempfile::tempdir().unwrap();
        let mut disk = Folder::new(root.path().to_owned());
        disk.write("a", &mut |out| out.write_all(b"old")).unwrap();
        disk.append("a", b"+").unwrap();
        disk.write("a", &mut |out| out.write_all(b"new")).unwrap();
        disk.append("a", b"!").unwrap();
        assert_eq!(read_whole(&disk, "a", 9).unwrap(), b"new!");
    }
}
