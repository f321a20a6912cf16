//! Restarts by the platform inside one `JobId`: AIMaster after any failure, elastic spot after a
//! release. The command is run again unchanged, by new pods; the pods before them stay in view,
//! each with its own `PodUid` and log.
//!
//! What a real `RestartRecord` holds is not published; its fields are those of the SDK, its words
//! are guesses.

use super::dialect::{Dialect, LastWord};
use super::job::{Job, Pod, PodLife, uuid};
use crate::model::time::WallTime;
use serde_json::{Map, Value, json};

/// Restarts of one job that can be asked for.
const RESTARTS_LIMIT: u32 = 1_000;
/// `--max-num-of-job-restart` when it is not given.
const AIMASTER_DEFAULT: u32 = 3;
/// Restarts of a job that asked for none, where the platform restarts all the same.
const PLATFORM_RESTARTS: u32 = 10;

/// What a CreateJob asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Nothing.
    None,
    /// `Settings.EnableErrorMonitoringInAIMaster` with `--enable-job-restart`: after any failure.
    AiMaster {
        /// `--max-num-of-job-restart`.
        most: u32,
    },
    /// `Settings.ElasticSpotJobMaxRestartTimes` with `ElasticSpotSpecs`: after a release.
    ElasticSpot {
        /// The setting.
        most: u32,
    },
}

impl RestartPolicy {
    /// Reads it from a CreateJob body.
    ///
    /// # Errors
    /// What is wrong, in words for an `InvalidParameter`.
    pub fn read(body: &Map<String, Value>) -> Result<Self, String> {
        let settings = body.get("Settings").unwrap_or(&Value::Null);
        if settings["EnableErrorMonitoringInAIMaster"] == true
            && let Some(most) = aimaster(settings["ErrorMonitoringArgs"].as_str().unwrap_or(""))?
        {
            return Ok(Self::AiMaster { most });
        }
        let specs = body.get("JobSpecs").and_then(Value::as_array);
        let elastic = specs.into_iter().flatten().any(|spec| {
            spec["ElasticSpotSpecs"].as_array().is_some_and(|offers| !offers.is_empty())
        });
        let most = &settings["ElasticSpotJobMaxRestartTimes"];
        let most = if most.is_null() {
            0
        } else {
            count("ElasticSpotJobMaxRestartTimes", &most.to_string())?
        };
        Ok(if elastic && most > 0 { Self::ElasticSpot { most } } else { Self::None })
    }

    /// The most restarts that a job may have, as `RestartTimes` shows it.
    pub fn most(self) -> u32 {
        match self {
            Self::None => PLATFORM_RESTARTS,
            Self::AiMaster { most } | Self::ElasticSpot { most } => most,
        }
    }

    /// Whether it acts on an end that was no success; `released` is one by a release.
    fn acts(self, released: Option<Dialect>) -> bool {
        match (self, released) {
            (Self::AiMaster { .. }, _) | (Self::ElasticSpot { .. }, Some(_)) => true,
            (Self::None | Self::ElasticSpot { .. }, None) => false,
            (Self::None, Some(dialect)) => dialect.last_word() == LastWord::Restart,
        }
    }
}

/// Reads `ErrorMonitoringArgs`: the most restarts, if they are switched on. A value follows after
/// `=` or a blank; a switch may stand alone.
fn aimaster(text: &str) -> Result<Option<u32>, String> {
    let mut words = text.split_whitespace().peekable();
    let (mut on, mut most) = (false, AIMASTER_DEFAULT);
    while let Some(word) = words.next() {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, words.next_if(|next| !next.starts_with("--"))),
        };
        match name {
            "--enable-job-restart" => {
                on = value.is_none_or(|value| value.eq_ignore_ascii_case("true") || value == "1");
            }
            "--max-num-of-job-restart" => most = count(name, value.unwrap_or_default())?,
            _ => {}
        }
    }
    Ok(on.then_some(most))
}

fn count(name: &str, text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|count| *count <= RESTARTS_LIMIT)
        .ok_or_else(|| format!("{name}: {text} is not 0 to {RESTARTS_LIMIT}"))
}

/// One restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restart {
    /// When the pods that it replaces had ended.
    pub occurred: WallTime,
    /// When the new ones ran.
    pub ran_again: Option<WallTime>,
    /// The pod that set it off.
    pub pod: String,
    /// What the record says of it.
    fault: Fault,
}

/// What a pod did that set a restart off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    Exit(i32),
    Evicted,
    Gone,
}

impl Job {
    /// Whether an end that is no success leads to a restart.
    pub fn restarts_after(&self, released: Option<Dialect>) -> bool {
        let policy = self.submission.restarts;
        let used = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        policy.acts(released) && used < policy.most()
    }

