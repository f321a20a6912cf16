//! `spotkeeper pause`, `resume`, `retry` and `forget`, and what they share with `cancel` and `adopt`.

use super::asked::write_down;
use super::output::{Format, Style, as_json, coloured};
use super::{Console, Exit, Failure};
use crate::api::wire::ActDocument;
use crate::cli::client::{Answer, Client};
use crate::cli::text::plain;
use crate::model::checkpoint::ResumeFrom;
use crate::model::handle::ActVerb;
use crate::model::view::ActReport;
use crate::store::asked::{Names, Wish};
use std::fmt::Write as _;

/// Arguments of `pause`, `resume` and `forget`.
#[derive(Debug, Clone, clap::Args)]
pub struct ActArgs {
    /// The jobs
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
}

/// Arguments of `retry`.
#[derive(Debug, Clone, clap::Args)]
pub struct RetryArgs {
    /// The jobs
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Go on from this step of one job, though it be suspect, or from zero; what is newer is passed over
    #[arg(long, value_name = "STEP|fresh")]
    pub from: Option<ResumeFrom>,
}

/// Starts the named jobs again.
pub async fn retry(args: &RetryArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let verb = args.from.map_or(ActVerb::Retry, ActVerb::RetryFrom);
    if args.from.is_some() && args.jobs.len() > 1 {
        let why = "`--from` goes with one job: each has steps of its own";
        return Err(Failure::Usage(why.to_owned()));
    }
    act(&ActArgs { jobs: args.jobs.clone() }, verb, console).await
}

/// Does `verb` to the named jobs.
pub async fn act(
    args: &ActArgs,
    verb: ActVerb,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let client = console.client()?;
    match client.rows(&args.jobs).await {
        Ok(_) => send(&client, args.jobs.clone(), verb, console).await,
        Err(failure) => write_down(failure, wish(verb), Names::These(args.jobs.clone()), console),
    }
}

/// Sends the act, and shows what it did.
pub(super) async fn send(
    client: &Client,
    jobs: Vec<String>,
    verb: ActVerb,
    console: &mut Console<'_>,
) -> Result<Exit, Failure> {
    let done = client.act(jobs, verb).await?;
    show(&done, console)
}

/// What is written down for `verb` while no daemon runs.
fn wish(verb: ActVerb) -> Wish {
    match verb {
        ActVerb::Cancel => Wish::Cancel,
        ActVerb::Pause => Wish::Pause,
        ActVerb::Resume => Wish::Resume,
        ActVerb::Retry => Wish::Retry,
        ActVerb::RetryFrom(from) => Wish::RetryFrom(from),
        ActVerb::Forget => Wish::Forget,
    }
}

/// Shows what an act did.
pub(super) fn show(done: &Answer<ActDocument>, console: &mut Console<'_>) -> Result<Exit, Failure> {
    match as_json(&done.json, console.format) {
        Some(json) => write!(console.out, "{json}")?,
        None if console.format == Format::Name => {
            for report in &done.view.done {
                writeln!(console.out, "{}", plain(&report.job))?;
            }
        }
        None => write!(console.out, "{}", render(&done.view.done, console.style))?,
    }
    Ok(Exit::Done)
}

/// `name  PHASE  what was done`.
pub fn render(done: &[ActReport], style: Style) -> String {
    done.iter().fold(String::new(), |mut text, report| {
        let (name, phase) = (plain(&report.job), plain(&report.phase));
        let _ = writeln!(text, "{name}  {}  {}", coloured(&phase, style), plain(&report.text));
        text
    })
}
