//! spotkeeper's checkpoint rooms against a real S3 server that refuses what OSS refuses.

#[path = "../../../world/checkpoints/bucket.rs"]
#[allow(dead_code, reason = "shared with the tests of the checkpoint rooms")]
mod bucket;
mod fence;
mod keys;
mod looks;
mod refusals;
mod troubles;

use bucket::Bucket;
use futures_util::{StreamExt, stream};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as StorePath;
use object_store::{ClientOptions, ObjectStoreExt};
use objects::{Keys, Server};
use serde_json::Value;
use spotkeeper::checkpoint::scan::{ScanOptions, look, look_at};
use spotkeeper::checkpoint::store_s3::{StorageAccess, StorageKeys};
use spotkeeper::checkpoint::{location, report};
use spotkeeper::model::checkpoint::{Findings, Location, Look};
use spotkeeper::model::secret::Secret;
use spotkeeper::model::time::WallTime;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

const BUCKET: &str = "team-bucket";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/checkpoint-fixtures").join(name)
}

fn lasting_keys() -> Keys {
    Keys { id: "LTAIkeyOfTests".into(), secret: "secretOfTests".into(), token: None }
}

fn access_by(endpoint: String, keys: &Keys) -> StorageAccess {
    let token = keys.token.as_deref().map(Secret::new);
    StorageAccess {
        endpoint,
        region: "cn-hangzhou".into(),
        keys: StorageKeys { key_id: keys.id.clone(), secret: Secret::new(&keys.secret), token },
        plain_http: false,
    }
}

fn access(server: &Server, keys: &Keys) -> StorageAccess {
    access_by(server.endpoint(), keys)
}

/// Where the fixtures lie in a bucket.
fn place(bucket: &str) -> Location {
    location::parse(&format!("oss://{bucket}/team a/run42/")).expect("a location")
}

/// A client of the server that is not spotkeeper's. The server is its proxy, since not every
/// resolver knows names below `localhost`.
fn client(server: &Server, bucket: &str, keys: &Keys) -> AmazonS3 {
    spotkeeper::openapi::tls::choose_provider();
    let endpoint = server.endpoint().replace("http://", &format!("http://{bucket}."));
    let options = ClientOptions::new().with_proxy_url(server.address()).with_allow_http(true);
    let builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region("cn-hangzhou")
        .with_endpoint(endpoint)
        .with_virtual_hosted_style_request(true)
        .with_access_key_id(&keys.id)
        .with_secret_access_key(&keys.secret)
        .with_client_options(options);
    let builder = match &keys.token {
        Some(token) => builder.with_token(token),
        None => builder,
    };
    builder.build().expect("a client")
}

/// A fixture less its directory markers: s3s-fs keeps folders and lists no empty ones.
fn fixture_at(folder: &Path) -> Bucket {
    let mut fixture = Bucket::of(folder);
    fixture.entries.retain(|key, _| !key.ends_with('/'));
    fixture
}

/// Uploads a fixture below [`place`], with the times that it says.
async fn upload(server: &Server, bucket: &str, keys: &Keys, fixture: &Bucket) {
    const AT_ONCE: usize = 16;
    let folder = server.bucket(bucket);
    let client = client(server, bucket, keys);
    let puts = fixture.entries.iter().map(|(key, entry)| {
        let (client, folder) = (&client, &folder);
        async move {
            let whole = format!("team a/run42/{key}");
            let path = folder.join(&whole);
            let name = StorePath::parse(&whole).expect("a plain key");
            client.put(&name, entry.bytes.clone().into()).await.expect("uploaded");
            let since = u64::try_from(entry.modified.0).expect("after 1970");
            let file = std::fs::File::options().write(true).open(path).expect("the file");
            file.set_modified(UNIX_EPOCH + Duration::from_millis(since)).expect("a time");
        }
    });
    stream::iter(puts).buffer_unordered(AT_ONCE).collect::<()>().await;
}

/// A server with one fixture in [`BUCKET`], and what a look at the fixture without it finds.
async fn with_fixture(name: &str, keys: &Keys) -> (Server, Bucket, Value) {
    let server = Server::start(keys.clone()).await;
    let fixture = fixture_at(&fixture(name));
    upload(&server, BUCKET, keys, &fixture).await;
    server.asked();
    let expected = without_a_server(&fixture).await;
    (server, fixture, expected)
}

fn options() -> ScanOptions {
    ScanOptions { format: "auto".into(), ..ScanOptions::default() }
}

async fn look_with(access: &StorageAccess, bucket: &str, now: WallTime) -> Look {
    look_at(&place(bucket), Some(access), &options(), now).await
}

async fn without_a_server(fixture: &Bucket) -> Value {
    shown(&look(&fixture.objects(), &place(BUCKET), &options(), fixture.now()).await)
}

fn found(look: &Look) -> &Findings {
    match look {
        Look::Done(findings) => findings,
        Look::CouldNotLook { why, .. } => panic!("could not look: {why}"),
    }
}

/// The whole report of a look, as JSON.
fn shown(look: &Look) -> Value {
    let report = report::json(found(look), None, &[]).expect("a report");
    serde_json::to_value(report).expect("JSON")
}
