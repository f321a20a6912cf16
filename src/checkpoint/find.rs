//! What is under a location: the checkpoint that it is itself, the one run below it, or what else is there.
//!
//! What always holds: where the format that is asked for finds nothing and another would, that is no
//! empty place; a folder that cannot be looked into is named, and nothing starts at zero beside it
//! where nothing else was found.

use super::choice::{Beside, Scan, TESTED_LIMIT};
use super::formats::{Checkpoint, FORMATS, Format, Root, Wanted};
use super::names::{Kind, NameShape, SHAPES};
use super::numbered::Numbered;
use super::objects::{Folder, Objects};
use super::run::Run;
use super::scan::{LookError, ScanOptions};
use super::walk::{ClosedFolder, has_ranks, walk};
use crate::model::checkpoint::{
    CANDIDATES_LIMIT, Candidate, Findings, Location, Position, Wholeness,
};
use crate::model::time::WallTime;
use std::collections::{BTreeMap, BTreeSet};

/// With more checkpoints than these the lowest one is listed in the place of the next older one, not
/// besides it.
const FEW_ENTRIES: usize = 8;
/// Folders that cannot be looked into and are named.
const CLOSED_NAMED: usize = 10;

/// Looks once. What is newer than `at_most` is shown and not tested.
pub(super) async fn find(
    objects: &Objects,
    location: &Location,
    options: &ScanOptions,
    now: WallTime,
    at_most: Option<Position>,
) -> Result<Findings, LookError> {
    let wanted = Wanted::read(&options.format, options.custom.as_ref())?;
    let formats = wanted.formats();
    let shapes = shapes_of(&wanted, &formats);
    Search { objects, location, options, now, at_most, wanted: &wanted, formats, shapes }
        .find()
        .await
}

/// The shapes of the names that are looked for.
fn shapes_of(wanted: &Wanted, formats: &[&dyn Format]) -> Vec<NameShape> {
    match wanted {
        Wanted::Auto => SHAPES.to_vec(),
        Wanted::Known(_) | Wanted::Custom(_) => {
            let mut shapes: Vec<NameShape> = Vec::new();
            for shape in formats.iter().flat_map(|format| format.shapes()) {
                if !shapes.contains(&shape) {
                    shapes.push(shape);
                }
            }
            shapes
        }
    }
}

/// One search.
struct Search<'a> {
    objects: &'a Objects,
    location: &'a Location,
    options: &'a ScanOptions,
    now: WallTime,
    at_most: Option<Position>,
    wanted: &'a Wanted,
    formats: Vec<&'a dyn Format>,
    shapes: Vec<NameShape>,
}

impl<'a> Search<'a> {
    async fn find(&self) -> Result<Findings, LookError> {
        let top = self.objects.top().await?;
        let name = self.location.prefix.rsplit('/').next().unwrap_or_default();
        if let Some(format) = self.formats.iter().find(|f| f.is_checkpoint(name, &top))
            // A folder that is a checkpoint and holds others as well is first of all a root.
            && !has_children(&top, &format.shapes())
            && !has_ranks(self.objects, &top, &self.shapes).await?
        {
            let mut shapes = format.shapes().into_iter();
            let shape = shapes.find(|shape| shape.read(name, Kind::Folder).is_some());
            let shape = shape.or_else(|| named_shape(name)).unwrap_or_else(|| format.shape());
            let mut scan = self.scan(Run::of_itself(shape, name), Beside::Several);
            scan.read_steps(&[*format]).await?;
            return scan.choose(*format, None).await;
        }
        let walked = walk(self.objects, top, &self.shapes).await?;
        if walked.is_root_among_cut || (walked.roots.is_empty() && walked.left.is_cut) {
            return Err(LookError::TooManyFolders);
        }
        let mut closed = walked.left.closed;
        let is_in_one = |(root, shape): &(Root, NameShape)| {
            root.path == "." && named_shape(name).is_some_and(|own| own != *shape)
        };
        // A checkpoint may have another trainer's inside: `checkpoint-20/global_step20`.
        if walked.roots.iter().all(is_in_one)
            && let Some(findings) = self.itself_by_name(name, &mut closed).await?
        {
            return Ok(findings);
        }
        let mut findings = match Run::of_roots(walked.roots) {
            Ok(Some(run)) => self.in_run(run, &mut closed).await?,
            Ok(None) => self.without_roots(&walked.numbered).await?,
            Err(roots) => ambiguous(roots),
        };
        name_closed(&mut findings, &closed);
        Ok(findings)
    }

