//! From a CreateJob body, or an answer of GetJob, to the body that a job file has: what is not a
//! wish of the person is taken off, and each thing that was taken off is told.
//!
//! Always holds: every other field, known or not, stays as it is; no value of a secret is kept.

use super::Plain;
use super::references::secrets;
use super::toml_text::Comments;
use crate::config::{ANSWER_ONLY, NEWER_THAN_1_4_17};
use crate::dlc::launcher;
use crate::dlc::wire::{TAG, parse_display_name};
use crate::model::spec::Target;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Letters of `.sk`, owner, `-` and mark at the end of a DisplayName.
const SUFFIX: usize = 20;

/// Where a body comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// What a script sends: everything in it is meant.
    CreateJob,
    /// What the service shows: with defaults, answers and marks.
    GetJob,
}

/// A body on its way into a job file.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) body: Map<String, Value>,
    /// `DataSources` as they came: an answer names the bucket of a data set.
    pub(super) sources: Vec<Value>,
    /// Lines at the top of the file.
    pub(super) notes: Vec<String>,
    pub(super) comments: Comments,
    /// Environment variable and file name of each secret.
    pub(super) secrets: BTreeMap<String, String>,
    /// Key and text of the bid in `[spot]`.
    pub(super) spot: Option<(&'static str, String)>,
    /// The job's name, if it was one of spotkeeper.
    pub(super) job: Option<String>,
}

/// An answer has an id and a status; a body has neither.
pub(super) fn origin(source: &Map<String, Value>) -> Origin {
    let answer = source.contains_key("JobId") && source.contains_key("Status");
    if answer { Origin::GetJob } else { Origin::CreateJob }
}

pub(super) fn clean(source: Map<String, Value>, target: Option<&Target>, plain: Plain) -> Draft {
    let origin = origin(&source);
    let sources = source.get("DataSources").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut draft = Draft { body: source, sources, ..Draft::default() };
    match origin {
        Origin::GetJob => answer_only(&mut draft),
        Origin::CreateJob => newer_fields(&mut draft),
    }
    nulls(&mut draft);
    marks(&mut draft);
    workspace(&mut draft, target);
    if plain == Plain::References {
        secrets(&mut draft);
    }
    spot(&mut draft);
    draft
}

fn listed(names: &[String]) -> String {
    names.join(", ")
}

impl Draft {
    pub(super) fn comment(&mut self, pointer: &str, line: impl Into<String>) {
        self.comments.entry(pointer.to_owned()).or_default().push(line.into());
    }

    pub(super) fn objects(
        &mut self,
        list: &str,
    ) -> impl Iterator<Item = (usize, &mut Map<String, Value>)> {
        let items = self.body.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        items.enumerate().filter_map(|(index, item)| Some((index, item.as_object_mut()?)))
    }
}

/// What only answers have, and the zeros that stand there for "not given".
fn answer_only(draft: &mut Draft) {
    let dropped: Vec<String> =
        draft.body.keys().filter(|name| ANSWER_ONLY.contains(&name.as_str())).cloned().collect();
    draft.body.retain(|name, _| !ANSWER_ONLY.contains(&name.as_str()));
    draft.notes.push(format!("Left out, since only answers have them: {}.", listed(&dropped)));
    draft.notes.push(
        "Left out where empty, zero or false: an answer shows these for what was not given.".into(),
    );
    for (name, value) in &mut draft.body {
        if name != "Envs" {
            prune(value);
        }
    }
    draft.body.retain(|name, value| name == "Envs" || !is_zero(value));
    draft.body.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    if let Some(vpc) = draft.body.get_mut("UserVpc").and_then(Value::as_object_mut)
        && let Some(list) = vpc.remove("ExtendedCidrs")
    {
        vpc.insert("ExtendedCIDRs".to_owned(), list);
        draft.comment("/UserVpc", "an answer spells ExtendedCIDRs otherwise than CreateJob does");
    }
    custom_envs(draft);
    specs_of_answer(draft);
    let mut told = Vec::new();
    for (index, source) in draft.objects("DataSources") {
        if source.contains_key("DataSourceId")
            && let Some(Value::String(uri)) = source.remove("Uri")
        {
            let line = format!(
                "an answer names the data set's place too, {uri}: left out, the API takes one of the two"
            );
            told.push((format!("/DataSources/{index}"), line));
        }
    }
    for (pointer, line) in told {
        draft.comment(&pointer, line);
    }
    // In the command of a live job braces are the shell's.
    if let Some(Value::String(command)) = draft.body.get_mut("UserCommand")
        && !command.contains("${resume}")
    {
        *command = command.replace("{resume}", "{{resume}}");
    }
}

