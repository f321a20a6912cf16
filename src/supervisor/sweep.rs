//! One pass over ListJobs after the other at one place, with GetJob only for what changed.

use super::driver::chain;
use super::effects::{Effects, no_client};
use super::outages::Fault;
use super::turns::{GET_JOB, LIST_JOBS};
use super::work::{Known, Message, Swept};
use crate::core::identity::mark_of;
use crate::core::step::Pass;
use crate::dlc::client::Dlc;
use crate::dlc::list::ListFilter;
use crate::model::cloud::CloudJob;
use crate::model::error::Class;
use crate::model::ids::{CloudId, Owner};
use crate::model::spec::Place;
use crate::model::time::{Now, WallTime};
use crate::openapi::kind::Kind;
use crate::service::crash;
use futures_util::{FutureExt as _, StreamExt as _};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

/// How far the first pass of a process looks back: as far as jobs of a lost or older store matter.
const FIRST_LOOKBACK: Duration = Duration::from_secs(30 * 24 * 3600);
/// How much further than the oldest open attempt the others look back.
const SLACK: Duration = Duration::from_secs(3600);
/// Passes are never closer than this, however often the bell rings.
const SHORTEST_GAP: Duration = Duration::from_millis(200);
/// What does not work while a list comes, but does not prove that it is whole.
const WHOLE_LIST: &str = "ListJobs, whole";
/// GetJobs of one pass under way at one time.
const DETAILS_LIMIT: usize = 8;

/// Where the passes of a process look back to.
#[derive(Debug, Clone, Copy)]
pub struct Lookback {
    started: Now,
    first_done: bool,
}

impl Lookback {
    /// For a process that began then.
    pub fn since(started: Now) -> Self {
        Self { started, first_done: false }
    }

    /// A pass was complete.
    pub fn note_complete(&mut self) {
        self.first_done = true;
    }

    /// Where the next pass begins; `oldest` is when the oldest attempt that may be open was decided.
    pub fn start(self, now: Now, oldest: Option<WallTime>) -> WallTime {
        let longest = now.wall.minus(FIRST_LOOKBACK);
        // By the clock as servers have corrected it since.
        let started = now.wall.minus(now.boot.since(self.started.boot));
        let from = if self.first_done { started.max(longest) } else { longest };
        oldest.unwrap_or(now.wall).minus(SLACK).min(from.minus(SLACK))
    }

    /// No pass begins earlier than this, whatever its process.
    pub(super) fn furthest(now: WallTime, oldest: Option<WallTime>) -> WallTime {
        let first = now.minus(FIRST_LOOKBACK);
        oldest.map_or(first, |oldest| oldest.min(first)).minus(SLACK)
    }
}

pub(super) struct Sweeper {
    pub(super) place: Place,
    pub(super) effects: Effects,
    pub(super) owner: Owner,
    pub(super) bell: Arc<Notify>,
    pub(super) known: watch::Receiver<Known>,
    pub(super) driver: mpsc::Sender<Message>,
    pub(super) going: watch::Receiver<bool>,
    pub(super) lookback: Lookback,
    /// Who listed in the last pass.
    pub(super) caller: Option<String>,
}

impl Sweeper {
    pub(super) async fn run(mut self) {
        // Nobody tells it what is known any more: the place is not wanted.
        while self.known.has_changed().is_ok() {
            let (place, started) = (self.place.clone(), self.effects.clock.now().boot);
            // A place that is not looked at any more would hold its jobs for ever.
            let swept = AssertUnwindSafe(self.sweep()).catch_unwind().await;
            let swept = swept.unwrap_or_else(|_| {
                let fault = Fault::words(Class::Bug, "the pass panicked; see the log".to_owned());
                self.effects.fails(&place, LIST_JOBS.action, fault);
                let pass =
                    Pass { place, started, complete: false, same_caller: true, server: None };
                Swept { pass, jobs: Vec::new(), missing: Vec::new(), owner_seen: false }
            });
            if swept.pass.complete {
                self.lookback.note_complete();
            }
            if self.driver.send(Message::Swept(swept)).await.is_err() {
                return;
            }
            tokio::time::sleep(SHORTEST_GAP.min(self.effects.interval())).await;
            tokio::select! {
                () = tokio::time::sleep(self.effects.interval().saturating_sub(SHORTEST_GAP)) => {}
                () = self.bell.notified() => {}
                _ = self.going.changed() => return,
            }
        }
    }

