//! The two records that judge: the emulator's ledger and the trainer's log.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The emulator's ledger as it stands.
pub(crate) struct Ledger {
    folder: PathBuf,
    lines: Vec<Value>,
}

fn text<'a>(line: &'a Value, key: &str) -> &'a str {
    line[key].as_str().unwrap_or_default()
}

/// An attempt that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    /// Its status is Running.
    pub(crate) runs: bool,
}

/// Whole lines of a file that is being written; none if it is not there yet.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
}

impl Ledger {
    /// Reads `folder/ledger.jsonl`.
    pub(crate) fn read(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), lines: lines(&folder.join("ledger.jsonl")) }
    }

    fn of<'a>(&'a self, event: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| text(line, "event") == event)
    }

    /// Lines of one kind.
    pub(crate) fn count(&self, event: &str) -> usize {
        self.of(event).count()
    }

    /// Created jobs whose DisplayName begins with `name`.
    pub(crate) fn created(&self, name: &str) -> usize {
        self.count_of("create", name)
    }

    /// Lines of one kind about jobs whose DisplayName begins with `name`.
    pub(crate) fn count_of(&self, event: &str, name: &str) -> usize {
        let prefix = format!("{name}.sk");
        self.of(event).filter(|line| text(line, "display_name").starts_with(&prefix)).count()
    }

    /// How often a job ended well.
    pub(crate) fn successes(&self, name: &str) -> usize {
        let prefix = format!("{name}.sk");
        let ended = self.of("end").filter(|line| text(line, "display_name").starts_with(&prefix));
        ended.filter(|line| text(line, "status") == "Succeeded").count()
    }

    /// The ids of jobs that have not ended, oldest first.
    pub(crate) fn open(&self) -> Vec<String> {
        let mut open: Vec<String> = Vec::new();
        for line in &self.lines {
            let id = text(line, "job_id").to_owned();
            match text(line, "event") {
                "create" => open.push(id),
                "end" => open.retain(|other| *other != id),
                _ => {}
            }
        }
        open
    }

    /// The ids of jobs that run now.
    pub(crate) fn running(&self) -> Vec<String> {
        let mut status: BTreeMap<&str, &str> = BTreeMap::new();
        for line in &self.lines {
            status.insert(text(line, "job_id"), text(line, "status"));
        }
        self.open().into_iter().filter(|id| status.get(id.as_str()) == Some(&"Running")).collect()
    }

    /// The attempt of a job that has not ended.
    pub(crate) fn attempt_of(&self, name: &str) -> Option<Attempt> {
        let open = self.open();
        let prefix = format!("{name}.sk");
        let newest = self.lines.iter().rev().find(|line| {
            text(line, "display_name").starts_with(&prefix)
                && open.iter().any(|id| id == text(line, "job_id"))
        })?;
        let (id, runs) = (text(newest, "job_id").to_owned(), self.running());
        Some(Attempt { runs: runs.contains(&id), id })
    }

    /// Whether an attempt has ended.
    pub(crate) fn has_ended(&self, id: &str) -> bool {
        self.of("end").any(|line| text(line, "job_id") == id)
    }

    /// Whether somebody asked to stop an attempt.
    pub(crate) fn was_asked_to_stop(&self, id: &str) -> bool {
        self.of("stop_asked").any(|line| text(line, "job_id") == id)
    }

    /// The request body of the last created job, as bytes.
    pub(crate) fn last_request(&self) -> String {
        let line = self.of("create").last().expect("a created job");
        let path = self.folder.join(text(line, "request"));
        std::fs::read_to_string(path).expect("a kept request")
    }

    /// The first promise: at no time more than one attempt of a job that has not ended, those
    /// that are stopping or being released included, and no mark twice. `same` tells which
    /// display names are one writer's.
    pub(crate) fn assert_never_two(&self, same: impl Fn(&str) -> String) {
        let mut open: BTreeMap<String, String> = BTreeMap::new();
        let mut marks: BTreeMap<&str, usize> = BTreeMap::new();
        for (number, line) in self.lines.iter().enumerate() {
            let (id, name) = (text(line, "job_id"), text(line, "display_name"));
            match text(line, "event") {
                "create" => {
                    *marks.entry(text(line, "mark")).or_default() += 1;
                    if let Some(other) = open.insert(same(name), id.to_owned()) {
                        panic!("line {}: {id} was created while {other} had not ended", number + 1);
                    }
                }
                "end" => open.retain(|_, other| other != id),
                _ => {}
            }
        }
        assert!(marks.values().all(|count| *count == 1), "one mark twice: {marks:?}");
    }
}

/// The name of a job in its DisplayName.
pub(crate) fn job_of(display_name: &str) -> String {
    display_name.split(".sk").next().unwrap_or_default().to_owned()
}

/// What the trainer of a job wrote down.
pub(crate) struct TrainerLog(Vec<Value>);

impl TrainerLog {
    /// Reads the log at `path`; an empty one if it is not there yet.
    pub(crate) fn read(path: &Path) -> Self {
        Self(lines(path))
    }

    fn steps<'a>(&'a self, event: &'a str, key: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.0
            .iter()
            .filter(move |line| text(line, "event") == event)
            .map(move |line| line[key].as_u64().expect("a step"))
    }

    /// Steps that its starts began from.
    pub(crate) fn starts(&self) -> Vec<u64> {
        self.steps("start", "from").collect()
    }

    /// Whether it reached the last step.
    pub(crate) fn is_done(&self) -> bool {
        self.0.iter().any(|line| text(line, "event") == "done")
    }

    /// Whether a save was finished since the last start.
    pub(crate) fn saved_since_start(&self) -> bool {
        let start = self.0.iter().rposition(|line| text(line, "event") == "start");
        start.is_some_and(|at| self.0[at..].iter().any(|line| text(line, "event") == "saved"))
    }

    /// The second promise: every start goes on from the newest save that was finished before it
    /// or from a later one, and the job reached the step that it was asked for. A trainer that is
    /// killed behind its last save is done by another start from there.
    pub(crate) fn assert_nothing_lost(&self, asked: u64) {
        let (mut saved, mut dones) = (0, 0);
        for line in &self.0 {
            match text(line, "event") {
                "start" => {
                    let from = line["from"].as_u64().expect("a step");
                    assert!(from >= saved, "started from {from}, {saved} was saved: {:?}", self.0);
                    // It may have been killed between the save and its line.
                    saved = from;
                }
                "saved" => saved = line["step"].as_u64().expect("a step"),
                "done" => dones += 1,
                _ => {}
            }
        }
        assert_eq!(self.steps("step", "step").last(), Some(asked), "the final step");
        assert_eq!(saved, asked, "the last save");
        assert!(dones > 0, "it was not done");
    }
}