/// An answer repeats `Envs` as `CustomEnvs`.
fn custom_envs(draft: &mut Draft) {
    let envs = draft.body.get("Envs").and_then(Value::as_object).cloned().unwrap_or_default();
    let Some(Value::Array(custom)) = draft.body.get_mut("CustomEnvs") else { return };
    custom.retain(|item| {
        let key = item.get("Key").and_then(Value::as_str).unwrap_or_default();
        envs.get(key).is_none_or(|value| item.get("Value") != Some(value))
    });
    if custom.is_empty() {
        draft.body.remove("CustomEnvs");
    }
}

fn specs_of_answer(draft: &mut Draft) {
    let command = draft.body.get("UserCommand").cloned();
    let mut told = Vec::new();
    for (index, spec) in draft.objects("JobSpecs") {
        let mut tell = |line: String| told.push((format!("/JobSpecs/{index}"), line));
        if spec.get("UserCommand").is_some() && spec.get("UserCommand") == command.as_ref() {
            spec.remove("UserCommand");
            tell("UserCommand left out: it repeats the job's own".to_owned());
        }
        let text = |value: Option<Value>| value.map_or(String::new(), |value| value.to_string());
        if spec.contains_key("EcsSpec") && spec.contains_key("ResourceConfig") {
            let config = text(spec.remove("ResourceConfig"));
            tell(format!(
                "ResourceConfig left out beside EcsSpec, the API takes one of the two: {config}"
            ));
        }
        let assign =
            spec.get("AssignNodeSpec").map(|assign| assign.get("EnableAssignNode").cloned());
        if assign.is_some_and(|enabled| enabled != Some(json!(true))) {
            let assign = text(spec.remove("AssignNodeSpec"));
            tell(format!("AssignNodeSpec left out, it is not enabled: {assign}"));
        }
        if let Some(Value::Object(bid)) = spec.get_mut("SpotSpec")
            && bid.contains_key("SpotDiscountLimit")
            && let Some(price) = bid.remove("SpotPriceLimit")
        {
            tell(format!(
                "SpotPriceLimit {price} left out beside SpotDiscountLimit: the API takes one of the two"
            ));
        }
    }
    for (pointer, line) in told {
        draft.comment(&pointer, line);
    }
}

/// Takes out of a value what stands for "not given", at any depth; a person's own maps stay.
fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if name != "Tags" && name != "AdvancedSettings" {
                    prune(value);
                }
            }
            map.retain(|_, value| !is_zero(value));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_zero),
        Value::Object(map) => map.is_empty(),
    }
}

/// What an old SDK would not have sent.
fn newer_fields(draft: &mut Draft) {
    let mut newer: Vec<String> = Vec::new();
    let mut look = |map: &Map<String, Value>| {
        let names = map.keys().filter(|name| NEWER_THAN_1_4_17.contains(&name.as_str()));
        newer.extend(names.cloned());
    };
    look(&draft.body);
    if let Some(settings) = draft.body.get("Settings").and_then(Value::as_object) {
        look(settings);
    }
    for list in ["JobSpecs", "DataSources"] {
        let items = draft.body.get(list).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_object).for_each(&mut look);
    }
    newer.sort();
    newer.dedup();
    if !newer.is_empty() {
        draft.notes.push(format!(
            "A script on SDK 1.4.17 drops these in silence; spotkeeper sends them: {}.",
            listed(&newer)
        ));
    }
}

fn nulls(draft: &mut Draft) {
    fn drop_nulls(value: &mut Value, pointer: &str, dropped: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                for (name, value) in map.iter_mut() {
                    drop_nulls(value, &format!("{pointer}/{name}"), dropped);
                }
                map.retain(|_, value| !value.is_null());
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    drop_nulls(item, &format!("{pointer}/{index}"), dropped);
                }
                items.retain(|item| !item.is_null());
            }
            Value::Null => dropped.push(pointer.trim_start_matches('/').to_owned()),
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut dropped = Vec::new();
    let mut body = Value::Object(std::mem::take(&mut draft.body));
    drop_nulls(&mut body, "", &mut dropped);
    if let Value::Object(body) = body {
        draft.body = body;
    }
    if !dropped.is_empty() {
        draft.notes.push(format!("Left out, since TOML has no null: {}.", listed(&dropped)));
    }
}

