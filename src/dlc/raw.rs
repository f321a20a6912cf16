//! Answers as DLC gave them, every field, known to us or not: what evidence is made of.

use super::client::{Answer, ApiError, Ask, Dlc};
use super::wire;
use crate::model::ids::CloudId;
use crate::model::time::WallTime;
use serde_json::Value;

/// A call whose answer is kept as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RawCall<'a> {
    /// GetJob.
    Job,
    /// GetJobEvents since a time.
    JobEvents {
        /// The time.
        since: WallTime,
        /// The newest of them, at most.
        most: u32,
    },
    /// GetPodEvents.
    PodEvents {
        /// `PodId`.
        pod: &'a str,
        /// `PodUid`; may be empty.
        uid: &'a str,
        /// Those since this time.
        since: WallTime,
        /// The newest of them, at most.
        most: u32,
    },
    /// GetPodLogs: the last lines.
    PodLogs {
        /// `PodId`.
        pod: &'a str,
        /// `PodUid`; may be empty.
        uid: &'a str,
        /// How many.
        lines: u32,
    },
}

impl Dlc {
    /// The answer to `call` about the job `id`, as a JSON object.
    ///
    /// # Errors
    /// [`ApiError`]; a body that is no JSON object is [`ApiError::Wire`].
    pub async fn raw(
        &self,
        id: &CloudId,
        call: RawCall<'_>,
        now: WallTime,
    ) -> Result<Answer<Value>, ApiError> {
        let job = ["api", "v1", "jobs", id.as_str()];
        let (action, path, query): (_, Vec<&str>, Vec<(&str, String)>) = match call {
            RawCall::Job => return self.get_job_value(id, now).await,
            RawCall::JobEvents { since, most } => (
                "GetJobEvents",
                [&job[..], &["events"]].concat(),
                vec![("MaxEventsNum", most.to_string()), ("StartTime", since.to_string())],
            ),
            RawCall::PodEvents { pod, uid, since, most } => (
                "GetPodEvents",
                [&job[..], &["pods", pod, "events"]].concat(),
                vec![
                    ("MaxEventsNum", most.to_string()),
                    ("PodUid", uid.to_owned()),
                    ("StartTime", since.to_string()),
                ],
            ),
            RawCall::PodLogs { pod, uid, lines } => (
                "GetPodLogs",
                [&job[..], &["pods", pod, "logs"]].concat(),
                vec![("MaxLines", lines.to_string()), ("PodUid", uid.to_owned())],
            ),
        };
        let given = query.into_iter().filter(|(_, value)| !value.is_empty());
        let query = given.map(|(name, value)| (name.to_owned(), value)).collect();
        let answer = self.call(Ask::get(action, &path, query), now).await?;
        let date = answer.told.date;
        let value = wire::object(action, &answer.body);
        let value = value.map_err(|source| ApiError::Wire { source, date })?;
        Ok(Answer { value, date, retry_after: answer.told.retry_after })
    }
}
