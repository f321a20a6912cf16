//! What a turn starts once it is durable: stops, looks into the bucket, logs, passes.

use super::{Coming, ToDaemon, World};
use crate::clock::{MINUTE, SECOND};
use crate::cloud::{self, Origin, Weather};
use crate::faults::{self, Deed};
use crate::invariants::{COPY, HANG, INTENT};
use spotkeeper::core::identity::mark_of;
use spotkeeper::core::job::{EndedAttempt, Job, StopWhy};
use spotkeeper::core::step::{Effect, Input, Pass};
use spotkeeper::core::verdict::LogEnd;
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::cloud::CloudJob;
use spotkeeper::model::hang::PodsLook;
use spotkeeper::model::ids::{CloudId, JobKey};
use spotkeeper::supervisor::{Swept, Work, has_news};

/// From the end of a pass to the next one.
pub(super) const SWEEP: u64 = 40 * SECOND;

impl World {
    pub(super) fn act(&mut self, key: &JobKey, effect: Effect) {
        match effect {
            Effect::Create(no) => self.send(key, no),
            Effect::Stop { id, no } => {
                let now = self.clock.ms;
                let attempts = self.book.jobs.get(key).map_or(&[][..], |job| &job.open);
                let why = attempts.iter().find(|a| a.no == no).and_then(|a| a.stop);
                let Some(remote) = self.remotes.iter_mut().find(|r| r.cloud.id == id) else {
                    return self.judge.broke(COPY, format!("a stop of {id}, which is not there"));
                };
                if remote.origin == Origin::Copy && (self.wipes == 0 || remote.has_copys_name()) {
                    self.judge.broke(COPY, format!("{id} was stopped"));
                }
                if why == Some(StopWhy::Hang) {
                    self.judge.hung = true;
                    if !remote.hung_lately(now, faults::STALE_LIMIT) {
                        self.judge.broke(HANG, format!("{id} goes on"));
                    }
                }
                remote.stop_asked = true;
                let after = faults::travel(&mut self.rng);
                if !(self.stormy() && self.rng.chance(30)) {
                    self.at(self.clock.ms + after, Coming::StopArrives(id));
                }
            }
            Effect::Look => {
                self.last_look += 1;
                self.looks.insert(key.clone(), self.last_look);
                self.judge.looking.insert(key.clone());
                let after = self.long_travel();
                self.tell(after, ToDaemon::Look(key.clone(), self.last_look));
            }
            Effect::Watch(no) => {
                let plan = self.plans.iter().find(|plan| plan.key == *key).expect("a plan");
                let over = self.book.jobs.get(key).map(Job::pass_over).unwrap_or_default();
                let look = if self.stormy() && self.rng.chance(12) {
                    Look::CouldNotLook { why: "503".to_owned(), needs_person: false }
                } else {
                    let (prefix, now) = (plan.prefix, self.clock.ms);
                    Look::Done(self.bucket.findings(prefix, now, &over, self.bug))
                };
                let after = self.long_travel();
                self.tell(after, ToDaemon::Input(key.clone(), Input::Watched { no, look }));
            }
            Effect::LookAtPods { no, id } => {
                let remote = self.remotes.iter().find(|r| r.cloud.id == id);
                let remote = remote.filter(|r| r.is_known(self.clock.ms));
                let look = match remote {
                    Some(remote) if !(self.stormy() && self.rng.chance(12)) => remote.pods(),
                    Some(_) | None => PodsLook::CouldNotLook { why: "503".to_owned() },
                };
                let after = self.long_travel();
                self.tell(after, ToDaemon::Input(key.clone(), Input::PodsLooked { no, look }));
            }
            Effect::RewriteTracker(_) => {
                self.judge
                    .broke(INTENT, format!("{key}: a tracker that nobody allowed to rewrite"));
            }
            Effect::Logs { ended, pods } => {
                let pods = self.logs(&ended, pods.len());
                let input = Input::Logs { ended, pods };
                let after = self.long_travel();
                self.tell(after, ToDaemon::Input(key.clone(), input));
            }
            // A pass that is under way comes to its end first.
            Effect::SweepSoon(_) if self.sweeping => self.rung = true,
            Effect::SweepSoon(_) => self.sweep_in(500),
        }
    }

    fn long_travel(&mut self) -> u64 {
        let stormy = self.stormy();
        faults::long_travel(&mut self.rng, stormy).max(self.lateness())
    }

