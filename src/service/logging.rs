//! Logs go to stderr: for people on a terminal, as JSON on request.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// What is logged unless `SPOTKEEPER_LOG` says otherwise. The libraries named here write a dozen
/// lines for each act at their own levels, and object_store would show tokens.
const DEFAULT_FILTER: &str = "info,sled=warn,hyper=info,h2=warn,rustls=warn,object_store=info";

/// Starts logging. `SPOTKEEPER_LOG` is the filter; `SPOTKEEPER_LOG_FORMAT=json` the other form.
pub fn start() {
    let filter = std::env::var("SPOTKEEPER_LOG").unwrap_or_else(|_| DEFAULT_FILTER.to_owned());
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let json = std::env::var("SPOTKEEPER_LOG_FORMAT").is_ok_and(|form| form == "json");
    // A second start in one process (tests) changes nothing.
    drop(if json { builder.json().try_init() } else { builder.with_target(false).try_init() });
}
