//! A run through a pickle that keeps no values: it shows each group of entries that is put into a
//! dictionary, and each class of which an object is made. The pickle comes in pieces of any length.
//!
//! What is kept is the stack, the texts that are asked for, and where in the memo these stand: lists,
//! dictionaries and objects are not told apart. All of it together is at most some 30 MiB.

use super::cursor::{Cursor, Number, Text};
use super::texts::{TextId, Texts};
use super::{PickleError, STACK_LIMIT};
use std::collections::BTreeMap;

/// Texts in the memo that may be kept at one time. Writers remember each text once.
const MEMO_LIMIT: usize = 1024 * 1024;
/// Bytes of the longest text that is looked at, and of the longest opcode.
const LONGEST: usize = 64 * 1024;
/// Values of the largest group of entries that is shown together. Python puts a thousand entries into a
/// dictionary at one time.
const GROUP: usize = 2 * 1_000;

/// What is known of a value that is passed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain<'a> {
    /// A text.
    Text(&'a str),
    /// A text that is not kept, and is one of those that are asked for.
    AskedFor,
    /// Any other text that is not kept, where it is written in full.
    Passed,
    /// A whole number of at most 62 bits.
    Int(i64),
    /// Anything else.
    Other,
}

/// How much of a text is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// All of it.
    Keep,
    /// That it is one of those that are asked for.
    Flag,
    /// Nothing. Where it is written once more by its place in the memo it is [`Plain::Other`].
    Pass,
}

