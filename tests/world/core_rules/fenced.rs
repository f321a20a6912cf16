//! What an end by the fence means: a twin was turned away, nothing was tried.

use super::desk::{Desk, HOUR, as_in, none};
use spotkeeper::core::event::Word;
use spotkeeper::core::step::Input;
use spotkeeper::core::verdict::{Cause, LogEnd, Told};
use spotkeeper::model::cloud::{CloudJob, ExitReport, Pod, Status};
use spotkeeper::model::fence::EXIT_CODE;
use std::time::Duration;

fn fenced(cloud: &mut CloudJob) {
    cloud.exits = vec![ExitReport { code: EXIT_CODE, pods: 1 }, ExitReport { code: 1, pods: 7 }];
    cloud.pod_count = 8;
}

fn running(fence: bool) -> Desk {
    let mut desk = Desk::running();
    desk.spec.checkpoint.as_mut().expect("a checkpoint").fence = fence;
    desk
}

#[test]
fn trap_29_attempts_that_a_fence_turns_away_are_no_crash_loop_and_wait_longer_each_time() {
    let mut desk = running(true);
    let mut delays = Vec::new();
    for _ in 0..8 {
        desk.end(Duration::from_secs(2), fenced).look(none());
        delays.push(desk.backoff().expect("a wait"));
        desk.wait_out();
        desk.submit(none()).live();
    }
    assert_eq!(delays, [10, 20, 40, 80, 160, 320, 640, 1280]);
    assert_eq!((desk.result(), desk.block()), (None, None));
    assert!(desk.causes.iter().all(|cause| *cause == Cause::Fenced), "{:?}", desk.causes);
    assert_eq!((desk.job.tally.errors, desk.job.tally.releases), (0, 0));
    assert!(desk.count(Word::Alarm) > 0, "somebody has to look");
}

#[test]
fn the_code_of_the_fence_is_a_users_own_where_no_fence_was_sent() {
    let mut desk = running(false);
    desk.end(HOUR, fenced);
    assert_eq!(desk.causes, [Cause::UserError]);
}

#[test]
fn an_earlier_attempt_that_was_turned_away_decides_nothing() {
    let mut desk = running(true);
    let mut late = desk.cloud(Status::Running);
    desk.end(HOUR, as_in("failed_exit137")).look(none());
    desk.wait_out();
    desk.submit(none()).live().end(HOUR, as_in("failed_user_exit1"));
    assert_eq!(desk.job.unjudged.as_ref().map(|ended| ended.attempt.no), Some(2));
    desk.see(late.clone());
    assert_eq!(desk.job.open.len(), 1, "nothing else is open: it is taken up");
    late.status = Status::Failed;
    fenced(&mut late);
    desk.see(late);
    assert_eq!(desk.causes.last(), Some(&Cause::Fenced));
    assert_eq!(desk.job.unjudged.as_ref().map(|ended| ended.attempt.no), Some(2));
    desk.look(none());
    assert_eq!(desk.job.progress.ends, 2, "the two that trained");
}

#[test]
fn a_log_that_says_so_is_enough() {
    let mut desk = running(true);
    desk.end(HOUR, |cloud| {
        as_in("failed_exit137")(cloud);
        cloud.pods = vec![Pod::default()];
    });
    let ended = desk.job.unjudged.clone().expect("an end");
    assert_eq!(ended.verdict.cause, Cause::Unexplained);
    desk.feed(Input::Logs { ended: Box::new(ended), pods: vec![LogEnd::Silent, LogEnd::Fenced] });
    let verdict = desk.job.unjudged.clone().expect("an end").verdict;
    assert_eq!((verdict.cause, verdict.look.told), (Cause::Fenced, Told::FromOutside));
}
