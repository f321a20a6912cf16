//! Why an attempt ended, as far as the cloud's answers and the logs can tell.
//!
//! No public text tells a spot release from a bug, so a verdict only chooses words and whether an
//! end counts as "alike"; one end never ends a job. Rules are data: each matches one named field by
//! whole words, after the job's own strings were taken out of it, and never a state name.

use super::hang;
use super::job::{Attempt, StopWhy, kept};
use super::permanent;
use super::runs::Ran;
use crate::model::cloud::{CloudJob, Status};
use crate::model::fence;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Causes of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The platform took the spot machine back.
    Released,
    /// It ended by itself, with an exit code of its own in every pod.
    UserError,
    /// It ended before UserCommand ran.
    NeverStarted,
    /// UserCommand ended with 0.
    Succeeded,
    /// It ended well, but short of what `[progress]` asks for.
    EndedEarly,
    /// We stopped it.
    StoppedByUs,
    /// A person stopped it in the console or by the API.
    StoppedByPerson,
    /// It was stopped, and nothing says by whom.
    StoppedUnexplained,
    /// It reached the running time limit that was sent.
    TimeLimit,
    /// Its CreateJob created nothing.
    NeverCreated,
    /// Its launcher found a later attempt in the fence and ended before the command ran.
    Fenced,
    /// The cloud does not know it any more: nobody saw how it ended.
    Lost,
    /// Killed or failed, and nothing says by what.
    Unexplained,
}

impl Cause {
    /// The word in JSON and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::UserError => "user_error",
            Self::NeverStarted => "never_started",
            Self::Succeeded => "succeeded",
            Self::EndedEarly => "ended_early",
            Self::StoppedByUs => "stopped_by_us",
            Self::StoppedByPerson => "stopped_by_person",
            Self::StoppedUnexplained => "stopped_unexplained",
            Self::TimeLimit => "time_limit",
            Self::NeverCreated => "never_created",
            Self::Fenced => "fenced",
            Self::Lost => "lost",
            Self::Unexplained => "unexplained",
        }
    }
}

/// A cause, what it was read from, and which rule read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// The fields that were looked at, as `Name=value`.
    pub evidence: Vec<String>,
    /// The rule that matched.
    pub rule: String,
    /// How the end looked, for telling a crash loop.
    pub look: EndLook,
}

/// How an end looked from outside: ends that look alike, in a row, make a crash loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndLook {
    /// Whether UserCommand had run.
    pub ran: bool,
    /// Exit codes, in order.
    pub exits: Vec<i32>,
    /// How long UserCommand ran.
    pub duration: Duration,
    /// What kind of evidence there is.
    pub told: Told,
    /// Whether it will come again however often the same body is sent.
    pub hopeless: bool,
}

/// What the answer and the logs tell about an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// Nothing at all.
    Nothing,
    /// An exit code or a message, not that it came from outside.
    Something,
    /// It was ended from outside.
    FromOutside,
}

/// Durations closer than this are alike however short they are: the API counts whole seconds.
const DURATION_GRAIN: Duration = Duration::from_secs(5);

impl EndLook {
    /// Whether two ends look alike: same phase, same exit evidence, durations within 10 %, and
    /// nothing that says "from outside" in either.
    pub fn alike(&self, other: &Self) -> bool {
        let longer = self.duration.max(other.duration);
        let apart = longer.saturating_sub(self.duration.min(other.duration));
        self.told != Told::FromOutside
            && other.told != Told::FromOutside
            && self.ran == other.ran
            && self.exits == other.exits
            && apart <= (longer / 10).max(DURATION_GRAIN)
    }
}

/// Which field of the answer a rule reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    ReasonCode,
    ReasonMessage,
    SubStatus,
    PodSubStatus,
}

/// One rule: a word in a field of a Failed or Stopped job gives a cause.
struct Rule {
    name: &'static str,
    field: Field,
    word: &'static str,
    cause: Cause,
}

const fn rule(name: &'static str, field: Field, word: &'static str, cause: Cause) -> Rule {
    Rule { name, field, word, cause }
}

