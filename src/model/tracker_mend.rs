//! What mends a tracker that leads a trainer elsewhere, as a person would type it.

use super::checkpoint::{Location, Scheme, TrackerRewrite, TrackerText};
use super::resume_text::quoted;

/// What stands in a tracker, for people.
pub fn says(text: Option<&TrackerText>) -> String {
    match text {
        None => "is not there".to_owned(),
        Some(TrackerText { size: 0, .. }) => "is empty".to_owned(),
        Some(TrackerText { text, .. }) => format!("says `{text}`"),
    }
}

/// The command line that writes the tracker. `storage` is the endpoint of an S3 bucket.
pub fn mending_command(
    location: &Location,
    rewrite: &TrackerRewrite,
    storage: Option<&str>,
) -> String {
    let key = match location.prefix.as_str() {
        "" => rewrite.key.clone(),
        prefix => format!("{prefix}/{}", rewrite.key),
    };
    let text = quoted(&rewrite.wanted);
    match location.scheme {
        Scheme::File => format!("printf %s {text} > {}", quoted(&format!("/{key}"))),
        Scheme::Oss => {
            let url = quoted(&format!("oss://{}/{key}", location.bucket));
            format!("f=$(mktemp) && printf %s {text} > \"$f\" && ossutil cp -f \"$f\" {url}")
        }
        Scheme::S3 => {
            let url = quoted(&format!("s3://{}/{key}", location.bucket));
            let endpoint = storage
                .map_or(String::new(), |storage| format!(" --endpoint-url {}", quoted(storage)));
            format!("printf %s {text} | aws s3 cp{endpoint} - {url}")
        }
    }
}
