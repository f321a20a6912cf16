//! Takes secrets and identities out of what DLC answers, so that an answer can be kept and shown.
//!
//! What always holds: the same answer gives the same text; names and types of fields stay, known to
//! us or not; the same account or key becomes the same word everywhere in one call of [`redact`].
//! It rather masks too much. Masked are: values of environment variables (ours aside), everything
//! below `ImageConfig` and `CredentialConfig`, whatever stands under a name that promises a secret,
//! accounts, users and access keys, and each of these again wherever a text quotes it.

use crate::model::secret::Secret;
use crate::openapi::signature::percent_encode;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// What stands in the place of a secret.
pub const MASK: &str = "***";
/// Texts shorter than this are not searched for elsewhere: they would hit common words.
const SEARCHED_FROM: usize = 4;
/// The same for their base64.
const BASE64_FROM: usize = 8;
/// Values that switch something and hide nothing.
const COMMON_WORDS: [&str; 6] = ["true", "false", "none", "None", "null", "auto"];
/// Digits of an account's or user's number.
const ACCOUNT_DIGITS: std::ops::RangeInclusive<usize> = 15..=20;
/// Levels of JSON in a text in JSON that are looked into.
const NESTING_LIMIT: usize = 4;
/// Beginnings of access keys, and the length from which a word is one.
const ACCESS_KEYS: [(&str, usize); 2] = [("LTAI", 12), ("STS.", 12)];
/// Fields whose value says whose a job is.
const IDENTITIES: [&str; 9] = [
    "UserId",
    "TenantId",
    "BusinessUserId",
    "UserIdForFilter",
    "Username",
    "UserName",
    "AccountId",
    "OwnerId",
    "Creator",
];
/// Fields below which every text is a secret.
const SECRET_TABLES: [&str; 2] = ["ImageConfig", "CredentialConfig"];

/// Whether a name promises a secret value.
pub fn promises_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace("tokenizer", "");
    // `Key` alone is one half of a pair, not the name of one.
    name != "key"
        && ["token", "secret", "passw", "passphrase", "pwd", "credential", "key", "auth", "cookie"]
            .iter()
            .any(|hint| name.contains(hint))
}

/// Secrets that are searched for in texts, in every form in which a text may quote them.
#[derive(Clone, Default)]
pub struct Known(BTreeSet<ByLength>);

/// Longer ones come first: one may be part of another.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ByLength(std::cmp::Reverse<usize>, String);

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({})", self.0.len())
    }
}

impl Known {
    /// Adds a secret.
    pub fn add(&mut self, secret: &Secret) {
        self.add_text(secret.expose());
    }

    /// Adds what stands in a CreateJob body, or in an answer, where secrets stand. `names` are
    /// environment variables that are secrets whatever they are called.
    pub fn learn(&mut self, value: &Value, names: &BTreeSet<String>) {
        self.learn_in(value, &Spot::Open, names);
    }

    fn add_text(&mut self, secret: &str) {
        // A key file has several lines, and a log shows them one by one.
        for text in std::iter::once(secret.trim()).chain(secret.lines().map(str::trim)) {
            if text.len() < SEARCHED_FROM || COMMON_WORDS.contains(&text) {
                continue;
            }
            let json = Value::from(text).to_string();
            for form in [
                text.to_owned(),
                json[1..json.len() - 1].to_owned(),
                text.replace('\'', r"'\''"),
                percent_encode(text),
            ]
            .into_iter()
            .chain(in_base64(text))
            {
                self.0.insert(ByLength(std::cmp::Reverse(form.len()), form));
            }
        }
    }

    fn learn_in(&mut self, value: &Value, spot: &Spot, names: &BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (name, inner) in map {
                    let mut below = spot.below(map, name);
                    if matches!(spot, Spot::Envs) && names.contains(name) {
                        below = Spot::Secret;
                    }
                    self.learn_in(inner, &below, names);
                }
            }
            Value::Array(items) => items.iter().for_each(|i| self.learn_in(i, spot, names)),
            Value::String(text) if *spot == Spot::Secret => self.add_text(text),
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// `text` without any of them. A text that was cut may end in the beginning of one.
    pub fn scrub(&self, text: &str) -> String {
        let mut left = text.to_owned();
        for ByLength(_, secret) in &self.0 {
            if left.contains(secret) {
                left = left.replace(secret, MASK);
            }
        }
        left
    }

