//! The record of a job: everything that a decision needs, and nothing else.

use super::hang::Hang;
use super::offer::Offer;
use super::overlap::{Overlap, Span};
use super::runs::Runs;
use super::stops::Asked;
use super::suspects::Suspicion;
use super::terms::{ResumeTerms, Terms};
use super::tracker::LATE_WRITE;
use super::verdict::Verdict;
use super::waiting::Wait;
use super::watch::Watch;
use crate::model::checkpoint::{Position, ResumePoint, TrackerRewrite};
use crate::model::cloud::Status;
use crate::model::ids::{AttemptNo, CloudId, Digest, JobKey, Mark, TargetName};
use crate::model::placement::PlacementNo;
use crate::model::spec::{Bid, Place};
use crate::model::time::{BootTime, WallTime};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Bytes of a text from outside that a record keeps.
const TEXT_LIMIT_BYTES: usize = 400;

/// A text from outside as a record keeps it: bounded, so that no answer can make the record too
/// large for the store, and without control characters, each of which would take six bytes there.
pub(super) fn kept(text: &str) -> String {
    let cut = &text[..text.floor_char_boundary(TEXT_LIMIT_BYTES)];
    cut.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A job as the store keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Name and run.
    pub key: JobKey,
    /// Digest of the accepted spec that the next attempt uses.
    pub spec: Digest,
    /// Whether a job file still stands behind it.
    pub source: Source,
    /// What the person wants of it.
    pub wanted: Wanted,
    /// Attempts not yet seen ended: 0, 1, or more. Followed to their end whatever becomes of the job.
    pub open: Vec<Attempt>,
    /// The number that the next attempt gets.
    pub next_attempt: AttemptNo,
    /// Attempts that are known to have existed in the cloud.
    pub created: u32,
    /// How the attempts ended that are not open any more.
    pub tally: Tally,
    /// An end on which nothing has been decided yet.
    pub unjudged: Option<EndedAttempt>,
    /// What is being prepared while nothing is open.
    pub recovery: Recovery,
    /// What the next attempt is asked for with, where a wait has changed it.
    #[serde(default, skip_serializing_if = "Offer::is_own")]
    pub offer: Offer,
    /// What was gained, and what went wrong since.
    pub progress: Progress,
    /// Why only a person can let it go on.
    pub block: Option<Block>,
    /// Jobs that carry a mark of ours but are not proved ours, and are not seen ended.
    pub copies: Vec<CloudId>,
    /// Times in which two attempts of it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overlaps: Vec<Overlap>,
    /// When the attempt ran that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_run: Option<Span>,
    /// How it ended, once it did.
    pub result: Option<Outcome>,
}

/// Ends so far, by what they cost a person's trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Spot releases.
    pub releases: u32,
    /// Errors and ends without explanation.
    pub errors: u32,
    /// Restarts by the platform under the same id: none of them is an end.
    #[serde(default)]
    pub restarts: u32,
}

impl Tally {
    /// Counts an end in (`by` 1) or, where a verdict is amended, out again (`by` -1).
    pub fn count(&mut self, cause: super::verdict::Cause, by: i32) {
        use super::verdict::Cause;
        match cause {
            Cause::Released => self.releases = self.releases.saturating_add_signed(by),
            Cause::UserError
            | Cause::NeverStarted
            | Cause::StoppedUnexplained
            | Cause::TimeLimit
            | Cause::Lost
            | Cause::Unexplained => self.errors = self.errors.saturating_add_signed(by),
            Cause::Succeeded
            | Cause::EndedEarly
            | Cause::StoppedByUs
            | Cause::StoppedByPerson
            | Cause::NeverCreated
            | Cause::Fenced => {}
        }
    }
}

/// Where a job comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A job file in the jobs directory.
    File,
    /// Its file is gone; it goes on under the last accepted spec.
    Unmanaged,
}

/// What a person wants of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// Go on until it is done.
    Run,
    /// Let run what runs, submit nothing.
    Hold,
    /// Stop what runs, submit nothing, ever.
    Cancel,
}

