//! `spotkeeper run`: the daemon.

mod listening;
mod reload;

use super::exit::Exit;
use crate::config::{DAEMON_FILE, Surroundings, load_daemon};
use crate::service::clock::Clock;
use crate::service::logging::{self, Logging};
use crate::service::notify::Notifier;
use crate::service::signals;
use crate::store::StoreError;
use crate::supervisor::{RunError, Settings, Supervisor};
use listening::Listening;
use reload::Running;
use std::path::Path;
use std::sync::Arc;

/// Runs the daemon until it is told to stop.
pub(super) fn run(config: Option<&Path>) -> Exit {
    let logging = logging::start();
    let path = config.unwrap_or(Path::new(DAEMON_FILE));
    let exit = match settings(path, &logging) {
        Ok(settings) => run_with(settings, path, &logging),
        Err(exit) => exit,
    };
    logging.flush();
    exit
}

/// What the daemon file says, or how the daemon ends without it.
fn settings(path: &Path, logging: &Logging) -> Result<Settings, Exit> {
    let file = load_daemon(path, &Surroundings::of_this_process());
    for diagnostic in &file.diagnostics {
        tracing::error!(code = %diagnostic.code, "{diagnostic}");
    }
    let config = file.accepted().cloned().ok_or(Exit::ConfigNotValid)?;
    logging.set_level(config.log_level);
    let owner = config.require_owner(path).cloned().map_err(|diagnostic| {
        tracing::error!(code = %diagnostic.code, "{diagnostic}");
        Exit::ConfigNotValid
    })?;
    Ok(Settings { config: Arc::new(config), owner, clock: Clock::new() })
}

fn run_with(settings: Settings, path: &Path, logging: &Logging) -> Exit {
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "start the runtime");
                return Exit::Error;
            }
        };
    match runtime.block_on(serve(settings, path, logging.clone())) {
        Ok(()) => Exit::Done,
        Err(exit) => exit,
    }
}

async fn serve(settings: Settings, path: &Path, logging: Logging) -> Result<(), Exit> {
    let signals = signals::listen().map_err(|error| {
        tracing::error!(%error, "set the signal handlers");
        Exit::Error
    })?;
    let notifier = Notifier::of_this_process();
    let config = Arc::clone(&settings.config);
    let mut supervisor =
        Supervisor::open(settings, signals.stop.clone()).await.map_err(|error| {
            let locked = matches!(error, RunError::Store { source: StoreError::Locked { .. }, .. });
            tracing::error!("{:#}", anyhow::Error::from(error));
            if locked { Exit::Refused } else { Exit::Error }
        })?;
    let socket = listening::bind(&config.socket).await?;
    supervisor.count_start();
    supervisor.give_signs_of_life(notifier.clone());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        socket = %config.socket.display(),
        jobs = %config.jobs_directory.display(),
        "running"
    );
    let mut listening = Listening::on(socket, &supervisor, notifier.clone(), signals.stop.clone());
    if let Some(tcp) = &config.tcp {
        listening.over_tcp(tcp, &mut supervisor, signals.stop.clone()).await;
    }
    // Store, daemon file and socket stand. The cloud need not answer for that: a unit that failed
    // because an API is down would not be there when it is up again.
    notifier.ready(&supervisor.status());
    let control = supervisor.control();
    let running = Running { path: path.to_owned(), config, control, notifier, logging };
    let signals = tokio::spawn(running.listen(signals));
    supervisor.run().await;
    signals.abort();
    listening.end();
    Ok(())
}
