//! `spotkeeper ps`: the table of jobs.

use super::output::{Column, Format, Style, coloured, or_dash, seconds, step, table};
use super::{Console, Exit, Failure};
use crate::cli::text::{self, Lines, plain};
use crate::model::view::{DaemonView, JobRow};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Columns that WHY takes at most on a terminal; `describe` has the full text.
const WHY_COLUMNS: usize = 28;

const COLUMNS: &[Column] = &[
    Column { head: "NAME", widest: 0, goes: 0 },
    Column { head: "STATE", widest: 0, goes: 0 },
    Column { head: "WHY", widest: WHY_COLUMNS, goes: 1 },
    Column { head: "STEP", widest: 0, goes: 2 },
    Column { head: "CKPT", widest: 0, goes: 3 },
    Column { head: "TRY", widest: 0, goes: 4 },
    Column { head: "UP", widest: 0, goes: 5 },
    Column { head: "NEXT", widest: WHY_COLUMNS, goes: 6 },
    Column { head: "RISK", widest: 0, goes: 7 },
    Column { head: "RAN", widest: 0, goes: 8 },
    Column { head: "RUN", widest: 0, goes: 9 },
    Column { head: "TARGET", widest: 0, goes: 10 },
    Column { head: "STATUS", widest: 0, goes: 11 },
    Column { head: "SEEN", widest: 0, goes: 12 },
    Column { head: "FILE", widest: 0, goes: 13 },
];

/// How many of the columns the usual table has.
const USUAL: usize = 8;

/// Which columns are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The usual ones.
    Usual,
    /// All there are.
    Wide,
}

/// Shows the jobs.
pub async fn ps(console: &mut Console<'_>) -> Result<Exit, Failure> {
    let client = console.client()?;
    let jobs = client.jobs().await?;
    let rows = &jobs.view.jobs;
    match console.format {
        Format::Json => writeln!(console.out, "{}", text::json(&jobs.json, Lines::Many))?,
        Format::Jsonl => {
            let each = jobs.json.get("jobs").and_then(serde_json::Value::as_array);
            for row in each.into_iter().flatten() {
                writeln!(console.out, "{}", text::json(row, Lines::One))?;
            }
        }
        Format::Name => {
            for row in rows {
                writeln!(console.out, "{}", plain(&row.name))?;
            }
        }
        Format::Table | Format::Wide => {
            let faults = match client.daemon().await {
                Ok(daemon) => faults(&daemon.view),
                // The jobs are what was asked for, and they are there.
                Err(_) => String::new(),
            };
            if rows.is_empty() {
                let hint = "No jobs. Put a job file into the jobs folder; try `spotkeeper check`.";
                console.remark(&format!("{hint}{faults}"))?;
            } else {
                let wide = console.format == Format::Wide;
                let detail = if wide { Detail::Wide } else { Detail::Usual };
                write!(console.out, "{}", render(rows, detail, console.width, console.style))?;
                console.remark(&format!("\n{}{faults}", summary(rows)))?;
            }
        }
    }
    Ok(Exit::Done)
}

/// The table of `rows`.
pub fn render(rows: &[JobRow], detail: Detail, width: Option<u16>, style: Style) -> String {
    let columns = match detail {
        Detail::Usual => &COLUMNS[..USUAL],
        Detail::Wide => COLUMNS,
    };
    let cells: Vec<Vec<Cow<'_, str>>> = rows.iter().map(cells).collect();
    let text = table(columns, &cells, width);
    match style {
        Style::Plain => text,
        Style::Colour => in_colour(&text, rows),
    }
}

fn state(row: &JobRow) -> Cow<'_, str> {
    if row.stale { Cow::Owned(format!("{} !", plain(&row.phase))) } else { plain(&row.phase) }
}

fn cells(row: &JobRow) -> Vec<Cow<'_, str>> {
    vec![
        plain(&row.name),
        state(row),
        or_dash(&row.why),
        step(row.step).into(),
        row.checkpoint_age_s.map_or("-".into(), ago),
        format!("{}+{}", row.releases, row.errors).into(),
        seconds(row.up_s).into(),
        or_dash(&row.next),
        seconds(row.at_risk_s).into(),
        seconds(Some(row.ran_s)).into(),
        row.run.to_string().into(),
        or_dash(&row.target),
        row.vendor_status.as_deref().map_or("-".into(), or_dash),
        row.last_look_s.map_or("never".into(), ago),
        if row.managed { "there".into() } else { "gone".into() },
    ]
}

fn ago(s: u64) -> Cow<'static, str> {
    format!("{} ago", seconds(Some(s))).into()
}

/// Each line begins with the job's name, which is never cut: the phase is the word behind it.
fn in_colour(text: &str, rows: &[JobRow]) -> String {
    let mut lines = text.lines();
    let mut shown = lines.next().unwrap_or_default().to_owned() + "\n";
    for (line, row) in lines.zip(rows) {
        let (name, rest) = line.split_at(plain(&row.name).len().min(line.len()));
        let state = state(row);
        let rest = rest.replacen(state.as_ref(), &coloured(&state, Style::Colour), 1);
        let _ = writeln!(shown, "{name}{rest}");
    }
    shown
}

/// `5 jobs: 2 running, 1 waiting`.
pub fn summary(rows: &[JobRow]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.phase.as_str()).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts: Vec<String> = counts
        .iter()
        .map(|(phase, count)| format!("{count} {}", plain(phase).to_lowercase()))
        .collect();
    let plural = if rows.len() == 1 { "" } else { "s" };
    let mut text = format!("{} job{plural}: {}", rows.len(), counts.join(", "));
    let stale = rows.iter().filter(|row| row.stale).count();
    if stale > 0 {
        let _ = write!(text, "; {stale} not seen lately (!)");
    }
    text
}

/// What is wrong with targets and job files, a line each.
pub fn faults(daemon: &DaemonView) -> String {
    let mut text = String::new();
    for target in &daemon.targets {
        let name = plain(&target.name);
        match &target.fault {
            Some(fault) => {
                let last = target.last_sweep_s.map_or("never seen whole".into(), |s| {
                    format!("last seen whole {} ago", seconds(Some(s)))
                });
                let _ = write!(text, "\ntarget {name}: {}; {last}", plain(fault));
            }
            None if !target.verified => {
                let _ = write!(text, "\ntarget {name}: being compared with the store");
            }
            None => {}
        }
    }
    for error in &daemon.refused_files {
        let _ = write!(text, "\njob file not taken: {}", plain(error));
    }
    text
}
