//! `[checkpoint.parts.NAME]`: further prefixes that hold the rest of each checkpoint.

use super::body::Body;
use super::checkpoint::{claim, custom, format, location};
use super::codes;
use super::diagnostic::Notes;
use super::reader::{Span, Table};
use super::set::Claim;
use crate::model::resume_text::{self, PLACEHOLDERS};
use crate::model::spec::{CheckpointPart, Target};

/// Parts beside the main one.
const PARTS_MOST: usize = 4;
/// Letters of a part's name.
const NAME_MOST: usize = 20;

/// What was read of the parts.
pub(super) struct Parts {
    /// Their names, be the rest right or wrong: a placeholder of such a name is no mistake.
    pub(super) names: Vec<String>,
    /// Those that are right.
    pub(super) whole: Vec<CheckpointPart>,
}

/// Reads the tables. Each prefix, once it can be read, goes to `prefixes`.
pub(super) fn read(
    notes: &Notes<'_>,
    table: &mut Table<'_, '_>,
    body: Option<&Body<'_, '_>>,
    target: Option<&Target>,
    prefixes: &mut Vec<Claim>,
) -> Parts {
    let mut parts = Parts { names: Vec::new(), whole: Vec::new() };
    for (count, (name, mut table)) in table.named_tables("parts").into_iter().enumerate() {
        if count == PARTS_MOST {
            let message = format!("more than {PARTS_MOST} parts beside the main one");
            let mend = "let one prefix hold several of them, with a custom layout";
            notes.error(&name.key, codes::WRONG_VALUE, message, mend);
        }
        if !is_name(&name.value) {
            let message = format!("`{}` cannot be the name of a part", name.value);
            let mend = format!(
                "wanted: at most {NAME_MOST} of a-z, 0-9 and `_`, a letter first, and none of {}",
                PLACEHOLDERS.join(", ")
            );
            notes.error(&name.key, codes::WRONG_VALUE, message, mend);
        }
        let header = table.span().clone();
        let place = location(notes, &mut table, body, target, &header);
        prefixes.extend(place.as_ref().map(|place| claim(notes, place, Some(&name.value))));
        let format = format(notes, &mut table);
        // A name that cannot be one is not to be written a second time.
        let shown = if is_name(&name.value) { name.value.as_str() } else { "NAME" };
        let key = format!("checkpoint.parts.{shown}.custom");
        let custom = custom(notes, &mut table, &key, format.as_deref(), &header);
        table.finish();
        parts.names.push(name.value.clone());
        if let (Some((location, mount, _)), Some(format)) = (place, format) {
            let name = name.value;
            parts.whole.push(CheckpointPart { name, location, mount, format, custom });
        }
    }
    parts
}

/// Whether a part may be called so.
pub(super) fn is_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    name.len() <= NAME_MOST
        && name.bytes().all(letter)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !PLACEHOLDERS.contains(&name)
}

/// Whether the trainer is told the step that all parts have: left to themselves, each part would
/// load its own newest one.
pub(super) fn check_reach(notes: &Notes<'_>, parts: &[&str], resume: Option<&str>, header: &Span) {
    let Some(template) = resume else {
        if !parts.is_empty() {
            let message = "a checkpoint of several parts needs a `resume` of your own";
            let mend = "add resume = \"… {step} …\", or one with {path} and {NAME.path}; or \
                        resume = \"\" if the trainer reads SPOTKEEPER_RESUME_STEP";
            notes.error(header, codes::MISSING, message, mend);
        }
        return;
    };
    if !parts.is_empty() && !template.is_empty() && !resume_text::names_main(template) {
        let message = "`resume` does not say which checkpoint of the main prefix to load";
        notes.warning(header, codes::RESUME_LOST, message, "add {step} or {path}");
    }
    for part in parts.iter().filter(|part| !template.is_empty() && is_name(part)) {
        if !resume_text::names_part(template, part) {
            let message = format!("`resume` does not say which checkpoint of `{part}` to load");
            let mend = format!("add {{step}} or {{{part}.path}}");
            notes.warning(header, codes::RESUME_LOST, message, mend);
        }
    }
}
