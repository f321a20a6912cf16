//! Between the container's paths and the bucket's prefixes, through `DataSources`.
//!
//! Pure text: nothing is looked up. The longest mount path wins, as it does in the container.

use crate::model::checkpoint::{Location, Scheme};
use serde_json::Value;

/// One entry of `DataSources`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// `MountPath` without trailing slash; `None` where the data set's own one is used.
    pub path: Option<String>,
    /// What is mounted.
    pub source: Mounted,
}

/// What an entry mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mounted {
    /// A place that can be looked at, and the endpoint that its address named.
    Place(Location, Option<String>),
    /// A data set by its id: its address is known to the platform only.
    Hidden(String),
    /// Storage that is no object storage, or an address that cannot be read.
    Other(String),
}

/// Why a path has no place in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoPlace {
    /// No entry covers it.
    NotCovered,
    /// The entry names a data set.
    Hidden(String),
    /// The entry mounts something else than object storage.
    Other(String),
}

/// An absolute container path in its one spelling: single slashes, none at the end (`/` stays).
pub fn normal_path(text: &str) -> Result<String, &'static str> {
    if !text.starts_with('/') {
        return Err("the path is not absolute");
    }
    let parts = clean_parts(text)?;
    Ok(format!("/{}", parts.join("/")))
}

fn clean_parts(text: &str) -> Result<Vec<&str>, &'static str> {
    if text.chars().any(char::is_control) {
        return Err("it has control characters");
    }
    let parts: Vec<&str> = text.split('/').filter(|p| !p.is_empty() && *p != ".").collect();
    if parts.contains(&"..") {
        return Err("it has `..`");
    }
    Ok(parts)
}

/// Reads `oss://bucket[.endpoint]/prefix/`, `s3://bucket/prefix`, `file:///folder`; with the
/// endpoint that an `oss://` address names.
pub fn parse_url(text: &str) -> Result<(Location, Option<String>), &'static str> {
    let (scheme, rest) = text.split_once("://").ok_or("it is not an address such as oss://…")?;
    let scheme = match scheme {
        "oss" => Scheme::Oss,
        "s3" => Scheme::S3,
        "file" => Scheme::File,
        _ => return Err("only oss://, s3:// and file:// can be looked at"),
    };
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = clean_parts(path)?.join("/");
    if scheme == Scheme::File {
        if !host.is_empty() || prefix.is_empty() {
            return Err("a folder is written file:///folder");
        }
        return Ok((Location { scheme, bucket: String::new(), prefix }, None));
    }
    // Bucket names of OSS have no dots; those of S3 may.
    let (bucket, endpoint) = match (scheme, host.split_once('.')) {
        (Scheme::Oss, Some((bucket, endpoint))) => (bucket, Some(endpoint.to_owned())),
        _ => (host, None),
    };
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-._".contains(&b);
    if bucket.is_empty() || bucket.len() > 63 || !bucket.bytes().all(letter) {
        return Err("a bucket's name is 1 to 63 lower-case letters, digits, `-`, `_` or `.`");
    }
    Ok((Location { scheme, bucket: bucket.to_owned(), prefix }, endpoint))
}

/// One entry of `DataSources` as a mount.
pub fn mount(entry: &Value) -> Mount {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|t| !t.is_empty());
    let path = text("MountPath").and_then(|path| normal_path(path).ok());
    let source = match (text("Uri"), text("DataSourceId")) {
        (Some(uri), _) => match parse_url(uri) {
            Ok((location, endpoint)) => Mounted::Place(location, endpoint),
            Err(_) => Mounted::Other(uri.to_owned()),
        },
        (None, Some(id)) => Mounted::Hidden(id.to_owned()),
        (None, None) => Mounted::Other("no address".into()),
    };
    Mount { path, source }
}

/// The place of a normal container path, with the endpoint that its address named.
pub fn place_of(path: &str, mounts: &[Mount]) -> Result<(Location, Option<String>), NoPlace> {
    let covering = mounts.iter().filter_map(|m| Some((m, below(m.path.as_deref()?, path)?)));
    let (mount, inside) =
        covering.min_by_key(|(_, inside)| inside.len()).ok_or(NoPlace::NotCovered)?;
    match &mount.source {
        Mounted::Hidden(id) => Err(NoPlace::Hidden(id.clone())),
        Mounted::Other(uri) => Err(NoPlace::Other(uri.clone())),
        Mounted::Place(place, endpoint) => {
            let prefix = join(&place.prefix, inside);
            Ok((Location { prefix, ..place.clone() }, endpoint.clone()))
        }
    }
}

