//! `spotkeeper alert test`: sends a test message over the channels of the daemon file, now and from
//! this process. The daemon need not run, and what waits in its queue is left alone.

use super::output::{Format, as_json};
use super::text::plain;
use super::{Console, Exit, Failure};
use crate::alerts::{self, Message};
use crate::api::wire::document;
use crate::config::nearest::nearest;
use crate::config::{DAEMON_FILE, Severity, Surroundings, load_daemon};
use crate::model::alert::{Alert, Channel, TEST};
use crate::model::time::WallTime;
use crate::openapi::tls;
use std::path::Path;

/// What can be done with channels.
#[derive(Debug, Clone, clap::Subcommand)]
pub enum AlertVerb {
    /// Send a test message over one channel, or over all
    Test {
        /// The channel: NAME of [alerts.NAME]
        name: Option<String>,
    },
}

/// How one channel came out.
#[derive(Debug, serde::Serialize)]
struct Tried<'a> {
    channel: &'a str,
    kind: &'static str,
    delivered: bool,
    text: String,
}

/// Does what the verb says.
pub async fn alert(verb: &AlertVerb, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let AlertVerb::Test { name } = verb;
    let path = console.global.config.as_deref().unwrap_or(Path::new(DAEMON_FILE));
    let file = load_daemon(path, &Surroundings::of_this_process());
    let errors = file.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    for error in errors {
        writeln!(console.err, "{error}")?;
    }
    let Some(config) = file.accepted() else { return Ok(Exit::ConfigNotValid) };
    let names = || config.alerts.iter().map(|channel| channel.name.as_str());
    let chosen: Vec<&Channel> = config
        .alerts
        .iter()
        .filter(|channel| name.as_ref().is_none_or(|name| channel.name == *name))
        .collect();
    if chosen.is_empty() {
        return Err(Failure::Usage(match name {
            None => format!("{} has no [alerts.NAME]: nobody is told of anything", path.display()),
            Some(name) => {
                let near = nearest(name, names()).map(|near| format!("; did you mean `{near}`?"));
                let name = plain(name);
                format!(
                    "there is no [alerts.{name}] in {}{}",
                    path.display(),
                    near.unwrap_or_default()
                )
            }
        }));
    }
    tls::choose_provider();
    let client =
        alerts::client().map_err(|cause| Failure::Look(format!("HTTPS client: {cause}")))?;
    let (now, owner) = (console.moment.now, config.owner.as_ref().map(ToString::to_string));
    let mut tried = Vec::new();
    for channel in chosen {
        tried.push(try_channel(&client, channel, owner.as_deref(), now).await);
    }
    write(&tried, console)?;
    let all = tried.iter().all(|tried| tried.delivered);
    Ok(if all { Exit::Done } else { Exit::Error })
}

async fn try_channel<'a>(
    client: &reqwest::Client,
    channel: &'a Channel,
    owner: Option<&str>,
    now: WallTime,
) -> Tried<'a> {
    let owner = owner.unwrap_or("none");
    let alert = Alert {
        id: format!("{owner}-test-{}-{}", channel.name, now.0),
        at: now,
        job: String::new(),
        run: 0,
        attempt: None,
        word: TEST.to_owned(),
        text: format!("channel {} of installation {owner} works", channel.name),
        step: None,
    };
    let delivered = match Message::of(vec![alert], channel) {
        Some(message) => alerts::deliver(client, channel, &message, now).await,
        None => Ok(()),
    };
    let text = match &delivered {
        Ok(()) => "delivered".to_owned(),
        Err(error) => chain(error),
    };
    let (name, kind) = (channel.name.as_str(), channel.way.word());
    Tried { channel: name, kind, delivered: delivered.is_ok(), text }
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn write(tried: &[Tried<'_>], console: &mut Console<'_>) -> Result<(), Failure> {
    let whole = document(&serde_json::json!({ "channels": tried }));
    if let Some(json) = as_json(&whole, console.format) {
        write!(console.out, "{json}")?;
        return Ok(());
    }
    for tried in tried {
        let (name, text) = (plain(tried.channel), plain(&tried.text));
        if console.format == Format::Name {
            writeln!(console.out, "{name}")?;
        } else {
            writeln!(console.out, "{name}  {}  {text}", tried.kind)?;
        }
    }
    Ok(())
}
