//! Holds temporary keys and renews them in time.
//!
//! What always holds: many callers, one fetch; a caller gets one whole triple, never parts of two;
//! keys that still work are used while their renewal fails, and that is told once. Held keys belong
//! to the plan they were got by: when a file names another source, that one is asked.

use super::plan::{Plan, plan};
use super::source::Source;
use super::{Credentials, CredentialsError, Surroundings};
use crate::model::spec::{Commands, CredentialsRef};
use crate::model::time::WallTime;
use crate::openapi::error::whole;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Temporary keys are renewed this long before they end; those with a short life, a third of it.
pub const RENEW_EARLY: Duration = Duration::from_mins(15);
/// After a failed fetch the next one comes no sooner; meanwhile the answer stands.
pub const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// How long keys without an end are held that took a server or a command to get.
const UNDATED_HOLD: Duration = Duration::from_mins(1);

/// Keys, and what is known of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The keys.
    pub keys: Credentials,
    /// Which provider gave them, in words for people: `environment`, `credentials file /etc/…`.
    pub provider: String,
    /// When they end; `None` for keys that do not, or do not say.
    pub expires: Option<WallTime>,
}

/// Keys that cannot be renewed, and are used until they end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// Whose keys.
    pub reference: CredentialsRef,
    /// Which provider gave them.
    pub provider: String,
    /// When the first renewal failed.
    pub since: WallTime,
    /// When the keys end.
    pub until: Option<WallTime>,
    /// Why the last renewal failed.
    pub why: String,
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "keys of {} cannot be renewed since {}", self.provider, self.since)?;
        if let Some(until) = self.until {
            write!(f, " and end at {until}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// Where every call of this process gets its keys. Clones share what is held.
#[derive(Debug, Clone)]
pub struct Keychain {
    around: Arc<Surroundings>,
    /// One a reference. References come from the daemon file and from stored places.
    slots: Arc<Mutex<BTreeMap<CredentialsRef, Arc<Slot>>>>,
}

impl Default for Keychain {
    /// The keychain of this process; no profile may run a command.
    fn default() -> Self {
        Self::of_this_process(Commands::Refused)
    }
}

impl Keychain {
    /// The keychain of this process.
    pub fn of_this_process(commands: Commands) -> Self {
        Self::with(Surroundings::of_this_process(commands))
    }

    /// A keychain in these surroundings.
    pub fn with(around: Surroundings) -> Self {
        Self { around: Arc::new(around), slots: Arc::default() }
    }

    /// The keys that `reference` points to, at `now`.
    ///
    /// # Errors
    /// No provider has keys, and none are held that still work.
    pub async fn keys(
        &self,
        reference: &CredentialsRef,
        now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let slot = Arc::clone(lock(&self.slots).entry(reference.clone()).or_default());
        let plan = match self.plan(reference).await {
            Ok(plan) => plan,
            Err(error) => return lock(&slot.state).failed(reference, error, now),
        };
        if let Some(answer) = lock(&slot.state).at_hand(&plan, now) {
            return answer;
        }
        let _flight = if let Ok(flight) = slot.flight.try_lock() {
            flight
        } else {
            // Somebody is asking. Whoever has keys that work need not wait for the answer.
            if let Some(held) = lock(&slot.state).working(now) {
                return Ok(held);
            }
            slot.flight.lock().await
        };
        if let Some(answer) = lock(&slot.state).at_hand(&plan, now) {
            return answer;
        }
        let asked = lock(&slot.state).to_ask(&plan, now);
        match fetch(&asked, now).await {
            Ok((source, held)) => {
                lock(&slot.state).renewed(Lease::new(plan, source, held.clone(), now));
                Ok(held)
            }
            Err(error) => {
                let error = Arc::new(error);
                let mut state = lock(&slot.state);
                state.failure = Some(Failure { plan, at: now, error: Arc::clone(&error) });
                state.failed(reference, CredentialsError::Again(error), now)
            }
        }
    }

    /// Every renewal that fails now while there are, or were, keys that work.
    pub fn troubles(&self) -> Vec<Trouble> {
        let slots: Vec<_> = lock(&self.slots).values().cloned().collect();
        slots.iter().filter_map(|slot| lock(&slot.state).trouble.clone()).collect()
    }

    async fn plan(&self, reference: &CredentialsRef) -> Result<Plan, CredentialsError> {
        let (reference, around) = (reference.clone(), Arc::clone(&self.around));
        let read = tokio::task::spawn_blocking(move || plan(&reference, &around));
        read.await.map_err(|_| CredentialsError::Ending)?
    }
}

/// Asks the sources of `plan`.
async fn fetch(plan: &Plan, now: WallTime) -> Result<(Source, Held), CredentialsError> {
    let mut tried = plan.passed.clone();
    if let Some(source) = &plan.maybe {
        match source.fetch(now).await {
            Ok(held) => return Ok((source.clone(), held)),
            Err(error) if error.says_not_there() => tried.push(whole(&error)),
            Err(error) => return Err(error),
        }
    }
    match &plan.sure {
        Some(source) => Ok((source.clone(), source.fetch(now).await?)),
        None => Err(CredentialsError::Chain { tried: tried.join("; ") }),
    }
}

/// What is held for one reference.
#[derive(Debug, Default)]
struct Slot {
    /// Taken by the one caller that asks.
    flight: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    lease: Option<Lease>,
    failure: Option<Failure>,
    trouble: Option<Trouble>,
}

/// Keys that are held.
#[derive(Debug)]
struct Lease {
    plan: Plan,
    source: Source,
    held: Held,
    renew_at: WallTime,
}

/// The last fetch, if it failed.
#[derive(Debug)]
struct Failure {
    plan: Plan,
    at: WallTime,
    error: Arc<CredentialsError>,
}

impl Lease {
    fn new(plan: Plan, source: Source, held: Held, now: WallTime) -> Self {
        let renew_at = match held.expires {
            Some(expires) => expires.minus(RENEW_EARLY.min(expires.since(now) / 3)),
            None => now.plus(UNDATED_HOLD),
        };
        Self { plan, source, held, renew_at }
    }

    fn works(&self, now: WallTime) -> bool {
        self.held.expires.is_none_or(|expires| now < expires)
    }
}

impl State {
    /// What can be answered without asking anybody.
    fn at_hand(&self, plan: &Plan, now: WallTime) -> Option<Result<Held, CredentialsError>> {
        if let Some(lease) = self.lease.as_ref().filter(|l| l.plan == *plan)
            && now < lease.renew_at
        {
            return Some(Ok(lease.held.clone()));
        }
        let failure = self.failure.as_ref().filter(|f| f.plan == *plan)?;
        // Both ways: the clock may have been set back meanwhile.
        let pause = now.since(failure.at).max(failure.at.since(now));
        if pause >= RETRY_PAUSE {
            return None;
        }
        let again = || CredentialsError::Again(Arc::clone(&failure.error));
        Some(self.working(now).ok_or_else(again))
    }

    /// Held keys that have not ended.
    fn working(&self, now: WallTime) -> Option<Held> {
        self.lease.as_ref().filter(|lease| lease.works(now)).map(|lease| lease.held.clone())
    }

    /// Whom to ask: while keys work, only the source that gave them, so that a short outage of it
    /// does not change whose keys they are.
    fn to_ask(&self, plan: &Plan, now: WallTime) -> Plan {
        match self.lease.as_ref().filter(|lease| lease.plan == *plan && lease.works(now)) {
            Some(lease) => Plan::of(lease.source.clone()),
            None => plan.clone(),
        }
    }

    fn renewed(&mut self, lease: Lease) {
        if let Some(trouble) = self.trouble.take() {
            let provider = lease.held.provider.as_str();
            tracing::info!(provider, since = %trouble.since, "keys are renewed again");
        }
        self.failure = None;
        self.lease = (!lease.source.is_at_hand()).then_some(lease);
    }

    /// After a look or a fetch that failed: the old keys, as long as they work.
    fn failed(
        &mut self,
        reference: &CredentialsRef,
        error: CredentialsError,
        now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let Some(held) = self.working(now) else { return Err(error) };
        let why = whole(&error);
        if let Some(trouble) = &mut self.trouble {
            trouble.why = why;
            return Ok(held);
        }
        let until = held.expires.map_or_else(|| "they are refused".to_owned(), |t| t.to_string());
        let provider = held.provider.as_str();
        tracing::warn!(provider, why, until, "keys cannot be renewed; the old ones are used on");
        self.trouble = Some(Trouble {
            reference: reference.clone(),
            provider: held.provider.clone(),
            since: now,
            until: held.expires,
            why,
        });
        Ok(held)
    }
}

/// What a panicking thread left is whole: every change is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
