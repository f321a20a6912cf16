//! Whose turn it is to call: a rate for each API of an account, shared fairly.
//!
//! One [`Pace`] is for one account. A turn takes a token of its API's bucket and one of the
//! account's, and a place among the calls under way; who has none of them waits in line.
//!
//! - **Order of service**: [`Rank`], stop first, evidence last. Every [`OLDEST_EVERY`]-th turn goes
//!   to whoever has waited longest instead, so that nobody waits for ever.
//! - **Shares**: within an API the target that was served longest ago is next, so that one target
//!   with a thousand calls never keeps another of the same account waiting.
//! - **Throttled**: the rate of that API is halved and its bucket emptied; `Throttling.User`, which
//!   speaks of the account, does the same to the account's. Calls that were under way at the last
//!   halving do not halve it again. The rate grows back evenly, within [`RECOVERY`].
//! - **Retry-after** closes the API (with `Throttling.User` the account) for as long as the server
//!   asked.
//!
//! What always holds: in any span of t seconds an API gets at most burst + rate · t turns. Nothing
//! here reads a clock, waits, or knows a product.
//!
//! Alibaba publishes no rates for PAI-DLC, only that they count per account. The rates of [`Rank`]
//! are far above what supervision needs; one that is too high for an account corrects itself.

use super::kind::Kind;
use crate::model::time::BootTime;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Turns of an account, all APIs together.
pub const ACCOUNT_RATE: Rate = Rate { per_second: 60, burst: 200 };
/// Time in which a rate grows from nothing to full.
pub const RECOVERY: Duration = Duration::from_mins(10);
/// A halved rate never goes below this part of the full one.
pub const FLOOR_PART: u64 = 64;
/// One turn in so many goes to the one that has waited longest.
pub const OLDEST_EVERY: u64 = 8;
/// Calls of one API that may be under way for one target. A limit of each target, not of the API:
/// one that does not answer must not hold the places of the others.
pub const UNDER_WAY_LIMIT: usize = 8;
/// Calls that may wait for their turn, of one account.
pub const WAITING_LIMIT: usize = 100_000;

/// What a call is for. The order is the order of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Ends what costs money.
    Stop,
    /// Starts work again.
    Create,
    /// Sees all jobs.
    List,
    /// Sees one job.
    Get,
    /// Explains what has ended: events, logs.
    Evidence,
}

impl Rank {
    /// How often an API of this rank may be called by one account.
    pub fn rate(self) -> Rate {
        match self {
            Self::Get => Rate { per_second: 30, burst: 100 },
            Self::Stop | Self::Create | Self::List | Self::Evidence => {
                Rate { per_second: 10, burst: 50 }
            }
        }
    }
}

/// How many turns a bucket gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Turns a second.
    pub per_second: u64,
    /// Turns at once after a pause.
    pub burst: u64,
}

/// An API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Api {
    /// What it is for.
    pub rank: Rank,
    /// Its name, such as `GetJob`.
    pub action: &'static str,
}

/// A place in line. Later ones are larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The line is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{WAITING_LIMIT} calls of this account wait for their turn")]
pub struct LineFull;

/// One turn in a bucket. A rate of 1 a second gives a million of these in a millisecond.
const TURN: u64 = 1_000_000_000;

/// Tokens that come back with time, at a rate that falls at once and rises slowly.
#[derive(Debug)]
struct Bucket {
    full: Rate,
    /// Parts of a [`TURN`].
    tokens: u64,
    /// As of when `tokens` is.
    at: BootTime,
    /// Parts of a turn a millisecond, as of `cut_at`.
    cut_to: u64,
    /// When the rate was last cut.
    cut_at: Option<BootTime>,
    /// Nothing before this.
    closed_until: BootTime,
}

impl Bucket {
    fn new(full: Rate, now: BootTime) -> Self {
        let rate = full.per_second.max(1).saturating_mul(TURN / 1000);
        Self {
            full,
            tokens: full.burst.max(1) * TURN,
            at: now,
            cut_to: rate,
            cut_at: None,
            closed_until: BootTime(0),
        }
    }

    fn full_rate(&self) -> u64 {
        self.full.per_second.max(1).saturating_mul(TURN / 1000)
    }

