//! The command line: one file a verb.

pub mod check;
#[cfg(feature = "emulator")]
mod emulator;
pub mod init;
mod run;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Supervisor for preemptible training jobs on Alibaba Cloud PAI-DLC.
#[derive(Debug, Parser)]
#[command(name = "spotkeeper", version)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one value a process")]
enum Verb {
    /// Run the daemon
    Run(run::RunArgs),
    /// Run a PAI-DLC stand-in on loopback
    #[cfg(feature = "emulator")]
    Emulator(crate::emulator::args::EmulatorArgs),
}

/// Reads the command line and does what it says.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.verb {
        Verb::Run(args) => return run::run(&args),
        #[cfg(feature = "emulator")]
        Verb::Emulator(args) => emulator::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
