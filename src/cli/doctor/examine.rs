//! One target, looked at from every side that only reads.
//!
//! What always holds: each check says something, be it that it could not be made; no text shows a
//! key; a wrong clock is reported and then corrected for, so that it hides nothing else.

use crate::checkpoint::objects::{Depth, OddKeys, Store as _, StoreError, chain};
use crate::checkpoint::store_folder::FolderStore;
use crate::checkpoint::store_s3::{S3Store, StorageAccess, StorageKeys};
use crate::dlc::client::{ApiError, Dlc};
use crate::dlc::fault::ram_action;
use crate::dlc::probe::Probe;
use crate::model::checkpoint::{Location, Scheme};
use crate::model::ids::Owner;
use crate::model::spec::{CheckpointSpec, JobSpec, Target};
use crate::model::time::{BootTime, WallTime, human};
use crate::openapi::client::{Limits, PlainHttp};
use crate::openapi::credentials::{Credentials, CredentialsError, Held, Keychain};
use crate::openapi::error::whole;
use crate::openapi::kind::Kind;
use crate::service::clock::Clock;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time that one call may take.
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// A clock that is off by more than this is worth a word.
const CLOCK_WARNING: Duration = Duration::from_mins(1);
/// A clock that is off by more than this has every call refused.
const CLOCK_ERROR: Duration = Duration::from_mins(15);
/// Buckets of one target that are looked at.
const BUCKETS_LIMIT: usize = 100;

/// Everything that was found: the document of `doctor -o json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Examination {
    /// The targets, by name.
    pub targets: Vec<TargetReport>,
}

/// What was found about a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TargetReport {
    /// Its name.
    pub name: String,
    /// Where its calls go.
    pub endpoint: String,
    /// Which provider gave the keys.
    pub provider: Option<String>,
    /// When they expire.
    pub expires: Option<String>,
    /// This machine's clock less the server's, in seconds.
    pub clock_offset_s: Option<i64>,
    /// What was looked at, in that order.
    pub checks: Vec<Check>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub check: Subject,
    /// How it is.
    pub verdict: Verdict,
    /// In words.
    pub text: String,
    /// The page of an error.
    pub code: Option<String>,
    /// The RAM action that the caller lacks.
    pub missing_action: Option<String>,
}

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Where the keys come from.
    Keys,
    /// Whether the target answers.
    Answer,
    /// This machine's clock.
    Clock,
    /// What the caller may do.
    Permission,
    /// A bucket that jobs of the target name.
    Bucket,
}

impl Subject {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Answer => "answer",
            Self::Clock => "clock",
            Self::Permission => "permission",
            Self::Bucket => "bucket",
        }
    }
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, or is not needed, and is worth a look.
    Warning,
    /// The daemon will not get through.
    Error,
    /// It could not be found out.
    NotChecked,
}

impl Verdict {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Error => "ERROR",
            Self::NotChecked => "not checked",
        }
    }
}

impl Check {
    fn new(check: Subject, verdict: Verdict, text: impl Into<String>) -> Self {
        Self { check, verdict, text: text.into(), code: None, missing_action: None }
    }

    /// No call was made, so none is named; and the error of a chain says itself what to name.
    fn no_keys(source: CredentialsError) -> Self {
        let told = if let CredentialsError::Again(last) = &source { last } else { &source };
        let of_chain = matches!(told, CredentialsError::Chain { .. });
        let why = whole(&source);
        let error = ApiError::Credentials { action: "keys", source };
        let mend = if of_chain { "" } else { error.kind().row().mend };
        let between = if mend.is_empty() { "" } else { "; " };
        let text = format!("[{}] {why}{between}{mend}", error.page());
        Self { text, ..Self::of_error(Subject::Keys, Verdict::Error, &error) }
    }

    fn of_error(check: Subject, verdict: Verdict, error: &ApiError) -> Self {
        Self {
            check,
            verdict,
            text: error.in_full(),
            code: Some(error.page().to_string()),
            missing_action: error.missing_action(),
        }
    }
}

/// This machine's wall clock, as it goes on from a moment, and what a server says of it.
#[derive(Debug)]
pub struct Watch {
    clock: Clock,
    began: BootTime,
    wall: WallTime,
    /// This machine's time less the server's, in ms.
    offset_ms: Option<i64>,
}

impl Watch {
    /// A watch that shows `wall` now.
    pub fn starting_at(wall: WallTime) -> Self {
        let clock = Clock::new();
        Self { began: clock.now().boot, clock, wall, offset_ms: None }
    }

    fn machine(&self) -> WallTime {
        self.wall.plus(self.clock.now().boot.since(self.began))
    }

    /// The server's time, once it was heard; else this machine's.
    fn now(&self) -> WallTime {
        WallTime(self.machine().0.saturating_sub(self.offset_ms.unwrap_or(0)))
    }

