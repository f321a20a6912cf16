//! One job on a desk: inputs go in by hand, what comes out is kept.

use spotkeeper::core::event::{Event, Word};
use spotkeeper::core::job::{AttemptState, BlockKind, Job, OutcomeKind, Recovery, Start};
use spotkeeper::core::phase::{Phase, phase};
use spotkeeper::core::step::{Act, Effect, EndedRef, Given, Input, Pass, Past, step};
use spotkeeper::core::submit::{Gate, Hold, may_submit};
use spotkeeper::core::verdict::Cause;
use spotkeeper::dlc::wire::{self, Source};
use spotkeeper::model::checkpoint::{
    Candidate, Findings, Location, Look, Pin, Position, ResumePoint, Scheme, Tracker, Unfinished,
    Wholeness,
};
use spotkeeper::model::cloud::{CloudJob, SendOutcome, Stamp, Status};
use spotkeeper::model::ids::{CloudId, Digest, JobKey, JobName, Mark, Owner, TargetName};
use spotkeeper::model::spec::{
    CheckpointSpec, CredentialsRef, FirstStart, JobSpec, OnStopped, Place, Retry,
};
use spotkeeper::model::time::{BootTime, Now, WallTime};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const EPOCH: i64 = 1_800_000_000_000;
pub(super) const ACCEPTANCE: Duration = Duration::from_secs(900);
pub(super) const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: Duration = Duration::from_secs(3600);
/// Bytes that the store takes for one record.
const RECORD_LIMIT: usize = 8 * 1024;

pub(super) struct Desk {
    pub(super) job: Job,
    pub(super) spec: JobSpec,
    pub(super) gate: Gate,
    pub(super) now: Now,
    pub(super) past: BTreeMap<Mark, Past>,
    /// What the last input led to.
    pub(super) effects: Vec<Effect>,
    pub(super) wake_at: Option<BootTime>,
    /// Everything that was told so far.
    pub(super) told: Vec<Event>,
    pub(super) causes: Vec<Cause>,
    marks: u16,
}

impl Desk {
    pub(super) fn new() -> Self {
        let spec = spec();
        Self {
            job: Job::new(spec.key.clone(), Digest("0".repeat(64))),
            spec,
            gate: gate(),
            now: Now { wall: WallTime(EPOCH), boot: BootTime(1_000_000) },
            past: BTreeMap::new(),
            effects: Vec::new(),
            wake_at: None,
            told: Vec::new(),
            causes: Vec::new(),
            marks: 0,
        }
    }

    /// Without `[checkpoint]` and `[progress]`.
    pub(super) fn without_checkpoints() -> Self {
        let mut desk = Self::new();
        desk.spec.checkpoint = None;
        desk.spec.total_steps = None;
        desk
    }

