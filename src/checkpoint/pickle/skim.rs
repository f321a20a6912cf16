//! A run through a pickle that keeps no values: it shows each group of entries that is put into a
//! dictionary, and each class of which an object is made.
//!
//! What is kept is the stack and the memo, eight bytes a value: texts are places in the pickle's bytes,
//! and lists, dictionaries and objects are not told apart.

use super::cursor::{Cursor, Number, Text};
use super::{PickleError, STACK_LIMIT};

/// Values that may be remembered at one time. Writers remember some dozen an entry.
const MEMO_LIMIT: usize = 4 * 1024 * 1024;
/// Bits of a place in the bytes, and of a length.
const PLACE_BITS: u32 = 31;

/// What is known of a value that is passed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain<'a> {
    /// A text.
    Text(&'a str),
    /// A whole number of at most 62 bits.
    Int(i64),
    /// Anything else.
    Other,
}

/// What is passed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'s, 'a> {
    /// Entries that are put into one dictionary together.
    Entries(&'s [(Plain<'a>, Plain<'a>)]),
    /// An object is made of a class of this name.
    Made(&'a str),
}

/// Runs through the pickle at the beginning of `bytes`.
///
/// # Errors
/// [`PickleError`].
pub fn skim<'a>(bytes: &'a [u8], seen: impl FnMut(Seen<'_, 'a>)) -> Result<(), PickleError> {
    if bytes.len() >> PLACE_BITS != 0 {
        return Err(PickleError::TooMuch);
    }
    let mut skimmer = Skimmer {
        bytes,
        cursor: Cursor::new(bytes),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        seen,
    };
    while !skimmer.step()? {}
    Ok(())
}

/// A value in eight bytes: its kind in the lowest two bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slim(u64);

impl Slim {
    const OTHER: Self = Self(0);
    const KIND: u64 = 3;
    const INT: u64 = 1;
    const TEXT: u64 = 2;
    const NAME: u64 = 3;

    fn int(number: i64) -> Self {
        let packed = number << 2;
        if packed >> 2 == number { Self(packed.cast_unsigned() | Self::INT) } else { Self::OTHER }
    }

    /// A text of `length` bytes at `at`, both below 2^31.
    fn text(at: usize, length: usize) -> Self {
        Self((at as u64) << (PLACE_BITS + 2) | (length as u64) << 2 | Self::TEXT)
    }

    /// The same text as the name of something in Python.
    fn named(self) -> Self {
        Self(self.0 | Self::NAME)
    }

    fn is_text(self) -> bool {
        self.0 & Self::KIND == Self::TEXT
    }

    fn words(self, bytes: &[u8]) -> &str {
        let length = self.0 >> 2 & ((1 << PLACE_BITS) - 1);
        let at = self.0 >> (PLACE_BITS + 2);
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let found = bytes.get(place(at)..place(at.saturating_add(length))).unwrap_or_default();
        // It was read as a text when it was passed.
        std::str::from_utf8(found).unwrap_or_default()
    }

    fn plain(self, bytes: &[u8]) -> Plain<'_> {
        match self.0 & Self::KIND {
            Self::INT => Plain::Int(self.0.cast_signed() >> 2),
            Self::TEXT => Plain::Text(self.words(bytes)),
            _ => Plain::Other,
        }
    }
}

struct Skimmer<'a, F> {
    bytes: &'a [u8],
    cursor: Cursor<'a>,
    stack: Vec<Slim>,
    marks: Vec<usize>,
    memo: Vec<Slim>,
    seen: F,
}

