//! `{ file = "…" }` and its sisters: where a secret of the daemon's own stands. It is not read here.

use super::codes;
use super::diagnostic::{Diagnostic, Notes};
use super::reader::{Found, Table, kind};
use super::secrets::{check_name, is_open_to_everybody};
use crate::model::alert::SecretRef;
use std::path::Path;
use toml::de::DeValue;

const MEND: &str = "give exactly one of { file = \"…\" }, { systemd = \"NAME\" }, \
                    { environment = \"NAME\" }, { secret = \"NAME\" }";
const KEYS: [&str; 4] = ["file", "systemd", "environment", "secret"];

/// The reference behind `key`. A secret that stands in the file itself is an error whose line is
/// not shown.
pub(super) fn secret_ref(
    notes: &Notes<'_>,
    parent: &mut Table<'_, '_>,
    key: &'static str,
    job_secrets: &Path,
) -> Option<SecretRef> {
    let Found { value, key: _, span } = parent.take(key)?;
    let DeValue::Table(entries) = value else {
        let at = notes.source.at(&span).without_line();
        let message = format!("`{key}` is {}, where only a reference may stand", kind(&value));
        let code = if matches!(value, DeValue::String(_)) {
            codes::LITERAL_SECRET
        } else {
            codes::WRONG_TYPE
        };
        let mend = format!("put it into a file that only the daemon may read; {MEND}");
        notes.add(Diagnostic::error(at, code, message, mend));
        return None;
    };
    let is_empty = entries.is_empty();
    let mut table = parent.child(key, span.clone(), entries);
    let named = KEYS.iter().filter(|key| table.has(key)).count();
    let mut found = None;
    for key in KEYS {
        let Some(text) = table.text(key) else { continue };
        found = reference(notes, key, &text, job_secrets).or(found);
    }
    table.finish();
    match named {
        1 => {}
        // A key that nobody knows was told of already.
        0 if !is_empty => {}
        0 => notes.error(&span, codes::MISSING, format!("`{key}` names no place"), MEND),
        _ => notes.error(&span, codes::EITHER_OR, format!("`{key}` names several places"), MEND),
    }
    found
}

fn reference(
    notes: &Notes<'_>,
    key: &'static str,
    text: &Found<String>,
    job_secrets: &Path,
) -> Option<SecretRef> {
    let wrong = |mend: &str| {
        let message = format!("`{key}` cannot have this value");
        notes.error(&text.span, codes::WRONG_VALUE, message, mend);
        None
    };
    match key {
        "environment" => {
            let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            if text.value.is_empty() || !text.value.bytes().all(letter) {
                return wrong("wanted: the name of a variable of the daemon's environment");
            }
            Some(SecretRef::Environment(text.value.clone()))
        }
        "systemd" => match check_name(&text.value) {
            Ok(()) => Some(SecretRef::Systemd(text.value.clone())),
            Err(_) => wrong("wanted: the name in LoadCredential=NAME:/a/file"),
        },
        "secret" => match check_name(&text.value) {
            Ok(()) => Some(file(notes, text, &job_secrets.join(&text.value))),
            Err(why) => wrong(why),
        },
        _ => {
            if text.value.is_empty() || text.value.contains('\0') {
                return wrong("wanted: a path");
            }
            let folder = notes.source.file.parent().unwrap_or(Path::new(""));
            Some(file(notes, text, &folder.join(&text.value)))
        }
    }
}

/// A file that is missing is a warning: it may be put there later, and one channel that cannot be
/// used must not keep the daemon from its jobs.
fn file(notes: &Notes<'_>, text: &Found<String>, path: &Path) -> SecretRef {
    let shown = path.display();
    let mend = "name a regular file that only the daemon's user can read (chmod 600)";
    let fault = match std::fs::metadata(path) {
        Err(cause) => Some(format!("{shown} cannot be looked at: {cause}")),
        Ok(meta) if !meta.is_file() => Some(format!("{shown} is not a regular file")),
        Ok(meta) if is_open_to_everybody(&meta) => Some(format!("{shown} is open to everybody")),
        Ok(_) => None,
    };
    if let Some(message) = fault {
        notes.warning(&text.span, codes::SECRET, message, mend);
    }
    SecretRef::File(path.to_owned())
}
