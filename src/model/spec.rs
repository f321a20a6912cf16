//! What a person asked for, checked and in one shape: the accepted spec of a job, and the target
//! it goes to.

use super::checkpoint::Location;
use super::hang::HangPolicy;
use super::ids::{JobKey, TargetName};
use super::money::Money;
use super::placement::Placement;
use super::waiting::Waiting;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The accepted content of one job file. Stored whole under its digest; decisions read only this,
/// never the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Name and run.
    pub key: JobKey,
    /// Where it is sent.
    pub target: TargetName,
    /// Whether UserCommand is wrapped in the launcher.
    pub launcher: bool,
    /// The CreateJob body as the person wrote it, every field, known to us or not; without the
    /// environment values that are secrets.
    pub body: serde_json::Map<String, serde_json::Value>,
    /// `Envs` whose value is a file name below `job_secrets`, resolved at the send.
    pub secret_envs: BTreeMap<String, String>,
    /// The bid; `None` is on-demand (or whatever `SpotSpec` the body itself has).
    pub spot: Option<Bid>,
    /// Where checkpoints are; `None` if the job has none to go on from.
    pub checkpoint: Option<CheckpointSpec>,
    /// Steps the job should reach, from `[progress]`.
    pub total_steps: Option<u64>,
    /// `[retry]`.
    pub retry: Retry,
    /// `[budget] list_price_per_hour`: CNY a node and hour.
    pub list_price_per_hour: Option<Money>,
    /// `[hang]`. Left out of the record where there is none: the digest of a spec does not change by
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<HangPolicy>,
    /// `[waiting]`. Left out of the record where nothing is asked for, as what follows: the digest of
    /// a spec does not change by it.
    #[serde(default, skip_serializing_if = "Waiting::is_none")]
    pub waiting: Waiting,
    /// `[[placements]]`, in the order of the job file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<Placement>,
}

impl JobSpec {
    /// Whether it asks for spot machines, by `[spot]` or in the body itself.
    pub fn asks_for_spot(&self) -> bool {
        let roles = self.body.get("JobSpecs").and_then(serde_json::Value::as_array);
        let is_set = |role: &serde_json::Value| role.get("SpotSpec").is_some_and(|s| !s.is_null());
        self.spot.is_some() || roles.into_iter().flatten().any(is_set)
    }
}

/// The most one is willing to pay for spot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Bid {
    /// `SpotDiscountLimit`: a fraction of the list price; 0.4 is "at most 40 % of list".
    Discount(Money),
    /// `SpotPriceLimit`: CNY per **minute**.
    PricePerMinute(Money),
}

impl fmt::Display for Bid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Discount(share) => share.fmt(f),
            Self::PricePerMinute(price) => {
                let hour = Money(price.0.saturating_mul(60));
                write!(f, "{price} CNY a minute ({hour} an hour)")
            }
        }
    }
}

/// `[checkpoint]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointSpec {
    /// The prefix to look under.
    pub location: Location,
    /// The same place as the container sees it; what `{root}` and `{path}` start with.
    pub mount: String,
    /// `auto`, a format's word, or `custom`.
    pub format: String,
    /// The layout when `format` is `custom`.
    pub custom: Option<CustomLayout>,
    /// The person's resume argument; `None` is the format's own.
    pub resume: Option<String>,
    /// A whole other UserCommand for resumed attempts.
    pub resume_command: Option<String>,
    /// What the first attempt does on a prefix.
    pub first_start: FirstStart,
    /// Running time by which a whole checkpoint should exist.
    pub expect_within: Duration,
    /// How long an incomplete newest checkpoint may still be uploading.
    pub settle: Duration,
    /// Time between two listings that have to be equal.
    pub settle_interval: Duration,
    /// Ranks that write, where known.
    pub ranks: Option<u32>,
    /// Whether the launcher first reads which attempt is the newest. Left out of the record where
    /// it is not wanted: the digest of a spec does not change by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fence: bool,
    /// Whether the trainer's tracker is rewritten where it leads to another checkpoint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repair_tracker: bool,
    /// Other prefixes that hold the rest of each checkpoint, in the order of the job file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CheckpointPart>,
}

impl CheckpointSpec {
    /// Every prefix that the job writes: the main one first.
    pub fn locations(&self) -> impl Iterator<Item = &Location> {
        std::iter::once(&self.location).chain(self.parts.iter().map(|part| &part.location))
    }

