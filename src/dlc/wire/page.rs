//! One page of ListJobs, read row by row.
//!
//! A row has hundreds of fields, of which few are kept, and a page a hundred rows: each row's JSON
//! is let go before the next one is read.

use super::{Source, WireError, field, job};
use crate::model::cloud::CloudJob;
use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// One page of ListJobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Each row, or what is wrong with it.
    pub rows: Vec<Result<CloudJob, WireError>>,
    /// `TotalCount`, if it was there.
    pub total: Option<u64>,
}

/// The page in an answer of ListJobs. Rows that are not there are an empty page; whether that
/// proves anything is for [`Page::total`] to say.
pub fn page(body: &[u8]) -> Result<Page, WireError> {
    serde_json::from_slice(body).map_err(|_| WireError::NotObject { what: "ListJobs" })
}

/// The page in an answer that is kept whole.
pub fn whole_page(value: &Value) -> Result<Page, WireError> {
    let rows = field::list(value, "Jobs").iter().map(|row| job(row, Source::ListRow)).collect();
    Ok(Page { rows, total: field::number(value, "TotalCount") })
}

impl<'de> Deserialize<'de> for Page {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(PageVisitor)
    }
}

struct PageVisitor;

impl<'de> Visitor<'de> for PageVisitor {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Page, A::Error> {
        let mut page = Page::default();
        while let Some(name) = map.next_key::<String>()? {
            match name.as_str() {
                "Jobs" | "jobs" => page.rows = map.next_value::<Rows>()?.0,
                "TotalCount" | "totalCount" => page.total = field::as_number(&map.next_value()?),
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(page)
    }
}

/// The rows; none where something else than a list stands.
struct Rows(Vec<Result<CloudJob, WireError>>);

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RowsVisitor).map(Self)
    }
}

struct RowsVisitor;

impl<'de> Visitor<'de> for RowsVisitor {
    type Value = Vec<Result<CloudJob, WireError>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut rows = Vec::new();
        while let Some(row) = list.next_element::<Value>()? {
            rows.push(job(&row, Source::ListRow));
        }
        Ok(rows)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_takes_what_is_there() {
        let found = page(br#"{"Jobs":[{},1,{"JobId":"dlc1","Status":"Failed"}],"TotalCount":"3"}"#);
        let found = found.expect("a page");
        assert_eq!(found.total, Some(3));
        let read: Vec<_> = found.rows.iter().map(Result::is_ok).collect();
        assert_eq!(read, [false, false, true]);
        let lower = page(br#"{"totalCount":1.0,"jobs":[{"jobId":"dlc1","status":"Running"}]}"#);
        let lower = lower.expect("a page");
        assert_eq!((lower.rows.len(), lower.total), (1, Some(1)));
    }

    #[test]
    fn something_else_than_a_list_is_an_empty_page() {
        for odd in ["null", "true", "1", "-1", "1.5", "\"x\"", "{\"a\":[1,{}]}", "[]"] {
            let body = format!(r#"{{"Other":{odd},"Jobs":{odd},"TotalCount":{odd}}}"#);
            let found = page(body.as_bytes()).expect("a page");
            let total = (odd == "1").then_some(1);
            assert_eq!(found, Page { rows: Vec::new(), total }, "{odd}");
        }
        assert_eq!(page(b"{}"), Ok(Page::default()));
    }

    #[test]
    fn what_is_no_whole_object_is_no_page() {
        for body in ["", "<html>", "[]", "null", "1", "\"x\"", r#"{"Jobs":[{}"#, r#"{"Jobs":[]} x"#]
        {
            let refused = Err(WireError::NotObject { what: "ListJobs" });
            assert_eq!(page(body.as_bytes()), refused, "{body}");
        }
    }
}
