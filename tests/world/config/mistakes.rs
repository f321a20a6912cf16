//! One mistake at a time, each with the place, the code and the nearest word that is told.

use super::{DAEMON, JOB, daemon, read, short};
use spotkeeper::config::daemon::{Surroundings, read_daemon};
use spotkeeper::config::diagnostic::Source;
use spotkeeper::config::job::{Rules, read_job};
use std::path::Path;

/// (what is replaced, by what, what is found).
const BAD: &[(&str, &str, &[&str])] = &[
    // Keys.
    ("alike = 5", "max_restart = 5", &["21:1 E021"]),
    ("alike = 5", "aliek = 5", &["21:1 E021 alike"]),
    ("settle = ", "setle = ", &["19:1 E021 settle"]),
    ("target = \"hz\"", "target = \"hz\"\nsettle = \"1s\"", &["3:1 E021 checkpoint.settle"]),
    ("alike = 5", "target = \"hz\"\nalike = 5", &["21:1 E021 target"]),
    ("[retry]", "[waiting]\nx = 1\n[retry]", &["21:1 E021"]),
    // [hang]: a limit, acts that are known, each once, and none after a restart.
    ("[retry]", "[hang]\nlog_silence = \"30m\"\n[retry]", &[]),
    ("[retry]", "[hang]\nno_checkpoint = \"2.5x\"\nthen = [\"notify\", \"restart\"]\n[retry]", &[]),
    ("[retry]", "[hang]\nno_checkpoint = \"3x\"\nthen = [\"restart\"]\n[retry]", &[]),
    ("[retry]", "[hang]\n[retry]", &["20:1 E026"]),
    ("[retry]", "[hang]\nthen = [\"notify\"]\n[retry]", &["20:1 E026"]),
    ("[retry]", "[hang]\nlog_silence = \"30\"\n[retry]", &["21:15 E027"]),
    ("[retry]", "[hang]\nlog_silence = 30\n[retry]", &["21:15 E027"]),
    ("[retry]", "[hang]\nlog_silence = \"0s\"\n[retry]", &["21:15 E025"]),
    ("[retry]", "[hang]\nlog_silence = \"3x\"\n[retry]", &["21:15 E027"]),
    ("[retry]", "[hang]\nno_checkpoint = \"3\"\n[retry]", &["21:17 E025"]),
    ("[retry]", "[hang]\nno_checkpoint = \"30m\"\n[retry]", &["21:17 E025"]),
    ("[retry]", "[hang]\nno_checkpoint = \"0.5x\"\n[retry]", &["21:17 E025"]),
    ("[retry]", "[hang]\nno_checkpoint = 3\n[retry]", &["21:17 E024"]),
    ("[retry]", "[hang]\nlog_silnce = \"1h\"\n[retry]", &["20:1 E026", "21:1 E021 log_silence"]),
    ("[retry]", "[hang]\nlog_silence = \"1h\"\nthen = []\n[retry]", &["22:8 E025"]),
    ("[retry]", "[hang]\nlog_silence = \"1h\"\nthen = \"notify\"\n[retry]", &["22:8 E024"]),
    ("[retry]", "[hang]\nlog_silence = \"1h\"\nthen = [\"notfy\"]\n[retry]", &["22:9 E025 notify"]),
    (
        "[retry]",
        "[hang]\nlog_silence = \"1h\"\nthen = [\"notify\", \"raise_bid\"]\n[retry]",
        &["22:19 E025"],
    ),
    (
        "[retry]",
        "[hang]\nlog_silence = \"1h\"\nthen = [\"notify\", \"notify\"]\n[retry]",
        &["22:19 E025"],
    ),
    (
        "[retry]",
        "[hang]\nlog_silence = \"1h\"\nthen = [\"restart\", \"notify\"]\n[retry]",
        &["22:20 E025"],
    ),
    ("alike = 5", "alike = 5\n[budget]\nmoney = \"5\"", &["23:1 E022"]),
    ("alike = 5", "alike = 5\n[progress]\ndone_when = { log = \"x\" }", &["23:1 E022"]),
    ("settle = \"60s\"", "fence = true", &[]),
    ("settle = \"60s\"", "repair_tracker = true", &[]),
    ("settle = \"60s\"", "fence = false\nrepair_tracker = false", &[]),
    // Parts: a name that a placeholder can have, a place of its own, and a step for the trainer.
    (
        "[retry]",
        "resume = \"--x {step}\"\n[checkpoint.parts.critic]\npath = \"/mnt/ckpt/critic\"\n[retry]",
        &[],
    ),
    (
        "[retry]",
        "resume = \"--x {path} --y {critic.path}\"\n[checkpoint.parts.critic]\npath = \"/mnt/ckpt/critic\"\n[retry]",
        &[],
    ),
    (
        "[retry]",
        "resume = \"--x {path}\"\n[checkpoint.parts.critic]\npath = \"/mnt/ckpt/critic\"\n[retry]",
        &["17:1 E061 warning"],
    ),
    (
        "[retry]",
        "resume = \"--x {step} {critc.path}\"\n[checkpoint.parts.critic]\npath = \"/mnt/ckpt/critic\"\n[retry]",
        &["20:22 E060 {critic.path}"],
    ),
    ("[retry]", "[checkpoint.parts.critic]\npath = \"/mnt/ckpt/critic\"\n[retry]", &["17:1 E026"]),
    (
        "[retry]",
        "resume = \"\"\n[checkpoint.parts.critic]\npth = \"/mnt/ckpt/critic\"\n[retry]",
        &["21:1 E026", "22:1 E021 path"],
    ),
    (
        "[retry]",
        "resume = \"\"\n[checkpoint.parts.step]\npath = \"/mnt/ckpt/critic\"\n[retry]",
        &["21:19 E025"],
    ),
    (
        "[retry]",
        "resume = \"\"\n[checkpoint.parts.critic]\npath = \"/mnt/x\"\n[retry]",
        &["22:8 E050"],
    ),
    // What is wrong with a part does not make its placeholders unknown.
    (
        "[retry]",
        "resume = \"--x {step} {critic.path}\"\n[checkpoint.parts.critic]\npath = 5\n[retry]",
        &["22:8 E024"],
    ),
    (
        "[retry]",
        "resume = \"--x {critic.path}\"\n[checkpoint.parts.critic]\npath = \"/mnt/ckpt/critic\"\n[retry]",
        &["17:1 E061 warning"],
    ),
    // Syntax.
    ("alike = 5", "alike = 5\nalike = 6", &["22:1 E023"]),
    ("alike = 5", "alike = 5\nalike = 6\nx = 1", &["22:1 E023", "23:1 E021"]),
    ("settle = \"60s\"", "settle = 60s", &["19:10 E023"]),
    ("alike = 5", "alike = ", &["21:9 E023"]),
    // Types and values.
    ("alike = 5", "alike = \"5\"", &["21:9 E024"]),
    ("alike = 5", "alike = 0", &["21:9 E025"]),
    ("alike = 5", "alike = 99999999999999999999", &["21:9 E025"]),
    ("settle = \"60s\"", "settle = 60", &["19:10 E027"]),
    ("settle = \"60s\"", "settle = 1.5", &["19:10 E027"]),
    ("settle = \"60s\"", "settle = \"60\"", &["19:10 E027"]),
    ("settle = \"60s\"", "settle = \"soon\"", &["19:10 E027"]),
    ("settle = \"60s\"", "settle = \"25h\"", &["19:10 E025"]),
    ("settle = \"60s\"", "settle = true", &["19:10 E024"]),
    ("alike = 5", "on_stopped = \"resum\"", &["21:14 E025 resume"]),
    ("name = \"llama\"", "name = \"a b\"", &["1:8 E025"]),
    ("name = \"llama\"", "名 = 1; name", &["1:1 E023", "1:5 E023"]),
    ("name = \"llama\"", "run = 0", &["1:7 E025"]),
    ("name = \"llama\"", "launcher = \"no\"", &["1:12 E024"]),
    ("[retry]\nalike = 5", "retry = 5", &["20:1 E021 retry"]),
    ("name = \"llama\"", "spot = 5", &["15:2 E023"]),
    // Target.
    ("target = \"hz\"", "target = \"hx\"", &["2:10 E031 hz"]),
    ("target = \"hz\"\n", "", &["1:1 E026"]),
    ("[targets", "", &[]),
    // The bid.
    (
        "discount_limit = 0.4",
        "discount_limit = 0.4\nprice_limit_per_minute = \"0.011\"",
        &["17:1 E040"],
    ),
    (
        "discount_limit = 0.4",
        "price_limit_per_minute = \"1\"\nprice_limit_per_hour = \"1\"",
        &["17:1 E040"],
    ),
    ("discount_limit = 0.4", "", &["15:1 E040"]),
    ("discount_limit = 0.4", "discount = 0.4", &["15:1 E040", "16:1 E021 discount_limit"]),
    ("discount_limit = 0.4", "discount_limit = 40", &["16:18 E025"]),
    ("discount_limit = 0.4", "discount_limit = 0.009", &["16:18 E025"]),
    ("discount_limit = 0.4", "discount_limit = 1.01", &["16:18 E025"]),
    ("discount_limit = 0.4", "discount_limit = -0.4", &["16:18 E025"]),
    ("discount_limit = 0.4", "discount_limit = nan", &["16:18 E025"]),
    ("discount_limit = 0.4", "discount_limit = \"0.4\"", &["16:18 E024"]),
    ("discount_limit = 0.4", "discount_limit = 1", &["16:18 E048 warning"]),
    ("discount_limit = 0.4", "price_limit_per_minute = 0.011", &["16:26 E024"]),
    ("discount_limit = 0.4", "price_limit_per_minute = \"0\"", &["16:26 E025"]),
    ("discount_limit = 0.4", "price_limit_per_hour = \"0.00001\"", &["16:24 E025"]),
    ("PodCount = 2", "PodCount = 2\nSpotSpec = { SpotDiscountLimit = 0.4 }", &["11:1 E041"]),
    // The body.
    ("JobType = \"PyTorchJob\"\n", "", &["3:2 E026"]),
    ("JobType", "JobTyp", &["3:2 E026", "4:1 E080 warning JobType"]),
    ("JobType", "job_type", &["3:2 E026", "4:1 E034 JobType"]),
    ("\"PyTorchJob\"", "\"PytorchJob\"", &["4:11 E034 PyTorchJob"]),
    ("EcsSpec", "ecsSpec", &["11:1 E034 EcsSpec"]),
    ("PodCount = 2", "PodCount = \"2\"", &["10:12 E025"]),
    ("PodCount = 2", "PodCount = 2\nResourceConfig = { CPU = \"4\" }", &["11:1 E044"]),
    ("MountPath", "DataSourceId = \"d\"\nMountPath", &["13:1 E044"]),
    ("Image = \"img\"", "Image = 1979-05-27", &["9:9 E035"]),
    ("Image = \"img\"", "Image = inf", &["9:9 E035"]),
    ("Image = \"img\"", "Image = 99999999999999999999", &["9:9 E035"]),
    ("[submit]", "[submit]\nWorkspaceId = \"999\"", &["4:15 E036"]),
    ("[submit]", "[submit]\nWorkspaceId = \"12345\"", &[]),
    ("NCCL_DEBUG = \"WARN\"", "SPOTKEEPER_MARK = \"x\"", &["6:10 E037"]),
    ("NCCL_DEBUG = \"WARN\"", "A = 1", &["6:14 E024"]),
    ("NCCL_DEBUG = \"WARN\"", "A = { secret = \"../x\" }", &["6:25 E038"]),
    ("NCCL_DEBUG = \"WARN\"", "A = { secret = \"absent\" }", &["6:25 E038"]),
    ("NCCL_DEBUG = \"WARN\"", "A = { secret = 5 }", &["6:25 E024"]),
    ("NCCL_DEBUG = \"WARN\"", "A = \"LTAI5tAbCdEfGhIjKlMn\"", &["6:14 E039"]),
    ("Image = \"img\"", "Image = { secret = \"x\" }", &["9:9 E038"]),
    ("[submit]", "[submit]\nSettings = { Tags = { spotkeeper = \"x\" } }", &["4:23 E037"]),
    (
        "[submit]",
        "[submit]\nCustomEnvs = [{ Key = \"SPOTKEEPER_JOB\", Value = \"x\" }]",
        &["4:17 E037"],
    ),
    ("[submit]", "submit_file = \"x.json\"\n[submit]", &["3:15 E020"]),
    (
        "[submit]\n",
        "",
        &[
            "3:1 E021 submit.JobType",
            "4:1 E021 submit.UserCommand",
            "5:1 E021 submit.Envs",
            "6:3 E026",
            "6:3 E026",
        ],
    ),
    // Checkpoints.
    ("path = \"/mnt/ckpt/run42\"", "path = \"/mnt/other\"", &["18:8 E050"]),
    ("path = \"/mnt/ckpt/run42\"", "path = \"mnt/ckpt\"", &["18:8 E052"]),
    ("path = \"/mnt/ckpt/run42\"", "path = \"/mnt/ckpt/../x\"", &["18:8 E052"]),
    ("path = \"/mnt/ckpt/run42\"", "url = \"http://x\"", &["18:7 E052"]),
    ("path = \"/mnt/ckpt/run42\"", "url = \"oss://elsewhere/x\"", &["18:7 E053"]),
    ("path = \"/mnt/ckpt/run42\"", "url = \"oss://bucket/team/run42/\"", &[]),
    (
        "path = \"/mnt/ckpt/run42\"",
        "path = \"/mnt/ckpt/a\"\nurl = \"oss://bucket/team/b\"",
        &["19:7 E054"],
    ),
    ("path = \"/mnt/ckpt/run42\"\n", "", &["17:1 E026"]),
    (
        "Uri = \"oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com/team/\"",
        "DataSourceId = \"d-1\"",
        &["18:8 E051"],
    ),
    ("oss://bucket.oss-cn-hangzhou-internal", "nas://x", &["18:8 E055"]),
    ("cn-hangzhou-internal", "cn-beijing", &["18:8 E056 warning"]),
    ("settle = \"60s\"", "format = \"megatron-legcy\"", &["19:10 E025 megatron-legacy"]),
    ("settle = \"60s\"", "format = \"deepspeeed\"", &["19:10 E025 deepspeed"]),
    ("settle = \"60s\"", "format = \"custom\"\nresume = \"{path}\"", &["17:1 E026"]),
    ("[retry]", "[checkpoint.custom]\npattern = \"s-{step}\"\n[retry]", &["20:1 E028"]),
    (
        "settle = \"60s\"",
        "format = \"custom\"\nresume = \"\"\ncustom = { pattern = \"s\" }",
        &["21:22 E025"],
    ),
    (
        "settle = \"60s\"",
        "format = \"custom\"\ncustom = { pattern = \"s-{step}\" }",
        &["17:1 E061 warning", "20:10 E066 warning"],
    ),
    // Something has to tell a torn one: files, a marker, or the end of the file itself.
    (
        "[retry]",
        "format = \"custom\"\nresume = \"\"\n[checkpoint.custom]\npattern = \"s-{step}\"\nrequired = []\n[retry]",
        &["22:1 E066 warning"],
    ),
    (
        "[retry]",
        "format = \"custom\"\nresume = \"\"\n[checkpoint.custom]\npattern = \"s-{step}\"\nmarker = \"OK\"\n[retry]",
        &[],
    ),
    (
        "[retry]",
        "format = \"custom\"\nresume = \"\"\n[checkpoint.custom]\npattern = \"s-{step}.ckpt\"\n[retry]",
        &[],
    ),
    (
        "[retry]",
        "format = \"custom\"\nresume = \"\"\n[checkpoint.custom]\npattern = \"s-{step}\"\nmarker = \"../x\"\n[retry]",
        &["24:10 E025"],
    ),
    (
        "[retry]",
        "resume = \"{step}\"\n[checkpoint.parts.critic]\npath = \"/mnt/ckpt/critic\"\nformat = \"custom\"\ncustom = { pattern = \"{step}\" }\n[retry]",
        &["24:10 E066 warning"],
    ),
    // A tracker that is never rewritten.
    ("settle = \"60s\"", "format = \"hf-trainer\"\nrepair_tracker = true", &["20:18 E067 warning"]),
    ("settle = \"60s\"", "format = \"lightning\"\nrepair_tracker = false", &[]),
    ("settle = \"60s\"", "format = \"deepspeed\"\nrepair_tracker = true", &[]),
    (
        "settle = \"60s\"",
        "format = \"deepspeed\"\nresume = \"--tag {name}\"\nrepair_tracker = true",
        &["21:18 E067 warning"],
    ),
    (
        "settle = \"60s\"",
        "format = \"deepspeed\"\nresume = \"--load {root}\"\nrepair_tracker = true",
        &[],
    ),
    // An empty tracker ends Megatron whatever its argument says.
    (
        "settle = \"60s\"",
        "format = \"megatron-legacy\"\nresume = \"--load {root} --ckpt-step {step}\"\nrepair_tracker = true",
        &[],
    ),
    ("settle = \"60s\"", "format = \"megatron\"", &["19:10 E025 megatron-torch-dist"]),
    ("settle = \"60s\"", "format = \"huggingface\"", &["19:10 E025 hf-trainer"]),
    // Everything that is wrong with a template.
    (
        "settle = \"60s\"",
        "resume = \"--load '{root}' --step {stp}\"",
        &["19:19 E060", "19:34 E060 {step}"],
    ),
    (
        "settle = \"60s\"",
        "resume = \"--load '{root} --step {stp}\"",
        &["19:19 E060", "19:33 E060", "19:33 E060 {step}"],
    ),
    // A part whose name cannot be one: nothing else is asked of that name.
    (
        "[retry]",
        "resume = \"--x {path}\"\n[checkpoint.parts.my-critic]\npath = \"/mnt/ckpt/critic\"\n[retry]",
        &["21:19 E025"],
    ),
    ("path = \"/mnt/ckpt/run42\"", "url = \"oss://key:pass@bucket/x\"", &["18:7 E052"]),
    // The way of the resume argument.
    ("Image = \"img\"", "UserCommand = \"python x.py\"", &["9:15 E061 warning"]),
    ("settle = \"60s\"", "resume = \"--load {root} --step {stp}\"", &["19:32 E060 {step}"]),
    ("settle = \"60s\"", "resume = \"--load '{root}'\"", &["19:19 E060"]),
    (" {resume} && echo DONE", " && echo DONE", &["5:34 E061"]),
    ("train.py {resume} &&", "train.py '{resume}' &&", &["5:35 E061"]),
    (" {resume} && echo DONE", " --x 1", &[]),
    (" {resume} && echo DONE", " && echo DONE", &["5:34 E061"]),
];