/// The built-in rules; the first that matches wins. Chinese words have no word boundary and match
/// anywhere.
const RULES: &[Rule] = &[
    rule("pod-evicted", Field::PodSubStatus, "evicted", Cause::Released),
    rule("sub-status-evicted", Field::SubStatus, "evicted", Cause::Released),
    rule("sub-status-preempted", Field::SubStatus, "preempted", Cause::Released),
    rule("code-preempted", Field::ReasonCode, "preempted", Cause::Released),
    rule("code-evicted", Field::ReasonCode, "evicted", Cause::Released),
    rule("code-job-evicted", Field::ReasonCode, "jobevicted", Cause::Released),
    rule("code-bid-failed", Field::ReasonCode, "bidfailed", Cause::Released),
    rule("code-spot-release", Field::ReasonCode, "spottobereleased", Cause::Released),
    rule("message-preempted", Field::ReasonMessage, "preempted", Cause::Released),
    rule("message-preemption", Field::ReasonMessage, "preemption", Cause::Released),
    rule("message-evicted", Field::ReasonMessage, "evicted", Cause::Released),
    rule("message-eviction", Field::ReasonMessage, "eviction", Cause::Released),
    rule("message-reclaimed", Field::ReasonMessage, "reclaimed", Cause::Released),
    rule("message-spot-release", Field::ReasonMessage, "spottobereleased", Cause::Released),
    rule("message-bid-failed", Field::ReasonMessage, "bidfailed", Cause::Released),
    rule("message-preempted-zh", Field::ReasonMessage, "抢占", Cause::Released),
    rule("message-evicted-zh", Field::ReasonMessage, "驱逐", Cause::Released),
    rule("message-reclaimed-zh", Field::ReasonMessage, "回收", Cause::Released),
];

/// Different exit codes of one end that are kept.
const EXITS_LIMIT: usize = 16;
/// Codes of a stop that a person asked for.
const PERSON_CODES: &[&str] = &["JobStoppedByUser", "StoppedByUser"];
/// Codes of an end for want of machines: nothing that the job did.
const CAPACITY_CODES: &[&str] = &["ResourceAllocateFailed"];
/// Exit codes that a kill from outside leaves, and an out-of-memory kill as well: they prove nothing.
const KILLED: [i32; 2] = [137, 143];

/// The verdict on an ended job by its own answer. Logs may amend it: [`amend`].
pub fn judge(cloud: &CloudJob, attempt: &Attempt, ran: Ran, limit: Option<Duration>) -> Verdict {
    let mut evidence = vec![format!("Status={}", cloud.status.word())];
    for (name, value) in [
        ("SubStatus", &cloud.sub_status),
        ("ReasonCode", &cloud.reason_code),
        ("ReasonMessage", &cloud.reason_message),
    ] {
        if !value.is_empty() {
            evidence.push(format!("{name}={}", kept(value)));
        }
    }
    let evicted = cloud.pods.iter().filter(|p| p.sub_status == "Evicted").count();
    if evicted > 0 {
        evidence.push(format!("pods evicted={evicted} of {}", cloud.pods.len()));
    }
    evidence.push(format!("ran={}", crate::model::time::human(ran.total)));
    if attempt.restarts() > 0 {
        let last = crate::model::time::human(ran.last);
        evidence.push(format!("restarts in place={}, last run={last}", attempt.restarts()));
    }
    if let (Some(StopWhy::Hang), Some(why)) = (attempt.stop, hang::warning(attempt)) {
        evidence.push(format!("stopped for a hang={why}"));
    }
    let (cause, rule) = cause(cloud, attempt, ran, limit);
    let mut exits: Vec<i32> = cloud.exits.iter().map(|e| e.code).collect();
    exits.sort_unstable();
    exits.dedup();
    exits.truncate(EXITS_LIMIT);
    let no_machine = CAPACITY_CODES.contains(&cloud.reason_code.as_str());
    let by_others = cause == Cause::Released || cause == Cause::StoppedByUs;
    let told = if by_others || (no_machine && !cloud.ever_ran()) {
        Told::FromOutside
    } else if exits.is_empty() && cloud.reason_message.is_empty() {
        Told::Nothing
    } else {
        Told::Something
    };
    let look = EndLook {
        ran: cloud.ever_ran(),
        duration: ran.last,
        told,
        hopeless: permanent::cause(cloud).is_some(),
        exits,
    };
    Verdict { cause, evidence, rule: rule.to_owned(), look }
}

fn cause(
    cloud: &CloudJob,
    attempt: &Attempt,
    ran: Ran,
    limit: Option<Duration>,
) -> (Cause, &'static str) {
    match &cloud.status {
        Status::Succeeded => (Cause::Succeeded, "status-succeeded"),
        Status::Stopped => stopped_cause(cloud, attempt, ran, limit),
        _ if attempt.stop.is_some() => (Cause::StoppedByUs, "stop-was-asked"),
        Status::Failed => failed_cause(cloud, ran, limit),
        Status::Creating
        | Status::Queuing
        | Status::Bidding
        | Status::EnvPreparing
        | Status::SanityChecking
        | Status::Running
        | Status::Restarting
        | Status::Stopping
        | Status::SucceededReserving
        | Status::FailedReserving
        | Status::Other(_) => (Cause::Unexplained, "not-an-end"),
    }
}

