//! Deliberate bugs: each has to be caught by an invariant. They live here, in the model's side of
//! the wire and around the core, not in the program.

use super::clock::at;
use super::invariants::{
    BUDGET, CANCEL, COPY, FINAL, FOUND, HANG, INTENT, LOST, ONE_NODE, OVERLAP, PREFIX, RELOAD,
    RESUME, TWICE, TWIN, WAKE,
};
use spotkeeper::core::job::{AttemptState, Job, StopWhy, Wanted};
use spotkeeper::core::step::{Effect, Given, Input, Step};
use spotkeeper::model::checkpoint::{Findings, Look};
use spotkeeper::model::cloud::{CloudJob, SendOutcome, Status};
use spotkeeper::model::hang::PodsLook;
use spotkeeper::model::ids::{Mark, Owner};
use spotkeeper::model::time::BootTime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    RepeatWithoutSearch,
    NonceUsedIsRefused,
    SearchWithoutStartTime,
    FirstPageOnly,
    SubstringMatch,
    EffectBeforeCommit,
    OutboxIgnored,
    NotFoundIsEnded,
    UnknownWordIsEnded,
    EmptyPageIsAbsent,
    AcceptanceZero,
    StopAskedIsEnded,
    CancelLosesToRelease,
    CountsNotReset,
    CountsResetByRelease,
    LargestString,
    TornAccepted,
    FreshOnCouldNotLook,
    WallClockInSafetyWait,
    JournalNotReplayed,
    LateTwinKept,
    PersonsCopyStopped,
    TwoWritersOnOnePrefix,
    SuccessNotFinal,
    OneNodeIsUserError,
    WakeForgotten,
    OverlapForgotten,
    StaleLogsTakenForHang,
}

impl Bug {
    pub(crate) const ALL: [Self; 28] = [
        Self::RepeatWithoutSearch,
        Self::NonceUsedIsRefused,
        Self::SearchWithoutStartTime,
        Self::FirstPageOnly,
        Self::EffectBeforeCommit,
        Self::OutboxIgnored,
        Self::NotFoundIsEnded,
        Self::UnknownWordIsEnded,
        Self::EmptyPageIsAbsent,
        Self::AcceptanceZero,
        Self::StopAskedIsEnded,
        Self::CancelLosesToRelease,
        Self::CountsNotReset,
        Self::CountsResetByRelease,
        Self::LargestString,
        Self::TornAccepted,
        Self::FreshOnCouldNotLook,
        Self::WallClockInSafetyWait,
        Self::JournalNotReplayed,
        Self::LateTwinKept,
        Self::PersonsCopyStopped,
        Self::TwoWritersOnOnePrefix,
        Self::SuccessNotFinal,
        Self::OneNodeIsUserError,
        Self::WakeForgotten,
        Self::SubstringMatch,
        Self::OverlapForgotten,
        Self::StaleLogsTakenForHang,
    ];

