//! `spotkeeper why JOB`: how the last attempt ended, how that was found out, what follows from it.

use super::describe::{from, waiting};
use super::output::{Format, Moment, Page, Style, as_json, coloured, seconds};
use super::{Console, Exit, Failure};
use crate::cli::text::plain;
use crate::model::view::{AttemptView, SuspectView, WhyView};
use serde_json::Value;

/// Arguments of `why`.
#[derive(Debug, Clone, clap::Args)]
pub struct WhyArgs {
    /// The job
    pub job: String,
    /// Explain this attempt [default: the last one that ended]
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
}

/// Explains an end.
pub async fn why(args: &WhyArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let query: Vec<(&str, String)> =
        args.attempt.iter().map(|no| ("attempt", no.to_string())).collect();
    let answer = console.client()?.of_job::<WhyView>(&args.job, &["why"], &query).await?;
    match as_json(&answer.json, console.format) {
        Some(json) => write!(console.out, "{json}")?,
        None if console.format == Format::Name => {
            writeln!(console.out, "{}", plain(&answer.view.row.name))?;
        }
        None => write!(console.out, "{}", render(&answer.view, console.style, &console.moment))?,
    }
    Ok(Exit::Done)
}

/// The explanation.
pub fn render(why: &WhyView, style: Style, moment: &Moment) -> String {
    let mut page = Page::default();
    match &why.attempt {
        Some(one) => attempt(&mut page, one, moment),
        None => {
            page.block("No attempt has ended yet.\n");
        }
    }
    checkpoint(&mut page, &why.checkpoint);
    page.list(
        "Suspect",
        why.suspects.iter().map(suspect).collect::<Vec<_>>().iter().map(String::as_str),
    );
    page.list("Others", why.others.iter().map(String::as_str));
    let row = &why.row;
    let reason = if row.why.is_empty() { String::new() } else { format!(": {}", plain(&row.why)) };
    page.raw("Now", &format!("{}{reason}", coloured(&plain(&row.phase), style)));
    page.line("Waiting", &why.waiting.as_ref().map_or(String::new(), waiting));
    page.list("Held by", why.holds.iter().map(String::as_str));
    // What the daemon names for BLOCKED is this very command.
    let named = row.phase != "BLOCKED" && !why.next.is_empty();
    page.line("Next", if named { &why.next } else { next_of(&row.phase) });
    let no_progress = match why.ends_without_progress {
        0 => "no end without progress".into(),
        1 => "1 end since the last new checkpoint".to_owned(),
        n => format!("{n} ends since the last new checkpoint"),
    };
    page.line("Budgets", &no_progress);
    page.text()
}

/// What follows in a phase for which the daemon names nothing.
fn next_of(phase: &str) -> &'static str {
    match phase {
        "SUBMITTING" | "WAITING" | "STARTING" | "RUNNING" | "STALLED" => {
            "the attempt is watched; what follows is decided when it ends"
        }
        "STOPPING" => "the end of what was asked to stop is awaited",
        "BLOCKED" => "a person mends what is said above; then `spotkeeper retry JOB`",
        _ => "nothing happens by itself",
    }
}

fn attempt(page: &mut Page, attempt: &AttemptView, moment: &Moment) {
    let id = attempt.id.as_deref().map_or(String::new(), |id| format!(" ({})", plain(id)));
    let ended = match &attempt.ended {
        Some(at) => format!("ended {}", moment.full(at)),
        None => "has not ended".to_owned(),
    };
    let verdict = attempt
        .verdict
        .as_ref()
        .map_or(String::new(), |verdict| format!(": {}", plain(&verdict.cause).to_uppercase()));
    page.block(&format!("Attempt {}{id} {ended}{verdict}\n", attempt.no));
    if let Some(verdict) = &attempt.verdict {
        page.list("  saw", verdict.evidence.iter().map(String::as_str));
        page.line("  rule", &verdict.rule);
    }
    let ran = match attempt.ran_s {
        Some(ran) => format!("{}, ran {}", from(attempt), seconds(Some(ran))),
        None => format!("{}, never ran", from(attempt)),
    };
    page.line("  from", &ran);
    if attempt.restarts > 0 {
        page.line("  restarts", &format!("{} by the platform, in place", attempt.restarts));
    }
}

fn suspect(suspect: &SuspectView) -> String {
    let step = suspect.step.map_or(String::new(), |step| format!("step {step} "));
    let attempts: Vec<String> = suspect.attempts.iter().map(ToString::to_string).collect();
    let (path, attempts) = (plain(&suspect.path), attempts.join(", "));
    format!("{step}({path}): attempts {attempts} died on it; `retry` clears it")
}

/// What the last look into the bucket chose and refused: the data of the CHECKPOINT event.
fn checkpoint(page: &mut Page, data: &Value) {
    if data.is_null() {
        return;
    }
    let place = |value: &Value| {
        let path = value.get("path").and_then(Value::as_str).unwrap_or("?");
        match value.get("step").and_then(Value::as_u64) {
            Some(step) => format!("step {step} ({path})"),
            None => path.to_owned(),
        }
    };
    // What was too large to be kept is not nothing.
    let Some(chosen) = data.get("chosen") else { return };
    let chosen = (!chosen.is_null()).then_some(chosen);
    page.line("Checkpoint", &chosen.map_or("none to go on from".into(), place));
    let refused = data.get("refused").and_then(Value::as_array).into_iter().flatten();
    let refused: Vec<String> = refused
        .map(|one| {
            let word = |key| one.get(key).and_then(Value::as_str).unwrap_or("?");
            format!("{}: {}, {}", place(one), word("verdict"), word("why"))
        })
        .collect();
    page.list("  refused", refused.iter().map(String::as_str));
}
