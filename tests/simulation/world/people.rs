//! What people do, to jobs, job files and in the console, and what happens to the machine.

use super::sending::by_hand;
use super::{Coming, ToDaemon, World};
use crate::clock::{DAY, HOUR, MINUTE, SECOND};
use crate::cloud::{Counter, Origin, Remote, Sent, Truth};
use crate::faults::{Deed, Edit, Fault};
use crate::table::Situation;
use spotkeeper::core::job::{Attempt, BlockKind, Job, Source, Wanted};
use spotkeeper::core::step::{Act, Input};
use spotkeeper::dlc::wire::{display_name, parse_display_name};
use spotkeeper::model::checkpoint::ResumeFrom;
use spotkeeper::model::cloud::Status;
use spotkeeper::model::ids::{CloudId, JobKey, Mark, Owner};
use spotkeeper::supervisor::Work;
use std::time::Duration;

impl World {
    pub(super) fn fault(&mut self, fault: Fault) {
        self.note(|| format!("{fault:?}"));
        match fault {
            Fault::Crash { .. } if self.down => {}
            Fault::Crash { wiped } => self.crash(wiped),
            Fault::Suspend(long) => {
                self.clock.asleep_until = self.clock.asleep_until.max(self.clock.ms + long);
            }
            Fault::ClockStep(by) => {
                self.clock.step(by);
                if self.rng.chance(50) {
                    self.no_date_until = self.clock.ms + 20 * MINUTE;
                }
            }
            Fault::Act(..) if self.down => {
                self.at(self.clock.ms + MINUTE, Coming::Fault(fault));
            }
            Fault::Act(job, act) => self.person_asks(job, act),
            Fault::Edit(job, edit) => self.edit(job, edit),
            Fault::Targets { acceptance, max_parallel } => {
                for target in self.targets.values_mut() {
                    target.acceptance = Duration::from_millis(acceptance);
                    target.max_parallel = max_parallel;
                }
                self.book.targets.clone_from(&self.targets);
            }
            Fault::Copy => {
                if let Some(n) = self.one_of_ours() {
                    self.copy(n, false);
                }
            }
            Fault::Foreign => self.foreign(),
            Fault::Vanish(back) => {
                if let Some(n) = self.one_of_ours() {
                    self.vanish(n, back);
                }
            }
            Fault::StopByOther => {
                if let Some(n) = self.one_of_ours() {
                    self.stop(n);
                }
            }
            Fault::Adopt(_) if self.down => {}
            Fault::Adopt(job) => self.adopt(job),
            Fault::MarketCloses(until) => self.market_opens = self.market_opens.max(until),
            Fault::Backup if self.down => {}
            Fault::Backup => self.disk.backup(),
        }
    }

    pub(super) fn person_asks(&mut self, job: usize, act: Act) {
        let key = self.plans[job].key.clone();
        if !self.book.jobs.contains_key(&key) {
            return self.at(self.clock.ms + MINUTE, Coming::Fault(Fault::Act(job, act)));
        }
        self.ever_cancelled |= act == Act::Cancel;
        let asked = self.process;
        self.pending.push_back(Work::Input(key, Input::Operator(act)));
        self.turns();
        if self.process != asked {
            // A crash before the answer: the person asks again.
            self.at(self.clock.ms + MINUTE, Coming::Fault(Fault::Act(job, act)));
        }
    }

    /// A job file changes, goes or comes back.
    pub(super) fn edit(&mut self, job: usize, edit: Edit) {
        let plan = &mut self.plans[job];
        match edit {
            Edit::Spec => plan.current = 1 - plan.current,
            Edit::Gone => plan.has_file = false,
            Edit::Back => plan.has_file = true,
        }
        self.at(self.clock.ms, Coming::Files(job));
    }

    /// A job file, or its absence, is compared with what is on record.
    pub(super) fn file(&mut self, job: usize) {
        if self.down {
            return;
        }
        let plan = &self.plans[job];
        let (key, digest) = (plan.key.clone(), plan.specs[plan.current].0.clone());
        let input = |input| Work::Input(key.clone(), input);
        match self.book.jobs.get(&key) {
            None if plan.has_file => {
                self.pending.push_back(Work::Accept(Box::new(Job::new(key, digest))));
            }
            None => {}
            Some(_) if plan.has_file => {
                self.pending.push_back(input(Input::Spec(digest)));
                self.pending.push_back(input(Input::File(Source::File)));
            }
            Some(job) if job.goes_with_its_file() => self.pending.push_back(Work::Drop(key)),
            Some(_) => self.pending.push_back(input(Input::File(Source::Unmanaged))),
        }
        self.turns();
    }

