//! A person names a cloud job that is to be the running attempt of a job: it is looked up, then the
//! core decides.
//!
//! What always holds: from the question to the answer nothing is submitted for the job; what is taken
//! is durable before the answer. Must not: stop or change the cloud job.

use super::acts::ends_awaited;
use super::asked::done_with;
use super::driver::{Driver, chain};
use super::effects::Effects;
use super::turns::GET_JOB;
use super::work::{Message, Work};
use crate::core::adopt::{cannot_adopt, cannot_adopt_now};
use crate::core::identity::mark_of;
use crate::core::job::{AttemptState, Job};
use crate::core::step::{Input, Past};
use crate::core::submit::Gate;
use crate::dlc::wire::{self, Source};
use crate::model::cloud::CloudJob;
use crate::model::error::Class;
use crate::model::handle::Refusal;
use crate::model::ids::{CloudId, JobKey, TargetName};
use crate::model::spec::Place;
use crate::model::time::BootTime;
use crate::model::view::ActReport;
use crate::openapi::kind::Kind;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a person waits until the cloud was compared with the store, or answers at all.
const PATIENCE: Duration = Duration::from_secs(45);
/// Time between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The same where nobody waits for the answer; sooner after a pass, which may be what it waited for.
const LOOK_AGAIN_LATER: Duration = Duration::from_secs(15);
/// How long one that is written down is tried before it is given up with an alarm.
const WRITTEN_PATIENCE: Duration = Duration::from_hours(1);

/// Who asked.
#[derive(Debug)]
pub(super) enum Asker {
    /// A person who waits for the answer.
    Person(oneshot::Sender<Result<ActReport, Refusal>>),
    /// One who wrote it down while no daemon ran: in this file, which goes once it is done.
    Written(PathBuf),
}

/// An adoption that is under way.
#[derive(Debug)]
pub(super) struct Adoption {
    key: JobKey,
    id: CloudId,
    asker: Asker,
    began: BootTime,
    /// Which one of those that wait.
    number: u64,
}

/// What looking it up brought.
#[derive(Debug)]
pub(super) enum Found {
    /// It is there, at the place that the job's target was when it was looked up.
    There { cloud: Box<CloudJob>, place: Place },
    /// It is not where the job's target points to.
    NotThere(String),
    /// DLC does not say.
    NoAnswer { why: String, passes: bool },
}

impl Driver {
    /// Begins with an adoption; its answer comes later, unless it is refused at once.
    pub(super) fn adopt(&mut self, id: &CloudId, name: &str, asker: Asker) {
        let key = match self.may_adopt(id, name) {
            Ok(key) => key,
            Err(refusal) => return self.refuse_adoption(id, name, asker, refusal),
        };
        let file = match &asker {
            Asker::Person(_) => None,
            Asker::Written(file) => Some(file.clone()),
        };
        let number = self.book.adopting.begin(key.clone(), file);
        let began = self.clock.now().boot;
        self.look_up(Adoption { key, id: id.clone(), asker, began, number }, Duration::ZERO);
    }

    /// The job, if nothing that is on record speaks against it.
    pub(super) fn may_adopt(&self, id: &CloudId, name: &str) -> Result<JobKey, Refusal> {
        let job = self.find(name)?;
        if self.book.adopting.contains(&job.key) {
            let why = format!("another adoption for `{name}` is under way: wait for its answer");
            return Err(Refusal::NotNow(why));
        }
        let why = self.on_record_elsewhere(id).or_else(|| {
            let gate = self.gate_of(job)?;
            cannot_adopt_now(job, &gate)
        });
        why.map_or_else(|| Ok(job.key.clone()), |why| Err(Refusal::NotNow(why)))
    }

    fn gate_of(&self, job: &Job) -> Option<Gate> {
        let spec = self.book.spec_of(job)?;
        Some(self.book.gate(job, &spec, &BTreeMap::new()))
    }

