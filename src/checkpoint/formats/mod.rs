//! The formats: one file each, all behind [`Format`].
//!
//! A format says whose names it reads, whether what lies inside is its own, whether a checkpoint is
//! whole, and how its trainer is brought to load it. It reads a few small things through
//! [`Objects`]; it lists nothing and chooses nothing.

use super::names::{Kind, NameShape};
use super::objects::{Folder, Object, Objects, StoreError};
use crate::model::checkpoint::{Pin, Position, Tracker, Wholeness};
use crate::model::spec::CustomLayout;
use crate::model::step_pattern::PatternProblem;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::fmt;

mod accelerate;
mod colossalai;
mod composer;
mod custom;
mod dcp;
mod deepspeed;
mod dlrover;
mod easyckpt_megatron;
mod fsdp;
mod hf_trainer;
mod lightning;
mod megatron;
mod megatron_legacy;
mod megatron_torch_dist;
mod ms_swift_megatron;
mod nemo;
mod orbax;
pub(super) mod own_files;
mod parts;
mod verl;
mod weights;

/// A folder whose children are checkpoints.
#[derive(Debug, Clone)]
pub struct Root {
    /// Its path relative to the location.
    pub path: String,
    /// What lies directly in it; `None` where it lies outside the location and cannot be seen.
    pub folder: Option<Folder>,
}

/// One checkpoint and all that was listed of it.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Its name; `None` if it has none that is a step.
    pub name: String,
    /// Its path relative to the location.
    pub path: String,
    /// Its place in the format's order; `None` if no name says it.
    pub position: Option<Position>,
    /// Its objects, keys relative to it. A checkpoint that is a single file has one, with key "".
    pub objects: Vec<Object>,
    /// Why it cannot be looked into, if it cannot: it has no objects then.
    pub closed: Option<String>,
}

impl Checkpoint {
    /// The key of one of its objects, relative to the location.
    pub fn key(&self, object: &Object) -> String {
        if object.key.is_empty() {
            self.path.clone()
        } else {
            super::objects::join(&self.path, &object.key)
        }
    }
}

/// A checkpoint to be judged, and what may be compared with it.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// For small reads.
    pub objects: &'a Objects,
    /// The folder that holds it.
    pub root: &'a Root,
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// Others in the same root, newest first, as far as they were listed.
    pub siblings: &'a [&'a Checkpoint],
    /// Ranks of the job, where known.
    pub ranks: Option<u32>,
}

impl Case<'_> {
    /// Whether a sibling stands before this one in the format's order.
    fn is_older(&self, sibling: &Checkpoint) -> bool {
        sibling.position < self.checkpoint.position
    }
}

/// What a test said, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The word.
    pub wholeness: Wholeness,
    /// The reason, for people.
    pub why: String,
}

impl Judgement {
    fn whole(why: impl Into<String>) -> Self {
        Self { wholeness: Wholeness::Whole, why: why.into() }
    }

    fn torn(why: impl Into<String>) -> Self {
        Self { wholeness: Wholeness::Torn, why: why.into() }
    }

    /// Of what may not be looked into or read.
    pub(super) fn unreadable(why: impl Into<String>) -> Self {
        Self { wholeness: Wholeness::Unreadable, why: why.into() }
    }

    fn weights_only(why: impl Into<String>) -> Self {
        Self { wholeness: Wholeness::WeightsOnly, why: why.into() }
    }
}

/// How the trainer is brought to load a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumeWay {
    /// Template of the argument.
    pub argument: String,
    /// Whether it names the checkpoint.
    pub pin: Pin,
    /// What a person should know, if anything.
    pub note: Option<String>,
}

/// One way of writing checkpoints.
pub trait Format: fmt::Debug + Send + Sync {
    /// Its word in files, JSON and tables.
    fn word(&self) -> &'static str;

    /// How its checkpoints are named.
    fn shape(&self) -> NameShape;

    /// Other names that it writes.
    fn other_shapes(&self) -> Vec<NameShape> {
        Vec::new()
    }

    /// All its names.
    fn shapes(&self) -> Vec<NameShape> {
        std::iter::once(self.shape()).chain(self.other_shapes()).collect()
    }

    /// Whether it reads the names of a root of that shape.
    fn reads(&self, shape: &NameShape) -> bool {
        self.shapes().contains(shape)
    }

    /// Whether a name is one of its own.
    fn names(&self, name: &str, kind: Kind) -> bool {
        self.shapes().iter().any(|shape| shape.fits(name, kind))
    }

    /// Whether something in a checkpoint tells that a save came to its end. Where nothing does, the
    /// more there is to compare with, the better.
    fn marks_its_end(&self) -> bool {
        true
    }

