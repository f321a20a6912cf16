//! Whole checkpoints that are not gone on from: what a look passes over, and what follows where the
//! trainer would take one of them all the same, or where nothing else is left.
//!
//! What always holds: zero is never the answer to "all of them are passed over", and an argument
//! that would lead to one of them is never sent. What it must not do: hold anything against a
//! checkpoint itself ([`super::suspects`], [`super::overlap`]).

use super::job::{BlockKind, Job, Progress, Recovery, Start, kept};
use super::scan::block;
use super::step::Draft;
use super::suspects;
use super::terms::{ResumeTerms, resume_terms};
use super::tracker;
use crate::model::checkpoint::{
    Candidate, Earlier, Findings, PassOver, Passed, Pin, ResumePoint, Wholeness,
};
use crate::model::resume_text::names_main;
use crate::model::spec::CheckpointSpec;

impl Job {
    /// What a look into the bucket does not choose.
    pub fn pass_over(&self) -> PassOver {
        let Progress { asked, fresh_since, suspicion, .. } = &self.progress;
        let asked = asked.map(|asked| Earlier { before: asked.at, but_step: Some(asked.step) });
        let fresh = fresh_since.map(|before| Earlier { before, but_step: None });
        PassOver {
            suspects: suspicion.passed_over(),
            overlaps: self.overlaps.iter().map(|overlap| overlap.with_margin()).collect(),
            earlier: asked.or(fresh),
        }
    }
}

/// Whether what a look chose is by now passed over.
pub(super) fn is_passed_over(draft: &Draft<'_>, findings: &Findings, point: &ResumePoint) -> bool {
    let candidate = findings.candidates.iter().find(|candidate| candidate.path == point.path);
    let times = candidate.map(|candidate| [candidate.oldest_object, candidate.newest_object]);
    let times: Vec<_> = times.into_iter().flatten().flatten().collect();
    match draft.next.pass_over().reason(&point.path, point.step, &times) {
        Some(Passed::Suspect | Passed::Overlap) => true,
        // What was there before a fresh start is told apart below.
        Some(Passed::Earlier) => draft.next.progress.asked.is_some(),
        None => false,
    }
}

/// Why the trainer cannot be brought to load the chosen checkpoint, if it cannot.
pub(super) fn cannot_load(
    draft: &Draft<'_>,
    checkpoint: &CheckpointSpec,
    findings: &Findings,
    point: &ResumePoint,
) -> Option<String> {
    let newer = findings.passed_over.first();
    // A plain retry would hold nothing against the newer one any more.
    let from = newer.and(point.step);
    let why = tracker::needs_person(draft, checkpoint, point, from);
    if why.is_some() {
        return why;
    }
    let (newer, held) = match newer {
        Some(one) => (&one.path, one.why.words()),
        // Told nothing, such a trainer goes by the step that the environment names.
        None if checkpoint.resume.as_deref() == Some("") => return None,
        None => (&incomplete_in_parts(findings, point)?.path, "it is not whole in every part"),
    };
    let spec = draft.given.spec;
    let is_pinned = resume_terms(spec, &Start::From(point.clone())) == ResumeTerms::Pinned;
    let names_main = is_pinned && checkpoint.resume.as_deref().is_none_or(names_main);
    let is_led = names_main || tracker::is_rewritten(spec, checkpoint, point);
    if point.pin != Pin::Argument || is_led {
        return None;
    }
    let retry = from.map_or_else(|| "`retry`".to_owned(), |step| format!("`retry --from {step}`"));
    Some(format!(
        "{} is passed over ({}) and {} is the newest whole one to go on from, but the resume \
         argument names no checkpoint: the trainer would load what it finds newest; put {{path}} \
         or {{step}} into `checkpoint.resume`, or move {} away, then {retry}",
        kept(newer),
        held,
        kept(&point.path),
        kept(newer),
    ))
}

/// A newer one that is whole under the main prefix, and not in every part.
fn incomplete_in_parts<'f>(findings: &'f Findings, point: &ResumePoint) -> Option<&'f Candidate> {
    let newer =
        |one: &&Candidate| one.wholeness == Wholeness::Whole && one.position > point.position;
    findings.candidates.iter().find(newer).filter(|_| !point.parts.is_empty())
}

/// What follows where there are whole checkpoints and each is passed over. Answers whether this
/// decides it.
pub(super) fn only_passed_over(draft: &mut Draft<'_>, findings: &Findings) -> bool {
    let newest =
        |why| findings.passed_over.iter().find(|one| one.why == why).map(|one| kept(&one.path));
    if let Some(path) = newest(Passed::Suspect) {
        let why = format!("there is no other whole checkpoint than {path}: it is tried again");
        suspects::drop_all(draft, &why);
        draft.next.recovery = Recovery::look();
    } else if let Some(path) = newest(Passed::Overlap) {
        let why = format!(
            "every whole checkpoint was written while two attempts of the job ran at one time, the \
             newest is {path}: nobody can tell what is in it; `retry --from STEP` takes one all \
             the same, `retry --from fresh` starts at zero"
        );
        block(draft, BlockKind::OverlappedCheckpoints, &why);
    } else {
        return false;
    }
    true
}
