//! What is remembered of cloud jobs that are not open any more.

use super::*;
use crate::model::cloud::{CloudJob, Stamp, Status};
use crate::supervisor::sweep::{Lookback, has_news};
use crate::supervisor::work::Swept;

const DAY: Duration = Duration::from_secs(24 * 3600);

fn a_book() -> Book {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let started = Now { wall: WallTime(0), boot: BootTime(0) };
    Book::new(owner, started, BTreeMap::new())
}

fn marked(n: u32) -> Mark {
    let mut bytes = [0; 10];
    // A letter of a mark has five bits of its byte.
    for (at, byte) in bytes.iter_mut().take(4).enumerate() {
        *byte = u8::try_from((n >> (5 * at)) & 31).expect("five bits");
    }
    Mark::from_random(bytes)
}

/// Attempt `no` of a job, decided and ended `when`; one without an id was never created.
fn past_one(job: &Job, no: AttemptNo, when: WallTime, created: bool) -> EndedAttempt {
    let mut one = ended(job, 1, Cause::Released);
    (one.attempt.no, one.attempt.mark, one.attempt.intended) = (no, marked(no), when);
    one.id = created.then(|| id(no));
    one.ended = when;
    one
}

fn shown(no: AttemptNo, created: WallTime, status: Status) -> CloudJob {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let stamp = Some((owner.clone(), marked(no)));
    CloudJob {
        id: id(no),
        display_name: format!("job.sk{owner}-{}", marked(no)),
        status,
        sub_status: String::new(),
        reason_code: String::new(),
        reason_message: String::new(),
        exits: Vec::new(),
        user_id: None,
        stamp: Stamp {
            name: stamp.clone(),
            tag: stamp.clone(),
            env: stamp,
            job: Some("job".to_owned()),
            run: Some(1),
            attempt: Some(no),
            resume_path: None,
            resume_step: None,
        },
        created: Some(created),
        running: None,
        finished: None,
        duration_s: None,
        pod_count: 1,
        pods: Vec::new(),
        restarts: 0,
        history: None,
        whole: true,
    }
}

fn at(time: Duration) -> Now {
    Now { wall: WallTime(0).plus(time), boot: BootTime(0).plus(time) }
}

/// A complete pass shows these, and is worked through.
fn pass(book: &mut Book, now: Now, jobs: Vec<CloudJob>) {
    let server = Some(now.wall);
    let pass =
        Pass { place: place(), started: now.boot, complete: true, same_caller: true, server };
    let swept = Swept { pass: pass.clone(), jobs, missing: Vec::new(), owner_seen: true };
    assert_eq!(book.take_pass(swept, now, &mut VecDeque::new()), None);
    book.passed(&pass, now.wall, &mut VecDeque::new());
}

#[test]
fn months_of_ends_leave_no_more_than_lists_can_show() {
    let mut book = a_book();
    let mut job = open_job(None);
    job.open.clear();
    book.jobs.insert(job.key.clone(), job.clone());
    let mut largest = 0;
    let (a_day, days) = (20, 400);
    for no in 1..=a_day * days {
        let now = at(DAY / a_day * no);
        // Every seventh was proved never created.
        book.record_ended(&job.key, past_one(&job, no, now.wall, no % 7 != 0));
        if no % a_day == 0 {
            let mut old = shown(no, now.wall, Status::Stopped);
            old.id = id(1_000_000 + no);
            (old.stamp.name, old.stamp.tag, old.stamp.env) = (None, None, None);
            let stranger = Some((book.owner.clone(), marked(500_000 + no)));
            (old.stamp.tag, old.stamp.env) = (stranger.clone(), stranger);
            pass(&mut book, now, vec![old]);
        }
        largest = largest.max(book.past.len()).max(book.past_ids.len());
    }
    let listed = 32 * usize::try_from(a_day).expect("few");
    assert!(largest <= listed + ATTEMPTS_KEPT, "{largest}");
    assert!(book.let_go.len() <= 32, "{}", book.let_go.len());
    // What a list still shows is no news.
    let now = at(DAY * days);
    let known = book.known_at(&place(), now.wall);
    let listed_from = Lookback::since(at(Duration::ZERO)).start(now, known.oldest);
    let mut listed = 0;
    for no in 1..=a_day * days {
        let intended = at(DAY / a_day * no).wall;
        if no % 7 != 0 && intended >= listed_from {
            listed += 1;
            assert!(!has_news(&known, &shown(no, intended, Status::Failed)), "{no}");
        }
    }
    assert!(listed > 20 * 24);
}

