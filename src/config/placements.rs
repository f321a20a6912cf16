//! `[[placements]]`: other places and ways to ask for an attempt.

use super::body::Body;
use super::codes;
use super::diagnostic::Notes;
use super::job::{Rules, known_target};
use super::reader::{Found, Span, Table};
use super::spot::{self, SpotTable};
use crate::model::checkpoint::Scheme;
use crate::model::placement::{Machines, Placement};
use crate::model::spec::{Bid, CheckpointSpec, Target};

/// Placements of one job.
const PLACEMENTS_MOST: usize = 16;
const PODS_MOST: u64 = 1_000_000;
const LENGTH_MOST: usize = 256;

/// A placement, and where it stands.
pub(super) struct Other<'r> {
    pub(super) placement: Placement,
    /// Its bid, if it has one of its own.
    pub(super) spot: Option<SpotTable>,
    /// The table.
    pub(super) header: Span,
    /// Its target, and where that is named.
    target: Option<(&'r Target, Span)>,
}

/// Where the job itself goes, and what it saves.
pub(super) struct Reach<'r> {
    pub(super) target: Option<&'r Target>,
    pub(super) checkpoint: Option<&'r CheckpointSpec>,
    /// Its bid.
    pub(super) spot: Option<&'r SpotTable>,
}

/// Reads the tables, in their order.
pub(super) fn read<'r>(
    notes: &Notes<'_>,
    top: &mut Table<'_, '_>,
    body: Option<&Body<'_, '_>>,
    rules: Rules<'r>,
) -> Vec<Other<'r>> {
    let mut others = Vec::new();
    for (count, table) in top.tables("placements").into_iter().enumerate() {
        if count == PLACEMENTS_MOST {
            let message = format!("more than {PLACEMENTS_MOST} placements");
            notes.error(table.span(), codes::PLACEMENT, message, "take some of them out");
        }
        others.push(one(notes, table, body, rules));
    }
    others
}

fn one<'r>(
    notes: &Notes<'_>,
    mut table: Table<'_, '_>,
    body: Option<&Body<'_, '_>>,
    rules: Rules<'r>,
) -> Other<'r> {
    let header = table.span().clone();
    let keys = ["target", "EcsSpec", "PodCount", "spot", "on_demand"];
    if !keys.iter().any(|key| table.has(key)) {
        let mend = format!("give at least one of {}", keys.join(", "));
        notes.error(&header, codes::PLACEMENT, "this placement is no other than the job's", mend);
    }
    let named = table.text("target");
    let name = named.as_ref().and_then(|found| known_target(notes, found, rules));
    let target = name.as_ref().and_then(|name| rules.targets?.get(name));
    let target = target.zip(named.map(|found| found.span));
    let ecs_spec = table.text("EcsSpec");
    let pod_count = table.count("PodCount", 1..=PODS_MOST);
    if let Some(body) = body {
        check_roles(notes, body, ecs_spec.as_ref(), pod_count.as_ref());
        check_workspace(notes, body, target.as_ref());
    }
    let is_spot = table.has("spot");
    let spot = table.table("spot").and_then(|table| spot::read(notes, table));
    let on_demand = table.flag("on_demand").filter(|found| found.value);
    if let Some(found) = on_demand.as_ref().filter(|_| is_spot) {
        let message = "both `spot` and `on_demand = true`";
        notes.error(&found.key, codes::EITHER_OR, message, "keep one of the two");
    }
    let list_price_per_hour = table.money("list_price_per_hour").map(|found| found.value);
    table.finish();
    let machines = match (&spot, on_demand) {
        (Some(table), _) => Machines::Spot(table.bid),
        (None, Some(_)) => Machines::OnDemand,
        (None, None) => Machines::AsBefore,
    };
    let placement = Placement {
        target: name,
        ecs_spec: ecs_spec.map(|found| found.value),
        pod_count: pod_count.and_then(|found| u32::try_from(found.value).ok()),
        machines,
        list_price_per_hour,
    };
    Other { placement, spot, header, target }
}

