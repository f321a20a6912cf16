//! The calls on job templates. Each change of a template's content makes a further version; all
//! versions are kept in the record, under `Versions`.

use super::query::{Order, wrong};
use super::shelves::{Listing, change, record, required_number};
use super::{Answered, Request, object};
use crate::emulator::views::USER_ID;
use crate::emulator::world::{CallError, World};
use serde_json::{Map, Value, json};

/// Versions of one template.
const VERSIONS_LIMIT: usize = 1_000;

/// A version out of a body's `Content`, which is JSON in a text.
fn version(request: &Request<'_>, number: usize) -> Result<Value, CallError> {
    let fields = request.fields()?;
    let content: Value = serde_json::from_str(fields.required("Content")?)
        .map_err(|error| wrong(format!("Content: is no JSON: {error}")))?;
    let constraints = fields.object("Constraints")?.cloned().unwrap_or_default();
    for (path, word) in &constraints {
        if !matches!(word.as_str(), Some("locked" | "overridable" | "required")) {
            return Err(wrong(format!("Constraints: {path} is {word}")));
        }
    }
    Ok(json!({
        "Version": number, "Content": content, "Constraints": constraints, "CreatedBy": USER_ID,
        "GmtCreateTime": request.now.wall.to_string(),
    }))
}

fn versions(record: &Map<String, Value>) -> &[Value] {
    record.get("Versions").and_then(Value::as_array).map_or(&[], |versions| versions)
}

/// A template without its versions, as lists show it.
fn outline(record: &Map<String, Value>) -> Map<String, Value> {
    let mut outline = record.clone();
    outline.remove("Versions");
    outline
}

pub(super) fn create(world: &mut World, request: &Request<'_>) -> Answered {
    let fields = request.fields()?;
    fields.required("TemplateName")?;
    fields.required("WorkspaceId")?;
    let first = version(request, 1)?;
    let metadata = fields.object("Metadata")?.cloned().unwrap_or_default();
    let mut record = record(request)?;
    for name in ["Content", "Constraints", "Accessibility", "Username"] {
        record.remove(name);
    }
    record.extend(object(json!({
        "Metadata": metadata, "DefaultVersion": 1, "ModifiedBy": USER_ID, "Versions": [first],
    })));
    let id = world.records.templates.add(record)?;
    let mut answer = outline(world.records.templates.get(&id)?);
    answer.insert("Version".to_owned(), 1.into());
    Ok(answer)
}

pub(super) fn get(world: &mut World, request: &Request<'_>) -> Answered {
    let wanted = request.query.number("Version", 1)?;
    let record = world.records.templates.get(request.id(0))?;
    let shown: Vec<&Value> = versions(record)
        .iter()
        .filter(|version| wanted.is_none_or(|wanted| version["Version"] == wanted))
        .collect();
    if let Some(wanted) = wanted
        && shown.is_empty()
    {
        return Err(CallError::NotFound(format!("{} version {wanted}", request.id(0))));
    }
    let mut answer = outline(record);
    answer.extend(object(json!({"TotalCount": shown.len(), "Versions": shown})));
    Ok(answer)
}

pub(super) fn list(world: &mut World, request: &Request<'_>) -> Answered {
    let listing = Listing {
        equal: &["TemplateId", "UserId", "WorkspaceId"],
        within: &["TemplateName", "Description"],
        sort_by: &["GmtCreateTime", "GmtModifyTime", "TemplateName"],
        order: Order::Descending,
        made: None,
    };
    let (found, total) = listing.page(&world.records.templates, request, |_| true)?;
    let found: Vec<Map<String, Value>> = found.iter().map(outline).collect();
    let page = request.query.page()?;
    Ok(object(json!({
        "JobTemplates": found, "TotalCount": total, "PageNumber": page.number,
        "PageSize": page.size,
    })))
}

pub(super) fn update(world: &mut World, request: &Request<'_>) -> Answered {
    let fields = request.fields()?;
    let record = world.records.templates.get_mut(request.id(0))?;
    let last = versions(record).len();
    let created = fields.text("Content")?.is_some();
    if !created && fields.value("Constraints").is_some() {
        return Err(wrong("Constraints: needs Content"));
    }
    if created {
        if last >= VERSIONS_LIMIT {
            let id = request.id(0).to_owned();
            return Err(CallError::BadRequest(id, "it has as many versions as a template may"));
        }
        let next = version(request, last + 1)?;
        if let Some(versions) = record.get_mut("Versions").and_then(Value::as_array_mut) {
            versions.push(next);
        }
        if fields.value("SetAsDefault").and_then(Value::as_bool) == Some(true) {
            record.insert("DefaultVersion".to_owned(), (last + 1).into());
        }
    }
    change(record, request, &["TemplateName", "Description", "Metadata"], "GmtModifyTime")?;
    Ok(object(json!({
        "DefaultVersion": record.get("DefaultVersion"),
        "GmtModifyTime": record.get("GmtModifyTime"),
        "Version": if created { last + 1 } else { last },
        "VersionCreated": created,
    })))
}

pub(super) fn set_default(world: &mut World, request: &Request<'_>) -> Answered {
    let number = request.fields()?.number("Version", 1, u64::MAX)?;
    let number = required_number(number, "Version")?;
    let record = world.records.templates.get_mut(request.id(0))?;
    if !versions(record).iter().any(|version| version["Version"] == number) {
        return Err(CallError::NotFound(format!("{} version {number}", request.id(0))));
    }
    record.insert("DefaultVersion".to_owned(), number.into());
    change(record, request, &[], "GmtModifyTime")?;
    Ok(object(json!({
        "DefaultVersion": number, "GmtModifyTime": record.get("GmtModifyTime"),
    })))
}

pub(super) fn delete(world: &mut World, request: &Request<'_>) -> Answered {
    world.records.templates.remove(request.id(0))?;
    Ok(object(json!({"TemplateId": request.id(0)})))
}
