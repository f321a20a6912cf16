//! Mail, through the program on this machine that speaks as sendmail does: recipients as arguments,
//! the letter on standard input.

use super::message::Message;
use super::sign::base64_of;
use crate::model::service_manager::VARIABLES;
use crate::model::time::WallTime;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Letters of an encoded line of the text.
const LINE_LETTERS: usize = 76;
/// Bytes of text in one encoded word of the subject.
const WORD_BYTES: usize = 42;
/// Letters of what the program said that are shown.
const SAID_LETTERS: usize = 200;

/// Why a letter was not taken.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// It cannot be run, or broke off.
    #[error("run {}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// It said no.
    #[error("{} ended with {code}: {said}", program.display())]
    No {
        /// The program.
        program: PathBuf,
        /// Its exit code, or signal.
        code: String,
        /// What it said.
        said: String,
    },
}

/// The letter: pure ASCII, whatever stands in the message.
pub(super) fn letter(
    to: &[String],
    from: Option<&str>,
    message: &Message,
    now: WallTime,
) -> String {
    let mut lines = Vec::new();
    lines.extend(from.map(|from| format!("From: {from}")));
    lines.push(format!("To: {}", to.join(",\n ")));
    lines.push(format!("Subject: {}", subject(&message.title)));
    lines.push(format!("Message-ID: <{}@spotkeeper.invalid>", message.id));
    if let Ok(at) = jiff::Timestamp::from_millisecond(now.0) {
        lines.push(format!("Date: {}", at.strftime("%a, %d %b %Y %H:%M:%S +0000")));
    }
    lines.extend(
        [
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=utf-8",
            "Content-Transfer-Encoding: base64",
            "Auto-Submitted: auto-generated",
            "",
        ]
        .map(str::to_owned),
    );
    let body = base64_of(message.text.as_bytes());
    let mut rest = body.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_LETTERS));
        lines.push(line.to_owned());
        rest = after;
    }
    lines.push(String::new());
    lines.join("\n")
}

/// A subject as RFC 2047 wants it, where it is more than plain ASCII.
fn subject(title: &str) -> String {
    if title.chars().all(|c| c.is_ascii() && !c.is_ascii_control()) {
        return title.to_owned();
    }
    let (mut words, mut rest) = (Vec::new(), title);
    while !rest.is_empty() {
        let (word, after) = rest.split_at(rest.floor_char_boundary(WORD_BYTES));
        words.push(format!("=?utf-8?B?{}?=", base64_of(word.as_bytes())));
        rest = after;
    }
    words.join("\n ")
}

/// The program, ready to be started. It speaks for itself, not for the daemon.
fn command(program: &Path, to: &[String]) -> Command {
    let mut command = Command::new(program);
    for name in VARIABLES {
        command.env_remove(name);
    }
    command
        .arg("-i")
        .arg("--")
        .args(to)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Hands the letter over. The caller limits the time; a program that is given up is killed.
pub(super) async fn send(program: &Path, to: &[String], letter: &str) -> Result<(), MailError> {
    let failed = |cause| MailError::Run { program: program.to_owned(), cause };
    let mut child = command(program, to).spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that ends without reading tells why by its exit code.
        drop(stdin.write_all(letter.as_bytes()).await);
        drop(stdin.shutdown().await);
    }
    let done = child.wait_with_output().await.map_err(failed)?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let said = said.chars().map(|c| if c.is_control() { ' ' } else { c });
    Err(MailError::No {
        program: program.to_owned(),
        code: done.status.to_string(),
        said: said.take(SAID_LETTERS).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{alert, channel};
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn message(job: &str) -> Message {
        Message::of(vec![alert(1, job, "ALARM", &"x".repeat(100))], &channel()).expect("one")
    }

    #[test]
    fn a_letter_is_ascii_and_its_lines_are_short() {
        let to = ["ops@example.org".to_owned(), "me@example.org".to_owned()];
        let letter = letter(&to, Some("sk@example.org"), &message("训练任务的名字"), WallTime(0));
        assert!(letter.is_ascii() && letter.lines().all(|line| line.len() <= 78), "{letter}");
        assert!(letter.contains("\nTo: ops@example.org,\n me@example.org\n"), "{letter}");
        assert!(letter.contains("\nSubject: =?utf-8?B?"), "{letter}");
        assert!(letter.contains("\nMessage-ID: <k3f9qz-1@spotkeeper.invalid>\n"), "{letter}");
        assert!(letter.contains("\nDate: Thu, 01 Jan 1970 00:00:00 +0000\n"), "{letter}");
        // A line end in a title would begin a header of its own.
        assert!(!subject("a\nBcc: x@y").contains("\nBcc"));
    }

    #[test]
    fn the_program_cannot_speak_to_the_service_manager() {
        let command = command(Path::new("sendmail"), &[]);
        let kept: Vec<_> = command.as_std().get_envs().collect();
        for name in VARIABLES {
            assert!(kept.contains(&(name.as_ref(), None)), "{name}: {kept:?}");
        }
    }

    #[tokio::test]
    async fn the_program_gets_recipients_and_letter_and_its_no_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("sendmail");
        let write = |text: &str| {
            std::fs::write(&program, text).expect("written");
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&program, mode).expect("its mode");
        };
        let got = folder.path().join("got");
        write(&format!("#!/bin/sh\n{{ echo \"$@\"; cat; }} > {}\n", got.display()));
        send(&program, &["ops@example.org".to_owned()], "Subject: x\n\nhi\n").await.expect("taken");
        let text = std::fs::read_to_string(&got).expect("written");
        assert_eq!(text, "-i -- ops@example.org\nSubject: x\n\nhi\n");
        write("#!/bin/sh\necho 'no such user' >&2\nexit 67\n");
        let error = send(&program, &["ops@example.org".to_owned()], "x").await;
        assert!(error.expect_err("a no").to_string().contains("no such user"));
        let none = send(&folder.path().join("none"), &[], "x").await;
        assert!(matches!(none, Err(MailError::Run { .. })));
    }
}