/// Marks and launcher of spotkeeper itself.
fn marks(draft: &mut Draft) {
    let is_ours = |name: &str| name.to_ascii_uppercase().starts_with("SPOTKEEPER_");
    let mut ours = BTreeMap::new();
    if let Some(envs) = draft.body.get_mut("Envs").and_then(Value::as_object_mut) {
        envs.retain(|name, value| {
            let text = value.as_str().unwrap_or_default().to_owned();
            let mine = is_ours(name);
            if mine {
                ours.insert(name.clone(), text);
            }
            !mine
        });
    }
    if let Some(custom) = draft.body.get_mut("CustomEnvs").and_then(Value::as_array_mut) {
        custom.retain(|item| {
            let text = |field: &str| item.get(field).and_then(Value::as_str).unwrap_or_default();
            let mine = is_ours(text("Key"));
            if mine {
                ours.insert(text("Key").to_owned(), text("Value").to_owned());
            }
            !mine
        });
    }
    let settings = draft.body.get_mut("Settings").and_then(Value::as_object_mut);
    let tags =
        settings.and_then(|settings| settings.get_mut("Tags")).and_then(Value::as_object_mut);
    let tag = tags.and_then(|tags| tags.remove(TAG)).is_some();
    let name = draft.body.get("DisplayName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let marked = parse_display_name(&name).is_some();
    let own = &name[..name.len() - if marked { SUFFIX } else { 0 }];
    let mut wrapped = false;
    if let Some(Value::String(command)) = draft.body.get_mut("UserCommand")
        && let Some(inner) = launcher::unwrap(command)
    {
        *command = inner;
        wrapped = true;
    }
    if ours.is_empty() && !tag && !marked && !wrapped {
        return;
    }
    draft.job = ours.get("SPOTKEEPER_JOB").cloned();
    if marked {
        draft.body.insert("DisplayName".to_owned(), json!(own));
        if draft.job.as_deref() == Some(own) || own.is_empty() {
            draft.body.remove("DisplayName");
        }
    }
    for field in ["Envs", "CustomEnvs"] {
        if draft.body.get(field).is_some_and(is_zero) && !ours.is_empty() {
            draft.body.remove(field);
        }
    }
    if let Some(settings) =
        draft.body.get_mut("Settings").and_then(Value::as_object_mut).filter(|_| tag)
    {
        settings.retain(|name, value| name != "Tags" || !is_zero(value));
        if settings.is_empty() {
            draft.body.remove("Settings");
        }
    }
    draft.notes.push(
        "This was a submission of spotkeeper: its marks, tag, variables and launcher are taken off."
            .into(),
    );
    draft.notes.push("If that job is still supervised, do not add this file beside its own: one name in two files is an error.".into());
    resumed(draft, &ours);
}

/// The resume argument of the attempt that was imported.
fn resumed(draft: &mut Draft, ours: &BTreeMap<String, String>) {
    let Some(path) = ours.get("SPOTKEEPER_RESUME_PATH") else { return };
    draft.comment("/UserCommand", format!("this attempt went on from {path}"));
    let step = ours.get("SPOTKEEPER_RESUME_STEP").map(String::as_str).unwrap_or_default();
    let end = format!(" --ckpt-step '{step}'");
    let Some(Value::String(command)) = draft.body.get_mut("UserCommand") else { return };
    if let Some(at) = command.find(&end)
        && let Some(start) = command[..at].rfind("--load '")
    {
        command.replace_range(start..at + end.len(), "{resume}");
    } else {
        draft.comment(
            "/UserCommand",
            "write {resume} in place of the argument that resumes from it",
        );
    }
}

fn workspace(draft: &mut Draft, target: Option<&Target>) {
    let Some(target) = target else { return };
    let own = &target.place.workspace;
    match draft.body.remove("WorkspaceId") {
        None => {}
        Some(Value::String(sent)) if sent == *own => {
            let line = format!("WorkspaceId {own} is that of target `{}`, which fills it in.", target.name);
            draft.notes.push(line);
        }
        Some(sent) => draft.notes.push(format!(
            "NOTE: WorkspaceId was {sent}; target `{}` sends to workspace {own}. Choose another target if that is wrong.",
            target.name
        )),
    }
}

/// One bid for all roles stands in `[spot]`; different ones stay where they are.
fn spot(draft: &mut Draft) {
    let Some(specs) = draft.body.get_mut("JobSpecs").and_then(Value::as_array_mut) else { return };
    let bid = specs.first().and_then(|spec| spec.get("SpotSpec")).cloned();
    let Some(Value::Object(bid)) = bid else { return };
    let same =
        specs.iter().all(|spec| spec.get("SpotSpec").and_then(Value::as_object) == Some(&bid));
    let known = bid.get("SpotStrategy").and_then(Value::as_str) == Some("SpotWithPriceLimit");
    let limit = |name: &str| {
        let text = bid.get(name).filter(|value| value.is_number())?.to_string();
        let money = crate::model::money::Money::parse(&text)?;
        // `[spot]` takes only what comes out as it went in.
        (money.0 >= 10_000 || name == "SpotPriceLimit" && money.0 > 0).then_some(text)
    };
    let found = match (limit("SpotDiscountLimit"), limit("SpotPriceLimit")) {
        (Some(share), None) if share.parse::<f64>().is_ok_and(|share| share <= 1.0) => {
            ("discount_limit", share)
        }
        (None, Some(price)) => ("price_limit_per_minute", format!("\"{price}\"")),
        _ => return,
    };
    if same && known && bid.len() == 2 {
        for spec in specs.iter_mut().filter_map(Value::as_object_mut) {
            spec.remove("SpotSpec");
        }
        draft.spot = Some(found);
    }
}
