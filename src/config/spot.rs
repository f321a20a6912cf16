//! `[spot]`: the bid.

use super::codes;
use super::diagnostic::{Anchor, Notes};
use super::platform;
use super::reader::{Found, Table};
use crate::model::money::Money;
use crate::model::spec::Bid;

/// The smallest `discount_limit`, and the one that is the list price.
const DISCOUNTS: std::ops::RangeInclusive<Money> = Money(10_000)..=Money(1_000_000);

/// `[spot]`, and where it stands.
#[derive(Debug, Clone)]
pub(super) struct SpotTable {
    /// The bid.
    pub(super) bid: Bid,
    /// Whether it was written as a price an hour.
    pub(super) hourly: bool,
    /// Where the table stands.
    pub(super) header: Anchor,
    /// Where the bid's value stands.
    pub(super) value: Anchor,
}

/// Reads `[spot]`, or the `spot` of a placement.
pub(super) fn read(notes: &Notes<'_>, mut table: Table<'_, '_>) -> Option<SpotTable> {
    let span = table.span().clone();
    let keys = ["discount_limit", "price_limit_per_minute", "price_limit_per_hour"];
    let given = keys.iter().filter(|key| table.has(key)).count();
    let discount = table.decimal("discount_limit");
    let minute = table.money("price_limit_per_minute");
    let hour = table.money("price_limit_per_hour");
    table.finish();
    let all = [discount.as_ref(), minute.as_ref(), hour.as_ref()];
    let mend = format!("give exactly one of {}", keys.join(", "));
    if given == 0 {
        notes.error(&span, codes::BID, "[spot] has no bid", mend);
        return None;
    }
    if given > 1 {
        let last = all.into_iter().flatten().map(|found| &found.key).max_by_key(|key| key.start);
        let message = "[spot] has several bids; the API takes one";
        notes.error(last.unwrap_or(&span), codes::BID, message, mend);
        return None;
    }
    let bid = |bid: Bid, hourly: bool, found: &Found<Money>| {
        let (header, value) = (notes.source.at(&span), notes.source.at(&found.span));
        Some(SpotTable { bid, hourly, header, value })
    };
    let positive = |found: &Found<Money>, amount: Money, hourly: bool| {
        if amount > Money(0) {
            return bid(Bid::PricePerMinute(amount), hourly, found);
        }
        let mend = "wanted: more than 0.000001 CNY a minute";
        notes.error(&found.span, codes::WRONG_VALUE, "the bid is zero", mend);
        None
    };
    if let Some(found) = &discount {
        if DISCOUNTS.contains(&found.value) {
            return bid(Bid::Discount(found.value), false, found);
        }
        let message = format!("`discount_limit` {} is not a share of the list price", found.value);
        let share = found.value.to_string().parse().unwrap_or_default();
        let mend = platform::share_mend(share);
        notes.error(&found.span, codes::WRONG_VALUE, message, mend);
        return None;
    }
    if let Some(found) = &minute {
        return positive(found, found.value, false);
    }
    // The API takes a price a minute. Rounded down: never more than was asked for.
    hour.as_ref().and_then(|found| positive(found, found.value.share(1, 60), true))
}
