//! The emulator's gateway against recorded requests of the official SDK.

use serde_json::Value;
use spotkeeper::emulator::gateway::{AccessKey, Gateway, Received};
use spotkeeper::model::secret::Secret;
use spotkeeper::model::time::WallTime;
use std::path::Path;
use std::time::Duration;

#[derive(Clone)]
struct Recording {
    name: String,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Recording {
    fn received(&self) -> Received<'_> {
        Received {
            method: &self.method,
            target: &self.target,
            headers: &self.headers,
            body: &self.body,
        }
    }

    fn header(&mut self, name: &str) -> &mut String {
        let found = self.headers.iter_mut().find(|(n, _)| n.eq_ignore_ascii_case(name));
        &mut found.expect("the header is there").1
    }

    fn date(&mut self) -> WallTime {
        WallTime::parse(self.header("x-acs-date")).expect("a valid date")
    }
}

/// All recordings that use the signature of today.
fn recordings() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/dlc-golden");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the recordings are there") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.extension().is_none_or(|end| end != "json") || name.contains("roa-hmac-sha1") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let json: Value = serde_json::from_str(&text).expect("valid JSON");
        let text = |v: &Value| v.as_str().expect("a text").to_owned();
        found.push(Recording {
            name,
            method: text(&json["method"]),
            target: text(&json["path"]),
            headers: json["headers"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|pair| (text(&pair[0]), text(&pair[1])))
                .collect(),
            body: json["body"].as_str().unwrap_or_default().as_bytes().to_vec(),
        });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn gateway(secret: &str) -> Gateway {
    let key = AccessKey { id: "testid".into(), secret: Secret::new(secret), token: None };
    Gateway::new(key, Duration::from_mins(15))
}

fn code(gateway: &mut Gateway, recording: &Recording, now: WallTime) -> String {
    match gateway.verify(&recording.received(), now) {
        Ok(()) => "OK".to_owned(),
        Err(refusal) => format!("{} {}", refusal.status(), refusal.code()),
    }
}

#[test]
fn every_recording_passes_at_its_own_time_and_only_once() {
    let mut gateway = gateway("testsecret");
    let all = recordings();
    assert_eq!(all.len(), 53);
    for mut recording in all {
        let now = recording.date();
        assert_eq!(code(&mut gateway, &recording, now), "OK", "{}", recording.name);
        let again = code(&mut gateway, &recording, now.plus(Duration::from_secs(1)));
        assert_eq!(again, "400 SignatureNonceUsed", "{}", recording.name);
    }
}

#[test]
fn a_wrong_secret_key_or_token_is_refused() {
    for mut recording in recordings() {
        let now = recording.date();
        let wrong = code(&mut gateway("testsecreT"), &recording, now);
        assert_eq!(wrong, "400 SignatureDoesNotMatch", "{}", recording.name);
        let key = AccessKey { id: "other".into(), secret: Secret::new("testsecret"), token: None };
        let mut other = Gateway::new(key, Duration::from_mins(15));
        assert_eq!(code(&mut other, &recording, now), "404 InvalidAccessKeyId.NotFound");
        let token = Some(Secret::new("teststs+token/with=chars=="));
        let key = AccessKey { id: "testid".into(), secret: Secret::new("testsecret"), token };
        let with_token = code(&mut Gateway::new(key, Duration::from_mins(15)), &recording, now);
        let expected = if recording.name.contains(".sts") {
            "OK"
        } else {
            "400 InvalidSecurityToken.Malformed"
        };
        assert_eq!(with_token, expected, "{}", recording.name);
    }
}

#[test]
fn a_date_too_far_from_the_clock_is_refused_on_either_side() {
    for mut recording in recordings() {
        let date = recording.date();
        let off = Duration::from_mins(16);
        for now in [date.plus(off), date.minus(off)] {
            let refused = code(&mut gateway("testsecret"), &recording, now);
            assert_eq!(refused, "400 InvalidTimeStamp.Expired", "{}", recording.name);
        }
        let near = Duration::from_mins(15);
        for now in [date.plus(near), date.minus(near)] {
            assert_eq!(code(&mut gateway("testsecret"), &recording, now), "OK");
        }
    }
}

type Change = fn(&mut Recording);

const CHANGES: [(&str, Change); 10] = [
    ("signature", |r| {
        let text = r.header("authorization");
        let last = if text.ends_with('0') { "1" } else { "0" };
        text.replace_range(text.len() - 1.., last);
    }),
    ("path", |r| r.target = r.target.replacen("/v1/", "/v2/", 1)),
    ("query", |r| r.target += if r.target.contains('?') { "0" } else { "?a=0" }),
    ("method", |r| r.method = String::from("PATCH")),
    ("host", |r| *r.header("host") += "0"),
    ("action", |r| *r.header("x-acs-action") += "0"),
    ("nonce", |r| *r.header("x-acs-signature-nonce") += "0"),
    ("user-agent", |r| *r.header("user-agent") += "0"),
    ("body", |r| r.body.push(b' ')),
    ("body and its hash", |r| {
        r.body.push(b' ');
        let hash = spotkeeper::openapi::signature::sha256_hex(&r.body);
        *r.header("x-acs-content-sha256") = hash;
    }),
];

#[test]
fn one_changed_byte_anywhere_is_refused() {
    for mut recording in recordings() {
        let now = recording.date();
        for (what, change) in CHANGES {
            let mut spoilt = recording.clone();
            change(&mut spoilt);
            let refused = code(&mut gateway("testsecret"), &spoilt, now);
            assert_eq!(refused, "400 SignatureDoesNotMatch", "{}: {what}", recording.name);
        }
    }
}

#[test]
fn what_must_be_signed_cannot_be_left_out() {
    for mut recording in recordings() {
        let now = recording.date();
        let names: Vec<String> = recording.headers.iter().map(|(n, _)| n.clone()).collect();
        for name in names {
            let lower = name.to_ascii_lowercase();
            let needed = lower.starts_with("x-acs-") || lower == "host" || lower == "authorization";
            if needed {
                let headers = recording.headers.clone();
                recording.headers.retain(|(n, _)| *n != name);
                let refused = code(&mut gateway("testsecret"), &recording, now);
                assert_eq!(refused, "400 IncompleteSignature", "{}: {name}", recording.name);
                recording.headers = headers;
            }
        }
        // A header that is there but not signed could be changed by anybody on the way.
        let signed = recording.header("authorization");
        *signed = signed.replace("x-acs-action;", "");
        let refused = code(&mut gateway("testsecret"), &recording, now);
        assert_eq!(refused, "400 IncompleteSignature", "{}", recording.name);
    }
}

#[test]
fn an_older_signature_is_not_understood() {
    let mut recording = recordings().remove(0);
    *recording.header("authorization") = "acs testid:AAAA".to_owned();
    let now = recording.date();
    let refused = code(&mut gateway("testsecret"), &recording, now);
    assert_eq!(refused, "400 IncompleteSignature");
}