    /// Puts new pods in the places of those that ended, and takes a record of it.
    pub fn replace_pods(&mut self, released: Option<Dialect>, wall: WallTime) {
        let sub_status = released.map_or("Normal", |dialect| dialect.pod_trace().sub_status);
        let fault_of = |pod: &Pod| match pod.life {
            PodLife::Gone | PodLife::Lost => Some(Fault::Gone),
            PodLife::Ended { exit, .. } if exit != 0 => Some(match sub_status {
                "Evicted" => Fault::Evicted,
                _ => Fault::Exit(exit),
            }),
            PodLife::Ended { .. } | PodLife::Pending | PodLife::Processes(_) | PodLife::Virtual => {
                None
            }
        };
        let first = self.pods.iter().find_map(|pod| Some((pod.id.clone(), fault_of(pod)?)));
        let (pod, fault) = first.unwrap_or((String::new(), Fault::Gone));
        self.restarts.push(Restart { occurred: wall, ran_again: None, pod, fault });
        self.hangs = None;
        for pod in &mut self.pods {
            let new = Pod {
                id: pod.id.clone(),
                uid: uuid(),
                role: pod.role.clone(),
                index: pod.index,
                created: Some(wall),
                started: None,
                finished: None,
                life: PodLife::Pending,
                sub_status: "",
                incarnation: pod.incarnation + 1,
                past: Vec::new(),
            };
            let mut old = std::mem::replace(pod, new);
            old.finished = old.finished.or(Some(wall));
            old.sub_status = if old.life == PodLife::Gone { "" } else { sub_status };
            let mut past = std::mem::take(&mut old.past);
            past.push(old);
            pod.past = past;
        }
    }

    /// The restart that has not led to running pods yet.
    pub fn open_restart(&mut self) -> Option<&mut Restart> {
        self.restarts.last_mut().filter(|restart| restart.ran_again.is_none())
    }

    /// `RestartTimes`, "used/most".
    pub fn restart_times(&self) -> String {
        format!("{}/{}", self.restarts.len(), self.submission.restarts.most())
    }

    /// `RestartRecord`.
    pub fn restart_record(&self, now: WallTime) -> Value {
        self.restarts
            .iter()
            .zip(1_u32..)
            .map(|(restart, count)| {
                let (code, text) = match restart.fault {
                    Fault::Exit(exit) => (
                        format!("PodExitCode{exit}"),
                        format!("container of the pod exited with code {exit}"),
                    ),
                    Fault::Evicted => ("PodEvicted".to_owned(), "pod is evicted".to_owned()),
                    Fault::Gone => ("PodLost".to_owned(), "the node of the pod is lost".to_owned()),
                };
                let until = restart.ran_again.or(self.finished()).unwrap_or(now);
                json!({
                    "JobRestartCount": count,
                    "OccurPhase": "Running",
                    "OccurTime": restart.occurred.to_string(),
                    "Reason": "PodFailed",
                    "RestartDurationInSec": until.since(restart.occurred).as_secs(),
                    "RestartFailReason": "",
                    "RestartLevelType": "job",
                    "RestartStatus": if restart.ran_again.is_some() { "Succeeded" } else { "Restarting" },
                    "TriggerID": format!("trigger-{count:04}"),
                    "DetailErrorInfoList": [{
                        "ErrorCode": code,
                        "ErrorMsg": "pod failed",
                        "DetailErrorMsg": text,
                        "ErrorSource": "Pod",
                        "Node": "emulator",
                        "Pod": restart.pod,
                        "TriggerRestart": true,
                        "AddNodeToBlacklist": true,
                        "AddJobLevelBlacklist": false,
                    }],
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::submission::tests::sample;

    fn read(settings: Value) -> Result<RestartPolicy, String> {
        let mut body = sample();
        body["Settings"] = settings;
        body["JobSpecs"][0]["ElasticSpotSpecs"] = json!([{"InstanceType": "ecs.g7.xlarge"}]);
        RestartPolicy::read(body.as_object().expect("an object"))
    }

    #[test]
    fn aimaster_arguments_are_one_command_line() {
        for (args, expected) in [
            ("", None),
            ("--enable-job-restart=False", None),
            ("--enable-job-restart=True", Some(3)),
            ("--enable-job-restart --max-num-of-job-restart 5", Some(5)),
            ("--job-execution-mode Sync --enable-job-restart true", Some(3)),
            ("--max-num-of-job-restart=0 --enable-job-restart=true", Some(0)),
        ] {
            let body =
                json!({"EnableErrorMonitoringInAIMaster": true, "ErrorMonitoringArgs": args});
            let expected =
                expected.map_or(RestartPolicy::None, |most| RestartPolicy::AiMaster { most });
            assert_eq!(read(body), Ok(expected), "{args}");
        }
        let args = "--enable-job-restart=True --max-num-of-job-restart=many";
        let body = json!({"EnableErrorMonitoringInAIMaster": true, "ErrorMonitoringArgs": args});
        assert!(read(body).is_err());
    }

    #[test]
    fn a_switch_that_is_off_asks_for_nothing() {
        let args = "--enable-job-restart=True";
        let off = json!({"EnableErrorMonitoringInAIMaster": false, "ErrorMonitoringArgs": args});
        assert_eq!(read(off), Ok(RestartPolicy::None));
        let elastic = read(json!({"ElasticSpotJobMaxRestartTimes": 2}));
        assert_eq!(elastic, Ok(RestartPolicy::ElasticSpot { most: 2 }));
        let mut body = sample();
        body["Settings"] = json!({"ElasticSpotJobMaxRestartTimes": 2});
        let alone = RestartPolicy::read(body.as_object().expect("an object"));
        assert_eq!(alone, Ok(RestartPolicy::None), "without ElasticSpotSpecs");
    }
}
