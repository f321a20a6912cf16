//! One job of the emulator: where it stands, its pods and its past.
//!
//! Times that decide are durations since the emulator's start; times that are shown are wall
//! times. Only `lifecycle` moves a job on.

use super::dialect::{Dialect, PodTrace, Words};
use super::mounts::Plan;
use super::process::Group;
use super::random::unguessable_hex;
use super::restart::Restart;
use super::submission::Submission;
use crate::model::time::WallTime;
use serde_json::json;
use std::time::Duration;

/// What pods show that failed by themselves.
const FAILURE_TRACE: PodTrace = PodTrace { sub_status: "Normal", reason: None, in_history: true };

/// One moment on both of the emulator's clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since the emulator started.
    pub at: Duration,
    /// Calendar time.
    pub wall: WallTime,
}

/// A job.
#[derive(Debug)]
pub struct Job {
    /// `JobId`.
    pub id: String,
    /// How many jobs were made before it: ids are random, this is an order that a seed can use.
    pub number: u64,
    /// What was asked for.
    pub submission: Submission,
    /// When it came into being.
    pub created: Moment,
    /// Where it stands.
    pub stage: Stage,
    /// Its pods; the first is rank 0.
    pub pods: Vec<Pod>,
    /// Every status it had, the present one last.
    pub history: Vec<Step>,
    /// `ReasonCode` of the present status.
    pub reason_code: String,
    /// `ReasonMessage` of the present status.
    pub reason_message: String,
    /// Lines of GetJobEvents.
    pub events: Vec<String>,
    /// Restarts by the platform, under the same id.
    pub restarts: Vec<Restart>,
    /// What its pods see of its DataSources.
    pub mounts: Plan,
    /// Since when it hangs, if somebody lets it.
    pub hangs: Option<WallTime>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// On its way to a machine.
    Waiting {
        /// How far it is.
        on: Wait,
        /// Since when.
        since: Duration,
    },
    /// Its pods run.
    Running {
        /// When a virtual job ends by itself.
        ends: Option<Duration>,
    },
    /// Its processes are being ended.
    Leaving {
        /// Why.
        why: Leaving,
        /// When what is left is killed.
        kill_at: Duration,
        /// When it may be shown as ended at the earliest.
        end_at: Duration,
    },
    /// It ended by itself, and its machine is kept for a while.
    Reserving {
        /// How it ended.
        end: End,
        /// Until when.
        until: Duration,
    },
    /// It ended and nothing of it is left.
    Ended(End),
}

/// The statuses before a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Accepted.
    Creating,
    /// The platform is about to run it again.
    Restarting,
    /// Waits for a machine, a spot job of general compute also for its price.
    Queuing,
    /// A Lingjun spot job waits for its price.
    Bidding,
    /// Has one, which is being prepared.
    EnvPreparing,
}

/// Why a job's processes are being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// StopJob.
    Stop,
    /// Its machine is taken back.
    Release(Dialect),
    /// One of its pods failed.
    Failure,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every pod ended with 0.
    Succeeded,
    /// Anything else.
    Failed,
    /// By StopJob.
    Stopped,
}

impl Stage {
    /// The API's word for the job's status. A release shows nothing before the job has ended.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Waiting { on: Wait::Creating, .. } => "Creating",
            Self::Waiting { on: Wait::Restarting, .. } => "Restarting",
            Self::Waiting { on: Wait::Queuing, .. } => "Queuing",
            Self::Waiting { on: Wait::Bidding, .. } => "Bidding",
            Self::Waiting { on: Wait::EnvPreparing, .. } => "EnvPreparing",
            Self::Leaving { why: Leaving::Stop, .. } => "Stopping",
            Self::Running { .. }
            | Self::Leaving { why: Leaving::Release(_) | Leaving::Failure, .. } => "Running",
            Self::Reserving { end: End::Succeeded, .. } => "SucceededReserving",
            Self::Reserving { end: End::Failed | End::Stopped, .. } => "FailedReserving",
            Self::Ended(End::Succeeded) => "Succeeded",
            Self::Ended(End::Failed) => "Failed",
            Self::Ended(End::Stopped) => "Stopped",
        }
    }
}

/// One entry of `StatusHistory`.
#[derive(Debug, Clone)]
pub struct Step {
    /// The status.
    pub status: String,
    /// Since when.
    pub start: WallTime,
    /// Until when; `None` is the present one.
    pub end: Option<WallTime>,
    /// Its `ReasonCode`.
    pub reason_code: String,
    /// Its `ReasonMessage`.
    pub reason_message: String,
}

