//! Where keys come from: one file a provider, and one consistent triple out of each.
//!
//! The way of a key: [`Keychain::keys`] has `plan` read the environment and the files that a
//! reference points to, anew at each call, so that a rotated file is seen at the next one. The plan
//! names its sources in order; `source` gets the keys out of one. Keys that a server or a command
//! gave are temporary: the keychain holds them, renews them early, and one caller at a time asks.
//!
//! What always holds: id, secret and token came together out of one file or one answer; no error,
//! log line or `Debug` shows any part of them, nor the text they were read from. Plain HTTP goes to
//! this machine and to Alibaba's metadata address only. Nothing here reads a clock.

mod answer;
mod cli_profile;
mod command;
mod ecs_role;
mod environment;
mod error;
mod file;
mod ini_profile;
mod keychain;
mod oidc;
mod plan;
mod role;
mod server;
mod source;
mod surroundings;
mod uri;

pub use error::CredentialsError;
pub use keychain::{Held, Keychain, RENEW_EARLY, RETRY_PAUSE, Trouble};
pub use surroundings::{Surroundings, Variables};

use crate::model::secret::Secret;

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
    fn letters_that_would_break_a_header_are_refused_without_showing_them() {
        let error = triple("test", "id", "se\ncret", None).expect_err("a line break");
        assert!(error.to_string().contains("secret") && !error.to_string().contains("se\ncret"));
        assert!(triple("test", "id", " secret\n", Some("t+/=")).is_ok());
    }
}