/// A placement names no role: what it sets has to be meant for all there are.
fn check_roles(
    notes: &Notes<'_>,
    body: &Body<'_, '_>,
    ecs_spec: Option<&Found<String>>,
    pod_count: Option<&Found<u64>>,
) {
    let roles: Vec<_> = body.items("/JobSpecs").map(|(_, role)| role).collect();
    if let Some(found) = ecs_spec {
        let name = found.value.trim();
        if name.is_empty() || found.value.len() > LENGTH_MOST {
            let mend = "wanted: a name such as \"ecs.gn7i-c8g1.2xlarge\"";
            notes.error(&found.span, codes::WRONG_VALUE, "`EcsSpec` is no name", mend);
        }
        if roles.windows(2).any(|two| two[0].get("EcsSpec") != two[1].get("EcsSpec")) {
            let message = "the roles of JobSpecs have different EcsSpecs: which one is meant?";
            let mend = "a placement changes the spec of a job whose roles have one in common";
            notes.error(&found.span, codes::PLACEMENT, message, mend);
        }
    }
    if let Some(found) = pod_count.filter(|_| roles.len() > 1) {
        let message = "JobSpecs has several roles: whose PodCount is meant?";
        let mend = "a placement changes the number of pods of a job with one role";
        notes.error(&found.span, codes::PLACEMENT, message, mend);
    }
}

fn check_workspace(notes: &Notes<'_>, body: &Body<'_, '_>, target: Option<&(&Target, Span)>) {
    let Some(((target, span), sent)) = target.zip(body.get("/WorkspaceId")) else { return };
    let own = &target.place.workspace;
    if sent.as_str() != Some(own) {
        let name = &target.name;
        let message = format!("WorkspaceId differs from the workspace `{own}` of target `{name}`");
        let mend = "take WorkspaceId out of [submit]: the target fills it in";
        notes.error(span, codes::WORKSPACE, message, mend);
    }
}

/// Checks what the rest of the job file has to say.
pub(super) fn check(notes: &Notes<'_>, others: &[Other<'_>], reach: &Reach<'_>) {
    check_storage(notes, others, reach);
    for other in others {
        let is_lingjun = other.placement.ecs_spec.as_ref().is_some_and(|n| n.starts_with("ml."));
        let bid = match other.placement.machines {
            Machines::AsBefore => reach.spot.map(|table| table.bid),
            Machines::Spot(bid) => Some(bid),
            Machines::OnDemand => None,
        };
        if let (true, Some(Bid::PricePerMinute(_))) = (is_lingjun, bid) {
            let message = "Lingjun takes a bid as a share of the list price only";
            let mend = "give the placement spot = { discount_limit = 0.4 }";
            notes.error(&other.header, codes::LINGJUN_BID, message, mend);
        }
    }
}

/// Whether the checkpoints of the job can be looked for, and gone on from, wherever it is sent.
fn check_storage(notes: &Notes<'_>, others: &[Other<'_>], reach: &Reach<'_>) {
    let (Some(checkpoint), Some(own)) = (reach.checkpoint, reach.target) else { return };
    let in_bucket: Vec<_> =
        checkpoint.locations().filter(|place| place.scheme != Scheme::File).collect();
    for (target, span) in others.iter().filter_map(|other| other.target.as_ref()) {
        let Some(place) = in_bucket.first().filter(|_| target.place.storage != own.place.storage)
        else {
            continue;
        };
        let shown = |target: &Target| target.place.storage.clone().unwrap_or_default();
        let message = format!(
            "target `{}` looks for buckets at {}, and {place} is looked for at {}",
            target.name,
            shown(target),
            shown(own)
        );
        let mend = format!(
            "name a target of the bucket's region; or, if the bucket can be mounted there, give the \
             target storage = {{ endpoint = \"{}\" }}",
            shown(own)
        );
        notes.error(span, codes::PLACEMENT, message, mend);
    }
}
