//! A look at a checkpoint of several parts, each under a prefix of its own: the newest step that is
//! whole in every one of them.
//!
//! What always holds: each prefix is looked into once, newest first; only one whose newest whole
//! step is newer than another's is looked into again, from that step down, at most [`STEPS_DOWN`]
//! times in all. A part that could not be looked into makes the whole look one that could not.

use super::find::find;
use super::objects::Objects;
use super::scan::{DEADLINE, LookError, ScanOptions, could_not, open};
use super::store_s3::StorageAccess;
use crate::model::checkpoint::{
    CANDIDATES_LIMIT, Candidate, Findings, Location, Look, PartPoint, PassOver, Position,
    ResumePoint, Unfinished, Wholeness,
};
use crate::model::spec::CheckpointSpec;
use crate::model::time::WallTime;

/// Times that a prefix is looked into again, further down, before the look is given up.
const STEPS_DOWN: usize = 64;

/// Why a look at several parts gave no findings.
#[derive(Debug, thiserror::Error)]
enum CommonError {
    /// One of them.
    #[error("part `{part}`")]
    Part {
        /// Its name.
        part: String,
        /// Why.
        #[source]
        source: LookError,
    },
    /// The main one.
    #[error(transparent)]
    Main(LookError),
}

/// One prefix.
struct Side<'a> {
    /// The part's name; `None` for the main prefix.
    name: Option<&'a str>,
    location: &'a Location,
    options: ScanOptions,
    objects: Objects,
    /// The first look, from the newest down.
    first: Findings,
    /// The newest whole one that may still be common.
    whole: Option<ResumePoint>,
    /// The same as that look shows it: the first may not have listed it.
    shown: Option<Candidate>,
}

/// Looks under all prefixes of a job.
pub async fn look_at_parts(
    checkpoint: &CheckpointSpec,
    pass_over: PassOver,
    access: Option<&StorageAccess>,
    now: WallTime,
) -> Look {
    let looked = Box::pin(look(checkpoint, pass_over, access, now));
    match tokio::time::timeout(DEADLINE, looked).await {
        Ok(Ok(findings)) => Look::Done(findings),
        Ok(Err(error)) => {
            let class = match &error {
                CommonError::Part { source, .. } | CommonError::Main(source) => source.class(),
            };
            could_not(&error, class)
        }
        Err(_) => could_not(&LookError::Deadline, LookError::Deadline.class()),
    }
}

async fn look(
    checkpoint: &CheckpointSpec,
    pass_over: PassOver,
    access: Option<&StorageAccess>,
    now: WallTime,
) -> Result<Findings, CommonError> {
    // A suspect is one of the main prefix; what was written at a time is so in every one of them.
    let of_parts = PassOver { suspects: Vec::new(), ..pass_over.clone() };
    let main = (None, &checkpoint.location, ScanOptions::of(checkpoint, pass_over));
    let parts = checkpoint.parts.iter().map(|part| {
        let (format, custom) = (part.format.clone(), part.custom.clone());
        let options = ScanOptions { format, custom, ranks: None, pass_over: of_parts.clone() };
        (Some(part.name.as_str()), &part.location, options)
    });
    let mut sides = Vec::new();
    for (name, location, options) in std::iter::once(main).chain(parts) {
        let of = |source| of_side(name, source);
        let objects = open(location, access).map_err(of)?;
        let first = find(&objects, location, &options, now, None).await.map_err(of)?;
        let (whole, shown) = (first.chosen.clone(), first.chosen_candidate().cloned());
        sides.push(Side { name, location, options, objects, first, whole, shown });
    }
    let ambiguous = ambiguous(&sides);
    if !ambiguous.is_empty() {
        let of = sides.iter().flat_map(|side| side.first.ambiguous_of.iter().cloned());
        return Ok(Findings { ambiguous, ambiguous_of: of.collect(), ..Findings::default() });
    }
    let newest: Vec<Option<Position>> = positions(&sides);
    step_down(&mut sides, now).await?;
    Ok(findings(&sides, &newest))
}

fn of_side(name: Option<&str>, source: LookError) -> CommonError {
    match name {
        Some(part) => CommonError::Part { part: part.to_owned(), source },
        None => CommonError::Main(source),
    }
}

