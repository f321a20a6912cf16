//! The spot market: the price of the moment as a fraction of the list price, and whether there is
//! stock at all.
//!
//! A waiting spot job starts only while the market is at or below its bid and has stock; a running
//! one is released when that ends. Time is the time since the emulator started, passed in. A
//! person may set price or stock by hand; that holds until it is taken back.

use super::random::Random;
use super::script::{Script, ScriptError};
use super::trace::{Trace, TraceError, TraceSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

/// The market at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quote {
    /// Price as a fraction of list: 0.3 is 30 % of list.
    pub discount: f64,
    /// Whether a machine can be had.
    pub stock: bool,
    /// How many machines one job can have at most, where the market knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<u64>,
}

/// A bid: the most that is paid, as a fraction of list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bid(pub f64);

/// Differences below this are rounding (0.011 of 0.0275 is 0.4), not a price.
const PRICE_GRAIN: f64 = 1e-9;

impl Quote {
    /// A price with or without stock, for jobs of any size.
    pub const fn new(discount: f64, stock: bool) -> Self {
        Self { discount, stock, machines: None }
    }

    /// Whether `count` machines are to be had, or kept, for `bid` each.
    pub fn serves(&self, bid: Bid, count: usize) -> bool {
        self.has(count) && self.discount <= bid.0 + PRICE_GRAIN
    }

    /// Whether there are `count` machines, at whatever price.
    pub fn has(&self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.stock && self.machines.is_none_or(|machines| machines >= count)
    }
}

/// Where prices come from, as given by `--market`.
#[derive(Debug, Clone, PartialEq)]
pub enum MarketSpec {
    /// `constant:0.3`: one price, always stock.
    Constant(f64),
    /// `script:FILE`: JSON lines, see [`super::script`].
    Script(PathBuf),
    /// `seed:N`: a walk that the seed decides.
    Seed(u64),
    /// `trace:FILE`: a recording, see [`super::trace`].
    Trace(TraceSpec),
}

/// Why a market cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum MarketError {
    /// The text is no market.
    #[error(
        "`{0}` is no market: constant:FRACTION (0 to 10), script:FILE, seed:N or \
         trace:FILE[,id=NAME][,speed=FACTOR]"
    )]
    Unknown(String),
    /// The script cannot be used.
    #[error("market script")]
    Script(#[source] ScriptError),
    /// The trace cannot be used.
    #[error("market trace")]
    Trace(#[source] TraceError),
}

impl std::str::FromStr for MarketSpec {
    type Err = MarketError;

    fn from_str(text: &str) -> Result<Self, MarketError> {
        let unknown = || MarketError::Unknown(text.to_owned());
        match text.split_once(':') {
            Some(("constant", price)) => price
                .parse()
                .ok()
                .filter(|price| (0.0..=10.0).contains(price))
                .map(Self::Constant)
                .ok_or_else(unknown),
            Some(("script", file)) if !file.is_empty() => Ok(Self::Script(file.into())),
            Some(("seed", seed)) => seed.parse().map(Self::Seed).map_err(|_| unknown()),
            Some(("trace", rest)) => rest.parse().map(Self::Trace).map_err(|()| unknown()),
            _ => Err(unknown()),
        }
    }
}

/// A release that the market's script asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseOrder {
    /// Which line of the script.
    pub order: usize,
    /// Part of the display name of the jobs to release; `*` is every job.
    pub name_part: String,
    /// The file whose being there set it off.
    pub witness: Option<String>,
}

/// The market while it runs.
#[derive(Debug)]
pub struct Market {
    source: Source,
    by_hand: ByHand,
    last: Option<Quote>,
    /// Each price that was quoted, with the moment from which on it was.
    prices: VecDeque<(Duration, f64)>,
}

/// Changes of the price that are remembered.
const PRICES_LIMIT: usize = 100_000;

#[derive(Debug)]
enum Source {
    Constant(f64),
    Script(Script),
    Walk(Walk),
    Trace(Trace),
}

/// What a person has set; what is left out follows the source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByHand {
    /// Price as a fraction of list.
    pub discount: Option<f64>,
    /// Whether there is stock.
    pub stock: Option<bool>,
}

impl Market {
    /// Opens the market that `spec` names.
    ///
    /// # Errors
    /// [`MarketError::Script`] when its script cannot be read.
    pub fn open(spec: &MarketSpec) -> Result<Self, MarketError> {
        let source = match spec {
            MarketSpec::Constant(price) => Source::Constant(*price),
            MarketSpec::Script(file) => {
                Source::Script(Script::load(file).map_err(MarketError::Script)?)
            }
            MarketSpec::Seed(seed) => Source::Walk(Walk::new(*seed)),
            MarketSpec::Trace(spec) => {
                Source::Trace(Trace::load(spec).map_err(MarketError::Trace)?)
            }
        };
        Ok(Self { source, by_hand: ByHand::default(), last: None, prices: VecDeque::new() })
    }

    /// The market `at` this time after the start. Times must not go back.
    pub fn quote(&mut self, at: Duration) -> Quote {
        let from_source = match &mut self.source {
            Source::Constant(price) => Quote::new(*price, true),
            Source::Script(script) => {
                script.look(at);
                script.quote(at)
            }
            Source::Walk(walk) => walk.quote(at),
            Source::Trace(trace) => trace.quote(at),
        };
        let quote = Quote {
            discount: self.by_hand.discount.unwrap_or(from_source.discount),
            stock: self.by_hand.stock.unwrap_or(from_source.stock),
            machines: match self.by_hand.stock {
                Some(true) => None,
                Some(false) | None => from_source.machines,
            },
        };
        if self.last.is_none_or(|last| last.discount.to_bits() != quote.discount.to_bits()) {
            if self.prices.len() == PRICES_LIMIT {
                self.prices.pop_front();
            }
            self.prices.push_back((at, quote.discount));
        }
        self.last = Some(quote);
        quote
    }

