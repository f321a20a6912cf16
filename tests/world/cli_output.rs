//! What people and scripts see, without a daemon: golden outputs at several widths, and the JSON of
//! each verb against its schema in docs/schema.

use crate::schema::{check, fits};
use jiff::tz::{TimeZone, offset};
use serde_json::{Value, json};
use spotkeeper::api::wire::{
    ActDocument, BodyDocument, ErrorDocument, JobList, VersionDocument, document,
};
use spotkeeper::cli::checkpoints::Shown;
use spotkeeper::cli::output::{Moment, Style};
use spotkeeper::cli::ps::Detail;
use spotkeeper::cli::{act, cancel, checkpoints, describe, events, ps, text, why};
use spotkeeper::model::time::WallTime;
use spotkeeper::model::view::{
    ActReport, AdviceView, AttemptView, DaemonView, EventPage, EventView, JobPage, JobRow,
    ProgressView, SuspectView, TargetView, VerdictView, WaitingView, WhyView,
};
use std::path::{Path, PathBuf};

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cli-golden").join(name);
    if std::env::var_os("SPOTKEEPER_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, text).expect("a golden file");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == wanted, "{name} differs; wanted:\n{wanted}\nfound:\n{text}");
}

fn moment() -> Moment {
    let now = WallTime::parse("2026-11-29T18:18:30Z").expect("a time");
    Moment { now, zone: TimeZone::fixed(offset(8)) }
}

pub(crate) fn row(name: &str, phase: &str) -> JobRow {
    JobRow {
        name: name.into(),
        run: 1,
        phase: phase.into(),
        stale: false,
        last_look_s: Some(4),
        why: String::new(),
        vendor_status: None,
        step: None,
        checkpoint_age_s: None,
        at_risk_s: None,
        attempts: 0,
        releases: 0,
        errors: 0,
        restarts: 0,
        up_s: None,
        ran_s: 0,
        managed: true,
        target: "hangzhou".into(),
        next: String::new(),
    }
}

/// The limit of a wait, what it was asked for with, and that it can never end.
fn waiting() -> WaitingView {
    WaitingView {
        phase: "queuing".into(),
        since: "2026-11-29T17:56:30Z".into(),
        waited_s: 1_320,
        limit_s: Some(1_800),
        bid: Some("0.5".into()),
        placement: 1,
        placements: 2,
        never: Some("no such quota".into()),
        next: "tell a person in 8m".into(),
        next_in_s: Some(480),
    }
}

fn rows() -> Vec<JobRow> {
    vec![
        JobRow {
            step: Some(12_449),
            checkpoint_age_s: Some(240),
            at_risk_s: Some(240),
            attempts: 4,
            releases: 3,
            up_s: Some(7_860),
            ran_s: 40_000,
            vendor_status: Some("Running".into()),
            ..row("llama8b-sft", "RUNNING")
        },
        JobRow {
            why: "queuing for 31m: the bid of 0.4 is below the market".into(),
            step: Some(8_000),
            attempts: 2,
            releases: 1,
            ran_s: 720,
            vendor_status: Some("Queuing".into()),
            next: "raise bid in 22m".into(),
            ..row("qwen-dpo", "WAITING")
        },
        JobRow {
            why: "released 40s ago; 正在寻找最新的完整检查点，请稍候".into(),
            step: Some(31_000),
            checkpoint_age_s: Some(400),
            attempts: 7,
            releases: 7,
            restarts: 2,
            ran_s: 90_061,
            next: "submit when the bucket was looked at".into(),
            run: 2,
            ..row("vit-large", "RECOVERING")
        },
        JobRow {
            why: "crash loop: 5 ends alike\x1b[2J\nin a row".into(),
            step: Some(0),
            attempts: 5,
            errors: 5,
            ran_s: 9,
            managed: false,
            ..row("训练-bert", "FAILED")
        },
        JobRow {
            stale: true,
            last_look_s: Some(600),
            why: "no new whole checkpoint for 1h35m, usually one every 30m".into(),
            step: Some(1_055_200),
            checkpoint_age_s: Some(5_700),
            at_risk_s: Some(5_700),
            attempts: 1,
            up_s: Some(34_800),
            vendor_status: Some("Running".into()),
            ..row("moe-pre", "STALLED")
        },
    ]
}

