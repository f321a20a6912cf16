//! The CreateJob body of a job, as TOML below `[submit]` or as a JSON file, in one shape.
//!
//! Every field is kept, known or not, and each keeps its place in the file it came from.

use super::codes;
use super::diagnostic::{Diagnostic, Notes, Source, accepted};
use super::json_places;
use super::reader::Span;
use serde_json::{Map, Number, Value};
use std::collections::BTreeMap;
use toml::de::{DeArray, DeTable, DeValue};

/// Where keys and values stand, by JSON pointer.
pub(super) type Spots = BTreeMap<String, (Span, Span)>;

/// The pointer one step below `pointer`.
pub(super) fn step(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The object in a JSON text, or what is wrong with it and where.
pub fn json_object(source: &Source) -> Result<Map<String, Value>, Vec<Diagnostic>> {
    let notes = Notes::new(source);
    let value = Body::from_json(&notes).map(|body| body.value);
    let found = notes.into_found();
    match value {
        Some(Value::Object(map)) if accepted(&found) => Ok(map),
        Some(_) | None => Err(found),
    }
}

/// A CreateJob body with its places.
#[derive(Debug)]
pub(super) struct Body<'n, 's> {
    /// The body: always an object.
    pub(super) value: Value,
    /// Where findings go: the job file's notes, or those of the JSON file.
    pub(super) notes: &'n Notes<'s>,
    spots: Spots,
}

impl<'n, 's> Body<'n, 's> {
    /// A body out of a TOML table that stands at `span`.
    pub(super) fn from_toml(
        notes: &'n Notes<'s>,
        key: Span,
        span: Span,
        table: DeTable<'_>,
    ) -> Self {
        let mut spots = Spots::from([(String::new(), (key, span))]);
        let value = Value::Object(object(notes, &mut spots, "", table));
        Self { value, notes, spots }
    }

    /// A body out of a JSON text. `None` if it is not one.
    pub(super) fn from_json(notes: &'n Notes<'s>) -> Option<Self> {
        let text = &notes.source.text;
        match serde_json::from_str::<Value>(text) {
            Ok(value @ Value::Object(_)) => {
                let (spots, twice) = json_places::places(text);
                for json_places::Twice { key, span } in twice {
                    let message = format!("`{key}` is given twice");
                    notes.error(&span, codes::SUBMIT_FILE, message, "keep one of the two");
                }
                Some(Self { value, notes, spots })
            }
            Ok(_) => {
                let message = "the file is not a JSON object";
                let mend = "give the body of CreateJob: {\"JobType\": …}";
                notes.error(&(0..0), codes::SUBMIT_FILE, message, mend);
                None
            }
            Err(error) => {
                let line_start: usize =
                    text.split_inclusive('\n').take(error.line().max(1) - 1).map(str::len).sum();
                let at = line_start + error.column().saturating_sub(1);
                let text = error.to_string();
                let words = text.rsplit_once(" at line ").map_or(text.as_str(), |(words, _)| words);
                let message = format!("not JSON: {words}");
                notes.error(&(at..at + 1), codes::SUBMIT_FILE, message, "mend the syntax");
                None
            }
        }
    }

    /// The value at a pointer.
    pub(super) fn get(&self, pointer: &str) -> Option<&Value> {
        self.value.pointer(pointer)
    }

    /// The text at a pointer.
    pub(super) fn text(&self, pointer: &str) -> Option<&str> {
        self.get(pointer)?.as_str()
    }

    /// The object at a pointer; empty if there is none.
    pub(super) fn object(&self, pointer: &str) -> impl Iterator<Item = (&String, &Value)> {
        self.get(pointer).and_then(Value::as_object).into_iter().flatten()
    }

    /// The list at a pointer, each item with its own pointer; empty if there is none.
    pub(super) fn items(&self, pointer: &str) -> impl Iterator<Item = (String, &Value)> {
        let items = self.get(pointer).and_then(Value::as_array).into_iter().flatten();
        let pointer = pointer.to_owned();
        items.enumerate().map(move |(index, item)| (step(&pointer, &index.to_string()), item))
    }

    /// Where the value at a pointer stands, or else the nearest thing around it.
    pub(super) fn at(&self, pointer: &str) -> Span {
        self.spot(pointer).1.clone()
    }

    /// Where the key at a pointer stands, or else the nearest thing around it.
    pub(super) fn key_at(&self, pointer: &str) -> Span {
        let (key, value) = self.spot(pointer);
        if key.is_empty() { value.clone() } else { key.clone() }
    }

    fn spot(&self, pointer: &str) -> &(Span, Span) {
        let mut pointer = pointer;
        loop {
            match (self.spots.get(pointer), pointer.rfind('/')) {
                (Some(spot), _) => return spot,
                (None, Some(up)) => pointer = &pointer[..up],
                (None, None) => return &NOWHERE,
            }
        }
    }

    /// Adds an error at the value of a pointer.
    pub(super) fn error(
        &self,
        pointer: &str,
        code: crate::model::error::Code,
        message: String,
        mend: &str,
    ) {
        self.notes.error(&self.at(pointer), code, message, mend);
    }
}

static NOWHERE: (Span, Span) = (0..0, 0..0);

fn object(
    notes: &Notes<'_>,
    spots: &mut Spots,
    at: &str,
    table: DeTable<'_>,
) -> Map<String, Value> {
    let mut map = Map::new();
    for (key, value) in table {
        let pointer = step(at, key.get_ref());
        spots.insert(pointer.clone(), (key.span(), value.span()));
        let span = value.span();
        if let Some(value) = json(notes, spots, &pointer, &span, value.into_inner()) {
            map.insert(key.into_inner().into_owned(), value);
        }
    }
    map
}

fn array(notes: &Notes<'_>, spots: &mut Spots, at: &str, items: DeArray<'_>) -> Vec<Value> {
    let mut values = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let (pointer, span) = (step(at, &index.to_string()), item.span());
        spots.insert(pointer.clone(), (span.start..span.start, span.clone()));
        values.extend(json(notes, spots, &pointer, &span, item.into_inner()));
    }
    values
}

