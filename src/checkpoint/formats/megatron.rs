//! What EasyCkpt and Megatron's `torch` format have in common: the rank folders, the tracker, the
//! resume argument.
//!
//! ```text
//! latest_checkpointed_iteration.txt                    a number or `release`; written last
//! non_persistent/                                      the same once more: one, overwritten by the next
//! iter_0000200/mp_rank_00[_003[_001]]/model_optim_rng.pt     one folder a model-parallel rank
//!                                    /distrib_optim.pt       with the distributed optimizer
//! ```
//!
//! Facts of the loader (Megatron-LM, 2026-08): `--ckpt-step` overrides the number in the tracker and
//! works without one; it is ignored if it is 0 or if the tracker says `release`; a tracker that is
//! empty or no number ends the trainer with exit code 0, whatever the argument. What the tracker of
//! `non_persistent` names is loaded if it is not below the tracker's number or that of `--ckpt-step`.

use super::{Case, Checkpoint, Judgement, Pickles, ResumeWay, Root, parts, weights};
use crate::checkpoint::names::{self, Kind, NameShape};
use crate::checkpoint::objects::{
    Folder, Object, Objects, Read, SMALL_FILE_LIMIT, StoreError, join,
};
use crate::checkpoint::tracker;
use crate::model::checkpoint::{Pin, Tracker as Lead};
use crate::model::step_pattern::digits;
use std::collections::{BTreeMap, BTreeSet};

const TRACKER: &str = "latest_checkpointed_iteration.txt";
/// The folder of checkpoints that are not kept (`--non-persistent-ckpt-type global`).
const PASSING: &str = "non_persistent";
/// The file that every rank folder has.
const MODEL: &str = "model_optim_rng.pt";
/// By how much two files of one rank may differ in size and still be of one parallel layout, %.
const SAME_LAYOUT_PERCENT: u64 = 5;

/// What the tracker says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracker {
    /// The root cannot be seen.
    Unseen,
    Absent,
    Step(u64),
    Release,
    /// Empty, or neither a number nor `release`.
    Garbage,
}

impl Tracker {
    pub(super) async fn read(case: Case<'_>) -> Result<Self, StoreError> {
        let Some(folder) = &case.root.folder else { return Ok(Self::Unseen) };
        Self::of(case.objects, &case.root.path, folder).await
    }

    /// That of the folder at `path`.
    async fn of(objects: &Objects, path: &str, folder: &Folder) -> Result<Self, StoreError> {
        let Some(object) = folder.object(TRACKER) else { return Ok(Self::Absent) };
        if object.size > SMALL_FILE_LIMIT {
            return Ok(Self::Garbage);
        }
        match objects.read(&join(path, TRACKER), 0..object.size).await? {
            Read::Bytes(bytes) => Ok(Self::parse(&bytes)),
            // It is being rewritten, or may not be read: nothing is known of it.
            Read::Changed | Read::Refused(_) => Ok(Self::Unseen),
        }
    }

    fn parse(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes).map(str::trim) {
            Ok("release") => Self::Release,
            Ok(text) => number(text).map_or(Self::Garbage, Self::Step),
            Err(_) => Self::Garbage,
        }
    }
}

/// A number as Python reads it: with a sign, and single `_` between its digits. A negative one ends the
/// trainer as well.
fn number(text: &str) -> Option<u64> {
    let text = text.strip_prefix('+').unwrap_or(text);
    text.split('_').all(|part| digits(part).is_some()).then(|| digits(&text.replace('_', "")))?
}

/// The rank folders of a checkpoint: indices of the rank (tensor, pipeline, expert) and its files.
pub(super) struct Ranks<'a>(BTreeMap<Vec<u64>, Vec<&'a Object>>);

