//! A job of GetJob or a row of ListJobs, read field by field.

use super::field::{as_number, get, list, named_values, needed, number, text, time};
use super::{WireError, history, job_id, stamp};
use crate::model::cloud::{CloudJob, ExitReport, Pod, REASON_MESSAGE_LIMIT, Stamp, Status};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Pods of one job that are kept; DLC jobs have hundreds at most.
const PODS_LIMIT: usize = 4096;

/// Which answer a job stands in. A list row shows less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// An answer of GetJob.
    GetJob,
    /// A row of ListJobs.
    ListRow,
}

/// The job in `value`.
///
/// # Errors
/// [`WireError::Field`] if `JobId` or `Status` is missing, empty or no text.
pub fn job(value: &Value, source: Source) -> Result<CloudJob, WireError> {
    let (what, whole) = match source {
        Source::GetJob => ("GetJob", true),
        Source::ListRow => ("ListJobs row", false),
    };
    if !value.is_object() {
        return Err(WireError::NotObject { what });
    }
    let or_empty = |name: &str| text(value, name).unwrap_or_default();
    let pods: Vec<Pod> = list(value, "Pods").iter().take(PODS_LIMIT).map(pod).collect();
    let message = or_empty("ReasonMessage");
    let runs = history::history(value);
    Ok(CloudJob {
        id: job_id(what, value)?,
        display_name: or_empty("DisplayName"),
        status: Status::from_word(&needed(what, value, "Status")?),
        sub_status: or_empty("SubStatus"),
        reason_code: or_empty("ReasonCode"),
        exits: exits(&message),
        reason_message: message[..message.floor_char_boundary(REASON_MESSAGE_LIMIT)].to_owned(),
        user_id: text(value, "UserId"),
        stamp: read_stamp(value),
        created: time(value, "GmtCreateTime"),
        running: time(value, "GmtRunningTime").or_else(|| runs.as_ref()?.last),
        finished: time(value, "GmtFinishTime"),
        duration_s: number(value, "Duration"),
        pod_count: pod_count(value, pods.len()),
        pods,
        restarts: history::restarts(value, runs.as_ref()),
        history: runs,
        whole,
    })
}

/// The job in an answer of GetJob.
pub fn whole_job(value: &Value) -> Result<CloudJob, WireError> {
    job(value, Source::GetJob)
}

/// Every pod that a job had, those that were replaced (`HistoryPods`) behind the one that took
/// their place. Old and new share a `PodId`: only the `PodUid` reaches the log of an old one.
pub fn every_pod(job: &Value) -> Vec<Pod> {
    let now = list(job, "Pods").iter();
    let all = now.flat_map(|now| std::iter::once(now).chain(list(now, "HistoryPods")));
    all.take(PODS_LIMIT).map(pod).collect()
}

fn pod(value: &Value) -> Pod {
    let or_empty = |name: &str| text(value, name).unwrap_or_default();
    Pod {
        id: or_empty("PodId"),
        uid: or_empty("PodUid"),
        status: or_empty("Status"),
        sub_status: or_empty("SubStatus"),
        finished: time(value, "GmtFinishTime"),
    }
}

