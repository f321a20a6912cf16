//! Secrets of a body become references to files. Their values go nowhere.

use super::clean::Draft;
use crate::config::secret_shape::{has_secret_shape, in_command, is_secret_env};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Secrets become references; where no reference can be, they are left out.
pub(super) fn secrets(draft: &mut Draft) {
    let mut envs = match draft.body.remove("Envs") {
        Some(Value::Object(envs)) => envs,
        Some(other) => {
            draft.body.insert("Envs".to_owned(), other);
            Map::new()
        }
        None => Map::new(),
    };
    let had = !envs.is_empty() || draft.body.contains_key("Envs");
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &envs {
        if let Some(text) = value.as_str().filter(|text| is_secret_env(name, text)) {
            found.insert(name.clone(), text.to_owned());
        }
    }
    if let Some(custom) = draft.body.get_mut("CustomEnvs").and_then(Value::as_array_mut) {
        custom.retain(|item| {
            let text = |field: &str| item.get(field).and_then(Value::as_str).unwrap_or_default();
            let secret = is_secret_env(text("Key"), text("Value"));
            if secret {
                found.insert(text("Key").to_owned(), text("Value").to_owned());
            }
            !secret
        });
    }
    if let Some(Value::String(command)) = draft.body.get_mut("UserCommand") {
        let changed = out_of_command(command, &mut found, &envs);
        if changed {
            draft.comment("/UserCommand", "a secret stood in it: the variable of the same name has it now (inside '…' the shell does not fill it in)");
        }
    }
    let mut told = Vec::new();
    for (index, spec) in draft.objects("JobSpecs") {
        if let Some(Value::String(command)) = spec.get_mut("UserCommand")
            && out_of_command(command, &mut found, &envs)
        {
            told.push(format!("/JobSpecs/{index}"));
        }
    }
    for pointer in told {
        draft.comment(&pointer, "a secret stood in its UserCommand: a variable has it now");
    }
    for (name, _) in found {
        let file = file_name(&name);
        envs.insert(name.clone(), json!({ "secret": file }));
        draft.secrets.insert(name, file);
    }
    if !envs.is_empty() || (had && !draft.body.contains_key("Envs")) {
        draft.body.insert("Envs".to_owned(), Value::Object(envs));
    }
    let mut removed = Vec::new();
    for (name, value) in &mut draft.body {
        if !matches!(name.as_str(), "Envs" | "CustomEnvs" | "UserCommand") {
            take_out(value, &format!("/{name}"), &mut removed);
        }
    }
    for pointer in removed {
        let name = pointer.trim_start_matches('/');
        draft.notes.push(format!(
            "{name} was a secret and is left out: references work in Envs only. Give the job's role access instead, or write it in by hand."
        ));
    }
}

fn file_name(variable: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = variable.chars().map(letter).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "secret".to_owned() } else { name.to_owned() }
}

/// Puts `$NAME` in place of each secret of a command.
fn out_of_command(
    command: &mut String,
    found: &mut BTreeMap<String, String>,
    envs: &Map<String, Value>,
) -> bool {
    let secrets = in_command(command);
    for secret in secrets.iter().rev() {
        let value = command[secret.at.clone()].to_owned();
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let base: String = secret.name.as_deref().unwrap_or("SECRET").chars().map(letter).collect();
        let base =
            if base.starts_with(|c: char| c.is_ascii_digit()) { format!("S{base}") } else { base };
        let mut name = base.clone();
        let mut number = 1_usize;
        // Another value of the same name gets a number.
        while found
            .get(&name)
            .or(envs.get(&name).and_then(Value::as_str).map(str::to_owned).as_ref())
            .is_some_and(|other| *other != value)
        {
            number += 1;
            name = format!("{base}_{number}");
        }
        command.replace_range(secret.at.clone(), &format!("${name}"));
        found.insert(name, value);
    }
    !secrets.is_empty()
}

/// Takes texts out that can only be secrets, outside of environment and commands.
fn take_out(value: &mut Value, pointer: &str, removed: &mut Vec<String>) {
    let secret = |name: &str, value: &Value| {
        let text = value.as_str().unwrap_or_default();
        let key = name == "Key" || name.ends_with("RoleKey");
        name != "UserCommand"
            && !text.is_empty()
            && (has_secret_shape(text) || (!key && is_secret_env(name, text)))
    };
    match value {
        Value::Object(map) => {
            let names: Vec<String> = map
                .iter()
                .filter(|(name, value)| secret(name, value))
                .map(|(n, _)| n.clone())
                .collect();
            for name in names {
                map.remove(&name);
                removed.push(format!("{pointer}/{name}"));
            }
            for (name, value) in map.iter_mut() {
                take_out(value, &format!("{pointer}/{name}"), removed);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                take_out(item, &format!("{pointer}/{index}"), removed);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
