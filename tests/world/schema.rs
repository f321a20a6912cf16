//! The documents of `-o json` against their schemas in docs/schema. Tests of `cloud` use it too.

use serde_json::Value;
use std::path::PathBuf;

/// Checks `value` against docs/schema/NAME.json.
pub(crate) fn check(name: &str, value: &Value) {
    let path = format!("docs/schema/{name}.json");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    let schema = std::fs::read_to_string(&path).expect("a schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let mut wrong = Vec::new();
    fits(&schema, value, name, &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What is wrong with `value` by `schema`; `place` names it.
pub(crate) fn fits(schema: &Value, value: &Value, place: &str, wrong: &mut Vec<String>) {
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("a type that this check does not know: {other}"),
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is(kind)) {
        wrong.push(format!("{place}: {value} is none of {kinds:?}"));
    }
    if let Some(words) = schema["enum"].as_array()
        && !words.contains(value)
    {
        wrong.push(format!("{place}: {value} is none of the words"));
    }
    if let (Some(fields), Some(known)) = (value.as_object(), schema["properties"].as_object()) {
        for key in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(key.as_str().expect("a key")) {
                wrong.push(format!("{place}: {key} is missing"));
            }
        }
        for (key, value) in fields {
            match known.get(key) {
                Some(schema) => fits(schema, value, &format!("{place}.{key}"), wrong),
                None => wrong.push(format!("{place}.{key} is not in the schema")),
            }
        }
    }
    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
        fits(&schema["items"], item, &format!("{place}[{n}]"), wrong);
    }
}
