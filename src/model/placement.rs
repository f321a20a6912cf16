//! `[[placements]]`: other places and ways to ask for an attempt, in order.

use super::ids::TargetName;
use super::money::Money;
use super::spec::{Bid, JobSpec};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The place of a placement: 0 is the job file itself, then `[[placements]]` from 1 on.
pub type PlacementNo = u32;

/// One of `[[placements]]`. What it leaves out is as in the job file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Placement {
    /// Where it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<TargetName>,
    /// `EcsSpec` of every role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecs_spec: Option<String>,
    /// `PodCount` of the one role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_count: Option<u32>,
    /// How it is paid.
    pub machines: Machines,
    /// CNY a node and hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list_price_per_hour: Option<Money>,
}

/// How the machines of a placement are paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Machines {
    /// As the job file says.
    #[default]
    AsBefore,
    /// Spot, with this bid.
    Spot(Bid),
    /// At the list price, never released.
    OnDemand,
}

impl JobSpec {
    /// The spec as its placement `no` asks; the last one for a number that it does not have.
    #[must_use]
    pub fn at(&self, no: PlacementNo) -> Self {
        let mut spec = self.clone();
        let asked = usize::try_from(no).unwrap_or(usize::MAX).min(self.placements.len());
        let Some(placement) = asked.checked_sub(1).and_then(|at| self.placements.get(at)) else {
            return spec;
        };
        if let Some(target) = &placement.target {
            spec.target = target.clone();
        }
        spec.list_price_per_hour = placement.list_price_per_hour.or(spec.list_price_per_hour);
        match placement.machines {
            Machines::AsBefore => {}
            Machines::Spot(bid) => spec.spot = Some(bid),
            Machines::OnDemand => spec.spot = None,
        }
        let roles = spec.body.get_mut("JobSpecs").and_then(Value::as_array_mut);
        for role in roles.into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(name) = &placement.ecs_spec {
                // The API takes one of the two.
                role.remove("ResourceConfig");
                role.insert("EcsSpec".to_owned(), Value::from(name.as_str()));
            }
            if let Some(count) = placement.pod_count {
                role.insert("PodCount".to_owned(), Value::from(count));
            }
            match placement.machines {
                Machines::AsBefore => {}
                Machines::Spot(_) | Machines::OnDemand => {
                    role.remove("SpotSpec");
                }
            }
        }
        spec
    }

    /// The number of its last placement.
    pub fn last_placement(&self) -> PlacementNo {
        PlacementNo::try_from(self.placements.len()).unwrap_or(PlacementNo::MAX)
    }
}
