//! How a release looks from outside.
//!
//! Nobody has published what PAI-DLC really says when it takes a spot machine back, so each way
//! in which it might is one variant here; the default tells the least. A further dialect is a
//! further variant: every property of a dialect is a match below.

use super::random::Random;
use std::str::FromStr;
use std::time::Duration;

/// One way to tell, or not to tell, that a machine was taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SIGKILL; Failed, `JobFailed`, exit code 137, pods `Normal`, no event.
    Plain,
    /// SIGKILL; Failed, pods `Evicted`, the message says so.
    Evicted,
    /// TERM and a time of grace: a trainer that ends with 0 makes the job Succeeded.
    SucceededAfterTerm,
}

/// How the processes of a released job are brought to their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// SIGKILL to each pod's process group, without a word.
    Kill,
    /// SIGTERM to each pod's first process, then SIGKILL to the group.
    TermThenKill,
}

/// What a pod that was taken away shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodTrace {
    /// `SubStatus`.
    pub sub_status: &'static str,
    /// What `ReasonMessage` says instead of the exit code; `None` is the exit code.
    pub reason: Option<&'static str>,
    /// Whether the last entry of `StatusHistory` repeats code and message.
    pub in_history: bool,
}

impl Dialect {
    /// All of them, in the order in which a seed picks.
    pub const ALL: [Self; 3] = [Self::Plain, Self::Evicted, Self::SucceededAfterTerm];

    /// Its name on the command line and in the ledger.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Evicted => "evicted",
            Self::SucceededAfterTerm => "succeeded-after-term",
        }
    }

    /// How the processes end.
    pub fn farewell(self) -> Farewell {
        match self {
            Self::Plain | Self::Evicted => Farewell::Kill,
            Self::SucceededAfterTerm => Farewell::TermThenKill,
        }
    }

    /// What a pod that ended badly shows.
    pub fn pod_trace(self) -> PodTrace {
        match self {
            Self::Plain | Self::SucceededAfterTerm => {
                PodTrace { sub_status: "Normal", reason: None, in_history: false }
            }
            Self::Evicted => {
                PodTrace { sub_status: "Evicted", reason: Some("Evicted"), in_history: true }
            }
        }
    }

    /// Whether job and pod events speak of the release.
    pub fn event(self) -> Option<&'static str> {
        match self {
            Self::Plain | Self::SucceededAfterTerm => None,
            Self::Evicted => Some("Warning Evicted The node was reclaimed, pod is evicted"),
        }
    }
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, UnknownDialect> {
        Self::ALL
            .into_iter()
            .find(|dialect| dialect.word() == text)
            .ok_or_else(|| UnknownDialect(text.to_owned()))
    }
}

/// Which dialect a release speaks.
#[derive(Debug, Clone)]
pub enum DialectChoice {
    /// Always the same.
    Fixed(Dialect),
    /// One for each release, in the order of a seed.
    Seeded(Random),
}

impl DialectChoice {
    /// The dialect of the next release.
    pub fn pick(&mut self) -> Dialect {
        match self {
            Self::Fixed(dialect) => *dialect,
            Self::Seeded(random) => {
                let count = u64::try_from(Dialect::ALL.len()).unwrap_or(1);
                let at = usize::try_from(random.below(count)).unwrap_or(0);
                Dialect::ALL[at]
            }
        }
    }
}

impl FromStr for DialectChoice {
    type Err = UnknownDialect;

    fn from_str(text: &str) -> Result<Self, UnknownDialect> {
        match text.strip_prefix("seed:") {
            Some(seed) => seed
                .parse()
                .map(|seed| Self::Seeded(Random::new(seed)))
                .map_err(|_| UnknownDialect(text.to_owned())),
            None => text.parse().map(Self::Fixed),
        }
    }
}

/// A text that names no dialect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown release dialect `{0}`: plain, evicted, succeeded-after-term, or seed:N with a number"
)]
pub struct UnknownDialect(pub String);

/// Longest `--grace`.
pub const GRACE_LIMIT: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_speaks_every_dialect_and_the_same_ones_again() {
        let pick = || {
            let mut choice: DialectChoice = "seed:1".parse().expect("a choice");
            (0..50).map(|_| choice.pick().word()).collect::<Vec<_>>()
        };
        assert_eq!(pick(), pick());
        for dialect in Dialect::ALL {
            assert!(pick().contains(&dialect.word()), "{dialect:?}");
        }
    }

    #[test]
    fn an_unknown_word_is_an_error_that_names_the_known_ones() {
        for dialect in Dialect::ALL {
            let error = "nope".parse::<DialectChoice>().expect_err("unknown").to_string();
            assert!(error.contains(dialect.word()), "{error}");
        }
        assert!("seed:x".parse::<DialectChoice>().is_err());
    }
}
