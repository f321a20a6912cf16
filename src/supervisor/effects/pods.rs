//! The look at the pods of a running attempt: are some lost, and do the logs go on?
//!
//! What always holds: of a log only a number is kept that changes with its end; no line leaves this
//! file. At most one GetJob and [`TAILS_LIMIT`] GetPodLogs a look, [`LINES`] lines each. What cannot be
//! read is said to be unread, never to be silent.

use super::Effects;
use crate::core::hang::TAILS_LIMIT;
use crate::core::step::Input;
use crate::dlc::client::Dlc;
use crate::dlc::evidence::{LogQuery, RawCall};
use crate::model::cloud::{Pod, Status};
use crate::model::hang::{PodsLook, PodsSeen};
use crate::model::ids::{AttemptNo, CloudId, JobKey};
use crate::model::spec::Place;
use crate::supervisor::driver::chain;
use crate::supervisor::turns::{GET_JOB, GET_POD_LOGS};
use futures_util::FutureExt as _;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::panic::AssertUnwindSafe;

/// Lines asked for of the end of a log.
const LINES: u32 = 100;
/// Lines that may come again and again in a log that goes on.
const PERIOD_LIMIT: usize = 8;

impl Effects {
    /// Looks at the pods of a running attempt. Nothing waits for it: a process that has to end drops
    /// it.
    pub(super) async fn look_at_pods(self, key: JobKey, no: AttemptNo, id: CloudId, place: Place) {
        let mut going = self.sweeping.subscribe();
        let look = async {
            let _permit = self.pods.acquire().await;
            AssertUnwindSafe(self.pods_of(&id, &place)).catch_unwind().await
        };
        let seen = tokio::select! {
            biased;
            _ = going.wait_for(|going| !going) => return,
            seen = look => seen.unwrap_or_else(|_| Err("it panicked; see the log".to_owned())),
        };
        let look = seen.unwrap_or_else(|why| PodsLook::CouldNotLook { why });
        self.tell(key, Input::PodsLooked { no, look }).await;
    }

    async fn pods_of(&self, id: &CloudId, place: &Place) -> Result<PodsLook, String> {
        let client = self.client(place)?;
        let turn = self.turns.take(GET_JOB, place).await;
        let answer = client.get_job(id, turn.wall()).await;
        self.learn(&turn, &answer);
        drop(turn);
        let job = answer.map_err(|error| chain(&error))?.value;
        if job.status != Status::Running {
            return Ok(PodsLook::NotRunning);
        }
        let count = |pods: usize| u32::try_from(pods).unwrap_or(u32::MAX);
        let (lost, others): (Vec<&Pod>, Vec<&Pod>) = job.pods.iter().partition(|pod| is_lost(pod));
        let asked = spread(&others);
        if asked.is_empty() {
            return Err("none of its pods is shown as running".to_owned());
        }
        let mut seen = PodsSeen {
            all: count(job.pods.len()),
            lost: lost.iter().map(|pod| pod.id.clone()).collect(),
            asked: count(asked.len()),
            ..PodsSeen::default()
        };
        for pod in asked {
            match self.tail(&client, id, place, pod).await {
                Ok(tail) => seen.tails.extend(tail),
                Err(why) => seen.unread = Some(format!("{}: {why}", pod.id)),
            }
        }
        Ok(PodsLook::Done(seen))
    }

    /// The number of the end of a pod's log; `None` where it has no line.
    async fn tail(
        &self,
        client: &Dlc,
        id: &CloudId,
        place: &Place,
        pod: &Pod,
    ) -> Result<Option<u64>, String> {
        let pod_uid = Some(pod.uid.clone()).filter(|uid| !uid.is_empty());
        let query = LogQuery { pod_uid, limit: Some(LINES), ..LogQuery::default() };
        let turn = self.turns.take(GET_POD_LOGS, place).await;
        let answer = client.raw(id, RawCall::PodLogs(&pod.id, &query), turn.wall()).await;
        self.learn(&turn, &answer);
        let answer = answer.map_err(|error| chain(&error))?.value;
        let Some(Value::Array(lines)) = answer.get("Logs") else {
            return Err("the answer has no list of lines".to_owned());
        };
        if is_periodic(lines) {
            return Err(
                "its last lines repeat themselves: nobody can see whether it goes on".into()
            );
        }
        Ok((!lines.is_empty()).then(|| number(&pod.uid, lines)))
    }
}