    /// Formats whose names and files its word stands for as well.
    fn also(&self) -> &'static [&'static dyn Format] {
        &[]
    }

    /// Whether the checkpoints of a root are its own, by what lies inside the newest ones. Asked only
    /// where several may be meant.
    fn claims(&self, newest: &[&Checkpoint]) -> bool;

    /// Whether something in a checkpoint is this format's alone, and not what any script may call its
    /// files.
    fn is_sure(&self, _checkpoint: &Checkpoint) -> bool {
        true
    }

    /// Whether a folder is itself one of its checkpoints.
    fn is_checkpoint(&self, name: &str, folder: &Folder) -> bool;

    /// Whether a checkpoint is whole.
    fn judge<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<Judgement, StoreError>>;

    /// Checkpoints of a root that stand in a folder of it, by their names within the root.
    fn beside<'a>(
        &'a self,
        _objects: &'a Objects,
        _root: &'a Root,
    ) -> BoxFuture<'a, Result<Vec<String>, StoreError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    /// The root that the folder at `root` is such a folder of, by its path alone.
    fn owner(&self, _root: &str) -> Option<String> {
        None
    }

    /// The file that a save writes last, where times tell the checkpoints of an earlier run in the
    /// same folder from those of this one.
    fn written_last(&self) -> Option<&'static str> {
        None
    }

    /// Where a checkpoint whose name says nothing stands in the order, by what lies inside.
    fn position<'a>(
        &'a self,
        _case: Case<'a>,
    ) -> BoxFuture<'a, Result<Option<Position>, StoreError>> {
        std::future::ready(Ok(None)).boxed()
    }

    /// Where the tracker by which its trainer finds the newest one leads. Asked only where the
    /// trainer's own choice is not known to be this one.
    fn tracker<'a>(&'a self, _case: Case<'a>) -> BoxFuture<'a, Result<Tracker, StoreError>> {
        std::future::ready(Ok(Tracker::Fits)).boxed()
    }

    /// How the trainer loads a whole one.
    fn resume<'a>(&'a self, case: Case<'a>) -> BoxFuture<'a, Result<ResumeWay, StoreError>>;
}

/// All formats with a word of their own, in the order in which `auto` asks them.
pub static FORMATS: [&dyn Format; 19] = [
    &easyckpt_megatron::EasyCkptMegatron,
    &megatron_torch_dist::MegatronTorchDist,
    &megatron_legacy::MegatronLegacy,
    &deepspeed::DeepSpeed::Engine,
    &deepspeed::DeepSpeed::EasyCkpt,
    &dcp::Torchtitan,
    &dcp::TorchDcp,
    &ms_swift_megatron::MsSwiftMegatron,
    &hf_trainer::HfTrainer::MsSwift,
    &hf_trainer::HfTrainer::Plain,
    &hf_trainer::HfTrainer::LlamaFactory,
    &accelerate::Accelerate,
    &nemo::Nemo,
    &lightning::Lightning,
    &composer::Composer,
    &orbax::Orbax,
    &dlrover::Dlrover,
    &colossalai::ColossalAi,
    &verl::Verl,
];

/// Why a `format` cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// No such word.
    #[error("format `{word}` is not known; there are auto, custom, {}", words().join(", "))]
    Unknown {
        /// The word.
        word: String,
    },
    /// `custom` without a layout.
    #[error("format `custom` needs a pattern: add `--pattern`, or name a job whose file has one")]
    NoLayout,
    /// A pattern that is none.
    #[error(transparent)]
    Pattern(#[from] PatternProblem),
}

/// The words that `format` may be, besides `auto` and `custom`.
pub fn words() -> Vec<&'static str> {
    FORMATS.iter().map(|format| format.word()).collect()
}

/// What is looked for.
#[derive(Debug)]
pub enum Wanted {
    /// Whatever has a known shape.
    Auto,
    /// One of [`FORMATS`].
    Known(&'static dyn Format),
    /// A pattern.
    Custom(Box<dyn Format>),
}

impl Wanted {
    /// What `format` (and the layout, for `custom`) asks for.
    ///
    /// # Errors
    /// [`FormatError`] in words.
    pub fn read(format: &str, layout: Option<&CustomLayout>) -> Result<Self, FormatError> {
        match (format, layout) {
            ("auto", _) => Ok(Self::Auto),
            ("custom", Some(layout)) => Ok(Self::Custom(Box::new(custom::Custom::new(layout)?))),
            ("custom", None) => Err(FormatError::NoLayout),
            (word, _) => match FORMATS.iter().find(|format| format.word() == word) {
                Some(format) => Ok(Self::Known(*format)),
                None => Err(FormatError::Unknown { word: word.to_owned() }),
            },
        }
    }

    /// The formats that may be meant.
    pub fn formats(&self) -> Vec<&dyn Format> {
        match self {
            Self::Auto => FORMATS.to_vec(),
            Self::Known(format) => {
                std::iter::once(*format).chain(format.also().iter().copied()).collect()
            }
            Self::Custom(format) => vec![format.as_ref()],
        }
    }
}

/// What a pickle without zip, whose end cannot be told, means to a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pickles {
    /// Nobody can say whether the checkpoint is whole.
    Undecided,
    /// The format has other signs of being whole.
    Accepted,
}

/// The name of an object, for people.
fn shown<'a>(checkpoint: &'a Checkpoint, object: &'a Object) -> &'a str {
    if object.key.is_empty() { &checkpoint.name } else { &object.key }
}
