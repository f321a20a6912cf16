//! Why there are no keys, in words that say what to mend and never show what was read.

use super::environment;
use crate::model::error::Class;
use crate::openapi::client::ClientError;
use crate::openapi::error::CallError;
use std::path::PathBuf;
use std::sync::Arc;

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// A variable is not set, or is empty.
    #[error("environment: {name} is not set; set {ID} and {SECRET} (and {TOKEN} for temporary keys)",
        ID = environment::ID, SECRET = environment::SECRET, TOKEN = environment::TOKEN)]
    Variable {
        /// The first variable that is missing.
        name: &'static str,
    },
    /// The file cannot be opened or read.
    #[error("credentials file {}: cannot be read", path.display())]
    Read {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Everybody on this machine may read or write the file.
    #[error("credentials file {0}: mode {mode:04o} lets every user of this machine in; \
             run `chmod 600 {0}`", path.display())]
    Public {
        /// Its path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file is not what it should be. Says where, never what stands there.
    #[error("credentials file {}: {what}", path.display())]
    Form {
        /// Its path.
        path: PathBuf,
        /// What is wrong, without any of the content.
        what: String,
    },
    /// A value has letters that no key has.
    #[error("{origin}: {name} has blanks, line breaks or letters outside ASCII inside it")]
    Letters {
        /// Where it came from.
        origin: String,
        /// Which value.
        name: &'static str,
    },
    /// Something that was set, or left out, makes this source unusable.
    #[error("{origin}: {what}")]
    Setting {
        /// The source.
        origin: String,
        /// What is wrong, and how to mend it.
        what: String,
    },
    /// The source runs a command, and nobody allowed that.
    #[error(
        "{origin}: gets its keys from a command, and commands are not run unless the daemon file \
         says so: [credentials] allow_commands = true"
    )]
    CommandForbidden {
        /// The source.
        origin: String,
    },
    /// The command gave no keys.
    #[error("{origin}: the command {what}; run it by hand to see what it says")]
    Command {
        /// The source.
        origin: String,
        /// What became of it, without anything that it wrote.
        what: String,
    },
    /// The instance has no such role.
    #[error("{origin}: {what}")]
    NoRole {
        /// The source.
        origin: String,
        /// Which role.
        what: String,
    },
    /// A server did not give keys.
    #[error("{origin}: no keys")]
    Server {
        /// The source.
        origin: String,
        /// What became of the call.
        #[source]
        source: CallError,
    },
    /// A server answered, and not with keys.
    #[error("{origin}: the answer {what}")]
    Answer {
        /// The source.
        origin: String,
        /// What is wrong with it, without any of its content.
        what: String,
    },
    /// The server cannot be asked at all.
    #[error("{origin}: cannot be asked")]
    Client {
        /// The source.
        origin: String,
        /// Why.
        #[source]
        source: ClientError,
    },
    /// There is no randomness for a nonce.
    #[error("{origin}: no random bytes for a nonce")]
    Nonce {
        /// The source.
        origin: String,
        /// What the system said.
        #[source]
        source: getrandom::Error,
    },
    /// The program ends while files are read.
    #[error("credentials: the program is ending")]
    Ending,
    /// What the last try said, told again: the next one comes a moment later.
    #[error(transparent)]
    Again(Arc<CredentialsError>),
    /// No provider of the chain had keys.
    #[error(
        "no credentials found. Tried: {tried}. Or name a source in the target: \
             credentials = {{ environment = true }} or {{ file = \"/etc/spotkeeper/keys.toml\" }}"
    )]
    Chain {
        /// Each provider and what it lacked.
        tried: String,
    },
}

impl CredentialsError {
    /// What the caller should do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Variable { .. }
            | Self::Read { .. }
            | Self::Public { .. }
            | Self::Form { .. }
            | Self::Letters { .. }
            | Self::Setting { .. }
            | Self::CommandForbidden { .. }
            | Self::NoRole { .. }
            | Self::Chain { .. } => Class::Operator,
            Self::Server { source, .. } => source.class(),
            Self::Client { source, .. } => source.class(),
            Self::Answer { .. } | Self::Command { .. } | Self::Nonce { .. } | Self::Ending => {
                Class::Retry
            }
            Self::Again(error) => error.class(),
        }
    }

    /// Whether it says that the source is not there at all, so that a chain goes on to the next.
    pub(super) fn says_not_there(&self) -> bool {
        match self {
            Self::NoRole { .. } | Self::Server { source: CallError::NotSent { .. }, .. } => true,
            Self::Again(error) => error.says_not_there(),
            Self::Variable { .. }
            | Self::Read { .. }
            | Self::Public { .. }
            | Self::Form { .. }
            | Self::Letters { .. }
            | Self::Setting { .. }
            | Self::CommandForbidden { .. }
            | Self::Command { .. }
            | Self::Server { .. }
            | Self::Answer { .. }
            | Self::Client { .. }
            | Self::Nonce { .. }
            | Self::Ending
            | Self::Chain { .. } => false,
        }
    }
}
