//! Answers that are spoilt on purpose: a field of another type, or a body that breaks off.

use serde_json::{Map, Value, json};

/// What is done to an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spoil {
    /// A field gets another type.
    WrongType {
        /// A name, wherever it stands, or a path from the top: `Jobs.*.Status`, `Pods.0.PodId`.
        field: String,
        /// What it becomes.
        becomes: Becomes,
    },
    /// The body ends after this many bytes.
    CutOff(usize),
}

/// The type that a field gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Becomes {
    /// Another than it has: a text becomes a number, an object a list, all else a text.
    Other,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A boolean.
    Boolean,
    /// A list.
    List,
    /// An object.
    Object,
    /// `null`.
    Null,
    /// It is left out.
    Absent,
}

impl Becomes {
    /// All words for it.
    pub const WORDS: [(&'static str, Self); 7] = [
        ("number", Self::Number),
        ("text", Self::Text),
        ("boolean", Self::Boolean),
        ("list", Self::List),
        ("object", Self::Object),
        ("null", Self::Null),
        ("absent", Self::Absent),
    ];

    /// The value that takes a field's place; `None` leaves the field out.
    fn value(self, old: &Value) -> Option<Value> {
        Some(match (self, old) {
            (Self::Other, Value::String(_)) | (Self::Number, _) => json!(7),
            (Self::Other, Value::Object(_)) | (Self::List, _) => json!(["spoilt"]),
            (Self::Other, Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_))
            | (Self::Text, _) => json!("spoilt"),
            (Self::Boolean, _) => json!(true),
            (Self::Object, _) => json!({"spoilt": true}),
            (Self::Null, _) => Value::Null,
            (Self::Absent, _) => return None,
        })
    }
}

impl Spoil {
    /// The body of an answer, spoilt.
    pub fn body(&self, answer: Map<String, Value>) -> Vec<u8> {
        let mut answer = Value::Object(answer);
        match self {
            Self::WrongType { field, becomes } => {
                if field.contains('.') {
                    let path: Vec<&str> = field.split('.').collect();
                    change_at(&mut answer, &path, *becomes);
                } else {
                    change_everywhere(&mut answer, field, *becomes);
                }
                answer.to_string().into_bytes()
            }
            Self::CutOff(bytes) => {
                let mut body = answer.to_string().into_bytes();
                body.truncate(*bytes);
                body
            }
        }
    }
}

fn change(map: &mut Map<String, Value>, name: &str, becomes: Becomes) {
    let Some(old) = map.get_mut(name) else { return };
    match becomes.value(old) {
        Some(new) => *old = new,
        None => drop(map.remove(name)),
    }
}

fn change_everywhere(value: &mut Value, name: &str, becomes: Becomes) {
    match value {
        Value::Object(map) => {
            for (key, inner) in map.iter_mut() {
                if key != name {
                    change_everywhere(inner, name, becomes);
                }
            }
            change(map, name, becomes);
        }
        Value::Array(items) => {
            for item in items {
                change_everywhere(item, name, becomes);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn change_at(value: &mut Value, path: &[&str], becomes: Becomes) {
    let Some((first, rest)) = path.split_first() else { return };
    match value {
        Value::Object(map) if rest.is_empty() => change(map, first, becomes),
        Value::Object(map) => {
            if let Some(inner) = map.get_mut(*first) {
                change_at(inner, rest, becomes);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter_mut().enumerate() {
                if *first == "*" || *first == place.to_string() {
                    if rest.is_empty() {
                        *item = becomes.value(item).unwrap_or(Value::Null);
                    } else {
                        change_at(item, rest, becomes);
                    }
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoilt(field: &str, becomes: Becomes) -> Value {
        let answer = json!({
            "Status": "Running",
            "Pods": [{"Status": "Running", "N": 1}, {"Status": "Pending"}], "O": {},
        });
        let Value::Object(answer) = answer else { unreachable!("it is an object") };
        let spoil = Spoil::WrongType { field: field.to_owned(), becomes };
        serde_json::from_slice(&spoil.body(answer)).expect("JSON")
    }

    #[test]
    fn a_name_is_changed_everywhere_and_a_path_in_one_place() {
        let all = spoilt("Status", Becomes::Other);
        assert_eq!((&all["Status"], &all["Pods"][1]["Status"]), (&json!(7), &json!(7)));
        let one = spoilt("Pods.0.Status", Becomes::Absent);
        assert_eq!(one["Pods"], json!([{"N": 1}, {"Status": "Pending"}]));
        assert_eq!(one["Status"], "Running");
        assert_eq!(spoilt("Pods.*.Status", Becomes::Null)["Pods"][1], json!({"Status": null}));
        assert_eq!(spoilt("O", Becomes::Other)["O"], json!(["spoilt"]));
        assert_eq!(spoilt("N", Becomes::Other)["Pods"][0]["N"], "spoilt");
        assert_eq!(spoilt("Nothing.Here", Becomes::Text)["Status"], "Running");
    }
}
