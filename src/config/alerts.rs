//! `[alerts.NAME]` of the daemon file: who is told of what, when.

use super::codes;
use super::diagnostic::{Diagnostic, Notes};
use super::nearest::nearest;
use super::reader::{Found, Table};
use super::secret_ref::secret_ref;
use crate::model::alert::{Channel, PLACEHOLDERS, Quiet, SecretRef, Way};
use jiff::tz::TimeZone;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Channels of one daemon file.
const CHANNELS_LIMIT: usize = 32;
/// Patterns, words or addresses of one channel.
const LIST_LIMIT: usize = 100;
/// Bytes of a template.
const TEMPLATE_LIMIT_BYTES: usize = 8 * 1024;
const FOLD: Duration = Duration::from_mins(15);
const FOLD_LONGEST: Duration = Duration::from_hours(24);
const SENDMAIL: &str = "/usr/sbin/sendmail";

/// Words of events that are told of where a channel does not say.
pub const DEFAULT_EVENTS: [&str; 2] = ["ALARM", "FAILED"];
/// Words of events that may be told of.
pub const EVENTS: [&str; 29] = [
    "ACCEPTED",
    "SPEC_CHANGED",
    "INTENT",
    "SUBMITTED",
    "REFUSED",
    "UNKNOWN",
    "FOUND",
    "ABSENT",
    "PHASE",
    "RELEASED",
    "ENDED",
    "VERDICT",
    "CHECKPOINT",
    "BACKOFF",
    "HELD",
    "BLOCKED",
    "STOP_ASKED",
    "STOPPED",
    "TWIN",
    "COPY",
    "LOST",
    "RETURNED",
    "RESTARTED_IN_PLACE",
    "ALARM",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "OPERATOR",
    "RELOADED",
];
const KINDS: [&str; 6] = ["webhook", "dingtalk", "feishu", "wecom", "slack", "mail"];

/// The channels that are free of errors.
pub(super) fn channels(
    notes: &Notes<'_>,
    top: &mut Table<'_, '_>,
    job_secrets: &Path,
) -> Vec<Channel> {
    let tables = top.named_tables("alerts");
    if let Some((name, _)) = tables.get(CHANNELS_LIMIT) {
        let message = format!("more than {CHANNELS_LIMIT} channels");
        notes.error(&name.key, codes::FILE_LIMIT, message, "route by `jobs` within one");
    }
    let tables = tables.into_iter().take(CHANNELS_LIMIT);
    tables.filter_map(|(name, table)| channel(notes, &name, table, job_secrets)).collect()
}

fn channel(
    notes: &Notes<'_>,
    name: &Found<String>,
    mut table: Table<'_, '_>,
    job_secrets: &Path,
) -> Option<Channel> {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !(1..=32).contains(&name.value.len()) || !name.value.bytes().all(letter) {
        let wanted = "wanted: 1 to 32 letters, digits, `-` and `_`";
        notes.error(&name.key, codes::WRONG_VALUE, "not a name of a channel", wanted);
    }
    if !table.has("kind") {
        let message = format!("channel `{}` has no `kind`", name.value);
        notes.error(&name.key, codes::MISSING, message, format!("one of: {}", KINDS.join(", ")));
    }
    let kind = table.word("kind", &KINDS).map(|found| found.value);
    let way = way(notes, name, &mut table, kind.as_deref(), job_secrets);
    let jobs = texts(notes, &mut table, "jobs", |text| {
        let fits = !text.is_empty() && text.len() <= 256 && !text.chars().any(char::is_control);
        fits.then_some(()).ok_or_else(|| "a name of a job, with `*` for any text".to_owned())
    });
    let events = texts(notes, &mut table, "events", |word| {
        EVENTS.contains(&word).then_some(()).ok_or_else(|| {
            nearest(word, EVENTS).map_or("a word of docs/words.md".to_owned(), str::to_owned)
        })
    });
    let fold = table.duration("fold", Duration::ZERO..=FOLD_LONGEST);
    let quiet = table.text("quiet").and_then(|found| {
        let (from, until) = found.value.split_once('-').unwrap_or_default();
        match (minutes(from), minutes(until)) {
            (Some(from), Some(until)) => Some(Quiet { from, until }),
            _ => wrong(notes, &found, "quiet", "two times such as \"22:00-08:00\""),
        }
    });
    let summary = table.text("summary").and_then(|found| {
        minutes(&found.value)
            .or_else(|| wrong(notes, &found, "summary", "a time such as \"08:30\""))
    });
    let zone = table.text("time_zone").and_then(|found| {
        let wanted = "a name such as \"Asia/Shanghai\" (is the package tzdata installed?)";
        TimeZone::get(&found.value).ok().or_else(|| wrong(notes, &found, "time_zone", wanted))
    });
    table.finish();
    Some(Channel {
        name: name.value.clone(),
        way: way?,
        jobs: jobs.unwrap_or_else(|| vec!["*".to_owned()]),
        events: events.unwrap_or_else(|| DEFAULT_EVENTS.map(str::to_owned).to_vec()),
        fold: fold.map_or(FOLD, |found| found.value),
        quiet,
        summary,
        zone: zone.unwrap_or_else(TimeZone::system),
    })
}

