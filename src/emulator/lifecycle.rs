//! How a job moves on: from its submission over the market to its end.
//!
//! A step happens when time, the market or the end of a pod allows it. What a step changes is in
//! the ledger before a process can act on it or an answer can show it.

use super::dialect::{Dialect, Farewell, LastWord, gone};
use super::job::{End, Job, Leaving, Moment, Pod, PodLife, Stage, Wait};
use super::ledger::Event;
use super::market::Quote;
use super::process::{PodEnd, PodOrder};
use super::submission::Hardware;
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
        let due = self.in_order(|world, job| world.is_due(job, quote, now));
        for id in due {
            let Ok(mut job) = self.take(&id) else { continue };
            self.step(&mut job, now);
            if let (Stage::Running { .. }, Some(bid)) = (job.stage, job.submission.bid)
                && !quote.serves(bid, job.pods.len())
            {
                let has = quote.has(job.pods.len());
                let cause = if has { "market over bid" } else { "out of stock" };
                let dialect = self.dialects.pick();
                self.begin_release(&mut job, dialect, cause, now);
            }
            self.put_back(job);
        }
        self.carry_out_orders(now);
        self.commit()
    }

    /// The jobs that have not ended and are `wanted`, the oldest first, so that a seed gives the
    /// same dialects to the same jobs although their ids are random.
    fn in_order(&self, wanted: impl Fn(&Self, &Job) -> bool) -> Vec<String> {
        let jobs = self.active.iter().filter_map(|id| self.jobs.get(id));
        let mut found: Vec<&Job> = jobs.filter(|job| wanted(self, job)).collect();
        found.sort_by_key(|job| job.number);
        found.into_iter().map(|job| job.id.clone()).collect()
    }

    /// Whether time or market can change anything for a job, so that ten thousand jobs at rest
    /// cost nothing.
    fn is_due(&self, job: &Job, quote: Quote, now: Moment) -> bool {
        let served = is_served(job, quote);
        match job.stage {
            Stage::Waiting { on, since } => {
                let waits_for_market = match on {
                    Wait::Queuing => job.submission.hardware == Hardware::General,
                    Wait::Bidding => true,
                    Wait::Creating | Wait::Restarting | Wait::EnvPreparing => false,
                };
                now.at >= since + self.pace.phase_delay && (served || !waits_for_market)
            }
            Stage::Running { ends } => !served || ends.is_some_and(|end| now.at >= end),
            Stage::Reserving { until, .. } => now.at >= until,
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
            let ids = self.in_order(|_, job| fits(job));
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
        // Creating, Queuing, Bidding, EnvPreparing, Running, Leaving, Ended; one that is restarted
        // goes on at the next tick.
        for _ in 0..7 {
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
                Stage::Reserving { end, until } if now.at >= until => {
                    self.end(job, end, None, now);
                }
                Stage::Waiting { .. } | Stage::Reserving { .. } | Stage::Ended(_) => {}
            }
            if job.stage == before {
                break;
            }
        }
    }

    fn step_waiting(&mut self, job: &mut Job, on: Wait, now: Moment) {
        let bids = job.submission.bid.is_some() && job.submission.hardware == Hardware::Lingjun;
        match on {
            Wait::Restarting if bids => self.wait(job, Wait::Bidding, "", now),
            Wait::Creating | Wait::Restarting => {
                self.wait(job, Wait::Queuing, "JobEnqueue", now);
                let (kind, id) = (&job.submission.job_type, &job.id);
                let line = format!("Normal JobEnqueue {kind} {id} is waiting in the queue");
                job.note_event(now.wall, &line);
            }
            Wait::Queuing if bids => self.wait(job, Wait::Bidding, "", now),
            Wait::Queuing | Wait::Bidding => {
                if is_served(job, self.market.quote(now.at)) {
                    self.wait(job, Wait::EnvPreparing, "JobPreparing", now);
                    create_pods(job, now);
                }
            }
            Wait::EnvPreparing => self.start_pods(job, now),
        }
    }

    fn wait(&mut self, job: &mut Job, on: Wait, code: &str, now: Moment) {
        self.enter(job, Stage::Waiting { on, since: now.at }, now, code, "");
    }

    fn start_pods(&mut self, job: &mut Job, now: Moment) {
        let run = job.submission.virtual_run();
        let ends = match &self.runner {
            Runner::Virtual => run.duration.map(|duration| now.at + duration),
            Runner::Processes(_) => None,
        };
        self.enter(job, Stage::Running { ends }, now, "", "");
        if let Some(restart) = job.open_restart() {
            restart.ran_again = Some(now.wall);
        }
        // The ledger says Running before the first process can do anything.
        if matches!(self.runner, Runner::Processes(_)) && self.commit().is_err() {
            return;
        }
        let world_size = job.pods.len();
        for at in 0..world_size {
            job.pods[at].started = Some(now.wall);
            let place = job.pods[at].place();
            let life = match &mut self.runner {
                Runner::Virtual => Ok(PodLife::Virtual),
                Runner::Processes(pods) => pods
                    .start(&PodOrder {
                        job_id: &job.id,
                        place: &place,
                        pod: at,
                        command: &job.submission.command,
                        envs: &job.submission.envs,
                        world_size,
                        mounts: &job.mounts,
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
            Farewell::TermThenKill | Farewell::KillOne => now.at + grace,
        };
        let stage = Stage::Leaving { why: Leaving::Release(dialect), kill_at, end_at: now.at };
        self.enter(job, stage, now, "", "");
        if let Some(line) = dialect.event() {
            job.note_event(now.wall, line);
        }
        match farewell {
            Farewell::Kill => kill(job),
            Farewell::TermThenKill => terminate(job, now),
            Farewell::KillOne => {
                self.lose_a_peer(job);
                terminate(job, now);
            }
        }
    }

    /// Kills the pod whose machine is gone, and lets the others say what they would of it.
    fn lose_a_peer(&self, job: &Job) {
        let lost = gone(job.pods.len());
        for (at, pod) in job.pods.iter().enumerate() {
            let PodLife::Processes(group) = pod.life else { continue };
            if at == lost {
                group.kill();
            } else if let Runner::Processes(pods) = &self.runner {
                let line = format!(
                    "Traceback (most recent call last):\nRuntimeError: [Rank {at}] \
                     NCCL communicator was aborted: connection closed by peer, rank {lost}"
                );
                pods.note(&job.id, &pod.place(), &line);
            }
        }
    }

    /// Sees whether the ends of its pods end the job.
    fn settle(&mut self, job: &mut Job, now: Moment) {
        let (why, end_at) = match job.stage {
            Stage::Running { .. } => (None, now.at),
            Stage::Leaving { why, end_at, .. } => (Some(why), end_at),
            Stage::Waiting { .. } | Stage::Reserving { .. } | Stage::Ended(_) => return,
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
        let released = match why {
            Some(Leaving::Stop) => return self.end(job, End::Stopped, None, now),
            Some(Leaving::Release(dialect)) => Some(dialect),
            None | Some(Leaving::Failure) => None,
        };
        if job.exit() == Some(0) {
            self.conclude(job, End::Succeeded, released, now);
        } else if job.restarts_after(released) {
            self.restart(job, released, now);
        } else {
            self.conclude(job, End::Failed, released, now);
        }
    }

    /// Ends a job, or keeps its machine first if that is still there and was asked for.
    fn conclude(&mut self, job: &mut Job, end: End, released: Option<Dialect>, now: Moment) {
        let minutes = job.submission.reserve.minutes(end);
        match released {
            None if minutes > 0 => {
                let before = job.stage.word();
                job.reserve(end, now.at + self.pace.minute.saturating_mul(minutes), now.wall);
                self.note_status(job, before, now);
            }
            // A success is no word of the dialect: the trainer ended well in time.
            Some(_) if end == End::Succeeded => self.end(job, end, None, now),
            Some(dialect) if dialect.last_word() == LastWord::Stopped => {
                self.end(job, End::Stopped, released, now);
            }
            None | Some(_) => self.end(job, end, released, now),
        }
    }

    /// The platform runs the command again under the same id.
    fn restart(&mut self, job: &mut Job, released: Option<Dialect>, now: Moment) {
        job.replace_pods(released, now.wall);
        self.wait(job, Wait::Restarting, "JobRestarting", now);
        let (kind, id, times) = (&job.submission.job_type, &job.id, job.restart_times());
        let line = format!("Warning JobRestarting {kind} {id} is restarting, {times}");
        job.note_event(now.wall, &line);
    }

    pub(super) fn end(&mut self, job: &mut Job, end: End, released: Option<Dialect>, now: Moment) {
        job.finish(end, released, now.wall);
        let mut entry = self.entry(Event::End, job, now);
        entry.exit = job.exit();
        entry.why = Some(job.reason_code.clone());
        self.unwritten.push(entry);
    }
}

fn is_served(job: &Job, quote: Quote) -> bool {
    job.submission.bid.is_none_or(|bid| quote.serves(bid, job.pods.len()))
}

fn create_pods(job: &mut Job, now: Moment) {
    for at in 0..job.pods.len() {
        let pod = &mut job.pods[at];
        pod.created = pod.created.or(Some(now.wall));
        let line = format!("Normal SuccessfulCreatePod Created pod: {}", pod.id);
        job.note_event(now.wall, &line);
    }
}

fn note_pod_end(job: &mut Job, at: usize, exit: i32, now: Moment) {
    let count = job.pods.len();
    let life = match job.stage {
        Stage::Leaving { why: Leaving::Stop | Leaving::Failure, .. } => {
            PodLife::Ended { exit, told: exit != 137 }
        }
        Stage::Leaving { why: Leaving::Release(dialect), .. } => {
            match dialect.shown_exit(at, count, exit) {
                Some(exit) => PodLife::Ended { exit, told: true },
                None => PodLife::Gone,
            }
        }
        Stage::Running { .. }
        | Stage::Waiting { .. }
        | Stage::Reserving { .. }
        | Stage::Ended(_) => PodLife::Ended { exit, told: true },
    };
    // What becomes of one that is lost already shows nowhere.
    if let Some(pod) = job.pods.get_mut(at).filter(|pod| pod.life != PodLife::Lost) {
        pod.life = life;
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
