//! The parameters of each recorded request of the official SDK, through our own typed calls: what
//! reaches a socket is the same request. What may differ is listed here, by name and with its reason.

use crate::dlc_calls::{now, place};
use crate::dlc_golden::{Recording, decoded, folder, json_files};
use crate::server::{Reply, Seen, Server};
use serde_json::{Value, json};
use spotkeeper::dlc::client::Dlc;
use spotkeeper::dlc::evidence::{EventQuery, LogQuery, MetricQuery, SanityQuery};
use spotkeeper::dlc::jobs::{Detail, JobUpdate, ListQuery, NumericRange, Order, Whose, Workspace};
use spotkeeper::dlc::prices::PriceQuery;
use spotkeeper::dlc::specs::SpecQuery;
use spotkeeper::dlc::wire::SpotStock;
use spotkeeper::model::cloud::Status;
use spotkeeper::model::ids::{CloudId, Owner};
use spotkeeper::model::money::Money;
use spotkeeper::model::secret::Secret;
use spotkeeper::model::time::WallTime;
use spotkeeper::openapi::client::PlainHttp;
use spotkeeper::openapi::credentials::Keychain;
use spotkeeper::openapi::signature::{Signable, authorization, sha256_hex};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Recordings signed with ACS3-HMAC-SHA256, less the two calls that spotkeeper does not make.
const RECORDINGS: usize = 51;
/// `create_signal` has no documented value; `tag_resources` is for bills: job tags go by Settings.Tags.
const NOT_CALLED: [&str; 2] = ["create_signal", "tag_resources"];

/// Headers that the gateway requires, each of which has to be signed.
const REQUIRED: [&str; 6] = [
    "host",
    "x-acs-action",
    "x-acs-version",
    "x-acs-date",
    "x-acs-signature-nonce",
    "x-acs-content-sha256",
];
/// Those that it requires of temporary keys.
const REQUIRED_OF_STS: [&str; 2] = ["x-acs-accesskey-id", "x-acs-security-token"];

/// Difference "truth values": Python writes `True` and `False` where everybody else, the command line
/// of Alibaba included, writes `true` and `false`. Difference "tags": JSON text whose keys may stand
/// in another order.
fn query(raw: &str) -> BTreeMap<String, Value> {
    let value = |text: String| match text.as_str() {
        "True" | "False" => Value::String(text.to_lowercase()),
        other => match serde_json::from_str(other) {
            Ok(tags @ Value::Object(_)) => tags,
            _ => Value::String(text),
        },
    };
    decoded(raw).into_iter().map(|(name, text)| (name, value(text))).collect()
}

/// Difference "empty lists": the SDK sends `[]` for lists that nobody gave.
fn without_empty_lists(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| value.as_array().is_none_or(|list| !list.is_empty()))
            .map(|(name, value)| (name, without_empty_lists(value)))
            .collect(),
        Value::Array(items) => items.into_iter().map(without_empty_lists).collect(),
        plain => plain,
    }
}

/// The parameters of a recording; each is to be taken exactly once.
struct Given(BTreeMap<String, String>);

impl Given {
    fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn read<T: FromStr<Err: std::fmt::Debug>>(&mut self, name: &str) -> Option<T> {
        self.text(name).map(|text| text.parse().expect(name))
    }

    fn time(&mut self, name: &str) -> Option<WallTime> {
        self.text(name).map(|text| WallTime::parse(&text).expect(name))
    }

    fn flag(&mut self, name: &str) -> Option<bool> {
        self.text(name).map(|text| text.to_lowercase().parse().expect(name))
    }

    fn list(&mut self, name: &str) -> Vec<String> {
        self.text(name)
            .into_iter()
            .flat_map(|t| t.split(',').map(str::to_owned).collect::<Vec<_>>())
            .collect()
    }

    fn order(&mut self) -> Option<Order> {
        self.text("Order").map(|word| match word.as_str() {
            "asc" => Order::Ascending,
            "desc" => Order::Descending,
            other => panic!("{other}"),
        })
    }

