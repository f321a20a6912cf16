//! Keys that a server or a command gives: what is asked, what is made of the answer.

use super::*;
use spotkeeper::model::error::Class;
use spotkeeper::model::secret::Secret;
use spotkeeper::openapi::signature::{EMPTY_SHA256, Signable, authorization};

fn role(mode: &str) -> serde_json::Value {
    json!([{
        "name": "default", "mode": mode,
        "access_key_id": "base-id-CANARY", "access_key_secret": "base-secret-CANARY",
        "ram_role_arn": "acs:ram::1:role/train", "external_id": "e/1",
        "policy": "{\"Version\": \"1\"}", "expired_seconds": 1800,
    }])
}

#[tokio::test]
async fn a_role_is_taken_by_one_signed_call() {
    let server = Server::start(vec![sts(1, HOUR)]).await;
    let mut world = world(&[]);
    world.sts = server.url.clone();
    let path = world.cli(&role("RamRoleArn"));
    let held = world.chain().await.expect("keys");
    assert_eq!(triple(&held), numbered(1));
    assert_eq!(held.expires, Some(at(HOUR)));
    assert_eq!(held.provider, format!("profile `default` of {path} (RamRoleArn)"));

    let seen = server.seen();
    let (method, path, query) = seen[0].target();
    assert_eq!((seen.len(), method, path), (1, "POST", "/"));
    let query: Vec<_> = pairs(query).into_iter().collect();
    let want = [
        ("DurationSeconds", "1800"),
        ("ExternalId", "e/1"),
        ("Policy", "{\"Version\": \"1\"}"),
        ("RoleArn", "acs:ram::1:role/train"),
        ("RoleSessionName", "spotkeeper"),
    ];
    assert_eq!(query, want.map(|(n, v)| (n.to_owned(), v.to_owned())));
    let header = |name: &str| seen[0].header(name).unwrap_or_default().to_owned();
    assert_eq!(header("x-acs-action"), "AssumeRole");
    assert_eq!(header("x-acs-version"), "2015-04-01");
    assert_eq!(header("x-acs-date"), "2026-11-30T08:00:00Z");
    // The signature is that of the base keys over what was sent.
    let given = header("authorization");
    let signed = given.split("SignedHeaders=").nth(1).and_then(|r| r.split(',').next());
    let headers: Vec<_> =
        signed.expect("names").split(';').map(|n| (n.to_owned(), header(n))).collect();
    let signable = Signable { method: "POST", path: "/", query: &query, headers: &headers };
    let secret = Secret::new("base-secret-CANARY");
    assert_eq!(given, authorization(&signable, EMPTY_SHA256, "base-id-CANARY", &secret));
}

