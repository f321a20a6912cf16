//! What is masked, and what stays.

use super::*;
use serde_json::json;

fn one(answer: &Value) -> Value {
    with(answer, &[], &[])
}

fn with(answer: &Value, secrets: &[&str], names: &[&str]) -> Value {
    let mut known = Known::default();
    for secret in secrets {
        known.add(&Secret::new(*secret));
    }
    let names = names.iter().map(ToString::to_string).collect();
    let answers = BTreeMap::from([("a".to_owned(), answer.clone())]);
    redact(&answers, &known, &names)["a"].clone()
}

#[test]
fn every_place_of_a_secret_is_masked_and_the_rest_stays() {
    let answer = json!({
        "JobId": "dlc1", "Status": "Failed", "ReasonCode": "JobFailed", "Duration": 12,
        "Envs": { "NCCL_DEBUG": "WARN", "HF_TOKEN": "hf_canary_1", "SPOTKEEPER_MARK": "m", "E": "" },
        "CustomEnvs": [
            { "Key": "X", "Value": "plain-1", "Visible": "public" },
            { "Key": "SPOTKEEPER_RUN", "Value": "2", "Visible": "public" },
        ],
        "JobSpecs": [{
            "Image": "registry/img:1", "PodCount": 2,
            "ImageConfig": { "Auth": "YQ==", "DockerRegistry": "r", "Username": "u", "Password": "pw-canary" },
        }],
        "CredentialConfig": {
            "EnableCredentialInject": true,
            "CredentialConfigItems": [{ "Key": "k", "Roles": [{ "AssumeUserInfo": { "Id": "id-canary" } }] }],
        },
        "Unknown": { "Deep": [{ "DbPassword": "db-canary", "ApiKey": 12345, "Nothing": null }] },
        "Pods": [{ "PodId": "dlc1-master-0", "PodUid": "fe846462-af2c-4521-bd6f-96787a57aaaa" }],
    });
    assert_eq!(
        one(&answer),
        json!({
            "JobId": "dlc1", "Status": "Failed", "ReasonCode": "JobFailed", "Duration": 12,
            "Envs": { "NCCL_DEBUG": "***", "HF_TOKEN": "***", "SPOTKEEPER_MARK": "m", "E": "" },
            "CustomEnvs": [
                { "Key": "X", "Value": "***", "Visible": "public" },
                { "Key": "SPOTKEEPER_RUN", "Value": "2", "Visible": "public" },
            ],
            "JobSpecs": [{
                "Image": "registry/img:1", "PodCount": 2,
                "ImageConfig": { "Auth": "***", "DockerRegistry": "***", "Username": "***", "Password": "***" },
            }],
            "CredentialConfig": {
                "EnableCredentialInject": true,
                "CredentialConfigItems": [{ "Key": "***", "Roles": [{ "AssumeUserInfo": { "Id": "***" } }] }],
            },
            "Unknown": { "Deep": [{ "DbPassword": "***", "ApiKey": 0, "Nothing": null }] },
            "Pods": [{ "PodId": "dlc1-master-0", "PodUid": "fe846462-af2c-4521-bd6f-96787a57aaaa" }],
        })
    );
}

#[test]
fn what_a_secret_place_shows_is_masked_wherever_a_text_quotes_it() {
    let answers = BTreeMap::from([
        (
            "job".to_owned(),
            json!({
                "Envs": { "HF_TOKEN": "can'ary \"1\"", "PLAIN": "known-by-name", "USE_TOKEN": "true" },
                "UserCommand": "train --x 'can'\\''ary \"1\"' && echo known-by-name true",
                "ReasonMessage": json!({ "overview": "saw can'ary \"1\" here", "n": 1 }).to_string(),
            }),
        ),
        (
            "logs".to_owned(),
            json!({ "Logs": ["can%27ary%20%221%22", "from-a-file", "line-two-of-pem"] }),
        ),
    ]);
    let mut known = Known::default();
    known.add(&Secret::new("from-a-file"));
    known.add(&Secret::new("-----BEGIN-----\nline-two-of-pem\n"));
    let redacted = redact(&answers, &known, &BTreeSet::from(["PLAIN".to_owned()]));
    assert_eq!(redacted["job"]["UserCommand"], "train --x '***' && echo *** true");
    assert_eq!(
        redacted["job"]["ReasonMessage"],
        json!({ "overview": "saw *** here", "n": 1 }).to_string()
    );
    assert_eq!(redacted["logs"]["Logs"], json!(["***", "***", "***"]));
}

