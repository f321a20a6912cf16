//! A CreateJob body, checked as the documentation says, and what of it the emulator acts on.
//!
//! Nothing is dropped: every field, known or not, stays in the body that is shown back.

use super::job::End;
use super::market::Bid;
use super::mounts::DataSource;
use super::process::LOG_TAIL_LIMIT_BYTES;
use super::restart::RestartPolicy;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// Size of a CreateJob body.
pub const BODY_LIMIT_BYTES: usize = 65_536;
/// Letters of a `DisplayName`.
const DISPLAY_NAME_LIMIT: usize = 256;
/// Pods of one job.
pub const PODS_LIMIT: u64 = 64;
/// The documented job types.
pub(super) const JOB_TYPES: [&str; 9] = [
    "TFJob",
    "PyTorchJob",
    "MPIJob",
    "XGBoostJob",
    "OneFlowJob",
    "ElasticBatchJob",
    "SlurmJob",
    "RayJob",
    "DataJuicerJob",
];

/// What a CreateJob asks for.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The whole body.
    pub body: Map<String, Value>,
    /// `DisplayName`.
    pub display_name: String,
    /// `JobType`.
    pub job_type: String,
    /// `UserCommand`.
    pub command: String,
    /// `Envs` and `CustomEnvs`, as the pods get them.
    pub envs: BTreeMap<String, String>,
    /// Roles in the order of `JobSpecs`, with their numbers of pods.
    pub roles: Vec<(String, u64)>,
    /// The lowest bid of all roles; `None` is a job that no market touches.
    pub bid: Option<Bid>,
    /// What kind of machines it runs on.
    pub hardware: Hardware,
    /// What is to be mounted.
    pub data_sources: Vec<DataSource>,
    /// Whether the platform runs it again by itself.
    pub restarts: RestartPolicy,
    /// For which ends its machine is kept, and for how many minutes.
    pub reserve: Reserve,
}

/// Kinds of machines; the word is that of `ResourceType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hardware {
    /// `ECS`: general compute. A spot job waits in Queuing.
    General,
    /// `Lingjun`: a spot job waits in Bidding.
    Lingjun,
}

impl Hardware {
    /// `ResourceType`.
    pub fn word(self) -> &'static str {
        match self {
            Self::General => "ECS",
            Self::Lingjun => "Lingjun",
        }
    }

    /// Lingjun is asked for by name, by a machine of the `ml.` kind, or by a quota.
    fn read(body: &Map<String, Value>) -> Self {
        let specs = body.get("JobSpecs").and_then(Value::as_array);
        let of_spec = |spec: &Value| {
            spec["EcsSpec"].as_str().is_some_and(|name| name.starts_with("ml."))
                || given(spec, "QuotaId").is_some()
        };
        let by_name = body.get("ResourceType").is_some_and(|name| name == "Lingjun");
        let by_quota =
            body.get("ResourceId").is_some_and(|id| id.as_str() != Some("") && !id.is_null());
        if by_name || by_quota || specs.into_iter().flatten().any(of_spec) {
            Self::Lingjun
        } else {
            Self::General
        }
    }
}

/// `Settings.JobReservedMinutes` and `JobReservedPolicy`: the machine of a job that ended by itself
/// is kept for so many minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Not at all.
    Never,
    /// Whatever the end; also a policy that is empty or unknown.
    Always(u32),
    /// After a failure alone.
    OnFailure(u32),
    /// After a success alone.
    OnSuccess(u32),
}

impl Reserve {
    /// For how many minutes it is kept after `end`; 0 is not at all.
    pub fn minutes(self, end: End) -> u32 {
        match (self, end) {
            (Self::Always(minutes), End::Succeeded | End::Failed)
            | (Self::OnFailure(minutes), End::Failed)
            | (Self::OnSuccess(minutes), End::Succeeded) => minutes,
            (Self::Never | Self::Always(_), _)
            | (Self::OnFailure(_), End::Succeeded | End::Stopped)
            | (Self::OnSuccess(_), End::Failed | End::Stopped) => 0,
        }
    }

