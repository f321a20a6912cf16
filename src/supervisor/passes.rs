//! What a pass over ListJobs brings: inputs for the jobs whose marks it shows, and what is known
//! for the next one.

use super::book::{Book, Homeless};
use super::driver::Driver;
use super::outages::Fault;
use super::place::PlaceState;
use super::work::{Known, OnRecord, Swept, Waits, Work};
use crate::core::forget::LOST_LOOKED_FOR;
use crate::core::identity::mark_of;
use crate::core::job::{Attempt, AttemptState, Job, Missing, Wanted};
use crate::core::step::{Input, Pass, Past};
use crate::core::verdict::Cause;
use crate::core::waiting;
use crate::model::cloud::CloudJob;
use crate::model::error::Class;
use crate::model::ids::{CloudId, JobKey, Mark};
use crate::model::spec::Place;
use crate::model::time::{Now, WallTime};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::watch;

/// What does not work while every open attempt seems to be gone.
const VANISHED: &str = "open attempts";
/// Cloud jobs of ours without a job on record that are remembered.
const HOMELESS_LIMIT: usize = 10_000;

impl Driver {
    /// Turns a pass into work, and tells the tasks that list what they may rely on from now on.
    pub(super) fn take_pass(&mut self, swept: Swept) {
        let now = self.clock.now();
        let (place, complete) = (swept.pass.place.clone(), swept.pass.complete);
        let (endpoint, jobs) = (&place.endpoint, swept.jobs.len());
        tracing::debug!(%endpoint, complete, jobs, missing = swept.missing.len(), "a pass is through");
        match self.book.take_pass(swept, now, &mut self.pending) {
            Some(why) => {
                self.effects.fails(&place, VANISHED, Fault::words(Class::Operator, why));
            }
            None if complete => self.effects.outages.end(&place, VANISHED),
            None => {}
        }
        self.tell_sweepers();
    }

    /// Keeps a task looking at every place that matters.
    pub(super) fn look_at_places(&mut self) {
        let now = self.clock.now().wall;
        let wanted = self.book.wanted_places();
        let gone: Vec<Place> =
            self.known.keys().filter(|place| !wanted.contains(place)).cloned().collect();
        for place in gone {
            self.known.remove(&place);
            // Should it come back, it is compared anew before anything is submitted there.
            if let Some(state) = self.book.places.get_mut(&place) {
                *state = state.after_reload();
            }
        }
        for place in wanted {
            if !self.known.contains_key(&place) {
                let (sender, known) = watch::channel(self.book.known_at(&place, now));
                self.tasks.spawn(self.effects.sweeper(&place, known, self.book.started));
                self.known.insert(place, sender);
            }
        }
    }

    pub(super) fn tell_sweepers(&self) {
        let now = self.clock.now().wall;
        for (place, sender) in &self.known {
            let known = self.book.known_at(place, now);
            sender.send_if_modified(|old| {
                let changed = *old != known;
                *old = known;
                changed
            });
        }
    }
}

