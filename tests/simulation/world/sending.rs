//! The way of a CreateJob, and what becomes of it there.

use super::plan::Plan;
use super::{Coming, ToDaemon, World};
use crate::bugs::Bug;
use crate::clock::{DAY, HOUR, MINUTE, SECOND};
use crate::cloud::{Counter, Origin, Remote, Sent};
use crate::faults::{self, ACCEPTED_FOR, ANSWER_LATE, Fate, Fault, SKEW_LIMIT};
use crate::invariants::{BUDGET, OVERLAP, TWICE};
use spotkeeper::core::job::{Attempt, Job, Start, StopWhy};
use spotkeeper::core::step::Input;
use spotkeeper::dlc::wire::{display_name, parse_display_name};
use spotkeeper::model::checkpoint::ResumePoint;
use spotkeeper::model::cloud::{CloudJob, SendOutcome, Stamp, Status};
use spotkeeper::model::ids::{CloudId, Digest, JobKey, Owner};
use spotkeeper::model::time::WallTime;
use spotkeeper::openapi::kind::Kind;

/// A CreateJob on its way.
pub(super) struct Request {
    job: usize,
    attempt: Attempt,
    origin: Origin,
    sent: Sent,
    /// The process that gets the answer, and how often and how late.
    reply: Option<(u64, bool, u64)>,
    /// A person copies it before any list shows it.
    copied: bool,
}

/// The outcome for a code, by the program's own table.
fn refused(code: &str, bug: Option<Bug>) -> SendOutcome {
    let kind = Kind::of_code(code);
    if kind == Kind::NonceUsed && bug != Some(Bug::NonceUsedIsRefused) {
        return SendOutcome::Unknown { why: code.to_owned() };
    }
    let passing = kind.is_passing();
    SendOutcome::Refused { code: code.to_owned(), message: "no".to_owned(), passing }
}

fn shown(
    id: &CloudId,
    plan: &Plan,
    owner: &Owner,
    attempt: &Attempt,
    from: u64,
    created: WallTime,
) -> CloudJob {
    let stamp = Some((owner.clone(), attempt.mark.clone()));
    let name = display_name(plan.key.name.as_str(), owner, &attempt.mark);
    CloudJob {
        stamp: Stamp {
            name: parse_display_name(&name),
            tag: stamp.clone(),
            env: stamp,
            job: Some(plan.key.name.as_str().to_owned()),
            run: Some(1),
            attempt: Some(attempt.no),
            resume_path: (from > 0).then(|| format!("step-{from}")),
            resume_step: (from > 0).then_some(from),
        },
        display_name: name,
        status: Status::Creating,
        running: None,
        ..by_hand(id, plan, created)
    }
}

/// One that a person made, and that runs.
pub(super) fn by_hand(id: &CloudId, plan: &Plan, now: WallTime) -> CloudJob {
    CloudJob {
        id: id.clone(),
        display_name: "by-hand".to_owned(),
        status: Status::Running,
        sub_status: String::new(),
        reason_code: String::new(),
        reason_message: String::new(),
        exits: Vec::new(),
        user_id: Some("u1".to_owned()),
        stamp: Stamp::default(),
        created: Some(now),
        running: Some(now),
        finished: None,
        duration_s: None,
        pod_count: plan.pods,
        pods: Vec::new(),
        restarts: 0,
        history: None,
        whole: true,
    }
}

impl World {
    pub(super) fn send(&mut self, key: &JobKey, no: u32) {
        let job = self.plans.iter().position(|plan| plan.key == *key).expect("a plan");
        self.note_lost();
        let durable = self.book.jobs.get(key);
        let nothing = Job::new(key.clone(), Digest(String::new()));
        let Some(attempt) = self.judge.sends(durable.unwrap_or(&nothing), no, durable) else {
            return;
        };
        let (prefix, now) = (self.plans[job].prefix, self.clock.ms);
        self.judge.starts(key, &attempt.start, |step| self.bucket.is_whole(prefix, step, now));
        self.resumes_from_one_writer(job, &attempt);
        // One that came late may have been taken up in the very turn that decided this one.
        let late = |other: &Attempt| {
            let is_it = |r: &&Remote| Some(&r.cloud.id) == other.id();
            self.remotes.iter().find(is_it).is_some_and(|r| r.origin == Origin::Late)
        };
        let others = self
            .book
            .jobs
            .values()
            .flat_map(|job| &job.open)
            .filter(|other| (other.mark != attempt.mark) && other.stop != Some(StopWhy::Twin))
            .filter(|other| !late(other));
        let most = self.book.targets.values().map(|target| target.max_parallel).max();
        let others = u32::try_from(others.count()).expect("few");
        if most.is_some_and(|most| others >= most) && !self.judge.wiped {
            self.judge.broke(BUDGET, format!("{others} other attempts are open"));
        }
        let alive = |r: &&Remote| r.job == job && r.is_alive() && r.origin == Origin::Ours;
        if let Some(remote) = self.remotes.iter().find(alive) {
            let what = format!(
                "{} is {} as attempt {no} is sent",
                remote.cloud.id,
                remote.cloud.status.word()
            );
            self.judge.broke(TWICE, what);
        }
        self.attempts += 1;
        self.judge.sending.insert((key.clone(), no));
        self.meets_its_fate(job, attempt);
    }

