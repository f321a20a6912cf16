//! Signals: the first TERM or INT asks for a clean end, the second ends the process at once; HUP
//! asks for the configuration to be read again, USR1 for the state in the log.

use futures_util::StreamExt as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::{Notify, watch};

/// The exit status of a process that a second signal ended.
const AT_ONCE: i32 = 130;

/// What signals ask for. Several of one kind that come before they are heard are one.
#[derive(Debug, Clone)]
pub struct Signals {
    /// Turns true at the first TERM or INT.
    pub stop: watch::Receiver<bool>,
    /// HUP.
    pub reload: Arc<Notify>,
    /// USR1.
    pub dump: Arc<Notify>,
}

/// Takes the signals over. A second TERM or INT ends the process at once, even if the runtime is
/// stuck.
///
/// # Errors
/// The handlers could not be set.
pub fn listen() -> std::io::Result<Signals> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // Armed before the flag is raised: it acts from the second signal on.
        signal_hook::flag::register_conditional_shutdown(signal, AT_ONCE, Arc::clone(&asked))?;
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    let mut signals = signal_hook_tokio::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])?;
    let (stop, stopped) = watch::channel(false);
    let (reload, dump) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let heard = Signals { stop: stopped, reload: Arc::clone(&reload), dump: Arc::clone(&dump) };
    tokio::spawn(async move {
        while let Some(signal) = signals.next().await {
            match signal {
                SIGHUP => reload.notify_one(),
                SIGUSR1 => dump.notify_one(),
                _ => {
                    if !stop.send_replace(true) {
                        tracing::info!(
                            "asked to stop; no job is stopped, a second signal ends at once"
                        );
                    }
                }
            }
        }
        // The sender lives on: a receiver must not take its end for a stop.
        std::future::pending::<()>().await;
    });
    Ok(heard)
}