impl Book {
    /// Turns a pass into inputs: what was seen first, then that the pass is through. Answers why it
    /// is not believed in what it lacks, if so. One that began before the records were loaded says
    /// nothing about them: it may have waited for long.
    pub fn take_pass(
        &mut self,
        swept: Swept,
        now: Now,
        pending: &mut VecDeque<Work>,
    ) -> Option<String> {
        let Swept { pass, jobs, missing, owner_seen } = swept;
        if pass.started < self.loaded {
            return None;
        }
        let acceptance = self.acceptance(&pass.place);
        let started = self.started_wall(now);
        let state = self.places.entry(pass.place.clone()).or_default();
        if owner_seen {
            state.note_owner_seen();
        }
        for cloud in jobs {
            // Its id first: one that a person adopted may carry no mark, or that of another.
            if let Some((key, mark)) = self.on_record(&cloud.id) {
                self.learn_user(&pass.place, &key, &cloud);
                self.remember_copy(&mark, &cloud, &pass.place);
                self.see(pending, key, mark, cloud, &pass.place);
                continue;
            }
            let Some(mark) = mark_of(&cloud, &self.owner) else { continue };
            let key = if let Some(key) = self.open_with(&mark) {
                key.clone()
            } else if let Some((key, _)) = self.past.get(&mark) {
                key.clone()
            } else {
                let after_start = cloud.created.map_or(Duration::ZERO, |t| t.since(started));
                let is_other = PlaceState::is_other_writer(after_start, acceptance, self.began_new);
                if is_other && !self.may_be_forgotten(cloud.created) {
                    self.note_other_writer(&pass.place, &cloud);
                }
                let Some(key) = self.home_of(&cloud) else {
                    self.keep_homeless(mark, cloud, &pass.place);
                    continue;
                };
                if cloud.status.is_end() {
                    self.let_go(cloud.id.clone(), cloud.created);
                }
                key
            };
            self.learn_user(&pass.place, &key, &cloud);
            self.remember_copy(&mark, &cloud, &pass.place);
            self.see(pending, key, mark, cloud, &pass.place);
        }
        let vanished = self.take_missing(&pass, &missing, pending);
        let concerned = self.jobs.values().filter(|job| {
            job.open.iter().any(|attempt| {
                attempt.place == pass.place
                    && (attempt.stop.is_some()
                        || matches!(attempt.state, AttemptState::Unknown { .. }))
            })
        });
        let keys: Vec<JobKey> = concerned.map(|job| job.key.clone()).collect();
        for key in keys {
            pending.push_back(Work::Input(key, Input::Swept(pass.clone())));
        }
        pending.push_back(Work::Passed(pass));
        vanished
    }

    /// Gives a job what the cloud shows of it. One of a run that was forgotten is a stranger to the next one.
    fn see(
        &mut self,
        pending: &mut VecDeque<Work>,
        key: JobKey,
        mark: Mark,
        cloud: CloudJob,
        place: &Place,
    ) {
        let known = Some(key).filter(|key| self.jobs.contains_key(key));
        let Some(key) = known.or_else(|| self.home_of(&cloud)) else {
            self.keep_homeless(mark, cloud, place);
            return;
        };
        pending.push_back(seen(key, mark, cloud, place.clone()));
    }

    /// Attempts that DLC does not know any more. Several that vanish at one time, and none that is
    /// left, are no proof of anything: whoever answers may see another workspace.
    fn take_missing(
        &self,
        pass: &Pass,
        missing: &[CloudId],
        pending: &mut VecDeque<Work>,
    ) -> Option<String> {
        if !pass.complete {
            return None;
        }
        let at_place = self.jobs.values().flat_map(|job| job.open.iter().map(move |a| (job, a)));
        let here = at_place.filter(|(_, attempt)| attempt.place == pass.place);
        let here: Vec<(JobKey, CloudId)> =
            here.filter_map(|(job, a)| Some((job.key.clone(), a.id()?.clone()))).collect();
        if missing.len() > 1 && here.iter().all(|(_, id)| missing.contains(id)) {
            return Some(format!("all {} open attempts vanished at one time", missing.len()));
        }
        for (key, id) in here.into_iter().filter(|(_, id)| missing.contains(id)) {
            let input = Input::Missing { id, same_caller: pass.same_caller };
            pending.push_back(Work::Input(key, input));
        }
        None
    }

    /// Another daemon submits with our owner: from now on this one submits nothing there, and
    /// follows what the other made as its own.
    fn note_other_writer(&mut self, place: &Place, cloud: &CloudJob) {
        let Some(state) = self.places.get_mut(place) else { return };
        if state.other_writer.is_none() {
            let why = format!(
                "another daemon uses this owner id ({} is not of this one): stop one of them, then \
                 start this one again",
                cloud.id
            );
            tracing::error!(%why, "nothing is submitted there");
            state.other_writer = Some(why);
        }
    }

    /// Remembers a cloud job of ours whose job is not on record. Its job file may be read later, or
    /// be mended later, than the one pass that looks far back.
    fn keep_homeless(&mut self, mark: Mark, cloud: CloudJob, place: &Place) {
        let known = self.homeless.contains_key(&cloud.id);
        if !known && self.homeless.len() >= HOMELESS_LIMIT {
            tracing::error!(id = %cloud.id, "more than {HOMELESS_LIMIT} jobs of ours belong to no job on record");
            return;
        }
        if !known && !cloud.status.is_end() {
            tracing::warn!(id = %cloud.id, job = ?cloud.stamp.job,
                "a job of ours in the cloud belongs to no job on record");
        }
        let homeless = Homeless { mark, cloud: Box::new(cloud), place: place.clone() };
        self.homeless.insert(homeless.cloud.id.clone(), homeless);
    }

