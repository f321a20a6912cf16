//! Our stamps on a submission: how they are written into a body, and read back.

use super::WireError;
use crate::model::ids::{AttemptNo, JobKey, Mark, Owner};
use crate::model::money::Money;
use crate::model::secret::Secret;
use crate::model::spec::Bid;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Letters that DLC takes in a `DisplayName`.
pub const DISPLAY_NAME_LIMIT: usize = 256;
/// The key of our tag in `Settings.Tags`.
pub const TAG: &str = "spotkeeper";

pub(super) const ENV_OWNER: &str = "SPOTKEEPER_OWNER";
pub(super) const ENV_MARK: &str = "SPOTKEEPER_MARK";
pub(super) const ENV_JOB: &str = "SPOTKEEPER_JOB";
pub(super) const ENV_RUN: &str = "SPOTKEEPER_RUN";
pub(super) const ENV_ATTEMPT: &str = "SPOTKEEPER_ATTEMPT";
pub(super) const ENV_RESUME_PATH: &str = "SPOTKEEPER_RESUME_PATH";
pub(super) const ENV_RESUME_STEP: &str = "SPOTKEEPER_RESUME_STEP";

/// `.sk`, the owner's 6 letters, `-`, the mark's 10.
const SUFFIX: usize = 3 + 6 + 1 + 10;

/// Everything that is ours in a CreateJob body.
#[derive(Debug, Clone)]
pub struct Submission<'a> {
    /// This installation.
    pub owner: &'a Owner,
    /// The name of this one CreateJob.
    pub mark: &'a Mark,
    /// The job and its run.
    pub job: &'a JobKey,
    /// The attempt's number.
    pub attempt: AttemptNo,
    /// `WorkspaceId`.
    pub workspace: &'a str,
    /// `UserCommand` as it is to run: resume argument filled in, launcher around it.
    pub user_command: &'a str,
    /// The bid; `None` leaves each JobSpec's own `SpotSpec`, or on-demand.
    pub bid: Option<Bid>,
    /// Container path of the checkpoint to go on from.
    pub resume_path: Option<&'a str>,
    /// Its step.
    pub resume_step: Option<u64>,
}

/// `<user's name, cut to fit>.sk<owner>-<mark>`.
pub fn display_name(user_name: &str, owner: &Owner, mark: &Mark) -> String {
    let kept = user_name.floor_char_boundary(DISPLAY_NAME_LIMIT - SUFFIX);
    format!("{}.sk{owner}-{mark}", &user_name[..kept])
}

/// Owner and mark at the end of a display name, if it has exactly our form.
pub fn parse_display_name(name: &str) -> Option<(Owner, Mark)> {
    let start = name.len().checked_sub(SUFFIX)?;
    parse_pair(name.get(start..)?.strip_prefix(".sk")?, '-')
}

/// `<owner><separator><mark>`.
pub(super) fn parse_pair(text: &str, separator: char) -> Option<(Owner, Mark)> {
    let (owner, mark) = text.split_once(separator)?;
    pair(owner, mark)
}

pub(super) fn pair(owner: &str, mark: &str) -> Option<(Owner, Mark)> {
    Owner::new(owner).ok().zip(Mark::new(mark).ok())
}

