//! What is kept of the signs that an attempt hangs: how long each was seen, and what was done.
//!
//! What always holds: all of it is of the present run of one attempt, bounded, and by the boot clock of
//! this process. What it must not do: act.

use crate::core::job::{Attempt, AttemptState, kept};
use crate::core::watch::NextLook;
use crate::model::hang::{HangAct, HangPolicy, PodsSeen};
use crate::model::time::{BootTime, WallTime, human};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Looks that have to show the same.
const LOOKS_ENOUGH: u32 = 2;
/// Silence beside lost pods that is enough, where `log_silence` is longer.
const LOST_PODS_AFTER: Duration = Duration::from_secs(10 * 60);
/// Lost pods that are named.
const NAMED_LIMIT: usize = 2;
/// Bytes of the name of one.
const NAME_LIMIT_BYTES: usize = 64;
/// Ends of logs that a record keeps; no look asks for more logs than this.
pub const TAILS_LIMIT: usize = 8;

/// What speaks for a hang of an attempt, and what was done about it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Hang {
    pub(super) next: NextLook,
    /// The run that all of it is of: restarts in place before it.
    run: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    logs: Option<Logs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<Lost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    saved: Option<Saved>,
    /// Why the last look at the logs says nothing; empty if it does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) fault: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) episode: Option<Episode>,
    pub(super) confirm: Confirm,
}

/// How long something was seen unchanged, by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Standing {
    /// The first look that showed it.
    since: BootTime,
    /// The last one.
    until: BootTime,
    /// How many there were.
    looks: u32,
}

impl Standing {
    fn new(now: BootTime) -> Self {
        Self { since: now, until: now, looks: 1 }
    }

    fn again(&mut self, now: BootTime) {
        self.until = now;
        self.looks = self.looks.saturating_add(1);
    }

    fn time(self) -> Duration {
        self.until.since(self.since)
    }
}

/// The ends of the logs that are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Logs {
    /// One number for each log that has a line.
    tails: Vec<u64>,
    /// Pods whose logs were asked for.
    asked: u32,
    /// Pods in all.
    all: u32,
    standing: Standing,
}

/// Pods that are lost while the job runs on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Lost {
    count: u32,
    all: u32,
    /// Some of them.
    names: Vec<String>,
    standing: Standing,
}

/// The newest whole checkpoint of the present run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Saved {
    /// When it was written.
    at: WallTime,
    standing: Standing,
}

/// What speaks for a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// Some pods are lost, and the others are silent.
    PodsLost,
    /// No new line in the logs that are read.
    LogSilence,
    /// No new whole checkpoint.
    NoCheckpoint,
}

impl Sign {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::PodsLost => "pods_lost",
            Self::LogSilence => "log_silence",
            Self::NoCheckpoint => "no_checkpoint",
        }
    }
}

/// A hang about which something was done, until something moves again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Episode {
    /// What it rests on.
    pub(super) sign: Sign,
    /// How long that may last.
    limit: Duration,
    /// How many of the acts were done.
    done: u32,
    /// When the last of them was.
    pub(super) acted: BootTime,
}

/// The look into the bucket before a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) enum Confirm {
    /// None is awaited.
    #[default]
    No,
    /// This process has asked for it.
    Asked,
    /// One that was asked for before the sign is under way: another one follows it.
    UnderWay,
}

/// How far a sign is from its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Which.
    pub sign: Sign,
    /// How long it was seen.
    pub seen: Duration,
    /// How long it may last.
    pub limit: Duration,
    /// Whether it is enough to act on.
    pub is_enough: bool,
    /// The last look that showed it.
    pub(super) until: BootTime,
}

impl Hang {
    pub(in crate::core) fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    /// A new process: it has looked at nothing, and the answers to what an earlier one asked for never
    /// come. What was done stays done.
    pub(in crate::core) fn forget_clock(&mut self, boot: BootTime) {
        self.next = NextLook::NotDue;
        self.confirm = Confirm::No;
        let anew = Standing { since: boot, until: boot, looks: 0 };
        let logs = self.logs.as_mut().map(|logs| &mut logs.standing);
        let lost = self.lost.as_mut().map(|lost| &mut lost.standing);
        let saved = self.saved.as_mut().map(|saved| &mut saved.standing);
        logs.into_iter().chain(lost).chain(saved).for_each(|standing| *standing = anew);
        if let Some(episode) = &mut self.episode {
            episode.acted = boot;
        }
    }

    /// A restart in place begins another run, of which nothing was seen.
    pub(super) fn follow(&mut self, restarts: u32) {
        if self.run != restarts {
            *self = Self { run: restarts, ..Self::default() };
        }
    }

    /// Whether something was done about a hang, and nothing has moved since.
    pub fn is_told(&self) -> bool {
        self.episode.is_some()
    }

    /// How many of the acts were done about the present hang.
    pub fn acts_done(&self) -> usize {
        self.episode.map_or(0, |episode| usize::try_from(episode.done).unwrap_or(usize::MAX))
    }

    /// An act is done.
    pub(super) fn note_act(&mut self, found: &Evidence, acted: BootTime) {
        let done = self.episode.map_or(1, |episode| episode.done.saturating_add(1));
        self.episode = Some(Episode { sign: found.sign, limit: found.limit, done, acted });
    }

    /// What the present hang rests on, in words.
    pub(super) fn told(&self) -> String {
        let Some(Episode { sign, limit, .. }) = self.episode else { return String::new() };
        format!("{}; the limit is {}", self.words(sign), human(limit))
    }

