//! How a job moves on: from its submission over the market to its end.
//!
//! A step happens when time, the market or the end of a pod allows it. What a step changes is in
//! the ledger before a process can act on it or an answer can show it.

use super::dialect::{Dialect, Farewell};
use super::job::{End, Job, Leaving, Moment, Pod, PodLife, Stage, Wait};
use super::ledger::Event;
use super::market::Quote;
use super::process::{PodEnd, PodOrder};
use super::world::{CallError, Runner, World};

impl World {
    /// Takes note of a pod that ended.
    ///
    /// # Errors
    /// [`CallError::Ledger`].
    pub fn pod_ended(&mut self, end: &PodEnd, now: Moment) -> Result<(), CallError> {
        let Ok(mut job) = self.take(&end.job_id) else { return Ok(()) };
        note_pod_end(&mut job, end.pod, end.exit, now);
        self.step(&mut job, now);
        self.put_back(job);
        self.commit()
    }

    /// Moves every job on as far as it can be now.
    ///
    /// # Errors
    /// [`CallError::Ledger`].
    pub fn advance(&mut self, now: Moment) -> Result<(), CallError> {
        if self.stopped {
            return Err(CallError::Stopped);
        }
        let quote = self.market.quote(now.at);
        let due: Vec<String> = self
            .active
            .iter()
            .filter(|id| self.jobs.get(*id).is_some_and(|job| self.is_due(job, quote, now)))
            .cloned()
            .collect();
        for id in due {
            let Ok(mut job) = self.take(&id) else { continue };
            self.step(&mut job, now);
            if let (Stage::Running { .. }, Some(bid)) = (job.stage, job.submission.bid)
                && !quote.serves(bid)
            {
                let cause = if quote.stock { "market over bid" } else { "out of stock" };
                let dialect = self.dialects.pick();
                self.begin_release(&mut job, dialect, cause, now);
            }
            self.put_back(job);
        }
        self.carry_out_orders(now);
        self.commit()
    }

    /// Whether time or market can change anything for a job, so that ten thousand jobs at rest
    /// cost nothing.
    fn is_due(&self, job: &Job, quote: Quote, now: Moment) -> bool {
        let served = job.submission.bid.is_none_or(|bid| quote.serves(bid));
        match job.stage {
            Stage::Waiting { on, since } => {
                now.at >= since + self.pace.phase_delay && (on != Wait::Queuing || served)
            }
            Stage::Running { ends } => !served || ends.is_some_and(|end| now.at >= end),
            Stage::Leaving { .. } => true,
            Stage::Ended(_) => false,
        }
    }

    fn carry_out_orders(&mut self, now: Moment) {
        for order in self.market.orders(now.at) {
            let fits = |job: &Job| {
                matches!(job.stage, Stage::Running { .. })
                    && job.submission.bid.is_some()
                    && (order.name_part == "*"
                        || job.submission.display_name.contains(&order.name_part))
            };
            let ids: Vec<String> = self
                .active
                .iter()
                .filter(|id| self.jobs.get(*id).is_some_and(fits))
                .cloned()
                .collect();
            for id in &ids {
                let Ok(mut job) = self.take(id) else { continue };
                let cause = order.witness.as_deref().unwrap_or("script");
                let dialect = self.dialects.pick();
                self.begin_release(&mut job, dialect, cause, now);
                self.put_back(job);
            }
            if !ids.is_empty() {
                self.market.carried_out(&order);
            }
        }
    }

    /// Moves one job on until it has to wait for time, market or processes.
    fn step(&mut self, job: &mut Job, now: Moment) {
        // Creating, Queuing, EnvPreparing, Running, Leaving, Ended: no job takes more steps.
        for _ in 0..6 {
            let before = job.stage;
            match job.stage {
                Stage::Waiting { on, since } if now.at >= since + self.pace.phase_delay => {
                    self.step_waiting(job, on, now);
                }
                Stage::Running { ends: Some(end) } if now.at >= end => {
                    let exit = job.submission.virtual_run().exit;
                    for pod in 0..job.pods.len() {
                        note_pod_end(job, pod, exit, now);
                    }
                    self.settle(job, now);
                }
                Stage::Leaving { kill_at, .. } => {
                    if now.at >= kill_at {
                        kill(job);
                        end_virtual_pods(job, 137, now);
                    }
                    self.settle(job, now);
                }
                Stage::Running { .. } => self.settle(job, now),
                Stage::Waiting { .. } | Stage::Ended(_) => {}
            }
            if job.stage == before {
                break;
            }
        }
    }

    fn step_waiting(&mut self, job: &mut Job, on: Wait, now: Moment) {
        let kind = job.submission.job_type.clone();
        match on {
            Wait::Creating => {
                let stage = Stage::Waiting { on: Wait::Queuing, since: now.at };
                self.enter(job, stage, now, "JobEnqueue", "");
                let line = format!("Normal JobEnqueue {kind} {} is waiting in the queue", job.id);
                job.note_event(now.wall, &line);
            }
            Wait::Queuing => {
                let quote = self.market.quote(now.at);
                if job.submission.bid.is_none_or(|bid| quote.serves(bid)) {
                    let stage = Stage::Waiting { on: Wait::EnvPreparing, since: now.at };
                    self.enter(job, stage, now, "JobPreparing", "");
                    for at in 0..job.pods.len() {
                        job.pods[at].created = Some(now.wall);
                        let line =
                            format!("Normal SuccessfulCreatePod Created pod: {}", job.pods[at].id);
                        job.note_event(now.wall, &line);
                    }
                }
            }
            Wait::EnvPreparing => self.start_pods(job, now),
        }
    }