/// Depth is bounded by toml, which refuses more than 80 levels.
fn json(
    notes: &Notes<'_>,
    spots: &mut Spots,
    at: &str,
    span: &Span,
    value: DeValue<'_>,
) -> Option<Value> {
    let refuse = |message: &str, mend: &str| {
        notes.error(span, codes::NO_JSON, message, mend);
        None
    };
    match value {
        DeValue::String(text) => Some(Value::String(text.into_owned())),
        DeValue::Boolean(flag) => Some(Value::Bool(flag)),
        DeValue::Integer(number) => {
            let (text, radix) = (number.as_str(), number.radix());
            let small = i64::from_str_radix(text, radix).map(Number::from);
            match small.or_else(|_| u64::from_str_radix(text, radix).map(Number::from)) {
                Ok(number) => Some(Value::Number(number)),
                Err(_) => refuse("this number is too large for 64 bits", "write a smaller one"),
            }
        }
        // Its own text, to the last zero; TOML has a `+` and an infinity that JSON has not.
        DeValue::Float(number) => match number.as_str().trim_start_matches('+').parse::<Number>() {
            Ok(number) if number.as_f64().is_some() => Some(Value::Number(number)),
            Ok(_) | Err(_) => refuse("JSON has no such number", "write a finite number"),
        },
        DeValue::Datetime(_) => {
            refuse("JSON has no dates or times", "write it in quotes, as the API wants it")
        }
        DeValue::Array(items) => Some(Value::Array(array(notes, spots, at, items))),
        DeValue::Table(table) => Some(Value::Object(object(notes, spots, at, table))),
    }
}
