//! A text that cannot be printed.

use std::fmt;
use zeroize::Zeroize as _;

/// A secret value: key, token, or an environment value that came by reference. `Debug` shows
/// nothing of it, there is no `Display` and no `Serialize`; its memory is overwritten on drop.
/// What was made from it for a send (a header, a body) is a copy, which is not.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text that these bytes are. They are overwritten if they are none.
    pub fn of_bytes(bytes: Vec<u8>) -> Option<Self> {
        String::from_utf8(bytes).map_err(|error| error.into_bytes().zeroize()).ok().map(Self)
    }

    /// The text itself, for the one place that signs or sends it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("LTAIxyz");
        assert!(!format!("{secret:?}").contains("LTAI"));
        assert_eq!(secret.expose(), "LTAIxyz");
        assert_eq!(Secret::of_bytes(b"x\xff".to_vec()), None);
    }
}
