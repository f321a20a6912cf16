//! Whether the daemon can do its work: the store, and each target with its keys.
//!
//! An outage of the API makes it degraded, not unready: whoever restarts what is not ready would
//! only add to the trouble. What a person has to mend makes it unready, with the reason.

use super::driver::Driver;
use crate::model::spec::Target;
use crate::model::time::human;
use crate::model::view::{CheckView, ReadyView};
use std::time::Duration;

/// Passes missed until a target counts as not looked at.
const LATE_AFTER_PASSES: u32 = 3;
/// A pass may take its time: earlier than this none is late.
const LATE_AFTER: Duration = Duration::from_secs(60);
/// Free space below which the state folder is about to be full.
const FREE_BYTES_FLOOR: u64 = 64 * 1024 * 1024;

/// How one check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Ok,
    Degraded,
    Failed,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
            Self::Failed => "failed",
        }
    }
}

type Check = (Outcome, CheckView);

fn check(name: String, outcome: Outcome, age: Option<Duration>, text: String) -> Check {
    let (status, age_s) = (outcome.word().to_owned(), age.map(|age| age.as_secs()));
    (outcome, CheckView { name, status, age_s, text })
}

impl Driver {
    pub(super) fn readiness(&self) -> ReadyView {
        let mut checks = vec![self.store_check()];
        checks.extend(self.disk_check());
        checks.extend(self.listener_check());
        checks.extend(
            self.log.outbox.channels().iter().map(|channel| self.alerts_check(&channel.name)),
        );
        for target in self.book.targets.values() {
            checks.extend(self.target_checks(target));
        }
        let worst = checks.iter().map(|(outcome, _)| *outcome).max().unwrap_or(Outcome::Ok);
        let status = match worst {
            Outcome::Ok => "ready",
            Outcome::Degraded => "degraded",
            Outcome::Failed => "not_ready",
        };
        let checks = checks.into_iter().map(|(_, check)| check).collect();
        ReadyView { status: status.to_owned(), checks }
    }

    fn store_check(&self) -> Check {
        match &self.store_fault {
            None => check("store".into(), Outcome::Ok, None, "it can be written".into()),
            Some(why) => {
                let text = format!("it cannot be written, nothing is decided: {why}");
                check("store".into(), Outcome::Failed, None, text)
            }
        }
    }

    fn disk_check(&self) -> Option<Check> {
        let free = self.measures.free_bytes()?;
        let outcome = if free < FREE_BYTES_FLOOR { Outcome::Degraded } else { Outcome::Ok };
        let text = format!("{} MiB are free where the state is", free / 1024 / 1024);
        Some(check("disk".into(), outcome, None, text))
    }

    /// Where the daemon file wants a listener on TCP that could not be had.
    fn listener_check(&self) -> Option<Check> {
        let why = self.deaf.as_ref()?;
        let text = format!("the API does not listen on TCP until a restart: {why}");
        Some(check("api/tcp".into(), Outcome::Degraded, None, text))
    }

    /// Whether the alerts of a channel arrive.
    fn alerts_check(&self, channel: &str) -> Check {
        let (outcome, age, text) = match self.deliveries.of(channel).trouble {
            None => (Outcome::Ok, None, "nothing is known against it".to_owned()),
            Some(trouble) => {
                let age = self.clock.now().boot.since(trouble.since);
                (Outcome::Degraded, Some(age), trouble.text)
            }
        };
        check(format!("alerts/{channel}"), outcome, age, text)
    }

    /// That of its sweeps, and that of its keys.
    fn target_checks(&self, target: &Target) -> [Check; 2] {
        let now = self.clock.now();
        let name = &target.name;
        let state = self.book.places.get(&target.place);
        let faults = self.effects.outages.all_at(&target.place, now.boot);
        let of_identity = faults.iter().find(|fault| fault.of_identity);
        let mut others: Vec<_> = faults.iter().filter(|fault| !fault.of_identity).collect();
        others.sort_by_key(|fault| !fault.needs_person);
        let age = state.and_then(|state| state.last_pass).map(|at| now.boot.since(at));
        let late = (self.effects.interval() * LATE_AFTER_PASSES).max(LATE_AFTER);
        let other_writer = state.and_then(|state| state.other_writer.clone());
        let other_writer = other_writer.or_else(|| self.book.moved.clone());
        let sweep = match (other_writer, others.first(), age) {
            (Some(why), _, _) => (Outcome::Failed, why),
            (None, Some(fault), _) if fault.needs_person => (Outcome::Failed, fault.text.clone()),
            (None, fault, None) => {
                let why = fault.map_or(String::new(), |fault| format!(": {}", fault.text));
                (Outcome::Failed, format!("not compared with the store since the start{why}"))
            }
            (None, Some(fault), Some(_)) => (Outcome::Degraded, fault.text.clone()),
            (None, None, Some(age)) if age > late => {
                (Outcome::Degraded, format!("the last complete sweep began {} ago", human(age)))
            }
            (None, None, Some(_)) => (Outcome::Ok, "it is looked at".to_owned()),
        };
        let troubles = self.effects.keychain.troubles();
        let trouble = troubles.iter().find(|t| t.reference == target.place.credentials);
        let keys = match (of_identity, trouble) {
            (Some(fault), _) => (Outcome::Failed, fault.text.clone()),
            (None, Some(trouble)) => {
                let is_over = trouble.until.is_some_and(|until| until <= now.wall);
                let outcome = if is_over { Outcome::Failed } else { Outcome::Degraded };
                (outcome, trouble.to_string())
            }
            (None, None) => (Outcome::Ok, "nothing is known against its keys".to_owned()),
        };
        [
            check(format!("target/{name}/sweep"), sweep.0, age, sweep.1),
            check(format!("target/{name}/credentials"), keys.0, None, keys.1),
        ]
    }
}