#[test]
fn every_mistake_is_found_at_its_place() {
    let mut wrong = Vec::new();
    for (from, to, expected) in BAD {
        let text = JOB.replacen(from, to, 1);
        let file = read(&text);
        let found = short(&file.diagnostics);
        if found != *expected {
            wrong.push(format!("{to:?}: expected {expected:?}, found {found:?}"));
        }
        let errors = expected.iter().any(|e| !e.contains("warning"));
        assert_eq!(file.spec.is_none(), errors, "{to:?}: {found:?}");
        for diagnostic in &file.diagnostics {
            assert!(!diagnostic.mend.is_empty() || diagnostic.nearest.is_some(), "{diagnostic}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_key_in_the_wrong_table_is_told_where_it_belongs() {
    let found = read(&JOB.replacen("alike = 5", "run = 2", 1)).diagnostics;
    assert!(found[0].mend.contains("at the top of the file"), "{}", found[0]);
    let found = read(&JOB.replacen("alike = 5", "alikes = 5", 1)).diagnostics;
    assert_eq!(found[0].mend, "did you mean `alike`?");
}

#[test]
fn all_mistakes_of_a_file_are_found_in_one_run() {
    let text = JOB
        .replace("alike = 5", "alik = 5")
        .replace("settle = \"60s\"", "settle = 60")
        .replace("discount_limit = 0.4", "discount_limit = 4")
        .replace("NCCL_DEBUG", "SPOTKEEPER_X")
        .replace("target = \"hz\"", "target = \"?\"");
    let found = read(&text).diagnostics;
    let expected = ["2:10 E031", "6:10 E037", "16:18 E025", "19:10 E027", "21:1 E021 alike"];
    assert_eq!(short(&found), expected);
}

#[test]
fn the_daemon_file_is_checked_the_same_way() {
    let mut wrong = Vec::new();
    for (from, to, expected) in [
        ("owner = \"k3f9qz\"", "owner = \"K3F9QZ\"", vec!["2:9 E025"]),
        ("owner", "ower", vec!["2:1 E021 owner"]),
        ("region = \"cn-hangzhou\"\n", "", vec!["4:10 E026"]),
        ("region = \"cn-hangzhou\"", "region = \"x.evil.com/\"", vec!["5:10 E025"]),
        ("workspace = \"12345\"", "workspace = 12345", vec!["6:13 E024"]),
        ("{ environment = true }", "{ profile = \"x\" }", vec![]),
        ("{ environment = true }", "{ profile = \"\" }", vec!["7:27 E025"]),
        ("{ environment = true }", "{ ecs_role = \"x\" }", vec![]),
        ("{ environment = true }", "{ ecs_role = true }", vec![]),
        ("{ environment = true }", "{ ecs_role = 1 }", vec!["7:28 E025"]),
        ("{ environment = true }", "{ systemd = \"keys\" }", vec![]),
        ("{ environment = true }", "{ systemd = \"../keys\" }", vec!["7:27 E025"]),
        ("{ environment = true }", "{ oidc = true, uri = \"http://h\" }", vec!["7:15 E028"]),
        ("{ environment = true }", "{ uri = \"http://localhost:7002/api\" }", vec![]),
        ("{ environment = true }", "{ uri = \"http://localhost/?key=x\" }", vec!["7:23 E025"]),
        ("owner", "credentials.allow_commands = true\nowner", vec![]),
        ("owner", "credentials.allow_commands = 1\nowner", vec!["2:30 E024"]),
        ("{ environment = true }", "{}", vec!["7:15 E026"]),
        ("{ environment = true }", "{ environment = false }", vec!["7:31 E025"]),
        ("{ environment = true }", "{ environment = true, chain = true }", vec!["7:15 E028"]),
        ("{ environment = true }", "{ file = \"/absent/keys\" }", vec!["7:24 E045"]),
        ("[targets.hz]", "[targets.hz]\nendpoint = \"http://h\"", vec!["5:12 E030"]),
        ("[targets.hz]", "[targets.hz]\nendpoint = \"http://h\"\nplain_http = true", vec![]),
        ("[targets.hz]", "[targets.hz]\nstorage = { endpoint = \"h\" }", vec!["5:24 E030"]),
        ("[targets.hz]", "[targets.hz]\nacceptance = 15", vec!["5:14 E027"]),
        ("[targets.hz]", "[targets.hz]\nmax_parallel = 0", vec!["5:16 E025"]),
        ("[targets.hz]", "[targets.\"h z\"]", vec!["4:10 E025"]),
        ("[targets.hz]", "[sweep]\ninterval = \"1m\"\nevery = 1\n[targets.hz]", vec!["6:1 E021"]),
        ("[targets.hz]", "[targets]\nhz = 1\n[x]", vec!["5:6 E024", "6:2 E021"]),
    ] {
        let source = Source::new(Path::new("/etc/d.toml"), DAEMON.replacen(from, to, 1));
        let file = read_daemon(&source, &Surroundings::default());
        let found = short(&file.diagnostics);
        if found != expected {
            wrong.push(format!("{to:?}: expected {expected:?}, found {found:?}"));
        }
        assert_eq!(file.accepted().is_some(), expected.is_empty(), "{to:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let source = Source::new(Path::new("/etc/d.toml"), String::new());
    let file = read_daemon(&source, &Surroundings::default());
    assert_eq!(short(&file.diagnostics), ["1:1 E081 warning"]);
    assert_eq!(daemon(Path::new("/x")).targets.len(), 1);
}

#[test]
fn a_file_full_of_mistakes_is_not_reported_without_end() {
    let many: Vec<String> = (0..1_000).map(|n| format!("odd{n} = 1\n")).collect();
    let found = read(&format!("{}{JOB}", many.concat())).diagnostics;
    assert!((100..1_000).contains(&found.len()), "{}", found.len());
    assert!(found.iter().any(|d| d.code == spotkeeper::config::codes::FILE_LIMIT));
}

#[test]
fn no_text_makes_the_reader_panic() {
    let body = r#"{"JobType": "a\"", "JobSpecs": [{"PodCount": 1, "é": [1, {}]}], "Envs": {"A": {"secret": "x"}}}"#;
    let folder = tempfile::tempdir().expect("a folder");
    let config = daemon(folder.path());
    let by_file = Source::new(
        &folder.path().join("job.toml"),
        "target = \"hz\"\nsubmit_file = \"body.json\"\n".into(),
    );
    for at in (0..JOB.len()).filter(|at| JOB.is_char_boundary(*at)) {
        for odd in ["", "\"", "{", "=", "\n", "é", "'", "[", "\u{feff}", "\r", "\0"] {
            let text = format!("{}{odd}{}", &JOB[..at], &JOB[at + 1..]);
            read(&text).diagnostics.iter().for_each(|d| assert!(!d.to_string().is_empty()));
        }
        read(&JOB[..at]);
    }
    for at in (0..body.len()).filter(|at| body.is_char_boundary(*at)) {
        for odd in ["", "\"", "}", "\\", "é", "1"] {
            let text = format!("{}{odd}{}", &body[..at], &body[at..]);
            std::fs::write(folder.path().join("body.json"), text).expect("written");
            let file = read_job(&by_file, Rules::of(&config));
            assert!(!file.diagnostics.is_empty());
        }
    }
}

#[test]
fn a_fence_needs_the_launcher_in_every_role() {
    let fenced = JOB.replace("settle = \"60s\"", "fence = true");
    assert!(read(&fenced).spec.expect("a spec").checkpoint.expect("a checkpoint").fence);
    let bare = fenced.replace("target = ", "launcher = false\ntarget = ");
    assert_eq!(short(&read(&bare).diagnostics), ["20:9 E028"]);
    let role = fenced.replace("PodCount = 2", "PodCount = 2\nUserCommand = \"x\"");
    let found = short(&read(&role).diagnostics);
    assert!(found.iter().any(|one| one.starts_with("11:") && one.ends_with("E028")), "{found:?}");
    // Without a fence the record of a spec does not have the field: its digest stays.
    let spec = serde_json::to_value(read(JOB).spec.expect("a spec")).expect("JSON");
    assert!(spec["checkpoint"].get("fence").is_none());
}
