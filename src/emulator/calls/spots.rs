//! PaiStudio's GetSpotPriceHistory: what the market was like since the emulator started, one item
//! for each change. There is one market, so all instance types have the same history.

use super::query::{Order, wrong};
use super::{Answered, Request, object, specs};
use crate::emulator::world::{CallError, World};
use serde_json::{Value, json};
use std::time::Duration;

/// How far back is looked when nothing is asked for.
const WINDOW: Duration = Duration::from_hours(3 * 24);
/// Longest time between start and end.
const WINDOW_LIMIT: Duration = Duration::from_hours(7 * 24);
/// The only zone.
const ZONE: &str = "emulator-a";

pub(super) fn price_history(world: &mut World, request: &Request<'_>) -> Answered {
    let (query, name) = (&request.query, request.id(0));
    let kind = specs::resource_type(name).ok_or_else(|| CallError::NotFound(name.to_owned()))?;
    let window = query.window(request.now, WINDOW)?;
    if window.until.min(request.now.wall).since(window.from) > WINDOW_LIMIT {
        return Err(wrong("StartTime: is more than 7 days before EndTime"));
    }
    query.word("SortBy", &["GmtCreatedTime"])?;
    query.word("SpotDuration", &["0", "1"])?;
    let order = query.order(Order::Ascending)?;
    let page = query.page()?;
    let mut items: Vec<Value> = world
        .price_history(window.from, window.until.min(request.now.wall), request.now)
        .into_iter()
        .map(|(wall, discount)| {
            // The first price may have held before the window began.
            let wall = wall.max(window.from);
            json!({
                "InstanceType": name, "SpotDiscount": discount, "Timestamp": wall.to_string(),
                "ZoneId": ZONE,
            })
        })
        .collect();
    if order == Order::Descending {
        items.reverse();
    }
    // Pages are for Lingjun types; others come whole unless pages are asked for.
    let paged =
        kind == "Lingjun" || query.text("PageNumber").is_some() || query.text("PageSize").is_some();
    let (items, total) = if paged {
        page.cut(items)
    } else {
        let total = items.len();
        (items, total)
    };
    Ok(object(json!({"SpotPriceHistory": items, "TotalCount": total})))
}
