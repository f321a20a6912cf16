//! The demo's figures: a pure function of the emulator's ledger, the trainer's log and the
//! store's events. Nothing is counted while the demo runs, so that anybody can do the sum again
//! with the files.

use super::trainer::LogLine;
use crate::emulator::ledger::{Entry, Event};
use crate::model::money::Money;
use crate::model::view::EventView;
use serde::Serialize;
use std::collections::BTreeMap;

const HOUR_MS: u64 = 3_600_000;
const MILLION: u64 = 1_000_000;

/// What is not in the files: what the job file asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Steps that the job should reach.
    pub steps: u64,
    /// CNY an hour at list price.
    pub list_price_per_hour: Money,
}

/// The figures, in the order of `demo -o json`; money is for people alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Figures {
    /// Jobs that the cloud made. Ledger: `create`.
    pub attempts: u64,
    /// Machines taken back. Ledger: `release`.
    pub releases: u64,
    /// Checkpoints newer than the chosen one that a look refused, summed over submissions. Events:
    /// the last CHECKPOINT before each INTENT.
    pub refused_checkpoints: u64,
    /// Steps that were asked for.
    pub asked_step: u64,
    /// Last step of the last run. Trainer's log.
    pub final_step: u64,
    /// Steps done again: over all restarts, the last step reached less the step resumed from.
    pub steps_repeated: u64,
    /// Steps that would have been done again had each restart begun at zero.
    pub steps_repeated_from_zero: u64,
    /// Steps of checkpoints, whole by the trainer's own log, that were done again.
    pub saved_steps_lost: u64,
    /// Seconds from the emulator's start to the last end. Ledger.
    pub seconds: f64,
    /// What the machines cost, at the price of the moment at which each was had. Ledger.
    #[serde(skip)]
    pub paid: Money,
    /// The same machines for the same time at list price.
    #[serde(skip)]
    pub at_list_price: Money,
}

/// Does the sum.
pub fn figures(ledger: &[Entry], log: &[LogLine], events: &[EventView], asked: Asked) -> Figures {
    let count = |event: Event| tally(ledger.iter().filter(|entry| entry.event == event));
    let runs = runs(log);
    let mut figures = Figures {
        attempts: count(Event::Create),
        releases: count(Event::Release),
        refused_checkpoints: refused(events),
        asked_step: asked.steps,
        final_step: runs.last().map_or(0, |run| run.reached),
        steps_repeated: 0,
        steps_repeated_from_zero: 0,
        saved_steps_lost: 0,
        seconds: ledger.iter().rev().find(|e| e.event == Event::End).map_or(0.0, |e| e.t),
        paid: Money(0),
        at_list_price: Money(0),
    };
    for (before, after) in runs.iter().zip(runs.iter().skip(1)) {
        figures.steps_repeated += before.reached.saturating_sub(after.from);
        figures.steps_repeated_from_zero += before.reached;
        figures.saved_steps_lost += before.saved.saturating_sub(after.from);
    }
    for span in spans(ledger) {
        let list = asked.list_price_per_hour.share(span.ms, HOUR_MS);
        figures.at_list_price.0 += list.0;
        figures.paid.0 += list.share(span.millionths_of_list, MILLION).0;
    }
    figures
}

fn tally<T>(of: impl Iterator<Item = T>) -> u64 {
    of.fold(0, |count, _| count + 1)
}

/// One life of the trainer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    from: u64,
    /// The last step done.
    reached: u64,
    /// The newest step that it, or a run before it, saved whole.
    saved: u64,
}

fn runs(log: &[LogLine]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut saved = 0;
    for line in log {
        match (line, runs.last_mut()) {
            (LogLine::Start { from }, _) => runs.push(Run { from: *from, reached: *from, saved }),
            (LogLine::Step { step }, Some(run)) => run.reached = *step,
            (LogLine::Saved { step }, Some(run)) => {
                saved = saved.max(*step);
                run.saved = saved;
            }
            (LogLine::Saving { .. } | LogLine::Done, _)
            | (LogLine::Step { .. } | LogLine::Saved { .. }, None) => {}
        }
    }
    runs
}

/// A look that was made again (a daemon that was killed in between) counts once.
fn refused(events: &[EventView]) -> u64 {
    let (mut all, mut by_last_look) = (0, 0);
    for event in events {
        match event.word.as_str() {
            "CHECKPOINT" => {
                by_last_look = tally(event.data["refused"].as_array().into_iter().flatten());
            }
            "INTENT" => all += std::mem::take(&mut by_last_look),
            _ => {}
        }
    }
    all
}

/// A time in which a job had its machine.
struct Span {
    ms: u64,
    /// The price when it got it.
    millionths_of_list: u64,
}

