//! Faults on demand: what a call suffers before and after it is done.
//!
//! `PUT /emulator/faults` takes a JSON list and replaces the one before:
//!
//! ```json
//! [{"call": "CreateJob", "hold_before": "10s", "times": 1},
//!  {"call": "CreateJob", "drop_reply_after": true, "share": 0.5},
//!  {"call": "ListJobs", "throttle": 0.3, "retry_after": "1500ms"},
//!  {"call": "StopJob", "code": "Forbidden.RAM", "access_denied_detail": true},
//!  {"call": "GetJob", "wrong_type": "Status"},
//!  {"call": "*", "product": "pai-dlc", "status": 503, "body": "<html>busy</html>"}]
//! ```
//!
//! `hold_before` keeps the request as if it were still on its way: date and nonce are checked, and
//! the call is done, only after it. `delay` keeps the reply back after the call is done. Besides
//! them a rule does one thing: `drop_before` and `drop_reply_after` close the connection without a
//! reply, before or after doing it; `status` with `body` answers just that, `code` an error in the
//! gateway's shape, `throttle` that of flow control, in place of doing the call or, with
//! `"answer_after": true`, after doing it; `wrong_type` and `truncate` spoil the true answer. The
//! first rule that fits a call is the one that acts. Durations are milliseconds or texts such as
//! `"2s"`.

use super::calls::{ACTIONS, Product};
use super::random::Random;
use super::spoil::{Becomes, Spoil};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Rules at one time.
const RULES_LIMIT: usize = 1_000;
/// Longest hold or delay.
const DELAY_LIMIT: Duration = Duration::from_hours(24);

/// A rule as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    call: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    product: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold_before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay: Option<Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    drop_before: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    drop_reply_after: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    access_denied_detail: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    throttle: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after: Option<Value>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    answer_after: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wrong_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    becomes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncate: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
}

/// What a call suffers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fault {
    /// Time on its way, before it is looked at.
    pub hold_before: Duration,
    /// Time between doing it and replying.
    pub delay: Duration,
    /// What becomes of call and reply.
    pub turn: Turn,
}

/// What becomes of a call and its reply.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Turn {
    /// Done and replied to.
    #[default]
    Fair,
    /// Not done, not replied to.
    DropBefore,
    /// Done, not replied to.
    DropReply,
    /// Not done, but answered.
    AnswerInstead(Answer),
    /// Done, but answered with something else.
    AnswerAfter(Answer),
    /// Done, and the true answer is spoilt.
    Spoil(Spoil),
}

/// An answer out of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// What it says.
    pub says: Says,
    /// `x-acs-retry-after`.
    pub retry_after: Option<Duration>,
}

/// What an answer out of a rule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Says {
    /// A body as it is.
    Raw(String),
    /// An error in the gateway's shape.
    Error {
        /// `Code`.
        code: String,
        /// `Message`.
        message: String,
        /// `AccessDeniedDetail`.
        denied: Denied,
    },
}

/// `AccessDeniedDetail` of an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Denied {
    /// None.
    No,
    /// The usual one, made out for the call.
    Usual,
    /// This one.
    As(Map<String, Value>),
}

#[derive(Debug)]
struct Rule {
    written: Written,
    fault: Fault,
    share: f64,
}

/// The rules in force.
#[derive(Debug)]
pub struct Faults {
    rules: Vec<Rule>,
    random: Random,
}

impl Faults {
    /// No rules. `seed` decides whom a `share` meets.
    pub fn new(seed: u64) -> Self {
        Self { rules: Vec::new(), random: Random::new(seed) }
    }

    /// Replaces all rules.
    ///
    /// # Errors
    /// Says in words what is wrong with `list`; then the old rules stay.
    pub fn replace(&mut self, list: Value) -> Result<(), String> {
        let written: Vec<Written> = serde_json::from_value(list).map_err(|e| e.to_string())?;
        if written.len() > RULES_LIMIT {
            return Err(format!("more than {RULES_LIMIT} rules"));
        }
        self.rules = written.into_iter().map(Rule::read).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// The rules as written, with the `times` that are left.
    pub fn list(&self) -> Value {
        let written: Vec<&Written> = self.rules.iter().map(|rule| &rule.written).collect();
        serde_json::to_value(written).unwrap_or(Value::Null)
    }

    /// Lets the dice that decide on shares begin anew.
    pub fn seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
    }

