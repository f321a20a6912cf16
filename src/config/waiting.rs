//! `[waiting]`: how long an attempt may wait, and what is done then.

use super::codes;
use super::diagnostic::{Anchor, Diagnostic, Notes};
use super::nearest::nearest;
use super::placements::Other;
use super::reader::{Found, Span, Table};
use super::spot::SpotTable;
use crate::model::money::Money;
use crate::model::spec::Bid;
use crate::model::waiting::{
    HIGHEST_DISCOUNT, LOWEST_DISCOUNT, WaitAct, WaitLimit, WaitPhase, Waiting,
};
use std::time::Duration;

const AFTER_SHORTEST: Duration = Duration::from_millis(100);

/// What was read, and where it stands.
#[derive(Default)]
pub(super) struct Waits {
    pub(super) waiting: Waiting,
    /// The first `raise_bid`.
    raise: Option<Span>,
    /// The first `next_placement`.
    next: Option<Span>,
    /// The highest price.
    price: Option<Span>,
}

/// What of the job file `[waiting]` is checked against.
pub(super) struct Asked<'a> {
    pub(super) spot: Option<&'a SpotTable>,
    /// Whether `[spot]` was there, right or wrong.
    pub(super) spot_given: bool,
    pub(super) list_price_per_hour: Option<Money>,
    pub(super) placements: &'a [Other<'a>],
    /// Whether `placements` was there, right or wrong.
    pub(super) placements_given: bool,
}

/// Reads the table.
pub(super) fn read(notes: &Notes<'_>, top: &mut Table<'_, '_>) -> Waits {
    let mut waits = Waits::default();
    let Some(mut table) = top.table("waiting") else { return waits };
    waits.waiting.queuing = limit(notes, &mut table, WaitPhase::Queuing, &mut waits);
    waits.waiting.bidding = limit(notes, &mut table, WaitPhase::Bidding, &mut waits);
    waits.waiting.preparing = limit(notes, &mut table, WaitPhase::Preparing, &mut waits);
    if let Some(found) = table.decimal("max_discount") {
        if (LOWEST_DISCOUNT..=HIGHEST_DISCOUNT).contains(&found.value) {
            waits.waiting.max_discount = Some(found.value);
        } else {
            let message = format!("`max_discount` {} is no bid that can be made", found.value);
            let mend = "wanted: 0.1 to 0.9, a share of the list price such as 0.7";
            notes.error(&found.span, codes::WRONG_VALUE, message, mend);
        }
    }
    let minute = table.money("max_price_per_minute");
    let hour = table.money("max_price_per_hour");
    if let (Some(_), Some(hour)) = (&minute, &hour) {
        let message = "both `max_price_per_minute` and `max_price_per_hour`";
        notes.error(&hour.key, codes::EITHER_OR, message, "keep one of the two");
    }
    let a_minute = |found: &Found<Money>| found.value.share(1, 60);
    waits.waiting.max_price_per_minute =
        minute.as_ref().map(|found| found.value).or(hour.as_ref().map(a_minute));
    waits.price = minute.or(hour).map(|found| found.key);
    table.finish();
    waits
}

/// The limit of one phase.
fn limit(
    notes: &Notes<'_>,
    table: &mut Table<'_, '_>,
    phase: WaitPhase,
    waits: &mut Waits,
) -> Option<WaitLimit> {
    let mut part = table.table(phase.word())?;
    let span = part.span().clone();
    for (key, mend) in [("after", "add after = \"30m\""), ("then", "add then = [\"notify\"]")] {
        if !part.has(key) {
            let message = format!("`{}` has no `{key}`", phase.word());
            notes.error(&span, codes::MISSING, message, mend);
        }
    }
    let after = part.duration("after", AFTER_SHORTEST..=super::duration::LONGEST);
    let listed = part.list("then");
    part.finish();
    let listed = listed?;
    if listed.value.is_empty() {
        let mend = format!("list at least one of: {}", words().join(", "));
        notes.error(&listed.span, codes::WRONG_VALUE, "`then` is empty", mend);
    }
    let mut then = Vec::new();
    for found in &listed.value {
        let Some(act) = act(notes, found) else { continue };
        check_order(notes, &then, act, found);
        if act == WaitAct::RaiseBid {
            if phase == WaitPhase::Preparing {
                let message = "no bid helps an attempt that has its machines";
                let mend = "take raise_bid out of `preparing`";
                notes.error(&found.span, codes::WAITING_ACT, message, mend);
            }
            waits.raise.get_or_insert(found.span.clone());
        }
        if act == WaitAct::NextPlacement {
            waits.next.get_or_insert(found.span.clone());
        }
        then.push(act);
    }
    Some(WaitLimit { after: after?.value, then })
}

