//! The machine that builds a pickle's values, each in its place, and counts the room that they take.

use super::ALLOCATION;
use super::cursor::{Cursor, Number, Text};
use super::{FIRST, Object, PickleError, ROOM_LIMIT_BYTES, Ref, STACK_LIMIT, Value};

/// A machine that keeps every value.
pub(super) struct Machine<'a> {
    cursor: Cursor<'a>,
    values: Vec<Value<'a>>,
    /// Bytes that everything built so far takes, at most.
    room: usize,
    stack: Vec<Ref>,
    marks: Vec<usize>,
    memo: Vec<Option<Ref>>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self {
            cursor: Cursor::new(bytes),
            values: Vec::new(),
            room: 0,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: Vec::new(),
        }
    }

    /// All values, once the pickle has come to its end.
    pub(super) fn into_values(self) -> Vec<Value<'a>> {
        self.values
    }

    /// Does one opcode; the whole value at the end.
    pub(super) fn step(&mut self) -> Result<Option<Ref>, PickleError> {
        let opcode = self.cursor.byte()?;
        match opcode {
            // PROTO, FRAME: nothing that matters here.
            0x80 => drop(self.cursor.take(1)?),
            0x95 => drop(self.cursor.take(8)?),
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'J' | b'K' | b'M' | 0x8a | 0x8b | b'G' => self.number(opcode)?,
            b'X' | 0x8c | 0x8d | b'T' | b'U' | b'B' | b'C' | 0x8e | 0x96 => self.text(opcode)?,
            b'(' => self.mark()?,
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => {
                let top = *self.stack.last().ok_or_else(|| self.cursor.malformed())?;
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
                let entries = pairs(&self.since_mark()?).ok_or_else(|| self.cursor.malformed())?;
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
            _ => return Err(self.cursor.unknown(opcode)),
        }
        Ok(None)
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
            return Err(self.cursor.malformed());
        }
        self.stack.pop().ok_or_else(|| self.cursor.malformed())
    }

    fn since_mark(&mut self) -> Result<Vec<Ref>, PickleError> {
        let mark = self.marks.pop().ok_or_else(|| self.cursor.malformed())?;
        if mark > self.stack.len() {
            return Err(self.cursor.malformed());
        }
        Ok(self.stack.split_off(mark))
    }

    fn number(&mut self, opcode: u8) -> Result<(), PickleError> {
        let value = match self.cursor.number(opcode)? {
            Number::Whole(number) => Value::Int(number),
            Number::Huge => Value::Huge,
            Number::Float(number) => Value::Float(number),
        };
        self.push(value)
    }

    fn text(&mut self, opcode: u8) -> Result<(), PickleError> {
        let length = self.cursor.text_length(opcode)?;
        let value = match self.cursor.text(opcode, length)? {
            Text::Readable(text) => Value::Text(text),
            Text::Bytes(bytes) => Value::Bytes(bytes),
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
        let malformed = self.cursor.malformed();
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
        let entries = pairs(&flat).ok_or_else(|| self.cursor.malformed())?;
        let malformed = self.cursor.malformed();
        let is_empty = entries_of(self.top()?).ok_or(malformed)?.is_empty();
        self.room_to_grow(entries.len(), size_of::<(Ref, Ref)>(), is_empty)?;
        entries_of(self.top()?).ok_or(malformed)?.extend(entries);
        Ok(())
    }

    fn top(&mut self) -> Result<&mut Value<'a>, PickleError> {
        let malformed = self.cursor.malformed();
        let top = *self.stack.last().ok_or(malformed)?;
        self.values.get_mut(top.0 as usize).ok_or(malformed)
    }

    fn name(&mut self, opcode: u8) -> Result<(), PickleError> {
        let name = if opcode == b'c' {
            (self.cursor.line()?, self.cursor.line()?)
        } else {
            let (name, module) = (self.pop()?, self.pop()?);
            let text = |of: Ref| {
                let Some(Value::Text(text)) = self.values.get(of.0 as usize) else {
                    return Err(self.cursor.malformed());
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
        let malformed = self.cursor.malformed();
        let Value::Object(object) = self.top()? else { return Err(malformed) };
        object.state = Some(state);
        Ok(())
    }

    fn remember(&mut self, opcode: u8) -> Result<(), PickleError> {
        let at = match opcode {
            b'q' => usize::from(self.cursor.byte()?),
            b'r' => usize::try_from(self.cursor.length(4)?).map_err(|_| PickleError::TooMuch)?,
            _ => self.memo.len(),
        };
        let top = *self.stack.last().ok_or_else(|| self.cursor.malformed())?;
        // Writers count upwards: a leap would only be there to make room for nothing.
        if at > self.memo.len() + usize::from(u8::MAX) {
            return Err(self.cursor.malformed());
        }
        if at >= self.memo.len() {
            self.take_room((at + 1 - self.memo.len()) * size_of::<Option<Ref>>())?;
            self.memo.resize(at + 1, None);
        }
        self.memo[at] = Some(top);
        Ok(())
    }

    fn recall(&mut self, opcode: u8) -> Result<(), PickleError> {
        let at = self.cursor.length(if opcode == b'h' { 1 } else { 4 })?;
        let at = usize::try_from(at).map_err(|_| self.cursor.malformed())?;
        let found = self.memo.get(at).copied().flatten().ok_or_else(|| self.cursor.malformed())?;
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
