//! The gate before the S3 server: keeps the keys, refuses by the dialect, makes trouble, and
//! remembers what was asked.

use crate::dialect::{Refusal, refusal};
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use s3s::service::S3Service;
use std::io;
use std::sync::Mutex;

/// Bytes of a listing that the gate rewrites.
const LISTING_LIMIT_BYTES: usize = 16 * 1024 * 1024;

/// Keys that the server knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// AccessKey id.
    pub id: String,
    /// AccessKey secret.
    pub secret: String,
    /// The security token without which temporary keys are nothing.
    pub token: Option<String>,
}

/// What is done to requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing.
    #[default]
    None,
    /// The next so many are answered 503 SlowDown.
    SlowDown {
        /// How many; `u32::MAX` is for ever.
        left: u32,
    },
    /// The connections of the next so many end without an answer.
    Dropped {
        /// How many; `u32::MAX` is for ever.
        left: u32,
    },
    /// The connections of the next so many reads of objects end in the middle of the answer.
    Cut {
        /// How many; `u32::MAX` is for ever.
        left: u32,
    },
    /// Objects whose keys hold this are archived: listed as such, and not read before they are
    /// restored.
    Archived {
        /// Part of a key.
        part: &'static str,
    },
    /// After so many more requests the security token is over.
    TokenEnds {
        /// How many.
        left: u32,
    },
}

/// One request, as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// `GET`, `PUT` …
    pub method: Method,
    /// Path and query.
    pub target: String,
    /// Names of its headers.
    pub headers: Vec<String>,
    /// Its security token.
    pub token: Option<String>,
    /// What it was answered; 0 if the connection was dropped.
    pub status: u16,
}

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, io::Error>;

#[derive(Debug)]
pub(crate) struct Gate {
    domain: String,
    keys: Mutex<Keys>,
    trouble: Mutex<Trouble>,
    asked: Mutex<Vec<Asked>>,
}

/// What becomes of one request.
enum Verdict {
    Served,
    Refused(Refusal),
    Dropped,
    Cut,
}

const SLOW_DOWN: Refusal = Refusal {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: "SlowDown",
    message: "fewer requests a second",
};
const ARCHIVED: Refusal = Refusal {
    status: StatusCode::FORBIDDEN,
    code: "InvalidObjectState",
    message: "the object is archived",
};
const TOKEN_OVER: Refusal = Refusal {
    status: StatusCode::FORBIDDEN,
    code: "SecurityTokenExpired",
    message: "the security token is over",
};
const NO_TOKEN: Refusal = Refusal {
    status: StatusCode::FORBIDDEN,
    code: "InvalidAccessKeyId",
    message: "no such key, or not without its token",
};

/// Takes one from a count, if there is one left.
fn take(left: &mut u32) -> bool {
    let any = *left > 0;
    if any && *left != u32::MAX {
        *left -= 1;
    }
    any
}

impl Gate {
    pub(crate) fn new(domain: String, keys: Keys) -> Self {
        let (trouble, asked) = (Mutex::default(), Mutex::default());
        Self { domain, keys: Mutex::new(keys), trouble, asked }
    }

    pub(crate) fn secret_of(&self, id: &str) -> Option<String> {
        let keys = self.keys.lock().expect("the keys");
        (keys.id == id).then(|| keys.secret.clone())
    }

    pub(crate) fn know(&self, keys: Keys) {
        *self.keys.lock().expect("the keys") = keys;
    }

