//! The demo's trainer: counts steps and saves as EasyCkpt on Megatron does.
//!
//! Always holds: it knows nothing of releases and reads no tracker; it loads exactly the folder and
//! step that it is given, checks every byte, and fails on a torn one; undisturbed it leaves only
//! whole checkpoints. It saves in several writes with pauses between them, straight under the final
//! names, so that it can be killed between any two of them.

use super::torch_zip_writer::State;
use crate::model::error::Class;
use serde::{Deserialize, Serialize};
use signal_hook::consts::SIGTERM;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Model-parallel ranks, each with a folder, a file and a marker.
pub const RANKS: u64 = 2;
/// Elements of a rank's tensor (64 KiB).
const WEIGHTS: u64 = 16 * 1024;
/// Writes in which one file is saved.
const WRITES: usize = 4;
/// Longest sleep between two looks at the signal.
const SLICE: Duration = Duration::from_millis(20);

/// `spotkeeper demo-trainer`.
#[derive(Debug, Clone, clap::Args)]
pub struct TrainerOptions {
    /// Folder to save in.
    #[arg(long)]
    pub save: PathBuf,
    /// Steps to reach.
    #[arg(long)]
    pub steps: u64,
    /// Steps from one save to the next; the last step is saved as well.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub save_every: u64,
    /// Time of one step, ms.
    #[arg(long, value_name = "MS")]
    pub step_time: u64,
    /// Pause between two writes of a save, ms.
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pub write_pause: u64,
    /// Folder to load from.
    #[arg(long, requires = "ckpt_step")]
    pub load: Option<PathBuf>,
    /// Step to load.
    #[arg(long, requires = "load")]
    pub ckpt_step: Option<u64>,
    /// On TERM, save before ending.
    #[arg(long)]
    pub save_on_term: bool,
    /// File to which a line is added for each event.
    #[arg(long)]
    pub log: PathBuf,
}

/// A line of the trainer's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LogLine {
    /// It starts; what it was given to load was whole.
    Start {
        /// The step that it was loaded at; 0 is from scratch.
        from: u64,
    },
    /// A step is done.
    Step {
        /// The step.
        step: u64,
    },
    /// A save begins.
    Saving {
        /// The step.
        step: u64,
    },
    /// The save is complete.
    Saved {
        /// The step.
        step: u64,
    },
    /// The last step is done and saved.
    Done,
}

/// Why the trainer failed.
#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    /// A checkpoint file could not be read.
    #[error("load {path}")]
    Load {
        /// The file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// A checkpoint file is not what a save of that step writes.
    #[error("load {path}: torn at byte {at} ({found} of {wanted} bytes)")]
    Torn {
        /// The file.
        path: PathBuf,
        /// First byte that differs.
        at: usize,
        /// Length found.
        found: usize,
        /// Length that a save writes.
        wanted: usize,
    },
    /// A checkpoint file could not be written.
    #[error("save {path}")]
    Save {
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// The log could not be written.
    #[error("write log {path}")]
    Log {
        /// The file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// TERM came, and the step was saved.
    #[error("terminated at step {step}, which was saved")]
    Terminated {
        /// The step.
        step: u64,
    },
    /// The handler could not be installed.
    #[error("listen for TERM")]
    Signal(#[source] io::Error),
}

impl TrainerError {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Terminated { .. } => Class::Retry,
            Self::Load { .. }
            | Self::Torn { .. }
            | Self::Save { .. }
            | Self::Log { .. }
            | Self::Signal(_) => Class::Operator,
        }
    }

    /// The exit code that a trainer would give.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Terminated { .. } => 143,
            Self::Load { .. }
            | Self::Torn { .. }
            | Self::Save { .. }
            | Self::Log { .. }
            | Self::Signal(_) => 1,
        }
    }
}

/// Trains, and shows each event on `out` as well as in the log.
///
/// # Errors
/// What cannot be loaded, saved or logged.
pub fn run(options: &TrainerOptions, out: &mut dyn Write) -> Result<(), TrainerError> {
    let term = Arc::new(AtomicBool::new(false));
    if options.save_on_term {
        signal_hook::flag::register(SIGTERM, Arc::clone(&term)).map_err(TrainerError::Signal)?;
    }
    train(options, out, &term)
}

