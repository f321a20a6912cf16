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
}

impl Kind {
    pub(crate) const ALL: [Self; 23] = [
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
            Input::Seen { cloud, .. } if cloud.display_name.ends_with("_copy") => Self::Copy,
            Input::Seen { cloud, .. } if matches!(cloud.status, Status::Other(_)) => Self::OddWord,
            Input::Seen { cloud, .. } if cloud.status.is_end() => Self::SeenEnd,
            Input::Seen { .. } => Self::Seen,
            Input::Missing { .. } => Self::Gone,
            Input::Swept(pass) if pass.complete => Self::Pass,
            Input::Swept(_) => Self::Gap,
            Input::Looked(Look::Done(_)) => Self::Looked,
            Input::Looked(Look::CouldNotLook { .. }) => Self::Blind,
            Input::Logs { .. } => Self::Logs,
            Input::Watched { .. } => Self::Watched,
            Input::TrackerWritten(_) => return None,
        })
    }
}

/// Why this input cannot meet a job in this situation, if it cannot.
pub(crate) fn unreachable(situation: Situation, kind: Kind) -> Option<&'static str> {
    use Situation as S;
    let open = !matches!(
        situation,
        S::Over | S::Blocked | S::Paused | S::Looking | S::Settling | S::Waiting | S::Ready
    );
    match kind {
        Kind::Started | Kind::Spec | Kind::File => None,
        Kind::Cancel | Kind::Pause | Kind::Resume | Kind::Retry => None,
        Kind::Seen | Kind::OddWord | Kind::SeenEnd | Kind::Copy => None,
        Kind::Tick | Kind::Logs | Kind::Watched => None,
        Kind::Accepted | Kind::NoAnswer => (situation == S::Unknown).then_some(
            "an attempt becomes unknown by its answer, or with a start, which cuts off answers",
        ),
        Kind::Refused | Kind::NotSent => match situation {
            S::Unknown => {
                Some("an attempt becomes unknown by its answer, or with a start, which cuts it off")
            }
            S::Live | S::Missing | S::StopAsked => Some("what was not made is never seen"),
            _ if !open => Some("what was not made is open until its answer says so"),
            _ => None,
        },
        Kind::Gone => match situation {
            S::Unknown | S::Intended => Some("only what has an id can be missed"),
            _ if !open => Some("only an open attempt can be missed"),
            _ => None,
        },
        Kind::Pass | Kind::Gap => (situation == S::Settling).then_some(
            "a pass is for attempts that are open as it is taken, and after an end a look is \
             asked for and answered before anything settles",
        ),
        Kind::Looked | Kind::Blind => match situation {
            S::Unknown | S::Intended => {
                Some("nothing is sent while a look is out, and a start voids it")
            }
            S::Waiting | S::Ready => Some("both come of a look's answer; a later look leaves them"),
            _ => None,
        },
    }
}

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
                match unreachable(situation, kind) {
                    None if is_long && hits < HITS => {
                        wrong.push(format!("{kind:?} met {situation:?} {hits} times"));
                    }
                    Some(why) if hits > 0 => {
                        wrong.push(format!("{kind:?} met {situation:?} {hits} times, and {why}"));
                    }
                    None | Some(_) => {}
                }
            }
        }
        wrong
    }

    /// `-` stands for what cannot be.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{:>10}", "");
        for situation in Situation::ALL {
            let _ = write!(text, " {:>10}", format!("{situation:?}"));
        }
        for kind in Kind::ALL {
            let _ = write!(text, "\n{:>10}", format!("{kind:?}"));
            for situation in Situation::ALL {
                let hits = self.hits[situation as usize][kind as usize];
                let cannot = hits == 0 && unreachable(situation, kind).is_some();
                let cell = if cannot { "-".to_owned() } else { hits.to_string() };
                let _ = write!(text, " {cell:>10}");
            }
        }
        text
    }
}