    /// While an opportunity waits for an answer that comes in another situation, some come late.
    pub(super) fn lateness(&mut self) -> u64 {
        let is_wanted = self.opportunities.iter().any(|one| one.deed == Deed::Hurry);
        if self.stormy() && is_wanted { faults::lateness(&mut self.rng) } else { 0 }
    }

    pub(super) fn logs(&mut self, ended: &EndedAttempt, pods: usize) -> Vec<LogEnd> {
        let truth = ended.id.as_ref().and_then(|id| self.judge.truths.get(id)).copied();
        let silent = self.rng.chance(30);
        (0..pods)
            .map(|n| match truth {
                _ if silent => LogEnd::Silent,
                Some(cloud::Truth::Released | cloud::Truth::Stopped) if n == 0 => {
                    LogEnd::FromOutside
                }
                _ => LogEnd::ByItself(1),
            })
            .collect()
    }

    pub(super) fn look(&mut self, key: JobKey, number: u64) {
        if self.looks.get(&key) != Some(&number) {
            return;
        }
        self.looks.remove(&key);
        self.judge.looking.remove(&key);
        let plan = self.plans.iter().find(|plan| plan.key == key).expect("a plan");
        let look = if self.stormy() && self.rng.chance(12) {
            Look::CouldNotLook { why: "503".to_owned(), needs_person: self.rng.chance(30) }
        } else {
            let now = self.clock.ms;
            let over = self.book.jobs.get(&key).map(Job::pass_over).unwrap_or_default();
            let newest = self.bucket.newest_whole(plan.prefix, now, &over);
            self.judge.shown.insert(key.clone(), newest);
            Look::Done(self.bucket.findings(plan.prefix, now, &over, self.bug))
        };
        self.pending.push_back(Work::Input(key, Input::Looked(look)));
    }

    /// The next pass; one that was planned for later is not made.
    pub(super) fn sweep_in(&mut self, after: u64) {
        (self.sweeping, self.rung) = (false, false);
        self.next_sweep += 1;
        self.tell(after, ToDaemon::Sweep(self.next_sweep));
    }

    pub(super) fn sweep(&mut self) {
        self.sweeping = true;
        let started = self.clock.now();
        let known = self.book.known_at(&self.place, self.clock.now().wall);
        let start = self.lookback.start(started, known.oldest);
        let stormy = self.stormy();
        let weather = if stormy {
            faults::weather(&mut self.rng, &mut self.spell, self.clock.ms)
        } else {
            Weather::Fair
        };
        let (owner, bug, now) = (self.owner.clone(), self.bug, self.clock.ms);
        let with = (&mut self.rng, &owner, bug);
        let listed = cloud::list(&mut self.remotes, start, now, (weather, stormy), with);
        let mut pass = Pass {
            place: self.place.clone(),
            started: started.boot,
            complete: false,
            same_caller: !(stormy && self.rng.chance(2)),
            server: None,
        };
        let (mut jobs, mut unlisted, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        let mut owner_seen = false;
        if let Some(listed) = listed {
            pass.complete = listed.complete();
            if now >= self.no_date_until {
                pass.server = Some(self.clock.server());
                self.clock.heard();
            }
            if pass.complete {
                self.lookback.note_complete();
            }
            let ours = listed.jobs.into_iter().filter(|job| mark_of(job, &owner).is_some());
            let ours: Vec<CloudJob> = ours.collect();
            if pass.complete {
                let shown = |id: &CloudId| ours.iter().any(|job| job.id == *id);
                for id in known.attempts.iter().filter(|id| !shown(id)) {
                    let with = (&mut self.rng, &owner, bug);
                    match cloud::get(id, &self.remotes, (now, stormy), with) {
                        Some(cloud) => unlisted.push(cloud),
                        None => missing.push(id.clone()),
                    }
                }
            }
            for row in ours {
                owner_seen = true;
                if has_news(&known, &row) || known.wants_whole(&row, started.wall) {
                    let with = (&mut self.rng, &owner, bug);
                    jobs.push(cloud::in_full(row, &self.remotes, stormy, with));
                }
            }
        }
        jobs.append(&mut unlisted);
        let slow = if stormy && self.rng.chance(10) { self.rng.below(MINUTE) } else { 200 };
        let swept = Box::new(Swept { pass, jobs, missing, owner_seen });
        self.tell(slow, ToDaemon::Passed(swept, started.wall));
    }
}
