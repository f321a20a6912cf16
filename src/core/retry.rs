//! Delays. `backoff` is used as a source of delays only: it never sleeps, never gives up and never
//! draws a random number here.

use backoff::backoff::Backoff as _;
use std::time::Duration;

/// The first delay after an end without progress.
const END_FIRST: Duration = Duration::from_secs(10);
/// The longest one.
const END_LONGEST: Duration = Duration::from_secs(3600);
/// The first delay after a CreateJob that created nothing, or a look that could not be made.
const PASSING_FIRST: Duration = Duration::from_secs(2);
/// The longest one.
const PASSING_LONGEST: Duration = Duration::from_secs(300);
/// Doublings after which every delay is the longest one.
const DOUBLINGS_LIMIT: u32 = 16;

/// Delay before the submission that follows the `count`-th end in a row without progress, from 1.
pub fn after_end(count: u32) -> Duration {
    nth(END_FIRST, END_LONGEST, count)
}

/// Delay after the `count`-th passing fault in a row, from 1.
pub fn after_fault(count: u32) -> Duration {
    nth(PASSING_FIRST, PASSING_LONGEST, count)
}

fn nth(first: Duration, longest: Duration, count: u32) -> Duration {
    let mut delays = backoff::ExponentialBackoff {
        current_interval: first,
        initial_interval: first,
        randomization_factor: 0.0,
        multiplier: 2.0,
        max_interval: longest,
        max_elapsed_time: None,
        ..backoff::ExponentialBackoff::default()
    };
    let mut delay = first;
    for _ in 0..count.clamp(1, DOUBLINGS_LIMIT) {
        delay = delays.next_backoff().unwrap_or(longest);
    }
    delay
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_an_hour_and_never_stop() {
        let seconds: Vec<u64> = (1..=10).map(|n| after_end(n).as_secs()).collect();
        assert_eq!(seconds, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600]);
        assert_eq!(after_end(u32::MAX), END_LONGEST);
        assert_eq!(after_end(0), END_FIRST);
        assert_eq!(after_fault(100), PASSING_LONGEST);
    }
}
