//! Temporary keys: held, renewed in time, bridged over an outage, never mixed.

use super::*;
use spotkeeper::dlc::client::Dlc;
use spotkeeper::model::ids::{CloudId, Owner};
use spotkeeper::model::spec::Place;
use spotkeeper::openapi::client::PlainHttp;
use std::io::Write;
use std::sync::{Mutex, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

const ROLE: CredentialsRef = CredentialsRef::Chain;

/// A keychain whose chain ends in a role that `replies` are given for.
async fn role(replies: Vec<Reply>) -> (World, Server, Keychain) {
    let server = Server::start(replies).await;
    let mut world = world(&[]);
    world.sts = server.url.clone();
    write_role(&world, "arn");
    let keychain = world.keychain();
    (world, server, keychain)
}

fn write_role(world: &World, arn: &str) {
    world.cli(&json!([{
        "name": "default", "mode": "RamRoleArn", "access_key_id": "a",
        "access_key_secret": "CANARY", "ram_role_arn": arn,
    }]));
}

async fn number(keychain: &Keychain, minute: u64) -> String {
    let held = keychain.keys(&ROLE, at(minute)).await.expect("keys");
    let text = triple(&held);
    let number = text.rsplit('-').next().expect("a number").to_owned();
    assert_eq!(text, numbered(number.parse().expect("a number")), "parts of two triples");
    number
}

#[tokio::test]
async fn scenario_55_keys_are_renewed_a_quarter_of_an_hour_before_they_end() {
    let (_world, server, keychain) =
        role(vec![sts(1, HOUR), sts(2, 2 * HOUR), sts(3, 2 * HOUR)]).await;
    for (minute, want) in [(0, "1"), (44, "1"), (45, "2"), (59, "2"), (104, "2"), (105, "3")] {
        assert_eq!(number(&keychain, minute).await, want, "minute {minute}");
    }
    assert_eq!(server.seen().len(), 3);
    // Keys that never live for long are not asked for at each call.
    for minute in [106, 109] {
        assert_eq!(number(&keychain, minute).await, "3", "minute {minute}");
    }
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn many_callers_make_one_call_whether_it_works_or_not() {
    let (_world, server, keychain) = role(vec![sts(1, HOUR), sts(2, 2 * HOUR)]).await;
    let ask = |minute| {
        let keychain = keychain.clone();
        async move { keychain.keys(&ROLE, at(minute)).await.map_err(|e| told(&e)) }
    };
    for (minute, calls) in [(0, 1), (50, 2)] {
        let all = futures_util::future::join_all((0..50).map(|_| ask(minute))).await;
        for held in all {
            let triple = triple(&held.expect("keys"));
            assert!([numbered(1), numbered(2)].contains(&triple), "{triple}");
        }
        assert_eq!(server.seen().len(), calls, "minute {minute}");
    }

    let (_world, server, keychain) = role(vec![Reply::http(500, "")]).await;
    let all =
        (0..50).map(|_| async { told(&keychain.keys(&ROLE, at(0)).await.expect_err("none")) });
    let all = futures_util::future::join_all(all).await;
    assert_eq!(server.seen().len(), 1);
    assert!(all.iter().all(|text| text.contains("HTTP 500")), "{all:?}");
    // A minute later somebody asks again.
    drop(keychain.keys(&ROLE, at(1)).await);
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn whoever_has_keys_that_work_does_not_wait_for_a_renewal() {
    let (_world, server, keychain) = role(vec![sts(1, HOUR), Reply::Silence]).await;
    assert_eq!(number(&keychain, 0).await, "1");
    let renewing = tokio::spawn({
        let keychain = keychain.clone();
        async move { number(&keychain, 50).await }
    });
    while server.seen().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(number(&keychain, 50).await, "1");
    assert!(!renewing.is_finished());
    renewing.abort();
}

#[tokio::test]
async fn scenario_55_an_outage_is_bridged_and_told_once() {
    let down = || Reply::http(503, r#"{"Code":"ServiceUnavailable","Message":"CANARY"}"#);
    let replies = vec![sts(1, HOUR), down(), down(), down(), sts(2, 3 * HOUR)];
    let (_world, server, keychain) = role(replies).await;
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    let _logging = tracing::subscriber::set_default(subscriber);

    assert_eq!(number(&keychain, 0).await, "1");
    for minute in [46, 46, 47] {
        assert_eq!(number(&keychain, minute).await, "1");
    }
    assert_eq!(server.seen().len(), 3, "a short pause between two tries");
    let trouble = keychain.troubles().pop().expect("a trouble");
    assert_eq!((trouble.reference.clone(), trouble.since), (ROLE, at(46)));
    assert_eq!(trouble.until, Some(at(HOUR)));
    assert!(trouble.why.contains("HTTP 503 ServiceUnavailable"), "{}", trouble.why);
    assert!(trouble.provider.contains("RamRoleArn"), "{}", trouble.provider);

    // Once they have ended they are not used any more.
    let error = keychain.keys(&ROLE, at(61)).await.expect_err("they have ended");
    assert!(told(&error).contains("HTTP 503 ServiceUnavailable"));
    assert_eq!(number(&keychain, 62).await, "2");
    assert!(keychain.troubles().is_empty());
    let text = log.text();
    assert_eq!(text.matches("keys cannot be renewed").count(), 1, "{text}");
    assert_eq!(text.matches("keys are renewed again").count(), 1, "{text}");
    assert!(text.contains("WARN") && !text.contains(" ERROR "), "{text}");
    assert_quiet(&text);
}

#[tokio::test]
async fn trap_23_files_are_read_anew_and_another_role_is_asked_for_at_once() {
    let (world, server, keychain) = role(vec![sts(1, HOUR), sts(2, HOUR)]).await;
    assert_eq!(number(&keychain, 0).await, "1");
    write_role(&world, "another");
    assert_eq!(number(&keychain, 1).await, "2");
    assert_eq!(pairs(server.seen()[1].target().2)["RoleArn"], "another");
    // A file that is half written does not take the keys away that were got by it.
    world.write(".aliyun/config.json", "{ CANARY");
    assert_eq!(number(&keychain, 2).await, "2");
    assert!(keychain.troubles()[0].why.contains("line 1: not the JSON expected"));
    write_role(&world, "another");
    assert_eq!(number(&keychain, 3).await, "2");
    assert_eq!(server.seen().len(), 2);

    // Keys that stand in the file are never held.
    let file =
        CredentialsRef::File(world.write("keys.json", &fields(7, at(HOUR)).to_string()).into());
    assert_eq!(triple(&keychain.keys(&file, at(0)).await.expect("keys")), numbered(7));
    world.write("keys.json", &fields(8, at(HOUR)).to_string());
    assert_eq!(triple(&keychain.keys(&file, at(0)).await.expect("keys")), numbered(8));
    world.write("keys.json", "{}");
    assert!(keychain.keys(&file, at(0)).await.is_err());
}

#[tokio::test]
async fn a_chain_stays_with_the_source_whose_keys_still_work() {
    let near = Server::start(vec![metadata(9, 5 * HOUR)]).await;
    let instance =
        Server::start(vec![Reply::http(200, "imds"), metadata(1, HOUR), Reply::Close]).await;
    let mut world = world(&[("ALIBABA_CLOUD_ECS_METADATA", "train")]);
    world.set("ALIBABA_CLOUD_CREDENTIALS_URI", &near.url);
    world.metadata = instance.url.clone();
    let keychain = world.keychain();
    assert_eq!(number(&keychain, 0).await, "1");
    assert_eq!(number(&keychain, 50).await, "1");
    assert!(near.seen().is_empty());
}

#[tokio::test]
async fn a_call_is_signed_with_the_keys_that_are_held() {
    let (_world, _server, keychain) = role(vec![sts(1, HOUR)]).await;
    let gateway = Server::start(vec![Reply::http(404, r#"{"Code":"NotFound"}"#)]).await;
    let place = Place {
        region: "cn-hangzhou".to_owned(),
        workspace: "1".to_owned(),
        endpoint: gateway.url.clone(),
        storage: None,
        credentials: ROLE,
    };
    let owner = Owner::new("k3f9qz").expect("an owner");
    let dlc = Dlc::new(&place, owner, &keychain, PlainHttp::Loopback).expect("a client");
    let id = CloudId::new("dlc1").expect("an id");
    let error = dlc.get_job(&id, at(0)).await.expect_err("there is none");
    assert!(error.says_no_such_job(), "{error}");
    let seen = &gateway.seen()[0];
    assert_eq!(seen.header("x-acs-security-token"), Some("token-CANARY-1"));
    assert_eq!(seen.header("x-acs-accesskey-id"), Some("id-CANARY-1"));
    let signed = seen.header("authorization").expect("a signature");
    assert!(signed.contains("Credential=id-CANARY-1,"), "{signed}");
    assert!(!signed.contains("secret-CANARY"), "{signed}");
}

/// Everything that is logged.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("a lock").clone()).expect("text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}
