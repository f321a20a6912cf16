//! Durations as people write them: `15m`, `1h 30m`, `1.5h`, `2 days`.

use std::time::Duration;

/// The longest duration that a file may ask for.
pub const LONGEST: Duration = Duration::from_hours(3650 * 24);

/// Why a text is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A number without a unit.
    NoUnit,
    /// Something else than numbers and units.
    Unreadable,
    /// More than [`LONGEST`].
    TooLong,
}

/// Reads a duration. Each number has a unit; parts are added.
pub fn parse(text: &str) -> Result<Duration, Fault> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(Fault::Unreadable);
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if number.is_empty() {
            return Err(Fault::Unreadable);
        }
        if unit.is_empty() {
            return Err(Fault::NoUnit);
        }
        let unit = unit_ms(unit).ok_or(Fault::Unreadable)?;
        total += part_ms(number, unit)?;
        if total > LONGEST.as_millis() {
            return Err(Fault::TooLong);
        }
        rest = after.trim_start();
    }
    Ok(Duration::from_millis(u64::try_from(total).map_err(|_| Fault::TooLong)?))
}

fn unit_ms(unit: &str) -> Option<u128> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "ms" => 1,
        "s" | "sec" | "secs" | "second" | "seconds" => 1_000,
        "m" | "min" | "mins" | "minute" | "minutes" => 60_000,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000,
        "d" | "day" | "days" => 86_400_000,
        _ => return None,
    })
}

fn part_ms(number: &str, unit: u128) -> Result<u128, Fault> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || part.is_empty() || part.contains('.') || part.len() > 6 {
        return Err(Fault::Unreadable);
    }
    let whole: u128 = whole.parse::<u64>().map_err(|_| Fault::TooLong)?.into();
    let part: u128 = format!("{part:0<6}").parse::<u64>().map_err(|_| Fault::Unreadable)?.into();
    Ok(whole * unit + part * unit / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_durations_in_many_ways() {
        for (text, ms) in [
            ("15m", 900_000),
            ("1h 30m", 5_400_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            ("2 days", 172_800_000),
            ("90 s", 90_000),
            ("250ms", 250),
            ("0s", 0),
            (" 24H ", 86_400_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_says_why() {
        for (text, fault) in [
            ("15", Fault::NoUnit),
            ("1h 30", Fault::NoUnit),
            ("", Fault::Unreadable),
            ("h", Fault::Unreadable),
            ("-1h", Fault::Unreadable),
            ("1.h", Fault::Unreadable),
            ("1.2.3h", Fault::Unreadable),
            ("3x", Fault::Unreadable),
            ("soon", Fault::Unreadable),
            ("１h", Fault::Unreadable),
            ("99999999999999999999h", Fault::TooLong),
            ("18446744073709551615d", Fault::TooLong),
            ("4000d", Fault::TooLong),
        ] {
            assert_eq!(parse(text), Err(fault), "{text}");
        }
    }
}
