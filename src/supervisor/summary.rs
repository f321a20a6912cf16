//! The daily summary of a channel: what became of its jobs since the last one, and what needs a
//! person. It goes the way of an alert.
//!
//! What always holds: one a day, whatever restarts; a channel that is new gets its first on the next
//! day; one that was due while the daemon was away is made at its start.

use super::driver::Driver;
use super::outbox::Told;
use super::work::Work;
use crate::alerts::fold::summary_due;
use crate::core::job::{EndedAttempt, Job, Start};
use crate::core::phase::Phase;
use crate::core::verdict::Cause;
use crate::core::watch::{Watch, at_risk, ran_so_far};
use crate::model::alert::{Alert, Channel, SUMMARY};
use crate::model::ids::JobKey;
use crate::model::time::{WallTime, human};
use crate::model::view::JobRow;
use crate::store::BATCH_LIMIT_BYTES;
use crate::store::records::summary_step_key;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// Jobs that have a line of their own, and that are named as needing a person.
const LINES_LIMIT: usize = 30;
/// Bytes of the steps that are remembered from one summary to the next: with what a turn may hold
/// before it ([`super::staging`]) and the summary itself they fit into one batch.
const STEPS_LIMIT_BYTES: usize = BATCH_LIMIT_BYTES * 3 / 8;
/// Bytes of a step beside its job's key, which is there twice: in the key of its record and in its value.
const STEP_BYTES: usize = 128;
/// Letters of a reason.
const WHY_LETTERS: usize = 160;
/// Letters of a whole summary: its record has to fit.
const LETTERS_LIMIT: usize = 2_000;

/// A summary that is to be committed.
#[derive(Debug)]
pub struct Summary {
    /// For whom.
    pub channel: String,
    /// When it was due.
    pub due: WallTime,
    /// What is told; nothing where the channel is new.
    pub alert: Option<Alert>,
    /// Where the jobs are now, as far as that changed.
    pub steps: Vec<(JobKey, u64)>,
}

/// What became of one job.
#[derive(Debug, Default, PartialEq, Eq)]
struct Gains {
    releases: u64,
    gained: Option<u64>,
    repeated: Duration,
    repeated_steps: u64,
    ran: Duration,
}

impl Driver {
    /// Makes the summaries that are due.
    pub(super) fn make_summaries(&mut self) {
        let now = self.clock.now().wall;
        for channel in self.log.outbox.channels().to_vec() {
            let Some(due) = summary_due(&channel, now) else { continue };
            let told = self.log.outbox.told.get(&channel.name).cloned().unwrap_or_default();
            if told.at.is_some_and(|at| at >= due) {
                continue;
            }
            let summary = self.summary(&channel, &told, due, now);
            // Its place is taken before it is durable: it must not be made twice meanwhile.
            let kept = self.log.outbox.told.entry(channel.name.clone()).or_default();
            kept.at = Some(due);
            kept.steps.extend(summary.steps.iter().cloned());
            self.push(Work::Tell(Box::new(summary)));
        }
    }

    fn summary(&self, channel: &Channel, told: &Told, due: WallTime, now: WallTime) -> Summary {
        let (mut rows, mut steps, mut steps_bytes) = (Vec::new(), Vec::new(), 0);
        for job in self.book.jobs.values() {
            let name = job.key.name.as_str();
            if !channel.is_for(name) {
                continue;
            }
            let last = told.steps.get(&job.key).copied();
            if let Some(step) = job.progress.best_step.filter(|step| Some(*step) != last) {
                let bytes = step_bytes(&channel.name, &job.key);
                if steps_bytes + bytes <= STEPS_LIMIT_BYTES {
                    steps_bytes += bytes;
                    steps.push((job.key.clone(), step));
                }
            }
            let since = told.at.unwrap_or(due);
            let ended = self.book.ended.get(&job.key).map_or(&[][..], Vec::as_slice);
            let is_over = job.result.as_ref().is_some_and(|result| result.at < since);
            if !(is_over && job.open.is_empty()) {
                rows.push((self.row(job), gains(job, ended, last, since, now)));
            }
        }
        let alert = told.at.map(|since| Alert {
            id: self.log.outbox.summary_id(&channel.name, due),
            at: now,
            job: String::new(),
            run: 0,
            attempt: None,
            word: SUMMARY.to_owned(),
            text: text(&rows, now.since(since)).chars().take(LETTERS_LIMIT).collect(),
            step: None,
        });
        Summary { channel: channel.name.clone(), due, alert, steps }
    }
}

/// The most that the record of a job's step takes in a batch.
fn step_bytes(channel: &str, key: &JobKey) -> usize {
    summary_step_key(channel, key).len() + key.name.as_str().len() + STEP_BYTES
}

