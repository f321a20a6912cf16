//! Which checkpoint of one run is chosen: candidates are listed and tested, newest first, until one is
//! whole.
//!
//! What always holds: what is older than the chosen one is neither listed nor read, but for the few that
//! the newest is compared with. What it must not do: find the run ([`super::scan`]).

use super::formats::{Case, Checkpoint, Format, Judgement, Root, own_files};
use super::names::{Kind, NameShape, SHAPES};
use super::objects::{Object, Objects, StoreError};
use super::run::{Run, TOO_LARGE, list_entry};
use super::scan::{LookError, ScanOptions};
use super::walk::ClosedFolder;
use crate::model::checkpoint::{
    CANDIDATES_LIMIT, Candidate, Findings, Passed, Pin, Position, ResumePoint, Tracker, Unfinished,
    Wholeness,
};
use crate::model::time::WallTime;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};

/// Candidates that are tested, newest first, until one is whole.
pub(super) const TESTED_LIMIT: usize = 200;
/// Older candidates that are listed beside the one under test, where one is not enough.
const SIBLINGS: usize = 4;
/// Entries whose names show no step that are opened to read it, the youngest first.
const OPENED: usize = 8;
/// Of a whole one that cannot be put into the order.
const NO_STEP: &str = "neither its name nor what can be read of it says a step";
/// Checkpoints of too many objects that a look comes across before it gives up.
const LARGE_LIMIT: usize = 4;
/// Listings of candidates that are on their way at one time.
const LISTINGS_AT_ONCE: usize = 4;

/// Which older candidates are listed beside the one under test, to compare with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Beside {
    /// The next older one: enough where the newest is whole and has its very names.
    Next,
    /// The lowest of its folder: it tells that as well, and whether the folder was used again.
    Lowest,
    /// The next [`SIBLINGS`].
    Several,
}

/// How far a choice has come.
struct SoFar {
    tested: usize,
    /// Files behind the chosen one that were opened.
    opened: usize,
    /// Whether nothing came before but what is passed over.
    is_newest: bool,
    /// The chosen one's place among the entries, and in the format's order.
    chosen: Option<(usize, Position)>,
}

/// A look at one run.
pub(super) struct Scan<'a> {
    pub(super) objects: &'a Objects,
    pub(super) run: Run,
    pub(super) options: &'a ScanOptions,
    pub(super) now: WallTime,
    pub(super) beside: Beside,
    /// Newer ones are not tested.
    pub(super) at_most: Option<Position>,
}

