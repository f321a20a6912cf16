//! What PAI-DLC would refuse, and where its documents disagree: one table of rules.
//!
//! Always holds: a rule looks at one matter, has one code with a page in docs/errors, and is an
//! error only where the platform is known to refuse. Where pages contradict each other, or are old,
//! it is a warning that says so. To add a rule: write a function from [`Asked`] to [`Finding`]s,
//! give it a line in [`RULES`], a page, and one good and one bad file in
//! tests/world/config/platform.rs.
//!
//! Must not: look at a field whose meaning nobody has written down, or show a value that may be a
//! secret.

mod names;
mod plain_secrets;
mod roles;
mod spot;

pub(super) use spot::share_mend;

use super::body::{Body, step};
use super::codes;
use super::diagnostic::{Anchor, Diagnostic, Severity};
use super::spot::SpotTable;
use crate::model::error::Code;
use crate::model::money::Money;
use crate::model::spec::{Bid, Target};
use serde_json::Value;

/// One rule.
pub(super) struct Rule {
    code: Code,
    severity: Severity,
    find: fn(&Asked<'_, '_, '_>) -> Vec<Finding>,
}

const fn refused(code: Code, find: fn(&Asked<'_, '_, '_>) -> Vec<Finding>) -> Rule {
    Rule { code, severity: Severity::Error, find }
}

const fn doubtful(code: Code, find: fn(&Asked<'_, '_, '_>) -> Vec<Finding>) -> Rule {
    Rule { code, severity: Severity::Warning, find }
}

/// All rules. Their order does not matter: findings are sorted by place.
const RULES: &[Rule] = &[
    refused(codes::BID, spot::no_limit),
    refused(codes::WRONG_VALUE, spot::out_of_range),
    doubtful(codes::BID_STEP, spot::not_a_step),
    doubtful(codes::BID_UNIT, spot::wrong_unit),
    doubtful(codes::FIELD_DOUBT, spot::strategy),
    doubtful(codes::SPOT_PLACE, spot::region),
    doubtful(codes::SPOT_PLACE, spot::framework),
    doubtful(codes::AIMASTER_ON_SPOT, spot::aimaster),
    refused(codes::LINGJUN_BID, spot::lingjun_price),
    doubtful(codes::LINGJUN_VPC, spot::lingjun_vpc),
    refused(codes::DISPLAY_NAME, names::display_name),
    doubtful(codes::DISPLAY_NAME, names::display_name_cut),
    refused(codes::FIELD_SPELLING, names::job_type_case),
    refused(codes::WRONG_VALUE, names::priority),
    doubtful(codes::TOP_TAGS, names::top_tags),
    doubtful(codes::ROLE, roles::spelling),
    doubtful(codes::ROLE, roles::unknown),
    doubtful(codes::ROLE, roles::twice),
    doubtful(codes::ROLE, roles::many_masters),
    doubtful(codes::PLAIN_SECRET, plain_secrets::envs),
    doubtful(codes::PLAIN_SECRET, plain_secrets::commands),
];

/// What a rule found.
pub(super) struct Finding {
    at: Anchor,
    message: String,
    mend: String,
    nearest: Option<String>,
}

impl Finding {
    fn new(at: Anchor, message: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { at, message: message.into(), mend: mend.into(), nearest: None }
    }

    fn near(mut self, word: &str) -> Self {
        self.nearest = Some(word.to_owned());
        self
    }
}

/// A job as the rules see it: the body, and what of the job file changes its meaning.
pub(super) struct Asked<'a, 'n, 's> {
    pub(super) body: &'a Body<'n, 's>,
    pub(super) target: Option<&'a Target>,
    pub(super) list_price_per_hour: Option<Money>,
    pub(super) spots: Vec<Spot>,
}

/// One place that asks for spot machines.
pub(super) struct Spot {
    /// `SpotSpec`, or `[spot]`.
    at: Anchor,
    /// Pointers of the JobSpecs that it is for.
    specs: Vec<String>,
    limits: Vec<Limit>,
}

/// A bid as it was written.
pub(super) struct Limit {
    /// Where its value stands.
    at: Anchor,
    unit: Unit,
    /// The number; `None` for anything else.
    amount: Option<f64>,
}

/// What the number of a bid counts, and where that is said.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A share of the list price.
    Share,
    /// CNY a minute, in a `SpotSpec`.
    SpecMinute,
    /// CNY a minute: `price_limit_per_minute`.
    TableMinute,
    /// CNY a minute, written as CNY an hour: `price_limit_per_hour`.
    TableHour,
}

/// Applies every rule.
pub(super) fn check(
    body: &Body<'_, '_>,
    target: Option<&Target>,
    table: Option<&SpotTable>,
    list_price_per_hour: Option<Money>,
) {
    let spots = spots(body, table);
    let asked = Asked { body, target, list_price_per_hour, spots };
    for rule in RULES {
        for Finding { at, message, mend, nearest } in (rule.find)(&asked) {
            let mut found = Diagnostic::error(at, rule.code, message, mend);
            found.severity = rule.severity;
            body.notes.add(found.near(nearest));
        }
    }
}

/// Everything that asks for spot machines.
fn spots(body: &Body<'_, '_>, table: Option<&SpotTable>) -> Vec<Spot> {
    let mut spots = Vec::new();
    for (spec, item) in body.items("/JobSpecs") {
        let pointer = step(&spec, "SpotSpec");
        let Some(Value::Object(fields)) = item.get("SpotSpec") else { continue };
        let limits = [("SpotDiscountLimit", Unit::Share), ("SpotPriceLimit", Unit::SpecMinute)];
        let limits = limits.into_iter().filter_map(|(name, unit)| {
            let value = fields.get(name).filter(|value| !value.is_null())?;
            let at = body.notes.source.at(&body.at(&step(&pointer, name)));
            Some(Limit { at, unit, amount: value.as_f64() })
        });
        let at = body.notes.source.at(&body.key_at(&pointer));
        spots.push(Spot { at, specs: vec![spec], limits: limits.collect() });
    }
    spots.extend(table.map(|table| {
        let (unit, amount) = match table.bid {
            Bid::Discount(share) => (Unit::Share, share),
            Bid::PricePerMinute(price) if table.hourly => (Unit::TableHour, price),
            Bid::PricePerMinute(price) => (Unit::TableMinute, price),
        };
        let amount = amount.to_string().parse().ok();
        let specs = body.items("/JobSpecs").map(|(pointer, _)| pointer).collect();
        let limits = vec![Limit { at: table.value.clone(), unit, amount }];
        Spot { at: table.header.clone(), specs, limits }
    }));
    spots
}

impl Asked<'_, '_, '_> {
    /// Where the key at a pointer of the body stands.
    fn key(&self, pointer: &str) -> Anchor {
        self.body.notes.source.at(&self.body.key_at(pointer))
    }

    /// Where the value at a pointer of the body stands.
    fn value(&self, pointer: &str) -> Anchor {
        self.body.notes.source.at(&self.body.at(pointer))
    }

    /// The text of a field of a JobSpec.
    fn spec_text(&self, spec: &str, field: &str) -> Option<&str> {
        self.body.text(&step(spec, field)).filter(|text| !text.is_empty())
    }
}
