//! A server that is busy, or whose connections end.

use super::{BUCKET, access, lasting_keys, look_with, shown, with_fixture};
use objects::Trouble;
use spotkeeper::model::checkpoint::Look;

const CASES: [&str; 2] = ["hf-trainer/complete-three", "megatron-legacy/tp2-pp2-complete"];

#[tokio::test]
async fn a_short_trouble_changes_no_findings() {
    let keys = lasting_keys();
    for case in CASES {
        let (server, fixture, expected) = with_fixture(case, &keys).await;
        for trouble in
            [Trouble::SlowDown { left: 2 }, Trouble::Dropped { left: 2 }, Trouble::Cut { left: 2 }]
        {
            server.trouble(trouble.clone());
            let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
            assert_eq!(shown(&look), expected, "{case}: {trouble:?}");
        }
    }
}

#[tokio::test]
async fn a_long_trouble_is_no_answer_and_never_no_checkpoint() {
    let keys = lasting_keys();
    for case in CASES {
        let (server, fixture, expected) = with_fixture(case, &keys).await;
        for trouble in [
            Trouble::SlowDown { left: u32::MAX },
            Trouble::Dropped { left: u32::MAX },
            Trouble::Cut { left: u32::MAX },
        ] {
            server.trouble(trouble.clone());
            server.asked();
            let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
            let Look::CouldNotLook { why, needs_person } = &look else {
                panic!("{case}: {trouble:?}: {look:?}")
            };
            assert!(!needs_person, "{case}: {trouble:?}: {why}");
            let asked = server.asked();
            assert!(asked.len() <= 40, "{case}: {trouble:?}: {asked:#?}");
        }
        server.trouble(Trouble::None);
        let look = look_with(&access(&server, &keys), BUCKET, fixture.now()).await;
        assert_eq!(shown(&look), expected, "{case}: afterwards");
    }
}
