//! Jobs out of an older ledger, so that an emulator that starts again on its folder knows them.

use super::dialect::Dialect;
use super::job::{End, Job, Leaving, Moment, PodLife, Stage, Wait};
use super::ledger::{Entry, Event, Ledger, LedgerError};
use super::submission::Submission;
use crate::model::time::WallTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// The jobs that the lines tell of, as they were at the last line. Their processes are gone.
///
/// # Errors
/// [`LedgerError`] when a kept body cannot be read.
pub(super) fn jobs(
    ledger: &Ledger,
    lines: &[Entry],
    list_price_per_minute: f64,
) -> Result<Vec<Job>, LedgerError> {
    let mut jobs: BTreeMap<&str, Job> = BTreeMap::new();
    let mut releases: BTreeMap<&str, Dialect> = BTreeMap::new();
    for line in lines {
        let wall = WallTime::parse(&line.wall).unwrap_or(WallTime(0));
        let id = line.job_id.as_str();
        match line.event {
            Event::Create => {
                let body = ledger.read_request(line.request.as_deref().unwrap_or_default())?;
                // A body that this version would refuse was taken by an older one.
                if let Ok(submission) = Submission::read(&body, list_price_per_minute) {
                    let now = Moment { at: Duration::ZERO, wall };
                    jobs.insert(id, Job::new(id.to_owned(), submission, now));
                }
            }
            Event::Release => {
                let word = line.why.as_deref().and_then(|why| why.split(':').next());
                if let Some(dialect) = word.and_then(|word| word.parse().ok()) {
                    releases.insert(id, dialect);
                }
            }
            Event::Status if line.status.as_deref() == Some("Deleted") => {
                jobs.remove(id);
            }
            Event::Status => {
                if let (Some(job), Some(word)) = (jobs.get_mut(id), &line.status) {
                    take_status(job, word, wall);
                }
            }
            Event::End => {
                if let Some(job) = jobs.get_mut(id) {
                    take_end(job, line, releases.get(id).copied(), wall);
                }
            }
            Event::StopAsked | Event::Refused => {}
        }
    }
    Ok(jobs.into_values().collect())
}

fn take_status(job: &mut Job, word: &str, wall: WallTime) {
    let waiting = |on| Some(Stage::Waiting { on, since: Duration::ZERO });
    let stage = match word {
        "Restarting" => waiting(Wait::Restarting),
        "Queuing" => waiting(Wait::Queuing),
        "Bidding" => waiting(Wait::Bidding),
        "EnvPreparing" => waiting(Wait::EnvPreparing),
        "Running" => Some(Stage::Running { ends: None }),
        "Stopping" => Some(Stage::Leaving {
            why: Leaving::Stop,
            kill_at: Duration::ZERO,
            end_at: Duration::ZERO,
        }),
        _ => None,
    };
    match word {
        "Restarting" => job.replace_pods(None, wall),
        "SucceededReserving" => job.reserve(End::Succeeded, Duration::ZERO, wall),
        "FailedReserving" => job.reserve(End::Failed, Duration::ZERO, wall),
        _ => {}
    }
    if word == "Running"
        && let Some(restart) = job.open_restart()
    {
        restart.ran_again = Some(wall);
    }
    for pod in &mut job.pods {
        match word {
            "EnvPreparing" => pod.created = pod.created.or(Some(wall)),
            "Running" => pod.started = Some(wall),
            _ => {}
        }
    }
    if let Some(stage) = stage {
        job.enter(stage, wall, "", "");
    }
}

fn take_end(job: &mut Job, line: &Entry, released: Option<Dialect>, wall: WallTime) {
    let end = match line.status.as_deref() {
        Some("Succeeded") => End::Succeeded,
        Some("Stopped") => End::Stopped,
        Some(_) | None => End::Failed,
    };
    if let Some(exit) = line.exit {
        for pod in &mut job.pods {
            pod.life = PodLife::Ended { exit, told: true };
        }
    }
    job.finish(end, released, wall);
}