/// A pod.
#[derive(Debug)]
pub struct Pod {
    /// `PodId`.
    pub id: String,
    /// `PodUid`.
    pub uid: String,
    /// Role as `ReasonMessage` names it, e.g. `Master`.
    pub role: String,
    /// Place among the pods of its role.
    pub index: u64,
    /// When it was made; pods are shown from then on.
    pub created: Option<WallTime>,
    /// When its command started.
    pub started: Option<WallTime>,
    /// When it ended.
    pub finished: Option<WallTime>,
    /// Whether it lives.
    pub life: PodLife,
    /// `SubStatus`.
    pub sub_status: &'static str,
    /// How many pods were in its place before it.
    pub incarnation: usize,
    /// Those pods, the first one first; they have none themselves.
    pub past: Vec<Pod>,
}

/// Whether a pod lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodLife {
    /// Not yet.
    Pending,
    /// As processes.
    Processes(Group),
    /// As a record alone.
    Virtual,
    /// Gone together with its machine: nobody knows an exit code.
    Gone,
    /// Failed, while its job runs on as if nothing were: nobody ends the others.
    Lost,
    /// No longer.
    Ended {
        /// Exit code, as a shell tells it.
        exit: i32,
        /// Whether `ReasonMessage` names it: a pod that only went down with the others is not.
        told: bool,
    },
}

impl PodLife {
    /// The API's word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Processes(_) | Self::Virtual => "Running",
            Self::Gone => "Unknown",
            Self::Ended { exit: 0, .. } => "Succeeded",
            Self::Lost | Self::Ended { .. } => "Failed",
        }
    }
}

impl Pod {
    /// `Status`, by what has become of its job.
    pub fn status(&self, stage: &Stage) -> &'static str {
        match stage {
            Stage::Ended(End::Stopped) => "Unknown",
            Stage::Reserving { .. } => "Running",
            Stage::Waiting { .. }
            | Stage::Running { .. }
            | Stage::Leaving { .. }
            | Stage::Ended(End::Succeeded | End::Failed) => self.life.word(),
        }
    }

    /// The name of its folder and log: each incarnation has its own.
    pub fn place(&self) -> String {
        match self.incarnation {
            0 => self.id.clone(),
            later => format!("{}.{later}", self.id),
        }
    }

    /// Whether it is running.
    pub fn lives(&self) -> bool {
        match self.life {
            PodLife::Processes(_) | PodLife::Virtual => true,
            PodLife::Pending | PodLife::Gone | PodLife::Lost | PodLife::Ended { .. } => false,
        }
    }
}

impl Job {
    /// A job that was accepted just now.
    pub fn new(id: String, submission: Submission, now: Moment) -> Self {
        let pods = plan_pods(&id, &submission);
        let stage = Stage::Waiting { on: Wait::Creating, since: now.at };
        let mut job = Self {
            id,
            number: 0,
            submission,
            created: now,
            stage,
            pods,
            history: Vec::new(),
            reason_code: String::new(),
            reason_message: String::new(),
            events: Vec::new(),
            restarts: Vec::new(),
            mounts: Plan::default(),
            hangs: None,
        };
        job.enter(stage, now.wall, "", "");
        job
    }

    /// Takes a new stage; one that shows as the same status leaves no trace.
    pub fn enter(&mut self, stage: Stage, wall: WallTime, code: &str, message: &str) {
        self.stage = stage;
        if self.history.last().is_some_and(|step| step.status == stage.word()) {
            return;
        }
        self.note_status(stage.word(), wall);
        code.clone_into(&mut self.reason_code);
        message.clone_into(&mut self.reason_message);
    }

    /// Adds a status to the history.
    pub fn note_status(&mut self, status: &str, wall: WallTime) {
        if let Some(last) = self.history.last_mut() {
            last.end = Some(wall);
        }
        self.history.push(Step {
            status: status.to_owned(),
            start: wall,
            end: None,
            reason_code: String::new(),
            reason_message: String::new(),
        });
    }

    /// Adds a line to the job's events, in the local time (UTC+8) that real ones have.
    pub fn note_event(&mut self, wall: WallTime, text: &str) {
        self.events.push(format!("{} {text}", local_time(wall)));
    }

    /// When the status `word` was entered first: a restart changes no time that was shown.
    pub fn entered(&self, word: &str) -> Option<WallTime> {
        self.history.iter().find(|step| step.status == word).map(|step| step.start)
    }

