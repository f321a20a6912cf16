//! `spotkeeper apply`: waits until the daemon has taken the job files as they are; with `--prune` it
//! then cancels the jobs whose file is gone. Nothing else is stopped by it.

use super::act::render as render_acts;
use super::cancel::{agreed, is_over};
use super::check;
use super::output::as_json;
use super::plan::{document, planned, render};
use super::{Console, Exit, Failure};
use crate::cli::client::Client;
use crate::config::plan::{Change, Plan};
use crate::config::set::JobSet;
use crate::model::handle::ActVerb;
use crate::model::view::JobRow;
use serde_json::Value;
use std::time::Duration;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Looks until it is said that the daemon has not taken a file. It reads the folder twice a minute
/// where it hears of no change.
const LOOKS: u32 = 130;

/// Arguments of `apply`.
#[derive(Debug, Clone, clap::Args)]
pub struct ApplyArgs {
    /// Cancel the jobs whose file is gone, too
    #[arg(long)]
    pub prune: bool,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

/// Applies.
pub(super) async fn apply(args: &ApplyArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if args.prune && !args.yes {
        console.must_be_askable("apply --prune", "-y")?;
    }
    let (set, refused) = check::read(&[], console)?;
    let client = console.client()?;
    let first = planned(&client, &set, true).await?;
    let left = taken(&client, &set, first.clone()).await?;
    let pruned = if args.prune { prune(args, &client, &left, console).await? } else { None };
    show(&first, pruned.as_ref(), console)?;
    if let Some(exit) = refused {
        return Ok(exit);
    }
    let late: Vec<_> = left.changes.iter().filter(|(_, change)| is_awaited(change)).collect();
    for (key, _) in &late {
        console.remark(&format!(
            "The daemon has not taken the file of {key} yet: see `spotkeeper doctor` and its log."
        ))?;
    }
    let is_refused = left.changes.iter().any(|(_, change)| matches!(change, Change::Refused(_)));
    Ok(if late.is_empty() && !is_refused { Exit::Done } else { Exit::Error })
}

/// Whether the daemon will take this up by itself.
fn is_awaited(change: &Change) -> bool {
    match change {
        Change::New { .. } | Change::NewRun | Change::Edited { .. } | Change::Managed => true,
        Change::Gone { .. } | Change::Refused(_) => false,
    }
}

/// Waits until nothing is awaited any more, or for long enough, and answers what is left.
async fn taken(client: &Client, set: &JobSet, mut left: Plan) -> Result<Plan, Failure> {
    for _ in 0..LOOKS {
        if !left.changes.iter().any(|(_, change)| is_awaited(change)) {
            break;
        }
        tokio::time::sleep(INTERVAL).await;
        left = planned(client, set, true).await?;
    }
    Ok(left)
}

/// Cancels what has no file; `None` if nothing was done.
async fn prune(
    args: &ApplyArgs,
    client: &Client,
    left: &Plan,
    console: &mut Console<'_>,
) -> Result<Option<Value>, Failure> {
    let gone: Vec<&str> = left
        .changes
        .iter()
        .filter(|(_, change)| matches!(change, Change::Gone { .. }))
        .map(|(key, _)| key.name.as_str())
        .collect();
    // The daemon has to say so, too: it and this reader may see two states of the folder.
    let rows: Vec<JobRow> = client
        .jobs()
        .await?
        .view
        .jobs
        .into_iter()
        .filter(|row| !row.managed && !is_over(row) && gone.contains(&row.name.as_str()))
        .collect();
    if rows.is_empty() {
        console.remark("No jobs without a file.")?;
        return Ok(None);
    }
    if !args.yes && !agreed("apply --prune", true, &rows, console)? {
        console.remark("Nothing was cancelled.")?;
        return Ok(None);
    }
    let mut names: Vec<String> = rows.into_iter().map(|row| row.name).collect();
    names.dedup();
    let done = client.act(names, ActVerb::Cancel).await?;
    if as_json(&Value::Null, console.format).is_none() {
        write!(console.out, "{}", render_acts(&done.view.done, console.style))?;
    }
    Ok(Some(done.json))
}

fn show(plan: &Plan, pruned: Option<&Value>, console: &mut Console<'_>) -> Result<(), Failure> {
    let mut whole = document(plan);
    whole["done"] = pruned.map_or_else(|| Value::Array(Vec::new()), |done| done["done"].clone());
    match as_json(&whole, console.format) {
        Some(json) => write!(console.out, "{json}")?,
        None => write!(console.out, "{}", render(plan))?,
    }
    Ok(())
}
