//! A market that plays a script: JSON lines, in any mixture of
//!
//! ```json
//! {"t": 0, "discount": 0.3, "stock": true}
//! {"t": 5, "release": "llama"}
//! {"when": {"exists": "ckpt/iter_*/model.pt", "missing": "ckpt/iter_*/done"}, "release": "*", "repeat": 2}
//! {"when": {"exists": "ckpt/iter_100/done"}, "after": 1.5, "discount": 0.6, "for": 4}
//! ```
//!
//! `t` is in seconds since the start. `release` names a part of a display name, or `*`; such an
//! order waits until a spot job of that name runs, then releases all that do. A conditional one is
//! carried out when the file `exists` and the other is `missing`; a `*` in both stands for the
//! same text, and one file sets it off only once, `repeat` files in all. Relative paths start at
//! the script's folder.
//!
//! A price or stock with `when` rules over those with a time alone, from `after` seconds (0) past
//! the first moment at which its condition held, `for` so many seconds (for ever).

use super::market::{Quote, ReleaseOrder};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Size of a script file.
const SCRIPT_LIMIT_BYTES: u64 = 4 * 1024 * 1024;
/// Entries of one folder, and matches of one pattern, that are looked at.
const MATCHES_LIMIT: usize = 10_000;

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The script.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is larger than any script should be.
    #[error("{path} is larger than {SCRIPT_LIMIT_BYTES} bytes")]
    TooLarge {
        /// The script.
        path: PathBuf,
    },
    /// A line is no line of a script.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The script.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong, in words.
        why: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default)]
    t: f64,
    discount: Option<f64>,
    stock: Option<bool>,
    release: Option<String>,
    when: Option<When>,
    repeat: Option<u32>,
    after: Option<f64>,
    #[serde(rename = "for")]
    hold: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct When {
    exists: Option<String>,
    missing: Option<String>,
}

/// A script while it is played.
#[derive(Debug)]
pub struct Script {
    folder: PathBuf,
    prices: Vec<(Duration, Quote)>,
    turns: Vec<Turn>,
    orders: Vec<Order>,
}

/// A price or stock that a condition brings about.
#[derive(Debug)]
struct Turn {
    from: Duration,
    condition: When,
    after: Duration,
    hold: Duration,
    discount: Option<f64>,
    stock: Option<bool>,
    /// When the condition first held.
    since: Option<Duration>,
}

impl Turn {
    fn rules(&self, at: Duration) -> bool {
        let begin = self.since.map(|since| since.saturating_add(self.after));
        begin.is_some_and(|begin| begin <= at && at < begin.saturating_add(self.hold))
    }
}

#[derive(Debug)]
struct Order {
    from: Duration,
    name_part: String,
    condition: Option<When>,
    times_left: u32,
    used_witnesses: BTreeSet<String>,
}

