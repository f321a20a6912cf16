//! A market that plays a recording: `trace:FILE[,id=NAME][,speed=FACTOR]`.
//!
//! The file holds JSON lines, one recording a line; without `id` the first one is played:
//!
//! ```json
//! {"id": "zone-a", "step_s": 600, "avail": [[1, 12], [0, 3]], "price": [[1.2, 15]], "od_price": 3.06}
//! ```
//!
//! `avail` is how many machines could be had, `[value, ticks]` after `[value, ticks]`, each tick
//! `step_s` seconds long; in a recording of the kind `avail` 1 is as many as are asked for. The
//! discount is `price` (as `avail`) or `spot_price`, over `od_price`. `speed` seconds of the
//! recording pass in one. After its end it begins again.

use super::market::Quote;
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Size of a file of recordings.
const FILE_LIMIT_BYTES: u64 = 64 * 1024 * 1024;
/// Discount of a recording that knows no prices: what its machines usually cost.
const USUAL_DISCOUNT: f64 = 0.3;
/// Discounts are quoted in hundredths of a percent.
const DISCOUNT_GRAIN: f64 = 10_000.0;

/// Which recording is played, and how fast.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceSpec {
    /// The file of recordings.
    pub file: PathBuf,
    /// `id` of the recording; `None` is the first one.
    pub id: Option<String>,
    /// Seconds of the recording in one second.
    pub speed: f64,
}

impl FromStr for TraceSpec {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (mut file, mut id, mut speed) = (text, None, 1.0);
        // A file's name may have a comma: only known words after one belong to us.
        while let Some((front, word)) = file.rsplit_once(',') {
            if let Some(name) = word.strip_prefix("id=") {
                id = Some(name.to_owned());
            } else if let Some(factor) = word.strip_prefix("speed=") {
                speed = factor.parse().map_err(|_| ())?;
            } else {
                break;
            }
            file = front;
        }
        let is_speed = speed > 0.0 && speed <= 1e9;
        if file.is_empty() || !is_speed {
            return Err(());
        }
        Ok(Self { file: file.into(), id, speed })
    }
}

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line is no recording.
    #[error("{path}:{line}: {why}")]
    Line {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// What is wrong, in words.
        why: String,
    },
    /// No recording has the id that was asked for.
    #[error("{path} has no recording {id}: {known}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        id: String,
        /// The ids that it has.
        known: String,
    },
}

#[derive(Debug, Deserialize)]
struct Recording {
    #[serde(default)]
    id: String,
    kind: Option<String>,
    step_s: f64,
    avail: Vec<(u64, u64)>,
    price: Option<Vec<(f64, u64)>>,
    spot_price: Option<f64>,
    od_price: Option<f64>,
}

/// A recording while it is played.
#[derive(Debug)]
pub struct Trace {
    tick: Duration,
    ticks: u64,
    speed: f64,
    /// Machines, each with the tick from which on they are to be had; so for the discounts.
    machines: Vec<(u64, u64)>,
    discounts: Vec<(u64, f64)>,
    /// Whether a machine means as many as are asked for.
    size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Counted,
    Any,
}

impl Trace {
    /// Reads the recording.
    ///
    /// # Errors
    /// [`TraceError`] with the line that is wrong.
    pub fn load(spec: &TraceSpec) -> Result<Self, TraceError> {
        let path = &spec.file;
        let read = |source| TraceError::Read { path: path.clone(), source };
        let file = std::fs::File::open(path).map_err(read)?;
        let mut known = Vec::new();
        for (index, line) in BufReader::new(file.take(FILE_LIMIT_BYTES)).lines().enumerate() {
            let line = line.map_err(read)?;
            if line.trim().is_empty() {
                continue;
            }
            let wrong = |why| TraceError::Line { path: path.clone(), line: index + 1, why };
            let found: Recording = serde_json::from_str(&line).map_err(|e| wrong(e.to_string()))?;
            if spec.id.as_ref().is_none_or(|id| *id == found.id) {
                return Self::new(&found, spec.speed).map_err(wrong);
            }
            known.push(found.id);
        }
        Err(missing(path, spec, &known))
    }

    fn new(found: &Recording, speed: f64) -> Result<Self, String> {
        let tick = Duration::try_from_secs_f64(found.step_s)
            .ok()
            .filter(|tick| !tick.is_zero())
            .ok_or("`step_s` is no length of a tick")?;
        let (machines, ticks) = from_runs(&found.avail)?;
        let list = found.od_price.filter(|price| *price > 0.0);
        let prices = match (&found.price, found.spot_price) {
            (Some(runs), _) => from_runs(runs)?.0,
            (None, Some(price)) => vec![(0, price)],
            (None, None) => Vec::new(),
        };
        let discounts: Vec<(u64, f64)> = match list {
            Some(list) if !prices.is_empty() => prices
                .into_iter()
                .map(|(from, price)| {
                    (from, (price / list * DISCOUNT_GRAIN).round() / DISCOUNT_GRAIN)
                })
                .collect(),
            Some(_) | None => vec![(0, USUAL_DISCOUNT)],
        };
        if discounts.iter().any(|(_, discount)| !(0.0..=10.0).contains(discount)) {
            return Err("a price is not 0 to 10 times `od_price`".to_owned());
        }
        let size =
            if found.kind.as_deref() == Some("capacity") { Size::Counted } else { Size::Any };
        Ok(Self { tick, ticks, speed, machines, discounts, size })
    }