    /// Parts of a turn a millisecond.
    fn rate(&self, now: BootTime) -> u64 {
        let Some(cut_at) = self.cut_at else { return self.full_rate() };
        let quiet = now.since(cut_at).min(RECOVERY).as_millis();
        let grown = u128::from(self.full_rate()) * quiet / RECOVERY.as_millis();
        self.cut_to.saturating_add(u64::try_from(grown).unwrap_or(u64::MAX)).min(self.full_rate())
    }

    fn refill(&mut self, now: BootTime) {
        let passed = u64::try_from(now.since(self.at).as_millis()).unwrap_or(u64::MAX);
        // The rate at the beginning of the span is its lowest.
        let more = self.rate(self.at).saturating_mul(passed);
        self.tokens = self.tokens.saturating_add(more).min(self.full.burst.max(1) * TURN);
        self.at = self.at.max(now);
    }

    fn has_turn(&self, now: BootTime) -> bool {
        self.tokens >= TURN && now >= self.closed_until
    }

    /// When there is a turn, if nobody else takes one.
    fn ready_at(&self) -> BootTime {
        let lacks = TURN.saturating_sub(self.tokens).div_ceil(self.rate(self.at).max(1));
        self.at.plus(Duration::from_millis(lacks)).max(self.closed_until)
    }

    /// Halves the rate for a call that had its turn at `granted`.
    fn halve(&mut self, granted: BootTime, now: BootTime) {
        self.refill(now);
        self.tokens = 0;
        if self.cut_at.is_some_and(|cut_at| granted <= cut_at) {
            return;
        }
        self.cut_to = (self.rate(now) / 2).max(self.full_rate() / FLOOR_PART);
        self.cut_at = Some(now);
    }

    fn close_for(&mut self, wait: Duration, now: BootTime) {
        self.closed_until = self.closed_until.max(now.plus(wait));
    }
}

/// The line before one API.
#[derive(Debug)]
struct Line<T> {
    bucket: Bucket,
    waiting: BTreeMap<T, VecDeque<Ticket>>,
    /// Every target that was served. They are as many as the daemon has.
    served: BTreeMap<T, Served>,
}

/// What a target had of an API.
#[derive(Debug, Default)]
struct Served {
    /// The number of its last turn.
    last: u64,
    under_way: usize,
}

impl<T: Ord + Clone> Line<T> {
    /// The first call of each target that waits and has room for another one under way.
    fn ready(&self) -> impl Iterator<Item = (Ticket, &T)> {
        self.waiting
            .iter()
            .filter(|(target, _)| self.has_room(target))
            .filter_map(|(target, queue)| Some((*queue.front()?, target)))
    }

    fn has_room(&self, target: &T) -> bool {
        self.served.get(target).is_none_or(|served| served.under_way < UNDER_WAY_LIMIT)
    }

    /// Of the targets that are ready, the one that was served longest ago.
    fn next_target(&self) -> Option<&T> {
        let last = |target: &T| self.served.get(target).map_or(0, |served| served.last);
        self.ready().min_by_key(|(ticket, target)| (last(target), *ticket)).map(|(_, t)| t)
    }

    fn take(&mut self, target: &T, turn: u64) -> Option<Ticket> {
        let queue = self.waiting.get_mut(target)?;
        let ticket = queue.pop_front();
        if queue.is_empty() {
            self.waiting.remove(target);
        }
        let served = self.served.entry(target.clone()).or_default();
        served.last = turn;
        served.under_way += 1;
        ticket
    }
}

/// What an answer says about the pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard<'a> {
    /// The answer's code; empty for a good one.
    pub code: &'a str,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
}

/// The pace of one account; `T` tells its targets apart.
#[derive(Debug)]
pub struct Pace<T> {
    account: Bucket,
    lines: BTreeMap<Api, Line<T>>,
    waiting: usize,
    tickets: u64,
    turns: u64,
}

impl<T: Ord + Clone> Pace<T> {
    /// A pace at the full rates.
    pub fn new(now: BootTime) -> Self {
        let account = Bucket::new(ACCOUNT_RATE, now);
        Self { account, lines: BTreeMap::new(), waiting: 0, tickets: 0, turns: 0 }
    }

