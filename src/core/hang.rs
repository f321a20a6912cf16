//! An attempt that runs and does nothing any more: what speaks for it, and what `[hang]` does then.
//!
//! Three signs: no new line in the logs that are read, pods that are lost while the others are
//! silent, and no new whole checkpoint for several usual intervals. A new checkpoint also ends a
//! silence of the logs: a trainer that saves works, however little it says. A log that never had a line
//! is as silent as one that has no new one.
//!
//! What always holds: a sign counts from the first look of this process that showed it to the last
//! one, by the boot clock, in the present run of this very attempt. A look that failed, a log that
//! cannot be read and one that is gone say nothing. Each act rests on a look made after the act
//! before it, and none comes twice before something moved. Before a stop the bucket is looked into:
//! while a checkpoint is being written, or where that cannot be seen, the stop waits. It is asked for
//! again only behind a later look that shows the hang, and taken back where nothing shows it any more
//! ([`super::stops`]).
//!
//! What it must not do: end or submit anything. The stopped attempt ends as any other does, and
//! [`super::progress`] counts such ends: they are a crash loop, too.

mod signs;

pub use signs::{Evidence, Hang, Sign, TAILS_LIMIT, evidence, next_in_words, warning};

use super::event::Word;
use super::job::{Attempt, AttemptState, Job, Missing, StopWhy, Wanted, kept};
use super::recheck::resubmission_is_held;
use super::step::{Draft, Effect};
use super::stops;
use super::watch::{NextLook, Watch};
use crate::model::checkpoint::{Findings, Look};
use crate::model::cloud::Status;
use crate::model::hang::{HangAct, PodsLook};
use crate::model::ids::AttemptNo;
use crate::model::spec::JobSpec;
use crate::model::time::BootTime;
use signs::Confirm;
use std::time::Duration;

/// Time between two looks at the pods of one attempt, at least: ten calls of its are then the most.
pub const LOOK_SHORTEST: Duration = Duration::from_secs(1);
/// And at most.
pub const LOOK_LONGEST: Duration = Duration::from_secs(5 * 60);
/// Looks in the time of silence that is allowed.
const LOOKS_A_SILENCE: u32 = 6;

/// Asks for the look at the pods of the attempt that runs, if one is due.
pub(super) fn ask_if_due(draft: &mut Draft<'_>) {
    follow_runs(draft);
    let (now, is_followed) = (draft.given.now.boot, is_followed(draft));
    let policy = draft.given.spec.hang.as_ref();
    for attempt in &mut draft.next.open {
        let AttemptState::Live { id, hang, .. } = &mut attempt.state else { continue };
        let Some(policy) = policy else { continue };
        if !is_followed {
            // An answer that comes late is about another time.
            hang.confirm = Confirm::No;
        }
        hang.next = match (hang.next, policy.log_silence) {
            (_, None) => NextLook::NotDue,
            _ if !is_followed => NextLook::NotDue,
            (NextLook::NotDue, Some(limit)) => NextLook::Due { at: now.plus(pause(limit)) },
            (NextLook::Due { at }, Some(_)) if at <= now => {
                draft.effects.push(Effect::LookAtPods { no: attempt.no, id: id.clone() });
                NextLook::Asked
            }
            (next @ (NextLook::Due { .. } | NextLook::Asked), Some(_)) => next,
        };
    }
}

/// Forgets what the present run did not show, and takes back a stop that nothing speaks for any more.
fn follow_runs(draft: &mut Draft<'_>) {
    let (policy, now) = (draft.given.spec.hang.as_ref(), draft.given.now.wall);
    let mut taken_back = Vec::new();
    for attempt in &mut draft.next.open {
        let AttemptState::Live { status, restarts, hang, .. } = &mut attempt.state else {
            continue;
        };
        match policy {
            Some(_) => hang.follow(*restarts),
            None => *hang = Hang::default(),
        }
        let has_begun = *status == Status::Stopping || status.holds_machine();
        if attempt.stop == Some(StopWhy::Hang) && !hang.is_told() && !has_begun {
            attempt.take_stop_back(now);
            taken_back.push(attempt.no);
        }
    }
    for no in taken_back {
        let text = "the stop is taken back: nothing shows a hang any more";
        draft.say(Some(no), Word::Phase, text);
    }
}

/// Whether a look made after `asked` still shows what the stop of a hang rests on.
pub(super) fn shows_after(attempt: &Attempt, spec: &JobSpec, asked: BootTime) -> bool {
    let AttemptState::Live { status: Status::Running, odd: None, hang, .. } = &attempt.state else {
        return false;
    };
    let (Some(episode), Some(policy)) = (hang.episode, &spec.hang) else { return false };
    let found = evidence(attempt, policy);
    found.iter().any(|one| one.sign == episode.sign && one.until > asked)
}

