//! Time and chance: one number drives both.

use spotkeeper::model::time::{BootTime, Now, WallTime};

const EPOCH: i64 = 1_800_000_000_000;
pub(crate) const SECOND: u64 = 1_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// Small deterministic generator (splitmix64).
#[derive(Debug, Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One in a thousand, `n` times.
    pub(crate) fn rarely(&mut self, n: u64) -> bool {
        self.below(1000) < n
    }

    pub(crate) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        let at = usize::try_from(self.below(all.len() as u64)).expect("small");
        all[at].clone()
    }
}

/// The clocks of the machine and of the servers.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// True time, which the servers and the boot clock follow. Goes on in a suspend.
    pub(crate) ms: u64,
    /// How far the machine's calendar is off, until an answer corrects it.
    pub(crate) skew: i64,
    /// Nothing of this machine runs before this.
    pub(crate) asleep_until: u64,
}

impl Clock {
    pub(crate) fn now(&self) -> Now {
        Now { wall: self.machine(), boot: BootTime(self.ms) }
    }

    /// What the machine's calendar says.
    pub(crate) fn machine(&self) -> WallTime {
        WallTime(self.server().0 + self.skew)
    }

    /// What the servers say.
    pub(crate) fn server(&self) -> WallTime {
        at(self.ms)
    }

    pub(crate) fn step(&mut self, by: i64) {
        self.skew = by;
    }

    /// An answer with a Date came.
    pub(crate) fn heard(&mut self) {
        self.skew = 0;
    }
}

/// The servers' calendar at a true time.
pub(crate) fn at(ms: u64) -> WallTime {
    WallTime(EPOCH + ms.cast_signed())
}