fn train(
    options: &TrainerOptions,
    out: &mut dyn Write,
    term: &AtomicBool,
) -> Result<(), TrainerError> {
    let mut log = Log::open(&options.log, out)?;
    let from = match (&options.load, options.ckpt_step) {
        (Some(folder), Some(step)) => {
            load(folder, step)?;
            step
        }
        (Some(_) | None, _) => 0,
    };
    log.event(LogLine::Start { from })?;
    let mut saved = from;
    for step in from + 1..=options.steps {
        wait(Duration::from_millis(options.step_time), term);
        log.event(LogLine::Step { step })?;
        let ends = term.load(Ordering::Relaxed);
        if ends || step.is_multiple_of(options.save_every) || step == options.steps {
            log.event(LogLine::Saving { step })?;
            save(options, step)?;
            log.event(LogLine::Saved { step })?;
            saved = step;
        }
        // A signal that came during a save finds its step saved. Behind the last one there is nothing
        // to come back for.
        if term.load(Ordering::Relaxed) && saved == step && step < options.steps {
            return Err(TrainerError::Terminated { step });
        }
    }
    log.event(LogLine::Done)
}

/// What is true of a rank after a step.
fn state(step: u64, rank: u64) -> State {
    let seed = step.wrapping_mul(RANKS).wrapping_add(rank);
    let weight = |index: u64| {
        // One round of splitmix64: each element depends on step, rank and place.
        let mut z =
            seed.wrapping_mul(WEIGHTS).wrapping_add(index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // Sign and fraction; the exponent makes it a number between 0.5 and 1.
        let low = u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or(0);
        (low & 0x807f_ffff) | 0x3f00_0000
    };
    State { step, weights: (0..WEIGHTS).map(weight).collect() }
}

fn file_of(root: &Path, step: u64, rank: u64) -> PathBuf {
    root.join(format!("iter_{step:07}/mp_rank_{rank:02}/model_optim_rng.pt"))
}

fn load(root: &Path, step: u64) -> Result<(), TrainerError> {
    for rank in 0..RANKS {
        let path = file_of(root, step, rank);
        let found = std::fs::read(&path)
            .map_err(|source| TrainerError::Load { path: path.clone(), source })?;
        let wanted = state(step, rank).file();
        if found != wanted {
            let same = found.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
            let (found, wanted) = (found.len(), wanted.len());
            return Err(TrainerError::Torn { path, at: same, found, wanted });
        }
    }
    Ok(())
}

/// Files of all ranks, then their markers, then the tracker.
fn save(options: &TrainerOptions, step: u64) -> Result<(), TrainerError> {
    let pause = Duration::from_millis(options.write_pause);
    for rank in 0..RANKS {
        let file = state(step, rank).file();
        write(&file_of(&options.save, step, rank), &file, WRITES, pause)?;
    }
    for rank in 0..RANKS {
        sleep(pause);
        let marker = options.save.join(format!("iter_{step:07}/done_{rank}.txt"));
        write(&marker, b"", 1, Duration::ZERO)?;
    }
    sleep(pause);
    // Moved into place: a kill must not leave an empty tracker, which no argument overrides.
    let tracker = options.save.join("latest_checkpointed_iteration.txt");
    let aside = options.save.join("latest_checkpointed_iteration.txt.tmp");
    write(&aside, step.to_string().as_bytes(), 1, Duration::ZERO)?;
    std::fs::rename(&aside, &tracker)
        .map_err(|source| TrainerError::Save { path: tracker.clone(), source })
}

fn write(path: &Path, bytes: &[u8], writes: usize, pause: Duration) -> Result<(), TrainerError> {
    let failed = |source| TrainerError::Save { path: path.to_owned(), source };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = File::create(path).map_err(failed)?;
    for piece in bytes.chunks(bytes.len().div_ceil(writes).max(1)) {
        file.write_all(piece).map_err(failed)?;
        sleep(pause);
    }
    Ok(())
}

/// Sleeps, but not past a signal.
fn wait(duration: Duration, term: &AtomicBool) {
    let mut left = duration;
    while !left.is_zero() && !term.load(Ordering::Relaxed) {
        let slice = left.min(SLICE);
        sleep(slice);
        left -= slice;
    }
}

/// One JSON line an event, to a file and to whoever watches.
struct Log<'a> {
    path: &'a Path,
    file: File,
    out: &'a mut dyn Write,
}

