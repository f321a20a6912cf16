//! The texts of a pickle that are kept, each different one once.

use super::PickleError;
use super::skim::Wish;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Room that the texts may take, bytes.
const ROOM_LIMIT: usize = 6 * 1024 * 1024;
/// What keeping a text costs beyond its own bytes.
const COST: usize = 64;

/// A text among those that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextId(pub(super) u32);

impl TextId {
    /// One that is not kept.
    pub(super) const PASSED: Self = Self(u32::MAX);
    /// One that is not kept, and is of those that are asked for.
    pub(super) const ASKED_FOR: Self = Self(u32::MAX - 1);
}

/// The texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    all: Vec<Arc<str>>,
    ids: BTreeMap<Arc<str>, TextId>,
    room: usize,
}

impl Texts {
    /// Keeps a text as far as it is wanted.
    pub(super) fn keep(&mut self, text: &str, wish: Wish) -> Result<TextId, PickleError> {
        match wish {
            Wish::Keep => {}
            Wish::Flag => return Ok(TextId::ASKED_FOR),
            Wish::Pass => return Ok(TextId::PASSED),
        }
        if let Some(id) = self.ids.get(text) {
            return Ok(*id);
        }
        self.room += text.len() + COST;
        if self.room > ROOM_LIMIT {
            return Err(PickleError::TooMuch);
        }
        let id = TextId(u32::try_from(self.all.len()).map_err(|_| PickleError::TooMuch)?);
        let text: Arc<str> = text.into();
        self.all.push(Arc::clone(&text));
        self.ids.insert(text, id);
        Ok(id)
    }

    /// A text; empty where it is not kept.
    pub(super) fn get(&self, id: TextId) -> &str {
        usize::try_from(id.0).ok().and_then(|at| self.all.get(at)).map_or("", |text| text)
    }
}
