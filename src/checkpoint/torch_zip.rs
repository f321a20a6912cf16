//! Whether a file of `torch.save` is whole, from its size and a few bytes at its ends.
//!
//! torch writes a zip without an archive comment: the last 22 bytes are the end record, and the
//! Zip64 record and locator (76 bytes) stand before it. The central directory has to end where
//! these records begin. Must not do: read pickles, or trust a length found in a file.

use super::objects::{Objects, Read, StoreError};

const END: usize = 22;
const LOCATOR: usize = 20;
const RECORD: usize = 56;
/// Bytes at the end of a file that are looked at.
pub const TAIL_BYTES: u64 = (END + LOCATOR + RECORD) as u64;
/// Smallest entry of a central directory, bytes.
const ENTRY: u64 = 46;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TorchFile {
    /// A zip that ends where it should.
    Whole,
    /// Empty, cut, or something else in its place.
    Torn(String),
    /// A pickle without zip (torch before 1.6): its end cannot be told.
    Pickle,
    /// Neither zip nor pickle: not of torch.save, whatever its name; its end cannot be told.
    Other,
    /// It may not be read.
    Unreadable(String),
}

/// Looks at one object of the size that a listing showed.
pub async fn check(objects: &Objects, key: &str, size: u64) -> Result<TorchFile, StoreError> {
    if size == 0 {
        return Ok(TorchFile::Torn("it is empty".into()));
    }
    let tail = match objects.read(key, size.saturating_sub(TAIL_BYTES)..size).await? {
        Read::Bytes(bytes) => bytes,
        Read::Changed => return Ok(TorchFile::Torn("it changed while it was looked at".into())),
        Read::Refused(why) => return Ok(TorchFile::Unreadable(why)),
    };
    match judge_tail(size, &tail) {
        Tail::Whole => Ok(TorchFile::Whole),
        Tail::Wrong(why) => Ok(TorchFile::Torn(why.into())),
        Tail::NoEndRecord => {
            let head = match objects.read(key, 0..size.min(4)).await? {
                Read::Bytes(bytes) => bytes,
                Read::Changed => {
                    return Ok(TorchFile::Torn("it changed while it was looked at".into()));
                }
                Read::Refused(why) => return Ok(TorchFile::Unreadable(why)),
            };
            Ok(judge_head(&head))
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Whole,
    Wrong(&'static str),
    NoEndRecord,
}

/// What the last bytes of a file of `size` bytes say.
fn judge_tail(size: u64, tail: &[u8]) -> Tail {
    let Some(end) = tail.len().checked_sub(END).map(|at| &tail[at..]) else {
        return Tail::NoEndRecord;
    };
    if !end.starts_with(b"PK\x05\x06") || number(end, 20, 2) != 0 {
        return Tail::NoEndRecord;
    }
    let classic = Directory {
        entries: number(end, 10, 2),
        size: number(end, 12, 4),
        offset: number(end, 16, 4),
    };
    let before = &tail[..tail.len() - END];
    let Some(locator) = before.len().checked_sub(LOCATOR).map(|at| &before[at..]) else {
        return classic.ends_at(size.saturating_sub(END as u64));
    };
    if !locator.starts_with(b"PK\x06\x07") {
        return classic.ends_at(size.saturating_sub(END as u64));
    }
    let record_at = size.saturating_sub(TAIL_BYTES);
    let record = match before.len().checked_sub(LOCATOR + RECORD) {
        Some(at) => &before[at..],
        None => return Tail::Wrong("its Zip64 record is cut"),
    };
    if !record.starts_with(b"PK\x06\x06") || number(locator, 8, 8) != record_at {
        return Tail::Wrong("its Zip64 record is not where it says");
    }
    let wide = Directory {
        entries: number(record, 32, 8),
        size: number(record, 40, 8),
        offset: number(record, 48, 8),
    };
    if !classic.agrees_with(&wide) {
        return Tail::Wrong("its two end records differ");
    }
    wide.ends_at(record_at)
}

/// Where the central directory lies, by an end record.
struct Directory {
    entries: u64,
    size: u64,
    offset: u64,
}

impl Directory {
    fn ends_at(&self, at: u64) -> Tail {
        if self.entries == 0 || self.size / ENTRY < self.entries {
            return Tail::Wrong("its directory is too short for its entries");
        }
        match self.offset.checked_add(self.size) {
            Some(end) if end == at => Tail::Whole,
            Some(_) | None => Tail::Wrong("its directory does not end where its end record begins"),
        }
    }

    /// A field of the classic record is either right or all ones ("see the wide one").
    fn agrees_with(&self, wide: &Self) -> bool {
        let fits = |narrow: u64, wide: u64, ones: u64| narrow == wide || narrow == ones;
        fits(self.entries, wide.entries, 0xffff)
            && fits(self.size, wide.size, 0xffff_ffff)
            && fits(self.offset, wide.offset, 0xffff_ffff)
    }
}

/// What a file without an end record is.
fn judge_head(head: &[u8]) -> TorchFile {
    const ZIP: &[u8] = b"PK\x03\x04";
    match head {
        [0x80, 2..=5, ..] => TorchFile::Pickle,
        _ if head.starts_with(ZIP) || ZIP.starts_with(head) => {
            TorchFile::Torn("it is cut: the zip has no end record".into())
        }
        // Room that was set aside and never written.
        _ if head.iter().all(|byte| *byte == 0) => {
            TorchFile::Torn("it begins with nothing but zeros".into())
        }
        _ => TorchFile::Other,
    }
}

/// Bytes of the largest directory, and of the largest member, that are read.
const MEMBER_LIMIT_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of a local header before its name.
const LOCAL: u64 = 30;

/// The bytes of a member that is stored as it is, by the end of its name: `/data.pkl` is the pickle
/// of `torch.save`. `None` if there is none that can be read, for whatever reason.
pub async fn member(
    objects: &Objects,
    key: &str,
    size: u64,
    name: &str,
) -> Result<Option<Vec<u8>>, StoreError> {
    let bytes = |range: std::ops::Range<u64>| async move {
        if range.end > size || range.end.saturating_sub(range.start) > MEMBER_LIMIT_BYTES {
            return Ok(None);
        }
        Ok(match objects.read(key, range).await? {
            Read::Bytes(bytes) => Some(bytes),
            Read::Changed | Read::Refused(_) => None,
        })
    };
    let Some(tail) = bytes(size.saturating_sub(TAIL_BYTES)..size).await? else { return Ok(None) };
    let Some(directory) = directory_of(&tail) else { return Ok(None) };
    let Some(end) = directory.offset.checked_add(directory.size) else { return Ok(None) };
    let Some(entries) = bytes(directory.offset..end).await? else { return Ok(None) };
    let Some((at, length)) = entry_of(&entries, name) else { return Ok(None) };
    let Some(head_end) = at.checked_add(LOCAL) else { return Ok(None) };
    let Some(head) = bytes(at..head_end).await? else { return Ok(None) };
    if !head.starts_with(b"PK\x03\x04") {
        return Ok(None);
    }
    let begin = head_end + number(&head, 26, 2) + number(&head, 28, 2);
    match begin.checked_add(length) {
        Some(end) => bytes(begin..end).await,
        None => Ok(None),
    }
}

/// Where the central directory lies, by the last bytes of a whole file.
fn directory_of(tail: &[u8]) -> Option<Directory> {
    let end = &tail[tail.len().checked_sub(END)?..];
    if !end.starts_with(b"PK\x05\x06") {
        return None;
    }
    let before = &tail[..tail.len() - END];
    let record = before.len().checked_sub(LOCATOR + RECORD).map(|at| &before[at..]);
    let wide = record.filter(|record| record.starts_with(b"PK\x06\x06"));
    Some(match wide {
        Some(record) => Directory {
            entries: number(record, 32, 8),
            size: number(record, 40, 8),
            offset: number(record, 48, 8),
        },
        None => Directory {
            entries: number(end, 10, 2),
            size: number(end, 12, 4),
            offset: number(end, 16, 4),
        },
    })
}

/// Where the local header of a stored member lies and how long the member is.
fn entry_of(mut directory: &[u8], name: &str) -> Option<(u64, u64)> {
    const FIXED: usize = 46;
    while directory.len() >= FIXED && directory.starts_with(b"PK\x01\x02") {
        let length = |at| usize::try_from(number(directory, at, 2)).ok();
        let (named, extra, comment) = (length(28)?, length(30)?, length(32)?);
        let entry = FIXED.checked_add(named)?.checked_add(extra)?.checked_add(comment)?;
        let found = directory.get(FIXED..FIXED + named)?;
        if found.ends_with(name.as_bytes()) {
            let stored = number(directory, 10, 2) == 0;
            let (length, at) = (number(directory, 24, 4), number(directory, 42, 4));
            // All ones: the wide fields of a file beyond 4 GiB, which the first member is not.
            return (stored && length != 0xffff_ffff && at != 0xffff_ffff).then_some((at, length));
        }
        directory = directory.get(entry..)?;
    }
    None
}

/// The little-endian number of `width` bytes at `at`; the callers' slices are long enough.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// End of a zip whose directory of `entries` entries begins at `offset`.
    fn end_of(entries: u64, offset: u64, zip64: bool, wide_only: bool) -> (u64, Vec<u8>) {
        let size = entries * 60;
        let mut tail = vec![7; 40];
        let directory_end = offset + size;
        if zip64 {
            tail.extend(b"PK\x06\x06");
            tail.extend(44u64.to_le_bytes());
            tail.extend([0x1e, 3, 0x2d, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            tail.extend(entries.to_le_bytes());
            tail.extend(entries.to_le_bytes());
            tail.extend(size.to_le_bytes());
            tail.extend(offset.to_le_bytes());
            tail.extend(b"PK\x06\x07");
            tail.extend([0; 4]);
            tail.extend(directory_end.to_le_bytes());
            tail.extend(1u32.to_le_bytes());
        }
        let narrow = |n: u64, ones: u64| if wide_only { ones } else { n };
        tail.extend(b"PK\x05\x06\0\0\0\0");
        let entries = u16::try_from(narrow(entries, 0xffff)).expect("two bytes");
        tail.extend(entries.to_le_bytes());
        tail.extend(entries.to_le_bytes());
        let low = |n: u64| u32::try_from(narrow(n, 0xffff_ffff)).expect("four bytes").to_le_bytes();
        tail.extend(low(size));
        tail.extend(low(offset));
        tail.extend([0, 0]);
        let records = if zip64 { TAIL_BYTES } else { END as u64 };
        let keep = tail.len().min(usize::try_from(TAIL_BYTES).expect("small"));
        (directory_end + records, tail.split_off(tail.len() - keep))
    }

    #[test]
    fn both_kinds_of_end_are_whole_and_nothing_else_is() {
        for (zip64, wide_only) in [(false, false), (true, false), (true, true)] {
            let (size, tail) = end_of(3, 1_000, zip64, wide_only);
            assert_eq!(judge_tail(size, &tail), Tail::Whole, "{zip64} {wide_only}");
            assert_ne!(judge_tail(size + 1, &tail), Tail::Whole);
            assert_ne!(judge_tail(size - 1, &tail), Tail::Whole);
            assert_ne!(judge_tail(size, &tail[..tail.len() - 1]), Tail::Whole);
        }
    }

    #[test]
    fn a_file_of_more_than_four_gibibytes_is_told_by_its_wide_record() {
        let (size, tail) = end_of(900, 9 << 30, true, true);
        assert_eq!(judge_tail(size, &tail), Tail::Whole);
        // The wide record is needed: all ones alone say nothing.
        let classic = &tail[tail.len() - END..];
        assert_ne!(judge_tail(size, classic), Tail::Whole);
    }

    #[test]
    fn an_empty_directory_and_an_overflow_are_wrong() {
        let (size, tail) = end_of(0, 1_000, true, false);
        assert_ne!(judge_tail(size, &tail), Tail::Whole);
        let (size, mut tail) = end_of(3, 1_000, true, true);
        let at = tail.len() - END - LOCATOR - 8;
        tail[at..at + 8].fill(0xff);
        assert_ne!(judge_tail(size, &tail), Tail::Whole);
    }

    #[test]
    fn a_head_tells_cut_zips_from_pickles() {
        assert_eq!(judge_head(&[0x80, 2, 0x8a, 0x0a]), TorchFile::Pickle);
        for torn in [&b"PK\x03\x04"[..], b"P", b"PK", &[0; 4], &[]] {
            assert!(matches!(judge_head(torn), TorchFile::Torn(_)), "{torn:?}");
        }
        assert_eq!(judge_head(b"abcd"), TorchFile::Other);
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..20_000 {
            let (mut size, mut tail) =
                end_of(random() % 5, random() % 4_000, random() % 2 == 0, false);
            for _ in 0..random() % 4 {
                let at = usize::try_from(random()).unwrap_or(0) % tail.len();
                tail[at] = random().to_le_bytes()[0];
            }
            if random() % 3 == 0 {
                tail.truncate(usize::try_from(random()).unwrap_or(0) % (tail.len() + 1));
            }
            if random() % 5 == 0 {
                size = random();
            }
            let verdict = judge_tail(size, &tail);
            if verdict == Tail::Whole {
                let end = &tail[tail.len() - END..];
                assert!(end.starts_with(b"PK\x05\x06"), "whole without an end record");
            }
        }
    }
}
