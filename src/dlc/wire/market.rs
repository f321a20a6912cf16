//! What machines there are, whether spot has any, and for how much of the list price.
//!
//! DLC and PaiStudio speak of discounts only: there is no price in money anywhere.

use super::answer::{Row, rows};
use super::{WireError, field};
use crate::model::money::Money;
use crate::model::time::WallTime;
use serde_json::Value;

/// One machine type of ListEcsSpecs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EcsSpec {
    /// `InstanceType`, e.g. `ecs.gn7e-c16g1.4xlarge`.
    pub instance_type: String,
    /// `ResourceType`: `ECS` or `Lingjun`.
    pub resource_type: Option<String>,
    /// `AcceleratorType`: `CPU` or `GPU`.
    pub accelerator: Option<String>,
    /// `Cpu`, cores.
    pub cpus: Option<u64>,
    /// `Gpu`, how many.
    pub gpus: Option<u64>,
    /// `GpuType`.
    pub gpu_type: Option<String>,
    /// `GpuMemory`, GiB.
    pub gpu_memory_gib: Option<u64>,
    /// `Memory`, GiB.
    pub memory_gib: Option<u64>,
    /// `IsAvailable`.
    pub available: Option<bool>,
    /// `PaymentTypes`: `PostPaid`, `Spot`.
    pub payment_types: Vec<String>,
    /// `SpotStockStatus`.
    pub spot_stock: SpotStock,
    /// `NonProtectSpotDiscount`: the spot price now as a fraction of the list price; 0.18 is "18 %
    /// of list".
    pub spot_discount: Option<Money>,
}

/// Whether spot machines of a type can be had now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpotStock {
    /// `WithStock`.
    WithStock,
    /// A word whose meaning nobody has published.
    Other(String),
    /// The answer says nothing about it.
    Unsaid,
}

impl SpotStock {
    fn from_word(word: Option<String>) -> Self {
        match word {
            Some(word) if word == "WithStock" => Self::WithStock,
            Some(word) => Self::Other(word),
            None => Self::Unsaid,
        }
    }
}

/// One page of ListEcsSpecs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EcsSpecs {
    /// `EcsSpecs`.
    pub rows: Vec<Row<EcsSpec>>,
    /// `TotalCount`.
    pub total: Option<u64>,
}

/// `EcsSpecs` of ListEcsSpecs.
pub fn ecs_specs(value: &Value) -> Result<EcsSpecs, WireError> {
    let rows = rows("ListEcsSpecs", value, "EcsSpecs", |row| {
        Ok(EcsSpec {
            instance_type: field::needed("ListEcsSpecs row", row, "InstanceType")?,
            resource_type: field::text(row, "ResourceType"),
            accelerator: field::text(row, "AcceleratorType"),
            cpus: field::number(row, "Cpu"),
            gpus: field::number(row, "Gpu"),
            gpu_type: field::text(row, "GpuType"),
            gpu_memory_gib: field::number(row, "GpuMemory"),
            memory_gib: field::number(row, "Memory"),
            available: field::flag(row, "IsAvailable"),
            payment_types: field::texts(row, "PaymentTypes"),
            spot_stock: SpotStock::from_word(field::text(row, "SpotStockStatus")),
            spot_discount: field::fraction(row, "NonProtectSpotDiscount"),
        })
    })?;
    Ok(EcsSpecs { rows, total: field::number(value, "TotalCount") })
}

/// One entry of GetSpotPriceHistory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpotPrice {
    /// `InstanceType`.
    pub instance_type: Option<String>,
    /// `SpotDiscount`: a fraction of the list price.
    pub discount: Money,
    /// `Timestamp`.
    pub at: Option<WallTime>,
    /// `ZoneId`.
    pub zone: Option<String>,
}

/// One page of GetSpotPriceHistory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpotPrices {
    /// `SpotPriceHistory`.
    pub rows: Vec<Row<SpotPrice>>,
    /// `TotalCount`.
    pub total: Option<u64>,
}

/// `SpotPriceHistory` of GetSpotPriceHistory.
pub fn spot_prices(value: &Value) -> Result<SpotPrices, WireError> {
    let rows = rows("GetSpotPriceHistory", value, "SpotPriceHistory", |row| {
        let (what, name) = ("GetSpotPriceHistory row", "SpotDiscount");
        let found = || field::kind(field::get(row, name)).to_owned();
        Ok(SpotPrice {
            instance_type: field::text(row, "InstanceType"),
            discount: field::fraction(row, name).ok_or_else(|| WireError::Field {
                what,
                field: name,
                found: found(),
            })?,
            at: field::time(row, "Timestamp"),
            zone: field::text(row, "ZoneId"),
        })
    })?;
    Ok(SpotPrices { rows, total: field::number(value, "TotalCount") })
}