/// Sets DisplayName, WorkspaceId, UserCommand, Settings.Tags, Envs and SpotSpec of `body` and
/// leaves everything else in it, known to us or not, as it was.
///
/// # Errors
/// [`WireError::Shape`] if `Settings`, its `Tags`, or `Envs` is there and no object.
pub fn stamp_body(body: &mut Map<String, Value>, ours: &Submission<'_>) -> Result<(), WireError> {
    let owner = ours.owner;
    let mark = ours.mark;
    let user_name = body.get("DisplayName").and_then(Value::as_str).filter(|name| !name.is_empty());
    let name = display_name(user_name.unwrap_or(ours.job.name.as_str()), owner, mark);
    let settings = table(body, "Settings")?;
    table(settings, "Tags")?.insert(TAG.to_owned(), json!(format!("{owner}.{mark}")));
    let envs = table(body, "Envs")?;
    let mut set = |name: &str, value: &dyn std::fmt::Display| {
        envs.insert(name.to_owned(), Value::String(value.to_string()));
    };
    set(ENV_OWNER, owner);
    set(ENV_MARK, mark);
    set(ENV_JOB, &ours.job.name);
    set(ENV_RUN, &ours.job.run);
    set(ENV_ATTEMPT, &ours.attempt);
    if let Some(path) = ours.resume_path {
        set(ENV_RESUME_PATH, &path);
    }
    if let Some(step) = ours.resume_step {
        set(ENV_RESUME_STEP, &step);
    }
    body.insert("DisplayName".to_owned(), Value::String(name));
    body.insert("WorkspaceId".to_owned(), json!(ours.workspace));
    body.insert("UserCommand".to_owned(), json!(ours.user_command));
    if let Some(bid) = ours.bid {
        let specs = body.get_mut("JobSpecs").and_then(Value::as_array_mut);
        for spec in specs.into_iter().flatten().filter_map(Value::as_object_mut) {
            spec.insert("SpotSpec".to_owned(), spot_spec(bid));
        }
    }
    Ok(())
}

/// Adds environment values that are secrets. Kept apart from [`stamp_body`], so that the body that
/// is shown and stored never has them.
///
/// # Errors
/// [`WireError::Shape`] if `Envs` is there and no object.
pub fn add_secret_envs(
    body: &mut Map<String, Value>,
    secrets: &BTreeMap<String, Secret>,
) -> Result<(), WireError> {
    if !secrets.is_empty() {
        let envs = table(body, "Envs")?;
        envs.extend(secrets.iter().map(|(name, value)| (name.clone(), json!(value.expose()))));
    }
    Ok(())
}

/// The object at `field`, made if it is missing or null.
fn table<'a>(
    body: &'a mut Map<String, Value>,
    field: &'static str,
) -> Result<&'a mut Map<String, Value>, WireError> {
    let value = body.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().ok_or(WireError::Shape { field })
}

fn spot_spec(bid: Bid) -> Value {
    let (field, limit) = match bid {
        Bid::Discount(limit) => ("SpotDiscountLimit", limit),
        Bid::PricePerMinute(limit) => ("SpotPriceLimit", limit),
    };
    json!({"SpotStrategy": "SpotWithPriceLimit", field: number(limit)})
}

