//! Machine types, their spot stock and discount now.

use super::client::{Answer, ApiError, Ask, Dlc};
use super::jobs::Order;
use super::query::Query;
use super::wire::{self, EcsSpecs, Whole};
use crate::model::time::WallTime;

/// Which machine types.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SpecQuery {
    /// `ResourceType`: `ECS` or `Lingjun`.
    pub resource_type: Option<String>,
    /// `AcceleratorType`: `CPU` or `GPU`.
    pub accelerator: Option<String>,
    /// `InstanceTypes`.
    pub instance_types: Vec<String>,
    /// `PageNumber`, from 1.
    pub page: Option<u64>,
    /// `PageSize`.
    pub page_size: Option<u64>,
    /// `Order`.
    pub order: Option<Order>,
    /// `SortBy`. The server is said to refuse every documented value.
    pub sort_by: Option<String>,
}

impl Dlc {
    /// One page of machine types.
    pub async fn list_ecs_specs(
        &self,
        query: &SpecQuery,
        now: WallTime,
    ) -> Result<Answer<Whole<EcsSpecs>>, ApiError> {
        let pairs = Query::default()
            .maybe("AcceleratorType", query.accelerator.as_ref())
            .list("InstanceTypes", &query.instance_types)
            .maybe("Order", query.order.as_ref())
            .maybe("PageNumber", query.page.as_ref())
            .maybe("PageSize", query.page_size.as_ref())
            .maybe("ResourceType", query.resource_type.as_ref())
            .maybe("SortBy", query.sort_by.as_ref())
            .pairs();
        let ask = Ask::get("ListEcsSpecs", &["api", "v1", "ecsspecs"], pairs);
        self.whole(ask, wire::ecs_specs, now).await
    }
}
