//! A robot of a DingTalk group. Its signature, by DingTalk's public rule: HMAC-SHA256 of
//! `timestamp\nsecret` with the secret as key, in base64, as `sign` beside `timestamp` (milliseconds)
//! in the address.

use super::deliver::{Outgoing, Refused, number_in};
use super::message::Message;
use super::sign::hmac_base64;
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use serde_json::json;

/// Letters of a message; DingTalk takes 20,000 bytes.
pub(super) const TEXT_LIMIT: usize = 5_000;

pub(super) fn request(
    url: Secret,
    secret: Option<&Secret>,
    message: &Message,
    now: WallTime,
) -> Result<Outgoing, url_fault::NoUrl> {
    let url = match secret {
        None => url,
        Some(secret) => {
            let mut signed = url_fault::parse(&url)?;
            signed
                .query_pairs_mut()
                .append_pair("timestamp", &now.0.to_string())
                .append_pair("sign", &signature(secret, now));
            Secret::new(String::from(signed))
        }
    };
    let content: String = message.text.chars().take(TEXT_LIMIT).collect();
    let body = json!({ "msgtype": "text", "text": { "content": content } }).to_string();
    Ok(Outgoing { url, headers: Vec::new(), body })
}

fn signature(secret: &Secret, now: WallTime) -> String {
    let text = format!("{}\n{}", now.0, secret.expose());
    hmac_base64(secret.expose().as_bytes(), text.as_bytes())
}

/// Whether the robot took it: it answers 200 whatever it thinks.
pub(super) fn verdict(body: &str) -> Result<(), Refused> {
    match number_in(body, "errcode") {
        Some(0) => Ok(()),
        code => Err(Refused::by("errcode", code, body, "errmsg")),
    }
}

/// Addresses that are none.
pub(super) mod url_fault {
    use crate::model::secret::Secret;

    /// What stands in the secret is no address. The address itself is not shown.
    #[derive(Debug, thiserror::Error)]
    #[error("what the secret of `url` holds is not an http(s) address")]
    pub struct NoUrl;

    pub(in crate::alerts) fn parse(url: &Secret) -> Result<reqwest::Url, NoUrl> {
        let url = reqwest::Url::parse(url.expose()).map_err(|_| NoUrl)?;
        if matches!(url.scheme(), "http" | "https") { Ok(url) } else { Err(NoUrl) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{alert, channel};
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_public_rule() {
        // python3 -c 'import hmac,hashlib,base64,urllib.parse as u; s=b"SEC000secret";
        //   print(u.quote_plus(base64.b64encode(hmac.new(s, b"1796000000000\n"+s,
        //   hashlib.sha256).digest())))'
        let message = Message::of(vec![alert(1, "vit", "ALARM", "x")], &channel()).expect("one");
        let (url, secret) = ("https://oapi.example/robot/send?access_token=t", "SEC000secret");
        let now = WallTime(1_796_000_000_000);
        let sent = request(Secret::new(url), Some(&Secret::new(secret)), &message, now);
        let sent = sent.expect("an address");
        assert_eq!(
            sent.url.expose(),
            format!(
                "{url}&timestamp=1796000000000&sign=0UZxc2%2ByjRYuQW1wJCndF32EtisvOO0xLjL0%2Bjk06gg%3D"
            )
        );
        let plain = request(Secret::new(url), None, &message, now).expect("an address");
        assert_eq!(plain.url.expose(), url);
        assert!(
            request(Secret::new("nothing"), Some(&Secret::new(secret)), &message, now).is_err()
        );
    }

    #[test]
    fn only_errcode_zero_is_a_yes() {
        assert!(verdict("{\"errcode\":0,\"errmsg\":\"ok\"}").is_ok());
        for no in ["{\"errcode\":310000,\"errmsg\":\"sign not match\"}", "{}", "ok", "", "[0]"] {
            assert!(verdict(no).is_err(), "{no}");
        }
        let refused = verdict("{\"errcode\":310000,\"errmsg\":\"sign not match\"}");
        let text = refused.expect_err("a no").to_string();
        assert!(text.contains("310000") && text.contains("sign not match"), "{text}");
    }
}
