//! What the service manager (systemd) is told: that the daemon is ready, what it does, and that it
//! is alive. One datagram a message, by the protocol of sd_notify(3).
//!
//! What always holds: without `$NOTIFY_SOCKET` nothing is sent and nothing else differs; a manager
//! that does not listen delays nobody. Must not: say that the daemon is alive by itself. Only the
//! driver's loop does so, through [`Pulse`], after real work: a timer of its own would prove nothing.

use super::clock::monotonic_usec;
use crate::model::time::BootTime;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a status; systemd shows one line.
const STATUS_LIMIT_BYTES: usize = 500;

/// The way to the service manager. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Notifier {
    way: Option<Arc<Way>>,
    watchdog: Option<Duration>,
}

#[derive(Debug)]
struct Way {
    socket: UnixDatagram,
    manager: SocketAddr,
}

/// What the environment of a service says of notifications.
#[derive(Debug, Clone, Default)]
struct Asked {
    notify_socket: Option<OsString>,
    watchdog_usec: Option<OsString>,
    watchdog_pid: Option<OsString>,
}

impl Notifier {
    /// The one that this process was started with.
    pub fn of_this_process() -> Self {
        let asked = Asked {
            notify_socket: std::env::var_os("NOTIFY_SOCKET"),
            watchdog_usec: std::env::var_os("WATCHDOG_USEC"),
            watchdog_pid: std::env::var_os("WATCHDOG_PID"),
        };
        Self::new(&asked, std::process::id())
    }

    fn new(asked: &Asked, pid: u32) -> Self {
        let Some(name) = asked.notify_socket.as_deref().filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let way = way(name)
            .inspect_err(|error| tracing::warn!(%error, "NOTIFY_SOCKET cannot be used"))
            .ok();
        let watchdog = way.is_some().then(|| watchdog_time(asked, pid)).flatten();
        Self { way: way.map(Arc::new), watchdog }
    }

    /// How long the manager waits for a sign of life, if it waits for any.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// State, daemon file and socket stand.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The daemon file is being read again; [`Notifier::reloaded`] ends it.
    pub fn reloading(&self) {
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_usec()));
    }

    /// A reload is through, whatever came of it.
    pub fn reloaded(&self) {
        self.send("READY=1");
    }

    /// The end has begun.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping; no job is stopped");
    }

    /// What `systemctl status` shows.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", one_line(text)));
    }

    fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let Some(way) = &self.way else { return };
        let sent = way.socket.send_to_addr(message.as_bytes(), &way.manager);
        if let Err(error) = sent {
            tracing::debug!(%error, "the service manager does not take a message");
        }
    }
}