/// One submission, from its durable intent on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number.
    pub no: AttemptNo,
    /// The random name of its one CreateJob.
    pub mark: Mark,
    /// The spec it was made from.
    pub spec: Digest,
    /// The target it was meant for.
    pub target: TargetName,
    /// Where it was sent: looks go there, whatever the daemon file says now.
    pub place: Place,
    /// What it starts from.
    pub start: Start,
    /// The bid it was sent with.
    pub bid: Option<Bid>,
    /// When it was decided, by the server's clock.
    pub intended: WallTime,
    /// What is known of it.
    pub state: AttemptState,
    /// A stop that was asked for. Not an end.
    pub stop: Option<StopWhy>,
    /// What is known of its StopJobs.
    #[serde(default, skip_serializing_if = "Asked::is_untouched")]
    pub asked: Asked,
    /// What it was sent under; `None` in a record of a program that did not keep it.
    #[serde(default)]
    pub terms: Option<Terms>,
}

/// What is known of an attempt that was not seen ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "most attempts are live, and a job has one or two")]
pub enum AttemptState {
    /// Durable; its CreateJob is about to be sent or under way in this process.
    Intended,
    /// It may or may not exist.
    Unknown {
        /// Since when, in this process, no more of it can be on its way from us.
        since: BootTime,
        /// Complete passes that began after the request could no longer be accepted.
        passes: u8,
    },
    /// Seen in the cloud, not ended.
    Live {
        /// Its id.
        id: CloudId,
        /// The last status that was seen and known.
        status: Status,
        /// A word that nobody knows, if that is what is shown now: what was last known still holds.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        odd: Option<String>,
        /// When UserCommand first ran.
        running: Option<WallTime>,
        /// In-place restarts told so far.
        restarts: u32,
        /// What was seen of its runs.
        #[serde(default)]
        runs: Runs,
        /// A look for a newer checkpoint than its own, due after a restart in place.
        #[serde(default, skip_serializing_if = "Recheck::is_not_due")]
        recheck: Recheck,
        /// Whether the cloud still knows it.
        #[serde(default, skip_serializing_if = "Missing::is_no")]
        missing: Missing,
        /// What was seen of its checkpoints while it runs.
        #[serde(default, skip_serializing_if = "Watch::is_untouched")]
        watch: Watch,
        /// What speaks for a hang of it.
        #[serde(default, skip_serializing_if = "Hang::is_untouched")]
        hang: Hang,
        /// How long it waits before it runs.
        #[serde(default, skip_serializing_if = "Wait::is_untouched")]
        wait: Wait,
    },
}

/// Whether the cloud has ceased to know an attempt that was seen there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Missing {
    /// It is known there, or was not looked for.
    #[default]
    No,
    /// Neither list nor GetJob knows it.
    Since {
        /// Since when, in this process.
        since: BootTime,
        /// Complete passes in a row, by the same keys, that lack it.
        passes: u32,
    },
    /// For so long that it may be lost.
    Long {
        /// Since when, in this process.
        since: BootTime,
        /// The look whether its checkpoint prefix stands still.
        look: StillLook,
    },
}

/// A look whether the checkpoint prefix of a missing attempt stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StillLook {
    /// To be asked for.
    Due {
        /// Not before this.
        at: BootTime,
        /// What the look before it saw.
        seen: Option<Still>,
    },
    /// This process has asked for it.
    Asked {
        /// What the look before it saw.
        seen: Option<Still>,
    },
}

/// A prefix in which nothing newer was seen than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Still {
    /// When its newest object was written.
    pub newest: WallTime,
    /// When that was first seen, by this process's clock.
    pub since: BootTime,
}

impl Missing {
    fn is_no(&self) -> bool {
        *self == Self::No
    }
}

/// A look for a checkpoint newer than the resume point of an attempt that was restarted in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Recheck {
    /// There is nothing to look for.
    #[default]
    NotDue,
    /// To be asked for.
    Due {
        /// Looks since the restart.
        tries: u32,
        /// Not before this.
        at: BootTime,
    },
    /// This process has asked for it.
    Asked {
        /// Looks before it since the restart.
        tries: u32,
    },
}