fn stopped_cause(
    cloud: &CloudJob,
    attempt: &Attempt,
    ran: Ran,
    limit: Option<Duration>,
) -> (Cause, &'static str) {
    if attempt.was_to_stop(cloud.finished).is_some() {
        (Cause::StoppedByUs, "stop-was-asked")
    } else if PERSON_CODES.contains(&cloud.reason_code.as_str()) {
        (Cause::StoppedByPerson, "person-code")
    } else if reached(cloud, ran, limit) {
        (Cause::TimeLimit, "duration-is-the-limit")
    } else if let Some(rule) = matching_rule(cloud) {
        (rule.cause, rule.name)
    } else {
        (Cause::StoppedUnexplained, "stopped-without-a-known-code")
    }
}

fn failed_cause(cloud: &CloudJob, ran: Ran, limit: Option<Duration>) -> (Cause, &'static str) {
    if let Some(rule) = matching_rule(cloud) {
        return (rule.cause, rule.name);
    }
    if !cloud.ever_ran() {
        return (Cause::NeverStarted, "never-ran");
    }
    let reporting = cloud.exits.iter().fold(0u32, |sum, e| sum.saturating_add(e.pods));
    let own_code = cloud.exits.iter().all(|e| !KILLED.contains(&e.code));
    let everywhere = !cloud.exits.is_empty() && reporting >= cloud.pod_count;
    // What the job says of itself goes before what its running time suggests.
    if own_code && everywhere {
        (Cause::UserError, "every-pod-has-its-own-exit-code")
    } else if reached(cloud, ran, limit) {
        (Cause::TimeLimit, "duration-is-the-limit")
    } else if cloud.exits.is_empty() {
        (Cause::Unexplained, "no-exit-code")
    } else if own_code {
        (Cause::Unexplained, "some-pods-without-exit-code")
    } else {
        (Cause::Unexplained, "killed-by-a-signal")
    }
}

/// Whether a running time is the limit that was sent: to the minute, and to a tenth of a limit of
/// few minutes, which else any short run would reach. Nobody has published which of its runs the
/// platform counts in a job that it restarted itself: each way to count may be the one.
fn reached(cloud: &CloudJob, ran: Ran, limit: Option<Duration>) -> bool {
    let Some(limit) = limit else { return false };
    let slack = (limit / 10).min(Duration::from_secs(60));
    let is_limit =
        |ran: Duration| ran >= limit.saturating_sub(slack) && ran <= limit.saturating_add(slack);
    let was_restarted = ran != Ran::once(ran.total);
    let by_duration = cloud.duration_s.filter(|_| was_restarted).map(Duration::from_secs);
    [Some(ran.total), Some(ran.last), Some(ran.span), by_duration]
        .into_iter()
        .flatten()
        .any(is_limit)
}

/// `text` in lower case without the job's own strings, which come back in messages: a job named
/// "evicted-test" was not evicted.
pub(super) fn masked(cloud: &CloudJob, text: &str) -> String {
    let own =
        [Some(cloud.display_name.as_str()), Some(cloud.id.as_str()), cloud.stamp.job.as_deref()];
    own.into_iter().flatten().map(str::to_lowercase).filter(|own| !own.is_empty()).fold(
        text.to_lowercase(),
        |text, own| {
            let mut left = String::with_capacity(text.len());
            let mut from = 0;
            for at in word_places(&text, &own) {
                if at >= from {
                    left.push_str(&text[from..at]);
                    left.push(' ');
                    from = at + own.len();
                }
            }
            left.push_str(&text[from..]);
            left
        },
    )
}

fn matching_rule(cloud: &CloudJob) -> Option<&'static Rule> {
    let mask = |text: &str| masked(cloud, text);
    let (code, message, sub) =
        (mask(&cloud.reason_code), mask(&cloud.reason_message), mask(&cloud.sub_status));
    RULES.iter().find(|rule| match rule.field {
        Field::ReasonCode => has_word(&code, rule.word),
        Field::ReasonMessage => has_word(&message, rule.word),
        Field::SubStatus => has_word(&sub, rule.word),
        Field::PodSubStatus => {
            cloud.pods.iter().any(|p| has_word(&p.sub_status.to_lowercase(), rule.word))
        }
    })
}

/// Whether `text` holds `word` with no letter or digit right beside it; both lower case.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    word_places(text, word).next().is_some()
}

/// Where `text` holds `word` as a whole word. A text that is not ASCII has no word boundaries.
pub(super) fn word_places<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let boundary = |c: Option<char>| {
        !word.is_ascii() || c.is_none_or(|c| !(c.is_ascii_alphanumeric() || c == '_'))
    };
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        boundary(text[..*at].chars().next_back())
            && boundary(text[*at + word.len()..].chars().next())
    })
}

