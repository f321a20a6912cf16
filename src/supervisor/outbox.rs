//! The queue of alerts: an event that somebody is to be told of leaves its alert in the very batch
//! that holds the event, and it stays in the store until it is delivered.
//!
//! What always holds: what waits is bounded, and what finds no room is counted and logged. Must not:
//! send anything, or hold up a commit.

use super::stored::StateError;
use crate::model::alert::{Alert, Channel, TEXT_LIMIT};
use crate::model::ids::{JobKey, Owner};
use crate::model::time::WallTime;
use crate::store::records::{self, AlertPart, StoredEvent};
use crate::store::{Batch, Handle};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// Alerts that wait for one channel at most.
pub(super) const WAITING_LIMIT: usize = 2_000;
/// Keys read at one time.
const PAGE: usize = 500;

/// Who is told of what, and what waits.
#[derive(Debug)]
pub(super) struct Outbox {
    owner: String,
    channels: Vec<Arc<Channel>>,
    /// Keys in the store, by channel.
    waiting: BTreeMap<String, BTreeSet<Vec<u8>>>,
    /// When each channel had its last summary, and the steps at which it left the jobs.
    pub(super) told: BTreeMap<String, Told>,
    /// Alerts that found no room, by channel, in this process.
    pub(super) dropped: BTreeMap<String, u64>,
    news: watch::Sender<u64>,
    is_fresh: bool,
}

/// What the last summary of a channel told.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    pub(super) at: Option<WallTime>,
    pub(super) steps: BTreeMap<JobKey, u64>,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            owner: String::new(),
            channels: Vec::new(),
            waiting: BTreeMap::new(),
            told: BTreeMap::new(),
            dropped: BTreeMap::new(),
            news: watch::Sender::new(0),
            is_fresh: false,
        }
    }
}

impl Outbox {
    /// For these channels, with nothing waiting.
    pub(super) fn new(owner: &Owner, channels: Vec<Channel>) -> Self {
        let channels = channels.into_iter().map(Arc::new).collect();
        Self { owner: owner.to_string(), channels, ..Self::default() }
    }

    pub(super) fn channels(&self) -> &[Arc<Channel>] {
        &self.channels
    }

