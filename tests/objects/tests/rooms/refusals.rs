//! The gate refuses what OSS refuses, to any client.

use super::{BUCKET, access_by, client, lasting_keys, look_with};
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use objects::Server;
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::time::WallTime;

#[tokio::test]
async fn a_bucket_in_the_path_is_refused() {
    let keys = lasting_keys();
    let server = Server::start(keys.clone()).await;
    server.bucket(BUCKET);
    let look = look_with(&access_by(server.address(), &keys), BUCKET, WallTime(0)).await;
    let Look::CouldNotLook { why, needs_person } = look else { panic!("{look:?}") };
    assert!(needs_person && why.contains("SecondLevelDomainForbidden"), "{why}");
}

#[tokio::test]
async fn a_write_with_a_condition_is_refused_and_a_plain_one_is_not() {
    let keys = lasting_keys();
    let server = Server::start(keys.clone()).await;
    server.bucket(BUCKET);
    let (client, key) = (client(&server, BUCKET, &keys), StorePath::from("a/b"));
    client.put(&key, "first".into()).await.expect("a plain write");
    let refused = client.put_opts(&key, "second".into(), PutMode::Create.into()).await;
    let refused = format!("{:?}", refused.expect_err("refused"));
    assert!(refused.contains("NotImplemented"), "{refused}");
    assert_eq!(server.object(BUCKET, "a/b").as_deref(), Some(&b"first"[..]));
}
