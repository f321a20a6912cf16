//! Which input met a job in which situation, how often, and which of these meetings cannot be.

use spotkeeper::core::job::{AttemptState, Job, Missing, Recovery, Wanted};
use spotkeeper::core::step::{Act, Input};
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::cloud::{SendOutcome, Status};
use std::fmt::Write as _;

/// How often each meeting that can be has to come about in a long run.
pub(crate) const HITS: u64 = 20;

/// Where a job is when something happens: the first that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Situation {
    Over,
    Cancelling,
    TwoOpen,
    /// The one open attempt is in neither list nor GetJob.
    Missing,
    StopAsked,
    Unknown,
    Intended,
    Live,
    Blocked,
    Paused,
    Looking,
    Settling,
    Waiting,
    Ready,
}

impl Situation {
    pub(crate) const ALL: [Self; 14] = [
        Self::Over,
        Self::Cancelling,
        Self::TwoOpen,
        Self::Missing,
        Self::StopAsked,
        Self::Unknown,
        Self::Intended,
        Self::Live,
        Self::Blocked,
        Self::Paused,
        Self::Looking,
        Self::Settling,
        Self::Waiting,
        Self::Ready,
    ];

    pub(crate) fn of(job: &Job) -> Self {
        if job.is_over() {
            return Self::Over;
        }
        if job.wanted == Wanted::Cancel {
            return Self::Cancelling;
        }
        if let [first, rest @ ..] = &job.open[..] {
            return match &first.state {
                _ if !rest.is_empty() => Self::TwoOpen,
                AttemptState::Live { missing, .. } if *missing != Missing::No => Self::Missing,
                _ if first.stop.is_some() => Self::StopAsked,
                AttemptState::Unknown { .. } => Self::Unknown,
                AttemptState::Intended => Self::Intended,
                AttemptState::Live { .. } => Self::Live,
            };
        }
        if job.block.is_some() {
            return Self::Blocked;
        }
        if job.wanted == Wanted::Hold {
            return Self::Paused;
        }
        match job.recovery {
            Recovery::Look { .. } => Self::Looking,
            Recovery::Settling { .. } => Self::Settling,
            Recovery::Waiting { .. }
            | Recovery::Repairing { .. }
            | Recovery::NotRepaired { .. } => Self::Waiting,
            Recovery::Ready { .. } => Self::Ready,
        }
    }
}

/// What happens to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Started,
    Tick,
    Spec,
    File,
    Cancel,
    Pause,
    Resume,
    Retry,
    Accepted,
    Refused,
    NotSent,
    NoAnswer,
    Seen,
    OddWord,
    SeenEnd,
    Copy,
    Gone,
    Pass,
    Gap,
    Looked,
    Blind,
    Logs,
    Watched,
    Pods,
    Adopt,
}

impl Kind {
    pub(crate) const ALL: [Self; 25] = [
        Self::Started,
        Self::Tick,
        Self::Spec,
        Self::File,
        Self::Cancel,
        Self::Pause,
        Self::Resume,
        Self::Retry,
        Self::Accepted,
        Self::Refused,
        Self::NotSent,
        Self::NoAnswer,
        Self::Seen,
        Self::OddWord,
        Self::SeenEnd,
        Self::Copy,
        Self::Gone,
        Self::Pass,
        Self::Gap,
        Self::Looked,
        Self::Blind,
        Self::Logs,
        Self::Watched,
        Self::Pods,
        Self::Adopt,
    ];

