//! A typed reader over a TOML tree whose keys and values know their place.
//!
//! A table hands out its keys one by one, each with its type; [`Table::finish`] reports what nobody
//! took. A wrong value is reported once, where it stands, and read as absent, so that one run
//! finds all errors of a file.

use super::codes;
use super::diagnostic::{Diagnostic, Notes};
use super::duration::{self, Fault};
use super::schema::{self, Key, Support};
use crate::model::money::Money;
use std::ops::Range;
use std::time::Duration;
use toml::de::{DeInteger, DeTable, DeValue};

/// Syntax errors of one file that are reported; after these the rest is mostly echo.
const SYNTAX_ERRORS: usize = 20;

/// A byte span.
pub(super) type Span = Range<usize>;

/// A value that was read, with its place.
#[derive(Debug, Clone)]
pub(super) struct Found<T> {
    /// The value.
    pub(super) value: T,
    /// Where its key stands.
    pub(super) key: Span,
    /// Where it stands itself.
    pub(super) span: Span,
}

/// A table of which keys are taken.
#[derive(Debug)]
pub(super) struct Table<'n, 's> {
    notes: &'n Notes<'s>,
    keys: &'static [Key],
    path: String,
    span: Span,
    entries: DeTable<'s>,
    taken: Vec<&'static str>,
}

/// Parses a file. `None` if its syntax is such that reading on would only guess.
pub(super) fn parse<'n, 's>(notes: &'n Notes<'s>, keys: &'static [Key]) -> Option<Table<'n, 's>> {
    let text = &notes.source.text;
    let (tree, errors) = DeTable::parse_recoverable(text);
    let mut usable = true;
    for error in errors.iter().take(SYNTAX_ERRORS) {
        let span = error.span().unwrap_or(0..0);
        let duplicate = error.message() == "duplicate key";
        usable &= duplicate;
        let (message, mend) = if duplicate {
            let key = text.get(span.clone()).unwrap_or_default();
            (format!("`{key}` is given twice"), "keep one of the two")
        } else {
            (format!("not TOML: {}", error.message()), "mend the syntax")
        };
        notes.error(&span, codes::SYNTAX, message, mend);
    }
    let entries = tree.into_inner();
    usable.then_some(Table {
        notes,
        keys,
        path: String::new(),
        span: 0..0,
        entries,
        taken: Vec::new(),
    })
}

/// The type of a value, with its article.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn text_of(value: DeValue<'_>) -> Option<String> {
    if let DeValue::String(text) = value { Some(text.into_owned()) } else { None }
}

