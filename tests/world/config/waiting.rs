//! `[waiting]` and `[[placements]]`: what is read, and what can do nothing.

use super::{JOB, daemon, read, short};
use spotkeeper::config::daemon::{Surroundings, read_daemon};
use spotkeeper::config::diagnostic::Source;
use spotkeeper::config::job::{Rules, read_job};
use spotkeeper::model::money::Money;
use spotkeeper::model::placement::Machines;
use spotkeeper::model::spec::{Bid, JobSpec};
use spotkeeper::model::waiting::WaitAct;
use std::path::Path;
use std::time::Duration;

const QUEUING: &str =
    "queuing = { after = \"30m\", then = [\"notify\", \"raise_bid\", \"next_placement\"] }";

fn with(tables: &str) -> String {
    format!("{JOB}{tables}\n")
}

fn money(text: &str) -> Money {
    Money::parse(text).expect(text)
}

fn spec(text: &str) -> JobSpec {
    let file = read(text);
    file.spec.unwrap_or_else(|| panic!("{:?}\n{text}", file.diagnostics))
}

#[test]
fn limits_and_placements_are_read_as_they_are_written() {
    let spec = spec(&with(&format!(
        "[waiting]\n{QUEUING}\npreparing = {{ after = \"1h\", then = [\"fail\"] }}\nmax_discount = 0.7\n\
         [[placements]]\nEcsSpec = \"ecs.gn7i-c8g1.2xlarge\"\nPodCount = 4\n\
         spot = {{ discount_limit = 0.6 }}\nlist_price_per_hour = \"9.5\"\n\
         [[placements]]\non_demand = true\n"
    )));
    let queuing = spec.waiting.queuing.as_ref().expect("a limit");
    assert_eq!(queuing.after, Duration::from_secs(1_800));
    assert_eq!(queuing.then, [WaitAct::Notify, WaitAct::RaiseBid, WaitAct::NextPlacement]);
    assert_eq!(spec.waiting.preparing.as_ref().expect("a limit").then, [WaitAct::Fail]);
    assert_eq!(
        (spec.waiting.bidding.as_ref(), spec.waiting.max_discount),
        (None, Some(money("0.7")))
    );
    assert_eq!(spec.placements.len(), 2);
    assert_eq!(spec.placements[1].machines, Machines::OnDemand);
    // The job itself, then each placement on the job itself, and never on the one before it.
    assert_eq!(spec.at(0), spec);
    let (first, second) = (spec.at(1), spec.at(2));
    let role = |spec: &JobSpec| spec.body["JobSpecs"][0].clone();
    assert_eq!(role(&first)["EcsSpec"], "ecs.gn7i-c8g1.2xlarge");
    assert_eq!(role(&first)["PodCount"], 4);
    assert_eq!(first.spot, Some(Bid::Discount(money("0.6"))));
    assert_eq!(first.list_price_per_hour, Some(money("9.5")));
    assert_eq!((role(&second), second.spot), (role(&spec), None));
    assert_eq!(spec.at(9), second);
    assert_eq!((&first.target, &first.checkpoint), (&spec.target, &spec.checkpoint));
}

#[test]
fn a_placement_takes_the_bid_and_the_size_of_the_body_itself_away() {
    let text = with("[[placements]]\non_demand = true\nEcsSpec = \"ecs.x\"\n[waiting]\nqueuing = { after = \"1h\", then = [\"next_placement\"] }")
        .replace("[spot]\ndiscount_limit = 0.4\n", "")
        .replace(
            "EcsSpec = \"ecs.gn7e-c16g1.4xlarge\"",
            "ResourceConfig = { GPU = \"1\", CPU = \"8\", Memory = \"32Gi\" }\nSpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotDiscountLimit = 0.4 }",
        );
    let spec = spec(&text);
    let role = &spec.at(1).body["JobSpecs"][0];
    assert_eq!((role.get("SpotSpec"), role.get("ResourceConfig")), (None, None));
    assert_eq!(role["EcsSpec"], "ecs.x");
    assert!(spec.asks_for_spot() && !spec.at(1).asks_for_spot());
}

