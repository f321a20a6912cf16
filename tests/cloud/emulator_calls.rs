//! Every call of the emulator beside the life of jobs, and the fault switchboard.

use crate::emulator::mounts_are_allowed;
use crate::emulator_client::{World, body, send_as, signed};
use serde_json::{Value, json};
use spotkeeper::emulator::RunAs;
use spotkeeper::openapi::signature::percent_encode;
use std::time::Duration;

const PAI_STUDIO: &str = "2022-01-12";
const AI_WORKSPACE: &str = "2021-02-04";

/// A call that must be answered with 200.
async fn done(world: &World, action: &str, method: &str, target: &str, body: &Value) -> Value {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = world.call(action, method, target, &text).await;
    assert_eq!(status, 200, "{action} {target}: {answer}");
    let id = answer.get("RequestId").or(answer.get("RequestID"));
    assert!(id.is_some_and(Value::is_string), "{action}: {answer}");
    answer
}

async fn read(world: &World, action: &str, target: &str) -> Value {
    done(world, action, "GET", target, &Value::Null).await
}

/// A call that must be refused with this code, and a message that names this.
async fn refused(world: &World, call: (&str, &str, &str), body: &Value, code: &str, names: &str) {
    let (action, method, target) = call;
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = world.call(action, method, target, &text).await;
    assert!((400..500).contains(&status), "{action} {target}: {status} {answer}");
    assert_eq!(answer["Code"], code, "{action} {target}: {answer}");
    let message = answer["Message"].as_str().expect("a message");
    assert!(message.contains(names), "{action} {target}: {message}");
}

/// A call of another product.
async fn other(world: &World, version: &str, call: (&str, &str, &str), body: &Value) -> Value {
    let (action, method, target) = call;
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let address = world.running.address;
    let answer = send_as(version, &world.http, address, action, method, target, &text).await;
    answer.expect("answered").1
}

async fn virtual_world() -> World {
    World::with(|options| options.run_as = RunAs::Virtual).await
}

#[tokio::test]
async fn updates_change_what_the_real_one_would_change() {
    let world = World::with(|options| {
        options.run_as = RunAs::Virtual;
        options.phase_delay = Duration::from_hours(1);
    })
    .await;
    let public = world.create(&body("public", "true")).await;
    let mut quota = body("quota", "true");
    quota["ResourceId"] = json!("quota-7");
    quota["JobSpecs"][0]["SpotSpec"] = Value::Null;
    let quota = world.create(&quota).await;
    let change = json!({"Priority": 7, "Accessibility": "PUBLIC", "Description": "new",
                        "UserCommand": "echo other"});
    for id in [&public, &quota] {
        let answer = done(&world, "UpdateJob", "PUT", &format!("/api/v1/jobs/{id}"), &change).await;
        assert_eq!(&answer["JobId"], id);
        let job = world.get(id).await;
        assert_eq!((&job["Accessibility"], &job["Description"]), (&json!("PUBLIC"), &json!("new")));
    }
    let (public_job, quota_job) = (world.get(&public).await, world.get(&quota).await);
    assert_eq!((&public_job["Priority"], &quota_job["Priority"]), (&json!(1), &json!(7)));
    assert_eq!(public_job["UserCommand"], "true");
    assert_eq!(quota_job["UserCommand"], "echo other");
    let target = format!("/api/v1/jobs/{public}");
    for (wrong, word) in [
        (json!({"Priority": 10}), "Priority"),
        (json!({"Priority": "5"}), "Priority"),
        (json!({"Accessibility": "PRIVATE"}), "Accessibility"),
        (json!({"JobSpecs": {}}), "JobSpecs"),
        (json!([]), "object"),
    ] {
        let call = ("UpdateJob", "PUT", target.as_str());
        refused(&world, call, &wrong, "InvalidParameter", word).await;
    }
    let call = ("UpdateJob", "PUT", "/api/v1/jobs/dlcnone");
    refused(&world, call, &json!({}), "NotFound", "dlcnone").await;
    world.running.shutdown().await;
}