    /// The words of the policy are not published: what they have in common is enough.
    fn read(body: &Map<String, Value>) -> Result<Self, String> {
        let Some(settings) = body.get("Settings") else { return Ok(Self::Never) };
        let minutes = match given(settings, "JobReservedMinutes") {
            None => 0,
            Some(value) => value
                .as_u64()
                .and_then(|minutes| u32::try_from(minutes).ok())
                .ok_or_else(|| format!("JobReservedMinutes: {value} is no number of minutes"))?,
        };
        let policy = settings["JobReservedPolicy"].as_str().unwrap_or("").to_ascii_lowercase();
        Ok(match policy.as_str() {
            _ if minutes == 0 => Self::Never,
            policy if policy.contains("never") => Self::Never,
            policy if policy.contains("fail") => Self::OnFailure(minutes),
            policy if policy.contains("succ") => Self::OnSuccess(minutes),
            _ => Self::Always(minutes),
        })
    }
}

/// What a virtual job does: envs that the emulator reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualRun {
    /// `EMULATOR_RUN_SECONDS`; `None` is for ever.
    pub duration: Option<Duration>,
    /// `EMULATOR_EXIT`, its exit code then.
    pub exit: i32,
    /// `EMULATOR_TERM_EXIT`, its exit code when it is told to end (0 if not given).
    pub term_exit: i32,
    /// What it prints.
    pub log: VirtualLog,
}

/// What each pod of a virtual job prints: envs that the emulator reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualLog {
    /// `EMULATOR_LOG_EVERY`, seconds between two lines; `None` is no line at all.
    pub every: Option<Duration>,
    /// `EMULATOR_LOG_BYTES`, the length of a line.
    pub bytes: usize,
}

impl VirtualLog {
    /// The last lines, at most `most` and at most as many bytes as of the log of a process, of a pod
    /// that has printed for `ran`.
    pub fn tail(self, ran: Duration, most: usize) -> Vec<String> {
        let Some(every) = self.every.filter(|every| !every.is_zero()) else { return Vec::new() };
        let limit = usize::try_from(LOG_TAIL_LIMIT_BYTES).unwrap_or(usize::MAX);
        let most = most.min(limit / self.bytes.max(1));
        let count = ran.as_nanos() / every.as_nanos();
        let first = count.saturating_sub(u128::try_from(most).unwrap_or(u128::MAX));
        let line = |n: u128| {
            let text = format!("step {n}");
            let fill = self.bytes.min(limit).saturating_sub(text.len());
            text + &".".repeat(fill)
        };
        (first + 1..=count).map(line).collect()
    }
}

impl Submission {
    /// Reads a body. `list_price_per_minute` (CNY) turns a `SpotPriceLimit` into a fraction.
    ///
    /// # Errors
    /// What is wrong, in words for an `InvalidParameter`.
    pub fn read(bytes: &[u8], list_price_per_minute: f64) -> Result<Self, String> {
        if bytes.len() > BODY_LIMIT_BYTES {
            return Err(format!("the parameters are larger than {BODY_LIMIT_BYTES} bytes"));
        }
        let body: Map<String, Value> = serde_json::from_slice(bytes)
            .map_err(|e| format!("the body is no JSON object: {e}"))?;
        let display_name = required(&body, "DisplayName")?.to_owned();
        let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if display_name.len() > DISPLAY_NAME_LIMIT || !display_name.chars().all(letter) {
            return Err("DisplayName: up to 256 letters, digits, `_`, `.` or `-`".to_owned());
        }
        let job_type = required(&body, "JobType")?.to_owned();
        if !JOB_TYPES.contains(&job_type.as_str()) {
            return Err(format!("JobType: {job_type} is none of {}", JOB_TYPES.join(", ")));
        }
        let command = required(&body, "UserCommand")?.to_owned();
        if command.contains('\0') {
            return Err("UserCommand: holds a NUL".to_owned());
        }
        check_numbers(&body)?;
        check_data_sources(&body)?;
        let hardware = Hardware::read(&body);
        let (roles, bid) = read_specs(&body, hardware, list_price_per_minute)?;
        Ok(Self {
            display_name,
            job_type,
            command,
            envs: read_envs(&body)?,
            roles,
            bid,
            hardware,
            data_sources: DataSource::read_all(&body)?,
            restarts: RestartPolicy::read(&body)?,
            reserve: Reserve::read(&body)?,
            body,
        })
    }

