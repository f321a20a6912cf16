//! Where each value of a JSON text stands.
//!
//! Walks a text that serde_json has accepted; it checks nothing a second time. Any other text gives
//! places that mean nothing, and no panic.

use super::body::{Spots, step};
use super::reader::Span;

/// A key that an object has twice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Twice {
    /// The key.
    pub(super) key: String,
    /// Where it stands for the second time.
    pub(super) span: Span,
}

/// The places of all values, by JSON pointer, and the keys given twice.
pub(super) fn places(text: &str) -> (Spots, Vec<Twice>) {
    let mut walk = Walk { text, at: 0, spots: Spots::new(), twice: Vec::new() };
    walk.value("", &(0..0));
    (walk.spots, walk.twice)
}

struct Walk<'t> {
    text: &'t str,
    at: usize,
    spots: Spots,
    twice: Vec<Twice>,
}

impl Walk<'_> {
    /// Depth is bounded by serde_json, which refuses more than 128 levels.
    fn value(&mut self, pointer: &str, key: &Span) {
        self.blanks();
        let start = self.at;
        match self.peek() {
            Some(b'{') => self.members(pointer),
            Some(b'[') => self.items(pointer),
            Some(b'"') => self.string(),
            _ => self.skip(|b| !matches!(b, b',' | b']' | b'}') && !b.is_ascii_whitespace()),
        }
        self.spots.insert(pointer.to_owned(), (key.clone(), start..self.at));
    }

    fn members(&mut self, pointer: &str) {
        self.at += 1;
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                break;
            }
            let start = self.at;
            self.string();
            let span = start..self.at;
            let name = self.text.get(span.clone()).unwrap_or_default();
            let name: String = serde_json::from_str(name).unwrap_or_default();
            let child = step(pointer, &name);
            if self.spots.contains_key(&child) {
                self.twice.push(Twice { key: name, span: span.clone() });
            }
            self.blanks();
            self.at += 1; // the colon
            self.value(&child, &span);
            if !self.comma() {
                break;
            }
        }
        self.at += 1;
    }

    fn items(&mut self, pointer: &str) {
        self.at += 1;
        self.blanks();
        let mut index = 0;
        while !matches!(self.peek(), Some(b']') | None) {
            let start = self.at;
            self.value(&step(pointer, &index.to_string()), &(start..start));
            index += 1;
            if !self.comma() {
                break;
            }
        }
        self.at += 1;
    }

    fn comma(&mut self) -> bool {
        self.blanks();
        let comma = self.peek() == Some(b',');
        self.at += usize::from(comma);
        comma
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
    }

    fn blanks(&mut self) {
        self.skip(|byte| byte.is_ascii_whitespace());
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_its_place() {
        let text = "{\n \"A\": [ 1, {\"b/c\": \"x\\\"}\"} ],\n \"E\": {}, \"L\": []}\n";
        let (spots, twice) = places(text);
        let at = |pointer: &str| text.get(spots[pointer].1.clone()).expect("a span").to_owned();
        assert_eq!(at("/A/0"), "1");
        assert_eq!(at("/A/1/b~1c"), "\"x\\\"}\"");
        assert_eq!(text.get(spots["/A/1/b~1c"].0.clone()), Some("\"b/c\""));
        assert_eq!((at("/E").as_str(), at("/L").as_str()), ("{}", "[]"));
        assert_eq!(at(""), text.trim_end());
        assert!(twice.is_empty());
    }

    #[test]
    fn a_key_given_twice_is_seen_and_broken_text_does_no_harm() {
        let (_, twice) = places("{\"a\": 1, \"b\": {\"a\": 2}, \"a\": 3}");
        assert_eq!(twice, [Twice { key: "a".into(), span: 24..27 }]);
        for broken in ["{", "[", "{\"", "{\"a\\", "{\"a\"", "[1", "é", "", "{]", "[}", "{\"a\":}"]
        {
            places(broken);
        }
    }
}
