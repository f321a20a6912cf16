//! What goes wrong in a life, and what people do, drawn from its seed.

use super::clock::{DAY, HOUR, MINUTE, Rng, SECOND};
use super::cloud::Weather;
use super::disk::Wrong;
use super::table::Situation;
use spotkeeper::core::step::Act;

/// How long the server takes a request at most after its date.
pub(crate) const ACCEPTED_FOR: u64 = 3 * MINUTE;
/// A calendar further off than this is refused by the gateway.
pub(crate) const SKEW_LIMIT: i64 = 60_000;

/// Something that comes at a time of its own.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// The process dies; with the state folder or without.
    Crash { wiped: bool },
    /// The machine sleeps.
    Suspend(u64),
    /// The calendar steps.
    ClockStep(i64),
    /// A person acts on a job.
    Act(usize, Act),
    /// The job file changes, goes, or comes back.
    Edit(usize, Edit),
    /// The daemon file is read again: acceptance and `max_parallel`.
    Targets { acceptance: u64, max_parallel: u32 },
    /// A person copies a job in the console.
    Copy,
    /// Another installation imports one of our jobs.
    Foreign,
    /// The cloud does not know a job any more: for so long, or because a person deleted it.
    Vanish(Option<u64>),
    /// A person stops a job in the console.
    StopByOther,
    /// A person starts a job by hand and has it adopted.
    Adopt(usize),
    /// No machine is to be had until then.
    MarketCloses(u64),
    /// A backup of the store.
    Backup,
}

/// What comes the first time that a job is in a situation: chance alone meets the short ones seldom.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Opportunity {
    pub(crate) situation: Situation,
    pub(crate) deed: Deed,
}

/// What is done to the job that is found there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Deed {
    Act(Act),
    Edit(Edit),
    Crash,
    StopByOther,
    Vanish,
    Adopt,
    /// What is on its way to it arrives at once: answers of the cloud, of the bucket, of logs.
    Hurry,
}

/// Situations that come seldom.
const SHORT: [Situation; 4] =
    [Situation::TwoOpen, Situation::TwoOpen, Situation::StopAsked, Situation::Settling];

/// Situations in which an answer comes that was asked for in another one.
const LATE: [Situation; 13] = [
    Situation::Over,
    Situation::Cancelling,
    Situation::Cancelling,
    Situation::TwoOpen,
    Situation::TwoOpen,
    Situation::Missing,
    Situation::StopAsked,
    Situation::StopAsked,
    Situation::Unknown,
    Situation::Blocked,
    Situation::Blocked,
    Situation::Settling,
    Situation::Settling,
];

/// What chance brings about too seldom: an answer that finds its job cancelled, one that ended
/// before any pass showed it.
const PAIRS: [(Situation, Deed); 4] = [
    (Situation::Intended, Deed::Act(Act::Cancel)),
    (Situation::Unknown, Deed::StopByOther),
    (Situation::Unknown, Deed::Act(Act::Pause)),
    (Situation::Live, Deed::Act(Act::Cancel)),
];

/// The opportunities that a life takes.
pub(crate) fn opportunities(rng: &mut Rng) -> Vec<Opportunity> {
    let deeds = [
        Deed::Act(Act::Cancel),
        Deed::Act(Act::Pause),
        Deed::Act(Act::Resume),
        Deed::Act(Act::Retry),
        Deed::Edit(Edit::Spec),
        Deed::Edit(Edit::Gone),
        Deed::Crash,
        Deed::StopByOther,
        Deed::Vanish,
        Deed::Adopt,
    ];
    let draw = |rng: &mut Rng| Opportunity {
        situation: if rng.chance(25) { rng.one_of(&SHORT) } else { rng.one_of(&Situation::ALL) },
        deed: rng.one_of(&deeds),
    };
    let mut drawn: Vec<Opportunity> = (0..3).map(|_| draw(rng)).collect();
    for _ in 0..4 {
        drawn.push(Opportunity { situation: rng.one_of(&LATE), deed: Deed::Hurry });
    }
    if rng.chance(40) {
        let (situation, deed) = rng.one_of(&PAIRS);
        drawn.push(Opportunity { situation, deed });
    }
    drawn
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    Spec,
    Gone,
    Back,
}

/// What happens on the way of one CreateJob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    NotSent,
    /// A 4xx code; whether it passes by itself.
    Refused {
        passing: bool,
    },
    /// Lost before the gateway, a time-out here.
    LostThere,
    /// Held on the way for as long as it can be accepted, or just longer; no answer.
    Held {
        late: bool,
    },
    /// Made, and the answer lost; then these very bytes are sent again by something on the way.
    NonceUsed,
    /// Held for nearly as long as it can be accepted, while the calendar here goes wrong for a part
    /// of the wait.
    HeldOverStep,
    /// Made, a 5xx here.
    BrokenAnswer {
        slow: bool,
        /// A person copies it before any list shows it.
        copied: bool,
    },
    /// Made, but no list shows it for days: and this machine is away meanwhile.
    LongAway,
    Good {
        twice: bool,
        slow: bool,
    },
}

