//! The demo's folder: daemon file, job file, keys and market, and the steps at which the market
//! turns.
//!
//! Always holds: everything that the demo makes is below this one folder, which only its user can
//! enter; a folder that was there before is used only if it is empty, and never removed.

use super::figures::Asked;
use super::json_lines;
use super::trainer::RANKS;
use crate::emulator::random::unguessable_hex;
use crate::model::error::Class;
use crate::model::ids::Owner;
use crate::model::money::Money;
use crate::model::resume_text::quoted;
use serde::Deserialize as _;
use serde::ser::Error as _;
use serde_json::json;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The job's name.
pub const JOB: &str = "demo";
/// Steps that the job should reach.
pub const STEPS: u64 = 400;
/// Steps from one save to the next.
const SAVE_EVERY: u64 = 50;
/// Time of one step, ms.
const STEP_TIME_MS: u64 = 40;
/// Pause between two writes of a save, ms. A save has 11 of them.
const WRITE_PAUSE_MS: u64 = 40;
/// CNY an hour at list price.
const LIST_PRICE_PER_HOUR: &str = "34.74";
/// The most that the job bids, as a fraction of list.
const BID: f64 = 0.4;
/// How long the gateway accepts a request; the daemon waits as long before its first one.
pub const ACCEPTANCE: &str = "3s";
/// Bytes that the path of a unix socket may have (`sun_path`, with its end).
const SOCKET_PATH_LIMIT_BYTES: usize = 107;

/// Why the stage cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// A file or folder cannot be made.
    #[error("make {path}")]
    Make {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The folder has something in it.
    #[error("{0} is not empty: name a new folder with --dir")]
    NotEmpty(PathBuf),
    /// A path that no TOML or shell text can hold.
    #[error("{0:?} is not UTF-8: name another folder with --dir")]
    NotText(PathBuf),
    /// A unix socket cannot have so long a path.
    #[error(
        "{0} is too long for a socket ({SOCKET_PATH_LIMIT_BYTES} bytes): name a shorter folder \
         with --dir"
    )]
    TooLong(PathBuf),
    /// A file does not become text.
    #[error("write {0}")]
    Write(&'static str, #[source] toml::ser::Error),
    /// No random bytes for an owner.
    #[error("no random bytes for an owner id")]
    Random(#[source] getrandom::Error),
}

impl StageError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Make { .. }
            | Self::NotEmpty(_)
            | Self::NotText(_)
            | Self::TooLong(_)
            | Self::Random(_) => Class::Operator,
            Self::Write(..) => Class::Bug,
        }
    }
}

/// The folder, and everything in it by name.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The folder.
    pub folder: PathBuf,
    /// The emulator's key, ID and SECRET.
    pub key: (String, String),
}