/// The amount as a JSON number that prints as the amount does.
fn number(amount: Money) -> Value {
    let text = amount.to_string();
    // A JSON number keeps the text that it was read from.
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlc::wire::{Source, job};
    use crate::model::ids::JobName;

    fn owner() -> Owner {
        Owner::new("k3f9qz").expect("an owner")
    }

    fn mark() -> Mark {
        Mark::new("abcdefgh27").expect("a mark")
    }

    fn key() -> JobKey {
        JobKey { name: JobName::new("sft").expect("a name"), run: 2 }
    }

    fn stamped(mut body: Value, bid: Option<Bid>) -> Value {
        let (owner, mark, job) = (owner(), mark(), key());
        let ours = Submission {
            owner: &owner,
            mark: &mark,
            job: &job,
            attempt: 3,
            workspace: "w1",
            user_command: "go",
            bid,
            resume_path: Some("/mnt/ckpt/iter_7"),
            resume_step: Some(7),
        };
        stamp_body(body.as_object_mut().expect("an object"), &ours).expect("a body");
        body
    }

    #[test]
    fn names_fit_and_are_read_back_exactly() {
        for name in ["", "a", "x.skk3f9qz-abcdefgh27", &"n".repeat(300), &"é".repeat(300)] {
            let full = display_name(name, &owner(), &mark());
            assert!(full.len() <= DISPLAY_NAME_LIMIT, "{full}");
            assert_eq!(parse_display_name(&full), Some((owner(), mark())), "{full}");
        }
        for other in [
            "",
            "sk",
            "x.skk3f9qz-abcdefgh27x",
            "x.skk3f9qz-abcdefgh2",
            "x.SKk3f9qz-abcdefgh27",
            "xskk3f9qz-abcdefgh27",
            "x.skk3f9qz_abcdefgh27",
            "x.skK3F9QZ-abcdefgh27",
            "x.skk3f9qz-ABCDEFGH27",
            "ééééééééééééééé",
        ] {
            assert_eq!(parse_display_name(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_stamped_is_read_back_and_nothing_else_changes() {
        let body = json!({
            "DisplayName": "mine", "JobType": "PyTorchJob", "Invented": {"Deep": [1, null]},
            "JobSpecs": [{"Type": "Master", "Odd": true}, {"Type": "Worker", "PodCount": 8}],
            "Settings": {"Tags": {"team": "a"}, "Driver": "5"}, "Envs": {"A": "1"},
        });
        let after = stamped(body.clone(), None);
        let mut answer = after.clone();
        answer["JobId"] = json!("dlc1");
        answer["Status"] = json!("Creating");
        let stamp = job(&answer, Source::GetJob).expect("a job").stamp;
        let ours = Some((owner(), mark()));
        assert_eq!((&stamp.name, &stamp.tag, &stamp.env), (&ours, &ours, &ours));
        assert_eq!(
            (stamp.job.as_deref(), stamp.run, stamp.attempt),
            (Some("sft"), Some(2), Some(3))
        );
        assert_eq!(stamp.resume_path.as_deref(), Some("/mnt/ckpt/iter_7"));
        assert_eq!(stamp.resume_step, Some(7));
        let mut undone = after;
        undone["DisplayName"] = json!("mine");
        undone["Settings"]["Tags"].as_object_mut().expect("tags").remove(TAG);
        undone["Envs"].as_object_mut().expect("envs").retain(|n, _| !n.starts_with("SPOTKEEPER_"));
        for ours in ["WorkspaceId", "UserCommand"] {
            undone.as_object_mut().expect("an object").remove(ours);
        }
        assert_eq!(undone, body);
    }

    #[test]
    fn prices_reach_the_body_as_written_on_every_spec() {
        let body = || json!({"JobSpecs": [{"Type": "Master"}, {"Type": "Worker", "SpotSpec": 1}]});
        for text in ["0.4", "0.011", "0.1", "0.9", "1", "0.123456", "34.74", "0.3", "0.00001"] {
            let money = Money::parse(text).expect("a price");
            let discount = stamped(body(), Some(Bid::Discount(money))).to_string();
            let want =
                format!("{{\"SpotDiscountLimit\":{text},\"SpotStrategy\":\"SpotWithPriceLimit\"}}");
            assert_eq!(discount.matches(&want).count(), 2, "{discount}");
            let price = stamped(body(), Some(Bid::PricePerMinute(money))).to_string();
            assert_eq!(price.matches(&format!("\"SpotPriceLimit\":{text},")).count(), 2, "{price}");
        }
    }

    #[test]
    fn missing_and_null_tables_are_made_and_wrong_ones_are_named() {
        let after = stamped(json!({"Settings": null, "Envs": null}), None);
        assert_eq!(after["Settings"]["Tags"][TAG], "k3f9qz.abcdefgh27");
        assert_eq!(after["DisplayName"], "sft.skk3f9qz-abcdefgh27");
        let mut wrong = json!({"Envs": []});
        let secrets = BTreeMap::from([("T".to_owned(), Secret::new("hf"))]);
        let body = wrong.as_object_mut().expect("an object");
        assert_eq!(add_secret_envs(body, &secrets), Err(WireError::Shape { field: "Envs" }));
        body.remove("Envs");
        add_secret_envs(body, &secrets).expect("a body");
        assert_eq!(wrong["Envs"]["T"], "hf");
    }
}
