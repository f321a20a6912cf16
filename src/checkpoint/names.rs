//! Shapes of names: by which a folder of checkpoints is known, whatever wrote it.
//!
//! Every trainer's shape stands here, also of those whose checkpoints cannot be tested: a folder of
//! theirs must be recognised as theirs, so that it is never taken for another's or for empty.
//! Numbers are read as numbers: byte order puts 1000 before 900.

use crate::model::checkpoint::Position;
use crate::model::step_pattern::{StepPattern, digits};

/// A way of naming checkpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameShape {
    /// Folders `iter_%07d`: Megatron, EasyCkpt, dlrover.
    Iteration,
    /// Folders `checkpoint-N`: the Hugging Face Trainer, LLaMA-Factory, ms-swift.
    CheckpointDash,
    /// Folders `checkpoint_N`: Accelerate. N counts saves.
    CheckpointUnderscore,
    /// Folders `global_stepN`: DeepSpeed.
    GlobalStep,
    /// Folders `global_step_N`: verl.
    GlobalStepUnderscore,
    /// Folders `step-N` or `step_N`: torchtitan and other DCP trainers.
    Step,
    /// Folders `epoch-E_step-S`: Colossal-AI.
    EpochStep,
    /// Files or folders with `step=N` in their names: Lightning, NeMo.
    StepEquals,
    /// Files or folders `epE-baB…`: Composer.
    EpochBatch,
    /// Folders named by a bare number: Orbax, dlrover. Data sets and runs are numbered as well: such
    /// a folder counts only with something of a checkpoint in it.
    Number,
    /// A pattern of the person's own.
    Custom(StepPattern),
}

/// What stands in a folder under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A folder.
    Folder,
    /// A single object.
    File,
}

/// The shapes that `auto` looks for.
pub const SHAPES: [NameShape; 10] = [
    NameShape::Iteration,
    NameShape::CheckpointDash,
    NameShape::CheckpointUnderscore,
    NameShape::GlobalStep,
    NameShape::GlobalStepUnderscore,
    NameShape::Step,
    NameShape::EpochStep,
    NameShape::StepEquals,
    NameShape::EpochBatch,
    NameShape::Number,
];

impl NameShape {
    /// Whose names these are, for people.
    pub fn whose(&self) -> &'static str {
        match self {
            Self::Iteration => "Megatron",
            Self::CheckpointDash => "the Hugging Face Trainer",
            Self::CheckpointUnderscore => "Accelerate",
            Self::GlobalStep => "DeepSpeed",
            Self::GlobalStepUnderscore => "verl",
            Self::Step => "torchtitan or another DCP trainer",
            Self::EpochStep => "Colossal-AI",
            Self::StepEquals => "Lightning or NeMo",
            Self::EpochBatch => "Composer",
            Self::Number => "Orbax or dlrover",
            Self::Custom(_) => "the pattern",
        }
    }

    /// Whether the step starts anew in each epoch.
    pub fn has_epochs(&self) -> bool {
        match self {
            Self::EpochStep => true,
            Self::Iteration
            | Self::CheckpointDash
            | Self::CheckpointUnderscore
            | Self::GlobalStep
            | Self::GlobalStepUnderscore
            | Self::Step
            | Self::StepEquals
            | Self::EpochBatch
            | Self::Number
            | Self::Custom(_) => false,
        }
    }

    /// Where a name of this shape stands in its order; `None` if it is not one.
    pub fn read(&self, name: &str, kind: Kind) -> Option<Position> {
        let folder = kind == Kind::Folder;
        let step = |step: u64| Position { epoch: 0, step };
        let after = |word: &str| digits(name.strip_prefix(word)?);
        match self {
            Self::Iteration => folder.then(|| iteration(name)).flatten().map(step),
            Self::CheckpointDash => folder.then(|| after("checkpoint-")).flatten().map(step),
            Self::CheckpointUnderscore => folder.then(|| after("checkpoint_")).flatten().map(step),
            Self::GlobalStep => folder.then(|| after("global_step")).flatten().map(step),
            Self::GlobalStepUnderscore => folder.then(|| after("global_step_")).flatten().map(step),
            Self::Step => {
                folder.then(|| after("step-").or_else(|| after("step_"))).flatten().map(step)
            }
            Self::EpochStep => {
                let (epoch, rest) = name.strip_prefix("epoch-")?.split_once("_step-")?;
                let position = Position { epoch: digits(epoch)?, step: digits(rest)? };
                folder.then_some(position)
            }
            Self::StepEquals => step_equals(name).map(step),
            Self::EpochBatch => {
                let (epoch, rest) = name.strip_prefix("ep")?.split_once("-ba")?;
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                // The other ranks' files are parts of what rank 0's stands for.
                let other_rank =
                    rest[end..].strip_prefix("-rank").is_some_and(|r| !r.starts_with("0."));
                let position = Position { epoch: digits(epoch)?, step: digits(&rest[..end])? };
                (!other_rank).then_some(position)
            }
            Self::Number => folder.then(|| digits(name)).flatten().map(step),
            Self::Custom(pattern) => pattern.step_of(name).map(step),
        }
    }
}

