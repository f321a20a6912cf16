//! The keys and values of what is kept: jobs, ended attempts, where their evidence is, events.
//!
//! Each value is a pair of its version and its content, as JSON. Keys of one kind sort by job, run
//! and number, so that a range read gives them in order.

use crate::core::event::Event;
use crate::model::ids::{AttemptNo, Digest, JobKey, JobName};
use crate::model::time::WallTime;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The version of every value that this program writes. With it the store's format rises, so that
/// an older program opens none of them: see [`super::Format`].
const VERSION: u32 = 2;
/// Bytes that a value may have.
pub const VALUE_LIMIT: usize = 8 * 1024;

/// Why a record cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It would be larger than the store takes.
    #[error("the record {key} has {bytes} bytes; the limit is {VALUE_LIMIT}")]
    TooLarge {
        /// Its key.
        key: String,
        /// Its size.
        bytes: usize,
    },
    /// It is not what this version writes.
    #[error("the record {key} cannot be read")]
    Unreadable {
        /// Its key.
        key: String,
        /// What the decoder said.
        #[source]
        source: serde_json::Error,
    },
    /// It comes from a newer program.
    #[error("the record {key} has version {version}; this program knows {VERSION}")]
    Newer {
        /// Its key.
        key: String,
        /// Its version.
        version: u32,
    },
}

/// An event with its place in the log, which runs over all jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Its place, from 1.
    pub sequence: u64,
    /// The job.
    pub job: JobKey,
    /// What happened.
    pub event: Event,
}

/// Where the raw answers of an attempt's end are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvidence {
    /// The job.
    pub job: JobKey,
    /// The attempt.
    pub attempt: AttemptNo,
    /// When they were fetched.
    pub taken: WallTime,
    /// The blob.
    pub digest: Digest,
    /// Its size.
    pub bytes: u64,
}

/// Prefix of all jobs.
pub const JOBS: &[u8] = b"job/";
/// Prefix of all ended attempts.
pub const ATTEMPTS: &[u8] = b"attempt/";
/// Prefix of all events.
pub const EVENTS: &[u8] = b"event/";

/// Prefix of all kept answers.
pub const EVIDENCE: &[u8] = b"evidence/";

/// Prefix of the names that a person had forgotten.
pub const FORGOTTEN: &[u8] = b"forgotten/";

/// Prefix of all alerts that wait for their delivery.
pub const ALERTS: &[u8] = b"alert/";

/// Prefix of what the last summaries told.
pub const SUMMARIES: &[u8] = b"summary/";

/// There as long as an earlier store, now gone, may have sent what this one does not know.
pub const NEW_STORE: &[u8] = b"meta/new-store";

/// The key of a job.
pub fn job_key(job: &JobKey) -> Vec<u8> {
    format!("job/{}/{:010}", job.name, job.run).into_bytes()
}

/// The key of an ended attempt.
pub fn attempt_key(job: &JobKey, no: AttemptNo) -> Vec<u8> {
    format!("attempt/{}/{:010}/{no:010}", job.name, job.run).into_bytes()
}

/// The key of the kept answers of an attempt.
pub fn evidence_key(job: &JobKey, no: AttemptNo) -> Vec<u8> {
    format!("evidence/{}/{:010}/{no:010}", job.name, job.run).into_bytes()
}

/// The key of the last run of a name that was forgotten.
pub fn forgotten_key(name: &JobName) -> Vec<u8> {
    format!("forgotten/{name}").into_bytes()
}

/// The key of an event.
pub fn event_key(sequence: u64) -> Vec<u8> {
    format!("event/{sequence:020}").into_bytes()
}

/// Prefix of the alerts that wait for one channel.
pub fn alerts_of(channel: &str) -> Vec<u8> {
    format!("alert/{channel}/").into_bytes()
}

/// The key of an alert: the place of its event in the log; a summary stands behind the event that
/// it was made after.
pub fn alert_key(channel: &str, sequence: u64, part: AlertPart<'_>) -> Vec<u8> {
    let part = match part {
        AlertPart::Event => "0".to_owned(),
        AlertPart::Summary => "1".to_owned(),
        AlertPart::Trouble { at, check } => format!("2/{:020}/{check}", at.0),
    };
    format!("alert/{channel}/{sequence:020}/{part}").into_bytes()
}

