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
    /// TERM and a time of grace; as plain, with exit code 143 whatever the trainer ends with.
    Exit143,
    /// SIGKILL; Failed, without code and message.
    EmptyReason,
    /// SIGKILL; Failed, and the JSON in the message says what happened.
    JsonMessage,
    /// SIGKILL; Failed, pods `Evicted`, the message says so.
    Evicted,
    /// SIGKILL; Stopped, without `Stopping` before, code or message.
    StoppedWithoutCode,
    /// TERM and a time of grace: a trainer that ends with 0 makes the job Succeeded.
    SucceededAfterTerm,
    /// One pod is gone without an exit code, the others end with 1.
    OnePodGone,
    /// SIGKILL; the platform runs the command again under the same `JobId`.
    RestartingInPlace,
    /// SIGKILL; as plain, with all texts in Chinese.
    Chinese,
}

/// How the processes of a released job are brought to their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// SIGKILL to each pod's process group, without a word.
    Kill,
    /// SIGTERM to each pod's first process, then SIGKILL to the group.
    TermThenKill,
    /// SIGKILL to the one pod whose machine is gone; the others get SIGTERM, then SIGKILL.
    KillOne,
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

/// What `ReasonCode` and `ReasonMessage` of a job hold that was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// `JobFailed` and the JSON text of a failure.
    English,
    /// The same in Chinese.
    Chinese,
    /// Nothing.
    None,
}

/// The end that a release leads to when its exit codes are not those of a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastWord {
    /// `Failed`.
    Failed,
    /// `Stopped`.
    Stopped,
    /// None: it is restarted, even where the job does not ask for that.
    Restart,
}

impl Dialect {
    /// All of them, in the order in which a seed picks.
    pub const ALL: [Self; 10] = [
        Self::Plain,
        Self::Exit143,
        Self::EmptyReason,
        Self::JsonMessage,
        Self::Evicted,
        Self::StoppedWithoutCode,
        Self::SucceededAfterTerm,
        Self::OnePodGone,
        Self::RestartingInPlace,
        Self::Chinese,
    ];

    /// Its name on the command line and in the ledger.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Exit143 => "exit-143",
            Self::EmptyReason => "empty-reason",
            Self::JsonMessage => "json-message",
            Self::Evicted => "evicted",
            Self::StoppedWithoutCode => "stopped-without-code",
            Self::SucceededAfterTerm => "succeeded-after-term",
            Self::OnePodGone => "one-pod-gone",
            Self::RestartingInPlace => "restarting-in-place",
            Self::Chinese => "chinese",
        }
    }

    /// How the processes end.
    pub fn farewell(self) -> Farewell {
        match self {
            Self::Plain
            | Self::EmptyReason
            | Self::JsonMessage
            | Self::Evicted
            | Self::StoppedWithoutCode
            | Self::RestartingInPlace
            | Self::Chinese => Farewell::Kill,
            Self::Exit143 | Self::SucceededAfterTerm => Farewell::TermThenKill,
            Self::OnePodGone => Farewell::KillOne,
        }
    }

    /// What a pod that ended badly shows.
    pub fn pod_trace(self) -> PodTrace {
        let (sub_status, reason, in_history) = match self {
            Self::Plain
            | Self::Exit143
            | Self::EmptyReason
            | Self::StoppedWithoutCode
            | Self::SucceededAfterTerm
            | Self::RestartingInPlace => ("Normal", None, false),
            Self::JsonMessage => ("Normal", Some(PREEMPTED), true),
            Self::Evicted => ("Evicted", Some("Evicted"), true),
            Self::OnePodGone => ("Normal", None, true),
            Self::Chinese => ("Normal", Some(PREEMPTED_IN_CHINESE), true),
        };
        PodTrace { sub_status, reason, in_history }
    }

    /// What code and message tell.
    pub fn words(self) -> Words {
        match self {
            Self::Plain
            | Self::Exit143
            | Self::JsonMessage
            | Self::Evicted
            | Self::SucceededAfterTerm
            | Self::OnePodGone
            | Self::RestartingInPlace => Words::English,
            Self::Chinese => Words::Chinese,
            Self::EmptyReason | Self::StoppedWithoutCode => Words::None,
        }
    }

    /// What becomes of the job.
    pub fn last_word(self) -> LastWord {
        match self {
            Self::Plain
            | Self::Exit143
            | Self::EmptyReason
            | Self::JsonMessage
            | Self::Evicted
            | Self::SucceededAfterTerm
            | Self::OnePodGone
            | Self::Chinese => LastWord::Failed,
            Self::StoppedWithoutCode => LastWord::Stopped,
            Self::RestartingInPlace => LastWord::Restart,
        }
    }

    /// The exit code that is shown of pod `at` of `count`, which ended with `exit`; `None` is a pod
    /// that is gone together with its machine.
    pub fn shown_exit(self, at: usize, count: usize, exit: i32) -> Option<i32> {
        match self {
            Self::Plain
            | Self::EmptyReason
            | Self::JsonMessage
            | Self::Evicted
            | Self::StoppedWithoutCode
            | Self::SucceededAfterTerm
            | Self::RestartingInPlace
            | Self::Chinese => Some(exit),
            Self::Exit143 => Some(143),
            Self::OnePodGone if at == gone(count) => None,
            // A rank that lost its peer ends by itself, never well and never by a signal.
            Self::OnePodGone if (1..128).contains(&exit) => Some(exit),
            Self::OnePodGone => Some(1),
        }
    }

    /// Whether job and pod events speak of the release.
    pub fn event(self) -> Option<&'static str> {
        match self {
            Self::Plain
            | Self::Exit143
            | Self::EmptyReason
            | Self::JsonMessage
            | Self::StoppedWithoutCode
            | Self::SucceededAfterTerm
            | Self::OnePodGone
            | Self::RestartingInPlace => None,
            Self::Evicted => Some("Warning Evicted The node was reclaimed, pod is evicted"),
            Self::Chinese => Some("Warning SpotReleased 抢占式实例已被回收,容器组被终止"),
        }
    }
}

/// The pod of `count` whose machine is taken back where only one is.
pub fn gone(count: usize) -> usize {
    count / 2
}

/// The reason that a talkative message names.
const PREEMPTED: &str = "Preempted: the spot instance was released";
/// The same in Chinese.
const PREEMPTED_IN_CHINESE: &str = "抢占式实例已被回收";

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
    "unknown release dialect `{0}`: {words}, or seed:N with a number",
    words = Dialect::ALL.map(Dialect::word).join(", ")
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
            (0..200).map(|_| choice.pick().word()).collect::<Vec<_>>()
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