    pub(super) fn given(&self) -> Given<'_> {
        Given { now: self.now, spec: &self.spec, gate: self.gate.clone(), mark: self.fresh_mark() }
    }

    fn fresh_mark(&self) -> Mark {
        let [high, low] = self.marks.to_be_bytes();
        let mut bytes = [low; 10];
        if high > 0 {
            // A letter is five bits.
            (bytes[0], bytes[1], bytes[2]) = (high % 32, high / 32, low / 32);
        }
        Mark::from_random(bytes)
    }

    pub(super) fn feed(&mut self, input: Input) -> &mut Self {
        self.marks += 1;
        let step = step(&self.job, &self.given(), input).expect("a pair that can be");
        let record = serde_json::to_vec(&step.next).expect("a record");
        assert!(record.len() < RECORD_LIMIT, "a record of {} bytes", record.len());
        for ended in step.ended {
            let record = serde_json::to_vec(&ended).expect("a record");
            assert!(record.len() < RECORD_LIMIT, "an end of {} bytes", record.len());
            self.causes.push(ended.verdict.cause);
            let past = EndedRef::of(&ended).map_or(
                Past::NeverCreated { no: ended.attempt.no, intended: ended.attempt.intended },
                Past::Ended,
            );
            self.past.insert(ended.attempt.mark, past);
        }
        self.job = step.next;
        self.effects = step.effects;
        self.wake_at = step.wake_at;
        self.told.extend(step.events);
        self
    }

    pub(super) fn wait(&mut self, time: Duration) -> &mut Self {
        self.now = Now { wall: self.now.wall.plus(time), boot: self.now.boot.plus(time) };
        self.feed(Input::Tick)
    }

    /// Waits as long as the job says it wants to, and answers how long that was.
    pub(super) fn wait_out(&mut self) -> Duration {
        let until = self.wake_at.expect("a time to wake up at");
        let delay = until.since(self.now.boot);
        self.wait(delay);
        delay
    }

    pub(super) fn look(&mut self, findings: Findings) -> &mut Self {
        assert!(self.effects.contains(&Effect::Look), "nothing is looked for: {:?}", self.effects);
        self.feed(Input::Looked(Look::Done(findings)))
    }

    /// From a look that is due to an intent.
    pub(super) fn submit(&mut self, findings: Findings) -> &mut Self {
        if self.spec.checkpoint.is_some() {
            self.look(findings);
        }
        assert!(self.sends(), "nothing is sent: {:?}", self.holds());
        self
    }

    /// A first attempt that runs.
    pub(super) fn running() -> Self {
        let mut desk = Self::new();
        desk.feed(Input::Tick).submit(none()).live();
        desk
    }

    pub(super) fn sends(&self) -> bool {
        self.effects.iter().any(|effect| matches!(effect, Effect::Create(_)))
    }

    pub(super) fn stops(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, Effect::Stop { .. })).count()
    }

    pub(super) fn sent(&mut self, outcome: SendOutcome) -> &mut Self {
        let no = self.job.open.last().expect("an open attempt").no;
        self.feed(Input::Sent { no, outcome })
    }

    /// CreateJob answers, and the job runs.
    pub(super) fn live(&mut self) -> &mut Self {
        let no = self.job.open.last().expect("an open attempt").no;
        self.sent(SendOutcome::Accepted { id: id(no) });
        let cloud = self.cloud(Status::Running);
        self.see(cloud)
    }

    /// The open attempt as the cloud shows it.
    pub(super) fn cloud(&self, status: Status) -> CloudJob {
        let attempt = self.job.open.last().expect("an open attempt");
        let mut cloud = cloud(attempt.no, &attempt.mark, status);
        cloud.created = Some(attempt.intended);
        if let AttemptState::Live { running, .. } = &attempt.state {
            cloud.running = *running;
        }
        if cloud.status == Status::Running {
            cloud.running.get_or_insert(self.now.wall);
        }
        if cloud.status.is_end() {
            cloud.finished = Some(self.now.wall);
        }
        cloud
    }

    pub(super) fn see(&mut self, cloud: CloudJob) -> &mut Self {
        let mark = cloud.stamp.name.clone().or(cloud.stamp.tag.clone()).expect("a stamp").1;
        let open = self.job.open.iter().any(|attempt| attempt.mark == mark);
        let past = self.past.get(&mark).filter(|_| !open).cloned().unwrap_or(Past::Stranger);
        self.feed(Input::Seen { mark, cloud: Box::new(cloud), past, place: place() })
    }

    /// The open attempt ends after `ran` as `change` says.
    pub(super) fn end(&mut self, ran: Duration, change: impl FnOnce(&mut CloudJob)) -> &mut Self {
        self.now = Now { wall: self.now.wall.plus(ran), boot: self.now.boot.plus(ran) };
        let mut cloud = self.cloud(Status::Failed);
        change(&mut cloud);
        self.see(cloud)
    }

    /// One round without progress: submitted, run, ended, looked. Answers the back-off.
    pub(super) fn round(&mut self, ran: Duration, change: impl FnOnce(&mut CloudJob)) {
        self.live().end(ran, change);
        self.look(none());
    }

    pub(super) fn pass(&mut self, complete: bool) -> &mut Self {
        self.pass_by(complete, true)
    }

    pub(super) fn pass_by(&mut self, complete: bool, same_caller: bool) -> &mut Self {
        self.feed(Input::Swept(Pass {
            place: place(),
            started: self.now.boot,
            complete,
            same_caller,
            server: Some(self.now.wall),
        }))
    }

    /// A complete pass whose answer carried this date.
    pub(super) fn pass_at(&mut self, server: WallTime) -> &mut Self {
        self.feed(Input::Swept(Pass {
            place: place(),
            started: self.now.boot,
            complete: true,
            same_caller: true,
            server: Some(server),
        }))
    }

    pub(super) fn act(&mut self, act: Act) -> &mut Self {
        self.feed(Input::Operator(act))
    }

    pub(super) fn holds(&self) -> Vec<Hold> {
        may_submit(&self.job, &self.given()).err().unwrap_or_default()
    }

    pub(super) fn phase(&self) -> Phase {
        phase(&self.job, &self.holds(), self.now)
    }

    pub(super) fn block(&self) -> Option<BlockKind> {
        self.job.block.as_ref().map(|block| block.kind)
    }

    pub(super) fn result(&self) -> Option<OutcomeKind> {
        self.job.result.as_ref().map(|result| result.kind)
    }

    pub(super) fn backoff(&self) -> Option<u64> {
        match &self.job.recovery {
            Recovery::Waiting { delay, .. } => Some(delay.as_secs()),
            Recovery::Look { .. }
            | Recovery::Settling { .. }
            | Recovery::Ready { .. }
            | Recovery::Repairing { .. }
            | Recovery::NotRepaired { .. } => None,
        }
    }

    /// Step that the open attempt starts from.
    pub(super) fn from(&self) -> Option<u64> {
        match &self.job.open.last()?.start {
            Start::Fresh => None,
            Start::From(point) => point.step,
        }
    }

    pub(super) fn count(&self, word: Word) -> usize {
        self.told.iter().filter(|event| event.word == word).count()
    }
}

