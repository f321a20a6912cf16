//! `spotkeeper version`.

use super::output::as_json;
use super::{Console, Exit, Failure};
use crate::api::wire::{VersionDocument, document};

/// Shows the version of this program; needs no daemon.
pub fn version(console: &mut Console<'_>) -> Result<Exit, Failure> {
    let own = VersionDocument::own();
    let text =
        as_json(&document(&own), console.format).unwrap_or_else(|| match own.commit.as_str() {
            "" => format!("spotkeeper {}\n", own.version),
            commit => format!("spotkeeper {} ({commit})\n", own.version),
        });
    write!(console.out, "{text}")?;
    Ok(Exit::Done)
}
