//! A look: which checkpoints are under a location, and which one to go on from.

use super::earlier_run::later_whole;
use super::formats::{Case, Checkpoint, Format, FormatError, Judgement, Root, Wanted};
use super::names::{Kind, NameShape, SHAPES};
use super::objects::{Object, Objects, OddKeys, StoreError, chain};
use super::run::{Run, list_entry};
use super::store_folder::FolderStore;
use super::store_s3::{AccessError, S3Store, StorageAccess};
use super::walk::{FOLDERS_LIMIT, has_ranks, walk};
use crate::model::checkpoint::{
    CANDIDATES_LIMIT, Candidate, Findings, Location, Look, PassOver, Passed, PassedOver, Pin,
    Position, ResumePoint, Scheme, Tracker, Unfinished, Wholeness,
};
use crate::model::error::Class;
use crate::model::spec::{CheckpointSpec, CustomLayout};
use crate::model::time::WallTime;
use futures_util::StreamExt;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time that one look may take.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// Candidates that are tested, newest first, until one is whole.
const TESTED_LIMIT: usize = 200;
/// Older candidates that are listed beside the one under test, where one is not enough.
const SIBLINGS: usize = 4;
/// With more checkpoints than these the lowest one is listed in the place of the next older one, not
/// besides it.
const FEW_ENTRIES: usize = 8;
/// Entries whose names show no step that are opened to read it, the youngest first.
const OPENED: usize = 8;
/// Listings of candidates that are on their way at one time.
const LISTINGS_AT_ONCE: usize = 4;

/// What is looked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScanOptions {
    /// `auto`, a format's word, or `custom`.
    pub format: String,
    /// The layout when `format` is `custom`.
    pub custom: Option<CustomLayout>,
    /// Ranks that write, where known.
    pub ranks: Option<u32>,
    /// What is not to be chosen, whole or not.
    pub pass_over: PassOver,
}

impl ScanOptions {
    /// What a job file asks for, and what its record holds against checkpoints.
    pub fn of(spec: &CheckpointSpec, pass_over: PassOver) -> Self {
        let CheckpointSpec { format, custom, ranks, .. } = spec;
        Self { format: format.clone(), custom: custom.clone(), ranks: *ranks, pass_over }
    }
}

/// Why a look gave no findings.
#[derive(Debug, thiserror::Error)]
pub enum LookError {
    /// The store gave no answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store could not be opened.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// There is no such format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// More folders than are looked at, and no checkpoint in those.
    #[error(
        "there are more than {FOLDERS_LIMIT} folders, and the newest checkpoint may be in one that was not looked at: name a folder nearer to it"
    )]
    TooManyFolders,
    /// None of many was whole.
    #[error("the newest {TESTED_LIMIT} checkpoints are all incomplete; older ones were not tested")]
    TooManyTorn,
    /// Parts whose steps do not meet.
    #[error("the parts have no step in common among the newest ones; older ones were not compared")]
    NoCommonStep,
    /// [`DEADLINE`].
    #[error("no complete answer within {} s", DEADLINE.as_secs())]
    Deadline,
}

impl LookError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Store(error) => error.class(),
            Self::Access(error) => error.class(),
            Self::Format(_) | Self::TooManyFolders | Self::TooManyTorn | Self::NoCommonStep => {
                Class::Operator
            }
            Self::Deadline => Class::Retry,
        }
    }
}

/// Opens a location. `access` is needed for buckets only.
///
/// # Errors
/// A folder that is not there; no keys, or a wrong endpoint.
pub fn open(location: &Location, access: Option<&StorageAccess>) -> Result<Objects, LookError> {
    let odd = Arc::new(OddKeys::default());
    match (location.scheme, access) {
        (Scheme::File, _) => {
            let root = Path::new("/").join(&location.prefix);
            let store = FolderStore::open(&root, Arc::clone(&odd))?;
            Ok(Objects::new(Box::new(store), odd))
        }
        (Scheme::S3 | Scheme::Oss, Some(access)) => {
            let store = S3Store::open(location, access, Arc::clone(&odd))?;
            Ok(Objects::new(Box::new(store), odd))
        }
        (Scheme::S3 | Scheme::Oss, None) => {
            Err(AccessError::NoKeys { place: location.to_string() }.into())
        }
    }
}

/// Opens a location and looks.
pub async fn look_at(
    location: &Location,
    access: Option<&StorageAccess>,
    options: &ScanOptions,
    now: WallTime,
) -> Look {
    match open(location, access) {
        Ok(objects) => look(&objects, location, options, now).await,
        Err(error) => could_not(&error, error.class()),
    }
}

/// Looks for checkpoints under a location that is open.
pub async fn look(
    objects: &Objects,
    location: &Location,
    options: &ScanOptions,
    now: WallTime,
) -> Look {
    let found = Box::pin(find(objects, location, options, now, None));
    match tokio::time::timeout(DEADLINE, found).await {
        Ok(Ok(mut findings)) => {
            findings.odd_keys = objects.odd_keys();
            Look::Done(findings)
        }
        Ok(Err(error)) => could_not(&error, error.class()),
        Err(_) => could_not(&LookError::Deadline, LookError::Deadline.class()),
    }
}

