//! `[waiting]`: how long an attempt may wait in a phase before it runs, and what is done then.

use super::money::Money;
use super::spec::Bid;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most that a bid is raised to where the job file does not say: the highest step that is offered.
pub const HIGHEST_DISCOUNT: Money = Money(900_000);
/// The lowest step that is offered.
pub const LOWEST_DISCOUNT: Money = Money(100_000);
/// Steps of a bid in the whole list price. Where that is not known, in the limit of the job file.
const STEPS: u64 = 10;
/// Minutes of the hour that list prices are for.
const MINUTES: u64 = 60;

/// Where an attempt waits before its UserCommand runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitPhase {
    /// `Creating` and `Queuing`: for a place in the queue, a machine, or the price.
    Queuing,
    /// `Bidding`: for the price.
    Bidding,
    /// `EnvPreparing`, `SanityChecking`, `Restarting`: it has machines, and they are made ready.
    Preparing,
}

impl WaitPhase {
    /// The word in job files and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Queuing => "queuing",
            Self::Bidding => "bidding",
            Self::Preparing => "preparing",
        }
    }
}

/// What is done about a wait that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitAct {
    /// A person is told.
    Notify,
    /// It is stopped, and submitted again with a bid that is one step higher.
    RaiseBid,
    /// It is stopped, and submitted again as the next of `[[placements]]` asks.
    NextPlacement,
    /// It is stopped, and the job has failed.
    Fail,
}

impl WaitAct {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Notify, Self::RaiseBid, Self::NextPlacement, Self::Fail];

    /// The word in job files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Notify => "notify",
            Self::RaiseBid => "raise_bid",
            Self::NextPlacement => "next_placement",
            Self::Fail => "fail",
        }
    }
}

/// The limit of one phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitLimit {
    /// How long an attempt may wait there.
    pub after: Duration,
    /// What is done then, the first that can be done at that moment.
    pub then: Vec<WaitAct>,
}

/// `[waiting]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// The limit while queuing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queuing: Option<WaitLimit>,
    /// The limit while bidding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bidding: Option<WaitLimit>,
    /// The limit while its machines are made ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preparing: Option<WaitLimit>,
    /// The most that a bid is raised to, as a share of the list price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_discount: Option<Money>,
    /// The same for a price limit, CNY a node and minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_price_per_minute: Option<Money>,
}

impl Waiting {
    /// Whether the job file asks for nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The limit of a phase, if it has one.
    pub fn limit(&self, phase: WaitPhase) -> Option<&WaitLimit> {
        match phase {
            WaitPhase::Queuing => self.queuing.as_ref(),
            WaitPhase::Bidding => self.bidding.as_ref(),
            WaitPhase::Preparing => self.preparing.as_ref(),
        }
    }

    /// Whether some phase asks for `act`.
    pub fn asks_for(&self, act: WaitAct) -> bool {
        let limits = [&self.queuing, &self.bidding, &self.preparing];
        limits.into_iter().flatten().any(|limit| limit.then.contains(&act))
    }

    /// The most that a bid like `bid` may be raised to. `None` for a price limit where neither a
    /// highest price nor the list price is known.
    pub fn cap(&self, bid: Bid, list_price_per_hour: Option<Money>) -> Option<Bid> {
        let share = self.max_discount.unwrap_or(HIGHEST_DISCOUNT);
        match bid {
            Bid::Discount(_) => Some(Bid::Discount(share)),
            Bid::PricePerMinute(_) => {
                let of_list = |list: Money| {
                    let whole = u64::try_from(Money::ONE.0).unwrap_or_default();
                    list.share(u64::try_from(share.0).unwrap_or_default(), whole * MINUTES)
                };
                let price = self.max_price_per_minute.or(list_price_per_hour.map(of_list))?;
                Some(Bid::PricePerMinute(price))
            }
        }
    }