#[tokio::test]
async fn a_role_behind_a_role_is_taken_with_the_first_ones_token() {
    let server = Server::start(vec![sts(1, HOUR), sts(2, HOUR)]).await;
    let mut world = world(&[]);
    world.sts = server.url.clone();
    world.cli(&json!([
        { "name": "first", "mode": "RamRoleArn", "access_key_id": "a",
          "access_key_secret": "CANARY", "ram_role_arn": "arn-1" },
        { "name": "second", "mode": "ChainableRamRoleArn", "source_profile": "first",
          "ram_role_arn": "arn-2", "ram_session_name": "mine" },
        { "name": "round", "mode": "ChainableRamRoleArn", "source_profile": "round",
          "ram_role_arn": "arn" },
        { "name": "lost", "mode": "ChainableRamRoleArn", "source_profile": "nobody",
          "ram_role_arn": "arn" },
    ]));
    let held = world.profile("second").await.expect("keys");
    assert_eq!(triple(&held), numbered(2));
    let seen = server.seen();
    assert_eq!(seen[0].header("x-acs-security-token"), None);
    assert_eq!(seen[1].header("x-acs-security-token"), Some("token-CANARY-1"));
    let query = pairs(seen[1].target().2);
    assert_eq!((query["RoleArn"].as_str(), query["RoleSessionName"].as_str()), ("arn-2", "mine"));
    for (name, part) in [("round", "go round in a circle"), ("lost", "`source_profile` nobody")] {
        let text = world.refused(&CredentialsRef::Profile(name.to_owned())).await;
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn sts_says_no_in_its_own_words_and_silence_is_no_persons_fault() {
    let no = r#"{"Code":"NoPermission","Message":"sts:AssumeRole, base-secret-CANARY","RequestId":"r1"}"#;
    for (reply, class, want) in [
        (
            Reply::http(403, no),
            Class::Operator,
            "AssumeRole: HTTP 403 NoPermission: sts:AssumeRole, *** (request r1)",
        ),
        (Reply::http(429, r#"{"Code":"Throttling.User"}"#), Class::Wait, "Throttling.User"),
        (Reply::http(502, "<html>CANARY"), Class::Retry, "HTTP 502"),
        (Reply::Close, Class::Retry, "the connection failed after the request was on its way"),
        (Reply::http(200, "CANARY"), Class::Retry, "the answer is not a JSON object"),
        (Reply::http(200, r#"{"Credentials":"CANARY"}"#), Class::Retry, "has no `Credentials`"),
        (sts(1, 0), Class::Retry, "has keys that ended at 2026-11-30T08:00:00Z"),
    ] {
        let mut world = world(&[]);
        let server = Server::start(vec![reply]).await;
        world.sts = server.url.clone();
        world.cli(&role("RamRoleArn"));
        let error = world.chain().await.expect_err("no keys");
        let text = told(&error);
        assert!(text.contains("profile `default` of") && text.contains(want), "{text}");
        assert_eq!(error.class(), class, "{text}");
    }
    let world = world(&[]);
    world.cli(&role("RamRoleArn"));
    let error = world.chain().await.expect_err("nobody there");
    let text = told(&error);
    assert_eq!(error.class(), Class::Retry, "{text}");
    assert!(text.contains("(RamRoleArn): no keys: AssumeRole: no connection"), "{text}");
}

#[tokio::test]
async fn an_identity_token_is_sent_in_the_body_and_read_anew() {
    let server = Server::start(vec![sts(1, HOUR), sts(2, 3 * HOUR)]).await;
    let mut world = world(&[
        ("ALIBABA_CLOUD_ROLE_ARN", "acs:ram::1:role/pod"),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/ack"),
        ("ALIBABA_CLOUD_ROLE_SESSION_NAME", "pod-7"),
    ]);
    world.sts = server.url.clone();
    let text = world.refused(&CredentialsRef::Oidc).await;
    assert_eq!(text, "OIDC: ALIBABA_CLOUD_OIDC_TOKEN_FILE is not set");
    let path = world.write("token", "jwt-CANARY-1\n");
    world.set("ALIBABA_CLOUD_OIDC_TOKEN_FILE", &path);
    let keychain = world.keychain();
    let first = keychain.keys(&CredentialsRef::Oidc, at(0)).await.expect("keys");
    assert_eq!(
        (triple(&first), first.provider.as_str()),
        (numbered(1), "OIDC role acs:ram::1:role/pod")
    );
    world.write("token", "jwt-CANARY-2\n");
    let second = keychain.keys(&CredentialsRef::Oidc, at(50)).await.expect("keys");
    assert_eq!(triple(&second), numbered(2));

    for (number, seen) in (1..).zip(server.seen()) {
        assert_eq!(seen.header("authorization"), None);
        let (method, path, query) = seen.target();
        assert_eq!((method, path), ("POST", "/"));
        assert!(!query.contains("CANARY"));
        let query = pairs(query);
        assert_eq!(query["Action"], "AssumeRoleWithOIDC");
        assert_eq!((query["Version"].as_str(), query["Format"].as_str()), ("2015-04-01", "JSON"));
        assert!(query["Timestamp"].starts_with("2026-11-30T08:"));
        let form = pairs(std::str::from_utf8(&seen.body).expect("a form"));
        assert_eq!(form["OIDCToken"], format!("jwt-CANARY-{number}"));
        assert_eq!(form["OIDCProviderArn"], "acs:ram::1:oidc-provider/ack");
        assert_eq!(form["RoleArn"], "acs:ram::1:role/pod");
        assert_eq!(form["RoleSessionName"], "pod-7");
        assert_eq!(form["DurationSeconds"], "3600");
    }
    let no = r#"{"Code":"AuthenticationFail.OIDCToken.Expired","Message":"jwt-CANARY-2"}"#;
    let server = Server::start(vec![Reply::http(400, no)]).await;
    world.sts = server.url.clone();
    let text = world.refused(&CredentialsRef::Oidc).await;
    assert!(text.contains("AuthenticationFail.OIDCToken.Expired: ***"), "{text}");
    std::fs::remove_file(path).expect("a file");
    let error = world.keys(&CredentialsRef::Oidc).await.expect_err("no token");
    assert!(matches!(error.class(), Class::Operator), "{}", told(&error));
}

const ROLES: &str = "/latest/meta-data/ram/security-credentials/";

#[tokio::test]
async fn the_instances_role_is_asked_for_the_hardened_way() {
    let token = Reply::http(200, "imds-CANARY");
    let server =
        Server::start(vec![token, Reply::http(200, "train-role"), metadata(1, HOUR)]).await;
    let mut world = world(&[]);
    world.metadata = server.url.clone();
    let held = world.keys(&CredentialsRef::EcsRole(None)).await.expect("keys");
    assert_eq!((triple(&held), held.provider.as_str()), (numbered(1), "ECS RAM role train-role"));
    assert_eq!(held.expires, Some(at(HOUR)));
    let seen = server.seen();
    let role = format!("GET {ROLES}train-role");
    assert_eq!(paths(&seen), ["PUT /latest/api/token", &format!("GET {ROLES}"), &role]);
    let life = "x-aliyun-ecs-metadata-token-ttl-seconds";
    assert_eq!(seen[0].header(life), Some("21600"));
    for question in &seen[1..] {
        assert_eq!(question.header("x-aliyun-ecs-metadata-token"), Some("imds-CANARY"));
    }
}

#[tokio::test]
async fn plain_questions_follow_unless_they_are_forbidden() {
    let named = CredentialsRef::EcsRole(Some("train".to_owned()));
    let replies = vec![Reply::http(404, ""), metadata(1, HOUR)];
    let server = Server::start(replies).await;
    let mut world = world(&[]);
    world.metadata = server.url.clone();
    assert_eq!(triple(&world.keys(&named).await.expect("keys")), numbered(1));
    let seen = server.seen();
    assert_eq!(paths(&seen), ["PUT /latest/api/token", &format!("GET {ROLES}train")]);
    assert_eq!(seen[1].header("x-aliyun-ecs-metadata-token"), None);

    // The hardened question itself may fail, too.
    let token = || Reply::http(200, "imds-CANARY");
    let replies = vec![token(), Reply::http(403, ""), metadata(1, HOUR)];
    let server = Server::start(replies.clone()).await;
    world.metadata = server.url.clone();
    assert_eq!(triple(&world.keys(&named).await.expect("keys")), numbered(1));

    world.set("ALIBABA_CLOUD_IMDSV1_DISABLED", "true");
    let server = Server::start(replies).await;
    world.metadata = server.url.clone();
    let text = world.refused(&named).await;
    assert!(text.contains("ECS RAM role train: no keys") && text.contains("HTTP 403"), "{text}");
    assert_eq!(server.seen().len(), 2);
}

#[tokio::test]
async fn what_the_metadata_service_lacks_is_said() {
    let token = || Reply::http(200, "imds-CANARY");
    let none = CredentialsRef::EcsRole(None);
    let named = CredentialsRef::EcsRole(Some("train".to_owned()));
    for (reference, replies, want) in [
        (
            &none,
            vec![token(), Reply::http(404, "")],
            "ECS RAM role: no role is attached to this instance",
        ),
        (
            &named,
            vec![token(), Reply::http(404, "")],
            "ECS RAM role train: this instance has no such role",
        ),
        (
            &named,
            vec![token(), Reply::http(200, r#"{"Code":"Failed","AccessKeySecret":"CANARY"}"#)],
            "ECS RAM role train: the answer has the code Failed, not Success",
        ),
        (
            &none,
            vec![token(), Reply::http(200, "<html>CANARY</html>")],
            "ECS RAM role: the answer is no role name",
        ),
    ] {
        let server = Server::start(replies).await;
        let mut world = world(&[]);
        world.metadata = server.url.clone();
        assert_eq!(world.refused(reference).await, want);
    }
    let mut world = world(&[]);
    let text = world.refused(&named).await;
    assert!(text.contains("metadata token: no connection"), "{text}");
    world.set("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true");
    let text = world.refused(&named).await;
    assert_eq!(text, "ECS RAM role: ALIBABA_CLOUD_ECS_METADATA_DISABLED is set to true");
}

#[tokio::test]
async fn a_credentials_uri_answers_as_the_metadata_service_does() {
    let server = Server::start(vec![metadata(1, HOUR), Reply::http(500, "CANARY")]).await;
    let world = world(&[]);
    let reference = CredentialsRef::Uri(format!("{}/api/0", server.url));
    let keychain = world.keychain();
    let held = keychain.keys(&reference, at(0)).await.expect("keys");
    assert_eq!(triple(&held), numbered(1));
    assert_eq!(held.provider, format!("credentials URI {}", server.url));
    assert_eq!(paths(&server.seen()), ["GET /api/0"]);
    let text = world.refused(&reference).await;
    assert_eq!(
        text,
        format!(
            "credentials URI {}: no keys: no clear answer: credentials: HTTP 500: a body of 6 \
             bytes without a code",
            server.url
        )
    );
    let far = CredentialsRef::Uri("http://keys.example/x".to_owned());
    let text = world.refused(&far).await;
    assert!(text.contains("keys would travel in the clear"), "{text}");
}

fn external(command: &str) -> serde_json::Value {
    json!([{ "name": "default", "mode": "External", "process_command": command }])
}

#[tokio::test]
async fn a_command_is_run_only_where_the_daemon_file_allows_it() {
    let mut world = world(&[]);
    let mark = world.home.path().join("ran").display().to_string();
    let answer = json!({
        "mode": "StsToken", "access_key_id": "id-CANARY-1", "access_key_secret": "secret-CANARY-1",
        "sts_token": "token-CANARY-1", "expiration": at(HOUR).to_string(),
    });
    let script = world.write("keys.sh", &format!(": > \"$1\"; echo CANARY >&2; echo '{answer}'"));
    world.cli(&external(&format!("sh '{script}' {mark}")));
    let text = world.refused(&CredentialsRef::Chain).await;
    assert_eq!(
        text,
        "profile `default` of ~/.aliyun/config.json (External): gets its keys from a command, and \
         commands are not run unless the daemon file says so: [credentials] allow_commands = true"
    );
    assert!(!exists(&mark));
    world.commands = Commands::Allowed;
    let held = world.chain().await.expect("keys");
    assert_eq!((triple(&held), held.expires), (numbered(1), Some(at(HOUR))));
    assert!(exists(&mark));
}

#[tokio::test]
async fn a_command_that_gives_no_keys_is_named_without_what_it_wrote() {
    for (command, want) in [
        ("sh -c 'echo CANARY >&2; exit 3'", "the command failed (exit status: 3); run it by hand"),
        ("sh -c 'echo CANARY'", "the answer is not a JSON object"),
        (
            r#"sh -c 'echo {\"access_key_id\": \"CANARY\"}'"#,
            "the answer has no `access_key_secret`",
        ),
        ("printf '{\"access_key_id\": \"CANARY\"}'", "the answer has no `access_key_secret`"),
        (
            "printf '{\"access_key_id\":\"a\",\"access_key_secret\":\"CANARY\",\"mode\":\"StsToken\"}'",
            "the answer has no `sts_token`",
        ),
        ("sh -c 'yes CANARY'", "the command printed more than 64 KiB"),
        ("/absent/CANARY", "the command cannot be started (entity not found)"),
        ("sh 'CANARY", "has a quote without its end in `process_command`"),
    ] {
        let mut world = world(&[]);
        world.commands = Commands::Allowed;
        world.cli(&external(command));
        let text = world.refused(&CredentialsRef::Chain).await;
        assert!(text.contains("profile `default`") && text.contains(want), "{command}: {text}");
    }
}

/// The keys at the start, and those a quarter of an hour before the first ones end.
async fn renewed(world: &World, reference: &CredentialsRef) -> [String; 2] {
    let keychain = world.keychain();
    let first = keychain.keys(reference, at(0)).await.expect("the first keys");
    let still = keychain.keys(reference, at(44)).await.expect("the same keys");
    assert_eq!(triple(&first), triple(&still), "{reference:?}");
    let second = keychain.keys(reference, at(45)).await.expect("the next keys");
    [triple(&first), triple(&second)]
}

#[tokio::test]
async fn every_source_of_temporary_keys_is_asked_again_before_they_end() {
    let both = [numbered(1), numbered(2)];
    let token = || Reply::http(200, "imds-CANARY");
    let replies = vec![token(), metadata(1, HOUR), token(), metadata(2, 2 * HOUR)];
    let instance = Server::start(replies).await;
    let mut ecs = world(&[]);
    ecs.metadata = instance.url.clone();
    let role = CredentialsRef::EcsRole(Some("train-role".to_owned()));
    assert_eq!(renewed(&ecs, &role).await, both);

    let address = Server::start(vec![metadata(1, HOUR), metadata(2, 2 * HOUR)]).await;
    let uri = CredentialsRef::Uri(format!("{}/api/0", address.url));
    assert_eq!(renewed(&world(&[]), &uri).await, both);

    // The first role's keys serve for one call: both are taken anew.
    let chained = vec![sts(8, HOUR), sts(1, HOUR), sts(9, 2 * HOUR), sts(2, 2 * HOUR)];
    let sts_server = Server::start(chained).await;
    let mut behind = world(&[]);
    behind.sts = sts_server.url.clone();
    behind.cli(&json!([
        { "name": "first", "mode": "RamRoleArn", "access_key_id": "a",
          "access_key_secret": "CANARY", "ram_role_arn": "arn-1" },
        { "name": "second", "mode": "ChainableRamRoleArn", "source_profile": "first",
          "ram_role_arn": "arn-2" },
    ]));
    assert_eq!(renewed(&behind, &CredentialsRef::Profile("second".to_owned())).await, both);

    let mut command = world(&[]);
    command.commands = Commands::Allowed;
    let answer = |number: u32, minute| {
        json!({ "mode": "StsToken", "access_key_id": format!("id-CANARY-{number}"),
                "access_key_secret": format!("secret-CANARY-{number}"),
                "sts_token": format!("token-CANARY-{number}"),
                "expiration": at(minute).to_string() })
    };
    let (first, second) = (answer(1, HOUR), answer(2, 2 * HOUR));
    let mark = command.home.path().join("asked").display().to_string();
    let text =
        format!("if [ -e {mark} ]; then echo '{second}'; else : >{mark}; echo '{first}'; fi");
    let script = command.write("keys.sh", &text);
    command.cli(&external(&format!("sh '{script}'")));
    assert_eq!(renewed(&command, &CredentialsRef::Chain).await, both);
}
