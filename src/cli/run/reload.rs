//! What signals ask of a running daemon: its files again (HUP), its state in the log (USR1).

use crate::config::{DaemonConfig, Surroundings, load_daemon};
use crate::service::logging::Logging;
use crate::service::notify::Notifier;
use crate::service::signals::Signals;
use crate::supervisor::{Control, ControlError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often it is told what was left out of the log: it said the same again, or nobody took it.
const TELL_EVERY: Duration = Duration::from_secs(20);

/// A running daemon, as signals reach it.
#[derive(Debug)]
pub(super) struct Running {
    /// The daemon file.
    pub(super) path: PathBuf,
    /// What holds of it.
    pub(super) config: Arc<DaemonConfig>,
    pub(super) control: Control,
    pub(super) notifier: Notifier,
    pub(super) logging: Logging,
}

impl Running {
    /// Does what signals ask for, for ever.
    pub(super) async fn listen(mut self, signals: Signals) {
        loop {
            tokio::select! {
                () = signals.reload.notified() => self.reload().await,
                () = signals.dump.notified() => self.control.dump().await,
                () = tokio::time::sleep(TELL_EVERY) => {
                    self.logging.tell_repeats();
                    self.logging.tell_dropped();
                }
            }
        }
    }

    async fn reload(&mut self) {
        self.notifier.reloading();
        let path = self.path.clone();
        let read = move || load_daemon(&path, &Surroundings::of_this_process());
        let file = tokio::task::spawn_blocking(read).await;
        let new = file.as_ref().ok().and_then(|file| file.accepted());
        let new = new.filter(|new| match new.require_owner(&self.path) {
            Ok(_) => true,
            Err(missing) => {
                tracing::error!(code = %missing.code, "{missing}");
                false
            }
        });
        let new = new.cloned();
        for diagnostic in file.iter().flat_map(|file| &file.diagnostics) {
            tracing::error!(code = %diagnostic.code, "{diagnostic}");
        }
        let refused = new.is_none();
        let taken = new.map(|new| self.what_to_take_over(new));
        let outcome = self.control.reload(taken.clone()).await;
        // Until the driver is asked for it, the next reload is compared with the old one.
        if let (Some(taken), Ok(()) | Err(ControlError::Busy)) = (taken, &outcome) {
            self.logging.set_level(taken.log_level);
            self.config = taken;
        }
        let status = match (&outcome, refused) {
            (Err(ControlError::Busy), _) => format!("the reload waits: {}", ControlError::Busy),
            (Err(error), _) => format!("no reload: {error}"),
            (Ok(()), true) => {
                "reload: the daemon file is refused and the old one stays; job files are read again"
                    .to_owned()
            }
            (Ok(()), false) => "reloaded".to_owned(),
        };
        // Each reload is told, however often the same comes out.
        if refused || outcome.is_err() {
            tracing::error!(event = "RELOADED", "{status}");
        } else {
            tracing::info!(event = "RELOADED", "{status}");
        }
        self.notifier.reloaded();
    }

    /// What can be taken over from a new daemon file; says what cannot.
    fn what_to_take_over(&self, new: DaemonConfig) -> Arc<DaemonConfig> {
        let (taken, waiting) = new.taken_over_from(&self.config);
        if !waiting.is_empty() {
            let keys = waiting.join(", ");
            tracing::warn!(keys, "changed in the daemon file, and taken over only by a restart");
        }
        Arc::new(taken)
    }
}
