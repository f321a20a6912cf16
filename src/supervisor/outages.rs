//! What does not work at a place now, call by call: logged once when it begins and when it ends, and
//! shown for as long as it lasts.
//!
//! What always holds: an outage is logged anew only if it becomes another kind of fault; the level
//! is that of its class. Must not decide anything: what follows from a fault is the caller's.

use crate::dlc::client::ApiError;
use crate::model::error::Class;
use crate::model::spec::Place;
use crate::openapi::kind::Kind;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

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
}

impl From<&ApiError> for Fault {
    fn from(error: &ApiError) -> Self {
        Self { kind: Some(error.kind()), class: error.class(), text: error.in_full() }
    }
}

/// The calls that do not work now. Clones share them. As many entries as places and calls.
#[derive(Debug, Clone, Default)]
pub(super) struct Outages(Arc<Mutex<BTreeMap<(Place, &'static str), Fault>>>);

impl Outages {
    /// `call` does not work at `place`.
    pub(super) fn begin(&self, place: &Place, call: &'static str, fault: Fault) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.insert((place.clone(), call), fault.clone());
        if before.is_some_and(|before| (before.kind, before.class) == (fault.kind, fault.class)) {
            return;
        }
        let (endpoint, fault_text) = (&place.endpoint, &fault.text);
        match fault.class {
            Class::Retry | Class::Wait => {
                tracing::warn!(%endpoint, call, fault = %fault_text, "a call does not work; it is tried again");
            }
            Class::Operator | Class::Bug => {
                tracing::error!(%endpoint, call, fault = %fault_text, "a call does not work until somebody mends it");
            }
        }
    }

    /// `call` works at `place`.
    pub(super) fn end(&self, place: &Place, call: &'static str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.remove(&(place.clone(), call)).is_some() {
            tracing::info!(endpoint = %place.endpoint, call, "the call works again");
        }
    }

    /// What is wrong at `place`, in words; what needs a person first.
    pub(super) fn at(&self, place: &Place) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut here: Vec<&Fault> =
            known.iter().filter(|((at, _), _)| at == place).map(|(_, fault)| fault).collect();
        here.sort_by_key(|fault| !matches!(fault.class, Class::Operator | Class::Bug));
        here.first().map(|fault| fault.text.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::CredentialsRef;

    #[test]
    fn what_needs_a_person_is_shown_first_and_an_end_is_an_end() {
        let place = Place {
            region: "r".into(),
            workspace: "1".into(),
            endpoint: "e".into(),
            storage: None,
            credentials: CredentialsRef::Environment,
        };
        let other = Place { workspace: "2".into(), ..place.clone() };
        let outages = Outages::default();
        outages.begin(&place, "GetJob", Fault::words(Class::Retry, "slow".into()));
        assert_eq!((outages.at(&place).as_deref(), outages.at(&other)), (Some("slow"), None));
        outages.begin(&place, "StopJob", Fault::words(Class::Operator, "denied".into()));
        assert_eq!(outages.at(&place).as_deref(), Some("denied"));
        outages.end(&place, "StopJob");
        assert_eq!(outages.at(&place).as_deref(), Some("slow"));
        outages.end(&place, "GetJob");
        assert_eq!(outages.at(&place), None);
    }
}