impl Script {
    /// Reads a script.
    ///
    /// # Errors
    /// [`ScriptError`] with the line that is wrong.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let read = |source| ScriptError::Read { path: path.to_owned(), source };
        if std::fs::metadata(path).map_err(read)?.len() > SCRIPT_LIMIT_BYTES {
            return Err(ScriptError::TooLarge { path: path.to_owned() });
        }
        let text = std::fs::read_to_string(path).map_err(read)?;
        let mut script = Self {
            folder: path.parent().unwrap_or(Path::new(".")).to_owned(),
            prices: Vec::new(),
            turns: Vec::new(),
            orders: Vec::new(),
        };
        for (index, line) in text.lines().enumerate() {
            if !line.trim().is_empty() {
                script.take(line).map_err(|why| ScriptError::Line {
                    path: path.to_owned(),
                    line: index + 1,
                    why,
                })?;
            }
        }
        script.prices.sort_by_key(|(from, _)| *from);
        Ok(script)
    }

    fn take(&mut self, line: &str) -> Result<(), String> {
        let line: Line = serde_json::from_str(line).map_err(|e| e.to_string())?;
        let from = time("t", line.t)?;
        let prices = line.discount.is_some() || line.stock.is_some();
        if !prices && line.release.is_none() {
            return Err("a line sets `discount` or `stock`, or asks for a `release`".to_owned());
        }
        if line.release.is_none() && line.repeat.is_some() {
            return Err("`repeat` belongs to a `release`".to_owned());
        }
        if (line.after.is_some() || line.hold.is_some()) && (line.when.is_none() || !prices) {
            return Err("`after` and `for` belong to a price with `when`".to_owned());
        }
        if line.discount.is_some_and(|discount| !(0.0..=10.0).contains(&discount)) {
            return Err("`discount` is a fraction of the list price, 0 to 10".to_owned());
        }
        if let Some(when) = &line.when {
            when.check()?;
        }
        match &line.when {
            Some(condition) if prices => self.turns.push(Turn {
                from,
                condition: condition.clone(),
                after: line.after.map_or(Ok(Duration::ZERO), |after| time("after", after))?,
                hold: line.hold.map_or(Ok(Duration::MAX), |hold| time("for", hold))?,
                discount: line.discount,
                stock: line.stock,
                since: None,
            }),
            Some(_) | None if prices => {
                let before = self.prices.last().map_or(OPENING, |(_, quote)| *quote);
                let discount = line.discount.unwrap_or(before.discount);
                let stock = line.stock.unwrap_or(before.stock);
                self.prices.push((from, Quote::new(discount, stock)));
            }
            Some(_) | None => {}
        }
        if let Some(name_part) = line.release {
            self.orders.push(Order {
                from,
                name_part,
                condition: line.when,
                times_left: line.repeat.unwrap_or(1),
                used_witnesses: BTreeSet::new(),
            });
        }
        Ok(())
    }

    /// Sees which conditions of prices hold now, for the first time.
    pub fn look(&mut self, at: Duration) {
        let unused = BTreeSet::new();
        for turn in self.turns.iter_mut().filter(|turn| turn.since.is_none() && turn.from <= at) {
            if turn.condition.witness(&self.folder, &unused).is_some() {
                turn.since = Some(at);
            }
        }
    }

    /// The price that the last line before `at` set, or a condition that was seen.
    pub fn quote(&self, at: Duration) -> Quote {
        let past = self.prices.iter().take_while(|(from, _)| *from <= at);
        let mut quote = past.last().map_or(OPENING, |(_, quote)| *quote);
        for turn in self.turns.iter().filter(|turn| turn.rules(at)) {
            quote.discount = turn.discount.unwrap_or(quote.discount);
            quote.stock = turn.stock.unwrap_or(quote.stock);
        }
        quote
    }

    /// Orders whose time has come and whose condition holds.
    pub fn orders(&self, at: Duration) -> Vec<ReleaseOrder> {
        let due = |order: &&Order| order.times_left > 0 && order.from <= at;
        let mut found = Vec::new();
        for (index, order) in self.orders.iter().enumerate().filter(|(_, order)| due(order)) {
            let witness = match &order.condition {
                None => None,
                Some(when) => match when.witness(&self.folder, &order.used_witnesses) {
                    Some(witness) => Some(witness),
                    None => continue,
                },
            };
            let name_part = order.name_part.clone();
            found.push(ReleaseOrder { order: index, name_part, witness });
        }
        found
    }

    /// A job was released for `done`.
    pub fn carried_out(&mut self, done: &ReleaseOrder) {
        if let Some(order) = self.orders.get_mut(done.order) {
            order.times_left = order.times_left.saturating_sub(1);
            order.used_witnesses.extend(done.witness.clone());
        }
    }
}

fn time(key: &str, seconds: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("`{key}` is no time"))
}

/// The market before the first line of a script.
const OPENING: Quote = Quote::new(0.3, true);

impl When {
    fn check(&self) -> Result<(), String> {
        let stars = |path: &Option<String>| path.as_deref().map_or(0, |p| p.matches('*').count());
        match (&self.exists, &self.missing) {
            (None, None) => Err("`when` names a file that `exists` or is `missing`".to_owned()),
            (Some(_) | None, Some(_)) if stars(&self.missing) > stars(&self.exists) => {
                Err("`missing` has more `*` than `exists` has texts for them".to_owned())
            }
            (Some(_), _) | (None, Some(_)) => Ok(()),
        }
    }

    /// The file that makes the condition true, unless it was used before.
    fn witness(&self, folder: &Path, used: &BTreeSet<String>) -> Option<String> {
        let is_missing = |texts: &[String]| match &self.missing {
            None => true,
            Some(path) => !folder.join(fill_in(path, texts)).exists(),
        };
        let Some(pattern) = &self.exists else {
            let missing = self.missing.clone()?;
            return (is_missing(&[]) && !used.contains(&missing)).then_some(missing);
        };
        matches(folder, pattern)
            .into_iter()
            .find(|(path, texts)| !used.contains(path) && is_missing(texts))
            .map(|(path, _)| path)
    }
}

/// `path` with each `*` replaced by the next of `texts`.
fn fill_in(path: &str, texts: &[String]) -> String {
    let mut parts = path.split('*');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for (part, text) in parts.zip(texts) {
        filled.push_str(text);
        filled.push_str(part);
    }
    filled
}

/// Paths that fit `pattern`, each with the texts that its `*` stand for, in order of name.
fn matches(folder: &Path, pattern: &str) -> Vec<(String, Vec<String>)> {
    let start = if pattern.starts_with('/') { "/" } else { "" };
    let mut found = vec![(start.to_owned(), Vec::new())];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        for (base, texts) in found {
            let join = |name: &str| match base.as_str() {
                "" | "/" => format!("{base}{name}"),
                _ => format!("{base}/{name}"),
            };
            if !part.contains('*') {
                let path = join(part);
                if folder.join(&path).exists() {
                    next.push((path, texts));
                }
                continue;
            }
            let mut names: Vec<String> = std::fs::read_dir(folder.join(&base))
                .into_iter()
                .flatten()
                .take(MATCHES_LIMIT)
                .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
                .collect();
            names.sort();
            for name in names {
                if let Some(stars) = star_texts(part, &name) {
                    next.push((join(&name), [texts.clone(), stars].concat()));
                }
            }
        }
        next.truncate(MATCHES_LIMIT);
        found = next;
    }
    found
}

