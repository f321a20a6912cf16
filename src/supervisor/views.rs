//! Records turned into what people see: rows, attempts, events, and the reasons in words.

use crate::core::advice::{Advice, Mean, Source};
use crate::core::event::{Event, Word};
use crate::core::hang::{self, Hang};
use crate::core::job::{Attempt, AttemptState, EndedAttempt, Job, Start, StopWhy};
use crate::core::phase::Phase;
use crate::core::submit::Hold;
use crate::core::suspects::Suspect;
use crate::core::verdict::{Cause, Verdict};
use crate::core::waiting;
use crate::core::watch::{Watch, ran_so_far};
use crate::model::cloud::Status;
use crate::model::spec::JobSpec;
use crate::model::time::{WallTime, human};
use crate::model::view::{
    AdviceView, AttemptView, EventView, ProgressView, SuspectView, VerdictView, WaitingView,
};
use crate::store::records::StoredEvent;

/// The last CHECKPOINT event that tells a choice; of an attempt, the last one before the next attempt was decided.
pub(super) fn checkpoint_for(no: Option<u32>, events: &[StoredEvent]) -> Option<&StoredEvent> {
    let decided = |e: &StoredEvent| e.event.word == Word::Intent && e.event.attempt > no;
    let end = no.and_then(|_| events.iter().position(decided));
    let until = &events[..end.unwrap_or(events.len())];
    // What became suspect and what was done to a tracker is told by the same word, and is no choice;
    // the data of a choice may have been too large to be kept.
    let has = |e: &StoredEvent, key| e.event.data.get(key).is_some();
    let is_choice = |e: &&StoredEvent| has(e, "chosen") || has(e, "left_out");
    until.iter().rev().filter(is_choice).find(|e| e.event.word == Word::Checkpoint)
}

/// Why a job is in its phase, in one line; never empty but for RUNNING and SUCCEEDED.
pub(super) fn why_in_a_row(job: &Job, phase: Phase, holds: &[Hold], now: WallTime) -> String {
    if let Some(why) = job.open.last().and_then(|attempt| why_of_status(attempt, phase)) {
        return why;
    }
    match phase {
        Phase::Running | Phase::Stalled => {
            let attempt = job.open.last();
            let watch = attempt.and_then(Attempt::watch);
            let stalls = watch.and_then(|watch| watch.warning(now));
            let hangs = attempt.and_then(hang::warning);
            return hangs.or(stalls).unwrap_or_default();
        }
        Phase::Succeeded => return String::new(),
        Phase::Failed | Phase::Cancelled => {
            if let Some(result) = &job.result {
                return result.why.clone();
            }
        }
        Phase::Blocked => {
            if let Some(hold) = holds.iter().find(|hold| hold.needs_person()) {
                return hold.to_string();
            }
        }
        Phase::Waiting | Phase::Starting | Phase::Stopping | Phase::Submitting => {
            if let Some(attempt) = job.open.last() {
                return match &attempt.state {
                    AttemptState::Live { status, .. } => {
                        let wait = wait_in_words(attempt, now);
                        format!("attempt {} is {}{wait}", attempt.no, status.word())
                    }
                    AttemptState::Intended => format!("attempt {} is being sent", attempt.no),
                    AttemptState::Unknown { .. } => {
                        format!("attempt {} may exist: searching", attempt.no)
                    }
                };
            }
        }
        Phase::Pending | Phase::Recovering | Phase::Backoff | Phase::Paused | Phase::Lost => {}
    }
    holds.first().map_or_else(|| "about to be submitted".to_owned(), ToString::to_string)
}

