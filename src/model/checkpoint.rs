//! What a look into the bucket found.

use super::step_pattern::digits;
use super::time::WallTime;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// How a place is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scheme {
    /// `file://`: a folder of this machine.
    File,
    /// `s3://`: a bucket behind an S3 endpoint.
    S3,
    /// `oss://`: a bucket of Alibaba Cloud OSS, reached through its S3 endpoint.
    Oss,
}

/// A key prefix of a bucket (or a folder), without any spelling of the endpoint. Two jobs whose
/// locations are equal or nested may never write at one time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Location {
    /// How it is reached.
    pub scheme: Scheme,
    /// The bucket; empty for folders.
    pub bucket: String,
    /// Key prefix without slash at either end; for folders the absolute path less its first slash.
    pub prefix: String,
}

impl Location {
    /// Whether two locations are equal or one lies inside the other. `oss://` and `s3://` name the
    /// same buckets.
    pub fn overlaps(&self, other: &Self) -> bool {
        let kind = |l: &Self| l.scheme == Scheme::File;
        if kind(self) != kind(other) || self.bucket != other.bucket {
            return false;
        }
        let holds = |outer: &str, inner: &str| {
            outer.is_empty()
                || inner.strip_prefix(outer).is_some_and(|r| r.is_empty() || r.starts_with('/'))
        };
        holds(&self.prefix, &other.prefix) || holds(&other.prefix, &self.prefix)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::File => write!(f, "file:///{}", self.prefix),
            Scheme::S3 => write!(f, "s3://{}/{}", self.bucket, self.prefix),
            Scheme::Oss => write!(f, "oss://{}/{}", self.bucket, self.prefix),
        }
    }
}

/// What is known of a checkpoint from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wholeness {
    /// Every part is there and every test passed.
    Whole,
    /// A part is missing, empty, cut, or still being written.
    Torn,
    /// Weights without optimizer state: not a point to go on from.
    WeightsOnly,
    /// It is there but may not or cannot be read (archived, no permission, damaged beyond a look).
    Unreadable,
    /// Older than the chosen one: not looked at.
    NotChecked,
    /// Cannot be told from outside.
    Unknown,
}

impl Wholeness {
    /// The word in JSON and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Torn => "torn",
            Self::WeightsOnly => "weights_only",
            Self::Unreadable => "unreadable",
            Self::NotChecked => "not_checked",
            Self::Unknown => "unknown",
        }
    }
}

/// Where a checkpoint stands in its format's own order: (epoch or 0, step or save counter).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Position {
    /// Epoch where the step starts anew in each one; else 0.
    pub epoch: u64,
    /// Step, or whatever number the format counts with.
    pub step: u64,
}

/// One checkpoint that a look came across.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Path relative to the location; `.` is the location itself.
    pub path: String,
    /// Step where the name or the files say one.
    pub step: Option<u64>,
    /// Epoch where the format orders by it.
    pub epoch: Option<u64>,
    /// Place in the format's order.
    pub position: Position,
    /// What the tests said.
    pub wholeness: Wholeness,
    /// Why, in words.
    pub why: String,
    /// Bytes of its objects, as far as they were listed.
    pub size: u64,
    /// Last-modified time of its newest object, as far as they were listed.
    pub newest_object: Option<WallTime>,
    /// Last-modified time of its oldest object, as far as they were listed.
    pub oldest_object: Option<WallTime>,
}

/// How the trainer is brought to load exactly the chosen checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pin {
    /// The trainer's own choice is the chosen one: the plain resume is right.
    OwnChoice,
    /// Its own choice would differ: the argument names step or path.
    Argument,
    /// No argument helps: the tracker object has to be rewritten first.
    TrackerRewrite,
}

/// Where the trainer's own tracker, a small object that names its newest checkpoint, leads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tracker {
    /// To the chosen one; or the format has none.
    #[default]
    Fits,
    /// Elsewhere: this would mend it.
    Differs(Box<TrackerRewrite>),
    /// It lies outside the location, or cannot be read.
    Unseen,
}

impl Tracker {
    fn fits(&self) -> bool {
        *self == Self::Fits
    }
}

/// What a tracker says and what it has to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackerRewrite {
    /// Path of the tracker relative to the location.
    pub key: String,
    /// What a look found in it; `None`: there is no such object.
    pub found: Option<TrackerText>,
    /// The whole content that leads to the chosen checkpoint.
    pub wanted: String,
}

