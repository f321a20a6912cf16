//! What the calls on records have in common: lists with filters and pages, and defaults.

use super::query::{Order, Window, wrong};
use super::{Request, object};
use crate::emulator::records::Shelf;
use crate::emulator::views::{DEFAULT_WORKSPACE, USER_ID, USER_NAME};
use crate::emulator::world::CallError;
use serde_json::{Map, Value, json};

/// How a list is asked for.
pub(super) struct Listing<'a> {
    /// Parameters that a record's field of the same name must equal.
    pub(super) equal: &'a [&'a str],
    /// Parameters whose text is part of the field's, in any case.
    pub(super) within: &'a [&'a str],
    /// Fields that the list may be sorted by; the first is the one that holds without a wish.
    pub(super) sort_by: &'a [&'a str],
    /// The order that holds without a wish.
    pub(super) order: Order,
    /// The times within which a record must have been made, if that is asked.
    pub(super) made: Option<Window>,
}

impl Listing<'_> {
    /// The records of the page that a request asks for, and how many there are in all. `also` is
    /// a filter of the caller's own.
    pub(super) fn page(
        &self,
        records: &Shelf,
        request: &Request<'_>,
        also: impl Fn(&Map<String, Value>) -> bool,
    ) -> Result<(Vec<Map<String, Value>>, usize), CallError> {
        let query = &request.query;
        let sort_by = query.word("SortBy", self.sort_by)?.unwrap_or(self.sort_by[0]);
        let order = query.order(self.order)?;
        let field = |record: &Map<String, Value>, name: &str| text_of(record.get(name));
        let made_then = |record: &Map<String, Value>| {
            self.made.is_none_or(|window| {
                let made = crate::model::time::WallTime::parse(&field(record, "GmtCreateTime"));
                // Times of records are whole seconds: one made in this second is not before it.
                made.is_some_and(|made| made.0 + 999 >= window.from.0 && made <= window.until)
            })
        };
        let mut found: Vec<&Map<String, Value>> = records
            .iter()
            .filter(|record| {
                self.equal
                    .iter()
                    .all(|name| query.text(name).is_none_or(|text| field(record, name) == text))
                    && self.within.iter().all(|name| {
                        query.text(name).is_none_or(|text| {
                            field(record, name).to_lowercase().contains(&text.to_lowercase())
                        })
                    })
            })
            .filter(|record| made_then(record) && also(record))
            .collect();
        // The sort is stable: records of one second keep the order in which they were made.
        found.sort_by_key(|record| field(record, sort_by));
        if order == Order::Descending {
            found.reverse();
        }
        let (page, total) = query.page()?.cut(found);
        Ok((page.into_iter().cloned().collect(), total))
    }
}

fn text_of(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
            other.to_string()
        }
    }
}

/// A record out of a request's body: all its fields, and what every record has.
pub(super) fn record(request: &Request<'_>) -> Result<Map<String, Value>, CallError> {
    let fields = request.fields()?;
    fields.word("Accessibility", &["PRIVATE", "PUBLIC", "ROLE_PUBLIC"])?;
    let now = request.now.wall.to_string();
    let mut record = object(json!({"Accessibility": "PRIVATE", "WorkspaceId": DEFAULT_WORKSPACE}));
    record.extend(fields.0.into_iter().filter(|(_, value)| !value.is_null()));
    record.extend(object(json!({
        "GmtCreateTime": now, "GmtModifyTime": now, "UserId": USER_ID, "Username": USER_NAME,
        "TenantId": "",
    })));
    Ok(record)
}

/// Takes over the given fields of a body, and that it was changed now.
pub(super) fn change(
    record: &mut Map<String, Value>,
    request: &Request<'_>,
    names: &[&str],
    modified: &str,
) -> Result<(), CallError> {
    let fields = request.fields()?;
    for name in names {
        if let Some(value) = fields.value(name) {
            record.insert((*name).to_owned(), value.clone());
        }
    }
    record.insert(modified.to_owned(), request.now.wall.to_string().into());
    Ok(())
}

/// The number in a path or body that must be there.
pub(super) fn required_number(value: Option<u64>, name: &str) -> Result<u64, CallError> {
    value.ok_or_else(|| wrong(format!("{name}: is required")))
}
