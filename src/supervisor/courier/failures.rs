//! What failed deliveries of one channel mean: when the next try is made, whose alerts wait, and
//! which are given up. Reads no clock and sends nothing.

use crate::core::retry;
use crate::model::time::BootTime;
use std::collections::{BTreeMap, BTreeSet};

/// A message that was refused so often, over about half an hour, is given up, if the receiver has
/// taken another one meanwhile: then it is the message, and not the receiver's settings.
const REFUSALS_LIMIT: u32 = 12;
/// Failures in a row from which on `readyz` names the channel.
const FAILURES_SHOWN: u32 = 3;

/// Failed deliveries of one channel, as far as they matter now.
#[derive(Debug, Default)]
pub(super) struct Failures {
    /// Tries in a row that nobody answered, or that were answered for all messages alike.
    in_a_row: u32,
    /// Nothing is tried before this.
    not_before: Option<BootTime>,
    /// By job: its oldest message is refused.
    refused: BTreeMap<String, Refusals>,
    /// Since when something is not delivered.
    since: Option<BootTime>,
}

/// Of the oldest message of one job.
#[derive(Debug)]
struct Refusals {
    count: u32,
    /// The job's alerts wait until then.
    until: BootTime,
    /// Whether the receiver has taken another message since the first refusal.
    others_taken: bool,
}

/// What is to be done with a message that was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// It is tried again; the first failure is told.
    TryAgain { is_first: bool },
    /// It is not tried again.
    GiveUp,
}

impl Failures {
    /// Until when nothing is tried.
    pub(super) fn not_before(&self, now: BootTime) -> Option<BootTime> {
        self.not_before.filter(|at| *at > now)
    }

    /// The jobs whose alerts wait, and until when the first of them does.
    pub(super) fn held(&self, now: BootTime) -> (BTreeSet<&str>, Option<BootTime>) {
        let held = self.refused.iter().filter(|(_, refusals)| refusals.until > now);
        let first = held.clone().map(|(_, refusals)| refusals.until).min();
        (held.map(|(job, _)| job.as_str()).collect(), first)
    }

    /// A message about `job` was taken; answers whether that ends an outage.
    pub(super) fn note_taken(&mut self, job: &str) -> bool {
        let was_down = std::mem::take(&mut self.in_a_row) > 0;
        self.not_before = None;
        self.refused.remove(job);
        for refusals in self.refused.values_mut() {
            refusals.others_taken = true;
        }
        self.settle();
        was_down
    }

    /// A message about `job` was not taken. `is_of_message`: the receiver answered, and another
    /// message may do better. `is_too_old`: this was its last try in any case.
    pub(super) fn note_failed(
        &mut self,
        job: &str,
        is_of_message: bool,
        is_too_old: bool,
        now: BootTime,
    ) -> Then {
        self.since.get_or_insert(now);
        let (mut is_over, is_first) = (is_too_old, self.count(job, is_of_message, now) == 1);
        if let Some(refusals) = self.refused.get(job).filter(|_| is_of_message) {
            is_over |= refusals.count >= REFUSALS_LIMIT && refusals.others_taken;
        }
        if is_over {
            self.refused.remove(job);
            self.settle();
            return Then::GiveUp;
        }
        Then::TryAgain { is_first }
    }

    /// What is not delivered now and since when, once it has failed more than in passing.
    pub(super) fn trouble(&self) -> Option<(BootTime, String)> {
        let refused: Vec<_> =
            self.refused.iter().filter(|(_, r)| r.count >= FAILURES_SHOWN).collect();
        let text = if self.in_a_row >= FAILURES_SHOWN {
            format!("the last {} deliveries have failed", self.in_a_row)
        } else if let [(first, _), others @ ..] = refused.as_slice() {
            let others = if others.is_empty() {
                String::new()
            } else {
                format!(" and {} more jobs", others.len())
            };
            format!("the receiver refuses the alerts of {first:?}{others}")
        } else {
            return None;
        };
        Some((self.since?, text))
    }

    /// Counts a failure, sets the time of the next try, and answers how many in a row these are.
    fn count(&mut self, job: &str, is_of_message: bool, now: BootTime) -> u32 {
        if !is_of_message {
            self.in_a_row = self.in_a_row.saturating_add(1);
            self.not_before = Some(now.plus(retry::after_fault(self.in_a_row)));
            return self.in_a_row;
        }
        let none = Refusals { count: 0, until: now, others_taken: false };
        let refusals = self.refused.entry(job.to_owned()).or_insert(none);
        refusals.count = refusals.count.saturating_add(1);
        refusals.until = now.plus(retry::after_fault(refusals.count));
        refusals.count
    }

    fn settle(&mut self) {
        if self.in_a_row == 0 && self.refused.is_empty() {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: BootTime = BootTime(1_000);

    #[test]
    fn a_receiver_that_is_down_is_tried_less_and_less_and_nothing_is_given_up() {
        let (mut failures, mut now) = (Failures::default(), START);
        for count in 1..=100 {
            let then = failures.note_failed("a", false, false, now);
            assert_eq!(then, Then::TryAgain { is_first: count == 1 });
            let next = failures.not_before(now).expect("a wait");
            assert_eq!(next, now.plus(retry::after_fault(count)));
            assert_eq!(failures.trouble().is_some(), count >= FAILURES_SHOWN);
            now = next;
        }
        assert_eq!(failures.not_before(now), None, "then it is tried");
        assert_eq!(failures.trouble().expect("told").0, START);
        assert!(failures.note_taken("a"));
        assert!(failures.trouble().is_none() && !failures.note_taken("a"));
    }

    #[test]
    fn a_refused_message_holds_its_own_job_only_and_is_given_up_once_others_are_taken() {
        let (mut failures, mut now) = (Failures::default(), START);
        for count in 1..REFUSALS_LIMIT {
            let then = failures.note_failed("bad", true, false, now);
            assert_eq!(then, Then::TryAgain { is_first: count == 1 });
            let (held, until) = failures.held(now);
            assert_eq!(held, BTreeSet::from(["bad"]));
            assert_eq!(failures.not_before(now), None, "others go on");
            now = until.expect("a wait");
            assert!(failures.held(now).0.is_empty(), "then it is tried");
        }
        // Where every message is refused it is the receiver's settings: all is kept.
        let then = failures.note_failed("bad", true, false, now);
        assert_eq!(then, Then::TryAgain { is_first: false });
        assert!(!failures.note_taken("good"));
        assert!(failures.trouble().expect("told").1.contains("\"bad\""));
        assert_eq!(failures.note_failed("bad", true, false, now), Then::GiveUp);
        assert!(failures.trouble().is_none() && failures.held(now).0.is_empty());
        // The next message of the job begins anew.
        let then = failures.note_failed("bad", true, false, now);
        assert_eq!(then, Then::TryAgain { is_first: true });
    }

    #[test]
    fn what_is_too_old_is_given_up_and_the_receiver_still_counts_as_down() {
        let mut failures = Failures::default();
        assert_eq!(failures.note_failed("a", false, true, START), Then::GiveUp);
        assert!(failures.not_before(START).is_some());
        assert_eq!(failures.note_failed("a", true, true, START), Then::GiveUp);
    }
}