    /// `bid`, one step higher and never above the cap; `None` where it cannot be raised. A step is a
    /// tenth of the list price. Where that is not known, a tenth of `own`, the job file's own limit.
    pub fn raised(
        &self,
        bid: Bid,
        own: Option<Bid>,
        list_price_per_hour: Option<Money>,
    ) -> Option<Bid> {
        let cap = self.cap(bid, list_price_per_hour)?;
        let next = match (bid, cap) {
            (Bid::Discount(now), Bid::Discount(most)) if now < most => {
                Bid::Discount(Money(now.0 + Money::ONE.share(1, STEPS).0).min(most))
            }
            (Bid::PricePerMinute(now), Bid::PricePerMinute(most)) if now < most => {
                let step = match (list_price_per_hour, own) {
                    (Some(list), _) => list.share(1, STEPS * MINUTES),
                    (None, Some(Bid::PricePerMinute(limit))) => limit.share(1, STEPS),
                    (None, Some(Bid::Discount(_)) | None) => now.share(1, STEPS),
                };
                // A step too small to be counted would never end.
                let step = step.0.max(1);
                Bid::PricePerMinute(Money(now.0.saturating_add(step)).min(most))
            }
            (Bid::Discount(_) | Bid::PricePerMinute(_), _) => return None,
        };
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(text: &str) -> Money {
        Money::parse(text).expect(text)
    }

    fn discount(text: &str) -> Bid {
        Bid::Discount(money(text))
    }

    fn price(text: &str) -> Bid {
        Bid::PricePerMinute(money(text))
    }

    /// Every bid from `first` on.
    fn course(waiting: &Waiting, first: Bid, list: Option<Money>) -> Vec<Bid> {
        let mut bids = vec![first];
        while let Some(next) = waiting.raised(bids[bids.len() - 1], Some(first), list) {
            bids.push(next);
            assert!(bids.len() < 100, "{bids:?}");
        }
        bids
    }

    #[test]
    fn a_discount_goes_up_by_tenths_and_stops_at_its_most() {
        let waiting = Waiting { max_discount: Some(money("0.7")), ..Waiting::default() };
        let steps = ["0.4", "0.5", "0.6", "0.7"].map(discount);
        assert_eq!(course(&waiting, discount("0.4"), None), steps);
        assert_eq!(course(&waiting, discount("0.65"), None), ["0.65", "0.7"].map(discount));
        assert_eq!(course(&waiting, discount("0.7"), None), [discount("0.7")]);
        assert_eq!(course(&waiting, discount("0.9"), None), [discount("0.9")], "never lowered");
        let open = Waiting::default();
        assert_eq!(course(&open, discount("0.8"), None), ["0.8", "0.9"].map(discount));
    }

    #[test]
    fn a_price_goes_up_by_tenths_of_the_list_price_where_that_is_known() {
        let waiting = Waiting { max_discount: Some(money("0.6")), ..Waiting::default() };
        // 36 CNY an hour is 0.6 a minute.
        let list = Some(money("36"));
        let steps = ["0.24", "0.3", "0.36"].map(price);
        assert_eq!(course(&waiting, price("0.24"), list), steps);
        let waiting = Waiting { max_price_per_minute: Some(money("0.29")), ..Waiting::default() };
        assert_eq!(course(&waiting, price("0.24"), list), ["0.24", "0.29"].map(price));
    }

    #[test]
    fn a_price_goes_up_by_tenths_of_its_own_where_no_list_price_is_known() {
        let waiting = Waiting { max_price_per_minute: Some(money("0.014")), ..Waiting::default() };
        let steps = ["0.011", "0.0121", "0.0132", "0.014"].map(price);
        assert_eq!(course(&waiting, price("0.011"), None), steps);
        assert_eq!(course(&Waiting::default(), price("0.011"), None), [price("0.011")], "no cap");
        let tiny = Waiting { max_price_per_minute: Some(Money(4)), ..Waiting::default() };
        assert_eq!(course(&tiny, Bid::PricePerMinute(Money(2)), None).len(), 3);
    }
}