    fn start_pods(&mut self, job: &mut Job, now: Moment) {
        let run = job.submission.virtual_run();
        let ends = match &self.runner {
            Runner::Virtual => run.duration.map(|duration| now.at + duration),
            Runner::Processes(_) => None,
        };
        // The ledger says Running before the first process can do anything.
        self.enter(job, Stage::Running { ends }, now, "", "");
        if self.commit().is_err() {
            return;
        }
        let world_size = job.pods.len();
        for at in 0..world_size {
            job.pods[at].started = Some(now.wall);
            let life = match &mut self.runner {
                Runner::Virtual => Ok(PodLife::Virtual),
                Runner::Processes(pods) => pods
                    .start(&PodOrder {
                        job_id: &job.id,
                        pod_id: &job.pods[at].id,
                        pod: at,
                        command: &job.submission.command,
                        envs: &job.submission.envs,
                        world_size,
                    })
                    .map(PodLife::Processes),
            };
            match life {
                Ok(life) => job.pods[at].life = life,
                Err(error) => {
                    tracing::warn!(job = %job.id, error = %error, "a pod could not be started");
                    note_pod_end(job, at, 128, now);
                }
            }
        }
        let line = format!("Normal JobRunning {} {} is running.", job.submission.job_type, job.id);
        job.note_event(now.wall, &line);
    }

    pub(super) fn begin_release(
        &mut self,
        job: &mut Job,
        dialect: Dialect,
        cause: &str,
        now: Moment,
    ) {
        let mut entry = self.entry(Event::Release, job, now);
        entry.why = Some(format!("{}: {cause}", dialect.word()));
        self.unwritten.push(entry);
        let (farewell, grace) = (dialect.farewell(), self.pace.grace);
        let kill_at = match farewell {
            Farewell::Kill => now.at,
            Farewell::TermThenKill => now.at + grace,
        };
        let stage = Stage::Leaving { why: Leaving::Release(dialect), kill_at, end_at: now.at };
        self.enter(job, stage, now, "", "");
        if let Some(line) = dialect.event() {
            job.note_event(now.wall, line);
        }
        match farewell {
            Farewell::Kill => kill(job),
            Farewell::TermThenKill => terminate(job, now),
        }
    }

    /// Sees whether the ends of its pods end the job.
    fn settle(&mut self, job: &mut Job, now: Moment) {
        let (why, end_at) = match job.stage {
            Stage::Running { .. } => (None, now.at),
            Stage::Leaving { why, end_at, .. } => (Some(why), end_at),
            Stage::Waiting { .. } | Stage::Ended(_) => return,
        };
        if job.pods.iter().any(Pod::lives) {
            let failed = job.exit().is_some_and(|exit| exit != 0);
            if failed && why.is_none() {
                let stage =
                    Stage::Leaving { why: Leaving::Failure, kill_at: now.at, end_at: now.at };
                self.enter(job, stage, now, "", "");
            }
            return;
        }
        if now.at < end_at {
            return;
        }
        let ended_well = job.exit() == Some(0);
        match why {
            Some(Leaving::Stop) => self.end(job, End::Stopped, None, now),
            None | Some(Leaving::Release(_) | Leaving::Failure) if ended_well => {
                self.end(job, End::Succeeded, None, now);
            }
            Some(Leaving::Release(dialect)) => self.end(job, End::Failed, Some(dialect), now),
            None | Some(Leaving::Failure) => self.end(job, End::Failed, None, now),
        }
    }

    pub(super) fn end(&mut self, job: &mut Job, end: End, released: Option<Dialect>, now: Moment) {
        job.finish(end, released, now.wall);
        let mut entry = self.entry(Event::End, job, now);
        entry.exit = job.exit();
        entry.why = Some(job.reason_code.clone());
        self.unwritten.push(entry);
    }
}

fn note_pod_end(job: &mut Job, pod: usize, exit: i32, now: Moment) {
    let told = match job.stage {
        Stage::Leaving { why: Leaving::Stop | Leaving::Failure, .. } => exit != 137,
        Stage::Leaving { why: Leaving::Release(_), .. }
        | Stage::Running { .. }
        | Stage::Waiting { .. }
        | Stage::Ended(_) => true,
    };
    if let Some(pod) = job.pods.get_mut(pod) {
        pod.life = PodLife::Ended { exit, told };
        pod.finished = Some(now.wall);
    }
}

fn end_virtual_pods(job: &mut Job, exit: i32, now: Moment) {
    for at in 0..job.pods.len() {
        if job.pods[at].life == PodLife::Virtual {
            note_pod_end(job, at, exit, now);
        }
    }
}

/// Tells a job's processes to end.
pub(super) fn terminate(job: &mut Job, now: Moment) {
    for pod in &job.pods {
        if let PodLife::Processes(group) = pod.life {
            group.terminate();
        }
    }
    let exit = job.submission.virtual_run().term_exit;
    end_virtual_pods(job, exit, now);
}

/// Ends a job's processes.
pub(super) fn kill(job: &Job) {
    for pod in &job.pods {
        if let PodLife::Processes(group) = pod.life {
            group.kill();
        }
    }
}
