//! `spotkeeper emulator`: runs until TERM or INT, then leaves no process of a job behind.

use crate::emulator::args::EmulatorArgs;
use crate::emulator::serve;
use anyhow::Context as _;
use futures_util::StreamExt as _;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Write as _;

pub(super) fn run(args: EmulatorArgs) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    tokio::runtime::Runtime::new().context("start the runtime")?.block_on(until_signal(args))
}

async fn until_signal(args: EmulatorArgs) -> anyhow::Result<()> {
    let mut signals =
        signal_hook_tokio::Signals::new([SIGINT, SIGTERM]).context("listen for signals")?;
    let key_was_given = args.access_key.is_some();
    let options = args.options()?;
    let key = options.key.clone();
    let running = serve(options).await?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on {}", running.url())?;
    if !key_was_given {
        writeln!(out, "access key {}:{}", key.id, key.secret.expose())?;
    }
    out.flush()?;
    signals.next().await;
    running.shutdown().await;
    Ok(())
}
