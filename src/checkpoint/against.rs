//! What is held against a checkpoint that is whole: a person's word, attempts that died on it, an overlap,
//! or a later run in the same folder.

use super::choice::Scan;
use super::earlier_run::later_whole;
use super::formats::Format;
use super::scan::LookError;
use crate::model::checkpoint::{CANDIDATES_LIMIT, Findings, Passed, PassedOver};
use crate::model::time::WallTime;
use std::time::Duration;

/// How much later than the chosen file another one has to be written to be called so.
const WRITTEN_AFTER: Duration = Duration::from_secs(60);

impl Scan<'_> {
    /// Why the whole checkpoint at `at` is not taken, if it is not.
    pub(super) async fn held_against(
        &self,
        at: usize,
        passed: Option<Passed>,
        format: &dyn Format,
        findings: &mut Findings,
    ) -> Result<Option<String>, LookError> {
        if let (Some(last), Some(checkpoint)) = (format.written_last(), self.run.listed.get(&at)) {
            let lowest = self.lowest(at).await?;
            let siblings = self.siblings(at);
            let case = self.case(at, checkpoint, &siblings);
            if let Some(later) = later_whole(case, format, last, lowest.as_ref()).await? {
                let why = format!("but {later} was written after it: it is of an earlier run");
                return Ok(Some(why));
            }
        }
        if let Some(passed) = passed {
            self.pass_over(at, passed, findings);
            return Ok(Some(format!("passed over: {}", passed.words())));
        }
        let is_another = self.is_another_of_suspect(at, findings);
        Ok(is_another.then(|| "passed over: of the same step as a suspect".to_owned()))
    }

    /// Whether a file of a lower step was written after the chosen one: a folder that was used again.
    pub(super) fn is_written_after(&self, at: usize, chosen_at: usize) -> bool {
        let modified = |at: usize| self.run.entries[at].modified;
        modified(at).zip(modified(chosen_at)).is_some_and(|(one, c)| one.since(c) > WRITTEN_AFTER)
    }

    /// Why the entry at `at` is not wanted, whatever the tests say of it.
    pub(super) fn passed(&self, at: usize) -> Option<Passed> {
        let listed = self.run.listed.get(&at)?;
        let times: Vec<WallTime> = listed.objects.iter().map(|object| object.modified).collect();
        let step = self.run.entries[at].position.map(|position| position.step);
        self.options.pass_over.reason(&listed.path, step, &times)
    }

    /// Whether the entry at `at` holds the step of one that was passed over as suspect: trainers keep
    /// their last checkpoint under a second name.
    fn is_another_of_suspect(&self, at: usize, findings: &Findings) -> bool {
        let step = self.run.entries[at].position.map(|position| position.step);
        let mut suspects = findings.passed_over.iter().filter(|one| one.why == Passed::Suspect);
        step.is_some() && suspects.any(|one| one.step == step)
    }

    /// Notes that the entry at `at` is passed over.
    pub(super) fn pass_over(&self, at: usize, why: Passed, findings: &mut Findings) {
        if findings.passed_over.len() < CANDIDATES_LIMIT {
            let step = self.run.entries[at].position.map(|position| position.step);
            findings.passed_over.push(PassedOver { path: self.path(at).to_owned(), step, why });
        }
    }
}