/// How many pods the specs ask for; where they do not say, how many are shown.
fn pod_count(value: &Value, shown: usize) -> u32 {
    let asked: u64 = list(value, "JobSpecs")
        .iter()
        .filter_map(|spec| number(spec, "PodCount"))
        .fold(0, u64::saturating_add);
    let count = if asked == 0 { shown as u64 } else { asked };
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn read_stamp(value: &Value) -> Stamp {
    let mut envs = named_values(get(value, "CustomEnvs"));
    envs.extend(named_values(get(value, "Envs")));
    let env = |name: &str| envs.get(name).filter(|text| !text.is_empty()).cloned();
    let mut tags = named_values(get(value, "Settings").and_then(|s| get(s, "Tags")));
    Stamp {
        name: text(value, "DisplayName").and_then(|name| stamp::parse_display_name(&name)),
        tag: tags.remove(stamp::TAG).and_then(|tag| stamp::parse_pair(&tag, '.')),
        env: env(stamp::ENV_OWNER).zip(env(stamp::ENV_MARK)).and_then(|(o, m)| stamp::pair(&o, &m)),
        job: env(stamp::ENV_JOB),
        run: env(stamp::ENV_RUN).and_then(|text| text.parse().ok()),
        attempt: env(stamp::ENV_ATTEMPT).and_then(|text| text.parse().ok()),
        resume_path: env(stamp::ENV_RESUME_PATH),
        resume_step: env(stamp::ENV_RESUME_STEP).and_then(|text| text.parse().ok()),
    }
}

/// Exit codes out of the JSON that a failure's `ReasonMessage` is; none if it is plain text.
fn exits(message: &str) -> Vec<ExitReport> {
    let Ok(report) = serde_json::from_str::<Value>(message) else { return Vec::new() };
    // A pod that an answer names twice under one code is one pod.
    let mut by_code: BTreeMap<i32, BTreeSet<(String, String)>> = BTreeMap::new();
    let mut order = Vec::new();
    for content in list(&report, "content") {
        let Some(code) = text(content, "reason").and_then(|r| r.trim().parse::<i32>().ok()) else {
            continue;
        };
        if !by_code.contains_key(&code) {
            order.push(code);
        }
        let pods = by_code.entry(code).or_default();
        let roles = get(content, "pods").and_then(Value::as_object);
        for (role, indexes) in roles.into_iter().flatten() {
            let indexes = indexes.as_array().map_or(&[][..], Vec::as_slice);
            let indexes = indexes.iter().filter_map(as_number).map(|index| index.to_string());
            pods.extend(indexes.map(|index| (role.clone(), index)));
        }
    }
    order
        .into_iter()
        .map(|code| {
            let named = by_code.get(&code).map_or(0, BTreeSet::len);
            // A code without names came from at least one pod.
            ExitReport { code, pods: u32::try_from(named.max(1)).unwrap_or(u32::MAX) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: &Value) -> CloudJob {
        job(value, Source::GetJob).expect("a job")
    }

    #[test]
    fn two_fields_are_enough_and_everything_else_may_be_of_any_type() {
        let names = [
            "DisplayName",
            "SubStatus",
            "ReasonCode",
            "ReasonMessage",
            "UserId",
            "Pods",
            "Envs",
            "CustomEnvs",
            "Settings",
            "GmtCreateTime",
            "GmtRunningTime",
            "GmtFinishTime",
            "Duration",
            "JobSpecs",
            "RestartTimes",
            "RestartRecord",
            "StatusHistory",
        ];
        let bare = read(&json!({"JobId": "dlc1", "Status": "Running"}));
        for odd in [json!(null), json!(""), json!(true), json!([null, 1, []]), json!({"Tags": 1})] {
            let mut value = json!({"JobId": "dlc1", "Status": "Running"});
            for name in names {
                value[name] = odd.clone();
            }
            let mut found = read(&value);
            // A list of odd pods is that many pods about which nothing is known.
            found.pods.clear();
            found.pod_count = 0;
            assert_eq!(found, bare, "{odd}");
        }
    }

    #[test]
    fn a_missing_id_or_status_is_named() {
        for (value, field) in [
            (json!({"Status": "Running"}), "JobId"),
            (json!({"JobId": "dlc1"}), "Status"),
            (json!({"JobId": "dlc1", "Status": ""}), "Status"),
            (json!({"JobId": "dlc1", "Status": ["Failed"]}), "Status"),
            (json!({"JobId": {"x": 1}, "Status": "Failed"}), "JobId"),
        ] {
            let error = job(&value, Source::ListRow).expect_err("incomplete");
            assert!(matches!(error, WireError::Field { field: f, .. } if f == field), "{error}");
        }
        assert!(job(&json!([]), Source::ListRow).is_err());
    }

    #[test]
    fn an_unknown_status_word_is_kept() {
        let job = read(&json!({"JobId": "dlc1", "Status": "Deleted"}));
        assert_eq!(job.status, Status::Other("Deleted".into()));
    }

    #[test]
    fn numbers_come_as_text_too_and_zero_times_are_none() {
        let job = read(&json!({
            "JobId": "dlc1", "Status": "Running", "Duration": "2650", "RestartTimes": "1/3",
            "UserId": 1_234_567_890_123_456_u64, "GmtCreateTime": "0001-01-01T00:00:00Z",
            "GmtRunningTime": "2026-01-12T14:36:21Z", "GmtFinishTime": "",
            "JobSpecs": [{"PodCount": 1}, {"PodCount": "7"}, {}],
        }));
        assert_eq!((job.duration_s, job.restarts, job.pod_count), (Some(2650), 1, 8));
        assert_eq!(job.user_id.as_deref(), Some("1234567890123456"));
        assert_eq!((job.created, job.finished), (None, None));
        assert!(job.ever_ran());
    }

    #[test]
    fn stamps_are_read_from_each_place_apart() {
        let job = read(&json!({
            "JobId": "dlc1", "Status": "Running",
            "DisplayName": "x.skk3f9qz-abcdefgh27",
            "Settings": {"Tags": {"spotkeeper": "k3f9qz.aaaaaaaaaa"}},
            "CustomEnvs": [{"Key": "SPOTKEEPER_MARK", "Value": "bbbbbbbbbb", "Visible": ""},
                           {"Key": "SPOTKEEPER_OWNER", "Value": "k3f9qz"}],
            "Envs": {"SPOTKEEPER_JOB": "sft", "SPOTKEEPER_RUN": "2", "SPOTKEEPER_ATTEMPT": 3,
                     "SPOTKEEPER_RESUME_STEP": "700", "SPOTKEEPER_RESUME_PATH": "/m/a b"},
        }));
        let mark = |found: &Option<(_, crate::model::ids::Mark)>| {
            found.as_ref().map(|(_, mark)| mark.as_str().to_owned())
        };
        assert_eq!(mark(&job.stamp.name).as_deref(), Some("abcdefgh27"));
        assert_eq!(mark(&job.stamp.tag).as_deref(), Some("aaaaaaaaaa"));
        assert_eq!(mark(&job.stamp.env).as_deref(), Some("bbbbbbbbbb"));
        assert_eq!((job.stamp.run, job.stamp.attempt), (Some(2), Some(3)));
        assert_eq!(job.stamp.job.as_deref(), Some("sft"));
        assert_eq!(job.stamp.resume_path.as_deref(), Some("/m/a b"));
        assert_eq!(job.stamp.resume_step, Some(700));
    }

    #[test]
    fn exit_codes_come_out_of_the_json_message_and_nothing_out_of_prose() {
        let message = json!({"overview": "o", "content": [
            {"time": "1768231231", "pods": {"Worker": [0, 1], "Master": ["0"]}, "reason": "1"},
            {"time": "1768231232", "pods": {"Worker": [1, 2]}, "reason": 1},
            {"pods": {"Worker": [3]}, "reason": "137"},
            {"reason": "OOM"}, {"reason": "2"}, 5,
        ]});
        let found = exits(&message.to_string());
        let pairs: Vec<_> = found.iter().map(|e| (e.code, e.pods)).collect();
        assert_eq!(pairs, [(1, 4), (137, 1), (2, 1)]);
        for text in ["", "128", "[]", "{\"content\":{}}", "PyTorchJob failed: exit 137"] {
            assert!(exits(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn replaced_pods_stand_behind_the_one_in_their_place() {
        let old = json!([{"PodId": "p", "PodUid": "1"}, {"PodId": "p", "PodUid": "2"}]);
        let body =
            json!({"Pods": [{"PodId": "p", "PodUid": "3", "HistoryPods": old}, {"PodUid": "4"}]});
        let uids: Vec<_> = every_pod(&body).into_iter().map(|pod| pod.uid).collect();
        assert_eq!(uids, ["3", "1", "2", "4"]);
    }

    #[test]
    fn a_long_message_is_read_whole_and_kept_cut() {
        let message = json!({"overview": "é".repeat(4000),
                             "content": [{"pods": {"W": [0]}, "reason": "9"}]});
        let job = read(&json!({"JobId": "dlc1", "Status": "Failed",
                               "ReasonMessage": message.to_string()}));
        assert_eq!(job.exits.len(), 1);
        assert!(job.reason_message.len() <= REASON_MESSAGE_LIMIT);
    }
}