/// The container path of a place: through the mount that leaves the least to append, and only if
/// no other mount lies over that path.
pub fn path_of(place: &Location, mounts: &[Mount]) -> Option<String> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for mount in mounts {
        let (Some(path), Mounted::Place(root, _)) = (mount.path.as_deref(), &mount.source) else {
            continue;
        };
        if !root.overlaps(place) {
            continue;
        }
        let wanted = format!("/{}", place.prefix);
        let Some(inside) = below(&format!("/{}", root.prefix), &wanted) else {
            continue;
        };
        let path = format!("/{}", join(path.trim_start_matches('/'), inside));
        let seen = place_of(&path, mounts);
        if seen.is_ok_and(|(seen, _)| seen.prefix == place.prefix && seen.bucket == place.bucket) {
            found.push((inside.len(), path));
        }
    }
    found.into_iter().min().map(|(_, path)| path)
}

/// What is left of `path` below `folder`; both normal. Empty if they are equal.
fn below<'p>(folder: &str, path: &'p str) -> Option<&'p str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(rest),
        None => rest.is_empty().then_some(""),
    }
}

fn join(left: &str, right: &str) -> String {
    let parts: Vec<&str> = [left, right].into_iter().filter(|p| !p.is_empty()).collect();
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mounts() -> Vec<Mount> {
        [
            json!({"Uri": "oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com//team/", "MountPath": "/mnt/ckpt/"}),
            json!({"Uri": "oss://other", "MountPath": "/mnt"}),
            json!({"DataSourceId": "d-1", "MountPath": "/mnt/data"}),
            json!({"Uri": "nas://x.cn-hangzhou.nas.aliyuncs.com/", "MountPath": "/nas"}),
            json!({"DataSourceId": "d-2"}),
            json!("odd"),
        ]
        .iter()
        .map(mount)
        .collect()
    }

    fn place(path: &str) -> Result<String, NoPlace> {
        place_of(path, &mounts()).map(|(location, _)| location.to_string())
    }

    #[test]
    fn the_longest_mount_path_wins() {
        assert_eq!(place("/mnt/ckpt/run42"), Ok("oss://bucket/team/run42".into()));
        assert_eq!(place("/mnt/ckpt"), Ok("oss://bucket/team".into()));
        assert_eq!(place("/mnt/ckpt2/a"), Ok("oss://other/ckpt2/a".into()));
        assert_eq!(place("/mnt/data/x"), Err(NoPlace::Hidden("d-1".into())));
        assert!(matches!(place("/nas/x"), Err(NoPlace::Other(_))));
        assert_eq!(place("/root/x"), Err(NoPlace::NotCovered));
        let endpoint = place_of("/mnt/ckpt", &mounts()).expect("covered").1;
        assert_eq!(endpoint.as_deref(), Some("oss-cn-hangzhou-internal.aliyuncs.com"));
    }

    #[test]
    fn a_place_is_found_back_unless_something_lies_over_it() {
        let back = |url: &str| path_of(&parse_url(url).expect(url).0, &mounts());
        assert_eq!(back("oss://bucket/team/run42/").as_deref(), Some("/mnt/ckpt/run42"));
        assert_eq!(back("s3://bucket/team").as_deref(), Some("/mnt/ckpt"));
        assert_eq!(back("oss://other/a").as_deref(), Some("/mnt/a"));
        assert_eq!(back("oss://other/ckpt/a"), None);
        assert_eq!(back("oss://bucket/tea"), None);
        assert_eq!(back("oss://bucket"), None);
        let root = [mount(&json!({"Uri": "oss://b/", "MountPath": "/"}))];
        let (b, _) = parse_url("oss://b/x").expect("an address");
        assert_eq!(path_of(&b, &root).as_deref(), Some("/x"));
    }

    #[test]
    fn paths_and_addresses_have_one_spelling() {
        assert_eq!(normal_path("//mnt/./ckpt//"), Ok("/mnt/ckpt".into()));
        assert_eq!(normal_path("/"), Ok("/".into()));
        for bad in ["mnt", "", "/a/../b", "/a\nb"] {
            assert!(normal_path(bad).is_err(), "{bad:?}");
        }
        for (text, shown) in [
            ("oss://b.oss-cn-x.aliyuncs.com/p//q/", "oss://b/p/q"),
            ("s3://b.with.dots/p", "s3://b.with.dots/p"),
            ("file:///srv/ckpt/", "file:///srv/ckpt"),
            ("oss://b", "oss://b/"),
        ] {
            assert_eq!(parse_url(text).expect(text).0.to_string(), shown);
        }
        for bad in [
            "/p",
            "http://b/p",
            "oss:///p",
            "oss://B/p",
            "file://host/p",
            "file:///",
            "oss://b/../p",
        ] {
            assert!(parse_url(bad).is_err(), "{bad}");
        }
    }
}