    pub(crate) fn trouble(&self, trouble: Trouble) {
        *self.trouble.lock().expect("the trouble") = trouble;
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().expect("the list"))
    }

    /// Answers one request; an error drops the connection.
    pub(crate) async fn pass(
        &self,
        request: Request<Incoming>,
        service: &S3Service,
    ) -> Result<Response<Body>, io::Error> {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let is_listing = target.contains("list-type=2");
        let token = parts.headers.get("x-amz-security-token");
        let mut asked = Asked {
            method: parts.method.clone(),
            target: target.clone(),
            headers: parts.headers.keys().map(|name| name.as_str().to_owned()).collect(),
            token: token.and_then(|value| value.to_str().ok()).map(str::to_owned),
            status: 0,
        };
        let verdict = match refusal(&parts, &self.domain) {
            Some(refusal) => Verdict::Refused(refusal),
            None => self.verdict(&asked, is_listing),
        };
        let answer = match verdict {
            Verdict::Refused(refusal) => Ok(refused(refusal)),
            Verdict::Dropped => Err(io::Error::other("dropped")),
            Verdict::Served | Verdict::Cut => {
                let served = service.call(Request::from_parts(parts, body.into())).await;
                let (parts, body) = served.map_err(io::Error::other)?.into_parts();
                let body = body.map_err(io::Error::other).boxed_unsync();
                match verdict {
                    Verdict::Cut => Ok(Response::from_parts(parts, cut(body).await?)),
                    _ if is_listing => self.with_storage_classes(parts, body).await,
                    _ => Ok(Response::from_parts(parts, body)),
                }
            }
        };
        asked.status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.asked.lock().expect("the list").push(asked);
        answer
    }

    fn verdict(&self, asked: &Asked, is_listing: bool) -> Verdict {
        if asked.token != self.keys.lock().expect("the keys").token {
            return Verdict::Refused(NO_TOKEN);
        }
        let is_read = asked.method == Method::GET && !is_listing;
        let strikes = |left: &mut u32, verdict| if take(left) { verdict } else { Verdict::Served };
        match &mut *self.trouble.lock().expect("the trouble") {
            Trouble::None => Verdict::Served,
            Trouble::SlowDown { left } => strikes(left, Verdict::Refused(SLOW_DOWN)),
            Trouble::Dropped { left } => strikes(left, Verdict::Dropped),
            Trouble::Cut { left } if is_read => strikes(left, Verdict::Cut),
            Trouble::Archived { part } if is_read && asked.target.contains(*part) => {
                Verdict::Refused(ARCHIVED)
            }
            Trouble::Cut { .. } | Trouble::Archived { .. } => Verdict::Served,
            Trouble::TokenEnds { left } => match take(left) {
                true => Verdict::Served,
                false => Verdict::Refused(TOKEN_OVER),
            },
        }
    }

    /// A page of a listing in which archived objects say so.
    async fn with_storage_classes(
        &self,
        mut parts: http::response::Parts,
        body: Body,
    ) -> Result<Response<Body>, io::Error> {
        let page = body.collect().await?.to_bytes();
        assert!(page.len() <= LISTING_LIMIT_BYTES, "a page of {} bytes", page.len());
        let archived = match &*self.trouble.lock().expect("the trouble") {
            Trouble::Archived { part } => Some(*part),
            _ => None,
        };
        let text = std::str::from_utf8(&page).map_err(io::Error::other)?;
        let mut rows = text.split("</Contents>").collect::<Vec<_>>();
        let end = rows.pop().unwrap_or_default();
        let class = |row: &str| {
            let key = row.rfind("<Key>").map_or("", |start| &row[start..]);
            let is_archived = archived.is_some_and(|part| key.contains(part));
            if is_archived { "<StorageClass>Archive</StorageClass>" } else { "" }
        };
        let rows = rows.into_iter().map(|row| format!("{row}{}</Contents>", class(row)));
        let text = rows.chain([end.to_owned()]).collect::<String>();
        parts.headers.remove("content-length");
        Ok(Response::from_parts(parts, whole(text)))
    }
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

fn refused(refusal: Refusal) -> Response<Body> {
    let Refusal { status, code, message } = refusal;
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Error><Code>{code}</Code><Message>{message}</Message></Error>"
    );
    let mut answer = Response::new(whole(text));
    *answer.status_mut() = status;
    answer
}

/// The first half of a body, then an error: the connection ends there.
async fn cut(body: Body) -> Result<Body, io::Error> {
    let bytes = body.collect().await?.to_bytes();
    let half = bytes.slice(..bytes.len() / 2);
    let pieces = [Ok(Frame::data(half)), Err(io::Error::other("cut"))];
    Ok(StreamBody::new(stream::iter(pieces)).boxed_unsync())
}