/// How far a job is and how it saves. `ended` are its ended attempts, oldest first.
pub(super) fn progress_view(
    job: &Job,
    ended: &[EndedAttempt],
    spec: Option<&JobSpec>,
    now: WallTime,
) -> ProgressView {
    let running = job.open.last().filter(|attempt| is_running(attempt));
    let watch = running.and_then(Attempt::watch);
    let under_this_spec = |attempt: &&Attempt| attempt.spec == job.spec;
    let attempts = job.open.iter().rev().chain(ended.iter().rev().map(|end| &end.attempt));
    let rhythm = attempts
        .filter(under_this_spec)
        .find_map(|attempt| attempt.watch().and_then(Watch::rhythm));
    let note = match running {
        Some(attempt) if attempt.spec != job.spec => {
            format!("not looked at: the job file changed after attempt {} was sent", attempt.no)
        }
        Some(_) | None => watch.map(Watch::fault).unwrap_or_default(),
    };
    let deaf = running.and_then(Attempt::hang).map(Hang::fault).unwrap_or_default();
    let deaf = Some(deaf).filter(|fault| !fault.is_empty());
    let deaf = deaf.map(|fault| format!("its logs do not say whether it hangs: {fault}"));
    let notes = Some(note).filter(|note| !note.is_empty()).into_iter().chain(deaf);
    let note = notes.collect::<Vec<_>>().join("; ");
    let ran = job.progress.ran + running.map(|open| ran_so_far(open, now)).unwrap_or_default();
    let losses = job.tally.releases.saturating_add(job.tally.restarts);
    let is_spot = spec.is_some_and(JobSpec::asks_for_spot);
    let advice = rhythm.and_then(|rhythm| {
        let mean = Mean::of(losses, ran, is_spot)?;
        Advice::on(rhythm.every, rhythm.steps, rhythm.took?, mean)
    });
    ProgressView {
        looked_s: watch.and_then(Watch::looked).map(|at| now.since(at).as_secs()),
        note,
        steps_per_hour: watch.and_then(Watch::steps_per_hour),
        every_s: rhythm.map(|rhythm| rhythm.every.as_secs()),
        every_steps: rhythm.and_then(|rhythm| rhythm.steps),
        advice: advice.map(advice_view),
    }
}

fn is_running(attempt: &Attempt) -> bool {
    matches!(&attempt.state, AttemptState::Live { status: Status::Running, .. })
}

fn advice_view(advice: Advice) -> AdviceView {
    let (losses, loss_source) = match advice.mean.source {
        Source::Seen(losses) => (losses, "seen"),
        Source::Assumed(losses) => (losses, "assumed"),
    };
    AdviceView {
        text: advice.to_string(),
        best_s: advice.best.as_secs(),
        best_steps: advice.best_steps,
        cost_s: advice.cost.as_secs(),
        loss_every_s: advice.mean.time.as_secs(),
        losses,
        loss_source: loss_source.to_owned(),
        saves: (advice.saves * 1_000.0).round() / 1_000.0,
    }
}

/// How the one open attempt waits. `spec` is the one of the job's placement.
pub(super) fn waiting_view(
    job: &Job,
    spec: Option<&JobSpec>,
    now: WallTime,
) -> Option<WaitingView> {
    let spec = spec?;
    let outlook = waiting::outlook(job, spec)?;
    let attempt = job.open.last()?;
    let AttemptState::Live { wait, .. } = &attempt.state else { return None };
    Some(WaitingView {
        phase: outlook.phase.word().to_owned(),
        since: outlook.since.to_string(),
        waited_s: now.since(outlook.since).as_secs(),
        limit_s: outlook.limit.map(|limit| limit.as_secs()),
        bid: attempt.bid.map(|bid| bid.to_string()),
        placement: attempt.placement(),
        placements: spec.last_placement(),
        never: wait.never().map(str::to_owned),
        next: outlook.next_in_words(now),
        next_in_s: outlook.due_at().map(|at| at.since(now).as_secs()),
    })
}

/// For how long an attempt waits, and whether it can ever run, in words behind its status.
fn wait_in_words(attempt: &Attempt, now: WallTime) -> String {
    let AttemptState::Live { wait, .. } = &attempt.state else { return String::new() };
    if !waiting::is_waiting(attempt) {
        return String::new();
    }
    let time = wait
        .since()
        .map_or(String::new(), |(_, since)| format!(" for {}", human(now.since(since))));
    match wait.never() {
        Some(why) => format!("{time} and can never run: {why}"),
        None => time,
    }
}

/// What the vendor's word says that the phase does not.
fn why_of_status(attempt: &Attempt, phase: Phase) -> Option<String> {
    let (no, status) = (attempt.no, attempt.state.shown()?);
    let word = status.word();
    if attempt.stop == Some(StopWhy::Outdated) {
        let why = "it was restarted in place from an older checkpoint than the newest whole one";
        return Some(format!("attempt {no} is {word} and was asked to stop: {why}"));
    }
    if let (Some(StopWhy::Hang), Some(why)) = (attempt.stop, hang::warning(attempt)) {
        return Some(format!("attempt {no} is {word} and was asked to stop: it hangs: {why}"));
    }
    if matches!(attempt.stop, Some(StopWhy::Waited | StopWhy::GaveUp)) {
        let why = "it waited for longer than [waiting] says";
        return Some(format!("attempt {no} is {word} and was asked to stop: {why}"));
    }
    if matches!(status, Status::Other(_)) {
        let known = format!("attempt {no} shows `{word}`, a word spotkeeper does not know");
        return Some(format!("{known}: still active; the phase is the last that was known"));
    }
    if status.holds_machine() && phase != Phase::Stopping {
        let held = format!("attempt {no} is {word}: its result is decided, machine still held");
        return Some(format!("{held} and perhaps paid for; the final word is awaited"));
    }
    if status == Status::Restarting && phase != Phase::Stopping {
        return Some(format!("attempt {no} is Restarting: the platform restarts it in place"));
    }
    None
}