    fn heard(&mut self, date: Option<WallTime>) {
        // `Date` has whole seconds: on average the true time is half a second later.
        let offset = |date: WallTime| self.machine().0.saturating_sub(date.0.saturating_add(500));
        self.offset_ms = date.map(offset).or(self.offset_ms);
    }
}

/// Examines a target; `specs` are the accepted job files of the daemon.
pub(super) async fn target(
    target: &Target,
    specs: &[JobSpec],
    keychain: &Keychain,
    mut watch: Watch,
) -> TargetReport {
    let mut report = TargetReport {
        name: target.name.to_string(),
        endpoint: target.place.endpoint.clone(),
        provider: None,
        expires: None,
        clock_offset_s: None,
        checks: Vec::new(),
    };
    let held = keychain.keys(&target.place.credentials, watch.now()).await;
    let held = match held {
        Ok(held) => held,
        Err(source) => {
            report.checks.push(Check::no_keys(source));
            let rest = "nothing else: there are no keys to sign with";
            report.checks.push(Check::new(Subject::Answer, Verdict::NotChecked, rest));
            return report;
        }
    };
    let keys = keys(&held, watch.now());
    report.checks.push(keys);
    report.provider = Some(held.provider.clone());
    report.expires = held.expires.map(|at| at.to_string());
    calls(target, keychain, &mut watch, &mut report.checks).await;
    report.clock_offset_s = watch.offset_ms.map(|ms| ms / 1000);
    for location in places(target, specs) {
        report.checks.push(match location.scheme {
            Scheme::S3 | Scheme::Oss => bucket(target, &held.keys, location).await,
            Scheme::File => folder(location),
        });
    }
    report
}

fn keys(held: &Held, now: WallTime) -> Check {
    let from = &held.provider;
    match held.expires {
        None => Check::new(Subject::Keys, Verdict::Ok, format!("{from}; no end is known")),
        Some(at) if at <= now => {
            let text = format!("{from}; expired at {at}");
            Check::new(Subject::Keys, Verdict::Error, text)
        }
        Some(at) => {
            let text = format!("{from}; until {at}, in {}", human(at.since(now)));
            Check::new(Subject::Keys, Verdict::Ok, text)
        }
    }
}

/// Whether the target answers, what its clock says, and what the caller may do.
async fn calls(target: &Target, keychain: &Keychain, watch: &mut Watch, checks: &mut Vec<Check>) {
    let plain = if target.plain_http { PlainHttp::Anywhere } else { PlainHttp::Loopback };
    let limits = Limits { read: CALL_LIMIT, total: CALL_LIMIT, ..Limits::default() };
    // A probe asks for nobody's jobs in particular.
    let owner = Owner::new("doctor").expect("six letters of base32");
    let dlc = match Dlc::with_limits(&target.place, owner, keychain, plain, limits) {
        Ok(dlc) => dlc,
        Err(error) => {
            checks.push(Check::new(Subject::Answer, Verdict::Error, whole(&error)));
            return;
        }
    };
    let mut first = dlc.probe(Probe::ListJobs, watch.now()).await;
    watch.heard(date(&first));
    if first.as_ref().is_err_and(|error| error.kind() == Kind::Clock) {
        // The daemon corrects its time by the refusal, too.
        first = dlc.probe(Probe::ListJobs, watch.now()).await;
    }
    let denied = first.as_ref().is_err_and(|error| error.kind() == Kind::Permission);
    checks.push(match &first {
        Ok(_) => Check::new(Subject::Answer, Verdict::Ok, "ListJobs is answered"),
        Err(_) if denied => {
            Check::new(Subject::Answer, Verdict::Ok, "ListJobs is answered, with a refusal")
        }
        Err(error) => Check::of_error(Subject::Answer, Verdict::Error, error),
    });
    checks.push(clock(watch.offset_ms));
    if first.is_err() && !denied {
        let text = "the target gives no answer to read them from";
        checks.push(Check::new(Subject::Permission, Verdict::NotChecked, text));
        return;
    }
    checks.push(permission(Probe::ListJobs, &first));
    for probe in Probe::OTHERS {
        let answer = dlc.probe(probe, watch.now()).await;
        checks.push(permission(probe, &answer));
    }
    let text = "pai:CreateJob, pai:StopJob: they change something";
    checks.push(Check::new(Subject::Permission, Verdict::NotChecked, text));
}

fn date<T>(answer: &Result<crate::dlc::client::Answer<T>, ApiError>) -> Option<WallTime> {
    answer.as_ref().map_or_else(ApiError::date, |answer| answer.date)
}

