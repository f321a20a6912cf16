//! `spotkeeper doctor`: whether the daemon would get through, target by target: keys, clock,
//! answers, permissions, buckets. Needs no daemon and changes nothing anywhere.

mod examine;

use super::output::{Format, as_json};
use super::text::plain;
use super::{Console, Exit, Failure};
use crate::api::wire::document;
use crate::config::{DAEMON_FILE, Surroundings, load_daemon, load_jobs};
use crate::openapi::credentials::Keychain;
pub use examine::{Check, Examination, Subject, TargetReport, Verdict, Watch};
use std::fmt::Write as _;
use std::path::Path;

/// Examines every target of the daemon file. Exit 1 if anything has the verdict `error`.
pub async fn doctor(console: &mut Console<'_>) -> Result<Exit, Failure> {
    let path = console.global.config.as_deref().unwrap_or(Path::new(DAEMON_FILE));
    let file = load_daemon(path, &Surroundings::of_this_process());
    let Some(config) = file.accepted() else {
        let first = file.diagnostics.iter().find(|d| d.severity == crate::config::Severity::Error);
        let why =
            first.map_or(String::new(), |d| format!("[{}] {}; {}", d.code, d.message, d.mend));
        return Err(Failure::DaemonFile { path: path.to_owned(), why });
    };
    let jobs = load_jobs(&config.jobs_directory, config);
    if !jobs.rejected.is_empty() {
        console.remark(&format!(
            "{} job files are not valid, and their buckets are not looked at: `spotkeeper check` \
             says why",
            jobs.rejected.len()
        ))?;
    }
    if config.targets.is_empty() {
        console.remark("The daemon file has no targets: there is nothing to examine.")?;
    }
    let specs: Vec<_> = jobs.accepted.into_iter().map(|(_, spec)| spec).collect();
    let mut found = Examination { targets: Vec::new() };
    let keychain = Keychain::of_this_process(config.credential_commands);
    for target in config.targets.values() {
        let watch = Watch::starting_at(console.moment.now);
        found.targets.push(examine::target(target, &specs, &keychain, watch).await);
    }
    match as_json(&document(&found), console.format) {
        Some(json) => write!(console.out, "{json}")?,
        None if console.format == Format::Name => {
            for target in &found.targets {
                writeln!(console.out, "{}", plain(&target.name))?;
            }
        }
        None => {
            write!(console.out, "{}", render(&found))?;
            console.remark(&summary(&found))?;
        }
    }
    Ok(if count(&found, Verdict::Error) > 0 { Exit::Error } else { Exit::Done })
}

/// What was found, a block a target, a line a check; nothing is cut.
pub fn render(found: &Examination) -> String {
    let mut text = String::new();
    for (n, target) in found.targets.iter().enumerate() {
        let gap = if n == 0 { "" } else { "\n" };
        let (name, endpoint) = (plain(&target.name), plain(&target.endpoint));
        let _ = writeln!(text, "{gap}{name}  {endpoint}");
        for check in &target.checks {
            let (verdict, subject) = (check.verdict.word(), check.check.word());
            let _ = writeln!(text, "  {verdict:<11}  {subject:<10}  {}", plain(&check.text));
        }
    }
    text
}

fn count(found: &Examination, verdict: Verdict) -> usize {
    found.targets.iter().flat_map(|t| &t.checks).filter(|c| c.verdict == verdict).count()
}

/// `2 targets: 1 error, 0 warnings`.
pub fn summary(found: &Examination) -> String {
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    format!(
        "\n{}: {}, {}",
        plural(found.targets.len(), "target"),
        plural(count(found, Verdict::Error), "error"),
        plural(count(found, Verdict::Warning), "warning"),
    )
}
