//! `credentials = { … }` of a target: which one source of keys is named. No key is read.

use super::codes;
use super::diagnostic::Notes;
use super::reader::{Found, Span, Table};
use super::secrets::is_open_to_everybody;
use crate::model::spec::CredentialsRef;
use std::path::Path;
use toml::de::DeValue;

/// Bytes of the longest name or address of a source: it is stored with every attempt.
const NAME_LIMIT: usize = 512;
/// What stands behind a key that names a source.
const MEND: &str = "give exactly one of environment = true, file = \"…\", systemd = \"NAME\", \
                    profile = \"NAME\", ecs_role = \"NAME\", oidc = true, uri = \"…\", chain = true";

/// The source that the table names. What is wrong is reported, and the chain stands in for it.
pub(super) fn credentials(notes: &Notes<'_>, mut table: Table<'_, '_>) -> CredentialsRef {
    let span = table.span().clone();
    let keys = ["environment", "file", "systemd", "profile", "ecs_role", "oidc", "uri", "chain"];
    let named = keys.iter().filter(|key| table.has(key)).count();
    let mut given: Vec<CredentialsRef> = [
        only_true(notes, &mut table, "environment").map(|()| CredentialsRef::Environment),
        file(notes, &mut table),
        name(notes, &mut table, "systemd").map(CredentialsRef::Systemd),
        name(notes, &mut table, "profile").map(CredentialsRef::Profile),
        ecs_role(notes, &mut table),
        only_true(notes, &mut table, "oidc").map(|()| CredentialsRef::Oidc),
        uri(notes, &mut table).map(CredentialsRef::Uri),
        only_true(notes, &mut table, "chain").map(|()| CredentialsRef::Chain),
    ]
    .into_iter()
    .flatten()
    .collect();
    table.finish();
    match named {
        1 => {}
        0 => notes.error(&span, codes::MISSING, "`credentials` names no source", MEND),
        _ => notes.error(&span, codes::EITHER_OR, "`credentials` names several sources", MEND),
    }
    given.pop().unwrap_or(CredentialsRef::Chain)
}

fn file(notes: &Notes<'_>, table: &mut Table<'_, '_>) -> Option<CredentialsRef> {
    let found = table.text("file")?;
    let path = notes.source.file.parent().unwrap_or(Path::new("")).join(found.value);
    check_credentials_file(notes, &path, &found.span);
    Some(CredentialsRef::File(path))
}

fn name(notes: &Notes<'_>, table: &mut Table<'_, '_>, key: &'static str) -> Option<String> {
    let found = table.text(key)?;
    checked_name(notes, key, found)
}

fn checked_name(notes: &Notes<'_>, key: &str, found: Found<String>) -> Option<String> {
    let plain = |c: char| !c.is_control() && c != '/';
    let fits = !found.value.trim().is_empty() && found.value.len() <= NAME_LIMIT;
    if fits && found.value.chars().all(plain) {
        return Some(found.value);
    }
    let message = format!("`{key}` cannot have this value");
    notes.error(&found.span, codes::WRONG_VALUE, message, "wanted: a name, without a slash");
    None
}

/// `ecs_role = "NAME"`, or `true` for the role that is attached.
fn ecs_role(notes: &Notes<'_>, table: &mut Table<'_, '_>) -> Option<CredentialsRef> {
    let key = "ecs_role";
    let Found { value, key: at, span } = table.take(key)?;
    match value {
        DeValue::Boolean(true) => Some(CredentialsRef::EcsRole(None)),
        DeValue::String(text) => {
            let found = Found { value: text.into_owned(), key: at, span };
            checked_name(notes, key, found).map(|name| CredentialsRef::EcsRole(Some(name)))
        }
        DeValue::Boolean(false)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => {
            let message = "`ecs_role` cannot have this value";
            let mend = "wanted: the role's name in quotes, or true for the one that is attached";
            notes.error(&span, codes::WRONG_VALUE, message, mend);
            None
        }
    }
}

fn uri(notes: &Notes<'_>, table: &mut Table<'_, '_>) -> Option<String> {
    let found = table.text("uri")?;
    let wrong = |message: &str, mend: &str| {
        notes.error(&found.span, codes::WRONG_VALUE, message, mend);
    };
    let example = "write it as http://localhost:7002/api/v1/credentials/0";
    let known = ["http://", "https://"].iter().any(|scheme| found.value.starts_with(scheme));
    let plain = found.value.bytes().all(|b| b.is_ascii_graphic());
    if !known || !plain || found.value.len() > NAME_LIMIT {
        wrong("`uri` is no address", example);
        return None;
    }
    if found.value.contains(['@', '?', '#']) {
        // It is stored with every attempt.
        let mend = "give such an address in ALIBABA_CLOUD_CREDENTIALS_URI, with chain = true";
        wrong("`uri` has a user, a query or a fragment in it, where secrets stand", mend);
        return None;
    }
    Some(found.value)
}

fn only_true(notes: &Notes<'_>, table: &mut Table<'_, '_>, key: &'static str) -> Option<()> {
    let found = table.flag(key)?;
    if !found.value {
        let message = format!("`{key}` cannot be false");
        let mend = "take it out, and name another source of keys";
        notes.error(&found.span, codes::WRONG_VALUE, message, mend);
    }
    Some(())
}

fn check_credentials_file(notes: &Notes<'_>, path: &Path, span: &Span) {
    let shown = path.display();
    let mend = "name a regular file that only the daemon's user can read (chmod 600)";
    match std::fs::metadata(path) {
        Err(cause) => {
            let message = format!("{shown} cannot be looked at: {cause}");
            notes.error(span, codes::CREDENTIALS_FILE, message, mend);
        }
        Ok(meta) if !meta.is_file() => {
            let message = format!("{shown} is not a regular file");
            notes.error(span, codes::CREDENTIALS_FILE, message, mend);
        }
        Ok(meta) if is_open_to_everybody(&meta) => {
            let message = format!("{shown} can be read by everybody");
            notes.warning(span, codes::CREDENTIALS_FILE, message, mend);
        }
        Ok(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use crate::config::daemon::{Surroundings, read_daemon};
    use crate::config::diagnostic::Source;
    use crate::model::ids::TargetName;
    use crate::model::spec::{Commands, CredentialsRef};
    use std::path::Path;

    #[test]
    fn each_way_of_giving_keys_has_its_key() {
        let name = || "x".to_owned();
        for (written, wanted) in [
            ("environment = true", CredentialsRef::Environment),
            ("chain = true", CredentialsRef::Chain),
            ("systemd = \"x\"", CredentialsRef::Systemd(name())),
            ("profile = \"x\"", CredentialsRef::Profile(name())),
            ("ecs_role = \"x\"", CredentialsRef::EcsRole(Some(name()))),
            ("ecs_role = true", CredentialsRef::EcsRole(None)),
            ("oidc = true", CredentialsRef::Oidc),
            ("uri = \"http://h/x\"", CredentialsRef::Uri("http://h/x".to_owned())),
        ] {
            let text = format!(
                "credentials.allow_commands = true\n[targets.hz]\nregion = \"cn-hangzhou\"\n\
                 workspace = \"1\"\ncredentials = {{ {written} }}\n"
            );
            let source = Source::new(Path::new("x.toml"), text);
            let file = read_daemon(&source, &Surroundings::default());
            let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics));
            let target = &config.targets[&TargetName::new("hz").expect("a name")];
            assert_eq!(target.place.credentials, wanted, "{written}");
            assert_eq!(config.credential_commands, Commands::Allowed);
        }
    }
}