    /// The same for a text that was cut to `limit` bytes: it may end within a secret.
    pub fn scrub_cut(&self, text: &str, limit: usize) -> String {
        let whole = self.scrub(text);
        // A cut keeps whole letters: up to three bytes of the limit are not used.
        if text.len() + 4 <= limit {
            return whole;
        }
        let ends_in = |secret: &str| {
            let starts = secret.char_indices().map(|(at, _)| at).skip(1);
            starts.filter(|at| whole.ends_with(&secret[..*at])).max()
        };
        let longest = self.0.iter().filter_map(|ByLength(_, secret)| ends_in(secret)).max();
        match longest {
            Some(bytes) => format!("{}{MASK}", &whole[..whole.len() - bytes]),
            None => whole,
        }
    }
}

/// What base64 shows of a text wherever it stands in what was encoded, `user:password` say, in both
/// alphabets. Letters that depend on what stands beside it too are left out; of a short text too few
/// are left to be looked for.
fn in_base64(text: &str) -> Vec<String> {
    const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let letter = |bits: u32, last: [char; 2]| match (LETTERS.get(bits as usize), bits) {
        (Some(letter), _) => char::from(*letter),
        (None, 62) => last[0],
        (None, _) => last[1],
    };
    let encoded = |before: usize, last: [char; 2]| {
        let bytes: Vec<u8> = std::iter::repeat_n(0, before).chain(text.bytes()).collect();
        let first = (before * 8).div_ceil(6);
        let whole = bytes.len() * 8 / 6;
        (first..whole)
            .map(|at| {
                let (byte, bit) = (at * 6 / 8, at * 6 % 8);
                let next = bytes.get(byte + 1).copied().unwrap_or_default();
                let pair = u32::from(bytes[byte]) << 8 | u32::from(next);
                letter(pair >> (10 - bit) & 63, last)
            })
            .collect::<String>()
    };
    let alphabets = [['+', '/'], ['-', '_']];
    let forms = (0..3).flat_map(|before| alphabets.map(|last| encoded(before, last)));
    forms.filter(|form| form.len() >= BASE64_FROM).collect()
}

/// What stands at a place of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Spot {
    /// Nothing special.
    Open,
    /// A table, or a list of pairs, of environment variables.
    Envs,
    /// The value of an environment variable whose name promises nothing.
    EnvValue,
    /// A secret, or a table of them.
    Secret,
    /// An account or user.
    Identity,
}

impl Spot {
    /// What stands under `name` in `table`, which itself stands here.
    fn below(&self, table: &Map<String, Value>, name: &str) -> Self {
        // A pair names its value in the field beside it.
        let pair = (name == "Value")
            .then(|| ["Key", "Name"].iter().find_map(|key| table.get(*key)?.as_str()))
            .flatten();
        let named = pair.unwrap_or(name);
        match self {
            Self::Secret | Self::EnvValue | Self::Identity => self.clone(),
            Self::Envs if named.starts_with("SPOTKEEPER_") => Self::Open,
            // The other fields of a pair.
            Self::Envs
                if ["Key", "Name", "Visible"].contains(&name) && table.contains_key("Value") =>
            {
                Self::Open
            }
            Self::Open | Self::Envs if promises_secret(named) => Self::Secret,
            Self::Envs => Self::EnvValue,
            Self::Open if SECRET_TABLES.contains(&name) => Self::Secret,
            Self::Open if IDENTITIES.contains(&name) => Self::Identity,
            Self::Open if name.ends_with("Envs") => Self::Envs,
            Self::Open => Self::Open,
        }
    }
}

/// Words for accounts, users and keys, in the order in which they come.
#[derive(Default)]
struct Words {
    of: BTreeMap<String, String>,
    accounts: usize,
    keys: usize,
}

