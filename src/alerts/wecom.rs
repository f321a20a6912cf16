//! A robot of a WeCom group: its key stands in the address.

use super::deliver::{Outgoing, Refused, number_in};
use super::message::Message;
use crate::model::secret::Secret;
use serde_json::json;

/// Bytes of a message.
const TEXT_LIMIT_BYTES: usize = 2_048;

pub(super) fn request(url: Secret, message: &Message) -> Outgoing {
    let text = &message.text;
    let content = &text[..text.floor_char_boundary(TEXT_LIMIT_BYTES)];
    let body = json!({ "msgtype": "text", "text": { "content": content } }).to_string();
    Outgoing { url, headers: Vec::new(), body }
}

/// Whether the robot took it: it answers 200 whatever it thinks.
pub(super) fn verdict(body: &str) -> Result<(), Refused> {
    match number_in(body, "errcode") {
        Some(0) => Ok(()),
        code => Err(Refused::by("errcode", code, body, "errmsg")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{alert, channel};
    use super::*;

    #[test]
    fn a_message_is_cut_to_what_wecom_takes() {
        let long = alert(1, "训练", "ALARM", &"长".repeat(1_000));
        let message = Message::of(vec![long], &channel()).expect("one");
        let sent = request(Secret::new("https://h/"), &message);
        let body: serde_json::Value = serde_json::from_str(&sent.body).expect("JSON");
        let content = body["text"]["content"].as_str().expect("a text");
        assert!(content.len() <= 2_048 && content.len() > 2_040, "{}", content.len());
        assert!(verdict("{\"errcode\":0}").is_ok() && verdict("{\"errcode\":93000}").is_err());
    }
}
