//! The invariants over all that is durable and all that is in the cloud.

use super::World;
use crate::cloud::{Counter, Origin, Remote};
use crate::faults;
use crate::invariants::{COPY, FOUND, RESTARTS};
use spotkeeper::core::job::Wanted;
use spotkeeper::core::step::Past;
use spotkeeper::model::ids::CloudId;
use spotkeeper::supervisor::Work;

impl World {
    /// The invariants over all that is durable and all that is in the cloud.
    pub(super) fn check(&mut self) {
        let jobs = self.book.jobs.values().filter(|_| !self.down);
        let beside = |remotes: &[Remote], job: usize| {
            remotes.iter().any(|r| r.job == job && r.is_alive() && r.origin == Origin::Ours)
        };
        for job in jobs {
            let is_pending =
                self.pending.iter().any(|w| matches!(w, Work::Input(k, _) if *k == job.key));
            if !is_pending {
                let wake = self.book.wakes.contains_key(&job.key);
                self.judge.settled(job, self.clock.now().boot, wake);
            }
            for attempt in &job.open {
                let Some(id) = attempt.id() else { continue };
                // A late one that was taken up is an attempt like any other.
                let found = self.remotes.iter().position(|remote| remote.cloud.id == *id);
                let Some(at) = found else { continue };
                if attempt.stop.is_some() {
                    if self.remotes[at].origin == Origin::Late {
                        self.judge.returned.insert(id.clone());
                    }
                    continue;
                }
                match self.remotes[at].origin {
                    Origin::Ours => {}
                    // After the loss of the store nothing tells a copy with our very name from ours.
                    Origin::Copy if self.wipes > 0 && !self.remotes[at].has_copys_name() => {}
                    Origin::Copy => {
                        self.judge.broke(COPY, format!("{id} was taken for an attempt"));
                    }
                    Origin::Foreign => {
                        self.judge.broke(COPY, format!("{id} is another owner's"));
                    }
                    Origin::Hand => self.remotes[at].origin = Origin::Ours,
                    Origin::Late => {
                        // Beside one that may yet be made it stays a late one.
                        if job.open.len() == 1 && !beside(&self.remotes, self.remotes[at].job) {
                            self.remotes[at].origin = Origin::Ours;
                        }
                    }
                }
            }
        }
        for remote in self.remotes.iter().filter(|r| r.origin == Origin::Foreign) {
            if self.judge.noted.contains(&remote.cloud.id) {
                self.judge.broke(COPY, format!("{} is another owner's", remote.cloud.id));
            }
        }
        self.note_lost();
        let plans = &self.plans;
        let overlaps = |a: usize, b: usize| {
            let location = |n: usize| Some(&plans[n].specs[0].1.checkpoint.as_ref()?.location);
            location(a).zip(location(b)).is_some_and(|(a, b)| a.overlaps(b))
        };
        self.judge.cloud(&self.remotes, overlaps);
    }

    /// Whether an end of this cloud job is on record.
    pub(super) fn has_ended(&self, id: &CloudId) -> bool {
        let is_it = |past: &Past| matches!(past, Past::Ended(ended) if ended.id == *id);
        self.book.past.values().any(|(_, past)| is_it(past))
    }

    /// What runs on after it was given up is a twin from then on.
    pub(super) fn note_lost(&mut self) {
        for n in 0..self.remotes.len() {
            let remote = &self.remotes[n];
            let Some((gone, _)) = remote.hidden else { continue };
            let is_followed = match remote.origin {
                Origin::Ours => true,
                Origin::Late => self.judge.returned.contains(&remote.cloud.id),
                Origin::Copy | Origin::Foreign | Origin::Hand => false,
            };
            if !is_followed || !remote.is_alive() || self.down {
                continue;
            }
            let mut open = self.book.jobs.values().flat_map(|job| &job.open);
            // One that came back was taken up.
            if !self.has_ended(&remote.cloud.id) || open.any(|a| a.id() == Some(&remote.cloud.id)) {
                continue;
            }
            let (now, plan) = (self.clock.ms, &self.plans[remote.job]);
            let job = self.book.jobs.get(&plan.key);
            let nothing_follows =
                job.is_none_or(|job| job.result.is_some() || job.wanted == Wanted::Cancel);
            let retried = self.judge.retried.get(&plan.key).is_some_and(|at| at.0 >= gone);
            let still = (!nothing_follows && !retried)
                // What was written while the answer of the last look was on its way was not seen.
                .then(|| {
                    let looked = now.saturating_sub(faults::TRAVEL_LIMIT);
                    looked - self.bucket.last_written(plan.prefix, looked).unwrap_or(0)
                });
            self.judge.lost(&remote.cloud.id, now - gone, still);
            // Until an answer shows it again nobody can know what it writes.
            self.judge.returned.remove(&remote.cloud.id);
            let remote = &mut self.remotes[n];
            (remote.origin, remote.passes, remote.stop_asked) = (Origin::Late, 0, false);
        }
    }

    /// What must hold once everything is over.
    pub(super) fn last_check(&mut self) {
        for remote in &self.remotes {
            let id = &remote.cloud.id;
            let past = self.has_ended(id);
            // A late one, or one that a person deleted, may be over before anybody looks.
            if remote.origin == Origin::Ours
                && !remote.ended_unseen
                && remote.wipes == self.wipes
                && !past
                && !self.judge.noted.contains(id)
            {
                self.judge.broke(FOUND, format!("{id} is on no record"));
            }
            let told = self.judge.told.get(id).copied().unwrap_or(0);
            let wrong = match remote.counter {
                _ if remote.flapped.get() => false,
                Counter::Shown | Counter::Late => told != remote.restarts,
                Counter::Hidden => told > remote.restarts,
            };
            if past && wrong {
                let what = format!("{id}: {} restarts, {told} told", remote.restarts);
                self.judge.broke(RESTARTS, what);
            }
        }
    }
}
