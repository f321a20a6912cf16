//! The same looks through a real folder and through an S3 server on loopback.

use super::bucket::{Bucket, cases, json};
use super::{fixtures, judge, options};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use spotkeeper::checkpoint::location;
use spotkeeper::checkpoint::objects::{Depth, Object};
use spotkeeper::checkpoint::scan::look_at;
use spotkeeper::checkpoint::store_s3::{StorageAccess, StorageKeys};
use spotkeeper::model::checkpoint::Look;
use spotkeeper::model::secret::Secret;
use spotkeeper::model::time::WallTime;
use std::sync::{Arc, Mutex};

#[test]
fn every_fixture_is_right_in_a_folder() {
    for case in cases(&fixtures()) {
        let bucket = Bucket::of(&case);
        let folder = tempfile::tempdir().expect("a folder");
        bucket.write_to(folder.path());
        let odd = folder.path().join("a\nb");
        std::fs::write(odd, b"").expect("a file with a line break in its name");
        std::os::unix::fs::symlink("nowhere", folder.path().join("gone")).expect("a link");
        std::os::unix::fs::symlink(".", folder.path().join(".loop")).expect("a link");
        std::os::unix::fs::symlink("round", folder.path().join("round")).expect("a link");
        std::os::unix::fs::symlink("a\nb/x", folder.path().join("through")).expect("a link");
        let place = location::parse(&format!("file://{}", folder.path().display()));
        let place = place.expect("a location");
        let look = super::run(look_at(&place, None, &options("auto"), bucket.now()));
        let findings = super::found(look);
        assert_eq!(findings.odd_keys, 1);
        let name = case.display().to_string();
        judge(&name, &json(&case.join("expected.json")), &findings);
    }
}

#[test]
fn a_folder_that_is_not_there_could_not_be_looked_at() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), b"").expect("a file");
    for name in ["missing", "file"] {
        let url = format!("file://{}/{name}", folder.path().display());
        let place = location::parse(&url).expect("a location");
        let look = super::run(look_at(&place, None, &options("auto"), WallTime(0)));
        assert!(matches!(look, Look::CouldNotLook { needs_person: true, .. }), "{name}: {look:?}");
    }
    let place = location::parse(&format!("file://{}", folder.path().display()));
    let look = super::run(look_at(&place.expect("one"), None, &options("auto"), WallTime(0)));
    assert!(matches!(look, Look::Done(_)), "an empty folder is a complete look");
}

/// What the server answers instead of serving the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Status(u16, &'static str),
    /// Listings work, reads are answered 403 with this code.
    ReadsRefused(&'static str),
    /// Each listing is answered with 200 and this.
    Page(&'static str),
    /// Objects whose keys hold this are archived: listed, and not read before they are restored.
    Archived(&'static str),
    /// Listings of folders whose names hold this are refused with this code.
    Closed(&'static str, &'static str),
    /// There is one object, which is called by the whole location.
    Single,
}

struct Server {
    bucket: Bucket,
    fault: Fault,
    keys_a_page: usize,
    asked: Mutex<Vec<String>>,
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).filter(|_| byte == b'%').and_then(|h| std::str::from_utf8(h).ok());
        let value = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
        rest = if value.is_some() { &tail[2..] } else { tail };
        bytes.push(value.unwrap_or(byte));
    }
    String::from_utf8(bytes).expect("UTF-8")
}

fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        c if c.is_control() => format!("&#x{:x};", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

async fn serve(State(server): State<Arc<Server>>, uri: Uri, headers: HeaderMap) -> Response {
    server.asked.lock().expect("the list").push(uri.to_string());
    let signed = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
    assert!(signed.starts_with("AWS4-HMAC-SHA256 Credential=id/"), "{signed}");
    let path = decoded(uri.path());
    let query = |name: &str| {
        let pairs = uri.query().unwrap_or_default().split('&');
        pairs
            .filter_map(|p| p.split_once('='))
            .find(|p| p.0 == name)
            .map(|p| decoded(&p.1.replace('+', " ")))
    };
    if let Fault::Status(status, code) = server.fault {
        let body = format!("<Error><Code>{code}</Code><Message>x</Message></Error>");
        return (StatusCode::from_u16(status).expect("a status"), body).into_response();
    }
    if let (Fault::Page(page), true) = (server.fault, query("list-type").is_some()) {
        return page.into_response();
    }
    if query("list-type").is_some() {
        let depth = if query("delimiter").is_some() { Depth::Direct } else { Depth::All };
        let prefix = query("prefix").unwrap_or_default();
        if let Fault::Closed(part, code) = server.fault
            && prefix.contains(part)
        {
            let body = format!("<Error><Code>{code}</Code></Error>");
            return (StatusCode::FORBIDDEN, body).into_response();
        }
        let from = query("continuation-token");
        let page = server.bucket.list(&prefix, depth, from.as_deref(), server.keys_a_page);
        let object = |object: &Object| {
            let (key, size, modified) = (escaped(&object.key), object.size, object.modified);
            format!(
                "<Contents><Key>{key}</Key><LastModified>{modified}</LastModified>\
                 <ETag>&quot;e&quot;</ETag><Size>{size}</Size></Contents>"
            )
        };
        let folder = |folder: &String| {
            let prefix = escaped(folder);
            format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>")
        };
        let next = |next: &String| {
            let token = escaped(next);
            format!("<NextContinuationToken>{token}</NextContinuationToken>")
        };
        let objects: String = page.objects.iter().map(object).collect();
        let folders: String = page.folders.iter().map(folder).collect();
        let next: String = page.next.iter().map(next).collect();
        let xml = format!("<ListBucketResult>{objects}{folders}{next}</ListBucketResult>");
        return xml.into_response();
    }
    let refused = match server.fault {
        Fault::None | Fault::Status(..) | Fault::Page(_) | Fault::Closed(..) | Fault::Single => {
            None
        }
        Fault::ReadsRefused(code) => Some(code),
        Fault::Archived(part) => path.contains(part).then_some("InvalidObjectState"),
    };
    if let Some(code) = refused {
        let body = format!("<Error><Code>{code}</Code></Error>");
        return (StatusCode::FORBIDDEN, body).into_response();
    }
    let entry = path.strip_prefix("/bucket/").and_then(|key| server.bucket.entries.get(key));
    let Some(entry) = entry else { return StatusCode::NOT_FOUND.into_response() };
    let Some(range) = headers.get("range").and_then(|v| v.to_str().ok()) else {
        let headers = [
            ("content-length", entry.bytes.len().to_string()),
            ("last-modified", "Sun, 01 Mar 2026 08:00:00 GMT".to_owned()),
            ("etag", "\"e\"".to_owned()),
        ];
        return (StatusCode::OK, headers).into_response();
    };
    let (start, end) =
        range.strip_prefix("bytes=").and_then(|r| r.split_once('-')).expect("a range");
    let (start, end): (usize, usize) = (start.parse().expect("n"), end.parse().expect("n"));
    let total = entry.bytes.len();
    let headers = [
        ("content-range", format!("bytes {start}-{end}/{total}")),
        ("last-modified", "Sun, 01 Mar 2026 08:00:00 GMT".to_owned()),
        ("etag", "\"e\"".to_owned()),
    ];
    (StatusCode::PARTIAL_CONTENT, headers, entry.bytes[start..=end].to_vec()).into_response()
}

/// A look at `bucket` through a server, and what the server was asked.
fn through_s3(bucket: &Bucket, fault: Fault) -> (Look, Vec<String>) {
    in_pages(bucket, fault, 5)
}

fn in_pages(bucket: &Bucket, fault: Fault, keys_a_page: usize) -> (Look, Vec<String>) {
    super::run(async {
        let mut whole = bucket.renamed(|key| format!("team a/run42/{key}"));
        if fault == Fault::Single {
            whole.put("team a/run42", b"x");
        }
        let server =
            Arc::new(Server { bucket: whole, fault, keys_a_page, asked: Mutex::default() });
        let app = axum::Router::new().fallback(serve).with_state(Arc::clone(&server));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let task = tokio::spawn(async move { axum::serve(listener, app).await });
        let access = StorageAccess {
            endpoint,
            region: "cn-hangzhou".into(),
            keys: StorageKeys { key_id: "id".into(), secret: Secret::new("secret"), token: None },
            plain_http: false,
        };
        let place = location::parse("oss://bucket/team a/run42/").expect("a location");
        let look = look_at(&place, Some(&access), &options("auto"), bucket.now()).await;
        task.abort();
        let asked = std::mem::take(&mut *server.asked.lock().expect("the list"));
        (look, asked)
    })
}

#[test]
fn every_fixture_is_right_behind_an_s3_server() {
    for case in cases(&fixtures()) {
        let mut bucket = Bucket::of(&case);
        for key in ["ck//x", "//y", "ck/a\u{1}b/c", "x/", "ck/", "a&b/中 x"] {
            bucket.put(key, b"");
        }
        let (look, asked) = through_s3(&bucket, Fault::None);
        let findings = super::found(look);
        assert_eq!(findings.odd_keys, 3, "{}", case.display());
        judge(&case.display().to_string(), &json(&case.join("expected.json")), &findings);
        assert!(
            asked.iter().all(|uri| uri.starts_with("/bucket?") || uri.starts_with("/bucket/")),
            "{asked:?}"
        );
    }
}

#[test]
fn an_answer_that_is_none_could_not_be_looked_at() {
    let bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    for (fault, for_person) in [
        (Fault::Status(403, "AccessDenied"), true),
        (Fault::Status(401, "Unauthorized"), true),
        (Fault::Status(404, "NoSuchBucket"), true),
        (Fault::Status(400, "BadRequest"), false),
    ] {
        let (look, asked) = through_s3(&bucket, fault);
        let Look::CouldNotLook { why, needs_person } = look else { panic!("{fault:?}: {look:?}") };
        assert_eq!(needs_person, for_person, "{fault:?}: {why}");
        assert!(!why.contains("secret"), "{why}");
        assert!(asked.len() <= 3, "{asked:?}");
    }
    // With 200: object_store takes each for the listing of an empty bucket.
    for page in [
        "",
        "log in",
        "<html><body>log in</body></html>",
        "<!DOCTYPE html><html></html>",
        "{}",
        "<Error><Code>InternalError</Code></Error>",
        "<?xml version=\"1.0\"?><ListAllMyBucketsResult></ListAllMyBucketsResult>",
        "<ListBucketResults></ListBucketResults>",
        "<?xml version=\"1.0\"?>",
        "<ListBucketResult><Name>bucket</Name>",
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextMarker>a</NextMarker></ListBucketResult>",
    ] {
        let (look, _) = through_s3(&bucket, Fault::Page(page));
        assert!(matches!(look, Look::CouldNotLook { needs_person: false, .. }), "{page}: {look:?}");
    }
    for page in [
        "<ListBucketResult/>",
        "\u{feff}<?xml version=\"1.0\"?>\n<!-- x -->\n<ListBucketResult xmlns=\"x\">\n</ListBucketResult>\n",
        "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
    ] {
        let (look, _) = through_s3(&bucket, Fault::Page(page));
        assert!(super::found(look).candidates.is_empty(), "{page}");
    }
    for code in ["InvalidObjectState", "AccessDenied"] {
        let (look, _) = through_s3(&bucket, Fault::ReadsRefused(code));
        let findings = super::found(look);
        assert!(findings.chosen.is_none() && findings.undecided().is_some(), "{code}");
    }
}

#[test]
fn a_read_that_is_refused_for_the_keys_sake_says_nothing_of_the_checkpoint() {
    let bucket = Bucket::of(&fixtures().join("megatron-legacy/tp2-pp2-complete"));
    // The last two: a proxy's page without a code, and a code that nobody has seen yet.
    for code in [
        "SecurityTokenExpired",
        "InvalidSecurityToken",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "RequestTimeTooSkewed",
        "UserDisable",
        "",
        "AccessDeniedForNow",
    ] {
        let (look, _) = through_s3(&bucket, Fault::ReadsRefused(code));
        let Look::CouldNotLook { why, .. } = look else { panic!("{code}: {look:?}") };
        assert!(why.contains(code), "{code}: {why}");
    }
}

#[test]
fn an_archived_checkpoint_is_shown_as_unreadable_and_the_one_before_it_is_chosen() {
    let bucket = Bucket::of(&fixtures().join("hf-trainer/complete-three"));
    for part in ["checkpoint-30/", "checkpoint-30/optimizer.pt", "checkpoint-30/model.safetensors"]
    {
        let (look, asked) = through_s3(&bucket, Fault::Archived(part));
        let findings = super::found(look);
        assert_eq!(findings.chosen.and_then(|point| point.step), Some(20), "{part}");
        let newest = &findings.candidates[0];
        assert_eq!((newest.step, newest.wholeness.word()), (Some(30), "unreadable"), "{part}");
        assert!(newest.why.contains("InvalidObjectState"), "{part}: {}", newest.why);
        // What is archived stays so for hours: it is asked for once in one look at it.
        let again = asked.iter().filter(|uri| uri.contains(part) && !uri.contains('?')).count();
        assert!(again <= 32, "{part}: {asked:?}");
    }
}

#[test]
fn a_folder_that_these_keys_may_not_list_is_one_that_cannot_be_judged() {
    let bucket = Bucket::of(&fixtures().join("hf-trainer/complete-three"));
    let (look, _) = through_s3(&bucket, Fault::Closed("checkpoint-30/", "AccessDenied"));
    let findings = super::found(look);
    assert_eq!(findings.chosen.and_then(|point| point.step), Some(20));
    let newest = &findings.candidates[0];
    assert_eq!((newest.step, newest.wholeness.word()), (Some(30), "unreadable"));
    assert!(newest.why.contains("oss:ListObjects"), "{}", newest.why);
    // Keys that are over say nothing of the folder.
    for code in ["SecurityTokenExpired", "InvalidAccessKeyId", ""] {
        let (look, _) = through_s3(&bucket, Fault::Closed("checkpoint-30/", code));
        assert!(matches!(look, Look::CouldNotLook { .. }), "{code}: {look:?}");
    }
}

#[test]
fn a_single_object_is_no_empty_folder() {
    let (look, _) = through_s3(&Bucket::default(), Fault::Single);
    let Look::CouldNotLook { why, needs_person: true } = look else { panic!("{look:?}") };
    assert!(why.contains("is an object") && why.ends_with("oss://bucket/team a/"), "{why}");
    let (look, asked) = through_s3(&Bucket::default(), Fault::None);
    assert!(super::found(look).candidates.is_empty());
    assert_eq!(asked.len(), 2, "{asked:?}");
}

#[test]
fn three_odd_keys_among_2500_hide_nothing() {
    let mut bucket = Bucket::of(&fixtures().join("hf-trainer/complete-three"));
    let (prefix, _) = bucket.entries.keys().next().and_then(|k| k.split_once('/')).expect("a key");
    let prefix = prefix.to_owned();
    let (real, odd) = (bucket.entries.len(), 3);
    for n in real..2_500 - odd {
        bucket.put(&format!("{prefix}/events/out.{n:05}"), b"");
    }
    // One beside the checkpoints, two inside them.
    for key in ["//b", "/checkpoint-20/c\u{1}d", "/checkpoint-30/../e"] {
        bucket.put(&format!("{prefix}{key}"), b"x");
    }
    assert_eq!(bucket.entries.len(), 2_500);
    let (look, asked) = in_pages(&bucket, Fault::None, 1_000);
    let findings = super::found(look);
    assert_eq!(findings.chosen.and_then(|point| point.step), Some(30));
    assert_eq!(findings.odd_keys, 3);
    assert!(asked.iter().filter(|uri| uri.contains("list-type")).count() <= 6, "{asked:?}");
}
