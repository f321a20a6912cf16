//! Keys that stand in files: the CLI's, the SDKs', our own.

use super::*;

#[tokio::test]
async fn a_cli_profile_gives_its_keys() {
    let mut world = world(&[]);
    let path = world.cli(&json!([
        { "name": "other", "mode": "StsToken", "access_key_id": "id-CANARY-1",
          "access_key_secret": "secret-CANARY-1", "sts_token": "token-CANARY-1" },
        { "name": "default", "mode": "AK", "access_key_id": "ak", "access_key_secret": "CANARY",
          "region_id": "cn-hangzhou", "retry_timeout": 0, "expired_seconds": 0 },
    ]));
    let held = world.chain().await.expect("the current one");
    assert_eq!((triple(&held), held.expires), ("ak CANARY -".to_owned(), None));
    assert_eq!(held.provider, format!("profile `default` of {path} (AK)"));
    assert_eq!(triple(&world.profile("other").await.expect("named")), numbered(1));
    world.set("ALIBABA_CLOUD_PROFILE", "other");
    assert_eq!(triple(&world.chain().await.expect("by variable")), numbered(1));
}

#[tokio::test]
async fn a_cli_profile_that_cannot_be_used_is_named_with_what_it_lacks() {
    let mut world = world(&[]);
    world.commands = Commands::Allowed;
    for (profile, want) in [
        (
            json!({ "mode": "OAuth", "oauth_access_token": "CANARY" }),
            "has the mode OAuth: it needs a person at a browser",
        ),
        (
            json!({ "mode": "CloudSSO", "access_token": "CANARY" }),
            "has the mode CloudSSO: it needs a person",
        ),
        (json!({ "mode": "CANARY" }), "has an unknown `mode`: AK, StsToken,"),
        (json!({ "mode": "AK", "access_key_id": "CANARY" }), "has no `access_key_secret`"),
        (
            json!({ "mode": "StsToken", "access_key_id": "a", "access_key_secret": "CANARY" }),
            "has no `sts_token`",
        ),
        (
            json!({ "mode": "RamRoleArn", "access_key_id": "a", "access_key_secret": "CANARY" }),
            "has no `ram_role_arn`",
        ),
        (
            json!({ "mode": "RamRoleArn", "access_key_id": "a", "access_key_secret": "CANARY", "ram_role_arn": "r", "expired_seconds": 60 }),
            "has `expired_seconds` below 900",
        ),
        (json!({ "mode": "OIDC", "ram_role_arn": "r" }), "has no `oidc_provider_arn`"),
        (json!({ "mode": "ChainableRamRoleArn", "ram_role_arn": "r" }), "has no `source_profile`"),
        (json!({ "mode": "External" }), "has no `process_command`"),
    ] {
        let mut profile = profile;
        profile["name"] = "default".into();
        world.cli(&json!([profile]));
        let text = world.refused(&CredentialsRef::Chain).await;
        let whole = format!("credentials file ~/.aliyun/config.json: profile `default` {want}");
        // An unknown mode stands in no text: it may be a secret in the wrong place.
        assert!(text.starts_with(&whole), "{text}");
    }
    world.write(".aliyun/config.json", "{\n\"access_key_secret\": CANARY");
    let text = world.refused(&CredentialsRef::Chain).await;
    assert_eq!(text, "credentials file ~/.aliyun/config.json: line 2: not the JSON expected");
    world.set("ALIBABA_CLOUD_CLI_PROFILE_DISABLED", "true");
    let text = world.refused(&CredentialsRef::Profile("x".to_owned())).await;
    assert_eq!(
        text,
        "profile `x`: CLI profile: ALIBABA_CLOUD_CLI_PROFILE_DISABLED is set to true; INI \
         profile: there is no ~/.alibabacloud/credentials.ini"
    );
}

#[tokio::test]
async fn an_ini_profile_gives_its_keys() {
    let server = Server::start(vec![sts(1, HOUR)]).await;
    let mut world = world(&[]);
    world.sts = server.url.clone();
    let token = world.write("token", "jwt-CANARY");
    let path = world.ini(&format!(
        "[default]\ntype = access_key   # by hand\naccess_key_id = ak\naccess_key_secret = CANARY\n\
         [role]\ntype = ram_role_arn\naccess_key_id = ak\naccess_key_secret = CANARY\n\
         role_arn = acs:ram::1:role/x\nrole_session_name = mine\n\
         [pod]\ntype = oidc_role_arn\nrole_arn = r\noidc_provider_arn = p\n\
         oidc_token_file_path = {token}\n[old]\ntype = rsa_key_pair\nprivate_key_file = CANARY\n\
         [odd]\ntype = CANARY\n[half]\ntype = access_key\naccess_key_id = CANARY\n"
    ));
    let held = world.chain().await.expect("keys");
    assert_eq!(triple(&held), "ak CANARY -");
    assert_eq!(held.provider, format!("section `default` of {path} (access_key)"));
    for name in ["role", "pod"] {
        assert_eq!(triple(&world.profile(name).await.expect(name)), numbered(1), "{name}");
    }
    assert_eq!(pairs(server.seen()[0].target().2)["RoleSessionName"], "mine");
    for (name, want) in [
        ("old", "section `old` has the type rsa_key_pair, which spotkeeper does not support"),
        ("odd", "section `odd` has an unknown `type`"),
        ("half", "section `half` has no `access_key_secret`"),
        ("none", "~/.alibabacloud/credentials.ini has no section `none`"),
    ] {
        let text = world.refused(&CredentialsRef::Profile(name.to_owned())).await;
        assert!(text.contains(want), "{text}");
    }
    world.set("ALIBABA_CLOUD_CREDENTIALS_FILE", "/absent/credentials.ini");
    let text = world.refused(&CredentialsRef::Chain).await;
    assert!(text.starts_with("credentials file /absent/credentials.ini: cannot be read"), "{text}");
}

#[tokio::test]
async fn a_file_and_a_systemd_credential_have_one_form() {
    let mut world = world(&[]);
    let reference = CredentialsRef::Systemd("keys".to_owned());
    let text = world.refused(&reference).await;
    assert_eq!(
        text,
        "systemd credential keys: CREDENTIALS_DIRECTORY is not set; the service needs \
         LoadCredential=keys:/a/file"
    );
    let content = fields(1, at(HOUR)).to_string();
    let path = world.write("given/keys", &content);
    world.set("CREDENTIALS_DIRECTORY", &world.home.path().join("given").display().to_string());
    let held = world.keys(&reference).await.expect("keys");
    assert_eq!((triple(&held), held.expires), (numbered(1), Some(at(HOUR))));
    assert_eq!(held.provider, "systemd credential keys");
    let held = world.keys(&CredentialsRef::File(path.clone().into())).await.expect("keys");
    assert_eq!((triple(&held), held.provider), (numbered(1), format!("credentials file {path}")));
    for name in ["..", "a/b", "", "/etc/passwd"] {
        let text = world.refused(&CredentialsRef::Systemd(name.to_owned())).await;
        assert!(text.contains("its name must be that of a file"), "{text}");
    }
    world.write("given/keys", "access_key_id = \"a\"\naccess_key_secret = CANARY");
    let text = world.refused(&reference).await;
    assert_eq!(text, "credentials file ~/given/keys: line 2: not the TOML expected");
}
