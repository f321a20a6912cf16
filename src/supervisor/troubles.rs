//! What is wrong with the daemon as a whole for long enough that somebody should look: a target that
//! is not seen, keys that do not work, a disk that fills up. It goes the way of an alert, of no job.
//!
//! What always holds: told once for as long as it lasts, by checks of [`super::readiness`] alone. A
//! store that cannot write has no place for it: that is for whoever watches `readyz`.

use super::driver::Driver;
use super::work::Work;
use crate::model::time::{BootTime, human};
use crate::model::view::CheckView;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long something is broken until it is told: what passes by itself wakes nobody.
const FAILED_FOR: Duration = Duration::from_mins(5);
/// The same for what only needs patience, such as an outage of the API.
const DEGRADED_FOR: Duration = Duration::from_mins(30);
/// Time between two looks at the checks.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// What is wrong now, and since when.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    looked: Option<BootTime>,
    known: BTreeMap<String, Trouble>,
}

#[derive(Debug, Clone, Copy)]
enum Trouble {
    Since(BootTime),
    Told,
}

impl Troubles {
    /// Whether it is time for a look.
    fn is_due(&mut self, now: BootTime) -> bool {
        let due = self.looked.is_none_or(|at| now.since(at) >= LOOK_EVERY);
        if due {
            self.looked = Some(now);
        }
        due
    }

    /// Takes what was found; answers what there is to tell now: the check's name, and a sentence.
    fn note(&mut self, checks: &[CheckView], now: BootTime) -> Vec<(String, String)> {
        let mut tell = Vec::new();
        self.known.retain(|name, _| checks.iter().any(|c| c.name == *name && c.status != "ok"));
        for check in checks.iter().filter(|check| check.status != "ok") {
            let known = self.known.entry(check.name.clone()).or_insert(Trouble::Since(now));
            let Trouble::Since(since) = *known else { continue };
            let (lasts, for_long) = match check.status.as_str() {
                "failed" => (now.since(since), FAILED_FOR),
                _ => (now.since(since), DEGRADED_FOR),
            };
            if lasts >= for_long {
                *known = Trouble::Told;
                let text = format!("{}: {} (for {})", check.name, check.text, human(lasts));
                tell.push((check.name.clone(), text));
            }
        }
        tell
    }
}

impl Driver {
    /// Tells of what has been wrong for long.
    pub(super) fn tell_troubles(&mut self) {
        let now = self.clock.now();
        if self.log.outbox.channels().is_empty() || !self.troubles.is_due(now.boot) {
            return;
        }
        let checks = self.readiness().checks;
        for (name, text) in self.troubles.note(&checks, now.boot) {
            tracing::error!(check = %name, "{text}");
            self.push(Work::Trouble { at: now.wall, name, text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, status: &str) -> CheckView {
        let (name, status) = (name.to_owned(), status.to_owned());
        CheckView { name, status, age_s: None, text: "no keys".to_owned() }
    }

    #[test]
    fn what_lasts_is_told_once_and_again_only_after_it_was_over() {
        let mut troubles = Troubles::default();
        let minute = |n: u64| BootTime(n * 60_000);
        let failed = [check("target/a/credentials", "failed"), check("store", "ok")];
        let told = |troubles: &mut Troubles, checks: &[CheckView], n| -> Vec<String> {
            troubles.note(checks, minute(n)).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(told(&mut troubles, &failed, 0), [""; 0]);
        assert_eq!(told(&mut troubles, &failed, 4), [""; 0]);
        let text = "target/a/credentials: no keys (for 5m)";
        assert_eq!(told(&mut troubles, &failed, 5), [text]);
        assert_eq!(told(&mut troubles, &failed, 600), [""; 0]);
        assert_eq!(told(&mut troubles, &[check("target/a/credentials", "ok")], 601), [""; 0]);
        assert_eq!(told(&mut troubles, &failed, 602), [""; 0]);
        assert_eq!(told(&mut troubles, &failed, 607), [text]);
        // An outage is given more time; one that is mended and comes back begins anew.
        let outage = [check("target/b/sweep", "degraded")];
        assert_eq!(told(&mut troubles, &outage, 700), [""; 0]);
        assert_eq!(told(&mut troubles, &outage, 729), [""; 0]);
        assert_eq!(told(&mut troubles, &[], 729), [""; 0]);
        assert_eq!(told(&mut troubles, &outage, 730), [""; 0]);
        assert_eq!(told(&mut troubles, &outage, 760).len(), 1);
    }
}