pub(super) fn open_view(attempt: &Attempt) -> AttemptView {
    let state = match &attempt.state {
        AttemptState::Intended => "intended",
        AttemptState::Unknown { .. } => "unknown",
        AttemptState::Live { .. } => "live",
    };
    let status = attempt.state.shown().map(|status| status.word().to_owned());
    AttemptView { state: state.to_owned(), status, ..attempt_view(attempt) }
}

pub(super) fn ended_view(ended: &EndedAttempt) -> AttemptView {
    let never = ended.verdict.cause == Cause::NeverCreated;
    AttemptView {
        id: ended.id.as_ref().map(ToString::to_string),
        state: if never { "never_created" } else { "ended" }.to_owned(),
        ended: Some(ended.ended.to_string()),
        ran_s: Some(ended.ran.as_secs()),
        verdict: Some(verdict_view(&ended.verdict)),
        ..attempt_view(&ended.attempt)
    }
}

/// What an attempt shows whether it is open or not.
fn attempt_view(attempt: &Attempt) -> AttemptView {
    let point = match &attempt.start {
        Start::Fresh => None,
        Start::From(point) => Some(point),
    };
    AttemptView {
        no: attempt.no,
        mark: attempt.mark.to_string(),
        id: attempt.id().map(ToString::to_string),
        state: String::new(),
        status: None,
        from_step: point.and_then(|point| point.step),
        from_path: point.map(|point| point.path.clone()),
        intended: attempt.intended.to_string(),
        ended: None,
        ran_s: None,
        verdict: None,
        stop_asked: attempt.stop.is_some(),
        restarts: attempt.restarts(),
    }
}

fn verdict_view(verdict: &Verdict) -> VerdictView {
    VerdictView {
        cause: verdict.cause.word().to_owned(),
        rule: verdict.rule.clone(),
        evidence: verdict.evidence.clone(),
    }
}

/// The checkpoints of a job that attempts died on.
pub(super) fn suspect_views(job: &Job) -> Vec<SuspectView> {
    let view = |suspect: &Suspect| SuspectView {
        path: suspect.path.clone(),
        step: suspect.step,
        attempts: suspect.attempts.clone(),
    };
    job.progress.suspicion.marked().iter().map(view).collect()
}

/// Events of others that `why` shows.
const OTHERS_SHOWN: usize = 5;

/// The last events that tell of lost, late and doubled ones.
pub(super) fn other_attempts(events: &[StoredEvent]) -> Vec<String> {
    let tells = |word| matches!(word, Word::Lost | Word::Returned | Word::Twin | Word::Copy);
    let told: Vec<&Event> =
        events.iter().map(|stored| &stored.event).filter(|event| tells(event.word)).collect();
    let last = &told[told.len().saturating_sub(OTHERS_SHOWN)..];
    let line = |event: &&Event| {
        let attempt = event.attempt.map_or(String::new(), |no| format!("attempt {no}: "));
        format!("{} {attempt}{}", event.at, event.text)
    };
    last.iter().map(line).collect()
}