fn positions(sides: &[Side<'_>]) -> Vec<Option<Position>> {
    sides.iter().map(|side| side.whole.as_ref().map(|point| point.position)).collect()
}

/// Roots between which a person has to decide, with the part that they lie in.
fn ambiguous(sides: &[Side<'_>]) -> Vec<String> {
    let named = |side: &Side<'_>, root: &String| match side.name {
        Some(name) => format!("{name}: {root}"),
        None => root.clone(),
    };
    let roots = sides
        .iter()
        .flat_map(|side| side.first.ambiguous.iter().map(move |root| named(side, root)));
    roots.collect()
}

/// Goes down in those that are ahead, until all stand at one step or one has none left.
async fn step_down(sides: &mut [Side<'_>], now: WallTime) -> Result<(), CommonError> {
    for _ in 0..STEPS_DOWN {
        let all: Option<Vec<Position>> = positions(sides).into_iter().collect();
        let Some(lowest) = all.and_then(|all| all.into_iter().min()) else { return Ok(()) };
        let ahead = |side: &Side<'_>| side.whole.as_ref().is_some_and(|p| p.position > lowest);
        let Some(side) = sides.iter_mut().find(|side| ahead(side)) else { return Ok(()) };
        let found = find(&side.objects, side.location, &side.options, now, Some(lowest)).await;
        let found = found.map_err(|source| of_side(side.name, source))?;
        side.shown = found.chosen_candidate().cloned();
        side.whole = found.chosen;
    }
    let name = sides.first().and_then(|side| side.name);
    Err(of_side(name, LookError::NoCommonStep))
}

/// The main prefix's findings, with the common step as the choice.
fn findings(sides: &[Side<'_>], newest: &[Option<Position>]) -> Findings {
    let mut findings = sides.first().map(|side| side.first.clone()).unwrap_or_default();
    let points: Option<Vec<&ResumePoint>> = sides.iter().map(|side| side.whole.as_ref()).collect();
    findings.chosen = points.as_ref().and_then(|points| points.first().copied().cloned());
    if let (Some(chosen), Some(points)) = (&mut findings.chosen, points) {
        let parts = sides.iter().zip(points).filter_map(|(side, point)| {
            let (path, root) = (point.path.clone(), point.root.clone());
            Some(PartPoint { name: side.name?.to_owned(), path, root })
        });
        chosen.parts = parts.collect();
    }
    let common = findings.chosen.as_ref().map(|point| point.position);
    for candidate in &mut findings.candidates {
        if candidate.wholeness == Wholeness::Whole && Some(candidate.position) > common {
            candidate.why = format!("{}; but not whole in every part", candidate.why);
        }
    }
    let shown = sides.first().and_then(|side| side.shown.clone());
    if let (Some(chosen), Some(shown)) = (&findings.chosen, shown) {
        let row = findings.candidates.iter_mut().find(|candidate| candidate.path == chosen.path);
        if let Some(row) = row {
            *row = shown;
        } else {
            findings.candidates.truncate(CANDIDATES_LIMIT - 1);
            findings.candidates.push(shown);
        }
    }
    if findings.chosen.is_none() && newest.iter().any(Option::is_some) {
        findings.unmatched = Some(unmatched(sides, newest));
    }
    if findings.chosen.is_none() {
        // What is passed over in a part alone is no reason to start at zero either.
        for side in &sides[1..] {
            let passed = side.first.passed_over.iter().cloned();
            let room = CANDIDATES_LIMIT.saturating_sub(findings.passed_over.len());
            findings.passed_over.extend(passed.take(room));
        }
        findings.candidates.splice(0..0, undecided(sides));
        findings.candidates.truncate(CANDIDATES_LIMIT);
    }
    findings.unfinished = unfinished(sides);
    findings.odd_keys = sides.iter().map(|side| side.objects.odd_keys()).sum();
    findings
}

/// One checkpoint of each part of which nobody can say from outside whether it is whole, before the
/// main prefix's own.
fn undecided<'s>(sides: &'s [Side<'_>]) -> impl Iterator<Item = Candidate> + 's {
    sides.iter().filter_map(|side| {
        let candidate = side.first.undecided()?;
        let path = format!("{}: {}", side.name?, candidate.path);
        Some(Candidate { path, ..candidate.clone() })
    })
}

/// What each prefix has, where no step is whole in all of them.
fn unmatched(sides: &[Side<'_>], newest: &[Option<Position>]) -> String {
    let each = sides.iter().zip(newest).map(|(side, newest)| {
        let name = side.name.map_or("the main one".to_owned(), |name| format!("`{name}`"));
        match newest {
            Some(position) => format!("{name} has step {} whole", position.step),
            None => format!("{name} has none"),
        }
    });
    each.collect::<Vec<_>>().join(", ")
}

/// The youngest incomplete newest one; its fingerprint changes with that of every part.
fn unfinished(sides: &[Side<'_>]) -> Option<Unfinished> {
    let all = sides.iter().filter_map(|side| Some((side.name, side.first.unfinished.as_ref()?)));
    let print = all.clone().fold(0_u64, |sum, (_, one)| sum.rotate_left(1) ^ one.fingerprint);
    let (name, youngest) = all.min_by_key(|(_, one)| one.youngest_age)?;
    let path = match name {
        Some(name) => format!("{name}: {}", youngest.path),
        None => youngest.path.clone(),
    };
    Some(Unfinished { path, fingerprint: print, ..youngest.clone() })
}
