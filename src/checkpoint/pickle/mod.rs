//! An inert reader of Python pickles (protocols 2 to 5): it builds plain values and runs nothing.
//!
//! What always holds: a name in a pickle (`STACK_GLOBAL` and the like) stays a text and is never
//! looked up; no length found in the bytes is trusted before that many bytes are there; the room
//! that values take is limited, and no step recurses, so that no bytes can exhaust memory or the stack.
//! Values may refer to each other in circles: who walks them has to count.
//!
//! [`Pickle`] keeps all values; [`skim`] keeps none, and is for pickles of which only some entries are
//! asked. Facts: the opcodes of CPython's `pickletools`.

mod cursor;
mod machine;
mod skim;
mod texts;

use machine::Machine;
pub use skim::{Gather, Plain, Seen, Skim, Wish, skim};

/// Bytes of the largest pickle of which all values are kept.
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
    /// An opcode that is not known here: a later Python may write it.
    #[error("byte {at} is the opcode {opcode:#04x}, which is not known here")]
    Unknown {
        /// Where.
        at: usize,
        /// What stands there.
        opcode: u8,
    },
    /// More than is read.
    #[error("the pickle would take more than {} MiB to read", ROOM_LIMIT_BYTES >> 20)]
    TooMuch,
}

impl PickleError {
    /// The same in bytes that `passed` others came before.
    fn behind(self, passed: usize) -> Self {
        match self {
            Self::Malformed { at } => Self::Malformed { at: at + passed },
            Self::Unknown { at, opcode } => Self::Unknown { at: at + passed, opcode },
            Self::Cut | Self::TooMuch => self,
        }
    }
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
        let mut machine = Machine::new(bytes);
        loop {
            if let Some(root) = machine.step()? {
                return Ok(Self { values: machine.into_values(), root });
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
}