/// Whether a pod is lost to a job that runs on. One that ended well is not.
fn is_lost(pod: &Pod) -> bool {
    matches!(pod.status.as_str(), "Failed" | "Unknown") || pod.sub_status == "Evicted"
}

/// The first pod, the last one, and others evenly between: some trainers speak by their first rank,
/// some by their last.
fn spread<'p>(pods: &[&'p Pod]) -> Vec<&'p Pod> {
    let running: Vec<&Pod> =
        pods.iter().filter(|pod| pod.status == "Running" && !pod.id.is_empty()).copied().collect();
    if running.len() <= TAILS_LIMIT {
        return running;
    }
    let last = running.len() - 1;
    (0..TAILS_LIMIT).map(|nth| running[nth * last / (TAILS_LIMIT - 1)]).collect()
}

/// Whether a log that is longer than what was asked for ends with the same few lines again and again:
/// its end looks the same whether or not more of them came.
fn is_periodic(lines: &[Value]) -> bool {
    let is_cut = lines.len() >= usize::try_from(LINES).unwrap_or(usize::MAX);
    is_cut && (1..=PERIOD_LIMIT).any(|period| lines[period..] == lines[..lines.len() - period])
}

fn number(uid: &str, lines: &[Value]) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(uid);
    for line in lines {
        hasher.update(line.to_string());
        hasher.update(b"\n");
    }
    hasher.finalize().iter().take(8).fold(0, |n, &byte| n << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(id: &str, status: &str) -> Pod {
        Pod { id: id.to_owned(), status: status.to_owned(), ..Pod::default() }
    }

    #[test]
    fn the_first_and_the_last_of_many_pods_are_asked() {
        let pods: Vec<Pod> = (0..64).map(|n| pod(&n.to_string(), "Running")).collect();
        let all: Vec<&Pod> = pods.iter().collect();
        let asked: Vec<&str> = spread(&all).iter().map(|pod| pod.id.as_str()).collect();
        assert_eq!(asked, ["0", "9", "18", "27", "36", "45", "54", "63"]);
        assert_eq!(spread(&all[..3]).len(), 3);
        let waits = pod("w", "Pending");
        assert!(spread(&[&waits]).is_empty());
    }

    #[test]
    fn pods_that_failed_or_are_gone_are_lost_and_those_that_ended_well_are_not() {
        for (status, lost) in
            [("Failed", true), ("Unknown", true), ("Succeeded", false), ("Running", false)]
        {
            assert_eq!(is_lost(&pod("p", status)), lost, "{status}");
        }
        assert!(is_lost(&Pod { sub_status: "Evicted".into(), ..pod("p", "Running") }));
    }

    #[test]
    fn a_long_log_whose_end_repeats_itself_says_nothing() {
        let lines = |period: usize, count: usize| -> Vec<Value> {
            (0..count).map(|n| json!(format!("line {}", n % period))).collect()
        };
        for period in [1, 3, PERIOD_LIMIT] {
            assert!(is_periodic(&lines(period, 100)), "{period}");
            assert!(!is_periodic(&lines(period, 99)), "all of it was read");
        }
        assert!(!is_periodic(&lines(1_000, 100)));
        let (mut one, other) = (lines(1_000, 100), lines(1_000, 100));
        assert_eq!(number("a", &one), number("a", &other));
        assert_ne!(number("a", &one), number("b", &other));
        one.push(json!("another"));
        assert_ne!(number("a", &one), number("a", &other));
    }
}
