//! An inert reader of Python pickles (protocols 2 to 5): it builds plain values and runs nothing.
//!
//! What always holds: a name in a pickle (`STACK_GLOBAL` and the like) stays a text and is never
//! looked up; no length found in the bytes is trusted before that many bytes are there; the room
//! that values take is limited, and no step recurses, so that no bytes can exhaust memory or the stack.
//! Values may refer to each other in circles: who walks them has to count.
//!
//! Facts: the opcodes of CPython's `pickletools`.

/// Bytes of the largest pickle that is read.
pub const PICKLE_LIMIT_BYTES: u64 = 24 * 1024 * 1024;
/// Room that all values of a pickle may take besides its bytes.
const ROOM_LIMIT_BYTES: usize = 32 * 1024 * 1024;
/// Values that may wait on the stack at one time, and marks: writers need some thousands.
const STACK_LIMIT: usize = 1_000_000;
/// What an allocation costs beyond its size.
const ALLOCATION: usize = 16;
/// What the first element of a list or dictionary reserves (room for four), and the two lists of an
/// object that is filled.
const FIRST: usize = 4 * size_of::<(Ref, Ref)>() + size_of::<Filling>() + 2 * ALLOCATION;

/// Where a value stands among those of its pickle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ref(u32);

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'a> {
    /// `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number of more than 64 bits.
    Huge,
    /// A number with a fraction.
    Float(f64),
    /// A text.
    Text(&'a str),
    /// Bytes, or an 8-bit string that is no text.
    Bytes(&'a [u8]),
    /// The name of something in Python; never looked up.
    Name(Box<(&'a str, &'a str)>),
    /// A tuple.
    Tuple(Box<[Ref]>),
    /// A list, a set or a frozen set.
    List(Box<Vec<Ref>>),
    /// A dictionary, in the order written.
    Dict(Box<Vec<(Ref, Ref)>>),
    /// What a call or a constructor would have made.
    Object(Box<Object>),
    /// Something that stands outside of the pickle, by its id: a tensor's bytes.
    Outside(Ref),
}

/// What a call or a constructor would have made.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// What would be called: usually a [`Value::Name`].
    pub class: Ref,
    /// With what.
    pub arguments: Ref,
    /// What would be set on it afterwards.
    pub state: Option<Ref>,
    /// What would be put into it: of most objects, nothing.
    filling: Option<Box<Filling>>,
}

/// What would be put into an object that is filled like a list or a dictionary.
#[derive(Debug, Clone, Default, PartialEq)]
struct Filling {
    items: Vec<Ref>,
    entries: Vec<(Ref, Ref)>,
}

/// Why bytes are no pickle that is read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PickleError {
    /// The bytes end before the pickle does.
    #[error("the pickle is cut")]
    Cut,
    /// An opcode that is not known, or one that does not fit what came before it.
    #[error("byte {at} is not what a pickle has there")]
    Malformed {
        /// Where.
        at: usize,
    },
    /// More than is read.
    #[error("the pickle would take more than {} MiB to read", ROOM_LIMIT_BYTES >> 20)]
    TooMuch,
}

