//! What is known of trainers that UserCommand names and that lose work in silence: advice, never an
//! error. Facts: the sources of Megatron-LM (2026-08), NeMo 3.0, Composer 0.32 and transformers 5.24.
//!
//! Always holds: the command is read word by word, as sh cuts it; a word inside a longer one says
//! nothing. To add a trainer: a line in [`ADVICE`], one bad and one good command in
//! tests/world/config/platform.rs.

use super::body::Body;
use super::codes;
use crate::model::command_words::{is_option, words};

/// What one trainer does, and what mends it.
struct Advice {
    /// Whether the words of command and resume argument are those of such a trainer.
    is_meant: fn(&Words) -> bool,
    message: &'static str,
    mend: &'static str,
}

const ADVICE: &[Advice] = &[
    Advice {
        is_meant: |words| {
            words.has_script("pretrain_")
                && words.has_option("--load")
                && !words.has_option("--exit-on-missing-checkpoint")
        },
        message: "Megatron starts at zero in silence where `--load` finds no checkpoint",
        mend: "add --exit-on-missing-checkpoint to `resume`, such as resume = \"--load {root} \
               --ckpt-step {step} --exit-on-missing-checkpoint\"; in UserCommand it would stop the \
               first start too",
    },
    Advice {
        is_meant: |words| words.is_on("exp_manager.resume_ignore_no_checkpoint"),
        message: "NeMo starts at zero in silence where it finds no checkpoint",
        mend: "take exp_manager.resume_ignore_no_checkpoint out of resumed attempts: put it off in \
               `resume`",
    },
    Advice {
        is_meant: |words| words.is_on("autoresume") || words.is_on("--autoresume"),
        message: "Composer's autoresume goes by its own newest checkpoint, whole or not, and starts \
                  at zero in silence where it finds none",
        mend: "take autoresume out: spotkeeper names the checkpoint by load_path",
    },
    Advice {
        is_meant: |words| words.is_on("--save_only_model") || words.has_option("--no-save-optim"),
        message: "checkpoints without optimizer state are weights only: none of them is resumed from",
        mend: "take --save_only_model or --no-save-optim out",
    },
    Advice {
        is_meant: |words| {
            words.has_option("--mcore_model") && !words.has_value("--finetune", "false")
        },
        message: "ms-swift's Megatron drops optimizer and step of a checkpoint unless told otherwise",
        mend: "add --finetune false",
    },
];

/// The words of everything that a resumed attempt is told.
struct Words(Vec<String>);

impl Words {
    fn of(texts: &[&str]) -> Self {
        let mut all: Vec<String> = Vec::new();
        for text in texts {
            for word in words(text) {
                // `bash -c '…'`: a command inside the command.
                let is_shell = all.last().is_some_and(|last| {
                    last.starts_with('-') && !last.starts_with("--") && last.ends_with('c')
                });
                if is_shell { all.extend(words(&word)) } else { all.push(word) }
            }
        }
        Self(all)
    }

    fn has_option(&self, name: &str) -> bool {
        self.0.iter().any(|word| is_option(word, name))
    }

    /// A Python file whose name begins so.
    fn has_script(&self, begin: &str) -> bool {
        self.0.iter().any(|word| {
            let name = word.rsplit('/').next().unwrap_or_default();
            name.starts_with(begin) && name.strip_suffix(".py").is_some()
        })
    }

    /// Whether an option has this value, in any case of letters: `name value` or `name=value`.
    fn has_value(&self, name: &str, value: &str) -> bool {
        self.values(name).any(|found| found.is_some_and(|found| found.eq_ignore_ascii_case(value)))
    }

    /// Whether a switch is there and not put off.
    fn is_on(&self, name: &str) -> bool {
        let is_off = |value: Option<&str>| {
            value.is_some_and(|value| {
                ["false", "0", "no"].iter().any(|o| value.eq_ignore_ascii_case(o))
            })
        };
        self.values(name).last().is_some_and(|value| !is_off(value))
    }

    /// The value behind each `name`, if one follows.
    fn values<'w>(&'w self, name: &'w str) -> impl Iterator<Item = Option<&'w str>> {
        self.0.iter().enumerate().filter(move |(_, word)| is_option(word, name)).map(
            move |(at, word)| match word.split_once('=') {
                Some((_, value)) => Some(value),
                None => self.0.get(at + 1).map(String::as_str),
            },
        )
    }
}

/// Advises on the command of a job that has checkpoints.
pub(super) fn advise(body: &Body<'_, '_>, resume: Option<&str>, resume_command: Option<&str>) {
    let Some(written) = body.text("/UserCommand") else { return };
    let words = Words::of(&[resume_command.unwrap_or(written), resume.unwrap_or_default()]);
    for advice in ADVICE.iter().filter(|advice| (advice.is_meant)(&words)) {
        let span = body.at("/UserCommand");
        body.notes.warning(&span, codes::TRAINER_FLAG, advice.message, advice.mend);
    }
}