    /// Remembers a cloud job that its job on record may have to wait for and cannot follow: the next
    /// passes look back to it until it ends, and it outlives a record that goes with its file.
    fn remember_copy(&mut self, mark: &Mark, cloud: &CloudJob, place: &Place) {
        if cloud.status.is_end() {
            self.homeless.remove(&cloud.id);
        } else if !self.is_attempt(mark, &cloud.id) && self.homeless.len() < HOMELESS_LIMIT {
            let (mark, cloud) = (mark.clone(), Box::new(cloud.clone()));
            let homeless = Homeless { mark, cloud, place: place.clone() };
            self.homeless.insert(homeless.cloud.id.clone(), homeless);
        }
    }

    /// A job that is new on record learns of what the cloud has of it, oldest first, before it can
    /// decide anything.
    pub(super) fn take_homeless(&self, key: &JobKey, pending: &mut VecDeque<Work>) {
        let mut found: Vec<&Homeless> = self.homeless.values().collect();
        found.retain(|homeless| homeless.cloud.stamp.job.as_deref() == Some(key.name.as_str()));
        found.sort_by_key(|homeless| homeless.cloud.created);
        for homeless in found {
            let Homeless { mark, cloud, place } = homeless;
            pending.push_back(seen(key.clone(), mark.clone(), (**cloud).clone(), place.clone()));
        }
    }

    /// When this process began, by the clock as servers have corrected it since.
    fn started_wall(&self, now: Now) -> WallTime {
        now.wall.minus(now.boot.since(self.started.boot))
    }

    /// The job on record that a cloud job nobody knows says it belongs to.
    fn home_of(&self, cloud: &CloudJob) -> Option<JobKey> {
        let name = cloud.stamp.job.as_deref()?;
        let run = cloud.stamp.run.unwrap_or(1);
        let exact =
            self.jobs.keys().find(|key| key.name.as_str() == name && key.run == run).cloned();
        exact.or_else(|| self.newest(name).map(|job| job.key.clone()))
    }

    /// A job whose id CreateJob gave us shows whose our jobs are.
    fn learn_user(&mut self, place: &Place, key: &JobKey, cloud: &CloudJob) {
        let ours = self
            .jobs
            .get(key)
            .is_some_and(|job| job.open.iter().any(|a| a.id() == Some(&cloud.id)));
        // One that a person adopted may be anybody's.
        let is_marked = self.on_record(&cloud.id).is_some_and(|(_, mark)| {
            mark_of(cloud, &self.owner).is_some_and(|carried| carried == mark)
        });
        if ours
            && is_marked
            && cloud.user_id.is_some()
            && let Some(state) = self.places.get_mut(place)
        {
            state.own_user.clone_from(&cloud.user_id);
        }
    }

    /// Everything of a pass was compared: the place may open, and those that wait look again.
    pub(super) fn passed(&mut self, pass: &Pass, now: WallTime, pending: &mut VecDeque<Work>) {
        // Not before: a copy that the same pass shows may be noted only after the end of its original.
        self.forget_those_at_home();
        if pass.complete {
            self.forget_what_no_list_shows(now);
        }
        let acceptance = self.acceptance(&pass.place);
        let started = self.started;
        let state = self.places.entry(pass.place.clone()).or_default();
        let may_open = state.passed(pass, acceptance, started);
        if self.new_store && self.places_are_settled() {
            pending.push_back(Work::StoreSettled);
        }
        let waiting = self.jobs.values().filter(|job| {
            let idle = job.open.is_empty() && job.result.is_none();
            // Nothing else wakes one that runs and shows no news: its looks wait for this.
            let runs_on = may_open && !job.open.is_empty();
            runs_on || idle && (job.wanted == Wanted::Cancel || job.block.is_none())
        });
        let keys: Vec<JobKey> = waiting.map(|job| job.key.clone()).collect();
        pending.extend(keys.into_iter().map(|key| Work::Input(key, Input::Tick)));
    }

