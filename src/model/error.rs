//! What every error of every room can say about itself.

use serde::{Deserialize, Serialize};

/// What the caller should do about an error. The supervisor matches on this, never on text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Try again soon: a passing fault.
    Retry,
    /// Try again later, slowly: throttled, or something outside must recover first.
    Wait,
    /// A person has to mend something.
    Operator,
    /// This program is wrong.
    Bug,
}

/// The code of an error that a person sees, `E001` to `E999`; `docs/errors/Ennn.md` explains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u16);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "E{:03}", self.0)
    }
}