impl Words {
    fn account(&mut self, id: &str) -> String {
        if !self.of.contains_key(id) {
            self.accounts += 1;
            self.of.insert(id.to_owned(), format!("account-{}", self.accounts));
        }
        self.of[id].clone()
    }

    fn key(&mut self, id: &str) -> String {
        if !self.of.contains_key(id) {
            self.keys += 1;
            self.of.insert(id.to_owned(), format!("access-key-{}", self.keys));
        }
        self.of[id].clone()
    }

    fn learn(&mut self, value: &Value, spot: &Spot) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(name, inner)| self.learn(inner, &spot.below(map, name)));
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item, spot)),
            Value::String(text) if *spot == Spot::Identity && !text.is_empty() => {
                self.account(text);
            }
            Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// The answers with everything masked. `known` are secrets that no field of them shows as one;
/// `names` are environment variables that are secrets whatever they are called.
pub fn redact(
    answers: &BTreeMap<String, Value>,
    known: &Known,
    names: &BTreeSet<String>,
) -> BTreeMap<String, Value> {
    let (mut known, mut words) = (known.clone(), Words::default());
    for answer in answers.values() {
        known.learn(answer, names);
        words.learn(answer, &Spot::Open);
    }
    let mut pass = Pass { known, words };
    let redacted = |(name, answer): (&String, &Value)| {
        (name.clone(), pass.value(answer, &Spot::Open, NESTING_LIMIT))
    };
    answers.iter().map(redacted).collect()
}

/// A body as a person may see it: what stands where secrets stand is masked, and nothing else.
pub fn hide_secrets(body: &Value) -> Value {
    let mut known = Known::default();
    known.learn(body, &BTreeSet::new());
    hide(body, &Spot::Open, &known)
}

