//! Logs go to stderr: for people on a terminal, as JSON on request.
//!
//! What always holds: one event is one line, and nothing in a text from outside can forge another
//! or command a terminal.

use std::fmt::{Debug, Write};
use std::io::IsTerminal as _;
use tracing::field::Field;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};
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
        lines.with_target(false).fmt_fields(fields()).with_filter(filter).boxed()
    };
    // A second start in one process (tests) changes nothing.
    drop(tracing_subscriber::registry().with(lines).try_init());
}

/// The fields of an event as `name=value`, the message as it is.
fn fields() -> impl for<'a> FormatFields<'a> + Send + Sync + 'static {
    let write = |writer: &mut Writer<'_>, field: &Field, value: &dyn Debug| {
        if field.name() != "message" {
            write!(writer, "{field}=")?;
        }
        write!(OneLine(writer), "{value:?}")
    };
    debug_fn(write).delimited(" ")
}

/// Shows line breaks and other control characters as escapes.
struct OneLine<'a, 'w>(&'a mut Writer<'w>);

impl Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        text.chars().try_for_each(|c| {
            if c.is_control() {
                write!(self.0, "{}", c.escape_default())
            } else {
                self.0.write_char(c)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_text_from_outside_forges_no_line_and_commands_no_terminal() {
        let written = tempfile::NamedTempFile::new().expect("a file");
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(Mutex::new(written.reopen().expect("a file")))
            .with_ansi(false)
            .with_target(false)
            .fmt_fields(fields());
        let odd = "a\nERROR forged\u{1b}]0;x\u{7} é";
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::warn!(job = %odd, no = 3, word = "w\n", "said {odd}");
        });
        let text = std::fs::read_to_string(written.path()).expect("text");
        let odd = r"a\nERROR forged\u{1b}]0;x\u{7} é";
        let want = format!(" WARN said {odd} job={odd} no=3 word=\"w\\n\"\n");
        assert!(text.ends_with(&want), "{text:?}");
        assert_eq!(text.lines().count(), 1);
    }
}