    /// The prices from `from` until `to`, each with the moment at which it was first quoted, the
    /// oldest first; the first one may have held before.
    pub fn history(&self, from: Duration, to: Duration) -> Vec<(Duration, f64)> {
        let after = self.prices.partition_point(|(at, _)| *at <= from);
        let prices = self.prices.iter().skip(after.saturating_sub(1));
        prices.take_while(|(at, _)| *at <= to).copied().collect()
    }

    /// What [`Market::quote`] said last.
    pub fn last_quote(&self) -> Option<Quote> {
        self.last
    }

    /// Releases that the script asks for now. An order stands until [`Market::carried_out`].
    pub fn orders(&self, at: Duration) -> Vec<ReleaseOrder> {
        match &self.source {
            Source::Constant(_) | Source::Walk(_) | Source::Trace(_) => Vec::new(),
            Source::Script(script) => script.orders(at),
        }
    }

    /// A job was released for `order`.
    pub fn carried_out(&mut self, order: &ReleaseOrder) {
        match &mut self.source {
            Source::Constant(_) | Source::Walk(_) | Source::Trace(_) => {}
            Source::Script(script) => script.carried_out(order),
        }
    }

    /// Sets price and stock by hand, or (all left out) takes that back.
    ///
    /// # Errors
    /// Says in words what is wrong with `value`.
    pub fn set_by_hand(&mut self, value: Value) -> Result<(), String> {
        let by_hand: ByHand = serde_json::from_value(value).map_err(|e| e.to_string())?;
        if by_hand.discount.is_some_and(|d| !(0.0..=10.0).contains(&d)) {
            return Err("discount is a fraction of the list price, 0 to 10".to_owned());
        }
        self.by_hand = by_hand;
        Ok(())
    }
}

/// A price that wanders, and stock that fails now and then.
#[derive(Debug)]
struct Walk {
    random: Random,
    steps_done: u64,
    discount: f64,
    without_stock_steps: u64,
}

/// Time between two steps of the walk.
const WALK_STEP: Duration = Duration::from_secs(1);
/// Steps that are caught up with at once (a day); a longer gap is skipped.
const WALK_CATCH_UP_STEPS: u64 = 86_400;

impl Walk {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), steps_done: 0, discount: 0.3, without_stock_steps: 0 }
    }

    fn quote(&mut self, at: Duration) -> Quote {
        let due = at.as_secs() / WALK_STEP.as_secs();
        self.steps_done = self.steps_done.max(due.saturating_sub(WALK_CATCH_UP_STEPS));
        while self.steps_done < due {
            self.steps_done += 1;
            let pull = (0.35 - self.discount) * 0.05;
            self.discount += pull + (self.random.fraction() - 0.5) * 0.12;
            self.discount = self.discount.clamp(0.1, 1.0);
            let goes_out = self.random.below(120) == 0;
            self.without_stock_steps = match self.without_stock_steps {
                0 if goes_out => 1 + self.random.below(15),
                left => left.saturating_sub(1),
            };
        }
        // Prices are quoted in whole percent of list.
        let discount = (self.discount * 100.0).round() / 100.0;
        Quote::new(discount, self.without_stock_steps == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bid_equal_to_the_market_gets_and_keeps_the_machine() {
        let quote = Quote::new(0.4, true);
        assert!(quote.serves(Bid(0.4), 1));
        assert!(quote.serves(Bid(0.011 / 0.0275), 1));
        assert!(!quote.serves(Bid(0.39), 1));
        assert!(!Quote::new(0.1, false).serves(Bid(0.9), 1));
    }

    #[test]
    fn texts_that_are_no_market_are_refused_in_words() {
        for bad in [
            "",
            "constant",
            "constant:",
            "constant:-1",
            "constant:nan",
            "seed:",
            "script:",
            "trace:",
        ] {
            assert!(matches!(bad.parse::<MarketSpec>(), Err(MarketError::Unknown(_))), "{bad}");
        }
    }

    #[test]
    fn a_seed_walks_the_same_way_however_often_it_is_asked() {
        let mut often = Walk::new(5);
        let prices: Vec<Quote> =
            (0..2000).map(|s| often.quote(Duration::from_millis(s * 500))).collect();
        let mut once = Walk::new(5);
        assert_eq!(once.quote(Duration::from_millis(1999 * 500)), prices[1999]);
        assert!(prices.iter().any(|q| !q.stock), "stock fails now and then");
        assert!(prices.iter().any(|q| q.discount > 0.4) && prices.iter().any(|q| q.discount < 0.3));
    }

    #[test]
    fn a_hand_on_the_market_holds_until_it_is_taken_back() {
        let mut market = Market::open(&MarketSpec::Constant(0.3)).expect("a market");
        let at = Duration::from_secs;
        market.quote(at(0));
        market.set_by_hand(json!({"discount": 0.9})).expect("taken");
        assert_eq!(market.quote(at(5)), Quote::new(0.9, true));
        assert_eq!(market.quote(at(6)), Quote::new(0.9, true));
        market.set_by_hand(json!({"stock": false})).expect("taken");
        assert_eq!(market.quote(at(7)), Quote::new(0.3, false));
        market.set_by_hand(json!({})).expect("taken");
        assert_eq!(market.quote(at(8)), Quote::new(0.3, true));
        assert_eq!(market.history(at(0), at(9)), [(at(0), 0.3), (at(5), 0.9), (at(7), 0.3)]);
        assert_eq!(market.history(at(6), at(6)), [(at(5), 0.9)]);
        assert!(market.set_by_hand(json!({"price": 1})).is_err());
    }
}
