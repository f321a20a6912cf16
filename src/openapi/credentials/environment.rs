//! Keys from the environment, under the names of the official SDK.

use super::{Credentials, CredentialsError, Variable, triple};

pub(super) const ID: &str = "ALIBABA_CLOUD_ACCESS_KEY_ID";
pub(super) const SECRET: &str = "ALIBABA_CLOUD_ACCESS_KEY_SECRET";
pub(super) const TOKEN: &str = "ALIBABA_CLOUD_SECURITY_TOKEN";

pub(super) fn read(variable: Variable<'_>) -> Result<Credentials, CredentialsError> {
    // A variable that is set to nothing counts as not set, as with the SDK.
    let set = |name: &'static str| variable(name).filter(|text| !text.trim().is_empty());
    let needed = |name| set(name).ok_or(CredentialsError::Variable { name });
    triple("environment", &needed(ID)?, &needed(SECRET)?, set(TOKEN).as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Credentials, CredentialsError> {
        read(&|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn a_pair_and_a_triple_are_read() {
        let pair = with(&[(ID, "a"), (SECRET, "b"), (TOKEN, "")]).expect("a pair");
        assert_eq!((pair.key_id.expose(), pair.token), ("a", None));
        let triple = with(&[(ID, "a"), (SECRET, "b"), (TOKEN, "c")]).expect("a triple");
        assert_eq!(triple.token.expect("a token").expose(), "c");
    }

    #[test]
    fn the_missing_variable_is_named() {
        let error = with(&[(ID, "a"), (SECRET, " ")]).expect_err("no secret");
        assert!(matches!(error, CredentialsError::Variable { name } if name == SECRET));
    }
}
