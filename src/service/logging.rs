//! Logs go to stderr: for people on a terminal, as JSON on request.

use std::io::IsTerminal as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// What is logged unless `SPOTKEEPER_LOG` says otherwise. The libraries named here write a dozen
/// lines for each act at their own levels, and object_store would show tokens.
const DEFAULT_FILTER: &str = "info,sled=warn,hyper=info,h2=warn,rustls=warn,object_store=info";

/// Starts logging. `SPOTKEEPER_LOG` is the filter, `level` or `module=level` with commas between;
/// one that cannot be read is as if it were not set. `SPOTKEEPER_LOG_FORMAT=json` the other form.
pub fn start() {
    let asked = std::env::var("SPOTKEEPER_LOG").ok();
    let filter = asked
        .and_then(|text| text.parse::<Targets>().ok())
        .unwrap_or_else(|| DEFAULT_FILTER.parse().expect("the built-in filter is well formed"));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let json = std::env::var("SPOTKEEPER_LOG_FORMAT").is_ok_and(|form| form == "json");
    let lines = if json {
        lines.json().with_filter(filter).boxed()
    } else {
        lines.with_target(false).with_filter(filter).boxed()
    };
    // A second start in one process (tests) changes nothing.
    drop(tracing_subscriber::registry().with(lines).try_init());
}
