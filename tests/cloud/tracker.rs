//! A tracker is rewritten only where it still says what the look saw.

use crate::server::{Reply, Server};
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::store_s3::{StorageAccess, StorageKeys};
use spotkeeper::checkpoint::tracker::rewrite;
use spotkeeper::model::checkpoint::{TrackerRewrite, TrackerText, TrackerWrite};
use spotkeeper::model::secret::Secret;

fn from(found: Option<&str>) -> TrackerRewrite {
    let found = found.map(|text| TrackerText::of(text.as_bytes(), text.len() as u64));
    TrackerRewrite { key: "ck/latest".into(), found, wanted: "global_step100".into() }
}

fn access(server: &Server) -> StorageAccess {
    StorageAccess {
        endpoint: server.url.clone(),
        region: "cn-hangzhou".into(),
        keys: StorageKeys { key_id: "id".into(), secret: Secret::new("hush-hush"), token: None },
        plain_http: false,
    }
}

const HEAD: &str = "ETag: \"e\"\r\nLast-Modified: Mon, 30 Nov 2026 08:10:18 GMT\r\n";

/// The two answers that show what stands in the tracker.
fn shows(text: &str) -> [Reply; 2] {
    let end = text.len() - 1;
    let range = format!("{HEAD}Content-Range: bytes 0-{end}/{}\r\n", text.len());
    [Reply::with(200, HEAD, text), Reply::with(206, &range, text)]
}

async fn in_bucket(
    replies: Vec<Reply>,
    found: Option<&str>,
) -> (TrackerWrite, Vec<crate::server::Seen>) {
    let server = Server::start(replies).await;
    let place = location::parse("oss://bucket/team/run 42/").expect("a place");
    let written = rewrite(&place, Some(&access(&server)), &from(found)).await;
    (written, server.seen())
}

#[tokio::test]
async fn in_a_bucket_it_is_read_compared_and_put_once() {
    let gone = || Reply::http(404, "");
    let put = || Reply::with(200, "ETag: \"f\"\r\n", "");
    let mut replies = shows("global_step120").to_vec();
    replies.push(put());
    let (written, seen) = in_bucket(replies, Some("global_step120")).await;
    assert_eq!(written, TrackerWrite::Done);
    let last = seen.last().expect("a request");
    assert_eq!(last.target(), ("PUT", "/bucket/team/run%2042/ck/latest", ""));
    assert_eq!(last.body, b"global_step100");
    // OSS knows no conditional write behind its S3 side.
    assert_eq!((last.header("if-match"), last.header("if-none-match")), (None, None));

    let (written, seen) = in_bucket(vec![gone(), put()], None).await;
    assert_eq!((written, seen.len()), (TrackerWrite::Done, 2));
    // Found so: nothing to write.
    let (written, seen) = in_bucket(shows("global_step100").to_vec(), Some("x")).await;
    assert_eq!((written, seen.len()), (TrackerWrite::Done, 2));
    // Changed since the look, in either direction.
    let (written, seen) = in_bucket(shows("global_step140").to_vec(), Some("global_step120")).await;
    assert!(matches!(written, TrackerWrite::Changed { now: Some(_) }), "{written:?}");
    assert_eq!(seen.len(), 2);
    let (written, seen) = in_bucket(vec![gone()], Some("global_step120")).await;
    assert_eq!((written, seen.len()), (TrackerWrite::Changed { now: None }, 1));

    let denied = "<Error><Code>AccessDenied</Code><Message>x</Message></Error>";
    let (written, _) = in_bucket(vec![gone(), Reply::http(403, denied)], None).await;
    let TrackerWrite::Failed { why, needs_person: true } = &written else { panic!("{written:?}") };
    assert!(why.contains("AccessDenied") && !why.contains("hush-hush"), "{why}");
}

#[tokio::test]
async fn in_a_folder_it_is_replaced_whole_and_nothing_is_left_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = location::parse(&format!("file://{}/", folder.path().display())).expect("a place");
    std::fs::create_dir(folder.path().join("ck")).expect("a folder");
    let file = folder.path().join("ck/latest");
    assert_eq!(rewrite(&place, None, &from(None)).await, TrackerWrite::Done);
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "global_step100");
    for text in ["global_step120", "", "\u{1}\u{2}"] {
        std::fs::write(&file, text).expect("written");
        let written = rewrite(&place, None, &from(Some("other"))).await;
        assert!(matches!(written, TrackerWrite::Changed { .. }), "{text:?}: {written:?}");
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), text);
        assert_eq!(rewrite(&place, None, &from(Some(text))).await, TrackerWrite::Done);
        assert_eq!(std::fs::read_to_string(&file).expect("a file"), "global_step100");
    }
    assert_eq!(std::fs::read_dir(folder.path().join("ck")).expect("a folder").count(), 1);
    let gone = location::parse(&format!("file://{}/none/", folder.path().display()));
    let written = rewrite(&gone.expect("a place"), None, &from(None)).await;
    assert!(matches!(written, TrackerWrite::Failed { needs_person: true, .. }), "{written:?}");
}
