//! Delivers the alerts of one channel: one task, one client, one message after the other.
//!
//! What always holds: a message is tried until it is taken or too old, in order, with a back-off; its
//! alerts leave the store only after that. A receiver that is down or hangs holds up nobody but
//! itself. After a crash between delivery and commit the same ids are sent once more.
//!
//! It must not write to the store (the driver does), nor wait for the driver while it sends.

use super::driver::chain;
use super::work::Message as Told;
use crate::alerts::{self, DeliveryError, Message, Next, Sent};
use crate::core::retry;
use crate::model::alert::{Alert, Channel};
use crate::model::time::BootTime;
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
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) messages: u64,
    pub(super) failures: u64,
    pub(super) given_up: u64,
}

impl Deliveries {
    fn change(&self, channel: &str, change: impl FnOnce(&mut Tally)) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(channel.to_owned()).or_default());
    }

    pub(super) fn of(&self, channel: &str) -> Tally {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(channel).copied().unwrap_or_default()
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
    /// Tries in a row that failed.
    failures: u32,
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
            if memory.failures > 0 {
                // Something new must not shorten the wait for a receiver that is down.
                tokio::time::sleep(wait).await;
                continue;
            }
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
            let (keys, waiting) = self.waiting(memory, is_first).await?;
            is_first = false;
            let now = self.clock.now();
            let (message, places) = match alerts::next(&self.channel, &waiting, &memory.sent, now) {
                Next::Send(message, places) => (message, places),
                Next::Later(at) => return Ok(Some(at)),
                Next::Nothing => return Ok(None),
            };
            let delivered = alerts::deliver(&self.client, &self.channel, &message, now.wall).await;
            let now = self.clock.now();
            let is_old = message.alerts.iter().all(|alert| now.wall.since(alert.at) > TOO_OLD);
            match delivered {
                Ok(()) => self.took(memory, &message, now.boot),
                Err(error) => {
                    self.failed(memory, &message, &error, is_old);
                    if !is_old {
                        return Ok(Some(now.boot.plus(retry::after_fault(memory.failures))));
                    }
                }
            }
            let done: Vec<_> = places.into_iter().map(|place| keys[place].clone()).collect();
            memory.done.extend(done.iter().cloned());
            // A driver that is gone has nobody left to tell.
            drop(self.driver.send(Told::AlertsDone(done)).await);
        }
    }

    fn took(&self, memory: &mut Memory, message: &Message, now: BootTime) {
        if memory.failures > 0 {
            tracing::info!(channel = %self.channel.name, "alerts are delivered again");
        }
        memory.failures = 0;
        memory.sent.note(message, now);
        self.deliveries.change(&self.channel.name, |tally| tally.messages += 1);
    }

    fn failed(&self, memory: &mut Memory, message: &Message, error: &DeliveryError, is_old: bool) {
        let (channel, why) = (&self.channel.name, chain(error));
        memory.failures = memory.failures.saturating_add(1);
        self.deliveries.change(channel, |tally| tally.failures += 1);
        if is_old {
            let alerts = message.alerts.len() as u64;
            self.deliveries.change(channel, |tally| tally.given_up += alerts);
            tracing::error!(%channel, alerts, %why, "alerts that nobody took for 7 days are given up");
        } else if memory.failures == 1 {
            tracing::warn!(%channel, %why, "an alert was not delivered; it is tried again");
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
