//! Rules about spot: where it is offered, and what a bid may be.

use super::{Asked, Finding, Limit, Spot, Unit};
use crate::config::body::step;
use crate::config::submit::gpus_of;
use crate::model::money::Money;
use serde_json::Value;

/// Regions with spot of general-compute machines, by the pages of early 2025.
const GENERAL_REGIONS: [&str; 6] =
    ["cn-beijing", "cn-shanghai", "cn-hangzhou", "cn-shenzhen", "cn-wulanchabu", "cn-guangzhou"];
/// Regions with spot of Lingjun, by the same pages.
const LINGJUN_REGIONS: [&str; 2] = ["cn-wulanchabu", "ap-southeast-1"];
/// Frameworks that may use spot of general-compute machines, by the same pages.
const GENERAL_FRAMEWORKS: [&str; 1] = ["PyTorchJob"];
/// Frameworks that may use spot of Lingjun, by the same pages.
const LINGJUN_FRAMEWORKS: [&str; 2] = ["PyTorchJob", "MPIJob"];
/// CNY an hour that no vCPU costs; wide of the mark on purpose.
const VCPU_HOUR_MOST: f64 = 3.0;
/// CNY an hour below which no vCPU goes, at the deepest discount.
const VCPU_HOUR_LEAST: f64 = 0.01;
/// CNY an hour that no GPU costs.
const GPU_HOUR_MOST: f64 = 100.0;
/// CNY an hour that no node costs.
const NODE_HOUR_MOST: f64 = 1000.0;
/// How far a share may be off a step of 0.1 and still be one.
const STEP_SLACK: f64 = 1e-9;
const MINUTES: f64 = 60.0;

/// What kind of machine a spec names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Machine {
    General,
    Lingjun,
    /// A quota, or a spec of another kind: nothing is known.
    Other,
}

/// By the name of `EcsSpec`: `ecs.…` is general compute, `ml.…` is Lingjun.
fn machine(asked: &Asked<'_, '_, '_>, spec: &str) -> Machine {
    match asked.spec_text(spec, "EcsSpec") {
        Some(name) if name.starts_with("ecs.") => Machine::General,
        Some(name) if name.starts_with("ml.") => Machine::Lingjun,
        Some(_) | None => Machine::Other,
    }
}

fn is_for(asked: &Asked<'_, '_, '_>, spot: &Spot, kind: Machine) -> bool {
    spot.specs.iter().any(|spec| machine(asked, spec) == kind)
}

/// Each limit with the place that it belongs to.
fn limits<'a>(asked: &'a Asked<'_, '_, '_>) -> impl Iterator<Item = (&'a Spot, &'a Limit)> {
    asked.spots.iter().flat_map(|spot| spot.limits.iter().map(move |limit| (spot, limit)))
}

fn shares<'a>(asked: &'a Asked<'_, '_, '_>) -> impl Iterator<Item = (&'a Limit, Option<f64>)> {
    let shares = limits(asked).filter(|(_, limit)| limit.unit == Unit::Share);
    shares.map(|(_, limit)| (limit, limit.amount))
}

pub(super) fn no_limit(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for spot in asked.spots.iter().filter(|spot| spot.limits.is_empty()) {
        // Another strategy may need none; `strategy` warns of it.
        let other = spot.specs.iter().any(|spec| {
            let word = asked.body.text(&step(&step(spec, "SpotSpec"), "SpotStrategy"));
            word.is_some_and(|word| word != "SpotWithPriceLimit")
        });
        if !other {
            let message = "SpotSpec has neither SpotDiscountLimit nor SpotPriceLimit";
            let mend =
                "add SpotDiscountLimit = 0.4 (at most 40 % of the list price), or use [spot]";
            found.push(Finding::new(spot.at.clone(), message, mend));
        }
    }
    found
}

pub(super) fn out_of_range(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (_, limit) in limits(asked) {
        let (message, mend) = match (limit.unit, limit.amount) {
            (_, None) => {
                ("a bid that is no number".to_owned(), "write it as 0.4, not in quotes".into())
            }
            (Unit::Share, Some(share)) if share <= 0.0 || share > 1.0 => {
                (format!("{share} is not a share of the list price"), share_mend(share))
            }
            (_, Some(price)) if price <= 0.0 => {
                (format!("a price limit of {price}"), "wanted: more than 0".to_owned())
            }
            (_, Some(_)) => continue,
        };
        found.push(Finding::new(limit.at.clone(), message, mend));
    }
    found
}

