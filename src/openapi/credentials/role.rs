//! Keys of a RAM role that other keys may take: STS AssumeRole.
//!
//! The call is signed with ACS3-HMAC-SHA256, as every call of spotkeeper and as the SDK's own STS
//! client does. The SDK's credentials package still signs this one call with HMAC-SHA1; STS takes
//! both, and so no SHA-1 is needed here.

use super::answer::Answer;
use super::server::{STS_LIMITS, STS_VERSION};
use super::source::Source;
use super::{CredentialsError, Held};
use crate::model::time::WallTime;
use crate::openapi::client::{Client, ClientConfig, Lane, PlainHttp};
use crate::openapi::request::{Method, Request, Stamp};

/// Name of the session in the cloud's own records. Always the same: PAI counts two sessions of one
/// role as two callers.
pub(super) const SESSION: &str = "spotkeeper";
/// The variable that may name the session otherwise.
pub(super) const SESSION_VARIABLE: &str = "ALIBABA_CLOUD_ROLE_SESSION_NAME";
/// The variable that names a role where a profile does not.
pub(super) const ROLE_VARIABLE: &str = "ALIBABA_CLOUD_ROLE_ARN";
/// Seconds that keys are asked for.
pub(super) const LIFE: u64 = 3600;
/// Seconds that STS gives at least.
pub(super) const LIFE_SHORTEST: u64 = 900;

/// What is asked of STS for a role, whoever asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleWanted {
    pub(super) arn: String,
    pub(super) session: String,
    /// Seconds.
    pub(super) life: u64,
    /// Narrows the role's permissions.
    pub(super) policy: Option<String>,
    /// Base URL of STS.
    pub(super) sts: String,
}

impl RoleWanted {
    /// As parameters of the call.
    pub(super) fn parameters(&self) -> Vec<(String, String)> {
        let mut pairs = vec![
            ("DurationSeconds".to_owned(), self.life.to_string()),
            ("RoleArn".to_owned(), self.arn.clone()),
            ("RoleSessionName".to_owned(), self.session.clone()),
        ];
        pairs.extend(self.policy.iter().map(|policy| ("Policy".to_owned(), policy.clone())));
        pairs
    }
}

/// A role, and whose keys take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Role {
    pub(super) base: Source,
    pub(super) wanted: RoleWanted,
    pub(super) external_id: Option<String>,
}

impl Role {
    pub(super) async fn fetch(
        &self,
        origin: &str,
        now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let origin_text = || origin.to_owned();
        let base = self.base.fetch(now).await?;
        let client = Client::new(&ClientConfig {
            endpoint: self.wanted.sts.clone(),
            version: STS_VERSION,
            plain_http: PlainHttp::Loopback,
            limits: STS_LIMITS,
        })
        .map_err(|source| CredentialsError::Client { origin: origin_text(), source })?;
        let mut query = self.wanted.parameters();
        query.extend(self.external_id.iter().map(|id| ("ExternalId".to_owned(), id.clone())));
        let request = Request {
            action: "AssumeRole",
            method: Method::Post,
            path: "/".to_owned(),
            query,
            body: None,
            headers: Vec::new(),
        };
        let stamp = Stamp::new(now)
            .map_err(|source| CredentialsError::Nonce { origin: origin_text(), source })?;
        let answer = client
            .send(Lane::Alone, &request, &base.keys, &stamp)
            .await
            .map_err(|source| CredentialsError::Server { origin: origin_text(), source })?;
        Answer::parse(origin, &answer.body)?.below("Credentials")?.temporary(now)
    }
}