impl<'a> Ranks<'a> {
    pub(super) fn of(checkpoint: &'a Checkpoint) -> Self {
        let mut ranks: BTreeMap<Vec<u64>, Vec<&Object>> = BTreeMap::new();
        for object in &checkpoint.objects {
            if let Some((folder, file)) = object.key.split_once('/')
                && let Some(rank) = rank_of(folder)
                && !file.contains('/')
                && has_extension(file, "pt")
            {
                ranks.entry(rank).or_default().push(object);
            }
        }
        Self(ranks)
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    fn has(&self, rank: &[u64]) -> bool {
        self.0.contains_key(rank)
    }

    fn names(files: &[&Object]) -> BTreeSet<String> {
        files.iter().filter_map(|o| Some(o.key.rsplit_once('/')?.1.to_owned())).collect()
    }

    /// The first thing that a listing shows to be missing.
    fn hole(&self) -> Option<String> {
        let Some((first, files)) = self.0.first_key_value() else {
            return Some("no mp_rank folder".into());
        };
        let wanted = Self::names(files);
        let mut ends = vec![0; first.len()];
        for (rank, files) in &self.0 {
            let folder = folder_of(rank);
            if rank.len() != first.len() {
                return Some(format!("{folder} beside {}: two parallel layouts", folder_of(first)));
            }
            for (end, index) in ends.iter_mut().zip(rank) {
                *end = (*end).max(index.saturating_add(1));
            }
            let names = Self::names(files);
            if !names.contains(MODEL) {
                return Some(format!("{folder}/{MODEL} is missing"));
            }
            if let Some(name) = wanted.symmetric_difference(&names).next() {
                let lacks = if names.contains(name) { folder_of(first) } else { folder };
                return Some(format!("{lacks}/{name} is missing"));
            }
            if let Some(empty) = files.iter().find(|o| o.size == 0) {
                return Some(format!("{} is empty", empty.key));
            }
        }
        let full = ends.iter().try_fold(1_u64, |n, &end| n.checked_mul(end));
        if full == Some(self.0.len() as u64) {
            return None;
        }
        let shape: Vec<_> = ends.iter().map(u64::to_string).collect();
        let missing = first_missing(&ends, |rank| self.has(rank)).map(|rank| folder_of(&rank));
        let missing = missing.unwrap_or_else(|| "a rank".into());
        Some(format!("rank grid {} not filled: {missing} is missing", shape.join("x")))
    }

    /// What this one lacks of what `other`, a full one, has. Fewer ranks of another size are no
    /// hole but another parallel layout: with half the ranks each file is twice as large.
    fn lacks_of(&self, other: &Self, other_is_older: bool) -> Option<String> {
        let missing = other.0.keys().find(|rank| !self.has(rank));
        let is_part = self.0.keys().all(|rank| other.has(rank));
        if let Some(missing) = missing
            && is_part
            && self.is_same_layout(other)
        {
            return Some(format!("{} is missing, which others here have", folder_of(missing)));
        }
        // A newer checkpoint may have files of a part that was switched on later.
        if missing.is_none() && is_part && other_is_older {
            let (mine, theirs) = (self.0.first_key_value()?, other.0.first_key_value()?);
            let names = Self::names(mine.1);
            let gone = Self::names(theirs.1).into_iter().find(|name| !names.contains(name))?;
            return Some(format!(
                "{}/{gone} is missing, which the older one has",
                folder_of(mine.0)
            ));
        }
        None
    }

    fn is_same_layout(&self, other: &Self) -> bool {
        let size = |files: &[&Object]| {
            files.iter().filter(|o| o.key.ends_with(MODEL)).map(|o| o.size).sum::<u64>()
        };
        self.0.iter().all(|(rank, files)| {
            other.0.get(rank).is_some_and(|others| {
                let (mine, theirs) = (size(files), size(others));
                // A short file is a cut one, not a smaller layout's: those are larger.
                mine <= theirs.saturating_add(theirs / 100 * SAME_LAYOUT_PERCENT + theirs % 100)
            })
        })
    }

    /// The model of the first rank, if no file beside it is of an optimizer.
    fn without_optimizer_file(&self) -> Option<&'a Object> {
        let (_, files) = self.0.first_key_value()?;
        let is_model = |object: &&&Object| object.key.rsplit('/').next() == Some(MODEL);
        let has_other = Self::names(files).iter().any(|n| n != MODEL && n.contains("optim"));
        files.iter().find(is_model).filter(|_| !has_other).copied()
    }

    fn files(&self) -> Vec<&'a Object> {
        self.0.values().flatten().copied().collect()
    }
}

/// `mp_rank_01_003`: the indices of a rank.
fn rank_of(folder: &str) -> Option<Vec<u64>> {
    folder.starts_with("mp_rank_").then(|| names::rank_of(folder))?
}

fn folder_of(rank: &[u64]) -> String {
    let mut name = "mp_rank".to_owned();
    for (at, index) in rank.iter().enumerate() {
        let width = if at == 0 { 2 } else { 3 };
        name = format!("{name}_{index:0width$}");
    }
    name
}