/// What to write instead of a share that is out of range; a percentage is the likely slip.
pub(in crate::config) fn share_mend(share: f64) -> String {
    let meaning = "0.4 is \"at most 40 % of the list price\"";
    if (1.0..=100.0).contains(&share) {
        let fraction = plain(share / 100.0);
        return format!("if {share} % of the list price is meant, write {fraction}; {meaning}");
    }
    format!("wanted: more than 0, at most 1; {meaning}")
}

pub(super) fn not_a_step(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (limit, share) in shares(asked) {
        let Some(share) = share.filter(|share| *share > 0.0 && *share <= 1.0) else { continue };
        let tenths = share * 10.0;
        let step = (tenths - tenths.round()).abs() < STEP_SLACK && tenths < 9.5;
        if !step {
            let message =
                format!("{share} is no bid that the console offers: 0.1 to 0.9 in steps of 0.1");
            let mend = "the API may take it; if a job is refused, round it to a step";
            found.push(Finding::new(limit.at.clone(), message, mend));
        }
    }
    found
}

/// The least and the most that an hour of the dearest node can plausibly cost.
fn plausible_hour(asked: &Asked<'_, '_, '_>, spot: &Spot) -> (f64, f64) {
    let mut range: (f64, f64) = (0.0, 0.0);
    for spec in &spot.specs {
        let name = asked.spec_text(spec, "EcsSpec").unwrap_or_default();
        let (least, most) = match (vcpus(name), gpus_of(name)) {
            (Some(cpus), Some(gpus)) => (cpus * VCPU_HOUR_LEAST, count(gpus) * GPU_HOUR_MOST),
            (Some(cpus), None) if !name.contains("gn") => {
                (cpus * VCPU_HOUR_LEAST, cpus * VCPU_HOUR_MOST)
            }
            (_, _) => (0.0, NODE_HOUR_MOST),
        };
        range = (range.0.max(least), range.1.max(most));
    }
    let list: Option<f64> =
        asked.list_price_per_hour.and_then(|list| list.to_string().parse().ok());
    (range.0, list.unwrap_or(range.1))
}

