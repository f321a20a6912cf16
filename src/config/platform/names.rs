//! Rules about names, words and numbers at the top of the body.

use super::{Asked, Finding};
use crate::config::fields::JOB_TYPES;
use serde_json::Value;

/// Letters of a `DisplayName`.
const DISPLAY_NAME_MOST: usize = 256;
/// Letters of it that are spotkeeper's own: `.sk`, owner, `-`, mark.
const MARK_LETTERS: usize = 20;

fn display_name_text<'a>(asked: &'a Asked<'_, '_, '_>) -> &'a str {
    asked.body.text("/DisplayName").unwrap_or_default()
}

pub(super) fn display_name(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let pointer = "/DisplayName";
    let text = display_name_text(asked);
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let message =
        if asked.body.get(pointer).is_some_and(|name| !name.is_string() && !name.is_null()) {
            "DisplayName is not a text".to_owned()
        } else if let Some(odd) = text.chars().find(|c| !letter(*c)) {
            format!("DisplayName has {odd:?}")
        } else if text.len() > DISPLAY_NAME_MOST {
            format!("DisplayName has {} letters", text.len())
        } else {
            return Vec::new();
        };
    let mend = "wanted: up to 256 letters, digits, `_`, `.` and `-`; or take it out: the job's name is used";
    vec![Finding::new(asked.value(pointer), message, mend)]
}

pub(super) fn display_name_cut(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let length = display_name_text(asked).len();
    let room = DISPLAY_NAME_MOST - MARK_LETTERS;
    if !(room + 1..=DISPLAY_NAME_MOST).contains(&length) {
        return Vec::new();
    }
    let message = format!(
        "DisplayName has {length} letters: it is cut to {room}, so that each attempt's mark fits"
    );
    vec![Finding::new(asked.value("/DisplayName"), message, "write a shorter one")]
}

pub(super) fn job_type_case(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let word = asked.body.text("/JobType").unwrap_or_default();
    let near = JOB_TYPES.iter().find(|known| known.eq_ignore_ascii_case(word));
    near.filter(|known| **known != word)
        .map(|known| {
            let message = format!("JobType `{word}` is not how the API spells it");
            Finding::new(asked.value("/JobType"), message, "").near(known)
        })
        .into_iter()
        .collect()
}

pub(super) fn priority(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let given = asked.body.get("/Priority").filter(|value| !value.is_null());
    let right = given.is_none_or(|value| value.as_u64().is_some_and(|n| (1..=9).contains(&n)));
    if right {
        return Vec::new();
    }
    let mend = "wanted: a whole number from 1 to 9; 1 is the default";
    vec![Finding::new(asked.value("/Priority"), "Priority is not 1 to 9", mend)]
}

pub(super) fn top_tags(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    if asked.body.get("/Tags").is_none_or(Value::is_null) {
        return Vec::new();
    }
    let message = "Tags at the top of the body: no version of the SDK has such a field";
    let mend = "a job's tags stand in Settings.Tags, as a table; it is sent as it is";
    vec![Finding::new(asked.key("/Tags"), message, mend)]
}
