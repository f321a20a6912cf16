//! What can be known to be wrong with a CreateJob body before it is sent.
//!
//! Only fields whose meaning is known are looked at. Whatever is not known passes, key for key;
//! the most that it earns is a warning.

use super::body::{Body, step};
use super::codes;
use super::diagnostic::Diagnostic;
use super::fields::{BODY, DATA_SOURCE, JOB_SPEC, JOB_TYPES, SETTINGS, SPOT_SPEC};
use super::job::Rules;
use super::mask::looks_like_key;
use super::nearest::{edits, nearest};
use super::secrets;
use crate::model::spec::Target;
use serde_json::Value;
use std::collections::BTreeMap;

/// Takes the references to secrets out of `Envs`: the name of the variable, and of its file.
/// Checks every value of `Envs` on the way.
pub(super) fn take_secrets(body: &mut Body<'_, '_>, rules: Rules<'_>) -> BTreeMap<String, String> {
    let mut references = BTreeMap::new();
    for (name, value) in body.object("/Envs") {
        let at = step("/Envs", name);
        match value {
            Value::String(_) => {}
            Value::Object(map) if map.len() == 1 && map.contains_key("secret") => {
                let at = step(&at, "secret");
                match map["secret"].as_str() {
                    Some(file) => {
                        check_secret(body, &at, file, rules);
                        references.insert(name.clone(), file.to_owned());
                    }
                    None => body.error(
                        &at,
                        codes::WRONG_TYPE,
                        format!("the secret of `{name}` is not a text"),
                        "wanted: the name of a file below `job_secrets`, in quotes",
                    ),
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => {
                body.error(
                    &at,
                    codes::WRONG_TYPE,
                    format!("the environment value `{name}` is not a text"),
                    "wanted: a text in quotes, or { secret = \"file-name\" }",
                );
            }
        }
    }
    if let Some(envs) = body.value.get_mut("Envs").and_then(Value::as_object_mut) {
        envs.retain(|name, _| !references.contains_key(name));
    }
    references
}

fn check_secret(body: &Body<'_, '_>, at: &str, file: &str, rules: Rules<'_>) {
    if let Err(rule) = secrets::check_name(file) {
        body.error(at, codes::SECRET, "not a name of a secret".into(), rule);
    } else if let Some(folder) = rules.job_secrets
        && let Err(why) = secrets::check_file(folder, file)
    {
        let mend = "put a regular file there that only the daemon's user can read (chmod 600)";
        body.error(at, codes::SECRET, why, mend);
    }
}

/// Checks everything else that the body alone can show.
pub(super) fn check(body: &Body<'_, '_>, target: Option<&Target>) {
    required(body);
    spelling(body);
    reserved(body);
    literal_secrets(body);
    stray_references(body, "", &body.value);
    exclusive(body);
    pods(body);
    if let (Some(target), Some(sent)) = (target, body.get("/WorkspaceId"))
        && sent.as_str() != Some(&target.place.workspace)
    {
        let (name, own) = (&target.name, &target.place.workspace);
        let message = format!("WorkspaceId differs from the workspace `{own}` of target `{name}`");
        body.error(
            "/WorkspaceId",
            codes::WORKSPACE,
            message,
            "take it out: the target fills it in",
        );
    }
}

fn required(body: &Body<'_, '_>) {
    for (field, wanted) in [
        ("JobType", "a text such as \"PyTorchJob\""),
        ("UserCommand", "a text"),
        ("JobSpecs", "a list of tables"),
    ] {
        let pointer = step("", field);
        let right = match body.get(&pointer) {
            None => {
                let unknown = body.object("").map(|(key, _)| key.as_str());
                let unknown = unknown.filter(|key| !BODY.contains(key));
                let near =
                    nearest(field, unknown).map(|found| format!("`{found}` looks like it; "));
                let mend = format!("{}add {field}: {wanted}", near.unwrap_or_default());
                let message = format!("{field} is missing");
                body.notes.error(&body.key_at(""), codes::MISSING, message, mend);
                continue;
            }
            Some(Value::String(text)) => field != "JobSpecs" && !text.trim().is_empty(),
            Some(Value::Array(items)) => {
                field == "JobSpecs" && !items.is_empty() && items.iter().all(Value::is_object)
            }
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => false,
        };
        if !right {
            let message = format!("{field} is empty or of the wrong type");
            body.error(&pointer, codes::WRONG_TYPE, message, &format!("wanted: {wanted}"));
        }
    }
    for (field, is_right) in [
        ("Envs", Value::is_object as fn(&Value) -> bool),
        ("Settings", Value::is_object),
        ("DataSources", Value::is_array),
        ("CustomEnvs", Value::is_array),
    ] {
        if body.get(&step("", field)).is_some_and(|value| !value.is_null() && !is_right(value)) {
            let wanted = if field.ends_with('s') && field != "Envs" && field != "Settings" {
                "wanted: a list of tables"
            } else {
                "wanted: a table"
            };
            let message = format!("{field} is of the wrong type");
            body.error(&step("", field), codes::WRONG_TYPE, message, wanted);
        }
    }
    if let Some(word) = body.text("/JobType")
        && !word.is_empty()
        && !JOB_TYPES.iter().any(|known| known.eq_ignore_ascii_case(word))
    {
        let at = body.notes.source.at(&body.at("/JobType"));
        let message =
            format!("JobType `{word}` is not one this version knows; it is sent as it is");
        let warning = Diagnostic::warning(at, codes::FIELD_DOUBT, message, "");
        let near = nearest(word, JOB_TYPES.iter().copied());
        body.notes.add(warning.near(near.map(str::to_owned)));
    }
}

fn spelling(body: &Body<'_, '_>) {
    spelling_of(body, "", BODY);
    spelling_of(body, "/Settings", SETTINGS);
    for (pointer, _) in body.items("/JobSpecs") {
        spelling_of(body, &pointer, JOB_SPEC);
        spelling_of(body, &step(&pointer, "SpotSpec"), SPOT_SPEC);
    }
    for (pointer, _) in body.items("/DataSources") {
        spelling_of(body, &pointer, DATA_SOURCE);
    }
}

fn spelling_of(body: &Body<'_, '_>, pointer: &str, fields: &[&str]) {
    let plain = |text: &str| text.to_ascii_lowercase().replace(['_', '-'], "");
    for (key, _) in body.object(pointer) {
        if fields.contains(&key.as_str()) {
            continue;
        }
        let at = body.notes.source.at(&body.key_at(&step(pointer, key)));
        let absent = |field: &&&str| body.get(&step(pointer, field)).is_none();
        if let Some(field) = fields.iter().find(|field| plain(field) == plain(key)) {
            let message = format!("`{key}` is not how the API spells it");
            let error = Diagnostic::error(at, codes::FIELD_SPELLING, message, "");
            body.notes.add(error.near(Some((*field).to_owned())));
        } else if key.len() >= 5
            && key.len() <= 64
            && let Some(field) = fields.iter().filter(absent).find(|field| edits(key, field) == 1)
        {
            let message = format!("`{key}` is no field that is known; it is sent as it is");
            let warning = Diagnostic::warning(at, codes::FIELD_DOUBT, message, "");
            body.notes.add(warning.near(Some((*field).to_owned())));
        }
    }
}

fn reserved(body: &Body<'_, '_>) {
    let refuse = |at: &str, what: &str| {
        let message = format!("{what} belongs to spotkeeper");
        let mend = "take it out: it is set for each attempt";
        body.notes.error(&body.key_at(at), codes::RESERVED, message, mend);
    };
    for (name, _) in body.object("/Envs") {
        if name.to_ascii_uppercase().starts_with("SPOTKEEPER_") {
            refuse(&step("/Envs", name), &format!("the environment variable `{name}`"));
        }
    }
    for (pointer, item) in body.items("/CustomEnvs") {
        let name = item.get("Key").and_then(Value::as_str).unwrap_or_default();
        if name.to_ascii_uppercase().starts_with("SPOTKEEPER_") {
            refuse(&step(&pointer, "Key"), &format!("the environment variable `{name}`"));
        }
    }
    for (name, _) in body.object("/Settings/Tags") {
        if name.eq_ignore_ascii_case("spotkeeper") {
            refuse(&step("/Settings/Tags", name), &format!("the tag `{name}`"));
        }
    }
    for (pointer, item) in body.items("/Tags") {
        let name = item.get("Key").and_then(Value::as_str).unwrap_or_default();
        if name.eq_ignore_ascii_case("spotkeeper") {
            refuse(&step(&pointer, "Key"), &format!("the tag `{name}`"));
        }
    }
}

/// Whatever is in `Envs` or the command comes back to everybody who can read the job.
fn literal_secrets(body: &Body<'_, '_>) {
    let mend =
        "put it into a file below `job_secrets` and write { secret = \"file-name\" } in Envs";
    let refuse = |at: &str, what: &str| {
        let message = format!("{what} looks like it holds an access key or token");
        body.error(at, codes::LITERAL_SECRET, message, mend);
    };
    for (name, value) in body.object("/Envs") {
        if value.as_str().is_some_and(looks_like_key) {
            refuse(&step("/Envs", name), &format!("the environment value `{name}`"));
        }
    }
    for (pointer, item) in body.items("/CustomEnvs") {
        if item.get("Value").and_then(Value::as_str).is_some_and(looks_like_key) {
            refuse(&step(&pointer, "Value"), "the environment value");
        }
    }
    if body.text("/UserCommand").is_some_and(looks_like_key) {
        refuse("/UserCommand", "UserCommand");
    }
}

/// References outside `Envs` would be sent as they stand.
fn stray_references(body: &Body<'_, '_>, pointer: &str, value: &Value) {
    match value {
        Value::Object(map) => {
            let reference = map.len() == 1 && map.get("secret").is_some_and(Value::is_string);
            if reference && !pointer.starts_with("/Envs/") {
                let message = "a reference to a secret works in Envs only".to_owned();
                body.error(pointer, codes::SECRET, message, "move it into Envs");
            }
            for (key, value) in map {
                stray_references(body, &step(pointer, key), value);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                stray_references(body, &step(pointer, &index.to_string()), item);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn exclusive(body: &Body<'_, '_>) {
    let both = |pointer: &str, item: &Value, one: &str, other: &str| {
        let there = |key: &str| match item.get(key) {
            None | Some(Value::Null) => false,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Object(map)) => !map.is_empty(),
            Some(Value::Bool(_) | Value::Number(_) | Value::Array(_)) => true,
        };
        if there(one) && there(other) {
            let message = format!("both {one} and {other}: the API takes one of them");
            let span = body.key_at(&step(pointer, other));
            body.notes.error(&span, codes::FIELDS_EXCLUDE, message, "take one of them out");
        }
    };
    for (pointer, item) in body.items("/JobSpecs") {
        both(&pointer, item, "EcsSpec", "ResourceConfig");
        if let Some(spot) = item.get("SpotSpec") {
            both(&step(&pointer, "SpotSpec"), spot, "SpotDiscountLimit", "SpotPriceLimit");
        }
    }
    for (pointer, item) in body.items("/DataSources") {
        both(&pointer, item, "DataSourceId", "Uri");
    }
}

fn pods(body: &Body<'_, '_>) {
    for (pointer, item) in body.items("/JobSpecs") {
        if item.get("PodCount").is_some_and(|count| count.as_u64().is_none_or(|n| n == 0)) {
            let message = "PodCount is not a whole number from 1".to_owned();
            body.error(&step(&pointer, "PodCount"), codes::WRONG_VALUE, message, "write it as 2");
        }
    }
}

/// Reports every `SpotSpec` of a body whose job file has `[spot]` too.
pub(super) fn check_single_bid(body: &Body<'_, '_>) {
    for (pointer, item) in body.items("/JobSpecs") {
        if item.get("SpotSpec").is_some_and(|spot| !spot.is_null()) {
            let message = "SpotSpec here and [spot] in the job file: two bids".to_owned();
            let span = body.key_at(&step(&pointer, "SpotSpec"));
            body.notes.error(&span, codes::BID_TWICE, message, "keep one of the two");
        }
    }
}

/// Ranks of the job: `PodCount` × GPUs of each spec. `None` if one of them is not known.
pub(super) fn ranks(body: &Body<'_, '_>) -> Option<u32> {
    let mut ranks: u64 = 0;
    for (_, item) in body.items("/JobSpecs") {
        let pods = item.get("PodCount").map_or(Some(1), Value::as_u64)?;
        let gpus = match item.get("ResourceConfig").and_then(|config| config.get("GPU")) {
            Some(gpu) => gpu.as_str().and_then(|t| t.parse().ok()).or_else(|| gpu.as_u64())?,
            None => gpus_of(item.get("EcsSpec")?.as_str()?)?,
        };
        ranks = ranks.checked_add(pods.checked_mul(gpus)?)?;
    }
    u32::try_from(ranks).ok().filter(|ranks| *ranks > 0)
}

/// GPUs of a general-compute spec whose name tells them: `ecs.gn7e-c16g1.4xlarge` has 16 vCPUs a
/// GPU, and `4xlarge` has 4 × 4 vCPUs.
pub(super) fn gpus_of(spec: &str) -> Option<u64> {
    let (family, size) = spec.strip_prefix("ecs.")?.split_once('.')?;
    let (cpus, gpus) = family.split_once("-c")?.1.split_once('g')?;
    let (cpus, gpus): (u64, u64) = (cpus.parse().ok()?, gpus.parse().ok()?);
    let factor = size.strip_suffix("xlarge")?;
    let factor: u64 = if factor.is_empty() { 1 } else { factor.parse().ok()? };
    let all = factor.checked_mul(4)?.checked_mul(gpus)?;
    (cpus > 0 && all.is_multiple_of(cpus)).then(|| all / cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_spec_tells_its_gpus() {
        for (spec, gpus) in [
            ("ecs.gn7e-c16g1.4xlarge", Some(1)),
            ("ecs.gn7e-c16g1.16xlarge", Some(4)),
            ("ecs.gn6i-c4g1.xlarge", Some(1)),
            ("ecs.gn5-c8g1.4xlarge", Some(2)),
            ("ecs.gn6i-c24g1.4xlarge", None),
            ("ecs.g6.large", None),
            ("ecs.gn7e-c0g1.4xlarge", None),
            ("ml.gu7xf.c96m1600.8-gu7xf", None),
        ] {
            assert_eq!(gpus_of(spec), gpus, "{spec}");
        }
    }
}