/// What is passed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen<'s> {
    /// Entries that are put into one dictionary together.
    Entries(&'s [(Plain<'s>, Plain<'s>)]),
    /// An object is made of a class of this name.
    Made(&'s str),
}

/// What gathers from a pickle.
pub trait Gather {
    /// How much of a text is wanted.
    fn wish(&mut self, text: &str) -> Wish;

    /// Takes what is passed by.
    fn see(&mut self, seen: Seen<'_>);
}

/// Shows everything.
struct Show<F>(F);

impl<F: FnMut(Seen<'_>)> Gather for Show<F> {
    fn wish(&mut self, _text: &str) -> Wish {
        Wish::Keep
    }

    fn see(&mut self, seen: Seen<'_>) {
        (self.0)(seen);
    }
}

/// Runs through the pickle at the beginning of `bytes`.
///
/// # Errors
/// [`PickleError`].
pub fn skim(bytes: &[u8], seen: impl FnMut(Seen<'_>)) -> Result<(), PickleError> {
    let mut skim = Skim::new(Show(seen));
    skim.take(bytes)?;
    skim.end().map(drop)
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

    fn text(id: TextId) -> Self {
        Self(u64::from(id.0) << 2 | Self::TEXT)
    }

    /// The same text as the name of something in Python.
    fn named(self) -> Self {
        Self(self.0 | Self::NAME)
    }

    fn is_text(self) -> bool {
        self.0 & Self::KIND == Self::TEXT
    }

    fn is_name(self) -> bool {
        self.0 & Self::KIND == Self::NAME
    }

    /// Of a text or a name.
    fn id(self) -> TextId {
        TextId(u32::try_from(self.0 >> 2).unwrap_or(TextId::PASSED.0))
    }

    fn plain(self, texts: &Texts) -> Plain<'_> {
        match self.0 & Self::KIND {
            Self::INT => Plain::Int(self.0.cast_signed() >> 2),
            Self::TEXT => match self.id() {
                TextId::PASSED => Plain::Passed,
                TextId::ASKED_FOR => Plain::AskedFor,
                id => Plain::Text(texts.get(id)),
            },
            _ => Plain::Other,
        }
    }
}

/// A run through a pickle that comes in pieces.
#[derive(Debug)]
pub struct Skim<G> {
    gather: G,
    stack: Vec<Slim>,
    marks: Vec<usize>,
    /// How many values were remembered, and those of them that are texts.
    remembered: usize,
    memo: BTreeMap<u32, Slim>,
    texts: Texts,
    /// Bytes of an opcode that is not there to its end.
    begun: Vec<u8>,
    /// Bytes to come that are passed by, and bytes that were.
    skipped: u64,
    passed: usize,
    is_ended: bool,
}

impl<G: Gather> Skim<G> {
    /// Before the first piece.
    pub fn new(gather: G) -> Self {
        Self {
            gather,
            stack: Vec::new(),
            marks: Vec::new(),
            remembered: 0,
            memo: BTreeMap::new(),
            texts: Texts::default(),
            begun: Vec::new(),
            skipped: 0,
            passed: 0,
            is_ended: false,
        }
    }

    /// Takes the next piece. What follows the end of the pickle is passed by.
    ///
    /// # Errors
    /// [`PickleError`]; never for a cut, which only the end shows.
    pub fn take(&mut self, piece: &[u8]) -> Result<(), PickleError> {
        if self.begun.is_empty() {
            return self.run(piece);
        }
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(piece);
        self.run(&bytes)
    }

    /// After the last piece: what was gathered.
    ///
    /// # Errors
    /// The pickle did not come to its end.
    pub fn end(self) -> Result<G, PickleError> {
        if self.is_ended { Ok(self.gather) } else { Err(PickleError::Cut) }
    }

    fn run(&mut self, bytes: &[u8]) -> Result<(), PickleError> {
        let mut rest = bytes;
        while !self.is_ended {
            let passed = usize::try_from(self.skipped).unwrap_or(usize::MAX).min(rest.len());
            self.skipped -= passed as u64;
            self.passed += passed;
            rest = &rest[passed..];
            let mut cursor = Cursor::new(rest);
            match self.step(&mut cursor) {
                Ok(()) => {
                    self.passed += cursor.at();
                    rest = &rest[cursor.at()..];
                }
                Err(PickleError::Cut) if rest.len() <= LONGEST + 9 => {
                    self.begun = rest.to_vec();
                    return Ok(());
                }
                Err(PickleError::Cut) => return Err(PickleError::TooMuch),
                Err(error) => return Err(error.behind(self.passed)),
            }
        }
        Ok(())
    }

    /// Does one opcode. Where its bytes are not all there it leaves everything as it was.
    fn step(&mut self, cursor: &mut Cursor<'_>) -> Result<(), PickleError> {
        let opcode = cursor.byte()?;
        match opcode {
            // PROTO, FRAME: nothing that matters here.
            0x80 => drop(cursor.take(1)?),
            0x95 => drop(cursor.take(8)?),
            b'N' | 0x88 | 0x89 | b')' | b']' | 0x8f | b'}' => self.push(Slim::OTHER)?,
            b'J' | b'K' | b'M' | 0x8a | 0x8b | b'G' => {
                let number = match cursor.number(opcode)? {
                    Number::Whole(number) => Slim::int(number),
                    Number::Huge | Number::Float(_) => Slim::OTHER,
                };
                self.push(number)?;
            }
            b'X' | 0x8c | 0x8d | b'T' | b'U' | b'B' | b'C' | 0x8e | 0x96 => {
                self.text(cursor, opcode)?;
            }
            b'(' => self.mark()?,
            b'0' => drop(self.pop(cursor)?),
            b'1' => drop(self.since_mark(cursor)?),
            b'2' => self.push(self.top(cursor)?)?,
            0x85..=0x87 => self.replace(cursor, usize::from(opcode - 0x84))?,
            b't' | b'l' | 0x91 => {
                self.since_mark(cursor)?;
                self.push(Slim::OTHER)?;
            }
            b'd' => {
                let flat = self.since_mark(cursor)?;
                self.show(cursor, &flat)?;
                self.push(Slim::OTHER)?;
            }
            b'a' | b'b' => {
                self.pop(cursor)?;
                self.top(cursor)?;
            }
            b'e' | 0x90 => {
                self.since_mark(cursor)?;
                self.top(cursor)?;
            }
            b's' | b'u' => self.set_items(cursor, opcode)?,
            b'c' | 0x93 => self.name(cursor, opcode)?,
            b'R' | 0x81 | 0x92 => self.object(cursor, opcode)?,
            b'Q' => self.replace(cursor, 1)?,
            0x94 | b'q' | b'r' => self.remember(cursor, opcode)?,
            b'h' | b'j' => self.recall(cursor, opcode)?,
            b'.' => {
                self.pop(cursor)?;
                self.is_ended = true;
            }
            _ => return Err(cursor.unknown(opcode)),
        }
        Ok(())
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
    fn pop(&mut self, cursor: &Cursor<'_>) -> Result<Slim, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(cursor.malformed());
        }
        self.stack.pop().ok_or_else(|| cursor.malformed())
    }

    fn top(&self, cursor: &Cursor<'_>) -> Result<Slim, PickleError> {
        self.stack.last().copied().ok_or_else(|| cursor.malformed())
    }

    fn since_mark(&mut self, cursor: &Cursor<'_>) -> Result<Vec<Slim>, PickleError> {
        let mark = self.marks.pop().ok_or_else(|| cursor.malformed())?;
        if mark > self.stack.len() {
            return Err(cursor.malformed());
        }
        Ok(self.stack.split_off(mark))
    }

    /// Something in the place of the `count` values on top.
    fn replace(&mut self, cursor: &Cursor<'_>, count: usize) -> Result<(), PickleError> {
        for _ in 0..count {
            self.pop(cursor)?;
        }
        self.push(Slim::OTHER)
    }

    fn text(&mut self, cursor: &mut Cursor<'_>, opcode: u8) -> Result<(), PickleError> {
        let length = cursor.text_length(opcode)?;
        if length > LONGEST as u64 {
            self.push(Slim::OTHER)?;
            self.skipped = length;
            return Ok(());
        }
        let value = match cursor.text(opcode, length)? {
            Text::Readable(text) => Slim::text(self.texts.keep(text, self.gather.wish(text))?),
            Text::Bytes(_) => Slim::OTHER,
        };
        self.push(value)
    }

    fn show(&mut self, cursor: &Cursor<'_>, flat: &[Slim]) -> Result<(), PickleError> {
        if !flat.len().is_multiple_of(2) {
            return Err(cursor.malformed());
        }
        for group in flat.chunks(GROUP) {
            let plain = |value: Slim| value.plain(&self.texts);
            let entries: Vec<_> =
                group.chunks_exact(2).map(|pair| (plain(pair[0]), plain(pair[1]))).collect();
            self.gather.see(Seen::Entries(&entries));
        }
        Ok(())
    }

    fn set_items(&mut self, cursor: &Cursor<'_>, opcode: u8) -> Result<(), PickleError> {
        let flat = if opcode == b's' {
            let value = self.pop(cursor)?;
            vec![self.pop(cursor)?, value]
        } else {
            self.since_mark(cursor)?
        };
        self.top(cursor)?;
        self.show(cursor, &flat)
    }

    fn name(&mut self, cursor: &mut Cursor<'_>, opcode: u8) -> Result<(), PickleError> {
        let name = if opcode == b'c' {
            cursor.line()?;
            let name = cursor.line()?;
            Slim::text(self.texts.keep(name, self.gather.wish(name))?)
        } else {
            let (name, _module) = (self.pop(cursor)?, self.pop(cursor)?);
            // A text that was passed by may come back by its place in the memo.
            if name.is_text() { name } else { Slim::text(TextId::PASSED) }
        };
        self.push(name.named())
    }

    fn object(&mut self, cursor: &Cursor<'_>, opcode: u8) -> Result<(), PickleError> {
        if opcode == 0x92 {
            self.pop(cursor)?;
        }
        self.pop(cursor)?;
        let class = self.pop(cursor)?;
        if class.is_name() {
            self.gather.see(Seen::Made(self.texts.get(class.id())));
        }
        self.push(Slim::OTHER)
    }

    fn remember(&mut self, cursor: &mut Cursor<'_>, opcode: u8) -> Result<(), PickleError> {
        let at = match opcode {
            b'q' => usize::from(cursor.byte()?),
            b'r' => usize::try_from(cursor.length(4)?).map_err(|_| PickleError::TooMuch)?,
            _ => self.remembered,
        };
        let top = self.top(cursor)?;
        // Writers count upwards: a leap would only be there to make room for nothing.
        if at > self.remembered + usize::from(u8::MAX) {
            return Err(cursor.malformed());
        }
        let is_new = at >= self.remembered;
        self.remembered = self.remembered.max(at + 1);
        let at = u32::try_from(at).map_err(|_| PickleError::TooMuch)?;
        if top.is_text() && top.id() != TextId::PASSED || top.is_name() {
            if self.memo.len() >= MEMO_LIMIT {
                return Err(PickleError::TooMuch);
            }
            self.memo.insert(at, top);
        } else if !is_new {
            self.memo.remove(&at);
        }
        Ok(())
    }

    fn recall(&mut self, cursor: &mut Cursor<'_>, opcode: u8) -> Result<(), PickleError> {
        let at = cursor.length(if opcode == b'h' { 1 } else { 4 })?;
        if usize::try_from(at).map_or(true, |at| at >= self.remembered) {
            return Err(cursor.malformed());
        }
        let found = u32::try_from(at).ok().and_then(|at| self.memo.get(&at)).copied();
        self.push(found.unwrap_or(Slim::OTHER))
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
    fn every_cut_is_noticed_and_pieces_are_put_together() {
        for length in 0..SAMPLE.len() {
            assert_eq!(skim(&SAMPLE[..length], |_| {}), Err(PickleError::Cut), "{length}");
        }
        for piece in 1..SAMPLE.len() {
            let mut told = 0;
            let mut skim = Skim::new(Show(|_: Seen<'_>| told += 1));
            for piece in SAMPLE.chunks(piece) {
                skim.take(piece).expect("no error");
            }
            skim.end().expect("its end");
            assert_eq!(told, 3, "{piece}");
        }
    }

    impl Gather for Option<Vec<String>> {
        fn wish(&mut self, text: &str) -> Wish {
            match text {
                "a" => Wish::Flag,
                "b" => Wish::Pass,
                _ => Wish::Keep,
            }
        }

        fn see(&mut self, seen: Seen<'_>) {
            if let (Seen::Entries(entries), Some(told)) = (seen, self) {
                told.push(format!("{entries:?}"));
            }
        }
    }

    #[test]
    fn texts_are_kept_as_far_as_they_are_wanted() {
        let mut skim = Skim::new(Some(Vec::new()));
        skim.take(SAMPLE).expect("a pickle");
        let told = skim.end().expect("its end").unwrap_or_default();
        assert_eq!(told[1], "[(AskedFor, Int(7)), (Passed, Other), (AskedFor, Other)]");
        // A long text is passed by, wherever the pieces end.
        let mut long = b"}\x8c\x01aX".to_vec();
        long.extend(300_000_u32.to_le_bytes());
        long.resize(long.len() + 300_000, b'x');
        long.extend(b"s.");
        let mut skim = Skim::new(Some(Vec::new()));
        for piece in long.chunks(100_001) {
            skim.take(piece).expect("a pickle");
            assert!(skim.begun.len() <= LONGEST + 9);
        }
        let told = skim.end().expect("its end").unwrap_or_default();
        assert_eq!(told, ["[(AskedFor, Other)]"]);
    }

    #[test]
    fn what_no_python_of_today_writes_is_unknown_and_a_hole_is_none() {
        assert_eq!(
            skim(b"\x80\x04N\xa7.", |_| {}),
            Err(PickleError::Unknown { at: 3, opcode: 0xa7 })
        );
        assert_eq!(skim(b"\x80\x04N\0\0.", |_| {}), Err(PickleError::Malformed { at: 3 }));
    }

    #[test]
    fn numbers_keep_their_values_or_are_left_out() {
        let most = (1_i64 << 61) - 1;
        for number in [0, 1, -1, most, -most - 1] {
            assert_eq!(Slim::int(number).plain(&Texts::default()), Plain::Int(number));
        }
        for number in [most + 1, i64::MAX, i64::MIN] {
            assert_eq!(Slim::int(number).plain(&Texts::default()), Plain::Other);
        }
    }

    #[test]
    fn no_opcode_takes_room_without_end() {
        for (head, again) in [(&b""[..], &b"("[..]), (b"", b"N"), (b"]\x94", b"h\0")] {
            let limit = usize::try_from(PICKLE_LIMIT_BYTES).expect("small");
            let bytes = [head, &again.repeat((limit - head.len()) / again.len())].concat();
            assert_eq!(skim(&bytes, |_| {}), Err(PickleError::TooMuch), "{}", again.escape_ascii());
        }
        // Texts that are all different, and one that is remembered again and again.
        let mut texts = Vec::new();
        for n in 0..200_000_u32 {
            texts.extend(b"\x8c\x08");
            texts.extend(format!("{n:08}").bytes());
            texts.push(b'0');
        }
        assert_eq!(skim(&texts, |_| {}), Err(PickleError::TooMuch));
        let again = [&b"\x8c\x01a"[..], &b"\x94".repeat(MEMO_LIMIT + 1)].concat();
        assert_eq!(skim(&again, |_| {}), Err(PickleError::TooMuch));
    }
}
