//! The signatures that receivers ask for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// HMAC-SHA256 in base64.
pub(super) fn hmac_base64(key: &[u8], text: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    STANDARD.encode(mac.finalize().into_bytes())
}

/// The key of Standard Webhooks: base64 behind `whsec_`, else the text itself.
pub(super) fn webhook_key(secret: &str) -> Vec<u8> {
    let coded = secret.strip_prefix("whsec_").and_then(|coded| STANDARD.decode(coded).ok());
    coded.unwrap_or_else(|| secret.as_bytes().to_vec())
}

/// Base64 of a text.
pub(super) fn base64_of(text: &[u8]) -> String {
    STANDARD.encode(text)
}
