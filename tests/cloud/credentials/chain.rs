//! The order of the chain, and what it passes over.

use super::*;
use spotkeeper::model::error::Class;

#[tokio::test]
async fn each_provider_comes_after_the_one_before_it() {
    let oidc = Server::start(vec![sts(1, HOUR)]).await;
    let instance = Server::start(vec![
        Reply::http(200, "imds-CANARY"),
        metadata(2, HOUR),
        Reply::http(200, "imds-CANARY"),
        metadata(2, HOUR),
    ])
    .await;
    let near = Server::start(vec![metadata(3, HOUR)]).await;
    let mut world = world(&[
        ("ALIBABA_CLOUD_ACCESS_KEY_ID", "env"),
        ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "CANARY"),
        ("ALIBABA_CLOUD_SECURITY_TOKEN", "CANARY-t"),
        ("ALIBABA_CLOUD_ROLE_ARN", "arn"),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "arn"),
        ("ALIBABA_CLOUD_ECS_METADATA", "train"),
    ]);
    let token = world.write("token", "jwt-CANARY");
    world.set("ALIBABA_CLOUD_OIDC_TOKEN_FILE", &token);
    world.set("ALIBABA_CLOUD_CREDENTIALS_URI", &format!("{}/CANARY", near.url));
    world.sts = oidc.url.clone();
    world.metadata = instance.url.clone();
    let cli = world.cli(&json!([
        { "name": "default", "mode": "AK", "access_key_id": "cli", "access_key_secret": "CANARY" }
    ]));
    let ini =
        world.ini("[default]\ntype=access_key\naccess_key_id=ini\naccess_key_secret=CANARY\n");

    assert_eq!(triple(&world.chain().await.expect("environment")), "env CANARY CANARY-t");
    world.variables.retain(|name, _| !name.contains("ACCESS_KEY"));
    assert_eq!(triple(&world.chain().await.expect("OIDC")), numbered(1));
    world.variables.remove("ALIBABA_CLOUD_OIDC_PROVIDER_ARN");
    assert_eq!(triple(&world.chain().await.expect("CLI profile")), "cli CANARY -");
    std::fs::remove_file(cli).expect("a file");
    assert_eq!(triple(&world.chain().await.expect("INI profile")), "ini CANARY -");
    std::fs::remove_file(ini).expect("a file");
    assert_eq!(triple(&world.chain().await.expect("ECS RAM role")), numbered(2));
    world.metadata = NOBODY.to_owned();
    assert_eq!(triple(&world.chain().await.expect("URI")), numbered(3));
    world.metadata = instance.url.clone();
    world.set("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true");
    assert_eq!(triple(&world.chain().await.expect("URI")), numbered(3));
    assert_eq!(instance.seen().len(), 2, "a service that is switched off is not asked");
}

#[tokio::test]
async fn an_empty_chain_says_what_each_provider_lacked() {
    let mut world = world(&[("ALIBABA_CLOUD_ROLE_ARN", "arn")]);
    let error = world.chain().await.expect_err("nothing is set up");
    assert_eq!(error.class(), Class::Operator);
    let text = world.refused(&CredentialsRef::Chain).await;
    let (tried, mend) = text.split_once(". Or name a source").expect("two parts");
    let parts: Vec<_> = tried.split("; ").collect();
    assert_eq!(
        parts[..4],
        [
            "no credentials found. Tried: environment: ALIBABA_CLOUD_ACCESS_KEY_ID and \
         ALIBABA_CLOUD_ACCESS_KEY_SECRET are not set",
            "OIDC: ALIBABA_CLOUD_OIDC_PROVIDER_ARN and ALIBABA_CLOUD_OIDC_TOKEN_FILE are not set",
            "CLI profile: there is no ~/.aliyun/config.json",
            "INI profile: there is no ~/.alibabacloud/credentials.ini",
        ]
    );
    assert_eq!(parts[4], "credentials URI: ALIBABA_CLOUD_CREDENTIALS_URI is not set");
    assert!(parts[5].starts_with("ECS RAM role: no keys: metadata token: no connection"), "{text}");
    assert!(mend.contains("environment = true") && mend.contains("file ="), "{text}");

    // What the `aliyun` command leaves before anybody gave it keys, and other people's profiles.
    world.cli(&json!([{ "name": "default", "mode": "AK", "access_key_id": "" }]));
    world.ini("[else]\ntype = access_key\n");
    world.set("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true");
    let text = world.refused(&CredentialsRef::Chain).await;
    for part in [
        "CLI profile: profile `default` of ~/.aliyun/config.json has no keys",
        "INI profile: ~/.alibabacloud/credentials.ini has no section `default`",
        "ECS RAM role: ALIBABA_CLOUD_ECS_METADATA_DISABLED is set to true",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn what_is_set_up_and_broken_is_reported_and_not_passed_over() {
    let near = Server::start(vec![metadata(3, HOUR)]).await;
    let mut world = world(&[("ALIBABA_CLOUD_ACCESS_KEY_ID", "CANARY")]);
    world.set("ALIBABA_CLOUD_CREDENTIALS_URI", &format!("{}/CANARY?CANARY", near.url));
    let text = world.refused(&CredentialsRef::Chain).await;
    assert!(
        text.starts_with("environment: ALIBABA_CLOUD_ACCESS_KEY_SECRET is not set; set"),
        "{text}"
    );
    world.set("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "CANARY CANARY");
    let text = world.refused(&CredentialsRef::Chain).await;
    assert!(text.starts_with("environment: the access key secret has blanks"), "{text}");
    world.variables.retain(|name, _| !name.contains("ACCESS_KEY"));

    let instance = Server::start(vec![Reply::http(200, "imds"), Reply::http(500, "CANARY")]).await;
    world.metadata = instance.url.clone();
    let error = world.chain().await.expect_err("a broken metadata service");
    let text = told(&error);
    assert!(text.starts_with("ECS RAM role: no keys") && text.contains("HTTP 500"), "{text}");
    assert_eq!(error.class(), Class::Retry);
    assert!(near.seen().is_empty());

    world.metadata = NOBODY.to_owned();
    let near = Server::start(vec![Reply::http(403, "CANARY")]).await;
    world.set("ALIBABA_CLOUD_CREDENTIALS_URI", &format!("{}/CANARY?CANARY", near.url));
    let text = world.refused(&CredentialsRef::Chain).await;
    assert!(text.starts_with("credentials URI http://127.0.0.1:"), "{text}");
}

#[tokio::test]
async fn a_metadata_address_that_swallows_everything_is_not_there() {
    let near = Server::start(vec![metadata(3, HOUR)]).await;
    // A socket whose queue is full: nobody gets a connection, nobody a refusal.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
    let listener = socket.listen(0).expect("a queue");
    let address = listener.local_addr().expect("an address");
    let mut waiting = Vec::new();
    while let Ok(stream) =
        std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200))
    {
        waiting.push(stream);
    }
    let mut world = world(&[]);
    world.metadata = format!("http://{address}");
    world.set("ALIBABA_CLOUD_CREDENTIALS_URI", &near.url);
    assert_eq!(triple(&world.chain().await.expect("URI")), numbered(3));
}