fn hide(value: &Value, spot: &Spot, known: &Known) -> Value {
    match value {
        Value::Object(map) => {
            let hidden = |(name, inner): (&String, &Value)| {
                (name.clone(), hide(inner, &spot.below(map, name), known))
            };
            Value::Object(map.iter().map(hidden).collect())
        }
        Value::Array(items) => items.iter().map(|item| hide(item, spot, known)).collect(),
        Value::String(_) | Value::Number(_) if *spot == Spot::Secret => masked(value),
        Value::String(text) => known.scrub(text).into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The mask of a value's own type: what reads the answer still can.
fn masked(value: &Value) -> Value {
    match value {
        Value::String(text) if !text.is_empty() => MASK.into(),
        Value::Number(_) => 0.into(),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            value.clone()
        }
    }
}

struct Pass {
    known: Known,
    words: Words,
}

impl Pass {
    fn value(&mut self, value: &Value, spot: &Spot, levels: usize) -> Value {
        match value {
            Value::Object(map) => {
                let redacted = |(name, inner): (&String, &Value)| {
                    // A name may be data, too: a tag, a label.
                    (self.text(name, 0), self.value(inner, &spot.below(map, name), levels))
                };
                Value::Object(map.iter().map(redacted).collect())
            }
            Value::Array(items) => items.iter().map(|i| self.value(i, spot, levels)).collect(),
            Value::String(_) | Value::Number(_)
                if matches!(spot, Spot::Secret | Spot::EnvValue) =>
            {
                masked(value)
            }
            Value::String(text) if *spot == Spot::Identity && !text.is_empty() => {
                self.words.account(text).into()
            }
            Value::Number(number) if *spot == Spot::Identity => {
                self.words.account(&number.to_string()).into()
            }
            Value::String(text) => self.text(text, levels).into(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn text(&mut self, text: &str, levels: usize) -> String {
        // A message may be JSON in a text; its fields have names again.
        if levels > 0
            && text.trim_start().starts_with(['{', '['])
            && let Ok(inner @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text)
        {
            let redacted = self.value(&inner, &Spot::Open, levels - 1);
            return if redacted == inner { text.to_owned() } else { redacted.to_string() };
        }
        let text = without_assigned(&self.known.scrub(text));
        let text = self.with_words(&text);
        self.words
            .of
            .iter()
            .filter(|(id, _)| id.len() >= SEARCHED_FROM)
            .fold(text, |text, (id, word)| replace_word(&text, id, word))
    }

    /// Accounts and access keys that are known by their form.
    fn with_words(&mut self, text: &str) -> String {
        let part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
        let mut left = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(part) {
            left.push_str(&rest[..start]);
            rest = &rest[start..];
            let word = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
            rest = &rest[word.len()..];
            let is_key = ACCESS_KEYS.iter().any(|(b, n)| word.starts_with(b) && word.len() >= *n);
            let is_account = ACCOUNT_DIGITS.contains(&word.len())
                && word.bytes().all(|byte| byte.is_ascii_digit());
            if is_key {
                left.push_str(&self.words.key(word));
            } else if is_account {
                left.push_str(&self.words.account(word));
            } else {
                left.push_str(word);
            }
        }
        left.push_str(rest);
        left
    }
}

/// `text` with `word` in the place of each `id` that stands by itself.
fn replace_word(text: &str, id: &str, word: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(id) {
        let (before, after) = (&rest[..at], &rest[at + id.len()..]);
        let stands_alone = !before.ends_with(|c: char| c.is_ascii_alphanumeric())
            && !after.starts_with(|c: char| c.is_ascii_alphanumeric());
        left.push_str(before);
        left.push_str(if stands_alone { word } else { id });
        rest = after;
    }
    left.push_str(rest);
    left
}

/// Masks the value behind `TOKEN=`, `password: `, `--api-key `, `Authorization: Bearer `, and the
/// user part of a URL.
fn without_assigned(text: &str) -> String {
    let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut left = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(part) {
        left.push_str(&rest[..start]);
        rest = &rest[start..];
        let word = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
        left.push_str(word);
        rest = &rest[word.len()..];
        let gap = if promises_secret(word) { gap_behind(word, rest) } else { 0 };
        if gap > 0 {
            left.push_str(&rest[..gap]);
            let quote = rest[..gap].chars().next_back().filter(|c| matches!(c, '"' | '\''));
            rest = &rest[gap..];
            let value = value_at(rest, quote);
            left.push_str(if value == 0 { "" } else { MASK });
            rest = &rest[value..];
        } else if let Some(userinfo) = rest.strip_prefix("://").and_then(userinfo) {
            left.push_str("://");
            left.push_str(MASK);
            rest = &rest[3 + userinfo..];
        }
    }
    left.push_str(rest);
    left
}

/// Bytes between a name and its value; 0 if no value follows.
fn gap_behind(name: &str, rest: &str) -> usize {
    let quotes = |text: &str| text.len() - text.trim_start_matches(['"', '\'', '\\']).len();
    let blanks = |text: &str| text.len() - text.trim_start_matches([' ', '\t']).len();
    let mut at = quotes(rest);
    at += blanks(&rest[at..]);
    let is_flag = name.starts_with("--") && at > 0;
    if rest[at..].starts_with(['=', ':']) && !rest[at..].starts_with("://") {
        at += 1;
        at += blanks(&rest[at..]);
    } else if !is_flag {
        return 0;
    }
    at += quotes(&rest[at..]);
    for scheme in ["Bearer ", "Basic ", "bearer ", "basic "] {
        if rest[at..].starts_with(scheme) {
            at += scheme.len();
        }
    }
    at
}

/// Bytes of the value: to the quote that closes it, or to where a bare word ends.
fn value_at(rest: &str, quote: Option<char>) -> usize {
    let ends = |c: char| match quote {
        Some(quote) => c == quote || c == '\\',
        None => c.is_whitespace() || "\"'&;,)}".contains(c),
    };
    rest.find(ends).unwrap_or(rest.len())
}

/// Bytes of `user:password` in what follows `://`.
fn userinfo(rest: &str) -> Option<usize> {
    let host = rest.find(['/', ' ', '"', '\'', '?']).unwrap_or(rest.len());
    rest[..host].rfind('@')
}

#[cfg(test)]
mod tests;
