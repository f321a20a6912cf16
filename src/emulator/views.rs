//! Jobs as GetJob and ListJobs show them: the body as it came, and what became of it, by the
//! names and in the shapes of real answers. A time that does not apply yet is an empty text.

use super::job::{End, Job, Pod, Stage};
use crate::model::time::WallTime;
use serde_json::{Map, Value, json};

/// Whose jobs all of them are.
pub const USER_ID: &str = "1234567890123456";
/// The name of that user.
pub const USER_NAME: &str = "emulator";
/// The workspace of a job that names none.
pub const DEFAULT_WORKSPACE: &str = "1";

fn time(wall: Option<WallTime>) -> Value {
    Value::String(wall.map(|wall| wall.to_string()).unwrap_or_default())
}

/// `WorkspaceId` of a job.
pub fn workspace(job: &Job) -> &str {
    match job.submission.body.get("WorkspaceId") {
        Some(Value::String(id)) if !id.is_empty() => id,
        Some(_) | None => DEFAULT_WORKSPACE,
    }
}

/// The answer to GetJob, less its `RequestId`.
pub fn whole(job: &Job, now: WallTime) -> Map<String, Value> {
    let mut view = common(job, now);
    // The real one does not show it here.
    view.remove("JobMaxRunningTimeMinutes");
    view.insert("RestartRecord".into(), json!([]));
    view.insert("Pods".into(), shown_pods(job).map(|pod| pod_view(job, pod, now)).collect());
    view
}

/// An item of ListJobs: its pods tell less, some numbers are texts.
pub fn item(job: &Job, now: WallTime) -> Map<String, Value> {
    let mut view = common(job, now);
    let pods = shown_pods(job).map(|pod| {
        let mut pod = pod_view(job, pod, now);
        if let Some(pod) = pod.as_object_mut() {
            pod.remove("Duration");
            pod.remove("ResourceType");
        }
        pod
    });
    view.insert("Pods".into(), pods.collect());
    let modified = job.history.last().map(|step| step.start);
    let more = json!({
        "EnablePreemptibleJob": job.submission.bid.is_some(),
        "GmtModifiedTime": time(modified),
        "IsDeleted": false,
        "NodeCount": job.pods.len().to_string(),
        "NodeNames": [],
        "RequestGPU": "0",
        "RetryCount": 0,
        "ResourceName": "",
        "ResourceQuotaName": "",
        "SystemEnvs": {},
        "UseOversoldResource": false,
        "UserScript": "",
        "Username": USER_NAME,
        "WorkingDir": "",
    });
    extend(&mut view, more);
    view
}

fn extend(view: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        view.extend(more);
    }
}

fn shown_pods(job: &Job) -> impl Iterator<Item = &Pod> {
    job.pods.iter().filter(|pod| pod.created.is_some())
}

fn common(job: &Job, now: WallTime) -> Map<String, Value> {
    let mut view = Map::new();
    let defaults = json!({
        "Accessibility": "PRIVATE", "ClusterId": "", "CodeSource": {}, "DataSources": [],
        "ElasticSpec": {}, "EnabledDebugger": false, "Envs": {}, "Priority": 1, "ResourceId": "",
        "Settings": {}, "ThirdpartyLibDir": "", "ThirdpartyLibs": [],
    });
    extend(&mut view, defaults);
    let sent = job.submission.body.iter().filter(|(_, value)| !value.is_null());
    view.extend(sent.map(|(key, value)| (key.clone(), value.clone())));
    // Answers spell this key in another way than requests do.
    if let Some(Value::Object(vpc)) = view.get_mut("UserVpc")
        && let Some(ranges) = vpc.remove("ExtendedCIDRs")
    {
        vpc.insert("ExtendedCidrs".into(), ranges);
    }
    let ended_as = |end: End| match job.stage {
        Stage::Ended(how) if how == end => job.finished(),
        Stage::Ended(_) | Stage::Waiting { .. } | Stage::Running { .. } | Stage::Leaving { .. } => {
            None
        }
    };
    let running = job.entered("Running");
    let duration = running.map_or(0, |from| job.finished().unwrap_or(now).since(from).as_secs());
    let history: Vec<Value> = job
        .history
        .iter()
        .map(|step| {
            json!({
                "Status": step.status, "StartTime": time(Some(step.start)),
                "EndTime": time(step.end), "ReasonCode": step.reason_code,
                "ReasonMessage": step.reason_message,
            })
        })
        .collect();
    let state = json!({
        "JobId": job.id,
        "Status": job.stage.word(),
        "SubStatus": "",
        "ReasonCode": job.reason_code,
        "ReasonMessage": job.reason_message,
        "StatusHistory": history,
        "Duration": duration,
        "RestartTimes": "0/0",
        "GmtCreateTime": time(Some(job.created.wall)),
        "GmtSubmittedTime": time(job.entered("Queuing")),
        "GmtRunningTime": time(running),
        "GmtFinishTime": time(job.finished()),
        "GmtSuccessedTime": time(ended_as(End::Succeeded)),
        "GmtFailedTime": time(ended_as(End::Failed)),
        "GmtStoppedTime": time(ended_as(End::Stopped)),
        "ResourceLevel": "L0",
        "ResourceType": "ECS",
        "TenantId": "",
        "UserId": USER_ID,
        "WorkspaceId": workspace(job),
        "WorkspaceName": "emulator",
    });
    extend(&mut view, state);
    view
}

fn pod_view(job: &Job, pod: &Pod, now: WallTime) -> Value {
    let lived = pod.started.map_or(0, |from| pod.finished.unwrap_or(now).since(from).as_secs());
    json!({
        "PodId": pod.id,
        "PodUid": pod.uid,
        "Type": pod.role.to_ascii_lowercase(),
        "Status": pod.status(&job.stage),
        "SubStatus": pod.sub_status,
        "Ip": "127.0.0.1",
        "GmtCreateTime": time(pod.created),
        "GmtStartTime": time(pod.started),
        "GmtFinishTime": time(pod.finished),
        "Duration": lived,
        "ResourceType": "ECS",
        "HistoryPods": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::job::Moment;
    use crate::emulator::submission::Submission;
    use crate::emulator::submission::tests::sample;
    use std::time::Duration;

    #[test]
    fn every_field_of_the_body_comes_back_and_none_of_them_can_fake_the_state() {
        let mut body = sample();
        body["Invented"] = json!({"deep": 0.4});
        body["JobSpecs"][0]["Odd"] = json!([0.011]);
        body["Status"] = json!("Succeeded");
        body["JobMaxRunningTimeMinutes"] = json!(5);
        body["UserVpc"] = json!({"ExtendedCIDRs": ["10.0.0.0/8"]});
        let submission = Submission::read(body.to_string().as_bytes(), 1.0).expect("fine");
        let now = Moment { at: Duration::ZERO, wall: WallTime(0) };
        let job = Job::new("dlc1".into(), submission, now);
        let view = whole(&job, now.wall);
        assert_eq!(view["Invented"], body["Invented"]);
        assert_eq!(view["JobSpecs"], body["JobSpecs"]);
        assert_eq!(view["Status"], "Creating");
        assert_eq!(view["UserVpc"], json!({"ExtendedCidrs": ["10.0.0.0/8"]}));
        assert!(!view.contains_key("JobMaxRunningTimeMinutes"));
        assert_eq!(item(&job, now.wall)["JobMaxRunningTimeMinutes"], 5);
        assert_eq!(view["Pods"], json!([]));
        assert_eq!(view["GmtRunningTime"], "");
    }
}
