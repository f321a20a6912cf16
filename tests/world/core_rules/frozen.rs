//! What is frozen with an intent, and records of before it was.

use super::desk::{ACCEPTANCE, Desk, HOUR, MINUTE, as_in, none, unknown};
use super::restarts::{counted, shows};
use spotkeeper::core::job::{AttemptState, Job, Recovery};
use spotkeeper::core::step::Input;
use spotkeeper::core::verdict::Cause;
use std::time::Duration;

#[test]
fn what_was_sent_is_judged_by_the_limit_that_was_sent() {
    for (sent, now, cause) in [
        (Some(60), None, Cause::TimeLimit),
        (Some(60), Some(600), Cause::TimeLimit),
        (None, Some(60), Cause::StoppedUnexplained),
        (Some(600), Some(60), Cause::StoppedUnexplained),
    ] {
        let key = "JobMaxRunningTimeMinutes";
        let mut desk = Desk::new();
        let set = |desk: &mut Desk, minutes: Option<u64>| {
            desk.spec.body.remove(key);
            desk.spec.body.extend(minutes.map(|minutes| (key.to_owned(), minutes.into())));
        };
        set(&mut desk, sent);
        desk.feed(Input::Tick).submit(none()).live();
        set(&mut desk, now);
        desk.end(HOUR, as_in("stopped_without_code.INFERRED"));
        assert_eq!(desk.causes, [cause], "sent {sent:?}, now {now:?}");
    }
}

#[test]
fn absence_is_proved_by_the_longest_acceptance_that_was_promised() {
    for (later, waits) in [(MINUTE, ACCEPTANCE), (2 * ACCEPTANCE, 2 * ACCEPTANCE)] {
        let mut desk = Desk::new();
        desk.feed(Input::Tick).submit(none()).sent(unknown());
        desk.gate.acceptance = later;
        desk.feed(Input::Tick);
        assert_eq!(desk.wake_at.expect("a time").since(desk.now.boot), waits);
        desk.wait(waits.saturating_sub(Duration::from_secs(1))).pass(true).pass(true).pass(true);
        assert_eq!(desk.job.open.len(), 1, "{later:?}");
        desk.wait(Duration::from_secs(1)).pass(true).pass(true).pass(true);
        assert_eq!(desk.job.open.len(), 0, "{later:?}");
    }
}

/// A job as the store of the version before this one keeps it: an attempt without terms, a tally
/// without restarts, a live state without what was seen of its runs.
const OLD_RECORD: &str = r#"{"key":{"name":"job","run":1},
"spec":"0000000000000000000000000000000000000000000000000000000000000000","source":"File",
"wanted":"Run","open":[{"no":1,"mark":"abcdefgh27","spec":
"0000000000000000000000000000000000000000000000000000000000000000","target":"hangzhou",
"place":{"region":"cn-hangzhou","workspace":"1","endpoint":
"https://pai-dlc.cn-hangzhou.aliyuncs.com","storage":null,"credentials":"Environment"},
"start":"Fresh","bid":null,"intended":1800000000000,"state":{"Live":{"id":"dlc1","status":
"Running","running":1800000000000,"restarts":1}},"stop":null}],"next_attempt":2,"created":1,
"tally":{"releases":1,"errors":2},"unjudged":null,"recovery":{"Look":{"asked":false}},
"progress":{"best":null,"best_step":null,"ran":{"secs":0,"nanos":0},"ran_since":{"secs":0,
"nanos":0},"ends":0,"since":null,"alike_halves":0,"last_look":null,"hopeless":0,"unsent":0,
"blind":0,"fresh_since":null,"early":null},"block":null,"copies":[],"result":null}"#;

#[test]
fn a_record_of_before_is_read_and_gone_on_with() {
    let mut desk = Desk::new();
    desk.job = serde_json::from_str::<Job>(OLD_RECORD).expect("an old record");
    assert!(matches!(desk.job.recovery, Recovery::Look { asked: false }));
    let attempt = &desk.job.open[0];
    assert_eq!((attempt.restarts(), attempt.is_pinned()), (1, false));
    assert_eq!(attempt.acceptance(ACCEPTANCE), ACCEPTANCE);
    // What is counted is not counted again, and the next restart is.
    shows(&mut desk, "Running", |cloud| cloud.restarts = 1);
    assert_eq!(counted(&desk).0, 0);
    shows(&mut desk, "Restarting", |cloud| cloud.restarts = 2);
    assert_eq!(counted(&desk), (1, 2, 1));
    // Without terms, the limit of the present spec has to do.
    desk.job = serde_json::from_str::<Job>(OLD_RECORD).expect("an old record");
    desk.spec.body.insert("JobMaxRunningTimeMinutes".to_owned(), 60.into());
    desk.end(HOUR, as_in("stopped_without_code.INFERRED"));
    assert_eq!(desk.causes, [Cause::TimeLimit]);
    // And the status of a round of bidding that its counter leaves out.
    desk.job = serde_json::from_str::<Job>(OLD_RECORD).expect("an old record");
    let AttemptState::Live { restarts, .. } = &mut desk.job.open[0].state else {
        panic!("it is live")
    };
    *restarts = 0;
    shows(&mut desk, "Bidding", |_| {});
    assert_eq!(counted(&desk).1, 1);
}