    fn line(&mut self, api: Api, now: BootTime) -> &mut Line<T> {
        self.lines.entry(api).or_insert_with(|| Line {
            bucket: Bucket::new(api.rank.rate(), now),
            waiting: BTreeMap::new(),
            served: BTreeMap::new(),
        })
    }

    /// Stands in line for a call of `api` for `target`.
    ///
    /// # Errors
    /// [`WAITING_LIMIT`] calls wait already.
    pub fn ask(&mut self, api: Api, target: T, now: BootTime) -> Result<Ticket, LineFull> {
        if self.waiting >= WAITING_LIMIT {
            return Err(LineFull);
        }
        self.waiting += 1;
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.line(api, now).waiting.entry(target).or_default().push_back(ticket);
        Ok(ticket)
    }

    /// Leaves the line without a turn; nothing if it had one or never stood there.
    pub fn leave(&mut self, api: Api, target: &T, ticket: Ticket) {
        let Some(line) = self.lines.get_mut(&api) else { return };
        let Some(queue) = line.waiting.get_mut(target) else { return };
        let Ok(at) = queue.binary_search(&ticket) else { return };
        queue.remove(at);
        self.waiting -= 1;
        if queue.is_empty() {
            line.waiting.remove(target);
        }
    }

    /// Gives the next turn, if somebody waits for one that there is. Each has to be given back with
    /// [`Pace::done`].
    pub fn next(&mut self, now: BootTime) -> Option<Ticket> {
        self.account.refill(now);
        if !self.account.has_turn(now) {
            return None;
        }
        for line in self.lines.values_mut() {
            line.bucket.refill(now);
        }
        let turn = self.turns + 1;
        let (api, target) = self.choose(turn, now)?;
        let line = self.lines.get_mut(&api)?;
        let ticket = line.take(&target, turn)?;
        line.bucket.tokens -= TURN;
        self.account.tokens -= TURN;
        self.turns = turn;
        self.waiting -= 1;
        Some(ticket)
    }

    fn choose(&self, turn: u64, now: BootTime) -> Option<(Api, T)> {
        let open = self.lines.iter().filter(|(_, line)| line.bucket.has_turn(now));
        if turn.is_multiple_of(OLDEST_EVERY) {
            let ready = open.flat_map(|(api, line)| line.ready().map(|first| (first, *api)));
            let ((_, target), api) = ready.min_by_key(|((ticket, _), _)| *ticket)?;
            return Some((api, target.clone()));
        }
        let mut ready = open.filter_map(|(api, line)| Some((*api, line.next_target()?.clone())));
        ready.next()
    }

    /// When the next turn comes by time alone; `None` if nobody waits, or all who do wait for calls
    /// that are under way.
    pub fn ready_at(&self) -> Option<BootTime> {
        let lines = self.lines.values().filter(|line| line.ready().next().is_some());
        lines.map(|line| line.bucket.ready_at().max(self.account.ready_at())).min()
    }

    /// A call for `target` is no longer under way.
    pub fn done(&mut self, api: Api, target: &T) {
        let served = self.lines.get_mut(&api).and_then(|line| line.served.get_mut(target));
        if let Some(served) = served {
            served.under_way = served.under_way.saturating_sub(1);
        }
    }

    /// What was answered to a call of `api` that had its turn at `granted`.
    pub fn heard(&mut self, api: Api, granted: BootTime, heard: Heard<'_>, now: BootTime) {
        let throttled = Kind::of_code(heard.code) == Kind::Throttled;
        if throttled {
            self.line(api, now).bucket.halve(granted, now);
        }
        if let Some(wait) = heard.retry_after {
            self.line(api, now).bucket.close_for(wait, now);
        }
        if heard.code.starts_with("Throttling.User") {
            self.account.halve(granted, now);
            self.account.close_for(heard.retry_after.unwrap_or_default(), now);
        }
    }

    /// Turns a second that `api` has now, in thousandths.
    pub fn rate_of(&mut self, api: Api, now: BootTime) -> u64 {
        self.line(api, now).bucket.rate(now) / 1_000
    }
}

#[cfg(test)]
mod tests;
