//! Delivers the alerts of one channel: one task, one client, one message after the other.
//!
//! What always holds: a message is tried until it is taken or too old, with a back-off; its alerts
//! leave the store only after that. Alerts of one job keep their order. A message that its receiver
//! refuses while it takes others holds up the alerts of its own job only, and is given up after
//! some tries ([`failures`]). A receiver that is down or hangs holds up nobody but itself. After a crash
//! between delivery and commit the same ids are sent once more.
//!
//! It must not write to the store (the driver does), nor wait for the driver while it sends.

mod failures;

use self::failures::{Failures, Then};
use super::driver::chain;
use super::work::Message as Told;
use crate::alerts::{self, DeliveryError, Message, Next, Sent};
use crate::model::alert::{Alert, Channel};
use crate::model::time::{BootTime, Now};
use crate::service::clock::Clock;
use crate::store::{Handle, StoreError, records};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Alerts looked at, and so put into one message, at one time.
const LOOK_LIMIT: usize = 500;
/// An alert that nobody took for so long is given up.
const TOO_OLD: Duration = Duration::from_hours(7 * 24);
/// The longest wait without a look: the boot clock goes on in a suspend, quiet hours end by the wall.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// What came of deliveries in this process, by channel.
#[derive(Debug, Clone, Default)]
pub(super) struct Deliveries(Arc<Mutex<BTreeMap<String, Tally>>>);

/// Of one channel.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) messages: u64,
    pub(super) failures: u64,
    pub(super) given_up: u64,
    /// What keeps alerts from being delivered now.
    pub(super) trouble: Option<Trouble>,
}

/// Deliveries that fail.
#[derive(Debug, Clone)]
pub(super) struct Trouble {
    pub(super) since: BootTime,
    pub(super) text: String,
}

impl Deliveries {
    fn change(&self, channel: &str, change: impl FnOnce(&mut Tally)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(channel.to_owned()).or_default());
    }

    pub(super) fn of(&self, channel: &str) -> Tally {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(channel).cloned().unwrap_or_default()
    }
}

pub(super) struct Courier {
    pub(super) channel: Arc<Channel>,
    pub(super) client: reqwest::Client,
    pub(super) store: Handle,
    pub(super) clock: Clock,
    pub(super) driver: mpsc::Sender<Told>,
    pub(super) news: watch::Receiver<u64>,
    pub(super) deliveries: Deliveries,
}

/// What a courier remembers between two looks.
#[derive(Default)]
struct Memory {
    sent: Sent,
    /// Delivered, and perhaps still in the store.
    done: BTreeSet<Vec<u8>>,
    failures: Failures,
}

impl Courier {
    /// Delivers for as long as the driver lives.
    pub(super) async fn run(mut self) {
        let mut memory = Memory::default();
        loop {
            self.news.mark_unchanged();
            let until = match self.look(&mut memory).await {
                Ok(until) => until,
                // The driver has the store opened again.
                Err(StoreError::Closed) => return,
                Err(_) => None,
            };
            let now = self.clock.now().boot;
            let wait = until.map_or(LONGEST_SLEEP, |at| at.since(now)).min(LONGEST_SLEEP);
            tokio::select! {
                changed = self.news.changed() => {
                    if changed.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Delivers what is due; answers when something is due again by time.
    async fn look(&self, memory: &mut Memory) -> Result<Option<BootTime>, StoreError> {
        let mut is_first = true;
        loop {
            let now = self.clock.now();
            if let Some(at) = memory.failures.not_before(now.boot) {
                return Ok(Some(at));
            }
            let (keys, waiting) = self.waiting(memory, is_first).await?;
            is_first = false;
            let (held, again) = memory.failures.held(now.boot);
            let (message, places) =
                match alerts::next(&self.channel, &waiting, &memory.sent, held, now) {
                    Next::Send(message, places) => (message, places),
                    Next::Later(at) => return Ok(Some(again.map_or(at, |again| again.min(at)))),
                    Next::Nothing => return Ok(again),
                };
            let delivered = alerts::deliver(&self.client, &self.channel, &message, now.wall).await;
            let now = self.clock.now();
            let is_over = match delivered {
                Ok(()) => {
                    self.took(memory, &message, now.boot);
                    true
                }
                Err(error) => self.is_given_up(memory, &message, &error, now),
            };
            let trouble = memory.failures.trouble().map(|(since, text)| Trouble { since, text });
            self.deliveries.change(&self.channel.name, |tally| tally.trouble = trouble);
            if is_over {
                let done: Vec<_> = places.into_iter().map(|place| keys[place].clone()).collect();
                memory.done.extend(done.iter().cloned());
                // A driver that is gone has nobody left to tell.
                drop(self.driver.send(Told::AlertsDone(done)).await);
            }
        }
    }

    fn took(&self, memory: &mut Memory, message: &Message, now: BootTime) {
        if memory.failures.note_taken(job_of(message)) {
            tracing::info!(channel = %self.channel.name, "alerts are delivered again");
        }
        memory.sent.note(message, now);
        self.deliveries.change(&self.channel.name, |tally| tally.messages += 1);
    }

    /// Notes a failure, and answers whether the message is not tried again.
    fn is_given_up(
        &self,
        memory: &mut Memory,
        message: &Message,
        error: &DeliveryError,
        now: Now,
    ) -> bool {
        let (channel, job, why) = (&self.channel.name, job_of(message), chain(error));
        let is_old = message.alerts.iter().all(|alert| now.wall.since(alert.at) > TOO_OLD);
        let of_message = error.is_about_the_message();
        let then = memory.failures.note_failed(job, of_message, is_old, now.boot);
        self.deliveries.change(channel, |tally| tally.failures += 1);
        match then {
            Then::TryAgain { is_first } => {
                if is_first {
                    tracing::warn!(%channel, %job, %why, "an alert was not delivered; it is tried again");
                }
                false
            }
            Then::GiveUp => {
                let alerts = message.alerts.len() as u64;
                self.deliveries.change(channel, |tally| tally.given_up += alerts);
                tracing::error!(%channel, %job, alerts, %why, "alerts that nobody takes are given up");
                true
            }
        }
    }

    /// What waits and was not delivered yet, oldest first. What was delivered before this look and is
    /// still there is told to the driver once more: the store may have failed before it was taken out.
    async fn waiting(
        &self,
        memory: &mut Memory,
        is_first: bool,
    ) -> Result<(Vec<Vec<u8>>, Vec<Alert>), StoreError> {
        let prefix = records::alerts_of(&self.channel.name);
        let limit = LOOK_LIMIT + memory.done.len();
        let found = self.store.range(prefix, None, limit).await?;
        let (mut keys, mut waiting, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for (key, value) in found {
            if memory.done.contains(&key) {
                again.push(key);
            } else if let Ok(alert) = records::decode::<Alert>(&key, &value) {
                keys.push(key);
                waiting.push(alert);
            } else {
                tracing::error!(channel = %self.channel.name, "an alert cannot be read; it is dropped");
                again.push(key);
            }
        }
        memory.done = again.iter().cloned().collect();
        if !again.is_empty() && is_first {
            // No harm where the first telling is still on its way.
            self.driver.try_send(Told::AlertsDone(again)).ok();
        }
        Ok((keys, waiting))
    }
}

/// The job that a message is about; empty for a summary.
fn job_of(message: &Message) -> &str {
    message.alerts.first().map_or("", |alert| alert.job.as_str())
}