/// (what stands behind the job file, what is found). The first line of it is line 22.
const CASES: &[(&str, &[&str])] = &[
    ("[waiting]\nqueuing = { after = \"1h\", then = [\"notify\"] }", &[]),
    ("[waiting]\nqueuing = { after = \"1h\", then = [\"raise_bid\", \"fail\"] }", &[]),
    ("[waiting]\nmax_discount = 0.4", &[]),
    ("[waiting]\nqueueing = { after = \"1h\", then = [\"notify\"] }", &["23:1 E021 queuing"]),
    (
        "[waiting]\nqueuing = { afer = \"1h\", then = [\"notify\"] }",
        &["23:11 E026", "23:13 E021 after"],
    ),
    ("[waiting]\nqueuing = { after = 30, then = [\"notify\"] }", &["23:21 E027"]),
    ("[waiting]\nqueuing = { after = \"1h\", then = \"notify\" }", &["23:34 E024"]),
    ("[waiting]\nqueuing = { after = \"1h\", then = [] }", &["23:34 E025"]),
    ("[waiting]\nqueuing = { after = \"1h\" }", &["23:11 E026"]),
    ("[waiting]\nqueuing = \"1h\"", &["23:11 E024"]),
    // Acts.
    ("[waiting]\nqueuing = { after = \"1h\", then = [\"rase_bid\"] }", &["23:35 E025 raise_bid"]),
    ("[waiting]\nbidding = { after = \"1h\", then = [\"restart\"] }", &["23:35 E025"]),
    ("[waiting]\nqueuing = { after = \"1h\", then = [\"notify\", \"notify\"] }", &["23:45 E073"]),
    ("[waiting]\nqueuing = { after = \"1h\", then = [\"fail\", \"notify\"] }", &["23:43 E073"]),
    ("[waiting]\npreparing = { after = \"1h\", then = [\"raise_bid\"] }", &["23:37 E073"]),
    ("[waiting]\nqueuing = { after = \"1h\", then = [\"next_placement\"] }", &["23:35 E073"]),
    // The most.
    ("[waiting]\nmax_discount = 0.05", &["23:16 E025"]),
    ("[waiting]\nmax_discount = 0.95", &["23:16 E025"]),
    ("[waiting]\nmax_discount = 7", &["23:16 E025"]),
    ("[waiting]\nmax_discount = 0.1", &["16:18 E073"]),
    (
        "[waiting]\nmax_price_per_minute = \"1\"\nmax_price_per_hour = \"60\"",
        &["23:1 E028", "24:1 E028"],
    ),
    ("[waiting]\nmax_price_per_hour = \"60\"", &["23:1 E028"]),
    // Placements.
    ("[[placements]]\non_demand = true", &["22:1 E081 warning"]),
    (
        "[[placements]]\non_demand = true\nspot = { discount_limit = 0.5 }",
        &["22:1 E081 warning", "23:1 E028"],
    ),
    ("[[placements]]\nspot = { discount_limit = 40 }", &["22:1 E081 warning", "23:27 E025"]),
    ("[[placements]]\nspot = {}", &["22:1 E081 warning", "23:8 E040"]),
    ("[[placements]]\ntarget = \"hx\"", &["22:1 E081 warning", "23:10 E031 hz"]),
    ("[[placements]]\ntarget = \"hz\"\nEcsSpec = \"\"", &["22:1 E081 warning", "24:11 E025"]),
    ("[[placements]]\nPodCount = 0", &["22:1 E081 warning", "23:12 E025"]),
    ("[[placements]]\nlist_price_per_hour = \"3\"", &["22:1 E074", "22:1 E081 warning"]),
    (
        "[[placements]]\nspec = \"ecs.x\"\non_demand = true",
        &["22:1 E081 warning", "23:1 E021 EcsSpec"],
    ),
    ("[placements]\non_demand = true", &["22:1 E024"]),
    (
        "[[placements]]\nspot = { discount_limit = 0.8 }\n[waiting]\nmax_discount = 0.7\n\
         queuing = { after = \"1h\", then = [\"next_placement\"] }",
        &["23:27 E073"],
    ),
];

#[test]
fn each_mistake_is_found_at_its_place() {
    for (tables, wanted) in CASES {
        let found = short(&read(&with(tables)).diagnostics);
        assert_eq!(found, *wanted, "{tables}");
    }
}

#[test]
fn on_demand_has_no_bid_to_raise() {
    let raise = "[waiting]\nqueuing = { after = \"1h\", then = [\"raise_bid\"] }";
    let text = with(raise).replace("[spot]\ndiscount_limit = 0.4\n", "");
    assert_eq!(short(&read(&text).diagnostics), ["21:35 E073"]);
    // A bid that cannot be read has an error of its own.
    let text = with(raise).replace("discount_limit = 0.4", "discount_limit = 40");
    assert_eq!(short(&read(&text).diagnostics), ["16:18 E025"]);
    // A placement has one.
    let text = with(
        "[[placements]]\nspot = { discount_limit = 0.5 }\n[waiting]\n\
         queuing = { after = \"1h\", then = [\"next_placement\", \"raise_bid\"] }",
    )
    .replace("[spot]\ndiscount_limit = 0.4\n", "");
    assert_eq!(short(&read(&text).diagnostics), [""; 0]);
}

