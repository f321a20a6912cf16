//! One atomic change of the state: puts and deletes of byte keys, and its form in the journal.
//!
//! A batch is valid by construction: each limit is checked when a change is added, so that a
//! commit cannot be refused for its content. Two changes of one key in one batch: the later wins.

use std::collections::BTreeMap;

use super::error::StoreError;

/// Bytes of the longest key. A key has at least one byte; the empty key is the engine's own.
pub const KEY_LIMIT_BYTES: usize = 256;
/// Bytes of the largest value: well below the size at which sled moves values to files that no
/// sync of ours would reach. Larger things are blobs.
pub const VALUE_LIMIT_BYTES: usize = 8 * 1024;
/// Bytes of the largest batch in its journal form.
pub const BATCH_LIMIT_BYTES: usize = 1024 * 1024;

const COUNT_BYTES: usize = 4;
const PUT: u8 = 1;
const DELETE: u8 = 2;

/// Puts and deletes that happen together or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    encoded_bytes: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self { changes: BTreeMap::new(), encoded_bytes: COUNT_BYTES }
    }
}

impl Batch {
    /// A batch without changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `key` to `value`.
    pub fn put(
        &mut self,
        key: impl Into<Vec<u8>>,
        value: impl Into<Vec<u8>>,
    ) -> Result<(), StoreError> {
        let (key, value) = (key.into(), value.into());
        if value.len() > VALUE_LIMIT_BYTES {
            return Err(StoreError::ValueTooLarge {
                key: String::from_utf8_lossy(&key).into_owned(),
                bytes: value.len(),
            });
        }
        self.change(key, Some(value))
    }

    /// Removes `key`; harmless if it is not there.
    pub fn delete(&mut self, key: impl Into<Vec<u8>>) -> Result<(), StoreError> {
        self.change(key.into(), None)
    }

    fn change(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), StoreError> {
        check_key(&key)?;
        let replaced = self.changes.get(&key).map_or(0, |old| change_bytes(&key, old.as_deref()));
        let bytes = self.encoded_bytes - replaced + change_bytes(&key, value.as_deref());
        if bytes > BATCH_LIMIT_BYTES {
            return Err(StoreError::BatchTooLarge { bytes });
        }
        self.encoded_bytes = bytes;
        self.changes.insert(key, value);
        Ok(())
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Bytes of its journal form.
    pub fn encoded_bytes(&self) -> usize {
        self.encoded_bytes
    }

    /// Each changed key in order with its new value; `None` is a delete.
    pub fn changes(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.changes.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))
    }

    /// Appends the journal form: count (u32), then for each change a tag (1 put, 2 delete), key
    /// length (u16), key, and for a put value length (u32) and value. Little-endian.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(length_u32(self.changes.len()));
        for (key, value) in self.changes() {
            out.push(if value.is_some() { PUT } else { DELETE });
            let key_length = u16::try_from(key.len()).expect("keys are limited to 256 bytes");
            out.extend(key_length.to_le_bytes());
            out.extend(key);
            if let Some(value) = value {
                out.extend(length_u32(value.len()));
                out.extend(value);
            }
        }
    }

    /// Reads the journal form; `None` if it is not one, to the last byte.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let input = &mut bytes;
        let count = take_u32(input)?;
        let mut batch = Self::new();
        for _ in 0..count {
            let tag = *take(input, 1)?.first()?;
            let key_length = u16::from_le_bytes(take(input, 2)?.try_into().ok()?);
            let key = take(input, usize::from(key_length))?;
            match tag {
                PUT => {
                    let value_length = take_u32(input)?;
                    let value = take(input, usize::try_from(value_length).ok()?)?;
                    batch.put(key, value).ok()?;
                }
                DELETE => batch.delete(key).ok()?,
                _ => return None,
            }
        }
        input.is_empty().then_some(batch)
    }
}

/// Refuses keys that no batch could have put.
pub(super) fn check_key(key: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > KEY_LIMIT_BYTES {
        return Err(StoreError::KeyLength { bytes: key.len() });
    }
    Ok(())
}

fn change_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    1 + 2 + key.len() + value.map_or(0, |v| 4 + v.len())
}

fn length_u32(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("batches are limited to 1 MiB").to_le_bytes()
}

fn take<'a>(input: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = input.split_at_checked(length)?;
    *input = tail;
    Some(head)
}

fn take_u32(input: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(input, 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Batch {
        let mut batch = Batch::new();
        batch.put("b", "two").unwrap();
        batch.put("a", vec![0, 255]).unwrap();
        batch.delete("c").unwrap();
        batch
    }

    #[test]
    fn the_journal_form_is_read_back_and_its_size_is_known() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes);
        assert_eq!(bytes.len(), example().encoded_bytes());
        assert_eq!(Batch::decode(&bytes), Some(example()));
    }

    #[test]
    fn a_cut_or_longer_form_is_no_batch() {
        let mut bytes = Vec::new();
        example().encode(&mut bytes);
        for length in 0..bytes.len() {
            assert_eq!(Batch::decode(&bytes[..length]), None, "{length}");
        }
        bytes.push(0);
        assert_eq!(Batch::decode(&bytes), None);
        assert_eq!(Batch::decode(&[255; 64]), None);
    }

    #[test]
    fn the_later_change_of_a_key_wins() {
        let mut batch = Batch::new();
        batch.put("k", "1").unwrap();
        batch.delete("k").unwrap();
        batch.put("k", "22").unwrap();
        assert_eq!(batch.changes().collect::<Vec<_>>(), [(&b"k"[..], Some(&b"22"[..]))]);
        let mut bytes = Vec::new();
        batch.encode(&mut bytes);
        assert_eq!(bytes.len(), batch.encoded_bytes());
    }

    #[test]
    fn each_limit_is_a_typed_error_and_leaves_the_batch_as_it_was() {
        let mut batch = example();
        let too_large = batch.put("k", vec![0; VALUE_LIMIT_BYTES + 1]);
        assert!(matches!(too_large, Err(StoreError::ValueTooLarge { bytes: 8193, .. })));
        let long = batch.put(vec![b'k'; KEY_LIMIT_BYTES + 1], "v");
        assert!(matches!(long, Err(StoreError::KeyLength { bytes: 257 })));
        assert!(matches!(batch.delete(""), Err(StoreError::KeyLength { bytes: 0 })));
        assert_eq!(batch, example());
        batch.put(vec![b'k'; KEY_LIMIT_BYTES], vec![0; VALUE_LIMIT_BYTES]).unwrap();
    }

    #[test]
    fn a_batch_has_a_limit_in_all() {
        let mut batch = Batch::new();
        let refused = (0..1000).find_map(|n| batch.put(format!("{n}"), vec![0; 8192]).err());
        assert!(matches!(refused, Some(StoreError::BatchTooLarge { .. })));
        assert!(batch.encoded_bytes() <= BATCH_LIMIT_BYTES);
    }
}