/// What the log of one pod says about its end, when it can be read whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogEnd {
    /// The launcher's last line is there: UserCommand ended by itself with this code.
    ByItself(i32),
    /// The log is whole and lacks that line: killed from outside.
    FromOutside,
    /// The launcher says that it found a later attempt in the fence.
    Fenced,
    /// The log may be cut, or could not be read: it says nothing.
    Silent,
}

/// Amends a verdict that could not explain an end by what the logs of its pods say. Answers
/// `None` where they add nothing.
pub fn amend(verdict: &Verdict, pods: &[LogEnd]) -> Option<Verdict> {
    match verdict.cause {
        Cause::Unexplained | Cause::UserError => {}
        Cause::Released
        | Cause::NeverStarted
        | Cause::Succeeded
        | Cause::EndedEarly
        | Cause::StoppedByUs
        | Cause::StoppedByPerson
        | Cause::StoppedUnexplained
        | Cause::TimeLimit
        | Cause::NeverCreated
        | Cause::Lost
        | Cause::Fenced => return None,
    }
    if pods.contains(&LogEnd::Fenced) {
        return Some(fenced(verdict, "log-says-fenced"));
    }
    let from_outside = pods.iter().filter(|end| **end == LogEnd::FromOutside).count();
    let mut codes: Vec<i32> = pods
        .iter()
        .filter_map(|end| match end {
            LogEnd::ByItself(code) => Some(*code),
            LogEnd::FromOutside | LogEnd::Fenced | LogEnd::Silent => None,
        })
        .collect();
    codes.sort_unstable();
    let mut amended = verdict.clone();
    if from_outside > 0 {
        // One released node makes the others end by themselves with a traceback.
        amended.cause = Cause::Released;
        amended.look.told = Told::FromOutside;
        amended.rule = "log-without-end-line".to_owned();
        amended.evidence.push(format!("logs without the end line={from_outside}"));
    } else if !codes.is_empty() && codes.len() == pods.len() {
        // How the end looks stays as the answer showed it: ends are compared with each other
        // whether their logs came in time or not.
        codes.dedup();
        codes.truncate(EXITS_LIMIT);
        amended.cause = Cause::UserError;
        amended.look.told = Told::Something;
        amended.rule = "log-with-end-line".to_owned();
        amended.evidence.push(format!("end lines say rc={codes:?}"));
    } else {
        return None;
    }
    (amended != *verdict).then_some(amended)
}

/// The verdict on an attempt that was sent with a fence: the fence's own exit code, in any pod,
/// says that it is a twin. The other pods miss that one and end as they like.
pub fn with_fence(verdict: Verdict) -> Verdict {
    match verdict.cause {
        Cause::UserError | Cause::Unexplained if verdict.look.exits.contains(&fence::EXIT_CODE) => {
            fenced(&verdict, "exit-code-of-the-fence")
        }
        Cause::UserError
        | Cause::Unexplained
        | Cause::Released
        | Cause::NeverStarted
        | Cause::Succeeded
        | Cause::EndedEarly
        | Cause::StoppedByUs
        | Cause::StoppedByPerson
        | Cause::StoppedUnexplained
        | Cause::TimeLimit
        | Cause::NeverCreated
        | Cause::Lost
        | Cause::Fenced => verdict,
    }
}

/// A twin that was turned away says nothing about the command: it is never part of a crash loop.
fn fenced(verdict: &Verdict, rule: &str) -> Verdict {
    let mut fenced = verdict.clone();
    fenced.cause = Cause::Fenced;
    fenced.rule = rule.to_owned();
    fenced.look.told = Told::FromOutside;
    fenced
}

/// The verdict on an attempt that the cloud does not know any more.
pub(super) fn lost(why: &str, ran: Duration) -> Verdict {
    Verdict {
        cause: Cause::Lost,
        evidence: vec![kept(why)],
        rule: "lost".to_owned(),
        look: EndLook {
            ran: ran > Duration::ZERO,
            exits: Vec::new(),
            duration: ran,
            told: Told::Nothing,
            hopeless: false,
        },
    }
}

/// The verdict on an attempt whose CreateJob created nothing.
pub fn never_created(why: &str) -> Verdict {
    Verdict {
        cause: Cause::NeverCreated,
        evidence: vec![kept(why)],
        rule: "never-created".to_owned(),
        look: EndLook {
            ran: false,
            exits: Vec::new(),
            duration: Duration::ZERO,
            told: Told::Something,
            hopeless: false,
        },
    }
}
