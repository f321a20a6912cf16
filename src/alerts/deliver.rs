//! One delivery: the secrets are read, one request is made or one program run, and its answer
//! decides. Nothing is repeated here.

use super::dingtalk::{self, url_fault};
use super::message::Message;
use super::secrets::{self, SecretError};
use super::{feishu, mail, slack, webhook, wecom};
use crate::model::alert::{Channel, SecretRef, Way};
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use std::time::Duration;

/// How long name look-up, TCP and TLS may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a whole delivery may take.
pub const DELIVERY_LIMIT: Duration = Duration::from_secs(20);
/// Bytes of an answer that are read.
const ANSWER_LIMIT_BYTES: usize = 64 * 1024;
/// Letters of an answer that are shown.
const SHOWN_LETTERS: usize = 200;

/// Why a message was not delivered. Never shows an address or a key.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// An address or key cannot be read.
    #[error("read a secret")]
    Secret(#[from] SecretError),
    /// The address is none.
    #[error(transparent)]
    NoUrl(#[from] url_fault::NoUrl),
    /// Nobody answered, or not in time.
    #[error("send it")]
    NoAnswer(#[source] reqwest::Error),
    /// The receiver did not take it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The mail program failed.
    #[error(transparent)]
    Mail(#[from] mail::MailError),
    /// It took too long.
    #[error("it was not delivered within {}s", DELIVERY_LIMIT.as_secs())]
    TooSlow,
}

/// Codes within an answer of 200 that mean "not now": DingTalk's, WeCom's and Feishu's for too many
/// messages.
const NOT_NOW: [i64; 3] = [130_101, 45_009, 11_232];
/// Statuses that are about what was sent; any other one would meet every message alike.
const OF_THE_MESSAGE: [u16; 4] = [400, 413, 415, 422];

impl DeliveryError {
    /// Whether the receiver answered, and another message may do better.
    pub fn is_about_the_message(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.of_the_message,
            Self::Secret(_)
            | Self::NoUrl(_)
            | Self::NoAnswer(_)
            | Self::Mail(_)
            | Self::TooSlow => false,
        }
    }
}

/// A receiver's no.
#[derive(Debug, thiserror::Error)]
#[error("the receiver did not take it: {why}")]
pub struct Refused {
    why: String,
    of_the_message: bool,
}

impl Refused {
    /// A no within an answer of 200: its code, and the field that explains it.
    pub(super) fn by(key: &str, code: Option<i64>, body: &str, why: &str) -> Self {
        let read: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let why = read.get(why).and_then(|why| why.as_str()).unwrap_or("its answer says no more");
        match code {
            Some(code) => Self {
                why: format!("{key} {code}: {}", shown(why)),
                of_the_message: !NOT_NOW.contains(&code),
            },
            // Somebody else has answered.
            None => Self {
                why: format!("no {key} in its answer: {}", shown(body)),
                of_the_message: false,
            },
        }
    }
}

/// The start of a text from outside, without what could command a terminal.
fn shown(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(SHOWN_LETTERS).collect()
}

/// A number at the top of a JSON answer.
pub(super) fn number_in(body: &str, key: &str) -> Option<i64> {
    serde_json::from_str::<serde_json::Value>(body).ok()?.get(key)?.as_i64()
}

/// A POST that is to be made.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) url: Secret,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// The client for all channels. No redirects, which could carry a token elsewhere; no proxy. Its
/// caller has chosen the provider of cryptography before.
///
/// # Errors
/// If the TLS side cannot start, mostly for want of CA files.
pub fn client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .connect_timeout(CONNECT_LIMIT)
        .timeout(DELIVERY_LIMIT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .pool_max_idle_per_host(0)
        .user_agent(concat!("spotkeeper/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Delivers one message.
///
/// # Errors
/// Whatever kept it from being taken; it may have arrived all the same.
pub async fn deliver(
    client: &reqwest::Client,
    channel: &Channel,
    message: &Message,
    now: WallTime,
) -> Result<(), DeliveryError> {
    let whole = async {
        let outgoing = match &channel.way {
            Way::Mail { program, to, from } => {
                let letter = mail::letter(to, from.as_deref(), message, now);
                return Ok(mail::send(program, to, &letter).await?);
            }
            Way::Webhook { url, secret, template } => {
                let (url, secret) = both(url, secret.as_ref()).await?;
                webhook::request(url, secret.as_ref(), template.as_deref(), message, now)
            }
            Way::DingTalk { url, secret } => {
                let (url, secret) = both(url, secret.as_ref()).await?;
                dingtalk::request(url, secret.as_ref(), message, now)?
            }
            Way::Feishu { url, secret } => {
                let (url, secret) = both(url, secret.as_ref()).await?;
                feishu::request(url, secret.as_ref(), message, now)
            }
            Way::WeCom { url } => wecom::request(secrets::read(url).await?, message),
            Way::Slack { url } => slack::request(secrets::read(url).await?, message),
        };
        let body = post(client, outgoing).await?;
        match &channel.way {
            Way::DingTalk { .. } => Ok(dingtalk::verdict(&body)?),
            Way::Feishu { .. } => Ok(feishu::verdict(&body)?),
            Way::WeCom { .. } => Ok(wecom::verdict(&body)?),
            // Their status has said it.
            Way::Webhook { .. } | Way::Slack { .. } | Way::Mail { .. } => Ok(()),
        }
    };
    tokio::time::timeout(DELIVERY_LIMIT, whole).await.unwrap_or(Err(DeliveryError::TooSlow))
}

async fn both(
    url: &SecretRef,
    secret: Option<&SecretRef>,
) -> Result<(Secret, Option<Secret>), SecretError> {
    let url = secrets::read(url).await?;
    let secret = match secret {
        Some(secret) => Some(secrets::read(secret).await?),
        None => None,
    };
    Ok((url, secret))
}

async fn post(client: &reqwest::Client, outgoing: Outgoing) -> Result<String, DeliveryError> {
    let no_answer = |error: reqwest::Error| DeliveryError::NoAnswer(error.without_url());
    let mut request = client
        .post(url_fault::parse(&outgoing.url)?)
        .header("content-type", "application/json; charset=utf-8")
        .body(outgoing.body);
    for (name, value) in outgoing.headers {
        request = request.header(name, value);
    }
    let mut answer = request.send().await.map_err(no_answer)?;
    let mut bytes = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(no_answer)? {
        bytes.extend_from_slice(&part[..part.len().min(ANSWER_LIMIT_BYTES - bytes.len())]);
        if bytes.len() >= ANSWER_LIMIT_BYTES {
            break;
        }
    }
    let body = String::from_utf8_lossy(&bytes).into_owned();
    let status = answer.status();
    if status.is_success() {
        return Ok(body);
    }
    let why = format!("HTTP {}: {}", status.as_u16(), shown(&body));
    Err(Refused { why, of_the_message: OF_THE_MESSAGE.contains(&status.as_u16()) }.into())
}
