//! `spotkeeper run`: the daemon.

use super::exit::Exit;
use crate::api;
use crate::api::socket::BindError;
use crate::config::{DAEMON_FILE, Surroundings, load_daemon};
use crate::service::clock::Clock;
use crate::service::{logging, signals};
use crate::store::StoreError;
use crate::supervisor::{RunError, Settings, Supervisor};
use std::path::Path;
use std::sync::Arc;

/// Runs the daemon until it is told to stop.
pub(super) fn run(config: Option<&Path>) -> Exit {
    logging::start();
    let path = config.unwrap_or(Path::new(DAEMON_FILE));
    let file = load_daemon(path, &Surroundings::of_this_process());
    for diagnostic in &file.diagnostics {
        tracing::error!("{diagnostic}");
    }
    let Some(config) = file.accepted().cloned() else { return Exit::ConfigNotValid };
    let owner = match config.require_owner(path) {
        Ok(owner) => owner.clone(),
        Err(diagnostic) => {
            tracing::error!("{diagnostic}");
            return Exit::ConfigNotValid;
        }
    };
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "start the runtime");
                return Exit::Error;
            }
        };
    let settings = Settings { config: Arc::new(config), owner, clock: Clock::new() };
    runtime.block_on(serve(settings))
}

async fn serve(settings: Settings) -> Exit {
    let stop = match signals::stop_on_signal() {
        Ok(stop) => stop,
        Err(error) => {
            tracing::error!(%error, "set the signal handlers");
            return Exit::Error;
        }
    };
    let socket = settings.config.socket.clone();
    let jobs = settings.config.jobs_directory.clone();
    let supervisor = match Supervisor::open(settings, stop.clone()).await {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let locked = matches!(error, RunError::Store { source: StoreError::Locked { .. }, .. });
            tracing::error!("{:#}", anyhow::Error::from(error));
            return if locked { Exit::Refused } else { Exit::Error };
        }
    };
    // After the store's lock: only the one daemon of a state folder gets to the socket.
    let listener = match api::bind(&socket).await {
        Ok(listener) => listener,
        Err(error) => {
            let taken = matches!(error, BindError::Taken { .. });
            tracing::error!("error[{}]: {:#}", error.code(), anyhow::Error::from(error));
            return if taken { Exit::Refused } else { Exit::Error };
        }
    };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        socket = %socket.display(),
        jobs = %jobs.display(),
        "running"
    );
    let mut stopped = stop;
    let api = tokio::spawn(api::serve(listener, supervisor.handle(), async move {
        // The sender is gone: the process is on its way out.
        drop(stopped.wait_for(|stop| *stop).await);
    }));
    supervisor.run().await;
    api.abort();
    Exit::Done
}
