//! The model of PAI-DLC: jobs with their states, delays, releases and restarts, and lists that lag,
//! shift, lack pages or do not come.

use super::bucket::Bucket;
use super::bugs::Bug;
use super::clock::{DAY, HOUR, MINUTE, Rng, SECOND, at};
use spotkeeper::dlc::list::{Gathered, ListPass, More};
use spotkeeper::dlc::wire::Page;
use spotkeeper::model::cloud::{CloudJob, ExitReport, Pod, Status};
use spotkeeper::model::hang::{PodsLook, PodsSeen};
use spotkeeper::model::ids::{CloudId, Owner};
use spotkeeper::model::time::WallTime;
use std::cell::Cell;

/// Steps of a training, and between two saves.
pub(crate) const TOTAL_STEPS: u64 = 160;
const STRIDE: u64 = 20;
/// `log_silence` of the jobs that have a hang policy.
pub(crate) const LOG_SILENCE: u64 = 5 * MINUTE;
/// How long one hangs at most, if nobody stops it.
const HANGS_FOR: u64 = 40 * MINUTE;
/// How long a deleted job is not known.
const DELETED_FOR: u64 = 4 * HOUR;
/// Rows of a page.
const PAGE_ROWS: usize = 3;
/// What DLC lists where no StartTime is sent.
const LISTED_WITHOUT_START: u64 = 7 * DAY;

/// How the answers show restarts in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// At once.
    Shown,
    /// Once it runs again, or ends.
    Late,
    /// Never: only status and times tell.
    Hidden,
}

/// Whose a cloud job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A submission of ours.
    Ours,
    /// One that was accepted when it no longer could be.
    Late,
    /// A person made it from ours.
    Copy,
    /// Another installation made it from ours: under its own stamps, with our whole name in its own.
    Foreign,
    /// A person made it by hand, without any stamp. Once it is adopted it is ours.
    Hand,
}

impl Origin {
    /// Whether it writes to the checkpoint prefix of its job.
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Ours | Self::Late)
    }
}

/// What a job file's work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// Saves and gets done.
    Trains,
    /// Fails by itself soon after its start, each time.
    Crashes,
    /// Has no checkpoints.
    Plain,
}

/// What really happened to a cloud job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Truth {
    GoesOn,
    Released,
    UserError,
    Done,
    Stopped,
}

/// The moment in which a CreateJob went out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent {
    pub(crate) at: u64,
    /// Jobs of which nothing was on record then: with their files and the state folder gone, nobody
    /// could know where they write.
    pub(crate) unrecorded: Vec<usize>,
}

impl Sent {
    /// Whether nothing told, then, where this job writes, of which an attempt was sent before.
    pub(crate) fn in_ignorance_of(&self, before: &Remote) -> bool {
        before.sent.at < self.at && self.unrecorded.contains(&before.job)
    }
}

/// A job in the model's cloud.
pub(crate) struct Remote {
    pub(crate) job: usize,
    pub(crate) cloud: CloudJob,
    pub(crate) origin: Origin,
    pub(crate) truth: Truth,
    pub(crate) restarts: u32,
    pub(crate) counter: Counter,
    /// How often the state folder had been lost when it was made.
    pub(crate) wipes: u32,
    pub(crate) sent: Sent,
    /// Complete passes that showed it.
    pub(crate) passes: u32,
    pub(crate) stop_asked: bool,
    /// Whether an answer showed an older status: it may look like a restart.
    pub(crate) flapped: Cell<bool>,
    /// From when to when no answer knows it.
    pub(crate) hidden: Option<(u64, u64)>,
    /// When an answer showed it last.
    pub(crate) shown: Cell<u64>,
    /// It stands still until then.
    pub(crate) stands_until: u64,
    /// Whether it ended while no answer knew it.
    pub(crate) ended_unseen: bool,
    /// It neither trains nor says anything until then.
    hangs_until: u64,
    /// When it last moved: began to run, made a step, said something.
    moved: u64,
    /// When its last long silence ended.
    silent_until: u64,
    /// What a row that lags behind shows.
    before: Status,
    visible_from: u64,
    created: u64,
    from: u64,
    step: u64,
    ticks: u64,
    stops_at: Option<u64>,
    /// What it becomes when its machine is not held any more.
    decided: Status,
}

