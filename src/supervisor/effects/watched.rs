//! Looks at running attempts, beside those that an end waits for.

use super::tests::place;
use super::*;
use crate::core::job::{AttemptState, Start};
use crate::model::checkpoint::{Location, Look, Scheme};
use crate::model::ids::{Digest, JobName, Mark, TargetName};
use crate::model::spec::{CheckpointSpec, FirstStart, OnStopped, Retry};
use crate::model::time::WallTime;

/// Effects, what they tell, and a book with a job of one open attempt that saves in `folder`.
fn watched(folder: &std::path::Path) -> (Effects, mpsc::Receiver<Message>, Book, Job) {
    let (driver, messages) = mpsc::channel(4);
    let owner = Owner::new("k3f9qz").expect("an owner");
    let (clock, keys, second) = (Clock::new(), Keychain::default(), Duration::from_secs(1));
    let effects = Effects::new(clock, owner.clone(), PathBuf::new(), keys, second, driver);
    let key = JobKey { name: JobName::new("job").expect("a name"), run: 1 };
    let target = TargetName::new("t").expect("a name");
    let prefix = folder.to_str().expect("UTF-8").trim_start_matches('/').to_owned();
    let location = Location { scheme: Scheme::File, bucket: String::new(), prefix };
    let checkpoint = CheckpointSpec {
        location,
        mount: "/mnt".to_owned(),
        format: "auto".to_owned(),
        custom: None,
        resume: None,
        resume_command: None,
        first_start: FirstStart::Resume,
        expect_within: second,
        settle: second,
        settle_interval: second,
        ranks: None,
        fence: false,
        repair_tracker: false,
        parts: Vec::new(),
    };
    let spec = JobSpec {
        key: key.clone(),
        target: target.clone(),
        launcher: true,
        body: serde_json::Map::new(),
        secret_envs: BTreeMap::new(),
        spot: None,
        checkpoint: Some(checkpoint),
        total_steps: None,
        retry: Retry { alike: 5, give_up: second, on_stopped: OnStopped::Hold },
        list_price_per_hour: None,
        hang: None,
        waiting: crate::model::waiting::Waiting::default(),
        placements: Vec::new(),
    };
    let digest = Digest("0".repeat(64));
    let mut job = Job::new(key, digest.clone());
    job.open.push(Attempt {
        no: 3,
        mark: Mark::from_random([1; 10]),
        spec: digest.clone(),
        target,
        place: place(),
        start: Start::Fresh,
        bid: None,
        intended: WallTime(0),
        state: AttemptState::Intended,
        stop: None,
        asked: crate::core::stops::Asked::default(),
        terms: None,
    });
    let started = effects.clock.now();
    let mut book = Book::new(owner, started, BTreeMap::new());
    book.specs.insert(digest, Arc::new(spec));
    (effects, messages, book, job)
}

#[tokio::test]
async fn a_look_at_a_running_attempt_takes_no_room_from_the_looks_that_an_end_waits_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let (effects, mut messages, book, job) = watched(folder.path());
    let asked = Asked { at: BootTime(0), look: 0 };
    let task = || effects.task(&book, &job, Effect::Watch(3), asked).expect("a task");
    let ends = Arc::clone(&effects.looks);
    let all = u32::try_from(LOOKS_LIMIT).expect("few");
    let busy = ends.acquire_many(all).await.expect("open");
    // It goes on beside them, and is told as what it is.
    task().await;
    let told = messages.recv().await.expect("a message");
    let Message::Input(key, Input::Watched { no: 3, look: Look::Done(found) }) = told else {
        panic!("{told:?}");
    };
    assert_eq!((key, found.chosen), (job.key.clone(), None));
    drop(busy);
    let all = u32::try_from(WATCHES_LIMIT).expect("few");
    let busy = effects.watches.acquire_many(all).await.expect("open");
    assert_eq!(effects.looks.available_permits(), LOOKS_LIMIT);
    // One that waits for its turn does not keep the process from its end.
    tokio::join!(task(), async { effects.stop_sweeping() });
    assert!(messages.try_recv().is_err());
    drop(busy);
    // An attempt that is not open any more is not looked at.
    assert!(effects.task(&book, &job, Effect::Watch(2), asked).is_none());
}