fn way(name: &OsStr) -> io::Result<Way> {
    let manager = match name.as_bytes() {
        // `@name` is a socket without a file.
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::other("neither a path nor a name that begins with @")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(Way { socket, manager })
}

fn watchdog_time(asked: &Asked, pid: u32) -> Option<Duration> {
    let number = |text: &Option<OsString>| text.as_ref()?.to_str()?.parse::<u64>().ok();
    // Set for another process: this one is not watched.
    if asked.watchdog_pid.is_some() && number(&asked.watchdog_pid) != Some(u64::from(pid)) {
        return None;
    }
    number(&asked.watchdog_usec).filter(|usec| *usec > 0).map(Duration::from_micros)
}

fn one_line(text: &str) -> String {
    let mut line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let cut = (0..=STATUS_LIMIT_BYTES.min(line.len())).rev().find(|at| line.is_char_boundary(*at));
    line.truncate(cut.unwrap_or(0));
    line
}

/// The signs of life of one loop, half as far apart as the manager waits.
#[derive(Debug, Clone, Default)]
pub struct Pulse {
    notifier: Notifier,
    last_beat: Option<BootTime>,
    last_status: String,
    last_look: Option<BootTime>,
}

impl Pulse {
    /// For the loop that owns the work.
    pub fn new(notifier: Notifier) -> Self {
        Self { notifier, last_beat: None, last_status: String::new(), last_look: None }
    }

    /// How long the loop may sleep at most.
    pub fn longest_sleep(&self) -> Option<Duration> {
        // A quarter: two signs fit into the time that the manager waits, with room for work.
        self.notifier.watchdog().map(|time| time / 4)
    }

    /// The loop did a round of work, or saw that there is none. Answers whether a sign was due.
    pub fn beat(&mut self, now: BootTime) -> bool {
        let Some(time) = self.notifier.watchdog() else { return false };
        let due = self.last_beat.is_none_or(|last| now.since(last) >= time / 4);
        if due {
            self.last_beat = Some(now);
            self.notifier.alive();
        }
        due
    }

    /// Whether somebody reads the status, and it was not looked at for `every`.
    pub fn status_is_due(&mut self, now: BootTime, every: Duration) -> bool {
        let due = self.notifier.way.is_some()
            && self.last_look.is_none_or(|last| now.since(last) >= every);
        if due {
            self.last_look = Some(now);
        }
        due
    }

    /// The status may have changed: it is looked at in the next round.
    pub fn look_again(&mut self) {
        self.last_look = None;
    }

    /// Shows `text` as the status if it is another one.
    pub fn show(&mut self, text: String) {
        if text != self.last_status {
            self.notifier.status(&text);
            self.last_status = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(socket: &OsStr) -> Asked {
        Asked {
            notify_socket: Some(socket.to_owned()),
            watchdog_usec: Some("2000000".into()),
            watchdog_pid: Some("7".into()),
        }
    }

    fn next(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 4096];
        let length = manager.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).expect("text")
    }

    #[test]
    fn each_message_is_one_datagram_to_a_path_or_an_abstract_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let name = format!("spotkeeper-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("an address");
        for (manager, asked) in [
            (UnixDatagram::bind(&path).expect("a socket"), asked(path.as_os_str())),
            (
                UnixDatagram::bind_addr(&address).expect("a socket"),
                asked(OsStr::new(&format!("@{name}"))),
            ),
        ] {
            let notifier = Notifier::new(&asked, 7);
            notifier.ready("2 jobs\nREADY=0");
            assert_eq!(next(&manager), "READY=1\nSTATUS=2 jobs READY=0");
            notifier.reloading();
            let text = next(&manager);
            let usec = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("a time");
            assert!(usec.parse::<u64>().is_ok_and(|usec| usec > 0), "{text}");
            notifier.stopping();
            assert!(next(&manager).starts_with("STOPPING=1\n"));
            let mut pulse = Pulse::new(notifier);
            pulse.show("x".to_owned());
            pulse.show("x".to_owned());
            assert!(pulse.beat(BootTime(10_000)));
            assert!(!pulse.beat(BootTime(10_400)));
            assert!(pulse.beat(BootTime(10_500)));
            let said = [next(&manager), next(&manager), next(&manager)];
            assert_eq!(said, ["STATUS=x", "WATCHDOG=1", "WATCHDOG=1"]);
            manager.set_nonblocking(true).expect("set");
            assert!(manager.recv(&mut [0; 8]).is_err(), "nothing else was said");
        }
    }

    #[test]
    fn without_a_manager_or_for_another_process_nothing_is_watched() {
        let none = Notifier::new(&Asked::default(), 7);
        none.ready("");
        assert_eq!(Pulse::new(none).longest_sleep(), None);
        let folder = tempfile::tempdir().expect("a folder");
        let gone = folder.path().join("gone");
        let other = asked(gone.as_os_str());
        assert_eq!(Notifier::new(&other, 8).watchdog(), None, "WATCHDOG_PID is another's");
        let own = Notifier::new(&other, 7);
        assert_eq!(own.watchdog(), Some(Duration::from_secs(2)));
        own.ready("nobody listens, and nobody waits");
        let any = Asked { watchdog_pid: None, ..other.clone() };
        assert_eq!(Notifier::new(&any, 8).watchdog(), Some(Duration::from_secs(2)));
        for odd in ["0", "", "-1", "x"] {
            let odd = Asked { watchdog_usec: Some(odd.into()), ..other.clone() };
            assert_eq!(Notifier::new(&odd, 7).watchdog(), None);
        }
        let odd = Asked { notify_socket: Some("relative".into()), ..other };
        assert_eq!(Notifier::new(&odd, 7).watchdog(), None);
    }

    #[test]
    fn a_status_is_cut_at_a_character() {
        let long = "é".repeat(STATUS_LIMIT_BYTES);
        let cut = one_line(&format!("a{long}"));
        assert!(
            cut.len() <= STATUS_LIMIT_BYTES && cut.len() > STATUS_LIMIT_BYTES - 3,
            "{}",
            cut.len()
        );
    }
}