fn entries_of(value: DeValue<'_>) -> Option<DeTable<'_>> {
    if let DeValue::Table(entries) = value { Some(entries) } else { None }
}

/// A decimal number as it is written.
fn number_of(value: &DeValue<'_>) -> Option<String> {
    let whole = value.as_integer().filter(|number| number.radix() == 10).map(DeInteger::as_str);
    let text = whole.or_else(|| Some(value.as_float()?.as_str()))?;
    Some(text.to_owned())
}

impl<'n, 's> Table<'n, 's> {
    /// Where the table itself stands: its header, or its braces.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Takes a value of any type.
    pub(super) fn take(&mut self, key: &'static str) -> Option<Found<DeValue<'s>>> {
        #[cfg(test_hooks)]
        assert!(
            schema::find(self.keys, &self.path, key).is_some(),
            "{}.{key} is not in the schema",
            self.path
        );
        let name = key;
        let (key, value) = self.entries.remove_entry(name)?;
        self.taken.push(name);
        Some(Found { key: key.span(), span: value.span(), value: value.into_inner() })
    }

    /// Takes a text.
    pub(super) fn text(&mut self, key: &'static str) -> Option<Found<String>> {
        self.typed(key, "a text in quotes", text_of)
    }

    /// Takes one of some words.
    pub(super) fn word(
        &mut self,
        key: &'static str,
        words: &[&'static str],
    ) -> Option<Found<String>> {
        let found = self.text(key)?;
        if words.contains(&found.value.as_str()) {
            return Some(found);
        }
        let at = self.notes.source.at(&found.span);
        let message = format!("`{key}` cannot be `{}`", found.value);
        let mend = format!("one of: {}", words.join(", "));
        let near = super::nearest::nearest(&found.value, words.iter().copied());
        let diagnostic = Diagnostic::error(at, codes::WRONG_VALUE, message, mend);
        self.notes.add(diagnostic.near(near.map(str::to_owned)));
        None
    }

    /// Takes `true` or `false`.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<Found<bool>> {
        self.typed(key, "true or false", |value| value.as_bool())
    }

    /// Takes a whole number within `range`.
    pub(super) fn count(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Option<Found<u64>> {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        let found = self.typed(key, &wanted, |value| {
            let number = value.as_integer()?;
            Some(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
        })?;
        match u64::try_from(found.value) {
            Ok(value) if range.contains(&value) => {
                Some(Found { value, key: found.key, span: found.span })
            }
            _ => self.wrong(&found.span, key, &wanted),
        }
    }

    /// Takes a number such as `0.4` exactly as it is written.
    pub(super) fn decimal(&mut self, key: &'static str) -> Option<Found<Money>> {
        let wanted = "a number such as 0.4, not in quotes, with at most 6 decimal places";
        let found = self.typed(key, wanted, |value| number_of(&value))?;
        self.amount(key, found, wanted)
    }

    /// Takes an amount of money in quotes, exactly as it is written.
    pub(super) fn money(&mut self, key: &'static str) -> Option<Found<Money>> {
        let wanted = "an amount of CNY in quotes such as \"0.011\", with at most 6 decimal places";
        let found = self.typed(key, wanted, text_of)?;
        self.amount(key, found, wanted)
    }

    fn amount(&self, key: &str, found: Found<String>, wanted: &str) -> Option<Found<Money>> {
        match Money::parse(found.value.strip_prefix('+').unwrap_or(&found.value)) {
            Some(value) => Some(Found { value, key: found.key, span: found.span }),
            None => self.wrong(&found.span, key, wanted),
        }
    }

    /// Takes a duration with its unit, within `range`.
    pub(super) fn duration(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<Duration>,
    ) -> Option<Found<Duration>> {
        let Found { value, key: at, span } = self.take(key)?;
        if let Some(number) = number_of(&value) {
            let mend = format!("write a unit: \"{number}s\", \"{number}m\" or \"{number}h\"");
            self.notes.error(&span, codes::DURATION, format!("`{key}` has no unit"), mend);
            return None;
        }
        let DeValue::String(text) = value else {
            return self.mistyped(&span, key, kind(&value), "a duration such as \"15m\"");
        };
        let (message, mend) = match duration::parse(&text) {
            Ok(value) if range.contains(&value) => return Some(Found { value, key: at, span }),
            Ok(_) | Err(Fault::TooLong) => {
                let human = crate::model::time::human;
                let (low, high) = (human(*range.start()), human(*range.end()));
                let wanted = format!("a duration from {low} to {high}");
                return self.wrong(&span, key, &wanted);
            }
            Err(Fault::NoUnit) => (
                format!("`{key}` has a number without a unit"),
                format!("write a unit: \"{0}s\", \"{0}m\" or \"{0}h\"", text.trim()),
            ),
            Err(Fault::Unreadable) => (
                format!("`{key}` is not a duration"),
                "write it such as \"15m\", \"1h 30m\" or \"2 days\"".to_owned(),
            ),
        };
        self.notes.error(&span, codes::DURATION, message, mend);
        None
    }

    /// Takes a list of texts.
    pub(super) fn list(&mut self, key: &'static str) -> Option<Found<Vec<Found<String>>>> {
        let wanted = "a list of texts in quotes";
        let found = self.take(key)?;
        let DeValue::Array(items) = found.value else {
            return self.mistyped(&found.span, key, kind(&found.value), wanted);
        };
        let mut texts = Vec::new();
        for item in items {
            let (span, found_kind) = (item.span(), kind(item.get_ref()));
            let Some(value) = text_of(item.into_inner()) else {
                return self.mistyped(&span, key, found_kind, wanted);
            };
            texts.push(Found { value, key: found.key.clone(), span });
        }
        Some(Found { value: texts, key: found.key, span: found.span })
    }

    /// Takes a table.
    pub(super) fn table(&mut self, key: &'static str) -> Option<Table<'n, 's>> {
        let found = self.open_table(key)?;
        Some(self.child(key, found.span, found.value))
    }

    /// Takes a table whose content is not this reader's.
    pub(super) fn open_table(&mut self, key: &'static str) -> Option<Found<DeTable<'s>>> {
        self.typed(key, "a table", entries_of)
    }

    /// Takes a table whose keys are names of the person's own, each with a table behind it.
    pub(super) fn named_tables(
        &mut self,
        key: &'static str,
    ) -> Vec<(Found<String>, Table<'n, 's>)> {
        let Some(parent) = self.table(key) else { return Vec::new() };
        let mut tables = Vec::new();
        for (name, value) in parent.entries {
            let found = Found {
                key: name.span(),
                span: value.span(),
                value: name.into_inner().into_owned(),
            };
            let found_kind = kind(value.get_ref());
            if let Some(entries) = entries_of(value.into_inner()) {
                let child = self.child(&format!("{key}.*"), found.span.clone(), entries);
                tables.push((found, child));
            } else {
                let shown = format!("{key}.{}", found.value);
                self.mistyped::<()>(&found.span, &shown, found_kind, "a table");
            }
        }
        tables
    }

    /// Takes a list of tables, in their order.
    pub(super) fn tables(&mut self, key: &'static str) -> Vec<Table<'n, 's>> {
        let wanted = "a list of tables, each below a [[header]]";
        let Some(found) = self.take(key) else { return Vec::new() };
        let DeValue::Array(items) = found.value else {
            self.mistyped::<()>(&found.span, key, kind(&found.value), wanted);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in items {
            let (span, found_kind) = (item.span(), kind(item.get_ref()));
            if let Some(entries) = entries_of(item.into_inner()) {
                tables.push(self.child(&format!("{key}.*"), span, entries));
            } else {
                self.mistyped::<()>(&span, key, found_kind, wanted);
            }
        }
        tables
    }

    /// A table behind `key` whose entries were taken by hand.
    pub(super) fn child(&self, key: &str, span: Span, entries: DeTable<'s>) -> Table<'n, 's> {
        let path = if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) };
        Table { notes: self.notes, keys: self.keys, path, span, entries, taken: Vec::new() }
    }

    /// Whether a key is there and was not taken yet, whatever its value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether a key was there when it was taken.
    pub(super) fn was_taken(&self, key: &str) -> bool {
        self.taken.contains(&key)
    }

    /// Reports every key that nobody took.
    pub(super) fn finish(self) {
        let place = match self.path.as_str() {
            "" => "at the top of the file".to_owned(),
            path => format!("in [{}]", path.replace('*', "NAME")),
        };
        for (key, _) in &self.entries {
            let (name, span) = (key.get_ref(), key.span());
            let known = schema::find(self.keys, &self.path, name);
            if known.is_some_and(|known| known.support == Support::NotYet) {
                let message = format!("`{name}` is not supported by this version");
                self.notes.error(&span, codes::NOT_SUPPORTED, message, "take it out");
                continue;
            }
            let nearest = schema::nearest(self.keys, &self.path, name);
            let names = self.keys.iter().filter(|k| k.table == self.path).map(|k| k.name);
            // The name alone, and no key of this table: one from the top of the file.
            let above = |near: &str| {
                !near.contains('.') && schema::find(self.keys, &self.path, near).is_none()
            };
            let mend = match &nearest {
                Some(near) if above(near) => {
                    "it stands at the top of the file, above the first [table]".to_owned()
                }
                Some(_) => String::new(),
                None => format!("known {place}: {}", names.collect::<Vec<_>>().join(", ")),
            };
            let message = format!("unknown key `{name}` {place}");
            let at = self.notes.source.at(&span);
            let diagnostic = Diagnostic::error(at, codes::UNKNOWN_KEY, message, mend);
            self.notes.add(diagnostic.near(nearest));
        }
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        wanted: &str,
        read: impl FnOnce(DeValue<'s>) -> Option<T>,
    ) -> Option<Found<T>> {
        let Found { value, key: at, span } = self.take(key)?;
        let found = kind(&value);
        match read(value) {
            Some(value) => Some(Found { value, key: at, span }),
            None => self.mistyped(&span, key, found, wanted),
        }
    }

    fn mistyped<T>(&self, span: &Span, key: &str, found: &str, wanted: &str) -> Option<T> {
        let message = format!("`{key}` is {found}");
        self.notes.error(span, codes::WRONG_TYPE, message, format!("wanted: {wanted}"));
        None
    }

    fn wrong<T>(&self, span: &Span, key: &str, wanted: &str) -> Option<T> {
        let message = format!("`{key}` cannot have this value");
        self.notes.error(span, codes::WRONG_VALUE, message, format!("wanted: {wanted}"));
        None
    }
}
