//! What may go off the record.

use super::desk::{Desk, MINUTE, as_in, id, none};
use spotkeeper::core::forget::cannot_forget;
use spotkeeper::core::job::Source;
use spotkeeper::core::step::{Act, Input};

#[test]
fn a_job_is_forgotten_only_when_it_would_not_go_on_and_nothing_of_it_may_run() {
    let why = |desk: &Desk| cannot_forget(&desk.job);
    let mut desk = Desk::new();
    assert!(why(&desk).is_some_and(|why| why.contains("its job file is there")));
    desk.feed(Input::File(Source::Unmanaged));
    assert_eq!(why(&desk), None, "its file is gone");

    let mut desk = Desk::running();
    desk.feed(Input::File(Source::Unmanaged));
    assert!(why(&desk).is_some_and(|why| why.contains("`spotkeeper cancel job`")));
    desk.act(Act::Cancel);
    assert!(why(&desk).is_some_and(|why| why.contains("`spotkeeper wait job`")));
    desk.feed(Input::File(Source::File));
    desk.end(MINUTE, as_in("stopped_by_user"));
    assert_eq!(why(&desk), None, "it is over");

    let mut desk = Desk::running();
    desk.end(MINUTE, as_in("failed_exit137")).look(none());
    assert!(
        why(&desk).is_some_and(|why| why.contains("not over")),
        "it waits for its next attempt"
    );
    desk.feed(Input::File(Source::Unmanaged));
    assert_eq!(why(&desk), None);
    desk.job.copies.push(id(77));
    assert!(why(&desk).is_some_and(|why| why.contains("dlc77")));
}