pub(super) fn id(no: u32) -> CloudId {
    CloudId::new(format!("dlc{no}")).expect("an id")
}

pub(super) fn mark(n: u8) -> Mark {
    Mark::from_random([n; 10])
}

pub(super) fn owner() -> Owner {
    Owner::new("k3f9qz").expect("an owner")
}

/// A job with all stamps of ours.
pub(super) fn cloud(no: u32, mark: &Mark, status: Status) -> CloudJob {
    let stamp = Some((owner(), mark.clone()));
    CloudJob {
        id: id(no),
        display_name: format!("job.sk{}-{mark}", owner()),
        status,
        sub_status: String::new(),
        reason_code: String::new(),
        reason_message: String::new(),
        exits: Vec::new(),
        user_id: Some("u1".to_owned()),
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
        created: None,
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

/// A recorded answer of GetJob.
pub(super) fn golden(name: &str) -> CloudJob {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dlc-golden/responses");
    let text = std::fs::read_to_string(folder.join(format!("get_job.{name}.json")));
    let value = serde_json::from_str(&text.expect("a recording")).expect("JSON");
    wire::job(&value, Source::GetJob).expect("a job")
}

/// What a recorded answer says of an end, on one of our jobs.
pub(super) fn as_in(name: &str) -> impl FnOnce(&mut CloudJob) + use<> {
    let recorded = golden(name);
    move |cloud| {
        cloud.status = recorded.status;
        cloud.sub_status = recorded.sub_status;
        cloud.reason_code = recorded.reason_code;
        cloud.reason_message = recorded.reason_message;
        cloud.exits = recorded.exits;
        cloud.pod_count = recorded.pod_count;
        cloud.pods = recorded.pods;
        if recorded.running.is_none() {
            cloud.running = None;
        }
    }
}

/// A bucket with whole checkpoints of these steps, newest first.
pub(super) fn whole(steps: &[u64]) -> Findings {
    let mut findings = none();
    findings.candidates = steps.iter().map(|step| candidate(*step, Wholeness::Whole)).collect();
    findings.chosen = steps.first().map(|step| point(*step));
    findings
}

pub(super) fn none() -> Findings {
    Findings { format: Some("custom".to_owned()), ..Findings::default() }
}

pub(super) fn candidate(step: u64, wholeness: Wholeness) -> Candidate {
    Candidate {
        path: format!("step-{step}"),
        step: Some(step),
        epoch: None,
        position: Position { epoch: 0, step },
        wholeness,
        why: "as the test says".to_owned(),
        size: 1,
        newest_object: None,
        oldest_object: None,
    }
}

pub(super) fn point(step: u64) -> ResumePoint {
    ResumePoint {
        path: format!("step-{step}"),
        root: ".".to_owned(),
        step: Some(step),
        epoch: None,
        position: Position { epoch: 0, step },
        format: "custom".to_owned(),
        argument: "--load {path}".to_owned(),
        pin: Pin::Argument,
        tracker: Tracker::Fits,
        parts: Vec::new(),
    }
}

/// The same with an incomplete one on top.
pub(super) fn torn_above(mut findings: Findings, step: u64, print: u64) -> Findings {
    findings.candidates.insert(0, candidate(step, Wholeness::Torn));
    findings.unfinished = Some(Unfinished {
        path: format!("step-{step}"),
        step: Some(step),
        youngest_age: Duration::from_secs(1),
        fingerprint: print,
    });
    findings
}

pub(super) fn refused(code: &str, passing: bool) -> SendOutcome {
    SendOutcome::Refused { code: code.to_owned(), message: "no".to_owned(), passing }
}

pub(super) fn unknown() -> SendOutcome {
    SendOutcome::Unknown { why: "time-out".to_owned() }
}

pub(super) fn place() -> Place {
    Place {
        region: "cn-hangzhou".to_owned(),
        workspace: "1".to_owned(),
        endpoint: "https://pai-dlc.cn-hangzhou.aliyuncs.com".to_owned(),
        storage: None,
        credentials: CredentialsRef::Environment,
    }
}

pub(super) fn gate() -> Gate {
    Gate {
        place: Some(place()),
        next_place: None,
        acceptance: ACCEPTANCE,
        verified: true,
        elsewhere: None,
        new_store: None,
        other_writer: None,
        lease: None,
        writer: None,
        slot: true,
        stopping: false,
        own_user: Some("u1".to_owned()),
        owner: owner(),
    }
}

fn spec() -> JobSpec {
    JobSpec {
        key: JobKey { name: JobName::new("job").expect("a name"), run: 1 },
        target: TargetName::new("hangzhou").expect("a name"),
        launcher: true,
        body: serde_json::Map::new(),
        secret_envs: BTreeMap::new(),
        spot: None,
        checkpoint: Some(CheckpointSpec {
            location: Location {
                scheme: Scheme::Oss,
                bucket: "bucket".to_owned(),
                prefix: "run".to_owned(),
            },
            mount: "/mnt/run".to_owned(),
            format: "custom".to_owned(),
            custom: None,
            resume: None,
            resume_command: None,
            first_start: FirstStart::Resume,
            expect_within: 100 * HOUR,
            settle: MINUTE,
            settle_interval: Duration::from_secs(20),
            ranks: None,
            fence: false,
            repair_tracker: false,
            parts: Vec::new(),
        }),
        total_steps: Some(1000),
        retry: Retry { alike: 5, give_up: 24 * HOUR, on_stopped: OnStopped::Hold },
        list_price_per_hour: None,
        hang: None,
        waiting: spotkeeper::model::waiting::Waiting::default(),
        placements: Vec::new(),
    }
}