impl Recheck {
    fn is_not_due(&self) -> bool {
        *self == Self::NotDue
    }
}

impl Attempt {
    /// Its id in the cloud, once known.
    pub fn id(&self) -> Option<&CloudId> {
        match &self.state {
            AttemptState::Live { id, .. } => Some(id),
            AttemptState::Intended | AttemptState::Unknown { .. } => None,
        }
    }

    /// Its in-place restarts so far.
    pub fn restarts(&self) -> u32 {
        match &self.state {
            AttemptState::Live { restarts, .. } => *restarts,
            AttemptState::Intended | AttemptState::Unknown { .. } => 0,
        }
    }

    /// What was seen of its checkpoints while it ran.
    pub fn watch(&self) -> Option<&Watch> {
        match &self.state {
            AttemptState::Live { watch, .. } => Some(watch),
            AttemptState::Intended | AttemptState::Unknown { .. } => None,
        }
    }

    /// What speaks for a hang of it.
    pub fn hang(&self) -> Option<&Hang> {
        match &self.state {
            AttemptState::Live { hang, .. } => Some(hang),
            AttemptState::Intended | AttemptState::Unknown { .. } => None,
        }
    }

    /// Whether it was asked to stop for a wait that may be over by now.
    pub fn stops_for_a_wait(&self) -> bool {
        self.stop.is_some_and(StopWhy::is_for_a_wait)
    }

    /// Whether it was asked to stop for what was seen of it, which may be over by now.
    pub fn stops_for_what_is_seen(&self) -> bool {
        self.stops_for_a_wait() || self.stop == Some(StopWhy::Hang)
    }

    /// The placement that it was sent as.
    pub fn placement(&self) -> PlacementNo {
        self.terms.as_ref().map_or(0, |terms| terms.placement)
    }

    /// How long its CreateJob can be accepted: never shorter than when it was sent, whatever the
    /// daemon file says by now.
    pub fn acceptance(&self, now: Duration) -> Duration {
        self.terms.as_ref().map_or(now, |terms| terms.acceptance.max(now))
    }

    /// Whether its resume argument names one checkpoint.
    pub fn is_pinned(&self) -> bool {
        self.terms.as_ref().is_some_and(|terms| terms.resume == ResumeTerms::Pinned)
    }
}

impl AttemptState {
    /// The vendor's word that is shown now, while live.
    pub fn shown(&self) -> Option<Status> {
        match self {
            Self::Live { odd: Some(word), .. } => Some(Status::Other(word.clone())),
            Self::Live { status, odd: None, .. } => Some(status.clone()),
            Self::Intended | Self::Unknown { .. } => None,
        }
    }
}

/// Why a stop was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopWhy {
    /// A person cancelled the job.
    Cancel,
    /// It is a second one beside the attempt on record.
    Twin,
    /// The platform restarted it in place from an older checkpoint than the newest whole one.
    Outdated,
    /// It runs and does nothing any more.
    Hang,
    /// It waited for too long: the next one is asked for in another way.
    Waited,
    /// It waited for too long, and the job is given up.
    GaveUp,
}

impl StopWhy {
    /// Whether it is asked of an attempt only for as long as that waits.
    pub fn is_for_a_wait(self) -> bool {
        match self {
            Self::Waited | Self::GaveUp => true,
            Self::Cancel | Self::Twin | Self::Outdated | Self::Hang => false,
        }
    }
}

/// What an attempt starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// Zero.
    Fresh,
    /// A checkpoint.
    From(ResumePoint),
}

impl Start {
    /// Where it stands in the format's order; `None` for zero.
    pub fn position(&self) -> Option<Position> {
        match self {
            Self::Fresh => None,
            Self::From(point) => Some(point.position),
        }
    }
}

