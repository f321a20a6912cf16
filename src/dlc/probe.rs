//! Calls that only read and ask for next to nothing: whether a place answers, and what its caller
//! may do.
//!
//! What always holds: nothing in the cloud changes by a probe. Those that need a job ask for one
//! that does not exist: who may not ask is told so, and who may is told that there is none.

use super::client::{Answer, ApiError, Ask, Dlc};
use super::wire;
use crate::model::time::WallTime;
use crate::openapi::kind::Kind;
use std::time::Duration;

/// An id of DLC's form that no job has.
const NO_JOB: &str = "dlc0spotkeeperdoctor0";
/// How far back the list goes of which one row is asked for.
const LOOKBACK: Duration = Duration::from_hours(1);

/// A call that only reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// One row of the jobs of the workspace.
    ListJobs,
    /// A job that does not exist.
    GetJob,
    /// The log of a pod that does not exist.
    GetPodLogs,
    /// The events of a job that does not exist.
    GetJobEvents,
    /// One row of the machine types.
    ListEcsSpecs,
}

impl Probe {
    /// All that need a permission of their own besides [`Probe::ListJobs`].
    pub const OTHERS: [Self; 4] =
        [Self::GetJob, Self::GetPodLogs, Self::GetJobEvents, Self::ListEcsSpecs];

    /// The API's name of the call.
    pub fn action(self) -> &'static str {
        match self {
            Self::ListJobs => "ListJobs",
            Self::GetJob => "GetJob",
            Self::GetPodLogs => "GetPodLogs",
            Self::GetJobEvents => "GetJobEvents",
            Self::ListEcsSpecs => "ListEcsSpecs",
        }
    }

    /// Whether "there is no such thing" is the good answer.
    fn asks_for_nothing(self) -> bool {
        match self {
            Self::ListJobs | Self::ListEcsSpecs => false,
            Self::GetJob | Self::GetPodLogs | Self::GetJobEvents => true,
        }
    }

    fn segments(self) -> Vec<&'static str> {
        match self {
            Self::ListJobs => vec!["api", "v1", "jobs"],
            Self::GetJob => vec!["api", "v1", "jobs", NO_JOB],
            Self::GetPodLogs => vec!["api", "v1", "jobs", NO_JOB, "pods", NO_JOB, "logs"],
            Self::GetJobEvents => vec!["api", "v1", "jobs", NO_JOB, "events"],
            Self::ListEcsSpecs => vec!["api", "v1", "ecsspecs"],
        }
    }

    fn query(self, workspace: &str, now: WallTime) -> Vec<(String, String)> {
        let one_row = || vec![("PageNumber", "1".to_owned()), ("PageSize", "1".to_owned())];
        let mut query = match self {
            Self::ListJobs | Self::ListEcsSpecs => one_row(),
            Self::GetJob => Vec::new(),
            Self::GetPodLogs => vec![("MaxLines", "1".to_owned())],
            Self::GetJobEvents => vec![("MaxEventsNum", "1".to_owned())],
        };
        if self == Self::ListJobs {
            query.push(("StartTime", now.minus(LOOKBACK).to_string()));
            query.push(("WorkspaceId", workspace.to_owned()));
        }
        query.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

impl Dlc {
    /// Makes the call once. A good answer says that it may be made.
    pub async fn probe(&self, probe: Probe, now: WallTime) -> Result<Answer<()>, ApiError> {
        let query = probe.query(&self.place().workspace, now);
        let segments = probe.segments();
        match self.call(Ask::get(probe.action(), &segments, query), now).await {
            Ok(answer) => {
                let date = answer.told.date;
                wire::object(probe.action(), &answer.body)
                    .map_err(|source| ApiError::Wire { source, date })?;
                Ok(Answer { value: (), date, retry_after: answer.told.retry_after })
            }
            Err(error) if probe.asks_for_nothing() && error.kind() == Kind::NotFound => {
                Ok(Answer { value: (), date: error.date(), retry_after: error.retry_after() })
            }
            Err(error) => Err(error),
        }
    }
}
