//! The form of the journal, and how much of a damaged one can still be read.
//!
//! A file has a header and then entries, each with the sequence after the one before:
//!
//! ```text
//! header  8 bytes "spkjrnl\n" | format u32 | base sequence u64 | crc32 of these u32
//! entry   payload length u32 | sequence u64 | crc32 of both and the payload u32 | payload
//! ```
//!
//! All numbers little-endian; the header keeps its layout in every format. A payload is one batch.
//! Reading never fails: what cannot be read is reported as damage, and a bad stretch with good
//! entries behind it is told from an end that was torn by a crash.

use super::batch::{BATCH_LIMIT_BYTES, Batch};

const MAGIC: &[u8; 8] = b"spkjrnl\n";
const HEADER_BYTES: usize = 24;
const ENTRY_HEAD_BYTES: usize = 16;
/// Sequences further ahead than this are taken for noise when looking behind a bad stretch.
const SEQUENCE_SPAN: u64 = 1 << 20;
/// No store ever gets here; a larger number is damage.
const SEQUENCE_LIMIT: u64 = u64::MAX / 2;
/// Bad stretches that one file is searched past.
const STRETCHES_LIMIT: usize = 1_000;

/// What the beginning of a file said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Header {
    /// Whole.
    Good { format: u32, base: u64 },
    /// Missing or damaged.
    Bad,
}

/// A part that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    /// Nothing good follows: a crash while appending looks like this.
    TornTail { offset: usize, bytes: usize },
    /// Good entries follow, from sequence `next`: a crash does not do this.
    Hole { offset: usize, next: u64 },
}

/// All that a file still says.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) header: Header,
    pub(super) entries: Vec<(u64, Batch)>,
    pub(super) damage: Vec<Damage>,
}

