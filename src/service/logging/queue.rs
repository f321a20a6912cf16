//! Lines on their way out: a bounded queue, and one thread that writes.
//!
//! What always holds: to say a line never waits for whoever takes lines, be it a full pipe, a
//! terminal that somebody has stopped, or a journal that is slow. What the queue has no room for is
//! dropped and counted, and so is what cannot be written; the count is there to be told.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

/// Lines that wait to be written at one time: a line each of ten thousand jobs.
const LINES_LIMIT: usize = 16 * 1024;
/// Bytes of these lines.
const BYTES_LIMIT: usize = 16 * 1024 * 1024;
/// How long the end of the process waits for room in the queue, and again for the lines in it.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Time between two looks for room.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The way to the thread that writes. Clones share it.
#[derive(Debug)]
pub(super) struct Queue<L> {
    said: SyncSender<Said<L>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    waiting_bytes: AtomicUsize,
    dropped: AtomicU64,
}

/// What waits in a queue.
pub(super) trait Waits: Send + 'static {
    /// Its size.
    fn bytes(&self) -> usize;
}

impl Waits for Vec<u8> {
    fn bytes(&self) -> usize {
        self.len()
    }
}

#[derive(Debug)]
enum Said<L> {
    Line(L),
    /// All that was said before is written by now.
    Written(SyncSender<()>),
}

impl<L> Clone for Queue<L> {
    fn clone(&self) -> Self {
        Self { said: self.said.clone(), counts: Arc::clone(&self.counts) }
    }
}

impl<L: Waits> Queue<L> {
    /// Starts the thread; `write` may take as long as it likes.
    pub(super) fn start(write: impl FnMut(L) -> io::Result<()> + Send + 'static) -> Self {
        let (said, heard) = sync_channel(LINES_LIMIT);
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        // Without a thread the queue has no reader: every line is dropped, and counted.
        drop(
            std::thread::Builder::new()
                .name("log".to_owned())
                .spawn(move || write_all(&heard, write, &counted)),
        );
        Self { said, counts }
    }

    /// Says a line, or drops it.
    pub(super) fn say(&self, line: L) {
        let bytes = line.bytes();
        let waiting = &self.counts.waiting_bytes;
        let fits = waiting.fetch_add(bytes, Ordering::Relaxed) + bytes <= BYTES_LIMIT;
        if !fits || self.said.try_send(Said::Line(line)).is_err() {
            waiting.fetch_sub(bytes, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lines that were dropped since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.counts.dropped.load(Ordering::Relaxed)
    }

    /// Waits for what was said so far to be written, for twice [`LAST_LINES`] at most.
    pub(super) fn flush(&self) {
        let (written, done) = sync_channel(1);
        let mut looks = LAST_LINES.as_millis() / LOOK_EVERY.as_millis();
        while let Err(TrySendError::Full(_)) = self.said.try_send(Said::Written(written.clone())) {
            if looks == 0 {
                return;
            }
            looks -= 1;
            std::thread::sleep(LOOK_EVERY);
        }
        // Whether it came in time changes nothing any more.
        let _ = done.recv_timeout(LAST_LINES);
    }
}

fn write_all<L: Waits>(
    heard: &Receiver<Said<L>>,
    mut write: impl FnMut(L) -> io::Result<()>,
    counts: &Counts,
) {
    while let Ok(said) = heard.recv() {
        match said {
            Said::Line(line) => {
                let bytes = line.bytes();
                if write(line).is_err() {
                    counts.dropped.fetch_add(1, Ordering::Relaxed);
                }
                counts.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            }
            // Whoever asked may have gone.
            Said::Written(written) => drop(written.try_send(())),
        }
    }
}

/// One `write` is one line: that is how lines are made where this is used.
impl Write for Queue<Vec<u8>> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.say(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn a_full_pipe_delays_nobody_and_what_is_dropped_is_counted() {
        let (mut reader, mut writer) = io::pipe().expect("a pipe");
        let mut queue = Queue::start(move |line: Vec<u8>| writer.write_all(&line));
        let line = [&[b'x'; 999][..], b"\n"].concat();
        // A pipe holds 64 KiB: most of these find the queue full. It would hang here otherwise.
        let said = 2 * LINES_LIMIT;
        for _ in 0..said {
            queue.write_all(&line).expect("said");
        }
        let dropped = queue.dropped();
        assert!(dropped > 0);
        // Nor does the end of the process wait for ever.
        queue.flush();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).expect("text");
            text
        });
        // What stands in the queue is written all the same, each line in one piece.
        drop(queue);
        let text = reading.join().expect("read");
        assert_eq!(text.lines().count() as u64 + dropped, said as u64);
        assert!(text.lines().all(|line| line.len() == 999));
    }

    #[test]
    fn what_cannot_be_written_is_counted() {
        let queue = Queue::start(|_: Vec<u8>| Err(io::ErrorKind::BrokenPipe.into()));
        queue.say(vec![1]);
        queue.flush();
        assert_eq!(queue.dropped(), 1);
        assert_eq!(queue.counts.waiting_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn few_enormous_lines_fill_it_as_many_small_ones_do() {
        let (go, wait) = sync_channel::<()>(0);
        let queue = Queue::start(move |_: Vec<u8>| {
            let _ = wait.recv();
            Ok(())
        });
        for _ in 0..20 {
            queue.say(vec![0; 1024 * 1024]);
        }
        assert_eq!(queue.dropped(), 4);
        drop(go);
        queue.flush();
        queue.say(vec![0; BYTES_LIMIT]);
        assert_eq!(queue.dropped(), 4);
    }
}