impl Scan<'_> {
    /// Whether the name of the entry at `at` says that it is newer than what is looked for.
    pub(super) fn is_too_new(&self, at: usize) -> bool {
        let position = self.run.entries.get(at).and_then(|entry| entry.position);
        self.at_most.is_some_and(|most| position.is_some_and(|position| position > most))
    }

    /// What was listed so far, newest first, less what cannot be looked into.
    pub(super) fn listed(&self) -> Vec<&Checkpoint> {
        self.run.listed.values().filter(|checkpoint| checkpoint.closed.is_none()).collect()
    }

    /// The first entry from `at` on that was not listed yet.
    pub(super) fn next_unlisted(&self, at: usize) -> usize {
        (at..self.run.entries.len())
            .find(|at| !self.run.listed.contains_key(at))
            .unwrap_or(self.run.entries.len())
    }

    /// Whether the newest one has the same names in it as the one listed beside it, and both by
    /// themselves are of one format: then one stands for the older ones as well.
    pub(super) fn is_like_the_one_beside<'f>(
        &self,
        format_of: &impl Fn(&[&Checkpoint]) -> Option<&'f dyn Format>,
    ) -> bool {
        let at = self.run.listed.keys().copied().find(|n| *n > 0);
        let (Some(newest), Some((at, before))) =
            (self.run.listed.get(&0), at.and_then(|at| self.run.listed.get_key_value(&at)))
        else {
            return self.run.entries.len() <= 1;
        };
        if format_of(&[newest, before]).is_some_and(|format| !format.marks_its_end()) {
            return false;
        }
        let word = |one: &Checkpoint| format_of(&[one]).map(Format::word);
        self.run.entries[0].root == self.run.entries[*at].root
            && word(newest) == word(before)
            && names(newest).eq(names(before))
    }

    /// Adds the checkpoints of a root that stand in a folder of it. Where only that folder was found,
    /// the root that it is a part of takes its place.
    pub(super) async fn add_beside(
        &mut self,
        formats: &[&dyn Format],
        closed: &mut Vec<ClosedFolder>,
    ) -> Result<(), StoreError> {
        for at in 0..self.run.roots.len() {
            let found = &self.run.roots[at];
            let mut outer = None;
            if let Some(path) = formats.iter().find_map(|format| format.owner(&found.path)) {
                let folder = Some(self.objects.folder(&path).await?);
                outer = Some(Root { path, folder });
            }
            let root = outer.as_ref().unwrap_or(found);
            let mut names = Vec::new();
            for format in formats {
                if names.is_empty() {
                    names = match format.beside(self.objects, root).await {
                        Err(StoreError::Closed { folder: path, why }) => {
                            closed.push(ClosedFolder { path, why });
                            break;
                        }
                        names => names?,
                    };
                }
            }
            if let Some(outer) = outer.filter(|_| !names.is_empty()) {
                self.run.replace(at, outer);
            }
            for name in names {
                self.run.add(at, name);
            }
        }
        Ok(())
    }

    /// Reads the steps that no name shows, of the youngest of such entries: the others come last, by
    /// time.
    pub(super) async fn read_steps(&mut self, formats: &[&dyn Format]) -> Result<(), StoreError> {
        for at in self.run.youngest_without_step(OPENED) {
            let checkpoint = list_entry(self.objects, &self.run, &self.run.entries[at]).await?;
            let case = self.case(at, &checkpoint, &[]);
            for format in formats {
                if let found @ Some(_) = format.position(case).await? {
                    self.run.entries[at].position = found;
                    break;
                }
            }
        }
        self.run.sort();
        Ok(())
    }

    /// Lists the entry at `at` and its older siblings, as far as this was not done.
    pub(super) async fn list_from(&mut self, at: usize) -> Result<(), StoreError> {
        let older = match (self.beside, self.lowest_of(at)) {
            (Beside::Lowest, Some(lowest)) => lowest..lowest + 1,
            (Beside::Next | Beside::Lowest, _) => at + 1..at + 2,
            (Beside::Several, _) => at + 1..at + 1 + SIBLINGS,
        };
        let wanted = std::iter::once(at).chain(older).filter(|n| *n < self.run.entries.len());
        let missing: Vec<usize> = wanted.filter(|n| !self.run.listed.contains_key(n)).collect();
        let (objects, run) = (self.objects, &self.run);
        let mut answers = futures_util::stream::iter(missing)
            .map(|n| async move { (n, list_entry(objects, run, &run.entries[n]).await) })
            .buffered(LISTINGS_AT_ONCE);
        let mut listed = Vec::new();
        while let Some((n, answer)) = answers.next().await {
            listed.push((n, answer?));
        }
        drop(answers);
        self.run.listed.extend(listed);
        // Each costs many requests: where all are like that, nobody gets to an end of them.
        let is_large = |one: &&Checkpoint| one.closed.as_deref() == Some(TOO_LARGE);
        if self.run.listed.values().filter(is_large).count() > LARGE_LIMIT {
            return Err(StoreError::TooMany { key: self.path(at).to_owned() });
        }
        Ok(())
    }

    /// The others in the root of the entry at `at`, as far as they were listed.
    pub(super) fn siblings(&self, at: usize) -> Vec<&Checkpoint> {
        let root = self.run.entries[at].root;
        let listed = self.run.listed.iter();
        listed
            .filter(|(n, _)| **n != at && self.run.entries[**n].root == root)
            .map(|(_, checkpoint)| checkpoint)
            .filter(|checkpoint| checkpoint.closed.is_none())
            .collect()
    }

    /// The oldest entry in the root of the one at `at`, unless it was listed with it. A run that uses a
    /// folder again begins there, below all that an earlier one left.
    pub(super) async fn lowest(&self, at: usize) -> Result<Option<Checkpoint>, StoreError> {
        match self.lowest_of(at).filter(|n| !self.run.listed.contains_key(n)) {
            Some(n) => list_entry(self.objects, &self.run, &self.run.entries[n]).await.map(Some),
            None => Ok(None),
        }
    }

    fn lowest_of(&self, at: usize) -> Option<usize> {
        let entries = &self.run.entries;
        (at + 1..entries.len()).rev().find(|n| entries[*n].root == entries[at].root)
    }

    /// Whether the entry at `at` is whole; `None` if it was not listed.
    pub(super) async fn judge(
        &self,
        at: usize,
        format: &dyn Format,
    ) -> Result<Option<Judgement>, StoreError> {
        let Some(checkpoint) = self.run.listed.get(&at) else { return Ok(None) };
        if let Some(why) = &checkpoint.closed {
            return Ok(Some(Judgement::unreadable(why.clone())));
        }
        if checkpoint.objects.is_empty() {
            let why = "it has no objects".to_owned();
            return Ok(Some(Judgement { wholeness: Wholeness::Torn, why }));
        }
        match format.judge(self.case(at, checkpoint, &self.siblings(at))).await {
            // A folder that its format asks for.
            Err(error @ StoreError::Closed { .. }) => {
                Ok(Some(Judgement::unreadable(error.to_string())))
            }
            judged => judged.map(Some),
        }
    }

    pub(super) fn case<'a>(
        &'a self,
        at: usize,
        checkpoint: &'a Checkpoint,
        siblings: &'a [&'a Checkpoint],
    ) -> Case<'a> {
        Case {
            objects: self.objects,
            root: &self.run.roots[self.run.entries[at].root],
            checkpoint,
            siblings,
            ranks: self.options.ranks,
        }
    }

    /// Tests candidates, newest first, until one is whole. `newest` is what was found of the first.
    pub(super) async fn choose(
        &mut self,
        format: &dyn Format,
        mut newest: Option<Judgement>,
    ) -> Result<Findings, LookError> {
        let mut findings =
            Findings { format: Some(format.word().to_owned()), ..Findings::default() };
        let mut so_far = SoFar { tested: 0, opened: 0, is_newest: true, chosen: None };
        for at in 0..self.run.entries.len() {
            let known = newest.take();
            let row = match so_far.chosen {
                Some(chosen) => Some(self.behind(at, chosen, format, &mut so_far.opened).await?),
                None if self.is_too_new(at) => {
                    Some((Wholeness::NotChecked, "newer than what another part has".to_owned()))
                }
                None => self.test(at, known, format, &mut so_far, &mut findings).await?,
            };
            if let Some((wholeness, why)) = row {
                push(&mut findings, self.candidate(at, wholeness, why));
            }
        }
        if findings.chosen.is_none() && findings.passed_over.is_empty() {
            self.doubt(format, &mut findings);
        }
        Ok(findings)
    }

    /// Tests the entry at `at`, and takes it if it is whole and nothing is held against it.
    async fn test(
        &mut self,
        at: usize,
        known: Option<Judgement>,
        format: &dyn Format,
        so_far: &mut SoFar,
        findings: &mut Findings,
    ) -> Result<Option<(Wholeness, String)>, LookError> {
        if so_far.tested >= TESTED_LIMIT {
            return Err(LookError::TooManyTorn);
        }
        self.list_from(at).await?;
        let passed = self.passed(at);
        if passed == Some(Passed::Earlier) {
            self.pass_over(at, Passed::Earlier, findings);
            return Ok(Some((Wholeness::NotChecked, Passed::Earlier.words().to_owned())));
        }
        so_far.tested += 1;
        let judged = match known {
            Some(judgement) => Some(judgement),
            None => self.judge(at, format).await?,
        };
        let (Some(checkpoint), Some(Judgement { wholeness, why })) =
            (self.run.listed.get(&at), judged)
        else {
            return Ok(None);
        };
        if wholeness != Wholeness::Whole {
            if so_far.is_newest && wholeness == Wholeness::Torn {
                findings.unfinished = unfinished(checkpoint, self.now);
            }
            so_far.is_newest = false;
            return Ok(Some((wholeness, why)));
        }
        if let Some(against) = self.held_against(at, passed, format, findings).await? {
            return Ok(Some((wholeness, format!("{why}; {against}"))));
        }
        so_far.is_newest = false;
        let siblings = self.siblings(at);
        let case = self.case(at, checkpoint, &siblings);
        Ok(Some(match self.resume_point(at, format, case).await? {
            Some((point, _)) if self.at_most.is_some_and(|most| point.position > most) => {
                (wholeness, format!("{why}; newer than what another part has"))
            }
            Some((point, note)) => {
                so_far.chosen = Some((at, point.position));
                findings.chosen = Some(point);
                (wholeness, format!("{why}{note}"))
            }
            None => (Wholeness::Unknown, format!("{why}; {NO_STEP}")),
        }))
    }

    /// Says what speaks for a layout of a person's own, where nothing was chosen. A save that was cut
    /// leaves one torn checkpoint: where several lack the same, and have nothing but what any script may
    /// call its files, nobody can tell what they are.
    fn doubt(&self, format: &dyn Format, findings: &mut Findings) {
        let listed = self.listed();
        findings.doubt = own_files::doubt(format, &listed);
        let several = listed.iter().filter(|checkpoint| !checkpoint.objects.is_empty()).count() > 1;
        let is_sure = listed.iter().any(|checkpoint| format.is_sure(checkpoint));
        if findings.doubt.is_none() || !several || is_sure {
            return;
        }
        for candidate in &mut findings.candidates {
            if candidate.wholeness == Wholeness::Torn {
                candidate.wholeness = Wholeness::Unknown;
                candidate.why = format!(
                    "by the files of {} it is torn ({}), and so is every other one here: a layout of \
                     your own needs format = \"custom\" (`--pattern`)",
                    format.word(),
                    candidate.why,
                );
            }
        }
    }

    /// What is said of the entry at `at`, which comes behind the chosen one: of most, that it is older.
    /// One whose step is shown nowhere comes behind only because nobody knows where it belongs: why is
    /// asked of the first few files (their listing is known), which were opened for their step before.
    async fn behind(
        &mut self,
        at: usize,
        (chosen_at, chosen): (usize, Position),
        format: &dyn Format,
        opened: &mut usize,
    ) -> Result<(Wholeness, String), StoreError> {
        let entry = &self.run.entries[at];
        let not_checked = |why: &str| Ok((Wholeness::NotChecked, why.to_owned()));
        match entry.position {
            Some(position) if position == chosen => {
                return not_checked("of the same step as the chosen one");
            }
            Some(_) if self.is_written_after(at, chosen_at) => {
                return not_checked("a lower step than the chosen one, though written after it");
            }
            Some(_) => return not_checked("older than the chosen one"),
            None => {}
        }
        if entry.kind != Kind::File || *opened >= OPENED {
            return not_checked("its name shows no step: it may be newer or older");
        }
        *opened += 1;
        let checkpoint = list_entry(self.objects, &self.run, entry).await?;
        self.run.listed.insert(at, checkpoint);
        let Some(Judgement { wholeness, why }) = self.judge(at, format).await? else {
            return not_checked("its name shows no step: it may be newer or older");
        };
        Ok(match wholeness {
            Wholeness::Whole => (Wholeness::Unknown, format!("{why}; {NO_STEP}")),
            Wholeness::Torn
            | Wholeness::WeightsOnly
            | Wholeness::Unreadable
            | Wholeness::NotChecked
            | Wholeness::Unknown => (wholeness, why),
        })
    }

    /// The whole checkpoint at `at` as a resume point, if it shows a step, and what a person should
    /// know of it.
    async fn resume_point(
        &self,
        at: usize,
        format: &dyn Format,
        case: Case<'_>,
    ) -> Result<Option<(ResumePoint, String)>, StoreError> {
        let entry = &self.run.entries[at];
        let position = match entry.position {
            Some(position) => Some(position),
            None => format.position(case).await?,
        };
        let Some(position) = position else { return Ok(None) };
        let way = format.resume(case).await?;
        let note = way.note.map(|note| format!("; {note}")).unwrap_or_default();
        let tracker = match way.pin {
            Pin::OwnChoice => Tracker::Fits,
            Pin::Argument | Pin::TrackerRewrite => format.tracker(case).await?,
        };
        let point = ResumePoint {
            path: case.checkpoint.path.clone(),
            root: case.root.path.clone(),
            step: Some(position.step),
            epoch: self.run.shape.has_epochs().then_some(position.epoch),
            position,
            format: format.word().to_owned(),
            argument: way.argument,
            pin: way.pin,
            tracker,
            parts: Vec::new(),
        };
        Ok(Some((point, note)))
    }

    /// Names of a shape with nothing inside that one of its formats writes: all shown, nothing chosen.
    pub(super) fn unknown(self, formats: &[&dyn Format]) -> Findings {
        let whose = self.run.shape.whose();
        let why = format!(
            "a name of {whose}, and nothing of theirs inside: a layout of your own needs format = \
             \"custom\" (`--pattern`)"
        );
        let doubt = Some(own_files::nobodys(formats, &self.listed()));
        let mut findings = Findings { doubt, ..Findings::default() };
        for at in 0..self.run.entries.len() {
            push(&mut findings, self.candidate(at, Wholeness::Unknown, why.clone()));
        }
        findings
    }

    /// The path of the entry at `at`: a listing may show that its folder is a part of a file's name.
    pub(super) fn path(&self, at: usize) -> &str {
        let listed = self.run.listed.get(&at);
        listed.map_or(&self.run.entries[at].path, |checkpoint| &checkpoint.path)
    }

    fn candidate(&self, at: usize, wholeness: Wholeness, why: String) -> Candidate {
        let entry = &self.run.entries[at];
        let listed = self.run.listed.get(&at);
        let objects = listed.map_or(&[] as &[Object], |checkpoint| &checkpoint.objects);
        Candidate {
            path: self.path(at).to_owned(),
            step: entry.position.map(|position| position.step),
            epoch: entry.position.filter(|_| self.run.shape.has_epochs()).map(|p| p.epoch),
            position: entry.position.unwrap_or_default(),
            wholeness,
            why,
            size: objects.iter().map(|object| object.size).sum(),
            newest_object: objects.iter().map(|object| object.modified).max(),
            oldest_object: objects.iter().map(|object| object.modified).min(),
        }
    }
}

