//! The bytes of a pickle, and where a reader stands in them: what each opcode carries with it.

use super::PickleError;

/// A reader's place.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// What an opcode of a number carries.
pub(super) enum Number {
    Whole(i64),
    /// More than 64 bits.
    Huge,
    Float(f64),
}

/// What an opcode of a text or of bytes carries.
pub(super) enum Text<'a> {
    Readable(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Where it stands.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// The byte before the cursor is not what a pickle has there.
    pub(super) fn malformed(&self) -> PickleError {
        PickleError::Malformed { at: self.at.saturating_sub(1) }
    }

    /// The byte before the cursor is an opcode that is not known here. No Python has an opcode zero: that
    /// is what a hole in a file reads as.
    pub(super) fn unknown(&self, opcode: u8) -> PickleError {
        match opcode {
            0 => self.malformed(),
            _ => PickleError::Unknown { at: self.at.saturating_sub(1), opcode },
        }
    }

    pub(super) fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], PickleError> {
        let count = usize::try_from(count).map_err(|_| PickleError::Cut)?;
        let end = self.at.checked_add(count).ok_or(PickleError::Cut)?;
        let taken = self.bytes.get(self.at..end).ok_or(PickleError::Cut)?;
        self.at = end;
        Ok(taken)
    }

    /// A little-endian number of `width` bytes, at most 8.
    pub(super) fn length(&mut self, width: u64) -> Result<u64, PickleError> {
        Ok(self.take(width)?.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    pub(super) fn line(&mut self) -> Result<&'a str, PickleError> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|b| *b == b'\n').ok_or(PickleError::Cut)?;
        self.at += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|_| self.malformed())
    }

    /// What an opcode of a number carries: `J`, `K`, `M`, `G`, `LONG1` or `LONG4`.
    pub(super) fn number(&mut self, opcode: u8) -> Result<Number, PickleError> {
        Ok(match opcode {
            b'J' => Number::Whole(signed(self.take(4)?).unwrap_or_default()),
            b'K' => Number::Whole(i64::from(self.byte()?)),
            b'M' => Number::Whole(i64::try_from(self.length(2)?).unwrap_or_default()),
            b'G' => {
                let bytes = self.take(8)?.try_into().map_err(|_| PickleError::Cut)?;
                Number::Float(f64::from_be_bytes(bytes))
            }
            wide => {
                let width = self.length(if wide == 0x8a { 1 } else { 4 })?;
                signed(self.take(width)?).map_or(Number::Huge, Number::Whole)
            }
        })
    }

    /// Bytes of what an opcode of a text or of bytes carries.
    pub(super) fn text_length(&mut self, opcode: u8) -> Result<u64, PickleError> {
        self.length(match opcode {
            0x8c | b'U' | b'C' => 1,
            b'X' | b'T' | b'B' => 4,
            _ => 8,
        })
    }

    /// What an opcode of a text or of bytes carries, of that length.
    pub(super) fn text(&mut self, opcode: u8, length: u64) -> Result<Text<'a>, PickleError> {
        let bytes = self.take(length)?;
        let is_text = matches!(opcode, b'X' | 0x8c | 0x8d | b'T' | b'U');
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) if is_text => Text::Readable(text),
            Ok(_) | Err(_) => Text::Bytes(bytes),
        })
    }
}

/// A little-endian number in two's complement; `None` if it needs more than 64 bits.
fn signed(bytes: &[u8]) -> Option<i64> {
    let fill = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    let (low, high) = bytes.split_at(bytes.len().min(8));
    if high.iter().any(|b| *b != fill) {
        return None;
    }
    let mut wide = [fill; 8];
    wide[..low.len()].copy_from_slice(low);
    let value = i64::from_le_bytes(wide);
    (high.is_empty() || (value < 0) == (fill == 0xff)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_numbers_are_read_as_python_writes_them() {
        assert_eq!(signed(&[]), Some(0));
        assert_eq!(signed(&[0xff]), Some(-1));
        assert_eq!(signed(&[0xff, 0]), Some(255));
        assert_eq!(signed(&[0, 0, 0, 0x80]), Some(i64::from(i32::MIN)));
        assert_eq!(signed(&[0xff; 9]), Some(-1));
        assert_eq!(signed(&[0, 0, 0, 0, 0, 0, 0, 0x80, 0]), None);
    }
}
