//! Keys from the environment, under the names of the official SDK.

use super::source::{Found, Source, Way};
use super::{CredentialsError, Surroundings, triple};

pub(super) const ID: &str = "ALIBABA_CLOUD_ACCESS_KEY_ID";
pub(super) const SECRET: &str = "ALIBABA_CLOUD_ACCESS_KEY_SECRET";
pub(super) const TOKEN: &str = "ALIBABA_CLOUD_SECURITY_TOKEN";

pub(super) fn read(around: &Surroundings) -> Result<Source, CredentialsError> {
    let needed = |name| around.variable(name).ok_or(CredentialsError::Variable { name });
    let token = around.variable(TOKEN);
    let keys = triple("environment", &needed(ID)?, &needed(SECRET)?, token.as_deref())?;
    Ok(Source { origin: "environment".to_owned(), way: Way::Keys { keys, expires: None } })
}

/// The same in the chain: half a pair is a mistake to report, not a reason to look elsewhere.
pub(super) fn look(around: &Surroundings) -> Result<Found, CredentialsError> {
    if around.variable(ID).is_none() && around.variable(SECRET).is_none() {
        return Ok(Found::NotThere(format!("environment: {ID} and {SECRET} are not set")));
    }
    read(around).map(Found::There)
}
