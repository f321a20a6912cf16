//! ListJobs: filters, order and pages, with the traps that the real one has. Without `StartTime`
//! and `EndTime` only the last 7 days are searched; `DisplayName` is a substring in any case; a
//! page is cut out of what there is when it is asked for, so jobs that come in shift the next one.

use super::calls::query::{DEFAULT_WINDOW, Order, Page, Query, Window, wrong};
use super::job::{Job, Moment};
use super::submission::JOB_TYPES;
use super::views::{USER_ID, USER_NAME, quota, workspace};
use super::world::CallError;
use crate::model::time::WallTime;
use serde_json::{Map, Value};
use std::cmp::Ordering;

const STATUSES: [&str; 13] = [
    "Creating",
    "Queuing",
    "Bidding",
    "EnvPreparing",
    "SanityChecking",
    "Running",
    "Restarting",
    "Stopping",
    "SucceededReserving",
    "FailedReserving",
    "Succeeded",
    "Failed",
    "Stopped",
];
const OVERSOLD: [&str; 4] = [
    "ForbiddenQuotaOverSold",
    "ForceQuotaOverSold",
    "AcceptQuotaOverSold-true",
    "AcceptQuotaOverSold-false",
];
/// Fields of times that a search can be about.
const TIME_FIELDS: [&str; 4] =
    ["GmtCreateTime", "GmtSubmittedTime", "GmtRunningTime", "GmtFinishTime"];
/// Fields of numbers that a search can be about.
const NUMBER_FIELDS: [&str; 3] = ["Duration", "NodeCount", "Priority"];

/// The parameters of one ListJobs.
#[derive(Debug)]
pub struct ListQuery {
    query: Query,
    tags: Map<String, Value>,
    window: Window,
    numbers: Option<NumberRange>,
    sort_by: SortBy,
    order: Order,
    page: Page,
    now: WallTime,
}

#[derive(Debug, Clone, Copy)]
enum SortBy {
    DisplayName,
    JobType,
    Status,
    CreateTime,
    FinishTime,
}

#[derive(Debug)]
struct NumberRange {
    field: String,
    least: f64,
    most: f64,
}

impl ListQuery {
    /// Reads the query of a request.
    ///
    /// # Errors
    /// [`CallError::InvalidParameter`] names the parameter.
    pub fn read(query: &Query, now: Moment) -> Result<Self, CallError> {
        query.word("Status", &STATUSES)?;
        query.word("JobType", &JOB_TYPES)?;
        query.word("Accessibility", &["PUBLIC", "PRIVATE"])?;
        query.word("PaymentType", &["PrePaid", "Spot", "PostPaid"])?;
        query.word("OversoldInfo", &OVERSOLD)?;
        query.word("TimeRangeField", &TIME_FIELDS)?;
        query.flag("EnableAssignNode")?;
        // All jobs are the caller's own: it changes nothing else.
        let own = query.flag("ShowOwn")?;
        if query.flag("FromAllWorkspaces")? == Some(true) && own != Some(true) {
            return Err(wrong("FromAllWorkspaces: needs ShowOwn=true"));
        }
        let sort_by = match query.text("SortBy") {
            None | Some("GmtCreateTime") => SortBy::CreateTime,
            Some("DisplayName") => SortBy::DisplayName,
            Some("JobType") => SortBy::JobType,
            Some("Status") => SortBy::Status,
            Some("GmtFinishTime") => SortBy::FinishTime,
            Some(other) => return Err(wrong(format!("SortBy: jobs are not sorted by {other}"))),
        };
        Ok(Self {
            tags: read_tags(query)?,
            window: query.window(now, DEFAULT_WINDOW)?,
            numbers: NumberRange::read(query)?,
            sort_by,
            order: query.order(Order::Descending)?,
            page: query.page()?,
            query: query.clone(),
            now: now.wall,
        })
    }

