//! Which commit a release is built from: `$SPOTKEEPER_COMMIT` if it is set, else what git says.
//! Without either, and in builds for tests, which would else be made anew after each commit, it is
//! not known. And `cfg(test_hooks)` for all builds but releases: src/service/crash.rs.

#![allow(clippy::print_stdout, reason = "this is how cargo is told")]

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SPOTKEEPER_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    println!("cargo::rustc-check-cfg=cfg(test_hooks)");
    if !release {
        println!("cargo::rustc-cfg=test_hooks");
    }
    let given = std::env::var("SPOTKEEPER_COMMIT").ok();
    let commit = given.or_else(|| release.then(of_git).flatten()).unwrap_or_default();
    let hex = commit.len() >= 7 && commit.chars().all(|c| c.is_ascii_hexdigit());
    let commit = if hex { commit.as_str() } else { "" };
    let shown = if commit.is_empty() { String::new() } else { format!(" ({commit})") };
    println!("cargo::rustc-env=SPOTKEEPER_COMMIT={commit}");
    println!("cargo::rustc-env=SPOTKEEPER_COMMIT_SHOWN={shown}");
}

fn of_git() -> Option<String> {
    for file in [".git/HEAD", ".git/logs/HEAD"] {
        if std::fs::exists(file).is_ok_and(|there| there) {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    let asked = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(asked.stdout).ok()?;
    asked.status.success().then(|| text.trim().to_owned())
}
