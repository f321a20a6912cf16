//! `spotkeeper wait JOB..`: for scripts. The exit code says how it ended.

use super::cancel::{is_over, is_phase_of_end};
use super::{Console, Exit, Failure};
use crate::cli::client::Client;
use crate::cli::events::duration_argument;
use crate::cli::text::plain;
use crate::model::time::BootTime;
use crate::model::view::JobRow;
use crate::service::clock::Clock;
use futures_util::StreamExt as _;
use signal_hook::consts::SIGINT;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the daemon may be away, for a restart, before the wait is given up.
const DAEMON_AWAY_LIMIT: Duration = Duration::from_secs(60);

/// Arguments of `wait`.
#[derive(Debug, Clone, clap::Args)]
pub struct WaitArgs {
    /// The jobs
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// What to wait for: `ended`, or a phase such as `succeeded` or `running`
    #[arg(long = "for", default_value = "ended", value_name = "WORD", value_parser = goal)]
    pub goal: Goal,
    /// Give up after this while; the jobs go on
    #[arg(long, value_name = "DURATION", value_parser = duration_argument)]
    pub timeout: Option<Duration>,
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// Any end.
    Ended,
    /// One phase.
    Phase(&'static str),
}

/// The phases that can be waited for.
const PHASES: &[&str] = &[
    "PENDING",
    "SUBMITTING",
    "WAITING",
    "STARTING",
    "RUNNING",
    "STALLED",
    "RECOVERING",
    "BACKOFF",
    "STOPPING",
    "PAUSED",
    "BLOCKED",
    "SUCCEEDED",
    "FAILED",
    "CANCELLED",
    "LOST",
];

fn goal(text: &str) -> Result<Goal, String> {
    if text.eq_ignore_ascii_case("ended") {
        return Ok(Goal::Ended);
    }
    match PHASES.iter().find(|phase| phase.eq_ignore_ascii_case(text)) {
        Some(phase) => Ok(Goal::Phase(phase)),
        None => Err(format!("not `ended` and not a phase ({})", PHASES.join(", ").to_lowercase())),
    }
}

/// How far one job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Still on its way.
    Open,
    /// What was waited for.
    Reached,
    /// Ended, and not as was waited for.
    Missed,
}

/// How far a job in `phase` is.
pub fn progress(row: &JobRow, goal: &Goal) -> Progress {
    let phase = row.phase.as_str();
    if is_phase_of_end(phase) && !is_over(row) {
        // The phase of its result, and the machine is still held.
        return Progress::Open;
    }
    match goal {
        Goal::Ended if phase == "SUCCEEDED" => Progress::Reached,
        Goal::Phase(wanted) if phase == *wanted => Progress::Reached,
        // It runs, only nothing moves.
        Goal::Phase("RUNNING") if phase == "STALLED" => Progress::Reached,
        Goal::Ended | Goal::Phase(_) if is_over(row) => Progress::Missed,
        Goal::Ended | Goal::Phase(_) => Progress::Open,
    }
}

/// Waits.
pub async fn wait(args: &WaitArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let mut interrupts = signal_hook_tokio::Signals::new([SIGINT])
        .map_err(|cause| Failure::Process { doing: "signals cannot be waited for", cause })?;
    let exit = tokio::select! {
        ended = until_ended(args, console) => Some(ended?),
        _ = interrupts.next() => None,
    };
    if let Some(exit) = exit {
        return Ok(exit);
    }
    let jobs = args.jobs.join(" ");
    console.remark(&plain(&format!(
        "Interrupted. What was waited for goes on; stop it with: spotkeeper cancel {jobs}"
    )))?;
    Ok(Exit::Interrupted)
}