    /// Its pod of that id: the present one, or that with `uid`, which may be an earlier one.
    pub fn pod(&self, id: &str, uid: Option<&str>) -> Option<&Pod> {
        let pod = self.pods.iter().find(|pod| pod.id == id && pod.created.is_some())?;
        match uid {
            None => Some(pod),
            Some(uid) => pod.past.iter().chain([pod]).find(|pod| pod.uid == uid),
        }
    }

    /// When it ended.
    pub fn finished(&self) -> Option<WallTime> {
        match self.stage {
            Stage::Ended(_) => self.history.last().map(|step| step.start),
            Stage::Waiting { .. }
            | Stage::Running { .. }
            | Stage::Leaving { .. }
            | Stage::Reserving { .. } => None,
        }
    }

    /// Ends the job; `released` says in which dialect its machine was taken back, if it was.
    pub fn finish(&mut self, end: End, released: Option<Dialect>, wall: WallTime) {
        if matches!(self.stage, Stage::Reserving { .. }) {
            let (code, message) = (self.reason_code.clone(), self.reason_message.clone());
            self.enter(Stage::Ended(end), wall, &code, &message);
            self.repeat_reason_in_history();
            return;
        }
        self.take_end(Stage::Ended(end), end, released, wall);
    }

    /// Lets the job end while its machine is kept until `until`.
    pub fn reserve(&mut self, end: End, until: Duration, wall: WallTime) {
        self.take_end(Stage::Reserving { end, until }, end, None, wall);
    }

    fn take_end(&mut self, stage: Stage, end: End, released: Option<Dialect>, wall: WallTime) {
        let trace = released.map_or(FAILURE_TRACE, Dialect::pod_trace);
        let words = released.map_or(Words::English, Dialect::words);
        let (code, message) = match (end, words) {
            (End::Succeeded, _) => (
                "JobSucceeded",
                format!("{} {} is successfully completed.", self.submission.job_type, self.id),
            ),
            (End::Failed | End::Stopped, Words::None) => ("", String::new()),
            (End::Failed, Words::English | Words::Chinese) => {
                ("JobFailed", self.failure_message(trace, words, wall))
            }
            (End::Stopped, Words::English | Words::Chinese) => {
                ("JobStoppedByUser", "Job is stopped by user.".to_owned())
            }
        };
        for pod in &mut self.pods {
            pod.finished = pod.finished.or(pod.started.map(|_| wall));
            pod.sub_status = match (end, pod.life) {
                (End::Succeeded, _) => "Normal",
                (End::Stopped, _) | (End::Failed, PodLife::Gone) => "",
                (End::Failed, _) => trace.sub_status,
            };
        }
        self.enter(stage, wall, code, &message);
        if end != End::Failed || trace.in_history {
            self.repeat_reason_in_history();
        }
    }

    fn repeat_reason_in_history(&mut self) {
        if let Some(last) = self.history.last_mut() {
            last.reason_code.clone_from(&self.reason_code);
            last.reason_message.clone_from(&self.reason_message);
        }
    }

    /// Exit code of the job: that of its first pod that did not end well, else 0. Only a job of
    /// which every pod is gone has that of a kill.
    pub fn exit(&self) -> Option<i32> {
        let codes: Vec<i32> = self
            .pods
            .iter()
            .filter_map(|pod| match pod.life {
                PodLife::Ended { exit, .. } => Some(exit),
                PodLife::Pending
                | PodLife::Processes(_)
                | PodLife::Virtual
                | PodLife::Lost
                | PodLife::Gone => None,
            })
            .collect();
        let gone = || self.pods.iter().any(|pod| pod.life == PodLife::Gone).then_some(137);
        codes.iter().find(|code| **code != 0).or(codes.first()).copied().or_else(gone)
    }

