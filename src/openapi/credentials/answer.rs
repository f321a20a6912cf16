//! Keys out of the JSON that a server or a command gave. Its content is never quoted: what is not
//! in its place may be a secret.

use super::{CredentialsError, Held, triple};
use crate::model::time::WallTime;
use serde_json::{Map, Value};

/// Bytes of the longest code that is shown.
const CODE_LIMIT: usize = 64;

/// A JSON object that has keys in it, and who gave it.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    origin: &'a str,
    fields: Map<String, Value>,
}

impl<'a> Answer<'a> {
    /// The object in `body`.
    pub(super) fn parse(origin: &'a str, body: &[u8]) -> Result<Self, CredentialsError> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Self { origin, fields }),
            Ok(_) | Err(_) => Err(bad(origin, "is not a JSON object".to_owned())),
        }
    }

    /// The object below `key`.
    pub(super) fn below(mut self, key: &str) -> Result<Self, CredentialsError> {
        match self.fields.remove(key) {
            Some(Value::Object(fields)) => Ok(Self { origin: self.origin, fields }),
            Some(_) | None => Err(bad(self.origin, format!("has no `{key}`"))),
        }
    }

    /// Fails unless its `Code` is `Success`.
    pub(super) fn successful(self) -> Result<Self, CredentialsError> {
        let code = self.text("Code").unwrap_or_default();
        if code == "Success" {
            return Ok(self);
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let shown = code.len() <= CODE_LIMIT && code.chars().all(plain) && !code.is_empty();
        let what = if shown {
            format!("has the code {code}, not Success")
        } else {
            "has no code Success".to_owned()
        };
        Err(bad(self.origin, what))
    }

    /// A text that is there and not empty.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.fields.get(key)?.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    /// A text that has to be there.
    pub(super) fn needed(&self, key: &str) -> Result<&str, CredentialsError> {
        self.text(key).ok_or_else(|| bad(self.origin, format!("has no `{key}`")))
    }

    /// A time under `key`; one that has passed means that the giver serves old keys.
    pub(super) fn expiration(
        &self,
        key: &str,
        now: WallTime,
    ) -> Result<WallTime, CredentialsError> {
        let expires = WallTime::parse(self.needed(key)?)
            .ok_or_else(|| bad(self.origin, format!("has a `{key}` that is no time")))?;
        if expires <= now {
            let what = format!("has keys that ended at {expires}, and it is {now}");
            return Err(bad(self.origin, what));
        }
        Ok(expires)
    }

    /// The triple of STS, the metadata service and credentials URIs.
    pub(super) fn temporary(&self, now: WallTime) -> Result<Held, CredentialsError> {
        let keys = triple(
            self.origin,
            self.needed("AccessKeyId")?,
            self.needed("AccessKeySecret")?,
            Some(self.needed("SecurityToken")?),
        )?;
        let expires = Some(self.expiration("Expiration", now)?);
        Ok(Held { keys, provider: self.origin.to_owned(), expires })
    }
}

fn bad(origin: &str, what: String) -> CredentialsError {
    CredentialsError::Answer { origin: origin.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime(1_000_000);

    #[test]
    fn what_is_wrong_is_named_and_nothing_is_quoted() {
        let told = |body: &str| {
            let held = Answer::parse("test", body.as_bytes())
                .and_then(Answer::successful)
                .and_then(|answer| answer.temporary(NOW));
            let text = format!("{:?}", held.expect_err("not keys")) + body;
            text[..text.len() - body.len()].to_owned()
        };
        for (body, part) in [
            ("hunter2", "is not a JSON object"),
            (r#"["hunter2"]"#, "is not a JSON object"),
            (r#"{"Code":"hunter 2","AccessKeySecret":"hunter2"}"#, "has no code Success"),
            (r#"{"Code":"Failed"}"#, "has the code Failed"),
            (r#"{"Code":"Success","AccessKeyId":["hunter2"]}"#, "has no `AccessKeyId`"),
            (r#"{"Code":"Success","AccessKeyId":"a"}"#, "has no `AccessKeySecret`"),
            (
                r#"{"Code":"Success","AccessKeyId":"a","AccessKeySecret":"hunter2"}"#,
                "has no `SecurityToken`",
            ),
            (
                r#"{"Code":"Success","AccessKeyId":"a","AccessKeySecret":"hunter2","SecurityToken":"t","Expiration":"soon"}"#,
                "`Expiration` that is no time",
            ),
            (
                r#"{"Code":"Success","AccessKeyId":"a","AccessKeySecret":"hunter2","SecurityToken":"t","Expiration":"1970-01-01T00:00:00Z"}"#,
                "ended at 1970-01-01T00:00:00Z",
            ),
        ] {
            let text = told(body);
            assert!(text.contains(part) && !text.contains("hunter"), "{body}: {text}");
        }
    }
}