    /// `None` for what is not simulated.
    fn of(input: &Input) -> Option<Self> {
        Some(match input {
            Input::Started => Self::Started,
            Input::Tick => Self::Tick,
            Input::Spec(_) => Self::Spec,
            Input::File(_) => Self::File,
            Input::Operator(Act::Cancel) => Self::Cancel,
            Input::Operator(Act::Pause) => Self::Pause,
            Input::Operator(Act::Resume) => Self::Resume,
            Input::Operator(Act::Retry | Act::RetryFrom(_)) => Self::Retry,
            Input::Sent { outcome, .. } => match outcome {
                SendOutcome::Accepted { .. } => Self::Accepted,
                SendOutcome::Refused { .. } => Self::Refused,
                SendOutcome::NotSent { .. } => Self::NotSent,
                SendOutcome::Unknown { .. } => Self::NoAnswer,
            },
            Input::Seen { cloud, .. } if matches!(cloud.status, Status::Other(_)) => Self::OddWord,
            Input::Seen { cloud, .. } if cloud.display_name.ends_with("_copy") => Self::Copy,
            Input::Seen { cloud, .. } if cloud.status.is_end() => Self::SeenEnd,
            Input::Seen { .. } => Self::Seen,
            Input::Missing { .. } => Self::Gone,
            Input::Swept(pass) if pass.complete => Self::Pass,
            Input::Swept(_) => Self::Gap,
            Input::Looked(Look::Done(_)) => Self::Looked,
            Input::Looked(Look::CouldNotLook { .. }) => Self::Blind,
            Input::Logs { .. } => Self::Logs,
            Input::Watched { .. } => Self::Watched,
            Input::PodsLooked { .. } => Self::Pods,
            Input::Adopt { .. } => Self::Adopt,
            Input::TrackerWritten(_) | Input::NotAdopted { .. } => return None,
        })
    }
}