/// When the next look at pods is due.
pub(super) fn due_at(job: &Job) -> Option<BootTime> {
    let due = job.open.iter().filter_map(|attempt| match &attempt.state {
        AttemptState::Live { hang: Hang { next: NextLook::Due { at }, .. }, .. } => Some(*at),
        AttemptState::Live { .. } | AttemptState::Intended | AttemptState::Unknown { .. } => None,
    });
    due.min()
}

fn pause(silence: Duration) -> Duration {
    (silence / LOOKS_A_SILENCE).clamp(LOOK_SHORTEST, LOOK_LONGEST)
}

/// Whether the one open attempt runs, and nothing else is decided about it.
fn is_followed(draft: &Draft<'_>) -> bool {
    let [attempt] = &draft.next.open[..] else { return false };
    let AttemptState::Live { status: Status::Running, odd: None, missing: Missing::No, .. } =
        &attempt.state
    else {
        return false;
    };
    let gate = &draft.given.gate;
    // While it is to stop for a hang, it may show life again.
    let may_hang = matches!(attempt.stop, None | Some(StopWhy::Hang));
    may_hang && draft.next.result.is_none() && gate.verified && !gate.stopping
}

fn parts_of<'d>(draft: &'d mut Draft<'_>, no: AttemptNo) -> Option<(&'d mut Hang, &'d mut Watch)> {
    let attempt = draft.next.open.iter_mut().find(|attempt| attempt.no == no)?;
    match &mut attempt.state {
        AttemptState::Live { hang, watch, .. } => Some((hang, watch)),
        AttemptState::Intended | AttemptState::Unknown { .. } => None,
    }
}

/// Takes what was seen of the pods of running attempt `no`.
pub(super) fn on_pods_looked(draft: &mut Draft<'_>, no: AttemptNo, look: &PodsLook) {
    let (now, is_followed) = (draft.given.now.boot, is_followed(draft));
    let Some((hang, _)) = parts_of(draft, no) else { return };
    if hang.next != NextLook::Asked {
        return;
    }
    hang.next = NextLook::NotDue;
    if !is_followed {
        return;
    }
    let had_fault = !hang.fault.is_empty();
    let moved = match look {
        PodsLook::NotRunning => return,
        PodsLook::CouldNotLook { why } => {
            hang.fault = kept(why);
            false
        }
        PodsLook::Done(seen) => {
            hang.note_lost(seen, now);
            hang.note_logs(seen, now)
        }
    };
    let fault = hang.fault.clone();
    if !fault.is_empty() && !had_fault {
        draft.say(Some(no), Word::Held, format!("its logs do not say whether it hangs: {fault}"));
    }
    if moved {
        end_episode(draft, no, &[Sign::LogSilence, Sign::PodsLost], "there are new log lines");
    }
    if matches!(look, PodsLook::Done(_)) {
        act(draft, no);
    }
}

/// Takes a look into the bucket after [`super::watch`] took it. `taken` says whether it did.
pub(super) fn on_watched(draft: &mut Draft<'_>, no: AttemptNo, look: &Look, taken: bool) {
    let (now, is_followed) = (draft.given.now.boot, is_followed(draft));
    let has_policy = draft.given.spec.hang.is_some();
    let Some((hang, watch)) = parts_of(draft, no) else { return };
    let mut confirm = std::mem::take(&mut hang.confirm);
    if !is_followed || !has_policy {
        return;
    }
    if confirm == Confirm::UnderWay {
        // It was asked for before there was a sign.
        hang.confirm = Confirm::Asked;
        confirm = Confirm::No;
        if watch.ask_now() {
            draft.effects.push(Effect::Watch(no));
        }
    }
    let Some((hang, watch)) = parts_of(draft, no) else { return };
    let saved = watch.saved().filter(|_| taken && watch.is_clear());
    if saved.is_some_and(|at| hang.note_saved(at, now)) {
        let all = [Sign::LogSilence, Sign::PodsLost, Sign::NoCheckpoint];
        end_episode(draft, no, &all, "there is a new whole checkpoint");
    }
    match (confirm, look) {
        (Confirm::No | Confirm::UnderWay, Look::CouldNotLook { .. }) => {}
        (Confirm::No | Confirm::UnderWay, Look::Done(_)) => act(draft, no),
        (Confirm::Asked, Look::CouldNotLook { why, .. }) => cannot_see(draft, no, why),
        (Confirm::Asked, Look::Done(findings)) if !findings.ambiguous.is_empty() => {
            cannot_see(draft, no, "checkpoints of several runs lie under its prefix");
        }
        (Confirm::Asked, Look::Done(findings)) => stop_unless_writing(draft, no, findings),
    }
}

