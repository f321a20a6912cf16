//! How many connections are open at one time, and how long each may keep the daemon waiting.
//!
//! Always holds: a caller that sends nothing, sends slowly, or does not read is cut off; those that
//! come while all places are taken wait in the kernel's queue, and never keep the driver from
//! anything: no file is left to it that it would need.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections open at one time.
pub const CONNECTIONS_LIMIT: usize = 256;
/// How long a caller may take to send a request, to take in a part of an answer, or to ask again.
pub const CALLER_LIMIT: Duration = Duration::from_secs(10);

/// Whether a request of a connection is being answered: then the caller is the one who waits.
#[derive(Debug, Clone, Default)]
pub struct Turn(Arc<AtomicBool>);

impl Turn {
    /// The daemon's, until what this gives is dropped.
    pub(super) fn take(&self) -> Taken {
        self.0.store(true, Ordering::Relaxed);
        Taken(self.clone())
    }
}

/// The daemon's turn.
#[derive(Debug)]
pub(super) struct Taken(Turn);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

/// A listener with a limit of connections.
#[derive(Debug)]
pub struct Limited<L> {
    inner: L,
    places: Arc<Semaphore>,
}

impl<L> Limited<L> {
    /// `inner`, with [`CONNECTIONS_LIMIT`].
    pub fn new(inner: L) -> Self {
        Self { inner, places: Arc::new(Semaphore::new(CONNECTIONS_LIMIT)) }
    }
}

impl<L: Listener> Listener for Limited<L>
where
    L::Io: Unpin,
{
    type Io = Patient<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (io, address) = self.inner.accept().await;
        let limit = Box::pin(tokio::time::sleep(CALLER_LIMIT));
        (Patient { io, turn: Turn::default(), limit, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// A connection that ends when its caller takes too long.
#[derive(Debug)]
pub struct Patient<I> {
    io: I,
    turn: Turn,
    limit: Pin<Box<Sleep>>,
    _place: Option<OwnedSemaphorePermit>,
}

impl<I> Patient<I> {
    /// Called where the caller is waited for.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        while self.limit.as_mut().poll(context).is_ready() {
            if !self.turn.0.load(Ordering::Relaxed) {
                return Poll::Ready(io::Error::from(io::ErrorKind::TimedOut));
            }
            self.begin();
        }
        Poll::Pending
    }

    fn begin(&mut self) {
        self.limit.as_mut().reset(Instant::now() + CALLER_LIMIT);
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Patient<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What comes in drop by drop buys no time.
        match Pin::new(&mut self.io).poll_read(context, buffer) {
            Poll::Ready(read) => Poll::Ready(read),
            Poll::Pending => Poll::Ready(Err(ready!(self.wait(context)))),
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Patient<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.io).poll_write(context, bytes) {
            Poll::Ready(written) => {
                self.begin();
                Poll::Ready(written)
            }
            Poll::Pending => Poll::Ready(Err(ready!(self.wait(context)))),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

impl<L: Listener> Connected<IncomingStream<'_, Limited<L>>> for Turn
where
    L::Io: Unpin,
{
    fn connect_info(stream: IncomingStream<'_, Limited<L>>) -> Self {
        stream.io().turn.clone()
    }
}