    /// How the job runs where no process is started.
    pub fn virtual_run(&self) -> VirtualRun {
        let number = |name: &str| self.envs.get(name).and_then(|text| text.parse::<f64>().ok());
        let code = |name: &str| self.envs.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        VirtualRun {
            duration: number("EMULATOR_RUN_SECONDS")
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
            exit: code("EMULATOR_EXIT"),
            term_exit: code("EMULATOR_TERM_EXIT"),
            log: VirtualLog {
                every: number("EMULATOR_LOG_EVERY")
                    .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
                bytes: self
                    .envs
                    .get("EMULATOR_LOG_BYTES")
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0),
            },
        }
    }
}

/// `DisplayName` of a body that may be wrong in every way.
pub fn display_name_of(bytes: &[u8]) -> String {
    let body: Option<Value> = serde_json::from_slice(bytes).ok();
    body.and_then(|body| body["DisplayName"].as_str().map(str::to_owned)).unwrap_or_default()
}

fn required<'a>(body: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    match body.get(key) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        None | Some(Value::Null | Value::String(_)) => Err(format!("{key}: is required")),
        Some(other) => Err(format!("{key}: {other} is no text")),
    }
}

fn given<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|v| !v.is_null() && v.as_str() != Some(""))
}

fn check_numbers(body: &Map<String, Value>) -> Result<(), String> {
    let within = |key: &str, least: u64, most: u64| match body.get(key) {
        None | Some(Value::Null) => Ok(()),
        Some(value) if value.as_u64().is_some_and(|n| (least..=most).contains(&n)) => Ok(()),
        Some(value) => Err(format!("{key}: {value} is not {least} to {most}")),
    };
    within("Priority", 1, 9)?;
    within("JobMaxRunningTimeMinutes", 0, u64::from(u32::MAX))
}

fn check_data_sources(body: &Map<String, Value>) -> Result<(), String> {
    for source in list(body, "DataSources")? {
        if given(source, "Uri").is_some() == given(source, "DataSourceId").is_some() {
            return Err("DataSources: each has either DataSourceId or Uri".to_owned());
        }
    }
    Ok(())
}

fn list<'a>(body: &'a Map<String, Value>, key: &str) -> Result<&'a [Value], String> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) if items.iter().all(Value::is_object) => Ok(items),
        Some(_) => Err(format!("{key}: is no list of objects")),
    }
}

type Roles = Vec<(String, u64)>;

fn read_specs(
    body: &Map<String, Value>,
    hardware: Hardware,
    price: f64,
) -> Result<(Roles, Option<Bid>), String> {
    let specs = list(body, "JobSpecs")?;
    if specs.is_empty() {
        return Err("JobSpecs: is required".to_owned());
    }
    let (mut roles, mut lowest, mut pods) = (Vec::new(), None::<Bid>, 0_u64);
    for spec in specs {
        let role = spec.get("Type").and_then(Value::as_str).unwrap_or("Worker");
        let is_name = !role.is_empty() && role.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_name {
            return Err(format!("JobSpecs: Type {role} is no role"));
        }
        let count = spec
            .get("PodCount")
            .map_or(Some(1), Value::as_u64)
            .filter(|count| (1..=PODS_LIMIT).contains(count))
            .ok_or_else(|| format!("JobSpecs: PodCount is not 1 to {PODS_LIMIT}"))?;
        pods += count;
        if given(spec, "EcsSpec").is_some() && given(spec, "ResourceConfig").is_some() {
            return Err("JobSpecs: EcsSpec and ResourceConfig exclude each other".to_owned());
        }
        if hardware == Hardware::Lingjun && given(&spec["SpotSpec"], "SpotPriceLimit").is_some() {
            return Err("SpotSpec: Lingjun takes SpotDiscountLimit alone".to_owned());
        }
        if let Some(bid) = read_spot(spec, price)?.or(read_elastic(spec, price)?) {
            lowest = Some(lowest.map_or(bid, |other| Bid(other.0.min(bid.0))));
        }
        roles.push((role.to_owned(), count));
    }
    if pods > PODS_LIMIT {
        return Err(format!("JobSpecs: more than {PODS_LIMIT} pods in all"));
    }
    Ok((roles, lowest))
}

