//! The hold of a start that follows on several that came to nothing: questions are answered, the
//! reason stands everywhere and goes out as an alarm, nothing else is done. See
//! [`crate::service::starts`].
//!
//! What always holds: nothing of a job is decided or committed in a hold, and what is committed for
//! alerts alone is no proof of the start.

use super::driver::Driver;
use super::place::PlaceState;
use super::work::{Message, Work};
use crate::model::handle::{Refusal, Request};
use crate::service::starts::{HOLD_LASTS, Starts};
use std::collections::VecDeque;
use std::time::Duration;

/// The loop looks up at least this often.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// What an alarm of a hold is about, where others name a check.
const TROUBLE: &str = "starts";

impl Driver {
    /// Counts this start, and learns from the count whether to hold.
    pub(super) fn note_start(&mut self, starts: Starts) {
        self.held = starts.hold();
        self.starts = Some(starts);
    }

    /// Answers questions and nothing else, until the hold is over.
    pub(super) async fn hold(&mut self) {
        let Some(why) = self.held.clone() else { return };
        let text = format!("nothing is looked at and nothing is submitted: {why}");
        tracing::error!(event = "ALARM", "{text}");
        let now = self.clock.now();
        let until = now.boot.plus(HOLD_LASTS);
        if self.starts.as_ref().is_some_and(Starts::is_hold_told) {
            self.commit_alerts(Work::Trouble { at: now.wall, name: TROUBLE.to_owned(), text })
                .await;
        }
        while self.held.is_some() && !self.is_asked_to_stop() {
            self.beat();
            let left = until.since(self.clock.now().boot);
            if left.is_zero() {
                self.end_hold("it has lasted long enough");
                return;
            }
            let left = left.min(self.longest_sleep(LONGEST_SLEEP));
            tokio::select! {
                Some(message) = self.lines.messages.recv() => self.take_in_hold(message).await,
                Some(request) = self.lines.requests.recv() => self.answer_from_memory(request),
                _ = self.lines.stop.changed() => {}
                () = tokio::time::sleep(left) => {}
            }
        }
    }

    /// Commits what concerns alerts alone. What waits for the jobs goes on waiting.
    async fn commit_alerts(&mut self, work: Work) {
        let mut waiting = std::mem::replace(&mut self.pending, VecDeque::from([work]));
        // Every start that holds would prove itself, and none after it would hold.
        let starts = self.starts.take();
        let done = self.turn().await;
        self.starts = starts;
        self.pending.append(&mut waiting);
        if let Err(error) = done {
            self.recover(&error).await;
        }
    }

    async fn take_in_hold(&mut self, message: Message) {
        match message {
            Message::Reload { config, done } => {
                self.take_config(config);
                // Whoever asked may have stopped waiting.
                let _ = done.send(());
            }
            Message::Dump => self.dump(),
            // Alerts go out in a hold too.
            Message::AlertsDone(keys) => self.commit_alerts(Work::AlertsDone(keys)).await,
            // Nobody looks yet; what comes in any case is looked at again after the hold.
            Message::Input(..)
            | Message::Looked(..)
            | Message::Swept(_)
            | Message::Files(_)
            | Message::LookedUp(..)
            | Message::Gathered(_) => {}
        }
    }

    pub(super) fn end_hold(&mut self, why: &str) {
        if self.held.take().is_some() {
            tracing::warn!("the hold is over: {why}");
        }
    }

    /// Something was committed, or the daemon ends as it should: this start came to something.
    pub(super) fn prove_start(&mut self) {
        if let Some(starts) = self.starts.take() {
            starts.prove();
        }
    }

    /// The same where every place was compared with the store and there was nothing to commit.
    pub(super) fn prove_start_if_all_is_seen(&mut self) {
        let seen = |place| self.book.places.get(place).is_some_and(PlaceState::verified);
        if self.starts.is_some() && self.book.wanted_places().iter().all(seen) {
            self.prove_start();
        }
    }

    /// Why what needs the store or the cloud cannot be done now.
    pub(super) fn refusal(&self) -> Refusal {
        match &self.held {
            Some(why) => Refusal::NotNow(why.clone()),
            None => Refusal::StoreDown(self.store_fault.clone().unwrap_or_default()),
        }
    }

    /// Answers a request that needs the store or the cloud while neither is to be had.
    pub(super) fn refuse(&self, request: Request) {
        let why = self.refusal();
        match request {
            Request::Act { reply, .. } => drop(reply.send(Err(why))),
            Request::Adopt { reply, .. } => drop(reply.send(Err(why))),
            Request::Evidence { reply, .. } => drop(reply.send(Err(why))),
            Request::Logs { reply, .. } => drop(reply.send(Err(why))),
            Request::Checkpoints { reply, .. } => drop(reply.send(Err(why))),
            // These are answered from memory.
            Request::Jobs(_)
            | Request::Job { .. }
            | Request::Why { .. }
            | Request::Events { .. }
            | Request::Body { .. }
            | Request::Ready(_)
            | Request::Metrics(_)
            | Request::Daemon(_) => {}
        }
    }
}