    /// Whether a job is searched for: every filter must let it through.
    pub fn matches(&self, job: &Job) -> bool {
        let time = match self.query.text("TimeRangeField") {
            None | Some("GmtCreateTime") => Some(job.created.wall),
            Some("GmtSubmittedTime") => job.entered("Queuing"),
            Some("GmtRunningTime") => job.entered("Running"),
            Some(_) => job.finished(),
        };
        time.is_some_and(|time| self.window.holds(time))
            && self.is_named(job)
            && self.is_placed(job)
            && self.says(job)
            && self.numbers.as_ref().is_none_or(|range| range.holds(job, self.now))
            && self.tags.iter().all(|(key, value)| {
                setting(job, "Tags").and_then(|tags| tags.get(key)) == Some(value)
            })
    }

    /// Whether a parameter is not given or fits.
    fn asked(&self, name: &str, fits: impl Fn(&str) -> bool) -> bool {
        self.query.text(name).is_none_or(fits)
    }

    fn one_of(&self, name: &str, value: &str) -> bool {
        self.query.list(name).is_none_or(|words| words.contains(&value))
    }

    fn is_named(&self, job: &Job) -> bool {
        let by_list = self.query.text("JobId").is_some() || self.one_of("JobIds", &job.id);
        by_list
            && self.asked("JobId", |id| id.eq_ignore_ascii_case(&job.id))
            && self.asked("DisplayName", |part| within(&job.submission.display_name, part))
            && self.asked("Status", |word| word == job.stage.word())
            && self.asked("JobType", |kind| kind == job.submission.job_type)
            && self.asked("UserIdForFilter", |id| id == USER_ID)
            && self.asked("Username", |part| within(USER_NAME, part))
    }

    fn is_placed(&self, job: &Job) -> bool {
        let everywhere = matches!(self.query.flag("FromAllWorkspaces"), Ok(Some(true)));
        let public = field(job, "Accessibility") == "PUBLIC";
        let payment = match (quota(job), job.submission.bid) {
            (_, Some(_)) => "Spot",
            ("", None) => "PostPaid",
            (_, None) => "PrePaid",
        };
        let assigned = job.submission.body.get("JobSpecs").and_then(Value::as_array);
        let assigned = assigned.is_some_and(|specs| {
            specs.iter().any(|spec| spec["AssignNodeSpec"]["EnableAssignNode"] == true)
        });
        (everywhere || self.asked("WorkspaceId", |id| id == workspace(job)))
            && self.asked("Accessibility", |word| (word == "PUBLIC") == public)
            && self.asked("PaymentType", |word| word == payment)
            && self.asked("ResourceId", |id| id == quota(job))
            && self.one_of("ResourceIds", quota(job))
            && self.asked("ResourceQuotaName", |part| within(quota(job), part))
            && self.asked("EnableAssignNode", |word| word.eq_ignore_ascii_case("true") == assigned)
            && self.asked("OversoldInfo", |word| {
                // No job here runs on what others left idle.
                let word = word.trim_end_matches("-false");
                setting(job, "OversoldType").and_then(Value::as_str) == Some(word)
            })
    }

    fn says(&self, job: &Job) -> bool {
        let images = job.submission.body.get("JobSpecs").and_then(Value::as_array);
        let images = images.into_iter().flatten().filter_map(|spec| spec["Image"].as_str());
        let images = images.collect::<Vec<_>>().join(" ");
        let reason = format!("{} {}", job.reason_code, job.reason_message);
        ["BusinessUserId", "Caller", "PipelineId"].iter().all(|name| {
            let sent = setting(job, name).and_then(Value::as_str).unwrap_or_default();
            self.asked(name, |wanted| wanted == sent)
        }) && self.asked("TemplateId", |id| id == field(job, "TemplateId"))
            && self.asked("Description", |part| within(field(job, "Description"), part))
            && self.asked("UserCommandSearch", |words| has_words(&job.submission.command, words))
            && self.asked("ImageSearch", |words| has_words(&images, words))
            && self.asked("ReasonSearch", |words| has_words(&reason, words))
    }