impl<'a, F: FnMut(Seen<'_, 'a>)> Skimmer<'a, F> {
    /// Does one opcode; whether it was the last.
    fn step(&mut self) -> Result<bool, PickleError> {
        let opcode = self.cursor.byte()?;
        match opcode {
            // PROTO, FRAME: nothing that matters here.
            0x80 => drop(self.cursor.take(1)?),
            0x95 => drop(self.cursor.take(8)?),
            b'N' | 0x88 | 0x89 | b')' | b']' | 0x8f | b'}' => self.push(Slim::OTHER)?,
            b'J' | b'K' | b'M' | 0x8a | 0x8b | b'G' => {
                let number = match self.cursor.number(opcode)? {
                    Number::Whole(number) => Slim::int(number),
                    Number::Huge | Number::Float(_) => Slim::OTHER,
                };
                self.push(number)?;
            }
            b'X' | 0x8c | 0x8d | b'T' | b'U' | b'B' | b'C' | 0x8e | 0x96 => self.text(opcode)?,
            b'(' => self.mark()?,
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => self.push(self.top()?)?,
            0x85..=0x87 => self.replace(usize::from(opcode - 0x84))?,
            b't' | b'l' | 0x91 => {
                self.since_mark()?;
                self.push(Slim::OTHER)?;
            }
            b'd' => {
                let flat = self.since_mark()?;
                self.show(&flat)?;
                self.push(Slim::OTHER)?;
            }
            b'a' | b'b' => {
                self.pop()?;
                self.top()?;
            }
            b'e' | 0x90 => {
                self.since_mark()?;
                self.top()?;
            }
            b's' | b'u' => self.set_items(opcode)?,
            b'c' | 0x93 => self.name(opcode)?,
            b'R' | 0x81 | 0x92 => self.object(opcode)?,
            b'Q' => self.replace(1)?,
            0x94 | b'q' | b'r' => self.remember(opcode)?,
            b'h' | b'j' => self.recall(opcode)?,
            b'.' => return self.pop().map(|_| true),
            _ => return Err(self.cursor.malformed()),
        }
        Ok(false)
    }

    fn push(&mut self, value: Slim) -> Result<(), PickleError> {
        if self.stack.len() >= STACK_LIMIT {
            return Err(PickleError::TooMuch);
        }
        self.stack.push(value);
        Ok(())
    }

