//! Names with a number that have no known shape: what a person is shown where nothing was recognised, and
//! the pattern that would fit.

use super::objects::{Folder, join};
use crate::model::resume_text::quoted;
use crate::model::step_pattern::digits;
use std::collections::BTreeMap;

/// Kinds of names that are kept.
const KINDS_LIMIT: usize = 1_000;

/// Names of one kind in one folder.
#[derive(Debug, Clone)]
struct Group {
    count: u64,
    is_folder: bool,
    highest: u64,
    path: String,
}

/// Names with a number, by the folder that they stand in and what they have in common.
#[derive(Debug, Default)]
pub(super) struct Numbered(BTreeMap<(String, String), Group>);

impl Numbered {
    /// Notes what lies in the folder at `path`.
    pub(super) fn note(&mut self, path: &str, folder: &Folder) {
        let folders = folder.folders.iter().map(|name| (name, true));
        let files = folder.objects.iter().map(|object| (&object.key, false));
        for (name, is_folder) in folders.chain(files).filter(|(name, _)| !name.starts_with('.')) {
            let Some((pattern, number)) = pattern_of(name) else { continue };
            let key = (path.to_owned(), pattern);
            if self.0.len() >= KINDS_LIMIT && !self.0.contains_key(&key) {
                continue;
            }
            let path = join(path, name);
            let new = || Group { count: 0, is_folder, highest: number, path: path.clone() };
            let group = self.0.entry(key).or_insert_with(new);
            group.count += 1;
            if number >= group.highest {
                (group.highest, group.path) = (number, path);
            }
        }
    }

    /// A name that was seen and a pattern that fits it. Of several kinds the one that looks most like
    /// checkpoints: there are several of it, and they are folders.
    pub(super) fn hint(&self) -> Option<String> {
        let like = |group: &Group| (group.count > 1, group.is_folder, group.count);
        let ((_, pattern), group) = self.0.iter().max_by_key(|(_, group)| like(group))?;
        Some(format!("seen was {}, which `--pattern {}` fits", group.path, quoted(pattern)))
    }
}

/// The pattern that a name with a number fits, and the number: the last one before the extension.
pub(super) fn pattern_of(name: &str) -> Option<(String, u64)> {
    let stem = match name.rsplit_once('.') {
        Some((stem, extension)) if digits(extension).is_none() => stem,
        Some(_) | None => name,
    };
    let end = stem.rfind(|c: char| c.is_ascii_digit())? + 1;
    let before = stem[..end].rfind(|c: char| !c.is_ascii_digit());
    let begin = before.map_or(0, |at| at + stem[at..].chars().next().map_or(1, char::len_utf8));
    let number = digits(&name[begin..end])?;
    let has_brace = name.contains(['{', '}']);
    (!has_brace).then(|| (format!("{}{{step}}{}", &name[..begin], &name[end..]), number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::step_pattern::StepPattern;

    #[test]
    fn a_pattern_fits_the_name_that_it_was_made_of() {
        for (name, pattern, number) in [
            ("save-100", "save-{step}", 100),
            ("ckpt_0100.pt", "ckpt_{step}.pt", 100),
            ("ep3_it40.h5", "ep3_it{step}.h5", 40),
            ("7", "{step}", 7),
            ("步3", "步{step}", 3),
            ("model.300", "model.{step}", 300),
        ] {
            assert_eq!(pattern_of(name), Some((pattern.to_owned(), number)), "{name}");
            let parsed = StepPattern::parse(pattern).expect("a pattern");
            assert_eq!(parsed.step_of(name), Some(number), "{name}");
        }
        for name in ["model.h5", "last", "a{3}", "99999999999999999999999"] {
            assert_eq!(pattern_of(name), None, "{name}");
        }
    }

    #[test]
    fn the_kind_that_looks_most_like_checkpoints_is_shown() {
        let mut numbered = Numbered::default();
        assert_eq!(numbered.hint(), None);
        let folders = ["save-9", "save-100", "v2"].map(str::to_owned).to_vec();
        numbered.note("out", &Folder { folders, objects: Vec::new() });
        let hint = numbered.hint().expect("a hint");
        assert_eq!(hint, "seen was out/save-100, which `--pattern 'save-{step}'` fits");
    }
}
