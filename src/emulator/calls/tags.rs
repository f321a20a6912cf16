//! The calls on the tags of jobs, which are those of `Settings.Tags`.

use super::query::wrong;
use super::{Answered, Request};
use crate::emulator::world::{CallError, World};
use serde_json::{Map, Value};

/// Jobs of one call.
const RESOURCES_LIMIT: usize = 50;
/// Tags of one call.
const TAGS_LIMIT: usize = 20;
/// Letters of a tag's key.
const KEY_LIMIT: usize = 128;

pub(super) fn tag(world: &mut World, request: &Request<'_>) -> Answered {
    let fields = request.fields()?;
    fields.required("RegionId")?;
    check_type(fields.required("ResourceType")?)?;
    let ids = fields.texts("ResourceId")?;
    let given = fields.value("Tag").and_then(Value::as_array).map_or(&[] as &[Value], |t| t);
    if given.len() > TAGS_LIMIT {
        return Err(wrong(format!("Tag: more than {TAGS_LIMIT} tags")));
    }
    let mut tags = Vec::new();
    for tag in given {
        let key = tag.get("Key").and_then(Value::as_str).unwrap_or_default();
        let reserved = key.starts_with("aliyun") || key.starts_with("acs:");
        if key.is_empty() || key.chars().count() > KEY_LIMIT || reserved || key.contains("://") {
            return Err(wrong(format!("Tag: {key:?} cannot be a key")));
        }
        tags.push((key.to_owned(), tag.get("Value").cloned().unwrap_or_else(|| "".into())));
    }
    change(world, &ids, |all| all.extend(tags.iter().cloned()))
}

pub(super) fn untag(world: &mut World, request: &Request<'_>) -> Answered {
    check_type(request.query.required("ResourceType")?)?;
    let all_tags = request.query.flag("All")? == Some(true);
    let ids = texts(request, "ResourceId")?;
    let keys = texts(request, "TagKey")?;
    if keys.len() > TAGS_LIMIT {
        return Err(wrong(format!("TagKey: more than {TAGS_LIMIT} keys")));
    }
    change(world, &ids, |tags| tags.retain(|key, _| !all_tags && !keys.contains(key)))
}

fn check_type(kind: &str) -> Result<(), CallError> {
    if kind.eq_ignore_ascii_case("job") {
        Ok(())
    } else {
        Err(wrong(format!("ResourceType: {kind} is not Job")))
    }
}

/// A list of texts that stands in the query as JSON.
fn texts(request: &Request<'_>, name: &str) -> Result<Vec<String>, CallError> {
    let text = request.query.text(name).unwrap_or("[]");
    serde_json::from_str(text)
        .map_err(|_| wrong(format!("{name}: {text} is no JSON list of texts")))
}

/// Changes the tags of all these jobs, or, when one of them is not there, of none.
fn change(world: &mut World, ids: &[String], change: impl Fn(&mut Map<String, Value>)) -> Answered {
    if ids.is_empty() || ids.len() > RESOURCES_LIMIT {
        return Err(wrong(format!("ResourceId: is not 1 to {RESOURCES_LIMIT} jobs")));
    }
    for id in ids {
        world.job(id)?;
    }
    for id in ids {
        let mut job = world.take(id)?;
        let body = &mut job.submission.body;
        let settings = inner(body, "Settings");
        change(inner(settings, "Tags"));
        world.put_back(job);
    }
    Ok(Map::new())
}

/// The object in a field, which becomes one if it is none.
fn inner<'a>(map: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(name.to_owned()).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made one just above")
}
