//! Clocks that jump, a host that sleeps, and a job of months.

use super::desk::{Desk, HOUR, MINUTE, as_in, none, whole};
use spotkeeper::core::phase::Phase;
use spotkeeper::core::step::{Effect, Input};
use spotkeeper::model::cloud::Status;
use spotkeeper::model::time::{Now, WallTime};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A name, and where the wall clock jumps to.
type Jump = (&'static str, fn(WallTime) -> WallTime);
/// A name, and how a job got there.
type State = (&'static str, fn() -> Desk);

/// Where the wall clock may jump to while the boot clock goes on.
fn jumps() -> [Jump; 6] {
    [
        ("two hours back", |wall| wall.minus(2 * HOUR)),
        ("a day on", |wall| wall.plus(DAY)),
        ("a second of NTP", |wall| wall.minus(Duration::from_secs(1))),
        ("to 2038", |_| WallTime(2_147_483_648_000)),
        ("to 1970", |_| WallTime(0)),
        ("to the year 9999", |_| WallTime(253_402_300_799_000)),
    ]
}

/// Row 79: "-2 h, +1 day, leap to 2038, NTP step during backoff. -> monotonic timers; no retry
/// storm; ages never negative".
#[test]
fn scenario_79_a_jump_of_the_wall_clock_moves_no_back_off_and_sends_nothing() {
    for (what, jump) in jumps() {
        let mut desk = Desk::running();
        desk.end(HOUR, as_in("failed_exit137")).look(none());
        let (delay, due) = (desk.backoff(), desk.wake_at.expect("a time"));
        let left = due.since(desk.now.boot);
        assert_eq!(left.as_secs(), delay.expect("a back-off"), "{what}");
        desk.now.wall = jump(desk.now.wall);
        // Neither now nor a moment before its time, however often it is asked.
        for _ in 0..20 {
            desk.feed(Input::Tick);
            assert!(!desk.sends() && desk.effects.is_empty(), "{what}: {:?}", desk.effects);
        }
        desk.wait(left.checked_sub(Duration::from_millis(1)).expect("longer"));
        assert!(!desk.sends() && desk.effects.is_empty(), "{what}: {:?}", desk.effects);
        desk.wait(Duration::from_millis(1));
        assert_eq!(desk.effects, [Effect::Look], "{what}: one look");
        desk.submit(none());
        assert_eq!((desk.job.open.len(), desk.sends()), (1, true), "{what}");
        desk.feed(Input::Tick);
        assert!(!desk.sends(), "{what}: one submission");
        // It runs, is seen and ends under the new clock, which may jump back once more.
        desk.live();
        desk.now.wall = desk.now.wall.minus(2 * HOUR);
        desk.pass(true);
        assert_eq!((desk.phase(), desk.job.open.len()), (Phase::Running, 1), "{what}");
        desk.end(MINUTE, as_in("failed_exit137")).submit(whole(&[10]));
        assert_eq!(desk.from(), Some(10), "{what}");
    }
}

/// The same while an attempt's CreateJob is searched for: absence is never proved by a jump.
#[test]
fn scenario_79_no_jump_proves_that_a_submission_never_arrived() {
    for (what, jump) in jumps() {
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(none());
        desk.sent(super::desk::unknown());
        desk.now.wall = jump(desk.now.wall);
        for _ in 0..10 {
            desk.pass_at(desk.now.wall);
            desk.feed(Input::Tick);
        }
        assert_eq!((desk.job.open.len(), desk.sends()), (1, false), "{what}");
    }
}

/// Row 90: "VM of the bastion paused 6 h. -> on wake one reconcile, no burst". What is due by then
/// comes once, in every state that a job may have been in.
#[test]
fn scenario_90_a_host_that_slept_does_each_thing_once() {
    let cases: [State; 4] = [
        ("running", Desk::running),
        ("in a back-off", || {
            let mut desk = Desk::running();
            desk.end(HOUR, as_in("failed_exit137")).look(none());
            desk
        }),
        ("blind", || {
            let mut desk = Desk::running();
            desk.end(HOUR, as_in("failed_exit137"));
            let why = "503".to_owned();
            desk.feed(Input::Looked(spotkeeper::model::checkpoint::Look::CouldNotLook {
                why,
                needs_person: false,
            }));
            desk
        }),
        ("waiting", || {
            let mut desk = Desk::new();
            desk.feed(Input::Tick).submit(none()).live();
            let cloud = desk.cloud(Status::Queuing);
            desk.see(cloud);
            desk
        }),
    ];
    for (what, desk) in cases {
        let mut desk = desk();
        let (told, open) = (desk.told.len(), desk.job.open.len());
        // Both clocks went on: CLOCK_BOOTTIME counts a suspend.
        desk.now = Now { wall: desk.now.wall.plus(6 * HOUR), boot: desk.now.boot.plus(6 * HOUR) };
        let mut asked = 0;
        for _ in 0..20 {
            desk.feed(Input::Tick);
            assert!(desk.effects.len() <= 1, "{what}: {:?}", desk.effects);
            assert!(!desk.sends() && desk.stops() == 0, "{what}: before anything was looked at");
            asked += desk.effects.len();
        }
        assert!(asked <= 1, "{what}: {asked} looks");
        assert_eq!(desk.job.open.len(), open, "{what}");
        assert!(desk.told.len() <= told + 1, "{what}: {:?}", &desk.told[told..]);
    }
}

/// Row 50, the record's part: "30 virtual days, 1,000 jobs. -> RSS flat within 10 % after day 1".
/// All that the daemon keeps of a job between two steps is its record (and bounded history): after a
/// day of releases it is as large as after thirty.
#[test]
fn scenario_50_a_jobs_record_does_not_grow_with_its_releases() {
    let mut desk = Desk::running();
    let mut sizes = Vec::new();
    for day in 0..30_u64 {
        for hour in 0..24 {
            let step = 1_000_000 + day * 24 + hour;
            desk.end(HOUR, as_in("failed_evicted.INFERRED")).submit(whole(&[step]));
            desk.live();
            desk.past.clear();
        }
        sizes.push(serde_json::to_vec(&desk.job).expect("a record").len());
    }
    assert_eq!(desk.job.created, 30 * 24 + 1);
    let (first, most) = (sizes[0], *sizes.iter().max().expect("days"));
    assert!(most * 10 <= first * 11, "{sizes:?}");
}

/// Row 34: "Creating -> Failed in one poll gap. -> terminal path runs, counted as start failure".
/// Whether or not the answer to its CreateJob had arrived by then.
#[test]
fn scenario_34_a_failure_before_the_first_look_is_a_failed_start() {
    for answered in [true, false] {
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(none());
        if answered {
            let id = super::desk::id(1);
            desk.sent(spotkeeper::model::cloud::SendOutcome::Accepted { id });
        } else {
            desk.sent(super::desk::unknown());
        }
        desk.end(MINUTE, as_in("failed_no_resources.INFERRED"));
        let cause = spotkeeper::core::verdict::Cause::NeverStarted;
        assert_eq!((&desk.causes[..], desk.job.open.len()), (&[cause][..], 0), "{answered}");
        desk.look(none());
        assert!(desk.backoff().is_some() && !desk.sends(), "{answered}");
        assert_eq!(desk.job.progress.ends, 1, "{answered}");
    }
}
