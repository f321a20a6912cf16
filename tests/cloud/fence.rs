//! The fence: written as one plain object, and taken for a checkpoint by no look.

use crate::server::{Reply, Server};
use spotkeeper::checkpoint::fence::{FenceError, write};
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::scan::{ScanOptions, look_at};
use spotkeeper::checkpoint::store_s3::{StorageAccess, StorageKeys};
use spotkeeper::model::checkpoint::{Findings, Location, Look};
use spotkeeper::model::error::Class;
use spotkeeper::model::fence::{Fence, KEY};
use spotkeeper::model::ids::{JobKey, JobName, Mark, Owner};
use spotkeeper::model::secret::Secret;
use spotkeeper::model::time::WallTime;

async fn write_attempt(
    place: &Location,
    access: Option<&StorageAccess>,
    attempt: u32,
) -> (String, Result<(), FenceError>) {
    let (owner, mark) = (Owner::new("k3f9qz").expect("an owner"), Mark::from_random([1; 10]));
    let job = JobKey { name: JobName::new("sft").expect("a name"), run: 1 };
    let fence = Fence { owner: &owner, job: &job, attempt, mark: &mark };
    (fence.text(), write(place, access, &fence).await)
}

#[tokio::test]
async fn a_fence_in_a_folder_is_replaced_and_no_look_takes_it_for_anything() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = location::parse(&format!("file://{}/", folder.path().display())).expect("a place");
    for attempt in [1, 2] {
        let (text, written) = write_attempt(&place, None, attempt).await;
        written.expect("written");
        let found = std::fs::read_to_string(folder.path().join(KEY)).expect("a fence");
        assert_eq!(found, text);
    }
    let names = std::fs::read_dir(folder.path().join(".spotkeeper")).expect("a folder");
    assert_eq!(names.count(), 1, "nothing but the fence is left");
    let options = ScanOptions {
        format: "auto".to_owned(),
        custom: None,
        ranks: None,
        ..ScanOptions::default()
    };
    let look = look_at(&place, None, &options, WallTime(0)).await;
    assert_eq!(look, Look::Done(Findings::default()));

    std::fs::remove_file(folder.path().join(KEY)).expect("removed");
    std::fs::remove_dir(folder.path().join(".spotkeeper")).expect("removed");
    std::fs::write(folder.path().join(".spotkeeper"), "in the way").expect("written");
    let (_, refused) = write_attempt(&place, None, 3).await;
    assert!(matches!(refused, Err(FenceError::Store { .. })), "{refused:?}");
    let gone = location::parse(&format!("file://{}/none/", folder.path().display()));
    let (_, refused) = write_attempt(&gone.expect("a place"), None, 3).await;
    assert_eq!(refused.expect_err("no such folder").class(), Class::Operator);
}

#[tokio::test]
async fn a_fence_in_a_bucket_is_one_unconditional_put() {
    let server = Server::start(vec![
        Reply::with(200, "ETag: \"e\"\r\n", ""),
        Reply::http(403, "<Error><Code>AccessDenied</Code><Message>x</Message></Error>"),
    ])
    .await;
    let access = StorageAccess {
        endpoint: server.url.clone(),
        region: "cn-hangzhou".into(),
        keys: StorageKeys { key_id: "id".into(), secret: Secret::new("hush-hush"), token: None },
        plain_http: false,
    };
    let place = location::parse("oss://bucket/team/run 42/").expect("a place");
    let (text, written) = write_attempt(&place, Some(&access), 7).await;
    written.expect("written");
    let (_, refused) = write_attempt(&place, Some(&access), 8).await;
    let refused = refused.expect_err("refused");
    assert_eq!(refused.class(), Class::Operator, "{refused:?}");
    assert!(!format!("{refused:?}").contains("hush-hush"));
    let (_, no_keys) = write_attempt(&place, None, 9).await;
    assert!(matches!(no_keys, Err(FenceError::Access { .. })), "{no_keys:?}");

    let seen = server.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(seen[0].target(), ("PUT", "/bucket/team/run%2042/.spotkeeper/fence", ""));
    assert_eq!(seen[0].body, text.into_bytes());
    for name in ["if-match", "if-none-match", "x-amz-copy-source"] {
        assert_eq!(seen[0].header(name), None);
    }
}
