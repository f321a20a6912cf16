//! What an answer tells of in-place restarts: `RestartTimes`, `RestartRecord` and `StatusHistory`.
//! Each may be missing, empty or odd; none of them is believed against another that says more.

use super::field::{as_number, list, number, text, time};
use crate::model::cloud::{History, Status};
use crate::model::time::WallTime;
use serde_json::Value;
use std::time::Duration;

/// Entries of `StatusHistory` and `RestartRecord` that are read.
const ENTRIES_LIMIT: usize = 10_000;

/// In-place restarts so far, by whichever field says most.
pub(super) fn restarts(value: &Value, history: Option<&History>) -> u32 {
    let entries = list(value, "RestartRecord").iter().take(ENTRIES_LIMIT);
    // A record of one pod's restart is none of the job.
    let of_job = entries.filter(|entry| entry.is_object() && !is_of_pod(entry));
    let recorded = of_job.clone().count() as u64;
    let counted = of_job.filter_map(|entry| number(entry, "JobRestartCount")).max();
    let by_history = history.map_or(0, |history| u64::from(history.restarts));
    let most = used(value).max(recorded).max(counted.unwrap_or(0)).max(by_history);
    u32::try_from(most).unwrap_or(u32::MAX)
}

fn is_of_pod(entry: &Value) -> bool {
    text(entry, "RestartLevelType").is_some_and(|level| level.eq_ignore_ascii_case("pod"))
}

/// The used part of `RestartTimes`, "1/3"; a bare number is one too.
fn used(value: &Value) -> u64 {
    let text = text(value, "RestartTimes").unwrap_or_default();
    let used = text.split('/').next().unwrap_or_default();
    as_number(&Value::String(used.to_owned())).unwrap_or(0)
}

/// One stretch of `StatusHistory`: entries in a row with one status.
struct Stretch {
    status: Status,
    began: Option<WallTime>,
    ended: Option<WallTime>,
}

/// The runs in `StatusHistory`; `None` if it is not there.
pub(super) fn history(value: &Value) -> Option<History> {
    let stretches = stretches(value);
    if stretches.is_empty() {
        return None;
    }
    let mut found = History::default();
    let mut course = Course::Ahead;
    for (at, stretch) in stretches.iter().enumerate() {
        let (restarts, next) = course.after(&stretch.status);
        found.restarts = found.restarts.saturating_add(restarts);
        course = next;
        let next_began = stretches.get(at + 1).and_then(|next| next.began);
        if stretch.status == Status::Running
            && let Some(began) = stretch.began
        {
            add_run(&mut found, began, stretch.ended.or(next_began));
        }
    }
    Some(found)
}

fn stretches(value: &Value) -> Vec<Stretch> {
    let entries = list(value, "StatusHistory").iter().filter(|entry| entry.is_object());
    let read = entries.take(ENTRIES_LIMIT).map(|entry| Stretch {
        status: Status::from_word(&text(entry, "Status").unwrap_or_default()),
        began: time(entry, "StartTime"),
        ended: time(entry, "EndTime"),
    });
    let mut all: Vec<Stretch> = read.collect();
    let ends = all.first().and_then(|first| first.began).zip(all.last().and_then(|l| l.began));
    if ends.is_some_and(|(first, last)| first > last) {
        // Newest first.
        all.reverse();
    }
    let mut merged: Vec<Stretch> = Vec::new();
    for one in all {
        match merged.last_mut() {
            // The same status with another reason is no other stretch.
            Some(last) if last.status == one.status => last.ended = one.ended,
            Some(_) | None => merged.push(one),
        }
    }
    merged
}

fn add_run(found: &mut History, began: WallTime, ended: Option<WallTime>) {
    found.first = found.first.or(Some(began));
    found.last = Some(began);
    found.open_since = if ended.is_some() { None } else { Some(began) };
    found.last_ran = ended.map_or(Duration::ZERO, |ended| ended.since(began));
    found.ran = found.ran.saturating_add(found.last_ran);
}

/// Where the entries read so far have led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Ahead,
    Running,
    Again,
}