pub(super) fn could_not(error: &dyn std::error::Error, class: Class) -> Look {
    let needs_person = match class {
        Class::Operator | Class::Bug => true,
        Class::Retry | Class::Wait => false,
    };
    Look::CouldNotLook { why: chain(error), needs_person }
}

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
    let shapes: Vec<NameShape> = match wanted {
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
    };
    let top = objects.folder(".").await?;
    let name = location.prefix.rsplit('/').next().unwrap_or_default();
    let itself = formats.iter().find(|f| f.is_checkpoint(name, &top)).copied();
    let walked = match itself {
        // A folder that is a checkpoint and holds others as well is first of all a root.
        Some(format)
            if !has_children(&top, &shapes) && !has_ranks(objects, &top, &shapes).await? =>
        {
            let mut shapes = format.shapes().into_iter();
            let shape = shapes.find(|shape| shape.read(name, Kind::Folder).is_some());
            let run = Run::of_itself(shape.unwrap_or_else(|| format.shape()), name);
            let scan = Scan { objects, run, options, now, beside: Beside::Several, at_most };
            return scan.choose(format, None).await;
        }
        Some(_) | None => walk(objects, top, &shapes).await?,
    };
    if walked.is_root_among_cut || (walked.roots.is_empty() && walked.is_cut) {
        return Err(LookError::TooManyFolders);
    }
    let run = match Run::of_roots(walked.roots) {
        Ok(Some(run)) => run,
        Ok(None) => return Ok(Findings::default()),
        Err(ambiguous) => return Ok(Findings { ambiguous, ..Findings::default() }),
    };
    let mut scan = Scan { objects, run, options, now, beside: Beside::Next, at_most };
    let fitting = formats.iter().filter(|format| format.reads(&scan.run.shape));
    let fitting: Vec<&dyn Format> = fitting.copied().collect();
    if scan.run.entries.len() > FEW_ENTRIES
        && fitting.iter().any(|format| format.written_last().is_some())
    {
        scan.beside = Beside::Lowest;
    }
    scan.add_beside(&fitting).await?;
    scan.read_steps(&fitting).await?;
    let format_of = |newest: &[&Checkpoint]| {
        let claimed = fitting.iter().copied().find(|format| format.claims(newest));
        match wanted {
            Wanted::Auto => claimed,
            Wanted::Known(_) | Wanted::Custom(_) => claimed.or(fitting.first().copied()),
        }
    };
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
    let Some(format) = format_of(&scan.listed()) else { return Ok(scan.unknown()) };
    // What is whole or torn beside one stays so beside more, as long as it is the same format's.
    let newest = newest.filter(|(word, judgement)| {
        *word == format.word() && matches!(judgement.wholeness, Wholeness::Whole | Wholeness::Torn)
    });
    scan.choose(format, newest.map(|(_, judgement)| judgement)).await
}

fn has_children(folder: &super::objects::Folder, shapes: &[NameShape]) -> bool {
    let reads = |name: &str, kind| shapes.iter().any(|shape| shape.fits(name, kind));
    folder.folders.iter().any(|name| reads(name, Kind::Folder))
        || folder.objects.iter().any(|object| reads(&object.key, Kind::File))
}

/// Which older candidates are listed beside the one under test, to compare with.
#[derive(Debug, Clone, Copy)]
enum Beside {
    /// The next older one: enough where the newest is whole and has its very names.
    Next,
    /// The lowest of its folder: it tells that as well, and whether the folder was used again.
    Lowest,
    /// The next [`SIBLINGS`].
    Several,
}

struct Scan<'a> {
    objects: &'a Objects,
    run: Run,
    options: &'a ScanOptions,
    now: WallTime,
    beside: Beside,
    /// Newer ones are not tested.
    at_most: Option<Position>,
}

