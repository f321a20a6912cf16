//! The one place that reads a clock.

use crate::model::time::{BootTime, Now, WallTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Reads both clocks. The wall clock is corrected by what servers said in their `Date`; clones
/// share the correction.
#[derive(Debug, Clone, Default)]
pub struct Clock {
    /// Server's wall time less this machine's *boot* time, in ms; 0 = no server was heard yet.
    anchor: Arc<AtomicI64>,
}

impl Clock {
    /// A clock that no server has corrected yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Both clocks now. Once a server was heard, wall time is its time carried on by the boot
    /// clock, so that a step of this machine's own clock changes nothing.
    pub fn now(&self) -> Now {
        let boot = boot_time();
        let wall = match self.anchor.load(Ordering::Relaxed) {
            0 => machine_time(),
            anchor => WallTime(anchor + i64::try_from(boot.0).unwrap_or(i64::MAX)),
        };
        Now { wall, boot }
    }

    /// Takes over a server's `Date`, received just now.
    pub fn heard(&self, server: WallTime) {
        // `Date` has whole seconds: on average the true time is half a second later.
        let boot = i64::try_from(boot_time().0).unwrap_or(i64::MAX);
        let anchor = server.0 + 500 - boot;
        let old = self.anchor.load(Ordering::Relaxed);
        // Small differences are rounding and travel time; following them would make ages jitter.
        if old == 0 || (old - anchor).abs() > 2_000 {
            self.anchor.store(anchor, Ordering::Relaxed);
        }
    }

    /// This machine's wall clock less the server's, in ms; `None` before a server was heard.
    pub fn offset_ms(&self) -> Option<i64> {
        match self.anchor.load(Ordering::Relaxed) {
            0 => None,
            _ => Some(machine_time().0 - self.now().wall.0),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn machine_time() -> WallTime {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or(std::time::Duration::ZERO);
    WallTime(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// CLOCK_MONOTONIC in microseconds: what systemd compares a reload with.
pub(super) fn monotonic_usec() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let usec = t.tv_sec.saturating_mul(1_000_000).saturating_add(t.tv_nsec / 1_000);
    u64::try_from(usec).unwrap_or(0)
}

pub(super) fn boot_time() -> BootTime {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ms = t.tv_sec.saturating_mul(1000).saturating_add(t.tv_nsec / 1_000_000);
    BootTime(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_was_heard_wins_over_this_machines_clock() {
        let clock = Clock::new();
        let server = WallTime::parse("2030-01-01T00:00:00Z").expect("a valid time");
        clock.heard(server);
        let now = clock.now();
        assert!((now.wall.0 - server.0).abs() < 60_000, "{}", now.wall);
        assert!(clock.offset_ms().is_some_and(|ms| ms < 0));
        clock.heard(server.plus(std::time::Duration::from_secs(1)));
        assert!((clock.now().wall.0 - now.wall.0).abs() < 60_000);
    }
}
