//! The job files of a life, and the one target that they name.

use crate::clock::Rng;
use crate::cloud::{LOG_SILENCE, Nature, TOTAL_STEPS};
use spotkeeper::model::checkpoint::{Location, Scheme};
use spotkeeper::model::hang::{HangAct, HangPolicy, Times};
use spotkeeper::model::ids::{Digest, JobKey, JobName, TargetName};
use spotkeeper::model::money::Money;
use spotkeeper::model::spec::{
    Bid, CheckpointSpec, CredentialsRef, FirstStart, JobSpec, OnStopped, Place, Retry,
};
use spotkeeper::model::waiting::{WaitAct, WaitLimit, Waiting};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A job file, and what becomes of its work.
pub(super) struct Plan {
    pub(super) key: JobKey,
    pub(super) prefix: &'static str,
    pub(super) nature: Nature,
    pub(super) pods: u32,
    pub(super) specs: [(Digest, Arc<JobSpec>); 2],
    pub(super) current: usize,
    pub(super) has_file: bool,
}

pub(super) fn place() -> Place {
    Place {
        region: "cn-hangzhou".to_owned(),
        workspace: "1".to_owned(),
        endpoint: "https://pai-dlc.cn-hangzhou.aliyuncs.com".to_owned(),
        storage: None,
        credentials: CredentialsRef::Environment,
    }
}

/// Two or three jobs; half of the lives have two on one prefix, or one inside the other's.
pub(super) fn plans(rng: &mut Rng) -> Vec<Plan> {
    let prefixes = match rng.below(4) {
        0 => ["run", "run", "other", "third"],
        1 => ["run", "run/sub", "other", "third"],
        _ => ["run", "other", "third", "fourth"],
    };
    let jobs = 3 + usize::from(rng.chance(30));
    let names = ["job", "job-b", "third", "last"];
    (0..jobs)
        .map(|n| {
            let nature = match rng.below(10) {
                0 => Nature::Crashes,
                1 => Nature::Plain,
                _ => Nature::Trains,
            };
            let pods = if rng.chance(40) { 4 } else { 1 };
            let hang = rng.chance(25).then(hang);
            plan(names[n], prefixes[n], nature, (pods, hang))
        })
        .collect()
}

fn plan(
    name: &str,
    prefix: &'static str,
    nature: Nature,
    (pods, hang): (u32, Option<HangPolicy>),
) -> Plan {
    let key = JobKey { name: JobName::new(name).expect("a name"), run: 1 };
    let first = JobSpec { hang, ..spec(&key, prefix, nature) };
    let mut second = first.clone();
    second.body.insert("Priority".to_owned(), serde_json::json!(2));
    let specs = [first, second].map(|spec| {
        let number = spec.body.len();
        (Digest(format!("{name:0>32}{number:0>32}")), Arc::new(spec))
    });
    Plan { key, prefix, nature, pods, specs, current: 0, has_file: true }
}

fn spec(key: &JobKey, prefix: &str, nature: Nature) -> JobSpec {
    let checkpoint = CheckpointSpec {
        location: Location {
            scheme: Scheme::Oss,
            bucket: "bucket".to_owned(),
            prefix: prefix.to_owned(),
        },
        mount: "/mnt/run".to_owned(),
        format: "custom".to_owned(),
        custom: None,
        resume: None,
        resume_command: None,
        first_start: FirstStart::Resume,
        expect_within: Duration::from_secs(20 * 60),
        settle: Duration::from_secs(60),
        settle_interval: Duration::from_secs(20),
        ranks: None,
        fence: false,
        repair_tracker: false,
        parts: Vec::new(),
    };
    let trains = nature == Nature::Trains;
    JobSpec {
        key: key.clone(),
        target: TargetName::new("hangzhou").expect("a name"),
        launcher: true,
        body: serde_json::Map::new(),
        secret_envs: BTreeMap::new(),
        spot: Some(Bid::Discount(Money(100_000))),
        checkpoint: (nature != Nature::Plain).then_some(checkpoint),
        total_steps: trains.then_some(TOTAL_STEPS),
        retry: Retry {
            alike: if trains { 1_000 } else { 5 },
            give_up: Duration::from_secs(86_400 * 30),
            on_stopped: OnStopped::Hold,
        },
        list_price_per_hour: None,
        hang: None,
        waiting: waiting(),
        placements: Vec::new(),
    }
}

/// One that is silent is told of, then stopped.
fn hang() -> HangPolicy {
    HangPolicy {
        log_silence: Some(Duration::from_millis(LOG_SILENCE)),
        no_checkpoint: Some(Times::whole(4)),
        then: vec![HangAct::Notify, HangAct::Restart],
    }
}

/// A bid that goes up while the market is closed.
fn waiting() -> Waiting {
    let limit = WaitLimit { after: Duration::from_secs(600), then: vec![WaitAct::RaiseBid] };
    Waiting { queuing: Some(limit.clone()), bidding: Some(limit), ..Waiting::default() }
}