fn read_spot(spec: &Value, list_price_per_minute: f64) -> Result<Option<Bid>, String> {
    let Some(spot) = given(spec, "SpotSpec") else { return Ok(None) };
    let strategy = spot.get("SpotStrategy").and_then(Value::as_str);
    if strategy != Some("SpotWithPriceLimit") {
        return Err("SpotSpec: SpotStrategy is not SpotWithPriceLimit".to_owned());
    }
    let limit = |key: &str| match given(spot, key) {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) if number > 0.0 => Ok(Some(number)),
            Some(_) | None => Err(format!("SpotSpec: {key} {value} is no price")),
        },
    };
    match (limit("SpotDiscountLimit")?, limit("SpotPriceLimit")?) {
        (Some(discount), None) if discount <= 1.0 => Ok(Some(Bid(discount))),
        (Some(discount), None) => {
            Err(format!("SpotSpec: SpotDiscountLimit {discount} is more than the list price"))
        }
        (None, Some(price)) => Ok(Some(Bid(price / list_price_per_minute))),
        (Some(_), Some(_)) | (None, None) => {
            Err("SpotSpec: exactly one of SpotDiscountLimit and SpotPriceLimit".to_owned())
        }
    }
}

/// The highest bid of `ElasticSpotSpecs`, which other than SpotSpec are in percent of the list price
/// and CNY per hour; without a limit it is the list price.
fn read_elastic(spec: &Value, list_price_per_minute: f64) -> Result<Option<Bid>, String> {
    let Some(Value::Array(offers)) = given(spec, "ElasticSpotSpecs") else { return Ok(None) };
    let mut highest = None::<f64>;
    for offer in offers {
        let limit = |key: &str| match given(offer, key).map(|value| (value, value.as_f64())) {
            None => Ok(None),
            Some((_, Some(number))) if number > 0.0 => Ok(Some(number)),
            Some((value, _)) => Err(format!("ElasticSpotSpecs: {key} {value} is no price")),
        };
        let bid = match (limit("SpotDiscountLimit")?, limit("SpotPriceLimit")?) {
            (Some(percent), _) => percent / 100.0,
            (None, Some(per_hour)) => per_hour / 60.0 / list_price_per_minute,
            (None, None) => 1.0,
        };
        highest = Some(highest.map_or(bid, |other| other.max(bid)));
    }
    Ok(highest.map(Bid))
}