/// The first cell of a grid that is not there. Looks no further than there are ranks to fill it.
fn first_missing(ends: &[u64], has: impl Fn(&[u64]) -> bool) -> Option<Vec<u64>> {
    let mut rank = vec![0; ends.len()];
    loop {
        if !has(&rank) {
            return Some(rank);
        }
        let mut at = ends.len();
        loop {
            at = at.checked_sub(1)?;
            rank[at] += 1;
            if rank[at] < ends[at] {
                break;
            }
            rank[at] = 0;
        }
    }
}

fn has_extension(file: &str, extension: &str) -> bool {
    file.rsplit_once('.').is_some_and(|(_, e)| e == extension)
}

/// Whether there is something of another of Megatron's formats (torch_dist, torch_dcp, zarr) inside.
pub(super) fn is_distributed(checkpoint: &Checkpoint) -> bool {
    checkpoint.objects.iter().any(|object| {
        let name = object.key.rsplit('/').next().unwrap_or_default();
        matches!(name, ".metadata" | "metadata.json" | ".zarray" | "common.pt")
            || name.starts_with(".metadata.")
            || has_extension(name, "distcp")
    })
}

/// Whether a checkpoint has anything in a rank's folder.
pub(super) fn has_rank_folder(checkpoint: &Checkpoint) -> bool {
    let folders = checkpoint.objects.iter().filter_map(|object| object.key.split_once('/'));
    folders.into_iter().any(|(folder, _)| rank_of(folder).is_some())
}

/// Whether a folder is a checkpoint of either format.
pub(super) fn is_checkpoint(folder: &Folder) -> bool {
    folder.folders.iter().any(|name| rank_of(name).is_some())
}

/// What the rank folders say: a listing first, then the end of each file.
pub(super) async fn judge_ranks(case: Case<'_>) -> Result<Option<Judgement>, StoreError> {
    let ranks = Ranks::of(case.checkpoint);
    if let Some(hole) = ranks.hole() {
        return Ok(Some(Judgement::torn(hole)));
    }
    for sibling in case.siblings {
        let others = Ranks::of(sibling);
        if others.hole().is_none()
            && let Some(lack) = ranks.lacks_of(&others, case.is_older(sibling))
        {
            return Ok(Some(Judgement::torn(lack)));
        }
    }
    if let found @ Some(_) = parts::files(case, &ranks.files(), Pickles::Undecided).await? {
        return Ok(found);
    }
    match ranks.without_optimizer_file() {
        Some(model) => weights::megatron(case, model).await,
        None => Ok(None),
    }
}

/// What a person reads of a whole one.
pub(super) fn praise(case: Case<'_>, more: &str) -> String {
    let count = Ranks::of(case.checkpoint).count();
    let files = Ranks::of(case.checkpoint).files().len();
    format!("{files} files of {count} model-parallel ranks whole{more}")
}

/// How Megatron is brought to load a checkpoint.
pub(super) fn resume(step: u64, tracker: Tracker) -> ResumeWay {
    let plain = ResumeWay { argument: "--load {root}".into(), pin: Pin::OwnChoice, note: None };
    let pinned = |pin: Pin, note: Option<&str>| ResumeWay {
        argument: "--load {root} --ckpt-step {step}".into(),
        pin,
        note: note.map(str::to_owned),
    };
    match tracker {
        Tracker::Step(named) if named == step => plain,
        Tracker::Step(_) | Tracker::Absent | Tracker::Unseen if step == 0 => pinned(
            Pin::TrackerRewrite,
            Some("Megatron ignores --ckpt-step 0: only a tracker that says 0 leads to it"),
        ),
        Tracker::Step(_) | Tracker::Absent | Tracker::Unseen => pinned(Pin::Argument, None),
        Tracker::Release => pinned(
            Pin::TrackerRewrite,
            Some("the tracker says `release`, which --ckpt-step does not override"),
        ),
        Tracker::Garbage => pinned(
            Pin::TrackerRewrite,
            Some(
                "the tracker is empty or names no step: Megatron would end at once, with exit code 0 \
                 where it is no number",
            ),
        ),
    }
}

/// Where the tracker leads that Megatron reads at each load: the iteration as a number.
pub(super) async fn tracker_of(case: Case<'_>) -> Result<Lead, StoreError> {
    let Some(position) = case.checkpoint.position else { return Ok(Lead::Unseen) };
    let named = |text: &str| digits(text) == Some(position.step);
    tracker::leads(case, TRACKER, position.step.to_string(), named).await
}

