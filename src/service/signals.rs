//! Signals: the first TERM or INT asks for a clean end, the second ends the process at once.

use futures_util::StreamExt as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tokio::sync::watch;

/// The exit status of a process that a second signal ended.
const AT_ONCE: i32 = 130;

/// Turns `stop` true at the first TERM or INT. A second one ends the process at once, even if the
/// runtime is stuck.
///
/// # Errors
/// The handlers could not be set.
pub fn stop_on_signal() -> std::io::Result<watch::Receiver<bool>> {
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // Armed before the flag is raised: it acts from the second signal on.
        signal_hook::flag::register_conditional_shutdown(signal, AT_ONCE, Arc::clone(&asked))?;
        signal_hook::flag::register(signal, Arc::clone(&asked))?;
    }
    let mut signals = signal_hook_tokio::Signals::new([SIGTERM, SIGINT])?;
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        if signals.next().await.is_some() {
            tracing::info!("asked to stop; no job is stopped, a second signal ends at once");
            let _ = stop.send(true);
            // The sender lives on: a receiver must not take its end for a stop.
            std::future::pending::<()>().await;
        }
    });
    Ok(stopped)
}