/// The header of a file whose first entry has the sequence after `base`.
pub(super) fn header(format: u32, base: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..12].copy_from_slice(&format.to_le_bytes());
    bytes[12..20].copy_from_slice(&base.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..20]);
    bytes[20..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Appends one entry to `out`.
pub(super) fn entry(sequence: u64, batch: &Batch, out: &mut Vec<u8>) {
    let start = out.len();
    let length = u32::try_from(batch.encoded_bytes()).expect("batches are limited to 1 MiB");
    out.extend(length.to_le_bytes());
    out.extend(sequence.to_le_bytes());
    out.extend([0; 4]);
    batch.encode(out);
    let crc = checksum(&out[start..]);
    out[start + 12..start + ENTRY_HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
}

/// Bytes of an entry.
pub(super) fn entry_bytes(batch: &Batch) -> usize {
    ENTRY_HEAD_BYTES + batch.encoded_bytes()
}

/// Reads a file. `named_base` is the base sequence by the file's name, for when the header says
/// nothing.
pub(super) fn read(bytes: &[u8], named_base: u64) -> Reading {
    let header = read_header(bytes);
    let base = match header {
        Header::Good { base, .. } => base,
        Header::Bad => named_base.min(SEQUENCE_LIMIT),
    };
    let mut reading = Reading { header, entries: Vec::new(), damage: Vec::new() };
    let (mut at, mut last) = (HEADER_BYTES, base);
    while at < bytes.len() {
        if let Some((batch, end)) = entry_at(bytes, at, last + 1..last + 2) {
            last += 1;
            reading.entries.push((last, batch));
            at = end;
            continue;
        }
        let behind = last + 1..last + SEQUENCE_SPAN;
        let next =
            (at..bytes.len()).find(|offset| entry_at(bytes, *offset, behind.clone()).is_some());
        match next {
            Some(offset) if reading.damage.len() < STRETCHES_LIMIT => {
                let next = sequence_at(bytes, offset).expect("an entry was just read there");
                reading.damage.push(Damage::Hole { offset: at, next });
                (at, last) = (offset, next - 1);
            }
            Some(_) | None => {
                reading.damage.push(Damage::TornTail { offset: at, bytes: bytes.len() - at });
                break;
            }
        }
    }
    reading
}

fn read_header(bytes: &[u8]) -> Header {
    let Some(head) = bytes.first_chunk::<HEADER_BYTES>() else { return Header::Bad };
    let (Some(format), Some(base), Some(crc)) =
        (u32_at(head, 8), u64_at(head, 12), u32_at(head, 20))
    else {
        return Header::Bad;
    };
    let sound = head[..8] == *MAGIC && crc == crc32fast::hash(&head[..20]);
    if !sound || base > SEQUENCE_LIMIT {
        return Header::Bad;
    }
    Header::Good { format, base }
}

/// The entry that begins at `at`, if it is whole and its sequence is in the range; and its end.
fn entry_at(bytes: &[u8], at: usize, sequences: std::ops::Range<u64>) -> Option<(Batch, usize)> {
    let length = usize::try_from(u32_at(bytes, at)?).ok()?;
    if length > BATCH_LIMIT_BYTES || !sequences.contains(&sequence_at(bytes, at)?) {
        return None;
    }
    let end = at + ENTRY_HEAD_BYTES + length;
    let whole = bytes.get(at..end)?;
    if u32_at(whole, 12)? != checksum(whole) {
        return None;
    }
    Some((Batch::decode(&whole[ENTRY_HEAD_BYTES..])?, end))
}

fn sequence_at(bytes: &[u8], at: usize) -> Option<u64> {
    u64_at(bytes, at + 4)
}

/// Over all of an entry but the checksum itself.
fn checksum(entry: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&entry[..12]);
    hasher.update(&entry[ENTRY_HEAD_BYTES..]);
    hasher.finalize()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal of entries 8, 9, 10 and where each of them ends.
    fn example() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = header(1, 7).to_vec();
        let mut ends = vec![bytes.len()];
        for sequence in 8..=10_u64 {
            let mut batch = Batch::new();
            batch.put(format!("k{sequence}"), format!("v{sequence}")).unwrap();
            entry(sequence, &batch, &mut bytes);
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    fn sequences(reading: &Reading) -> Vec<u64> {
        reading.entries.iter().map(|(sequence, _)| *sequence).collect()
    }

    #[test]
    fn a_whole_journal_is_read_back() {
        let (bytes, _) = example();
        let reading = read(&bytes, 7);
        assert_eq!(reading.header, Header::Good { format: 1, base: 7 });
        assert_eq!(sequences(&reading), [8, 9, 10]);
        assert!(reading.damage.is_empty());
    }

    #[test]
    fn a_tail_torn_at_any_byte_costs_only_the_torn_entry() {
        let (bytes, ends) = example();
        for length in HEADER_BYTES..bytes.len() {
            let reading = read(&bytes[..length], 7);
            let whole = ends.iter().filter(|end| **end <= length).count() - 1;
            assert_eq!(reading.entries.len(), whole, "{length}");
            let torn = length - ends[whole];
            let expected = Damage::TornTail { offset: ends[whole], bytes: torn };
            assert_eq!(reading.damage, if torn == 0 { vec![] } else { vec![expected] });
        }
    }

    #[test]
    fn a_flipped_byte_costs_one_entry_and_the_rest_is_found() {
        let (bytes, ends) = example();
        for at in HEADER_BYTES..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x5a;
            let reading = read(&damaged, 7);
            let hit = ends.iter().filter(|end| **end <= at).count();
            let left: Vec<u64> = (8..=10).filter(|s| *s != 7 + hit as u64).collect();
            assert_eq!(sequences(&reading), left, "byte {at}");
            let hole = matches!(reading.damage[..], [Damage::Hole { .. }]);
            assert_eq!(hole, hit < 3, "byte {at}: {:?}", reading.damage);
        }
    }

    #[test]
    fn a_damaged_header_costs_no_entry() {
        let (bytes, _) = example();
        for at in 0..HEADER_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let reading = read(&damaged, 7);
            assert_eq!((reading.header, sequences(&reading)), (Header::Bad, vec![8, 9, 10]));
        }
        assert!(read(b"", 7).entries.is_empty());
        assert_eq!(read(b"", 7).header, Header::Bad);
    }

    #[test]
    fn zeros_and_noise_are_a_torn_tail() {
        let (mut bytes, _) = example();
        bytes.extend([0; 4096]);
        let reading = read(&bytes, 7);
        assert_eq!(sequences(&reading), [8, 9, 10]);
        assert!(matches!(reading.damage[..], [Damage::TornTail { bytes: 4096, .. }]));
    }

    #[test]
    fn an_entry_of_an_earlier_sequence_is_not_taken_again() {
        let (mut bytes, ends) = example();
        let again = bytes[ends[0]..ends[1]].to_vec();
        bytes.extend(again);
        assert_eq!(sequences(&read(&bytes, 7)), [8, 9, 10]);
    }
}
