//! What is wrong with a file, where, and how to mend it.
//!
//! A diagnostic holds everything that is shown, so that it outlives the text it was found in. The
//! source line in it is masked when it is made: no value that may be a secret gets further.

use super::codes;
use super::mask::mask;
use crate::model::error::Code;
use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Characters of a source line that are shown at most; longer ones are cut around the caret.
const SHOWN_CHARACTERS: usize = 160;

/// Findings of one file that are kept; more than these nobody reads.
const FINDINGS: usize = 200;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is not accepted.
    Error,
    /// The file is accepted, and somebody should look at this.
    Warning,
}

impl Severity {
    /// The word in text and JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A place in a file, with what is needed to show it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Anchor {
    /// The file, as it was named by the caller.
    pub file: PathBuf,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Characters to underline on that line, at least 1.
    width: usize,
    /// The line, masked; empty where there is nothing to show.
    source: String,
}

impl Anchor {
    /// The same place, without showing what stands there.
    #[must_use]
    pub fn without_line(self) -> Self {
        Self { source: String::new(), ..self }
    }

    /// A file as a whole: one that cannot be read, or a folder.
    pub fn whole(file: &Path) -> Self {
        Self { file: file.to_owned(), line: 1, column: 1, width: 1, source: String::new() }
    }
}

/// One thing that is wrong, or odd, in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Where.
    pub at: Anchor,
    /// How bad.
    pub severity: Severity,
    /// The code that `docs/errors` explains.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub mend: String,
    /// The known word that is nearest to an unknown one.
    pub nearest: Option<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(
        at: Anchor,
        code: Code,
        message: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        let (message, mend) = (message.into(), mend.into());
        Self { at, severity: Severity::Error, code, message, mend, nearest: None }
    }

    /// A warning.
    pub fn warning(
        at: Anchor,
        code: Code,
        message: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(at, code, message, mend) }
    }

    /// The same with the known word that is nearest.
    #[must_use]
    pub fn near(mut self, word: Option<String>) -> Self {
        if let Some(word) = &word {
            let mend = std::mem::take(&mut self.mend);
            self.mend = format!("did you mean `{word}`?");
            if !mend.is_empty() {
                let _ = write!(self.mend, " {mend}");
            }
        }
        self.nearest = word;
        self
    }

    /// The machine form.
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "file": self.at.file.to_string_lossy(),
            "line": self.at.line,
            "column": self.at.column,
            "severity": self.severity.word(),
            "code": self.code.to_string(),
            "message": self.message,
            "mend": self.mend,
            "nearest": self.nearest,
        })
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Anchor { file, line, column, width, source } = &self.at;
        let (severity, code) = (self.severity.word(), self.code);
        let file = file.display();
        write!(f, "{file}:{line}:{column}: {severity}[{code}]: {}", self.message)?;
        if source.is_empty() {
            return if self.mend.is_empty() { Ok(()) } else { write!(f, "; {}", self.mend) };
        }
        let (shown, before) = excerpt(source, *column);
        let indent: String = shown.chars().take(before).flat_map(blank).collect();
        let under: String =
            shown.chars().skip(before).take(*width).flat_map(|c| blank(c).map(|_| '^')).collect();
        let under = if under.is_empty() { "^" } else { &under };
        write!(f, "\n{line:>5} | {shown}\n      | {indent}{under} {}", self.mend)
    }
}

/// The part of `line` around `column`, and how many of its characters stand before that column.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let before = column.saturating_sub(1);
    let start = if before < SHOWN_CHARACTERS * 3 / 4 { 0 } else { before - SHOWN_CHARACTERS / 4 };
    (line.chars().skip(start).take(SHOWN_CHARACTERS).collect(), before - start)
}

/// Blanks that are as wide as `c` on a terminal: a tab stays a tab, Chinese takes two columns.
fn blank(c: char) -> impl Iterator<Item = char> {
    let wide = matches!(c, '\u{1100}'..='\u{115f}' | '\u{2e80}'..='\u{a4cf}' | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}' | '\u{fe30}'..='\u{fe6f}' | '\u{ff00}'..='\u{ff60}' | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}' | '\u{20000}'..='\u{3fffd}');
    std::iter::repeat_n(if c == '\t' { '\t' } else { ' ' }, if wide { 2 } else { 1 })
}

/// A file's name and text; turns byte spans into lines and columns.
#[derive(Debug)]
pub struct Source {
    /// The file, as it was named by the caller.
    pub file: PathBuf,
    /// Its text.
    pub text: String,
    /// Byte at which each line starts.
    lines: Vec<usize>,
}