#[test]
fn a_price_needs_to_know_how_far_it_may_go() {
    let raise = "[waiting]\nqueuing = { after = \"1h\", then = [\"raise_bid\"] }";
    let priced = |more: &str| {
        with(&format!("{raise}{more}"))
            .replace("discount_limit = 0.4", "price_limit_per_hour = \"12\"")
    };
    assert_eq!(short(&read(&priced("")).diagnostics), ["23:35 E026"]);
    assert_eq!(short(&read(&priced("\nmax_discount = 0.7")).diagnostics), ["23:35 E026"]);
    let spec_of = |more: &str| spec(&priced(more));
    let raised = |more: &str| {
        let spec = spec_of(more);
        let own = spec.spot.expect("a bid");
        spec.waiting.raised(own, Some(own), spec.list_price_per_hour)
    };
    let price = |text: &str| Some(Bid::PricePerMinute(money(text)));
    // 12 an hour is 0.2 a minute; a tenth of it without a list price, a tenth of the list price with one.
    assert_eq!(raised("\nmax_price_per_hour = \"20\""), price("0.22"));
    assert_eq!(raised("\nmax_price_per_hour = \"12.6\""), price("0.21"));
    let budget = "\n[budget]\nlist_price_per_hour = \"30\"";
    assert_eq!(raised(budget), price("0.25"));
    assert_eq!(raised(&format!("\nmax_discount = 0.45{budget}")), price("0.225"));
    let above = priced(&format!("\nmax_discount = 0.3{budget}"));
    assert_eq!(short(&read(&above).diagnostics), ["16:24 E073"]);
}

#[test]
fn roles_are_not_guessed() {
    let two = |ecs: &str, placement: &str| {
        let role = format!(
            "[[submit.JobSpecs]]\nType = \"Master\"\nImage = \"img\"\nEcsSpec = \"{ecs}\"\n"
        );
        let text = with(&format!(
            "[[placements]]\n{placement}\n[waiting]\nqueuing = {{ after = \"1h\", then = [\"next_placement\"] }}"
        ));
        let text = text.replace(
            "[[submit.JobSpecs]]\nType = \"Worker\"",
            &format!("{role}[[submit.JobSpecs]]\nType = \"Worker\""),
        );
        short(&read(&text).diagnostics)
    };
    assert_eq!(two("ecs.gn7e-c16g1.4xlarge", "EcsSpec = \"ecs.x\""), [""; 0]);
    assert_eq!(two("ecs.g6.large", "EcsSpec = \"ecs.x\""), ["27:11 E074"]);
    assert_eq!(two("ecs.gn7e-c16g1.4xlarge", "PodCount = 2"), ["27:12 E074"]);
}

#[test]
fn a_placement_reaches_the_checkpoints_or_is_refused() {
    let waiting = "[waiting]\nqueuing = { after = \"1h\", then = [\"next_placement\"] }";
    let job = with(&format!("[[placements]]\ntarget = \"other\"\n{waiting}"));
    let found = |region: &str, more: &str, job: &str| {
        let text = format!(
            "{}[targets.other]\nregion = \"{region}\"\nworkspace = \"9\"\n\
             credentials = {{ environment = true }}\n{more}\n",
            super::DAEMON
        );
        let file = read_daemon(
            &Source::new(Path::new("/nowhere/spotkeeper.toml"), text),
            &Surroundings::default(),
        );
        let config = file.accepted().unwrap_or_else(|| panic!("{:?}", file.diagnostics)).clone();
        let source = Source::new(Path::new("/nowhere/job.toml"), job.to_owned());
        short(&read_job(&source, Rules::of(&config)).diagnostics)
    };
    assert_eq!(found("cn-hangzhou", "", &job), [""; 0], "another workspace of the region");
    assert_eq!(found("cn-shanghai", "", &job), ["23:10 E074"]);
    let storage = "storage = { endpoint = \"https://s3.oss-cn-hangzhou.aliyuncs.com\" }";
    assert_eq!(found("cn-shanghai", storage, &job), [""; 0]);
    let sent = job.replace("JobType =", "WorkspaceId = \"12345\"\nJobType =");
    assert_eq!(found("cn-hangzhou", "", &sent), ["24:10 E036"]);
    let free = job
        .replace("[checkpoint]\npath = \"/mnt/ckpt/run42\"\nsettle = \"60s\"\n", "")
        .replace("{resume} ", "");
    assert_eq!(found("cn-shanghai", "", &free), [""; 0], "nothing is saved");
    // Without the daemon file nothing is known of targets.
    let source = Source::new(Path::new("/nowhere/job.toml"), job.clone());
    assert_eq!(short(&read_job(&source, Rules::unknown()).diagnostics), [""; 0]);
    assert!(daemon(Path::new("/nowhere")).targets.len() == 1);
}