    fn scan(&self, run: Run, beside: Beside) -> Scan<'a> {
        Scan {
            objects: self.objects,
            run,
            options: self.options,
            now: self.now,
            beside,
            at_most: self.at_most,
        }
    }

    /// Chooses in one run.
    async fn in_run(
        &self,
        run: Run,
        closed: &mut Vec<ClosedFolder>,
    ) -> Result<Findings, LookError> {
        let mut scan = self.scan(run, Beside::Next);
        let fitting = self.formats.iter().filter(|format| format.reads(&scan.run.shape));
        let fitting: Vec<&dyn Format> = fitting.copied().collect();
        if scan.run.entries.len() > FEW_ENTRIES
            && fitting.iter().any(|format| format.written_last().is_some())
        {
            scan.beside = Beside::Lowest;
        }
        scan.add_beside(&fitting, closed).await?;
        scan.read_steps(&fitting).await?;
        let format_of = |newest: &[&Checkpoint]| self.format_of(&fitting, newest);
        scan.list_from(0).await?;
        let mut newest = None;
        if !scan.is_too_new(0)
            && scan.is_like_the_one_beside(&format_of)
            && let Some(format) = format_of(&scan.listed())
        {
            newest = scan.judge(0, format).await?.map(|judgement| (format.word(), judgement));
        }
        if !matches!(&newest, Some((_, judgement)) if judgement.wholeness == Wholeness::Whole) {
            scan.beside = Beside::Several;
            scan.list_from(0).await?;
        }
        let Some(format) = self.format_in(&mut scan, &format_of).await? else {
            return Ok(scan.unknown(&fitting));
        };
        // What is whole or torn beside one stays so beside more, as long as it is the same format's.
        let newest = newest.filter(|(word, judgement)| {
            *word == format.word()
                && matches!(judgement.wholeness, Wholeness::Whole | Wholeness::Torn)
        });
        let mut findings = scan.choose(format, newest.map(|(_, judgement)| judgement)).await?;
        if findings.chosen.is_none()
            && let Some(other) = self.another_claims(format, &scan)
        {
            not_of(&mut findings, other.word(), &self.options.format, None);
        }
        Ok(findings)
    }

    fn format_of<'f>(
        &self,
        fitting: &[&'f dyn Format],
        newest: &[&Checkpoint],
    ) -> Option<&'f dyn Format> {
        let claimed = fitting.iter().copied().find(|format| format.claims(newest));
        match self.wanted {
            Wanted::Auto => claimed,
            Wanted::Known(_) | Wanted::Custom(_) => claimed.or(fitting.first().copied()),
        }
    }

    /// The format of a run, by what lies inside the newest ones: where these hold nothing, or nobody
    /// can look into them, by the first ones that do.
    async fn format_in<'f>(
        &self,
        scan: &mut Scan<'_>,
        format_of: &impl Fn(&[&Checkpoint]) -> Option<&'f dyn Format>,
    ) -> Result<Option<&'f dyn Format>, LookError> {
        let last = scan.run.entries.len().min(TESTED_LIMIT);
        let mut at = 0;
        loop {
            let found = format_of(&scan.listed());
            let has_objects = scan.listed().iter().any(|one| !one.objects.is_empty());
            at = scan.next_unlisted(at);
            if found.is_some() || has_objects || at >= last {
                return Ok(found);
            }
            scan.list_from(at).await?;
        }
    }

    /// The format whose own the newest ones are, where another was asked for that does not claim them.
    fn another_claims(&self, format: &dyn Format, scan: &Scan<'_>) -> Option<&'static dyn Format> {
        let newest = scan.listed();
        if !matches!(self.wanted, Wanted::Known(_)) || format.claims(&newest) {
            return None;
        }
        let is_meant = |other: &dyn Format| self.formats.iter().any(|f| f.word() == other.word());
        let reads = |other: &dyn Format| other.reads(&scan.run.shape) && other.claims(&newest);
        FORMATS.iter().copied().find(|other| !is_meant(*other) && reads(*other))
    }

    /// The location as a checkpoint, where its name and what lies inside are those of one. One that was
    /// cut may lack what else would show it.
    async fn itself_by_name(
        &self,
        name: &str,
        closed: &mut Vec<ClosedFolder>,
    ) -> Result<Option<Findings>, LookError> {
        let shape = named_shape(name).filter(|shape| self.shapes.contains(shape));
        let Some(shape) = shape else { return Ok(None) };
        let findings = self.in_run(Run::of_itself(shape, name), closed).await?;
        Ok(findings.format.is_some().then_some(findings))
    }

    /// What is there where no folder has the names that are looked for.
    async fn without_roots(&self, numbered: &Numbered) -> Result<Findings, LookError> {
        let seen = numbered.hint();
        if matches!(self.wanted, Wanted::Auto) {
            return Ok(Findings { doubt: seen, ..Findings::default() });
        }
        let options = ScanOptions { format: "auto".into(), custom: None, ..self.options.clone() };
        let looked = find(self.objects, self.location, &options, self.now, None);
        let mut findings = Box::pin(looked).await?;
        let asked = match &self.options.custom {
            Some(custom) => format!("the pattern `{}`", custom.pattern),
            None => self.options.format.clone(),
        };
        let word = findings.format.take();
        match word {
            Some(word) => not_of(&mut findings, &word, &asked, Some(&self.options.format)),
            None if findings.candidates.is_empty() && findings.ambiguous.is_empty() => {
                let seen =
                    seen.unwrap_or_else(|| "nothing with a number in its name was seen".into());
                findings.doubt = Some(format!("no name here is one of {asked}; {seen}"));
            }
            None => {}
        }
        Ok(findings)
    }
}

