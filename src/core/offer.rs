//! What the next attempt of a job is asked for with: which placement, and which bid.
//!
//! What always holds: it changes only where a wait was too long ([`super::waiting`]), and a new spec
//! or a person's `retry` takes it back to what the job file says. What an attempt was sent with is
//! frozen in its intent, and does not change with it.

use crate::model::placement::PlacementNo;
use crate::model::spec::{Bid, JobSpec};
use crate::model::time::WallTime;
use serde::{Deserialize, Serialize};

/// Placement and bid of the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Offer {
    /// The placement.
    pub placement: PlacementNo,
    /// The bid, where it was raised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raised: Option<Bid>,
    /// When it was raised last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raised_at: Option<WallTime>,
}

impl Offer {
    /// Whether it is the job file's own.
    pub fn is_own(&self) -> bool {
        *self == Self::default()
    }

    /// What it changes, in words behind what else an attempt is made of; empty if nothing.
    pub fn in_words(&self) -> String {
        let placement = match self.placement {
            0 => String::new(),
            no => format!(", placement {no}"),
        };
        let raised = self.raised.map_or(String::new(), |bid| format!(", bid raised to {bid}"));
        placement + &raised
    }

    /// The bid of the next attempt. `spec` is the one of its placement.
    pub fn bid(&self, spec: &JobSpec) -> Option<Bid> {
        spec.spot.map(|own| self.raised.unwrap_or(own))
    }
}