/// Whether an input is to meet a job in a situation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// Often enough, in a long run.
    Expected,
    /// It can be, and needs two chances within seconds: counted, and not asked for.
    Seldom(&'static str),
    /// It cannot be, and nothing of the kind may be seen.
    Never(&'static str),
}

impl Meeting {
    pub(crate) fn of(situation: Situation, kind: Kind) -> Self {
        use Situation as S;
        let open = !matches!(
            situation,
            S::Over | S::Blocked | S::Paused | S::Looking | S::Settling | S::Waiting | S::Ready
        );
        match kind {
            Kind::Started | Kind::Spec | Kind::File | Kind::Adopt | Kind::Tick => Self::Expected,
            Kind::Cancel | Kind::Pause | Kind::Resume | Kind::Retry => Self::Expected,
            Kind::SeenEnd | Kind::Copy => Self::Expected,
            Kind::OddWord | Kind::Seen => match situation {
                S::Settling => Self::Seldom("what settles does so for a minute"),
                _ => Self::Expected,
            },
            Kind::Logs => match situation {
                S::TwoOpen => Self::Seldom(TWO),
                S::StopAsked => Self::Seldom("logs come right after an end, and the next one runs"),
                _ => Self::Expected,
            },
            Kind::Watched | Kind::Pods => match situation {
                S::TwoOpen => Self::Seldom(TWO),
                S::Blocked | S::Cancelling => Self::Seldom(
                    "a look at what runs is out for seconds, and before this comes a second one",
                ),
                _ => Self::Expected,
            },
            Kind::Accepted => Self::Expected,
            Kind::NoAnswer => match situation {
                S::TwoOpen => Self::Seldom(TWO),
                S::StopAsked | S::Unknown | S::Settling | S::Blocked | S::Paused => Self::Seldom(
                    "what had no answer was found, and ended or was stopped, within some minutes",
                ),
                _ => Self::Expected,
            },
            Kind::Refused | Kind::NotSent => match situation {
                S::Unknown => Self::Never(UNKNOWN),
                S::Live | S::Missing | S::StopAsked => Self::Never("what was not made is not seen"),
                S::TwoOpen => Self::Seldom(TWO),
                _ if !open => Self::Never("what was not made is open until its answer says so"),
                _ => Self::Expected,
            },
            Kind::Gone => match situation {
                S::Unknown | S::Intended => Self::Never("only what has an id can be missed"),
                S::Looking => Self::Seldom("it ended within the pass that missed it"),
                _ if !open => Self::Never("only an open attempt can be missed"),
                _ => Self::Expected,
            },
            Kind::Pass | Kind::Gap => match situation {
                S::Settling => Self::Never(
                    "a pass is for attempts that are open as it is taken, and after an end a look \
                     is asked for and answered before anything settles",
                ),
                S::Intended | S::Blocked | S::Paused | S::Waiting if kind == Kind::Pass => {
                    Self::Expected
                }
                S::Intended | S::Ready | S::Blocked | S::Paused | S::Waiting => Self::Seldom(
                    "an unknown attempt is seen ended in the same pass, and of a job without \
                     checkpoints: nothing else decides more within a pass",
                ),
                _ => Self::Expected,
            },
            Kind::Looked | Kind::Blind => match situation {
                S::Unknown => {
                    Self::Never("nothing is sent while a look is out, and a start voids it")
                }
                S::Intended => Self::Seldom("one in three million inputs, since jobs are adopted"),
                S::Waiting | S::Ready => {
                    Self::Seldom("both come of a look's answer, and a second answer is rare")
                }
                S::Missing if kind == Kind::Looked => Self::Expected,
                S::Cancelling | S::TwoOpen | S::Missing | S::StopAsked => Self::Seldom(
                    "a look beside an open attempt comes after a restart in place, and is out for \
                     seconds",
                ),
                S::Blocked if kind == Kind::Blind => {
                    Self::Seldom("one look in twelve cannot be made, and few come while it is held")
                }
                _ => Self::Expected,
            },
        }
    }
}

const TWO: &str = "two at one time are an accident already, and last for two sweeps";
const UNKNOWN: &str =
    "an attempt becomes unknown by its answer, or with a start, which cuts off answers";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Table {
    hits: [[u64; Kind::ALL.len()]; Situation::ALL.len()],
}

impl Table {
    pub(crate) fn note(&mut self, job: &Job, input: &Input) {
        if let Some(kind) = Kind::of(input) {
            self.hits[Situation::of(job) as usize][kind as usize] += 1;
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (row, more) in self.hits.iter_mut().zip(&other.hits) {
            for (cell, more) in row.iter_mut().zip(more) {
                *cell += more;
            }
        }
    }

    /// Meetings that cannot be and were; and, in a long run, such as are too seldom.
    pub(crate) fn wrong(&self, is_long: bool) -> Vec<String> {
        let mut wrong = Vec::new();
        for situation in Situation::ALL {
            for kind in Kind::ALL {
                let hits = self.hits[situation as usize][kind as usize];
                match Meeting::of(situation, kind) {
                    Meeting::Expected if is_long && hits < HITS => {
                        wrong.push(format!("{kind:?} met {situation:?} {hits} times"));
                    }
                    Meeting::Never(why) if hits > 0 => {
                        wrong.push(format!("{kind:?} met {situation:?} {hits} times, and {why}"));
                    }
                    Meeting::Expected | Meeting::Seldom(_) | Meeting::Never(_) => {}
                }
            }
        }
        wrong
    }

    /// `-` stands for what cannot be; in brackets stands what is not asked for.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{:>10}", "");
        for situation in Situation::ALL {
            let _ = write!(text, " {:>10}", format!("{situation:?}"));
        }
        for kind in Kind::ALL {
            let _ = write!(text, "\n{:>10}", format!("{kind:?}"));
            for situation in Situation::ALL {
                let hits = self.hits[situation as usize][kind as usize];
                let cell = match Meeting::of(situation, kind) {
                    Meeting::Never(_) if hits == 0 => "-".to_owned(),
                    Meeting::Seldom(_) => format!("({hits})"),
                    Meeting::Expected | Meeting::Never(_) => hits.to_string(),
                };
                let _ = write!(text, " {cell:>10}");
            }
        }
        text
    }
}