    /// Why a cloud job is not free: it is an attempt already, or a copy of one.
    fn on_record_elsewhere(&self, id: &CloudId) -> Option<String> {
        if let Some((key, mark)) = self.book.on_record(id) {
            let open = self.book.jobs.get(&key).into_iter().flat_map(|job| &job.open);
            let is_open = open.into_iter().any(|attempt| attempt.mark == mark);
            return Some(if is_open {
                format!("{id} is a running attempt of `{key}` already")
            } else {
                format!("{id} was an attempt of `{key}`: if it runs again, it is noticed by itself")
            });
        }
        None
    }

    /// Looks it up, at the job's target first.
    fn look_up(&mut self, adoption: Adoption, delay: Duration) {
        let job = self.book.jobs.get(&adoption.key);
        let spec = job.and_then(|job| self.book.spec_of(job));
        let target = spec.map(|spec| spec.target.clone());
        let targets = self.book.targets.values();
        let mut places: Vec<(TargetName, Place)> =
            targets.map(|target| (target.name.clone(), target.place.clone())).collect();
        places.sort_by_key(|(name, _)| Some(name) != target.as_ref());
        let has_target = places.first().is_some_and(|(name, _)| Some(name) == target.as_ref());
        let effects = self.effects.clone();
        let is_written = matches!(adoption.asker, Asker::Written(_));
        self.spawn(Box::pin(async move {
            tokio::select! {
                () = effects.stopped() => return,
                () = effects.passed.notified(), if is_written && !delay.is_zero() => {}
                () = tokio::time::sleep(delay) => {}
            }
            let found = match target {
                Some(target) if !has_target => Found::NotThere(format!(
                    "the daemon file has no target `{target}`, where the job is sent to"
                )),
                Some(_) | None => effects.find_at(&places, &adoption.id).await,
            };
            // A driver that is gone has nobody left to tell.
            drop(effects.driver.send(Message::LookedUp(adoption, found)).await);
        }));
    }

    /// What was looked up decides, once the cloud was compared with the store.
    pub(super) async fn take_found(&mut self, adoption: Adoption, found: Found) {
        if adoption.began < self.book.loaded {
            // The store was loaded anew since. What is written down is taken again after that.
            if let Asker::Person(reply) = adoption.asker {
                let why = "it failed a moment ago: ask again".to_owned();
                drop(reply.send(Err(Refusal::StoreDown(why))));
            }
            return;
        }
        let Some(waiting) = self.book.adopting.take(&adoption.key, adoption.number) else {
            return self.tell_ended(adoption);
        };
        let (patience, pause) = match adoption.asker {
            Asker::Person(_) => (PATIENCE, LOOK_AGAIN),
            Asker::Written(_) => (WRITTEN_PATIENCE, LOOK_AGAIN_LATER),
        };
        let waited = self.clock.now().boot.since(adoption.began);
        let may_wait = waited < patience && !self.book.stopping;
        let not_yet = match &found {
            Found::There { place, .. } => self.not_yet(&adoption.key, place),
            Found::NoAnswer { why, passes } => passes.then(|| why.clone()),
            Found::NotThere(_) => None,
        };
        if let Some(why) = &not_yet
            && may_wait
        {
            tracing::debug!(job = %adoption.key, id = %adoption.id, %why, "adopt: not yet");
            self.book.adopting.put_back(adoption.key.clone(), waiting);
            return self.look_up(adoption, pause);
        }
        if let (Some(why), Asker::Written(_), true) =
            (&not_yet, &adoption.asker, self.book.stopping)
        {
            // Its file stays, and the job is held: the next start takes it again.
            tracing::info!(job = %adoption.key, id = %adoption.id, %why, "adopt: left to the next start");
            return;
        }
        let outcome = match (not_yet, found) {
            (Some(why), _) | (None, Found::NotThere(why) | Found::NoAnswer { why, .. }) => {
                Err(Refusal::NotNow(why))
            }
            (None, Found::There { cloud, place }) => {
                self.take_adopted(&adoption.key, *cloud, place).await
            }
        };
        let Adoption { key, id, asker, .. } = adoption;
        match outcome {
            Err(refusal) => self.refuse_adoption(&id, key.name.as_str(), asker, refusal),
            Ok(report) => match asker {
                Asker::Person(reply) => drop(reply.send(Ok(report))),
                Asker::Written(file) => {
                    tracing::info!(job = %key, text = report.text, "asked for while no daemon ran");
                    done_with(&file);
                }
            },
        }
    }