fn attempts() -> Vec<AttemptView> {
    let released = AttemptView {
        no: 7,
        mark: "abcdefgh27".into(),
        id: Some("dlc1k2f".into()),
        state: "ended".into(),
        status: None,
        from_step: Some(30_000),
        from_path: Some("ck/iter_0030000".into()),
        intended: "2026-11-29T17:12:00Z".into(),
        ended: Some("2026-11-29T18:14:07Z".into()),
        ran_s: Some(3_660),
        verdict: Some(VerdictView {
            cause: "released".into(),
            rule: "builtin:no-launcher-line".into(),
            evidence: vec![
                "Status=Failed SubStatus=Normal".into(),
                "exit code 137\x1b]0;owned\x07".into(),
            ],
        }),
        stop_asked: false,
        restarts: 2,
    };
    let live = AttemptView {
        no: 8,
        mark: "abcdefgh22".into(),
        id: None,
        state: "intended".into(),
        from_step: None,
        from_path: None,
        intended: "2026-11-29T18:14:08Z".into(),
        ended: None,
        ran_s: None,
        verdict: None,
        restarts: 0,
        ..released.clone()
    };
    vec![live, released]
}

fn log() -> Vec<EventView> {
    let event = |sequence, at: &str, attempt, word: &str, text: &str| EventView {
        sequence,
        at: at.into(),
        job: "vit-large".into(),
        run: 1,
        attempt,
        word: word.into(),
        text: text.into(),
        data: Value::Null,
    };
    vec![
        event(1, "2026-11-28T02:00:00Z", None, "ACCEPTED", "job file taken"),
        event(9, "2026-11-29T18:14:07Z", Some(7), "RELEASED", "ran 1h01m, last step 31.4k"),
        event(10, "2026-11-29T18:14:08Z", Some(7), "RESTARTED_IN_PLACE", "a\r\x1b[31mb"),
        event(11, "2026-11-29T18:14:08Z", Some(8), "INTENT", ""),
    ]
}

fn look() -> Value {
    json!({
        "chosen": { "path": "ck/iter_0031000", "step": 31_000 },
        "refused": [{
            "path": "ck/iter_0031500", "step": 31_500, "verdict": "torn",
            "why": "shard 5 of 8 is shorter than its index entry",
        }],
    })
}

fn why_view() -> WhyView {
    WhyView {
        row: rows().remove(2),
        attempt: attempts().pop(),
        checkpoint: look(),
        holds: vec!["the bucket was not looked into".into(), "the cloud was not compared".into()],
        next: "attempt 8 at once".into(),
        waiting: Some(waiting()),
        ends_without_progress: 1,
        suspects: vec![SuspectView {
            path: "ck/iter_0031250".into(),
            step: Some(31_250),
            attempts: vec![5, 6],
        }],
        others: Vec::new(),
    }
}

fn page() -> JobPage {
    JobPage {
        row: rows().remove(2),
        holds: vec!["the bucket was not looked into".into()],
        checkpoints: Some("oss://bucket/team/run42".into()),
        waiting: Some(waiting()),
        progress: ProgressView {
            looked_s: Some(30),
            note: "could not look for checkpoints (2 in a row): 503\x1b[2J".into(),
            steps_per_hour: Some(1_500),
            every_s: Some(2_400),
            every_steps: Some(1_000),
            advice: Some(advice()),
        },
        spec: "0123456789abcdef0123456789abcdef".into(),
        attempts: attempts(),
        events: log(),
    }
}

fn advice() -> AdviceView {
    AdviceView {
        text: "checkpoints every 40m, about 1m each; with losses every 2h06m (7 seen) the best \
               interval is about 15m (380 steps): would save about 6 % of the time"
            .into(),
        best_s: 912,
        best_steps: Some(380),
        cost_s: 60,
        loss_every_s: 7_560,
        losses: 7,
        loss_source: "seen".into(),
        saves: 0.058,
    }
}