impl Course {
    /// The course after an entry, and the restarts that it shows.
    fn after(self, status: &Status) -> (u32, Self) {
        match (self, status) {
            (_, Status::Running) => (0, Self::Running),
            (Self::Ahead | Self::Running, Status::Restarting) => (1, Self::Again),
            (
                Self::Running,
                Status::Creating
                | Status::Queuing
                | Status::Bidding
                | Status::EnvPreparing
                | Status::SanityChecking,
            ) => (1, Self::Again),
            (
                Self::Ahead | Self::Again,
                Status::Creating
                | Status::Queuing
                | Status::Bidding
                | Status::EnvPreparing
                | Status::SanityChecking
                | Status::Restarting,
            )
            | (
                _,
                Status::Stopping
                | Status::SucceededReserving
                | Status::FailedReserving
                | Status::Succeeded
                | Status::Failed
                | Status::Stopped
                | Status::Other(_),
            ) => (0, self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(words: &[&str]) -> History {
        let entry = |(n, word): (usize, &&str)| {
            json!({"Status": word, "StartTime": format!("2026-01-12T10:{n:02}:00Z"),
                   "EndTime": format!("2026-01-12T10:{:02}:00Z", n + 1)})
        };
        let entries: Vec<Value> = words.iter().enumerate().map(entry).collect();
        let newest_first: Vec<Value> = entries.iter().rev().cloned().collect();
        let found = history(&json!({ "StatusHistory": entries })).expect("a history");
        let turned = history(&json!({ "StatusHistory": newest_first })).expect("a history");
        assert_eq!(found, turned, "in either order");
        found
    }

    #[test]
    fn a_history_counts_each_time_that_it_ran_and_waited_again() {
        for (words, restarts) in [
            (&["Creating", "Queuing", "EnvPreparing", "Running"][..], 0),
            (&["Queuing", "Bidding", "Queuing", "Running", "Stopping", "Stopped"], 0),
            (&["Queuing", "Running", "Restarting"], 1),
            (&["Queuing", "Running", "Restarting", "Queuing", "Bidding", "Running"], 1),
            (&["Queuing", "Running", "Bidding", "Running", "Queuing", "Running", "Failed"], 2),
            (&["Queuing", "EnvPreparing", "Restarting", "Running"], 1),
            (&["Running", "Preempting", "Queuing", "Running"], 1),
            (&["Running", "FailedReserving", "Failed"], 0),
            (&["Running", "Restarting", "Failed"], 1),
            (&["Queuing", "Running", "Running"], 0),
        ] {
            assert_eq!(of(words).restarts, restarts, "{words:?}");
        }
        let found = of(&["Queuing", "Running", "Bidding", "Running"]);
        assert_eq!(found.ran, Duration::from_secs(120), "waits are not running time");
        assert_eq!(found.last_ran, Duration::from_secs(60));
        let found = of(&["Queuing", "Running", "Running", "Failed"]);
        assert_eq!((found.first, found.last_ran), (found.last, Duration::from_secs(120)));
    }

    #[test]
    fn the_field_that_says_most_is_believed_and_odd_ones_say_nothing() {
        for (value, count) in [
            (json!({"RestartTimes": "1/3"}), 1),
            (json!({"RestartTimes": " 2 / 3"}), 2),
            (json!({"RestartTimes": 2}), 2),
            (json!({"RestartTimes": "-1/3"}), 0),
            (json!({"RestartTimes": "x"}), 0),
            (json!({"RestartTimes": "99999999999/3"}), u32::MAX),
            (json!({"RestartRecord": [{"JobRestartCount": 3}, {}]}), 3),
            (json!({"RestartRecord": [{}, {}, null, 7]}), 2),
            (json!({"RestartRecord": [{"RestartLevelType": "pod", "JobRestartCount": 4}]}), 0),
            (json!({"RestartTimes": "0/3", "RestartRecord": [{"JobRestartCount": 1}]}), 1),
            (
                json!({"RestartTimes": "0/3", "StatusHistory":
                [{"Status": "Running"}, {"Status": "Restarting"}]}),
                1,
            ),
            (json!({"StatusHistory": [null, 1, {}, {"Status": 5}]}), 0),
            (json!({}), 0),
        ] {
            assert_eq!(restarts(&value, history(&value).as_ref()), count, "{value}");
        }
    }
}