    /// Attempts that were given up as lost: they may show up with their end.
    pub(super) fn lost_looked_for(&self, now: WallTime) -> impl Iterator<Item = &Attempt> {
        let lost = self.ended.values().flatten().filter(move |ended| {
            ended.verdict.cause == Cause::Lost && now.since(ended.ended) < LOST_LOOKED_FOR
        });
        lost.map(|ended| &ended.attempt)
    }

    /// The first attempt of a job that is on record.
    fn first_attempt<'a>(&'a self, job: &'a Job) -> Option<&'a Attempt> {
        let ended = self.ended.get(&job.key).into_iter().flatten();
        let attempts = ended.chain(&job.unjudged).map(|ended| &ended.attempt);
        attempts.chain(&job.open).min_by_key(|attempt| attempt.intended)
    }

    /// What the task that lists at a place may rely on.
    pub fn known_at(&self, place: &Place, now: WallTime) -> Known {
        let mut known = Known::default();
        let open = self.jobs.values().flat_map(|job| job.open.iter().map(move |a| (job, a)));
        for (job, attempt) in open {
            if attempt.place != *place {
                continue;
            }
            let oldest = known.oldest.get_or_insert(attempt.intended);
            *oldest = (*oldest).min(attempt.intended);
            if let AttemptState::Live { id, restarts, runs, missing, wait, .. } = &attempt.state
                && let Some(status) = attempt.state.shown()
            {
                let is_missing = *missing != Missing::No;
                let began = runs.began();
                let record = OnRecord { status, restarts: *restarts, began, is_missing };
                known.open.insert(id.clone(), record);
                known.attempts.insert(id.clone());
                if waiting::is_waiting(attempt) {
                    let look_at = self.spec_of(job).and_then(|spec| waiting::look_at(job, &spec));
                    let is_never = wait.never().is_some();
                    let counted_from = waiting::counted_from(job, attempt);
                    let waits = Waits { look_at, counted_from, is_never };
                    known.waits.insert(id.clone(), waits);
                }
            }
        }
        for Homeless { cloud, .. } in self.homeless.values().filter(|h| h.place == *place) {
            if cloud.status.is_end() {
                known.ended.insert(cloud.id.clone());
                continue;
            }
            known.oldest = known.oldest.into_iter().chain(cloud.created).min();
            let record = OnRecord {
                status: cloud.status.clone(),
                restarts: cloud.restarts,
                began: cloud.run_began(),
                is_missing: false,
            };
            known.open.insert(cloud.id.clone(), record);
        }
        // A copy was made after an attempt of its job, and its end has to be seen.
        let copied = self.jobs.values().filter(|job| !job.copies.is_empty());
        let first = copied.filter_map(|job| self.first_attempt(job));
        let first = first.filter(|attempt| attempt.place == *place).map(|one| one.intended);
        known.oldest = first.chain(known.oldest).min();
        let lost = self.lost_looked_for(now).filter(|attempt| attempt.place == *place);
        known.oldest = lost.map(|attempt| attempt.intended).chain(known.oldest).min();
        // All that ended and may still be listed, not only those whose record is kept: else each
        // pass would fetch the others again. Nor those whose record went before this process began.
        known.ended.extend(self.let_go.keys().cloned());
        for (_, past) in self.past.values() {
            match past {
                Past::Ended(ended) if ended.cause == Cause::Lost => {
                    known.lost.insert(ended.id.clone());
                }
                Past::Ended(ended) => {
                    known.ended.insert(ended.id.clone());
                }
                Past::NeverCreated { .. } | Past::Stranger => {}
            }
        }
        known
    }
}

/// What the cloud shows, for a job. What is known of the mark is filled in when it is its turn.
fn seen(key: JobKey, mark: Mark, cloud: CloudJob, place: Place) -> Work {
    let (cloud, past) = (Box::new(cloud), Past::Stranger);
    Work::Input(key, Input::Seen { mark, cloud, past, place })
}