    fn mark(&mut self) -> Result<(), PickleError> {
        if self.marks.len() >= STACK_LIMIT {
            return Err(PickleError::TooMuch);
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Takes the top of the stack, but not what stands below the last mark.
    fn pop(&mut self) -> Result<Slim, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.cursor.malformed());
        }
        self.stack.pop().ok_or_else(|| self.cursor.malformed())
    }

    fn top(&self) -> Result<Slim, PickleError> {
        self.stack.last().copied().ok_or_else(|| self.cursor.malformed())
    }

    fn since_mark(&mut self) -> Result<Vec<Slim>, PickleError> {
        let mark = self.marks.pop().ok_or_else(|| self.cursor.malformed())?;
        if mark > self.stack.len() {
            return Err(self.cursor.malformed());
        }
        Ok(self.stack.split_off(mark))
    }

    /// Something in the place of the `count` values on top.
    fn replace(&mut self, count: usize) -> Result<(), PickleError> {
        for _ in 0..count {
            self.pop()?;
        }
        self.push(Slim::OTHER)
    }

    fn text(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match self.cursor.text(opcode)? {
            Text::Readable(text) => self.place_of(text),
            Text::Bytes(_) => Slim::OTHER,
        };
        self.push(value)
    }

    /// A text that ends where the cursor stands.
    fn place_of(&self, text: &str) -> Slim {
        Slim::text(self.cursor.at().saturating_sub(text.len()), text.len())
    }

    fn show(&mut self, flat: &[Slim]) -> Result<(), PickleError> {
        if !flat.len().is_multiple_of(2) {
            return Err(self.cursor.malformed());
        }
        let plain = |value: Slim| value.plain(self.bytes);
        let entries: Vec<_> =
            flat.chunks_exact(2).map(|pair| (plain(pair[0]), plain(pair[1]))).collect();
        (self.seen)(Seen::Entries(&entries));
        Ok(())
    }

    fn set_items(&mut self, opcode: u8) -> Result<(), PickleError> {
        let flat = if opcode == b's' {
            let value = self.pop()?;
            vec![self.pop()?, value]
        } else {
            self.since_mark()?
        };
        self.top()?;
        self.show(&flat)
    }

    fn name(&mut self, opcode: u8) -> Result<(), PickleError> {
        let name = if opcode == b'c' {
            self.cursor.line()?;
            let name = self.cursor.line()?;
            // The end of its line stands between it and the cursor.
            Slim::text(self.cursor.at().saturating_sub(name.len() + 1), name.len())
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            if !name.is_text() || !module.is_text() {
                return Err(self.cursor.malformed());
            }
            name
        };
        self.push(name.named())
    }

    fn object(&mut self, opcode: u8) -> Result<(), PickleError> {
        if opcode == 0x92 {
            self.pop()?;
        }
        self.pop()?;
        let class = self.pop()?;
        if class.0 & Slim::KIND == Slim::NAME {
            (self.seen)(Seen::Made(class.words(self.bytes)));
        }
        self.push(Slim::OTHER)
    }

    fn remember(&mut self, opcode: u8) -> Result<(), PickleError> {
        let at = match opcode {
            b'q' => usize::from(self.cursor.byte()?),
            b'r' => usize::try_from(self.cursor.length(4)?).map_err(|_| PickleError::TooMuch)?,
            _ => self.memo.len(),
        };
        let top = self.top()?;
        // Writers count upwards: a leap would only be there to make room for nothing.
        if at > self.memo.len() + usize::from(u8::MAX) {
            return Err(self.cursor.malformed());
        }
        if at >= MEMO_LIMIT {
            return Err(PickleError::TooMuch);
        }
        if at >= self.memo.len() {
            self.memo.resize(at + 1, Slim::OTHER);
        }
        self.memo[at] = top;
        Ok(())
    }

    fn recall(&mut self, opcode: u8) -> Result<(), PickleError> {
        let at = self.cursor.length(if opcode == b'h' { 1 } else { 4 })?;
        let at = usize::try_from(at).map_err(|_| self.cursor.malformed())?;
        let found = self.memo.get(at).copied().ok_or_else(|| self.cursor.malformed())?;
        self.push(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PICKLE_LIMIT_BYTES;
    use super::*;

    /// `{"a": 7, "b": mod.Thing(state {"n": -1})}`, the key `a` taken from the memo once more.
    const SAMPLE: &[u8] =
        b"\x80\x04}\x94(\x8c\x01a\x94K\x07\x8c\x01b\x8c\x03mod\x8c\x05Thing\x93)\x81}\x8c\x01nJ\xff\xff\xff\xffsbh\x01Nu.";

    #[test]
    fn entries_and_classes_are_shown_in_their_order() {
        let mut told = Vec::new();
        skim(SAMPLE, |seen| {
            told.push(match seen {
                Seen::Made(class) => class.to_owned(),
                Seen::Entries(entries) => format!("{entries:?}"),
            });
        })
        .expect("a pickle");
        assert_eq!(
            told,
            [
                "Thing",
                "[(Text(\"n\"), Int(-1))]",
                "[(Text(\"a\"), Int(7)), (Text(\"b\"), Other), (Text(\"a\"), Other)]"
            ]
        );
        let mut classes = Vec::new();
        skim(b"cmod\nThing\n)R.", |seen| {
            if let Seen::Made(class) = seen {
                classes.push(class.to_owned());
            }
        })
        .expect("a pickle");
        assert_eq!(classes, ["Thing"]);
    }

    #[test]
    fn every_cut_is_noticed() {
        for length in 0..SAMPLE.len() {
            assert!(skim(&SAMPLE[..length], |_| {}).is_err(), "{length}");
        }
    }

    #[test]
    fn numbers_keep_their_values_or_are_left_out() {
        let most = (1_i64 << 61) - 1;
        for number in [0, 1, -1, most, -most - 1] {
            assert_eq!(Slim::int(number).plain(b""), Plain::Int(number));
        }
        for number in [most + 1, i64::MAX, i64::MIN] {
            assert_eq!(Slim::int(number).plain(b""), Plain::Other);
        }
    }

    #[test]
    fn no_opcode_takes_room_without_end() {
        for (head, again) in
            [(&b""[..], &b"("[..]), (b"", b"N"), (b"N", b"\x94"), (b"]\x94", b"h\0")]
        {
            let limit = usize::try_from(PICKLE_LIMIT_BYTES).expect("small");
            let bytes = [head, &again.repeat((limit - head.len()) / again.len())].concat();
            assert_eq!(skim(&bytes, |_| {}), Err(PickleError::TooMuch), "{}", again.escape_ascii());
        }
    }
}
