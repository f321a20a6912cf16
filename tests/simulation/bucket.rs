//! The model of the bucket: checkpoints that are whole, torn for ever, or still being uploaded.

use super::bugs::Bug;
use super::clock::at;
use spotkeeper::model::checkpoint::{
    Candidate, Findings, PassOver, PassedOver, Pin, Position, ResumePoint, Tracker, Unfinished,
    Wholeness,
};
use spotkeeper::model::ids::CloudId;
use spotkeeper::model::time::WallTime;
use std::collections::BTreeMap;
use std::time::Duration;

/// Candidates that a look of the model shows.
const SHOWN_LIMIT: usize = 8;

/// Who wrote a checkpoint: an attempt, and another of the same job that ran at the time.
pub(crate) type Writers = (CloudId, Option<CloudId>);

#[derive(Debug, Clone)]
struct Saved {
    step: u64,
    written: u64,
    /// When its last object is there; `None` if it never will be.
    whole_from: Option<u64>,
    by: Writers,
}

impl Saved {
    fn is_whole(&self, now: u64) -> bool {
        self.whole_from.is_some_and(|from| from <= now)
    }

    /// When its first and its newest object were written.
    fn times(&self, now: u64) -> [WallTime; 2] {
        let newest = self.whole_from.filter(|from| *from <= now).unwrap_or(self.written);
        [at(self.written), at(newest)]
    }

    fn passed(&self, now: u64, over: &PassOver) -> Option<PassedOver> {
        let path = format!("step-{}", self.step);
        let why = over.reason(&path, Some(self.step), &self.times(now))?;
        Some(PassedOver { path, step: Some(self.step), why })
    }
}

/// All prefixes.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    saved: BTreeMap<&'static str, Vec<Saved>>,
}

impl Bucket {
    /// A trainer saves; the same step again replaces what was there.
    pub(crate) fn save(
        &mut self,
        prefix: &'static str,
        step: u64,
        now: u64,
        whole_from: Option<u64>,
        by: Writers,
    ) {
        let all = self.saved.entry(prefix).or_default();
        // A save that goes wrong is made aside: what was whole stays.
        let is_whole = whole_from.is_some_and(|from| from <= now);
        if !is_whole && all.iter().any(|s| s.step == step && s.is_whole(now)) {
            return;
        }
        all.retain(|saved| saved.step != step);
        all.push(Saved { step, written: now, whole_from, by });
        all.sort_unstable_by_key(|saved| std::cmp::Reverse(saved.step));
    }

    pub(crate) fn is_whole(&self, prefix: &str, step: u64, now: u64) -> bool {
        self.saved
            .get(prefix)
            .is_some_and(|all| all.iter().any(|saved| saved.step == step && saved.is_whole(now)))
    }

    /// Who wrote the checkpoint of a step.
    pub(crate) fn writers(&self, prefix: &str, step: u64) -> Option<&Writers> {
        let saved = self.saved.get(prefix)?.iter().find(|saved| saved.step == step)?;
        Some(&saved.by)
    }

    /// When anything was last written there.
    pub(crate) fn last_written(&self, prefix: &str, now: u64) -> Option<u64> {
        let newest = |s: &Saved| s.whole_from.filter(|from| *from <= now).unwrap_or(s.written);
        self.saved.get(prefix)?.iter().filter(|s| s.written <= now).map(newest).max()
    }

    /// The newest whole one that is not passed over.
    pub(crate) fn newest_whole(&self, prefix: &str, now: u64, over: &PassOver) -> Option<u64> {
        let all = self.saved.get(prefix)?;
        let wanted = |saved: &&Saved| saved.is_whole(now) && saved.passed(now, over).is_none();
        all.iter().find(wanted).map(|saved| saved.step)
    }

    /// What a complete look shows.
    pub(crate) fn findings(
        &self,
        prefix: &str,
        now: u64,
        over: &PassOver,
        bug: Option<Bug>,
    ) -> Findings {
        let none = Vec::new();
        let all = self.saved.get(prefix).unwrap_or(&none);
        let good = |saved: &&Saved| saved.is_whole(now) || bug == Some(Bug::TornAccepted);
        let wanted = |saved: &&Saved| good(saved) && saved.passed(now, over).is_none();
        let passed = all.iter().filter(good).filter_map(|saved| saved.passed(now, over));
        let passed_over = passed.take(SHOWN_LIMIT).collect();
        let chosen = if bug == Some(Bug::LargestString) {
            all.iter().filter(wanted).max_by_key(|saved| format!("step-{}", saved.step))
        } else {
            all.iter().find(wanted)
        };
        let unfinished = all.first().filter(|saved| !good(saved)).map(|saved| Unfinished {
            path: format!("step-{}", saved.step),
            step: Some(saved.step),
            youngest_age: Duration::from_millis(now - saved.written),
            // One that is still being uploaded grows.
            fingerprint: if saved.whole_from.is_some() { now / 15_000 } else { saved.step },
        });
        Findings {
            format: Some("custom".to_owned()),
            chosen: chosen.map(|saved| point(saved.step)),
            candidates: all
                .iter()
                .take(SHOWN_LIMIT)
                .map(|saved| Candidate {
                    path: format!("step-{}", saved.step),
                    step: Some(saved.step),
                    epoch: None,
                    position: Position { epoch: 0, step: saved.step },
                    wholeness: if good(&saved) { Wholeness::Whole } else { Wholeness::Torn },
                    why: String::new(),
                    size: 1,
                    newest_object: Some(saved.times(now)[1]),
                    oldest_object: Some(saved.times(now)[0]),
                })
                .collect(),
            unfinished,
            passed_over,
            ..Findings::default()
        }
    }
}

fn point(step: u64) -> ResumePoint {
    ResumePoint {
        path: format!("step-{step}"),
        root: ".".to_owned(),
        step: Some(step),
        epoch: None,
        position: Position { epoch: 0, step },
        format: "custom".to_owned(),
        argument: "--load {path}".to_owned(),
        pin: Pin::Argument,
        tracker: Tracker::Fits,
        parts: Vec::new(),
    }
}
