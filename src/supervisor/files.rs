//! Job files: told by notify, read as a whole, compared with what is on record.
//!
//! An event is only a bell. The folder is watched, not the files; a new reading follows each bell
//! after a short calm, and one follows every now and then anyway, because network file systems ring
//! no bell. The watch is set anew before each reading: the folder may be another one by now.

use super::driver::{Driver, chain};
use super::work::{Message, Work};
use crate::config::{DaemonConfig, JobSet, Severity, load_jobs};
use crate::core::job::{Job, Source};
use crate::core::step::Input;
use crate::model::ids::{Digest, JobKey};
use crate::model::spec::JobSpec;
use notify::Watcher as _;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long the folder has to be calm before it is read.
const CALM: Duration = Duration::from_millis(300);
/// A folder that never is calm is read after this long.
const CALM_LIMIT: Duration = Duration::from_secs(3);
/// The shortest pause between two readings without a bell: what a file may do can change with its
/// job (the run before it is over, it is forgotten) or with a secret, and no bell tells of these.
const PAUSE: Duration = Duration::from_millis(500);
/// How much each file adds to it: reading takes a small part of the time.
const PAUSE_A_FILE: Duration = Duration::from_millis(10);
/// The longest one.
const PAUSE_LIMIT: Duration = Duration::from_secs(30);

/// The pause between two readings of so many files.
fn pause(files: usize) -> Duration {
    let files = u32::try_from(files).unwrap_or(u32::MAX);
    PAUSE.saturating_add(PAUSE_A_FILE.saturating_mul(files)).min(PAUSE_LIMIT)
}

/// Reads the job files for as long as the driver lives.
pub(super) async fn watch(
    current: watch::Receiver<Arc<DaemonConfig>>,
    driver: mpsc::Sender<Message>,
) {
    watch_and_poll(pause, current, driver).await;
}

async fn watch_and_poll(
    pause: fn(usize) -> Duration,
    mut current: watch::Receiver<Arc<DaemonConfig>>,
    driver: mpsc::Sender<Message>,
) {
    let mut config = Arc::clone(&current.borrow_and_update());
    let (bell, mut rung) = mpsc::channel::<()>(1);
    loop {
        let _watcher = watch_folder(&config.jobs_directory, &bell);
        let set = read(&config).await;
        let files = set.as_ref().map_or(0, |set| set.accepted.len() + set.rejected.len());
        if let Some(set) = set
            && driver.send(Message::Files(set)).await.is_err()
        {
            return;
        }
        tokio::select! {
            _ = rung.recv() => calm_down(&mut rung).await,
            () = tokio::time::sleep(pause(files)) => {}
            reloaded = current.changed() => {
                if reloaded.is_err() {
                    return;
                }
                config = Arc::clone(&current.borrow_and_update());
            }
        }
    }
}

/// Reads the job files once.
pub(super) async fn read(config: &Arc<DaemonConfig>) -> Option<JobSet> {
    let config = Arc::clone(config);
    let read = tokio::task::spawn_blocking(move || load_jobs(&config.jobs_directory, &config));
    read.await.inspect_err(|error| tracing::error!(%error, "reading the job files panicked")).ok()
}

async fn calm_down(rung: &mut mpsc::Receiver<()>) {
    let mut waited = Duration::ZERO;
    while waited < CALM_LIMIT && tokio::time::timeout(CALM, rung.recv()).await.is_ok() {
        waited += CALM;
        tokio::time::sleep(CALM / 3).await;
    }
}