    /// What a call of this name and product suffers now. A request that no call fits has no name.
    pub fn meet(&mut self, product: Product, call: &str) -> Fault {
        for rule in &mut self.rules {
            let written = &mut rule.written;
            let of_product = written.product.as_ref().is_none_or(|word| word == product.word());
            let named = written.call == "*" || written.call == call;
            if !of_product || !named || written.times == Some(0) {
                continue;
            }
            if self.random.fraction() >= rule.share {
                continue;
            }
            if let Some(times) = &mut written.times {
                *times -= 1;
            }
            return rule.fault.clone();
        }
        Fault::default()
    }
}

impl Rule {
    fn read(written: Written) -> Result<Self, String> {
        check_name(&written)?;
        let share = read_share(&written)?;
        let answer = read_answer(&written)?;
        let spoil = read_spoil(&written)?;
        let drops = (written.drop_before, written.drop_reply_after);
        let turn = match (answer, spoil, drops) {
            (None, None, (false, false)) => Turn::Fair,
            (None, None, (true, false)) => Turn::DropBefore,
            (None, None, (false, true)) => Turn::DropReply,
            (Some(answer), None, (false, false)) if written.answer_after => {
                Turn::AnswerAfter(answer)
            }
            (Some(answer), None, (false, false)) => Turn::AnswerInstead(answer),
            (None, Some(spoil), (false, false)) => Turn::Spoil(spoil),
            (Some(_) | None, Some(_) | None, _) => {
                return Err("at most one of an answer (`status`, `code`, `throttle`), \
                            `wrong_type`, `truncate`, `drop_before`, `drop_reply_after`"
                    .to_owned());
            }
        };
        if written.answer_after && !matches!(turn, Turn::AnswerAfter(_)) {
            return Err("`answer_after` needs `status`, `code` or `throttle`".to_owned());
        }
        let fault = Fault {
            hold_before: read_duration(written.hold_before.as_ref())?,
            delay: read_duration(written.delay.as_ref())?,
            turn,
        };
        Ok(Self { written, fault, share })
    }
}

/// A rule for a call that is not there would never act.
fn check_name(written: &Written) -> Result<(), String> {
    let product = match &written.product {
        None => None,
        Some(word) => {
            let found = Product::ALL.into_iter().find(|product| product.word() == word);
            let words = Product::ALL.map(Product::word).join(", ");
            Some(found.ok_or_else(|| format!("`product` {word} is none of {words}"))?)
        }
    };
    let fits = |wanted: Product| product.is_none_or(|product| product == wanted);
    let known = ACTIONS.iter().any(|a| a.name == written.call && fits(a.product));
    match product {
        _ if known || written.call == "*" => Ok(()),
        None => Err(format!("no call is named `{}`; `*` is every call", written.call)),
        Some(product) => Err(format!("{} has no call `{}`", product.word(), written.call)),
    }
}

/// The share of the calls that a rule meets; `throttle` may name it too.
fn read_share(written: &Written) -> Result<f64, String> {
    let share = |share: f64, name: &str| match share {
        0.0..=1.0 => Ok(share),
        other => Err(format!("`{name}` {other} is not between 0 and 1")),
    };
    match (&written.throttle, written.share) {
        (Some(Value::Number(number)), None) => share(number.as_f64().unwrap_or(-1.0), "throttle"),
        (Some(Value::Number(_)), Some(_)) => {
            Err("`throttle` as a number is a share already: leave out `share`".to_owned())
        }
        (None | Some(Value::Bool(true)), None) => Ok(1.0),
        (None | Some(Value::Bool(true)), Some(given)) => share(given, "share"),
        (Some(other), _) => Err(format!("`throttle` {other} is neither true nor a share")),
    }
}