    /// A `cancel` or `pause` comes before an adoption that was asked for earlier. One that is written
    /// down is off the disk before the later act is durable, so that no start takes it up again.
    pub(super) fn unwrite_adoption(&self, key: &JobKey) -> Result<(), Refusal> {
        if let Some(file) = self.book.adopting.file(key)
            && let Err(error) = crate::store::asked::remove(file)
        {
            let why = chain(&error);
            let why =
                format!("an adoption for `{}` waits and cannot be taken back: {why}", key.name);
            return Err(Refusal::NotNow(why));
        }
        Ok(())
    }

    /// A later act has ended it while it was looked up.
    fn tell_ended(&mut self, adoption: Adoption) {
        let Adoption { key, id, asker, .. } = adoption;
        let why = "a `cancel` or `pause` that was asked for later comes before it".to_owned();
        tracing::warn!(job = %key, %id, %why, "adopt: nothing is done");
        let input = Input::NotAdopted { id, why: why.clone(), told: true };
        self.push(Work::Input(key, input));
        match asker {
            Asker::Person(reply) => drop(reply.send(Err(Refusal::NotNow(why)))),
            // Its file went with the later act.
            Asker::Written(_) => {}
        }
    }

    /// Why an adoption cannot be decided on yet; `looked_at` is where the cloud job was found.
    fn not_yet(&self, key: &JobKey, looked_at: &Place) -> Option<String> {
        let gate = self.gate_of(self.book.jobs.get(key)?)?;
        if gate.place.as_ref() != Some(looked_at) {
            // An attempt is followed where it was found, so that has to be the job's target.
            return Some("the job's target was changed meanwhile".to_owned());
        }
        let not_compared = "the cloud was not yet compared with the store since the start";
        (!gate.verified).then(|| not_compared.to_owned()).or(gate.new_store)
    }

    async fn take_adopted(
        &mut self,
        key: &JobKey,
        cloud: CloudJob,
        place: Place,
    ) -> Result<ActReport, Refusal> {
        let job = self.book.jobs.get(key).ok_or(Refusal::NoSuchJob(key.name.to_string()))?;
        let unreadable = || Refusal::NotNow("its accepted spec cannot be read".to_owned());
        let gate = self.gate_of(job).ok_or_else(unreadable)?;
        let id = cloud.id.clone();
        let why = self.on_record_elsewhere(&id).or_else(|| cannot_adopt(job, &gate, &cloud));
        let why = why.or_else(|| self.copy_of_another(key, &id));
        if let Some(why) = why.or_else(|| self.book.sent_for_another(&cloud)) {
            return Err(Refusal::NotNow(why));
        }
        let mark = mark_of(&cloud, &self.book.owner);
        let mark = mark.filter(|mark| self.book.past_of(key, mark) == Past::Stranger);
        let input = Input::Adopt { cloud: Box::new(cloud), place, mark };
        // Before anything else of the job: it must not be submitted in between.
        self.pending.push_front(Work::Input(key.clone(), input));
        self.durably().await?;
        self.adopted(key, &id)
    }

    fn copy_of_another(&self, key: &JobKey, id: &CloudId) -> Option<String> {
        let other =
            self.book.jobs.values().find(|job| job.copies.contains(id) && job.key != *key)?;
        Some(format!("{id} carries a mark of `{}`", other.key))
    }

    fn adopted(&self, key: &JobKey, id: &CloudId) -> Result<ActReport, Refusal> {
        let job = self.book.jobs.get(key).ok_or(Refusal::NoSuchJob(key.name.to_string()))?;
        let taken = job.open.iter().find(|attempt| attempt.id() == Some(id));
        let Some(attempt) = taken else {
            return Err(Refusal::NotNow(format!(
                "nothing is done; `events {}` says why",
                key.name
            )));
        };
        let status = match &attempt.state {
            AttemptState::Live { status, .. } => status.word().to_owned(),
            AttemptState::Intended | AttemptState::Unknown { .. } => String::new(),
        };
        let text = format!(
            "adopted {id} ({status}) as attempt {}; its end is awaited, and judged as that of any \
             attempt; the next one is sent as the job file says",
            attempt.no
        );
        let phase = self.row(job).phase;
        Ok(ActReport { job: key.name.to_string(), phase, text, awaited: ends_awaited(job) })
    }

