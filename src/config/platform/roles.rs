//! Rules about the roles of a job: `JobSpecs[].Type` and `PodCount`.

use super::{Asked, Finding};
use crate::config::body::step;
use crate::config::nearest::nearest;
use serde_json::Value;

/// Words of `Type` that are known, of any framework.
const ROLES: [&str; 9] =
    ["Worker", "Master", "PS", "Chief", "Evaluator", "GraphLearn", "Launcher", "Head", "AIMaster"];
/// Those of a PyTorchJob: what the platform documents in so many words.
const PYTORCH_ROLES: [&str; 2] = ["Worker", "Master"];

/// Each role: where its word stands, and the word.
fn roles<'a>(asked: &'a Asked<'_, '_, '_>) -> Vec<(String, &'a str)> {
    let specs = asked.body.items("/JobSpecs");
    let roles = specs.filter_map(|(spec, item)| {
        Some((spec, item.get("Type").and_then(Value::as_str).filter(|word| !word.is_empty())?))
    });
    roles.collect()
}

pub(super) fn spelling(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (spec, word) in roles(asked) {
        let known = ROLES.iter().find(|known| known.eq_ignore_ascii_case(word));
        if let Some(known) = known.filter(|known| **known != word) {
            let message = format!("role `{word}` is not how the documents spell it");
            found.push(Finding::new(asked.value(&step(&spec, "Type")), message, "").near(known));
        }
    }
    found
}

pub(super) fn unknown(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    if asked.body.text("/JobType") != Some("PyTorchJob") {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (spec, word) in roles(asked) {
        if !PYTORCH_ROLES.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            let message = format!("a PyTorchJob has the roles Worker and Master, not `{word}`");
            let at = asked.value(&step(&spec, "Type"));
            let mut finding = Finding::new(at, message, "it is sent as it is");
            finding.nearest = nearest(word, PYTORCH_ROLES).map(str::to_owned);
            found.push(finding);
        }
    }
    found
}

pub(super) fn twice(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let roles = roles(asked);
    let mut found = Vec::new();
    for (index, (spec, word)) in roles.iter().enumerate() {
        if roles[..index].iter().any(|(_, earlier)| earlier == word) {
            let message = format!("role `{word}` is there twice");
            let mend = "put its pods into one JobSpec, by PodCount";
            found.push(Finding::new(asked.value(&step(spec, "Type")), message, mend));
        }
    }
    found
}

pub(super) fn many_masters(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (spec, word) in roles(asked) {
        let pointer = step(&spec, "PodCount");
        let pods = asked.body.get(&pointer).and_then(Value::as_u64).unwrap_or(1);
        if word == "Master" && pods > 1 {
            let message = format!("{pods} pods of the role Master: a job has one");
            found.push(Finding::new(
                asked.value(&pointer),
                message,
                "write 1, and the others as Worker",
            ));
        }
    }
    found
}