fn found() -> Value {
    json!({
        "format": "megatron-legacy",
        "chosen": {
            "step": 31_000, "path": "ck/iter_0031000",
            "resume": "--load '{mount}/ck' --ckpt-step '31000'",
        },
        "candidates": [
            { "step": 31_500, "path": "ck/iter_0031500", "verdict": "torn", "suspect": false,
              "why": "mp_rank_05/model_optim_rng.pt: the zip directory at its end is missing" },
            { "step": 31_000, "path": "ck/iter_0031000", "verdict": "whole", "suspect": true,
              "why": "all there" },
            { "step": 30_000, "path": "ck/iter_0030000", "verdict": "not_checked",
              "suspect": false, "why": "older" },
        ],
    })
}

#[test]
fn tables_fit_their_terminal() {
    for width in [80, 120, 200] {
        for (detail, word) in [(Detail::Usual, "usual"), (Detail::Wide, "wide")] {
            let table = ps::render(&rows(), detail, Some(width), Style::Plain);
            golden(&format!("ps-{word}-{width}.txt"), &table);
            let widest = table.lines().map(text::width).max().expect("a line");
            assert!(widest <= usize::from(width), "{widest} columns in {width}:\n{table}");
        }
    }
}

#[test]
fn a_pipe_gets_every_column_uncut_and_no_colour() {
    let table = ps::render(&rows(), Detail::Usual, None, Style::Plain);
    golden("ps-usual-piped.txt", &table);
    golden("ps-wide-piped.txt", &ps::render(&rows(), Detail::Wide, None, Style::Plain));
    assert!(table.contains("the bid of 0.4 is below the market"));
    assert!(!table.contains(['\x1b', '\t']));
}

#[test]
fn names_are_never_cut_and_one_line_is_one_job() {
    let long = "n".repeat(100);
    let rows = vec![row(&long, "RUNNING"), row("b", "PENDING")];
    let table = ps::render(&rows, Detail::Wide, Some(20), Style::Plain);
    assert!(table.contains(&long));
    assert_eq!(table.lines().count(), 3);
}

#[test]
fn columns_stand_below_each_other_for_chinese_names_too() {
    let table = ps::render(&rows(), Detail::Usual, Some(120), Style::Plain);
    let head = table.lines().next().expect("a head");
    let state = head.find("STATE").expect("the column");
    for (line, row) in table.lines().skip(1).zip(rows()) {
        let at = line.find(&row.phase).expect("the phase");
        assert_eq!(text::width(&line[..at]), state, "{line}");
    }
}

#[test]
fn colour_changes_nothing_but_the_phase() {
    let plain = ps::render(&rows(), Detail::Usual, Some(120), Style::Plain);
    let mut coloured = ps::render(&rows(), Detail::Usual, Some(120), Style::Colour);
    assert!(coloured.contains("\x1b[32mRUNNING\x1b[0m"));
    assert!(coloured.contains("\x1b[31mFAILED\x1b[0m"));
    for code in ["\x1b[0m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[34m", "\x1b[36m"] {
        coloured = coloured.replace(code, "");
    }
    assert_eq!(coloured, plain);
    // A job may be called what a phase is called.
    let odd = [row("RUNNING", "RUNNING")];
    let line = ps::render(&odd, Detail::Usual, Some(120), Style::Colour);
    assert!(line.contains("\nRUNNING  \x1b[32mRUNNING\x1b[0m"), "{line:?}");
}

#[test]
fn no_job_one_job_and_a_thousand() {
    assert_eq!(ps::render(&[], Detail::Usual, Some(80), Style::Plain).lines().count(), 1);
    golden("ps-one-80.txt", &ps::render(&rows()[..1], Detail::Usual, Some(80), Style::Plain));
    let many: Vec<JobRow> = (0..1_000).map(|n| row(&format!("job-{n:04}"), "RUNNING")).collect();
    for width in [Some(80), None] {
        let table = ps::render(&many, Detail::Usual, width, Style::Plain);
        assert_eq!(table.lines().count(), 1_001);
        assert!(table.lines().last().expect("a line").starts_with("job-0999  RUNNING"));
    }
    assert_eq!(ps::summary(&many), "1000 jobs: 1000 running");
}

