//! The driver's turns: take work, decide, commit, act, with a crash at each border.

use super::acts::SWEEP;
use super::plan::Plan;
use super::{Coming, ToDaemon, World};
use crate::bugs::{Bug, wall_as_boot};
use crate::clock::{MINUTE, Rng, SECOND};
use crate::faults::{self, Deed};
use crate::invariants::Judge;
use crate::table::Situation;
use spotkeeper::core::job::Job;
use spotkeeper::core::step::{Given, Impossible, Input, Step, step};
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::ids::{JobKey, Mark};
use spotkeeper::model::time::{Now, WallTime};
use spotkeeper::supervisor::{Moment, Turn, Work};

struct Present<'a> {
    now: Now,
    pass_wall: WallTime,
    rng: &'a mut Rng,
    judge: &'a mut Judge,
    bug: Option<Bug>,
    history: &'a mut Option<Vec<String>>,
}

impl Moment for Present<'_> {
    fn now(&self) -> Now {
        self.now
    }

    fn fresh_mark(&mut self) -> Option<Mark> {
        let (one, two) = (self.rng.next().to_le_bytes(), self.rng.next().to_le_bytes());
        let mut bytes = [0; 10];
        bytes[..8].copy_from_slice(&one);
        bytes[8..].copy_from_slice(&two[..2]);
        Some(Mark::from_random(bytes))
    }

    fn decide(
        &mut self,
        job: &Job,
        given: &Given<'_>,
        mut input: Input,
    ) -> Result<Step, Impossible> {
        self.judge.inputs += 1;
        self.judge.table.note(job, &input);
        if let Some(history) = self.history {
            history.push(format!("{:>10} {}: {}", self.now.boot.0, job.key, short(&input)));
        }
        let told = input.clone();
        let Some(bug) = self.bug else {
            let step = step(job, given, input)?;
            self.judge.decided(job, given, &told, &step);
            return Ok(step);
        };
        let mut given = given.clone();
        let Now { wall, boot } = given.now;
        bug.bend_given(&mut given, wall_as_boot(wall));
        bug.bend_input(&mut input, wall_as_boot(self.pass_wall));
        let mut step = step(job, &given, input)?;
        bug.bend_step(job, &told, &mut step);
        bug.bend_wake(&mut step, given.now.boot, boot);
        self.judge.decided(job, &given, &told, &step);
        Ok(step)
    }
}

fn short(input: &Input) -> String {
    match input {
        Input::Seen { cloud, past, .. } => {
            format!("Seen {} {} {past:?}", cloud.id, cloud.status.word())
        }
        Input::Looked(Look::Done(f)) => {
            format!("Looked, chosen {:?}", f.chosen.as_ref().and_then(|p| p.step))
        }
        Input::Swept(pass) => format!("Swept, complete {}", pass.complete),
        Input::Logs { ended, pods } => format!("Logs of {}: {pods:?}", ended.attempt.no),
        other => format!("{other:?}"),
    }
}

impl World {
    /// Works through everything that is pending: decide, commit, act, with a crash at each border.
    pub(super) fn turns(&mut self) {
        while !self.pending.is_empty() && !self.down && self.judge.broken.is_none() {
            if self.stormy() && self.rng.rarely(2) {
                return self.ends(None, None);
            }
            let mut turn = Turn::default();
            let mut present = Present {
                now: self.clock.now(),
                pass_wall: self.pass_wall,
                rng: &mut self.rng,
                judge: &mut self.judge,
                bug: self.bug,
                history: &mut self.history,
            };
            let filled = turn.fill(&mut self.book, &mut self.log, &mut self.pending, &mut present);
            filled.expect("records that fit");
            self.record(&turn);
            if self.bug == Some(Bug::EffectBeforeCommit) {
                for (key, effect) in std::mem::take(&mut turn.effects) {
                    self.act(&key, effect);
                }
            }
            if !turn.batch.is_empty() {
                let wrong = if self.stormy() { faults::commit(&mut self.rng) } else { None };
                let batch = std::mem::take(&mut turn.batch);
                if self.disk.commit(batch, wrong, &mut self.rng).is_err() {
                    return self.ends(Some(turn), wrong);
                }
                self.judge.told(&turn.events);
            }
            let effects = turn.settle(&mut self.book);
            if self.stormy() && self.rng.rarely(3) {
                return self.ends(None, None);
            }
            for (key, effect) in effects {
                self.act(&key, effect);
                if self.stormy() && self.rng.rarely(4) {
                    return self.ends(None, None);
                }
            }
            self.check();
        }
        self.seize();
        self.set_wake();
    }