/// A pickle that was read.
#[derive(Debug)]
pub struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: Ref,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle at the beginning of `bytes`.
    ///
    /// # Errors
    /// [`PickleError`].
    pub fn read(bytes: &'a [u8]) -> Result<Self, PickleError> {
        let mut machine = Machine {
            bytes,
            at: 0,
            values: Vec::new(),
            room: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
        };
        loop {
            if let Some(root) = machine.step()? {
                return Ok(Self { values: machine.values, root });
            }
        }
    }

    /// The whole value.
    pub fn root(&self) -> &Value<'a> {
        self.get(self.root)
    }

    /// A value.
    pub fn get(&self, reference: Ref) -> &Value<'a> {
        // References are made here only, for values that are there and stay.
        self.values.get(reference.0 as usize).unwrap_or(&Value::None)
    }

    /// What a dictionary, or an object's state, has under a text.
    pub fn field<'s>(&'s self, of: &'s Value<'a>, name: &str) -> Option<&'s Value<'a>> {
        self.entries(of)?
            .iter()
            .rev()
            .find(|(key, _)| *self.get(*key) == Value::Text(name))
            .map(|(_, value)| self.get(*value))
    }

    /// The entries of a dictionary, of an object that is filled like one, or of an object's state.
    pub fn entries<'s>(&'s self, of: &'s Value<'a>) -> Option<&'s [(Ref, Ref)]> {
        if let Value::Dict(entries) = of {
            return Some(entries.as_slice());
        }
        let Value::Object(object) = of else { return None };
        if let Some(Value::Dict(entries)) = object.state.map(|state| self.get(state)) {
            return Some(entries.as_slice());
        }
        let filling = object.filling.as_ref()?;
        Some(filling.entries.as_slice()).filter(|entries| !entries.is_empty())
    }

    /// Module and name of an object's class.
    pub fn class(&self, of: &Value<'a>) -> Option<(&'a str, &'a str)> {
        let Value::Object(object) = of else { return None };
        let Value::Name(name) = self.get(object.class) else { return None };
        Some(**name)
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value<'a>>,
    /// Bytes that everything built so far takes, at most.
    room: usize,
    stack: Vec<Ref>,
    marks: Vec<usize>,
    memo: Vec<Option<Ref>>,
}

impl<'a> Machine<'a> {
    /// Does one opcode; the whole value at the end.
    fn step(&mut self) -> Result<Option<Ref>, PickleError> {
        let opcode = self.byte()?;
        match opcode {
            // PROTO, FRAME: nothing that matters here.
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'J' | b'K' | b'M' | 0x8a | 0x8b | b'G' => self.number(opcode)?,
            b'X' | 0x8c | 0x8d | b'T' | b'U' | b'B' | b'C' | 0x8e | 0x96 => self.text(opcode)?,
            b'(' => self.mark()?,
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => {
                let top = *self.stack.last().ok_or_else(|| self.malformed())?;
                self.put(top)?;
            }
            b')' | 0x85..=0x87 | b't' => self.tuple(opcode)?,
            b']' | 0x8f => self.push(Value::List(Box::default()))?,
            b'l' | 0x91 => {
                let items = self.since_mark()?;
                self.push(Value::List(Box::new(items)))?;
            }
            b'}' => self.push(Value::Dict(Box::default()))?,
            b'd' => {
                let entries = pairs(&self.since_mark()?).ok_or_else(|| self.malformed())?;
                self.push(Value::Dict(Box::new(entries)))?;
            }
            b'a' | b'e' | 0x90 => self.append(opcode)?,
            b's' | b'u' => self.set_items(opcode)?,
            b'c' | 0x93 => self.name(opcode)?,
            b'R' | 0x81 | 0x92 => self.object(opcode)?,
            b'b' => self.build()?,
            b'Q' => {
                let id = self.pop()?;
                self.push(Value::Outside(id))?;
            }
            0x94 | b'q' | b'r' => self.remember(opcode)?,
            b'h' | b'j' => self.recall(opcode)?,
            b'.' => return self.pop().map(Some),
            _ => return Err(self.malformed()),
        }
        Ok(None)
    }

    fn malformed(&self) -> PickleError {
        PickleError::Malformed { at: self.at.saturating_sub(1) }
    }