impl<'a> Log<'a> {
    fn open(path: &'a Path, out: &'a mut dyn Write) -> Result<Self, TrainerError> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|source| TrainerError::Log { path: path.to_owned(), source })?;
        Ok(Self { path, file, out })
    }

    fn event(&mut self, event: LogLine) -> Result<(), TrainerError> {
        let mut line = serde_json::to_string(&event)
            .map_err(|e| TrainerError::Log { path: self.path.to_owned(), source: e.into() })?;
        line.push('\n');
        // One write a line: a kill leaves whole lines.
        self.file
            .write_all(line.as_bytes())
            .map_err(|source| TrainerError::Log { path: self.path.to_owned(), source })?;
        // Nobody may be watching; the file is the record.
        self.out.write_all(line.as_bytes()).and_then(|()| self.out.flush()).ok();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(root: &Path, steps: u64) -> TrainerOptions {
        TrainerOptions {
            save: root.join("ck"),
            steps,
            save_every: 3,
            step_time: 0,
            write_pause: 0,
            load: None,
            ckpt_step: None,
            save_on_term: false,
            log: root.join("trainer.jsonl"),
        }
    }

    fn events(root: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(root.join("trainer.jsonl")).expect("a log");
        let event = |line: &str| {
            let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let number = value.get("step").or(value.get("from"));
            let word = value["event"].as_str().expect("a word").to_owned();
            number.map_or(word.clone(), |n| format!("{word} {n}"))
        };
        text.lines().map(event).collect()
    }

    #[test]
    fn it_saves_loads_and_goes_on() {
        let root = tempfile::tempdir().expect("a folder");
        let first = options(root.path(), 4);
        run(&first, &mut io::sink()).expect("it trains");
        let second = TrainerOptions {
            load: Some(first.save.clone()),
            ckpt_step: Some(3),
            ..options(root.path(), 5)
        };
        run(&second, &mut io::sink()).expect("it goes on");
        assert_eq!(
            events(root.path()),
            [
                "start 0", "step 1", "step 2", "step 3", "saving 3", "saved 3", "step 4",
                "saving 4", "saved 4", "done", "start 3", "step 4", "step 5", "saving 5",
                "saved 5", "done",
            ]
        );
        let tracker = std::fs::read_to_string(first.save.join("latest_checkpointed_iteration.txt"));
        assert_eq!(tracker.expect("a tracker"), "5");
        assert!(first.save.join("iter_0000005/done_1.txt").exists());
    }

    #[test]
    fn every_damage_is_found_at_loading() {
        let root = tempfile::tempdir().expect("a folder");
        let options = options(root.path(), 3);
        run(&options, &mut io::sink()).expect("it trains");
        let path = file_of(&options.save, 3, 1);
        let whole = std::fs::read(&path).expect("a file");
        let again =
            TrainerOptions { load: Some(options.save.clone()), ckpt_step: Some(3), ..options };
        for at in [0, 1, whole.len() / 2, whole.len() - 1] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            for bytes in [&whole[..at], &flipped] {
                std::fs::write(&path, bytes).expect("a file");
                let error = run(&again, &mut io::sink()).expect_err("torn");
                assert!(
                    matches!(error, TrainerError::Torn { at: found, .. } if found == at),
                    "{error}"
                );
                assert_eq!(error.exit_code(), 1);
            }
        }
        std::fs::remove_file(&path).expect("it is there");
        assert!(matches!(run(&again, &mut io::sink()), Err(TrainerError::Load { .. })));
        let elsewhere = TrainerOptions { ckpt_step: Some(2), ..again };
        assert!(matches!(run(&elsewhere, &mut io::sink()), Err(TrainerError::Load { .. })));
    }

    #[test]
    fn a_signal_is_answered_with_a_save() {
        let root = tempfile::tempdir().expect("a folder");
        let error = train(&options(root.path(), 9), &mut io::sink(), &AtomicBool::new(true));
        let error = error.expect_err("it ends");
        assert!(matches!(error, TrainerError::Terminated { step: 1 }), "{error}");
        assert_eq!(error.exit_code(), 143);
        assert_eq!(events(root.path()), ["start 0", "step 1", "saving 1", "saved 1"]);
    }

    #[test]
    fn states_differ_by_step_and_rank() {
        assert_ne!(state(1, 0), state(1, 1));
        assert_ne!(state(1, 1).weights, state(2, 0).weights);
        assert_eq!(state(9, 1), state(9, 1));
    }
}