/// Keeps the newest ones, and the chosen one in any case.
fn push(findings: &mut Findings, candidate: Candidate) {
    let is_chosen = findings.chosen.as_ref().is_some_and(|chosen| chosen.path == candidate.path);
    if findings.candidates.len() >= CANDIDATES_LIMIT {
        if !is_chosen {
            return;
        }
        findings.candidates.truncate(CANDIDATES_LIMIT - 1);
    }
    findings.candidates.push(candidate);
}

/// The names in a checkpoint, without the folders in it that are called by its own step.
fn names(checkpoint: &Checkpoint) -> impl Iterator<Item = String> {
    let is_step = |part: &str| {
        let position = |shape: &NameShape| shape.read(part, Kind::Folder);
        checkpoint.position.is_some() && SHAPES.iter().any(|s| position(s) == checkpoint.position)
    };
    checkpoint.objects.iter().map(move |object| {
        let parts = object.key.split('/').map(|part| if is_step(part) { "#" } else { part });
        parts.collect::<Vec<_>>().join("/")
    })
}

/// What is needed to tell whether an incomplete checkpoint is still being uploaded.
fn unfinished(checkpoint: &Checkpoint, now: WallTime) -> Option<Unfinished> {
    let youngest = checkpoint.objects.iter().map(|object| object.modified).max()?;
    let mut hash = Sha256::new();
    for object in &checkpoint.objects {
        hash.update((object.key.len() as u64).to_le_bytes());
        hash.update(object.key.as_bytes());
        hash.update(object.size.to_le_bytes());
        hash.update(object.modified.0.to_le_bytes());
    }
    let digest = hash.finalize();
    let fingerprint = digest.iter().take(8).fold(0, |n, &byte| n << 8 | u64::from(byte));
    Some(Unfinished {
        path: checkpoint.path.clone(),
        step: checkpoint.position.map(|position| position.step),
        youngest_age: now.since(youngest),
        fingerprint,
    })
}