    fn byte(&mut self) -> Result<u8, PickleError> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], PickleError> {
        let count = usize::try_from(count).map_err(|_| PickleError::Cut)?;
        let end = self.at.checked_add(count).ok_or(PickleError::Cut)?;
        let taken = self.bytes.get(self.at..end).ok_or(PickleError::Cut)?;
        self.at = end;
        Ok(taken)
    }

    /// A little-endian number of `width` bytes, at most 8.
    fn length(&mut self, width: u64) -> Result<u64, PickleError> {
        Ok(self.take(width)?.iter().rev().fold(0, |n, &byte| n << 8 | u64::from(byte)))
    }

    fn line(&mut self) -> Result<&'a str, PickleError> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|b| *b == b'\n').ok_or(PickleError::Cut)?;
        self.at += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|_| self.malformed())
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), PickleError> {
        let boxed = match &value {
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Huge
            | Value::Float(_)
            | Value::Text(_)
            | Value::Bytes(_)
            | Value::Outside(_) => 0,
            Value::Name(name) => size_of_val(&**name) + ALLOCATION,
            Value::Tuple(items) => size_of_val(&**items) + ALLOCATION,
            Value::List(items) => {
                size_of_val(&**items) + size_of_val(items.as_slice()) + 2 * ALLOCATION
            }
            Value::Dict(entries) => {
                size_of_val(&**entries) + size_of_val(entries.as_slice()) + 2 * ALLOCATION
            }
            Value::Object(object) => size_of_val(&**object) + ALLOCATION,
        };
        self.take_room(size_of::<Value<'_>>() + boxed)?;
        let reference = Ref(u32::try_from(self.values.len()).map_err(|_| PickleError::TooMuch)?);
        self.values.push(value);
        self.put(reference)
    }

    /// Puts a value on the stack; one that is taken again and again from the memo as well.
    fn put(&mut self, reference: Ref) -> Result<(), PickleError> {
        if self.stack.len() >= STACK_LIMIT {
            return Err(PickleError::TooMuch);
        }
        self.stack.push(reference);
        Ok(())
    }

    fn mark(&mut self) -> Result<(), PickleError> {
        if self.marks.len() >= STACK_LIMIT {
            return Err(PickleError::TooMuch);
        }
        self.marks.push(self.stack.len());
        Ok(())
    }

    fn take_room(&mut self, more: usize) -> Result<(), PickleError> {
        self.room = self.room.saturating_add(more);
        if self.room > ROOM_LIMIT_BYTES { Err(PickleError::TooMuch) } else { Ok(()) }
    }

    /// Room for `count` more elements of `size` bytes: a list grows by doubling.
    fn room_to_grow(
        &mut self,
        count: usize,
        size: usize,
        is_empty: bool,
    ) -> Result<(), PickleError> {
        let first = if is_empty && count > 0 { FIRST } else { 0 };
        self.take_room(count.saturating_mul(2 * size).saturating_add(first))
    }

    /// Takes the top of the stack, but not what stands below the last mark.
    fn pop(&mut self) -> Result<Ref, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return Err(self.malformed());
        }
        self.stack.pop().ok_or_else(|| self.malformed())
    }

    fn since_mark(&mut self) -> Result<Vec<Ref>, PickleError> {
        let mark = self.marks.pop().ok_or_else(|| self.malformed())?;
        if mark > self.stack.len() {
            return Err(self.malformed());
        }
        Ok(self.stack.split_off(mark))
    }

    fn number(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match opcode {
            b'J' => Value::Int(signed(self.take(4)?).unwrap_or_default()),
            b'K' => Value::Int(i64::from(self.byte()?)),
            b'M' => Value::Int(i64::try_from(self.length(2)?).unwrap_or_default()),
            b'G' => {
                let bytes = self.take(8)?.try_into().map_err(|_| PickleError::Cut)?;
                Value::Float(f64::from_be_bytes(bytes))
            }
            wide => {
                let width = self.length(if wide == 0x8a { 1 } else { 4 })?;
                signed(self.take(width)?).map_or(Value::Huge, Value::Int)
            }
        };
        self.push(value)
    }

    fn text(&mut self, opcode: u8) -> Result<(), PickleError> {
        let width = match opcode {
            0x8c | b'U' | b'C' => 1,
            b'X' | b'T' | b'B' => 4,
            _ => 8,
        };
        let length = self.length(width)?;
        let bytes = self.take(length)?;
        let is_text = matches!(opcode, b'X' | 0x8c | 0x8d | b'T' | b'U');
        let value = match std::str::from_utf8(bytes) {
            Ok(text) if is_text => Value::Text(text),
            Ok(_) | Err(_) => Value::Bytes(bytes),
        };
        self.push(value)
    }

    fn tuple(&mut self, opcode: u8) -> Result<(), PickleError> {
        let items = if opcode == b't' {
            self.since_mark()?
        } else {
            let count = if opcode == b')' { 0 } else { usize::from(opcode - 0x84) };
            let mut items = (0..count).map(|_| self.pop()).collect::<Result<Vec<_>, _>>()?;
            items.reverse();
            items
        };
        self.push(Value::Tuple(items.into()))
    }

    fn append(&mut self, opcode: u8) -> Result<(), PickleError> {
        let items = if opcode == b'a' { vec![self.pop()?] } else { self.since_mark()? };
        let malformed = self.malformed();
        let is_empty = items_of(self.top()?).ok_or(malformed)?.is_empty();
        self.room_to_grow(items.len(), size_of::<Ref>(), is_empty)?;
        items_of(self.top()?).ok_or(malformed)?.extend(items);
        Ok(())
    }

    fn set_items(&mut self, opcode: u8) -> Result<(), PickleError> {
        let flat = if opcode == b's' {
            let value = self.pop()?;
            vec![self.pop()?, value]
        } else {
            self.since_mark()?
        };
        let entries = pairs(&flat).ok_or_else(|| self.malformed())?;
        let malformed = self.malformed();
        let is_empty = entries_of(self.top()?).ok_or(malformed)?.is_empty();
        self.room_to_grow(entries.len(), size_of::<(Ref, Ref)>(), is_empty)?;
        entries_of(self.top()?).ok_or(malformed)?.extend(entries);
        Ok(())
    }

    fn top(&mut self) -> Result<&mut Value<'a>, PickleError> {
        let malformed = self.malformed();
        let top = *self.stack.last().ok_or(malformed)?;
        self.values.get_mut(top.0 as usize).ok_or(malformed)
    }

    fn name(&mut self, opcode: u8) -> Result<(), PickleError> {
        let name = if opcode == b'c' {
            (self.line()?, self.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            let text = |of: Ref| {
                let Some(Value::Text(text)) = self.values.get(of.0 as usize) else {
                    return Err(self.malformed());
                };
                Ok(*text)
            };
            (text(module)?, text(name)?)
        };
        self.push(Value::Name(Box::new(name)))
    }

    fn object(&mut self, opcode: u8) -> Result<(), PickleError> {
        if opcode == 0x92 {
            // NEWOBJ_EX has named arguments on top: nobody here asks for them.
            self.pop()?;
        }
        let arguments = self.pop()?;
        let class = self.pop()?;
        let object = Object { class, arguments, state: None, filling: None };
        self.push(Value::Object(Box::new(object)))
    }

    fn build(&mut self) -> Result<(), PickleError> {
        let state = self.pop()?;
        let malformed = self.malformed();
        let Value::Object(object) = self.top()? else { return Err(malformed) };
        object.state = Some(state);
        Ok(())
    }

    fn remember(&mut self, opcode: u8) -> Result<(), PickleError> {
        let at = match opcode {
            b'q' => usize::from(self.byte()?),
            b'r' => usize::try_from(self.length(4)?).map_err(|_| PickleError::TooMuch)?,
            _ => self.memo.len(),
        };
        let top = *self.stack.last().ok_or_else(|| self.malformed())?;
        // Writers count upwards: a leap would only be there to make room for nothing.
        if at > self.memo.len() + usize::from(u8::MAX) {
            return Err(self.malformed());
        }
        if at >= self.memo.len() {
            self.take_room((at + 1 - self.memo.len()) * size_of::<Option<Ref>>())?;
            self.memo.resize(at + 1, None);
        }
        self.memo[at] = Some(top);
        Ok(())
    }

    fn recall(&mut self, opcode: u8) -> Result<(), PickleError> {
        let at = self.length(if opcode == b'h' { 1 } else { 4 })?;
        let at = usize::try_from(at).map_err(|_| self.malformed())?;
        let found = self.memo.get(at).copied().flatten().ok_or_else(|| self.malformed())?;
        self.put(found)
    }
}

