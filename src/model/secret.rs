//! A text that cannot be printed.

use std::fmt;

/// A secret value: key, token, or an environment value that came by reference. `Debug` shows
/// nothing of it, there is no `Display` and no `Serialize`; the bytes are overwritten on drop as
/// far as safe code can.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
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
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        std::hint::black_box(&bytes);
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
    }
}