    /// Tells why nothing is taken. Where nobody waits for the answer the job stays paused.
    fn refuse_adoption(&mut self, id: &CloudId, name: &str, asker: Asker, refusal: Refusal) {
        let key = self.find(name).ok().map(|job| job.key.clone());
        let told = matches!(asker, Asker::Person(_));
        if let (Some(key), Refusal::NotNow(why)) = (key, &refusal) {
            let input = Input::NotAdopted { id: id.clone(), why: why.clone(), told };
            self.push(Work::Input(key, input));
        }
        match asker {
            Asker::Person(reply) => drop(reply.send(Err(refusal))),
            Asker::Written(_) if matches!(refusal, Refusal::StoreDown(_)) => {
                // Its file stays: it is taken again once the store is.
                tracing::error!(job = name, %id, why = %refusal, "adopt: nothing is done yet");
            }
            Asker::Written(file) => {
                tracing::error!(job = name, %id, why = %refusal, "adopt: nothing is done");
                done_with(&file);
            }
        }
    }
}

impl Effects {
    /// Looks for a cloud job at the first of these places; at the others only to say where it is.
    async fn find_at(&self, places: &[(TargetName, Place)], id: &CloudId) -> Found {
        let Some(((target, place), others)) = places.split_first() else {
            return Found::NotThere("the daemon file has no target".to_owned());
        };
        let found = self.find_in(place, id).await;
        match found {
            Ok(Some((cloud, workspace))) => {
                let fits = workspace.as_ref().is_none_or(|shown| *shown == place.workspace);
                if fits {
                    return Found::There { cloud: Box::new(cloud), place: place.clone() };
                }
                Found::NotThere(format!(
                    "{id} is in workspace {}, target `{target}` is workspace {}: name the right \
                     target in the job file",
                    workspace.unwrap_or_default(),
                    place.workspace
                ))
            }
            Ok(None) => {
                for (other, place) in others {
                    if let Ok(Some((_, workspace))) = self.find_in(place, id).await
                        && workspace.is_none_or(|shown| shown == place.workspace)
                    {
                        return Found::NotThere(format!(
                            "{id} is at target `{other}`, the job's target is `{target}`: name it in \
                             the job file"
                        ));
                    }
                }
                Found::NotThere(format!("DLC knows no job {id} at target `{target}`"))
            }
            Err((why, passes)) => Found::NoAnswer { why, passes },
        }
    }

    /// The job and its workspace; an error says why, and whether it may pass.
    async fn find_in(
        &self,
        place: &Place,
        id: &CloudId,
    ) -> Result<Option<(CloudJob, Option<String>)>, (String, bool)> {
        let client = self.client(place).map_err(|why| (why, false))?;
        let turn = self.turns.take(GET_JOB, place).await;
        let answer = client.get_job_value(id, turn.wall()).await;
        self.learn(&turn, &answer);
        let value = match answer {
            Ok(answer) => answer.value,
            Err(error) if error.kind() == Kind::NotFound => return Ok(None),
            Err(error) => {
                let passes = matches!(error.class(), Class::Retry | Class::Wait);
                return Err((format!("DLC does not say what {id} is: {}", chain(&error)), passes));
            }
        };
        let workspace = value.get("WorkspaceId").and_then(|id| id.as_str());
        let workspace = workspace.filter(|id| !id.is_empty()).map(str::to_owned);
        match wire::job(&value, Source::GetJob) {
            Ok(cloud) if cloud.id == *id => Ok(Some((cloud, workspace))),
            Ok(cloud) => Err((format!("DLC answers with {}, not with {id}", cloud.id), true)),
            Err(error) => Err((format!("DLC does not say what {id} is: {error}"), true)),
        }
    }
}
