//! The PAI-DLC stand-in on loopback: the official SDK and our own client talk to it as to the
//! real service.
//!
//! It checks requests as strictly as the real gateway, keeps the documented statuses, runs each
//! job's UserCommand as real processes (or plays it, `--virtual`), and takes machines back when a
//! spot market goes over their bid. Its ledger alone tells what really happened.
//!
//! What always holds: it listens on loopback only; what an answer shows is in the ledger already;
//! no pod outlives it. It must not know anything of the supervisor: all it sees is requests.

pub mod args;
pub mod calls;
pub mod dialect;
pub mod faults;
pub mod gateway;
mod hang;
pub mod job;
pub mod ledger;
mod lifecycle;
pub mod listing;
pub mod market;
pub mod mounts;
pub mod process;
pub mod random;
pub mod records;
mod replay;
pub mod restart;
pub mod script;
mod server;
mod spoil;
pub mod submission;
pub mod trace;
pub mod views;
mod wire;
pub mod world;

use crate::model::error::Class;
use dialect::DialectChoice;
use gateway::AccessKey;
use market::{MarketError, MarketSpec};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub use server::{Running, serve};

/// How the emulator is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Loopback address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The access key that is let in.
    pub key: AccessKey,
    /// Folder of ledger, requests and pods.
    pub folder: PathBuf,
    /// Whether jobs may be run as root.
    pub as_root: AsRoot,
    /// How far a request's date may be from the clock.
    pub acceptance: Duration,
    /// How long a new job stays out of ListJobs.
    pub list_lag: Duration,
    /// How releases look.
    pub dialects: DialectChoice,
    /// Where prices come from.
    pub market: MarketSpec,
    /// Shortest time in each status before Running, and in Stopping.
    pub phase_delay: Duration,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// What a running job is.
    pub run_as: RunAs,
    /// CNY per minute at list price.
    pub list_price_per_minute: f64,
    /// How long a minute of `JobReservedMinutes` lasts.
    pub minute: Duration,
    /// Folder that stands for OSS: `oss://bucket/prefix/` is its `bucket/prefix`.
    pub oss_root: Option<PathBuf>,
}

impl Options {
    /// The defaults of the command line, for a caller in the same process.
    pub fn new(folder: PathBuf, key: AccessKey) -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            key,
            folder,
            as_root: AsRoot::Refused,
            acceptance: Duration::from_mins(15),
            list_lag: Duration::ZERO,
            dialects: DialectChoice::Fixed(dialect::Dialect::Plain),
            market: MarketSpec::Constant(0.3),
            phase_delay: Duration::ZERO,
            grace: Duration::ZERO,
            run_as: RunAs::Processes { data_mount: None },
            list_price_per_minute: 0.02,
            minute: Duration::from_mins(1),
            oss_root: None,
        }
    }
}

/// Whether jobs may be run as root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsRoot {
    /// Root is refused.
    Refused,
    /// The caller knows what is submitted.
    Allowed,
}

/// What a running job is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunAs {
    /// Real processes.
    Processes {
        /// Folder that they see as /mnt/data.
        data_mount: Option<PathBuf>,
    },
    /// A record alone.
    Virtual,
}

/// Why the emulator does not run.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The address can be reached from elsewhere.
    #[error("{0} is not a loopback address: jobs are commands that run on this machine")]
    NotLoopback(SocketAddr),
    /// It is root and was not allowed to be.
    #[error("running jobs as root needs --allow-root")]
    Root,
    /// The access key is not of the form ID:SECRET.
    #[error("--access-key is ID:SECRET, neither of them empty")]
    AccessKey,
    /// The list price is not a price.
    #[error("--list-price-per-minute {0} is no price")]
    ListPrice(f64),
    /// The address cannot be listened on.
    #[error("listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The ledger cannot be used.
    #[error("open the ledger")]
    Ledger(#[source] ledger::LedgerError),
    /// The market cannot be opened.
    #[error("open the market")]
    Market(#[source] MarketError),
    /// Pods cannot be run.
    #[error("prepare to run pods")]
    Process(#[source] process::ProcessError),
}

impl EmulatorError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::NotLoopback(_)
            | Self::Root
            | Self::AccessKey
            | Self::ListPrice(_)
            | Self::Listen { .. }
            | Self::Ledger(_)
            | Self::Market(_)
            | Self::Process(_) => Class::Operator,
        }
    }
}
