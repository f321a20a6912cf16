//! What a test may break in this process: named points at which it is killed, as `kill -9` would,
//! rules that it is made to forget, and a loop that stands still.
//!
//! `SPOTKEEPER_CRASH_AT=NAME:N` ends the process the N-th time the point NAME is passed.
//! Releases have no crash points (`test_hooks` is set by build.rs).

/// Passes the crash point `name`.
#[cfg(test_hooks)]
pub fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU32, Ordering};
    static WANTED: OnceLock<Option<(String, AtomicU32)>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("SPOTKEEPER_CRASH_AT").ok()?;
        let (name, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((name.to_owned(), AtomicU32::new(count.parse().ok()?)))
    });
    if let Some((at, left)) = wanted
        && at == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// Passes the crash point `name`.
#[cfg(not(test_hooks))]
pub fn point(_name: &str) {}

/// Panics in a step of the job that `SPOTKEEPER_PANIC_JOB` names.
#[cfg(test_hooks)]
pub fn panic_for(job: &str) {
    use std::sync::OnceLock;
    static WANTED: OnceLock<Option<String>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var("SPOTKEEPER_PANIC_JOB").ok());
    assert!(wanted.as_deref() != Some(job), "asked to panic for {job}");
}

/// Panics in a step of the job that `SPOTKEEPER_PANIC_JOB` names.
#[cfg(not(test_hooks))]
pub fn panic_for(_job: &str) {}

/// Whether a look takes the newest checkpoint, whole or not: `SPOTKEEPER_TEST_NEWEST=1`. A test
/// sees with it that the demo fails without the rule.
#[cfg(test_hooks)]
pub fn takes_newest() -> bool {
    use std::sync::OnceLock;
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var("SPOTKEEPER_TEST_NEWEST").is_ok_and(|text| text == "1"))
}

/// Whether a look takes the newest checkpoint, whole or not.
#[cfg(not(test_hooks))]
pub fn takes_newest() -> bool {
    false
}

/// Stands still for ever, once the file that `SPOTKEEPER_FREEZE` names is there; it takes the file
/// away first. What runs on other threads goes on.
#[cfg(test_hooks)]
pub fn freeze() {
    use std::sync::OnceLock;
    static WANTED: OnceLock<Option<std::path::PathBuf>> = OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var_os("SPOTKEEPER_FREEZE").map(Into::into));
    if let Some(file) = wanted
        && std::fs::remove_file(file).is_ok()
    {
        loop {
            std::thread::park();
        }
    }
}

/// Stands still for ever, where a test asks for it.
#[cfg(not(test_hooks))]
pub fn freeze() {}
