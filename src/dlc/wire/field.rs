//! Reading one field of an answer without trusting its type.

use super::WireError;
use crate::model::money::Money;
use crate::model::time::WallTime;
use serde_json::Value;
use std::collections::BTreeMap;

/// The field `name`, in the API's spelling or with its first letter in lower case.
pub(super) fn get<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).or_else(|| {
        let mut letters = name.chars();
        let first = letters.next()?.to_ascii_lowercase();
        value.get(format!("{first}{}", letters.as_str()))
    })
}

/// A text, or a number as its text. Anything else is not there.
pub(super) fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A text that is there and not empty.
pub(super) fn text(value: &Value, name: &str) -> Option<String> {
    as_text(get(value, name)?).filter(|text| !text.is_empty())
}

/// A whole number that is not negative, written as a number or as text.
pub(super) fn as_number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            // `12.0` is a whole number too.
            let text = number.to_string();
            text.strip_suffix(".0")?.parse().ok()
        }),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The number in a field.
pub(super) fn number(value: &Value, name: &str) -> Option<u64> {
    as_number(get(value, name)?)
}

/// A finite number of any kind, written as a number or as text.
pub(super) fn as_float(value: &Value) -> Option<f64> {
    let number: f64 = as_text(value)?.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// A decimal that is not negative, in millionths; more places are rounded.
pub(super) fn fraction(value: &Value, name: &str) -> Option<Money> {
    let value = get(value, name)?;
    let exact = as_text(value).and_then(|text| Money::parse(text.trim()));
    exact.or_else(|| Money::parse(&format!("{:.6}", as_float(value)?)))
}

/// A truth value, written as one or as text.
pub(super) fn flag(value: &Value, name: &str) -> Option<bool> {
    match get(value, name)? {
        Value::Bool(flag) => Some(*flag),
        Value::String(text) => text.trim().to_ascii_lowercase().parse().ok(),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The texts in a field, which may be a list or one text with commas.
pub(super) fn texts(value: &Value, name: &str) -> Vec<String> {
    match get(value, name) {
        Some(Value::Array(items)) => items.iter().filter_map(as_text).collect(),
        Some(Value::String(text)) => {
            text.split(',').map(str::trim).filter(|t| !t.is_empty()).map(str::to_owned).collect()
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => {
            Vec::new()
        }
    }
}

/// The list in a field; empty if there is none.
pub(super) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    get(value, name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A time. Zero values of a server (`0001-01-01…`, `1970-01-01T00:00:00Z`) mean "not yet".
pub(super) fn time(value: &Value, name: &str) -> Option<WallTime> {
    get(value, name)?.as_str().and_then(WallTime::parse).filter(|time| time.0 > 0)
}

/// Names and values, written as an object or as a list of `{Key, Value}`.
pub(super) fn named_values(value: Option<&Value>) -> BTreeMap<String, String> {
    match value {
        Some(Value::Object(map)) => {
            map.iter().filter_map(|(name, v)| Some((name.clone(), as_text(v)?))).collect()
        }
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(|item| {
                let name = text(item, "Key").or_else(|| text(item, "Name"))?;
                Some((name, as_text(get(item, "Value")?)?))
            })
            .collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) | None => {
            BTreeMap::new()
        }
    }
}

/// What kind of value stands somewhere, for error texts.
pub(super) fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None => "missing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "a truth value",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(text)) if text.is_empty() => "empty",
        Some(Value::String(_)) => "a text",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    }
}

/// A text that has to be there.
pub(super) fn needed(
    what: &'static str,
    value: &Value,
    field: &'static str,
) -> Result<String, WireError> {
    let found = get(value, field);
    match found.and_then(Value::as_str) {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err(WireError::Field { what, field, found: kind(found).to_owned() }),
    }
}
