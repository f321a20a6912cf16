//! What people and scripts see: the JSON of the API and of `-o json`. Ids and money are text, times
//! RFC 3339 in UTC, durations whole seconds; no field ever changes its type.

use serde::{Deserialize, Serialize};

/// A row of `ps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobRow {
    /// Name of the job.
    pub name: String,
    /// Its run.
    pub run: u32,
    /// The phase, one of the closed list.
    pub phase: String,
    /// Whether the last good look is older than three sweeps.
    pub stale: bool,
    /// Seconds since the last good look at its target; `null` before the first.
    pub last_look_s: Option<u64>,
    /// Why it is in this phase; empty for RUNNING and SUCCEEDED.
    pub why: String,
    /// The vendor's status word of the open attempt.
    pub vendor_status: Option<String>,
    /// Step of the newest whole checkpoint.
    pub step: Option<u64>,
    /// Seconds since that one was written; `null` if none was seen.
    #[serde(default)]
    pub checkpoint_age_s: Option<u64>,
    /// Seconds of work that an end would lose now: since the present run saved last or began, as far
    /// as was seen; `null` while nothing runs.
    #[serde(default)]
    pub at_risk_s: Option<u64>,
    /// Attempts known to have existed.
    pub attempts: u32,
    /// Of these, ended by a release.
    pub releases: u32,
    /// Of these, ended by an error or without explanation.
    pub errors: u32,
    /// Restarts by the platform under the same id, over all attempts; none of them is an end.
    #[serde(default)]
    pub restarts: u32,
    /// Seconds since the open attempt's UserCommand began.
    pub up_s: Option<u64>,
    /// Summed running time of the ended attempts, seconds.
    pub ran_s: u64,
    /// Whether a job file still stands behind it.
    pub managed: bool,
    /// The target.
    pub target: String,
    /// What happens next by itself, in words; empty if nothing.
    pub next: String,
}

/// What would be sent next, and what was asked for; secrets left out of both.
#[derive(Debug, Clone, PartialEq)]
pub struct BodyView {
    /// The CreateJob body.
    pub body: serde_json::Value,
    /// The accepted content of the job file.
    pub spec: serde_json::Value,
}

/// Everything on one page: `describe`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobPage {
    /// The row of `ps`.
    pub row: JobRow,
    /// Every reason why nothing is submitted now.
    pub holds: Vec<String>,
    /// Checkpoint prefix, if the job has one.
    pub checkpoints: Option<String>,
    /// How far it is, and how it saves.
    #[serde(default)]
    pub progress: ProgressView,
    /// How the open attempt waits; `null` if it does not.
    #[serde(default)]
    pub waiting: Option<WaitingView>,
    /// Digest of the spec that the next attempt uses.
    pub spec: String,
    /// The attempts, newest first.
    pub attempts: Vec<AttemptView>,
    /// The last events, oldest first.
    pub events: Vec<EventView>,
}

/// How far a job is, as far as its checkpoints show from outside.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ProgressView {
    /// Seconds since the last complete look at the running attempt.
    pub looked_s: Option<u64>,
    /// Why nothing can be said of the running attempt; empty if it can.
    pub note: String,
    /// Steps an hour of the run that goes on.
    pub steps_per_hour: Option<u64>,
    /// Usual time between two checkpoints, seconds, of the newest attempt that showed one.
    pub every_s: Option<u64>,
    /// The same in steps.
    pub every_steps: Option<u64>,
    /// How often to save, once enough is known.
    pub advice: Option<AdviceView>,
}

/// How an attempt waits before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingView {
    /// `queuing`, `bidding`, `preparing`.
    pub phase: String,
    /// Since when it is in this phase.
    pub since: String,
    /// The same in seconds.
    pub waited_s: u64,
    /// How long it may, seconds; `null` if `[waiting]` says nothing of this phase.
    pub limit_s: Option<u64>,
    /// Its bid, as text; `null` is on-demand, or a SpotSpec of the body's own.
    pub bid: Option<String>,
    /// The placement that it was sent as: 0 is the job file itself.
    pub placement: u32,
    /// How many others there are.
    pub placements: u32,
    /// Why it can never run; `null` if nothing says so.
    pub never: Option<String>,
    /// What is done next by itself, with its time; empty if nothing is.
    pub next: String,
    /// Seconds until then.
    pub next_in_s: Option<u64>,
}

/// How often a job should save, by Daly's formula.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdviceView {
    /// The advice in words.
    pub text: String,
    /// The best time between two checkpoints, seconds.
    pub best_s: u64,
    /// The same in steps, where they are known.
    pub best_steps: Option<u64>,
    /// What one checkpoint costs, seconds: an estimate from the times of its objects.
    pub cost_s: u64,
    /// Mean running time between two losses, seconds.
    pub loss_every_s: u64,
    /// Losses of the job so far: releases, and restarts in place.
    pub losses: u32,
    /// `seen`, or `assumed` where these are too few.
    pub loss_source: String,
    /// The share of the time that the best interval would save, 0 to 1.
    pub saves: f64,
}