fn count(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

/// vCPUs of `ecs.g7.xlarge`: `large` has 2, `xlarge` 4, `Nxlarge` 4 N.
fn vcpus(name: &str) -> Option<f64> {
    let (_, size) = name.strip_prefix("ecs.")?.split_once('.')?;
    match size.strip_suffix("xlarge") {
        Some("") => Some(4.0),
        Some(factor) => factor.parse().ok().map(|factor: u32| f64::from(factor) * 4.0),
        None => (size == "large").then_some(2.0),
    }
}

/// A price a minute that reads like one an hour, or the other way round: a factor of 60.
pub(super) fn wrong_unit(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (spot, limit) in limits(asked) {
        let Some(minute) = limit.amount.filter(|price| limit.unit != Unit::Share && *price > 0.0)
        else {
            continue;
        };
        let hour = minute * MINUTES;
        let (least, most) = plausible_hour(asked, spot);
        let what = if hour > most {
            "more than such a node plausibly costs"
        } else if hour < least {
            "less than such a node plausibly costs"
        } else {
            continue;
        };
        let (hour_text, minute_text) = (plain(hour), plain(minute));
        let message = format!(
            "this bid is {minute_text} CNY a minute, that is {hour_text} CNY an hour: {what}"
        );
        let mend = match limit.unit {
            Unit::TableHour => format!(
                "if {hour_text} CNY a minute is meant, write price_limit_per_minute = \"{hour_text}\""
            ),
            Unit::TableMinute if hour > most => {
                format!(
                    "if {minute_text} CNY an hour is meant, write price_limit_per_hour = \"{minute_text}\""
                )
            }
            Unit::SpecMinute if hour > most => {
                let meant = plain(minute / MINUTES);
                format!(
                    "if {minute_text} CNY an hour is meant, write {meant}: SpotPriceLimit is a price a minute"
                )
            }
            Unit::TableMinute | Unit::SpecMinute | Unit::Share => {
                "the limit is a price a minute; a bid below the market waits without end".to_owned()
            }
        };
        found.push(Finding::new(limit.at.clone(), message, mend));
    }
    found
}

/// At most 6 decimal places, as money has.
fn plain(number: f64) -> String {
    let text = format!("{number:.6}");
    Money::parse(&text).map_or(text, |money| money.to_string())
}

pub(super) fn strategy(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (spec, item) in asked.body.items("/JobSpecs") {
        let pointer = step(&spec, "SpotSpec");
        let Some(Value::Object(fields)) = item.get("SpotSpec") else { continue };
        let word = fields.get("SpotStrategy").filter(|word| !word.is_null());
        if word.is_some_and(|word| word.as_str() != Some("SpotWithPriceLimit")) {
            let message =
                "SpotStrategy is not `SpotWithPriceLimit`, the only word that is documented";
            let at = asked.key(&step(&pointer, "SpotStrategy"));
            found.push(Finding::new(at, message, "write SpotStrategy = \"SpotWithPriceLimit\""));
        }
    }
    found
}

pub(super) fn region(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let Some(target) = asked.target else { return Vec::new() };
    let region = target.place.region.as_str();
    let mut found = Vec::new();
    for spot in &asked.spots {
        for (kind, regions, words) in [
            (Machine::General, &GENERAL_REGIONS[..], "general-compute machines"),
            (Machine::Lingjun, &LINGJUN_REGIONS[..], "Lingjun"),
        ] {
            if is_for(asked, spot, kind) && !regions.contains(&region) {
                let message = format!(
                    "spot of {words} is documented for {}; target `{}` is in {region}",
                    regions.join(", "),
                    target.name
                );
                found.push(Finding::new(spot.at.clone(), message, OLD_PAGES));
            }
        }
    }
    found
}

const OLD_PAGES: &str =
    "the pages are of early 2025: look into the console whether it is offered by now";

pub(super) fn framework(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let Some(word) = asked.body.text("/JobType").filter(|word| !word.is_empty()) else {
        return Vec::new();
    };
    for (kind, frameworks, words) in [
        (Machine::General, &GENERAL_FRAMEWORKS[..], "general-compute machines"),
        (Machine::Lingjun, &LINGJUN_FRAMEWORKS[..], "Lingjun"),
    ] {
        let asks = asked.spots.iter().any(|spot| is_for(asked, spot, kind));
        // Another spelling has an error of its own.
        if asks && !frameworks.iter().any(|known| known.eq_ignore_ascii_case(word)) {
            let known = frameworks.join(", ");
            let message = format!("spot of {words} is documented for {known}, not for `{word}`");
            return vec![Finding::new(asked.value("/JobType"), message, OLD_PAGES)];
        }
    }
    Vec::new()
}

pub(super) fn aimaster(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let pointer = "/Settings/EnableErrorMonitoringInAIMaster";
    let on = asked.body.get(pointer).and_then(Value::as_bool) == Some(true);
    if !on || !asked.spots.iter().any(|spot| is_for(asked, spot, Machine::General)) {
        return Vec::new();
    }
    let message = "AIMaster on general-compute spot: older pages have it for Lingjun only, newer ones turn it on";
    let mend = "leave it if the platform takes it: a restart inside the same JobId is followed, not doubled; \
                else write false";
    vec![Finding::new(asked.key(pointer), message, mend)]
}

pub(super) fn lingjun_price(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let prices = limits(asked).filter(|(_, limit)| limit.unit != Unit::Share);
    let lingjun = prices.filter(|(spot, _)| is_for(asked, spot, Machine::Lingjun));
    let message = "Lingjun takes a bid as a share of the list price only";
    let mend = "write discount_limit = 0.4 in [spot], or SpotDiscountLimit = 0.4";
    lingjun.map(|(_, limit)| Finding::new(limit.at.clone(), message, mend)).collect()
}

pub(super) fn lingjun_vpc(asked: &Asked<'_, '_, '_>) -> Vec<Finding> {
    let vpc = asked.body.text("/UserVpc/VpcId").is_some_and(|id| !id.is_empty());
    let lingjun =
        asked.body.items("/JobSpecs").find(|(spec, _)| machine(asked, spec) == Machine::Lingjun);
    let Some((spec, _)) = lingjun.filter(|_| !vpc) else { return Vec::new() };
    let message = "a Lingjun job needs a VPC, and UserVpc names none";
    let mend =
        "add UserVpc = { VpcId = \"vpc-…\", SwitchId = \"vsw-…\", SecurityGroupId = \"sg-…\" }";
    vec![Finding::new(asked.key(&step(&spec, "EcsSpec")), message, mend)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_looks_like_a_percentage_is_told_as_a_fraction() {
        for (share, part) in [(40.0, "write 0.4;"), (1.5, "write 0.015;"), (100.0, "write 1;")] {
            assert!(share_mend(share).contains(part), "{}", share_mend(share));
        }
        for share in [0.0, -1.0, 400.0, f64::NAN] {
            assert!(share_mend(share).starts_with("wanted"), "{share}");
        }
    }

    #[test]
    fn sizes_tell_their_cpus() {
        for (name, cpus) in [
            ("ecs.g7.large", Some(2.0)),
            ("ecs.g7.xlarge", Some(4.0)),
            ("ecs.gn7e-c16g1.4xlarge", Some(16.0)),
            ("ecs.x.metal", None),
            ("ml.g.xlarge", None),
        ] {
            assert_eq!(vcpus(name), cpus, "{name}");
        }
    }
}
