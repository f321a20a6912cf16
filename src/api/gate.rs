//! What is asked of a caller over TCP, where nobody's file mode keeps strangers out.
//!
//! Always holds: only GET and HEAD; without the token only what tells of the daemon as a whole, and
//! only under a name that a web page elsewhere cannot have (DNS rebinding). What travels is not
//! encrypted: TLS is a proxy's.

use super::wire::{self, ErrorDocument, codes};
use crate::model::error::Code;
use crate::model::secret::Secret;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::net::IpAddr;

/// Addresses that need no token on loopback.
const OPEN: [&str; 4] = ["/metrics", "/healthz", "/readyz", "/version"];

/// Who may ask for what.
#[derive(Debug, Clone)]
pub struct Gate {
    /// What a caller has to show for anything about jobs.
    pub token: Option<Secret>,
    /// Whether other machines can reach it: then nothing is answered without the token.
    pub is_public: bool,
}

/// Lets a request through, or says why not.
pub(super) async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    match gate.refuses(request.method(), request.uri().path(), request.headers()) {
        None => next.run(request).await,
        Some((status, code, message)) => {
            let body = ErrorDocument { code: code.to_string(), message: message.to_owned() };
            let mut answer = (status, Json(wire::document(&body))).into_response();
            if status == StatusCode::UNAUTHORIZED {
                let bearer = header::HeaderValue::from_static("Bearer");
                answer.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
            }
            answer
        }
    }
}

impl Gate {
    fn refuses(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
    ) -> Option<(StatusCode, Code, &'static str)> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            let why = "over TCP nothing can be changed: use the socket";
            return Some((StatusCode::METHOD_NOT_ALLOWED, codes::NO_SUCH_ADDRESS, why));
        }
        if self.token.as_ref().is_some_and(|token| shows(headers, token)) {
            return None;
        }
        if self.is_public || !OPEN.contains(&path) {
            let why = match self.token {
                Some(_) => "this needs the token: Authorization: Bearer TOKEN",
                None => "over TCP this needs a token, and the daemon file has none; use the socket",
            };
            return Some((StatusCode::UNAUTHORIZED, codes::NO_TOKEN, why));
        }
        if names_this_machine(headers) {
            return None;
        }
        let why = "the Host of the request is neither localhost nor a loopback address";
        Some((StatusCode::MISDIRECTED_REQUEST, codes::OTHER_HOST, why))
    }
}

/// Whether the request shows the token. Compared by their HMACs: how long that takes says nothing.
fn shows(headers: &HeaderMap, token: &Secret) -> bool {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(shown) = shown.and_then(|text| text.strip_prefix("Bearer ")) else { return false };
    let digest = |text: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(b"spotkeeper api token")
            .expect("HMAC takes a key of any length");
        mac.update(text.as_bytes());
        mac
    };
    digest(shown.trim()).verify_slice(&digest(token.expose()).finalize().into_bytes()).is_ok()
}

/// Whether the one Host is localhost or a loopback address, with any port.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next())
    else {
        return false;
    };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(gate: &Gate, method: &Method, path: &str, headers: &[(&str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = header::HeaderName::from_bytes(name.as_bytes()).expect("a name");
            map.append(name, value.parse().expect("a value"));
        }
        gate.refuses(method, path, &map).map_or(200, |(status, _, _)| status.as_u16())
    }

    #[test]
    fn on_loopback_figures_are_open_to_this_machine_and_jobs_to_the_token() {
        let gate = Gate { token: Some(Secret::new("t0ken")), is_public: false };
        let get = |path, headers: &[(&str, &str)]| asked(&gate, &Method::GET, path, headers);
        for host in ["localhost", "LOCALHOST:9477", "127.0.0.1:9477", "127.0.0.1", "[::1]:9477"] {
            assert_eq!(get("/metrics", &[("host", host)]), 200, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "10.0.0.1"]
        {
            assert_eq!(get("/metrics", &[("host", host)]), 421, "{host}");
        }
        assert_eq!(get("/metrics", &[]), 421, "no Host at all");
        assert_eq!(get("/metrics", &[("host", "localhost"), ("host", "evil.example")]), 421);
        assert_eq!(get("/api/v1/jobs", &[("host", "localhost")]), 401);
        let bearer = ("authorization", "Bearer t0ken");
        assert_eq!(get("/api/v1/jobs", &[("host", "bastion"), bearer]), 200);
        for wrong in ["Bearer t0ke", "Bearer t0ken2", "Bearer ", "t0ken", "Basic t0ken"] {
            let headers = [("host", "localhost"), ("authorization", wrong)];
            assert_eq!(get("/api/v1/jobs", &headers), 401, "{wrong}");
        }
        let headers = [("host", "localhost"), bearer];
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(asked(&gate, &method, "/api/v1/jobs/a/cancel", &headers), 405);
        }
    }

    #[test]
    fn where_other_machines_reach_it_nothing_is_open() {
        let gate = Gate { token: Some(Secret::new("t0ken")), is_public: true };
        let headers = [("host", "localhost")];
        assert_eq!(asked(&gate, &Method::GET, "/metrics", &headers), 401);
        let headers = [("host", "bastion:9477"), ("authorization", "Bearer t0ken")];
        assert_eq!(asked(&gate, &Method::GET, "/metrics", &headers), 200);
        let none = Gate { token: None, is_public: false };
        assert_eq!(asked(&none, &Method::GET, "/api/v1/jobs", &[("host", "localhost")]), 401);
    }
}