#[test]
fn a_secret_is_found_in_base64_wherever_it_stands_in_what_was_encoded() {
    // `can?ary>1~` alone, behind `u:` in both alphabets, and behind `abc`.
    let lines = ["Y2FuP2FyeT4xfg==", "dTpjYW4/YXJ5PjF+", "dTpjYW4_YXJ5PjF-", "YWJjY2FuP2FyeT4xfg"];
    let answers = BTreeMap::from([("logs".to_owned(), json!({ "Logs": lines }))]);
    let mut known = Known::default();
    known.add(&Secret::new("can?ary>1~"));
    let redacted = redact(&answers, &known, &BTreeSet::new());
    assert_eq!(redacted["logs"]["Logs"], json!(["***g==", "dTp***", "dTp***", "YWJj***g"]));
}

#[test]
fn accounts_and_keys_become_the_same_words_everywhere() {
    let answer = json!({
        "UserId": "1234567890123456", "TenantId": "1234567890123456", "Username": "li.wei",
        "ReasonMessage": "stopped by li.wei (acs:ram::1234567890123456:role/x, 210987654321098765)",
        "Events": ["key LTAI5tCanaryCanary used by 1234567890123456", "STS.NUxCanaryCanary1 LTAI5tCanaryCanary"],
        "Time": "2026-01-12T22:35:02Z", "Step": 1_234_567_890_123_456_u64,
    });
    let redacted = one(&answer);
    assert_eq!(redacted["UserId"], "account-1");
    assert_eq!(redacted["TenantId"], "account-1");
    assert_eq!(redacted["Username"], "account-2");
    let message = redacted["ReasonMessage"].as_str().expect("a text");
    assert_eq!(message, "stopped by account-2 (acs:ram::account-1:role/x, account-3)");
    let events = json!(["key access-key-1 used by account-1", "access-key-2 access-key-1",]);
    assert_eq!(redacted["Events"], events);
    assert_eq!(redacted["Time"], answer["Time"]);
}

#[test]
fn values_behind_a_telling_name_in_a_text_are_masked() {
    for (text, want) in [
        ("export HF_TOKEN=abc123 && train", "export HF_TOKEN=*** && train"),
        ("WANDB_API_KEY='a b' x", "WANDB_API_KEY='***' x"),
        ("train --api-key abc --lr 1", "train --api-key *** --lr 1"),
        ("train --password=abc;ls", "train --password=***;ls"),
        ("Authorization: Bearer eyJ.x.y", "Authorization: Bearer ***"),
        ("{\"password\": \"abc\", \"n\": 1} tail", "{\"password\": \"***\", \"n\": 1} tail"),
        ("{\\\"token\\\":\\\"abc\\\"} tail", "{\\\"token\\\":\\\"***\\\"} tail"),
        ("git clone https://me:pw@host/x", "git clone https://***@host/x"),
        ("key points: none of them", "key points: none of them"),
        ("the token was fine", "the token was fine"),
        ("tokenizer: fast, 12 tokens left", "tokenizer: fast, 12 tokens left"),
        ("https://host/a?b=c#d ok", "https://host/a?b=c#d ok"),
        ("", ""),
        ("步骤 7 loss=0.5", "步骤 7 loss=0.5"),
    ] {
        assert_eq!(one(&json!({ "Logs": [text] }))["Logs"][0], want, "{text}");
    }
}

#[test]
fn a_cut_quotation_does_not_leave_the_beginning_of_a_secret() {
    let mut known = Known::default();
    known.add(&Secret::new("canary-of-a-job"));
    assert_eq!(known.scrub_cut("body: canary-of", 15), "body: ***");
    assert_eq!(known.scrub_cut("body: canary-of-a-job", 200), "body: ***");
    assert_eq!(known.scrub_cut("body: canary-of", 200), "body: canary-of");
    assert_eq!(known.scrub_cut("", 0), "");
}

#[test]
fn a_body_shows_all_but_what_is_named_like_a_secret() {
    let body = json!({
        "UserCommand": "echo tok-canary; train", "Envs": { "TOKEN": "tok-canary", "N": "1" },
        "JobSpecs": [{ "ImageConfig": { "Password": "pw" } }],
    });
    assert_eq!(
        hide_secrets(&body),
        json!({
            "UserCommand": "echo ***; train", "Envs": { "TOKEN": "***", "N": "1" },
            "JobSpecs": [{ "ImageConfig": { "Password": "***" } }],
        })
    );
}

#[test]
fn redacting_twice_changes_nothing_more_and_shapes_stay() {
    for entry in std::fs::read_dir("tests/data/dlc-golden/responses").expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a file");
        let answer: Value = serde_json::from_str(&text).expect("JSON");
        let once = one(&answer);
        assert_eq!(one(&once), once, "{}", path.display());
        assert!(same_shape(&answer, &once), "{}", path.display());
    }
}

fn same_shape(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.keys().eq(b.keys()) && a.iter().all(|(name, value)| same_shape(value, &b[name]))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_shape(a, b))
        }
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => true,
        _ => a == b,
    }
}