fn read_envs(body: &Map<String, Value>) -> Result<BTreeMap<String, String>, String> {
    let mut envs = BTreeMap::new();
    let mut add = |name: &str, value: &Value| {
        let text = value.as_str().ok_or_else(|| format!("Envs: {name} is no text"))?;
        if name.is_empty() || name.contains(['=', '\0']) || text.contains('\0') {
            return Err(format!("Envs: {name:?} cannot be set"));
        }
        envs.insert(name.to_owned(), text.to_owned());
        Ok(())
    };
    match body.get("Envs") {
        None | Some(Value::Null) => {}
        Some(Value::Object(map)) => {
            for (name, value) in map {
                add(name, value)?;
            }
        }
        Some(_) => return Err("Envs: is no map of texts".to_owned()),
    }
    for env in list(body, "CustomEnvs")? {
        let name = env.get("Key").and_then(Value::as_str).unwrap_or_default();
        add(name, env.get("Value").unwrap_or(&Value::String(String::new())))?;
    }
    Ok(envs)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(in super::super) fn sample() -> Value {
        json!({
            "DisplayName": "sample-spot-job", "JobType": "PyTorchJob", "UserCommand": "true",
            "JobSpecs": [{"Type": "Worker", "PodCount": 1, "Image": "i", "EcsSpec": "e",
                "SpotSpec": {"SpotStrategy": "SpotWithPriceLimit", "SpotDiscountLimit": 0.4}}],
        })
    }

    fn read(body: &Value) -> Result<Submission, String> {
        Submission::read(body.to_string().as_bytes(), 0.02)
    }

    #[test]
    fn both_kinds_of_bid_are_fractions_of_list() {
        assert_eq!(read(&sample()).expect("fine").bid, Some(Bid(0.4)));
        let mut body = sample();
        body["JobSpecs"][0]["SpotSpec"] =
            json!({"SpotStrategy": "SpotWithPriceLimit", "SpotPriceLimit": 0.011});
        let bid = read(&body).expect("fine").bid.expect("a bid");
        assert!((bid.0 - 0.55).abs() < 1e-9, "{bid:?}");
        body["JobSpecs"][0]["SpotSpec"] = Value::Null;
        assert_eq!(read(&body).expect("fine").bid, None);
    }

    #[test]
    fn unknown_fields_stay_and_envs_come_from_both_places() {
        let mut body = sample();
        body["Invented"] = json!({"deep": [1, 0.011]});
        body["Envs"] = json!({"A": "1"});
        body["CustomEnvs"] = json!([{"Key": "B", "Value": "2"}]);
        let read = read(&body).expect("fine");
        assert_eq!(Value::Object(read.body), body);
        assert_eq!(
            read.envs.into_iter().collect::<Vec<_>>(),
            [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())]
        );
    }

    #[test]
    fn each_documented_rule_is_kept() {
        type Spoil = fn(&mut Value);
        let spoilt: [(&str, Spoil); 17] = [
            ("DisplayName", |b| b["DisplayName"] = json!("")),
            ("DisplayName", |b| b["DisplayName"] = json!("a b")),
            ("DisplayName", |b| b["DisplayName"] = json!("x".repeat(257))),
            ("JobType", |b| b["JobType"] = json!("pytorchjob")),
            ("UserCommand", |b| b["UserCommand"] = Value::Null),
            ("JobSpecs", |b| b["JobSpecs"] = json!([])),
            ("PodCount", |b| b["JobSpecs"][0]["PodCount"] = json!(0)),
            ("PodCount", |b| b["JobSpecs"][0]["PodCount"] = json!("1")),
            ("EcsSpec", |b| b["JobSpecs"][0]["ResourceConfig"] = json!({"CPU": "1"})),
            ("exactly one", |b| b["JobSpecs"][0]["SpotSpec"]["SpotPriceLimit"] = json!(1)),
            ("exactly one", |b| {
                b["JobSpecs"][0]["SpotSpec"] = json!({"SpotStrategy": "SpotWithPriceLimit"});
            }),
            ("SpotStrategy", |b| b["JobSpecs"][0]["SpotSpec"]["SpotStrategy"] = json!("x")),
            ("SpotDiscountLimit", |b| {
                b["JobSpecs"][0]["SpotSpec"]["SpotDiscountLimit"] = json!(40);
            }),
            ("DataSources", |b| b["DataSources"] = json!([{"MountPath": "/mnt/data"}])),
            ("Envs", |b| b["Envs"] = json!({"A": 1})),
            ("Envs", |b| b["Envs"] = json!({"A=": "1"})),
            ("larger than", |b| b["UserCommand"] = json!("x".repeat(65_536))),
        ];
        for (word, spoil) in spoilt {
            let mut body = sample();
            spoil(&mut body);
            let error = read(&body).expect_err(word);
            assert!(error.contains(word), "{word}: {error}");
        }
    }
}
