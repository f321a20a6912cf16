//! Takes out of a line what may be a secret, before anybody sees the line.
//!
//! Works on text alone, since a line has to be shown even if its file cannot be parsed. It keeps
//! the width of the line, so that a caret below it still stands right, and rather masks too much.

use super::secret_shape::jwts;

/// Beginnings by which access keys and tokens are known, and the length from which a word is one.
const KEY_BEGINNINGS: [(&str, usize); 9] = [
    ("LTAI", 16),
    ("STS.", 16),
    ("AKIA", 16),
    ("hf_", 20),
    ("sk-", 20),
    ("ghp_", 20),
    ("github_pat_", 20),
    ("glpat-", 20),
    ("xoxb-", 20),
];

/// Whether a name promises a secret value.
pub(super) fn secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if matches!(
        name.as_str(),
        "key" | "secret" | "credentials" | "job_secrets" | "enablecredentialinject"
    ) {
        return false;
    }
    let hints =
        ["secret", "token", "passw", "passphrase", "credential", "private", "apikey", "accesskey"];
    hints.iter().any(|hint| name.contains(hint))
        || ["key", "auth", "pwd", "value"].iter().any(|end| name.ends_with(end))
}

/// Whether a value looks like an access key or token. Stricter than what is masked: keys mix their
/// letters, and `sk-learn-baseline-experiment` is none.
pub(super) fn looks_like_key(text: &str) -> bool {
    let mixed = |word: &str| {
        let rest = word.trim_start_matches(|c: char| c != '-' && c != '_').get(1..).unwrap_or("");
        let rest = if rest.is_empty() { &word[4..] } else { rest };
        rest.contains(|c: char| c.is_ascii_uppercase())
            && rest.contains(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    words(text).any(|(_, word)| is_key(word) && mixed(word))
}

fn is_key(word: &str) -> bool {
    KEY_BEGINNINGS.iter().any(|(start, length)| word.starts_with(start) && word.len() >= *length)
}

/// The words of a text that look like access keys or tokens.
pub(super) fn key_words(text: &str) -> Vec<std::ops::Range<usize>> {
    let keys = words(text).filter(|(_, word)| looks_like_key(word));
    keys.map(|(at, word)| at..at + word.len()).collect()
}

/// Runs of the letters that keys are made of, with their first byte.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(part)?;
        let length = rest[start..].find(|c| !part(c)).unwrap_or(rest.len() - start);
        let at = text.len() - rest.len() + start;
        let word = &rest[start..start + length];
        rest = &rest[start + length..];
        Some((at, word))
    })
}

/// The line with every value that may be a secret replaced by stars.
pub(super) fn mask(line: &str) -> String {
    let mut hidden = vec![false; line.len()];
    for (at, word) in words(line) {
        if is_key(word) {
            hidden[at..at + word.len()].fill(true);
        }
    }
    for at in jwts(line) {
        hidden[at].fill(true);
    }
    if let Some(at) = line.find("-----BEGIN ") {
        hidden[at..].fill(true);
    }
    for (at, _) in line.match_indices("--") {
        let name = &line[at + 2..];
        let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
        if let Some(end) = end.filter(|end| name[*end..].starts_with(' '))
            && secret_name(&name[..end])
        {
            let (start, end) = value_after(line, at + 2 + end);
            hidden[start..end].fill(true);
        }
    }
    for (at, _) in line.match_indices("://") {
        let rest = &line[at + 3..];
        let end = rest.find(['/', ' ', '"', '\'']).unwrap_or(rest.len());
        if let Some(user) = rest[..end].rfind('@') {
            hidden[at + 3..at + 3 + user].fill(true);
        }
        // The address of a webhook is a key by itself.
        let whole = rest.find([' ', '"', '\'']).unwrap_or(rest.len());
        if ["hook", "/robot/", "/bot/"].iter().any(|part| rest[..whole].contains(part)) {
            hidden[at + 3 + end..at + 3 + whole].fill(true);
        }
    }
    for (at, _) in line.match_indices(['=', ':']) {
        if secret_name(word_before(line, at)) {
            let (start, end) = value_after(line, at + 1);
            hidden[start..end].fill(true);
        }
    }
    line.char_indices().map(|(at, c)| if hidden[at] { '*' } else { c }).collect()
}

/// The key that ends before the `=` or `:` at byte `at`, quotes taken off.
fn word_before(line: &str, at: usize) -> &str {
    let before = line[..at].trim_end().trim_end_matches(['"', '\'', '\\']);
    let start = before
        .rfind(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')))
        .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
    &before[start..]
}

/// First and last byte of the value that follows `from`, quotes left out.
fn value_after(line: &str, from: usize) -> (usize, usize) {
    let rest = line[from..].trim_start();
    let start = line.len() - rest.len();
    let Some(quote) = rest.chars().next().filter(|c| matches!(c, '"' | '\'')) else {
        if rest.starts_with(['{', '[']) {
            return (start, start);
        }
        let end = rest.find([',', '}', ']', ' ', ';', '&', '#']).unwrap_or(rest.len());
        return (start, start + end);
    };
    let body = rest.trim_start_matches(quote);
    let start = line.len() - body.len();
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if c == quote && !escaped {
            return (start, start + at);
        }
        escaped = c == '\\' && quote == '"' && !escaped;
    }
    (start, line.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_behind_secret_names_are_hidden_whatever_the_syntax() {
        for line in [
            r#"HF_TOKEN = "s3cr3t""#,
            r#"Envs = { A = "b", DB_PASSWORD = "s3cr3t" }"#,
            r#""WANDB_API_KEY": "s3cr3t","#,
            "HF_TOKEN = s3cr3t",
            "HF_TOKEN = 's3cr3t",
            r#"{ Key = "A", Value = "s3cr3t" }"#,
            r#"UserCommand = "HF_TOKEN=s3cr3t python t.py""#,
            r#"endpoint = "https://me:s3cr3t@host/""#,
            r#"HF_TOKEN = """s3cr3t"#,
            r#"X_SECRET = "a\"s3cr3t" # é"#,
            "UserCommand = \"run --api-key s3cr3t --x\"",
            "UserCommand = \"run --token 's3cr3t' é\"",
            "A = \"-----BEGIN PRIVATE KEY-----\\ns3cr3t\"",
            "A = \"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIs3cr3tMjM0In0.c2lnbmF0dXJlLXM\"",
        ] {
            let masked = mask(line);
            assert!(!masked.contains("s3cr3t"), "{masked}");
            assert_eq!(masked.chars().count(), line.chars().count());
        }
    }

    #[test]
    fn words_that_look_like_keys_are_hidden_anywhere() {
        let line = "UserCommand = \"x --id LTAI5tAbCdEfGhIjKlMn y\"";
        assert!(!mask(line).contains("AbCdEf") && mask(line).contains("UserCommand = \"x --id"));
        for key in ["LTAI5tAbCdEfGhIjKlMn", "a hf_abcdefghijklmnopqrstuVWX", "AKIA0123456789ABCDEF"]
        {
            assert!(looks_like_key(key), "{key}");
        }
        for word in ["sk-short", "python train.py", "sk-learn-baseline-experiment"] {
            assert!(!looks_like_key(word), "{word}");
        }
    }

    #[test]
    fn plain_lines_and_references_stay() {
        for line in [
            "name = \"a\"",
            "TOKEN = { secret = \"hf-token\" }",
            "credentials = { environment = true }",
            "job_secrets = \"/etc/x\"",
            "",
        ] {
            assert_eq!(mask(line), line);
        }
    }
}
