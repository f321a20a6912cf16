//! The log of one pod, as a person reads it: what DLC shows now, else what was kept of the end.

use super::{Raw, Subject, cut_lines, pods, read};
use crate::core::job::{Attempt, EndedAttempt, Job, Start};
use crate::core::verdict::Cause;
use crate::dlc::evidence::{LogQuery, RawCall};
use crate::dlc::redact::redact;
use crate::model::handle::Refusal;
use crate::model::ids::{AttemptNo, CloudId};
use crate::model::view::LogView;
use crate::supervisor::driver::{Driver, chain};
use crate::supervisor::effects::Effects;
use serde_json::Value;
use std::collections::BTreeMap;

/// Lines that are asked for: the last ones. The API's own default.
const LINES_LIMIT: u32 = 2_000;

impl Driver {
    /// The log of a node of an attempt; `None` is the newest attempt that was created.
    pub(in crate::supervisor) fn log_of(
        &self,
        job: &Job,
        no: Option<AttemptNo>,
        rank: u32,
    ) -> Result<impl Future<Output = Result<LogView, Refusal>> + Send + use<>, Refusal> {
        let (attempt, id) = match no {
            Some(_) => self.shown_attempt(job, no)?,
            None => self.newest_created(job)?,
        };
        let from_step = match &attempt.start {
            Start::Fresh => None,
            Start::From(point) => point.step,
        };
        let mut view = LogView {
            job: job.key.name.to_string(),
            run: job.key.run,
            attempt: attempt.no,
            id: id.to_string(),
            rank,
            from_step,
            is_open: job.open.iter().any(|open| open.no == attempt.no),
            is_cut: false,
            lines: Vec::new(),
        };
        let kept = self.book.evidence.get(&(job.key.clone(), attempt.no)).cloned();
        let subject = self.subject(&job.key, attempt, id);
        let (effects, store) = (self.effects.clone(), self.store.clone());
        Ok(async move {
            let lines = match (effects.log_now(&subject, rank).await, kept) {
                (Ok(lines), _) => lines,
                (Err(why), None) => return Err(Refusal::NotNow(why)),
                (Err(why), Some(kept)) => {
                    let kept = read(&store, &kept).await.map_err(Refusal::NotNow)?;
                    let log = kept.files.get(&format!("get_pod_logs.{rank}.json"));
                    lines_of(log.ok_or(Refusal::NotNow(why))?)
                }
            };
            view.is_cut = lines.len() >= usize::try_from(LINES_LIMIT).unwrap_or(usize::MAX);
            view.lines = lines;
            Ok(view)
        })
    }

    fn newest_created<'a>(&'a self, job: &'a Job) -> Result<(&'a Attempt, CloudId), Refusal> {
        let mut open = job.open.iter().rev();
        if let Some(found) = open.find_map(|attempt| Some((attempt, attempt.id()?.clone()))) {
            return Ok(found);
        }
        let mut ended = self.book.ended.get(&job.key).into_iter().flatten();
        let created = |one: &&EndedAttempt| one.verdict.cause != Cause::NeverCreated;
        let last = ended.rfind(created).and_then(|one| Some((&one.attempt, one.id.clone()?)));
        last.ok_or_else(|| Refusal::NotNow("no attempt of it was created yet".to_owned()))
    }
}

impl Effects {
    /// The last lines of a node's log, without secrets.
    async fn log_now(&self, subject: &Subject, rank: u32) -> Result<Vec<String>, String> {
        let place = &subject.attempt.place;
        let client = self.client(place)?;
        let (known, names) = self.known_secrets(subject).await;
        let raw = Raw { client, effects: self, place, id: &subject.id, found: BTreeMap::new() };
        let told = |error| known.scrub(&chain(&error));
        let job = raw.fetch(RawCall::Job).await.map_err(told)?;
        let label = rank.to_string();
        let found = pods(&job).into_iter().find(|pod| pod.label == label);
        let pod = found
            .ok_or_else(|| format!("DLC shows no pod {rank} of attempt {}", subject.attempt.no))?;
        let pod_uid = Some(pod.uid).filter(|uid| !uid.is_empty());
        let query = LogQuery { pod_uid, limit: Some(LINES_LIMIT), ..LogQuery::default() };
        let log = raw.fetch(RawCall::PodLogs(&pod.id, &query)).await.map_err(told)?;
        // The job itself shows secrets that its log may quote.
        let answers = BTreeMap::from([("job".to_owned(), job), ("log".to_owned(), log)]);
        let redacting = tokio::task::spawn_blocking(move || {
            let mut shown = redact(&answers, &known, &names);
            shown.values_mut().for_each(cut_lines);
            shown.get("log").map(lines_of).unwrap_or_default()
        });
        redacting.await.map_err(|error| error.to_string())
    }
}

fn lines_of(answer: &Value) -> Vec<String> {
    let lines = answer.get("Logs").and_then(Value::as_array).into_iter().flatten();
    lines.map(|line| line.as_str().map_or_else(|| line.to_string(), str::to_owned)).collect()
}