/// What the `*` of `pattern` stand for if it fits the whole of `name`.
fn star_texts(pattern: &str, name: &str) -> Option<Vec<String>> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == name).then(Vec::new);
    };
    let rest = name.strip_prefix(before)?;
    // The shortest text first, so that a name fits in only one way.
    let ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.into_iter().find_map(|end| {
        let mut texts = vec![rest[..end].to_owned()];
        texts.extend(star_texts(after, &rest[end..])?);
        Some(texts)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("market.jsonl");
        std::fs::write(&path, text).expect("written");
        path
    }

    fn script(folder: &Path, text: &str) -> Script {
        Script::load(&written(folder, text)).expect("a script")
    }

    #[test]
    fn prices_hold_from_their_time_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "{\"t\":2,\"discount\":0.8}\n\n{\"t\":3.5,\"stock\":false}\n";
        let script = script(folder.path(), text);
        let at = |ms| script.quote(Duration::from_millis(ms));
        assert_eq!(at(0), OPENING);
        assert_eq!(at(2000), Quote::new(0.8, true));
        assert_eq!(at(3500), Quote::new(0.8, false));
    }

    #[test]
    fn a_condition_turns_the_price_for_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = "{\"discount\":0.3}\n\
            {\"when\":{\"exists\":\"done\"},\"after\":1,\"discount\":0.6,\"for\":2}\n";
        let mut script = script(folder.path(), text);
        let mut at = |seconds| {
            script.look(Duration::from_secs(seconds));
            script.quote(Duration::from_secs(seconds)).discount
        };
        let before = at(5);
        std::fs::write(folder.path().join("done"), "").expect("written");
        let prices = [before, at(6), at(7), at(8), at(9), at(10)];
        let expected = [0.3, 0.3, 0.6, 0.6, 0.3, 0.3];
        assert!(prices.iter().zip(expected).all(|(p, e)| (p - e).abs() < 1e-9), "{prices:?}");
    }

    #[test]
    fn a_timed_release_stands_until_it_was_carried_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut script = script(folder.path(), r#"{"t":1,"release":"llama","repeat":2}"#);
        assert!(script.orders(Duration::from_millis(999)).is_empty());
        for _ in 0..2 {
            let orders = script.orders(Duration::from_secs(9));
            assert_eq!(orders.len(), 1);
            script.carried_out(&orders[0]);
        }
        assert!(script.orders(Duration::from_secs(9)).is_empty());
    }

    #[test]
    fn a_condition_binds_the_star_and_takes_each_file_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, "x").expect("written");
        };
        let mut script = script(
            folder.path(),
            r#"{"when":{"exists":"c/iter_*/m_*.pt","missing":"c/iter_*/done"},"release":"*","repeat":9}"#,
        );
        assert!(script.orders(Duration::ZERO).is_empty());
        file("c/iter_1/m_00.pt");
        file("c/iter_1/done");
        assert!(script.orders(Duration::ZERO).is_empty());
        file("c/iter_2/m_00.pt");
        let orders = script.orders(Duration::ZERO);
        assert_eq!(orders[0].witness.as_deref(), Some("c/iter_2/m_00.pt"));
        script.carried_out(&orders[0]);
        assert!(script.orders(Duration::ZERO).is_empty(), "the same file sets it off only once");
        file("c/iter_3/m_00.pt");
        let orders = script.orders(Duration::ZERO);
        assert_eq!(orders[0].witness.as_deref(), Some("c/iter_3/m_00.pt"));
    }

    #[test]
    fn stars_are_found_wherever_they_stand() {
        assert_eq!(star_texts("a*b*", "axxbyb"), Some(vec!["xx".into(), "yb".into()]));
        assert_eq!(star_texts("*.pt", "é.pt"), Some(vec!["é".into()]));
        assert_eq!(star_texts("a*", "b"), None);
        assert_eq!(fill_in("c/iter_*/x_*", &["1".into(), "2".into()]), "c/iter_1/x_2");
    }

    #[test]
    fn a_wrong_line_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        for bad in [
            "{}",
            "nope",
            r#"{"t":-1,"discount":1}"#,
            r#"{"discount":11}"#,
            r#"{"when":{},"release":"*"}"#,
            r#"{"when":{"missing":"a*"},"release":"*"}"#,
            r#"{"when":{"exists":"a"}}"#,
            r#"{"t":1,"discount":0.3,"for":2}"#,
            r#"{"when":{"exists":"a"},"discount":0.3,"after":-1}"#,
            r#"{"when":{"exists":"a"},"release":"*","for":1}"#,
            r#"{"t":1,"discont":0.3}"#,
        ] {
            let path = written(folder.path(), &format!("{{\"stock\":true}}\n{bad}\n"));
            let error = Script::load(&path);
            assert!(matches!(error, Err(ScriptError::Line { line: 2, .. })), "{bad}: {error:?}");
        }
    }
}
