//! What is remembered of cloud jobs that are not open any more, and for how long.
//!
//! A mark or an id is remembered while the record of its attempt is kept, and while a list may show
//! its cloud job: lists go back to the oldest attempt that may be open, and 30 days at least. So as
//! much is remembered as one pass may bring, however long the process lives. Who let go earlier would
//! fetch it anew with each pass, and take a mark of his own for that of another daemon. What is
//! shown all the same behind that (a person adopts a job that is older, and lists go back to it) is a
//! stranger: one that has ended decides nothing, one that runs is followed and holds every
//! submission, as after a lost state.

use super::Book;
use crate::core::job::EndedAttempt;
use crate::core::step::{EndedRef, Past};
use crate::model::ids::{CloudId, JobKey, Mark};
use crate::model::time::WallTime;
use crate::supervisor::sweep::Lookback;
use std::time::Duration;

/// Further than any list goes back, by so much: CreateJob is accepted some time after its intent, and
/// the calendar is corrected now and then.
const MARGIN: Duration = Duration::from_secs(24 * 3600);

impl Book {
    /// Remembers the mark and the id of an ended attempt.
    pub(super) fn remember(&mut self, key: &JobKey, ended: &EndedAttempt) {
        let (no, intended) = (ended.attempt.no, ended.attempt.intended);
        let never = Past::NeverCreated { no, intended };
        let past = EndedRef::of(ended).map_or(never, Past::Ended);
        if let Some(id) = &ended.id {
            self.past_ids.insert(id.clone(), ended.attempt.mark.clone());
        }
        self.past.insert(ended.attempt.mark.clone(), (key.clone(), past));
    }

    /// Takes over what the book before it knew of marks that are on no record any more: whoever
    /// shows one of them is no other daemon's.
    pub(in crate::supervisor) fn remember_past_of(&mut self, before: &mut Self) {
        for (mark, past) in std::mem::take(&mut before.past) {
            if self.open_with(&mark).is_none() {
                self.past.entry(mark).or_insert(past);
            }
        }
        for (id, mark) in std::mem::take(&mut before.past_ids) {
            if self.past.contains_key(&mark) {
                self.past_ids.entry(id).or_insert(mark);
            }
        }
        self.let_go.append(&mut before.let_go);
        self.forgot_until = self.forgot_until.max(before.forgot_until);
    }

    /// A cloud job whose record had been let go before a pass first showed it, with its end: its job
    /// takes it up now or never, and no pass needs to fetch it again.
    pub(in crate::supervisor) fn let_go(&mut self, id: CloudId, created: Option<WallTime>) {
        self.let_go.insert(id, created);
    }

    /// Forgets what is on no record and what no list can show any more.
    pub(in crate::supervisor) fn forget_what_no_list_shows(&mut self, now: WallTime) {
        let open = self.jobs.values().flat_map(|job| &job.open).map(|attempt| attempt.intended);
        let living = self.homeless.values().filter(|homeless| !homeless.cloud.status.is_end());
        let lost = self.lost_looked_for(now).map(|attempt| attempt.intended);
        let living = living.filter_map(|homeless| homeless.cloud.created);
        let oldest = open.chain(living).chain(lost).min();
        let from = Lookback::furthest(now, oldest).minus(MARGIN);
        let ended = &self.ended;
        let is_kept = |key: &JobKey, no| {
            let kept = ended.get(key).map_or(&[][..], Vec::as_slice);
            kept.binary_search_by_key(&no, |kept| kept.attempt.no).is_ok()
        };
        let mut until = self.forgot_until;
        let past_ids = &mut self.past_ids;
        self.past.retain(|mark: &Mark, (key, past)| {
            let (no, intended) = match past {
                Past::Ended(EndedRef { no, intended, .. })
                | Past::NeverCreated { no, intended } => (*no, *intended),
                Past::Stranger => return false,
            };
            if intended >= from || is_kept(key, no) {
                return true;
            }
            if let Past::Ended(EndedRef { id, .. }) = past
                && past_ids.get(id) == Some(mark)
            {
                past_ids.remove(id);
            }
            until = until.max(Some(intended));
            false
        });
        self.forgot_until = until;
        self.let_go.retain(|_, created| created.is_none_or(|created| created >= from));
        self.homeless.retain(|_, homeless| {
            let is_old = homeless.cloud.created.is_some_and(|created| created < from);
            !(is_old && homeless.cloud.status.is_end())
        });
    }

    /// Whether a cloud job may be one whose mark was forgotten: it is as old as those.
    pub(in crate::supervisor) fn may_be_forgotten(&self, created: Option<WallTime>) -> bool {
        let until = self.forgot_until.map(|until| until.plus(MARGIN));
        created.is_some_and(|created| until.is_some_and(|until| created <= until))
    }
}