    /// The jobs of the page that was asked for, and how many there are in all.
    pub fn page<'a>(&self, jobs: impl Iterator<Item = &'a Job>) -> (Vec<&'a Job>, usize) {
        let mut found: Vec<&Job> = jobs.filter(|job| self.matches(job)).collect();
        found.sort_by(|a, b| self.order.apply(self.compare(a, b).then_with(|| a.id.cmp(&b.id))));
        self.page.cut(found)
    }

    fn compare(&self, a: &Job, b: &Job) -> Ordering {
        match self.sort_by {
            SortBy::DisplayName => a.submission.display_name.cmp(&b.submission.display_name),
            SortBy::JobType => a.submission.job_type.cmp(&b.submission.job_type),
            SortBy::Status => a.stage.word().cmp(b.stage.word()),
            SortBy::CreateTime => a.created.wall.cmp(&b.created.wall),
            SortBy::FinishTime => a.finished().cmp(&b.finished()),
        }
    }
}

impl NumberRange {
    fn read(query: &Query) -> Result<Option<Self>, CallError> {
        let limit = |name: &str| {
            let Some(text) = query.text(name) else { return Ok(None) };
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            number.map(Some).ok_or_else(|| wrong(format!("{name}: {text} is no number")))
        };
        let (least, most) = (limit("NumericRangeMin")?, limit("NumericRangeMax")?);
        match (query.word("NumericRangeField", &NUMBER_FIELDS)?, least, most) {
            (None, None, None) => Ok(None),
            (Some(_), None, None) => {
                Err(wrong("NumericRangeField: needs NumericRangeMin or NumericRangeMax"))
            }
            (None, _, _) => Err(wrong("NumericRangeMin, NumericRangeMax: need NumericRangeField")),
            (Some(field), least, most) => Ok(Some(Self {
                field: field.to_owned(),
                least: least.unwrap_or(f64::NEG_INFINITY),
                most: most.unwrap_or(f64::INFINITY),
            })),
        }
    }

    fn holds(&self, job: &Job, now: WallTime) -> bool {
        let number = match self.field.as_str() {
            "Duration" => job.entered("Running").map_or(0.0, |from| {
                job.finished().unwrap_or(now).since(from).as_secs_f64().floor()
            }),
            "NodeCount" => u32::try_from(job.pods.len()).map_or(f64::INFINITY, f64::from),
            _ => job.submission.body.get("Priority").and_then(Value::as_f64).unwrap_or(1.0),
        };
        (self.least..=self.most).contains(&number)
    }
}

/// `Tags` is a JSON object in a text; a job must have all of them.
fn read_tags(query: &Query) -> Result<Map<String, Value>, CallError> {
    let Some(text) = query.text("Tags") else { return Ok(Map::new()) };
    serde_json::from_str(text).map_err(|_| wrong(format!("Tags: {text} is no JSON object")))
}

fn field<'a>(job: &'a Job, name: &str) -> &'a str {
    job.submission.body.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn setting<'a>(job: &'a Job, name: &str) -> Option<&'a Value> {
    job.submission.body.get("Settings")?.get(name)
}

fn within(text: &str, part: &str) -> bool {
    text.to_lowercase().contains(&part.to_lowercase())
}