impl Remote {
    pub(crate) fn new(
        (job, origin, wipes): (usize, Origin, u32),
        cloud: CloudJob,
        from: u64,
        (created, lag): (u64, u64),
        counter: Counter,
    ) -> Self {
        Self {
            job,
            cloud,
            origin,
            truth: Truth::GoesOn,
            restarts: 0,
            counter,
            wipes,
            sent: Sent::default(),
            passes: 0,
            stop_asked: false,
            flapped: Cell::new(false),
            hidden: None,
            shown: Cell::new(created),
            stands_until: 0,
            ended_unseen: false,
            hangs_until: 0,
            moved: created,
            silent_until: 0,
            before: Status::Creating,
            visible_from: created + lag,
            created,
            from,
            step: from,
            ticks: 0,
            stops_at: None,
            decided: Status::Failed,
        }
    }

    /// Whether the console named it after another job.
    pub(crate) fn has_copys_name(&self) -> bool {
        self.cloud.display_name.ends_with("_copy")
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.cloud.status.is_end()
    }

    /// Whether a list shows it.
    pub(crate) fn is_visible(&self, now: u64) -> bool {
        self.visible_from <= now && self.is_known(now)
    }

    /// Whether GetJob knows it.
    pub(crate) fn is_known(&self, now: u64) -> bool {
        self.hidden.is_none_or(|(from, until)| now < from || until <= now)
    }

    /// No answer knows it until then. Seen by nobody in between, two such times are one.
    pub(crate) fn hide(&mut self, now: u64, until: u64) {
        let unseen = self.hidden.filter(|(_, until)| self.shown.get() < *until);
        self.hidden = Some((unseen.map_or(now, |(from, _)| from), until));
    }

    /// A person deletes it: it ends, and nothing knows it for hours. Not for ever: where all open
    /// attempts are gone, that is taken for blindness as long as it lasts.
    pub(crate) fn delete(&mut self, now: u64) {
        self.hide(now, now + DELETED_FOR);
        self.end(now, Truth::Stopped, Status::Stopped, false);
    }

    fn moves(&mut self, now: u64) {
        if now - self.moved >= LOG_SILENCE {
            self.silent_until = now;
        }
        self.moved = now;
    }

    /// Whether it stood still for long at some time in the last while.
    pub(crate) fn hung_lately(&self, now: u64, lately: u64) -> bool {
        now - self.moved >= LOG_SILENCE
            || self.silent_until + lately >= now && self.silent_until > 0
    }

    /// What a look at its pods shows.
    pub(crate) fn pods(&self) -> PodsLook {
        if self.cloud.status != Status::Running {
            return PodsLook::NotRunning;
        }
        let (all, asked) = (self.cloud.pod_count, self.cloud.pod_count.min(2));
        let tails = (0..u64::from(asked)).map(|pod| self.moved * 10 + pod).collect();
        PodsLook::Done(PodsSeen { all, asked, tails, ..PodsSeen::default() })
    }

    fn become_status(&mut self, status: Status) {
        self.before = std::mem::replace(&mut self.cloud.status, status);
    }

    fn count(&mut self) {
        if self.counter != Counter::Hidden {
            self.cloud.restarts = self.restarts;
        }
    }

    fn end(&mut self, now: u64, truth: Truth, status: Status, held: bool) {
        self.truth = truth;
        self.decided = status.clone();
        self.become_status(match status {
            Status::Succeeded if held => Status::SucceededReserving,
            Status::Failed if held => Status::FailedReserving,
            other => other,
        });
        self.cloud.finished = Some(at(now));
        self.ended_unseen = !self.is_known(now);
        self.count();
    }

    /// A StopJob arrives. Answers when it has an effect.
    pub(crate) fn stop(&mut self, now: u64, takes: u64) -> Option<u64> {
        let status = &self.cloud.status;
        if status.is_end() || status.holds_machine() || self.stops_at.is_some() {
            return None;
        }
        self.become_status(Status::Stopping);
        self.stops_at = Some(now + takes);
        self.stops_at
    }

    /// Its next change is due. Answers when the one after that is.
    pub(crate) fn advance(&mut self, now: u64, sky: &mut Sky<'_>) -> Option<u64> {
        if let Some(stops_at) = self.stops_at {
            if now >= stops_at && self.is_alive() {
                self.cloud.reason_code = "JobStoppedByUser".to_owned();
                self.end(now, Truth::Stopped, Status::Stopped, false);
            }
            return None;
        }
        match self.cloud.status {
            Status::SucceededReserving | Status::FailedReserving => {
                let decided = self.decided.clone();
                self.become_status(decided);
                None
            }
            Status::Creating => {
                self.become_status(Status::Queuing);
                Some(now + 10 * SECOND + sky.rng.below(50 * SECOND))
            }
            Status::Queuing | Status::Bidding | Status::Restarting => {
                if now < sky.market_opens {
                    return Some(sky.market_opens + sky.rng.below(MINUTE));
                }
                self.become_status(Status::EnvPreparing);
                Some(now + 10 * SECOND + sky.rng.below(30 * SECOND))
            }
            Status::EnvPreparing if !sky.calm && sky.rng.chance(4) => {
                "JobFailed".clone_into(&mut self.cloud.reason_code);
                self.end(now, Truth::UserError, Status::Failed, false);
                None
            }
            Status::EnvPreparing => {
                self.become_status(Status::Running);
                self.cloud.running = Some(at(now));
                self.ticks = 0;
                self.hangs_until = 0;
                self.moves(now);
                self.count();
                Some(now + MINUTE)
            }
            Status::Running => self.run(now, sky),
            _ => None,
        }
    }

