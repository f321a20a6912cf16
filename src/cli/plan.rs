//! `spotkeeper plan [FILE..]`: what job files change of the jobs on record. Changes nothing.

use super::cancel::is_over;
use super::check;
use super::output::as_json;
use super::text::plain;
use super::{Console, Exit, Failure};
use crate::api::wire::{API_VERSION, BodyDocument};
use crate::cli::client::Client;
use crate::config::plan::{Change, Known, Plan, Wanted, plan as compare};
use crate::config::set::JobSet;
use crate::dlc::redact::hide_secrets;
use crate::model::ids::{Digest, JobKey, JobName};
use crate::model::spec::JobSpec;
use crate::model::view::{JobPage, JobRow};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Fields of a changed spec that are named; more are counted.
const FIELDS_SHOWN: usize = 8;

/// Arguments of `plan`.
#[derive(Debug, Clone, clap::Args)]
pub struct PlanArgs {
    /// Job files or folders of them [default: the jobs folder of the daemon file]
    pub files: Vec<PathBuf>,
}

/// Compares, and shows the differences.
pub async fn plan(args: &PlanArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let (set, refused) = check::read(&args.files, console)?;
    let client = console.client()?;
    let plan = planned(&client, &set, args.files.is_empty()).await?;
    match as_json(&document(&plan), console.format) {
        Some(json) => write!(console.out, "{json}")?,
        None => write!(console.out, "{}", render(&plan))?,
    }
    if let Some(exit) = refused {
        return Ok(exit);
    }
    Ok(if plan.changes.is_empty() { Exit::Done } else { Exit::Differences })
}

/// What the files of `set` change of the daemon's jobs.
pub(super) async fn planned(
    client: &Client,
    set: &JobSet,
    is_whole_folder: bool,
) -> Result<Plan, Failure> {
    let mut known = Vec::new();
    for row in newest(client.jobs().await?.view.jobs) {
        known.push(on_record(client, row).await?);
    }
    let wanted =
        set.accepted.iter().map(|(_, spec)| wanted(spec)).collect::<Result<Vec<_>, _>>()?;
    let rejected: Vec<_> = set.rejected.iter().filter_map(|(_, name)| name.clone()).collect();
    // A file whose name cannot be read may be anybody's.
    let all_files = is_whole_folder && set.whole && rejected.len() == set.rejected.len();
    Ok(compare(&wanted, &rejected, &known, all_files))
}

/// The newest run of each name.
fn newest(rows: Vec<JobRow>) -> Vec<JobRow> {
    let mut newest: BTreeMap<String, JobRow> = BTreeMap::new();
    for row in rows {
        if newest.get(&row.name).is_none_or(|other| other.run < row.run) {
            newest.insert(row.name.clone(), row);
        }
    }
    newest.into_values().collect()
}

async fn on_record(client: &Client, row: JobRow) -> Result<Known, Failure> {
    let page = client.of_job::<JobPage>(&row.name, &[], &[]).await?.view;
    let body = client.of_job::<BodyDocument>(&row.name, &["body"], &[]).await;
    // One that could not be sent now has none to show.
    let spec = body.ok().map(|body| body.view.spec).filter(|spec| !spec.is_null());
    let name = JobName::new(&row.name).map_err(|error| Failure::Look(error.to_string()))?;
    Ok(Known {
        key: JobKey { name, run: row.run },
        spec,
        digest: page.spec,
        is_over: is_over(&row),
        open: page.attempts.first().filter(|one| one.ended.is_none()).map(|one| one.no),
        is_unmanaged: !row.managed,
    })
}

fn wanted(spec: &JobSpec) -> Result<Wanted, Failure> {
    let unreadable = |error: serde_json::Error| Failure::Look(error.to_string());
    let digest = Digest::of(&serde_json::to_vec(spec).map_err(unreadable)?).0;
    let shown = hide_secrets(&serde_json::to_value(spec).map_err(unreadable)?);
    Ok(Wanted { spec: spec.clone(), shown, digest })
}

/// `plan -o json`.
pub fn document(plan: &Plan) -> Value {
    let changes: Vec<Value> = plan
        .changes
        .iter()
        .map(|(key, change)| {
            let fields = match change {
                Change::Edited { fields, .. } => fields.clone(),
                Change::New { .. }
                | Change::NewRun
                | Change::Managed
                | Change::Gone { .. }
                | Change::Refused(_) => Vec::new(),
            };
            json!({
                "job": key.name.as_str(),
                "run": key.run,
                "change": change.word(),
                "fields": fields,
                "text": text(change),
            })
        })
        .collect();
    json!({ "apiVersion": API_VERSION, "changes": changes, "unchanged": plan.unchanged })
}

/// `~ train  edited: ...`, one line a job, and the sum.
pub fn render(plan: &Plan) -> String {
    let mut page = String::new();
    for (key, change) in &plan.changes {
        let sign = match change {
            Change::New { .. } | Change::NewRun => '+',
            Change::Edited { .. } | Change::Managed => '~',
            Change::Gone { .. } => '-',
            Change::Refused(_) => '!',
        };
        // Writing to a text cannot fail.
        let _ = writeln!(page, "{sign} {key}  {}", plain(&text(change)));
    }
    let count = |words: &[&str]| {
        plan.changes.iter().filter(|(_, change)| words.contains(&change.word())).count()
    };
    let _ = writeln!(
        page,
        "Plan: {} to add, {} to change, {} without a file, {} refused; {} unchanged.",
        count(&["new", "new_run"]),
        count(&["edited", "managed"]),
        count(&["gone"]),
        count(&["refused"]),
        plan.unchanged,
    );
    page
}

fn text(change: &Change) -> String {
    let goes_on = |open: &Option<u32>| match open {
        Some(no) => format!("attempt {no} goes on as it is"),
        None => "nothing of it runs".to_owned(),
    };
    match change {
        Change::New { waits_for: None } => "a new job: it is submitted".to_owned(),
        Change::New { waits_for: Some(other) } => {
            format!("a new job: it waits until `{other}`, which holds its checkpoints, is over")
        }
        Change::NewRun => "a new run: it is submitted".to_owned(),
        Change::Managed => "its file is back".to_owned(),
        Change::Gone { open } => {
            format!("its file is gone: {}; `apply --prune` ends the job", goes_on(open))
        }
        Change::Refused(why) => format!("refused: {why}"),
        Change::Edited { fields, open, is_over } => {
            let mut shown = fields.iter().take(FIELDS_SHOWN).cloned().collect::<Vec<_>>();
            if fields.len() > FIELDS_SHOWN {
                shown.push(format!("{} more", fields.len() - FIELDS_SHOWN));
            }
            if fields.is_empty() {
                shown.push("a value that is kept hidden".to_owned());
            }
            let shown = shown.join(", ");
            if *is_over {
                return format!("{shown}: the job is over, raise `run` to begin again");
            }
            format!("{shown}: from the next attempt on; {}", goes_on(open))
        }
    }
}
