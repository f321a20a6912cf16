//! Looks through the server find what looks without it find.

use super::bucket::cases;
use super::{
    BUCKET, access, fixture, fixture_at, found, lasting_keys, look_with, shown, upload,
    with_fixture, without_a_server,
};
use objects::{Server, Trouble};

#[tokio::test]
async fn every_uploaded_fixture_is_read_as_without_a_server() {
    let keys = lasting_keys();
    let server = Server::start(keys.clone()).await;
    for (number, case) in cases(&fixture("")).iter().enumerate() {
        let fixture = fixture_at(case);
        let bucket = format!("bucket-{number}");
        upload(&server, &bucket, &keys, &fixture).await;
        server.asked();
        let look = look_with(&access(&server, &keys), &bucket, fixture.now()).await;
        assert_eq!(shown(&look), without_a_server(&fixture).await, "{}", case.display());
        let asked = server.asked();
        // Of an empty place it is asked whether it is a single object: that is a 404 where it is none.
        let is_well = |status: u16, method: &str| status < 400 || status == 404 && method == "HEAD";
        assert!(
            asked.iter().all(|one| is_well(one.status, one.method.as_ref())),
            "{}: {asked:#?}",
            case.display()
        );
    }
}

#[tokio::test]
async fn keys_that_few_expect_hide_nothing() {
    let keys = lasting_keys();
    let (server, fixture, expected) = with_fixture("hf-trainer/complete-three", &keys).await;
    let run = server.bucket(BUCKET).join("team a/run42");
    let top = fixture.entries.keys().next().and_then(|key| key.split_once('/')).expect("a key").0;
    let odd = ["line\nbreak", "bell\u{7}", "checkpoint-30/c\u{1}d"];
    let plain = ["a&b <c> \"d\"", "训练 记录", "checkpoint-30/100% +x", "it's;#?", "emoji-🙂"];
    for name in odd.iter().chain(&plain) {
        let path = run.join(top).join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        std::fs::write(path, b"x").expect("a file");
    }
    let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
    assert_eq!(found(&look).odd_keys, 3);
    assert_eq!(shown(&look)["chosen"], expected["chosen"]);
}

#[tokio::test]
async fn a_folder_of_2500_keys_is_read_page_by_page() {
    let keys = lasting_keys();
    let (server, fixture, expected) = with_fixture("hf-trainer/complete-three", &keys).await;
    let top = fixture.entries.keys().next().and_then(|key| key.split_once('/')).expect("a key").0;
    let run = server.bucket(BUCKET).join("team a/run42").join(top);
    // Most sort before the checkpoints, so that these are on the last page.
    for number in 0..2_500 {
        std::fs::write(run.join(format!("a.{number:05}")), b"").expect("a file");
    }
    let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
    assert_eq!(shown(&look)["chosen"], expected["chosen"]);
    let asked = server.asked();
    let pages = asked.iter().filter(|one| one.target.contains("continuation-token")).count();
    assert!((2..=4).contains(&pages), "{asked:#?}");
}

#[tokio::test]
async fn an_archived_checkpoint_is_passed_over_and_named() {
    let keys = lasting_keys();
    let (server, fixture, _) = with_fixture("hf-trainer/complete-three", &keys).await;
    for part in ["checkpoint-30/", "checkpoint-30/optimizer.pt"] {
        server.trouble(Trouble::Archived { part });
        let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
        let findings = found(&look);
        assert_eq!(findings.chosen.as_ref().and_then(|point| point.step), Some(20), "{part}");
        let newest = &findings.candidates[0];
        assert_eq!((newest.step, newest.wholeness.word()), (Some(30), "unreadable"), "{part}");
        assert!(newest.why.contains("InvalidObjectState"), "{part}: {}", newest.why);
    }
}
