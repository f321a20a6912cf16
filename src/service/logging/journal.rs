//! Lines for systemd's journal, by its native protocol: one datagram a line, with fields.
//!
//! `MESSAGE` is the line as it stands on a terminal, fields included: `journalctl -u spotkeeper`
//! shows nothing else. Beside it each field stands for itself, in capitals: `JOB`, `ATTEMPT`,
//! `EVENT`, `CODE`, so that `journalctl JOB=llama8b-sft` finds them.
//!
//! What always holds: a journal that does not take a line delays nobody but the thread that writes;
//! a line that it does not take within [`PATIENCE`] goes to standard error, which systemd reads, too.

use super::queue::{Queue, Waits};
use super::{Fields, one_line};
use rustix::fs::fstat;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

const SOCKET: &str = "/run/systemd/journal/socket";
/// How long one line may wait for the journal.
const PATIENCE: Duration = Duration::from_millis(200);
/// Bytes of a message; a datagram has to fit into the socket's buffer.
const MESSAGE_LIMIT_BYTES: usize = 16 * 1024;
/// Bytes of any other field.
const FIELD_LIMIT_BYTES: usize = 4 * 1024;
/// Fields of one line.
const FIELDS_LIMIT: usize = 24;
/// What the journal takes as a name.
const NAME_LIMIT_BYTES: usize = 64;

/// Writes to the journal.
#[derive(Debug)]
pub(super) struct Journal {
    lines: Queue<Line>,
}

/// One line in both forms.
#[derive(Debug)]
pub(super) struct Line {
    datagram: Vec<u8>,
    /// With its priority in front, as systemd reads it from standard error.
    plain: String,
}

impl Waits for Line {
    fn bytes(&self) -> usize {
        self.datagram.len() + self.plain.len()
    }
}

impl Journal {
    /// The journal, if it is where standard error goes: `$JOURNAL_STREAM` names the very file.
    pub(super) fn of_this_process() -> Option<Self> {
        let stream = std::env::var("JOURNAL_STREAM").ok()?;
        let here = fstat(io::stderr()).ok()?;
        is_stream(&stream, here.st_dev, here.st_ino).then(|| Self::at(SOCKET).ok()).flatten()
    }

    fn at(path: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut stderr = stderr()?;
        let lines = Queue::start(move |line: Line| match socket.send(&line.datagram) {
            Ok(_) => Ok(()),
            Err(_) => stderr.write_all(line.plain.as_bytes()),
        });
        Ok(Self { lines })
    }

    /// The queue of its lines.
    pub(super) fn lines(&self) -> Queue<Line> {
        self.lines.clone()
    }
}

/// Standard error without the lock that [`io::stderr`] has: who holds that one while the other end
/// takes nothing would stop everybody.
pub(super) fn stderr() -> io::Result<File> {
    Ok(File::from(io::stderr().as_fd().try_clone_to_owned()?))
}

/// Whether `text` (device:inode) names the file.
fn is_stream(text: &str, device: u64, inode: u64) -> bool {
    let named = text.split_once(':').map(|(d, i)| (d.parse::<u64>(), i.parse::<u64>()));
    matches!(named, Some((Ok(d), Ok(i))) if (d, i) == (device, inode))
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let fields = Fields::of(event);
        let level = *event.metadata().level();
        let datagram = datagram(level, event.metadata().target(), &fields);
        let line = one_line(&fields.line(), MESSAGE_LIMIT_BYTES);
        self.lines.say(Line { datagram, plain: format!("<{}>{line}\n", priority(level)) });
    }
}

/// syslog(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

fn datagram(level: Level, target: &str, fields: &Fields) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    put(&mut bytes, "MESSAGE", &one_line(&fields.line(), MESSAGE_LIMIT_BYTES));
    put(&mut bytes, "PRIORITY", &priority(level).to_string());
    put(&mut bytes, "SYSLOG_IDENTIFIER", "spotkeeper");
    put(&mut bytes, "TARGET", target);
    for (name, value) in fields.named.iter().take(FIELDS_LIMIT) {
        let value = one_line(value, FIELD_LIMIT_BYTES);
        // A later run of a job is found by the job's name, too.
        match value.strip_suffix(')').and_then(|text| text.rsplit_once(" (run ")) {
            Some((job, run)) if name == "job" => {
                put(&mut bytes, "JOB", job);
                put(&mut bytes, "RUN", run);
            }
            _ => {
                if let Some(name) = journal_name(name) {
                    put(&mut bytes, &name, &value);
                }
            }
        }
    }
    bytes
}

/// A value has no line break here: it is escaped before.
fn put(bytes: &mut Vec<u8>, name: &str, value: &str) {
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(b'=');
    bytes.extend_from_slice(value.as_bytes());
    bytes.push(b'\n');
}

/// Capitals, digits and `_`, beginning with a letter; those of the line itself are not given twice.
fn journal_name(name: &str) -> Option<String> {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    let name: String = name.chars().take(NAME_LIMIT_BYTES).map(letter).collect();
    let taken = ["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "TARGET"].contains(&name.as_str());
    (name.starts_with(|c: char| c.is_ascii_uppercase()) && !taken).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[test]
    fn a_line_is_one_datagram_with_its_fields() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let there = UnixDatagram::bind(&path).expect("a socket");
        there.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let journal = Journal::at(path.to_str().expect("a text")).expect("a journal");
        let (job, attempt) = ("a\nPRIORITY=0", Some(3u32));
        let long = "x".repeat(100_000);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(journal), || {
            tracing::error!(%job, attempt, event = "ALARM", code = "E101", "said\n{}", "so");
            tracing::info!(job = "b (run 2)", attempt = None::<u32>, message2 = %long, "{long}");
        });
        let mut bytes = vec![0; 300_000];
        let length = there.recv(&mut bytes).expect("a line");
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            r#"MESSAGE=said\nso job=a\nPRIORITY=0 attempt=3 event="ALARM" code="E101""#
        );
        assert!(lines[3].starts_with("TARGET=spotkeeper::"), "{text}");
        assert_eq!(lines[1..3], ["PRIORITY=3", "SYSLOG_IDENTIFIER=spotkeeper"]);
        assert_eq!(lines[4..], [r"JOB=a\nPRIORITY=0", "ATTEMPT=3", "EVENT=ALARM", "CODE=E101"]);
        let length = there.recv(&mut bytes).expect("a line");
        assert!(length < 32 * 1024, "too long a line is cut: {length}");
        let text = String::from_utf8_lossy(&bytes[..length]);
        assert!(text.contains("\nJOB=b\nRUN=2\n") && !text.contains("ATTEMPT="));
    }

    #[test]
    fn only_the_very_file_of_standard_error_is_the_journal() {
        assert!(is_stream("8:71", 8, 71));
        for (text, device, inode) in
            [("8:71", 8, 72), ("8:71", 9, 71), ("8", 8, 71), ("", 0, 0), ("a:b", 0, 0)]
        {
            assert!(!is_stream(text, device, inode), "{text}");
        }
    }

    #[test]
    fn names_fit_the_journal() {
        assert_eq!(journal_name("job").as_deref(), Some("JOB"));
        assert_eq!(journal_name("log.target").as_deref(), Some("LOG_TARGET"));
        assert_eq!(journal_name("_pid"), None, "those of the journal itself");
        assert_eq!(journal_name("message"), None);
    }
}
