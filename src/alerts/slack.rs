//! An incoming webhook of Slack.

use super::deliver::Outgoing;
use super::message::Message;
use crate::model::secret::Secret;
use serde_json::json;

/// Letters of a message; Slack cuts at 40,000.
const TEXT_LIMIT: usize = 30_000;

pub(super) fn request(url: Secret, message: &Message) -> Outgoing {
    // These three letters are Slack's own.
    let text = message.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text: String = text.chars().take(TEXT_LIMIT).collect();
    Outgoing { url, headers: Vec::new(), body: json!({ "text": text }).to_string() }
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{alert, channel};
    use super::*;

    #[test]
    fn what_slack_would_take_for_a_command_is_text() {
        let message =
            Message::of(vec![alert(1, "a", "ALARM", "<!channel> & co")], &channel()).expect("one");
        let body = request(Secret::new("https://h/"), &message).body;
        assert!(body.contains("&lt;!channel&gt; &amp; co"), "{body}");
    }
}
