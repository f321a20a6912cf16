//! What the platform would refuse, and where its documents disagree: for each rule a bad file, and
//! its neighbours that are good.

use super::{DAEMON, JOB, daemon, read, short};
use spotkeeper::config::daemon::{Surroundings, read_daemon};
use spotkeeper::config::diagnostic::Source;
use spotkeeper::config::job::{JobFile, Rules, read_job};
use spotkeeper::dlc::launcher;
use spotkeeper::dlc::wire::{Submission, stamp_body};
use spotkeeper::model::checkpoint::{Pin, Position, ResumePoint, Tracker};
use spotkeeper::model::ids::{Mark, Owner};
use spotkeeper::model::resume_text;
use std::path::Path;

const SPEC: &str = "EcsSpec = \"ecs.gn7e-c16g1.4xlarge\"";
const BID: &str = "discount_limit = 0.4";
const SPOT: &str = "[spot]\ndiscount_limit = 0.4\n";

/// (what is replaced, by what, what is found).
type Case = (&'static str, &'static str, &'static [&'static str]);

fn all_as_expected(cases: &[Case], read: impl Fn(&str) -> JobFile) {
    let mut wrong = Vec::new();
    for (from, to, expected) in cases {
        assert!(JOB.contains(from), "{from}");
        let file = read(&JOB.replacen(from, to, 1));
        let found = short(&file.diagnostics);
        if found != *expected {
            wrong.push(format!("{to:?}: expected {expected:?}, found {found:?}"));
        }
        for diagnostic in &file.diagnostics {
            assert!(!diagnostic.mend.is_empty(), "{diagnostic}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_rule_finds_the_bad_and_leaves_its_neighbours() {
    all_as_expected(
        &[
            // AIMaster on general-compute spot.
            (
                "[submit]",
                "[submit]\nSettings = { EnableErrorMonitoringInAIMaster = true }",
                &["4:14 E046 warning"],
            ),
            ("[submit]", "[submit]\nSettings = { EnableErrorMonitoringInAIMaster = false }", &[]),
            (SPOT, "", &[]),
            // The framework.
            ("\"PyTorchJob\"", "\"TFJob\"", &["4:11 E047 warning"]),
            ("\"PyTorchJob\"", "\"MPIJob\"", &["4:11 E047 warning"]),
            // The bid.
            (BID, "discount_limit = 0.45", &["16:18 E048 warning"]),
            (BID, "discount_limit = 1.0", &["16:18 E048 warning"]),
            (BID, "discount_limit = 0.05", &["16:18 E048 warning"]),
            (BID, "discount_limit = 0.9", &[]),
            (BID, "discount_limit = 0.3", &[]),
            (BID, "price_limit_per_minute = \"34.74\"", &["16:26 E049 warning"]),
            (BID, "price_limit_per_minute = \"0.579\"", &[]),
            (BID, "price_limit_per_hour = \"34.74\"", &[]),
            (BID, "price_limit_per_hour = \"0.011\"", &["16:24 E049 warning"]),
            // A name for the console.
            ("[submit]", "[submit]\nDisplayName = \"a b\"", &["4:15 E059"]),
            ("[submit]", "[submit]\nDisplayName = \"训练\"", &["4:15 E059"]),
            ("[submit]", "[submit]\nDisplayName = 5", &["4:15 E059"]),
            ("[submit]", "[submit]\nDisplayName = \"a.B_c-9\"", &[]),
            // Words and numbers.
            ("\"PyTorchJob\"", "\"pytorchjob\"", &["4:11 E034 PyTorchJob"]),
            ("\"PyTorchJob\"", "\"PytorchJob\"", &["4:11 E034 PyTorchJob"]),
            ("[submit]", "[submit]\nPriority = 0", &["4:12 E025"]),
            ("[submit]", "[submit]\nPriority = 10", &["4:12 E025"]),
            ("[submit]", "[submit]\nPriority = \"5\"", &["4:12 E025"]),
            ("[submit]", "[submit]\nPriority = 9", &[]),
            (
                "[submit]",
                "[submit]\nTags = [{ Key = \"a\", Value = \"b\" }]",
                &["4:1 E064 warning"],
            ),
            ("[submit]", "[submit]\nSettings = { Tags = { a = \"b\" } }", &[]),
            // Roles.
            ("\"Worker\"", "\"worker\"", &["8:8 E063 warning Worker"]),
            ("\"Worker\"", "\"Slave\"", &["8:8 E063 warning"]),
            ("\"Worker\"", "\"Master\"", &["10:12 E063 warning"]),
            (
                "[[submit.Data",
                "[[submit.JobSpecs]]\nType = \"Worker\"\n[[submit.Data",
                &["13:8 E063 warning"],
            ),
            ("[[submit.Data", "[[submit.JobSpecs]]\nType = \"Master\"\n[[submit.Data", &[]),
            // Secrets in plain text.
            ("NCCL_DEBUG", "HF_TOKEN", &["6:21 E062 warning"]),
            ("NCCL_DEBUG", "MAX_TOKENS", &[]),
            ("\"WARN\"", "\"-----BEGIN PRIVATE KEY-----\"", &["6:23 E062 warning"]),
            (
                "[submit]",
                "[submit]\nCustomEnvs = [{ Key = \"DB_PASSWORD\", Value = \"abc\" }]",
                &["4:46 E062 warning"],
            ),
            ("torchrun", "WANDB_API_KEY=0123456789ab torchrun", &["5:15 E062 warning"]),
            ("torchrun", "WANDB_API_KEY=$WANDB torchrun", &[]),
            // Trainers that lose work in silence, by whole words.
            ("train.py", "examples/pretrain_gpt.py --load /mnt/ckpt/run42", &["5:15 E065 warning"]),
            ("train.py", "pretrain_gpt.py --load=/mnt/ckpt/run42", &["5:15 E065 warning"]),
            ("train.py", "pretrain_gpt.py --load /x --exit-on-missing-checkpoint", &[]),
            ("train.py", "pretrain_gpt.py --loader /x", &[]),
            ("train.py", "my_pretrain_gpt.py --load /x", &[]),
            ("echo DONE", "echo --load # pretrain_gpt.py", &[]),
            (
                "path = \"/mnt/ckpt/run42\"",
                "path = \"/mnt/ckpt/run42\"\nresume = \"--load {root}\"",
                &[],
            ),
            (
                "train.py",
                "nemo.py exp_manager.resume_ignore_no_checkpoint=True",
                &["5:15 E065 warning"],
            ),
            ("train.py", "nemo.py exp_manager.resume_ignore_no_checkpoint=false", &[]),
            ("train.py", "train.py autoresume=true", &["5:15 E065 warning"]),
            ("train.py", "train.py no_autoresume=true", &[]),
            ("train.py", "train.py --save_only_model", &["5:15 E065 warning"]),
            ("train.py", "train.py --save_only_model False", &[]),
            ("train.py", "train.py --save_only_models", &[]),
            ("train.py", "sft --mcore_model /x", &["5:15 E065 warning"]),
            ("train.py", "sft --mcore_model /x --finetune false", &[]),
            ("train.py", "a.py && bash -c 'pretrain_gpt.py --load /x'", &["5:15 E065 warning"]),
            ("train.py", "a.py 'pretrain_gpt.py --load /x'", &[]),
        ],
        read,
    );
}

#[test]
fn each_rule_about_a_spot_spec_of_the_body_finds_its_key() {
    let body = |spec: &'static str| JOB.replacen(SPOT, "", 1).replacen(SPEC, spec, 1);
    for (spec, expected) in [
        (
            "EcsSpec = \"ecs.g7.xlarge\"\nSpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotDiscountLimit = 0.4 }",
            vec![],
        ),
        ("SpotSpec = { SpotStrategy = \"SpotWithPriceLimit\" }", vec!["11:1 E040"]),
        ("SpotSpec = { SpotStrategy = \"SpotAsPriceGo\" }", vec!["11:14 E080 warning"]),
        (
            "SpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotDiscountLimit = 40 }",
            vec!["11:71 E025"],
        ),
        (
            "SpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotDiscountLimit = 0 }",
            vec!["11:71 E025"],
        ),
        (
            "SpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotDiscountLimit = \"0.4\" }",
            vec!["11:71 E025"],
        ),
        (
            "SpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotPriceLimit = -1 }",
            vec!["11:68 E025"],
        ),
        (
            "EcsSpec = \"ecs.g7.xlarge\"\nSpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotPriceLimit = 0.66 }",
            vec!["12:68 E049 warning"],
        ),
        (
            "EcsSpec = \"ecs.g7.xlarge\"\nSpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotPriceLimit = 0.011 }",
            vec![],
        ),
    ] {
        assert_eq!(short(&read(&body(spec)).diagnostics), expected, "{spec}");
    }
}

#[test]
fn lingjun_and_regions_are_judged_by_their_own_pages() {
    let folder = Path::new("/nowhere");
    let at = |region: &str, text: &str| {
        let source = Source::new(&folder.join("d.toml"), DAEMON.replace("cn-hangzhou", region));
        let daemon = read_daemon(&source, &Surroundings::default());
        let config = daemon.accepted().expect("a daemon file").clone();
        let text = text.replace("-cn-hangzhou", &format!("-{region}"));
        let file = read_job(&Source::new(&folder.join("job.toml"), text), Rules::of(&config));
        short(&file.diagnostics)
    };
    let none = Vec::<String>::new();
    assert_eq!(at("cn-hongkong", JOB), ["15:1 E047 warning"]);
    assert_eq!(at("cn-guangzhou", JOB), none);
    let vpc = "[submit]\nUserVpc = { VpcId = \"vpc-1\" }";
    let lingjun = JOB.replace(SPEC, "EcsSpec = \"ml.gu7xf.c96m1600.8-gu7xf\"");
    let whole = lingjun.replace("[submit]", vpc);
    assert_eq!(at("cn-wulanchabu", &whole), none);
    assert_eq!(at("cn-hangzhou", &whole), ["16:1 E047 warning"]);
    assert_eq!(at("ap-southeast-1", &whole.replace("PyTorchJob", "MPIJob")), none);
    assert_eq!(at("cn-wulanchabu", &lingjun), ["11:1 E058 warning"]);
    let priced = whole.replace(BID, "price_limit_per_minute = \"0.5\"");
    assert_eq!(at("cn-wulanchabu", &priced), ["17:26 E057"]);
    let aimaster = "[submit]\nSettings = { EnableErrorMonitoringInAIMaster = true }";
    assert_eq!(at("cn-wulanchabu", &whole.replace("[submit]", aimaster)), none);
}

#[test]
fn trap_05_no_job_goes_to_a_default_workspace() {
    for (from, to) in [("workspace = \"12345\"\n", ""), ("\"12345\"", "\"\"")] {
        let source = Source::new(Path::new("/etc/d.toml"), DAEMON.replace(from, to));
        assert!(read_daemon(&source, &Surroundings::default()).accepted().is_none(), "{to}");
    }
    for (line, expected) in [("WorkspaceId = \"\"", vec!["4:15 E036"]), ("", vec![])] {
        let file = read(&JOB.replace("[submit]", &format!("[submit]\n{line}")));
        assert_eq!(short(&file.diagnostics), expected);
    }
    assert_eq!(sent(&read(JOB), "12345", 1)["WorkspaceId"], "12345");
}

#[test]
fn trap_10_a_lost_factor_of_60_or_100_is_told_with_both_readings() {
    let told = |from: &str, to: &str| read(&JOB.replace(from, to)).diagnostics[0].to_string();
    let hourly = "EcsSpec = \"ecs.g7.xlarge\"\nSpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotPriceLimit = 0.66 }";
    let text = JOB.replace(SPOT, "");
    let found = read(&text.replace(SPEC, hourly)).diagnostics[0].to_string();
    assert!(found.contains("39.6 CNY an hour") && found.contains("write 0.011"), "{found}");
    let found = told(BID, "price_limit_per_hour = \"0.011\"");
    assert!(found.contains("price_limit_per_minute = \"0.01"), "{found}");
    let found = told(BID, "discount_limit = 40");
    assert!(found.contains("if 40 % of the list price is meant, write 0.4"), "{found}");
    // The list price, where it is known, makes the test exact.
    let list = |bid: &str| {
        let text = JOB.replace(BID, &format!("price_limit_per_hour = \"{bid}\""));
        short(&read(&format!("{text}[budget]\nlist_price_per_hour = \"34.74\"\n")).diagnostics)
    };
    assert_eq!(list("34.74"), Vec::<String>::new());
    assert_eq!(list("36"), ["16:24 E049 warning"]);
}

#[test]
fn trap_11_a_discount_is_the_share_that_is_paid() {
    let body = sent(&read(JOB), "12345", 1);
    assert_eq!(body["JobSpecs"][0]["SpotSpec"]["SpotDiscountLimit"].to_string(), "0.4");
    for bid in ["discount_limit = 4", "discount_limit = 0", "discount_limit = 0.45"] {
        let found = read(&JOB.replace(BID, bid)).diagnostics[0].to_string();
        assert!(bid.ends_with("45") || found.contains("at most 40 % of the list price"), "{found}");
    }
    let page = include_str!("../../../docs/errors/E048.md");
    assert!(page.contains("not \"40 % off\""));
}

#[test]
fn trap_12_numbers_are_never_widened_from_float32() {
    for text in ["0.4", "0.1", "0.7", "0.9"] {
        let file = read(&JOB.replace(BID, &format!("discount_limit = {text}")));
        let body = sent(&file, "12345", 1).to_string();
        assert!(body.contains(&format!("\"SpotDiscountLimit\":{text},")), "{body}");
    }
    let spec =
        "SpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotPriceLimit = 0.011 }\nX = 0.4";
    let body = sent(&read(&JOB.replace(SPOT, "").replace(SPEC, spec)), "12345", 1).to_string();
    assert!(body.contains("\"SpotPriceLimit\":0.011,") && body.contains("\"X\":0.4"), "{body}");
}

#[test]
fn trap_13_fields_that_exclude_each_other_are_refused() {
    let body = JOB.replace(SPOT, "");
    for (from, to, expected) in [
        (SPEC, "EcsSpec = \"ecs.g7.xlarge\"\nResourceConfig = { CPU = \"4\" }", vec!["12:1 E044"]),
        (SPEC, "ResourceConfig = { CPU = \"4\" }", vec![]),
        (SPEC, "EcsSpec = \"\"\nResourceConfig = { CPU = \"4\" }", vec![]),
        ("MountPath", "DataSourceId = \"d\"\nMountPath", vec!["13:1 E044"]),
        ("MountPath", "DataSourceId = \"\"\nMountPath", vec![]),
        (
            SPEC,
            "SpotSpec = { SpotStrategy = \"SpotWithPriceLimit\", SpotDiscountLimit = 0.4, SpotPriceLimit = 0.011 }",
            vec!["11:76 E044"],
        ),
    ] {
        assert_eq!(short(&read(&body.replacen(from, to, 1)).diagnostics), expected, "{to}");
    }
}

#[test]
fn trap_24_plain_http_is_refused_unless_it_is_asked_for() {
    for (line, expected) in [
        ("endpoint = \"http://pai-dlc.cn-hangzhou.aliyuncs.com\"", vec!["5:12 E030"]),
        ("endpoint = \"http://127.0.0.1:8000\"", vec![]),
        ("endpoint = \"http://pai-dlc.cn-hangzhou.aliyuncs.com\"\nplain_http = true", vec![]),
        ("", vec![]),
    ] {
        let text = DAEMON.replace("[targets.hz]", &format!("[targets.hz]\n{line}"));
        let file =
            read_daemon(&Source::new(Path::new("/etc/d.toml"), text), &Surroundings::default());
        assert_eq!(short(&file.diagnostics), expected, "{line}");
    }
    let target = daemon(Path::new("/x")).targets.into_values().next().expect("a target");
    assert!(target.place.endpoint.starts_with("https://"), "{}", target.place.endpoint);
}

#[test]
fn trap_26_a_secret_in_plain_text_is_told_and_never_shown() {
    const JWT: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXM";
    for (from, to, secret) in [
        ("\"WARN\"", "\"LTAI5tAbCdEfGhIjKlMn\"", "LTAI5tAb"),
        ("\"WARN\"", "\"-----BEGIN RSA PRIVATE KEY-----\\nMIIEpAIB\"", "MIIEpAIB"),
        ("NCCL_DEBUG = \"WARN\"", "DB_PASSWORD = \"hunter2\"", "hunter2"),
        ("torchrun", "HF_TOKEN='hunter2' torchrun", "hunter2"),
        ("torchrun", "x --api-key hunter2345 torchrun", "hunter2345"),
        ("torchrun", &format!("x --id {JWT} torchrun"), "eyJzdWIi"),
        ("torchrun", "x AKIA0123456789ABCDEF torchrun", "AKIA0123"),
    ] {
        let found = read(&JOB.replace(from, to)).diagnostics;
        assert_eq!(found.len(), 1, "{to}: {found:?}");
        for found in found {
            assert!(["E039", "E062"].contains(&found.code.to_string().as_str()), "{found}");
            let shown = format!("{found}{found:?}{}", found.json());
            assert!(!shown.contains(secret), "{shown}");
        }
    }
}

/// The body of an attempt that goes on from the checkpoint with the longest name.
fn sent(file: &JobFile, workspace: &str, attempt: u32) -> serde_json::Value {
    let spec = file.spec.as_ref().unwrap_or_else(|| panic!("{:?}", file.diagnostics));
    let (owner, mark) = (Owner::new("k3f9qz").expect("id"), Mark::new("abcdefgh27").expect("id"));
    let checkpoint = spec.checkpoint.as_ref().expect("a checkpoint");
    let path = "p".repeat(1_023 - checkpoint.location.prefix.len());
    let point = ResumePoint {
        path: path.clone(),
        root: path.clone(),
        step: Some(u64::MAX),
        epoch: None,
        position: Position { epoch: 0, step: 0 },
        format: "megatron-legacy".into(),
        argument: "--load {root} --ckpt-step {step}".into(),
        pin: Pin::Argument,
        tracker: Tracker::Fits,
        parts: Vec::new(),
    };
    let template = checkpoint.resume.as_ref().unwrap_or(&point.argument);
    let argument = resume_text::render(template, &checkpoint.mount, &point).expect("an argument");
    let command = spec.body["UserCommand"].as_str().expect("a text");
    let command = launcher::wrap(&resume_text::insert(command, &argument), attempt);
    let ours = Submission {
        owner: &owner,
        mark: &mark,
        job: &spec.key,
        attempt,
        workspace,
        user_command: &command,
        bid: spec.spot,
        resume_path: Some(&resume_text::below(&checkpoint.mount, &point.path)),
        resume_step: point.step,
    };
    let mut body = spec.body.clone();
    stamp_body(&mut body, &ours).expect("a body");
    serde_json::Value::Object(body)
}

#[test]
fn scenario_86_trap_30_the_longest_attempt_fits_or_is_refused_beforehand() {
    const LIMIT: usize = 65_536;
    let long = "w".repeat(64);
    for resume in ["", "resume = \"--load {root} --from={path} --name {name} --step {step}\""] {
        let mut last = 0;
        for size in [50_000, 58_000, 60_000, 61_000, 62_000, 63_000, 64_000] {
            let text = JOB.replace("WARN", &"'".repeat(size)).replace("settle = \"60s\"", resume);
            let file = read(&text.replace("[retry]", "[budget]").replace("alike = 5\n", ""));
            let codes = short(&file.diagnostics);
            if codes == ["3:2 E043"] {
                last += 1;
                continue;
            }
            assert_eq!(last, 0, "a larger body was accepted: {size}");
            let bytes = sent(&file, &long, u32::MAX).to_string().len();
            assert!(bytes <= LIMIT, "{size}: {bytes} bytes were accepted");
            assert_eq!(codes.is_empty(), size < 55_000, "{size}: {codes:?}");
        }
        assert!(last > 0, "64,000 bytes and more were accepted");
    }
    // Quotes of the command grow in the launcher.
    let quoted = JOB.replace("train.py", &format!("train.py {}", "''".repeat(8_000)));
    assert_eq!(short(&read(&quoted).diagnostics), ["3:2 E043"]);
    let plain = quoted.replace("target", "launcher = false\ntarget");
    assert_eq!(short(&read(&plain).diagnostics), Vec::<String>::new());
}
