//! How many starts in a row came to nothing: a file beside the state.
//!
//! A start is *proved* by its first commit, by a look at every target that ended well, or by a
//! clean stop. Whatever kills the process before that would most likely kill the next one too, and
//! systemd starts it every few seconds, all night. After [`HOLD_AFTER`] such starts the daemon only
//! answers and warns for [`HOLD_LASTS`]; then it tries once more.
//!
//! What always holds: a count that cannot be read or written holds nothing back.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Starts in a row without proof after which the next one holds.
pub const HOLD_AFTER: u32 = 3;
/// How long a hold lasts unless a person ends it: it is a pause, not an end. Nobody may be there to
/// notice it, and jobs wait meanwhile.
pub const HOLD_LASTS: Duration = Duration::from_mins(30);

/// Name of the file.
const FILE: &str = "starts";

/// The count of a state folder. Made while the folder's lock is held.
#[derive(Debug)]
pub struct Starts {
    file: PathBuf,
    before: u32,
}

impl Starts {
    /// Notes one more start, durably.
    pub fn note(state_folder: &Path) -> Self {
        let file = state_folder.join(FILE);
        let before = read(&file);
        let starts = Self { file, before };
        if let Err(error) = starts.write(before.saturating_add(1)) {
            tracing::debug!(%error, "the start is not counted");
        }
        starts
    }

    /// Why this start holds back, if it does.
    pub fn hold(&self) -> Option<String> {
        (self.before >= HOLD_AFTER).then(|| {
            format!(
                "the last {} starts ended before anything was done: held for {} minutes; a reload \
                 or restart by a person ends that at once",
                self.before,
                HOLD_LASTS.as_secs() / 60
            )
        })
    }

    /// Whether people are told that this start holds: of the first hold in a row, the second, the
    /// fourth, and so ever more seldom. One that is killed at once, again and again, wakes nobody
    /// each time; one that lasts is not forgotten.
    pub fn is_hold_told(&self) -> bool {
        let holds = self.before.saturating_add(1).saturating_sub(HOLD_AFTER);
        holds.is_power_of_two()
    }

    /// This start came to something.
    pub fn prove(self) {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(%error, "the count of starts stays");
            }
            Ok(()) | Err(_) => {}
        }
    }

    fn write(&self, count: u32) -> io::Result<()> {
        let fresh = self.file.with_extension("new");
        let mut file = File::create(&fresh)?;
        writeln!(file, "{count}")?;
        file.sync_all()?;
        fs::rename(&fresh, &self.file)?;
        File::open(self.file.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

fn read(file: &Path) -> u32 {
    fs::read_to_string(file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_after_three_without_proof_holds_until_one_is_proved() {
        let folder = tempfile::tempdir().expect("a folder");
        for _ in 0..HOLD_AFTER {
            assert_eq!(Starts::note(folder.path()).hold(), None);
        }
        let held = Starts::note(folder.path());
        assert!(held.hold().is_some_and(|why| why.contains("the last 3 starts")));
        let next = Starts::note(folder.path());
        assert!(next.hold().is_some(), "a hold that is killed is no proof");
        next.prove();
        let files: Vec<_> = fs::read_dir(folder.path()).expect("a folder").collect();
        assert!(files.is_empty(), "{files:?}");
        assert_eq!(Starts::note(folder.path()).hold(), None);
    }

    #[test]
    fn holds_in_a_row_are_told_ever_more_seldom() {
        let folder = tempfile::tempdir().expect("a folder");
        let starts = (1..=20).map(|n| (n, Starts::note(folder.path())));
        let told: Vec<_> =
            starts.filter(|(_, starts)| starts.is_hold_told()).map(|(n, _)| n).collect();
        assert_eq!(told, [4, 5, 7, 11, 19]);
    }

    #[test]
    fn a_count_that_cannot_be_kept_holds_nothing_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let gone = folder.path().join("gone");
        for _ in 0..2 * HOLD_AFTER {
            assert_eq!(Starts::note(&gone).hold(), None);
        }
        fs::write(folder.path().join(FILE), "many\n").expect("written");
        assert_eq!(Starts::note(folder.path()).hold(), None);
    }
}
