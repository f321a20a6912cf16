//! The JSON body of one call: each field read by its kind, and refused in words that name it.

use super::query::wrong;
use crate::emulator::world::CallError;
use serde_json::{Map, Value};

/// The fields of a body; `null` and an empty text count as not given.
#[derive(Debug, Clone)]
pub struct Body(pub Map<String, Value>);

impl Body {
    /// Reads a body; none at all is one without fields.
    ///
    /// # Errors
    /// [`CallError::InvalidParameter`], like all that follow.
    pub fn read(bytes: &[u8]) -> Result<Self, CallError> {
        if bytes.is_empty() {
            return Ok(Self(Map::new()));
        }
        serde_json::from_slice(bytes)
            .map(Self)
            .map_err(|error| wrong(format!("the body is no JSON object: {error}")))
    }

    /// A field that is given.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null() && value.as_str() != Some(""))
    }

    /// A text.
    ///
    /// # Errors
    /// Another type.
    pub fn text(&self, name: &str) -> Result<Option<&str>, CallError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(format!("{name}: {other} is no text"))),
        }
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// Another type, or nothing.
    pub fn required(&self, name: &str) -> Result<&str, CallError> {
        self.text(name)?.ok_or_else(|| wrong(format!("{name}: is required")))
    }

    /// One of several words.
    ///
    /// # Errors
    /// Another type, or a text that is none of them.
    pub fn word(&self, name: &str, words: &[&str]) -> Result<Option<&str>, CallError> {
        match self.text(name)? {
            Some(text) if !words.contains(&text) => {
                Err(wrong(format!("{name}: {text} is none of {}", words.join(", "))))
            }
            found => Ok(found),
        }
    }

    /// A whole number between two others.
    ///
    /// # Errors
    /// Another type, or a number outside.
    pub fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, CallError> {
        let Some(value) = self.value(name) else { return Ok(None) };
        match value.as_u64().filter(|number| (least..=most).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(format!("{name}: {value} is not {least} to {most}"))),
        }
    }

    /// A list of texts; nothing is an empty one.
    ///
    /// # Errors
    /// Another type, also of an item.
    pub fn texts(&self, name: &str) -> Result<Vec<String>, CallError> {
        let Some(value) = self.value(name) else { return Ok(Vec::new()) };
        let texts = value.as_array().and_then(|items| {
            items.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        });
        texts.ok_or_else(|| wrong(format!("{name}: {value} is no list of texts")))
    }

    /// An object.
    ///
    /// # Errors
    /// Another type.
    pub fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>, CallError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(other) => Err(wrong(format!("{name}: {other} is no object"))),
        }
    }
}
