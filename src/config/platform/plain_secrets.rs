//! Rules about secrets in plain text: whatever is in `Envs` or a command comes back to everybody who
//! can read the job. Values that are keys beyond doubt are errors of their own (E039).

use super::{Asked, Finding};
use crate::config::body::step;
use crate::config::mask::looks_like_key;
use crate::config::secret_shape::{in_command, is_secret_env};
use serde_json::Value;

const MEND: &str =
    "put it into a file below `job_secrets` and write { secret = \"file-name\" } in Envs";

pub(super) fn envs(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let plain = asked.body.object("/Envs").map(|(name, value)| {
        (name.as_str(), value.as_str().unwrap_or_default(), step("/Envs", name))
    });
    let custom = asked.body.items("/CustomEnvs").map(|(pointer, item)| {
        let text = |field: &str| item.get(field).and_then(Value::as_str).unwrap_or_default();
        (text("Key"), text("Value"), step(&pointer, "Value"))
    });
    let mut found = Vec::new();
    for (name, value, pointer) in plain.chain(custom) {
        if is_secret_env(name, value) && !looks_like_key(value) {
            let message =
                format!("the environment value `{name}` looks like a secret in plain text");
            found.push(Finding::new(asked.value(&pointer), message, MEND));
        }
    }
    found
}

pub(super) fn commands(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let specs = asked.body.items("/JobSpecs").map(|(pointer, _)| step(&pointer, "UserCommand"));
    let mut found = Vec::new();
    for pointer in std::iter::once("/UserCommand".to_owned()).chain(specs) {
        let command = asked.body.text(&pointer).unwrap_or_default();
        let secrets = in_command(command);
        if secrets.is_empty() || looks_like_key(command) {
            continue;
        }
        let names: Vec<String> = secrets
            .iter()
            .filter_map(|secret| Some(format!("`{}`", secret.name.as_ref()?)))
            .collect();
        let shown =
            if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        let message = format!("the command looks like it holds a secret in plain text{shown}");
        let mend = "give it as an environment variable: { secret = \"file-name\" } in Envs, $NAME in the command";
        found.push(Finding::new(asked.value(&pointer), message, mend));
    }
    found
}
