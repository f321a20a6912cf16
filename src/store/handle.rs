//! The store for async code: a bounded queue to the one thread that owns it.
//!
//! Commits that wait together are written as one group with one sync. Calls are served in the
//! order in which they came. A call whose future is dropped may still be carried out. The thread
//! ends, and frees the folder, when [`Handle::close`] was called or the last handle is gone.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use super::journal::entry_bytes;
use super::{
    Batch, Committed, GROUP_LIMIT_BATCHES, GROUP_LIMIT_BYTES, OpenReport, Options, Record, Store,
    StoreError, Swept,
};
use crate::model::ids::Digest;

/// Calls that may wait; the next one waits for room.
const QUEUE_LIMIT_CALLS: usize = 256;

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// What the owner does between other calls, whatever it answers.
type Act = Box<dyn FnOnce(Result<&mut Store, StoreError>) + Send>;

struct Waiting {
    expected: Option<u64>,
    batch: Batch,
    reply: Reply<Committed>,
}

enum Call {
    Commit(Waiting),
    Other(Act),
    Reopen(Reply<OpenReport>),
    Close(oneshot::Sender<()>),
}

/// Opens the store, first and after a failure.
type Opener = Box<dyn FnMut() -> Result<(Store, OpenReport), StoreError> + Send>;

/// A clonable way to the store.
#[derive(Debug, Clone)]
pub struct Handle {
    calls: mpsc::Sender<Call>,
}

impl Handle {
    /// Opens the store in `dir` on a thread of its own.
    pub async fn open(dir: PathBuf, options: Options) -> Result<(Self, OpenReport), StoreError> {
        Self::start(move || Store::open(&dir, options)).await
    }

    /// Starts a thread that owns whatever store `open` gives.
    pub async fn start(
        open: impl FnMut() -> Result<(Store, OpenReport), StoreError> + Send + 'static,
    ) -> Result<(Self, OpenReport), StoreError> {
        let (calls, queue) = mpsc::channel(QUEUE_LIMIT_CALLS);
        let (opened, report) = oneshot::channel();
        let open: Opener = Box::new(open);
        std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || own(open, opened, queue))
            .map_err(|source| StoreError::Thread { source })?;
        let report = report.await.unwrap_or(Err(StoreError::Closed))?;
        Ok((Self { calls }, report))
    }

    /// Commits a batch; with `expected`, only if the store is at that sequence. Done when it is
    /// durable.
    pub async fn commit(
        &self,
        expected: Option<u64>,
        batch: Batch,
    ) -> Result<Committed, StoreError> {
        self.ask(|reply| Call::Commit(Waiting { expected, batch, reply })).await
    }

    /// [`Store::sequence`].
    pub async fn sequence(&self) -> Result<u64, StoreError> {
        self.with(|store| Ok(store.sequence())).await
    }

    /// [`Store::get`].
    pub async fn get(&self, key: impl Into<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        let key = key.into();
        self.with(move |store| store.get(&key)).await
    }

    /// [`Store::range`].
    pub async fn range(
        &self,
        prefix: impl Into<Vec<u8>>,
        after: Option<Vec<u8>>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let prefix = prefix.into();
        self.with(move |store| store.range(&prefix, after.as_deref(), limit)).await
    }

    /// [`Store::put_blob`].
    pub async fn put_blob(&self, bytes: Vec<u8>) -> Result<Digest, StoreError> {
        self.with(move |store| store.put_blob(&bytes)).await
    }

    /// [`Store::get_blob`].
    pub async fn get_blob(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.with(move |store| store.get_blob(&digest)).await
    }

    /// [`Store::sweep_blobs`].
    pub async fn sweep_blobs(&self, keep: BTreeSet<Digest>) -> Result<Swept, StoreError> {
        self.with(move |store| store.sweep_blobs(&keep)).await
    }

    /// [`Store::backup`].
    pub async fn backup(&self) -> Result<(), StoreError> {
        self.with(Store::backup).await
    }

    /// Drops the store and opens it again: the way on after [`StoreError::Poisoned`]. The caller
    /// has to load everything anew. If it fails, the next try may follow.
    pub async fn reopen(&self) -> Result<OpenReport, StoreError> {
        self.ask(Call::Reopen).await
    }

    /// Ends the store after the calls that came before; its folder is free when this returns.
    /// Closing a closed store does nothing.
    pub async fn close(&self) {
        let (done, wait) = oneshot::channel();
        if self.calls.send(Call::Close(done)).await.is_ok() {
            // A sender that is gone says the same: the thread has ended.
            let _ = wait.await;
        }
    }

    async fn with<T: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.ask(|reply: Reply<T>| {
            Call::Other(Box::new(move |store| {
                tell(reply, store.and_then(act));
            }))
        })
        .await
    }

    async fn ask<T>(&self, call: impl FnOnce(Reply<T>) -> Call) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.calls.send(call(reply)).await.map_err(|_| StoreError::Closed)?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