/// Where a list, or an object that is filled like one, keeps its items.
fn items_of<'v>(value: &'v mut Value<'_>) -> Option<&'v mut Vec<Ref>> {
    if let Value::List(list) = value {
        return Some(list);
    }
    let Value::Object(object) = value else { return None };
    Some(&mut object.filling.get_or_insert_default().items)
}

/// Where a dictionary, or an object that is filled like one, keeps its entries.
fn entries_of<'v>(value: &'v mut Value<'_>) -> Option<&'v mut Vec<(Ref, Ref)>> {
    if let Value::Dict(dict) = value {
        return Some(dict);
    }
    let Value::Object(object) = value else { return None };
    Some(&mut object.filling.get_or_insert_default().entries)
}

fn pairs(flat: &[Ref]) -> Option<Vec<(Ref, Ref)>> {
    flat.len().is_multiple_of(2).then(|| flat.chunks_exact(2).map(|p| (p[0], p[1])).collect())
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

    /// `{"a": [1, -2, 1 << 40], "b": (None, True), "c": mod.Thing(state {"n": 7})}` by hand.
    fn sample() -> Vec<u8> {
        let mut bytes = b"\x80\x04\x95\0\0\0\0\0\0\0\0}\x94(\x8c\x01a\x94]\x94(K\x01J".to_vec();
        bytes.extend((-2_i32).to_le_bytes());
        bytes.extend(b"\x8a\x06\0\0\0\0\0\x01e\x8c\x01bN\x88\x86\x94\x8c\x01c");
        bytes.extend(b"\x8c\x03mod\x8c\x05Thing\x93)\x81}\x8c\x01nK\x07sbu.");
        bytes
    }

    #[test]
    fn values_of_every_kind_are_read_and_nothing_is_run() {
        let bytes = sample();
        let pickle = Pickle::read(&bytes).expect("a pickle");
        let root = pickle.root();
        let Some(Value::List(list)) = pickle.field(root, "a") else { panic!("a list") };
        let numbers: Vec<_> = list.iter().map(|r| pickle.get(*r)).collect();
        assert_eq!(numbers, [&Value::Int(1), &Value::Int(-2), &Value::Int(1 << 40)]);
        let thing = pickle.field(root, "c").expect("an object");
        assert_eq!(pickle.class(thing), Some(("mod", "Thing")));
        assert_eq!(pickle.field(thing, "n"), Some(&Value::Int(7)));
        assert_eq!(pickle.field(thing, "m"), None);
    }

    #[test]
    fn every_cut_is_noticed() {
        let bytes = sample();
        for length in 0..bytes.len() {
            assert!(Pickle::read(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn what_no_writer_writes_is_refused() {
        for bytes in [
            &b"."[..],
            b"(.",
            b"]K\x01}s.",
            b"N)R0.",
            b"h\0.",
            b"Nr\xff\xff\xff\x7f.",
            b"X\xff\xff\xff\xffab.",
            b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff.",
            b"K\x01K\x02\x93.",
            b"}(K\x01u.",
            b"NNb.",
            b"K\x01(0.",
            b"\x00",
        ] {
            assert!(Pickle::read(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_bomb_of_references_ends_at_the_limit() {
        // A list in a tuple of itself, doubled for ever: 2 bytes a doubling on the stack.
        let mut bytes = b"]\x94".to_vec();
        bytes.extend(b"h\0".repeat(STACK_LIMIT + 1));
        assert!(matches!(Pickle::read(&bytes), Err(PickleError::TooMuch)));
    }

    #[test]
    fn no_opcode_takes_room_that_is_not_counted() {
        for (head, again) in [
            (&b""[..], &b"("[..]),
            (b"N", b"\x94"),
            (b"N", b"2"),
            (b"", b"N0"),
            (b"", b"]0"),
            (b"", b"]Na0"),
            (b"", b"}NNs0"),
            (b"", b"N)\x810"),
            (b"", b"N)\x81Na0"),
            (b"", b"N)\x81NNs0"),
            (b"", b"cm\nn\n0"),
            (b"", b"NNN\x870"),
            (b"]\x94", b"h\0a"),
            (b"}\x94", b"h\0h\0s"),
            (b"", b"(l0"),
            (b"", b"(d0"),
        ] {
            let mut bytes = head.to_vec();
            let limit = usize::try_from(PICKLE_LIMIT_BYTES).expect("small");
            bytes.extend(again.repeat((limit - head.len()) / again.len()));
            let told = Pickle::read(&bytes).map(drop);
            assert_eq!(told, Err(PickleError::TooMuch), "{}", again.escape_ascii());
        }
    }

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
