//! How often to save: the interval between checkpoints at which least time is lost, by Young and by
//! Daly, from what is seen of a job.
//!
//! Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval" (1974);
//! J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006).
//! Both are advice: nothing is decided by them.

use crate::model::time::human;
use std::fmt;
use std::time::Duration;

/// Losses of the job's own from which their mean is believed.
pub const LOSSES_ENOUGH: u32 = 5;
/// The mean time until a fresh spot machine is lost, where the job itself has seen too few losses:
/// pooled over recorded spot markets, 2.4 h.
pub const SPOT_LIFE: Duration = Duration::from_secs(2 * 3600 + 24 * 60);
/// A share of the time that is not worth a change.
const WORTH_IT: f64 = 0.01;

/// Young's interval, in seconds of work between two checkpoints, where writing one stops the trainer
/// for `cost` and work is lost every `mean` on average.
pub fn young(cost: Duration, mean: Duration) -> Duration {
    seconds((2.0 * cost.as_secs_f64() * mean.as_secs_f64()).sqrt())
}

/// Daly's interval, of higher order. Where a checkpoint costs more than two lives, one a life.
pub fn daly(cost: Duration, mean: Duration) -> Duration {
    let (cost_s, mean_s) = (cost.as_secs_f64(), mean.as_secs_f64());
    if cost_s >= 2.0 * mean_s {
        return mean;
    }
    let part = cost_s / (2.0 * mean_s);
    let root = (2.0 * cost_s * mean_s).sqrt();
    seconds(root * (1.0 + part.sqrt() / 3.0 + part / 9.0) - cost_s)
}

/// The share of the time that goes into checkpoints and into work that is lost, 0 to 1. What a
/// restart costs is left out: it is the same for every interval.
pub fn lost_share(every: Duration, cost: Duration, mean: Duration) -> f64 {
    if every.is_zero() || mean.is_zero() {
        return 1.0;
    }
    let saving = cost.as_secs_f64() / every.as_secs_f64();
    let lost = every.as_secs_f64() / 2.0 / mean.as_secs_f64();
    (saving + lost).min(1.0)
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s).unwrap_or_default()
}

/// Where the mean time between losses comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From so many losses of this job.
    Seen(u32),
    /// From recorded spot markets: the job has seen only so many.
    Assumed(u32),
}

/// Mean running time between two losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mean {
    /// It.
    pub time: Duration,
    /// Where it comes from.
    pub source: Source,
}

impl Mean {
    /// Of a job that lost its work `losses` times in `running`; `None` where too few were seen and
    /// it does not run on spot machines.
    pub fn of(losses: u32, running: Duration, is_spot: bool) -> Option<Self> {
        if losses >= LOSSES_ENOUGH {
            let source = Source::Seen(losses);
            return Some(Self { time: running / losses, source }).filter(|m| !m.time.is_zero());
        }
        is_spot.then_some(Self { time: SPOT_LIFE, source: Source::Assumed(losses) })
    }
}

/// What to change, and what it would gain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advice {
    /// Time between two checkpoints now.
    pub every: Duration,
    /// What one costs, estimated from the times of its objects: more than it stops the trainer for,
    /// where it is written beside the training.
    pub cost: Duration,
    /// Mean time between losses.
    pub mean: Mean,
    /// The best time between two checkpoints.
    pub best: Duration,
    /// The same in steps, where they are known.
    pub best_steps: Option<u64>,
    /// The share of the time that the best interval would save, 0 to 1.
    pub saves: f64,
}

impl Advice {
    /// For checkpoints `every` so often, `steps` apart, that cost `cost` each.
    pub fn on(every: Duration, steps: Option<u64>, cost: Duration, mean: Mean) -> Option<Self> {
        if every.is_zero() || cost.is_zero() {
            return None;
        }
        let best = daly(cost, mean.time);
        let saves = lost_share(every, cost, mean.time) - lost_share(best, cost, mean.time);
        let best_steps = steps.and_then(|steps| {
            let scaled = u128::from(steps) * best.as_millis() / every.as_millis().max(1);
            u64::try_from(scaled).ok().filter(|steps| *steps > 0)
        });
        Some(Self { every, cost, mean, best, best_steps, saves: saves.max(0.0) })
    }
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { every, cost, mean, best, .. } = self;
        write!(f, "checkpoints every {}, about {} each; ", round(*every), round(*cost))?;
        write!(f, "with losses every {} ", round(mean.time))?;
        match mean.source {
            Source::Seen(losses) => write!(f, "({losses} seen) ")?,
            Source::Assumed(losses) => write!(f, "(assumed for spot: {losses} seen) ")?,
        }
        write!(f, "the best interval is about {}", round(*best))?;
        if let Some(steps) = self.best_steps {
            write!(f, " ({steps} steps)")?;
        }
        if self.saves < WORTH_IT {
            write!(f, ": nothing to gain")?;
        } else {
            write!(f, ": would save about {:.0} % of the time", self.saves * 100.0)?;
        }
        write!(f, ". An estimate: what one costs is read from the times of its files")
    }
}