    async fn sweep(&mut self) -> Swept {
        let now = self.effects.clock.now();
        let known = self.known.borrow_and_update().clone();
        let mut swept = Swept {
            pass: Pass {
                place: self.place.clone(),
                started: now.boot,
                complete: false,
                same_caller: true,
                server: None,
            },
            jobs: Vec::new(),
            missing: Vec::new(),
            owner_seen: false,
        };
        let client = match self.effects.client(&self.place) {
            Ok(client) => client,
            Err(why) => {
                self.effects.fails(&self.place, LIST_JOBS.action, no_client(why));
                return swept;
            }
        };
        let filter =
            ListFilter { display_name: None, start: self.lookback.start(now, known.oldest) };
        let in_turn = || async {
            let turn = self.effects.turns.take(LIST_JOBS, &self.place).await;
            (turn.wall(), turn)
        };
        let (answer, turn) = client.list_jobs_in_turn(&filter, in_turn).await;
        self.effects.learn(&turn, &answer);
        match answer {
            // What is wrong is on record; the next pass tries again.
            Err(_) => {}
            Ok(answer) => {
                swept.pass.server = answer.date;
                swept.pass.complete = answer.value.complete();
                let before = self.caller.replace(answer.value.caller.clone());
                swept.pass.same_caller = before.is_none_or(|b| b == answer.value.caller);
                match answer.value.gap {
                    None => self.effects.outages.end(&self.place, WHOLE_LIST),
                    Some(gap) => {
                        let why = format!("a pass over ListJobs is not complete: {gap}");
                        let fault = Fault::words(Class::Retry, why);
                        self.effects.fails(&self.place, WHOLE_LIST, fault);
                    }
                }
                let ours = answer.value.jobs.into_iter();
                let is_marked = |job: &CloudJob| mark_of(job, &self.owner).is_some();
                let ours: Vec<_> =
                    ours.filter(|job| is_marked(job) || known.has(&job.id)).collect();
                swept.owner_seen = ours.iter().any(is_marked);
                let shown: BTreeSet<CloudId> = ours.iter().map(|job| job.id.clone()).collect();
                let changed = ours
                    .into_iter()
                    .filter(|job| has_news(&known, job) || known.wants_whole(job, now.wall));
                swept.jobs = self.in_full(&client, changed.collect()).await;
                if swept.pass.complete {
                    let unseen = known.attempts.difference(&shown).cloned().collect();
                    self.look_for(&client, unseen, &mut swept).await;
                }
            }
        }
        swept
    }

    /// Asks for attempts that a complete list lacks, one by one.
    async fn look_for(&self, client: &Dlc, unseen: Vec<CloudId>, swept: &mut Swept) {
        let answers = futures_util::stream::iter(unseen).map(|id| async move {
            let turn = self.effects.turns.take(GET_JOB, &self.place).await;
            let answer = client.get_job(&id, turn.wall()).await;
            self.effects.learn(&turn, &answer);
            (id, answer)
        });
        let answers: Vec<_> = answers.buffered(DETAILS_LIMIT).collect().await;
        for (id, answer) in answers {
            match answer {
                Ok(answer) => swept.jobs.push(answer.value),
                Err(error) if error.kind() == Kind::NotFound => swept.missing.push(id),
                Err(error) => tracing::debug!(%id, error = %chain(&error), "GetJob failed"),
            }
        }
    }