fn way(
    notes: &Notes<'_>,
    name: &Found<String>,
    table: &mut Table<'_, '_>,
    kind: Option<&str>,
    job_secrets: &Path,
) -> Option<Way> {
    // What a key is for is checked even where the kind cannot be read.
    let is = |kinds: &[&str]| kind.is_none_or(|kind| kinds.contains(&kind));
    let stray = |table: &Table<'_, '_>, key: &str, kinds: &[&str]| {
        if table.has(key) && !is(kinds) {
            let message = format!("`{key}` is not for a channel of this kind");
            let mend = format!("take it out; it goes with {}", kinds.join(", "));
            notes.error(&name.key, codes::FIELDS_EXCLUDE, message, mend);
        }
    };
    let posts = ["webhook", "dingtalk", "feishu", "wecom", "slack"];
    let signed = ["webhook", "dingtalk", "feishu"];
    stray(table, "url", &posts);
    stray(table, "secret", &signed);
    stray(table, "template", &["webhook"]);
    for key in ["program", "to", "from"] {
        stray(table, key, &["mail"]);
    }
    for (key, kinds) in [("url", &posts[..]), ("to", &["mail"][..])] {
        if kind.is_some_and(|kind| kinds.contains(&kind)) && !table.has(key) {
            let message = format!("channel `{}` has no `{key}`", name.value);
            let mend = match key {
                "url" => "add url = { file = \"…\" }: the address holds a token",
                _ => "add to = [\"me@example.org\"]",
            };
            notes.error(&name.key, codes::MISSING, message, mend);
        }
    }
    let url = secret_ref(notes, table, "url", job_secrets);
    let secret = secret_ref(notes, table, "secret", job_secrets);
    let template = template(notes, table);
    let program = table.text("program").map(|found| {
        let folder = notes.source.file.parent().unwrap_or(Path::new(""));
        folder.join(found.value)
    });
    let to = texts(notes, table, "to", address);
    let from = table.text("from").and_then(|found| match address(&found.value) {
        Ok(()) => Some(found.value),
        Err(wanted) => wrong(notes, &found, "from", &wanted),
    });
    with_parts(kind?, url, secret, template, (program, to, from))
}

fn with_parts(
    kind: &str,
    url: Option<SecretRef>,
    secret: Option<SecretRef>,
    template: Option<String>,
    (program, to, from): (Option<PathBuf>, Option<Vec<String>>, Option<String>),
) -> Option<Way> {
    Some(match kind {
        "webhook" => Way::Webhook { url: url?, secret, template },
        "dingtalk" => Way::DingTalk { url: url?, secret },
        "feishu" => Way::Feishu { url: url?, secret },
        "wecom" => Way::WeCom { url: url? },
        "slack" => Way::Slack { url: url? },
        _ => Way::Mail { program: program.unwrap_or_else(|| SENDMAIL.into()), to: to?, from },
    })
}