fn spans(ledger: &[Entry]) -> Vec<Span> {
    let mut running: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut spans = Vec::new();
    for entry in ledger {
        match entry.event {
            Event::Status if entry.status.as_deref() == Some("Running") => {
                let price = thousandths(entry.discount.unwrap_or(1.0) * 1_000.0);
                running.insert(&entry.job_id, (thousandths(entry.t), price));
            }
            Event::Release | Event::End => {
                if let Some((since, millionths_of_list)) = running.remove(entry.job_id.as_str()) {
                    let ms = thousandths(entry.t).saturating_sub(since);
                    spans.push(Span { ms, millionths_of_list });
                }
            }
            Event::Status | Event::Create | Event::StopAsked | Event::Refused => {}
        }
    }
    spans
}

/// `number` in thousandths, rounded; the numbers of a ledger are small and not negative.
fn thousandths(number: f64) -> u64 {
    format!("{:.0}", (number * 1_000.0).max(0.0)).parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::WallTime;
    use serde_json::{Value, json};

    fn entry(t: f64, event: Event, id: &str, status: &str, discount: f64) -> Entry {
        let mut entry = Entry::new(event, t, WallTime(0));
        id.clone_into(&mut entry.job_id);
        entry.status = Some(status.to_owned());
        entry.discount = Some(discount);
        entry
    }

    fn event(word: &str, data: Value) -> EventView {
        EventView {
            sequence: 1,
            at: String::new(),
            job: "demo".into(),
            run: 1,
            attempt: None,
            word: word.into(),
            text: String::new(),
            data,
        }
    }

    fn asked() -> Asked {
        Asked { steps: 40, list_price_per_hour: Money(36_000_000) }
    }

    fn log(text: &str) -> Vec<LogLine> {
        let line = |word: &str| {
            let (word, number) = word.split_at(1);
            let n = number.parse().unwrap_or(0);
            match word {
                "f" => LogLine::Start { from: n },
                "s" => LogLine::Step { step: n },
                "b" => LogLine::Saving { step: n },
                "w" => LogLine::Saved { step: n },
                _ => LogLine::Done,
            }
        };
        text.split_whitespace().map(line).collect()
    }

    #[test]
    fn steps_are_counted_over_the_restarts() {
        // Released at 12, in the middle of the save of 20, and at 33.
        let text = "f0 s5 b10 w10 s12 f10 s15 s20 b20 f10 s20 w20 s30 w30 s33 f30 s40 w40 d";
        let found = figures(&[], &log(text), &[], asked());
        assert_eq!(found.final_step, 40);
        assert_eq!(found.steps_repeated, 2 + 10 + 3);
        assert_eq!(found.steps_repeated_from_zero, 12 + 20 + 33);
        assert_eq!(found.saved_steps_lost, 0);
    }

    #[test]
    fn a_saved_step_that_is_done_again_is_lost_even_if_an_earlier_run_saved_it() {
        let found = figures(&[], &log("f0 s10 w10 s20 w20 f10 s12 f0 s40 w40 d"), &[], asked());
        assert_eq!(found.saved_steps_lost, (20 - 10) + 20);
    }

    #[test]
    fn a_look_that_was_made_again_counts_once_and_one_without_submission_not_at_all() {
        let look = |count: usize| event("CHECKPOINT", json!({ "refused": vec![json!({}); count] }));
        let intent = || event("INTENT", Value::Null);
        let events = [intent(), look(1), look(1), intent(), look(0), intent(), look(2)];
        assert_eq!(figures(&[], &[], &events, asked()).refused_checkpoints, 1);
    }

    #[test]
    fn money_is_running_time_at_the_price_of_its_start() {
        let ledger = [
            entry(1.0, Event::Create, "a", "Creating", 0.3),
            entry(2.0, Event::Status, "a", "Running", 0.3),
            entry(12.0, Event::Release, "a", "Running", 0.6),
            entry(12.5, Event::End, "a", "Failed", 0.6),
            entry(13.0, Event::Create, "b", "Creating", 0.6),
            entry(20.0, Event::Status, "b", "Running", 0.25),
            entry(40.0, Event::End, "b", "Succeeded", 0.25),
        ];
        let found = figures(&ledger, &[], &[], asked());
        assert_eq!((found.attempts, found.releases), (2, 1));
        assert_eq!(found.at_list_price, Money(300_000));
        assert_eq!(found.paid, Money(30_000 + 50_000));
        assert!((found.seconds - 40.0).abs() < 1e-9);
    }

    #[test]
    fn the_json_has_the_keys_that_scripts_rely_on() {
        let json = serde_json::to_value(figures(&[], &[], &[], asked())).expect("JSON");
        let keys: Vec<&str> = json.as_object().expect("an object").keys().map(|k| &**k).collect();
        let mut wanted = [
            "attempts",
            "releases",
            "refused_checkpoints",
            "asked_step",
            "final_step",
            "steps_repeated",
            "steps_repeated_from_zero",
            "saved_steps_lost",
            "seconds",
        ];
        wanted.sort_unstable();
        assert_eq!(keys, wanted);
    }
}