/// To the second: nothing here is known better.
fn round(time: Duration) -> String {
    human(Duration::from_secs(time.as_secs().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOUR: Duration = Duration::from_secs(3600);

    fn minutes(time: Duration) -> f64 {
        time.as_secs_f64() / 60.0
    }

    #[test]
    fn daly_gives_his_published_points() {
        for (mean, wanted) in [(24 * HOUR, 117.0), (6 * HOUR, 57.0), (15 * MINUTE, 9.1)] {
            let found = minutes(daly(5 * MINUTE, mean));
            let grain = if wanted < 10.0 { 0.05 } else { 0.5 };
            assert!((found - wanted).abs() <= grain, "{mean:?}: {found}, wanted {wanted}");
        }
    }

    #[test]
    fn young_is_the_root_and_both_agree_where_losses_are_rare() {
        assert!((minutes(young(5 * MINUTE, 24 * HOUR)) - 120.0).abs() < 1e-6);
        let (cost, mean) = (MINUTE, 10_000 * HOUR);
        let ratio = minutes(daly(cost, mean)) / minutes(young(cost, mean));
        assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn the_interval_has_no_jump_and_no_odd_value_at_the_borders() {
        assert_eq!(daly(20 * MINUTE, 10 * MINUTE), 10 * MINUTE, "one a life");
        assert_eq!(daly(HOUR, 10 * MINUTE), 10 * MINUTE);
        assert_eq!(daly(Duration::ZERO, HOUR), Duration::ZERO);
        assert_eq!(daly(Duration::ZERO, Duration::ZERO), Duration::ZERO);
        assert_eq!(young(Duration::ZERO, HOUR), Duration::ZERO);
        let longest = Duration::from_secs(u64::MAX);
        assert!(daly(longest, longest) <= longest, "no panic");
        let just_below = daly(Duration::from_secs(1_199), 10 * MINUTE);
        assert!((minutes(just_below) / 10.0 - 0.89).abs() < 0.02, "{just_below:?}");
    }

    #[test]
    fn the_best_interval_loses_least() {
        for (cost, mean) in [(1, 126), (5, 360), (1, 24 * 60), (10, 600)] {
            let (cost, mean) = (cost * MINUTE, mean * MINUTE);
            let best = daly(cost, mean);
            let lost = lost_share(best, cost, mean);
            for other in [best / 3, best * 3, best * 10] {
                assert!(lost < lost_share(other, cost, mean), "{cost:?} {mean:?} {other:?}");
            }
        }
        assert!((lost_share(100 * HOUR, MINUTE, HOUR) - 1.0).abs() < f64::EPSILON, "all of it");
    }

    #[test]
    fn the_mean_is_the_jobs_own_from_five_losses_on() {
        let seen = Mean { time: 2 * HOUR, source: Source::Seen(5) };
        assert_eq!(Mean::of(5, 10 * HOUR, true), Some(seen));
        assert_eq!(Mean::of(5, 10 * HOUR, false), Some(seen));
        let assumed = |n| Some(Mean { time: SPOT_LIFE, source: Source::Assumed(n) });
        assert_eq!(Mean::of(4, 10 * HOUR, true), assumed(4));
        assert_eq!(Mean::of(0, Duration::ZERO, true), assumed(0));
        assert_eq!(Mean::of(4, 10 * HOUR, false), None);
        assert_eq!(Mean::of(5, Duration::ZERO, true), None);
    }

    #[test]
    fn advice_is_a_sentence_with_its_numbers() {
        let mean = Mean { time: 126 * MINUTE, source: Source::Seen(7) };
        let advice = Advice::on(40 * MINUTE, Some(1000), MINUTE, mean).expect("advice");
        assert_eq!(
            advice.to_string(),
            "checkpoints every 40m, about 1m each; with losses every 2h06m (7 seen) the best \
             interval is about 15m (380 steps): would save about 6 % of the time. An estimate: \
             what one costs is read from the times of its files"
        );
        let mean = Mean { source: Source::Assumed(2), ..mean };
        let text = Advice::on(15 * MINUTE, None, MINUTE, mean).expect("advice").to_string();
        assert!(text.contains("(assumed for spot: 2 seen)"), "{text}");
        assert!(text.contains("about 15m: nothing to gain"), "{text}");
        // What cannot be seen is not made up.
        assert_eq!(Advice::on(40 * MINUTE, None, Duration::ZERO, mean), None);
        assert_eq!(Advice::on(Duration::ZERO, None, MINUTE, mean), None);
    }
}