/// An attempt that will never be open again, unless it returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedAttempt {
    /// The attempt as it last was.
    pub attempt: Attempt,
    /// Its id; `None` if it was never created.
    pub id: Option<CloudId>,
    /// When it ended, or was proved absent.
    pub ended: WallTime,
    /// How long UserCommand ran.
    pub ran: Duration,
    /// Why it ended.
    pub verdict: Verdict,
}

/// What is being prepared while nothing is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Recovery {
    /// A look into the bucket is due.
    Look {
        /// Whether this process has asked for it.
        asked: bool,
    },
    /// An incomplete newest checkpoint may still be uploading.
    Settling {
        /// Since when.
        since: BootTime,
        /// What its listing looked like.
        fingerprint: u64,
        /// When to look again.
        next: BootTime,
        /// Its step, for people.
        step: Option<u64>,
    },
    /// A wait before the next look and submission.
    Waiting {
        /// How long it is in all; a new process waits it out anew.
        delay: Duration,
        /// When it is over.
        until: BootTime,
    },
    /// Decided; only the gate is awaited.
    Ready {
        /// What the next attempt starts from.
        start: Start,
        /// When the bucket was looked at.
        looked: BootTime,
    },
    /// The trainer's tracker is being rewritten; what comes out is looked at anew.
    Repairing {
        /// What is written over what.
        rewrite: TrackerRewrite,
    },
    /// The tracker does not lead to the chosen checkpoint yet; a wait before the next look.
    NotRepaired {
        /// Why not.
        why: String,
        /// How long the wait is in all; a new process waits it out anew.
        delay: Duration,
        /// When it is over.
        until: BootTime,
    },
}

impl Recovery {
    /// A look that nobody has asked for yet.
    pub fn look() -> Self {
        Self::Look { asked: false }
    }
}

/// What was gained, and what went wrong since.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// The newest whole checkpoint ever seen.
    pub best: Option<Position>,
    /// Step of the newest whole checkpoint, for people.
    pub best_step: Option<u64>,
    /// When its newest object was written, as far as a listing told.
    #[serde(default)]
    pub best_at: Option<WallTime>,
    /// Running time of all attempts.
    pub ran: Duration,
    /// Running time since the last new whole checkpoint.
    pub ran_since: Duration,
    /// Ends since the last progress, whatever their cause.
    pub ends: u32,
    /// The first of these ends: give-up counts from here.
    pub since: Option<WallTime>,
    /// Ends in a row that look alike, in halves: an end without any evidence counts one half.
    pub alike_halves: u32,
    /// How the last of these ends looked.
    pub last_look: Option<super::verdict::EndLook>,
    /// Attempts in a row that never ran, for a reason that does not pass.
    pub hopeless: u32,
    /// Of these ends, those of attempts that hung and were stopped for it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub hangs: u32,
    /// CreateJobs in a row that created nothing.
    pub unsent: u32,
    /// Looks into the bucket in a row that could not be made.
    pub blind: u32,
    /// Times in a row that the tracker was to be rewritten, since the last intent.
    #[serde(default)]
    pub repairs: u32,
    /// Whether parts of the checkpoint were seen whole without a step that all have.
    #[serde(default)]
    pub partly: bool,
    /// When a `first_start = "fresh"` began: whole checkpoints older than this are another run's.
    pub fresh_since: Option<WallTime>,
    /// Where the last attempt started that ended well but too early.
    pub early: Option<EarlyEnd>,
    /// What is held against checkpoints.
    #[serde(default, skip_serializing_if = "Suspicion::is_none")]
    pub suspicion: Suspicion,
    /// The step that a person asked to go on from, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedFrom>,
    /// Whether a person asked for a start at zero, and no attempt has run since: what is there, be it of
    /// several runs or of nobody knows what, does not stand against it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub zero_asked: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// A start that a person asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskedFrom {
    /// The step.
    pub step: u64,
    /// When: other checkpoints that were there before are passed over.
    pub at: WallTime,
}

/// An exit 0 that was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyEnd {
    /// Where that attempt started; `None` is zero.
    pub from: Option<Position>,
}