    fn list_query(&mut self) -> ListQuery {
        let ids = |texts: Vec<String>| texts.into_iter().map(|id| CloudId::new(id).expect("an id"));
        ListQuery {
            workspace: self.text("WorkspaceId").map_or(Workspace::Unsent, Workspace::Id),
            whose: match (self.flag("ShowOwn"), self.flag("FromAllWorkspaces")) {
                (Some(true), Some(true)) => Whose::OwnInAllWorkspaces,
                (Some(true), _) => Whose::Own,
                _ => Whose::Everybodys,
            },
            accessibility: self.text("Accessibility"),
            business_user_id: self.text("BusinessUserId"),
            caller: self.text("Caller"),
            description: self.text("Description"),
            display_name: self.text("DisplayName"),
            display_name_search_mode: self.text("DisplayNameSearchMode"),
            enable_assign_node: self.flag("EnableAssignNode"),
            end: self.time("EndTime"),
            image_search: self.text("ImageSearch"),
            job_id: ids(self.list("JobId")).next(),
            job_ids: ids(self.list("JobIds")).collect(),
            job_type: self.text("JobType"),
            numeric_range: self.text("NumericRangeField").map(|field| NumericRange {
                field,
                min: self.read("NumericRangeMin"),
                max: self.read("NumericRangeMax"),
            }),
            order: self.order(),
            oversold_info: self.text("OversoldInfo"),
            page: self.read("PageNumber"),
            page_size: self.read("PageSize"),
            payment_type: self.text("PaymentType"),
            pipeline_id: self.text("PipelineId"),
            reason_search: self.text("ReasonSearch"),
            resource_id: self.text("ResourceId"),
            resource_ids: self.list("ResourceIds"),
            resource_quota_name: self.text("ResourceQuotaName"),
            sort_by: self.text("SortBy"),
            start: self.time("StartTime"),
            status: self.text("Status").map(|word| Status::from_word(&word)),
            tags: self
                .text("Tags")
                .map(|t| serde_json::from_str(&t).expect("tags"))
                .unwrap_or_default(),
            template_id: self.text("TemplateId"),
            time_range_field: self.text("TimeRangeField"),
            user_command_search: self.text("UserCommandSearch"),
            user_id: self.text("UserIdForFilter"),
            username: self.text("Username"),
        }
    }

    fn event_query(&mut self) -> EventQuery {
        EventQuery {
            start: self.time("StartTime"),
            end: self.time("EndTime"),
            limit: self.read("MaxEventsNum"),
            pod_uid: self.text("PodUid"),
        }
    }

    fn log_query(&mut self) -> LogQuery {
        LogQuery {
            pod_uid: self.text("PodUid"),
            start: self.time("StartTime"),
            end: self.time("EndTime"),
            limit: self.read("MaxLines"),
            download_to_file: self.flag("DownloadToFile"),
            containers: self.text("Containers"),
        }
    }

    fn metric_query(&mut self) -> MetricQuery {
        MetricQuery {
            metric: self.text("MetricType").expect("a metric"),
            start: self.time("StartTime"),
            end: self.time("EndTime"),
            step: self.text("TimeStep"),
            token: self.text("Token").map(Secret::new),
        }
    }

    fn sanity_query(&mut self) -> SanityQuery {
        SanityQuery {
            number: self.read("SanityCheckNumber").expect("a number"),
            phase: self.text("SanityCheckPhase"),
            token: self.text("Token").map(Secret::new),
        }
    }

    fn spec_query(&mut self) -> SpecQuery {
        SpecQuery {
            resource_type: self.text("ResourceType"),
            accelerator: self.text("AcceleratorType"),
            instance_types: self.list("InstanceTypes"),
            page: self.read("PageNumber"),
            page_size: self.read("PageSize"),
            order: self.order(),
            sort_by: self.text("SortBy"),
        }
    }
}