/// Reads the trackers for [`resume`].
pub(super) async fn resume_of(case: Case<'_>) -> Result<ResumeWay, StoreError> {
    let step = case.checkpoint.position.map_or(0, |position| position.step);
    let tracker = Tracker::read(case).await?;
    let passing = match passing(case.objects, case.root).await {
        // It is named beside the others as one that nobody can look into.
        Err(StoreError::Closed { .. }) => None,
        passing => passing?.map(|(tracker, _)| tracker),
    };
    let is_passing = case.checkpoint.name.starts_with(PASSING);
    Ok(resume_beside(step, tracker, passing, is_passing))
}

/// What `non_persistent` of a root holds: its tracker and its listing.
async fn passing(objects: &Objects, root: &Root) -> Result<Option<(Tracker, Folder)>, StoreError> {
    let Some(folder) = &root.folder else { return Ok(None) };
    if !folder.folders.iter().any(|name| name == PASSING) {
        return Ok(None);
    }
    let path = join(&root.path, PASSING);
    let inner = objects.folder(&path).await?;
    let tracker = Tracker::of(objects, &path, &inner).await?;
    Ok(Some((tracker, inner)))
}

/// The checkpoint of `non_persistent` that Megatron may load, by its name within the root.
pub(super) async fn beside(objects: &Objects, root: &Root) -> Result<Vec<String>, StoreError> {
    let Some((Tracker::Step(named), inner)) = passing(objects, root).await? else {
        return Ok(Vec::new());
    };
    let step = |name: &String| NameShape::Iteration.read(name, Kind::Folder).map(|p| p.step);
    let found = inner.folders.iter().filter(|name| step(name) == Some(named));
    Ok(found.map(|name| format!("{PASSING}/{name}")).collect())
}

/// The root whose `non_persistent` the folder at `path` is.
pub(super) fn owner(path: &str) -> Option<String> {
    match path.rsplit_once('/') {
        Some((root, PASSING)) => Some(root.to_owned()),
        None if path == PASSING => Some(".".to_owned()),
        Some(_) | None => None,
    }
}

