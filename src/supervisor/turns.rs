//! Each call waits for its turn before it is signed: [`Pace`] with a clock and tasks that wait.
//!
//! An account is a credential *reference*, not a key: keys of a role change every hour, and with
//! each change a pace by key would forget that it was throttled; and a turn is waited for before
//! the keys are looked up, so that a call is signed with those of its own moment. Two references to
//! one account keep two paces; each is throttled, and slows down, by itself.
//!
//! What always holds: a turn that is dropped is given back; a call that waits was not sent. Must
//! not: send anything, or know what a call is for beyond its rank.

use crate::model::spec::{CredentialsRef, Place};
use crate::model::time::{BootTime, WallTime};
use crate::openapi::pace::{Api, Heard, LineFull, Pace, Rank, Ticket};
use crate::service::clock::Clock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

pub(super) const STOP_JOB: Api = Api { rank: Rank::Stop, action: "StopJob" };
pub(super) const CREATE_JOB: Api = Api { rank: Rank::Create, action: "CreateJob" };
pub(super) const LIST_JOBS: Api = Api { rank: Rank::List, action: "ListJobs" };
pub(super) const GET_JOB: Api = Api { rank: Rank::Get, action: "GetJob" };
pub(super) const GET_POD_LOGS: Api = Api { rank: Rank::Evidence, action: "GetPodLogs" };
pub(super) const GET_JOB_EVENTS: Api = Api { rank: Rank::Evidence, action: "GetJobEvents" };
pub(super) const GET_POD_EVENTS: Api = Api { rank: Rank::Evidence, action: "GetPodEvents" };

/// The longest that the task which gives turns sleeps without looking.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Time until a call asks again where the line is full.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// The turns of every account. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Turns {
    clock: Clock,
    accounts: Arc<Mutex<BTreeMap<CredentialsRef, Arc<Account>>>>,
}

#[derive(Debug)]
struct Account {
    line: Mutex<Waiting>,
    /// Somebody came, or a turn was given back: the next turn may be nearer than it was.
    news: Notify,
}

#[derive(Debug)]
struct Waiting {
    pace: Pace<Place>,
    callers: BTreeMap<Ticket, Caller>,
    usher: Usher,
}

/// Somebody who waits.
#[derive(Debug)]
struct Caller {
    api: Api,
    place: Place,
    /// A turn that nobody takes any more is dropped, and so given back.
    turn: oneshot::Sender<Turn>,
}

/// A place in line, left when this is dropped.
#[derive(Debug)]
struct Standing {
    account: Arc<Account>,
    ticket: Ticket,
}

/// The task that gives turns as time brings them.
#[derive(Debug, PartialEq, Eq)]
enum Usher {
    /// None: nobody waits.
    Away,
    /// One is at work.
    There,
}

/// A call may be made now. Held until its answer is there.
#[derive(Debug)]
pub(super) struct Turn {
    account: Arc<Account>,
    clock: Clock,
    api: Api,
    place: Place,
    granted: BootTime,
}

impl Account {
    fn line(&self) -> MutexGuard<'_, Waiting> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives every turn that there is now; answers when the next one comes by time.
    fn give(self: &Arc<Self>, clock: &Clock) -> Option<BootTime> {
        let granted = clock.now().boot;
        let mut given = Vec::new();
        let mut line = self.line();
        while let Some(ticket) = line.pace.next(granted) {
            given.extend(line.callers.remove(&ticket));
        }
        let next = line.pace.ready_at();
        // A turn that comes back takes the lock.
        drop(line);
        for Caller { api, place, turn } in given {
            let (account, clock) = (Arc::clone(self), clock.clone());
            drop(turn.send(Turn { account, clock, api, place, granted }));
        }
        next
    }

    /// Gives turns until nobody waits.
    async fn run(self: Arc<Self>, clock: Clock) {
        loop {
            let next = self.give(&clock);
            if self.leave_if_idle() {
                return;
            }
            let wait = next.map_or(LONGEST_WAIT, |at| at.since(clock.now().boot));
            tokio::select! {
                () = tokio::time::sleep(wait.min(LONGEST_WAIT)) => {}
                () = self.news.notified() => {}
            }
        }
    }

    fn leave_if_idle(&self) -> bool {
        let mut line = self.line();
        if line.callers.is_empty() {
            line.usher = Usher::Away;
        }
        line.usher == Usher::Away
    }
}

