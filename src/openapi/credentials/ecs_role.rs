//! Keys of the role of the ECS instance that this runs on, from its metadata service.
//!
//! The hardened way comes first: a token that only a PUT from the instance itself gets. Where the
//! service does not know it, plain questions follow, unless that was forbidden.

use super::answer::Answer;
use super::server::{METADATA_LIMITS, address, ask};
use super::source::{Found, Source, Way};
use super::{CredentialsError, Held, Surroundings};
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use crate::openapi::signature::percent_encode;
use reqwest::Method;
use reqwest::header::HeaderValue;

const NAME: &str = "ALIBABA_CLOUD_ECS_METADATA";
const DISABLED: &str = "ALIBABA_CLOUD_ECS_METADATA_DISABLED";
const PLAIN_DISABLED: &str = "ALIBABA_CLOUD_IMDSV1_DISABLED";

const TOKEN_PATH: &str = "/latest/api/token";
const ROLES_PATH: &str = "/latest/meta-data/ram/security-credentials/";
const TOKEN_HEADER: &str = "x-aliyun-ecs-metadata-token";
const TOKEN_LIFE_HEADER: &str = "x-aliyun-ecs-metadata-token-ttl-seconds";
/// Seconds that a metadata token is asked for.
const TOKEN_LIFE: &str = "21600";
/// Bytes of the longest role name.
const ROLE_LIMIT: usize = 64;

/// Whether questions without a token may follow when the hardened way fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlainQuestions {
    Allowed,
    Forbidden,
}

/// The instance's role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EcsRole {
    base: String,
    /// `None`: the service is asked for the name.
    name: Option<String>,
    plain: PlainQuestions,
}

/// The role `name`, else the one that the environment names, else the one that is attached.
pub(super) fn source(
    origin: &str,
    around: &Surroundings,
    name: Option<&str>,
) -> Result<Source, CredentialsError> {
    let bad = |what: String| CredentialsError::Setting { origin: origin.to_owned(), what };
    if around.is_on(DISABLED) {
        return Err(bad(format!("{DISABLED} is set to true")));
    }
    let name = name.map(str::to_owned).or_else(|| around.variable(NAME));
    let name = name.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
    if name.as_deref().is_some_and(|name| !is_role(name)) {
        return Err(bad("its role name has letters that no role name has".to_owned()));
    }
    let forbidden = around.is_on(PLAIN_DISABLED);
    let plain = if forbidden { PlainQuestions::Forbidden } else { PlainQuestions::Allowed };
    let way = Way::EcsRole(EcsRole { base: around.metadata.clone(), name, plain });
    Ok(Source { origin: origin.to_owned(), way })
}

/// The same in the chain. Whether there is a metadata service shows only when it is asked.
pub(super) fn look(around: &Surroundings) -> Result<Found, CredentialsError> {
    if around.is_on(DISABLED) {
        return Ok(Found::NotThere(format!("ECS RAM role: {DISABLED} is set to true")));
    }
    source("ECS RAM role", around, None).map(Found::There)
}

impl EcsRole {
    pub(super) async fn fetch(
        &self,
        origin: &str,
        now: WallTime,
    ) -> Result<Held, CredentialsError> {
        let token = match self.token(origin).await {
            Ok(token) => Some(token),
            // Nothing listens there: plain questions would wait for the same nothing.
            Err(error) if error.says_not_there() => return Err(error),
            Err(error) if self.plain == PlainQuestions::Forbidden => return Err(error),
            Err(_) => None,
        };
        let name = match &self.name {
            Some(name) => name.clone(),
            None => self.attached(origin, token.as_ref()).await?,
        };
        let origin = format!("ECS RAM role {name}");
        let body = self.get(&origin, &percent_encode(&name), token.as_ref()).await?;
        let body = body.ok_or_else(|| CredentialsError::NoRole {
            origin: origin.clone(),
            what: "this instance has no such role".to_owned(),
        })?;
        Answer::parse(&origin, &body)?.successful()?.temporary(now)
    }

    async fn token(&self, origin: &str) -> Result<Secret, CredentialsError> {
        let mut request = self.request(origin, Method::PUT, TOKEN_PATH)?;
        request.headers_mut().insert(TOKEN_LIFE_HEADER, HeaderValue::from_static(TOKEN_LIFE));
        request
            .headers_mut()
            .insert(reqwest::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        let body = ask(origin, "metadata token", &METADATA_LIMITS, request, &[]).await?;
        let bad = || CredentialsError::Answer {
            origin: origin.to_owned(),
            what: "is no metadata token".to_owned(),
        };
        let text = String::from_utf8(body).map_err(|_| bad())?;
        let text = text.trim();
        let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if fits { Ok(Secret::new(text)) } else { Err(bad()) }
    }

    /// The name of the role that is attached.
    async fn attached(
        &self,
        origin: &str,
        token: Option<&Secret>,
    ) -> Result<String, CredentialsError> {
        let body = self.get(origin, "", token).await?.unwrap_or_default();
        let text = String::from_utf8(body).unwrap_or_default();
        match text.trim() {
            "" => {
                let what = "no role is attached to this instance".to_owned();
                Err(CredentialsError::NoRole { origin: origin.to_owned(), what })
            }
            name if is_role(name) => Ok(name.to_owned()),
            _ => {
                let what = "is no role name".to_owned();
                Err(CredentialsError::Answer { origin: origin.to_owned(), what })
            }
        }
    }

    /// What the service has under `name`; `None` if it has nothing.
    async fn get(
        &self,
        origin: &str,
        name: &str,
        token: Option<&Secret>,
    ) -> Result<Option<Vec<u8>>, CredentialsError> {
        let hardened = self.get_once(origin, name, token).await;
        match hardened {
            Err(_) if token.is_some() && self.plain == PlainQuestions::Allowed => {
                self.get_once(origin, name, None).await
            }
            answer => answer,
        }
    }

    async fn get_once(
        &self,
        origin: &str,
        name: &str,
        token: Option<&Secret>,
    ) -> Result<Option<Vec<u8>>, CredentialsError> {
        let mut request = self.request(origin, Method::GET, &format!("{ROLES_PATH}{name}"))?;
        if let Some(token) = token {
            // Its letters were checked when it came.
            let mut value = HeaderValue::from_str(token.expose())
                .unwrap_or_else(|_| HeaderValue::from_static(""));
            value.set_sensitive(true);
            request.headers_mut().insert(TOKEN_HEADER, value);
        }
        let hidden: Vec<_> = token.into_iter().collect();
        match ask(origin, "metadata", &METADATA_LIMITS, request, &hidden).await {
            Ok(body) => Ok(Some(body)),
            Err(CredentialsError::Server { source, .. })
                if source.refusal().is_some_and(|refusal| refusal.http == 404) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn request(
        &self,
        origin: &str,
        method: Method,
        path: &str,
    ) -> Result<reqwest::Request, CredentialsError> {
        let mut url = address(origin, &self.base)?;
        url.set_path(path);
        Ok(reqwest::Request::new(method, url))
    }
}

fn is_role(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    name.len() <= ROLE_LIMIT && name.bytes().all(letter) && !name.starts_with("..")
}