pub(super) fn event_view(stored: &StoredEvent) -> EventView {
    let word = serde_json::to_value(stored.event.word).unwrap_or_default();
    EventView {
        sequence: stored.sequence,
        at: stored.event.at.to_string(),
        job: stored.job.name.to_string(),
        run: stored.job.run,
        attempt: stored.event.attempt,
        word: word.as_str().unwrap_or_default().to_owned(),
        text: stored.event.text.clone(),
        data: stored.event.data.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::event::Event;
    use crate::core::job::{Missing, Recheck};
    use crate::core::runs::Runs;
    use crate::model::ids::{CloudId, Digest, JobKey, JobName, Mark, Run, TargetName};
    use crate::model::spec::{CredentialsRef, Place};

    const MINUTE_MS: i64 = 60_000;

    /// Running for 2 h, and saved `count` times, each 40 min and 1,000 steps, a minute long.
    fn saving(count: i64) -> Job {
        let key = JobKey { name: JobName::new("a").expect("a name"), run: 1 as Run };
        let mut job = Job::new(key, Digest("0".repeat(64)));
        let sightings: Vec<_> = (1..=count)
            .map(|n| {
                serde_json::json!({
                    "at": n * 40 * MINUTE_MS, "position": { "epoch": 0, "step": n * 1_000 },
                    "step": n * 1_000, "took": { "secs": 60, "nanos": 0 },
                })
            })
            .collect();
        let watch = serde_json::json!({ "sightings": sightings, "warning": "Stalled" });
        job.open.push(Attempt {
            no: 1,
            mark: Mark::from_random([1; 10]),
            spec: job.spec.clone(),
            target: TargetName::new("t").expect("a name"),
            place: Place {
                region: "r".into(),
                workspace: "1".into(),
                endpoint: "e".into(),
                storage: None,
                credentials: CredentialsRef::Environment,
            },
            start: Start::Fresh,
            bid: None,
            intended: WallTime(0),
            state: AttemptState::Live {
                id: CloudId::new("dlc1").expect("an id"),
                status: Status::Running,
                odd: None,
                running: Some(WallTime(0)),
                restarts: 0,
                runs: Runs::default(),
                recheck: Recheck::NotDue,
                missing: Missing::No,
                hang: Hang::default(),
                watch: serde_json::from_value(watch).expect("a watch"),
                wait: crate::core::waiting::Wait::default(),
            },
            stop: None,
            asked: crate::core::stops::Asked::default(),
            terms: None,
        });
        job
    }

    #[test]
    fn a_page_tells_the_pace_and_advises_by_the_jobs_own_losses() {
        let mut job = saving(4);
        let now = WallTime(175 * MINUTE_MS);
        // Seven losses in 14 h 42 min, these 2 h 55 min among them.
        job.tally.releases = 5;
        job.tally.restarts = 2;
        job.progress.ran = std::time::Duration::from_secs((882 - 175) * 60);
        let view = progress_view(&job, &[], None, now);
        assert_eq!((view.steps_per_hour, view.every_s), (Some(1_500), Some(2_400)));
        assert_eq!((view.every_steps, view.note.as_str()), (Some(1_000), ""));
        let advice = view.advice.expect("advice");
        assert_eq!((advice.loss_every_s, advice.losses), (7_560, 7));
        assert_eq!((advice.cost_s, advice.best_s / 60), (60, 15));
        assert!(advice.text.contains("about 6 %") && advice.loss_source == "seen");
        let why = why_in_a_row(&job, Phase::Stalled, &[], now);
        assert_eq!(why, "no new whole checkpoint for 15m, usually one every 40m");
        assert_eq!(why_in_a_row(&saving(0), Phase::Running, &[], now), "");
        // Too few losses, and nothing says that it runs on spot machines.
        job.tally.restarts = 0;
        job.tally.releases = 4;
        assert_eq!(progress_view(&job, &[], None, now).advice, None);
        // Under another spec the pace may be another one.
        job.spec = Digest("1".repeat(64));
        let view = progress_view(&job, &[], None, now);
        assert_eq!(view.every_s, None);
        assert!(view.note.contains("after attempt 1 was sent"), "{}", view.note);
    }

    #[test]
    fn an_attempt_is_explained_by_the_look_after_it_and_not_by_a_later_one() {
        let key = JobKey { name: JobName::new("a").expect("a name"), run: 1 as Run };
        let event = |sequence, attempt, word| StoredEvent {
            sequence,
            job: key.clone(),
            event: Event { at: WallTime(0), attempt, word, text: String::new(), data: ().into() },
        };
        let told = |sequence, data: serde_json::Value| {
            let mut stored = event(sequence, None, Word::Checkpoint);
            stored.event.data = data;
            stored
        };
        let choice = |sequence| told(sequence, serde_json::json!({ "chosen": null }));
        let events = [
            event(1, Some(1), Word::Intent),
            event(2, Some(1), Word::Ended),
            choice(3),
            event(4, Some(2), Word::Intent),
            event(5, Some(2), Word::Ended),
            choice(6),
            told(7, serde_json::json!({ "suspects": [] })),
            told(8, serde_json::json!({ "tracker": "latest", "old": "2", "new": "1" })),
            told(9, ().into()),
        ];
        let found = |no| checkpoint_for(no, &events).map(|e| e.sequence);
        assert_eq!([found(Some(1)), found(Some(2)), found(None)], [Some(3), Some(6), Some(6)]);
        assert_eq!(checkpoint_for(Some(1), &events[..2]).map(|e| e.sequence), None);
        let cut = [choice(1), told(2, serde_json::json!({ "left_out": "too large" }))];
        assert_eq!(checkpoint_for(None, &cut).map(|e| e.sequence), Some(2), "not an older one");
    }
}
