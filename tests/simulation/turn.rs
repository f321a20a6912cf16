//! What a turn of the driver makes of a queue in which one job comes up more than once.

use super::world::jobs_of_a_life;
use spotkeeper::core::job::Job;
use spotkeeper::core::step::{Given, Impossible, Input, Step, step};
use spotkeeper::model::ids::{Mark, Owner};
use spotkeeper::model::time::{BootTime, Now, WallTime};
use spotkeeper::store::records;
use spotkeeper::supervisor::{Book, Log, Moment, Turn, Work};
use std::collections::{BTreeMap, VecDeque};

struct Desk;

impl Moment for Desk {
    fn now(&self) -> Now {
        Now { wall: WallTime(0), boot: BootTime(0) }
    }

    fn fresh_mark(&mut self) -> Option<Mark> {
        Some(Mark::from_random([1; 10]))
    }

    fn decide(&mut self, job: &Job, given: &Given<'_>, input: Input) -> Result<Step, Impossible> {
        step(job, given, input)
    }
}

#[test]
fn a_job_that_goes_with_its_file_is_gone_whatever_waits_behind_in_the_queue() {
    let owner = Owner::new("k3f9qz").expect("an owner");
    let mut book = Book::new(owner, Desk.now(), BTreeMap::new());
    let (key, digest, spec) = jobs_of_a_life().swap_remove(0);
    let job = Job::new(key.clone(), digest.clone());
    book.specs.insert(digest, spec);
    book.jobs.insert(key.clone(), job.clone());
    let mut log = Log::default();
    let mut pending = VecDeque::from([
        Work::Drop(key.clone()),
        Work::Input(key.clone(), Input::Tick),
        Work::Input(key.clone(), Input::Started),
    ]);
    let mut turns = 0;
    while !pending.is_empty() {
        let mut turn = Turn::default();
        turn.fill(&mut book, &mut log, &mut pending, &mut Desk).expect("records that fit");
        let puts: Vec<_> = turn.batch.changes().filter(|(_, value)| value.is_some()).collect();
        assert!(puts.is_empty(), "{puts:?}");
        let gone = turn.batch.changes().any(|(at, _)| at == records::job_key(&key));
        assert_eq!(gone, turns == 0, "it goes off the record in the first turn");
        assert!(turn.settle(&mut book).is_empty());
        assert!(book.jobs.is_empty() && book.wakes.is_empty(), "memory and record are the same");
        turns += 1;
    }
    // One that comes back behind it is a new one.
    book.jobs.insert(key.clone(), job.clone());
    pending.extend([Work::Drop(key.clone()), Work::Accept(Box::new(job))]);
    while !pending.is_empty() {
        let mut turn = Turn::default();
        turn.fill(&mut book, &mut log, &mut pending, &mut Desk).expect("records that fit");
        drop(turn.settle(&mut book));
    }
    assert!(book.jobs.contains_key(&key));
}
