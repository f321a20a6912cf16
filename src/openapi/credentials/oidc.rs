//! Keys of a RAM role for the token of an identity provider, as in a pod of ACK (RRSA): STS
//! AssumeRoleWithOIDC. The token is the proof; the call is not signed.

use super::answer::Answer;
use super::file::{Readers, text};
use super::role::{LIFE, ROLE_VARIABLE, RoleWanted, SESSION, SESSION_VARIABLE};
use super::server::{STS_LIMITS, STS_VERSION, address, ask, sts};
use super::source::{Found, Source, Way};
use super::{CredentialsError, Held, Surroundings};
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use crate::openapi::signature::canonical_query;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use std::path::PathBuf;

pub(super) const PROVIDER_VARIABLE: &str = "ALIBABA_CLOUD_OIDC_PROVIDER_ARN";
pub(super) const TOKEN_VARIABLE: &str = "ALIBABA_CLOUD_OIDC_TOKEN_FILE";

/// A role, and the token that stands for who takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Oidc {
    pub(super) wanted: RoleWanted,
    pub(super) provider_arn: String,
    /// Read at each call: Kubernetes writes a new token well before the old one ends.
    pub(super) token_file: PathBuf,
}

/// The role that the environment names.
pub(super) fn look(around: &Surroundings) -> Result<Found, CredentialsError> {
    let names = [ROLE_VARIABLE, PROVIDER_VARIABLE, TOKEN_VARIABLE];
    let values = names.map(|name| around.variable(name));
    let missing: Vec<_> =
        names.iter().zip(&values).filter(|(_, v)| v.is_none()).map(|(name, _)| *name).collect();
    let [Some(arn), Some(provider_arn), Some(token_file)] = values else {
        let verb = if missing.len() == 1 { "is" } else { "are" };
        let text = format!("OIDC: {} {verb} not set", missing.join(" and "));
        return Ok(Found::NotThere(text));
    };
    let origin = format!("OIDC role {arn}");
    let session = around.variable(SESSION_VARIABLE).unwrap_or_else(|| SESSION.to_owned());
    let sts = sts(&origin, around, None, None)?;
    let wanted = RoleWanted { arn, session, life: LIFE, policy: None, sts };
    let way = Way::Oidc(Oidc { wanted, provider_arn, token_file: token_file.into() });
    Ok(Found::There(Source { origin, way }))
}

impl Oidc {
    pub(super) async fn fetch(
        &self,
        origin: &str,
        now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let path = self.token_file.clone();
        let read = tokio::task::spawn_blocking(move || text(&path, Readers::Any));
        let token = Secret::new(read.await.map_err(|_| CredentialsError::Ending)??.trim());
        let mut url = address(origin, &self.wanted.sts)?;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        url.set_query(Some(&canonical_query(&[
            pair("Action", "AssumeRoleWithOIDC"),
            pair("Format", "JSON"),
            pair("Timestamp", &now.to_string()),
            pair("Version", STS_VERSION),
        ])));
        let mut form = self.wanted.parameters();
        form.push(pair("OIDCProviderArn", &self.provider_arn));
        form.push(pair("OIDCToken", token.expose()));
        let mut request = reqwest::Request::new(reqwest::Method::POST, url);
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        // In the body: an address is what servers write into their logs.
        *request.body_mut() = Some(canonical_query(&form).into());
        let body = ask(origin, "AssumeRoleWithOIDC", &STS_LIMITS, request, &[&token]).await?;
        Answer::parse(origin, &body)?.below("Credentials")?.temporary(now)
    }
}
