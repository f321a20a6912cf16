//! The fence: one small object below a checkpoint prefix that names the newest attempt there.
//!
//! It is written before CreateJob is sent and read by the launcher in the pod, first of all. What
//! always holds: only attempts of one job are compared, by run and number, so that a fence of
//! another job, an older one, a torn one or none at all lets an attempt start.

use super::ids::{AttemptNo, JobKey, Mark, Owner};

/// Where it lies below the prefix. Folders that begin with a dot are never taken for checkpoints.
pub const KEY: &str = ".spotkeeper/fence";
/// Exit code of a launcher that found a later attempt in the fence.
pub const EXIT_CODE: i32 = 194;

/// An attempt as the fence names it.
#[derive(Debug, Clone, Copy)]
pub struct Fence<'a> {
    /// This installation.
    pub owner: &'a Owner,
    /// The job and its run.
    pub job: &'a JobKey,
    /// The attempt.
    pub attempt: AttemptNo,
    /// The mark of its CreateJob.
    pub mark: &'a Mark,
}

impl Fence<'_> {
    /// Whose attempts are compared with each other: one word.
    pub fn whose(&self) -> String {
        format!("{}.{}", self.owner, self.job.name)
    }

    /// Grows from attempt to attempt, and from run to run.
    pub fn order(&self) -> u64 {
        u64::from(self.job.run) << 32 | u64::from(self.attempt)
    }

    /// The content: one line. The shell reads the first two words, the others are for people.
    pub fn text(&self) -> String {
        format!(
            "{} {} run={} attempt={} mark={}\n",
            self.whose(),
            self.order(),
            self.job.run,
            self.attempt,
            self.mark
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::JobName;

    #[test]
    fn later_attempts_and_later_runs_come_later() {
        let (owner, mark) = (Owner::new("k3f9qz").expect("one"), Mark::from_random([0; 10]));
        let order = |run: u32, attempt: AttemptNo| {
            let job = JobKey { name: JobName::new("sft").expect("a name"), run };
            Fence { owner: &owner, job: &job, attempt, mark: &mark }.order()
        };
        assert!(order(1, 9) < order(1, 10) && order(1, u32::MAX) < order(2, 1));
        // The largest still fits the signed 64 bits in which shells count.
        assert!(i64::try_from(order(1_000_000, u32::MAX)).is_ok());
        let job = JobKey { name: JobName::new("sft").expect("a name"), run: 2 };
        let text = Fence { owner: &owner, job: &job, attempt: 7, mark: &mark }.text();
        assert_eq!(text, format!("k3f9qz.sft 8589934599 run=2 attempt=7 mark={mark}\n"));
    }
}