    fn run(&mut self, now: u64, sky: &mut Sky<'_>) -> Option<u64> {
        if !sky.calm && sky.nature == Nature::Trains && sky.rng.chance(3) {
            self.hangs_until = now + sky.rng.below(HANGS_FOR);
        }
        let hangs = now < self.hangs_until;
        if !hangs {
            self.moves(now);
        }
        self.ticks += 1;
        // What hangs has its machine for long, most of the time.
        let released = !sky.calm && sky.rng.chance(if hangs { 2 } else { 18 });
        if hangs && !released {
            return Some(now + MINUTE);
        }
        self.step += if hangs { 0 } else { STRIDE };
        let fails = match sky.nature {
            Nature::Crashes => true,
            Nature::Trains => !sky.calm && sky.rng.chance(3),
            Nature::Plain => false,
        };
        if sky.nature == Nature::Trains && self.origin.writes() && !hangs {
            let whole_from = match sky.rng.below(3) {
                _ if !released => Some(now),
                // A release in the middle of a save: torn for ever, or the rest still comes.
                0 => None,
                1 => Some(now + 10 * SECOND + sky.rng.below(90 * SECOND)),
                _ => Some(now),
            };
            let by = (self.cloud.id.clone(), sky.beside.clone());
            sky.bucket.save(sky.prefix, self.step, now, whole_from, by);
        }
        let held = sky.rng.chance(20);
        if released && sky.restarts_in_place && sky.rng.chance(40) {
            // The platform restarts it itself, from where its argument says.
            let way = sky.rng.one_of(&[Status::Restarting, Status::Queuing, Status::Bidding]);
            self.become_status(way);
            self.restarts += 1;
            self.step = self.from;
            if self.counter == Counter::Shown {
                self.count();
            }
            return Some(now + 10 * SECOND + sky.rng.below(40 * SECOND));
        }
        if released {
            self.release(now, sky.rng, held);
        } else if fails {
            "JobFailed".clone_into(&mut self.cloud.reason_code);
            self.cloud.exits = vec![ExitReport { code: 1, pods: self.cloud.pod_count }];
            self.end(now, Truth::UserError, Status::Failed, held);
        } else if self.step >= TOTAL_STEPS {
            self.end(now, Truth::Done, Status::Succeeded, held);
        } else {
            return Some(now + MINUTE);
        }
        held.then(|| now + 20 * SECOND + sky.rng.below(3 * MINUTE))
    }

    /// The platform takes the machine back and says as much of it as it likes.
    fn release(&mut self, now: u64, rng: &mut Rng, held: bool) {
        let pods = self.cloud.pod_count;
        "JobFailed".clone_into(&mut self.cloud.reason_code);
        match rng.below(4) {
            0 => "Preempted by the platform".clone_into(&mut self.cloud.reason_message),
            1 => {}
            // One node is gone; the other ranks exit 1 with a traceback.
            _ if pods > 1 => self.cloud.exits = vec![ExitReport { code: 1, pods: pods - 1 }],
            _ => self.cloud.exits = vec![ExitReport { code: 137, pods: 1 }],
        }
        self.end(now, Truth::Released, Status::Failed, held);
    }
}

/// What happens to a job besides itself.
pub(crate) struct Sky<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) bucket: &'a mut Bucket,
    pub(crate) prefix: &'static str,
    pub(crate) nature: Nature,
    pub(crate) calm: bool,
    pub(crate) market_opens: u64,
    pub(crate) restarts_in_place: bool,
    /// Another attempt of the same job that runs.
    pub(crate) beside: Option<CloudId>,
}

/// How a list comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weather {
    Fair,
    /// No answer: 5xx, 403, throttled, a page of HTML.
    NoAnswer,
    /// An empty page under a count that says otherwise.
    EmptyPage,
    /// Something is made or goes while pages are turned.
    Shifted,
}

