//! `spotkeeper completion SHELL`: a short script that asks this program what fits at the cursor.
//!
//! The candidates come from the one description of the command line, and names of jobs from the
//! daemon, so that no list in a script can be out of date. A daemon that does not answer at once
//! completes nothing, in silence.

use super::client::Client;
use super::{Cli, Console, Exit, Failure, explain, socket};
use clap::{Arg, Command, CommandFactory as _};
use std::time::Duration;

/// How long a person who pressed a key waits for names of jobs.
const PATIENCE: Duration = Duration::from_millis(100);
/// Candidates of one answer.
const CANDIDATES_LIMIT: usize = 2_000;

const BASH: &str = r#"_spotkeeper() {
  local IFS=$'\n'
  COMPREPLY=($(spotkeeper complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default
}
complete -F _spotkeeper spotkeeper
"#;

const ZSH: &str = r#"#compdef spotkeeper
_spotkeeper() {
  local -a found
  found=(${(f)"$(spotkeeper complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = _spotkeeper ]; then _spotkeeper "$@"; else compdef _spotkeeper spotkeeper; fi
"#;

const FISH: &str = r"complete -c spotkeeper -f -a '(spotkeeper complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
complete -c spotkeeper -n '__fish_seen_subcommand_from check import checkpoints' -F
";

/// Arguments of `completion`.
#[derive(Debug, Clone, clap::Args)]
pub struct CompletionArgs {
    /// The shell
    pub shell: Shell,
}

/// The shells that there is a script for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// GNU bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// Arguments of `complete`, which the scripts call.
#[derive(Debug, Clone, clap::Args)]
pub struct CompleteArgs {
    /// The words of the line behind the program's name, up to the cursor
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

/// What can stand at the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// One of these.
    Words(Vec<String>),
    /// The name of a job.
    Job,
    /// What only the shell knows: a file, a number.
    Other,
}

/// Writes the script for a shell.
pub fn completion(args: &CompletionArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let script = match args.shell {
        Shell::Bash => BASH,
        Shell::Zsh => ZSH,
        Shell::Fish => FISH,
    };
    write!(console.out, "{script}")?;
    Ok(Exit::Done)
}

/// Writes what fits at the cursor, a candidate a line.
pub async fn complete(args: &CompleteArgs, console: &mut Console<'_>) -> Result<Exit, Failure> {
    let (before, part) = match args.words.split_last() {
        Some((part, before)) => (before, part.as_str()),
        None => (&[][..], ""),
    };
    let candidates = match wanted(Cli::command(), before, part) {
        Wanted::Words(words) => words,
        Wanted::Job => {
            let names = tokio::time::timeout(PATIENCE, names(console)).await;
            names.ok().flatten().unwrap_or_default()
        }
        Wanted::Other => Vec::new(),
    };
    let fitting = candidates.iter().filter(|word| word.starts_with(part));
    for word in fitting.take(CANDIDATES_LIMIT) {
        writeln!(console.out, "{word}")?;
    }
    Ok(Exit::Done)
}

async fn names(console: &Console<'_>) -> Option<Vec<String>> {
    let client = Client::new(&socket(console.global).ok()?).ok()?;
    let jobs = client.jobs().await.ok()?.view.jobs;
    Some(jobs.into_iter().map(|row| row.name).collect())
}

fn wanted(mut command: Command, before: &[String], part: &str) -> Wanted {
    command.build();
    let mut verb = &command;
    let mut value_of: Option<&Arg> = None;
    let mut free = 0;
    for word in before {
        if value_of.take().is_some() {
            continue;
        }
        if word.starts_with('-') {
            value_of = flag(verb, word).filter(|arg| arg.get_action().takes_values());
        } else if let Some(inner) = verb.find_subcommand(word) {
            verb = inner;
            free = 0;
        } else {
            free += 1;
        }
    }
    if let Some(arg) = value_of {
        return values(arg);
    }
    if part.starts_with('-') {
        let flags = verb.get_arguments().filter(|arg| !arg.is_hide_set());
        return Wanted::Words(flags.filter_map(Arg::get_long).map(|l| format!("--{l}")).collect());
    }
    if verb.has_subcommands() {
        let inner = verb.get_subcommands().filter(|inner| !inner.is_hide_set());
        return Wanted::Words(inner.map(|inner| inner.get_name().to_owned()).collect());
    }
    let mut places = verb.get_positionals();
    let several = |arg: &&Arg| arg.get_num_args().is_some_and(|n| n.max_values() > 1);
    match places.nth(free).or_else(|| verb.get_positionals().last().filter(several)) {
        Some(arg) => values(arg),
        None => Wanted::Other,
    }
}

fn flag<'a>(verb: &'a Command, word: &str) -> Option<&'a Arg> {
    verb.get_arguments().find(|arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word == format!("-{short}")),
    })
}

fn values(arg: &Arg) -> Wanted {
    let words: Vec<String> =
        arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    match arg.get_id().as_str() {
        _ if !words.is_empty() => Wanted::Words(words),
        "job" | "jobs" | "place" => Wanted::Job,
        "code" => {
            Wanted::Words(explain::PAGES.iter().map(|(code, _)| (*code).to_owned()).collect())
        }
        _ => Wanted::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: &str) -> Wanted {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let (part, before) = words.split_last().expect("a word");
        wanted(Cli::command(), before, part)
    }

    fn words(line: &str) -> Vec<String> {
        match at(line) {
            Wanted::Words(words) => words,
            other @ (Wanted::Job | Wanted::Other) => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn verbs_flags_and_values_come_from_the_one_description() {
        let verbs = words("");
        assert!(verbs.contains(&"describe".to_owned()), "{verbs:?}");
        assert!(
            !verbs.iter().any(|verb| verb == "complete" || verb == "demo-trainer"),
            "{verbs:?}"
        );
        assert_eq!(words("-q --config /x "), verbs);
        assert_eq!(words("state "), ["snapshot", "verify", "restore", "claim"]);
        assert!(words("ps -o ").contains(&"json".to_owned()));
        assert!(words("ps --output ").contains(&"wide".to_owned()));
        assert!(words("describe --").contains(&"--body".to_owned()));
        assert!(words("describe --").contains(&"--socket".to_owned()));
        assert!(words("explain ").contains(&"E021".to_owned()));
        assert_eq!(words("completion "), ["bash", "zsh", "fish"]);
    }

    #[test]
    fn where_a_job_goes_the_daemon_is_asked() {
        for line in ["describe ", "why a", "cancel a b ", "logs -f ", "wait --for running "] {
            if line.starts_with("logs") && Cli::command().find_subcommand("logs").is_none() {
                continue;
            }
            assert_eq!(at(line), Wanted::Job, "{line}");
        }
        for line in ["describe a ", "--config ", "ps x", "check a"] {
            assert_eq!(at(line), Wanted::Other, "{line}");
        }
    }
}
