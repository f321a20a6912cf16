//! The daemon as a service: what it tells its manager, what signals do, and the hold.

use crate::harness::{JobFile, World};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// Time in which a sign of life would have come many times.
const CHANCES: Duration = Duration::from_secs(2);

/// A channel whose letters come as texts into a file.
const LETTERS: &str =
    "[alerts.ops]\nkind = \"mail\"\nto = [\"ops@example.org\"]\nprogram = \"sendmail\"\n";

/// The service manager of a test.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    fn of(world: &World) -> Self {
        let socket = UnixDatagram::bind(world.path("notify")).expect("a socket");
        socket.set_nonblocking(true).expect("set");
        Self { socket, heard: Vec::new() }
    }

    /// Everything that was said since the last time.
    fn hear(&mut self) -> &[String] {
        let mut bytes = [0; 4096];
        while let Ok(length) = self.socket.recv(&mut bytes) {
            self.heard.push(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
        &self.heard
    }

    /// Waits until `text` was said behind what was heard before, and forgets what was.
    fn wait(&mut self, world: &mut World, text: &str) -> String {
        let mut found = None;
        world.wait(&format!("`{text}` is said"), |_| {
            found = self.hear().iter().position(|message| message.contains(text));
            found.is_some()
        });
        let at = found.expect("it was found");
        let message = self.heard.remove(at);
        self.heard.drain(..at);
        message
    }
}

fn config(world: &World) -> String {
    std::fs::read_to_string(world.path("spotkeeper.toml")).expect("a daemon file")
}

fn put_config(world: &World, text: &str) {
    std::fs::write(world.path("spotkeeper.toml"), text).expect("written");
}

/// A listener that only answers questions is no reason to leave the jobs alone.
#[test]
fn a_tcp_address_that_is_taken_costs_no_job_its_supervisor() {
    let mut world = World::new(&[]);
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address");
    let text = config(&world).replace("[api]\n", &format!("[api]\nlisten = \"{address}\"\n"));
    put_config(&world, &text);
    world.put_job("train", &JobFile::new("train", 2));
    world.start(&[]);
    world.wait_done("train");
    assert!(world.log().contains("error[E109]"), "{}", world.log());
    let told = String::from_utf8(world.cli(&["ps"]).stdout).expect("UTF-8");
    assert!(!told.is_empty(), "the socket answers");
}

#[test]
fn the_manager_is_told_the_truth_and_a_frozen_driver_is_silent() {
    let mut world = World::new(&[]);
    let mut manager = Manager::of(&world);
    let freeze = world.path("freeze");
    let notify = world.path("notify").display().to_string();
    world.start(&[
        ("NOTIFY_SOCKET", &notify),
        ("WATCHDOG_USEC", "800000"),
        ("SPOTKEEPER_FREEZE", freeze.to_str().expect("a text")),
    ]);
    manager.wait(&mut world, "READY=1");
    assert!(world.cli(&["ps"]).status.success(), "ready is said when the socket answers");
    for _ in 0..3 {
        manager.wait(&mut world, "WATCHDOG=1");
    }
    world.signal(Signal::HUP);
    manager.wait(&mut world, "RELOADING=1\nMONOTONIC_USEC=");
    assert_eq!(manager.wait(&mut world, "READY=1"), "READY=1");
    std::fs::write(&freeze, "").expect("written");
    world.wait("it stands still", |_| !freeze.exists());
    manager.hear();
    manager.heard.clear();
    std::thread::sleep(CHANCES);
    assert!(!manager.hear().iter().any(|m| m.contains("WATCHDOG")), "{:?}", manager.heard);
    world.kill();
    world.start(&[("NOTIFY_SOCKET", &notify)]);
    manager.wait(&mut world, "READY=1");
    world.signal(Signal::TERM);
    manager.wait(&mut world, "STOPPING=1");
    let mut status = None;
    world.wait("it ends", |world| {
        status = world.ended();
        status.is_some()
    });
    assert!(status.is_some_and(|status| status.success()), "{}", world.log());
    assert!(!manager.hear().iter().any(|m| m.contains("WATCHDOG")), "nobody asked for it");
}

#[test]
fn a_reload_takes_a_good_file_and_keeps_the_old_one_before_a_bad_one() {
    let mut world = World::new(&[]);
    let mut job = JobFile::new("llama", 40);
    job.step_ms = 60;
    world.put_job("llama", &job);
    world.start(&[]);
    world.wait_saved("llama");
    let good = config(&world);
    put_config(&world, &good.replace("[sweep]", "[sweep]\nno_such_key = 1"));
    world.signal(Signal::HUP);
    world.wait_log("the daemon file is refused and the old one stays");
    assert!(world.log().contains("no_such_key"), "{}", world.log());
    // Without the target of what runs: it is followed to its end all the same.
    let (head, _) = good.split_once("[targets.here]").expect("a target");
    let changed = head.replace("\"api.sock\"", "\"other.sock\"");
    put_config(&world, &format!("{changed}\n[log]\nlevel = \"debug\"\n"));
    world.signal(Signal::HUP);
    world.wait_log("reloaded");
    let log = world.log();
    assert!(log.contains("its open attempts are followed where they are"), "{log}");
    assert!(log.contains("taken over only by a restart") && log.contains("api.socket"), "{log}");
    world.wait_done("llama");
    put_config(&world, &good);
    world.signal(Signal::HUP);
    world.wait("the job has succeeded", |world| {
        let out = world.cli(&["ps", "-o", "json"]);
        String::from_utf8_lossy(&out.stdout).contains("SUCCEEDED")
    });
    world.signal(Signal::USR1);
    world.wait_log("state of a job");
    assert_eq!(world.ledger().created("llama"), 1);
}

#[test]
fn after_three_starts_without_a_result_the_next_holds_until_a_person_ends_it() {
    let mut world = World::new(&[]);
    let good = config(&world) + LETTERS;
    let letters = world.path("letters");
    put_sendmail(&world, &letters);
    // Nobody listens there: nothing can be seen, and there is nothing to commit.
    put_config(&world, &good.replace(&world.url(), "http://127.0.0.1:9"));
    let starts = |world: &World| world.log().matches(" running ").count();
    for n in 1..=3 {
        world.start(&[]);
        world.wait("it runs", |world| starts(world) == n);
        assert!(!world.log().contains("the last"), "start {n} holds:\n{}", world.log());
        world.kill();
    }
    let job = JobFile::new("llama", 10);
    world.put_job("llama", &job);
    world.start(&[]);
    world.wait_log("the last 3 starts ended before anything was done");
    let out = world.cli(&["ps"]);
    assert!(out.status.success(), "questions are answered");
    let told = |what: &str| std::fs::read_to_string(&letters).is_ok_and(|text| text.contains(what));
    world.wait("somebody is told", |_| told("submitted: the last 3 starts ended"));
    // Neither the hold nor its alarm is a result.
    world.kill();
    world.start(&[]);
    world.wait("somebody is told again", |_| told("submitted: the last 4 starts ended"));
    put_config(&world, &good);
    world.signal(Signal::HUP);
    world.wait_log("the hold is over");
    world.wait_done("llama");
    world.kill();
    world.start(&[]);
    world.wait("it runs", |world| starts(world) == 6);
    assert_eq!(world.log().matches("the last 3 starts").count(), 1, "{}", world.log());
}

fn put_sendmail(world: &World, letters: &std::path::Path) {
    let script = format!("#!/bin/sh\nsed '1,/^$/d' | base64 -d >> '{}'\n", letters.display());
    let program = world.path("sendmail");
    std::fs::write(&program, script).expect("written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).expect("its mode");
}
