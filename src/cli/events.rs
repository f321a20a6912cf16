//! `spotkeeper events [JOB]`: what happened, one line each.

use super::output::{Format, Moment};
use super::{Console, Exit, Failure};
use crate::cli::client::Client;
use crate::cli::text::{self, Lines, plain};
use crate::config::duration;
use crate::model::time::WallTime;
use crate::model::view::EventView;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;
use std::time::Duration;

/// Time between two looks for new events.
const FOLLOW_INTERVAL: Duration = Duration::from_secs(1);
/// Events in one JSON document; `-o jsonl` has no limit.
const DOCUMENT_LIMIT: usize = 100_000;
/// Columns that the word takes; the longest ones take more.
const WORD_COLUMNS: usize = 12;

/// Arguments of `events`.
#[derive(Debug, Clone, clap::Args)]
pub struct EventsArgs {
    /// The job [default: all jobs]
    pub job: Option<String>,
    /// Go on showing events as they happen
    #[arg(short, long)]
    pub follow: bool,
    /// Only events of the last while, such as `2h`
    #[arg(long, value_name = "DURATION", value_parser = duration_argument)]
    pub since: Option<Duration>,
}

/// A duration on the command line, read as in the files.
pub fn duration_argument(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|fault| {
        match fault {
            duration::Fault::NoUnit => "a duration has a unit: `90s`, `15m`, `2h`",
            duration::Fault::Unreadable => "not a duration: write `90s`, `15m`, `2h`",
            duration::Fault::TooLong => "too long",
        }
        .to_owned()
    })
}

/// Shows events.
pub async fn events(args: &EventsArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    if args.follow && console.format == Format::Json {
        let why = "`-f` never ends and one JSON document does: use `-o jsonl`";
        return Err(Failure::Usage(why.into()));
    }
    let client = console.client()?;
    let after = show_new(args, &client, 0, console).await?;
    if !args.follow {
        return Ok(Exit::Done);
    }
    let mut interrupts = signal_hook_tokio::Signals::new([SIGINT])
        .map_err(|cause| Failure::Process { doing: "signals cannot be waited for", cause })?;
    let mut after = after;
    loop {
        tokio::select! {
            _ = interrupts.next() => return Ok(Exit::Done),
            () = tokio::time::sleep(FOLLOW_INTERVAL) => {}
        }
        after = show_new(args, &client, after, console).await?;
    }
}

/// Shows everything after `after`, page by page; returns where to go on.
async fn show_new(
    args: &EventsArgs,
    client: &Client,
    mut after: u64,
    console: &mut Console<'_>,
) -> Result<u64, Failure> {
    let since = args.since.map(|ago| console.moment.now.minus(ago));
    let (mut document, mut gap) = (Vec::new(), false);
    loop {
        let page = client.events(args.job.as_deref(), after).await?;
        gap |= page.view.gap;
        let values = page.json.get("events").and_then(Value::as_array);
        for (event, value) in page.view.events.iter().zip(values.into_iter().flatten()) {
            if !happened_since(event, since) {
                continue;
            }
            match console.format {
                Format::Json => document.push(value.clone()),
                Format::Jsonl => writeln!(console.out, "{}", text::json(value, Lines::One))?,
                Format::Table | Format::Wide => {
                    write!(console.out, "{}", event_line(event, &console.moment))?;
                }
                Format::Name => writeln!(console.out, "{}", plain(&event.word))?,
            }
        }
        if document.len() > DOCUMENT_LIMIT {
            return Err(Failure::Usage(format!(
                "more than {DOCUMENT_LIMIT} events: use `-o jsonl`, a job, or `--since`"
            )));
        }
        // The place in the log grows with each page: a daemon for which it does not ends the walk.
        if page.view.events.is_empty() || page.view.next_after <= after {
            after = after.max(page.view.next_after);
            break;
        }
        after = page.view.next_after;
    }
    if console.format == Format::Json {
        let whole = crate::api::wire::document(
            &json!({ "events": document, "next_after": after, "gap": gap }),
        );
        writeln!(console.out, "{}", text::json(&whole, Lines::Many))?;
    }
    console.out.flush()?;
    if gap && args.since.is_none() {
        console.remark("older events are trimmed: they are no longer in the log")?;
    }
    Ok(after)
}

fn happened_since(event: &EventView, since: Option<WallTime>) -> bool {
    match (since, WallTime::parse(&event.at)) {
        (Some(since), Some(at)) => at >= since,
        // An event whose time cannot be read is shown rather than lost.
        (Some(_), None) | (None, _) => true,
    }
}

/// `02:14:07  RELEASED      name  attempt 7  text`.
pub fn event_line(event: &EventView, moment: &Moment) -> String {
    let run = if event.run > 1 { format!(" (run {})", event.run) } else { String::new() };
    let attempt = event.attempt.map_or(String::new(), |no| format!("  attempt {no}"));
    let at = moment.clock(&event.at);
    let (word, name, text) = (plain(&event.word), plain(&event.job), plain(&event.text));
    let line = format!("{at}  {word:<WORD_COLUMNS$}  {name}{run}{attempt}  {text}");
    line.trim_end().to_owned() + "\n"
}