fn read_answer(written: &Written) -> Result<Option<Answer>, String> {
    if let Some(other) = written.status.filter(|status| !(200..=599).contains(status)) {
        return Err(format!("`status` {other} is not 200 to 599"));
    }
    let code = match (&written.code, &written.throttle, &written.access_denied_detail) {
        (Some(_), Some(_), _) => return Err("at most one of `code`, `throttle`".to_owned()),
        (Some(code), None, _) => Some(code.as_str()),
        (None, Some(_), _) => Some("Throttling.User"),
        (None, None, Some(_)) => Some("Forbidden.RAM"),
        (None, None, None) => None,
    };
    let denied = match &written.access_denied_detail {
        None | Some(Value::Bool(false)) => Denied::No,
        Some(Value::Bool(true)) => Denied::Usual,
        Some(Value::Object(detail)) => Denied::As(detail.clone()),
        Some(other) => return Err(format!("`access_denied_detail` {other} is no object")),
    };
    let says = match (code, &written.body) {
        (Some(_), Some(_)) => return Err("`body` does not go with `code` or `throttle`".to_owned()),
        (Some(code), None) => Says::Error {
            code: code.to_owned(),
            message: written.message.clone().unwrap_or_else(|| usual_message(code).to_owned()),
            denied,
        },
        (None, _) if written.message.is_some() => return Err("`message` needs a `code`".to_owned()),
        (None, Some(_)) if written.status.is_none() => {
            return Err("`body` needs a `status`".to_owned());
        }
        (None, _) if written.status.is_none() => {
            return match written.retry_after {
                None => Ok(None),
                Some(_) => Err("`retry_after` needs `status`, `code` or `throttle`".to_owned()),
            };
        }
        (None, body) => Says::Raw(body.clone().unwrap_or_default()),
    };
    let retry_after = match &written.retry_after {
        None => None,
        given @ Some(_) => Some(read_duration(given.as_ref())?),
    };
    let status = written.status.unwrap_or_else(|| code.map_or(500, usual_status));
    Ok(Some(Answer { status, says, retry_after }))
}

/// The HTTP status that goes with a code when a rule names none.
fn usual_status(code: &str) -> u16 {
    match code.split('.').next().unwrap_or_default() {
        "Throttling" => 429,
        "Forbidden" | "NoPermission" => 403,
        "NotFound" | "InvalidAccessKeyId" => 404,
        "InternalError" => 500,
        "ServiceUnavailable" => 503,
        _ => 400,
    }
}

fn usual_message(code: &str) -> &'static str {
    match code.split('.').next().unwrap_or_default() {
        "Throttling" => "Request was denied due to user flow control.",
        "Forbidden" | "NoPermission" => "User not authorized to operate on the specified resource.",
        "ServiceUnavailable" => "The service is not available for the moment.",
        _ => "An error that was asked for.",
    }
}

fn read_spoil(written: &Written) -> Result<Option<Spoil>, String> {
    let becomes = match &written.becomes {
        None => Becomes::Other,
        Some(_) if written.wrong_type.is_none() => {
            return Err("`becomes` needs `wrong_type`".to_owned());
        }
        Some(word) => {
            let found = Becomes::WORDS.iter().find(|(known, _)| known == word);
            let words = Becomes::WORDS.map(|(known, _)| known).join(", ");
            found.ok_or_else(|| format!("`becomes` {word} is none of {words}"))?.1
        }
    };
    match (&written.wrong_type, written.truncate) {
        (None, None) => Ok(None),
        (Some(field), None) if field.is_empty() => Err("`wrong_type` names no field".to_owned()),
        (Some(field), None) => Ok(Some(Spoil::WrongType { field: field.clone(), becomes })),
        (None, Some(bytes)) => Ok(Some(Spoil::CutOff(bytes))),
        (Some(_), Some(_)) => Err("at most one of `wrong_type`, `truncate`".to_owned()),
    }
}

/// The usual `AccessDeniedDetail` of a call that RAM does not allow.
pub fn usual_denial(product: Product, call: &str) -> Value {
    json!({
        "AuthAction": product.ram_action(call), "AuthPrincipalType": "SubUser",
        "AuthPrincipalOwnerId": super::views::USER_ID,
        "AuthPrincipalDisplayName": super::views::USER_NAME,
        "NoPermissionType": "ImplicitDeny", "PolicyType": "AccountLevelIdentityBasedPolicy",
        "EncodedDiagnosticMessage": "AAAA",
    })
}