/// `iter_0000100`: seven digits, more only without leading zeros, as `%07d` writes them.
fn iteration(name: &str) -> Option<u64> {
    let number = name.strip_prefix("iter_")?;
    let fits = number.len() == 7 || (number.len() > 7 && !number.starts_with('0'));
    fits.then(|| digits(number)).flatten()
}

/// `…step=30….ckpt`, or a folder of such a name. NeMo's `-EMA` copy holds averaged weights and is
/// loaded beside the checkpoint that it belongs to: it is none by itself.
fn step_equals(name: &str) -> Option<u64> {
    let rest = name.rsplit_once("step=")?.1;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let stem = name.strip_suffix(".ckpt").or_else(|| name.strip_suffix(".nemo")).unwrap_or(name);
    let is_other = stem.ends_with("-unfinished") || stem.ends_with("-EMA");
    if is_other { None } else { digits(&rest[..end]) }
}

/// A root's path with what a new launch changes taken out (`v3-20260301-080000`, `version_3`), and
/// the numbers of these launches. Roots with the same text are one run.
pub fn launches(root: &str) -> (String, Vec<u64>) {
    let mut numbers = Vec::new();
    let parts: Vec<&str> = root
        .split('/')
        .map(|part| match launch(part) {
            Some(number) => {
                numbers.push(number);
                "<launch>"
            }
            None => part,
        })
        .collect();
    (parts.join("/"), numbers)
}

fn launch(part: &str) -> Option<u64> {
    if let Some(number) = part.strip_prefix("version_") {
        return digits(number);
    }
    let (number, time) = part.strip_prefix('v')?.split_once('-')?;
    let is_time = !time.is_empty() && time.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    is_time.then(|| digits(number)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes_of(name: &str, kind: Kind) -> Vec<(NameShape, u64, u64)> {
        let read =
            |shape: &NameShape| shape.read(name, kind).map(|p| (shape.clone(), p.epoch, p.step));
        SHAPES.iter().filter_map(read).collect()
    }

    #[test]
    fn each_name_has_one_shape() {
        for (name, kind, shape, epoch, step) in [
            ("iter_0000100", Kind::Folder, NameShape::Iteration, 0, 100),
            ("iter_12345678", Kind::Folder, NameShape::Iteration, 0, 12_345_678),
            ("checkpoint-1000", Kind::Folder, NameShape::CheckpointDash, 0, 1000),
            ("checkpoint_10", Kind::Folder, NameShape::CheckpointUnderscore, 0, 10),
            ("global_step90", Kind::Folder, NameShape::GlobalStep, 0, 90),
            ("global_step_90", Kind::Folder, NameShape::GlobalStepUnderscore, 0, 90),
            ("step-300", Kind::Folder, NameShape::Step, 0, 300),
            ("epoch-1_step-100", Kind::Folder, NameShape::EpochStep, 1, 100),
            ("epoch=2-step=30.ckpt", Kind::File, NameShape::StepEquals, 0, 30),
            ("g--step=199-x=1.0-last", Kind::Folder, NameShape::StepEquals, 0, 199),
            ("ep0-ba1000-rank0.pt", Kind::File, NameShape::EpochBatch, 0, 1000),
        ] {
            assert_eq!(shapes_of(name, kind), [(shape, epoch, step)], "{name}");
        }
        for name in [
            "iter_100",
            "iter_00000100",
            "iter_0000100x",
            "iter_",
            "run_1",
            "checkpoint-",
            "release",
            "checkpoint-9-tmp",
            "tmp-checkpoint-30",
            "step=9-unfinished",
            "step=9-last-EMA.ckpt",
            "checkpoint-+9",
            "epoch-1",
            "iter_99999999999999999999999",
        ] {
            assert_eq!(shapes_of(name, Kind::Folder), [], "{name}");
        }
        assert_eq!(shapes_of("iter_0000100", Kind::File), []);
    }

    #[test]
    fn roots_of_several_launches_are_one_run() {
        let run = |root: &str| launches(root).0;
        assert_eq!(run("out/v10-20260311-101500"), run("out/v9-20260310-183000"));
        assert_eq!(run("logs/version_0/checkpoints"), run("logs/version_12/checkpoints"));
        assert_eq!(launches("out/v10-20260311-101500").1, [10]);
        assert_ne!(run("runs/alpha"), run("runs/beta"));
        assert_ne!(run("out/v1"), run("out/v2"));
        assert_ne!(run("out/v1-a"), run("out/v2-b"));
        assert_ne!(run("a/version_0"), run("b/version_0"));
    }
}