    /// Rings when there may be something new to deliver.
    pub(super) fn bell(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    /// Alerts that wait for a channel.
    pub(super) fn waiting(&self, channel: &str) -> usize {
        self.waiting.get(channel).map_or(0, BTreeSet::len)
    }

    /// Reads what waits. What waits for a channel that is gone is answered: it can go.
    pub(super) async fn load(&mut self, store: &Handle) -> Result<Vec<Vec<u8>>, StateError> {
        self.waiting.clear();
        self.told.clear();
        let mut homeless = Vec::new();
        for (key, _) in pages(store, records::ALERTS).await? {
            let text = String::from_utf8_lossy(&key).into_owned();
            let channel = text.split('/').nth(1).unwrap_or_default();
            if self.channels.iter().any(|known| known.name == channel) {
                self.waiting.entry(channel.to_owned()).or_default().insert(key);
            } else {
                homeless.push(key);
            }
        }
        if !homeless.is_empty() {
            let alerts = homeless.len();
            tracing::warn!(
                alerts,
                "alerts of channels that are not in the daemon file any more are dropped"
            );
        }
        for (key, value) in pages(store, records::SUMMARIES).await? {
            let text = String::from_utf8_lossy(&key).into_owned();
            let channel = text.split('/').nth(1).unwrap_or_default();
            if !self.channels.iter().any(|known| known.name == channel) {
                homeless.push(key);
                continue;
            }
            let told = self.told.entry(channel.to_owned()).or_default();
            if text.split('/').count() == 2 {
                told.at = Some(records::decode(&key, &value)?);
            } else {
                let (job, step) = records::decode::<(JobKey, u64)>(&key, &value)?;
                told.steps.insert(job, step);
            }
        }
        Ok(homeless)
    }

    /// Adds to the batch what is to be told of an event.
    pub(super) fn note(
        &mut self,
        batch: &mut Batch,
        stored: &StoredEvent,
        step: Option<u64>,
    ) -> Result<(), StateError> {
        if self.channels.is_empty() {
            return Ok(());
        }
        let (job, event) = (&stored.job, &stored.event);
        let word = serde_json::to_value(event.word).unwrap_or_default();
        let word = word.as_str().unwrap_or_default();
        for channel in self.channels.clone() {
            if !channel.wants(job.name.as_str(), word) {
                continue;
            }
            let alert = Alert {
                id: format!("{}-{}-{}", self.owner, stored.sequence, event.at.0),
                at: event.at,
                job: job.name.to_string(),
                run: job.run,
                attempt: event.attempt,
                word: word.to_owned(),
                text: event.text.chars().take(TEXT_LIMIT).collect(),
                step,
            };
            let key = records::alert_key(&channel.name, stored.sequence, AlertPart::Event);
            self.put(batch, &channel.name, key, &alert)?;
        }
        Ok(())
    }

    /// Adds to the batch what is wrong with the daemon as a whole: an alarm of no job. `place` is that
    /// of the last event, and when it was told.
    pub(super) fn note_trouble(
        &mut self,
        batch: &mut Batch,
        place: (u64, WallTime),
        check: &str,
        text: &str,
    ) -> Result<(), StateError> {
        let (sequence, at) = place;
        for channel in self.channels.clone() {
            if !channel.wants("", "ALARM") {
                continue;
            }
            let alert = Alert {
                id: format!("{}-{check}-{}", self.owner, at.0),
                at,
                job: String::new(),
                run: 0,
                attempt: None,
                word: "ALARM".to_owned(),
                text: text.chars().take(TEXT_LIMIT).collect(),
                step: None,
            };
            let part = AlertPart::Trouble { at, check };
            let key = records::alert_key(&channel.name, sequence, part);
            self.put(batch, &channel.name, key, &alert)?;
        }
        Ok(())
    }

    /// Adds an alert to the batch, if there is room.
    pub(super) fn put(
        &mut self,
        batch: &mut Batch,
        channel: &str,
        key: Vec<u8>,
        alert: &Alert,
    ) -> Result<(), StateError> {
        let waiting = self.waiting.entry(channel.to_owned()).or_default();
        if waiting.len() >= WAITING_LIMIT {
            let dropped = self.dropped.entry(channel.to_owned()).or_default();
            if *dropped == 0 {
                tracing::error!(%channel, "{WAITING_LIMIT} alerts wait for this channel: no more are kept for it");
            }
            *dropped += 1;
            return Ok(());
        }
        let value = records::encode(&key, alert)?;
        batch.put(key.clone(), value)?;
        waiting.insert(key);
        self.is_fresh = true;
        Ok(())
    }

    /// These are delivered, or were given up.
    pub(super) fn forget(&mut self, keys: &[Vec<u8>]) {
        for waiting in self.waiting.values_mut() {
            for key in keys {
                waiting.remove(key);
            }
        }
    }

    /// Deletes where the summaries left a job that goes off the record.
    pub(super) fn forget_job(&mut self, batch: &mut Batch, job: &JobKey) -> Result<(), StateError> {
        for (channel, told) in &mut self.told {
            if told.steps.remove(job).is_some() {
                batch.delete(records::summary_step_key(channel, job))?;
            }
        }
        Ok(())
    }

    /// What was added is durable: those that deliver may look.
    pub(super) fn ring(&mut self) {
        if std::mem::take(&mut self.is_fresh) {
            self.news.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// The id of a channel's summary.
    pub(super) fn summary_id(&self, channel: &str, at: WallTime) -> String {
        format!("{}-summary-{channel}-{}", self.owner, at.0)
    }
}

/// Keys and values below a prefix.
async fn pages(store: &Handle, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>, StateError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.range(prefix, after, PAGE).await?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        after = Some(last.clone());
        found.extend(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::event::{Event, Word};
    use crate::model::alert::{SecretRef, Way};
    use crate::model::ids::JobName;
    use jiff::tz::TimeZone;
    use std::time::Duration;

    fn channel(name: &str, jobs: &str) -> Channel {
        Channel {
            name: name.into(),
            way: Way::Slack { url: SecretRef::Environment("X".into()) },
            jobs: vec![jobs.into()],
            events: vec!["ALARM".into()],
            fold: Duration::ZERO,
            quiet: None,
            summary: None,
            zone: TimeZone::UTC,
        }
    }

    fn stored(sequence: u64, job: &str, word: Word) -> StoredEvent {
        let key = JobKey { name: JobName::new(job).expect("a name"), run: 1 };
        let (at, text) = (WallTime(7), "é".repeat(5_000));
        let data = serde_json::Value::Null;
        StoredEvent { sequence, job: key, event: Event { at, attempt: Some(2), word, text, data } }
    }

    #[test]
    fn an_alert_stands_in_the_batch_of_its_event_for_each_channel_that_wants_it() {
        let owner = Owner::new("k3f9qz").expect("an owner");
        let channels = vec![channel("all", "*"), channel("llama", "llama*")];
        let mut outbox = Outbox::new(&owner, channels);
        let keys = |batch: &Batch| -> Vec<String> {
            batch.changes().map(|(key, _)| String::from_utf8_lossy(key).into_owned()).collect()
        };
        let mut batch = Batch::new();
        outbox.note(&mut batch, &stored(1, "vit", Word::Alarm), None).expect("room");
        outbox.note(&mut batch, &stored(2, "vit", Word::Released), None).expect("room");
        outbox.note(&mut batch, &stored(3, "llama8b", Word::Alarm), Some(9)).expect("room");
        let wanted = ["all/00000000000000000001", "all/00000000000000000003"];
        let wanted = wanted.into_iter().chain(["llama/00000000000000000003"]);
        assert_eq!(keys(&batch), wanted.map(|key| format!("alert/{key}/0")).collect::<Vec<_>>());
        assert_eq!((outbox.waiting("all"), outbox.waiting("llama")), (2, 1));
        // What concerns no job goes to those who are told of all.
        let (mut batch, place) = (Batch::new(), (3, WallTime(9)));
        outbox.note_trouble(&mut batch, place, "target/a/sweep", "silent").expect("room");
        assert_eq!(keys(&batch).len(), 1);
        assert_eq!((outbox.waiting("all"), outbox.waiting("llama")), (3, 1));
        let mut bell = outbox.bell();
        outbox.ring();
        assert!(bell.has_changed().expect("it is there"));
        bell.mark_unchanged();
        outbox.ring();
        assert!(!bell.has_changed().expect("it is there"), "nothing is new");
    }

    #[test]
    fn where_summaries_left_a_job_goes_with_it() {
        let owner = Owner::new("k3f9qz").expect("an owner");
        let mut outbox = Outbox::new(&owner, vec![channel("all", "*"), channel("llama", "llama*")]);
        let (gone, stays) = (stored(1, "a", Word::Alarm).job, stored(1, "b", Word::Alarm).job);
        let told = outbox.told.entry("all".to_owned()).or_default();
        told.steps.extend([(gone.clone(), 5), (stays.clone(), 6)]);
        outbox.told.entry("llama".to_owned()).or_default();
        let mut batch = Batch::new();
        outbox.forget_job(&mut batch, &gone).expect("room");
        let changes: Vec<_> = batch.changes().map(|(key, value)| (key.to_vec(), value)).collect();
        assert_eq!(changes, [(records::summary_step_key("all", &gone), None)]);
        assert_eq!(outbox.told["all"].steps, BTreeMap::from([(stays, 6)]));
    }

    #[test]
    fn what_finds_no_room_is_counted_and_what_is_delivered_makes_room() {
        let owner = Owner::new("k3f9qz").expect("an owner");
        let mut outbox = Outbox::new(&owner, vec![channel("all", "*")]);
        for sequence in 1..=WAITING_LIMIT as u64 + 3 {
            let mut batch = Batch::new();
            outbox.note(&mut batch, &stored(sequence, "a", Word::Alarm), None).expect("a batch");
        }
        assert_eq!((outbox.waiting("all"), outbox.dropped["all"]), (WAITING_LIMIT, 3));
        outbox.forget(&[records::alert_key("all", 1, AlertPart::Event)]);
        assert_eq!(outbox.waiting("all"), WAITING_LIMIT - 1);
    }
}
