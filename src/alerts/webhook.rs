//! A POST of JSON to any address, signed as Standard Webhooks 1.0 says: `webhook-id`,
//! `webhook-timestamp` in seconds, and `webhook-signature: v1,` with the HMAC-SHA256 of
//! `id.timestamp.body` in base64.

use super::deliver::Outgoing;
use super::message::Message;
use super::sign::{hmac_base64, webhook_key};
use crate::model::secret::Secret;
use crate::model::time::WallTime;
use serde_json::json;

/// The placeholders of a template, with what each stands for in `message`.
fn fields(message: &Message) -> [(&'static str, String); 9] {
    let (first, last) = (message.alerts.first(), message.alerts.last());
    let of = |read: fn(&crate::model::alert::Alert) -> String| first.map(read).unwrap_or_default();
    [
        ("id", message.id.clone()),
        ("title", message.title.clone()),
        ("text", message.text.clone()),
        ("job", of(|alert| alert.job.clone())),
        ("run", of(|alert| alert.run.to_string())),
        ("event", of(|alert| alert.word.clone())),
        ("count", message.alerts.len().to_string()),
        ("first_at", of(|alert| alert.at.to_string())),
        ("last_at", last.map(|alert| alert.at.to_string()).unwrap_or_default()),
    ]
}

pub(super) fn request(
    url: Secret,
    secret: Option<&Secret>,
    template: Option<&str>,
    message: &Message,
    now: WallTime,
) -> Outgoing {
    let body = match template {
        Some(template) => fill(template, message),
        None => own_body(message),
    };
    let mut headers = vec![("webhook-id", message.id.clone())];
    if let Some(secret) = secret {
        let timestamp = now.0.div_euclid(1_000);
        let signed = format!("{}.{timestamp}.{body}", message.id);
        let signature = hmac_base64(&webhook_key(secret.expose()), signed.as_bytes());
        headers.push(("webhook-timestamp", timestamp.to_string()));
        headers.push(("webhook-signature", format!("v1,{signature}")));
    }
    Outgoing { url, headers, body }
}

fn own_body(message: &Message) -> String {
    let alerts = message.alerts.iter().map(|alert| {
        json!({
            "id": alert.id, "at": alert.at.to_string(), "job": alert.job, "run": alert.run,
            "attempt": alert.attempt, "event": alert.word, "text": alert.text, "step": alert.step,
        })
    });
    json!({
        "apiVersion": "v1", "id": message.id, "title": message.title, "text": message.text,
        "alerts": alerts.collect::<Vec<_>>(),
    })
    .to_string()
}

/// The template with each placeholder replaced by its text, as it stands inside a JSON string.
fn fill(template: &str, message: &Message) -> String {
    let mut body = String::new();
    let fields = fields(message);
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let (before, brace) = rest.split_at(at);
        body.push_str(before);
        let found = fields.iter().find_map(|(name, value)| {
            let after = brace.strip_prefix('{')?.strip_prefix(name)?.strip_prefix('}')?;
            Some((value, after))
        });
        if let Some((value, after)) = found {
            let quoted = serde_json::Value::from(value.as_str()).to_string();
            body.push_str(&quoted[1..quoted.len() - 1]);
            rest = after;
        } else {
            body.push('{');
            rest = &brace[1..];
        }
    }
    body.push_str(rest);
    body
}

#[cfg(test)]
mod tests {
    use super::super::message::tests::{alert, channel};
    use super::*;
    use crate::model::alert::PLACEHOLDERS;

    fn message() -> Message {
        Message::of(vec![alert(1, "vit", "ALARM", "say \"hi\"\n")], &channel()).expect("one")
    }

    #[test]
    fn a_webhook_is_signed_as_standard_webhooks_says() {
        // python3 -c 'import hmac,hashlib,base64; print(base64.b64encode(hmac.new(b"topsecret",
        //   b"k3f9qz-1.1796000000.{\"m\": \"vit\"}", hashlib.sha256).digest()).decode())'
        let (url, secret) = (Secret::new("http://h/"), Secret::new("topsecret"));
        let now = WallTime(1_796_000_000_999);
        let template = Some("{\"m\": \"{job}\"}");
        let sent = request(url.clone(), Some(&secret), template, &message(), now);
        assert_eq!(sent.body, "{\"m\": \"vit\"}");
        let wanted = [
            ("webhook-id", "k3f9qz-1".to_owned()),
            ("webhook-timestamp", "1796000000".to_owned()),
            ("webhook-signature", "v1,ijXLBvzo9y9x32AoyitB6qb6FSWAAqa9CV1mnDMYZCg=".to_owned()),
        ];
        assert_eq!(sent.headers, wanted);
        // The same key in the written form of the rule: base64 behind `whsec_`.
        let coded = Secret::new("whsec_dG9wc2VjcmV0");
        let again = request(url, Some(&coded), template, &message(), now);
        assert_eq!(again.headers, wanted);
    }

    #[test]
    fn what_a_template_is_filled_with_stays_inside_its_string() {
        let body =
            fill("{\"a\": {\"t\": \"{text}\", \"n\": {count}, \"x\": \"{other}\"}}", &message());
        let read: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(read["a"]["t"], message().text);
        assert_eq!((&read["a"]["n"], &read["a"]["x"]), (&json!(1), &json!("{other}")));
        let names: Vec<_> = fields(&message()).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, PLACEHOLDERS);
    }

    #[test]
    fn the_own_body_names_every_alert() {
        let sent = request(Secret::new("http://h/"), None, None, &message(), WallTime(0));
        let read: serde_json::Value = serde_json::from_str(&sent.body).expect("JSON");
        assert_eq!(read["alerts"][0]["id"], "k3f9qz-1");
        assert_eq!(read["alerts"][0]["event"], "ALARM");
        assert_eq!(sent.headers.len(), 1, "nothing is signed without a key");
    }
}
