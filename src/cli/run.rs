//! `spotkeeper run`: the daemon.

use crate::config::{DAEMON_FILE, Surroundings, load_daemon};
use crate::service::clock::Clock;
use crate::service::{logging, signals};
use crate::store::StoreError;
use crate::supervisor::{RunError, Settings, Supervisor};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Run the daemon.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The daemon file
    #[arg(long, default_value = DAEMON_FILE)]
    config: PathBuf,
}

/// Runs the daemon until it is told to stop.
pub(super) fn run(args: &RunArgs) -> ExitCode {
    logging::start();
    let file = load_daemon(&args.config, &Surroundings::of_this_process());
    for diagnostic in &file.diagnostics {
        tracing::error!("{diagnostic}");
    }
    let Some(config) = file.accepted().cloned() else { return ExitCode::from(5) };
    let owner = match config.require_owner(&args.config) {
        Ok(owner) => owner.clone(),
        Err(diagnostic) => {
            tracing::error!("{diagnostic}");
            return ExitCode::from(5);
        }
    };
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "start the runtime");
                return ExitCode::FAILURE;
            }
        };
    let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
    runtime.block_on(serve(settings))
}

async fn serve(settings: Settings) -> ExitCode {
    let stop = match signals::stop_on_signal() {
        Ok(stop) => stop,
        Err(error) => {
            tracing::error!(%error, "set the signal handlers");
            return ExitCode::FAILURE;
        }
    };
    let supervisor = match Supervisor::open(settings, stop).await {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let locked = matches!(error, RunError::Store { source: StoreError::Locked { .. }, .. });
            tracing::error!("{:#}", anyhow::Error::from(error));
            return ExitCode::from(if locked { 8 } else { 1 });
        }
    };
    supervisor.run().await;
    ExitCode::SUCCESS
}