/// One attempt, open or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptView {
    /// Its number.
    pub no: u32,
    /// Its mark.
    pub mark: String,
    /// Its DLC job id, once known.
    pub id: Option<String>,
    /// `intended`, `unknown`, `live`, `ended`, `never_created`.
    pub state: String,
    /// The vendor's status word, while live.
    pub status: Option<String>,
    /// Step it started from; `null` is zero or unknown.
    pub from_step: Option<u64>,
    /// Checkpoint it started from, relative to the prefix; `null` is zero.
    pub from_path: Option<String>,
    /// When it was decided.
    pub intended: String,
    /// When it ended.
    pub ended: Option<String>,
    /// How long UserCommand ran, seconds.
    pub ran_s: Option<u64>,
    /// The verdict.
    pub verdict: Option<VerdictView>,
    /// Whether a stop was asked for.
    pub stop_asked: bool,
    /// Restarts by the platform under its id.
    #[serde(default)]
    pub restarts: u32,
}

/// Why an attempt ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VerdictView {
    /// The cause's word.
    pub cause: String,
    /// The rule that matched.
    pub rule: String,
    /// What it was read from.
    pub evidence: Vec<String>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventView {
    /// Its place in the log: grows by one, over all jobs.
    pub sequence: u64,
    /// When.
    pub at: String,
    /// The job.
    pub job: String,
    /// Its run.
    pub run: u32,
    /// The attempt, if it is about one.
    pub attempt: Option<u32>,
    /// Its word.
    pub word: String,
    /// A sentence.
    pub text: String,
    /// The same for scripts.
    pub data: serde_json::Value,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EventPage {
    /// Oldest first.
    pub events: Vec<EventView>,
    /// Pass this as `after` to go on.
    pub next_after: u64,
    /// Events before the first one that were asked for and are trimmed.
    pub gap: bool,
}

/// What an act did, job by job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ActReport {
    /// The job.
    pub job: String,
    /// The phase after the act; for `forget` the last one.
    pub phase: String,
    /// What was done and what is still awaited, in one sentence.
    pub text: String,
    /// What is still awaited, one by one; empty if nothing.
    #[serde(default)]
    pub awaited: Vec<String>,
}

/// `why`: the last verdict and what follows from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WhyView {
    /// The row of `ps`.
    pub row: JobRow,
    /// The attempt that is explained; `null` if none has ended.
    pub attempt: Option<AttemptView>,
    /// What the last look into the bucket chose and refused, as in the CHECKPOINT event.
    pub checkpoint: serde_json::Value,
    /// Every reason why nothing is submitted now.
    pub holds: Vec<String>,
    /// What happens next by itself.
    pub next: String,
    /// How the open attempt waits; `null` if it does not.
    #[serde(default)]
    pub waiting: Option<WaitingView>,
    /// Ends without a new checkpoint since the last progress.
    pub ends_without_progress: u32,
    /// Checkpoints that attempts died on: the next attempt takes the whole one before them.
    #[serde(default)]
    pub suspects: Vec<SuspectView>,
    /// What became of others of its attempts, and of copies: those that were lost, came back or came
    /// late. The last ones, oldest first; the events have all.
    #[serde(default)]
    pub others: Vec<String>,
}

/// A checkpoint that attempts died on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspectView {
    /// Its path, relative to the prefix.
    pub path: String,
    /// Its step, where known.
    pub step: Option<u64>,
    /// The attempts.
    pub attempts: Vec<u32>,
}

/// `evidence`: the raw answers of an attempt's end, redacted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvidenceView {
    /// The job.
    pub job: String,
    /// Its run.
    pub run: u32,
    /// The attempt.
    pub attempt: u32,
    /// Its DLC job id.
    pub id: String,
    /// When the answers were fetched.
    pub taken: String,
    /// Answers by file name, as DLC gave them.
    pub files: std::collections::BTreeMap<String, serde_json::Value>,
    /// Answers that could not be fetched or kept.
    pub missing: Vec<MissingView>,
}

/// An answer that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingView {
    /// The file that it would have been.
    pub file: String,
    /// Why.
    pub why: String,
}

/// `logs`: the last lines of a node's log, without secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogView {
    /// The job.
    pub job: String,
    /// Its run.
    pub run: u32,
    /// The attempt.
    pub attempt: u32,
    /// Its DLC job id.
    pub id: String,
    /// The node: its place among the pods that DLC names.
    pub rank: u32,
    /// Step of the checkpoint that the attempt began at; `null` for zero.
    pub from_step: Option<u64>,
    /// Whether the attempt is not seen ended.
    pub is_open: bool,
    /// Whether older lines may be left out.
    pub is_cut: bool,
    /// The lines.
    pub lines: Vec<String>,
}

/// The daemon itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonView {
    /// The version of the program.
    pub version: String,
    /// This installation.
    pub owner: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Each target: when it was last seen whole, and what is wrong with it.
    pub targets: Vec<TargetView>,
    /// Errors of job files that are not taken, each with its place; what is on record goes on.
    pub refused_files: Vec<String>,
}

/// One target as the daemon sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetView {
    /// Its name.
    pub name: String,
    /// Whether a complete sweep was compared with the store since the start.
    pub verified: bool,
    /// Seconds since the last complete sweep.
    pub last_sweep_s: Option<u64>,
    /// The last fault, in words.
    pub fault: Option<String>,
}

/// Whether the daemon can do its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyView {
    /// `ready`, `degraded` (it works, and something outside does not) or `not_ready`.
    pub status: String,
    /// What was looked at.
    pub checks: Vec<CheckView>,
}

/// One thing that the daemon needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckView {
    /// `store`, `disk`, or `target/NAME` with `/sweep` or `/credentials`.
    pub name: String,
    /// `ok`, `degraded` or `failed`.
    pub status: String,
    /// Seconds since it was last known to be well; `null` if it never was, or is looked at just now.
    pub age_s: Option<u64>,
    /// The reason, in words.
    pub text: String,
}