/// Makes the call of a recording with its parameters. What is answered does not matter here.
async fn call(dlc: &Dlc, recording: &Recording<'_>) {
    let (path, raw) = recording.path_and_query();
    let mut given = Given(decoded(raw).into_iter().collect());
    let segments: Vec<_> = path
        .split('/')
        .map(|part| decoded(part).pop().map_or_else(String::new, |(name, _)| name))
        .collect();
    let job = segments.get(4).cloned().unwrap_or_default();
    let pod = segments.get(6).map_or("", String::as_str);
    let id = || CloudId::new(job.clone()).expect("an id");
    let body: Value = recording.value["body"]
        .as_str()
        .map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"));
    let now = now();
    match recording.name.split('.').next().expect("a name") {
        "create_job" => {
            let ours = without_empty_lists(body);
            let ours = ours.as_object().expect("an object");
            dlc.create_job(ours, &BTreeMap::new(), now).await;
        }
        "list_jobs" => drop(dlc.list_page(&given.list_query(), now).await),
        "get_job" => {
            let detail = given.flag("NeedDetail");
            let detail = if detail == Some(false) { Detail::Brief } else { Detail::Full };
            drop(dlc.show_job(&job, detail, now).await);
        }
        "stop_job" => drop(dlc.stop_job(&id(), now).await),
        "delete_job" => drop(dlc.delete_job(&id(), now).await),
        "update_job" => {
            let text = |name: &str| body[name].as_str().map(str::to_owned);
            let update = JobUpdate {
                priority: body["Priority"].as_u64().map(|n| u8::try_from(n).expect("1 to 9")),
                accessibility: text("Accessibility"),
                description: text("Description"),
                job_specs: body["JobSpecs"].as_array().cloned().unwrap_or_default(),
                user_command: text("UserCommand"),
            };
            drop(dlc.update_job(&id(), &update, now).await);
        }
        "get_job_events" => drop(dlc.job_events(&id(), &given.event_query(), now).await),
        "get_pod_events" => drop(dlc.pod_events(&id(), pod, &given.event_query(), now).await),
        "get_pod_logs" => drop(dlc.pod_logs(&id(), pod, &given.log_query(), now).await),
        "get_job_metrics" => drop(dlc.job_metrics(&id(), &given.metric_query(), now).await),
        "get_job_sanity_check_result" => {
            drop(dlc.sanity_check(&id(), &given.sanity_query(), now).await);
        }
        "list_ecs_specs" => drop(dlc.list_ecs_specs(&given.spec_query(), now).await),
        other => panic!("{other}: a recording of a call that is not made here"),
    }
    assert_eq!(given.0, BTreeMap::new(), "{}: parameters that our call has not", recording.name);
}

/// Every header that the gateway requires is there and signed, and the signature is right.
fn check_headers(seen: &Seen, recording: &Recording<'_>) {
    let name = recording.name;
    let header = |wanted: &str| seen.header(wanted).unwrap_or_else(|| panic!("{name}: {wanted}"));
    let signed = header("authorization").split(',').nth(1).expect("a list");
    let signed: Vec<_> = signed.strip_prefix("SignedHeaders=").expect("names").split(';').collect();
    let mut required = REQUIRED.to_vec();
    if recording.header("x-acs-security-token").is_some() {
        required.extend(REQUIRED_OF_STS);
    }
    if !seen.body.is_empty() {
        required.push("content-type");
    }
    for wanted in required {
        assert!(signed.contains(&wanted) && !header(wanted).is_empty(), "{name}: {wanted}");
    }
    for same in [
        "x-acs-action",
        "x-acs-version",
        "x-acs-security-token",
        "x-acs-accesskey-id",
        "accept",
        "content-type",
    ] {
        assert_eq!(seen.header(same), recording.header(same), "{name}: {same}");
    }
    let hash = sha256_hex(&seen.body);
    assert_eq!(header("x-acs-content-sha256"), hash, "{name}");
    let headers: Vec<_> = signed.iter().map(|n| ((*n).to_owned(), header(n).to_owned())).collect();
    let (method, path, raw) = seen.target();
    let query = decoded(raw);
    let signable = Signable { method, path, query: &query, headers: &headers };
    let right = authorization(&signable, &hash, "testid", &Secret::new("testsecret"));
    assert_eq!(header("authorization"), right, "{name}");
}