/// What an alert tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertPart<'a> {
    /// An event.
    Event,
    /// All jobs.
    Summary,
    /// The daemon as a whole.
    Trouble {
        /// When it was told.
        at: WallTime,
        /// The check that found it.
        check: &'a str,
    },
}

/// The key of when a channel had its last summary.
pub fn summary_key(channel: &str) -> Vec<u8> {
    format!("summary/{channel}").into_bytes()
}

/// The key of the step at which that summary left a job.
pub fn summary_step_key(channel: &str, job: &JobKey) -> Vec<u8> {
    format!("summary/{channel}/{}/{:010}", job.name, job.run).into_bytes()
}

/// The value of a record.
///
/// # Errors
/// [`RecordError::TooLarge`].
pub fn encode<T: Serialize>(key: &[u8], content: &T) -> Result<Vec<u8>, RecordError> {
    let name = || String::from_utf8_lossy(key).into_owned();
    let value = serde_json::to_vec(&(VERSION, content))
        .map_err(|source| RecordError::Unreadable { key: name(), source })?;
    if value.len() > VALUE_LIMIT {
        return Err(RecordError::TooLarge { key: name(), bytes: value.len() });
    }
    Ok(value)
}

/// The value of an event: its `data` is left out where it would be too large.
///
/// # Errors
/// [`RecordError::TooLarge`] if even its text is.
pub fn encode_event(stored: &StoredEvent) -> Result<Vec<u8>, RecordError> {
    let key = event_key(stored.sequence);
    encode(&key, stored).or_else(|_| {
        let mut short = stored.clone();
        short.event.data = serde_json::json!({ "left_out": "too large" });
        short.event.text = short.event.text.chars().take(1024).collect();
        encode(&key, &short)
    })
}

/// The content of a record.
///
/// # Errors
/// [`RecordError::Unreadable`] or [`RecordError::Newer`].
pub fn decode<T: DeserializeOwned>(key: &[u8], value: &[u8]) -> Result<T, RecordError> {
    let name = || String::from_utf8_lossy(key).into_owned();
    let unreadable = |source| RecordError::Unreadable { key: name(), source };
    let (version, content): (u32, serde_json::Value) =
        serde_json::from_slice(value).map_err(unreadable)?;
    if version > VERSION {
        return Err(RecordError::Newer { key: name(), version });
    }
    serde_json::from_value(content).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::job::Job;
    use crate::model::ids::{Digest, JobName};

    fn job() -> Job {
        let key = JobKey { name: JobName::new("a").expect("a name"), run: 2 };
        Job::new(key, Digest::of(b"spec"))
    }

    #[test]
    fn a_job_survives_and_keys_sort_by_number() {
        let job = job();
        let key = job_key(&job.key);
        let value = encode(&key, &job).expect("a small record");
        assert_eq!(decode::<Job>(&key, &value).expect("the same version"), job);
        assert!(attempt_key(&job.key, 9) < attempt_key(&job.key, 10));
        assert!(event_key(99) < event_key(100));
    }

    #[test]
    fn a_newer_record_is_refused_in_words() {
        let text = serde_json::json!([VERSION + 1, { "x": 1 }]).to_string();
        let error = decode::<Job>(b"job/a/1", text.as_bytes()).expect_err("a newer record");
        assert!(error.to_string().contains("version 3"), "{error}");
    }

    #[test]
    fn too_large_data_of_an_event_is_left_out_and_its_text_stays() {
        let event = Event {
            at: crate::model::time::WallTime(0),
            attempt: None,
            word: crate::core::event::Word::Checkpoint,
            text: "chose step 5".to_owned(),
            data: serde_json::json!("x".repeat(9000)),
        };
        let stored = StoredEvent { sequence: 1, job: job().key, event };
        let value = encode_event(&stored).expect("its text fits");
        let back: StoredEvent = decode(b"event/1", &value).expect("readable");
        assert_eq!(back.event.text, "chose step 5");
    }
}
