//! Daemon file and job files: what is wrong is found, all of it, at its place; what is right
//! survives to the letter.

use spotkeeper::config::daemon::{DaemonConfig, Surroundings, read_daemon};
use spotkeeper::config::diagnostic::{Diagnostic, Severity, Source};
use spotkeeper::config::job::{JobFile, Rules, read_job};
use std::path::Path;

mod alerts;
mod bodies;
mod files;
mod mistakes;
mod platform;
mod waiting;

const DAEMON: &str = r#"
owner = "k3f9qz"
job_secrets = "secrets"
[targets.hz]
region = "cn-hangzhou"
workspace = "12345"
credentials = { environment = true }
"#;

/// A job file without errors, 21 lines long. Cases replace parts of it.
const JOB: &str = r#"name = "llama"
target = "hz"
[submit]
JobType = "PyTorchJob"
UserCommand = "torchrun train.py {resume} && echo DONE"
Envs = { NCCL_DEBUG = "WARN" }
[[submit.JobSpecs]]
Type = "Worker"
Image = "img"
PodCount = 2
EcsSpec = "ecs.gn7e-c16g1.4xlarge"
[[submit.DataSources]]
Uri = "oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com/team/"
MountPath = "/mnt/ckpt"
[spot]
discount_limit = 0.4
[checkpoint]
path = "/mnt/ckpt/run42"
settle = "60s"
[retry]
alike = 5
"#;

fn daemon(folder: &Path) -> DaemonConfig {
    let source = Source::new(&folder.join("spotkeeper.toml"), DAEMON.into());
    let file = read_daemon(&source, &Surroundings::default());
    file.accepted().cloned().unwrap_or_else(|| panic!("{:?}", file.diagnostics))
}

fn read(text: &str) -> JobFile {
    let config = daemon(Path::new("/nowhere"));
    read_job(&Source::new(Path::new("/nowhere/job.toml"), text.into()), Rules::of(&config))
}

fn short(diagnostics: &[Diagnostic]) -> Vec<String> {
    diagnostics
        .iter()
        .map(|d| {
            let near = d.nearest.as_deref().map(|n| format!(" {n}")).unwrap_or_default();
            let warning = if d.severity == Severity::Warning { " warning" } else { "" };
            format!("{}:{} {}{warning}{near}", d.at.line, d.at.column, d.code)
        })
        .collect()
}