    /// Why the last look at the logs says nothing; empty if it does, or none was made.
    pub fn fault(&self) -> &str {
        &self.fault
    }

    /// Takes the logs of a look. Answers whether anything moved in them.
    pub(super) fn note_logs(&mut self, seen: &PodsSeen, now: BootTime) -> bool {
        let mut tails = seen.tails.clone();
        tails.sort_unstable();
        tails.dedup();
        tails.truncate(TAILS_LIMIT);
        let before = self.logs.as_mut();
        let is_new =
            before.as_ref().is_some_and(|logs| tails.iter().any(|t| !logs.tails.contains(t)));
        self.fault = kept(seen.unread.as_deref().unwrap_or_default());
        match before {
            // A log that is gone, or cut shorter, is not one that is silent.
            Some(logs) if !is_new && tails.len() < logs.tails.len() && self.fault.is_empty() => {
                "lines that were there are gone".clone_into(&mut self.fault);
            }
            Some(_) | None if !is_new && !self.fault.is_empty() => {}
            Some(logs) if !is_new => logs.standing.again(now),
            Some(_) | None => {
                let standing = Standing::new(now);
                self.logs = Some(Logs { tails, asked: seen.asked, all: seen.all, standing });
            }
        }
        is_new
    }

    pub(super) fn note_lost(&mut self, seen: &PodsSeen, now: BootTime) {
        let short = |name: &String| name[..name.floor_char_boundary(NAME_LIMIT_BYTES)].to_owned();
        let names: Vec<String> = seen.lost.iter().take(NAMED_LIMIT).map(short).collect();
        let count = u32::try_from(seen.lost.len()).unwrap_or(u32::MAX);
        match &mut self.lost {
            _ if count == 0 => self.lost = None,
            Some(lost) if lost.count == count && lost.names == names => lost.standing.again(now),
            Some(_) | None => {
                let standing = Standing::new(now);
                self.lost = Some(Lost { count, all: seen.all, names, standing });
            }
        }
    }

    /// Takes the newest checkpoint of the run after a look that shows whether it saves. Answers
    /// whether it is another one than before.
    pub(super) fn note_saved(&mut self, at: WallTime, now: BootTime) -> bool {
        match &mut self.saved {
            Some(saved) if saved.at == at => {
                saved.standing.again(now);
                return false;
            }
            Some(_) | None => {}
        }
        self.saved = Some(Saved { at, standing: Standing::new(now) });
        if let Some(logs) = &mut self.logs {
            logs.standing = Standing::new(now);
        }
        true
    }

    /// A sign in words.
    fn words(&self, sign: Sign) -> String {
        let silent = self.logs.as_ref().map_or_else(String::new, |logs| {
            let Logs { tails, asked, all, standing } = logs;
            let what = if tails.is_empty() { "no log line at all" } else { "no new log line" };
            let which = match (asked, all) {
                (1, 1) => String::new(),
                (asked, all) => format!(" ({asked} of {all} pods asked)"),
            };
            format!("{what} for {}{which}", human(standing.time()))
        });
        match (sign, &self.lost, self.saved) {
            (Sign::PodsLost, Some(Lost { count, all, names, .. }), _) => {
                let names = names.join(", ");
                format!("{count} of {all} pods failed or are gone ({names}), {silent}")
            }
            (Sign::NoCheckpoint, _, Some(saved)) => {
                format!("no new whole checkpoint was seen for {}", human(saved.standing.time()))
            }
            (Sign::LogSilence | Sign::PodsLost | Sign::NoCheckpoint, _, _) => silent,
        }
    }
}

/// What speaks for a hang of an attempt and how far it is from its limit, the strongest sign first.
pub fn evidence(attempt: &Attempt, policy: &HangPolicy) -> Vec<Evidence> {
    let AttemptState::Live { hang, watch, .. } = &attempt.state else { return Vec::new() };
    let mut found = Vec::new();
    let mut add = |sign, limit, seen: Standing, is_so: bool| {
        let is_enough = is_so && seen.looks >= LOOKS_ENOUGH && seen.time() >= limit;
        found.push(Evidence { sign, seen: seen.time(), limit, is_enough, until: seen.until });
    };
    if let (Some(limit), Some(logs)) = (policy.log_silence, &hang.logs) {
        if let Some(lost) = &hang.lost {
            let limit = limit.min(LOST_PODS_AFTER);
            let shorter = [lost.standing, logs.standing].into_iter();
            let shorter = shorter.min_by_key(|s| (s.time(), s.until));
            add(Sign::PodsLost, limit, shorter.unwrap_or(lost.standing), true);
        }
        add(Sign::LogSilence, limit, logs.standing, true);
    }
    if let (Some(times), Some(saved)) = (policy.no_checkpoint, hang.saved)
        && let Some(limit) = watch.stall_limit(times)
    {
        add(Sign::NoCheckpoint, limit, saved.standing, watch.is_stalled());
    }
    found
}

/// Why an attempt is called hanging, in one line; `None` if it is not.
pub fn warning(attempt: &Attempt) -> Option<String> {
    attempt.hang().filter(|hang| hang.is_told()).map(Hang::told)
}

/// What comes next about a hang that was told, in words.
pub fn next_in_words(attempt: &Attempt, policy: Option<&HangPolicy>) -> Option<&'static str> {
    let hang = attempt.hang().filter(|hang| hang.is_told())?;
    Some(match policy?.then.get(hang.acts_done()) {
        Some(HangAct::Restart) => "stop it and submit again, once another look shows the hang",
        Some(HangAct::Notify) => "tell a person, once another look shows the hang",
        None => "a person was told; nothing by itself",
    })
}