    /// The `ReasonMessage` of a job whose pods failed: JSON in a text, as real ones are.
    pub fn failure_message(&self, trace: PodTrace, words: Words, wall: WallTime) -> String {
        let mut by_reason: Vec<(String, Vec<&Pod>)> = Vec::new();
        for pod in &self.pods {
            let PodLife::Ended { exit, told: true } = pod.life else { continue };
            if exit == 0 {
                continue;
            }
            let reason = trace.reason.map_or_else(|| exit.to_string(), str::to_owned);
            match by_reason.iter_mut().find(|(other, _)| *other == reason) {
                Some((_, pods)) => pods.push(pod),
                None => by_reason.push((reason, vec![pod])),
            }
        }
        let time = wall.0.div_euclid(1000).to_string();
        let failed: Vec<&Pod> = by_reason.iter().flat_map(|(_, pods)| pods.clone()).collect();
        let content: Vec<_> = by_reason
            .into_iter()
            .map(|(reason, pods)| {
                let mut places = serde_json::Map::new();
                for pod in pods {
                    let list = places.entry(pod.role.clone()).or_insert_with(|| json!([]));
                    if let Some(list) = list.as_array_mut() {
                        list.push(json!(pod.index));
                    }
                }
                json!({"time": time, "pods": places, "reason": reason})
            })
            .collect();
        // The overview names the role that failed most; pods that are gone only if no other did.
        let gone: Vec<&Pod> = self.pods.iter().filter(|pod| pod.life == PodLife::Gone).collect();
        let failed = if failed.is_empty() { gone } else { failed };
        let count = |role: &str| failed.iter().filter(|pod| pod.role == role).count();
        let role = failed.iter().map(|pod| pod.role.as_str()).max_by_key(|role| count(role));
        let role = role.unwrap_or("Master");
        let (kind, id, count) = (&self.submission.job_type, &self.id, count(role));
        let overview = match words {
            Words::English | Words::None => {
                format!("{kind} {id} failed because {count} {role} replica(s) failed.")
            }
            Words::Chinese => format!("{kind} {id} 运行失败：{count} 个 {role} 副本失败。"),
        };
        json!({"overview": overview, "content": content}).to_string()
    }
}

/// Pods by role. The first pod of a PyTorchJob without a Master role is its master.
fn plan_pods(job_id: &str, submission: &Submission) -> Vec<Pod> {
    let mut found: Vec<Pod> = Vec::new();
    let has_master = submission.roles.iter().any(|(role, _)| role == "Master");
    for (role, count) in &submission.roles {
        for place in 0..*count {
            let leads = found.is_empty() && !has_master && submission.job_type == "PyTorchJob";
            let role = if leads { "Master" } else { role.as_str() };
            let led = found.first().is_some_and(|first| first.role == "Master" && !has_master);
            let index = if led { place.saturating_sub(1) } else { place };
            found.push(Pod {
                id: format!("{job_id}-{}-{index}", role.to_ascii_lowercase()),
                uid: uuid(),
                role: role.to_owned(),
                index,
                created: None,
                started: None,
                finished: None,
                life: PodLife::Pending,
                sub_status: "",
                incarnation: 0,
                past: Vec::new(),
            });
        }
    }
    found
}

/// A random id of the form `8-4-4-4-12` hex digits.
pub fn uuid() -> String {
    let hex = unguessable_hex(16);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The local time (UTC+8, without a zone) with which event lines begin.
pub fn local_time(wall: WallTime) -> String {
    let shifted = wall.plus(Duration::from_hours(8)).to_string();
    shifted.replace('T', " ").trim_end_matches('Z').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::submission::tests::sample;

    fn job(pods: u64) -> Job {
        let mut body = sample();
        body["JobSpecs"][0]["PodCount"] = pods.into();
        let submission = Submission::read(body.to_string().as_bytes(), 1.0).expect("fine");
        let wall = WallTime::parse("2026-01-12T14:35:01Z").expect("a time");
        Job::new("dlc1".into(), submission, Moment { at: Duration::ZERO, wall })
    }

    #[test]
    fn the_first_pod_of_a_pytorch_job_is_its_master() {
        let ids: Vec<String> = job(3).pods.into_iter().map(|pod| pod.id).collect();
        assert_eq!(ids, ["dlc1-master-0", "dlc1-worker-0", "dlc1-worker-1"]);
    }

    #[test]
    fn a_failure_names_the_pods_that_failed_by_themselves() {
        let mut job = job(8);
        for (at, pod) in job.pods.iter_mut().enumerate() {
            pod.life = PodLife::Ended { exit: 1, told: at != 4 };
        }
        let wall = WallTime(1_768_231_231_000);
        assert_eq!(
            job.failure_message(Dialect::Plain.pod_trace(), Words::English, wall),
            r#"{"content":[{"pods":{"Master":[0],"Worker":[0,1,2,4,5,6]},"reason":"1","time":"1768231231"}],"overview":"PyTorchJob dlc1 failed because 6 Worker replica(s) failed."}"#
        );
        let trace = Dialect::Evicted.pod_trace();
        let evicted = job.failure_message(trace, Words::English, wall);
        assert!(evicted.contains(r#""reason":"Evicted""#), "{evicted}");
    }

    #[test]
    fn event_lines_have_local_time() {
        let job = job(1);
        assert_eq!(local_time(job.created.wall), "2026-01-12 22:35:01");
    }
}
