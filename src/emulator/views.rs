//! Jobs as GetJob and ListJobs show them: the body as it came, and what became of it, by the
//! names and in the shapes of real answers. A time that does not apply yet is an empty text.

use super::job::{End, Job, Pod, PodLife, Stage};
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

/// The quota that a job uses, by id and, here, by name; empty for public resources.
pub fn quota(job: &Job) -> &str {
    job.submission.body.get("ResourceId").and_then(Value::as_str).unwrap_or_default()
}

/// The answer to GetJob, less its `RequestId`.
pub fn whole(job: &Job, now: WallTime) -> Map<String, Value> {
    let mut view = common(job, now);
    // The real one does not show it here.
    view.remove("JobMaxRunningTimeMinutes");
    view.insert("RestartRecord".into(), job.restart_record(now));
    view.insert("CustomEnvs".into(), custom_envs(job));
    view.insert("JobReplicaStatuses".into(), replicas(job));
    view.insert("Pods".into(), shown_pods(job).map(|pod| pod_view(job, pod, now)).collect());
    view
}

/// The environment as a list, too: as it was sent, then what was sent as `Envs`.
fn custom_envs(job: &Job) -> Value {
    let sent = job.submission.body.get("CustomEnvs").and_then(Value::as_array);
    let mut list = sent.cloned().unwrap_or_default();
    for (name, value) in &job.submission.envs {
        if !list.iter().any(|env| env["Key"] == name.as_str()) {
            list.push(json!({"Key": name, "Value": value, "Visible": ""}));
        }
    }
    Value::Array(list)
}

/// `JobReplicaStatuses`: one entry a JobSpec.
fn replicas(job: &Job) -> Value {
    let specs = job.submission.body.get("JobSpecs").and_then(Value::as_array);
    let mut pods = job.pods.iter();
    let roles = specs.into_iter().flatten().zip(&job.submission.roles);
    roles
        .map(|(spec, (role, count))| {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            let mine: Vec<&Pod> = pods.by_ref().take(count).collect();
            let active = mine.iter().filter(|pod| pod.lives()).count();
            let queuing = mine.iter().filter(|pod| pod.life == PodLife::Pending).count();
            let offer = spec["ElasticSpotSpecs"][0]["InstanceType"].as_str().unwrap_or("");
            json!({
                "Type": role,
                "Active": active,
                "Queuing": queuing,
                "Dequeued": mine.len() - queuing,
                "CurrentSpotInstanceType": if active > 0 { offer } else { "" },
            })
        })
        .collect()
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
        "ResourceName": quota(job),
        "ResourceQuotaName": quota(job),
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
        Stage::Ended(how) | Stage::Reserving { end: how, .. } if how == end => job
            .entered("SucceededReserving")
            .or_else(|| job.entered("FailedReserving"))
            .or_else(|| job.finished()),
        Stage::Ended(_)
        | Stage::Reserving { .. }
        | Stage::Waiting { .. }
        | Stage::Running { .. }
        | Stage::Leaving { .. } => None,
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
        "SubStatus": sub_status(job),
        "ReasonCode": job.reason_code,
        "ReasonMessage": job.reason_message,
        "StatusHistory": history,
        "Duration": duration,
        "RestartTimes": job.restart_times(),
        "GmtCreateTime": time(Some(job.created.wall)),
        "GmtSubmittedTime": time(job.entered("Queuing")),
        "GmtRunningTime": time(running),
        "GmtFinishTime": time(job.finished()),
        "GmtSuccessedTime": time(ended_as(End::Succeeded)),
        "GmtFailedTime": time(ended_as(End::Failed)),
        "GmtStoppedTime": time(ended_as(End::Stopped)),
        "ResourceLevel": "L0",
        "ResourceType": job.submission.hardware.word(),
        "TenantId": "",
        "UserId": USER_ID,
        "WorkspaceId": workspace(job),
        "WorkspaceName": "emulator",
    });
    extend(&mut view, state);
    view
}

/// Says `Restarting` until a job that is restarted runs again.
fn sub_status(job: &Job) -> &'static str {
    match (job.stage, job.restarts.last()) {
        (Stage::Waiting { .. }, Some(restart)) if restart.ran_again.is_none() => "Restarting",
        (_, _) => "",
    }
}

fn pod_view(job: &Job, pod: &Pod, now: WallTime) -> Value {
    let mut view = pod_fields(job, pod, pod.status(&job.stage), now);
    // Their job has gone on: what became of it says nothing of them.
    let past = pod.past.iter().map(|old| pod_fields(job, old, old.life.word(), now));
    view["HistoryPods"] = past.collect();
    view
}

fn pod_fields(job: &Job, pod: &Pod, status: &str, now: WallTime) -> Value {
    let finished = if status == "Running" { None } else { pod.finished };
    let lived = pod.started.map_or(0, |from| finished.unwrap_or(now).since(from).as_secs());
    json!({
        "PodId": pod.id,
        "PodUid": pod.uid,
        "Type": pod.role.to_ascii_lowercase(),
        "Status": status,
        "SubStatus": pod.sub_status,
        "Ip": "127.0.0.1",
        "GmtCreateTime": time(pod.created),
        "GmtStartTime": time(pod.started),
        "GmtFinishTime": time(finished),
        "Duration": lived,
        "ResourceType": job.submission.hardware.word(),
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
