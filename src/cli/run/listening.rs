//! Where the API of a running daemon listens: on its socket always, over TCP if the daemon file asks
//! for it.

use crate::alerts::secrets;
use crate::api::socket::BindError;
use crate::api::{self, Gate};
use crate::cli::exit::Exit;
use crate::config::Tcp;
use crate::service::notify::Notifier;
use crate::supervisor::Supervisor;
use anyhow::Context as _;
use std::io;
use std::path::Path;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What listens; it ends with [`Listening::end`], or when the daemon is told to stop.
#[derive(Debug)]
pub(super) struct Listening(Vec<JoinHandle<io::Result<()>>>);

impl Listening {
    /// Answers on `socket` from now on, and tells the service manager of the end.
    pub(super) fn on(
        socket: UnixListener,
        supervisor: &Supervisor,
        notifier: Notifier,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let handle = supervisor.handle();
        Self(vec![tokio::spawn(async move {
            let stopped = async move {
                until_stopped(stop).await;
                notifier.stopping();
            };
            api::serve(socket, handle, stopped).await
        })])
    }

    /// Listens over TCP, too. Where that cannot be, it is told: the socket answers the same
    /// questions, and jobs come before either.
    pub(super) async fn over_tcp(
        &mut self,
        tcp: &Tcp,
        supervisor: &mut Supervisor,
        stop: watch::Receiver<bool>,
    ) {
        match listen_on(tcp).await {
            Ok((listener, gate)) => {
                let stopped = until_stopped(stop);
                let served = api::serve_tcp(listener, gate, supervisor.handle(), stopped);
                self.0.push(tokio::spawn(served));
            }
            Err(error) => {
                let code = api::wire::codes::SOCKET_FAILED;
                tracing::error!(%code, "error[{code}]: {error:#}: the API does not listen there");
                supervisor.note_deaf(format!("{error:#}"));
            }
        }
    }

    /// Nothing is answered any more.
    pub(super) fn end(self) {
        for listener in self.0 {
            listener.abort();
        }
    }
}

/// Takes the socket, or says why not and how the daemon ends. To be called with the store's lock:
/// only the one daemon of a state folder gets to the socket.
pub(super) async fn bind(path: &Path) -> Result<UnixListener, Exit> {
    api::bind(path).await.map_err(|error| {
        let taken = matches!(error, BindError::Taken { .. });
        let code = error.code();
        tracing::error!(%code, "error[{code}]: {:#}", anyhow::Error::from(error));
        if taken { Exit::Refused } else { Exit::Error }
    })
}

async fn until_stopped(mut stop: watch::Receiver<bool>) {
    // The sender is gone: the process is on its way out.
    drop(stop.wait_for(|stop| *stop).await);
}

/// Listens on the TCP address of the daemon file.
async fn listen_on(tcp: &Tcp) -> anyhow::Result<(TcpListener, Gate)> {
    let token = match &tcp.token {
        Some(token) => Some(secrets::read(token).await.context("[api] token")?),
        None => None,
    };
    let listener = TcpListener::bind(tcp.address)
        .await
        .with_context(|| format!("[api] listen = \"{}\"", tcp.address))?;
    tracing::info!(address = %listener.local_addr()?, "the API listens on TCP too, read only");
    Ok((listener, Gate { token, is_public: !tcp.address.ip().is_loopback() }))
}
