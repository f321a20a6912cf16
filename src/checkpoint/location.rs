//! URLs of checkpoint prefixes, as people write them.

use crate::model::checkpoint::{Location, Scheme};
use crate::model::error::Class;

/// Why a text is not the URL of a checkpoint prefix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// Not one of the three schemes.
    #[error("`{url}` does not begin with oss://, s3:// or file:///")]
    Scheme {
        /// The text.
        url: String,
    },
    /// A folder without its leading slash.
    #[error("`{url}`: a folder's URL has three slashes and an absolute path, file:///mnt/ck")]
    NotAbsolute {
        /// The text.
        url: String,
    },
    /// No name, or one that no bucket can have.
    #[error("`{url}`: `{bucket}` cannot be a bucket (3 to 63 of a-z, 0-9 and `-`; S3 allows `.`)")]
    Bucket {
        /// The text.
        url: String,
        /// What stands in the bucket's place.
        bucket: String,
    },
    /// `//`, `.`, `..` or a control character.
    #[error("`{url}`: the path has an empty part, `.`, `..` or a control character")]
    Path {
        /// The text.
        url: String,
    },
}

impl LocationError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        Class::Operator
    }
}

/// Reads `file:///…`, `s3://bucket/prefix`, `oss://bucket/prefix` and
/// `oss://bucket.oss-REGION-internal.aliyuncs.com/prefix`. The endpoint's spelling is dropped:
/// two spellings of one place are equal.
///
/// # Errors
/// [`LocationError`], in words.
pub fn parse(url: &str) -> Result<Location, LocationError> {
    let url = url.trim();
    let (scheme, rest) =
        [("file://", Scheme::File), ("s3://", Scheme::S3), ("oss://", Scheme::Oss)]
            .into_iter()
            .find_map(|(word, scheme)| {
                let head = url.get(..word.len())?;
                head.eq_ignore_ascii_case(word).then(|| (scheme, &url[word.len()..]))
            })
            .ok_or_else(|| LocationError::Scheme { url: url.into() })?;
    let (bucket, path) = match scheme {
        Scheme::File if !rest.starts_with('/') => {
            return Err(LocationError::NotAbsolute { url: url.into() });
        }
        Scheme::File => ("", rest),
        Scheme::S3 | Scheme::Oss => rest.split_once('/').unwrap_or((rest, "")),
    };
    let bucket = match scheme {
        Scheme::Oss if is_endpoint(bucket) => bucket.split('.').next().unwrap_or_default(),
        Scheme::Oss | Scheme::S3 | Scheme::File => bucket,
    };
    if scheme != Scheme::File && !is_bucket(bucket, scheme) {
        return Err(LocationError::Bucket { url: url.into(), bucket: bucket.into() });
    }
    let path = path.strip_prefix('/').unwrap_or(path);
    let prefix = path.strip_suffix('/').unwrap_or(path);
    if !prefix.is_empty() && is_odd(prefix) {
        return Err(LocationError::Path { url: url.into() });
    }
    Ok(Location { scheme, bucket: bucket.into(), prefix: prefix.into() })
}

/// Whether the place of the bucket holds `bucket.endpoint`.
fn is_endpoint(host: &str) -> bool {
    host.ends_with(".aliyuncs.com") || host.ends_with(".aliyuncs.com.cn")
}

fn is_bucket(name: &str, scheme: Scheme) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.iter().all(|&b| letter(b) || b == b'-' || (b == b'.' && scheme == Scheme::S3))
        && letter(bytes[0])
        && letter(bytes[bytes.len() - 1])
}

/// Whether no checkpoint can be under a key: it has an empty part, `.`, `..` or a control
/// character. Such keys are passed over; one of them must not hide the others.
pub(crate) fn is_odd(key: &str) -> bool {
    key.split('/').any(|part| part.is_empty() || part == "." || part == "..")
        || key.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_place_are_equal() {
        for url in [
            "oss://bucket/team/run42",
            "oss://bucket/team/run42/",
            "OSS://bucket/team/run42/",
            "oss://bucket.oss-cn-hangzhou-internal.aliyuncs.com/team/run42/",
            "oss://bucket.oss-cn-hangzhou.aliyuncs.com/team/run42",
        ] {
            let found = parse(url).expect(url);
            assert_eq!(found.to_string(), "oss://bucket/team/run42", "{url}");
            assert_eq!((found.bucket.as_str(), found.prefix.as_str()), ("bucket", "team/run42"));
        }
        assert_eq!(parse("s3://my.bucket").expect("a bucket alone").prefix, "");
        assert_eq!(parse("s3://my.bucket").expect("a bucket alone").bucket, "my.bucket");
        assert_eq!(parse("file:///mnt/ck 中/").expect("a folder").prefix, "mnt/ck 中");
        assert_eq!(parse("file:///").expect("the root").prefix, "");
    }

    #[test]
    fn what_is_no_place_is_refused_in_words() {
        let error = |url: &str| parse(url).expect_err(url).to_string();
        assert!(error("/mnt/ck").contains("file:///"));
        assert!(error("https://bucket.oss-cn-hangzhou.aliyuncs.com/x").contains("oss://"));
        assert!(error("file://mnt/ck").contains("three slashes"));
        assert!(error("oss:///x").contains("bucket"));
        assert!(error("oss://BUCKET/x").contains("BUCKET"));
        assert!(error("oss://bucket/a//b").contains("empty part"));
        assert!(error("oss://bucket/a/../b").contains(".."));
        assert!(error("s3://bucket/a\nb").contains("control"));
        assert!(error("").contains("oss://"));
    }
}
