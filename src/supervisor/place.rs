//! What is known of a place in this process: whether it may be submitted to.

use crate::core::seen::ABSENT_PASSES;
use crate::core::step::Pass;
use crate::model::time::{BootTime, Now, human};
use std::time::Duration;

/// An acceptance window this short is always waited out with a new store: it costs nothing, and it
/// covers the first CreateJob that an owner ever sent.
const CHEAP_WAIT: Duration = Duration::from_secs(30);
/// A job of ours that is created this long after nothing of an earlier process can be accepted any
/// more was made by somebody else: two clocks may differ, and times are in whole seconds.
const OTHER_WRITER_SLACK: Duration = Duration::from_secs(10);

/// What is known of a place in this process.
#[derive(Debug, Clone, Default)]
pub(super) struct PlaceState {
    /// The start of the last complete pass that was compared with the store.
    pub(super) last_pass: Option<BootTime>,
    /// Complete passes that began after a request of an earlier process could be accepted.
    late_passes: u8,
    /// Whether the cloud has ever shown a job of our owner.
    owner_seen: bool,
    /// A job with our owner that somebody else made.
    pub(super) other_writer: Option<String>,
    /// Whose our jobs are.
    pub(super) own_user: Option<String>,
}

impl PlaceState {
    /// What still holds once the store was loaded anew: another daemon does not go away with it.
    pub(super) fn after_reload(&self) -> Self {
        Self { other_writer: self.other_writer.clone(), ..Self::default() }
    }

    /// Takes a pass whose jobs were all compared. Answers whether the gate may have changed.
    pub(super) fn passed(&mut self, pass: &Pass, acceptance: Duration, started: Now) -> bool {
        if !pass.complete {
            return false;
        }
        let first = self.last_pass.is_none();
        if !pass.same_caller {
            self.late_passes = 0;
        }
        self.last_pass = Some(pass.started);
        if pass.started >= started.boot.plus(acceptance) {
            self.late_passes = self.late_passes.saturating_add(1);
        }
        first || self.late_passes == ABSENT_PASSES
    }

    pub(super) fn verified(&self) -> bool {
        self.last_pass.is_some()
    }

    pub(super) fn note_owner_seen(&mut self) {
        self.owner_seen = true;
    }

    /// Why a new store has to wait here, if it has to.
    pub(super) fn new_store_wait(&self, acceptance: Duration) -> Option<String> {
        if !self.verified() {
            return Some("the store is new; the cloud was not compared with it yet".to_owned());
        }
        let wait = self.owner_seen || acceptance <= CHEAP_WAIT;
        (wait && self.late_passes < ABSENT_PASSES).then(|| {
            format!(
                "the store is new: what an earlier one sent may be accepted for {} after the \
                 start, then {ABSENT_PASSES} complete passes must show nothing",
                human(acceptance)
            )
        })
    }

    /// Whether a job of ours that no record knows, created `after_start` after this process began,
    /// cannot come from an earlier process on this state. One whose record is complete wrote down
    /// each mark before it was sent; only what a lost or older state sent may still come in.
    pub(super) fn is_other_writer(
        after_start: Duration,
        acceptance: Duration,
        began_new: bool,
    ) -> bool {
        let on_its_way = if began_new { acceptance } else { Duration::ZERO };
        after_start > on_its_way + OTHER_WRITER_SLACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::spec::{CredentialsRef, Place};
    use crate::model::time::WallTime;

    const START: Now = Now { wall: WallTime(0), boot: BootTime(0) };

    fn pass(at: u64) -> Pass {
        let place = Place {
            region: "r".into(),
            workspace: "1".into(),
            endpoint: "e".into(),
            storage: None,
            credentials: CredentialsRef::Environment,
        };
        Pass { place, started: BootTime(at), complete: true, same_caller: true, server: None }
    }

    #[test]
    fn a_new_store_waits_where_the_cloud_knows_the_owner() {
        let acceptance = Duration::from_secs(900);
        let mut place = PlaceState::default();
        assert!(place.new_store_wait(acceptance).is_some());
        assert!(place.passed(&pass(10), acceptance, START));
        assert!(place.new_store_wait(acceptance).is_none(), "an owner nobody has seen");
        place.note_owner_seen();
        for at in [1_000, 899_999, 900_000, 915_000] {
            place.passed(&pass(at), acceptance, START);
            assert!(place.new_store_wait(acceptance).is_some(), "{at}");
        }
        assert!(place.passed(&pass(930_000), acceptance, START));
        assert!(place.new_store_wait(acceptance).is_none());
    }

    #[test]
    fn what_nobody_here_sent_is_of_another_writer_once_nothing_old_can_arrive() {
        let acceptance = Duration::from_secs(900);
        let is_other = |seconds, began_new| {
            PlaceState::is_other_writer(Duration::from_secs(seconds), acceptance, began_new)
        };
        assert!(!is_other(10, false), "within what clocks may differ");
        assert!(is_other(11, false), "every mark of this state is on record");
        assert!(!is_other(910, true), "an earlier state may have sent it");
        assert!(is_other(911, true));
    }

    #[test]
    fn another_writer_does_not_go_with_the_store() {
        let writer = Some("dlc1 is of another".to_owned());
        let state =
            PlaceState { other_writer: writer.clone(), owner_seen: true, ..Default::default() };
        let after = state.after_reload();
        assert_eq!((after.other_writer, after.owner_seen), (writer, false));
    }

    #[test]
    fn a_short_window_is_waited_out_by_everybody() {
        let mut place = PlaceState::default();
        place.passed(&pass(10), Duration::from_secs(3), START);
        assert!(place.new_store_wait(Duration::from_secs(3)).is_some());
    }

    #[test]
    fn trap_04_passes_by_other_keys_do_not_add_up() {
        let acceptance = Duration::from_secs(3);
        let mut place = PlaceState::default();
        place.passed(&pass(10_000), acceptance, START);
        place.passed(&pass(11_000), acceptance, START);
        let other = Pass { same_caller: false, ..pass(12_000) };
        place.passed(&other, acceptance, START);
        assert!(place.new_store_wait(acceptance).is_some());
        place.passed(&pass(13_000), acceptance, START);
        place.passed(&pass(14_000), acceptance, START);
        assert!(place.new_store_wait(acceptance).is_none());
    }

    #[test]
    fn an_incomplete_pass_opens_nothing() {
        let mut place = PlaceState::default();
        let broken = Pass { complete: false, ..pass(10) };
        assert!(!place.passed(&broken, Duration::from_secs(3), START));
        assert!(!place.verified());
    }
}
