//! Why a command could not do what it was asked for.

use super::exit::Exit;
use super::text::plain;
use crate::api::wire::codes;
use crate::model::error::{Class, Code};
use crate::store::StoreError;
use std::io;
use std::path::PathBuf;

/// Why a command failed. Each one knows its exit code.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Flags or arguments that do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A name that no job has.
    #[error("there is no job `{name}`{}", near_names(near))]
    NoSuchJob {
        /// The name.
        name: String,
        /// Names that somebody may have meant.
        near: Vec<String>,
    },
    /// Nobody answers on the socket.
    #[error(
        "no daemon answers on {}: start it with `spotkeeper run`, \
         or name another socket with --socket",
        socket.display()
    )]
    NotReachable {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        cause: reqwest::Error,
    },
    /// The socket exists, but this user may not open it.
    #[error("you may not open {}: its users are the members of its group", socket.display())]
    NoPermission {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        cause: reqwest::Error,
    },
    /// The daemon does not answer in time.
    #[error("the daemon on {} does not answer in time", socket.display())]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        cause: reqwest::Error,
    },
    /// What came over the socket cannot be read.
    #[error("the answer on {} cannot be read: {why}", socket.display())]
    BadAnswer {
        /// The socket.
        socket: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The daemon refuses.
    #[error("{message}")]
    Refused {
        /// The code that the daemon gave.
        code: String,
        /// What it says.
        message: String,
    },
    /// The HTTP client cannot be built.
    #[error("the client of the socket cannot be made")]
    Client(#[source] reqwest::Error),
    /// The daemon file that was named cannot be used.
    #[error("the daemon file {}: {why}; `spotkeeper check` shows all of it", path.display())]
    DaemonFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The state cannot be used as was asked.
    #[error("the state")]
    State(#[from] StoreError),
    /// No daemon runs, and what was asked for cannot be kept for its next start.
    #[error("no daemon answers, and nothing is written down beside its state in {}: {why}", state.display())]
    NotWrittenDown {
        /// The state folder.
        state: PathBuf,
        /// What to do.
        why: &'static str,
        /// Why not.
        #[source]
        cause: StoreError,
    },
    /// What was waited for did not happen in time.
    #[error("{0}")]
    TimedOut(String),
    /// Nothing can be looked at, or chosen, for a reason in the look itself.
    #[error("{0}")]
    Look(String),
    /// The demo cannot go on.
    #[error("{0}")]
    Demo(String),
    /// This process lacks something.
    #[error("{doing}")]
    Process {
        /// What could not be done.
        doing: &'static str,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// A file cannot be written.
    #[error("{} cannot be written", path.display())]
    File {
        /// The file, or its folder.
        path: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// The output cannot be written.
    #[error("the output cannot be written")]
    Output(#[from] io::Error),
}

fn near_names(near: &[String]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    format!("; did you mean {}?", names.join(" or "))
}

impl Failure {
    /// What the process ends with.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NoSuchJob { .. } => Exit::NoSuchJob,
            Self::NotReachable { .. }
            | Self::NoPermission { .. }
            | Self::Silent { .. }
            | Self::NotWrittenDown { .. } => Exit::NotReachable,
            Self::Refused { code, .. } if *code == codes::NO_SUCH_JOB.to_string() => {
                Exit::NoSuchJob
            }
            Self::Refused { code, .. } if *code == codes::NO_ANSWER.to_string() => {
                Exit::NotReachable
            }
            Self::DaemonFile { .. } => Exit::ConfigNotValid,
            Self::TimedOut(_) => Exit::TimedOut,
            Self::State(StoreError::Locked { .. }) => Exit::Refused,
            // Who reads has seen enough: `spotkeeper ps | head` is no error.
            Self::Output(cause) if cause.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::BadAnswer { .. }
            | Self::Refused { .. }
            | Self::State(_)
            | Self::Client(_)
            | Self::Look(_)
            | Self::Demo(_)
            | Self::Process { .. }
            | Self::File { .. }
            | Self::Output(_) => Exit::Error,
        }
    }

    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::NotReachable { .. } | Self::Silent { .. } | Self::TimedOut(_) => Class::Wait,
            Self::BadAnswer { .. } => Class::Bug,
            Self::State(error) | Self::NotWrittenDown { cause: error, .. } => error.class(),
            Self::Usage(_)
            | Self::NoSuchJob { .. }
            | Self::NoPermission { .. }
            | Self::Refused { .. }
            | Self::Client(_)
            | Self::DaemonFile { .. }
            | Self::Look(_)
            | Self::Demo(_)
            | Self::Process { .. }
            | Self::File { .. }
            | Self::Output(_) => Class::Operator,
        }
    }

    /// Its page in docs/errors, where it has one.
    pub fn code(&self) -> Option<String> {
        let own = |code: Code| Some(code.to_string());
        match self {
            Self::NoSuchJob { .. } => own(codes::NO_SUCH_JOB),
            Self::NotReachable { .. } | Self::NoPermission { .. } | Self::NotWrittenDown { .. } => {
                own(codes::NOT_REACHABLE)
            }
            Self::Silent { .. } => own(codes::NO_ANSWER),
            Self::BadAnswer { .. } => own(codes::BAD_ANSWER),
            Self::Refused { code, .. } => Some(code.clone()),
            Self::Usage(_)
            | Self::State(_)
            | Self::Client(_)
            | Self::DaemonFile { .. }
            | Self::TimedOut(_)
            | Self::Look(_)
            | Self::Demo(_)
            | Self::Process { .. }
            | Self::File { .. }
            | Self::Output(_) => None,
        }
    }

    /// What a person reads, with every cause.
    pub fn report(&self) -> String {
        let code = self.code().map_or(String::new(), |code| format!("[{code}]"));
        let mut text = format!("error{code}: {self}");
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        plain(&text).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_gives_its_own_exit_code() {
        let refused = |code: &str| Failure::Refused { code: code.into(), message: "no".into() };
        assert_eq!(refused("E101").exit(), Exit::NoSuchJob);
        assert_eq!(refused("E105").exit(), Exit::NotReachable);
        assert_eq!(refused("E103").exit(), Exit::Error);
        assert_eq!(refused("E103").report(), "error[E103]: no");
    }

    #[test]
    fn near_names_are_told_and_a_closed_pipe_is_no_error() {
        let near = vec!["vit-large".to_owned(), "vit-larger".to_owned()];
        let failure = Failure::NoSuchJob { name: "vit".into(), near };
        assert_eq!(
            failure.report(),
            "error[E101]: there is no job `vit`; did you mean `vit-large` or `vit-larger`?"
        );
        let closed = Failure::Output(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(closed.exit(), Exit::Done);
    }
}