fn client(url: &str, token: Option<&str>) -> (Dlc, tempfile::NamedTempFile) {
    let (place, keys) = place(url);
    let token = token.map_or_else(String::new, |token| format!("security_token = \"{token}\"\n"));
    let text = format!("access_key_id = \"testid\"\naccess_key_secret = \"testsecret\"\n{token}");
    std::fs::write(keys.path(), text).expect("a write");
    let owner = Owner::new("k3f9qz").expect("an owner");
    let dlc = Dlc::new(&place, owner, &Keychain::default(), PlainHttp::Loopback);
    (dlc.expect("a client"), keys)
}

#[tokio::test]
async fn each_recorded_call_reaches_the_socket_as_the_sdk_sends_it() {
    let server = Server::start(vec![Reply::http(200, "{}")]).await;
    let (plain, _plain_keys) = client(&server.url, None);
    let (sts, _sts_keys) = client(&server.url, Some("teststs+token/with=chars=="));
    let mut compared = 0;
    for (name, value) in &json_files(&folder()) {
        let skipped = NOT_CALLED.iter().any(|call| name.starts_with(call));
        if name.ends_with("roa-hmac-sha1") || skipped {
            continue;
        }
        let recording = Recording { name, value };
        let temporary = recording.header("x-acs-security-token").is_some();
        call(if temporary { &sts } else { &plain }, &recording).await;
        compared += 1;
        let seen = server.seen();
        assert_eq!(seen.len(), compared, "{name}: one request for one call");
        let seen = &seen[compared - 1];
        let (method, path, raw) = seen.target();
        let (recorded_path, recorded_query) = recording.path_and_query();
        assert_eq!((method, path), (recording.text("method"), recorded_path), "{name}");
        assert_eq!(query(raw), query(recorded_query), "{name}");
        let read = |text: &[u8]| match text {
            b"" => Value::Null,
            text => without_empty_lists(serde_json::from_slice(text).expect("JSON")),
        };
        // Numbers are compared by their own text.
        assert_eq!(
            read(&seen.body),
            read(value["body"].as_str().unwrap_or("").as_bytes()),
            "{name}"
        );
        check_headers(seen, &recording);
    }
    assert_eq!(compared, RECORDINGS);
}

