//! `spotkeeper logs JOB [-f]`: what a node of an attempt prints. With `-f` it goes on, over the
//! attempts that follow, until the job is over.

use super::cancel::is_over;
use super::output::{Format, as_json};
use super::text::{self, Lines, plain};
use super::{Console, Exit, Failure};
use crate::cli::client::Client;
use crate::model::view::LogView;
use futures_util::StreamExt as _;
use serde_json::json;
use signal_hook::consts::SIGINT;
use std::time::Duration;

/// Time between two looks: each costs two calls of the API.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(3);

/// Arguments of `logs`.
#[derive(Debug, Clone, clap::Args)]
pub struct LogsArgs {
    /// The job
    pub job: String,
    /// Go on until the job is over, or until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,
    /// This attempt [default: the newest]
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// The node: its place among the pods that DLC names
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub rank: u32,
    /// No more than this many of the last lines to begin with
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
}

/// Shows a log.
pub async fn logs(args: &LogsArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if args.follow && console.format == Format::Json {
        let why = "`-f` has no end that would close a document: use `-o jsonl`";
        return Err(Failure::Usage(why.to_owned()));
    }
    let client = console.client()?;
    let first = look(args, args.attempt, &client).await?;
    if console.format == Format::Json {
        let json = as_json(&first.1, console.format).unwrap_or_default();
        write!(console.out, "{json}")?;
        return Ok(Exit::Done);
    }
    let mut seen = first.0;
    announce(&seen, console)?;
    let begin = seen.lines.len().saturating_sub(args.tail.unwrap_or(usize::MAX));
    print(&seen, begin, console)?;
    if !args.follow {
        return Ok(Exit::Done);
    }
    let mut interrupts = signal_hook_tokio::Signals::new([SIGINT])?;
    loop {
        if is_last(args, &seen, &client).await? {
            return Ok(Exit::Done);
        }
        tokio::select! {
            _ = interrupts.next() => return Ok(Exit::Done),
            () = tokio::time::sleep(FOLLOW_INTERVAL) => {}
        }
        // An attempt that has no pod yet has nothing to show; what lasts is told by `ps`.
        let Ok((now, _)) = look(args, args.attempt, &client).await else { continue };
        if now.attempt == seen.attempt {
            print(&now, unseen(&seen.lines, &now.lines), console)?;
        } else {
            // What the one before printed last.
            if let Ok((rest, _)) = look(args, Some(seen.attempt), &client).await {
                print(&rest, unseen(&seen.lines, &rest.lines), console)?;
            }
            announce(&now, console)?;
            print(&now, 0, console)?;
        }
        seen = now;
    }
}

async fn look(
    args: &LogsArgs,
    attempt: Option<u32>,
    client: &Client,
) -> Result<(LogView, serde_json::Value), Failure> {
    let mut query = vec![("rank", args.rank.to_string())];
    query.extend(attempt.map(|no| ("attempt", no.to_string())));
    let answer = client.of_job::<LogView>(&args.job, &["logs"], &query).await?;
    Ok((answer.view, answer.json))
}

/// Whether nothing comes after what was seen.
async fn is_last(args: &LogsArgs, seen: &LogView, client: &Client) -> Result<bool, Failure> {
    if seen.is_open {
        return Ok(false);
    }
    if args.attempt.is_some() {
        return Ok(true);
    }
    let rows = client.rows(std::slice::from_ref(&args.job)).await?;
    Ok(rows.iter().all(is_over))
}

/// Where in `now` the lines begin that were not in `before`. Both are the last lines of one log.
pub fn unseen(before: &[String], now: &[String]) -> usize {
    let overlap = (0..before.len()).map(|from| &before[from..]).find(|end| now.starts_with(end));
    overlap.map_or(0, <[String]>::len)
}

/// `--- attempt 3 (dlc1abc), pod 0, from step 12000`.
fn announce(view: &LogView, console: &mut Console<'_>) -> Result<(), Failure> {
    let from = view.from_step.map_or(String::new(), |step| format!(", from step {step}"));
    let (no, rank) = (view.attempt, view.rank);
    let cut = if view.is_cut { "; older lines are left out" } else { "" };
    console.remark(&format!("--- attempt {no} ({}), pod {rank}{from}{cut}", plain(&view.id)))
}

fn print(view: &LogView, begin: usize, console: &mut Console<'_>) -> Result<(), Failure> {
    for line in view.lines.iter().skip(begin) {
        match console.format {
            Format::Jsonl => {
                let line = json!({ "attempt": view.attempt, "rank": view.rank, "line": line });
                writeln!(console.out, "{}", text::json(&line, Lines::One))?;
            }
            Format::Json | Format::Table | Format::Wide | Format::Name => {
                writeln!(console.out, "{}", plain(line))?;
            }
        }
    }
    console.out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_shown_once_though_the_window_moves() {
        let lines = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        for (before, now, fresh) in [
            ("", "abc", 0),
            ("abc", "abc", 3),
            ("abc", "abcd", 3),
            ("abcd", "cdef", 2),
            ("aaaa", "aaaa", 4),
            ("abc", "xyz", 0),
            ("abc", "", 0),
        ] {
            assert_eq!(unseen(&lines(before), &lines(now)), fresh, "{before} {now}");
        }
    }
}
