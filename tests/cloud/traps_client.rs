//! Traps of the API that the client must not fall into. The number is that of the list of traps.

use crate::dlc_calls::{id, now, world};
use crate::dlc_golden::{decoded, folder, json_files};
use crate::server::{Reply, Server};
use serde_json::{Value, json};
use spotkeeper::dlc::evidence::{EventQuery, LogQuery};
use spotkeeper::dlc::jobs::{Detail, JobUpdate, ListQuery, Workspace};
use spotkeeper::dlc::list::ListFilter;
use spotkeeper::dlc::wire::{self, Submission, Whole};
use spotkeeper::model::cloud::CloudJob;
use spotkeeper::model::error::Class;
use spotkeeper::model::ids::{JobKey, JobName, Mark, Owner};
use spotkeeper::model::money::Money;
use spotkeeper::model::spec::Bid;
use std::collections::BTreeMap;
use std::path::Path;

fn read(body: &Value) -> CloudJob {
    let text = body.to_string();
    let whole = Whole::decode("GetJob", text.as_bytes(), wire::whole_job).expect("a job");
    assert_eq!(whole.encode(), text, "everything is kept");
    whole.read
}

fn sweep() -> ListFilter {
    ListFilter { display_name: None, start: now() }
}

#[tokio::test]
async fn scenario_77_trap_03_names_are_compared_exactly_and_a_list_that_shifts_is_not_complete() {
    let row = |n: usize, name: &str| json!({"JobId": format!("dlc{n}"), "Status": "Running", "DisplayName": name});
    // The server's filter takes parts of names, in either case.
    let names = [
        "run-1.skk3f9qz-abcdefgh27",
        "run-10.skk3f9qz-abcdefgh27x",
        "run-1.SKK3F9QZ-ABCDEFGH27",
        "skk3f9qz-abcdefgh27 run-1",
    ];
    let rows: Vec<_> = names.iter().enumerate().map(|(n, name)| row(n, name)).collect();
    let page = |rows: &[Value], total: usize| {
        Reply::http(200, &json!({"Jobs": rows, "TotalCount": total}).to_string())
    };
    let many: Vec<_> = (0..150).map(|n| row(n, "x")).collect();
    let server = Server::start(vec![
        page(&rows, 4),
        // A job came in between two pages: the second begins with a row of the first.
        page(&many[..100], 150),
        page(&many[99..149], 151),
        page(&[], 151),
    ])
    .await;
    let world = world(&server.url);
    let dlc = &world.dlc;
    let pass = dlc.list_jobs(&sweep(), now()).await.expect("a pass").value;
    let ours: Vec<_> = pass.jobs.iter().map(|job| job.stamp.name.is_some()).collect();
    assert_eq!((pass.complete(), ours), (true, vec![true, false, false, false]));
    let pass = dlc.list_jobs(&sweep(), now()).await.expect("a pass").value;
    assert_eq!((pass.complete(), pass.jobs.len()), (false, 149));
    let asked: Vec<_> = server
        .seen()
        .iter()
        .map(|seen| {
            decoded(seen.target().2).into_iter().find(|(n, _)| n == "PageNumber").expect("a page").1
        })
        .collect();
    assert_eq!(asked, ["1", "1", "2", "3"]);
}

fn stamped(mut body: Value, bid: Bid) -> serde_json::Map<String, Value> {
    let (owner, mark) =
        (Owner::new("k3f9qz").expect("an owner"), Mark::new("abcdefgh27").expect("a mark"));
    let job = JobKey { name: JobName::new("sft").expect("a name"), run: 1 };
    let ours = Submission {
        owner: &owner,
        mark: &mark,
        job: &job,
        attempt: 1,
        workspace: "12345",
        user_command: "go",
        bid: Some(bid),
        resume_path: None,
        resume_step: None,
    };
    let body = body.as_object_mut().expect("an object");
    wire::stamp_body(body, &ours).expect("a body");
    body.clone()
}

