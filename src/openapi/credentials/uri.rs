//! Keys from a server near by, such as the one that PAI puts beside a container.

use super::answer::Answer;
use super::server::{STS_LIMITS, address, ask};
use super::source::{Found, Source, Way};
use super::{CredentialsError, Held, Surroundings};
use crate::model::secret::Secret;
use crate::model::time::WallTime;

pub(super) const VARIABLE: &str = "ALIBABA_CLOUD_CREDENTIALS_URI";

/// The address of such a server. Its path or query may be what lets one in, so neither is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CredentialsUri(Secret);

/// The source at `text`.
pub(super) fn source(text: &str) -> Result<Source, CredentialsError> {
    let url = address("credentials URI", text)?;
    let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let origin = format!("credentials URI {scheme}://{host}{port}");
    Ok(Source { origin, way: Way::Uri(CredentialsUri(Secret::new(url.as_str()))) })
}

/// The one that the environment names.
pub(super) fn look(around: &Surroundings) -> Result<Found, CredentialsError> {
    match around.variable(VARIABLE) {
        Some(text) => source(&text).map(Found::There),
        None => Ok(Found::NotThere(format!("credentials URI: {VARIABLE} is not set"))),
    }
}

impl CredentialsUri {
    pub(super) async fn fetch(
        &self,
        origin: &str,
        now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let url = address(origin, self.0.expose())?;
        let request = reqwest::Request::new(reqwest::Method::GET, url);
        let body = ask(origin, "credentials", &STS_LIMITS, request, &[&self.0]).await?;
        Answer::parse(origin, &body)?.successful()?.temporary(now)
    }
}
