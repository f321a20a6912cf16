//! Money as whole micro-yuan: no binary fractions, so `0.66` an hour is `0.011` a minute.

use serde::{Deserialize, Serialize};
use std::fmt;

/// An amount in CNY, in millionths.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
pub struct Money(pub i64);

impl Money {
    /// One whole: as a share of a price, all of it.
    pub const ONE: Self = Self(1_000_000);

    /// Parses decimal text such as `34.74`: at most 6 places, no sign, no exponent.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 6 {
            return None;
        }
        if text.contains('.') && part.is_empty() {
            return None;
        }
        let whole: i64 = whole.parse().ok()?;
        let part: i64 = format!("{part:0<6}").parse().ok()?;
        whole.checked_mul(1_000_000)?.checked_add(part).map(Self)
    }

    /// This amount for `part_ms` out of `whole_ms`, rounded down.
    #[must_use]
    pub fn share(self, part_ms: u64, whole_ms: u64) -> Self {
        let exact = i128::from(self.0) * i128::from(part_ms) / i128::from(whole_ms.max(1));
        Self(i64::try_from(exact).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Money {
    /// Plain decimal text without trailing zeros: `0.011`, `34.74`, `2000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_survive_as_written() {
        for text in ["0.011", "0.4", "34.74", "2000", "0.000001", "0"] {
            assert_eq!(Money::parse(text).expect(text).to_string(), text);
        }
        for bad in ["", ".", "1.", "-1", "1e3", "0.0000001", "1,5", " 1"] {
            assert_eq!(Money::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_hour_is_sixty_minutes_exactly() {
        let hour = Money::parse("0.66").expect("a price");
        assert_eq!(hour.share(60_000, 3_600_000).to_string(), "0.011");
    }
}