async fn until_ended(args: &WaitArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let (client, clock) = (console.client()?, Clock::new());
    let began = clock.now().boot;
    let mut seen_at = began;
    let mut reached: BTreeMap<String, Progress> = BTreeMap::new();
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    client.rows(&args.jobs).await?;
    loop {
        if let Some(rows) = rows(&client, args, &clock, &mut seen_at).await? {
            for row in newest_runs(&rows) {
                show_change(row, &mut shown, console)?;
                let progress = progress(row, &args.goal);
                // A phase that was reached and left again was reached.
                let known = reached.entry(row.name.clone()).or_insert(Progress::Open);
                if *known == Progress::Open {
                    *known = progress;
                }
            }
        }
        if !reached.is_empty() && reached.values().all(|p| *p != Progress::Open) {
            let missed = reached.values().any(|p| *p == Progress::Missed);
            return Ok(if missed { Exit::JobFailed } else { Exit::Done });
        }
        if args.timeout.is_some_and(|limit| clock.now().boot.since(began) >= limit) {
            let jobs = args.jobs.join(" ");
            return Err(Failure::TimedOut(format!("the time is over; {jobs}: still going on")));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The rows of the jobs; `None` while the daemon is away for a moment.
async fn rows(
    client: &Client,
    args: &WaitArgs,
    clock: &Clock,
    seen_at: &mut BootTime,
) -> Result<Option<Vec<JobRow>>, Failure> {
    let rows = client.rows(&args.jobs).await;
    let now = clock.now().boot;
    match rows {
        Ok(rows) => {
            *seen_at = now;
            Ok(Some(rows))
        }
        Err(failure)
            if failure.exit() == Exit::NotReachable && now.since(*seen_at) < DAEMON_AWAY_LIMIT =>
        {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

/// One row a name: the newest run is the one that goes on.
fn newest_runs(rows: &[JobRow]) -> Vec<&JobRow> {
    let mut newest: BTreeMap<&str, &JobRow> = BTreeMap::new();
    for row in rows {
        let known = newest.entry(&row.name).or_insert(row);
        if row.run >= known.run {
            *known = row;
        }
    }
    newest.into_values().collect()
}

fn show_change(
    row: &JobRow,
    shown: &mut BTreeMap<String, String>,
    console: &mut Console<'_>,
) -> Result<(), Failure> {
    if shown.get(&row.name) == Some(&row.phase) {
        return Ok(());
    }
    shown.insert(row.name.clone(), row.phase.clone());
    console.remark(plain(&format!("{}  {}  {}", row.name, row.phase, row.why)).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(phase: &str, vendor_status: Option<&str>) -> JobRow {
        JobRow {
            name: "job".to_owned(),
            run: 1,
            phase: phase.to_owned(),
            stale: false,
            last_look_s: None,
            why: String::new(),
            vendor_status: vendor_status.map(ToOwned::to_owned),
            step: None,
            checkpoint_age_s: None,
            at_risk_s: None,
            attempts: 1,
            releases: 0,
            errors: 0,
            restarts: 0,
            up_s: None,
            ran_s: 0,
            managed: true,
            target: "hangzhou".to_owned(),
            next: String::new(),
        }
    }

    #[test]
    fn ends_are_told_from_ends_that_were_wanted() {
        let phase = |word| Goal::Phase(word);
        for (now, wanted, far) in [
            ("RUNNING", Goal::Ended, Progress::Open),
            ("BLOCKED", Goal::Ended, Progress::Open),
            ("SUCCEEDED", Goal::Ended, Progress::Reached),
            ("FAILED", Goal::Ended, Progress::Missed),
            ("CANCELLED", Goal::Ended, Progress::Missed),
            ("RUNNING", phase("RUNNING"), Progress::Reached),
            ("STALLED", phase("RUNNING"), Progress::Reached),
            ("RUNNING", phase("STALLED"), Progress::Open),
            ("SUCCEEDED", phase("RUNNING"), Progress::Missed),
            ("CANCELLED", phase("CANCELLED"), Progress::Reached),
            ("WAITING", phase("CANCELLED"), Progress::Open),
        ] {
            assert_eq!(progress(&row(now, None), &wanted), far, "{now} {wanted:?}");
        }
        // The result is decided and the machine is still held: not over.
        for (now, status) in [("FAILED", "FailedReserving"), ("SUCCEEDED", "SucceededReserving")] {
            for wanted in [Goal::Ended, phase("RUNNING"), phase("SUCCEEDED"), phase("FAILED")] {
                assert_eq!(progress(&row(now, Some(status)), &wanted), Progress::Open, "{now}");
            }
        }
    }

    #[test]
    fn words_to_wait_for_are_checked() {
        assert_eq!(goal("Succeeded"), Ok(Goal::Phase("SUCCEEDED")));
        assert_eq!(goal("ended"), Ok(Goal::Ended));
        assert!(goal("done").is_err());
    }
}
