//! The two clocks, as values. Only `service::clock` reads a clock.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A point on the calendar: milliseconds since 1970-01-01 UTC, corrected by the server's `Date`
/// where one was seen. For ages, money, deadlines and reports; never for a safety wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WallTime(pub i64);

impl WallTime {
    /// Parses the API's form, `YYYY-MM-DDTHH:MM:SSZ`; absent and empty texts are `None`.
    pub fn parse(text: &str) -> Option<Self> {
        text.trim().parse::<jiff::Timestamp>().ok().map(|t| Self(t.as_millisecond()))
    }

    /// How long ago `earlier` was; zero if it lies ahead (clocks differ; ages are never negative).
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// This time plus `duration`.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// This time less `duration`.
    #[must_use]
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl fmt::Display for WallTime {
    /// RFC 3339 in UTC, whole seconds: the API's form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0.div_euclid(1000)) {
            Ok(t) => write!(f, "{t}"),
            Err(_) => write!(f, "(time {} out of range)", self.0),
        }
    }
}

/// `CLOCK_BOOTTIME` in milliseconds: goes on while the machine sleeps, never jumps. A value of
/// one process means nothing to the next one: each safety wait starts anew with the process.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
pub struct BootTime(pub u64);

impl BootTime {
    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This time plus `duration`.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// Both clocks, read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Calendar time.
    pub wall: WallTime,
    /// Time for safety waits.
    pub boot: BootTime,
}

/// A duration for people: one or two units (`4m`, `2h11m`, `3d4h`).
pub fn human(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0 if duration.as_millis() > 0 => format!("{}ms", duration.as_millis()),
        0..60 => format!("{s}s"),
        60..3600 if s.is_multiple_of(60) || s >= 600 => format!("{}m", s / 60),
        60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        3600..86_400 if s % 3600 < 60 => format!("{}h", s / 3600),
        3600..86_400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        _ => format!("{}d{}h", s / 86_400, s % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_form_is_read_and_written() {
        let t = WallTime::parse("2026-11-30T08:10:18Z").expect("a valid time");
        assert_eq!(t.to_string(), "2026-11-30T08:10:18Z");
        assert_eq!(WallTime::parse(""), None);
        assert_eq!(WallTime::parse("11-30 08:10"), None);
    }

    #[test]
    fn ages_are_never_negative() {
        assert_eq!(WallTime(5).since(WallTime(9)), Duration::ZERO);
        assert_eq!(BootTime(5).since(BootTime(9)), Duration::ZERO);
        assert_eq!(WallTime(9_000).since(WallTime(5_000)), Duration::from_secs(4));
    }

    #[test]
    fn people_read_one_or_two_units() {
        for (s, text) in [
            (4, "4s"),
            (61, "1m01s"),
            (240, "4m"),
            (7860, "2h11m"),
            (3600, "1h"),
            (273_600, "3d4h"),
        ] {
            assert_eq!(human(Duration::from_secs(s)), text);
        }
    }
}