/// What became of a job since `since`; `last` is the step at which it was left then.
fn gains(
    job: &Job,
    ended: &[EndedAttempt],
    last: Option<u64>,
    since: WallTime,
    now: WallTime,
) -> Gains {
    let mut gains = Gains::default();
    for end in ended.iter().filter(|end| end.ended >= since) {
        let cause = end.verdict.cause;
        gains.releases += u64::from(cause == Cause::Released);
        gains.ran += end.ran.min(end.ended.since(since));
        if matches!(cause, Cause::Succeeded | Cause::NeverCreated) {
            continue;
        }
        let again = at_risk(&end.attempt, end.ended).unwrap_or_default().min(end.ran);
        let pace = end.attempt.watch().and_then(Watch::steps_per_hour).unwrap_or_default();
        gains.repeated += again;
        gains.repeated_steps += pace.saturating_mul(again.as_secs()) / 3_600;
    }
    if let Some(open) = job.open.last() {
        gains.ran += ran_so_far(open, now).min(now.since(since));
    }
    // A job that is new since then began where its first attempt did.
    let first = ended.iter().map(|end| &end.attempt).chain(&job.open).find(|a| a.no == 1);
    let began = first.filter(|first| first.intended >= since).map(|first| match &first.start {
        Start::Fresh => 0,
        Start::From(point) => point.step.unwrap_or_default(),
    });
    let base = last.or(began);
    let step = job.progress.best_step;
    gains.gained = base.zip(step).map(|(base, step)| step.saturating_sub(base));
    gains
}

fn text(rows: &[(JobRow, Gains)], within: Duration) -> String {
    let mut phases: BTreeMap<&str, u64> = BTreeMap::new();
    for (row, _) in rows {
        *phases.entry(row.phase.as_str()).or_default() += 1;
    }
    let counts: Vec<_> = phases.iter().map(|(phase, count)| format!("{count} {phase}")).collect();
    let sum = |read: fn(&Gains) -> u64| rows.iter().map(|(_, gains)| read(gains)).sum::<u64>();
    let repeated: Duration = rows.iter().map(|(_, gains)| gains.repeated).sum();
    let ran: Duration = rows.iter().map(|(_, gains)| gains.ran).sum();
    // Writing to a text cannot fail.
    let mut text = format!("Jobs in the last {}: {}", human(within), rows.len());
    if !counts.is_empty() {
        let _ = write!(text, " ({})", counts.join(", "));
    }
    let _ = write!(
        text,
        "\nReleases: {}. Steps gained: {}. Repeated: about {} of {} running time, {} steps.",
        sum(|gains| gains.releases),
        sum(|gains| gains.gained.unwrap_or_default()),
        human(repeated),
        human(ran),
        sum(|gains| gains.repeated_steps),
    );
    let blocked: Vec<_> =
        rows.iter().filter(|(row, _)| row.phase == Phase::Blocked.word()).collect();
    if blocked.is_empty() {
        text.push_str("\nNothing needs a person.");
    } else {
        let _ = write!(text, "\nNeeds a person: {}", blocked.len());
    }
    for (row, _) in blocked.iter().take(LINES_LIMIT) {
        let why: String = row.why.chars().take(WHY_LETTERS).collect();
        let _ = write!(text, "\n  {}: {why}", row.name);
    }
    for (row, gains) in rows.iter().take(LINES_LIMIT) {
        let _ = write!(text, "\n{}  {}", row.name, row.phase);
        if let Some(step) = row.step {
            let _ = write!(text, "  step {step}");
        }
        if let Some(gained) = gains.gained {
            let _ = write!(text, " (+{gained})");
        }
        if gains.releases > 0 {
            let _ = write!(text, "  releases {}", gains.releases);
        }
    }
    if rows.len() > LINES_LIMIT {
        let _ = write!(text, "\nand {} more", rows.len() - LINES_LIMIT);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::JobName;
    use crate::store::{Batch, records};

    #[test]
    fn a_step_takes_no_more_of_a_batch_than_is_reckoned() {
        for (channel, name) in [("c", "a"), (&*"c".repeat(32), &*"n".repeat(48))] {
            let key = JobKey { name: JobName::new(name).expect("a name"), run: u32::MAX };
            let at = summary_step_key(channel, &key);
            let mut batch = Batch::new();
            let before = batch.encoded_bytes();
            let value = records::encode(&at, &(&key, u64::MAX)).expect("it fits");
            batch.put(at, value).expect("room");
            assert!(batch.encoded_bytes() - before <= step_bytes(channel, &key), "{name}");
        }
    }
}
