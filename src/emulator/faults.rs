//! Faults on demand: what a call suffers before and after it is done.
//!
//! `PUT /emulator/faults` takes a JSON list and replaces the one before:
//!
//! ```json
//! [{"call": "CreateJob", "hold_before": "10s", "times": 1},
//!  {"call": "CreateJob", "drop_reply_after": true, "share": 0.5},
//!  {"call": "*", "status": 503, "body": "<html>busy</html>"}]
//! ```
//!
//! `hold_before` keeps the request as if it were still on its way: date and nonce are checked, and
//! the call is done, only after it. `delay` keeps the reply back after the call is done. `status`
//! (with `body`) answers in place of doing the call, or, with `"answer_after": true`, in place of
//! the true reply after doing it. `drop_before` and `drop_reply_after` close the connection without
//! a reply, before or after doing it. The first rule that fits a call is the one that acts.
//! Durations are milliseconds or texts such as `"2s"`.

use super::random::Random;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    answer_after: bool,
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
}

/// An answer out of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body, as it is.
    pub body: String,
}

#[derive(Debug)]
struct Rule {
    written: Written,
    fault: Fault,
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

    /// What a call of this name suffers now.
    pub fn meet(&mut self, call: &str) -> Fault {
        for rule in &mut self.rules {
            let named = rule.written.call == "*" || rule.written.call == call;
            if !named || rule.written.times == Some(0) {
                continue;
            }
            if self.random.fraction() >= rule.written.share.unwrap_or(1.0) {
                continue;
            }
            if let Some(times) = &mut rule.written.times {
                *times -= 1;
            }
            return rule.fault.clone();
        }
        Fault::default()
    }
}

impl Rule {
    fn read(written: Written) -> Result<Self, String> {
        if written.share.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Err("`share` is between 0 and 1".to_owned());
        }
        let answer = match written.status {
            None if written.body.is_some() => return Err("`body` needs a `status`".to_owned()),
            None => None,
            Some(status @ 200..=599) => {
                Some(Answer { status, body: written.body.clone().unwrap_or_default() })
            }
            Some(other) => return Err(format!("`status` {other} is not 200 to 599")),
        };
        let turn = match (answer, written.drop_before, written.drop_reply_after) {
            (None, false, false) => Turn::Fair,
            (None, true, false) => Turn::DropBefore,
            (None, false, true) => Turn::DropReply,
            (Some(answer), false, false) if written.answer_after => Turn::AnswerAfter(answer),
            (Some(answer), false, false) => Turn::AnswerInstead(answer),
            (Some(_) | None, _, _) => {
                return Err("at most one of `status`, `drop_before`, `drop_reply_after`".to_owned());
            }
        };
        let fault = Fault {
            hold_before: read_duration(written.hold_before.as_ref())?,
            delay: read_duration(written.delay.as_ref())?,
            turn,
        };
        Ok(Self { written, fault })
    }
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
        assert_eq!(faults.meet("CreateJob").turn, Turn::DropReply);
        let second = faults.meet("CreateJob");
        let answer = Answer { status: 503, body: "busy".into() };
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
        let met = (0..4000).filter(|_| faults.meet("ListJobs").turn == Turn::DropBefore).count();
        assert!((800..1200).contains(&met), "{met}");
        assert_eq!(faults.meet("GetJob"), Fault::default());
    }

    #[test]
    fn rules_that_make_no_sense_are_refused_and_the_old_ones_stay() {
        let mut faults = Faults::new(1);
        faults.replace(json!([{"call": "GetJob", "drop_before": true}])).expect("ok");
        for bad in [
            json!({"call": "GetJob"}),
            json!([{"call": "GetJob", "dlay": 1}]),
            json!([{"call": "GetJob", "status": 99}]),
            json!([{"call": "GetJob", "body": "x"}]),
            json!([{"call": "GetJob", "status": 500, "drop_before": true}]),
            json!([{"call": "GetJob", "share": 1.5}]),
            json!([{"call": "GetJob", "delay": "soon"}]),
        ] {
            assert!(faults.replace(bad.clone()).is_err(), "{bad}");
        }
        assert_eq!(faults.meet("GetJob").turn, Turn::DropBefore);
    }
}
