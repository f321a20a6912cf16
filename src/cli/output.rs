//! How verbs write: formats, colours, tables, times. All of it is text out of values, so that tests
//! need no daemon and no terminal.

use super::text::{self, Lines, cut, plain};
use crate::model::time::{WallTime, human};
use comfy_table::{ContentArrangement, Table, presets};
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Columns for people.
    Table,
    /// The same with more columns.
    Wide,
    /// One JSON document.
    Json,
    /// One JSON object a line.
    Jsonl,
    /// Names alone, one a line.
    Name,
}

/// Whether colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Text alone.
    Plain,
    /// Phases in colour.
    Colour,
}

/// The moment and the place for which times are shown.
#[derive(Debug, Clone)]
pub struct Moment {
    /// Now.
    pub now: WallTime,
    /// The reader's time zone.
    pub zone: TimeZone,
}

impl Moment {
    fn local(&self, time: WallTime) -> Option<(DateTime, Offset)> {
        let time = jiff::Timestamp::from_millisecond(time.0).ok()?;
        let offset = self.zone.to_offset(time);
        Some((offset.to_datetime(time), offset))
    }

    /// `02:14:07`, with the date in front unless it is today.
    pub fn clock(&self, at: &str) -> String {
        let Some((then, _)) = WallTime::parse(at).and_then(|time| self.local(time)) else {
            return plain(at).into_owned();
        };
        let today = self.local(self.now).is_some_and(|(now, _)| now.date() == then.date());
        then.strftime(if today { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" }).to_string()
    }

    /// `2026-11-30 02:14:07 +08:00, 4m ago`.
    pub fn full(&self, at: &str) -> String {
        let Some(time) = WallTime::parse(at) else { return plain(at).into_owned() };
        let Some((then, offset)) = self.local(time) else { return plain(at).into_owned() };
        let age = human(Duration::from_secs(self.now.since(time).as_secs()));
        let (sign, minutes) =
            (if offset.seconds() < 0 { '-' } else { '+' }, offset.seconds().unsigned_abs() / 60);
        let (hours, minutes) = (minutes / 60, minutes % 60);
        format!("{} {sign}{hours:02}:{minutes:02}, {age} ago", then.strftime("%Y-%m-%d %H:%M:%S"))
    }
}

/// Seconds as people read them; `-` for none.
pub fn seconds(s: Option<u64>) -> String {
    s.map_or("-".into(), |s| human(Duration::from_secs(s)))
}

/// A step as people read it: `950`, `12.4k`, `1.2M`; `-` for none.
pub fn step(step: Option<u64>) -> String {
    match step {
        None => "-".into(),
        Some(n @ 0..10_000) => n.to_string(),
        Some(n @ 10_000..1_000_000) => format!("{}.{}k", n / 1_000, n % 1_000 / 100),
        Some(n) => format!("{}.{}M", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

/// `-` for an empty text.
pub fn or_dash(text: &str) -> Cow<'_, str> {
    if text.is_empty() { Cow::Borrowed("-") } else { plain(text) }
}

/// JSON of a verb that has one document; `None` for the formats for people.
pub fn as_json(value: &Value, format: Format) -> Option<String> {
    match format {
        Format::Json => Some(text::json(value, Lines::Many) + "\n"),
        Format::Jsonl => Some(text::json(value, Lines::One) + "\n"),
        Format::Table | Format::Wide | Format::Name => None,
    }
}

/// A column: its head, how wide its cells may be where the width is limited, and how early it goes
/// when there is too little room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The head.
    pub head: &'static str,
    /// Columns that a cell may take on a terminal; 0 is no limit.
    pub widest: usize,
    /// The greatest goes first; 0 never goes.
    pub goes: u8,
}

/// Spaces between two columns.
const GAP: usize = 2;

/// Columns that the last cell of a line takes at least, where it is cut for lack of room.
const LAST_AT_LEAST: usize = 16;

/// A table within `width` columns of a terminal. For lack of room the last column is cut, if it may
/// be, and then columns are dropped as they say; no line is wrapped, and what never goes is never
/// cut. Without `width` (a pipe) everything is there, uncut.
pub fn table(columns: &[Column], rows: &[Vec<Cow<'_, str>>], width: Option<u16>) -> String {
    let cell = |column: &Column, text: &str| match width {
        Some(_) if column.widest > 0 => cut(text, column.widest).into_owned(),
        _ => text.to_owned(),
    };
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| columns.iter().zip(row).map(|(c, text)| cell(c, text)).collect())
        .collect();
    let (kept, last) = kept(columns, &rows, width);
    let mut shown = bare();
    shown.set_header(kept.iter().map(|at| columns[*at].head));
    for row in &rows {
        let cells = kept.iter().map(|at| row.get(*at).map_or("", String::as_str));
        let end = kept.len().saturating_sub(1);
        let fit = |(n, text)| if n == end { cut(text, last) } else { Cow::Borrowed(text) };
        shown.add_row(cells.enumerate().map(fit));
    }
    for column in shown.column_iter_mut() {
        column.set_padding((0, 2));
    }
    shown.trim_fmt() + "\n"
}

fn bare() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Which columns have room, and how wide the last one of them may be.
fn kept(columns: &[Column], rows: &[Vec<String>], width: Option<u16>) -> (Vec<usize>, usize) {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    let Some(width) = width.map(usize::from) else { return (kept, usize::MAX) };
    let widest: Vec<usize> = (0..columns.len())
        .map(|at| {
            let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| text::width(cell));
            cells.max().unwrap_or(0).max(columns[at].head.len())
        })
        .collect();
    loop {
        let needed = kept.iter().map(|at| widest[*at] + GAP).sum::<usize>().saturating_sub(GAP);
        let last = kept.last().copied().unwrap_or(0);
        let room = (width + widest[last]).saturating_sub(needed);
        if needed <= width {
            return (kept, usize::MAX);
        }
        if columns[last].widest > 0 && room >= LAST_AT_LEAST {
            return (kept, room);
        }
        match kept.iter().copied().max_by_key(|at| columns[*at].goes) {
            Some(at) if columns[at].goes > 0 => kept.retain(|k| *k != at),
            _ => return (kept, usize::MAX),
        }
    }
}

/// The phase in its colour. The colour means nothing that the word does not say.
pub fn coloured(phase: &str, style: Style) -> Cow<'_, str> {
    let colour = match phase.trim_end_matches(" !") {
        "RUNNING" | "SUCCEEDED" => 32,
        "RECOVERING" | "STARTING" | "SUBMITTING" => 36,
        "PENDING" | "WAITING" => 34,
        "BACKOFF" | "STALLED" | "PAUSED" | "STOPPING" => 33,
        "FAILED" | "BLOCKED" | "LOST" => 31,
        "CANCELLED" => 90,
        _ => return Cow::Borrowed(phase),
    };
    match style {
        Style::Plain => Cow::Borrowed(phase),
        Style::Colour => Cow::Owned(format!("\x1b[{colour}m{phase}\x1b[0m")),
    }
}

/// Lines of a page: a name, padded, and what it says.
#[derive(Debug, Default)]
pub struct Page(String);

/// Columns that the names of a page take.
const NAMES: usize = 13;

impl Page {
    /// `name        text`; the text is shown as it is.
    pub fn raw(&mut self, name: &str, text: &str) -> &mut Self {
        let _ = writeln!(self.0, "{name:<NAMES$}{text}");
        self
    }

