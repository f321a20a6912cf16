//! Lines that say the same again are counted in the place of being written.
//!
//! The first [`BURST`] of a kind are written at once. What follows within the window is counted, and
//! told in one line when the window is over; each next window is twice as long, up to
//! [`LONGEST_WINDOW`].
//!
//! What always holds: a line of an event of a job (field `event`) is never folded, since each is
//! history; nothing that was left out goes untold, unless more than [`KINDS_LIMIT`] kinds come at
//! one time.

use super::{one_line, text_of};
use crate::model::time::BootTime;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tracing::{Event, Level};

/// Lines of a kind that are written in its first window.
const BURST: u32 = 5;
/// The window behind the first line.
const FIRST_WINDOW: Duration = Duration::from_mins(1);
/// No window is longer.
const LONGEST_WINDOW: Duration = Duration::from_hours(1);
/// Kinds of lines that are remembered at one time.
const KINDS_LIMIT: usize = 256;
/// Bytes of a line that are repeated in its count.
const TEXT_LIMIT_BYTES: usize = 500;

/// What was said lately.
#[derive(Debug, Default)]
pub(super) struct Fold {
    said: Mutex<BTreeMap<u64, Said>>,
}

#[derive(Debug)]
struct Said {
    level: Level,
    text: String,
    since: BootTime,
    window: Duration,
    written: u32,
    more: u32,
}

/// Lines that were left out.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    pub(super) level: Level,
    pub(super) text: String,
    pub(super) more: u32,
    pub(super) within: Duration,
}

impl Fold {
    fn said(&self) -> MutexGuard<'_, BTreeMap<u64, Said>> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the event is to be written now.
    pub(super) fn passes(&self, event: &Event<'_>, now: BootTime) -> bool {
        let level = *event.metadata().level();
        let is_history = event.fields().any(|f| matches!(f.name(), "event" | "repeats"));
        // Who asks for details wants all of them.
        if is_history || level > Level::INFO {
            return true;
        }
        let text = text_of(event);
        let mut hasher = DefaultHasher::new();
        (level.as_str(), event.metadata().target(), &text).hash(&mut hasher);
        self.note(hasher.finish(), level, &text, now)
    }

    fn note(&self, kind: u64, level: Level, text: &str, now: BootTime) -> bool {
        let mut said = self.said();
        if let Some(one) = said.get_mut(&kind) {
            let is_written = one.written < BURST;
            *(if is_written { &mut one.written } else { &mut one.more }) += 1;
            return is_written;
        }
        if said.len() >= KINDS_LIMIT
            && let Some(oldest) = said.iter().min_by_key(|(_, one)| one.since).map(|(k, _)| *k)
        {
            said.remove(&oldest);
        }
        let text = one_line(text, TEXT_LIMIT_BYTES);
        said.insert(
            kind,
            Said { level, text, since: now, window: FIRST_WINDOW, written: 1, more: 0 },
        );
        true
    }

    /// What was left out in the windows that are over.
    pub(super) fn due(&self, now: BootTime) -> Vec<Repeats> {
        let mut due = Vec::new();
        self.said().retain(|_, one| {
            if now.since(one.since) < one.window {
                return true;
            }
            if one.more == 0 {
                return false;
            }
            let (level, text, more) = (one.level, one.text.clone(), one.more);
            due.push(Repeats { level, text, more, within: one.window });
            one.more = 0;
            one.written = BURST;
            one.since = now;
            one.window = (one.window * 2).min(LONGEST_WINDOW);
            true
        });
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime(seconds * 1_000)
    }

    #[test]
    fn a_flood_is_one_line_and_its_counts_ever_further_apart() {
        let fold = Fold::default();
        let mut written = 0;
        let mut told = Vec::new();
        for second in 0..24 * 3600 {
            written += u32::from(fold.note(1, Level::WARN, "disk", at(second)));
            told.extend(fold.due(at(second)));
        }
        assert_eq!(written, BURST);
        assert!((20..35).contains(&told.len()), "{}", told.len());
        assert_eq!(
            told[0],
            Repeats { more: 56, text: "disk".into(), level: Level::WARN, within: FIRST_WINDOW }
        );
        let counted: u32 = told.iter().map(|one| one.more).sum();
        assert!(counted >= 23 * 3600, "{counted}");
    }

    #[test]
    fn what_does_not_come_again_is_forgotten() {
        let fold = Fold::default();
        assert!(fold.note(1, Level::WARN, "a", at(0)));
        assert!(fold.note(2, Level::WARN, "b", at(0)));
        assert!(fold.due(at(61)).is_empty());
        assert!(fold.note(1, Level::WARN, "a", at(62)), "said anew, not folded");
        for kind in 0..1_000 {
            fold.note(kind, Level::WARN, "c", at(63));
        }
        assert_eq!(fold.said().len(), KINDS_LIMIT);
    }
}
