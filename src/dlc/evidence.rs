//! How a job went: events, logs, metrics, checks of the machines; and the same as DLC gave it, every
//! field, known to us or not, which is what evidence is made of.
//!
//! What always holds: the server keeps these for 7 days and cuts them to a count; as many lines as
//! were asked for may mean that older ones were cut. Texts are free: nothing is read out of them here.

use super::client::{Answer, ApiError, Ask, Dlc, Pairs};
use super::query::Query;
use super::wire::{self, PodMetrics, Row, SanityCheck, Whole};
use crate::model::ids::CloudId;
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use serde_json::Value;

/// Events asked for in one call: the API's own default.
pub const EVENTS_LIMIT: u32 = 2_000;

/// Which events of a job or of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventQuery {
    /// `StartTime`; the server's default is 7 days ago.
    pub start: Option<WallTime>,
    /// `EndTime`.
    pub end: Option<WallTime>,
    /// `MaxEventsNum`; the server's default is [`EVENTS_LIMIT`].
    pub limit: Option<u32>,
    /// `PodUid`, of pods only: reaches one that was replaced.
    pub pod_uid: Option<String>,
}

impl EventQuery {
    fn pairs(&self) -> Pairs {
        Query::default()
            .maybe("EndTime", self.end.as_ref())
            .maybe("MaxEventsNum", self.limit.as_ref())
            .maybe("PodUid", self.pod_uid.as_ref())
            .maybe("StartTime", self.start.as_ref())
            .pairs()
    }
}

/// Which part of a pod's log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogQuery {
    /// `PodUid`: reaches the log of a pod that was replaced.
    pub pod_uid: Option<String>,
    /// `StartTime`.
    pub start: Option<WallTime>,
    /// `EndTime`.
    pub end: Option<WallTime>,
    /// `MaxLines`; the server's default is 2,000.
    pub limit: Option<u32>,
    /// `DownloadToFile`.
    pub download_to_file: Option<bool>,
    /// `Containers`, where a pod has several.
    pub containers: Option<String>,
}

impl LogQuery {
    fn pairs(&self) -> Pairs {
        Query::default()
            .maybe("Containers", self.containers.as_ref())
            .maybe("DownloadToFile", self.download_to_file.as_ref())
            .maybe("EndTime", self.end.as_ref())
            .maybe("MaxLines", self.limit.as_ref())
            .maybe("PodUid", self.pod_uid.as_ref())
            .maybe("StartTime", self.start.as_ref())
            .pairs()
    }
}

/// Which series of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricQuery {
    /// `MetricType`: `GpuCoreUsage`, `GpuMemoryUsage`, `CpuCoreUsage`, `MemoryUsage`,
    /// `NetworkInputRate`, `NetworkOutputRate`, `DiskReadRate`, `DiskWriteRate`.
    pub metric: String,
    /// `StartTime`; the server's default is an hour ago.
    pub start: Option<WallTime>,
    /// `EndTime`.
    pub end: Option<WallTime>,
    /// `TimeStep`, e.g. `5m`.
    pub step: Option<String>,
    /// `Token`, of a shared page.
    pub token: Option<Secret>,
}

/// Which checks of the machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SanityQuery {
    /// `SanityCheckNumber`: the how-manieth check, from 1.
    pub number: u32,
    /// `SanityCheckPhase`: `CheckInit`, `DeviceCheck`, `SingleNodeCommCheck`, `TwoNodeCommCheck`,
    /// `AllNodeCommCheck`.
    pub phase: Option<String>,
    /// `Token`, of a shared page.
    pub token: Option<Secret>,
}

/// A call whose answer is kept as it came.
#[derive(Debug, Clone, Copy)]
pub enum RawCall<'a> {
    /// GetJob.
    Job,
    /// GetJobEvents.
    JobEvents(&'a EventQuery),
    /// GetPodEvents of a `PodId`.
    PodEvents(&'a str, &'a EventQuery),
    /// GetPodLogs of a `PodId`.
    PodLogs(&'a str, &'a LogQuery),
}

