//! What does not work at a place now, call by call: logged once when it begins and when it ends, and
//! shown for as long as it lasts.
//!
//! What always holds: an outage is logged anew only if it becomes another kind of fault; the level
//! is that of its class. Must not decide anything: what follows from a fault is the caller's.

use crate::dlc::client::ApiError;
use crate::model::error::Class;
use crate::model::spec::Place;
use crate::model::time::BootTime;
use crate::openapi::kind::Kind;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    /// What tells one outage from the next; `None` where there was no error of the API.
    kind: Option<Kind>,
    class: Class,
    text: String,
}

impl Fault {
    /// In words, without an error behind it.
    pub(super) fn words(class: Class, text: String) -> Self {
        Self { kind: None, class, text }
    }

    fn log(&self, place: &Place, call: &'static str) {
        let (endpoint, fault) = (&place.endpoint, &self.text);
        match self.class {
            Class::Retry | Class::Wait => {
                tracing::warn!(%endpoint, call, %fault, "a call does not work; it is tried again");
            }
            Class::Operator | Class::Bug => {
                tracing::error!(%endpoint, call, %fault, "a call does not work until it is mended");
            }
        }
    }
}

impl From<&ApiError> for Fault {
    fn from(error: &ApiError) -> Self {
        Self { kind: Some(error.kind()), class: error.class(), text: error.in_full() }
    }
}

/// A fault as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) of_identity: bool,
    pub(super) needs_person: bool,
    pub(super) text: String,
}

/// Whether a kind of fault is about the keys that sign, or what they may do.
fn is_of_identity(kind: Kind) -> bool {
    match kind {
        Kind::Signature
        | Kind::Clock
        | Kind::KeyUnknown
        | Kind::Token
        | Kind::Permission
        | Kind::NoKeys => true,
        Kind::Throttled
        | Kind::NonceUsed
        | Kind::NotFound
        | Kind::Parameter
        | Kind::Misspoken
        | Kind::Service
        | Kind::UnknownCode
        | Kind::Unreadable
        | Kind::NoConnection
        | Kind::Broken
        | Kind::Unsendable => false,
    }
}

/// The calls that do not work now. Clones share them. As many entries as places and calls.
#[derive(Debug, Clone)]
pub(super) struct Outages {
    known: Arc<Mutex<Known>>,
    /// A fault that was not met again for so long is over: nobody makes that call any more.
    lasts: Arc<AtomicU64>,
}

type Known = BTreeMap<(Place, &'static str), (Fault, BootTime)>;

impl Outages {
    pub(super) fn lasting(lasts: Duration) -> Self {
        let outages = Self { known: Arc::default(), lasts: Arc::default() };
        outages.set_lasting(lasts);
        outages
    }

    pub(super) fn set_lasting(&self, lasts: Duration) {
        let ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        self.lasts.store(ms, Ordering::Relaxed);
    }

    /// Whether a fault that was met then may still be there.
    fn lasts(&self, met: BootTime, now: BootTime) -> bool {
        now.since(met) <= Duration::from_millis(self.lasts.load(Ordering::Relaxed))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `call` did not work at `place` just now.
    pub(super) fn begin(&self, place: &Place, call: &'static str, fault: Fault, now: BootTime) {
        let key = (place.clone(), call);
        let mut known = self.known();
        let before = known.get(&key).filter(|(_, at)| self.lasts(*at, now));
        if before.is_none_or(|(old, _)| (old.kind, old.class) != (fault.kind, fault.class)) {
            fault.log(place, call);
        }
        known.insert(key, (fault, now));
    }

    /// `call` works at `place`.
    pub(super) fn end(&self, place: &Place, call: &'static str) {
        if self.known().remove(&(place.clone(), call)).is_some() {
            tracing::info!(endpoint = %place.endpoint, call, "the call works again");
        }
    }

    /// Every fault at `place`: whether it is about who we are, whether a person has to mend it, and
    /// what it is in words.
    pub(super) fn all_at(&self, place: &Place, now: BootTime) -> Vec<Shown> {
        let known = self.known();
        let here = known.iter().filter(|((at, _), (_, met))| at == place && self.lasts(*met, now));
        here.map(|(_, (fault, _))| Shown {
            of_identity: fault.kind.is_some_and(is_of_identity),
            needs_person: matches!(fault.class, Class::Operator | Class::Bug),
            text: fault.text.clone(),
        })
        .collect()
    }

    /// What is wrong at `place`, in words; what needs a person first.
    pub(super) fn at(&self, place: &Place, now: BootTime) -> Option<String> {
        let known = self.known();
        let mut here: Vec<&Fault> = known
            .iter()
            .filter(|((at, _), (_, met))| at == place && self.lasts(*met, now))
            .map(|(_, (fault, _))| fault)
            .collect();
        here.sort_by_key(|fault| !matches!(fault.class, Class::Operator | Class::Bug));
        here.first().map(|fault| fault.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::CredentialsRef;

    #[test]
    fn what_needs_a_person_is_shown_first_until_it_ends_or_is_not_met_again() {
        let place = Place {
            region: "r".into(),
            workspace: "1".into(),
            endpoint: "e".into(),
            storage: None,
            credentials: CredentialsRef::Environment,
        };
        let other = Place { workspace: "2".into(), ..place.clone() };
        let outages = Outages::lasting(Duration::from_secs(10));
        let (now, later) = (BootTime(5_000), BootTime(15_001));
        let at = |place: &Place| outages.at(place, now);
        outages.begin(&place, "GetJob", Fault::words(Class::Retry, "slow".into()), now);
        assert_eq!((at(&place).as_deref(), at(&other)), (Some("slow"), None));
        outages.begin(&place, "StopJob", Fault::words(Class::Operator, "denied".into()), now);
        assert_eq!(at(&place).as_deref(), Some("denied"));
        outages.end(&place, "StopJob");
        assert_eq!(at(&place).as_deref(), Some("slow"));
        assert_eq!(outages.at(&place, later), None, "nobody has met it again");
        outages.end(&place, "GetJob");
        assert_eq!(at(&place), None);
    }
}