fn words() -> Vec<&'static str> {
    WaitAct::ALL.iter().map(|act| act.word()).collect()
}

fn act(notes: &Notes<'_>, found: &Found<String>) -> Option<WaitAct> {
    let act = WaitAct::ALL.into_iter().find(|act| act.word() == found.value);
    if act.is_none() {
        let message = format!("unknown act `{}`", found.value);
        let mend = format!("one of: {}", words().join(", "));
        let at = notes.source.at(&found.span);
        let error = Diagnostic::error(at, codes::WRONG_VALUE, message, mend);
        notes.add(error.near(nearest(&found.value, words()).map(str::to_owned)));
    }
    act
}

/// Each act once, and nothing after the last one.
fn check_order(notes: &Notes<'_>, before: &[WaitAct], act: WaitAct, found: &Found<String>) {
    let refuse = |message: String, mend: &str| {
        notes.error(&found.span, codes::WAITING_ACT, message, mend);
    };
    if before.contains(&act) {
        let mend = "write it once: it is done as often as it can be";
        refuse(format!("`{}` is there twice", act.word()), mend);
    } else if before.contains(&WaitAct::Fail) {
        refuse(format!("`{}` comes after `fail`", act.word()), "put `fail` last");
    }
}

/// Checks what the rest of the job file has to say.
pub(super) fn check(notes: &Notes<'_>, waits: &Waits, asked: &Asked<'_>) {
    if let Some(span) = waits.next.as_ref().filter(|_| !asked.placements_given) {
        let message = "next_placement, and the job has no placements";
        let mend = "add [[placements]], or take next_placement out";
        notes.error(span, codes::WAITING_ACT, message, mend);
    }
    if let (None, Some(first)) = (&waits.next, asked.placements.first()) {
        let message = "no phase of [waiting] has next_placement: placements are never used";
        let mend = "add queuing = { after = \"30m\", then = [\"next_placement\"] } to [waiting]";
        notes.warning(&first.header, codes::IDLE, message, mend);
    }
    let own = asked.spot.map(|table| (table.bid, &table.value, asked.list_price_per_hour));
    let others = asked.placements.iter().filter_map(|other| {
        let list = other.placement.list_price_per_hour.or(asked.list_price_per_hour);
        other.spot.as_ref().map(|table| (table.bid, &table.value, list))
    });
    let bids: Vec<(Bid, &Anchor, Option<Money>)> = own.into_iter().chain(others).collect();
    for (bid, at, list) in &bids {
        check_cap(notes, waits, (*bid, at), *list);
    }
    let is_price = |bid: &Bid| match bid {
        Bid::PricePerMinute(_) => true,
        Bid::Discount(_) => false,
    };
    if let Some(span) = &waits.price
        && !bids.is_empty()
        && !bids.iter().any(|(bid, _, _)| is_price(bid))
    {
        let message = "a highest price, and the bid is a share of the list price";
        notes.error(span, codes::EITHER_OR, message, "write max_discount = 0.7");
    }
    if let Some(span) = &waits.raise
        && bids.is_empty()
        && !asked.spot_given
    {
        let message = "raise_bid, and the job is on-demand, or its bid stands in a SpotSpec";
        let mend = "add [spot] with the bid, or take raise_bid out";
        notes.error(span, codes::WAITING_ACT, message, mend);
    }
}

/// A bid and the most that it may be raised to.
fn check_cap(
    notes: &Notes<'_>,
    waits: &Waits,
    (bid, at): (Bid, &Anchor),
    list_price_per_hour: Option<Money>,
) {
    let Some(cap) = waits.waiting.cap(bid, list_price_per_hour) else {
        if let Some(span) = &waits.raise {
            let message = "raise_bid has a price to raise, and no highest price";
            let mend = "add max_price_per_hour = \"…\" to [waiting]; or list_price_per_hour to \
                        [budget], of which max_discount is a share";
            notes.error(span, codes::MISSING, message, mend);
        }
        return;
    };
    let is_said =
        waits.waiting.max_discount.is_some() || waits.waiting.max_price_per_minute.is_some();
    let is_above = match (bid, cap) {
        (Bid::Discount(bid), Bid::Discount(cap))
        | (Bid::PricePerMinute(bid), Bid::PricePerMinute(cap)) => bid > cap,
        (Bid::Discount(_) | Bid::PricePerMinute(_), _) => false,
    };
    if is_said && is_above {
        let message = format!("the bid {bid} is above the most that [waiting] allows, {cap}");
        let error = Diagnostic::error(
            at.clone(),
            codes::WAITING_ACT,
            message,
            "lower the bid, or raise max_discount or max_price",
        );
        notes.add(error);
    }
}
