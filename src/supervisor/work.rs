//! What the driver's queue is made of.

use super::adoptions::{Adoption, Found};
use super::evidence::Gathered;
use super::summary::Summary;
use crate::config::{DaemonConfig, JobSet};
use crate::core::job::Job;
use crate::core::permanent;
use crate::core::step::{Input, Pass};
use crate::model::checkpoint::Look;
use crate::model::cloud::{CloudJob, Status};
use crate::model::ids::{CloudId, JobKey};
use crate::model::time::WallTime;
use crate::store::records::StoredEvidence;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Messages that may wait for the driver; the sender of the next one waits for room.
pub(super) const QUEUE_LIMIT: usize = 1024;

/// What tasks tell the driver.
#[derive(Debug)]
pub(super) enum Message {
    /// Something for one job.
    Input(JobKey, Input),
    /// The look of this number into the bucket of a job came out.
    Looked(JobKey, u64, Look),
    /// A pass is through.
    Swept(Swept),
    /// The job files were read.
    Files(JobSet),
    /// A cloud job that a person adopts was looked up.
    LookedUp(Adoption, Found),
    /// The raw answers of an end were fetched, or were not.
    Gathered(Gathered),
    /// Another daemon file holds from now on, if one is given; the job files are read again.
    Reload {
        /// It.
        config: Option<Arc<DaemonConfig>>,
        /// Told once it is taken over.
        done: oneshot::Sender<()>,
    },
    /// The state is to be written to the log.
    Dump,
    /// These alerts are delivered, or were given up.
    AlertsDone(Vec<Vec<u8>>),
}

/// A pass over ListJobs at one place, with everything that changed in full.
#[derive(Debug)]
pub struct Swept {
    /// When, where, how complete.
    pub pass: Pass,
    /// The jobs that carry our owner and are new or changed, oldest first.
    pub jobs: Vec<CloudJob>,
    /// Open attempts that a complete pass lacks and that GetJob says do not exist.
    pub missing: Vec<CloudId>,
    /// Whether any job of our owner was there at all.
    pub owner_seen: bool,
}

/// One piece of work, in the order of arrival.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a queue of few; most are inputs")]
pub enum Work {
    /// Something for one job.
    Input(JobKey, Input),
    /// Everything of a pass was taken before this: the place may open.
    Passed(Pass),
    /// A job that is new on record.
    Accept(Box<Job>),
    /// A job that was never submitted and has no file any more.
    Drop(JobKey),
    /// A job that a person wants off the record.
    Forget(JobKey),
    /// The raw answers of an end are a blob by now; their record is to be committed.
    Keep(StoredEvidence),
    /// What an earlier store may have sent is accounted for at every place.
    StoreSettled,
    /// Records of alerts that are delivered, or that nobody waits for.
    AlertsDone(Vec<Vec<u8>>),
    /// A summary is to be told.
    Tell(Box<Summary>),
    /// Something is wrong with the daemon as a whole, and has been for long.
    Trouble {
        /// When it was told.
        at: WallTime,
        /// The check that found it.
        name: String,
        /// What it is.
        text: String,
    },
}

/// What is on record of a cloud job that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnRecord {
    /// The status that was last shown.
    pub status: Status,
    /// Its in-place restarts.
    pub restarts: u32,
    /// When its last run began, by the server's times.
    pub began: Option<WallTime>,
    /// Whether it counts as missing: any row that shows it is news then.
    pub is_missing: bool,
}

/// What is wanted of an attempt that waits, though its row may be as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// From when on a whole answer is wanted, if at all.
    pub look_at: Option<WallTime>,
    /// The latest time that this was counted from.
    pub counted_from: Option<WallTime>,
    /// Whether it is on record that it can never run.
    pub is_never: bool,
}

/// What the tasks that list may rely on: which rows need no second look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Open attempts.
    pub open: BTreeMap<CloudId, OnRecord>,
    /// Ids of open attempts alone: each is to be found in every pass.
    pub attempts: BTreeSet<CloudId>,
    /// Ended attempts.
    pub ended: BTreeSet<CloudId>,
    /// Attempts that wait before they run.
    pub waits: BTreeMap<CloudId, Waits>,
    /// Attempts that were given up as lost: however they show up, it is news.
    pub lost: BTreeSet<CloudId>,
    /// When the oldest attempt that may be open, or was lost a short while ago, was decided.
    pub oldest: Option<WallTime>,
}

impl Known {
    /// Whether it is on record by its id, whatever marks it carries.
    pub fn has(&self, id: &CloudId) -> bool {
        self.open.contains_key(id) || self.ended.contains(id) || self.lost.contains(id)
    }

    /// Whether an attempt that waits is to be looked at in full, though its row has no news.
    pub fn wants_whole(&self, row: &CloudJob, now: WallTime) -> bool {
        self.waits.get(&row.id).is_some_and(|wait| {
            let is_ahead = wait.counted_from.is_some_and(|from| from > now);
            wait.look_at.is_some_and(|at| at <= now || is_ahead)
                || !wait.is_never && permanent::cause(row).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlc::wire::{Source, job};

    #[test]
    fn a_wait_is_looked_at_when_something_is_due_or_said() {
        let row = |message: &str| {
            let value = serde_json::json!({
                "JobId": "dlc1", "Status": "Queuing", "ReasonMessage": message,
            });
            job(&value, Source::ListRow).expect("a row")
        };
        let known = |look_at: Option<i64>, is_never| {
            let counted_from = Some(WallTime(100));
            let waits = Waits { look_at: look_at.map(WallTime), counted_from, is_never };
            Known { waits: BTreeMap::from([(row("").id, waits)]), ..Known::default() }
        };
        let wants = |known: &Known, message: &str| known.wants_whole(&row(message), WallTime(100));
        for (look_at, due) in [(None, false), (Some(101), false), (Some(100), true)] {
            assert_eq!(wants(&known(look_at, false), "in the queue"), due, "{look_at:?}");
        }
        assert!(wants(&known(None, false), "no such quota"));
        assert!(!wants(&known(None, true), "no such quota"), "it is on record");
        let set_back = known(Some(101), false).wants_whole(&row(""), WallTime(99));
        assert!(set_back, "its times lie ahead");
        assert!(!wants(&Known::default(), "no such quota"), "it does not wait");
    }
}