/// The shape by which a name alone shows a checkpoint.
fn named_shape(name: &str) -> Option<NameShape> {
    let is_weak = |shape: &NameShape| {
        matches!(shape, NameShape::Number | NameShape::EpochUnderscore | NameShape::Prefixed(_))
    };
    let mut shapes = SHAPES.into_iter().filter(|shape| !is_weak(shape));
    shapes.find(|shape| shape.read(name, Kind::Folder).is_some())
}

fn has_children(folder: &Folder, shapes: &[NameShape]) -> bool {
    let reads = |name: &str, kind| shapes.iter().any(|shape| shape.fits(name, kind));
    folder.folders.iter().any(|name| reads(name, Kind::Folder))
        || folder.objects.iter().any(|object| reads(&object.key, Kind::File))
}

fn ambiguous(roots: BTreeMap<String, BTreeSet<&'static str>>) -> Findings {
    let words = |of: &BTreeSet<&str>| of.iter().copied().collect::<Vec<_>>().join(" and of ");
    let ambiguous_of = roots.values().map(words).collect();
    let ambiguous = roots.into_keys().collect();
    Findings { ambiguous, ambiguous_of, ..Findings::default() }
}

/// Turns what was found of the format `word` into what a person is asked about: another was asked for.
fn not_of(findings: &mut Findings, word: &str, asked: &str, format: Option<&str>) {
    findings.chosen = None;
    findings.format = format.map(str::to_owned).or(findings.format.take());
    findings.unfinished = None;
    findings.passed_over.clear();
    for candidate in &mut findings.candidates {
        match candidate.wholeness {
            Wholeness::Whole | Wholeness::Torn | Wholeness::WeightsOnly => {
                candidate.wholeness = Wholeness::Unknown;
                candidate.why =
                    format!("{}; but its files are those of {word}, not of {asked}", candidate.why);
            }
            Wholeness::Unreadable | Wholeness::NotChecked | Wholeness::Unknown => {}
        }
    }
    let path = findings.candidates.first().map_or(".", |candidate| &candidate.path);
    findings.doubt = Some(format!(
        "{path} is of `{word}`, and {asked} was asked for: `--format {word}` reads it, in a job file \
         format = \"{word}\" (or auto)"
    ));
}

/// Names the folders that cannot be looked into before all others: a newer checkpoint may be in one.
fn name_closed(findings: &mut Findings, closed: &[ClosedFolder]) {
    let rows: Vec<Candidate> = closed
        .iter()
        .take(CLOSED_NAMED)
        .map(|folder| Candidate {
            path: folder.path.clone(),
            step: None,
            epoch: None,
            position: Position::default(),
            wholeness: Wholeness::Unreadable,
            why: format!("it cannot be looked into: {}", folder.why),
            size: 0,
            newest_object: None,
            oldest_object: None,
        })
        .collect();
    let room = CANDIDATES_LIMIT.saturating_sub(rows.len());
    let chosen = findings.chosen_candidate().cloned();
    findings.candidates.truncate(room);
    if let Some(chosen) = chosen
        && findings.chosen_candidate().is_none()
    {
        findings.candidates.pop();
        findings.candidates.push(chosen);
    }
    findings.candidates.splice(0..0, rows);
}