/// The thread: opens the store, then serves the queue until it is closed.
fn own(mut open: Opener, opened: Reply<OpenReport>, mut queue: mpsc::Receiver<Call>) {
    let mut owner = match open() {
        Ok((store, report)) => {
            if opened.send(Ok(report)).is_err() {
                return;
            }
            Owner::Open(Box::new(store))
        }
        Err(error) => {
            tell(opened, Err(error));
            return;
        }
    };
    let mut next = None;
    while let Some(call) = next.take().or_else(|| queue.blocking_recv()) {
        match call {
            Call::Commit(first) => next = commit_group(&mut owner, first, &mut queue),
            Call::Other(act) => act(owner.store()),
            Call::Reopen(reply) => {
                owner = Owner::NotOpen { why: Arc::from("it is being opened again") };
                let opened = open().map(|(store, report)| {
                    owner = Owner::Open(Box::new(store));
                    report
                });
                if let Err(error) = &opened {
                    owner = Owner::NotOpen { why: error.chain().into() };
                }
                tell(reply, opened);
            }
            Call::Close(done) => {
                drop(owner);
                queue.close();
                let _ = done.send(());
                return;
            }
        }
    }
}

/// Whoever asked may have gone away: then there is nobody to tell.
fn tell<T>(reply: Reply<T>, answer: Result<T, StoreError>) {
    reply.send(answer).ok();
}

enum Owner {
    Open(Box<Store>),
    NotOpen { why: Arc<str> },
}

impl Owner {
    fn store(&mut self) -> Result<&mut Store, StoreError> {
        match self {
            Self::Open(store) => Ok(store),
            Self::NotOpen { why } => Err(StoreError::Poisoned { why: why.as_ref().to_owned() }),
        }
    }
}

/// Commits `first` and what waits behind it with one sync. Gives the call that ended the group.
fn commit_group(
    owner: &mut Owner,
    first: Waiting,
    queue: &mut mpsc::Receiver<Call>,
) -> Option<Call> {
    let store = match owner.store() {
        Ok(store) => store,
        Err(error) => {
            tell(first.reply, Err(error));
            return None;
        }
    };
    let start = store.sequence();
    let (mut batches, mut replies, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut candidate = Some(Call::Commit(first));
    let next = loop {
        match candidate {
            Some(Call::Commit(waiting)) => {
                let size = entry_bytes(&waiting.batch);
                let full = batches.len() >= GROUP_LIMIT_BATCHES || bytes + size > GROUP_LIMIT_BYTES;
                if full {
                    break Some(Call::Commit(waiting));
                }
                let found = start + batches.len() as u64;
                match waiting.expected {
                    Some(expected) if expected != found => {
                        tell(waiting.reply, Err(StoreError::Fenced { expected, found }));
                    }
                    Some(_) | None => {
                        batches.push(waiting.batch);
                        replies.push(waiting.reply);
                        bytes += size;
                    }
                }
            }
            Some(other @ (Call::Other(_) | Call::Reopen(_) | Call::Close(_))) => break Some(other),
            None => break None,
        }
        candidate = queue.try_recv().ok();
    };
    answer(store.commit(start, &batches), start, replies);
    next
}

/// Gives each of a group its own receipt; after a failure the first one gets the cause.
fn answer(result: Result<Committed, StoreError>, start: u64, replies: Vec<Reply<Committed>>) {
    match result {
        Ok(_) => {
            for (sequence, reply) in (start + 1..).zip(replies) {
                tell(reply, Ok(Committed { sequence }));
            }
        }
        Err(error) => {
            let why = error.chain();
            let mut cause = Some(error);
            for reply in replies {
                let poisoned = StoreError::Poisoned { why: why.clone() };
                tell(reply, Err(cause.take().unwrap_or(poisoned)));
            }
        }
    }
}