#[test]
fn the_summary_counts_phases_and_says_what_was_not_seen() {
    assert_eq!(
        ps::summary(&rows()),
        "5 jobs: 1 failed, 1 recovering, 1 running, 1 stalled, 1 waiting; 1 not seen lately (!)"
    );
    assert_eq!(ps::summary(&rows()[..1]), "1 job: 1 running");
    assert_eq!(
        ps::faults(&daemon()),
        "\ntarget hangzhou: Throttling.User; last seen whole 10m ago\
         \ntarget shanghai: being compared with the store\
         \njob file not taken: a.toml:3:1: error[E031]: unknown key"
    );
}

fn daemon() -> DaemonView {
    let target = |name: &str, verified, last_sweep_s, fault: Option<&str>| TargetView {
        name: name.into(),
        verified,
        last_sweep_s,
        fault: fault.map(str::to_owned),
    };
    DaemonView {
        version: "0.1.0".into(),
        owner: "k3f9qz".into(),
        pid: 7,
        uptime_s: 60,
        targets: vec![
            target("hangzhou", true, Some(600), Some("Throttling.User")),
            target("shanghai", false, None, None),
            target("beijing", true, Some(3), None),
        ],
        refused_files: vec!["a.toml:3:1: error[E031]: unknown key".into()],
    }
}

#[test]
fn pages_say_all_and_command_nothing() {
    let texts = [
        ("why.txt", why::render(&why_view(), Style::Plain, &moment())),
        ("describe-80.txt", describe::render(&page(), Some(80), Style::Plain, &moment())),
        ("describe-piped.txt", describe::render(&page(), None, Style::Plain, &moment())),
        ("events.txt", log().iter().map(|e| events::event_line(e, &moment())).collect()),
        ("checkpoints-80.txt", checkpoints::render(&found(), Shown::Tested, Some(80))),
        ("checkpoints-all-piped.txt", checkpoints::render(&found(), Shown::All, None)),
        ("act.txt", act::render(&done(), Style::Plain)),
    ];
    for (name, text) in &texts {
        golden(name, text);
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{name}: {text:?}");
    }
    let none = WhyView { attempt: None, checkpoint: Value::Null, ..why_view() };
    golden("why-none.txt", &why::render(&none, Style::Plain, &moment()));
    let mut blocked = why_view();
    blocked.row.phase = "BLOCKED".into();
    blocked.next = "spotkeeper why llama8b-sft".into();
    let text = why::render(&blocked, Style::Plain, &moment());
    assert!(text.contains("mends what is said above; then `spotkeeper retry JOB`"), "{text}");
    let twin = "2026-11-30T00:00:00Z attempt 5: dlc5 came late; it is stopped";
    let twins = WhyView { others: vec![twin.into()], ..why_view() };
    assert!(why::render(&twins, Style::Plain, &moment()).contains(twin));
    let ambiguous = json!({
        "format": null, "chosen": null, "ambiguous": ["run-a", "run-b"], "candidates": [],
    });
    golden("checkpoints-ambiguous.txt", &checkpoints::render(&ambiguous, Shown::Tested, Some(80)));
}

#[test]
fn the_first_name_is_the_one_to_go_on_from() {
    let mut look = found();
    assert_eq!(checkpoints::names(&look, Shown::Tested), ["ck/iter_0031000"]);
    let all = ["ck/iter_0031000", "ck/iter_0031500", "ck/iter_0030000"];
    assert_eq!(checkpoints::names(&look, Shown::All), all);
    look["candidates"][0]["verdict"] = "whole".into();
    assert_eq!(checkpoints::names(&look, Shown::Tested), all[..2], "whole, and passed over");
    look["chosen"] = Value::Null;
    assert_eq!(checkpoints::names(&look, Shown::Tested), [] as [&str; 0]);
}