    /// The market `at` this time after the start.
    pub fn quote(&self, at: Duration) -> Quote {
        let played = Duration::try_from_secs_f64(at.as_secs_f64() * self.speed);
        let done = played.map_or(u128::MAX, |played| played.as_nanos() / self.tick.as_nanos());
        let tick = u64::try_from(done % u128::from(self.ticks)).unwrap_or(0);
        let machines = at_tick(&self.machines, tick).unwrap_or(0);
        let discount = at_tick(&self.discounts, tick).unwrap_or(USUAL_DISCOUNT);
        let mut quote = Quote::new(discount, machines > 0);
        quote.machines = (self.size == Size::Counted).then_some(machines);
        quote
    }
}

fn missing(path: &Path, spec: &TraceSpec, known: &[String]) -> TraceError {
    let id = spec.id.clone().unwrap_or_default();
    TraceError::Missing { path: path.to_owned(), id, known: known.join(", ") }
}

/// Values with the ticks from which on they hold, and the number of ticks in all.
fn from_runs<T: Copy>(runs: &[(T, u64)]) -> Result<(Vec<(u64, T)>, u64), String> {
    let (mut starts, mut ticks) = (Vec::with_capacity(runs.len()), 0_u64);
    for (value, length) in runs {
        starts.push((ticks, *value));
        ticks = ticks.checked_add(*length).ok_or("more ticks than can be counted")?;
    }
    if ticks == 0 { Err("a recording without ticks".to_owned()) } else { Ok((starts, ticks)) }
}

fn at_tick<T: Copy>(starts: &[(u64, T)], tick: u64) -> Option<T> {
    let after = starts.partition_point(|(from, _)| *from <= tick);
    starts.get(after.checked_sub(1)?).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::market::Bid;
    use serde_json::{Value, json};

    fn load(lines: &[Value], options: &str) -> Result<Trace, TraceError> {
        let (_folder, spec) = written(lines, options);
        Trace::load(&spec)
    }

    fn written(lines: &[Value], options: &str) -> (tempfile::TempDir, TraceSpec) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a,b.jsonl");
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        std::fs::write(&file, text.join("\n")).expect("written");
        let spec = format!("{}{options}", file.display()).parse().expect("a spec");
        (folder, spec)
    }

    #[test]
    fn stock_and_price_follow_the_recording_and_begin_again() {
        let line = json!({"id": "z", "kind": "capacity", "step_s": 600, "od_price": 4.0,
            "avail": [[16, 2], [3, 1], [0, 1]], "price": [[1.0, 3], [2.0, 1]], "more": null});
        let trace =
            load(&[json!({"id": "y", "step_s": 1, "avail": [[0, 1]]}), line], ",speed=600,id=z")
                .expect("a trace");
        let at = |seconds| trace.quote(Duration::from_secs(seconds));
        for (second, machines, discount) in
            [(0, 16, 0.25), (1, 16, 0.25), (2, 3, 0.25), (3, 0, 0.5), (4, 16, 0.25), (7, 0, 0.5)]
        {
            let quote = at(second);
            assert_eq!(quote.machines, Some(machines), "{second}");
            assert!((quote.discount - discount).abs() < 1e-9, "{quote:?}");
            assert_eq!(quote.stock, machines > 0);
        }
        assert!(at(2).serves(Bid(0.3), 3) && !at(2).serves(Bid(0.3), 4));
    }

    #[test]
    fn one_that_is_not_counted_serves_jobs_of_any_size() {
        let line = json!({"kind": "avail", "step_s": 195, "avail": [[1, 1], [0, 1]],
            "spot_price": null, "od_price": 3.06});
        let trace = load(&[line], "").expect("a trace");
        assert!(trace.quote(Duration::from_secs(194)).serves(Bid(0.3), 64));
        assert!(!trace.quote(Duration::from_secs(195)).serves(Bid(0.9), 1));
    }

    #[test]
    fn what_cannot_be_played_is_named() {
        let fine = json!({"id": "a", "step_s": 1, "avail": [[1, 1]]});
        let error = load(&[fine], ",id=b").expect_err("not there").to_string();
        assert!(error.ends_with("has no recording b: a"), "{error}");
        for bad in [
            json!({"step_s": 0, "avail": [[1, 1]]}),
            json!({"step_s": 1, "avail": []}),
            json!({"step_s": 1, "avail": [[1, u64::MAX], [1, 1]]}),
            json!({"step_s": 1, "avail": [[-1, 1]]}),
            json!({"step_s": 1, "avail": [[1, 1]], "spot_price": 99.0, "od_price": 1.0}),
            json!({"avail": [[1, 1]]}),
        ] {
            assert!(matches!(load(&[bad], ""), Err(TraceError::Line { line: 1, .. })));
        }
        for bad in ["", "f,speed=0", "f,speed=x", ",id=a"] {
            assert!(bad.parse::<TraceSpec>().is_err(), "{bad}");
        }
    }
}