fn clock(offset_ms: Option<i64>) -> Check {
    let Some(offset) = offset_ms else {
        let text = "no answer had a Date to compare with";
        return Check::new(Subject::Clock, Verdict::NotChecked, text);
    };
    let off = Duration::from_millis(offset.unsigned_abs());
    let side = if offset < 0 { "behind" } else { "ahead of" };
    let text = format!("{} {side} the server's", human(Duration::from_secs(off.as_secs())));
    if off > CLOCK_ERROR {
        let page = Kind::Clock.page();
        let mend = Kind::Clock.row().mend;
        let code = Some(page.to_string());
        let text = format!("[{page}] {text}: {mend}");
        Check { code, ..Check::new(Subject::Clock, Verdict::Error, text) }
    } else if off > CLOCK_WARNING {
        let text = format!("{text}: {}", Kind::Clock.row().mend);
        Check::new(Subject::Clock, Verdict::Warning, text)
    } else {
        let text = format!("within {} of the server's", human(CLOCK_WARNING));
        Check::new(Subject::Clock, Verdict::Ok, text)
    }
}

/// What an answer says about the permission that its call needs.
fn permission<T>(probe: Probe, answer: &Result<T, ApiError>) -> Check {
    let action = ram_action(probe.action()).unwrap_or(probe.action());
    let needed = match probe {
        Probe::ListJobs | Probe::GetJob | Probe::GetPodLogs => Verdict::Error,
        // They add evidence; supervision does without.
        Probe::GetJobEvents | Probe::ListEcsSpecs => Verdict::Warning,
    };
    match answer {
        Ok(_) => Check::new(Subject::Permission, Verdict::Ok, action),
        Err(error) if error.kind() == Kind::Permission => {
            Check::of_error(Subject::Permission, needed, error)
        }
        Err(error) => {
            let check = Check::of_error(Subject::Permission, Verdict::NotChecked, error);
            Check { text: format!("{action}: {}", check.text), ..check }
        }
    }
}

/// The buckets that job files name for this target, each with the first prefix that is named, and
/// the folders.
fn places<'s>(target: &Target, specs: &'s [JobSpec]) -> impl Iterator<Item = &'s Location> {
    let mut found: BTreeMap<(&str, &str), &Location> = BTreeMap::new();
    let mine = specs.iter().filter(|spec| spec.target == target.name);
    for location in
        mine.filter_map(|spec| spec.checkpoint.as_ref()).flat_map(CheckpointSpec::locations)
    {
        let place = match location.scheme {
            Scheme::S3 | Scheme::Oss => (location.bucket.as_str(), ""),
            Scheme::File => ("", location.prefix.as_str()),
        };
        found.entry(place).or_insert(location);
    }
    found.into_values().take(BUCKETS_LIMIT)
}

/// Looks whether a folder of checkpoints is there.
fn folder(location: &Location) -> Check {
    let path = Path::new("/").join(&location.prefix);
    match FolderStore::open(&path, Arc::new(OddKeys::default())) {
        Ok(_) => Check::new(Subject::Bucket, Verdict::Ok, format!("{location} is there")),
        Err(error) => {
            Check::new(Subject::Bucket, Verdict::Error, format!("{location}: {}", chain(&error)))
        }
    }
}

/// What mends a look that brought nothing; the error of a missing place says it itself.
fn mend(error: &StoreError) -> &'static str {
    match error {
        StoreError::Refused { .. } => "; give these keys oss:ListObjects on it, or other keys",
        StoreError::NoAnswer { .. } => {
            "; check `storage` of the target, the bucket's name and the network"
        }
        StoreError::NoSuchPlace { .. }
        | StoreError::NoFolder { .. }
        | StoreError::Closed { .. }
        | StoreError::TooMany { .. }
        | StoreError::TooManyRequests => "",
    }
}

/// Lists one page of a bucket, where a job's checkpoints are.
async fn bucket(target: &Target, keys: &Credentials, location: &Location) -> Check {
    let fails = |text: String| Check::new(Subject::Bucket, Verdict::Error, text);
    let Some(endpoint) = target.place.storage.clone() else {
        return fails(format!("{location}: the target has no storage endpoint"));
    };
    let access = StorageAccess {
        endpoint,
        region: target.place.region.clone(),
        keys: StorageKeys {
            key_id: keys.key_id.expose().to_owned(),
            secret: keys.secret.clone(),
            token: keys.token.clone(),
        },
        plain_http: target.plain_http,
    };
    let store = match S3Store::open(location, &access, Arc::new(OddKeys::default())) {
        Ok(store) => store,
        Err(error) => return fails(format!("{location}: {}", chain(&error))),
    };
    match store.page("", Depth::Direct, None).await {
        Ok(_) => Check::new(Subject::Bucket, Verdict::Ok, format!("{location} can be listed")),
        Err(error) => {
            let missing = matches!(error, StoreError::Refused { .. });
            let missing_action = missing.then(|| "oss:ListObjects".to_owned());
            let text = format!("{location}: {}{}", chain(&error), mend(&error));
            Check { missing_action, ..fails(text) }
        }
    }
}