impl Source {
    /// A text that was read from `file`.
    pub fn new(file: &Path, text: String) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(starts).collect();
        Self { file: file.to_owned(), text, lines }
    }

    /// The place of a byte span. What goes beyond the first line is not underlined.
    pub fn at(&self, span: &Range<usize>) -> Anchor {
        let start = self.whole_character(span.start);
        let index = self.lines.partition_point(|line| *line <= start) - 1;
        let from = self.lines[index];
        let line = self.text[from..].split('\n').next().unwrap_or_default();
        let line = line.strip_suffix('\r').unwrap_or(line);
        let end = self.whole_character(span.end).clamp(start, (from + line.len()).max(start));
        let width = self.text[start..end].chars().count().max(1);
        // A byte order mark takes no column.
        let mark =
            if from == 0 && line.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        let column = self.text[(from + mark).min(start)..start].chars().count() + 1;
        let source = mask(&line[mark..]);
        Anchor { file: self.file.clone(), line: index + 1, column, width, source }
    }

    fn whole_character(&self, byte: usize) -> usize {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }
}

/// Collects what is found in one file. Shared by all readers of that file.
#[derive(Debug)]
pub struct Notes<'s> {
    /// The file.
    pub source: &'s Source,
    found: RefCell<Vec<Diagnostic>>,
}

impl<'s> Notes<'s> {
    /// Nothing found yet.
    pub fn new(source: &'s Source) -> Self {
        Self { source, found: RefCell::default() }
    }

    /// Adds an error at a span of this file.
    pub fn error(
        &self,
        span: &Range<usize>,
        code: Code,
        message: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.add(Diagnostic::error(self.source.at(span), code, message, mend));
    }

    /// Adds a warning at a span of this file.
    pub fn warning(
        &self,
        span: &Range<usize>,
        code: Code,
        message: impl Into<String>,
        mend: impl Into<String>,
    ) {
        self.add(Diagnostic::warning(self.source.at(span), code, message, mend));
    }

    /// Adds a diagnostic, which may lie in another file.
    pub fn add(&self, diagnostic: Diagnostic) {
        let mut found = self.found.borrow_mut();
        if found.len() < FINDINGS {
            found.push(diagnostic);
        } else if found.len() == FINDINGS {
            let message =
                format!("more than {FINDINGS} findings in this file: the rest is left out");
            let at = Anchor::whole(&self.source.file);
            found.push(Diagnostic::error(at, codes::FILE_LIMIT, message, "mend these first"));
        }
    }

    /// Everything that was found.
    pub fn into_found(self) -> Vec<Diagnostic> {
        self.found.into_inner()
    }
}

/// Sorts by file, line and column, and drops what was found twice.
pub fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| {
        (&a.at, a.severity, a.code, &a.message).cmp(&(&b.at, b.severity, b.code, &b.message))
    });
    diagnostics.dedup();
}

/// Whether a file with these diagnostics is accepted.
pub fn accepted(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().all(|d| d.severity == Severity::Warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, span: Range<usize>) -> String {
        let source = Source::new(Path::new("a.toml"), text.into());
        Diagnostic::error(source.at(&span), Code(21), "unknown key", "take it out").to_string()
    }

    #[test]
    fn the_caret_stands_under_the_word() {
        assert_eq!(
            shown("a = 1\n\tmax = 5\r\n", 7..10),
            "a.toml:2:2: error[E021]: unknown key\n    2 | \tmax = 5\n      | \t^^^ take it out"
        );
    }

    #[test]
    fn columns_count_characters_and_the_caret_counts_terminal_cells() {
        let text = "名 = 1";
        assert_eq!(
            shown(text, 4..5),
            "a.toml:1:3: error[E021]: unknown key\n    1 | 名 = 1\n      |    ^ take it out"
        );
        assert!(shown("\u{feff}ab = 1", 3..5).starts_with("a.toml:1:1:"));
    }

    #[test]
    fn long_lines_are_cut_around_the_caret_and_odd_spans_do_no_harm() {
        let text = format!("{}X{}", "a".repeat(5000), "b".repeat(5000));
        let shown_text = shown(&text, 5000..5001);
        assert!(shown_text.starts_with("a.toml:1:5001:") && shown_text.len() < 500);
        let caret = shown_text.lines().nth(2).and_then(|l| l.find('^')).expect("a caret");
        assert_eq!(shown_text.lines().nth(1).and_then(|l| l.chars().nth(caret)), Some('X'));
        for span in [0..0, 9..99, 1..2] {
            assert!(!shown("é", span).is_empty());
        }
    }

    #[test]
    fn json_has_every_field() {
        let at = Anchor::whole(Path::new("x"));
        let json = Diagnostic::warning(at, Code(21), "m", "").near(Some("run".into())).json();
        assert_eq!(json["nearest"], "run");
        assert_eq!(json["mend"], "did you mean `run`?");
        assert_eq!(json["severity"], "warning");
        assert_eq!((json["line"].as_u64(), json["code"].as_str()), (Some(1), Some("E021")));
    }
}