impl Scan<'_> {
    /// Whether the name of the entry at `at` says that it is newer than what is looked for.
    fn is_too_new(&self, at: usize) -> bool {
        let position = self.run.entries.get(at).and_then(|entry| entry.position);
        self.at_most.is_some_and(|most| position.is_some_and(|position| position > most))
    }

    /// What was listed so far, newest first.
    fn listed(&self) -> Vec<&Checkpoint> {
        self.run.listed.values().collect()
    }

    /// Whether the newest one has the same names in it as the one listed beside it, and both by
    /// themselves are of one format: then one stands for the older ones as well.
    fn is_like_the_one_beside<'f>(
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
    async fn add_beside(&mut self, formats: &[&dyn Format]) -> Result<(), StoreError> {
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
                    names = format.beside(self.objects, root).await?;
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
    async fn read_steps(&mut self, formats: &[&dyn Format]) -> Result<(), StoreError> {
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
    async fn list_from(&mut self, at: usize) -> Result<(), StoreError> {
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
        Ok(())
    }

    /// The others in the root of the entry at `at`, as far as they were listed.
    fn siblings(&self, at: usize) -> Vec<&Checkpoint> {
        let root = self.run.entries[at].root;
        let listed = self.run.listed.iter();
        listed
            .filter(|(n, _)| **n != at && self.run.entries[**n].root == root)
            .map(|(_, checkpoint)| checkpoint)
            .collect()
    }

    /// The oldest entry in the root of the one at `at`, unless it was listed with it. A run that uses a
    /// folder again begins there, below all that an earlier one left.
    async fn lowest(&self, at: usize) -> Result<Option<Checkpoint>, StoreError> {
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
    async fn judge(&self, at: usize, format: &dyn Format) -> Result<Option<Judgement>, StoreError> {
        let Some(checkpoint) = self.run.listed.get(&at) else { return Ok(None) };
        if checkpoint.objects.is_empty() {
            let why = "it has no objects".to_owned();
            return Ok(Some(Judgement { wholeness: Wholeness::Torn, why }));
        }
        format.judge(self.case(at, checkpoint, &self.siblings(at))).await.map(Some)
    }

    fn case<'a>(
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
    async fn choose(
        mut self,
        format: &dyn Format,
        mut newest: Option<Judgement>,
    ) -> Result<Findings, LookError> {
        let mut findings =
            Findings { format: Some(format.word().to_owned()), ..Findings::default() };
        let mut tested = 0;
        // Nothing comes before it but what is passed over.
        let mut is_newest = true;
        for at in 0..self.run.entries.len() {
            let known = newest.take();
            if findings.chosen.is_some() {
                let why = "older than the chosen one";
                push(&mut findings, self.candidate(at, Wholeness::NotChecked, why.to_owned()));
                continue;
            }
            if self.is_too_new(at) {
                let why = "newer than what another part has";
                push(&mut findings, self.candidate(at, Wholeness::NotChecked, why.to_owned()));
                continue;
            }
            if tested >= TESTED_LIMIT {
                return Err(LookError::TooManyTorn);
            }
            self.list_from(at).await?;
            let passed = self.passed(at);
            if passed == Some(Passed::Earlier) {
                self.pass_over(at, Passed::Earlier, &mut findings);
                let why = Passed::Earlier.words();
                push(&mut findings, self.candidate(at, Wholeness::NotChecked, why.to_owned()));
                continue;
            }
            tested += 1;
            let Some(checkpoint) = self.run.listed.get(&at) else { continue };
            let judged = match known {
                Some(judgement) => Some(judgement),
                None => self.judge(at, format).await?,
            };
            let Some(Judgement { mut wholeness, mut why }) = judged else { continue };
            let siblings = self.siblings(at);
            let case = self.case(at, checkpoint, &siblings);
            if is_newest && wholeness == Wholeness::Torn {
                findings.unfinished = unfinished(checkpoint, self.now);
            }
            let later = match (wholeness, format.written_last()) {
                (Wholeness::Whole, Some(last)) => {
                    let lowest = self.lowest(at).await?;
                    later_whole(case, format, last, lowest.as_ref()).await?
                }
                (_, _) => None,
            };
            let mut is_passed_over = true;
            if let Some(later) = later {
                why = format!("{why}; but {later} was written after it: it is of an earlier run");
            } else if let (Wholeness::Whole, Some(passed)) = (wholeness, passed) {
                why = format!("{why}; passed over: {}", passed.words());
                self.pass_over(at, passed, &mut findings);
            } else if wholeness == Wholeness::Whole && self.is_another_of_suspect(at, &findings) {
                why = format!("{why}; passed over: of the same step as a suspect");
            } else {
                is_passed_over = false;
            }
            is_newest &= is_passed_over;
            if wholeness == Wholeness::Whole && !is_passed_over {
                match self.resume_point(at, format, case).await? {
                    Some((point, _)) if self.at_most.is_some_and(|m| point.position > m) => {
                        why = format!("{why}; newer than what another part has");
                    }
                    Some((point, note)) => {
                        why = format!("{why}{note}");
                        findings.chosen = Some(point);
                    }
                    None => {
                        wholeness = Wholeness::Unknown;
                        let what = "neither its name nor what can be read of it says a step";
                        why = format!("{why}; {what}");
                    }
                }
            }
            push(&mut findings, self.candidate(at, wholeness, why));
        }
        Ok(findings)
    }

    /// Why the entry at `at` is not wanted, whatever the tests say of it.
    fn passed(&self, at: usize) -> Option<Passed> {
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
    fn pass_over(&self, at: usize, why: Passed, findings: &mut Findings) {
        if findings.passed_over.len() < CANDIDATES_LIMIT {
            let step = self.run.entries[at].position.map(|position| position.step);
            findings.passed_over.push(PassedOver { path: self.path(at).to_owned(), step, why });
        }
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

    /// Names of a shape that nothing here can test: all shown, nothing chosen.
    fn unknown(self) -> Findings {
        let whose = self.run.shape.whose();
        let why = format!("a name of {whose}; what lies inside cannot be tested by this version");
        let mut findings = Findings::default();
        for at in 0..self.run.entries.len() {
            push(&mut findings, self.candidate(at, Wholeness::Unknown, why.clone()));
        }
        findings
    }

    /// The path of the entry at `at`: a listing may show that its folder is a part of a file's name.
    fn path(&self, at: usize) -> &str {
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
