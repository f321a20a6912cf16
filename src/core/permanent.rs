//! Reasons that do not pass: an attempt that has one never runs, however long it waits and however
//! often the same body is sent.
//!
//! Rules are data: a code as a whole, or words of a message after the job's own strings were taken out
//! of it. What it must not do: end or stop anything. It only tells a wait that can never end from one
//! that may, and an end that will come again from one that may not.

use super::verdict::{has_word, masked, word_places};
use crate::model::cloud::CloudJob;

/// `ReasonCode`s, whole.
const CODES: &[&str] = &[
    "InvalidParameter",
    "Forbidden.RAM",
    "NoPermission",
    "QuotaNotFound",
    "QuotaNotExist",
    "InvalidQuota",
    "ResourceQuotaNotFound",
    "ResourceGroupNotFound",
    "EcsSpecNotFound",
    "InvalidEcsSpec",
    "InvalidInstanceType.NotFound",
    "ImageNotFound",
    "InvalidImage",
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
];
/// Words that say so by themselves.
const WORDS: &[&str] = &[
    "errimagepull",
    "imagepullbackoff",
    "invalidimagename",
    "manifest unknown",
    "unauthorized",
    "配额不存在",
    "资源组不存在",
    "规格不存在",
    "镜像不存在",
    "拉取镜像失败",
    "没有权限",
];
/// Things without which nothing can start ...
const THINGS: &[&str] = &[
    "quota",
    "resource quota",
    "resource group",
    "ecs spec",
    "ecsspec",
    "instance type",
    "spec",
    "image",
    "repository",
    "workspace",
    "vpc",
    "vswitch",
    "security group",
    "data set",
    "dataset",
];
/// ... said right before them to be missing ...
const BEFORE: &[&str] = &["no such", "unknown", "invalid", "nonexistent", "non-existent"];
/// ... or a few words after them.
const AFTER: &[&str] = &[
    "not found",
    "does not exist",
    "doesn't exist",
    "not exist",
    "no longer exists",
    "is invalid",
    "is not valid",
    "was deleted",
];
/// Bytes between a thing and what is said of it: its id.
const BETWEEN_BYTES: usize = 120;

/// Why an attempt can never run, in the words of the answer; `None` if it may.
pub fn cause(cloud: &CloudJob) -> Option<String> {
    if cloud.ever_ran() {
        return None;
    }
    let message = masked(cloud, &cloud.reason_message);
    let is_permanent = CODES.contains(&cloud.reason_code.as_str())
        || WORDS.iter().any(|word| has_word(&message, word))
        || THINGS.iter().any(|thing| is_missing(&message, thing));
    is_permanent.then(|| {
        let parts = [cloud.reason_code.as_str(), cloud.reason_message.as_str()];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
    })
}

/// Whether a message, in lower case, says that there is no such thing.
fn is_missing(message: &str, thing: &str) -> bool {
    word_places(message, thing).any(|at| {
        let before = message[..at].trim_end();
        let rest = &message[at + thing.len()..];
        let near = &rest[..rest.floor_char_boundary(BETWEEN_BYTES)];
        // What is said of another thing is not said of this one.
        let clause = near.split([';', ',', '\n']).next().unwrap_or_default();
        let clause = clause.split(". ").next().unwrap_or_default();
        BEFORE.iter().any(|word| ends_with_word(before, word))
            || AFTER.iter().any(|word| has_word(clause, word))
    })
}

fn ends_with_word(text: &str, word: &str) -> bool {
    text.strip_suffix(word).is_some_and(|rest| !rest.ends_with(|c: char| c.is_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cloud::{Stamp, Status};
    use crate::model::ids::CloudId;
    use crate::model::time::WallTime;

    fn waits(code: &str, message: &str) -> CloudJob {
        CloudJob {
            id: CloudId::new("dlc1").expect("an id"),
            display_name: "quota-job".to_owned(),
            status: Status::Queuing,
            sub_status: String::new(),
            reason_code: code.to_owned(),
            reason_message: message.to_owned(),
            exits: Vec::new(),
            user_id: None,
            stamp: Stamp::default(),
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

    #[test]
    fn what_is_not_there_never_comes_by_waiting() {
        for (code, message) in [
            ("", "no such quota"),
            ("", "No such quota: quota1a2b"),
            ("JobEnqueue", "the quota quota1a2b does not exist"),
            ("QuotaNotFound", ""),
            ("", "Resource group rg-1 not found"),
            ("", "invalid instance type ecs.gn9.nothing"),
            ("", "EcsSpec ecs.gn9.nothing is not valid in this region"),
            ("", "Failed to pull image \"registry/x:y\": rpc error: manifest unknown"),
            ("", "image registry.example/team/x:y not found"),
            ("ImagePullBackOff", "Back-off pulling image"),
            ("Forbidden.RAM", "no"),
            ("", "指定的配额不存在"),
        ] {
            let cause = cause(&waits(code, message));
            assert!(cause.is_some_and(|cause| cause.contains(message)), "{code} {message}");
        }
    }

    #[test]
    fn what_may_pass_is_waited_for() {
        for (code, message) in [
            ("", ""),
            ("JobEnqueue", "Job is enqueued"),
            ("", "quota quota1a2b has not enough GPUs"),
            ("", "quota exceeded, node not found"),
            ("", "waiting for image; pod not found"),
            ("", "insufficient stock of ecs.gn7e-c16g1.4xlarge"),
            ("", "the bid is under the market price"),
            ("ResourceAllocateFailed", "no machine can be had"),
            // The job's own name says nothing.
            ("", "no such quota-job"),
        ] {
            assert_eq!(cause(&waits(code, message)), None, "{code} {message}");
        }
        let mut ran = waits("", "no such quota");
        ran.running = Some(WallTime(0));
        assert_eq!(cause(&ran), None, "it ran");
    }
}
