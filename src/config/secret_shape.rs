//! Whether a plain value is a secret, by its name and its shape.
//!
//! Always holds: nothing here shows or keeps a value; callers get places. Stricter than the mask,
//! which rather hides too much: `MAX_TOKENS = "4096"` and `SORT_KEY = "time"` are no secrets.

use super::mask::{key_words, looks_like_key};
use std::ops::Range;

/// Letters from which the value of a `…_KEY` is long enough to be one.
const KEY_LETTERS: usize = 8;
/// Letters that each part of a JSON web token has at least.
const JWT_PART: usize = 8;

/// A secret inside a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret {
    /// Its bytes.
    pub at: Range<usize>,
    /// The name that stands before it, if one does: `HF_TOKEN`, `api-key`.
    pub name: Option<String>,
}

/// Whether an environment value is a secret, by its name or by its shape.
pub fn is_secret_env(name: &str, value: &str) -> bool {
    !value.is_empty() && (has_secret_shape(value) || is_secret_pair(name, value))
}

/// Whether a text is, or holds, what can only be a secret.
pub fn has_secret_shape(text: &str) -> bool {
    looks_like_key(text) || has_private_key(text) || !jwts(text).is_empty()
}

/// Whether a text holds the block of a private key.
pub fn has_private_key(text: &str) -> bool {
    text.match_indices("-----BEGIN ").any(|(at, _)| {
        let line = text[at + "-----BEGIN ".len()..].split("-----").next().unwrap_or_default();
        line.ends_with("PRIVATE KEY")
    })
}

/// The block of a private key in a text; one that does not end goes to the end of the text.
fn private_key(text: &str) -> Option<Range<usize>> {
    const END: &str = "PRIVATE KEY-----";
    let start = text.find("-----BEGIN ").filter(|at| has_private_key(&text[*at..]))?;
    let mut ends = text[start..].match_indices(END).map(|(at, _)| start + at + END.len());
    let end = ends.nth(1).unwrap_or(text.len());
    Some(start..end)
}

/// JSON web tokens in a text.
pub(super) fn jwts(text: &str) -> Vec<Range<usize>> {
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut found = Vec::new();
    for (at, _) in text.match_indices("eyJ") {
        let inside = text[..at].chars().next_back().is_some_and(letter);
        let word = &text[at..];
        let word = &word[..word.find(|c| !letter(c)).unwrap_or(word.len())];
        let parts: Vec<&str> = word.split('.').collect();
        if !inside && parts.len() == 3 && parts.iter().all(|part| part.len() >= JWT_PART) {
            found.push(at..at + word.len());
        }
    }
    found
}

/// Whether a name that promises a secret has a value that can be one.
fn is_secret_pair(name: &str, value: &str) -> bool {
    let words = words_of(name);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    let last = words.last().map_or("", String::as_str);
    let is_path = value.starts_with('/') || value.starts_with("./") || value.starts_with("file:");
    let reference = value.starts_with('$');
    if is_path || reference || matches!(value, "true" | "false" | "none" | "None" | "null") {
        return false;
    }
    let number = value.parse::<f64>().is_ok();
    match last {
        "PASSWORD" | "PASSWD" | "PASSPHRASE" | "PWD" | "SECRET" => true,
        "TOKEN" => !number,
        "KEY" | "APIKEY" | "ACCESSKEY" | "AUTH" | "CREDENTIAL" | "CREDENTIALS" => {
            !number && value.chars().count() >= KEY_LETTERS && !value.contains(char::is_whitespace)
        }
        // `SECRET_KEY_BASE`, `DB_PASSWORD_2`; not `PASSWORD_FILE`, `SECRET_NAME`.
        _ => {
            has(&["SECRET", "PASSWORD", "PASSWD"])
                && !matches!(last, "FILE" | "PATH" | "NAME" | "DIR" | "REF" | "LENGTH")
                && !number
                && value.chars().count() >= KEY_LETTERS
        }
    }
}