#[tokio::test]
async fn lists_take_every_filter_and_pages_shift() {
    let world = virtual_world().await;
    let mut first = body("Alpha-1", "python train.py --lr 1");
    first["Settings"] = json!({"Tags": {"team": "a", "kind": "x"}, "Caller": "me",
                               "OversoldType": "ForceQuotaOverSold"});
    first["Description"] = json!("Night run");
    first["TemplateId"] = json!("tpl-1");
    first["JobSpecs"][0]["Image"] = json!("registry/pai/pytorch:2.4");
    first["JobSpecs"][0]["AssignNodeSpec"] = json!({"EnableAssignNode": true});
    first["JobSpecs"][0]["PodCount"] = json!(3);
    first["Priority"] = json!(5);
    let first = world.create(&first).await;
    world.until(&first, "Running").await;
    let mut second = body("alpha-2", "python train.py --lr 10");
    second["ResourceId"] = json!("quota-7");
    second["Accessibility"] = json!("PUBLIC");
    second["WorkspaceId"] = json!("8");
    second["JobSpecs"][0]["SpotSpec"] = Value::Null;
    let second = world.create(&second).await;
    world.until(&second, "Running").await;
    let both = format!("{first},{second}");
    let upper = first.to_uppercase();
    let joined = |parts: &[(&str, &str)]| {
        let parts = parts.iter().map(|(name, value)| format!("{name}={}", percent_encode(value)));
        parts.collect::<Vec<_>>().join("&")
    };
    for (query, found) in [
        (&[("DisplayName", "ALPHA")][..], "both"),
        (&[("DisplayName", "pha-2")], "second"),
        (&[("JobId", &upper)], "first"),
        (&[("JobIds", &both)], "both"),
        (&[("JobIds", &both), ("JobId", &second)], "second"),
        (&[("Tags", r#"{"team":"a","kind":"x"}"#)], "first"),
        (&[("Tags", r#"{"team":"a","kind":"y"}"#)], "none"),
        (&[("PaymentType", "Spot")], "first"),
        (&[("PaymentType", "PrePaid")], "second"),
        (&[("PaymentType", "PostPaid")], "none"),
        (&[("ResourceId", "quota-7")], "second"),
        (&[("ResourceIds", "quota-1,quota-7")], "second"),
        (&[("ResourceQuotaName", "OTA-7")], "second"),
        (&[("Accessibility", "PRIVATE")], "first"),
        (&[("WorkspaceId", "8")], "second"),
        (&[("WorkspaceId", "8"), ("FromAllWorkspaces", "True"), ("ShowOwn", "True")], "both"),
        (&[("UserCommandSearch", "LR 1")], "first"),
        (&[("UserCommandSearch", "trai")], "none"),
        (&[("ImageSearch", "pytorch 2.4")], "first"),
        (&[("ReasonSearch", "nothing")], "none"),
        (&[("Description", "night")], "first"),
        (&[("TemplateId", "tpl-1")], "first"),
        (&[("Caller", "me")], "first"),
        (&[("OversoldInfo", "ForceQuotaOverSold")], "first"),
        (&[("EnableAssignNode", "false")], "second"),
        (&[("NumericRangeField", "Priority"), ("NumericRangeMin", "2")], "first"),
        (&[("NumericRangeField", "NodeCount"), ("NumericRangeMax", "1")], "second"),
        (&[("TimeRangeField", "GmtRunningTime")], "both"),
        (&[("TimeRangeField", "GmtFinishTime")], "none"),
        (&[("Status", "Running")], "both"),
        (&[("Username", "EMU")], "both"),
        (&[("UserIdForFilter", "1")], "none"),
        (&[("EndTime", "2001-01-01T00:00:00Z")], "none"),
        (&[("DisplayNameSearchMode", "x"), ("NotKnown", "y")], "both"),
    ] {
        let query = joined(query);
        let found = match found {
            "first" => vec![first.as_str()],
            "second" => vec![second.as_str()],
            "both" => vec![first.as_str(), second.as_str()],
            _ => vec![],
        };
        let answer =
            read(&world, "ListJobs", &format!("/api/v1/jobs?{query}&Order=asc&SortBy=DisplayName"))
                .await;
        let ids: Vec<&str> = answer["Jobs"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|job| job["JobId"].as_str().expect("an id"))
            .collect();
        assert_eq!(ids, found, "{query}");
        assert_eq!(answer["TotalCount"], found.len(), "{query}");
    }
    // A job that comes in moves what was on the first page to the second.
    let page = |number: usize| format!("/api/v1/jobs?PageSize=1&PageNumber={number}");
    let before = read(&world, "ListJobs", &page(1)).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    world.create(&body("newest", "true")).await;
    let after = read(&world, "ListJobs", &page(2)).await;
    assert_eq!(before["Jobs"][0]["JobId"], after["Jobs"][0]["JobId"]);
    let call = ("ListJobs", "GET", "/api/v1/jobs?Status=Running%2CFailed");
    refused(&world, call, &Value::Null, "InvalidParameter", "Status").await;
    world.running.shutdown().await;
}

#[tokio::test]
async fn what_pods_said_and_did_comes_by_window_count_and_uid() {
    let world = World::with(|_| {}).await;
    let mut asked = body(
        "talks",
        "trap 'echo got USR1; exit 0' USR1; echo one; echo two; \
                                   echo >ready; while :; do sleep 0.01; done",
    );
    asked["Settings"] = json!({"EnableSanityCheck": true});
    let id = world.create(&asked).await;
    world.until(&id, "Running").await;
    let pod = format!("{id}-master-0");
    world.pod_file(&id, &pod, "ready").await;
    let uid = world.get(&id).await["Pods"][0]["PodUid"].as_str().expect("a uid").to_owned();
    let base = format!("/api/v1/jobs/{id}/pods/{pod}");
    let logs = read(&world, "GetPodLogs", &format!("{base}/logs?MaxLines=1&PodUid={uid}")).await;
    assert_eq!((&logs["Logs"], &logs["PodUid"]), (&json!(["two"]), &json!(uid)));
    let later = format!("{base}/logs?StartTime=2999-01-01T00:00:00Z");
    assert_eq!(read(&world, "GetPodLogs", &later).await["Logs"], json!([]));
    let call = ("GetPodLogs", "GET", &*format!("{base}/logs?PodUid=other"));
    refused(&world, call, &Value::Null, "NotFound", "other").await;
    let call = ("GetPodLogs", "GET", &*format!("{base}/logs?MaxLines=many"));
    refused(&world, call, &Value::Null, "InvalidParameter", "MaxLines").await;

    let all = read(&world, "GetJobEvents", &format!("/api/v1/jobs/{id}/events")).await;
    let all = all["Events"].as_array().expect("a list").clone();
    let last = format!("/api/v1/jobs/{id}/events?MaxEventsNum=1");
    assert_eq!(read(&world, "GetJobEvents", &last).await["Events"], json!([all.last()]));
    let early = format!("/api/v1/jobs/{id}/events?EndTime=2001-01-01T00:00:00Z");
    assert_eq!(read(&world, "GetJobEvents", &early).await["Events"], json!([]));
    let events = read(&world, "GetPodEvents", &format!("{base}/events?PodUid={uid}")).await;
    assert!(events["Events"].as_array().is_some_and(|lines| lines.len() >= 4), "{events}");

    let target = format!("/api/v1/jobs/{id}/metrics?MetricType=GpuCoreUsage&TimeStep=1");
    let metrics = read(&world, "GetJobMetrics", &target).await;
    assert_eq!(metrics["PodMetrics"][0]["PodId"], json!(pod));
    assert!(metrics["PodMetrics"][0]["Metrics"][0]["Time"].is_i64(), "{metrics}");
    let call = ("GetJobMetrics", "GET", &*format!("/api/v1/jobs/{id}/metrics"));
    refused(&world, call, &Value::Null, "InvalidParameter", "MetricType").await;

    let checks =
        read(&world, "ListJobSanityCheckResults", &format!("/api/v1/jobs/{id}/sanitycheckresults"))
            .await;
    assert!(checks["RequestID"].is_string() && checks.get("RequestId").is_none(), "{checks}");
    assert_eq!(checks["SanityCheckResults"][0].as_array().map(Vec::len), Some(5));
    let target = format!(
        "/api/v1/jobs/{id}/sanitycheckresult?SanityCheckNumber=1&SanityCheckPhase=DeviceCheck"
    );
    let check = read(&world, "GetJobSanityCheckResult", &target).await;
    assert_eq!(check["SanityCheckResult"][0]["Status"], "Succeeded");

    let target = format!("/api/v1/jobs/{id}/signals");
    let signal = json!({"Signal": "SIGUSR1", "Target": {"Scope": "pods", "PodNames": [pod]}});
    let sent = done(&world, "CreateSignal", "POST", &target, &signal).await;
    world.until(&id, "Succeeded").await;
    let logs = read(&world, "GetPodLogs", &format!("{base}/logs?MaxLines=1")).await;
    assert_eq!(logs["Logs"], json!(["got USR1"]));
    let listed = read(&world, "ListSignals", &target).await;
    assert_eq!(listed["Signals"][0]["SignalId"], sent["SignalId"]);
    let call = ("CreateSignal", "POST", target.as_str());
    refused(&world, call, &json!({"Signal": "SIGTERM"}), "BadRequest", "running").await;
    world.running.shutdown().await;
}

#[tokio::test]
async fn tags_are_those_that_lists_filter_by() {
    let world = virtual_world().await;
    let id = world.create(&body("tagged", "true")).await;
    let tags = json!({"RegionId": "cn-hangzhou", "ResourceType": "Job", "ResourceId": [id],
                      "Tag": [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]});
    done(&world, "TagResources", "POST", "/api/v1/tags", &tags).await;
    let filter = format!("Tags={}", percent_encode(r#"{"a":"1"}"#));
    assert_eq!(world.list(&filter).await.len(), 1);
    let ids = percent_encode(&json!([id]).to_string());
    let target = format!("/api/v1/tags?ResourceType=Job&ResourceId={ids}&TagKey=%5B%22a%22%5D");
    done(&world, "UntagResources", "DELETE", &target, &Value::Null).await;
    assert!(world.list(&filter).await.is_empty());
    assert_eq!(world.get(&id).await["Settings"]["Tags"], json!({"b": "2"}));
    let mut missing = tags.clone();
    missing["ResourceId"] = json!([id, "dlcnone"]);
    let call = ("TagResources", "POST", "/api/v1/tags");
    refused(&world, call, &missing, "NotFound", "dlcnone").await;
    assert_eq!(world.get(&id).await["Settings"]["Tags"], json!({"b": "2"}));
    let mut reserved = tags;
    reserved["Tag"][0]["Key"] = json!("acs:x");
    refused(&world, call, &reserved, "InvalidParameter", "acs:x").await;
    world.running.shutdown().await;
}

#[tokio::test]
async fn other_products_answer_under_their_own_versions() {
    let world = virtual_world().await;
    let wanted = json!({"Name": "run42", "DataSourceType": "OSS", "Property": "DIRECTORY",
                        "Uri": "oss://bucket.oss-cn-hangzhou.aliyuncs.com/team/", "WorkspaceId": "7"});
    let create = ("CreateDataset", "POST", "/api/v1/datasets");
    let made = other(&world, AI_WORKSPACE, create, &wanted).await;
    let id = made["DatasetId"].as_str().expect("an id");
    let target = format!("/api/v1/datasets/{id}");
    let get = ("GetDataset", "GET", target.as_str());
    let seen = other(&world, AI_WORKSPACE, get, &Value::Null).await;
    assert_eq!((&seen["Uri"], &seen["LatestVersion"]["Uri"]), (&wanted["Uri"], &wanted["Uri"]));
    let list = ("ListDatasets", "GET", "/api/v1/datasets?Name=RUN&DataSourceTypes=OSS,NAS");
    let listed = other(&world, AI_WORKSPACE, list, &Value::Null).await;
    assert_eq!(
        (&listed["TotalCount"], &listed["Datasets"][0]["DatasetId"]),
        (&json!(1), &json!(id))
    );
    let again = other(&world, AI_WORKSPACE, create, &wanted).await;
    assert_eq!(again["Code"], "InvalidParameter", "one name, one data set: {again}");
    let delete = ("DeleteDataset", "DELETE", target.as_str());
    other(&world, AI_WORKSPACE, delete, &Value::Null).await;
    assert_eq!(other(&world, AI_WORKSPACE, get, &Value::Null).await["Code"], "NotFound");

    world.admin("POST", "/emulator/market", &json!({"discount": 0.8})).await;
    let call = ("GetSpotPriceHistory", "GET", "/api/v1/spots/ecs.g7.xlarge/pricehistory");
    let history = loop {
        let history = other(&world, PAI_STUDIO, call, &Value::Null).await;
        let items = history["SpotPriceHistory"].as_array().expect("a list").clone();
        if items.len() >= 2 {
            break items;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(history.last().expect("an item")["SpotDiscount"], 0.8);
    // The version tells products apart, not the path alone.
    let wrong = other(&world, "2020-12-03", get, &Value::Null).await;
    assert_eq!(wrong["Code"], "InvalidAction.NotFound");
    let wrong =
        other(&world, "1999-01-01", ("ListJobs", "GET", "/api/v1/jobs"), &Value::Null).await;
    assert_eq!(wrong["Code"], "InvalidVersion");
    world.running.shutdown().await;
}

#[tokio::test]
async fn a_data_set_id_is_mounted_as_what_it_stands_for() {
    let world = World::with(|_| {}).await;
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("there"), "from the data set\n").expect("written");
    let wanted = json!({"Name": "local", "DataSourceType": "OSS", "Property": "DIRECTORY",
                        "Uri": format!("file://{}/", folder.path().display())});
    let create = ("CreateDataset", "POST", "/api/v1/datasets");
    let made = other(&world, AI_WORKSPACE, create, &wanted).await;
    let mut asked = body("reads", "cat /mnt/set/there");
    asked["DataSources"] = json!([{"DataSourceId": made["DatasetId"], "MountPath": "/mnt/set"}]);
    if mounts_are_allowed() {
        let id = world.create(&asked).await;
        world.until(&id, "Succeeded").await;
        let logs = format!("/api/v1/jobs/{id}/pods/{id}-master-0/logs");
        let logs = read(&world, "GetPodLogs", &logs).await;
        assert_eq!(logs["Logs"], json!(["from the data set"]));
    } else {
        let call = ("CreateJob", "POST", "/api/v1/jobs");
        refused(&world, call, &asked, "InvalidParameter", "mount").await;
    }
    world.running.shutdown().await;
}

#[tokio::test]
async fn services_and_templates_are_made_changed_and_ended() {
    let world = virtual_world().await;
    let ray = json!({"DisplayName": "history", "StoragePath": "oss://b/ray/", "WorkspaceId": "7"});
    let path = "/api/v1/rayhistoryservers";
    let made = done(&world, "CreateRayHistoryServer", "POST", path, &ray).await;
    let id = made["RayHistoryServerId"].as_str().expect("an id");
    let one = format!("{path}/{id}");
    let stop = ("StopRayHistoryServer", "POST", &*format!("{one}/stop"));
    done(&world, stop.0, stop.1, stop.2, &Value::Null).await;
    refused(&world, stop, &Value::Null, "BadRequest", id).await;
    assert_eq!(read(&world, "GetRayHistoryServer", &one).await["Status"], "Stopped");
    let listed = read(&world, "ListRayHistoryServers", &format!("{path}?Status=Stopped")).await;
    assert_eq!(listed["TotalCount"], 1);
    done(&world, "DeleteRayHistoryServer", "DELETE", &one, &Value::Null).await;
    let call = ("GetRayHistoryServer", "GET", one.as_str());
    refused(&world, call, &Value::Null, "NotFound", id).await;

    let template = json!({"TemplateName": "t", "WorkspaceId": "7", "Content": "{\"Priority\":1}",
                          "Constraints": {"$.Priority": "locked"}});
    let path = "/api/v1/jobtemplates";
    let made = done(&world, "CreateJobTemplate", "POST", path, &template).await;
    let one = format!("{path}/{}", made["TemplateId"].as_str().expect("an id"));
    let change = json!({"Content": "{\"Priority\":2}", "SetAsDefault": true});
    let changed = done(&world, "UpdateJobTemplate", "PUT", &one, &change).await;
    assert_eq!((&changed["Version"], &changed["DefaultVersion"]), (&json!(2), &json!(2)));
    let seen = read(&world, "GetJobTemplate", &format!("{one}?Version=1")).await;
    assert_eq!(
        (&seen["TotalCount"], &seen["Versions"][0]["Content"]),
        (&json!(1), &json!({"Priority": 1}))
    );
    let wrong = json!({"Content": "no JSON"});
    let call = ("UpdateJobTemplate", "PUT", one.as_str());
    refused(&world, call, &wrong, "InvalidParameter", "Content").await;
    world.running.shutdown().await;
}

/// Status, headers and text of a GetJob.
async fn get_raw(world: &World, id: &str) -> (u16, reqwest::header::HeaderMap, String) {
    let address = world.running.address;
    let target = format!("/api/v1/jobs/{id}");
    let request = signed("2020-12-03", &world.http, address, "GetJob", "GET", &target, "");
    let response = request.send().await.expect("answered");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    (status, headers, response.text().await.expect("a body"))
}

#[tokio::test]
async fn the_switchboard_spoils_throttles_and_denies() {
    let world = virtual_world().await;
    let id = world.create(&body("faulty", "true")).await;
    world.until(&id, "Running").await;
    let rules = json!([
        {"call": "GetJob", "wrong_type": "Status", "times": 1},
        {"call": "GetJob", "wrong_type": "Pods.*.PodId", "becomes": "list", "times": 1},
        {"call": "GetJob", "wrong_type": "JobId", "becomes": "absent", "times": 1},
        {"call": "GetJob", "truncate": 40, "times": 1},
        {"call": "GetJob", "status": 502, "body": "<html>bad gateway</html>", "times": 1},
        {"call": "GetJob", "throttle": true, "retry_after": "1500ms", "times": 1},
        {"call": "StopJob", "access_denied_detail": true, "times": 1},
        {"call": "StopJob", "code": "InternalError", "answer_after": true, "times": 1},
        {"call": "*", "product": "aiworkspace", "code": "ServiceUnavailable"},
    ]);
    let (status, text) = world.admin("PUT", "/emulator/faults?seed=7", &rules).await;
    assert_eq!(status, 200, "{text}");
    let next = || async {
        let (status, headers, text) = get_raw(&world, &id).await;
        assert!(headers.contains_key("date") && headers.contains_key("x-acs-request-id"));
        (status, headers, text)
    };
    let json_of = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let job = json_of(&next().await.2);
    assert_eq!((&job["Status"], &job["Pods"][0]["Status"]), (&json!(7), &json!(7)));
    let job = json_of(&next().await.2);
    assert_eq!((&job["Status"], &job["Pods"][0]["PodId"]), (&json!("Running"), &json!(["spoilt"])));
    assert!(json_of(&next().await.2).get("JobId").is_none());
    let (status, _, text) = next().await;
    assert_eq!((status, text.len()), (200, 40));
    assert!(serde_json::from_str::<Value>(&text).is_err());
    let (status, headers, _) = next().await;
    assert_eq!(status, 502);
    assert!(headers["content-type"].to_str().is_ok_and(|kind| kind.starts_with("text/html")));
    let (status, headers, text) = next().await;
    assert_eq!((status, &headers["x-acs-retry-after"]), (429, &"1500".parse().expect("a value")));
    assert_eq!(json_of(&text)["Code"], "Throttling.User");
    assert_eq!(next().await.0, 200, "each rule acts once");

    let (status, answer) = world.stop(&id).await;
    assert_eq!((status, &answer["Code"]), (403, &json!("Forbidden.RAM")));
    assert_eq!(answer["AccessDeniedDetail"]["AuthAction"], "pai:StopJob");
    for key in ["Message", "RequestId", "HostId", "Recommend"] {
        assert!(answer[key].is_string(), "{key}: {answer}");
    }
    assert_eq!(world.get(&id).await["Status"], "Running", "what is denied is not done");
    let (status, _) = world.stop(&id).await;
    assert_eq!(status, 500);
    world.until(&id, "Stopped").await;
    let list = ("ListDatasets", "GET", "/api/v1/datasets");
    let answer = other(&world, AI_WORKSPACE, list, &Value::Null).await;
    assert_eq!(answer["Code"], "ServiceUnavailable");

    for (wrong, word) in [
        (json!([{"call": "GetJobs", "drop_before": true}]), "GetJobs"),
        (json!([{"call": "GetJob", "wrong_typ": "Status"}]), "wrong_typ"),
        (json!([{"call": "GetJob", "throttle": 2}]), "throttle"),
    ] {
        let (status, why) = world.admin("PUT", "/emulator/faults", &wrong).await;
        assert_eq!(status, 400);
        assert!(why.contains(word), "{why}");
    }
    let (status, left) = world.admin("DELETE", "/emulator/faults", &Value::Null).await;
    assert_eq!((status, left.as_str()), (200, "[]"));
    let (status, why) = world.admin("PUT", "/emulator/fault", &json!([])).await;
    assert!(status == 404 && why.contains("faults"), "{status} {why}");
    let answer = other(&world, AI_WORKSPACE, list, &Value::Null).await;
    assert_eq!(answer["TotalCount"], 0, "{answer}");
    world.running.shutdown().await;
}

#[tokio::test]
async fn one_seed_throttles_the_same_calls() {
    let world = virtual_world().await;
    let rules = json!([{"call": "ListJobs", "throttle": 0.5, "status": 503}]);
    let mut runs = Vec::new();
    for _ in 0..2 {
        world.admin("PUT", "/emulator/faults?seed=3", &rules).await;
        let mut run = Vec::new();
        for _ in 0..20 {
            run.push(world.call("ListJobs", "GET", "/api/v1/jobs", "").await.0);
        }
        runs.push(run);
    }
    assert_eq!(runs[0], runs[1]);
    assert!(runs[0].contains(&200) && runs[0].contains(&503), "{:?}", runs[0]);
    world.running.shutdown().await;
}
