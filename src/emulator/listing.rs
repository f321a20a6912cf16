//! ListJobs: filters, order and pages, with the traps that the real one has. Without `StartTime`
//! and `EndTime` only the last 7 days are searched; `DisplayName` is a substring in any case.

use super::job::Job;
use super::views::{USER_ID, USER_NAME, workspace};
use crate::model::time::WallTime;
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::time::Duration;

/// Jobs on one page at most; more that are asked for are not given.
const PAGE_SIZE_LIMIT: usize = 100;
/// Jobs on a page when nothing is asked for.
const PAGE_SIZE_DEFAULT: usize = 10;
/// How far back a search without times goes.
const DEFAULT_WINDOW: Duration = Duration::from_hours(7 * 24);

/// The parameters of one ListJobs.
#[derive(Debug)]
pub struct ListQuery {
    texts: BTreeMap<String, String>,
    tags: Map<String, Value>,
    from: WallTime,
    until: WallTime,
    sort_by: SortBy,
    order: Order,
    page: usize,
    page_size: usize,
}

#[derive(Debug, Clone, Copy)]
enum SortBy {
    DisplayName,
    JobType,
    Status,
    CreateTime,
    FinishTime,
}

#[derive(Debug, Clone, Copy)]
enum Order {
    Ascending,
    Descending,
}