impl Stage {
    /// Makes the folder: `dir`, or a fresh one among the temporary ones.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn make(dir: Option<&Path>) -> Result<Self, StageError> {
        let fresh = || format!("spotkeeper-demo-{}", unguessable_hex(4));
        let folder = dir.map_or_else(|| std::env::temp_dir().join(fresh()), Path::to_owned);
        let made = |source| StageError::Make { path: folder.clone(), source };
        let there = dir.is_some() && folder.exists();
        if there {
            if std::fs::read_dir(&folder).map_err(made)?.next().is_some() {
                return Err(StageError::NotEmpty(folder));
            }
        } else {
            DirBuilder::new().mode(0o700).create(&folder).map_err(made)?;
        }
        let folder = folder.canonicalize().map_err(made)?;
        let stage = Self { folder, key: ("demo".to_owned(), unguessable_hex(16)) };
        let checked = stage.check().and_then(|()| stage.folders());
        match checked {
            Ok(()) => Ok(stage),
            Err(error) => {
                if !there {
                    // Best effort: the failure that is told is the first one.
                    std::fs::remove_dir_all(&stage.folder).ok();
                }
                Err(error)
            }
        }
    }

    fn check(&self) -> Result<(), StageError> {
        text(&self.folder)?;
        let socket = self.socket();
        if socket.as_os_str().len() > SOCKET_PATH_LIMIT_BYTES {
            return Err(StageError::TooLong(socket));
        }
        Ok(())
    }

    fn folders(&self) -> Result<(), StageError> {
        for path in [self.jobs(), self.checkpoints(), self.emulator()] {
            std::fs::create_dir(&path).map_err(|source| StageError::Make { path, source })?;
        }
        Ok(())
    }

    /// The daemon file.
    pub fn config(&self) -> PathBuf {
        self.folder.join("spotkeeper.toml")
    }

    /// The daemon's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("api.sock")
    }

    /// The daemon's state.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The daemon's output.
    pub fn daemon_log(&self) -> PathBuf {
        self.folder.join("daemon.log")
    }

    /// The emulator's folder.
    pub fn emulator(&self) -> PathBuf {
        self.folder.join("emulator")
    }

    /// The emulator's output.
    pub fn emulator_log(&self) -> PathBuf {
        self.folder.join("emulator.log")
    }

    /// The emulator's ledger.
    pub fn ledger(&self) -> PathBuf {
        self.emulator().join("ledger.jsonl")
    }

    /// What the market does.
    pub fn market(&self) -> PathBuf {
        self.folder.join("market.jsonl")
    }

    /// The trainer's log.
    pub fn trainer_log(&self) -> PathBuf {
        self.folder.join("trainer.jsonl")
    }

    /// The daemon's events, as they were read through its socket.
    pub fn events(&self) -> PathBuf {
        self.folder.join("events.jsonl")
    }

    fn jobs(&self) -> PathBuf {
        self.folder.join("jobs")
    }

    /// The job file.
    pub fn job(&self) -> PathBuf {
        self.jobs().join(format!("{JOB}.toml"))
    }

    fn checkpoints(&self) -> PathBuf {
        self.folder.join("checkpoints")
    }

    fn credentials(&self) -> PathBuf {
        self.folder.join("credentials.toml")
    }

    /// What the figures are compared with.
    pub fn asked(&self) -> Asked {
        let price = Money::parse(LIST_PRICE_PER_HOUR).expect("a price in decimal text");
        Asked { steps: STEPS, list_price_per_hour: price }
    }

    /// Writes what the emulator needs.
    ///
    /// # Errors
    /// [`StageError::Make`].
    pub fn write_market(&self) -> Result<(), StageError> {
        write(&self.market(), &market())
    }

    /// Writes what the daemon needs: `endpoint` is where the emulator listens, `program` what
    /// trains.
    ///
    /// # Errors
    /// [`StageError`].
    pub fn write_files(&self, endpoint: &str, program: &Path) -> Result<(), StageError> {
        let mut random = [0; 6];
        getrandom::fill(&mut random).map_err(StageError::Random)?;
        let (id, secret) = &self.key;
        let keys = json!({ "access_key_id": id, "access_key_secret": secret });
        let daemon = json!({
            "owner": Owner::from_random(random),
            "state_directory": text(&self.state())?,
            "jobs_directory": text(&self.jobs())?,
            "job_secrets": text(&self.folder.join("secrets"))?,
            "sweep": { "interval": "500ms" },
            "api": { "socket": text(&self.socket())? },
            "targets": { "emulator": {
                "region": "cn-hangzhou",
                "workspace": "1",
                "endpoint": endpoint,
                "credentials": { "file": text(&self.credentials())? },
                "acceptance": ACCEPTANCE,
            } },
        });
        write(&self.credentials(), &toml("the keys", &keys)?)?;
        write(&self.job(), &toml("the job file", &self.job_file(program)?)?)?;
        write(&self.config(), &toml("the daemon file", &daemon)?)
    }

    fn job_file(&self, program: &Path) -> Result<serde_json::Value, StageError> {
        let command = format!(
            "{} demo-trainer --save {} --log {} --steps {STEPS} --save-every {SAVE_EVERY} \
             --step-time {STEP_TIME_MS} --write-pause {WRITE_PAUSE_MS} {{resume}}",
            quoted(text(program)?),
            quoted(text(&self.checkpoints())?),
            quoted(text(&self.trainer_log())?),
        );
        Ok(json!({
            "name": JOB,
            "target": "emulator",
            "submit": {
                "JobType": "PyTorchJob",
                "UserCommand": command,
                "JobSpecs": [{
                    "Type": "Worker",
                    "Image": "none: the emulator runs the command on this machine",
                    "PodCount": 1,
                    "EcsSpec": "ecs.gn7e-c16g1.4xlarge",
                }],
            },
            "spot": { "discount_limit": BID },
            "checkpoint": {
                "url": format!("file://{}", text(&self.checkpoints())?),
                "format": "easyckpt-megatron",
                "resume": "--load {root} --ckpt-step {step}",
                "ranks": RANKS,
                "settle": "1s",
                "settle_interval": "500ms",
            },
            "progress": { "total_steps": STEPS },
            "retry": { "alike": 3 },
            "budget": { "list_price_per_hour": LIST_PRICE_PER_HOUR },
        }))
    }
}

