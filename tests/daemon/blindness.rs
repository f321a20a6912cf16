//! What a cloud that shows less than there is leads to: nothing.

use crate::harness::{JobFile, World};
use serde_json::{Value, json};
use std::time::Duration;

/// Time in which a daemon that could do something wrong has had its chances.
const CHANCES: Duration = Duration::from_secs(2);

/// An empty list, and a GetJob that knows no job.
fn nothing_there() -> Value {
    let list = json!({ "Jobs": [], "TotalCount": 0, "RequestId": "1" }).to_string();
    let gone = json!({ "Code": "NotFound", "Message": "no such job" }).to_string();
    json!([
        { "call": "ListJobs", "status": 200, "body": list },
        { "call": "GetJob", "status": 404, "body": gone },
    ])
}

fn targets(world: &World) -> String {
    let out = world.cli(&["ps", "-o", "json"]);
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

#[test]
fn jobs_that_vanish_at_one_time_are_not_believed_to_be_gone() {
    let mut world = World::new(&[]);
    for name in ["a", "b"] {
        world.put_job(name, &JobFile { step_ms: 60, ..JobFile::new(name, 200) });
    }
    world.start(&[]);
    world.wait_saved("a");
    world.wait_saved("b");
    world.put_faults(&nothing_there());
    world.wait_log("all 2 open attempts vanished at one time");
    std::thread::sleep(CHANCES);
    world.put_faults(&json!([]));
    world.wait_done("a");
    world.wait_done("b");
    assert_eq!(world.ledger().count("create"), 2);
    assert!(!world.log().contains("neither ListJobs nor GetJob knows"), "{}", world.log());
    assert!(!targets(&world).contains("vanished"), "what is over is not shown");
}

#[test]
fn one_job_that_vanishes_for_a_while_runs_on_for_the_record() {
    let mut world = World::new(&[]);
    world.put_job("a", &JobFile { step_ms: 60, ..JobFile::new("a", 400) });
    world.start(&[]);
    world.wait_saved("a");
    world.put_faults(&nothing_there());
    world.wait("it is told", |world| {
        let out = world.cli(&["events", "a", "-o", "json"]);
        String::from_utf8_lossy(&out.stdout).contains("neither ListJobs nor GetJob knows")
    });
    std::thread::sleep(CHANCES);
    world.put_faults(&json!([]));
    world.wait("it is there again", |world| {
        let out = world.cli(&["events", "a", "-o", "json"]);
        String::from_utf8_lossy(&out.stdout).contains("is known to DLC again")
    });
    assert_eq!(world.ledger().open().len(), 1, "it was told before the end");
    world.wait_done("a");
    assert_eq!(world.ledger().count("create"), 1);
}