#[test]
fn what_was_passed_is_shown_and_is_not_called_older() {
    let row = |step: u64, verdict: &str, why: &str| {
        json!({ "step": step, "path": format!("s/{step}"), "verdict": verdict, "suspect": false,
                "why": why })
    };
    let look = json!({
        "format": "custom",
        "chosen": { "step": 20, "path": "s/20", "resume": "'{mount}/s/20'",
            "mend": { "why": "s/latest is empty", "command": "printf %s '20' > '/s/latest'" } },
        "candidates": [
            row(40, "not_checked", "newer than what another part has"),
            row(20, "whole", "all there"),
            row(10, "not_checked", "older than the chosen one"),
            row(0, "not_checked", "its name shows no step: it may be newer or older"),
        ],
    });
    let text = checkpoints::render(&look, Shown::Tested, None);
    assert!(text.contains("newer than what another part has"), "{text}");
    assert!(
        text.ends_with("2 older or of an unknown step, not checked; `--all` shows them\n"),
        "{text}"
    );
    assert!(text.contains("Mend         s/latest is empty\n             printf %s '20'"), "{text}");
    let none = json!({
        "format": null, "chosen": null, "candidates": [],
        "ambiguous": ["a", "b"],
        "roots": [{ "path": "a", "names": "Accelerate" }, { "path": "b", "names": "DeepSpeed" }],
        "hints": ["go on so", "or so"],
    });
    let text = checkpoints::render(&none, Shown::Tested, None);
    assert!(text.contains("a  (names of Accelerate)\n"), "{text}");
    assert!(text.contains("Hint         go on so\n             or so\n"), "{text}");
}

fn done() -> Vec<ActReport> {
    vec![ActReport {
        job: "vit-large".into(),
        phase: "STOPPING".into(),
        text: "stop asked for attempt 8; its end is awaited".into(),
        awaited: vec!["the end of attempt 8 (dlc8)".into()],
    }]
}

#[test]
fn the_question_before_a_cancel_says_what_is_lost() {
    assert_eq!(
        cancel::question(&rows()),
        "Cancel 5 jobs (2 running, the longest for 9h40m, up to 1h35m of unsaved work): \
         llama8b-sft, qwen-dpo, vit-large, 训练-bert, moe-pre?"
    );
    assert_eq!(cancel::question(&rows()[1..2]), "Cancel 1 job (0 running): qwen-dpo?");
}

#[test]
fn each_document_is_as_its_schema_says() {
    let events = EventPage { events: log(), next_after: 11, gap: false };
    let refused = ErrorDocument { code: "E101".into(), message: "there is no job `x`".into() };
    let body = BodyDocument { body: json!({ "DisplayName": "vit-large" }), spec: json!({}) };
    let never = WhyView { attempt: None, checkpoint: Value::Null, ..why_view() };
    for (schema, value) in [
        ("ps", document(&JobList { jobs: rows() })),
        ("ps", document(&JobList { jobs: Vec::new() })),
        ("describe", document(&page())),
        ("body", document(&body)),
        ("why", document(&why_view())),
        ("why", document(&never)),
        ("events", document(&events)),
        ("checkpoints", document(&found())),
        ("act", document(&ActDocument { done: done() })),
        ("version", document(&VersionDocument::own())),
        ("daemon", document(&daemon())),
        ("error", document(&refused)),
    ] {
        check(schema, &value);
        let name = format!("{schema}.json");
        if schema != "version" && value["jobs"] != json!([]) && value["attempt"] != Value::Null
            || !["ps", "why", "version"].contains(&schema)
        {
            golden(&name, &(text::json(&value, text::Lines::Many) + "\n"));
        }
    }
}

#[test]
fn a_look_that_leaves_something_to_do_is_as_its_schema_says() {
    let look = json!({
        "format": null,
        "chosen": { "step": null, "path": "a", "resume": "", "mend": { "why": "x", "command": null } },
        "ambiguous": ["a"],
        "roots": [{ "path": "a", "names": "DeepSpeed" }],
        "hints": ["x"],
        "candidates": [],
    });
    check("checkpoints", &document(&look));
}

#[test]
fn the_check_of_schemas_can_fail() {
    for (name, value) in [
        ("version", json!({ "apiVersion": "v1" })),
        ("version", json!({ "apiVersion": "v2", "version": "1" })),
        ("version", json!({ "apiVersion": "v1", "version": 1 })),
        ("version", json!({ "apiVersion": "v1", "version": "1", "more": 1 })),
        ("ps", json!({ "apiVersion": "v1", "jobs": [{ "name": "x" }] })),
    ] {
        let schema = format!("docs/schema/{name}.json");
        let schema = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(schema);
        let schema = std::fs::read_to_string(schema).expect("a schema");
        let mut wrong = Vec::new();
        fits(&serde_json::from_str(&schema).expect("JSON"), &value, name, &mut wrong);
        assert!(!wrong.is_empty(), "{value}");
    }
}