/// The content of a tracker, as far as a record keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackerText {
    /// Bytes of the object.
    pub size: u64,
    /// Its beginning, at most [`TRACKER_TEXT_BYTES`]; control characters are shown as spaces.
    pub text: String,
}

/// Bytes of a tracker's content that a record keeps.
pub const TRACKER_TEXT_BYTES: usize = 120;

impl TrackerText {
    /// What is kept of `bytes`, the beginning of an object of `size` bytes.
    pub fn of(bytes: &[u8], size: u64) -> Self {
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TRACKER_TEXT_BYTES)]);
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let end = text.floor_char_boundary(TRACKER_TEXT_BYTES);
        Self { size, text: text[..end].to_owned() }
    }
}

/// What came of rewriting a tracker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrackerWrite {
    /// It says what it has to: written, or found so.
    Done,
    /// It is not what the look saw: somebody else writes it. Nothing was written.
    Changed {
        /// What stands in it now.
        now: Option<TrackerText>,
    },
    /// Refused, or not answered: it may be written or not.
    Failed {
        /// What went wrong, for people.
        why: String,
        /// Whether only a person can mend it.
        needs_person: bool,
    },
}

/// The checkpoint to go on from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// Path relative to the location; `.` is the location itself.
    pub path: String,
    /// Folder that holds it, relative to the location; `.` is the location itself.
    pub root: String,
    /// Step, where known.
    pub step: Option<u64>,
    /// Epoch, where the format orders by it.
    pub epoch: Option<u64>,
    /// Place in the format's order.
    pub position: Position,
    /// The format that recognised it, e.g. `easyckpt-megatron`.
    pub format: String,
    /// The format's own resume argument as a template with `{path}`, `{root}`, `{step}`, `{name}`.
    pub argument: String,
    /// Whether that argument has to name the checkpoint.
    pub pin: Pin,
    /// Where the trainer's own tracker leads.
    #[serde(default, skip_serializing_if = "Tracker::fits")]
    pub tracker: Tracker,
    /// The same step in the other parts of the checkpoint, where it has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartPoint>,
}

/// What one more part of a checkpoint is resumed from: the step of the main one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartPoint {
    /// The part's name in the job file.
    pub name: String,
    /// Path relative to the part's location; `.` is the location itself.
    pub path: String,
    /// Folder that holds it, relative to the part's location.
    pub root: String,
}

/// Where a person wants a job to start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeFrom {
    /// The whole checkpoint of this step.
    Step(u64),
    /// Zero.
    Fresh,
}

impl std::str::FromStr for ResumeFrom {
    type Err = String;

    /// A step, or `fresh`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "fresh" {
            return Ok(Self::Fresh);
        }
        match digits(text) {
            Some(step) => Ok(Self::Step(step)),
            None => Err(format!("`{text}` is neither a step nor `fresh`")),
        }
    }
}

impl fmt::Display for ResumeFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(f, "{step}"),
            Self::Fresh => f.write_str("fresh"),
        }
    }
}

/// An incomplete checkpoint that is newer than the chosen one and may still be uploading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Its path.
    pub path: String,
    /// Its step, where known.
    pub step: Option<u64>,
    /// Age of its youngest object at the time of the look.
    pub youngest_age: Duration,
    /// Changes whenever a key, size or time under the path changes.
    pub fingerprint: u64,
}

/// A complete look. "None found" is a look; "could not look" is not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Findings {
    /// The format by which the names were read; `None` when nothing has a known shape.
    pub format: Option<String>,
    /// The newest whole checkpoint.
    pub chosen: Option<ResumePoint>,
    /// Roots of several runs or formats between which a person has to decide. Nothing is chosen.
    pub ambiguous: Vec<String>,
    /// Whose names are in each of these, for people.
    #[serde(default)]
    pub ambiguous_of: Vec<String>,
    /// Newest first, at most [`CANDIDATES_LIMIT`].
    pub candidates: Vec<Candidate>,
    /// Where nothing is chosen: what speaks for a layout of a person's own that has only the names of a
    /// format, in words.
    #[serde(default)]
    pub doubt: Option<String>,
    /// The newest one, if it is incomplete.
    pub unfinished: Option<Unfinished>,
    /// Where the checkpoint has several parts and no step is whole in all of them, though some have
    /// whole ones: what each has, for people.
    #[serde(default)]
    pub unmatched: Option<String>,
    /// Keys that no checkpoint can be under (`//`, `..`, control characters): passed over.
    pub odd_keys: u64,
    /// What is newer than the chosen one, or would have been chosen, and was not wanted: newest
    /// first, at most [`CANDIDATES_LIMIT`].
    #[serde(default)]
    pub passed_over: Vec<PassedOver>,
}