    /// The invariants that it breaks; another that breaks first does not count.
    pub(crate) fn breaks(self) -> &'static [&'static str] {
        match self {
            Self::RepeatWithoutSearch
            | Self::NonceUsedIsRefused
            | Self::SearchWithoutStartTime
            | Self::FirstPageOnly
            | Self::UnknownWordIsEnded
            | Self::EmptyPageIsAbsent
            | Self::AcceptanceZero
            | Self::StopAskedIsEnded
            | Self::WallClockInSafetyWait => &[TWICE],
            Self::NotFoundIsEnded => &[TWICE, LOST],
            Self::OutboxIgnored => &[TWICE, FOUND],
            Self::LateTwinKept => &[TWIN, TWICE],
            Self::SubstringMatch | Self::PersonsCopyStopped => &[COPY],
            Self::EffectBeforeCommit => &[INTENT],
            Self::CancelLosesToRelease => &[CANCEL],
            Self::CountsNotReset | Self::CountsResetByRelease => &[BUDGET],
            Self::LargestString | Self::TornAccepted | Self::FreshOnCouldNotLook => &[RESUME],
            Self::JournalNotReplayed => &[RELOAD],
            Self::TwoWritersOnOnePrefix => &[PREFIX],
            Self::SuccessNotFinal => &[FINAL],
            Self::OneNodeIsUserError => &[ONE_NODE],
            Self::WakeForgotten => &[WAKE],
            Self::OverlapForgotten => &[OVERLAP],
            Self::StaleLogsTakenForHang => &[HANG],
        }
    }

    /// What the core is told instead of what happened.
    pub(crate) fn bend_input(self, input: &mut Input, wall_as_boot: BootTime) {
        match (self, input) {
            (Self::RepeatWithoutSearch, Input::Sent { outcome, .. }) => {
                if let SendOutcome::Unknown { why } = outcome {
                    *outcome = SendOutcome::NotSent { why: why.clone() };
                }
            }
            (Self::FreshOnCouldNotLook, Input::Looked(look)) => {
                if matches!(look, Look::CouldNotLook { .. }) {
                    *look = Look::Done(Findings::default());
                }
            }
            (Self::StaleLogsTakenForHang, Input::PodsLooked { look: PodsLook::Done(seen), .. }) => {
                seen.tails = vec![1];
            }
            (Self::WallClockInSafetyWait, Input::Swept(pass)) => {
                pass.started = wall_as_boot;
                pass.server = None;
            }
            (Self::UnknownWordIsEnded, Input::Seen { cloud, .. })
                if matches!(cloud.status, Status::Other(_)) =>
            {
                cloud.status = Status::Failed;
            }
            (Self::StopAskedIsEnded, Input::Seen { cloud, .. })
                if cloud.status == Status::Stopping =>
            {
                cloud.status = Status::Stopped;
            }
            _ => {}
        }
    }

    /// What the core is given instead.
    pub(crate) fn bend_given(self, given: &mut Given<'_>, wall_as_boot: BootTime) {
        match self {
            Self::AcceptanceZero => given.gate.acceptance = std::time::Duration::ZERO,
            Self::TwoWritersOnOnePrefix => given.gate.lease = None,
            Self::WallClockInSafetyWait => given.now.boot = wall_as_boot,
            _ => {}
        }
    }

    /// What comes of the step instead.
    pub(crate) fn bend_step(self, before: &Job, input: &Input, step: &mut Step) {
        let progress = &mut step.next.progress;
        let last = before.unjudged.as_ref().map(|ended| ended.verdict.cause);
        match self {
            Self::CountsNotReset if progress.ends < before.progress.ends => {
                progress.ends = before.progress.ends;
            }
            Self::CountsResetByRelease
                if last == Some(spotkeeper::core::verdict::Cause::Released) =>
            {
                progress.ends = 0;
            }
            Self::CancelLosesToRelease => {
                let ended = matches!(input, Input::Seen { cloud, .. } if cloud.status.is_end());
                if ended && step.next.wanted == Wanted::Cancel {
                    step.next.wanted = Wanted::Run;
                    step.next.result = None;
                }
            }
            Self::OutboxIgnored if *input == Input::Started => {
                let sent = |a: &spotkeeper::core::job::Attempt| {
                    before
                        .open
                        .iter()
                        .any(|b| b.no == a.no && matches!(b.state, AttemptState::Intended))
                };
                step.next.open.retain(|attempt| !sent(attempt));
            }
            Self::LateTwinKept => {
                for attempt in &mut step.next.open {
                    if attempt.stop == Some(StopWhy::Twin) {
                        attempt.stop = None;
                    }
                }
                step.effects.retain(|effect| {
                    !matches!(effect, Effect::Stop { no, .. }
                    if step.next.open.iter().any(|a| a.no == *no && a.stop.is_none()))
                });
            }
            Self::PersonsCopyStopped => {
                for id in &step.next.copies {
                    step.effects.push(Effect::Stop { no: 1, id: id.clone() });
                }
            }
            Self::SuccessNotFinal => {
                if matches!(input, Input::Started) {
                    step.next.result = None;
                }
            }
            Self::OneNodeIsUserError => {
                for ended in &mut step.ended {
                    if ended.verdict.rule == "some-pods-without-exit-code" {
                        ended.verdict.cause = spotkeeper::core::verdict::Cause::UserError;
                    }
                }
            }
            Self::WakeForgotten => step.wake_at = None,
            Self::OverlapForgotten => step.next.overlaps.clear(),
            _ => {}
        }
    }

    /// When it is woken up: it sleeps for as long as its own clock says.
    pub(crate) fn bend_wake(self, step: &mut Step, given: BootTime, truly: BootTime) {
        if self == Self::WallClockInSafetyWait {
            step.wake_at = step.wake_at.map(|at| truly.plus(at.since(given)));
        }
    }

    /// How a row of the list is read instead.
    pub(crate) fn bend_row(self, cloud: &mut CloudJob, owner: &Owner) {
        if self == Self::SubstringMatch {
            let part = format!("sk{owner}-");
            if let Some(start) = cloud.display_name.find(&part) {
                let mark = cloud.display_name[start + part.len()..].chars().take(10);
                if let Ok(mark) = Mark::new(mark.collect::<String>()) {
                    cloud.stamp.name = Some((owner.clone(), mark));
                }
            }
        }
    }
}

/// Keeps a calendar that was set back above zero.
const CALENDAR_BASE: u64 = 100_000_000_000;

/// The calendar taken for the boot clock.
pub(crate) fn wall_as_boot(wall: spotkeeper::model::time::WallTime) -> BootTime {
    BootTime(u64::try_from(wall.0 - at(0).0).unwrap_or(0) + CALENDAR_BASE)
}
