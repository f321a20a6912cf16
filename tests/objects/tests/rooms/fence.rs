//! The fence: written whole, over what stood there, and taken for a checkpoint by no look.

use super::{BUCKET, access, access_by, lasting_keys, look_with, place, shown, with_fixture};
use objects::{Keys, Trouble};
use spotkeeper::checkpoint::fence::{FenceError, write};
use spotkeeper::checkpoint::store_s3::StorageAccess;
use spotkeeper::model::error::Class;
use spotkeeper::model::fence::{Fence, KEY};
use spotkeeper::model::ids::{JobKey, JobName, Mark, Owner};

async fn write_attempt(
    access: &StorageAccess,
    bucket: &str,
    attempt: u32,
) -> (String, Result<(), FenceError>) {
    let (owner, mark) = (Owner::new("k3f9qz").expect("an owner"), Mark::from_random([1; 10]));
    let job = JobKey { name: JobName::new("sft").expect("a name"), run: 1 };
    let fence = Fence { owner: &owner, job: &job, attempt, mark: &mark };
    (fence.text(), write(&place(bucket), Some(access), &fence).await)
}

#[tokio::test]
async fn a_fence_is_written_and_read_back_whatever_goes_wrong_for_a_while() {
    let keys = lasting_keys();
    let (server, fixture, expected) = with_fixture("hf-trainer/complete-three", &keys).await;
    let access = access(&server, &keys);
    let troubles = [Trouble::None, Trouble::SlowDown { left: 2 }, Trouble::Dropped { left: 1 }];
    for (attempt, trouble) in (1..).zip(troubles) {
        server.trouble(trouble.clone());
        let (text, written) = write_attempt(&access, BUCKET, attempt).await;
        written.unwrap_or_else(|error| panic!("{trouble:?}: {error:?}"));
        let there = server.object(BUCKET, &format!("team a/run42/{KEY}")).expect("a fence");
        assert_eq!(there, text.as_bytes(), "{trouble:?}");
        let asked = server.asked();
        let conditions = ["if-none-match", "if-match", "x-amz-trailer", "transfer-encoding"];
        let has = |name: &&str| asked.iter().any(|one| one.headers.iter().any(|h| h == name));
        assert_eq!(conditions.iter().find(|name| has(name)), None, "{asked:#?}");
    }
    let look = look_with(&access, BUCKET, fixture.now()).await;
    assert_eq!(shown(&look), expected);
}

#[tokio::test]
async fn a_fence_that_cannot_be_written_says_why() {
    let keys = lasting_keys();
    let (server, ..) = with_fixture("hf-trainer/complete-three", &keys).await;
    let wrong = Keys { secret: "another".into(), ..keys.clone() };
    let (_, refused) = write_attempt(&access(&server, &wrong), BUCKET, 1).await;
    assert_eq!(refused.expect_err("a wrong secret").class(), Class::Operator);
    let (_, refused) = write_attempt(&access_by(server.address(), &keys), BUCKET, 1).await;
    assert_eq!(refused.expect_err("path style").class(), Class::Operator);
    server.trouble(Trouble::SlowDown { left: u32::MAX });
    let (_, refused) = write_attempt(&access(&server, &keys), BUCKET, 1).await;
    assert_eq!(refused.expect_err("busy").class(), Class::Retry);
    assert_eq!(server.object(BUCKET, &format!("team a/run42/{KEY}")), None);
}
