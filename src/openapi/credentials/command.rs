//! Keys that a command prints (mode External of the CLI's profiles).
//!
//! The command is started by its own words, without a shell, with a limit on its time and on what
//! it may print. What it writes to stderr goes nowhere: nobody knows what stands in it.

use super::answer::Answer;
use super::{CredentialsError, Held, triple};
use crate::model::service_manager::VARIABLES;
use crate::model::time::WallTime;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// How long it may run: as with the SDK.
const TIME_LIMIT: Duration = Duration::from_mins(1);
/// Bytes that it may print.
const OUTPUT_LIMIT: u64 = 64 * 1024;

/// A command's words, the program first; never empty.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Command(Vec<String>);

impl std::fmt::Debug for Command {
    /// An argument may be a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Command({} words)", self.0.len())
    }
}

impl Command {
    /// The command in `line`, split as a shell splits words, or what is wrong with it.
    pub(super) fn parse(line: &str) -> Result<Self, &'static str> {
        let words = words(line)?;
        if words.is_empty() { Err("has an empty `process_command`") } else { Ok(Self(words)) }
    }

    pub(super) async fn fetch(
        &self,
        origin: &str,
        now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let output = self.run(TIME_LIMIT).await.map_err(|what| {
            let origin = origin.to_owned();
            CredentialsError::Command { origin, what }
        })?;
        let answer = Answer::parse(origin, &output)?;
        let token = match answer.text("mode") {
            Some("StsToken") => Some(answer.needed("sts_token")?),
            Some(_) | None => answer.text("sts_token"),
        };
        let id = answer.needed("access_key_id")?;
        let keys = triple(origin, id, answer.needed("access_key_secret")?, token)?;
        let expires = match answer.text("expiration") {
            Some(_) => Some(answer.expiration("expiration", now)?),
            None => None,
        };
        Ok(Held { keys, provider: origin.to_owned(), expires })
    }

    /// What it printed, if it ended well and within `limit`.
    async fn run(&self, limit: Duration) -> Result<Vec<u8>, String> {
        let mut command = tokio::process::Command::new(&self.0[0]);
        for name in VARIABLES {
            command.env_remove(name);
        }
        let mut child = command
            .args(&self.0[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("cannot be started ({})", error.kind()))?;
        let mut group = Group(child.id());
        let mut stdout = child.stdout.take().expect("stdout was asked for").take(OUTPUT_LIMIT + 1);
        let whole = async {
            let mut output = Vec::new();
            let read = stdout.read_to_end(&mut output).await;
            let read = read.map_err(|error| format!("cannot be read from ({})", error.kind()))?;
            if read as u64 > OUTPUT_LIMIT {
                return Err(format!("printed more than {} KiB", OUTPUT_LIMIT / 1024));
            }
            let status = child.wait().await;
            let status = status.map_err(|error| format!("is out of sight ({})", error.kind()))?;
            // It ended by itself: what it leaves behind is meant to stay.
            group.0 = None;
            if status.success() { Ok(output) } else { Err(format!("failed ({status})")) }
        };
        let late = || format!("did not end within {} s", limit.as_secs());
        tokio::time::timeout(limit, whole).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The process group of a command, killed with all that is in it unless the command ended.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        let id = self.0.and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(id) = id {
            // An error says that nobody of it is left.
            let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
        }
    }
}

/// What a letter means inside a command line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// The words of `line` by the shell's quotes. Nothing is expanded.
fn words(line: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = Quote::None;
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Quote::None, ' ' | '\t' | '\n' | '\r') => words.extend(word.take()),
            (Quote::None, '\'') => {
                quote = Quote::Single;
                word.get_or_insert_default();
            }
            (Quote::None, '"') => {
                quote = Quote::Double;
                word.get_or_insert_default();
            }
            (Quote::Single, '\'') | (Quote::Double, '"') => quote = Quote::None,
            (Quote::None, '\\') => {
                let next =
                    letters.next().ok_or("has a `process_command` that ends in a backslash")?;
                word.get_or_insert_default().push(next);
            }
            (Quote::Double, '\\') if matches!(letters.peek(), Some('"' | '\\')) => {
                word.get_or_insert_default().extend(letters.next());
            }
            (Quote::None | Quote::Single | Quote::Double, letter) => {
                word.get_or_insert_default().push(letter);
            }
        }
    }
    if quote != Quote::None {
        return Err("has a quote without its end in `process_command`");
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_splits_them() {
        for (line, want) in [
            ("get-keys --for  me", vec!["get-keys", "--for", "me"]),
            ("a 'b c' \"d e\"f '' x\\ y", vec!["a", "b c", "d ef", "", "x y"]),
            (r#"a "b\"c\n" '\'"#, vec!["a", "b\"c\\n", "\\"]),
            ("$HOME `id`;x", vec!["$HOME", "`id`;x"]),
            ("  ", vec![]),
        ] {
            assert_eq!(words(line).expect(line), want, "{line}");
        }
        for line in ["a 'b", "a \"b", "a \\"] {
            assert!(words(line).is_err(), "{line}");
        }
        assert!(Command::parse(" ").is_err());
    }

    #[tokio::test]
    async fn one_that_does_not_end_is_killed_with_its_children() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pid");
        let script = "sleep 1000 & echo $! > \"$0\"; wait";
        let words = ["sh", "-c", script, file.to_str().expect("UTF-8")];
        let command = Command(words.map(str::to_owned).to_vec());
        let error = command.run(Duration::from_secs(1)).await.expect_err("late");
        assert_eq!(error, "did not end within 1 s");
        let pid = std::fs::read_to_string(file).unwrap_or_default();
        let runs = || {
            // Nothing stands there once a process has ended.
            let line = std::fs::read(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
            !pid.trim().is_empty() && line.starts_with(b"sleep")
        };
        while runs() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