/// A checkpoint that a look did not choose for a reason that does not lie in itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedOver {
    /// Its path.
    pub path: String,
    /// Its step, where known.
    pub step: Option<u64>,
    /// Why.
    pub why: Passed,
}

/// Why a whole checkpoint is not gone on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Passed {
    /// Attempts died on it.
    Suspect,
    /// It was written while two attempts of the job ran.
    Overlap,
    /// It was there before a person asked for another start.
    Earlier,
}

impl Passed {
    /// The reason, for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Suspect => "suspect: attempts that began at it died early",
            Self::Overlap => "written while two attempts of the job ran at one time",
            Self::Earlier => "it was there before a person asked for another start",
        }
    }

    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Suspect => "suspect",
            Self::Overlap => "overlap",
            Self::Earlier => "earlier",
        }
    }
}

/// Whole checkpoints that a look does not choose. The default passes over none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PassOver {
    /// These, as long as they are not written anew.
    pub suspects: Vec<Unchanged>,
    /// What has an object that was written from the first time to the second, both included.
    pub overlaps: Vec<(WallTime, WallTime)>,
    /// What was there before a time.
    pub earlier: Option<Earlier>,
}

/// A checkpoint as it was at some look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unchanged {
    /// Its path.
    pub path: String,
    /// Last-modified time of its newest object; `None` if that was not known.
    pub written: Option<WallTime>,
}

/// Everything that was written before a time, but for one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earlier {
    /// The time.
    pub before: WallTime,
    /// The step that a person asked for, if one: nothing is held against it.
    pub but_step: Option<u64>,
}

impl PassOver {
    /// Why the checkpoint at `path`, whose objects were written at `times`, is passed over, if it is.
    pub fn reason(&self, path: &str, step: Option<u64>, times: &[WallTime]) -> Option<Passed> {
        let written = times.iter().copied().max();
        if let (Some(earlier), Some(written)) = (self.earlier, written)
            && written < earlier.before
        {
            let is_asked_for = earlier.but_step.is_some() && earlier.but_step == step;
            return (!is_asked_for).then_some(Passed::Earlier);
        }
        let is_same = |suspect: &Unchanged| {
            suspect.path == path && (suspect.written.is_none() || suspect.written == written)
        };
        if self.suspects.iter().any(is_same) {
            return Some(Passed::Suspect);
        }
        // A part of it may be of the other attempt, whenever the last one came.
        let within = |&(from, until): &(WallTime, WallTime)| {
            times.iter().any(|written| from <= *written && *written <= until)
        };
        self.overlaps.iter().any(within).then_some(Passed::Overlap)
    }
}