/// An address of mail: one word, which no program can take for a flag.
fn address(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_graphic() && !"<>(),;:\"\\".contains(c);
    let fits = text.chars().all(plain) && text.len() <= 254 && !text.starts_with('-');
    match text.split_once('@') {
        Some((user, host)) if fits && !user.is_empty() && !host.is_empty() => Ok(()),
        _ => Err("an address such as \"me@example.org\"".to_owned()),
    }
}

/// A list of at least one text, each of which `check` takes or says what was wanted.
fn texts(
    notes: &Notes<'_>,
    table: &mut Table<'_, '_>,
    key: &'static str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Option<Vec<String>> {
    let found = table.list(key)?;
    if found.value.is_empty() || found.value.len() > LIST_LIMIT {
        let message = format!("`{key}` has {} entries", found.value.len());
        let wanted = format!("wanted: 1 to {LIST_LIMIT}; without the key the default holds");
        notes.error(&found.span, codes::WRONG_VALUE, message, wanted);
        return None;
    }
    for text in &found.value {
        if let Err(wanted) = check(&text.value) {
            let message = format!("`{key}` cannot hold this");
            let at = notes.source.at(&text.span);
            let near = EVENTS.contains(&wanted.as_str()).then(|| wanted.clone());
            let mend = if near.is_some() { String::new() } else { format!("wanted: {wanted}") };
            notes.add(Diagnostic::error(at, codes::WRONG_VALUE, message, mend).near(near));
        }
    }
    Some(found.value.into_iter().map(|text| text.value).collect())
}

/// A template: known placeholders, and JSON once they are filled in.
fn template(notes: &Notes<'_>, table: &mut Table<'_, '_>) -> Option<String> {
    let found = table.text("template")?;
    let mut filled = found.value.clone();
    for (at, _) in found.value.match_indices('{') {
        let rest = &found.value[at + 1..];
        let Some(name) = rest.find('}').map(|end| &rest[..end]) else { continue };
        let is_word = |b: u8| b.is_ascii_lowercase() || b == b'_';
        if name.is_empty() || !name.bytes().all(is_word) || PLACEHOLDERS.contains(&name) {
            continue;
        }
        let message = format!("unknown placeholder `{{{name}}}` in `template`");
        let mend = format!("known: {}", PLACEHOLDERS.join(", "));
        let near = nearest(name, PLACEHOLDERS).map(str::to_owned);
        let at = notes.source.at(&found.span);
        notes.add(Diagnostic::error(at, codes::PLACEHOLDER, message, mend).near(near));
    }
    for name in PLACEHOLDERS {
        filled = filled.replace(&format!("{{{name}}}"), "1");
    }
    if found.value.len() > TEMPLATE_LIMIT_BYTES {
        let wanted = format!("at most {TEMPLATE_LIMIT_BYTES} bytes");
        return wrong(notes, &found, "template", &wanted);
    }
    if serde_json::from_str::<serde::de::IgnoredAny>(&filled).is_err() {
        let wanted = "JSON, with texts such as {text} inside quotes";
        return wrong(notes, &found, "template", wanted);
    }
    Some(found.value)
}

fn wrong<T>(notes: &Notes<'_>, found: &Found<String>, key: &str, wanted: &str) -> Option<T> {
    let message = format!("`{key}` cannot have this value");
    notes.error(&found.span, codes::WRONG_VALUE, message, format!("wanted: {wanted}"));
    None
}

/// `08:30` as minutes after midnight.
fn minutes(text: &str) -> Option<u16> {
    let (hours, minutes) = text.trim().split_once(':')?;
    let number = |text: &str| {
        let digits = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        digits.then(|| text.parse::<u16>().ok()).flatten()
    };
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}