fn watch_folder(folder: &Path, bell: &mpsc::Sender<()>) -> Option<notify::RecommendedWatcher> {
    let bell = bell.clone();
    // Called on notify's own thread: it may not wait. A full channel means that a bell is rung.
    let ring = move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| is_only_a_look(event.kind)) {
            return;
        }
        let _ = bell.try_send(());
    };
    let watched = notify::recommended_watcher(ring).and_then(|mut watcher| {
        watcher.watch(folder, notify::RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    watched.inspect_err(|error| {
        tracing::debug!(folder = %folder.display(), %error, "no file events; the folder is polled");
    }).ok()
}

/// Whether somebody only opened or read: our own reading rings no bell.
fn is_only_a_look(kind: notify::EventKind) -> bool {
    use notify::event::{AccessKind, AccessMode};
    match kind {
        notify::EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
        notify::EventKind::Access(_) => true,
        notify::EventKind::Any
        | notify::EventKind::Create(_)
        | notify::EventKind::Modify(_)
        | notify::EventKind::Remove(_)
        | notify::EventKind::Other => false,
    }
}

impl Driver {
    /// Compares the job files with what is on record. A file that cannot be used changes nothing
    /// of a job that is on record.
    pub(super) async fn take_files(&mut self, set: JobSet) {
        let wrong = set.diagnostics.iter().filter(|d| d.severity == Severity::Error);
        let mut errors: Vec<String> = wrong.map(ToString::to_string).collect();
        let mut named: BTreeSet<JobKey> = BTreeSet::new();
        for (_, spec) in &set.accepted {
            named.insert(spec.key.clone());
            self.beat();
            if let Err(error) = self.take_spec(spec).await {
                errors.push(format!("{}: {error}", spec.key));
            }
        }
        if errors != self.file_errors {
            for error in &errors {
                tracing::error!("job file not taken: {error}");
            }
            self.file_errors = errors;
        }
        let unreadable_name = set.rejected.iter().any(|(_, name)| name.is_none());
        if !set.whole || unreadable_name {
            return;
        }
        let gone: Vec<JobKey> = self
            .book
            .jobs
            .values()
            .filter(|job| job.source == Source::File && !named.contains(&job.key))
            .filter(|job| !named.iter().any(|key| key.name == job.key.name))
            .filter(|job| {
                !set.rejected.iter().any(|(_, name)| name.as_ref() == Some(&job.key.name))
            })
            .map(|job| job.key.clone())
            .collect();
        for key in gone {
            let never = self.book.jobs.get(&key).is_some_and(Job::goes_with_its_file);
            self.push(if never {
                Work::Drop(key)
            } else {
                Work::Input(key, Input::File(Source::Unmanaged))
            });
        }
    }

    async fn take_spec(&mut self, spec: &JobSpec) -> Result<(), String> {
        let text = serde_json::to_vec(spec).map_err(|error| error.to_string())?;
        let digest = Digest::of(&text);
        let on_record = self.book.jobs.get(&spec.key);
        if on_record.is_some_and(|job| job.spec == digest && job.source == Source::File) {
            return Ok(());
        }
        if let Some(newest) = self.book.newest(spec.key.name.as_str()) {
            if newest.key.run > spec.key.run {
                return Err(format!("run {} is on record; a run only goes up", newest.key.run));
            }
            if newest.key.run < spec.key.run && !newest.is_over() {
                return Err(format!(
                    "run {} is not over; cancel it, then run {} begins",
                    newest.key.run, spec.key.run
                ));
            }
        }
        let forgotten = self.book.forgotten.get(&spec.key.name).filter(|run| **run >= spec.key.run);
        if let Some(run) = forgotten {
            return Err(format!(
                "run {run} was forgotten and does not begin again: raise `run`, or take the file away"
            ));
        }
        // The blob of a spec that no record named for a while may be gone.
        self.store.put_blob(text).await.map_err(|error| chain(&error))?;
        self.book.specs.insert(digest.clone(), Arc::new(spec.clone()));
        if self.book.jobs.contains_key(&spec.key) {
            self.push(Work::Input(spec.key.clone(), Input::Spec(digest)));
            self.push(Work::Input(spec.key.clone(), Input::File(Source::File)));
        } else {
            self.push(Work::Accept(Box::new(Job::new(spec.key.clone(), digest))));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