fn cannot_see(draft: &mut Draft<'_>, no: AttemptNo, why: &str) {
    let what = "nobody can see whether a checkpoint is being written";
    draft.say(Some(no), Word::Held, format!("the stop of a hang waits: {what}: {}", kept(why)));
}

/// The first sign that is enough and was seen after the last act.
fn enough(draft: &Draft<'_>, no: AttemptNo) -> Option<Evidence> {
    let attempt = draft.next.open.iter().find(|attempt| attempt.no == no)?;
    let acted = attempt.hang()?.episode.map(|episode| episode.acted);
    let found = evidence(attempt, draft.given.spec.hang.as_ref()?).into_iter();
    found.filter(|one| one.is_enough).find(|one| acted.is_none_or(|acted| one.until > acted))
}

/// Does what is next about a hang, if there is one.
fn act(draft: &mut Draft<'_>, no: AttemptNo) {
    let (Some(policy), Some(found)) = (&draft.given.spec.hang, enough(draft, no)) else { return };
    let now = draft.given.now.boot;
    if draft.next.open.iter().any(|attempt| attempt.stop.is_some()) {
        return;
    }
    let Some((hang, _)) = parts_of(draft, no) else { return };
    let Some(next) = policy.then.get(hang.acts_done()) else { return };
    match next {
        HangAct::Notify => {
            hang.note_act(&found, now);
            let next = policy.then.get(hang.acts_done());
            let next = next.map_or_else(String::new, |next| format!("; next: {}", next.word()));
            let text = format!("it may hang: {}{next}", hang.told());
            // That nothing is saved any more is told where it is seen, whatever `[hang]` says.
            if found.sign != Sign::NoCheckpoint {
                draft.say_with(Some(no), Word::Alarm, text, data(&found));
            }
        }
        HangAct::Restart => {
            if hang.confirm != Confirm::No || is_held(draft) {
                return;
            }
            if draft.given.spec.checkpoint.is_none() {
                return stop(draft, no, &found);
            }
            let Some((hang, watch)) = parts_of(draft, no) else { return };
            hang.confirm = if watch.ask_now() { Confirm::Asked } else { Confirm::UnderWay };
            if hang.confirm == Confirm::Asked {
                draft.effects.push(Effect::Watch(no));
            }
        }
    }
}

/// Whether a stop would gain nothing now: a person wants what runs to go on, or nothing would follow.
fn is_held(draft: &Draft<'_>) -> bool {
    let job = &draft.next;
    let [attempt] = &job.open[..] else { return true };
    attempt.stop.is_some()
        || job.wanted != Wanted::Run
        || job.block.is_some()
        || resubmission_is_held(draft, &attempt.start)
}

/// The bucket was looked into for a stop.
fn stop_unless_writing(draft: &mut Draft<'_>, no: AttemptNo, findings: &Findings) {
    let (Some(found), Some(checkpoint)) = (enough(draft, no), &draft.given.spec.checkpoint) else {
        return;
    };
    if is_held(draft) {
        return;
    }
    match &findings.unfinished {
        Some(unfinished) if unfinished.youngest_age < checkpoint.settle => {
            let name =
                unfinished.step.map_or(kept(&unfinished.path), |step| format!("step {step}"));
            let text = format!("the stop of a hang waits: {name} is being written");
            draft.say(Some(no), Word::Held, text);
        }
        Some(_) | None => stop(draft, no, &found),
    }
}

fn stop(draft: &mut Draft<'_>, no: AttemptNo, found: &Evidence) {
    let acted = draft.given.now.boot;
    let Some(attempt) = draft.next.open.iter_mut().find(|attempt| attempt.no == no) else { return };
    attempt.stop = Some(StopWhy::Hang);
    let AttemptState::Live { hang, .. } = &mut attempt.state else { return };
    hang.note_act(found, acted);
    let text =
        format!("stop: it hangs: {}; once it is seen ended it is submitted again", hang.told());
    draft.say_with(Some(no), Word::StopAsked, text, data(found));
    stops::ask(draft);
}

/// The same for scripts.
fn data(found: &Evidence) -> serde_json::Value {
    serde_json::json!({
        "why": "hang", "sign": found.sign,
        "seen_s": found.seen.as_secs(), "limit_s": found.limit.as_secs(),
    })
}

/// Something moved: what rested on these signs is over, and the next hang is another one.
fn end_episode(draft: &mut Draft<'_>, no: AttemptNo, signs: &[Sign], why: &str) {
    let Some((hang, _)) = parts_of(draft, no) else { return };
    if hang.episode.take_if(|episode| signs.contains(&episode.sign)).is_some() {
        draft.say(Some(no), Word::Phase, format!("it does not hang: {why}"));
    }
}
