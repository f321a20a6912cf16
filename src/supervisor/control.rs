//! What the process asks of the driver: another daemon file, the state in the log, signs of life.

use super::driver::Driver;
use super::work::{Message, Work};
use crate::config::DaemonConfig;
use crate::core::phase::phase;
use crate::core::step::Input;
use crate::model::ids::JobKey;
use crate::model::time::human;
use crate::service::crash;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

/// How long the driver may take to go over to another daemon file. It may be waiting for its disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Jobs that are written out in a dump.
const DUMP_LIMIT: usize = 1_000;
/// With more jobs than this the status does not say in which phase each is: that takes time.
const STATUS_JOBS_LIMIT: usize = 500;
/// Time between two looks at what the status says.
const STATUS_EVERY: Duration = Duration::from_secs(5);

/// The process's way to the driver. Clones share it.
#[derive(Debug, Clone)]
pub struct Control {
    pub(super) driver: mpsc::Sender<Message>,
}

/// Why the driver did not do what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// It ends.
    #[error("the daemon is stopping")]
    Stopping,
    /// It is busy; it will get to it.
    #[error("the driver is busy; it does so as soon as it can")]
    Busy,
    /// So much waits for it that it was not even asked.
    #[error("too much waits for the driver: nothing was reloaded, ask again")]
    Full,
}

impl Control {
    /// Goes over to another daemon file, if one is given, and reads the job files again.
    ///
    /// # Errors
    /// The driver is busy or ends. After [`ControlError::Full`] it never learns of it.
    pub async fn reload(&self, config: Option<Arc<DaemonConfig>>) -> Result<(), ControlError> {
        let (done, taken) = oneshot::channel();
        self.driver.try_send(Message::Reload { config, done }).map_err(|error| match error {
            TrySendError::Full(_) => ControlError::Full,
            TrySendError::Closed(_) => ControlError::Stopping,
        })?;
        let answer = tokio::time::timeout(ANSWER_LIMIT, taken).await;
        answer.map_or(Err(ControlError::Busy), |taken| taken.map_err(|_| ControlError::Stopping))
    }

    /// Has the state written to the log.
    pub async fn dump(&self) {
        // A driver that is gone has no state.
        drop(self.driver.send(Message::Dump).await);
    }
}

impl Driver {
    /// Goes over to another daemon file. Attempts that are open keep the place that they were sent
    /// to; only what is submitted from now on goes by the new one.
    pub(super) fn take_config(&mut self, config: Option<Arc<DaemonConfig>>) {
        self.end_hold("a person asked for a reload");
        self.is_file_refused = config.is_none();
        self.pulse.look_again();
        let Some(config) = config else {
            // The same again: the job files are read all the same.
            self.config.send_modify(|_| {});
            return;
        };
        for (name, target) in &self.book.targets {
            let stays = config.targets.get(name).is_some_and(|new| new.place == target.place);
            let jobs = self.book.jobs.values();
            let open = jobs.flat_map(|job| &job.open).filter(|a| a.place == target.place).count();
            if !stays && open > 0 {
                tracing::warn!(
                    target = %name,
                    open,
                    "the target is gone or another one; its open attempts are followed where they are"
                );
            }
        }
        self.book.targets = config.targets.clone();
        self.effects.take_config(&config);
        self.config.send_replace(config);
        let keys: Vec<JobKey> = self.book.jobs.keys().cloned().collect();
        for key in keys {
            self.push(Work::Input(key, Input::Tick));
        }
    }

    /// The loop did a round of work, or saw that there is none.
    pub(super) fn beat(&mut self) {
        crash::freeze();
        let now = self.clock.now().boot;
        self.pulse.beat(now);
        if self.pulse.status_is_due(now, STATUS_EVERY) {
            let text = self.status();
            self.pulse.show(text);
        }
    }

    /// One line for `systemctl status`.
    pub(super) fn status(&self) -> String {
        if let Some(why) = &self.held {
            return format!("HELD: {why}");
        }
        if let Some(why) = &self.store_fault {
            return format!("the store cannot write, nothing is decided: {why}");
        }
        let mut text = String::new();
        if let Some(why) = &self.deaf {
            // A text takes whatever is written into it.
            let _ = write!(text, "the API does not listen on TCP: {why}; ");
        }
        if self.is_file_refused {
            text.push_str("the daemon file was refused by the last reload, an older one holds; ");
        }
        text.push_str(&self.jobs_in_words());
        for target in self.daemon().targets {
            match target.fault {
                // A text takes whatever is written into it.
                Some(fault) => {
                    let _ = write!(text, "; {}: {fault}", target.name);
                }
                None if !target.verified => {
                    let _ = write!(text, "; {}: being compared with the store", target.name);
                }
                None => {}
            }
        }
        text
    }

    /// `2 running, 1 blocked`.
    fn jobs_in_words(&self) -> String {
        let jobs = &self.book.jobs;
        if jobs.is_empty() {
            return "no jobs".to_owned();
        }
        if jobs.len() > STATUS_JOBS_LIMIT {
            let open: usize = jobs.values().map(|job| job.open.len()).sum();
            return format!("{} jobs, {open} attempts open", jobs.len());
        }
        let now = self.clock.now();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for job in jobs.values() {
            *counts.entry(phase(job, &self.holds(job), now).word()).or_default() += 1;
        }
        let counts = counts.iter().map(|(word, n)| format!("{n} {}", word.to_lowercase()));
        counts.collect::<Vec<_>>().join(", ")
    }

    /// Writes what is known to the log, a line a target and a job.
    pub(super) fn dump(&self) {
        let daemon = self.daemon();
        tracing::info!(
            version = daemon.version,
            uptime_s = daemon.uptime_s,
            jobs = self.book.jobs.len(),
            tasks = self.tasks.len(),
            waiting = self.pending.len(),
            store_fault = self.store_fault,
            held = self.held,
            "state"
        );
        for target in daemon.targets {
            let (name, fault) = (target.name, target.fault);
            let (verified, last_sweep_s) = (target.verified, target.last_sweep_s);
            tracing::info!(name, verified, last_sweep_s, fault, "state of a target");
        }
        for job in self.book.jobs.values().take(DUMP_LIMIT) {
            let row = self.row(job);
            let open: Vec<String> = job
                .open
                .iter()
                .map(|a| {
                    format!("{}:{}", a.no, a.id().map_or("unknown".to_owned(), ToString::to_string))
                })
                .collect();
            let wake = self.book.wakes.get(&job.key);
            let wake = wake.map(|at| human(at.since(self.clock.now().boot)));
            tracing::info!(
                job = %job.key,
                phase = row.phase,
                why = row.why,
                open = open.join(" "),
                ended = row.attempts,
                wake,
                "state of a job"
            );
        }
        let left_out = self.book.jobs.len().saturating_sub(DUMP_LIMIT);
        if left_out > 0 {
            tracing::info!(left_out, "more jobs are on record");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reload_that_finds_no_room_says_that_nothing_comes_of_it() {
        let (driver, mut inbox) = mpsc::channel(1);
        let control = Control { driver };
        control.dump().await;
        assert_eq!(control.reload(None).await, Err(ControlError::Full));
        assert!(matches!(inbox.recv().await, Some(Message::Dump)));
        assert!(inbox.try_recv().is_err(), "it was not asked");
        drop(inbox);
        assert_eq!(control.reload(None).await, Err(ControlError::Stopping));
    }
}