/// One pass over ListJobs, with the program's own rules of completeness.
pub(crate) fn list(
    remotes: &mut [Remote],
    start: WallTime,
    now: u64,
    (weather, stormy): (Weather, bool),
    (rng, owner, bug): (&mut Rng, &Owner, Option<Bug>),
) -> Option<ListPass> {
    if weather == Weather::NoAnswer {
        return None;
    }
    let start = if bug == Some(Bug::SearchWithoutStartTime) {
        at(now.saturating_sub(LISTED_WITHOUT_START))
    } else {
        start
    };
    // The filter of names is the server's.
    let ours = format!("sk{owner}");
    let is_asked_for = |r: &Remote| r.cloud.display_name.contains(&ours) && at(r.created) >= start;
    let shown: Vec<usize> = (0..remotes.len())
        .filter(|n| remotes[*n].is_visible(now) && is_asked_for(&remotes[*n]))
        .collect();
    for n in &shown {
        remotes[*n].shown.set(now);
    }
    let total = shown.len() as u64;
    let mut gathered = Gathered::default();
    let (mut from, mut page) = (0, 0);
    loop {
        page += 1;
        let mut rows = Vec::new();
        if weather != Weather::EmptyPage {
            for n in shown.iter().skip(from).take(PAGE_ROWS) {
                rows.push(Ok(row(&remotes[*n], stormy, (rng, owner, bug))));
            }
        }
        from += PAGE_ROWS;
        let shift = weather == Weather::Shifted && page == 1;
        if shift {
            // A row moves over the border of the pages: it is not seen, or seen twice.
            from = if rng.chance(50) { from + 1 } else { from - 1 };
        }
        let more = gathered.take(Page { rows, total: Some(total) });
        if more == More::No || bug == Some(Bug::FirstPageOnly) {
            break;
        }
    }
    let mut pass = gathered.finish("caller".to_owned());
    if matches!(bug, Some(Bug::FirstPageOnly | Bug::EmptyPageIsAbsent)) {
        pass.gap = None;
    }
    if pass.complete() {
        for n in shown {
            remotes[n].passes += 1;
        }
    }
    Some(pass)
}

fn row(
    remote: &Remote,
    stormy: bool,
    (rng, owner, bug): (&mut Rng, &Owner, Option<Bug>),
) -> CloudJob {
    let mut cloud = remote.cloud.clone();
    cloud.whole = false;
    cloud.pods.clear();
    if stormy && cloud.status.is_end() && rng.chance(5) {
        // The list lags behind the job.
        remote.flapped.set(true);
        cloud.status = remote.before.clone();
    }
    if let Some(bug) = bug {
        bug.bend_row(&mut cloud, owner);
    }
    cloud
}

/// GetJob of a row. A transient 404 leaves the row.
pub(crate) fn in_full(
    row: CloudJob,
    remotes: &[Remote],
    stormy: bool,
    (rng, owner, bug): (&mut Rng, &Owner, Option<Bug>),
) -> CloudJob {
    if stormy && rng.chance(4) {
        let mut row = row;
        if bug == Some(Bug::NotFoundIsEnded) {
            row.status = Status::Failed;
        }
        return row;
    }
    let Some(remote) = remotes.iter().find(|remote| remote.cloud.id == row.id) else { return row };
    let mut cloud = remote.cloud.clone();
    if cloud.pod_count > 1 {
        cloud.pods = (0..cloud.pod_count).map(pod).collect();
    }
    let odd = if remote.origin.writes() { 6 } else { 25 };
    if stormy && remote.is_alive() && rng.chance(odd) {
        cloud.status = match rng.below(3) {
            0 => {
                remote.flapped.set(true);
                remote.before.clone()
            }
            1 => Status::Other("Preempting".to_owned()),
            _ => Status::Other("SpotToBeReleased".to_owned()),
        };
    }
    if let Some(bug) = bug {
        bug.bend_row(&mut cloud, owner);
    }
    cloud
}

/// GetJob of an attempt that a complete list lacks; `None` is a 404.
pub(crate) fn get(
    id: &CloudId,
    remotes: &[Remote],
    (now, stormy): (u64, bool),
    with: (&mut Rng, &Owner, Option<Bug>),
) -> Option<CloudJob> {
    let remote = remotes.iter().find(|remote| remote.cloud.id == *id)?;
    if !remote.is_known(now) || (stormy && with.0.chance(5)) {
        if with.2 == Some(Bug::NotFoundIsEnded) {
            return Some(CloudJob { status: Status::Failed, ..remote.cloud.clone() });
        }
        return None;
    }
    remote.shown.set(now);
    Some(in_full(remote.cloud.clone(), remotes, stormy, with))
}

fn pod(n: u32) -> Pod {
    Pod { id: format!("pod-{n}"), uid: format!("uid-{n}"), ..Pod::default() }
}
