//! A process of the daemon: its start from the store, its end, and what another one finds.

use super::{Coming, ToDaemon, World};
use crate::clock::MINUTE;
use crate::cloud::Origin;
use crate::disk::{Disk, Wrong};
use crate::invariants::RELOAD;
use spotkeeper::core::step::Input;
use spotkeeper::model::cloud::Stamp;
use spotkeeper::model::ids::JobKey;
use spotkeeper::model::time::Now;
use spotkeeper::store::Fresh;
use spotkeeper::supervisor::{Book, Log, Lookback, Turn, Work};
use std::collections::BTreeMap;

impl World {
    /// Each process reads the job files soon after it began.
    pub(super) fn read_files(&mut self) {
        for job in 0..self.plans.len() {
            let after = if self.rng.chance(60) { 0 } else { self.rng.below(MINUTE) };
            self.at(self.clock.ms + after, Coming::Files(job));
        }
    }

    /// A process that has opened the store begins.
    pub(super) fn start(&mut self, started: Now, shadow: Option<Book>) {
        self.process += 1;
        self.down = false;
        self.judge.looking.clear();
        self.judge.sending.clear();
        self.looks.clear();
        self.pending.clear();
        self.wake_set = 0;
        self.lookback = Lookback::since(started);
        let mut book = Book::new(self.owner.clone(), started, self.targets.clone());
        for plan in &self.plans {
            book.specs.extend(plan.specs.iter().cloned());
        }
        book.new_store = self.disk.is_new_store();
        for job in self.disk.jobs() {
            book.jobs.insert(job.key.clone(), job);
        }
        if let Some(shadow) = shadow {
            self.compare(&mut book, shadow);
        } else {
            for (key, ended) in self.disk.ended() {
                book.record_ended(&key, ended);
            }
        }
        self.book = book;
        let keys: Vec<JobKey> = self.book.jobs.keys().cloned().collect();
        self.pending.extend(keys.into_iter().map(|key| Work::Input(key, Input::Started)));
        self.read_files();
        self.tell(0, ToDaemon::Wake);
        self.sweep_in(100);
    }

    /// What was loaded is what was acknowledged.
    pub(super) fn compare(&mut self, book: &mut Book, shadow: Book) {
        if book.jobs != shadow.jobs || book.new_store != shadow.new_store {
            let differs = shadow.jobs.iter().find(|(key, job)| book.jobs.get(key) != Some(job));
            let what = differs.map_or_else(String::new, |(key, job)| {
                format!("{key} was {job:?} and is {:?}", book.jobs.get(key))
            });
            self.judge.broke(RELOAD, what);
        }
        if self.rng.chance(25) {
            for (key, ended) in self.disk.ended() {
                book.record_ended(&key, ended);
            }
            if book.ended != shadow.ended {
                self.judge.broke(RELOAD, "ended attempts differ");
            }
        } else {
            book.past = shadow.past;
            book.ended = shadow.ended;
        }
    }

    /// The process ends here, or reloads everything after a fault of the store.
    pub(super) fn ends(&mut self, undurable: Option<Turn>, wrong: Option<Wrong>) {
        let power_cut = wrong.is_none_or(|wrong| wrong == Wrong::PowerCut);
        self.note(|| format!("the process ends: {wrong:?}"));
        let before = self.disk.sequence;
        let report = self.disk.reopen(power_cut, &mut self.rng, self.bug);
        let empty = Book::new(self.owner.clone(), self.book.started, BTreeMap::new());
        let mut shadow = std::mem::replace(&mut self.book, empty);
        let is_there = self.disk.sequence > before;
        if let Some(turn) = undurable
            && is_there
        {
            self.judge.told(&turn.events);
            drop(turn.settle(&mut shadow));
        }
        if report.fresh != Fresh::Complete && self.bug.is_none() {
            self.judge.broke(RELOAD, format!("{report:?}"));
        }
        if power_cut {
            self.shadow_until_begin(shadow);
        } else {
            let started = shadow.started;
            self.start(started, Some(shadow));
        }
    }

    /// The process is gone; another one begins soon.
    pub(super) fn shadow_until_begin(&mut self, shadow: Book) {
        self.process += 1;
        self.down = true;
        self.book = shadow;
        let after = self.rng.below(2 * MINUTE);
        self.tell(after, ToDaemon::Begin);
    }

    pub(super) fn begin(&mut self) {
        let now = self.clock.now();
        let empty = Book::new(self.owner.clone(), now, BTreeMap::new());
        let shadow = std::mem::replace(&mut self.book, empty);
        self.start(now, Some(shadow));
    }

    pub(super) fn crash(&mut self, wiped: bool) {
        // A cloud that has never shown anything of ours and an empty folder are a new installation.
        let now = self.clock.ms;
        let is_known = self.remotes.iter().any(|r| r.origin.writes() && r.is_visible(now));
        if !wiped || !is_known {
            return self.ends(None, None);
        }
        self.note(|| "the state folder is lost".to_owned());
        (self.disk, _) = Disk::new();
        self.disk.note_new();
        self.wipes += 1;
        for remote in self.remotes.iter_mut().filter(|r| r.is_alive() && r.hidden.is_some()) {
            // Nobody knows of it any more; if it comes back it is a twin.
            if remote.origin == Origin::Ours {
                remote.origin = Origin::Late;
            }
        }
        // Nothing tells whose an adopted one is.
        for remote in self.remotes.iter_mut().filter(|r| r.cloud.stamp == Stamp::default()) {
            remote.origin = Origin::Hand;
        }
        self.judge.wiped = true;
        self.judge.cancelled.clear();
        self.judge.told.clear();
        // Numbers of attempts are used anew.
        self.judge.gained.clear();
        self.judge.shown.clear();
        self.log = Log::default();
        let mut shadow = Book::new(self.owner.clone(), self.clock.now(), BTreeMap::new());
        shadow.new_store = true;
        self.shadow_until_begin(shadow);
    }
}