fn read_duration(value: Option<&Value>) -> Result<Duration, String> {
    let wrong = |value: &Value| format!("{value} is no duration: milliseconds or \"2s\", to a day");
    let Some(value) = value else { return Ok(Duration::ZERO) };
    let duration = match (value.as_u64(), value.as_str()) {
        (Some(ms), _) => Duration::from_millis(ms),
        (None, Some(text)) => super::args::duration(text).map_err(|_| wrong(value))?,
        (None, None) => return Err(wrong(value)),
    };
    if duration > DELAY_LIMIT { Err(wrong(value)) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_rule_that_fits_acts_as_often_as_it_may() {
        let mut faults = Faults::new(1);
        faults
            .replace(json!([
                {"call": "CreateJob", "drop_reply_after": true, "times": 1},
                {"call": "*", "status": 503, "body": "busy", "delay": 20, "hold_before": "2s"},
            ]))
            .expect("rules");
        assert_eq!(faults.meet(Product::Dlc, "CreateJob").turn, Turn::DropReply);
        let second = faults.meet(Product::Dlc, "CreateJob");
        let says = Says::Raw("busy".into());
        let answer = Answer { status: 503, says, retry_after: None };
        assert_eq!(second.turn, Turn::AnswerInstead(answer));
        assert_eq!(second.delay, Duration::from_millis(20));
        assert_eq!(second.hold_before, Duration::from_secs(2));
        assert_eq!(faults.list()[0]["times"], 0);
    }

    #[test]
    fn a_share_meets_that_share_of_the_calls() {
        let mut faults = Faults::new(3);
        faults
            .replace(json!([{"call": "ListJobs", "drop_before": true, "share": 0.25}]))
            .expect("ok");
        let met = (0..4000)
            .filter(|_| faults.meet(Product::Dlc, "ListJobs").turn == Turn::DropBefore)
            .count();
        assert!((800..1200).contains(&met), "{met}");
        assert_eq!(faults.meet(Product::Dlc, "GetJob"), Fault::default());
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_and_the_old_ones_stay() {
        let mut faults = Faults::new(1);
        faults.replace(json!([{"call": "GetJob", "drop_before": true}])).expect("ok");
        for (bad, word) in [
            (json!({"call": "GetJob"}), "sequence"),
            (json!([{"call": "GetJob", "dlay": 1}]), "dlay"),
            (json!([{"call": "GetJobs", "drop_before": true}]), "GetJobs"),
            (json!([{"call": "GetJob", "product": "ecs"}]), "paistudio"),
            (json!([{"call": "GetJob", "product": "paistudio"}]), "has no call"),
            (json!([{"call": "GetJob", "status": 99}]), "99"),
            (json!([{"call": "GetJob", "body": "x"}]), "status"),
            (json!([{"call": "GetJob", "message": "x"}]), "code"),
            (json!([{"call": "GetJob", "code": "X", "body": "x"}]), "body"),
            (json!([{"call": "GetJob", "code": "X", "throttle": true}]), "throttle"),
            (json!([{"call": "GetJob", "throttle": "2s"}]), "share"),
            (json!([{"call": "GetJob", "throttle": 1.5}]), "throttle"),
            (json!([{"call": "GetJob", "throttle": 0.5, "share": 0.5}]), "share"),
            (json!([{"call": "GetJob", "retry_after": "2s"}]), "retry_after"),
            (json!([{"call": "GetJob", "status": 500, "drop_before": true}]), "at most one"),
            (json!([{"call": "GetJob", "status": 500, "wrong_type": "Jobs"}]), "at most one"),
            (json!([{"call": "GetJob", "truncate": 1, "wrong_type": "Jobs"}]), "at most one"),
            (json!([{"call": "GetJob", "becomes": "list"}]), "wrong_type"),
            (json!([{"call": "GetJob", "wrong_type": "Jobs", "becomes": "x"}]), "boolean"),
            (json!([{"call": "GetJob", "answer_after": true}]), "answer_after"),
            (json!([{"call": "GetJob", "access_denied_detail": 1}]), "access_denied_detail"),
            (json!([{"call": "GetJob", "share": 1.5}]), "share"),
            (json!([{"call": "GetJob", "delay": "soon"}]), "soon"),
        ] {
            let why = faults.replace(bad.clone()).expect_err("refused");
            assert!(why.contains(word), "{bad}: {why}");
        }
        assert_eq!(faults.meet(Product::Dlc, "GetJob").turn, Turn::DropBefore);
    }
}
