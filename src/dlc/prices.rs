//! What spot machines cost over time, as fractions of the list price (PaiStudio).

use super::client::{Answer, ApiError, Ask, Dlc};
use super::jobs::Order;
use super::products::Product;
use super::query::Query;
use super::wire::{self, SpotPrices, Whole};
use crate::model::time::WallTime;

/// Which part of the history.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PriceQuery {
    /// `StartTime`, at most 7 days before the end; the server's default is 3 days.
    pub start: Option<WallTime>,
    /// `EndTime`.
    pub end: Option<WallTime>,
    /// `PageNumber`, from 1. Pages and order are for Lingjun machine types only.
    pub page: Option<u64>,
    /// `PageSize`.
    pub page_size: Option<u64>,
    /// `Order`.
    pub order: Option<Order>,
    /// `SortBy`: `GmtCreatedTime`.
    pub sort_by: Option<String>,
    /// `SpotDuration`: hours that a machine is safe from release, 0 or 1.
    pub safe_hours: Option<u32>,
}

impl Dlc {
    /// The discounts at which `instance_type` could be had.
    pub async fn spot_price_history(
        &self,
        instance_type: &str,
        query: &PriceQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<SpotPrices>>, ApiError> {
        let pairs = Query::default()
            .maybe("EndTime", query.end.as_ref())
            .maybe("Order", query.order.as_ref())
            .maybe("PageNumber", query.page.as_ref())
            .maybe("PageSize", query.page_size.as_ref())
            .maybe("SortBy", query.sort_by.as_ref())
            .maybe("SpotDuration", query.safe_hours.as_ref())
            .maybe("StartTime", query.start.as_ref())
            .pairs();
        let segments = ["api", "v1", "spots", instance_type, "pricehistory"];
        let ask = Ask::get("GetSpotPriceHistory", &segments, pairs);
        self.whole(Ask { product: Product::PaiStudio, ..ask }, wire::spot_prices, now).await
    }
}
