//! Where keys come from: one file a provider, and one consistent triple out of each.
//!
//! What always holds: id, secret and token were read together from one source; no error shows any
//! part of them. A provider is asked anew at each [`resolve`], so that a rotated file is seen at
//! the next call; nothing is cached here.

mod environment;
mod file;

use crate::model::error::Class;
use crate::model::secret::Secret;
use crate::model::spec::CredentialsRef;
use crate::model::time::WallTime;
use std::path::PathBuf;

/// The keys that sign one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// AccessKeyId. Not secret by itself, but no log needs it.
    pub key_id: Secret,
    /// AccessKeySecret.
    pub secret: Secret,
    /// SecurityToken of temporary keys.
    pub token: Option<Secret>,
}

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
            | Self::Chain { .. } => Class::Operator,
        }
    }
}

/// Keys, and what is known of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The keys.
    pub keys: Credentials,
    /// Which provider gave them, in words for people: `environment`, `credentials file /etc/…`.
    pub provider: String,
    /// When they end; `None` for keys that do not, or do not say.
    pub expires: Option<WallTime>,
}

/// Where every call of this process gets its keys. Clones share what is held.
#[derive(Debug, Clone, Default)]
pub struct Keychain {}

impl Keychain {
    /// The keys that `reference` points to, at `now`.
    ///
    /// # Errors
    /// No provider has keys.
    #[expect(clippy::unused_async, reason = "providers that ask a server wait")]
    pub async fn keys(
        &self,
        reference: &CredentialsRef,
        _now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let keys = resolve(reference)?;
        let provider = match reference {
            CredentialsRef::Environment | CredentialsRef::Chain => "environment".to_owned(),
            CredentialsRef::File(path) => format!("credentials file {}", path.display()),
        };
        Ok(Held { keys, provider, expires: None })
    }
}

/// The keys that `reference` points to now.
fn resolve(reference: &CredentialsRef) -> Result<Credentials, CredentialsError> {
    let variable = |name: &str| std::env::var(name).ok();
    match reference {
        CredentialsRef::Environment => environment::read(&variable),
        CredentialsRef::File(path) => file::read(path),
        CredentialsRef::Chain => chain(&variable),
    }
}

/// Looks a variable of the environment up.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

fn chain(variable: Variable<'_>) -> Result<Credentials, CredentialsError> {
    // A half-set environment is a mistake to report, not a reason to look elsewhere.
    environment::read(variable).map_err(|e| match e {
        CredentialsError::Variable { .. } => CredentialsError::Chain { tried: e.to_string() },
        CredentialsError::Read { .. }
        | CredentialsError::Public { .. }
        | CredentialsError::Form { .. }
        | CredentialsError::Letters { .. }
        | CredentialsError::Chain { .. } => e,
    })
}

/// Checks the letters of the three values, all of which go into headers or a key.
fn triple(
    origin: &str,
    key_id: &str,
    secret: &str,
    token: Option<&str>,
) -> Result<Credentials, CredentialsError> {
    let checked = |name: &'static str, text: &str| {
        let text = text.trim();
        if text.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Secret::new(text))
        } else {
            Err(CredentialsError::Letters { origin: origin.to_owned(), name })
        }
    };
    Ok(Credentials {
        key_id: checked("the access key id", key_id)?,
        secret: checked("the access key secret", secret)?,
        token: token.map(|t| checked("the security token", t)).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_chain_says_what_it_tried_and_how_to_mend_it() {
        let error = chain(&|_| None).expect_err("nothing is set");
        assert_eq!(error.class(), Class::Operator);
        let text = error.to_string();
        for part in ["ALIBABA_CLOUD_ACCESS_KEY_ID", "file =", "environment = true"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn letters_that_would_break_a_header_are_refused_without_showing_them() {
        let error = triple("test", "id", "se\ncret", None).expect_err("a line break");
        assert!(error.to_string().contains("secret") && !error.to_string().contains("se\ncret"));
        assert!(triple("test", "id", " secret\n", Some("t+/=")).is_ok());
    }
}
