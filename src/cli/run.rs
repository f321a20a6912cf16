//! `spotkeeper run`: the daemon.

mod reload;

use super::exit::Exit;
use crate::alerts::secrets;
use crate::api::socket::BindError;
use crate::api::{self, Gate};
use crate::config::{DAEMON_FILE, Surroundings, Tcp, load_daemon};
use crate::service::clock::Clock;
use crate::service::logging::{self, Logging};
use crate::service::notify::Notifier;
use crate::service::signals;
use crate::store::StoreError;
use crate::supervisor::{RunError, Settings, Supervisor};
use anyhow::Context as _;
use reload::Running;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Runs the daemon until it is told to stop.
pub(super) fn run(config: Option<&Path>) -> Exit {
    let logging = logging::start();
    let path = config.unwrap_or(Path::new(DAEMON_FILE));
    let file = load_daemon(path, &Surroundings::of_this_process());
    for diagnostic in &file.diagnostics {
        tracing::error!(code = %diagnostic.code, "{diagnostic}");
    }
    let Some(config) = file.accepted().cloned() else { return Exit::ConfigNotValid };
    logging.set_level(config.log_level);
    let owner = match config.require_owner(path) {
        Ok(owner) => owner.clone(),
        Err(diagnostic) => {
            tracing::error!(code = %diagnostic.code, "{diagnostic}");
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
    runtime.block_on(serve(settings, path, logging))
}

async fn serve(settings: Settings, path: &Path, logging: Logging) -> Exit {
    let signals = match signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            tracing::error!(%error, "set the signal handlers");
            return Exit::Error;
        }
    };
    let notifier = Notifier::of_this_process();
    let config = Arc::clone(&settings.config);
    let mut supervisor = match Supervisor::open(settings, signals.stop.clone()).await {
        Ok(supervisor) => supervisor,
        Err(error) => {
            let locked = matches!(error, RunError::Store { source: StoreError::Locked { .. }, .. });
            tracing::error!("{:#}", anyhow::Error::from(error));
            return if locked { Exit::Refused } else { Exit::Error };
        }
    };
    // After the store's lock: only the one daemon of a state folder gets to the socket.
    let listener = match api::bind(&config.socket).await {
        Ok(listener) => listener,
        Err(error) => {
            let taken = matches!(error, BindError::Taken { .. });
            let code = error.code();
            tracing::error!(%code, "error[{code}]: {:#}", anyhow::Error::from(error));
            return if taken { Exit::Refused } else { Exit::Error };
        }
    };
    supervisor.count_start();
    supervisor.give_signs_of_life(notifier.clone());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        socket = %config.socket.display(),
        jobs = %config.jobs_directory.display(),
        "running"
    );
    let over_tcp = match &config.tcp {
        None => None,
        Some(tcp) => match listen_on(tcp).await {
            Ok((listener, gate)) => Some(tokio::spawn(api::serve_tcp(
                listener,
                gate,
                supervisor.handle(),
                until_stopped(signals.stop.clone()),
            ))),
            Err(error) => {
                // It only answers questions, which the socket does too: jobs come before it.
                let code = api::wire::codes::SOCKET_FAILED;
                tracing::error!(%code, "error[{code}]: {error:#}: the API does not listen there");
                supervisor.note_deaf(format!("{error:#}"));
                None
            }
        },
    };
    // Store, daemon file and socket stand. The cloud need not answer for that: a unit that failed
    // because an API is down would not be there when it is up again.
    notifier.ready(&supervisor.status());
    let stopped = until_stopped(signals.stop.clone());
    let leaving = notifier.clone();
    let api = tokio::spawn(api::serve(listener, supervisor.handle(), async move {
        stopped.await;
        leaving.stopping();
    }));
    let control = supervisor.control();
    let running = Running { path: path.to_owned(), config, control, notifier, logging };
    let listening = tokio::spawn(running.listen(signals));
    supervisor.run().await;
    listening.abort();
    api.abort();
    if let Some(over_tcp) = over_tcp {
        over_tcp.abort();
    }
    Exit::Done
}

async fn until_stopped(mut stop: watch::Receiver<bool>) {
    // The sender is gone: the process is on its way out.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Listens on the TCP address of the daemon file.
async fn listen_on(tcp: &Tcp) -> anyhow::Result<(TcpListener, Gate)> {
    let token = tcp.token.as_ref().map(secrets::read).transpose().context("[api] token")?;
    let listener = TcpListener::bind(tcp.address)
        .await
        .with_context(|| format!("[api] listen = \"{}\"", tcp.address))?;
    tracing::info!(address = %listener.local_addr()?, "the API listens on TCP too, read only");
    Ok((listener, Gate { token, is_public: !tcp.address.ip().is_loopback() }))
}