/// Why only a person can let a job go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// The kind, for scripts: `ambiguous_checkpoints`, `checkpoints_gone`, …
    pub kind: BlockKind,
    /// What is wrong and what mends it.
    pub why: String,
}

/// Kinds of [`Block`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
    /// Checkpoints of several runs or formats under one prefix.
    AmbiguousCheckpoints,
    /// Whole checkpoints were there and are not any more.
    CheckpointsGone,
    /// There are checkpoints of which nobody can say from outside whether they are whole.
    UndecidedCheckpoints,
    /// Parts of the checkpoint have whole ones, and none of one step.
    NoCommonStep,
    /// It ran for long and there is still no whole checkpoint: wrong prefix?
    NoCheckpointInTime,
    /// `first_start = "refuse"` and there are checkpoints.
    FirstStartRefused,
    /// No argument makes the trainer load the chosen checkpoint.
    TrackerRewrite,
    /// All whole checkpoints were written while two attempts ran.
    OverlappedCheckpoints,
    /// The step that a person asked for is not there, or not whole.
    AskedForMissing,
    /// The bucket cannot be looked into until somebody mends something.
    CannotLook,
    /// It never ran, three times, for a reason that does not pass.
    NeverStarts,
    /// A person or somebody unknown stopped it.
    StoppedByOther,
    /// A job with our owner does not fit this one.
    Stray,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which way.
    pub kind: OutcomeKind,
    /// Why, in words.
    pub why: String,
    /// When.
    pub at: WallTime,
}

/// Ways for a job to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// Done.
    Succeeded,
    /// Given up.
    Failed,
    /// Cancelled by a person.
    Cancelled,
}

impl Job {
    /// A job that was just accepted: nothing sent, nothing known.
    pub fn new(key: JobKey, spec: Digest) -> Self {
        Self {
            key,
            spec,
            source: Source::File,
            wanted: Wanted::Run,
            open: Vec::new(),
            next_attempt: 1,
            created: 0,
            tally: Tally::default(),
            unjudged: None,
            recovery: Recovery::look(),
            offer: Offer::default(),
            progress: Progress::default(),
            block: None,
            copies: Vec::new(),
            overlaps: Vec::new(),
            last_run: None,
            result: None,
        }
    }

    /// Whether it still holds its checkpoint prefix: from the first intent until it is final with
    /// nothing open and no copy of it alive; and while its tracker is being rewritten.
    pub fn holds_lease(&self) -> bool {
        self.is_repairing()
            || self.next_attempt > 1
                && (self.result.is_none() || !self.open.is_empty() || !self.copies.is_empty())
    }

    /// Whether the tracker is being rewritten now.
    pub fn is_repairing(&self) -> bool {
        match self.recovery {
            Recovery::Repairing { .. } => true,
            Recovery::Look { .. }
            | Recovery::Settling { .. }
            | Recovery::Waiting { .. }
            | Recovery::Ready { .. }
            | Recovery::NotRepaired { .. } => false,
        }
    }

    /// Whether it goes off the record with its file: nothing was ever sent for it, and no person
    /// said anything of it that a file that comes back would have to heed.
    pub fn goes_with_its_file(&self) -> bool {
        self.next_attempt == 1 && self.wanted == Wanted::Run && self.result.is_none()
    }

    /// A look comes next. While the tracker is being rewritten one comes by itself, and not before
    /// the write is over, nor as long as one without an answer may still arrive: it must not come
    /// behind an attempt that starts from something else.
    pub(super) fn look_next(&mut self, now: BootTime) {
        match &mut self.recovery {
            Recovery::Repairing { .. } => {}
            Recovery::NotRepaired { until, .. } => *until = (*until).min(now.plus(LATE_WRITE)),
            Recovery::Look { .. }
            | Recovery::Settling { .. }
            | Recovery::Waiting { .. }
            | Recovery::Ready { .. } => self.recovery = Recovery::look(),
        }
    }

    /// Whether nothing more will ever be done for it by itself.
    pub fn is_over(&self) -> bool {
        self.result.is_some() && self.open.is_empty()
    }
}