    /// What an opportunity comes to; `None` for what was done at once.
    pub(super) fn deed(&mut self, job: usize, deed: Deed) -> Option<Fault> {
        let alive = |r: &Remote| r.job == job && r.is_alive() && r.origin.writes();
        match deed {
            Deed::Act(act) => Some(Fault::Act(job, act)),
            Deed::Edit(edit) => {
                let back = self.clock.ms + MINUTE + self.rng.below(20 * MINUTE);
                self.at(back, Coming::Fault(Fault::Edit(job, Edit::Back)));
                Some(Fault::Edit(job, edit))
            }
            Deed::Crash => Some(Fault::Crash { wiped: false }),
            Deed::StopByOther => {
                let n = self.remotes.iter().position(alive)?;
                self.stop(n);
                None
            }
            Deed::Adopt => Some(Fault::Adopt(job)),
            Deed::Hurry => {
                let key = self.plans[job].key.clone();
                while let Some(at) = self.on_its_way(&key) {
                    let what = self.queue.remove(&at).expect("it is there");
                    self.at(self.clock.ms, what);
                }
                None
            }
            Deed::Vanish => {
                let n = self.remotes.iter().position(alive)?;
                let back = MINUTE + self.rng.below(HOUR);
                self.vanish(n, Some(back));
                None
            }
        }
    }

    /// The next answer that this process awaits for a job, and that is not due yet.
    pub(super) fn on_its_way(&self, key: &JobKey) -> Option<(u64, u64)> {
        let later = self.queue.range((self.clock.ms + 1, 0)..);
        let mut for_it = later.filter(|(_, coming)| match coming {
            Coming::Daemon(process, ToDaemon::Input(of, _) | ToDaemon::Look(of, _)) => {
                *process == self.process && of == key
            }
            _ => false,
        });
        for_it.next().map(|(at, _)| *at)
    }

    /// A person has a job of their own taken for the running attempt. Where that is refused they stop
    /// it again.
    fn adopt(&mut self, job: usize) {
        let key = self.plans[job].key.clone();
        if !self.book.jobs.contains_key(&key) {
            return;
        }
        let (n, now) = (self.remotes.len(), self.clock.ms);
        let id = CloudId::new(format!("dlc{n}")).expect("an id");
        let cloud = by_hand(&id, &self.plans[job], self.clock.server());
        let whose = (job, Origin::Hand, self.wipes);
        self.remotes.push(Remote::new(whose, cloud.clone(), 0, (now, 0), Counter::Hidden));
        self.remotes[n].sent = Sent { at: now, unrecorded: Vec::new() };
        self.at(now + MINUTE, Coming::Remote(n));
        let (cloud, place) = (Box::new(cloud), self.place.clone());
        self.pending.push_back(Work::Input(key.clone(), Input::Adopt { cloud, place, mark: None }));
        self.turns();
        let job = self.book.jobs.get(&key);
        if !job.is_some_and(|job| job.open.iter().any(|a| a.id() == Some(&id))) {
            self.stop(n);
        }
    }

    /// The cloud forgets a job: for a while, or because a person deleted it.
    fn vanish(&mut self, n: usize, back: Option<u64>) {
        let open = self.book.jobs.values().flat_map(|job| &job.open);
        let mut ids = open.filter_map(Attempt::id);
        if self.down || !ids.any(|id| *id == self.remotes[n].cloud.id) {
            // What nobody saw yet could only be taken for what was never made.
            return;
        }
        let stands = self.rng.chance(60);
        let (now, remote) = (self.clock.ms, &mut self.remotes[n]);
        if let (true, Some(after)) = (stands, back) {
            // Its machine is cut off, and goes on later.
            remote.stands_until = now + after + MINUTE;
        }
        // What is not shown may be told twice, or not at all.
        remote.flapped.set(true);
        self.judge.vanished.insert(remote.cloud.id.clone());
        match back {
            Some(after) => remote.hide(now, now + after),
            None => remote.delete(now),
        }
        if remote.truth != Truth::GoesOn {
            self.judge.truths.insert(remote.cloud.id.clone(), remote.truth);
        }
    }

    /// Another installation makes a job of its own from one of ours, name and all.
    fn foreign(&mut self) {
        let Some(n) = self.one_of_ours() else { return };
        let original = &self.remotes[n];
        let (theirs, mark) = (Owner::new("k3f9q2"), Mark::from_random([7; 10]));
        let theirs = theirs.expect("an owner");
        let mut cloud = original.cloud.clone();
        cloud.id = CloudId::new(format!("dlc{}", self.remotes.len())).expect("an id");
        cloud.display_name = display_name(&cloud.display_name, &theirs, &mark);
        cloud.stamp.name = parse_display_name(&cloud.display_name);
        cloud.stamp.tag = Some((theirs.clone(), mark.clone()));
        cloud.stamp.env = Some((theirs, mark));
        (cloud.status, cloud.created) = (Status::Creating, Some(self.clock.server()));
        (cloud.running, cloud.restarts) = (None, 0);
        let (job, made) = (original.job, (self.clock.ms, 0));
        let whose = (job, Origin::Foreign, self.wipes);
        self.remotes.push(Remote::new(whose, cloud, 0, made, Counter::Hidden));
        self.at(self.clock.ms + MINUTE, Coming::Remote(self.remotes.len() - 1));
    }