/// Whether every word of `wanted` is a word of the text, in any case: a search by words, which
/// does not find parts of one.
fn has_words(text: &str, wanted: &str) -> bool {
    let words = |text: &str| {
        let text = text.to_lowercase();
        text.split(|c: char| !c.is_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let there = words(text);
    words(wanted).iter().all(|word| there.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::submission::Submission;
    use crate::emulator::submission::tests::sample;
    use crate::openapi::signature::percent_encode;
    use serde_json::json;
    use std::time::Duration;

    const NOW: WallTime = WallTime(1_000_000_000_000);

    fn read(query: &[(&str, &str)]) -> Result<ListQuery, CallError> {
        let pairs = query.iter().map(|(name, value)| format!("{name}={}", percent_encode(value)));
        let query = Query::read(&pairs.collect::<Vec<_>>().join("&"));
        ListQuery::read(&query, Moment { at: Duration::ZERO, wall: NOW })
    }

    fn job(id: &str, name: &str, age: Duration) -> Job {
        let mut body = sample();
        body["DisplayName"] = json!(name);
        body["WorkspaceId"] = json!("7");
        body["Settings"] = json!({"Tags": {"a": id, "b": "x"}, "Caller": "me"});
        let submission = Submission::read(body.to_string().as_bytes(), 1.0).expect("fine");
        Job::new(id.into(), submission, Moment { at: Duration::ZERO, wall: NOW.minus(age) })
    }

    fn ids(jobs: &[Job], query: &[(&str, &str)]) -> (Vec<String>, usize) {
        let (page, total) = read(query).expect("a query").page(jobs.iter());
        (page.iter().map(|job| job.id.clone()).collect(), total)
    }

    #[test]
    fn filters_narrow_and_the_default_window_hides_old_jobs() {
        let hour = Duration::from_hours(1);
        let jobs = [job("d1", "run-1", hour), job("d2", "Run-10", hour * 2)];
        let old = [job("d3", "run-1", hour * 24 * 8)];
        let all: Vec<Job> = jobs.into_iter().chain(old).collect();
        let found = |query: &[(&str, &str)]| ids(&all, query).0.join(" ");
        assert_eq!(found(&[("DisplayName", "RUN-1")]), "d1 d2");
        assert_eq!(found(&[("StartTime", "2001-08-01T00:00:00Z")]), "d1 d2 d3");
        assert_eq!(found(&[("Status", "Running")]), "");
        assert_eq!(found(&[("Status", "Creating"), ("JobId", "d2")]), "d2");
        assert_eq!(found(&[("Tags", r#"{"a":"d1","b":"x"}"#)]), "d1");
        assert_eq!(found(&[("Tags", r#"{"a":"d1","b":"y"}"#)]), "");
        assert_eq!(found(&[("WorkspaceId", "8")]), "");
        assert_eq!(found(&[("Caller", "me"), ("PaymentType", "Spot")]), "d1 d2");
        assert_eq!(found(&[("SortBy", "DisplayName"), ("Order", "asc")]), "d2 d1");
        assert_eq!(found(&[("JobIds", "d1,dx")]), "d1");
    }

    #[test]
    fn pages_never_hold_more_than_a_hundred_and_tell_the_total() {
        let jobs: Vec<Job> =
            (0..250).map(|n| job(&format!("d{n:03}"), "x", Duration::ZERO)).collect();
        let (page, total) = ids(&jobs, &[("PageSize", "500"), ("PageNumber", "3")]);
        assert_eq!((page.len(), total), (50, 250));
        assert_eq!(ids(&jobs, &[]).0.len(), 10);
        assert!(ids(&jobs, &[("PageNumber", "99")]).0.is_empty());
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        for (name, value) in [
            ("PageNumber", "0"),
            ("PageSize", "x"),
            ("Tags", "a=b"),
            ("StartTime", "yesterday"),
            ("SortBy", "Price"),
            ("Order", "up"),
            ("FromAllWorkspaces", "true"),
            ("ShowOwn", "yes"),
            ("Status", "Running,Failed"),
            ("JobType", "pytorchjob"),
            ("Accessibility", "public"),
            ("PaymentType", "Free"),
            ("OversoldInfo", "x"),
            ("EnableAssignNode", "1"),
            ("TimeRangeField", "Duration"),
            ("NumericRangeField", "Duration"),
            ("NumericRangeMin", "1"),
        ] {
            match read(&[(name, value)]) {
                Err(CallError::InvalidParameter(why)) => assert!(why.contains(name), "{why}"),
                other => panic!("{name}: {other:?}"),
            }
        }
        let turned = [("StartTime", "2026-01-02T00:00:00Z"), ("EndTime", "2026-01-01T00:00:00Z")];
        assert!(read(&turned).is_err());
    }
}
