//! `[api] listen`: the API on a TCP address, for those that cannot open the socket.
//!
//! Loopback needs nothing more. Any other address needs `listen_anywhere = true` and a token: what
//! travels is not encrypted, so that TLS has to come from a proxy in front.

use super::codes;
use super::diagnostic::Notes;
use super::reader::Table;
use super::secret_ref::secret_ref;
use crate::model::alert::SecretRef;
use std::net::SocketAddr;
use std::path::Path;

/// Where the API listens beside its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tcp {
    /// The address.
    pub address: SocketAddr,
    /// What a caller has to show; without one only figures and health are answered.
    pub token: Option<SecretRef>,
}

pub(super) fn tcp(notes: &Notes<'_>, api: &mut Table<'_, '_>, job_secrets: &Path) -> Option<Tcp> {
    let listen = api.text("listen");
    let anywhere = api.flag("listen_anywhere").is_some_and(|found| found.value);
    let token = secret_ref(notes, api, "token", job_secrets);
    let has_token = api.was_taken("token");
    let found = listen?;
    let Ok(address) = found.value.parse::<SocketAddr>() else {
        let mend = "wanted: an IP address and a port, such as \"127.0.0.1:9477\"";
        notes.error(&found.span, codes::WRONG_VALUE, "`listen` cannot have this value", mend);
        return None;
    };
    let fault = match (address.ip().is_loopback(), anywhere, has_token) {
        (true, _, _) | (false, true, true) => None,
        (false, false, _) => Some("this address is not loopback: other machines can reach it"),
        (false, true, false) => Some("this address is not loopback, and there is no `token`"),
    };
    if let Some(message) = fault {
        let mend = "use 127.0.0.1 or [::1]; or give listen_anywhere = true and token = { file = \"…\" }, \
                    with a proxy in front that does TLS";
        notes.error(&found.span, codes::ENDPOINT, message, mend);
        return None;
    }
    Some(Tcp { address, token })
}
