//! Logs: to systemd's journal with fields where standard error is the journal, else to standard
//! error: for people on a terminal, as JSON on request.
//!
//! What always holds: one event is one line, and nothing in a text from outside can forge another
//! or command a terminal; what repeats is counted in the place of being written; whoever logs never
//! waits for whoever reads.

mod fold;
mod journal;
mod queue;

use super::clock::boot_time;
use fold::Fold;
use journal::Journal;
use queue::Queue;
use std::fmt::{Debug, Write};
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{FormatFields, Writer, debug_fn};
use tracing_subscriber::layer::{Context, Filter, Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The level unless somebody says otherwise.
const DEFAULT_LEVEL: &str = "info";
/// The libraries named here write a dozen lines for each act at their own levels, and object_store
/// would show tokens.
const LIBRARIES: &str = "sled=warn,hyper=info,h2=warn,rustls=warn,object_store=info";

/// What is logged now. Clones share it.
#[derive(Debug, Clone)]
pub struct Logging {
    filter: Arc<Choice>,
    /// Set in the environment: the daemon file changes nothing then.
    is_fixed: bool,
    out: Out,
    /// Of the lines that were dropped, how many were told of.
    told: Arc<AtomicU64>,
}

/// Where lines go.
#[derive(Debug, Clone)]
enum Out {
    Journal(Queue<journal::Line>),
    Stderr(Queue<Vec<u8>>),
}

impl Out {
    fn dropped(&self) -> u64 {
        match self {
            Self::Journal(lines) => lines.dropped(),
            Self::Stderr(lines) => lines.dropped(),
        }
    }
}

/// Which lines are written.
#[derive(Debug)]
struct Choice {
    levels: RwLock<Targets>,
    fold: Fold,
}

/// Starts logging. `SPOTKEEPER_LOG` is the filter, `level` or `module=level` with commas between;
/// one that cannot be read is as if it were not set. `SPOTKEEPER_LOG_FORMAT=json` the other form.
pub fn start() -> Logging {
    let asked = std::env::var("SPOTKEEPER_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let is_fixed = asked.is_some();
    let levels = RwLock::new(asked.unwrap_or_else(|| levels(DEFAULT_LEVEL)));
    let filter = Arc::new(Choice { levels, fold: Fold::default() });
    let json = std::env::var("SPOTKEEPER_LOG_FORMAT").is_ok_and(|form| form == "json");
    let chosen = Chosen(Arc::clone(&filter));
    let (lines, out) = if let Some(journal) = Journal::of_this_process().filter(|_| !json) {
        let out = Out::Journal(journal.lines());
        (journal.with_filter(chosen).boxed(), out)
    } else {
        let queue = to_stderr();
        let writer = queue.clone();
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .with_ansi(std::io::stderr().is_terminal());
        let lines = if json {
            lines.json().with_filter(chosen).boxed()
        } else {
            lines.with_target(false).fmt_fields(fields()).with_filter(chosen).boxed()
        };
        (lines, Out::Stderr(queue))
    };
    // A second start in one process (tests) changes nothing.
    drop(tracing_subscriber::registry().with(lines).try_init());
    Logging { filter, is_fixed, out, told: Arc::default() }
}

fn to_stderr() -> Queue<Vec<u8>> {
    // Without a standard error each line fails, and is counted.
    let mut stderr = journal::stderr();
    Queue::start(move |line: Vec<u8>| match &mut stderr {
        Ok(stderr) => stderr.write_all(&line),
        Err(error) => Err(error.kind().into()),
    })
}

impl Logging {
    /// Logs from `level` on from now on, unless the environment has said what to log.
    pub fn set_level(&self, level: &str) {
        if !self.is_fixed {
            let mut now = self.filter.levels.write().unwrap_or_else(PoisonError::into_inner);
            *now = levels(level);
            drop(now);
            tracing::callsite::rebuild_interest_cache();
        }
    }

    /// Tells what was left out because it said the same again. To be called now and then.
    pub fn tell_repeats(&self) {
        for one in self.filter.fold.due(boot_time()) {
            let (repeats, within_s, text) = (one.more, one.within.as_secs(), one.text);
            match one.level {
                Level::ERROR => tracing::error!(repeats, within_s, "again: {text}"),
                Level::WARN => tracing::warn!(repeats, within_s, "again: {text}"),
                _ => tracing::info!(repeats, within_s, "again: {text}"),
            }
        }
    }

    /// Tells how many lines were dropped because nobody took them. To be called now and then.
    pub fn tell_dropped(&self) {
        let dropped = self.out.dropped();
        if dropped > self.told.load(Ordering::Relaxed) {
            // No repeat is folded: the number differs.
            tracing::warn!(
                dropped,
                "lines of this log were dropped since the start: who reads it does not keep up"
            );
            // Had this one been dropped too, the next time is due.
            if self.out.dropped() == dropped {
                self.told.store(dropped, Ordering::Relaxed);
            }
        }
    }

    /// Waits a moment for the last lines to be written: the process ends.
    pub fn flush(&self) {
        match &self.out {
            Out::Journal(lines) => lines.flush(),
            Out::Stderr(lines) => lines.flush(),
        }
    }
}

fn levels(level: &str) -> Targets {
    let default = || format!("{DEFAULT_LEVEL},{LIBRARIES}").parse().expect("well formed");
    format!("{level},{LIBRARIES}").parse().unwrap_or_else(|_| default())
}

/// [`Choice`] as the filter of a layer.
struct Chosen(Arc<Choice>);

impl Chosen {
    fn takes(&self, metadata: &Metadata<'_>) -> bool {
        let levels = self.0.levels.read().unwrap_or_else(PoisonError::into_inner);
        levels.would_enable(metadata.target(), metadata.level())
    }
}

impl<S> Filter<S> for Chosen {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        self.takes(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.takes(metadata) { Interest::sometimes() } else { Interest::never() }
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.0.fold.passes(event, boot_time())
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let levels = self.0.levels.read().unwrap_or_else(PoisonError::into_inner);
        levels.iter().map(|(_, level)| level).chain(levels.default_level()).max()
    }
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
struct OneLine<'a, W>(&'a mut W);

impl<W: Write> Write for OneLine<'_, W> {
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

/// A text without control characters, cut to `limit` bytes.
fn one_line(text: &str, limit: usize) -> String {
    let mut line = String::with_capacity(text.len().min(limit));
    // A string takes whatever is written into it.
    let _ = OneLine(&mut line).write_str(text);
    if line.len() > limit {
        let end = (0..=limit - "…".len()).rev().find(|at| line.is_char_boundary(*at));
        line.truncate(end.unwrap_or(0));
        line.push('…');
    }
    line
}

/// The fields of one event.
#[derive(Debug, Default)]
struct Fields {
    message: String,
    /// Name, the value, and the value as it stands in a line.
    named: Vec<(String, String)>,
    line: String,
}

impl Fields {
    fn of(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }

    /// Message and fields as on a terminal.
    fn line(&self) -> String {
        format!("{}{}", self.message, self.line)
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        // Its quotes stand in a line, and not in a field of its own.
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            let _ = write!(self.line, " {}={value:?}", field.name());
            self.named.push((field.name().to_owned(), value.to_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            self.message = value;
        } else {
            let _ = write!(self.line, " {}={value}", field.name());
            self.named.push((field.name().to_owned(), value));
        }
    }
}

/// What an event says: what makes two of them the same.
fn text_of(event: &Event<'_>) -> String {
    Fields::of(event).line()
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

    #[test]
    fn the_level_changes_at_run_time_and_repeats_are_told_once() {
        let written = tempfile::NamedTempFile::new().expect("a file");
        let choice = Choice { levels: RwLock::new(levels("info")), fold: Fold::default() };
        let filter = Arc::new(choice);
        let out = Out::Stderr(Queue::start(|_| Ok(())));
        let told = Arc::default();
        let logging = Logging { filter: Arc::clone(&filter), is_fixed: false, out, told };
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(Mutex::new(written.reopen().expect("a file")))
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_filter(Chosen(filter));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            for n in 0..7 {
                tracing::debug!("detail {n}");
                tracing::warn!("the same");
                tracing::info!(event = "PHASE", "history");
                logging.set_level("debug");
            }
            logging.set_level("error");
            tracing::warn!("not wanted");
            logging.set_level("info");
            tracing::info!("the default again");
            // No window is over yet.
            logging.tell_repeats();
        });
        let text = std::fs::read_to_string(written.path()).expect("text");
        let count = |line: &str| text.lines().filter(|l| l.trim() == line).count();
        assert_eq!(count("WARN the same"), 5, "{text}");
        assert_eq!(count("INFO history event=\"PHASE\""), 7, "{text}");
        assert_eq!(
            (count("DEBUG detail 0"), count("DEBUG detail 1"), count("DEBUG detail 6")),
            (0, 1, 1)
        );
        assert_eq!(count("INFO the default again"), 1, "{text}");
        assert_eq!(text.lines().count(), 5 + 7 + 6 + 1, "{text}");
    }

    #[test]
    fn too_long_a_text_is_cut_at_a_character() {
        let cut = one_line(&"é".repeat(100), 50);
        assert!(cut.len() <= 50 && cut.ends_with('…'), "{cut}");
        assert_eq!(one_line("a\tb", 50), "a\\tb");
    }
}
