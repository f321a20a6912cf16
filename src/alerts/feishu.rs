//! A bot of a Feishu or Lark group. Its signature, by Feishu's public rule: HMAC-SHA256 of nothing
//! with `timestamp\nsecret` as key, in base64, as `sign` beside `timestamp` (seconds) in the body.

use super::deliver::{Outgoing, Refused, number_in};
use super::message::Message;
use super::sign::hmac_base64;
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use serde_json::json;

/// Letters of a message; Feishu takes 20 KB.
const TEXT_LIMIT: usize = 5_000;

pub(super) fn request(
    url: Secret,
    secret: Option<&Secret>,
    message: &Message,
    now: WallTime,
) -> Outgoing {
    let text: String = message.text.chars().take(TEXT_LIMIT).collect();
    let mut body = json!({ "msg_type": "text", "content": { "text": text } });
    if let Some(secret) = secret {
        let timestamp = now.0.div_euclid(1_000);
        body["timestamp"] = timestamp.to_string().into();
        body["sign"] = signature(secret, timestamp).into();
    }
    Outgoing { url, headers: Vec::new(), body: body.to_string() }
}

fn signature(secret: &Secret, timestamp: i64) -> String {
    hmac_base64(format!("{timestamp}\n{}", secret.expose()).as_bytes(), b"")
}

/// Whether the bot took it. Older ones say `StatusCode`.
pub(super) fn verdict(body: &str) -> Result<(), Refused> {
    match number_in(body, "code").or_else(|| number_in(body, "StatusCode")) {
        Some(0) => Ok(()),
        code => Err(Refused::by("code", code, body, "msg")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{alert, channel};
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_public_rule() {
        // python3 -c 'import hmac,hashlib,base64; print(base64.b64encode(hmac.new(
        //   b"1796000000\nfeishu-secret", b"", hashlib.sha256).digest()).decode())'
        let message = Message::of(vec![alert(1, "vit", "ALARM", "x")], &channel()).expect("one");
        let (url, secret) = (Secret::new("https://h/hook"), Secret::new("feishu-secret"));
        let sent = request(url.clone(), Some(&secret), &message, WallTime(1_796_000_000_999));
        let body: serde_json::Value = serde_json::from_str(&sent.body).expect("JSON");
        assert_eq!(body["timestamp"], "1796000000");
        assert_eq!(body["sign"], "f2qQXzt8qRLiFopoZyQ0+j+O3y0AVvDpPzfE5dbHqbI=");
        assert_eq!(body["content"]["text"], message.text);
        let plain = request(url, None, &message, WallTime(0)).body;
        assert!(!plain.contains("sign"), "{plain}");
    }

    #[test]
    fn only_code_zero_is_a_yes() {
        assert!(verdict("{\"code\":0,\"msg\":\"success\"}").is_ok());
        assert!(verdict("{\"StatusCode\":0,\"StatusMessage\":\"success\"}").is_ok());
        for no in ["{\"code\":19021,\"msg\":\"sign match fail\"}", "{}", "<html>"] {
            assert!(verdict(no).is_err(), "{no}");
        }
    }
}