/// The faults that a life meets.
pub(crate) fn drawn(rng: &mut Rng, jobs: usize, calm_from: u64) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    let loses_state = rng.chance(15);
    for _ in 0..rng.below(5) {
        let wiped = loses_state && rng.chance(40);
        faults.push((rng.below(calm_from), Fault::Crash { wiped }));
    }
    for _ in 0..rng.below(2) {
        faults.push((rng.below(calm_from), Fault::Suspend(MINUTE + rng.below(HOUR))));
    }
    for _ in 0..rng.below(3) {
        let by = [-2 * HOUR.cast_signed(), -45_000, 45_000, HOUR.cast_signed(), DAY.cast_signed()];
        faults.push((rng.below(calm_from), Fault::ClockStep(rng.one_of(&by))));
    }
    for job in 0..jobs {
        people(rng, &mut faults, job, calm_from);
    }
    for _ in 0..rng.below(3) {
        faults.push((rng.below(calm_from), Fault::Copy));
    }
    if rng.chance(20) {
        faults.push((rng.below(calm_from), Fault::Foreign));
    }
    for _ in 0..rng.below(3) {
        let back = 5 * MINUTE + rng.below(2 * HOUR);
        let back = (!rng.chance(30)).then_some(back);
        faults.push((rng.below(calm_from), Fault::Vanish(back)));
    }
    if rng.chance(12) {
        faults.push((rng.below(calm_from), Fault::StopByOther));
    }
    if rng.chance(20) {
        let at = rng.below(calm_from);
        faults.push((at, Fault::MarketCloses(at + rng.below(HOUR))));
    }
    if rng.chance(30) {
        let acceptance = rng.one_of(&[ACCEPTED_FOR, 2 * ACCEPTED_FOR]);
        let max_parallel = rng.one_of(&[1, 2, 3]);
        faults.push((rng.below(calm_from), Fault::Targets { acceptance, max_parallel }));
    }
    if rng.chance(30) {
        faults.push((rng.below(calm_from), Fault::Backup));
    }
    faults
}

fn people(rng: &mut Rng, faults: &mut Vec<(u64, Fault)>, job: usize, calm_from: u64) {
    if rng.chance(12) {
        faults.push((rng.below(calm_from * 2), Fault::Act(job, Act::Cancel)));
    }
    if rng.chance(15) {
        let at = rng.below(calm_from);
        faults.push((at, Fault::Act(job, Act::Pause)));
        faults.push((at + rng.below(20 * MINUTE), Fault::Act(job, Act::Resume)));
    }
    for _ in 0..rng.below(5) {
        let act = rng.one_of(&[Act::Retry, Act::Resume, Act::Pause, Act::Retry]);
        faults.push((rng.below(calm_from * 2), Fault::Act(job, act)));
    }
    for _ in 0..rng.below(5) {
        faults.push((rng.below(calm_from), Fault::Edit(job, Edit::Spec)));
    }
    if rng.chance(25) {
        let at = rng.below(calm_from);
        faults.push((at, Fault::Edit(job, Edit::Gone)));
        faults.push((at + rng.below(HOUR), Fault::Edit(job, Edit::Back)));
    }
}

/// How late an answer to CreateJob may be.
pub(crate) const ANSWER_LATE: u64 = 6 * MINUTE;

/// The fate of a CreateJob in a storm.
pub(crate) fn fate(rng: &mut Rng) -> Fate {
    match rng.below(100) {
        0..5 => Fate::NotSent,
        5..9 => Fate::Refused { passing: true },
        9..11 => Fate::Refused { passing: false },
        11..16 => Fate::LostThere,
        16..29 => Fate::Held { late: rng.chance(25) },
        29 => Fate::HeldOverStep,
        30..34 => Fate::NonceUsed,
        34..40 => Fate::BrokenAnswer { slow: rng.chance(60), copied: rng.chance(15) },
        40..42 => Fate::LongAway,
        _ => Fate::Good { twice: rng.chance(10), slow: rng.chance(15) },
    }
}

/// How a list comes in a storm; blind spells last for several passes.
pub(crate) fn weather(rng: &mut Rng, spell: &mut (u64, Weather), now: u64) -> Weather {
    if now < spell.0 {
        return spell.1;
    }
    let weather = match rng.below(100) {
        0..6 => Weather::NoAnswer,
        6..10 => Weather::EmptyPage,
        10..16 => Weather::Shifted,
        _ => return Weather::Fair,
    };
    if rng.chance(25) {
        *spell = (now + 2 * MINUTE + rng.below(4 * MINUTE), weather);
    }
    weather
}

/// Whether, and how, a commit goes wrong.
pub(crate) fn commit(rng: &mut Rng) -> Option<Wrong> {
    match rng.below(1000) {
        0..6 => Some(Wrong::PowerCut),
        6..8 => Some(Wrong::SyncFails),
        8..10 => Some(Wrong::Full),
        _ => None,
    }
}

/// How old what a decision rests on may be: an answer on its way, and the queue before a slow disk.
pub(crate) const STALE_LIMIT: u64 = 5 * MINUTE;

/// How much later an answer is that somebody waits for: see [`Deed::Hurry`].
pub(crate) fn lateness(rng: &mut Rng) -> u64 {
    if rng.chance(35) { MINUTE + rng.below(2 * MINUTE) } else { 0 }
}

/// The time that an answer takes which may take long: the bucket's, a log's.
pub(crate) fn long_travel(rng: &mut Rng, stormy: bool) -> u64 {
    let long = if stormy && rng.chance(20) { rng.below(3 * MINUTE) } else { 0 };
    travel(rng) + long
}

/// The longest way of a call or an answer that is not delayed.
pub(crate) const TRAVEL_LIMIT: u64 = 2 * SECOND + 20;

/// The time that an answer takes.
pub(crate) fn travel(rng: &mut Rng) -> u64 {
    20 + rng.below(TRAVEL_LIMIT - 20)
}