    pub(super) fn record(&mut self, turn: &Turn) {
        let Some(history) = &mut self.history else { return };
        for stored in &turn.events {
            let (word, text) = (stored.event.word, &stored.event.text);
            history.push(format!("{:>10}   {} {word:?} {text}", "", stored.job));
        }
    }

    pub(super) fn set_wake(&mut self) {
        if self.down {
            return;
        }
        if let Some(next) = self.book.wakes.values().map(|at| at.0).min() {
            let next = next.clamp(self.clock.ms, self.clock.ms + 30 * MINUTE);
            if self.wake_set <= self.clock.ms || next < self.wake_set {
                self.wake_set = next;
                self.at(next, Coming::Daemon(self.process, ToDaemon::Wake));
            }
        }
    }

    pub(super) fn wake(&mut self) {
        let now = self.clock.now().boot;
        let due = self.book.wakes.iter().filter(|(_, at)| **at <= now);
        let keys: Vec<JobKey> = due.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.book.wakes.remove(&key);
            self.pending.push_back(Work::Input(key, Input::Tick));
        }
    }

    pub(super) fn daemon(&mut self, what: ToDaemon) {
        match what {
            ToDaemon::Begin => self.begin(),
            ToDaemon::Input(key, input) => {
                if let Input::Sent { no, .. } = &input {
                    self.judge.sending.remove(&(key.clone(), *no));
                }
                self.pending.push_back(Work::Input(key, input));
            }
            ToDaemon::Look(key, number) => self.look(key, number),
            ToDaemon::Sweep(number) if number == self.next_sweep => self.sweep(),
            ToDaemon::Sweep(_) => {}
            ToDaemon::Passed(swept, wall) => {
                self.pass_wall = wall;
                self.book.take_pass(*swept, self.clock.now(), &mut self.pending);
                self.sweep_in(if self.rung { 200 } else { SWEEP });
            }
            ToDaemon::Wake => {}
        }
        self.wake();
        if self.clock.ms < self.busy_until {
            return;
        }
        if self.stormy() && self.rng.chance(4) {
            // The disk is slow: what comes meanwhile waits in the queue.
            let long = self.rng.below(4 * SECOND);
            self.busy_until = self.clock.ms + long;
            return self.tell(long, ToDaemon::Wake);
        }
        self.turns();
    }

    /// Takes an opportunity that was waited for.
    fn seize(&mut self) {
        if !self.stormy() || self.down {
            return;
        }
        let (plans, jobs) = (&self.plans, &self.book.jobs);
        let found = self.opportunities.iter().enumerate().find_map(|(n, one)| {
            let is_there = |plan: &Plan| {
                jobs.get(&plan.key).is_some_and(|job| Situation::of(job) == one.situation)
                    && (one.deed != Deed::Hurry || self.on_its_way(&plan.key).is_some())
            };
            Some((n, plans.iter().position(is_there)?))
        });
        let Some((n, job)) = found else { return };
        let deed = self.opportunities.swap_remove(n).deed;
        let after = if self.rng.chance(50) { 0 } else { self.rng.below(2 * SECOND) };
        self.note(|| format!("an opportunity, for job {job}: {deed:?}"));
        if let Some(fault) = self.deed(job, deed) {
            self.at(self.clock.ms + after, Coming::Fault(fault));
        }
    }
}
