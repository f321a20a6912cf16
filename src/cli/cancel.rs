//! `spotkeeper cancel`: stops jobs for good. Asks first: running work is lost by it.

use super::act::send;
use super::asked::{is_stopped, write_down};
use super::output::seconds;
use super::{Console, Exit, Failure};
use crate::model::handle::ActVerb;
use crate::model::view::JobRow;
use crate::store::asked::{Names, Wish};

/// Arguments of `cancel`.
#[derive(Debug, Clone, clap::Args)]
pub struct CancelArgs {
    /// The jobs
    #[arg(required_unless_present = "all", conflicts_with = "all", value_name = "JOB")]
    pub jobs: Vec<String>,
    /// All jobs that are not over
    #[arg(long)]
    pub all: bool,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// Cancels.
pub async fn cancel(args: &CancelArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if !args.yes {
        console.must_be_askable("cancel", "-y")?;
    }
    let client = console.client()?;
    let found = if args.all {
        let all = client.jobs().await.map(|answer| answer.view.jobs);
        all.map(|jobs| jobs.into_iter().filter(|row| !is_over(row)).collect())
    } else {
        client.rows(&args.jobs).await
    };
    let rows: Vec<JobRow> = match found {
        Ok(rows) => rows,
        Err(failure) => return cancel_at_start(args, failure, console),
    };
    if rows.is_empty() {
        console.remark("No jobs to cancel.")?;
        return Ok(Exit::Done);
    }
    if !args.yes && !agreed("cancel", args.all, &rows, console)? {
        console.remark("Nothing was cancelled.")?;
        return Ok(Exit::Error);
    }
    // Names, also for `--all`: a job that came in the meantime was not asked about.
    let mut names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
    names.dedup();
    send(&client, names, ActVerb::Cancel, console).await
}

/// No daemon runs, or none can be asked.
fn cancel_at_start(
    args: &CancelArgs,
    failure: Failure,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    if !args.yes && is_stopped(&failure, console) {
        let what = if args.all {
            "all jobs that are not over".to_owned()
        } else {
            super::text::plain(&args.jobs.join(", ")).into_owned()
        };
        let question = format!("No daemon runs. Cancel {what} when it starts? [y/N]");
        let typed = console.ask("cancel", "-y", &question)?;
        if !matches!(typed.to_lowercase().as_str(), "y" | "yes") {
            console.remark("Nothing was cancelled.")?;
            return Ok(Exit::Error);
        }
    }
    let names = if args.all { Names::All } else { Names::These(args.jobs.clone()) };
    write_down(failure, Wish::Cancel, names, console)
}

/// Asks whether these are to be cancelled; for those that nobody named, by their number.
pub(super) fn agreed(
    verb: &str,
    by_number: bool,
    rows: &[JobRow],
    console: &mut Console<'_>,
) -> Result<bool, Failure> {
    let asked = question(rows);
    if by_number && rows.len() > 1 {
        let number = rows.len().to_string();
        let typed = console.ask(verb, "-y", &format!("{asked} Type the number of jobs:"))?;
        return Ok(typed == number);
    }
    let typed = console.ask(verb, "-y", &format!("{asked} [y/N]"))?;
    Ok(matches!(typed.to_lowercase().as_str(), "y" | "yes"))
}

/// `Cancel 3 jobs (2 running, the longest for 2h11m, up to 14m of unsaved work): a, b, c?`
pub fn question(rows: &[JobRow]) -> String {
    /// Names that are listed; more are counted.
    const NAMES_SHOWN: usize = 10;
    let runs = |row: &&JobRow| matches!(row.phase.as_str(), "RUNNING" | "STALLED");
    let running = rows.iter().filter(runs).count();
    let longest = rows.iter().filter_map(|row| row.up_s).max();
    let longest =
        longest.map_or(String::new(), |s| format!(", the longest for {}", seconds(Some(s))));
    let at_risk = rows.iter().filter_map(|row| row.at_risk_s).max();
    let at_risk =
        at_risk.map_or(String::new(), |s| format!(", up to {} of unsaved work", seconds(Some(s))));
    let plural = if rows.len() == 1 { "" } else { "s" };
    let mut names: Vec<&str> = rows.iter().take(NAMES_SHOWN).map(|row| row.name.as_str()).collect();
    if rows.len() > NAMES_SHOWN {
        names.push("…");
    }
    let names = names.join(", ");
    let text = format!(
        "Cancel {} job{plural} ({running} running{longest}{at_risk}): {names}?",
        rows.len()
    );
    super::text::plain(&text).into_owned()
}

/// Whether nothing more happens to a job. While the machine of a decided result is still held, the
/// phase is that of the result, and the job is not over.
pub fn is_over(row: &JobRow) -> bool {
    is_phase_of_end(&row.phase) && row.vendor_status.is_none()
}

/// Whether this is the phase of a result.
pub fn is_phase_of_end(phase: &str) -> bool {
    matches!(phase, "SUCCEEDED" | "FAILED" | "CANCELLED")
}
