//! A CreateJob body as TOML that people read: every key as the API names it, comments above the
//! keys that they are about.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Fields that stand first, in this order; all others follow by name.
const FIRST: [&str; 5] = ["JobType", "DisplayName", "WorkspaceId", "UserCommand", "Envs"];

/// Lines above a key, by the key's JSON pointer.
pub(super) type Comments = BTreeMap<String, Vec<String>>;

/// `body` as the table `[submit]` and the tables below it.
pub(super) fn submit(body: &Map<String, Value>, comments: &Comments) -> String {
    let mut text = String::new();
    let writer = Writer { comments };
    text.push_str("[submit]\n");
    writer.table(&mut text, "submit", "", body);
    text
}

/// A line of a comment: nothing in it can end the comment.
pub(super) fn comment(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("# {}\n", line.trim_end())
}

/// A text in quotes.
pub(super) fn quoted(text: &str) -> String {
    let plain = |c: char| !c.is_control();
    if text.contains('\n')
        && text.chars().all(|c| plain(c) || c == '\n')
        && !text.contains("'''")
        && !text.ends_with('\'')
    {
        return format!("'''\n{text}'''");
    }
    on_one_line(text)
}

/// A text in quotes that have no form of several lines.
fn on_one_line(text: &str) -> String {
    let plain = |c: char| !c.is_control();
    if text.contains(['"', '\\']) && !text.contains('\'') && text.chars().all(plain) {
        return format!("'{text}'");
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

struct Writer<'a> {
    comments: &'a Comments,
}

impl Writer<'_> {
    fn table(&self, out: &mut String, path: &str, pointer: &str, map: &Map<String, Value>) {
        let rank = |name: &str| FIRST.iter().position(|f| *f == name).unwrap_or(FIRST.len());
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        entries.sort_by_key(|(name, _)| (rank(name), name.as_str()));
        let (tables, values): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|(_, value)| is_tables(value));
        for (name, value) in values {
            self.comment(out, &below(pointer, name));
            out.push_str(&key(name));
            out.push_str(" = ");
            inline(out, value);
            out.push('\n');
        }
        for (name, value) in tables {
            let (path, pointer) = (format!("{path}.{}", key(name)), below(pointer, name));
            out.push('\n');
            self.comment(out, &pointer);
            if let Value::Object(map) = value {
                out.extend(["[", &path, "]\n"]);
                self.table(out, &path, &pointer, map);
            }
            for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                let pointer = below(&pointer, &index.to_string());
                if index > 0 {
                    out.push('\n');
                }
                self.comment(out, &pointer);
                out.extend(["[[", &path, "]]\n"]);
                if let Value::Object(map) = item {
                    self.table(out, &path, &pointer, map);
                }
            }
        }
    }

    fn comment(&self, out: &mut String, pointer: &str) {
        for line in self.comments.get(pointer).into_iter().flatten() {
            out.push_str(&comment(line));
        }
    }
}

/// Whether a value gets tables of its own, not a line.
fn is_tables(value: &Value) -> bool {
    match value {
        Value::Object(map) => !(map.is_empty() || map.len() == 1 && map.contains_key("secret")),
        Value::Array(items) => !items.is_empty() && items.iter().all(Value::is_object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{name}")
}

fn key(name: &str) -> String {
    let bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !name.is_empty() && name.bytes().all(bare) {
        return name.to_owned();
    }
    // A key has no form of several lines.
    on_one_line(name)
}

/// Nulls were taken out before: TOML has none.
fn inline(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("\"\""),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => {
            let text = number.to_string();
            let whole = !text.contains(['.', 'e', 'E']);
            out.push_str(&text);
            // A whole number of TOML has 64 bits; as a decimal one it keeps its value.
            if whole && text.parse::<i64>().is_err() && text.parse::<u64>().is_err() {
                out.push_str(".0");
            }
        }
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { "" });
                inline(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            out.push('{');
            for (index, (name, item)) in map.iter().enumerate() {
                out.push_str(if index > 0 { ", " } else { " " });
                out.push_str(&key(name));
                out.push_str(" = ");
                inline(out, item);
            }
            out.push_str(if map.is_empty() { "}" } else { " }" });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_value_comes_back_from_toml() {
        let body = json!({
            "JobType": "x", "A b\n\"": {"c.d": 1, "": true}, "k\n\\u0000\0": 1,
            "S": "a 'b' \"c\" \\ \u{7f}\r\té",
            "M": "line 1\n'x' \"y\" \\\nline 3", "Q": "ends\n'", "T": "a\n'''", "R": "\n",
            "N": [0.4, 0.011, -3, 1e300, 9_007_199_254_740_993_u64, 1.0],
            "L": [], "E": {}, "Mixed": [{"a": 1}, 2, []], "Tables": [{"x": {"y": [{"z": 1}]}}, {}],
            "Envs": {"TOKEN": {"secret": "t"}, "B": ""},
        });
        let map = body.as_object().expect("an object");
        let comments = Comments::from([("/S".to_owned(), vec!["one\ntwo".to_owned()])]);
        let text = submit(map, &comments);
        assert!(text.contains("# one two\n"), "{text}");
        let back: Value = toml::from_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(back["submit"].to_string(), body.to_string(), "{text}");
    }
}