    /// A person copies one of our jobs in the console: with its stamps, perhaps with its very name.
    pub(super) fn copy(&mut self, n: usize, by_console: bool) {
        let original = &self.remotes[n];
        let mut cloud = original.cloud.clone();
        cloud.id = CloudId::new(format!("dlc{}", self.remotes.len())).expect("an id");
        let old = cloud.created.map_or(Duration::ZERO, |made| self.clock.server().since(made));
        if by_console || old < Duration::from_millis(10 * MINUTE) || self.rng.chance(50) {
            cloud.display_name = format!("{}_copy", cloud.display_name);
            cloud.stamp.name = parse_display_name(&cloud.display_name);
        }
        if !by_console && self.rng.chance(50) {
            cloud.user_id = Some("u2".to_owned());
        }
        cloud.status = Status::Creating;
        cloud.created = Some(self.clock.server());
        cloud.running = None;
        cloud.restarts = 0;
        let job = original.job;
        let made = (self.clock.ms, 0);
        let remote = Remote::new((job, Origin::Copy, self.wipes), cloud, 0, made, Counter::Hidden);
        self.remotes.push(remote);
        self.at(self.clock.ms + MINUTE, Coming::Remote(self.remotes.len() - 1));
    }

    /// After the storm a person lets go on what only a person can. Answers whether all is over.
    pub(super) fn person(&mut self) -> bool {
        if self.down {
            return false;
        }
        let unheard = self.queue.values().any(|coming| {
            matches!(
                coming,
                Coming::Request(_)
                    | Coming::Fault(Fault::Act(..) | Fault::Edit(..))
                    | Coming::Files(_)
            )
        });
        let keys: Vec<JobKey> = self.plans.iter().map(|plan| plan.key.clone()).collect();
        let mut over = !unheard && self.clock.ms >= self.clock.asleep_until;
        self.stop_copies_that_wait();
        let copies = self.remotes.iter().any(|r| r.origin == Origin::Copy && r.is_alive());
        let hidden = self.remotes.iter().any(|r| r.is_alive() && !r.is_known(self.clock.ms));
        for (n, key) in keys.iter().enumerate() {
            let Some(job) = self.book.jobs.get(key) else {
                over = false;
                continue;
            };
            over &= job.is_over();
            let stopped = job.block.as_ref().is_some_and(|b| b.kind == BlockKind::StoppedByOther);
            let act = if stopped && self.ever_cancelled && self.wipes > 0 {
                // The cancel was lost with the state folder: it is said again.
                Some(Act::Cancel)
            } else if job.block.as_ref().is_some_and(|b| b.kind == BlockKind::OverlappedCheckpoints)
            {
                Some(Act::RetryFrom(ResumeFrom::Fresh))
            } else if job.block.is_some()
                || (!job.copies.is_empty() && !copies)
                // Nobody can tell whether it runs; in the end a person looks at the machines.
                || (!hidden && Situation::of(job) == Situation::Missing)
            {
                Some(Act::Retry)
            } else if job.wanted == Wanted::Hold {
                Some(Act::Resume)
            } else {
                None
            };
            if let Some(act) = act.filter(|_| !job.is_over()) {
                over = false;
                self.person_asks(n, act);
            }
        }
        if !over && self.wipes > 0 && self.rng.chance(10) {
            // With a new store an own job may look like another writer's: a person starts it anew.
            self.ends(None, None);
            return false;
        }
        over && self.remotes.iter().all(|r| !r.origin.writes() || !r.is_alive())
    }

    /// Whoever made a copy that gets no machine gives it up: nobody raises its bid.
    fn stop_copies_that_wait(&mut self) {
        if self.clock.ms < self.calm_from.max(self.market_opens) + DAY {
            return;
        }
        let waits =
            |r: &Remote| r.origin == Origin::Copy && r.is_alive() && r.cloud.running.is_none();
        let waiting: Vec<usize> =
            (0..self.remotes.len()).filter(|n| waits(&self.remotes[*n])).collect();
        for n in waiting {
            self.stop(n);
        }
    }

    pub(super) fn one_of_ours(&mut self) -> Option<usize> {
        let now = self.clock.ms;
        let fits = |r: &Remote| r.is_alive() && r.origin == Origin::Ours && r.is_visible(now);
        let ours: Vec<usize> =
            (0..self.remotes.len()).filter(|n| fits(&self.remotes[*n])).collect();
        (!ours.is_empty()).then(|| self.rng.one_of(&ours))
    }

    pub(super) fn stop(&mut self, n: usize) {
        let takes = SECOND + self.rng.below(40 * SECOND);
        if let Some(when) = self.remotes[n].stop(self.clock.ms, takes) {
            self.at(when, Coming::Remote(n));
        }
    }
}
