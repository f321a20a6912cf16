//! `[hang]`: what speaks for a job that runs and does nothing any more, and what follows; and what a
//! look at the pods of an attempt shows of it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// `[hang]` of a job file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HangPolicy {
    /// Time without a new line in any log that is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_silence: Option<Duration>,
    /// Usual intervals without a new whole checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_checkpoint: Option<Times>,
    /// What is done, in this order; each on a look of its own that still shows the hang.
    pub then: Vec<HangAct>,
}

/// One act of [`HangPolicy::then`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HangAct {
    /// A person is told.
    Notify,
    /// The attempt is stopped, and once it is seen ended the job is submitted again.
    Restart,
}

impl HangAct {
    /// The words of `then`.
    pub const WORDS: [&'static str; 2] = ["notify", "restart"];

    /// The word in job files.
    pub fn word(self) -> &'static str {
        match self {
            Self::Notify => "notify",
            Self::Restart => "restart",
        }
    }

    /// The act of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Notify, Self::Restart].into_iter().find(|act| act.word() == word)
    }
}

/// A multiple such as `3x`, in hundredths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Times(pub u32);

impl Times {
    /// So many times.
    pub const fn whole(times: u32) -> Self {
        Self(times.saturating_mul(100))
    }

    /// That many times `one`.
    pub fn of(self, one: Duration) -> Duration {
        one.saturating_mul(self.0) / 100
    }

    /// Reads `3x` or `2.5x`, at most two decimal places.
    pub fn parse(text: &str) -> Option<Self> {
        let number = text.trim().strip_suffix(['x', 'X'])?.trim_end();
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || part.len() > 2 {
            return None;
        }
        let part: u32 = format!("{part:0<2}").parse().ok()?;
        Some(Self(whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(part)?))
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 100, self.0 % 100);
        match part {
            0 => write!(f, "{whole}x"),
            tenths if tenths % 10 == 0 => write!(f, "{whole}.{}x", tenths / 10),
            hundredths => write!(f, "{whole}.{hundredths:02}x"),
        }
    }
}

/// How a look at the pods of a running attempt came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PodsLook {
    /// The job does not run now: there is nothing to see, and a pass shows what became of it.
    NotRunning,
    /// It says nothing: a call failed.
    CouldNotLook {
        /// Why.
        why: String,
    },
    /// The job runs, and its pods were shown.
    Done(PodsSeen),
}

/// What was seen of the pods of a running attempt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodsSeen {
    /// Pods that were shown.
    pub all: u32,
    /// Those of them that failed or are gone while the job runs on, by their ids.
    pub lost: Vec<String>,
    /// Pods whose logs were asked for.
    pub asked: u32,
    /// One number for the end of each of these logs that has a line: another number, another end.
    pub tails: Vec<u64>,
    /// Why one of these logs says nothing, if one does.
    pub unread: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_read_as_people_write_them() {
        for (text, hundredths, shown) in [
            ("3x", 300, "3x"),
            (" 2.5X ", 250, "2.5x"),
            ("1.25 x", 125, "1.25x"),
            ("10.05x", 1005, "10.05x"),
        ] {
            let times = Times::parse(text).expect(text);
            assert_eq!((times, times.to_string().as_str()), (Times(hundredths), shown));
        }
        for text in
            ["", "x", "3", "-3x", "3xx", "1.x", ".5x", "1.234x", "３x", "3 times", "99999999x"]
        {
            assert_eq!(Times::parse(text), None, "{text}");
        }
        assert_eq!(Times(250).of(Duration::from_secs(60)), Duration::from_secs(150));
        assert_eq!(Times(u32::MAX).of(Duration::MAX), Duration::MAX / 100);
    }
}