impl ListQuery {
    /// Reads the query of a request.
    ///
    /// # Errors
    /// What is wrong, in words for an `InvalidParameter`.
    pub fn read(query: &[(String, String)], now: WallTime) -> Result<Self, String> {
        let texts: BTreeMap<String, String> =
            query.iter().filter(|(_, value)| !value.is_empty()).cloned().collect();
        let get = |name: &str| texts.get(name).map(String::as_str);
        let time = |name: &str| match get(name) {
            None => Ok(None),
            Some(text) => WallTime::parse(text)
                .map(Some)
                .ok_or_else(|| format!("{name}: {text} is not YYYY-MM-DDTHH:MM:SSZ")),
        };
        let number = |name: &str, default: usize| match get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| *n > 0)
                .ok_or_else(|| format!("{name}: {text} is no number from 1")),
        };
        let tags = match get("Tags") {
            None => Map::new(),
            Some(text) => {
                serde_json::from_str(text).map_err(|_| format!("Tags: {text} is no JSON object"))?
            }
        };
        let sort_by = match get("SortBy") {
            None | Some("GmtCreateTime") => SortBy::CreateTime,
            Some("DisplayName") => SortBy::DisplayName,
            Some("JobType") => SortBy::JobType,
            Some("Status") => SortBy::Status,
            Some("GmtFinishTime") => SortBy::FinishTime,
            Some(other) => return Err(format!("SortBy: jobs cannot be sorted by {other}")),
        };
        let order = match get("Order") {
            None => Order::Descending,
            Some(text) if text.eq_ignore_ascii_case("desc") => Order::Descending,
            Some(text) if text.eq_ignore_ascii_case("asc") => Order::Ascending,
            Some(other) => return Err(format!("Order: {other} is neither asc nor desc")),
        };
        if is_true(get("FromAllWorkspaces")) && !is_true(get("ShowOwn")) {
            return Err("FromAllWorkspaces: needs ShowOwn=true".to_owned());
        }
        let (start, end) = (time("StartTime")?, time("EndTime")?);
        let until = end.unwrap_or(WallTime(i64::MAX));
        let from = start.unwrap_or_else(|| until.min(now).minus(DEFAULT_WINDOW));
        let page = number("PageNumber", 1)?;
        let page_size = number("PageSize", PAGE_SIZE_DEFAULT)?.min(PAGE_SIZE_LIMIT);
        Ok(Self { texts, tags, from, until, sort_by, order, page, page_size })
    }

    /// Whether a job is searched for.
    pub fn matches(&self, job: &Job) -> bool {
        let created = job.created.wall;
        created >= self.from
            && created <= self.until
            && self.texts.iter().all(|(name, wanted)| self.fits(job, name, wanted))
            && self.tags.iter().all(|(key, value)| {
                job.submission.body.get("Settings").and_then(|s| s.get("Tags")?.get(key))
                    == Some(value)
            })
    }

    fn fits(&self, job: &Job, name: &str, wanted: &str) -> bool {
        let body = |key: &str| job.submission.body.get(key).and_then(Value::as_str).unwrap_or("");
        let setting = |key: &str| {
            job.submission.body.get("Settings").and_then(|s| s.get(key)?.as_str()).unwrap_or("")
        };
        let within = |text: &str| text.to_lowercase().contains(&wanted.to_lowercase());
        match name {
            "DisplayName" => within(&job.submission.display_name),
            "Status" => job.stage.word() == wanted,
            "JobId" => job.id == wanted,
            "JobIds" => {
                // `JobId` wins.
                self.texts.contains_key("JobId") || wanted.split(',').any(|id| id.trim() == job.id)
            }
            "JobType" | "ResourceId" | "Description" => body(name) == wanted,
            "Accessibility" => match body(name) {
                "" => wanted == "PRIVATE",
                sent => sent == wanted,
            },
            "WorkspaceId" => {
                is_true(self.texts.get("FromAllWorkspaces").map(String::as_str))
                    || workspace(job) == wanted
            }
            "BusinessUserId" | "Caller" | "PipelineId" => setting(name) == wanted,
            "UserIdForFilter" => wanted == USER_ID,
            "Username" => wanted == USER_NAME,
            "ResourceQuotaName" => false,
            "PaymentType" => {
                wanted == if job.submission.bid.is_some() { "Spot" } else { "PostPaid" }
            }
            "UserCommandSearch" => within(&job.submission.command),
            "ReasonSearch" => within(&job.reason_code) || within(&job.reason_message),
            // Times, order and pages are read elsewhere; all jobs are the caller's own; what is
            // not known is ignored, as the real service does.
            _ => true,
        }
    }

    /// The jobs of the page that was asked for, and how many there are in all.
    pub fn page<'a>(&self, jobs: impl Iterator<Item = &'a Job>) -> (Vec<&'a Job>, usize) {
        let mut found: Vec<&Job> = jobs.filter(|job| self.matches(job)).collect();
        let total = found.len();
        found.sort_by(|a, b| {
            let order = self.compare(a, b).then_with(|| a.id.cmp(&b.id));
            match self.order {
                Order::Ascending => order,
                Order::Descending => order.reverse(),
            }
        });
        let first = (self.page - 1).saturating_mul(self.page_size);
        (found.into_iter().skip(first).take(self.page_size).collect(), total)
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

/// Booleans come as `true` from typed clients and as `True` from the Python SDK.
fn is_true(text: Option<&str>) -> bool {
    text.is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::job::Moment;
    use crate::emulator::submission::Submission;
    use crate::emulator::submission::tests::sample;
    use serde_json::json;

    const NOW: WallTime = WallTime(1_000_000_000_000);

    fn job(id: &str, name: &str, age: Duration) -> Job {
        let mut body = sample();
        body["DisplayName"] = json!(name);
        body["WorkspaceId"] = json!("7");
        body["Settings"] = json!({"Tags": {"a": id, "b": "x"}, "Caller": "me"});
        let submission = Submission::read(body.to_string().as_bytes(), 1.0).expect("fine");
        Job::new(id.into(), submission, Moment { at: Duration::ZERO, wall: NOW.minus(age) })
    }

    fn ids(jobs: &[Job], query: &[(&str, &str)]) -> (Vec<String>, usize) {
        let query: Vec<_> = query.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let query = ListQuery::read(&query, NOW).expect("a query");
        let (page, total) = query.page(jobs.iter());
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
        ] {
            let query = [(name.to_owned(), value.to_owned())];
            assert!(ListQuery::read(&query, NOW).is_err(), "{name}");
        }
    }
}