/// As [`resume`], where `passing` is the tracker of `non_persistent` and the checkpoint is or is not
/// in it.
fn resume_beside(
    step: u64,
    tracker: Tracker,
    passing: Option<Tracker>,
    is_passing: bool,
) -> ResumeWay {
    let rewrite = |why: String| ResumeWay {
        argument: "--load {root} --ckpt-step {step}".into(),
        pin: Pin::TrackerRewrite,
        note: Some(why),
    };
    match (passing, is_passing) {
        (Some(Tracker::Step(named)), true) if named == step => match tracker {
            // It is loaded before any that is not above it.
            Tracker::Step(other) if other > step => resume(step, tracker),
            Tracker::Garbage => resume(step, tracker),
            Tracker::Step(_) | Tracker::Release | Tracker::Absent | Tracker::Unseen => {
                resume(step, Tracker::Step(step))
            }
        },
        (Some(Tracker::Step(named)), false) if named >= step => rewrite(format!(
            "the tracker of {PASSING} names {named}, which Megatron loads before it"
        )),
        (Some(Tracker::Garbage | Tracker::Release), _) => rewrite(format!(
            "the tracker of {PASSING} is empty or no number: Megatron would end there"
        )),
        (Some(Tracker::Step(_) | Tracker::Absent | Tracker::Unseen) | None, _) => {
            resume(step, tracker)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::WallTime;

    fn checkpoint(files: &[(&str, u64)]) -> Checkpoint {
        let object = |&(key, size): &(&str, u64)| Object {
            key: key.to_owned(),
            size,
            modified: WallTime(0),
        };
        Checkpoint {
            name: "iter_0000100".into(),
            path: "iter_0000100".into(),
            position: None,
            objects: files.iter().map(object).collect(),
            closed: None,
        }
    }

    fn grid(ranks: &[&str], size: u64) -> Checkpoint {
        let keys: Vec<_> = ranks.iter().map(|r| format!("mp_rank_{r}/{MODEL}")).collect();
        checkpoint(&keys.iter().map(|k| (k.as_str(), size)).collect::<Vec<_>>())
    }

    #[test]
    fn a_grid_with_a_hole_names_it() {
        let hole = |ranks: &[&str]| Ranks::of(&grid(ranks, 9)).hole();
        assert_eq!(hole(&["00"]), None);
        assert_eq!(hole(&["00_000", "00_001", "01_000", "01_001"]), None);
        assert!(
            hole(&["00_000", "00_001", "01_000"]).is_some_and(|h| h.contains("mp_rank_01_001"))
        );
        assert!(hole(&["01"]).is_some_and(|h| h.contains("mp_rank_00")));
        assert!(hole(&["00", "00_001"]).is_some_and(|h| h.contains("two parallel layouts")));
        assert!(hole(&["00", "18446744073709551615"]).is_some());
        assert!(
            hole(&["00_000_000", "01_000_001"]).is_some_and(|h| h.contains("mp_rank_00_000_001"))
        );
        assert!(hole(&[]).is_some());
        let uneven = checkpoint(&[
            ("mp_rank_00/model_optim_rng.pt", 9),
            ("mp_rank_00/distrib_optim.pt", 9),
            ("mp_rank_01/model_optim_rng.pt", 9),
            ("mp_rank_01/distrib_optim.pt.tmp", 9),
        ]);
        assert_eq!(
            Ranks::of(&uneven).hole().as_deref(),
            Some("mp_rank_01/distrib_optim.pt is missing")
        );
    }

    #[test]
    fn fewer_ranks_are_a_hole_unless_each_is_larger() {
        let full = grid(&["00", "01"], 1_000);
        let lacks = |size: u64| Ranks::of(&grid(&["00"], size)).lacks_of(&Ranks::of(&full), true);
        assert!(lacks(1_000).is_some_and(|l| l.contains("mp_rank_01")));
        assert!(lacks(1_020).is_some());
        assert_eq!(lacks(2_000), None);
        let more = grid(&["00", "01", "02"], 1_000);
        assert_eq!(Ranks::of(&more).lacks_of(&Ranks::of(&full), true), None);
    }

    #[test]
    fn the_tracker_is_read_as_megatron_reads_it() {
        assert_eq!(Tracker::parse(b"120"), Tracker::Step(120));
        assert_eq!(Tracker::parse(b" 0000120\n"), Tracker::Step(120));
        assert_eq!(Tracker::parse(b"release"), Tracker::Release);
        for garbage in [&b""[..], b"\n", b"12x", b"-1", b"\xff", b"99999999999999999999999"] {
            assert_eq!(Tracker::parse(garbage), Tracker::Garbage, "{garbage:?}");
        }
    }

    #[test]
    fn what_is_not_kept_is_loaded_before_all_that_is_not_above_it() {
        let told = |step, tracker, passing, is_passing| {
            let way = resume_beside(step, tracker, Some(passing), is_passing);
            (way.pin, way.argument.contains("--ckpt-step"))
        };
        let (plain, pinned, rewrite) =
            ((Pin::OwnChoice, false), (Pin::Argument, true), (Pin::TrackerRewrite, true));
        for (step, tracker, passing, is_passing, wanted) in [
            (150, Tracker::Step(100), Tracker::Step(150), true, plain),
            (150, Tracker::Absent, Tracker::Step(150), true, plain),
            (150, Tracker::Step(200), Tracker::Step(150), true, pinned),
            (150, Tracker::Garbage, Tracker::Step(150), true, rewrite),
            (100, Tracker::Step(100), Tracker::Step(150), false, rewrite),
            (100, Tracker::Step(100), Tracker::Step(100), false, rewrite),
            (200, Tracker::Step(200), Tracker::Step(150), false, plain),
            (200, Tracker::Step(300), Tracker::Step(150), false, pinned),
            (200, Tracker::Step(200), Tracker::Garbage, false, rewrite),
            (200, Tracker::Step(200), Tracker::Absent, false, plain),
        ] {
            let told = told(step, tracker, passing, is_passing);
            assert_eq!(told, wanted, "{step} {tracker:?} {passing:?} {is_passing}");
        }
    }

    #[test]
    fn the_argument_names_the_step_unless_the_tracker_leads_there() {
        let pin = |step, tracker| (resume(step, tracker).pin, resume(step, tracker).argument);
        assert_eq!(pin(100, Tracker::Step(100)), (Pin::OwnChoice, "--load {root}".to_owned()));
        assert_eq!(pin(0, Tracker::Step(0)).0, Pin::OwnChoice);
        for tracker in [Tracker::Step(120), Tracker::Absent, Tracker::Unseen] {
            let wanted = (Pin::Argument, "--load {root} --ckpt-step {step}".to_owned());
            assert_eq!(pin(100, tracker), wanted);
            assert_eq!(pin(0, tracker).0, Pin::TrackerRewrite);
        }
        for tracker in [Tracker::Release, Tracker::Garbage] {
            assert_eq!(pin(100, tracker).0, Pin::TrackerRewrite);
        }
    }
}