#[tokio::test]
async fn every_filter_of_the_newest_sdk_can_be_sent() {
    let names = "Accessibility BusinessUserId Caller Description DisplayName DisplayNameSearchMode \
        EnableAssignNode EndTime FromAllWorkspaces ImageSearch JobId JobIds JobType \
        NumericRangeField NumericRangeMax NumericRangeMin Order OversoldInfo PageNumber PageSize \
        PaymentType PipelineId ReasonSearch ResourceId ResourceIds ResourceQuotaName ShowOwn SortBy \
        StartTime Status Tags TemplateId TimeRangeField UserCommandSearch UserIdForFilter Username \
        WorkspaceId";
    let value = |name: &str| match name {
        "EnableAssignNode" | "FromAllWorkspaces" | "ShowOwn" => "true".to_owned(),
        "EndTime" | "StartTime" => "2026-01-05T00:00:00Z".to_owned(),
        "NumericRangeMax" | "NumericRangeMin" | "PageNumber" | "PageSize" => "7".to_owned(),
        "Order" => "asc".to_owned(),
        "JobIds" | "ResourceIds" => "dlc1,dlc2".to_owned(),
        "Tags" => r#"{"a b":"ü\"","k":"v"}"#.to_owned(),
        other => format!("x{other}"),
    };
    let want: BTreeMap<_, _> =
        names.split_whitespace().map(|name| (name.to_owned(), value(name))).collect();
    let mut given = Given(want.clone());
    let server = Server::start(vec![Reply::http(200, r#"{"Jobs":[],"TotalCount":0}"#)]).await;
    let (dlc, _keys) = client(&server.url, None);
    dlc.list_page(&given.list_query(), now()).await.expect("a page");
    assert_eq!(given.0, BTreeMap::new());
    let seen = server.seen().pop().expect("a request");
    assert_eq!(decoded(seen.target().2), want.into_iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn prices_and_data_sets_are_asked_of_their_own_products() {
    let golden = folder().join("responses/paistudio.get_spot_price_history.json");
    let prices = std::fs::read_to_string(golden).expect("a body");
    let dataset = json!({
        "DatasetId": "d-1", "Name": "data", "Uri": "oss://bucket.oss-cn-hangzhou.aliyuncs.com/a/",
        "LatestVersion": {"VersionName": "v2", "Uri": "oss://bucket.oss-cn-hangzhou.aliyuncs.com/b/"},
    });
    let server =
        Server::start(vec![Reply::http(200, &prices), Reply::http(200, &dataset.to_string())])
            .await;
    let (dlc, _keys) = client(&server.url, None);
    let query = PriceQuery {
        start: WallTime::parse("2026-01-10T00:00:00Z"),
        end: WallTime::parse("2026-01-12T00:00:00Z"),
        page: Some(1),
        page_size: Some(10),
        order: Some(Order::Descending),
        sort_by: Some("GmtCreatedTime".to_owned()),
        safe_hours: Some(0),
    };
    let history = dlc.spot_price_history("ml.gu7ef.8xlarge-gu100", &query, now()).await;
    let history = history.expect("a history").value.read;
    let found: Vec<_> = history.rows.into_iter().map(|row| row.expect("a row").discount).collect();
    assert_eq!(found, [Money(180_000), Money(210_000)]);
    assert_eq!(history.total, Some(2));
    let found = dlc.get_dataset("d-1", now()).await.expect("a data set").value.read;
    assert_eq!(found.uri, "oss://bucket.oss-cn-hangzhou.aliyuncs.com/a/");
    assert_eq!(
        found.latest.expect("a version").uri,
        "oss://bucket.oss-cn-hangzhou.aliyuncs.com/b/"
    );
    let seen = server.seen();
    let asked: Vec<_> = seen
        .iter()
        .map(|seen| (seen.line.as_str(), seen.header("x-acs-version"), seen.header("x-acs-action")))
        .collect();
    assert_eq!(
        asked,
        [
            (
                "GET /api/v1/spots/ml.gu7ef.8xlarge-gu100/pricehistory?EndTime=2026-01-12T00%3A00%3A00Z\
                 &Order=desc&PageNumber=1&PageSize=10&SortBy=GmtCreatedTime&SpotDuration=0\
                 &StartTime=2026-01-10T00%3A00%3A00Z HTTP/1.1",
                Some("2022-01-12"),
                Some("GetSpotPriceHistory")
            ),
            ("GET /api/v1/datasets/d-1 HTTP/1.1", Some("2021-02-04"), Some("GetDataset")),
        ]
    );
}

#[tokio::test]
async fn specs_tell_spot_stock_and_discount() {
    let body = json!({"TotalCount": 4, "EcsSpecs": [
        {"InstanceType": "a", "SpotStockStatus": "WithStock", "NonProtectSpotDiscount": 0.18,
         "PaymentTypes": ["PostPaid", "Spot"], "IsAvailable": true, "Gpu": 8, "Memory": "128"},
        {"InstanceType": "b", "SpotStockStatus": "NoStock", "NonProtectSpotDiscount": "0.9"},
        {"InstanceType": "c", "SpotStockStatus": null, "NonProtectSpotDiscount": 1e-1},
        {"NonProtectSpotDiscount": 0.1},
    ]});
    let server = Server::start(vec![Reply::http(200, &body.to_string())]).await;
    let (dlc, _keys) = client(&server.url, None);
    let specs = dlc.list_ecs_specs(&SpecQuery::default(), now()).await.expect("specs").value;
    assert_eq!(specs.encode(), body.to_string());
    let rows: Vec<_> = specs.read.rows.iter().filter_map(|row| row.as_ref().ok()).collect();
    let spot: Vec<_> = rows.iter().map(|row| (&row.spot_stock, row.spot_discount)).collect();
    assert_eq!(
        spot,
        [
            (&SpotStock::WithStock, Some(Money(180_000))),
            (&SpotStock::Other("NoStock".to_owned()), Some(Money(900_000))),
            (&SpotStock::Unsaid, Some(Money(100_000))),
        ]
    );
    assert_eq!(
        (rows[0].gpus, rows[0].memory_gib, rows[0].available),
        (Some(8), Some(128), Some(true))
    );
    let nameless = specs.read.rows[3].as_ref().expect_err("no name").to_string();
    assert!(nameless.contains("InstanceType"), "{nameless}");
}