/// The market: two times its price goes over the bid for a while, two times the machine is taken
/// in the middle of a save. Each time a newer checkpoint is whole already, so that the job goes
/// on at once.
fn market() -> String {
    let rank =
        |save: &str, rank| format!("checkpoints/iter_{save}/mp_rank_{rank:02}/model_optim_rng.pt");
    let done = |save: &str, rank| format!("checkpoints/iter_{save}/done_{rank}.txt");
    let lines = [
        json!({ "t": 0, "discount": 0.31, "stock": true }),
        json!({
            "when": { "exists": done("0000100", 1) }, "after": 1, "discount": 0.52, "for": 4,
        }),
        json!({ "when": { "exists": done("0000150", 1) }, "discount": 0.28 }),
        // All files of step 200 have a name, its markers are not there. On a machine so busy that
        // the moment passes unseen, step 250 does.
        json!({
            "when": { "exists": rank("00002*", 1), "missing": done("00002*", 0) }, "release": JOB,
        }),
        json!({ "when": { "exists": done("0000250", 1) }, "discount": 0.34 }),
        // Only the first rank of step 300 has begun.
        json!({
            "when": { "exists": rank("00003*", 0), "missing": rank("00003*", 1) }, "release": JOB,
        }),
        json!({
            "when": { "exists": done("0000350", 1) }, "after": 0.6, "discount": 0.47, "for": 2,
        }),
    ];
    json_lines::write(&lines)
}

fn text(path: &Path) -> Result<&str, StageError> {
    path.to_str().ok_or_else(|| StageError::NotText(path.to_owned()))
}

fn toml(what: &'static str, value: &serde_json::Value) -> Result<String, StageError> {
    // A JSON number goes to another format by way of that format's own values.
    toml::Value::deserialize(value)
        .map_err(toml::ser::Error::custom)
        .and_then(|table| toml::to_string_pretty(&table))
        .map_err(|source| StageError::Write(what, source))
}

fn write(path: &Path, text: &str) -> Result<(), StageError> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| StageError::Make { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::diagnostic::accepted;
    use crate::config::{Surroundings, load_daemon};
    use crate::emulator::script::Script;

    #[test]
    fn the_daemon_accepts_the_files_even_in_an_odd_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let odd = root.path().join("it's \"odd\" 训练");
        let stage = Stage::make(Some(&odd)).expect("a stage");
        let program = Path::new("/a b/spot'keeper");
        stage.write_files("http://127.0.0.1:7", program).expect("files");
        let daemon = load_daemon(&stage.config(), &Surroundings::default());
        assert!(accepted(&daemon.diagnostics), "{:#?}", daemon.diagnostics);
        let config = daemon.accepted().expect("accepted");
        let rules = crate::config::Rules::of(config);
        let set = crate::config::load_folder(&config.jobs_directory, rules);
        assert!(accepted(&set.diagnostics), "{:#?}", set.diagnostics);
        assert_eq!(set.accepted.len(), 1);
        stage.write_market().expect("a market");
        Script::load(&stage.market()).expect("a script");
    }

    #[test]
    fn a_folder_with_something_in_it_is_left_alone() {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::write(root.path().join("mine"), "").expect("written");
        assert!(matches!(Stage::make(Some(root.path())), Err(StageError::NotEmpty(_))));
        assert!(root.path().join("mine").exists());
        let long = root.path().join("x".repeat(100));
        assert!(matches!(Stage::make(Some(&long)), Err(StageError::TooLong(_))));
        assert!(!long.exists());
    }
}