impl Dlc {
    /// The answer to `call` about the job `id`, as a JSON object, whatever stands in it.
    pub async fn raw(
        &self,
        id: &CloudId,
        call: RawCall<'_>,
        now: WallTime,
    ) -> Result<Answer<Value>, ApiError> {
        let job = ["api", "v1", "jobs", id.as_str()];
        let (action, below, query): (_, &[&str], _) = match call {
            RawCall::Job => return self.get_job_value(id, now).await,
            RawCall::JobEvents(query) => ("GetJobEvents", &["events"], query.pairs()),
            RawCall::PodEvents(pod, query) => {
                ("GetPodEvents", &["pods", pod, "events"], query.pairs())
            }
            RawCall::PodLogs(pod, query) => ("GetPodLogs", &["pods", pod, "logs"], query.pairs()),
        };
        let segments = [&job[..], below].concat();
        let answer = self.call(Ask::get(action, &segments, query), now).await?;
        let value = wire::object(action, &answer.body)
            .map_err(|source| ApiError::Wire { source, date: answer.told.date })?;
        Ok(Answer::new(value, &answer.told))
    }

    /// Events of a job.
    pub async fn job_events(
        &self,
        id: &CloudId,
        query: &EventQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<Vec<String>>>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str(), "events"];
        self.whole(Ask::get("GetJobEvents", &segments, query.pairs()), wire::job_events, now).await
    }

    /// Events of `pod`, which is its `PodId` as GetJob gave it.
    pub async fn pod_events(
        &self,
        id: &CloudId,
        pod: &str,
        query: &EventQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<Vec<String>>>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str(), "pods", pod, "events"];
        self.whole(Ask::get("GetPodEvents", &segments, query.pairs()), wire::pod_events, now).await
    }

    /// The log of `pod`, which is its `PodId` as GetJob gave it.
    pub async fn pod_logs(
        &self,
        id: &CloudId,
        pod: &str,
        query: &LogQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<Vec<String>>>, ApiError> {
        let segments = ["api", "v1", "jobs", id.as_str(), "pods", pod, "logs"];
        self.whole(Ask::get("GetPodLogs", &segments, query.pairs()), wire::pod_logs, now).await
    }

    /// The job's events since `start`, as free text.
    pub async fn get_job_events(
        &self,
        id: &CloudId,
        start: WallTime,
        now: WallTime,
    ) -> Result<Answer<Vec<String>>, ApiError> {
        let limit = Some(EVENTS_LIMIT);
        let query = EventQuery { start: Some(start), limit, ..EventQuery::default() };
        self.job_events(id, &query, now).await.map(lines)
    }

    /// The newest `max_lines` lines of the log of `pod` (its `PodId`; `uid` reaches one that was
    /// replaced, and may be empty). As many lines as asked for may mean that
    /// older ones were cut.
    pub async fn get_pod_logs(
        &self,
        id: &CloudId,
        pod: &str,
        uid: &str,
        max_lines: u32,
        now: WallTime,
    ) -> Result<Answer<Vec<String>>, ApiError> {
        let pod_uid = (!uid.is_empty()).then(|| uid.to_owned());
        let query = LogQuery { pod_uid, limit: Some(max_lines), ..LogQuery::default() };
        self.pod_logs(id, pod, &query, now).await.map(lines)
    }

    /// How busy the machines of a job were. Said to be unmaintained but for pay-as-you-go jobs.
    pub async fn job_metrics(
        &self,
        id: &CloudId,
        query: &MetricQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<Vec<Row<PodMetrics>>>>, ApiError> {
        let pairs = Query::default()
            .maybe("EndTime", query.end.as_ref())
            .maybe("MetricType", Some(&query.metric))
            .maybe("StartTime", query.start.as_ref())
            .maybe("TimeStep", query.step.as_ref())
            .maybe("Token", query.token.as_ref().map(Secret::expose))
            .pairs();
        let segments = ["api", "v1", "jobs", id.as_str(), "metrics"];
        self.whole(Ask::get("GetJobMetrics", &segments, pairs), wire::job_metrics, now).await
    }

    /// What the platform's check of a job's machines found.
    pub async fn sanity_check(
        &self,
        id: &CloudId,
        query: &SanityQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<Vec<Row<SanityCheck>>>>, ApiError> {
        let pairs = Query::default()
            .maybe("SanityCheckNumber", Some(&query.number))
            .maybe("SanityCheckPhase", query.phase.as_ref())
            .maybe("Token", query.token.as_ref().map(Secret::expose))
            .pairs();
        let segments = ["api", "v1", "jobs", id.as_str(), "sanitycheckresult"];
        let ask = Ask::get("GetJobSanityCheckResult", &segments, pairs);
        self.whole(ask, wire::sanity_checks, now).await
    }
}

fn lines(answer: Answer<Whole<Vec<String>>>) -> Answer<Vec<String>> {
    let Answer { value, date, retry_after } = answer;
    Answer { value: value.read, date, retry_after }
}
