//! The query of one call: each parameter read by its kind, and refused in words that name it.

use crate::emulator::gateway::parse_query;
use crate::emulator::job::Moment;
use crate::emulator::world::CallError;
use crate::model::time::WallTime;
use std::time::Duration;

/// Things on one page at most; more that are asked for are not given.
pub const PAGE_SIZE_LIMIT: usize = 100;
/// Things on a page when nothing is asked for.
const PAGE_SIZE_DEFAULT: usize = 10;
/// How far back a search without times goes.
pub const DEFAULT_WINDOW: Duration = Duration::from_hours(7 * 24);

/// A parameter that is wrong.
pub fn wrong(why: impl Into<String>) -> CallError {
    CallError::InvalidParameter(why.into())
}

/// The decoded pairs of a query. A parameter without a value counts as not given.
#[derive(Debug, Clone)]
pub struct Query(Vec<(String, String)>);

/// Which way a list goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Smallest first.
    Ascending,
    /// Largest first.
    Descending,
}

/// One page of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    /// From 1.
    pub number: usize,
    /// Things on it.
    pub size: usize,
}

/// A span of time, both ends in it.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    /// Its beginning.
    pub from: WallTime,
    /// Its end.
    pub until: WallTime,
}

impl Window {
    /// Whether a moment lies in it.
    pub fn holds(&self, wall: WallTime) -> bool {
        wall >= self.from && wall <= self.until
    }
}

impl Page {
    /// The things of this page, and how many there are in all.
    pub fn cut<T>(&self, all: Vec<T>) -> (Vec<T>, usize) {
        let total = all.len();
        let first = (self.number - 1).saturating_mul(self.size);
        (all.into_iter().skip(first).take(self.size).collect(), total)
    }
}

impl Order {
    /// Turns an ascending comparison into the one asked for.
    pub fn apply(self, ascending: std::cmp::Ordering) -> std::cmp::Ordering {
        match self {
            Self::Ascending => ascending,
            Self::Descending => ascending.reverse(),
        }
    }
}

impl Query {
    /// Reads a query as sent, without `?`.
    pub fn read(text: &str) -> Self {
        Self(parse_query(text))
    }

    /// A parameter's text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, v)| n == name && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// A parameter that must be there.
    ///
    /// # Errors
    /// [`CallError::InvalidParameter`], like all that follow.
    pub fn required(&self, name: &str) -> Result<&str, CallError> {
        self.text(name).ok_or_else(|| wrong(format!("{name}: is required")))
    }

    /// One of several words.
    ///
    /// # Errors
    /// A text that is none of them.
    pub fn word(&self, name: &str, words: &[&str]) -> Result<Option<&str>, CallError> {
        match self.text(name) {
            Some(text) if !words.contains(&text) => {
                Err(wrong(format!("{name}: {text} is none of {}", words.join(", "))))
            }
            found => Ok(found),
        }
    }

    /// Booleans come as `true` from typed clients and as `True` from the Python SDK.
    ///
    /// # Errors
    /// A text that is neither.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, CallError> {
        match self.text(name) {
            None => Ok(None),
            Some(text) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(text) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(text) => Err(wrong(format!("{name}: {text} is neither true nor false"))),
        }
    }

    /// A whole number, at least `least`.
    ///
    /// # Errors
    /// A text that is none.
    pub fn number(&self, name: &str, least: usize) -> Result<Option<usize>, CallError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match text.parse().ok().filter(|number| *number >= least) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong(format!("{name}: {text} is no whole number from {least}"))),
        }
    }

    /// A calendar time.
    ///
    /// # Errors
    /// A text that is none.
    pub fn time(&self, name: &str) -> Result<Option<WallTime>, CallError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        match WallTime::parse(text) {
            Some(wall) => Ok(Some(wall)),
            None => Err(wrong(format!("{name}: {text} is not YYYY-MM-DDTHH:MM:SSZ"))),
        }
    }

    /// `StartTime` to `EndTime`: without an end up to now, without a start `back` from the end.
    ///
    /// # Errors
    /// Texts that are no times, or a start after the end.
    pub fn window(&self, now: Moment, back: Duration) -> Result<Window, CallError> {
        let until = self.time("EndTime")?;
        let start = self.time("StartTime")?;
        let from = start.unwrap_or_else(|| until.map_or(now.wall, |u| u.min(now.wall)).minus(back));
        // What happens in this very moment is not left out.
        let window = Window { from, until: until.unwrap_or(WallTime(i64::MAX)) };
        if window.from > window.until {
            return Err(wrong("StartTime: is after EndTime"));
        }
        Ok(window)
    }

    /// `Order`, or the one that holds without it.
    ///
    /// # Errors
    /// A word that is neither.
    pub fn order(&self, without: Order) -> Result<Order, CallError> {
        match self.text("Order") {
            None => Ok(without),
            Some(text) if text.eq_ignore_ascii_case("desc") => Ok(Order::Descending),
            Some(text) if text.eq_ignore_ascii_case("asc") => Ok(Order::Ascending),
            Some(text) => Err(wrong(format!("Order: {text} is neither asc nor desc"))),
        }
    }

    /// `PageNumber` and `PageSize`.
    ///
    /// # Errors
    /// Texts that are no numbers from 1.
    pub fn page(&self) -> Result<Page, CallError> {
        let size = self.number("PageSize", 1)?.unwrap_or(PAGE_SIZE_DEFAULT);
        let number = self.number("PageNumber", 1)?.unwrap_or(1);
        Ok(Page { number, size: size.min(PAGE_SIZE_LIMIT) })
    }

    /// The items of a comma list.
    pub fn list(&self, name: &str) -> Option<Vec<&str>> {
        Some(self.text(name)?.split(',').map(str::trim).filter(|item| !item.is_empty()).collect())
    }
}