    /// Jobs of which a lost state folder and a missing file have left nothing on record.
    fn unrecorded(&self) -> Vec<usize> {
        let gone = |n: &usize| !self.book.jobs.contains_key(&self.plans[*n].key);
        if self.wipes > 0 { (0..self.plans.len()).filter(gone).collect() } else { Vec::new() }
    }

    /// What it goes on from was not written beside another attempt, as far as the cloud tells.
    fn resumes_from_one_writer(&mut self, job: usize, attempt: &Attempt) {
        let plan = &self.plans[job];
        let Start::From(ResumePoint { step: Some(step), .. }) = &attempt.start else { return };
        let Some((one, Some(other))) = self.bucket.writers(plan.prefix, *step).cloned() else {
            return;
        };
        let (wipes, remotes) = (self.wipes, &self.remotes);
        let told = |id: &CloudId| {
            let remote = remotes.iter().find(|remote| remote.cloud.id == *id);
            // A job knows of its own attempts alone, also where two share a prefix.
            let own = |r: &Remote| r.job == job && r.wipes == wipes && !r.ended_unseen;
            let seen = |r: &Remote| r.origin == Origin::Ours || self.judge.returned.contains(id);
            remote.is_some_and(|r| own(r) && seen(r)) && self.has_ended(id)
        };
        if told(&one) && told(&other) && !self.judge.asked_from.contains(&plan.key) {
            let what = format!("{} from step {step}: {one} and {other} ran", plan.key);
            self.judge.broke(OVERLAP, what);
        }
    }

