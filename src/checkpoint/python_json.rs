//! JSON as Python writes it: its `json` writes `NaN`, `Infinity` and `-Infinity` bare, which no standard
//! has and serde refuses. A loss that was no number once stands so in a trainer's log for good.
//!
//! What always holds: texts are left alone, and nothing else is let through that is no JSON.

use std::borrow::Cow;

/// What Python writes for a number that is none; the longest one that begins alike comes first.
const WORDS: [&[u8]; 3] = [b"-Infinity", b"Infinity", b"NaN"];
/// What stands in their place.
const NULL: &[u8] = b"null";

/// The same text with `null` for each number that is none.
pub(super) fn plain(json: &[u8]) -> Cow<'_, [u8]> {
    let mut plain = Vec::new();
    let (mut taken, mut at, mut in_text) = (0, 0, false);
    while let Some(&byte) = json.get(at) {
        if in_text {
            match byte {
                b'\\' => at += 1,
                b'"' => in_text = false,
                _ => {}
            }
        } else if byte == b'"' {
            in_text = true;
        } else if matches!(byte, b'-' | b'I' | b'N')
            && let Some(word) = WORDS.iter().find(|word| json[at..].starts_with(word))
        {
            plain.extend_from_slice(&json[taken..at]);
            plain.extend_from_slice(NULL);
            at += word.len();
            taken = at;
            continue;
        }
        at += 1;
    }
    if taken == 0 {
        return Cow::Borrowed(json);
    }
    plain.extend_from_slice(&json[taken..]);
    Cow::Owned(plain)
}

/// Looks for one whole number directly in an object of JSON that is too long to be kept, chunk after chunk.
#[derive(Debug)]
pub(super) struct NumberSkim<'n> {
    name: &'n str,
    /// Objects and lists that are open.
    depth: u64,
    at: At,
    /// The last text directly in the object, as far as it may be the name.
    text: Vec<u8>,
    /// What stands behind the name, while it does.
    value: Option<Vec<u8>>,
    found: Option<u64>,
    /// Whether the object has its end, and whether anything stood outside of it.
    is_ended: bool,
    is_odd: bool,
}

/// Where the next byte stands.
#[derive(Debug, Clone, Copy)]
enum At {
    Plain,
    Text,
    /// Behind a backslash in a text.
    Escape,
}

/// Bytes of the longest number that is kept.
const DIGITS_LIMIT: usize = 24;

impl<'n> NumberSkim<'n> {
    pub(super) fn new(name: &'n str) -> Self {
        Self {
            name,
            depth: 0,
            at: At::Plain,
            text: Vec::new(),
            value: None,
            found: None,
            is_ended: false,
            is_odd: false,
        }
    }

    /// Takes the next bytes.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match self.at {
                At::Plain => self.take_plain(byte),
                At::Text | At::Escape => self.take_text(byte),
            }
        }
    }

    /// The number, if the object was there to its end.
    pub(super) fn end(self) -> Result<Option<u64>, Cut> {
        if self.is_ended && !self.is_odd { Ok(self.found) } else { Err(Cut) }
    }

    fn take_text(&mut self, byte: u8) {
        self.at = match (self.at, byte) {
            (At::Text, b'"') => {
                self.at = At::Plain;
                return;
            }
            (At::Text, b'\\') => At::Escape,
            (At::Plain | At::Text | At::Escape, _) => At::Text,
        };
        if self.depth == 1 && self.text.len() <= self.name.len() {
            self.text.push(byte);
        }
    }

    fn take_plain(&mut self, byte: u8) {
        if self.is_ended || (self.depth == 0 && byte != b'{') {
            self.is_odd |= !byte.is_ascii_whitespace();
            return;
        }
        match byte {
            b'"' => {
                self.at = At::Text;
                self.text.clear();
            }
            b':' if self.depth == 1 => {
                self.value = (self.text == self.name.as_bytes()).then(Vec::new);
            }
            b',' if self.depth == 1 => self.end_value(),
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value();
                    self.is_ended = true;
                }
                self.depth -= 1;
            }
            _ => {
                if let Some(value) = self.value.as_mut().filter(|v| v.len() < DIGITS_LIMIT) {
                    value.push(byte);
                }
            }
        }
    }

    fn end_value(&mut self) {
        let value = self.value.take().and_then(|value| String::from_utf8(value).ok());
        if let Some(value) = value {
            self.found = value.trim().parse().ok();
        }
    }
}

/// The text has no end.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cut;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_become_null_and_texts_stay() {
        for (python, wanted) in [
            (r#"{"a": NaN, "b": [Infinity,-Infinity]}"#, r#"{"a": null, "b": [null,null]}"#),
            (r#"{"NaN": "Infinity \" NaN", "b":NaN}"#, r#"{"NaN": "Infinity \" NaN", "b":null}"#),
            (r#"{"a": -1, "b": "-Infinity"}"#, r#"{"a": -1, "b": "-Infinity"}"#),
            (r#"{"a\\": NaN}"#, r#"{"a\\": null}"#),
            ("NaN", "null"),
        ] {
            assert_eq!(plain(python.as_bytes()), wanted.as_bytes(), "{python}");
        }
        for bad in ["{\"a\": Na", "{\"a\": -NaN}", "{\"a\": NaNs}", "{\"a\": 1NaN}", "{\"a\": NaN"]
        {
            let text = plain(bad.as_bytes());
            let read = serde_json::from_slice::<serde_json::Value>(&text);
            assert!(read.is_err(), "{bad}");
        }
    }

    fn skimmed(text: &str, chunk: usize) -> Result<Option<u64>, Cut> {
        let mut skim = NumberSkim::new("global_step");
        for bytes in text.as_bytes().chunks(chunk) {
            skim.take(bytes);
        }
        skim.end()
    }

    #[test]
    fn a_number_is_found_in_an_object_of_any_length() {
        let log = r#"{"epoch": 1.5, "log_history": [{"global_step": 3, "loss": NaN, "t": "}\"{"}],
            "global_step" : 500 , "x": {"global_step": 7}}"#;
        for chunk in [1, 2, 7, 1_000] {
            assert_eq!(skimmed(log, chunk), Ok(Some(500)), "{chunk}");
            assert_eq!(skimmed(r#"{"a": "global_step", "b": 4}"#, chunk), Ok(None));
            assert_eq!(skimmed("{\"global_step\":12}\n", chunk), Ok(Some(12)));
            for cut in [&log[..log.len() - 1], "", "{", "[1]", "{} x", r#"{"a": "b}"#] {
                assert_eq!(skimmed(cut, chunk), Err(Cut), "{cut}");
            }
        }
    }
}
