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
    /// Folders `epoch_N`: Accelerate's examples. Data sets are called so as well: such a folder counts
    /// only with something of a checkpoint in it.
    EpochUnderscore,
    /// Folders `epoch-E_step-S`: Colossal-AI.
    EpochStep,
    /// Files or folders with `step=N` in their names: Lightning, NeMo. Others of Lightning's names show
    /// no step (see [`NameShape::fits`]).
    StepEquals,
    /// Files or folders `epE-baB…`: Composer.
    EpochBatch,
    /// Folders named by a bare number: Orbax, dlrover. Data sets and runs are numbered as well: such
    /// a folder counts only with something of a checkpoint in it.
    Number,
    /// Folders `<prefix>_N` with Orbax' files in them, where the prefix is the person's own.
    Prefixed(String),
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
pub const SHAPES: [NameShape; 11] = [
    NameShape::Iteration,
    NameShape::CheckpointDash,
    NameShape::CheckpointUnderscore,
    NameShape::GlobalStep,
    NameShape::GlobalStepUnderscore,
    NameShape::Step,
    NameShape::EpochUnderscore,
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
            Self::EpochUnderscore => "Accelerate",
            Self::EpochStep => "Colossal-AI",
            Self::StepEquals => "Lightning or NeMo",
            Self::EpochBatch => "Composer",
            Self::Number => "Orbax or dlrover",
            Self::Prefixed(_) => "Orbax",
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
            | Self::EpochUnderscore
            | Self::StepEquals
            | Self::EpochBatch
            | Self::Number
            | Self::Prefixed(_)
            | Self::Custom(_) => false,
        }
    }

    /// Whether a name is one of this shape, also where the step stands only inside the file.
    pub fn fits(&self, name: &str, kind: Kind) -> bool {
        self.read(name, kind).is_some() || (*self == Self::StepEquals && is_stepless(name))
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
            Self::EpochUnderscore => folder.then(|| after("epoch_")).flatten().map(step),
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
            Self::Prefixed(prefix) => {
                let number = prefixed(name).filter(|(found, _)| found == prefix).map(|(_, n)| n);
                folder.then_some(number).flatten().map(step)
            }
            Self::Custom(pattern) => pattern.step_of(name).map(step),
        }
    }
}

/// Prefix and number of `<prefix>_N`.
pub fn prefixed(name: &str) -> Option<(&str, u64)> {
    let (prefix, number) = name.rsplit_once('_')?;
    Some((prefix, digits(number)?)).filter(|_| !prefix.is_empty() && !prefix.starts_with('.'))
}

/// `iter_0000100`: seven digits, more only without leading zeros, as `%07d` writes them.
fn iteration(name: &str) -> Option<u64> {
    let number = name.strip_prefix("iter_")?;
    let fits = number.len() == 7 || (number.len() > 7 && !number.starts_with('0'));
    fits.then(|| digits(number)).flatten()
}

/// `…step=30….ckpt`, or a folder of such a name. A measure may end in the same letters:
/// `step=30-loss_step=0.25.ckpt` is of step 30.
fn step_equals(name: &str) -> Option<u64> {
    if is_beside(stem(name)) {
        return None;
    }
    let found = name.match_indices("step=").filter_map(|(at, word)| {
        let (before, rest) = (&name[..at], &name[at + word.len()..]);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let fraction = rest[end..].strip_prefix('.').is_some_and(|r| r.starts_with(is_digit));
        let step = digits(&rest[..end]).filter(|_| !fraction)?;
        let is_own_word = before.is_empty()
            || before.ends_with(['-', '/', ' ', '.'])
            || before.ends_with("global_")
            || before.strip_suffix('_').is_some_and(|before| before.ends_with(is_digit));
        Some((is_own_word, step))
    });
    found.max_by_key(|(is_own_word, _)| *is_own_word).map(|(_, step)| step)
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn stem(name: &str) -> &str {
    name.strip_suffix(".ckpt").or_else(|| name.strip_suffix(".nemo")).unwrap_or(name)
}

/// NeMo's `-EMA` copy holds averaged weights and is loaded beside the checkpoint that it belongs to:
/// it is none by itself, and neither is a marker.
fn is_beside(stem: &str) -> bool {
    stem.ends_with("-unfinished") || stem.ends_with("-EMA")
}

/// Lightning's names without a step: `last.ckpt`, `last-v1.ckpt`, `hpc_ckpt_3.ckpt`, and what a
/// template of other words makes, `epoch=2-loss=0.31.ckpt`.
fn is_stepless(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    let Some(stem) = name.strip_suffix(".ckpt") else { return false };
    let is_last = stem == "last" || stem.strip_prefix("last-v").and_then(digits).is_some();
    let is_hpc = stem.strip_prefix("hpc_ckpt_").and_then(digits).is_some();
    is_last || is_hpc || (stem.contains('=') && !is_beside(stem))
}

/// The indices of a rank in the name of its folder: `mp_rank_01_003`, `tp_rank_01_pp_rank_003`.
pub fn rank_of(folder: &str) -> Option<Vec<u64>> {
    if let Some(ranks) = folder.strip_prefix("mp_rank_") {
        return ranks.split('_').map(digits).collect();
    }
    let (tensor, pipeline) = folder.strip_prefix("tp_rank_")?.split_once("_pp_rank_")?;
    Some(vec![digits(tensor)?, digits(pipeline)?])
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
            ("epoch_3", Kind::Folder, NameShape::EpochUnderscore, 0, 3),
            ("epoch=2-step=30-loss_step=0.25.ckpt", Kind::File, NameShape::StepEquals, 0, 30),
            ("epoch=2-step=30-loss_step=1.ckpt", Kind::File, NameShape::StepEquals, 0, 30),
            ("epoch=2_step=30_loss_step=1.ckpt", Kind::File, NameShape::StepEquals, 0, 30),
            ("loss_step=1-global_step=30.ckpt", Kind::File, NameShape::StepEquals, 0, 30),
            ("val/loss=0.25-step=30.ckpt", Kind::File, NameShape::StepEquals, 0, 30),
            ("epoch=2-step=30-val=loss=0.25.ckpt", Kind::File, NameShape::StepEquals, 0, 30),
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
    fn a_name_of_lightning_may_show_no_step() {
        let fits = |name: &str| {
            let step = NameShape::StepEquals.read(name, Kind::File);
            NameShape::StepEquals.fits(name, Kind::File) && step.is_none()
        };
        for name in [
            "last.ckpt",
            "last-v1.ckpt",
            "hpc_ckpt_3.ckpt",
            "epoch=2-loss=0.31.ckpt",
            "mp_rank_00/last.ckpt",
            "loss_step=0.25.ckpt",
        ] {
            assert!(fits(name), "{name}");
        }
        for name in ["last", "last-vx.ckpt", "hpc_ckpt_.ckpt", "v1-5.ckpt", "a=1", "a=1-EMA.ckpt"] {
            assert!(!fits(name), "{name}");
        }
    }

    #[test]
    fn a_rank_folder_names_its_indices() {
        assert_eq!(rank_of("mp_rank_01"), Some(vec![1]));
        assert_eq!(rank_of("mp_rank_01_003"), Some(vec![1, 3]));
        assert_eq!(rank_of("tp_rank_01_pp_rank_003"), Some(vec![1, 3]));
        for name in ["mp_rank_", "mp_rank_x", "tp_rank_01", "rank_1"] {
            assert_eq!(rank_of(name), None, "{name}");
        }
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