/// The words of `HF_TOKEN`, `api-key` and `SecurityToken`, in capitals.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (c.is_ascii_uppercase() && before.is_ascii_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_ascii_alphanumeric()) {
            word.push(c.to_ascii_uppercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The secrets of a shell command, in order and apart: values of `NAME=…` and `--name …`, and words
/// that can only be secrets.
pub fn in_command(text: &str) -> Vec<Secret> {
    let mut found: Vec<Secret> = Vec::new();
    for (at, _) in text.match_indices('=') {
        let name = trailing_name(&text[..at]);
        let value = value_at(text, at + 1);
        if !name.is_empty() && is_secret_pair(name, &text[value.clone()]) && !value.is_empty() {
            found.push(Secret { at: value, name: Some(name.to_owned()) });
        }
    }
    for (at, _) in text.match_indices("--") {
        let name: &str = &text[at + 2..];
        let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
        let Some(end) = end.filter(|end| name[*end..].starts_with(' ')) else { continue };
        let blanks = name[end..].len() - name[end..].trim_start_matches(' ').len();
        let value = value_at(text, at + 2 + end + blanks);
        let flag = text[value.clone()].starts_with('-');
        if !flag && !value.is_empty() && is_secret_pair(&name[..end], &text[value.clone()]) {
            found.push(Secret { at: value, name: Some(name[..end].to_owned()) });
        }
    }
    let shapes = key_words(text).into_iter().chain(jwts(text)).chain(private_key(text));
    found.extend(shapes.map(|at| Secret { at, name: None }));
    found.sort_by_key(|secret| (secret.at.start, secret.name.is_none()));
    let mut end = 0;
    found.retain(|secret| {
        let apart = secret.at.start >= end;
        end = if apart { secret.at.end } else { end };
        apart
    });
    found
}

/// The name that a text ends with.
fn trailing_name(text: &str) -> &str {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let start = text
        .rfind(|c| !part(c))
        .map_or(0, |at| at + text[at..].chars().next().map_or(1, char::len_utf8));
    text[start..].trim_start_matches('-')
}

/// The value that begins at a byte: to the closing quote, or to the next blank or operator.
fn value_at(text: &str, start: usize) -> Range<usize> {
    let rest = &text[start..];
    if let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let inner = &rest[1..];
        let end = inner.find(quote).unwrap_or(inner.len());
        return start + 1..start + 1 + end;
    }
    let end =
        rest.find(|c: char| c.is_whitespace() || ";&|()<>\"'".contains(c)).unwrap_or(rest.len());
    start..start + end
}

#[cfg(test)]
mod tests {
    use super::*;

    const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXM";

    #[test]
    fn names_and_shapes_tell_secrets_from_their_neighbours() {
        for (name, value) in [
            ("HF_TOKEN", "abc"),
            ("DB_PASSWORD", "1234"),
            ("WANDB_API_KEY", "0a1b2c3d4e"),
            ("clientSecret", "xyz"),
            ("DJANGO_SECRET_SALT", "long-enough"),
            ("ANY", "LTAI5tAbCdEfGhIjKlMn"),
            ("ANY", "-----BEGIN RSA PRIVATE KEY-----\nMIIE"),
            ("ANY", JWT),
        ] {
            assert!(is_secret_env(name, value), "{name}");
        }
        for (name, value) in [
            ("TOKENIZERS_PARALLELISM", "false"),
            ("MAX_TOKENS", "4096"),
            ("EOS_TOKEN", "2"),
            ("TOKENIZER", "gpt2"),
            ("SORT_KEY", "time"),
            ("SSH_KEY", "/run/keys/id_ed25519"),
            ("PASSWORD_FILE", "passwords.txt"),
            ("HF_TOKEN", ""),
            ("HF_TOKEN", "$HF_TOKEN"),
            ("KEYBOARD", "qwertyuiop"),
            ("CERT", "-----BEGIN CERTIFICATE-----"),
            ("DOTS", "eyJust.three.words"),
        ] {
            assert!(!is_secret_env(name, value), "{name}");
        }
    }

    #[test]
    fn secrets_of_a_command_are_found_once_each() {
        let text = format!(
            "HF_TOKEN=abc DB_PASSWORD='p w' run --api-key sk12345678 --max_tokens 5 --key=$K \
             LTAI5tAbCdEfGhIjKlMn {JWT} --token --x é"
        );
        let found: Vec<_> =
            in_command(&text).into_iter().map(|s| (s.name, text[s.at].to_owned())).collect();
        let named = |name: &str, value: &str| (Some(name.to_owned()), value.to_owned());
        assert_eq!(
            found,
            [
                named("HF_TOKEN", "abc"),
                named("DB_PASSWORD", "p w"),
                named("api-key", "sk12345678"),
                (None, "LTAI5tAbCdEfGhIjKlMn".to_owned()),
                (None, JWT.to_owned()),
            ]
        );
        for harmless in ["", "=", "--", "--key", "KEY=", "a = b", "é=é", "--key 'x", "TOKEN=\""] {
            assert_eq!(in_command(harmless), [], "{harmless}");
        }
    }
}