#[test]
fn what_is_on_record_or_may_be_listed_is_never_forgotten() {
    let mut book = a_book();
    let mut job = open_job(None);
    let kept = u32::try_from(ATTEMPTS_KEPT).expect("few");
    for no in 1..=kept + 1 {
        book.record_ended(&job.key, past_one(&job, no, WallTime(0), true));
    }
    // An old one is open: lists go back to it.
    job.open[0].intended = WallTime(0);
    book.jobs.insert(job.key.clone(), job.clone());
    let years = at(1_000 * DAY);
    pass(&mut book, years, Vec::new());
    assert_eq!(book.past.len(), ATTEMPTS_KEPT + 1);
    job.open.clear();
    book.jobs.insert(job.key.clone(), job.clone());
    pass(&mut book, at(30 * DAY), Vec::new());
    assert_eq!(book.past.len(), ATTEMPTS_KEPT + 1, "a list may show it");
    pass(&mut book, years, Vec::new());
    assert_eq!(book.on_record(&id(1)), None);
    assert_eq!(book.past_of(&job.key, &marked(1)), Past::Stranger);
    for no in 2..=kept + 1 {
        assert_eq!(book.on_record(&id(no)), Some((job.key.clone(), marked(no))), "{no} is kept");
    }
}

#[test]
fn a_forgotten_mark_is_no_other_daemons_and_what_still_runs_is_followed() {
    let mut book = a_book();
    let mut job = open_job(None);
    job.open.clear();
    let kept = u32::try_from(ATTEMPTS_KEPT).expect("few");
    let begun = at(DAY).wall;
    for no in 1..=kept + 1 {
        book.record_ended(&job.key, past_one(&job, no, begun, true));
    }
    book.jobs.insert(job.key.clone(), job.clone());
    let later = at(100 * DAY);
    pass(&mut book, later, Vec::new());
    assert_eq!(book.on_record(&id(1)), None);
    // Lists go back to it all the same: a person adopted one that is older.
    for status in [Status::Failed, Status::Running] {
        let known = book.known_at(&place(), later.wall);
        let row = shown(1, begun, status.clone());
        assert!(has_news(&known, &row), "{status:?}");
        let server = Some(later.wall);
        let pass =
            Pass { place: place(), started: later.boot, complete: true, same_caller: true, server };
        let swept = Swept { pass, jobs: vec![row], missing: Vec::new(), owner_seen: true };
        let mut pending = VecDeque::new();
        book.take_pass(swept, later, &mut pending);
        let seen = pending
            .iter()
            .any(|work| matches!(work, Work::Input(key, Input::Seen { .. }) if *key == job.key));
        assert!(seen, "its job is told, and holds or follows it");
        let place = &book.places[&place()];
        assert_eq!(place.other_writer, None, "{status:?}");
    }
    // What nobody here can have sent is still told.
    let other = shown(999, later.wall, Status::Running);
    pass(&mut book, later, vec![other]);
    assert!(book.places[&place()].other_writer.is_some());
}

/// The list that a pass asks for begins early enough to show the end of a copy, however long it runs:
/// until then nothing is submitted to its prefix.
#[test]
fn a_pass_looks_back_as_far_as_a_copy_may_go() {
    let (mut book, mut job) = (a_book(), open_job(None));
    let early = WallTime(0).plus(DAY);
    job.open.clear();
    book.record_ended(&job.key, past_one(&job, 1, early, true));
    book.record_ended(&job.key, past_one(&job, 2, early.plus(DAY), true));
    job.copies.push(id(7));
    let key = job.key.clone();
    book.jobs.insert(key.clone(), job);
    let now = early.plus(DAY * 30);
    assert_eq!(book.known_at(&place(), now).oldest, Some(early));
    let mut job = book.jobs.get(&key).expect("it is on record").clone();
    job.copies.clear();
    book.jobs.insert(key, job);
    assert_eq!(book.known_at(&place(), now).oldest, None);
}
