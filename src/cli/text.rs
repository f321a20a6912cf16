//! Text from outside on a terminal. A job's message must not be able to move the cursor, change
//! colours or reverse what is written: everything that could is shown as an escape.

use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Characters of a text that are measured at most before it is cut.
const MEASURED_CHARACTERS: usize = 512;

/// Whether a terminal could take `c` for a command, or for a change of direction.
fn commands(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` on one line, with every character that could command a terminal as an escape.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.chars().any(commands) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            c if commands(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", u32::from(c));
            }
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// JSON for a person or a script: valid, and without a character that could command a terminal.
pub fn json(value: &Value, lines: Lines) -> String {
    let text = match lines {
        Lines::Many => format!("{value:#}"),
        Lines::One => value.to_string(),
    };
    // Line breaks stand between the values; inside the texts they are escaped already.
    if !text.chars().any(|c| commands(c) && c != '\n') {
        return text;
    }
    text.chars().fold(String::with_capacity(text.len() + 16), |mut shown, c| {
        if commands(c) && c != '\n' {
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
        shown
    })
}

/// How JSON is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lines {
    /// Indented.
    Many,
    /// For `jsonl`.
    One,
}

/// Columns that `text` takes on a terminal; Chinese takes two a character.
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    let mut one = comfy_table::Table::new();
    one.add_row([text]);
    one.column_max_content_widths().first().copied().unwrap_or(0).into()
}

/// `text` in at most `columns`, with `…` where it was cut.
pub fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if text.chars().count() <= MEASURED_CHARACTERS && width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let room = columns.saturating_sub(1);
    let ends: Vec<usize> =
        text.char_indices().map(|(at, _)| at).take(MEASURED_CHARACTERS).collect();
    let fits = ends.partition_point(|end| width(&text[..*end]) <= room || *end == 0);
    let end = fits.checked_sub(1).map_or(0, |last| ends[last]);
    Cow::Owned(format!("{}…", text[..end].trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_can_command_a_terminal() {
        assert_eq!(plain("all well 你好"), "all well 你好");
        assert_eq!(plain("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(plain("a\nb\tc\rd"), "a\\nb\\tc\\rd");
        assert_eq!(plain("x\u{9b}31m\u{7f}\u{202e}y"), "x\\u{9b}31m\\u{7f}\\u{202e}y");
    }

    #[test]
    fn json_stays_valid_and_commands_nothing() {
        let value = serde_json::json!({ "why": "a\u{9b}31m\x1b[0m\u{202e}\n" });
        for lines in [Lines::One, Lines::Many] {
            let text = json(&value, lines);
            assert!(text.chars().all(|c| !commands(c) || c == '\n'), "{text:?}");
            assert_eq!(serde_json::from_str::<Value>(&text).expect("valid JSON"), value);
        }
        assert_eq!(json(&value, Lines::One).lines().count(), 1);
    }

    #[test]
    fn chinese_takes_two_columns_and_is_cut_between_characters() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("训练"), 4);
        assert_eq!(cut("训练任务", 8), "训练任务");
        assert_eq!(cut("训练任务", 7), "训练任…");
        assert_eq!(cut("训练任务", 6), "训练…");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcdef", 1), "…");
        let long = "长".repeat(10_000);
        assert_eq!(width(&cut(&long, 28)), 27);
    }
}