#[tokio::test]
async fn trap_05_the_workspace_is_always_named() {
    let server = Server::start(vec![Reply::http(200, r#"{"Jobs":[],"TotalCount":0}"#)]).await;
    let world = world(&server.url);
    let dlc = &world.dlc;
    dlc.list_jobs(&sweep(), now()).await.expect("a pass");
    dlc.list_page(&ListQuery::default(), now()).await.expect("a page");
    let body = stamped(json!({"WorkspaceId": ""}), Bid::Discount(Money(400_000)));
    dlc.create_job(&body, &BTreeMap::new(), now()).await;
    // Left out only where somebody says so.
    let unsent = ListQuery { workspace: Workspace::Unsent, ..ListQuery::default() };
    dlc.list_page(&unsent, now()).await.expect("a page");
    let seen = server.seen();
    for list in &seen[..2] {
        assert!(list.line.contains("WorkspaceId=12345"), "{}", list.line);
    }
    let body: Value = serde_json::from_slice(&seen[2].body).expect("JSON");
    assert_eq!(body["WorkspaceId"], "12345");
    assert_eq!(seen[3].line, "GET /api/v1/jobs HTTP/1.1");
}

#[tokio::test]
async fn trap_12_prices_reach_the_wire_in_their_own_text() {
    let server = Server::start(vec![Reply::http(200, r#"{"JobId":"dlc1"}"#)]).await;
    let world = world(&server.url);
    let dlc = &world.dlc;
    for price in ["0.4", "0.011", "0.1", "0.00001", "0.000001", "34.74"] {
        let bid = Bid::PricePerMinute(Money::parse(price).expect("a price"));
        // What the job file itself brings keeps its text as well.
        let own = r#"{"JobSpecs":[{}],"A":0.50,"B":1e-5,"C":12345678901234567890,"D":0.4000000059604645}"#;
        let body = stamped(serde_json::from_str(own).expect("JSON"), bid);
        dlc.create_job(&body, &BTreeMap::new(), now()).await;
        let sent = String::from_utf8(server.seen().pop().expect("a request").body).expect("UTF-8");
        for part in [
            &format!("\"SpotPriceLimit\":{price},"),
            r#""A":0.50,"#,
            r#""B":1e-5,"#,
            r#""C":12345678901234567890,"#,
            r#""D":0.4000000059604645,"#,
        ] {
            assert!(sent.contains(part), "{part} in {sent}");
        }
    }
}

#[test]
fn trap_14_a_reason_is_json_or_text_or_nothing_and_event_lines_are_only_lines() {
    let report = json!({"overview": "o", "content": [{"pods": {"Worker": [0]}, "reason": "137"}]});
    for (message, kept, exits) in [
        (json!(report.to_string()), report.to_string(), vec![137]),
        (
            json!("PyTorchJob dlc1 failed: exit 137"),
            "PyTorchJob dlc1 failed: exit 137".into(),
            vec![],
        ),
        (json!("{\"overview\": cut"), "{\"overview\": cut".into(), vec![]),
        (json!(""), String::new(), vec![]),
        (json!(null), String::new(), vec![]),
        (report.clone(), String::new(), vec![]),
    ] {
        let job = read(&json!({"JobId": "dlc1", "Status": "Failed", "ReasonMessage": message}));
        assert_eq!(job.reason_message, kept);
        assert_eq!(job.exits.iter().map(|exit| exit.code).collect::<Vec<_>>(), exits, "{kept}");
    }
    // Local times without a zone, none at all, impossible ones: the lines come as they are.
    let lines =
        ["2026-01-12 22:35:02 Normal x", "9999-99-99 99:99:99 y", "no time", "{\"a\":1}", ""];
    assert_eq!(wire::job_events(&json!({"Events": lines})).expect("events"), lines);
    assert_eq!(wire::pod_events(&json!({"Events": null})).expect("events"), Vec::<String>::new());
}

#[test]
fn trap_15_types_wobble_between_calls_and_nothing_is_lost() {
    let bare = read(&json!({"JobId": "dlc1", "Status": "Running"}));
    for (name, forms) in [
        ("RequestGPU", vec![json!(8), json!("8"), json!(8.0)]),
        ("NodeNames", vec![json!(["a", "b"]), json!("a,b"), json!(null)]),
        ("RequestID", vec![json!("r")]),
        ("ExtendedCIDRs", vec![json!([]), json!("x")]),
        ("UserVpc", vec![json!({"ExtendedCidrs": []}), json!(""), json!(null)]),
        ("GmtRunningTime", vec![json!(""), json!(null), json!("0001-01-01T00:00:00Z")]),
        ("Pods", vec![json!([]), json!(null), json!("")]),
        ("Envs", vec![json!({}), json!([]), json!(""), json!(null)]),
        ("RestartTimes", vec![json!(""), json!("0/10"), json!(null), json!(0)]),
    ] {
        for form in forms {
            let mut body = json!({"JobId": "dlc1", "Status": "Running"});
            body[name] = form.clone();
            assert_eq!(read(&body), bare, "{name} {form}");
        }
    }
    for name in ["RequestId", "RequestID", "requestId"] {
        assert_eq!(wire::request_id(&json!({name: "r"})).as_deref(), Some("r"), "{name}");
    }
    for duration in [json!(2650), json!("2650"), json!(2650.0)] {
        let body = json!({"JobId": "dlc1", "Status": "Running", "Duration": duration});
        assert_eq!(read(&body).duration_s, Some(2650));
    }
}

#[tokio::test]
async fn trap_16_pods_are_taken_from_the_answer_and_replaced_ones_by_their_uid() {
    let answers = json_files(&folder().join("responses"));
    let (_, job) =
        answers.iter().find(|(n, _)| n == "get_job.restarting_in_place").expect("a body");
    let pods = wire::every_pod(job);
    let ids: Vec<_> = pods.iter().map(|pod| (pod.id.as_str(), &pod.uid[..8])).collect();
    // One id, two pods: a single Worker, shown as a master.
    assert_eq!(
        ids,
        [
            ("dlc1a2b3c4d5e6f7g8h-master-0", "0b6d2c5e"),
            ("dlc1a2b3c4d5e6f7g8h-master-0", "fe846462")
        ]
    );
    assert_eq!(wire::every_pod(&json!({"Pods": [{"HistoryPods": "x"}, 7, null]})).len(), 3);

    let server = Server::start(vec![Reply::http(200, r#"{"Logs":["l"],"Events":["e"]}"#)]).await;
    let world = world(&server.url);
    let dlc = &world.dlc;
    for pod in &pods {
        let pod_uid = Some(pod.uid.clone());
        let logs = LogQuery { pod_uid: pod_uid.clone(), ..LogQuery::default() };
        assert_eq!(
            dlc.pod_logs(&id(), &pod.id, &logs, now()).await.expect("a log").value.read,
            ["l"]
        );
        let events = EventQuery { pod_uid, ..EventQuery::default() };
        let found = dlc.pod_events(&id(), &pod.id, &events, now()).await.expect("events");
        assert_eq!(found.value.read, ["e"]);
    }
    for (seen, pod) in server.seen().iter().zip([&pods[0], &pods[0], &pods[1], &pods[1]]) {
        assert_eq!(decoded(seen.target().2), [("PodUid".to_owned(), pod.uid.clone())]);
    }
}

#[tokio::test]
async fn trap_17_windows_and_counts_are_asked_for_and_never_left_to_the_server() {
    let server = Server::start(vec![Reply::http(200, r#"{"Logs":["l"],"Events":["e"]}"#)]).await;
    let world = world(&server.url);
    let dlc = &world.dlc;
    dlc.get_job_events(&id(), now(), now()).await.expect("events");
    dlc.get_pod_logs(&id(), "p", "", 50, now()).await.expect("a log");
    let seen = server.seen();
    let names =
        |n: usize| decoded(seen[n].target().2).into_iter().map(|(n, _)| n).collect::<Vec<_>>();
    assert_eq!(names(0), ["MaxEventsNum", "StartTime"]);
    assert_eq!(names(1), ["MaxLines"]);
}

#[test]
fn trap_18_nothing_deletes_a_job_by_itself() {
    fn look(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = path.to_string_lossy().into_owned();
            // The client has the call, the stand-in answers it; whoever else asks for it must be a person.
            if path.is_dir() && !text.ends_with("src/dlc") && !text.ends_with("src/emulator") {
                look(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let source = std::fs::read_to_string(&path).expect("UTF-8");
                if source.contains("delete_job") || source.contains("DeleteJob") {
                    found.push(text);
                }
            }
        }
    }
    let mut found = Vec::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[tokio::test]
async fn trap_19_only_the_code_says_that_there_is_no_such_job() {
    for (body, gone, class) in [
        (r#"{"Code":"NotFound","Message":"m"}"#, true, Class::Operator),
        (r#"{"code":"NotFound","message":"m"}"#, true, Class::Operator),
        (r#"{"Code":"InvalidAccessKeyId.NotFound","Message":"m"}"#, false, Class::Operator),
        (r#"{"Code":"InvalidAction.NotFound","Message":"m"}"#, false, Class::Bug),
        ("<html>404 Not Found</html>", false, Class::Retry),
        ("", false, Class::Retry),
        ("{}", false, Class::Retry),
    ] {
        let server = Server::start(vec![Reply::http(404, body)]).await;
        let world = world(&server.url);
        let dlc = &world.dlc;
        let error = dlc.get_job(&id(), now()).await.expect_err("no job");
        assert_eq!((error.says_no_such_job(), error.class()), (gone, class), "{body}: {error}");
        let shown = dlc.show_job("dlc1", Detail::Full, now()).await.expect_err("no job");
        assert_eq!(shown.says_no_such_job(), gone, "{body}");
    }
}

#[tokio::test]
async fn trap_25_an_update_that_was_taken_claims_no_effect() {
    let taken = r#"{"JobId":"dlc1","RequestId":"r"}"#;
    let job = r#"{"JobId":"dlc1","Status":"Queuing","Priority":1}"#;
    let server = Server::start(vec![
        Reply::http(200, taken),
        Reply::http(200, job),
        Reply::http(200, r#"{"JobId":"dlc2"}"#),
        Reply::http(200, "<html>"),
    ])
    .await;
    let world = world(&server.url);
    let dlc = &world.dlc;
    let update = JobUpdate { priority: Some(9), ..JobUpdate::default() };
    let answer = dlc.update_job(&id(), &update, now()).await.expect("taken");
    assert_eq!(answer.value.encode(), taken);
    // What came of it stands in the job alone.
    let job = dlc.show_job("dlc1", Detail::Full, now()).await.expect("a job").value;
    assert_eq!(job.body["Priority"], 1);
    let seen = server.seen();
    assert_eq!(
        (seen[0].target().0, seen[0].body.as_slice()),
        ("PUT", br#"{"Priority":9}"#.as_slice())
    );
    for _ in 0..2 {
        dlc.update_job(&id(), &update, now()).await.expect_err("not about this job");
    }
}

#[test]
fn trap_27_our_environment_is_found_in_either_place() {
    let envs = json!({"SPOTKEEPER_OWNER": "k3f9qz", "SPOTKEEPER_MARK": "abcdefgh27", "SPOTKEEPER_JOB": "sft"});
    let list: Vec<_> = envs
        .as_object()
        .expect("an object")
        .iter()
        .map(|(key, value)| json!({"Key": key, "Value": value, "Visible": ""}))
        .collect();
    let stamp = |more: Value| {
        let mut body = json!({"JobId": "dlc1", "Status": "Running"});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        read(&body).stamp
    };
    let want = stamp(json!({"Envs": envs}));
    assert!(want.env.is_some() && want.job.as_deref() == Some("sft"), "{want:?}");
    assert_eq!(stamp(json!({"CustomEnvs": list})), want);
    assert_eq!(stamp(json!({"CustomEnvs": list, "Envs": {}})), want);
    assert_eq!(stamp(json!({"CustomEnvs": list, "Envs": null})), want);
    assert_eq!(stamp(json!({"CustomEnvs": envs, "Envs": ""})), want);
}