    pub(super) fn meets_its_fate(&mut self, job: usize, attempt: Attempt) {
        let (key, no) = (self.plans[job].key.clone(), attempt.no);
        let fate = if self.stormy() {
            faults::fate(&mut self.rng)
        } else {
            Fate::Good { twice: false, slow: false }
        };
        self.note(|| format!("attempt {no} of {key} is sent, mark {}: {fate:?}", attempt.mark));
        let answer = |outcome| ToDaemon::Input(key.clone(), Input::Sent { no, outcome });
        let unknown = || SendOutcome::Unknown { why: "no answer".to_owned() };
        let travel = faults::travel(&mut self.rng);
        let skew = self.clock.skew;
        if skew.abs() > SKEW_LIMIT {
            let outcome = refused("InvalidTimeStamp.Expired", None);
            self.clock.heard();
            return self.tell(travel, answer(outcome));
        }
        // By the date that it carries, where answers tell of a date; else by when it was sent.
        let dated = if self.clock.ms < self.no_date_until { 0 } else { skew };
        let open = ACCEPTED_FOR.saturating_add_signed(dated);
        let (origin, reply) = (Origin::Ours, None);
        let sent = Sent { at: self.clock.ms, unrecorded: self.unrecorded() };
        let mut request = Box::new(Request { job, attempt, origin, sent, reply, copied: false });
        let (after, outcome) = match fate {
            Fate::NotSent => {
                let after = self.rng.below(5 * SECOND) + self.lateness();
                (after, Some(SendOutcome::NotSent { why: "no route".to_owned() }))
            }
            Fate::Refused { passing } => {
                let code = if passing { "Throttling.User" } else { "InvalidParameter" };
                (travel + self.lateness(), Some(refused(code, None)))
            }
            Fate::LostThere => (30 * SECOND, Some(unknown())),
            Fate::Held { late } => {
                let held = if late {
                    request.origin = Origin::Late;
                    7 * MINUTE + self.rng.below(8 * MINUTE)
                } else {
                    self.rng.below(open)
                };
                if self.rng.chance(15) {
                    // The calendar goes wrong while the search waits, and no answer corrects it.
                    self.no_date_until = self.clock.ms + 20 * MINUTE;
                    let step = Fault::ClockStep(HOUR.cast_signed());
                    self.at(self.clock.ms + 31 * SECOND, Coming::Fault(step));
                }
                self.at(self.clock.ms + held, Coming::Request(request));
                (self.rng.below(30 * SECOND), Some(unknown()))
            }
            Fate::NonceUsed => {
                self.at(self.clock.ms + travel, Coming::Request(request));
                (2 * travel, Some(refused("SignatureNonceUsed", self.bug)))
            }
            Fate::HeldOverStep => {
                // By the calendar the wait is over after three passes, and the last of them sets it
                // right: what is sent then is accepted, before this request arrives.
                let (now, long) = (self.clock.ms, 20 * SECOND);
                self.no_date_until = now + 100 * SECOND;
                let step = Fault::ClockStep(HOUR.cast_signed());
                self.at(now + 5 * SECOND, Coming::Fault(step));
                let held = open.saturating_sub(self.rng.below(long));
                self.at(now + held, Coming::Request(request));
                (self.rng.below(4 * SECOND), Some(unknown()))
            }
            Fate::BrokenAnswer { slow, copied } => {
                request.copied = copied;
                self.at(self.clock.ms + travel, Coming::Request(request));
                let late = if slow { self.rng.below(ANSWER_LATE) } else { travel };
                (travel + late.max(self.lateness()), Some(unknown()))
            }
            Fate::LongAway => {
                let back = 8 * DAY + self.rng.below(2 * DAY);
                self.market_opens = self.market_opens.max(self.clock.ms + back + HOUR);
                self.at(self.clock.ms + travel, Coming::Request(request));
                self.at(self.clock.ms + travel, Coming::Fault(Fault::Crash { wiped: false }));
                self.at(self.clock.ms + travel, Coming::Fault(Fault::Suspend(back)));
                (0, None)
            }
            Fate::Good { twice, slow } => {
                let late = if slow { self.rng.below(ANSWER_LATE) } else { 20 };
                let late = late.max(self.lateness());
                request.reply = Some((self.process, twice, late));
                self.at(self.clock.ms + travel, Coming::Request(request));
                (0, None)
            }
        };
        if let Some(outcome) = outcome {
            self.tell(after, answer(outcome));
        }
    }

    /// The cloud makes the job.
    pub(super) fn accept(&mut self, request: Request) {
        let Request { job, attempt, origin, sent, reply, copied } = request;
        let id = CloudId::new(format!("dlc{}", self.remotes.len())).expect("an id");
        self.note(|| format!("the cloud makes {id} of attempt {}, {origin:?}", attempt.no));
        let from = match &attempt.start {
            Start::Fresh => 0,
            Start::From(point) => point.step.unwrap_or(0),
        };
        let plan = &self.plans[job];
        let mut cloud = shown(&id, plan, &self.owner, &attempt, from, self.clock.server());
        if origin == Origin::Late {
            // It has waited long enough elsewhere: it runs beside another one for as long as can be.
            cloud.status = Status::EnvPreparing;
        }
        let lag = if self.stormy() { self.rng.below(45 * SECOND) } else { 0 };
        let lag = if copied { lag + MINUTE } else { lag };
        let counter = self.rng.one_of(&[Counter::Shown, Counter::Late, Counter::Hidden]);
        let made = (self.clock.ms, lag);
        let whose = (job, origin, self.wipes);
        let mut remote = Remote::new(whose, cloud, from, made, counter);
        remote.sent = sent;
        self.remotes.push(remote);
        let after = 5 * SECOND + self.rng.below(20 * SECOND);
        self.at(self.clock.ms + after, Coming::Remote(self.remotes.len() - 1));
        if copied {
            self.copy(self.remotes.len() - 1, true);
        }
        if let Some((process, twice, late)) = reply {
            let key = self.plans[job].key.clone();
            for n in 0..=u64::from(twice) {
                let outcome = SendOutcome::Accepted { id: id.clone() };
                let input = Input::Sent { no: attempt.no, outcome };
                let when = self.clock.ms + late + n * 10 * SECOND;
                self.at(when, Coming::Daemon(process, ToDaemon::Input(key.clone(), input)));
            }
        }
        self.check();
    }
}
