//! Putting the supervisor together: store, state, tasks.

use super::book::Book;
use super::control::Control;
use super::driver::{Driver, Lines};
use super::effects::Effects;
use super::files;
use super::outbox::Outbox;
use super::stored::{self, StateError};
use super::work::QUEUE_LIMIT;
use crate::config::DaemonConfig;
use crate::model::handle::{Handle, Request, WAITING_LIMIT};
use crate::model::ids::Owner;
use crate::openapi::credentials::Keychain;
use crate::service::clock::Clock;
use crate::service::crash;
use crate::service::notify::{Notifier, Pulse};
use crate::service::starts::Starts;
use crate::store::{self, OpenReport, Options, StoreError};
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// What a supervisor is started with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The daemon file.
    pub config: Arc<DaemonConfig>,
    /// This installation.
    pub owner: Owner,
    /// The clocks.
    pub clock: Clock,
}

/// Why a supervisor did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The store in the state folder could not be opened.
    #[error("the state folder {folder}")]
    Store {
        /// The folder.
        folder: String,
        /// Why.
        #[source]
        source: StoreError,
    },
    /// The state could not be loaded.
    #[error("the state in {folder}")]
    State {
        /// The folder.
        folder: String,
        /// Why.
        #[source]
        source: StateError,
    },
}

/// A supervisor that is ready to run.
pub struct Supervisor {
    driver: Box<Driver>,
    messages: mpsc::Sender<super::work::Message>,
    requests: mpsc::Sender<Request>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Opens the store and loads everything. `stop` ends [`Supervisor::run`] when it turns true.
    ///
    /// # Errors
    /// A store that another instance holds, or that cannot be used.
    pub async fn open(settings: Settings, stop: watch::Receiver<bool>) -> Result<Self, RunError> {
        let folder = settings.config.state_directory.clone();
        let options = Options { probe: crash::point, ..Options::default() };
        let opened = store::Handle::open(folder.clone(), options).await;
        let opened = opened
            .map_err(|source| RunError::Store { folder: folder.display().to_string(), source })?;
        crash::point("store opened");
        Self::on_store(settings, opened, stop).await
    }

    /// The same on a store that is open.
    ///
    /// # Errors
    /// A state that cannot be loaded.
    pub async fn on_store(
        settings: Settings,
        (store, report): (store::Handle, OpenReport),
        stop: watch::Receiver<bool>,
    ) -> Result<Self, RunError> {
        let Settings { config, owner, clock } = settings;
        let folder = config.state_directory.display().to_string();
        let (messages, inbox) = mpsc::channel(QUEUE_LIMIT);
        let (requests, door) = mpsc::channel(WAITING_LIMIT);
        let effects = Effects::new(
            clock.clone(),
            owner.clone(),
            config.job_secrets.clone(),
            Keychain::of_this_process(config.credential_commands),
            config.sweep_interval,
            messages.clone(),
        );
        let mut book = Book::new(owner, clock.now(), config.targets.clone());
        let state_error = |source| RunError::State { folder: folder.clone(), source };
        stored::take_report(&store, &report, &mut book).await.map_err(state_error)?;
        let mut log = stored::load(&store, &mut book).await.map_err(state_error)?;
        log.outbox = Outbox::new(&book.owner, config.alerts.clone());
        let homeless = log.outbox.load(&store).await.map_err(state_error)?;
        let sequence = store.sequence().await.map_err(StateError::Store).map_err(state_error)?;
        let lines = Lines { messages: inbox, requests: door, stop };
        let mut driver = Driver::new(book, log, store, sequence, effects, lines, config);
        send_couriers(&mut driver, &homeless);
        Ok(Self { driver: Box::new(driver), messages, requests })
    }

    /// The door for the API.
    pub fn handle(&self) -> Handle {
        self.requests.clone()
    }

    /// The way in for what the process is asked by signals.
    pub fn control(&self) -> Control {
        Control { driver: self.messages.clone() }
    }

    /// Tells the service manager that the driver is alive for as long as its loop works.
    pub fn give_signs_of_life(&mut self, notifier: Notifier) {
        self.driver.pulse = Pulse::new(notifier);
    }

    /// Counts this start in the state folder. One that follows on several that came to nothing
    /// only answers questions for a while.
    pub fn count_start(&mut self) {
        let folder = self.driver.config.borrow().state_directory.clone();
        self.driver.note_start(Starts::note(&folder));
    }

    /// Notes why the API does not listen on the TCP address of the daemon file: the jobs go on without.
    pub fn note_deaf(&mut self, why: String) {
        self.driver.deaf = Some(why);
    }

    /// One line on how things stand.
    pub fn status(&self) -> String {
        self.driver.status()
    }

    /// Runs until it is stopped. Stops no job.
    pub async fn run(self) {
        let mut driver = self.driver;
        driver.hold().await;
        if driver.is_asked_to_stop() {
            return Box::pin(driver.run()).await;
        }
        let config = driver.config.subscribe();
        // The first passes are compared with every job that has a file.
        let first = Arc::clone(&config.borrow());
        if let Some(set) = files::read(&first).await {
            driver.take_files(set).await;
        }
        driver.take_asked(&first.state_directory).await;
        let files = tokio::spawn(files::watch(config, self.messages));
        Box::pin(driver.run()).await;
        files.abort();
    }
}

/// Alerts without a client wait in the store: that is no reason to leave the jobs alone.
fn send_couriers(driver: &mut Driver, homeless: &[Vec<u8>]) {
    crate::openapi::tls::choose_provider();
    match crate::alerts::client() {
        Ok(client) => driver.send_couriers(&client, homeless),
        Err(error) => {
            let error = super::driver::chain(&error);
            tracing::error!(%error, "alerts cannot be sent (is the package ca-certificates installed?)");
        }
    }
}
