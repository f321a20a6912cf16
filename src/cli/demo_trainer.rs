//! `spotkeeper demo-trainer`: what the demo's jobs run in place of a real trainer.

use super::exit::Exit;
use crate::demo::trainer::{self, TrainerOptions};
use std::io::Write;

pub(super) fn run(options: &TrainerOptions, err: &mut dyn Write) -> Exit {
    match trainer::run(options, &mut std::io::stdout()) {
        Ok(()) => Exit::Done,
        Err(error) => {
            // Its exit code says the same, should nobody read this.
            drop(writeln!(err, "{:#}", anyhow::Error::from(error)));
            Exit::Error
        }
    }
}
