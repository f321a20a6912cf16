//! What is told to people outside: an alert, and the channels that the daemon file names for it.

use super::time::WallTime;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// Letters of an alert's text that are kept.
pub const TEXT_LIMIT: usize = 1_000;

/// One thing that is told, as it waits in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// Never used twice: a receiver that sees it again has it already.
    pub id: String,
    /// When it happened.
    pub at: WallTime,
    /// The job; empty for a summary of all.
    pub job: String,
    /// Its run; 0 for a summary.
    pub run: u32,
    /// The attempt, if it is about one.
    pub attempt: Option<u32>,
    /// The event's word, or [`SUMMARY`].
    pub word: String,
    /// A sentence, or the whole summary.
    pub text: String,
    /// Step of the job's newest whole checkpoint at that time.
    #[serde(default)]
    pub step: Option<u64>,
}

/// The word of a summary.
pub const SUMMARY: &str = "SUMMARY";
/// The word of what `spotkeeper alert test` sends.
pub const TEST: &str = "TEST";

/// The words between braces that the template of a webhook may hold.
pub const PLACEHOLDERS: [&str; 9] =
    ["id", "title", "text", "job", "run", "event", "count", "first_at", "last_at"];

/// A way to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Its name in the daemon file.
    pub name: String,
    /// How it is reached.
    pub way: Way,
    /// Patterns of the jobs that it is told of, `*` for any text.
    pub jobs: Vec<String>,
    /// Words of the events that it is told of.
    pub events: Vec<String>,
    /// Repeats of one cause within this time after a message wait, and become one message.
    pub fold: Duration,
    /// When nothing is sent.
    pub quiet: Option<Quiet>,
    /// When the daily summary is made, in minutes after midnight.
    pub summary: Option<u16>,
    /// Where its clock times count.
    pub zone: TimeZone,
}

/// A part of the day, in minutes after midnight; one that begins later than it ends goes over
/// midnight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quiet {
    /// From this minute on.
    pub from: u16,
    /// Until before this one.
    pub until: u16,
}

/// How a channel is reached. Addresses hold tokens: they stand elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    /// A POST of JSON, signed as Standard Webhooks says.
    Webhook {
        /// Its address.
        url: SecretRef,
        /// The key of the signature; none, and nothing is signed.
        secret: Option<SecretRef>,
        /// The body, with placeholders; none is spotkeeper's own.
        template: Option<String>,
    },
    /// A robot of a DingTalk group.
    DingTalk {
        /// Its address.
        url: SecretRef,
        /// Its key, where it asks for signatures.
        secret: Option<SecretRef>,
    },
    /// A bot of a Feishu or Lark group.
    Feishu {
        /// Its address.
        url: SecretRef,
        /// Its key, where it asks for signatures.
        secret: Option<SecretRef>,
    },
    /// A robot of a WeCom group.
    WeCom {
        /// Its address.
        url: SecretRef,
    },
    /// An incoming webhook of Slack.
    Slack {
        /// Its address.
        url: SecretRef,
    },
    /// Mail through a program on this machine.
    Mail {
        /// The program, spoken to as to sendmail.
        program: PathBuf,
        /// Who gets it.
        to: Vec<String>,
        /// Who sends it; none is the program's choice.
        from: Option<String>,
    },
}

impl Way {
    /// The word of the daemon file.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::DingTalk { .. } => "dingtalk",
            Self::Feishu { .. } => "feishu",
            Self::WeCom { .. } => "wecom",
            Self::Slack { .. } => "slack",
            Self::Mail { .. } => "mail",
        }
    }
}

/// Where a secret stands. It is read when it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretRef {
    /// A file.
    File(PathBuf),
    /// A credential that systemd passes on.
    Systemd(String),
    /// A variable of the daemon's environment.
    Environment(String),
}

impl Channel {
    /// Whether it is told of this event of this job.
    pub fn wants(&self, job: &str, word: &str) -> bool {
        self.events.iter().any(|event| event == word) && self.is_for(job)
    }

    /// Whether it is told of this job.
    pub fn is_for(&self, job: &str) -> bool {
        self.jobs.iter().any(|pattern| fits(pattern, job))
    }
}

impl Quiet {
    /// Whether this minute of the day is in it.
    pub fn holds(self, minute: u16) -> bool {
        if self.from <= self.until {
            (self.from..self.until).contains(&minute)
        } else {
            minute >= self.from || minute < self.until
        }
    }
}

/// Whether `text` is of the form `pattern`, in which `*` stands for any text.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fit) in [
            ("*", "", true),
            ("*", "llama", true),
            ("llama*", "llama8b", true),
            ("llama*", "alpaca", false),
            ("*-dpo", "qwen-dpo", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("ab", "abc", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(fits(pattern, text), fit, "{pattern} {text}");
        }
    }

    #[test]
    fn quiet_hours_go_over_midnight() {
        let night = Quiet { from: 22 * 60, until: 8 * 60 };
        for (minute, quiet) in [(22 * 60 - 1, false), (22 * 60, true), (0, true), (8 * 60, false)] {
            assert_eq!(night.holds(minute), quiet, "{minute}");
        }
        let noon = Quiet { from: 12 * 60, until: 13 * 60 };
        assert!(noon.holds(750) && !noon.holds(780) && !noon.holds(0));
        assert!(!Quiet { from: 60, until: 60 }.holds(60));
    }
}