    /// `name        text`, with what could command a terminal escaped; nothing for an empty text.
    pub fn line(&mut self, name: &str, text: &str) -> &mut Self {
        if text.is_empty() { self } else { self.raw(name, &plain(text)) }
    }

    /// The first line with the name, the others below it.
    pub fn list<'t>(&mut self, name: &str, texts: impl IntoIterator<Item = &'t str>) -> &mut Self {
        let mut name = name;
        for text in texts {
            self.raw(name, &plain(text));
            name = "";
        }
        self
    }

    /// Text that stands as it is.
    pub fn block(&mut self, text: &str) -> &mut Self {
        self.0.push_str(text);
        self
    }

    /// The page.
    pub fn text(self) -> String {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[
        Column { head: "NAME", widest: 0, goes: 0 },
        Column { head: "WHY", widest: 6, goes: 1 },
        Column { head: "UP", widest: 0, goes: 2 },
    ];

    fn rows() -> Vec<Vec<Cow<'static, str>>> {
        vec![
            vec!["a-long-name".into(), "because of it".into(), "1h".into()],
            vec!["训练".into(), "-".into(), "2h".into()],
        ]
    }

    #[test]
    fn columns_go_in_their_order_and_names_stay() {
        assert_eq!(
            table(COLUMNS, &rows(), Some(80)),
            "NAME         WHY     UP\na-long-name  becau…  1h\n训练         -       2h\n"
        );
        assert_eq!(table(COLUMNS, &rows(), Some(23)), table(COLUMNS, &rows(), Some(80)));
        assert!(!table(COLUMNS, &rows(), Some(22)).contains("UP"));
        assert_eq!(table(COLUMNS, &rows(), Some(5)), "NAME\na-long-name\n训练\n");
    }

    #[test]
    fn the_last_column_is_cut_before_one_is_dropped() {
        let columns = [COLUMNS[0], Column { head: "WHY", widest: 60, goes: 1 }];
        let rows = [vec!["a".into(), "because of something that takes long to say".into()]];
        assert_eq!(table(&columns, &rows, Some(24)), "NAME  WHY\na     because of someth…\n");
        assert_eq!(table(&columns, &rows, Some(21)), "NAME\na\n");
    }

    #[test]
    fn a_pipe_gets_everything_uncut() {
        let text = table(COLUMNS, &rows(), None);
        assert!(text.contains("because of it  1h"), "{text}");
    }

    #[test]
    fn times_are_local_with_the_date_unless_it_is_today() {
        let zone = TimeZone::fixed(jiff::tz::offset(8));
        let now = WallTime::parse("2026-11-30T00:10:00Z").expect("a time");
        let moment = Moment { now, zone };
        assert_eq!(moment.clock("2026-11-29T18:14:07Z"), "02:14:07");
        assert_eq!(moment.clock("2026-11-29T12:00:00Z"), "2026-11-29 20:00:00");
        assert_eq!(moment.full("2026-11-30T00:06:00Z"), "2026-11-30 08:06:00 +08:00, 4m ago");
        assert_eq!(moment.clock("\x1b[2J"), "\\u{1b}[2J");
    }

    #[test]
    fn steps_are_short() {
        for (n, text) in [(0, "0"), (9_999, "9999"), (12_449, "12.4k"), (1_250_000, "1.2M")] {
            assert_eq!(step(Some(n)), text);
        }
        assert_eq!(step(None), "-");
    }
}
