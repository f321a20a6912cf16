//! Whether a `.safetensors` file is whole: its header says where the last tensor ends, and that has
//! to be the end of the file.
//!
//! ```text
//! 8 bytes    length L of the header, little-endian
//! L bytes    JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__": {…}}
//! the rest   the tensors; offsets count from here
//! ```
//!
//! Must not do: read tensors, or make room for a length that the file cannot have.

use super::objects::{Objects, Read, StoreError};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// Bytes of the largest header: what the library itself accepts.
const HEADER_LIMIT_BYTES: u64 = 100_000_000;
/// Bytes of the largest header that is read: some 60,000 tensors. Sixteen files are read at one time.
const HEADER_READ_LIMIT_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of the length before the header.
const LENGTH_BYTES: u64 = 8;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TensorFile {
    /// It ends where its header says.
    Whole,
    /// Empty, cut, or something else in its place.
    Torn(String),
    /// It may not be read.
    Unreadable(String),
}

/// Looks at one object of the size that a listing showed: two small reads.
pub async fn check(objects: &Objects, key: &str, size: u64) -> Result<TensorFile, StoreError> {
    let torn = |why: &str| Ok(TensorFile::Torn(why.to_owned()));
    if size == 0 {
        return torn("it is empty");
    }
    if size <= LENGTH_BYTES {
        return torn("it is cut: there is no header");
    }
    let bytes = match objects.read(key, 0..LENGTH_BYTES).await? {
        Read::Bytes(bytes) => bytes,
        Read::Changed => return torn("it changed while it was looked at"),
        Read::Refused(why) => return Ok(TensorFile::Unreadable(why)),
    };
    let length = bytes.iter().rev().fold(0, |n: u64, &byte| n << 8 | u64::from(byte));
    if length > HEADER_LIMIT_BYTES {
        return torn("it does not begin with the length of a header");
    }
    let begin = LENGTH_BYTES + length;
    if begin > size {
        return torn("it is cut inside its header");
    }
    if length > HEADER_READ_LIMIT_BYTES {
        let why = format!("a header of {length} bytes is larger than is read");
        return Ok(TensorFile::Unreadable(why));
    }
    let header = match objects.read(key, LENGTH_BYTES..begin).await? {
        Read::Bytes(bytes) => bytes,
        Read::Changed => return torn("it changed while it was looked at"),
        Read::Refused(why) => return Ok(TensorFile::Unreadable(why)),
    };
    let Some(tensors) = tensors(&header) else {
        return torn("its header is no JSON of tensors");
    };
    let Some(end) = tensors.end.checked_add(begin) else {
        return torn("its header is no JSON of tensors");
    };
    if tensors.count == 0 {
        return torn("it holds no tensor");
    }
    if tensors.bytes != tensors.end {
        return torn("its tensors overlap or leave holes");
    }
    match size.cmp(&end) {
        std::cmp::Ordering::Equal => Ok(TensorFile::Whole),
        std::cmp::Ordering::Less => {
            Ok(TensorFile::Torn(format!("it is cut: {size} bytes, its header says {end}")))
        }
        std::cmp::Ordering::Greater => {
            Ok(TensorFile::Torn(format!("{size} bytes, its header says {end}")))
        }
    }
}

/// What a header says of its tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tensors {
    count: u64,
    /// Where the last one ends, counted from the end of the header.
    end: u64,
    /// Bytes of all of them together: the library takes no file with holes.
    bytes: u64,
}

fn tensors(header: &[u8]) -> Option<Tensors> {
    struct Header(Tensors);
    struct Offsets;
    #[derive(serde::Deserialize)]
    struct Tensor {
        data_offsets: (u64, u64),
    }
    impl<'de> Visitor<'de> for Offsets {
        type Value = Header;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a header of tensors")
        }

        // Entry by entry: a header of 100 MB is not built up as a tree.
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
            let mut found = Tensors::default();
            while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                if name == "__metadata__" {
                    map.next_value::<IgnoredAny>()?;
                } else {
                    let (begin, end) = map.next_value::<Tensor>()?.data_offsets;
                    if begin > end {
                        return Err(serde::de::Error::custom(
                            "a tensor that ends before it begins",
                        ));
                    }
                    found.count += 1;
                    found.end = end.max(found.end);
                    found.bytes = found.bytes.saturating_add(end - begin);
                }
            }
            Ok(Header(found))
        }
    }
    impl<'de> serde::Deserialize<'de> for Header {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_map(Offsets)
        }
    }
    serde_json::from_slice::<Header>(header).ok().map(|header| header.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_last_tensor_is_found_whatever_the_order() {
        let header = br#"{"__metadata__":{"format":"pt"},
            "b":{"dtype":"F32","shape":[1],"data_offsets":[4,12]},
            "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}   "#;
        assert_eq!(tensors(header), Some(Tensors { count: 2, end: 12, bytes: 12 }));
        for none in [&b"{}"[..], br#"{"__metadata__":{"format":"pt"}}"#] {
            assert_eq!(tensors(none), Some(Tensors::default()));
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        for header in [
            &b""[..],
            b"[]",
            b"{",
            br#"{"a":1}"#,
            br#"{"a":{"data_offsets":[4,0]}}"#,
            br#"{"a":{"data_offsets":[-1,0]}}"#,
            br#"{"a":{"data_offsets":[0]}}"#,
            br#"{"a":{"data_offsets":[0,4]}} x"#,
        ] {
            assert_eq!(tensors(header), None, "{}", String::from_utf8_lossy(header));
        }
    }
}