impl Findings {
    /// The roots between which a person has to decide, with whose names are in each.
    pub fn ambiguous_words(&self) -> String {
        let of = self.ambiguous_of.iter().map(String::as_str).chain(std::iter::repeat(""));
        let each = self.ambiguous.iter().zip(of).map(|(root, of)| match of {
            "" => root.clone(),
            of => format!("{root} (names of {of})"),
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// The chosen one among the candidates.
    pub fn chosen_candidate(&self) -> Option<&Candidate> {
        let chosen = self.chosen.as_ref()?;
        self.candidates.iter().find(|candidate| candidate.path == chosen.path)
    }

    /// Folders that nobody can look into: what is written into them is not seen.
    pub fn closed(&self) -> impl Iterator<Item = &Candidate> {
        let is_closed = |one: &&Candidate| {
            one.wholeness == Wholeness::Unreadable && one.newest_object.is_none()
        };
        self.candidates.iter().filter(is_closed)
    }

    /// A checkpoint of which nobody can say from outside whether it is whole, where nothing was
    /// chosen: a reason to ask a person, never to start at zero.
    pub fn undecided(&self) -> Option<&Candidate> {
        if self.chosen.is_some() {
            return None;
        }
        self.candidates.iter().find(|candidate| match candidate.wholeness {
            Wholeness::Unreadable | Wholeness::Unknown => true,
            Wholeness::Whole | Wholeness::Torn | Wholeness::WeightsOnly | Wholeness::NotChecked => {
                false
            }
        })
    }
}

/// Candidates that a look keeps.
pub const CANDIDATES_LIMIT: usize = 50;

/// What came of looking.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "one value a look; never kept in numbers")]
pub enum Look {
    /// A complete look.
    Done(Findings),
    /// No answer, no permission, no such folder, deadline passed. Never a reason to start at zero.
    CouldNotLook {
        /// What went wrong, for people.
        why: String,
        /// Whether only a person can mend it.
        needs_person: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(scheme: Scheme, bucket: &str, prefix: &str) -> Location {
        Location { scheme, bucket: bucket.into(), prefix: prefix.into() }
    }

    #[test]
    fn a_suspect_is_passed_over_until_it_is_written_anew() {
        let at = |n| Some(WallTime(n));
        let suspect = |written| Unchanged { path: "step-9".into(), written };
        let over = PassOver { suspects: vec![suspect(at(50))], ..PassOver::default() };
        assert_eq!(over.reason("step-9", Some(9), &[WallTime(50)]), Some(Passed::Suspect));
        assert_eq!(over.reason("step-9", Some(9), &[WallTime(60)]), None);
        assert_eq!(over.reason("step-8", Some(8), &[WallTime(50)]), None);
        let over = PassOver { suspects: vec![suspect(None)], ..PassOver::default() };
        assert_eq!(over.reason("step-9", Some(9), &[WallTime(60)]), Some(Passed::Suspect));
    }

    #[test]
    fn what_a_person_asked_for_is_never_passed_over_and_what_else_was_there_always() {
        let over = PassOver {
            suspects: vec![Unchanged { path: "step-9".into(), written: Some(WallTime(50)) }],
            overlaps: vec![(WallTime(40), WallTime(60)), (WallTime(200), WallTime(210))],
            earlier: Some(Earlier { before: WallTime(100), but_step: Some(9) }),
        };
        assert_eq!(
            over.reason("step-9", Some(9), &[WallTime(50)]),
            None,
            "though suspect and overlapped"
        );
        assert_eq!(over.reason("step-10", Some(10), &[WallTime(55)]), Some(Passed::Earlier));
        assert_eq!(over.reason("step-8", Some(8), &[WallTime(30)]), Some(Passed::Earlier));
        assert_eq!(over.reason("step-10", Some(10), &[WallTime(100)]), None, "written since");
        assert_eq!(over.reason("step-11", Some(11), &[WallTime(200)]), Some(Passed::Overlap));
        assert_eq!(
            over.reason("step-9", Some(9), &[WallTime(210)]),
            Some(Passed::Overlap),
            "written anew"
        );
        assert_eq!(over.reason("step-11", Some(11), &[WallTime(211)]), None);
        assert_eq!(over.reason("step-11", Some(11), &[]), None);
        let times = |all: &[i64]| all.iter().copied().map(WallTime).collect::<Vec<_>>();
        let reason = |all| over.reason("step-11", Some(11), &times(all));
        assert_eq!(reason(&[150, 205, 300]), Some(Passed::Overlap), "one object is enough");
        assert_eq!(reason(&[150, 300]), None, "none was written in it");
    }

    #[test]
    fn equal_and_nested_prefixes_overlap_and_neighbours_do_not() {
        let a = at(Scheme::Oss, "b", "team/run42");
        assert!(a.overlaps(&at(Scheme::S3, "b", "team/run42")));
        assert!(a.overlaps(&at(Scheme::Oss, "b", "team")));
        assert!(a.overlaps(&at(Scheme::Oss, "b", "team/run42/x")));
        assert!(a.overlaps(&at(Scheme::Oss, "b", "")));
        assert!(!a.overlaps(&at(Scheme::Oss, "b", "team/run421")));
        assert!(!a.overlaps(&at(Scheme::Oss, "c", "team/run42")));
        assert!(!a.overlaps(&at(Scheme::File, "b", "team/run42")));
    }
}
