//! Keys that are wrong, temporary, or over.

use super::{BUCKET, access, lasting_keys, look_with, shown, with_fixture};
use objects::{Keys, Server, Trouble};
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::time::WallTime;

fn temporary(number: u32) -> Keys {
    Keys {
        id: format!("STS.key{number}"),
        secret: format!("secretOfKey{number}"),
        token: Some(format!("tokenOfKey{number}")),
    }
}

async fn could_not(server: &Server, keys: &Keys, bucket: &str) -> (String, bool) {
    let look = look_with(&access(server, keys), bucket, WallTime(0)).await;
    let Look::CouldNotLook { why, needs_person } = look else { panic!("{look:?}") };
    for secret in [Some(&keys.secret), keys.token.as_ref()].into_iter().flatten() {
        assert!(!why.contains(secret), "{why}");
    }
    (why, needs_person)
}

#[tokio::test]
async fn wrong_keys_and_a_missing_bucket_could_not_be_looked_at() {
    let keys = lasting_keys();
    let server = Server::start(keys.clone()).await;
    server.bucket(BUCKET);
    let wrong = Keys { secret: "another".into(), ..keys.clone() };
    let (why, needs_person) = could_not(&server, &wrong, BUCKET).await;
    assert!(needs_person && why.contains("SignatureDoesNotMatch"), "{why}");
    let unknown = Keys { id: "LTAInobody".into(), ..keys.clone() };
    let (why, needs_person) = could_not(&server, &unknown, BUCKET).await;
    assert!(needs_person && why.contains("InvalidAccessKeyId"), "{why}");
    let (why, needs_person) = could_not(&server, &keys, "no-such-bucket").await;
    assert!(needs_person && why.contains("does not exist"), "{why}");
}

#[tokio::test]
async fn temporary_keys_send_their_token_and_the_next_ones_theirs() {
    let keys = temporary(1);
    let (server, fixture, expected) = with_fixture("deepspeed/complete-lexicographic", &keys).await;
    for number in [1, 2] {
        let keys = temporary(number);
        server.know(keys.clone());
        let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
        assert_eq!(shown(&look), expected);
        let asked = server.asked();
        assert!(!asked.is_empty() && asked.iter().all(|one| one.token == keys.token), "{asked:#?}");
    }
    let (why, _) = could_not(&server, &temporary(1), BUCKET).await;
    assert!(why.contains("InvalidAccessKeyId"), "{why}");
    let (why, _) = could_not(&server, &Keys { token: None, ..temporary(2) }, BUCKET).await;
    assert!(why.contains("InvalidAccessKeyId"), "{why}");
}

#[tokio::test]
async fn a_token_that_ends_in_the_middle_of_a_look_hides_no_checkpoint() {
    for case in ["hf-trainer/complete-three", "megatron-legacy/tp2-pp2-complete"] {
        let keys = temporary(1);
        let (server, fixture, expected) = with_fixture(case, &keys).await;
        let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
        assert_eq!(shown(&look), expected, "{case}");
        let requests = u32::try_from(server.asked().len()).expect("few");
        for left in 0..requests {
            server.know(temporary(1));
            server.trouble(Trouble::TokenEnds { left });
            let look = look_with(&access(&server, &temporary(1)), BUCKET, fixture.now()).await;
            let Look::CouldNotLook { why, .. } = &look else {
                panic!("{case}: after {left} of {requests}: {look:#?}")
            };
            assert!(why.contains("SecurityTokenExpired"), "{case}: after {left}: {why}");
            // The look after it has the next keys.
            server.trouble(Trouble::None);
            server.know(temporary(2));
            let look = look_with(&access(&server, &temporary(2)), BUCKET, fixture.now()).await;
            assert_eq!(shown(&look), expected, "{case}: after {left}");
        }
    }
}
