//! Keys from a TOML or JSON file of this machine, read anew each time.

use super::source::{Source, Way};
use super::{CredentialsError, triple};
use crate::model::time::WallTime;
use serde::Deserialize;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Bytes of the largest credentials file.
const FILE_LIMIT: u64 = 64 * 1024;
/// Permission bits that let everybody read or write.
const EVERYBODY: u32 = 0o006;

/// The keys as they may be written: the names of our own file, or those of an STS answer.
#[derive(Deserialize)]
struct Content {
    #[serde(alias = "AccessKeyId")]
    access_key_id: Option<String>,
    #[serde(alias = "AccessKeySecret")]
    access_key_secret: Option<String>,
    #[serde(alias = "SecurityToken")]
    security_token: Option<String>,
    #[serde(alias = "Expiration")]
    expiration: Option<String>,
}

/// Who may read a file of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readers {
    /// Its owner and group: a file that was made for spotkeeper.
    NotEverybody,
    /// Anybody: a file that other tools made, taken as they take it.
    Any,
}

/// The keys in the file at `path`, which people know as `origin`.
pub(super) fn read(origin: String, path: &Path) -> Result<Source, CredentialsError> {
    let form = |what: String| CredentialsError::Form { path: path.to_owned(), what };
    let text = text(path, Readers::NotEverybody)?;
    // The parsers' own messages quote the line, and so the secret: only its number is told.
    let content: Content = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text)
            .map_err(|e| form(format!("line {}: not the JSON expected", e.line())))?
    } else {
        toml::from_str(&text).map_err(|e| {
            let line = e
                .span()
                .and_then(|s| text.get(..s.start))
                .map_or(1, |before| before.matches('\n').count() + 1);
            form(format!("line {line}: not the TOML expected"))
        })?
    };
    let set = |value: Option<String>| value.filter(|v| !v.trim().is_empty());
    let needed = |value, key| set(value).ok_or_else(|| form(format!("has no `{key}`")));
    let keys = triple(
        &origin,
        &needed(content.access_key_id, "access_key_id")?,
        &needed(content.access_key_secret, "access_key_secret")?,
        set(content.security_token).as_deref(),
    )?;
    let expires = set(content.expiration)
        .map(|time| {
            let bad = || form("`expiration` is not a time such as 2026-11-30T08:00:00Z".to_owned());
            WallTime::parse(&time).ok_or_else(bad)
        })
        .transpose()?;
    Ok(Source { origin, way: Way::Keys { keys, expires } })
}

/// The text of the file.
pub(super) fn text(path: &Path, readers: Readers) -> Result<String, CredentialsError> {
    let read = |source| CredentialsError::Read { path: path.to_owned(), source };
    let form = |what: &str| CredentialsError::Form { path: path.to_owned(), what: what.to_owned() };
    // Asked before the open, which would wait for ever at a pipe.
    if !std::fs::metadata(path).map_err(read)?.is_file() {
        return Err(form("is not a plain file"));
    }
    let file = File::open(path).map_err(read)?;
    let mode = file.metadata().map_err(read)?.permissions().mode() & 0o7777;
    if readers == Readers::NotEverybody && mode & EVERYBODY != 0 {
        return Err(CredentialsError::Public { path: path.to_owned(), mode });
    }
    let mut bytes = Vec::new();
    file.take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(read)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(form("is larger than 64 KiB"));
    }
    String::from_utf8(bytes).map_err(|_| form("is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::credentials::Credentials;
    use std::io::Write as _;

    fn file(content: &str, mode: u32) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(content.as_bytes()).expect("a write");
        file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).expect("chmod");
        file
    }

    fn written(content: &str, mode: u32) -> Result<Credentials, CredentialsError> {
        keys_at(file(content, mode).path())
    }

    fn keys_at(path: &Path) -> Result<Credentials, CredentialsError> {
        let way = read("test".to_owned(), path)?.way;
        let Way::Keys { keys, .. } = way else { panic!("{way:?}") };
        Ok(keys)
    }

    #[test]
    fn toml_and_json_are_told_apart_by_content() {
        let toml = "access_key_id = \"a\"\naccess_key_secret = \"b\"\n";
        assert_eq!(written(toml, 0o600).expect("TOML").secret.expose(), "b");
        let json =
            r#" {"AccessKeyId":"a","AccessKeySecret":"b","SecurityToken":"c","Code":"Success"}"#;
        let keys = written(json, 0o640).expect("JSON");
        assert_eq!(keys.token.expect("a token").expose(), "c");
    }

    #[test]
    fn a_file_that_everybody_may_read_is_refused() {
        let error = written("access_key_id = \"a\"", 0o644).expect_err("public");
        assert!(matches!(error, CredentialsError::Public { mode: 0o644, .. }));
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }

    #[test]
    fn errors_name_the_line_and_never_the_content() {
        for content in [
            "access_key_id = \"a\"\naccess_key_secret = hunter2\n",
            "{\"access_key_id\": \"a\",\n \"access_key_secret\": hunter2}",
            "access_key_id = \"a\"\naccess_key_secret = [\"hunter2\"]\n",
        ] {
            let error = anyhow::Error::from(written(content, 0o600).expect_err("damaged"));
            let text = format!("{error:#} {error:?}");
            assert!(text.contains("line 2") && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_missing_key_an_empty_key_and_a_missing_file_are_said() {
        let error = written("access_key_id = \"a\"\naccess_key_secret = \"\"", 0o600);
        assert!(error.expect_err("empty").to_string().contains("`access_key_secret`"));
        let error = keys_at(Path::new("/nonexistent/keys.toml")).expect_err("no file");
        assert!(matches!(error, CredentialsError::Read { .. }));
        let error = keys_at(Path::new("/dev/null")).expect_err("a device");
        assert!(matches!(error, CredentialsError::Form { .. }));
    }
}
