//! Names and ids, each with a type of its own so that none is taken for another.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Letters of marks and owners: lower-case base32 (RFC 4648), free of look-alike digits.
pub const BASE32: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} `{text}`: {rule}")]
pub struct BadId {
    /// What was expected, e.g. "job name".
    pub kind: &'static str,
    /// The text that was given.
    pub text: String,
    /// The rule that it breaks, in words a person can act on.
    pub rule: &'static str,
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path, $rule:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes `text` as an id of this kind, or says which rule it breaks.
            ///
            /// # Errors
            /// [`BadId`] with the rule.
            pub fn new(text: impl Into<String>) -> Result<Self, BadId> {
                let text = text.into();
                if $check(&text) {
                    Ok(Self(text))
                } else {
                    Err(BadId { kind: $kind, text, rule: $rule })
                }
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

fn is_job_name(text: &str) -> bool {
    (1..=100).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
        && text.as_bytes()[0].is_ascii_alphanumeric()
}

fn is_target_name(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

fn is_base32(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| BASE32.contains(&b))
}

fn is_owner(text: &str) -> bool {
    // `init` writes base32; a person may have written the digits 0, 1, 8, 9 as well.
    text.len() == 6 && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn is_mark(text: &str) -> bool {
    is_base32(text, 10)
}

fn is_cloud_id(text: &str) -> bool {
    // Short ids of letters and digits; anything else could change the path of a request.
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

text_id!(
    /// The name of a job, unique on one installation.
    JobName, "job name", is_job_name,
    "1 to 100 letters, digits, `_`, `-` or `.`, the first a letter or digit"
);
text_id!(
    /// The name of a `[targets.NAME]` table: a region, a workspace and credentials.
    TargetName, "target name", is_target_name, "1 to 64 letters, digits, `_` or `-`"
);
text_id!(
    /// This installation. Stands in the daemon file, so that the state folder can be rebuilt.
    Owner, "owner", is_owner, "exactly 6 lower-case letters or digits (`spotkeeper init` writes one)"
);
text_id!(
    /// The random name of one `CreateJob` that may be sent; never used for a second one.
    Mark, "mark", is_mark, "exactly 10 of a-z and 2-7"
);
text_id!(
    /// A PAI-DLC `JobId`.
    CloudId, "DLC job id", is_cloud_id, "1 to 128 letters, digits, `-` or `_`"
);

impl Mark {
    /// A mark from 10 random bytes; the caller brings the randomness.
    pub fn from_random(bytes: [u8; 10]) -> Self {
        Self(bytes.iter().map(|b| char::from(BASE32[usize::from(b & 31)])).collect())
    }
}

impl Owner {
    /// An owner id from 6 random bytes.
    pub fn from_random(bytes: [u8; 6]) -> Self {
        Self(bytes.iter().map(|b| char::from(BASE32[usize::from(b & 31)])).collect())
    }
}

/// The how-manieth time a job is run, from 1. Only the job file or `retry` raises it.
pub type Run = u32;

/// The number of an attempt within a run, from 1. One number for one mark, never given twice.
pub type AttemptNo = u32;

/// What identifies a job: its name and run. The file it came from does not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobKey {
    /// The name in the job file.
    pub name: JobName,
    /// The run in the job file.
    pub run: Run,
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.run == 1 {
            write!(f, "{}", self.name)
        } else {
            write!(f, "{} (run {})", self.name, self.run)
        }
    }
}

/// SHA-256 of a text that is kept as a file, in lower-case hex.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub String);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(hex(&sha2::Sha256::digest(bytes)))
    }
}

/// Lower-case hex of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_to_their_rules() {
        assert!(JobName::new("llama8b-sft").is_ok());
        for bad in ["", "-x", "a b", "a/b", "é", &"x".repeat(101)] {
            assert!(JobName::new(bad).is_err(), "{bad}");
        }
        assert!(Mark::new("abcdefgh27").is_ok());
        for bad in ["abcdefgh2", "abcdefgh201", "ABCDEFGH27", "abcdefgh18"] {
            assert!(Mark::new(bad).is_err(), "{bad}");
        }
        assert!(CloudId::new("dlc/../x").is_err());
    }

    #[test]
    fn an_id_out_of_a_file_is_checked_too() {
        assert!(serde_json::from_str::<Owner>("\"k3f9qz\"").is_ok());
        assert!(serde_json::from_str::<Owner>("\"K3F9QZ\"").is_err());
    }

    #[test]
    fn marks_come_from_randomness_alone() {
        let mark = Mark::from_random([0, 1, 31, 32, 255, 7, 8, 9, 10, 11]);
        assert!(Mark::new(mark.as_str()).is_ok());
        assert_ne!(mark, Mark::from_random([9; 10]));
    }
}