    /// Whether a prefix of one is equal to one of the other, or inside it.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.locations().any(|own| other.locations().any(|theirs| own.overlaps(theirs)))
    }

    /// The container path of a part's location; `None` if there is no part of that name.
    pub fn mount_of(&self, part: &str) -> Option<&str> {
        let found = self.parts.iter().find(|one| one.name == part);
        found.map(|one| one.mount.as_str())
    }
}

/// `[[checkpoint.parts]]`: a prefix beside the main one. A step counts only where it is whole in
/// the main prefix and in every part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPart {
    /// Its name, for placeholders and for people.
    pub name: String,
    /// The prefix to look under.
    pub location: Location,
    /// The same place as the container sees it.
    pub mount: String,
    /// `auto` or a format's word.
    pub format: String,
    /// The layout when `format` is `custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomLayout>,
}

/// A layout of the person's own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomLayout {
    /// Name of a checkpoint (folder or file) below the root, with `{step}`.
    pub pattern: String,
    /// Files that must be in the folder, not empty.
    pub required: Vec<String>,
    /// A file that is written last, inside the folder; may be empty.
    pub marker: Option<String>,
}

/// Names of single files whose end shows that they are whole.
const TELLING: [&str; 3] = [".pt", ".pth", ".ckpt"];

impl CustomLayout {
    /// Whether nothing in the layout tells a torn checkpoint from a whole one.
    pub fn tells_no_torn_one(&self) -> bool {
        let is_telling = TELLING.iter().any(|end| self.pattern.ends_with(end));
        self.required.is_empty() && self.marker.is_none() && !is_telling
    }
}

/// What the first attempt does where checkpoints may already be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FirstStart {
    /// Goes on from the newest whole one (default).
    Resume,
    /// Starts at zero.
    Fresh,
    /// Does not start if there is any.
    Refuse,
}

/// `[retry]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Ends alike, in a row and without progress, that make a crash loop.
    pub alike: u32,
    /// How long ends without progress go on before the job is given up.
    pub give_up: Duration,
    /// What follows a stop that is nobody's known act.
    pub on_stopped: OnStopped,
}

/// `[retry] on_stopped`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnStopped {
    /// Holds the job for a person (default).
    Hold,
    /// Submits it again.
    Resume,
}

/// A `[targets.NAME]` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: TargetName,
    /// Where its calls go: what an intent freezes.
    pub place: Place,
    /// How long a signed CreateJob can still be accepted by the server.
    pub acceptance: Duration,
    /// Attempts that may be open at one time.
    pub max_parallel: u32,
    /// Whether a plain `http://` endpoint was allowed in so many words.
    pub plain_http: bool,
}

/// Where an attempt is sent and looked for. Frozen in its intent: looks use it whatever the daemon
/// file says later. Credentials stand here only as a reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Region id, e.g. `cn-hangzhou`.
    pub region: String,
    /// `WorkspaceId`.
    pub workspace: String,
    /// Base URL of the API.
    pub endpoint: String,
    /// Base URL of the S3 side of the bucket's region; `None` where no bucket is used.
    pub storage: Option<String>,
    /// Where the keys come from.
    pub credentials: CredentialsRef,
}

/// Where keys come from. Never the keys.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CredentialsRef {
    /// `ALIBABA_CLOUD_ACCESS_KEY_ID`, `…_SECRET`, `ALIBABA_CLOUD_SECURITY_TOKEN`.
    Environment,
    /// A TOML or JSON file with `access_key_id`, `access_key_secret`, perhaps `security_token`.
    File(PathBuf),
    /// The same in a credential that systemd keeps for the service.
    Systemd(String),
    /// A profile of `~/.aliyun/config.json`, else of `~/.alibabacloud/credentials.ini`.
    Profile(String),
    /// The role of this ECS instance; `None`: the one that is attached.
    EcsRole(Option<String>),
    /// The RAM role that the environment names, for the token of an identity provider.
    Oidc,
    /// A server near by, by its address.
    Uri(String),
    /// The order of the official SDK.
    Chain,
}

/// Whether keys may come from a command that a profile names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commands {
    /// No (default): such a profile is refused.
    Refused,
    /// Yes: the daemon file says so.
    Allowed,
}