    /// Fetches each job in full; a row stands for itself where that fails.
    async fn in_full(&self, client: &Dlc, rows: Vec<CloudJob>) -> Vec<CloudJob> {
        if rows.iter().any(|row| row.status.is_end()) {
            crash::point("end seen");
        }
        futures_util::stream::iter(rows)
            .map(|row| async move {
                let turn = self.effects.turns.take(GET_JOB, &self.place).await;
                let answer = client.get_job(&row.id, turn.wall()).await;
                self.effects.learn(&turn, &answer);
                match answer {
                    Ok(answer) => answer.value,
                    Err(error) => {
                        tracing::debug!(id = %row.id, error = %chain(&error), "GetJob failed");
                        row
                    }
                }
            })
            .buffered(DETAILS_LIMIT)
            .collect()
            .await
    }
}

/// Whether a row says something that is not on record.
pub fn has_news(known: &Known, row: &CloudJob) -> bool {
    // Open goes first: one that came back after its end has that end on record as well, and the
    // next one is news.
    let Some(record) = known.open.get(&row.id) else {
        return !(known.ended.contains(&row.id) && row.status.is_end());
    };
    let ran_anew = matches!((record.began, row.run_began()), (Some(old), Some(new)) if new > old);
    row.status != record.status
        || row.restarts > record.restarts
        || ran_anew
        || record.is_missing
        || row.status.is_end()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::BootTime;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn passes_look_back_to_what_may_be_open_and_never_further_than_needed() {
        let begin = Now { wall: WallTime(2_000_000_000_000), boot: BootTime(5_000) };
        let later =
            |time: Duration| Now { wall: begin.wall.plus(time), boot: begin.boot.plus(time) };
        let mut lookback = Lookback::since(begin);
        assert_eq!(lookback.start(begin, None), begin.wall.minus(30 * DAY + SLACK));
        lookback.first_done = true;
        assert_eq!(lookback.start(later(DAY), None), begin.wall.minus(SLACK));
        let open = begin.wall.minus(90 * DAY);
        assert_eq!(lookback.start(later(DAY), Some(open)), open.minus(SLACK));
        // A process that lives for long does not list everything since its start.
        let now = later(300 * DAY);
        assert_eq!(lookback.start(now, None), now.wall.minus(30 * DAY + SLACK));
        // The machine's clock was far ahead when it began; a server has corrected it since.
        let lookback =
            Lookback { started: Now { wall: begin.wall.plus(9 * DAY), ..begin }, ..lookback };
        assert_eq!(lookback.start(later(DAY), None), begin.wall.minus(SLACK));
    }

    #[test]
    fn a_row_is_fetched_in_full_if_it_says_what_is_not_on_record() {
        use crate::dlc::wire::{Source, job};
        use crate::supervisor::work::OnRecord;
        let row = |status: &str, times: &str, running: &str| {
            let value = serde_json::json!({
                "JobId": "dlc1", "Status": status, "RestartTimes": times, "GmtRunningTime": running,
            });
            job(&value, Source::ListRow).expect("a row")
        };
        let (first, later) = ("2026-01-12T14:36:21Z", "2026-01-12T15:36:21Z");
        let mut known = Known::default();
        let began = WallTime::parse(first);
        let status = row("Running", "", "").status;
        let record = OnRecord { status, restarts: 1, began, is_missing: false };
        known.open.insert(row("Running", "", "").id, record.clone());
        for (status, times, running, news) in [
            ("Running", "1/3", first, false),
            ("Running", "", "", false),
            ("Running", "0/3", first, false),
            ("Running", "2/3", first, true),
            ("Running", "1/3", later, true),
            ("Restarting", "1/3", first, true),
            ("Preempting", "1/3", first, true),
            ("FailedReserving", "1/3", first, true),
            ("Failed", "1/3", first, true),
        ] {
            let row = row(status, times, running);
            assert_eq!(has_news(&known, &row), news, "{status} {times} {running}");
        }
        // One that was not to be found is there again: that is news by itself.
        let same = row("Running", "1/3", first);
        known.open.insert(same.id.clone(), OnRecord { is_missing: true, ..record });
        assert!(has_news(&known, &same));
        // Its end is on record, and it came back: the next end is news as the first was.
        let end = row("Stopped", "", "");
        known.ended.insert(end.id.clone());
        assert!(has_news(&known, &end));
        known.open.clear();
        assert!(!has_news(&known, &end));
        assert!(has_news(&known, &row("Running", "", "")));
    }
}