impl Turns {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, accounts: Arc::default() }
    }

    fn account(&self, place: &Place) -> Arc<Account> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        let account = accounts.entry(place.credentials.clone()).or_insert_with(|| {
            let line = Waiting {
                pace: Pace::new(self.clock.now().boot),
                callers: BTreeMap::new(),
                usher: Usher::Away,
            };
            Arc::new(Account { line: Mutex::new(line), news: Notify::new() })
        });
        Arc::clone(account)
    }

    /// Waits until `api` may be called at `place`. Who stops waiting leaves the line.
    pub(super) async fn take(&self, api: Api, place: &Place) -> Turn {
        let account = self.account(place);
        loop {
            let (turn, given) = oneshot::channel();
            let caller = Caller { api, place: place.clone(), turn };
            let standing = self.stand_in_line(&account, caller);
            if standing.is_ok()
                && let Ok(turn) = given.await
            {
                return turn;
            }
            tokio::time::sleep(FULL_PAUSE).await;
        }
    }

    fn stand_in_line(&self, account: &Arc<Account>, caller: Caller) -> Result<Standing, LineFull> {
        let mut line = account.line();
        let now = self.clock.now().boot;
        let ticket = line.pace.ask(caller.api, caller.place.clone(), now)?;
        line.callers.insert(ticket, caller);
        drop(line);
        let standing = Standing { account: Arc::clone(account), ticket };
        account.give(&self.clock);
        let mut line = account.line();
        if line.usher == Usher::Away && !line.callers.is_empty() {
            line.usher = Usher::There;
            tokio::spawn(Arc::clone(account).run(self.clock.clone()));
        }
        drop(line);
        account.news.notify_one();
        Ok(standing)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut line = self.account.line();
        if let Some(Caller { api, place, .. }) = line.callers.remove(&self.ticket) {
            line.pace.leave(api, &place, self.ticket);
        }
    }
}

impl Turn {
    /// The time to sign with: now, not when the waiting began.
    pub(super) fn wall(&self) -> WallTime {
        self.clock.now().wall
    }

    /// Where the call goes.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// The call.
    pub(super) fn action(&self) -> &'static str {
        self.api.action
    }

    /// What was answered.
    pub(super) fn heard(&self, code: &str, retry_after: Option<Duration>) {
        let mut line = self.account.line();
        let heard = Heard { code, retry_after };
        line.pace.heard(self.api, self.granted, heard, self.clock.now().boot);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.account.line().pace.done(self.api, &self.place);
        self.account.news.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::pace::UNDER_WAY_LIMIT;
    use futures_util::FutureExt as _;

    fn place(workspace: &str) -> Place {
        Place {
            region: "r".into(),
            workspace: workspace.into(),
            endpoint: "e".into(),
            storage: None,
            credentials: CredentialsRef::Environment,
        }
    }

    #[tokio::test]
    async fn a_turn_is_given_back_when_it_is_dropped_or_when_nobody_takes_it() {
        let turns = Turns::new(Clock::new());
        let (here, there) = (place("1"), place("2"));
        let mut held = Vec::new();
        for _ in 0..UNDER_WAY_LIMIT {
            held.push(turns.take(GET_JOB, &here).await);
        }
        // Those that give up while they wait take nothing with them.
        for _ in 0..1_000 {
            assert!(turns.take(GET_JOB, &here).now_or_never().is_none());
        }
        // Another target, and another call, do not wait for this one.
        drop(turns.take(GET_JOB, &there).await);
        drop(turns.take(STOP_JOB, &here).await);
        let waiting = tokio::spawn({
            let turns = turns.clone();
            let here = here.clone();
            async move { turns.take(GET_JOB, &here).await.action() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        held.clear();
        assert_eq!(waiting.await.expect("a turn"), "GetJob");
        for _ in 0..3 * UNDER_WAY_LIMIT {
            drop(turns.take(GET_JOB, &here).await);
        }
    }

    #[tokio::test]
    async fn more_calls_than_the_burst_all_come_through_in_time() {
        let turns = Turns::new(Clock::new());
        let burst = STOP_JOB.rank.rate().burst;
        let calls = (0..burst + 3).map(|n| {
            let (turns, place) = (turns.clone(), place(if n % 2 == 0 { "1" } else { "2" }));
            tokio::spawn(async move { drop(turns.take(STOP_JOB, &place).await) })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.expect("its turn came");
        }
        // Closed by the server, it opens again by itself.
        let turn = turns.take(STOP_JOB, &place("1")).await;
        turn.heard("Throttling.Api", Some(Duration::from_millis(50)));
        drop(turn);
        drop(turns.take(STOP_JOB, &place("1")).await);
    }
}
