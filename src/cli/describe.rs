//! `spotkeeper describe JOB`: everything about one job on one page.

use super::events::event_line;
use super::output::{
    Column, Format, Moment, Page, Style, as_json, coloured, or_dash, seconds, step, table,
};
use super::{Console, Exit, Failure};
use crate::api::wire::BodyDocument;
use crate::cli::text::{self, Lines, plain};
use crate::model::view::{AttemptView, JobPage, WaitingView};
use std::borrow::Cow;
use std::fmt::Write as _;

/// Arguments of `describe`.
#[derive(Debug, Clone, clap::Args)]
pub struct DescribeArgs {
    /// The job
    pub job: String,
    /// Show the CreateJob body of the next attempt instead, secrets left out
    #[arg(long)]
    pub body: bool,
}

/// Characters of a digest that are shown.
const DIGEST_SHOWN: usize = 12;

const ATTEMPTS: &[Column] = &[
    Column { head: "NO", widest: 0, goes: 0 },
    Column { head: "STATE", widest: 0, goes: 0 },
    Column { head: "VERDICT", widest: 0, goes: 0 },
    Column { head: "FROM", widest: 0, goes: 2 },
    Column { head: "RAN", widest: 0, goes: 3 },
    Column { head: "ENDED", widest: 0, goes: 1 },
    Column { head: "DLC ID", widest: 0, goes: 4 },
];

/// Shows one job.
pub async fn describe(args: &DescribeArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let client = console.client()?;
    if args.body {
        let body = client.of_job::<BodyDocument>(&args.job, &["body"], &[]).await?;
        let text = as_json(&body.json, console.format)
            .unwrap_or_else(|| text::json(&body.view.body, Lines::Many) + "\n");
        write!(console.out, "{text}")?;
        return Ok(Exit::Done);
    }
    let page = client.of_job::<JobPage>(&args.job, &[], &[]).await?;
    match as_json(&page.json, console.format) {
        Some(json) => write!(console.out, "{json}")?,
        None if console.format == Format::Name => {
            writeln!(console.out, "{}", plain(&page.view.row.name))?;
        }
        None => {
            let text = render(&page.view, console.width, console.style, &console.moment);
            write!(console.out, "{text}")?;
        }
    }
    Ok(Exit::Done)
}

/// The page of one job.
pub fn render(job: &JobPage, width: Option<u16>, style: Style, moment: &Moment) -> String {
    let row = &job.row;
    let mut page = Page::default();
    let mark = if row.stale { " !" } else { "" };
    let phase = plain(&row.phase);
    page.raw("Job", &format!("{}  {}{mark}", plain(&row.name), coloured(&phase, style)));
    if row.run > 1 {
        page.line("Run", &row.run.to_string());
    }
    page.line("Why", &row.why);
    page.line("Next", &row.next);
    page.line("Waiting", &job.waiting.as_ref().map_or(String::new(), waiting));
    page.list("Held by", job.holds.iter().map(String::as_str));
    let file = if row.managed { "" } else { "; its job file is gone" };
    let seen =
        row.last_look_s.map_or("not seen yet".into(), |s| format!("seen {} ago", seconds(Some(s))));
    page.line("Target", &format!("{}, {seen}{file}", row.target));
    page.line("Status", row.vendor_status.as_deref().unwrap_or_default());
    if row.up_s.is_some() {
        page.line("Up", &seconds(row.up_s));
    }
    page.line("Step", &step(row.step));
    progress(&mut page, job);
    page.line(
        "Checkpoints",
        job.checkpoints.as_deref().unwrap_or("none: every end starts at zero"),
    );
    page.line(
        "Attempts",
        &format!(
            "{}, of these {} released and {} ended otherwise; ran {} in all",
            row.attempts,
            row.releases,
            row.errors,
            seconds(Some(row.ran_s)),
        ),
    );
    if row.restarts > 0 {
        page.line("Restarts", &format!("{} by the platform, in place", row.restarts));
    }
    page.line("Spec", &job.spec.chars().take(DIGEST_SHOWN).collect::<String>());
    if !job.attempts.is_empty() {
        let rows: Vec<Vec<Cow<'_, str>>> =
            job.attempts.iter().map(|attempt| cells(attempt, moment)).collect();
        page.block("\n").block(&table(ATTEMPTS, &rows, width));
    }
    if !job.events.is_empty() {
        page.block("\n");
        for event in &job.events {
            page.block(&event_line(event, moment));
        }
    }
    page.text()
}

/// How an attempt waits: the limit, what it was asked for with, and whether it can ever run.
pub fn waiting(waiting: &WaitingView) -> String {
    let mut text = format!("{} for {}", plain(&waiting.phase), seconds(Some(waiting.waited_s)));
    if waiting.limit_s.is_some() {
        let _ = write!(text, ", the limit is {}", seconds(waiting.limit_s));
    }
    if let Some(bid) = &waiting.bid {
        let _ = write!(text, "; bid {}", plain(bid));
    }
    if waiting.placements > 0 {
        let _ = write!(text, "; placement {} of {}", waiting.placement, waiting.placements);
    }
    if let Some(why) = &waiting.never {
        let _ = write!(text, "; it can never run: {}", plain(why));
    }
    text
}

/// How it saves, and what an end would lose.
fn progress(page: &mut Page, job: &JobPage) {
    let (row, progress) = (&job.row, &job.progress);
    if row.checkpoint_age_s.is_some() {
        page.line("Saved", &format!("{} ago", seconds(row.checkpoint_age_s)));
    }
    if row.at_risk_s.is_some() {
        page.line("At risk", &format!("{} of work", seconds(row.at_risk_s)));
    }
    let steps = |steps: Option<u64>| steps.map_or(String::new(), |n| format!(" ({n} steps)"));
    let every = progress
        .every_s
        .map(|s| format!("a checkpoint every {}{}", seconds(Some(s)), steps(progress.every_steps)));
    let speed = progress.steps_per_hour.map(|n| format!("{n} steps an hour"));
    page.line("Pace", &[speed, every].into_iter().flatten().collect::<Vec<_>>().join("; "));
    page.line("Not seen", &progress.note);
    page.line("Advice", progress.advice.as_ref().map_or("", |advice| &advice.text));
}

fn cells<'v>(attempt: &'v AttemptView, moment: &Moment) -> Vec<Cow<'v, str>> {
    let state = match &attempt.status {
        Some(status) => plain(status),
        None => plain(&attempt.state),
    };
    let stop = if attempt.stop_asked && attempt.ended.is_none() { ", stop asked" } else { "" };
    let restarts = match attempt.restarts {
        0 => String::new(),
        n => format!(", restarted {n}x"),
    };
    vec![
        attempt.no.to_string().into(),
        format!("{state}{restarts}{stop}").into(),
        attempt.verdict.as_ref().map_or("-".into(), |verdict| or_dash(&verdict.cause)),
        from(attempt).into(),
        seconds(attempt.ran_s).into(),
        attempt.ended.as_ref().map_or("-".into(), |at| moment.clock(at).into()),
        attempt.id.as_deref().map_or("-".into(), or_dash),
    ]
}

/// What an attempt started from: `zero`, `step 31000`, or a path without a step.
pub fn from(attempt: &AttemptView) -> String {
    match (attempt.from_step, &attempt.from_path) {
        (Some(step), _) => format!("step {step}"),
        (None, Some(path)) => plain(path).into_owned(),
        (None, None) => "zero".into(),
    }
}
